//! A statement on which the server itself fails.

use savanna_tenants::panic_at;
use savanna_tenants_host::Keeping;

use crate::{gate::Client, server};

#[test]
fn a_client_whose_statement_panics_is_told_so_and_others_go_on() {
    const TEXT: &str = "SELECT 'the server fails on this'";
    let directory = tempfile::tempdir().unwrap();
    let server = server::start(server::options(), Keeping::local(directory.path()), 2).unwrap();
    let [mut unlucky, mut other] = [(); 2].map(|()| Client::new(server.address()));
    other.send("CREATE TABLE t (id int PRIMARY KEY); BEGIN; INSERT INTO t VALUES (1)");
    other.answer();
    unlucky.send("BEGIN; INSERT INTO t VALUES (2)");
    unlucky.answer();
    panic_at(TEXT);
    unlucky.send(TEXT);
    let told = unlucky.last_words();
    assert!(told.starts_with('E') && told.contains("FATAL") && told.contains("XX000"), "{told}");
    other.send("COMMIT; SELECT 1 / (count(*) - 2) FROM t");
    assert_eq!(other.answer(), "CTDCZ", "one row is there: the other client's transaction is rolled back");
    let mut next = Client::new(server.address());
    next.send("INSERT INTO t VALUES (2)");
    assert_eq!(next.answer(), "CZ");
    server.stopper().stop();
    server.wait().unwrap();
}
