//! Random statements: none makes the engine panic, and what is flushed below is still there.

use proptest::prelude::*;

use crate::desk::{Desk, Seen};

/// Pieces that statements are made of, so that many of them mean something.
const PIECES: [&str; 60] = [
    "SELECT",
    "INSERT INTO",
    "UPDATE",
    "DELETE FROM",
    "CREATE TABLE",
    "FROM",
    "WHERE",
    "SET",
    "VALUES",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "t",
    "u",
    "id",
    "n",
    "*",
    ",",
    "(",
    ")",
    "=",
    "<",
    "+",
    "-",
    "/",
    "||",
    "'x'",
    "''",
    "1",
    "0",
    "-1",
    "9223372036854775807",
    "1e400",
    "1.5",
    "NULL",
    "true",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "LIKE",
    "BETWEEN",
    "CASE",
    "WHEN",
    "THEN",
    "END",
    "count",
    "sum",
    "substring",
    "::int",
    "::date",
    "::numeric",
    "::interval",
    "JOIN",
    "ON",
    "RETURNING",
    "$1",
    "interval '1 day'",
    ";",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_statement_makes_it_panic(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 1..25)) {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 2)"]);
        desk.run(client, &pieces.join(" "));
        prop_assert_eq!(desk.query(client, "SELECT 1"), ["1"]);
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}") {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.run(client, &text);
        prop_assert_eq!(desk.query(client, "SELECT 1"), ["1"]);
    }

    #[test]
    fn flushing_changes_no_answer(
        statements in prop::collection::vec((0..6_u8, 0..8_i32, 0..8_i32), 1..60),
        flushes in prop::collection::vec(any::<bool>(), 60),
        stored in prop::option::of(0..1_000_usize),
    ) {
        let (mut plain, mut flushed) = (Desk::new(), stored.map_or_else(Desk::new, Desk::stored));
        for desk in [&mut plain, &mut flushed] {
            let client = desk.client();
            desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE INDEX ON t (n)"]);
        }
        let clients = (plain.client(), flushed.client());
        for ((kind, a, b), flush) in statements.into_iter().zip(flushes) {
            let text = match kind {
                0 | 1 => format!("INSERT INTO t VALUES ({a}, {b}) ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n"),
                2 => format!("DELETE FROM t WHERE id = {a}"),
                3 => format!("UPDATE t SET n = {b} WHERE n >= {a}"),
                4 => format!("SELECT * FROM t WHERE n = {b} ORDER BY id"),
                _ => format!("SELECT * FROM t WHERE id > {a} ORDER BY id DESC LIMIT {b}"),
            };
            let answers = (plain.run(clients.0, &text), flushed.run(clients.1, &text));
            prop_assert!(!matches!(answers.0, Seen::Failed(_)), "{}: {:?}", text, answers.0);
            prop_assert_eq!(&answers.0, &answers.1, "{}", text);
            if flush {
                flushed.paper.flush();
                flushed.flush();
            }
        }
    }
}
