//! A client of the PostgreSQL protocol that sends anything, after a startup message or without.

#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use savanna_fuzz::{NoEngine, talk};
use savanna_pgwire::{Admission, Acceptor, serve_stream};

const STARTUP: &[u8] = b"\0\0\0\x29\0\x03\0\0user\0u\0database\0savanna_streams\0\0";

fuzz_target!(|input: (bool, &[u8])| {
    let (started, bytes) = input;
    let bytes = if started { [STARTUP, bytes].concat() } else { bytes.to_vec() };
    let acceptor = Acceptor::new(Admission::default(), None).expect("randomness");
    let peer = SocketAddr::from(([127, 0, 0, 1], 0));
    talk(&bytes, |stream| async move { serve_stream(stream, peer, Arc::new(NoEngine), &acceptor).await });
});
