//! Snapshots: the state of all members of a query behind one epoch, so that a query need not be computed from its beginning again.
//!
//! ```text
//!   cut of s --> scans send all that they hold --> each member applies s, hands its state out and goes on
//!                                                     |  encoded and written in the background
//!   all parts durable, and every sink holds s ------> manifest is switched --> records up to s go
//! ```
//!
//! A snapshot is complete when the sinks hold its epoch, and counts when the manifest that names it is durable. Nothing that it replaces
//! goes before. [`Schedule`] decides this and does nothing else. Of a state that has changed little since the snapshot that counts, the
//! changes are written ([`Chains`]).

mod chain;
mod form;
mod manifest;
mod pieces;
mod regroup;
mod row_marks;
mod schedule;
mod taking;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::time::EventTime;

pub use self::chain::{Chains, Next};
pub(crate) use self::form::BATCH_BYTES;
pub use self::form::{read_changes, read_state, write_changes, write_state};
pub use self::manifest::{Manifest, Part, PartFile, Snapshot, check};
pub(crate) use self::pieces::Tie;
pub use self::pieces::{Changes, Piece, PieceId, Pieces};
pub(crate) use self::regroup::regroup;
pub(crate) use self::row_marks::RowMarks;
pub use self::schedule::{MemberPart, Schedule, Step};
pub use self::taking::{FormerAggregates, Taking};
use crate::error::computing;

/// The epoch of which a snapshot is made, or none: behind it members hand their states out, and before it everything is sent that would
/// otherwise wait. Set before the epoch is cut.
#[derive(Clone, Debug, Default)]
pub struct Due(Arc<AtomicU64>);

impl Due {
    /// A snapshot of this epoch is made; of none if it is 0.
    pub fn set(&self, epoch: Epoch) {
        self.0.store(epoch.0, Ordering::Release);
    }

    /// Whether it is this epoch.
    pub fn is(&self, epoch: Epoch) -> bool {
        epoch > Epoch::ZERO && self.0.load(Ordering::Acquire) == epoch.0
    }
}

/// What a member holds behind an epoch. The rows are shared with the member, which changes none of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Instants by name, in microseconds.
    pub marks: BTreeMap<String, i64>,
    /// Rows. Those of one name have one schema.
    pub tables: Vec<Table>,
}

/// Rows of a state, and what they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The kind of rows.
    pub name: String,
    /// What belongs to all of them, such as the bounds of a pane.
    pub at: [i64; 2],
    /// The rows.
    pub rows: RecordBatch,
    /// By which they are known to be the same as before.
    pub piece: Option<PieceId>,
    /// Whether the last column says which rows are marked, which more of them may become.
    pub has_marks: bool,
    /// Whether the operator still has them; marks are its own.
    pub(crate) tie: Tie,
}

/// Rows with one more column, which has a value for each.
pub(crate) fn marked(rows: &RecordBatch, (name, marks): (&str, BooleanArray)) -> Result<RecordBatch> {
    let schema = rows.schema();
    let mark = Arc::new(Field::new(name, DataType::Boolean, false));
    let fields = schema.fields().iter().cloned().chain([mark]).collect::<Vec<_>>();
    let columns = rows.columns().iter().cloned().chain([Arc::new(marks) as ArrayRef]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| computing("marking rows", &e))
}

/// Memory of columns, in bytes. Marks of several batches lie in one buffer, of which each has a part.
pub(crate) fn bytes_of(columns: &[ArrayRef]) -> usize {
    let bytes = |column: &ArrayRef| match column.data_type() {
        DataType::Boolean => column.len().div_ceil(8),
        _ => column.get_array_memory_size(),
    };
    columns.iter().map(bytes).sum()
}

/// The columns of a schema in words.
pub(crate) fn columns(schema: &Schema) -> String {
    let column = |field: &Arc<Field>| format!("{} {}", field.name(), field.data_type());
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}

/// Whether rows of a state have the columns that its operator will look into: what the manifest says of them is only words.
///
/// # Errors
/// They do not.
pub(crate) fn check_columns(rows: &RecordBatch, expected: &Schema) -> Result<()> {
    let types = |schema: &Schema| schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
    let came = rows.schema();
    if types(&came) == types(expected) {
        return Ok(());
    }
    let (expected, came) = (columns(expected), columns(&came));
    Err(StreamError::invalid(format!(
        "a state does not fit what this release would keep (expected {expected}, got {came})"
    )))
}

impl State {
    /// Adds rows of some kind, which may be others in the next state.
    pub fn put(&mut self, name: &str, at: [i64; 2], rows: RecordBatch) {
        self.tables.push(Table { name: name.to_owned(), at, rows, piece: None, has_marks: false, tie: Tie::default() });
    }

    /// Adds a piece. Those of one kind that belong to the same are in the order of their numbers.
    pub fn put_piece(&mut self, name: &str, at: [i64; 2], piece: &Piece) {
        let (rows, tie, piece) = (piece.rows().clone(), piece.tie(), Some(piece.id()));
        self.tables.push(Table { name: name.to_owned(), at, rows, piece, has_marks: false, tie });
    }

    /// Adds a piece with a column behind its own that says which rows are marked. A row that is marked stays so.
    pub fn put_marked(&mut self, name: &str, at: [i64; 2], piece: &Piece, marks: (&str, BooleanArray)) -> Result<()> {
        let (rows, tie, piece) = (marked(piece.rows(), marks)?, piece.tie(), Some(piece.id()));
        self.tables.push(Table { name: name.to_owned(), at, rows, piece, has_marks: true, tie });
        Ok(())
    }

    /// Memory of its rows, in bytes, whoever else has them.
    pub(crate) fn bytes(&self) -> usize {
        self.tables.iter().map(|table| bytes_of(table.rows.columns())).sum()
    }

    /// An instant; before all others if it is not there.
    pub(crate) fn mark(&self, name: &str) -> EventTime {
        self.marks.get(name).map_or(EventTime::MIN, |at| EventTime(*at))
    }

    /// The rows of some kind, with what belongs to them.
    pub(crate) fn of<'s>(&'s self, name: &'s str) -> impl Iterator<Item = (&'s [i64; 2], &'s RecordBatch)> {
        self.tables.iter().filter(move |table| table.name == name).map(|table| (&table.at, &table.rows))
    }
}

/// Where the snapshots of a query are kept. Called by one thread at a time.
pub trait SnapshotStore: Debug + Send + Sync {
    /// Writes a file of a part of the snapshot of an epoch, which is durable then, and which no other one has the name of.
    ///
    /// # Errors
    /// It cannot be written.
    fn put(
        &self,
        epoch: Epoch,
        stage: StageId,
        shuffle: u16,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PartFile>;

    /// Makes a snapshot the one that counts, in one step that is durable then. Only who has the query may do so. What it does not name goes.
    ///
    /// # Errors
    /// It cannot be written, a file that it names is gone, or another process has the query.
    fn switch(&self, manifest: &Manifest) -> Result<()>;

    /// Removes all files that the snapshot that counts does not name.
    fn tidy(&self);

    /// The query is over: what is not written yet is not waited for. Called by any thread.
    fn give_up(&self) {}

    /// Whether a file is in memory as a whole while it is written.
    fn gathers(&self) -> bool {
        false
    }

    /// Whether records before a snapshot go also where they lead back in another way: there would be too many of them.
    fn spares_records(&self) -> bool {
        false
    }
}
