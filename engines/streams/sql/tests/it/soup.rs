//! No text makes the parser panic.

use std::sync::LazyLock;

use proptest::prelude::*;
use savanna_streams_sql::{parse, split};

use crate::support::World;

const TOKENS: [&str; 64] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "INSERT",
    "INTO",
    "CREATE",
    "TABLE",
    "VIEW",
    "TEMPORARY",
    "AS",
    "WITH",
    "WATERMARK",
    "FOR",
    "ROW",
    "<",
    ">",
    ">>",
    "MAP",
    "ARRAY",
    "(",
    ")",
    ",",
    ";",
    ".",
    "=>",
    "=",
    "*",
    "'text'",
    "'",
    "`name`",
    "`",
    "\"q\"",
    "1",
    "1e",
    "-",
    "INTERVAL",
    "'1'",
    "SECOND",
    "TUMBLE",
    "HOP",
    "DESCRIPTOR",
    "bid",
    "dateTime",
    "events",
    "ts",
    "k",
    "count",
    "EXPLAIN",
    "SHOW",
    "SET",
    "DROP",
    "IF",
    "EXISTS",
    "NOT",
    "NULL",
    "JOIN",
    "ON",
    "UNION",
    "ALL",
    "CASE",
    "WHEN",
    "END",
];

static WORLD: LazyLock<World> = LazyLock::new(World::new);

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_row_of_tokens_is_a_statement_or_an_error(picks in prop::collection::vec(0..TOKENS.len(), 0..24)) {
        let sql = picks.iter().map(|p| TOKENS[*p]).collect::<Vec<_>>().join(" ");
        let _ = parse(&sql);
        let _ = split(&sql);
    }

    #[test]
    fn any_text_is_a_statement_or_an_error(sql in "\\PC{0,60}") {
        let _ = parse(&sql);
        let _ = split(&sql);
    }

    #[test]
    fn any_tail_of_a_query_is_planned_or_refused(picks in prop::collection::vec(0..TOKENS.len(), 0..10)) {
        let tail = picks.iter().map(|p| TOKENS[*p]).collect::<Vec<_>>().join(" ");
        if parse(&format!("SELECT k FROM events {tail}")).is_ok_and(|s| matches!(s, savanna_streams_sql::Statement::Query(_))) {
            let _ = WORLD.try_plan(&format!("SELECT k FROM events {tail}"));
        }
    }
}
