//! The keys engine across a network: the same handle, with requests and replies sent over rpc.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::NodeId;
use savanna_keys::cluster::ClusterNode;
use savanna_keys::group::{GroupReply, GroupRequest};
use savanna_keys::handle::{Answer, HandleError, KeysHandle, KeysNodes, KeysReply, KeysRequest, SharedKeysHandle};
use savanna_rpc::{Delivery, Method, MethodTable, RpcError, Service, Transport};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the answer to something about a group may take: keys that somebody has are waited for about as long.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);

/// One request to the keys engine. Counting twice is not the same as once, so it is never repeated by itself.
struct CallKeys;

impl Method for CallKeys {
    const NAME: &'static str = "keys/call.1";
    const IDEMPOTENT: bool = false;
    type Request = KeysRequest;
    type Reply = Result<KeysReply, HandleError>;
}

/// What nodes ask each other about groups of keys that are at several of them. It is numbered, so that it may be asked again.
struct AskAboutGroup;

impl Method for AskAboutGroup {
    const NAME: &'static str = "keys/group.1";
    const IDEMPOTENT: bool = true;
    type Request = GroupRequest;
    type Reply = Result<GroupReply, HandleError>;
}

/// Where clients of clusters reach a node, if they do.
struct TellClusterPort;

impl Method for TellClusterPort {
    const NAME: &'static str = "keys/cluster_port.1";
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Option<ClusterNode>;
}

/// Offers an engine to other nodes; clients of clusters reach it at `cluster_port`.
pub fn serve_keys(engine: SharedKeysHandle, cluster_port: Option<ClusterNode>) -> Arc<dyn Service> {
    Arc::new(keys_methods(engine, cluster_port))
}

/// What other nodes ask of an engine.
pub fn keys_methods(engine: SharedKeysHandle, cluster_port: Option<ClusterNode>) -> MethodTable {
    let groups = Arc::clone(&engine);
    let table = MethodTable::new().method(PhantomData::<AskAboutGroup>, move |_, request| {
        let (sender, receiver) = oneshot::channel();
        groups.group(request, Answer::new(|outcome| drop(sender.send(outcome))));
        async move { Ok(receiver.await.unwrap_or_else(|_| Err(unavailable("it ended before it answered", true)))) }
    });
    let table = table.method(PhantomData::<CallKeys>, move |_, request| {
        let (sender, receiver) = oneshot::channel();
        // Nobody listens any more if the asker has gone.
        engine.call(Arc::new(request), Answer::new(|outcome| drop(sender.send(outcome))));
        async move { Ok(receiver.await.unwrap_or_else(|_| Err(unavailable("it ended before it answered", true)))) }
    });
    table.method(PhantomData::<TellClusterPort>, move |_, ()| {
        let cluster_port = cluster_port.clone();
        async move { Ok(cluster_port) }
    })
}

/// The engines of other nodes.
#[derive(Clone)]
pub struct RemoteKeys {
    transport: Arc<dyn Transport>,
    runtime: Handle,
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteKeys").finish_non_exhaustive()
    }
}

impl RemoteKeys {
    /// Engines that are reached over `transport` by tasks of `runtime`.
    pub fn new(transport: Arc<dyn Transport>, runtime: Handle) -> Self {
        Self { transport, runtime }
    }

    /// Asks a node where clients of clusters reach it.
    pub(crate) async fn cluster_port_of(&self, node: &NodeId) -> Result<Option<ClusterNode>, RpcError> {
        savanna_rpc::call::<TellClusterPort>(self.transport.as_ref(), node, &(), PATIENCE).await
    }
}

impl KeysNodes for RemoteKeys {
    fn at(&self, node: &NodeId) -> SharedKeysHandle {
        Arc::new(RemoteEngine { nodes: self.clone(), node: node.clone() })
    }
}

/// The engine of one other node.
#[derive(Debug)]
struct RemoteEngine {
    nodes: RemoteKeys,
    node: NodeId,
}

impl KeysHandle for RemoteEngine {
    fn call(&self, request: Arc<KeysRequest>, answer: Answer) {
        let (transport, node) = (Arc::clone(&self.nodes.transport), self.node.clone());
        self.nodes.runtime.spawn(async move {
            let reply = savanna_rpc::call::<CallKeys>(transport.as_ref(), &node, &request, PATIENCE).await;
            answer.give(reply.unwrap_or_else(|error| Err(handle_error(error))));
        });
    }

    fn group(&self, request: GroupRequest, answer: Answer<GroupReply>) {
        let (transport, node) = (Arc::clone(&self.nodes.transport), self.node.clone());
        self.nodes.runtime.spawn(async move {
            let reply = savanna_rpc::call::<AskAboutGroup>(transport.as_ref(), &node, &request, GROUP_PATIENCE).await;
            answer.give(reply.unwrap_or_else(|error| Err(handle_error(error))));
        });
    }
}

fn handle_error(error: RpcError) -> HandleError {
    match error {
        RpcError::Moved { to, epoch } => HandleError::Moved { to, epoch },
        RpcError::Frozen { retry_after } => HandleError::Frozen { retry_after_ms: retry_after.as_millis() as u64 },
        // What is refused now is refused later: whoever asks is to hear of it.
        other => {
            let may_have_run = !other.is_retriable() || other.delivery() == Delivery::Unknown;
            unavailable(&other.to_string(), may_have_run)
        }
    }
}

fn unavailable(reason: &str, may_have_run: bool) -> HandleError {
    HandleError::Unavailable { reason: reason.to_owned(), may_have_run }
}
