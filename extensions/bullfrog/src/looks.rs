//! Looks at rows before the switch, while clients go on. What a look finds is so for its snapshot, and what that shows is there to be read until
//! the look after the next: a row that others refer to, or are joined with, may be gone by then, and has left nothing but what it was.

use std::cell::Cell;

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::errors::defect;
use crate::nodes;
use crate::reading::plainly;
use crate::rights::{as_owner_of, refuse_hidden_rows};
use crate::versions::local_transaction;

/// A snapshot that the server keeps.
#[derive(Clone, Copy)]
struct Look {
    snapshot: pg_sys::Snapshot,
    owner: pg_sys::ResourceOwner,
    transaction: pg_sys::LocalTransactionId,
}

impl Look {
    /// What everybody has committed by now, and this transaction has written.
    fn take() -> Self {
        // SAFETY: the statement that switches owns it; if that fails the server takes it back.
        unsafe {
            let owner = pg_sys::CurrentResourceOwner;
            let snapshot = pg_sys::RegisterSnapshotOnOwner(pg_sys::GetLatestSnapshot(), owner);
            Self { snapshot, owner, transaction: local_transaction() }
        }
    }

    fn end(self) {
        // SAFETY: it was registered there, once.
        unsafe { pg_sys::UnregisterSnapshotFromOwner(self.snapshot, self.owner) };
    }
}

thread_local! {
    /// The look before, and this one.
    static LOOKS: Cell<[Option<Look>; 2]> = const { Cell::new([None; 2]) };
}

/// Begins a look. Those of a switch that failed have ended with its statement, so the first one of another knows nothing of them.
#[pg_extern(sql = false, strict)]
fn begin_look(is_first: bool) {
    let [before, now] = if is_first { [None; 2] } else { looks() };
    if let Some(before) = before {
        before.end();
    }
    LOOKS.set([now, Some(Look::take())]);
}

/// Ends all looks.
#[pg_extern(sql = false, strict)]
fn end_looks() {
    looks().into_iter().flatten().for_each(Look::end);
    LOOKS.set([None; 2]);
}

/// The looks of this transaction; others are gone with theirs.
fn looks() -> [Option<Look>; 2] {
    LOOKS.get().map(|look| look.filter(|look| look.transaction == local_transaction()))
}

/// This look, or the one before.
fn look(is_before: bool) -> Look {
    let [before, now] = looks();
    (if is_before { before } else { now }).unwrap_or_else(|| defect(&"there was no such look"))
}

/// The texts that a query gives, with the rights of a table's owner, as this look sees rows, or the one before.
#[pg_extern(sql = false, strict)]
fn looked_up(relation: Oid, query: &str, is_before: bool) -> SetOfIterator<'static, String> {
    let Look { snapshot, .. } = look(is_before);
    let text = nodes::c_text(query);
    // SAFETY: the snapshot is registered. Calls of the server in the order it wants them; an error ends the transaction, and all of this. Statements
    // that only read do so with the active snapshot.
    let look_up = || unsafe {
        refuse_hidden_rows();
        pg_sys::PushActiveSnapshot(snapshot);
        let found = Spi::connect(|_| {
            let done = pg_sys::SPI_execute(text.as_ptr(), true, 0);
            if done != pg_sys::SPI_OK_SELECT as i32 {
                defect(&format!("a look gives rows, not {done}"));
            }
            let rows = pg_sys::SPI_tuptable;
            let count = usize::try_from((*rows).numvals).unwrap_or(0);
            let value = |number| nodes::text(pg_sys::SPI_getvalue(*(*rows).vals.add(number), (*rows).tupdesc, 1));
            (0..count).map(value).collect::<Vec<_>>()
        });
        pg_sys::PopActiveSnapshot();
        Ok(found)
    };
    SetOfIterator::new(as_owner_of(relation, look_up))
}

/// Runs a statement with the rights of a table's owner, as this look sees rows of others; of the transaction's own it sees all. Gives how many rows it
/// changed.
#[pg_extern(sql = false, strict)]
fn change_as_looked(relation: Oid, statement: &str) -> i64 {
    let Look { snapshot, .. } = look(false);
    let text = nodes::c_text(statement);
    // SAFETY: the snapshot is registered; the server runs the statement with a copy of it. Calls in the order it wants them; an error ends the transaction.
    let change = || unsafe {
        refuse_hidden_rows();
        Ok(Spi::connect_mut(|_| {
            let plan = pg_sys::SPI_prepare(text.as_ptr(), 0, std::ptr::null_mut());
            if plan.is_null() {
                defect(&"a look's statement has no plan");
            }
            let (no_values, no_check) = (std::ptr::null_mut(), std::ptr::null_mut());
            let done =
                pg_sys::SPI_execute_snapshot(plan, no_values, std::ptr::null(), snapshot, no_check, false, true, 0);
            if done < 0 {
                defect(&format!("a look changes rows, not {done}"));
            }
            pg_sys::SPI_processed as i64
        }))
    };
    as_owner_of(relation, || plainly(change))
}
