//! Composite types and the rows of relations as types: what would never end, would be lost or would take all memory is refused.

use crate::desk::{Desk, Seen, rows};

fn refused(desk: &mut Desk, client: savanna_tenants_store::database::SessionId, text: &str, state: &'static str) {
    assert_eq!(desk.run(client, text), Seen::Failed(state), "{text}");
}

#[test]
fn rows_of_views_are_never_within_themselves() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE VIEW a AS SELECT 1 AS x", "CREATE VIEW b AS SELECT NULL::a AS y"]);
    refused(&mut desk, client, "CREATE OR REPLACE VIEW a AS SELECT 1 AS x, NULL::b AS z", "42P16");
    refused(&mut desk, client, "CREATE OR REPLACE VIEW a AS SELECT 1 AS x, NULL::a AS me", "42P16");
    desk.setup(client, &["CREATE TYPE t AS (i int)", "ALTER TYPE t ALTER ATTRIBUTE i TYPE text"]);
}

#[test]
fn a_chain_of_views_is_as_deep_as_rows_may_be_and_hinders_no_other_type() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE VIEW v1 AS SELECT 1 AS x"]);
    for at in 2..=32 {
        desk.setup(client, &[&format!("CREATE VIEW v{at} AS SELECT NULL::v{} AS x", at - 1)]);
    }
    refused(&mut desk, client, "CREATE VIEW v33 AS SELECT NULL::v32 AS x", "54001");
    desk.setup(client, &["CREATE TYPE t AS (i int)"]);
    refused(&mut desk, client, "CREATE OR REPLACE VIEW v1 AS SELECT 1 AS x, NULL::t AS y", "54001");
}

#[test]
fn types_that_go_together_take_all_columns_of_theirs_with_them() {
    for drop in ["DROP TYPE a, b CASCADE", "DROP SCHEMA s CASCADE", "DROP TABLE s.ta, s.tb CASCADE"] {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.setup(client, &["CREATE SCHEMA s", "CREATE TABLE s.ta (i int)", "CREATE TABLE s.tb (i int)"]);
        let (a, b) = if drop.contains("TYPE") { ("a", "b") } else { ("s.ta", "s.tb") };
        if drop.contains("TYPE") {
            desk.setup(client, &["CREATE TYPE a AS (i int)", "CREATE TYPE b AS (i int)"]);
        }
        desk.setup(
            client,
            &[
                &format!("CREATE TABLE t (x {a}, y {b}, z int)"),
                &format!("CREATE TYPE c AS (p {a}, q {b}, r int)"),
                "INSERT INTO t VALUES (ROW(1), ROW(2), 3)",
                drop,
            ],
        );
        assert_eq!(desk.run(client, "SELECT * FROM t"), rows(&["3"]), "{drop}");
        assert_eq!(desk.run(client, "SELECT ROW(4)::c"), rows(&["(4)"]), "{drop}");
    }
}

#[test]
fn a_view_takes_the_columns_of_its_rows_with_it() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE VIEW v AS SELECT 1 AS i", "CREATE TABLE t (x v, z int)"]);
    desk.setup(client, &["INSERT INTO t VALUES (ROW(1), 2)"]);
    refused(&mut desk, client, "DROP VIEW v", "2BP01");
    desk.setup(client, &["DROP VIEW v CASCADE"]);
    assert_eq!(desk.run(client, "SELECT * FROM t"), rows(&["2"]));
}

#[test]
fn rows_of_temporary_tables_are_in_nothing_that_stays() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TEMP TABLE tt (a int)", "CREATE TABLE p (i int)", "CREATE TYPE c AS (i int)"]);
    for text in [
        "CREATE TABLE q (x tt)",
        "CREATE TABLE q (x tt[])",
        "ALTER TABLE p ADD COLUMN x tt",
        "ALTER TABLE p ALTER COLUMN i TYPE tt USING NULL",
        "CREATE TYPE d AS (x tt)",
        "ALTER TYPE c ADD ATTRIBUTE x tt",
        "ALTER TYPE c ALTER ATTRIBUTE i TYPE tt",
        "CREATE VIEW v AS SELECT NULL::tt AS x",
        "CREATE TABLE q AS SELECT NULL::tt AS x",
    ] {
        refused(&mut desk, client, text, "0A000");
    }
    desk.setup(client, &["CREATE TEMP TABLE q (x tt)", "INSERT INTO q VALUES (ROW(1))"]);
    assert_eq!(desk.run(client, "SELECT x FROM q"), rows(&["(1)"]));
}

#[test]
fn types_within_one_another_do_not_change_at_the_same_time() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    let types = ["z AS (i int)", "y AS (z z)", "x AS (i int)", "w AS (x x)"];
    types.iter().for_each(|of| desk.setup(a, &[&format!("CREATE TYPE {of}")]));
    desk.setup(a, &["BEGIN", "ALTER TYPE x ADD ATTRIBUTE f y"]);
    assert_eq!(desk.run(b, "ALTER TYPE z ADD ATTRIBUTE g w"), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    refused(&mut desk, b, "ALTER TYPE z ADD ATTRIBUTE g w", "42P16");
    desk.setup(a, &["BEGIN", "CREATE TABLE t (o y)", "INSERT INTO t VALUES (ROW(ROW(1)))"]);
    assert_eq!(desk.run(b, "ALTER TYPE z ALTER ATTRIBUTE i TYPE text"), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    refused(&mut desk, b, "ALTER TYPE z ALTER ATTRIBUTE i TYPE text", "0A000");
    assert_eq!(desk.run(a, "SELECT o FROM t"), rows(&["(\"(1)\")"]));
}

#[test]
fn the_columns_of_a_table_do_not_change_while_its_rows_are_stored_in_others() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE within (i int)", "CREATE TYPE around AS (w within)"]);
    desk.setup(a, &["BEGIN", "CREATE TABLE t (o around)", "INSERT INTO t VALUES (ROW(ROW(1)))"]);
    assert_eq!(desk.run(b, "ALTER TABLE within ALTER COLUMN i TYPE text"), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    refused(&mut desk, b, "ALTER TABLE within ALTER COLUMN i TYPE text", "0A000");
    assert_eq!(desk.run(a, "SELECT o FROM t"), rows(&["(\"(1)\")"]));
}

#[test]
fn rows_that_definitions_have_written_out_keep_their_columns() {
    for column in ["c c DEFAULT ROW(1, 2)", "c c DEFAULT '(1,2)'", "c c CHECK (c <> ROW(1, 2))", "c c[] DEFAULT '{}'"] {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.setup(client, &["CREATE TYPE c AS (a int, b int)", &format!("CREATE TABLE t (k int, {column})")]);
        refused(&mut desk, client, "ALTER TYPE c DROP ATTRIBUTE a", "0A000");
        refused(&mut desk, client, "ALTER TYPE c ADD ATTRIBUTE z int", "0A000");
    }
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE w (a int, b int)", "CREATE TABLE t (k int, w w DEFAULT ROW(1, 2))"]);
    refused(&mut desk, client, "ALTER TABLE w DROP COLUMN a", "0A000");
    refused(&mut desk, client, "ALTER TABLE w ADD COLUMN z int", "0A000");
    desk.setup(
        client,
        &["CREATE TYPE c AS (a int, b int)", "CREATE TABLE u (c c)", "CREATE VIEW v AS SELECT (C).A FROM u"],
    );
    refused(&mut desk, client, "ALTER TYPE c DROP ATTRIBUTE a", "0A000");
    refused(&mut desk, client, "ALTER TYPE c RENAME ATTRIBUTE a TO z", "0A000");
}

#[test]
fn texts_of_rows_within_rows_do_not_grow_without_end() {
    let mut desk = Desk::new();
    let client = desk.client();
    let nested = |depth: usize| format!("{}'a b'{}", "ROW(".repeat(depth), ")".repeat(depth));
    assert_eq!(desk.run(client, &format!("SELECT length({}::text)", nested(8))), rows(&["529"]));
    refused(&mut desk, client, &format!("SELECT {}", nested(34)), "54000");
    refused(&mut desk, client, &format!("SELECT ARRAY[{}]::text", nested(34)), "54000");
}

#[test]
fn attributes_that_came_later_do_not_make_stored_rows_larger_than_memory() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TYPE c AS (a int)", "CREATE TABLE t (x c[])"]);
    desk.setup(client, &["INSERT INTO t SELECT array_agg(ROW(n)::c) FROM generate_series(1, 20000) n"]);
    let more: Vec<String> = (0..300).map(|at| format!("ADD ATTRIBUTE a{at} int")).collect();
    desk.setup(client, &[&format!("ALTER TYPE c {}", more.join(", "))]);
    refused(&mut desk, client, "SELECT cardinality(x) FROM t", "54000");
}
