//! What a large subtree counts for in quotas, counted before it is moved, deleted or limited: outside of the write section, a part at a time, on the threads on
//! which it is asked who may take away what. What changes meanwhile is followed ([`savanna_files::counting`]).
//!
//! A directory is counted once for all who wait for it: one walks, and the others have no turns.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use savanna_files::change::Usage;
use savanna_files::counting::{Counting, Progress, rows_of};
use savanna_files::ids::InodeId;
use savanna_files::namespace::AT_ONCE;
use savanna_files::tree::Tree;
use savanna_files::{Change, Class, FilesError, Key};

use super::emptying::{PARTS, QUESTIONS_MAX};
use super::lacking::Waiting;
use super::{Asker, Files, Unanswered};

/// Directories that may be counted at the same time: each change is followed by each.
const COUNTS_MAX: usize = 16;
/// Of them for users who may not do everything.
const COUNTS_OF_ALL: usize = 12;
/// Of them for each.
const COUNTS_OF_A_USER: usize = 4;
/// Requests of such a user that may wait for counts.
const OF_A_USER: usize = 128;

const TOO_MANY_COUNTS: &str =
    "What a directory counts for in quotas could not be counted: too many others are counted now; try again";

/// For whom something is counted.
#[derive(Clone, Debug)]
pub(super) struct CountUser {
    pub(super) name: String,
    /// Whether it is the superuser, who gets places that others do not get.
    pub(super) may_all: bool,
}

/// All counts that are under way, or were done for somebody.
#[derive(Default)]
pub(super) struct Counts {
    all: Mutex<Vec<Common>>,
    number: AtomicUsize,
}

/// A count, for all who wait for it.
struct Common {
    counting: Arc<Mutex<Counting>>,
    /// Who began it.
    begun_by: String,
    /// The users of the requests that wait for it, or have it.
    users: Vec<String>,
    /// Somebody counts.
    is_walked: bool,
    /// What is done when that is over.
    waiting: Vec<Waiting>,
}

impl Counts {
    /// The count of a directory, and whether it is new. Changes are followed from now on. None if there are too many; who gave one up that was over may have one
    /// more.
    fn begin(
        &self,
        root: InodeId,
        user: &CountUser,
        is_again: bool,
        new: impl FnOnce() -> Counting,
    ) -> Option<(Arc<Mutex<Counting>>, bool)> {
        let mut counts = self.all.lock();
        let CountUser { name, may_all } = user;
        let all = || counts.iter().flat_map(|count| &count.users);
        let requests_max = if *may_all { QUESTIONS_MAX } else { QUESTIONS_MAX - OF_A_USER };
        if all().count() >= requests_max || !may_all && all().filter(|other| *other == name).count() >= OF_A_USER {
            return None;
        }
        let is_it = |counting: &Mutex<Counting>| {
            let counting = counting.lock();
            counting.root() == root && !counting.is_over()
        };
        if let Some(count) = counts.iter_mut().find(|count| is_it(&count.counting)) {
            count.users.push(name.clone());
            return Some((Arc::clone(&count.counting), false));
        }
        // Those that are over are not followed.
        let under_way = counts.iter().filter(|count| !count.counting.lock().is_over());
        let (mut count, mut of_user) = (0, 0);
        for Common { begun_by, .. } in under_way {
            (count, of_user) = (count + 1, of_user + usize::from(begun_by == name));
        }
        let (most, most_of_user) = if *may_all { (COUNTS_MAX, COUNTS_MAX) } else { (COUNTS_OF_ALL, COUNTS_OF_A_USER) };
        let more = usize::from(is_again);
        if count >= most + more || of_user >= most_of_user + more {
            return None;
        }
        let (counting, users) = (Arc::new(Mutex::new(new())), vec![name.clone()]);
        let (begun_by, waiting) = (name.clone(), Vec::new());
        counts.push(Common { counting: Arc::clone(&counting), begun_by, users, is_walked: true, waiting });
        self.number.fetch_add(1, Ordering::SeqCst);
        Some((counting, true))
    }

    /// Somebody does not need a count any more.
    fn end(&self, counting: &Arc<Mutex<Counting>>, user: &CountUser) {
        let mut counts = self.all.lock();
        let Some(at) = counts.iter().position(|count| Arc::ptr_eq(&count.counting, counting)) else { return };
        let users = &mut counts[at].users;
        if let Some(place) = users.iter().position(|other| *other == user.name) {
            users.swap_remove(place);
        }
        if users.is_empty() {
            counts.swap_remove(at);
            self.number.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Keeps a request until somebody has counted. Gives it back if nobody counts any more.
    fn wait(&self, counting: &Arc<Mutex<Counting>>, waiting: Waiting) -> Option<Waiting> {
        let mut counts = self.all.lock();
        let is_it = |count: &&mut Common| count.is_walked && Arc::ptr_eq(&count.counting, counting);
        let Some(count) = counts.iter_mut().find(is_it) else { return Some(waiting) };
        count.waiting.push(waiting);
        None
    }

    /// Nobody counts any more. What waited for that.
    fn walked(&self, counting: &Arc<Mutex<Counting>>) -> Vec<Waiting> {
        let mut counts = self.all.lock();
        let Some(count) = counts.iter_mut().find(|count| Arc::ptr_eq(&count.counting, counting)) else {
            return Vec::new();
        };
        count.is_walked = false;
        std::mem::take(&mut count.waiting)
    }

    /// A change is done next.
    pub(super) fn follow(&self, tree: &Tree, change: &Change) {
        if self.number.load(Ordering::SeqCst) == 0 {
            return;
        }
        let rows = rows_of(change);
        self.all.lock().iter().for_each(|count| count.counting.lock().follow(tree, change, &rows));
    }

    /// Of each directory that is counted, whether it has to be counted again.
    #[cfg(test)]
    pub(super) fn are_over(&self) -> Vec<bool> {
        self.all.lock().iter().map(|count| count.counting.lock().is_over()).collect()
    }
}

/// A count for which a request waits, or that was done for it.
pub(super) struct Count {
    files: Files,
    counting: Arc<Mutex<Counting>>,
    user: CountUser,
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Count").field("counting", &self.counting).finish_non_exhaustive()
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.files.0.questions.counts.end(&self.counting, &self.user);
    }
}

impl Count {
    /// What was counted, if that is all of it, and it is so in this section.
    pub(super) fn usage(&self) -> Option<(InodeId, Usage)> {
        let counting = self.counting.lock();
        Some((counting.root(), counting.usage()?))
    }
}

/// Who counts, for all who wait.
pub(super) struct Walk {
    files: Files,
    counting: Arc<Mutex<Counting>>,
    begun: Instant,
}

impl Drop for Walk {
    /// If it was not done, nobody uses what was counted, or waits for it.
    fn drop(&mut self) {
        let left = self.files.0.questions.counts.walked(&self.counting);
        if self.counting.lock().usage().is_none() {
            self.counting.lock().give_up();
        }
        for waiting in left {
            let words = "What a directory counts for in quotas could not be counted; this is a mistake in Savanna";
            self.files.hold(None, Err(FilesError::new(Class::Io, words).into()), waiting.answer);
        }
    }
}

impl Files {
    /// Does a request when a directory was counted.
    pub(super) fn count_first(&self, mut waiting: Waiting, directory: InodeId) {
        let asker = Asker { user: &waiting.user, machine: &waiting.machine, call: waiting.call };
        let may_all = self.context(&asker, &waiting.groups).is_superuser;
        let user = CountUser { name: waiting.user.clone(), may_all };
        // The one that is over is in nobody's way.
        waiting.count = None;
        let Some((count, walk)) = self.begin_count(directory, user, waiting.counted > 0) else {
            return self.refuse(waiting, TOO_MANY_COUNTS);
        };
        let counting = Arc::clone(&count.counting);
        waiting.counted += 1;
        waiting.count = Some(count);
        if let Some(waiting) = self.0.questions.counts.wait(&counting, waiting) {
            self.decide_asked(waiting);
        }
        if let Some(walk) = walk {
            walk.next_turn();
        }
    }

    /// The count of a directory, and who is to count if nobody does yet; none if there are too many.
    pub(super) fn begin_count(
        &self,
        directory: InodeId,
        user: CountUser,
        is_again: bool,
    ) -> Option<(Count, Option<Walk>)> {
        // What is changed from now on is followed.
        let state = self.0.state.read();
        let new = || Counting::of(&state.namespace, directory);
        let begun = self.0.questions.counts.begin(directory, &user, is_again, new);
        drop(state);
        let (counting, is_new) = begun?;
        let (files, begun) = (self.clone(), Instant::now());
        let walk = is_new.then(|| Walk { files, counting: Arc::clone(&counting), begun });
        Some((Count { files: self.clone(), counting, user }, walk))
    }

    /// Decides what waited for a count, some at a time.
    fn decide_all(&self, waiting: VecDeque<Waiting>) {
        let mut rest = Rest { files: self.clone(), waiting };
        for _ in 0..PARTS {
            let Some(waiting) = rest.waiting.pop_front() else { break };
            self.decide_asked(waiting);
        }
    }
}

/// What is left to be decided: others have their turns before. Also if one of them failed.
struct Rest {
    files: Files,
    waiting: VecDeque<Waiting>,
}

impl Drop for Rest {
    fn drop(&mut self) {
        let (files, waiting) = (self.files.clone(), std::mem::take(&mut self.waiting));
        if !waiting.is_empty() {
            let handle = files.0.questions.handle.clone();
            handle.spawn_blocking(move || files.decide_all(waiting));
        }
    }
}

impl Walk {
    /// Goes on, and does what waits when that was all, or has to be done again. Others have their turns in between.
    fn next_turn(self) {
        let handle = self.files.0.questions.handle.clone();
        handle.spawn_blocking(move || match self.go_on() {
            Ok(false) => self.next_turn(),
            Ok(true) => self.files.decide_all(self.files.0.questions.counts.walked(&self.counting).into()),
            Err(why) => {
                // Nobody comes to those who hear of it.
                self.counting.lock().give_up();
                for waiting in self.files.0.questions.counts.walked(&self.counting) {
                    self.files.hold(None, Err(why.clone()), waiting.answer);
                }
            }
        });
    }

    /// Counts some more. Whether that was all, or has to be done again; or why it cannot be done. Blocks.
    pub(super) fn go_on(&self) -> Result<bool, Unanswered> {
        for _ in 0..PARTS {
            if self.files.has_ended() {
                return Err(Unanswered::Gone);
            }
            let state = self.files.0.state.read();
            let root = self.counting.lock().root();
            if state.namespace.tree().get(root).is_some() && state.namespace.path(root).is_none() {
                // It was deleted: the path leads elsewhere now.
                self.counting.lock().give_up();
                return Ok(true);
            }
            let progress = self.counting.lock().go_on(&state.namespace, AT_ONCE);
            // Others have their turns in between.
            drop(state);
            match progress {
                Progress::More => {}
                Progress::All | Progress::Over => return Ok(true),
                Progress::NotHere(directory, mut after) => {
                    let since = self.counting.lock().since();
                    if !self.files.is_flushed(since, self.begun)? {
                        return Ok(false);
                    }
                    let (mut children, is_end) = self.files.rows_of(Key::Children(directory, after.clone()), since)?;
                    children.sort_by(|one, other| one.row.name.cmp(&other.row.name));
                    let parts = children.chunks(AT_ONCE).count();
                    for (number, part) in children.chunks(AT_ONCE).enumerate() {
                        // Who changes something waits for no more than a part.
                        self.counting.lock().take(directory, &after, part, is_end && number + 1 == parts);
                        if let Some(last) = part.last() {
                            after.clone_from(&last.row.name);
                        }
                    }
                    if children.is_empty() {
                        self.counting.lock().take(directory, &after, &[], true);
                    }
                }
            }
        }
        Ok(false)
    }
}
