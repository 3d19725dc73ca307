//! Which snapshots are in use, and with that which versions and commits nobody can ask for any more.

use std::collections::VecDeque;

use crate::Csn;

/// The snapshots in use, oldest first, each with how many transactions hold it. New ones are never older than those
/// before them, so taking one is a push or a count.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    live: VecDeque<(Csn, u32)>,
}

impl Snapshots {
    pub(crate) fn take(&mut self, at: Csn) {
        match self.live.back_mut() {
            Some((newest, holders)) if *newest == at => *holders += 1,
            newest => {
                debug_assert!(newest.is_none_or(|(newest, _)| *newest < at), "snapshots are taken in order");
                self.live.push_back((at, 1));
            }
        }
    }

    /// Takes the oldest snapshot in use once more, or the one at `otherwise` if there is none. Returns which.
    pub(crate) fn take_oldest(&mut self, otherwise: Csn) -> Csn {
        match self.live.front_mut() {
            Some((oldest, holders)) => {
                *holders += 1;
                *oldest
            }
            None => {
                self.take(otherwise);
                otherwise
            }
        }
    }

    /// Takes a snapshot in use once more.
    pub(crate) fn take_again(&mut self, at: Csn) {
        match self.live.binary_search_by_key(&at, |(csn, _)| *csn) {
            Ok(place) => self.live[place].1 += 1,
            Err(_) => debug_assert!(false, "a snapshot that is taken again is in use"),
        }
    }

    pub(crate) fn release(&mut self, at: Csn) {
        let Ok(place) = self.live.binary_search_by_key(&at, |(csn, _)| *csn) else {
            debug_assert!(false, "a snapshot is released once");
            return;
        };
        self.live[place].1 -= 1;
        if self.live[place].1 == 0 {
            self.live.remove(place);
        }
    }

    pub(crate) fn oldest(&self) -> Option<Csn> {
        self.live.front().map(|(csn, _)| *csn)
    }

    /// Whether a snapshot in use is at `from` or later and before `to`.
    pub(crate) fn any_between(&self, from: Csn, to: Csn) -> bool {
        let first = self.live.partition_point(|(csn, _)| *csn < from);
        self.live.get(first).is_some_and(|(csn, _)| *csn < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_in_use_until_its_last_holder_releases_it() {
        let mut snapshots = Snapshots::default();
        for at in [3, 3, 5, 9] {
            snapshots.take(Csn(at));
        }
        snapshots.release(Csn(3));
        assert_eq!(snapshots.oldest(), Some(Csn(3)));
        snapshots.release(Csn(5));
        assert!(!snapshots.any_between(Csn(4), Csn(9)) && snapshots.any_between(Csn(4), Csn(10)));
        snapshots.release(Csn(3));
        assert_eq!(snapshots.oldest(), Some(Csn(9)));
    }
}
