//! Expressions that are kept as texts say the same when they are read again, whatever stands in their literals and names.

use crate::desk::{Desk, Seen};

/// A literal that is more than a text to whoever reads it without its quotes.
const SLY: &str = "'a'' || upper(''zzz'') || ''b'";
const SLY_VALUE: &str = "a' || upper('zzz') || 'b";

#[test]
fn a_default_is_the_text_that_was_written() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            &format!("CREATE TABLE t (id int PRIMARY KEY, a text DEFAULT 'it''s', b text DEFAULT {SLY}, c text DEFAULT '''')"),
            r"ALTER TABLE t ADD COLUMN d text DEFAULT E'\'\\' || $$''$$, ALTER COLUMN c SET DEFAULT '''''' || lower('A''')",
            "INSERT INTO t (id) VALUES (1)",
        ],
    );
    assert_eq!(desk.query(client, "SELECT a, b, c, d FROM t"), [format!("it's|{SLY_VALUE}|''a'|'\\''")]);
    let (records, _) = desk.paper.records();
    let mut again = Desk::after(&records);
    let client = again.client();
    again.setup(client, &["INSERT INTO t (id) VALUES (2)"]);
    assert_eq!(again.query(client, "SELECT count(*) FROM t GROUP BY a, b, c, d"), ["2"]);
}

#[test]
fn checks_generated_columns_views_and_indexes_keep_their_texts() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            &format!(
                "CREATE TABLE t (\"it's\" text CHECK (\"it's\" <> {SLY}), b text GENERATED ALWAYS AS (\"it's\" || 'x''y') STORED)"
            ),
            &format!("CREATE UNIQUE INDEX i ON t ((\"it's\" || {SLY})) WHERE \"it's\" <> ''''"),
            &format!("CREATE VIEW v AS SELECT \"it's\" || {SLY} AS \"a''b\", '''' AS q FROM t WHERE b <> ''''"),
            "ALTER TABLE t RENAME COLUMN \"it's\" TO \"it''s\"",
            "INSERT INTO t VALUES ('a')",
            "ALTER TABLE t RENAME COLUMN \"it''s\" TO c",
        ],
    );
    assert_eq!(desk.query(client, "SELECT * FROM t"), ["a|ax'y"]);
    assert_eq!(desk.query(client, "SELECT * FROM v"), [format!("a{SLY_VALUE}|'")]);
    assert_eq!(desk.run(client, &format!("INSERT INTO t VALUES ({SLY})")), Seen::Failed("23514"));
    assert_eq!(desk.run(client, "INSERT INTO t VALUES ('a')"), Seen::Failed("23505"));
}
