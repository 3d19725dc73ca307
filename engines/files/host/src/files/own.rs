//! The data node in the process, and its start: names are served while it looks at each replica that it has, which takes the longer the more there are.
//!
//! Until it has, whatever changes something, tells where blocks are, or ends one is refused, and so are data nodes of other processes: so nothing is made, deleted,
//! closed, or counted as missing before it is known what is here. Who waits for a start that does not take long notices nothing of it.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use savanna_files::blocks::Replica;
use savanna_files::ids::BlockId;
use savanna_files::namespace::AT_ONCE;
use savanna_files::{Class, FilesError};
use savanna_files_datanode::{Replicas, Space};

use super::{Files, Unanswered, nodes, now};
use crate::options::HostError;
use crate::upkeep::Task;

/// So long a start waits for all replicas before names are served.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether who waits is to go on waiting.
const TURN: Duration = Duration::from_millis(5);

/// The replicas of the data node in the process. Who uses them waits until they were read.
#[derive(Default)]
pub(super) struct Own {
    replicas: OnceLock<Replicas>,
    /// They will not be read.
    is_over: AtomicBool,
}

impl Deref for Own {
    type Target = Replicas;

    fn deref(&self) -> &Replicas {
        self.replicas.wait()
    }
}

impl Own {
    /// The process ends: they are not read to their end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Bytes of the disk; none before they were read.
    pub(super) fn space_now(&self) -> Space {
        self.replicas.get().map_or_else(Space::default, Replicas::space)
    }
}

/// Since when data nodes are heard: silence is measured from there, whatever the clock of the machine is set to.
#[derive(Debug, Default)]
pub(super) struct Hearing(OnceLock<Instant>);

impl Hearing {
    /// They are heard from now on.
    fn begin(&self) {
        self.0.get_or_init(Instant::now);
    }

    /// How long that has been.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.get().map_or(Duration::ZERO, Instant::elapsed)
    }
}

impl Files {
    /// Whether the data node in the process has looked at what it has.
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.0.replicas.replicas.get().is_some()
    }

    /// Refuses what needs the replicas as long as they are not read.
    ///
    /// # Errors
    /// [`Class::Retriable`].
    pub fn check_read(&self) -> Result<(), Unanswered> {
        match self.has_read() {
            true => Ok(()),
            false => Err(FilesError::new(Class::Retriable, savanna_files::operation::NO_PLACES).into()),
        }
    }

    /// Waits until the data node in the process has looked at what it has, unless the process ends, or somebody does not want that any more. Whether it has.
    pub fn wait_until_read(&self, is_over: impl Fn() -> bool) -> bool {
        while !self.has_read() {
            if is_over() || self.0.replicas.is_over.load(Ordering::Acquire) {
                return false;
            }
            std::thread::sleep(TURN);
        }
        true
    }

    /// Looks at all replicas, and removes those that nobody can want. `deleted` are blocks that the log took away. Blocks. Whether the service goes on.
    pub(crate) fn begin_replicas(&self, deleted: &HashSet<BlockId>) -> bool {
        let Err(error) = self.read_replicas(deleted) else { return true };
        if self.may_go_on() {
            self.end_with(&error, "mend it, and start the node again");
        }
        self.0.replicas.end();
        false
    }

    /// Whether they are still to be read. Without a lease the directory may be somebody else's: then it is waited until there is one again, or never will be.
    fn may_go_on(&self) -> bool {
        loop {
            if self.0.replicas.is_over.load(Ordering::Acquire) || self.has_ended() {
                return false;
            }
            if self.may_tell() {
                return true;
            }
            std::thread::sleep(TURN);
        }
    }

    fn read_replicas(&self, deleted: &HashSet<BlockId>) -> Result<(), HostError> {
        let path = self.0.directory.join("blocks");
        let failed = |source| HostError::Directory { path: path.clone(), source };
        let given_up = || failed(std::io::ErrorKind::Interrupted.into());
        let (replicas, whole) = Replicas::open_unless(&path, || !self.may_go_on()).map_err(failed)?;
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
            if !self.may_go_on() {
                return Err(given_up());
            }
            replicas.remove(*block).map_err(failed)?;
        }
        let is_sure = |block: &BlockId| self.0.behind.is_none() || deleted.contains(block);
        let (unwanted, orphans): (Vec<BlockId>, Vec<BlockId>) = without_file.into_iter().partition(is_sure);
        for some in strays.chunks(AT_ONCE).chain(unwanted.chunks(AT_ONCE)) {
            self.0.state.write().namespace.blocks.forget(some);
        }
        self.0.orphans.lock().extend(orphans);
        if !self.may_go_on() {
            return Err(given_up());
        }
        // Who is told has this thread.
        let _ = self.0.tasks.send(Task::Remove(unwanted));
        self.0.begun.begin();
        // There is one who reads.
        drop(self.0.replicas.replicas.set(replicas));
        let mut state = self.0.state.write();
        // Until now clients could not go on.
        state.namespace.leases.renew_all(now());
        state.namespace.is_waiting = state.namespace.is_waiting && nodes::is_waiting(&state.namespace);
        state.namespace.is_reading = false;
        Ok(())
    }
}
