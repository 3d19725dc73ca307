//! What columns take of fields of Avro: nothing is lost but digits of a second.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StringViewArray, StructArray, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field};
use savanna_streams_api::type_name;

/// A field of Avro as a column takes it.
///
/// # Errors
/// Its type does not fit, or a value does not, in words.
pub(super) fn convert(array: &ArrayRef, from: &Field, to: &Field) -> Result<ArrayRef, String> {
    convert_within(array, from, to, None)
}

/// The same, of a field of records of which only some are there.
fn convert_within(
    array: &ArrayRef,
    from: &Field,
    to: &Field,
    records: Option<&NullBuffer>,
) -> Result<ArrayRef, String> {
    let converted = match (array.data_type(), to.data_type()) {
        (DataType::Struct(fields), DataType::Struct(wanted)) => {
            let record = array.as_struct();
            let there = NullBuffer::union(records, array.nulls());
            let columns = wanted.iter().map(|to| {
                let from = fields.iter().position(|from| from.name() == to.name());
                from.map_or_else(
                    || Ok(new_null_array(to.data_type(), array.len())),
                    |at| convert_within(record.column(at), &fields[at], to, there.as_ref()),
                )
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let made = StructArray::try_new_with_length(wanted.clone(), columns, array.nulls().cloned(), array.len());
            Arc::new(made.map_err(|e| e.to_string())?) as ArrayRef
        }
        (DataType::List(item), DataType::List(wanted)) => {
            let list = array.as_list::<i32>();
            let values = convert(list.values(), item, wanted)?;
            let made = ListArray::try_new(Arc::clone(wanted), list.offsets().clone(), values, array.nulls().cloned());
            Arc::new(made.map_err(|e| e.to_string())?)
        }
        (DataType::Map(entries, _), DataType::Map(wanted, sorted)) => {
            let map = array.as_map();
            // Keys and values, whatever they are called.
            let (DataType::Struct(of), DataType::Struct(to)) = (entries.data_type(), wanted.data_type()) else {
                return Err("a map without entries".into());
            };
            let keys = convert(map.keys(), &of[0], &to[0])?;
            let values = convert(map.values(), &of[1], &to[1])?;
            let made = StructArray::try_new(to.clone(), vec![keys, values], None).map_err(|e| e.to_string())?;
            let (offsets, nulls) = (map.offsets().clone(), array.nulls().cloned());
            Arc::new(MapArray::try_new(Arc::clone(wanted), offsets, made, nulls, *sorted).map_err(|e| e.to_string())?)
        }
        (DataType::FixedSizeBinary(16), DataType::Utf8View) if is_uuid(from) => Arc::new(uuids(array)),
        (of, wanted) if fits(of, wanted) => {
            // Safe in arrow's sense: what cannot be cast becomes NULL.
            let options = CastOptions { safe: true, ..CastOptions::default() };
            let cast = cast_with_options(array, wanted, &options).map_err(|e| e.to_string())?;
            if cast.logical_null_count() > array.logical_null_count() {
                return Err(format!("expected a value of {}, got one that it has no room for", type_name(wanted)));
            }
            if of.is_integer() && wanted.is_floating() {
                // Large whole numbers would become others.
                let again = cast_with_options(&cast, of, &options).map_err(|e| e.to_string())?;
                if again.as_ref() != array.as_ref() {
                    let wanted = type_name(wanted);
                    return Err(format!(
                        "expected a whole number that {wanted} has exactly, got one with too many digits"
                    ));
                }
            }
            cast
        }
        (DataType::Union(..), _) => return Err("expected a field of one type, got a union of several".into()),
        (of, wanted) => {
            return Err(format!(
                "expected a field that fits {}, got {}; declare the column as it is written",
                type_name(wanted),
                type_name(of)
            ));
        }
    };
    let is_missing = |nulls: NullBuffer| match records {
        Some(records) => nulls.iter().zip(records.iter()).any(|(is_there, is_wanted)| is_wanted && !is_there),
        None => nulls.null_count() > 0,
    };
    if !to.is_nullable() && converted.logical_nulls().is_some_and(is_missing) {
        return Err(format!("expected a value NOT NULL of {}, got none", to.name()));
    }
    Ok(converted)
}

/// Whether all values of one type are values of another, but for those that are out of its bounds.
fn fits(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, Decimal128, Dictionary, FixedSizeBinary, Float32, Float64, Int8, Int16,
        Int32, Int64, Null, Time32, Time64, Timestamp, Utf8, Utf8View,
    };
    match (from, to) {
        (Null, _)
        | (Boolean, Boolean)
        | (Int32 | Int64, Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Decimal128(..))
        // A number of the unit.
        | (Int64, Timestamp(..))
        | (Time32(_) | Time64(_), Int64)
        | (Float32, Float32 | Float64)
        | (Float64, Float64)
        | (Utf8 | Utf8View, Utf8View)
        | (Binary | FixedSizeBinary(_), BinaryView)
        | (Date32, Date32)
        | (Timestamp(..), Timestamp(..)) => true,
        (Decimal128(digits, scale), Decimal128(room, wanted)) => {
            wanted >= scale && i16::from(*room) - i16::from(*wanted) >= i16::from(*digits) - i16::from(*scale)
        }
        (Dictionary(_, symbols), Utf8View) => symbols.as_ref() == &Utf8,
        _ => false,
    }
}

fn is_uuid(field: &Field) -> bool {
    field.metadata().iter().any(|(name, value)| {
        matches!(name.as_str(), "logicalType" | "ARROW:extension:name") && value.trim_matches('"').ends_with("uuid")
    })
}

fn uuids(array: &ArrayRef) -> StringViewArray {
    let uuid = |bytes: &[u8]| {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    };
    array.as_fixed_size_binary().iter().map(|bytes| bytes.map(uuid)).collect()
}
