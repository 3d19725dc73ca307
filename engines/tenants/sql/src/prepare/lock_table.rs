//! `LOCK TABLE`: PostgreSQL's eight modes, as row locks of keys that stand for a table.

use savanna_tenants_catalog::Catalog;
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::RowLock;
use sqlparser::{keywords::Keyword, parser::Parser, tokenizer::Token};

use crate::parse::dialect::{is_word, name, wrong};
use crate::{
    parse::words::Words,
    plan::{LockTable, Plan},
};

/// A mode, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableLock {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
}

impl TableLock {
    const ALL: [(&'static str, Self); 8] = [
        ("ACCESS SHARE", Self::AccessShare),
        ("ROW SHARE", Self::RowShare),
        ("ROW EXCLUSIVE", Self::RowExclusive),
        ("SHARE UPDATE EXCLUSIVE", Self::ShareUpdateExclusive),
        ("SHARE ROW EXCLUSIVE", Self::ShareRowExclusive),
        ("SHARE", Self::Share),
        ("EXCLUSIVE", Self::Exclusive),
        ("ACCESS EXCLUSIVE", Self::AccessExclusive),
    ];

    /// How the keys of a table are locked: the row of the catalog, which whoever writes rows holds with `KeyShare` and whoever changes the
    /// table with `Update`; the key of what excludes only what locks tables by name; and the key of what excludes itself alone.
    pub fn locks(self) -> [Option<RowLock>; 3] {
        use RowLock::{KeyShare, NoKeyUpdate, Share, Update};
        match self {
            Self::AccessShare => [None, Some(KeyShare), None],
            Self::RowShare => [None, Some(Share), None],
            Self::RowExclusive => [Some(KeyShare), Some(Share), None],
            Self::ShareUpdateExclusive => [Some(KeyShare), Some(Share), Some(Update)],
            Self::Share | Self::ShareRowExclusive => [Some(Update), Some(KeyShare), None],
            Self::Exclusive => [Some(Update), Some(NoKeyUpdate), None],
            Self::AccessExclusive => [Some(Update), Some(Update), None],
        }
    }
}

/// The plan of a text that locks tables.
///
/// # Errors
/// 42601; 42P01 and 42809 for what is no table.
pub(crate) fn plan(words: &Words<'_>, catalog: &Catalog) -> Result<Option<Plan>> {
    if !words.begin_with(&["LOCK"]) {
        return Ok(None);
    }
    let grammar = words.grammar();
    let mut parser = words.parser(&grammar);
    parser.advance_token();
    let _ = parser.parse_keyword(Keyword::TABLE);
    let mut names = Vec::new();
    loop {
        let _ = parser.parse_keyword(Keyword::ONLY);
        names.push(name(&mut parser)?);
        let _ = parser.consume_token(&Token::Mul);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    let mode = if parser.parse_keyword(Keyword::IN) { mode(&mut parser)? } else { TableLock::AccessExclusive };
    let nowait = parser.parse_keyword(Keyword::NOWAIT);
    let _ = parser.consume_token(&Token::SemiColon);
    if parser.peek_token().token != Token::EOF {
        return Err(wrong(&format!("expected the end of the statement, came {}", parser.peek_token().token)));
    }
    for name in &names {
        if catalog.view(name).is_some() {
            return Err(SqlError::unsupported("LOCK TABLE of a view"));
        }
        if catalog.table(name).is_none() {
            return Err(match catalog.has(name) {
                true => SqlError::new(state::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table or view")),
                false => SqlError::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")),
            });
        }
    }
    Ok(Some(Plan::LockTable(LockTable { names, mode, nowait })))
}

fn mode(parser: &mut Parser<'_>) -> Result<TableLock> {
    let mut words = Vec::new();
    while !is_word(&parser.peek_token().token, "MODE") && parser.peek_token().token != Token::EOF {
        words.push(parser.next_token().token.to_string().to_ascii_uppercase());
    }
    parser.advance_token();
    let words = words.join(" ");
    let found = TableLock::ALL.into_iter().find(|(name, _)| *name == words);
    found.map(|(_, mode)| mode).ok_or_else(|| wrong(&format!("expected the mode of a lock, came {words}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::parse::{grammar::Grammar, words};

    /// Which modes exclude each other, as PostgreSQL's table of conflicts has it: weakest first.
    const CONFLICTS: [&[usize]; 8] = [
        &[7],
        &[6, 7],
        &[4, 5, 6, 7],
        &[3, 4, 5, 6, 7],
        &[2, 3, 5, 6, 7],
        &[2, 3, 4, 5, 6, 7],
        &[1, 2, 3, 4, 5, 6, 7],
        &[0, 1, 2, 3, 4, 5, 6, 7],
    ];

    #[test]
    fn modes_exclude_each_other_as_in_postgresql_but_for_share_which_also_excludes_itself() {
        let mut modes = TableLock::ALL.map(|(_, mode)| mode);
        modes.sort();
        for (a, holds) in modes.into_iter().enumerate() {
            for (b, asks) in modes.into_iter().enumerate() {
                let conflict = holds.locks().into_iter().zip(asks.locks()).any(|pair| match pair {
                    (Some(one), Some(other)) => one.conflicts(other),
                    _ => false,
                });
                let expected = CONFLICTS[a].contains(&b) || holds == TableLock::Share && asks == TableLock::Share;
                assert_eq!(conflict, expected, "{holds:?} and {asks:?}");
            }
        }
    }

    #[test]
    fn every_mode_is_read() {
        let catalog = Catalog::default();
        for (name, expected) in TableLock::ALL {
            let grammar = Grammar::default();
            let mut parser = words::parser(&grammar, &format!("{name} MODE")).unwrap();
            assert_eq!(mode(&mut parser), Ok(expected));
        }
        let plan = |text| plan(&Words::read(text, Arc::default()).unwrap(), &catalog);
        assert_eq!(plan("LOCK TABLE t IN NO MODE").unwrap_err().state, state::SYNTAX_ERROR);
        assert_eq!(plan("LOCK t").unwrap_err().state, state::UNDEFINED_TABLE);
        assert!(plan("SELECT 1").unwrap().is_none());
    }
}
