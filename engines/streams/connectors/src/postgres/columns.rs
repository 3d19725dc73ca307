//! Which types of PostgreSQL hold which types of streams.

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::names::hint;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::names::{TableName, quoted};

/// Where values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From a stream into the table.
    In,
    /// Out of it.
    Out,
}

/// A column of a table in PostgreSQL.
#[derive(Clone, Debug)]
pub(super) struct Found {
    name: String,
    /// The type as the catalog calls it, such as `int8`, or `_int8` for an array of them.
    pub(super) type_name: String,
    /// The type as it stands in SQL, with the collation if equal texts may differ in it.
    pub(super) sql: String,
    is_enum: bool,
    /// Digits and those of them behind the point, of a `numeric` or an instant that has bounds.
    digits: Option<(i32, i32)>,
}

/// The columns of a table; none if there is no such table.
pub(super) async fn columns(client: &Client, table: &TableName) -> Result<Vec<Found>, Error> {
    const ASK: &str = "SELECT a.attname::text, t.typname::text, format_type(a.atttypid, a.atttypmod), t.typtype::text, a.atttypmod, \
        m.nspname::text, l.collname::text \
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
        JOIN pg_type t ON t.oid = a.atttypid \
        LEFT JOIN pg_collation l ON l.oid = a.attcollation AND NOT l.collisdeterministic LEFT JOIN pg_namespace m ON m.oid = l.collnamespace \
        WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    let names = [(&table.schema as _, Type::TEXT), (&table.name as _, Type::TEXT)];
    let found = client.query_typed(ASK, &names).await?;
    let column = |row: &tokio_postgres::Row| {
        let (type_name, modifier): (String, i32) = (row.get(1), row.get(4));
        let mut sql: String = row.get(2);
        if let (Some(schema), Some(collation)) = (row.get::<_, Option<&str>>(5), row.get::<_, Option<&str>>(6)) {
            sql += &format!(" COLLATE {}.{}", quoted(schema), quoted(collation));
        }
        Found {
            name: row.get(0),
            digits: bounds(&type_name, modifier),
            type_name,
            sql,
            is_enum: row.get::<_, &str>(3) == "e",
        }
    };
    Ok(found.iter().map(column).collect())
}

/// The digits that a type has room for, or the elements of an array, by its modifier; nothing if it has room for any.
fn bounds(type_name: &str, modifier: i32) -> Option<(i32, i32)> {
    match type_name.strip_prefix('_').unwrap_or(type_name) {
        // As the server counts them: the scale has a sign.
        "numeric" if modifier >= 4 => {
            let modifier = modifier - 4;
            Some(((modifier >> 16) & 0xffff, ((modifier & 0x7ff) ^ 0x400) - 0x400))
        }
        "timestamp" | "timestamptz" if modifier >= 0 => Some((modifier, modifier)),
        _ => None,
    }
}

/// The columns of a stream as those of a table, in order.
///
/// # Errors
/// One is not there, or cannot hold what comes.
pub(super) fn matching<'f>(
    table: &TableName,
    wanted: &[&Field],
    found: &'f [Found],
    way: Way,
) -> Result<Vec<&'f Found>> {
    if found.is_empty() {
        return Err(StreamError::invalid(format!(
            "table {table} does not exist in PostgreSQL, or has no columns; make it, or correct 'table'"
        )));
    }
    let matching = |field: &&Field| {
        let column = found.iter().find(|column| column.name == *field.name()).ok_or_else(|| StreamError::Unknown {
            kind: "column".into(),
            name: format!("{} of {table} in PostgreSQL", field.name()),
            position: None,
            hint: hint(field.name(), found.iter().map(|column| column.name.as_str()), "columns there"),
        })?;
        let (fits, expected, advice) = match way {
            Way::In => (
                column.holds(field.data_type()),
                expected(field.data_type()),
                "declare it otherwise, and CAST what is written",
            ),
            Way::Out => (
                column.gives(field.data_type()),
                given(field.data_type()),
                "declare it as VARCHAR, which takes any, and CAST what is read",
            ),
        };
        if fits {
            return Ok(column);
        }
        Err(StreamError::invalid(format!(
            "column {} of {table} in PostgreSQL: expected {expected}, because it is {} in the stream, found {}; {advice}",
            column.name,
            type_name(field.data_type()),
            column.sql
        )))
    };
    wanted.iter().map(matching).collect()
}

/// Refuses columns that no type of PostgreSQL holds.
pub(super) fn check(schema: &SchemaRef) -> Result<()> {
    let unheld = schema.fields().iter().find(|field| types(field.data_type()).is_empty());
    unheld.map_or(Ok(()), |field| {
        Err(StreamError::invalid(format!(
            "column {} is {}, which no type of PostgreSQL holds; CAST it, such as TIMESTAMP(9) to TIMESTAMP(6)",
            field.name(),
            type_name(field.data_type())
        )))
    })
}

impl Found {
    /// One that a change names, by the number of its type. Of types that are not PostgreSQL's own nothing is known.
    pub(super) fn of_change(name: &str, type_number: u32, modifier: i32) -> Self {
        let type_name =
            Type::from_oid(type_number).map_or_else(|| format!("type {type_number}"), |of| of.name().to_owned());
        let digits = bounds(&type_name, modifier);
        Self { name: name.to_owned(), sql: type_name.clone(), type_name, is_enum: false, digits }
    }

    /// Whether each of its values is one of a type of streams.
    fn gives(&self, data_type: &DataType) -> bool {
        let (whole, behind_point) = digits(data_type);
        let fits = |(all, scale): (i32, i32)| scale <= behind_point && all - scale <= whole;
        match data_type {
            DataType::Utf8View => true,
            DataType::Decimal128(..) if self.type_name == "numeric" => self.digits.is_some_and(fits),
            _ => givers(data_type).contains(&self.type_name.as_str()),
        }
    }

    fn holds(&self, data_type: &DataType) -> bool {
        let is_text = matches!(data_type, DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8);
        let named = types(data_type).contains(&self.type_name) || (is_text && self.is_enum);
        let (whole, behind_point) = digits(data_type);
        named && self.digits.is_none_or(|(all, scale)| scale >= behind_point && all - scale >= whole)
    }
}

/// The types that hold one of streams, as the catalog calls them.
fn types(data_type: &DataType) -> Vec<String> {
    let names: &[&str] = match data_type {
        DataType::Boolean => &["bool"],
        DataType::Int8 | DataType::Int16 => &["int2", "int4", "int8", "numeric"],
        DataType::Int32 => &["int4", "int8", "numeric"],
        DataType::Int64 => &["int8", "numeric"],
        DataType::UInt64 | DataType::Decimal128(..) => &["numeric"],
        DataType::Float32 => &["float4", "float8"],
        DataType::Float64 => &["float8"],
        DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8 => {
            &["text", "varchar", "bpchar", "json", "jsonb", "uuid"]
        }
        DataType::BinaryView | DataType::Binary | DataType::LargeBinary => &["bytea"],
        DataType::Date32 => &["date"],
        // It has microseconds.
        DataType::Timestamp(TimeUnit::Nanosecond, _) => &[],
        DataType::Timestamp(_, None) => &["timestamp"],
        DataType::Timestamp(_, Some(_)) => &["timestamptz"],
        DataType::List(of) if is_plain(of.data_type()) => {
            return types(of.data_type()).into_iter().map(|name| format!("_{name}")).collect();
        }
        DataType::List(of) if types(of.data_type()).is_empty() => &[],
        DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => &["json", "jsonb"],
        _ => &[],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The types whose values are all of one of streams, as the catalog calls them.
fn givers(data_type: &DataType) -> &'static [&'static str] {
    match data_type {
        DataType::Boolean => &["bool"],
        DataType::Int16 => &["int2"],
        DataType::Int32 => &["int2", "int4"],
        DataType::Int64 => &["int2", "int4", "int8"],
        DataType::Float32 => &["float4"],
        DataType::Float64 => &["float4", "float8"],
        DataType::BinaryView => &["bytea"],
        DataType::Date32 => &["date"],
        DataType::Timestamp(_, None) => &["timestamp"],
        DataType::Timestamp(_, Some(_)) => &["timestamptz"],
        _ => &[],
    }
}

fn given(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal128(precision, scale) => format!("numeric({precision}, {scale}) or less"),
        other if givers(other).is_empty() => "nothing, since such a type is not read".to_owned(),
        other => givers(other).join(" or "),
    }
}

/// Whether a value has no others inside.
pub(super) fn is_plain(data_type: &DataType) -> bool {
    !data_type.is_nested()
}

/// The digits of a number, or of the seconds of an instant, before and behind the point; those of an array's elements.
fn digits(data_type: &DataType) -> (i32, i32) {
    match data_type {
        DataType::Int8 => (3, 0),
        DataType::Int16 => (5, 0),
        DataType::Int32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal128(precision, scale) => (i32::from(*precision) - i32::from(*scale), i32::from(*scale)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => (0, 3),
        DataType::Timestamp(TimeUnit::Microsecond, _) => (0, 6),
        DataType::List(of) if is_plain(of.data_type()) => digits(of.data_type()),
        _ => (0, 0),
    }
}

fn expected(data_type: &DataType) -> String {
    let names = types(data_type).join(" or ").replace("bpchar", "char");
    match digits(data_type) {
        (0, 0) => names,
        (0, behind_point) if names.starts_with("timestamp") || names.starts_with("_timestamp") => {
            format!("{names} (with room for {behind_point} digits of a second)")
        }
        (whole, behind_point) => {
            format!("{names} (with room for {whole} digits before the point and {behind_point} behind it)")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;

    use super::*;

    fn found(name: &str, type_name: &str, digits: Option<(i32, i32)>) -> Found {
        Found {
            name: name.into(),
            type_name: type_name.into(),
            sql: type_name.into(),
            is_enum: type_name == "mood",
            digits,
        }
    }

    #[test]
    fn a_type_is_held_where_nothing_is_lost() {
        let list = |of| DataType::List(Arc::new(Field::new_list_field(of, true)));
        let utc = || Some("UTC".into());
        for (data_type, type_name, digits, holds) in [
            (DataType::Int32, "int4", None, true),
            (DataType::Int32, "int8", None, true),
            (DataType::Int64, "int4", None, false),
            (DataType::Int64, "numeric", None, true),
            (DataType::Int64, "numeric", Some((10, 0)), false),
            (DataType::Int64, "numeric", Some((21, 2)), true),
            (DataType::Float64, "float4", None, false),
            (DataType::Decimal128(10, 2), "numeric", Some((12, 4)), true),
            (DataType::Decimal128(10, 2), "numeric", Some((10, 1)), false),
            (DataType::Decimal128(10, 2), "numeric", Some((10, 4)), false),
            (DataType::Utf8View, "jsonb", None, true),
            (DataType::Utf8View, "mood", None, true),
            (DataType::Boolean, "mood", None, false),
            (DataType::Utf8View, "bytea", None, false),
            (DataType::Timestamp(TimeUnit::Millisecond, None), "timestamp", None, true),
            (DataType::Timestamp(TimeUnit::Millisecond, None), "timestamp", Some((3, 3)), true),
            (DataType::Timestamp(TimeUnit::Millisecond, None), "timestamp", Some((0, 0)), false),
            (DataType::Timestamp(TimeUnit::Second, None), "timestamp", Some((0, 0)), true),
            (DataType::Timestamp(TimeUnit::Microsecond, utc()), "timestamptz", Some((5, 5)), false),
            (DataType::Timestamp(TimeUnit::Millisecond, None), "timestamptz", None, false),
            (DataType::Timestamp(TimeUnit::Microsecond, utc()), "timestamptz", None, true),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), "timestamp", None, false),
            (list(DataType::Int32), "_int4", None, true),
            (list(DataType::Int32), "jsonb", None, false),
            (list(DataType::Int32), "_numeric", Some((5, 0)), false),
            (list(DataType::Timestamp(TimeUnit::Millisecond, None)), "_timestamp", Some((0, 0)), false),
            (list(list(DataType::Int32)), "jsonb", None, true),
        ] {
            assert_eq!(found("a", type_name, digits).holds(&data_type), holds, "{data_type} in {type_name} {digits:?}");
        }
    }

    #[test]
    fn room_for_digits_is_that_of_the_modifier() {
        for (type_name, modifier, room) in [
            ("numeric", ((10 << 16) | 2) + 4, Some((10, 2))),
            ("_numeric", ((10 << 16) | 2) + 4, Some((10, 2))),
            ("numeric", ((2 << 16) | 0x7fd) + 4, Some((2, -3))),
            ("numeric", -1, None),
            ("timestamp", 0, Some((0, 0))),
            ("_timestamptz", 3, Some((3, 3))),
            ("timestamptz", -1, None),
            ("varchar", 14, None),
        ] {
            assert_eq!(bounds(type_name, modifier), room, "{type_name} {modifier}");
        }
    }

    #[test]
    fn errors_name_the_column_and_both_types() {
        let table = TableName::parse("shop.t").unwrap();
        let field = Field::new("amount", DataType::Int64, true);
        let wrong = matching(&table, &[&field], &[found("amount", "int4", None)], Way::In).unwrap_err().to_string();
        assert!(
            wrong.contains("column amount of \"shop\".\"t\"")
                && wrong.contains("expected int8 or numeric")
                && wrong.contains("it is BIGINT"),
            "{wrong}"
        );
        assert!(wrong.contains("found int4"), "{wrong}");
        let absent = matching(&table, &[&field], &[found("amounts", "int8", None)], Way::In).unwrap_err().to_string();
        assert!(absent.contains("amount of") && absent.contains("did you mean amounts?"), "{absent}");
        let no_table = matching(&table, &[&field], &[], Way::In).unwrap_err().to_string();
        assert!(no_table.contains("table \"shop\".\"t\" does not exist"), "{no_table}");
        let read = matching(&table, &[&field], &[found("amount", "numeric", None)], Way::Out).unwrap_err().to_string();
        assert!(read.contains("expected int2 or int4 or int8") && read.contains("declare it as VARCHAR"), "{read}");
        assert!(matching(&table, &[&field], &[found("amount", "int4", None)], Way::Out).is_ok());
        let nanos = Schema::new(vec![Field::new("at", DataType::Timestamp(TimeUnit::Nanosecond, None), true)]);
        let error = check(&Arc::new(nanos)).unwrap_err().to_string();
        assert!(error.contains("column at is TIMESTAMP(9)"), "{error}");
    }
}
