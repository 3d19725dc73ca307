//! The state of a windowed aggregate, of the kind that its windows ask for.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use savanna_ownership::KeyGroupSet;
use savanna_streams_api::Result;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::graph::WindowAggregate;
use savanna_streams_model::state::{Delta, DeltaId, KeyedState, MovableState, PaneDelta};
use savanna_streams_model::time::{EventTime, Windows};

use super::recast::recast;
use super::{AggregateSpec, PaneState, SessionState};
use crate::snapshot::{FormerAggregates, State, check_columns, columns};

/// The rows of panes, with the start of the pane and the end of the first window that they count for.
const PANES: &str = "panes";
/// Up to where windows are closed.
const CLOSED: &str = "closed";
/// The rows of sessions.
const FRAGMENTS: &str = "fragments";
/// The column that says which of them are those of sessions that are over.
const OVER: &str = "over";
/// Rows of sessions have the times of the first and the last row behind the keys.
const SESSION_COLUMNS: usize = 2;

/// Rows of windows that are complete.
#[derive(Clone, Debug)]
pub struct ClosedWindows {
    /// The start of each row's window in microseconds.
    pub starts: Vec<i64>,
    /// The end of each row's window in microseconds.
    pub ends: Vec<i64>,
    /// Key columns, then results.
    pub columns: Vec<ArrayRef>,
}

impl ClosedWindows {
    /// The ends; those of neighbouring rows once.
    pub(crate) fn distinct_ends(&self) -> impl Iterator<Item = i64> {
        self.ends.chunk_by(|a, b| a == b).map(|rows| rows[0])
    }
}

/// Merge state, by panes or by fragments of sessions.
pub(crate) enum WindowState {
    Panes(Box<PaneState>),
    Sessions(Box<SessionState>),
}

/// What a member that merges an aggregate says of its state.
///
/// # Errors
/// The aggregate cannot be decoded.
pub fn aggregate_signature(aggregate: &WindowAggregate, functions: &TaskContext) -> Result<String> {
    let spec = Arc::new(AggregateSpec::decode(aggregate, functions)?);
    Ok(WindowState::new(Arc::clone(&spec))?.signature(&spec))
}

type Keyed = dyn KeyedState<RecordBatch, ClosedWindows, KeyGroupSet>;

impl WindowState {
    pub(crate) fn new(spec: Arc<AggregateSpec>) -> Result<Self> {
        Ok(match *spec.windows() {
            Windows::Fixed(window) => Self::Panes(Box::new(PaneState::new(spec, window)?)),
            Windows::Session { gap } => Self::Sessions(Box::new(SessionState::new(spec, gap)?)),
        })
    }

    /// Takes rows in that count only for windows that end at `first_window_end` or later, if there is such a bound.
    pub(crate) fn update(&mut self, rows: &RecordBatch, first_window_end: Option<i64>) -> Result<()> {
        match (self, first_window_end) {
            (Self::Panes(panes), Some(end)) => panes.update_from(rows, end),
            (state, _) => state.keyed_mut().update(rows),
        }
    }

    /// Gives away the changes since the last freeze that windows which end at `upto` or before need. Fragments of sessions
    /// all go: which session they join shows only where they meet.
    pub(crate) fn freeze(&mut self, epoch: Epoch, upto: EventTime) -> Result<Delta> {
        match self {
            Self::Panes(panes) => panes.freeze_due(upto.0),
            Self::Sessions(sessions) => sessions.freeze(epoch),
        }
    }

    pub(crate) fn merge(&mut self, delta: &Delta, id: DeltaId) -> Result<bool> {
        self.keyed_mut().merge(delta, id)
    }

    pub(crate) fn scan(&mut self, upto: EventTime) -> Result<Vec<ClosedWindows>> {
        self.keyed_mut().scan(upto.0)
    }

    /// Rows that were left out so far because they had no event time.
    pub(crate) fn without_time(&self) -> u64 {
        match self {
            Self::Panes(panes) => panes.without_time(),
            Self::Sessions(sessions) => sessions.without_time(),
        }
    }

    /// Every delta of these epochs has been merged.
    pub(crate) fn complete(&mut self, epoch: Epoch) {
        match self {
            Self::Panes(panes) => panes.complete(epoch),
            Self::Sessions(sessions) => sessions.complete(epoch),
        }
    }

    /// All that is there. Nothing is taken away.
    pub(crate) fn state(&mut self) -> Result<State> {
        let mut state = State::default();
        match self {
            Self::Panes(panes) => {
                let (pieces, closed_upto) = panes.pieces()?;
                state.marks.insert(CLOSED.into(), closed_upto);
                pieces.iter().for_each(|(at, piece)| state.put_piece(PANES, *at, piece));
            }
            Self::Sessions(sessions) => {
                for (piece, over) in sessions.pieces()? {
                    state.put_marked(FRAGMENTS, [0; 2], &piece, (OVER, over))?;
                }
            }
        }
        Ok(state)
    }

    /// As [`Self::state`], with one row for each session that is not over, and without numbers of pieces.
    pub(crate) fn state_to_send(&mut self) -> Result<State> {
        let Self::Sessions(sessions) = self else { return Ok(self.state()?.without_pieces()) };
        let mut state = State::default();
        sessions.joined()?.into_iter().for_each(|rows| state.put(FRAGMENTS, [0; 2], rows));
        Ok(state)
    }

    /// Empty state becomes what [`Self::state`] gave.
    pub(crate) fn restore(&mut self, spec: &AggregateSpec, state: &State) -> Result<()> {
        match self {
            Self::Panes(panes) => {
                state.of(PANES).try_for_each(|(_, rows)| check_columns(rows, spec.delta_schema()))?;
                let pane = |(at, rows): (&[i64; 2], &RecordBatch)| PaneDelta {
                    pane: at[0],
                    first_window_end: at[1],
                    rows: rows.clone(),
                };
                let delta = Delta { panes: state.of(PANES).map(pane).collect(), ..Delta::default() };
                panes.restore(&delta, state.mark(CLOSED).0)
            }
            Self::Sessions(sessions) => {
                let fragments = state.of(FRAGMENTS).map(|(_, rows)| sessions.open_rows(rows)).collect::<Result<_>>()?;
                sessions.install(&Delta { fragments, ..Delta::default() })
            }
        }
    }

    /// What [`Self::state`] gave of other aggregates over the same keys and windows, as a state of these.
    pub(crate) fn recast(&self, spec: &AggregateSpec, state: State, former: &FormerAggregates) -> Result<State> {
        let more = match self {
            Self::Panes(_) => 0,
            Self::Sessions(_) => SESSION_COLUMNS,
        };
        let mut state = state.without_pieces();
        for table in state.tables.iter_mut().filter(|table| self.keeps(&table.name)) {
            table.rows = recast(spec, more, &table.rows, former)?;
        }
        Ok(state)
    }

    /// What it holds, in words.
    pub(crate) fn signature(&self, spec: &AggregateSpec) -> String {
        let (kind, schema) = self.rows(spec);
        format!("{kind} of {:?}, {} keys: {}", spec.windows(), spec.key_columns(), columns(schema))
    }

    /// The kind of its rows, and their columns.
    fn rows<'a>(&'a self, spec: &'a AggregateSpec) -> (&'static str, &'a SchemaRef) {
        match self {
            Self::Panes(_) => (PANES, spec.delta_schema()),
            Self::Sessions(sessions) => (FRAGMENTS, sessions.schema()),
        }
    }

    /// Whether its rows have this name in a state.
    pub(crate) fn keeps(&self, rows: &str) -> bool {
        match self {
            Self::Panes(_) => rows == PANES,
            Self::Sessions(_) => rows == FRAGMENTS,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Panes(panes) => panes.bytes(),
            Self::Sessions(sessions) => sessions.bytes(),
        }
    }

    fn keyed_mut(&mut self) -> &mut Keyed {
        match self {
            Self::Panes(panes) => panes.as_mut(),
            Self::Sessions(sessions) => sessions.as_mut(),
        }
    }
}
