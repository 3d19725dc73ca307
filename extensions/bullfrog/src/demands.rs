//! What a migration asks of its new tables' rows, and who may use them, for those who look before the switch.

use pgrx::pg_sys::{self, AlterTableType, ConstrType, NodeTag, Oid};
use pgrx::prelude::*;

use crate::asking::as_asker;
use crate::definition::{name, parsed_text};
use crate::nodes;
use crate::registry::qualified_name;

/// What all rows of a table must satisfy, or what else is declared of it.
struct Demand {
    table: String,
    kind: &'static str,
    columns: Vec<String>,
    /// It compares values as their columns do.
    is_plain: bool,
    refers_to: Option<String>,
    referred: Vec<String>,
}

impl Demand {
    fn new(table: &str, kind: &'static str, columns: Vec<String>) -> Self {
        Self { table: table.to_owned(), kind, columns, is_plain: true, refers_to: None, referred: Vec::new() }
    }
}

/// What the switch has to know of all rows, unless it follows from what holds for the old tables; and what else new tables have: indexes of
/// plain columns (`PLAIN INDEX`), and defaults.
#[pg_extern(sql = false, strict)]
#[expect(clippy::type_complexity, reason = "the columns of the SQL function")]
fn demands(
    definition: &str,
) -> TableIterator<
    'static,
    (
        name!(new_table, String),
        name!(kind, String),
        name!(columns, Vec<String>),
        name!(plain, bool),
        name!(refers_to, Option<String>),
        name!(referred, Vec<String>),
    ),
> {
    let mut demands = Vec::new();
    for statement in parsed(definition) {
        // SAFETY: nodes of the parser, of the kinds that their tags tell.
        unsafe {
            match nodes::tag(statement) {
                NodeTag::T_AlterTableStmt => of_table(statement.cast(), &mut demands),
                NodeTag::T_IndexStmt => demands.push(of_index(statement.cast())),
                _ => {}
            }
        }
    }
    TableIterator::new(demands.into_iter().map(|Demand { table, kind, columns, is_plain, refers_to, referred }| {
        (table, kind.to_owned(), columns, is_plain, refers_to, referred)
    }))
}

unsafe fn of_table(alter: *mut pg_sys::AlterTableStmt, demands: &mut Vec<Demand>) {
    // SAFETY: nodes of the parser.
    unsafe {
        let table = name((*alter).relation);
        for command in nodes::elements::<pg_sys::AlterTableCmd>((*alter).cmds) {
            match (*command).subtype {
                AlterTableType::AT_SetNotNull => {
                    demands.push(Demand::new(&table, "NOT NULL", vec![nodes::text((*command).name)]));
                }
                AlterTableType::AT_ColumnDefault => {
                    demands.push(Demand::new(&table, "DEFAULT", vec![nodes::text((*command).name)]));
                }
                AlterTableType::AT_AddIdentity => {
                    demands.push(Demand::new(&table, "IDENTITY", vec![nodes::text((*command).name)]));
                }
                AlterTableType::AT_AddConstraint => of_constraint(&table, (*command).def.cast(), demands),
                _ => {}
            }
        }
    }
}

unsafe fn of_constraint(table: &str, constraint: *mut pg_sys::Constraint, demands: &mut Vec<Demand>) {
    // SAFETY: a node of the parser.
    unsafe {
        match (*constraint).contype {
            ConstrType::CONSTR_PRIMARY => {
                let columns = strings((*constraint).keys);
                demands.extend(columns.iter().map(|column| Demand::new(table, "NOT NULL", vec![column.clone()])));
                demands.push(Demand::new(table, "PRIMARY KEY", columns));
            }
            ConstrType::CONSTR_UNIQUE => demands.push(Demand::new(table, "UNIQUE", strings((*constraint).keys))),
            ConstrType::CONSTR_CHECK => demands.push(Demand::new(table, "CHECK", Vec::new())),
            ConstrType::CONSTR_FOREIGN => demands.push(Demand {
                refers_to: Some(referred_table((*constraint).pktable)),
                referred: strings((*constraint).pk_attrs),
                ..Demand::new(table, "FOREIGN KEY", strings((*constraint).fk_attrs))
            }),
            _ => {}
        }
    }
}

/// The name of a table that is there, or will be.
unsafe fn referred_table(table: *mut pg_sys::RangeVar) -> String {
    // SAFETY: a node of the parser; looks the name up, and locks nothing.
    unsafe {
        let no_lock = pg_sys::NoLock as pg_sys::LOCKMODE;
        let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
        let found =
            as_asker(|| pg_sys::RangeVarGetRelidExtended(table, no_lock, missing_ok, None, std::ptr::null_mut()));
        if found == Oid::INVALID { name(table) } else { qualified_name(found) }
    }
}

/// Other indexes fill as rows move.
unsafe fn of_index(index: *mut pg_sys::IndexStmt) -> Demand {
    // SAFETY: nodes of the parser.
    unsafe {
        let elements: Vec<*mut pg_sys::IndexElem> = nodes::elements((*index).indexParams);
        let is_evaluated =
            !(*index).whereClause.is_null() || elements.iter().any(|element| !(**element).expr.is_null());
        let kind = match ((*index).unique, is_evaluated) {
            (true, _) => "UNIQUE",
            (false, true) => "INDEX",
            (false, false) => "PLAIN INDEX",
        };
        let columns = elements.iter().map(|element| nodes::text((**element).name)).filter(|name| !name.is_empty());
        let is_plain = |element: &*mut pg_sys::IndexElem| {
            (**element).expr.is_null() && (**element).opclass.is_null() && (**element).collation.is_null()
        };
        Demand {
            is_plain: elements.iter().all(is_plain),
            ..Demand::new(&name((*index).relation), kind, columns.collect())
        }
    }
}

/// The rights on tables that a migration grants. No role: everybody; no privilege: all of them.
#[pg_extern(sql = false, strict)]
fn granted(
    definition: &str,
) -> TableIterator<'static, (name!(new_table, String), name!(grantee, Option<Oid>), name!(privilege, Option<String>))> {
    let mut granted = Vec::new();
    for statement in parsed(definition) {
        // SAFETY: nodes of the parser, of the kinds that their tags tell.
        unsafe {
            let grant = statement.cast::<pg_sys::GrantStmt>();
            if nodes::tag(statement) != NodeTag::T_GrantStmt
                || !(*grant).is_grant
                || (*grant).targtype != pg_sys::GrantTargetType::ACL_TARGET_OBJECT
                || (*grant).objtype != pg_sys::ObjectType::OBJECT_TABLE
            {
                continue;
            }
            let privileges: Vec<*mut pg_sys::AccessPriv> = nodes::elements((*grant).privileges);
            let mut names: Vec<Option<String>> = privileges
                .iter()
                .filter(|privilege| (***privilege).cols.is_null())
                .map(|privilege| Some(nodes::text((**privilege).priv_name).to_uppercase()))
                .collect();
            if privileges.is_empty() {
                names.push(None);
            }
            for role in nodes::elements::<pg_sys::RoleSpec>((*grant).grantees) {
                let is_everybody = (*role).roletype == pg_sys::RoleSpecType::ROLESPEC_PUBLIC;
                let role = if is_everybody { None } else { Some(as_asker(|| pg_sys::get_rolespec_oid(role, false))) };
                for table in nodes::elements::<pg_sys::RangeVar>((*grant).objects) {
                    granted.extend(names.iter().map(|privilege| (name(table), role, privilege.clone())));
                }
            }
        }
    }
    TableIterator::new(granted)
}

/// The statements of a migration as the parser gives them.
fn parsed(definition: &str) -> Vec<*mut pg_sys::Node> {
    let text = nodes::c_text(definition);
    // SAFETY: the trees have copies of what they need of the text.
    unsafe { nodes::elements::<pg_sys::RawStmt>(parsed_text(&text)).into_iter().map(|raw| (*raw).stmt).collect() }
}

unsafe fn strings(list: *mut pg_sys::List) -> Vec<String> {
    // SAFETY: a list of names.
    unsafe { nodes::elements::<pg_sys::String>(list).into_iter().map(|name| nodes::text((*name).sval)).collect() }
}
