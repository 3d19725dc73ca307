//! The streams engine across a network: the same handle, with requests and replies sent over rpc.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use savanna_epoch::NodeId;
use savanna_rpc::{Method, MethodTable, RpcError, Service, Transport};
use savanna_streams_api::handle::{
    HandleError, SessionId, SharedStreamHandle, StreamHandle, StreamReply, StreamRequest,
};

/// How long a request may take beyond the time that it asks the engine to wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// One request to the streams engine. Executing a statement twice is not the same as once, so it is never repeated.
struct CallStreams;

impl Method for CallStreams {
    const NAME: &'static str = "streams/call.1";
    const IDEMPOTENT: bool = false;
    type Request = StreamRequest;
    type Reply = Result<StreamReply, HandleError>;
}

/// Offers an engine to other nodes.
pub fn serve_streams(engine: SharedStreamHandle) -> Arc<dyn Service> {
    FrontSessions::new(engine).service()
}

/// An engine that other nodes ask, and the sessions that it has of their clients: they end with these nodes.
pub struct FrontSessions {
    engine: SharedStreamHandle,
    open: Mutex<HashMap<NodeId, HashSet<SessionId>>>,
}

impl fmt::Debug for FrontSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontSessions").field("nodes", &self.open.lock().len()).finish_non_exhaustive()
    }
}

impl FrontSessions {
    /// None yet.
    pub fn new(engine: SharedStreamHandle) -> Arc<Self> {
        Arc::new(Self { engine, open: Mutex::default() })
    }

    /// What other nodes ask.
    pub fn service(self: &Arc<Self>) -> Arc<dyn Service> {
        let sessions = Arc::clone(self);
        Arc::new(MethodTable::new().method(PhantomData::<CallStreams>, move |context, request| {
            let (sessions, from) = (Arc::clone(&sessions), context.from.clone());
            async move { Ok(sessions.call(from, request).await) }
        }))
    }

    async fn call(&self, from: NodeId, request: StreamRequest) -> Result<StreamReply, HandleError> {
        let closed = match &request {
            StreamRequest::CloseSession { session } => Some(*session),
            _ => None,
        };
        let reply = self.engine.call(request).await;
        let mut open = self.open.lock();
        match (&reply, closed) {
            (Ok(StreamReply::Session { session }), _) => {
                open.entry(from).or_default().insert(*session);
            }
            (_, Some(session)) => {
                if let Some(of_node) = open.get_mut(&from) {
                    of_node.remove(&session);
                }
                open.retain(|_, of_node| !of_node.is_empty());
            }
            _ => {}
        }
        drop(open);
        reply
    }

    /// Ends the sessions of a node that is gone, and with each what its client waited for.
    pub async fn lose(&self, front: &NodeId) {
        let lost = self.open.lock().remove(front).unwrap_or_default();
        for session in lost {
            if let Err(error) = self.engine.call(StreamRequest::CloseSession { session }).await {
                tracing::debug!(%error, %front, "a session of a node that is gone could not be closed");
            }
        }
    }
}

/// An engine on another node.
pub struct RemoteStreams {
    transport: Arc<dyn Transport>,
    node: NodeId,
}

impl fmt::Debug for RemoteStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStreams").field("node", &self.node).finish_non_exhaustive()
    }
}

impl RemoteStreams {
    /// The engine of `node`, reached over `transport`.
    pub fn new(transport: Arc<dyn Transport>, node: NodeId) -> Self {
        Self { transport, node }
    }
}

#[async_trait]
impl StreamHandle for RemoteStreams {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        let wait = match &request {
            StreamRequest::Fetch { wait_ms, .. } => Duration::from_millis(*wait_ms),
            _ => Duration::ZERO,
        };
        match savanna_rpc::call::<CallStreams>(self.transport.as_ref(), &self.node, &request, PATIENCE + wait).await {
            Ok(reply) => reply,
            Err(RpcError::Moved { to, epoch }) => Err(HandleError::Moved { to, epoch }),
            Err(RpcError::Frozen { retry_after }) => {
                Err(HandleError::Frozen { retry_after_ms: retry_after.as_millis() as u64 })
            }
            Err(other) => Err(HandleError::Unavailable(other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_rpc::{InProcessLimits, InProcessNet};

    use super::*;

    /// Opens sessions, and remembers which were closed.
    #[derive(Debug, Default)]
    struct Engine(Mutex<(u64, Vec<u64>)>);

    #[async_trait]
    impl StreamHandle for Engine {
        async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
            let mut state = self.0.lock();
            Ok(match request {
                StreamRequest::OpenSession { .. } => {
                    state.0 += 1;
                    StreamReply::Session { session: SessionId(state.0) }
                }
                StreamRequest::CloseSession { session } => {
                    state.1.push(session.0);
                    StreamReply::Done { tag: "CLOSE SESSION".to_owned() }
                }
                _ => StreamReply::Queries { queries: Vec::new() },
            })
        }
    }

    #[tokio::test]
    async fn sessions_end_with_the_node_that_their_clients_are_connected_to_and_those_of_others_go_on() {
        let (engine, net) = (Arc::<Engine>::default(), InProcessNet::new(InProcessLimits::default()));
        let sessions = FrontSessions::new(Arc::clone(&engine) as _);
        let _served = net.serve(NodeId::new("owner"), sessions.service());
        let front = |name: &str| RemoteStreams::new(Arc::new(net.transport(NodeId::new(name))), NodeId::new("owner"));
        let (n1, n2) = (front("n1"), front("n2"));
        for (number, front) in [(1, &n1), (2, &n2), (3, &n1), (4, &n1)] {
            let opened = front.call(StreamRequest::OpenSession { user: "ann".to_owned() }).await;
            assert!(matches!(opened, Ok(StreamReply::Session { session }) if session.0 == number));
        }
        n1.call(StreamRequest::CloseSession { session: SessionId(3) }).await.unwrap();
        sessions.lose(&NodeId::new("n9")).await;
        assert_eq!(engine.0.lock().1, [3]);
        sessions.lose(&NodeId::new("n1")).await;
        let mut closed = engine.0.lock().1.clone();
        closed.sort_unstable();
        assert_eq!(closed, [1, 3, 4]);
        sessions.lose(&NodeId::new("n1")).await;
        n2.call(StreamRequest::CloseSession { session: SessionId(2) }).await.unwrap();
        assert_eq!((engine.0.lock().1.len(), sessions.open.lock().len()), (4, 0), "each once, and nothing is kept");
    }
}
