//! Pages that the background moves as wholes where rows move one by one otherwise. To mark each of the rows that nobody asks for would cost more than to copy
//! them, so it marks their page, by the name of a place at which no row is: a row has moved if it is marked, or its page is.
//!
//! The marks of a row and of its page have no key in common, so no unique index lets one of two transactions go on. Therefore each writes its mark first, and then
//! looks for those of others, also for such as are not committed: at least one of two sees the other. A sweep that sees a row in progress takes its mark
//! back, and the page's other rows move one by one; it waits for nobody who moves rows. Who moves a row and sees its page in progress waits for that. What either
//! sees to be committed it does not copy again. Marks are never updated: who looks for one could find neither the old version nor the new one.

use std::collections::BTreeMap;

use bullfrog_model::board::Xid;
use bullfrog_model::granule::{name_of_page, name_of_place, page_of_name};
use pgrx::pg_sys::{self, ItemPointerData, Oid};
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient};

use crate::flaws::{self, Flaw};
use crate::mover;
use crate::places::place;
use crate::rights::with_all_rights;
use crate::shared::wait_for_transaction;
use crate::snapshots::refuse_moved_since;
use crate::statements::run;
use crate::truth::Index;
use crate::written::rows_of;

/// A transaction that has so many rows to move takes on no further page: who needs one of them waits for all.
const ENOUGH: usize = 256;

/// What moves pages of a source as wholes.
pub(crate) struct Wholes {
    source: i32,
    /// The old table, which nobody changes.
    table: Oid,
    /// Takes marks `$1` of this transaction back.
    unmark: OwnedPreparedStatement,
    /// Marks granules `$1`, pages of which `$2` rows move each; gives those that were not marked before. None: nobody may.
    mark: Option<OwnedPreparedStatement>,
}

/// What a transaction takes on of some pages.
#[derive(Default)]
pub(crate) struct Chosen {
    /// Where the rows lie that are to be copied.
    pub(crate) places: Vec<ItemPointerData>,
    /// Pages that are left: rows of them are in progress.
    pub(crate) left: Vec<i64>,
    /// The first page that was not looked at, because there were rows enough; none if all were.
    pub(crate) rest: Option<i64>,
}

impl Wholes {
    /// Prepares the statements for a source. `table` is closed. `marks`: it may mark pages, not only see those of others. (The script of version 0.1.0 has no column for that,
    /// but another session may know already that it was updated.)
    pub(crate) fn prepare(
        client: &mut SpiClient<'_>,
        source: i32,
        table: Oid,
        marks: bool,
    ) -> Result<Self, spi::Error> {
        let numbers = [PgOid::from(pg_sys::INT8ARRAYOID), PgOid::from(pg_sys::INT4ARRAYOID)];
        let mark = format!(
            "INSERT INTO bullfrog.moved (source, granule, tuples) SELECT {source}, p.granule, p.rows \
             FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS p (granule, rows) ON CONFLICT DO NOTHING RETURNING granule"
        );
        let unmark = format!("DELETE FROM bullfrog.moved v WHERE v.source = {source} AND v.granule = ANY ($1)");
        let mark = match marks {
            true => Some(client.prepare_mut(mark.as_str(), &numbers)?.keep()),
            false => None,
        };
        Ok(Self { source, table, unmark: client.prepare_mut(unmark.as_str(), &numbers[..1])?.keep(), mark })
    }

    /// Whether it may mark pages.
    pub(crate) fn marks(&self) -> bool {
        self.mark.is_some()
    }

    /// Marks those of these pages that nobody has marked, and of whose rows nobody has one in progress: the first ones, until they have rows enough.
    pub(crate) fn take(&self, pages: &[i64]) -> Chosen {
        let mut taken = Chosen::default();
        let mut rows = BTreeMap::new();
        let mut count = 0;
        // SAFETY: a transaction is under way.
        let index = unsafe { Index::open() };
        for page in pages {
            if count >= ENOUGH {
                taken.rest = Some(*page);
                break;
            }
            // Before it is marked: else who needs one of its rows waits for this transaction.
            let (moved, in_progress) = self.rows_moved(index, *page);
            if in_progress.is_empty() {
                let found = self.rows_on(*page);
                let left: Vec<u16> = found.into_iter().filter(|row| !moved.contains(row)).collect();
                count += left.len();
                rows.insert(*page, (moved.len(), left));
            } else {
                taken.left.push(*page);
            }
        }
        let mut given_back = Vec::new();
        for page in self.mark(&rows) {
            let (before, left) = &rows[&page];
            let (moved, in_progress) = self.rows_moved(index, page);
            if in_progress.is_empty() && moved.len() == *before {
                let number = u32::try_from(page).unwrap_or(u32::MAX);
                taken.places.extend(left.iter().map(|row| place(number, *row)));
            } else {
                given_back.push(name_of_page(page));
                taken.left.push(page);
            }
        }
        self.unmark(given_back);
        taken.left.sort_unstable();
        taken
    }

    /// Of rows those that nobody has in progress; and the others, each with who has it.
    pub(crate) fn free(&self, names: &[i64]) -> (Vec<i64>, Vec<(i64, Xid)>) {
        // SAFETY: a transaction is under way.
        let index = unsafe { Index::open() };
        let mut pages: Vec<i64> = names.iter().map(|name| page_of_name(*name)).collect();
        pages.dedup();
        let others: Vec<(i64, Xid)> = pages.into_iter().flat_map(|page| self.rows_moved(index, page).1).collect();
        let is_free = |name: &i64| others.iter().all(|(other, _)| other != name);
        (names.iter().copied().filter(is_free).collect(), others)
    }

    /// Leaves out those of marked rows whose page was moved as a whole, and waits for who is about to do that. To be called when this transaction has
    /// marked them.
    pub(crate) fn leave_out(&self, marked: Vec<i64>) -> Vec<i64> {
        if flaws::is_set(Flaw::PagesUnseen) {
            return marked;
        }
        // SAFETY: a transaction is under way.
        let index = unsafe { Index::open() };
        let mut pages: Vec<i64> = marked.iter().map(|name| page_of_name(*name)).collect();
        pages.dedup();
        pages.retain(|page| self.is_moved(index, *page));
        if pages.is_empty() {
            return marked;
        }
        if !mover::is_mover() {
            refuse_moved_since();
        }
        let (gone, rest) = marked.into_iter().partition(|name| pages.binary_search(&page_of_name(*name)).is_ok());
        self.unmark(gone);
        rest
    }

    /// The rows on a page, by their numbers there.
    fn rows_on(&self, page: i64) -> Vec<u16> {
        let mut rows = Vec::new();
        let number = u32::try_from(page).unwrap_or(u32::MAX);
        // SAFETY: a table of the server's heap, read as the server does; a page is not changed while it is locked.
        unsafe {
            let table = pg_sys::table_open(self.table, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            let main = pg_sys::ForkNumber::MAIN_FORKNUM;
            // A vacuum may have cut off pages without rows.
            if number < pg_sys::RelationGetNumberOfBlocksInFork(table, main) {
                let mode = pg_sys::ReadBufferMode::RBM_NORMAL;
                let buffer = pg_sys::ReadBufferExtended(table, main, number, mode, std::ptr::null_mut());
                pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
                for (row, header) in rows_of(pg_sys::BufferGetPage(buffer)) {
                    let row = u16::try_from(row).unwrap_or(u16::MAX);
                    let mut tuple = pg_sys::HeapTupleData {
                        t_self: place(number, row),
                        t_tableOid: self.table,
                        t_data: header.cast_mut(),
                        ..Default::default()
                    };
                    if pg_sys::HeapTupleSatisfiesVisibility(&raw mut tuple, pg_sys::GetActiveSnapshot(), buffer) {
                        rows.push(row);
                    }
                }
                pg_sys::UnlockReleaseBuffer(buffer);
            }
            pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        }
        rows
    }

    /// Marks pages; gives those that were not marked before.
    fn mark(&self, rows: &BTreeMap<i64, (usize, Vec<u16>)>) -> Vec<i64> {
        let Some(mark) = self.mark.as_ref().filter(|_| !rows.is_empty()) else {
            return Vec::new();
        };
        let names: Vec<i64> = rows.keys().copied().map(name_of_page).collect();
        let counts: Vec<i32> = rows.values().map(|(_, left)| left.len() as i32).collect();
        run(|client| {
            let mut won = Vec::with_capacity(names.len());
            for row in client.update(mark, None, &[names.into(), counts.into()])? {
                won.extend(row.get::<i64>(1)?.map(page_of_name));
            }
            won.sort_unstable();
            Ok(won)
        })
    }

    fn unmark(&self, names: Vec<i64>) {
        if !names.is_empty() {
            with_all_rights(|| run(|client| client.update(&self.unmark, None, &[names.into()]).map(|_| ())));
        }
    }

    /// Which rows of a page were moved one by one; and which are in progress, by their names, and who has them.
    fn rows_moved(&self, index: Index, page: i64) -> (Vec<u16>, Vec<(i64, Xid)>) {
        let (mut rows, mut in_progress) = (Vec::new(), Vec::new());
        if !flaws::is_set(Flaw::RowsUnseen) {
            let number = u32::try_from(page).unwrap_or(u32::MAX);
            let (first, last) = (name_of_place(number, 1), name_of_place(number, u16::MAX));
            // SAFETY: a transaction is under way.
            unsafe {
                index.each_now(self.source, first, last, |name, owner| match owner {
                    Some(owner) => in_progress.push((name, owner)),
                    None => rows.push((name & 0xffff) as u16),
                });
            }
        }
        (rows, in_progress)
    }

    /// Whether a page was moved as a whole. Waits for who is about to do that.
    fn is_moved(&self, index: Index, page: i64) -> bool {
        loop {
            let mut found = None;
            let name = name_of_page(page);
            // SAFETY: a transaction is under way.
            unsafe { index.each_now(self.source, name, name, |_, owner| found = Some(owner)) };
            match found {
                None => return false,
                Some(None) => return true,
                Some(Some(owner)) => wait_for_transaction(owner),
            }
        }
    }
}
