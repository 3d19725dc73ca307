//! What goes on over connections, counted for whoever watches a node.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since a transport or a server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficFigures {
    /// Requests that were sent, or whose handlers were started.
    pub calls: u64,
    /// Requests that were sent and ended with an error, whichever.
    pub failures: u64,
    /// Bytes written.
    pub bytes_sent: u64,
    /// Bytes read.
    pub bytes_received: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Connections that did not come about: refused, or not reached.
    pub refused: u64,
}

/// Counts what goes on.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    calls: AtomicU64,
    failures: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    connections: AtomicU64,
    refused: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Traffic {
    pub(super) fn figures(&self) -> TrafficFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TrafficFigures {
            calls: read(&self.calls),
            failures: read(&self.failures),
            bytes_sent: read(&self.bytes_sent),
            bytes_received: read(&self.bytes_received),
            connections: read(&self.connections),
            refused: read(&self.refused),
        }
    }

    pub(super) fn called(&self) {
        add(&self.calls, 1);
    }

    pub(super) fn failed(&self) {
        add(&self.failures, 1);
    }

    pub(super) fn sent(&self, bytes: usize) {
        add(&self.bytes_sent, bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        add(&self.bytes_received, bytes as u64);
    }

    pub(super) fn refused(&self) {
        add(&self.refused, 1);
    }

    /// A connection is open for as long as this is kept.
    pub(super) fn opened(&self) -> Open<'_> {
        add(&self.connections, 1);
        Open(self)
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open<'t>(&'t Traffic);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
