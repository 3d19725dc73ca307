//! How types are called in SQL.

use arrow::datatypes::{DataType, TimeUnit};

/// The name of a type as a user would write it.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "NULL".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 | DataType::UInt8 => "SMALLINT".into(),
        DataType::Int32 | DataType::UInt16 => "INT".into(),
        DataType::Int64 | DataType::UInt32 => "BIGINT".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float16 | DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => format!("DECIMAL({p}, {s})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTES".into(),
        DataType::Date32 | DataType::Date64 => "DATE".into(),
        DataType::Timestamp(unit, zone) => {
            let name = if zone.is_some() { "TIMESTAMP_LTZ" } else { "TIMESTAMP" };
            let digits = match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            };
            format!("{name}({digits})")
        }
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".into(),
        DataType::List(of) | DataType::LargeList(of) => {
            format!("ARRAY<{}>", type_name(of.data_type()))
        }
        DataType::Struct(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|f| format!("{} {}", f.name(), type_name(f.data_type()))).collect();
            format!("ROW<{}>", fields.join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 => {
                format!("MAP<{}, {}>", type_name(kv[0].data_type()), type_name(kv[1].data_type()))
            }
            _ => "MAP".into(),
        },
        other => other.to_string(),
    }
}
