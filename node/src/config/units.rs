//! Values with their units.

use std::time::Duration;

const SIZES: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

const TIMES: [(&str, f64); 6] = [("us", 1e-6), ("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// The longest time that a setting takes.
const TIME_MAX: f64 = 366.0 * 24.0 * 3600.0;

/// A size above 0 in bytes: `64MiB`, `1.5GB`, `512B`.
pub(crate) fn size(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit)?;
    let bytes = (number * *bytes as f64).round();
    // Above 2^53 a float is no longer exact, and no setting takes so much.
    (1.0..=9_007_199_254_740_992.0).contains(&bytes).then_some(bytes as usize)
}

/// A time above 0, at most a year: `250ms`, `3s`, `10min`, `1.5h`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, seconds) = TIMES.iter().find(|(name, _)| *name == unit)?;
    let seconds = number * seconds;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= TIME_MAX)?;
    (!time.is_zero()).then_some(time)
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let unit = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_or_decimal_by_their_unit() {
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(size("1.5 GB"), Some(1_500_000_000));
        assert_eq!(size("512B"), Some(512));
        for bad in ["", "64", "MiB", "64mib", "-1B", "0B", "1e9B", "9999999999999GiB", "64MiBs"] {
            assert_eq!(size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn times_carry_their_unit() {
        assert_eq!(time("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(time("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(time("10min"), Some(Duration::from_secs(600)));
        for bad in ["", "3", "s", "-3s", "0s", "3 sec", "99999h", "NaNs"] {
            assert_eq!(time(bad), None, "{bad:?}");
        }
    }
}
