//! `real` and `double precision` as PostgreSQL writes them: the fewest digits that tell the number from others.

/// A double as text.
pub(crate) fn double(number: f64) -> String {
    special(number).unwrap_or_else(|| written(&format!("{number:e}"), number.to_string(), 15))
}

/// A number of single precision as text.
pub(crate) fn single(number: f32) -> String {
    special(f64::from(number)).unwrap_or_else(|| written(&format!("{number:e}"), number.to_string(), 6))
}

/// What is no number.
fn special(number: f64) -> Option<String> {
    let name = match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        nan if nan.is_nan() => "NaN",
        _ => return None,
    };
    Some(name.to_owned())
}

/// The plain form, or the one with an exponent if the number is small or as large as ten to the power of `digits`.
fn written(scientific: &str, plain: String, digits: i32) -> String {
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return plain };
    let Ok(exponent) = exponent.parse::<i32>() else { return plain };
    if (-4..digits).contains(&exponent) {
        return plain;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e+15"),
            (-1.5e300, "-1.5e+300"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (1e-20, "1e-20"),
            (f64::NAN, "NaN"),
            (-f64::INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(number), text);
        }
        assert_eq!(single(0.1), "0.1");
        assert_eq!(single(999_999.0), "999999");
        assert_eq!(single(1e6), "1e+06");
        assert_eq!(single(f32::INFINITY), "Infinity");
    }
}
