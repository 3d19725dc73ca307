//! Statements and their answers, as PostgreSQL 15 gives them.

use crate::desk::{Desk, Seen, done, rows};

/// Runs statements in order and compares each answer.
fn script(steps: &[(&str, Seen)]) {
    let mut desk = Desk::new();
    let client = desk.client();
    for (text, expected) in steps {
        assert_eq!(desk.run(client, text), *expected, "{text}");
    }
}

fn fails(state: &'static str) -> Seen {
    Seen::Failed(state)
}

#[test]
fn expressions_have_postgresqls_values() {
    for (text, value) in [
        ("1 + 2 * 3", "7"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7 / 2.0", "3.5000000000000000"),
        ("1.10 * 2", "2.20"),
        ("0.1 + 0.2", "0.3"),
        ("'a' || 1", "a1"),
        ("1 = 1.0", "t"),
        ("'2' = 2", "t"),
        ("null = null", ""),
        ("null is null", "t"),
        ("null and false", "f"),
        ("null or true", "t"),
        ("not null::bool", ""),
        ("1 in (2, null)", ""),
        ("1 in (1, null)", "t"),
        ("2 between 1 and 3", "t"),
        ("case when 1 > 2 then 'a' else 'b' end", "b"),
        ("case 2 when 1 then 'a' when 2 then 'b' end", "b"),
        ("coalesce(null, 3, 1 / 0)", "3"),
        ("nullif(1, 1)", ""),
        ("greatest(1, null, 3)", "3"),
        ("'abc' like 'a%'", "t"),
        ("'abc' ilike 'A_C'", "t"),
        ("length('für')", "3"),
        ("substring('hello' from 2 for 3)", "ell"),
        ("upper(trim('  x '))", "X"),
        ("round(2.345, 2)", "2.35"),
        ("round(-2.5)", "-3"),
        ("round(2.5::float8)", "2"),
        ("1e3::int", "1000"),
        ("'12'::int + 1", "13"),
        ("1.5::int", "2"),
        ("2.5::float8::int", "2"),
        ("true::text", "true"),
        ("'ab  '::char(4) = 'ab'", "t"),
        ("'2024-01-31'::date + 1", "2024-02-01"),
        ("'2024-03-01'::date - '2024-02-01'::date", "29"),
        ("'2024-01-31'::timestamp + interval '1 month'", "2024-02-29 00:00:00"),
        ("extract(year from '2024-02-29'::date)", "2024"),
        ("date_trunc('month', '2024-02-29 12:00'::timestamp)", "2024-02-01 00:00:00"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("'\\x0aff'::bytea", "\\x0aff"),
        ("current_timestamp = now() and localtimestamp::date = current_date", "t"),
        ("current_user", "tester"),
        ("coalesce('ab '::char(4), 'x'::char(4))", "ab  "),
        ("coalesce('ab '::char(4), 'x') || '.'", "ab."),
    ] {
        script(&[(&format!("SELECT {text}"), rows(&[value]))]);
    }
}

#[test]
fn what_cannot_be_computed_has_its_sqlstate() {
    for (text, state) in [
        ("SELECT 1 / 0", "22012"),
        ("SELECT 2147483647 + 1", "22003"),
        ("SELECT 9223372036854775807 + 1", "22003"),
        ("SELECT 'x'::int", "22P02"),
        ("SELECT 300000::int2", "22003"),
        ("SELECT 'abc'::date", "22007"),
        ("SELECT '2024-02-30'::date", "22008"),
        ("SELECT 1 + true", "42883"),
        ("SELECT nothing(1)", "42883"),
        ("SELECT 1 WHERE 1", "42804"),
        ("SELECT case when true then 1 else 'x' end", "22P02"),
        ("SELECT case when true then 1 else true end", "42804"),
        ("SELECT true::date", "42846"),
        ("SELECT x", "42703"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT * FROM other.t", "42P01"),
        ("SELEC 1", "42601"),
        ("SELECT 'open", "42601"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "0A000"),
        ("CREATE TABLE t (a int[] PRIMARY KEY)", "0A000"),
        ("SET work_mem = '1'", "22023"),
        ("SELECT 1 LIMIT -1", "2201W"),
        ("SELECT 1 OFFSET -1", "2201X"),
        ("SELECT $1", "42P02"),
        ("SAVEPOINT a", "25P01"),
    ] {
        script(&[(text, fails(state))]);
    }
}

#[test]
fn rows_are_written_changed_and_removed() {
    script(&[
        (
            "CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL DEFAULT 'none', n numeric(6,2))",
            done("CREATE TABLE"),
        ),
        ("INSERT INTO t VALUES (1, 'one', 1.005), (2, DEFAULT, NULL)", done("INSERT 0 2")),
        ("INSERT INTO t (n, id) VALUES (3, 3) RETURNING id, name, n", rows(&["3|none|3.00"])),
        ("SELECT * FROM t ORDER BY id", rows(&["1|one|1.01", "2|none|", "3|none|3.00"])),
        ("SELECT name, count(*), sum(n) FROM t GROUP BY name ORDER BY 1", rows(&["none|2|3.00", "one|1|1.01"])),
        ("SELECT id FROM t WHERE n IS NULL", rows(&["2"])),
        ("SELECT id FROM t ORDER BY n DESC LIMIT 2", rows(&["2", "3"])),
        ("SELECT id FROM t ORDER BY n NULLS FIRST OFFSET 1", rows(&["1", "3"])),
        ("SELECT DISTINCT name FROM t ORDER BY name", rows(&["none", "one"])),
        (
            "SELECT count(DISTINCT name) FILTER (WHERE id < 3), max(id), avg(id) FROM t",
            rows(&["2|3|2.0000000000000000"]),
        ),
        ("SELECT count(*) FROM t WHERE id > 100", rows(&["0"])),
        ("SELECT max(id) FROM t HAVING count(*) > 5", rows(&[])),
        ("UPDATE t SET n = n + 1, name = upper(name) WHERE id <= 2 RETURNING *", rows(&["1|ONE|2.01", "2|NONE|"])),
        ("UPDATE t SET id = id + 10 WHERE id = 3", done("UPDATE 1")),
        ("SELECT id FROM t WHERE id = 13", rows(&["13"])),
        ("SELECT id FROM t WHERE id = 3", rows(&[])),
        ("DELETE FROM t WHERE id > 1 RETURNING id", rows(&["2", "13"])),
        ("SELECT count(*) FROM t", rows(&["1"])),
        ("TRUNCATE t", done("TRUNCATE TABLE")),
        ("SELECT count(*) FROM t", rows(&["0"])),
        ("INSERT INTO t (id) SELECT id FROM t", done("INSERT 0 0")),
        ("DROP TABLE t", done("DROP TABLE")),
        ("SELECT 1 FROM t", fails("42P01")),
    ]);
}

#[test]
fn constraints_hold() {
    script(&[
        (
            "CREATE TABLE t (id int PRIMARY KEY, a int UNIQUE, b varchar(3), c int NOT NULL CHECK (c > 0), UNIQUE (b, c))",
            done("CREATE TABLE"),
        ),
        ("INSERT INTO t VALUES (1, 1, 'abc', 1)", done("INSERT 0 1")),
        ("INSERT INTO t VALUES (1, 2, 'abd', 1)", fails("23505")),
        ("INSERT INTO t VALUES (2, 1, 'abd', 1)", fails("23505")),
        ("INSERT INTO t VALUES (2, 2, 'abc', 1)", fails("23505")),
        ("INSERT INTO t VALUES (2, 2, 'abcd', 1)", fails("22001")),
        ("INSERT INTO t VALUES (2, 2, 'abd', 0)", fails("23514")),
        ("INSERT INTO t VALUES (2, 2, 'abd', NULL)", fails("23502")),
        ("INSERT INTO t VALUES (NULL, 2, 'abd', 1)", fails("23502")),
        ("INSERT INTO t VALUES (2, NULL, 'abd', 1), (3, NULL, NULL, 1), (4, NULL, NULL, 1)", done("INSERT 0 3")),
        ("INSERT INTO t VALUES (5, 5, 'x', 1), (5, 6, 'y', 1)", fails("23505")),
        ("SELECT count(*) FROM t WHERE id = 5", rows(&["0"])),
        ("UPDATE t SET a = 1 WHERE id = 2", fails("23505")),
        ("UPDATE t SET c = -c", fails("23514")),
        ("INSERT INTO t VALUES (1, 9, 'n', 1) ON CONFLICT DO NOTHING", done("INSERT 0 0")),
        (
            "INSERT INTO t VALUES (1, 9, 'n', 1) ON CONFLICT (id) DO UPDATE SET a = excluded.a + t.a RETURNING a",
            rows(&["10"]),
        ),
        ("INSERT INTO t VALUES (8, 10, 'n', 1) ON CONFLICT (a) DO UPDATE SET b = excluded.b", done("INSERT 0 1")),
        (
            "INSERT INTO t VALUES (8, 10, 'n', 1) ON CONFLICT (a) DO UPDATE SET b = 'm' WHERE t.id > 5",
            done("INSERT 0 0"),
        ),
        ("INSERT INTO t VALUES (8, 10, 'n', 1) ON CONFLICT (id) DO NOTHING", fails("23505")),
        ("INSERT INTO t VALUES (8, 8, 'p', 1), (8, 8, 'p', 1) ON CONFLICT (id) DO UPDATE SET c = 2", fails("21000")),
        ("INSERT INTO t VALUES (1) ON CONFLICT (c) DO NOTHING", fails("42P10")),
        ("SELECT id, b FROM t WHERE a = 10", rows(&["1|n"])),
    ]);
}

#[test]
fn indexes_find_what_scans_find() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, a int, b text, c int)"]);
    for id in 0..200 {
        let a = if id % 7 == 0 { "NULL".to_owned() } else { (id % 10).to_string() };
        desk.setup(client, &[&format!("INSERT INTO t VALUES ({id}, {a}, 'b{}', {})", id % 3, id * 37 % 101)]);
    }
    let queries = [
        "SELECT id FROM t WHERE a = 3 ORDER BY id",
        "SELECT id FROM t WHERE a = 3 AND b = 'b1' ORDER BY id",
        "SELECT id FROM t WHERE a > 7 ORDER BY id",
        "SELECT id FROM t WHERE a >= 2 AND a < 4 ORDER BY id DESC",
        "SELECT id FROM t WHERE a = 3 AND b > 'b0' ORDER BY id",
        "SELECT id FROM t WHERE b = 'b2' AND c <= 50 ORDER BY id",
        "SELECT id FROM t WHERE b = 'b2' AND c > 50 ORDER BY id",
        "SELECT c, id FROM t WHERE b = 'b2' ORDER BY c DESC, id LIMIT 7",
        "SELECT id FROM t WHERE a IS NULL ORDER BY id",
        "SELECT id FROM t WHERE a = NULL",
        "SELECT t.id FROM t JOIN t u ON u.a = t.c AND u.b = 'b0' WHERE t.id < 20 ORDER BY t.id, u.id",
        "SELECT count(*) FROM t LEFT JOIN t u ON u.c = t.a WHERE u.id IS NULL",
    ];
    let before: Vec<_> = queries.iter().map(|text| desk.run(client, text)).collect();
    desk.setup(client, &["CREATE INDEX ON t (a, b)", "CREATE INDEX by_b ON t (b, c DESC)", "CREATE INDEX ON t (c)"]);
    let after: Vec<_> = queries.iter().map(|text| desk.run(client, text)).collect();
    assert_eq!(before, after);
    desk.setup(client, &["UPDATE t SET a = a + 1, c = -c WHERE id % 2 = 0", "DELETE FROM t WHERE id % 5 = 0"]);
    let with: Vec<_> = queries.iter().map(|text| desk.run(client, text)).collect();
    desk.setup(client, &["DROP INDEX by_b", "DROP INDEX t_a_b_idx", "DROP INDEX t_c_idx"]);
    let without: Vec<_> = queries.iter().map(|text| desk.run(client, text)).collect();
    assert_eq!(with, without);
}

#[test]
fn joined_tables_are_read_changed_and_removed() {
    script(&[
        ("CREATE TABLE a (id int PRIMARY KEY, x int)", done("CREATE TABLE")),
        ("CREATE TABLE b (id int PRIMARY KEY, a_id int, y int)", done("CREATE TABLE")),
        ("INSERT INTO a VALUES (1, 10), (2, 20), (3, 30)", done("INSERT 0 3")),
        ("INSERT INTO b VALUES (1, 1, 100), (2, 1, 200), (3, 2, 300)", done("INSERT 0 3")),
        ("SELECT a.id, y FROM a JOIN b ON b.a_id = a.id ORDER BY y DESC", rows(&["2|300", "1|200", "1|100"])),
        ("SELECT a.id, y FROM a LEFT JOIN b ON b.a_id = a.id AND y > 100 ORDER BY 1", rows(&["1|200", "2|300", "3|"])),
        ("SELECT a.id FROM a LEFT JOIN b ON b.a_id = a.id WHERE b.id IS NULL", rows(&["3"])),
        ("SELECT count(*) FROM a, b", rows(&["9"])),
        ("SELECT id, x, y FROM a JOIN b USING (id) WHERE id = 2", rows(&["2|20|200"])),
        ("SELECT a.x, sum(y) FROM a JOIN b ON a_id = a.id GROUP BY a.x ORDER BY sum(y)", rows(&["10|300", "20|300"])),
        ("SELECT id FROM a JOIN b ON true", fails("42702")),
        ("SELECT a.x, y FROM a JOIN b ON true GROUP BY a.x", fails("42803")),
        ("UPDATE a SET x = x + y FROM b WHERE b.id = 3 AND a.id = b.a_id RETURNING a.id, x", rows(&["2|320"])),
        ("DELETE FROM a USING b WHERE a_id = a.id AND y = 300", done("DELETE 1")),
        ("SELECT id FROM a", rows(&["1", "3"])),
    ]);
}

#[test]
fn tables_change_and_their_rows_with_them() {
    script(&[
        ("CREATE TABLE t (a int, b text)", done("CREATE TABLE")),
        ("INSERT INTO t VALUES (1, 'x'), (2, 'y'), (2, 'z')", done("INSERT 0 3")),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", fails("23505")),
        ("DELETE FROM t WHERE b = 'z'", done("DELETE 1")),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", done("ALTER TABLE")),
        ("SELECT b FROM t WHERE a = 2", rows(&["y"])),
        ("INSERT INTO t VALUES (2, 'again')", fails("23505")),
        ("ALTER TABLE t ADD COLUMN c int NOT NULL DEFAULT 7", done("ALTER TABLE")),
        ("ALTER TABLE t ADD COLUMN d int NOT NULL", fails("23502")),
        ("INSERT INTO t VALUES (3, 'z', 8)", done("INSERT 0 1")),
        ("SELECT * FROM t ORDER BY a", rows(&["1|x|7", "2|y|7", "3|z|8"])),
        ("ALTER TABLE t DROP COLUMN b", done("ALTER TABLE")),
        ("SELECT * FROM t ORDER BY a", rows(&["1|7", "2|7", "3|8"])),
        ("INSERT INTO t VALUES (4, 9)", done("INSERT 0 1")),
        ("ALTER TABLE t RENAME COLUMN c TO n", done("ALTER TABLE")),
        ("ALTER TABLE t RENAME TO u", done("ALTER TABLE")),
        ("SELECT a, n FROM u WHERE n > 7 ORDER BY a", rows(&["3|8", "4|9"])),
        ("SELECT 1 FROM t", fails("42P01")),
        ("CREATE TABLE t (a int)", done("CREATE TABLE")),
        ("CREATE TABLE u (a int)", fails("42P07")),
        ("CREATE TABLE IF NOT EXISTS u (a int)", done("CREATE TABLE")),
        ("ALTER TABLE u ADD CONSTRAINT few CHECK (n < 9)", fails("23514")),
        ("ALTER TABLE u ADD CONSTRAINT few CHECK (n < 10)", done("ALTER TABLE")),
        ("UPDATE u SET n = 10", fails("23514")),
        ("ALTER TABLE u DROP CONSTRAINT few", done("ALTER TABLE")),
        ("UPDATE u SET n = 10", done("UPDATE 4")),
        ("CREATE UNIQUE INDEX ON u (n)", fails("23505")),
        ("ALTER TABLE u DROP COLUMN a", done("ALTER TABLE")),
        ("DROP TABLE t, u", done("DROP TABLE")),
        ("DROP TABLE IF EXISTS t", done("DROP TABLE")),
        ("DROP TABLE t", fails("42P01")),
    ]);
}

#[test]
fn serial_columns_count() {
    let many = "INSERT INTO t (n) SELECT a.n FROM t a, t b, t c, t d, t e, t f";
    script(&[
        ("CREATE TABLE t (id serial PRIMARY KEY, n int)", done("CREATE TABLE")),
        ("INSERT INTO t (n) VALUES (10), (20) RETURNING id", rows(&["1", "2"])),
        (many, done("INSERT 0 64")),
        ("SELECT count(*), min(id), max(id) FROM t", rows(&["66|1|66"])),
        ("BEGIN", done("BEGIN")),
        ("INSERT INTO t (n) VALUES (0) RETURNING id", rows(&["67"])),
        ("ROLLBACK", done("ROLLBACK")),
        ("INSERT INTO t (n) VALUES (0) RETURNING id", rows(&["68"])),
        ("INSERT INTO t VALUES (DEFAULT, 1), (100, 2) RETURNING id", rows(&["69", "100"])),
        ("INSERT INTO t VALUES (NULL, 1)", fails("23502")),
        ("CREATE TABLE u (id bigint GENERATED BY DEFAULT AS IDENTITY, t text)", done("CREATE TABLE")),
        ("INSERT INTO u (t) VALUES ('a') RETURNING id", rows(&["1"])),
        ("SELECT nextval(5)", fails("42P01")),
        ("DROP TABLE t", done("DROP TABLE")),
        ("CREATE TABLE t (id serial)", done("CREATE TABLE")),
        ("INSERT INTO t DEFAULT VALUES RETURNING id", rows(&["1"])),
    ]);
}

#[test]
fn transactions_and_savepoints_undo_what_they_did() {
    script(&[
        ("CREATE TABLE t (id int PRIMARY KEY)", done("CREATE TABLE")),
        ("BEGIN", done("BEGIN")),
        ("INSERT INTO t VALUES (1)", done("INSERT 0 1")),
        ("SAVEPOINT s", done("SAVEPOINT")),
        ("INSERT INTO t VALUES (2)", done("INSERT 0 1")),
        ("INSERT INTO t VALUES (1)", fails("23505")),
        ("SELECT 1", fails("25P02")),
        ("ROLLBACK TO s", done("ROLLBACK")),
        ("SELECT id FROM t", rows(&["1"])),
        ("ROLLBACK TO other", fails("3B001")),
        ("COMMIT", done("ROLLBACK")),
        ("SELECT id FROM t", rows(&[])),
        ("BEGIN", done("BEGIN")),
        ("CREATE TABLE u (id int)", done("CREATE TABLE")),
        ("INSERT INTO u VALUES (1)", done("INSERT 0 1")),
        ("ALTER TABLE u ADD PRIMARY KEY (id)", done("ALTER TABLE")),
        ("SELECT id FROM u WHERE id = 1", rows(&["1"])),
        ("ROLLBACK", done("ROLLBACK")),
        ("SELECT id FROM u", fails("42P01")),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", done("BEGIN")),
        ("SHOW transaction_isolation", rows(&["serializable"])),
        ("INSERT INTO t VALUES (1)", fails("25006")),
        ("END", done("ROLLBACK")),
    ]);
}

#[test]
fn a_text_is_planned_once_for_all_sessions_until_the_catalog_is_another() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE TABLE u (id int)"]);
    let before = desk.tenant.plans_made();
    let mut made = |client, text: &str| {
        desk.run(client, text);
        desk.tenant.plans_made() - before
    };
    let query = "SELECT n FROM t WHERE id = 1";
    assert_eq!([made(a, query), made(a, query), made(b, query)], [1, 1, 1]);
    assert_eq!([made(a, "SELECT 1"), made(b, query)], [2, 2]);
    assert_eq!([made(a, "DROP TABLE u"), made(b, query), made(a, query)], [3, 4, 4]);
}

#[test]
fn a_row_has_no_more_columns_than_the_protocol_can_count() {
    let list = |count: usize| vec!["1"; count].join(",");
    let mut desk = Desk::new();
    let client = desk.client();
    let last = format!("SELECT x.* FROM (SELECT {}) x LIMIT 0", list(1_664));
    assert_eq!(desk.run(client, &last), rows(&[]));
    for text in [format!("SELECT {}", list(1_665)), format!("VALUES ({})", list(70_000))] {
        assert_eq!(desk.run(client, &text), fails("54011"));
    }
    desk.setup(client, &["CREATE TABLE t (id int)"]);
    assert_eq!(desk.run(client, &format!("INSERT INTO t VALUES (1) RETURNING {}", list(1_665))), fails("54011"));
}

#[test]
fn brackets_in_brackets_take_no_time_that_doubles_with_each() {
    let nested =
        |open: &str, inner: &str, close: &str| format!("SELECT {}{inner}{}", open.repeat(16), close.repeat(16));
    script(&[
        (&nested("replace(", "'abc'", ", 'b', 'c')"), rows(&["acc"])),
        (&nested("abs(", "-1", ")"), rows(&["1"])),
        (&nested("NOT (", "+", ")"), fails("42601")),
        (&nested("cast(", "+", " AS int)"), fails("42601")),
        (
            &format!("CREATE TABLE t (a int DEFAULT {})", nested("abs(", "1", ")").replace("SELECT ", "")),
            done("CREATE TABLE"),
        ),
        (&format!("DECLARE c CURSOR FOR {}", nested("cast(", "+", " AS int)")), fails("42601")),
        ("TABLE t", rows(&[])),
        ("TABLE public.t ORDER BY a LIMIT 1", rows(&[])),
        ("TABLE t WHERE a = 1", fails("42601")),
        ("TABLE t, t AS u", fails("42601")),
        ("TABLE (SELECT 1) x", fails("42601")),
    ]);
}
