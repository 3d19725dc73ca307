//! Statements as they come out of the parser: checked for form, not yet against the catalog.

use std::collections::BTreeMap;

use savanna_streams_api::handle::{CopyFormat, Parameter};
use savanna_streams_api::{Position, Result};
use savanna_streams_model::catalog::{TableDef, ViewDef};

use datafusion::sql::sqlparser::ast;

/// One statement of a text that holds several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The statement without the `;` and without blanks and comments around it.
    pub text: String,
    /// Where it starts in the whole text, in bytes.
    pub offset: usize,
    /// Where it starts in the whole text, as line and column. Errors of [`parse`](crate::parse) count from here.
    pub position: Position,
}

impl Fragment {
    /// A place within this fragment as a place in the whole text.
    pub fn locate(&self, inner: Position) -> Position {
        let column = if inner.line == 1 { self.position.column + inner.column - 1 } else { inner.column };
        Position { line: self.position.line + inner.line - 1, column }
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `CREATE TABLE`.
    CreateTable {
        /// The declaration.
        table: TableDef,
        /// Whether an existing table of the name is fine.
        if_not_exists: bool,
        /// Whether the table belongs to the session alone.
        temporary: bool,
    },
    /// `CREATE VIEW`.
    CreateView {
        /// The declaration.
        view: ViewDef,
        /// Whether it takes the place of an existing view.
        or_replace: bool,
        /// Whether an existing view of the name is fine.
        if_not_exists: bool,
        /// Whether the view belongs to the session alone.
        temporary: bool,
    },
    /// `CREATE MATERIALIZED VIEW`: a query that runs on its own, and whose rows are kept.
    CreateMaterializedView {
        /// The declaration.
        view: ViewDef,
        /// The options of `WITH (..)`.
        options: BTreeMap<String, String>,
        /// What is kept.
        query: Query,
        /// Whether an existing view of the name is fine.
        if_not_exists: bool,
        /// Whether it ends with the process.
        temporary: bool,
    },
    /// `DROP TABLE`, `DROP VIEW` or `DROP MATERIALIZED VIEW`.
    Drop {
        /// What is dropped.
        kind: ObjectKind,
        /// Its name.
        name: String,
        /// Whether it need not exist.
        if_exists: bool,
    },
    /// `INSERT INTO table SELECT ..`: a query that runs on its own.
    Insert {
        /// The sink.
        table: String,
        /// The columns given, or none for all in order.
        columns: Vec<String>,
        /// What is written.
        query: Query,
    },
    /// `SELECT ..`.
    Query(Query),
    /// `DECLARE name CURSOR FOR SELECT ..`: a query whose rows are fetched by name.
    Declare {
        /// The cursor.
        cursor: String,
        /// Whether it outlives its transaction.
        hold: bool,
        /// What is fetched.
        query: Query,
    },
    /// `FETCH` or `MOVE`.
    Fetch {
        /// The cursor.
        cursor: String,
        /// At most this many rows.
        rows: usize,
        /// Whether they are only passed over.
        moves: bool,
    },
    /// `CLOSE name`, or `CLOSE ALL` with no name.
    Close {
        /// The cursor.
        cursor: Option<String>,
    },
    /// `COPY .. TO STDOUT`.
    Copy {
        /// What is written.
        query: Query,
        /// How.
        format: CopyFormat,
    },
    /// `EXPLAIN` of a query, an `INSERT`, a `CREATE MATERIALIZED VIEW` or a `RESUME QUERY`.
    Explain {
        /// The statement explained.
        inner: Box<Statement>,
    },
    /// `SHOW ..`.
    Show(Show),
    /// `DESCRIBE name`.
    Describe {
        /// A table or view.
        name: String,
    },
    /// `SET name = value`.
    Set {
        /// The setting.
        name: String,
        /// Its value as text.
        value: String,
    },
    /// `RESET name`, or `RESET ALL` with no name.
    Reset {
        /// The setting.
        name: Option<String>,
    },
    /// `STOP QUERY id` or `CANCEL QUERY id`, `WITH SAVEPOINT 'directory'` or without.
    StopQuery {
        /// The query.
        id: String,
        /// Where all that another node needs to go on with it is written.
        savepoint: Option<String>,
    },
    /// `RESUME QUERY id`: it goes on where it was stopped or failed; `AS INSERT INTO ..`, with another text.
    ResumeQuery {
        /// The query.
        id: String,
        /// Its new text.
        changed: Option<ChangedText>,
    },
    /// `RESUME QUERY FROM SAVEPOINT 'directory'`: a query of another node goes on here.
    ResumeSavepoint {
        /// Where it was saved.
        directory: String,
    },
    /// `DROP QUERY id`: it does not go on.
    DropQuery {
        /// The query.
        id: String,
    },
    /// `BEGIN` or `START TRANSACTION`; changes nothing, clients send it.
    Begin,
    /// `COMMIT` or `END`; changes nothing.
    Commit,
    /// `ROLLBACK` or `ABORT`; changes nothing.
    Rollback,
}

impl Statement {
    /// The query that the statement runs or explains.
    pub(crate) fn query(&self) -> Option<&Query> {
        match self {
            Self::Query(query)
            | Self::Insert { query, .. }
            | Self::Declare { query, .. }
            | Self::CreateMaterializedView { query, .. }
            | Self::Copy { query, .. }
            | Self::ResumeQuery { changed: Some(ChangedText { query, .. }), .. } => Some(query),
            Self::Explain { inner } => inner.query(),
            _ => None,
        }
    }

    fn query_mut(&mut self) -> Option<&mut Query> {
        match self {
            Self::Query(query)
            | Self::Insert { query, .. }
            | Self::Declare { query, .. }
            | Self::Copy { query, .. }
            | Self::ResumeQuery { changed: Some(ChangedText { query, .. }), .. } => Some(query),
            Self::Explain { inner } => inner.query_mut(),
            _ => None,
        }
    }

    /// Puts values in the places of `$1`, `$2`, ..
    ///
    /// # Errors
    /// A value is none of its type.
    pub fn bind(&mut self, parameters: &[Parameter]) -> Result<()> {
        match self.query_mut() {
            Some(query) if !parameters.is_empty() => crate::plan::bind(query, parameters),
            _ => Ok(()),
        }
    }
}

/// The new text of a query that goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedText {
    /// `INSERT INTO ..`, as it was written.
    pub text: String,
    /// The table that is written.
    pub table: String,
    /// The columns of the table, or none for all.
    pub columns: Vec<String>,
    /// What is written.
    pub query: Query,
    /// The options before the text: what becomes of state that would mean something else.
    pub options: BTreeMap<String, String>,
}

/// What `DROP` drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A table.
    Table,
    /// A view.
    View,
    /// A materialized view.
    MaterializedView,
}

/// What `SHOW` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Show {
    /// All tables.
    Tables,
    /// All views.
    Views,
    /// All materialized views.
    MaterializedViews,
    /// Running and lately ended queries.
    Queries,
    /// Connectors and what they promise.
    Connectors,
    /// Functions.
    Functions,
    /// The statement that made a table.
    CreateTable(String),
    /// The statement that made a view.
    CreateView(String),
    /// The statement that made a materialized view.
    CreateMaterializedView(String),
    /// All settings of the session.
    All,
    /// One setting.
    Setting(String),
}

/// A query: its syntax tree and its text, whose lines and columns error positions count.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub(crate) ast: Box<ast::Query>,
    pub(crate) text: String,
}

impl Query {
    /// The text of the query alone.
    pub fn text(&self) -> &str {
        &self.text
    }
}
