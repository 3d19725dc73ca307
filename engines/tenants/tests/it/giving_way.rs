//! Statements that take long: they stop, and run again where they are in nobody's way.

use savanna_tenants::Outcome;
use savanna_tenants_store::database::{SessionId, Step};

use crate::desk::{Desk, Seen, done};

const LONG: &str = "SELECT count(*) FROM generate_series(1, 20000)";

fn count(desk: &mut Desk, client: SessionId, text: &str) -> Option<String> {
    match desk.tenant.run(client, text).expect("no error") {
        Step::Done((Outcome::Rows { rows, .. }, _)) => {
            assert_eq!(desk.tenant.finish(client), Ok(Step::Done(())));
            Some(format!("{rows:?}"))
        }
        Step::Done(other) => panic!("expected rows, came {other:?}"),
        Step::Wait => None,
    }
}

#[test]
fn a_long_statement_gives_way_once_and_from_then_on_at_once() {
    let mut desk = Desk::new();
    let client = desk.client();
    assert_eq!(count(&mut desk, client, LONG), None);
    assert!(desk.tenant.gives_way(client));
    assert!(!desk.tenant.waits_for_lock(client), "it waits for nobody");
    assert!(count(&mut desk, client, LONG).is_some_and(|rows| rows.contains("20000")));
    assert!(!desk.tenant.gives_way(client));
    assert_eq!(count(&mut desk, client, LONG), None, "and again for the next time");
    assert!(count(&mut desk, client, LONG).is_some());
    assert!(count(&mut desk, client, "SELECT count(*) FROM generate_series(1, 100)").is_some(), "short ones do not");
}

#[test]
fn a_write_that_gives_way_is_done_once() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n serial)", "CREATE TABLE u (id int PRIMARY KEY)"]);
    let insert = "INSERT INTO t (id) SELECT * FROM generate_series(1, 10000)";
    assert_eq!(desk.run(client, insert), done("INSERT 0 10000"));
    assert_eq!(desk.run(client, "UPDATE t SET n = n + 1"), done("UPDATE 10000"));
    assert_eq!(desk.query(client, "SELECT count(*), min(n), max(n) FROM t"), ["10000|2|10001"]);
    assert_eq!(desk.run(client, "CREATE INDEX t_n ON t (n)"), done("CREATE INDEX"));
    assert_eq!(desk.query(client, "SELECT id FROM t WHERE n = 5001"), ["5000"]);
    assert_eq!(desk.run(client, "DELETE FROM t WHERE id > 1"), done("DELETE 9999"));
}

#[test]
fn a_long_statement_waits_for_locks_and_blocks_as_others_do() {
    let mut desk = Desk::stored(64 << 10);
    let (client, other) = (desk.client(), desk.client());
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, b text)"]);
    desk.setup(client, &["INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 9000) g(g)"]);
    desk.paper.flush();
    desk.flush();
    desk.setup(other, &["BEGIN", "UPDATE t SET b = '' WHERE id = 9000"]);
    let update = "UPDATE t SET b = b || 'y'";
    assert_eq!(desk.run(client, update), Seen::Waits);
    assert!(desk.tenant.waits_for_lock(client));
    desk.tenant.woken();
    desk.setup(other, &["COMMIT"]);
    assert_eq!(desk.tenant.woken(), [client]);
    assert_eq!(desk.run(client, update), done("UPDATE 9000"));
    assert_eq!(desk.query(client, "SELECT b FROM t WHERE id = 9000"), ["y"]);
}
