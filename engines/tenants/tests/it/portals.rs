//! Queries that are run as far as their rows are wanted: portals with a row limit, cursors.

use savanna_tenants::{
    Outcome,
    tenant::{Binding, Given},
};
use savanna_tenants_store::{
    database::{SessionId, Step},
    fault::Fault,
};
use savanna_tenants_values::value::Value;

use crate::desk::{Desk, Seen, done, rows};

/// A table with more rows than a statement works on before it gives way, and one with some for each hundredth of them.
const MANY: usize = 20_000;

fn tables() -> (Desk, SessionId, SessionId) {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(
        a,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, n int, s text)",
            "CREATE INDEX t_n ON t (n)",
            "CREATE TABLE u (t int, k int, PRIMARY KEY (t, k))",
            &format!("INSERT INTO t SELECT g, g % 10, 's' || g FROM generate_series(1, {MANY}) g"),
            &format!(
                "INSERT INTO u SELECT g * 100, k FROM generate_series(1, {MANY} / 100) g, generate_series(1, 3) k"
            ),
        ],
    );
    (desk, a, b)
}

/// Opens a portal.
fn open(desk: &mut Desk, client: SessionId, portal: &str, text: &str, parameters: &[&str]) {
    desk.tenant.parse(client, "", text, &[]).expect("a statement");
    let given: Vec<Given<'_>> = parameters.iter().map(|text| Given::Text(text.as_bytes())).collect();
    let binding = Binding { portal, statement: "", given: &given, formats: &[] };
    desk.tenant.bind(client, &binding).expect("its parameters");
}

/// The next rows of a portal: the first columns, and whether these were all.
fn next(desk: &mut Desk, client: SessionId, portal: &str, count: usize) -> (Vec<i64>, bool) {
    let number = |row: Vec<Value>| if let Value::Int(number) = row[0] { number } else { -1 };
    match desk.tenant.execute(client, portal, count) {
        Ok(Step::Done(Outcome::Rows { rows, end, .. })) => {
            (rows.map(|row| number(row.expect("rows that can be read"))).collect(), end)
        }
        other => panic!("{portal}: {other:?}"),
    }
}

fn all(desk: &mut Desk, client: SessionId, portal: &str, count: usize) -> Vec<i64> {
    let mut met = Vec::new();
    loop {
        let (rows, end) = next(desk, client, portal, count);
        met.extend(rows);
        if end {
            return met;
        }
    }
}

#[test]
fn a_suspended_portal_reads_no_more_than_is_wanted() {
    let (mut desk, a, _) = tables();
    desk.setup(a, &["BEGIN"]);
    for text in [
        "SELECT id FROM t",
        "SELECT id FROM t ORDER BY id DESC",
        "SELECT id FROM t WHERE n < 9 AND s LIKE 's%' ORDER BY n",
        "SELECT t.id, s, k FROM t LEFT JOIN u ON u.t = t.id ORDER BY t.id",
    ] {
        open(&mut desk, a, "p", text, &[]);
        // All of it would have to give way to other tenants.
        assert_eq!(next(&mut desk, a, "p", 10).0.len(), 10, "{text}");
        assert_eq!(next(&mut desk, a, "p", 10).0.len(), 10, "{text}");
        desk.tenant.close_portal(a, "p");
    }
    open(&mut desk, a, "p", "SELECT id FROM t ORDER BY s", &[]);
    assert!(matches!(desk.tenant.execute(a, "p", 10), Ok(Step::Wait)), "what is sorted is read at once");
}

#[test]
fn a_portal_has_the_same_rows_however_they_are_fetched() {
    let (mut desk, a, _) = tables();
    desk.setup(a, &["DELETE FROM t WHERE id > 500", "BEGIN"]);
    for text in [
        "SELECT id FROM t",
        "SELECT id FROM t ORDER BY id DESC",
        "SELECT id FROM t WHERE id BETWEEN 7 AND 60 AND n <> 3",
        "SELECT id FROM t WHERE n = 4 ORDER BY id",
        "SELECT id FROM t ORDER BY n DESC, id LIMIT 77 OFFSET 5",
        "SELECT id FROM t ORDER BY n LIMIT 77 OFFSET 5",
        "SELECT t.id, k FROM t LEFT JOIN u ON u.t = t.id ORDER BY t.id",
        "SELECT k, t.id FROM t JOIN u ON u.t = t.id WHERE k > 1",
        "SELECT id FROM t WHERE false",
        "SELECT id FROM t OFFSET 490",
        "SELECT id FROM t LIMIT 0",
        "SELECT DISTINCT n FROM t ORDER BY n",
        "SELECT generate_series(1, 3), id FROM t WHERE n = 2",
        "SELECT row_number() OVER (ORDER BY id) FROM t",
        "SELECT count(*) FROM t GROUP BY n",
        "SELECT id FROM t WHERE id IN (3, 1, 2)",
        "SELECT id FROM t WHERE id = 3",
        "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.t = t.id)",
        "WITH w AS (SELECT id FROM t WHERE n = 1) SELECT id FROM w",
    ] {
        open(&mut desk, a, "whole", text, &[]);
        let expected = next(&mut desk, a, "whole", 0).0;
        desk.tenant.close_portal(a, "whole");
        for count in [1, 2, 7, 77, 10_000] {
            open(&mut desk, a, "p", text, &[]);
            assert_eq!(all(&mut desk, a, "p", count), expected, "{text} by {count}");
            assert_eq!(next(&mut desk, a, "p", count), (Vec::new(), true), "{text}: nothing behind the end");
            desk.tenant.close_portal(a, "p");
        }
    }
}

#[test]
fn a_portal_shows_what_was_when_it_began() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (mut desk, a, b) = tables();
        desk.setup(a, &["DELETE FROM t WHERE id > 20"]);
        desk.setup(a, &[&format!("BEGIN ISOLATION LEVEL {level}"), "UPDATE t SET n = 0 WHERE id = 5"]);
        open(&mut desk, a, "p", "SELECT id FROM t WHERE n >= 0 AND id > $1", &["2"]);
        assert_eq!(next(&mut desk, a, "p", 2), (vec![3, 4], false));
        desk.setup(b, &["DELETE FROM t WHERE id = 6", "INSERT INTO t VALUES (30, 1, '')"]);
        desk.setup(a, &["UPDATE t SET n = -1 WHERE id IN (5, 7)", "DELETE FROM t WHERE id = 8"]);
        desk.setup(a, &["INSERT INTO t VALUES (31, 1, '')", "UPDATE t SET id = 40 WHERE id = 9"]);
        assert_eq!(next(&mut desk, a, "p", 3), (vec![5, 6, 7], false), "{level}");
        desk.paper.flush();
        desk.flush();
        assert_eq!(all(&mut desk, a, "p", 4), (8..=20).collect::<Vec<_>>(), "{level}");
        assert_eq!(desk.query(a, "SELECT count(*) FROM t WHERE id IN (8, 9, 31, 40)"), ["2"]);
    }
}

#[test]
fn a_cursor_over_temporary_rows_shows_what_was_when_it_was_declared() {
    let (mut desk, a, _) = tables();
    desk.setup(a, &["CREATE TEMP TABLE temporary (id int PRIMARY KEY)", "INSERT INTO temporary VALUES (1), (2), (3)"]);
    desk.setup(a, &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM temporary"]);
    assert_eq!(desk.run(a, "FETCH 1 FROM c"), rows(&["1"]));
    desk.setup(a, &["DELETE FROM temporary WHERE id = 2"]);
    assert_eq!(desk.run(a, "FETCH ALL FROM c"), rows(&["2", "3"]));
}

/// Rows from 4 to 1000, as many times as they come, of a cursor that has to wait for most of them.
fn fetched_in_parts(fault: Option<Fault>) -> Vec<String> {
    let mut desk = Desk::stored(0);
    let a = desk.client();
    desk.setup(a, &["CREATE TABLE t (id int PRIMARY KEY, s text)"]);
    desk.setup(a, &["INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 1000) g"]);
    desk.paper.flush();
    desk.flush();
    if let Some(fault) = fault {
        desk.tenant.database().break_rule(fault);
    }
    desk.setup(a, &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t WHERE id > 3"]);
    (0..12).flat_map(|_| desk.query(a, "FETCH 90 FROM c")).collect()
}

#[test]
fn a_portal_goes_on_where_blocks_have_to_be_fetched() {
    let all: Vec<String> = (4..=1000).map(|id| id.to_string()).collect();
    assert_eq!(fetched_in_parts(None), all);
    assert_ne!(fetched_in_parts(Some(Fault::RetriesBeginAgain)), all, "rows that were sent are sent again");
}

#[test]
fn a_cursor_goes_back_though_it_keeps_nothing() {
    let (mut desk, a, _) = tables();
    desk.setup(a, &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id"]);
    assert_eq!(desk.run(a, "FETCH 3 FROM c"), rows(&["1", "2", "3"]));
    desk.setup(a, &["DELETE FROM t WHERE id < 10"]);
    assert_eq!(desk.run(a, "FETCH PRIOR FROM c"), rows(&["2"]));
    assert_eq!(desk.run(a, "MOVE 100 FROM c"), done("MOVE 100"));
    assert_eq!(desk.run(a, "FETCH 2 FROM c"), rows(&["103", "104"]));
    desk.setup(a, &["DECLARE d CURSOR FOR SELECT id FROM t ORDER BY id", "MOVE 3 FROM d"]);
    assert_eq!(desk.run(a, "FETCH 2 FROM d"), rows(&["13", "14"]));
    assert_eq!(desk.run(a, &format!("MOVE {MANY} FROM d")), done(&format!("MOVE {}", MANY - 14)));
    assert_eq!(desk.run(a, "FETCH 2 FROM d"), rows(&[]));
    assert_eq!(desk.run(a, "FETCH PRIOR FROM d"), rows(&[&MANY.to_string()]));
    desk.setup(a, &["DECLARE e NO SCROLL CURSOR FOR SELECT id FROM t ORDER BY id", "FETCH 2 FROM e"]);
    assert_eq!(desk.run(a, "FETCH PRIOR FROM e"), Seen::Failed("55000"));
}

#[test]
fn what_is_rolled_back_takes_its_cursors_along() {
    let (mut desk, a, _) = tables();
    desk.setup(a, &["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id", "FETCH 1 FROM c", "SAVEPOINT s"]);
    desk.setup(a, &["DELETE FROM t WHERE id < 10", "DECLARE d CURSOR FOR SELECT id FROM t ORDER BY id"]);
    open(&mut desk, a, "p", "SELECT id FROM t ORDER BY id", &[]);
    assert_eq!(next(&mut desk, a, "p", 1), (vec![10], false));
    desk.setup(a, &["ROLLBACK TO s", "DELETE FROM t WHERE id < 5", "INSERT INTO t VALUES (0, 0, '')"]);
    assert_eq!(desk.run(a, "FETCH 2 FROM c"), rows(&["2", "3"]), "it is older than the savepoint");
    let error = desk.tenant.execute(a, "p", 1).expect_err("it saw what is gone");
    assert_eq!(error.state, "55000");
    desk.setup(a, &["ROLLBACK TO s"]);
    assert_eq!(desk.run(a, "FETCH 1 FROM d"), Seen::Failed("34000"));
}

#[test]
fn what_a_suspended_portal_sees_is_held_until_nobody_needs_it() {
    let (mut desk, a, b) = tables();
    let begun = |desk: &mut Desk| {
        desk.setup(a, &["BEGIN"]);
        open(desk, a, "p", "SELECT id FROM t", &[]);
        next(desk, a, "p", 1);
        desk.setup(b, &["UPDATE t SET n = n WHERE id = 1"]);
    };
    let hour = 3_600_000_000;
    // Closed, fetched to its end, replaced: nothing is left to be ended.
    for how in 0..3 {
        begun(&mut desk);
        match how {
            0 => desk.tenant.close_portal(a, "p"),
            1 => assert_eq!(all(&mut desk, a, "p", 1_000).len(), MANY - 1),
            _ => desk.setup(a, &["DECLARE c CURSOR FOR SELECT 1 FROM t", "CLOSE c", "SELECT 1"]),
        }
        if how == 2 {
            desk.tenant.close_portal(a, "p");
        }
        desk.tenant.set_now(2 * hour * (how + 1));
        desk.tenant.end_old_snapshots(hour);
        assert_eq!(desk.run(a, "SELECT 1"), rows(&["1"]), "{how}");
        desk.setup(a, &["COMMIT"]);
    }
    begun(&mut desk);
    desk.tenant.set_now(20 * hour);
    desk.tenant.end_old_snapshots(hour);
    assert_eq!(desk.run(a, "SELECT 1"), Seen::Failed("72000"));
}

#[test]
fn what_portals_and_statements_of_a_session_keep_has_a_bound() {
    let (mut desk, a, _) = tables();
    desk.setup(a, &["BEGIN", "SAVEPOINT s"]);
    let long = "x".repeat(60 << 20);
    desk.tenant.parse(a, "length", "SELECT length($1)", &[25]).expect("a statement");
    let given = [Given::Text(long.as_bytes())];
    let mut bind = |portal: &str| {
        let binding = Binding { portal, statement: "length", given: &given, formats: &[] };
        desk.tenant.bind(a, &binding).map_err(|error| error.state)
    };
    assert_eq!(
        ["p1", "p2", "p3", "p4", "", ""].map(&mut bind),
        [Ok(()), Ok(()), Ok(()), Ok(()), Err("53200"), Err("25P02")]
    );
    desk.setup(a, &["ROLLBACK"]);
    // Rows that are yet to be sent.
    desk.setup(a, &["BEGIN"]);
    let states = ["p1", "p2", "p3"].map(|portal| {
        open(&mut desk, a, portal, "SELECT repeat('x', 50000) FROM t WHERE id <= 2000 ORDER BY s", &[]);
        matches!(desk.tenant.execute(a, portal, 1), Ok(Step::Done(_)))
    });
    assert_eq!(states, [true, true, false]);
    desk.setup(a, &["ROLLBACK"]);
    let text = format!("SELECT '{long}'");
    let mut parse = |name: &str| desk.tenant.parse(a, name, &text, &[]).map_err(|error| error.state);
    assert_eq!(["s1", "", "s2"].map(&mut parse), [Ok(()), Ok(()), Err("53400")]);
}
