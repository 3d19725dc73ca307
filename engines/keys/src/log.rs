//! The log of all actors of a node.
//!
//! One journal for all: what a transaction changes on several actors is one append, and all of them share a flush. An
//! actor appends at the end of its turn, before its messages and replies leave.

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
    let journal = Journal::open(options, epoch, &mut |record| {
        delta::read_all(&record.payload, &mut |header, body| {
            latest = latest.max(header.version);
            let actor = placement.actor_of(KeyHash::of(header.key).group());
            keyspaces[actor.index()].replay(header, body)
        })
    })?;
    for keyspace in keyspaces {
        // Also later than what was deleted, of which nothing is left.
        keyspace.observe(latest);
        keyspace.log.enable(true);
    }
    Ok(Arc::new(journal))
}

/// Appends what an actor changed, all or nothing. Gives the position on which everything the actor says from now on
/// depends; `None` if nothing was changed.
///
/// # Errors
/// Those of [`Journal::append`]. After [`JournalError::Backlog`] the changes wait, and it is to be tried again.
pub fn append_changes(journal: &Journal, keys: &mut Keyspace) -> Result<Option<Lsn>, JournalError> {
    if keys.log.bytes().is_empty() {
        return Ok(None);
    }
    let lsn = journal.append(&[Draft { shard: 0, kind: DELTAS, payload: keys.log.bytes() }])?;
    keys.log.clear();
    Ok(Some(lsn))
}
