//! Statements of PostgreSQL that the parser does not know.

use sqlparser::{
    dialect::PostgreSqlDialect,
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::Token,
};

use crate::{
    error::{Result, SqlError, state},
    sql::{
        name::{name_of, object_name},
        plan::{Plan, SetConstraints},
    },
};

/// The plan of a statement that is one of these.
///
/// # Errors
/// 42601.
pub(crate) fn plan(text: &str) -> Result<Option<Plan>> {
    if !matches!(first_word(text).to_ascii_uppercase().as_str(), "SET" | "ALTER") {
        return Ok(None);
    }
    let Ok(mut parser) = Parser::new(&PostgreSqlDialect {}).try_with_sql(text) else { return Ok(None) };
    let plan = match words(&mut parser) {
        ["SET", "CONSTRAINTS"] => Plan::SetConstraints(set_constraints(&mut parser)?),
        _ => return Ok(None),
    };
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.next_token().token {
        Token::EOF => Ok(Some(plan)),
        other => Err(wrong(&format!("expected the end of the statement, came {other}"))),
    }
}

/// The first word that is no comment.
fn first_word(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let comment = match rest.get(..2) {
            Some("--") => rest.split_once('\n').map(|(_, rest)| rest),
            Some("/*") => rest.split_once("*/").map(|(_, rest)| rest),
            _ => None,
        };
        match comment {
            Some(after) => rest = after.trim_start(),
            None => return rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default(),
        }
    }
}

/// The two words that a statement of these begins with, which are then behind the parser.
fn words(parser: &mut Parser<'_>) -> [&'static str; 2] {
    const KNOWN: [[&str; 2]; 1] = [["SET", "CONSTRAINTS"]];
    let known = KNOWN.into_iter().find(|known| (0..2).all(|at| is_word(&parser.peek_nth_token(at).token, known[at])));
    if known.is_some() {
        parser.advance_token();
        parser.advance_token();
    }
    known.unwrap_or(["", ""])
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

fn set_constraints(parser: &mut Parser<'_>) -> Result<SetConstraints> {
    let names = match parser.parse_keyword(Keyword::ALL) {
        true => None,
        false => {
            let names = parser
                .parse_comma_separated(|parser| parser.parse_object_name(false))
                .map_err(|error| syntax(&error))?;
            Some(names.iter().map(object_name).collect::<Result<_>>()?)
        }
    };
    let mode = parser.parse_identifier().map_err(|error| syntax(&error))?;
    let deferred = match name_of(&mode).as_str() {
        "deferred" => true,
        "immediate" => false,
        other => return Err(wrong(&format!("expected DEFERRED or IMMEDIATE, came {other}"))),
    };
    Ok(SetConstraints { names, deferred })
}

fn syntax(error: &ParserError) -> SqlError {
    wrong(error.to_string().trim_start_matches("sql parser error: "))
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, format!("syntax error: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match plan(text) {
            Ok(plan) => format!("{plan:?}"),
            Err(error) => error.state.to_owned(),
        }
    }

    #[test]
    fn constraints_are_deferred_by_name_or_all() {
        let all = "Some(SetConstraints(SetConstraints { names: None, deferred: true }))";
        assert_eq!(shown("-- now\n/* or */ set CONSTRAINTS all deferred;"), all);
        let some = "Some(SetConstraints(SetConstraints { names: Some([\"a\", \"B\"]), deferred: false }))";
        assert_eq!(shown("SET CONSTRAINTS a, \"B\" IMMEDIATE"), some);
        assert_eq!(shown("SET CONSTRAINTS a"), "42601");
        assert_eq!(shown("SET CONSTRAINTS a DEFERRED b"), "42601");
        assert_eq!(shown("SET constraint = 1"), "None");
    }
}
