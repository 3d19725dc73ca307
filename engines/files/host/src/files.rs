//! The handle of faces.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use parking_lot::{RwLock, RwLockWriteGuard};
use savanna_files::blocks::Replica;
use savanna_files::change::CallId;
use savanna_files::ids::{BlockId, InodeId, Millis};
use savanna_files::operation::{Begun, Decision, Recovery, Summary, Walk};
use savanna_files::{Change, Class, Context, FilesError, Namespace, Reply, Request};
use savanna_files_datanode::{ReplicaError, Replicas, Space};
use savanna_journal::{Journal, JournalError, Lsn, Stats as LogStats};
use savanna_ownership::guard::LeaseGuard;

use crate::groups::Groups;
use crate::identity::Identity;
use crate::options::{HostError, HostOptions};
use crate::pending::Pending;
use crate::recovery::{self, draft, recover};
use crate::upkeep::{Task, Upkeep};

/// Inodes that one look at the namespace goes over, while writers wait.
const AT_ONCE: usize = 256;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The user, as the client says.
    pub user: &'a str,
    /// Where the client is.
    pub machine: &'a str,
    /// The call, if it has to be done once.
    pub call: Option<CallId>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It is refused.
    Refused(FilesError),
    /// Nobody may be told anything: whether it was done is not known. The connection has to end.
    Gone,
}

impl From<FilesError> for Unanswered {
    fn from(error: FilesError) -> Self {
        Self::Refused(error)
    }
}

/// An answer, or why there is none.
pub type Answer = Result<Reply, Unanswered>;

/// What a name node and its data node have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// The disk of the data node.
    pub space: Space,
    /// Blocks that the data node lacks.
    pub missing: u64,
}

/// Figures for whoever watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Files and directories.
    pub inodes: u64,
    /// Blocks of files.
    pub blocks: u64,
    /// Clients that write.
    pub leases: u64,
    /// Changes since the beginning of the installation.
    pub changes: u64,
    /// Bytes of replicas.
    pub bytes: u64,
    /// What the log did since the service began.
    pub log: LogStats,
}

/// The namespace, and where its newest changes are in the log.
#[derive(Debug)]
struct State {
    namespace: Namespace,
    pending: Pending,
}

struct Shared {
    state: RwLock<State>,
    journal: Arc<Journal>,
    lease: Option<LeaseGuard>,
    replicas: Replicas,
    identity: Identity,
    superuser: String,
    groups: Groups,
    tasks: Sender<Task>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Files and directories, and the replicas of their blocks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Files(Arc<Shared>);

impl Files {
    /// Reads the log and the replicas, and begins to look after them. Blocks while it reads.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(options: HostOptions) -> Result<(Self, Upkeep), HostError> {
        let HostOptions { log, epoch, lease, directory, superuser, limits } = options;
        let failed = |path: &std::path::Path| {
            let path = path.to_owned();
            move |source| HostError::Directory { path, source }
        };
        std::fs::create_dir_all(&directory).map_err(failed(&directory))?;
        // Who opens the log ends whoever had it before; only then the replicas are ours.
        let (journal, mut namespace) = recover(log, epoch, &superuser, limits)?;
        let identity = Identity::of(&directory, now().0)?;
        let blocks = directory.join("blocks");
        let (replicas, whole) = Replicas::open(&blocks).map_err(failed(&blocks))?;
        for replica in whole {
            namespace.blocks.received(replica);
        }
        // The log is all there is to know: what it does not name, it has taken away, or never told anybody.
        let unwanted = replicas.blocks().into_iter().filter(|block| namespace.blocks.inode(*block).is_none()).collect();
        namespace.blocks.take_unwanted();
        namespace.leases.renew_all(now());
        let (tasks, upkeep) = std::sync::mpsc::channel();
        // It is received below.
        let _ = tasks.send(Task::Remove(unwanted));
        let state = RwLock::new(State { namespace, pending: Pending::default() });
        let groups = Groups::default();
        let files = Self(Arc::new(Shared { state, journal, lease, replicas, identity, superuser, groups, tasks }));
        let upkeep = Upkeep::begin(files.clone(), upkeep).map_err(failed(&directory))?;
        Ok((files, upkeep))
    }

    /// Does a request. `answer` gets its outcome when that may be told: at once on this thread, or later on that of the log.
    pub fn call(&self, asker: &Asker<'_>, request: &Request, answer: impl FnOnce(Answer) + Send + 'static) {
        let groups = self.0.groups.of(asker.user);
        let context = self.context(asker, &groups);
        let (outcome, position) = if request.changes() {
            let mut state = self.0.state.write();
            let Decision { answer, change, depends } = state.namespace.decide(request, &context);
            match change.map(|change| self.commit(&mut state, &change)) {
                None => (answer.map_err(Unanswered::from), state.pending.position(depends)),
                Some(Ok(lsn)) => (answer.map_err(Unanswered::from), Some(lsn)),
                Some(Err(error)) => (Err(error), None),
            }
        } else {
            let state = self.0.state.read();
            let Decision { answer, depends, .. } = state.namespace.decide(request, &context);
            (answer.map_err(Unanswered::from), state.pending.position(depends))
        };
        self.hold(position, outcome, answer);
    }

    /// Counts what a subtree holds. Blocks as long as that takes; what changes meanwhile may be counted or not.
    pub fn summary(
        &self,
        asker: &Asker<'_>,
        path: &str,
        answer: impl FnOnce(Result<Summary, Unanswered>) + Send + 'static,
    ) {
        let groups = self.0.groups.of(asker.user);
        let context = self.context(asker, &groups);
        let begin = |state: &State| Walk::begin(&state.namespace, &context, path);
        let mut walk: Option<Walk> = None;
        let (outcome, position) = loop {
            let state = self.0.state.read();
            let counted = match &mut walk {
                Some(walk) => walk.go_on(&state.namespace, &context, AT_ONCE),
                None => begin(&state).map(|begun| {
                    walk = Some(begun);
                    None
                }),
            };
            match counted {
                Ok(None) => {}
                Ok(Some((summary, depends))) => break (Ok(summary), state.pending.position(depends)),
                Err(error) => break (Err(Unanswered::from(error)), state.pending.position(state.namespace.txid())),
            }
        };
        self.hold(position, outcome, answer);
    }

    /// Closes a file whose writer has gone, for a client that wants to write it. Whether it is closed. Blocks.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn recover_lease(&self, asker: &Asker<'_>, path: &str, client: &str) -> Result<bool, Unanswered> {
        let groups = self.0.groups.of(asker.user);
        let context = self.context(asker, &groups);
        let mut state = self.0.state.write();
        let begun = match state.namespace.recover_lease(&context, path, client) {
            Ok(begun) => begun,
            Err(error) => {
                let position = state.pending.position(state.namespace.txid());
                drop(state);
                self.wait(position)?;
                return Err(error.into());
            }
        };
        match begun {
            Begun::Closed => {
                let position = state.pending.position(state.namespace.txid());
                drop(state);
                self.wait(position)?;
                Ok(true)
            }
            Begun::Recovery(change, recovery) => {
                let lsn = self.commit(&mut state, &change)?;
                drop(state);
                self.close_left(lsn, recovery)
            }
        }
    }

    /// Closes the files of writers that have gone for good. Blocks.
    pub(crate) fn close_all_left(&self, left: impl Fn(&Namespace, Millis) -> Vec<InodeId>) -> Result<(), Unanswered> {
        let now = now();
        let files = left(&self.0.state.read().namespace, now);
        let mut done = Ok(());
        for file in files {
            let mut state = self.0.state.write();
            let Some((change, recovery)) = state.namespace.close_left(file, now) else { continue };
            let lsn = self.commit(&mut state, &change)?;
            drop(state);
            match self.close_left(lsn, recovery) {
                Ok(true) => tracing::info!(inode = %file, "closed a file whose writer has gone"),
                Ok(false) => {}
                // The others can be closed all the same.
                Err(error @ Unanswered::Refused(_)) => done = Err(error),
                Err(Unanswered::Gone) => return Err(Unanswered::Gone),
            }
        }
        done
    }

    /// Ends the last block of a file whose recovery was begun at a position of the log, and closes the file.
    /// Whether it is closed.
    fn close_left(&self, begun: Lsn, recovery: Recovery) -> Result<bool, Unanswered> {
        self.wait(Some(begun))?;
        let ended = recovery.block.map(|(block, stamp)| self.0.replicas.recover(block, stamp, 0)).transpose();
        let ended = match ended {
            Ok(ended) => ended.flatten(),
            // Another recovery has begun since, and goes on with it.
            Err(ReplicaError::Replaced { .. }) => return self.is_closed(recovery.inode),
            Err(error) => return Err(FilesError::new(Class::Io, error.to_string()).into()),
        };
        let mut state = self.0.state.write();
        if let Some(replica) = ended {
            state.namespace.blocks.received(replica);
        }
        let length = ended.map(|replica| replica.length);
        let Some(change) = state.namespace.finish_recovery(recovery, length, now()) else {
            drop(state);
            return self.is_closed(recovery.inode);
        };
        let lsn = self.commit(&mut state, &change)?;
        drop(state);
        self.wait(Some(lsn))?;
        Ok(true)
    }

    /// Whether a file has no writer, and the log says so.
    fn is_closed(&self, file: InodeId) -> Result<bool, Unanswered> {
        let state = self.0.state.read();
        let inode = state.namespace.tree().get(file);
        let is_closed = inode.and_then(|inode| inode.file()).is_some_and(|file| file.writer.is_none());
        let position = state.pending.position(state.namespace.txid());
        drop(state);
        self.wait(position)?;
        Ok(is_closed)
    }

    /// Takes a part of what was deleted apart. Whether there may be more.
    pub(crate) fn dismantle(&self) -> Result<bool, Unanswered> {
        let mut state = self.0.state.write();
        let Some(change) = state.namespace.dismantle(now(), AT_ONCE) else { return Ok(false) };
        let lsn = self.commit(&mut state, &change)?;
        drop(state);
        self.wait(Some(lsn))?;
        Ok(true)
    }

    /// A client that writes says that it is there.
    ///
    /// # Errors
    /// [`Unanswered::Gone`].
    pub fn renew_lease(&self, client: &str) -> Result<(), Unanswered> {
        self.0.state.write().namespace.leases.renew(client, now());
        self.wait(None)
    }

    /// The data node has a replica that is whole.
    pub fn received(&self, replica: Replica) {
        let mut state = self.0.state.write();
        if !state.namespace.blocks.received(replica) {
            // Its file was deleted while it was written.
            let position = state.pending.position(state.namespace.txid());
            drop(state);
            self.remove_after(position, vec![replica.block]);
        }
    }

    /// A client found a block damaged.
    pub fn found_corrupt(&self, block: BlockId) {
        tracing::warn!(%block, "a client found a block damaged");
        self.0.state.write().namespace.blocks.found_corrupt(block);
    }

    /// Refuses changes from now on, or no more, for the superuser; or only tells. Whether they are refused.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn safe_mode(&self, asker: &Asker<'_>, wanted: Option<bool>) -> Result<bool, Unanswered> {
        let groups = self.0.groups.of(asker.user);
        if wanted.is_some() && !self.context(asker, &groups).is_superuser {
            let words = format!("Access denied for user {}. Superuser privilege is required", asker.user);
            return Err(FilesError::new(Class::AccessControl, words).into());
        }
        let mut state = self.0.state.write();
        let is_safe = wanted.unwrap_or(state.namespace.is_safe);
        state.namespace.is_safe = is_safe;
        drop(state);
        self.wait(None)?;
        Ok(is_safe)
    }

    /// What there is on the disk.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let missing = self.0.state.read().namespace.blocks.missing() as u64;
        Stats { space: self.0.replicas.space(), missing }
    }

    /// Figures for whoever watches.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.0.state.read();
        let namespace = &state.namespace;
        Figures {
            inodes: namespace.inode_count() as u64,
            blocks: namespace.blocks.len() as u64,
            leases: namespace.leases.len() as u64,
            changes: namespace.txid().0,
            bytes: self.0.replicas.space().used,
            log: self.0.journal.stats(),
        }
    }

    /// Whether anybody may be told anything at this instant; who tells something that no log has asks before.
    #[must_use]
    pub fn may_tell(&self) -> bool {
        self.0.lease.as_ref().is_none_or(LeaseGuard::serving)
    }

    /// The replicas of the data node.
    #[must_use]
    pub fn replicas(&self) -> &Replicas {
        &self.0.replicas
    }

    /// What the installation is called.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Ends the log: what was changed is durable when this returns. Blocks.
    ///
    /// # Errors
    /// The log had ended before.
    pub fn close(&self) -> Result<(), HostError> {
        // Upkeep that has ended is told nothing more.
        let _ = self.0.tasks.send(Task::End);
        Ok(self.0.journal.close()?)
    }

    /// Whether anybody may be told anything.
    pub(crate) fn probe(&self) -> Result<(), Unanswered> {
        self.wait(Some(Lsn(0)))
    }

    /// Whether the log has ended, so that nobody will be told anything more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        recovery::wait(&self.0.journal, Lsn(0)).is_err()
    }

    fn context<'a>(&self, asker: &Asker<'a>, groups: &'a [String]) -> Context<'a> {
        let Asker { user, machine, call } = *asker;
        let is_superuser = user == self.0.superuser || groups.iter().any(|group| group == SUPERGROUP);
        Context { now: now(), user, groups, is_superuser, call, machine }
    }

    /// Appends a change to the log, and applies it.
    fn commit(&self, state: &mut RwLockWriteGuard<'_, State>, change: &Change) -> Result<Lsn, Unanswered> {
        if let Some(full) = self.0.journal.full() {
            return Err(FilesError::new(Class::Retriable, full.to_string()).into());
        }
        let lsn = self.0.journal.append(&[draft(&change.encode())]).map_err(|error| match error {
            JournalError::Backlog { .. } => FilesError::new(Class::Retriable, error.to_string()).into(),
            JournalError::TooLarge { .. } => FilesError::new(Class::Io, error.to_string()).into(),
            _ => Unanswered::Gone,
        })?;
        state.namespace.apply(change);
        state.pending.add(change.txid, lsn, self.0.journal.durable());
        let unwanted = state.namespace.blocks.take_unwanted();
        if !unwanted.is_empty() {
            self.remove_after(Some(lsn), unwanted);
        }
        Ok(lsn)
    }

    /// Has replicas removed when the log is durable up to a position: until then a crash brings their files back.
    fn remove_after(&self, position: Option<Lsn>, blocks: Vec<BlockId>) {
        match position {
            Some(lsn) if lsn > self.0.journal.durable() => {
                let files = self.clone();
                self.0.journal.gate().hold(lsn, move |outcome| {
                    if outcome.is_ok() {
                        files.remove(blocks);
                    }
                });
            }
            _ => self.remove(blocks),
        }
    }

    /// Has replicas removed.
    fn remove(&self, blocks: Vec<BlockId>) {
        // Who has ended finds them when it begins again.
        let _ = self.0.tasks.send(Task::Remove(blocks));
    }

    /// Holds an outcome back until the log is durable up to a position.
    fn hold<T: Send + 'static>(
        &self,
        position: Option<Lsn>,
        outcome: Result<T, Unanswered>,
        answer: impl FnOnce(Result<T, Unanswered>) + Send + 'static,
    ) {
        let lease = self.0.lease.clone();
        let told = move |is_durable: bool| {
            let may_tell = is_durable && lease.is_none_or(|lease| lease.serving());
            answer(if may_tell { outcome } else { Err(Unanswered::Gone) });
        };
        match position {
            Some(lsn) if lsn > self.0.journal.durable() => {
                self.0.journal.gate().hold(lsn, move |durable| told(durable.is_ok()));
            }
            _ => told(true),
        }
    }

    /// Blocks until something may be told that depends on a position of the log.
    fn wait(&self, position: Option<Lsn>) -> Result<(), Unanswered> {
        if let Some(lsn) = position {
            recovery::wait(&self.0.journal, lsn).map_err(|_| Unanswered::Gone)?;
        }
        if self.may_tell() { Ok(()) } else { Err(Unanswered::Gone) }
    }
}

/// Who is in it may do everything.
const SUPERGROUP: &str = "supergroup";

/// The instant, by the clock of the machine.
fn now() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
