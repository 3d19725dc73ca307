//! Rows and keys of tables: values to bytes and back.

use std::sync::Arc;

use savanna_tenants_encoding::{KeyWriter, Numeric, Order, RowReader, RowWriter, version_of};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    own::OwnTypes,
    types::Type,
    value::{
        Interval, NonFinite, Value,
        array::{Array, Dimension},
        json::Json,
        multirange::Multirange,
        network::Network,
        numeric,
        range::Range,
        size::check_structure,
    },
};
use savanna_transaction::KeyRange;

use crate::{Index, Table};

/// Appends the bytes of a row's value.
///
/// # Errors
/// 42704, XX000 for a row that is not of the type.
pub fn encode_value(value: &Value, of: Type, own: &OwnTypes, out: &mut Vec<u8>) -> Result<()> {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int(value) => match of {
            Type::Int2 => out.extend((*value as i16).to_le_bytes()),
            Type::Int4 => out.extend((*value as i32).to_le_bytes()),
            _ => out.extend(value.to_le_bytes()),
        },
        Value::Float(value) if of == Type::Float4 => out.extend((*value as f32).to_le_bytes()),
        Value::Float(value) => out.extend(value.to_le_bytes()),
        Value::Numeric(value) => out.extend(numeric::to_row(value)),
        // A byte, where all others have more.
        Value::NonFinite(value) => out.push(*value as u8),
        Value::Text(value) => out.extend(value.as_bytes()),
        Value::Date(days) => out.extend(days.to_le_bytes()),
        Value::Time(micros) | Value::Timestamp(micros) => out.extend(micros.to_le_bytes()),
        Value::Interval(Interval { months, days, micros }) => {
            out.extend(months.to_le_bytes());
            out.extend(days.to_le_bytes());
            out.extend(micros.to_le_bytes());
        }
        Value::Uuid(bytes) => out.extend(bytes),
        Value::Bytes(bytes) => out.extend(bytes),
        Value::Network(network) => out.extend(network.to_bytes()),
        Value::Record(row) => {
            let Type::Composite(id) = of else { return Err(not_stored(of)) };
            own.known_composite(id)?.to_bytes(row, out, &|value, of, out| encode_value(value, of, own, out))?;
        }
        Value::Range(range) => {
            let bound = if let Type::Range(kind) = of { kind.element() } else { of };
            range.to_bytes(out, |value, out| encode_bound(value, bound, out));
        }
        Value::Multirange(multirange) => {
            let bound = if let Type::Multirange(kind) = of { kind.element() } else { of };
            let write = |value: &Value, out: &mut Vec<u8>| encode_bound(value, bound, out);
            multirange.to_bytes(out, |range, out| range.to_bytes(out, write));
        }
        Value::Json(value) => out.extend(value.text().into_bytes()),
        Value::Enum(place, label) => {
            out.extend(place.to_le_bytes());
            out.extend(label.as_bytes());
        }
        Value::Array(array) => encode_array(array, of.element().unwrap_or(Type::Text), own, out)?,
    }
    Ok(())
}

fn not_stored(of: Type) -> SqlError {
    SqlError::new(state::INTERNAL_ERROR, format!("expected a {} to store, came a row", of.name()))
}

/// The bytes of a range's bound: a number or a time.
fn encode_bound(value: &Value, of: Type, out: &mut Vec<u8>) {
    const NONE: OwnTypes = OwnTypes::new();
    // Only rows and what has them in it cannot be written, and no range is of them.
    let _ = encode_value(value, of, &NONE, out);
}

/// The value of a type from a row's bytes.
pub(crate) fn decode_value(bytes: &[u8], of: Type, own: &OwnTypes) -> Result<Value> {
    fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
    let value = match of {
        Type::Rounded(..) | Type::Spanned(..) => return decode_value(bytes, of.exact(), own),
        Type::Bool => fixed::<1>(bytes).map(|[byte]| Value::Bool(byte != 0)),
        Type::Int2 => fixed(bytes).map(|bytes| Value::Int(i64::from(i16::from_le_bytes(bytes)))),
        Type::Int4 => fixed(bytes).map(|bytes| Value::Int(i64::from(i32::from_le_bytes(bytes)))),
        Type::Int8 | Type::Oid => fixed(bytes).map(|bytes| Value::Int(i64::from_le_bytes(bytes))),
        Type::Float4 => fixed(bytes).map(|bytes| Value::Float(f64::from(f32::from_le_bytes(bytes)))),
        Type::Float8 => fixed(bytes).map(|bytes| Value::Float(f64::from_le_bytes(bytes))),
        Type::Numeric(_) => match bytes {
            [0] => Some(Value::NonFinite(NonFinite::NegativeInfinity)),
            [1] => Some(Value::NonFinite(NonFinite::Infinity)),
            [2] => Some(Value::NonFinite(NonFinite::NaN)),
            bytes => numeric::from_row(bytes).map(Value::Numeric),
        },
        Type::Range(kind) => Range::from_bytes(bytes, kind, |bound| decode_value(bound, kind.element(), own))?
            .map(|range| Value::Range(Box::new(range))),
        Type::Multirange(kind) => {
            let range = |bytes: &[u8]| Range::from_bytes(bytes, kind, |bound| decode_value(bound, kind.element(), own));
            Multirange::from_bytes(bytes, range)?.map(|multirange| Value::Multirange(Box::new(multirange)))
        }
        Type::Record => None,
        Type::Composite(id) => {
            let composite = own.known_composite(id)?;
            return composite.from_bytes(bytes, &|bytes, of| decode_value(bytes, of, own));
        }
        Type::Inet | Type::Cidr => Network::from_bytes(bytes).map(Value::Network),
        Type::Text
        | Type::Byte
        | Type::Varchar(_)
        | Type::Char(_)
        | Type::Unknown
        | Type::Json
        | Type::Jsonpath
        | Type::Bit(_)
        | Type::Varbit(_) => str::from_utf8(bytes).ok().map(|text| Value::Text(text.to_owned())),
        Type::Date => fixed(bytes).map(|bytes| Value::Date(i32::from_le_bytes(bytes))),
        Type::Time => fixed(bytes).map(|bytes| Value::Time(i64::from_le_bytes(bytes))),
        Type::Timestamp | Type::Timestamptz => fixed(bytes).map(|bytes| Value::Timestamp(i64::from_le_bytes(bytes))),
        Type::Interval => fixed::<16>(bytes).map(|bytes| {
            let [n0, n1, n2, n3, d0, d1, d2, d3, m0, m1, m2, m3, m4, m5, m6, m7] = bytes;
            Value::Interval(Interval {
                months: i32::from_le_bytes([n0, n1, n2, n3]),
                days: i32::from_le_bytes([d0, d1, d2, d3]),
                micros: i64::from_le_bytes([m0, m1, m2, m3, m4, m5, m6, m7]),
            })
        }),
        Type::Uuid => fixed(bytes).map(Value::Uuid),
        Type::Bytea | Type::Macaddr | Type::Macaddr8 => Some(Value::Bytes(bytes.to_vec())),
        Type::Jsonb => str::from_utf8(bytes)
            .ok()
            .and_then(|text| Json::parse_again(text).ok())
            .map(|value| Value::Json(Arc::new(value))),
        Type::Enum(_) => bytes.split_first_chunk().and_then(|(place, label)| {
            let label = str::from_utf8(label).ok()?;
            Some(Value::Enum(i64::from_le_bytes(*place), label.into()))
        }),
        Type::Array(_) => {
            let array = decode_array(bytes, of.element().unwrap_or(Type::Text), own)?;
            return Ok(Value::Array(Arc::new(array)));
        }
    };
    value.ok_or_else(|| {
        let message = format!("expected a {} in a row, came {} other bytes", of.name(), bytes.len());
        SqlError::new(state::DATA_CORRUPTED, message)
    })
}

/// The bytes of an array: how many dimensions, each with its length and lower bound, then the elements, each behind its length; that of
/// NULL is the largest.
fn encode_array(array: &Array, of: Type, own: &OwnTypes, out: &mut Vec<u8>) -> Result<()> {
    out.push(array.dimensions.len() as u8);
    for Dimension { length, lower } in &array.dimensions {
        out.extend((*length as u32).to_le_bytes());
        out.extend(lower.to_le_bytes());
    }
    for element in &array.elements {
        let begin = out.len();
        out.extend(u32::MAX.to_le_bytes());
        if !element.is_null() {
            encode_value(element, of, own, out)?;
            let length = (out.len() - begin - 4) as u32;
            out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        }
    }
    Ok(())
}

fn decode_array(bytes: &[u8], of: Type, own: &OwnTypes) -> Result<Array> {
    let damaged = || {
        SqlError::new(state::DATA_CORRUPTED, format!("expected an array in a row, came {} other bytes", bytes.len()))
    };
    let (count, mut rest) = bytes.split_first().ok_or_else(damaged)?;
    let number = |rest: &mut &[u8]| -> Result<[u8; 4]> {
        let (number, after) = rest.split_first_chunk().ok_or_else(damaged)?;
        *rest = after;
        Ok(*number)
    };
    let (mut array, mut taken) = (Array::default(), 0);
    for _ in 0..*count {
        let length = u32::from_le_bytes(number(&mut rest)?) as usize;
        array.dimensions.push(Dimension { length, lower: i32::from_le_bytes(number(&mut rest)?) });
    }
    while !rest.is_empty() {
        let length = u32::from_le_bytes(number(&mut rest)?);
        if length == u32::MAX {
            array.elements.push(Value::Null);
            continue;
        }
        let (element, after) = rest.split_at_checked(length as usize).ok_or_else(damaged)?;
        let element = decode_value(element, of, own)?;
        // A row has attributes that it was not stored with.
        if let Value::Record(_) = element {
            taken += element.bytes();
            check_structure(taken)?;
        }
        array.elements.push(element);
        rest = after;
    }
    let expected = if array.dimensions.is_empty() { 0 } else { array.dimensions.iter().map(|d| d.length).product() };
    if array.elements.len() == expected { Ok(array) } else { Err(damaged()) }
}

/// A row of the newest schema version.
pub fn encode(table: &Table, values: &[Value]) -> Result<Vec<u8>> {
    let layout = table.layout(table.definition.version)?;
    let mut row = RowWriter::new(layout);
    let mut bytes = Vec::new();
    for (column, value) in table.columns.iter().zip(values) {
        if value.is_null() {
            row.null()?;
            continue;
        }
        bytes.clear();
        encode_value(value, column.of, table.own(), &mut bytes)?;
        row.value(&bytes)?;
    }
    Ok(row.finish()?)
}

/// Reads the wanted columns of a row into their places of `values`; the others stay as they are.
pub fn decode(table: &Table, row: &[u8], wanted: &[usize], values: &mut [Value]) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let version = version_of(row)?;
    let row = RowReader::new(table.layout(version)?, row)?;
    for &at in wanted {
        let column = &table.columns[at];
        let bytes = if column.since > version { column.missing.as_deref() } else { row.column(at)? };
        values[at] = match bytes {
            // The type of a dropped one may be gone, too.
            Some(bytes) if !column.dropped => decode_value(bytes, column.of, table.own())?,
            _ => Value::Null,
        };
    }
    Ok(())
}

pub(crate) fn order(descending: bool) -> Order {
    if descending { Order::Descending } else { Order::Ascending }
}

/// Adds a column to a key. All integers have 8 bytes there, so that a column can be widened and no key changes.
pub fn key_value(key: &mut KeyWriter, value: &Value, descending: bool) -> Result<()> {
    let order = order(descending);
    match value {
        Value::Null => key.null(order),
        Value::Bool(value) => key.boolean(*value, order),
        Value::Int(value) => key.int64(*value, order),
        Value::Float(value) => key.float64(*value, order),
        Value::Numeric(value) => {
            let (digits, scale) = value.as_bigint_and_scale();
            let (sign, digits) = digits.to_radix_be(10);
            let scale = i32::try_from(scale).map_err(|_| numeric::overflow())?;
            let negative = sign == bigdecimal::num_bigint::Sign::Minus;
            key.numeric(&Numeric::Finite { negative, digits, scale }, order)?
        }
        Value::NonFinite(value) => {
            let value = match value {
                NonFinite::NegativeInfinity => Numeric::NegativeInfinity,
                NonFinite::Infinity => Numeric::Infinity,
                NonFinite::NaN => Numeric::NaN,
            };
            key.numeric(&value, order)?
        }
        Value::Text(value) => key.text(value, order),
        Value::Date(days) => key.int64(i64::from(*days), order),
        Value::Time(micros) | Value::Timestamp(micros) => key.int64(*micros, order),
        Value::Interval(interval) => key.int128(interval.length(), order),
        Value::Uuid(bytes) => key.uuid(*bytes, order),
        Value::Bytes(bytes) => key.bytes(bytes, order),
        Value::Network(network) => key.bytes(&network.to_bytes(), order),
        // Not in order, and equal for equal values: for what is grouped.
        Value::Record(record) => {
            key.int64(record.fields.len() as i64, order);
            for field in &record.fields {
                key_value(key, &field.value, descending)?;
            }
            key
        }
        // An empty one is the smallest, and so is what has no lower bound.
        Value::Range(range) => {
            let Range::Between(lower, upper) = &**range else {
                key.boolean(false, order);
                return Ok(());
            };
            key.boolean(true, order).boolean(lower.value.is_some(), order);
            if let Some(value) = &lower.value {
                key_value(key, value, descending)?;
                key.boolean(!lower.inclusive, order);
            }
            key.boolean(upper.value.is_none(), order);
            if let Some(value) = &upper.value {
                key_value(key, value, descending)?;
                key.boolean(upper.inclusive, order);
            }
            key
        }
        // Who has no more ranges is the smaller.
        Value::Multirange(multirange) => {
            for range in multirange.ranges() {
                key_value(key.boolean(true, order), &Value::Range(Box::new(range.clone())), descending)?;
            }
            key.boolean(false, order)
        }
        // Not in order, and equal for equal values: for what is grouped, not for indexes.
        Value::Json(value) => key.text(&value.normalized().text(), order),
        Value::Enum(place, _) => key.int64(*place, order),
        // Not in order either.
        Value::Array(array) => {
            key.int64(array.elements.len() as i64, order);
            key.int64(array.dimensions.len() as i64, order);
            for Dimension { length, lower } in &array.dimensions {
                key.int64(*length as i64, order);
                key.int64(i64::from(*lower), order);
            }
            for element in &array.elements {
                key_value(key, element, descending)?;
            }
            key
        }
    };
    Ok(())
}

/// The key of a row of a table with a primary key.
pub fn primary_key(table: &Table, columns: &[usize], values: &[Value]) -> Result<Vec<u8>> {
    let mut key = KeyWriter::new(table.relation);
    for &column in columns {
        key_value(&mut key, &values[column], false)?;
    }
    checked(key.into_bytes())
}

/// The key of a row of a table without one.
pub fn numbered_key(relation: u32, number: i64) -> Vec<u8> {
    let mut key = KeyWriter::new(relation);
    key.int64(number, Order::Ascending);
    key.into_bytes()
}

/// An entry of an index.
pub struct Entry {
    /// Its key.
    pub key: Vec<u8>,
    /// Whether no other row may have it.
    pub unique: bool,
}

/// The entry of a row in an index, by the values of the index's parts and whether they descend.
pub fn entry<'v>(index: &Index, values: impl Iterator<Item = (&'v Value, bool)>, row_key: &[u8]) -> Result<Entry> {
    let mut key = KeyWriter::new(index.relation);
    let mut null = false;
    for (value, descending) in values {
        key_value(&mut key, value, descending)?;
        null |= value.is_null();
    }
    let unique = index.unique && !null;
    let mut key = key.into_bytes();
    if !unique {
        key.extend(&row_key[4..]);
    }
    Ok(Entry { key: checked(key)?, unique })
}

/// Keys of more bytes would make blocks of one key.
const KEY_BYTES_MAX: usize = 2_700;

fn checked(key: Vec<u8>) -> Result<Vec<u8>> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(key);
    }
    let message = format!("index row requires {} bytes, maximum size is {KEY_BYTES_MAX}", key.len());
    Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message))
}

/// All keys of a table or index.
pub fn whole(relation: u32) -> KeyRange {
    KeyRange::prefix(&relation.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use savanna_tenants_values::{
        types::Ranged,
        value::{Context, style::Style, text},
    };

    use super::*;

    fn key(value: &Value, descending: bool) -> Vec<u8> {
        let mut key = KeyWriter::new(1);
        key_value(&mut key, value, descending).unwrap();
        key.into_bytes()
    }

    #[test]
    fn keys_have_the_order_of_values_and_rows_bring_values_back() {
        let numbers =
            ["empty", "(,1)", "(,1]", "(,)", "[1,1]", "[1,2)", "[1.0,2.00]", "[1,)", "(1,2)", "[2,3)", "(2,)"];
        let own = OwnTypes::new();
        let context = Context { own: &own, style: Style::PLAIN };
        for (of, ordered) in [
            (Type::Range(Ranged::Num), &numbers[..]),
            (Type::Range(Ranged::Date), &["empty", "(,2024-01-01)", "[2024-01-01,2024-02-01)", "[2024-01-01,)"]),
            (Type::Inet, &["9.1.2.3/8", "10.0.0.0/8", "10.1.2.3/8", "10.0.0.0/9", "10.0.0.0", "::1", "ff00::/8"]),
            (Type::Macaddr, &["00:00:00:00:00:01", "08:00:2b:01:02:03", "ff:00:00:00:00:00"]),
            (Type::Varbit(None), &["", "0", "00", "000000001", "01", "1", "10", "100000000", "11"]),
        ] {
            let values: Vec<Value> = ordered.iter().map(|shown| text::parse(shown, of, context).unwrap()).collect();
            for pair in values.windows(2) {
                assert!(pair[0].compare(&pair[1]).is_lt(), "{pair:?}");
                assert!(key(&pair[0], false) < key(&pair[1], false), "{pair:?}");
                assert!(key(&pair[0], true) > key(&pair[1], true), "{pair:?}");
            }
            for value in &values {
                assert!(key(value, false) < key(&Value::Null, false) && key(value, true) > key(&Value::Null, true));
                let mut row = Vec::new();
                encode_value(value, of, &own, &mut row).unwrap();
                assert_eq!(decode_value(&row, of, &own).as_ref(), Ok(value));
            }
        }
    }

    #[test]
    fn rows_of_a_type_that_is_gone_are_not_stored() {
        let (row, own) = (Value::Record(Box::default()), OwnTypes::new());
        for of in [Type::Record, Type::Composite(20_000), Type::Composite(20_000).array().unwrap()] {
            let value = match of.element() {
                Some(_) => Value::Array(Arc::new(Array {
                    dimensions: vec![Dimension { length: 1, lower: 1 }],
                    elements: vec![row.clone()],
                })),
                None => row.clone(),
            };
            assert!(encode_value(&value, of, &own, &mut Vec::new()).is_err(), "{of:?}");
        }
    }

    #[test]
    fn damaged_values_are_told() {
        for of in [Type::Range(Ranged::Int4), Type::Inet, Type::Cidr, Type::Record] {
            for bytes in [&[][..], &[2], &[0, 1, 2], &[0, 0, 0, 0, 99, 1]] {
                assert_eq!(
                    decode_value(bytes, of, &OwnTypes::new()).unwrap_err().state,
                    state::DATA_CORRUPTED,
                    "{of:?} {bytes:?}"
                );
            }
        }
    }
}
