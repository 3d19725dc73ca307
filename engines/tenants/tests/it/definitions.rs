//! Sequences and generated columns, and what of them survives a crash. `tests/tenants/definitions` compares more with PostgreSQL.

use savanna_journal::Lsn;
use savanna_tenants_sql::{copy::CopyField, interrupt::Reason};
use savanna_tenants_store::fault::Fault;

use crate::desk::{Desk, Seen, done, rows};

#[test]
fn a_number_that_was_told_is_not_given_again_after_a_crash() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE SEQUENCE s", "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, n int)"]);
    desk.paper.flush();
    desk.tenant.reply_after(client);
    assert_eq!(desk.query(client, "SELECT nextval('s')"), ["1"]);
    let after = desk.tenant.reply_after(client);
    assert!(after > desk.paper.durable_to(), "the answer waits for the reservation, though nothing was written");
    assert_eq!(desk.query(client, "SELECT setval('s', 100)"), ["100"]);
    assert!(desk.tenant.reply_after(client) > after);
    desk.setup(client, &["INSERT INTO t (n) VALUES (1)"]);
    let (records, _) = desk.paper.records();
    let mut again = Desk::after(&records);
    let client = again.client();
    assert_eq!(again.query(client, "SELECT nextval('s')"), ["101"]);
    assert_eq!(again.query(client, "INSERT INTO t (n) VALUES (2) RETURNING id > 1"), ["t"]);
    assert!(again.tenant.reply_after(client) > Lsn::NONE);
}

#[test]
fn a_tenant_that_falls_asleep_gives_reserved_numbers_back() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["CREATE SEQUENCE s", "CREATE SEQUENCE gone"]);
    assert_eq!(desk.query(client, "SELECT nextval('s'), nextval('gone')"), ["1|1"]);
    desk.setup(client, &["DROP SEQUENCE gone"]);
    assert_eq!(desk.tenant.give_numbers_back(), Ok(false), "somebody is there");
    desk.tenant.close_session(client);
    assert_eq!((desk.tenant.give_numbers_back(), desk.tenant.give_numbers_back()), (Ok(true), Ok(false)));
    let client = desk.client();
    assert_eq!(desk.query(client, "SELECT nextval('s')"), ["2"]);
    desk.tenant.close_session(client);
    assert_eq!(desk.tenant.give_numbers_back(), Ok(true));
    let (records, _) = desk.paper.records();
    let mut again = Desk::after(&records);
    let client = again.client();
    assert_eq!(again.query(client, "SELECT nextval('s')"), ["3"]);
}

#[test]
fn a_sequence_that_was_rolled_back_leaves_nothing_to_one_that_comes_after_a_crash() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &["BEGIN", "CREATE SEQUENCE s", "SELECT nextval('s')", "ROLLBACK"]);
    let (records, _) = desk.paper.records();
    let mut again = Desk::after(&records);
    let client = again.client();
    again.setup(client, &["CREATE SEQUENCE s"]);
    assert_eq!(again.query(client, "SELECT nextval('s')"), ["1"]);
}

#[test]
fn numbers_are_given_once_also_while_a_statement_waits() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (id serial, n int PRIMARY KEY)", "BEGIN", "INSERT INTO t (n) VALUES (1)"]);
    let text = "INSERT INTO t (n) VALUES (1) RETURNING id";
    assert_eq!(desk.run(b, text), Seen::Waits);
    desk.setup(a, &["ROLLBACK"]);
    assert_eq!(desk.run(b, text), rows(&["2"]), "the statement took its number once");
    assert_eq!(desk.run(b, "SELECT currval('t_id_seq'), lastval()"), rows(&["2|2"]));
    assert_eq!(desk.run(a, "SELECT currval('t_id_seq')"), rows(&["1"]), "each session has its own");
    assert_eq!(desk.run(a, "DROP TABLE t"), done("DROP TABLE"));
}

#[test]
fn a_copy_goes_into_the_table_that_it_began_with() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(
        a,
        &["CREATE TABLE p (id int PRIMARY KEY)", "CREATE TABLE t (n int REFERENCES p)", "INSERT INTO p VALUES (1)"],
    );
    desk.setup(a, &["BEGIN"]);
    assert!(matches!(desk.run(a, "COPY t FROM STDIN"), Seen::Done(_)));
    for text in ["ALTER TABLE t ADD COLUMN m int DEFAULT 7", "ALTER TABLE p RENAME TO q"] {
        assert_eq!(desk.run(b, text), Seen::Waits);
        desk.tenant.interrupt(b, Reason::Cancelled);
        desk.tenant.woken();
        assert_eq!(desk.run(b, text), Seen::Failed("57014"));
    }
    assert!(desk.tenant.copy_in(a, &[vec![CopyField::Text("1".to_owned())]], true).is_ok());
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.query(b, "SELECT * FROM t"), ["1"]);
}

#[test]
fn what_is_written_through_a_view_is_a_row_of_it_if_it_says_so() {
    for (fault, expected) in [(None, Seen::Failed("44000")), (Some(Fault::ViewsCheckNothing), done("INSERT 0 1"))] {
        let mut desk = Desk::new();
        let client = desk.client();
        desk.setup(
            client,
            &[
                "CREATE TABLE t (id int PRIMARY KEY)",
                "CREATE VIEW v AS SELECT id FROM t WHERE id < 10 WITH CHECK OPTION",
            ],
        );
        if let Some(fault) = fault {
            desk.tenant.database().break_rule(fault);
        }
        assert_eq!(desk.run(client, "INSERT INTO v VALUES (11)"), expected);
        assert_eq!(desk.run(client, "INSERT INTO v VALUES (1)"), done("INSERT 0 1"));
    }
}

#[test]
fn comments_last_as_long_as_what_they_are_about() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, n int CONSTRAINT c CHECK (n > 0), gone int)",
            "CREATE INDEX i ON t (n int4_ops)",
            "COMMENT ON CONSTRAINT c ON t IS 'of a condition that goes'",
            "COMMENT ON COLUMN t.gone IS 'of a column that goes'",
            "COMMENT ON COLUMN t.n IS 'column'",
            "COMMENT ON INDEX i IS 'index'",
            "ALTER TABLE t DROP CONSTRAINT c, DROP COLUMN gone",
            "ALTER TABLE t ADD CONSTRAINT c CHECK (n > 1)",
            "ALTER INDEX i RENAME TO j",
            "TRUNCATE t",
        ],
    );
    let (records, _) = desk.paper.records();
    let mut again = Desk::after(&records);
    let client = again.client();
    let told = "SELECT relname, objsubid, description FROM pg_description JOIN pg_class ON oid = objoid ORDER BY 1";
    assert_eq!(again.query(client, told), ["j|0|index", "t|2|column"]);
    assert_eq!(
        again.query(client, "SELECT count(*) FROM pg_description WHERE classoid = 'pg_constraint'::regclass"),
        ["0"]
    );
}

#[test]
fn what_is_read_of_a_sequence_waits_for_what_was_reserved() {
    let mut desk = Desk::new();
    let (client, reader) = (desk.client(), desk.client());
    desk.setup(client, &["CREATE SEQUENCE s START 5"]);
    assert_eq!(desk.query(reader, "SELECT last_value, is_called FROM s"), ["5|f"]);
    desk.paper.flush();
    assert_eq!(desk.query(client, "SELECT nextval('s')"), ["5"]);
    assert_eq!(desk.query(reader, "SELECT last_value, is_called FROM s"), ["5|t"]);
    assert!(desk.tenant.reply_after(reader) > desk.paper.durable_to());
    assert_eq!(desk.query(client, "SELECT setval('s', 9, false)"), ["9"]);
    assert_eq!(desk.query(client, "SELECT nextval('s')"), ["9"]);
}
