//! Rows of a join that are kept, to be looked up by values that have to be equal.

use std::collections::HashMap;

use savanna_tenants_sql::plan::query::Keep;
use savanna_tenants_values::{
    error::Result,
    memory::{ALLOCATION, Memory, row_bytes},
    value::Value,
};

use super::Row;
use crate::{
    Run,
    explain::address,
    spill::{Parts, Room, SPLITS_MAX, Spool, Spooling, Tape},
};

/// Rows that are kept, or the parts of them in a file.
pub(crate) enum Kept {
    Here(KeptRows),
    Parted(Vec<Tape>),
}

/// Rows that are kept: their part of the row, and behind it keys of tables' rows.
pub(crate) struct KeptRows {
    pub(super) rows: Spool,
    /// Places by the values that they are looked up by.
    places: Option<HashMap<Vec<u8>, Vec<usize>>>,
}

impl KeptRows {
    /// The places of the rows that a row may be joined with.
    pub(super) fn matches(&self, run: &Run<'_>, keep: &Keep, row: &Row) -> Result<Matches<'_>> {
        let (Some(places), Some(lookup)) = (&self.places, &keep.lookup) else {
            return Ok(Matches::All(0..self.rows.len()));
        };
        let key = run.fingerprint_of(&lookup.probe, row)?;
        let found = key.and_then(|key| places.get(&key)).map_or(&[][..], Vec::as_slice);
        Ok(Matches::Some(found.iter()))
    }

    pub(super) fn show(&self, place: usize, keep: &Keep, row: &mut Row) -> Result<()> {
        self.rows.with(place, |kept| {
            let (values, keys) = kept.split_at(keep.part.len());
            row.values[keep.part.clone()].clone_from_slice(values);
            for (at, key) in keep.keys.iter().zip(keys) {
                if let Value::Bytes(key) = key {
                    row.keys[*at].clone_from(key);
                }
            }
        })
    }
}

/// Places of rows.
pub(super) enum Matches<'k> {
    All(std::ops::Range<usize>),
    Some(std::slice::Iter<'k, usize>),
}

impl Iterator for Matches<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        match self {
            Self::All(places) => places.next(),
            Self::Some(places) => places.next().copied(),
        }
    }
}

/// Rows that come to be kept.
pub(super) enum Keeping<'r, 'a> {
    /// Those that nobody looks up, in the order in which they came.
    List(Spooling<'r, 'a>),
    Table(Table<'r, 'a>),
}

/// Rows that come to be looked up.
pub(super) struct Table<'r, 'a> {
    run: &'r Run<'a>,
    keep: &'r Keep,
    rows: Vec<Vec<Value>>,
    places: HashMap<Vec<u8>, Vec<usize>>,
    room: Room<'r>,
    /// How often they were parted before; `None` if they have to stay in memory.
    level: Option<u32>,
    parts: Option<Parts>,
}

impl<'r, 'a> Keeping<'r, 'a> {
    /// None yet. They may be parted if a level is said.
    pub(super) fn new(run: &'r Run<'a>, keep: &'r Keep, level: Option<u32>) -> Self {
        match keep.lookup {
            None => Self::List(Spooling::new(run, address(keep))),
            Some(_) => {
                let level = level.filter(|level| *level < SPLITS_MAX);
                let (rows, places) = (Vec::new(), HashMap::new());
                Self::Table(Table { run, keep, rows, places, room: run.room(), level, parts: None })
            }
        }
    }

    /// Adds a row, by the bytes that it is looked up by: without them nobody finds it.
    pub(super) fn add(&mut self, key: Option<Vec<u8>>, row: Vec<Value>) -> Result<()> {
        match self {
            Self::List(rows) => rows.push(row),
            Self::Table(table) => table.add(key, row),
        }
    }

    pub(super) fn finish(self) -> Result<(Kept, Memory<'r>)> {
        match self {
            Self::List(rows) => {
                let (rows, memory) = rows.finish()?;
                Ok((Kept::Here(KeptRows { rows, places: None }), memory))
            }
            Self::Table(Table { run, keep, rows, places, room, parts, .. }) => {
                let kept = match parts {
                    Some(parts) => Kept::Parted(parts.finish(run, address(keep))?),
                    None => Kept::Here(KeptRows { rows: rows.into(), places: Some(places) }),
                };
                Ok((kept, room.into_memory()))
            }
        }
    }
}

impl Table<'_, '_> {
    fn add(&mut self, key: Option<Vec<u8>>, row: Vec<Value>) -> Result<()> {
        if let Some(parts) = &mut self.parts {
            return push(parts, key, row);
        }
        // With its place, and the place of its key in a table that grows.
        let entry = key.as_ref().map_or(0, |key| key.len() + 2 * (2 * size_of::<Vec<u8>>() + 1) + 2 * ALLOCATION);
        let takes = row_bytes(&row) + entry + size_of::<usize>();
        if !self.room.takes(takes)? {
            if let Some(level) = self.level {
                return self.part(level, key, row);
            }
            self.room.must_take(takes)?;
        }
        if let Some(key) = key {
            self.places.entry(key).or_default().push(self.rows.len());
        }
        self.rows.push(row);
        Ok(())
    }

    /// Puts what is there into a file, in the order in which it came, with another row.
    fn part(&mut self, level: u32, key: Option<Vec<u8>>, row: Vec<Value>) -> Result<()> {
        let mut parts = Parts::new(self.run, level)?;
        let mut keys: Vec<Option<Vec<u8>>> = vec![None; self.rows.len()];
        for (key, places) in self.places.drain() {
            places.iter().for_each(|place| keys[*place] = Some(key.clone()));
        }
        for (key, row) in keys.into_iter().zip(self.rows.drain(..)) {
            self.run.goes_on_after(0)?;
            push(&mut parts, key, row)?;
        }
        push(&mut parts, key, row)?;
        self.room.clear();
        self.parts = Some(parts);
        Ok(())
    }
}

/// Puts a row into the part of its key, which stands before it there.
pub(super) fn push(parts: &mut Parts, key: Option<Vec<u8>>, mut row: Vec<Value>) -> Result<()> {
    let bytes = key.clone().unwrap_or_default();
    row.insert(0, key.map_or(Value::Null, Value::Bytes));
    parts.push(&bytes, &row)
}

/// A row of a part, and its key.
pub(super) fn split(row: Vec<Value>) -> (Option<Vec<u8>>, Vec<Value>) {
    let mut row = row.into_iter();
    let key = match row.next() {
        Some(Value::Bytes(key)) => Some(key),
        _ => None,
    };
    (key, row.collect())
}
