//! The asking side: one task per node asked, which connects when there is something to ask.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use savanna_epoch::NodeId;
use tokio::{
    net::TcpStream,
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    TcpConfig, TrafficFigures,
    connection::{Commands, Connection, End, FrameStream, PendingCall, send_at_once},
    traffic::Traffic,
};
use crate::{CallId, Cluster, Delivery, Frame, Message, Request, RpcError, Transport};

/// Where nodes listen: `host:port` by node. Filled by whoever knows the members.
#[derive(Debug, Default)]
pub struct Addresses {
    by_node: RwLock<BTreeMap<NodeId, String>>,
}

impl Addresses {
    /// Sets a node's address; the next connection uses it.
    pub fn set(&self, node: NodeId, address: impl Into<String>) {
        self.by_node.write().insert(node, address.into());
    }

    /// Forgets a node.
    pub fn remove(&self, node: &NodeId) {
        self.by_node.write().remove(node);
    }

    /// A node's address.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<String> {
        self.by_node.read().get(node).cloned()
    }
}

/// One node's way to the others over TCP. Connections close when this is dropped.
pub struct TcpTransport {
    from: NodeId,
    addresses: Arc<Addresses>,
    config: TcpConfig,
    cluster: Cluster,
    /// Where connections run; the caller's if there is none.
    runtime: Option<Handle>,
    peers: Mutex<BTreeMap<NodeId, Peer>>,
    next_call: AtomicU64,
    traffic: Arc<Traffic>,
}

#[derive(Clone)]
struct Peer {
    calls: mpsc::Sender<PendingCall>,
    cancels: mpsc::UnboundedSender<CallId>,
}

impl TcpTransport {
    /// The transport of node `from`, which is in no cluster. Needs a tokio runtime when it is first called.
    #[must_use]
    pub fn new(from: NodeId, addresses: Arc<Addresses>, config: TcpConfig) -> Self {
        Self::within(Cluster::default(), from, addresses, config)
    }

    /// The transport of node `from` of a cluster.
    #[must_use]
    pub fn within(cluster: Cluster, from: NodeId, addresses: Arc<Addresses>, config: TcpConfig) -> Self {
        let (runtime, peers, next_call, traffic) = (None, Mutex::default(), AtomicU64::new(1), Arc::default());
        Self { from, addresses, config, cluster, runtime, peers, next_call, traffic }
    }

    /// Its connections run there, whoever asks first.
    #[must_use]
    pub fn on(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// What went on over its connections.
    #[must_use]
    pub fn traffic(&self) -> TrafficFigures {
        self.traffic.figures()
    }

    fn peer(&self, to: &NodeId) -> Result<Peer, RpcError> {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(to) {
            return Ok(peer.clone());
        }
        if peers.len() >= self.config.peers_max {
            // Nodes that are gone have no address any more.
            peers.retain(|node, _| self.addresses.get(node).is_some());
        }
        if peers.len() >= self.config.peers_max {
            return Err(RpcError::Overloaded {
                what: "the set of nodes this node talks to".to_owned(),
                limit: self.config.peers_max as u64,
            });
        }
        let (calls, calls_receiver) = mpsc::channel(self.config.session.queued_max.max(1));
        let (cancels, cancels_receiver) = mpsc::unbounded_channel();
        let dialler = Dialler {
            from: self.from.clone(),
            to: to.clone(),
            addresses: Arc::clone(&self.addresses),
            config: self.config,
            cluster: self.cluster.clone(),
            traffic: Arc::clone(&self.traffic),
            failures: 0,
            not_before: None,
        };
        let running = dialler.run(Commands { calls: calls_receiver, cancels: cancels_receiver });
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(running)),
            None => drop(tokio::spawn(running)),
        }
        let peer = Peer { calls, cancels };
        peers.insert(to.clone(), peer.clone());
        Ok(peer)
    }

    async fn send(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        let peer = self.peer(to)?;
        let id = CallId(self.next_call.fetch_add(1, Ordering::Relaxed));
        let limit = request.timeout;
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + limit;
        peer.calls.try_send(PendingCall { id, request, deadline, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => RpcError::Overloaded {
                what: format!("the queue of requests to node {to}"),
                limit: self.config.session.queued_max as u64,
            },
            mpsc::error::TrySendError::Closed(_) => {
                unreachable(to, "its connection task has ended", Delivery::NotStarted)
            }
        })?;
        let mut guard = CancelOnDrop { id, cancels: Some(&peer.cancels) };
        match timeout(limit, answer).await {
            Ok(Ok(Err(RpcError::TimedOut { .. }))) => {
                guard.cancels = None;
                Err(RpcError::TimedOut { limit })
            }
            Ok(Ok(result)) => {
                guard.cancels = None;
                result
            }
            Ok(Err(_dropped)) => Err(unreachable(to, "the connection was dropped", Delivery::Unknown)),
            Err(_elapsed) => Err(RpcError::TimedOut { limit }),
        }
    }
}

#[async_trait]
impl Transport for TcpTransport {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        self.traffic.called();
        let answer = self.send(to, request).await;
        if answer.is_err() {
            self.traffic.failed();
        }
        answer
    }
}

/// Tells the connection when the caller goes away, by cancelling or by running out of time.
struct CancelOnDrop<'a> {
    id: CallId,
    cancels: Option<&'a mpsc::UnboundedSender<CallId>>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(cancels) = self.cancels {
            // A connection that is gone has no call left to cancel.
            let _gone = cancels.send(self.id);
        }
    }
}

fn unreachable(node: &NodeId, reason: impl Into<String>, delivery: Delivery) -> RpcError {
    RpcError::Unreachable { node: node.clone(), reason: reason.into(), delivery }
}

/// Connects to one node whenever there is a call for it.
struct Dialler {
    from: NodeId,
    to: NodeId,
    addresses: Arc<Addresses>,
    config: TcpConfig,
    cluster: Cluster,
    traffic: Arc<Traffic>,
    failures: u32,
    not_before: Option<(Instant, String)>,
}

impl Dialler {
    async fn run(mut self, mut commands: Commands) {
        while let Some(call) = commands.calls.recv().await {
            // Calls that were cancelled before they were taken on have a closed reply; their ids say nothing more.
            while commands.cancels.try_recv().is_ok() {}
            if let Some((until, reason)) = &self.not_before
                && Instant::now() < *until
            {
                self.fail(call, reason);
                continue;
            }
            let opened_at = Instant::now();
            match timeout(self.config.connect_timeout, self.connect()).await {
                Ok(Ok(stream)) => {
                    let connection =
                        Connection::new(stream, self.to.clone(), None, (self.config, Arc::clone(&self.traffic)));
                    match connection.run(Some(call), Some(&mut commands)).await {
                        End::Dropped => return,
                        End::Idle => self.failures = 0,
                        End::Broken(reason) => {
                            tracing::debug!(node = %self.to, %reason, "connection lost");
                            // One that held for a while starts over with the shortest pause.
                            if opened_at.elapsed() > self.config.backoff_max {
                                self.failures = 0;
                            }
                            self.pause(reason);
                        }
                    }
                }
                Ok(Err(reason)) => self.give_up(call, reason, &mut commands),
                Err(_elapsed) => {
                    let reason = format!("no connection within {:?}", self.config.connect_timeout);
                    self.give_up(call, reason, &mut commands);
                }
            }
        }
    }

    async fn connect(&self) -> Result<FrameStream, String> {
        let address = self.addresses.get(&self.to).ok_or("no address is known for it")?;
        let stream =
            TcpStream::connect(&address).await.map_err(|error| format!("connecting to {address} failed: {error}"))?;
        send_at_once(&stream);
        let mut stream = match self.cluster.tls() {
            Some(tls) => {
                let encrypted = tls.connect(stream).await;
                let encrypted = encrypted.map_err(|reason| format!("encrypting for {address} failed: {reason}"))?;
                FrameStream::encrypted(encrypted, self.config.frame_bytes_max)
            }
            None => FrameStream::plain(stream, self.config.frame_bytes_max),
        };
        let hello = self.cluster.hello(self.from.clone(), self.to.clone());
        if let Err(unsent) = stream.send(&Frame::hello(hello.clone())).await {
            // A server that refuses this node's certificate says so, and closes.
            return Err(stream.receive().await.err().unwrap_or(unsent));
        }
        let answer = match stream.receive().await?.message {
            Message::Hello(answer) => answer,
            Message::Error(error) => return Err(error.to_string()),
            other => return Err(format!("expected a hello from {address}, got {other:?}")),
        };
        if let Some(proof) = self.cluster.prove(&hello, &answer)? {
            stream.send(&Frame::proof(proof)).await?;
        }
        Ok(stream)
    }

    fn give_up(&mut self, call: PendingCall, reason: String, commands: &mut Commands) {
        self.traffic.refused();
        self.fail(call, &reason);
        while let Ok(call) = commands.calls.try_recv() {
            self.fail(call, &reason);
        }
        self.pause(reason);
    }

    fn pause(&mut self, reason: String) {
        let pause = backoff(self.failures, self.config.backoff_min, self.config.backoff_max);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some((Instant::now() + pause, reason));
    }

    fn fail(&self, call: PendingCall, reason: &str) {
        // A caller that went away needs no answer.
        let _unwanted = call.reply.send(Err(unreachable(&self.to, reason, Delivery::NotStarted)));
    }
}

/// `min`, doubled with each earlier failure, at most `max`.
fn backoff(failures: u32, min: Duration, max: Duration) -> Duration {
    min.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_bound() {
        let (min, max) = (Duration::from_millis(20), Duration::from_secs(2));
        assert_eq!(backoff(0, min, max), min);
        assert_eq!(backoff(2, min, max), min * 4);
        assert_eq!(backoff(40, min, max), max);
    }
}
