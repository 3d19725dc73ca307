//! Rows as `COPY .. FROM STDIN` takes them: a line for each, with tabs between the values.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringViewArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Date32Type, Field, Float32Type, Float64Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use savanna_streams_api::{Result, StreamError, json};

use super::columns::is_plain;

/// How many bytes are handed over at a time, about.
const CHUNK: usize = 256 << 10;
const SECONDS_OF_DAY: i64 = 86_400;

/// Appends the value of a row, which is not NULL, as the text that PostgreSQL reads.
type Write1<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

/// The lines of some rows, in portions.
pub(super) fn lines(rows: &RecordBatch, mut take: impl FnMut(Vec<u8>)) -> Result<()> {
    let (schema, columns) = (rows.schema_ref(), rows.columns().iter());
    let fields = || schema.fields().iter();
    let prepare = |(column, field): (_, &Arc<Field>)| prepared(column).map_err(|error| unwritable(field, error));
    let prepared: Vec<ArrayRef> = columns.zip(fields()).map(prepare).collect::<Result<_>>()?;
    let writer = |(column, field): (_, &Arc<Field>)| writer(column).map_err(|error| unwritable(field, error));
    let writers: Vec<Write1<'_>> = prepared.iter().zip(fields()).map(writer).collect::<Result<_>>()?;
    let (mut lines, mut value) = (Vec::new(), Vec::new());
    for row in 0..rows.num_rows() {
        for (at, (column, write)) in prepared.iter().zip(&writers).enumerate() {
            if at > 0 {
                lines.push(b'\t');
            }
            if column.is_null(row) {
                lines.extend_from_slice(b"\\N");
                continue;
            }
            value.clear();
            write(row, &mut value);
            if value.contains(&0) {
                return Err(StreamError::Data {
                    place: format!("column {}", schema.field(at).name()),
                    message: "expected a text without a character of code 0, which PostgreSQL does not hold, got one; take it out, such as with \
                              REPLACE"
                        .into(),
                });
            }
            escape(&value, &mut lines);
        }
        lines.push(b'\n');
        if lines.len() >= CHUNK {
            take(std::mem::take(&mut lines));
        }
    }
    if !lines.is_empty() {
        take(lines);
    }
    Ok(())
}

/// The values of a column without NULLs, as the texts that PostgreSQL reads.
pub(super) fn texts(column: &ArrayRef) -> Result<StringViewArray, ArrowError> {
    let column = prepared(column)?;
    let write = writer(&column)?;
    let (mut texts, mut value) = (Vec::with_capacity(column.len()), Vec::new());
    for row in 0..column.len() {
        value.clear();
        write(row, &mut value);
        texts.push(String::from_utf8_lossy(&value).into_owned());
    }
    Ok(StringViewArray::from_iter_values(texts))
}

fn unwritable(field: &Field, error: ArrowError) -> StreamError {
    match error {
        ArrowError::ArithmeticOverflow(told) => StreamError::Data {
            place: format!("column {}", field.name()),
            message: format!(
                "expected an instant of the years 4713 BC to 294276, which PostgreSQL holds, got another one ({told}); leave such rows out"
            ),
        },
        error => StreamError::Internal(format!("column {} cannot be written as text: {error}", field.name())),
    }
}

/// A value as it stands in a line.
fn escape(value: &[u8], line: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            byte => line.push(*byte),
        }
    }
}

/// A column in one of the types that [`writer`] knows.
fn prepared(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::List(of) if is_plain(of.data_type()) => Ok(ArrayRef::clone(column)),
        of if of.is_nested() => Ok(Arc::new(json::texts(column)?)),
        DataType::Timestamp(_, zone) => {
            // An instant that is too far away is an error, and not NULL.
            let strictly = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(column, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()), &strictly)
        }
        _ => Ok(ArrayRef::clone(column)),
    }
}

fn writer<'a>(column: &'a ArrayRef) -> Result<Write1<'a>, ArrowError> {
    Ok(match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean();
            Box::new(|row, out| out.push(if values.value(row) { b't' } else { b'f' }))
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            Box::new(|row, out| float(values.value(row), f64::from(values.value(row)), out))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            Box::new(|row, out| float(values.value(row), values.value(row), out))
        }
        DataType::Utf8View => {
            let values = column.as_string_view();
            Box::new(|row, out| out.extend_from_slice(values.value(row).as_bytes()))
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            Box::new(|row, out| out.extend_from_slice(values.value(row).as_bytes()))
        }
        DataType::BinaryView => {
            let values = column.as_binary_view();
            Box::new(|row, out| bytes(values.value(row), out))
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            Box::new(|row, out| bytes(values.value(row), out))
        }
        DataType::Date32 => {
            let values = column.as_primitive::<Date32Type>();
            Box::new(|row, out| day(i64::from(values.value(row)), format_args!(""), out))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let zone = if zone.is_some() { "+00" } else { "" };
            let values = cast(column, &DataType::Int64)?;
            Box::new(move |row, out| instant(values.as_primitive::<Int64Type>().value(row), zone, out))
        }
        DataType::List(_) => {
            let values = column.as_list::<i32>();
            let (elements, offsets) = (prepared(values.values())?, values.value_offsets());
            // Elements have no others inside, so their texts are made one by one.
            Box::new(move |row, out| array(&elements, offsets[row] as usize..offsets[row + 1] as usize, out))
        }
        _ => {
            static PLAIN: FormatOptions<'static> = FormatOptions::new();
            let values = ArrayFormatter::try_new(column.as_ref(), &PLAIN)?;
            // Memory takes all that is written.
            Box::new(move |row, out| write!(out, "{}", values.value(row)).unwrap_or_default())
        }
    })
}

/// The shortest text that gives the same number again.
fn float(shown: impl fmt::Display, value: f64, out: &mut Vec<u8>) {
    let special = match value {
        value if value.is_nan() => "NaN",
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => return write!(out, "{shown}").unwrap_or_default(),
    };
    out.extend_from_slice(special.as_bytes());
}

fn bytes(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    out.extend(value.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

/// `{"a","b",NULL}`
fn array(elements: &ArrayRef, range: std::ops::Range<usize>, out: &mut Vec<u8>) {
    // Their type was looked at when the column was.
    let Ok(write) = writer(elements) else { return };
    let mut value = Vec::new();
    out.push(b'{');
    for (at, row) in range.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if elements.is_null(row) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        value.clear();
        write(row, &mut value);
        out.push(b'"');
        for byte in &value {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(*byte);
        }
        out.push(b'"');
    }
    out.push(b'}');
}

/// An instant in microseconds since 1970.
fn instant(micros: i64, zone: &str, out: &mut Vec<u8>) {
    let seconds = micros.div_euclid(1_000_000);
    let (second, fraction) = (seconds.rem_euclid(SECONDS_OF_DAY), micros.rem_euclid(1_000_000));
    let (hours, minutes, second) = (second / 3600, second / 60 % 60, second % 60);
    let time = format_args!(" {hours:02}:{minutes:02}:{second:02}.{fraction:06}{zone}");
    day(seconds.div_euclid(SECONDS_OF_DAY), time, out);
}

/// A day, counted from 1970, and its time. Years before 1 are counted back, as PostgreSQL does.
fn day(days: i64, time: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    let (year, month, day) = date(days);
    let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    write!(out, "{shown:04}-{month:02}-{day:02}{time}{era}").unwrap_or_default();
}

/// Year, month and day of a number of days since 1970 (Howard Hinnant's `civil_from_days`).
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListArray,
        StringViewArray, StructArray, TimestampMillisecondArray,
    };
    use arrow::datatypes::Schema;

    use super::*;

    fn text(columns: Vec<ArrayRef>) -> String {
        let field = |(at, column): (usize, &ArrayRef)| Field::new(format!("c{at}"), column.data_type().clone(), true);
        let schema = Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>());
        let mut text = Vec::new();
        lines(&RecordBatch::try_new(Arc::new(schema), columns).unwrap(), |portion| text.extend(portion)).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn values_stand_as_postgresql_reads_them() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(-5), None])),
            Arc::new(BooleanArray::from(vec![true, false])),
            Arc::new(StringViewArray::from(vec!["a\tb\\N\n\r", ""])),
            Arc::new(BinaryViewArray::from(vec![&b"\x00\xfe"[..], b""])),
            Arc::new(Decimal128Array::from(vec![-1, 1_234_567]).with_precision_and_scale(20, 2).unwrap()),
        ];
        assert_eq!(text(columns), "-5\tt\ta\\tb\\\\N\\n\\r\t\\\\x00fe\t-0.01\n\\N\tf\t\t\\\\x\t12345.67\n");
        let floats = [0.1, -0.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let shown = text(vec![Arc::new(Float64Array::from(floats.to_vec()))]);
        assert!(shown.starts_with("0.1\n-0\n1000") && shown.ends_with("NaN\nInfinity\n-Infinity\n"), "{shown}");
    }

    #[test]
    fn times_stand_as_postgresql_reads_them() {
        let dates = vec![0, 19_782, -1, -719_162, -719_163, -719_529, 2_932_897];
        assert_eq!(
            text(vec![Arc::new(Date32Array::from(dates))]),
            "1970-01-01\n2024-02-29\n1969-12-31\n0001-01-01\n0001-12-31 BC\n0002-12-31 BC\n10000-01-01\n"
        );
        assert_eq!(
            text(vec![Arc::new(Date32Array::from(vec![i32::MAX, i32::MIN]))]),
            "5881580-07-11\n5877642-06-23 BC\n",
            "PostgreSQL refuses them"
        );
        let times = TimestampMillisecondArray::from(vec![-1, 1_700_000_000_123]);
        assert_eq!(
            text(vec![Arc::new(times.clone()), Arc::new(times.with_timezone("UTC"))]),
            "1969-12-31 23:59:59.999000\t1969-12-31 23:59:59.999000+00\n\
             2023-11-14 22:13:20.123000\t2023-11-14 22:13:20.123000+00\n"
        );
    }

    #[test]
    fn an_instant_that_microseconds_do_not_hold_is_refused_with_its_column() {
        let far = TimestampMillisecondArray::from(vec![Some(0), Some(i64::MAX)]);
        let within = ListArray::new(
            Arc::new(Field::new_list_field(far.data_type().clone(), true)),
            arrow::buffer::OffsetBuffer::new(vec![0, 2].into()),
            Arc::new(far.clone()),
            None,
        );
        for column in [Arc::new(far) as ArrayRef, Arc::new(within)] {
            let rows = RecordBatch::try_from_iter([("at", column)]).unwrap();
            let error = lines(&rows, |_| {}).unwrap_err();
            assert!(matches!(error, StreamError::Data { .. }), "{error:?}");
            let error = error.to_string();
            assert!(error.contains("column at") && error.contains("9223372036854775807"), "{error}");
        }
    }

    #[test]
    fn values_of_values_are_arrays_and_json() {
        let texts = StringViewArray::from(vec![Some("a\"b\\"), None, Some("NULL")]);
        let field = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let list =
            ListArray::new(field, arrow::buffer::OffsetBuffer::new(vec![0, 2, 3, 3].into()), Arc::new(texts), None);
        assert_eq!(text(vec![Arc::new(list)]), "{\"a\\\\\"b\\\\\\\\\",NULL}\n{\"NULL\"}\n{}\n");
        let inner: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let row = StructArray::from(vec![(Arc::new(Field::new("x", DataType::Int64, true)), inner)]);
        assert_eq!(text(vec![Arc::new(row)]), "{\"x\":1}\n{\"x\":null}\n");
    }

    #[test]
    fn a_text_that_postgresql_does_not_hold_is_refused_with_its_column() {
        let field = Field::new("note", DataType::Utf8View, true);
        let column: ArrayRef = Arc::new(StringViewArray::from(vec!["a\0b"]));
        let rows = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap();
        let error = lines(&rows, |_| {}).unwrap_err().to_string();
        assert!(error.contains("column note") && error.contains("character of code 0"), "{error}");
    }
}
