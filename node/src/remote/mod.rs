//! Engines across a network: the same handles, with requests and replies sent over rpc.

mod keys;
mod streams;

pub use self::{
    keys::{RemoteKeys, serve_keys},
    streams::{RemoteStreams, serve_streams},
};
