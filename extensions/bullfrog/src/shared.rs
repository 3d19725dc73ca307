//! What processes of the server share: the board of requests, the ledger of granules in progress, the meters; and how
//! processes wake each other and wait for each other's transactions.

use std::time::SystemTime;

use bullfrog_model::board::{Board, Desk, Pid, Place, Xid};
use bullfrog_model::meter::Meters;
use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, pg_shmem_init};
use savanna_ledger::Ledger;

use crate::versions::{Wait, is_own_process, wait_event};

/// A granule of any database: database, source, name.
pub(crate) type GranuleOfAll = (u32, i32, i64);

#[derive(Clone, Copy, Default)]
pub(crate) struct Shared<T>(T);

// SAFETY: plain data without pointers.
unsafe impl PGRXSharedMemory for Shared<Desk> {}
// SAFETY: as above.
unsafe impl PGRXSharedMemory for Shared<Ledger<GranuleOfAll, Xid, 512>> {}
// SAFETY: as above.
unsafe impl PGRXSharedMemory for Shared<Meters> {}

// SAFETY: the names are used by nobody else.
static BOARD: PgLwLock<Shared<Desk>> = unsafe { PgLwLock::new(c"bullfrog board") };
// SAFETY: as above.
static LEDGER: PgLwLock<Shared<Ledger<GranuleOfAll, Xid, 512>>> = unsafe { PgLwLock::new(c"bullfrog ledger") };
// SAFETY: as above.
static METERS: PgLwLock<Shared<Meters>> = unsafe { PgLwLock::new(c"bullfrog meters") };

/// The places of sessions on the board, one for each process that the server can have. Whoever uses them holds the board's lock.
static mut PLACES: *mut Place = std::ptr::null_mut();
static mut NEXT_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut NEXT_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Asks for the shared memory. To be called while the server loads the library.
pub(crate) fn share() {
    pg_shmem_init!(BOARD);
    // SAFETY: hooks are set while the server loads libraries, one after the other.
    unsafe {
        NEXT_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request_places);
        NEXT_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(lay_out_places);
    }
    pg_shmem_init!(LEDGER);
    pg_shmem_init!(METERS);
}

/// How many places the board has: known when the server has read its settings.
fn places() -> usize {
    // SAFETY: a number of the server.
    usize::try_from(unsafe { pg_sys::MaxBackends }).unwrap_or(0)
}

#[pg_guard]
unsafe extern "C-unwind" fn request_places() {
    // SAFETY: hooks are called by the server, one after the other.
    unsafe {
        if let Some(next) = NEXT_REQUEST {
            pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| next());
        }
        pg_sys::RequestAddinShmemSpace(places() * size_of::<Place>());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn lay_out_places() {
    // SAFETY: called while the server makes its memory, when no other process is there; what it gives is aligned for everything.
    unsafe {
        if let Some(next) = NEXT_STARTUP {
            pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| next());
        }
        let mut is_there = false;
        let size = places() * size_of::<Place>();
        PLACES = pg_sys::ShmemInitStruct(c"bullfrog places".as_ptr(), size, &raw mut is_there).cast();
        for number in 0..places() {
            PLACES.add(number).write(Place::default());
        }
    }
}

/// Does something with the board while nobody else does.
pub(crate) fn with_board<R>(action: impl FnOnce(&mut Board) -> R) -> R {
    let mut desk = BOARD.exclusive();
    // SAFETY: as many as were laid out; the lock is held.
    let places = unsafe { std::slice::from_raw_parts_mut(PLACES, places()) };
    action(&mut Board::new(&mut desk.0, places))
}

/// The place of this process on the board.
pub(crate) fn own_place() -> usize {
    // SAFETY: the process has its place among those of the server, of which the first are for sessions and background processes.
    unsafe { pg_sys::MyProc.offset_from((*pg_sys::ProcGlobal).allProcs).unsigned_abs() }
}

/// Wakes the processes at places of the board.
pub(crate) fn wake_places(places: impl IntoIterator<Item = usize>) {
    for place in places {
        // SAFETY: the server never frees the places of its processes; a latch set for a later process wakes it for nothing.
        unsafe { pg_sys::SetLatch(&raw mut (*(*pg_sys::ProcGlobal).allProcs.add(place)).procLatch) };
    }
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

/// A time in milliseconds.
pub(crate) fn milliseconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The number of this process's database.
pub(crate) fn database() -> u32 {
    // SAFETY: a number of this process.
    unsafe { pg_sys::MyDatabaseId.to_u32() }
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
pub(crate) fn rest(wait: Wait, milliseconds: u64) {
    // SAFETY: waits on the process's own latch.
    unsafe {
        let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, milliseconds as i64, wait_event(wait));
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
                // The place of a process that has ended is as it left it, but nobody owns its latch.
                && process.procLatch.owner_pid != 0
        };
        all.iter().filter(is_active).count()
    }
}
