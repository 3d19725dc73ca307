//! Rows as JSON, the same wherever JSON leaves Savanna: NULLs are written as `null`, times as ISO 8601, bytes as hexadecimal
//! digits, a `ROW` or `MAP` as an object. JSON has names of text only, so a map's keys are written as text. Its numbers are
//! finite, so NaN and the infinities are written as texts: `"NaN"`, `"Infinity"`, `"-Infinity"`.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::json::writer::{
    Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, WriterBuilder, make_encoder,
};

/// Writes one object per row and line.
///
/// # Errors
/// A column has a type that JSON cannot hold, or `out` fails.
pub fn write_lines<'a, W: Write>(out: W, batches: impl IntoIterator<Item = &'a RecordBatch>) -> Result<W, ArrowError> {
    let writer = WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(FloatsInFull));
    let mut writer = writer.build::<_, LineDelimited>(out);
    for batch in batches {
        writer.write(&with_names_of_text(batch)?)?;
    }
    writer.finish()?;
    Ok(writer.into_inner())
}

/// The values of a column, each as a JSON text; NULL stays NULL.
///
/// # Errors
/// The column has a type that JSON cannot hold.
pub fn texts(column: &ArrayRef) -> Result<StringArray, ArrowError> {
    let column = cast_if_other(column, &named_by_text(column.data_type()))?;
    let field: FieldRef = Arc::new(Field::new("value", column.data_type().clone(), true));
    let options = EncoderOptions::default().with_explicit_nulls(true).with_encoder_factory(Arc::new(FloatsInFull));
    let mut encoder = make_encoder(&field, column.as_ref(), &options)?;
    let mut text = |row| {
        let mut text = Vec::new();
        encoder.encode(row, &mut text);
        String::from_utf8(text).map_err(|e| ArrowError::JsonError(e.to_string()))
    };
    (0..column.len()).map(|row| column.is_valid(row).then(|| text(row)).transpose()).collect()
}

/// Encodes floating-point numbers that are none of JSON's as texts; arrow would make `null` of them.
#[derive(Debug)]
struct FloatsInFull;

impl EncoderFactory for FloatsInFull {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let values: Box<dyn Fn(usize) -> f64 + 'a> = match array.data_type() {
            DataType::Float32 => {
                let floats = array.as_primitive::<Float32Type>();
                Box::new(|row| floats.value(row).into())
            }
            DataType::Float64 => {
                let floats = array.as_primitive::<Float64Type>();
                Box::new(|row| floats.value(row))
            }
            _ => return Ok(None),
        };
        static PLAIN: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);
        let finite = make_encoder(field, array, &PLAIN)?;
        Ok(Some(NullableEncoder::new(Box::new(Float { values, finite }), array.nulls().cloned())))
    }
}

struct Float<'a> {
    values: Box<dyn Fn(usize) -> f64 + 'a>,
    finite: NullableEncoder<'a>,
}

impl Encoder for Float<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = (self.values)(row);
        match value {
            _ if value.is_finite() => self.finite.encode(row, out),
            _ if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
            _ if value > 0.0 => out.extend_from_slice(b"\"Infinity\""),
            _ => out.extend_from_slice(b"\"-Infinity\""),
        }
    }
}

fn with_names_of_text(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema_ref();
    if !schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let fields: Vec<FieldRef> = schema.fields().iter().map(field_named_by_text).collect();
    let columns = batch.columns().iter().zip(&fields).map(|(column, field)| cast_if_other(column, field.data_type()));
    RecordBatch::try_new(Arc::new(Schema::new(fields.clone())), columns.collect::<Result<_, _>>()?)
}

fn cast_if_other(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == wanted { Ok(Arc::clone(column)) } else { cast(column, wanted) }
}

/// A type with texts for the keys of all maps in it.
fn named_by_text(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(field_named_by_text(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field_named_by_text).collect()),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(entry) if entry.len() == 2 => {
                let (key, value) = (&entry[0], field_named_by_text(&entry[1]));
                let key = if key.data_type().is_string() { Arc::clone(key) } else { with_type(key, DataType::Utf8) };
                DataType::Map(with_type(entries, DataType::Struct(vec![key, value].into())), *sorted)
            }
            _ => data_type.clone(),
        },
        other => other.clone(),
    }
}

fn field_named_by_text(field: &FieldRef) -> FieldRef {
    with_type(field, named_by_text(field.data_type()))
}

fn with_type(field: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int32Array, Int64Builder, ListArray, MapBuilder, StringBuilder, StructArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    /// `{7: 'x', -1: NULL}`, NULL, `{}`
    fn map() -> ArrayRef {
        let mut map = MapBuilder::new(None, Int64Builder::new(), StringBuilder::new());
        map.keys().append_value(7);
        map.values().append_value("x");
        map.keys().append_value(-1);
        map.values().append_null();
        map.append(true).unwrap();
        map.append(false).unwrap();
        map.append(true).unwrap();
        Arc::new(map.finish())
    }

    fn row_of(name: &str, column: ArrayRef) -> ArrayRef {
        let field = Arc::new(Field::new(name, column.data_type().clone(), true));
        Arc::new(StructArray::from(vec![(field, column)]))
    }

    fn lines(column: ArrayRef) -> String {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        String::from_utf8(write_lines(Vec::new(), [&batch]).unwrap()).unwrap()
    }

    #[test]
    fn the_keys_of_a_map_are_written_as_text_however_deep_it_lies() {
        let expected = "{\"c\":{\"7\":\"x\",\"-1\":null}}\n{\"c\":null}\n{\"c\":{}}\n";
        assert_eq!(lines(map()), expected);
        let expected = "{\"c\":{\"m\":{\"7\":\"x\",\"-1\":null}}}\n{\"c\":{\"m\":null}}\n{\"c\":{\"m\":{}}}\n";
        assert_eq!(lines(row_of("m", map())), expected);
    }

    #[test]
    fn numbers_that_json_does_not_have_are_texts() {
        let numbers =
            Float64Array::from(vec![Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(1.5), None]);
        let expected = "{\"c\":\"NaN\"}\n{\"c\":\"Infinity\"}\n{\"c\":\"-Infinity\"}\n{\"c\":1.5}\n{\"c\":null}\n";
        assert_eq!(lines(Arc::new(numbers)), expected);
        let list = ListArray::from_iter_primitive::<Float32Type, _, _>([Some(vec![Some(f32::NAN), Some(2.0), None])]);
        assert_eq!(lines(row_of("m", Arc::new(list))), "{\"c\":{\"m\":[\"NaN\",2.0,null]}}\n");
    }

    #[test]
    fn values_are_texts_of_their_own_and_null_stays_null() {
        let numbers = Int32Array::from(vec![Some(1), None]);
        let row = row_of("a", Arc::new(numbers));
        assert_eq!(texts(&row).unwrap(), StringArray::from(vec![r#"{"a":1}"#, r#"{"a":null}"#]));
        let list: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]));
        assert_eq!(texts(&list).unwrap(), StringArray::from(vec![Some("[1,null]"), None]));
        assert_eq!(texts(&map()).unwrap(), StringArray::from(vec![Some(r#"{"7":"x","-1":null}"#), None, Some("{}")]));
    }
}
