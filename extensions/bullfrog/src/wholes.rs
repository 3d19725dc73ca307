//! Pages that the background moves as wholes where rows move one by one otherwise. To mark each of the rows that nobody asks for would cost more than to copy
//! them, so it marks their page, by the name of a place at which no row is: a row has moved if it is marked, or its page is.
//!
//! The marks of a row and of its page have no key in common, so no unique index lets one of two transactions go on. Therefore each writes its mark first, and then
//! looks for those of others, also for such as are not committed: at least one of two sees the other. A sweep that sees a row in progress takes its mark
//! back, and the page's rows move one by one; it waits for nobody. Who moves a row and sees its page in progress waits for that. What either sees to be
//! committed it does not copy again.

use std::collections::BTreeMap;

use bullfrog_model::board::Xid;
use bullfrog_model::granule::{name_of_page, name_of_place, page_of_name};
use pgrx::pg_sys::{self, ItemPointerData, Oid};
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient};

use crate::errors::raise;
use crate::flaws::{self, Flaw};
use crate::mover;
use crate::places::place;
use crate::shared::wait_for_transaction;
use crate::statements::run;
use crate::truth::Index;
use crate::written::rows_of;

/// What moves pages of a source as wholes.
pub(crate) struct Wholes {
    source: i32,
    /// The old table, which nobody changes.
    table: Oid,
    /// Takes marks `$1` of this transaction back.
    unmark: OwnedPreparedStatement,
    /// What marks pages.
    marking: Option<Marking>,
}

struct Marking {
    /// Marks granules `$1`, pages with `$2` rows each; gives those that were not marked before.
    mark: OwnedPreparedStatement,
    /// Notes that `$2` rows moved with granules `$1`.
    count: OwnedPreparedStatement,
}

/// What a transaction takes on of some pages.
#[derive(Default)]
pub(crate) struct Taken {
    /// Where the rows lie that it has to copy.
    pub(crate) places: Vec<ItemPointerData>,
    /// Pages that are left, and who has a row of each in progress.
    pub(crate) left: Vec<(i64, Xid)>,
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
        let pages = "ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS p (granule, rows)";
        let mark = format!(
            "INSERT INTO bullfrog.moved (source, granule, tuples) SELECT {source}, p.granule, p.rows FROM {pages} \
             ON CONFLICT DO NOTHING RETURNING granule"
        );
        let count = format!(
            "UPDATE bullfrog.moved v SET tuples = p.rows FROM {pages} WHERE v.source = {source} AND v.granule = p.granule"
        );
        let unmark = format!("DELETE FROM bullfrog.moved v WHERE v.source = {source} AND v.granule = ANY ($1)");
        let marking = match marks {
            true => Some(Marking {
                mark: client.prepare_mut(mark.as_str(), &numbers)?.keep(),
                count: client.prepare_mut(count.as_str(), &numbers)?.keep(),
            }),
            false => None,
        };
        Ok(Self { source, table, unmark: client.prepare_mut(unmark.as_str(), &numbers[..1])?.keep(), marking })
    }

    /// Whether it may mark pages.
    pub(crate) fn marks(&self) -> bool {
        self.marking.is_some()
    }

    /// Marks those of these pages that nobody has marked, and of whose rows nobody has one in progress.
    pub(crate) fn take(&self, pages: &[i64]) -> Taken {
        let rows = self.rows_on(pages);
        let mut taken = Taken::default();
        let mut counts = BTreeMap::new();
        // SAFETY: a transaction is under way.
        let index = unsafe { Index::open() };
        for page in self.mark(&rows) {
            let moved = self.rows_moved(index, page);
            let rows = rows.get(&page).map_or(&[][..], Vec::as_slice);
            match moved {
                Err(owner) => taken.left.push((page, owner)),
                Ok(moved) => {
                    let before = taken.places.len();
                    let number = u32::try_from(page).unwrap_or(u32::MAX);
                    taken.places.extend(rows.iter().filter(|row| !moved.contains(row)).map(|row| place(number, *row)));
                    if !moved.is_empty() {
                        counts.insert(page, taken.places.len() - before);
                    }
                }
            }
        }
        self.unmark(taken.left.iter().map(|(page, _)| name_of_page(*page)).collect());
        self.count(&counts);
        taken
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
        // SAFETY: a variable of this process.
        if !mover::is_mover() && unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
            raise(
                PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
                "could not serialize access because rows were moved to their new table",
                "They are there now: try the transaction again.",
            );
        }
        let (gone, rest) = marked.into_iter().partition(|name| pages.binary_search(&page_of_name(*name)).is_ok());
        self.unmark(gone);
        rest
    }

    /// The rows on pages, by their numbers there.
    fn rows_on(&self, pages: &[i64]) -> BTreeMap<i64, Vec<u16>> {
        let mut rows = BTreeMap::new();
        // SAFETY: a table of the server's heap, read page by page as the server does; a page is not changed while it is locked.
        unsafe {
            let table = pg_sys::table_open(self.table, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            let main = pg_sys::ForkNumber::MAIN_FORKNUM;
            // A vacuum may have cut off pages without rows.
            let end = pg_sys::RelationGetNumberOfBlocksInFork(table, main);
            for page in pages {
                let number = u32::try_from(*page).unwrap_or(u32::MAX);
                let found: &mut Vec<u16> = rows.entry(*page).or_default();
                if number >= end {
                    continue;
                }
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
                        found.push(row);
                    }
                }
                pg_sys::UnlockReleaseBuffer(buffer);
            }
            pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        }
        rows
    }

    /// Marks pages; gives those that were not marked before.
    fn mark(&self, rows: &BTreeMap<i64, Vec<u16>>) -> Vec<i64> {
        let names: Vec<i64> = rows.keys().copied().map(name_of_page).collect();
        let counts: Vec<i32> = rows.values().map(|rows| rows.len() as i32).collect();
        run(|client| {
            let mut won = Vec::with_capacity(names.len());
            if let Some(marking) = &self.marking {
                for row in client.update(&marking.mark, None, &[names.into(), counts.into()])? {
                    won.extend(row.get::<i64>(1)?.map(page_of_name));
                }
            }
            won.sort_unstable();
            Ok(won)
        })
    }

    /// Notes how many rows moved with pages of which others had moved before.
    fn count(&self, counts: &BTreeMap<i64, usize>) {
        if let Some(marking) = self.marking.as_ref().filter(|_| !counts.is_empty()) {
            let names: Vec<i64> = counts.keys().copied().map(name_of_page).collect();
            let counts: Vec<i32> = counts.values().map(|count| *count as i32).collect();
            run(|client| client.update(&marking.count, None, &[names.into(), counts.into()]).map(|_| ()));
        }
    }

    fn unmark(&self, names: Vec<i64>) {
        if !names.is_empty() {
            run(|client| client.update(&self.unmark, None, &[names.into()]).map(|_| ()));
        }
    }

    /// Which rows of a page were moved one by one; or who has one of them in progress.
    fn rows_moved(&self, index: Index, page: i64) -> Result<Vec<u16>, Xid> {
        let mut rows = Vec::new();
        let mut in_progress = None;
        if !flaws::is_set(Flaw::RowsUnseen) {
            let number = u32::try_from(page).unwrap_or(u32::MAX);
            // SAFETY: a transaction is under way.
            unsafe {
                index.each_now(
                    self.source,
                    name_of_place(number, 1),
                    name_of_place(number, u16::MAX),
                    |name, owner| {
                        rows.push((name & 0xffff) as u16);
                        in_progress = in_progress.or(owner);
                    },
                );
            }
        }
        in_progress.map_or(Ok(rows), Err)
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
