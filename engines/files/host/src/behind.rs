//! The database behind the log: what is fetched when an operation lacks it, and the thread that brings changes there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use savanna_epoch::NodeEpoch;
use savanna_files::flush::{Batch, Sent};
use savanna_files::ids::{BlockId, InodeId, Millis, Txid};
use savanna_files::operation::{Rights, Summary};
use savanna_files::{Fetched, Key, Namespace};
use savanna_files_database::{Database, DatabaseError, Found, Owner, Place};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::files::Files;

/// How often changes go to the database, if they are few.
const INTERVAL: Duration = Duration::from_millis(100);
/// So many rows make a batch.
pub(crate) const BATCH: usize = 1_024;
/// With so many rows that the database lacks, changes wait.
pub(crate) const UNFLUSHED_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 16 };
/// So long an operation waits for the database, from when it was asked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long the start waits for it.
const PATIENCE_AT_START: Duration = Duration::from_secs(60);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Operations that may wait for the database.
const WAITING_MAX: usize = 4_096;
/// Threads on which they wait for what is not in memory.
const THREADS_MAX: usize = 64;
/// Threads on which changes wait for room: others are not kept from what they need.
const THREADS_FOR_ROOM: usize = 8;

/// What the database did since the service began.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseFigures {
    /// Files and directories in memory.
    pub cached: u64,
    /// Operations that found all that they needed in memory.
    pub hits: u64,
    /// Operations that had to wait for the database.
    pub misses: u64,
    /// Rows of changes that it lacks.
    pub unflushed: u64,
    /// Batches of changes that it took.
    pub batches: u64,
    /// Questions that were asked for operations.
    pub reads: u64,
    /// Attempts to reach it that failed.
    pub errors: u64,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    batches: AtomicU64,
    reads: AtomicU64,
    errors: AtomicU64,
}

/// How far the database is.
#[derive(Debug)]
struct Progress {
    flushed: Txid,
    sent: Sent,
    /// The thread that brings changes is to look at once.
    is_wanted: bool,
    has_ended: bool,
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// What is not in memory.
    Keys,
    /// That the database lacks less.
    Room,
}

/// How many rows a batch has: fewer when one took too long, and more again when one did not.
#[derive(Debug)]
struct BatchSize(AtomicUsize);

impl BatchSize {
    fn rows(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A batch came to something.
    fn learn<T>(&self, done: &Result<T, DatabaseError>) {
        let rows = self.rows();
        match done {
            Ok(_) => self.0.store((rows * 2).min(BATCH), Ordering::Relaxed),
            Err(error) if error.is_slow() => self.0.store((rows / 2).max(1), Ordering::Relaxed),
            Err(_) => {}
        }
    }
}

/// The database, and who waits for it.
#[derive(Debug)]
pub(crate) struct Behind {
    runtime: Option<Runtime>,
    handle: Handle,
    /// Has the threads on which changes wait for room.
    room: Option<Runtime>,
    database: Arc<Database>,
    batch_size: BatchSize,
    /// Inodes that may be in memory.
    pub(crate) inodes_max: usize,
    waiting: AtomicUsize,
    progress: Mutex<Progress>,
    changed: Condvar,
    /// It could not be reached when that was tried last.
    is_away: AtomicBool,
    counts: Counts,
    /// The most inodes that were taken in while others waited.
    #[cfg(test)]
    pub(crate) longest: AtomicUsize,
}

impl Behind {
    pub(crate) fn new(place: &Place, epoch: NodeEpoch, inodes_max: usize) -> Result<Self, BehindError> {
        let database = Arc::new(Database::new(place, Owner { epoch, process: rand::random() })?);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(THREADS_MAX)
            .thread_name("files-database")
            .enable_all()
            .build()
            .map_err(BehindError::Thread)?;
        let room = Builder::new_current_thread()
            .max_blocking_threads(THREADS_FOR_ROOM)
            .thread_name("files-room")
            .build()
            .map_err(BehindError::Thread)?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            room: Some(room),
            database,
            batch_size: BatchSize(AtomicUsize::new(BATCH)),
            inodes_max,
            waiting: AtomicUsize::new(0),
            progress: Mutex::new(Progress {
                flushed: Txid(0),
                sent: Sent::default(),
                is_wanted: false,
                has_ended: false,
            }),
            changed: Condvar::new(),
            is_away: AtomicBool::new(false),
            counts: Counts::default(),
            #[cfg(test)]
            longest: AtomicUsize::default(),
        })
    }

    /// How far the database is. Blocks, also for a while if it is away.
    pub(crate) fn look(&self, pool: &str) -> Result<Found, DatabaseError> {
        self.at_start(|| self.database.look(pool))
    }

    /// Takes the database over; see [`Database::claim`]. Blocks, also for a while if it is away.
    pub(crate) fn claim(&self, found: Found, log: Txid) -> Result<Found, DatabaseError> {
        self.at_start(|| self.database.claim(found, log))
    }

    fn at_start<T, F: Future<Output = Result<T, DatabaseError>>>(
        &self,
        work: impl Fn() -> F,
    ) -> Result<T, DatabaseError> {
        let end = Instant::now() + PATIENCE_AT_START;
        loop {
            match self.handle.block_on(work()) {
                Err(error) if error.is_passing() && Instant::now() < end => {
                    tracing::warn!(%error, "the database of files cannot be reached; it is tried again");
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    pub(crate) fn beginning(
        &self,
        found: Found,
        now: Millis,
    ) -> Result<savanna_files::cache::Beginning, DatabaseError> {
        self.at_start(|| self.database.beginning(found, now))
    }

    /// What there is for keys, when the process begins. Blocks, also for a while if it is away.
    pub(crate) fn fetch_at_start(&self, keys: &[Key]) -> Result<Vec<Fetched>, DatabaseError> {
        self.at_start(|| self.database.fetch(keys))
    }

    /// What there is for keys. Blocks, but not beyond an instant.
    pub(crate) fn fetch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Fetched>, DatabaseError> {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        let (database, keys) = (Arc::clone(&self.database), keys.to_vec());
        // It goes on when nobody waits for it any more, so that a connection on which nothing comes is ended.
        let fetching = self.handle.spawn(async move { database.fetch(&keys).await });
        let fetched = self.handle.block_on(async { tokio::time::timeout_at(deadline.into(), fetching).await });
        self.counted(match fetched {
            Ok(Ok(fetched)) => fetched,
            Ok(Err(_)) | Err(_) => Err(DatabaseError::Slow { seconds: PATIENCE.as_secs() }),
        })
    }

    pub(crate) fn subtree(&self, root: InodeId) -> Result<(Summary, Vec<Rights>), DatabaseError> {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counted(self.handle.block_on(self.database.subtree(root)))
    }

    pub(crate) fn without_file(&self, blocks: &[BlockId]) -> Result<Vec<BlockId>, DatabaseError> {
        self.counted(self.handle.block_on(self.database.without_file(self.flushed_up_to(), blocks)))
    }

    /// Writes all that there is, in place of all up to a change.
    pub(crate) fn replace(&self, base: Txid, namespace: &Namespace) -> Result<(), DatabaseError> {
        self.at_start(|| async {
            let (parts, last) = namespace.batches(BATCH);
            self.database.replace(base, parts, &last).await
        })
    }

    /// How many rows the next batch has.
    pub(crate) fn batch_rows(&self) -> usize {
        self.batch_size.rows()
    }

    /// Brings a batch there. Up to which change the database has all then: beyond the batch, if an earlier one that took too long was done after all.
    pub(crate) fn write(&self, batch: &Batch) -> Result<Txid, DatabaseError> {
        let (base, sending) = {
            let mut progress = self.progress.lock();
            (progress.flushed, progress.sent.begin(batch.txid))
        };
        let done = self.handle.block_on(self.database.write(base, batch));
        if let Err(DatabaseError::WentBack { came, .. }) = &done
            && sending.was_overtaken(*came)
        {
            // How long that took says nothing.
            return Ok(*came);
        }
        self.batch_size.learn(&done);
        self.counted(done)?;
        self.counts.batches.fetch_add(1, Ordering::Relaxed);
        Ok(sending.taken())
    }

    /// A batch that took too long, and is done all the same.
    #[cfg(test)]
    pub(crate) fn write_late(&self, batch: &Batch) {
        let base = self.flushed_up_to();
        let _ = self.progress.lock().sent.begin(batch.txid);
        self.handle.block_on(self.database.write(base, batch)).unwrap();
    }

    fn counted<T>(&self, done: Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        if done.is_err() {
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    /// An operation found all that it needed.
    pub(crate) fn hit(&self) {
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// An operation lacks something.
    pub(crate) fn missed(&self) {
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Does something that waits on a thread of its own; gives it back if too much waits already.
    pub(crate) fn later<T: Send + 'static>(
        this: &Arc<Self>,
        lane: Lane,
        it: T,
        work: impl FnOnce(T) + Send + 'static,
    ) -> Result<(), T> {
        if this.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            this.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(it);
        }
        let waits = Arc::clone(this);
        let thread = match (lane, &this.room) {
            (Lane::Room, Some(room)) => room.handle(),
            _ => &this.handle,
        };
        thread.spawn_blocking(move || {
            work(it);
            waits.waiting.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(())
    }

    /// The database has all changes up to one.
    pub(crate) fn flushed(&self, txid: Txid) {
        let mut progress = self.progress.lock();
        progress.flushed = progress.flushed.max(txid);
        self.changed.notify_all();
    }

    /// Brings changes to the database at once.
    pub(crate) fn hurry(&self) {
        let mut progress = self.progress.lock();
        if !progress.is_wanted {
            progress.is_wanted = true;
            self.changed.notify_all();
        }
    }

    /// The thread that brings changes ends.
    pub(crate) fn end(&self) {
        self.progress.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the database has more than it had, but not beyond an instant. Whether it has.
    pub(crate) fn wait_for_more(&self, before: Txid, deadline: Instant) -> bool {
        let mut progress = self.progress.lock();
        while progress.flushed <= before {
            if progress.has_ended || self.changed.wait_until(&mut progress, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// Waits for the next batch. Whether there is to be one.
    fn wait_for_turn(&self) -> bool {
        let deadline = Instant::now() + INTERVAL;
        let mut progress = self.progress.lock();
        while !progress.has_ended && !progress.is_wanted {
            if self.changed.wait_until(&mut progress, deadline).timed_out() {
                break;
            }
        }
        progress.is_wanted = false;
        !progress.has_ended
    }

    pub(crate) fn flushed_up_to(&self) -> Txid {
        self.progress.lock().flushed
    }

    /// Whether it could not be reached when that was tried last.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    pub(crate) fn figures(&self, cached: usize, unflushed: usize) -> DatabaseFigures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DatabaseFigures {
            cached: cached as u64,
            hits: count(&self.counts.hits),
            misses: count(&self.counts.misses),
            unflushed: unflushed as u64,
            batches: count(&self.counts.batches),
            reads: count(&self.counts.reads),
            errors: count(&self.counts.errors),
        }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // It may be dropped where nobody may block.
        for runtime in [self.runtime.take(), self.room.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum BehindError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// No thread for it.
    #[error("a thread for the database of files could not be started: {0}")]
    Thread(io::Error),
}

/// When an operation that begins to wait now is given up.
pub(crate) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// The pause before something is tried again; none if it would be too late then.
pub(crate) fn pause(deadline: Instant) -> bool {
    let is_in_time = Instant::now() + PAUSE < deadline;
    if is_in_time {
        std::thread::sleep(PAUSE);
    }
    is_in_time
}

/// The thread that brings changes to the database.
pub(crate) fn begin(files: Files) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("files-flush".to_owned());
    thread.spawn(move || run(&files))
}

fn run(files: &Files) {
    let Some(behind) = files.behind() else { return };
    let mut is_away = false;
    while behind.wait_for_turn() && !files.has_ended() {
        let done = files.flush().and_then(|()| files.remove_orphans()).and_then(|()| files.check_replicas());
        behind.is_away.store(done.is_err(), Ordering::Relaxed);
        match done {
            Ok(()) if is_away => {
                tracing::info!("the database of files is there again");
                is_away = false;
            }
            Ok(()) => {}
            Err(error) if error.is_final() => files.end(&error),
            Err(error) => {
                if !is_away {
                    tracing::warn!(%error, "changes of files wait for the database");
                }
                is_away = true;
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_took_too_long_is_followed_by_smaller_ones() {
        let size = BatchSize(AtomicUsize::new(BATCH));
        let slow = Err::<(), _>(DatabaseError::Slow { seconds: 1 });
        size.learn(&slow);
        size.learn(&slow);
        assert_eq!(size.rows(), BATCH / 4);
        size.learn(&Err::<(), _>(DatabaseError::Away));
        size.learn(&Ok(()));
        assert_eq!(size.rows(), BATCH / 2, "it is not its size that keeps a database away");
        for _ in 0..20 {
            size.learn(&slow);
        }
        assert_eq!(size.rows(), 1);
        for _ in 0..20 {
            size.learn(&Ok(()));
        }
        assert_eq!(size.rows(), BATCH);
    }
}
