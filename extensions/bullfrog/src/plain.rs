//! Rows of a new table whose columns are columns of the old one as they are: nothing of them is evaluated, so they are copied without a statement. To begin and end one costs as
//! much as to copy a row.

use std::cell::{Cell, RefCell};

use pgrx::pg_sys::submodules::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, Datum, ItemPointerData, Oid};

use crate::flaws::{self, Flaw};
use crate::stops::reach;
use crate::versions::insert_into_indexes;

/// How a new table's rows are made of an old one's.
pub(crate) struct Plain {
    /// Of each column of the new table, which column of the old one it is.
    pub(crate) columns: Vec<i16>,
    pub(crate) old: Oid,
    pub(crate) new: Oid,
}

/// A table that is written without a statement.
pub(crate) struct Writing {
    relation: pg_sys::Relation,
    state: *mut pg_sys::EState,
    info: *mut pg_sys::ResultRelInfo,
    row: *mut pg_sys::TupleTableSlot,
    outer_memory: pg_sys::MemoryContext,
}

impl Writing {
    /// Opens a table. None if something would have to be evaluated for its rows: a check, an expression or a condition of an index, or what somebody made for its keys. No
    /// trigger will fire. `may_be_taken`: its rows are written by [`Self::write_unless_taken`].
    ///
    /// # Safety
    /// A transaction is under way. What begins here ends by [`Self::end`], or with the (sub)transaction.
    pub(crate) unsafe fn begin(table: Oid, may_be_taken: bool) -> Option<Self> {
        // SAFETY: as the server does it for rows that it gets from elsewhere.
        unsafe {
            let relation = pg_sys::table_open(table, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE);
            if !is_as_it_is(relation) {
                pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
                return None;
            }
            let state = pg_sys::CreateExecutorState();
            let outer_memory = pg_sys::MemoryContextSwitchTo((*state).es_query_cxt);
            let info = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
            (*info).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            pg_sys::InitResultRelInfo(info, relation, 0, std::ptr::null_mut(), 0);
            (*info).ri_TrigDesc = std::ptr::null_mut();
            pg_sys::ExecOpenIndices(info, may_be_taken);
            let row = pg_sys::MakeSingleTupleTableSlot((*relation).rd_att, &raw const pg_sys::TTSOpsVirtual);
            Some(Self { relation, state, info, row, outer_memory })
        }
    }

    /// How many columns it has.
    pub(crate) unsafe fn columns(&self) -> usize {
        // SAFETY: an open table.
        unsafe { usize::try_from((*(*self.relation).rd_att).natts).unwrap_or(0) }
    }

    /// Writes a row of these values; `None` is NULL.
    ///
    /// # Safety
    /// They are values of the columns of the table, all of them.
    pub(crate) unsafe fn write(&self, values: impl Iterator<Item = Option<Datum>>) {
        // SAFETY: as promised.
        unsafe {
            self.fill(values);
            pg_sys::ExecSimpleRelationInsert(self.info, self.state, self.row);
            self.forget();
        }
    }

    /// Writes a row of these values unless its key is taken, or about to be: tells whether it has. Nothing of it is left then.
    ///
    /// # Safety
    /// As of [`Self::write`], and the values are such as NOT NULL allows: that is not checked here.
    pub(crate) unsafe fn write_unless_taken(&self, values: impl Iterator<Item = Option<Datum>>) -> bool {
        if flaws::is_set(Flaw::MarksAtOnce) {
            // SAFETY: as promised.
            unsafe { self.write(values) };
            return true;
        }
        // SAFETY: as the server does it for ON CONFLICT DO NOTHING: others wait for the token, not for the transaction, until it is known whether the row stays.
        unsafe {
            let methods = (*self.relation).rd_tableam;
            let (Some(insert), Some(complete)) =
                ((*methods).tuple_insert_speculative, (*methods).tuple_complete_speculative)
            else {
                self.write(values);
                return true;
            };
            self.fill(values);
            let owner = pg_sys::GetCurrentTransactionId();
            let token = pg_sys::SpeculativeInsertionLockAcquire(owner);
            let command = pg_sys::GetCurrentCommandId(true);
            pg_guard_ffi_boundary(|| insert(self.relation, self.row, command, 0, std::ptr::null_mut(), token));
            let is_taken = insert_into_indexes(self.info, self.row, self.state);
            reach("move: marking");
            pg_guard_ffi_boundary(|| complete(self.relation, self.row, token, !is_taken));
            pg_sys::SpeculativeInsertionLockRelease(owner);
            self.forget();
            !is_taken
        }
    }

    /// Makes the row of values.
    unsafe fn fill(&self, values: impl Iterator<Item = Option<Datum>>) {
        // SAFETY: a row that holds nothing of its own, of which all columns are set.
        unsafe {
            if let Some(clear) = (*(*self.row).tts_ops).clear {
                pg_guard_ffi_boundary(|| clear(self.row));
            }
            for (at, value) in values.enumerate() {
                *(*self.row).tts_values.add(at) = value.unwrap_or(Datum::from(0));
                *(*self.row).tts_isnull.add(at) = value.is_none();
            }
            pg_sys::ExecStoreVirtualTuple(self.row);
        }
    }

    /// Gives back what the last row took.
    unsafe fn forget(&self) {
        // SAFETY: nothing of it is used any more.
        unsafe {
            let each = (*self.state).es_per_tuple_exprcontext;
            if !each.is_null() {
                pg_sys::MemoryContextReset((*each).ecxt_per_tuple_memory);
            }
        }
    }

    /// Closes the table. What was written, later commands of the transaction see.
    ///
    /// # Safety
    /// Nothing else uses it.
    pub(crate) unsafe fn end(self) {
        // SAFETY: in the order in which they were opened; the table stays locked.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.row);
            pg_sys::ExecCloseIndices(self.info);
            pg_sys::MemoryContextSwitchTo(self.outer_memory);
            pg_sys::FreeExecutorState(self.state);
            pg_sys::table_close(self.relation, pg_sys::NoLock as pg_sys::LOCKMODE);
            pg_sys::CommandCounterIncrement();
        }
    }
}

thread_local! {
    /// Tables for whose rows nothing is evaluated, as far as there was no news of them since.
    static AS_THEY_ARE: RefCell<Vec<Oid>> = const { RefCell::new(Vec::new()) };
    /// How often there was.
    static NEWS: Cell<u64> = const { Cell::new(0) };
}

/// Looks at a table anew. To be called with news of relations; none in particular: all. What comes to a table that is to be evaluated, be it an index, is news of the table.
pub(crate) fn forget(relation: Oid) {
    NEWS.set(NEWS.get().wrapping_add(1));
    AS_THEY_ARE.with_borrow_mut(|known| known.retain(|table| relation != Oid::INVALID && *table != relation));
}

/// Whether nothing is evaluated for rows that are written to a table, which is open.
unsafe fn is_as_it_is(relation: pg_sys::Relation) -> bool {
    // SAFETY: as promised.
    unsafe {
        let table = (*relation).rd_id;
        if AS_THEY_ARE.with_borrow(|known| known.contains(&table)) {
            return true;
        }
        loop {
            let before = NEWS.get();
            if evaluates(relation) {
                return false;
            }
            // To open an index may bring news of what was looked at. All of them are locked now, so that a second look brings none of them.
            if NEWS.get() == before {
                AS_THEY_ARE.with_borrow_mut(|known| known.push(table));
                return true;
            }
        }
    }
}

/// Whether something is evaluated for rows that are written to a table.
unsafe fn evaluates(relation: pg_sys::Relation) -> bool {
    // SAFETY: an open table, each of whose indexes is opened and closed.
    unsafe {
        let constraints = (*(*relation).rd_att).constr;
        let list = pg_sys::RelationGetIndexList(relation);
        let count = if list.is_null() { 0 } else { (*list).length as usize };
        !constraints.is_null() && ((*constraints).num_check > 0 || (*constraints).has_generated_stored)
            || (0..count).any(|at| {
                let index = pg_sys::index_open(
                    (*(*list).elements.add(at)).oid_value,
                    pg_sys::RowExclusiveLock as pg_sys::LOCKMODE,
                );
                let has =
                    has_expressions(index) || (*(*index).rd_index).indisexclusion || !is_of_the_server(relation, index);
                pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
                has
            })
    }
}

/// Whether all that an index calls for its keys is the server's own: a type of somebody's may have functions, as a range has one for the distance of two values.
unsafe fn is_of_the_server(table: pg_sys::Relation, index: pg_sys::Relation) -> bool {
    let is_own = |object: Oid| object.to_u32() < pg_sys::FirstNormalObjectId;
    // SAFETY: an open index has a family of operators for each key, and so many functions as its method supports. What it keeps may have another type than the column.
    unsafe {
        let keys = usize::try_from((*(*index).rd_index).indnkeyatts).unwrap_or(0);
        let functions = keys * usize::from((*(*index).rd_indam).amsupport);
        (0..functions).all(|at| is_own(*(*index).rd_support.add(at)))
            && (0..keys).all(|at| is_own(*(*index).rd_opfamily.add(at)))
            && (*(*index).rd_index).indkey.values.as_slice(keys).iter().all(|column| {
                let kind = pg_sys::getBaseType(pg_sys::get_atttype((*table).rd_id, *column));
                is_own(kind) || pg_sys::get_typtype(kind) as u8 == pg_sys::TYPTYPE_ENUM
            })
    }
}

/// Whether an index has expressions or a condition. To look at these themselves is to have the server evaluate what is constant in them, with the rights of whoever looks.
///
/// # Safety
/// `index` is an open index.
pub(crate) unsafe fn has_expressions(index: pg_sys::Relation) -> bool {
    // SAFETY: an open index has its row of the catalog.
    unsafe {
        let is_null = |column: u32| pg_sys::heap_attisnull((*index).rd_indextuple, column as i32, std::ptr::null_mut());
        !is_null(pg_sys::Anum_pg_index_indexprs) || !is_null(pg_sys::Anum_pg_index_indpred)
    }
}

impl Plain {
    /// Copies the rows at these places. Gives how many. None if it takes a statement.
    ///
    /// # Safety
    /// A transaction is under way, the tables are locked, the old one against changes.
    pub(crate) unsafe fn copy(&self, places: &[ItemPointerData]) -> Option<u64> {
        // SAFETY: as promised. Values live as long as the row in which they were found.
        unsafe {
            let writing = Writing::begin(self.new, false)?;
            let old = pg_sys::table_open(self.old, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            let found = pg_sys::table_slot_create(old, std::ptr::null_mut());
            let last = self.columns.iter().copied().max().unwrap_or(0).into();
            let mut copied = 0;
            // As a statement would have it, whatever the one under way sees.
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            let snapshot = pg_sys::GetActiveSnapshot();
            if let Some(fetch) = (*(*old).rd_tableam).tuple_fetch_row_version {
                for place in places {
                    pgrx::check_for_interrupts!();
                    let mut place = *place;
                    if !pg_guard_ffi_boundary(|| fetch(old, &raw mut place, snapshot, found)) {
                        continue;
                    }
                    if i32::from((*found).tts_nvalid) < last {
                        pg_sys::slot_getsomeattrs_int(found, last);
                    }
                    writing.write(self.columns.iter().map(|column| {
                        let at = *column as usize - 1;
                        (!*(*found).tts_isnull.add(at)).then(|| *(*found).tts_values.add(at))
                    }));
                    copied += 1;
                }
            }
            pg_sys::PopActiveSnapshot();
            pg_sys::ExecDropSingleTupleTableSlot(found);
            pg_sys::table_close(old, pg_sys::NoLock as pg_sys::LOCKMODE);
            writing.end();
            Some(copied)
        }
    }
}
