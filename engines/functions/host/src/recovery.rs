//! Reads the log back, and makes it short.

use std::sync::Arc;

use savanna_epoch::NodeEpoch;
use savanna_functions::record::{Image, Replay, kind};
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options};

use crate::crash::crash_at;

/// The shard of all records.
const SHARD: u64 = 1;
/// A log of fewer records is read in no time.
const RECORDS_MIN: usize = 50_000;
/// Parts of a snapshot that may be on their way to the disk.
const BACKLOG_MAX: usize = 16 << 20;

/// A record for the log.
pub(crate) const fn draft(kind: u16, payload: &[u8]) -> Draft<'_> {
    Draft { shard: SHARD, kind, payload }
}

/// Opens the log, and makes what it says.
pub(crate) fn recover(log: Options, epoch: NodeEpoch) -> Result<(Arc<Journal>, Image), JournalError> {
    let mut replay = Replay::default();
    let journal =
        Journal::open(log, epoch, &mut |record: savanna_journal::Record| replay.take(record.kind, &record.payload))?;
    let records = replay.records;
    let image = replay.done();
    if records > RECORDS_MIN.max(4 * (image.catalog.len() + 2 * image.events.len())) {
        shorten(&journal, &image)?;
    }
    Ok((Arc::new(journal), image))
}

/// Writes all that there is into the log, and drops what was before.
fn shorten(journal: &Journal, image: &Image) -> Result<(), JournalError> {
    let begin = journal.append(&[draft(kind::SNAPSHOT_BEGINS, &[])])?;
    for (kind, payload) in image.records() {
        let lsn = journal.append(&[draft(kind, &payload)])?;
        if journal.backlog() > BACKLOG_MAX {
            wait(journal, lsn)?;
        }
        crash_at("snapshot-begun");
    }
    let end = journal.append(&[draft(kind::SNAPSHOT_ENDS, &[])])?;
    wait(journal, end)?;
    crash_at("snapshot-ended");
    journal.truncate_before(begin)
}

/// Blocks until the log is durable up to a position.
fn wait(journal: &Journal, lsn: Lsn) -> Result<(), JournalError> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    journal.gate().hold(lsn, move |outcome| {
        // Who waits may have gone.
        let _ = sender.try_send(outcome);
    });
    receiver.recv().unwrap_or_else(|_| Err(JournalError::Stopped { reason: "it ended without an answer".to_owned() }))
}

#[cfg(test)]
mod tests {
    use savanna_functions::core::EventId;
    use savanna_functions::record::Accepted;
    use savanna_journal::sim::SimDisk;

    use super::*;

    #[test]
    fn a_log_that_was_made_short_says_the_same() {
        let disk = SimDisk::new(1);
        let open = |epoch| recover(Options::disk(Arc::clone(&disk) as _), NodeEpoch(epoch)).unwrap();
        let (journal, _) = open(1);
        let accepted = |event: u64| Accepted {
            event,
            function: "f".to_owned(),
            qualifier: "$LATEST".to_owned(),
            request: event.to_string(),
            at: event,
            client_context: None,
            lineage: String::new(),
            payload: vec![7; 100],
        };
        for event in 1..=300 {
            journal.append(&[draft(kind::ACCEPTED, &accepted(event).encode())]).unwrap();
            if event % 3 != 0 {
                journal.append(&[draft(kind::ENDED, &event.to_le_bytes())]).unwrap();
            }
        }
        journal.close().unwrap();
        let (journal, image) = open(2);
        assert_eq!(image.events.len(), 100);
        shorten(&journal, &image).unwrap();
        journal.append(&[draft(kind::ENDED, &3_u64.to_le_bytes())]).unwrap();
        journal.close().unwrap();
        let (_, mut again) = open(3);
        assert!(!again.events.contains_key(&EventId(3)));
        again.events.insert(EventId(3), image.events[&EventId(3)].clone());
        assert_eq!(again, image);
    }
}
