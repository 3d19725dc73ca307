//! Sessions ask the mover of their database for pages or groups, and wait. The wait is for the mover's transaction, by its lock: a
//! mover that waits for the session, directly or through others, is found by the server's deadlock detector.

use bullfrog_model::board::{Board, GRANULES, Pid, Unit, Work};
use pgrx::lwlock::PgLwLock;
use pgrx::prelude::*;
use pgrx::{PGRXSharedMemory, pg_shmem_init};

use crate::errors::raise;
use crate::mover;

#[derive(Clone, Copy, Default)]
pub(crate) struct SharedBoard(pub(crate) Board);

// SAFETY: plain data without pointers.
unsafe impl PGRXSharedMemory for SharedBoard {}

// SAFETY: the name is used by nobody else.
static BOARD: PgLwLock<SharedBoard> = unsafe { PgLwLock::new(c"bullfrog") };

/// Asks for the shared memory. To be called while the server loads the library.
pub(crate) fn share() {
    pg_shmem_init!(BOARD);
}

/// Does something with the board while nobody else does.
pub(crate) fn with_board<R>(action: impl FnOnce(&mut Board) -> R) -> R {
    action(&mut BOARD.exclusive().0)
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

/// Has pages of a source moved, and waits until they are.
#[pg_extern(sql = false, strict)]
#[expect(clippy::needless_pass_by_value, reason = "an array of SQL comes by value")]
fn move_pages(source: i32, pages: Vec<i64>) {
    have_moved(source, Unit::Page, &pages);
}

/// Has groups of a source moved, and waits until they are.
#[pg_extern(sql = false, strict)]
#[expect(clippy::needless_pass_by_value, reason = "an array of SQL comes by value")]
fn move_groups(source: i32, places: Vec<i64>) {
    have_moved(source, Unit::Group, &places);
}

/// Has pages or groups of a source moved, and waits until they are, in transactions of their own.
pub(crate) fn have_moved(source: i32, unit: Unit, numbers: &[i64]) {
    for part in numbers.chunks(GRANULES) {
        if let Some(work) = Work::new(source, unit, part) {
            ask(work);
        }
    }
}

fn ask(work: Work) {
    // SAFETY: numbers of this process.
    let (client, database) = unsafe { (pg_sys::MyProcPid, pg_sys::MyDatabaseId.to_u32()) };
    let ticket = loop {
        if let Some(ticket) = with_board(|board| board.post(client, database, work, alive)) {
            break ticket;
        }
        rest(10);
    };
    loop {
        pgrx::check_for_interrupts!();
        let (answer, mover) = with_board(|board| (board.answered(ticket), board.mover(database)));
        match (answer, mover) {
            (Some(Ok(())), _) => return,
            (Some(Err(failure)), _) => raise(
                PgSqlErrorCode::from(failure.code),
                format!("rows could not be moved to their new table: {}", failure.message()),
                "SELECT * FROM bullfrog.progress tells the migration.",
            ),
            (None, Some(mover)) if alive(mover.pid) => {
                if mover.xid == 0 {
                    wake(mover.pid);
                    rest(100);
                } else {
                    // SAFETY: waits for another transaction than our own; an error leaves nothing behind but the request,
                    // which the next one replaces.
                    unsafe {
                        pg_sys::XactLockTableWait(
                            pg_sys::TransactionId::from(mover.xid),
                            std::ptr::null_mut(),
                            std::ptr::null_mut(),
                            pg_sys::XLTW_Oper::XLTW_None,
                        );
                    }
                }
            }
            (None, _) => {
                mover::start();
                rest(100);
            }
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
