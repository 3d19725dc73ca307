//! `PREPARE` and `EXECUTE`: statements that are prepared by SQL.

use std::sync::Arc;

use savanna_tenants_catalog::Catalog;
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};
use sqlparser::{ast, keywords::Keyword, parser::Parser, tokenizer::Token};

use crate::parse::dialect::{is_word, syntax, wrong};
use crate::{
    bind::{Binder, Parameters},
    expression::{Env, Expr, Facts},
    parse::{data_type::type_of, name::name_of, offset_of, word, words::Words},
    plan::{Call, NewPrepared, Plan, Statement},
    query::{scope::Scope, select::Planner},
};

/// The plan of a text that is one of these.
///
/// # Errors
/// 42601; 0A000 for two-phase commit.
pub(crate) fn plan(words: &Words<'_>, catalog: &Catalog) -> Result<Option<Plan>> {
    let first = words.first();
    if !matches!(first.as_str(), "PREPARE" | "EXECUTE" | "EXPLAIN") {
        return Ok(None);
    }
    let grammar = words.grammar();
    let mut parser = words.parser(&grammar);
    let plan = match first.as_str() {
        "PREPARE" => return prepare(&mut parser, words.text, catalog).map(Some),
        "EXECUTE" => call(&mut parser, String::new())?,
        _ => match explained(&mut parser, words.text) {
            Some(explain) => call(&mut parser, explain)?,
            None => return Ok(None),
        },
    };
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.next_token().token {
        Token::EOF => Ok(Some(plan)),
        other => Err(wrong(&format!("expected the end of the statement, came {other}"))),
    }
}

/// Goes to the `EXECUTE` that an `EXPLAIN` is about; the text before it.
fn explained(parser: &mut Parser<'_>, text: &str) -> Option<String> {
    let mut depth = 0;
    loop {
        let token = parser.peek_token();
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            other if depth == 0 && is_word(other, "EXECUTE") => {
                return Some(text[..offset_of(text, token.span.start)].to_owned());
            }
            other if depth == 0 && !["EXPLAIN", "ANALYZE", "VERBOSE"].iter().any(|word| is_word(other, word)) => {
                return None;
            }
            _ => {}
        }
        parser.advance_token();
    }
}

fn prepare(parser: &mut Parser<'_>, text: &str, catalog: &Catalog) -> Result<Plan> {
    parser.advance_token();
    let name = name_of(&parser.parse_identifier().map_err(|error| syntax(&error))?);
    if matches!(parser.peek_token().token, Token::SingleQuotedString(_)) {
        return Err(SqlError::unsupported("PREPARE TRANSACTION"));
    }
    let mut types = Vec::new();
    if parser.consume_token(&Token::LParen) {
        let given = parser.parse_comma_separated(Parser::parse_data_type).map_err(|error| syntax(&error))?;
        parser.expect_token(&Token::RParen).map_err(|error| syntax(&error))?;
        types = given.iter().map(|of| type_of(of, catalog)).collect::<Result<_>>()?;
    }
    parser.expect_keyword(Keyword::AS).map_err(|error| syntax(&error))?;
    let begin = parser.peek_token();
    let statement = text[offset_of(text, begin.span.start)..].to_owned();
    match word(&begin).as_str() {
        "SELECT" | "VALUES" | "WITH" | "INSERT" | "UPDATE" | "DELETE" | "" => {}
        other => return Err(wrong(&format!("expected a query or a statement that writes rows, came {other}"))),
    }
    Ok(Plan::Prepare(NewPrepared { name, types, statement, text: text.trim().into() }))
}

fn call(parser: &mut Parser<'_>, explain: String) -> Result<Plan> {
    parser.advance_token();
    let name = name_of(&parser.parse_identifier().map_err(|error| syntax(&error))?);
    let mut arguments = Vec::new();
    if parser.consume_token(&Token::LParen) {
        arguments = parser.parse_comma_separated(Parser::parse_expr).map_err(|error| syntax(&error))?;
        parser.expect_token(&Token::RParen).map_err(|error| syntax(&error))?;
    }
    Ok(Plan::Execute(Call { explain, name, arguments }))
}

impl Call {
    /// The values that the statement gets for its parameters.
    ///
    /// # Errors
    /// 42601 if they are not as many, 42804 if one is not of its type.
    pub fn values(&self, statement: &Statement, catalog: &Arc<Catalog>, facts: &Facts) -> Result<Vec<Value>> {
        let Self { name, arguments, .. } = self;
        let expected = statement.parameters.len();
        if arguments.len() != expected {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            return Err(SqlError::new(state::SYNTAX_ERROR, message)
                .detail(format!("Expected {expected} parameters but got {}.", arguments.len())));
        }
        let mut planner = Planner::new(catalog, Parameters::default());
        planner.style = facts.settings.style;
        let value = |(at, (argument, of)): (usize, (&ast::Expr, &Type))| {
            argument_value(&mut planner, argument, *of, at + 1)?.owned(Env::nothing(facts))
        };
        arguments.iter().zip(&statement.parameters).enumerate().map(value).collect()
    }
}

fn argument_value(planner: &mut Planner<'_>, ast: &ast::Expr, of: Type, number: usize) -> Result<Expr> {
    let nothing = Scope::default();
    let before = planner.parameters.types.len();
    let mut binder = Binder::closed(&nothing, planner, "EXECUTE parameters");
    binder.style = binder.planner.style;
    let typed = binder.expr(ast)?;
    let from = typed.of;
    let assigned = binder.assign(typed, of, "").map_err(|error| match error.state {
        state::DATATYPE_MISMATCH => {
            let (from, of) = (planner.catalog.type_name(from), planner.catalog.type_name(of));
            let message = format!("parameter ${number} of type {from} cannot be coerced to the expected type {of}");
            SqlError::new(state::DATATYPE_MISMATCH, message).hint("You will need to rewrite or cast the expression.")
        }
        _ => error,
    })?;
    match planner.parameters.types.len() == before {
        true => Ok(assigned),
        false => Err(SqlError::new(state::UNDEFINED_PARAMETER, "there is no parameter $1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match plan(&Words::read(text, Arc::default()).unwrap(), &Catalog::default()) {
            Ok(Some(Plan::Prepare(NewPrepared { name, types, statement, .. }))) => {
                format!("{name} {types:?} {statement}")
            }
            Ok(Some(Plan::Execute(Call { explain, name, arguments }))) => {
                format!("{explain}{name} {}", arguments.len())
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => error.state.to_owned(),
        }
    }

    #[test]
    fn the_statement_that_is_prepared_is_a_part_of_the_text() {
        assert_eq!(shown("prepare q (int, text) as\n /* ü */ select $1"), "q [Int4, Text] select $1");
        assert_eq!(shown("PREPARE \"Q\" AS INSERT INTO t VALUES ($1);"), "Q [] INSERT INTO t VALUES ($1);");
        assert_eq!(shown("PREPARE q AS CREATE TABLE t ()"), "42601");
        assert_eq!(shown("PREPARE TRANSACTION 'x'"), "0A000");
        assert_eq!(shown("EXECUTE q (1, 2 + f(3))"), "q 2");
        assert_eq!(shown("EXECUTE q;"), "q 0");
        assert_eq!(shown("explain (costs off) execute q(1)"), "explain (costs off) q 1");
        assert_eq!(shown("EXPLAIN ANALYZE SELECT execute FROM t"), "None");
        assert_eq!(shown("EXECUTE q 1"), "42601");
    }
}
