//! Numbers with units, as settings have them.

use savanna_tenants_values::error::Result;

use super::taken::invalid;

/// What a number without a unit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Nothing,
    Milliseconds,
    Kilobytes,
    /// Of 8 KiB
    Pages,
}

/// Units of time with their milliseconds, the largest first.
const TIMES: &[(&str, f64)] =
    &[("d", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0), ("s", 1_000.0), ("ms", 1.0), ("us", 0.001)];
/// Units of memory with their kilobytes, the largest first.
const SIZES: &[(&str, f64)] =
    &[("TB", 1_073_741_824.0), ("GB", 1_048_576.0), ("MB", 1_024.0), ("kB", 1.0), ("B", 1.0 / 1_024.0)];

impl Unit {
    /// The units that may be written, with what they are in the smallest one that is shown, and how much of that it is itself.
    const fn written(self) -> (&'static [(&'static str, f64)], f64) {
        match self {
            Self::Nothing => (&[], 1.0),
            Self::Milliseconds => (TIMES, 1.0),
            Self::Kilobytes => (SIZES, 1.0),
            Self::Pages => (SIZES, 8.0),
        }
    }

    /// A number in the largest unit in which it is a whole one.
    pub(super) fn shown(self, number: i64) -> String {
        let (units, own) = self.written();
        let smallest = number as f64 * own;
        let whole = |(_, factor): &&(&str, f64)| *factor >= 1.0 && smallest % factor == 0.0;
        match units.iter().find(whole).filter(|_| number > 0) {
            Some((name, factor)) => format!("{}{name}", smallest / factor),
            None => number.to_string(),
        }
    }

    /// A number as messages have it.
    pub(super) fn beside(self, number: f64) -> String {
        let name = match self {
            Self::Nothing => "",
            Self::Milliseconds => " ms",
            Self::Kilobytes => " kB",
            Self::Pages => " 8kB",
        };
        format!("{number}{name}")
    }
}

/// The number that a text is, in a setting's own unit.
///
/// # Errors
/// 22023.
pub(super) fn number(name: &str, value: &str, unit: Unit) -> Result<f64> {
    let (units, own) = unit.written();
    let text = value.trim();
    let begin = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, written) = text.split_at(begin);
    let wrong = || {
        let error = invalid(name, value);
        match unit {
            Unit::Nothing => error,
            Unit::Milliseconds => {
                error.hint("Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".")
            }
            _ => error.hint("Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\"."),
        }
    };
    let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
    match units.iter().find(|(known, _)| *known == written) {
        None if written.is_empty() => Ok(number),
        None => Err(wrong()),
        Some((_, factor)) => Ok(number * factor / own),
    }
}
