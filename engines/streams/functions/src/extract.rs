//! `EXTRACT(field FROM time)`, and `YEAR(time)`, `HOUR(time)` and the like, which are short for it.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::calendar::{Date, day_of_year, iso_week, iso_year, weekday};
use super::definition::{Call, Definition, wrong_types};

/// `EXTRACT`, whose first argument is the field's name, and a function per field.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![Definition::any(
        "extract",
        2,
        |types| time_type("EXTRACT", &types[1..]),
        |call| {
            let name = call.constant(0)?;
            match Field::named(&name) {
                Some(field) => field.of(&call.column(1)?),
                None => plan_err!("{}", no_such_field(&name)),
            }
        },
    )];
    macro_rules! short {
        ($name:literal, $field:expr) => {
            functions.push(Definition::any(
                $name,
                1,
                |types| time_type(&$name.to_uppercase(), types),
                |call: &Call| $field.of(&call.column(0)?),
            ))
        };
    }
    short!("year", Field::Year);
    short!("quarter", Field::Quarter);
    short!("month", Field::Month);
    short!("week", Field::Week);
    short!("dayofyear", Field::DayOfYear);
    short!("dayofmonth", Field::Day);
    short!("dayofweek", Field::DayOfWeek);
    short!("day", Field::Day);
    short!("hour", Field::Hour);
    short!("minute", Field::Minute);
    short!("second", Field::Second);
    functions
}

/// What is wrong with a name that should be a field of `EXTRACT`; none if it is one.
pub fn wrong_field(name: &str) -> Option<String> {
    Field::named(name).is_none().then(|| no_such_field(name))
}

fn no_such_field(name: &str) -> String {
    format!("EXTRACT has no field {name}; the fields are {}", Field::NAMES.map(|(n, _)| n).join(", "))
}

fn time_type(function: &str, types: &[DataType]) -> Result<DataType> {
    match types {
        [DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Null] => Ok(DataType::Int64),
        other => wrong_types(&format!("{function}(..)"), "a TIMESTAMP or a DATE", other),
    }
}

/// What may be taken out of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Millennium,
    Century,
    Decade,
    Year,
    IsoYear,
    Quarter,
    Month,
    Week,
    Day,
    DayOfYear,
    /// Sunday is 1.
    DayOfWeek,
    /// Monday is 1.
    IsoDayOfWeek,
    Hour,
    Minute,
    Second,
    /// The fraction of the second, in this unit; so are the next two.
    Millisecond,
    Microsecond,
    Nanosecond,
    /// Whole seconds since 1970.
    Epoch,
}

impl Field {
    const NAMES: [(&'static str, Self); 19] = [
        ("MILLENNIUM", Self::Millennium),
        ("CENTURY", Self::Century),
        ("DECADE", Self::Decade),
        ("YEAR", Self::Year),
        ("ISOYEAR", Self::IsoYear),
        ("QUARTER", Self::Quarter),
        ("MONTH", Self::Month),
        ("WEEK", Self::Week),
        ("DAY", Self::Day),
        ("DOY", Self::DayOfYear),
        ("DOW", Self::DayOfWeek),
        ("ISODOW", Self::IsoDayOfWeek),
        ("HOUR", Self::Hour),
        ("MINUTE", Self::Minute),
        ("SECOND", Self::Second),
        ("MILLISECOND", Self::Millisecond),
        ("MICROSECOND", Self::Microsecond),
        ("NANOSECOND", Self::Nanosecond),
        ("EPOCH", Self::Epoch),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, field)| *field)
    }

    /// The field of a column of times.
    fn of(self, times: &ArrayRef) -> Result<ArrayRef> {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let extracted = match times.data_type() {
            DataType::Timestamp(TimeUnit::Millisecond, _) => self.of_ticks::<1_000>(&ticks(times)?),
            DataType::Timestamp(TimeUnit::Microsecond, _) => self.of_ticks::<1_000_000>(&ticks(times)?),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => self.of_ticks::<1_000_000_000>(&ticks(times)?),
            _ => self.of_ticks::<1>(&ticks(&cast(times, &seconds)?)?),
        };
        Ok(Arc::new(extracted))
    }

    /// The field of times in ticks, of which a second has so many: constants let the compiler multiply instead of divide.
    fn of_ticks<const PER_SECOND: i64>(self, times: &Int64Array) -> Int64Array {
        let day = |t: i64| t.div_euclid(PER_SECOND * 86_400);
        let fraction = |t: i64, per_second: i64| t.rem_euclid(PER_SECOND) * per_second / PER_SECOND;
        match self {
            Self::Millennium => times.unary(|t| century(Date::of(day(t)).year, 1_000)),
            Self::Century => times.unary(|t| century(Date::of(day(t)).year, 100)),
            Self::Decade => times.unary(|t| Date::of(day(t)).year.div_euclid(10)),
            Self::Year => times.unary(|t| Date::of(day(t)).year),
            Self::IsoYear => times.unary(|t| iso_year(day(t))),
            Self::Quarter => times.unary(|t| (Date::of(day(t)).month - 1) / 3 + 1),
            Self::Month => times.unary(|t| Date::of(day(t)).month),
            Self::Week => times.unary(|t| iso_week(day(t))),
            Self::Day => times.unary(|t| Date::of(day(t)).day),
            Self::DayOfYear => times.unary(|t| day_of_year(day(t))),
            Self::DayOfWeek => times.unary(|t| (weekday(day(t)) + 1) % 7 + 1),
            Self::IsoDayOfWeek => times.unary(|t| weekday(day(t)) + 1),
            Self::Hour => times.unary(|t| t.div_euclid(PER_SECOND * 3_600).rem_euclid(24)),
            Self::Minute => times.unary(|t| t.div_euclid(PER_SECOND * 60).rem_euclid(60)),
            Self::Second => times.unary(|t| t.div_euclid(PER_SECOND).rem_euclid(60)),
            Self::Millisecond => times.unary(|t| fraction(t, 1_000)),
            Self::Microsecond => times.unary(|t| fraction(t, 1_000_000)),
            Self::Nanosecond => times.unary(|t| fraction(t, 1_000_000_000)),
            Self::Epoch => times.unary(|t| t.div_euclid(PER_SECOND)),
        }
    }
}

/// The century or millennium of a year: year 2000 is in the 20th, 2001 in the 21st.
fn century(year: i64, years: i64) -> i64 {
    (year - 1).div_euclid(years) + 1
}

/// The numbers behind a column of timestamps.
fn ticks(times: &ArrayRef) -> Result<Int64Array> {
    Ok(cast(times, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}
