//! The truth, row by row: whether a granule was moved, as the snapshot of the asking statement sees it. This is a condition on the old
//! table's rows, not a join with `bullfrog.moved`: the planner has less to plan and nothing to turn around, and each row costs one look
//! into an index at most. Rows come page by page mostly, so what was found out about a page is remembered until the next one.

use std::cell::Cell;

use bullfrog_model::board::Xid;
use bullfrog_model::granule::name_of_place;
use pgrx::itemptr::item_pointer_get_both;
use pgrx::pg_sys::{self, Datum, ItemPointerData, Oid};
use pgrx::prelude::*;

use crate::flaws::{self, Flaw};
use crate::plain::Writing;
use crate::registry::own_table;
use crate::shared::wait_for_transaction;
use crate::snapshots::refuse_moved_since;
use crate::versions::{local_transaction, primary_key};

/// Rows that a page of the largest size has at most, rounded up.
const ROWS: usize = 2048;
/// So many marks are passed on the way to another before it is looked up by itself.
const FEW: usize = 4;

/// Whether the page of a row was moved.
#[pg_extern(sql = false, stable, strict, parallel_safe)]
fn is_page_moved(source: i32, row: ItemPointerData, call: pg_sys::FunctionCallInfo) -> bool {
    let (page, _) = item_pointer_get_both(row);
    // SAFETY: a call by the server; the memory lives as long as the caller's expression.
    unsafe {
        let memory = Memory::of(call);
        if !memory.is_about(source, page) {
            memory.begin(source, page);
            let is_moved = memory.index().has(source, i64::from(page));
            memory.set(0, is_moved);
        }
        memory.get(0)
    }
}

/// Whether a row, or the group that begins with it, was moved: it is marked, or its page is ([`crate::wholes`]).
#[pg_extern(sql = false, stable, strict, parallel_safe)]
fn is_row_or_page_moved(source: i32, row: ItemPointerData, call: pg_sys::FunctionCallInfo) -> bool {
    // SAFETY: a call by the server.
    unsafe { is_place_moved_in(source, row, call) }
}

/// The same for the script of version 0.1.0, until it is updated. A library of that version has no other: it knows of no pages, and is to refuse an answer where there may
/// be such.
#[pg_extern(sql = false, stable, strict, parallel_safe)]
fn is_place_moved(source: i32, row: ItemPointerData, call: pg_sys::FunctionCallInfo) -> bool {
    // SAFETY: a call by the server.
    unsafe { is_place_moved_in(source, row, call) }
}

unsafe fn is_place_moved_in(source: i32, row: ItemPointerData, call: pg_sys::FunctionCallInfo) -> bool {
    let (page, number) = item_pointer_get_both(row);
    // SAFETY: as above.
    unsafe {
        let memory = Memory::of(call);
        if usize::from(number) >= ROWS || !memory.is_about(source, page) {
            memory.begin(source, page);
            let (is_whole, is_moved) = memory.index().has_either(source, page, number);
            memory.set(0, is_whole);
            memory.is_whole = is_whole;
            return is_whole || is_moved;
        }
        if !memory.is_whole {
            // More than one row of this page is asked for.
            memory.is_whole = true;
            let index = memory.index();
            index.each(source, name_of_place(page, 1), name_of_place(page, u16::MAX), |name| {
                memory.set((name & 0xffff) as usize, true);
                true
            });
        }
        memory.get(0) || memory.get(usize::from(number))
    }
}

/// Whether a row with this number was written by the current transaction, or a part of it.
#[pg_extern(sql = false, stable, strict)]
fn is_own(transaction: pg_sys::TransactionId) -> bool {
    // SAFETY: a look at the state of this process.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(transaction) }
}

/// What an expression of a statement remembers between two rows.
struct Memory {
    index: Index,
    /// The part of the transaction that has locked it.
    locked_by: pg_sys::SubTransactionId,
    snapshot: Moment,
    source: i32,
    page: u32,
    /// Something is known of the page.
    is_set: bool,
    /// All of its rows are known, or that all of them were moved.
    is_whole: bool,
    /// Of which rows it is known that they were moved; the first stands for the page.
    moved: [u64; ROWS / 64],
}

impl Memory {
    /// The memory of an expression.
    unsafe fn of<'a>(call: pg_sys::FunctionCallInfo) -> &'a mut Self {
        // SAFETY: a call by an expression's evaluation has a place for what it remembers.
        unsafe {
            let function = (*call).flinfo;
            if (*function).fn_extra.is_null() {
                let memory = pg_sys::MemoryContextAllocZero((*function).fn_mcxt, size_of::<Self>()).cast::<Self>();
                (*function).fn_extra = memory.cast();
            }
            &mut *(*function).fn_extra.cast::<Self>()
        }
    }

    /// `bullfrog.moved`, locked. What a function of a client remembers outlives a part of the transaction that was undone, whose locks are gone.
    unsafe fn index(&mut self) -> Index {
        // SAFETY: a statement is under way.
        unsafe {
            let part = pg_sys::GetCurrentSubTransactionId();
            if self.locked_by != part && (self.locked_by == 0 || !flaws::is_set(Flaw::LockForgotten)) {
                (self.index, self.locked_by) = (Index::open(), part);
            }
            self.index
        }
    }

    fn is_about(&self, source: i32, page: u32) -> bool {
        self.is_set && (self.source, self.page) == (source, page) && self.snapshot == Moment::now()
    }

    fn begin(&mut self, source: i32, page: u32) {
        (self.snapshot, self.source, self.page) = (Moment::now(), source, page);
        (self.is_set, self.is_whole) = (true, false);
        self.moved = [0; ROWS / 64];
    }

    fn set(&mut self, row: usize, is_moved: bool) {
        if row < ROWS {
            self.moved[row / 64] |= u64::from(is_moved) << (row % 64);
        }
    }

    fn get(&self, row: usize) -> bool {
        self.moved[row / 64] >> (row % 64) & 1 == 1
    }
}

/// What the active snapshot sees: of two snapshots of one process, the later one sees more if anything of this differs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    transaction: pg_sys::LocalTransactionId,
    command: pg_sys::CommandId,
    end: pg_sys::TransactionId,
    running: (u32, i32),
}

impl Moment {
    fn now() -> Self {
        // SAFETY: a statement is under way.
        unsafe {
            let snapshot = &*pg_sys::GetActiveSnapshot();
            Self {
                transaction: local_transaction(),
                command: snapshot.curcid,
                end: snapshot.xmax,
                running: (snapshot.xcnt, snapshot.subxcnt),
            }
        }
    }
}

/// With what the truth is read.
unsafe fn snapshot() -> pg_sys::Snapshot {
    // SAFETY: a statement is under way.
    unsafe { if flaws::is_set(Flaw::NewestTruth) { pg_sys::GetLatestSnapshot() } else { pg_sys::GetActiveSnapshot() } }
}

/// `bullfrog.moved` and its primary key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Index {
    table: Oid,
    key: Oid,
}

thread_local! {
    /// Both, as they were found last, if no news of them came since.
    static FOUND: Cell<Option<Index>> = const { Cell::new(None) };
}

/// Looks them up anew if there is news of them. To be called with news of relations; none in particular: all.
pub(crate) fn forget(relation: Oid) {
    if FOUND.get().is_some_and(|found| [Oid::INVALID, found.table, found.key].contains(&relation)) {
        FOUND.set(None);
    }
}

impl Index {
    /// Finds both, and locks them until the transaction ends, as a plan over them would.
    ///
    /// # Safety
    /// A transaction is under way.
    pub(crate) unsafe fn open() -> Self {
        loop {
            // SAFETY: as promised.
            unsafe {
                // News that come while they are found come before the catalogs are read: to lock these brings them.
                let found = FOUND.get().unwrap_or_else(|| Self::find());
                FOUND.set(Some(found));
                pg_sys::LockRelationOid(found.table, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
                pg_sys::LockRelationOid(found.key, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
                // The locks may have brought news.
                if FOUND.get() == Some(found) {
                    return found;
                }
            }
        }
    }

    unsafe fn find() -> Self {
        // SAFETY: the table is there as long as the functions are.
        unsafe {
            let relation = pg_sys::table_open(own_table(c"moved"), pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            let found = Self { table: (*relation).rd_id, key: primary_key(relation) };
            pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
            found
        }
    }

    /// Whether a granule was moved.
    unsafe fn has(self, source: i32, granule: i64) -> bool {
        let mut found = false;
        // SAFETY: as promised.
        unsafe {
            self.each(source, granule, granule, |_| {
                found = true;
                false
            });
        }
        found
    }

    /// Whether a page was moved as a whole, and else whether this row of it was moved. Their names are near each other, with those of other rows between them.
    unsafe fn has_either(self, source: i32, page: u32, number: u16) -> (bool, bool) {
        let (whole, row) = (name_of_place(page, 0), name_of_place(page, number));
        let (mut last, mut between) = (None, 0);
        // SAFETY: as promised.
        unsafe {
            self.each(source, whole, row, |name| {
                last = Some(name);
                between += 1;
                name != whole && between < FEW
            });
            let is_passed = between == FEW && last != Some(row);
            (last == Some(whole), last == Some(row) || is_passed && last != Some(whole) && self.has(source, row))
        }
    }

    /// Calls something with the granules of a source from one to another that were moved, until it says false.
    unsafe fn each(self, source: i32, first: i64, last: i64, mut action: impl FnMut(i64) -> bool) {
        // It is a scan of the active snapshot: if that is serializable, the server notes what was read.
        // SAFETY: as promised.
        unsafe { self.scan(source, first, last, snapshot(), |granule, _, _| action(granule)) };
    }

    /// Calls something with the granules of a source from one to another that were moved, as of now, or are marked by a transaction that has not ended: with
    /// that one.
    ///
    /// # Safety
    /// A transaction is under way.
    pub(crate) unsafe fn each_now(self, source: i32, first: i64, last: i64, mut action: impl FnMut(i64, Option<Xid>)) {
        let mut now =
            pg_sys::SnapshotData { snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY, ..Default::default() };
        // SAFETY: as promised. Of each row that such a snapshot sees, it tells who is about to insert it.
        unsafe {
            self.scan(source, first, last, &raw mut now, |granule, seen_by, _| {
                let owner = (*seen_by).xmin.into_inner();
                action(granule, (owner != 0).then_some(owner));
                true
            });
        }
    }

    /// Writes that those of these granules were moved by this transaction which are not marked yet, and gives them, in their order. Waits for others that are about to mark one. None
    /// if that takes a statement.
    ///
    /// # Safety
    /// A transaction is under way.
    pub(crate) unsafe fn mark(self, source: i32, granules: &[i64]) -> Option<Vec<i64>> {
        if granules.is_empty() {
            return Some(Vec::new());
        }
        let mut won = granules.to_vec();
        // SAFETY: as promised; the columns of the table, of which version 0.1.0 has no fourth.
        unsafe {
            let writing = Writing::begin(self.table, true)?;
            let moved_by = Datum::from(pg_sys::GetTopFullTransactionId().value);
            won.retain(|granule| {
                let columns = [Some(Datum::from(source)), Some(Datum::from(*granule)), Some(moved_by), None];
                // Nobody looks for a mark before: mostly there is none. Where there is, the index tells.
                loop {
                    pgrx::check_for_interrupts!();
                    if writing.write_unless_taken(columns.into_iter().take(writing.columns())) {
                        return true;
                    }
                    if !self.is_free(source, *granule) || flaws::is_set(Flaw::MarksOnce) {
                        return false;
                    }
                }
            });
            writing.end();
        }
        won.sort_unstable();
        Some(won)
    }

    /// Whether nobody has marked a granule. Waits for who is about to.
    unsafe fn is_free(self, source: i32, granule: i64) -> bool {
        loop {
            let mut found = None;
            let mut now =
                pg_sys::SnapshotData { snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY, ..Default::default() };
            // SAFETY: as promised. Of a row that such a snapshot sees, it tells who is about to insert it; the row itself, who has.
            unsafe {
                self.scan(source, granule, granule, &raw mut now, |_, seen_by, tuple| {
                    let writer = (*(*tuple).t_data).t_choice.t_heap.t_xmin;
                    let is_own = pg_sys::TransactionIdIsCurrentTransactionId(writer);
                    found = Some(((*seen_by).xmin.into_inner(), (*seen_by).speculativeToken, is_own));
                    false
                });
            }
            match found {
                None => return true,
                Some((0, _, is_own)) => {
                    // What this transaction has moved is there for it, whatever its snapshot says.
                    if !is_own {
                        refuse_moved_since();
                    }
                    return false;
                }
                Some(_) if flaws::is_set(Flaw::MarksUnwaited) => return false,
                Some((owner, 0, _)) => wait_for_transaction(owner),
                // It may take it back.
                // SAFETY: waits for another transaction.
                Some((owner, token, _)) => unsafe { pg_sys::SpeculativeInsertionWait(owner.into(), token) },
            }
        }
    }

    /// Calls something with the granules that a snapshot sees, the snapshot, and the row that says so, until it says false.
    unsafe fn scan(
        self,
        source: i32,
        first: i64,
        last: i64,
        seen_by: pg_sys::Snapshot,
        mut action: impl FnMut(i64, pg_sys::Snapshot, pg_sys::HeapTuple) -> bool,
    ) {
        let no_lock = pg_sys::NoLock as pg_sys::LOCKMODE;
        // SAFETY: a scan as the server wants it; keys and columns are those of the table.
        unsafe {
            // It is locked.
            let relation = pg_sys::table_open(self.table, no_lock);
            let mut keys = [pg_sys::ScanKeyData::default(); 3];
            let conditions = [
                (1, pg_sys::BTEqualStrategyNumber, pg_sys::F_INT4EQ, Datum::from(source)),
                (2, pg_sys::BTGreaterEqualStrategyNumber, pg_sys::F_INT8GE, Datum::from(first)),
                (2, pg_sys::BTLessEqualStrategyNumber, pg_sys::F_INT8LE, Datum::from(last)),
            ];
            for (key, (column, strategy, operator, value)) in keys.iter_mut().zip(conditions) {
                pg_sys::ScanKeyInit(key, column, strategy as _, operator.into(), value);
            }
            let scan =
                pg_sys::systable_beginscan(relation, self.key, true, seen_by, keys.len() as i32, keys.as_mut_ptr());
            loop {
                let tuple = pg_sys::systable_getnext(scan);
                if tuple.is_null() {
                    break;
                }
                let mut is_null = false;
                let granule = pg_sys::heap_getattr(tuple, 2, (*relation).rd_att, &mut is_null);
                if !action(granule.value() as i64, seen_by, tuple) {
                    break;
                }
            }
            pg_sys::systable_endscan(scan);
            pg_sys::table_close(relation, no_lock);
        }
    }
}
