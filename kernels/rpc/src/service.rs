//! What a node offers and how it is asked: services, methods with types, and the transport between them.

use std::{collections::BTreeMap, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use savanna_epoch::NodeId;
use serde::{Serialize, de::DeserializeOwned};

use crate::{RequestHead, RpcError, ShardAt};

/// What a handler knows of a request besides its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// The node that asks.
    pub from: NodeId,
    /// What for.
    pub head: RequestHead,
    /// How long the asker still waits. A handler that runs longer is dropped at its next await point.
    pub time_left: Duration,
}

/// Something that answers requests.
#[async_trait]
pub trait Service: Send + Sync {
    /// Answers one request. Dropped when the caller cancels or its time is over, so everything between two await points
    /// is done wholly or not at all.
    ///
    /// # Errors
    /// Any [`RpcError`]; it reaches the caller as it is.
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError>;
}

/// One request to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub head: RequestHead,
    /// The method's request, encoded.
    pub body: Bytes,
    /// How long the caller waits.
    pub timeout: Duration,
}

impl Request {
    /// A request of method `M`, not bound to a shard.
    ///
    /// # Errors
    /// [`RpcError::Malformed`] if the value cannot be encoded.
    pub fn of<M: Method>(request: &M::Request, timeout: Duration) -> Result<Self, RpcError> {
        let head = RequestHead { method: M::NAME.to_owned(), shard: None, idempotent: M::IDEMPOTENT };
        Ok(Self { head, body: encode_value(M::NAME, request)?, timeout })
    }

    /// The same request, sent to a shard's owner.
    #[must_use]
    pub fn to_shard(mut self, shard: ShardAt) -> Self {
        self.head.shard = Some(shard);
        self
    }
}

/// A way to reach other nodes.
///
/// Every transport promises *at most once*: a handler starts once or never for one `call`, and a call always ends, at the
/// latest when its time is over. Dropping the returned future cancels the request.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// The handler's own error, or [`RpcError::TimedOut`], [`RpcError::Overloaded`], [`RpcError::Unreachable`],
    /// [`RpcError::Malformed`] (a frame above the limit), [`RpcError::Failed`] (the handler panicked).
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError>;
}

/// A method: its name, what it takes and what it gives.
///
/// The values are encoded with postcard, which does not describe itself: a changed type is a new method
/// (`streams/invoke.2`). An error that belongs to the method is part of its reply (`type Reply = Result<T, E>`).
pub trait Method {
    /// `service/method`.
    const NAME: &'static str;
    /// Whether doing it twice is the same as doing it once. Only then is it sent again when its fate is unknown.
    const IDEMPOTENT: bool;
    /// What the caller sends.
    type Request: Serialize + DeserializeOwned + Send;
    /// What the handler answers.
    type Reply: Serialize + DeserializeOwned + Send;
}

/// Asks `to` for method `M` over `transport`.
///
/// # Errors
/// As [`Transport::call`], and [`RpcError::Malformed`] if a value cannot be encoded or decoded.
pub async fn call<M: Method>(
    transport: &dyn Transport,
    to: &NodeId,
    request: &M::Request,
    timeout: Duration,
) -> Result<M::Reply, RpcError> {
    let reply = transport.call(to, Request::of::<M>(request, timeout)?).await?;
    decode_value(M::NAME, &reply)
}

/// Encodes a method's value.
///
/// # Errors
/// [`RpcError::Malformed`] if postcard cannot represent it (a sequence without a length, for example).
pub fn encode_value<T: Serialize>(method: &str, value: &T) -> Result<Bytes, RpcError> {
    postcard::to_stdvec(value)
        .map(Bytes::from)
        .map_err(|error| RpcError::Malformed { reason: format!("a value of {method} cannot be encoded: {error}") })
}

/// Decodes a method's value; bytes left over are an error.
///
/// # Errors
/// [`RpcError::Malformed`] with what postcard found.
pub fn decode_value<T: DeserializeOwned>(method: &str, bytes: &[u8]) -> Result<T, RpcError> {
    let reason = match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => return Ok(value),
        Ok((_, rest)) => format!(
            "expected one value of {method}, got {} bytes more: do both nodes run the same release?",
            rest.len()
        ),
        Err(error) => {
            format!("{} bytes are no value of {method}: {error}: do both nodes run the same release?", bytes.len())
        }
    };
    Err(RpcError::Malformed { reason })
}

type Handler = Box<dyn Fn(RequestContext, Bytes) -> BoxFuture<'static, Result<Bytes, RpcError>> + Send + Sync>;

/// A [`Service`] put together from typed methods.
#[derive(Default)]
pub struct MethodTable {
    handlers: BTreeMap<&'static str, Handler>,
}

impl MethodTable {
    /// A table without methods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method. The last handler given for a name counts.
    #[must_use]
    pub fn method<M, F, Fut>(mut self, _method: PhantomData<M>, handler: F) -> Self
    where
        M: Method + 'static,
        F: Fn(RequestContext, M::Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Reply, RpcError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let erased: Handler = Box::new(move |context, body| {
            let handler = Arc::clone(&handler);
            Box::pin(async move {
                let request = decode_value::<M::Request>(M::NAME, &body)?;
                let reply = handler(context, request).await?;
                encode_value(M::NAME, &reply)
            })
        });
        self.handlers.insert(M::NAME, erased);
        self
    }

    /// The names of the methods, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.handlers.keys().copied()
    }
}

#[async_trait]
impl Service for MethodTable {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        match self.handlers.get(context.head.method.as_str()) {
            Some(handler) => handler(context, body).await,
            None => Err(RpcError::Refused {
                reason: format!(
                    "method {:?} is not offered here; offered: {}",
                    context.head.method,
                    self.names().collect::<Vec<_>>().join(", ")
                ),
            }),
        }
    }
}

/// The services of one node by the first part of the method's name.
#[derive(Default)]
pub struct ServiceTable {
    services: BTreeMap<String, Arc<dyn Service>>,
}

impl ServiceTable {
    /// A node that offers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service: it gets the methods named `name/..`.
    #[must_use]
    pub fn service(mut self, name: impl Into<String>, service: Arc<dyn Service>) -> Self {
        self.services.insert(name.into(), service);
        self
    }
}

#[async_trait]
impl Service for ServiceTable {
    async fn handle(&self, context: RequestContext, body: Bytes) -> Result<Bytes, RpcError> {
        let name = context.head.method.split('/').next().unwrap_or_default();
        match self.services.get(name) {
            Some(service) => service.handle(context, body).await,
            None => Err(RpcError::Refused {
                reason: format!(
                    "service {name:?} does not run on this node; it runs: {}",
                    self.services.keys().cloned().collect::<Vec<_>>().join(", ")
                ),
            }),
        }
    }
}
