//! A coordinator over rpc: the cases of every coordinator over TCP, and over a network that loses what it carries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_journal::Options;
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::remote::{RemoteCoordinator, SERVICE, service};
use savanna_ownership::{
    Batch, BootClock, Coordinator, CoordinatorError, MAX_BATCH_RECORDS, Revision, RootChange, RootValue,
};
use savanna_rpc::{
    Addresses, Delivery, InProcessLimits, InProcessNet, Request, RpcError, Served, Service, ServiceTable, TcpConfig,
    TcpServer, TcpTransport, Transport,
};
use tempfile::TempDir;

use crate::suite::{LONG_TTL, suite};

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
        Arc::new(EmbeddedCoordinator::open(journal, OwnerEpoch(1), options).await.unwrap());
    let services = ServiceTable::new().service(SERVICE, service(&coordinator));
    (Arc::new(services), directory)
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
        let server = TcpServer::bind("127.0.0.1:0", at(), service, TcpConfig::default()).await.unwrap();
        let addresses = Arc::new(Addresses::default());
        addresses.set(at(), server.local_address().to_string());
        let transport = TcpTransport::new(NodeId::new("n1"), addresses, TcpConfig::default());
        Some((Arc::new(RemoteCoordinator::new(Arc::new(transport), at(), PATIENCE)), (server, directory)))
    }

    suite!(start);
    suite!(start_with_long_leases: random_batches_are_applied_as_the_model_says,);
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
        Some((Arc::new(RemoteCoordinator::new(transport, at(), PATIENCE)), keep))
    }

    suite!(start);
    suite!(start_with_long_leases: random_batches_are_applied_as_the_model_says,);
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
async fn a_change_whose_reply_was_lost_is_done_once() {
    let (net, _keep) = in_process(TTL).await;
    let forgetful = |loses| forgetful(&net, loses);
    let value = |text: &str| RootValue(text.as_bytes().to_vec());
    let version = forgetful(1).put_root("r", Revision::NONE, value("one")).await.unwrap();
    let read = forgetful(0).root("r").await.unwrap().unwrap();
    assert_eq!((read.version, &read.value), (version, &value("one")));
    assert_eq!(version, Revision(1), "it was written once");
    // Another's value is not taken for its own.
    let conflict = forgetful(1).put_root("r", Revision::NONE, value("two")).await;
    assert!(matches!(conflict, Err(CoordinatorError::Conflict { current: Revision(1), .. })), "{conflict:?}");
    forgetful(2).delete_root("r", version).await.unwrap();
    assert_eq!(forgetful(0).root("r").await.unwrap(), None);
}

#[tokio::test]
async fn a_batch_whose_reply_was_lost_is_done_once_and_one_that_is_done_in_part_is_not_its_own() {
    let (net, _keep) = in_process(TTL).await;
    let forgetful = |loses| forgetful(&net, loses);
    let root = |key: &str, expected, text: &str| RootChange {
        key: key.to_owned(),
        expected,
        value: Some(RootValue(text.as_bytes().to_vec())),
    };
    let first =
        Batch { transitions: Vec::new(), roots: vec![root("r", Revision::NONE, "1"), root("s", Revision::NONE, "1")] };
    let version = forgetful(2).apply(&first).await.unwrap();
    assert_eq!(version, Revision(1), "it was written once");
    // Both roots come to be as proposed, but not by one change.
    let second = Batch { transitions: Vec::new(), roots: vec![root("r", version, "2"), root("s", version, "2")] };
    forgetful(0).apply(&root("r", version, "2").into()).await.unwrap();
    forgetful(0).apply(&root("s", version, "2").into()).await.unwrap();
    let conflict = forgetful(1).apply(&second).await;
    assert!(matches!(conflict, Err(CoordinatorError::Conflict { .. })), "{conflict:?}");
}

#[tokio::test]
async fn a_long_batch_comes_to_watchers_as_a_whole() {
    let (net, _keep) = in_process(TTL).await;
    let coordinator = RemoteCoordinator::new(net, at(), PATIENCE);
    let mut version = Revision::NONE;
    for _ in 0..100 {
        let root =
            |number| RootChange { key: format!("r/{number}"), expected: version, value: Some(RootValue::default()) };
        let batch = Batch { transitions: Vec::new(), roots: (0..MAX_BATCH_RECORDS).map(root).collect() };
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
