//! Columns as Delta has them.

use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use savanna_streams_api::{Result, StreamError, type_name};
use serde_json::{Value, json};

/// The columns that are written.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// As Delta describes them: a struct.
    pub(super) described: Value,
    /// As they are in files.
    pub(super) stored: SchemaRef,
}

/// # Errors
/// Delta has no type for a column.
pub(super) fn of(schema: &Schema) -> Result<Columns> {
    let described = schema.fields().iter().map(|field| described(field)).collect::<Result<Vec<_>>>()?;
    let stored = schema.fields().iter().map(stored).collect::<Vec<FieldRef>>();
    Ok(Columns { described: json!({ "type": "struct", "fields": described }), stored: Arc::new(Schema::new(stored)) })
}

impl Columns {
    /// Rows as they are in files.
    pub(super) fn stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let failed =
            |e: arrow::error::ArrowError| StreamError::invalid(format!("rows cannot be written to Delta: {e}"));
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let column = |to: &FieldRef| match rows.column_by_name(to.name()) {
            Some(column) => cast_with_options(column, to.data_type(), &options),
            None => Ok(new_null_array(to.data_type(), rows.num_rows())),
        };
        let columns = self.stored.fields().iter().map(column).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        RecordBatch::try_new(Arc::clone(&self.stored), columns).map_err(failed)
    }
}

fn described(field: &Field) -> Result<Value> {
    let of = described_type(field.name(), field.data_type())?;
    Ok(json!({ "name": field.name(), "type": of, "nullable": field.is_nullable(), "metadata": {} }))
}

fn described_type(column: &str, of: &DataType) -> Result<Value> {
    Ok(match of {
        DataType::Boolean => json!("boolean"),
        DataType::Int8 => json!("byte"),
        DataType::Int16 => json!("short"),
        DataType::Int32 => json!("integer"),
        DataType::Int64 => json!("long"),
        DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Decimal128(digits, scale) => json!(format!("decimal({digits},{scale})")),
        DataType::Utf8View => json!("string"),
        DataType::BinaryView => json!("binary"),
        DataType::Date32 => json!("date"),
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond, _) => json!("timestamp"),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| described(field)).collect::<Result<Vec<_>>>()?;
            json!({ "type": "struct", "fields": fields })
        }
        DataType::List(item) => json!({
            "type": "array",
            "elementType": described_type(column, item.data_type())?,
            "containsNull": item.is_nullable(),
        }),
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return Err(StreamError::Internal("a map without entries".into()));
            };
            json!({
                "type": "map",
                "keyType": described_type(column, fields[0].data_type())?,
                "valueType": described_type(column, fields[1].data_type())?,
                "valueContainsNull": fields[1].is_nullable(),
            })
        }
        other => {
            return Err(StreamError::invalid(format!(
                "expected a type that Delta has in column {column}, got {}; CAST it (a TIMESTAMP(9) to TIMESTAMP(6))",
                type_name(other)
            )));
        }
    })
}

/// Times are instants of microseconds.
fn stored(field: &FieldRef) -> FieldRef {
    let of = match field.data_type() {
        DataType::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(stored).collect()),
        DataType::List(item) => DataType::List(stored(item)),
        DataType::Map(entries, sorted) => DataType::Map(stored(entries), *sorted),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(of))
}

/// Whether rows of some columns may be added to a table, by its own description of itself.
///
/// # Errors
/// Why they may not.
pub(super) fn fit(columns: &Value, table: &str) -> Result<(), String> {
    if table.contains("\"delta.invariants\"") {
        return Err("its columns have rules ('delta.invariants'), which are not looked at".into());
    }
    let table: Value = serde_json::from_str(table).map_err(|e| format!("its schema cannot be read ({e})"))?;
    let fields = |of: &Value| of["fields"].as_array().cloned().unwrap_or_default();
    let (written, there) = (fields(columns), fields(&table));
    for field in &written {
        let name = field["name"].as_str().unwrap_or_default();
        let Some(found) = there.iter().find(|found| found["name"] == field["name"]) else {
            return Err(format!("it has no column {name}; add it, or leave it out"));
        };
        if found["type"] != field["type"] && !fits_within(&field["type"], &found["type"]) {
            return Err(format!(
                "its column {name} is {}, and {} is written",
                told(&found["type"]),
                told(&field["type"])
            ));
        }
        if found["nullable"] == json!(false) && field["nullable"] != json!(false) {
            return Err(format!("its column {name} is NOT NULL; declare it so"));
        }
    }
    let needed =
        |field: &&Value| field["nullable"] == json!(false) && !written.iter().any(|w| w["name"] == field["name"]);
    match there.iter().find(needed) {
        Some(field) => Err(format!("its column {} is NOT NULL, and is not written", told(&field["name"]))),
        None => Ok(()),
    }
}

/// Whether a type is another one but for what may be NULL within it.
fn fits_within(written: &Value, there: &Value) -> bool {
    match (written, there) {
        (Value::Object(written), Value::Object(there)) => {
            let may_be = |of: &serde_json::Map<String, Value>, key: &str| of.get(key) != Some(&json!(false));
            let is_free = |key: &str| may_be(there, key) || !may_be(written, key);
            let free = ["nullable", "containsNull", "valueContainsNull"];
            free.iter().all(|key| is_free(key))
                && written
                    .iter()
                    .filter(|(key, _)| !free.contains(&key.as_str()) && *key != "metadata")
                    .all(|(key, value)| there.get(key).is_some_and(|found| fits_within(value, found)))
        }
        (Value::Array(written), Value::Array(there)) => {
            written.len() == there.len()
                && written.iter().zip(there).all(|(written, there)| fits_within(written, there))
        }
        _ => written == there,
    }
}

fn told(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(fields: Vec<Field>) -> Value {
        of(&Schema::new(fields)).unwrap().described
    }

    #[test]
    fn a_table_takes_columns_that_it_has_with_their_types() {
        let columns = described(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("l", DataType::List(Arc::new(Field::new("item", DataType::Int32, false))), true),
        ]);
        assert!(fit(&columns, &columns.to_string()).is_ok());
        let table = |fields: Vec<Field>| fit(&columns, &described(fields).to_string()).unwrap_err();
        let list = |nullable| DataType::List(Arc::new(Field::new("element", DataType::Int32, nullable)));
        let others = |n: Field, more: Vec<Field>| [vec![n, Field::new("l", list(true), true)], more].concat();
        let n = |of, nullable| Field::new("n", of, nullable);
        assert!(table(vec![n(DataType::Int64, true)]).contains("it has no column l"));
        assert!(
            table(others(n(DataType::Int32, true), vec![])).contains("its column n is integer, and long is written")
        );
        assert!(table(others(n(DataType::Int64, false), vec![])).contains("its column n is NOT NULL; declare it so"));
        let more = Field::new("more", DataType::Int8, false);
        assert!(table(others(n(DataType::Int64, true), vec![more])).contains("more is NOT NULL, and is not written"));
        let more = Field::new("more", DataType::Int8, true);
        assert!(fit(&columns, &described(others(n(DataType::Int64, true), vec![more])).to_string()).is_ok());
        // A list whose items are never NULL takes none that may be.
        let loose = described(vec![Field::new("l", list(true), true)]);
        assert!(fit(&loose, &described(vec![Field::new("l", list(false), true)]).to_string()).is_err());
    }

    #[test]
    fn types_without_a_counterpart_are_refused() {
        let nanos = Field::new("at", DataType::Timestamp(TimeUnit::Nanosecond, None), true);
        let error = of(&Schema::new(vec![nanos])).unwrap_err().to_string();
        assert!(error.contains("column at, got TIMESTAMP(9)") && error.contains("CAST it"), "{error}");
    }
}
