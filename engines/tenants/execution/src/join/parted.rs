//! Joins rows with others that there is no memory for. Both sides are in files, parted by the values that have to be equal; then each part of one
//! side is joined with the same part of the other one.

use std::{ops::ControlFlow, rc::Rc};

use savanna_tenants_sql::plan::query::{FullJoin, Join, Keep, Node};
use savanna_tenants_values::{error::Result, memory::Memory, value::Value};

use super::{
    Emit, Flow, Kept, ON, Row,
    kept::{Keeping, push, split},
};
use crate::{
    Run,
    explain::address,
    spill::{Parts, Reading, Tape},
};

/// The rows that a join looks up in memory or in files, whichever has them.
pub(super) fn looked_up(join: &Join) -> Option<&Keep> {
    let keep = match &join.right {
        Node::Keep(keep) => keep,
        Node::Filter { input, .. } => match &**input {
            Node::Keep(keep) => keep,
            _ => return None,
        },
        _ => return None,
    };
    keep.lookup.as_ref().map(|_| &**keep)
}

/// Rows of the left side that wait for their part of the right side.
pub(super) struct Waiting<'r> {
    parts: Parts<'r>,
    level: u32,
}

impl<'r> Waiting<'r> {
    pub(super) fn new(run: &'r Run<'_>, level: u32) -> Result<Self> {
        Ok(Self { parts: Parts::new(run, level, &mut run.room_for_parts())?, level })
    }

    pub(super) fn add(&mut self, key: Vec<u8>, row: &Row) -> Result<()> {
        let keys = row.keys.iter().cloned().map(Value::Bytes);
        push(&mut self.parts, Some(key), row.values.iter().cloned().chain(keys).collect())
    }

    /// The parts beside those of the right side.
    fn beside(self, run: &Run<'_>, keep: &Keep, right: &[Tape]) -> Result<(Vec<(Tape, Tape)>, u32)> {
        let left = self.parts.finish(run, address(keep))?;
        Ok((left.into_iter().zip(right.iter().cloned()).collect(), self.level + 1))
    }
}

impl Row {
    /// Makes it what it was when it was added to what waits.
    fn restore(&mut self, mut saved: Vec<Value>) {
        let keys = saved.split_off(self.values.len());
        self.values = saved;
        for (key, saved) in self.keys.iter_mut().zip(keys) {
            if let Value::Bytes(saved) = saved {
                *key = saved;
            }
        }
    }
}

impl Run<'_> {
    /// A part of rows that are kept, in memory if it fits.
    fn keep_part<'r>(&'r self, keep: &'r Keep, part: Tape, level: u32) -> Result<(Rc<Kept>, Memory<'r>)> {
        let mut keeping = Keeping::new(self, keep, Some(level));
        let mut rows = Reading::new(self, part)?;
        while let Some(row) = rows.next()? {
            let (key, row) = split(row);
            keeping.add(key, row)?;
        }
        let (kept, memory) = keeping.finish()?;
        Ok((Rc::new(kept), memory))
    }

    /// Joins the rows that wait with the parts of the right side.
    pub(super) fn join_parts(
        &self,
        join: &Join,
        keep: &Keep,
        (waiting, right): (Waiting<'_>, &[Tape]),
        row: &mut Row,
        emit: &mut Emit<'_>,
    ) -> Flow {
        let (parts, level) = waiting.beside(self, keep, right)?;
        for (left, right) in parts {
            if left.len() == 0 {
                continue;
            }
            let (kept, _memory) = self.keep_part(keep, right, level)?;
            let flow = match &*kept {
                Kept::Parted(right) => {
                    let mut waiting = Waiting::new(self, level)?;
                    let _all = self.again(left, row, &mut |key, row| {
                        waiting.add(key, row)?;
                        ON
                    })?;
                    self.join_parts(join, keep, (waiting, right), row, emit)?
                }
                Kept::Here(_) => {
                    let before = self.put_kept(keep, &kept, row);
                    let flow = self.again(left, row, &mut |_, row| self.join_right(join, row, emit));
                    // Also if it failed: who computes for a while only goes on then.
                    if let Some(before) = before {
                        self.put_kept(keep, &before, row);
                    }
                    flow?
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        ON
    }

    /// Gives rows of the left side again that waited, with their keys.
    fn again(&self, left: Tape, row: &mut Row, each: &mut dyn FnMut(Vec<u8>, &mut Row) -> Flow) -> Flow {
        let mut rows = Reading::new(self, left)?;
        while let Some(saved) = rows.next()? {
            let (key, saved) = split(saved);
            row.restore(saved);
            if each(key.unwrap_or_default(), row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        ON
    }

    /// The same for a join of all rows of both sides.
    pub(super) fn full_parts(
        &self,
        join: &FullJoin,
        (waiting, right): (Waiting<'_>, &[Tape]),
        row: &mut Row,
        emit: &mut Emit<'_>,
    ) -> Flow {
        let (parts, level) = waiting.beside(self, &join.right, right)?;
        for (left, right) in parts {
            let (kept, _memory) = self.keep_part(&join.right, right, level)?;
            let flow = match &*kept {
                Kept::Parted(right) => {
                    let mut waiting = Waiting::new(self, level)?;
                    let _all = self.again(left, row, &mut |key, row| {
                        waiting.add(key, row)?;
                        ON
                    })?;
                    self.full_parts(join, (waiting, right), row, emit)?
                }
                Kept::Here(right) => {
                    let (mut matched, _memory) = self.unmatched(right)?;
                    let mut each = |_: Vec<u8>, row: &mut Row| self.full_row(join, (right, &mut matched), row, emit);
                    let flow = self.again(left, row, &mut each)?;
                    if flow.is_break() { flow } else { self.full_rest(join, (right, &matched), row, emit)? }
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        ON
    }
}
