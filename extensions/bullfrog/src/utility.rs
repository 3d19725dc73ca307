//! Statements that do not pass the planner. `COPY table TO` (and so pg_dump) becomes `COPY (SELECT ..) TO`, which does. What
//! would change a table on the move in a way that a migration cannot follow is refused: by name where the statement
//! commits by itself, else by comparing the tables with what they were at the switch. A statement may wait for a switch, so what
//! counts is what is on the move once it has its locks; for those that commit by themselves see [`crate::objects`].

use std::cell::RefCell;
use std::ffi::{CStr, c_char};

use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::errors::raise;
use crate::locks::announce_change;
use crate::nodes;
use crate::passing::{as_they_are, remembering};
use crate::reading::refuse_old;
use crate::registry::{self, Registry, Target};
use crate::settings::DUMP_CLOSED;
use crate::shared::with_board;
use crate::snapshots::is_first_to_show;
use crate::versions::local_transaction;

static mut NEXT_UTILITY: pg_sys::ProcessUtility_hook_type = None;

/// Takes its place before the server's own processing.
pub(crate) fn hook() {
    // SAFETY: hooks are set while the server loads libraries, one after the other.
    unsafe {
        NEXT_UTILITY = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_for_server);
    }
}

unsafe extern "C-unwind" fn process_for_server(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the arguments are the server's; nothing here is to be dropped.
    unsafe {
        as_they_are(|| {
            process_utility(statement, text, read_only, context, parameters, environment, receiver, completion);
        });
    }
}

#[pg_guard]
#[expect(clippy::too_many_arguments, reason = "the signature of the hook")]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the arguments are the server's; a hook may end in an error of the server, which passes the boundary.
    unsafe {
        if shows_snapshot(statement) {
            is_first_to_show();
        }
        let kind = Kind::of((*statement).utilityStmt);
        if kind == Kind::DropDatabase {
            refuse_to_drop((*statement).utilityStmt.cast());
        }
        if nodes::tag((*statement).utilityStmt) == NodeTag::T_AlterDomainStmt {
            announce_change((*statement).utilityStmt.cast());
        }
        let table = if kind == Kind::Copy { lock((*statement).utilityStmt.cast()) } else { Oid::INVALID };
        let registry = (kind != Kind::Other).then(registry::current).filter(|registry| !registry.is_empty());
        let mut statement = statement;
        let mut read_only = read_only;
        if let Some(registry) = &registry {
            if kind == Kind::Copy {
                if read_only {
                    statement = nodes::copy(statement);
                    read_only = false;
                }
                copy(registry, (*statement).utilityStmt.cast(), table);
            } else {
                refuse_by_name(registry, (*statement).utilityStmt);
            }
        }
        let is_compared = kind == Kind::Definition && !is_updated();
        let renamed =
            registry.as_ref().filter(|_| is_compared).and_then(|registry| renamed((*statement).utilityStmt, registry));
        // Another name is a difference in any case.
        let before = match is_compared && registry.is_some() && renamed.is_none() {
            true => deviations(),
            false => Some(String::new()),
        };
        remembering(|| match NEXT_UTILITY {
            Some(next) => pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| {
                next(statement, text, read_only, context, parameters, environment, receiver, completion)
            }),
            None => pg_sys::standard_ProcessUtility(
                statement,
                text,
                read_only,
                context,
                parameters,
                environment,
                receiver,
                completion,
            ),
        });
        if is_compared {
            pg_sys::CommandCounterIncrement();
            if let Some((table, before)) = renamed
                && follow_name(table, before)
            {
                return;
            }
            match (registry.is_some(), registry::current().is_empty()) {
                (true, true) => refuse_without_bullfrog(),
                (_, false) => verify(before.as_deref()),
                (false, true) => {}
            }
        }
    }
}

/// Whether a statement may show what the snapshot of its transaction sees, or takes over that of another.
unsafe fn shows_snapshot(statement: *mut pg_sys::PlannedStmt) -> bool {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let node = (*statement).utilityStmt;
        match nodes::tag(node) {
            NodeTag::T_PrepareStmt | NodeTag::T_DeallocateStmt => false,
            NodeTag::T_VariableSetStmt => {
                nodes::text((*node.cast::<pg_sys::VariableSetStmt>()).name) == "TRANSACTION SNAPSHOT"
            }
            _ => pg_sys::PlannedStmtRequiresSnapshot(statement),
        }
    }
}

/// Compares the tables with what they were at the switch, also at one that the transaction's own snapshot does not see.
/// `before` are those that were something else before the statement; version 0.1.0 of the extension takes none.
unsafe fn verify(before: Option<&str>) {
    let before = before.map(|before| format!("'{before}'")).unwrap_or_default();
    let question = nodes::c_text(&format!("SELECT bullfrog.verify({before})"));
    // SAFETY: what is asked is of our own, and made of numbers.
    unsafe { ask(&question, true, || ()) };
}

/// The table on the move that a statement gives another name, and what it is called before. What a table that stays in use is called does not matter.
unsafe fn renamed(node: *mut pg_sys::Node, registry: &Registry) -> Option<(Oid, *mut c_char)> {
    // SAFETY: the tag tells the kind of a node; names are looked up in the catalogs.
    unsafe {
        if nodes::tag(node) != NodeTag::T_RenameStmt {
            return None;
        }
        let rename = node.cast::<pg_sys::RenameStmt>();
        if (*rename).renameType != pg_sys::ObjectType::OBJECT_TABLE {
            return None;
        }
        let table = find((*rename).relation);
        let is_kept = registry.is_part(table) && !registry.is_live(table);
        is_kept.then(|| (table, pg_sys::get_rel_name(table)))
    }
}

/// Lets a table have another name in the transaction of the switch, from which on nobody knows it by the one before. Whether it is that, and nothing else has changed. Version 0.1.0
/// of the extension cannot.
unsafe fn follow_name(table: Oid, before: *mut c_char) -> bool {
    // SAFETY: what is asked is made of a number and a literal, and gives one value; an error ends the statement.
    unsafe {
        if !is_there(c"follow_name") {
            return false;
        }
        let before = nodes::text(pg_sys::quote_literal_cstr(before));
        ask(&nodes::c_text(&format!("SELECT bullfrog.follow_name({}, {before})", table.to_u32())), false, || {
            let rows = pg_sys::SPI_tuptable;
            nodes::text(pg_sys::SPI_getvalue(*(*rows).vals, (*rows).tupdesc, 1)) == "t"
        })
    }
}

/// Whether the extension has a function of this name.
unsafe fn is_there(function: &CStr) -> bool {
    // SAFETY: looks a name up, whose parts the server copies.
    unsafe {
        let name = [c"bullfrog", function].into_iter().fold(std::ptr::null_mut(), |name, part| {
            pg_sys::lappend(name, pg_sys::makeString(part.as_ptr().cast_mut()).cast())
        });
        pg_sys::LookupFuncName(name, -1, [].as_ptr(), true) != Oid::INVALID
    }
}

thread_local! {
    /// What [`deviations`] were in a transaction: none come to them that it would not notice.
    static KNOWN: RefCell<Option<(pg_sys::LocalTransactionId, String)>> = const { RefCell::new(None) };
}

/// Whether this statement is one of the script that updates the extension, which has not all of its functions meanwhile.
unsafe fn is_updated() -> bool {
    // SAFETY: variables of this process; looks a name up in a transaction.
    unsafe {
        pg_sys::creating_extension
            && pg_sys::CurrentExtensionObject == pg_sys::get_extension_oid(c"bullfrog".as_ptr(), true)
    }
}

/// Tables that were not what they were at the switch when the transaction first asked, and what they were then. None in version 0.1.0 of the
/// extension, which cannot tell.
unsafe fn deviations() -> Option<String> {
    // SAFETY: a question that gives one text, in a transaction.
    unsafe {
        let transaction = local_transaction();
        if let Some((asked_by, known)) = KNOWN.with_borrow(Clone::clone)
            && asked_by == transaction
        {
            return Some(known);
        }
        if !is_there(c"deviations") {
            return None;
        }
        let found = ask(c"SELECT bullfrog.deviations()", true, || {
            let rows = pg_sys::SPI_tuptable;
            nodes::text(pg_sys::SPI_getvalue(*(*rows).vals, (*rows).tupdesc, 1))
        });
        KNOWN.set(Some((transaction, found.clone())));
        Some(found)
    }
}

/// Asks a question of our own as of now, and does something with what is found.
unsafe fn ask<R>(question: &CStr, read_only: bool, found: impl FnOnce() -> R) -> R {
    // SAFETY: calls of the server in the order it wants them; an error ends the transaction, and all of this.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        pg_sys::SPI_connect();
        pg_sys::SPI_execute(question.as_ptr(), read_only, 0);
        let found = found();
        pg_sys::SPI_finish();
        pg_sys::PopActiveSnapshot();
        found
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Copy,
    /// May change the form of a table.
    Definition,
    DropDatabase,
    /// Commits by itself, or leaves nothing to compare.
    Rewrite,
    Other,
}

impl Kind {
    unsafe fn of(node: *mut pg_sys::Node) -> Self {
        // SAFETY: a utility statement is a node.
        match unsafe { nodes::tag(node) } {
            NodeTag::T_CopyStmt => Self::Copy,
            NodeTag::T_DropdbStmt => Self::DropDatabase,
            NodeTag::T_ClusterStmt | NodeTag::T_ReindexStmt | NodeTag::T_VacuumStmt => Self::Rewrite,
            NodeTag::T_AlterTableStmt
            | NodeTag::T_AlterTableMoveAllStmt
            | NodeTag::T_AlterDomainStmt
            | NodeTag::T_AlterEnumStmt
            | NodeTag::T_AlterExtensionContentsStmt
            | NodeTag::T_AlterFunctionStmt
            | NodeTag::T_AlterTypeStmt
            | NodeTag::T_AlterObjectSchemaStmt
            | NodeTag::T_AlterOwnerStmt
            | NodeTag::T_AlterPublicationStmt
            | NodeTag::T_AlterSubscriptionStmt
            | NodeTag::T_CreateFunctionStmt
            | NodeTag::T_CreateStmt
            // A materialized view that gets its rows later is not planned.
            | NodeTag::T_CreateTableAsStmt
            | NodeTag::T_CreateTrigStmt
            | NodeTag::T_CreatePolicyStmt
            | NodeTag::T_CreatePublicationStmt
            | NodeTag::T_CreateSubscriptionStmt
            | NodeTag::T_DropOwnedStmt
            | NodeTag::T_DropStmt
            | NodeTag::T_IndexStmt
            | NodeTag::T_ReassignOwnedStmt
            | NodeTag::T_RenameStmt
            | NodeTag::T_RuleStmt
            // With CASCADE it gives tables that it does not name new files.
            | NodeTag::T_TruncateStmt
            | NodeTag::T_ViewStmt => Self::Definition,
            _ => Self::Other,
        }
    }
}

/// Locks the table of a COPY as the statement itself will do: no switch comes between a look at what is on the move and the
/// statement's end. Gives the table; none for a query.
unsafe fn lock(copy: *const pg_sys::CopyStmt) -> Oid {
    // SAFETY: a COPY statement.
    unsafe {
        let mode = if (*copy).is_from { pg_sys::RowExclusiveLock } else { pg_sys::AccessShareLock };
        find_and_lock((*copy).relation, mode)
    }
}

/// Lets a COPY of a new table read the rows that were not moved, too, and refuses one of an old table.
unsafe fn copy(registry: &Registry, copy: *mut pg_sys::CopyStmt, table: Oid) {
    // SAFETY: a COPY statement that is ours to change.
    unsafe {
        let is_open = |target: &Target| !(*copy).is_from && (target.are_olds_readable || DUMP_CLOSED.get());
        if let Some(target) = registry.closed(table).filter(|target| !is_open(target)) {
            refuse_old(target, table);
        }
        let Some(target) = registry.target(table).filter(|_| !(*copy).is_from) else {
            return;
        };
        let columns: Vec<String> = nodes::elements::<pg_sys::String>((*copy).attlist)
            .into_iter()
            .map(|name| nodes::text(pg_sys::quote_identifier((*name).sval)))
            .collect();
        let columns = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
        let select = nodes::c_text(&format!("SELECT {columns} FROM ONLY {}", registry::qualified_name(target.new)));
        let parsed: Vec<*mut pg_sys::RawStmt> =
            nodes::elements(pg_sys::raw_parser(select.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
        (*copy).query = (*parsed[0]).stmt;
        (*copy).relation = std::ptr::null_mut();
        (*copy).attlist = std::ptr::null_mut();
    }
}

/// Refuses statements that cannot be undone once they were seen to have changed a table on the move.
unsafe fn refuse_by_name(registry: &Registry, node: *mut pg_sys::Node) {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        match nodes::tag(node) {
            NodeTag::T_TruncateStmt => {
                for table in nodes::elements::<pg_sys::RangeVar>((*node.cast::<pg_sys::TruncateStmt>()).relations) {
                    refuse_moving(registry, find(table), "TRUNCATE");
                }
            }
            NodeTag::T_ClusterStmt => match (*node.cast::<pg_sys::ClusterStmt>()).relation {
                table if table.is_null() => refuse_all(registry, "CLUSTER"),
                table => refuse_moving(registry, find(table), "CLUSTER"),
            },
            NodeTag::T_VacuumStmt => {
                let vacuum = node.cast::<pg_sys::VacuumStmt>();
                let is_full = is_set((*vacuum).options, "full");
                let tables: Vec<*mut pg_sys::VacuumRelation> = nodes::elements((*vacuum).rels);
                if is_full && tables.is_empty() {
                    refuse_all(registry, "VACUUM FULL");
                }
                for table in tables.into_iter().filter(|_| is_full) {
                    refuse_moving(registry, find((*table).relation), "VACUUM FULL");
                }
            }
            NodeTag::T_IndexStmt => {
                let index = node.cast::<pg_sys::IndexStmt>();
                if (*index).concurrent {
                    refuse_moving(registry, find((*index).relation), "CREATE INDEX CONCURRENTLY");
                }
            }
            NodeTag::T_ReindexStmt => {
                let reindex = node.cast::<pg_sys::ReindexStmt>();
                if is_set((*reindex).params, "concurrently") {
                    match (*reindex).relation {
                        table if table.is_null() => refuse_all(registry, "REINDEX CONCURRENTLY"),
                        relation => refuse_moving(registry, table_of(find(relation)), "REINDEX CONCURRENTLY"),
                    }
                }
            }
            NodeTag::T_AlterExtensionContentsStmt => {
                let alter = node.cast::<pg_sys::AlterExtensionContentsStmt>();
                if nodes::text((*alter).extname) == "bullfrog" {
                    refuse_all(registry, "ALTER EXTENSION bullfrog");
                }
            }
            NodeTag::T_DropStmt => {
                let drop = node.cast::<pg_sys::DropStmt>();
                let names_bullfrog = (*drop).removeType == pg_sys::ObjectType::OBJECT_EXTENSION
                    && nodes::elements::<pg_sys::String>((*drop).objects)
                        .into_iter()
                        .any(|name| nodes::text((*name).sval) == "bullfrog");
                if names_bullfrog {
                    refuse_all(registry, "DROP EXTENSION bullfrog");
                }
                if (*drop).concurrent && (*drop).removeType == pg_sys::ObjectType::OBJECT_INDEX {
                    for names in nodes::elements::<pg_sys::List>((*drop).objects) {
                        let index = find(pg_sys::makeRangeVarFromNameList(names));
                        refuse_moving(registry, table_of(index), "DROP INDEX CONCURRENTLY");
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether an option of a statement is there and true.
unsafe fn is_set(options: *mut pg_sys::List, name: &str) -> bool {
    // SAFETY: options of the parser.
    unsafe {
        nodes::elements::<pg_sys::DefElem>(options)
            .into_iter()
            .any(|option| nodes::text((*option).defname) == name && pg_sys::defGetBoolean(option))
    }
}

pub(crate) fn refuse_moving(registry: &Registry, table: Oid, what: &str) {
    if registry.is_part(table) {
        refuse_all(registry, what);
    }
}

pub(crate) fn refuse_without_bullfrog() -> ! {
    raise(
        PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
        "this would drop or change the extension bullfrog while rows move",
        "Finish or abort the migration first; SELECT * FROM bullfrog.progress tells its name.",
    )
}

/// Refuses to drop a database while there is a mover in it, unless by force, which ends movers.
unsafe fn refuse_to_drop(drop: *mut pg_sys::DropdbStmt) {
    // SAFETY: a node of the parser; names are looked up in the catalog.
    unsafe {
        let is_forced = nodes::elements::<pg_sys::DefElem>((*drop).options)
            .into_iter()
            .any(|option| nodes::text((*option).defname) == "force");
        let database = pg_sys::get_database_oid((*drop).dbname, true);
        if !is_forced && with_board(|board| board.movers_of(database.to_u32()).next().is_some()) {
            raise(
                PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
                format!(
                    "a process of bullfrog, which moves rows, is in database {}",
                    nodes::text(pg_sys::quote_identifier((*drop).dbname))
                ),
                "Finish or abort its migration first: the process ends within a minute. Or use DROP DATABASE .. WITH (FORCE).",
            );
        }
    }
}

fn refuse_all(registry: &Registry, what: &str) -> ! {
    let tables: Vec<String> = registry.targets().iter().map(|target| registry::qualified_name(target.new)).collect();
    raise(
        PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
        format!("{what} is refused while rows move to {}", tables.join(", ")),
        "Finish or abort the migration first; SELECT * FROM bullfrog.progress tells its name.",
    )
}

/// The relation of a name; none if there is none: then the statement itself says so.
unsafe fn find(relation: *mut pg_sys::RangeVar) -> Oid {
    // SAFETY: a node of the parser.
    unsafe { find_and_lock(relation, pg_sys::NoLock) }
}

unsafe fn find_and_lock(relation: *mut pg_sys::RangeVar, mode: u32) -> Oid {
    if relation.is_null() {
        return Oid::INVALID;
    }
    // SAFETY: a node of the parser.
    unsafe {
        pg_sys::RangeVarGetRelidExtended(
            relation,
            mode as pg_sys::LOCKMODE,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        )
    }
}

/// The table of an index; another relation is itself.
unsafe fn table_of(relation: Oid) -> Oid {
    // SAFETY: looks a number up in the catalogs.
    match unsafe { pg_sys::IndexGetRelation(relation, true) } {
        Oid::INVALID => relation,
        table => table,
    }
}
