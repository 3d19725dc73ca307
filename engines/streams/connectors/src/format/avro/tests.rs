use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringViewArray, StructArray, TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema, SchemaRef, TimeUnit};
use proptest::prelude::*;
use savanna_streams_api::Result;

use super::read::{AvroDecoder, Known};
use super::{schema_of, write};
use crate::format::malformed::{Malformed, OnError};
use crate::format::messages::Messages;

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(name, of)| Field::new(*name, of.clone(), true)).collect::<Vec<_>>()))
}

/// A message of a schema.
fn message(id: u32, body: &[u8]) -> Vec<u8> {
    [&[0], id.to_be_bytes().as_slice(), body].concat()
}

fn all(values: &[Option<Vec<u8>>]) -> Messages {
    let mut messages = Messages::default();
    values.iter().enumerate().for_each(|(at, value)| messages.push(100 + at as i64, value.as_deref()));
    messages
}

fn read(
    wanted: &SchemaRef,
    on_error: OnError,
    schemas: &[(u32, &str)],
    values: &[Option<Vec<u8>>],
) -> Result<(RecordBatch, u64)> {
    let mut malformed = Malformed::of_messages(on_error, "topic t, partition 0,").unwrap();
    let known = |id: u32| -> Known {
        let found = schemas.iter().find(|(known, _)| *known == id).map(|(_, text)| Arc::from(*text));
        found.ok_or_else(|| format!("expected a schema that is known, got number {id}"))
    };
    let rows = AvroDecoder::new(wanted).rows(&all(values), &mut malformed, known)?;
    Ok((rows, malformed.skipped))
}

const OLD: &str =
    r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"gone","type":"string"}]}"#;
const NEW: &str = r#"{"type":"record","name":"r","fields":[{"name":"b","type":["null","string"],"default":null},{"name":"a","type":"long"}]}"#;

#[test]
fn columns_take_the_fields_of_their_names_whatever_schema_a_message_was_written_with() {
    let wanted = schema(&[("a", DataType::Int64), ("b", DataType::Utf8View)]);
    let values = [
        // a = 1, gone = "x"; b = "y", a = 300.
        Some(message(7, &[2, 2, b'x'])),
        Some(message(9, &[2, 2, b'y', 0xd8, 4])),
        None,
        Some(message(9, &[0, 3])),
        Some(message(7, &[5, 0])),
    ];
    let (rows, skipped) = read(&wanted, OnError::Fail, &[(7, OLD), (9, NEW)], &values).unwrap();
    let a: Vec<i64> = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    let b: Vec<_> = rows.column(1).as_string_view().iter().collect();
    assert_eq!((a, b, skipped), (vec![1, 300, -2, -3], vec![None, Some("y"), None, None], 0));
}

/// A whole number of Avro.
fn long(value: i64) -> Vec<u8> {
    let (mut rest, mut bytes) = (((value << 1) ^ (value >> 63)).cast_unsigned(), Vec::new());
    while rest > 0x7f {
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

#[test]
fn whole_numbers_that_floating_ones_would_round_are_malformed() {
    const LONG: &str = r#"{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}"#;
    for (to, whole) in [(DataType::Float64, 1_i64 << 53), (DataType::Float32, 1 << 24)] {
        let values = [whole, -whole, 0, whole + 2].map(|value| Some(message(7, &long(value))));
        let (rows, skipped) = read(&schema(&[("a", to.clone())]), OnError::Fail, &[(7, LONG)], &values).unwrap();
        assert_eq!((rows.num_rows(), skipped), (4, 0), "{to}");
        for other in [whole + 1, -whole - 1, i64::MAX] {
            let value = [Some(message(7, &long(other)))];
            let error = read(&schema(&[("a", to.clone())]), OnError::Fail, &[(7, LONG)], &value).unwrap_err();
            assert!(error.to_string().contains("has exactly, got one with too many digits"), "{other}: {error}");
        }
    }
}

#[test]
fn a_record_that_is_not_there_needs_none_of_its_fields() {
    const OUTER: &str = r#"{"type":"record","name":"r","fields":[{"name":"in","type":["null",
        {"type":"record","name":"s","fields":[{"name":"n","type":["null","long"]}]}]}]}"#;
    let fields: Fields = vec![Field::new("n", DataType::Int64, false)].into();
    let wanted = schema(&[("in", DataType::Struct(fields))]);
    let of = |bodies: &[&[u8]]| bodies.iter().map(|body| Some(message(7, body))).collect::<Vec<_>>();
    let (rows, _) = read(&wanted, OnError::Fail, &[(7, OUTER)], &of(&[&[0], &[2, 2, 6]])).unwrap();
    assert_eq!((rows.num_rows(), rows.column(0).null_count()), (2, 1));
    let error = read(&wanted, OnError::Fail, &[(7, OUTER)], &of(&[&[0], &[2, 0]])).unwrap_err().to_string();
    assert!(error.contains("offset 101") && error.contains("NOT NULL of n, got none"), "{error}");
}

#[test]
fn a_malformed_message_spoils_none_but_itself_and_is_told_with_its_offset() {
    let wanted = schema(&[("a", DataType::Int8), ("gone", DataType::Utf8View)]);
    let values = [
        Some(message(7, &[2, 2, b'x'])),
        // Too short, too long, of no schema, of an unknown one, a number without room, an endless number, a length that is negative.
        Some(message(7, &[2, 200])),
        Some(message(7, &[2, 0, 9])),
        Some(b"{\"a\":1}".to_vec()),
        Some(vec![0, 0]),
        Some(message(8, &[2, 0])),
        Some(message(7, &[0xd8, 4, 0])),
        Some(message(7, &[255; 20])),
        Some(message(7, &[2, 1])),
        Some(message(7, &[])),
        Some(message(7, &[4, 0])),
    ];
    let (rows, skipped) = read(&wanted, OnError::Skip, &[(7, OLD)], &values).unwrap();
    assert_eq!((rows.num_rows(), skipped), (2, 9));
    for (at, expected) in [
        (1, "expected one record of its schema"),
        (2, "got 8 bytes that are none, or more than one"),
        (3, "begins with the byte 123"),
        (4, "a message of 2 bytes"),
        (5, "got number 8"),
        (6, "column a: expected a value of TINYINT, got one that it has no room for"),
        (9, "expected one record"),
    ] {
        let error = read(
            &wanted,
            OnError::Fail,
            &[(7, OLD)],
            &[vec![values[0].clone(); at], vec![values[at].clone()]].concat(),
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(&format!("offset {}", 100 + at)), "{at}: {error}");
    }
    // A schema that is none, and a type that does not fit.
    for (text, expected) in [
        ("{", "which is none"),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}"#,
            "expected a field that fits TINYINT, got",
        ),
        (r#"{"type":"record","name":"r","fields":[{"name":"a","type":["int","string"]}]}"#, "got a union of several"),
    ] {
        let body: &[u8] = if text.contains('[') && text.contains("[\"int") { &[0, 2] } else { &[2, b'x'] };
        let error = read(&wanted, OnError::Fail, &[(7, text)], &[Some(message(7, body))]).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let strict: SchemaRef = Arc::new(Schema::new(vec![Field::new("b", DataType::Utf8View, false)]));
    let error = read(&strict, OnError::Fail, &[(9, NEW)], &[Some(message(9, &[0, 2]))]).unwrap_err().to_string();
    assert!(error.contains("column b: expected a value NOT NULL"), "{error}");
}

#[test]
fn symbols_identifiers_and_times_become_what_columns_are() {
    let of = r#"{"type":"record","name":"r","fields":[
        {"name":"e","type":{"type":"enum","name":"e","symbols":["A","B"]}},
        {"name":"u","type":{"type":"string","logicalType":"uuid"}},
        {"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"n","type":"long"},
        {"name":"m","type":{"type":"map","values":"int"}}]}"#;
    let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let mut body = vec![2, 72];
    body.extend_from_slice(uuid.as_bytes());
    // 1.5 s in microseconds, 2,000 ms, {"k": 1}.
    body.extend_from_slice(&[0xc0, 0x8d, 0xb7, 0x01, 0xa0, 0x1f, 2, 2, b'k', 2, 0]);
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let entries = Field::new(
        "entries",
        DataType::Struct(Fields::from(vec![
            Field::new("keys", DataType::Utf8View, false),
            Field::new("values", DataType::Int64, true),
        ])),
        false,
    );
    let wanted = schema(&[
        ("e", DataType::Utf8View),
        ("u", DataType::Utf8View),
        ("t", millis.clone()),
        ("n", millis),
        ("m", DataType::Map(Arc::new(entries), false)),
    ]);
    let (rows, _) = read(&wanted, OnError::Fail, &[(7, of)], &[Some(message(7, &body))]).unwrap();
    assert_eq!(rows.column(0).as_string_view().value(0), "B");
    assert_eq!(rows.column(1).as_string_view().value(0), uuid);
    let time =
        |column: usize| rows.column(column).as_any().downcast_ref::<TimestampMillisecondArray>().unwrap().value(0);
    assert_eq!((time(2), time(3)), (1_500, 2_000));
    assert_eq!(rows.column(4).as_map().values().as_primitive::<Int64Type>().values(), &[1]);
}

fn inner() -> Fields {
    Fields::from(vec![Field::new("x", DataType::Int64, true), Field::new("y", DataType::Utf8View, true)])
}

/// Rows of all kinds of columns.
fn rows(cells: &[(Option<i64>, Option<String>, Option<f64>)]) -> RecordBatch {
    let longs: Int64Array = cells.iter().map(|cell| cell.0).collect();
    let texts: StringViewArray = cells.iter().map(|cell| cell.1.as_deref()).collect();
    let small: Int32Array = cells.iter().map(|cell| cell.0.map(|n| n as i32)).collect();
    let bytes: BinaryViewArray = cells.iter().map(|cell| cell.1.as_deref().map(str::as_bytes)).collect();
    let doubles: Float64Array = cells.iter().map(|cell| cell.2).collect();
    let times: TimestampMillisecondArray = cells.iter().map(|cell| cell.0).collect();
    let decimals: Decimal128Array = cells.iter().map(|cell| cell.0.map(|n| i128::from(n % 1_000_000))).collect();
    let decimals = decimals.with_precision_and_scale(20, 3).unwrap();
    let records = StructArray::new(inner(), vec![Arc::new(longs.clone()) as ArrayRef, Arc::new(texts.clone())], None);
    let lists: ListArray =
        ListArray::from_iter_primitive::<Int64Type, _, _>(cells.iter().map(|cell| cell.0.map(|n| vec![Some(n), None])));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(longs)),
        ("s", Arc::new(texts)),
        ("i", Arc::new(small)),
        ("b", Arc::new(bytes)),
        ("d", Arc::new(doubles)),
        ("at", Arc::new(times)),
        ("money", Arc::new(decimals)),
        ("r", Arc::new(records)),
        ("l", Arc::new(lists)),
    ];
    let fields: Vec<Field> = columns.iter().map(|(name, of)| Field::new(*name, of.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, of)| of).collect()).unwrap()
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        cells in prop::collection::vec((prop::option::of(any::<i64>()), prop::option::of(".{0,5}"), prop::option::of(-1e9..1e9_f64)), 1..20),
    ) {
        let cells: Vec<_> = cells;
        let rows = rows(&cells);
        let schema = write::schema(rows.schema_ref()).unwrap();
        let written = write::values(&rows, 0x0102_0304, &schema).unwrap();
        let values: Vec<_> = (0..rows.num_rows()).map(|row| written.of(row).map(<[u8]>::to_vec)).collect();
        prop_assert!(values.iter().flatten().all(|value| schema_of(value) == Ok(0x0102_0304)));
        let (again, _) = read(rows.schema_ref(), OnError::Fail, &[(0x0102_0304, &schema)], &values).unwrap();
        prop_assert_eq!(again, rows);
    }

    /// Nobody panics, and nobody takes memory that the bytes do not have.
    #[test]
    fn any_bytes_are_rows_or_malformed(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..8)) {
        let rows = rows(&[(Some(1), Some("x".into()), None)]);
        let schema = write::schema(rows.schema_ref()).unwrap();
        let values: Vec<_> = bodies.iter().map(|body| Some(message(7, body))).collect();
        let (read, skipped) = read(rows.schema_ref(), OnError::Skip, &[(7, &schema)], &values).unwrap();
        prop_assert_eq!(read.num_rows() as u64 + skipped, values.len() as u64);
    }
}

#[test]
fn what_avro_has_no_name_or_type_for_is_refused() {
    let refused = |name: &str, of: DataType| {
        write::schema(&Schema::new(vec![Field::new(name, of, true)])).unwrap_err().to_string()
    };
    assert!(refused("a b", DataType::Int64).contains("name it otherwise"));
    assert!(refused("1a", DataType::Int64).contains("name it otherwise"));
    assert!(
        refused("a", DataType::Interval(arrow::datatypes::IntervalUnit::YearMonth))
            .contains("cannot be written as Avro")
    );
}
