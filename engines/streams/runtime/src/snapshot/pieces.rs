//! What a state consists of, and what has become of it since another one.
//!
//! ```text
//!   state of epoch 7:  pieces 1  2  3       written as a whole
//!   state of epoch 9:  pieces 1     3  4    written as changes: 2 is gone, 4 has come, and in 3 these rows are marked now
//! ```
//!
//! A piece does not change while it has its number, but for marks that rows get. So which pieces have come and gone says all that has become
//! of a state, whatever its operator did with it; and since that is told by what the snapshot has that counts, an operator notes nothing.
//!
//! Changes say by a checksum which state they follow, and which one they give: none is left out of a chain unseen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, AsArray as _, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use serde::{Deserialize, Serialize};

use super::{State, Table};

/// The number of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PieceId(pub(super) u64);

/// Rows that stay as they are, with a number that no other rows of this process have. Later ones have higher numbers.
#[derive(Clone, Debug)]
pub struct Piece {
    id: PieceId,
    rows: RecordBatch,
    /// There as long as an operator has it.
    tie: Arc<()>,
}

/// Whether an operator still has rows that it has handed out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tie(Weak<()>);

impl Tie {
    pub(crate) fn holds(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Who else has rows makes them no others.
impl PartialEq for Tie {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Piece {
    /// These rows are a piece from now on.
    pub fn new(rows: RecordBatch) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: PieceId(NEXT.fetch_add(1, Ordering::Relaxed)), rows, tie: Arc::default() }
    }

    /// The rows.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// Tells whether an operator has it.
    pub(super) fn tie(&self) -> Tie {
        Tie(Arc::downgrade(&self.tie))
    }

    /// Its number.
    pub(crate) fn id(&self) -> PieceId {
        self.id
    }
}

/// The pieces of a state, and which of their rows are marked.
#[derive(Clone, Debug)]
pub struct Pieces {
    marks: BTreeMap<PieceId, Option<BooleanArray>>,
    sum: u32,
}

/// What has become of a state since another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// All instants.
    pub(super) marks: BTreeMap<String, i64>,
    /// Pieces that are no part of it any more.
    pub(crate) gone: Vec<PieceId>,
    /// Pieces that have come.
    pub(super) tables: Vec<Table>,
    /// Rows of other pieces that are marked now.
    pub(super) marked: Vec<(PieceId, UInt32Array)>,
    /// The checksum of the state that they follow.
    pub(super) follows: u32,
    /// That of the state that they give.
    pub(super) gives: u32,
}

impl Changes {
    /// How many rows have come.
    pub(super) fn rows(&self) -> usize {
        self.tables.iter().map(|table| table.rows.num_rows()).sum()
    }
}

impl Pieces {
    /// Those of a state; none if some of its rows are no piece.
    pub fn of(state: &State) -> Option<Self> {
        let marks =
            state.tables.iter().map(|table| Some((table.piece?, table.marks().cloned()))).collect::<Option<_>>()?;
        Some(Self { marks, sum: state.sum()? })
    }

    /// Memory that they take beside the state, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let marks = self.marks.values().flatten().map(|marks| marks.len().div_ceil(8)).sum::<usize>();
        marks + self.marks.len() * size_of::<(PieceId, Option<BooleanArray>)>()
    }

    /// The checksum of their state.
    pub(super) fn sum(&self) -> u32 {
        self.sum
    }

    /// What has become of the state that has these pieces, until one that has those; none if that can only be told as a whole.
    pub fn until(&self, state: &State, now: &Self) -> Option<Changes> {
        let mut changes =
            Changes { marks: state.marks.clone(), follows: self.sum, gives: now.sum, ..Changes::default() };
        changes.gone = self.marks.keys().filter(|id| !now.marks.contains_key(id)).copied().collect();
        for table in &state.tables {
            let id = table.piece?;
            match (self.marks.get(&id), table.marks()) {
                (None, _) => changes.tables.push(table.clone()),
                (Some(Some(before)), Some(now)) => {
                    let marked = newly_marked(before, now)?;
                    if !marked.is_empty() {
                        changes.marked.push((id, marked));
                    }
                }
                (Some(None), None) => {}
                (Some(_), _) => return None,
            }
        }
        Some(changes)
    }
}

/// The rows that are marked now and were not; none if others were and are not any more.
fn newly_marked(before: &BooleanArray, now: &BooleanArray) -> Option<UInt32Array> {
    let (before, now) = (before.values(), now.values());
    if before.len() != now.len() || (before & &!now).count_set_bits() > 0 {
        return None;
    }
    let marked = now & &!before;
    Some(UInt32Array::from_iter_values(marked.set_indices().map(|row| row as u32)))
}

impl Table {
    /// Which rows are marked, if some may become so.
    fn marks(&self) -> Option<&BooleanArray> {
        self.has_marks.then(|| self.rows.columns().last()?.as_boolean_opt()).flatten()
    }

    fn mark(&mut self, rows: &UInt32Array) -> Result<(), String> {
        let marks = self.rows.columns().last().and_then(|marks| marks.as_boolean_opt());
        let marks = marks.ok_or_else(|| format!("expected rows of {} with marks, got others", self.name))?;
        let mut set: Vec<bool> = marks.values().iter().collect();
        for row in rows.values() {
            let count = set.len();
            let place = set.get_mut(*row as usize);
            *place.ok_or_else(|| format!("expected one of {count} rows of {}, got row {row}", self.name))? = true;
        }
        let marks: ArrayRef = Arc::new(BooleanArray::new(BooleanBuffer::from(set), None));
        let mut columns = self.rows.columns().to_vec();
        columns.pop();
        columns.push(marks);
        self.rows = RecordBatch::try_new(self.rows.schema(), columns).map_err(|e| e.to_string())?;
        Ok(())
    }
}

impl State {
    /// The checksum of what it consists of: the numbers of its pieces, how many rows each has, and how many of them are marked, and all
    /// instants. None if some of its rows are no piece, or two pieces have one number.
    pub fn sum(&self) -> Option<u32> {
        let piece = |table: &Table| {
            let marked = table.marks().map_or(u64::MAX, |marks| marks.true_count() as u64);
            Some((table.piece?, [table.rows.num_rows() as u64, marked]))
        };
        let pieces = self.tables.iter().map(piece).collect::<Option<BTreeMap<_, _>>>()?;
        if pieces.len() < self.tables.len() {
            return None;
        }
        let number = |sum, number: u64| crc32c::crc32c_append(sum, &number.to_le_bytes());
        let sum = pieces.iter().fold(number(0, pieces.len() as u64), |sum, (id, of)| {
            of.iter().fold(number(sum, id.0), |sum, of| number(sum, *of))
        });
        Some(self.marks.iter().fold(sum, |sum, (name, at)| {
            let sum = crc32c::crc32c_append(number(sum, name.len() as u64), name.as_bytes());
            number(sum, at.cast_unsigned())
        }))
    }

    /// Whether it is the one that has this checksum.
    ///
    /// # Errors
    /// It is another one.
    pub fn check(&self, gives: u32) -> Result<(), String> {
        match self.sum() {
            Some(sum) if sum == gives => Ok(()),
            sum => Err(format!("expected a state of the checksum {gives:08x}, got one of {}", words(sum))),
        }
    }

    /// What it was when changes were told of it.
    ///
    /// # Errors
    /// They are those of another state, or do not give the one that they were told of.
    pub fn apply(self, changes: Changes) -> Result<Self, String> {
        let sum = self.sum();
        if sum != Some(changes.follows) {
            return Err(format!(
                "expected changes of this state, got those of another: they follow {:08x}, and it is {}",
                changes.follows,
                words(sum)
            ));
        }
        let follows =
            |what: &str, id: PieceId| format!("expected changes of this state, got those of another: {what} {}", id.0);
        let piece = |table: Table| Some((table.piece?, table));
        let tables = self.tables.into_iter().map(piece).collect::<Option<BTreeMap<_, _>>>();
        let mut tables = tables.ok_or("expected a state in pieces, got one without their numbers")?;
        for id in changes.gone {
            tables.remove(&id).ok_or_else(|| follows("it has no piece", id))?;
        }
        for table in changes.tables {
            let id = table.piece.ok_or("expected pieces that have come, got rows without a number")?;
            if tables.insert(id, table).is_some() {
                return Err(follows("it has a piece", id));
            }
        }
        for (id, rows) in changes.marked {
            tables.get_mut(&id).ok_or_else(|| follows("it has no piece", id))?.mark(&rows)?;
        }
        // Of one kind, later pieces stand behind earlier ones.
        let state = Self { marks: changes.marks, tables: tables.into_values().collect() };
        state.check(changes.gives)?;
        Ok(state)
    }

    /// Its rows without what is known of them beside: what depends on how an operator came to it is left out.
    pub(crate) fn without_pieces(mut self) -> Self {
        for table in &mut self.tables {
            (table.piece, table.has_marks) = (None, false);
        }
        self
    }
}

fn words(sum: Option<u32>) -> String {
    sum.map_or_else(|| "none, because its rows are not in pieces".to_owned(), |sum| format!("{sum:08x}"))
}
