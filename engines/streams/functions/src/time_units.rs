//! Times by units: `FLOOR(time TO unit)`, `CEIL(time TO unit)`, `TIMESTAMPADD(unit, n, time)` and
//! `TIMESTAMPDIFF(unit, from, to)`. The first argument of each function here is the unit's name.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, plan_datafusion_err};
use datafusion::logical_expr::ScalarUDF;

use super::calendar::{DAY, Date, SECOND, weekday};
use super::definition::{Call, Definition, wrong_types};

/// The functions.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Definition::any(
            "floor_time",
            2,
            |types| same_time("FLOOR(.. TO ..)", &types[1..]),
            |call| {
                let unit = Unit::named(&call.constant(0)?)?;
                rounded(&call.column(1)?, |t| Some(unit.floor(t)))
            },
        ),
        Definition::any(
            "ceil_time",
            2,
            |types| same_time("CEIL(.. TO ..)", &types[1..]),
            |call| {
                let unit = Unit::named(&call.constant(0)?)?;
                rounded(&call.column(1)?, |t| match unit.floor(t) {
                    floor if floor == t => Some(t),
                    floor => unit.add(floor, 1),
                })
            },
        ),
        Definition::any("timestampadd", 3, sum_type, add),
        Definition::any("timestampdiff", 3, difference_type, difference),
    ]
}

fn same_time(function: &str, types: &[DataType]) -> Result<DataType> {
    match types {
        [time @ (DataType::Timestamp(..) | DataType::Date32)] => Ok(time.clone()),
        other => wrong_types(function, "a TIMESTAMP or a DATE", other),
    }
}

fn sum_type(types: &[DataType]) -> Result<DataType> {
    match types {
        [_, n, time @ DataType::Timestamp(..)] if n.is_integer() => Ok(time.clone()),
        // A day and some hours are no day any more.
        [_, n, DataType::Date32] if n.is_integer() => Ok(DataType::Timestamp(TimeUnit::Millisecond, None)),
        other => wrong_types("TIMESTAMPADD", "a unit, a whole number, and a TIMESTAMP or a DATE", &other[1..]),
    }
}

fn difference_type(types: &[DataType]) -> Result<DataType> {
    match types {
        [_, DataType::Timestamp(..) | DataType::Date32, DataType::Timestamp(..) | DataType::Date32] => {
            Ok(DataType::Int64)
        }
        other => wrong_types("TIMESTAMPDIFF", "a unit and two TIMESTAMPs or DATEs", &other[1..]),
    }
}

/// What is wrong with a name that should be a unit of time; none if it is one.
pub fn wrong_unit(name: &str) -> Option<String> {
    Unit::find(name).is_none().then(|| no_such_unit(name))
}

fn no_such_unit(name: &str) -> String {
    format!("there is no unit of time {name}; the units are {}", Unit::NAMES.map(|(n, _)| n).join(", "))
}

/// A length of time that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// So many microseconds, counted from 1970.
    Micros(i64),
    /// Seven days from Monday on.
    Week,
    /// So many months, counted from January.
    Months(i64),
}

impl Unit {
    const NAMES: [(&'static str, Self); 12] = [
        ("MICROSECOND", Self::Micros(1)),
        ("MILLISECOND", Self::Micros(SECOND / 1_000)),
        ("SECOND", Self::Micros(SECOND)),
        ("MINUTE", Self::Micros(60 * SECOND)),
        ("HOUR", Self::Micros(3_600 * SECOND)),
        ("DAY", Self::Micros(DAY)),
        ("WEEK", Self::Week),
        ("MONTH", Self::Months(1)),
        ("QUARTER", Self::Months(3)),
        ("YEAR", Self::Months(12)),
        ("DECADE", Self::Months(120)),
        ("CENTURY", Self::Months(1_200)),
    ];

    fn find(name: &str) -> Option<Self> {
        let bare = name.strip_prefix("SQL_TSI_").unwrap_or(name);
        Self::NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(bare)).map(|(_, unit)| *unit)
    }

    fn named(name: &str) -> Result<Self> {
        Self::find(name).ok_or_else(|| plan_datafusion_err!("{}", no_such_unit(name)))
    }

    /// The last beginning of the unit at or before a time.
    fn floor(self, micros: i64) -> i64 {
        match self {
            Self::Micros(unit) => micros.saturating_sub(micros.rem_euclid(unit)),
            Self::Week => micros.div_euclid(DAY).saturating_sub(weekday(micros.div_euclid(DAY))).saturating_mul(DAY),
            Self::Months(unit) => {
                let months = Date::of(micros.div_euclid(DAY)).months();
                Date::first_of_month(months - months.rem_euclid(unit)).days().saturating_mul(DAY)
            }
        }
    }

    /// The time `n` units later; none beyond the range of times. A day that the month does not have becomes its last.
    fn add(self, micros: i64, n: i64) -> Option<i64> {
        match self {
            Self::Micros(unit) => micros.checked_add(n.checked_mul(unit)?),
            Self::Week => micros.checked_add(n.checked_mul(7 * DAY)?),
            Self::Months(unit) => {
                const MONTHS_MAX: i64 = 12 * 300_000;
                let date = Date::of(micros.div_euclid(DAY));
                let months = date.months().checked_add(n.checked_mul(unit)?)?;
                if months.abs() > MONTHS_MAX {
                    return None;
                }
                let first = Date::first_of_month(months);
                let day = Date { day: date.day.min(first.days_of_month()), ..first };
                day.days().checked_mul(DAY)?.checked_add(micros.rem_euclid(DAY))
            }
        }
    }

    /// How many whole units lie between two times; negative if the second is earlier.
    fn between(self, from: i64, to: i64) -> Option<i64> {
        match self {
            Self::Micros(unit) => Some(to.checked_sub(from)? / unit),
            Self::Week => Some(to.checked_sub(from)? / (7 * DAY)),
            Self::Months(unit) => {
                let months = |t: i64| Date::of(t.div_euclid(DAY)).months();
                let mut n = months(to) - months(from);
                let reached = Self::Months(1).add(from, n)?;
                n -= i64::from(n > 0 && reached > to) - i64::from(n < 0 && reached < to);
                Some(n / unit)
            }
        }
    }
}

/// Applies a step to times as microseconds; what it gives none for becomes NULL. The type stays.
fn rounded(times: &ArrayRef, step: impl Fn(i64) -> Option<i64>) -> Result<ArrayRef> {
    let stepped: PrimitiveArray<TimestampMicrosecondType> = micros(times)?.unary_opt(step);
    as_type(&(Arc::new(stepped) as ArrayRef), times.data_type())
}

fn add(call: &Call) -> Result<ArrayRef> {
    let unit = Unit::named(&call.constant(0)?)?;
    let (n, times) = (call.integers(1)?, call.column(2)?);
    let type_of_sum = sum_type(&[DataType::Utf8View, DataType::Int64, times.data_type().clone()])?;
    let from = micros(&times)?;
    let sums = (0..call.rows()).map(|row| from.is_valid(row).then(|| unit.add(from.value(row), n.get(row)?)).flatten());
    let sums: PrimitiveArray<TimestampMicrosecondType> = sums.collect();
    as_type(&(Arc::new(sums) as ArrayRef), &type_of_sum)
}

fn difference(call: &Call) -> Result<ArrayRef> {
    let unit = Unit::named(&call.constant(0)?)?;
    let (from, to) = (micros(&call.column(1)?)?, micros(&call.column(2)?)?);
    let both = |row: usize| from.is_valid(row) && to.is_valid(row);
    let between = |row: usize| both(row).then(|| unit.between(from.value(row), to.value(row))).flatten();
    Ok(Arc::new((0..call.rows()).map(between).collect::<PrimitiveArray<Int64Type>>()))
}

fn micros(times: &ArrayRef) -> Result<PrimitiveArray<TimestampMicrosecondType>> {
    let micros = cast(times, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
    Ok(micros.as_primitive::<TimestampMicrosecondType>().clone())
}

fn as_type(micros: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    Ok(cast(micros, wanted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: i64, day: i64, hour: i64) -> i64 {
        Date { year, month, day }.days() * DAY + hour * 3_600 * SECOND
    }

    fn unit(name: &str) -> Unit {
        Unit::named(name).unwrap()
    }

    #[test]
    fn a_time_is_rounded_to_the_beginning_of_its_unit() {
        let time = at(2015, 7, 15, 13);
        assert_eq!(unit("DAY").floor(time), at(2015, 7, 15, 0));
        assert_eq!(unit("WEEK").floor(time), at(2015, 7, 13, 0));
        assert_eq!(unit("QUARTER").floor(time), at(2015, 7, 1, 0));
        assert_eq!(unit("YEAR").floor(-1), at(1969, 1, 1, 0));
    }

    #[test]
    fn months_are_added_by_the_calendar() {
        assert_eq!(unit("MONTH").add(at(2016, 1, 31, 5), 1), Some(at(2016, 2, 29, 5)));
        assert_eq!(unit("YEAR").add(at(2016, 2, 29, 0), -1), Some(at(2015, 2, 28, 0)));
        assert_eq!(unit("DAY").add(i64::MAX, 1), None);
        assert_eq!(unit("MONTH").add(0, i64::MAX), None);
    }

    #[test]
    fn only_whole_units_lie_between() {
        assert_eq!(unit("MONTH").between(at(2016, 1, 31, 0), at(2016, 2, 28, 0)), Some(0));
        assert_eq!(unit("MONTH").between(at(2016, 1, 31, 0), at(2016, 2, 29, 0)), Some(1));
        assert_eq!(unit("MONTH").between(at(2016, 3, 15, 1), at(2016, 2, 15, 2)), Some(0));
        assert_eq!(unit("MONTH").between(at(2016, 3, 15, 1), at(2016, 2, 15, 1)), Some(-1));
        assert_eq!(unit("HOUR").between(at(2016, 3, 15, 5), at(2016, 3, 15, 2)), Some(-3));
        assert_eq!(unit("YEAR").between(at(2016, 3, 15, 0), at(2019, 3, 14, 0)), Some(2));
    }
}
