//! How long and how deep a statement may be.
//!
//! Planning goes down into an expression once for each operator of a chain, and takes time that grows faster than the words.
//! Both have a bound here, before anything is planned, with room to spare on the stack of whoever plans.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{SetExpr, Visit};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use savanna_streams_api::{Result, StreamError};

use super::tokens::position;
use crate::plan::size::{NODES_MAX, too_many_nodes};
use crate::plan::walk::{self, Node};
use crate::statement::Statement;

/// Words, numbers, strings and signs in a statement.
const WORDS_MAX: usize = 20_000;
/// Brackets in each other.
const BRACKETS_MAX: usize = 100;
/// Operators in each other: a chain `a + b + c` has two. The time to plan it grows with the square.
pub(crate) const DEPTH_MAX: usize = 300;

/// Refuses a statement that is too long, or whose brackets are too deep.
pub(super) fn check_tokens(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut words = 0;
    let mut open = 0_usize;
    // Of `INT[][][]`.
    let mut pairs = 0_usize;
    let mut before = &Token::EOF;
    for token in tokens {
        match token.token {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket | Token::LBrace => open += 1,
            Token::RParen | Token::RBracket | Token::RBrace => open = open.saturating_sub(1),
            _ => {}
        }
        match (&token.token, before) {
            (Token::RBracket, Token::LBracket) => pairs += 1,
            (Token::LBracket, Token::RBracket) => {}
            _ => pairs = 0,
        }
        words += 1;
        check_words(words)?;
        check_brackets(open.max(pairs), token)?;
        before = &token.token;
    }
    Ok(())
}

/// Refuses a statement of more words.
pub(super) fn check_words(words: usize) -> Result<()> {
    if words <= WORDS_MAX {
        return Ok(());
    }
    Err(too_complex(format!(
        "the statement has more than {WORDS_MAX} words; put lists into a table, or parts into views"
    )))
}

/// Refuses a bracket, or one of a nested type, inside of too many others.
pub(super) fn check_brackets(open: usize, token: &TokenWithSpan) -> Result<()> {
    if open <= BRACKETS_MAX {
        return Ok(());
    }
    let place = position(token.span.start).map_or_else(String::new, |place| format!(" ({place})"));
    Err(too_complex(format!("brackets are nested more than {BRACKETS_MAX} deep{place}; put parts into views")))
}

/// Refuses a statement whose operators are too deep in each other.
pub(super) fn check_depth(statement: &Statement) -> Result<()> {
    statement.query().map_or(Ok(()), |query| check_tree(query.ast.as_ref()))
}

/// Refuses a syntax tree whose operators are too deep in each other.
pub(super) fn check_tree(tree: &impl Visit) -> Result<()> {
    let mut depth = 0_usize;
    let too_deep = walk::find(tree, |node| {
        match node {
            Node::Expr(_) => depth += 1,
            Node::Query(query) => depth += 1 + set_operations(&query.body),
            Node::LeftExpr => depth -= 1,
            Node::LeftQuery(query) => depth -= 1 + set_operations(&query.body),
            _ => {}
        }
        (depth > DEPTH_MAX).then_some(())
    });
    match too_deep {
        None => Ok(()),
        Some(()) => Err(too_complex(format!(
            "operators are nested more than {DEPTH_MAX} deep, as in a + b + c; put parts into views, or write a list with IN"
        ))),
    }
}

/// Refuses a statement that names too many tables once its common table expressions are written out where they are named. Two
/// names of the one before make thirty of them 2^30 tables, and planning writes them out.
pub(super) fn check_mentions(statement: &Statement) -> Result<()> {
    let Some(query) = statement.query() else { return Ok(()) };
    let mut written: HashMap<String, usize> = HashMap::new();
    let too_many = walk::find(query.ast.as_ref(), |node| {
        // Those within are met before.
        let Node::LeftQuery(query) = node else { return None };
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let mentions = mentions(&cte.query, &written);
            if mentions > NODES_MAX {
                return Some(());
            }
            // The larger of two with one name.
            let known = written.entry(cte.alias.name.value.clone()).or_default();
            *known = mentions.max(*known);
        }
        None
    });
    match too_many {
        None if mentions(query.ast.as_ref(), &written) <= NODES_MAX => Ok(()),
        _ => Err(too_many_nodes()),
    }
}

/// How many tables a part of a statement names, those of common table expressions included.
fn mentions(tree: &impl Visit, written: &HashMap<String, usize>) -> usize {
    let mut count = 0_usize;
    let _all: Option<()> = walk::find(tree, |node| {
        if let Node::Relation(name) = node {
            let one = match name.0.as_slice() {
                [part] => part.as_ident().and_then(|name| written.get(&name.value)).copied().unwrap_or(1),
                _ => 1,
            };
            count = count.saturating_add(one);
        }
        None
    });
    count
}

/// How many `UNION`s and the like are in each other.
fn set_operations(mut body: &SetExpr) -> usize {
    let mut count = 0;
    while let SetExpr::SetOperation { left, .. } = body {
        (body, count) = (left, count + 1);
    }
    count
}

fn too_complex(message: String) -> StreamError {
    StreamError::TooComplex { message }
}
