//! The values of a column. Each is a function of the seed, the column's name and the row's number alone, so that any row can be
//! made again, by any partition and with any projection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, StringViewBuilder, StructArray,
    TimestampMillisecondArray, make_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::cast_utils::parse_decimal;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Field as ArrowField};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::time::parse_duration;

use super::FIELD;
use crate::options::truth;
use crate::random::Draws;

/// How the values of a column, or of a field in a `ROW`, are made.
#[derive(Clone, Debug)]
pub(super) struct Field {
    field: ArrowField,
    draws: Draws,
    nulls: Draws,
    /// Of 2^32 rows, so many are NULL.
    null_rate: u64,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Boolean,
    Integers { min: i64, max: i64 },
    Sequence { start: i64, end: i64 },
    Doubles { min: f64, max: f64 },
    Decimals { min: i128, max: i128 },
    Texts { length: usize, varying: bool },
    Times { past_ms: u64 },
    Row(Vec<Field>),
}

/// The number of a row, and its time in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) number: u64,
    pub(super) time_ms: i64,
}

impl Field {
    /// By a column's declaration and the options of `path`, which are taken out of `options`.
    pub(super) fn new(
        field: &ArrowField,
        path: &str,
        seed: u64,
        options: &mut BTreeMap<String, String>,
    ) -> Result<Self> {
        let mut given = Given { path, options };
        let values = Values::new(field.data_type(), seed, &mut given)?;
        let null_rate = given.parse("null-rate", "a share from 0 to 1", |text| {
            text.parse::<f64>().ok().filter(|rate| (0.0..=1.0).contains(rate))
        })?;
        if null_rate.is_some_and(|rate| rate > 0.0) && !field.is_nullable() {
            return Err(given.wrong("null-rate", "0, because the column is NOT NULL"));
        }
        // A polynomial over the name tells columns apart.
        let tag =
            path.bytes().fold(1_u64, |tag, byte| tag.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte)));
        Ok(Self {
            field: field.clone(),
            draws: Draws::new(seed, tag),
            nulls: Draws::new(seed, !tag),
            null_rate: (null_rate.unwrap_or(0.0) * 2_f64.powi(32)) as u64,
            values,
        })
    }

    pub(super) fn name(&self) -> &str {
        self.field.name()
    }

    /// How many rows there are values for.
    pub(super) fn rows(&self) -> Option<u64> {
        match &self.values {
            Values::Sequence { start, end } => Some(end.abs_diff(*start).saturating_add(1)),
            Values::Row(fields) => fields.iter().filter_map(Self::rows).min(),
            _ => None,
        }
    }

    /// With only the fields that `wanted` has.
    pub(super) fn pruned(&self, wanted: &ArrowField) -> Option<Self> {
        let mut pruned = Self { field: wanted.clone(), ..self.clone() };
        if let (Values::Row(fields), DataType::Struct(kept)) = (&self.values, wanted.data_type()) {
            let kept = kept.iter().map(|want| fields.iter().find(|f| f.name() == want.name())?.pruned(want));
            pruned.values = Values::Row(kept.collect::<Option<_>>()?);
        }
        Some(pruned)
    }

    /// The values of some rows.
    pub(super) fn make(&self, rows: &[Row]) -> Result<ArrayRef> {
        let draw = |row: &Row| self.draws.at(row.number);
        let values: ArrayRef = match &self.values {
            Values::Boolean => Arc::new(rows.iter().map(|row| Some(draw(row) & 1 == 1)).collect::<BooleanArray>()),
            Values::Integers { min, max } => {
                let span = max.abs_diff(*min);
                Arc::new(Int64Array::from_iter_values(
                    rows.iter().map(|row| min.wrapping_add_unsigned(up_to(draw(row), span))),
                ))
            }
            Values::Sequence { start, .. } => {
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| start.wrapping_add_unsigned(row.number))))
            }
            Values::Doubles { min, max } => {
                let unit = |bits: u64| (bits >> 11) as f64 / (1_u64 << 53) as f64;
                Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| min + unit(draw(row)) * (max - min))))
            }
            Values::Decimals { min, max } => {
                let span = max.abs_diff(*min).saturating_add(1);
                let wide =
                    |row: &Row| u128::from(draw(row)) << 64 | u128::from(draw(&Row { number: !row.number, ..*row }));
                let values = rows.iter().map(|row| min.wrapping_add_unsigned(wide(row) % span));
                let made = Decimal128Array::from_iter_values(values).with_data_type(self.field.data_type().clone());
                Arc::new(made)
            }
            Values::Texts { length, varying } => self.texts(rows, *length, *varying),
            Values::Times { past_ms } => {
                let times = rows.iter().map(|row| row.time_ms.saturating_sub_unsigned(up_to(draw(row), *past_ms)));
                Arc::new(TimestampMillisecondArray::from_iter_values(times))
            }
            Values::Row(fields) => {
                let columns = fields.iter().map(|field| field.make(rows)).collect::<Result<Vec<_>>>()?;
                let fields = fields.iter().map(|field| field.field.clone()).collect();
                Arc::new(StructArray::try_new(fields, columns, None).map_err(|e| internal(&e))?)
            }
        };
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let values = cast_with_options(&values, self.field.data_type(), &strict).map_err(|e| internal(&e))?;
        if self.null_rate == 0 {
            return Ok(values);
        }
        let nulls: NullBuffer = rows.iter().map(|row| self.nulls.at(row.number) >> 32 >= self.null_rate).collect();
        let data = values.to_data().into_builder().nulls(Some(nulls)).build().map_err(|e| internal(&e))?;
        Ok(make_array(data))
    }

    fn texts(&self, rows: &[Row], length: usize, varying: bool) -> ArrayRef {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut out = StringViewBuilder::with_capacity(rows.len());
        let mut text = String::with_capacity(length);
        for row in rows {
            let bits = self.draws.at(row.number);
            let length = if varying { up_to(bits, length as u64) as usize } else { length };
            let more = Draws::new(bits, 0);
            text.clear();
            for word in 0.. {
                let bits = more.at(word);
                let room = length - text.len();
                (0..16.min(room)).for_each(|i| text.push(char::from(DIGITS[(bits >> (4 * i)) as usize & 15])));
                if text.len() == length {
                    break;
                }
            }
            out.append_value(&text);
        }
        Arc::new(out.finish())
    }
}

/// Random bits as a number from 0 to `most`.
fn up_to(bits: u64, most: u64) -> u64 {
    ((u128::from(bits) * (u128::from(most) + 1)) >> 64) as u64
}

fn internal(e: &arrow::error::ArrowError) -> StreamError {
    StreamError::Internal(format!("a generated column cannot be built: {e}"))
}

impl Values {
    fn new(data_type: &DataType, seed: u64, given: &mut Given<'_>) -> Result<Self> {
        let kind = given.parse("kind", "'random' or 'sequence'", |text| match text {
            "random" => Some(false),
            "sequence" => Some(true),
            _ => None,
        })?;
        if kind == Some(true) {
            return Self::sequence(data_type, given);
        }
        Ok(match data_type {
            DataType::Boolean => Self::Boolean,
            integer if integer.is_signed_integer() => {
                let (least, most) = bounds(integer);
                let expected = format!("a whole number from {least} to {most}");
                let mut bound = |name| {
                    given.parse(name, &expected, |text| text.parse().ok().filter(|n| (least..=most).contains(n)))
                };
                let (min, max) = (bound("min")?.unwrap_or(least), bound("max")?.unwrap_or(most));
                given.in_order(min <= max)?;
                Self::Integers { min, max }
            }
            DataType::Float32 | DataType::Float64 => {
                let most = if *data_type == DataType::Float32 { f64::from(f32::MAX) } else { f64::MAX } / 2.0;
                let mut bound =
                    |name| given.parse(name, "a number", |text| text.parse().ok().filter(|n: &f64| n.abs() <= most));
                let (min, max) = (bound("min")?.unwrap_or(-most), bound("max")?.unwrap_or(most));
                given.in_order(min <= max)?;
                Self::Doubles { min, max }
            }
            DataType::Decimal128(precision, scale) => {
                let most = 10_i128.pow(u32::from(*precision)) - 1;
                let expected = format!("a number of type {}", type_name(data_type));
                let mut bound = |name| {
                    given.parse(name, &expected, |text| parse_decimal::<Decimal128Type>(text, *precision, *scale).ok())
                };
                let (min, max) = (bound("min")?.unwrap_or(-most), bound("max")?.unwrap_or(most));
                given.in_order(min <= max)?;
                Self::Decimals { min, max }
            }
            DataType::Utf8View => {
                let length = given.parse("length", "a length up to 1048576", |text| {
                    text.parse().ok().filter(|length| *length <= 1 << 20)
                })?;
                let varying = given.parse("var-len", "'true' or 'false'", truth)?;
                Self::Texts { length: length.unwrap_or(100), varying: varying.unwrap_or(false) }
            }
            DataType::Timestamp(..) | DataType::Date32 => {
                let past = given.parse("max-past", "a length of time such as '10s'", parse_duration)?;
                let past_ms = past.unwrap_or(Duration::ZERO).as_millis();
                Self::Times { past_ms: u64::try_from(past_ms).unwrap_or(u64::MAX) }
            }
            DataType::Struct(fields) => {
                let path = given.path;
                let fields = fields
                    .iter()
                    .map(|field| Field::new(field, &format!("{path}.{}", field.name()), seed, given.options));
                Self::Row(fields.collect::<Result<_>>()?)
            }
            other => {
                return Err(StreamError::Unsupported {
                    what: format!("column {} of type {} in a datagen table", given.path, type_name(other)),
                    position: None,
                    instead: "leave it out, or compute it from other columns".into(),
                });
            }
        })
    }

    fn sequence(data_type: &DataType, given: &mut Given<'_>) -> Result<Self> {
        if !data_type.is_signed_integer() {
            return Err(given.wrong("kind", &format!("'random', because the column is {}", type_name(data_type))));
        }
        let (least, most) = bounds(data_type);
        let expected = format!("a whole number from {least} to {most}");
        let mut bound =
            |name| given.parse(name, &expected, |text| text.parse().ok().filter(|n| (least..=most).contains(n)));
        match (bound("start")?, bound("end")?) {
            (Some(start), Some(end)) => {
                given.in_order(start <= end)?;
                Ok(Self::Sequence { start, end })
            }
            (None, _) => Err(given.wrong("start", "where the sequence begins")),
            (_, None) => Err(given.wrong("end", "the last number of the sequence")),
        }
    }
}

fn bounds(integer: &DataType) -> (i64, i64) {
    match integer {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The options of one column.
struct Given<'g> {
    path: &'g str,
    options: &'g mut BTreeMap<String, String>,
}

impl Given<'_> {
    /// Takes an option out and reads it.
    fn parse<T>(&mut self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.options.remove(&format!("{FIELD}{}.{name}", self.path)) else { return Ok(None) };
        match parse(text.trim()) {
            Some(value) => Ok(Some(value)),
            None => Err(self.wrong(name, &format!("{expected}, got '{text}'"))),
        }
    }

    fn in_order(&self, fits: bool) -> Result<()> {
        if fits { Ok(()) } else { Err(self.wrong("max", "no less than the smallest value")) }
    }

    fn wrong(&self, name: &str, expected: &str) -> StreamError {
        StreamError::invalid(format!("option '{FIELD}{}.{name}' of connector datagen: expected {expected}", self.path))
    }
}
