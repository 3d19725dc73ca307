//! Rows to messages.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use arrow_avro::schema::{FingerprintStrategy, SCHEMA_METADATA_KEY};
use arrow_avro::writer::WriterBuilder;
use arrow_avro::writer::format::AvroSoeFormat;
use savanna_streams_api::{Result, StreamError, type_name};
use serde_json::{Value, json};

use crate::format::messages::Values;

/// The schema that rows of these columns are written with.
///
/// # Errors
/// Avro has no such name, or no such type.
pub(crate) fn schema(columns: &Schema) -> Result<String> {
    Ok(record("Row", columns.fields())?.to_string())
}

fn record(name: &str, fields: &Fields) -> Result<Value> {
    let field = |field: &FieldRef| -> Result<Value> {
        let of = format!("{name}_{}", field.name());
        if !is_name(field.name()) {
            return Err(StreamError::invalid(format!(
                "column {} cannot be written as Avro, whose names are letters, digits and '_' and do not begin with a digit; name it otherwise",
                field.name()
            )));
        }
        // One that may be NULL is NULL where it is read by a schema that has it, and was written with one that has not.
        Ok(match field.is_nullable() {
            true => json!({"name": field.name(), "type": nullable(&of, field)?, "default": null}),
            false => json!({"name": field.name(), "type": avro_type(&of, field.data_type())?}),
        })
    };
    let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(json!({"type": "record", "name": name, "namespace": "savanna", "fields": fields}))
}

fn nullable(name: &str, field: &Field) -> Result<Value> {
    let of = avro_type(name, field.data_type())?;
    Ok(if field.is_nullable() { json!(["null", of]) } else { of })
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn avro_type(name: &str, data_type: &DataType) -> Result<Value> {
    let logical = |of: &str, logical: &str| json!({"type": of, "logicalType": logical});
    Ok(match data_type {
        DataType::Boolean => json!("boolean"),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => json!("int"),
        DataType::Int64 => json!("long"),
        DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Utf8View => json!("string"),
        DataType::BinaryView => json!("bytes"),
        DataType::Date32 => logical("int", "date"),
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, _) => logical("long", "timestamp-millis"),
        DataType::Timestamp(TimeUnit::Microsecond, _) => logical("long", "timestamp-micros"),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => logical("long", "timestamp-nanos"),
        DataType::Decimal128(digits, scale) => {
            json!({"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale})
        }
        DataType::List(item) => json!({"type": "array", "items": nullable(name, item)?}),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(of) if of.len() == 2 && of[0].data_type() == &DataType::Utf8View => {
                json!({"type": "map", "values": nullable(name, &of[1])?})
            }
            _ => {
                return Err(StreamError::invalid(format!(
                    "a {} cannot be written as Avro, whose maps have texts for keys; cast the keys to VARCHAR",
                    type_name(data_type)
                )));
            }
        },
        DataType::Struct(fields) => record(name, fields)?,
        other => {
            return Err(StreamError::invalid(format!(
                "{} cannot be written as Avro; cast it to another type",
                type_name(other)
            )));
        }
    })
}

/// The type as what writes it takes it.
fn taken(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(taken(field.data_type())));
    match data_type {
        DataType::Int8 | DataType::Int16 => DataType::Int32,
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Timestamp(TimeUnit::Second, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone.clone()),
        DataType::List(item) => DataType::List(field(item)),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

/// Rows as messages of the schema that has this number.
///
/// # Errors
/// A row cannot be written.
pub(crate) fn values(rows: &RecordBatch, id: u32, schema: &str) -> Result<Values> {
    let failed = |e: &dyn std::fmt::Display| StreamError::invalid(format!("rows cannot be written as Avro: {e}"));
    let fields: Fields = (rows.schema_ref().fields().iter())
        .map(|field| Arc::new(field.as_ref().clone().with_data_type(taken(field.data_type()))))
        .collect();
    // What has no room is an error, and not NULL.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = (rows.columns().iter().zip(&fields))
        .map(|(column, field)| cast_with_options(column, field.data_type(), &options));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
    let of = Schema::new_with_metadata(fields, [(SCHEMA_METADATA_KEY.to_owned(), schema.to_owned())].into());
    let builder = WriterBuilder::new(of.clone()).with_fingerprint_strategy(FingerprintStrategy::Id(id));
    let mut encoder = builder.build_encoder::<AvroSoeFormat>().map_err(|e| failed(&e))?;
    let rows = crate::format::batch(&Arc::new(of), columns, rows.num_rows())?;
    encoder.encode(&rows).map_err(|e| failed(&e))?;
    let encoded = encoder.flush();
    let places = encoded.offsets().windows(2).map(|place| Some(place[0]..place[1])).collect();
    Ok(Values::new(encoded.bytes().to_vec(), places))
}
