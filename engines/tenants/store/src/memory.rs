//! Rows in memory, for tests and for what need not survive.

use std::collections::BTreeMap;

use bytes::Bytes;
use savanna_tenants_segments::PageId;
use savanna_tenants_values::error::Result;
use savanna_transaction::{Csn, Direction, KeyRange};

use super::{Reading, Rows, Store};

/// Rows in memory. They are there again after a restart if the log has all of them.
#[derive(Debug, Default)]
pub struct MemoryStore {
    flushed: Csn,
    rows: BTreeMap<Box<[u8]>, Bytes>,
}

struct MemoryRows<'a> {
    rows: Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>,
    at: (&'a [u8], &'a [u8]),
}

impl Rows for MemoryRows<'_> {
    fn step(&mut self) -> Result<bool> {
        let next = self.rows.next();
        self.at = next.unwrap_or_default();
        Ok(next.is_some())
    }

    fn key(&self) -> &[u8] {
        self.at.0
    }

    fn value(&self) -> &[u8] {
        self.at.1
    }

    fn passed(&self) -> usize {
        0
    }
}

impl Store for MemoryStore {
    fn flushed(&self) -> Csn {
        self.flushed
    }

    fn get(&self, key: &[u8], _: &mut Reading) -> Result<Option<Bytes>> {
        Ok(self.rows.get(key).cloned())
    }

    fn scan<'a>(&'a self, range: &KeyRange, direction: Direction, _: &'a mut Reading) -> Box<dyn Rows + 'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let end = range.end.as_deref().map_or(Unbounded, Excluded);
        // The end of an empty range may be before its start.
        let rows = (!range.is_empty()).then(|| self.rows.range::<[u8], _>((Included(range.start.as_slice()), end)));
        let rows = rows.into_iter().flatten().map(|(key, value)| (&**key, &**value));
        let rows: Box<dyn Iterator<Item = (&[u8], &[u8])>> = match direction {
            Direction::Ascending => Box::new(rows),
            Direction::Descending => Box::new(rows.rev()),
        };
        Box::new(MemoryRows { rows, at: (&[], &[]) })
    }

    fn apply(&mut self, _: Csn, writes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>) {
        for (key, value) in writes {
            match value {
                Some(value) => self.rows.insert(key.into(), Bytes::copy_from_slice(value)),
                None => self.rows.remove(key),
            };
        }
    }

    fn seal(&mut self, csn: Csn) -> bool {
        self.flushed = self.flushed.max(csn);
        false
    }

    fn has_rows_of_others(&self) -> bool {
        false
    }

    fn page_of(&self, _: &[u8]) -> Option<PageId> {
        None
    }

    fn may_change_structure(&self, _: &mut dyn Iterator<Item = &[u8]>) -> bool {
        false
    }
}
