//! Parquet: whole files, read by row group and column.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::{ColumnDef, varchar};
use savanna_streams_model::foreign::in_sql;

type Builder = ParquetRecordBatchReaderBuilder<File>;

fn open(path: &Path) -> Result<Builder> {
    let file = File::open(path).map_err(|e| StreamError::io(format!("open {}", path.display()), &e))?;
    Builder::try_new(file).map_err(|e| not_parquet(path, &e))
}

fn not_parquet(path: &Path, error: &dyn std::fmt::Display) -> StreamError {
    StreamError::Data {
        place: path.display().to_string(),
        message: format!("expected a Parquet file, got: {}", in_sql(&error.to_string())),
    }
}

/// How many rows each row group of a file has.
pub(crate) fn row_groups(path: &Path) -> Result<Vec<u64>> {
    let groups = open(path)?;
    Ok(groups.metadata().row_groups().iter().map(|g| u64::try_from(g.num_rows()).unwrap_or(0)).collect())
}

/// The columns of a file.
pub(crate) fn columns(path: &Path) -> Result<Vec<ColumnDef>> {
    let builder = open(path)?;
    let column = |field: &Arc<Field>| ColumnDef {
        name: field.name().clone(),
        data_type: with_varchar(field.data_type()),
        nullable: field.is_nullable(),
        computed: None,
    };
    Ok(builder.schema().fields().iter().map(column).collect())
}

/// The type with the engine's text type in place of others.
fn with_varchar(data_type: &DataType) -> DataType {
    let field = |f: &Arc<Field>| Arc::new(f.as_ref().clone().with_data_type(with_varchar(f.data_type())));
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => varchar(),
        DataType::Dictionary(_, values) => with_varchar(values),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::List(item) => DataType::List(field(item)),
        other => other.clone(),
    }
}

/// The rows of one row group.
pub(crate) struct ParquetRows {
    rows: ParquetRecordBatchReader,
    wanted: SchemaRef,
    place: String,
}

impl ParquetRows {
    /// Opens a row group after its first `skip` rows. `batch_rows` is the size of batches.
    pub(crate) fn open(path: &Path, group: usize, skip: u64, wanted: &SchemaRef, batch_rows: usize) -> Result<Self> {
        let builder = open(path)?;
        let schema = builder.parquet_schema();
        let mut leaves = Vec::new();
        for field in wanted.fields() {
            let before = leaves.len();
            for leaf in 0..schema.num_columns() {
                let column = schema.column(leaf);
                let path = column.path().parts();
                if is_wanted(path, field) {
                    leaves.push(leaf);
                }
            }
            if leaves.len() == before {
                let names = builder.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
                return Err(StreamError::Data {
                    place: path.display().to_string(),
                    message: format!(
                        "expected column {} {}, got a file with {names}; declare the columns that the file has",
                        field.name(),
                        type_name(field.data_type())
                    ),
                });
            }
        }
        let mask = ProjectionMask::leaves(schema, leaves);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let rows = builder
            .with_projection(mask)
            .with_row_groups(vec![group])
            .with_offset(skip)
            .with_batch_size(batch_rows.max(1))
            .build()
            .map_err(|e| not_parquet(path, &e))?;
        Ok(Self { rows, wanted: Arc::clone(wanted), place: path.display().to_string() })
    }

    /// The next rows, or none at the end of the row group.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(rows) = self.rows.next() else { return Ok(None) };
        let rows = rows.map_err(|e| self.error(&e))?;
        let columns = self.wanted.fields().iter().map(|field| {
            let column = rows.column_by_name(field.name()).ok_or_else(|| self.error(&"a column is missing"))?;
            fit(column, field.data_type()).map_err(|e| StreamError::Data {
                place: format!("{}, column {}", self.place, field.name()),
                message: format!("expected {}, got {e}", type_name(field.data_type())),
            })
        });
        let columns = columns.collect::<Result<_>>()?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns, &options)
            .map(Some)
            .map_err(|e| self.error(&e))
    }

    fn error(&self, cause: &dyn std::fmt::Display) -> StreamError {
        StreamError::Data {
            place: self.place.clone(),
            message: format!("the file cannot be read further: {}", in_sql(&cause.to_string())),
        }
    }
}

/// Whether the leaf at `path` lies in a field or in one of the fields inside it.
fn is_wanted(path: &[String], field: &Field) -> bool {
    match (path.split_first(), field.data_type()) {
        (Some((name, _)), _) if name != field.name() => false,
        (Some((_, rest)), DataType::Struct(fields)) => fields.iter().any(|field| is_wanted(rest, field)),
        (first, _) => first.is_some(),
    }
}

/// The column as the wanted type: fields by name, values cast.
fn fit(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    if let (DataType::Struct(_), DataType::Struct(fields)) = (column.data_type(), wanted) {
        return fit_row(column.as_struct(), fields);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, wanted, &options).map_err(|e| format!("{} ({e})", type_name(column.data_type())))
}

fn fit_row(row: &StructArray, fields: &Fields) -> Result<ArrayRef, String> {
    let columns = fields.iter().map(|field| {
        let column = row.column_by_name(field.name()).ok_or_else(|| format!("a ROW without {}", field.name()))?;
        fit(column, field.data_type())
    });
    let columns = columns.collect::<Result<_, _>>()?;
    let row = StructArray::try_new(fields.clone(), columns, row.nulls().cloned()).map_err(|e| e.to_string())?;
    Ok(Arc::new(row))
}

/// A writer of one file.
pub(crate) fn writer<W: Write + Send>(out: W, schema: &SchemaRef) -> Result<ArrowWriter<W>, String> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    ArrowWriter::try_new(out, Arc::clone(schema), Some(properties)).map_err(|e| e.to_string())
}

/// Writes rows as one file.
pub(crate) fn write<W: Write + Send>(out: W, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<W, String> {
    let text = |e: parquet::errors::ParquetError| e.to_string();
    let mut writer = writer(out, schema)?;
    for batch in rows {
        writer.write(batch).map_err(text)?;
    }
    writer.into_inner().map_err(text)
}
