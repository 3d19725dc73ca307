//! Old tables that stay in use: which of their rows were there at the switch.

use bullfrog_model::horizon::Horizon;
use pgrx::prelude::*;

use crate::errors::raise;
use crate::versions::next_transaction;

/// What tells rows of a table that are there now from later ones. To be called while nobody else writes the table, in a transaction
/// that has not written it.
#[pg_extern(sql = false)]
fn unfinished() -> TableIterator<'static, (name!(horizon, i64), name!(others, Vec<i64>))> {
    // SAFETY: a snapshot of now; numbers of this process's own transaction, which nobody else changes.
    unsafe {
        let snapshot = &*pg_sys::GetLatestSnapshot();
        let own = &*pg_sys::MyProc;
        if snapshot.suboverflowed || own.subxidStatus.overflowed {
            raise(
                PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
                "a transaction under way has too many subtransactions to tell its later rows",
                "Try again when it has ended: it has used more than 64 savepoints or blocks with EXCEPTION.",
            );
        }
        let numbers = |first: *mut pg_sys::TransactionId, count: usize| {
            if count == 0 { &[][..] } else { std::slice::from_raw_parts(first, count) }
        };
        let mut others: Vec<i64> = numbers(snapshot.xip, snapshot.xcnt as usize)
            .iter()
            .chain(numbers(snapshot.subxip, snapshot.subxcnt.unsigned_abs() as usize))
            .chain([&own.xid])
            .chain(&own.subxids.xids[..usize::from(own.subxidStatus.count)])
            .map(|xid| i64::from(xid.into_inner()))
            .collect();
        others.sort_unstable();
        let next = pg_sys::ReadNextFullTransactionId().value;
        let horizon = next - u64::from((next as u32).wrapping_sub(snapshot.xmax.into_inner()));
        TableIterator::once((horizon as i64, others))
    }
}

/// Whether a row of a transaction was there when [`unfinished`] told these numbers.
#[pg_extern(sql = false, immutable, strict, parallel_safe)]
#[expect(clippy::needless_pass_by_value, reason = "an array of SQL comes by value")]
fn was_there(row: pg_sys::TransactionId, horizon: i64, others: Array<'_, i64>) -> bool {
    was_there_before(row, Horizon(horizon as u64), others.iter_deny_null())
}

/// The same of numbers that were read before.
pub(crate) fn was_there_before(
    row: pg_sys::TransactionId,
    horizon: Horizon,
    mut others: impl Iterator<Item = i64>,
) -> bool {
    if horizon.is_lost(next_transaction()) {
        raise(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "the old table has been in use for too long to tell its rows of the switch",
            "Two billion transactions have begun since then: bullfrog.abort(name, discard_writes => true), and finish sooner.",
        );
    }
    horizon.is_before(row.into_inner(), || others.any(|other| other == i64::from(row.into_inner())))
}
