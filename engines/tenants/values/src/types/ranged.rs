//! Types of ranges.

use serde::{Deserialize, Serialize};

use super::Type;

/// What a range is of. The variants are part of the catalog's format.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ranged {
    Int4,
    Num,
    Ts,
    Tstz,
    Date,
    Int8,
}

impl Ranged {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Int4, Self::Num, Self::Ts, Self::Tstz, Self::Date, Self::Int8];

    /// The type of its bounds.
    #[must_use]
    pub fn element(self) -> Type {
        match self {
            Self::Int4 => Type::Int4,
            Self::Num => Type::Numeric(None),
            Self::Ts => Type::Timestamp,
            Self::Tstz => Type::Timestamptz,
            Self::Date => Type::Date,
            Self::Int8 => Type::Int8,
        }
    }

    /// PostgreSQL's number of the type of ranges.
    #[must_use]
    pub fn oid(self) -> u32 {
        match self {
            Self::Int4 => 3904,
            Self::Num => 3906,
            Self::Ts => 3908,
            Self::Tstz => 3910,
            Self::Date => 3912,
            Self::Int8 => 3926,
        }
    }

    /// The name of the type of ranges.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Int4 => "int4range",
            Self::Num => "numrange",
            Self::Ts => "tsrange",
            Self::Tstz => "tstzrange",
            Self::Date => "daterange",
            Self::Int8 => "int8range",
        }
    }

    /// PostgreSQL's number of the type of multiranges.
    #[must_use]
    pub fn multirange_oid(self) -> u32 {
        match self {
            Self::Int4 => 4451,
            Self::Num => 4532,
            Self::Ts => 4533,
            Self::Tstz => 4534,
            Self::Date => 4535,
            Self::Int8 => 4536,
        }
    }

    /// The name of the type of multiranges.
    #[must_use]
    pub fn multirange_name(self) -> String {
        self.name().replace("range", "multirange")
    }

    /// What the type of multiranges of a name is of.
    #[must_use]
    pub fn of_multirange_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.multirange_name() == name)
    }

    /// What the type of ranges of a name is of.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.name() == name)
    }

    /// Whether each value has a next one.
    #[must_use]
    pub fn is_discrete(self) -> bool {
        matches!(self, Self::Int4 | Self::Int8 | Self::Date)
    }
}
