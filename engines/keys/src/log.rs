//! The log of all actors of a node.
//!
//! One journal for all: what a transaction changes on several actors is one append, and all of them share a flush. An
//! actor appends at the end of its turn, before its messages and replies leave.
//!
//! So that the log does not grow for ever, it is *rewritten* while it serves: from some position on, each actor appends
//! all its keys once more, a few per turn, among its changes. Since a delta knows which version it leads to, the order does
//! not matter. When all actors are done and that is durable, the log before the position is not needed any more.
//! No process is forked, and nothing stands still.

use std::sync::Arc;

use savanna_epoch::OwnerEpoch;
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options};
use savanna_lattice::Hlc;

use crate::delta;
use crate::keyspace::Keyspace;
use crate::placement::{KeyHash, Placement};

/// The kind of records that hold deltas.
const DELTAS: u16 = 1;

/// Opens the log and puts what is in it into the keyspaces of the actors, in the order of their numbers.
///
/// # Errors
/// Those of [`Journal::open`].
///
/// # Panics
/// If there are not as many keyspaces as actors.
pub fn recover(
    options: Options,
    epoch: OwnerEpoch,
    placement: Placement,
    keyspaces: &mut [&mut Keyspace],
) -> Result<Arc<Journal>, JournalError> {
    let mut latest = Hlc::ZERO;
    let journal = Journal::open(options.segment_bytes(SEGMENT_BYTES), epoch, &mut |record| {
        delta::read_all(&record.payload, &mut |header, body| {
            latest = latest.max(header.version);
            let actor = placement.actor_of(KeyHash::of(header.key).group());
            keyspaces[actor.index()].replay(header, body)
        })
    })?;
    let last = keyspaces.iter().map(|keyspace| keyspace.last_writer()).max().unwrap_or_default();
    for (keyspace, id) in keyspaces.iter_mut().zip(placement.all()) {
        keyspace.belong_to(id, last);
    }
    for first in placement.all() {
        for recovered in keyspaces[first.index()].recovered() {
            keyspaces.iter_mut().for_each(|keyspace| keyspace.take_copy(first, &recovered));
        }
    }
    for keyspace in keyspaces {
        // Also later than what was deleted, of which nothing is left.
        keyspace.observe(latest);
        keyspace.log.enable(true);
    }
    Ok(Arc::new(journal))
}

/// The bytes of a log's segments, and the most that one request may change: a string of 512 MiB and its like fit.
pub const SEGMENT_BYTES: usize = 1 << 30;

/// Appends what an actor changed; each request's part all or nothing. Gives the position on which everything the actor says from now on
/// depends; `None` if nothing was changed.
///
/// # Errors
/// Those of [`Journal::append`]. After [`JournalError::Backlog`] the changes that were not taken wait, and it is to be
/// tried again.
pub fn append_changes(journal: &Journal, keys: &mut Keyspace) -> Result<Option<Lsn>, JournalError> {
    let mut last = None;
    while !keys.log.bytes().is_empty() {
        last = Some(journal.append(&[Draft { shard: 0, kind: DELTAS, payload: keys.log.first_part() }])?);
        keys.log.drop_first_part();
    }
    Ok(last)
}
