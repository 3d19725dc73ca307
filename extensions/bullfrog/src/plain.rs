//! Rows of a new table whose columns are columns of the old one as they are: nothing of them is evaluated, so they are copied without a statement. To begin and end one costs as
//! much as to copy a row.

use pgrx::pg_sys::submodules::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, Datum, ItemPointerData, Oid};

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
    /// Opens a table. None if something would have to be evaluated for its rows: a check, an expression or a condition of an index. No trigger will fire.
    ///
    /// # Safety
    /// A transaction is under way. What begins here ends by [`Self::end`], or with the (sub)transaction.
    pub(crate) unsafe fn begin(table: Oid) -> Option<Self> {
        // SAFETY: as the server does it for rows that it gets from elsewhere.
        unsafe {
            let relation = pg_sys::table_open(table, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE);
            if evaluates(relation) {
                pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
                return None;
            }
            let state = pg_sys::CreateExecutorState();
            let outer_memory = pg_sys::MemoryContextSwitchTo((*state).es_query_cxt);
            let info = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
            (*info).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            pg_sys::InitResultRelInfo(info, relation, 0, std::ptr::null_mut(), 0);
            (*info).ri_TrigDesc = std::ptr::null_mut();
            pg_sys::ExecOpenIndices(info, false);
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
            pg_sys::ExecSimpleRelationInsert(self.info, self.state, self.row);
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
                let has = has_expressions(index) || (*(*index).rd_index).indisexclusion;
                pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
                has
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
            let writing = Writing::begin(self.new)?;
            let old = pg_sys::table_open(self.old, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
            let found = pg_sys::table_slot_create(old, std::ptr::null_mut());
            let last = self.columns.iter().copied().max().unwrap_or(0).into();
            let mut copied = 0;
            // As a statement would have it, whatever the one under way sees.
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            let snapshot = pg_sys::GetActiveSnapshot();
            if let Some(fetch) = (*(*old).rd_tableam).tuple_fetch_row_version {
                for place in places {
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
