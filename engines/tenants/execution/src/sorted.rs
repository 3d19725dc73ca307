//! Puts rows into an order. Where only the first ones are wanted, not many more are kept at any time.

use std::{cmp::Ordering, ops::ControlFlow};

use savanna_tenants_sql::{
    expression::rows::{Take, compare},
    plan::query::{Presorted, Query, SortKey},
};
use savanna_tenants_values::{error::Result, memory::Memory, value::Value};

use crate::Run;

/// Rows beyond those that are wanted that are equal by the keys that an index sorts by. If the first ones have more of their kind, the table is
/// sorted as a whole.
const TIES_MAX: usize = 2_000;

/// How two rows are ordered.
fn order_of(keys: &[SortKey], a: &[Value], b: &[Value]) -> Ordering {
    let mut orders = keys.iter().map(|key| compare(&a[key.at], &b[key.at], key.descending, key.nulls_first));
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Sorts what has rows; what is equal stays as it is.
pub(crate) fn sort<T>(rows: &mut [T], keys: &[SortKey], row_of: impl Fn(&T) -> &Vec<Value>) {
    if !keys.is_empty() {
        rows.sort_by(|a, b| order_of(keys, row_of(a), row_of(b)));
    }
}

/// Rows that are sorted, as [`sort`] does it, or the first so many of these.
pub(crate) struct Sorted<'r> {
    keys: &'r [SortKey],
    wanted: Option<usize>,
    /// As soon as there are as many as are wanted, these are in order, others behind them.
    rows: Vec<Vec<Value>>,
    /// The place of the last row that is wanted so far, if there are as many.
    last: Option<usize>,
    memory: Memory<'r>,
}

impl<'r> Sorted<'r> {
    /// None yet; they take their memory from this.
    pub(crate) fn new(keys: &'r [SortKey], wanted: Option<usize>, memory: Memory<'r>) -> Self {
        Self { keys, wanted, rows: Vec::new(), last: None, memory }
    }

    pub(crate) fn add(&mut self, row: Vec<Value>) -> Result<()> {
        if self.last.is_some_and(|last| order_of(self.keys, &self.rows[last], &row).is_le()) {
            return Ok(());
        }
        self.memory.take(&row)?;
        self.rows.push(row);
        match self.wanted {
            Some(wanted) if self.rows.len() / 2 >= wanted => self.cut(wanted),
            _ => Ok(()),
        }
    }

    /// Leaves the first rows.
    fn cut(&mut self, wanted: usize) -> Result<()> {
        sort(&mut self.rows, self.keys, |row| row);
        self.rows.truncate(wanted);
        self.last = wanted.checked_sub(1);
        self.memory.give_back();
        self.rows.iter().try_for_each(|row| self.memory.take(row))
    }

    /// The rows in their order, and the memory that they hold.
    pub(crate) fn finish(mut self) -> (Vec<Vec<Value>>, Memory<'r>) {
        sort(&mut self.rows, self.keys, |row| row);
        self.rows.truncate(self.wanted.unwrap_or(usize::MAX));
        (self.rows, self.memory)
    }
}

impl Run<'_> {
    /// Gives a query's rows to `take`, which come in the order of its first keys: those that are equal by these are sorted, some after the others.
    pub(crate) fn presorted(
        &self,
        (query, presorted): (&Query, Presorted),
        around: Vec<Value>,
        wanted: Option<usize>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let known = &query.order[..presorted.keys];
        // Where steps are counted they are those of the plan.
        let may_turn = presorted.by_index && self.counts.is_none();
        let mut take_all = |ties: Sorted<'_>| -> Result<ControlFlow<()>> {
            let (rows, _memory) = ties.finish();
            for mut row in rows {
                row.truncate(query.columns.len());
                if take(row)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        let begin = || Sorted::new(&query.order, wanted, self.memory());
        let (mut ties, mut first, mut flow) = (begin(), Vec::new(), ControlFlow::Continue(()));
        let (mut count, mut is_given, mut too_many) = (0, false, false);
        self.unordered(query, around.clone(), wanted, &mut |row| {
            let is_tie = count > 0 && order_of(known, &first, &row).is_eq();
            if is_tie {
                too_many = may_turn && !is_given && count >= wanted.unwrap_or(0).saturating_add(TIES_MAX);
            } else if count > 0 {
                is_given = true;
                flow = take_all(std::mem::replace(&mut ties, begin()))?;
            }
            if flow.is_break() || too_many {
                return Ok(ControlFlow::Break(()));
            }
            if !is_tie {
                first.clone_from(&row);
            }
            count += 1;
            ties.add(row)?;
            Ok(ControlFlow::Continue(()))
        })?;
        if !too_many {
            return if flow.is_continue() { take_all(ties).map(drop) } else { Ok(()) };
        }
        drop(ties);
        let mut all = begin();
        self.unordered(&query.without_index_order(), around, None, &mut |row| {
            all.add(row)?;
            Ok(ControlFlow::Continue(()))
        })?;
        take_all(all).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use savanna_tenants_values::memory::Lent;

    use super::*;

    const KEYS: [SortKey; 2] = [
        SortKey { at: 1, descending: true, nulls_first: true },
        SortKey { at: 2, descending: false, nulls_first: false },
    ];

    /// Rows with their places, and few values to sort them by.
    fn rows(count: i64) -> Vec<Vec<Value>> {
        let value = |at: i64, of: i64| match at * 7919 % of {
            0 => Value::Null,
            value => Value::Int(value),
        };
        (0..count).map(|at| vec![Value::Int(at), value(at, 11), value(at, 5)]).collect()
    }

    fn first(wanted: Option<usize>, rows: &[Vec<Value>], lent: &Lent) -> Vec<Vec<Value>> {
        let mut sorted = Sorted::new(&KEYS, wanted, lent.memory());
        rows.iter().for_each(|row| sorted.add(row.clone()).expect("memory"));
        sorted.finish().0
    }

    #[test]
    fn the_first_rows_are_those_of_all_that_come_first() {
        let lent = Lent::default();
        for count in [0, 1, 2, 3, 10, 500] {
            let rows = rows(count);
            let all = first(None, &rows, &lent);
            assert_eq!(all.len(), rows.len());
            assert!(all.windows(2).all(|pair| {
                let order = order_of(&KEYS, &pair[0], &pair[1]);
                order.is_lt() || order.is_eq() && pair[0][0].compare(&pair[1][0]).is_lt()
            }));
            for wanted in [1, 2, 3, 7, 499, 500, 501, usize::MAX] {
                assert_eq!(first(Some(wanted), &rows, &lent), all[..wanted.min(all.len())], "{wanted} of {count}");
            }
        }
    }

    #[test]
    fn rows_that_are_not_wanted_take_no_memory() {
        let lent = Lent::default();
        let text = || Value::Text("x".repeat(1 << 20));
        let mut sorted = Sorted::new(&KEYS, Some(10), lent.memory());
        for at in 0..2_000 {
            sorted.add(vec![text(), Value::Int(at), Value::Null]).expect("memory of twenty rows");
        }
        let (rows, _memory) = sorted.finish();
        assert_eq!(
            rows.iter().map(|row| row[1].clone()).collect::<Vec<_>>(),
            (1_990..2_000).rev().map(Value::Int).collect::<Vec<_>>()
        );
        let mut all = Sorted::new(&KEYS, None, lent.memory());
        assert!((0..2_000).any(|at| all.add(vec![text(), Value::Int(at), Value::Null]).is_err()));
    }
}
