//! What lies below the version table: the newest version of each key up to a commit, wherever it is kept.

use std::{collections::BTreeMap, fmt::Debug};

use savanna_transaction::{Csn, Direction, KeyRange};

/// The rows of one tenant as they were at one commit, which moves forward. Memory is the one place so far.
pub trait Store: Debug + Send {
    /// The commit whose state this is.
    fn flushed(&self) -> Csn;

    /// The value of a key.
    fn get(&self, key: &[u8]) -> Option<&[u8]>;

    /// The keys of a range in order, with their values.
    fn scan<'a>(
        &'a self,
        range: &KeyRange,
        direction: Direction,
    ) -> Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>;

    /// Moves forward to `csn`: keys get these values, or go.
    fn apply(&mut self, csn: Csn, writes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>);
}

/// Rows in memory. They are there again after a restart because the log is never cut.
#[derive(Debug, Default)]
pub struct MemoryStore {
    flushed: Csn,
    rows: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

impl Store for MemoryStore {
    fn flushed(&self) -> Csn {
        self.flushed
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(key).map(|value| &**value)
    }

    fn scan<'a>(
        &'a self,
        range: &KeyRange,
        direction: Direction,
    ) -> Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        if range.is_empty() {
            return Box::new(std::iter::empty());
        }
        let end = range.end.as_deref().map_or(Unbounded, Excluded);
        let rows = self.rows.range::<[u8], _>((Included(range.start.as_slice()), end));
        let rows = rows.map(|(key, value)| (&**key, &**value));
        match direction {
            Direction::Ascending => Box::new(rows),
            Direction::Descending => Box::new(rows.rev()),
        }
    }

    fn apply(&mut self, csn: Csn, writes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
        for (key, value) in writes {
            match value {
                Some(value) => self.rows.insert(key.into(), value.into()),
                None => self.rows.remove(key),
            };
        }
        self.flushed = self.flushed.max(csn);
    }
}
