//! What a table has answered in an epoch, and its form where it is kept.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::HashMap;
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::ByKey;
use savanna_streams_model::source::ScanSpec;

use super::cache::{Key, Rows, bytes_of};
use super::words;
use crate::error::{broken, computing};
use crate::snapshot::{State, check_columns, columns};

/// The epoch in which kept answers were given.
const EPOCH: &str = "epoch";

/// The answers of an epoch: each key has one in all of it.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_key: HashMap<Key, Rows>,
    pub(super) bytes: usize,
}

impl Answers {
    pub(super) fn get(&self, key: &[u8]) -> Option<Rows> {
        self.by_key.get(key).map(Arc::clone)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The answer that counts for a key: the first one.
    pub(super) fn settle(&mut self, key: &Key, rows: Rows) -> Rows {
        let known = self.by_key.get(key).map(Arc::clone);
        known.unwrap_or_else(|| {
            self.bytes += bytes_of(key, &rows);
            self.by_key.insert(Arc::clone(key), Arc::clone(&rows));
            rows
        })
    }
}

/// What keys and rows of a table are, as bytes and as columns.
pub(super) struct Form {
    /// The columns of the key.
    pub(super) key: SchemaRef,
    keys: RowConverter,
    /// The columns that are read.
    rows_schema: SchemaRef,
    rows: RowConverter,
    /// Where the columns of the key are among them.
    places: Vec<usize>,
    /// What both are, in words.
    words: [String; 2],
}

impl Form {
    /// # Errors
    /// A column of the key is not read, or one is of a type that is not kept.
    pub(super) fn new(scan: &ScanSpec, by_key: &ByKey) -> Result<Self> {
        let rows_schema = scan.schema();
        let place = |name: &String| {
            rows_schema
                .index_of(name)
                .map_err(|_| broken(format!("column {name} of a key is not among those that are read")))
        };
        let places = by_key.columns.iter().map(place).collect::<Result<Vec<_>>>()?;
        let key = Arc::new(Schema::new(places.iter().map(|at| rows_schema.field(*at).clone()).collect::<Vec<_>>()));
        let converter = |schema: &Schema| {
            let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
            RowConverter::new(fields).map_err(|e| {
                StreamError::invalid(format!(
                    "rows of table {} cannot be kept ({e}); leave 'lookup.cache' out, so that it is read as a whole",
                    scan.table.name
                ))
            })
        };
        let rows_words = words(scan);
        let words = [format!("keys ({}) of {rows_words}", columns(&key)), rows_words];
        Ok(Self { keys: converter(&key)?, key, rows: converter(&rows_schema)?, rows_schema, places, words })
    }

    /// Keys as bytes.
    pub(super) fn keys(&self, columns: &[ArrayRef]) -> Result<arrow::row::Rows> {
        self.keys.convert_columns(columns).map_err(|e| computing("the keys of a look-up", &e))
    }

    /// The rows of an answer by the keys that were asked for, in their order. Rows of others are left out.
    pub(super) fn sorted(&self, asked: Vec<Key>, answer: &[RecordBatch]) -> Result<Vec<(Key, Rows)>> {
        let place: HashMap<&[u8], usize> = asked.iter().enumerate().map(|(at, key)| (key.as_ref(), at)).collect();
        let mut found: Vec<Vec<Box<[u8]>>> = vec![Vec::new(); asked.len()];
        for batch in answer {
            check_columns(batch, &self.rows_schema)?;
            let of_key: Vec<ArrayRef> = self.places.iter().map(|at| Arc::clone(batch.column(*at))).collect();
            let keys = self.keys(&of_key)?;
            let rows = self.rows.convert_columns(batch.columns()).map_err(|e| computing("a look-up", &e))?;
            for (key, row) in keys.iter().zip(rows.iter()) {
                if let Some(at) = place.get(key.as_ref()) {
                    found[*at].push(row.as_ref().into());
                }
            }
        }
        drop(place);
        Ok(asked.into_iter().zip(found.into_iter().map(Rows::from)).collect())
    }

    /// Rows as columns, as they were read.
    pub(super) fn batch<'r>(&self, rows: impl Iterator<Item = &'r Rows>) -> Result<RecordBatch> {
        columns_of(&self.rows, &self.rows_schema, rows.flat_map(|rows| rows.iter().map(AsRef::as_ref)))
    }

    /// The form in which answers are kept.
    pub(super) fn state(&self, epoch: Epoch, answers: &Answers) -> Result<State> {
        let mut keys: Vec<&Key> = answers.by_key.keys().collect();
        keys.sort_unstable();
        let mut state = State::default();
        state.marks.insert(EPOCH.to_owned(), i64::try_from(epoch.0).unwrap_or(i64::MAX));
        let [of_keys, of_rows] = &self.words;
        let asked = columns_of(&self.keys, &self.key, keys.iter().map(|key| key.as_ref()))?;
        state.put(of_keys, [0; 2], asked);
        let rows = keys.iter().filter_map(|key| answers.by_key.get(*key));
        state.put(of_rows, [0; 2], self.batch(rows)?);
        Ok(state)
    }

    /// The opposite of [`Self::state`]: what was kept of an epoch. Nothing, if it was kept of another one.
    ///
    /// # Errors
    /// It is of other columns.
    pub(super) fn answers(&self, epoch: Epoch, state: State) -> Result<Answers> {
        let [of_keys, of_rows] = &self.words;
        for table in &state.tables {
            if ![of_keys, of_rows].contains(&&table.name) {
                return Err(StreamError::invalid(format!(
                    "what was answered to look-ups does not fit what this release would look up (expected {of_keys}, got {}); go on with the \
                     release that asked, or drop the query and start it again",
                    table.name
                )));
            }
        }
        let mut answers = Answers::default();
        if state.marks.get(EPOCH).copied() != i64::try_from(epoch.0).ok() {
            return Ok(answers);
        }
        let mut asked = Vec::new();
        for (_, keys) in state.of(of_keys) {
            check_columns(keys, &self.key)?;
            asked.extend(self.keys(keys.columns())?.iter().map(|key| Key::from(key.as_ref())));
        }
        let rows: Vec<RecordBatch> = state.of(of_rows).map(|(_, rows)| rows.clone()).collect();
        for (key, rows) in self.sorted(asked, &rows)? {
            answers.settle(&key, rows);
        }
        Ok(answers)
    }
}

fn columns_of<'b>(
    converter: &RowConverter,
    schema: &SchemaRef,
    bytes: impl Iterator<Item = &'b [u8]>,
) -> Result<RecordBatch> {
    let parser = converter.parser();
    let bytes: Vec<&[u8]> = bytes.collect();
    if bytes.is_empty() {
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let columns = converter.convert_rows(bytes.iter().map(|bytes| parser.parse(bytes)));
    let batch = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(schema), columns));
    batch.map_err(|e| computing("the rows of a look-up", &e))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::DataType;
    use savanna_streams_model::catalog::{ColumnDef, TableDef};

    use super::*;

    fn form() -> Form {
        let column = |name: &str, data_type| ColumnDef { name: name.into(), data_type, nullable: true, computed: None };
        let table = TableDef {
            name: "names".into(),
            columns: vec![column("name", DataType::Utf8View), column("id", DataType::Int64)],
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: [].into(),
            statement: String::new(),
        };
        let by_key = ByKey { columns: vec!["id".into()], cache: None, patience: Duration::ZERO };
        Form::new(&ScanSpec::everything(table), &by_key).unwrap()
    }

    fn rows(form: &Form, rows: &[(Option<&str>, Option<i64>)]) -> RecordBatch {
        let names: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<StringViewArray>());
        let ids: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
        RecordBatch::try_new(Arc::clone(&form.rows_schema), vec![names, ids]).unwrap()
    }

    fn keys(form: &Form, keys: &[i64]) -> Vec<Key> {
        let column: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        form.keys(&[column]).unwrap().iter().map(|key| Key::from(key.as_ref())).collect()
    }

    #[test]
    fn rows_are_those_of_the_keys_that_were_asked_for() {
        let form = form();
        let came = [
            rows(&form, &[(Some("a"), Some(3)), (Some("x"), Some(9)), (None, Some(1))]),
            rows(&form, &[]),
            rows(&form, &[(Some("b"), Some(3)), (Some("y"), None)]),
        ];
        let sorted = form.sorted(keys(&form, &[1, 2, 3]), &came).unwrap();
        let batch = |at: usize| form.batch(std::iter::once(&sorted[at].1)).unwrap();
        assert_eq!(batch(0), rows(&form, &[(None, Some(1))]));
        assert_eq!(batch(1), rows(&form, &[]));
        assert_eq!(batch(2), rows(&form, &[(Some("a"), Some(3)), (Some("b"), Some(3))]));
    }

    #[test]
    fn what_is_kept_says_also_which_keys_had_no_rows_and_belongs_to_its_epoch() {
        let form = form();
        let came = [rows(&form, &[(Some("a"), Some(3)), (None, Some(1)), (Some("b"), Some(3))])];
        let mut answers = Answers::default();
        for (key, rows) in form.sorted(keys(&form, &[3, 2, 1]), &came).unwrap() {
            answers.settle(&key, rows);
        }
        let state = form.state(Epoch(7), &answers).unwrap();
        let restored = form.answers(Epoch(7), state.clone()).unwrap();
        assert_eq!((&restored.by_key, restored.bytes), (&answers.by_key, answers.bytes));
        assert_eq!(restored.by_key.len(), 3);
        assert!(form.answers(Epoch(8), state).unwrap().is_empty());
        let mut other = State::default();
        other.put("table names (id Int64)", [0; 2], rows(&form, &[]));
        let error = form.answers(Epoch(7), other).unwrap_err().to_string();
        assert!(error.contains("expected keys (id Int64) of table names (name Utf8View, id Int64)"), "{error}");
    }

    #[test]
    fn the_first_answer_of_an_epoch_counts() {
        let form = form();
        let [key] = keys(&form, &[1]).try_into().unwrap();
        let answer =
            |name| form.sorted(vec![Arc::clone(&key)], &[rows(&form, &[(Some(name), Some(1))])]).unwrap().remove(0).1;
        let mut answers = Answers::default();
        assert_eq!(answers.settle(&key, answer("first")), answer("first"));
        assert_eq!(answers.settle(&key, answer("second")), answer("first"));
        assert_eq!(answers.bytes, bytes_of(&key, &answer("first")));
    }
}
