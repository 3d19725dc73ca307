//! Joins of two streams whose event times lie near each other.
//!
//! Sequence state: one writer per key. Each side keeps its rows until the other side's watermark has passed the last
//! instant at which a partner could come. New rows of one side are looked up among all rows of the other, the right ones after the left,
//! so that each pair is found once:
//!
//! ```text
//!   new left rows  --look up--> right rows of earlier epochs
//!   new right rows --look up--> all left rows
//!   watermarks     ----------> rows that expire; those without a partner come out, if the join keeps them
//! ```
//!
//! As long as one of the two has few rows, each of these is compared with the other's rows of the right time, which lie together.
//! Once that costs more than numbering keys, they are numbered, for both sides, and a row knows the next older row of its key. A
//! look-up then costs one number per row and one step per row of the same key, whatever the number of epochs that the state spans.

mod compare;
mod rows;
mod side;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use savanna_ownership::KeyGroupSet;
use savanna_streams_api::Result;
use savanna_streams_model::join::{JoinKind, JoinSide};
use savanna_streams_model::state::{Delta, MovableState};
use savanna_streams_model::time::EventTime;

use self::compare::Effort;
use self::rows::{Arrived, MET, Rows, groups};
use self::side::Side;
use crate::chain::batch_of;
use crate::error::broken;
use crate::key_cut::KeyCut;
use crate::key_numbers::KeyNumbers;
use crate::pair_condition::PairCondition;
use crate::snapshot::{State, columns, marked};

/// So many pairs are looked at together.
const PAIRS: usize = 8192;
/// Fewer expired rows than this are not worth a compaction. Tests want some.
const EXPIRED_MIN: usize = if cfg!(test) { 16 } else { 8192 };

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// By side: the name of its rows in a state, and of the instant before which its rows have expired.
const NAMES: [(&str, &str); 2] = [("left", "left.oldest"), ("right", "right.oldest")];
const WATERMARK: &str = "watermark";

/// The watermarks of the two inputs after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// The left side's.
    pub left: EventTime,
    /// The right side's.
    pub right: EventTime,
}

/// The join's state.
pub struct IntervalJoin {
    kind: JoinKind,
    /// By side: its columns.
    plans: [SidePlan; 2],
    sides: [Side; 2],
    /// While keys are compared: what that has cost. None once they are numbered.
    effort: Option<Effort>,
    keys: KeyNumbers,
    condition: Option<PairCondition>,
    schema: SchemaRef,
    watermark: EventTime,
}

struct SidePlan {
    keys: Vec<usize>,
    cut: KeyCut,
    time: usize,
    /// The times of partners, relative to a row's own.
    reach: (i64, i64),
    /// Whether rows without a partner come out.
    kept: bool,
}

/// Row numbers of both sides, pair by pair.
#[derive(Default)]
struct Pairs([Vec<u32>; 2]);

impl IntervalJoin {
    /// The names of the rows of the left and the right side in a state.
    pub(crate) const ROWS: [&str; 2] = [NAMES[LEFT].0, NAMES[RIGHT].0];

    /// An empty join. `functions` knows every function that its condition names.
    ///
    /// # Errors
    /// The condition cannot be decoded, or the sides' keys do not fit together.
    pub fn decode(join: &savanna_streams_model::join::IntervalJoin, functions: &Arc<TaskContext>) -> Result<Self> {
        let types = |side: &JoinSide| -> Vec<_> {
            side.keys.iter().map(|key| side.schema.field(*key).data_type().clone()).collect()
        };
        if types(&join.left) != types(&join.right) {
            return Err(broken(format!("a join compares {:?} with {:?}", types(&join.left), types(&join.right))));
        }
        let plan = |side: &JoinSide, reach, kept| -> Result<SidePlan> {
            let cut = KeyCut::new(side.keys.clone(), &side.schema)?;
            Ok(SidePlan { keys: side.keys.clone(), cut, time: side.time, reach, kept })
        };
        let keys = join.left.schema.project(&join.left.keys).map_err(|e| broken(format!("the keys of a join: {e}")))?;
        let negated = |bound: i64| bound.saturating_neg();
        Ok(Self {
            kind: join.kind,
            plans: [
                plan(&join.left, (negated(join.latest), negated(join.earliest)), join.kind.keeps_left())?,
                plan(&join.right, (join.earliest, join.latest), join.kind.keeps_right())?,
            ],
            sides: [Side::new(Arc::clone(&join.left.schema)), Side::new(Arc::clone(&join.right.schema))],
            effort: Some(Effort::default()),
            keys: KeyNumbers::new(&Arc::new(keys))?,
            condition: join
                .condition
                .as_ref()
                .map(|condition| PairCondition::decode(condition, functions))
                .transpose()?,
            schema: join.schema(),
            watermark: EventTime::MIN,
        })
    }

    /// Takes an epoch in: rows of both sides, and the watermarks behind them. Gives the rows that are certain now.
    ///
    /// # Errors
    /// The condition cannot be computed for a pair.
    pub fn apply(
        &mut self,
        left: &[RecordBatch],
        right: &[RecordBatch],
        watermarks: Watermarks,
    ) -> Result<Vec<RecordBatch>> {
        let mut out = Vec::new();
        for (side, batches) in [(LEFT, left), (RIGHT, right)] {
            self.take_in(side, batches, &mut out)?;
        }
        self.expire(watermarks, &mut out)?;
        self.compact()?;
        self.sides.iter_mut().try_for_each(Side::copy_out)?;
        Ok(out)
    }

    /// No row with an earlier time, on whichever side, comes out any more.
    pub fn watermark(&self) -> EventTime {
        self.watermark
    }

    /// What it holds, in words.
    pub(crate) fn signature(&self) -> String {
        let side = |side: usize| {
            let SidePlan { keys, time, reach, .. } = &self.plans[side];
            format!("{keys:?}, time {time}, reach {reach:?}: {}", columns(self.sides[side].schema()))
        };
        format!("{:?} join of {} with {}", self.kind, side(LEFT), side(RIGHT))
    }

    /// All that is there, and rows beside it that have expired: that shows by their times. Nothing is taken away.
    ///
    /// # Errors
    /// Rows cannot be marked.
    pub fn state(&self) -> Result<State> {
        let mut state = State { marks: self.instants(), tables: Vec::new() };
        for (side, (name, _)) in [LEFT, RIGHT].into_iter().zip(NAMES) {
            for (piece, matched) in self.sides[side].pieces() {
                state.put_marked(name, [0; 2], piece, (MET, self.met(side, matched)))?;
            }
        }
        Ok(state)
    }

    /// As [`Self::state`], without rows that have expired and without numbers of pieces.
    ///
    /// # Errors
    /// Rows cannot be marked.
    pub fn state_to_send(&self) -> Result<State> {
        let mut state = State { marks: self.instants(), tables: Vec::new() };
        for (side, (name, _)) in [LEFT, RIGHT].into_iter().zip(NAMES) {
            for (rows, matched) in self.sides[side].live_rows() {
                state.put(name, [0; 2], marked(&rows, (MET, self.met(side, matched)))?);
            }
        }
        Ok(state)
    }

    fn instants(&self) -> BTreeMap<String, i64> {
        let oldest = self.sides.iter().zip(NAMES).map(|(side, (_, oldest))| (oldest.to_owned(), side.oldest()));
        oldest.chain([(WATERMARK.to_owned(), self.watermark.0)]).collect()
    }

    /// Which rows of a side have met a partner, where somebody asks for that.
    fn met(&self, side: usize, matched: BooleanBuffer) -> BooleanArray {
        let counts = self.plans[side].kept || self.kind.left_only() && side == LEFT;
        let met = if counts { matched } else { BooleanBuffer::new_unset(matched.len()) };
        BooleanArray::new(met, None)
    }

    /// An empty join becomes what [`Self::state`] gave.
    ///
    /// # Errors
    /// The state does not fit.
    pub fn restore(&mut self, state: &State) -> Result<()> {
        for (side, (name, oldest)) in [LEFT, RIGHT].into_iter().zip(NAMES) {
            for (_, marked) in state.of(name) {
                let rows = Rows::unmarked(marked, self.sides[side].schema(), self.plans[side].time)?;
                self.keep(side, rows)?;
            }
            self.sides[side].expire(state.mark(oldest).0, None);
        }
        self.watermark = state.mark(WATERMARK);
        Ok(())
    }

    /// Keeps the new rows of a side and pairs them with what is there of the other.
    fn take_in(&mut self, side: usize, batches: &[RecordBatch], out: &mut Vec<RecordBatch>) -> Result<()> {
        let first = self.sides[side].numbers().end;
        let SidePlan { keys, time, kept, .. } = &self.plans[side];
        for group in groups(batches) {
            let Arrived { rows, alone } = Arrived::sorted(self.sides[side].schema(), group, keys, *time)?;
            self.sides[side].insert(rows)?;
            if let Some(alone) = alone.filter(|_| *kept) {
                let rows = alone.num_rows();
                out.push(self.padded(side, alone.columns().to_vec(), rows)?);
            }
        }
        let rows = first..self.sides[side].numbers().end;
        if rows.is_empty() {
            return Ok(());
        }
        if let Some(candidates) = self.candidates(side, rows.clone()) {
            return self.compare(&candidates, out);
        }
        self.effort = None;
        self.number_keys(1 - side)?;
        let keys = self.number_keys(side)?;
        let keys = &keys[keys.len() - rows.len()..];
        let mut pairs = Pairs::default();
        for (row, key) in rows.zip(keys) {
            self.look_up(side, row, *key, &mut pairs);
            if pairs.0[LEFT].len() >= PAIRS {
                self.match_pairs(std::mem::take(&mut pairs), out)?;
            }
        }
        self.match_pairs(pairs, out)
    }

    fn number_keys(&mut self, side: usize) -> Result<Vec<usize>> {
        self.sides[side].number_keys(&self.plans[side].keys, &mut self.keys)
    }

    fn look_up(&self, side: usize, row: u32, key: usize, pairs: &mut Pairs) {
        let time = self.sides[side].time(row);
        let (earliest, latest) = self.plans[side].reach;
        let times = time.saturating_add(earliest)..=time.saturating_add(latest);
        let partners = self.sides[1 - side].partners(key, times);
        // Where a left row's first partner decides, others are not looked at.
        let once = self.kind.left_only();
        let partners = partners.filter(|other| !(once && side == RIGHT && self.sides[LEFT].is_matched(*other)));
        let most = if once && side == LEFT && self.condition.is_none() { 1 } else { usize::MAX };
        let Pairs([left, right]) = pairs;
        let (own, others) = if side == LEFT { (left, right) } else { (right, left) };
        others.extend(partners.take(most));
        own.resize(others.len(), row);
    }

    /// Applies the condition to candidates, and gives what the join gives for a match.
    fn match_pairs(&mut self, Pairs([left, right]): Pairs, out: &mut Vec<RecordBatch>) -> Result<()> {
        for (left, right) in left.chunks(PAIRS).zip(right.chunks(PAIRS)) {
            let rows = match &mut self.condition {
                None => self.matched(left, right)?,
                Some(condition) => {
                    let mut columns = self.sides[LEFT].gather(left, condition.left.iter().copied())?;
                    columns.extend(self.sides[RIGHT].gather(right, condition.right.iter().copied())?);
                    let holds = condition.holds(columns, left.len())?;
                    let (left, right): (Vec<_>, Vec<_>) = holds.set_indices().map(|i| (left[i], right[i])).unzip();
                    self.matched(&left, &right)?
                }
            };
            out.extend(rows);
        }
        Ok(())
    }

    /// What comes out for pairs that match.
    fn matched(&mut self, left: &[u32], right: &[u32]) -> Result<Option<RecordBatch>> {
        let [left_side, right_side] = &mut self.sides;
        let first: Vec<u32> = left.iter().copied().filter(|row| left_side.mark(*row)).collect();
        for row in right {
            right_side.mark(*row);
        }
        let (rows, columns) = match self.kind {
            JoinKind::Anti => return Ok(None),
            JoinKind::Semi => (first.len(), self.all_columns(LEFT, &first)?),
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
                (left.len(), [self.all_columns(LEFT, left)?, self.all_columns(RIGHT, right)?].concat())
            }
        };
        if rows == 0 { Ok(None) } else { batch_of(&self.schema, columns, rows).map(Some) }
    }

    /// Rows of one side without a partner, as they come out.
    fn padded(&self, side: usize, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        if self.kind.left_only() {
            return batch_of(&self.schema, columns, rows);
        }
        let nulls = self.sides[1 - side].schema().fields().iter();
        let nulls = nulls.map(|field| new_null_array(field.data_type(), rows)).collect();
        let columns = if side == LEFT { [columns, nulls].concat() } else { [nulls, columns].concat() };
        batch_of(&self.schema, columns, rows)
    }

    fn all_columns(&self, side: usize, rows: &[u32]) -> Result<Vec<ArrayRef>> {
        let side = &self.sides[side];
        side.gather(rows, 0..side.schema().fields().len())
    }

    /// Lets rows go that the other side's watermark has passed.
    fn expire(&mut self, watermarks: Watermarks, out: &mut Vec<RecordBatch>) -> Result<()> {
        let input = [watermarks.left, watermarks.right];
        let mut watermark = EventTime::MAX;
        for side in [LEFT, RIGHT] {
            let (_, latest) = self.plans[side].reach;
            let oldest = earlier(input[1 - side], latest);
            let mut unmatched = Vec::new();
            self.sides[side].expire(oldest.0, self.plans[side].kept.then_some(&mut unmatched));
            for rows in unmatched.chunks(PAIRS) {
                let columns = self.all_columns(side, rows)?;
                out.push(self.padded(side, columns, rows.len())?);
            }
            self.sides[side].drop_expired();
            if side == LEFT || !self.kind.left_only() {
                watermark = watermark.min(input[side]).min(oldest);
            }
        }
        self.watermark = self.watermark.max(watermark);
        Ok(())
    }

    /// Gives expired rows' numbers and their keys up once they are the majority.
    fn compact(&mut self) -> Result<()> {
        let expired: usize = self.sides.iter().map(Side::expired).sum();
        let live: usize = self.sides.iter().map(Side::live).sum();
        if expired < EXPIRED_MIN.max(live) {
            return Ok(());
        }
        self.forget_keys()?;
        for side in [LEFT, RIGHT] {
            for rows in self.sides[side].take_live()? {
                self.keep(side, rows)?;
            }
        }
        Ok(())
    }

    /// Adds rows without looking for their partners.
    fn keep(&mut self, side: usize, rows: Rows) -> Result<()> {
        self.sides[side].insert(rows).map(drop)
    }

    /// Gives all numbers of keys up. The sides are emptied, too.
    fn forget_keys(&mut self) -> Result<()> {
        self.keys = self.keys.emptied()?;
        self.effort = Some(Effort::default());
        Ok(())
    }
}

/// Both places have applied the same epochs, so that neither has given up rows that the other waits for.
impl MovableState<KeyGroupSet> for IntervalJoin {
    fn extract(&mut self, groups: &KeyGroupSet) -> Result<Delta> {
        let mut extracted = Delta::default();
        self.forget_keys()?;
        for side in [LEFT, RIGHT] {
            for rows in self.sides[side].take_live()? {
                let (taken, left) = self.plans[side].cut.split(&rows.marked()?, groups)?;
                extracted.sides[side].extend(taken);
                if let Some(left) = left {
                    let rows = Rows::unmarked(&left, self.sides[side].schema(), self.plans[side].time)?;
                    self.keep(side, rows)?;
                }
            }
        }
        Ok(extracted)
    }

    fn install(&mut self, state: &Delta) -> Result<()> {
        for side in [LEFT, RIGHT] {
            for marked in &state.sides[side] {
                let rows = Rows::unmarked(marked, self.sides[side].schema(), self.plans[side].time)?;
                self.keep(side, rows)?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.sides.iter().map(Side::bytes).sum::<usize>() + self.keys.bytes()
    }
}

/// An instant minus a length; before and after all events stay what they are.
fn earlier(time: EventTime, by: i64) -> EventTime {
    if [EventTime::MIN, EventTime::MAX].contains(&time) { time } else { EventTime(time.0.saturating_sub(by)) }
}
