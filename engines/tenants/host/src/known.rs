//! What the database of administrators said of those who came, while it was reached: a decision without I/O.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use savanna_tenants_store::role::Acquaintance;

/// So long what it said counts when it is not reached: longer than another node takes to have it.
const COUNTS_FOR: Duration = Duration::from_secs(10);
/// Users of whom it is kept at most.
const USERS_MAX: usize = 1_024;

/// What the database of administrators has said of somebody, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub(crate) known: Acquaintance,
    pub(crate) at: Instant,
}

/// What was said of whom.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<String, Heard>);

impl Known {
    /// Somebody has come in by what the database has said. That nobody has a password does not count later: by then somebody may have one.
    pub(crate) fn note(&mut self, user: &str, heard: &Heard) {
        if !heard.known.guarded {
            return self.forget(user);
        }
        if self.0.len() >= USERS_MAX && !self.0.contains_key(user) {
            self.0.retain(|_, other| counts(other.at, heard.at));
        }
        if self.0.len() < USERS_MAX || self.0.contains_key(user) {
            self.0.insert(user.to_owned(), heard.clone());
        }
    }

    /// What it has said of somebody does not count any more.
    pub(crate) fn forget(&mut self, user: &str) {
        self.0.remove(user);
    }

    /// What it has said of somebody, if that still counts.
    pub(crate) fn recent(&self, user: &str, now: Instant) -> Option<Heard> {
        self.0.get(user).filter(|heard| counts(heard.at, now)).cloned()
    }
}

fn counts(said: Instant, now: Instant) -> bool {
    now.saturating_duration_since(said) < COUNTS_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(at: Instant) -> Heard {
        Heard { known: Acquaintance { guarded: true, verifier: None }, at }
    }

    #[test]
    fn what_was_said_counts_for_a_while_and_only_of_whom_it_was_said() {
        let (mut known, now) = (Known::default(), Instant::now());
        known.note("ann", &guarded(now));
        let recent = known.recent("ann", now + COUNTS_FOR / 2);
        assert_eq!((&recent, known.recent("bob", now)), (&Some(guarded(now)), None));
        // Who comes in by what is remembered does not make it newer.
        known.note("ann", &recent.unwrap());
        assert_eq!(known.recent("ann", now + COUNTS_FOR), None, "a password may be another by now");
        known.note("ann", &guarded(now + COUNTS_FOR));
        known.note("ann", &Heard { known: Acquaintance::default(), at: now + COUNTS_FOR });
        assert_eq!(known.recent("ann", now + COUNTS_FOR), None, "anybody may have a password by now");
    }

    #[test]
    fn of_many_users_those_are_kept_of_whom_it_was_said_lately() {
        let (mut known, now) = (Known::default(), Instant::now());
        (0..USERS_MAX + 9).for_each(|user| known.note(&user.to_string(), &guarded(now)));
        assert_eq!((known.0.len(), known.recent("0", now)), (USERS_MAX, Some(guarded(now))));
        known.note("ann", &guarded(now + COUNTS_FOR));
        assert_eq!(known.0.len(), 1);
    }
}
