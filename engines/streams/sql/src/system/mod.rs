//! What clients of PostgreSQL ask about tables: `pg_catalog` and `information_schema`.
//!
//! ```text
//!   query --is_asked--> plan (names and types, select and expression) --> rows of tables in memory (tables)
//! ```
//!
//! Why this is no plan of DataFusion's: `\d` and its kin have subqueries that name columns of the queries around them, several
//! levels up and in any clause, arrays of subqueries, comparisons with the elements of arrays, casts to names of objects
//! (`'t'::regclass`) and operators of a schema (`OPERATOR(pg_catalog.~)`). DataFusion plans none of these, and a rewrite of each of
//! psql's texts would know one version of psql. The tables are small and made anew for each question from the catalog of streams,
//! so the questions are answered here, row by row, with bounds on the rows that are looked at ([`select`]).
//!
//! What a client may ask for is a row in a table: a system table in [`tables`], a function in [`functions`].

mod expression;
mod functions;
mod pg_types;
mod select;
mod tables;
mod value;

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{Expr, ObjectName};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::Form;
use savanna_streams_model::catalog::{ColumnDef, TableDef};

use crate::plan::walk::{self, Node};
use crate::plan::{Catalog, function_forms};
use crate::statement::Query;

/// The database that streams are in.
const DATABASE: &str = "savanna_streams";
/// The schema that tables and views of streams are in.
const PUBLIC: &str = "public";
const PG_CATALOG: &str = "pg_catalog";
const INFORMATION_SCHEMA: &str = "information_schema";

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// The user's name.
    pub user: String,
    /// The settings of the session, by name.
    pub settings: BTreeMap<String, String>,
}

/// A table or view as the system tables tell it.
pub(crate) struct Relation {
    name: String,
    columns: Vec<ColumnDef>,
    what: What,
}

/// What is told of one kind of relation only.
enum What {
    Table(TableDef),
    View {
        /// The text of its query.
        query: String,
    },
    Materialized {
        /// The text of its query.
        query: String,
    },
}

impl Relation {
    pub(crate) fn table(table: TableDef) -> Self {
        Self { name: table.name.clone(), columns: table.columns.clone(), what: What::Table(table) }
    }

    pub(crate) fn view(name: String, query: String, schema: &Schema) -> Self {
        Self { name, columns: columns_of(schema), what: What::View { query } }
    }

    pub(crate) fn materialized(name: String, query: String, schema: &Schema) -> Self {
        Self { name, columns: columns_of(schema), what: What::Materialized { query } }
    }

    /// The number that stands for the relation: the same as long as it has its name. Two names of one number are as rare as
    /// two in a thousand million.
    fn oid(&self) -> i64 {
        oid_of(&self.name)
    }
}

fn columns_of(schema: &Schema) -> Vec<ColumnDef> {
    let column = |field: &Arc<arrow::datatypes::Field>| ColumnDef {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: true,
        computed: None,
    };
    schema.fields().iter().map(column).collect()
}

/// A function of streams in one form, as clients of PostgreSQL list it.
struct Callable {
    oid: i64,
    name: String,
    aggregate: bool,
    /// The numbers of its arguments' types.
    arguments: Vec<i64>,
    variadic: bool,
    returns: i64,
}

impl Callable {
    fn of(form: &Form) -> Self {
        let number = |data_type: &Option<DataType>| data_type.as_ref().map_or(pg_types::ANY, |t| pg_types::of(t).0);
        let arguments: Vec<i64> = form.arguments.iter().map(number).collect();
        let oid = oid_of(&format!("function {}{arguments:?}", form.name));
        let (name, aggregate, variadic) = (form.name.clone(), form.aggregate, form.variadic);
        Self { oid, name, aggregate, arguments, variadic, returns: number(&form.returns) }
    }

    /// The types of the arguments as `\df` shows them.
    fn argument_types(&self) -> String {
        let mut types: Vec<String> = self.arguments.iter().map(|oid| pg_types::format(*oid, None)).collect();
        if let Some(last) = types.last_mut().filter(|_| self.variadic) {
            last.insert_str(0, "VARIADIC ");
        }
        types.join(", ")
    }
}

/// A number made of a name, above those that PostgreSQL has taken.
fn oid_of(name: &str) -> i64 {
    const FIRST: i64 = 16_384;
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    FIRST + i64::from(hash >> 2)
}

/// Everything that the system tables are made of.
pub(crate) struct World<'a> {
    relations: Vec<Relation>,
    /// Made when they are asked for.
    functions: OnceCell<Vec<Callable>>,
    asker: &'a Asker,
    /// Rows that were looked at, and values of rows that were joined.
    rows: Cell<usize>,
    values: Cell<usize>,
}

impl<'a> World<'a> {
    pub(crate) fn new(relations: Vec<Relation>, asker: &'a Asker) -> Self {
        Self { relations, functions: OnceCell::new(), asker, rows: Cell::new(0), values: Cell::new(0) }
    }

    /// The functions that streams may call, once for each form that PostgreSQL's types tell apart.
    fn functions(&self) -> &[Callable] {
        self.functions.get_or_init(|| {
            let mut all: Vec<Callable> = function_forms().iter().map(Callable::of).collect();
            let mut seen = HashSet::new();
            all.retain(|callable| seen.insert(callable.oid));
            all
        })
    }

    fn relation(&self, oid: i64) -> Option<&Relation> {
        self.relations.iter().find(|relation| relation.oid() == oid)
    }
}

/// Whether a query asks the system: it names one of its tables, or calls one of its functions without naming any table.
pub(crate) fn is_asked(query: &Query, catalog: &dyn Catalog) -> bool {
    let names_system = |name: &ObjectName| match value::split_name(name) {
        (Some(schema), _) => schema == PG_CATALOG || schema == INFORMATION_SCHEMA,
        (None, table) => {
            let is_own = || {
                catalog.table(&table).is_some()
                    || catalog.view(&table).is_some()
                    || catalog.materialized(&table).is_some()
            };
            tables::find(None, &table).is_some() && !is_own()
        }
    };
    let mut named = false;
    let system = walk::find(query.ast.as_ref(), |node| match node {
        Node::Relation(name) => {
            named = true;
            names_system(name).then_some(())
        }
        _ => None,
    });
    system.is_some() || (!named && calls_system(query))
}

fn calls_system(query: &Query) -> bool {
    let is_system = |expr: &Expr| match expr {
        Expr::Function(function) => match value::split_name(&function.name) {
            (Some(schema), _) => schema == PG_CATALOG,
            (None, name) => functions::is_of_the_system_alone(&name),
        },
        Expr::Cast { data_type, .. } => {
            let (schema, name) = value::type_name(data_type);
            schema.as_deref() == Some(PG_CATALOG) || name.starts_with("reg") || name == "oid" || name == "name"
        }
        _ => false,
    };
    walk::find(query.ast.as_ref(), |node| match node {
        Node::Expr(expr) if is_system(expr) => Some(()),
        _ => None,
    })
    .is_some()
}

/// The columns of the answer.
///
/// # Errors
/// The query names what does not exist, or has a form that is not answered here.
pub(crate) fn columns(query: &Query, world: &World<'_>) -> Result<SchemaRef> {
    Ok(select::Plan::of(&query.ast, world)?.schema())
}

/// The answer.
///
/// # Errors
/// As [`columns`]; a value is none of its type.
pub(crate) fn answer(query: &Query, world: &World<'_>) -> Result<RecordBatch> {
    let plan = select::Plan::of(&query.ast, world)?;
    let rows = plan.rows(world)?;
    let columns = (0..plan.width()).map(|at| value::column(&rows, at, plan.type_of(at))).collect();
    RecordBatch::try_new(plan.schema(), columns).map_err(|e| StreamError::Internal(e.to_string()))
}
