//! `COPY`: its own grammar, old and new, and its plans.

use std::sync::Arc;

use savanna_tenants_catalog::{Column, Generated};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{
    ast::{Ident, ObjectName, Query, Statement},
    keywords::Keyword,
    parser::{IsOptional, Parser, ParserError},
    tokenizer::Token,
};

use crate::parse::dialect::{is_word, syntax, wrong};
use crate::{
    copy::{CopyFormat, CopyKind, Header},
    modify::{target_columns, written::Verb},
    parse,
    parse::{
        name::{name_of, relation_name},
        words::Words,
    },
    plan::{CopyIn, Plan},
    query::{scope::Scope, select::Planner},
};

/// A `COPY` as it was written.
pub(crate) struct Copy {
    source: Source,
    /// Whether rows go to the client.
    to: bool,
    options: Options,
}

enum Source {
    Table(ObjectName, Vec<Ident>),
    Query(Box<Query>),
}

/// The options as they were said.
#[derive(Default)]
struct Options {
    kind: Option<CopyKind>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<Header>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<Columns>,
    force_not_null: Option<Columns>,
    force_null: Option<Columns>,
    freeze: Option<bool>,
    encoding: Option<String>,
}

enum Columns {
    All,
    These(Vec<String>),
}

/// Notes an option that is said once.
fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(SqlError::new(state::SYNTAX_ERROR, "conflicting or redundant options")),
    }
}

type Parsed<T> = std::result::Result<T, ParserError>;

/// The `COPY` that a text is, if it is one.
///
/// # Errors
/// 42601, and those of the options.
pub(crate) fn parse_copy(words: &Words<'_>) -> Result<Option<Copy>> {
    if !words.begin_with(&["COPY"]) {
        return Ok(None);
    }
    let grammar = words.grammar();
    let mut parser = words.parser(&grammar);
    parser.advance_token();
    let mut options = Options::default();
    if parser.parse_keyword(Keyword::BINARY) {
        options.kind = Some(CopyKind::Binary);
    }
    let source = source(&mut parser).map_err(|error| syntax(&error))?;
    let to = match parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::TO]) {
        Some(Keyword::FROM) => false,
        Some(_) => true,
        None => return Err(wrong("expected FROM or TO")),
    };
    if matches!(source, Source::Query(_)) && !to {
        return Err(wrong("expected TO, came FROM"));
    }
    if !parser.parse_keyword(Keyword::STDIN) && !parser.parse_keyword(Keyword::STDOUT) {
        return Err(SqlError::unsupported("COPY with a file or program"));
    }
    let _ = parser.parse_keyword(Keyword::WITH);
    if parser.consume_token(&Token::LParen) {
        options.new_ones(&mut parser)?;
    } else {
        options.old_ones(&mut parser)?;
    }
    if parser.parse_keyword(Keyword::WHERE) {
        return Err(SqlError::unsupported("COPY with WHERE"));
    }
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.next_token().token {
        Token::EOF => Ok(Some(Copy { source, to, options })),
        other => Err(wrong(&format!("expected the end of the statement, came {other}"))),
    }
}

fn source(parser: &mut Parser<'_>) -> Parsed<Source> {
    if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        return Ok(Source::Query(query));
    }
    let name = parser.parse_object_name(false)?;
    Ok(Source::Table(name, parser.parse_parenthesized_column_list(IsOptional::Optional, true)?))
}

impl Options {
    /// `(name value, ..)`, behind the bracket.
    fn new_ones(&mut self, parser: &mut Parser<'_>) -> Result<()> {
        loop {
            let name = parser.parse_identifier().map_err(|error| syntax(&error))?;
            self.new_one(&name_of(&name), parser)?;
            if parser.consume_token(&Token::RParen) {
                return Ok(());
            }
            parser.expect_token(&Token::Comma).map_err(|error| syntax(&error))?;
        }
    }

    fn new_one(&mut self, name: &str, parser: &mut Parser<'_>) -> Result<()> {
        match name {
            "format" => once(&mut self.kind, kind(&word(parser)?.unwrap_or_default())?),
            "freeze" => once(&mut self.freeze, truth(name, word(parser)?.as_deref())?),
            "delimiter" => once(&mut self.delimiter, value(name, parser)?),
            "null" => once(&mut self.null, value(name, parser)?),
            "quote" => once(&mut self.quote, value(name, parser)?),
            "escape" => once(&mut self.escape, value(name, parser)?),
            "encoding" => once(&mut self.encoding, value(name, parser)?),
            "header" => {
                let header = word(parser)?;
                let matches = header.as_ref().is_some_and(|header| header.eq_ignore_ascii_case("match"));
                let is_there = |on| if on { Header::Yes } else { Header::No };
                let header = if matches { Header::Match } else { is_there(truth(name, header.as_deref())?) };
                once(&mut self.header, header)
            }
            "force_quote" if parser.consume_token(&Token::Mul) => once(&mut self.force_quote, Columns::All),
            "force_quote" => once(&mut self.force_quote, bracketed(parser)?),
            "force_not_null" => once(&mut self.force_not_null, bracketed(parser)?),
            "force_null" => once(&mut self.force_null, bracketed(parser)?),
            other => Err(SqlError::new(state::SYNTAX_ERROR, format!("option \"{other}\" not recognized"))),
        }
    }

    /// Those from before there were brackets, in any order.
    fn old_ones(&mut self, parser: &mut Parser<'_>) -> Result<()> {
        let text = |parser: &mut Parser<'_>| {
            let _ = parser.parse_keyword(Keyword::AS);
            parser.parse_literal_string().map_err(|error| syntax(&error))
        };
        loop {
            let token = parser.peek_token().token;
            let known = ["binary", "csv", "freeze", "header", "delimiter", "null", "quote", "escape", "force"];
            let Some(word) = known.into_iter().find(|word| is_word(&token, word)) else { return Ok(()) };
            parser.advance_token();
            match word {
                "binary" => once(&mut self.kind, CopyKind::Binary)?,
                "csv" => once(&mut self.kind, CopyKind::Csv)?,
                "freeze" => once(&mut self.freeze, true)?,
                "header" => once(&mut self.header, Header::Yes)?,
                "delimiter" => once(&mut self.delimiter, text(parser)?)?,
                "null" => once(&mut self.null, text(parser)?)?,
                "quote" => once(&mut self.quote, text(parser)?)?,
                "escape" => once(&mut self.escape, text(parser)?)?,
                _ if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) => {
                    once(&mut self.force_not_null, listed(parser)?)?
                }
                _ if parser.parse_keyword(Keyword::NULL) => once(&mut self.force_null, listed(parser)?)?,
                _ if is_word(&parser.peek_token().token, "quote") => {
                    parser.advance_token();
                    let columns = if parser.consume_token(&Token::Mul) { Columns::All } else { listed(parser)? };
                    once(&mut self.force_quote, columns)?;
                }
                _ => return Err(wrong("expected QUOTE, NULL or NOT NULL behind FORCE")),
            }
        }
    }

    /// The format that they say, for columns of these names.
    fn format(self, to: bool, names: &[String], exists: &dyn Fn(&str) -> bool) -> Result<CopyFormat> {
        let refused = |message: &str| Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
        let invalid = |message: &str| Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
        let kind = self.kind.unwrap_or_default();
        let csv = kind == CopyKind::Csv;
        if kind == CopyKind::Binary {
            let said = [(&self.delimiter, "DELIMITER"), (&self.null, "NULL")];
            if let Some((_, what)) = said.into_iter().find(|(said, _)| said.is_some()) {
                return Err(SqlError::new(state::SYNTAX_ERROR, format!("cannot specify {what} in BINARY mode")));
            }
            if self.header.is_some_and(|header| header != Header::No) {
                return refused("cannot specify HEADER in BINARY mode");
            }
        }
        let delimiter = one_byte("delimiter", self.delimiter.as_deref().unwrap_or(if csv { "," } else { "\t" }))?;
        let null = self.null.unwrap_or_else(|| if csv { "" } else { "\\N" }.to_owned());
        if matches!(delimiter, b'\r' | b'\n') {
            return invalid("COPY delimiter cannot be newline or carriage return");
        }
        if null.contains(['\r', '\n']) {
            return invalid("COPY null representation cannot use newline or carriage return");
        }
        if !csv && (delimiter.is_ascii_lowercase() || delimiter.is_ascii_digit() || b"\\.".contains(&delimiter)) {
            return invalid(&format!("COPY delimiter cannot be \"{}\"", char::from(delimiter)));
        }
        if !csv && self.quote.is_some() {
            return refused("COPY quote available only in CSV mode");
        }
        let quote = one_byte("quote", self.quote.as_deref().unwrap_or("\""))?;
        if csv && delimiter == quote {
            return invalid("COPY delimiter and quote must be different");
        }
        if !csv && self.escape.is_some() {
            return refused("COPY escape available only in CSV mode");
        }
        let escape = self.escape.as_deref().map_or(Ok(quote), |escape| one_byte("escape", escape))?;
        let forces = [
            ("force quote", "COPY TO", self.force_quote.is_some(), to),
            ("force not null", "COPY FROM", self.force_not_null.is_some(), !to),
            ("force null", "COPY FROM", self.force_null.is_some(), !to),
        ];
        for (what, direction, said, fits) in forces {
            if said && !csv {
                return refused(&format!("COPY {what} available only in CSV mode"));
            }
            if said && !fits {
                return refused(&format!("COPY {what} only available using {direction}"));
            }
        }
        if null.bytes().any(|byte| byte == delimiter) {
            return refused("COPY delimiter must not appear in the NULL specification");
        }
        if csv && null.bytes().any(|byte| byte == quote) {
            return refused("CSV quote character must not appear in the NULL specification");
        }
        let header = self.header.unwrap_or_default();
        if to && header == Header::Match {
            return refused("cannot use \"match\" with HEADER in COPY TO");
        }
        if to && self.freeze == Some(true) {
            return refused("COPY freeze only available using COPY FROM");
        }
        if let Some(encoding) = self.encoding
            && !matches!(encoding.to_ascii_uppercase().as_str(), "UTF8" | "UTF-8" | "UNICODE")
        {
            return Err(SqlError::unsupported(format_args!("COPY with the encoding {encoding}")));
        }
        let places = |columns: Option<Columns>, option: &str| match columns {
            None => Ok(Vec::new()),
            Some(Columns::All) => Ok((0..names.len()).collect()),
            Some(Columns::These(columns)) => columns
                .iter()
                .map(|column| {
                    names.iter().position(|name| name == column).ok_or_else(|| {
                        if !exists(column) {
                            return SqlError::new(
                                state::UNDEFINED_COLUMN,
                                format!("column \"{column}\" does not exist"),
                            );
                        }
                        let message = format!("{option} column \"{column}\" not referenced by COPY");
                        SqlError::new(state::INVALID_COLUMN_REFERENCE, message)
                    })
                })
                .collect(),
        };
        Ok(CopyFormat {
            kind,
            delimiter,
            null,
            header,
            quote,
            escape,
            force_quote: places(self.force_quote, "FORCE_QUOTE")?,
            force_not_null: places(self.force_not_null, "FORCE_NOT_NULL")?,
            force_null: places(self.force_null, "FORCE_NULL")?,
        })
    }
}

fn one_byte(what: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => {
            let message = format!("COPY {what} must be a single one-byte character");
            Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

fn kind(name: &str) -> Result<CopyKind> {
    match name.to_ascii_lowercase().as_str() {
        "text" => Ok(CopyKind::Text),
        "csv" => Ok(CopyKind::Csv),
        "binary" => Ok(CopyKind::Binary),
        _ => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("COPY format \"{name}\" not recognized"))),
    }
}

/// What stands behind an option's name.
fn word(parser: &mut Parser<'_>) -> Result<Option<String>> {
    let text = match parser.peek_token().token {
        Token::Comma | Token::RParen => return Ok(None),
        Token::Word(word) => word.value,
        Token::SingleQuotedString(text) => text,
        Token::Number(digits, _) => digits,
        Token::EscapedStringLiteral(text) => text,
        other => return Err(wrong(&format!("expected a value of an option, came {other}"))),
    };
    parser.advance_token();
    Ok(Some(text))
}

fn value(name: &str, parser: &mut Parser<'_>) -> Result<String> {
    word(parser)?.ok_or_else(|| SqlError::new(state::SYNTAX_ERROR, format!("{name} requires a parameter")))
}

fn truth(name: &str, text: Option<&str>) -> Result<bool> {
    match text.map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        _ => Err(SqlError::new(state::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
    }
}

fn bracketed(parser: &mut Parser<'_>) -> Result<Columns> {
    parser.expect_token(&Token::LParen).map_err(|error| syntax(&error))?;
    let columns = listed(parser)?;
    parser.expect_token(&Token::RParen).map_err(|error| syntax(&error))?;
    Ok(columns)
}

fn listed(parser: &mut Parser<'_>) -> Result<Columns> {
    let columns = parser.parse_comma_separated(Parser::parse_identifier).map_err(|error| syntax(&error))?;
    Ok(Columns::These(columns.iter().map(name_of).collect()))
}

impl Planner<'_> {
    pub(crate) fn copy(&mut self, copy: Copy) -> Result<Plan> {
        let Copy { source, to, options } = copy;
        let mut table = None;
        let query = match source {
            Source::Table(name, columns) if !to => {
                let mut plan = self.copy_in(&name, &columns)?;
                let names: Vec<String> =
                    plan.columns.iter().map(|column| plan.target.table.columns[*column].name.clone()).collect();
                let exists = |name: &str| plan.target.table.column(name).is_some();
                plan.format = options.format(to, &names, &exists)?;
                return Ok(Plan::CopyIn(Box::new(plan)));
            }
            Source::Table(name, columns) => {
                table = self.catalog.table(&relation_name(&name)?);
                self.whole_table(&name, &columns)?
            }
            Source::Query(query) => query,
        };
        let query = self.query_at(&query, &Scope::default())?;
        let names: Vec<String> = query.columns.iter().map(|column| column.name.clone()).collect();
        let exists = |name: &str| table.is_some_and(|table| table.column(name).is_some());
        let format = options.format(to, &names, &exists)?;
        Ok(Plan::CopyOut(Box::new(query), format))
    }

    /// The query of a table's columns, of all that are not computed if none are named.
    fn whole_table(&self, name: &ObjectName, columns: &[Ident]) -> Result<Box<Query>> {
        if let Some(view) = self.catalog.view(&relation_name(name)?) {
            let message = format!("cannot copy from view \"{}\"", view.name);
            let error = SqlError::new(state::WRONG_OBJECT_TYPE, message);
            return Err(error.hint("Try the COPY (SELECT ...) TO variant."));
        }
        let table = self.table(name)?;
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let mut names: Vec<String> = columns.iter().map(|column| quoted(&name_of(column))).collect();
        if names.is_empty() {
            let kept = |column: &Column| !matches!(column.generated, Generated::Stored(_));
            let columns = table.live_columns().filter(|(_, column)| kept(column));
            names = columns.map(|(_, column)| quoted(&column.name)).collect();
        }
        let parts = name.0.iter().filter_map(|part| part.as_ident());
        let table = parts.map(|part| quoted(&name_of(part))).collect::<Vec<_>>().join(".");
        match parse::parse(&format!("SELECT {} FROM {table}", names.join(", ")))? {
            Some(Statement::Query(query)) => Ok(query),
            _ => Err(SqlError::internal("a table became no query")),
        }
    }

    pub(crate) fn copy_in(&mut self, name: &ObjectName, columns: &[Ident]) -> Result<CopyIn> {
        if self.catalog.view(&relation_name(name)?).is_some() {
            let message = format!("cannot copy to view \"{name}\"");
            return Err(SqlError::new(state::WRONG_OBJECT_TYPE, message)
                .hint("To enable copying to a view, provide an INSTEAD OF INSERT trigger."));
        }
        let written = self.written(name, None, Verb::Insert)?.0;
        let table = Arc::clone(&written.table);
        let names: Vec<String> = columns.iter().map(name_of).collect();
        let mut columns = target_columns(&written, &names)?;
        let computed = |at: &usize| matches!(table.columns[*at].generated, Generated::Stored(_));
        if let Some(at) = columns.iter().find(|at| computed(at)).filter(|_| !names.is_empty()) {
            let message = format!("column \"{}\" is a generated column", table.columns[*at].name);
            return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message)
                .detail("Generated columns cannot be used in COPY."));
        }
        columns.retain(|at| !computed(at));
        let mut defaults = Vec::new();
        for at in (0..table.columns.len()).filter(|at| !columns.contains(at)) {
            defaults.push((at, self.default_of(&table, at)?));
        }
        let (target, reached) = self.targets(table)?;
        Ok(CopyIn { target, reached, columns, format: CopyFormat::default(), defaults })
    }
}
