//! The state of a windowed aggregate, by panes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use savanna_ownership::KeyGroupSet;
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::state::{Delta, DeltaId, KeyedState, MovableState, PaneDelta};
use savanna_streams_model::time::{EventTime, WindowSpec};

use super::ClosedWindows;
use super::ledger::Ledger;
use super::pane::{Pane, merged};
use super::pane_runs::{PaneRuns, Panes};
use super::spec::{AggregateSpec, Constants, Evaluated};
use super::split::{PaneRows, by_pane};
use super::table::{PaneTable, Results};
use crate::error::broken;
use crate::key_cut::KeyCut;
use crate::snapshot::Piece;

/// Pieces of panes, each with the start of its pane and the end of the first window that it counts for.
type PanePieces = Vec<([i64; 2], Piece)>;

/// Merge state of a windowed aggregate.
///
/// ```text
///   update -> fresh tables (changes since the last freeze) --freeze--> Delta
///   merge, install -> panes                                 --scan---> windows, from panes and fresh tables
/// ```
///
/// A scan stage updates and freezes; an aggregate stage merges and scans.
pub struct PaneState {
    spec: Arc<AggregateSpec>,
    window: WindowSpec,
    fresh: BTreeMap<PaneKey, PaneTable>,
    panes: BTreeMap<PaneKey, Pane>,
    /// Panes of long windows, merged ahead.
    runs: PaneRuns,
    /// Ends of windows that have rows and are not closed.
    open_windows: BTreeSet<i64>,
    closed_upto: i64,
    merged: Ledger,
    key_cut: KeyCut,
    without_time: u64,
    constants: Constants,
    ids: Vec<usize>,
    /// Panes that may have parts to be joined.
    unjoined: BTreeSet<PaneKey>,
    /// So many rows of parts are joined in one epoch, and twice as many beside as came.
    joined_at_once: usize,
    /// How many have come since.
    arrived: usize,
    /// Rows were lost while the state was computed: nothing that follows would be right.
    lost: Option<StreamError>,
}

/// What snapshots have left apart is joined by so many rows in one epoch: this, and no more, is what it holds the member up.
const JOINED_AT_ONCE: usize = 16_384;

/// Windows of so many panes are merged pane by pane: runs would not pay.
const FEW_PANES: i64 = 8;

/// A pane, and the end of the first window that its rows count for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PaneKey {
    pane: i64,
    first_window_end: i64,
}

impl PaneKey {
    /// The rows of a pane that are late for none of its windows.
    fn on_time(pane: i64, window: &WindowSpec) -> Self {
        Self { pane, first_window_end: pane + window.pane() }
    }

    /// The keys of the panes that start in a stretch of time.
    fn within(times: Range<i64>) -> Range<Self> {
        let first = |pane: i64| Self { pane, first_window_end: i64::MIN };
        first(times.start)..first(times.end)
    }

    /// The end of the first window that the rows count for.
    fn first_end(&self, window: &WindowSpec) -> Option<i64> {
        window.windows_of(EventTime(self.pane)).map(|(_, end)| end).find(|end| *end >= self.first_window_end)
    }
}

impl PaneState {
    /// Empty state of these windows.
    ///
    /// # Errors
    /// The keys cannot be hashed.
    pub fn new(spec: Arc<AggregateSpec>, window: WindowSpec) -> Result<Self> {
        let key_cut = KeyCut::new((0..spec.key_columns()).collect(), spec.delta_schema())?;
        Ok(Self {
            spec,
            window,
            fresh: BTreeMap::new(),
            panes: BTreeMap::new(),
            runs: PaneRuns::default(),
            open_windows: BTreeSet::new(),
            closed_upto: i64::MIN,
            merged: Ledger::default(),
            key_cut,
            without_time: 0,
            constants: Constants::default(),
            ids: Vec::new(),
            unjoined: BTreeSet::new(),
            joined_at_once: JOINED_AT_ONCE,
            arrived: 0,
            lost: None,
        })
    }

    /// As it is, but that so many rows of parts are joined in one epoch. Tests join fewer.
    #[doc(hidden)]
    #[must_use]
    pub fn joining(self, rows: usize) -> Self {
        Self { joined_at_once: rows, ..self }
    }

    /// Takes rows in that count only for windows that end at `first_window_end` or later.
    ///
    /// # Errors
    /// As [`KeyedState::update`].
    pub fn update_from(&mut self, rows: &RecordBatch, first_window_end: i64) -> Result<()> {
        self.update_rows(rows, Some(first_window_end))
    }

    /// Gives away the changes that windows which end at `upto` or before need, and keeps the rest.
    ///
    /// # Errors
    /// As [`KeyedState::freeze`].
    pub fn freeze_due(&mut self, upto: i64) -> Result<Delta> {
        let window = self.window;
        let due = self.fresh.extract_if(.., |key, _| key.first_end(&window).is_none_or(|end| end <= upto));
        let mut panes = Vec::new();
        for (PaneKey { pane, first_window_end }, table) in due {
            panes.push(PaneDelta { pane, first_window_end, rows: table.into_state(&self.spec)? });
        }
        Ok(Delta { panes, ..Delta::default() })
    }

    /// Rows that were left out so far because they had no event time.
    pub fn without_time(&self) -> u64 {
        self.without_time
    }

    /// Every delta of these epochs has been merged: their ids need not be remembered one by one.
    pub fn complete(&mut self, epoch: Epoch) {
        self.merged.complete(epoch);
    }

    /// All that is there, and the instant up to which windows are closed. Nothing is taken away.
    ///
    /// # Errors
    /// A value cannot be computed. What is asked afterwards fails with the same error.
    pub fn state(&mut self) -> Result<(Delta, i64)> {
        let (pieces, closed_upto) = self.pieces()?;
        let delta = |([pane, first_window_end], piece): ([i64; 2], Piece)| PaneDelta {
            pane,
            first_window_end,
            rows: piece.rows().clone(),
        };
        Ok((Delta { panes: pieces.into_iter().map(delta).collect(), ..Delta::default() }, closed_upto))
    }

    /// As [`Self::state`], in pieces, each with the start of its pane and the end of the first window that it counts for.
    ///
    /// # Errors
    /// As [`Self::state`].
    pub fn pieces(&mut self) -> Result<(PanePieces, i64)> {
        self.settled().inspect_err(|error| self.lost = Some(error.clone()))
    }

    fn settled(&mut self) -> Result<(PanePieces, i64)> {
        let fresh = self.drain_fresh()?;
        self.absorb(&fresh)?;
        for (key, pane) in &mut self.panes {
            pane.settle(&self.spec)?;
            if pane.has_pair() {
                self.unjoined.insert(*key);
            }
        }
        self.join(self.joined_at_once)?;
        let pieces = |(key, pane): (&PaneKey, &Pane)| {
            let at = [key.pane, key.first_window_end];
            pane.frozen.iter().map(|piece| (at, piece.clone())).collect::<Vec<_>>()
        };
        Ok((self.panes.iter().flat_map(pieces).collect(), self.closed_upto))
    }

    /// Joins so many rows of parts that snapshots have left apart.
    fn join(&mut self, rows: usize) -> Result<()> {
        let mut left = rows;
        while let Some(key) = self.unjoined.first().copied() {
            let is_done = match self.panes.get_mut(&key) {
                Some(pane) => pane.join(&self.spec, &mut self.ids, &mut left)?,
                None => true,
            };
            if !is_done {
                break;
            }
            self.unjoined.remove(&key);
        }
        Ok(())
    }

    /// Empty state becomes what [`Self::state`] gave.
    ///
    /// # Errors
    /// The state does not fit.
    pub fn restore(&mut self, state: &Delta, closed_upto: i64) -> Result<()> {
        self.closed_upto = closed_upto;
        self.absorb(state)
    }

    fn update_rows(&mut self, rows: &RecordBatch, first_window_end: Option<i64>) -> Result<()> {
        let split = by_pane(&self.window, rows.column(self.spec.time_column))?;
        self.without_time += split.without_time as u64;
        if split.parts.is_empty() {
            return Ok(());
        }
        let spec = Arc::clone(&self.spec);
        let evaluated = spec.evaluate(rows, &mut self.constants)?;
        for part in split.parts {
            match part {
                PaneRows::All(pane) => self.update_pane(pane, first_window_end, &evaluated)?,
                PaneRows::Run { pane, start, rows } => {
                    self.update_pane(pane, first_window_end, &evaluated.slice(start, rows))?;
                }
                PaneRows::Scattered { pane, positions } => {
                    self.update_pane(pane, first_window_end, &evaluated.take(&spec, &positions)?)?;
                }
            }
        }
        Ok(())
    }

    fn update_pane(&mut self, pane: i64, first_window_end: Option<i64>, rows: &Evaluated) -> Result<()> {
        let window = self.window;
        if window.windows_of(EventTime(pane)).next().is_none() {
            // Between two windows with a gap.
            return Ok(());
        }
        let pane_end = pane + window.pane();
        let first_window_end = first_window_end.unwrap_or(pane_end).max(pane_end);
        let key = PaneKey { pane, first_window_end };
        if !self.fresh.contains_key(&key) {
            self.fresh.insert(key, PaneTable::new(&self.spec)?);
        }
        let table = self.fresh.get_mut(&key).ok_or_else(|| broken("a pane that was just made is gone"))?;
        table.update(rows, &mut self.ids)
    }

    fn drain_fresh(&mut self) -> Result<Delta> {
        self.freeze_due(i64::MAX)
    }

    fn absorb(&mut self, delta: &Delta) -> Result<()> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        for part in &delta.panes {
            let key = PaneKey { pane: part.pane, first_window_end: part.first_window_end };
            if !self.open_windows_of(key) {
                continue;
            }
            let pane = self.panes.entry(key).or_default();
            if pane.read {
                // State that was installed behind a window that was closed here already.
                self.runs.forget_with(number(&self.window, key.pane));
            }
            pane.add(&self.spec, &part.rows, &mut self.ids)?;
            self.arrived += part.rows.num_rows();
        }
        Ok(())
    }

    /// Notes the windows that a pane's rows count for; false if all of them are closed.
    fn open_windows_of(&mut self, key: PaneKey) -> bool {
        if self.panes.contains_key(&key) {
            return true;
        }
        let closed = self.closed_upto;
        let ends = self.window.windows_of(EventTime(key.pane)).map(|(_, end)| end);
        let mut any = false;
        for end in ends.filter(|end| *end >= key.first_window_end && *end > closed) {
            any = true;
            self.open_windows.insert(end);
        }
        any
    }

    fn close(&mut self, end: i64) -> Result<Option<ClosedWindows>> {
        let window = self.window;
        let start = window.start_of(end);
        let panes = self.panes.range(PaneKey::within(start..end));
        let keys: Vec<PaneKey> = panes.map(|(key, _)| *key).filter(|key| key.first_window_end <= end).collect();
        let Results { rows, columns } = match keys.as_slice() {
            [only] if window.last_end(EventTime(only.pane)) <= end => self.take_results(*only)?,
            few if (end - start) / window.pane() <= FEW_PANES => self.merged_table(few)?.into_results()?,
            many => self.covering_table(start..end, many)?.into_results()?,
        };
        while let Some(first) = self.panes.first_entry()
            && window.last_end(EventTime(first.key().pane)) <= end
        {
            self.runs.forget_before(number(&window, first.key().pane) + 1);
            first.remove();
        }
        if rows == 0 {
            return Ok(None);
        }
        Ok(Some(ClosedWindows { starts: vec![start; rows], ends: vec![end; rows], columns }))
    }

    /// The results of a pane that no other window will read.
    fn take_results(&mut self, key: PaneKey) -> Result<Results> {
        let mut pane = self.panes.remove(&key).unwrap_or_default();
        if !pane.frozen.is_empty() {
            // In the order in which they came.
            pane.freeze(&self.spec)?;
        }
        let mut table = match (pane.live, pane.frozen.as_slice()) {
            (None, [piece]) => return Results::of_state(&self.spec, piece.rows()),
            (None, _) => PaneTable::new(&self.spec)?,
            (Some(table), _) => table,
        };
        for piece in &pane.frozen {
            table.merge(&self.spec, piece.rows(), &mut self.ids)?;
        }
        table.into_results()
    }

    /// The table of all panes in a stretch of time, from runs of them; rows that were late for some window lie beside.
    fn covering_table(&mut self, times: Range<i64>, keys: &[PaneKey]) -> Result<PaneTable> {
        let window = self.window;
        let late: Vec<PaneKey> =
            keys.iter().filter(|key| **key != PaneKey::on_time(key.pane, &window)).copied().collect();
        let mut table = self.merged_table(&late)?;
        let panes = number(&window, times.start)..number(&window, times.end);
        let mut source = OnTimePanes { spec: &self.spec, window, panes: &mut self.panes, ids: &mut self.ids };
        let mut batches = Vec::new();
        self.runs.cover(panes, &mut source, &mut batches)?;
        for rows in &batches {
            table.merge(&self.spec, rows, &mut self.ids)?;
        }
        Ok(table)
    }

    fn merged_table(&mut self, keys: &[PaneKey]) -> Result<PaneTable> {
        let mut table = PaneTable::new(&self.spec)?;
        for key in keys {
            let Some(pane) = self.panes.get_mut(key) else {
                continue;
            };
            pane.freeze(&self.spec)?;
            for piece in &pane.frozen {
                table.merge(&self.spec, piece.rows(), &mut self.ids)?;
            }
        }
        Ok(table)
    }
}

/// The number of a pane; they are numbered without gaps.
fn number(window: &WindowSpec, pane: i64) -> i64 {
    (pane - window.offset()).div_euclid(window.pane())
}

/// The panes without rows that were late for some window.
struct OnTimePanes<'a> {
    spec: &'a AggregateSpec,
    window: WindowSpec,
    panes: &'a mut BTreeMap<PaneKey, Pane>,
    ids: &'a mut Vec<usize>,
}

impl OnTimePanes<'_> {
    fn start_of(&self, number: i64) -> i64 {
        number * self.window.pane() + self.window.offset()
    }
}

impl Panes for OnTimePanes<'_> {
    fn any(&self, panes: Range<i64>) -> bool {
        let times = self.start_of(panes.start)..self.start_of(panes.end);
        self.panes.range(PaneKey::within(times)).next().is_some()
    }

    fn rows(&mut self, pane: i64) -> Result<Option<RecordBatch>> {
        let key = PaneKey::on_time(self.start_of(pane), &self.window);
        let Some(pane) = self.panes.get_mut(&key) else {
            return Ok(None);
        };
        pane.freeze(self.spec)?;
        if pane.frozen.len() > 1 {
            pane.frozen = vec![Piece::new(merged(self.spec, pane.frozen.iter().map(Piece::rows), self.ids)?)];
        }
        Ok(pane.frozen.first().map(|piece| piece.rows().clone()))
    }

    fn merge(&mut self, batches: &[RecordBatch]) -> Result<RecordBatch> {
        merged(self.spec, batches.iter(), self.ids)
    }
}

impl KeyedState<RecordBatch, ClosedWindows, KeyGroupSet> for PaneState {
    fn update(&mut self, rows: &RecordBatch) -> Result<()> {
        self.update_rows(rows, None)
    }

    /// Windows that end at `upto` or before, in the order of their ends.
    fn scan(&mut self, upto: i64) -> Result<Vec<ClosedWindows>> {
        let fresh = self.drain_fresh()?;
        self.absorb(&fresh)?;
        let mut closed = Vec::new();
        while let Some(end) = self.open_windows.first().copied().filter(|end| *end <= upto) {
            self.open_windows.pop_first();
            closed.extend(self.close(end)?);
        }
        self.closed_upto = self.closed_upto.max(upto);
        // With more rows than come between two snapshots, a join would never end.
        let rows = self.joined_at_once + 2 * std::mem::take(&mut self.arrived);
        self.join(rows)?;
        Ok(closed)
    }

    fn freeze(&mut self, _: Epoch) -> Result<Delta> {
        self.drain_fresh()
    }

    fn merge(&mut self, delta: &Delta, id: DeltaId) -> Result<bool> {
        let new = self.merged.enter(id);
        if new {
            self.absorb(delta)?;
        }
        Ok(new)
    }
}

impl MovableState<KeyGroupSet> for PaneState {
    fn extract(&mut self, groups: &KeyGroupSet) -> Result<Delta> {
        let fresh = self.drain_fresh()?;
        self.absorb(&fresh)?;
        self.runs = PaneRuns::default();
        let mut extracted = Delta::default();
        let keys: Vec<PaneKey> = self.panes.keys().copied().collect();
        for key in keys {
            let rows = self.merged_table(&[key])?.into_state(&self.spec)?;
            let (taken, kept) = self.key_cut.split(&rows, groups)?;
            if let Some(rows) = taken {
                extracted.panes.push(PaneDelta { pane: key.pane, first_window_end: key.first_window_end, rows });
            }
            match kept {
                Some(rows) => {
                    self.panes.insert(key, Pane { frozen: vec![Piece::new(rows)], ..Pane::default() });
                }
                None => {
                    self.panes.remove(&key);
                }
            }
        }
        Ok(extracted)
    }

    /// State of windows that are closed here already is ignored: scan up to the sender's watermark first, so that windows
    /// which the sender has closed are not closed again.
    fn install(&mut self, state: &Delta) -> Result<()> {
        self.absorb(state)
    }

    fn bytes(&self) -> usize {
        let fresh: usize = self.fresh.values().map(PaneTable::bytes).sum();
        fresh + self.panes.values().map(Pane::bytes).sum::<usize>() + self.runs.bytes()
    }
}
