//! What statements become: plans, which can be run again with other parameters as long as the catalog is the same.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use savanna_tenants_catalog::{Arbiter, Catalog, Definition, Generated, Name, OnCommit, Sequence, Table, view::View};
use savanna_tenants_values::{
    enumeration::{Enumeration, Position},
    types::Type,
    value::zone::Zone,
};
use savanna_transaction::Isolation;
use sqlparser::ast;

use crate::{
    copy::CopyFormat,
    cursor::{CursorOptions, Direction},
    sql::{
        define_sequence::SequenceOptions,
        explain::Explain,
        expression::Expr,
        lock_table::TableLock,
        placement::NewPlacement,
        query_plan::{Joined, Query},
        reference::{NewForeignKey, Reference},
        role::RoleChange,
        written::ViewCheck,
    },
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
    /// Where texts were read that name no time zone.
    pub(crate) zone: Zone,
    /// Whether it asks what its session has prepared and declared.
    pub(crate) lists: bool,
    /// Whether it took long the last time.
    long: AtomicBool,
}

impl Statement {
    pub(crate) fn new(
        plan: Plan,
        parameters: Vec<Type>,
        output: Option<Vec<OutputColumn>>,
        (catalog, zone): (Arc<Catalog>, Zone),
    ) -> Self {
        Self { plan, parameters, output, catalog, zone, lists: false, long: AtomicBool::new(false) }
    }

    /// Whether it is expected to take long.
    pub(crate) fn is_long(&self) -> bool {
        self.long.load(Ordering::Relaxed)
    }

    /// Notes that it takes long.
    pub(crate) fn note_long(&self) {
        self.long.store(true, Ordering::Relaxed);
    }
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
    Query(Box<Query>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    /// Several of these, behind WITH.
    With(Box<With>),
    CopyIn(Box<CopyIn>),
    CopyOut(Box<Query>, CopyFormat),
    Explain(Box<Explain>),
    Declare {
        name: String,
        options: CursorOptions,
        query: Box<Query>,
        /// The whole statement.
        text: String,
    },
    Fetch {
        name: String,
        direction: Direction,
        /// `MOVE`, which gives no rows.
        moves: bool,
    },
    /// `None` for all.
    CloseCursor(Option<String>),
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
    /// A setting, or all of them if it has no name.
    Reset(String),
    Show(String),
    Prepare(NewPrepared),
    Execute(Call),
    Deallocate(Option<String>),
    LockTable(LockTable),
    DiscardAll,
    DiscardTemporary,
    CreateDatabase(String),
    DropDatabase {
        name: String,
        if_exists: bool,
    },
}

/// `PREPARE`
#[derive(Debug)]
pub(crate) struct NewPrepared {
    pub(crate) name: String,
    /// The types of its first parameters.
    pub(crate) types: Vec<Type>,
    /// The statement.
    pub(crate) statement: String,
    /// The whole text.
    pub(crate) text: Arc<str>,
}

/// `EXECUTE`
#[derive(Debug)]
pub(crate) struct Call {
    /// The `EXPLAIN` before it, with its options.
    pub(crate) explain: String,
    pub(crate) name: String,
    pub(crate) arguments: Vec<ast::Expr>,
}

/// `LOCK TABLE`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockTable {
    pub(crate) names: Vec<Name>,
    pub(crate) mode: TableLock,
    /// Whether it fails instead of waiting.
    pub(crate) nowait: bool,
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
    /// Columns that are computed from the others, with the expressions.
    pub(crate) computed: Vec<(usize, Expr)>,
    /// What its rows refer to.
    pub(crate) references: Vec<Arc<Reference>>,
    /// What refers to its rows.
    pub(crate) referenced_by: Vec<Arc<Reference>>,
}

impl Target {
    /// A table that is not there yet, without constraints.
    pub(crate) const fn of_new(table: Arc<Table>) -> Self {
        Self { table, checks: Vec::new(), computed: Vec::new(), references: Vec::new(), referenced_by: Vec::new() }
    }
}

/// `INSERT`
#[derive(Debug)]
pub(crate) struct Insert {
    pub(crate) target: Target,
    /// The tables that referential actions may write; so it is in all plans that write.
    pub(crate) reached: Vec<Target>,
    pub(crate) source: Query,
    /// A value for each of the table's columns, over the source's row.
    pub(crate) values: Vec<Expr>,
    pub(crate) conflict: Option<OnConflict>,
    /// What views want of the rows.
    pub(crate) checks: Vec<ViewCheck>,
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
    /// What the row that is in the way has to fulfil to be seen.
    pub(crate) shows: Vec<ViewCheck>,
    pub(crate) assignments: Vec<(usize, Expr)>,
    pub(crate) filter: Option<Expr>,
}

/// `UPDATE`: the target's columns are the first of the joined row.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) target: Target,
    pub(crate) reached: Vec<Target>,
    pub(crate) rows: Joined,
    pub(crate) assignments: Vec<(usize, Expr)>,
    /// What views want of the rows.
    pub(crate) checks: Vec<ViewCheck>,
    pub(crate) returning: Option<Returning>,
}

/// `DELETE`: the target's columns are the first of the joined row.
#[derive(Debug)]
pub(crate) struct Delete {
    pub(crate) target: Target,
    pub(crate) reached: Vec<Target>,
    pub(crate) rows: Joined,
    pub(crate) returning: Option<Returning>,
}

/// A statement with others that write in its WITH. All of them see the same rows.
#[derive(Debug)]
pub(crate) struct With {
    pub(crate) parts: Vec<Part>,
    pub(crate) main: Plan,
}

/// A statement in WITH that writes.
#[derive(Debug)]
pub(crate) struct Part {
    /// The number under which its rows are asked for.
    pub(crate) id: usize,
    pub(crate) plan: Plan,
    /// Whether somebody asks for its rows; otherwise it runs behind those who do.
    pub(crate) is_read: bool,
}

impl Plan {
    /// The tables that it writes.
    pub(crate) fn targets(&self) -> Box<dyn Iterator<Item = &Target> + '_> {
        match self {
            Self::Insert(plan) => Box::new(plan.targets()),
            Self::Update(plan) => Box::new(plan.targets()),
            Self::Delete(plan) => Box::new(plan.targets()),
            _ => Box::new(std::iter::empty()),
        }
    }
}

macro_rules! targets {
    ($($plan:ident),*) => { $(
        impl $plan {
            /// The table that it writes, and those that referential actions may write.
            pub(crate) fn targets(&self) -> impl Iterator<Item = &Target> + Clone {
                std::iter::once(&self.target).chain(&self.reached)
            }
        }
    )* };
}

targets!(Insert, Update, Delete);

/// `COPY .. FROM STDIN`
#[derive(Debug)]
pub(crate) struct CopyIn {
    pub(crate) target: Target,
    pub(crate) reached: Vec<Target>,
    /// The columns that lines have, in their order.
    pub(crate) columns: Vec<usize>,
    pub(crate) format: CopyFormat,
    /// A value for each column that lines have not.
    pub(crate) defaults: Vec<(usize, Expr)>,
}

/// A table that is to be made.
#[derive(Debug)]
pub(crate) struct NewTable {
    pub(crate) definition: Definition,
    /// With the places of their columns.
    pub(crate) sequences: Vec<(Sequence, usize)>,
    pub(crate) foreign_keys: Vec<NewForeignKey>,
    pub(crate) on_commit: OnCommit,
    pub(crate) placement: NewPlacement,
}

/// An index that is to be made.
#[derive(Debug)]
pub(crate) struct NewIndex {
    pub(crate) table: Name,
    pub(crate) name: Option<String>,
    /// Its parts, and whether they descend.
    pub(crate) parts: Vec<(NewPart, bool)>,
    pub(crate) unique: bool,
    pub(crate) include: Vec<String>,
    pub(crate) predicate: Option<String>,
    pub(crate) if_not_exists: bool,
}

/// A part of an index that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewPart {
    /// A column, by its name.
    Column(String),
    /// An expression, as SQL.
    Expression(String),
}

/// A change of the catalog.
#[derive(Debug)]
pub(crate) enum Define {
    CreateTable {
        table: Box<NewTable>,
        /// `AS`: the query whose rows it begins with.
        rows: Option<Box<Query>>,
        if_not_exists: bool,
    },
    CreateSchema {
        name: String,
        if_not_exists: bool,
    },
    RenameSchema {
        name: String,
        to: String,
    },
    DropSchemas {
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
    /// `ALTER .. SET SCHEMA`
    Move {
        kind: Kind,
        name: Name,
        schema: String,
        if_exists: bool,
    },
    DropTables {
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
    },
    CreateIndex(NewIndex),
    DropIndexes {
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
    },
    CreateView {
        view: View,
        or_replace: bool,
    },
    RenameView {
        name: Name,
        to: String,
        if_exists: bool,
    },
    DropViews {
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
    },
    Truncate {
        names: Vec<Name>,
        cascade: bool,
        restart: bool,
    },
    CreateSequence {
        sequence: Sequence,
        owned_by: Option<(Name, String)>,
        if_not_exists: bool,
    },
    AlterSequence {
        name: Name,
        options: SequenceOptions,
        if_exists: bool,
    },
    RenameSequence {
        name: Name,
        to: String,
    },
    DropSequences {
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
    },
    CreateEnumeration(Enumeration),
    AddLabel {
        /// The type's name.
        name: String,
        label: String,
        position: Position,
        if_not_exists: bool,
    },
    DropTypes {
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
    Roles(RoleChange),
    RenameIndex {
        name: Name,
        to: String,
        if_exists: bool,
    },
    Alter {
        table: Name,
        if_exists: bool,
        changes: Vec<Alteration>,
    },
}

/// What kind of object a statement says that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Table,
    View,
    Sequence,
}

/// A change of a table.
#[derive(Debug)]
pub(crate) enum Alteration {
    AddPrimaryKey { name: Option<String>, columns: Vec<String> },
    AddUnique { name: Option<String>, columns: Vec<String> },
    AddForeignKey(NewForeignKey),
    AddCheck { name: Option<String>, condition: String, column: Option<String> },
    AddColumn { column: NewColumn, if_not_exists: bool },
    DropColumn { name: String, if_exists: bool, cascade: bool },
    RenameColumn { from: String, to: String },
    RenameTable(String),
    DropConstraint { name: String, if_exists: bool, cascade: bool },
    SetType { column: String, of: Type, using: Option<String> },
    AddIdentity { column: String, always: bool, options: SequenceOptions },
    SetNotNull { column: String, not_null: bool },
    SetDefault { column: String, default: Option<String> },
}

/// A column that is added to a table.
#[derive(Clone, Debug)]
pub(crate) struct NewColumn {
    pub(crate) name: String,
    pub(crate) of: Type,
    pub(crate) not_null: bool,
    pub(crate) default: Option<String>,
    pub(crate) generated: Generated,
    /// The sequence that its default takes numbers from, if it has one of its own.
    pub(crate) sequence: Option<SequenceOptions>,
}
