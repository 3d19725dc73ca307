//! What statements become: plans, which can be run again with other parameters as long as the catalog is the same.

use std::sync::Arc;

use savanna_transaction::{Isolation, RowLock};

use crate::{
    catalog::{Arbiter, Catalog, Definition, Table},
    sql::{
        access::Access,
        aggregate::Aggregate,
        expression::Expr,
        reference::{NewForeignKey, Reference},
        role::RoleChange,
    },
    types::Type,
};

/// A statement that was planned.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) plan: Plan,
    /// The types of its parameters.
    pub(crate) parameters: Vec<Type>,
    /// The columns of its result, if it has one.
    pub(crate) output: Option<Vec<OutputColumn>>,
    /// What it was planned with.
    pub(crate) catalog: Arc<Catalog>,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// The table and the column, from 1, that it shows; 0 if it is computed.
    pub origin: (u32, i16),
}

/// What a statement does.
#[derive(Debug)]
pub(crate) enum Plan {
    Empty,
    Select(Box<Select>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    CopyIn(Box<CopyIn>),
    CopyOut(Box<Select>),
    Define(Define),
    /// `VACUUM` and `ANALYZE`: there is nothing to clean up and no statistics.
    Nothing(&'static str),
    Begin {
        tag: &'static str,
        modes: Modes,
    },
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction(Modes),
    SetSession(Modes),
    SetConstraints(SetConstraints),
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    Show(String),
    Deallocate(Option<String>),
    DiscardAll,
    CreateDatabase(String),
    DropDatabase {
        name: String,
        if_exists: bool,
    },
}

/// `SET CONSTRAINTS`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetConstraints {
    /// The constraints; `None` for all that can be deferred.
    pub(crate) names: Option<Vec<String>>,
    pub(crate) deferred: bool,
}

/// How a transaction is to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Modes {
    pub(crate) isolation: Option<Isolation>,
    pub(crate) read_only: Option<bool>,
}

/// A table among those that a statement reads.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) table: Arc<Table>,
    /// Where its columns begin in the joined row.
    pub(crate) base: usize,
    pub(crate) access: Access,
    /// The columns that are needed of it.
    pub(crate) wanted: Vec<usize>,
    /// What its rows must fulfil beside the tables before.
    pub(crate) filter: Option<Expr>,
    /// For a left join: a row before it stays if none of this table's rows fits.
    pub(crate) optional: bool,
    /// What the joined row must fulfil then.
    pub(crate) after: Option<Expr>,
}

/// Groups of rows.
#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) keys: Vec<Expr>,
    pub(crate) aggregates: Vec<Aggregate>,
    /// Over keys, then aggregates.
    pub(crate) having: Option<Expr>,
}

/// A column of a result that it is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortKey {
    pub(crate) at: usize,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// What to do about a row that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    Fail,
    Skip,
}

/// `FOR UPDATE` and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locking {
    pub(crate) mode: RowLock,
    pub(crate) patience: Patience,
}

/// Where the rows of a SELECT come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Tables that are joined; none give one row without columns.
    Tables(Vec<Level>),
    /// `VALUES`
    Values(Vec<Vec<Expr>>),
}

/// `SELECT`
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) source: Source,
    /// Columns of the joined row.
    pub(crate) width: usize,
    /// A condition that no table has to do with.
    pub(crate) condition: Option<Expr>,
    pub(crate) grouping: Option<Grouping>,
    /// Over the joined row, or over keys and aggregates. Those that are only sorted by come last.
    pub(crate) outputs: Vec<Expr>,
    pub(crate) columns: Vec<OutputColumn>,
    pub(crate) distinct: bool,
    /// Empty also if rows come in the right order.
    pub(crate) order: Vec<SortKey>,
    /// Whether the first table is read from its end.
    pub(crate) backwards: bool,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    pub(crate) locking: Option<Locking>,
}

/// The result of rows that were written.
#[derive(Debug)]
pub(crate) struct Returning {
    pub(crate) outputs: Vec<Expr>,
}

/// A table that is written, and what its rows must fulfil.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) table: Arc<Table>,
    /// The names of conditions, with the conditions over the table's columns.
    pub(crate) checks: Vec<(String, Expr)>,
    /// What its rows refer to.
    pub(crate) references: Vec<Arc<Reference>>,
    /// What refers to its rows.
    pub(crate) referenced_by: Vec<Arc<Reference>>,
}

impl Target {
    /// A table whose rows are known to fulfil everything.
    pub(crate) fn bare(definition: Definition) -> Self {
        let table = Arc::new(Table::new(definition));
        Self { table, checks: Vec::new(), references: Vec::new(), referenced_by: Vec::new() }
    }
}

/// `INSERT`
#[derive(Debug)]
pub(crate) struct Insert {
    pub(crate) target: Target,
    /// The tables that referential actions may write; so it is in all plans that write.
    pub(crate) reached: Vec<Target>,
    pub(crate) source: Select,
    /// A value for each of the table's columns, over the source's row.
    pub(crate) values: Vec<Expr>,
    pub(crate) conflict: Option<OnConflict>,
    pub(crate) returning: Option<Returning>,
}

/// `ON CONFLICT`
#[derive(Debug)]
pub(crate) struct OnConflict {
    /// The constraint that is meant: the primary key, or an index by its place. `None` for any.
    pub(crate) arbiter: Option<Arbiter>,
    /// `DO UPDATE`; `None` is `DO NOTHING`.
    pub(crate) update: Option<ConflictUpdate>,
}

/// `DO UPDATE`: expressions are over the table's columns and then those of the row that was to be inserted.
#[derive(Debug)]
pub(crate) struct ConflictUpdate {
    pub(crate) assignments: Vec<(usize, Expr)>,
    pub(crate) filter: Option<Expr>,
}

/// `UPDATE`: the first table of the source is the target.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) target: Target,
    pub(crate) reached: Vec<Target>,
    pub(crate) levels: Vec<Level>,
    pub(crate) width: usize,
    pub(crate) condition: Option<Expr>,
    pub(crate) assignments: Vec<(usize, Expr)>,
    pub(crate) returning: Option<Returning>,
}

/// `DELETE`: the first table of the source is the target.
#[derive(Debug)]
pub(crate) struct Delete {
    pub(crate) target: Target,
    pub(crate) reached: Vec<Target>,
    pub(crate) levels: Vec<Level>,
    pub(crate) width: usize,
    pub(crate) condition: Option<Expr>,
    pub(crate) returning: Option<Returning>,
}

/// `COPY .. FROM STDIN`
#[derive(Debug)]
pub(crate) struct CopyIn {
    pub(crate) target: Target,
    pub(crate) reached: Vec<Target>,
    /// The columns that lines have, in their order.
    pub(crate) columns: Vec<usize>,
    /// A value for each column that lines have not.
    pub(crate) defaults: Vec<(usize, Expr)>,
}

/// A change of the catalog.
#[derive(Debug)]
pub(crate) enum Define {
    CreateTable { definition: Definition, foreign_keys: Vec<NewForeignKey>, if_not_exists: bool },
    DropTables { names: Vec<String>, if_exists: bool, cascade: bool },
    CreateIndex { table: String, name: Option<String>, columns: Vec<(String, bool)>, unique: bool, if_not_exists: bool },
    DropIndexes { names: Vec<String>, if_exists: bool, cascade: bool },
    Truncate { names: Vec<String>, cascade: bool },
    Roles(RoleChange),
    Alter { table: String, if_exists: bool, changes: Vec<Alteration> },
}

/// A change of a table.
#[derive(Debug)]
pub(crate) enum Alteration {
    AddPrimaryKey { name: Option<String>, columns: Vec<String> },
    AddUnique { name: Option<String>, columns: Vec<String> },
    AddForeignKey(NewForeignKey),
    AddCheck { name: Option<String>, condition: String },
    AddColumn { column: NewColumn, if_not_exists: bool },
    DropColumn { name: String, if_exists: bool, cascade: bool },
    RenameColumn { from: String, to: String },
    RenameTable(String),
    DropConstraint { name: String, if_exists: bool, cascade: bool },
    SetNotNull { column: String, not_null: bool },
    SetDefault { column: String, default: Option<String> },
}

/// A column that is added to a table.
#[derive(Debug)]
pub(crate) struct NewColumn {
    pub(crate) name: String,
    pub(crate) of: Type,
    pub(crate) not_null: bool,
    pub(crate) default: Option<String>,
    /// Whether its default is the next number of a sequence of its own.
    pub(crate) serial: bool,
}
