//! The streams engine across a network: the same handle, with requests and replies sent over rpc.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use savanna_epoch::NodeId;
use savanna_rpc::{Method, MethodTable, RpcError, Service, Transport};
use savanna_streams_api::handle::{HandleError, SharedStreamHandle, StreamHandle, StreamReply, StreamRequest};

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
    Arc::new(MethodTable::new().method(PhantomData::<CallStreams>, move |_, request| {
        let engine = Arc::clone(&engine);
        async move { Ok(engine.call(request).await) }
    }))
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
