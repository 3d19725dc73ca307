//! Runs a query for so many rows, and later from there on.
//!
//! That is possible where rows come in the order of one scan and need nothing but its row: the place is then the scan's last key. The
//! rows that one row of the scan comes to are computed at once, so that none is computed twice; what is not wanted of them yet is kept.

use std::{cell::Cell, collections::VecDeque, ops::ControlFlow};

use savanna_tenants_catalog::TEMPORARY;
use savanna_tenants_sql::{
    expression::Expr,
    plan::{
        access::Way,
        query::{Body, Node, Query, Scan},
    },
};
use savanna_tenants_store::database::Step;
use savanna_tenants_values::{
    error::{Result, SqlError},
    value::Value,
};
use serde::{Deserialize, Serialize};

use crate::{
    Run,
    explain::address,
    join::{Emit, Flow, ON, Row, range_of},
    query::project,
    spill::{Spool, Spooling},
};

/// Where a query stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The last key of the leading scan.
    after: Option<Vec<u8>>,
    /// Rows up to there, those among them that `OFFSET` leaves out.
    passed: usize,
    /// Rows from before that place that were not wanted yet.
    left: VecDeque<Vec<Value>>,
    /// Whether no row comes behind it.
    is_end: bool,
}

/// Whether a query can be run for some rows, and later from there on.
pub fn is_resumable(query: &Query) -> bool {
    let Body::Select(select) = &query.body else { return false };
    let shapes = !select.windows.is_empty() || !select.sets.is_empty();
    let computes = shapes || select.grouping.is_some() || select.distinct.is_some();
    let whole = computes || !query.with.is_empty() || !query.order.is_empty() || query.locking.is_some();
    let mut again = true;
    let mut check = |expr: &Expr| again &= is_repeatable(expr);
    select.outputs.iter().chain(&query.limit).chain(&query.offset).for_each(&mut check);
    select.rows.expressions(&mut check);
    !whole && again && leading(&select.rows.node).is_some() && reads_by_key(&select.rows.node)
}

/// Whether an expression needs nothing that a statement keeps, and would be the same if it were computed again.
fn is_repeatable(expr: &Expr) -> bool {
    let mut again = !matches!(expr, Expr::Subquery(_)) && !expr.is_volatile();
    expr.children(&mut |child| again &= is_repeatable(child));
    again
}

/// The scan in whose order rows come, if that is one range.
fn leading(node: &Node) -> Option<&Scan> {
    match node {
        Node::Scan(scan) => {
            let range = matches!(scan.access.ways.as_slice(), [Way::Range { .. }]) && scan.access.each.is_none();
            range.then_some(scan)
        }
        Node::Filter { input, .. } => leading(input),
        Node::Join(join) => leading(&join.left),
        Node::One | Node::Rows(_) | Node::Full(_) | Node::Keep(_) => None,
    }
}

/// Whether everything is read where it is needed, and nothing is kept.
fn reads_by_key(node: &Node) -> bool {
    match node {
        Node::One => true,
        // Of temporary rows there is one version only.
        Node::Scan(scan) => scan.table.id & TEMPORARY == 0,
        Node::Filter { input, .. } => reads_by_key(input),
        Node::Join(join) => reads_by_key(&join.left) && reads_by_key(&join.right),
        Node::Rows(_) | Node::Full(_) | Node::Keep(_) => false,
    }
}

impl Run<'_> {
    /// The rows behind a place, so many at most, and the place behind them.
    pub fn rows_behind(&self, query: &Query, place: &Place, count: usize) -> Result<Step<(Spool, Place)>> {
        self.step(self.read_behind(query, place.clone(), count).map(Step::Done))
    }

    fn read_behind(&self, query: &Query, mut place: Place, count: usize) -> Result<(Spool, Place)> {
        let mut rows = Spooling::new(self, address(&query.columns));
        for row in place.left.drain(..count.min(place.left.len())) {
            rows.push(row)?;
        }
        if rows.len() < count && !place.is_end {
            self.read_on(query, &mut place, &mut rows, count)?;
        }
        let (rows, _memory) = rows.finish()?;
        Ok((rows, place))
    }

    /// Reads on until there are so many rows, or no more.
    fn read_on(&self, query: &Query, place: &mut Place, rows: &mut Spooling<'_, '_>, count: usize) -> Result<()> {
        let Body::Select(select) = &query.body else { return Err(not_resumable()) };
        let window = self.window(query, self.env())?;
        let mut row = match self.begin_row(&select.rows, Vec::new(), Some(count))? {
            Some(row) if window.end.is_none_or(|end| place.passed < end) => row,
            _ => {
                place.is_end = true;
                return Ok(());
            }
        };
        let mut memory = self.memory();
        let visible = query.columns.len();
        let wanted = Cell::new(count - rows.len());
        let Place { after, passed, left, is_end } = place;
        let from = after.take();
        let mut emit = |row: &mut Row| {
            self.goes_on()?;
            *passed += 1;
            if *passed > window.offset {
                let mut values = project(&select.outputs, self.env().with_row(&row.values))?;
                values.truncate(visible);
                match wanted.get().checked_sub(1) {
                    Some(less) => {
                        wanted.set(less);
                        rows.push(values)?;
                    }
                    None => {
                        memory.take(&values)?;
                        left.push_back(values);
                    }
                }
            }
            Ok(if window.end.is_some_and(|end| *passed >= end) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        };
        let mut behind = |key: &[u8]| {
            if wanted.get() > 0 {
                return ON;
            }
            *after = Some(key.to_vec());
            Ok(ControlFlow::Break(()))
        };
        let _stopped = self.led(&select.rows.node, from, &mut row, &mut emit, &mut behind)?;
        *is_end = after.is_none();
        Ok(())
    }

    /// Gives joined rows to `emit`, and to `behind` each key of the leading scan after what came of it.
    fn led(
        &self,
        node: &Node,
        from: Option<Vec<u8>>,
        row: &mut Row,
        emit: &mut Emit<'_>,
        behind: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Flow {
        match node {
            Node::Scan(scan) => self.lead(scan, from, row, emit, behind),
            Node::Filter { input, condition } => {
                let mut holding = |row: &mut Row| if self.holds(condition, row)? { emit(row) } else { ON };
                self.led(input, from, row, &mut holding, behind)
            }
            Node::Join(join) => {
                let mut joined = |row: &mut Row| self.join_right(join, row, emit);
                self.led(&join.left, from, row, &mut joined, behind)
            }
            Node::One | Node::Rows(_) | Node::Full(_) | Node::Keep(_) => Err(not_resumable()),
        }
    }

    /// The leading scan, behind a key.
    fn lead(
        &self,
        scan: &Scan,
        from: Option<Vec<u8>>,
        row: &mut Row,
        emit: &mut Emit<'_>,
        behind: &mut dyn FnMut(&[u8]) -> Flow,
    ) -> Flow {
        self.reads(&scan.table)?;
        let [Way::Range { index, equal, lower, upper }] = scan.access.ways.as_slice() else {
            return Err(not_resumable());
        };
        let index = index.map(|index| &scan.table.indexes[index]);
        let env = self.env().with_row(&row.values);
        let Some(mut range) = range_of(&scan.table, index, equal, (lower, upper), env)? else { return ON };
        if let Some(mut key) = from {
            if scan.backwards {
                range.end = Some(key);
            } else {
                key.push(0);
                range.start = key;
            }
        }
        self.find_range(scan, index, range, row, &mut |key, _, row| {
            let flow = emit(row)?;
            if flow.is_break() { Ok(flow) } else { behind(key) }
        })
    }
}

#[cold]
fn not_resumable() -> SqlError {
    SqlError::internal("a query that does not go on where it stopped")
}
