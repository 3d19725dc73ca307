//! Where statements are wrong that change tables and settings: each error has the place of the word that it is about.

use savanna_streams::EngineOptions;

use crate::session::Session;

const FILES: &str = "CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = '/nowhere', 'format' = 'csv'";

/// Statements, with what stands at the place of their error.
const WRONG: [(&str, &str); 45] = [
    ("DROP VIEW numbers", "numbers"),
    ("DROP VIEW IF EXISTS numbers", "numbers"),
    ("DROP TABLE twice", "twice"),
    ("DROP TABLE nothing", "nothing"),
    ("DROP VIEW nothing", "nothing"),
    ("CREATE TABLE numbers (a INT) WITH ('connector' = 'blackhole')", "numbers"),
    ("CREATE TABLE twice (a INT) WITH ('connector' = 'blackhole')", "twice"),
    ("CREATE VIEW twice AS SELECT n FROM numbers", "twice"),
    ("CREATE OR REPLACE VIEW numbers AS SELECT n FROM twice", "numbers"),
    ("CREATE VIEW v (a) AS SELECT n, n + 1 FROM numbers", "v (a)"),
    ("CREATE VIEW v (a, a) AS SELECT n, n + 1 FROM numbers", "a) AS"),
    ("CREATE VIEW v AS SELECT m FROM numbers", "m FROM"),
    ("INSERT INTO nothing SELECT n FROM numbers", "nothing"),
    ("INSERT INTO twice SELECT n FROM numbers", "twice"),
    ("INSERT INTO sink (n, n) SELECT n, n FROM numbers", "n) SELECT"),
    ("INSERT INTO sink (m) SELECT n FROM numbers", "m) SELECT"),
    ("EXPLAIN INSERT INTO twice SELECT n FROM numbers", "twice"),
    ("SHOW CREATE TABLE nothing", "nothing"),
    ("SHOW CREATE TABLE twice", "twice"),
    ("SHOW CREATE VIEW numbers", "numbers"),
    ("DESCRIBE nothing", "nothing"),
    ("SET paralelism = 2", "paralelism"),
    ("SET parallelism = many", "parallelism"),
    ("SET 'parallelism' = 0", "'parallelism'"),
    ("SET statement_timeout = 'soon'", "'soon'"),
    ("STOP QUERY nothing", "nothing"),
    ("FETCH 5 FROM nothing", "nothing"),
    ("CLOSE nothing", "nothing"),
    ("COPY nothing TO STDOUT", "nothing"),
    ("COPY (SELECT m FROM numbers) TO STDOUT", "m FROM"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'blackhall')", "'blackhall'"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'blackhole', 'path' = '/x')", "'path'"),
    ("CREATE TABLE t (a INT) WITH ('path' = '/x')", "WITH"),
    ("CREATE TABLE path (a INT) WITH ('connector' = 'file')", "'file'"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = 'x')", "'rows-per-second'"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'fields.b.kind' = 'random')", "'fields.b.kind'"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'fields.a.kind' = 'sequence')", "'datagen'"),
    ("CREATE TABLE t (a INT, b BYTES) WITH ('connector' = 'datagen')", "b BYTES"),
    ("{FILES}, 'csv.delimiter' = 'ab')", "'csv.delimiter'"),
    ("{FILES}, 'follow' = 'maybe')", "'follow'"),
    (
        "CREATE TABLE t (a INT) PARTITIONED BY (a) WITH ('connector' = 'file', 'path' = '/x', 'format' = 'csv')",
        "PARTITIONED",
    ),
    ("CREATE TABLE t (a INT, WATERMARK FOR a AS a) WITH ('connector' = 'datagen')", "a INT"),
    ("SELECT n FROM numbers FOR UPDATE", "FOR UPDATE"),
    ("SELECT n FROM numbers ORDER BY 9", "9"),
    ("SELECT n FROM numbers WHERE 'x'", "'x'"),
];

#[tokio::test]
async fn every_wrong_statement_has_the_place_of_what_is_wrong() {
    let session = Session::open(EngineOptions::default()).await;
    let tables = "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '0');
                  CREATE TABLE sink (n BIGINT) WITH ('connector' = 'blackhole');
                  CREATE VIEW twice AS SELECT 2 * n AS n FROM numbers";
    session.run(tables).await.unwrap();
    let mut failures = Vec::new();
    for (sql, expected) in WRONG {
        let sql = sql.replace("{FILES}", FILES);
        let error = session.run(&sql).await.expect_err(&sql);
        let there = error.position().map(|place| &sql[place.column as usize - 1..]);
        if !there.is_some_and(|there| there.starts_with(expected)) {
            failures.push(format!("{sql}\n    {error}\n    expected {expected}, but got {there:?}"));
        }
    }
    session.close().await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
