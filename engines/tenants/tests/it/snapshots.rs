//! Transactions whose snapshots are too old are ended, so that what was committed since can be flushed.

use savanna_tenants::tenant::Binding;
use savanna_tenants_store::{database::Step, flush::Flush};

use crate::desk::{Desk, Seen, done, rows};

const HOUR: i64 = 3_600_000_000;
const TOO_OLD: Seen = Seen::Failed("72000");

fn shop() -> Desk {
    let mut desk = Desk::stored(1 << 20);
    let client = desk.client();
    desk.setup(client, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
    desk
}

/// Flushes what can be flushed; whether that is all.
fn is_flushed(desk: &mut Desk) -> bool {
    desk.paper.flush();
    desk.flush();
    desk.tenant.database().is_clean()
}

#[test]
fn a_snapshot_that_is_too_old_no_longer_holds_up_the_storage() {
    let mut desk = shop();
    let (reader, writer) = (desk.client(), desk.client());
    desk.setup(reader, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SAVEPOINT s", "SELECT 1 FROM t"]);
    desk.setup(writer, &["INSERT INTO t VALUES (2)"]);
    desk.tenant.set_now(HOUR);
    desk.tenant.end_old_snapshots(HOUR);
    assert!(!is_flushed(&mut desk), "it is in use");
    assert_eq!(desk.run(reader, "SELECT id FROM t"), rows(&["1"]));

    desk.tenant.set_now(HOUR + 1);
    desk.tenant.end_old_snapshots(HOUR);
    assert!(is_flushed(&mut desk));
    assert_eq!(desk.run(reader, "SELECT id FROM t"), TOO_OLD);
    assert_eq!(desk.run(reader, "ROLLBACK TO s"), TOO_OLD, "there is nothing to go back to");
    assert_eq!(desk.run(reader, "COMMIT"), done("ROLLBACK"));
    assert_eq!(desk.run(reader, "SELECT id FROM t"), rows(&["1", "2"]));
}

#[test]
fn a_flush_that_finds_only_a_number_that_was_given_up_comes_to_its_end() {
    let mut desk = shop();
    let (loser, reader, writer) = (desk.client(), desk.client(), desk.client());
    desk.setup(loser, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "UPDATE t SET id = 2"]);
    desk.setup(writer, &["UPDATE t SET id = 3"]);
    assert_eq!(desk.run(loser, "COMMIT"), Seen::Failed("40001"));
    assert!(is_flushed(&mut desk));
    let flushed = desk.tenant.database().flushed();
    desk.setup(reader, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1 FROM t"]);
    desk.setup(writer, &["INSERT INTO t VALUES (4)"]);
    desk.paper.flush();
    assert!(desk.tenant.database().published().0 > flushed.0 + 1, "a number was given up");
    let mut steps = (0..10).map(|_| desk.tenant.database().flush(1_000).expect("the log takes records"));
    assert!(steps.any(|step| step == Flush::Clean), "there is nothing to write down");
    assert_eq!(desk.tenant.database().flush(1_000), Ok(Flush::Clean), "it does not look again");

    desk.setup(reader, &["COMMIT"]);
    assert!(is_flushed(&mut desk));
    assert_eq!(desk.run(writer, "SELECT id FROM t"), rows(&["3", "4"]));
}

#[test]
fn nobody_is_ended_who_holds_up_nothing() {
    let mut desk = shop();
    let (reader, idle, failed) = (desk.client(), desk.client(), desk.client());
    desk.setup(reader, &["BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT 1 FROM t"]);
    desk.tenant.set_now(2 * HOUR);
    desk.tenant.end_old_snapshots(HOUR);
    assert_eq!(desk.run(reader, "SELECT id FROM t"), rows(&["1"]), "nothing was committed since");
    desk.setup(idle, &["BEGIN", "SELECT 1 FROM t"]);
    desk.setup(failed, &["BEGIN", "SAVEPOINT s"]);
    assert_eq!(desk.run(failed, "SELECT 1 / 0"), Seen::Failed("22012"));
    let writer = desk.client();
    desk.setup(writer, &["INSERT INTO t VALUES (2)"]);
    desk.tenant.set_now(4 * HOUR);
    desk.tenant.end_old_snapshots(HOUR);
    assert_eq!(desk.run(idle, "SELECT id FROM t"), rows(&["1", "2"]), "between statements it has no snapshot");
    assert_eq!(desk.run(failed, "ROLLBACK TO s"), done("ROLLBACK"));
    assert_eq!(desk.run(reader, "SELECT id FROM t"), TOO_OLD);
}

#[test]
fn who_waits_is_woken_and_a_pipeline_hears_of_it_at_its_end() {
    let mut desk = shop();
    let (writer, waits, pipeline) = (desk.client(), desk.client(), desk.client());
    desk.setup(pipeline, &["SET default_transaction_isolation = 'repeatable read'"]);
    desk.setup(writer, &["BEGIN", "UPDATE t SET id = 3 WHERE id = 1"]);
    assert_eq!(desk.run(waits, "SELECT id FROM t FOR UPDATE"), Seen::Waits);
    desk.tenant.parse(pipeline, "", "SELECT id FROM t", &[]).expect("it is SQL");
    desk.tenant
        .bind(pipeline, &Binding { portal: "", statement: "", given: &[], formats: &[] })
        .expect("it has no parameters");
    assert!(matches!(desk.tenant.execute(pipeline, "", 0), Ok(Step::Done(_))));
    let other = desk.client();
    desk.setup(other, &["INSERT INTO t VALUES (2)"]);
    desk.tenant.set_now(2 * HOUR);
    desk.tenant.end_old_snapshots(HOUR);
    assert_eq!(desk.tenant.woken(), [waits]);
    assert_eq!(desk.run(waits, "SELECT id FROM t FOR UPDATE"), TOO_OLD);
    assert_eq!(desk.run(waits, "SELECT id FROM t"), rows(&["1", "2"]));
    assert_eq!(desk.tenant.finish(pipeline).expect_err("what it began is over").state, "72000");
    assert_eq!(desk.tenant.finish(pipeline), Ok(Step::Done(())));
    assert_eq!(desk.run(writer, "COMMIT"), done("COMMIT"));
    assert!(is_flushed(&mut desk));
}
