//! A process that serves names: what it keeps, its log, and what waits for either.

use std::sync::Arc;

use savanna_epoch::NodeEpoch;
use savanna_files::change::CallId;
use savanna_files::flush::{Batch, Sending, Sent};
use savanna_files::ids::{BlockId, InodeId, Millis, Txid};
use savanna_files::operation::Recovery;
use savanna_files::recovery::{CHANGE, Replay, Replayed};
use savanna_files::{Change, Fetched, Key, Limits, Request, State};
use savanna_journal::sim::{SimDisk, SteppedJournal};
use savanna_journal::{Draft, JournalError, Lsn, Options};
use savanna_ownership::LeaseGuard;

use super::database::Owner;
use super::tree::{Answer, PAGE, Tree};

/// Who may do everything, as all clients here.
pub(super) const SUPERUSER: &str = "root";
pub(super) const LIMITS: Limits = Limits { block_size_min: 16, listing: PAGE, names: 1 << 20, blocks: 10_000 };
/// Few, so that a loss of power takes halves of what belongs together.
const BATCH_BYTES: usize = 512;
const SEGMENT_BYTES: usize = 32 << 10;

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) client: usize,
    /// Its number among those of its client.
    pub(super) number: u64,
    pub(super) request: Request,
    /// If it has to be done once.
    pub(super) id: Option<CallId>,
    /// The newest change of which somebody had been told when it was asked first.
    pub(super) floor: usize,
}

/// What there is to do in the namespace.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Ask(Call),
    /// Somebody wants the file at a path closed.
    Recover(String),
    Dismantle,
}

/// Something that lacks keys, or room if there are none.
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) work: Work,
    pub(super) keys: Vec<Key>,
    pub(super) is_asked: bool,
    pub(super) deadline: Millis,
}

/// An answer on its way out.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) call: Call,
    pub(super) answer: Answer,
    pub(super) point: Point,
}

/// Where in the order of all changes an answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// It is what this change did.
    Change(Txid),
    /// It is what the change did that the same call made before.
    Again(Txid),
    /// It changed nothing: it is right as long as this says so.
    Timeless,
    /// It changed nothing, and depends on what the data node has, too: it was right here.
    At(Txid),
    /// It was not done.
    Refused,
}

/// What waits for the log.
#[derive(Debug)]
pub(super) enum Held {
    Told(Told),
    Remove(Vec<BlockId>),
    Close(Recovery),
}

/// What a database is asked, by which process.
#[derive(Clone, Debug)]
pub(super) enum Asking {
    Fetch { number: u64, keys: Vec<Key> },
    Write { number: u64, base: Txid, batch: Arc<Batch> },
}

/// What it answers; nothing if it cannot be reached.
#[derive(Clone, Debug)]
pub(super) enum Answered {
    Fetched(u64, Option<Vec<Fetched>>),
    Written(u64, Option<Txid>),
    /// The process does not have the database any more.
    Lost(String),
}

pub(super) struct Process {
    pub(super) owner: Owner,
    pub(super) state: State<Lsn>,
    pub(super) journal: SteppedJournal<Held>,
    pub(super) guard: LeaseGuard,
    /// What there was after each change that it knows of.
    pub(super) line: Vec<Arc<Tree>>,
    pub(super) waiting: Vec<Waiting>,
    /// Files that are to be closed, and those whose last blocks the data node has ended for that.
    pub(super) closing: Vec<Recovery>,
    pub(super) closed: Vec<(Recovery, Option<u64>)>,
    /// What it knows the database to have.
    pub(super) flushed: Txid,
    pub(super) sent: Sent,
    /// The batch that is on its way.
    pub(super) writing: Option<(u64, Sending)>,
    /// Where the log is needed from.
    pub(super) needed: Option<Lsn>,
}

/// A log that was opened.
pub(super) type Opened = (SteppedJournal<Held>, Replayed<Lsn>);

/// Opens the log as the next owner.
pub(super) fn open(disk: &Arc<SimDisk>, epoch: u64, database: Txid) -> Result<Opened, String> {
    let mut replay = Replay::new(SUPERUSER, LIMITS, Some(database));
    let options = Options::disk(Arc::clone(disk) as _).batch_bytes(BATCH_BYTES).segment_bytes(SEGMENT_BYTES);
    let take = &mut |record: savanna_journal::Record| replay.take(record.kind, &record.payload, record.lsn);
    let journal = SteppedJournal::open(&options, NodeEpoch(epoch), take).map_err(|error| error.to_string())?;
    let replayed = replay.end().map_err(|unfit| format!("the log cannot be gone on with: {unfit:?}"))?;
    Ok((journal, replayed))
}

impl Process {
    /// What there is by the newest change that it knows of.
    pub(super) fn newest(&self) -> &Arc<Tree> {
        &self.line[self.line.len() - 1]
    }

    pub(super) fn append(&mut self, change: &Change) -> Result<Lsn, JournalError> {
        self.journal.append(&[Draft { shard: InodeId::ROOT.0, kind: CHANGE, payload: &change.encode() }])
    }
}
