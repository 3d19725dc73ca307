//! Requests that lack something: what is not in memory, or room for changes that the database does not have yet. They wait on threads of their own.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLockWriteGuard;
use savanna_files::change::CallId;
use savanna_files::namespace::AT_ONCE;
use savanna_files::{Class, Fetched, FilesError, Key, Known, Missing, Request};

use super::counting::Count;
use super::emptying::Question;
use super::{Answer, Files, State, Unanswered};
use crate::behind::{self, Behind, Lane};

/// A request that waits for the database, until its client would not wait any more.
pub(super) struct Waiting {
    pub(super) user: String,
    pub(super) machine: String,
    pub(super) call: Option<CallId>,
    pub(super) groups: Arc<[String]>,
    pub(super) request: Request,
    /// What it lacks; room, if there are no keys.
    pub(super) missing: Missing,
    /// How often it was asked for it what its user may take away.
    pub(super) asked: usize,
    /// How often something was counted for it.
    pub(super) counted: usize,
    /// Whether its user may take away all that is in a directory, if that was asked for it.
    pub(super) question: Option<Question>,
    /// What a directory counts for in quotas, if that was counted for it.
    pub(super) count: Option<Count>,
    pub(super) deadline: Instant,
    pub(super) answer: Box<dyn FnOnce(Answer) + Send>,
}

impl Files {
    /// Has a request wait on a thread of its own.
    pub(super) fn later(&self, behind: &Arc<Behind>, waiting: Waiting) {
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

    /// Does something again with the keys that it lacks, for a while. Blocks.
    pub(super) fn with_all<T>(
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
}

/// Something that waits for the database in vain.
pub(super) fn busy(why: &str) -> Unanswered {
    FilesError::new(Class::Retriable, format!("The database of files is needed, and {why}; try again")).into()
}
