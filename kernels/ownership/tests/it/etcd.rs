//! The etcd coordinator, each case on an etcd of its own (`SAVANNA_ETCD` names another binary). Where none starts they are skipped with
//! a note; under `CI` they fail.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use futures::StreamExt as _;
use savanna_epoch::{OwnerEpoch, ShardId};
use savanna_ownership::etcd::{EtcdCoordinator, EtcdOptions};
use savanna_ownership::view::Follower;
use savanna_ownership::{
    ClusterView, Coordinator, CoordinatorError, Revision, RootValue, ShardRecord, Snapshot, Transition,
};
use tempfile::TempDir;

use crate::remote::fill;
use crate::suite::{LONG_TTL, spec, suite, with_patience};

/// An etcd that ends with the test.
struct Etcd {
    process: Child,
    endpoint: String,
    _directory: TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port below those that the system gives to whoever asks for any: nobody else has it while an etcd starts again.
pub(crate) fn free_port() -> u16 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(37).wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn launch() -> Option<Etcd> {
    let binary = std::env::var("SAVANNA_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    let directory = tempfile::tempdir().unwrap();
    let (client, peer) = (free_port(), free_port());
    let (endpoint, peers) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let process = Command::new(&binary)
        .arg("--data-dir")
        .arg(directory.path())
        .args(["--name", "it", "--initial-cluster", &format!("it={peers}")])
        .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        // Quick elections, and with them leases of one second.
        .args(["--heartbeat-interval", "10", "--election-timeout", "100", "--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match process {
        Ok(process) => Some(Etcd { process, endpoint, _directory: directory }),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{binary} does not start here: {error}; run `make test-deps`");
            println!("skipped: {binary} does not start here: {error}");
            None
        }
    }
}

fn options(etcd: &Etcd, prefix: &str) -> EtcdOptions {
    EtcdOptions {
        prefix: prefix.to_owned(),
        ttl: Duration::from_secs(1),
        ..EtcdOptions::new(vec![etcd.endpoint.clone()])
    }
}

/// Connects as soon as etcd has started and elected itself.
async fn connect(etcd: &mut Etcd, prefix: &str) -> EtcdCoordinator {
    loop {
        if let Ok(coordinator) = EtcdCoordinator::connect(options(etcd, prefix)).await
            && coordinator.snapshot().await.is_ok()
        {
            return coordinator;
        }
        if let Some(status) = etcd.process.try_wait().unwrap() {
            // Another process was faster to take the port.
            println!("etcd ended ({status}), trying other ports");
            *etcd = launch().expect("etcd has started before");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn start() -> Option<(Arc<dyn Coordinator>, Etcd)> {
    let mut etcd = launch()?;
    let coordinator = connect(&mut etcd, "/savanna/").await;
    Some((Arc::new(coordinator), etcd))
}

suite!(start);

/// Asked by a node that does not reach etcd, through one that does.
mod through_a_node {
    use savanna_ownership::remote::{SERVICE, service};
    use savanna_rpc::{ServiceTable, TcpServer};

    use super::*;
    use crate::remote::asked_over_tcp;

    async fn start() -> Option<(Arc<dyn Coordinator>, (TcpServer, Etcd))> {
        let (coordinator, etcd) = super::start().await?;
        let services = ServiceTable::new().service(SERVICE, service(&coordinator));
        let (coordinator, server) = asked_over_tcp(Arc::new(services)).await;
        Some((coordinator, (server, etcd)))
    }

    suite!(start);
}

async fn start_with_long_leases() -> Option<(Arc<dyn Coordinator>, Etcd)> {
    let mut etcd = launch()?;
    connect(&mut etcd, "/savanna/").await;
    let options = EtcdOptions { ttl: LONG_TTL, ..options(&etcd, "/savanna/") };
    Some((Arc::new(EtcdCoordinator::connect(options).await.unwrap()), etcd))
}

suite!(start_with_long_leases: random_batches_are_applied_as_the_model_says, a_history_is_set_to_a_log_that_is_open_and_held, no_history_is_set_to_a_log_once_it_is_sealed,);

#[tokio::test]
async fn two_coordinators_on_one_etcd_see_each_other_and_prefixes_are_apart() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let first = connect(&mut etcd, "/one/").await;
        let second = connect(&mut etcd, "/one/").await;
        let other = connect(&mut etcd, "/two/").await;
        let mut changes = second.watch(first.snapshot().await.unwrap().revision).await.unwrap();
        other.put_root("r", Revision::NONE, RootValue(b"two".to_vec())).await.unwrap();
        first.put_root("r", Revision::NONE, RootValue(b"one".to_vec())).await.unwrap();
        let seen = changes.next().await.unwrap().unwrap();
        assert_eq!(second.root("r").await.unwrap().unwrap().value.0, b"one");
        assert_eq!(second.root("r").await.unwrap().unwrap().version, seen.revision);
        assert_eq!(other.root("r").await.unwrap().unwrap().value.0, b"two");
        assert_eq!(first.allocate("x", 5).await.unwrap(), 1..6);
        assert_eq!(second.allocate("x", 5).await.unwrap(), 6..11);
    })
    .await;
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_says_so() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let coordinator = connect(&mut etcd, "/savanna/").await;
        let since = coordinator.snapshot().await.unwrap().revision;
        let mut version = Revision::NONE;
        for _ in 0..5 {
            version = coordinator.put_root("r", version, RootValue(Vec::new())).await.unwrap();
        }
        let mut client = etcd_client::Client::connect([&etcd.endpoint], None).await.unwrap();
        client.compact(version.0.cast_signed(), None).await.unwrap();
        let refused = match coordinator.watch(since).await {
            Ok(mut changes) => changes.next().await.unwrap().unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(refused, CoordinatorError::Compacted { .. }), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn a_revision_of_which_a_part_cannot_be_read_is_not_passed() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let coordinator = connect(&mut etcd, "/savanna/").await;
        let since = coordinator.snapshot().await.unwrap().revision;
        let before = coordinator.put_root("r", Revision::NONE, RootValue::default()).await.unwrap();
        let mut client = etcd_client::Client::connect([&etcd.endpoint], None).await.unwrap();
        for (good, bad) in [("/savanna/roots/a", "/savanna/shards/z"), ("/savanna/shards/zz", "/savanna/nodes/z")] {
            let good_value = if good.contains("roots") { "1".to_owned() } else { json_of_a_retired_shard() };
            let writes = vec![TxnOp::put(good, good_value, None), TxnOp::put(bad, "{", None)];
            client.txn(Txn::new().and_then(writes)).await.unwrap();
        }
        for _ in 0..2 {
            let mut changes = coordinator.watch(since).await.unwrap();
            assert_eq!(changes.next().await.unwrap().unwrap().revision, before);
            let next = changes.next().await.unwrap();
            assert!(matches!(next, Err(CoordinatorError::Corrupt { .. })), "{next:?}");
            assert!(changes.next().await.is_none());
        }
        // A follower stays before it.
        let view = ClusterView::new(Snapshot { revision: since, ..Snapshot::default() });
        let mut follower = Follower::new(Arc::new(coordinator), view);
        follower.next().await.unwrap();
        for _ in 0..3 {
            assert!(matches!(follower.next().await, Err(CoordinatorError::Corrupt { .. })));
            assert_eq!(follower.view().revision(), before);
        }
    })
    .await;
}

fn json_of_a_retired_shard() -> String {
    serde_json::to_string(&ShardRecord::retired(OwnerEpoch(1))).unwrap()
}

#[tokio::test]
async fn records_of_another_format_are_refused_at_the_start_and_by_every_transaction() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let coordinator = connect(&mut etcd, "/savanna/").await;
        let tenure = coordinator.register(&spec("n1", 1)).await.unwrap().tenure;
        let version = coordinator.put_root("r", Revision::NONE, RootValue::default()).await.unwrap();
        let mut client = etcd_client::Client::connect([&etcd.endpoint], None).await.unwrap();
        // A later release takes the records over; then somebody removes all.
        for found in ["2", "none"] {
            match found {
                "none" => drop(client.delete("/savanna/format", None).await.unwrap()),
                found => drop(client.put("/savanna/format", found, None).await.unwrap()),
            }
            let shard = Transition {
                shard: ShardId::new("s"),
                expected: Revision::NONE,
                record: ShardRecord::serving(tenure.clone(), OwnerEpoch(1)),
                by: None,
            };
            let refused = [
                coordinator.put_root("r", version, RootValue::default()).await.map(drop),
                coordinator.delete_root("r", version).await.map(drop),
                coordinator.transition(&shard).await.map(drop),
                coordinator.allocate("x", 1).await.map(drop),
                coordinator.register(&spec("n2", 1)).await.map(drop),
                coordinator.claim(&spec("n1", 2)).await.map(drop),
            ];
            for result in refused {
                let error = result.unwrap_err();
                assert!(matches!(&error, CoordinatorError::Format { found: came, .. } if came == found), "{error:?}");
            }
            let error = EtcdCoordinator::connect(options(&etcd, "/savanna/")).await.unwrap_err().to_string();
            let expected = format!("under `/savanna/` in format 1, came format {found}");
            assert!(error.contains(&expected) && error.contains("choose another prefix"), "{error}");
            assert!(EtcdCoordinator::connect(options(&etcd, "/other/")).await.is_ok(), "another prefix");
            // Who only renews finds out with its next change.
            coordinator.heartbeat(&tenure).await.unwrap();
        }
        let read = coordinator.root("r").await.unwrap().unwrap();
        assert_eq!(read.version, version, "nothing was written");
    })
    .await;
}

#[tokio::test]
async fn many_shards_and_roots_are_one_snapshot() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let coordinator = connect(&mut etcd, "/savanna/").await;
        fill(&coordinator, 5_000, 20_000, 1_100).await;
        let snapshot = coordinator.snapshot().await.unwrap();
        assert_eq!((snapshot.shards.len(), snapshot.roots.len()), (5_000, 20_000));
    })
    .await;
}

#[tokio::test]
async fn a_watch_outlives_the_timeout_of_requests() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let coordinator = connect(&mut etcd, "/savanna/").await;
        let mut changes = coordinator.watch(coordinator.snapshot().await.unwrap().revision).await.unwrap();
        tokio::time::sleep(options(&etcd, "/savanna/").timeout * 3 / 2).await;
        let put = coordinator.put_root("r", Revision::NONE, RootValue(Vec::new())).await.unwrap();
        assert_eq!(changes.next().await.unwrap().unwrap().revision, put);
    })
    .await;
}

/// etcd closes a connection that asks too often whether it is there; with leases this long nothing else is said on it.
#[tokio::test]
async fn a_quiet_watch_is_not_closed() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let writer = connect(&mut etcd, "/savanna/").await;
        let options = EtcdOptions { ttl: Duration::from_secs(30), ..options(&etcd, "/savanna/") };
        let quiet = EtcdCoordinator::connect(options).await.unwrap();
        let mut changes = quiet.watch(quiet.snapshot().await.unwrap().revision).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(25), changes.next()).await;
        assert!(ended.is_err(), "expected nothing for 25 s, came {ended:?}");
        let put = writer.put_root("r", Revision::NONE, RootValue(Vec::new())).await.unwrap();
        assert_eq!(changes.next().await.unwrap().unwrap().revision, put);
    })
    .await;
}

#[tokio::test]
async fn a_snapshot_may_be_larger_than_one_message_of_the_client_library() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let coordinator = connect(&mut etcd, "/savanna/").await;
        for number in 0..6 {
            let value = RootValue(vec![number; 1 << 20]);
            coordinator.put_root(&format!("large/{number}"), Revision::NONE, value).await.unwrap();
        }
        let roots = coordinator.snapshot().await.unwrap().roots;
        assert_eq!(roots.iter().map(|(_, root)| root.value.0.len()).sum::<usize>(), 6 << 20);
    })
    .await;
}

#[tokio::test]
async fn without_etcd_requests_end_as_unavailable() {
    let Some(mut etcd) = launch() else { return };
    with_patience(async {
        let coordinator = connect(&mut etcd, "/savanna/").await;
        let tenure = coordinator.register(&spec("n1", 1)).await.unwrap().tenure;
        etcd.process.kill().unwrap();
        etcd.process.wait().unwrap();
        let lost = coordinator.heartbeat(&tenure).await.unwrap_err();
        assert!(matches!(lost, CoordinatorError::Unavailable { .. }), "{lost:?}");
        let refused = EtcdCoordinator::connect(options(&etcd, "/savanna/")).await.unwrap_err();
        assert!(matches!(refused, CoordinatorError::Unavailable { .. }), "{refused:?}");
    })
    .await;
}
