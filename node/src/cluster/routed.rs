//! The engines of a cluster as the faces of any node reach them: each request goes to whoever owns the service by then.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_keys::cluster::ClusterNode;
use savanna_keys::handle::{
    Answer, HandleError as KeysError, KeysHandle, KeysNodes, KeysRequest, Owner, SharedKeysHandle,
};
use savanna_keys_host::Elsewhere;
use savanna_ownership::guard::LeaseGuard;
use savanna_rpc::{Route, Transport};
use savanna_streams_api::handle::{
    HandleError, SessionId, SharedStreamHandle, StreamHandle, StreamReply, StreamRequest,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::view::View;
use crate::remote::{RemoteKeys, RemoteStreams};

/// How long a command of keys is tried while nobody does it: longer than a lease lasts, and another owner needs to start.
pub(crate) const KEYS_PATIENCE: Duration = Duration::from_secs(15);
/// A service without an owner may have one after this time.
const OWNERLESS_MS: u64 = 50;
/// Before it is looked again whether the owner of keys is known.
const OWNER_PAUSE: Duration = Duration::from_millis(200);
/// How long a request to streams waits for an owner.
const STREAMS_PATIENCE: Duration = Duration::from_secs(15);

/// The keys of whoever owns them.
#[derive(Clone)]
struct RoutedKeys {
    shard: ShardId,
    view: View,
    nodes: RemoteKeys,
    /// Where clients of clusters reach the owner, as it has said.
    owner: Arc<RwLock<Option<Arc<ClusterNode>>>>,
}

impl fmt::Debug for RoutedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutedKeys").field("shard", &self.shard).finish_non_exhaustive()
    }
}

/// The keys of a cluster, for a face on a node that does not own them.
pub(crate) fn keys(view: View, transport: Arc<dyn Transport>, runtime: Handle) -> Elsewhere {
    let shard = ShardId::new("keys");
    // Nobody has this name: where a request goes is looked up for each.
    let owner = Owner { node: NodeId::new(&shard.0), epoch: OwnerEpoch::NONE };
    let nodes = RemoteKeys::new(transport, runtime.clone());
    let nodes = RoutedKeys { shard, view, nodes, owner: Arc::default() };
    runtime.spawn(ask_owners(
        nodes.view.clone(),
        nodes.shard.clone(),
        nodes.nodes.clone(),
        Arc::downgrade(&nodes.owner),
    ));
    Elsewhere { owner, nodes: Arc::new(nodes), patience: KEYS_PATIENCE }
}

/// Asks each owner of keys where clients of clusters reach it, until nobody wants to know.
async fn ask_owners(mut view: View, shard: ShardId, nodes: RemoteKeys, known: Weak<RwLock<Option<Arc<ClusterNode>>>>) {
    let mut of = None;
    while let Some(known) = known.upgrade() {
        let route = view.route(&shard).ok();
        if route != of {
            *known.write() = None;
            of = None;
            if let Some(route) = route
                && let Ok(node) = nodes.cluster_port_of(&route.node).await
            {
                *known.write() = node.map(Arc::new);
                of = Some(route);
            }
        }
        drop(known);
        // An owner that has just begun does not answer yet; a node that is gone has its view no more.
        if timeout(OWNER_PAUSE, view.changed()).await == Ok(false) {
            return;
        }
    }
}

impl KeysNodes for RoutedKeys {
    fn at(&self, _node: &NodeId) -> SharedKeysHandle {
        Arc::new(self.clone())
    }

    fn owner(&self) -> Option<Arc<ClusterNode>> {
        self.owner.read().clone()
    }
}

impl KeysHandle for RoutedKeys {
    fn call(&self, request: Arc<KeysRequest>, answer: Answer) {
        match self.view.route(&self.shard) {
            Ok(route) => self.nodes.at(&route.node).call(request, answer),
            Err(_) => answer.give(Err(KeysError::Frozen { retry_after_ms: OWNERLESS_MS })),
        }
    }
}

/// The streams of whoever owns them; those of this node without a network between.
///
/// Sessions end with their owner. Each engine counts its own, so faces know them by numbers that are given here.
pub(crate) struct RoutedStreams {
    node: NodeId,
    shard: ShardId,
    view: View,
    local: SharedStreamHandle,
    /// Whether those of this node may be told anything.
    guard: LeaseGuard,
    transport: Arc<dyn Transport>,
    sessions: Mutex<HashMap<SessionId, OpenSession>>,
    next: AtomicU64,
}

/// A session, as its owner knows it.
#[derive(Clone, Copy)]
struct OpenSession {
    epoch: OwnerEpoch,
    session: SessionId,
}

impl fmt::Debug for RoutedStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutedStreams").field("node", &self.node).finish_non_exhaustive()
    }
}

impl RoutedStreams {
    /// The streams of the cluster as `node` reaches them; `local` are those that it owns itself, if it does.
    pub(crate) fn new(
        node: NodeId,
        view: View,
        local: SharedStreamHandle,
        guard: LeaseGuard,
        transport: Arc<dyn Transport>,
    ) -> Arc<Self> {
        let shard = ShardId::new("streams");
        let (sessions, next) = (Mutex::default(), AtomicU64::new(1));
        Arc::new(Self { node, shard, view, local, guard, transport, sessions, next })
    }

    /// Waits for an owner.
    async fn owner(&self) -> Result<Route, HandleError> {
        let mut view = self.view.clone();
        let owned = view.until(|now| super::view::route(now, &self.shard).is_some());
        let nobody = |_| HandleError::Unavailable("no node runs streams at present; try again later".to_owned());
        timeout(STREAMS_PATIENCE, owned).await.map_err(nobody)?;
        self.view.route(&self.shard).map_err(|error| HandleError::Unavailable(error.to_string()))
    }

    async fn ask(&self, route: &Route, request: StreamRequest) -> Result<StreamReply, HandleError> {
        if route.node == self.node {
            if !self.guard.serving() {
                return Err(HandleError::Frozen { retry_after_ms: OWNERLESS_MS });
            }
            let reply = self.local.call(request).await;
            let late = "the lease of this node was not renewed in time; what was asked may have been done";
            return if self.guard.serving() { reply } else { Err(HandleError::Unavailable(late.to_owned())) };
        }
        RemoteStreams::new(Arc::clone(&self.transport), route.node.clone()).call(request).await
    }

    /// What is known of the session that a request is about, which is forgotten when it is closed.
    fn open_session(&self, request: &mut StreamRequest) -> Option<OpenSession> {
        let is_closed = matches!(request, StreamRequest::CloseSession { .. });
        let session = session_of(request)?;
        let mut sessions = self.sessions.lock();
        if is_closed { sessions.remove(session) } else { sessions.get(session).copied() }
    }

    /// Puts the owner's number of the session into a request.
    fn translate(request: &mut StreamRequest, known: Option<OpenSession>, route: &Route) -> Result<(), HandleError> {
        let Some(session) = session_of(request) else { return Ok(()) };
        match known {
            Some(open) if open.epoch == route.epoch => *session = open.session,
            Some(_) => {
                return Err(HandleError::Unavailable(
                    "the node that ran this session is gone, and its tables and queries with it; connect again"
                        .to_owned(),
                ));
            }
            // The owner says that there is no such session; it has none with this number.
            None => *session = SessionId(u64::MAX),
        }
        Ok(())
    }
}

#[async_trait]
impl StreamHandle for RoutedStreams {
    async fn call(&self, mut request: StreamRequest) -> Result<StreamReply, HandleError> {
        let known = self.open_session(&mut request);
        let deadline = Instant::now() + STREAMS_PATIENCE;
        loop {
            let route = self.owner().await?;
            let mut translated = request.clone();
            Self::translate(&mut translated, known, &route)?;
            match self.ask(&route, translated).await {
                Ok(StreamReply::Session { session }) => {
                    let number = SessionId(self.next.fetch_add(1, Ordering::Relaxed));
                    self.sessions.lock().insert(number, OpenSession { epoch: route.epoch, session });
                    return Ok(StreamReply::Session { session: number });
                }
                // Nothing was done: another node is the owner by now, or this one does not serve yet.
                Err(HandleError::Moved { .. } | HandleError::Frozen { .. }) if Instant::now() < deadline => {
                    sleep(Duration::from_millis(OWNERLESS_MS)).await;
                }
                reply => return reply,
            }
        }
    }
}

/// The session that a request is about.
const fn session_of(request: &mut StreamRequest) -> Option<&mut SessionId> {
    match request {
        StreamRequest::CloseSession { session }
        | StreamRequest::Describe { session, .. }
        | StreamRequest::Execute { session, .. }
        | StreamRequest::Fetch { session, .. }
        | StreamRequest::CloseCursor { session, .. } => Some(session),
        StreamRequest::OpenSession { .. }
        | StreamRequest::Split { .. }
        | StreamRequest::CancelQuery { .. }
        | StreamRequest::ListQueries => None,
    }
}

#[cfg(test)]
mod tests {
    use savanna_ownership::{BootClock, Clock as _, LeaseHolder, LeaseTerms, ShardRecord};
    use savanna_rpc::{InProcessLimits, InProcessNet};
    use tokio::sync::watch;

    use super::super::view::tests::{tenure, view};
    use super::*;

    /// An engine that has opened one session, and tells which session it is asked for.
    #[derive(Debug, Default)]
    struct Engine {
        /// So many requests are refused first.
        frozen: AtomicU64,
    }

    fn serving() -> LeaseGuard {
        let guard = LeaseGuard::new(Arc::new(BootClock));
        guard.publish(&LeaseHolder::new(LeaseTerms::default(), BootClock.now()));
        guard
    }

    #[async_trait]
    impl StreamHandle for Engine {
        async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
            let is_frozen = |count: u64| count.checked_sub(1);
            if self.frozen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_frozen).is_ok() {
                return Err(HandleError::Frozen { retry_after_ms: 1 });
            }
            Ok(match request {
                StreamRequest::OpenSession { .. } => StreamReply::Session { session: SessionId(77) },
                StreamRequest::Execute { session, .. } => StreamReply::Done { tag: session.0.to_string() },
                _ => StreamReply::Done { tag: "done".to_owned() },
            })
        }
    }

    #[tokio::test]
    async fn a_session_is_its_owners_and_ends_with_it() {
        let owned = |epoch| Arc::new(view(&[("streams", ShardRecord::serving(tenure("n1", 2), OwnerEpoch(epoch)))]));
        let (known, receiver) = watch::channel(owned(1));
        let transport = Arc::new(InProcessNet::new(InProcessLimits::default()).transport(NodeId::new("n1")));
        let (node, view, guard) = (NodeId::new("n1"), View::of(receiver), serving());
        let streams = RoutedStreams::new(node, view, Arc::new(Engine::default()), guard, transport);
        let open = async || match streams.call(StreamRequest::OpenSession { user: "ann".to_owned() }).await {
            Ok(StreamReply::Session { session }) => session,
            other => panic!("expected a session, came {other:?}"),
        };
        let execute = async |session| {
            let request = StreamRequest::Execute { session, sql: String::new(), parameters: Vec::new() };
            streams.call(request).await.map(|reply| format!("{reply:?}"))
        };
        let (first, second) = (open().await, open().await);
        assert_ne!(first, second, "two engines may give the same number");
        assert!(execute(first).await.unwrap().contains("77"));
        known.send_replace(owned(2));
        let gone = execute(first).await.unwrap_err();
        assert!(matches!(&gone, HandleError::Unavailable(reason) if reason.contains("connect again")), "{gone}");
        assert!(execute(open().await).await.unwrap().contains("77"));
        assert!(streams.call(StreamRequest::CloseSession { session: second }).await.is_err());
        assert!(execute(second).await.unwrap().contains(&u64::MAX.to_string()), "it is forgotten");
    }
    #[tokio::test]
    async fn who_owns_streams_and_does_not_serve_yet_is_waited_for_and_one_without_its_lease_tells_nothing() {
        let owned = view(&[("streams", ShardRecord::serving(tenure("n1", 2), OwnerEpoch(1)))]);
        let (known, receiver) = watch::channel(Arc::new(owned));
        let transport = Arc::new(InProcessNet::new(InProcessLimits::default()).transport(NodeId::new("n1")));
        let (guard, engine) = (serving(), Arc::new(Engine { frozen: AtomicU64::new(3) }));
        let streams = RoutedStreams::new(NodeId::new("n1"), View::of(receiver), engine, guard.clone(), transport);
        let open = async || match streams.call(StreamRequest::OpenSession { user: "ann".to_owned() }).await {
            Ok(StreamReply::Session { session }) => session,
            other => panic!("expected a session, came {other:?}"),
        };
        let session = open().await;
        known.send_replace(Arc::default());
        let soon = async |request| timeout(Duration::from_millis(200), streams.call(request)).await;
        assert!(soon(StreamRequest::CloseSession { session }).await.is_err(), "nobody owns them");
        assert!(streams.sessions.lock().is_empty(), "a session is forgotten when it is closed");
        guard.revoke();
        known.send_replace(Arc::new(view(&[("streams", ShardRecord::serving(tenure("n1", 2), OwnerEpoch(1)))])));
        assert!(soon(StreamRequest::ListQueries).await.is_err(), "it waits for a lease");
    }
}
