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
use crate::{Frame, Message, RequestId, RpcError, Service, frame};

/// A listening node. It stops, and its connections close, when this is dropped.
pub struct TcpServer {
    address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl TcpServer {
    /// Listens at `address` (port 0: any free one) and answers as `node`.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(
        address: impl ToSocketAddrs,
        node: NodeId,
        service: Arc<dyn Service>,
        config: TcpConfig,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(accept(listener, node, service, config));
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

async fn accept(listener: TcpListener, node: NodeId, service: Arc<dyn Service>, config: TcpConfig) {
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
                    let (node, service) = (node.clone(), Arc::clone(&service));
                    connections.spawn(async move {
                        let _place = place;
                        if let Err(reason) = serve(stream, node, service, config).await {
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

async fn serve(stream: TcpStream, node: NodeId, service: Arc<dyn Service>, config: TcpConfig) -> Result<(), String> {
    let mut stream = FrameStream::new(stream, config.frame_bytes_max);
    let greeted = timeout(config.connect_timeout, greet(&mut stream, &node)).await;
    let peer = greeted.map_err(|_elapsed| format!("no hello within {:?}", config.connect_timeout))??;
    match Connection::new(stream, peer, Some(service), config).run(None, None).await {
        End::Broken(reason) => Err(reason),
        End::Idle | End::Dropped => Ok(()),
    }
}

async fn greet(stream: &mut FrameStream, node: &NodeId) -> Result<NodeId, String> {
    let hello = match stream.receive().await?.message {
        Message::Hello(hello) => hello,
        other => {
            return Err(format!("expected a hello as the first frame, got {other:?}"));
        }
    };
    if hello.to == *node {
        stream.send(&Frame::hello(node.clone(), hello.from.clone())).await?;
        return Ok(hello.from);
    }
    let reason = format!("this is node {node}, not node {}: look up its address again", hello.to);
    stream.send(&Frame::answer(RequestId(0), Err(RpcError::Refused { reason: reason.clone() }))).await?;
    Err(reason)
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
