//! The threads that read: a few for all queries of the process. They run source partitions in turns.
//!
//! A turn reads a batch or seals an epoch. A partition that has nothing to do waits without a thread, until its time has come
//! or somebody wakes it. What may block for long is run by [`blocking`]: another thread takes over the turns meanwhile, so that
//! a slow sink holds nobody up but its own query.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, io};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Bytes of a thread's stack. Expressions are computed by going down into them, once for each operator of a chain, and views
/// add theirs to those of a statement. It is address space until it is used.
pub(super) const STACK_BYTES: usize = 64 << 20;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(1);

/// What follows a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more to do.
    Again,
    /// Nothing for so long, unless it is woken.
    After(Duration),
    /// Nothing before it is woken.
    WhenWoken,
    /// It has ended.
    Never,
}

type Turn = dyn FnMut() -> Next + Send;

/// Something that is run in turns.
struct Task {
    number: u64,
    /// Locked by the thread that has its turn, and nobody else; none when it has ended.
    turn: Mutex<Option<Box<Turn>>>,
}

impl Task {
    fn give_turn(&self) -> Next {
        let mut turn = self.turn.lock();
        let next = turn.as_mut().map_or(Next::Never, |turn| turn());
        if next == Next::Never {
            *turn = None;
        }
        next
    }
}

/// Wakes a task.
#[derive(Clone)]
pub(crate) struct Waker(Arc<Task>);

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waker").field(&self.0.number).finish()
    }
}

impl Waker {
    /// Of a new task, which has not begun.
    pub(crate) fn new(turn: impl FnMut() -> Next + Send + 'static) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Task { number, turn: Mutex::new(Some(Box::new(turn))) }))
    }

    /// Gives the task turns until it has ended.
    ///
    /// # Errors
    /// There is no thread yet, and the operating system gives none.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut turns = TURNS.lock();
        if turns.threads == 0 {
            turns.start_thread()?;
        }
        turns.list(Arc::clone(&self.0));
        Ok(())
    }

    /// Gives the task a turn soon. One that has its turn gets another.
    pub(crate) fn wake(&self) {
        let mut turns = TURNS.lock();
        match turns.standings.get(&self.0.number).copied() {
            Some(Standing::Waits(until)) => {
                if let Some(until) = until {
                    turns.alarms.remove(&(until, self.0.number));
                }
                turns.list(Arc::clone(&self.0));
            }
            Some(Standing::Runs { .. }) => drop(turns.standings.insert(self.0.number, Standing::Runs { again: true })),
            Some(Standing::Listed) | None => {}
        }
    }
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It gets its turn next.
    Listed,
    /// It has its turn, and gets another at once if somebody woke it.
    Runs { again: bool },
    /// It waits, until then at most.
    Waits(Option<Instant>),
}

static TURNS: Mutex<Turns> = Mutex::new(Turns::new());
/// Wakes a thread that has nothing to do.
static WORK: Condvar = Condvar::new();
/// Wakes the thread that waits for the next alarm.
static ALARM: Condvar = Condvar::new();

thread_local! {
    /// Whether this thread has turns to give.
    static GIVES_TURNS: Cell<bool> = const { Cell::new(false) };
}

/// All tasks, and the threads that run them.
struct Turns {
    standings: BTreeMap<u64, Standing>,
    listed: VecDeque<Arc<Task>>,
    alarms: BTreeMap<(Instant, u64), Arc<Task>>,
    threads: usize,
    /// Threads that have nothing to do; one of them may wait for the next alarm.
    idle: usize,
    waits_for_alarm: bool,
    /// Threads in [`blocking`].
    blocked: usize,
}

impl Turns {
    const fn new() -> Self {
        Self {
            standings: BTreeMap::new(),
            listed: VecDeque::new(),
            alarms: BTreeMap::new(),
            threads: 0,
            idle: 0,
            waits_for_alarm: false,
            blocked: 0,
        }
    }

    fn list(&mut self, task: Arc<Task>) {
        self.standings.insert(task.number, Standing::Listed);
        self.listed.push_back(task);
        self.find_thread();
    }

    fn running(&self) -> usize {
        self.threads - self.idle - self.blocked
    }

    /// Sees to it that a thread gives the turns that are due, and one waits for the next alarm.
    fn find_thread(&mut self) {
        let wants_work = !self.listed.is_empty();
        let wants_alarm = !self.alarms.is_empty() && !self.waits_for_alarm;
        if self.running() >= *RUNNING_MAX || !wants_work && !wants_alarm {
            return;
        }
        if self.idle > usize::from(self.waits_for_alarm) {
            WORK.notify_one();
        } else if self.idle > 0 {
            ALARM.notify_one();
        } else if let Err(error) = self.start_thread() {
            tracing::warn!(%error, threads = self.threads, "no thread could be started to read sources; the others read them");
        }
    }

    fn start_thread(&mut self) -> io::Result<()> {
        let work = || work(TURNS.lock());
        thread::Builder::new().name("query-scan".into()).stack_size(STACK_BYTES).spawn(work)?;
        self.threads += 1;
        Ok(())
    }

    /// Waits for work. Whether the thread, which has had none since then, goes on.
    fn rest(turns: &mut MutexGuard<'_, Self>, idle_since: Instant) -> bool {
        let waits_for_alarm = !std::mem::replace(&mut turns.waits_for_alarm, true);
        turns.idle += 1;
        if waits_for_alarm {
            let alarm = turns.alarms.first_key_value().map(|((at, _), _)| *at);
            ALARM.wait_until(turns, alarm.unwrap_or_else(|| Instant::now() + IDLE));
            turns.waits_for_alarm = false;
        } else {
            WORK.wait_until(turns, idle_since + IDLE);
        }
        turns.idle -= 1;
        let is_wanted = !turns.listed.is_empty() || !turns.alarms.is_empty() && !turns.waits_for_alarm;
        is_wanted || idle_since.elapsed() < IDLE
    }

    /// Lists the tasks whose time has come.
    fn ring(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.alarms.first_entry().filter(|first| first.key().0 <= now) {
            let task = first.remove();
            self.list(task);
        }
    }

    /// Notes what follows the turn of a task.
    fn settle(&mut self, task: Arc<Task>, next: Next) {
        let is_woken = self.standings.get(&task.number) == Some(&Standing::Runs { again: true });
        match next {
            Next::Never => drop(self.standings.remove(&task.number)),
            Next::Again => self.list(task),
            _ if is_woken => self.list(task),
            Next::WhenWoken => drop(self.standings.insert(task.number, Standing::Waits(None))),
            Next::After(wait) => {
                let until = Instant::now() + wait;
                let is_first = self.alarms.first_key_value().is_none_or(|((first, _), _)| until < *first);
                self.standings.insert(task.number, Standing::Waits(Some(until)));
                self.alarms.insert((until, task.number), task);
                if is_first {
                    ALARM.notify_one();
                }
            }
        }
    }
}

/// So many turns are given at once: one per core, and some for those that wait for a disk.
static RUNNING_MAX: LazyLock<usize> = LazyLock::new(|| {
    const FOR_DISKS: usize = 2;
    thread::available_parallelism().map_or(1, usize::from) + FOR_DISKS
});

/// Does what may block for long; other threads give the turns meanwhile.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    /// The thread is back, also when the work panicked.
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            TURNS.lock().blocked -= 1;
            GIVES_TURNS.set(true);
        }
    }
    if !GIVES_TURNS.get() {
        return work();
    }
    GIVES_TURNS.set(false);
    {
        let mut turns = TURNS.lock();
        turns.blocked += 1;
        turns.find_thread();
    }
    let _back = Back;
    work()
}

/// Gives turns until there is nothing to do for a while.
fn work(mut turns: MutexGuard<'_, Turns>) {
    GIVES_TURNS.set(true);
    let mut idle_since = Instant::now();
    loop {
        turns.ring();
        // Who comes back from what blocks may be one too many.
        let task = if turns.running() > *RUNNING_MAX { None } else { turns.listed.pop_front() };
        if let Some(task) = task {
            turns.standings.insert(task.number, Standing::Runs { again: false });
            turns.find_thread();
            let next = MutexGuard::unlocked(&mut turns, || task.give_turn());
            turns.settle(task, next);
            idle_since = Instant::now();
        } else if !Turns::rest(&mut turns, idle_since) {
            turns.threads -= 1;
            return;
        }
    }
}
