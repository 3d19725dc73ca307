//! The data node in the process, and its start: names are served while it looks at each replica that it has, which takes the longer the more there are.
//!
//! Until it has, whatever changes something, tells where blocks are, or ends one waits ([`Files::when_read`]): so nothing is made, deleted, closed, or counted as
//! missing, and no data node of another process joins, before it is known what is here.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use savanna_files::blocks::Replica;
use savanna_files::ids::BlockId;
use savanna_files::namespace::AT_ONCE;
use savanna_files_datanode::{Replicas, Space};

use super::{Files, nodes, now};
use crate::options::HostError;
use crate::upkeep::Task;

/// How often it is looked whether who waits is to go on waiting.
const TURN: Duration = Duration::from_millis(50);

/// The replicas of the data node in the process. Who uses them waits until they were read.
#[derive(Default)]
pub(super) struct Own {
    replicas: OnceLock<Replicas>,
    is_read: AtomicBool,
    is_ending: AtomicBool,
    /// What waits; none once they were read.
    later: Mutex<Later>,
    changed: Condvar,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
enum Later {
    #[default]
    Nothing,
    Work(Vec<Work>),
    IsNow,
    /// They could not be read.
    Never,
}

impl Deref for Own {
    type Target = Replicas;

    fn deref(&self) -> &Replicas {
        self.replicas.wait()
    }
}

impl Own {
    /// Whether they were read.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    /// The process ends: they are not read to their end.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// Bytes of the disk; none before they were read.
    pub(super) fn space_now(&self) -> Space {
        self.replicas.get().map_or_else(Space::default, Replicas::space)
    }

    /// They were read: what waited is done.
    fn begin(&self, replicas: Replicas) {
        // There is one who reads.
        drop(self.replicas.set(replicas));
        self.is_read.store(true, Ordering::Release);
        let later = std::mem::replace(&mut *self.later.lock(), Later::IsNow);
        self.changed.notify_all();
        if let Later::Work(works) = later {
            works.into_iter().for_each(|work| work());
        }
    }
}

impl Files {
    /// Does something when the data node in the process has looked at what it has: at once, or later on another thread. If it never has, because the process
    /// ends, it is dropped.
    pub fn when_read(&self, work: impl FnOnce() + Send + 'static) {
        let mut later = self.0.replicas.later.lock();
        match &mut *later {
            Later::IsNow => {
                drop(later);
                work();
            }
            // What it would answer ends without an answer.
            Later::Never => {}
            Later::Nothing => *later = Later::Work(vec![Box::new(work)]),
            Later::Work(works) => works.push(Box::new(work)),
        }
    }

    /// Whether the data node in the process has looked at what it has.
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.0.replicas.is_read()
    }

    /// Waits until the data node in the process has looked at what it has, unless the process ends, or somebody does not want that any more. Whether it has.
    pub fn wait_until_read(&self, is_over: impl Fn() -> bool) -> bool {
        let own = &self.0.replicas;
        let mut later = own.later.lock();
        while !matches!(*later, Later::IsNow) {
            if is_over() || matches!(*later, Later::Never) {
                return false;
            }
            own.changed.wait_for(&mut later, TURN);
        }
        true
    }

    /// Looks at all replicas, and removes those that nobody can want. `deleted` are blocks that the log took away. Blocks. Whether the service goes on.
    pub(crate) fn begin_replicas(&self, deleted: &HashSet<BlockId>) -> bool {
        let Err(error) = self.read_replicas(deleted) else { return true };
        // What waits ends without an answer.
        let later = std::mem::replace(&mut *self.0.replicas.later.lock(), Later::Never);
        drop(later);
        if !self.0.replicas.is_ending.load(Ordering::Acquire) {
            self.end_with(&error, "mend it, and start the node again");
        }
        false
    }

    fn read_replicas(&self, deleted: &HashSet<BlockId>) -> Result<(), HostError> {
        let path = self.0.directory.join("blocks");
        let failed = |source| HostError::Directory { path: path.clone(), source };
        let is_ending = || self.0.replicas.is_ending.load(Ordering::Acquire);
        let (replicas, whole) = Replicas::open_unless(&path, is_ending).map_err(failed)?;
        for some in whole.chunks(AT_ONCE) {
            let mut state = self.0.state.write();
            some.iter().for_each(|replica: &Replica| state.namespace.blocks.reported(*replica));
        }
        // The log is all there is to know, and the database: what they do not name, they have taken away, or never told anybody.
        let mut without_file: Vec<BlockId> = Vec::new();
        for some in replicas.blocks().chunks(AT_ONCE) {
            let state = self.0.state.read();
            without_file.extend(some.iter().filter(|block| state.namespace.blocks.inode(**block).is_none()));
        }
        // Numbers that were not given yet will be.
        let last = self.0.state.read().namespace.counters().block;
        let (strays, without_file): (Vec<BlockId>, Vec<BlockId>) =
            without_file.into_iter().partition(|block| *block > last);
        for block in &strays {
            replicas.remove(*block).map_err(failed)?;
        }
        let is_sure = |block: &BlockId| self.0.behind.is_none() || deleted.contains(block);
        let (unwanted, orphans): (Vec<BlockId>, Vec<BlockId>) = without_file.into_iter().partition(is_sure);
        for some in strays.chunks(AT_ONCE).chain(unwanted.chunks(AT_ONCE)) {
            self.0.state.write().namespace.blocks.forget(some);
        }
        self.0.orphans.lock().extend(orphans);
        let mut state = self.0.state.write();
        // Until now clients could not go on.
        state.namespace.leases.renew_all(now());
        state.namespace.is_waiting = state.namespace.is_waiting && nodes::is_waiting(&state.namespace);
        drop(state);
        // Who is told has this thread.
        let _ = self.0.tasks.send(Task::Remove(unwanted));
        self.0.replicas.begin(replicas);
        Ok(())
    }
}
