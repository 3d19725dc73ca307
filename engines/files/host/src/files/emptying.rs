//! Whether a user may take away all that is in a directory: asked before a large one is deleted, outside of the write section, a part at a time.
//!
//! It has threads of its own, so that nobody else waits for it, and after some parts others have their turn. What is not in memory is asked by pages of
//! the database. A change meanwhile that could make the answer another one marks the question, and then it is asked again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use savanna_files::change::Row;
use savanna_files::counting::{self, Counting};
use savanna_files::ids::{InodeId, Txid};
use savanna_files::namespace::AT_ONCE;
use savanna_files::operation::{Asked, Below, Emptying, Rights};
use savanna_files::tree::Tree;
use savanna_files::{Asking, Change, Class, Context, FilesError, Key, Stored};
use tokio::runtime::{Builder, Handle, Runtime};

use super::counting::Count;
use super::{Asker, Files, Outcome, Unanswered, Waiting, busy};
use crate::behind;

/// Threads that ask.
const THREADS: usize = 4;
/// Questions that may be under way, and requests that may wait for counts.
const QUESTIONS_MAX: usize = 1_024;
/// Directories that may be counted at the same time: each change is followed by each.
const COUNTS_MAX: usize = 16;
/// Of them for users who may not do everything.
const COUNTS_OF_ALL: usize = 12;
/// Of them for each.
const COUNTS_OF_A_USER: usize = 4;
/// Requests of such a user that may wait for counts.
const OF_A_USER: usize = 128;

/// For whom something is counted.
#[derive(Clone, Debug)]
pub(super) struct CountUser {
    pub(super) name: String,
    /// Whether it is the superuser, who gets places that others do not get.
    pub(super) may_all: bool,
}
/// Parts of a turn.
pub(super) const PARTS: usize = 64;
/// How often it is asked for a request.
const ATTEMPTS: usize = 10;
/// So long it is waited until the database has what was changed before.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of that in a turn.
const TURN: Duration = Duration::from_millis(500);

/// All questions that are under way, and all counts ([`super::counting`]), which are asked in the same way.
#[derive(Debug)]
pub(super) struct Questions {
    runtime: Option<Runtime>,
    pub(super) handle: Handle,
    roots: Mutex<Vec<Root>>,
    /// With the users of the requests that wait for each, or have it.
    counts: Mutex<Vec<(Arc<Mutex<Counting>>, Vec<String>)>>,
    count: AtomicUsize,
    next: AtomicUsize,
}

/// A directory that is asked about.
#[derive(Debug)]
struct Root {
    number: usize,
    id: InodeId,
    user: String,
    /// The answer may be another one by now.
    is_marked: bool,
}

impl Questions {
    pub(super) fn new() -> io::Result<Self> {
        let runtime =
            Builder::new_current_thread().max_blocking_threads(THREADS).thread_name("files-rights").build()?;
        let handle = runtime.handle().clone();
        let (roots, counts) = (Mutex::default(), Mutex::default());
        let (count, next) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { runtime: Some(runtime), handle, roots, counts, count, next })
    }

    /// The count of a directory: one for all who wait for it. Changes are followed from now on. None if there are too many.
    pub(super) fn begin_count(
        &self,
        root: InodeId,
        user: &CountUser,
        new: impl FnOnce() -> Counting,
    ) -> Option<Arc<Mutex<Counting>>> {
        let mut counts = self.counts.lock();
        let CountUser { name, may_all } = user;
        let all = || counts.iter().flat_map(|(_, users)| users);
        if all().count() >= QUESTIONS_MAX || !may_all && all().filter(|other| *other == name).count() >= OF_A_USER {
            return None;
        }
        let is_it = |counting: &Mutex<Counting>| {
            let counting = counting.lock();
            counting.root() == root && !counting.is_over()
        };
        if let Some((counting, users)) = counts.iter_mut().find(|(counting, _)| is_it(counting)) {
            users.push(name.clone());
            return Some(Arc::clone(counting));
        }
        // Those that are over are not followed.
        let under_way = counts.iter().filter(|(counting, _)| !counting.lock().is_over());
        let (mut count, mut of_user) = (0, 0);
        for (_, users) in under_way {
            (count, of_user) = (count + 1, of_user + usize::from(users.contains(name)));
        }
        let (most, most_of_user) = if *may_all { (COUNTS_MAX, COUNTS_MAX) } else { (COUNTS_OF_ALL, COUNTS_OF_A_USER) };
        if count >= most || of_user >= most_of_user {
            return None;
        }
        let counting = Arc::new(Mutex::new(new()));
        counts.push((Arc::clone(&counting), vec![name.clone()]));
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(counting)
    }

    /// Somebody does not need a count any more.
    pub(super) fn end_count(&self, counting: &Arc<Mutex<Counting>>, user: &CountUser) {
        let mut counts = self.counts.lock();
        let Some(at) = counts.iter().position(|(other, _)| Arc::ptr_eq(other, counting)) else { return };
        let users = &mut counts[at].1;
        if let Some(place) = users.iter().position(|other| *other == user.name) {
            users.swap_remove(place);
        }
        if users.is_empty() {
            counts.swap_remove(at);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Of each directory that is counted, whether it has to be counted again.
    #[cfg(test)]
    pub(super) fn counts(&self) -> Vec<bool> {
        self.counts.lock().iter().map(|(counting, _)| counting.lock().is_over()).collect()
    }

    pub(super) fn begin(&self, id: InodeId, user: &str) -> usize {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.roots.lock().push(Root { number, id, user: user.to_owned(), is_marked: false });
        self.count.fetch_add(1, Ordering::SeqCst);
        number
    }

    pub(super) fn end(&self, number: usize) {
        self.roots.lock().retain(|root| root.number != number);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// The directory of a question, unless its answer may be another one by now.
    pub(super) fn unmarked(&self, number: usize) -> Option<InodeId> {
        let roots = self.roots.lock();
        roots.iter().find(|root| root.number == number && !root.is_marked).map(|root| root.id)
    }

    /// A change is done next: what comes into a directory that is asked about, or has other rights there, marks the question. What its user makes does not.
    pub(super) fn follow(&self, tree: &Tree, change: &Change) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let counts = self.counts.lock();
        if !counts.is_empty() {
            let rows = counting::rows_of(change);
            counts.iter().for_each(|(counting, _)| counting.lock().follow(tree, change, &rows));
        }
        drop(counts);
        let mut roots = self.roots.lock();
        for row in &change.rows {
            let before = tree.get(row.id);
            let acl = row.more.as_ref().map_or(&[][..], |more| &more.acl[..]);
            let is_same = before.is_some_and(|inode| {
                (inode.parent, inode.mode(), inode.acl()) == (row.parent, row.mode, acl)
                    && **tree.owner(inode) == *row.owner
                    && **tree.group(inode) == *row.group
            });
            if is_same {
                continue;
            }
            let mut at = row.id;
            while at != InodeId::NOWHERE {
                for root in roots.iter_mut().filter(|root| root.id == at) {
                    root.is_marked |= before.is_some() || *root.user != *row.owner;
                }
                // Directories above may be made in the same change.
                let made = || change.rows.iter().find(|row| row.id == at).map(|row| row.parent);
                let Some(parent) = made().or_else(|| tree.get(at).map(|inode| inode.parent)) else { break };
                at = parent;
            }
        }
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        // It may be dropped where nobody may block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A question of whose answer a request waits, or that was answered for it.
pub(super) struct Question {
    files: Files,
    number: usize,
    directory: InodeId,
    way: Way,
    begun: Instant,
}

/// Where it is asked.
enum Way {
    Memory(Emptying),
    /// The database, when it has all up to a change: the directories that are left, each with the name that was looked at last.
    Database(Txid, Option<Vec<(Stored, Box<[u8]>)>>),
}

impl Drop for Question {
    fn drop(&mut self) {
        self.files.0.questions.end(self.number);
    }
}

impl Files {
    /// Does a request when that is known of a subtree which it lacks.
    pub(super) fn ask_first(&self, waiting: Waiting, asking: Asking) {
        let refused = |words: &str| Err(FilesError::new(Class::Retriable, words).into());
        let mut waiting = waiting;
        match asking {
            Asking::Emptying(directory) => {
                if waiting.asked >= ATTEMPTS || self.0.questions.roots.lock().len() >= QUESTIONS_MAX {
                    return self.hold(None, refused(DELETED_TOO_FAST), waiting.answer);
                }
                waiting.asked += 1;
                waiting.question = Some(self.begin_question(directory, &waiting.user));
                self.next_turn(waiting, |waiting, context| match &mut waiting.question {
                    Some(question) => question.go_on(context),
                    None => Ok(true),
                });
            }
            Asking::Usage(directory) => {
                if waiting.counted >= ATTEMPTS {
                    return self.hold(None, refused(MOVED_TOO_FAST), waiting.answer);
                }
                let asker = Asker { user: &waiting.user, machine: &waiting.machine, call: waiting.call };
                let may_all = self.context(&asker, &waiting.groups).is_superuser;
                let user = CountUser { name: waiting.user.clone(), may_all };
                // The one that is over is in nobody's way.
                waiting.count = None;
                let Some(count) = self.begin_count(directory, user) else {
                    return self.hold(None, refused(TOO_MANY_COUNTS), waiting.answer);
                };
                waiting.counted += 1;
                waiting.count = Some(count);
                self.next_turn(waiting, |waiting, _| match &waiting.count {
                    Some(count) => count.go_on(),
                    None => Ok(true),
                });
            }
        }
    }

    fn begin_question(&self, directory: InodeId, user: &str) -> Question {
        // What is changed from now on is seen.
        let state = self.0.state.read();
        let number = self.0.questions.begin(directory, user);
        drop(state);
        let way = Way::Memory(Emptying::of(directory));
        Question { files: self.clone(), number, directory, way, begun: Instant::now() }
    }

    /// Goes on with what a request waits for, and decides it then. Others have their turns in between.
    fn next_turn(
        &self,
        mut waiting: Waiting,
        go_on: impl Fn(&mut Waiting, &Context<'_>) -> Result<bool, Outcome> + Send + 'static,
    ) {
        let files = self.clone();
        self.0.questions.handle.spawn_blocking(move || {
            let groups = Arc::clone(&waiting.groups);
            let (user, machine) = (waiting.user.clone(), waiting.machine.clone());
            let context = files.context(&Asker { user: &user, machine: &machine, call: waiting.call }, &groups);
            match go_on(&mut waiting, &context) {
                Ok(false) => files.next_turn(waiting, go_on),
                Ok(true) => files.decide_asked(waiting),
                Err((refusal, position)) => files.hold(position, refusal, waiting.answer),
            }
        });
    }

    /// Decides a request for which something was asked, unless that changed meanwhile.
    fn decide_asked(&self, waiting: Waiting) {
        let mut state = self.0.state.write();
        let decided = self.decide(&mut state, &self.context_of(&waiting), &waiting.request, None);
        drop(state);
        match (decided, &self.0.behind) {
            (Ok((outcome, position)), _) => self.hold(position, outcome, waiting.answer),
            (Err(missing), behind) => match (missing.asking(), behind) {
                (Some(asking), _) => self.ask_first(waiting, asking),
                (None, Some(behind)) => {
                    self.later(behind, Waiting { missing, deadline: behind::deadline(), ..waiting });
                }
                (None, None) => self.hold(None, Err(not_in_memory(&missing.0)), waiting.answer),
            },
        }
    }

    /// Who asks, and what was asked for that before, as it is in this section.
    pub(super) fn context_of<'w>(&self, waiting: &'w Waiting) -> Context<'w> {
        let asker = Asker { user: &waiting.user, machine: &waiting.machine, call: waiting.call };
        let may_empty = waiting.question.as_ref().and_then(|question| self.0.questions.unmarked(question.number));
        let counted = waiting.count.as_ref().and_then(Count::usage);
        Context { may_empty, counted, ..self.context(&asker, &waiting.groups) }
    }
}

const DELETED_TOO_FAST: &str = "What is in a directory that is to be deleted changes too fast, or too many are deleted at once; try again, or delete what is in it first";
const MOVED_TOO_FAST: &str = "What a directory counts for in quotas could not be counted: directories come or go there all the time with what is in them, or too much changes; try again later";
const TOO_MANY_COUNTS: &str =
    "What a directory counts for in quotas could not be counted: too many others are counted now; try again";

/// Without a database all is in memory.
pub(super) fn not_in_memory(keys: &[Key]) -> Unanswered {
    let words = format!("{keys:?} is not in memory, and there is no database; this is a mistake in Savanna");
    FilesError::new(Class::Io, words).into()
}

impl Question {
    /// Asks some more. Whether that was all; or why the request is refused, and behind what of the log.
    fn go_on(&mut self, context: &Context<'_>) -> Result<bool, Outcome> {
        let files = self.files.clone();
        let told = |why: Unanswered| (Err(why), None);
        for _ in 0..PARTS {
            if files.has_ended() {
                return Err(told(Unanswered::Gone));
            }
            match &mut self.way {
                Way::Memory(walk) => {
                    // The lock is let go in between.
                    let state = files.0.state.read();
                    match walk.go_on(&state.namespace, context, AT_ONCE) {
                        Ok(Asked::More) => {}
                        Ok(Asked::All) => return Ok(true),
                        Ok(Asked::NotHere(_)) => self.way = Way::Database(state.namespace.txid(), None),
                        Err(error) => {
                            let position = state.pending.position(state.namespace.txid());
                            return Err((Err(error.into()), position));
                        }
                    }
                }
                Way::Database(txid, open) => {
                    if !files.is_flushed(*txid, self.begun).map_err(told)? {
                        return Ok(false);
                    }
                    let Some(open) = open else {
                        let found = files.rows_of(Key::Id(self.directory), *txid).map_err(told)?.0;
                        let root =
                            found.into_iter().find(|stored| stored.row.id == self.directory && stored.children > 0);
                        *open = Some(root.into_iter().map(|root| (root, Box::default())).collect());
                        continue;
                    };
                    let Some((directory, after)) = open.pop() else { return Ok(true) };
                    // What the database has is durable.
                    let refused = |error: FilesError| told(error.into());
                    if after.is_empty() {
                        below(&directory.row, None).check(context).map_err(refused)?;
                    }
                    let key = Key::Children(directory.row.id, after);
                    let (children, is_end) = files.rows_of(key, *txid).map_err(told)?;
                    for child in &children {
                        below(&child.row, Some(&directory.row)).check(context).map_err(refused)?;
                    }
                    let last = children.iter().map(|child| child.row.name.clone()).max().filter(|_| !is_end);
                    open.extend(last.map(|last| (directory, last)));
                    // Depth first, so that there are few at once.
                    open.extend(children.into_iter().filter(|it| it.children > 0).map(|it| (it, Box::default())));
                }
            }
        }
        Ok(false)
    }
}

/// What has to be allowed: all in a directory, if nothing is said of one above, or that something is taken out of that.
fn below(row: &Row, above: Option<&Row>) -> Below {
    let rights = || {
        let acl = row.more.as_ref().map(|more| more.acl.clone()).unwrap_or_default();
        Rights { owner: row.owner.to_string(), group: row.group.to_string(), mode: row.mode, acl }
    };
    let sticky = above.filter(|above| above.mode & 0o1000 != 0);
    Below {
        rights: above.is_none().then(rights),
        sticky: sticky.map(|above| [above, row].map(|row| row.owner.to_string())),
    }
}

impl Files {
    /// Whether the database has all up to a change; if not, it is waited for that for a moment, but not for long since somebody began. Blocks.
    pub(super) fn is_flushed(&self, txid: Txid, begun: Instant) -> Result<bool, Unanswered> {
        let Some(behind) = &self.0.behind else { return Err(busy("there is none")) };
        let before = behind.flushed_up_to();
        if before >= txid {
            return Ok(true);
        }
        behind.hurry();
        if begun.elapsed() > PATIENCE {
            return Err(busy("it is too far behind"));
        }
        behind.wait_for_more(before, Instant::now() + TURN);
        Ok(false)
    }

    /// What the database has for a key when it has all up to a change, and whether that is all of it. Blocks, also for a while if it is away, or has less than it had.
    pub(super) fn rows_of(&self, key: Key, least: Txid) -> Result<(Vec<Stored>, bool), Unanswered> {
        let Some(behind) = &self.0.behind else { return Err(busy("there is none")) };
        let (deadline, keys) = (behind::deadline(), [key]);
        loop {
            match behind.fetch(&keys, deadline) {
                // It went back, which the next batch will notice.
                Ok(fetched) if fetched.iter().any(|fetched| fetched.txid < least) => {
                    if !behind::pause(deadline) {
                        return Err(busy("it has less than it had"));
                    }
                }
                Ok(fetched) => {
                    let is_end = fetched.iter().all(|fetched| fetched.is_end);
                    return Ok((fetched.into_iter().flat_map(|fetched| fetched.rows).collect(), is_end));
                }
                Err(error) if error.is_final() => {
                    self.end(&error);
                    return Err(Unanswered::Gone);
                }
                Err(error) if !behind::pause(deadline) => return Err(busy(&error.to_string())),
                Err(_) => {}
            }
        }
    }
}
