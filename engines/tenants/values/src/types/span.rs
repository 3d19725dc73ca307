//! The fields that an interval may be limited to, as in `interval day to minute`.

use serde::{Deserialize, Serialize};

use crate::value::datetime::Unit;

/// The fields of an interval. The variants are part of the catalog's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Span {
    /// `year`
    Year,
    /// `month`
    Month,
    /// `day`
    Day,
    /// `hour`
    Hour,
    /// `minute`
    Minute,
    /// `second`
    Second,
    /// `year to month`
    YearToMonth,
    /// `day to hour`
    DayToHour,
    /// `day to minute`
    DayToMinute,
    /// `day to second`
    DayToSecond,
    /// `hour to minute`
    HourToMinute,
    /// `hour to second`
    HourToSecond,
    /// `minute to second`
    MinuteToSecond,
}

/// What PostgreSQL has for each span: its name, and a bit for each of its fields.
const SPANS: [(Span, &str, i32, (Unit, Unit)); 13] = [
    (Span::Year, "year", 1 << 2, (Unit::Year, Unit::Year)),
    (Span::Month, "month", 1 << 1, (Unit::Month, Unit::Month)),
    (Span::Day, "day", 1 << 3, (Unit::Day, Unit::Day)),
    (Span::Hour, "hour", 1 << 10, (Unit::Hour, Unit::Hour)),
    (Span::Minute, "minute", 1 << 11, (Unit::Minute, Unit::Minute)),
    (Span::Second, "second", 1 << 12, (Unit::Second, Unit::Second)),
    (Span::YearToMonth, "year to month", 1 << 2 | 1 << 1, (Unit::Year, Unit::Month)),
    (Span::DayToHour, "day to hour", 1 << 3 | 1 << 10, (Unit::Day, Unit::Hour)),
    (Span::DayToMinute, "day to minute", 1 << 3 | 1 << 10 | 1 << 11, (Unit::Day, Unit::Minute)),
    (Span::DayToSecond, "day to second", 1 << 3 | 1 << 10 | 1 << 11 | 1 << 12, (Unit::Day, Unit::Second)),
    (Span::HourToMinute, "hour to minute", 1 << 10 | 1 << 11, (Unit::Hour, Unit::Minute)),
    (Span::HourToSecond, "hour to second", 1 << 10 | 1 << 11 | 1 << 12, (Unit::Hour, Unit::Second)),
    (Span::MinuteToSecond, "minute to second", 1 << 11 | 1 << 12, (Unit::Minute, Unit::Second)),
];

impl Span {
    /// The name that PostgreSQL shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        SPANS[self as usize].1
    }

    /// The bits that PostgreSQL has for the fields.
    pub(crate) fn fields(self) -> i32 {
        SPANS[self as usize].2
    }

    /// The first and the last unit.
    pub(crate) fn units(self) -> (Unit, Unit) {
        SPANS[self as usize].3
    }

    /// The span with these bits.
    pub(crate) fn of_fields(fields: i32) -> Option<Self> {
        SPANS.iter().find(|(_, _, of, _)| *of == fields).map(|(span, ..)| *span)
    }

    /// The span from a unit to another.
    pub fn of_units(units: (Unit, Unit)) -> Option<Self> {
        SPANS.iter().find(|(.., of)| *of == units).map(|(span, ..)| *span)
    }

    /// The span of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        SPANS.iter().find(|(_, of, ..)| *of == name).map(|(span, ..)| *span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_span_stands_in_its_place() {
        for (at, (span, name, fields, units)) in SPANS.into_iter().enumerate() {
            assert_eq!(span as usize, at);
            assert_eq!((span.name(), span.fields(), span.units()), (name, fields, units));
            assert_eq!((Span::of_fields(fields), Span::of_units(units)), (Some(span), Some(span)));
        }
        assert_eq!(Span::of_units((Unit::Day, Unit::Year)), None);
    }
}
