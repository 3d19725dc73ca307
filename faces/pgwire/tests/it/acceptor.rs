//! Who is let in.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use savanna_identity::Users;
use savanna_pgwire::{Acceptor, Admission, DATABASE, serve_stream};
use tokio_postgres::{Client, Config, NoTls};

use crate::stub::Stub;

const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [192, 0, 2, 1];

fn users(text: &str) -> Users {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    Users::read(&path).unwrap()
}

fn acceptor(admission: Admission) -> Arc<Acceptor> {
    Arc::new(Acceptor::new(admission, None).unwrap())
}

/// A client that came in, or the SQLSTATE that it was told.
async fn log_in(acceptor: &Arc<Acceptor>, from: [u8; 4], user: &str, password: &str) -> Result<Client, String> {
    let (client, server) = tokio::io::duplex(1 << 16);
    let acceptor = Arc::clone(acceptor);
    tokio::spawn(async move { serve_stream(server, SocketAddr::from((from, 0)), Arc::new(Stub), &acceptor).await });
    let mut config = Config::new();
    config.user(user).password(password).dbname(DATABASE);
    match config.connect_raw(client, NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            Ok(client)
        }
        Err(error) => Err(error.code().unwrap_or_else(|| panic!("{error}")).code().to_owned()),
    }
}

/// What somebody was told who did not come in.
async fn refused(acceptor: &Arc<Acceptor>, from: [u8; 4], user: &str, password: &str) -> String {
    log_in(acceptor, from, user, password).await.err().unwrap_or_else(|| panic!("{user} came in"))
}

#[tokio::test]
async fn without_users_those_of_this_machine_come_in_and_no_others() {
    let acceptor = acceptor(Admission::default());
    assert!(log_in(&acceptor, HERE, "anybody", "").await.is_ok());
    assert_eq!(refused(&acceptor, ELSEWHERE, "anybody", "").await, "28000");
}

#[tokio::test]
async fn with_users_everybody_has_to_know_a_password() {
    let acceptor = acceptor(Admission { users: users("ann open sesame\nbob secret\n"), ..Admission::default() });
    for from in [HERE, ELSEWHERE] {
        assert!(log_in(&acceptor, from, "ann", "open sesame").await.is_ok());
        for (user, password) in [("ann", "open"), ("ann", "secret"), ("bob", "open sesame"), ("eve", "secret")] {
            assert_eq!(refused(&acceptor, from, user, password).await, "28P01", "{user}");
        }
    }
}

#[tokio::test]
async fn where_encryption_is_required_nobody_comes_in_without() {
    let acceptor = acceptor(Admission { users: users("ann secret\n"), requires_tls: true, ..Admission::default() });
    assert_eq!(refused(&acceptor, HERE, "ann", "secret").await, "28000");
}

#[tokio::test]
async fn one_client_too_many_is_told_so_until_another_goes() {
    let acceptor = acceptor(Admission { users: users("ann secret\n"), clients_max: 1, ..Admission::default() });
    let first = log_in(&acceptor, HERE, "ann", "secret").await.unwrap();
    assert_eq!(refused(&acceptor, HERE, "ann", "secret").await, "53300");
    assert_eq!(
        refused(&acceptor, HERE, "ann", "wrong").await,
        "28P01",
        "who has not logged in does not hear of places"
    );
    drop(first);
    while log_in(&acceptor, HERE, "ann", "secret").await.is_err() {
        tokio::task::yield_now().await;
    }
}
