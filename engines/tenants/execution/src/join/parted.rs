//! Joins rows with others that there is no memory for. Both sides are in files, parted by the values that have to be equal; then each part of one
//! side is joined with the same part of the other one.

use std::{ops::ControlFlow, rc::Rc};

use savanna_tenants_sql::plan::query::{FullJoin, Join, Keep, Node};
use savanna_tenants_values::{error::Result, memory::Memory, value::Value};

use super::{
    Emit, Flow, Kept, ON, Row,
    kept::{InFiles, Keeping, parts, push, split},
};
use crate::{
    Run,
    explain::address,
    spill::{Parts, Reading, SPLITS_MAX, Tape},
};

/// The rows that a join keeps, in memory or in files.
pub(super) fn kept_right(join: &Join) -> Option<&Keep> {
    match &join.right {
        Node::Keep(keep) => Some(keep),
        Node::Filter { input, .. } => match &**input {
            Node::Keep(keep) => Some(keep),
            _ => None,
        },
        _ => None,
    }
}

/// Parts of both sides that are still to be joined, and how often they were parted.
pub(super) struct Beside {
    parts: Vec<(Tape, Tape)>,
    level: u32,
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
        push(&mut self.parts, Some(&key), row.values.iter().cloned().chain(keys).collect())
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
    /// The parts of what waits beside those of the right side.
    pub(super) fn beside(&self, waiting: Waiting<'_>, keep: &Keep, right: Vec<Tape>) -> Result<Beside> {
        let left = waiting.parts.finish(self, address(keep))?;
        Ok(Beside { parts: left.into_iter().zip(right).collect(), level: waiting.level + 1 })
    }

    /// A part of rows that are kept, in memory if it fits.
    fn keep_part<'r>(&'r self, keep: &'r Keep, part: Tape, level: u32) -> Result<(Rc<Kept>, Memory<'r>)> {
        let in_files = if part.is_alike() || level >= SPLITS_MAX { InFiles::InOne } else { InFiles::AndParted };
        let mut keeping = Keeping::new(self, keep, in_files, level);
        let mut rows = Reading::new(self, part)?;
        while let Some(row) = rows.next()? {
            let (key, row) = split(row);
            keeping.add(key, row)?;
        }
        let (kept, memory) = keeping.finish()?;
        Ok((Rc::new(kept), memory))
    }

    /// Parts a part of both sides once more.
    fn part_again(&self, keep: &Keep, (left, right): (Tape, Rc<Kept>), level: u32, row: &mut Row) -> Result<Beside> {
        let mut waiting = Waiting::new(self, level)?;
        let _all = self.again(left, row, &mut |key, row| {
            waiting.add(key, row)?;
            ON
        })?;
        self.beside(waiting, keep, parts(right))
    }

    /// Joins the rows that wait with the parts of the right side.
    pub(super) fn join_parts(
        &self,
        join: &Join,
        keep: &Keep,
        beside: Beside,
        row: &mut Row,
        emit: &mut Emit<'_>,
    ) -> Flow {
        let Beside { parts, level } = beside;
        let mut later = Vec::new();
        for (left, right) in parts {
            if left.len() == 0 || (right.len() == 0 && join.optional.is_none()) {
                continue;
            }
            let (kept, _memory) = self.keep_part(keep, right, level)?;
            if let Kept::Parted(_) = &*kept {
                later.push(self.part_again(keep, (left, kept), level, row)?);
                continue;
            }
            self.put_kept(keep, &kept, row);
            let flow = self.again(left, row, &mut |_, row| self.join_right(join, row, emit));
            // Also if it failed: who computes for a while only goes on then.
            self.forget_kept(keep, row);
            if flow?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        // The files of these parts are closed before those of the next ones are read.
        for beside in later {
            if self.join_parts(join, keep, beside, row, emit)?.is_break() {
                return Ok(ControlFlow::Break(()));
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
    pub(super) fn full_parts(&self, join: &FullJoin, beside: Beside, row: &mut Row, emit: &mut Emit<'_>) -> Flow {
        let Beside { parts, level } = beside;
        let mut later = Vec::new();
        for (left, right) in parts {
            let (kept, _memory) = self.keep_part(&join.right, right, level)?;
            let Kept::Here(right) = &*kept else {
                later.push(self.part_again(&join.right, (left, kept), level, row)?);
                continue;
            };
            let (mut matched, _memory) = self.unmatched(right)?;
            let mut each = |_: Vec<u8>, row: &mut Row| self.full_row(join, (right, &mut matched), row, emit);
            let mut flow = self.again(left, row, &mut each)?;
            if flow.is_continue() {
                flow = self.full_rest(join, (right, &matched), row, emit)?;
            }
            if flow.is_break() {
                return Ok(flow);
            }
        }
        for beside in later {
            if self.full_parts(join, beside, row, emit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        ON
    }
}
