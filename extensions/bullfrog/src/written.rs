//! Which rows of a table that stays in use were written since a moment. Rows are looked at before the switch, while clients go on; behind the
//! lock only those are looked at that are new. Nobody notes them: the server stamps each page with the place in its log of the last change.

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::flaws::{self, Flaw};

/// More rows than this are not told one by one.
const MOST_ROWS: usize = 100_000;

/// `VISIBILITYMAP_ALL_VISIBLE`.
const ALL_VISIBLE: u8 = 1;

/// `HEAP_XMIN_FROZEN`.
const FROZEN: u32 = pg_sys::HEAP_XMIN_COMMITTED | pg_sys::HEAP_XMIN_INVALID;

/// Waits for the end of each transaction that has written a table, or may: it has a lock for it.
#[pg_extern(sql = false, strict)]
fn await_writers(relation: Oid) {
    if flaws::is_set(Flaw::WritersForgotten) {
        return;
    }
    // SAFETY: the tag of a table of this database, as the server makes it.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: relation.to_u32(),
            locktag_field3: 0,
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        pg_sys::WaitForLockers(tag, pg_sys::ShareLock as pg_sys::LOCKMODE, false);
    }
}

/// The places of rows of a table that were written since a place in the log, by transactions that had not ended before one with a certain number
/// began; and of those that such transactions have deleted, or written others in place of (some may only have been locked). Arrays, as texts; NULL:
/// there are very many, or nobody asks. Since that moment nobody but the caller could vacuum the table or give it another file.
#[pg_extern(sql = false, strict)]
fn changes_since(
    relation: Oid,
    position: i64,
    horizon: i64,
    of_written: bool,
    of_gone: bool,
) -> TableIterator<'static, (name!(written, Option<String>), name!(gone, Option<String>))> {
    let [mut written, mut gone] = [Places::new(of_written), Places::new(of_gone)];
    look_for_changes(relation, position, horizon, &mut written, &mut gone);
    if flaws::is_set(Flaw::WrittenForgotten) {
        written.0 = Some(Vec::new());
    }
    if flaws::is_set(Flaw::GoneForgotten) {
        gone.0 = Some(Vec::new());
    }
    TableIterator::once((written.told(), gone.told()))
}

/// Places of rows; none if there are too many, or nobody asks for them.
struct Places(Option<Vec<String>>);

impl Places {
    fn new(is_asked: bool) -> Self {
        Self(is_asked.then(Vec::new))
    }

    fn is_open(&self) -> bool {
        self.0.is_some()
    }

    fn add(&mut self, page: u32, row: usize) {
        if let Some(places) = &mut self.0 {
            places.push(format!("\"({page},{row})\""));
            if places.len() > MOST_ROWS {
                self.0 = None;
            }
        }
    }

    fn told(self) -> Option<String> {
        self.0.map(|places| format!("{{{}}}", places.join(",")))
    }
}

fn look_for_changes(relation: Oid, position: i64, horizon: i64, written: &mut Places, gone: &mut Places) {
    let first = pg_sys::TransactionId::from_inner(horizon as u32);
    // SAFETY: a table of the server's heap, which the caller has locked, read page by page as the server does.
    unsafe {
        let table = pg_sys::table_open(relation, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        let strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
        let main = pg_sys::ForkNumber::MAIN_FORKNUM;
        let mut map: pg_sys::Buffer = 0;
        for number in 0..pg_sys::RelationGetNumberOfBlocksInFork(table, main) {
            pgrx::check_for_interrupts!();
            // It was so at that moment: only a vacuum says so again of a page that was changed.
            if pg_sys::visibilitymap_get_status(table, number, &raw mut map) & ALL_VISIBLE != 0 {
                continue;
            }
            let buffer = pg_sys::ReadBufferExtended(table, main, number, pg_sys::ReadBufferMode::RBM_NORMAL, strategy);
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
            let page = pg_sys::BufferGetPage(buffer);
            if log_position(page) > position as u64 {
                for (item, row) in rows_of(page) {
                    if written.is_open() && is_written(&*row, first) {
                        written.add(number, item);
                    }
                    if gone.is_open() && is_gone(&*row, first) {
                        gone.add(number, item);
                    }
                }
            }
            pg_sys::UnlockReleaseBuffer(buffer);
            if !written.is_open() && !gone.is_open() {
                break;
            }
        }
        if map != 0 {
            pg_sys::ReleaseBuffer(map);
        }
        pg_sys::FreeAccessStrategy(strategy);
        pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
    }
}

/// Where in the log the last change of a page is.
unsafe fn log_position(page: pg_sys::Page) -> u64 {
    // SAFETY: every page begins with its header.
    let position = unsafe { (*page.cast::<pg_sys::PageHeaderData>()).pd_lsn };
    u64::from(position.xlogid) << 32 | u64::from(position.xrecoff)
}

/// The rows of a page, with their numbers on it.
///
/// # Safety
/// A page of a heap, which nobody changes while its rows are looked at.
pub(crate) unsafe fn rows_of(page: pg_sys::Page) -> impl Iterator<Item = (usize, *const pg_sys::HeapTupleHeaderData)> {
    let start = page.cast::<u8>();
    let before = std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp);
    // SAFETY: as promised. Behind its header are pointers to its rows, up to where it has room.
    let (pointers, end) = unsafe {
        let end = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_lower);
        (start.add(before).cast::<pg_sys::ItemIdData>(), end)
    };
    (0..end.saturating_sub(before) / size_of::<pg_sys::ItemIdData>()).filter_map(move |index| {
        // SAFETY: as above; a pointer that is in use leads to a row.
        unsafe {
            let pointer = &*pointers.add(index);
            let row = || start.add(pointer.lp_off() as usize).cast::<pg_sys::HeapTupleHeaderData>().cast_const();
            (pointer.lp_flags() == pg_sys::LP_NORMAL).then(|| (index + 1, row()))
        }
    })
}

/// Whether a row is of this transaction, or a later one.
unsafe fn is_written(row: &pg_sys::HeapTupleHeaderData, first: pg_sys::TransactionId) -> bool {
    // Both at once: it is older than any number that still counts.
    let is_frozen = u32::from(row.t_infomask) & FROZEN == FROZEN;
    // SAFETY: a row of a heap has such a header.
    !is_frozen && unsafe { !pg_sys::TransactionIdPrecedes(row.t_choice.t_heap.t_xmin, first) }
}

/// Whether this transaction, or a later one, has deleted a row or written another one in its place. Of several that had it locked one may have.
unsafe fn is_gone(row: &pg_sys::HeapTupleHeaderData, first: pg_sys::TransactionId) -> bool {
    let mask = u32::from(row.t_infomask);
    let is_there = mask & (pg_sys::HEAP_XMAX_INVALID | pg_sys::HEAP_XMAX_LOCK_ONLY) != 0;
    let by_one = mask & pg_sys::HEAP_XMAX_IS_MULTI == 0;
    // SAFETY: a row of a heap has such a header.
    !(is_there || by_one && unsafe { pg_sys::TransactionIdPrecedes(row.t_choice.t_heap.t_xmax, first) })
}
