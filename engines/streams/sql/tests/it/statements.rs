//! Declarations and the small statements.

use arrow::datatypes::{DataType, TimeUnit};
use savanna_streams_api::type_name;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_sql::{ObjectKind, Show, Statement, parse};

fn table(sql: &str) -> TableDef {
    match parse(sql).unwrap_or_else(|e| panic!("{e}")) {
        Statement::CreateTable { table, .. } => table,
        other => panic!("{other:?}"),
    }
}

fn error(sql: &str) -> String {
    parse(sql).expect_err(sql).to_string()
}

#[test]
fn a_table_has_columns_of_all_types() {
    let table = table(
        "CREATE TEMPORARY TABLE IF NOT EXISTS `my table` (
            a INT NOT NULL COMMENT 'first', b STRING, c DECIMAL(12, 3), d TIMESTAMP_LTZ(3), e TIMESTAMP(3) WITH LOCAL TIME ZONE,
            \"key\" BIGINT, f ROW<x ARRAY<INT>, y MAP<STRING, ROW<z DOUBLE>>>, g ARRAY<ROW<h DATE>>, i BYTES, j FLOAT,
            k AS a + 1, l AS f.x,
            PRIMARY KEY (a) NOT ENFORCED
        ) COMMENT 'x' WITH ('connector' = 'file', 'path' = 'it''s')",
    );
    assert_eq!(table.name, "my table");
    assert_eq!(table.options["path"], "it's");
    let types: Vec<String> = table.columns.iter().map(|c| format!("{} {}", c.name, type_name(&c.data_type))).collect();
    assert_eq!(
        types,
        [
            "a INT",
            "b VARCHAR",
            "c DECIMAL(12, 3)",
            "d TIMESTAMP_LTZ(3)",
            "e TIMESTAMP_LTZ(3)",
            "key BIGINT",
            "f ROW<x ARRAY<INT>, y MAP<VARCHAR, ROW<z DOUBLE>>>",
            "g ARRAY<ROW<h DATE>>",
            "i BYTES",
            "j FLOAT",
            "k BIGINT",
            "l ARRAY<INT>",
        ]
    );
    assert!(!table.columns[0].nullable);
    assert_eq!(table.columns[10].computed.as_deref(), Some("a + 1"));
}

#[test]
fn passwords_are_not_in_the_text_of_a_table() {
    let table = table(
        "CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED) WITH ('password' = 'it''s secret',
            'url' = 'postgresql://ann:secret@h/é', 'connector' = 'x')",
    );
    assert_eq!(table.options["password"], "it's secret");
    assert_eq!(table.options["url"], "postgresql://ann:secret@h/é");
    assert_eq!(
        table.statement,
        "CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED) WITH ('password' = '******',
            'url' = 'postgresql://ann:******@h/é', 'connector' = 'x')"
    );
    assert_eq!(table.primary_key, ["a"]);
}

#[test]
fn a_computed_column_may_be_the_event_time() {
    let table = table(
        "CREATE TABLE t (kind INT, a ROW<at TIMESTAMP(3)>, b ROW<at TIMESTAMP(3)>,
            at AS CASE WHEN kind = 0 THEN a.at ELSE b.at END,
            WATERMARK FOR at AS at - INTERVAL '1' MINUTE) WITH ('connector' = 'x');",
    );
    let watermark = table.watermark.unwrap();
    assert_eq!((watermark.column.as_str(), watermark.delay), ("at", 60_000_000));
    assert_eq!(table.columns[3].data_type, DataType::Timestamp(TimeUnit::Millisecond, None));
    assert!(table.statement.ends_with("('connector' = 'x')"));
}

#[test]
fn columns_may_be_left_to_the_connector() {
    assert!(table("CREATE TABLE t WITH ('connector' = 'nexmark')").columns.is_empty());
}

#[test]
fn wrong_declarations_say_what_and_where() {
    let with = "WITH ('connector' = 'x')";
    assert_eq!(
        error("CREATE TABLE t (a INT)"),
        "expected WITH, but found the end of the statement (line 1, column 23)"
    );
    assert!(error("CREATE TABLE t (a INT) WITH ('path' = 'x')").contains("needs the option 'connector'"));
    assert!(error("CREATE TABLE t (a INT) WITH ('conector' = 'file')").contains("did you mean that by 'conector'?"));
    assert!(error(&format!("CREATE TABLE t (a) {with}")).contains("expected the type of column a"));
    assert!(
        error(&format!("CREATE TABLE t (a INT,\n a INT) {with}"))
            .contains("column a is declared twice; choose another name (line 2, column 2)")
    );
    assert!(error(&format!("CREATE TABLE t (a INT, WATERMARK FOR b AS b) {with}")).contains("column b does not exist"));
    assert!(
        error(&format!("CREATE TABLE t (a INT, WATERMARK FOR a AS a) {with}"))
            .contains("must be of type TIMESTAMP(3), but is INT")
    );
    assert!(
        error(&format!("CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS a - INTERVAL '1' YEAR) {with}"))
            .contains("fixed length")
    );
    assert!(
        error(&format!("CREATE TABLE t (a INT PRIMARY KEY) {with}"))
            .contains("an enforced PRIMARY KEY is not supported (line 1, column 23)")
    );
    assert!(
        error(&format!("CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED) {with}"))
            .contains("a table has one PRIMARY KEY, but this is the second (line 1, column 49)")
    );
    assert!(
        error(&format!("CREATE TABLE t (a GEOMETRY) {with}"))
            .contains("the type GEOMETRY is not supported (line 1, column 19)")
    );
    assert!(error(&format!("CREATE TABLE t (a INT, b AS c + 1) {with}")).contains("column c does not exist"));
    assert_eq!(
        error(&format!("CREATE TABLE t (a INT, b INT) PARTITIONED BY (day) {with}")),
        "column day does not exist (line 1, column 31); the columns of the table are a, b"
    );
    assert!(
        error(&format!("CREATE TABLE t (a INT, b AS a + 1) PARTITIONED BY (b) {with}"))
            .contains("names b, which is computed and not written")
    );
    assert!(
        error("CREATE TABLE a.b (x INT) WITH ('connector' = 'x')")
            .contains("qualified name a.b is not supported (line 1, column 14)")
    );
    assert!(error("CREATE FUNCTION f AS 'x'").contains("CREATE FUNCTION is not supported (line 1, column 8)"));
}

#[test]
fn a_view_keeps_the_text_of_its_query() {
    match parse("CREATE OR REPLACE TEMPORARY VIEW v (a, `b c`) AS\n  SELECT 1, 2 -- end\n ;").unwrap() {
        Statement::CreateView { view, or_replace, temporary, if_not_exists } => {
            assert!(or_replace && temporary && !if_not_exists);
            assert_eq!((view.name.as_str(), view.query.as_str()), ("v", "SELECT 1, 2"));
            assert_eq!(view.columns, ["a", "b c"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_materialized_view_has_options_and_a_query() {
    let text =
        "CREATE MATERIALIZED VIEW IF NOT EXISTS v (a, b) WITH ('key' = 'a, b', 'max-rows' = '10') AS SELECT 1, 2 ;";
    match parse(text).unwrap() {
        Statement::CreateMaterializedView { view, options, query, if_not_exists, temporary } => {
            assert!(if_not_exists && !temporary);
            assert_eq!((view.name.as_str(), query.text()), ("v", "SELECT 1, 2"));
            assert_eq!(
                (view.columns.as_slice(), options["key"].as_str()),
                (["a".into(), "b".into()].as_slice(), "a, b")
            );
            assert_eq!(view.statement, text.trim_end_matches(" ;"));
        }
        other => panic!("{other:?}"),
    }
    assert!(parse("CREATE TEMPORARY MATERIALIZED VIEW v AS SELECT 1").is_ok());
    assert!(parse("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1").is_ok());
    assert!(error("CREATE MATERIALIZED TABLE t").contains("expected VIEW, but found TABLE (line 1, column 21)"));
    assert!(
        error("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1")
            .contains("CREATE OR REPLACE MATERIALIZED VIEW is not supported (line 1, column 19)")
    );
    let deep = format!("CREATE MATERIALIZED VIEW v AS SELECT {}1", "1 + ".repeat(5_000));
    assert!(error(&deep).contains("operators are nested"), "{}", error(&deep));
}

#[test]
fn small_statements_are_read() {
    let show = |s: Show| Statement::Show(s);
    for (sql, expected) in [
        ("SHOW TABLES;", show(Show::Tables)),
        ("show views", show(Show::Views)),
        ("SHOW QUERIES", show(Show::Queries)),
        ("SHOW CONNECTORS", show(Show::Connectors)),
        ("SHOW FUNCTIONS", show(Show::Functions)),
        ("SHOW ALL", show(Show::All)),
        ("SHOW server_version", show(Show::Setting("server_version".into()))),
        ("SHOW CREATE TABLE t", show(Show::CreateTable("t".into()))),
        ("SHOW CREATE VIEW `v`", show(Show::CreateView("v".into()))),
        ("SHOW MATERIALIZED VIEWS", show(Show::MaterializedViews)),
        ("SHOW CREATE MATERIALIZED VIEW v", show(Show::CreateMaterializedView("v".into()))),
        (
            "DROP MATERIALIZED VIEW IF EXISTS v",
            Statement::Drop { kind: ObjectKind::MaterializedView, name: "v".into(), if_exists: true },
        ),
        ("DROP TABLE IF EXISTS t", Statement::Drop { kind: ObjectKind::Table, name: "t".into(), if_exists: true }),
        ("DROP VIEW v", Statement::Drop { kind: ObjectKind::View, name: "v".into(), if_exists: false }),
        ("DESCRIBE t", Statement::Describe { name: "t".into() }),
        ("SET 'a.b' = 'c'", Statement::Set { name: "a.b".into(), value: "c".into() }),
        ("SET a.b TO 200 ms", Statement::Set { name: "a.b".into(), value: "200 ms".into() }),
        ("SET client_encoding = UTF8", Statement::Set { name: "client_encoding".into(), value: "UTF8".into() }),
        ("RESET ALL", Statement::Reset { name: None }),
        ("STOP QUERY 'ab12-1'", Statement::StopQuery { id: "ab12-1".into(), savepoint: None }),
        (
            "STOP QUERY 'q' WITH SAVEPOINT '/a b/c'",
            Statement::StopQuery { id: "q".into(), savepoint: Some("/a b/c".into()) },
        ),
        ("STOP QUERY q WITH SAVEPOINT '/a'", Statement::StopQuery { id: "q".into(), savepoint: Some("/a".into()) }),
        ("RESUME QUERY FROM SAVEPOINT '/a'", Statement::ResumeSavepoint { directory: "/a".into() }),
        ("CANCEL QUERY ab12-1;", Statement::StopQuery { id: "ab12-1".into(), savepoint: None }),
        ("BEGIN TRANSACTION", Statement::Begin),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE", Statement::Begin),
        ("COMMIT", Statement::Commit),
        ("ROLLBACK", Statement::Rollback),
    ] {
        assert_eq!(parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}")), expected);
    }
    assert!(matches!(parse("EXPLAIN INSERT INTO t SELECT 1").unwrap(), Statement::Explain { .. }));
}

#[test]
fn a_query_goes_on_with_another_text() {
    for (sql, name, option) in [
        ("RESUME QUERY q AS INSERT INTO t (a) SELECT b FROM c;", "q", None),
        ("RESUME QUERY 'a-1'\n WITH ('state' = 'x')  AS  INSERT INTO t (a) SELECT b FROM c", "a-1", Some("x")),
    ] {
        let Statement::ResumeQuery { id, changed: Some(changed) } = parse(sql).unwrap() else { panic!("{sql}") };
        assert_eq!((id.as_str(), changed.options.get("state").map(String::as_str)), (name, option));
        assert_eq!(
            (changed.table.as_str(), changed.columns, changed.query.text()),
            ("t", vec!["a".to_owned()], "SELECT b FROM c")
        );
        assert_eq!(changed.text, "INSERT INTO t (a) SELECT b FROM c");
    }
    let plain = Statement::ResumeQuery { id: "q".into(), changed: None };
    assert_eq!(parse("RESUME QUERY 'q'").unwrap(), plain);
    assert_eq!(parse("EXPLAIN RESUME QUERY q").unwrap(), Statement::Explain { inner: Box::new(plain) });
    assert!(error("RESUME QUERY q AS SELECT 1").contains("expected INSERT INTO, but found SELECT (line 1, column 19)"));
    assert!(error("RESUME QUERY q WITH ('a' = 'b')").contains("expected AS"));
}

#[test]
fn what_is_no_statement_is_an_error_with_its_place() {
    assert_eq!(error("SELECT 1; SELECT 2"), "expected the end of the statement, but found SELECT (line 1, column 11)");
    assert!(error("").contains("expected a statement"));
    assert!(error("SELECT a FROM t WHERE").contains("line 1, column 22"), "{}", error("SELECT a FROM t WHERE"));
    assert!(error("SELECT 'a").contains("line 1, column 8"), "{}", error("SELECT 'a"));
    assert!(error("DELETE FROM t").contains("DELETE is not supported (line 1, column 1)"));
    assert!(error("EXPLAIN ANALYZE SELECT 1").contains("EXPLAIN ANALYZE is not supported (line 1, column 9)"));
    assert!(error("FROBNICATE t").contains("expected SELECT, INSERT"));
}
