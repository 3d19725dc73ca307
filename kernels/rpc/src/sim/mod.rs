//! A network in one thread: virtual clock, seeded faults, no sockets and no tokio.
//!
//! | layer | what it is |
//! |---|---|
//! | [`SimNet`] | discrete events between pure nodes ([`SimNode`]): delay, loss, duplicates, reordering, partitions, crashes, pauses, clock skew |
//! | [`Endpoint`] | request and reply over such a lossy network, pure: connections that survive loss, one [`crate::SessionCore`] each |
//! | [`SimCluster`] | [`crate::Service`]s and a [`crate::Transport`] on top, with a small executor, for tests of asynchronous code |
//!
//! One seed gives one run: the order of events, the faults and [`Trace::hash`] repeat exactly.

mod cluster;
mod endpoint;
mod net;
mod trace;

pub use self::{
    cluster::{SimCluster, SimTransport, Stalled},
    endpoint::{Endpoint, EndpointAction, EndpointInput, EndpointLimits, HandlerKey, Packet},
    net::{ClockSkew, NetFaults, NodeAction, NodeInput, SimNet, SimNode, TimerId, VirtualClock},
    trace::Trace,
};
