//! Statements that do not pass the planner. `COPY table TO` (and so pg_dump) becomes `COPY (SELECT ..) TO`, which does. What
//! would change a table on the move in a way that a migration cannot follow is refused: by name where the statement
//! commits by itself, else by comparing the tables with what they were at the switch.

use std::ffi::c_char;

use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::errors::{defect, raise};
use crate::nodes;
use crate::reading::refuse_old;
use crate::registry::{self, Registry};

static mut NEXT_UTILITY: pg_sys::ProcessUtility_hook_type = None;

/// Takes its place before the server's own processing.
pub(crate) fn hook() {
    // SAFETY: hooks are set while the server loads libraries, one after the other.
    unsafe {
        NEXT_UTILITY = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
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
        let kind = Kind::of((*statement).utilityStmt);
        let watched = kind != Kind::Other && !registry::current().is_empty();
        let mut statement = statement;
        let mut read_only = read_only;
        if watched {
            let registry = registry::current();
            if kind == Kind::Copy {
                if read_only {
                    statement = nodes::copy(statement);
                    read_only = false;
                }
                copy(&registry, (*statement).utilityStmt.cast());
            } else {
                refuse_by_name(&registry, (*statement).utilityStmt);
            }
        }
        match NEXT_UTILITY {
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
        }
        if watched && kind == Kind::Definition {
            pg_sys::CommandCounterIncrement();
            if !registry::current().is_empty()
                && let Err(error) = Spi::run("SELECT bullfrog.verify()")
            {
                defect(&error);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Copy,
    /// May change the form of a table.
    Definition,
    /// Commits by itself, or leaves nothing to compare.
    Rewrite,
    Other,
}

impl Kind {
    unsafe fn of(node: *mut pg_sys::Node) -> Self {
        // SAFETY: a utility statement is a node.
        match unsafe { nodes::tag(node) } {
            NodeTag::T_CopyStmt => Self::Copy,
            NodeTag::T_ClusterStmt | NodeTag::T_VacuumStmt => Self::Rewrite,
            NodeTag::T_AlterTableStmt
            | NodeTag::T_AlterTableMoveAllStmt
            | NodeTag::T_AlterDomainStmt
            | NodeTag::T_AlterFunctionStmt
            | NodeTag::T_AlterTypeStmt
            | NodeTag::T_AlterObjectSchemaStmt
            | NodeTag::T_AlterOwnerStmt
            | NodeTag::T_AlterPublicationStmt
            | NodeTag::T_AlterSubscriptionStmt
            | NodeTag::T_CreateFunctionStmt
            | NodeTag::T_CreateStmt
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
            | NodeTag::T_TruncateStmt => Self::Definition,
            _ => Self::Other,
        }
    }
}

/// Lets a COPY of a new table read the rows that were not moved, too, and refuses one of an old table.
unsafe fn copy(registry: &Registry, copy: *mut pg_sys::CopyStmt) {
    // SAFETY: a COPY statement that is ours to change.
    unsafe {
        if (*copy).relation.is_null() {
            return;
        }
        let table = find((*copy).relation);
        if let Some(target) = registry.closed(table).filter(|target| (*copy).is_from || !target.are_olds_readable) {
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
                let is_full = nodes::elements::<pg_sys::DefElem>((*vacuum).options)
                    .into_iter()
                    .any(|option| nodes::text((*option).defname) == "full" && pg_sys::defGetBoolean(option));
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
            NodeTag::T_DropStmt => {
                let drop = node.cast::<pg_sys::DropStmt>();
                let names_bullfrog = (*drop).removeType == pg_sys::ObjectType::OBJECT_EXTENSION
                    && nodes::elements::<pg_sys::String>((*drop).objects)
                        .into_iter()
                        .any(|name| nodes::text((*name).sval) == "bullfrog");
                if names_bullfrog || ((*drop).concurrent && (*drop).removeType == pg_sys::ObjectType::OBJECT_INDEX) {
                    refuse_all(
                        registry,
                        if names_bullfrog { "DROP EXTENSION bullfrog" } else { "DROP INDEX CONCURRENTLY" },
                    );
                }
            }
            _ => {}
        }
    }
}

fn refuse_moving(registry: &Registry, table: Oid, what: &str) {
    if registry.is_part(table) {
        refuse_all(registry, what);
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

/// The table of a name; none if there is none: then the statement itself says so.
unsafe fn find(relation: *mut pg_sys::RangeVar) -> Oid {
    if relation.is_null() {
        return Oid::INVALID;
    }
    // SAFETY: a node of the parser.
    unsafe {
        pg_sys::RangeVarGetRelidExtended(
            relation,
            pg_sys::NoLock as pg_sys::LOCKMODE,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        )
    }
}
