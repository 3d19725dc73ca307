//! `VACUUM`, `ANALYZE` and `REINDEX`. What they name is looked up; then there is nothing to do: rows that nobody sees any more leave by
//! themselves, there are no statistics, and an index is never apart from its rows.

use savanna_tenants_catalog::{Catalog, Name};
use savanna_tenants_values::error::{Result, SqlError, state};
use sqlparser::{keywords::Keyword, parser::Parser, tokenizer::Token};

use crate::{
    parse::{
        dialect::{identifier, is_word, name, wrong},
        words::Words,
    },
    plan::Plan,
};

/// The plan of a text that maintains tables.
///
/// # Errors
/// 42601; 42P01, 42703, 42704, 42809 and 3F000 for what there is not.
pub(crate) fn plan(words: &Words<'_>, catalog: &Catalog) -> Result<Option<Plan>> {
    let Some(tag) = ["VACUUM", "ANALYZE", "ANALYSE", "REINDEX"].into_iter().find(|tag| words.begin_with(&[tag])) else {
        return Ok(None);
    };
    let grammar = words.grammar();
    let mut parser = words.parser(&grammar);
    parser.advance_token();
    match tag {
        "VACUUM" => {
            const OLD: [&str; 4] = ["FULL", "FREEZE", "VERBOSE", "ANALYZE"];
            const OPTIONS: [&str; 10] = [
                "FULL",
                "FREEZE",
                "VERBOSE",
                "ANALYZE",
                "DISABLE_PAGE_SKIPPING",
                "SKIP_LOCKED",
                "INDEX_CLEANUP",
                "PROCESS_TOAST",
                "TRUNCATE",
                "PARALLEL",
            ];
            let asked = match options(&mut parser, tag, &OPTIONS)? {
                asked if asked.is_empty() => OLD.into_iter().filter(|option| take(&mut parser, option)).collect(),
                asked => asked,
            };
            tables(&mut parser, catalog, asked.contains(&"ANALYZE"))?;
        }
        "REINDEX" => {
            options(&mut parser, tag, &["CONCURRENTLY", "TABLESPACE", "VERBOSE"])?;
            reindexed(&mut parser, catalog)?;
        }
        _ => {
            if options(&mut parser, tag, &["VERBOSE", "SKIP_LOCKED"])?.is_empty() {
                take(&mut parser, "VERBOSE");
            }
            tables(&mut parser, catalog, true)?;
        }
    }
    let _ = parser.consume_token(&Token::SemiColon);
    match parser.next_token().token {
        Token::EOF => Ok(Some(Plan::Nothing(if tag == "ANALYSE" { "ANALYZE" } else { tag }))),
        other => Err(wrong(&format!("expected the end of the statement, came {other}"))),
    }
}

fn take(parser: &mut Parser<'_>, word: &str) -> bool {
    let is = is_word(&parser.peek_token().token, word);
    if is {
        parser.advance_token();
    }
    is
}

/// The names in `(name [value], ..)`, whose values do not matter.
fn options(parser: &mut Parser<'_>, tag: &str, known: &[&'static str]) -> Result<Vec<&'static str>> {
    let mut asked = Vec::new();
    if !parser.consume_token(&Token::LParen) {
        return Ok(asked);
    }
    loop {
        let option = parser.next_token().token.to_string();
        let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(&option)) else {
            let message = format!("unrecognized {tag} option \"{}\"", option.to_ascii_lowercase());
            return Err(SqlError::new(state::SYNTAX_ERROR, message)
                .hint(format!("The options of {tag} are {}.", known.join(", "))));
        };
        asked.push(*name);
        if !matches!(parser.peek_token().token, Token::Comma | Token::RParen | Token::EOF) {
            parser.advance_token();
        }
        match parser.next_token().token {
            Token::Comma => {}
            Token::RParen => return Ok(asked),
            other => return Err(wrong(&format!("expected a comma or ) behind the option {option}, came {other}"))),
        }
    }
}

fn undefined(name: &Name) -> SqlError {
    SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

/// Names of tables, each perhaps with those of its columns that are analyzed.
fn tables(parser: &mut Parser<'_>, catalog: &Catalog, analyzes: bool) -> Result<()> {
    if matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
        return Ok(());
    }
    loop {
        let name = name(parser)?;
        if !catalog.has(&name) {
            return Err(undefined(&name));
        }
        if parser.consume_token(&Token::LParen) {
            if !analyzes {
                let message = "ANALYZE option must be specified when a column list is provided";
                return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
            }
            loop {
                let column = identifier(parser)?;
                if catalog.table(&name).is_some_and(|table| table.column(&column).is_none()) {
                    let message = format!("column \"{column}\" of relation \"{name}\" does not exist");
                    return Err(SqlError::new(state::UNDEFINED_COLUMN, message));
                }
                if !parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            if !parser.consume_token(&Token::RParen) {
                return Err(wrong(&format!("expected ) behind the columns, came {}", parser.peek_token().token)));
            }
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(());
        }
    }
}

/// What is to be indexed again.
fn reindexed(parser: &mut Parser<'_>, catalog: &Catalog) -> Result<()> {
    let kind = parser.next_token().token.to_string().to_ascii_uppercase();
    let _ = parser.parse_keyword(Keyword::CONCURRENTLY);
    match kind.as_str() {
        "INDEX" | "TABLE" => {
            let name = name(parser)?;
            let is_table = catalog.table(&name).is_some();
            match kind.as_str() {
                _ if !catalog.has(&name) => Err(undefined(&name)),
                "TABLE" if !is_table => not(&name, "a table or materialized view"),
                "INDEX" if is_table || catalog.owner(&name).is_none() => not(&name, "an index"),
                _ => Ok(()),
            }
        }
        "SCHEMA" => {
            let name = identifier(parser)?;
            let missing = || SqlError::new(state::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"));
            catalog.schema_number(&name).map(drop).ok_or_else(missing)
        }
        // Only that of the session can be named.
        "DATABASE" | "SYSTEM" => identifier(parser).map(drop),
        other => Err(wrong(&format!("expected INDEX, TABLE, SCHEMA, DATABASE or SYSTEM, came {other}"))),
    }
}

fn not(name: &Name, kind: &str) -> Result<()> {
    Err(SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not {kind}")))
}
