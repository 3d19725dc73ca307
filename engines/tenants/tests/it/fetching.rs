//! Statements that wait for blocks of the storage: they have done nothing meanwhile, and can be told to wait no longer.

use savanna_tenants::tenant::NoRoom;
use savanna_tenants_sql::interrupt::Reason;
use savanna_tenants_store::database::Step;
use savanna_tenants_values::error::SqlError;

use crate::desk::{Desk, Seen, done};

/// A tenant whose rows are not in memory.
fn cold() -> Desk {
    let mut desk = Desk::stored(0);
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY, n int)"]);
    let rows: Vec<String> = (0..3_000).map(|id| format!("({id}, {id})")).collect();
    desk.setup(client, &[&format!("INSERT INTO t VALUES {}", rows.join(", "))]);
    desk.paper.flush();
    desk.flush();
    desk
}

#[test]
fn a_table_that_is_not_in_memory_is_read_in_few_runs() {
    let mut desk = cold();
    let client = desk.client();
    let mut waits = 0;
    while let Ok(Step::Wait) = desk.tenant.run(client, "SELECT sum(n) FROM t") {
        assert!(desk.fetch(), "it waits for blocks");
        waits += 1;
    }
    assert!((2..8).contains(&waits), "{waits} runs");
    assert_eq!(desk.query(client, "SELECT count(*) FROM t WHERE n > 2990"), ["9"]);
}

#[test]
fn others_go_on_while_a_statement_waits_and_what_it_writes_is_written_once() {
    let mut desk = cold();
    let (waits, other) = (desk.client(), desk.client());
    let update = "UPDATE t SET n = n + 1 WHERE id = 7";
    assert!(matches!(desk.tenant.run(waits, update), Ok(Step::Wait)));
    let wants = desk.tenant.wants();
    assert_eq!(wants.len(), 1);
    assert!(desk.tenant.wants().is_empty(), "it is asked for once");
    assert_eq!(desk.run(other, "INSERT INTO t VALUES (5000, 0)"), done("INSERT 0 1"));
    desk.bring(&wants);
    assert_eq!(desk.tenant.woken(), [waits]);
    assert_eq!(desk.run(waits, update), done("UPDATE 1"));
    assert_eq!(desk.query(other, "SELECT n FROM t WHERE id = 7"), ["8"]);
}

#[test]
fn a_statement_that_waits_for_blocks_takes_numbers_of_sequences_once() {
    let mut desk = cold();
    let client = desk.client();
    desk.setup(client, &["CREATE SEQUENCE s"]);
    assert_eq!(desk.query(client, "SELECT nextval('s')"), ["1"]);
    let insert = "INSERT INTO t SELECT 1500 + nextval('s'), 0";
    assert!(matches!(desk.tenant.run(client, insert), Ok(Step::Wait)), "whether there is such a row is in the storage");
    assert_eq!(desk.run(client, insert), Seen::Failed("23505"));
    assert_eq!(desk.query(client, "SELECT nextval('s')"), ["3"]);
}

#[test]
fn who_waits_for_blocks_can_be_cancelled_and_hears_that_they_cannot_be_read() {
    let mut desk = cold();
    let client = desk.client();
    let text = "SELECT n FROM t WHERE id = 9";
    assert!(matches!(desk.tenant.run(client, text), Ok(Step::Wait)));
    desk.tenant.interrupt(client, Reason::Cancelled);
    assert_eq!(desk.tenant.woken(), [client]);
    assert_eq!(desk.run(client, text), Seen::Failed("57014"));
    let late = desk.tenant.wants();

    assert!(matches!(desk.tenant.run(client, text), Ok(Step::Wait)));
    for want in late.into_iter().chain(desk.tenant.wants()) {
        desk.tenant.arrived(&want, &Err(SqlError::new("58030", "the disk is gone")));
    }
    assert_eq!(desk.run(client, text), Seen::Failed("58030"));
    assert_eq!(desk.query(client, text), ["9"]);
}

#[test]
fn statements_that_write_are_refused_while_there_is_no_room() {
    let mut desk = cold();
    let client = desk.client();
    for (why, state) in [(NoRoom::Storage, "53100"), (NoRoom::Memory, "53200")] {
        desk.tenant.refuse_writes(Some(why));
        assert_eq!(desk.run(client, "DELETE FROM t WHERE id = 3"), Seen::Failed(state));
        assert_eq!(desk.run(client, "CREATE TABLE u (id int)"), Seen::Failed(state));
        assert_eq!(desk.query(client, "SELECT n FROM t WHERE id = 3"), ["3"]);
        assert_eq!(desk.run(client, "DELETE FROM t WHERE id = -1"), done("DELETE 0"));
    }
    desk.tenant.refuse_writes(None);
    assert_eq!(desk.run(client, "DELETE FROM t WHERE id = 3"), done("DELETE 1"));
}
