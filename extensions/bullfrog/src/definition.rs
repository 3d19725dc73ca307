//! The text of a migration, through the server's own parser: `CREATE TABLE new AS SELECT ..`, and what constrains the new
//! tables. Everything else is refused by name before anything is done.

use std::collections::HashSet;

use bullfrog_model::definition::{Shape, check};
use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::prelude::*;

use crate::errors::{raise, refuse};
use crate::nodes;

/// A statement of a migration, as `bullfrog.parse` gives it.
#[derive(Default)]
struct Statement {
    action: &'static str,
    text: String,
    new_table: Option<String>,
    source: Option<Oid>,
    query: Option<String>,
    columns: Option<Vec<String>>,
    origins: Option<Vec<i16>>,
}

/// The statements of a migration, checked.
#[pg_extern(sql = false, strict)]
#[expect(clippy::type_complexity, reason = "the columns of the SQL function")]
fn parse(
    definition: &str,
) -> TableIterator<
    'static,
    (
        name!(action, String),
        name!(statement, String),
        name!(new_table, Option<String>),
        name!(old_table, Option<Oid>),
        name!(query, Option<String>),
        name!(columns, Option<Vec<String>>),
        name!(origins, Option<Vec<i16>>),
    ),
> {
    let mut new_tables = HashSet::new();
    let mut statements = Vec::new();
    let text = nodes::c_text(definition);
    // SAFETY: the text lives until its trees were read; nodes are of the kinds that their tags tell.
    unsafe {
        let parsed = pg_sys::raw_parser(text.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        for raw in nodes::elements::<pg_sys::RawStmt>(parsed) {
            let statement = Statement { text: slice(definition, raw), ..read(raw, text.as_ptr()) };
            if let Some(table) = &statement.new_table {
                if statement.action == "create" {
                    new_tables.insert(table.clone());
                } else if !new_tables.contains(table) {
                    refuse(
                        format!("{table} is not created by this migration"),
                        "A migration changes only the tables that it creates; change others before it or after it.",
                    );
                }
            }
            statements.push(statement);
        }
    }
    if new_tables.is_empty() {
        refuse("the migration creates no table", "Write CREATE TABLE new AS SELECT .. FROM old.");
    }
    TableIterator::new(
        statements
            .into_iter()
            .map(|s| (s.action.to_owned(), s.text, s.new_table, s.source, s.query, s.columns, s.origins)),
    )
}

/// The text of one statement.
unsafe fn slice(definition: &str, raw: *mut pg_sys::RawStmt) -> String {
    // SAFETY: a statement of this text.
    let (start, len) = unsafe { ((*raw).stmt_location.max(0) as usize, (*raw).stmt_len as usize) };
    let end = if len == 0 { definition.len() } else { start + len };
    definition.get(start..end).unwrap_or_default().trim().to_owned()
}

unsafe fn read(raw: *mut pg_sys::RawStmt, text: *const std::ffi::c_char) -> Statement {
    // SAFETY: the tag tells the kind of a node.
    unsafe {
        let node = (*raw).stmt;
        match nodes::tag(node) {
            NodeTag::T_CreateTableAsStmt => create(raw, node.cast(), text),
            NodeTag::T_AlterTableStmt => alter(node.cast()),
            NodeTag::T_IndexStmt => index(node.cast()),
            NodeTag::T_CommentStmt => Statement { action: "comment", ..Statement::default() },
            NodeTag::T_GrantStmt => Statement { action: "grant", ..Statement::default() },
            _ => refuse(
                "a migration cannot have this kind of statement",
                "It may have CREATE TABLE .. AS, ALTER TABLE .. ADD (PRIMARY KEY, UNIQUE, CHECK), ALTER COLUMN .. SET (NOT NULL, DEFAULT), \
                 CREATE INDEX, COMMENT and GRANT.",
            ),
        }
    }
}

unsafe fn create(
    raw: *mut pg_sys::RawStmt,
    create: *mut pg_sys::CreateTableAsStmt,
    text: *const std::ffi::c_char,
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
                "Leave out IF NOT EXISTS, TEMPORARY, UNLOGGED, USING, WITH (..), TABLESPACE and ON COMMIT; ALTER TABLE after the migration.",
            );
        }
        let statement = pg_sys::palloc0(size_of::<pg_sys::RawStmt>()).cast::<pg_sys::RawStmt>();
        (*statement).type_ = NodeTag::T_RawStmt;
        (*statement).stmt = (*create).query;
        (*statement).stmt_location = (*raw).stmt_location;
        (*statement).stmt_len = (*raw).stmt_len;
        let query = pg_sys::parse_analyze_fixedparams(statement, text, std::ptr::null(), 0, std::ptr::null_mut());
        if let Err(refusal) = check(&shape(query)) {
            refuse(format!("cannot migrate to {}: {refusal}", name((*into).rel)), refusal.hint);
        }

        let entries: Vec<*mut pg_sys::TargetEntry> = nodes::elements((*query).targetList);
        let given: Vec<*mut pg_sys::String> = nodes::elements((*into).colNames);
        if given.len() > entries.len() {
            raise(
                PgSqlErrorCode::ERRCODE_SYNTAX_ERROR,
                "too many column names were specified",
                "Name at most the columns of the SELECT.",
            );
        }
        let mut columns: Vec<String> = entries.iter().map(|entry| nodes::text((**entry).resname)).collect();
        for (column, given) in columns.iter_mut().zip(given) {
            *column = nodes::text((*given).sval);
        }
        let origins = entries.iter().map(|entry| origin((**entry).expr)).collect();
        let (number, relation) = (1..)
            .zip(nodes::elements::<pg_sys::RangeTblEntry>((*query).rtable))
            .next()
            .expect("the shape has one relation");
        let place = pg_sys::makeVar(
            number,
            pg_sys::SelfItemPointerAttributeNumber as pg_sys::AttrNumber,
            pg_sys::TIDOID,
            -1,
            Oid::INVALID,
            0,
        );
        let last = pg_sys::AttrNumber::try_from(entries.len() + 1).unwrap_or(pg_sys::AttrNumber::MAX);
        let entry = pg_sys::makeTargetEntry(place.cast(), last, pg_sys::pstrdup(c"bullfrog_tid".as_ptr()), false);
        (*query).targetList = pg_sys::lappend((*query).targetList, entry.cast());
        Statement {
            action: "create",
            new_table: Some(name((*into).rel)),
            source: Some((*relation).relid),
            query: Some(nodes::text(pg_sys::pg_get_querydef(query, false))),
            columns: Some(columns),
            origins: Some(origins),
            ..Statement::default()
        }
    }
}

/// The number of the old column that an expression is; 0 if it is more than a column.
unsafe fn origin(expression: *mut pg_sys::Expr) -> i16 {
    // SAFETY: the tag tells the kind of a node.
    unsafe { if nodes::tag(expression) == NodeTag::T_Var { (*expression.cast::<pg_sys::Var>()).varattno } else { 0 } }
}

unsafe fn shape(query: *mut pg_sys::Query) -> Shape {
    #[pg_guard]
    unsafe extern "C-unwind" fn is_row_or_system_column(
        node: *mut pg_sys::Node,
        context: *mut std::ffi::c_void,
    ) -> bool {
        if node.is_null() {
            return false;
        }
        // SAFETY: a node of an expression.
        unsafe {
            if nodes::tag(node) == NodeTag::T_Var {
                return (*node.cast::<pg_sys::Var>()).varattno <= 0;
            }
            nodes::tag(node) != NodeTag::T_Query && nodes::walk_expression(node, is_row_or_system_column, context)
        }
    }
    // SAFETY: an analysed query.
    unsafe {
        let query_ref = &*query;
        let relations: Vec<*mut pg_sys::RangeTblEntry> = nodes::elements(query_ref.rtable);
        let relations: Vec<_> =
            relations.into_iter().filter(|entry| (**entry).rtekind != pg_sys::RTEKind::RTE_JOIN).collect();
        let is_table = |entry: &&*mut pg_sys::RangeTblEntry| {
            (***entry).rtekind == pg_sys::RTEKind::RTE_RELATION && (***entry).relkind as u8 == pg_sys::RELKIND_RELATION
        };
        Shape {
            relations: relations.len(),
            tables: relations.iter().filter(is_table).count(),
            aggregates: query_ref.hasAggs
                || !query_ref.groupClause.is_null()
                || !query_ref.groupingSets.is_null()
                || !query_ref.havingQual.is_null(),
            distinct: !query_ref.distinctClause.is_null(),
            windows: query_ref.hasWindowFuncs,
            set_operation: !query_ref.setOperations.is_null(),
            order: !query_ref.sortClause.is_null(),
            limit: !query_ref.limitCount.is_null() || !query_ref.limitOffset.is_null(),
            set_returning: query_ref.hasTargetSRFs,
            sublinks: query_ref.hasSubLinks,
            with: !query_ref.cteList.is_null(),
            row_locks: !query_ref.rowMarks.is_null(),
            sampled: relations.iter().any(|entry| !(**entry).tablesample.is_null()),
            whole_rows_or_system_columns: nodes::walk_query(query, is_row_or_system_column, std::ptr::null_mut()),
            mutable: pg_sys::contain_mutable_functions(query.cast()),
        }
    }
}

unsafe fn alter(alter: *mut pg_sys::AlterTableStmt) -> Statement {
    // SAFETY: nodes of the parser.
    unsafe {
        for command in nodes::elements::<pg_sys::AlterTableCmd>((*alter).cmds) {
            let allowed = match (*command).subtype {
                pg_sys::AlterTableType::AT_AddConstraint => is_constraint_allowed((*command).def.cast()),
                pg_sys::AlterTableType::AT_SetNotNull | pg_sys::AlterTableType::AT_ColumnDefault => true,
                _ => false,
            };
            if !allowed || (*alter).objtype != pg_sys::ObjectType::OBJECT_TABLE {
                refuse(
                    format!("this change of {} is not supported in a migration", name((*alter).relation)),
                    "Supported are ADD PRIMARY KEY, UNIQUE and CHECK (neither deferrable nor NOT VALID), SET NOT NULL, SET DEFAULT. \
                     Foreign keys can be added after the migration.",
                );
            }
        }
        Statement { action: "alter", new_table: Some(name((*alter).relation)), ..Statement::default() }
    }
}

unsafe fn is_constraint_allowed(constraint: *mut pg_sys::Constraint) -> bool {
    use pg_sys::ConstrType::{CONSTR_CHECK, CONSTR_PRIMARY, CONSTR_UNIQUE};
    // SAFETY: a node of the parser.
    let constraint = unsafe { &*constraint };
    matches!(constraint.contype, CONSTR_CHECK | CONSTR_PRIMARY | CONSTR_UNIQUE)
        && !constraint.deferrable
        && !constraint.skip_validation
        && !constraint.nulls_not_distinct
        && constraint.indexname.is_null()
}

unsafe fn index(index: *mut pg_sys::IndexStmt) -> Statement {
    // SAFETY: nodes of the parser.
    unsafe {
        let has_expression = nodes::elements::<pg_sys::IndexElem>((*index).indexParams)
            .iter()
            .any(|element| !(**element).expr.is_null());
        let is_plain = !has_expression && (*index).whereClause.is_null() && !(*index).nulls_not_distinct;
        if (*index).concurrent || ((*index).unique && !is_plain) {
            refuse(
                format!("this index of {} is not supported in a migration", name((*index).relation)),
                "A unique index is over plain columns, without WHERE and NULLS NOT DISTINCT. CONCURRENTLY is not needed: the table is empty.",
            );
        }
        Statement { action: "index", new_table: Some(name((*index).relation)), ..Statement::default() }
    }
}

/// A table's name with the schema in which it is, or would be created, quoted.
unsafe fn name(relation: *mut pg_sys::RangeVar) -> String {
    // SAFETY: a node of the parser.
    unsafe {
        let schema = pg_sys::get_namespace_name(pg_sys::RangeVarGetCreationNamespace(relation));
        nodes::text(pg_sys::quote_qualified_identifier(schema, (*relation).relname))
    }
}
