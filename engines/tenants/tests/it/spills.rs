//! Statements with rows that they have no memory for.

use savanna_tenants::Outcome;
use savanna_tenants_store::database::Step;

use crate::desk::{Desk, Seen, done};

const ROWS: &str = "CREATE TABLE t (id int PRIMARY KEY, n int, b text)";
const FILL: &str = "INSERT INTO t SELECT g, g * 7919 % 1000, 'b' || g % 17 FROM generate_series(1, 3000) g(g)";

/// Queries whose steps each have to put rows into files.
const QUERIES: &[&str] = &[
    "SELECT * FROM t ORDER BY n DESC, id",
    "SELECT id, n FROM t ORDER BY b, n, id LIMIT 500 OFFSET 1500",
    "SELECT n, count(*), sum(id), array_agg(id) FROM t GROUP BY n ORDER BY n",
    "SELECT b, n, count(*) FROM t GROUP BY GROUPING SETS ((b), (n), ()) ORDER BY b, n",
    "SELECT DISTINCT n FROM t ORDER BY n",
    "SELECT DISTINCT ON (n) n, id FROM t ORDER BY n, id DESC",
    "SELECT count(*), sum(n) FROM (SELECT DISTINCT n, b FROM t) d",
    "SELECT count(*), sum(x) FROM (SELECT n FROM t UNION SELECT id FROM t) u(x)",
    "SELECT count(*), sum(x) FROM (SELECT n FROM t INTERSECT SELECT id FROM t) u(x)",
    "SELECT count(*), sum(x) FROM (SELECT id FROM t EXCEPT SELECT n FROM t) u(x)",
    "SELECT count(*), sum(x) FROM (SELECT n FROM t INTERSECT ALL SELECT n FROM t WHERE id < 2000) u(x)",
    "SELECT count(*), sum(x) FROM (SELECT n FROM t EXCEPT ALL SELECT n FROM t WHERE id < 2000) u(x)",
    "SELECT id, row_number() OVER (ORDER BY n, id), sum(id) OVER (PARTITION BY b ORDER BY n, id) FROM t ORDER BY id",
    "SELECT id, lag(n, 5) OVER (ORDER BY id), last_value(id) OVER (PARTITION BY n ORDER BY id ROWS BETWEEN CURRENT ROW \
     AND UNBOUNDED FOLLOWING) FROM t ORDER BY id",
    "WITH m AS MATERIALIZED (SELECT id, n FROM t) SELECT count(*), sum(a.n + b.id) FROM m a JOIN m b ON a.id = b.n",
    "SELECT count(*), sum(a.id * b.id) FROM t a JOIN t b ON a.n = b.n AND a.b <> b.b",
    "SELECT count(*), count(b.id), sum(a.id) FROM t a LEFT JOIN (SELECT id, n FROM t WHERE n < 300) b ON a.id = b.n",
    "SELECT count(*), count(a.id), count(b.id) FROM (SELECT n, id FROM t WHERE n > 500) a \
     FULL JOIN (SELECT n, id FROM t WHERE n < 700) b ON a.n = b.n",
    "WITH RECURSIVE r(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM r WHERE x < 2000) SELECT count(*), sum(x) FROM r",
];

fn filled(desk: &mut Desk) -> savanna_tenants_store::database::SessionId {
    let client = desk.client();
    desk.setup(client, &[ROWS, FILL]);
    client
}

#[test]
fn answers_do_not_depend_on_where_rows_are() {
    let mut memory = Desk::new();
    let client = filled(&mut memory);
    let expected: Vec<_> = QUERIES.iter().map(|query| memory.query(client, query)).collect();
    for rows_max in [1, 10, 1_000] {
        let (mut desk, spills, folder) = Desk::new().spilling(rows_max);
        let client = filled(&mut desk);
        for (query, expected) in QUERIES.iter().zip(&expected) {
            assert_eq!(&desk.query(client, query), expected, "{rows_max}: {query}");
            assert_eq!(spills.bytes(), 0, "{rows_max}: nothing is left of {query}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "files have no names");
    }
}

#[test]
fn a_statement_gives_way_before_it_uses_a_file() {
    let (mut desk, spills, _folder) = Desk::new().spilling(10);
    let client = desk.client();
    let sort = "SELECT g FROM generate_series(1, 50) g(g) ORDER BY 1 DESC";
    assert!(matches!(desk.tenant.run(client, sort), Ok(Step::Wait)));
    assert!(desk.tenant.gives_way(client));
    assert_eq!(spills.bytes(), 0, "there is none yet");
    assert_eq!(desk.query(client, sort).len(), 50);
}

#[test]
fn the_rows_of_an_answer_are_in_a_file_until_they_are_sent() {
    let (mut desk, spills, _folder) = Desk::new().spilling(100);
    let client = desk.client();
    desk.setup(client, &["BEGIN"]);
    let query = "SELECT g, repeat('x', 100) FROM generate_series(1, 5000) g(g)";
    let mut rows = loop {
        match desk.tenant.run(client, query).expect("a query") {
            Step::Done((Outcome::Rows { rows, .. }, _)) => break rows,
            Step::Done(other) => panic!("expected rows, came {other:?}"),
            Step::Wait => assert!(desk.tenant.gives_way(client)),
        }
    };
    assert!(rows.is_filed() && spills.bytes() > 500_000, "{} bytes", spills.bytes());
    let (mut count, mut most) = (0, 0);
    loop {
        let some = rows.some().expect("what was written");
        if some.is_empty() {
            break;
        }
        (count, most) = (count + some.len(), most.max(some.len()));
    }
    assert_eq!(count, 5_000);
    assert!(most < 1_000, "they come some at a time, not {most}");
    drop(rows);
    assert_eq!(spills.bytes(), 0);
}

#[test]
fn what_fails_or_is_cancelled_leaves_nothing_in_files() {
    let (mut desk, spills, _folder) = Desk::new().spilling(10);
    let client = filled(&mut desk);
    let fails = "SELECT n, 1 / (id - 2999) FROM t ORDER BY n, 2";
    assert_eq!(desk.run(client, fails), Seen::Failed("22012"));
    assert_eq!(spills.bytes(), 0);
    desk.setup(client, &["BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT id FROM t ORDER BY n, id"]);
    assert!(spills.bytes() > 0, "a cursor keeps its rows there");
    assert_eq!(desk.query(client, "FETCH LAST FROM c").len(), 1);
    assert_eq!(desk.query(client, "FETCH BACKWARD 2 FROM c").len(), 2);
    assert_eq!(desk.run(client, "ROLLBACK"), done("ROLLBACK"));
    assert_eq!(spills.bytes(), 0);
    desk.setup(client, &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t ORDER BY n, id"]);
    desk.tenant.close_session(client);
    assert_eq!(spills.bytes(), 0, "as little as of a session that ends");
}

#[test]
fn a_full_disk_is_an_error_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let spills = savanna_tenants_store::spills::Spills::open(folder.path()).expect("a folder");
    let spills = std::sync::Arc::new(spills.reserving(u64::MAX).keeping(Some(10)));
    let mut desk = Desk::new();
    desk.tenant = desk.tenant.spilling(std::sync::Arc::clone(&spills));
    let client = desk.client();
    desk.setup(client, &[ROWS, "INSERT INTO t VALUES (1, 1, 'a')"]);
    let sort = "INSERT INTO t SELECT g, g, 'b' FROM generate_series(2, 5000) g(g) ORDER BY g DESC";
    assert_eq!(desk.run(client, sort), Seen::Failed("53100"));
    assert_eq!(desk.query(client, "SELECT count(*) FROM t"), ["1"]);
    assert_eq!(spills.bytes(), 0);
}
