//! What was deleted, cut or changed in a data directory between two runs is missed at the start: a service says what it expected,
//! what came and what to do, and never serves less than was acknowledged.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use savanna_http::types::{ServiceState, ServiceStatus};
use savanna_node::{Config, Node};
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::{config, stub};

const ROWS: usize = 50;
/// Bytes of a journal's segment before its first record.
const SEGMENT_HEADER: usize = 72;
/// Long enough for anything that comes at all.
const PATIENCE: Duration = Duration::from_secs(60);

fn sleepy(directory: &Path) -> Config {
    config(directory, &[("tenants.idle", "10ms")])
}

async fn started(directory: &Path) -> Node {
    Node::start_with(sleepy(directory), stub().1).await.unwrap()
}

fn service(node: &Node, name: &str) -> ServiceStatus {
    node.status().services.into_iter().find(|service| service.service == name).unwrap()
}

fn address(node: &Node, name: &str) -> SocketAddr {
    service(node, name).address.unwrap().parse().unwrap()
}

/// Sends requests of the Redis protocol, and gives the replies to all of them.
fn keys(node: &Node, requests: &str) -> String {
    let mut client = TcpStream::connect(address(node, "keys")).unwrap();
    client.write_all(requests.as_bytes()).unwrap();
    client.write_all(b"QUIT\r\n").unwrap();
    let mut replies = String::new();
    client.read_to_string(&mut replies).unwrap();
    replies
}

async fn tenant(node: &Node, database: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let port = address(node, "tenants").port();
    let text = format!("host=127.0.0.1 port={port} user=postgres dbname={database}");
    let (client, connection) = tokio_postgres::connect(&text, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn rows(node: &Node) -> Result<i64, tokio_postgres::Error> {
    Ok(tenant(node, "shop").await?.query_one("SELECT count(*) FROM t", &[]).await?.get(0))
}

/// A data directory with keys and rows that clients were told of, as a node leaves it that is stopped in order.
async fn lived() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let node = started(directory.path()).await;
    let sets: String = (0..ROWS).map(|at| format!("SET key:{at} value\r\n")).collect();
    let replies = tokio::task::block_in_place(|| keys(&node, &sets));
    assert_eq!(replies, "+OK\r\n".repeat(ROWS + 1));
    tenant(&node, "postgres").await.unwrap().batch_execute("CREATE DATABASE shop").await.unwrap();
    {
        let shop = tenant(&node, "shop").await.unwrap();
        shop.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
        for id in 0..ROWS {
            shop.execute(&format!("INSERT INTO t VALUES ({id})"), &[]).await.unwrap();
        }
    }
    // It falls asleep when nobody is there: its rows are in the storage then, and still in the log.
    let noted = directory.path().join("tenants/store/stored");
    let asleep = async {
        while fs::read_dir(&noted).map_or(0, Iterator::count) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asleep).await.expect("it falls asleep");
    node.shutdown().await.unwrap();
    directory
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The newest segment of a journal that has records, and where they end.
fn newest(journal: &Path) -> (PathBuf, usize) {
    let names = fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        names.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("segment-")).collect();
    segments.sort();
    let used = |path: &PathBuf| fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let with_records = segments.into_iter().rev().map(|path| (used(&path), path));
    let (used, path) = with_records.into_iter().find(|(used, _)| *used > SEGMENT_HEADER).unwrap();
    (path, used)
}

fn delete_newest(journal: &Path) {
    fs::remove_file(newest(journal).0).unwrap();
}

fn cut_newest(journal: &Path) {
    let (path, used) = newest(journal);
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(used as u64 - 9).unwrap();
}

fn flip_last_record(journal: &Path) {
    let (path, used) = newest(journal);
    let mut bytes = fs::read(&path).unwrap();
    bytes[used - 1] ^= 4;
    fs::write(path, bytes).unwrap();
}

fn delete(directory: &Path) {
    fs::remove_dir_all(directory).unwrap();
}

/// Starts a node over a copy of a directory in which something was damaged.
async fn after(lived: &Path, damage: impl FnOnce(&Path)) -> (TempDir, Node) {
    let directory = tempfile::tempdir().unwrap();
    copy(lived, directory.path());
    damage(directory.path());
    let node = started(directory.path()).await;
    (directory, node)
}

/// What somebody or something does to a service's directory.
type Damage = fn(&Path);

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_damaged_after_its_service_stopped_is_refused_and_says_why() {
    let lived = lived().await;
    {
        let (_directory, node) = after(lived.path(), |_| {}).await;
        assert_eq!(rows(&node).await.unwrap(), ROWS as i64, "nothing was damaged");
        assert!(tokio::task::block_in_place(|| keys(&node, "DBSIZE\r\n")).starts_with(&format!(":{ROWS}\r\n")));
        node.shutdown().await.unwrap();
    }
    let damages: [(&str, Damage, [&str; 2]); 4] = [
        ("newest segment deleted", delete_newest, ["has a hole before", "restore it beside this one"]),
        ("newest segment cut", cut_newest, ["is damaged at byte", "Restore the file from a backup"]),
        ("bit flipped", flip_last_record, ["is damaged at byte", "Restore the file from a backup"]),
        ("journal deleted", delete, ["acknowledged writes may be missing", "Restore the log from a backup"]),
    ];
    for (name, journal, other) in [("keys", "keys", "tenants"), ("tenants", "tenants/log", "keys")] {
        for (damage, apply, expected) in damages {
            let (_directory, node) = after(lived.path(), |directory| apply(&directory.join(journal))).await;
            let (damaged, other) = (service(&node, name), service(&node, other));
            node.shutdown().await.unwrap();
            assert_eq!((damaged.state, other.state), (ServiceState::Failed, ServiceState::Running), "{name}, {damage}");
            let reason = damaged.reason.unwrap();
            assert!(expected.iter().all(|words| reason.contains(words)), "{name}, {damage}: {reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_tenants_that_is_gone_is_missed_and_nobody_gets_anothers_rows() {
    let lived = lived().await;
    let folder = |directory: &Path| directory.join("tenants/store/tenants");
    let is_shop = |path: &Path| path.to_str().unwrap().ends_with('2');
    {
        let (_directory, node) = after(lived.path(), |directory| {
            let tenants = fs::read_dir(folder(directory)).unwrap().map(|entry| entry.unwrap().path());
            delete(&tenants.into_iter().find(|path| is_shop(path)).expect("the second that was made"));
        })
        .await;
        let refused = rows(&node).await.unwrap_err();
        let message = refused.as_db_error().unwrap().message();
        assert!(message.contains("the segments were deleted") && message.contains("restore"), "{message}");
        tenant(&node, "postgres").await.unwrap().batch_execute("SELECT 1").await.unwrap();
        node.shutdown().await.unwrap();
    }
    {
        let (_directory, node) = after(lived.path(), |directory| delete(&directory.join("tenants/store"))).await;
        let reason = service(&node, "tenants").reason.unwrap();
        assert!(reason.contains("it was deleted or moved"), "{reason}");
        node.shutdown().await.unwrap();
    }
    // Whoever gives up what the log had is not given numbers that the storage has rows of.
    let given_up: [(&[&str], &str); 2] = [
        (&["tenants/log", "high-water/tenants"], "where it ended before"),
        (
            &["tenants/log", "high-water/tenants", "coordinator", "high-water/coordinator"],
            "found the store of another one",
        ),
    ];
    for (folders, expected) in given_up {
        let (_directory, node) = after(lived.path(), |directory| {
            folders.iter().for_each(|folder| delete(&directory.join(folder)));
        })
        .await;
        let reason = service(&node, "tenants").reason.unwrap();
        assert!(reason.contains(expected), "{reason}");
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_the_node_itself_that_is_gone_is_missed() {
    let lived = lived().await;
    delete(&lived.path().join("coordinator"));
    let refused = Node::start_with(sleepy(lived.path()), stub().1).await.unwrap_err().to_string();
    assert!(refused.contains("acknowledged writes may be missing"), "{refused}");
}
