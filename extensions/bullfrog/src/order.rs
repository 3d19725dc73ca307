//! Places in the order of a statement: which of two rows, that come from different queries with the same columns, comes first.

use std::ffi::c_int;

use pgrx::pg_sys::{self, Datum};

use crate::versions::columns_of;

unsafe extern "C-unwind" {
    /// A copy of a value in the current memory.
    fn datumCopy(value: Datum, by_value: bool, length: c_int) -> Datum;
}

/// The columns by which a row is sorted: all but the first. `None` is NULL.
#[derive(Default)]
pub(crate) struct Keys(Vec<Option<Datum>>);

impl Keys {
    /// A copy of those of a row, in this memory.
    ///
    /// # Safety
    /// The columns of the row are there.
    pub(crate) unsafe fn of(slot: *mut pg_sys::TupleTableSlot, memory: pg_sys::MemoryContext) -> Self {
        // SAFETY: as promised.
        unsafe {
            let before = pg_sys::MemoryContextSwitchTo(memory);
            let columns = columns_of((*slot).tts_tupleDescriptor);
            let keys = (1..columns.len()).map(|at| {
                let (is_value, length) = (columns[at].attbyval, columns[at].attlen.into());
                value(slot, at).map(|value| datumCopy(value, is_value, length))
            });
            let keys = Self(keys.collect());
            pg_sys::MemoryContextSwitchTo(before);
            keys
        }
    }
}

/// Whether a row comes before a place in an order, not only beside it.
///
/// # Safety
/// The columns of the row are there, the first and one for each clause; so are those of the place.
pub(crate) unsafe fn comes_before(
    slot: *mut pg_sys::TupleTableSlot,
    place: &Keys,
    order: &[*mut pg_sys::SortGroupClause],
) -> bool {
    for ((at, other), clause) in (1..).zip(&place.0).zip(order) {
        // SAFETY: as promised; the operators are those by which the server sorts.
        unsafe {
            let holds = |operator, left, right| {
                let collation = columns_of((*slot).tts_tupleDescriptor)[at].attcollation;
                pg_sys::OidFunctionCall2Coll(pg_sys::get_opcode(operator), collation, left, right).value() != 0
            };
            match (value(slot, at), *other) {
                (None, None) => {}
                (None, Some(_)) => return (**clause).nulls_first,
                (Some(_), None) => return !(**clause).nulls_first,
                (Some(own), Some(other)) if holds((**clause).sortop, own, other) => return true,
                (Some(own), Some(other)) if !holds((**clause).eqop, own, other) => return false,
                (Some(_), Some(_)) => {}
            }
        }
    }
    false
}

unsafe fn value(slot: *mut pg_sys::TupleTableSlot, at: usize) -> Option<Datum> {
    // SAFETY: the columns of the row are there.
    unsafe { (!*(*slot).tts_isnull.add(at)).then(|| *(*slot).tts_values.add(at)) }
}
