//! The options of `WITH (..)`: each connector declares its own in one table, from which they are checked, listed and
//! documented.

use std::collections::BTreeMap;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::names;
use savanna_streams_model::time::parse_duration;

/// Options that belong to the engine: every table may have them, no connector reads them.
pub const ENGINE_OPTIONS: [&str; 10] = [
    "connector",
    "lookup.refresh",
    "lookup.cache",
    "lookup.cache.max-rows",
    "lookup.cache.ttl",
    "lookup.retry.timeout",
    "late-data",
    "scan.watermark.idle-timeout",
    "scan.watermark.alignment.group",
    "scan.watermark.alignment.max-drift",
];

/// One option of a connector.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name in `WITH (..)`.
    pub name: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// What holds if it is not given.
    pub presence: Presence,
    /// One sentence for the documentation.
    pub help: &'static str,
}

/// The values that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number within bounds, both included.
    Integer {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A number of bytes, such as `200`, `200b` or `64KiB`.
    Size,
    /// A length of time, such as `250ms`, `10s`, `5min` or `1h`.
    Duration,
    /// An ISO time, milliseconds since 1970, or `now`.
    Instant,
    /// One ASCII character, or `\t`.
    Character,
    /// `fail`, `skip` or `dead-letter:<path>`.
    OnError,
}

/// What holds if an option is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must be given.
    Required,
    /// It may be left out; the connector then decides as its help says.
    Optional,
    /// It then has this value.
    Default(&'static str),
}

/// The checked options of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    connector: &'static str,
    specs: &'static [OptionSpec],
    given: &'a BTreeMap<String, String>,
}

impl<'a> Options<'a> {
    /// Checks that every given option is known and has a value of its kind, and that no required one is missing.
    pub(crate) fn check(
        connector: &'static str,
        specs: &'static [OptionSpec],
        given: &'a BTreeMap<String, String>,
    ) -> Result<Self> {
        for (name, value) in given {
            if ENGINE_OPTIONS.contains(&name.as_str()) {
                continue;
            }
            let Some(spec) = specs.iter().find(|s| s.name == name) else {
                let known = specs.iter().map(|s| s.name);
                let near = names::near(name, known.clone().chain(ENGINE_OPTIONS));
                let hint = if !near.is_empty() {
                    format!("did you mean {}?", near.join(", "))
                } else if specs.is_empty() {
                    format!("connector {connector} has no options")
                } else {
                    format!("connector {connector} has {}", known.collect::<Vec<_>>().join(", "))
                };
                return Err(StreamError::Unknown { kind: "option".into(), name: name.clone(), position: None, hint });
            };
            if let Err(expected) = spec.kind.accepts(value) {
                return Err(StreamError::invalid(format!(
                    "option '{name}' of connector {connector}: expected {expected}, got '{value}'"
                )));
            }
        }
        let missing = specs.iter().find(|s| s.presence == Presence::Required && !given.contains_key(s.name));
        match missing {
            Some(spec) => {
                Err(StreamError::invalid(format!("connector {connector} needs option '{}': {}", spec.name, spec.help)))
            }
            None => Ok(Self { connector, specs, given }),
        }
    }

    /// Whose options these are.
    pub(crate) fn connector(&self) -> &'static str {
        self.connector
    }

    /// The value as given, or the default.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        let spec = self.specs.iter().find(|s| s.name == name);
        debug_assert!(spec.is_some(), "connector {} declares no option {name}", self.connector);
        match (self.given.get(name), spec.map(|s| s.presence)) {
            (Some(value), _) => Some(value),
            (None, Some(Presence::Default(value))) => Some(value),
            _ => None,
        }
    }

    /// The value of an option that is required or has a default.
    pub(crate) fn get<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.find(name, parse)?.ok_or_else(|| self.error(name, "a value"))
    }

    /// The value of an option that may be missing.
    pub(crate) fn find<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| self.error(name, "another value"))
    }

    /// A whole number as the integer type at hand.
    pub(crate) fn integer<T: TryFrom<i64>>(&self, name: &str) -> Result<T> {
        self.get(name, |text| T::try_from(text.trim().parse::<i64>().ok()?).ok())
    }

    /// A number of bytes.
    pub(crate) fn bytes(&self, name: &str) -> Result<u32> {
        self.get(name, |text| u32::try_from(size(text)?).ok())
    }

    /// A truth value.
    pub(crate) fn boolean(&self, name: &str) -> Result<bool> {
        self.get(name, truth)
    }

    /// That an option's value is wrong for a reason that its kind does not show.
    pub(crate) fn error(&self, name: &str, expected: &str) -> StreamError {
        let given = self.text(name).map_or_else(|| "nothing".to_owned(), |text| format!("'{text}'"));
        StreamError::invalid(format!(
            "option '{name}' of connector {}: expected {expected}, got {given}",
            self.connector
        ))
    }
}

impl Kind {
    /// Whether `value` is one of this kind, or what was expected instead.
    fn accepts(self, value: &str) -> Result<(), String> {
        let fits = match self {
            Self::Text => !value.is_empty(),
            Self::Boolean => truth(value).is_some(),
            Self::Integer { min, max } => value.trim().parse::<i64>().is_ok_and(|n| (min..=max).contains(&n)),
            Self::Choice(words) => words.contains(&value),
            Self::Size => size(value).is_some(),
            Self::Duration => parse_duration(value).is_some(),
            Self::Instant => value == "now" || instant_ms(value).is_some(),
            Self::Character => character(value).is_some(),
            Self::OnError => {
                matches!(value, "fail" | "skip") || value.strip_prefix("dead-letter:").is_some_and(|p| !p.is_empty())
            }
        };
        let near = match self {
            Self::Choice(words) => names::near(value, words.iter().copied()),
            _ => Vec::new(),
        };
        match near.first() {
            _ if fits => Ok(()),
            Some(near) => Err(format!("{} (did you mean '{near}'?)", self.describe())),
            None => Err(self.describe()),
        }
    }

    /// The values in words, for messages and documentation.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Boolean => "'true' or 'false'".into(),
            Self::Integer { min, max: i64::MAX } => format!("a whole number from {min}"),
            Self::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Self::Choice(words) => words.iter().map(|w| format!("'{w}'")).collect::<Vec<_>>().join(" or "),
            Self::Size => "a number of bytes such as '200b' or '64KiB'".into(),
            Self::Duration => "a length of time such as '250ms', '10s' or '5min'".into(),
            Self::Instant => "'now', an ISO time such as '2015-07-15T00:00:00Z', or milliseconds since 1970".into(),
            Self::Character => "one ASCII character, or '\\t' for a tab".into(),
            Self::OnError => "'fail', 'skip' or 'dead-letter:<path>'".into(),
        }
    }
}

/// `true` or `false`, in any case.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// A number of bytes with an optional unit.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// A fixed instant in milliseconds since 1970.
pub(crate) fn instant_ms(text: &str) -> Option<i64> {
    let parsed = string_to_timestamp_nanos(text).ok().map(|nanos| nanos.div_euclid(1_000_000));
    text.parse::<i64>().ok().or(parsed).filter(|ms| ms.unsigned_abs() < 1 << 53)
}

/// One ASCII character.
pub(crate) fn character(text: &str) -> Option<u8> {
    match text.as_bytes() {
        b"\\t" => Some(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Some(*byte),
        _ => None,
    }
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, text[digits..].trim()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec { name: "path", kind: Kind::Text, presence: Presence::Required, help: "Where." },
        OptionSpec {
            name: "rows",
            kind: Kind::Integer { min: 1, max: i64::MAX },
            presence: Presence::Default("10"),
            help: "How many.",
        },
    ];

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn an_unknown_option_is_answered_with_near_or_all_known_ones() {
        for (name, hint) in [
            ("row", "did you mean rows?"),
            ("late_data", "did you mean late-data?"),
            ("compression", "connector demo has path, rows"),
        ] {
            let options = given(&[("path", "x"), (name, "1")]);
            let error = Options::check("demo", SPECS, &options).unwrap_err();
            assert_eq!(error.to_string(), format!("option {name} does not exist; {hint}"));
        }
    }

    #[test]
    fn a_wrong_value_is_answered_with_what_was_expected() {
        let options = given(&[("path", "x"), ("rows", "0")]);
        let error = Options::check("demo", SPECS, &options).unwrap_err();
        assert_eq!(error.to_string(), "option 'rows' of connector demo: expected a whole number from 1, got '0'");
    }

    #[test]
    fn a_required_option_is_asked_for_and_a_default_is_filled_in() {
        let error = Options::check("demo", SPECS, &BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "connector demo needs option 'path': Where.");
        let options = given(&[("path", "x"), ("connector", "demo"), ("late-data", "side:t")]);
        assert_eq!(Options::check("demo", SPECS, &options).unwrap().integer::<u32>("rows"), Ok(10));
    }

    #[test]
    fn units_are_part_of_a_value() {
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("200b"), Some(200));
        assert_eq!(parse_duration("600 s"), Some(Duration::from_secs(600)));
        assert_eq!(parse_duration("600"), None);
        assert_eq!(instant_ms("2015-07-15T00:00:00Z"), Some(1_436_918_400_000));
        assert_eq!(instant_ms("1436918400000"), Some(1_436_918_400_000));
    }
}
