//! The one interface of keyed state. Late merging, spilling, snapshots and moves all go through it, so that an operator
//! is written once and its state can be taken apart by key group. Only merge state is updated in one place and merged in
//! another; moving works for all.

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use savanna_streams_api::Result;
use savanna_streams_api::ids::{Epoch, StageId};

/// What may be done to state, which decides where it may be updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// No state at all.
    Stateless,
    /// Commutative: updated anywhere, merged late, exactly once by delta id.
    Merge,
    /// Rows with weights (a Z-set): an exchange by key group in every mode.
    Weighted,
    /// Ordered: one writer per key group.
    Sequence,
}

/// Which delta: where it was made and in which epoch. Merging the same id again changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeltaId {
    /// The epoch whose rows it holds.
    pub epoch: Epoch,
    /// The stage that made it.
    pub stage: StageId,
    /// The sender's number in its stage (SEQ_NUM).
    pub sender: u32,
}

/// The change of one pane: partial aggregates by key.
#[derive(Clone, Debug)]
pub struct PaneDelta {
    /// Start of the pane in microseconds.
    pub pane: i64,
    /// The rows count only for windows that end at or after this instant (microseconds). It is the pane's end, except for
    /// rows that came too late for some of the pane's windows but not for all.
    pub first_window_end: i64,
    /// Key columns, then the aggregates' state columns.
    pub rows: RecordBatch,
}

/// State that was changed since it was last frozen, or all of it.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// The panes touched, in order.
    pub panes: Vec<PaneDelta>,
    /// Fragments of sessions, one per row: key columns, the times of the first and the last row in it (microseconds), then
    /// the aggregates' state columns.
    pub fragments: Vec<RecordBatch>,
    /// Rows of a join that may still find a partner, left and right: the side's columns, then whether the row has met one.
    pub sides: [Vec<RecordBatch>; 2],
}

impl Delta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.panes.is_empty() && self.fragments.is_empty() && self.sides.iter().all(Vec::is_empty)
    }

    /// The memory that its rows hold, in bytes.
    pub fn bytes(&self) -> usize {
        let panes = self.panes.iter().map(|pane| &pane.rows);
        let rows = panes.chain(&self.fragments).chain(self.sides.iter().flatten());
        rows.map(RecordBatch::get_array_memory_size).sum()
    }
}

/// State that can be taken apart by key group, whatever its kind. `G` is a set of key groups.
pub trait MovableState<G: ?Sized> {
    /// Takes the state of some key groups out, so that it can move.
    ///
    /// # Errors
    /// A value cannot be computed.
    fn extract(&mut self, groups: &G) -> Result<Delta>;

    /// Puts extracted state in; the opposite of [`MovableState::extract`].
    ///
    /// # Errors
    /// The state does not fit.
    fn install(&mut self, state: &Delta) -> Result<()>;

    /// Memory held, in bytes.
    fn bytes(&self) -> usize;
}

/// Keyed state of the kind [`StateKind::Merge`]. `R` is what an update takes, `O` what a scan gives.
pub trait KeyedState<R: ?Sized, O, G: ?Sized>: MovableState<G> {
    /// Takes rows in.
    ///
    /// # Errors
    /// A row cannot be computed; the state is as before or the query ends.
    fn update(&mut self, rows: &R) -> Result<()>;

    /// Takes out what `upto` (event time in microseconds) has completed.
    ///
    /// # Errors
    /// A value cannot be computed.
    fn scan(&mut self, upto: i64) -> Result<Vec<O>>;

    /// Gives away all changes since the last freeze and starts afresh.
    ///
    /// # Errors
    /// A value cannot be computed.
    fn freeze(&mut self, epoch: Epoch) -> Result<Delta>;

    /// Merges a delta, once per id. Returns whether it was new.
    ///
    /// # Errors
    /// The delta does not fit this state.
    fn merge(&mut self, delta: &Delta, id: DeltaId) -> Result<bool>;
}
