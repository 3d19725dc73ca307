//! The state of an aggregate over sessions, by fragments.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{filter_record_batch, not, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use savanna_ownership::KeyGroupSet;
use savanna_streams_api::Result;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::state::{Delta, DeltaId, KeyedState, MovableState};
use savanna_streams_model::time::timestamp_values;

use super::ClosedWindows;
use super::fragments::Fragments;
use super::ledger::Ledger;
use super::open_sessions::OpenSessions;
use super::spec::{AggregateSpec, Constants};
use super::split::check_time;
use crate::error::computing;
use crate::key_cut::KeyCut;
use crate::snapshot::{Piece, check_columns};

/// Merge state of an aggregate by session: runs of rows of one key, each less than `gap` after the one before.
///
/// ```text
///   update -> fragments (changes since the last freeze) --freeze--> Delta
///   merge, install -> open sessions, made of fragments   --scan---> sessions, from open and fresh ones
/// ```
///
/// A fragment is a run of rows that are known to be in one session; which other fragments belong to it shows when they
/// are merged. As for panes, a scan stage updates and freezes, an aggregate stage merges and scans.
pub struct SessionState {
    spec: Arc<AggregateSpec>,
    gap: i64,
    schema: SchemaRef,
    fresh: Option<Fragments>,
    open: OpenSessions,
    merged: Ledger,
    key_cut: KeyCut,
    without_time: u64,
    constants: Constants,
    ids: Vec<usize>,
}

impl SessionState {
    /// Empty state of sessions that end `gap` microseconds after their last row.
    ///
    /// # Errors
    /// The keys cannot be hashed.
    pub fn new(spec: Arc<AggregateSpec>, gap: i64) -> Result<Self> {
        let schema = fragment_schema(&spec);
        let key_cut = KeyCut::new((0..spec.key_columns()).collect(), &schema)?;
        Ok(Self {
            open: OpenSessions::new(&spec)?,
            spec,
            gap,
            schema,
            fresh: None,
            merged: Ledger::default(),
            key_cut,
            without_time: 0,
            constants: Constants::default(),
            ids: Vec::new(),
        })
    }

    /// Rows that were left out so far because they had no event time.
    pub fn without_time(&self) -> u64 {
        self.without_time
    }

    /// Every delta of these epochs has been merged: their ids need not be remembered one by one.
    pub fn complete(&mut self, epoch: Epoch) {
        self.merged.complete(epoch);
    }

    /// All that is there, in pieces, and which of their rows are those of sessions that are over. Nothing is taken away.
    ///
    /// # Errors
    /// A value cannot be computed.
    pub fn pieces(&mut self) -> Result<Vec<(Piece, BooleanArray)>> {
        let fresh = self.drain_fresh()?;
        self.absorb(&fresh)?;
        self.open.pieces(&self.spec, self.gap)
    }

    /// All that is there, with one row for each session that is not over. Nothing is taken away.
    ///
    /// # Errors
    /// A value cannot be computed.
    pub fn joined(&mut self) -> Result<Option<RecordBatch>> {
        let fresh = self.drain_fresh()?;
        self.absorb(&fresh)?;
        self.open.all(&self.spec)
    }

    /// The rows of a piece that are not marked as those of sessions that are over; all of them if none is.
    ///
    /// # Errors
    /// They do not fit.
    pub fn open_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let width = self.schema.fields().len();
        let over = rows.columns().get(width).filter(|_| rows.num_columns() == width + 1);
        let Some(over) = over.and_then(|over| over.as_boolean_opt()) else {
            check_columns(rows, &self.schema)?;
            return Ok(rows.clone());
        };
        let fragments: Vec<usize> = (0..width).collect();
        let open = rows.project(&fragments).and_then(|rows| filter_record_batch(&rows, &not(over)?));
        let open = open.map_err(|e| computing("reading sessions", &e))?;
        check_columns(&open, &self.schema)?;
        Ok(open)
    }

    /// The columns of fragments.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn drain_fresh(&mut self) -> Result<Delta> {
        let rows = self.fresh.take().map(|fragments| fragments.into_rows(&self.schema)).transpose()?;
        Ok(Delta { fragments: rows.into_iter().collect(), ..Delta::default() })
    }

    fn absorb(&mut self, delta: &Delta) -> Result<()> {
        delta.fragments.iter().try_for_each(|rows| self.open.add(&self.spec, rows.clone(), self.gap))
    }
}

/// Key columns, first and last time in microseconds, state columns.
fn fragment_schema(spec: &AggregateSpec) -> SchemaRef {
    let time = |name: &str| Arc::new(Field::new(name, DataType::Int64, false));
    let (keys, state) = spec.delta_schema().fields().split_at(spec.key_columns());
    let fields = keys.iter().cloned().chain([time("first"), time("last")]).chain(state.iter().cloned());
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The event times in microseconds, and the rows that have one, if not all do.
fn event_times(times: &ArrayRef) -> Result<(Vec<i64>, Option<UInt32Array>)> {
    let (values, unit) = timestamp_values(times)?;
    let micros = |value: i64| check_time(value, unit).map(|time| time.0);
    match times.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => Ok((values.iter().map(|value| micros(*value)).collect::<Result<_>>()?, None)),
        Some(nulls) => {
            let times = nulls.valid_indices().map(|row| micros(values[row])).collect::<Result<_>>()?;
            let rows = UInt32Array::from_iter_values(nulls.valid_indices().map(|row| row as u32));
            Ok((times, Some(rows)))
        }
    }
}

impl KeyedState<RecordBatch, ClosedWindows, KeyGroupSet> for SessionState {
    fn update(&mut self, rows: &RecordBatch) -> Result<()> {
        let (times, with_time) = event_times(rows.column(self.spec.time_column))?;
        self.without_time += (rows.num_rows() - times.len()) as u64;
        if times.is_empty() {
            return Ok(());
        }
        let with_time = with_time.map(|with_time| take_record_batch(rows, &with_time));
        let with_time = with_time.transpose().map_err(|e| computing("leaving out rows without time", &e))?;
        let evaluated = self.spec.evaluate(with_time.as_ref().unwrap_or(rows), &mut self.constants)?;
        let fresh = match &mut self.fresh {
            Some(fresh) => fresh,
            fresh => fresh.insert(Fragments::new(&self.spec)?),
        };
        fresh.update(&evaluated, &times, self.gap, &mut self.ids)
    }

    /// Sessions that end at `upto` or before, in the order of their ends. No row at `upto` or later can join them.
    fn scan(&mut self, upto: i64) -> Result<Vec<ClosedWindows>> {
        let fresh = self.drain_fresh()?;
        self.absorb(&fresh)?;
        Ok(self.open.close(&self.spec, upto, self.gap)?.into_iter().collect())
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

impl MovableState<KeyGroupSet> for SessionState {
    fn extract(&mut self, groups: &KeyGroupSet) -> Result<Delta> {
        let fresh = self.drain_fresh()?;
        self.absorb(&fresh)?;
        let Some(all) = self.open.take_all(&self.spec)? else {
            return Ok(Delta::default());
        };
        let (taken, kept) = self.key_cut.split(&all, groups)?;
        if let Some(kept) = kept {
            self.open.add(&self.spec, kept, self.gap)?;
        }
        Ok(Delta { fragments: taken.into_iter().collect(), ..Delta::default() })
    }

    fn install(&mut self, state: &Delta) -> Result<()> {
        self.absorb(state)
    }

    fn bytes(&self) -> usize {
        self.fresh.as_ref().map_or(0, Fragments::bytes) + self.open.bytes()
    }
}
