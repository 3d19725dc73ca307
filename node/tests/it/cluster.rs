//! Several nodes on one data directory, in this process.

use std::path::Path;
use std::time::Duration;

use savanna_http::types::{ClusterNode, ClusterShard};
use savanna_node::{Join, JoinError, Node, NodeError};
use tokio_postgres::NoTls;

use crate::restart::{address, ask};
use crate::{config, stub};

/// Long enough for anything that comes at all.
const PATIENCE: Duration = Duration::from_secs(60);

async fn join(directory: &Path, name: &str) -> Node {
    let flags = [("node.name", name), ("cluster.port", "0")];
    let join = Join::Directory(directory.to_owned());
    Node::join_with(config(directory, &flags), &join, stub().1).await.unwrap()
}

fn shards(node: &Node) -> Vec<ClusterShard> {
    node.view().shards()
}

fn owner(node: &Node, shard: &str) -> Option<String> {
    shards(node).into_iter().find(|found| found.shard == shard && found.state == "serving")?.owner
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("expected that {what}"));
}

fn keys(node: &Node, request: &str) -> String {
    let address = address(node, "keys").unwrap();
    tokio::task::block_in_place(|| ask(address, request))
}

async fn tenants(node: &Node) -> tokio_postgres::Client {
    let text =
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", address(node, "tenants").unwrap().port());
    let (client, connection) = tokio_postgres::connect(&text, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn number(node: &Node) -> i64 {
    tenants(node).await.query_one("SELECT id FROM t", &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_serves_what_one_owns_and_another_takes_over_when_it_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let first = join(directory.path(), "a").await;
    let second = join(directory.path(), "b").await;
    until("both know both", || [&first, &second].iter().all(|node| node.view().nodes().len() == 2)).await;
    let names = |node: &Node| node.view().nodes().into_iter().map(|node: ClusterNode| node.name).collect::<Vec<_>>();
    assert_eq!(names(&second), ["a", "b"]);
    let services = shards(&second).into_iter().filter(|shard| !shard.shard.contains('/'));
    let epochs: Vec<_> = services.map(|shard| (shard.shard, shard.owner, shard.epoch)).collect();
    let of_first = |shard: &str| (shard.to_owned(), Some("a".to_owned()), 1);
    assert_eq!(epochs, ["keys", "streams", "tenants"].map(of_first));

    assert_eq!(keys(&first, "INCR n"), ":1\r\n+OK\r\n");
    assert_eq!(keys(&second, "INCR n"), ":2\r\n+OK\r\n");
    tenants(&second).await.batch_execute("CREATE TABLE t (id bigint); INSERT INTO t VALUES (7)").await.unwrap();
    assert_eq!((number(&first).await, number(&second).await), (7, 7));

    first.shutdown().await.unwrap();
    for shard in ["keys", "streams", "tenants"] {
        until("the other one owns it", || owner(&second, shard).as_deref() == Some("b")).await;
    }
    let kept = shards(&second).into_iter().find(|shard| shard.shard == "keys").unwrap();
    assert_eq!(kept.epoch, 2);
    assert!(kept.log.is_some_and(|log| log.starts_with("b.") && log.ends_with("/keys")));
    until("its faces are there", || ["keys", "tenants"].iter().all(|name| address(&second, name).is_some())).await;
    assert_eq!(keys(&second, "INCR n"), ":3\r\n+OK\r\n");
    assert_eq!(number(&second).await, 7);
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_one_nodes_or_a_clusters() {
    let directory = tempfile::tempdir().unwrap();
    let alone = Node::start_with(config(directory.path(), &[]), stub().1).await.unwrap();
    assert_eq!(keys(&alone, "SET a 1"), "+OK\r\n+OK\r\n");
    let flags = [("node.name", "a"), ("cluster.port", "0"), ("services", "keys")];
    let join = Join::Directory(directory.path().to_owned());
    let refused = Node::join_with(config(directory.path(), &flags), &join, stub().1).await.unwrap_err();
    let pid = std::process::id();
    assert!(matches!(&refused, NodeError::Join(JoinError::Kept { pid: by }) if *by == pid), "{refused}");
    assert!(alone.status().lease.unwrap().serving, "nothing was claimed of it");
    alone.shutdown().await.unwrap();

    let store = [flags[0], flags[1], ("cluster.store", "s3://bucket/a")];
    let refused = Node::join_with(config(directory.path(), &store), &join, stub().1).await.unwrap_err();
    assert!(matches!(refused, NodeError::Join(JoinError::NoStoreHere { .. })), "{refused}");
    let joined = Node::join_with(config(directory.path(), &flags), &join, stub().1).await.unwrap();
    assert_eq!(keys(&joined, "GET a"), "$1\r\n1\r\n+OK\r\n");
    let refused = Node::start_with(config(directory.path(), &[]), stub().1).await.unwrap_err();
    assert!(matches!(refused, NodeError::IsCluster { .. }), "{refused}");
    joined.shutdown().await.unwrap();
}
