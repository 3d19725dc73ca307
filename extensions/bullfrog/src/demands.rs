//! What a migration asks of its new tables' rows, and who may use them, for those who look before the switch.

use pgrx::pg_sys::{self, AlterTableType, ConstrType, NodeTag, Oid};
use pgrx::prelude::*;

use crate::asking::as_asker;
use crate::definition::{analysed, name, parsed_text};
use crate::nodes;
use crate::proofs::{Claim, Image, is_not_null};
use crate::registry::qualified_name;
use crate::rows::{column_names, without_join_aliases};

/// What all rows of a table must satisfy, or what else is declared of it.
struct Demand {
    table: String,
    kind: &'static str,
    columns: Vec<String>,
    /// It compares values as their columns do.
    is_plain: bool,
    /// An index of it has expressions or a condition.
    is_evaluated: bool,
    refers_to: Option<String>,
    referred: Vec<String>,
    asked: Asked,
    /// The old table proves it.
    is_proven: bool,
    /// Statements that would let it.
    proof: Vec<String>,
}

/// What is asked of rows, as the parser gives it.
enum Asked {
    /// Nothing that an old table could prove.
    Other,
    NotNull,
    Check {
        name: Option<String>,
        condition: *mut pg_sys::Node,
    },
    Index {
        keys: Vec<Key>,
        condition: *mut pg_sys::Node,
        is_unique: bool,
    },
    Values,
    Identity,
}

/// What an index has of a row.
enum Key {
    Column(String),
    Expression(*mut pg_sys::Node),
}

impl Demand {
    fn new(table: &str, kind: &'static str, columns: Vec<String>) -> Self {
        Self {
            table: table.to_owned(),
            kind,
            columns,
            is_plain: true,
            is_evaluated: false,
            refers_to: None,
            referred: Vec::new(),
            asked: Asked::Other,
            is_proven: false,
            proof: Vec::new(),
        }
    }

    fn of_key(table: &str, kind: &'static str, columns: Vec<String>) -> Self {
        let keys = columns.iter().cloned().map(Key::Column).collect();
        let asked = Asked::Index { keys, condition: std::ptr::null_mut(), is_unique: true };
        Self { asked, ..Self::new(table, kind, columns) }
    }

    fn of_values(table: &str, columns: Vec<String>) -> Self {
        Self { asked: Asked::Values, ..Self::new(table, "VALUE", columns) }
    }
}

/// A new table that is an image of one old table.
struct NewTable {
    name: String,
    image: Image,
    columns: Vec<String>,
    raw: *mut pg_sys::RawStmt,
}

/// What the switch has to know of all rows, unless it follows from what holds for the old tables; and what else new tables have: indexes of
/// plain columns (`PLAIN INDEX`), and defaults.
#[pg_extern(sql = false, strict)]
#[expect(clippy::type_complexity, reason = "the columns of the SQL function")]
fn demands_and_proofs(
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
        name!(proven, bool),
        name!(proof, Vec<String>),
        name!(evaluated, bool),
    ),
> {
    TableIterator::new(demands_of(definition).into_iter().map(|demand| {
        let Demand { table, kind, columns, is_plain, refers_to, referred, is_proven, proof, is_evaluated, .. } = demand;
        (table, kind.to_owned(), columns, is_plain, refers_to, referred, is_proven, proof, is_evaluated)
    }))
}

/// The same for functions of version 0.1.0, until they are updated: these know neither values nor proofs.
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
    let known = demands_of(definition).into_iter().filter(|demand| !matches!(demand.asked, Asked::Values));
    TableIterator::new(known.map(|demand| {
        let Demand { table, kind, columns, is_plain, refers_to, referred, .. } = demand;
        (table, kind.to_owned(), columns, is_plain, refers_to, referred)
    }))
}

fn demands_of(definition: &str) -> Vec<Demand> {
    let text = nodes::c_text(definition);
    let mut demands = Vec::new();
    let mut images = Vec::new();
    // SAFETY: nodes of the parser, of the kinds that their tags tell; the text lives until they were read.
    unsafe {
        for raw in nodes::elements::<pg_sys::RawStmt>(parsed_text(&text)) {
            let statement = (*raw).stmt;
            match nodes::tag(statement) {
                NodeTag::T_CreateTableAsStmt => {
                    images.extend(NewTable::of(raw, text.as_ptr()));
                    let name = name((*(*statement.cast::<pg_sys::CreateTableAsStmt>()).into).rel);
                    demands.push(Demand::of_values(&name, Vec::new()));
                }
                NodeTag::T_AlterTableStmt => of_table(statement.cast(), &mut demands),
                NodeTag::T_IndexStmt => demands.push(of_index(statement.cast())),
                _ => {}
            }
        }
        for (number, demand) in (1..).zip(&mut demands) {
            if let Some(new_table) = images.iter().find(|image| image.name == demand.table) {
                new_table.look_for_proof(demand, number, text.as_ptr());
            }
        }
    }
    demands
}

impl NewTable {
    /// The table that a statement creates, if it is an image.
    unsafe fn of(raw: *mut pg_sys::RawStmt, text: *const std::ffi::c_char) -> Option<Self> {
        // SAFETY: a statement of the parser, which analyses a copy of it.
        unsafe {
            let create = (*raw).stmt.cast::<pg_sys::CreateTableAsStmt>();
            let query = without_join_aliases(analysed(raw, nodes::copy((*create).query), text));
            let image = Image::of(query)?;
            let columns = column_names(query, strings((*(*create).into).colNames));
            Some(Self { name: name((*(*create).into).rel), image, columns, raw })
        }
    }

    /// What a column is.
    unsafe fn column(&self, name: &str) -> Option<*mut pg_sys::Node> {
        let number = self.columns.iter().position(|column| column == name)?;
        // SAFETY: a column of the image.
        unsafe { self.image.column(i16::try_from(number + 1).ok()?) }
    }

    /// Finds out whether the old table proves what is asked of all rows, or what would.
    unsafe fn look_for_proof(&self, demand: &mut Demand, number: usize, text: *const std::ffi::c_char) {
        // SAFETY: a demand about this table; claims are over the old one.
        unsafe {
            let Some(claims) = self.claims(demand, text) else { return };
            let image = self.image;
            let mut open: Vec<_> = claims.iter().filter(|claim| !image.proves(claim)).collect();
            demand.is_proven = open.is_empty();
            if open.iter().any(|claim| matches!(claim, Claim::Check(_))) {
                open.retain(|claim| matches!(claim, Claim::Check(_)));
            }
            if open.iter().any(|claim| image.is_proven_by_full_index(claim)) {
                // It evaluates its keys for all rows.
                open.retain(|claim| matches!(claim, Claim::Unique { .. }));
            }
            let name = match &demand.asked {
                Asked::NotNull => format!("{}_not_null", demand.columns.concat()),
                Asked::Check { name: Some(name), .. } => name.clone(),
                _ => format!("{}_{number}", demand.kind.replace(' ', "_").to_lowercase()),
            };
            let table = nodes::text((*(*(*(*self.raw).stmt.cast::<pg_sys::CreateTableAsStmt>()).into).rel).relname);
            demand.proof = open.into_iter().flat_map(|claim| image.proof(claim, &format!("{table}_{name}"))).collect();
        }
    }

    /// What a demand asks of all rows.
    unsafe fn claims(&self, demand: &Demand, text: *const std::ffi::c_char) -> Option<Vec<Claim>> {
        // SAFETY: expressions of the parser about this table.
        unsafe {
            let analyse = |expression: *mut pg_sys::Node| self.image.analyse(self.raw, expression, text);
            match &demand.asked {
                Asked::Other => None,
                Asked::NotNull => Some(vec![Claim::Check(is_not_null(self.column(demand.columns.first()?)?))]),
                Asked::Check { condition, .. } => Some(Claim::of_check(analyse(*condition)?)),
                Asked::Index { keys, condition, is_unique } => {
                    let key = |key: &Key| match key {
                        Key::Column(name) => self.column(name),
                        Key::Expression(expression) => analyse(*expression),
                    };
                    let keys = keys.iter().map(key).collect::<Option<Vec<_>>>()?;
                    let condition = if condition.is_null() { *condition } else { analyse(*condition)? };
                    Some(Claim::of_index(keys, condition, *is_unique))
                }
                Asked::Values => Some(self.image.values()),
                Asked::Identity => Some(vec![Claim::Extremes(self.column(demand.columns.first()?)?)]),
            }
        }
    }
}

unsafe fn of_table(alter: *mut pg_sys::AlterTableStmt, demands: &mut Vec<Demand>) {
    // SAFETY: nodes of the parser.
    unsafe {
        let table = name((*alter).relation);
        for command in nodes::elements::<pg_sys::AlterTableCmd>((*alter).cmds) {
            match (*command).subtype {
                AlterTableType::AT_SetNotNull => demands.push(not_null(&table, nodes::text((*command).name))),
                AlterTableType::AT_ColumnDefault => {
                    demands.push(Demand::new(&table, "DEFAULT", vec![nodes::text((*command).name)]));
                }
                AlterTableType::AT_AddIdentity => {
                    let columns = vec![nodes::text((*command).name)];
                    demands.push(Demand { asked: Asked::Identity, ..Demand::new(&table, "IDENTITY", columns) });
                }
                AlterTableType::AT_AddConstraint => of_constraint(&table, (*command).def.cast(), demands),
                _ => {}
            }
        }
    }
}

fn not_null(table: &str, column: String) -> Demand {
    Demand { asked: Asked::NotNull, ..Demand::new(table, "NOT NULL", vec![column]) }
}

unsafe fn of_constraint(table: &str, constraint: *mut pg_sys::Constraint, demands: &mut Vec<Demand>) {
    // SAFETY: a node of the parser.
    unsafe {
        match (*constraint).contype {
            ConstrType::CONSTR_PRIMARY => {
                let columns = strings((*constraint).keys);
                demands.extend(columns.iter().map(|column| not_null(table, column.clone())));
                demands.push(Demand::of_key(table, "PRIMARY KEY", columns));
            }
            ConstrType::CONSTR_UNIQUE => demands.push(Demand::of_key(table, "UNIQUE", strings((*constraint).keys))),
            ConstrType::CONSTR_CHECK => {
                let name = Some(nodes::text((*constraint).conname)).filter(|name| !name.is_empty());
                let asked = Asked::Check { name, condition: (*constraint).raw_expr };
                demands.push(Demand { asked, ..Demand::new(table, "CHECK", Vec::new()) });
            }
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
        let key = |element: &*mut pg_sys::IndexElem| {
            if (**element).expr.is_null() {
                Key::Column(nodes::text((**element).name))
            } else {
                Key::Expression((**element).expr)
            }
        };
        let is_default =
            |element: &*mut pg_sys::IndexElem| (**element).opclass.is_null() && (**element).collation.is_null();
        let is_unique = (*index).unique;
        let asked = if is_unique && !elements.iter().all(is_default) {
            Asked::Other
        } else {
            Asked::Index { keys: elements.iter().map(key).collect(), condition: (*index).whereClause, is_unique }
        };
        Demand {
            is_plain: elements.iter().all(is_plain),
            is_evaluated,
            asked,
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
