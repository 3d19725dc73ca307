//! What a session does, as others see it.

use std::time::Duration;

use savanna_tenants::tenant::Tenant;
use savanna_tenants_sql::doing::{Noted, Phase, Wait};
use savanna_tenants_store::database::SessionId;

use crate::desk::{Desk, Seen, done, rows};

fn noted(tenant: &Tenant, client: SessionId) -> Noted {
    tenant.doing(client).noted()
}

/// Runs a statement at a time, and its client is told.
fn at(desk: &mut Desk, micros: i64, client: SessionId, text: &str) -> Seen {
    desk.tenant.set_now(micros);
    let seen = desk.run(client, text);
    desk.tenant.told(client);
    seen
}

#[test]
fn others_see_in_which_transaction_a_session_is_and_what_it_ran_last() {
    let mut desk = Desk::new();
    let a = desk.client();
    assert_eq!(at(&mut desk, 10, a, "SELECT 1"), rows(&["1"]));
    let seen = noted(&desk.tenant, a);
    assert_eq!((seen.phase, seen.transaction, seen.statement, seen.changed), (Phase::Idle, None, Some(10), Some(10)));
    assert_eq!(seen.text.as_deref(), Some("SELECT 1"));

    assert_eq!(at(&mut desk, 20, a, "BEGIN"), done("BEGIN"));
    assert_eq!(at(&mut desk, 30, a, "SELECT 2"), rows(&["2"]));
    let seen = noted(&desk.tenant, a);
    assert_eq!((seen.phase, seen.transaction, seen.statement), (Phase::InTransaction, Some(20), Some(30)));

    assert_eq!(at(&mut desk, 40, a, "SELECT 1 / 0"), Seen::Failed("22012"));
    let seen = noted(&desk.tenant, a);
    assert_eq!((seen.phase, seen.transaction), (Phase::InFailedTransaction, Some(20)));
    assert_eq!(at(&mut desk, 50, a, "ROLLBACK"), done("ROLLBACK"));
    assert_eq!((noted(&desk.tenant, a).phase, noted(&desk.tenant, a).transaction), (Phase::Idle, None));
}

#[test]
fn others_see_for_what_a_statement_waits_and_since_when_it_runs() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(
        a,
        &["CREATE TABLE t (k int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)", "BEGIN", "UPDATE t SET v = 2"],
    );
    desk.tenant.set_now(10);
    assert_eq!(desk.run(b, "UPDATE t SET v = 3"), Seen::Waits);
    let seen = noted(&desk.tenant, b);
    assert_eq!((seen.phase, seen.wait, seen.statement), (Phase::Active, Some(Wait::Lock), Some(10)));
    assert_eq!(seen.transaction, Some(10));

    desk.tenant.set_now(20);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.run(b, "UPDATE t SET v = 3"), done("UPDATE 1"));
    let seen = noted(&desk.tenant, b);
    assert_eq!((seen.phase, seen.wait, seen.statement), (Phase::Active, None, Some(10)), "it has begun once");

    assert_eq!(desk.run(b, "SELECT pg_sleep(1)"), Seen::Waits);
    assert_eq!(desk.tenant.sleeps(b), Some(Duration::from_secs(1)));
    assert_eq!(noted(&desk.tenant, b).wait, Some(Wait::Sleep));
    desk.tenant.has_slept(b);
    assert_eq!(desk.run(b, "SELECT pg_sleep(1)"), rows(&[""]));
    assert_eq!(noted(&desk.tenant, b).wait, None);
}

#[test]
fn others_see_the_name_that_a_client_gives_itself() {
    let mut desk = Desk::new();
    let a = desk.client();
    at(&mut desk, 10, a, "SET application_name = 'till'");
    assert_eq!(noted(&desk.tenant, a).application, "till");
}
