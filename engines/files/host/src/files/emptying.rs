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
use savanna_files::ids::{InodeId, Txid};
use savanna_files::namespace::AT_ONCE;
use savanna_files::operation::{Asked, Below, Emptying, Rights};
use savanna_files::tree::Tree;
use savanna_files::{Asking, Change, Class, Context, FilesError, Key, Stored};
use tokio::runtime::{Builder, Handle, Runtime};

use super::counting::{Count, Counts};
use super::lacking::{Waiting, busy};
use super::{Asker, Files, Outcome, Unanswered};
use crate::behind;

/// Threads that ask.
const THREADS: usize = 4;
/// Questions that may be under way, and requests that may wait for counts.
pub(super) const QUESTIONS_MAX: usize = 1_024;
/// Parts of a turn.
pub(super) const PARTS: usize = 64;
/// How often it is asked, or counted, for a request.
const ATTEMPTS: usize = 10;
/// So long it is waited until the database has what was changed before.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of that in a turn.
const TURN: Duration = Duration::from_millis(500);

/// All questions that are under way, and all counts ([`super::counting`]), which have the same threads.
pub(super) struct Questions {
    runtime: Option<Runtime>,
    pub(super) handle: Handle,
    roots: Mutex<Vec<Root>>,
    count: AtomicUsize,
    next: AtomicUsize,
    pub(super) counts: Counts,
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
        let (count, next) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self { runtime: Some(runtime), handle, roots: Mutex::default(), count, next, counts: Counts::default() })
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
        self.counts.follow(tree, change);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
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
    pub(super) fn ask_first(&self, mut waiting: Waiting, asking: Asking) {
        match asking {
            Asking::Emptying(directory) => {
                if waiting.asked >= ATTEMPTS || self.0.questions.roots.lock().len() >= QUESTIONS_MAX {
                    return self.refuse(waiting, DELETED_TOO_FAST);
                }
                waiting.asked += 1;
                waiting.question = Some(self.begin_question(directory, &waiting.user));
                self.next_turn(waiting);
            }
            Asking::Usage(_) if waiting.counted >= ATTEMPTS => self.refuse(waiting, MOVED_TOO_FAST),
            Asking::Usage(directory) => self.count_first(waiting, directory),
        }
    }

    /// Refuses a request for the moment.
    pub(super) fn refuse(&self, waiting: Waiting, words: &str) {
        self.hold(None, Err(FilesError::new(Class::Retriable, words).into()), waiting.answer);
    }

    fn begin_question(&self, directory: InodeId, user: &str) -> Question {
        // What is changed from now on is seen.
        let state = self.0.state.read();
        let number = self.0.questions.begin(directory, user);
        drop(state);
        let way = Way::Memory(Emptying::of(directory));
        Question { files: self.clone(), number, directory, way, begun: Instant::now() }
    }

    /// Goes on with the question for which a request waits, and decides it then. Others have their turns in between.
    fn next_turn(&self, mut waiting: Waiting) {
        let files = self.clone();
        self.0.questions.handle.spawn_blocking(move || {
            let groups = Arc::clone(&waiting.groups);
            let (user, machine) = (waiting.user.clone(), waiting.machine.clone());
            let context = files.context(&Asker { user: &user, machine: &machine, call: waiting.call }, &groups);
            match waiting.question.as_mut().map_or(Ok(true), |question| question.go_on(&context)) {
                Ok(false) => files.next_turn(waiting),
                Ok(true) => files.decide_asked(waiting),
                Err((refusal, position)) => files.hold(position, refusal, waiting.answer),
            }
        });
    }

    /// Decides a request for which something was asked, unless that changed meanwhile.
    pub(super) fn decide_asked(&self, waiting: Waiting) {
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
