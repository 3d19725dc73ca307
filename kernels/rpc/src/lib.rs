//! Request and reply between nodes, with values that can be serialised.
//!
//! A [`Service`] answers, a [`Transport`] asks. There are three transports with one set of errors ([`RpcError`]) and one
//! promise, *at most once*: a handler starts once or never for a call, and each call ends when its time is over.
//!
//! | transport | for |
//! |---|---|
//! | [`InProcessNet`] | nodes embedded in one process; bytes are handed over by reference |
//! | [`TcpTransport`], [`TcpServer`] | nodes on a network; see [`tcp`] for every bound |
//! | [`sim::SimCluster`] | tests: a seeded virtual network and clock; see [`sim`] |
//!
//! What a *retry* means belongs to the method ([`Method::IDEMPOTENT`]). Requests to a shard go through a [`Router`]: it
//! looks up the owner, waits while the shard moves, follows [`RpcError::Moved`] and repeats what may be repeated.
//!
//! The decisions are pure state machines, [`SessionCore`] (one connection) and [`RouterCore`]; drivers of a few lines
//! around them do the input and output, and the simulator drives the same ones. Format: [`frame`].

mod error;
pub mod frame;
mod greeting;
mod inprocess;
mod router;
mod service;
mod session;
pub mod sim;
pub mod tcp;

pub use error::{Delivery, RpcError};
pub use frame::{Frame, FrameError, Message, RequestHead, RequestId, ShardAt};
pub use greeting::{ANY_NODE, Cluster, Hello, Nonce, PROTOCOLS, Proof, ShortSecret};
pub use inprocess::{InProcessLimits, InProcessNet, InProcessTransport, Served};
pub use router::{Directory, Route, Router, RouterAction, RouterCore, RouterInput, RouterLimits};
pub use service::{
    Method, MethodTable, Request, RequestContext, Service, ServiceTable, Transport, call, decode_value, encode_value,
};
pub use session::{CallId, SessionAction, SessionCore, SessionInput, SessionLimits};
pub use tcp::{
    Addresses, MutualTls, NODE_NAME, TcpConfig, TcpServer, TcpTransport, TlsError, TlsFiles, TrafficFigures,
};
