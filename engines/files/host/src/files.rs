//! The handle of faces.

pub(crate) mod awaited;
mod begin;
mod closing;
mod counting;
mod emptying;
mod errands;
pub(crate) mod figures;
mod flushing;
mod lacking;
mod locked;
mod metasave;
pub(crate) mod nodes;
mod own;
mod summary;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLockWriteGuard};
use savanna_files::blocks::{Holder, Replica};
use savanna_files::change::CallId;
use savanna_files::ids::{BlockId, Millis};
use savanna_files::namespace::AT_ONCE;
use savanna_files::operation::Decision;
use savanna_files::{Change, Class, Context, FilesError, Known, Missing, Reply, Request};
use savanna_files_database::DatabaseError;
use savanna_files_datanode::{Replicas, Space};
use savanna_journal::{Journal, JournalError, Lsn};
use savanna_ownership::guard::LeaseGuard;

use crate::behind::{self, Behind};
use crate::files::awaited::{Awaited, Awaiting};
use crate::files::emptying::Questions;
use crate::files::errands::Errands;
use crate::files::lacking::Waiting;
use crate::files::locked::Locked;
use crate::files::own::{Hearing, Own};
use crate::groups::Groups;
use crate::identity::Identity;
use crate::options::HostError;
use crate::recovery::{self, draft};
use crate::upkeep::Task;

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

/// The namespace, and how it stands with the log and the database.
type State = savanna_files::State<Lsn>;

/// What a request came to, and what of the log that depends on.
type Outcome = (Answer, Option<Lsn>);

struct Shared {
    state: Locked,
    journal: Arc<Journal>,
    lease: Option<LeaseGuard>,
    replicas: Own,
    /// Replicas of which no file is here: they go if the database has none either.
    orphans: Mutex<Vec<BlockId>>,
    identity: Identity,
    directory: PathBuf,
    superuser: String,
    trash_minutes: u32,
    groups: Groups,
    tasks: Sender<Task>,
    behind: Option<Arc<Behind>>,
    /// The change of the log that the database had last. It stays, so that the log is never shorter than the database.
    needed: Mutex<Option<Lsn>>,
    /// The database is not ours any more: nobody is told anything.
    lost: OnceLock<String>,
    /// Since when data nodes are heard.
    begun: Hearing,
    /// The lines of the file with the names of data nodes.
    nodes_kept: Mutex<Option<std::collections::BTreeSet<String>>>,
    /// Who waits for the report of a block.
    awaited: Arc<Awaited>,
    /// What is asked before directories are deleted.
    questions: Questions,
    /// What takes long and is no operation.
    errands: Errands,
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
    /// Does a request. `answer` gets its outcome when that may be told: at once on this thread, or later on that of the log. What has to wait for
    /// the database is done on another thread.
    pub fn call(&self, asker: &Asker<'_>, request: &Request, answer: impl FnOnce(Answer) + Send + 'static) {
        let groups = self.0.groups.of(asker.user);
        match (self.attempt(&self.context(asker, &groups), request), &self.0.behind) {
            (Ok((outcome, position)), behind) => {
                if let Some(behind) = behind {
                    behind.hit();
                }
                self.hold(position, outcome, answer);
            }
            (Err(missing), behind) => {
                let (user, machine, call) = (asker.user.to_owned(), asker.machine.to_owned(), asker.call);
                let (request, deadline, answer) = (request.clone(), behind::deadline(), Box::new(answer));
                let (asked, counted, question, count) = (0, 0, None, None);
                let waiting = Waiting {
                    user,
                    machine,
                    call,
                    groups,
                    request,
                    missing,
                    asked,
                    counted,
                    question,
                    count,
                    deadline,
                    answer,
                };
                match (waiting.missing.asking(), behind) {
                    (Some(asking), _) => self.ask_first(waiting, asking),
                    (None, Some(behind)) => {
                        behind.missed();
                        self.later(behind, waiting);
                    }
                    (None, None) => {
                        let why = emptying::not_in_memory(&waiting.missing.0);
                        self.hold(None, Err(why), waiting.answer);
                    }
                }
            }
        }
    }

    /// Does a request with what is in memory, if nothing else is needed.
    fn attempt(&self, context: &Context<'_>, request: &Request) -> Result<Outcome, Missing> {
        if request.changes() {
            let mut state = self.0.state.write();
            self.decide(&mut state, context, request, None)
        } else {
            Self::read(&self.0.state.read(), context, request, None)
        }
    }

    /// Decides a request that changes nothing.
    fn read(
        state: &State,
        context: &Context<'_>,
        request: &Request,
        known: Option<&Known>,
    ) -> Result<Outcome, Missing> {
        let Decision { answer, depends, .. } = state.namespace.decide(request, context, known)?;
        Ok((answer.map_err(Unanswered::from), state.pending.position(depends)))
    }

    /// Decides a request, and commits what it changes. It lacks room, and no keys, if the database is too far behind.
    fn decide(
        &self,
        state: &mut RwLockWriteGuard<'_, State>,
        context: &Context<'_>,
        request: &Request,
        known: Option<&Known>,
    ) -> Result<Outcome, Missing> {
        let decision = state.decide(request, context, known, behind::UNFLUSHED_MAX)?;
        let Decision { answer, change, depends, recovery } = decision;
        Ok(match change.map(|change| self.commit(state, change)) {
            None => (answer.map_err(Unanswered::from), state.pending.position(depends)),
            Some(Ok(lsn)) => {
                if let Ok(reply) = &answer {
                    state.namespace.blocks.follow(request, reply);
                }
                if let Some(recovery) = recovery {
                    // Who has ended does it when it begins again.
                    let _ = self.0.tasks.send(Task::Close(lsn, recovery));
                }
                (answer.map_err(Unanswered::from), Some(lsn))
            }
            Some(Err(error)) => (Err(error), None),
        })
    }

    pub(crate) fn behind(&self) -> Option<Arc<Behind>> {
        self.0.behind.clone()
    }

    /// Takes a part of what was deleted apart. Whether there may be more.
    pub(crate) fn dismantle(&self) -> Result<bool, Unanswered> {
        let take = |state: &mut RwLockWriteGuard<'_, State>, known: Option<&Known>| {
            let change = state.namespace.dismantle(now(), AT_ONCE, known)?;
            Ok(change.map(|change| self.commit(state, change)).transpose())
        };
        let taken = take(&mut self.0.state.write(), None);
        let taken = taken
            .or_else(|missing| self.with_all(missing, behind::deadline(), |mut state, known| take(&mut state, known)));
        let Some(lsn) = taken?? else {
            return Ok(false);
        };
        self.wait(Some(lsn))?;
        Ok(true)
    }

    /// The data node has a replica that is whole.
    pub fn received(&self, replica: Replica) {
        let mut state = self.0.state.write();
        if !state.namespace.blocks.received(replica) {
            // Its file was deleted while it was written.
            let position = state.pending.position(state.namespace.txid());
            drop(state);
            self.remove_after(position, vec![replica.block]);
            return;
        }
        drop(state);
        self.0.awaited.reported(replica.block);
    }

    /// To wait for a data node's report of a block. What was reported before is not heard of.
    #[must_use]
    pub fn wait_for(&self, block: BlockId) -> Awaiting {
        self.0.awaited.wait_for(block)
    }

    /// Somebody found the replica of a block damaged that a data node has.
    pub fn found_corrupt(&self, block: BlockId, holder: Holder) {
        tracing::warn!(%block, ?holder, "a replica was found damaged");
        self.0.state.write().namespace.blocks.found_corrupt(block, holder);
    }

    /// Refuses changes from now on, or no more, for the superuser; or only tells. Whether they are refused.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn safe_mode(&self, asker: &Asker<'_>, wanted: Option<bool>) -> Result<bool, Unanswered> {
        if wanted.is_some() {
            self.check_superuser(asker)?;
            self.check_read()?;
        }
        let mut state = self.0.state.write();
        if let Some(wanted) = wanted {
            state.namespace.is_safe = wanted;
            if !wanted {
                state.namespace.is_waiting = false;
                state.namespace.blocks.await_nobody();
            }
        }
        let is_safe = self.is_safe(&state);
        drop(state);
        self.wait(None)?;
        Ok(is_safe)
    }

    /// Whether changes are refused, or wait until it is known which replicas there are.
    fn is_safe(&self, state: &State) -> bool {
        state.namespace.is_safe || state.namespace.is_waiting || state.namespace.is_reading
    }

    /// Whether somebody may do everything.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn check_superuser(&self, asker: &Asker<'_>) -> Result<(), Unanswered> {
        let groups = self.0.groups.of(asker.user);
        if !self.context(asker, &groups).is_superuser {
            return Err(FilesError::not_superuser(asker.user).into());
        }
        self.wait(None)
    }

    /// Whether anybody may be told anything at this instant; who tells something that no log has asks before.
    #[must_use]
    pub fn may_tell(&self) -> bool {
        self.0.lost.get().is_none() && self.0.lease.as_ref().is_none_or(LeaseGuard::serving)
    }

    /// The replicas of the data node in the process. Blocks until they were read.
    #[must_use]
    pub fn replicas(&self) -> &Replicas {
        &self.0.replicas
    }

    /// Bytes of the disk of the data node in the process; none before its replicas were read.
    #[must_use]
    pub fn space(&self) -> Space {
        self.0.replicas.space_now()
    }

    /// Who may do everything.
    pub(crate) fn superuser(&self) -> &str {
        &self.0.superuser
    }

    /// Minutes for which what users delete is in their trash; 0 if clients delete at once.
    #[must_use]
    pub fn trash_minutes(&self) -> u32 {
        self.0.trash_minutes
    }

    /// What the installation is called.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Ends the log: what was changed is durable when this returns. Blocks.
    ///
    /// # Errors
    /// The log had ended before, or somebody else has the database.
    pub fn close(&self) -> Result<(), HostError> {
        self.0.replicas.end();
        // Upkeep that has ended is told nothing more.
        let _ = self.0.tasks.send(Task::End);
        if let Some(behind) = &self.0.behind {
            behind.end();
        }
        self.cut();
        let closed = self.0.journal.close();
        match self.0.lost.get() {
            Some(why) => Err(HostError::Lost(why.clone())),
            None => Ok(closed?),
        }
    }

    /// Ends all: the database is not ours any more. Nobody is told anything, and the next start says why or goes on.
    pub(crate) fn end(&self, error: &DatabaseError) {
        self.end_with(error, "start the node again if this is the one that is to have the database");
    }

    /// Ends all because of something, and says what to do about it.
    pub(crate) fn end_with(&self, error: &dyn fmt::Display, advice: &str) {
        if self.0.lost.set(error.to_string()).is_err() {
            return;
        }
        tracing::error!(%error, "files are served no more; {advice}");
        // It says what is in the log of the process already.
        let _ = self.close();
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
        Context { now: now(), user, groups, is_superuser, call, machine, may_empty: None, counted: None }
    }

    /// Appends a change to the log, and applies it.
    fn commit(&self, state: &mut RwLockWriteGuard<'_, State>, change: Change) -> Result<Lsn, Unanswered> {
        if let Some(full) = self.0.journal.full() {
            return Err(FilesError::new(Class::Retriable, full.to_string()).into());
        }
        let lsn = self.0.journal.append(&[draft(&change.encode())]).map_err(|error| match error {
            JournalError::Backlog { .. } => FilesError::new(Class::Retriable, error.to_string()).into(),
            JournalError::TooLarge { .. } => FilesError::new(Class::Io, error.to_string()).into(),
            _ => Unanswered::Gone,
        })?;
        self.0.questions.follow(state.namespace.tree(), &change);
        let before = state.unflushed.rows();
        let unwanted = state.commit(change, lsn, self.0.journal.durable());
        if !unwanted.is_empty() {
            self.remove_after(Some(lsn), unwanted);
        }
        if let Some(behind) = &self.0.behind
            && before < behind::BATCH
            && state.unflushed.rows() >= behind::BATCH
        {
            behind.hurry();
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
        let files = self.clone();
        let told = move |is_durable: bool| {
            answer(if is_durable && files.may_tell() { outcome } else { Err(Unanswered::Gone) });
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
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
