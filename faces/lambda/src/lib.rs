//! AWS Lambda's REST API over the host of functions: what unmodified SDKs and the AWS CLI ask for.
//!
//! # A tour of the source
//!
//! `server` is the server from its beginning to its end, `access` who may ask, `signature` is whether requests are signed, `route` finds what is asked for, `operation` does it,
//! `shown` is what functions look like to clients, `answer` is what leaves.

mod access;
mod answer;
mod operation;
mod route;
mod server;
mod shown;
mod signature;

pub use savanna_functions_host::{
    Abilities, Bounds, Functions, HostError, HostOptions, Isolation, Totals, launcher, meter::Prices,
};

pub use crate::{
    access::{Key, KeyError},
    server::{Server, ServerError, ServerOptions, Stopper, serve_client},
};
