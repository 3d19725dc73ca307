//! What the catalog keeps of a table and of a sequence.

use std::collections::BTreeMap;

use savanna_tenants_values::types::Type;
use serde::{Deserialize, Serialize};

use super::{Comments, Index, Placement};

/// Columns of a table, PostgreSQL's limit.
pub const COLUMNS_MAX: usize = 1_600;

/// Columns of a key, PostgreSQL's limit.
pub const KEY_COLUMNS_MAX: usize = 32;

/// Constraints that one statement gives a table, or what else it changes of it: each is compared with all others.
pub const CHANGES_MAX: usize = 1_000;

/// Where the value of a column comes from if a statement gives none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generated {
    /// From its default.
    #[default]
    No,
    /// From a sequence; a statement may give another, if it is not `always` or it says that it overrides.
    Identity {
        /// `GENERATED ALWAYS`
        always: bool,
    },
    /// From this expression over the row, always.
    Stored(String),
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// Whether it must have a value.
    pub not_null: bool,
    /// The expression that is inserted if nothing else is, as SQL.
    pub default: Option<String>,
    /// Whether something else gives it its value.
    pub generated: Generated,
    /// The schema version that it came with. Rows of earlier ones do not have it.
    pub since: u16,
    /// What such rows have instead: a row's bytes of the value, or NULL.
    pub missing: Option<Vec<u8>>,
    /// Whether it was dropped. It keeps its place in rows.
    pub dropped: bool,
}

/// A key that no two rows of a table have alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbiter {
    /// The primary key.
    Primary,
    /// A unique index, by its place.
    Index(usize),
}

/// A condition that every row fulfils.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// The condition, as SQL.
    pub condition: String,
}

/// What becomes of rows that refer to a row which goes or gets another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// They have to refer to another one by the end of the statement, or of the transaction.
    NoAction,
    /// There may be none.
    Restrict,
    /// They go, too, or get the new key.
    Cascade,
    /// They refer to nothing.
    SetNull,
    /// They refer to what the columns' defaults say.
    SetDefault,
}

/// A foreign key: the values of some columns are those of a key in the parent, or one of them is NULL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Its number, for ever.
    pub id: u32,
    /// Its name, one of the table's own constraints'.
    pub name: String,
    /// Its columns.
    pub columns: Vec<usize>,
    /// The number of the table that it refers to.
    pub parent: u32,
    /// The columns there, all those of the primary key or of a unique index.
    pub parent_columns: Vec<usize>,
    /// What becomes of the rows when the parent's row goes.
    pub on_delete: Action,
    /// What becomes of the rows when the parent's row gets another key.
    pub on_update: Action,
    /// `MATCH FULL`: all columns are NULL or none.
    pub full: bool,
    /// Whether a transaction may put the check off until it commits.
    pub deferrable: bool,
    /// Whether it does so unless it says otherwise.
    pub initially_deferred: bool,
}

/// Numbers that are given once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// Its number, for ever, by which defaults name it.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The number under which it is kept how far it is; another one after it was begun again.
    pub state: u32,
    /// The first number under that.
    pub first: i128,
    /// The type of its numbers.
    pub of: Type,
    /// The number that it begins with again.
    pub start: i64,
    /// From one number to the next; not 0.
    pub increment: i64,
    /// The smallest number.
    pub min: i64,
    /// The largest number.
    pub max: i64,
    /// How many numbers are reserved at once, at least.
    pub cache: i64,
    /// Whether it begins again at the other end.
    pub cycle: bool,
    /// The table and the column that it goes with.
    pub owner: Option<(u32, usize)>,
    /// The number of the schema that its name is in.
    pub schema: u32,
    /// What is said about it.
    pub comment: Option<String>,
}

impl Sequence {
    /// The default that takes its numbers.
    pub fn default(&self) -> String {
        format!("nextval({})", self.id)
    }
}

/// The primary key, by which rows are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryKey {
    /// The constraint's name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<usize>,
}

/// What the catalog keeps of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Its number, for ever.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The number that its rows' keys begin with.
    pub relation: u32,
    /// The newest schema version, from 1.
    pub version: u16,
    /// Its columns, dropped ones too.
    pub columns: Vec<Column>,
    /// Its primary key. Rows of a table without one are kept by a number.
    pub primary: Option<PrimaryKey>,
    /// Its other indexes.
    pub indexes: Vec<Index>,
    /// Its conditions.
    pub checks: Vec<Check>,
    /// What its rows refer to.
    pub foreign_keys: Vec<ForeignKey>,
    /// The number of the schema that its name and those of its indexes are in.
    pub schema: u32,
    /// Where its rows go when the tenant is cut.
    pub placement: Placement,
    /// What is said about it.
    pub comments: Comments,
    /// The domains that columns are of, by the columns' places.
    pub domains: BTreeMap<usize, u32>,
}

impl Definition {
    /// Whether a column is of a domain.
    pub fn has_domain(&self, domain: u32) -> bool {
        self.live_domains().any(|(_, of)| of == domain)
    }

    /// The columns that there are of domains, with these.
    pub fn live_domains(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.domains.iter().map(|(at, of)| (*at, *of)).filter(|(at, _)| !self.columns[*at].dropped)
    }

    /// All numbers that the table's keys begin with.
    pub fn relations(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.relation).chain(self.indexes.iter().map(|index| index.relation))
    }

    /// All numbers that are its own.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let foreign_keys = self.foreign_keys.iter().map(|key| key.id);
        self.relations().chain([self.id]).chain(foreign_keys)
    }

    /// The keys of columns that no two of its rows have alike, each with its columns in their order and whether they descend.
    pub(crate) fn unique_keys(&self) -> impl Iterator<Item = (Arbiter, Vec<(usize, bool)>)> + '_ {
        let ascending = |primary: &PrimaryKey| primary.columns.iter().map(|column| (*column, false)).collect();
        let primary = self.primary.iter().map(move |primary| (Arbiter::Primary, ascending(primary)));
        let whole = |(_, index): &(usize, &Index)| index.unique && index.predicate.is_none();
        let indexes = self.indexes.iter().enumerate().filter(whole);
        primary.chain(indexes.filter_map(|(at, index)| Some((Arbiter::Index(at), index.columns()?))))
    }

    /// The unique key over just these columns, in any order.
    pub fn unique_key(&self, columns: &[usize]) -> Option<(Arbiter, Vec<(usize, bool)>)> {
        self.unique_keys()
            .find(|(_, key)| key.len() == columns.len() && key.iter().all(|(column, _)| columns.contains(column)))
    }

    /// Whether a constraint of the table has this name.
    pub fn has_constraint(&self, name: &str) -> bool {
        self.constraint_names().any(|other| other == name)
    }

    /// The names of its constraints.
    pub fn constraint_names(&self) -> impl Iterator<Item = &str> {
        let checks = self.checks.iter().map(|check| check.name.as_str());
        let keys = self.foreign_keys.iter().map(|key| key.name.as_str());
        let primary = self.primary.iter().map(|primary| primary.name.as_str());
        let unique = self.indexes.iter().filter(|index| index.constraint).map(|index| index.name.as_str());
        checks.chain(keys).chain(primary).chain(unique)
    }

    /// All names that it takes among tables and indexes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let primary = self.primary.iter().map(|primary| primary.name.as_str());
        let indexes = self.indexes.iter().map(|index| index.name.as_str());
        std::iter::once(self.name.as_str()).chain(primary).chain(indexes)
    }
}

/// What becomes of a temporary table when a transaction commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCommit {
    /// It stays.
    #[default]
    PreserveRows,
    /// Its rows go.
    DeleteRows,
    /// It goes.
    Drop,
}

impl OnCommit {
    /// What is kept of it, if it is not as usual.
    pub fn mark(self) -> Option<Vec<u8>> {
        match self {
            Self::PreserveRows => None,
            Self::DeleteRows => Some(vec![1]),
            Self::Drop => Some(vec![2]),
        }
    }

    /// What a mark says.
    pub fn of_mark(mark: Option<&[u8]>) -> Self {
        match mark {
            Some([1]) => Self::DeleteRows,
            Some([2]) => Self::Drop,
            _ => Self::PreserveRows,
        }
    }
}
