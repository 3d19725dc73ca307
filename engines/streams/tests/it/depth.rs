//! Statements and rows that are long, deep or both: answered or refused by name, and the process stays.
//!
//! What is planned here is planned and run on the threads that production uses: a stack that is too small ends the test.

use savanna_streams::EngineOptions;
use savanna_streams::api::StreamError;

use crate::session::Session;

const TABLE: &str = "CREATE TABLE t (a BIGINT, s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '3')";

fn chain(term: &str, operator: &str, count: usize) -> String {
    vec![term; count].join(operator)
}

async fn answer(session: &Session, sql: &str) -> Result<usize, StreamError> {
    let blocks = session.run(sql).await?;
    Ok(blocks.last().map_or(0, |block| block.lines().count() - 1))
}

/// Every answer is an answer, or a refusal that says that the statement is too long or too deep.
async fn check(session: &Session, what: &str, sql: &str) -> bool {
    match answer(session, sql).await {
        Ok(_) => true,
        Err(StreamError::TooComplex { .. }) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

#[tokio::test]
async fn a_chain_of_each_operator_is_answered_or_refused() {
    let session = Session::open(EngineOptions::default()).await;
    session.run(TABLE).await.unwrap();
    let operators = [
        ("1", "+"),
        ("1", "-"),
        ("1", "*"),
        ("1", "/"),
        ("1", "%"),
        ("1", "|"),
        ("1", "&"),
        ("'x'", "||"),
        ("true", " AND "),
        ("true", " OR "),
        ("1 = 1", " OR "),
    ];
    for (term, operator) in operators {
        for source in ["", " FROM t"] {
            let sql = |count| format!("SELECT {}{source}", chain(term, operator, count));
            assert!(check(&session, operator, &sql(250)).await, "250 of {operator}");
            check(&session, operator, &sql(2_000)).await;
            assert!(!check(&session, operator, &sql(50_000)).await, "50,000 of {operator}");
        }
    }
    for (term, operator) in [("a", " + "), ("s", " || ")] {
        assert!(check(&session, operator, &format!("SELECT {} FROM t", chain(term, operator, 250))).await);
    }
    for operator in ["OR", "AND"] {
        let conditions = (0..1_000).map(|n| format!("a <> {n}")).collect::<Vec<_>>().join(&format!(" {operator} "));
        assert!(check(&session, operator, &format!("SELECT a FROM t WHERE {conditions}")).await);
    }
    session.close().await;
}

#[tokio::test]
async fn each_construct_in_itself_is_answered_or_refused() {
    let session = Session::open(EngineOptions::default()).await;
    session.run(TABLE).await.unwrap();
    let nestings = [
        ("SELECT ", "(", "1", ")", ""),
        ("SELECT ", "- ", "1", "", ""),
        ("SELECT ", "NOT ", "true", "", ""),
        ("SELECT ", "NOT (", "true", ")", ""),
        ("SELECT ", "abs(", "1", ")", ""),
        ("SELECT ", "ARRAY[", "1", "]", ""),
        ("SELECT ", "CAST(", "1", " AS BIGINT)", ""),
        ("SELECT ", "CASE WHEN true THEN ", "1", " END", ""),
        ("SELECT 1", "::BIGINT", "", "", ""),
        ("SELECT 1", " IS NULL", "", "", ""),
        ("SELECT a FROM ", "(SELECT a FROM ", "t", ")", ""),
        ("SELECT a FROM t ", "UNION ALL SELECT a FROM t ", "", "", ""),
        ("SELECT CAST(NULL AS ", "ARRAY<", "INT", ">", ")"),
        ("SELECT CAST(NULL AS INT", "[]", "", "", ")"),
        ("SELECT CAST(NULL AS ", "ROW<a ", "INT", ">", ")"),
    ];
    for (start, open, middle, close, end) in nestings {
        let sql = |n: usize| format!("{start}{}{middle}{}{end}", open.repeat(n), close.repeat(n));
        assert!(check(&session, open, &sql(20)).await, "20 of {open}");
        for n in [100, 1_000, 10_000, 50_000] {
            if let Err(error) = answer(&session, &sql(n)).await {
                let is_named = matches!(error, StreamError::TooComplex { .. } | StreamError::Syntax { .. });
                assert!(is_named, "{n} of {open}: {error}");
            }
        }
        // Brackets that nobody closes are read in many ways.
        assert!(answer(&session, &format!("{start}{}", open.repeat(90))).await.is_err() || close.is_empty());
    }
    session.close().await;
}

#[tokio::test]
async fn views_that_double_are_refused() {
    let session = Session::open(EngineOptions::default()).await;
    session.run(TABLE).await.unwrap();
    session.run("CREATE VIEW v0 AS SELECT a FROM t").await.unwrap();
    let mut refused = None;
    for n in 1..30 {
        let view = format!("CREATE VIEW v{n} AS SELECT a FROM v{0} UNION ALL SELECT a FROM v{0}", n - 1);
        if let Err(error) = session.run(&view).await {
            refused = Some(error);
            break;
        }
    }
    assert!(matches!(refused, Some(StreamError::TooComplex { .. })), "{refused:?}");
    session.close().await;
}

#[tokio::test]
async fn common_table_expressions_that_double_are_refused() {
    let session = Session::open(EngineOptions::default()).await;
    session.run(TABLE).await.unwrap();
    let doubled = |count: usize| {
        let next = (1..=count).map(|n| format!(", c{n} AS (SELECT a FROM c{0} UNION ALL SELECT a FROM c{0})", n - 1));
        format!("WITH c0 AS (SELECT a FROM t){} SELECT a FROM c{count}", next.collect::<String>())
    };
    assert!(check(&session, "4 that double", &doubled(4)).await);
    assert!(!check(&session, "60 that double", &doubled(60)).await);
    // Also where nobody names them, and in each other.
    assert!(!check(&session, "60 unused", &doubled(60).replace("FROM c60", "FROM t")).await);
    let inner = format!("SELECT a FROM ({}) AS inside", doubled(60));
    assert!(!check(&session, "60 in a subquery", &inner).await);
    session.close().await;
}

/// Each view is small, and computes more than the one before from its columns.
#[tokio::test]
async fn expressions_that_grow_from_view_to_view_are_refused() {
    let abs = format!("{}a{}", "abs(".repeat(40), ")".repeat(40));
    let sums = format!("a{}", " + 1".repeat(200));
    let cases = [
        ("CAST(a AS STRING)", "a || a", "SELECT a FROM last"),
        ("a", "a + a", "SELECT a FROM last"),
        ("a", "a + a", "SELECT x.k FROM last AS x JOIN t AS y ON x.k = y.a WHERE x.a = 1"),
        ("a", &abs, "SELECT a FROM last"),
        ("a", &sums, "SELECT a FROM last"),
    ];
    for (first, next, query) in cases {
        let session = Session::open(EngineOptions::default()).await;
        session.run(TABLE).await.unwrap();
        session.run(&format!("CREATE VIEW v0 AS SELECT {first} AS a, a AS k FROM t")).await.unwrap();
        let (mut last, mut refused) = (0, false);
        for n in 1..32 {
            match session.run(&format!("CREATE VIEW v{n} AS SELECT {next} AS a, k FROM v{last}")).await {
                Ok(_) => last = n,
                Err(StreamError::TooComplex { .. }) => refused = true,
                Err(error) => panic!("{next}: {error}"),
            }
        }
        assert!(refused, "{next}");
        // What was let through is planned, or refused by name.
        if let Err(error) = session.run(&query.replace("last", &format!("v{last}"))).await {
            assert!(!matches!(error, StreamError::Internal(_)), "{query}: {error}");
        }
        session.close().await;
    }
}

#[tokio::test]
async fn a_text_of_many_statements_is_refused() {
    let session = Session::open(EngineOptions::default()).await;
    assert!(!check(&session, "statements", &"SELECT 1;".repeat(2_000)).await);
    session.close().await;
}

#[tokio::test]
async fn rows_of_values_deep_in_each_other_are_malformed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.ndjson");
    let nested = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
    let arrays = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
    // Texts may have brackets.
    let text = format!("{{\"k\":4,\"a\":\"{}\"}}", "[{".repeat(1_000));
    let lines = ["{\"k\":1}".into(), nested(1_000_000), arrays(1_000_000), "{\"a\":".repeat(1_000_000), text];
    std::fs::write(&path, lines.join("\n")).unwrap();
    let session = Session::open(EngineOptions::default()).await;
    for columns in ["k BIGINT", "k BIGINT, a STRING", "k BIGINT, a ROW<a ROW<a INT>>", "k BIGINT, a ARRAY<INT>"] {
        let create = format!(
            "CREATE TABLE f ({columns}) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'ndjson', \
             'on-error' = 'skip')",
            path.display()
        );
        session.run(&create).await.unwrap();
        assert!(answer(&session, "SELECT k FROM f").await.unwrap() >= 1, "{columns}");
        assert!(answer(&session, "SELECT * FROM f").await.unwrap() >= 1, "{columns}");
        session.run("DROP TABLE f").await.unwrap();
    }
    session.close().await;
}
