//! A coordinator over rpc: the cases of every coordinator over TCP, and over a network that loses what it carries.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use savanna_epoch::{NodeEpoch, NodeId, OwnerEpoch, ShardId};
use savanna_journal::Options;
use savanna_journal::sim::SimDisk;
use savanna_ownership::core::CoordinatorCore;
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions, Log, LogError, LogPosition};
use savanna_ownership::remote::{RemoteCoordinator, SERVICE, service};
use savanna_ownership::{
    Batch, BootClock, ChangeStream, ClaimOutcome, Coordinator, CoordinatorError, Grant, MAX_BATCH_RECORDS, NodeSpec,
    Revision, RootChange, RootValue, ShardRecord, Snapshot, Tenure, Transition, Versioned,
};
use savanna_rpc::{
    Addresses, Delivery, InProcessLimits, InProcessNet, Request, RpcError, Served, Service, ServiceTable, TcpConfig,
    TcpServer, TcpTransport, Transport,
};
use tempfile::TempDir;

use crate::suite::{LONG_TTL, spec, suite};

const PATIENCE: Duration = Duration::from_secs(20);

fn at() -> NodeId {
    NodeId::new("coordinator")
}

/// Short leases, for the cases about them.
const TTL: Duration = Duration::from_millis(600);

async fn served(ttl: Duration) -> (Arc<dyn Service>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let journal = Options::dir(directory.path().join("coordinator"));
    let options = EmbeddedOptions { ttl, clock: Arc::new(BootClock), guard: None };
    let coordinator: Arc<dyn Coordinator> =
        Arc::new(EmbeddedCoordinator::open(journal, NodeEpoch(1), options).await.unwrap());
    let services = ServiceTable::new().service(SERVICE, service(&coordinator));
    (Arc::new(services), directory)
}

/// Serves over TCP, and asks there.
pub(crate) async fn asked_over_tcp(service: Arc<dyn Service>) -> (Arc<dyn Coordinator>, TcpServer) {
    let server = TcpServer::bind("127.0.0.1:0", at(), service, TcpConfig::default()).await.unwrap();
    let addresses = Arc::new(Addresses::default());
    addresses.set(at(), server.local_address().to_string());
    let transport = TcpTransport::new(NodeId::new("n1"), addresses, TcpConfig::default());
    (Arc::new(RemoteCoordinator::new(Arc::new(transport), at(), PATIENCE)), server)
}

mod over_tcp {
    use super::*;

    async fn start() -> Option<(Arc<dyn Coordinator>, (TcpServer, TempDir))> {
        start_with(TTL).await
    }

    async fn start_with_long_leases() -> Option<(Arc<dyn Coordinator>, (TcpServer, TempDir))> {
        start_with(LONG_TTL).await
    }

    async fn start_with(ttl: Duration) -> Option<(Arc<dyn Coordinator>, (TcpServer, TempDir))> {
        let (service, directory) = served(ttl).await;
        let (coordinator, server) = asked_over_tcp(service).await;
        Some((coordinator, (server, directory)))
    }

    suite!(start);
    suite!(start_with_long_leases: random_batches_are_applied_as_the_model_says, a_history_is_set_to_a_log_that_is_open_and_held, no_history_is_set_to_a_log_once_it_is_sealed,);
}

/// Loses every third request on its way, and every fifth reply.
struct Lossy {
    net: Arc<dyn Transport>,
    calls: AtomicU64,
}

fn lost(delivery: Delivery) -> RpcError {
    RpcError::Unreachable { node: at(), reason: "lost by the test".to_owned(), delivery }
}

#[async_trait]
impl Transport for Lossy {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if number % 3 == 1 {
            return Err(lost(Delivery::NotStarted));
        }
        let reply = self.net.call(to, request).await;
        if number.is_multiple_of(5) { Err(lost(Delivery::Unknown)) } else { reply }
    }
}

/// A coordinator behind a network that loses nothing, and what keeps both.
async fn in_process(ttl: Duration) -> (Arc<dyn Transport>, (Served, TempDir)) {
    let (service, directory) = served(ttl).await;
    let net = InProcessNet::new(InProcessLimits::default());
    let guard = net.serve(at(), service);
    (Arc::new(net.transport(NodeId::new("n1"))), (guard, directory))
}

/// What a caller does whose values are nobody else's: it reads what became of a batch when the coordinator does not know.
struct Settling(RemoteCoordinator);

impl Settling {
    /// The version that all records of a batch have, if they are what it was to make of them.
    async fn applied_at(&self, batch: &Batch) -> Result<Option<Revision>, CoordinatorError> {
        let mut versions = BTreeSet::new();
        if batch.transitions.is_empty() && batch.roots.is_empty() {
            return Ok(None);
        }
        for change in &batch.transitions {
            match self.0.shard(&change.shard).await? {
                Some(found) if found.value == change.record => versions.insert(found.version),
                _ => return Ok(None),
            };
        }
        for change in &batch.roots {
            match (self.0.root(&change.key).await?, &change.value) {
                (Some(found), Some(wanted)) if found.value == *wanted => drop(versions.insert(found.version)),
                // A root that was not there cannot have been deleted.
                (None, None) if change.expected != Revision::NONE => {}
                _ => return Ok(None),
            }
        }
        Ok((versions.len() <= 1).then(|| versions.pop_last().unwrap_or(Revision::NONE)))
    }
}

#[async_trait]
impl Coordinator for Settling {
    async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
        self.0.register(spec).await
    }

    async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
        self.0.claim(spec).await
    }

    async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
        self.0.heartbeat(tenure).await
    }

    async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
        self.0.deregister(tenure).await
    }

    async fn snapshot(&self) -> Result<Snapshot, CoordinatorError> {
        self.0.snapshot().await
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        self.0.shard(shard).await
    }

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        loop {
            match self.0.apply(batch).await {
                Err(CoordinatorError::Unavailable { .. }) => {}
                result => return result,
            }
            if let Some(version) = self.applied_at(batch).await? {
                return Ok(version);
            }
        }
    }

    async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError> {
        self.0.allocate(name, count).await
    }

    async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError> {
        self.0.root(key).await
    }

    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        self.0.watch(since).await
    }
}

mod over_a_network_that_loses {
    use super::*;

    async fn start() -> Option<(Arc<dyn Coordinator>, (Served, TempDir))> {
        start_with(TTL).await
    }

    async fn start_with_long_leases() -> Option<(Arc<dyn Coordinator>, (Served, TempDir))> {
        start_with(LONG_TTL).await
    }

    async fn start_with(ttl: Duration) -> Option<(Arc<dyn Coordinator>, (Served, TempDir))> {
        let (net, keep) = in_process(ttl).await;
        let transport = Arc::new(Lossy { net, calls: AtomicU64::new(0) });
        Some((Arc::new(Settling(RemoteCoordinator::new(transport, at(), PATIENCE))), keep))
    }

    suite!(start);
    suite!(start_with_long_leases: random_batches_are_applied_as_the_model_says, a_history_is_set_to_a_log_that_is_open_and_held, no_history_is_set_to_a_log_once_it_is_sealed,);
}

/// Carries requests, and loses the first so many replies.
struct Forgetful {
    net: Arc<dyn Transport>,
    loses: AtomicU64,
}

#[async_trait]
impl Transport for Forgetful {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        let reply = self.net.call(to, request).await;
        let is_lost = self.loses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if is_lost { Err(lost(Delivery::Unknown)) } else { reply }
    }
}

fn forgetful(net: &Arc<dyn Transport>, loses: u64) -> RemoteCoordinator {
    let transport = Forgetful { net: Arc::clone(net), loses: AtomicU64::new(loses) };
    RemoteCoordinator::new(Arc::new(transport), at(), PATIENCE)
}

#[tokio::test]
async fn a_change_whose_reply_was_lost_is_done_once_and_its_outcome_is_not_known() {
    let (net, _keep) = in_process(TTL).await;
    let forgetful = |loses| forgetful(&net, loses);
    let value = |text: &str| RootValue(text.as_bytes().to_vec());
    let is_unknown = |result: Result<Revision, CoordinatorError>| match result {
        Err(CoordinatorError::Unavailable { .. }) => {}
        other => panic!("expected that it is not known, came {other:?}"),
    };
    is_unknown(forgetful(1).put_root("r", Revision::NONE, value("one")).await);
    let read = forgetful(0).root("r").await.unwrap().unwrap();
    assert_eq!((read.version, read.value), (Revision(1), value("one")), "it was written once");
    // Nor is it known of a change that was refused, or that another made just so.
    is_unknown(forgetful(1).put_root("r", Revision::NONE, value("two")).await);
    is_unknown(forgetful(1).put_root("r", Revision::NONE, value("one")).await);
    is_unknown(forgetful(1).delete_root("r", read.version).await);
    assert_eq!(forgetful(0).root("r").await.unwrap(), None);
    assert_eq!(forgetful(0).put_root("r", Revision::NONE, value("three")).await, Ok(Revision(3)));
    let conflict = forgetful(0).put_root("r", Revision::NONE, value("four")).await;
    assert!(matches!(conflict, Err(CoordinatorError::Conflict { current: Revision(3), .. })), "{conflict:?}");
}

#[tokio::test]
async fn a_change_that_certainly_did_not_begin_is_asked_for_again() {
    let (net, _keep) = in_process(TTL).await;
    // The second request is lost on its way.
    let lossy = Lossy { net, calls: AtomicU64::new(1) };
    let coordinator = RemoteCoordinator::new(Arc::new(lossy), at(), PATIENCE);
    assert_eq!(coordinator.put_root("r", Revision::NONE, RootValue::default()).await, Ok(Revision(1)));
}

/// A journal that takes everything and says that nothing is durable.
struct Broken;

#[async_trait]
impl Log for Broken {
    fn append(&self, _payloads: &[Vec<u8>]) -> Result<LogPosition, LogError> {
        Ok(LogPosition(1))
    }

    async fn wait_durable(&self, _position: LogPosition) -> Result<(), LogError> {
        Err(LogError("the disk is gone".to_owned()))
    }
}

#[tokio::test]
async fn what_a_coordinator_did_that_has_stopped_is_not_known() {
    let embedded = EmbeddedCoordinator::start(CoordinatorCore::new(TTL), Arc::new(Broken), Arc::new(BootClock), None);
    let stopped: Arc<dyn Coordinator> = Arc::new(embedded);
    let net = InProcessNet::new(InProcessLimits::default());
    let _served = net.serve(at(), Arc::new(ServiceTable::new().service(SERVICE, service(&stopped))));
    let transport = Arc::new(net.transport(NodeId::new("n1")));
    let remote = RemoteCoordinator::new(transport, at(), Duration::from_millis(100));
    for result in [
        remote.put_root("r", Revision::NONE, RootValue::default()).await.map(drop),
        remote.allocate("x", 1).await.map(drop),
        remote.snapshot().await.map(drop),
        remote.watch(Revision::NONE).await.map(drop),
    ] {
        assert!(matches!(result, Err(CoordinatorError::Unavailable { .. })), "{result:?}");
    }
    let here = EmbeddedCoordinator::start(CoordinatorCore::new(TTL), Arc::new(Broken), Arc::new(BootClock), None);
    let first = here.put_root("r", Revision::NONE, RootValue::default()).await;
    assert!(matches!(first, Err(CoordinatorError::Unavailable { .. })), "it may be durable: {first:?}");
    let here = stopped.put_root("r", Revision::NONE, RootValue::default()).await;
    assert!(matches!(here, Err(CoordinatorError::Stopped { .. })), "{here:?}");
}

#[tokio::test]
async fn a_long_batch_comes_to_watchers_as_a_whole() {
    let (net, _keep) = in_process(TTL).await;
    let coordinator = RemoteCoordinator::new(net, at(), PATIENCE);
    let mut version = Revision::NONE;
    for _ in 0..100 {
        let root =
            |number| RootChange { key: format!("r/{number}"), expected: version, value: Some(RootValue::default()) };
        let batch = Batch { roots: (0..MAX_BATCH_RECORDS).map(root).collect(), ..Batch::default() };
        version = coordinator.apply(&batch).await.unwrap();
    }
    let changes = coordinator.watch(Revision::NONE).await.unwrap().take(100).collect::<Vec<_>>().await;
    for (number, change) in (1..).zip(changes) {
        let change = change.unwrap();
        assert_eq!((change.revision, change.what.len()), (Revision(number), MAX_BATCH_RECORDS));
    }
}

#[tokio::test]
async fn ids_whose_reply_was_lost_are_nobodys() {
    let (net, _keep) = in_process(TTL).await;
    let forgetful = |loses| forgetful(&net, loses);
    assert_eq!(forgetful(1).allocate("x", 10).await.unwrap(), 11..21);
    assert_eq!(forgetful(0).allocate("x", 1).await.unwrap(), 21..22);
}

#[tokio::test]
async fn a_coordinator_that_does_not_answer_is_said_to_be_unavailable_when_patience_ends() {
    let (net, keep) = in_process(TTL).await;
    let coordinator = RemoteCoordinator::new(net, at(), Duration::from_millis(100));
    let mut changes = coordinator.watch(Revision::NONE).await.unwrap();
    drop(keep);
    assert!(matches!(coordinator.snapshot().await, Err(CoordinatorError::Unavailable { .. })));
    assert!(matches!(coordinator.watch(Revision::NONE).await, Err(CoordinatorError::Unavailable { .. })));
    assert!(matches!(changes.next().await, Some(Err(CoordinatorError::Unavailable { .. }))));
    assert!(changes.next().await.is_none());
}

#[tokio::test]
async fn long_histories_come_in_parts_and_whole() {
    let (net, _keep) = in_process(TTL).await;
    let coordinator = RemoteCoordinator::new(net, at(), PATIENCE);
    let mut version = Revision::NONE;
    for number in 0..12_u8 {
        version = coordinator.put_root("r", version, RootValue(vec![number; 1 << 20])).await.unwrap();
    }
    let changes = coordinator.watch(Revision::NONE).await.unwrap().take(12).collect::<Vec<_>>().await;
    let revisions: Vec<_> = changes.into_iter().map(|change| change.unwrap().revision).collect();
    assert_eq!(revisions, (1..=12).map(Revision).collect::<Vec<_>>());
}

/// So many shards and roots as no frame holds, in batches.
pub(crate) async fn fill(coordinator: &dyn Coordinator, shards: usize, roots: usize, value: usize) {
    let shard = |number| Transition {
        shard: ShardId::new(format!("tenants/{number:05}")),
        expected: Revision::NONE,
        record: ShardRecord::retired(OwnerEpoch::NONE),
        by: None,
    };
    let root = |number: usize| RootChange {
        key: format!("roots/{number:05}"),
        expected: Revision::NONE,
        value: Some(RootValue(vec![number as u8; value])),
    };
    for from in (0..shards).step_by(MAX_BATCH_RECORDS) {
        let transitions = (from..shards.min(from + MAX_BATCH_RECORDS)).map(shard).collect();
        coordinator.apply(&Batch { transitions, ..Batch::default() }).await.unwrap();
    }
    let at_once = MAX_BATCH_RECORDS.min((1 << 20) / value);
    for from in (0..roots).step_by(at_once) {
        let roots = (from..roots.min(from + at_once)).map(root).collect();
        coordinator.apply(&Batch { roots, ..Batch::default() }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_no_frame_holds_comes_in_parts_of_one_revision() {
    let journal = Options::disk(SimDisk::new(1) as Arc<_>);
    let options = EmbeddedOptions { ttl: LONG_TTL, clock: Arc::new(BootClock), guard: None };
    let embedded: Arc<dyn Coordinator> =
        Arc::new(EmbeddedCoordinator::open(journal, NodeEpoch(1), options).await.unwrap());
    embedded.register(&spec("n1", 1)).await.unwrap();
    // More than 20 MiB of values.
    fill(&*embedded, 5_000, 20_000, 1_100).await;
    let services = Arc::new(ServiceTable::new().service(SERVICE, service(&embedded)));
    let server = TcpServer::bind("127.0.0.1:0", at(), services, TcpConfig::default()).await.unwrap();
    let addresses = Arc::new(Addresses::default());
    addresses.set(at(), server.local_address().to_string());
    let transport = Arc::new(TcpTransport::new(NodeId::new("n1"), addresses, TcpConfig::default()));
    let remote = RemoteCoordinator::new(transport, at(), PATIENCE);
    let snapshot = remote.snapshot().await.unwrap();
    assert_eq!((snapshot.nodes.len(), snapshot.shards.len(), snapshot.roots.len()), (1, 5_000, 20_000));
    assert!(snapshot == embedded.snapshot().await.unwrap(), "it is another one");
    // While somebody writes, each is one that was: what changes together is together in it.
    let pair = |expected, number: u64| {
        let value = || Some(RootValue(number.to_le_bytes().to_vec()));
        let root = |key: &str| RootChange { key: key.to_owned(), expected, value: value() };
        Batch { roots: vec![root("first"), root("zeroth")], ..Batch::default() }
    };
    let mut version = embedded.apply(&pair(Revision::NONE, 0)).await.unwrap();
    let begin = version;
    let writer = {
        let embedded = Arc::clone(&embedded);
        tokio::spawn(async move {
            for number in 1.. {
                version = embedded.apply(&pair(version, number)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    };
    for _ in 0..4 {
        let snapshot = remote.snapshot().await.unwrap();
        let pair: Vec<_> = snapshot.roots.iter().filter(|(key, _)| !key.starts_with("roots/")).collect();
        assert!(pair.len() == 2 && pair[0].1 == pair[1].1, "{pair:?}");
    }
    writer.abort();
    assert!(embedded.root("first").await.unwrap().unwrap().version > begin, "nothing was written meanwhile");
}

#[tokio::test]
async fn many_who_begin_at_once_have_a_whole_snapshot_each() {
    let (net, _keep) = in_process(TTL).await;
    let coordinator = RemoteCoordinator::new(Arc::clone(&net), at(), PATIENCE);
    fill(&coordinator, 0, 12, 1 << 20).await;
    // Each at a revision of its own; who finds no place waits.
    let asking = (0..20).map(|number| {
        let coordinator = &coordinator;
        async move {
            coordinator.put_root(&format!("x/{number}"), Revision::NONE, RootValue::default()).await.unwrap();
            coordinator.snapshot().await
        }
    });
    for snapshot in futures::future::join_all(asking).await {
        let snapshot = snapshot.unwrap();
        assert!(
            snapshot
                .roots
                .iter()
                .map(|(key, _)| key.clone())
                .filter(|key| key.starts_with("roots/"))
                .eq((0..12).map(|number| format!("roots/{number:05}")))
        );
    }
}
