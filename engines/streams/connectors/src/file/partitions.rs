//! `PARTITIONED BY`: which folder a row goes to, Hive-style: `dt=2026-01-01/hm=12%3A30`. The columns are in the folders' names
//! and not in the files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{concat_batches, partition};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use savanna_streams_api::{Result, StreamError, type_name};

/// What stands for NULL and for the empty text.
const NOTHING: &str = "__DEFAULT_PARTITION__";

/// Whether a folder's value stands for NULL, as we or Hive write it.
pub(crate) fn is_nothing(value: &str) -> bool {
    [NOTHING, "__HIVE_DEFAULT_PARTITION__"].contains(&value)
}

/// Cuts rows by folder.
#[derive(Debug)]
pub(crate) struct Partitions {
    names: Vec<String>,
    columns: Vec<usize>,
    /// The columns that are written, and their schema.
    written: Vec<usize>,
    schema: SchemaRef,
}

impl Partitions {
    /// By these columns; none for one folder, the table's own.
    pub(crate) fn new(by: &[String], schema: &Schema) -> Result<Self> {
        let mut columns = Vec::with_capacity(by.len());
        for name in by {
            let column = schema
                .index_of(name)
                .map_err(|_| StreamError::invalid(format!("PARTITIONED BY ({name}): the table has no such column")))?;
            let data_type = schema.field(column).data_type();
            if data_type.is_nested() || data_type.is_floating() {
                return Err(StreamError::invalid(format!(
                    "PARTITIONED BY ({name}): a folder cannot be named by {}; use text, whole numbers, dates or times",
                    type_name(data_type)
                )));
            }
            columns.push(column);
        }
        let written: Vec<usize> = (0..schema.fields().len()).filter(|column| !columns.contains(column)).collect();
        if written.is_empty() {
            return Err(StreamError::invalid(
                "PARTITIONED BY names all columns, so that none is left to write; leave one out",
            ));
        }
        let kept = schema.project(&written).map_err(|e| StreamError::Internal(e.to_string()))?;
        Ok(Self { names: by.to_vec(), columns, written, schema: Arc::new(kept) })
    }

    /// Whether all rows go to the table's own folder.
    pub(crate) fn is_one_folder(&self) -> bool {
        self.columns.is_empty()
    }

    /// The columns of the files.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows of each folder, without the columns that name it.
    pub(crate) fn cut(&self, rows: &[RecordBatch]) -> Result<BTreeMap<String, RecordBatch>> {
        let internal =
            |e: arrow::error::ArrowError| StreamError::Internal(format!("rows cannot be split by folder: {e}"));
        let mut cut: BTreeMap<String, Vec<RecordBatch>> = BTreeMap::new();
        for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
            let kept = self.written.iter().map(|column| Arc::clone(batch.column(*column))).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let kept = RecordBatch::try_new_with_options(Arc::clone(&self.schema), kept, &options).map_err(internal)?;
            if self.columns.is_empty() {
                cut.entry(String::new()).or_default().push(kept);
                continue;
            }
            let by: Vec<ArrayRef> = self.columns.iter().map(|column| Arc::clone(batch.column(*column))).collect();
            let options = FormatOptions::new().with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
            let texts =
                by.iter().map(|column| ArrayFormatter::try_new(column, &options)).collect::<Result<Vec<_>, _>>();
            let texts = texts.map_err(internal)?;
            // Neighbours mostly go to the same folder.
            for range in partition(&by).map_err(internal)?.ranges() {
                let mut folder = String::new();
                for ((name, text), column) in self.names.iter().zip(&texts).zip(&by) {
                    let value =
                        if column.is_null(range.start) { String::new() } else { text.value(range.start).to_string() };
                    if !folder.is_empty() {
                        folder.push('/');
                    }
                    escape(name, &mut folder);
                    folder.push('=');
                    escape(if value.is_empty() { NOTHING } else { &value }, &mut folder);
                }
                cut.entry(folder).or_default().push(kept.slice(range.start, range.len()));
            }
        }
        let whole = |(folder, batches): (String, Vec<RecordBatch>)| {
            Ok((folder, concat_batches(&self.schema, &batches).map_err(internal)?))
        };
        cut.into_iter().map(whole).collect()
    }
}

/// Writes a name or value so that it is one part of a path, as Hive does.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        if c.is_control() || "\"#%'*/:=?\\{}[]^".contains(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(out, "%{byte:02X}").expect("a string takes any text");
            }
        } else {
            out.push(c);
        }
    }
}

/// The name or value that a part of a path was made of. What is no escape stays as it is.
pub(crate) fn unescape(part: &str) -> String {
    let digits = |at: usize| part.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let mut bytes = Vec::with_capacity(part.len());
    let mut at = 0;
    while let Some(byte) = part.as_bytes().get(at) {
        let escaped = if *byte == b'%' { digits(at) } else { None };
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn schema() -> Schema {
        let text = |name| Field::new(name, DataType::Utf8View, true);
        Schema::new(vec![text("dt"), Field::new("n", DataType::Int64, true), text("hm")])
    }

    #[test]
    fn rows_are_cut_by_the_values_of_their_columns_which_are_left_out() {
        let partitions = Partitions::new(&["dt".into(), "hm".into()], &schema()).unwrap();
        let dt: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), Some("a"), None, Some("a")]));
        let hm: ArrayRef = Arc::new(StringViewArray::from(vec![Some("1:2"), Some("1:2"), Some(""), Some("1:2")]));
        let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
        let rows = RecordBatch::try_new(Arc::new(schema()), vec![dt, n, hm]).unwrap();
        let cut = partitions.cut(&[rows]).unwrap();
        let counts: Vec<(&str, usize)> = cut.iter().map(|(folder, rows)| (folder.as_str(), rows.num_rows())).collect();
        assert_eq!(counts, [("dt=__DEFAULT_PARTITION__/hm=__DEFAULT_PARTITION__", 1), ("dt=a/hm=1%3A2", 3)]);
        assert_eq!(cut["dt=a/hm=1%3A2"].schema(), Arc::new(schema().project(&[1]).unwrap()));
    }

    #[test]
    fn columns_that_cannot_name_a_folder_are_refused() {
        assert!(Partitions::new(&["x".into()], &schema()).unwrap_err().to_string().contains("no such column"));
        let all = Partitions::new(&["dt".into(), "n".into(), "hm".into()], &schema()).unwrap_err().to_string();
        assert!(all.contains("names all columns"), "{all}");
    }

    #[test]
    fn no_value_leads_out_of_the_directory() {
        let mut out = String::new();
        escape("../a=b\n", &mut out);
        assert_eq!(out, "..%2Fa%3Db%0A");
        assert_eq!(unescape(&out), "../a=b\n");
        assert_eq!(unescape("100%, %4, %zz, %C3%A4"), "100%, %4, %zz, ä");
    }
}
