//! Which tables are on the move, as this backend knows it: a copy of `bullfrog.target`, read again when the table was
//! announced to have changed. Statements of a backend lock their tables before they are planned, and a lock brings the
//! news of everything that was committed before it, so no plan is made with old news.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use bullfrog_model::board::Unit;
use pgrx::FromDatum;
use pgrx::pg_sys::{self, Oid};

use crate::nodes;

/// A new table that does not have all of its rows yet.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its number.
    pub(crate) id: i32,
    /// The number of the source of its rows.
    pub(crate) source: i32,
    /// By what its rows move.
    pub(crate) unit: Unit,
    /// The old tables.
    pub(crate) olds: Vec<Oid>,
    /// Whether clients may read them as of the switch.
    pub(crate) are_olds_readable: bool,
    /// The new table.
    pub(crate) new: Oid,
    /// The views over the old tables.
    pub(crate) views: Vec<Oid>,
}

/// All tables on the move in this database.
#[derive(Debug)]
pub(crate) struct Registry {
    targets: Vec<Target>,
    reads: RefCell<HashMap<i32, *mut pg_sys::Query>>,
    touches: RefCell<HashMap<i32, *mut pg_sys::Query>>,
    memory: pg_sys::MemoryContext,
}

impl Registry {
    /// Whether nothing is on the move.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The target whose new table this is.
    pub(crate) fn target(&self, new: Oid) -> Option<&Target> {
        self.targets.iter().find(|target| target.new == new)
    }

    /// A target whose old table this is.
    pub(crate) fn closed(&self, old: Oid) -> Option<&Target> {
        self.targets.iter().find(|target| target.olds.contains(&old))
    }

    /// Whether this is a view of bullfrog's own over old tables.
    pub(crate) fn is_own_view(&self, relation: Oid) -> bool {
        self.targets.iter().any(|target| target.views.contains(&relation))
    }

    /// All targets.
    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// A new copy of the query that reads a new table with the rows that were not moved, its relations locked.
    pub(crate) fn read_query(&self, target: &Target) -> *mut pg_sys::Query {
        self.copy_of(&self.reads, target.id, || {
            let names = column_names(target.new);
            format!(
                "SELECT {names} FROM ONLY {} UNION ALL SELECT {names} FROM bullfrog.unmoved_{}",
                qualified_name(target.new),
                target.id
            )
        })
    }

    /// A new copy of the query that tells the pages or groups of rows that were not moved, its relations locked. Its first
    /// relation has the new table's columns by their numbers.
    pub(crate) fn touch_query(&self, target: &Target) -> *mut pg_sys::Query {
        self.copy_of(&self.touches, target.id, || {
            let granule = match target.unit {
                Unit::Page => "page",
                Unit::Group => "place",
            };
            format!("SELECT DISTINCT bullfrog.{granule}(u.bullfrog_tid) FROM bullfrog.unmoved_{} u", target.id)
        })
    }

    fn copy_of(
        &self,
        kept: &RefCell<HashMap<i32, *mut pg_sys::Query>>,
        id: i32,
        sql: impl FnOnce() -> String,
    ) -> *mut pg_sys::Query {
        let found = kept.borrow().get(&id).copied();
        // SAFETY: trees in `memory` live as long as the registry; the copy is the caller's.
        unsafe {
            let query = found.unwrap_or_else(|| {
                let query = nodes::rewritten(&sql());
                let before = pg_sys::MemoryContextSwitchTo(self.memory);
                let query = nodes::copy(query);
                pg_sys::MemoryContextSwitchTo(before);
                kept.borrow_mut().insert(id, query);
                query
            });
            let query = nodes::copy(query);
            pg_sys::AcquireRewriteLocks(query, true, false);
            query
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // SAFETY: made with the registry; what was handed out were copies.
        unsafe { pg_sys::MemoryContextDelete(self.memory) };
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Registry>>> = const { RefCell::new(None) };
    static VALID: Cell<bool> = const { Cell::new(false) };
    static TABLE: Cell<Oid> = const { Cell::new(Oid::INVALID) };
}

/// Asks the server for news. To be called once per process.
pub(crate) fn watch() {
    // SAFETY: the callbacks take what the server gives them and do nothing that can fail.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(table_changed), pg_sys::Datum::from(0));
        // The extension's schema comes and goes with the extension.
        pg_sys::CacheRegisterSyscacheCallback(
            pg_sys::SysCacheIdentifier::NAMESPACEOID as _,
            Some(schema_changed),
            pg_sys::Datum::from(0),
        );
    }
}

unsafe extern "C-unwind" fn table_changed(_: pg_sys::Datum, relation: Oid) {
    if relation == Oid::INVALID || relation == TABLE.get() {
        VALID.set(false);
    }
}

unsafe extern "C-unwind" fn schema_changed(_: pg_sys::Datum, _: std::ffi::c_int, _: u32) {
    VALID.set(false);
}

/// What is on the move now. To be called in a transaction.
pub(crate) fn current() -> Rc<Registry> {
    loop {
        if VALID.get()
            && let Some(registry) = CURRENT.with_borrow(Clone::clone)
        {
            return registry;
        }
        // News may come while the table is read; then it is read again.
        CURRENT.set(None);
        VALID.set(true);
        let targets = load();
        // SAFETY: the server frees a child of this context when it ends.
        let memory = unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::CacheMemoryContext,
                c"bullfrog registry".as_ptr(),
                0,
                8 * 1024,
                8 * 1024 * 1024,
            )
        };
        let registry = Registry { targets, reads: RefCell::default(), touches: RefCell::default(), memory };
        CURRENT.set(Some(Rc::new(registry)));
    }
}

/// Reads `bullfrog.target` as of now, whatever snapshot the transaction has.
fn load() -> Vec<Target> {
    const COLUMNS: usize = 11;
    let mut targets = Vec::new();
    // SAFETY: calls of the server in the order it wants them; the table has the columns of the SQL script, because it
    // belongs to the extension.
    unsafe {
        let extension = pg_sys::get_extension_oid(c"bullfrog".as_ptr(), true);
        let schema = pg_sys::get_namespace_oid(c"bullfrog".as_ptr(), true);
        if extension == Oid::INVALID || schema == Oid::INVALID {
            return targets;
        }
        let table = pg_sys::get_relname_relid(c"target".as_ptr(), schema);
        if table == Oid::INVALID || pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, table) != extension {
            return targets;
        }
        TABLE.set(table);
        let access_share = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let relation = pg_sys::table_open(table, access_share);
        let scan =
            pg_sys::systable_beginscan(relation, Oid::INVALID, false, std::ptr::null_mut(), 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let mut values = [pg_sys::Datum::from(0); COLUMNS];
            let mut nulls = [true; COLUMNS];
            pg_sys::heap_deform_tuple(tuple, (*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            if nulls[COLUMNS - 1] {
                continue;
            }
            let number = |i: usize| values[i].value() as u32 as i32;
            let oids = |i: usize| Vec::<Oid>::from_datum(values[i], false).unwrap_or_default();
            targets.push(Target {
                id: number(0),
                source: number(1),
                unit: if values[2].value() == 0 { Unit::Page } else { Unit::Group },
                olds: oids(3),
                are_olds_readable: values[4].value() != 0,
                new: Oid::from_u32(values[5].value() as u32),
                views: oids(6),
            });
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, access_share);
    }
    targets
}

/// The name of a table with its schema, quoted.
pub(crate) fn qualified_name(relation: Oid) -> String {
    // SAFETY: a relation that is locked has a name and a schema.
    unsafe {
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        nodes::text(pg_sys::quote_qualified_identifier(schema, pg_sys::get_rel_name(relation)))
    }
}

/// The names of a table's columns, quoted, with commas.
fn column_names(relation: Oid) -> String {
    let mut names = Vec::new();
    for number in 1.. {
        // SAFETY: gives null behind the last column.
        unsafe {
            let name = pg_sys::get_attname(relation, number, true);
            if name.is_null() {
                break;
            }
            names.push(nodes::text(pg_sys::quote_identifier(name)));
        }
    }
    names.join(", ")
}
