//! Replies that leave together, and what is done once behind all of them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::JournalError;

/// A reply that waits for the journal.
pub(crate) type Reply = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

type Work = Box<dyn FnOnce()>;

thread_local! {
    /// What is to be done behind the replies that leave on this thread; nothing if none do.
    static AFTER: RefCell<Option<Vec<Work>>> = const { RefCell::new(None) };
}

/// Whether replies leave on this thread at this moment.
#[must_use]
pub fn replies_are_leaving() -> bool {
    AFTER.with_borrow(Option::is_some)
}

/// Does something when all replies have left that leave together on this thread: at once, if none do. Who wakes somebody for each of many
/// replies wakes him once.
pub fn after_replies(work: impl FnOnce() + 'static) {
    let work: Work = Box::new(work);
    let now = AFTER.with_borrow_mut(|after| match after {
        Some(after) => {
            after.push(work);
            None
        }
        None => Some(work),
    });
    if let Some(work) = now {
        work();
    }
}

/// Replies are leaving, until it is dropped.
struct Leaving;

impl Leaving {
    /// Nothing if they do already: a reply may let others go.
    fn begin() -> Option<Self> {
        AFTER.with_borrow_mut(|after| after.is_none().then(|| *after = Some(Vec::new()))).map(|()| Self)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        for work in AFTER.take().unwrap_or_default() {
            unharmed(work);
        }
    }
}

/// Lets replies go. One that panics harms no other.
pub(crate) fn release(replies: Vec<Reply>, outcome: &Result<(), JournalError>) {
    let _leaving = Leaving::begin();
    for reply in replies {
        let outcome = outcome.clone();
        unharmed(|| reply(outcome));
    }
}

fn unharmed(work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("a reply that waited for the journal panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn what_comes_after_replies_comes_once_behind_all_that_leave_together() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = |word: &'static str| {
            let done = Arc::clone(&done);
            move || done.lock().push(word)
        };
        let reply = |word, after: Option<&'static str>, inner: Vec<Reply>| -> Reply {
            let (say, after) = (note(word), after.map(note));
            Box::new(move |_| {
                say();
                if let Some(after) = after {
                    after_replies(after);
                }
                release(inner, &Ok(()));
            })
        };
        assert!(!replies_are_leaving());
        let panics: Reply = Box::new(|_| panic!("a reply that leaves: {}", replies_are_leaving()));
        let inner = reply("inner", Some("after inner"), Vec::new());
        let first = reply("first", Some("after first"), vec![inner]);
        release(vec![first, panics, reply("second", None, Vec::new())], &Ok(()));
        assert_eq!(*done.lock(), ["first", "inner", "second", "after first", "after inner"]);

        done.lock().clear();
        after_replies(note("at once"));
        release(vec![reply("third", Some("after third"), Vec::new())], &Ok(()));
        assert_eq!(*done.lock(), ["at once", "third", "after third"]);
    }
}
