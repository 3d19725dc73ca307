//! What statements become: plans, which can be run again with other parameters as long as the catalog is the same.

pub mod access;
pub mod implication;
pub mod query;
pub mod window;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use savanna_tenants_catalog::{
    Arbiter, Catalog, Definition, Domain, Generated, Name, OnCommit, Sequence, Table, view::View,
};
use savanna_tenants_values::{
    composite::Composite,
    enumeration::{Enumeration, Position},
    types::Type,
    value::style::Style,
};
use savanna_transaction::Isolation;
use serde::{Deserialize, Serialize};
use sqlparser::ast;

use crate::{
    copy::CopyFormat,
    define::{
        domain::{DomainChange, DomainRules},
        placement::NewPlacement,
        reference::{NewForeignKey, Reference},
        role::RoleChange,
        sequence::SequenceOptions,
    },
    expression::Expr,
    modify::written::ViewCheck,
    plan::query::{Joined, Query},
    prepare::{
        cursor::{CursorOptions, Direction},
        explain::Explain,
        lock_table::TableLock,
    },
};

/// A statement that was planned.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Statement {
    pub plan: Plan,
    /// The types of its parameters.
    pub parameters: Vec<Type>,
    /// The columns of its result, if it has one.
    pub output: Option<Vec<OutputColumn>>,
    /// What it was planned with.
    pub catalog: Arc<Catalog>,
    /// How texts of dates and intervals were read.
    pub style: Style,
    /// Whether it asks what its session has prepared and declared.
    pub lists: bool,
    /// Whether it asks for all connections, or tells one something.
    pub asks_for_backends: bool,
    /// Whether it calls what is volatile, or locks rows.
    pub acts: bool,
    /// Whether it took long the last time.
    long: AtomicBool,
}

impl Statement {
    pub(crate) fn new(
        plan: Plan,
        parameters: Vec<Type>,
        output: Option<Vec<OutputColumn>>,
        (catalog, style): (Arc<Catalog>, Style),
    ) -> Self {
        Self {
            plan,
            parameters,
            output,
            catalog,
            style,
            lists: false,
            asks_for_backends: false,
            acts: false,
            long: AtomicBool::new(false),
        }
    }

    /// Whether it reads rows and does nothing else, so that it may run on another thread than the rows' own.
    pub fn only_reads(&self) -> bool {
        matches!(self.plan, Plan::Query(_) | Plan::CopyOut(..)) && !self.acts
    }

    /// Whether it is expected to take long.
    pub fn is_long(&self) -> bool {
        self.long.load(Ordering::Relaxed)
    }

    /// Notes that it takes long.
    pub fn note_long(&self) {
        self.long.store(true, Ordering::Relaxed);
    }
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// The table and the column, from 1, that it shows; 0 if it is computed.
    pub origin: (u32, i16),
}

/// What a statement does.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub enum Plan {
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
    /// What is taken and does nothing, such as `VACUUM`.
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
    Notify {
        channel: String,
        payload: String,
    },
    Listen(String),
    /// `None` for all.
    Unlisten(Option<String>),
    DiscardAll,
    DiscardTemporary,
    CreateDatabase(String),
    DropDatabase {
        name: String,
        if_exists: bool,
    },
}

/// `PREPARE`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct NewPrepared {
    pub name: String,
    /// The types of its first parameters.
    pub types: Vec<Type>,
    /// The statement.
    pub statement: String,
    /// The whole text.
    pub text: Arc<str>,
}

/// `EXECUTE`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Call {
    /// The `EXPLAIN` before it, with its options.
    pub explain: String,
    pub name: String,
    pub(crate) arguments: Vec<ast::Expr>,
}

/// `LOCK TABLE`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, PartialEq, Eq)]
pub struct LockTable {
    pub names: Vec<Name>,
    pub mode: TableLock,
    /// Whether it fails instead of waiting.
    pub nowait: bool,
}

/// `SET CONSTRAINTS`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetConstraints {
    /// The constraints; `None` for all that can be deferred.
    pub names: Option<Vec<String>>,
    pub deferred: bool,
}

/// How a transaction is to be.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Modes {
    pub isolation: Option<Isolation>,
    pub read_only: Option<bool>,
}

/// The result of rows that were written.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Returning {
    pub outputs: Vec<Expr>,
}

/// A table that is written, and what its rows must fulfil.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Target {
    pub table: Arc<Table>,
    /// The names of conditions, with the conditions over the table's columns.
    pub checks: Vec<(String, Expr)>,
    /// The columns of domains, with what holds of their values.
    pub domains: Vec<(usize, Arc<DomainRules>)>,
    /// Columns that are computed from the others, with the expressions.
    pub computed: Vec<(usize, Expr)>,
    /// What its rows refer to.
    pub references: Vec<Arc<Reference>>,
    /// What refers to its rows.
    pub referenced_by: Vec<Arc<Reference>>,
}

impl Target {
    /// A table that is not there yet, without constraints.
    pub const fn of_new(table: Arc<Table>) -> Self {
        Self {
            table,
            checks: Vec::new(),
            domains: Vec::new(),
            computed: Vec::new(),
            references: Vec::new(),
            referenced_by: Vec::new(),
        }
    }

    /// Whether its rows may refer to each other.
    pub fn refers_to_itself(&self) -> bool {
        self.references.iter().any(|reference| reference.parent.id == self.table.id)
    }
}

/// `INSERT`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Insert {
    pub target: Target,
    /// The tables that referential actions may write; so it is in all plans that write.
    pub(crate) reached: Vec<Target>,
    pub source: Query,
    /// A value for each of the table's columns, over the source's row.
    pub values: Vec<Expr>,
    pub conflict: Option<OnConflict>,
    /// What views want of the rows.
    pub checks: Vec<ViewCheck>,
    pub returning: Option<Returning>,
}

/// `ON CONFLICT`
#[derive(Debug)]
pub struct OnConflict {
    /// The constraint that is meant: the primary key, or an index by its place. `None` for any.
    pub arbiter: Option<Arbiter>,
    /// `DO UPDATE`; `None` is `DO NOTHING`.
    pub update: Option<ConflictUpdate>,
}

/// `DO UPDATE`: expressions are over the table's columns and then those of the row that was to be inserted.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct ConflictUpdate {
    /// What the row that is in the way has to fulfil to be seen.
    pub shows: Vec<ViewCheck>,
    pub assignments: Vec<(usize, Expr)>,
    pub filter: Option<Expr>,
}

/// `UPDATE`: the target's columns are the first of the joined row.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Update {
    pub target: Target,
    pub(crate) reached: Vec<Target>,
    pub rows: Joined,
    pub assignments: Vec<(usize, Expr)>,
    /// What views want of the rows.
    pub checks: Vec<ViewCheck>,
    pub returning: Option<Returning>,
}

/// `DELETE`: the target's columns are the first of the joined row.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Delete {
    pub target: Target,
    pub(crate) reached: Vec<Target>,
    pub rows: Joined,
    pub returning: Option<Returning>,
}

/// A statement with others that write in its WITH. All of them see the same rows.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct With {
    pub parts: Vec<Part>,
    pub main: Plan,
}

/// A statement in WITH that writes.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct Part {
    /// The number under which its rows are asked for.
    pub id: usize,
    pub plan: Plan,
    /// Whether somebody asks for its rows; otherwise it runs behind those who do.
    pub is_read: bool,
}

impl Plan {
    /// The tables that it writes.
    pub fn targets(&self) -> Box<dyn Iterator<Item = &Target> + '_> {
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
            pub fn targets(&self) -> impl Iterator<Item = &Target> + Clone {
                std::iter::once(&self.target).chain(&self.reached)
            }
        }
    )* };
}

targets!(Insert, Update, Delete);

/// `COPY .. FROM STDIN`
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct CopyIn {
    pub target: Target,
    pub reached: Vec<Target>,
    /// The columns that lines have, in their order.
    pub columns: Vec<usize>,
    pub format: CopyFormat,
    /// A value for each column that lines have not.
    pub defaults: Vec<(usize, Expr)>,
}

/// A table that is to be made.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct NewTable {
    pub definition: Definition,
    /// With the places of their columns.
    pub sequences: Vec<(Sequence, usize)>,
    pub foreign_keys: Vec<NewForeignKey>,
    pub on_commit: OnCommit,
    pub placement: NewPlacement,
}

/// An index that is to be made.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct NewIndex {
    pub table: Name,
    pub name: Option<String>,
    /// Its parts, and whether they descend.
    pub parts: Vec<(NewPart, bool)>,
    /// The operator classes that are named, by the places of the parts.
    pub(crate) classes: Vec<(usize, String)>,
    pub(crate) unique: bool,
    pub(crate) include: Vec<String>,
    pub(crate) predicate: Option<String>,
    pub if_not_exists: bool,
}

/// A part of an index that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewPart {
    /// A column, by its name.
    Column(String),
    /// An expression, as SQL.
    Expression(String),
}

/// A change of the catalog.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub enum Define {
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
    CreateDomain(Domain),
    AlterDomain {
        name: Name,
        change: DomainChange,
    },
    DropDomains {
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
    },
    CreateComposite(Composite),
    AlterComposite {
        /// The type's name.
        name: Name,
        changes: Vec<AttributeChange>,
    },
    RenameType {
        name: Name,
        to: String,
    },
    AddLabel {
        /// The type's name.
        name: Name,
        label: String,
        position: Position,
        if_not_exists: bool,
    },
    DropTypes {
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
    },
    /// `COMMENT ON`; `None` takes it back.
    Comment {
        on: Commented,
        comment: Option<String>,
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

/// A change of a composite type.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeChange {
    Add { name: String, of: Type },
    Drop { name: String, if_exists: bool, cascade: bool },
    SetType { name: String, of: Type },
    Rename { from: String, to: String },
}

/// What a comment is about.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commented {
    Table(Name),
    View(Name),
    Sequence(Name),
    Index(Name),
    Column { relation: Name, column: String },
    Constraint { table: Name, name: String },
    Type(Name),
    Domain(Name),
    Schema(String),
}

/// What kind of object a statement says that it is about.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Table,
    View,
    Sequence,
}

/// A change of a table.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub enum Alteration {
    AddPrimaryKey { name: Option<String>, columns: Vec<String> },
    AddUnique { name: Option<String>, columns: Vec<String> },
    AddForeignKey(NewForeignKey),
    AddCheck { name: Option<String>, condition: String, column: Option<String> },
    AddColumn { column: NewColumn, if_not_exists: bool },
    DropColumn { name: String, if_exists: bool, cascade: bool },
    RenameColumn { from: String, to: String },
    RenameTable(String),
    DropConstraint { name: String, if_exists: bool, cascade: bool },
    SetType { column: String, of: Type, domain: Option<u32>, using: Option<String> },
    AddIdentity { column: String, always: bool, options: SequenceOptions },
    DropIdentity { column: String, if_exists: bool },
    SetNotNull { column: String, not_null: bool },
    SetDefault { column: String, default: Option<String> },
}

/// A column that is added to a table.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct NewColumn {
    pub name: String,
    pub of: Type,
    pub not_null: bool,
    pub(crate) default: Option<String>,
    pub(crate) generated: Generated,
    /// The domain that it is of, by its number.
    pub domain: Option<u32>,
    /// The sequence that its default takes numbers from, if it has one of its own.
    pub sequence: Option<SequenceOptions>,
}
