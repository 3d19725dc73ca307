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

/// What was said of whom, and when.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<String, (Acquaintance, Instant)>);

impl Known {
    /// The database has said what it knows of somebody. That nobody has a password does not count later: by then somebody may have one.
    pub(crate) fn note(&mut self, user: &str, known: &Acquaintance, now: Instant) {
        if !known.guarded {
            self.0.remove(user);
            return;
        }
        if self.0.len() >= USERS_MAX && !self.0.contains_key(user) {
            self.0.retain(|_, (_, said)| counts(*said, now));
        }
        if self.0.len() < USERS_MAX || self.0.contains_key(user) {
            self.0.insert(user.to_owned(), (known.clone(), now));
        }
    }

    /// What it has said of somebody, if that still counts.
    pub(crate) fn recent(&self, user: &str, now: Instant) -> Option<Acquaintance> {
        self.0.get(user).filter(|(_, said)| counts(*said, now)).map(|(known, _)| known.clone())
    }
}

fn counts(said: Instant, now: Instant) -> bool {
    now.saturating_duration_since(said) < COUNTS_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_counts_for_a_while_and_only_of_whom_it_was_said() {
        let (mut known, now) = (Known::default(), Instant::now());
        let guarded = Acquaintance { guarded: true, verifier: None };
        known.note("ann", &guarded, now);
        assert_eq!(known.recent("ann", now + COUNTS_FOR / 2), Some(guarded.clone()));
        assert_eq!(known.recent("bob", now), None);
        assert_eq!(known.recent("ann", now + COUNTS_FOR), None, "a password may be another by now");
        known.note("ann", &guarded, now + COUNTS_FOR);
        known.note("ann", &Acquaintance::default(), now + COUNTS_FOR);
        assert_eq!(known.recent("ann", now + COUNTS_FOR), None, "anybody may have a password by now");
    }

    #[test]
    fn of_many_users_those_are_kept_of_whom_it_was_said_lately() {
        let (mut known, now) = (Known::default(), Instant::now());
        let nobody = Acquaintance { guarded: true, verifier: None };
        (0..USERS_MAX + 9).for_each(|user| known.note(&user.to_string(), &nobody, now));
        assert_eq!((known.0.len(), known.recent("0", now)), (USERS_MAX, Some(nobody.clone())));
        known.note("ann", &nobody, now + COUNTS_FOR);
        assert_eq!(known.0.len(), 1);
    }
}
