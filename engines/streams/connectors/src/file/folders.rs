//! Reading what was written `PARTITIONED BY`: columns whose values are in the names of folders, `dt=2026-01-01/hm=12%3A30`.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray, new_null_array,
};
use arrow::compute::{CastOptions, cast, cast_with_options, take};
use arrow::datatypes::{Field, Schema, SchemaRef};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::source::{EqualTo, Literal};

use super::partitions::{is_nothing, unescape};

/// The columns of folders that a scan reads.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    /// The table's directory.
    root: String,
    /// The columns that name folders, outermost first.
    names: Vec<String>,
    /// What the scan gives.
    wanted: SchemaRef,
}

impl Folders {
    pub(crate) fn new(root: &str, names: &[String], wanted: SchemaRef) -> Self {
        Self { root: root.to_owned(), names: names.to_vec(), wanted }
    }

    /// A schema without the columns of folders: what is in the files.
    pub(crate) fn in_files(&self, schema: &Schema) -> SchemaRef {
        let kept = schema.fields().iter().filter(|field| !self.names.contains(field.name()));
        Arc::new(Schema::new(kept.cloned().collect::<Vec<_>>()))
    }

    /// What the folders of a file say: by column of the scan one value, or none if it is in the file.
    ///
    /// # Errors
    /// The folders have other names, or a value does not fit its column.
    pub(crate) fn values(&self, file: &Path) -> Result<FolderValues> {
        let wrong = |expected: String, got: &str| StreamError::Data {
            place: file.display().to_string(),
            message: format!("expected {expected}, got {got}"),
        };
        let inside = file.strip_prefix(&self.root).unwrap_or(file).parent().unwrap_or_else(|| Path::new(""));
        let parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let named = |(name, part): (&String, &String)| {
            let (of, value) = part.split_once('=')?;
            (unescape(of) == *name).then(|| unescape(value))
        };
        let texts: Option<Vec<String>> = self.names.iter().zip(&parts).map(named).collect();
        let texts = texts.filter(|_| parts.len() == self.names.len());
        let texts = texts.ok_or_else(|| {
            let folders = self.names.iter().map(|name| format!("{name}=<value>")).collect::<Vec<_>>().join("/");
            wrong(format!("a file in folders {folders}"), &format!("one in '{}'", inside.display()))
        })?;
        let value = |field: &Arc<Field>| {
            let Some(at) = self.names.iter().position(|name| name == field.name()) else { return Ok(None) };
            let text = &texts[at];
            let expected = || format!("{} {}", field.name(), type_name(field.data_type()));
            if is_nothing(text) {
                return match field.is_nullable() {
                    true => Ok(Some(new_null_array(field.data_type(), 1))),
                    false => Err(wrong(format!("{} NOT NULL", expected()), text)),
                };
            }
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let value = cast_with_options(&StringArray::from(vec![text.as_str()]), field.data_type(), &options);
            value.map(Some).map_err(|_| wrong(expected(), &format!("'{text}'")))
        };
        let values = self.wanted.fields().iter().map(value).collect::<Result<_>>()?;
        Ok(FolderValues { values, wanted: Arc::clone(&self.wanted) })
    }
}

/// The values of the folders of one file.
#[derive(Debug)]
pub(crate) struct FolderValues {
    values: Vec<Option<ArrayRef>>,
    wanted: SchemaRef,
}

impl FolderValues {
    /// Whether conditions on columns of the folders hold.
    pub(crate) fn meet(&self, conditions: &[EqualTo]) -> bool {
        conditions.iter().all(|condition| {
            let column = condition.path.0.first().and_then(|name| self.wanted.index_of(name).ok());
            let value = column.and_then(|column| self.values[column].as_ref());
            value.is_some_and(|value| equals(value, &condition.value))
        })
    }

    /// Rows of the file, with the columns of its folders among theirs.
    pub(crate) fn complete(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let internal = |e: arrow::error::ArrowError| StreamError::Internal(format!("a folder's columns: {e}"));
        let all = arrow::array::UInt32Array::from(vec![0; count]);
        let mut read = rows.columns().iter();
        let column = |value: &Option<ArrayRef>| match value {
            Some(value) => take(value, &all, None).map_err(internal),
            None => read.next().map(Arc::clone).ok_or_else(|| StreamError::Internal("a file lacks a column".into())),
        };
        let columns = self.values.iter().map(column).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns, &options).map_err(internal)
    }
}

/// Whether a folder's value is this one; NULL is none.
fn equals(value: &ArrayRef, literal: &Literal) -> bool {
    let literal: ArrayRef = match literal {
        Literal::Integer(number) => Arc::new(Int64Array::from(vec![*number])),
        Literal::Text(text) => Arc::new(StringArray::from(vec![text.as_str()])),
        Literal::Boolean(truth) => Arc::new(BooleanArray::from(vec![*truth])),
    };
    value.is_valid(0) && cast(&literal, value.data_type()).is_ok_and(|literal| *literal == **value)
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Int64Type};

    use super::*;

    fn folders() -> Folders {
        let field = |name, data_type| Field::new(name, data_type, true);
        let wanted = Schema::new(vec![
            field("hm", DataType::Utf8View),
            field("n", DataType::Int64),
            field("y", DataType::Int64),
        ]);
        Folders::new("/data", &["y".into(), "hm".into()], Arc::new(wanted))
    }

    #[test]
    fn rows_get_the_values_that_their_folders_are_named_by() {
        let folders = folders();
        assert_eq!(folders.in_files(&folders.wanted), Arc::new(folders.wanted.project(&[1]).unwrap()));
        let n: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let rows = RecordBatch::try_from_iter_with_nullable([("n", n, true)]).unwrap();
        let values = folders.values(Path::new("/data/y=2026/hm=12%3A30/part.csv")).unwrap();
        let rows = values.complete(&rows).unwrap();
        assert_eq!(rows.column(0).as_string_view().iter().collect::<Vec<_>>(), [Some("12:30"); 2]);
        assert_eq!(rows.column(2).as_primitive::<Int64Type>().values(), &[2026, 2026]);
        let values = folders.values(Path::new("/data/y=__DEFAULT_PARTITION__/hm=a/part.csv")).unwrap();
        assert_eq!(values.values[2].as_ref().unwrap().null_count(), 1);
    }

    #[test]
    fn conditions_are_on_the_values_of_folders() {
        let meets = |file: &str, column: &str, value| {
            let path = savanna_streams_model::source::FieldPath(vec![column.into()]);
            folders().values(Path::new(file)).unwrap().meet(&[EqualTo { path, value }])
        };
        let file = "/data/y=2026/hm=12%3A30/part.csv";
        assert!(meets(file, "hm", Literal::Text("12:30".into())));
        assert!(!meets(file, "hm", Literal::Text("12%3A30".into())));
        assert!(meets(file, "y", Literal::Integer(2026)) && !meets(file, "y", Literal::Integer(2025)));
        let nothing = "/data/y=__DEFAULT_PARTITION__/hm=a/part.csv";
        assert!(!meets(nothing, "y", Literal::Integer(0)));
    }

    #[test]
    fn folders_that_do_not_fit_the_table_are_told() {
        for (file, what) in [
            ("/data/y=2026/part.csv", "expected a file in folders y=<value>/hm=<value>, got one in 'y=2026'"),
            ("/data/hm=a/y=2026/part.csv", "got one in 'hm=a/y=2026'"),
            ("/data/y=no/hm=a/part.csv", "expected y BIGINT, got 'no'"),
        ] {
            let error = folders().values(Path::new(file)).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
