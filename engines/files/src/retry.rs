//! The answers to calls that may come again.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::change::{CallId, Retry, RetryAnswer};
use crate::ids::{Millis, Txid};

/// How long an answer is kept.
pub const KEPT: u64 = 10 * 60_000;
/// How many answers are kept at most: the oldest give way to new ones.
pub const ANSWERS_MAX: usize = 1 << 20;

/// Answers by call, for ten minutes.
#[derive(Debug, Default)]
pub struct RetryCache {
    answers: HashMap<CallId, (RetryAnswer, Txid)>,
    ages: VecDeque<(Millis, CallId)>,
}

impl RetryCache {
    /// The answer to a call that was done, and the change that did it.
    #[must_use]
    pub fn get(&self, call: &CallId) -> Option<(RetryAnswer, Txid)> {
        self.answers.get(call).copied()
    }

    /// Keeps the answer to a call, and forgets those that are old.
    pub(crate) fn add(&mut self, retry: Retry, txid: Txid, at: Millis) {
        if self.answers.insert(retry.call, (retry.answer, txid)).is_none() {
            self.ages.push_back((at, retry.call));
        }
        let is_old = |entry: &(Millis, CallId)| at.since(entry.0) > KEPT;
        while self.ages.len() > ANSWERS_MAX || self.ages.front().is_some_and(is_old) {
            if let Some((_, call)) = self.ages.pop_front() {
                self.answers.remove(&call);
            }
        }
    }

    /// The answers that are kept, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Millis, Retry)> {
        self.ages.iter().filter_map(|(at, call)| {
            let (answer, _) = self.get(call)?;
            Some((*at, Retry { call: *call, answer }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_ten_minutes() {
        let mut cache = RetryCache::default();
        let retry = |call| Retry { call: CallId { client: [1; 16], call }, answer: RetryAnswer::Bool(true) };
        cache.add(retry(1), Txid(1), Millis(1_000));
        cache.add(retry(2), Txid(2), Millis(1_000 + KEPT));
        assert_eq!(cache.get(&retry(1).call), Some((RetryAnswer::Bool(true), Txid(1))));
        cache.add(retry(3), Txid(3), Millis(1_001 + KEPT));
        assert_eq!(cache.get(&retry(1).call), None);
        assert!(cache.get(&retry(2).call).is_some());
    }
}
