//! Plans of queries: a tree of nodes that join rows, and the steps after it.
//!
//! All tables of a query fill one row, each its own part of it. A query inside of another one has the columns around it at the
//! beginning of its own row (`outer` of them), so that a reference to them is a column like any other. Only those that it reads
//! are filled in, from its *arguments*; a query without arguments has the same answer for every row around it.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use savanna_tenants_catalog::{EntryColumns, Index, Table};
use savanna_transaction::RowLock;

use crate::{
    expression::{Comparison, Expr, aggregate::Aggregate, set_function::SetFunction},
    plan::{OutputColumn, access::Access, window::WindowCall},
    query::from::Inner,
};

/// A query: rows, in an order, perhaps not all of them.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Query {
    /// Columns of the row around it.
    pub outer: usize,
    /// Queries of WITH that depend on the row around it, so that they run whenever it does.
    pub with: Vec<Arc<Cte>>,
    pub body: Body,
    pub columns: Vec<OutputColumn>,
    /// Empty also if rows come in the right order.
    pub order: Vec<SortKey>,
    /// What of that order they come in.
    pub presorted: Option<Presorted>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub locking: Option<Locking>,
}

/// Where a query's rows come from.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub enum Body {
    Select(Box<Select>),
    /// `VALUES`
    Values(Vec<Vec<Expr>>),
    Set(Box<SetOperation>),
    Recursive(Box<Recursive>),
    /// A query of WITH.
    Cte(Arc<Cte>),
    /// What a statement in WITH that writes returns, by its number.
    Written(usize),
    /// What the last step of a recursive query added, by the query's number.
    Working(usize),
    /// A function that returns rows, numbered from 1 with `ordinality`.
    Function {
        function: SetFunction,
        arguments: Vec<Expr>,
        ordinality: bool,
    },
}

/// `UNION`, `INTERSECT`, `EXCEPT`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct SetOperation {
    pub kind: SetKind,
    pub all: bool,
    pub left: Query,
    pub right: Query,
}

/// How two queries become one.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    Union,
    Intersect,
    Except,
}

/// `WITH RECURSIVE`: rows, and then those that come of the rows that were added last, until there are none.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Recursive {
    pub id: usize,
    pub all: bool,
    pub first: Query,
    pub step: Query,
}

/// A query of WITH. It runs once, when somebody asks for its rows.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Cte {
    /// Its number in the statement.
    pub id: usize,
    pub query: Query,
    pub arguments: Arguments,
    /// What its rows depend on. Kept, because who names it asks: a chain of them would ask the first one once for each way to it.
    pub(crate) others: Others,
    /// Whether one place alone reads it, and reads it once, so that its rows need not be kept.
    pub read_once: AtomicBool,
}

/// What the rows of a query depend on beside the tables: queries that run around it.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// Whether a named query in it reads the row around that.
    rows: bool,
    /// The recursive queries whose rows so far it reads, without those that are a part of it.
    working: BTreeSet<usize>,
}

impl Others {
    pub(crate) fn is_empty(&self) -> bool {
        !self.rows && self.working.is_empty()
    }
}

/// `SELECT`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Select {
    pub rows: Joined,
    pub grouping: Option<Grouping>,
    /// Over the joined row; or over the columns around the query, then keys, then aggregates.
    pub windows: Vec<WindowCall>,
    /// Functions that return rows, over the row with what windows come to, those within others first. What each step of them comes to
    /// stands behind.
    pub sets: Vec<Vec<SetCall>>,
    /// As the last of these. Those that are only sorted by come last.
    pub outputs: Vec<Expr>,
    pub distinct: Option<Distinct>,
    /// What `rows` joins, if the query around may yet add conditions.
    pub(crate) joins: Option<Inner>,
}

/// A function that returns rows of one column, among what is selected.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub struct SetCall {
    pub function: SetFunction,
    pub arguments: Vec<Expr>,
}

/// Which rows are left out.
#[derive(Clone, Debug)]
pub enum Distinct {
    /// Those that are equal to others.
    All,
    /// Those that are equal to earlier ones in these outputs.
    On(Vec<usize>),
}

/// Joined rows.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Joined {
    /// A condition that no table has to do with.
    pub condition: Option<Expr>,
    pub node: Node,
    /// Columns of the joined row.
    pub width: usize,
    /// Tables whose rows' keys are noted.
    pub keys: usize,
    /// Whether rows have to come in the order of the first table.
    pub in_order: bool,
}

/// A step of a join. It fills its part of the row, once for each of its rows.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub enum Node {
    /// One row without columns.
    One,
    Scan(Scan),
    Rows(Rows),
    Filter {
        input: Box<Node>,
        condition: Expr,
    },
    Join(Box<Join>),
    Full(Box<FullJoin>),
    Keep(Box<Keep>),
}

/// Rows of a table.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Scan {
    pub table: Arc<Table>,
    /// Its name in the statement.
    pub alias: String,
    /// Where its columns begin in the row.
    pub base: usize,
    pub access: Access,
    pub backwards: bool,
    /// The columns that are needed of it.
    pub wanted: Vec<usize>,
    /// Where the keys of its rows are noted.
    pub key: Option<usize>,
    /// What is wanted as each index has it, once somebody has asked: not before all of the above is known.
    pub(crate) in_entries: OnceLock<Vec<(u32, Option<EntryColumns>)>>,
}

impl Scan {
    /// How what is wanted of rows is read from entries of an index, if it is all there and nobody asks for the rows themselves.
    pub fn in_entries(&self, index: &Index) -> Option<&EntryColumns> {
        let of = |index: &Index| match self.key {
            Some(_) => None,
            None => EntryColumns::of(&self.table, index, &self.wanted),
        };
        let all = || self.table.indexes.iter().map(|index| (index.relation, of(index))).collect();
        let known = self.in_entries.get_or_init(all).iter().find(|(relation, _)| *relation == index.relation);
        known.and_then(|(_, columns)| columns.as_ref())
    }
}

/// Rows of a query in `FROM`.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Rows {
    pub query: Arc<Query>,
    /// Its name in the statement.
    pub alias: String,
    /// Where its columns begin in the row.
    pub base: usize,
    pub arguments: Arguments,
}

/// What a query reads of the row around it: places there, and their values.
pub type Arguments = Vec<(usize, Expr)>;

/// For each row of the left side those of the right side.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Join {
    pub left: Node,
    pub right: Node,
    /// For a left join: the columns of the right side, which are NULL if it has no row.
    pub optional: Option<Range<usize>>,
}

/// Both sides' rows, joined where the condition holds, and the rest of each.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct FullJoin {
    pub left: Node,
    pub left_part: Range<usize>,
    pub right: Keep,
    pub condition: Option<Expr>,
}

/// Rows that do not depend on those before; they are read once and kept.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Keep {
    /// Its number in the statement.
    pub id: usize,
    pub input: Node,
    pub part: Range<usize>,
    /// Where the keys of its rows are noted.
    pub keys: Vec<usize>,
    pub lookup: Option<Lookup>,
    /// Whether rows are wanted, too, that nobody can look up.
    pub all: bool,
    /// Whether they depend on the row around the query, so that they are kept for one row only.
    pub varies: bool,
}

/// Rows by the values of expressions over them: of those that wait, and of whoever asks.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Lookup {
    pub own: Vec<Expr>,
    pub probe: Vec<Expr>,
}

/// Groups of rows.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Grouping {
    /// Functions that return rows which are grouped by, over the joined row; as those of a `Select`.
    pub functions: Vec<Vec<SetCall>>,
    /// `GROUPING SETS`: for each the places of the keys that it groups by; the others are NULL in its groups.
    pub sets: Option<Vec<Vec<usize>>>,
    pub keys: Vec<Expr>,
    pub aggregates: Vec<Aggregate>,
    /// Over the columns around the query, then keys, then aggregates, then the number of the grouping set if there are some.
    pub having: Option<Expr>,
}

/// A column of a result that it is sorted by.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    pub at: usize,
    pub descending: bool,
    pub nulls_first: bool,
}

/// An order in which rows come already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presorted {
    /// The first keys of the order that is wanted, so many.
    pub keys: usize,
    /// Whether an index is read for that alone, in the place of the table.
    pub by_index: bool,
}

/// What to do about a row that somebody else has locked.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Wait,
    Fail,
    Skip,
}

/// `FOR UPDATE` and its kind.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locking {
    pub mode: RowLock,
    pub patience: Patience,
}

/// A query in an expression.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Subquery {
    pub test: Test,
    pub query: Arc<Query>,
    pub arguments: Arguments,
    /// Its number in the statement.
    pub id: usize,
    /// Whether it has the same answer for every row.
    pub is_fixed: bool,
    /// What answers EXISTS for all rows at once.
    pub hashed: Option<Arc<Hashed>>,
}

/// Another form of EXISTS: whether values of the row around are among those of all rows.
#[derive(Clone, Debug)]
pub struct Hashed {
    /// Over the columns around the query.
    pub probe: Vec<Expr>,
    /// The values of its rows; it has no arguments.
    pub query: Query,
}

impl PartialEq for Subquery {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.query, &other.query) && self.test == other.test && self.arguments == other.arguments
    }
}

/// What an expression wants to know of a query.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A column of its one row, NULL if there is none.
    Scalar(usize),
    /// All of its rows, of one column, as an array.
    Array,
    Exists,
    /// Whether the comparison holds with one of its rows.
    Any(Comparison, Vec<Expr>),
    /// Whether the comparison holds with all of its rows.
    All(Comparison, Vec<Expr>),
}

impl Test {
    /// The values that are compared.
    pub fn values(&self) -> &[Expr] {
        match self {
            Self::Scalar(_) | Self::Array | Self::Exists => &[],
            Self::Any(_, values) | Self::All(_, values) => values,
        }
    }

    pub(crate) fn values_mut(&mut self) -> &mut [Expr] {
        match self {
            Self::Scalar(_) | Self::Array | Self::Exists => &mut [],
            Self::Any(_, values) | Self::All(_, values) => values,
        }
    }
}

impl Node {
    /// A node whose rows fulfil conditions, too.
    pub(crate) fn filtered(self, conditions: impl IntoIterator<Item = Expr>) -> Self {
        match Expr::all(conditions) {
            Some(condition) => Self::Filter { input: Box::new(self), condition },
            None => self,
        }
    }

    /// Visits the nodes that it stands on directly.
    pub fn inputs<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match self {
            Self::One | Self::Scan(_) | Self::Rows(_) => {}
            Self::Filter { input, .. } => visit(input),
            Self::Join(join) => {
                visit(&join.left);
                visit(&join.right);
            }
            Self::Full(join) => {
                visit(&join.left);
                visit(&join.right.input);
            }
            Self::Keep(keep) => visit(&keep.input),
        }
    }

    /// Visits its expressions and those of the nodes below, which are all over the joined row.
    pub(crate) fn expressions(&self, visit: &mut dyn FnMut(&Expr)) {
        let lookup = |keep: &Keep, visit: &mut dyn FnMut(&Expr)| {
            keep.lookup.iter().flat_map(|lookup| lookup.own.iter().chain(&lookup.probe)).for_each(visit);
        };
        match self {
            Self::One | Self::Join(_) => {}
            Self::Scan(scan) => scan.access.expressions().for_each(&mut *visit),
            Self::Rows(rows) => rows.arguments.iter().for_each(|(_, value)| visit(value)),
            Self::Filter { condition, .. } => visit(condition),
            Self::Full(join) => {
                join.condition.iter().for_each(&mut *visit);
                lookup(&join.right, visit);
            }
            Self::Keep(keep) => lookup(keep, visit),
        }
        self.inputs(&mut |input| input.expressions(visit));
    }

    /// Visits the queries in FROM.
    pub(crate) fn queries<'a>(&'a self, visit: &mut dyn FnMut(&'a Query)) {
        if let Self::Rows(rows) = self {
            visit(&rows.query);
        }
        self.inputs(&mut |input| input.queries(visit));
    }

    /// Visits all scans.
    pub(crate) fn scans(&mut self, visit: &mut dyn FnMut(&mut Scan)) {
        match self {
            Self::One | Self::Rows(_) => {}
            Self::Scan(scan) => visit(scan),
            Self::Filter { input, .. } => input.scans(visit),
            Self::Join(join) => {
                join.left.scans(visit);
                join.right.scans(visit);
            }
            Self::Full(join) => {
                join.left.scans(visit);
                join.right.scans(visit);
            }
            Self::Keep(keep) => keep.scans(visit),
        }
    }

    /// Whether it is no join.
    pub fn is_one_table(&self) -> bool {
        match self {
            Self::Scan(_) => true,
            Self::Filter { input, .. } => input.is_one_table(),
            _ => false,
        }
    }

    /// The scan whose order the rows come in.
    pub(crate) fn leading_scan(&mut self) -> Option<&mut Scan> {
        match self {
            Self::Scan(scan) => Some(scan),
            Self::Filter { input, .. } => input.leading_scan(),
            Self::Join(join) => join.left.leading_scan(),
            Self::One | Self::Rows(_) | Self::Full(_) | Self::Keep(_) => None,
        }
    }
}

impl Keep {
    fn scans(&mut self, visit: &mut dyn FnMut(&mut Scan)) {
        let keys = &mut self.keys;
        keys.clear();
        self.input.scans(&mut |scan| {
            visit(scan);
            keys.extend(scan.key);
        });
    }
}

impl Select {
    /// What is computed of each row.
    pub(crate) fn of(rows: Joined, outputs: Vec<Expr>) -> Self {
        Self { rows, grouping: None, windows: Vec::new(), sets: Vec::new(), outputs, distinct: None, joins: None }
    }

    /// Notes which columns of each table are needed.
    pub(crate) fn want(&mut self) {
        match &self.grouping {
            None => {
                let arguments = self.sets.iter().flatten().flat_map(|set| &set.arguments);
                let windows = self.windows.iter().flat_map(WindowCall::expressions);
                self.rows.want(self.outputs.iter().chain(windows).chain(arguments));
            }
            Some(grouping) => self.rows.want(grouping.expressions()),
        }
    }
}

impl Joined {
    /// Visits all expressions over the joined row.
    pub fn expressions(&self, visit: &mut dyn FnMut(&Expr)) {
        self.condition.iter().for_each(&mut *visit);
        self.node.expressions(visit);
    }

    /// Notes which columns of each table are needed: those of its own expressions and of `others`.
    pub(crate) fn want<'e>(&mut self, others: impl IntoIterator<Item = &'e Expr>) {
        let mut columns = BTreeSet::new();
        let mut note = |column| {
            columns.insert(column);
        };
        others.into_iter().for_each(|expr| expr.columns(&mut note));
        self.expressions(&mut |expr| expr.columns(&mut note));
        self.node.scans(&mut |scan| {
            let end = scan.base + scan.table.columns.len();
            scan.wanted = columns.range(scan.base..end).map(|column| column - scan.base).collect();
        });
    }
}

impl Query {
    /// What it reads of the row around it.
    pub(crate) fn arguments(&self) -> Arguments {
        let mut columns = BTreeSet::new();
        self.expressions(&mut |expr| {
            expr.columns(&mut |column| {
                if column < self.outer {
                    columns.insert(column);
                }
            });
        });
        columns.into_iter().map(|column| (column, Expr::Column(column))).collect()
    }

    /// Visits its expressions, and those of queries that it is made of and that have the same row around them.
    fn expressions(&self, visit: &mut dyn FnMut(&Expr)) {
        self.limit.iter().chain(&self.offset).for_each(&mut *visit);
        self.with.iter().flat_map(|cte| &cte.arguments).for_each(|(_, value)| visit(value));
        match &self.body {
            Body::Cte(_) | Body::Working(_) | Body::Written(_) => {}
            Body::Values(rows) => rows.iter().flatten().for_each(visit),
            Body::Function { arguments, .. } => arguments.iter().for_each(visit),
            Body::Set(set) => {
                set.left.expressions(visit);
                set.right.expressions(visit);
            }
            Body::Recursive(recursive) => {
                recursive.first.expressions(visit);
                recursive.step.expressions(visit);
            }
            Body::Select(select) => {
                select.rows.expressions(visit);
                select.outputs.iter().for_each(&mut *visit);
                select.windows.iter().flat_map(WindowCall::expressions).for_each(&mut *visit);
                select.sets.iter().flatten().flat_map(|set| &set.arguments).for_each(&mut *visit);
                if let Some(grouping) = &select.grouping {
                    grouping.expressions().chain(&grouping.having).for_each(visit);
                }
            }
        }
    }

    /// Whether it makes a difference how often it runs: it computes what is volatile, or locks rows.
    pub(crate) fn acts(&self) -> bool {
        let mut acts = self.locking.is_some();
        self.expressions(&mut |expr| {
            acts |= expr.is_volatile();
            expr.queries(&mut |query| acts |= query.acts());
        });
        self.in_from(&mut |query| acts |= query.acts());
        acts
    }

    /// Visits the queries in FROM of it and of those that it is made of.
    fn in_from(&self, visit: &mut dyn FnMut(&Query)) {
        match &self.body {
            Body::Cte(_) | Body::Working(_) | Body::Written(_) | Body::Values(_) | Body::Function { .. } => {}
            Body::Set(set) => {
                set.left.in_from(visit);
                set.right.in_from(visit);
            }
            Body::Recursive(recursive) => {
                recursive.first.in_from(visit);
                recursive.step.in_from(visit);
            }
            Body::Select(select) => select.rows.node.queries(visit),
        }
    }
}

impl Query {
    /// A query with all rows of a body.
    pub(crate) fn new(outer: usize, body: Body, columns: Vec<OutputColumn>) -> Self {
        Self {
            outer,
            with: Vec::new(),
            body,
            columns,
            order: Vec::new(),
            presorted: None,
            limit: None,
            offset: None,
            locking: None,
        }
    }

    /// Whether its rows may differ though the row around it is the same, because of queries that run around it.
    pub(crate) fn varies(&self) -> bool {
        !self.others().is_empty()
    }

    /// What its rows depend on.
    pub(crate) fn others(&self) -> Others {
        let mut others = Others::default();
        self.add_others(&mut others);
        others
    }

    fn add_others(&self, others: &mut Others) {
        let mut note = |expr: &Expr| expr.queries(&mut |query| query.add_others(others));
        match &self.body {
            Body::Cte(cte) => {
                others.rows |= !cte.arguments.is_empty() || cte.others.rows;
                others.working.extend(&cte.others.working);
            }
            Body::Working(id) => {
                others.working.insert(*id);
            }
            Body::Written(_) => {}
            Body::Values(rows) => rows.iter().flatten().for_each(note),
            Body::Function { arguments, .. } => arguments.iter().for_each(note),
            Body::Set(set) => {
                set.left.add_others(others);
                set.right.add_others(others);
            }
            Body::Recursive(recursive) => {
                let mut inner = recursive.first.others();
                recursive.step.add_others(&mut inner);
                others.rows |= inner.rows;
                others.working.extend(inner.working.iter().filter(|id| **id != recursive.id));
            }
            Body::Select(select) => {
                select.rows.expressions(&mut note);
                select.outputs.iter().for_each(&mut note);
                select.windows.iter().flat_map(WindowCall::expressions).for_each(&mut note);
                select.sets.iter().flatten().flat_map(|set| &set.arguments).for_each(&mut note);
                if let Some(grouping) = &select.grouping {
                    grouping.expressions().chain(&grouping.having).for_each(&mut note);
                }
                select.rows.node.queries(&mut |query| query.add_others(others));
            }
        }
    }
}

impl Grouping {
    /// Its expressions over the joined row.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let functions = self.functions.iter().flatten().flat_map(|function| &function.arguments);
        functions.chain(&self.keys).chain(self.aggregates.iter().flat_map(Aggregate::expressions))
    }
}
