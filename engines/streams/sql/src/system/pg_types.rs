//! PostgreSQL's types: their numbers and names, and which of them a column of a stream has for its clients.

use arrow::datatypes::{DataType, TimeUnit};

/// A type: number, internal name, name in SQL, number of its arrays, length, category.
pub(super) struct PgType {
    pub(super) oid: i64,
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
    pub(super) array: i64,
    pub(super) length: i64,
    pub(super) category: &'static str,
}

macro_rules! types {
    ($($oid:literal $name:literal $sql:literal $array:literal $length:literal $category:literal;)*) => {
        &[$(PgType { oid: $oid, name: $name, sql: $sql, array: $array, length: $length, category: $category }),*]
    };
}

/// Those that columns of streams and of the system tables have.
pub(super) const TYPES: &[PgType] = types! {
    16 "bool" "boolean" 1000 1 "B";
    17 "bytea" "bytea" 1001 -1 "U";
    18 "char" "\"char\"" 1002 1 "Z";
    19 "name" "name" 1003 64 "S";
    20 "int8" "bigint" 1016 8 "N";
    21 "int2" "smallint" 1005 2 "N";
    23 "int4" "integer" 1007 4 "N";
    25 "text" "text" 1009 -1 "S";
    26 "oid" "oid" 1028 4 "N";
    114 "json" "json" 199 -1 "U";
    700 "float4" "real" 1021 4 "N";
    701 "float8" "double precision" 1022 8 "N";
    1043 "varchar" "character varying" 1015 -1 "S";
    1082 "date" "date" 1182 4 "D";
    1083 "time" "time without time zone" 1183 8 "D";
    1114 "timestamp" "timestamp without time zone" 1115 8 "D";
    1184 "timestamptz" "timestamp with time zone" 1185 8 "D";
    1186 "interval" "interval" 1187 16 "T";
    1700 "numeric" "numeric" 1231 -1 "N";
    2205 "regclass" "regclass" 2210 4 "N";
    2206 "regtype" "regtype" 2211 4 "N";
};

const JSON: i64 = 114;
/// That of an argument of any type.
pub(super) const ANY: i64 = 2_276;

/// The number of a column's type for clients, and its modifier: the digits of decimals and times, or -1.
pub(super) fn of(data_type: &DataType) -> (i64, i64) {
    match data_type {
        DataType::Boolean => (16, -1),
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => (21, -1),
        DataType::UInt16 | DataType::Int32 => (23, -1),
        DataType::UInt32 | DataType::Int64 => (20, -1),
        DataType::Float16 | DataType::Float32 => (700, -1),
        DataType::Float64 => (701, -1),
        DataType::UInt64 => (1700, -1),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            (1700, ((i64::from(*precision) << 16) | i64::from(*scale)) + 4)
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => (17, -1),
        DataType::Date32 | DataType::Date64 => (1082, -1),
        DataType::Timestamp(unit, zone) => (if zone.is_some() { 1184 } else { 1114 }, digits(*unit)),
        DataType::Interval(_) | DataType::Duration(_) => (1186, -1),
        DataType::List(item) | DataType::LargeList(item) if !item.data_type().is_nested() => {
            let (element, modifier) = of(item.data_type());
            (TYPES.iter().find(|t| t.oid == element).map_or(JSON, |t| t.array), modifier)
        }
        nested if nested.is_nested() => (JSON, -1),
        _ => (1043, -1),
    }
}

/// PostgreSQL has microseconds at most.
fn digits(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => 6,
    }
}

/// What `format_type` answers.
pub(super) fn format(oid: i64, modifier: Option<i64>) -> String {
    match oid {
        0 => return "-".to_owned(),
        ANY => return "\"any\"".to_owned(),
        _ => {}
    }
    if let Some(element) = TYPES.iter().find(|t| t.array == oid) {
        return format!("{}[]", format(element.oid, modifier));
    }
    let Some(found) = TYPES.iter().find(|t| t.oid == oid) else { return "???".to_owned() };
    let modifier = modifier.filter(|modifier| *modifier >= 0);
    match (found.name, modifier) {
        ("numeric", Some(modifier)) => {
            format!("numeric({},{})", ((modifier - 4) >> 16) & 0xffff, (modifier - 4) & 0x7ff)
        }
        ("timestamp" | "timestamptz" | "time", Some(modifier)) => {
            let (first, rest) = found.sql.split_once(' ').unwrap_or((found.sql, ""));
            format!("{first}({modifier}) {rest}")
        }
        _ => found.sql.to_owned(),
    }
}

/// The number of a type by either of its names.
pub(super) fn named(name: &str) -> Option<i64> {
    let name = name.trim();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
    if let Some(element) = name.strip_suffix("[]") {
        let element = named(element)?;
        return TYPES.iter().find(|t| t.oid == element).map(|t| t.array);
    }
    let of_array = |t: &&PgType| name.strip_prefix('_') == Some(t.name);
    let own = TYPES.iter().find(|t| t.name == name || t.sql == name).map(|t| t.oid);
    own.or_else(|| TYPES.iter().find(of_array).map(|t| t.array))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_called_as_in_postgresql() {
        let told = |data_type: DataType| {
            let (oid, modifier) = of(&data_type);
            format(oid, Some(modifier))
        };
        assert_eq!(told(DataType::Decimal128(10, 2)), "numeric(10,2)");
        assert_eq!(told(DataType::Timestamp(TimeUnit::Millisecond, None)), "timestamp(3) without time zone");
        assert_eq!(told(DataType::new_list(DataType::Int32, true)), "integer[]");
        assert_eq!(told(DataType::new_list(DataType::new_list(DataType::Int32, true), true)), "json");
        assert_eq!(told(DataType::Utf8View), "character varying");
        assert_eq!(format(named("_int4").unwrap(), None), "integer[]");
        assert_eq!(named("pg_catalog.text"), Some(25));
    }
}
