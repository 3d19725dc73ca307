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

#[test]
fn dates_in_definitions_are_the_same_to_everybody_whatever_the_order_of_their_numbers() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE t (id int, d date DEFAULT '01/02/2003', CHECK (d < '02/03/2003'))",
            "CREATE VIEW early AS SELECT id FROM t WHERE d < '01/03/2003'",
            "CREATE INDEX i ON t (id) WHERE d > '01/01/2003'",
            "SET datestyle = 'ISO, DMY'",
            "INSERT INTO t VALUES (1)",
        ],
    );
    assert_eq!(desk.query(client, "SELECT d FROM t"), ["2003-01-02"]);
    assert_eq!(desk.query(client, "SELECT id FROM early"), ["1"]);
    assert_eq!(desk.query(client, "SELECT id FROM t WHERE d >= '01/02/2003'"), [""; 0], "the first of February");
    assert_eq!(desk.run(client, "INSERT INTO t VALUES (2, '03/02/2003')"), Seen::Failed("23514"));
    for made in [
        "TABLE u (d date DEFAULT '01/02/2003')",
        "TABLE u (d date DEFAULT '18/02/2003')",
        "VIEW late AS SELECT id FROM t WHERE d > '01/02/2003'",
        "INDEX j ON t (id) WHERE d > '01/02/2003'",
    ] {
        assert_eq!(desk.run(client, &format!("CREATE {made}")), Seen::Failed("0A000"), "{made}");
    }
    desk.setup(
        client,
        &[
            "CREATE VIEW later AS SELECT id FROM early",
            "CREATE TABLE u (d date DEFAULT '2003-02-01', e date DEFAULT '2/2/2003')",
            "CREATE TABLE w AS SELECT '01/02/2003'::date AS d",
        ],
    );
    assert_eq!(desk.query(client, "SELECT d FROM w"), ["2003-02-01"]);
}
