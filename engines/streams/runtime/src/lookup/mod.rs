//! Look-ups: each row of a stream meets the rows of a bounded table, as it was read before the row's epoch, or as it answered in it.

mod answers;
mod asked;
mod cache;
mod loading;
mod versions;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat_batches, take};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use datafusion::common::HashMap;
use datafusion::execution::TaskContext;
use savanna_streams_api::Result;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::join::Lookup;

use self::asked::Asking;
pub(crate) use self::asked::{Asked, Place};
pub(crate) use self::loading::Loading;
pub use self::versions::LookupStore;
pub(crate) use self::versions::Versions;
use self::versions::{recorded_versions, words};
use crate::chain::{Chain, batch_of};
use crate::error::{broken, computing};
use crate::pair_condition::PairCondition;
use savanna_streams_functions::without_shared_strings;

/// The table of a look-up, by key. Shared by all instances of a stage.
pub(crate) struct LookupTable {
    rows: RecordBatch,
    converter: RowConverter,
    /// The first row of each key; `next` leads to the others. Keys are in arrow's row format.
    first: HashMap<Box<[u8]>, u32>,
    next: Vec<Option<u32>>,
    /// Memory held.
    bytes: usize,
}

impl LookupTable {
    fn new(schema: &SchemaRef, batches: &[RecordBatch], keys: &[usize]) -> Result<Self> {
        let rows = concat_batches(schema, batches).map_err(|e| computing("reading a look-up table", &e))?;
        let rows = without_shared_strings(&rows)?;
        let fields = keys.iter().map(|key| SortField::new(schema.field(*key).data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(|e| broken(format!("keys cannot be hashed: {e}")))?;
        let mut table = Self { rows, converter, first: HashMap::default(), next: Vec::new(), bytes: 0 };
        table.next = vec![None; table.rows.num_rows()];
        let columns: Vec<ArrayRef> = keys.iter().map(|key| Arc::clone(table.rows.column(*key))).collect();
        let (bytes, nulls) = table.keys(&columns)?;
        // Backwards, so that a key's rows follow each other in the table's order.
        for row in
            (0..table.rows.num_rows()).rev().filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)))
        {
            table.next[row] = table.first.insert(bytes.row(row).as_ref().into(), row as u32);
        }
        let keys: usize = table.first.keys().map(|key| key.len()).sum();
        let slots = table.first.capacity() * size_of::<(Box<[u8]>, u32)>();
        let links = table.next.capacity() * size_of::<Option<u32>>();
        table.bytes = table.rows.get_array_memory_size() + keys + slots + links;
        Ok(table)
    }

    fn keys(&self, columns: &[ArrayRef]) -> Result<(arrow::row::Rows, Option<NullBuffer>)> {
        let bytes = self.converter.convert_columns(columns).map_err(|e| computing("the keys of a look-up", &e))?;
        let nulls = columns.iter().map(Array::logical_nulls);
        Ok((bytes, nulls.fold(None, |all, nulls| NullBuffer::union(all.as_ref(), nulls.as_ref()))))
    }

    fn rows_of(&self, key: &[u8]) -> impl Iterator<Item = u32> {
        std::iter::successors(self.first.get(key).copied(), |row| self.next[*row as usize])
    }
}

/// Where the rows of a look-up's table come from. Shared by all instances of a stage.
#[derive(Clone)]
pub(crate) enum Table {
    /// It is read as a whole.
    Whole(Arc<Versions>),
    /// It is asked for the rows of the keys that come.
    ByKey(Arc<Asked>),
}

impl Table {
    /// Which version an epoch has that all scans have sealed. What was answered in it is kept by then.
    ///
    /// # Errors
    /// It cannot be kept, or the query ends.
    pub(crate) fn version_of(&self, epoch: Epoch) -> Result<u64> {
        match self {
            Self::Whole(versions) => Ok(versions.version_of(epoch)),
            Self::ByKey(asked) => asked.keep(epoch),
        }
    }

    /// The sinks hold this epoch, and those before.
    pub(crate) fn passed(&self, committed: Epoch) {
        match self {
            Self::Whole(versions) => versions.passed(committed),
            Self::ByKey(asked) => asked.passed(committed),
        }
    }
}

/// The table in one instance of a stage.
enum Rows {
    /// The table of the epoch, once a row was looked up in it.
    Whole(Arc<Versions>, Option<Arc<LookupTable>>),
    ByKey(Box<Asking>),
}

/// A look-up in one instance of a stage.
pub(crate) struct LookupRows {
    rows: Rows,
    epoch: Epoch,
    keys: Vec<usize>,
    outer: bool,
    condition: Option<PairCondition>,
    after: Chain,
}

impl LookupRows {
    pub(crate) fn decode(lookup: &Lookup, table: Table, functions: &Arc<TaskContext>) -> Result<Self> {
        let condition = lookup.condition.as_ref().map(|c| PairCondition::decode(c, functions)).transpose()?;
        let after = Chain::decode(&lookup.after, functions)?;
        let rows = match table {
            Table::Whole(versions) => {
                versions.join();
                Rows::Whole(versions, None)
            }
            Table::ByKey(asked) => Rows::ByKey(Box::new(Asking::decode(lookup, asked, functions)?)),
        };
        let (keys, outer) = (lookup.stream_keys.clone(), lookup.outer);
        Ok(Self { rows, epoch: Epoch::ZERO, keys, outer, condition, after })
    }

    /// The rows to come belong to this epoch.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            if let Rows::Whole(_, table) = &mut self.rows {
                *table = None;
            }
        }
    }

    /// All rows of an epoch have come.
    pub(crate) fn sealed(&self, epoch: Epoch) {
        if let Rows::ByKey(asking) = &self.rows {
            asking.sealed(epoch);
        }
    }

    /// This instance's share of the memory of the tables, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.rows {
            Rows::Whole(versions, _) => versions.bytes(),
            Rows::ByKey(asking) => asking.bytes(),
        }
    }

    /// The table that some keys meet.
    fn table(&mut self, keys: &[ArrayRef]) -> Result<Arc<LookupTable>> {
        Ok(match &mut self.rows {
            Rows::Whole(_, Some(table)) => Arc::clone(table),
            Rows::Whole(versions, none) => Arc::clone(none.insert(versions.of(self.epoch)?)),
            Rows::ByKey(asking) => Arc::new(asking.table(self.epoch, keys)?),
        })
    }

    /// The columns that come out.
    pub(crate) fn output(&self) -> &SchemaRef {
        self.after.output()
    }

    /// Each row with its partners, in the stream's order.
    pub(crate) fn apply(&mut self, rows: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let keys: Vec<ArrayRef> = self.keys.iter().map(|key| Arc::clone(rows.column(*key))).collect();
        let known = self.table(&keys)?;
        let (bytes, nulls) = known.keys(&keys)?;
        let (mut stream, mut table) = (Vec::new(), Vec::new());
        for (row, key) in bytes.iter().enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                table.extend(known.rows_of(key.as_ref()).map(Some));
                stream.resize(table.len(), row as u32);
            }
        }
        if let Some(condition) = &mut self.condition {
            let (left, right) = (condition.left.iter().copied(), condition.right.iter().copied());
            let columns = pairs(rows, left, &stream, &known.rows, right, &table)?;
            let holds = condition.holds(columns, stream.len())?;
            (stream, table) = holds.set_indices().map(|pair| (stream[pair], table[pair])).unzip();
        }
        if self.outer {
            (stream, table) = with_lonely(rows.num_rows() as u32, &stream, &table);
        }
        if stream.is_empty() {
            return Ok(Vec::new());
        }
        let (left, right) = (0..rows.num_columns(), 0..known.rows.num_columns());
        let columns = pairs(rows, left, &stream, &known.rows, right, &table)?;
        self.after.apply(batch_of(self.after.input(), columns, stream.len())?)
    }
}

/// Columns of both sides, pair by pair.
fn pairs(
    rows: &RecordBatch,
    left: impl Iterator<Item = usize>,
    stream: &[u32],
    table: &RecordBatch,
    right: impl Iterator<Item = usize>,
    partners: &[Option<u32>],
) -> Result<Vec<ArrayRef>> {
    let (stream, partners) = (UInt32Array::from(stream.to_vec()), UInt32Array::from(partners.to_vec()));
    let left = left.map(|column| take(rows.column(column), &stream, None));
    let right = right.map(|column| take(table.column(column), &partners, None));
    left.chain(right).collect::<std::result::Result<_, _>>().map_err(|e| computing("a look-up", &e))
}

/// The pairs, and in their places the rows of the stream that are in none.
fn with_lonely(rows: u32, stream: &[u32], table: &[Option<u32>]) -> (Vec<u32>, Vec<Option<u32>>) {
    let mut all = (Vec::with_capacity(stream.len()), Vec::with_capacity(stream.len()));
    let mut pairs = stream.iter().zip(table).peekable();
    for row in 0..rows {
        let before = all.0.len();
        while let Some((_, partner)) = pairs.next_if(|(pair, _)| **pair == row) {
            all.0.push(row);
            all.1.push(*partner);
        }
        if all.0.len() == before {
            all.0.push(row);
            all.1.push(None);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column};
    use datafusion::physical_plan::ExecutionPlan;
    use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
    use savanna_streams_model::catalog::TableDef;
    use savanna_streams_model::join::JoinCondition;
    use savanna_streams_model::plan::{Leaf, PlanBytes};
    use savanna_streams_model::source::ScanSpec;

    use super::*;

    fn schema(names: [&str; 2]) -> SchemaRef {
        let field = |(name, data_type): (&str, DataType)| Field::new(name, data_type, true);
        Arc::new(Schema::new(
            names.into_iter().zip([DataType::Int64, DataType::Utf8View]).map(field).collect::<Vec<_>>(),
        ))
    }

    fn rows(names: [&str; 2], rows: &[(Option<i64>, &str)]) -> RecordBatch {
        let keys: Int64Array = rows.iter().map(|(key, _)| *key).collect();
        let texts = StringViewArray::from_iter_values(rows.iter().map(|(_, text)| *text));
        RecordBatch::try_new(schema(names), vec![Arc::new(keys), Arc::new(texts)]).unwrap()
    }

    fn identity(schema: SchemaRef) -> PlanBytes {
        let leaf: Arc<dyn ExecutionPlan> = Arc::new(Leaf::new(0, schema));
        PlanBytes::encode(&leaf).unwrap()
    }

    /// `s.text < t.text`
    fn less() -> JoinCondition {
        let side = |name| Field::new(name, DataType::Utf8View, true);
        let leaf = Arc::new(Leaf::new(0, Arc::new(Schema::new(vec![side("s"), side("t")]))));
        let expr = BinaryExpr::new(Arc::new(Column::new("s", 0)), Operator::Lt, Arc::new(Column::new("t", 1)));
        let holds = ProjectionExec::try_new([ProjectionExpr { expr: Arc::new(expr), alias: "holds".into() }], leaf);
        let holds: Arc<dyn ExecutionPlan> = Arc::new(holds.unwrap());
        JoinCondition { left: vec![1], right: vec![1], holds: PlanBytes::encode(&holds).unwrap() }
    }

    fn look_up(outer: bool, condition: Option<JoinCondition>) -> Vec<(String, Option<String>)> {
        let table = rows(["k", "v"], &[(Some(1), "m"), (None, "n"), (Some(2), "o"), (Some(1), "p")]);
        let stream = rows(["key", "s"], &[(Some(2), "a"), (Some(3), "b"), (None, "c"), (Some(1), "n"), (Some(2), "z")]);
        let joined = stream.schema().fields().iter().chain(table.schema().fields()).cloned().collect::<Vec<_>>();
        let table_def = TableDef {
            name: "t".into(),
            columns: Vec::new(),
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: [].into(),
            statement: String::new(),
        };
        let lookup = Lookup {
            table: ScanSpec::everything(table_def),
            refresh: None,
            by_key: None,
            chain: identity(table.schema()),
            outer,
            stream_keys: vec![0],
            table_keys: vec![0],
            condition,
            after: identity(Arc::new(Schema::new(joined))),
        };
        let functions = Arc::new(TaskContext::default());
        let versions = Versions::new(0, &lookup, &functions, None, &[]).unwrap();
        versions.add(vec![table]).unwrap();
        let mut lookup = LookupRows::decode(&lookup, Table::Whole(Arc::new(versions)), &functions).unwrap();
        lookup.begin(Epoch(1));
        let mut found = Vec::new();
        for batch in lookup.apply(&stream).unwrap() {
            assert_eq!(batch.schema(), *lookup.output());
            let (text, value) = (batch.column(1).as_string_view(), batch.column(3).as_string_view());
            let keys = batch.column(2).as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                assert_eq!(keys.is_valid(row), value.is_valid(row));
                let partner = value.is_valid(row).then(|| value.value(row).to_owned());
                found.push((text.value(row).to_owned(), partner));
            }
        }
        found
    }

    fn pair(text: &str, value: &str) -> (String, Option<String>) {
        (text.into(), Some(value.into()))
    }

    #[test]
    fn rows_meet_their_partners_in_the_streams_order() {
        assert_eq!(look_up(false, None), [pair("a", "o"), pair("n", "m"), pair("n", "p"), pair("z", "o")]);
    }

    #[test]
    fn a_left_look_up_keeps_rows_without_a_partner() {
        let lonely = |text: &str| (text.to_owned(), None);
        let expected = [pair("a", "o"), lonely("b"), lonely("c"), pair("n", "m"), pair("n", "p"), pair("z", "o")];
        assert_eq!(look_up(true, None), expected);
        let expected = [pair("a", "o"), lonely("b"), lonely("c"), pair("n", "p"), lonely("z")];
        assert_eq!(look_up(true, Some(less())), expected);
    }
}
