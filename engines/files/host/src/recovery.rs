//! Reads the log back, and makes it short.
//!
//! A record is a change. In front of the changes may be a snapshot: a mark, changes that make all that there was out of nothing,
//! and a mark behind them. It is written when the process begins and the log is much longer than what it says; nothing else is
//! appended meanwhile. A snapshot without its end counts for nothing: what was before it is still there.

use std::sync::Arc;

use savanna_epoch::NodeEpoch;
use savanna_files::change::FormatError;
use savanna_files::{Change, Limits, Namespace};
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options, Record};

/// The shard of all records: the subtree of the root.
const SHARD: u64 = savanna_files::ids::InodeId::ROOT.0;

/// Kinds of records.
const CHANGE: u16 = 1;
const SNAPSHOT_BEGINS: u16 = 2;
const SNAPSHOT_PART: u16 = 3;
const SNAPSHOT_ENDS: u16 = 4;

/// Rows in a record of a snapshot.
const ROWS: usize = 256;
/// A log of fewer changes is read in no time.
const CHANGES_MIN: usize = 100_000;
/// Parts of a snapshot that may be on their way to the disk.
const BACKLOG_MAX: usize = 16 << 20;

/// Why a record cannot be taken.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(
        "expected a change or a part of a snapshot, came a record of the kind {0}; open it with the release that wrote it"
    )]
    Kind(u16),
}

/// What the log says, as it is read.
struct Replay {
    namespace: Namespace,
    /// What a snapshot has made so far.
    coming: Option<Namespace>,
    changes: usize,
    superuser: String,
    limits: Limits,
}

impl Replay {
    fn take(&mut self, record: &Record) -> Result<(), ReplayError> {
        match record.kind {
            CHANGE => {
                self.changes += 1;
                self.namespace.apply(&Change::decode(&record.payload)?);
            }
            SNAPSHOT_BEGINS => self.coming = Some(Namespace::new(&self.superuser, self.limits)),
            SNAPSHOT_PART => {
                let part = Change::decode(&record.payload)?;
                if let Some(coming) = &mut self.coming {
                    coming.restore(&part);
                }
            }
            SNAPSHOT_ENDS => {
                if let Some(coming) = self.coming.take() {
                    self.namespace = coming;
                    self.changes = 0;
                }
            }
            other => return Err(ReplayError::Kind(other)),
        }
        Ok(())
    }
}

/// The log as bytes of a change.
pub(crate) const fn draft(payload: &[u8]) -> Draft<'_> {
    Draft { shard: SHARD, kind: CHANGE, payload }
}

/// Opens the log, and makes what it says.
pub(crate) fn recover(
    log: Options,
    epoch: NodeEpoch,
    superuser: &str,
    limits: Limits,
) -> Result<(Arc<Journal>, Namespace), JournalError> {
    let namespace = Namespace::new(superuser, limits);
    let mut replay = Replay { namespace, coming: None, changes: 0, superuser: superuser.to_owned(), limits };
    let journal = Journal::open(log, epoch, &mut |record| replay.take(&record))?;
    let Replay { namespace, changes, .. } = replay;
    if changes > CHANGES_MIN.max(4 * namespace.inode_count()) {
        shorten(&journal, &namespace)?;
    }
    Ok((Arc::new(journal), namespace))
}

/// Writes all that there is into the log, and drops what was before.
fn shorten(journal: &Journal, namespace: &Namespace) -> Result<(), JournalError> {
    let mark = |kind| Draft { shard: SHARD, kind, payload: &[] };
    let begin = journal.append(&[mark(SNAPSHOT_BEGINS)])?;
    for part in namespace.snapshot(ROWS) {
        let payload = part.encode();
        let lsn = journal.append(&[Draft { shard: SHARD, kind: SNAPSHOT_PART, payload: &payload }])?;
        if journal.backlog() > BACKLOG_MAX {
            wait(journal, lsn)?;
        }
    }
    let end = journal.append(&[mark(SNAPSHOT_ENDS)])?;
    wait(journal, end)?;
    journal.truncate_before(begin)
}

/// Blocks until the log is durable up to a position.
pub(crate) fn wait(journal: &Journal, lsn: Lsn) -> Result<(), JournalError> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    journal.gate().hold(lsn, move |outcome| {
        // Who waits may have gone.
        let _ = sender.try_send(outcome);
    });
    receiver.recv().unwrap_or_else(|_| Err(JournalError::Stopped { reason: "it ended without an answer".to_owned() }))
}

#[cfg(test)]
mod tests {
    use savanna_files::ids::Millis;
    use savanna_files::{Context, Request};
    use savanna_journal::sim::SimDisk;

    use super::*;

    const LIMITS: Limits = Limits { block_size_min: 16, listing: 1_000, names: 1 << 20, blocks: 10_000 };

    fn opened(disk: &Arc<SimDisk>, epoch: u64) -> (Arc<Journal>, Namespace) {
        recover(Options::disk(Arc::clone(disk) as _), NodeEpoch(epoch), "root", LIMITS).unwrap()
    }

    fn mkdirs(journal: &Journal, namespace: &mut Namespace, path: &str) {
        let request = Request::Mkdirs { path: path.to_owned(), mode: 0o755, with_parents: true };
        let context =
            Context { now: Millis(5), user: "root", groups: &[], is_superuser: true, call: None, machine: "127.0.0.1" };
        let change = namespace.decide(&request, &context).change.unwrap();
        journal.append(&[draft(&change.encode())]).unwrap();
        namespace.apply(&change);
    }

    fn rows(namespace: &Namespace) -> Vec<savanna_files::change::Row> {
        let mut rows: Vec<_> = namespace.tree().rows().collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    #[test]
    fn a_log_that_was_made_short_says_the_same() {
        let disk = SimDisk::new(1);
        let (journal, mut namespace) = opened(&disk, 1);
        for number in 0..600 {
            mkdirs(&journal, &mut namespace, &format!("/d{}/{number}", number % 7));
        }
        shorten(&journal, &namespace).unwrap();
        mkdirs(&journal, &mut namespace, "/later");
        journal.close().unwrap();
        let (journal, again) = opened(&disk, 2);
        assert_eq!(rows(&again), rows(&namespace));
        assert_eq!((again.txid(), again.counters()), (namespace.txid(), namespace.counters()));
        drop(journal);
    }

    #[test]
    fn a_snapshot_without_its_end_counts_for_nothing() {
        let disk = SimDisk::new(1);
        let (journal, mut namespace) = opened(&disk, 1);
        mkdirs(&journal, &mut namespace, "/a");
        let part = namespace.snapshot(1).next().unwrap().encode();
        let begins = Draft { shard: SHARD, kind: SNAPSHOT_BEGINS, payload: &[] };
        journal.append(&[begins]).unwrap();
        journal.append(&[Draft { shard: SHARD, kind: SNAPSHOT_PART, payload: &part }]).unwrap();
        journal.close().unwrap();
        let (journal, mut again) = opened(&disk, 2);
        assert_eq!(rows(&again), rows(&namespace));
        // And one that follows counts.
        shorten(&journal, &again).unwrap();
        mkdirs(&journal, &mut again, "/b");
        journal.close().unwrap();
        assert_eq!(rows(&opened(&disk, 3).1), rows(&again));
    }

    #[test]
    fn what_another_release_wrote_is_refused() {
        let disk = SimDisk::new(1);
        let (journal, _) = opened(&disk, 1);
        journal.append(&[draft(&[99, 1, 2])]).unwrap();
        journal.close().unwrap();
        let error = recover(Options::disk(disk), NodeEpoch(2), "root", LIMITS).unwrap_err();
        assert!(error.to_string().contains("format"), "{error}");
    }
}
