//! The handle of faces.

pub(crate) mod awaited;
mod closing;
mod counting;
mod emptying;
mod errands;
pub(crate) mod figures;
mod metasave;
pub(crate) mod nodes;
mod own;

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::Sender;
use std::time::{Instant, SystemTime};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use savanna_epoch::NodeEpoch;
use savanna_files::blocks::{Holder, Replica};
use savanna_files::change::CallId;
use savanna_files::flush::Batch;
use savanna_files::ids::{BlockId, InodeId, Millis, Txid};
use savanna_files::namespace::AT_ONCE;
use savanna_files::operation::{Counted, Decision, Summary, Walk};
use savanna_files::{Change, Class, Context, Fetched, FilesError, Key, Known, Limits, Missing, Reply, Request};
use savanna_files_database::DatabaseError;
use savanna_files_datanode::{Replicas, Space};
use savanna_journal::{Journal, JournalError, Lsn, Options as LogOptions};
use savanna_ownership::guard::LeaseGuard;

use crate::behind::{self, Behind, Lane};
use crate::files::awaited::{Awaited, Awaiting};
use crate::files::counting::Count;
use crate::files::emptying::{Question, Questions};
use crate::files::errands::Errands;
use crate::files::own::{Hearing, Own};
use crate::groups::Groups;
use crate::identity::Identity;
use crate::options::{HostError, HostOptions};
use crate::recovery::{self, Logged, draft, recover};
use crate::upkeep::{Task, Upkeep};

/// How often it is looked for inodes to be given up, each time that there are too many.
const TURNS: usize = 64;

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

/// A request that waits for the database, until its client would not wait any more.
struct Waiting {
    user: String,
    machine: String,
    call: Option<CallId>,
    groups: Arc<[String]>,
    request: Request,
    /// What it lacks; room, if there are no keys.
    missing: Missing,
    /// How often it was asked for it what its user may take away.
    asked: usize,
    /// How often something was counted for it.
    counted: usize,
    /// Whether its user may take away all that is in a directory, if that was asked for it.
    question: Option<Question>,
    /// What a directory counts for in quotas, if that was counted for it.
    count: Option<Count>,
    deadline: Instant,
    answer: Box<dyn FnOnce(Answer) + Send>,
}

struct Shared {
    state: RwLock<State>,
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
    /// Reads the log, and begins to read the replicas and to look after them. Blocks while it reads the log.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn open(options: HostOptions) -> Result<(Self, Upkeep), HostError> {
        let HostOptions { log, epoch, lease, directory, superuser, limits, trash, silence, database } = options;
        let failed = |path: &std::path::Path| {
            let path = path.to_owned();
            move |source| HostError::Directory { path, source }
        };
        std::fs::create_dir_all(&directory).map_err(failed(&directory))?;
        let identity = Identity::of(&directory, now().0)?;
        let behind = database.map(|database| Behind::new(&database.place, epoch, database.inodes_max)).transpose()?;
        // Who opens the log ends whoever had it before; only then the replicas are ours.
        let (journal, mut state, needed) = match &behind {
            Some(behind) => begin_with(behind, &identity.pool, log, epoch, &superuser, limits)?,
            None => match recover(log, epoch, &superuser, limits, None)? {
                (journal, Logged::All(namespace), _) => (journal, State::new(namespace), None),
                (_, Logged::Behind(_), _) => {
                    return Err(JournalError::Stopped { reason: NO_DATABASE.to_owned() }.into());
                }
            },
        };
        let namespace = &mut state.namespace;
        let deleted: HashSet<BlockId> = namespace.blocks.take_unwanted().into_iter().collect();
        // Who may not use it is told so now.
        let blocks = directory.join("blocks");
        std::fs::create_dir_all(&blocks).and_then(|()| std::fs::read_dir(&blocks)).map_err(failed(&blocks))?;
        namespace.leases.renew_all(now());
        namespace.blocks.nodes.silence = silence;
        nodes::recall(&directory, namespace).map_err(failed(&directory))?;
        namespace.is_waiting = nodes::is_waiting(namespace);
        namespace.is_reading = true;
        let (tasks, upkeep) = std::sync::mpsc::channel();
        let state = RwLock::new(state);
        let groups = Groups::default();
        let questions = Questions::new().map_err(failed(&directory))?;
        let errands = Errands::new().map_err(failed(&directory))?;
        let behind = behind.map(Arc::new);
        let (needed, lost) = (Mutex::new(needed), OnceLock::new());
        let shared = Shared {
            state,
            journal,
            lease,
            replicas: Own::default(),
            orphans: Mutex::default(),
            identity,
            directory: directory.clone(),
            superuser,
            trash_minutes: trash,
            groups,
            tasks,
            behind,
            needed,
            lost,
            begun: Hearing::default(),
            nodes_kept: Mutex::default(),
            awaited: Arc::default(),
            questions,
            errands,
        };
        let files = Self(Arc::new(shared));
        files.cut();
        if files.0.behind.is_some() {
            behind::begin(files.clone()).map_err(failed(&directory))?;
        }
        let upkeep = Upkeep::begin(files.clone(), upkeep, deleted).map_err(failed(&directory))?;
        let begun = Instant::now();
        files.wait_until_read(|| begun.elapsed() >= own::PATIENCE);
        Ok((files, upkeep))
    }

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

    /// Has a request wait on a thread of its own.
    fn later(&self, behind: &Arc<Behind>, waiting: Waiting) {
        let lane = if waiting.missing.0.is_empty() { Lane::Room } else { Lane::Keys };
        let (files, at) = (self.clone(), Arc::clone(behind));
        if let Err(waiting) = Behind::later(behind, lane, waiting, move |waiting| files.go_on(&at, waiting)) {
            self.hold(None, Err(busy("too many operations wait for it")), waiting.answer);
        }
    }

    /// Goes on with a request that waits. Blocks.
    fn go_on(&self, behind: &Arc<Behind>, waiting: Waiting) {
        if let Some(asking) = waiting.missing.asking() {
            return self.ask_first(waiting, asking);
        }
        let decide = |mut state: RwLockWriteGuard<'_, State>, known: Option<&Known>| {
            let context = self.context_of(&waiting);
            if waiting.request.changes() {
                return self.decide(&mut state, &context, &waiting.request, known);
            }
            // What was taken in stays until that is over, and others read, too.
            Self::read(&RwLockWriteGuard::downgrade(state), &context, &waiting.request, known)
        };
        let done = if waiting.missing.0.is_empty() {
            self.with_room(behind, waiting.deadline, || decide(self.0.state.write(), None))
        } else {
            self.with_all(waiting.missing.clone(), waiting.deadline, |state, known| match decide(state, known) {
                // It waits for room elsewhere, and what is asked of subtrees comes before.
                Err(missing) if missing.0.is_empty() || missing.asking().is_some() => Ok(Err(missing)),
                done => done.map(Ok),
            })
        };
        match done {
            Ok(Ok((outcome, position))) => self.hold(position, outcome, waiting.answer),
            Ok(Err(missing)) => self.later(behind, Waiting { missing, ..waiting }),
            Err(error) => self.hold(None, Err(error), waiting.answer),
        }
    }

    /// Does something again that lacks room, for a while; keys may be missing then. Blocks.
    fn with_room<T>(
        &self,
        behind: &Behind,
        deadline: Instant,
        work: impl Fn() -> Result<T, Missing>,
    ) -> Result<Result<T, Missing>, Unanswered> {
        while Instant::now() < deadline {
            let before = behind.flushed_up_to();
            match work() {
                Err(Missing(keys)) if keys.is_empty() => {
                    behind.hurry();
                    if !behind.wait_for_more(before, deadline) {
                        break;
                    }
                }
                done => return Ok(done),
            }
        }
        Err(busy("it is too far behind"))
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

    /// Does something again with the keys that it lacks, for a while. Blocks.
    fn with_all<T>(
        &self,
        missing: Missing,
        deadline: Instant,
        mut work: impl FnMut(RwLockWriteGuard<'_, State>, Option<&Known>) -> Result<T, Missing>,
    ) -> Result<T, Unanswered> {
        let Some(behind) = &self.0.behind else { return Err(busy("there is none")) };
        let Missing(mut keys) = missing;
        let mut why = "it takes too long".to_owned();
        while Instant::now() < deadline {
            let fetched = match behind.fetch(&keys, deadline) {
                Ok(fetched) => fetched,
                Err(error) if error.is_final() => {
                    self.end(&error);
                    return Err(Unanswered::Gone);
                }
                Err(error) if behind::pause(deadline) => {
                    why = error.to_string();
                    continue;
                }
                Err(error) => return Err(busy(&error.to_string())),
            };
            self.learn_ahead(&fetched);
            let mut state = self.0.state.write();
            #[cfg(test)]
            let before = state.namespace.tree().len();
            let Ok(known) = state.namespace.learn(&fetched) else { continue };
            #[cfg(test)]
            self.note_longest(state.namespace.tree().len() - before);
            let done = work(state, Some(&known));
            self.give_up_some(behind);
            match done {
                Ok(done) => return Ok(done),
                Err(missing) => {
                    // What they are in may be given up until they come, again and again: it comes along, with what is above it.
                    let above: Vec<Key> = missing.directories().map(Key::Id).collect();
                    let more = missing.0.into_iter().chain(above);
                    keys.extend(more.filter(|key| !keys.contains(key)).collect::<Vec<_>>());
                }
            }
        }
        Err(busy(&why))
    }

    /// Takes in what was read, if that is much, a part at a time.
    fn learn_ahead(&self, fetched: &[Fetched]) {
        if fetched.iter().map(|fetched| fetched.rows.len()).sum::<usize>() <= AT_ONCE {
            return;
        }
        // Directories that come along are the last ones.
        for Fetched { txid, rows, .. } in fetched.iter().rev() {
            for part in rows.chunks(AT_ONCE) {
                let mut state = self.0.state.write();
                #[cfg(test)]
                let before = state.namespace.tree().len();
                if state.namespace.learn_ahead(*txid, part).is_err() {
                    return;
                }
                #[cfg(test)]
                self.note_longest(state.namespace.tree().len() - before);
            }
        }
    }

    #[cfg(test)]
    fn note_longest(&self, inodes: usize) {
        if let Some(behind) = &self.0.behind {
            behind.longest.fetch_max(inodes, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Gives up what is in memory beyond what may be.
    fn give_up_some(&self, behind: &Behind) {
        // The lock is let go in between. What is used, or not flushed, stays for now.
        for _ in 0..TURNS {
            if self.0.state.read().namespace.tree().len() <= behind.inodes_max {
                return;
            }
            self.0.state.write().namespace.give_up(behind.inodes_max, AT_ONCE);
        }
    }

    pub(crate) fn behind(&self) -> Option<Arc<Behind>> {
        self.0.behind.clone()
    }

    /// Brings all changes to the database that the log has, and makes the log short. Blocks.
    pub(crate) fn flush(&self) -> Result<(), DatabaseError> {
        let Some(behind) = &self.0.behind else { return Ok(()) };
        loop {
            let durable = self.0.journal.durable();
            let changes = self.0.state.read().unflushed.next(behind.batch_rows(), |lsn| lsn <= durable);
            let Some(batch) = Batch::of(&changes) else { return Ok(()) };
            // Without a lease another process may have the log already; it brings them.
            if !self.may_tell() {
                return Ok(());
            }
            let flushed = behind.write(&batch)?;
            let before = behind.flushed_up_to();
            let mut state = self.0.state.write();
            let cut = state.flushed(flushed);
            drop(state);
            // Freed beyond the lock.
            drop(changes);
            behind.flushed(flushed);
            self.give_up_some(behind);
            *self.0.needed.lock() = cut;
            if flushed.0 / CUT_EVERY != before.0 / CUT_EVERY {
                self.cut();
            }
        }
    }

    /// Drops what of the log the database has.
    fn cut(&self) {
        if let Some(lsn) = self.0.needed.lock().take() {
            // A log that has ended is noticed elsewhere.
            let _ = self.0.journal.truncate_before(lsn);
        }
    }

    /// Removes replicas of which neither the log nor the database has a file, some at a time.
    pub(crate) fn remove_orphans(&self) -> Result<(), DatabaseError> {
        let Some(behind) = &self.0.behind else { return Ok(()) };
        let mut orphans = self.0.orphans.lock();
        let count = orphans.len();
        let some = orphans.split_off(count.saturating_sub(behind::BATCH));
        drop(orphans);
        if some.is_empty() {
            return Ok(());
        }
        match behind.without_file(&some) {
            Ok(mut unwanted) => {
                let mut state = self.0.state.write();
                // What has a file here may not have one in the database yet.
                unwanted.retain(|block| state.namespace.blocks.inode(*block).is_none());
                state.namespace.blocks.forget(&unwanted);
                drop(state);
                self.remove(unwanted);
                Ok(())
            }
            Err(error) => {
                self.0.orphans.lock().extend(some);
                Err(error)
            }
        }
    }

    /// Counts what a subtree holds. Blocks as long as that takes; what changes meanwhile may be counted or not.
    pub(crate) fn summary(
        &self,
        asker: &Asker<'_>,
        path: &str,
        answer: impl FnOnce(Result<Summary, Unanswered>) + Send + 'static,
    ) {
        let groups = self.0.groups.of(asker.user);
        let context = self.context(asker, &groups);
        let begin = |state: &State, known: Option<&Known>| {
            let walk = Walk::begin(&state.namespace, &context, path, known)?;
            Ok((walk, state.pending.position(state.namespace.txid())))
        };
        let begun = begin(&self.0.state.read(), None);
        let begun =
            begun.or_else(|missing| self.with_all(missing, behind::deadline(), |state, known| begin(&state, known)));
        let mut walk = match begun {
            Ok((Ok(walk), _)) => walk,
            Ok((Err(error), position)) => return self.hold(position, Err(error.into()), answer),
            Err(error) => return self.hold(None, Err(error), answer),
        };
        let (outcome, position) = loop {
            let state = self.0.state.read();
            match walk.go_on(&state.namespace, &context, AT_ONCE) {
                Ok(Counted::More) => {}
                Ok(Counted::All(summary, depends)) => break (Ok(summary), state.pending.position(depends)),
                Ok(Counted::NotHere(root)) => {
                    let txid = state.namespace.txid();
                    drop(state);
                    // What the database has is durable.
                    let counted = self.summary_of_database(&context, root, txid);
                    break (counted.map(|summary| Summary { quota: walk.quota(), ..summary }), None);
                }
                Err(error) => break (Err(Unanswered::from(error)), state.pending.position(state.namespace.txid())),
            }
        };
        self.hold(position, outcome, answer);
    }

    /// The same by the database, when it has all up to a change. Blocks.
    fn summary_of_database(&self, context: &Context<'_>, root: InodeId, txid: Txid) -> Result<Summary, Unanswered> {
        let (summary, rights) = self.ask_when_flushed(txid, |behind| behind.subtree(root))?;
        for rights in rights {
            rights.check_list(context)?;
        }
        Ok(summary)
    }

    /// Asks the database something when it has all up to a change. Blocks.
    fn ask_when_flushed<T>(
        &self,
        txid: Txid,
        ask: impl FnOnce(&Behind) -> Result<T, DatabaseError>,
    ) -> Result<T, Unanswered> {
        let Some(behind) = &self.0.behind else { return Err(busy("there is none")) };
        let deadline = behind::deadline();
        loop {
            // Looked at once: behind the last change there may be no more to wait for.
            let before = behind.flushed_up_to();
            if before >= txid {
                break;
            }
            behind.hurry();
            if !behind.wait_for_more(before, deadline) {
                return Err(busy("it is too far behind"));
            }
        }
        ask(behind).map_err(|error| {
            if error.is_final() {
                self.end(&error);
                return Unanswered::Gone;
            }
            busy(&error.to_string())
        })
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

/// The log, the names and what the database lacks of them, and from where on the log is needed for it.
type Read = (Arc<Journal>, State, Option<Lsn>);

/// Begins with what the database has, and what the log has beside it. Blocks.
fn begin_with(
    behind: &Behind,
    pool: &str,
    log: LogOptions,
    epoch: NodeEpoch,
    superuser: &str,
    limits: Limits,
) -> Result<Read, HostError> {
    // Who has the database is replaced only by somebody who can go on.
    let found = behind.look(pool)?;
    let (journal, logged, needed) = recover(log, epoch, superuser, limits, Some(found.txid))?;
    let found = behind.claim(found, logged.txid(found.txid))?;
    behind.flushed(found.txid);
    let state = match logged {
        Logged::All(mut namespace) => {
            if namespace.txid() > Txid(0) {
                tracing::info!(inodes = namespace.inode_count(), "the database of files gets all names");
                behind.replace(found.txid, &namespace)?;
            }
            namespace.is_kept();
            behind.flushed(namespace.txid());
            State::new(namespace)
        }
        Logged::Behind(changes) => {
            let fetch = |keys: &[Key]| -> Result<Vec<Fetched>, DatabaseError> {
                let parts = keys.chunks(behind::BATCH).map(|keys| behind.fetch_at_start(keys));
                parts.collect::<Result<Vec<_>, _>>().map(|parts| parts.into_iter().flatten().collect())
            };
            State::begin(superuser, limits, behind.beginning(found, now())?, changes, fetch)?
        }
    };
    Ok((journal, state, needed))
}

/// Something that waits for the database in vain.
fn busy(why: &str) -> Unanswered {
    FilesError::new(Class::Retriable, format!("The database of files is needed, and {why}; try again")).into()
}

/// The log is cut each time that the database has so many more changes.
const CUT_EVERY: u64 = 1 << 16;

const NO_DATABASE: &str = "it was read for a database, and there is none; this is a mistake in Savanna";

/// Who is in it may do everything.
const SUPERGROUP: &str = "supergroup";

/// The instant, by the clock of the machine.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
