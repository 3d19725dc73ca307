//! The types of columns and expressions, with their names and numbers in PostgreSQL.

mod ranged;
mod span;

use serde::{Deserialize, Serialize};

pub use self::{ranged::Ranged, span::Span};

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
    /// `interval` that is limited to some fields, perhaps with so many digits behind the point, at most six. As with digits, only columns and
    /// casts have it.
    Spanned(Span, Option<u8>),
    /// `jsonpath`, a text
    Jsonpath,
    /// `inet`, an address with the bits of its network
    Inet,
    /// `cidr`, a network
    Cidr,
    /// `macaddr`
    Macaddr,
    /// `macaddr8`
    Macaddr8,
    /// `bit`, with its length or any
    Bit(Option<u32>),
    /// `bit varying`, with the most bits or any
    Varbit(Option<u32>),
    /// `int4range` and the like
    Range(Ranged),
    /// `record`, a row of any columns
    Record,
    /// `int4multirange` and the like
    Multirange(Ranged),
    /// A composite type, by its number
    Composite(u32),
}

/// What PostgreSQL says instead of the digits of an interval that has them all.
const ALL_DIGITS: i32 = 0xffff;

/// What PostgreSQL says beside the digits of an interval that has all fields.
const ALL_FIELDS: i32 = 0x7fff << 16;

/// A type of times that can be rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Clock {
    /// `time`
    Time,
    /// `timestamp`
    Timestamp,
    /// `timestamp with time zone`
    Timestamptz,
    /// `interval`
    Interval,
}

/// The type of an array's elements, as PostgreSQL says it: its number, and its length or precision, -1 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Element {
    oid: u32,
    modifier: i32,
}

impl Element {
    /// `text`
    pub const TEXT: Self = Self { oid: 25, modifier: -1 };
    /// `oid`
    pub const OID: Self = Self { oid: 26, modifier: -1 };
    /// `smallint`
    pub const INT2: Self = Self { oid: 21, modifier: -1 };
    /// `smallint` of an `int2vector`
    pub const INT2_OF_VECTOR: Self = Self { oid: 21, modifier: VECTOR };
    /// `oid` of an `oidvector`
    pub const OID_OF_VECTOR: Self = Self { oid: 26, modifier: VECTOR };

    /// The number of the arrays that are vectors, if these are.
    const fn vector(self) -> Option<u32> {
        match self {
            Self::INT2_OF_VECTOR => Some(22),
            Self::OID_OF_VECTOR => Some(30),
            _ => None,
        }
    }
}

/// What stands instead of a length where elements are rows of a composite type.
const COMPOSITE: i32 = -3;

/// The number of the arrays of a composite type: no other type has one as high.
const fn array_of_composite(id: u32) -> u32 {
    1 << 31 | id
}

/// The composite type whose arrays have a number.
pub const fn composite_of_array(oid: u32) -> Option<u32> {
    if oid >> 31 == 1 { Some(oid & !(1 << 31)) } else { None }
}

/// What stands instead of a length where arrays are vectors, which the catalog has: they begin at 0, and their texts have no braces.
const VECTOR: i32 = -2;

/// Types of elements that have a number of their own in PostgreSQL, with those of their arrays.
const ARRAYS: [(u32, u32); 42] = [
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
    (650, 651),
    (700, 1021),
    (701, 1022),
    (774, 775),
    (829, 1040),
    (869, 1041),
    (1042, 1014),
    (1043, 1015),
    (1082, 1182),
    (1083, 1183),
    (1114, 1115),
    (1184, 1185),
    (1186, 1187),
    (1560, 1561),
    (1562, 1563),
    (1700, 1231),
    (2249, 2287),
    (2950, 2951),
    (3802, 3807),
    (3904, 3905),
    (3906, 3907),
    (3908, 3909),
    (3910, 3911),
    (3912, 3913),
    (3926, 3927),
    (4072, 4073),
    (4451, 6150),
    (4532, 6151),
    (4533, 6152),
    (4534, 6153),
    (4535, 6155),
    (4536, 6157),
];

/// The number of the arrays of a type, by its number.
pub fn array_oid(element: u32) -> Option<u32> {
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
            Self::Jsonpath => 4072,
            Self::Inet => 869,
            Self::Cidr => 650,
            Self::Macaddr => 829,
            Self::Macaddr8 => 774,
            Self::Bit(_) => 1560,
            Self::Varbit(_) => 1562,
            Self::Range(of) => of.oid(),
            Self::Multirange(of) => of.multirange_oid(),
            Self::Record => 2249,
            Self::Char(_) => 1042,
            Self::Varchar(_) => 1043,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::Timestamptz => 1184,
            Self::Interval => 1186,
            Self::Numeric(_) => 1700,
            Self::Uuid => 2950,
            Self::Enum(id) | Self::Composite(id) => id,
            Self::Oid => 26,
            Self::Byte => 18,
            Self::Rounded(..) | Self::Spanned(..) => self.exact().oid(),
            // The arrays of an enumeration have the number behind its own.
            Self::Array(Element { oid, modifier: COMPOSITE }) => array_of_composite(oid),
            Self::Array(element) => element.vector().or_else(|| array_oid(element.oid)).unwrap_or(element.oid + 1),
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
            22 => Self::Array(Element::INT2_OF_VECTOR),
            30 => Self::Array(Element::OID_OF_VECTOR),
            114 => Self::Json,
            3802 => Self::Jsonb,
            4072 => Self::Jsonpath,
            869 => Self::Inet,
            2249 => Self::Record,
            650 => Self::Cidr,
            829 => Self::Macaddr,
            774 => Self::Macaddr8,
            1560 => Self::Bit(None),
            1562 => Self::Varbit(None),
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
                if let Some(of) = Ranged::ALL.into_iter().find(|of| of.oid() == oid) {
                    return Some(Self::Range(of));
                }
                if let Some(of) = Ranged::ALL.into_iter().find(|of| of.multirange_oid() == oid) {
                    return Some(Self::Multirange(of));
                }
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
            Self::Interval | Self::Uuid | Self::Rounded(Clock::Interval, _) | Self::Spanned(..) => 16,
            Self::Enum(_) => 4,
            Self::Rounded(..) | Self::Macaddr8 => 8,
            Self::Macaddr => 6,
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
            Self::Bit(Some(length)) | Self::Varbit(Some(length)) => length as i32,
            Self::Array(element) => element.modifier.max(-1),
            Self::Rounded(Clock::Interval, digits) => ALL_FIELDS | i32::from(digits),
            Self::Rounded(_, digits) => i32::from(digits),
            Self::Spanned(span, digits) => span.fields() << 16 | digits.map_or(ALL_DIGITS, i32::from),
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
            Self::Jsonpath => "jsonpath".to_owned(),
            Self::Oid => "oid".to_owned(),
            Self::Byte => "\"char\"".to_owned(),
            Self::Inet => "inet".to_owned(),
            Self::Range(of) => of.name().to_owned(),
            Self::Multirange(of) => of.multirange_name(),
            Self::Record => "record".to_owned(),
            Self::Cidr => "cidr".to_owned(),
            Self::Macaddr => "macaddr".to_owned(),
            Self::Macaddr8 => "macaddr8".to_owned(),
            Self::Bit(None) => "bit".to_owned(),
            Self::Bit(Some(length)) => format!("bit({length})"),
            Self::Varbit(None) => "bit varying".to_owned(),
            Self::Varbit(Some(length)) => format!("bit varying({length})"),
            Self::Rounded(Clock::Interval, digits) => format!("interval({digits})"),
            Self::Spanned(span, None) => format!("interval {}", span.name()),
            Self::Spanned(span, Some(digits)) => format!("interval {}({digits})", span.name()),
            Self::Rounded(..) => {
                let whole = self.exact().name();
                let (kind, zone) = whole.split_once(' ').unwrap_or((&whole, ""));
                format!("{kind}({}) {zone}", self.modifier())
            }
            // The catalog knows its name.
            Self::Enum(id) => format!("enumeration {id}"),
            Self::Composite(id) => format!("composite type {id}"),
            Self::Array(Element::INT2_OF_VECTOR) => "int2vector".to_owned(),
            Self::Array(Element::OID_OF_VECTOR) => "oidvector".to_owned(),
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
            Self::Bit(_) | Self::Varbit(_) => self.unbounded().name(),
            Self::Array(element) if element.vector().is_some() => self.name(),
            Self::Array(_) => format!("{}[]", self.element().map(Self::base_name).unwrap_or_default()),
            Self::Rounded(..) | Self::Spanned(..) => self.exact().name(),
            other => other.name(),
        }
    }

    /// The number of the type of the tenant's own that its values, or their elements, are of.
    pub fn own(self) -> Option<u32> {
        match self {
            Self::Enum(id) | Self::Composite(id) => Some(id),
            Self::Array(_) => self.element().and_then(Self::own),
            _ => None,
        }
    }

    /// The number of the composite type that its values, or their elements, are of.
    pub fn composite(self) -> Option<u32> {
        match self {
            Self::Composite(id) => Some(id),
            Self::Array(Element { oid, modifier: COMPOSITE }) => Some(oid),
            _ => None,
        }
    }

    /// Whether its values are rows.
    pub fn is_row(self) -> bool {
        matches!(self, Self::Record | Self::Composite(_))
    }

    /// The type of the arrays of this type; an array's own. There is none of what has no type yet.
    #[must_use]
    pub fn array(self) -> Option<Self> {
        match self {
            Self::Unknown => None,
            Self::Array(_) => Some(self),
            Self::Rounded(..) | Self::Spanned(..) => self.exact().array(),
            Self::Composite(oid) => Some(Self::Array(Element { oid, modifier: COMPOSITE })),
            of => Some(Self::Array(Element { oid: of.oid(), modifier: of.modifier() })),
        }
    }

    /// Whether it is a vector of the catalog.
    #[must_use]
    pub fn is_vector(self) -> bool {
        matches!(self, Self::Array(element) if element.vector().is_some())
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
    pub fn of_oid_and_modifier(oid: u32, modifier: i32) -> Self {
        if modifier == COMPOSITE {
            return Self::Composite(oid);
        }
        let bound = u32::try_from(modifier.saturating_sub(4)).ok();
        if let (1186, Ok(digits @ 0..6)) = (oid, u8::try_from(modifier ^ ALL_FIELDS)) {
            return Self::Rounded(Clock::Interval, digits);
        }
        if let (1186, Some(span)) = (oid, Span::of_fields(modifier >> 16)) {
            return Self::Spanned(span, u8::try_from(modifier & ALL_DIGITS).ok());
        }
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
            (1560, _) => Self::Bit(u32::try_from(modifier).ok()),
            (1562, _) => Self::Varbit(u32::try_from(modifier).ok()),
            (1700, Some(bound)) => Self::Numeric(Some(((bound >> 16) as u16, bound as u16))),
            _ => Self::of_oid(oid).unwrap_or(Self::Enum(oid)),
        }
    }

    /// Whether it is one of the types of numbers.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.number_rank().is_some()
    }

    /// Whether two of its values may be equal.
    #[must_use]
    pub fn is_comparable(self) -> bool {
        !matches!(self.element().unwrap_or(self), Self::Json | Self::Jsonpath)
    }

    /// Whether it is an integer.
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8 | Self::Oid)
    }

    /// Whether it is one of the types of text.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Varchar(_) | Self::Char(_))
    }

    /// Whether it is one of the types of network addresses.
    #[must_use]
    pub fn is_network(self) -> bool {
        matches!(self, Self::Inet | Self::Cidr)
    }

    /// Whether it is one of the types of strings of bits.
    #[must_use]
    pub fn is_bits(self) -> bool {
        matches!(self, Self::Bit(_) | Self::Varbit(_))
    }

    /// Whether it is one of the types of ranges and multiranges.
    #[must_use]
    pub fn is_range(self) -> bool {
        matches!(self, Self::Range(_) | Self::Multirange(_))
    }

    /// Whether its values are texts where texts are wanted.
    pub fn becomes_text(self) -> bool {
        self.is_text() || matches!(self, Self::Byte | Self::Unknown)
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
            Self::Rounded(Clock::Interval, _) | Self::Spanned(..) => Self::Interval,
            other => other,
        }
    }

    /// The type without length or precision.
    #[must_use]
    pub fn unbounded(self) -> Self {
        match self {
            Self::Rounded(..) | Self::Spanned(..) => self.exact(),
            Self::Numeric(_) => Self::Numeric(None),
            Self::Varchar(_) => Self::Varchar(None),
            Self::Bit(_) => Self::Bit(None),
            Self::Varbit(_) => Self::Varbit(None),
            Self::Array(element) => {
                let kept = element.vector().is_some() || element.modifier == COMPOSITE;
                Self::Array(Element { modifier: if kept { element.modifier } else { -1 }, ..element })
            }
            other => other,
        }
    }
}
