//! Rows of temporary tables. They are one session's own: nobody else reads them, so that there is one version of each row, changed in
//! place, and a list of what was there before for when the transaction does not come to its end. They are in no log and no store, and
//! go with the session.

use std::{
    collections::{BTreeMap, HashMap},
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use savanna_tenants_catalog::{
    Catalog, DOOMED, FIRST_RELATION, OBJECTS, ON_COMMIT, OnCommit, Search, TEMPORARY, name_key, row, sequence_key,
    table_key,
};
use savanna_tenants_encoding::{KeyReader, Order};
use savanna_tenants_values::error::{Result, SqlError};
use savanna_transaction::{Direction, KeyRange};
use serde::{Deserialize, Serialize};

use super::{Database, SessionId, Visit};

/// Bytes of one session's temporary rows.
const BYTES_MAX: usize = 256 << 20;

/// Whether a key is one of a temporary table, or of its part of the catalog.
pub fn is_temporary(key: &[u8]) -> bool {
    key.first().is_some_and(|first| first & 0x80 != 0)
}

/// A key, with what was there before it was written.
type Before = (Vec<u8>, Option<Box<[u8]>>);

/// The temporary rows of a session.
#[derive(Debug, Default)]
pub(crate) struct Temporary {
    rows: BTreeMap<Vec<u8>, Box<[u8]>>,
    /// What the transaction has written, each with what was there before, the oldest first.
    undo: Vec<Before>,
    bytes: usize,
    next_numbers: HashMap<u32, i64>,
    /// Counts changes of its part of the catalog.
    version: u64,
    /// The last catalog that was made with it, and of what.
    catalog: Option<(Arc<Catalog>, Search, u64, Arc<Catalog>)>,
}

/// The temporary rows of a session that goes on at another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemporaryImage {
    rows: BTreeMap<Vec<u8>, Box<[u8]>>,
    undo: Vec<Before>,
    next_numbers: BTreeMap<u32, i64>,
}

impl Temporary {
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(key).map(|value| &**value)
    }

    pub(super) fn walk(
        &self,
        range: &KeyRange,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = self.rows.range::<[u8], _>((Bound::Included(range.start.as_slice()), end));
        loop {
            let next = match direction {
                Direction::Ascending => rows.next(),
                Direction::Descending => rows.next_back(),
            };
            let Some((key, value)) = next else { return Ok(None) };
            if visit(key, value)? == ControlFlow::Break(()) {
                return Ok(Some(key.clone()));
            }
        }
    }

    /// Writes a key so that the transaction's end without commit takes it back.
    pub(super) fn write(&mut self, key: &[u8], value: Option<Box<[u8]>>) {
        let before = self.put(key, value);
        self.undo.push((key.to_vec(), before));
    }

    /// Writes a key for good.
    pub(super) fn put(&mut self, key: &[u8], value: Option<Box<[u8]>>) -> Option<Box<[u8]>> {
        let size = |value: &[u8]| key.len() + value.len();
        self.version += u64::from(key.starts_with(&(OBJECTS | TEMPORARY).to_be_bytes()));
        self.bytes += value.as_deref().map_or(0, size);
        let before = match value {
            Some(value) => self.rows.insert(key.to_vec(), value),
            None => self.rows.remove(key),
        };
        self.bytes -= before.as_deref().map_or(0, size);
        before
    }

    /// A number for a new row of a table.
    pub(super) fn new_row_number(&mut self, relation: u32) -> i64 {
        // No number of a table is given twice, so that a new one is empty.
        let next = self.next_numbers.entry(relation).or_insert(0);
        *next += 1;
        *next
    }

    fn undo_to(&mut self, length: usize) {
        while self.undo.len() > length
            && let Some((key, before)) = self.undo.pop()
        {
            self.put(&key, before);
        }
    }

    fn keys(&self, relation: u32) -> Vec<Vec<u8>> {
        let prefix = relation.to_be_bytes();
        let keys = self.rows.range(prefix.to_vec()..).map(|(key, _)| key);
        keys.take_while(|key| key.starts_with(&prefix)).cloned().collect()
    }

    /// The keys of a table of the catalog, with the numbers that they are of.
    fn marks(&self, table: u32) -> Result<Vec<(u32, Vec<u8>)>> {
        let number = |key: &[u8]| KeyReader::new(key)?.int64(Order::Ascending);
        let mark = |key: Vec<u8>| Ok((number(&key)?.unwrap_or_default() as u32, key));
        self.keys(table | TEMPORARY).into_iter().map(mark).collect()
    }

    fn remove_all(&mut self, relation: u32) {
        for key in self.keys(relation) {
            self.put(&key, None);
        }
    }

    fn commit(&mut self) -> Result<()> {
        self.undo.clear();
        for (relation, mark) in self.marks(DOOMED)? {
            self.remove_all(relation);
            self.put(&mark, None);
        }
        let marks = self.marks(ON_COMMIT)?;
        if marks.is_empty() {
            return Ok(());
        }
        let catalog = self.own_catalog()?;
        for (id, mark) in marks {
            let Some(table) = catalog.by_id(id) else {
                self.put(&mark, None);
                continue;
            };
            table.relations().for_each(|relation| self.remove_all(relation));
            if OnCommit::of_mark(self.get(&mark)) == OnCommit::Drop {
                self.put(&mark, None);
                self.drop_table(&catalog, id);
            }
        }
        Ok(())
    }

    /// Drops a table with what depends on it.
    fn drop_table(&mut self, catalog: &Catalog, id: u32) {
        if let Some(table) = catalog.by_id(id) {
            table.names().for_each(|name| _ = self.put(&name_key(TEMPORARY, name), None));
        }
        self.put(&table_key(id), None);
        for sequence in catalog.sequences_of(id) {
            self.put(&name_key(TEMPORARY, &sequence.name), None);
            self.put(&sequence_key(sequence.state), None);
            self.put(&table_key(sequence.id), None);
        }
        for view in catalog.views().filter(|view| view.reads(id, None)) {
            self.put(&name_key(TEMPORARY, &view.name), None);
            self.drop_table(catalog, view.id);
        }
    }

    /// The temporary objects alone.
    fn own_catalog(&self) -> Result<Catalog> {
        let mut catalog = Catalog::default();
        self.add_to(&mut catalog)?;
        Ok(catalog)
    }

    fn add_to(&self, catalog: &mut Catalog) -> Result<()> {
        self.walk(&row::whole(OBJECTS | TEMPORARY), Direction::Ascending, &mut |key, value| {
            catalog.apply(key, Some(value))?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }
}

impl Database {
    /// Says whose temporary rows statements see from now on.
    pub fn set_session(&mut self, id: SessionId) {
        self.session = id;
    }

    /// The temporary rows of the session whose statement runs.
    pub(super) fn temporary(&mut self) -> &mut Temporary {
        self.temporaries.entry(self.session).or_default()
    }

    /// Refuses more temporary rows than a session may have.
    pub fn may_write_temporary(&self, bytes: usize) -> Result<()> {
        let there = self.temporaries.get(&self.session).map_or(0, |temporary| temporary.bytes);
        if there + bytes <= BYTES_MAX {
            return Ok(());
        }
        let message = format!("the temporary tables of a session take more than {} MiB", BYTES_MAX >> 20);
        Err(SqlError::new("53200", message).hint("Drop some of them, or use a table that is not temporary."))
    }

    /// Whether a number was given to a temporary table or index.
    #[must_use]
    pub const fn has_numbered_temporary(&self) -> bool {
        self.next_temporary > FIRST_RELATION
    }

    /// A number for a new temporary table or index. No session is given another's.
    pub fn new_temporary_relation(&mut self) -> Result<u32> {
        self.next_temporary += 1;
        match self.next_temporary & TEMPORARY {
            0 => Ok(self.next_temporary | TEMPORARY),
            _ => Err(SqlError::new("54000", "there were too many temporary tables since the server began")),
        }
    }

    /// What a session's transaction has written so far, to be rolled back to.
    pub fn temporary_savepoint(&self, id: SessionId) -> usize {
        self.temporaries.get(&id).map_or(0, |temporary| temporary.undo.len())
    }

    /// Takes back what a session's transaction has written since; 0 for all of it.
    pub fn roll_back_temporary(&mut self, id: SessionId, to: usize) {
        if let Some(temporary) = self.temporaries.get_mut(&id) {
            temporary.undo_to(to);
        }
    }

    /// Keeps what a session's transaction has written, and does what its tables are to do then.
    pub fn commit_temporary(&mut self, id: SessionId) -> Result<()> {
        self.temporaries.get_mut(&id).map_or(Ok(()), Temporary::commit)
    }

    /// Removes all temporary tables of a session.
    pub fn drop_temporary(&mut self, id: SessionId) {
        self.temporaries.remove(&id);
    }

    /// Whether a session has temporary tables or had some.
    pub fn has_temporary(&self, id: SessionId) -> bool {
        !self.temporaries.is_empty() && self.temporaries.contains_key(&id)
    }

    /// About how many bytes a session's temporary rows are, with those that its transaction may want back.
    pub fn temporary_bytes(&self, id: SessionId) -> usize {
        let before = |(key, value): &Before| key.len() + value.as_ref().map_or(0, |value| value.len());
        self.temporaries
            .get(&id)
            .map_or(0, |temporary| temporary.bytes + temporary.undo.iter().map(before).sum::<usize>())
    }

    /// Takes a session's temporary rows out, for where it goes on.
    pub fn take_temporary(&mut self, id: SessionId) -> Option<TemporaryImage> {
        let Temporary { rows, undo, next_numbers, .. } = self.temporaries.remove(&id)?;
        Some(TemporaryImage { rows, undo, next_numbers: next_numbers.into_iter().collect() })
    }

    /// A session has its temporary rows again.
    pub fn put_temporary(&mut self, id: SessionId, image: &TemporaryImage) {
        let mut temporary = Temporary::default();
        for (key, value) in &image.rows {
            temporary.put(key, Some(value.clone()));
        }
        temporary.undo = image.undo.clone();
        temporary.next_numbers = image.next_numbers.iter().map(|(relation, next)| (*relation, *next)).collect();
        // No other session is given their numbers.
        let relations = image.rows.keys().filter_map(|key| Some(u32::from_be_bytes(*key.first_chunk()?) & !TEMPORARY));
        self.next_temporary = relations.fold(self.next_temporary, u32::max);
        self.temporaries.insert(id, temporary);
    }

    /// A catalog with a session's temporary objects, for who looks into these schemas.
    pub fn with_temporary(&mut self, id: SessionId, catalog: &Arc<Catalog>, search: Search) -> Result<Arc<Catalog>> {
        let temporary = self.temporaries.entry(id).or_default();
        if let Some((from, searched, version, made)) = &temporary.catalog
            && Arc::ptr_eq(from, catalog)
            && (searched, *version) == (&search, temporary.version)
        {
            return Ok(Arc::clone(made));
        }
        let mut made = catalog.searched(search.clone());
        temporary.add_to(&mut made)?;
        let made = Arc::new(made);
        temporary.catalog = Some((Arc::clone(catalog), search, temporary.version, Arc::clone(&made)));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(temporary: &Temporary) -> Vec<(u8, u8)> {
        temporary.rows.iter().map(|(key, value)| (key[0], value[0])).collect()
    }

    #[test]
    fn what_is_rolled_back_was_never_there() {
        let mut temporary = Temporary::default();
        let write = |temporary: &mut Temporary, key: u8, value: u8| {
            temporary.write(&[key], (value > 0).then(|| Box::from([value])));
        };
        write(&mut temporary, 1, 1);
        write(&mut temporary, 2, 1);
        temporary.commit().unwrap();
        write(&mut temporary, 1, 2);
        let savepoint = temporary.undo.len();
        write(&mut temporary, 1, 0);
        write(&mut temporary, 3, 3);
        write(&mut temporary, 1, 4);
        assert_eq!(shown(&temporary), [(1, 4), (2, 1), (3, 3)]);
        temporary.undo_to(savepoint);
        assert_eq!(shown(&temporary), [(1, 2), (2, 1)]);
        temporary.undo_to(0);
        assert_eq!((shown(&temporary), temporary.bytes), (vec![(1, 1), (2, 1)], 4));
    }
}
