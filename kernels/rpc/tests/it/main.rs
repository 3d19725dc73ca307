//! Behaviour of `savanna-rpc` seen from outside: one suite over all transports, hostile peers on TCP, the router.

mod certificates;
mod conformance;
mod encryption;
mod hostile_peers;
mod raw;
mod router;
mod routing_core;
