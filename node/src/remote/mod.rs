//! Engines across a network: the same handles, with requests and replies sent over rpc.

mod keys;
mod streams;

pub use self::{
    keys::{RemoteKeys, keys_methods, serve_keys},
    streams::{FrontSessions, RemoteStreams, serve_streams},
};
