//! A virtual node on its way to another node, as whoever carries it and all actors of this node see it.
//!
//! ```text
//!  all actors: note what is appended about it ──► stream ──► the other node
//!  the actor that has it: writes its keys ──────► stream
//! ```
//!
//! What goes is what the log has, in its order: a delta says from which version it leads to which, so that the keys as they are may come
//! among what is changed meanwhile, as in a log that is being rewritten.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::owners::virtual_node_of;
use crate::delta::{Body, read_each};
use crate::keyspace::is_of_library;
use crate::placement::group_of;

/// While more than this has not been taken, no more of the keys as they are is written.
const AHEAD: usize = 4 << 20;
/// With more than this that has not been taken the virtual node stays: whoever is to have it takes less than is changed.
const STREAM_BYTES_MAX: usize = 64 << 20;

/// A virtual node that leaves this node.
#[derive(Debug)]
pub struct Departure {
    node: u16,
    actors: u16,
    shared: Mutex<Shared>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    /// What has not been taken.
    stream: Vec<u8>,
    /// How many actors note what they change.
    noting: u16,
    is_written: bool,
    is_at_rest: bool,
    failure: Option<&'static str>,
}

impl Shared {
    /// Puts deltas into the stream, if it goes on and there is room for them. Says whether that is so.
    fn push(&mut self, deltas: &[u8]) -> bool {
        if self.failure.is_none() && self.stream.len() + deltas.len() > STREAM_BYTES_MAX {
            self.failure = Some("more was changed than the other node takes, or a value is too long to go");
            self.stream = Vec::new();
        }
        let goes_on = self.failure.is_none();
        if goes_on {
            self.stream.extend_from_slice(deltas);
        }
        goes_on
    }
}

/// How far a departure has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All actors note what they change.
    Noted,
    /// The keys as they are were written.
    Written,
    /// Nothing is under way to its keys, and all that was is noted.
    AtRest,
}

impl Departure {
    /// A virtual node is to leave a node with so many actors.
    #[must_use]
    pub fn new(node: u16, actors: u16) -> Self {
        Self { node, actors, shared: Mutex::default(), changed: Condvar::new() }
    }

    /// The virtual node.
    #[must_use]
    pub const fn node(&self) -> u16 {
        self.node
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut self.shared());
        self.changed.notify_all();
    }

    pub(crate) fn note_noting(&self) {
        self.change(|shared| shared.noting += 1);
    }

    pub(crate) fn note_written(&self) {
        self.change(|shared| shared.is_written = true);
    }

    pub(crate) fn note_at_rest(&self) {
        self.change(|shared| shared.is_at_rest = true);
    }

    /// It cannot go on, for this reason. Nothing is kept for it any more.
    pub(crate) fn fail(&self, why: &'static str) {
        self.change(|shared| {
            shared.failure.get_or_insert(why);
            shared.stream = Vec::new();
        });
    }

    /// Puts deltas of its keys into the stream.
    pub(crate) fn push(&self, deltas: &[u8]) {
        if !self.shared().push(deltas) {
            self.changed.notify_all();
        }
    }

    /// How many bytes have not been taken.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared().stream.len()
    }

    /// Whether more of the keys as they are may be written now.
    pub(crate) fn takes_more(&self) -> bool {
        let shared = self.shared();
        shared.failure.is_none() && shared.stream.len() < AHEAD
    }

    /// Puts those of some deltas into the stream that are about its keys. What is about all keys does not go with them, nor what
    /// is about groups: none has any of these keys when they leave.
    pub(crate) fn note(&self, deltas: &[u8]) {
        let mut shared = self.shared();
        let (mut is_about_all, mut has_room) = (false, true);
        let noted = read_each(deltas, |delta, header, body| {
            if matches!(body, Body::Flush { .. } | Body::Swap { .. }) {
                is_about_all = true;
            } else if !matches!(body, Body::Forget { .. })
                && !body.is_of_group()
                && !is_of_library(&header)
                && virtual_node_of(group_of(header.key)) == self.node
            {
                has_room = shared.push(delta);
            }
            Ok(())
        });
        drop(shared);
        if !has_room {
            self.changed.notify_all();
        }
        if is_about_all {
            self.fail("all keys were flushed or swapped meanwhile");
        }
        if noted.is_err() {
            self.fail("a change could not be read");
        }
    }

    /// Takes what is in the stream.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.shared().stream)
    }

    /// Waits for a stage. Says whether it has come in time; blocks as long.
    ///
    /// # Errors
    /// Why it never will.
    pub fn wait(&self, stage: Stage, time: Duration) -> Result<bool, &'static str> {
        let until = Instant::now() + time;
        let mut shared = self.shared();
        loop {
            let has_come = match stage {
                Stage::Noted => shared.noting >= self.actors,
                Stage::Written => shared.is_written,
                Stage::AtRest => shared.is_at_rest,
            };
            if let Some(why) = shared.failure {
                return Err(why);
            }
            let left = until.saturating_duration_since(Instant::now());
            if has_come || left.is_zero() {
                return Ok(has_come);
            }
            shared = self.changed.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
