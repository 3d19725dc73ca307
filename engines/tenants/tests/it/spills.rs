//! Statements with rows that they have no memory for.

use savanna_tenants::{
    Outcome, SpoolRows,
    tenant::{Binding, Bound},
};
use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::value::Value;

use crate::desk::{Desk, Seen, done};

const ROWS: &str = "CREATE TABLE t (id int PRIMARY KEY, n int, b text)";
const FILL: &str = "INSERT INTO t SELECT g, g * 7919 % 1000, 'b' || g % 17 FROM generate_series(1, 3000) g(g)";

/// Keys that some rows have not, and others of which have several rows.
const KEYS: &str = "CREATE TABLE u (id int, k int, s text)";
const FILL_KEYS: &str = "INSERT INTO u SELECT g, CASE WHEN g % 5 = 0 THEN NULL ELSE g * 31 % 400 END, \
                         CASE WHEN g % 7 > 0 THEN 's' || g % 3 END FROM generate_series(1, 300) g";
const SKEW: &str = "CREATE TABLE skew (id int, k int)";
const FILL_SKEW: &str = "INSERT INTO skew SELECT g, CASE WHEN g % 2 = 0 THEN 1 WHEN g % 3 = 0 THEN NULL ELSE g END \
                         FROM generate_series(1, 240) g";

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
    "SELECT id, row_number() OVER (ORDER BY b), rank() OVER (ORDER BY n), array_agg(id) OVER (ORDER BY b ROWS 3 PRECEDING), \
     row_number() OVER (PARTITION BY n), lag(id) OVER (ORDER BY n) FROM t ORDER BY id",
    "SELECT DISTINCT rank() OVER (ORDER BY n), generate_series(1, 2) FROM t ORDER BY 1, 2",
    "SELECT id, sum(n) OVER (ORDER BY n RANGE BETWEEN 3 PRECEDING AND 1 FOLLOWING EXCLUDE TIES), \
     nth_value(id, 3) OVER (ORDER BY b GROUPS 1 PRECEDING EXCLUDE GROUP) FROM t WHERE id < 400 ORDER BY id",
    "SELECT id, lag(n, 5) OVER (ORDER BY id), last_value(id) OVER (PARTITION BY n ORDER BY id ROWS BETWEEN CURRENT ROW \
     AND UNBOUNDED FOLLOWING) FROM t ORDER BY id",
    "WITH m AS MATERIALIZED (SELECT id, n FROM t) SELECT count(*), sum(a.n + b.id) FROM m a JOIN m b ON a.id = b.n",
    "SELECT count(*), sum(a.id * b.id) FROM t a JOIN t b ON a.n = b.n AND a.b <> b.b",
    "SELECT count(*), count(b.id), sum(a.id) FROM t a LEFT JOIN (SELECT id, n FROM t WHERE n < 300) b ON a.id = b.n",
    "SELECT count(*), count(a.id), count(b.id) FROM (SELECT n, id FROM t WHERE n > 500) a \
     FULL JOIN (SELECT n, id FROM t WHERE n < 700) b ON a.n = b.n",
    "SELECT a.id, b.id FROM t a JOIN u b ON a.n = b.k ORDER BY a.id, b.id",
    "SELECT a.id, b.id, b.s FROM t a LEFT JOIN u b ON a.n = b.k AND b.id % 3 = 0 ORDER BY a.id, b.id",
    "SELECT a.id, b.id FROM (SELECT * FROM t WHERE id < 500) a RIGHT JOIN u b ON a.n = b.k ORDER BY a.id, b.id",
    "SELECT a.id, a.n, b.id, b.k FROM t a FULL JOIN u b ON a.n = b.k AND a.id < b.id ORDER BY a.id, b.id",
    "SELECT a.id, b.id FROM u a FULL JOIN u b ON a.k = b.k AND a.s = b.s ORDER BY a.id, b.id",
    "SELECT a.id, b.id FROM u a FULL JOIN (SELECT * FROM u WHERE id > 100) b ON true AND a.id = b.id + 1 ORDER BY 1, 2",
    // Nobody has one key, half of the rows have one, and some have none.
    "SELECT count(*), sum(a.id * b.id) FROM skew a JOIN skew b ON a.k = b.k",
    "SELECT count(*), count(a.id), count(b.id), sum(a.id - b.id) FROM skew a FULL JOIN skew b ON a.k = b.k AND a.id % 7 = b.id % 11",
    "SELECT count(*), count(b.id) FROM skew a LEFT JOIN skew b ON a.k = b.k AND a.id > b.id",
    "SELECT count(*), count(b.id) FROM u a LEFT JOIN u b ON b.k = a.k AND b.s IS NULL",
    "SELECT a.id FROM t a WHERE EXISTS (SELECT FROM u b WHERE b.k = a.n) ORDER BY a.id",
    "SELECT a.id FROM t a WHERE NOT EXISTS (SELECT FROM u b WHERE b.k = a.n AND b.id > 50) ORDER BY a.id",
    "SELECT a.id FROM t a WHERE a.n IN (SELECT k FROM u) ORDER BY a.id",
    "SELECT a.id FROM t a WHERE a.n NOT IN (SELECT k FROM u WHERE k IS NOT NULL) ORDER BY a.id",
    "SELECT a.id, c.id FROM t a JOIN u b ON a.n = b.k LEFT JOIN t c ON c.n = b.id AND c.b = a.b ORDER BY a.id, b.id, c.id",
    "SELECT a.id, x.c, x.m FROM u a, LATERAL (SELECT count(*) AS c, max(b.id) AS m FROM t b JOIN u c ON c.k = b.n \
     WHERE b.id < a.id * 10) x WHERE a.id < 20 ORDER BY a.id",
    "SELECT a.id, (SELECT count(*) FROM t b JOIN (SELECT k FROM u WHERE id < a.id) c ON c.k = b.n) FROM u a WHERE id < 20 \
     ORDER BY a.id",
    "SELECT count(*) FROM (SELECT a.id FROM t a JOIN u b ON a.n = b.k LIMIT 7) q",
    "SELECT a.id FROM t a JOIN u b ON a.n = b.k WHERE a.id < 300 ORDER BY a.id LIMIT 5",
    "SELECT count(*) FROM t a JOIN u b ON a.id < b.id AND b.id < 40",
    "WITH RECURSIVE r(x, d) AS (SELECT 1, 0 UNION ALL SELECT t.n, d + 1 FROM r JOIN t ON t.id = r.x + 1 WHERE d < 30) \
     SELECT x, d FROM r ORDER BY d",
    "WITH RECURSIVE r(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM r WHERE x < 2000) SELECT count(*), sum(x) FROM r",
];

fn filled(desk: &mut Desk) -> SessionId {
    let client = desk.client();
    desk.setup(client, &[ROWS, FILL, KEYS, FILL_KEYS, SKEW, FILL_SKEW]);
    client
}

#[test]
fn answers_do_not_depend_on_where_rows_are() {
    let mut memory = Desk::new();
    let client = filled(&mut memory);
    let expected: Vec<_> = QUERIES.iter().map(|query| memory.query(client, query)).collect();
    for rows_max in [1, 3, 10, 1_000] {
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
fn calls_of_one_window_see_the_same_order_whatever_lies_between() {
    for rows_max in [1, 10, 1_000, 1_000_000] {
        let (mut desk, _, _folder) = Desk::new().spilling(rows_max);
        let client = filled(&mut desk);
        let same = "SELECT count(*) FILTER (WHERE first = last AND first = after) FROM (SELECT \
                    row_number() OVER (PARTITION BY b ORDER BY n / 100) AS first, sum(id) OVER (ORDER BY n % 10), \
                    row_number() OVER (PARTITION BY b ORDER BY n / 100) AS last, rank() OVER (ORDER BY id DESC), \
                    1 + coalesce(lag(rank) OVER (PARTITION BY b ORDER BY n / 100), 0) AS after FROM (SELECT *, \
                    row_number() OVER (PARTITION BY b ORDER BY n / 100) AS rank FROM t) t) w";
        assert_eq!(desk.query(client, same), ["3000"], "{rows_max}");
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

/// Runs a statement where it is in nobody's way, and returns its rows as they are before anybody reads them.
fn unread(desk: &mut Desk, client: SessionId, text: &str) -> SpoolRows {
    loop {
        match desk.tenant.run(client, text).expect("a query") {
            Step::Done((Outcome::Rows { rows, .. }, _)) => return rows,
            Step::Done(other) => panic!("{text}: expected rows, came {other:?}"),
            Step::Wait => assert!(desk.tenant.gives_way(client), "{text}"),
        }
    }
}

fn firsts(rows: SpoolRows) -> Vec<i64> {
    let number = |row: Result<Vec<Value>, _>| match row.expect("rows that can be read")[0] {
        Value::Int(number) => number,
        _ => -1,
    };
    rows.map(number).collect()
}

#[test]
fn a_fetch_reads_no_file_and_its_rows_are_those_of_the_cursor() {
    let (mut desk, spills, _folder) = Desk::new().spilling(10);
    let client = filled(&mut desk);
    desk.setup(client, &["BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT id FROM t ORDER BY id + 0"]);
    let (file, all) = (spills.bytes(), (1..=3_000).collect::<Vec<i64>>());
    assert!(file > 0);
    for (fetch, expected) in [
        ("FETCH 3 FROM c", vec![1, 2, 3]),
        ("FETCH ALL FROM c", all[3..].to_vec()),
        ("FETCH BACKWARD ALL FROM c", all.iter().rev().copied().collect()),
        ("FETCH FORWARD ALL FROM c", all.clone()),
        ("FETCH ABSOLUTE 1700 FROM c", vec![1_700]),
        ("FETCH BACKWARD 1200 FROM c", (500..1_700).rev().collect()),
        ("FETCH RELATIVE 0 FROM c", vec![500]),
        ("FETCH 2600 FROM c", all[500..].to_vec()),
        ("FETCH NEXT FROM c", vec![]),
    ] {
        // It gives way to nobody, as it takes no time, and needs no memory.
        let Ok(Step::Done((Outcome::Rows { rows, tag, .. }, _))) = desk.tenant.run(client, fetch) else {
            panic!("{fetch}");
        };
        assert!(rows.left() == expected.len() && (rows.is_filed() || expected.is_empty()), "{fetch}");
        assert_eq!(tag, format!("FETCH {}", expected.len()));
        assert_eq!(firsts(rows), expected, "{fetch}");
        assert_eq!(spills.bytes(), file, "{fetch}: nothing is copied");
    }
    assert_eq!(desk.run(client, "MOVE BACKWARD ALL FROM c"), done("MOVE 3000"));
    let rows = unread(&mut desk, client, "FETCH 2000 FROM c");
    desk.setup(client, &["CLOSE c"]);
    assert_eq!(firsts(rows), all[..2_000], "they are there until they are sent");
    assert_eq!(spills.bytes(), 0);
}

#[test]
fn what_is_fetched_of_a_query_that_runs_as_far_as_it_is_wanted_goes_to_a_file() {
    let (mut desk, spills, _folder) = Desk::new().spilling(100);
    let client = filled(&mut desk);
    desk.setup(client, &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t"]);
    assert_eq!(spills.bytes(), 0, "it has not run");
    assert!(!unread(&mut desk, client, "FETCH 90 FROM c").is_filed());
    let rows = unread(&mut desk, client, "FETCH 1000 FROM c");
    assert!(rows.is_filed() && spills.bytes() > 0);
    assert_eq!(firsts(rows), (91..=1_090).collect::<Vec<_>>());
    assert_eq!(firsts(unread(&mut desk, client, "FETCH ALL FROM c")), (1_091..=3_000).collect::<Vec<_>>());
    assert_eq!(spills.bytes(), 0);
    desk.setup(client, &["DECLARE s SCROLL CURSOR FOR SELECT id FROM t", "FETCH 10 FROM s"]);
    assert_eq!(firsts(unread(&mut desk, client, "FETCH BACKWARD 3 FROM s")), [9, 8, 7]);
    assert!(spills.bytes() > 0, "from there on it keeps its rows");
}

#[test]
fn parts_of_an_answer_are_read_when_they_are_sent() {
    let (mut desk, spills, _folder) = Desk::new().spilling(10);
    let client = filled(&mut desk);
    desk.setup(client, &["BEGIN"]);
    desk.tenant.parse(client, "", "SELECT id FROM t ORDER BY -id", &[]).expect("a statement");
    let binding = Binding { portal: "p", statement: "", given: &[], formats: &[] };
    desk.tenant.bind(client, &binding).expect("no parameters");
    let (mut parts, mut is_end) = (Vec::new(), false);
    while !is_end {
        match desk.tenant.execute(client, "p", 700).expect("a portal") {
            Step::Done(Outcome::Rows { rows, end, .. }) => {
                assert!(rows.is_filed(), "nothing of it was read");
                parts.push(rows);
                is_end = end;
            }
            Step::Done(other) => panic!("expected rows, came {other:?}"),
            Step::Wait => assert!(desk.tenant.gives_way(client) && parts.is_empty()),
        }
    }
    assert_eq!(parts.iter().map(SpoolRows::left).collect::<Vec<_>>(), [700, 700, 700, 700, 200]);
    assert_eq!(desk.run(client, "COMMIT"), done("COMMIT"));
    assert_eq!(parts.into_iter().flat_map(firsts).collect::<Vec<_>>(), (1..=3_000).rev().collect::<Vec<_>>());
    assert_eq!(spills.bytes(), 0);
}

#[test]
fn a_row_that_sees_many_others_counts_as_many() {
    let mut desk = Desk::new();
    let client = desk.client();
    // A thousand rows, and up to a thousand times as many in their frames.
    for call in [
        "sum(g) OVER (ORDER BY g ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)",
        "first_value(g) OVER (ORDER BY g / 900 RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE GROUP)",
        "last_value(g) OVER (ORDER BY g / 900 ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP)",
        "nth_value(g, 900) OVER (ORDER BY g ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES)",
        "max(g) OVER (ORDER BY g ROWS BETWEEN 400 PRECEDING AND 400 FOLLOWING)",
    ] {
        let text = format!("SELECT {call} FROM generate_series(1, 1000) g");
        assert!(matches!(desk.tenant.run(client, &text), Ok(Step::Wait)), "{call}");
        assert!(desk.tenant.gives_way(client), "{call}");
        assert_eq!(desk.query(client, &text).len(), 1_000);
    }
    let few = "SELECT sum(g) OVER (ORDER BY g) FROM generate_series(1, 1000) g";
    assert!(matches!(desk.tenant.run(client, few), Ok(Step::Done(_))), "each row comes and goes once");
}

#[test]
fn a_database_has_no_more_in_files_than_it_may() {
    let folder = tempfile::tempdir().expect("a folder");
    let spills = savanna_tenants_store::spills::Spills::open(folder.path()).expect("a folder");
    let spills = std::sync::Arc::new(spills.reserving(0).keeping(Some(10)).limited_to(300_000));
    let mut desk = Desk::new();
    desk.tenant = desk.tenant.spilling(std::sync::Arc::clone(&spills));
    let client = filled(&mut desk);
    let much = "INSERT INTO t SELECT g, g, repeat('x', 100) FROM generate_series(4000, 9000) g ORDER BY g DESC";
    assert_eq!(desk.run(client, much), Seen::Failed("53400"));
    assert_eq!((desk.query(client, "SELECT count(*) FROM t"), spills.bytes()), (vec!["3000".to_owned()], 0));
    desk.setup(client, &["BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT id, repeat('y', 30) FROM t ORDER BY n"]);
    assert!(spills.bytes() > 100_000);
    let others = "SELECT id, repeat('z', 30) FROM t ORDER BY n";
    assert_eq!(desk.run(client, others), Seen::Failed("53400"), "what a cursor has counts, too");
    desk.setup(client, &["ROLLBACK"]);
    assert_eq!(desk.query(client, others).len(), 3_000);
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

/// A folder on whose disk nothing is left.
fn on_a_full_disk(mut desk: Desk, folder: &std::path::Path) -> Desk {
    let spills = savanna_tenants_store::spills::Spills::open(folder).expect("a folder");
    let spills = std::sync::Arc::new(spills.reserving(u64::MAX).keeping(Some(10)));
    desk.tenant = desk.tenant.spilling(spills);
    desk
}

#[test]
fn joins_that_run_often_or_in_an_order_stay_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut desk = Desk::new();
    let client = filled(&mut desk);
    let often = [
        "SELECT a.id FROM t a JOIN u b ON a.n = b.k ORDER BY a.id LIMIT 5",
        "SELECT count(*) FROM u o WHERE o.id < 9 AND EXISTS (SELECT FROM t a JOIN u b ON a.n = b.k WHERE a.id = o.id)",
        "SELECT max((SELECT count(*) FROM t a JOIN u b ON a.n = b.k WHERE a.id < o.id)) FROM u o WHERE o.id < 9",
        "SELECT max(x.c) FROM u a, LATERAL (SELECT count(*) AS c FROM t b JOIN u c ON c.k = b.n WHERE b.id < a.id) x \
         WHERE a.id < 9",
        "WITH RECURSIVE r(x, d) AS (SELECT 31, 0 UNION ALL SELECT b.id, d + 1 FROM r JOIN u b ON b.k = r.x WHERE d < 5) \
         SELECT count(*) FROM r",
    ];
    let expected: Vec<_> = often.iter().map(|query| desk.query(client, query)).collect();
    let mut desk = on_a_full_disk(desk, folder.path());
    for (query, expected) in often.iter().zip(expected) {
        assert_eq!(desk.query(client, query), expected, "{query}");
    }
    let once = "SELECT count(*) FROM t a JOIN u b ON a.n = b.k";
    assert_eq!(desk.run(client, once), Seen::Failed("53100"), "one that runs once goes to files");
}

#[test]
fn rows_that_are_all_equal_are_not_parted_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let spills = savanna_tenants_store::spills::Spills::open(folder.path()).expect("a folder");
    // About 330,000 bytes of rows.
    let spills = std::sync::Arc::new(spills.reserving(0).keeping(Some(10)).limited_to(900_000));
    let mut desk = Desk::new();
    desk.tenant = desk.tenant.spilling(std::sync::Arc::clone(&spills));
    let client = desk.client();
    let of = |key: &str| format!("(SELECT {key} AS k, repeat('x', 100) AS s FROM generate_series(1, 3000) h) o");
    let (one, none) = (of("h - h + 1"), of("CASE WHEN h < 0 THEN h END"));
    for (query, expected) in [
        (format!("SELECT count(*) FROM generate_series(0, 2) g LEFT JOIN {one} ON k = g AND s <> ''"), "3002"),
        (format!("SELECT count(*) FROM generate_series(0, 2) g JOIN {one} ON k = g AND s <> ''"), "3000"),
        (format!("SELECT count(*) FROM generate_series(0, 2) g FULL JOIN {one} ON k = g AND s <> ''"), "3002"),
        (format!("SELECT count(*) FROM generate_series(0, 2) g FULL JOIN {none} ON k = g AND s <> ''"), "3003"),
    ] {
        assert_eq!(desk.query(client, &query), [expected], "{query}");
        assert_eq!(spills.bytes(), 0, "{query}");
    }
    let mut desk = on_a_full_disk(desk, folder.path());
    for (query, expected) in [
        (format!("SELECT count(*) FROM generate_series(0, 2) g LEFT JOIN {none} ON k = g AND s <> ''"), "3"),
        (format!("SELECT count(*) FROM generate_series(0, 2) g JOIN {none} ON k = g AND s <> ''"), "0"),
    ] {
        assert_eq!(desk.query(client, &query), [expected], "nobody finds rows without a key: {query}");
    }
}

#[test]
fn nobody_stops_rows_of_a_transaction_that_has_done_anything_and_is_over_with_them() {
    let mut desk = Desk::new();
    let client = filled(&mut desk);
    let large = "SELECT id FROM t LIMIT 3";
    assert!(!unread(&mut desk, client, large).is_owed());
    assert!(matches!(desk.tenant.run(client, "INSERT INTO t VALUES (0, 0, 'b')"), Ok(Step::Done(_))));
    assert!(unread(&mut desk, client, large).is_owed(), "the text has written before");
    assert_eq!(desk.tenant.finish(client), Ok(Step::Done(())));
    assert!(!unread(&mut desk, client, large).is_owed());
    assert!(unread(&mut desk, client, "SELECT id, pg_notify('c', 'm') FROM t LIMIT 3").is_owed());
    assert_eq!(desk.tenant.finish(client), Ok(Step::Done(())));
    desk.setup(client, &["BEGIN", "UPDATE t SET n = 1 WHERE id = 1"]);
    assert!(!unread(&mut desk, client, large).is_owed(), "the client's transaction fails with it");
}

#[test]
fn rows_of_a_portal_over_a_cursor_are_its_own() {
    let mut desk = Desk::new();
    let client = filled(&mut desk);
    desk.setup(client, &["BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT id, repeat('x', 10000) FROM t ORDER BY id + 0"]);
    desk.tenant.parse(client, "", "FETCH 1000 FROM c", &[]).expect("a statement");
    let binding = Binding { portal: "p", statement: "", given: &[], formats: &[] };
    desk.tenant.bind(client, &binding).expect("no parameters");
    let next = |desk: &mut Desk| match desk.tenant.execute(client, "p", 10).expect("a portal") {
        Step::Done(Outcome::Rows { rows, .. }) => firsts(rows),
        other => panic!("expected rows, came {other:?}"),
    };
    assert_eq!(next(&mut desk), (1..=10).collect::<Vec<_>>());
    desk.setup(client, &["CLOSE c"]);
    assert!(matches!(desk.tenant.is_fixed(client), Some(Bound::Size)), "what it keeps counts");
    assert_eq!(next(&mut desk), (11..=20).collect::<Vec<_>>());
}
