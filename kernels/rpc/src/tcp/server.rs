//! The answering side: accepts connections and runs a [`Service`] for each.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use savanna_epoch::NodeId;
use tokio::{
    net::{TcpListener, TcpStream, ToSocketAddrs},
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    task::JoinSet,
    time::timeout,
};

use super::{
    TcpConfig, TrafficFigures,
    connection::{Connection, End, FrameStream, send_at_once},
    tls,
    traffic::Traffic,
};
use crate::{Cluster, Frame, Message, RequestId, RpcError, Service};

/// The largest frame of a greeting.
const GREETING_BYTES_MAX: usize = 4096;

/// A listening node. It stops, and its connections close, when this is dropped.
pub struct TcpServer {
    address: SocketAddr,
    traffic: Arc<Traffic>,
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
    /// When the address cannot be bound, or is not on the loopback and the cluster has neither a secret nor certificates.
    pub async fn within(
        cluster: Cluster,
        address: impl ToSocketAddrs,
        node: NodeId,
        service: Arc<dyn Service>,
        config: TcpConfig,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        if !address.ip().to_canonical().is_loopback() && !cluster.has_secret() && !cluster.is_encrypted() {
            let reason = format!(
                "{address} is not on the loopback: nodes that listen there need a cluster with a secret, or with certificates"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        let traffic = Arc::<Traffic>::default();
        let counted = (config, Arc::clone(&traffic));
        let accepting = tokio::spawn(accept(listener, Greeter { node, cluster }, service, counted));
        Ok(Self { address, traffic, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// What tells what went on over its connections, also when it has ended.
    pub fn traffic(&self) -> impl Fn() -> TrafficFigures + Send + Sync + use<> {
        let traffic = Arc::clone(&self.traffic);
        move || traffic.figures()
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

async fn accept(
    listener: TcpListener,
    greeter: Greeter,
    service: Arc<dyn Service>,
    (config, traffic): (TcpConfig, Arc<Traffic>),
) {
    let room = Arc::new(Semaphore::new(config.connections_max));
    let ungreeted = Arc::new(Semaphore::new(config.ungreeted_max));
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, from)) => {
                // One more that has not greeted than there may be is closed without a word: a node tries again.
                let Ok(ungreeted) = Arc::clone(&ungreeted).try_acquire_owned() else {
                    traffic.refused();
                    continue;
                };
                let (greeter, service, room) = (greeter.clone(), Arc::clone(&service), Arc::clone(&room));
                let counted = (config, Arc::clone(&traffic));
                connections.spawn(async move {
                    if let Err(reason) = serve(stream, &greeter, service, counted, ungreeted, &room).await {
                        tracing::debug!(%from, %reason, "connection closed");
                    }
                });
            }
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
    (config, traffic): (TcpConfig, Arc<Traffic>),
    ungreeted: OwnedSemaphorePermit,
    room: &Semaphore,
) -> Result<(), String> {
    let meeting = async {
        let mut stream = greeter.open(stream, GREETING_BYTES_MAX.min(config.frame_bytes_max)).await?;
        let (peer, place) = greeter.greet(&mut stream, room).await?;
        Ok((stream, peer, place))
    };
    let met = timeout(config.connect_timeout, meeting).await;
    let met = met.unwrap_or_else(|_elapsed| Err(format!("no hello within {:?}", config.connect_timeout)));
    let (mut stream, peer, _place) = met.inspect_err(|_| traffic.refused())?;
    drop(ungreeted);
    stream.allow_frames(config.frame_bytes_max);
    match Connection::new(stream, peer, Some(service), (config, traffic)).run(None, None).await {
        End::Broken(reason) => Err(reason),
        End::Idle | End::Dropped => Ok(()),
    }
}

impl Greeter {
    /// The connection, encrypted if the cluster's are: the first byte says whether the other side means it to be.
    async fn open(&self, stream: TcpStream, frame_bytes_max: usize) -> Result<FrameStream, String> {
        send_at_once(&stream);
        let mut first = [0];
        stream.peek(&mut first).await.map_err(|error| format!("read failed: {error}"))?;
        match (self.cluster.tls(), first == [tls::HANDSHAKE]) {
            (Some(tls), true) => Ok(FrameStream::encrypted(tls.accept(stream).await?, frame_bytes_max)),
            (Some(_), false) => {
                let mut stream = FrameStream::plain(stream, frame_bytes_max);
                // Only to somebody who speaks as a node does, and what any server with TLS tells anybody.
                stream.receive().await?;
                let reason = tls::unencrypted();
                stream.send(&Frame::answer(RequestId(0), Err(RpcError::Refused { reason: reason.clone() }))).await?;
                Err(reason)
            }
            (None, true) => Err(tls::encrypted()),
            (None, false) => Ok(FrameStream::plain(stream, frame_bytes_max)),
        }
    }

    /// Who the other side is, and its place.
    async fn greet<'r>(
        &self,
        stream: &mut FrameStream,
        room: &'r Semaphore,
    ) -> Result<(NodeId, SemaphorePermit<'r>), String> {
        let greeted = self.try_greet(stream, room).await;
        if let Err(Refused { reason, tell: true }) = &greeted {
            stream.send(&Frame::answer(RequestId(0), Err(RpcError::Refused { reason: reason.clone() }))).await?;
        }
        greeted.map_err(|refused| refused.reason)
    }

    async fn try_greet<'r>(
        &self,
        stream: &mut FrameStream,
        room: &'r Semaphore,
    ) -> Result<(NodeId, SemaphorePermit<'r>), Refused> {
        let hello = match stream.receive().await.map_err(Refused::silently)?.message {
            Message::Hello(hello) => hello,
            other => return Err(Refused::silently(format!("expected a hello as the first frame, got {other:?}"))),
        };
        let is_open = !self.cluster.has_secret();
        let answer = self.cluster.answer(&self.node, &hello).map_err(|reason| Refused { reason, tell: is_open })?;
        if room.available_permits() == 0 {
            return Err(Refused { tell: is_open, ..Refused::for_want_of_room() });
        }
        stream.send(&Frame::hello(answer.clone())).await.map_err(Refused::silently)?;
        if self.cluster.has_secret() {
            match stream.receive().await.map_err(Refused::silently)?.message {
                Message::Proof(proof) => self.cluster.verify(&hello, &answer, &proof).map_err(Refused::silently)?,
                other => return Err(Refused::silently(format!("expected a proof behind the hello, got {other:?}"))),
            }
        }
        Ok((hello.from, room.try_acquire().map_err(|_full| Refused::for_want_of_room())?))
    }
}

/// Why there is no connection, and whether the other side is told: one that has proved nothing is not, where there is something to prove.
struct Refused {
    reason: String,
    tell: bool,
}

impl Refused {
    fn for_want_of_room() -> Self {
        Self { reason: "this node has as many connections as it may have; try again later".to_owned(), tell: true }
    }

    const fn silently(reason: String) -> Self {
        Self { reason, tell: false }
    }
}
