//! The catalog, which is rows of the database's own, decoded for each snapshot that may still need it.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use savanna_tenants_catalog::{Catalog, FIRST_RELATION, OBJECTS, SEQUENCES, row};
use savanna_tenants_encoding::{KeyReader, Order};
use savanna_tenants_values::error::{Result, SqlError, state};
use savanna_transaction::{Csn, Direction, Isolation, Scan, Seen, TxnId};

use super::Database;
use crate::Want;

/// The catalog of a transaction that changes it, kept from one of its statements to the next: made anew for each, a migration of
/// thousands of tables would take minutes.
#[derive(Debug)]
pub(super) struct OwnCatalog {
    txn: TxnId,
    /// What its changes are applied to.
    base: Arc<Catalog>,
    /// The rows that were applied.
    applied: HashMap<Vec<u8>, Option<Box<[u8]>>>,
    catalog: Arc<Catalog>,
}

impl OwnCatalog {
    fn new(txn: TxnId, base: &Arc<Catalog>) -> Self {
        Self { txn, base: Arc::clone(base), applied: HashMap::new(), catalog: Arc::clone(base) }
    }

    /// Applies what the rows have that it has not. `false` if a row is gone that was applied: a savepoint was rolled back.
    fn follow(&mut self, rows: Scan<'_, Box<[u8]>>) -> Result<bool> {
        let mut met = 0;
        for (key, seen) in rows {
            let value = match seen {
                Seen::Here(value) => Some(value),
                Seen::Gone => None,
                Seen::Below => continue,
            };
            met += 1;
            if self.applied.get(key).is_some_and(|applied| applied.as_ref() == value) {
                continue;
            }
            Arc::make_mut(&mut self.catalog).apply(key, value.map(|value| &**value))?;
            self.applied.insert(key.to_vec(), value.cloned());
        }
        Ok(met == self.applied.len())
    }
}

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
    ///
    /// # Errors
    /// XX000 if that cannot be read.
    pub fn read_catalog(&mut self, txn: TxnId, snapshot: Csn) -> Result<Arc<Catalog>> {
        let base = self.catalog(snapshot)?;
        let mut own = match self.own_catalog.take() {
            Some(own) if own.txn == txn && Arc::ptr_eq(&own.base, &base) => own,
            _ => OwnCatalog::new(txn, &base),
        };
        if !own.follow(self.transactions.peek(txn, &row::whole(OBJECTS), Direction::Ascending)?)? {
            own = OwnCatalog::new(txn, &base);
            own.follow(self.transactions.peek(txn, &row::whole(OBJECTS), Direction::Ascending)?)?;
        }
        self.transactions.read_range(txn, row::whole(OBJECTS))?;
        let catalog = Arc::clone(&own.catalog);
        self.own_catalog = Some(own);
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

    /// A transaction ends, and what was kept for it.
    pub(super) fn forget_own_catalog(&mut self, txn: TxnId) {
        self.own_catalog.take_if(|own| own.txn == txn);
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
