//! Types as statements write them.

use savanna_tenants_catalog::{Catalog, Name, no_schema};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::{Clock, Element, Ranged, Span, Type},
};
use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};

use crate::parse::name::relation_name;

/// The type that a statement names.
///
/// # Errors
/// 0A000 for types that PostgreSQL has, 42704 for others that there are not.
pub(crate) fn type_of(ast: &DataType, catalog: &Catalog) -> Result<Type> {
    Ok(match ast {
        DataType::Bool | DataType::Boolean => Type::Bool,
        DataType::SmallInt(None) | DataType::Int2(None) => Type::Int2,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Type::Int4,
        DataType::BigInt(None) | DataType::Int8(None) => Type::Int8,
        DataType::Real | DataType::Float4 => Type::Float4,
        DataType::Float(ExactNumberInfo::None) | DataType::Float8 | DataType::DoublePrecision => Type::Float8,
        DataType::Float(ExactNumberInfo::Precision(1..=24)) => Type::Float4,
        DataType::Float(ExactNumberInfo::Precision(25..=53)) => Type::Float8,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => Type::Numeric(precision(info)?),
        DataType::Text => Type::Text,
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            Type::Varchar(length.as_ref().map(characters).transpose()?)
        }
        DataType::Char(length) | DataType::Character(length) => Type::Char(length.as_ref().map_or(Ok(1), characters)?),
        DataType::Date => Type::Date,
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => rounded(Clock::Time, *digits),
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            rounded(Clock::Timestamp, *digits)
        }
        DataType::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            rounded(Clock::Timestamptz, *digits)
        }
        DataType::Interval { fields: None, precision } => rounded(Clock::Interval, *precision),
        DataType::Interval { fields: Some(fields), precision } => Type::Spanned(
            Span::of_name(&fields.to_string().to_ascii_lowercase()).ok_or_else(|| unknown(ast))?,
            precision.map(digits),
        ),
        DataType::Uuid => Type::Uuid,
        DataType::Bit(length) => Type::Bit(Some(bits(length.unwrap_or(1), "bit")?)),
        DataType::BitVarying(length) | DataType::VarBit(length) => {
            Type::Varbit(length.map(|length| bits(length, "varbit")).transpose()?)
        }
        DataType::Bytea => Type::Bytea,
        DataType::JSON => Type::Json,
        DataType::JSONB => Type::Jsonb,
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            let element = type_of(element, catalog)?;
            let kept = element.exact() == element;
            element.array().filter(|_| kept).ok_or_else(|| unknown(ast))?
        }
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let name = relation_name(name)?;
            let builtin = matches!(name.schema.as_deref(), None | Some("pg_catalog"));
            match (named(&name.name).filter(|_| builtin), catalog.own_type(&name)) {
                (Some(of), _) => of,
                (None, Some(of)) => of,
                (None, None) if let Some(of) = array_of_own(catalog, &name) => of,
                _ if builtin && NOT_HERE.contains(&name.name.as_str()) => return Err(unknown(ast)),
                (None, None) if catalog.domain(&name).is_some() => {
                    return Err(SqlError::unsupported(format_args!("the domain {name} here")));
                }
                (None, None) => return Err(no_type(catalog, &name)),
            }
        }
        _ => return Err(unknown(ast)),
    })
}

/// The arrays of a type of a tenant, by the name that PostgreSQL keeps of them.
fn array_of_own(catalog: &Catalog, name: &Name) -> Option<Type> {
    let element = Name { schema: name.schema.clone(), name: name.name.strip_prefix('_')?.to_owned() };
    catalog.own_type(&element)?.array()
}

/// There is no type of a name.
pub fn no_type(catalog: &Catalog, name: &Name) -> SqlError {
    match &name.schema {
        Some(schema) if schema != "pg_catalog" && catalog.schema_number(schema).is_none() => no_schema(schema),
        _ => SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")),
    }
}

/// A type by the name that PostgreSQL keeps of it. Others come here with quotes or a schema only.
fn named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "int2" => Type::Int2,
        "int4" => Type::Int4,
        "int8" => Type::Int8,
        "oid" => Type::Oid,
        "int2vector" => Type::Array(Element::INT2_OF_VECTOR),
        "oidvector" => Type::Array(Element::OID_OF_VECTOR),
        "float4" => Type::Float4,
        "float8" => Type::Float8,
        "numeric" => Type::Numeric(None),
        "text" | "bpchar" | "name" | "regproc" => Type::Text,
        "char" => Type::Byte,
        "varchar" => Type::Varchar(None),
        "bytea" => Type::Bytea,
        "uuid" => Type::Uuid,
        "inet" => Type::Inet,
        "cidr" => Type::Cidr,
        "macaddr" => Type::Macaddr,
        "macaddr8" => Type::Macaddr8,
        "bit" => Type::Bit(None),
        "varbit" => Type::Varbit(None),
        "date" => Type::Date,
        "time" => Type::Time,
        "timestamp" => Type::Timestamp,
        "timestamptz" => Type::Timestamptz,
        "interval" => Type::Interval,
        "json" => Type::Json,
        "jsonpath" => Type::Jsonpath,
        "jsonb" => Type::Jsonb,
        // That of an array begins so.
        array if array.starts_with('_') => return named(&array[1..]).filter(|of| of.element().is_none())?.array(),
        other => {
            let multirange = || Ranged::of_multirange_name(other).map(Type::Multirange);
            return Ranged::of_name(other).map(Type::Range).or_else(multirange);
        }
    })
}

/// The type to which a function of this name casts, as `float8(count(*))`. Other names of types are words that no function can have.
pub(crate) fn type_of_cast(name: &str) -> Option<Type> {
    const NAMES: [&str; 19] = [
        "bool",
        "int2",
        "int4",
        "int8",
        "oid",
        "float4",
        "float8",
        "text",
        "bytea",
        "uuid",
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "varbit",
        "date",
        "timestamptz",
        "json",
        "jsonb",
    ];
    NAMES.contains(&name).then(|| named(name)).flatten()
}

/// Types of PostgreSQL that there are not here.
const NOT_HERE: [&str; 23] = [
    "aclitem",
    "box",
    "circle",
    "hstore",
    "line",
    "lseg",
    "money",
    "path",
    "pg_lsn",
    "point",
    "polygon",
    "record",
    "regoper",
    "regtype",
    "regrole",
    "tid",
    "timetz",
    "tsquery",
    "tsvector",
    "xid",
    "xml",
    "citext",
    "txid_snapshot",
];

fn unknown(ast: &DataType) -> SqlError {
    SqlError::unsupported(format_args!("type {}", ast.to_string().to_ascii_lowercase()))
}

/// A type of times.
pub(crate) fn rounded(clock: Clock, written: Option<u64>) -> Type {
    let digits = written.map_or(DIGITS_MAX, digits);
    let of = Type::Rounded(clock, digits);
    if digits < DIGITS_MAX { of } else { of.exact() }
}

/// More digits than six are six, as in PostgreSQL.
pub(crate) fn digits(written: u64) -> u8 {
    u8::try_from(written).map_or(DIGITS_MAX, |digits| digits.min(DIGITS_MAX))
}

const DIGITS_MAX: u8 = 6;

fn precision(info: &ExactNumberInfo) -> Result<Option<(u16, u16)>> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(None),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    if !(1..=1000).contains(&precision) {
        let message = format!("NUMERIC precision {precision} must be between 1 and 1000");
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
    }
    if !(0..=precision as i64).contains(&scale) {
        return Err(SqlError::unsupported(format_args!(
            "a NUMERIC scale of {scale} beside a precision of {precision}"
        )));
    }
    Ok(Some((precision as u16, scale as u16)))
}

fn characters(length: &CharacterLength) -> Result<u32> {
    match length {
        CharacterLength::IntegerLength { length: length @ 1..=10_485_760, unit: None } => Ok(*length as u32),
        other => {
            let message = format!("length of a character type must be between 1 and 10485760, not {other}");
            Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// How many bits a type has that PostgreSQL calls so.
fn bits(length: u64, name: &str) -> Result<u32> {
    const BITS_MAX: u64 = 83_886_080;
    let (bound, wrong) = match length {
        0 => ("at least 1", true),
        length => ("at most 83886080", length > BITS_MAX),
    };
    match wrong {
        true => Err(SqlError::new(state::INVALID_PARAMETER_VALUE, format!("length for type {name} must be {bound}"))),
        false => Ok(length as u32),
    }
}
