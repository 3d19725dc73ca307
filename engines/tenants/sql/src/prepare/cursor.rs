//! `DECLARE`, `FETCH`, `MOVE` and `CLOSE`.

use savanna_tenants_values::error::{Result, SqlError};
use serde::{Deserialize, Serialize};
use sqlparser::{ast::Query, keywords::Keyword, parser::Parser, tokenizer::Token};

use crate::parse::dialect::{is_word, number, syntax, wrong};
use crate::{
    parse::{name::name_of, words::Words},
    plan::Plan,
    query::{scope::Scope, select::Planner},
};

/// Where a `FETCH` or `MOVE` goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// So many rows on; back if it is negative.
    Forward(i64),
    /// All that follow.
    ForwardAll,
    /// All before, the nearest first.
    BackwardAll,
    /// To the row with this number from 1; from the end if it is negative.
    Absolute(i64),
    /// To the row that is so many behind this one.
    Relative(i64),
}

/// What is asked of a new cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorOptions {
    /// Whether it goes backwards, too.
    pub scroll: bool,
    /// Whether it outlives its transaction.
    pub hold: bool,
}

/// A statement about a cursor, as it was written.
pub(crate) enum CursorStatement {
    Declare { name: String, options: CursorOptions, query: Box<Query> },
    Plain(Box<Plan>),
}

/// The statement about a cursor that a text is, if it is one.
///
/// # Errors
/// 42601.
pub(crate) fn parse_cursor(words: &Words<'_>) -> Result<Option<CursorStatement>> {
    let word = words.first();
    if !matches!(word.as_str(), "DECLARE" | "FETCH" | "MOVE" | "CLOSE") {
        return Ok(None);
    }
    let grammar = words.grammar();
    let mut parser = words.parser(&grammar);
    parser.advance_token();
    let statement = match word.as_str() {
        "DECLARE" => declare(&mut parser)?,
        "CLOSE" => {
            let all = parser.parse_keyword(Keyword::ALL);
            CursorStatement::Plain(Box::new(Plan::CloseCursor(if all { None } else { Some(name(&mut parser)?) })))
        }
        _ => {
            let direction = direction(&mut parser)?;
            let _ = parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::IN]);
            let moves = word == "MOVE";
            CursorStatement::Plain(Box::new(Plan::Fetch { name: name(&mut parser)?, direction, moves }))
        }
    };
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.next_token().token {
        Token::EOF => Ok(Some(statement)),
        other => Err(wrong(&format!("expected the end of the statement, came {other}"))),
    }
}

fn name(parser: &mut Parser<'_>) -> Result<String> {
    Ok(name_of(&parser.parse_identifier().map_err(|error| syntax(&error))?))
}

/// Takes a word, if it is the next one.
fn takes(parser: &mut Parser<'_>, word: &str) -> bool {
    let found = is_word(&parser.peek_token().token, word);
    if found {
        parser.advance_token();
    }
    found
}

fn declare(parser: &mut Parser<'_>) -> Result<CursorStatement> {
    let name = name(parser)?;
    let mut options = CursorOptions { scroll: true, hold: false };
    loop {
        if takes(parser, "binary") {
            return Err(SqlError::unsupported("DECLARE BINARY CURSOR"));
        } else if takes(parser, "no") {
            if !takes(parser, "scroll") {
                return Err(wrong("expected SCROLL behind NO"));
            }
            options.scroll = false;
        } else if takes(parser, "cursor") {
            break;
        } else if !takes(parser, "insensitive") && !takes(parser, "asensitive") && !takes(parser, "scroll") {
            return Err(wrong(&format!("expected CURSOR, came {}", parser.peek_token().token)));
        }
    }
    if takes(parser, "with") {
        options.hold = true;
    } else if !takes(parser, "without") {
        options.hold = false;
        return declared(parser, name, options);
    }
    if !takes(parser, "hold") {
        return Err(wrong("expected HOLD"));
    }
    declared(parser, name, options)
}

fn declared(parser: &mut Parser<'_>, name: String, options: CursorOptions) -> Result<CursorStatement> {
    if !takes(parser, "for") {
        return Err(wrong("expected FOR"));
    }
    let query = parser.parse_query().map_err(|error| syntax(&error))?;
    Ok(CursorStatement::Declare { name, options, query })
}

fn direction(parser: &mut Parser<'_>) -> Result<Direction> {
    let counts =
        |parser: &Parser<'_>| matches!(parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus);
    let some = |parser: &mut Parser<'_>| if counts(parser) { number(parser) } else { Ok(1) };
    let one_of = |parser: &mut Parser<'_>| {
        let words = ["next", "prior", "first", "last", "absolute", "relative", "all", "forward", "backward"];
        words.into_iter().find(|word| takes(parser, word))
    };
    Ok(match one_of(parser) {
        None => Direction::Forward(some(parser)?),
        Some("prior") => Direction::Forward(-1),
        Some("first") => Direction::Absolute(1),
        Some("last") => Direction::Absolute(-1),
        Some("absolute") => Direction::Absolute(number(parser)?),
        Some("relative") => Direction::Relative(number(parser)?),
        Some("all") => Direction::ForwardAll,
        Some("forward") if takes(parser, "all") => Direction::ForwardAll,
        Some("forward") => Direction::Forward(some(parser)?),
        Some("backward") if takes(parser, "all") => Direction::BackwardAll,
        Some("backward") => Direction::Forward(some(parser)?.saturating_neg()),
        Some(_) => Direction::Forward(1),
    })
}

impl Planner<'_> {
    pub(crate) fn cursor(&mut self, statement: CursorStatement, text: &str) -> Result<Plan> {
        match statement {
            CursorStatement::Plain(plan) => Ok(*plan),
            CursorStatement::Declare { name, options, query } => {
                if options.hold && !query.locks.is_empty() {
                    return Err(SqlError::unsupported("DECLARE CURSOR WITH HOLD ... FOR UPDATE"));
                }
                let query = Box::new(self.query_at(&query, &Scope::default())?);
                Ok(Plan::Declare { name, options, query, text: text.trim().to_owned() })
            }
        }
    }
}
