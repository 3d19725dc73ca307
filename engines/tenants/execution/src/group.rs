//! Groups rows. Where there is no memory for more groups, rows of others go to files, parted by what they are grouped by; each part is grouped
//! later.

use std::{collections::HashMap, ops::ControlFlow};

use savanna_tenants_sql::{
    expression::{aggregate::State, rows::fingerprint},
    plan::query::Grouping,
};
use savanna_tenants_values::{
    error::{Result, SqlError},
    memory::{ALLOCATION, row_bytes},
    value::Value,
};

use crate::{
    Run,
    explain::address,
    join::Flow,
    query::project,
    spill::{Parts, Reading, Room, SPLITS_MAX, Tape},
};

/// The keys of a group of a grouping set, and the set's number.
fn of_set(keys: &[Value], set: &[usize], number: usize) -> Vec<Value> {
    let key = |(at, key): (usize, &Value)| if set.contains(&at) { key.clone() } else { Value::Null };
    keys.iter().enumerate().map(key).chain([Value::Int(number as i64)]).collect()
}

/// Groups on the way, in the order in which they came.
pub(crate) struct Groups<'r, 'a> {
    run: &'r Run<'a>,
    grouping: &'r Grouping,
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<(Vec<Value>, Vec<State>)>,
    room: Room<'r>,
    /// How often the rows were parted before, and the parts of those that belong to no group that is here: keys, and the row behind.
    level: u32,
    others: Option<Parts<'r>>,
}

impl<'r, 'a> Groups<'r, 'a> {
    pub(crate) fn new(run: &'r Run<'a>, grouping: &'r Grouping) -> Self {
        let mut groups = Self::of_part(run, grouping, 0);
        // Without keys there is one group, also of no rows.
        match &grouping.sets {
            None if grouping.keys.is_empty() => groups.groups.push((Vec::new(), groups.states())),
            None => {}
            Some(sets) => {
                for (number, _) in sets.iter().enumerate().filter(|(_, set)| set.is_empty()) {
                    let keys = of_set(&vec![Value::Null; grouping.keys.len()], &[], number);
                    if let Ok(bytes) = fingerprint(&keys) {
                        groups.places.insert(bytes, groups.groups.len());
                        groups.groups.push((keys, groups.states()));
                    }
                }
            }
        }
        groups
    }

    fn of_part(run: &'r Run<'a>, grouping: &'r Grouping, level: u32) -> Self {
        let (places, groups) = (HashMap::new(), Vec::new());
        Self { run, grouping, places, groups, room: run.room_for_parts(), level, others: None }
    }

    fn states(&self) -> Vec<State> {
        self.grouping.aggregates.iter().map(|_| State::default()).collect()
    }

    /// Adds a row to the groups that it belongs to.
    pub(crate) fn add(&mut self, row: &[Value]) -> Result<()> {
        let grouping = self.grouping;
        let keys = project(&grouping.keys, self.run.env().with_row(row))?;
        match &grouping.sets {
            None if keys.is_empty() => self.add_to(0, row),
            None => self.add_as(keys, row),
            Some(sets) => {
                sets.iter().enumerate().try_for_each(|(number, set)| self.add_as(of_set(&keys, set, number), row))
            }
        }
    }

    /// Adds a row to the group with these keys.
    fn add_as(&mut self, keys: Vec<Value>, row: &[Value]) -> Result<()> {
        let bytes = fingerprint(&keys)?;
        let known = self.places.get(&bytes).copied();
        if let Some(place) = known {
            return self.add_to(place, row);
        }
        if let Some(others) = &mut self.others {
            return others.push(&bytes, &[&keys, row].concat());
        }
        let takes = group_bytes(&bytes, &keys, self.grouping);
        if !self.room.takes(takes)? {
            if self.level < SPLITS_MAX {
                let mut others = Parts::new(self.run, self.level, &mut self.room)?;
                others.push(&bytes, &[&keys, row].concat())?;
                self.others = Some(others);
                return Ok(());
            }
            self.room.must_take(takes)?;
        }
        let place = self.groups.len();
        self.places.insert(bytes, place);
        self.groups.push((keys, self.states()));
        self.add_to(place, row)
    }

    fn add_to(&mut self, place: usize, row: &[Value]) -> Result<()> {
        let env = self.run.env().with_row(row);
        for (state, aggregate) in self.groups[place].1.iter_mut().zip(&self.grouping.aggregates) {
            let before = state.bytes();
            state.add(aggregate, env)?;
            let after = state.bytes();
            if after > before {
                self.room.grow(after - before)?;
            }
        }
        Ok(())
    }

    /// Gives the groups' rows to `take`: the columns around the query, keys, aggregates.
    pub(crate) fn finish(self, around: &[Value], take: &mut dyn FnMut(&[Value]) -> Flow) -> Flow {
        let Self { run, grouping, places, groups, room, level, others } = self;
        drop(places);
        for (keys, states) in groups {
            run.goes_on_after(0)?;
            let mut row = [around, &keys[..grouping.keys.len()]].concat();
            for (state, aggregate) in states.into_iter().zip(&grouping.aggregates) {
                row.push(state.finish(aggregate, &|| run.goes_on_after(0))?);
            }
            // The number of the grouping set.
            row.extend_from_slice(&keys[grouping.keys.len()..]);
            if take(&row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        drop(room);
        let Some(others) = others else { return Ok(ControlFlow::Continue(())) };
        for part in others.finish(run, address(grouping))? {
            let groups = Self::of_tape(run, grouping, part, level + 1)?;
            if groups.finish(around, take)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The groups of a part.
    fn of_tape(run: &'r Run<'a>, grouping: &'r Grouping, part: Tape, level: u32) -> Result<Self> {
        let mut groups = Self::of_part(run, grouping, level);
        let width = grouping.keys.len() + usize::from(grouping.sets.is_some());
        let mut rows = Reading::new(run, part)?;
        while let Some(mut keys) = rows.next()? {
            if keys.len() < width {
                return Err(SqlError::internal("a row of a part without its keys"));
            }
            let row = keys.split_off(width);
            groups.add_as(keys, &row)?;
        }
        Ok(groups)
    }
}

/// About how many bytes a group takes, with its place in a table that grows.
fn group_bytes(key: &[u8], keys: &[Value], grouping: &Grouping) -> usize {
    let entry = 2 * (size_of::<(Vec<u8>, usize)>() + 1) + key.len() + ALLOCATION;
    let states = 2 * size_of::<Vec<State>>() + ALLOCATION + grouping.aggregates.len() * size_of::<State>();
    entry + states + row_bytes(keys)
}
