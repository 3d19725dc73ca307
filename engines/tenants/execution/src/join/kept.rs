//! Rows of a join that are kept, to be looked up by values that have to be equal.

use std::{collections::HashMap, rc::Rc};

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
    spill::{Parts, Room, Spool, Spooling, Tape},
};

/// Rows that are kept, or the parts of them in a file.
pub(crate) enum Kept {
    Here(KeptRows),
    Parted(Vec<Tape>),
}

/// The parts, if there are any, which nobody else needs.
pub(super) fn parts(kept: Rc<Kept>) -> Vec<Tape> {
    match Rc::try_unwrap(kept) {
        Ok(Kept::Parted(parts)) => parts,
        Err(kept) => match &*kept {
            Kept::Parted(parts) => parts.clone(),
            Kept::Here(_) => Vec::new(),
        },
        Ok(Kept::Here(_)) => Vec::new(),
    }
}

/// Whether rows may go to files when there is no memory for them.
#[derive(Clone, Copy)]
pub(super) enum InFiles {
    No,
    /// One behind the other, with their places in memory.
    InOne,
    /// In parts by what they are looked up by, if they are.
    AndParted,
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
    /// Whether rows that nobody can find are wanted, too.
    all: bool,
}

/// Where those that come are.
enum Coming<'r, 'a> {
    /// One behind the other; in a file if there is no memory for them, from which single ones are read again.
    List(Spooling<'r, 'a>),
    /// In memory, whatever comes.
    Near(Vec<Vec<Value>>, Memory<'r>),
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
    /// What another one takes: its key in a table that grows, its place in a list, and what is needed to tell which key a row has.
    fn bytes(&self, key: Option<&Vec<u8>>) -> usize {
        let Some(key) = key else { return size_of::<u32>() };
        match self.of.contains_key(key) {
            true => 2 * size_of::<usize>() + size_of::<u32>(),
            false => {
                let entry = 2 * (size_of::<(Vec<u8>, Vec<usize>)>() + 1) + size_of::<Vec<u8>>();
                entry + key.len() + 4 * size_of::<usize>() + 2 * ALLOCATION + size_of::<u32>()
            }
        }
    }
}

impl<'r, 'a> Keeping<'r, 'a> {
    /// None yet. They were parted so often before.
    pub(super) fn new(run: &'r Run<'a>, keep: &'r Keep, in_files: InFiles, level: u32) -> Self {
        let places = || Places { of: HashMap::new(), memory: run.memory() };
        let rows = match (in_files, &keep.lookup) {
            (InFiles::No, _) => Coming::Near(Vec::new(), run.memory()),
            (InFiles::AndParted, Some(_)) => {
                Coming::Here { run, keep, rows: Vec::new(), room: run.room_for_parts(), level }
            }
            _ => Coming::List(Spooling::new(run, address(keep))),
        };
        Self { rows, places: keep.lookup.as_ref().map(|_| places()), all: keep.all }
    }

    /// Adds a row, by the bytes that it is looked up by: without them nobody finds it.
    pub(super) fn add(&mut self, key: Option<Vec<u8>>, row: Vec<Value>) -> Result<()> {
        if let Coming::Parted { parts, .. } = &mut self.rows {
            return if key.is_some() || self.all { push(parts, key.as_deref(), row) } else { Ok(()) };
        }
        if self.places.is_some() && key.is_none() && !self.all {
            return Ok(());
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
            Coming::Near(rows, memory) => {
                memory.take_bytes(row_bytes(&row) + entry)?;
                rows.push(row);
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
        // Which of the keys each row has; none if it is behind all.
        let mut numbers = vec![u32::MAX; rows.len()];
        let places = self.places.take().map(|places| places.of).unwrap_or_default();
        let mut keys = Vec::with_capacity(places.len());
        for (key, places) in places {
            run.goes_on_after(0)?;
            places.iter().for_each(|place| numbers[*place] = keys.len() as u32);
            keys.push(key);
        }
        for (number, row) in numbers.into_iter().zip(rows.drain(..)) {
            run.goes_on_after(0)?;
            push(&mut parts, keys.get(number as usize).map(Vec::as_slice), row)?;
        }
        push(&mut parts, key.as_deref(), row)?;
        room.clear();
        room.share_rest();
        self.rows = Coming::Parted { run, keep, parts };
        Ok(())
    }

    /// The rows, and the memory that they hold.
    pub(super) fn finish(self) -> Result<(Kept, Memory<'r>)> {
        let (rows, mut memory) = match self.rows {
            Coming::List(rows) => rows.finish()?,
            Coming::Near(rows, memory) => (rows.into(), memory),
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

/// Puts a row into the part of its key, which stands before it there; one without a key into any.
pub(super) fn push(parts: &mut Parts<'_>, key: Option<&[u8]>, mut row: Vec<Value>) -> Result<()> {
    row.insert(0, key.map_or(Value::Null, |key| Value::Bytes(key.to_vec())));
    match key {
        Some(key) => parts.push(key, &row),
        None => parts.push_anywhere(&row),
    }
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
