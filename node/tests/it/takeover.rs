//! One node at a time serves a data directory.

use savanna_node::{Lost, Node};

use crate::{config, stub};

fn epoch(node: &Node) -> u64 {
    node.status().lease.unwrap().epoch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_in_order_leaves_the_directory_free() {
    let directory = tempfile::tempdir().unwrap();
    let first = Node::start_with(config(directory.path(), &[]), stub().1).await.unwrap();
    let held_under = epoch(&first);
    first.shutdown().await.unwrap();
    let second = Node::start_with(config(directory.path(), &[]), stub().1).await.unwrap();
    assert!(epoch(&second) > held_under);
    assert!(second.status().lease.unwrap().serving);
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_takes_over_and_the_first_is_told_who() {
    let directory = tempfile::tempdir().unwrap();
    let first = Node::start_with(config(directory.path(), &[]), stub().1).await.unwrap();
    let lost = first.lost();
    let second = tokio::spawn(Node::start_with(config(directory.path(), &[]), stub().1));
    let Lost::Directory(lost) = lost.await else { panic!("it is alone") };
    assert_eq!((lost.by(), lost.epoch.0), (Some(std::process::id()), epoch(&first)));
    let text = lost.to_string();
    assert!(text.contains("took over the data directory") && text.contains("--data-dir"), "{text}");
    let held_under = epoch(&first);
    first.shutdown().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(epoch(&second) > held_under);
    second.shutdown().await.unwrap();
}
