//! Who writes faster than an abort carries back is slowed down: each transaction that writes a table rests once, for a moment. That an abort wants
//! it is told by a lock, which ends with its transaction however that ends; nobody waits for it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::registry::own_table;
use crate::shared::rest;
use crate::versions::{Wait, local_transaction};

/// How long a transaction rests: as a switch may make it wait, and less.
const REST: Duration = Duration::from_millis(50);

thread_local! {
    /// The transaction of this session that has rested last.
    static RESTED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Slows down who writes a table whose writes are noted, until the transaction of this session ends.
#[pg_extern(sql = false, strict)]
fn slow_down(relation: Oid) {
    let tag = tag(relation);
    // SAFETY: a lock of this session's transaction; another abort of the same migration is refused before it comes here.
    unsafe {
        pg_sys::LockAcquire(&raw const tag, pg_sys::ExclusiveLock as pg_sys::LOCKMODE, false, false);
    }
}

/// Rests, if an abort wants it and this transaction has not yet.
pub(crate) fn rest_if_slowed(relation: Oid) {
    let transaction = local_transaction();
    if RESTED.get() == Some(transaction) || !is_slowed(relation) {
        return;
    }
    RESTED.set(Some(transaction));
    let begun = Instant::now();
    while let Some(left) = REST.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        rest(Wait::Slowed, u64::try_from(left.as_millis()).unwrap_or(0).max(1));
    }
}

fn is_slowed(relation: Oid) -> bool {
    let (tag, mode) = (tag(relation), pg_sys::ShareLock as pg_sys::LOCKMODE);
    // SAFETY: does not wait, and gives back what it gets.
    unsafe {
        let got = pg_sys::LockAcquire(&raw const tag, mode, false, true);
        if got == pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL {
            return true;
        }
        pg_sys::LockRelease(&raw const tag, mode, false);
        false
    }
}

/// The lock of one table: that of an object, which is in a catalog that has no objects for the server.
fn tag(relation: Oid) -> pg_sys::LOCKTAG {
    // SAFETY: the number of this process's database.
    let database = unsafe { pg_sys::MyDatabaseId };
    pg_sys::LOCKTAG {
        locktag_field1: database.to_u32(),
        locktag_field2: own_table(c"target").to_u32(),
        locktag_field3: relation.to_u32(),
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}
