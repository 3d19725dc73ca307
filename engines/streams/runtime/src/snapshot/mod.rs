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
mod pieces;
mod regroup;
mod schedule;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::time::EventTime;
use serde::{Deserialize, Serialize};

pub use self::chain::{Chains, Next};
pub use self::form::{read_changes, read_state, write_changes, write_state};
pub use self::pieces::{Changes, Piece, PieceId, Pieces};
pub(crate) use self::regroup::regroup;
pub use self::schedule::{MemberPart, Schedule, Step};
use crate::driver::EpochRecord;
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
}

/// Rows with one more column, which has a value for each.
pub(crate) fn marked(rows: &RecordBatch, (name, marks): (&str, BooleanArray)) -> Result<RecordBatch> {
    let schema = rows.schema();
    let mark = Arc::new(Field::new(name, DataType::Boolean, false));
    let fields = schema.fields().iter().cloned().chain([mark]).collect::<Vec<_>>();
    let columns = rows.columns().iter().cloned().chain([Arc::new(marks) as ArrayRef]).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| computing("marking rows", &e))
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
        self.tables.push(Table { name: name.to_owned(), at, rows, piece: None, has_marks: false });
    }

    /// Adds a piece. Those of one kind that belong to the same are in the order of their numbers.
    pub fn put_piece(&mut self, name: &str, at: [i64; 2], piece: &Piece) {
        let (rows, piece) = (piece.rows().clone(), Some(piece.id()));
        self.tables.push(Table { name: name.to_owned(), at, rows, piece, has_marks: false });
    }

    /// Adds a piece with a column behind its own that says which rows are marked. A row that is marked stays so.
    pub fn put_marked(&mut self, name: &str, at: [i64; 2], piece: &Piece, marks: (&str, BooleanArray)) -> Result<()> {
        let (rows, piece) = (marked(piece.rows(), marks)?, Some(piece.id()));
        self.tables.push(Table { name: name.to_owned(), at, rows, piece, has_marks: true });
        Ok(())
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

/// What a snapshot consists of. It is the snapshot: what it does not name is no part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The query.
    pub query: QueryId,
    /// The record of its epoch: where the sources stood.
    pub record: EpochRecord,
    /// The instant of processing time of the last epoch that had rows.
    pub rows_at: EventTime,
    /// What the members of each stage hold, in words; it must be the same where the snapshot is read.
    pub signatures: Vec<String>,
    /// One for each member.
    pub parts: Vec<Part>,
}

/// The state of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The member's stage.
    pub stage: StageId,
    /// The part of the keys that it owns.
    pub shuffle: u16,
    /// How many members its group has.
    pub members: u16,
    /// Where its whole state is, by a name that belongs to the store.
    pub name: String,
    /// The length of that.
    pub bytes: u64,
    /// Its CRC-32C, by the store.
    pub checksum: u32,
    /// What has changed since, one behind the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PartFile>,
    /// The checksum of the state that all of this gives, if it is in pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives: Option<u32>,
}

/// A file of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFile {
    /// Where it is, by a name that belongs to the store.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its CRC-32C, by the store.
    pub checksum: u32,
}

impl Part {
    /// One of which all is in this file.
    pub fn whole(stage: StageId, shuffle: u16, members: u16, file: PartFile) -> Self {
        let PartFile { name, bytes, checksum } = file;
        Self { stage, shuffle, members, name, bytes, checksum, changes: Vec::new(), gives: None }
    }

    /// It with all that it says in this file.
    #[must_use]
    pub fn rewritten(&self, file: PartFile) -> Self {
        Self::whole(self.stage, self.shuffle, self.members, file)
    }

    /// The file of the whole state that its changes follow.
    pub fn base(&self) -> PartFile {
        PartFile { name: self.name.clone(), bytes: self.bytes, checksum: self.checksum }
    }

    /// All of its files.
    pub fn files(&self) -> impl Iterator<Item = PartFile> {
        std::iter::once(self.base()).chain(self.changes.iter().cloned())
    }

    /// The state that its files give: the whole, and what has changed since.
    ///
    /// # Errors
    /// The name of the file that cannot be read, and why.
    pub fn read(&self, bytes: impl Fn(&PartFile) -> Result<Vec<u8>, String>) -> Result<State, (String, String)> {
        let base = self.base();
        let whole = bytes(&base).and_then(|bytes| read_state(&bytes));
        let mut state = whole.map_err(|cause| (base.name.clone(), cause))?;
        for file in &self.changes {
            let changes = bytes(file).and_then(|bytes| read_changes(&bytes));
            let applied = changes.and_then(|changes| state.apply(changes));
            state = applied.map_err(|cause| (file.name.clone(), cause))?;
        }
        let last = self.changes.last().map_or(base.name, |file| file.name.clone());
        match self.gives {
            Some(gives) => state.check(gives).map_err(|cause| (last, cause))?,
            None if self.changes.is_empty() => {}
            None => return Err((last, "expected a part that says which state its changes give, got none".into())),
        }
        Ok(state)
    }
}

impl Manifest {
    /// All files that it names.
    pub fn files(&self) -> impl Iterator<Item = PartFile> {
        self.parts.iter().flat_map(Part::files)
    }

    /// Whether some of its parts have changes. Who does not know of them would leave them out.
    pub fn has_changes(&self) -> bool {
        self.parts.iter().any(|part| !part.changes.is_empty())
    }
}

/// A snapshot that was found.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What it consists of.
    pub manifest: Manifest,
    /// The state of each part, in their order.
    pub states: Vec<State>,
}

impl Snapshot {
    /// What some stages take of it, in a query whose stages hold this: of the others it says whatever they hold.
    pub(crate) fn of(mut self, taking: &BTreeMap<StageId, u16>, signatures: &[String]) -> Self {
        let states = std::mem::take(&mut self.states);
        let parts = std::mem::take(&mut self.manifest.parts);
        let taken = parts.into_iter().zip(states).filter(|(part, _)| taking.contains_key(&part.stage));
        (self.manifest.parts, self.states) = taken.unzip();
        let former = std::mem::take(&mut self.manifest.signatures);
        let signature = |(stage, held): (u16, &String)| match taking.contains_key(&StageId(stage)) {
            true => former.get(usize::from(stage)).cloned().unwrap_or_default(),
            false => held.clone(),
        };
        self.manifest.signatures = (0..).zip(signatures).map(signature).collect();
        self
    }
}

/// Whether a snapshot fits a query whose stages hold this, with so many members that hold state.
///
/// # Errors
/// It does not.
pub fn check(manifest: &Manifest, signatures: &[String], members: &BTreeMap<StageId, u16>) -> Result<()> {
    let epoch = manifest.record.epoch;
    if let Some((held, came)) = signatures.iter().zip(&manifest.signatures).find(|(held, came)| held != came) {
        return Err(unfit(epoch, &format!("{held:?}"), &format!("{came:?}")));
    }
    if signatures.len() != manifest.signatures.len() {
        return Err(unfit(epoch, &format!("{} stages", signatures.len()), &format!("{}", manifest.signatures.len())));
    }
    let expected = members.iter().flat_map(|(stage, members)| (0..*members).map(|shuffle| (*stage, shuffle, *members)));
    let expected: Vec<_> = expected.collect();
    let mut came: Vec<_> = manifest.parts.iter().map(|part| (part.stage, part.shuffle, part.members)).collect();
    came.sort_unstable();
    if expected != came {
        let words = |parts: &[(StageId, u16, u16)]| {
            let part = |(stage, shuffle, members): &(StageId, u16, u16)| format!("{stage}: {shuffle} of {members}");
            parts.iter().map(part).collect::<Vec<_>>().join(", ")
        };
        return Err(unfit(epoch, &words(&expected), &words(&came)));
    }
    Ok(())
}

fn unfit(epoch: Epoch, expected: &str, came: &str) -> StreamError {
    StreamError::invalid(format!(
        "the snapshot of epoch {epoch} does not fit what this release would keep (expected {expected}, got {came}); go on with the release \
         that wrote it, or remove its directory in streams/snapshots if its records reach far enough, or drop the query and start it again with another \
         place for its rows"
    ))
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

    /// Whether records before a snapshot go also where they lead back in another way: there would be too many of them.
    fn spares_records(&self) -> bool {
        false
    }
}
