//! What processes of the server share: the board of requests, the ledger of granules in progress, the meters; and how
//! processes wake each other and wait for each other's transactions.

use std::time::SystemTime;

use bullfrog_model::board::{Board, Pid, Xid};
use bullfrog_model::meter::Meters;
use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, pg_shmem_init};
use savanna_ledger::Ledger;

use crate::versions::is_own_process;

/// A granule of any database: database, source, name.
pub(crate) type GranuleOfAll = (u32, i32, i64);

#[derive(Clone, Copy, Default)]
pub(crate) struct Shared<T>(T);

// SAFETY: plain data without pointers.
unsafe impl PGRXSharedMemory for Shared<Board> {}
// SAFETY: as above.
unsafe impl PGRXSharedMemory for Shared<Ledger<GranuleOfAll, Xid, 512>> {}
// SAFETY: as above.
unsafe impl PGRXSharedMemory for Shared<Meters> {}

// SAFETY: the names are used by nobody else.
static BOARD: PgLwLock<Shared<Board>> = unsafe { PgLwLock::new(c"bullfrog board") };
// SAFETY: as above.
static LEDGER: PgLwLock<Shared<Ledger<GranuleOfAll, Xid, 512>>> = unsafe { PgLwLock::new(c"bullfrog ledger") };
// SAFETY: as above.
static METERS: PgLwLock<Shared<Meters>> = unsafe { PgLwLock::new(c"bullfrog meters") };

/// Asks for the shared memory. To be called while the server loads the library.
pub(crate) fn share() {
    pg_shmem_init!(BOARD);
    pg_shmem_init!(LEDGER);
    pg_shmem_init!(METERS);
}

/// Does something with the board while nobody else does.
pub(crate) fn with_board<R>(action: impl FnOnce(&mut Board) -> R) -> R {
    action(&mut BOARD.exclusive().0)
}

/// Does something with the ledger while nobody else does.
pub(crate) fn with_ledger<R>(action: impl FnOnce(&mut Ledger<GranuleOfAll, Xid, 512>) -> R) -> R {
    action(&mut LEDGER.exclusive().0)
}

/// Does something with the meters while nobody else does.
pub(crate) fn with_meters<R>(action: impl FnOnce(&mut Meters) -> R) -> R {
    action(&mut METERS.exclusive().0)
}

/// The second that it is, since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// The number of this process's database.
pub(crate) fn database() -> u32 {
    // SAFETY: a number of this process.
    unsafe { pg_sys::MyDatabaseId.to_u32() }
}

/// Whether a process of the server is alive.
pub(crate) fn alive(pid: Pid) -> bool {
    // SAFETY: looks the process up under the server's lock; gives null if there is none.
    pid != 0 && unsafe { !pg_sys::BackendPidGetProc(pid).is_null() }
}

/// Wakes a process of the server, if it is alive.
pub(crate) fn wake(pid: Pid) {
    // SAFETY: the server never frees the places of its processes; a latch set for a later process wakes it for nothing.
    unsafe {
        let process = pg_sys::BackendPidGetProc(pid);
        if !process.is_null() {
            pg_sys::SetLatch(&raw mut (*process).procLatch);
        }
    }
}

/// Waits until somebody sets this process's latch, at most so many milliseconds.
pub(crate) fn rest(milliseconds: i64) {
    // SAFETY: waits on the process's own latch.
    unsafe {
        let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, milliseconds, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
}

/// Waits until a transaction of somebody else has ended, where the server's deadlock detector sees it.
pub(crate) fn wait_for_transaction(xid: Xid) {
    // SAFETY: waits for another transaction than our own; an error leaves nothing behind.
    unsafe {
        pg_sys::XactLockTableWait(
            pg_sys::TransactionId::from(xid),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            pg_sys::XLTW_Oper::XLTW_None,
        );
    }
}

/// Whether a transaction is this process's own.
pub(crate) fn is_own(xid: Xid) -> bool {
    // SAFETY: looks at this process's transaction.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(pg_sys::TransactionId::from(xid)) }
}

/// Whether a transaction in progress, or the one of which it is a part, is that of a process.
pub(crate) fn is_of(xid: Xid, pid: Pid) -> bool {
    // SAFETY: the server never frees the places of its processes; a snapshot keeps what it knows of the transaction.
    unsafe {
        let process = pg_sys::BackendPidGetProc(pid);
        !process.is_null() && pg_sys::SubTransGetTopmostTransaction(pg_sys::TransactionId::from(xid)) == (*process).xid
    }
}

/// Whether nobody has to wait for a transaction: it has ended, or is our own.
pub(crate) fn has_ended(xid: Xid) -> bool {
    // SAFETY: looks the transaction up under the server's lock.
    is_own(xid) || unsafe { !pg_sys::TransactionIdIsInProgress(pg_sys::TransactionId::from(xid)) }
}

/// How many sessions of clients are at work now, in all databases: they compute, read, or wait for each other.
pub(crate) fn active_sessions() -> usize {
    /// What tells in a wait that nobody does anything: for the client, or in a main loop.
    const IDLE: [u32; 2] = [0x0500_0000, 0x0600_0000];
    // SAFETY: the server never frees the places of its processes. They are read without a lock, as the server's own statistics do.
    unsafe {
        let all =
            std::slice::from_raw_parts((*pg_sys::ProcGlobal).allProcs, (*pg_sys::ProcGlobal).allProcCount as usize);
        let is_active = |process: &&pg_sys::PGPROC| {
            process.pid != 0
                && process.databaseId != pg_sys::Oid::INVALID
                && is_own_process(process)
                && !IDLE.contains(&(process.wait_event_info & 0xff00_0000))
                // The place of a process that has ended is as it left it.
                && alive(process.pid)
        };
        all.iter().filter(is_active).count()
    }
}
