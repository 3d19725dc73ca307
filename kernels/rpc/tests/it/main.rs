//! Behaviour of `savanna-rpc` seen from outside: one suite over all transports, hostile peers on TCP, the router.

mod conformance;
mod hostile_peers;
mod router;
mod routing_core;
