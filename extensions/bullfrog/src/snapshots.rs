//! Snapshots that are older than a move that their transaction has waited for. At READ COMMITTED a statement gets a new one where
//! it would miss what has moved, or see it twice together with what the transaction has written to it since.

use std::cell::Cell;

use pgrx::pg_sys;

/// The last move that this process has waited for.
#[derive(Clone, Copy)]
struct Move {
    transaction: pg_sys::LocalTransactionId,
    /// The first command that sees what the waiting statement writes.
    command: pg_sys::CommandId,
    /// A snapshot that sees the move does not end before this transaction.
    end: pg_sys::TransactionId,
}

thread_local! {
    static LAST: Cell<Option<Move>> = const { Cell::new(None) };
}

/// Notes that a move that this transaction has waited for was committed.
pub(crate) fn has_moved() {
    // SAFETY: looks at this process's transaction, and at all others under the server's lock.
    unsafe {
        if pg_sys::XactIsoLevel == pg_sys::XACT_READ_COMMITTED as i32 {
            LAST.set(Some(Move {
                transaction: (*pg_sys::MyProc).lxid,
                command: pg_sys::GetCurrentCommandId(false),
                end: (*pg_sys::GetLatestSnapshot()).xmax,
            }));
        }
    }
}

/// Whether a snapshot shows what the transaction has written since a move, and not the move: several statements of one rule, or of one
/// SQL function, have a snapshot in common, of which only the command goes on.
///
/// # Safety
/// `snapshot` is null or a snapshot of the transaction under way.
pub(crate) unsafe fn is_stale(snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: as promised.
    LAST.get().is_some_and(|last| unsafe {
        !snapshot.is_null()
            && last.transaction == (*pg_sys::MyProc).lxid
            && (*snapshot).curcid >= last.command
            && pg_sys::TransactionIdPrecedes((*snapshot).xmax, last.end)
    })
}

/// Gives a statement a new snapshot, or at REPEATABLE READ that of its transaction. But look-ups of foreign keys see what others have
/// committed at any level, and check what they find against the transaction's snapshot: they get a new one.
///
/// # Safety
/// `description` is one of a statement that has not begun.
pub(crate) unsafe fn renew(description: *mut pg_sys::QueryDesc) {
    // SAFETY: the description owns one registration of its snapshot, which passes from the old to the new one; if the
    // old one is the active snapshot, too, the new one takes its place on the stack, at the same depth.
    unsafe {
        let stale = (*description).snapshot;
        let is_checked = !(*description).crosscheck_snapshot.is_null();
        let newest = if is_checked { pg_sys::GetLatestSnapshot() } else { pg_sys::GetTransactionSnapshot() };
        let fresh = pg_sys::RegisterSnapshot(newest);
        if pg_sys::ActiveSnapshotSet() && pg_sys::GetActiveSnapshot() == stale {
            pg_sys::PopActiveSnapshot();
            pg_sys::PushActiveSnapshot(fresh);
        }
        pg_sys::UnregisterSnapshot(stale);
        (*description).snapshot = fresh;
    }
}
