//! Which rows of the left side of INTERSECT and EXCEPT have one on the right. If there is no memory for the right side, both go to files, parted
//! by what they are equal by; each part is looked through later.

use std::{collections::HashMap, ops::ControlFlow};

use savanna_tenants_sql::{
    expression::rows::{Take, fingerprint},
    plan::query::{SetKind, SetOperation},
};
use savanna_tenants_values::{
    error::{Result, SqlError},
    value::Value,
};

use crate::{
    Run,
    distinct::seen_bytes,
    explain::address,
    join::{Flow, ON},
    spill::{Parts, Reading, Room, SPLITS_MAX},
};

/// The right side, and what of the left side is to be looked up in it.
pub(super) struct Paired<'r, 'a> {
    run: &'r Run<'a>,
    set: &'r SetOperation,
    /// How often each row is on the right.
    counts: HashMap<Vec<u8>, usize>,
    room: Room<'r>,
    /// How often the rows were parted before, and the parts of both sides: on the right rows' bytes and how often they are there.
    level: u32,
    parts: Option<(Parts<'r>, Parts<'r>)>,
}

impl<'r, 'a> Paired<'r, 'a> {
    pub(super) fn new(run: &'r Run<'a>, set: &'r SetOperation, level: u32) -> Self {
        Self { run, set, counts: HashMap::new(), room: run.room_for_parts(), level, parts: None }
    }

    /// Adds a row of the right side, by its bytes, that is there so often. All of them come before the left side.
    pub(super) fn add(&mut self, row: Vec<u8>, count: usize) -> Result<()> {
        if let Some((_, right)) = &mut self.parts {
            return push(right, row, count);
        }
        if let Some(known) = self.counts.get_mut(&row) {
            *known += count;
            return Ok(());
        }
        let takes = seen_bytes(&row) + 2 * size_of::<usize>();
        if !self.room.takes(takes)? {
            if self.level < SPLITS_MAX {
                return self.part(row, count);
            }
            self.room.must_take(takes)?;
        }
        self.counts.insert(row, count);
        Ok(())
    }

    /// Puts what is there into files, with another row.
    fn part(&mut self, row: Vec<u8>, count: usize) -> Result<()> {
        let Self { run, level, room, .. } = self;
        let (mut right, left) = (Parts::new(run, *level, room)?, Parts::new(run, *level, room)?);
        for (row, count) in std::mem::take(&mut self.counts) {
            self.run.goes_on_after(0)?;
            push(&mut right, row, count)?;
        }
        self.room.clear();
        push(&mut right, row, count)?;
        self.room.share_rest();
        self.parts = Some((left, right));
        Ok(())
    }

    /// Gives a row of the left side on if it belongs to the result, unless that is found out later.
    pub(super) fn give(&mut self, row: Vec<Value>, take: &mut Take<'_>) -> Flow {
        let bytes = fingerprint(&row)?;
        if let Some((left, _)) = &mut self.parts {
            left.push(&bytes, &row)?;
            return ON;
        }
        let mut paired = false;
        if let Some(count) = self.counts.get_mut(&bytes)
            && *count > 0
        {
            paired = true;
            *count -= usize::from(self.set.all);
        }
        if paired == (self.set.kind == SetKind::Intersect) { take(row) } else { ON }
    }

    /// Gives the rows on of which it was not known yet.
    pub(super) fn finish(self, take: &mut Take<'_>) -> Flow {
        let Self { run, set, counts, room, level, parts } = self;
        drop((counts, room));
        let Some((left, right)) = parts else { return ON };
        let (left, right) = (left.finish(run, address(set))?, right.finish(run, address(set))?);
        for (left, right) in left.into_iter().zip(right) {
            let mut paired = Self::new(run, set, level + 1);
            let mut rows = Reading::new(run, right)?;
            while let Some(row) = rows.next()? {
                let [Value::Bytes(row), Value::Int(count)] = <[Value; 2]>::try_from(row).map_err(|_| of_others())?
                else {
                    return Err(of_others());
                };
                paired.add(row, count as usize)?;
            }
            let mut rows = Reading::new(run, left)?;
            while let Some(row) = rows.next()? {
                if paired.give(row, take)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if paired.finish(take)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        ON
    }
}

fn push(right: &mut Parts<'_>, row: Vec<u8>, count: usize) -> Result<()> {
    let key = row.clone();
    right.push(&key, &[Value::Bytes(row), Value::Int(count as i64)])
}

#[cold]
fn of_others() -> SqlError {
    SqlError::internal("expected a row of the right side of a set operation")
}
