//! What concurrent transactions see of each other, and when a client may hear of it.

use savanna_journal::Lsn;
use savanna_tenants_sql::interrupt::Reason;
use savanna_tenants_store::fault::Fault;

use crate::desk::{Desk, Seen, done, rows};

fn bank() -> (Desk, savanna_tenants_store::database::SessionId, savanna_tenants_store::database::SessionId) {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 10), (2, 20)"]);
    (desk, a, b)
}

#[test]
fn an_update_waits_for_another_and_goes_by_what_it_left() {
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN", "UPDATE t SET n = n + 1 WHERE id = 1"]);
    assert_eq!(desk.run(b, "UPDATE t SET n = n + 1 WHERE id = 1 RETURNING n"), Seen::Waits);
    assert_eq!(desk.tenant.woken(), []);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.tenant.woken(), [b]);
    assert_eq!(desk.run(b, "UPDATE t SET n = n + 1 WHERE id = 1 RETURNING n"), rows(&["12"]));
}

#[test]
fn a_row_that_no_longer_qualifies_is_let_be() {
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN", "UPDATE t SET n = 0 WHERE id = 1"]);
    let text = "DELETE FROM t WHERE n = 10";
    assert_eq!(desk.run(b, text), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.run(b, text), done("DELETE 0"));
}

#[test]
fn a_duplicate_waits_for_the_first_to_end() {
    for (end, expected) in [("COMMIT", Seen::Failed("23505")), ("ROLLBACK", done("INSERT 0 1"))] {
        let (mut desk, a, b) = bank();
        desk.setup(a, &["BEGIN", "INSERT INTO t VALUES (3, 0)"]);
        assert_eq!(desk.run(b, "INSERT INTO t VALUES (3, 1)"), Seen::Waits);
        desk.setup(a, &[end]);
        assert_eq!(desk.run(b, "INSERT INTO t VALUES (3, 1)"), expected);
    }
}

#[test]
fn of_two_in_a_circle_the_younger_gives_up() {
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN", "UPDATE t SET n = 1 WHERE id = 1"]);
    desk.setup(b, &["BEGIN", "UPDATE t SET n = 1 WHERE id = 2"]);
    assert_eq!(desk.run(a, "UPDATE t SET n = 1 WHERE id = 2"), Seen::Waits);
    assert_eq!(desk.run(b, "UPDATE t SET n = 1 WHERE id = 1"), Seen::Failed("40P01"));
    desk.setup(b, &["ROLLBACK"]);
    assert_eq!(desk.tenant.woken(), [a]);
    assert_eq!(desk.run(a, "UPDATE t SET n = 1 WHERE id = 2"), done("UPDATE 1"));

    // The other way round the younger waits already, and is told.
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN", "UPDATE t SET n = 1 WHERE id = 1"]);
    desk.setup(b, &["BEGIN", "UPDATE t SET n = 1 WHERE id = 2"]);
    assert_eq!(desk.run(b, "UPDATE t SET n = 1 WHERE id = 1"), Seen::Waits);
    assert_eq!(desk.run(a, "UPDATE t SET n = 1 WHERE id = 2"), Seen::Waits);
    assert_eq!(desk.tenant.woken(), [b]);
    assert_eq!(desk.run(b, "UPDATE t SET n = 1 WHERE id = 1"), Seen::Failed("40P01"));
}

#[test]
fn levels_allow_what_they_allow() {
    // Write skew: two transactions each read both rows and write one.
    for (level, second) in [
        ("READ COMMITTED", done("COMMIT")),
        ("REPEATABLE READ", done("COMMIT")),
        ("SERIALIZABLE", Seen::Failed("40001")),
    ] {
        let (mut desk, a, b) = bank();
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        for client in [a, b] {
            desk.setup(client, &[&begin, "SELECT sum(n) FROM t"]);
        }
        desk.setup(a, &["UPDATE t SET n = 0 WHERE id = 1", "SELECT 1"]);
        desk.setup(b, &["UPDATE t SET n = 0 WHERE id = 2", "SELECT 1"]);
        desk.setup(a, &["COMMIT"]);
        assert_eq!(desk.run(b, "COMMIT"), second, "{level}");
    }
    // Phantoms: a range is read twice.
    for (level, again) in [("READ COMMITTED", "3"), ("REPEATABLE READ", "2"), ("SERIALIZABLE", "2")] {
        let (mut desk, a, b) = bank();
        desk.setup(a, &[&format!("BEGIN ISOLATION LEVEL {level}"), "SELECT count(*) FROM t"]);
        desk.setup(b, &["INSERT INTO t VALUES (3, 30)"]);
        assert_eq!(desk.query(a, "SELECT count(*) FROM t"), [again], "{level}");
    }
    // Lost update: what was read is written back.
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (mut desk, a, b) = bank();
        desk.setup(a, &[&format!("BEGIN ISOLATION LEVEL {level}"), "SELECT n FROM t WHERE id = 1"]);
        desk.setup(b, &["UPDATE t SET n = 11 WHERE id = 1"]);
        desk.setup(a, &["UPDATE t SET n = 12 WHERE id = 1"]);
        assert_eq!(desk.run(a, "COMMIT"), Seen::Failed("40001"), "{level}");
    }
}

#[test]
fn who_cannot_commit_any_more_fails_at_its_next_statement() {
    let read_and_write = ["SELECT n FROM t WHERE id = 1", "UPDATE t SET n = 0 WHERE id = 2"];
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
    desk.setup(a, &read_and_write);
    desk.setup(b, &["UPDATE t SET n = 11 WHERE id = 1"]);
    assert_eq!(desk.run(a, "SELECT 1"), Seen::Failed("40001"));
    assert_eq!(desk.run(a, "SELECT 1"), Seen::Failed("25P02"));

    // As long as it can take back what it wrote it can commit.
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN ISOLATION LEVEL SERIALIZABLE", "SAVEPOINT s"]);
    desk.setup(a, &read_and_write);
    desk.setup(b, &["UPDATE t SET n = 11 WHERE id = 1"]);
    desk.setup(a, &["SELECT 1", "ROLLBACK TO s", "SELECT n FROM t", "COMMIT"]);
}

#[test]
fn it_is_noticed_if_somebody_waits_who_does_not_want_to() {
    for patience in ["NOWAIT", "SKIP LOCKED"] {
        let (mut desk, a, b) = bank();
        desk.tenant.database().break_rule(Fault::EverybodyWaits);
        desk.setup(a, &["BEGIN", "SELECT * FROM t WHERE id = 1 FOR UPDATE"]);
        assert_eq!(desk.run(b, &format!("SELECT * FROM t WHERE id = 1 FOR UPDATE {patience}")), Seen::Waits);
    }
}

#[test]
fn locks_are_waited_for_refused_or_skipped() {
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN", "SELECT * FROM t WHERE id = 1 FOR UPDATE"]);
    assert_eq!(desk.run(b, "SELECT * FROM t WHERE id = 1 FOR UPDATE NOWAIT"), Seen::Failed("55P03"));
    assert_eq!(desk.query(b, "SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"), ["2"]);
    assert_eq!(desk.query(b, "SELECT id FROM t ORDER BY id"), ["1", "2"], "readers do not wait");
    assert_eq!(desk.run(b, "SELECT n FROM t WHERE id = 1 FOR SHARE"), Seen::Waits);
    desk.tenant.interrupt(b, Reason::Cancelled);
    assert_eq!(desk.tenant.woken(), [b]);
    assert_eq!(desk.run(b, "SELECT n FROM t WHERE id = 1 FOR SHARE"), Seen::Failed("57014"));
    assert_eq!(desk.query(b, "SELECT 1"), ["1"], "and goes on");
}

#[test]
fn a_table_is_changed_when_nobody_writes_it() {
    let (mut desk, a, b) = bank();
    desk.setup(a, &["BEGIN", "INSERT INTO t VALUES (3, 20)"]);
    let text = "CREATE INDEX ON t (n)";
    assert_eq!(desk.run(b, text), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.run(b, text), done("CREATE INDEX"));
    assert_eq!(desk.query(b, "SELECT id FROM t WHERE n = 20 ORDER BY id"), ["2", "3"]);

    // And who writes while it is changed waits, and then writes the changed table.
    desk.setup(a, &["BEGIN", "ALTER TABLE t ADD COLUMN c int DEFAULT 5"]);
    assert_eq!(desk.run(b, "INSERT INTO t (id) VALUES (4)"), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.run(b, "INSERT INTO t (id) VALUES (4)"), done("INSERT 0 1"));
    assert_eq!(desk.query(b, "SELECT c FROM t WHERE id = 4"), ["5"]);
}

#[test]
fn a_serializable_transaction_does_not_miss_that_a_table_was_emptied() {
    let (mut desk, a, b) = bank();
    desk.setup(a, &["CREATE TABLE log (n int)", "BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT count(*) FROM t"]);
    desk.setup(b, &["TRUNCATE t"]);
    desk.setup(a, &["INSERT INTO log VALUES (2)"]);
    assert_eq!(desk.run(a, "COMMIT"), Seen::Failed("40001"));
}

#[test]
fn replies_wait_for_what_was_written_and_for_what_was_read() {
    let (mut desk, a, b) = bank();
    desk.paper.flush();
    desk.tenant.reply_after(a);
    desk.setup(a, &["UPDATE t SET n = 0 WHERE id = 1"]);
    let written = desk.tenant.reply_after(a);
    assert!(written > Lsn::NONE);
    desk.setup(b, &["SELECT n FROM t WHERE id = 2"]);
    assert_eq!(desk.tenant.reply_after(b), Lsn::NONE, "that row is durable");
    desk.setup(b, &["SELECT n FROM t WHERE id = 1"]);
    assert_eq!(desk.tenant.reply_after(b), written);
    desk.paper.flush();
    desk.setup(b, &["SELECT n FROM t WHERE id = 1"]);
    assert_eq!(desk.tenant.reply_after(b), Lsn::NONE);
}

#[test]
fn a_list_of_keys_reads_those_rows_only() {
    for (condition, expected) in [
        ("id IN (1, 3)", done("COMMIT")),
        ("(id, n) IN ((1, 10), (3, 10))", done("COMMIT")),
        ("id = 1 OR n = 20 AND id = 3", done("COMMIT")),
        ("id IN (1, 4)", Seen::Failed("40001")),
        ("id = 1 OR n = 20", Seen::Failed("40001")),
    ] {
        let (mut desk, a, b) = bank();
        desk.setup(a, &["CREATE TABLE log (n int)", "BEGIN ISOLATION LEVEL SERIALIZABLE"]);
        desk.setup(a, &[&format!("SELECT * FROM t WHERE {condition}")]);
        desk.setup(b, &["INSERT INTO t VALUES (4, 40)"]);
        desk.setup(a, &["INSERT INTO log VALUES (1)"]);
        assert_eq!(desk.run(a, "COMMIT"), expected, "{condition}");
    }
}

#[test]
fn what_a_subquery_reads_is_read_by_its_transaction() {
    // Both see that the other doctor is on call, each in another kind of query, and leave.
    let alone = [
        "(SELECT count(*) FROM doctor WHERE on_call) > 1",
        "EXISTS (SELECT 1 FROM doctor d WHERE d.on_call AND d.id <> doctor.id)",
        "1 < ALL (SELECT count(*) FROM doctor WHERE on_call)",
        "true IN (SELECT d.on_call FROM doctor d WHERE d.id <> doctor.id)",
        "id IN (SELECT a.id FROM doctor a JOIN doctor b ON a.id <> b.id AND a.on_call = b.on_call)",
        "(WITH c AS (SELECT * FROM doctor WHERE on_call) SELECT count(*) FROM c) > 1",
    ];
    for condition in alone {
        for (level, expected) in [("SERIALIZABLE", Seen::Failed("40001")), ("REPEATABLE READ", done("COMMIT"))] {
            let mut desk = Desk::new();
            let (one, two) = (desk.client(), desk.client());
            desk.setup(
                one,
                &[
                    "CREATE TABLE doctor (id int PRIMARY KEY, on_call bool NOT NULL)",
                    "INSERT INTO doctor VALUES (1, true), (2, true)",
                ],
            );
            for (client, id) in [(one, 1), (two, 2)] {
                desk.setup(client, &[&format!("BEGIN ISOLATION LEVEL {level}")]);
                let leave = format!("UPDATE doctor SET on_call = false WHERE id = {id} AND {condition}");
                assert_eq!(desk.run(client, &leave), done("UPDATE 1"), "{condition}");
            }
            assert_eq!(desk.run(one, "COMMIT"), done("COMMIT"));
            assert_eq!(desk.run(two, "COMMIT"), expected, "{level}: {condition}");
        }
    }
}

#[test]
fn what_is_read_in_entries_of_an_index_is_read_by_its_transaction() {
    // Both count the values that an index has in a range, without the rows, and add one where the other one has counted.
    for (count, write) in [
        ("SELECT count(*) FROM t WHERE n > 10", "INSERT INTO t VALUES ({}, 15, 0)"),
        ("SELECT max(n) FROM t WHERE n < 100", "UPDATE t SET n = 30 + {} WHERE id = {}"),
        ("SELECT n, id FROM t WHERE n = 20", "DELETE FROM t WHERE id = {}"),
    ] {
        for (level, expected) in [("SERIALIZABLE", Seen::Failed("40001")), ("REPEATABLE READ", done("COMMIT"))] {
            let mut desk = Desk::new();
            let (one, two) = (desk.client(), desk.client());
            desk.setup(
                one,
                &[
                    "CREATE TABLE t (id int PRIMARY KEY, n int, m int)",
                    "CREATE INDEX t_n ON t (n)",
                    "INSERT INTO t VALUES (1, 20, 0), (2, 20, 0), (3, 5, 0)",
                ],
            );
            let plan = desk.query(one, &format!("EXPLAIN {count}")).join("\n");
            assert!(plan.contains("Index Only Scan") && plan.contains("using t_n on t"), "{plan}");
            for (client, id) in [(one, 1), (two, 2)] {
                desk.setup(client, &[&format!("BEGIN ISOLATION LEVEL {level}"), count]);
                let id = if write.starts_with("INSERT") { id + 10 } else { id };
                desk.setup(client, &[&write.replace("{}", &id.to_string())]);
            }
            assert_eq!(desk.run(one, "COMMIT"), done("COMMIT"), "{count}");
            assert_eq!(desk.run(two, "COMMIT"), expected, "{level}: {count}");
        }
    }
    // Of what nobody has counted a transaction may write.
    let mut desk = Desk::new();
    let (one, two) = (desk.client(), desk.client());
    desk.setup(one, &["CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE INDEX t_n ON t (n)"]);
    desk.setup(one, &["INSERT INTO t VALUES (1, 20), (2, 40)"]);
    for (client, n) in [(one, 20), (two, 40)] {
        let count = format!("SELECT n FROM t WHERE n = {n}");
        desk.setup(
            client,
            &["BEGIN ISOLATION LEVEL SERIALIZABLE", &count, &format!("INSERT INTO t VALUES ({n}, {n})")],
        );
    }
    assert_eq!((desk.run(one, "COMMIT"), desk.run(two, "COMMIT")), (done("COMMIT"), done("COMMIT")));
}

#[test]
fn rows_that_a_subquery_locks_are_waited_for() {
    let mut desk = Desk::new();
    let (one, two) = (desk.client(), desk.client());
    desk.setup(
        one,
        &["CREATE TABLE job (id int PRIMARY KEY, taken bool)", "INSERT INTO job VALUES (1, false), (2, false)"],
    );
    let take = |patience: &str| {
        format!(
            "UPDATE job SET taken = true WHERE id = (SELECT id FROM job WHERE NOT taken ORDER BY id LIMIT 1 FOR UPDATE {patience}) \
             RETURNING id"
        )
    };
    desk.setup(one, &["BEGIN", &take("")]);
    desk.setup(two, &["BEGIN"]);
    assert_eq!(desk.run(two, &take("SKIP LOCKED")), rows(&["2"]));
    desk.setup(two, &["ROLLBACK"]);
    assert_eq!(desk.run(two, &take("")), Seen::Waits);
    desk.setup(one, &["COMMIT"]);
    assert_eq!(desk.run(two, &take("")), rows(&["2"]));
}
