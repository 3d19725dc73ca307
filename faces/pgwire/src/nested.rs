//! Values inside of values. An array of plain values is an array of PostgreSQL; a `ROW`, a `MAP` and whatever holds one are
//! `json`: PostgreSQL has no maps, and its text for rows tells neither names nor types.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::error::ArrowError;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use savanna_streams_api::json;

/// Whether values of this type travel as `json`.
pub(crate) fn is_json(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_nested()
        }
        other => other.is_nested(),
    }
}

/// A result's columns, with texts for those that travel as `json`.
pub(crate) fn with_texts(schema: &Schema) -> SchemaRef {
    let text = |field: &Arc<Field>| match is_json(field.data_type()) {
        true => Arc::new(Field::new(field.name(), DataType::Utf8, field.is_nullable())),
        false => Arc::clone(field),
    };
    Arc::new(Schema::new(schema.fields().iter().map(text).collect::<Vec<_>>()))
}

/// Rows with the columns of [`with_texts`].
pub(crate) fn as_texts(rows: RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !rows.schema_ref().fields().iter().any(|field| is_json(field.data_type())) {
        return Ok(rows);
    }
    let text = |column: &ArrayRef| -> Result<ArrayRef, ArrowError> {
        Ok(match is_json(column.data_type()) {
            true => Arc::new(json::texts(column)?),
            false => Arc::clone(column),
        })
    };
    let columns = rows.columns().iter().map(text).collect::<Result<_, _>>()?;
    RecordBatch::try_new(with_texts(rows.schema_ref()), columns)
}
