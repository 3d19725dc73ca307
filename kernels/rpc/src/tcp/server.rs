//! The answering side: accepts connections and runs a [`Service`] for each.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::BytesMut;
use savanna_epoch::NodeId;
use tokio::{
    net::{TcpListener, TcpStream, ToSocketAddrs},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use super::{
    TcpConfig,
    connection::{Connection, End, FrameStream},
};
use crate::{Cluster, Frame, Message, RequestId, RpcError, Service, frame};

/// A listening node. It stops, and its connections close, when this is dropped.
pub struct TcpServer {
    address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl TcpServer {
    /// Listens at `address` (port 0: any free one) and answers as `node`, which is in no cluster.
    ///
    /// # Errors
    /// When the address cannot be bound, or is not on the loopback.
    pub async fn bind(
        address: impl ToSocketAddrs,
        node: NodeId,
        service: Arc<dyn Service>,
        config: TcpConfig,
    ) -> io::Result<Self> {
        Self::within(Cluster::default(), address, node, service, config).await
    }

    /// Listens at `address` (port 0: any free one) and answers as `node` of a cluster.
    ///
    /// # Errors
    /// When the address cannot be bound, or is not on the loopback and the cluster has no secret.
    pub async fn within(
        cluster: Cluster,
        address: impl ToSocketAddrs,
        node: NodeId,
        service: Arc<dyn Service>,
        config: TcpConfig,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        if !address.ip().to_canonical().is_loopback() && !cluster.has_secret() {
            let reason =
                format!("{address} is not on the loopback: nodes that listen there need a cluster with a secret");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        let accepting = tokio::spawn(accept(listener, Greeter { node, cluster }, service, config));
        Ok(Self { address, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, closes the connections and waits until their handlers are dropped.
    pub async fn shut_down(mut self) {
        self.accepting.abort();
        // The only end an aborted task has.
        let _cancelled = (&mut self.accepting).await;
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Who answers.
#[derive(Clone)]
struct Greeter {
    node: NodeId,
    cluster: Cluster,
}

async fn accept(listener: TcpListener, greeter: Greeter, service: Arc<dyn Service>, config: TcpConfig) {
    let room = Arc::new(Semaphore::new(config.connections_max));
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, from)) => match Arc::clone(&room).try_acquire_owned() {
                Ok(place) => {
                    let (greeter, service) = (greeter.clone(), Arc::clone(&service));
                    connections.spawn(async move {
                        let _place = place;
                        if let Err(reason) = serve(stream, &greeter, service, config).await {
                            tracing::debug!(%from, %reason, "connection closed");
                        }
                    });
                }
                Err(_full) => turn_away(&stream, config),
            },
            Err(error) => {
                // Out of descriptors, as a rule: those that close give some back.
                tracing::warn!(%error, "a connection could not be accepted; trying again in 50ms");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    greeter: &Greeter,
    service: Arc<dyn Service>,
    config: TcpConfig,
) -> Result<(), String> {
    let mut stream = FrameStream::new(stream, config.frame_bytes_max);
    let greeted = timeout(config.connect_timeout, greeter.greet(&mut stream)).await;
    let peer = greeted.map_err(|_elapsed| format!("no hello within {:?}", config.connect_timeout))??;
    match Connection::new(stream, peer, Some(service), config).run(None, None).await {
        End::Broken(reason) => Err(reason),
        End::Idle | End::Dropped => Ok(()),
    }
}

impl Greeter {
    async fn greet(&self, stream: &mut FrameStream) -> Result<NodeId, String> {
        let greeted = self.try_greet(stream).await;
        if let Err(Refused { reason, tell: true }) = &greeted {
            stream.send(&Frame::answer(RequestId(0), Err(RpcError::Refused { reason: reason.clone() }))).await?;
        }
        greeted.map_err(|refused| refused.reason)
    }

    async fn try_greet(&self, stream: &mut FrameStream) -> Result<NodeId, Refused> {
        let hello = match stream.receive().await.map_err(Refused::silently)?.message {
            Message::Hello(hello) => hello,
            other => return Err(Refused::silently(format!("expected a hello as the first frame, got {other:?}"))),
        };
        let answer = self.cluster.answer(&self.node, &hello).map_err(Refused::aloud)?;
        stream.send(&Frame::hello(answer.clone())).await.map_err(Refused::silently)?;
        if self.cluster.has_secret() {
            match stream.receive().await.map_err(Refused::silently)?.message {
                Message::Proof(proof) => self.cluster.verify(&hello, &answer, &proof).map_err(Refused::aloud)?,
                other => return Err(Refused::silently(format!("expected a proof behind the hello, got {other:?}"))),
            }
        }
        Ok(hello.from)
    }
}

/// Why there is no connection, and whether the other side is told.
struct Refused {
    reason: String,
    tell: bool,
}

impl Refused {
    const fn aloud(reason: String) -> Self {
        Self { reason, tell: true }
    }

    const fn silently(reason: String) -> Self {
        Self { reason, tell: false }
    }
}

/// Says why and closes, without waiting for a peer that does not read.
fn turn_away(stream: &TcpStream, config: TcpConfig) {
    let error =
        RpcError::Overloaded { what: "the set of connections".to_owned(), limit: config.connections_max as u64 };
    let mut bytes = BytesMut::new();
    if frame::encode(&Frame::answer(RequestId(0), Err(error)), config.frame_bytes_max, &mut bytes).is_ok() {
        // Best effort: the close that follows says the same, with less detail.
        let _unsent = stream.try_write(&bytes);
    }
}
