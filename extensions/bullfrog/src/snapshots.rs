//! Snapshots that are older than a move that their transaction has waited for. At READ COMMITTED a statement gets a new one where
//! it would miss what has moved, or see it twice together with what the transaction has written to it since. At REPEATABLE READ the
//! transaction gets a new one, as long as nothing can have shown what the first one sees.

use std::cell::Cell;

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::errors::raise;
use crate::flags::while_set;
use crate::nodes;
use crate::versions::local_transaction;

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
    /// The last transaction in which something ran that may have shown what the snapshot sees.
    static SHOWN: Cell<pg_sys::LocalTransactionId> = const { Cell::new(0) };
    /// The planner is at work: functions that it calls tell it what is constant, and nobody else.
    static IS_PLANNING: Cell<bool> = const { Cell::new(false) };
}

/// Notes that a statement begins, at any depth, or a function is called that shows what the transaction's snapshot sees. Tells whether it
/// is the first of its transaction.
pub(crate) fn is_first_to_show() -> bool {
    let transaction = local_transaction();
    SHOWN.replace(transaction) != transaction
}

/// Notes that a function is called. Outside of statements a client calls it by itself.
pub(crate) fn function_is_called() {
    if !IS_PLANNING.get() {
        is_first_to_show();
    }
}

/// Plans a statement.
pub(crate) fn planning<R>(plan: impl FnOnce() -> R) -> R {
    while_set(&IS_PLANNING, plan)
}

/// Whether the planner is at work on a statement.
pub(crate) fn is_planning() -> bool {
    IS_PLANNING.get()
}

/// Notes that a move that this transaction has waited for was committed.
pub(crate) fn has_moved() {
    // SAFETY: looks at this process's transaction, and at all others under the server's lock.
    unsafe {
        if pg_sys::XactIsoLevel == pg_sys::XACT_READ_COMMITTED as i32 {
            LAST.set(Some(Move {
                transaction: local_transaction(),
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
            && last.transaction == local_transaction()
            && (*snapshot).curcid >= last.command
            && pg_sys::TransactionIdPrecedes((*snapshot).xmax, last.end)
    })
}

/// Gives a transaction at REPEATABLE READ a new snapshot, if it may have one: its first statement has not begun yet, is one that the client
/// itself sent, and nobody else knows of the old snapshot. Tells whether it did.
///
/// # Safety
/// `first` is the snapshot of a statement for which [`is_first_to_show`] was true.
pub(crate) unsafe fn begin_anew(first: pg_sys::Snapshot) -> bool {
    // SAFETY: the server keeps one registration of the transaction's snapshot for itself. It takes a new snapshot when it is told that
    // there was none yet, and keeps one registration of that instead; so that of the old one is given back here. An error before leaves
    // the old one as it was. (Servers with assertions want that there was none in fact.)
    unsafe {
        let is_alone = pg_sys::XactIsoLevel == pg_sys::XACT_REPEATABLE_READ as i32
            && !pg_sys::am_walsender
            && !pg_sys::IsInParallelMode()
            && !pg_sys::XactHasExportedSnapshots()
            && is_only_active(first);
        if !is_alone || has_assertions() {
            return false;
        }
        let old = pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot());
        pg_sys::FirstSnapshotSet = false;
        pg_sys::GetTransactionSnapshot();
        (*old).regd_count -= 1;
        pg_sys::UnregisterSnapshot(old);
        true
    }
}

/// Whether a snapshot is the active one, and no other is below it.
unsafe fn is_only_active(snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: the snapshot is registered by its statement, so that it lives while it is not on the stack.
    unsafe {
        if !pg_sys::ActiveSnapshotSet() || pg_sys::GetActiveSnapshot() != snapshot {
            return false;
        }
        pg_sys::PopActiveSnapshot();
        let is_only = !pg_sys::ActiveSnapshotSet();
        pg_sys::PushActiveSnapshot(snapshot);
        is_only
    }
}

fn has_assertions() -> bool {
    // SAFETY: a setting that every server has.
    unsafe { nodes::text(pg_sys::GetConfigOption(c"debug_assertions".as_ptr(), false, false)) != "off" }
}

/// Ends a transaction that has one snapshot for all of its statements: others have moved rows since that it needs.
pub(crate) fn refuse_moved_since() {
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
        raise(
            PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
            "could not serialize access because rows were moved to their new table",
            "They are there now: try the transaction again.",
        );
    }
}

/// Gives a statement a new snapshot, or at REPEATABLE READ that of the transaction as it is now. But look-ups of foreign keys see what others
/// have committed at any level, and check what they find against the transaction's snapshot: they get a new one.
///
/// # Safety
/// `description` is one of a statement that has not begun.
pub(crate) unsafe fn renew(description: *mut pg_sys::QueryDesc) {
    // SAFETY: the description owns one registration of its snapshot, which passes from the old to the new one; if the
    // old one is the active snapshot, too, the new one takes its place on the stack, at the same depth. The new one is a copy: the
    // transaction's own goes on with each command.
    unsafe {
        let stale = (*description).snapshot;
        let is_active = pg_sys::ActiveSnapshotSet() && pg_sys::GetActiveSnapshot() == stale;
        if is_active {
            pg_sys::PopActiveSnapshot();
        }
        let is_checked = !(*description).crosscheck_snapshot.is_null();
        let newest = if is_checked { pg_sys::GetLatestSnapshot() } else { pg_sys::GetTransactionSnapshot() };
        pg_sys::PushCopiedSnapshot(newest);
        (*description).snapshot = pg_sys::RegisterSnapshot(pg_sys::GetActiveSnapshot());
        if !is_active {
            pg_sys::PopActiveSnapshot();
        }
        pg_sys::UnregisterSnapshot(stale);
    }
}
