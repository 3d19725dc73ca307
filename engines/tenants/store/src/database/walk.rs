//! How a range is read: versions in memory over the storage below, without what is known to have gone.

use std::cmp::Ordering;

use savanna_tenants_values::error::Result;
use savanna_transaction::{Direction, KeyRange, Seen, TxnId};

use super::{Database, Visit};
use crate::Rows;

/// A scan that passes over so many keys that have gone before it meets the first that has not remembers it.
const PASSED_MIN: usize = 16;

/// What a storage has that need not be asked.
struct NoRows;

impl Rows for NoRows {
    fn step(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        &[]
    }

    fn value(&self) -> &[u8] {
        &[]
    }

    fn passed(&self) -> usize {
        0
    }
}

/// What a scan met before the first key.
#[derive(Default)]
struct Head {
    /// Keys that have gone.
    passed: usize,
    /// Whether the first key is asked for, however few were passed.
    wanted: bool,
    first: Option<Vec<u8>>,
}

impl Database {
    /// Visits the keys of a range until it is told to stop, or has passed so many, also of those that have gone: the last key then.
    pub(super) fn walk(
        &mut self,
        txn: TxnId,
        range: &KeyRange,
        (direction, keys_max): (Direction, usize),
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let rest = self.beyond_gap(txn, range, direction)?;
        let mut head = Head { wanted: rest.is_some(), ..Head::default() };
        let rest = rest.as_ref().unwrap_or(range);
        let last = self.walk_keys(txn, rest, (direction, keys_max), &mut head, visit)?;
        if head.wanted || head.passed >= PASSED_MIN {
            self.note_gap(txn, range, direction, head.first)?;
        }
        Ok(last)
    }

    /// What is left of a range without keys that are known to have gone, if there are any where a scan would begin.
    fn beyond_gap(&self, txn: TxnId, range: &KeyRange, direction: Direction) -> Result<Option<KeyRange>> {
        if self.gaps.is_empty() {
            return Ok(None);
        }
        let (snapshot, _) = self.transactions.snapshot(txn)?;
        let Some((rest, after)) = self.gaps.beyond(range, direction, snapshot) else { return Ok(None) };
        let gap = match direction {
            Direction::Ascending => KeyRange { start: range.start.clone(), end: Some(rest.start.clone()) },
            Direction::Descending => KeyRange { start: rest.end.clone().unwrap_or_default(), end: range.end.clone() },
        };
        if self.transactions.wrote_in(txn, &gap)? {
            return Ok(None);
        }
        self.transactions.depends_on(txn, after)?;
        Ok(Some(rest))
    }

    /// Remembers that there is nothing in a range before the first key that a scan met.
    fn note_gap(&mut self, txn: TxnId, range: &KeyRange, direction: Direction, first: Option<Vec<u8>>) -> Result<()> {
        let (snapshot, is_newest) = self.transactions.snapshot(txn)?;
        let gap = match (direction, first) {
            (_, None) => range.clone(),
            (Direction::Ascending, first) => KeyRange { start: range.start.clone(), end: first },
            (Direction::Descending, Some(mut first)) => {
                first.push(0);
                KeyRange { start: first, end: range.end.clone() }
            }
        };
        // Others may see what an old snapshot does not, and what the transaction itself has deleted.
        if is_newest && !self.transactions.wrote_in(txn, &gap)? {
            let after = self.transactions.reply_after(txn)?;
            if let KeyRange { start, end: Some(end) } = gap {
                self.gaps.note((start, end), snapshot, after);
            }
        }
        Ok(())
    }

    fn walk_keys(
        &mut self,
        txn: TxnId,
        range: &KeyRange,
        (direction, keys_max): (Direction, usize),
        head: &mut Head,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        if range.is_empty() {
            return Ok(None);
        }
        let mut above = self.transactions.peek(txn, range, direction)?.peekable();
        // Else memory has all that anybody sees.
        let is_below = self.store.has_rows_of_others() || self.below.touches(range);
        let mut below: Box<dyn Rows + '_> =
            if is_below { self.store.scan(range, direction, &mut self.reading) } else { Box::new(NoRows) };
        let mut more = below.step()?;
        let (mut met, mut keys) = (false, 0);
        loop {
            let order = match (above.peek(), more) {
                (None, false) => break,
                (Some(_), false) => Ordering::Less,
                (None, true) => Ordering::Greater,
                (Some((a, _)), true) if direction == Direction::Ascending => (*a).cmp(below.key()),
                (Some((a, _)), true) => below.key().cmp(a),
            };
            let seen = if order.is_le() { above.next() } else { None };
            let under = || (order.is_ge() && !below.has_gone()).then(|| below.value());
            let (key, value) = match seen {
                Some((key, Seen::Here(value))) => (key, Some(&**value)),
                Some((key, Seen::Gone)) => (key, None),
                Some((key, Seen::Below)) => (key, under()),
                None => (below.key(), under()),
            };
            match value {
                Some(value) => {
                    if !std::mem::replace(&mut met, true) {
                        head.passed += below.passed();
                        head.first = (head.wanted || head.passed >= PASSED_MIN).then(|| key.to_vec());
                    }
                    if visit(key, value)?.is_break() {
                        return Ok(Some(key.to_vec()));
                    }
                }
                None => head.passed += usize::from(!met),
            }
            keys += 1;
            if keys + below.passed() >= keys_max {
                if !met {
                    head.passed += below.passed();
                    // What is behind it is not known to have gone.
                    head.first = Some(key.to_vec());
                }
                return Ok(Some(key.to_vec()));
            }
            if order.is_ge() {
                more = below.step()?;
            }
        }
        if !met {
            head.passed += below.passed();
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
