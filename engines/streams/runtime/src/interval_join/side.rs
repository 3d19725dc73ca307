//! The rows of one side of a join that may still find a partner.
//!
//! ```text
//!   newest row of each key      rows by number, oldest first            segments, each sorted by time
//!     key 0 ----------------------------> 7 -> 3 -> 2                   [0 1 2 3] [4 5 6 7]
//!     key 1 ------------------> 6 -> 4                                   expired^
//! ```
//!
//! Keys have numbers only once the join asks for them. Rows that have expired are a prefix of their segment. They are skipped
//! where it costs nothing, and their numbers given up when the join is compacted. A segment lies in the batch that it came in
//! until the end of the epoch; what is left of it then is copied.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{interleave, take};
use arrow::datatypes::SchemaRef;
use savanna_streams_api::Result;

use super::rows::{Rows, concatenated, copied};
use crate::error::{broken, computing};
use crate::key_numbers::KeyNumbers;
use crate::snapshot::{Piece, RowMarks};

/// No row.
const NONE: u32 = u32::MAX;
/// How many rows the segments have that compaction makes of smaller ones.
const SEGMENT_ROWS: usize = 65_536;

/// The state of one side.
pub(super) struct Side {
    schema: SchemaRef,
    segments: Vec<Segment>,
    /// By row number: event time in microseconds, whether it has met a partner.
    times: Vec<i64>,
    matched: RowMarks,
    /// By row number, of the rows whose keys have numbers: the next older row of the same key.
    older: Vec<u32>,
    /// By key number.
    newest: Vec<u32>,
    /// Rows before this number have expired.
    first_live: u32,
    /// Rows before this instant have expired.
    oldest: i64,
    /// How many have.
    expired: usize,
}

struct Segment {
    first: u32,
    len: u32,
    /// So many of its rows, from the front, can find no partner any more.
    expired: u32,
    /// Sorted by time. None once all have expired.
    rows: Option<Piece>,
    /// Whether the rows hold no memory but their own.
    copied: bool,
}

impl Side {
    pub(super) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            segments: Vec::new(),
            times: Vec::new(),
            matched: RowMarks::default(),
            older: Vec::new(),
            newest: Vec::new(),
            first_live: 0,
            oldest: i64::MIN,
            expired: 0,
        }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows before this instant have expired.
    pub(super) fn oldest(&self) -> i64 {
        self.oldest
    }

    /// The segments of which not all rows have expired, and which of their rows have met a partner.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&Piece, BooleanBuffer)> {
        let matched = self.matched.copied();
        let of = move |segment: &Segment| matched.slice(segment.first as usize, segment.len as usize);
        self.segments.iter().filter_map(move |segment| Some((segment.rows.as_ref()?, of(segment))))
    }

    /// The rows that have not expired, by segment, and which of them have met a partner.
    pub(super) fn live_rows(&self) -> impl Iterator<Item = (RecordBatch, BooleanBuffer)> {
        let matched = self.matched.copied();
        self.segments.iter().filter_map(move |segment| {
            let live = segment.live();
            let rows = segment.rows.as_ref()?.rows().slice(segment.expired as usize, live.len());
            Some((rows, matched.slice(live.start as usize, live.len())))
        })
    }

    pub(super) fn live(&self) -> usize {
        self.times.len() - self.expired
    }

    pub(super) fn expired(&self) -> usize {
        self.expired
    }

    /// All rows, by number.
    pub(super) fn numbers(&self) -> Range<u32> {
        0..self.times.len() as u32
    }

    /// Adds rows; returns their numbers.
    pub(super) fn insert(&mut self, rows: Rows) -> Result<Range<u32>> {
        let first = self.times.len() as u32;
        let Some(end) = u32::try_from(self.times.len() + rows.times.len()).ok().filter(|end| *end < NONE) else {
            return Err(broken("one side of a join holds more than 4 billion rows"));
        };
        if rows.times.is_empty() {
            return Ok(first..first);
        }
        self.times.extend(rows.times);
        self.matched.extend(rows.matched);
        let (rows, copied) = (Some(Piece::new(rows.batch)), rows.copied);
        self.segments.push(Segment { first, len: end - first, expired: 0, rows, copied });
        Ok(first..end)
    }

    /// Numbers the keys, which are in these columns, of all rows whose keys have no numbers yet. Returns the numbers of the
    /// last rows' keys.
    pub(super) fn number_keys(&mut self, columns: &[usize], keys: &mut KeyNumbers) -> Result<Vec<usize>> {
        let from = self.older.len();
        let (mut all, mut numbers) = (Vec::with_capacity(self.times.len() - from), Vec::new());
        for segment in self.segments.iter().filter(|segment| segment.first as usize >= from) {
            let Some(rows) = &segment.rows else { continue };
            let rows = rows.rows();
            let columns: Vec<ArrayRef> = columns.iter().map(|column| Arc::clone(rows.column(*column))).collect();
            keys.number(&columns, rows.num_rows(), &mut numbers)?;
            self.newest.resize(self.newest.len().max(keys.len()), NONE);
            // Rows in between have expired.
            self.older.resize(segment.first as usize, NONE);
            all.resize(segment.first as usize - from, usize::MAX);
            let chained = (segment.first..).zip(&numbers);
            self.older.extend(chained.map(|(row, key)| std::mem::replace(&mut self.newest[*key], row)));
            all.extend_from_slice(&numbers);
        }
        self.older.resize(self.times.len(), NONE);
        Ok(all)
    }

    /// Of some rows, those that have not expired.
    pub(super) fn live_within(&self, rows: Range<u32>) -> impl Iterator<Item = u32> {
        self.segments.iter().flat_map(move |segment| {
            let live = segment.live();
            live.start.max(rows.start)..live.end.min(rows.end)
        })
    }

    /// How many segments there are.
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Of the rows from a number on, those that have not expired and whose time lies in a range: stretches of a segment each.
    pub(super) fn stretches(&self, from: u32, times: RangeInclusive<i64>) -> impl Iterator<Item = Range<u32>> {
        let of = move |segment: &Segment| {
            let live = segment.live();
            let known = &self.times[live.start as usize..live.end as usize];
            let (Some(first), Some(last)) = (known.first(), known.last()) else { return None };
            if segment.first < from || last < times.start() || first > times.end() {
                return None;
            }
            let start = known.partition_point(|time| time < times.start());
            let end = known.partition_point(|time| time <= times.end());
            Some(live.start + start as u32..live.start + end as u32).filter(|stretch| !stretch.is_empty())
        };
        self.segments.iter().filter_map(of)
    }

    /// The batch that a row lies in, and where.
    pub(super) fn place(&self, row: u32) -> Result<(&RecordBatch, usize)> {
        let index = self.segments.partition_point(|segment| segment.first <= row).saturating_sub(1);
        let segment = self.segments.get(index).filter(|segment| segment.numbers().contains(&row));
        let place = segment.and_then(|segment| Some((segment.rows.as_ref()?.rows(), (row - segment.first) as usize)));
        place.ok_or_else(|| broken("an expired row of a join is asked for"))
    }

    pub(super) fn time(&self, row: u32) -> i64 {
        self.times[row as usize]
    }

    /// The rows of a key whose time lies in a range, newest first.
    pub(super) fn partners(&self, key: usize, times: RangeInclusive<i64>) -> impl Iterator<Item = u32> {
        let times = self.oldest.max(*times.start())..=*times.end();
        let mut next = self.newest.get(key).copied().unwrap_or(NONE);
        let chain = std::iter::from_fn(move || {
            let row = next;
            if row == NONE || row < self.first_live {
                return None;
            }
            next = self.older[row as usize];
            Some(row)
        });
        chain.filter(move |row| times.contains(&self.times[*row as usize]))
    }

    pub(super) fn is_matched(&self, row: u32) -> bool {
        self.matched.is_marked(row as usize)
    }

    /// Notes that a row has a partner; tells whether it is its first.
    pub(super) fn mark(&mut self, row: u32) -> bool {
        self.matched.mark(row as usize)
    }

    /// Columns of some rows.
    pub(super) fn gather(&self, rows: &[u32], columns: impl Iterator<Item = usize>) -> Result<Vec<ArrayRef>> {
        if rows.is_empty() {
            return Ok(columns.map(|column| new_empty_array(self.schema.field(column).data_type())).collect());
        }
        let mut batches: Vec<&RecordBatch> = Vec::new();
        let mut slots = vec![usize::MAX; self.segments.len()];
        let mut places = Vec::with_capacity(rows.len());
        let mut index = 0;
        for row in rows {
            if !self.segments.get(index).is_some_and(|segment| segment.numbers().contains(row)) {
                index = self.segments.partition_point(|segment| segment.first <= *row).saturating_sub(1);
            }
            let segment = &self.segments[index];
            let Some(batch) = segment.rows.as_ref().map(Piece::rows) else {
                return Err(broken("an expired row of a join is asked for"));
            };
            if slots[index] == usize::MAX {
                slots[index] = batches.len();
                batches.push(batch);
            }
            places.push((slots[index], (row - segment.first) as usize));
        }
        let failed = |e| computing("pairing rows of a join", &e);
        if let [batch] = batches.as_slice() {
            let places: UInt32Array = places.iter().map(|(_, place)| *place as u32).collect();
            return columns.map(|column| take(batch.column(column), &places, None).map_err(failed)).collect();
        }
        let gather = |column: usize| {
            let arrays: Vec<_> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
            interleave(&arrays, &places).map_err(failed)
        };
        columns.map(gather).collect()
    }

    /// Lets rows before an instant expire; `unmatched`, if there is one, gets those that have met no partner, while they can
    /// still be gathered.
    pub(super) fn expire(&mut self, before: i64, mut unmatched: Option<&mut Vec<u32>>) {
        self.oldest = self.oldest.max(before);
        for segment in &mut self.segments {
            let times = &self.times[segment.first as usize..(segment.first + segment.len) as usize];
            let from = segment.expired as usize;
            let more = times[from..].partition_point(|time| *time < before);
            if more > 0 {
                segment.expired += more as u32;
                self.expired += more;
                let numbers = segment.first + from as u32..segment.first + segment.expired;
                if let Some(unmatched) = &mut unmatched {
                    unmatched.extend(numbers.filter(|row| !self.matched.is_marked(*row as usize)));
                }
            }
        }
    }

    /// Forgets the rows of segments that have expired.
    pub(super) fn drop_expired(&mut self) {
        for segment in self.segments.iter_mut().filter(|segment| segment.expired == segment.len) {
            segment.rows = None;
        }
        let live = self.segments.iter().find(|segment| segment.rows.is_some());
        self.first_live = live.map_or(self.times.len() as u32, |segment| segment.first + segment.expired);
    }

    /// Copies rows out of the batches that they came in.
    pub(super) fn copy_out(&mut self) -> Result<()> {
        for segment in self.segments.iter_mut().filter(|segment| !segment.copied) {
            if let Some(rows) = &segment.rows {
                let live = segment.expired as usize..segment.len as usize;
                segment.rows = Some(Piece::new(copied(rows.rows(), live)?));
                (segment.first, segment.len) = (segment.first + segment.expired, segment.len - segment.expired);
                segment.expired = 0;
                segment.copied = true;
            }
        }
        Ok(())
    }

    /// Takes all rows that have not expired out, small segments joined. The side is empty then.
    pub(super) fn take_live(&mut self) -> Result<Vec<Rows>> {
        let fresh = Self { oldest: self.oldest, ..Self::new(Arc::clone(&self.schema)) };
        let emptied = std::mem::replace(self, fresh);
        let mut parts = Vec::new();
        let mut part: Vec<Rows> = Vec::new();
        for segment in emptied.segments {
            let Some(batch) = segment.rows.as_ref().map(Piece::rows) else { continue };
            let numbers = (segment.first + segment.expired) as usize..(segment.first + segment.len) as usize;
            part.push(Rows {
                batch: batch.slice(segment.expired as usize, numbers.len()),
                times: emptied.times[numbers.clone()].to_vec(),
                matched: emptied.matched.of(numbers).collect(),
                copied: false,
            });
            if part.iter().map(|rows| rows.times.len()).sum::<usize>() >= SEGMENT_ROWS {
                parts.push(concatenated(&self.schema, &std::mem::take(&mut part))?);
            }
        }
        if !part.is_empty() {
            parts.push(concatenated(&self.schema, &part)?);
        }
        Ok(parts)
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.segments.iter().filter_map(|segment| segment.rows.as_ref());
        rows.map(|piece| piece.rows().get_array_memory_size()).sum::<usize>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.times.capacity() * size_of::<i64>()
            + (self.older.capacity() + self.newest.capacity()) * size_of::<u32>()
            + self.matched.bytes()
    }
}

impl Segment {
    fn numbers(&self) -> Range<u32> {
        self.first..self.first + self.len
    }

    fn live(&self) -> Range<u32> {
        self.first + self.expired..self.first + self.len
    }
}
