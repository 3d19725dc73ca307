//! Which position of the log a change has, as long as it may not be durable.

use std::collections::VecDeque;

use crate::ids::Txid;

/// Positions of the newest changes, in their order.
#[derive(Debug)]
pub struct Pending<P>(VecDeque<(Txid, P)>);

impl<P> Default for Pending<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P: Copy + Ord> Pending<P> {
    /// A change was appended. What is durable meanwhile is forgotten.
    pub(crate) fn add(&mut self, txid: Txid, position: P, durable: P) {
        while self.0.front().is_some_and(|(_, position)| *position <= durable) {
            self.0.pop_front();
        }
        self.0.push_back((txid, position));
    }

    /// The newest change up to which all are durable. `newest` is the newest of all.
    #[must_use]
    pub fn durable(&self, durable: P, newest: Txid) -> Txid {
        let later = self.0.partition_point(|(_, position)| *position <= durable);
        self.0.get(later).map_or(newest, |(txid, _)| Txid(txid.0.saturating_sub(1)))
    }

    /// What an answer has to wait for that depends on all changes up to one; nothing if they are durable.
    #[must_use]
    pub fn position(&self, txid: Txid) -> Option<P> {
        let later = self.0.partition_point(|(other, _)| *other <= txid);
        let (_, position) = self.0.get(later.checked_sub(1)?)?;
        Some(*position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_durable_ends_before_the_first_change_that_is_not() {
        let mut pending = Pending::default();
        assert_eq!(pending.durable(0, Txid(9)), Txid(9), "all that there is was in the log");
        for (txid, lsn) in [(10, 100), (11, 101), (12, 105)] {
            pending.add(Txid(txid), lsn, 99);
        }
        let durable = [99, 100, 104, 105, 106].map(|lsn| pending.durable(lsn, Txid(12)).0);
        assert_eq!(durable, [9, 10, 11, 12, 12]);
    }

    #[test]
    fn an_answer_waits_for_the_newest_change_that_it_depends_on() {
        let mut pending = Pending::default();
        assert_eq!(pending.position(Txid(9)), None);
        for (txid, lsn) in [(10, 100), (11, 101), (12, 105)] {
            pending.add(Txid(txid), lsn, 99);
        }
        assert_eq!(
            [9, 10, 11, 12, 13].map(|txid| pending.position(Txid(txid))),
            [None, Some(100), Some(101), Some(105), Some(105)]
        );
        pending.add(Txid(13), 106, 101);
        assert_eq!(pending.position(Txid(11)), None, "it is durable");
    }
}
