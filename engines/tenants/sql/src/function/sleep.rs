//! Functions that sleep. The statement ends where it is to sleep, and runs again from its beginning when it has: meanwhile the database is
//! for others. What it has slept before it does not sleep again.

use std::time::Duration;

use savanna_tenants_values::{types::Type, value::Value};

use super::Resolved;

/// Nobody sleeps longer.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// A function that sleeps.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepFunction {
    Seconds,
    Interval,
    Until,
}

/// How far a statement is with its sleeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleep {
    /// How often it has slept.
    pub slept: usize,
    /// For how long it is to sleep now.
    pub wanted: Option<Duration>,
}

/// The function that sleeps of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<SleepFunction>> {
    use SleepFunction::{Interval, Seconds, Until};
    Some(match (name, arguments) {
        ("pg_sleep", [of]) if of.is_number() || *of == Type::Unknown => (Seconds, vec![Type::Float8], Type::Text),
        ("pg_sleep_for", [Type::Interval | Type::Time | Type::Unknown]) => (Interval, vec![Type::Interval], Type::Text),
        ("pg_sleep_until", [Type::Timestamptz | Type::Timestamp | Type::Date | Type::Unknown]) => {
            (Until, vec![Type::Timestamptz], Type::Text)
        }
        _ => return None,
    })
}

impl SleepFunction {
    /// For how long it sleeps, in a statement that began `now`.
    pub fn time(argument: &Value, now: i64) -> Duration {
        let seconds = match argument {
            Value::Float(seconds) => *seconds,
            Value::Interval(interval) => interval.length() as f64 / 1e6,
            Value::Timestamp(until) => until.saturating_sub(now) as f64 / 1e6,
            _ => 0.0,
        };
        let longest = LONGEST.as_secs_f64();
        // What is no number is no time.
        if seconds > 0.0 { Duration::from_secs_f64(seconds.min(longest)) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use savanna_tenants_values::value::Interval;

    use super::*;

    #[test]
    fn a_time_to_sleep_is_never_negative_and_never_endless() {
        let time = |value| SleepFunction::time(&value, 5_000_000);
        assert_eq!(time(Value::Float(0.25)), Duration::from_millis(250));
        assert_eq!(time(Value::Interval(Interval { days: 1, ..Interval::default() })), Duration::from_secs(86_400));
        assert_eq!(time(Value::Timestamp(6_000_000)), Duration::from_secs(1));
        for endless in [Value::Float(f64::INFINITY), Value::Float(1e300), Value::Timestamp(i64::MAX)] {
            assert_eq!(time(endless), LONGEST);
        }
        for none in [Value::Float(-1.0), Value::Float(f64::NAN), Value::Timestamp(i64::MIN), Value::Timestamp(0)] {
            assert_eq!(time(none), Duration::ZERO);
        }
    }
}
