//! The types of columns and expressions, with their names and numbers in PostgreSQL.

use serde::{Deserialize, Serialize};
use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};

use crate::{
    catalog::Catalog,
    error::{Result, SqlError, state},
    sql::name::type_name,
};

/// A type. Its variants are part of the catalog's format: new ones go to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `numeric`, with precision and scale or any
    Numeric(Option<(u16, u16)>),
    /// `text`
    Text,
    /// `character varying`, with the most characters or any
    Varchar(Option<u32>),
    /// `character`, padded to so many characters
    Char(u32),
    /// `date`, in days since 2000-01-01
    Date,
    /// `time`, in microseconds
    Time,
    /// `timestamp`, in microseconds since 2000-01-01
    Timestamp,
    /// `timestamp with time zone`, in microseconds since 2000-01-01 UTC
    Timestamptz,
    /// `interval`
    Interval,
    /// `uuid`
    Uuid,
    /// `bytea`
    Bytea,
    /// A string literal, NULL or parameter that has no type yet.
    Unknown,
    /// `json`, a text
    Json,
    /// `jsonb`
    Jsonb,
    /// An enumeration, by its number
    Enum(u32),
    /// `[]` of some type
    Array(Element),
    /// `oid`, the number of an object of the catalog
    Oid,
    /// `"char"`, one byte in the catalog
    Byte,
    /// A type of times with so many digits behind the point, fewer than six. Only columns and casts have it: an expression has the
    /// type without.
    Rounded(Clock, u8),
}

/// A type of times that can be rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Clock {
    /// `time`
    Time,
    /// `timestamp`
    Timestamp,
    /// `timestamp with time zone`
    Timestamptz,
}

/// The type of an array's elements, as PostgreSQL says it: its number, and its length or precision, -1 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Element {
    oid: u32,
    modifier: i32,
}

impl Element {
    /// `text`
    pub(crate) const TEXT: Self = Self { oid: 25, modifier: -1 };
}

/// Types of elements that have a number of their own in PostgreSQL, with those of their arrays.
const ARRAYS: [(u32, u32); 22] = [
    (16, 1000),
    (17, 1001),
    (18, 1002),
    (19, 1003),
    (20, 1016),
    (21, 1005),
    (23, 1007),
    (25, 1009),
    (26, 1028),
    (114, 199),
    (700, 1021),
    (701, 1022),
    (1042, 1014),
    (1043, 1015),
    (1082, 1182),
    (1083, 1183),
    (1114, 1115),
    (1184, 1185),
    (1186, 1187),
    (1700, 1231),
    (2950, 2951),
    (3802, 3807),
];

/// The number of the arrays of a type, by its number.
pub(crate) fn array_oid(element: u32) -> Option<u32> {
    ARRAYS.iter().find(|(of, _)| *of == element).map(|(_, array)| *array)
}

impl Type {
    /// `character` of any length, which nothing is padded to.
    pub const ANY_CHAR: Self = Self::Char(10_485_760);

    /// PostgreSQL's number of the type.
    #[must_use]
    pub fn oid(self) -> u32 {
        match self {
            Self::Bool => 16,
            Self::Bytea => 17,
            Self::Int8 => 20,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Text => 25,
            Self::Float4 => 700,
            Self::Float8 => 701,
            Self::Unknown => 705,
            Self::Json => 114,
            Self::Jsonb => 3802,
            Self::Char(_) => 1042,
            Self::Varchar(_) => 1043,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::Timestamptz => 1184,
            Self::Interval => 1186,
            Self::Numeric(_) => 1700,
            Self::Uuid => 2950,
            Self::Enum(id) => id,
            Self::Oid => 26,
            Self::Byte => 18,
            Self::Rounded(..) => self.exact().oid(),
            // The arrays of an enumeration have the number behind its own.
            Self::Array(element) => array_oid(element.oid).unwrap_or(element.oid + 1),
        }
    }

    /// The type with a number of PostgreSQL; 0 and 705 are a type yet to be found.
    #[must_use]
    pub fn of_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            0 | 705 => Self::Unknown,
            16 => Self::Bool,
            17 => Self::Bytea,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            25 | 19 => Self::Text,
            18 => Self::Byte,
            26 => Self::Oid,
            114 => Self::Json,
            3802 => Self::Jsonb,
            700 => Self::Float4,
            701 => Self::Float8,
            // Without a length, as PostgreSQL takes a parameter of this type.
            1042 => Self::Text,
            1043 => Self::Varchar(None),
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::Timestamptz,
            1186 => Self::Interval,
            1700 => Self::Numeric(None),
            2950 => Self::Uuid,
            _ => {
                let (element, _) = ARRAYS.iter().find(|(_, array)| *array == oid)?;
                return Self::of_oid(*element).and_then(Self::array);
            }
        })
    }

    /// Bytes of a value on the wire, -1 if they vary.
    #[must_use]
    pub fn wire_size(self) -> i16 {
        match self {
            Self::Bool | Self::Byte => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Float4 | Self::Date | Self::Oid => 4,
            Self::Int8 | Self::Float8 | Self::Time | Self::Timestamp | Self::Timestamptz => 8,
            Self::Interval | Self::Uuid => 16,
            Self::Enum(_) => 4,
            Self::Rounded(..) => 8,
            Self::Unknown => -2,
            _ => -1,
        }
    }

    /// What PostgreSQL says about length or precision, -1 if nothing.
    #[must_use]
    pub fn modifier(self) -> i32 {
        match self {
            Self::Numeric(Some((precision, scale))) => (i32::from(precision) << 16 | i32::from(scale)) + 4,
            Self::ANY_CHAR => -1,
            Self::Varchar(Some(length)) | Self::Char(length) => length as i32 + 4,
            Self::Array(element) => element.modifier,
            Self::Rounded(_, digits) => i32::from(digits),
            _ => -1,
        }
    }

    /// The name that PostgreSQL shows.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Bool => "boolean".to_owned(),
            Self::Int2 => "smallint".to_owned(),
            Self::Int4 => "integer".to_owned(),
            Self::Int8 => "bigint".to_owned(),
            Self::Float4 => "real".to_owned(),
            Self::Float8 => "double precision".to_owned(),
            Self::Numeric(None) => "numeric".to_owned(),
            Self::Numeric(Some((precision, scale))) => format!("numeric({precision},{scale})"),
            Self::Text => "text".to_owned(),
            Self::Varchar(None) => "character varying".to_owned(),
            Self::Varchar(Some(length)) => format!("character varying({length})"),
            Self::Char(length) => format!("character({length})"),
            Self::Date => "date".to_owned(),
            Self::Time => "time without time zone".to_owned(),
            Self::Timestamp => "timestamp without time zone".to_owned(),
            Self::Timestamptz => "timestamp with time zone".to_owned(),
            Self::Interval => "interval".to_owned(),
            Self::Uuid => "uuid".to_owned(),
            Self::Bytea => "bytea".to_owned(),
            Self::Unknown => "unknown".to_owned(),
            Self::Json => "json".to_owned(),
            Self::Jsonb => "jsonb".to_owned(),
            Self::Oid => "oid".to_owned(),
            Self::Byte => "\"char\"".to_owned(),
            Self::Rounded(..) => {
                let whole = self.exact().name();
                let (kind, zone) = whole.split_once(' ').unwrap_or((&whole, ""));
                format!("{kind}({}) {zone}", self.modifier())
            }
            // The catalog knows its name.
            Self::Enum(id) => format!("enumeration {id}"),
            Self::Array(_) => format!("{}[]", self.element().map(Self::name).unwrap_or_default()),
        }
    }

    /// The name without length or precision, as in messages about operators.
    #[must_use]
    pub fn base_name(self) -> String {
        match self {
            Self::Numeric(_) => "numeric".to_owned(),
            Self::Varchar(_) => "character varying".to_owned(),
            Self::Char(_) => "character".to_owned(),
            Self::Array(_) => format!("{}[]", self.element().map(Self::base_name).unwrap_or_default()),
            Self::Rounded(..) => self.exact().name(),
            other => other.name(),
        }
    }

    /// The number of the enumeration that its values are of.
    pub(crate) fn enumeration(self) -> Option<u32> {
        match self {
            Self::Enum(id) => Some(id),
            Self::Array(_) => self.element().and_then(Self::enumeration),
            _ => None,
        }
    }

    /// The type of the arrays of this type; an array's own. There is none of what has no type yet.
    #[must_use]
    pub fn array(self) -> Option<Self> {
        match self {
            Self::Unknown => None,
            Self::Array(_) => Some(self),
            Self::Rounded(..) => self.exact().array(),
            of => Some(Self::Array(Element { oid: of.oid(), modifier: of.modifier() })),
        }
    }

    /// The type of an array's elements.
    #[must_use]
    pub fn element(self) -> Option<Self> {
        match self {
            Self::Array(Element { oid, modifier }) => Some(Self::of_oid_and_modifier(oid, modifier)),
            _ => None,
        }
    }

    /// The type with a number, and a length or precision as [`Self::modifier`] says it. Numbers that PostgreSQL does not have are those of
    /// enumerations.
    pub(crate) fn of_oid_and_modifier(oid: u32, modifier: i32) -> Self {
        let bound = u32::try_from(modifier.saturating_sub(4)).ok();
        if let Ok(digits @ 0..6) = u8::try_from(modifier) {
            match oid {
                1083 => return Self::Rounded(Clock::Time, digits),
                1114 => return Self::Rounded(Clock::Timestamp, digits),
                1184 => return Self::Rounded(Clock::Timestamptz, digits),
                _ => {}
            }
        }
        match (oid, bound) {
            (1042, bound) => bound.map_or(Self::ANY_CHAR, Self::Char),
            (1043, bound) => Self::Varchar(bound),
            (1700, Some(bound)) => Self::Numeric(Some(((bound >> 16) as u16, bound as u16))),
            _ => Self::of_oid(oid).unwrap_or(Self::Enum(oid)),
        }
    }

    /// Whether it is one of the types of numbers.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.number_rank().is_some()
    }

    /// Whether it is an integer.
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8 | Self::Oid)
    }

    /// Whether it is one of the types of text.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Varchar(_) | Self::Char(_) | Self::Byte)
    }

    /// Where a number stands in the order in which one becomes the other by itself.
    #[must_use]
    pub fn number_rank(self) -> Option<u8> {
        Some(match self {
            Self::Int2 => 0,
            Self::Int4 => 1,
            Self::Int8 | Self::Oid => 2,
            Self::Numeric(_) => 3,
            Self::Float4 => 4,
            Self::Float8 => 5,
            _ => return None,
        })
    }

    /// The type that expressions have whose values are of this one.
    #[must_use]
    pub fn exact(self) -> Self {
        match self {
            Self::Rounded(Clock::Time, _) => Self::Time,
            Self::Rounded(Clock::Timestamp, _) => Self::Timestamp,
            Self::Rounded(Clock::Timestamptz, _) => Self::Timestamptz,
            other => other,
        }
    }

    /// The type without length or precision.
    #[must_use]
    pub fn unbounded(self) -> Self {
        match self {
            Self::Rounded(..) => self.exact(),
            Self::Numeric(_) => Self::Numeric(None),
            Self::Varchar(_) => Self::Varchar(None),
            Self::Array(element) => Self::Array(Element { modifier: -1, ..element }),
            other => other,
        }
    }

    /// The type that a statement names.
    ///
    /// # Errors
    /// 0A000 for types that PostgreSQL has, 42704 for others that there are not.
    pub fn of_ast(ast: &DataType, catalog: &Catalog) -> Result<Self> {
        Ok(match ast {
            DataType::Bool | DataType::Boolean => Self::Bool,
            DataType::SmallInt(None) | DataType::Int2(None) => Self::Int2,
            DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Self::Int4,
            DataType::BigInt(None) | DataType::Int8(None) => Self::Int8,
            DataType::Real | DataType::Float4 => Self::Float4,
            DataType::Float(ExactNumberInfo::None) | DataType::Float8 | DataType::DoublePrecision => Self::Float8,
            DataType::Float(ExactNumberInfo::Precision(1..=24)) => Self::Float4,
            DataType::Float(ExactNumberInfo::Precision(25..=53)) => Self::Float8,
            DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => Self::Numeric(precision(info)?),
            DataType::Text => Self::Text,
            DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
                Self::Varchar(length.as_ref().map(characters).transpose()?)
            }
            DataType::Char(length) | DataType::Character(length) => {
                Self::Char(length.as_ref().map_or(Ok(1), characters)?)
            }
            DataType::Date => Self::Date,
            DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => rounded(Clock::Time, *digits),
            DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                rounded(Clock::Timestamp, *digits)
            }
            DataType::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
                rounded(Clock::Timestamptz, *digits)
            }
            DataType::Interval { fields: None, precision: None } => Self::Interval,
            DataType::Uuid => Self::Uuid,
            DataType::Bytea => Self::Bytea,
            DataType::JSON => Self::Json,
            DataType::JSONB => Self::Jsonb,
            DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
                let element = Self::of_ast(element, catalog)?;
                let kept = !matches!(element, Self::Rounded(..));
                element.array().filter(|_| kept).ok_or_else(|| unknown(ast))?
            }
            DataType::Custom(name, modifiers) if modifiers.is_empty() => {
                let name = type_name(name)?;
                match (named(&name), catalog.enumeration(&name)) {
                    (Some(of), _) => of,
                    _ if NOT_HERE.contains(&name.as_str()) => return Err(unknown(ast)),
                    (None, Some(of)) => Self::Enum(of.id),
                    (None, None) => {
                        return Err(SqlError::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")));
                    }
                }
            }
            _ => return Err(unknown(ast)),
        })
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
        "float4" => Type::Float4,
        "float8" => Type::Float8,
        "numeric" => Type::Numeric(None),
        "text" | "bpchar" | "name" | "char" | "regproc" => Type::Text,
        "varchar" => Type::Varchar(None),
        "bytea" => Type::Bytea,
        "uuid" => Type::Uuid,
        "date" => Type::Date,
        "time" => Type::Time,
        "timestamp" => Type::Timestamp,
        "timestamptz" => Type::Timestamptz,
        "interval" => Type::Interval,
        "json" => Type::Json,
        "jsonb" => Type::Jsonb,
        _ => return None,
    })
}

/// Types of PostgreSQL that there are not here.
const NOT_HERE: [&str; 38] = [
    "aclitem",
    "bit",
    "box",
    "cidr",
    "circle",
    "daterange",
    "datemultirange",
    "hstore",
    "inet",
    "int4range",
    "int8range",
    "int2vector",
    "jsonpath",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "numrange",
    "oidvector",
    "path",
    "pg_lsn",
    "point",
    "polygon",
    "regoper",
    "regtype",
    "regrole",
    "tid",
    "timetz",
    "tsquery",
    "tsrange",
    "tstzrange",
    "tsvector",
    "varbit",
    "xid",
    "xml",
    "citext",
    "txid_snapshot",
];

fn unknown(ast: &DataType) -> SqlError {
    SqlError::unsupported(format_args!("type {}", ast.to_string().to_ascii_lowercase()))
}

/// A type of times; more digits than six are six, as in PostgreSQL.
fn rounded(clock: Clock, digits: Option<u64>) -> Type {
    let digits = digits.and_then(|digits| u8::try_from(digits).ok()).unwrap_or(6);
    let of = Type::Rounded(clock, digits);
    if digits < 6 { of } else { of.exact() }
}

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
