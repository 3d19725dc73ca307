//! Row triggers of tables on the move. They run for each row that is written, so their statements are prepared once in a session, and
//! their arguments say everything: what is kept of a session's own news of tables need not know of them.

use std::cell::RefCell;
use std::ffi::c_int;
use std::str::FromStr;

use bullfrog_model::board::Wanted;
use bullfrog_model::horizon::Horizon;
use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::{self, Datum, HeapTuple, Oid};
use pgrx::prelude::*;
use pgrx::spi::OwnedPreparedStatement;

use crate::errors::{defect, raise};
use crate::live::was_there_before;
use crate::moving::copies;
use crate::nodes;
use crate::registry;
use crate::requests::have_moved;
use crate::rights::with_rights_of;
use crate::slowing::rest_if_slowed;
use crate::statements::run;
use crate::versions::{attributes, local_transaction};

/// Moves old rows whose key a new row may have, before the row is written: then a unique index decides. Arguments: for each unique
/// index the columns that its keys are made of, and the query for the granules of old rows that have the key of given values there.
#[pg_extern(sql = false)]
fn guard(call: pg_sys::FunctionCallInfo) -> PgBox<pg_sys::HeapTupleData> {
    // SAFETY: a call by the server for a row.
    unsafe {
        let event = Event::of(call);
        let registry = registry::current();
        // A table that has all rows keeps its triggers until nobody uses it for a moment.
        if let Some(target) = registry.target((*event.relation).rd_id).filter(|_| !copies()) {
            let source = target.source;
            for key in registry.guard((*event.trigger).tgoid, || event.keys()).iter() {
                key.free(&event, source);
            }
        }
        PgBox::from_pg(event.written)
    }
}

/// Keeps a row of a table that stays in use as it was at the switch, if it was there. Arguments: the two that tell that
/// ([`crate::live`]), and the statement that keeps a row, of its columns and its place.
#[pg_extern(sql = false)]
fn keep(call: pg_sys::FunctionCallInfo) -> PgBox<pg_sys::HeapTupleData> {
    // SAFETY: a call by the server for a row, which has a number as its first field.
    unsafe {
        let event = Event::of(call);
        let keeping = registry::current().keeping((*event.trigger).tgoid, || Keeping::of(&event));
        let writer = (*(*event.before).t_data).t_choice.t_heap.t_xmin;
        if was_there_before(writer, keeping.horizon, keeping.others.iter().copied()) {
            let place = DatumWithOid::new((*event.before).t_self, pg_sys::TIDOID);
            let columns = keeping.columns.iter();
            let values: Vec<_> = columns.map(|column| event.value(event.before, column)).chain([place]).collect();
            with_rights_of(event.owner(), || {
                run(|client| client.update(&keeping.statement, None, &values).map(|_| ()));
            });
        }
        PgBox::from_pg(event.written)
    }
}

/// Notes the key of a row that a client writes, as it was and as it is, for who compares the table meanwhile. Arguments: the columns of the
/// key, and the statement that notes one.
#[pg_extern(sql = false)]
fn note(call: pg_sys::FunctionCallInfo) -> PgBox<pg_sys::HeapTupleData> {
    // SAFETY: a call by the server for a row.
    unsafe {
        let event = Event::of(call);
        // What moves is the same in both schemas.
        if !copies() {
            let noting = registry::current().noting((*event.trigger).tgoid, || Noting::of(&event));
            noting.note(&event, event.before);
            if event.written != event.before
                && event.image(event.written, &noting.columns) != event.image(event.before, &noting.columns)
            {
                noting.note(&event, event.written);
            }
            rest_if_slowed((*event.relation).rd_id);
        }
        PgBox::from_pg(event.written)
    }
}

/// What a trigger knows of a table whose writes are noted.
pub(crate) struct Noting {
    columns: Vec<Column>,
    statement: OwnedPreparedStatement,
}

impl Noting {
    unsafe fn of(event: &Event) -> Self {
        // SAFETY: the arguments are those that bullfrog gave.
        unsafe {
            let columns = event.columns_named(0);
            Self { statement: event.prepared(&event.argument(1), columns.iter().map(|column| column.kind)), columns }
        }
    }

    unsafe fn note(&self, event: &Event, row: HeapTuple) {
        // SAFETY: as for the event.
        unsafe {
            let values: Vec<_> = self.columns.iter().map(|column| event.value(row, column)).collect();
            with_rights_of(event.owner(), || run(|client| client.update(&self.statement, None, &values).map(|_| ())));
        }
    }
}

/// What a trigger knows of a table that stays in use.
pub(crate) struct Keeping {
    horizon: Horizon,
    others: Vec<i64>,
    columns: Vec<Column>,
    statement: OwnedPreparedStatement,
}

impl Keeping {
    unsafe fn of(event: &Event) -> Self {
        // SAFETY: the arguments are those that bullfrog gave.
        unsafe {
            let columns = event.columns();
            let types = columns.iter().map(|column| column.kind).chain([pg_sys::TIDOID]);
            Self {
                horizon: Horizon(event.argument(0).parse().unwrap_or_else(|error| defect(&error))),
                others: numbers(&event.argument(1)).collect(),
                statement: event.prepared(&event.argument(2), types),
                columns,
            }
        }
    }
}

/// Numbers with spaces between them.
fn numbers<T: FromStr>(text: &str) -> impl Iterator<Item = T> {
    text.split(' ').filter_map(|number| number.parse().ok())
}

/// A row that is about to be written.
struct Event {
    relation: pg_sys::Relation,
    trigger: *mut pg_sys::Trigger,
    /// The row as it was; of an insert, the new one.
    before: HeapTuple,
    /// The row as it will be; of a delete, as it was.
    written: HeapTuple,
}

/// A column of its table.
struct Column {
    number: c_int,
    kind: Oid,
    /// Bytes of a value, -1: it tells its length. None: it is in the datum itself.
    length: Option<i16>,
}

impl Event {
    unsafe fn of(call: pg_sys::FunctionCallInfo) -> Self {
        // SAFETY: the context of a trigger's call is what its tag says.
        unsafe {
            let context = (*call).context;
            if context.is_null() || nodes::tag(context) != pg_sys::NodeTag::T_TriggerData {
                raise(
                    PgSqlErrorCode::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                    "this function is called by triggers only",
                    "bullfrog.migrate creates them.",
                );
            }
            let data = &*context.cast::<pg_sys::TriggerData>();
            let is_update = data.tg_event & pg_sys::TRIGGER_EVENT_OPMASK == pg_sys::TRIGGER_EVENT_UPDATE;
            let before = data.tg_trigtuple;
            let written = if is_update { data.tg_newtuple } else { before };
            Self { relation: data.tg_relation, trigger: data.tg_trigger, before, written }
        }
    }

    /// The owner of the table, with whose rights everything here runs.
    unsafe fn owner(&self) -> Oid {
        // SAFETY: an open relation.
        unsafe { (*(*self.relation).rd_rel).relowner }
    }

    unsafe fn argument(&self, number: usize) -> String {
        // SAFETY: a trigger of bullfrog has the arguments that it was created with.
        unsafe { nodes::text(*(*self.trigger).tgargs.add(number)) }
    }

    /// The columns of the table.
    unsafe fn columns(&self) -> Vec<Column> {
        // SAFETY: the description of an open relation.
        unsafe {
            let present = attributes(self.relation).iter().filter(|attribute| !attribute.attisdropped);
            let column = |attribute: &pg_sys::FormData_pg_attribute| Column {
                number: attribute.attnum.into(),
                kind: attribute.atttypid,
                length: (!attribute.attbyval).then_some(attribute.attlen),
            };
            present.map(column).collect()
        }
    }

    /// The columns whose numbers an argument gives, in the order of the table.
    unsafe fn columns_named(&self, argument: usize) -> Vec<Column> {
        // SAFETY: as above.
        unsafe {
            let chosen: Vec<c_int> = numbers(&self.argument(argument)).collect();
            let mut columns = self.columns();
            columns.retain(|column| chosen.contains(&column.number));
            columns
        }
    }

    /// What columns of a row are made of, byte by byte.
    unsafe fn image(&self, row: HeapTuple, columns: &[Column]) -> Vec<u8> {
        let mut image = Vec::new();
        for column in columns {
            // SAFETY: a row of the relation.
            let value = unsafe { self.value(row, column) };
            image.push(u8::from(value.datum().is_some()));
            if let Some(value) = value.datum() {
                // SAFETY: a value of the column.
                unsafe { add_bytes(&mut image, value.sans_lifetime(), column.length) };
            }
        }
        image
    }

    unsafe fn value(&self, row: HeapTuple, column: &Column) -> DatumWithOid<'_> {
        let mut is_null = false;
        // SAFETY: a row of the relation; its values live as long as the event.
        unsafe {
            let value = pg_sys::heap_getattr(row, column.number, (*self.relation).rd_att, &mut is_null);
            if is_null { DatumWithOid::null_oid(column.kind) } else { DatumWithOid::new(value, column.kind) }
        }
    }

    unsafe fn prepared(&self, statement: &str, types: impl Iterator<Item = Oid>) -> OwnedPreparedStatement {
        let types: Vec<PgOid> = types.map(PgOid::from).collect();
        // SAFETY: as in `owner`.
        let owner = unsafe { self.owner() };
        with_rights_of(owner, || run(|client| Ok(client.prepare_mut(statement, &types)?.keep())))
    }

    /// The keys that the arguments tell.
    unsafe fn keys(&self) -> Vec<Key> {
        // SAFETY: as above; arguments come in pairs.
        unsafe {
            let count = usize::try_from((*self.trigger).tgnargs).unwrap_or(0);
            let pairs = (0..count).step_by(2);
            pairs
                .map(|number| {
                    let columns = self.columns_named(number);
                    let granules = self.prepared(&self.argument(number + 1), columns.iter().map(|column| column.kind));
                    Key { columns, granules, last: RefCell::default() }
                })
                .collect()
        }
    }
}

/// A unique index of a new table.
pub(crate) struct Key {
    /// Of the columns that decide what a row's key is those by which old rows are found, in the order of the table.
    columns: Vec<Column>,
    /// The granules of old rows with these values.
    granules: OwnedPreparedStatement,
    /// The values that were free last, and when.
    last: RefCell<Option<(Moment, Vec<u8>)>>,
}

impl Key {
    /// Has old rows moved that have the key of the row.
    unsafe fn free(&self, event: &Event, source: i32) {
        // SAFETY: as for the event.
        unsafe {
            // Also of NULLs: expressions may make a value of them.
            let image = event.image(event.written, &self.columns);
            if event.before != event.written && event.image(event.before, &self.columns) == image {
                return;
            }
            // Rows of a join come several for one row of its driving table.
            if self.last.borrow().as_ref().is_some_and(|(moment, last)| *moment == Moment::now() && *last == image) {
                return;
            }
            let values: Vec<_> = self.columns.iter().map(|column| event.value(event.written, column)).collect();
            with_rights_of(event.owner(), || {
                let mut granules = run(|client| {
                    let rows = client.update(&self.granules, None, &values)?;
                    rows.into_iter().filter_map(|row| row.get::<i64>(1).transpose()).collect::<Result<Vec<_>, _>>()
                });
                granules.sort_unstable();
                granules.dedup();
                have_moved(source, Wanted::Granules, &granules);
            });
            self.last.replace(Some((Moment::now(), image)));
        }
    }
}

/// A command of a (sub)transaction. What was free then is so until it ends: no savepoint is rolled back meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    transaction: pg_sys::LocalTransactionId,
    part: pg_sys::SubTransactionId,
    command: pg_sys::CommandId,
}

impl Moment {
    unsafe fn now() -> Self {
        // SAFETY: a transaction is under way.
        unsafe {
            Self {
                transaction: local_transaction(),
                part: pg_sys::GetCurrentSubTransactionId(),
                command: pg_sys::GetCurrentCommandId(false),
            }
        }
    }
}

/// Adds what tells a value from others that are not the same, byte by byte.
unsafe fn add_bytes(image: &mut Vec<u8>, value: Datum, length: Option<i16>) {
    // SAFETY: a value of a type with this length.
    unsafe {
        let Some(length) = length else {
            image.extend(value.value().to_ne_bytes());
            return;
        };
        let start = value.cast_mut_ptr::<u8>();
        let length = match length {
            -1 => pgrx::varsize_any(start.cast()),
            -2 => std::ffi::CStr::from_ptr(start.cast()).count_bytes() + 1,
            fixed => fixed.unsigned_abs().into(),
        };
        image.extend(std::slice::from_raw_parts(start, length));
    }
}
