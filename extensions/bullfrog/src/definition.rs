//! The text of a migration, through the server's own parser: `CREATE TABLE new AS SELECT ..`, and what constrains the new
//! tables. Everything else is refused by name before anything is done.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_void};

use pgrx::pg_sys::{self, AlterTableType, NodeTag, Oid};
use pgrx::prelude::*;

use crate::asking::as_asker;
use crate::errors::refuse;
use crate::nodes;
use crate::passing::{in_context, remembering, tell_position};
use crate::rows::{self, Rows};
use crate::shape::Wishes;
use crate::versions::{flatten_groups, is_unknown_kind};

/// A statement of a migration, as `bullfrog.parse` gives it.
#[derive(Default)]
struct Statement {
    action: &'static str,
    text: String,
    new_table: Option<String>,
    /// Constraints that it drops.
    dropped: Option<Vec<String>>,
    rows: Option<Rows>,
}

/// The statements of a migration, checked. Tables that are `live` are read by the views `frozen`, those that are `driving` drive joins.
#[pg_extern(sql = false, strict)]
#[expect(clippy::type_complexity, reason = "the columns of the SQL function")]
fn parse(
    definition: &str,
    live: Vec<Oid>,
    frozen: Vec<Oid>,
    driving: Vec<Oid>,
) -> TableIterator<
    'static,
    (
        name!(action, String),
        name!(statement, String),
        name!(new_table, Option<String>),
        name!(old_tables, Option<Vec<Oid>>),
        name!(grouped, Option<bool>),
        name!(single, Option<bool>),
        name!(complete, Option<bool>),
        name!(query, Option<String>),
        name!(members, Option<String>),
        name!(same_group, Option<String>),
        name!(columns, Option<Vec<String>>),
        name!(origins, Option<Vec<i16>>),
        name!(required, Option<Vec<bool>>),
        name!(keys, Option<Vec<i16>>),
        name!(evaluated, Option<Vec<String>>),
        name!(lookup_tables, Option<Vec<Oid>>),
        name!(lookup_columns, Option<Vec<i16>>),
    ),
> {
    let frozen: HashMap<Oid, Oid> = live.into_iter().zip(frozen).collect();
    let mut new_tables = HashSet::new();
    let mut statements = Vec::new();
    let text = nodes::c_text(definition);
    // SAFETY: the text lives until its trees were read; nodes are of the kinds that their tags tell.
    unsafe {
        let parsed: Vec<*mut pg_sys::RawStmt> = nodes::elements(parsed_text(&text));
        let alone = parsed.iter().filter_map(|raw| only_table(*raw, text.as_ptr())).collect();
        let wishes = Wishes { chosen: driving, alone };
        for raw in parsed {
            let mut statement = read(raw, text.as_ptr(), &new_tables, &frozen, &wishes);
            statement.text.insert_str(0, slice(definition, raw));
            match (statement.action, &statement.new_table) {
                ("create", Some(table)) => {
                    new_tables.insert(table.clone());
                }
                ("index" | "trigger", Some(table)) if !new_tables.contains(table) => refuse_other(table),
                _ => {}
            }
            statements.push(statement);
        }
    }
    if new_tables.is_empty() {
        refuse("the migration creates no table", "Write CREATE TABLE new AS SELECT .. FROM old.");
    }
    TableIterator::new(statements.into_iter().map(|Statement { action, text, new_table, dropped, rows }| {
        let action = action.to_owned();
        let Some(rows) = rows else {
            return (
                action, text, new_table, None, None, None, None, None, None, None, dropped, None, None, None, None,
                None, None,
            );
        };
        let (lookup_tables, lookup_columns) = rows.lookups.into_iter().unzip();
        (
            action,
            text,
            new_table,
            Some(rows.old_tables),
            Some(rows.is_grouped),
            Some(rows.is_single),
            Some(rows.is_complete),
            Some(rows.query),
            rows.members,
            rows.same_group,
            Some(rows.columns),
            Some(rows.origins),
            Some(rows.required),
            Some(rows.keys),
            Some(rows.evaluated),
            Some(lookup_tables),
            Some(lookup_columns),
        )
    }))
}

/// Whether new rows that are equal in some columns are one row.
#[pg_extern(sql = false, strict)]
#[expect(clippy::needless_pass_by_value, reason = "an array of SQL comes by value")]
fn identifies(definition: &str, new_table: &str, columns: Vec<i16>) -> bool {
    // SAFETY: an analysed query, which is ours.
    unsafe { query_of(definition, new_table).is_some_and(|query| rows::identifies(query, &columns)) }
}

/// The tables, or whatever they are, that queries of a migration name, as far as there are such. Nothing is locked: to analyse a query locks its tables.
#[pg_extern(sql = false, strict)]
fn tables_named(definition: &str) -> Vec<Oid> {
    let text = nodes::c_text(definition);
    let mut names: Vec<*mut pg_sys::RangeVar> = Vec::new();
    // SAFETY: nodes of the parser, of the kinds that their tags tell; the walker gets the vector that it expects; names are looked up only.
    unsafe {
        for raw in nodes::elements::<pg_sys::RawStmt>(parsed_text(&text)) {
            if nodes::tag((*raw).stmt) == NodeTag::T_CreateTableAsStmt {
                named_by((*(*raw).stmt.cast::<pg_sys::CreateTableAsStmt>()).query, (&raw mut names).cast());
            }
        }
        let (no_lock, missing_ok) = (pg_sys::NoLock as pg_sys::LOCKMODE, pg_sys::RVROption::RVR_MISSING_OK);
        let meant = |name: *mut pg_sys::RangeVar| {
            pg_sys::RangeVarGetRelidExtended(name, no_lock, missing_ok, None, std::ptr::null_mut())
        };
        as_asker(|| names.into_iter().map(meant).filter(|table| *table != Oid::INVALID).collect())
    }
}

/// Collects the names of tables in a query that was not analysed.
#[pg_guard]
unsafe extern "C-unwind" fn named_by(node: *mut pg_sys::Node, names: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: a node of the parser; the context is the vector of `tables_named`.
    unsafe {
        if nodes::tag(node) == NodeTag::T_RangeVar {
            (*names.cast::<Vec<*mut pg_sys::RangeVar>>()).push(node.cast());
            return false;
        }
        pg_sys::raw_expression_tree_walker(node, Some(named_by), names)
    }
}

/// The query of a new table, analysed.
pub(crate) fn query_of(definition: &str, new_table: &str) -> Option<*mut pg_sys::Query> {
    let text = nodes::c_text(definition);
    // SAFETY: the text lives until its trees were read; nodes are of the kinds that their tags tell.
    unsafe {
        nodes::elements::<pg_sys::RawStmt>(parsed_text(&text)).into_iter().find_map(|raw| {
            let create = (*raw).stmt.cast::<pg_sys::CreateTableAsStmt>();
            let is_it = nodes::tag(create) == NodeTag::T_CreateTableAsStmt && name((*(*create).into).rel) == new_table;
            is_it.then(|| analysed(raw, (*create).query, text.as_ptr()))
        })
    }
}

/// The statements of a definition as the parser gives them.
///
/// # Safety
/// They are not used for longer than the text.
pub(crate) unsafe fn parsed_text(definition: &CStr) -> *mut pg_sys::List {
    // SAFETY: a text.
    let parse = || unsafe { pg_sys::raw_parser(definition.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT) };
    remembering(|| in_context(tell_position, definition, parse))
}

/// The text of one statement.
unsafe fn slice(definition: &str, raw: *mut pg_sys::RawStmt) -> &str {
    // SAFETY: a statement of this text.
    let (start, len) = unsafe { ((*raw).stmt_location.max(0) as usize, (*raw).stmt_len as usize) };
    let end = if len == 0 { definition.len() } else { start + len };
    definition.get(start..end).unwrap_or_default().trim()
}

unsafe fn read(
    raw: *mut pg_sys::RawStmt,
    text: *const std::ffi::c_char,
    new_tables: &HashSet<String>,
    frozen: &HashMap<Oid, Oid>,
    wishes: &Wishes,
) -> Statement {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let node = (*raw).stmt;
        match nodes::tag(node) {
            NodeTag::T_CreateTableAsStmt => create(raw, node.cast(), text, frozen, wishes),
            NodeTag::T_AlterTableStmt => alter(node.cast(), new_tables),
            NodeTag::T_IndexStmt => index(node.cast()),
            NodeTag::T_CreateTrigStmt => trigger(node.cast()),
            NodeTag::T_CommentStmt => Statement { action: "comment", ..Statement::default() },
            NodeTag::T_GrantStmt => Statement { action: "grant", ..Statement::default() },
            _ => refuse(
                "a migration cannot have this kind of statement",
                "It may have CREATE TABLE .. AS, ALTER TABLE .. ADD (PRIMARY KEY, UNIQUE, CHECK, FOREIGN KEY), \
                 ALTER COLUMN .. SET (NOT NULL, DEFAULT) and ADD GENERATED, CREATE INDEX, CREATE TRIGGER, COMMENT and GRANT.",
            ),
        }
    }
}

unsafe fn create(
    raw: *mut pg_sys::RawStmt,
    create: *mut pg_sys::CreateTableAsStmt,
    text: *const std::ffi::c_char,
    frozen: &HashMap<Oid, Oid>,
    wishes: &Wishes,
) -> Statement {
    // SAFETY: nodes of the parser; the query is analysed as the server does it.
    unsafe {
        let into = (*create).into;
        let has_options = !(*into).accessMethod.is_null()
            || !(*into).options.is_null()
            || !(*into).tableSpaceName.is_null()
            || (*into).onCommit != pg_sys::OnCommitAction::ONCOMMIT_NOOP;
        if (*create).objtype != pg_sys::ObjectType::OBJECT_TABLE
            || (*create).is_select_into
            || nodes::tag((*create).query) != NodeTag::T_SelectStmt
        {
            refuse(
                "a new table is created by CREATE TABLE new AS SELECT",
                "Materialized views, SELECT INTO and EXECUTE are not supported.",
            );
        }
        if has_options
            || (*create).if_not_exists
            || (*(*into).rel).relpersistence as u8 != pg_sys::RELPERSISTENCE_PERMANENT
        {
            refuse(
                "a new table is an ordinary, permanent one",
                "Leave out IF NOT EXISTS, TEMPORARY, UNLOGGED, USING, WITH (..), TABLESPACE and ON COMMIT; \
                 ALTER TABLE after the migration.",
            );
        }
        let query = analysed(raw, (*create).query, text);
        let given = nodes::elements::<pg_sys::String>((*into).colNames);
        let given = given.into_iter().map(|name| nodes::text((*name).sval)).collect();
        let new_table = name((*into).rel);
        let rows = Rows::of(query, given, &new_table, frozen, wishes);
        Statement { action: "create", new_table: Some(new_table), rows: Some(rows), ..Statement::default() }
    }
}

/// Analyses a SELECT of a statement.
///
/// # Safety
/// Nodes of the parser, of this text, which are the caller's to change.
pub(crate) unsafe fn analysed(
    raw: *mut pg_sys::RawStmt,
    select: *mut pg_sys::Node,
    text: *const std::ffi::c_char,
) -> *mut pg_sys::Query {
    // SAFETY: nodes of the parser; the query is analysed as the server does it.
    unsafe {
        let statement = pg_sys::palloc0(size_of::<pg_sys::RawStmt>()).cast::<pg_sys::RawStmt>();
        (*statement).type_ = NodeTag::T_RawStmt;
        (*statement).stmt = select;
        (*statement).stmt_location = (*raw).stmt_location;
        (*statement).stmt_len = (*raw).stmt_len;
        let query = remembering(|| {
            in_context(tell_position, CStr::from_ptr(text), || {
                as_asker(|| {
                    pg_sys::parse_analyze_fixedparams(statement, text, std::ptr::null(), 0, std::ptr::null_mut())
                })
            })
        });
        flatten_groups(query);
        query
    }
}

/// The table of which alone, and not by groups, a statement makes a new one.
unsafe fn only_table(raw: *mut pg_sys::RawStmt, text: *const std::ffi::c_char) -> Option<Oid> {
    // SAFETY: nodes of the parser; the copy is analysed, which may change it.
    unsafe {
        if nodes::tag((*raw).stmt) != NodeTag::T_CreateTableAsStmt {
            return None;
        }
        let select = (*(*raw).stmt.cast::<pg_sys::CreateTableAsStmt>()).query;
        if nodes::tag(select) != NodeTag::T_SelectStmt {
            return None;
        }
        let query = analysed(raw, nodes::copy(select), text);
        let relations: Vec<*mut pg_sys::RangeTblEntry> = nodes::elements((*query).rtable);
        match relations[..] {
            [table] if (*query).groupClause.is_null() && !(*query).hasAggs => Some((*table).relid),
            _ => None,
        }
    }
}

unsafe fn alter(alter: *mut pg_sys::AlterTableStmt, new_tables: &HashSet<String>) -> Statement {
    // SAFETY: nodes of the parser.
    unsafe {
        let table = name((*alter).relation);
        let commands: Vec<*mut pg_sys::AlterTableCmd> = nodes::elements((*alter).cmds);
        let is_table = (*alter).objtype == pg_sys::ObjectType::OBJECT_TABLE;
        if !new_tables.contains(&table) {
            return alter_other(table, &commands, new_tables);
        }
        let is_allowed = |command: &*mut pg_sys::AlterTableCmd| match (**command).subtype {
            AlterTableType::AT_AddConstraint => is_constraint_allowed((**command).def.cast()),
            AlterTableType::AT_SetNotNull | AlterTableType::AT_ColumnDefault | AlterTableType::AT_AddIdentity => true,
            _ => false,
        };
        if !is_table || !commands.iter().all(is_allowed) {
            refuse(
                format!("this change of {table} is not supported in a migration"),
                "Supported are ADD PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY (not deferrable, NOT VALID or MATCH FULL), \
                 SET NOT NULL, SET DEFAULT, ADD GENERATED .. AS IDENTITY.",
            );
        }
        let refers = commands.iter().any(|command| adds_foreign_key(*command));
        Statement { action: if refers { "refer" } else { "alter" }, new_table: Some(table), ..Statement::default() }
    }
}

/// How much of a statement is left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Part,
    All,
}

/// Leaves of a change of a table the foreign keys that it adds, or all else.
///
/// # Safety
/// A node of the parser, which is the caller's to change.
pub(crate) unsafe fn keep_part(alter: *mut pg_sys::AlterTableStmt, is_of_keys: bool) -> Kept {
    // SAFETY: as promised.
    unsafe {
        let commands: Vec<*mut pg_sys::AlterTableCmd> = nodes::elements((*alter).cmds);
        let (kept, others): (Vec<_>, Vec<_>) =
            commands.into_iter().partition(|command| adds_foreign_key(*command) == is_of_keys);
        let left = match (kept.is_empty(), others.is_empty()) {
            (true, _) => Kept::Nothing,
            (false, false) => Kept::Part,
            (false, true) => Kept::All,
        };
        (*alter).cmds =
            kept.into_iter().fold(std::ptr::null_mut(), |list, command| pg_sys::lappend(list, command.cast()));
        left
    }
}

unsafe fn adds_foreign_key(command: *mut pg_sys::AlterTableCmd) -> bool {
    // SAFETY: a node of the parser.
    unsafe {
        (*command).subtype == AlterTableType::AT_AddConstraint
            && (*(*command).def.cast::<pg_sys::Constraint>()).contype == pg_sys::ConstrType::CONSTR_FOREIGN
    }
}

/// Of tables that the migration does not create, foreign keys may end and begin.
unsafe fn alter_other(
    table: String,
    commands: &[*mut pg_sys::AlterTableCmd],
    new_tables: &HashSet<String>,
) -> Statement {
    // SAFETY: nodes of the parser.
    unsafe {
        if commands.iter().all(|command| (**command).subtype == AlterTableType::AT_DropConstraint) {
            let dropped = commands.iter().map(|command| nodes::text((**command).name)).collect();
            return Statement {
                action: "release",
                new_table: Some(table),
                dropped: Some(dropped),
                ..Statement::default()
            };
        }
        match commands {
            [command] if (**command).subtype == AlterTableType::AT_AddConstraint => {
                let constraint = (**command).def.cast::<pg_sys::Constraint>();
                if is_foreign_key_allowed(constraint) && new_tables.contains(&name((*constraint).pktable)) {
                    // Not all of the new table's rows are in it yet: bullfrog checks them by itself.
                    let text = if (*constraint).skip_validation { "" } else { " NOT VALID" };
                    return Statement {
                        action: "attach",
                        text: text.to_owned(),
                        new_table: Some(table),
                        ..Statement::default()
                    };
                }
            }
            _ => {}
        }
        refuse_other(&table)
    }
}

fn refuse_other(table: &str) -> ! {
    refuse(
        format!("{table} is not created by this migration"),
        "Of other tables it may DROP CONSTRAINT, of foreign keys to old tables, and ADD one FOREIGN KEY to a new table in each statement. \
         Change others before it or after it.",
    )
}

unsafe fn is_constraint_allowed(constraint: *mut pg_sys::Constraint) -> bool {
    use pg_sys::ConstrType::{CONSTR_CHECK, CONSTR_FOREIGN, CONSTR_PRIMARY, CONSTR_UNIQUE};
    // SAFETY: a node of the parser.
    unsafe {
        let is_valid = !(*constraint).skip_validation;
        match (*constraint).contype {
            CONSTR_FOREIGN => is_valid && is_foreign_key_allowed(constraint),
            CONSTR_CHECK | CONSTR_PRIMARY | CONSTR_UNIQUE => {
                is_valid
                    && !is_unknown_kind(constraint)
                    && !(*constraint).deferrable
                    && !(*constraint).nulls_not_distinct
                    && (*constraint).indexname.is_null()
            }
            _ => false,
        }
    }
}

unsafe fn is_foreign_key_allowed(constraint: *mut pg_sys::Constraint) -> bool {
    // SAFETY: a node of the parser.
    unsafe {
        (*constraint).contype == pg_sys::ConstrType::CONSTR_FOREIGN
            && !(*constraint).deferrable
            && (*constraint).fk_matchtype as u8 == b's'
            && !is_unknown_kind(constraint)
    }
}

unsafe fn index(index: *mut pg_sys::IndexStmt) -> Statement {
    // SAFETY: nodes of the parser.
    unsafe {
        if (*index).concurrent || ((*index).unique && (*index).nulls_not_distinct) {
            refuse(
                format!("this index of {} is not supported in a migration", name((*index).relation)),
                "A unique index is without NULLS NOT DISTINCT. CONCURRENTLY is not needed: the table is empty.",
            );
        }
        Statement { action: "index", new_table: Some(name((*index).relation)), ..Statement::default() }
    }
}

/// Triggers fire for what clients write, not for rows that move.
unsafe fn trigger(trigger: *mut pg_sys::CreateTrigStmt) -> Statement {
    // SAFETY: a node of the parser.
    unsafe {
        let table = name((*trigger).relation);
        let writes = (pg_sys::TRIGGER_TYPE_INSERT | pg_sys::TRIGGER_TYPE_UPDATE) as i16;
        let may_change_keys = (*trigger).row
            && (*trigger).timing == pg_sys::TRIGGER_TYPE_BEFORE as i16
            && (*trigger).events & writes != 0;
        if (*trigger).isconstraint || may_change_keys {
            refuse(
                format!("this trigger of {table} is not supported in a migration"),
                "A trigger that is CONSTRAINT, or BEFORE INSERT OR UPDATE .. FOR EACH ROW, which may change keys, can be created when the \
                 migration has ended; until then use AFTER, or FOR EACH STATEMENT.",
            );
        }
        Statement { action: "trigger", new_table: Some(table), ..Statement::default() }
    }
}

/// A table's name with the schema in which it is, or would be created, quoted.
///
/// # Safety
/// A node of the parser.
pub(crate) unsafe fn name(relation: *mut pg_sys::RangeVar) -> String {
    // SAFETY: a node of the parser.
    unsafe {
        let schema = as_asker(|| pg_sys::RangeVarGetCreationNamespace(relation));
        if pg_sys::isAnyTempNamespace(schema) {
            refuse(
                "a migration has nothing to do with temporary tables",
                "Name an ordinary schema, or SET search_path to one.",
            );
        }
        let schema = pg_sys::get_namespace_name(schema);
        nodes::text(pg_sys::quote_qualified_identifier(schema, (*relation).relname))
    }
}
