//! Text to statement. Which parser owns a statement is decided by its first words, never by trial: the standard grammar
//! accepts nonsense for our declarations and would hide the better error.

mod balance;
mod bounds;
mod copy;
mod cursor;
mod metered;
mod place;
mod split;
mod table;
mod tokens;

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use savanna_streams_api::{Position, Result, StreamError};
use savanna_streams_model::catalog::ViewDef;

use crate::statement::{ChangedText, ObjectKind, Query, Show, Statement};

pub(crate) use bounds::DEPTH_MAX;
use metered::Metered;
pub use place::{placed, placed_in_part};
pub use split::split;
pub use table::check_watermark;
pub(crate) use tokens::{AS_OF, PARTITION_BY, position};

/// Parses exactly one statement; a `;` at the end is fine.
///
/// # Errors
/// The text is no statement, or uses a construct that Savanna does not have. The place counts from the start of `sql`.
pub fn parse(sql: &str) -> Result<Statement> {
    let tokens = tokens::tokenize(sql)?;
    bounds::check_tokens(&tokens)?;
    let mut words = tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_)));
    let declaration = words.next().is_some_and(|t| tokens::is_word(&t.token, "CREATE"))
        && words.take(3).any(|t| tokens::is_word(&t.token, "TABLE"));
    let tokens = tokens::rewrite(tokens, declaration)?;
    tokens::refuse_foreign_constructs(&tokens)?;
    let metered = Metered::for_tokens(&tokens);
    let mut parser = StatementParser { sql, parser: metered.parser(tokens) };
    let statement = parser.statement()?;
    parser.end()?;
    bounds::check_depth(&statement)?;
    bounds::check_mentions(&statement)?;
    Ok(statement)
}

/// Parses an expression, such as that of a computed column.
pub(crate) fn parse_expression(text: &str) -> Result<datafusion::sql::sqlparser::ast::Expr> {
    let tokens = tokens::rewrite(tokens::tokenize(text)?, false)?;
    bounds::check_tokens(&tokens)?;
    let metered = Metered::for_tokens(&tokens);
    let mut expression = metered.parser(tokens).parse_expr().map_err(|e| tokens::syntax_error(e, text))?;
    balance::balance(&mut expression);
    bounds::check_tree(&expression)?;
    Ok(expression)
}

/// Parses the name of a type.
pub(crate) fn parse_type(text: &str) -> Result<datafusion::sql::sqlparser::ast::DataType> {
    let tokens = tokens::rewrite(tokens::tokenize(text)?, true)?;
    let metered = Metered::for_tokens(&tokens);
    metered.parser(tokens).parse_data_type().map_err(|e| tokens::syntax_error(e, text))
}

/// Parses a query's text alone, such as that of a view.
pub(crate) fn parse_query(text: &str) -> Result<Query> {
    match parse(text)? {
        Statement::Query(query) => Ok(query),
        _ => Err(StreamError::Syntax { message: "expected a query".into(), position: None }),
    }
}

struct StatementParser<'a> {
    sql: &'a str,
    parser: Parser<'a>,
}

impl StatementParser<'_> {
    fn statement(&mut self) -> Result<Statement> {
        let first = self.parser.peek_token();
        if first.token == Token::EOF || first.token == Token::SemiColon {
            return Err(self.expected("a statement"));
        }
        if first.token == Token::LParen {
            return self.query().map(Statement::Query);
        }
        let Token::Word(word) = &first.token else {
            return Err(self.expected("a statement"));
        };
        match word.value.to_ascii_uppercase().as_str() {
            "SELECT" | "WITH" | "FROM" | "VALUES" | "TABLE" => self.query().map(Statement::Query),
            "CREATE" => self.create(),
            "DROP" => self.drop(),
            "INSERT" => self.insert(),
            "DECLARE" => self.declare(),
            "FETCH" => self.fetch(false),
            "MOVE" => self.fetch(true),
            "CLOSE" => self.close(),
            "COPY" => self.copy(),
            "EXPLAIN" => self.explain(),
            "SHOW" => self.show(),
            "DESCRIBE" | "DESC" => {
                self.parser.next_token();
                let _ = self.word("EXTENDED");
                Ok(Statement::Describe { name: self.object_name()? })
            }
            "SET" => self.set(),
            "RESET" => {
                self.parser.next_token();
                if self.word("ALL") || self.at_end() {
                    return Ok(Statement::Reset { name: None });
                }
                Ok(Statement::Reset { name: Some(self.setting_name()?) })
            }
            "STOP" | "CANCEL" | "KILL" => self.stop_query(),
            "RESUME" => {
                self.parser.next_token();
                self.expect_word("QUERY")?;
                if self.words(&["FROM", "SAVEPOINT"]) {
                    return Ok(Statement::ResumeSavepoint { directory: self.savepoint()? });
                }
                self.resume_query()
            }
            "BEGIN" => self.transaction(Statement::Begin),
            "START" => {
                self.parser.next_token();
                self.expect_word("TRANSACTION")?;
                self.skip_to_end();
                Ok(Statement::Begin)
            }
            "COMMIT" | "END" => self.transaction(Statement::Commit),
            "ROLLBACK" | "ABORT" => self.transaction(Statement::Rollback),
            other => Err(self.unknown_statement(other, &first)),
        }
    }

    fn unknown_statement(&self, word: &str, token: &TokenWithSpan) -> StreamError {
        let instead = match word {
            "UPDATE" | "DELETE" | "MERGE" | "TRUNCATE" => "streams only grow: write rows with INSERT INTO .. SELECT",
            "ALTER" => "DROP the table or view and CREATE it again",
            "USE" => "there is one catalog; name tables directly",
            "GRANT" | "REVOKE" => "streams have no privileges of their own",
            "EXECUTE" | "PREPARE" | "DEALLOCATE" => {
                "use the client's prepared statements, or send the statement itself"
            }
            _ => {
                return self
                    .expected_at("SELECT, INSERT, CREATE, DROP, EXPLAIN, SHOW, DESCRIBE, SET or STOP QUERY", token);
            }
        };
        StreamError::Unsupported { what: word.into(), position: position(token.span.start), instead: instead.into() }
    }

    fn query(&mut self) -> Result<Query> {
        let start = self.parser.peek_token().span.start;
        let mut ast = self.parser.parse_query().map_err(|e| self.syntax(e))?;
        balance::balance(ast.as_mut());
        Ok(Query { ast, text: self.text_since(start).to_owned() })
    }

    fn create(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let or_replace = self.words(&["OR", "REPLACE"]);
        let temporary = self.word("TEMPORARY") || self.word("TEMP");
        let kind = self.parser.next_token();
        if tokens::is_word(&kind.token, "TABLE") {
            if or_replace {
                return Err(self.unsupported("CREATE OR REPLACE TABLE", &kind, "DROP TABLE it first"));
            }
            return self.create_table(temporary);
        }
        if tokens::is_word(&kind.token, "VIEW") {
            return self.create_view(or_replace, temporary);
        }
        if tokens::is_word(&kind.token, "MATERIALIZED") {
            self.expect_word("VIEW")?;
            if or_replace {
                let what = "CREATE OR REPLACE MATERIALIZED VIEW";
                return Err(self.unsupported(what, &kind, "DROP MATERIALIZED VIEW it first"));
            }
            return self.create_materialized_view(temporary);
        }
        for other in ["FUNCTION", "CATALOG", "DATABASE", "SCHEMA", "INDEX", "SEQUENCE", "TYPE", "USER", "ROLE"] {
            if tokens::is_word(&kind.token, other) {
                return Err(self.unsupported(
                    &format!("CREATE {other}"),
                    &kind,
                    "only TABLE, VIEW and MATERIALIZED VIEW can be created",
                ));
            }
        }
        Err(self.expected_at("TABLE or VIEW", &kind))
    }

    fn create_view(&mut self, or_replace: bool, temporary: bool) -> Result<Statement> {
        let if_not_exists = self.words(&["IF", "NOT", "EXISTS"]);
        let name = self.object_name()?;
        let columns = if self.parser.peek_token().token == Token::LParen { self.names()? } else { Vec::new() };
        if self.word("COMMENT") {
            self.string("the comment")?;
        }
        self.expect_word("AS")?;
        let query = self.query()?;
        let view = ViewDef { name, columns, query: query.text, statement: self.whole_text() };
        Ok(Statement::CreateView { view, or_replace, if_not_exists, temporary })
    }

    fn create_materialized_view(&mut self, temporary: bool) -> Result<Statement> {
        let if_not_exists = self.words(&["IF", "NOT", "EXISTS"]);
        let name = self.object_name()?;
        let columns = if self.parser.peek_token().token == Token::LParen { self.names()? } else { Vec::new() };
        if self.word("COMMENT") {
            self.string("the comment")?;
        }
        let has_options = tokens::is_word(&self.parser.peek_token_ref().token, "WITH");
        let options = if has_options { self.options()?.given } else { BTreeMap::new() };
        self.expect_word("AS")?;
        let query = self.query()?;
        let view = ViewDef { name, columns, query: query.text.clone(), statement: self.whole_text() };
        Ok(Statement::CreateMaterializedView { view, options, query, if_not_exists, temporary })
    }

    fn drop(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let _ = self.word("TEMPORARY");
        let kind = self.parser.next_token();
        let kind = if tokens::is_word(&kind.token, "TABLE") {
            ObjectKind::Table
        } else if tokens::is_word(&kind.token, "VIEW") {
            ObjectKind::View
        } else if tokens::is_word(&kind.token, "MATERIALIZED") {
            self.expect_word("VIEW")?;
            ObjectKind::MaterializedView
        } else if tokens::is_word(&kind.token, "QUERY") {
            return Ok(Statement::DropQuery { id: self.query_id()? });
        } else {
            return Err(self.expected_at("TABLE or VIEW", &kind));
        };
        let if_exists = self.words(&["IF", "EXISTS"]);
        Ok(Statement::Drop { kind, name: self.object_name()?, if_exists })
    }

    fn insert(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let verb = self.parser.peek_token();
        if tokens::is_word(&verb.token, "OVERWRITE") {
            return Err(self.unsupported("INSERT OVERWRITE", &verb, "write INSERT INTO"));
        }
        self.expect_word("INTO")?;
        let table = self.object_name()?;
        let opening = self.parser.peek_tokens::<2>();
        let is_columns = opening[0] == Token::LParen
            && !["SELECT", "WITH", "VALUES", "FROM"].iter().any(|w| tokens::is_word(&opening[1], w))
            && opening[1] != Token::LParen;
        let columns = if is_columns { self.names()? } else { Vec::new() };
        let next = self.parser.peek_token();
        if tokens::is_word(&next.token, "VALUES") {
            return Err(self.unsupported("INSERT .. VALUES", &next, "write INSERT INTO .. SELECT .. FROM a table"));
        }
        let query = self.query()?;
        Ok(Statement::Insert { table, columns, query })
    }

    fn explain(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let next = self.parser.peek_token();
        for (word, instead) in [
            ("ANALYZE", "run the query and look at SHOW QUERIES"),
            ("VERBOSE", "write EXPLAIN alone"),
            ("ESTIMATED_COST", "write EXPLAIN alone"),
            ("CHANGELOG_MODE", "write EXPLAIN alone; every result row is an insert"),
        ] {
            if tokens::is_word(&next.token, word) {
                return Err(self.unsupported(&format!("EXPLAIN {word}"), &next, instead));
            }
        }
        let _ = self.words(&["PLAN", "FOR"]);
        let place = self.parser.peek_token();
        match self.statement()? {
            inner @ (Statement::Query(_)
            | Statement::Insert { .. }
            | Statement::CreateMaterializedView { .. }
            | Statement::ResumeQuery { .. }) => Ok(Statement::Explain { inner: Box::new(inner) }),
            _ => {
                Err(self.expected_at("a SELECT, an INSERT INTO, a CREATE MATERIALIZED VIEW or a RESUME QUERY", &place))
            }
        }
    }

    fn show(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let show = if self.word("TABLES") {
            Show::Tables
        } else if self.word("VIEWS") {
            Show::Views
        } else if self.words(&["MATERIALIZED", "VIEWS"]) {
            Show::MaterializedViews
        } else if self.word("QUERIES") || self.word("JOBS") {
            Show::Queries
        } else if self.word("CONNECTORS") {
            Show::Connectors
        } else if self.word("FUNCTIONS") {
            Show::Functions
        } else if self.word("ALL") {
            Show::All
        } else if self.words(&["CREATE", "TABLE"]) {
            Show::CreateTable(self.object_name()?)
        } else if self.words(&["CREATE", "VIEW"]) {
            Show::CreateView(self.object_name()?)
        } else if self.words(&["CREATE", "MATERIALIZED", "VIEW"]) {
            Show::CreateMaterializedView(self.object_name()?)
        } else if self.at_end() {
            return Err(self.expected(
                "TABLES, VIEWS, MATERIALIZED VIEWS, QUERIES, CONNECTORS, FUNCTIONS, CREATE TABLE, CREATE VIEW, CREATE MATERIALIZED VIEW or ALL",
            ));
        } else {
            Show::Setting(self.setting_name()?)
        };
        Ok(Statement::Show(show))
    }

    fn set(&mut self) -> Result<Statement> {
        self.parser.next_token();
        let _ = self.word("SESSION") || self.word("LOCAL");
        let name = self.setting_name()?;
        if name.eq_ignore_ascii_case("time") && self.word("ZONE") {
            return Ok(Statement::Set { name: "timezone".into(), value: self.rest_unquoted() });
        }
        if !self.parser.consume_token(&Token::Eq) && !self.word("TO") {
            return Err(self.expected("= or TO"));
        }
        if self.at_end() {
            return Err(self.expected("a value"));
        }
        Ok(Statement::Set { name, value: self.rest_unquoted() })
    }

    fn stop_query(&mut self) -> Result<Statement> {
        self.parser.next_token();
        self.expect_word("QUERY")?;
        match self.query_before(&[&["WITH", "SAVEPOINT"]]) {
            Some(id) if self.words(&["WITH", "SAVEPOINT"]) => {
                Ok(Statement::StopQuery { id, savepoint: Some(self.savepoint()?) })
            }
            _ => Ok(Statement::StopQuery { id: self.query_id()?, savepoint: None }),
        }
    }

    fn resume_query(&mut self) -> Result<Statement> {
        let Some(id) = self.query_before(&[&["AS"], &["WITH"]]) else {
            return Ok(Statement::ResumeQuery { id: self.query_id()?, changed: None });
        };
        let has_options = tokens::is_word(&self.parser.peek_token_ref().token, "WITH");
        let options = if has_options { self.options()?.given } else { BTreeMap::new() };
        self.expect_word("AS")?;
        let start = self.parser.peek_token();
        if !tokens::is_word(&start.token, "INSERT") {
            return Err(self.expected_at("INSERT INTO", &start));
        }
        let Statement::Insert { table, columns, query } = self.insert()? else {
            return Err(self.expected_at("INSERT INTO", &start));
        };
        let text = self.text_since(start.span.start).to_owned();
        Ok(Statement::ResumeQuery { id, changed: Some(ChangedText { text, table, columns, query, options }) })
    }

    /// A query's name, or its id in quotes, if one of these follows it.
    fn query_before(&mut self, any: &[&[&str]]) -> Option<String> {
        let id = match &self.parser.peek_nth_token_ref(0).token {
            Token::SingleQuotedString(id) | Token::DoubleQuotedString(id) => id.clone(),
            Token::Word(name) => name.value.clone(),
            _ => return None,
        };
        let is_word =
            |(place, word): (usize, &&str)| tokens::is_word(&self.parser.peek_nth_token_ref(place).token, word);
        let follow = |words: &&[&str]| (1..).zip(words.iter()).all(is_word);
        if !any.iter().any(follow) {
            return None;
        }
        self.parser.next_token();
        Some(id)
    }

    fn savepoint(&mut self) -> Result<String> {
        if self.at_end() {
            return Err(self.expected("the directory of the savepoint in quotes"));
        }
        Ok(self.rest_unquoted())
    }

    fn query_id(&mut self) -> Result<String> {
        if self.at_end() {
            return Err(self.expected("the name or id of a query; SHOW QUERIES lists them"));
        }
        Ok(self.rest_unquoted())
    }

    fn transaction(&mut self, statement: Statement) -> Result<Statement> {
        self.parser.next_token();
        self.skip_to_end();
        Ok(statement)
    }

    /// `(a, b, c)`.
    fn names(&mut self) -> Result<Vec<String>> {
        self.expect(&Token::LParen, "(")?;
        let mut names = Vec::new();
        loop {
            let place = self.parser.peek_token();
            let name = self.identifier("a column name")?.value;
            if names.contains(&name) {
                let message = format!("column {name} is named twice; name it once");
                return Err(StreamError::Invalid { message, position: Some(self.place(&place)) });
            }
            names.push(name);
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        self.expect(&Token::RParen, ", or )")?;
        Ok(names)
    }

    fn object_name(&mut self) -> Result<String> {
        let token = self.parser.peek_token();
        if !matches!(token.token, Token::Word(_)) {
            return Err(self.expected("a name"));
        }
        let name = self.parser.parse_object_name(false).map_err(|e| self.syntax(e))?;
        single_name(&name).ok_or_else(|| {
            self.unsupported(
                &format!("the qualified name {name}"),
                &token,
                "there is one catalog; write the last part alone",
            )
        })
    }

    fn identifier(&mut self, what: &str) -> Result<Ident> {
        if !matches!(self.parser.peek_token_ref().token, Token::Word(_)) {
            return Err(self.expected(what));
        }
        self.parser.parse_identifier().map_err(|e| self.syntax(e))
    }

    /// `name`, `'name'`, `a.b.c` or `table-like-name` up to `=`, `TO` or the end.
    fn setting_name(&mut self) -> Result<String> {
        if let Token::SingleQuotedString(name) = &self.parser.peek_token_ref().token {
            let name = name.clone();
            self.parser.next_token();
            return Ok(name);
        }
        let mut name = self.identifier("the name of a setting")?.value;
        while self.parser.consume_token(&Token::Period) {
            name.push('.');
            name.push_str(&self.identifier("the rest of the setting's name")?.value);
        }
        Ok(name)
    }

    fn string(&mut self, what: &str) -> Result<String> {
        match &self.parser.peek_token_ref().token {
            Token::SingleQuotedString(text) => {
                let text = text.clone();
                self.parser.next_token();
                Ok(text)
            }
            _ => Err(self.expected(&format!("{what} as a string in single quotes"))),
        }
    }

    /// The text up to the end of the statement, without quotes around it.
    fn rest_unquoted(&mut self) -> String {
        let start = self.parser.peek_token().span.start;
        let only = match self.parser.peek_tokens::<2>() {
            [Token::SingleQuotedString(text), Token::EOF | Token::SemiColon] => Some(text),
            [Token::Word(word), Token::EOF | Token::SemiColon] => Some(word.value),
            _ => None,
        };
        self.skip_to_end();
        only.unwrap_or_else(|| self.text_since(start).to_owned())
    }

    fn skip_to_end(&mut self) {
        while !self.at_end() {
            self.parser.next_token();
        }
    }

    fn at_end(&self) -> bool {
        matches!(self.parser.peek_token_ref().token, Token::EOF | Token::SemiColon)
    }

    fn word(&mut self, word: &str) -> bool {
        let found = tokens::is_word(&self.parser.peek_token_ref().token, word);
        if found {
            self.parser.next_token();
        }
        found
    }

    fn words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(i, w)| tokens::is_word(&self.parser.peek_nth_token_ref(i).token, w));
        if found {
            for _ in words {
                self.parser.next_token();
            }
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.word(word) { Ok(()) } else { Err(self.expected(word)) }
    }

    fn expect(&mut self, token: &Token, what: &str) -> Result<()> {
        if self.parser.consume_token(token) { Ok(()) } else { Err(self.expected(what)) }
    }

    fn end(&mut self) -> Result<()> {
        while self.parser.consume_token(&Token::SemiColon) {}
        let next = self.parser.peek_token();
        if next.token == Token::EOF { Ok(()) } else { Err(self.expected_at("the end of the statement", &next)) }
    }

    fn expected(&self, what: &str) -> StreamError {
        self.expected_at(what, &self.parser.peek_token())
    }

    fn expected_at(&self, what: &str, token: &TokenWithSpan) -> StreamError {
        let found = match &token.token {
            Token::EOF => "the end of the statement".to_owned(),
            other => other.to_string(),
        };
        StreamError::Syntax {
            message: format!("expected {what}, but found {found}"),
            position: Some(self.place(token)),
        }
    }

    fn unsupported(&self, what: &str, token: &TokenWithSpan, instead: &str) -> StreamError {
        StreamError::Unsupported { what: what.into(), position: Some(self.place(token)), instead: instead.into() }
    }

    fn place(&self, token: &TokenWithSpan) -> Position {
        position(token.span.start).unwrap_or_else(|| tokens::end_of(self.sql))
    }

    fn syntax(&self, error: ParserError) -> StreamError {
        tokens::syntax_error(error, self.sql)
    }

    /// The text from `start` to the end of the token before the current one.
    fn text_since(&self, start: Location) -> &str {
        let end = self.parser.get_current_token().span.end;
        let (start, end) = (tokens::byte_offset(self.sql, start), tokens::byte_offset(self.sql, end));
        self.sql.get(start..end).unwrap_or_default().trim()
    }

    fn whole_text(&self) -> String {
        without_end(self.sql)
    }
}

/// A statement without the `;` behind it.
fn without_end(text: &str) -> String {
    text.trim().trim_end_matches(';').trim_end().to_owned()
}

/// The name if it has one part.
pub(crate) fn single_name(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(|ident| ident.value.clone()),
        _ => None,
    }
}
