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
pub(super) struct Keeping<'r, 'a> {
    rows: Coming<'r, 'a>,
    places: Option<Places<'r>>,
}

/// Where those that come are.
enum Coming<'r, 'a> {
    /// One behind the other; in a file if there is no memory for them, from which single ones are read again.
    List(Spooling<'r, 'a>),
    /// In memory, until there is none for them.
    Here {
        run: &'r Run<'a>,
        keep: &'r Keep,
        rows: Vec<Vec<Value>>,
        room: Room<'r>,
        level: u32,
    },
    Parted {
        run: &'r Run<'a>,
        keep: &'r Keep,
        parts: Parts<'r>,
    },
}

/// Places of rows by the values that they are looked up by.
struct Places<'r> {
    of: HashMap<Vec<u8>, Vec<usize>>,
    memory: Memory<'r>,
}

impl Places<'_> {
    /// What another one takes: its key in a table that grows, and its place in a list.
    fn bytes(&self, key: Option<&Vec<u8>>) -> usize {
        let Some(key) = key else { return 0 };
        match self.of.contains_key(key) {
            true => 2 * size_of::<usize>(),
            false => {
                let entry = 2 * (size_of::<(Vec<u8>, Vec<usize>)>() + 1);
                entry + key.len() + 4 * size_of::<usize>() + 2 * ALLOCATION
            }
        }
    }
}

impl<'r, 'a> Keeping<'r, 'a> {
    /// None yet. They may be parted for the time after the one that is said, if it is.
    pub(super) fn new(run: &'r Run<'a>, keep: &'r Keep, level: Option<u32>) -> Self {
        let places = || Places { of: HashMap::new(), memory: run.memory() };
        let rows = match level.filter(|level| keep.lookup.is_some() && *level < SPLITS_MAX) {
            None => Coming::List(Spooling::new(run, address(keep))),
            Some(level) => Coming::Here { run, keep, rows: Vec::new(), room: run.room_for_parts(), level },
        };
        Self { rows, places: keep.lookup.as_ref().map(|_| places()) }
    }

    /// Adds a row, by the bytes that it is looked up by: without them nobody finds it.
    pub(super) fn add(&mut self, key: Option<Vec<u8>>, row: Vec<Value>) -> Result<()> {
        if let Coming::Parted { parts, .. } = &mut self.rows {
            return push(parts, key, row);
        }
        let entry = self.places.as_ref().map_or(0, |places| places.bytes(key.as_ref()));
        let place = match &mut self.rows {
            Coming::List(rows) => {
                if let Some(places) = &mut self.places {
                    places.memory.take_bytes(entry)?;
                }
                rows.push(row)?;
                rows.len() - 1
            }
            Coming::Here { rows, room, .. } => {
                if !room.takes(row_bytes(&row) + entry)? {
                    return self.part(key, row);
                }
                rows.push(row);
                rows.len() - 1
            }
            Coming::Parted { .. } => return Ok(()),
        };
        if let (Some(places), Some(key)) = (&mut self.places, key) {
            places.of.entry(key).or_default().push(place);
        }
        Ok(())
    }

    /// Puts what is there into a file, in the order in which it came, with another row.
    fn part(&mut self, key: Option<Vec<u8>>, row: Vec<Value>) -> Result<()> {
        let Coming::Here { run, keep, rows, room, level } = &mut self.rows else { return Ok(()) };
        let (run, keep) = (*run, *keep);
        let mut parts = Parts::new(run, *level, room)?;
        let mut keys: Vec<Option<Vec<u8>>> = vec![None; rows.len()];
        for (key, places) in self.places.take().into_iter().flat_map(|places| places.of) {
            run.goes_on_after(0)?;
            places.iter().for_each(|place| keys[*place] = Some(key.clone()));
        }
        for (key, row) in keys.into_iter().zip(rows.drain(..)) {
            run.goes_on_after(0)?;
            push(&mut parts, key, row)?;
        }
        push(&mut parts, key, row)?;
        room.clear();
        room.share_rest();
        self.rows = Coming::Parted { run, keep, parts };
        Ok(())
    }

    /// The rows, and the memory that they hold.
    pub(super) fn finish(self) -> Result<(Kept, Memory<'r>)> {
        let (rows, mut memory) = match self.rows {
            Coming::List(rows) => rows.finish()?,
            Coming::Here { rows, room, .. } => (rows.into(), room.into_memory()),
            Coming::Parted { run, keep, parts } => {
                return Ok((Kept::Parted(parts.finish(run, address(keep))?), run.memory()));
            }
        };
        memory.take_bytes(rows.near_bytes())?;
        let places = self.places.map(|places| {
            memory.join(places.memory);
            places.of
        });
        Ok((Kept::Here(KeptRows { rows, places }), memory))
    }
}

/// Puts a row into the part of its key, which stands before it there.
pub(super) fn push(parts: &mut Parts<'_>, key: Option<Vec<u8>>, mut row: Vec<Value>) -> Result<()> {
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
