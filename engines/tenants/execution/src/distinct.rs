//! Leaves out rows that are equal to earlier ones. Where there is no memory for more, those that may be new go to files, parted by what they are
//! equal by; each part is looked through later.

use std::{collections::HashSet, ops::ControlFlow};

use savanna_tenants_sql::expression::rows::{Take, fingerprint};
use savanna_tenants_values::{error::Result, memory::ALLOCATION, value::Value};

use crate::{
    Run,
    explain::Part,
    join::{Flow, ON},
    spill::{Parts, Reading, Room, SPLITS_MAX},
};

/// Rows that are the first of their kind.
pub(crate) struct Distinct<'r, 'a> {
    run: &'r Run<'a>,
    part: Part,
    /// So many of the first columns tell rows apart.
    width: usize,
    seen: HashSet<Vec<u8>>,
    room: Room<'r>,
    /// How often the rows were parted before, and the parts of those that are none of what was seen.
    level: u32,
    others: Option<Parts<'r>>,
    /// Whether nobody wants more.
    is_over: bool,
}

impl<'r, 'a> Distinct<'r, 'a> {
    /// Of what goes to files it is noted for a part of the plan how much that is.
    pub(crate) fn new(run: &'r Run<'a>, part: Part, width: usize) -> Self {
        Self::at(run, part, width, 0)
    }

    fn at(run: &'r Run<'a>, part: Part, width: usize, level: u32) -> Self {
        Self { run, part, width, seen: HashSet::new(), room: run.room_for_parts(), level, others: None, is_over: false }
    }

    /// Gives a row on that is the first of its kind, unless that is found out later.
    pub(crate) fn give(&mut self, row: Vec<Value>, take: &mut Take<'_>) -> Flow {
        let bytes = fingerprint(&row[..self.width])?;
        if self.seen.contains(&bytes) {
            return ON;
        }
        if let Some(others) = &mut self.others {
            others.push(&bytes, &row)?;
            return ON;
        }
        let takes = seen_bytes(&bytes);
        if !self.room.takes(takes)? {
            if self.level < SPLITS_MAX {
                let mut others = Parts::new(self.run, self.level, &mut self.room)?;
                others.push(&bytes, &row)?;
                self.others = Some(others);
                return ON;
            }
            self.room.must_take(takes)?;
        }
        self.seen.insert(bytes);
        let flow = take(row)?;
        self.is_over = flow.is_break();
        Ok(flow)
    }

    /// Gives the rows on of which it was not known yet.
    pub(crate) fn finish(self, take: &mut Take<'_>) -> Result<()> {
        self.finish_part(take).map(drop)
    }

    fn finish_part(self, take: &mut Take<'_>) -> Flow {
        let Self { run, part, width, seen, room, level, others, is_over } = self;
        drop((seen, room));
        if is_over {
            return Ok(ControlFlow::Break(()));
        }
        let Some(others) = others else { return ON };
        for tape in others.finish(run, part)? {
            let mut distinct = Self::at(run, part, width, level + 1);
            let mut rows = Reading::new(run, tape)?;
            while let Some(row) = rows.next()? {
                if distinct.give(row, take)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            drop(rows);
            if distinct.finish_part(take)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        ON
    }
}

/// About how many bytes it takes to know a row again, with its place in a table that grows.
pub(crate) fn seen_bytes(key: &[u8]) -> usize {
    2 * (size_of::<Vec<u8>>() + 1) + key.len() + ALLOCATION
}
