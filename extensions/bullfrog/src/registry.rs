//! Which tables are on the move, as this backend knows it: a copy of `bullfrog.target`, read again when the table was
//! announced to have changed. Statements of a backend lock their tables before they are planned, and a lock brings the
//! news of everything that was committed before it, so no plan is made with old news.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use bullfrog_model::granule::Granule;
use pgrx::FromDatum;
use pgrx::pg_sys::{self, Oid};

use crate::errors::defect;
use crate::flaws::{self, Flaw};
use crate::source::Source;
use crate::triggers::{Keeping, Key, Noting};
use crate::versions::Rights;
use crate::{nodes, plain, truth};

/// A new table that does not have all of its rows yet.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its number.
    pub(crate) id: i32,
    /// The number of the source of its rows.
    pub(crate) source: i32,
    /// What is moved at a time.
    pub(crate) granule: Granule,
    /// Rows may move inside of the transaction that needs them.
    pub(crate) is_inside: bool,
    /// It has all rows, in every snapshot that there is on this server.
    is_filled: bool,
    /// The old tables.
    pub(crate) olds: Vec<Oid>,
    /// Those of them that stay in use.
    lives: Vec<Oid>,
    /// Whether clients may read the others as of the switch.
    pub(crate) are_olds_readable: bool,
    /// The new table.
    pub(crate) new: Oid,
    /// The views over the old tables.
    pub(crate) views: Vec<Oid>,
    /// Of each column, which column of the driving table it is; 0: more than that.
    origins: Vec<i16>,
    /// How many rows the new table will have.
    pub(crate) rows: f64,
    /// How many pages.
    pub(crate) pages: f64,
}

impl Target {
    /// Whether a column is one of a join's driving table: rows are looked for by it there alone.
    pub(crate) fn leads_to_candidates(&self, column: i32) -> bool {
        let origin = usize::try_from(column - 1).ok().and_then(|index| self.origins.get(index));
        self.olds.len() > 1 && self.granule != Granule::Group && origin.is_some_and(|origin| *origin > 0)
    }
}

/// All tables on the move in this database.
pub(crate) struct Registry {
    targets: Vec<Target>,
    queries: RefCell<HashMap<(i32, Asked), *mut pg_sys::Query>>,
    sources: RefCell<HashMap<i32, Rc<Source>>>,
    guards: RefCell<HashMap<Oid, Rc<Vec<Key>>>>,
    keepings: RefCell<HashMap<Oid, Rc<Keeping>>>,
    notings: RefCell<HashMap<Oid, Rc<Noting>>>,
    memory: pg_sys::MemoryContext,
}

impl Registry {
    /// Whether nothing is on the move.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The target whose new table this is, if rows of it may not be there yet.
    pub(crate) fn target(&self, new: Oid) -> Option<&Target> {
        self.targets.iter().find(|target| target.new == new && !target.is_filled)
    }

    /// Whether a table belongs to a migration under way.
    pub(crate) fn is_part(&self, table: Oid) -> bool {
        self.targets.iter().any(|target| target.new == table || target.olds.contains(&table))
    }

    /// Whether an old table stays in use.
    pub(crate) fn is_live(&self, table: Oid) -> bool {
        self.targets.iter().any(|target| target.lives.contains(&table))
    }

    /// A target whose old table this is, unless it stays in use.
    pub(crate) fn closed(&self, old: Oid) -> Option<&Target> {
        self.targets.iter().find(|target| target.olds.contains(&old) && !target.lives.contains(&old))
    }

    /// Whether this is a view of bullfrog's own over old tables.
    pub(crate) fn is_own_view(&self, relation: Oid) -> bool {
        self.targets.iter().any(|target| target.views.contains(&relation))
    }

    /// Lets everybody use one of these views. What it reads, it reads with the rights of its owner, a superuser.
    ///
    /// # Safety
    /// What a query of our own needs of a relation.
    pub(crate) unsafe fn open_view(&self, rights: *mut Rights) {
        // SAFETY: as promised.
        unsafe {
            if self.is_own_view((*rights).relid) {
                (*rights).requiredPerms = 0;
            }
        }
    }

    /// All targets.
    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// A source of rows, if its statements were prepared before.
    pub(crate) fn known_source(&self, id: i32) -> Option<Rc<Source>> {
        self.sources.borrow().get(&id).cloned()
    }

    /// A source of rows, with its statements prepared. None if the transaction does not see it.
    pub(crate) fn source(&self, id: i32) -> Option<Rc<Source>> {
        if let Some(source) = self.known_source(id) {
            return Some(source);
        }
        let source = Rc::new(Source::read(id)?);
        self.sources.borrow_mut().insert(id, Rc::clone(&source));
        Some(source)
    }

    /// The keys that a trigger guards, their statements prepared.
    pub(crate) fn guard(&self, trigger: Oid, keys: impl FnOnce() -> Vec<Key>) -> Rc<Vec<Key>> {
        prepared(&self.guards, trigger, keys)
    }

    /// What a trigger that keeps rows knows, its statement prepared.
    pub(crate) fn keeping(&self, trigger: Oid, keeping: impl FnOnce() -> Keeping) -> Rc<Keeping> {
        prepared(&self.keepings, trigger, keeping)
    }

    /// What a trigger that notes writes knows, its statement prepared.
    pub(crate) fn noting(&self, trigger: Oid, noting: impl FnOnce() -> Noting) -> Rc<Noting> {
        prepared(&self.notings, trigger, noting)
    }

    /// A new copy of a query about a target's rows, its relations locked.
    pub(crate) fn query(&self, target: &Target, asked: Asked) -> *mut pg_sys::Query {
        let key = (target.id, asked);
        let found = self.queries.borrow().get(&key).copied();
        // SAFETY: trees in `memory` live as long as the registry; the copy is the caller's.
        unsafe {
            let query = found.unwrap_or_else(|| {
                let query = nodes::rewritten(&asked.text(target));
                let before = pg_sys::MemoryContextSwitchTo(self.memory);
                let query = nodes::copy(query);
                pg_sys::MemoryContextSwitchTo(before);
                self.queries.borrow_mut().insert(key, query);
                query
            });
            let query = nodes::copy(query);
            pg_sys::AcquireRewriteLocks(query, true, false);
            query
        }
    }
}

/// What is asked about a target's rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    /// All of them, in the new table and behind a barrier ([`crate::barrier`]) those that were not moved.
    All,
    /// The granule of each row that was not moved. The first relation has the new table's columns by their numbers.
    Granules,
    /// The same, for conditions that need a barrier.
    GranulesBehindBarrier,
    /// The same, but of granules that others have in progress.
    FreeGranulesBehindBarrier,
    /// The same of each row of a join's driving table that may give such rows. Only columns that are its own may be used, and only in
    /// conditions that need no barrier.
    Candidates,
}

impl Asked {
    fn text(self, target: &Target) -> String {
        let id = target.id;
        let name = match target.granule {
            Granule::Page => "page",
            Granule::Tuple | Granule::Group => "place",
        };
        let granules = |rows: &str| format!("SELECT bullfrog.{name}(u.bullfrog_tid) FROM {rows} u");
        match self {
            Self::All => {
                let names = column_names(target.new);
                let new = qualified_name(target.new);
                format!("SELECT {names} FROM ONLY {new} UNION ALL SELECT {names} FROM bullfrog.unmoved_{id}")
            }
            Self::Granules => granules(&format!("bullfrog.unmoved_{id}")),
            Self::GranulesBehindBarrier => granules(&format!("(SELECT * FROM bullfrog.unmoved_{id})")),
            Self::FreeGranulesBehindBarrier => {
                let all = granules(&format!("(SELECT * FROM bullfrog.unmoved_{id})"));
                format!("{all} WHERE NOT bullfrog.is_in_progress({}, bullfrog.{name}(u.bullfrog_tid))", target.source)
            }
            Self::Candidates => granules(&format!("bullfrog.candidates_{id}")),
        }
    }
}

fn prepared<T>(known: &RefCell<HashMap<Oid, Rc<T>>>, trigger: Oid, new: impl FnOnce() -> T) -> Rc<T> {
    if let Some(found) = known.borrow().get(&trigger) {
        return Rc::clone(found);
    }
    let new = Rc::new(new());
    known.borrow_mut().insert(trigger, Rc::clone(&new));
    new
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
    if !flaws::is_set(Flaw::NewsUnheard) {
        truth::forget(relation);
        plain::forget(relation);
    }
}

unsafe extern "C-unwind" fn schema_changed(_: pg_sys::Datum, _: std::ffi::c_int, _: u32) {
    VALID.set(false);
    truth::forget(Oid::INVALID);
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
        let registry = Registry {
            targets,
            queries: RefCell::default(),
            sources: RefCell::default(),
            guards: RefCell::default(),
            keepings: RefCell::default(),
            notings: RefCell::default(),
            memory,
        };
        CURRENT.set(Some(Rc::new(registry)));
    }
}

/// Reads `bullfrog.target` as of now, whatever snapshot the transaction has.
fn load() -> Vec<Target> {
    const COLUMNS: usize = 17;
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
            let real = |i: usize| f64::from_datum(values[i], nulls[i]).unwrap_or(0.0);
            let oids = |i: usize| Vec::<Oid>::from_datum(values[i], false).unwrap_or_default();
            targets.push(Target {
                id: number(0),
                source: number(1),
                granule: granule(values[2]),
                is_inside: values[3].value() != 0,
                // A standby may have snapshots that the server does not know of.
                is_filled: values[4].value() != 0 && !pg_sys::RecoveryInProgress(),
                olds: oids(5),
                lives: oids(6),
                are_olds_readable: values[7].value() != 0,
                new: Oid::from_u32(values[8].value() as u32),
                views: oids(9),
                rows: real(10),
                pages: real(11),
                origins: Vec::from_datum(values[12], false).unwrap_or_default(),
            });
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, access_share);
    }
    targets
}

/// A table of the extension's schema.
pub(crate) fn own_table(name: &std::ffi::CStr) -> Oid {
    // SAFETY: looks names up in the catalogs.
    unsafe { pg_sys::get_relname_relid(name.as_ptr(), pg_sys::get_namespace_oid(c"bullfrog".as_ptr(), true)) }
}

unsafe fn granule(value: pg_sys::Datum) -> Granule {
    // SAFETY: the column is a text and NOT NULL.
    let text = unsafe { String::from_datum(value, false) }.unwrap_or_default();
    text.parse().unwrap_or_else(|error| defect(&error))
}

/// The name of a table with its schema, quoted. Of one that is gone, its number.
pub(crate) fn qualified_name(relation: Oid) -> String {
    // SAFETY: looks names up in the catalogs.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        if name.is_null() {
            return relation.to_string();
        }
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        nodes::text(pg_sys::quote_qualified_identifier(schema, name))
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
