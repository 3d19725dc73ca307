//! NOTIFY and LISTEN: who hears what, and when.

use savanna_journal::Lsn;
use savanna_tenants::tenant::Tenant;
use savanna_tenants_store::database::SessionId;

use crate::desk::{Desk, Seen, done, rows};

/// What a client is told now, each as `channel: payload`.
fn told(tenant: &mut Tenant, client: SessionId) -> Vec<String> {
    tenant.hear(client).iter().map(|heard| format!("{}: {}", heard.said.channel, heard.said.payload)).collect()
}

#[test]
fn who_listens_hears_what_is_committed() {
    let mut desk = Desk::new();
    let (a, b, c) = (desk.client(), desk.client(), desk.client());
    assert_eq!(desk.run(a, "LISTEN news"), done("LISTEN"));
    desk.setup(b, &["LISTEN \"News\"", "LISTEN news"]);
    assert_eq!(desk.run(c, "NOTIFY news"), done("NOTIFY"));
    desk.setup(c, &["NOTIFY NEWS, 'it''s'", "SELECT pg_notify('News', 'x' || 1), pg_notify('old', 'y')"]);
    assert_eq!(told(&mut desk.tenant, a), ["news: ", "news: it's"]);
    assert_eq!(told(&mut desk.tenant, b), ["news: ", "news: it's", "News: x1"]);
    assert_eq!(told(&mut desk.tenant, b), [""; 0], "it was told");
    assert_eq!(told(&mut desk.tenant, c), [""; 0], "it listens to nothing");
    assert_eq!(desk.run(b, "SELECT * FROM pg_listening_channels() ORDER BY 1"), rows(&["News", "news"]));
    desk.setup(b, &["UNLISTEN news", "NOTIFY news"]);
    assert_eq!(told(&mut desk.tenant, a), ["news: "]);
    assert_eq!(told(&mut desk.tenant, b), [""; 0]);
    desk.setup(b, &["UNLISTEN *", "NOTIFY \"News\""]);
    assert_eq!(told(&mut desk.tenant, b), [""; 0]);
    assert_eq!(desk.run(b, "SELECT count(*) FROM pg_listening_channels()"), rows(&["0"]));
}

#[test]
fn a_transaction_says_all_at_its_commit_and_nothing_if_it_is_rolled_back() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["LISTEN c"]);
    desk.setup(b, &["BEGIN", "NOTIFY c, '1'", "LISTEN c", "SAVEPOINT s", "NOTIFY c, '2'", "NOTIFY c, '1'"]);
    desk.setup(b, &["ROLLBACK TO s", "NOTIFY c, '3'"]);
    assert_eq!(told(&mut desk.tenant, a), [""; 0]);
    desk.setup(b, &["COMMIT"]);
    assert_eq!(told(&mut desk.tenant, a), ["c: 1", "c: 3"]);
    assert_eq!(told(&mut desk.tenant, b), ["c: 1", "c: 3"], "who says it hears it, too");
    desk.setup(b, &["BEGIN", "NOTIFY c, '4'", "UNLISTEN *", "ROLLBACK", "NOTIFY c, '5'"]);
    assert_eq!(told(&mut desk.tenant, a), ["c: 5"]);
    assert_eq!(told(&mut desk.tenant, b), ["c: 5"]);
    desk.setup(b, &["BEGIN", "NOTIFY c, '6'"]);
    assert_eq!(desk.run(b, "SELECT 1 / 0"), Seen::Failed("22012"));
    assert_eq!(desk.run(b, "NOTIFY c"), Seen::Failed("25P02"));
    assert_eq!(desk.run(b, "COMMIT"), done("ROLLBACK"));
    assert_eq!(desk.run(b, "SELECT pg_notify('c', '7'), 1 / 0"), Seen::Failed("22012"));
    assert_eq!(told(&mut desk.tenant, a), [""; 0]);
}

#[test]
fn a_client_in_a_transaction_hears_nothing_until_its_end() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["LISTEN c", "BEGIN"]);
    desk.setup(b, &["NOTIFY c"]);
    assert_eq!(desk.tenant.heard(), [a]);
    assert_eq!(told(&mut desk.tenant, a), [""; 0]);
    assert_eq!(desk.run(a, "SELECT 1 / 0"), Seen::Failed("22012"));
    assert_eq!(told(&mut desk.tenant, a), [""; 0]);
    desk.setup(a, &["ROLLBACK"]);
    assert_eq!(told(&mut desk.tenant, a), ["c: "]);
}

#[test]
fn what_is_heard_is_durable_first() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(b, &["CREATE TABLE t (n int)", "CREATE SEQUENCE s"]);
    desk.setup(a, &["LISTEN c"]);
    desk.tenant.reply_after(a);
    desk.tenant.reply_after(b);
    desk.setup(b, &["BEGIN", "INSERT INTO t VALUES (1)", "NOTIFY c, 'inserted'", "COMMIT"]);
    let written = desk.tenant.reply_after(b);
    assert!(written > Lsn::NONE);
    assert_eq!(told(&mut desk.tenant, a), ["c: inserted"]);
    assert_eq!(desk.tenant.reply_after(a), written);
    // What it says it has read of others, and of sequences.
    desk.setup(b, &["BEGIN", "SELECT pg_notify('c', n::text) FROM t"]);
    let read = desk.tenant.reply_after(b);
    desk.setup(b, &["COMMIT"]);
    assert_eq!(told(&mut desk.tenant, a), ["c: 1"]);
    assert!(read >= written && desk.tenant.reply_after(a) >= read);
    desk.setup(b, &["BEGIN", "SELECT pg_notify('c', nextval('s')::text)"]);
    let reserved = desk.tenant.reply_after(b);
    desk.setup(b, &["COMMIT"]);
    assert_eq!(told(&mut desk.tenant, a), ["c: 1"]);
    assert!(reserved > read && desk.tenant.reply_after(a) >= reserved);
}

#[test]
fn a_statement_that_waits_says_it_once() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)", "LISTEN c", "BEGIN", "UPDATE t SET n = 2"]);
    let text = "UPDATE t SET n = n + 1 WHERE pg_notify('c', n::text) IS NOT NULL";
    assert_eq!(desk.run(b, text), Seen::Waits);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(desk.run(b, text), done("UPDATE 1"));
    assert_eq!(told(&mut desk.tenant, a), ["c: 2"], "what it saw before it waited is not said");
}

#[test]
fn whoever_is_not_told_holds_up_who_says_more() {
    let mut desk = Desk::new();
    let (a, b) = (desk.client(), desk.client());
    desk.setup(a, &["LISTEN c", "BEGIN"]);
    desk.setup(b, &["CREATE TABLE t (n int)"]);
    let much = "SELECT count(pg_notify('c', g || repeat('x', 7000))) FROM generate_series(1, 1000) g";
    desk.setup(b, &[much]);
    desk.setup(b, &["BEGIN", "INSERT INTO t VALUES (1)", &much.replace("g ||", "'again' || g ||")]);
    assert_eq!(desk.run(b, "COMMIT"), Seen::Failed("54000"));
    assert_eq!(desk.run(b, "SELECT count(*) FROM t"), rows(&["0"]), "it has not committed");
    desk.setup(b, &["NOTIFY other"]);
    desk.setup(a, &["COMMIT"]);
    assert_eq!(told(&mut desk.tenant, a).len(), 1000);
    desk.setup(b, &["NOTIFY c"]);
    assert_eq!(told(&mut desk.tenant, a), ["c: "]);
    let too_much = much.replace("1000) g", "2000) g");
    assert_eq!(desk.run(b, &too_much), Seen::Failed("54000"));
}

#[test]
fn a_session_that_leaves_with_its_tenant_misses_nothing() {
    for moves in [false, true] {
        let mut desk = Desk::stored(1 << 20);
        let (a, b, c) = (desk.client(), desk.client(), desk.client());
        desk.setup(a, &["LISTEN c"]);
        desk.setup(b, &["BEGIN", "NOTIFY c, 'before'"]);
        desk.setup(c, &["NOTIFY c, 'untold'"]);
        let images: Vec<_> = [a, b, c]
            .into_iter()
            .map(|client| {
                let image = desk.tenant.depart(client, 1).expect("a session");
                desk.tenant.close_session(client);
                image
            })
            .collect();
        if moves {
            desk = desk.moved(2);
        }
        let came: Vec<_> = images.iter().map(|_| desk.client()).collect();
        // Others are there before who listens.
        for at in [2, 1] {
            desk.tenant.restore(came[at], &images[at]).expect("what was open is here");
        }
        desk.setup(came[2], &["NOTIFY c, 'meanwhile'"]);
        desk.setup(came[1], &["COMMIT"]);
        desk.tenant.heard();
        desk.tenant.restore(came[0], &images[0]).expect("what was open is here");
        assert_eq!(desk.tenant.heard(), [came[0]]);
        assert_eq!(told(&mut desk.tenant, came[0]), ["c: untold", "c: meanwhile", "c: before"]);
        desk.setup(came[1], &["NOTIFY c, 'after'"]);
        assert_eq!(told(&mut desk.tenant, came[0]), ["c: after"]);
    }
}

#[test]
fn a_session_that_listened_does_not_go_on_without() {
    let mut desk = Desk::stored(1 << 20);
    let a = desk.client();
    desk.setup(a, &["LISTEN c"]);
    let image = desk.tenant.depart(a, 1).expect("a session");
    desk.tenant.close_session(a);
    let mut other = Desk::new();
    let again = other.client();
    let error = other.tenant.restore(again, &image).expect_err("what it listens to is elsewhere");
    assert_eq!(error.state, "57P01");
}

#[test]
fn what_is_discarded_is_not_listened_to() {
    let mut desk = Desk::new();
    let a = desk.client();
    desk.setup(a, &["LISTEN c", "DISCARD ALL", "NOTIFY c"]);
    assert_eq!(told(&mut desk.tenant, a), [""; 0]);
    for text in ["CREATE TABLE t (a text DEFAULT pg_notify('c', ''))", "LISTEN", "NOTIFY c, 1"] {
        assert!(matches!(desk.run(a, text), Seen::Failed("0A000" | "42601")), "{text}");
    }
    assert_eq!(desk.run(a, "SELECT pg_notify(NULL, 'x')"), Seen::Failed("22023"));
    assert_eq!(desk.run(a, "SELECT pg_notification_queue_usage()"), rows(&["0"]));
}
