//! Times as text and numbers: `DATE_FORMAT`, `TO_TIMESTAMP`, `TO_TIMESTAMP_LTZ`, `TO_DATE`, `UNIX_TIMESTAMP` and
//! `FROM_UNIXTIME`, with the patterns of Java, as streaming SQL has it. (DataFusion's functions of these names take strftime
//! patterns and would return a Java pattern as it stands.)

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::calendar::SECOND;
use super::definition::{Call, Definition, Texts, bigint, text, wrong_types};
use super::pattern::{DEFAULT, Pattern};

const TEXT: DataType = DataType::Utf8View;
const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const TIMESTAMP_3: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let texts: [&[DataType]; 2] = [&[TEXT], &[TEXT, TEXT]];
    let numbers: [&[DataType]; 2] = [&[DataType::Int64], &[DataType::Int64, TEXT]];
    let instants: [&[DataType]; 4] = [&[DataType::Int64], &[DataType::Int64, DataType::Int64], &[TEXT], &[TEXT, TEXT]];
    vec![
        Definition::any("date_format", 2, date_format_type, |call| {
            let times = cast(&call.column(0)?, &MICROS)?;
            format("DATE_FORMAT", times.as_primitive(), &call.texts(1)?)
        }),
        Definition::exact("to_timestamp", &texts, |_| Ok(TIMESTAMP_3), |call| read("TO_TIMESTAMP", call, &TIMESTAMP_3)),
        Definition::exact("to_timestamp_ltz", &instants, |_| Ok(timestamp_ltz()), to_timestamp_ltz),
        Definition::exact("to_date", &texts, |_| Ok(DataType::Date32), |call| read("TO_DATE", call, &DataType::Date32)),
        Definition::exact("unix_timestamp", &texts, bigint, |call| {
            let times = read("UNIX_TIMESTAMP", call, &MICROS)?;
            let seconds: PrimitiveArray<Int64Type> =
                times.as_primitive::<TimestampMicrosecondType>().unary(|t| t.div_euclid(SECOND));
            Ok(Arc::new(seconds))
        }),
        Definition::exact("from_unixtime", &numbers, text, |call| {
            let seconds = call.column(0)?;
            let times = seconds.as_primitive::<Int64Type>().unary_opt(|s| s.checked_mul(SECOND));
            format("FROM_UNIXTIME", &times, &pattern_of(call)?)
        }),
    ]
}

fn timestamp_ltz() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

fn date_format_type(types: &[DataType]) -> Result<DataType> {
    use DataType::{Date32, Date64, LargeUtf8, Null, Timestamp, Utf8, Utf8View};
    match types {
        [Timestamp(..) | Date32 | Date64 | Null, Utf8 | LargeUtf8 | Utf8View] => Ok(Utf8View),
        other => wrong_types("DATE_FORMAT", "a TIMESTAMP and a pattern such as 'yyyy-MM-dd HH:mm:ss'", other),
    }
}

fn pattern_of(call: &Call) -> Result<Texts> {
    if call.arguments() == 1 { Ok(Texts::Constant(Some(DEFAULT.into()))) } else { call.texts(1) }
}

/// The pattern of a row, taken apart again only where it differs from that of the row before.
#[derive(Default)]
struct Patterns<'p> {
    last: Option<(&'p str, Pattern)>,
}

impl<'p> Patterns<'p> {
    /// The pattern, and whether it is another one than before.
    fn get(&mut self, function: &str, text: &'p str) -> Result<(&Pattern, bool)> {
        let (other, pattern) = match self.last.take() {
            Some((last, pattern)) if last == text => (false, pattern),
            _ => (true, Pattern::parse(text, function)?),
        };
        Ok((&self.last.insert((text, pattern)).1, other))
    }
}

fn format(function: &str, times: &PrimitiveArray<TimestampMicrosecondType>, patterns: &Texts) -> Result<ArrayRef> {
    let mut out = StringViewBuilder::with_capacity(times.len());
    let mut parsed = Patterns::default();
    let mut text = String::new();
    // Streams bring times in order, more or less, so that many rows in a row have the same text.
    let mut same = 0..0;
    for row in 0..times.len() {
        let (true, Some(pattern)) = (times.is_valid(row), patterns.get(row)) else {
            out.append_null();
            continue;
        };
        let (pattern, other) = parsed.get(function, pattern)?;
        let time = times.value(row);
        if other || !same.contains(&time) {
            let start = time.saturating_sub(time.rem_euclid(pattern.granularity()));
            same = start..start.saturating_add(pattern.granularity());
            text.clear();
            pattern.write(time, &mut text);
        }
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// Times out of texts: by the pattern that is the second argument, else as a CAST would. What cannot be read is NULL.
fn read(function: &str, call: &Call, wanted: &DataType) -> Result<ArrayRef> {
    if call.arguments() == 1 {
        return Ok(cast(&call.column(0)?, wanted)?);
    }
    let (texts, patterns) = (call.texts(0)?, call.texts(1)?);
    let mut parsed = Patterns::default();
    let mut times = PrimitiveArray::<TimestampMicrosecondType>::builder(call.rows());
    for row in 0..call.rows() {
        times.append_option(match (texts.get(row), patterns.get(row)) {
            (Some(text), Some(pattern)) => parsed.get(function, pattern)?.0.read(text),
            _ => None,
        });
    }
    Ok(cast(&times.finish(), wanted)?)
}

/// `TO_TIMESTAMP_LTZ(seconds, 0)`, `TO_TIMESTAMP_LTZ(milliseconds [, 3])` or `TO_TIMESTAMP_LTZ(text [, pattern])`.
fn to_timestamp_ltz(call: &Call) -> Result<ArrayRef> {
    let first = call.column(0)?;
    if *first.data_type() != DataType::Int64 {
        return Ok(cast(&read("TO_TIMESTAMP_LTZ", call, &TIMESTAMP_3)?, &timestamp_ltz())?);
    }
    let digits = if call.arguments() == 1 { None } else { Some(call.integers(1)?) };
    let mut millis = PrimitiveArray::<Int64Type>::builder(call.rows());
    let numbers = call.integers(0)?;
    for row in 0..call.rows() {
        let digits = digits.as_ref().map_or(Some(3), |digits| digits.get(row));
        millis.append_option(match (numbers.get(row), digits) {
            (Some(number), Some(3)) => Some(number),
            (Some(number), Some(0)) => number.checked_mul(1_000),
            (_, None) | (None, _) => None,
            (_, Some(other)) => {
                return exec_err!("TO_TIMESTAMP_LTZ: expected 0 for seconds or 3 for milliseconds, got {other}");
            }
        });
    }
    Ok(cast(&cast(&millis.finish(), &TIMESTAMP_3)?, &timestamp_ltz())?)
}
