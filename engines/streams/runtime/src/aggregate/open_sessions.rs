//! Sessions that are not over: which fragments belong together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::Int64Type;
use savanna_streams_api::Result;

use super::ClosedWindows;
use super::accumulators::Accumulators;
use super::fragments::touch;
use super::spec::AggregateSpec;
use crate::chain::batch_of;
use crate::error::computing;
use crate::key_numbers::KeyNumbers;
use crate::snapshot::{Piece, RowMarks};

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Fragments are joined to one per session when there are so many times more of them than sessions, and so many at least.
const CROWDED: (usize, usize) = (4, 4096);
/// The same where they are written, because those of sessions that are over are written, too; but not more of them than the member is
/// to be held up for.
const CROWDED_IN_SNAPSHOTS: (usize, usize) = (2, 256);
const JOINED_IN_SNAPSHOTS: usize = 16_384;

/// Open sessions as lists of fragments. Partial aggregates are merged only when a session closes, or when fragments
/// outnumber sessions by far: then everything is taken out, joined, and put back in.
///
/// ```text
///   key 7 -> session (10:00:02 .. 10:00:09) -> rows 4, 19 of batch 0, row 3 of batch 2
///         -> session (10:05:00 .. 10:05:00) -> row 11 of batch 2
/// ```
pub(super) struct OpenSessions {
    keys: KeyNumbers,
    /// The first session of each key's list.
    of_key: Vec<u32>,
    /// Those that are over stay until everything is joined.
    sessions: Vec<Session>,
    open: usize,
    fragments: Vec<Fragment>,
    batches: Vec<Batch>,
    /// Sessions by last time, which may have grown since they were put here. Each session that is not over is here once.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    ids: Vec<usize>,
}

struct Session {
    key: u32,
    first: i64,
    last: i64,
    /// The next open session of its key; no two of them touch.
    next: u32,
    /// Its fragments, oldest first.
    head: u32,
    tail: u32,
    over: bool,
}

/// Rows that came together.
struct Batch {
    /// Key columns, first and last time, state columns.
    piece: Piece,
    /// Which of them are fragments of sessions that are over, and how many are not.
    over: RowMarks,
    open: usize,
}

impl Batch {
    fn rows(&self) -> &RecordBatch {
        self.piece.rows()
    }
}

struct Fragment {
    batch: u32,
    row: u32,
    /// The next fragment of its session.
    next: u32,
}

impl OpenSessions {
    pub(super) fn new(spec: &AggregateSpec) -> Result<Self> {
        Ok(Self {
            keys: spec.new_keys()?,
            of_key: Vec::new(),
            sessions: Vec::new(),
            open: 0,
            fragments: Vec::new(),
            batches: Vec::new(),
            due: BinaryHeap::new(),
            ids: Vec::new(),
        })
    }

    /// Adds fragments: key columns, first and last time, state columns.
    pub(super) fn add(&mut self, spec: &AggregateSpec, rows: RecordBatch, gap: i64) -> Result<()> {
        self.join_if(CROWDED, spec, gap)?;
        self.add_rows(spec, rows, gap)
    }

    /// The fragments, and which of them are those of sessions that are over. Batches of nothing else are left out.
    pub(super) fn pieces(&mut self, spec: &AggregateSpec, gap: i64) -> Result<Vec<(Piece, BooleanArray)>> {
        if self.fragments.len() <= JOINED_IN_SNAPSHOTS {
            self.join_if(CROWDED_IN_SNAPSHOTS, spec, gap)?;
        }
        let handed_out = |batch: &Batch| (batch.piece.clone(), BooleanArray::new(batch.over.copied(), None));
        Ok(self.batches.iter().filter(|batch| batch.open > 0).map(handed_out).collect())
    }

    /// Joins fragments to one per session if there are so many times more of them, and so many at least.
    fn join_if(&mut self, (more, at_least): (usize, usize), spec: &AggregateSpec, gap: i64) -> Result<()> {
        if self.fragments.len() > at_least.max(self.open * more)
            && let Some(joined) = self.all(spec)?
        {
            // Beside what is there: if that fails, nothing is lost.
            let mut beside = Self::new(spec)?;
            beside.add_rows(spec, joined, gap)?;
            *self = beside;
        }
        Ok(())
    }

    fn add_rows(&mut self, spec: &AggregateSpec, rows: RecordBatch, gap: i64) -> Result<()> {
        let keys = spec.key_columns();
        let mut ids = std::mem::take(&mut self.ids);
        self.keys.number(&rows.columns()[..keys], rows.num_rows(), &mut ids)?;
        self.of_key.resize(self.keys.len(), NONE);
        let firsts = rows.column(keys).as_primitive::<Int64Type>().values();
        let lasts = rows.column(keys + 1).as_primitive::<Int64Type>().values();
        let batch = self.batches.len() as u32;
        for (row, (key, (first, last))) in (0_u32..).zip(ids.iter().zip(firsts.iter().zip(lasts))) {
            let fragment = self.fragments.len() as u32;
            self.fragments.push(Fragment { batch, row, next: NONE });
            self.place(fragment, *key, (*first, *last), gap);
        }
        self.ids = ids;
        let open = rows.num_rows();
        self.batches.push(Batch { piece: Piece::new(rows), over: RowMarks::none(open), open });
        Ok(())
    }

    /// Puts a fragment into the session that it touches; several such sessions become one.
    fn place(&mut self, fragment: u32, key: usize, span: (i64, i64), gap: i64) {
        let mut home = NONE;
        let mut before = NONE;
        let mut at = self.of_key[key];
        while at != NONE {
            let Session { first, last, next, head, tail, .. } = self.sessions[at as usize];
            if !touch((first, last), span, gap) {
                before = at;
            } else if home == NONE {
                (home, before) = (at, at);
                self.extend(at, span, (fragment, fragment));
            } else {
                self.extend(home, (first, last), (head, tail));
                self.sessions[at as usize].over = true;
                self.unlink(key, before, next);
            }
            at = next;
        }
        if home == NONE {
            let session = self.sessions.len() as u32;
            let ((first, last), next) = (span, self.of_key[key]);
            let (head, tail) = (fragment, fragment);
            self.sessions.push(Session { key: key as u32, first, last, next, head, tail, over: false });
            self.of_key[key] = session;
            self.open += 1;
            self.due.push(Reverse((last, session)));
        }
    }

    fn extend(&mut self, session: u32, (first, last): (i64, i64), (head, tail): (u32, u32)) {
        let session = &mut self.sessions[session as usize];
        session.first = session.first.min(first);
        session.last = session.last.max(last);
        self.fragments[session.tail as usize].next = head;
        session.tail = tail;
    }

    /// Takes the session behind `before` out of its key's list.
    fn unlink(&mut self, key: usize, before: u32, next: u32) {
        match self.sessions.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.of_key[key] = next,
        }
        self.open -= 1;
    }

    /// The results of the sessions that end at `upto` or before, in the order of their ends.
    pub(super) fn close(&mut self, spec: &AggregateSpec, upto: i64, gap: i64) -> Result<Option<ClosedWindows>> {
        let mut closed = Vec::new();
        while let Some(Reverse((last, session))) = self.due.peek().copied()
            && last.saturating_add(gap) <= upto
        {
            self.due.pop();
            let Session { key, last: grown, over, .. } = self.sessions[session as usize];
            if over {
                continue;
            }
            if grown > last {
                self.due.push(Reverse((grown, session)));
                continue;
            }
            self.sessions[session as usize].over = true;
            self.mark_over(session);
            self.remove(key as usize, session);
            closed.push(session);
        }
        if closed.is_empty() {
            return Ok(None);
        }
        let (mut columns, accumulators) = self.merged(spec, &closed)?;
        columns.extend(accumulators.results()?);
        let span = |session: &u32| &self.sessions[*session as usize];
        let starts = closed.iter().map(|session| span(session).first).collect();
        let ends = closed.iter().map(|session| span(session).last.saturating_add(gap)).collect();
        if self.open == 0 {
            *self = Self::new(spec)?;
        }
        Ok(Some(ClosedWindows { starts, ends, columns }))
    }

    /// The fragments of a session are those of one that is over.
    fn mark_over(&mut self, session: u32) {
        let mut at = self.sessions[session as usize].head;
        while let Some(Fragment { batch, row, next }) = self.fragments.get(at as usize) {
            let batch = &mut self.batches[*batch as usize];
            batch.open -= usize::from(batch.over.mark(*row as usize));
            at = *next;
        }
    }

    fn remove(&mut self, key: usize, session: u32) {
        let (mut before, mut at) = (NONE, self.of_key[key]);
        while at != session && at != NONE {
            (before, at) = (at, self.sessions[at as usize].next);
        }
        let next = self.sessions[session as usize].next;
        self.unlink(key, before, next);
    }

    /// Everything, one row per session, and the end of it.
    pub(super) fn take_all(&mut self, spec: &AggregateSpec) -> Result<Option<RecordBatch>> {
        let all = self.all(spec)?;
        *self = Self::new(spec)?;
        Ok(all)
    }

    /// Everything, one row per session.
    pub(super) fn all(&self, spec: &AggregateSpec) -> Result<Option<RecordBatch>> {
        let open: Vec<u32> = (0_u32..).zip(&self.sessions).filter(|(_, s)| !s.over).map(|(number, _)| number).collect();
        let Some(schema) = self.batches.first().map(|batch| batch.rows().schema()).filter(|_| !open.is_empty()) else {
            return Ok(None);
        };
        let (mut columns, accumulators) = self.merged(spec, &open)?;
        let times = |of: fn(&Session) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(open.iter().map(|session| of(&self.sessions[*session as usize]))))
        };
        columns.extend([times(|session| session.first), times(|session| session.last)]);
        columns.extend(accumulators.state()?);
        batch_of(&schema, columns, open.len()).map(Some)
    }

    /// The keys of some sessions, and their partial aggregates merged: group `i` is `sessions[i]`.
    fn merged(&self, spec: &AggregateSpec, sessions: &[u32]) -> Result<(Vec<ArrayRef>, Accumulators)> {
        let (mut places, mut groups, mut heads) = (Vec::new(), Vec::new(), Vec::with_capacity(sessions.len()));
        for (group, session) in sessions.iter().enumerate() {
            heads.push(places.len() as u32);
            let mut at = self.sessions[*session as usize].head;
            while let Some(Fragment { batch, row, next }) = self.fragments.get(at as usize) {
                places.push((*batch as usize, *row as usize));
                groups.push(group);
                at = *next;
            }
        }
        let failed = |e| computing("closing sessions", &e);
        let batches: Vec<&RecordBatch> = self.batches.iter().map(Batch::rows).collect();
        let rows = interleave_record_batch(&batches, &places).map_err(failed)?;
        let keys = spec.key_columns();
        let mut accumulators = Accumulators::new(spec)?;
        accumulators.merge(spec, &rows.columns()[keys + 2..], &groups, sessions.len())?;
        let heads = UInt32Array::from(heads);
        let keys = rows.columns()[..keys].iter().map(|key| arrow::compute::take(key, &heads, None).map_err(failed));
        Ok((keys.collect::<Result<_>>()?, accumulators))
    }

    pub(super) fn bytes(&self) -> usize {
        let batches: usize =
            self.batches.iter().map(|batch| batch.rows().get_array_memory_size() + batch.over.bytes()).sum();
        let lists = self.of_key.capacity() * size_of::<u32>()
            + self.sessions.capacity() * size_of::<Session>()
            + self.fragments.capacity() * size_of::<Fragment>()
            + self.due.capacity() * size_of::<Reverse<(i64, u32)>>();
        if self.open == 0 { 0 } else { batches + lists + self.keys.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::ListArray;
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_expr::expressions::{col, lit};
    use datafusion::physical_plan::ExecutionPlan;
    use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
    use datafusion::prelude::SessionContext;
    use savanna_streams_model::graph::WindowAggregate;
    use savanna_streams_model::plan::{Leaf, PlanBytes};
    use savanna_streams_model::time::Windows;

    use super::*;

    const GAP: i64 = 1_000;

    /// `SELECT k, COUNT(*) .. GROUP BY k`, where `k` is a list of these.
    fn spec(of: DataType) -> AggregateSpec {
        let time = Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true);
        let key = Field::new("k", DataType::List(Arc::new(Field::new_list_field(of, true))), true);
        let schema = Arc::new(Schema::new(vec![time, key]));
        let count = AggregateExprBuilder::new(count_udaf(), vec![lit(1_i64)]).schema(Arc::clone(&schema)).alias("n");
        let keys = PhysicalGroupBy::new_single(vec![(col("k", &schema).unwrap(), "k".to_owned())]);
        let (count, input) = (Arc::new(count.build().unwrap()), Arc::new(Leaf::new(0, Arc::clone(&schema))));
        let exec = AggregateExec::try_new(AggregateMode::Single, keys, vec![count], vec![None], input, schema);
        let exec: Arc<dyn ExecutionPlan> = Arc::new(exec.unwrap());
        let (windows, aggregate) = (Windows::Session { gap: GAP }, PlanBytes::encode(&exec).unwrap());
        let aggregate = WindowAggregate { time_column: 0, windows, aggregate };
        AggregateSpec::decode(&aggregate, &SessionContext::new().task_ctx()).unwrap()
    }

    fn fragment(time: i64) -> RecordBatch {
        let key: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(7)])]));
        let number = |number: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![number])) };
        let columns = [("k", key), ("first", number(time)), ("last", number(time)), ("n", number(1))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn sessions_that_cannot_be_handed_out_are_there_as_before() {
        let (ours, other) = (spec(DataType::Int64), spec(DataType::Utf8));
        let mut open = OpenSessions::new(&ours).unwrap();
        for time in 0..300 {
            open.add(&ours, fragment(time), GAP).unwrap();
        }
        // They are joined, and among keys of this kind is no place for them.
        open.pieces(&other, GAP).unwrap_err();
        let [all, handed] = [open.all(&ours).unwrap().unwrap(), open.pieces(&ours, GAP).unwrap()[0].0.rows().clone()];
        assert_eq!(all, handed);
        assert_eq!(all.column(3).as_primitive::<Int64Type>().values(), &[300]);
    }
}
