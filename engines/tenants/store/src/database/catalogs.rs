//! The catalog, which is rows of the database's own, decoded for each snapshot that may still need it.

use std::{ops::ControlFlow, sync::Arc};

use savanna_tenants_catalog::{Catalog, FIRST_RELATION, OBJECTS, SEQUENCES, row};
use savanna_tenants_encoding::{KeyReader, Order};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::{Csn, Direction, Isolation, Seen, TxnId};

use super::Database;
use crate::Want;

impl Database {
    /// Reads the catalog. If a block is wanted for that, give it to [`chores`](Self::chores) and ask again.
    ///
    /// # Errors
    /// XX001 if the catalog cannot be read.
    pub fn load(&mut self) -> Result<Option<Want>> {
        self.chore(Self::read_whole_catalog).map(|loaded| loaded.err())
    }

    fn read_whole_catalog(&mut self) -> Result<()> {
        let reader = self.begin(Isolation::ReadCommitted);
        let at = self.statement(reader)?;
        let read = self.read_catalog_below(reader).and_then(|catalog| {
            // A number is not given again while there are keys with it, though no table has them any more; nor one under
            // which a sequence is kept that was never committed.
            let taken = [self.doomed_relations(reader)?, self.numbered(reader, SEQUENCES)?].concat();
            Ok((catalog, taken))
        });
        self.abort(reader);
        let (catalog, taken) = read?;
        let last = catalog.numbers().chain(taken.into_iter().map(|(number, _)| number)).max();
        self.next_relation = last.map_or(FIRST_RELATION, |last| last.saturating_add(1));
        self.catalogs.push_back((at, Arc::new(catalog)));
        Ok(())
    }

    /// The catalog that a snapshot sees.
    ///
    /// # Errors
    /// XX000 if it was forgotten, which cannot be.
    pub fn catalog(&self, snapshot: Csn) -> Result<Arc<Catalog>> {
        let found = self.catalogs.iter().rev().find(|(csn, _)| *csn <= snapshot);
        let (_, catalog) =
            found.ok_or_else(|| SqlError::internal(format_args!("no catalog is as old as {snapshot}")))?;
        Ok(Arc::clone(catalog))
    }

    /// The catalog after the last commit.
    pub fn newest_catalog(&self) -> Arc<Catalog> {
        self.catalogs.back().map(|(_, catalog)| Arc::clone(catalog)).unwrap_or_default()
    }

    /// The catalog as a transaction that changes it sees it. All of it is in memory.
    pub fn read_catalog(&mut self, txn: TxnId, snapshot: Csn) -> Result<Catalog> {
        let mut catalog = Catalog::clone(&*self.catalog(snapshot)?);
        for (key, seen) in self.transactions.peek(txn, &row::whole(OBJECTS), Direction::Ascending)? {
            match seen {
                Seen::Here(value) => catalog.apply(key, Some(value))?,
                Seen::Gone => catalog.apply(key, None)?,
                Seen::Below => {}
            }
        }
        self.transactions.read_range(txn, row::whole(OBJECTS))?;
        Ok(catalog)
    }

    /// The catalog as it is stored.
    fn read_catalog_below(&mut self, txn: TxnId) -> Result<Catalog> {
        let mut catalog = Catalog::default();
        self.scan(txn, &row::whole(OBJECTS), Direction::Ascending, &mut |key, value| {
            catalog.apply(key, Some(value))?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(catalog)
    }

    pub(super) fn changed_catalog<'a>(
        &self,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a Box<[u8]>>)>,
    ) -> Result<Option<Catalog>> {
        let prefix = OBJECTS.to_be_bytes();
        let mut changed = None;
        for (key, value) in writes.filter(|(key, _)| key.starts_with(&prefix)) {
            let newest = || self.catalogs.back().map(|(_, catalog)| Catalog::clone(catalog)).unwrap_or_default();
            changed.get_or_insert_with(newest).apply(key, value.map(|value| &**value))?;
        }
        Ok(changed)
    }

    pub(super) fn push_catalog(&mut self, csn: Csn, catalog: Catalog) {
        self.catalogs.push_back((csn, Arc::new(catalog)));
        let needed = self.transactions.horizon();
        while self.catalogs.get(1).is_some_and(|(csn, _)| *csn <= needed) {
            self.catalogs.pop_front();
        }
    }

    /// A number for a new table or index. One that is not used is lost.
    pub fn new_relation(&mut self) -> Result<u32> {
        let relation = self.next_relation;
        let more = || SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "there were too many tables in this database");
        self.next_relation = relation.checked_add(1).ok_or_else(more)?;
        Ok(relation)
    }

    /// The keys of a table of the catalog, with the numbers that they are of.
    pub(super) fn numbered(&mut self, txn: TxnId, relation: u32) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut found = Vec::new();
        self.scan(txn, &row::whole(relation), Direction::Ascending, &mut |key, _| {
            let mut reader = KeyReader::new(key)?;
            found.push((reader.int64(Order::Ascending)?.unwrap_or_default() as u32, key.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}
