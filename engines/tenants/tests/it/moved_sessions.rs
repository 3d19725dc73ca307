//! Sessions that go to another node with their tenant.

use savanna_tenants::tenant::{Bound, SessionImage};
use savanna_tenants_store::database::SessionId;

use crate::desk::{Desk, Seen, rows};

const TABLES: [&str; 3] = [
    "CREATE TABLE t (id serial PRIMARY KEY, name text)",
    "CREATE SCHEMA farm",
    "CREATE TABLE farm.t (id int, area real)",
];

/// The session of another node, over the same rows.
fn moved(image: &SessionImage) -> (Desk, SessionId) {
    let mut there = Desk::new();
    let setup = there.client();
    there.setup(setup, &TABLES);
    let client = there.client();
    there.tenant.restore(client, image).expect("it was a session");
    (there, client)
}

#[test]
fn a_session_has_elsewhere_what_was_set_and_prepared_and_given() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(client, &TABLES);
    desk.setup(
        client,
        &[
            "SET application_name = 'till'",
            "SET search_path = farm, public",
            "SET my.own = 'a, b'",
            "SET statement_timeout = '7s'",
            "SET TIME ZONE 'Europe/Berlin'",
            "SET datestyle = 'German, YMD'",
            "SET intervalstyle = 'iso_8601'",
            "SET default_transaction_isolation = 'serializable'",
            "PREPARE areas (int) AS SELECT area FROM t WHERE id = $1",
            "INSERT INTO public.t (name) VALUES ('x'), ('y')",
        ],
    );
    desk.tenant.parse(client, "", "SELECT $1::int + 1", &[23]).expect("a statement");
    desk.tenant.finish(client).expect("it read only");
    assert_eq!(desk.tenant.is_bound(client), None);
    let image = desk.tenant.image(client).expect("a session");
    let (mut there, client) = moved(&image);
    assert_eq!(there.tenant.image(client).expect("a session"), image, "and as it would go on from there");
    for (setting, value) in [
        ("application_name", "till"),
        ("search_path", "farm, public"),
        ("my.own", "a, b"),
        ("statement_timeout", "7s"),
        ("timezone", "Europe/Berlin"),
        ("datestyle", "German, YMD"),
        ("intervalstyle", "iso_8601"),
        ("default_transaction_isolation", "serializable"),
    ] {
        assert_eq!(there.run(client, &format!("SHOW {setting}")), rows(&[value]), "{setting}");
    }
    there.setup(client, &["INSERT INTO t VALUES (3, 0.5)"]);
    assert_eq!(there.run(client, "EXECUTE areas(3)"), rows(&["0.5"]));
    assert_eq!(there.run(client, "SELECT currval('public.t_id_seq'), lastval()"), rows(&["2|2"]));
    there.setup(client, &["RESET statement_timeout", "RESET my.own"]);
    assert_eq!(there.run(client, "SHOW statement_timeout"), rows(&["10min"]), "what it began with");
    assert_eq!(there.run(client, "SHOW my.own"), Seen::Failed("42704"), "nobody had set it");
}

#[test]
fn a_statement_that_cannot_be_planned_any_more_is_left_out_with_a_warning() {
    let mut desk = Desk::new();
    let client = desk.client();
    desk.setup(
        client,
        &["CREATE TABLE gone (id int)", "PREPARE of_gone AS SELECT id FROM gone", "PREPARE one AS SELECT 1"],
    );
    let image = desk.tenant.image(client).expect("a session");
    let (mut there, client) = moved(&image);
    let notices: Vec<_> = there.tenant.notices(client).into_iter().map(|notice| notice.message).collect();
    assert!(
        matches!(&notices[..], [warning] if warning.contains("prepared statement \"of_gone\" is gone")),
        "{notices:?}"
    );
    assert_eq!(there.run(client, "EXECUTE of_gone"), Seen::Failed("26000"));
    assert_eq!(there.run(client, "EXECUTE one"), rows(&["1"]));
}

#[test]
fn what_is_its_nodes_alone_keeps_a_session() {
    let mut desk = Desk::new();
    let (client, other) = (desk.client(), desk.client());
    desk.setup(other, &TABLES);
    for (begins, bound, ends) in [
        ("BEGIN", Bound::Transaction, "COMMIT"),
        ("SELECT pg_advisory_lock(1)", Bound::Advisory, "SELECT pg_advisory_unlock(1)"),
    ] {
        assert_eq!(desk.tenant.is_bound(client), None);
        desk.setup(client, &[begins]);
        assert_eq!(desk.tenant.is_bound(client), Some(bound), "{begins}");
        desk.setup(client, &[ends]);
    }
    assert_eq!(desk.tenant.is_bound(client), None);
    desk.setup(client, &["BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "COMMIT"]);
    assert_eq!(desk.tenant.is_bound(client), Some(Bound::Cursors));
    desk.setup(client, &["CLOSE c"]);
    assert_eq!(desk.tenant.is_bound(client), None);
    desk.setup(client, &["CREATE TEMPORARY TABLE mine (id int)"]);
    assert_eq!(desk.tenant.is_bound(client), Some(Bound::Temporary));
}
