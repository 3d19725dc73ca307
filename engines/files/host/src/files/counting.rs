//! What a large subtree counts for in quotas, counted before it is moved, deleted or limited: outside of the write section, a part at a time, on the threads on
//! which it is asked who may take away what. What changes meanwhile is followed ([`savanna_files::counting`]).

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use savanna_files::Key;
use savanna_files::change::Usage;
use savanna_files::counting::{Counting, Progress};
use savanna_files::ids::InodeId;
use savanna_files::namespace::AT_ONCE;

use super::emptying::{CountUser, PARTS};
use super::{Files, Outcome, Unanswered};

/// A count for which a request waits, or that was done for it.
pub(super) struct Count {
    files: Files,
    counting: Arc<Mutex<Counting>>,
    user: CountUser,
    begun: Instant,
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Count").field("counting", &self.counting).finish_non_exhaustive()
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.files.0.questions.end_count(&self.counting, &self.user);
    }
}

impl Files {
    /// The count of a directory; none if there are too many.
    pub(super) fn begin_count(&self, directory: InodeId, user: CountUser) -> Option<Count> {
        // What is changed from now on is followed.
        let state = self.0.state.read();
        let counting = self.0.questions.begin_count(directory, &user, || Counting::of(&state.namespace, directory));
        drop(state);
        Some(Count { files: self.clone(), counting: counting?, user, begun: Instant::now() })
    }
}

impl Count {
    /// What was counted, if that is all of it, and it is so in this section.
    pub(super) fn usage(&self) -> Option<(InodeId, Usage)> {
        let counting = self.counting.lock();
        Some((counting.root(), counting.usage()?))
    }

    /// Counts some more. Whether that was all, or has to be done again; or why the request is refused. Blocks.
    pub(super) fn go_on(&self) -> Result<bool, Outcome> {
        let told = |why: Unanswered| (Err(why), None);
        for _ in 0..PARTS {
            if self.files.has_ended() {
                return Err(told(Unanswered::Gone));
            }
            let state = self.files.0.state.read();
            let root = self.counting.lock().root();
            if state.namespace.tree().get(root).is_some() && state.namespace.path(root).is_none() {
                // It was deleted: the path leads elsewhere now.
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
                    if !self.files.is_flushed(since, self.begun).map_err(told)? {
                        return Ok(false);
                    }
                    let (mut children, is_end) =
                        self.files.rows_of(Key::Children(directory, after.clone()), since).map_err(told)?;
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
