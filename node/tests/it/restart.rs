//! A service whose log fails reads it back and goes on, by itself.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use savanna_http::types::ServiceState;
use savanna_node::Node;
use tokio_postgres::NoTls;

use crate::{config, stub};

/// Long enough for anything that comes at all.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn address(node: &Node, name: &str) -> Option<SocketAddr> {
    let service = node.status().services.into_iter().find(|service| service.service == name)?;
    (service.state == ServiceState::Running).then(|| service.address?.parse().ok()).flatten()
}

/// Removes what a journal looks for before it tells anybody that something is durable: it ends then.
fn fail_next_write(journal: &Path) {
    for entry in fs::read_dir(journal).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with("fence-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Waits until a service that ended runs again, where it was.
async fn runs_again(node: &Node, name: &str, before: SocketAddr) {
    let ended = async {
        while address(node, name).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        while address(node, name).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it is started again");
    assert_eq!(address(node, name), Some(before));
}

/// One request of the Redis protocol, and what comes before the connection ends.
pub(crate) fn ask(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(format!("{request}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut replies = Vec::new();
    // A connection that is reset is closed, too.
    let _ = client.read_to_end(&mut replies);
    String::from_utf8(replies).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_go_on_after_their_log_has_failed_with_all_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let settings = directory.path().join("keys.conf");
    fs::write(&settings, "appendfsync always\n").unwrap();
    let flags = [("keys.config", settings.to_str().unwrap())];
    let node = Node::start_with(config(&directory.path().join("data"), &flags), stub().1).await.unwrap();
    let (keys, tenants) = (address(&node, "keys").unwrap(), address(&node, "tenants").unwrap());
    let ask = |request: &'static str| tokio::task::block_in_place(|| ask(keys, request));
    assert_eq!(ask("SET told 1"), "+OK\r\n+OK\r\n");
    fail_next_write(&directory.path().join("data/keys"));
    assert_eq!(ask("SET untold 1"), "", "nobody is told what is not durable");
    runs_again(&node, "keys", keys).await;
    let (told, written) = (ask("GET told"), ask("SET later 1"));
    assert_eq!(address(&node, "tenants"), Some(tenants), "another service is not concerned");
    node.shutdown().await.unwrap();
    assert_eq!((told.as_str(), written.as_str()), ("$1\r\n1\r\n+OK\r\n", "+OK\r\n+OK\r\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_go_on_after_their_log_has_failed_with_all_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start_with(config(directory.path(), &[]), stub().1).await.unwrap();
    let tenants = address(&node, "tenants").unwrap();
    let text = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", tenants.port());
    let client = || async {
        let (client, connection) = tokio_postgres::connect(&text, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let first = client().await;
    first.batch_execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)").await.unwrap();
    fail_next_write(&directory.path().join("tenants/log"));
    let untold = first.batch_execute("INSERT INTO t VALUES (2)").await;
    runs_again(&node, "tenants", tenants).await;
    let second = client().await;
    second.batch_execute("INSERT INTO t VALUES (3)").await.unwrap();
    let ids = second.query("SELECT id FROM t WHERE id <> 2 ORDER BY id", &[]).await.unwrap();
    let ids: Vec<i32> = ids.iter().map(|row| row.get(0)).collect();
    node.shutdown().await.unwrap();
    assert!(untold.is_err(), "nobody is told what is not durable");
    assert_eq!(ids, [1, 3]);
}
