//! Values of SQL, and what is common to all of them. Their texts and bytes are in the modules below.

pub mod array;
pub mod binary;
pub mod bits;
pub(crate) mod byte;
pub mod cast;
pub mod datetime;
pub mod decimal;
pub mod json;
pub mod mac;
pub mod multirange;
pub mod network;
pub mod numeric;
pub mod range;
pub mod record;
pub mod size;
mod stored;
pub mod style;
pub mod text;
pub mod zone;

use std::{cmp::Ordering, sync::Arc};

use bigdecimal::BigDecimal;
use serde::{Deserialize, Serialize};

use self::style::Style;
use crate::own::OwnTypes;

/// A value. Its type is known where it is used: all integers are one kind here, and so are `real` and `double precision`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// No value.
    Null,
    /// `boolean`
    Bool(bool),
    /// `smallint`, `integer`, `bigint`
    Int(i64),
    /// `real`, `double precision`
    Float(f64),
    /// `numeric`; the digits behind the point are part of it.
    Numeric(#[serde(with = "stored::number")] BigDecimal),
    /// `numeric` that is no number or infinite
    NonFinite(NonFinite),
    /// `text`, `character varying`, and `character` without the blanks at its end; the digits of `bit` and `bit varying`
    Text(String),
    /// `date`, in days since 2000-01-01
    Date(i32),
    /// `time`, in microseconds since midnight
    Time(i64),
    /// `timestamp` and `timestamp with time zone`, in microseconds since 2000-01-01 (UTC)
    Timestamp(i64),
    /// `interval`
    Interval(Interval),
    /// `uuid`
    Uuid([u8; 16]),
    /// `bytea`, `macaddr`, `macaddr8`
    Bytes(Vec<u8>),
    /// `jsonb`; a `json` is its text
    Json(#[serde(with = "stored::json")] Arc<json::Json>),
    /// A label of an enumeration, with its place in the order
    Enum(i64, Box<str>),
    /// An array
    Array(#[serde(with = "stored::array")] Arc<array::Array>),
    /// `inet`, `cidr`
    Network(network::Network),
    /// A range
    Range(Box<range::Range>),
    /// A row
    Record(Box<record::Record>),
    /// A multirange
    Multirange(Box<multirange::Multirange>),
}

/// A `numeric` that has no digits, in their order; between the first two are all numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NonFinite {
    /// `-Infinity`
    NegativeInfinity,
    /// `Infinity`
    Infinity,
    /// `NaN`, equal to itself
    NaN,
}

impl NonFinite {
    /// As PostgreSQL writes it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NegativeInfinity => "-Infinity",
            Self::Infinity => "Infinity",
            Self::NaN => "NaN",
        }
    }
}

/// What the meaning of a text depends on, beside the type that it is to have.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The tenant's own types.
    pub own: &'a OwnTypes,
    /// How dates and intervals are read and shown, and where clocks are.
    pub style: Style,
}

#[cfg(test)]
impl Context<'static> {
    /// Without types of a tenant's own.
    pub(crate) const NONE: Self = {
        static NOTHING: OwnTypes = OwnTypes::new();
        Self { own: &NOTHING, style: Style::PLAIN }
    };
}

/// A length of time. Months and days have no fixed length, so that they are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Months, 12 of them a year.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    /// Its length in microseconds, as it is compared: a month has 30 days, a day 24 hours.
    #[must_use]
    pub fn length(self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * i128::from(datetime::MICROS_PER_DAY) + i128::from(self.micros)
    }
}

impl Value {
    /// Whether it is NULL.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// How two values of one kind are ordered; NULL is the largest, equal to itself.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Null, Self::Null) => Ordering::Equal,
            (Self::Null, _) => Ordering::Greater,
            (_, Self::Null) => Ordering::Less,
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => compare_floats(*a, *b),
            (Self::Numeric(a), Self::Numeric(b)) => a.cmp(b),
            (Self::NonFinite(a), Self::NonFinite(b)) => a.cmp(b),
            (Self::NonFinite(NonFinite::NegativeInfinity), Self::Numeric(_)) => Ordering::Less,
            (Self::NonFinite(_), Self::Numeric(_)) => Ordering::Greater,
            (Self::Numeric(_), Self::NonFinite(_)) => other.compare(self).reverse(),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Time(a), Self::Time(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            (Self::Interval(a), Self::Interval(b)) => a.length().cmp(&b.length()),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Json(a), Self::Json(b)) => a.compare(b),
            (Self::Enum(a, _), Self::Enum(b, _)) => a.cmp(b),
            (Self::Array(a), Self::Array(b)) => a.compare(b),
            (Self::Network(a), Self::Network(b)) => a.compare(*b),
            (Self::Range(a), Self::Range(b)) => a.compare(b),
            (Self::Record(a), Self::Record(b)) => a.compare(b),
            (Self::Multirange(a), Self::Multirange(b)) => a.compare(b),
            (a, b) => {
                debug_assert!(false, "values of one kind are compared, not {a:?} and {b:?}");
                a.kind().cmp(&b.kind())
            }
        }
    }

    /// Whether it may take much memory.
    pub fn is_large(&self) -> bool {
        matches!(
            self,
            Self::Text(_) | Self::Bytes(_) | Self::Json(_) | Self::Array(_) | Self::Numeric(_) | Self::Record(_)
        )
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Text(text) => text.len(),
                Self::Bytes(bytes) => bytes.len(),
                Self::Numeric(number) => numeric::written_bytes(number),
                Self::Json(value) => value.bytes(),
                Self::Enum(_, label) => label.len(),
                Self::Array(array) => array.bytes(),
                Self::Range(range) => range.bytes(),
                Self::Record(record) => record.bytes(),
                Self::Multirange(multirange) => multirange.bytes(),
                _ => 0,
            }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::Float(_) => 3,
            Self::Numeric(_) | Self::NonFinite(_) => 4,
            Self::Text(_) => 5,
            Self::Date(_) => 6,
            Self::Time(_) => 7,
            Self::Timestamp(_) => 8,
            Self::Interval(_) => 9,
            Self::Uuid(_) => 10,
            Self::Bytes(_) => 11,
            Self::Json(_) => 12,
            Self::Enum(..) => 13,
            Self::Array(_) => 14,
            Self::Network(_) => 15,
            Self::Range(_) => 16,
            Self::Record(_) => 17,
            Self::Multirange(_) => 18,
        }
    }
}

/// NaN is the largest and equal to itself; -0 is 0.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl Value {
    /// Appends its text, as PostgreSQL shows a value of the type in a style; NULL has none.
    ///
    /// # Errors
    /// 54000 for arrays and rows whose text would be too long.
    pub fn write_text(&self, of: crate::types::Type, style: Style, out: &mut String) -> crate::error::Result<()> {
        let begin = out.len();
        text::write(self, of, style, out);
        match self {
            Self::Array(_) | Self::Record(_) => size::check_written(out.len() - begin),
            _ => Ok(()),
        }
    }

    /// Appends its bytes in the protocol's binary format; NULL has none.
    pub fn write_binary(&self, of: crate::types::Type, out: &mut Vec<u8>) {
        binary::write(self, of, out);
    }
}
