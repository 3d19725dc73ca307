//! The rows of a view, version by version. Decides, and does no I/O.
//!
//! ```text
//!   chunks, oldest first    +--------+ +-----+ +---+ +-+     rows in the order in which they were written, and bits of those that are there
//!   index                   key -> chunk, row                of the newest version alone
//! ```
//!
//! [`Contents::next`] makes the version behind an epoch beside the one that is read; [`Contents::publish`] puts it in its place. Versions
//! share chunks and bits that did not change, so whoever reads one keeps it as long as he likes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use arrow::util::bit_util;
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::without_shared_strings;
use savanna_streams_sql::Chunk;

/// The most rows of a chunk.
const CHUNK_ROWS: usize = 1 << 16;
/// What an entry of the index takes beside its key.
const ENTRY_BYTES: u64 = 48;
/// Rows that came within such a part of the retention may share a chunk, and go together.
const SLOTS: u64 = 64;

/// How a view keeps rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Its columns.
    pub(crate) schema: SchemaRef,
    /// The columns of its key, by position; none if all rows are kept.
    pub(crate) key: Vec<usize>,
    /// When there are more rows, the oldest go.
    pub(crate) max_rows: Option<u64>,
    /// Rows that are older go.
    pub(crate) retention: Option<Duration>,
    /// What it may take in memory.
    pub(crate) max_bytes: u64,
}

/// Rows that do not change.
#[derive(Debug)]
struct Rows {
    id: u64,
    batch: RecordBatch,
    bytes: u64,
    /// When the newest of them were committed, in milliseconds since 1970.
    at: u64,
}

/// A chunk in one version.
#[derive(Clone, Debug)]
struct Piece {
    rows: Arc<Rows>,
    /// Which rows are there; none if all are.
    living: Option<BooleanBuffer>,
    count: usize,
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    chunk: u64,
    row: u32,
}

/// What a view holds at the end of an epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) epoch: Epoch,
    /// When the epoch was committed, in milliseconds since 1970; 0 before the first.
    pub(crate) at: u64,
    pieces: Vec<Piece>,
    pub(crate) rows: u64,
    /// Memory of chunks and bits.
    pub(crate) bytes: u64,
}

type Index<T> = HashMap<Box<[u8]>, T>;

/// The newest version of a view, and how keys are found in it.
#[derive(Debug)]
pub(crate) struct Contents {
    shape: Arc<Shape>,
    /// None if the view has no key.
    converter: Option<RowConverter>,
    version: Arc<Version>,
    index: Index<Place>,
    index_bytes: u64,
    next_chunk: u64,
}

/// The version behind an epoch that is not told yet.
pub(crate) struct Next {
    version: Version,
    /// Where keys are that are elsewhere or gone.
    moved: Index<Option<Place>>,
    index_bytes: u64,
    next_chunk: u64,
    /// What the epoch writes: with a key, the last row of each.
    pub(crate) written: RecordBatch,
}

impl Contents {
    /// A view without rows.
    ///
    /// # Errors
    /// A column cannot be a key.
    pub(crate) fn new(shape: Arc<Shape>) -> Result<Self> {
        let field = |column: &usize| SortField::new(shape.schema.field(*column).data_type().clone());
        let converter = match shape.key.is_empty() {
            true => None,
            false => Some(RowConverter::new(shape.key.iter().map(field).collect()).map_err(broken)?),
        };
        let (version, index) = (Arc::default(), Index::new());
        Ok(Self { shape, converter, version, index, index_bytes: 0, next_chunk: 0 })
    }

    /// A view that holds these rows, with the times at which they were committed.
    ///
    /// # Errors
    /// They are others than those of a view.
    pub(crate) fn of(shape: Arc<Shape>, epoch: Epoch, at: u64, rows: Vec<(RecordBatch, u64)>) -> Result<Self> {
        let mut contents = Self::new(shape)?;
        let mut next = contents.begin(epoch, at, RecordBatch::new_empty(Arc::clone(&contents.shape.schema)));
        for (batch, at) in rows {
            let batch = copied(&batch, 0..batch.num_rows() as u32)?;
            let keys = contents.keys(&batch)?;
            next.push(batch, at, keys.map(|keys| keys.iter().map(|key| key.as_ref().into()).collect()));
        }
        next.settle(&contents);
        contents.publish(next);
        Ok(contents)
    }

    /// The newest version.
    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Memory of rows, bits and index.
    pub(crate) fn bytes(&self) -> u64 {
        self.version.bytes + self.index_bytes
    }

    /// The row of a key.
    ///
    /// # Errors
    /// The columns are none of the key.
    pub(crate) fn row(&self, key: &[ArrayRef]) -> Result<Option<RecordBatch>> {
        let Some(converter) = &self.converter else { return Ok(None) };
        let bytes = converter.convert_columns(key).map_err(broken)?;
        let Some(place) = self.index.get(bytes.row(0).as_ref()) else { return Ok(None) };
        let piece = self.version.pieces.binary_search_by_key(&place.chunk, |piece| piece.rows.id);
        let piece = piece.map_err(|_| StreamError::Internal("a key leads to a chunk that is not there".into()))?;
        Ok(Some(self.version.pieces[piece].rows.batch.slice(place.row as usize, 1)))
    }

    /// The version behind an epoch with these rows.
    ///
    /// # Errors
    /// The view would take more memory than it may.
    pub(crate) fn next(&self, name: &str, epoch: Epoch, at: u64, rows: &[RecordBatch]) -> Result<Next> {
        let mut next = self.unbounded_next(epoch, at, rows)?;
        if next.bytes() > self.shape.max_bytes {
            next.compact(self, true)?;
            next.settle(self);
        }
        if next.bytes() > self.shape.max_bytes {
            return Err(too_large(name, next.bytes(), self.shape.max_bytes));
        }
        Ok(next)
    }

    /// As [`Self::next`], of an epoch that was committed before.
    ///
    /// # Errors
    /// The rows are none of the view's.
    pub(crate) fn unbounded_next(&self, epoch: Epoch, at: u64, rows: &[RecordBatch]) -> Result<Next> {
        // A clock that goes back makes no row older.
        let at = at.max(self.version.at);
        let rows = concat_batches(&self.shape.schema, rows).map_err(broken)?;
        let keys = self.keys(&rows)?;
        let (written, keys) = match keys {
            None => (copied(&rows, 0..rows.num_rows() as u32)?, None),
            Some(keys) => {
                let last = last_of_each(&keys);
                let kept = last.iter().map(|row| keys.row(*row as usize).as_ref().into()).collect::<Vec<Box<[u8]>>>();
                (copied(&rows, last)?, Some(kept))
            }
        };
        let mut next = self.begin(epoch, at, written.clone());
        next.bury(keys.iter().flatten().filter_map(|key| self.index.get(key)));
        next.push_all(written, at, keys)?;
        next.drop_old(self)?;
        next.drop_too_many(self)?;
        next.compact(self, false)?;
        next.settle(self);
        Ok(next)
    }

    /// Lets readers see a version.
    pub(crate) fn publish(&mut self, next: Next) {
        for (key, place) in next.moved {
            match place {
                Some(place) => drop(self.index.insert(key, place)),
                None => drop(self.index.remove(&key)),
            }
        }
        (self.index_bytes, self.next_chunk) = (next.index_bytes, next.next_chunk);
        self.version = Arc::new(next.version);
    }

    fn begin(&self, epoch: Epoch, at: u64, written: RecordBatch) -> Next {
        let version = Version { epoch, at, ..self.version.as_ref().clone() };
        let (index_bytes, next_chunk) = (self.index_bytes, self.next_chunk);
        Next { version, moved: Index::new(), index_bytes, next_chunk, written }
    }

    /// The keys of some rows, if the view has one.
    fn keys(&self, rows: &RecordBatch) -> Result<Option<arrow::row::Rows>> {
        let Some(converter) = &self.converter else { return Ok(None) };
        let columns: Vec<ArrayRef> = self.shape.key.iter().map(|column| Arc::clone(rows.column(*column))).collect();
        converter.convert_columns(&columns).map(Some).map_err(broken)
    }

    /// The part of the retention that a time lies in.
    fn slot(&self, at: u64) -> u64 {
        let length = |retention: Duration| (retention.as_millis() as u64 / SLOTS).max(1);
        self.shape.retention.map_or(0, |retention| at / length(retention))
    }
}

/// Some rows in memory of their own.
fn copied(rows: &RecordBatch, which: impl IntoIterator<Item = u32>) -> Result<RecordBatch> {
    let which = UInt32Array::from_iter_values(which);
    without_shared_strings(&take_record_batch(rows, &which).map_err(broken)?)
}

/// The last row of each key, in order.
fn last_of_each(keys: &arrow::row::Rows) -> Vec<u32> {
    let mut seen = HashSet::new();
    let mut last: Vec<u32> =
        (0..keys.num_rows() as u32).rev().filter(|row| seen.insert(keys.row(*row as usize).data().to_vec())).collect();
    last.reverse();
    last
}

impl Version {
    /// Its rows, as queries read them.
    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        let chunk = |piece: &Piece| Chunk {
            rows: piece.rows.batch.clone(),
            living: piece.living.clone().map(|bits| BooleanArray::new(bits, None)),
        };
        self.pieces.iter().map(chunk).collect()
    }

    /// Its rows alone, with the times at which they were committed.
    ///
    /// # Errors
    /// They cannot be copied.
    pub(crate) fn living(&self) -> impl Iterator<Item = Result<(RecordBatch, u64)>> {
        self.pieces.iter().map(|piece| Ok((piece.living()?, piece.rows.at)))
    }
}

impl Piece {
    fn whole(rows: Rows) -> Self {
        let count = rows.batch.num_rows();
        Self { rows: Arc::new(rows), living: None, count }
    }

    /// The rows that are there.
    fn living(&self) -> Result<RecordBatch> {
        match &self.living {
            None => Ok(self.rows.batch.clone()),
            Some(living) => {
                let living = BooleanArray::new(living.clone(), None);
                filter_record_batch(&self.rows.batch, &living).map_err(broken)
            }
        }
    }

    /// The positions of the rows that are there.
    fn positions(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match &self.living {
            None => Box::new(0..self.rows.batch.num_rows()),
            Some(living) => Box::new(living.set_indices()),
        }
    }

    /// Takes rows away that are there.
    fn bury(&mut self, rows: &[u32]) {
        let length = self.rows.batch.num_rows();
        let mut bits = match &self.living {
            // Bits that begin within a byte were never made here.
            Some(living) => living.values().to_vec(),
            None => vec![u8::MAX; length.div_ceil(8)],
        };
        for row in rows {
            debug_assert!(bit_util::get_bit(&bits, *row as usize), "a row dies once");
            bit_util::unset_bit(&mut bits, *row as usize);
        }
        self.living = Some(BooleanBuffer::new(Buffer::from_vec(bits), 0, length));
        self.count -= rows.len();
    }

    fn bytes(&self) -> u64 {
        self.rows.bytes + self.living.as_ref().map_or(0, |bits| bits.values().len() as u64)
    }
}

impl Next {
    /// When its epoch was committed.
    pub(crate) fn at(&self) -> u64 {
        self.version.at
    }

    fn bytes(&self) -> u64 {
        self.version.bytes + self.index_bytes
    }

    /// Takes rows away.
    fn bury<'p>(&mut self, places: impl Iterator<Item = &'p Place>) {
        let mut dead: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for place in places {
            dead.entry(place.chunk).or_default().push(place.row);
        }
        for piece in &mut self.version.pieces {
            if let Some(rows) = dead.get(&piece.rows.id) {
                piece.bury(rows);
            }
        }
    }

    /// Adds rows, in chunks that are not too large.
    fn push_all(&mut self, rows: RecordBatch, at: u64, keys: Option<Vec<Box<[u8]>>>) -> Result<()> {
        if rows.num_rows() <= CHUNK_ROWS {
            self.push(rows, at, keys);
            return Ok(());
        }
        let mut keys = keys.map(Vec::into_iter);
        for from in (0..rows.num_rows()).step_by(CHUNK_ROWS) {
            let taken = from as u32..(from + CHUNK_ROWS).min(rows.num_rows()) as u32;
            let keys = keys.as_mut().map(|keys| keys.take(taken.len()).collect());
            self.push(copied(&rows, taken)?, at, keys);
        }
        Ok(())
    }

    fn push(&mut self, rows: RecordBatch, at: u64, keys: Option<Vec<Box<[u8]>>>) {
        if rows.num_rows() == 0 {
            return;
        }
        let chunk = self.next_chunk;
        self.next_chunk += 1;
        for (row, key) in keys.into_iter().flatten().enumerate() {
            self.moved.insert(key, Some(Place { chunk, row: row as u32 }));
        }
        self.version.pieces.push(Piece::whole(Rows::new(chunk, rows, at)));
    }

    /// Rows that are too old go, slot by slot: chunks are others when the log is read again, and slots are not.
    fn drop_old(&mut self, contents: &Contents) -> Result<()> {
        let Some(retention) = contents.shape.retention else { return Ok(()) };
        let oldest = contents.slot(self.version.at.saturating_sub(retention.as_millis() as u64));
        let old = self.version.pieces.iter().take_while(|piece| contents.slot(piece.rows.at) < oldest).count();
        let old: Vec<Piece> = self.version.pieces.drain(..old).collect();
        old.iter().try_for_each(|piece| self.forget(contents, piece, piece.count))
    }

    /// The oldest rows go if there are too many.
    fn drop_too_many(&mut self, contents: &Contents) -> Result<()> {
        let Some(max) = contents.shape.max_rows else { return Ok(()) };
        let count: u64 = self.version.pieces.iter().map(|piece| piece.count as u64).sum();
        let mut surplus = count.saturating_sub(max) as usize;
        while surplus > 0 {
            let Some(first) = self.version.pieces.first() else { return Ok(()) };
            if first.count <= surplus {
                let first = self.version.pieces.remove(0);
                surplus -= first.count;
                self.forget(contents, &first, first.count)?;
                continue;
            }
            let mut piece = first.clone();
            self.forget(contents, &piece, surplus)?;
            let dead: Vec<u32> = piece.positions().take(surplus).map(|row| row as u32).collect();
            piece.bury(&dead);
            self.version.pieces[0] = piece;
            surplus = 0;
        }
        Ok(())
    }

    /// The first rows of a piece are found by their keys no more.
    fn forget(&mut self, contents: &Contents, piece: &Piece, count: usize) -> Result<()> {
        if let Some(keys) = contents.keys(&piece.rows.batch)? {
            for row in piece.positions().take(count) {
                self.moved.insert(keys.row(row).as_ref().into(), None);
            }
        }
        Ok(())
    }

    /// Chunks of which most is dead are written anew, and neighbours of similar size become one; all that has dead rows if `all` is set.
    fn compact(&mut self, contents: &Contents, all: bool) -> Result<()> {
        let mut groups: Vec<Vec<Piece>> = Vec::new();
        for piece in std::mem::take(&mut self.version.pieces) {
            if piece.count == 0 {
                continue;
            }
            let mut group = vec![piece];
            while let Some(former) = groups.last()
                && contents.fit(former, &group)
            {
                let mut former = groups.pop().unwrap_or_default();
                former.append(&mut group);
                group = former;
            }
            groups.push(group);
        }
        for group in groups {
            let is_worn = |piece: &Piece| match all {
                true => piece.living.is_some(),
                false => piece.count * 2 < piece.rows.batch.num_rows(),
            };
            match <[Piece; 1]>::try_from(group) {
                Ok([piece]) if !is_worn(&piece) => self.version.pieces.push(piece),
                Ok(piece) => self.merge(contents, &piece)?,
                Err(group) => self.merge(contents, &group)?,
            }
        }
        Ok(())
    }

    /// The living rows of some neighbours in one chunk, in the place of the first.
    fn merge(&mut self, contents: &Contents, pieces: &[Piece]) -> Result<()> {
        let living = pieces.iter().map(Piece::living).collect::<Result<Vec<_>>>()?;
        let rows = concat_batches(&contents.shape.schema, &living).map_err(broken)?;
        let rows = without_shared_strings(&rows)?;
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(()) };
        let chunk = first.rows.id;
        if let Some(keys) = contents.keys(&rows)? {
            for (row, key) in keys.iter().enumerate() {
                self.moved.insert(key.as_ref().into(), Some(Place { chunk, row: row as u32 }));
            }
        }
        self.version.pieces.push(Piece::whole(Rows::new(chunk, rows, last.rows.at)));
        Ok(())
    }

    /// Counts rows and bytes.
    fn settle(&mut self, contents: &Contents) {
        self.version.rows = self.version.pieces.iter().map(|piece| piece.count as u64).sum();
        self.version.bytes = self.version.pieces.iter().map(Piece::bytes).sum();
        let (mut more, mut less) = (0, 0);
        for (key, place) in &self.moved {
            let bytes = key.len() as u64 + ENTRY_BYTES;
            match (place, contents.index.contains_key(key)) {
                (Some(_), false) => more += bytes,
                (None, true) => less += bytes,
                _ => {}
            }
        }
        self.index_bytes = contents.index_bytes + more - less;
    }
}

impl Contents {
    /// Whether two groups of neighbours become one chunk: each row is copied about as often as their number has digits.
    fn fit(&self, former: &[Piece], latter: &[Piece]) -> bool {
        let count = |group: &[Piece]| group.iter().map(|piece| piece.count).sum::<usize>();
        let slot = |piece: Option<&Piece>| piece.map(|piece| self.slot(piece.rows.at));
        let (before, after) = (count(former), count(latter));
        before <= 2 * after && before + after <= CHUNK_ROWS && slot(former.last()) == slot(latter.last())
    }
}

impl Rows {
    fn new(id: u64, batch: RecordBatch, at: u64) -> Self {
        let bytes = batch.get_array_memory_size() as u64;
        Self { id, batch, bytes, at }
    }
}

fn too_large(name: &str, bytes: u64, max: u64) -> StreamError {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    StreamError::Limit {
        message: format!(
            "materialized view {name} would take {:.1} MiB, above its max-bytes of {:.1} MiB; DROP it, and create it with a larger 'max-bytes', or with \
             'max-rows' or 'retention', so that old rows go",
            mebibytes(bytes),
            mebibytes(max)
        ),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function in map_err")]
fn broken(error: arrow::error::ArrowError) -> StreamError {
    StreamError::Internal(format!("the rows of a materialized view: {error}"))
}

#[cfg(test)]
pub(super) mod tests {
    use arrow::array::{AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use rand::seq::IndexedRandom as _;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// How a view of a number and a text keeps rows; the number is the key, if there is one.
    pub(crate) fn shape(key: bool) -> Shape {
        let fields = vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Utf8View, true)];
        let key = if key { vec![0] } else { Vec::new() };
        Shape { schema: Arc::new(Schema::new(fields)), key, max_rows: None, retention: None, max_bytes: u64::MAX }
    }

    pub(crate) fn rows(rows: &[(i64, String)]) -> RecordBatch {
        let keys = Int64Array::from_iter_values(rows.iter().map(|(key, _)| *key));
        let texts = StringViewArray::from_iter_values(rows.iter().map(|(_, text)| text));
        RecordBatch::try_new(shape(true).schema, vec![Arc::new(keys), Arc::new(texts)]).unwrap()
    }

    /// What a reader sees, in order.
    pub(crate) fn seen(version: &Version) -> Vec<(i64, String)> {
        let mut seen = Vec::new();
        for Chunk { rows, living } in version.chunks() {
            let rows = living.map_or_else(|| rows.clone(), |living| filter_record_batch(&rows, &living).unwrap());
            let (keys, texts) = (rows.column(0).as_primitive::<Int64Type>(), rows.column(1).as_string_view());
            seen.extend(keys.values().iter().copied().zip(texts.iter().map(|text| text.unwrap().to_owned())));
        }
        seen
    }

    fn commit(contents: &mut Contents, epoch: u64, at: u64, batches: &[RecordBatch]) {
        let next = contents.next("v", Epoch(epoch), at, batches).unwrap();
        contents.publish(next);
    }

    /// What a key is found to have.
    fn found(contents: &Contents, key: i64) -> Option<String> {
        let row = contents.row(&[Arc::new(Int64Array::from(vec![key]))]).unwrap()?;
        assert_eq!(row.column(0).as_primitive::<Int64Type>().values(), &[key]);
        Some(row.column(1).as_string_view().value(0).to_owned())
    }

    type Rows = Vec<(i64, String)>;

    #[test]
    fn the_last_row_of_a_key_counts_in_every_version_whatever_is_compacted() {
        for seed in 0..20 {
            let mut dice = ChaCha8Rng::seed_from_u64(seed);
            let max_rows = [None, Some(50)][usize::from(seed % 2 == 1)];
            let mut contents = Contents::new(Arc::new(Shape { max_rows, ..shape(true) })).unwrap();
            // Keys in the order in which they were written last.
            let mut model: Vec<(i64, String)> = Vec::new();
            let mut held = Vec::<(Arc<Version>, Rows)>::new();
            for epoch in 1..=200 {
                let batch = |dice: &mut ChaCha8Rng| {
                    let row = |dice: &mut ChaCha8Rng| {
                        let long =
                            "a text that is too long to be stored in the view of it".repeat(dice.random_range(0..2));
                        (dice.random_range(0..300), format!("{epoch} {} {long}", dice.random_range(0..1_000)))
                    };
                    (0..dice.random_range(0..40)).map(|_| row(dice)).collect::<Vec<_>>()
                };
                let batches: Vec<_> = (0..dice.random_range(0..3)).map(|_| batch(&mut dice)).collect();
                for (key, text) in batches.iter().flatten() {
                    model.retain(|(known, _)| known != key);
                    model.push((*key, text.clone()));
                }
                let surplus = max_rows.map_or(0, |max| model.len().saturating_sub(max as usize));
                model.drain(..surplus);
                let batches: Vec<_> = batches.iter().map(|batch| rows(batch)).collect();
                commit(&mut contents, epoch, epoch, &batches);
                assert_eq!(seen(contents.version()), model, "seed {seed}, epoch {epoch}");
                assert_eq!(contents.version().rows, model.len() as u64);
                let key = dice.random_range(0..300);
                let of_model = model.iter().find(|(known, _)| *known == key).map(|(_, text)| text.clone());
                assert_eq!(found(&contents, key), of_model, "seed {seed}, epoch {epoch}, key {key}");
                held.push((Arc::clone(contents.version()), model.clone()));
                let (version, model) = held.choose(&mut dice).unwrap();
                assert_eq!(seen(version), *model, "seed {seed}: an old version changed");
            }
            assert_eq!(contents.index.len() as u64, contents.version().rows);
            let keys: u64 = contents.index.keys().map(|key| key.len() as u64 + ENTRY_BYTES).sum();
            assert_eq!(contents.index_bytes, keys);
            let stored: usize = contents.version().pieces.iter().map(|piece| piece.rows.batch.num_rows()).sum();
            assert!(stored <= 2 * model.len() + 1, "{stored} rows are stored for {}", model.len());
            assert!(contents.version().pieces.len() < 16, "{} chunks", contents.version().pieces.len());
        }
    }

    #[test]
    fn without_a_key_all_rows_are_there_in_order_and_the_oldest_go() {
        let text = |n: i64| (n % 7, n.to_string());
        let mut contents = Contents::new(Arc::new(Shape { max_rows: Some(1_000), ..shape(false) })).unwrap();
        for epoch in 0..100_i64 {
            let batch: Vec<_> = (epoch * 37..(epoch + 1) * 37).map(text).collect();
            commit(&mut contents, epoch as u64 + 1, 0, &[rows(&batch)]);
            let all = (epoch + 1) * 37;
            assert_eq!(seen(contents.version()), ((all - 1_000).max(0)..all).map(text).collect::<Vec<_>>());
        }
        let many: Vec<_> = (0..150_000).map(text).collect();
        commit(&mut contents, 101, 0, &[rows(&many)]);
        assert_eq!(seen(contents.version()), many[149_000..], "an epoch may have more rows than there may be");
    }

    #[test]
    fn rows_go_when_they_are_older_than_the_retention_and_not_before() {
        let retention = Some(Duration::from_secs(60));
        let mut contents = Contents::new(Arc::new(Shape { retention, ..shape(true) })).unwrap();
        for epoch in 1..=400_u64 {
            let at = epoch * 500;
            commit(&mut contents, epoch, at, &[rows(&[(epoch as i64, String::new())])]);
            let oldest = seen(contents.version())[0].0 as u64 * 500;
            // A slot has 937 ms.
            assert!(oldest <= (at.saturating_sub(60_000)).max(500), "epoch {epoch}: {oldest}");
            assert!(oldest + 62_000 >= at, "epoch {epoch}: {oldest}");
        }
        assert_eq!((found(&contents, 1), found(&contents, 400)), (None, Some(String::new())));
        assert_eq!(contents.index.len() as u64, contents.version().rows);
        // A clock that goes back.
        commit(&mut contents, 401, 7, &[rows(&[(401, String::new())])]);
        assert_eq!(contents.version().at, 200_000);
    }

    #[test]
    fn an_epoch_that_has_no_room_is_refused_with_the_name_of_the_view_and_changes_nothing() {
        let max_bytes = 64 << 10;
        let mut contents = Contents::new(Arc::new(Shape { max_bytes, ..shape(true) })).unwrap();
        let text = |n: i64| "x".repeat(n as usize);
        let mut epoch = 0;
        let error = loop {
            epoch += 1;
            match contents.next("busy", Epoch(epoch), 0, &[rows(&[(epoch as i64, text(500))])]) {
                Ok(next) => contents.publish(next),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("materialized view busy would take") && error.contains("'max-bytes'"), "{error}");
        assert_eq!((contents.version().epoch, contents.version().rows), (Epoch(epoch - 1), epoch - 1));
        assert!(epoch > 50 && contents.bytes() <= max_bytes);
        // The same keys again and again take no more.
        for more in 0..500 {
            let key = (more % (epoch - 1)) as i64 + 1;
            commit(&mut contents, epoch + more, 0, &[rows(&[(key, text(450))])]);
        }
    }

    #[test]
    fn a_view_that_is_read_again_has_the_same_rows_in_the_same_order() {
        let mut contents = Contents::new(Arc::new(shape(true))).unwrap();
        for epoch in 1..=50_u64 {
            let batch: Vec<_> = (0..10).map(|n| ((epoch as i64 * 7 + n) % 90, format!("{epoch}"))).collect();
            commit(&mut contents, epoch, epoch, &[rows(&batch)]);
        }
        let version = contents.version();
        let living = version.living().collect::<Result<Vec<_>>>().unwrap();
        let again = Contents::of(Arc::new(shape(true)), version.epoch, version.at, living).unwrap();
        assert_eq!((seen(again.version()), again.version().epoch), (seen(version), version.epoch));
        assert_eq!(found(&again, 17), found(&contents, 17));
    }
}
