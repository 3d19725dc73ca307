//! The connections to other nodes, by what they are for: what waits there keeps nobody else waiting.
//!
//! | class | carries | waits for |
//! |---|---|---|
//! | `keys`, `streams` | requests to the owners of these services | what clients ask |
//! | `flights` | what clients of tenants say and are answered | nothing: an answer is held back for 2 ms at most |
//! | `control` | cancel requests, lists, questions for space | nothing |
//! | `bulk` | logins, saves, removals, moves of tenants, what nodes tell of themselves | a database that wakes, the storage, the coordinator |
//! | `transfers` | what goes along with a tenant that moves, in parts of some megabytes | nothing |
//!
//! Requests to the coordinator have connections of their own, too (`leader`).

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use savanna_epoch::NodeId;
use savanna_pgwire_tenants::{Class, class_of};
use savanna_rpc::{Addresses, Cluster, Request, RpcError, TcpConfig, TcpTransport, TrafficFigures, Transport};

/// The names of the classes.
const CLASSES: [&str; 6] = ["bulk", "control", "flights", "keys", "streams", "transfers"];

/// All of them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Peers(Arc<BTreeMap<&'static str, TcpTransport>>);

impl Peers {
    /// Of a node of a cluster.
    pub(super) fn new(cluster: &Cluster, from: &NodeId, addresses: &Arc<Addresses>, config: TcpConfig) -> Self {
        let way = |class| (class, TcpTransport::within(cluster.clone(), from.clone(), Arc::clone(addresses), config));
        Self(Arc::new(CLASSES.map(way).into()))
    }

    /// What went on over the connections of each class.
    pub(super) fn traffic(&self) -> impl Iterator<Item = (&'static str, TrafficFigures)> {
        self.0.iter().map(|(class, way)| (*class, way.traffic()))
    }
}

/// The class of a request, by its method.
fn class(method: &str) -> &'static str {
    match method.split('/').next() {
        Some("keys") => "keys",
        Some("streams") => "streams",
        Some("moves") if method.starts_with("moves/part.") => "transfers",
        Some("facts" | "moves") => "bulk",
        _ => match class_of(method) {
            Class::Control => "control",
            Class::Flights => "flights",
            Class::Bulk => "bulk",
        },
    }
}

#[async_trait]
impl Transport for Peers {
    async fn call(&self, to: &NodeId, request: Request) -> Result<Bytes, RpcError> {
        self.0[class(&request.head.method)].call(to, request).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use savanna_rpc::{RequestContext, RequestHead, Service, TcpServer};

    use super::*;

    /// Answers everything but logins, and parts of what moves.
    struct Busy;

    #[async_trait]
    impl Service for Busy {
        async fn handle(&self, context: RequestContext, _: Bytes) -> Result<Bytes, RpcError> {
            match context.head.method.as_str() {
                "tenants/know.1" | "moves/part.1" => std::future::pending().await,
                _ => Ok(Bytes::new()),
            }
        }
    }

    fn request(method: &str, timeout: Duration) -> Request {
        let head = RequestHead { method: method.to_owned(), shard: None, idempotent: true };
        Request { head, body: Bytes::new(), timeout }
    }

    #[tokio::test]
    async fn a_thousand_requests_and_64_megabytes_that_wait_keep_nobody_else_waiting() {
        let (cluster, there) = (Cluster::default(), NodeId::new("there"));
        let config = TcpConfig::default();
        let server = TcpServer::within(cluster.clone(), "127.0.0.1:0", there.clone(), Arc::new(Busy), config).await;
        let server = server.unwrap();
        let addresses = Arc::new(Addresses::default());
        addresses.set(there.clone(), server.local_address().to_string());
        let peers = Peers::new(&cluster, &NodeId::new("here"), &addresses, config);
        let waiting = (0..1_000).map(|_| peers.call(&there, request("tenants/know.1", Duration::from_secs(60))));
        let part = || Request { body: vec![7; 4 << 20].into(), ..request("moves/part.1", Duration::from_secs(60)) };
        let waiting = waiting.chain((0..16).map(|_| peers.call(&there, part())));
        let mut waiting = Box::pin(join_all(waiting));
        // They are on their way, and fill their connection.
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err());
        for method in ["tenants/say.1", "front/say.1", "tenants/cancel.1", "keys/call.1", "streams/call.1"] {
            let answer = peers.call(&there, request(method, Duration::from_secs(10))).await;
            assert_eq!(answer, Ok(Bytes::new()), "{method}");
        }
        let calls: BTreeMap<_, _> = peers.traffic().map(|(class, figures)| (class, figures.calls)).collect();
        let expected =
            [("bulk", 1_000), ("control", 1), ("flights", 2), ("keys", 1), ("streams", 1), ("transfers", 16)];
        assert_eq!(calls, expected.into());
    }
}
