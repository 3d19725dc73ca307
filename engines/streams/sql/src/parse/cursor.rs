//! Cursors with a name: `DECLARE`, `FETCH`, `MOVE` and `CLOSE`. Streams are read forward only.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use savanna_streams_api::Result;

use super::StatementParser;
use crate::statement::Statement;

/// What to do instead of reading a stream in another direction.
const FORWARD: &str = "a stream is read forward only; write FETCH n, FETCH FORWARD n or FETCH ALL";

impl StatementParser<'_> {
    /// `DECLARE name [NO SCROLL] CURSOR [WITH HOLD] FOR query`.
    pub(super) fn declare(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let cursor = self.identifier("the name of a cursor")?.value;
        loop {
            let option = self.parser.peek_token();
            if self.word("BINARY") {
                return Err(self.unsupported(
                    "BINARY CURSOR",
                    &option,
                    "the client asks for binary rows when it fetches",
                ));
            } else if self.word("SCROLL") {
                return Err(self.unsupported("SCROLL CURSOR", &option, FORWARD));
            } else if !(self.word("INSENSITIVE") || self.word("ASENSITIVE") || self.words(&["NO", "SCROLL"])) {
                break;
            }
        }
        self.expect_word("CURSOR")?;
        let hold = self.words(&["WITH", "HOLD"]);
        let _ = self.words(&["WITHOUT", "HOLD"]);
        self.expect_word("FOR")?;
        Ok(Statement::Declare { cursor, hold, query: self.query()? })
    }

    /// `FETCH [direction] [FROM | IN] name`, or `MOVE`.
    pub(super) fn fetch(&mut self, moves: bool) -> Result<Statement> {
        self.parser.next_token();
        let rows = self.direction()?;
        let _ = self.word("FROM") || self.word("IN");
        Ok(Statement::Fetch { cursor: self.identifier("the name of a cursor")?.value, rows, moves })
    }

    /// `CLOSE name` or `CLOSE ALL`.
    pub(super) fn close(&mut self) -> Result<Statement> {
        self.parser.next_token();
        if self.word("ALL") {
            return Ok(Statement::Close { cursor: None });
        }
        Ok(Statement::Close { cursor: Some(self.identifier("the name of a cursor")?.value) })
    }

    fn direction(&mut self) -> Result<usize> {
        let first = self.parser.peek_token();
        for backward in ["PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "BACKWARD"] {
            if self.word(backward) {
                return Err(self.unsupported(&format!("FETCH {backward}"), &first, FORWARD));
            }
        }
        if self.word("NEXT") {
            return Ok(1);
        }
        let forward = self.word("FORWARD");
        if self.word("ALL") {
            return Ok(usize::MAX);
        }
        let number = self.parser.peek_token();
        match &number.token {
            Token::Number(digits, _) => {
                let rows = digits.parse().map_err(|_| self.expected_at("a number of rows", &number))?;
                self.parser.next_token();
                Ok(rows)
            }
            Token::Minus => Err(self.unsupported("FETCH of a negative number", &number, FORWARD)),
            _ if forward || self.starts_name(&first) => Ok(1),
            _ => Err(self.expected("a number of rows, NEXT, FORWARD, ALL or the name of a cursor")),
        }
    }

    fn starts_name(&self, token: &TokenWithSpan) -> bool {
        matches!(token.token, Token::Word(_))
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::parse;
    use crate::statement::Statement;

    #[test]
    fn fetches_are_read_with_all_their_optional_words() {
        for (text, rows) in [
            ("FETCH c", 1),
            ("FETCH NEXT FROM c", 1),
            ("FETCH FORWARD IN c", 1),
            ("FETCH 7 c", 7),
            ("FETCH FORWARD 7 FROM \"c\"", 7),
            ("FETCH ALL FROM c", usize::MAX),
            ("FETCH FORWARD ALL IN c;", usize::MAX),
        ] {
            assert_eq!(parse(text).unwrap(), Statement::Fetch { cursor: "c".into(), rows, moves: false }, "{text}");
        }
        assert_eq!(parse("MOVE 2 IN c").unwrap(), Statement::Fetch { cursor: "c".into(), rows: 2, moves: true });
        assert_eq!(parse("CLOSE ALL").unwrap(), Statement::Close { cursor: None });
    }

    #[test]
    fn a_stream_is_read_in_one_direction() {
        for text in
            ["FETCH PRIOR FROM c", "FETCH -1 FROM c", "FETCH BACKWARD 2 FROM c", "DECLARE c SCROLL CURSOR FOR SELECT 1"]
        {
            assert_eq!(parse(text).unwrap_err().sqlstate(), "0A000", "{text}");
        }
    }

    #[test]
    fn a_cursor_is_declared_over_a_query() {
        let declared = parse("DECLARE c INSENSITIVE NO SCROLL CURSOR WITH HOLD FOR SELECT a FROM t").unwrap();
        let Statement::Declare { cursor, hold, query } = declared else { panic!("{declared:?}") };
        assert_eq!((cursor.as_str(), hold, query.text()), ("c", true, "SELECT a FROM t"));
        assert!(parse("DECLARE c CURSOR FOR SHOW TABLES").is_err());
    }
}
