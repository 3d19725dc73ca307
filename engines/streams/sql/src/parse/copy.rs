//! `COPY .. TO STDOUT` and its options.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use savanna_streams_api::handle::CopyFormat;
use savanna_streams_api::{Result, StreamError};

use super::StatementParser;
use crate::statement::{Query, Statement};

impl StatementParser<'_> {
    /// `COPY (query) TO STDOUT [[WITH] (option value, ..)]`, `COPY table [(columns)] TO STDOUT ..`, and the older form of options.
    pub(super) fn copy(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let query = self.copied()?;
        let direction = self.parser.peek_token();
        if self.word("FROM") {
            return Err(self.unsupported(
                "COPY FROM",
                &direction,
                "read files with the 'file' connector and INSERT INTO .. SELECT",
            ));
        }
        self.expect_word("TO")?;
        let place = self.parser.peek_token();
        if !self.word("STDOUT") {
            return Err(self.unsupported(
                "COPY to a file or a program",
                &place,
                "write TO STDOUT, or INSERT INTO a table of the 'file' connector",
            ));
        }
        let format = self.copy_format()?;
        Ok(Statement::Copy { query, format })
    }

    /// What is copied: a query in parentheses, or a table.
    fn copied(&mut self) -> Result<Query> {
        if self.parser.consume_token(&Token::LParen) {
            let query = self.query()?;
            self.expect(&Token::RParen, ")")?;
            return Ok(query);
        }
        let name = self.object_name()?;
        let columns = if self.parser.peek_token_ref().token == Token::LParen { self.names()? } else { Vec::new() };
        let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        let columns =
            if columns.is_empty() { "*".to_owned() } else { columns.iter().map(quoted).collect::<Vec<_>>().join(", ") };
        super::parse_query(&format!("SELECT {columns} FROM {}", quoted(&name)))
    }

    fn copy_format(&mut self) -> Result<CopyFormat> {
        let mut options = Options::default();
        let _ = self.word("WITH");
        if self.parser.consume_token(&Token::LParen) {
            loop {
                self.copy_option(&mut options)?;
                if !self.parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            self.expect(&Token::RParen, ", or )")?;
        } else {
            while !self.at_end() {
                self.copy_option(&mut options)?;
            }
        }
        options.format()
    }

    fn copy_option(&mut self, options: &mut Options) -> Result<()> {
        let option = self.parser.peek_token();
        if self.word("FORMAT") {
            let format = self.parser.peek_token();
            match self.identifier("text or csv")?.value.to_ascii_lowercase().as_str() {
                "text" => options.csv = false,
                "csv" => options.csv = true,
                "binary" => return Err(self.unsupported("COPY in binary", &format, "write FORMAT text or FORMAT csv")),
                _ => return Err(self.expected_at("text or csv", &format)),
            }
        } else if self.word("CSV") {
            options.csv = true;
        } else if self.word("HEADER") {
            options.header = self.switch()?;
        } else if self.word("DELIMITER") {
            options.delimiter = Some(self.copy_character("the delimiter")?);
        } else if self.word("NULL") {
            let _ = self.word("AS");
            options.null = Some(self.string("the text of NULL")?);
        } else if self.word("QUOTE") {
            options.quote = Some(self.copy_character("the quote")?);
        } else if self.word("ESCAPE") {
            options.escape = Some(self.copy_character("the escape character")?);
        } else if self.word("ENCODING") {
            let encoding = self.parser.peek_token();
            if !["utf8", "utf-8"].contains(&self.string("the encoding")?.to_ascii_lowercase().as_str()) {
                return Err(self.unsupported("another encoding than UTF8", &encoding, "leave ENCODING out"));
            }
        } else {
            return Err(self.expected_at("FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE or ENCODING", &option));
        }
        Ok(())
    }

    /// `HEADER`, `HEADER true` or `HEADER off`.
    fn switch(&mut self) -> Result<bool> {
        let value = self.parser.peek_token();
        let word = match &value.token {
            Token::Comma | Token::RParen | Token::EOF | Token::SemiColon => return Ok(true),
            Token::Word(word) => word.value.to_ascii_lowercase(),
            Token::Number(digits, _) => digits.clone(),
            Token::SingleQuotedString(text) => text.to_ascii_lowercase(),
            _ => String::new(),
        };
        let on = match word.as_str() {
            "true" | "on" | "1" => true,
            "false" | "off" | "0" => false,
            // The older form has the next option here.
            "delimiter" | "null" | "quote" | "escape" | "encoding" | "csv" => return Ok(true),
            _ => return Err(self.expected_at("true or false", &value)),
        };
        self.parser.next_token();
        Ok(on)
    }

    fn copy_character(&mut self, what: &str) -> Result<(char, TokenWithSpan)> {
        let _ = self.word("AS");
        let place = self.parser.peek_token();
        let text = self.string(what)?;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(one), None)
                if one.is_ascii() && !['\r', '\n', '\\'].contains(&one) || text == "\\" && what != "the delimiter" =>
            {
                Ok((one, place))
            }
            _ => {
                Err(self.expected_at(&format!("{what} as one ASCII character, no line end and no back-slash"), &place))
            }
        }
    }
}

#[derive(Default)]
struct Options {
    csv: bool,
    header: bool,
    delimiter: Option<(char, TokenWithSpan)>,
    null: Option<String>,
    quote: Option<(char, TokenWithSpan)>,
    escape: Option<(char, TokenWithSpan)>,
}

impl Options {
    fn format(self) -> Result<CopyFormat> {
        let Self { csv, header, delimiter, null, quote, escape } = self;
        let place = |given: &Option<(char, TokenWithSpan)>| {
            given.as_ref().and_then(|(_, token)| super::position(token.span.start))
        };
        let given = |given: &Option<(char, TokenWithSpan)>| given.as_ref().map(|(character, _)| *character);
        if !csv && (quote.is_some() || escape.is_some()) {
            return Err(StreamError::Invalid {
                message: "QUOTE and ESCAPE belong to FORMAT csv; text has back-slashes".into(),
                position: place(&quote).or_else(|| place(&escape)),
            });
        }
        let mark = given(&quote).unwrap_or('"');
        let format = CopyFormat {
            csv,
            header,
            delimiter: given(&delimiter).unwrap_or(if csv { ',' } else { '\t' }),
            null: null.unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() }),
            quote: mark,
            escape: given(&escape).unwrap_or(mark),
        };
        let confusing = if csv {
            format.delimiter == format.quote
        } else {
            format.delimiter.is_ascii_alphanumeric() || format.delimiter == '.'
        };
        if confusing {
            return Err(StreamError::Invalid {
                message: format!(
                    "the delimiter cannot be {:?}; it would look like a part of a value",
                    format.delimiter
                ),
                position: place(&delimiter),
            });
        }
        Ok(format)
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_api::handle::CopyFormat;

    use crate::parse::parse;
    use crate::statement::Statement;

    fn format(text: &str) -> CopyFormat {
        match parse(text).unwrap() {
            Statement::Copy { format, .. } => format,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_forms_of_options_mean_the_same() {
        let new = format("COPY (SELECT a FROM t) TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';', NULL '-')");
        let old = format("COPY (SELECT a FROM t) TO STDOUT WITH CSV HEADER DELIMITER ';' NULL '-'");
        assert_eq!(new, old);
        assert_eq!((new.csv, new.header, new.delimiter, new.null.as_str()), (true, true, ';', "-"));
        let plain = format("COPY t TO STDOUT");
        assert_eq!((plain.csv, plain.delimiter, plain.null.as_str()), (false, '\t', "\\N"));
    }

    #[test]
    fn a_table_is_copied_by_its_columns() {
        let Statement::Copy { query, .. } = parse("COPY \"a t\" (b, c) TO STDOUT").unwrap() else { panic!() };
        assert_eq!(query.text(), "SELECT \"b\", \"c\" FROM \"a t\"");
    }

    #[test]
    fn what_cannot_be_copied_is_refused_by_name() {
        for (text, state) in [
            ("COPY t FROM STDIN", "0A000"),
            ("COPY t TO '/tmp/x'", "0A000"),
            ("COPY t TO STDOUT (FORMAT binary)", "0A000"),
            ("COPY t TO STDOUT (QUOTE '!')", "22023"),
            ("COPY t TO STDOUT (DELIMITER 'ab')", "42601"),
            ("COPY t TO STDOUT (DELIMITER 'a')", "22023"),
            ("COPY t TO STDOUT (FRMAT csv)", "42601"),
        ] {
            assert_eq!(parse(text).unwrap_err().sqlstate(), state, "{text}");
        }
    }
}
