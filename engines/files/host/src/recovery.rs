//! Reads the log back ([`savanna_files::recovery`] says what it says), and makes it short.
//!
//! With a database the log is cut at what that has. Without one a snapshot is written when the process begins and the log is much longer than what it says.

use std::sync::Arc;

use savanna_epoch::NodeEpoch;
use savanna_files::ids::Txid;
use savanna_files::recovery::{CHANGE, Replay, Replayed, SNAPSHOT_BEGINS, SNAPSHOT_ENDS, SNAPSHOT_PART};
use savanna_files::{Limits, Namespace};
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options, Record};

use crate::options::HostError;

/// The shard of all records: the subtree of the root.
const SHARD: u64 = savanna_files::ids::InodeId::ROOT.0;

/// What the log says.
pub(crate) type Logged = savanna_files::recovery::Logged<Lsn>;

/// Rows in a record of a snapshot.
const ROWS: usize = 256;
/// A log of fewer changes is read in no time.
const CHANGES_MIN: usize = 100_000;
/// Parts of a snapshot that may be on their way to the disk.
const BACKLOG_MAX: usize = 16 << 20;

/// The log as bytes of a change.
pub(crate) const fn draft(payload: &[u8]) -> Draft<'_> {
    Draft { shard: SHARD, kind: CHANGE, payload }
}

/// Opens the log, and makes what it says. `base` is what a database has, if there is one. Also says from where on the log is needed when the database
/// has all of [`Logged::All`].
pub(crate) fn recover(
    log: Options,
    epoch: NodeEpoch,
    superuser: &str,
    limits: Limits,
    base: Option<Txid>,
) -> Result<(Arc<Journal>, Logged, Option<Lsn>), HostError> {
    let mut replay = Replay::new(superuser, limits, base);
    let journal =
        Journal::open(log, epoch, &mut |record: Record| replay.take(record.kind, &record.payload, record.lsn))?;
    let Replayed { logged, changes, needed } = replay.end()?;
    if let Logged::All(namespace) = &logged
        && base.is_none()
        && changes > CHANGES_MIN.max(4 * namespace.inode_count())
    {
        shorten(&journal, namespace)?;
    }
    Ok((Arc::new(journal), logged, needed))
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
    use savanna_files::{Change, Context, Request};
    use savanna_journal::sim::SimDisk;

    use super::*;

    const LIMITS: Limits = Limits { block_size_min: 16, listing: 1_000, names: 1 << 20, blocks: 10_000 };

    fn opened(disk: &Arc<SimDisk>, epoch: u64) -> (Arc<Journal>, Namespace) {
        let disk = Options::disk(Arc::clone(disk) as _);
        match recover(disk, NodeEpoch(epoch), "root", LIMITS, None).unwrap() {
            (journal, Logged::All(namespace), _) => (journal, namespace),
            (_, Logged::Behind(_), _) => panic!("there is no database"),
        }
    }

    fn mkdirs(journal: &Journal, namespace: &mut Namespace, path: &str) {
        let request = Request::Mkdirs { path: path.to_owned(), mode: 0o755.into(), with_parents: true };
        let context = Context {
            now: Millis(5),
            user: "root",
            groups: &[],
            is_superuser: true,
            call: None,
            machine: "127.0.0.1",
            may_empty: None,
            counted: None,
        };
        let change = namespace.decide(&request, &context, None).unwrap().change.unwrap();
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
    fn a_database_may_have_as_much_as_a_log_that_was_made_short() {
        let disk = SimDisk::new(1);
        let (journal, mut namespace) = opened(&disk, 1);
        mkdirs(&journal, &mut namespace, "/a");
        shorten(&journal, &namespace).unwrap();
        journal.close().unwrap();
        let base = namespace.txid();
        let recovered = |base| recover(Options::disk(Arc::clone(&disk) as _), NodeEpoch(2), "root", LIMITS, Some(base));
        let Ok((_, Logged::Behind(changes), Some(needed))) = recovered(base) else { panic!("it is not taken") };
        assert_eq!(changes, []);
        assert_eq!(needed, Lsn(2), "the snapshot, of which all is needed");
        let more = base.next();
        assert!(matches!(recovered(more), Err(HostError::Behindhand { log, .. }) if log == base.0));
    }

    #[test]
    fn what_another_release_wrote_is_refused() {
        let disk = SimDisk::new(1);
        let (journal, _) = opened(&disk, 1);
        journal.append(&[draft(&[99, 1, 2])]).unwrap();
        journal.close().unwrap();
        let Err(error) = recover(Options::disk(disk), NodeEpoch(2), "root", LIMITS, None) else {
            panic!("it is taken")
        };
        assert!(error.to_string().contains("format"), "{error}");
    }

    #[test]
    fn a_log_whose_beginning_is_in_a_database_is_refused_without_it() {
        let disk = SimDisk::new(1);
        let (journal, mut namespace) = opened(&disk, 1);
        let first = namespace.snapshot(9).next().unwrap();
        namespace.restore(&Change { txid: Txid(7), ..first });
        mkdirs(&journal, &mut namespace, "/a");
        mkdirs(&journal, &mut namespace, "/b");
        journal.close().unwrap();
        let recovered =
            |epoch, base| recover(Options::disk(Arc::clone(&disk) as _), NodeEpoch(epoch), "root", LIMITS, base);
        assert!(matches!(recovered(2, None), Err(HostError::Gap { first: 8, .. })));
        assert!(matches!(recovered(3, Some(Txid(6))), Err(HostError::Gap { first: 8, .. })));
        assert!(matches!(recovered(4, Some(Txid(10))), Err(HostError::Behindhand { log: 9, database: 10 })));
        let Ok((_, Logged::Behind(changes), needed)) = recovered(5, Some(Txid(8))) else { panic!("it is not taken") };
        assert_eq!(changes.iter().map(|(change, _)| change.txid).collect::<Vec<_>>(), [Txid(9)]);
        assert_eq!(needed.map(Lsn::next), Some(changes[0].1), "the change of the marker stays");
    }
}
