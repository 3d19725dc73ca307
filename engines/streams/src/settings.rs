//! Settings of a session: `SET 'parallelism' = '4'`. None of them changes results.

use std::collections::BTreeMap;
use std::time::Duration;

use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::{is_url, local};
use savanna_streams_model::names::hint;
use savanna_streams_model::time::parse_duration;
use savanna_streams_runtime::{Mode, RuntimeOptions};

/// A setting: its name, what it means, and how a value changes the options of a query.
struct Setting {
    name: &'static str,
    meaning: &'static str,
    show: fn(&RuntimeOptions) -> String,
    apply: fn(&mut RuntimeOptions, &str) -> Option<()>,
}

/// The settings that change how queries run.
const SETTINGS: [Setting; 7] = [
    Setting {
        name: "parallelism",
        meaning: "partitions requested from each source, 1 to 1024",
        show: |options| options.source_partitions.to_string(),
        apply: |options, value| {
            options.source_partitions = value.parse().ok().filter(|n| (1..=1024).contains(n))?;
            Some(())
        },
    },
    Setting {
        name: "group-size",
        meaning: "members of the function group of each stage fed by key group, 1 to 1024",
        show: |options| options.members.to_string(),
        apply: |options, value| {
            options.members = value.parse().ok().filter(|n| (1..=1024).contains(n))?;
            Some(())
        },
    },
    Setting {
        name: "mode",
        meaning: "serverless (partial aggregates are merged each epoch) or provisioned (once per window)",
        show: |options| {
            match options.mode {
                Mode::Serverless => "serverless",
                Mode::Provisioned => "provisioned",
            }
            .to_owned()
        },
        apply: |options, value| {
            options.mode = match value {
                "serverless" => Mode::Serverless,
                "provisioned" => Mode::Provisioned,
                _ => return None,
            };
            Some(())
        },
    },
    Setting {
        name: "memory-limit",
        meaning: "how much a query may hold before it fails, such as 512MiB, or none",
        show: |options| options.memory_limit.map_or_else(|| "none".to_owned(), |bytes| format!("{bytes}B")),
        apply: |options, value| {
            options.memory_limit = if value == "none" { None } else { Some(bytes(value)?) };
            Some(())
        },
    },
    Setting {
        name: "epoch-target",
        meaning: "how long rows are gathered before an epoch is cut, such as 200ms",
        show: |options| format!("{}ms", options.epoch.target.as_millis()),
        apply: |options, value| {
            let ms = value.strip_suffix("ms")?.trim().parse().ok().filter(|ms| (1..=60_000).contains(ms))?;
            options.epoch.target = Duration::from_millis(ms);
            Some(())
        },
    },
    Setting {
        name: "epoch-events",
        meaning: "cut epochs by this many events per partition instead of by time; 0 for by time",
        show: |options| options.epoch.fixed_events.unwrap_or(0).to_string(),
        apply: |options, value| {
            let events: u64 = value.parse().ok()?;
            options.epoch.fixed_events = (events > 0).then_some(events);
            Some(())
        },
    },
    Setting {
        name: "snapshot-interval",
        meaning: "how often the state of a query that outlives its process is kept, such as 60s, 10ms at least, or none",
        show: |options| {
            let shown = |interval: Duration| format!("{}ms", interval.as_millis());
            options.snapshot_interval.map_or_else(|| "none".to_owned(), shown)
        },
        apply: |options, value| {
            let least = Duration::from_millis(10);
            let interval = || parse_duration(value).filter(|interval| *interval >= least);
            options.snapshot_interval = if value == "none" { None } else { Some(interval()?) };
            Some(())
        },
    },
];

/// A size with its unit: B, KiB, MiB or GiB.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, shift) = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)]
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// Names that PostgreSQL clients set on every connection. They are kept and shown, and change nothing here.
const CLIENT_SETTINGS: [&str; 11] = [
    "application_name",
    "client_encoding",
    "client_min_messages",
    "DateStyle",
    "datestyle",
    "extra_float_digits",
    "IntervalStyle",
    "search_path",
    "standard_conforming_strings",
    "TimeZone",
    "timezone",
];

/// Names that PostgreSQL clients ask for, and that mean nothing here.
const ASKED_FOR: [&str; 10] = [
    "default_transaction_isolation",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "max_identifier_length",
    "server_encoding",
    "server_version",
    "transaction_isolation",
    "transaction_read_only",
];

/// How long a statement may take, its rows included.
const STATEMENT_TIMEOUT: &str = "statement_timeout";
const STATEMENT_TIMEOUT_MEANING: &str =
    "how long a statement may take, its rows included: 250 (ms), 10s, 5min, or 0 for no limit";

/// The name of the queries of `INSERT INTO` that are started.
const QUERY_NAME: &str = "query.name";
const QUERY_NAME_MEANING: &str = "the name of the next query of INSERT INTO, which outlives its process then, or is refused: a letter, then letters, digits, - and _, 64 at most";

/// Where the next named query of `INSERT INTO` is kept.
const QUERY_STORE: &str = "query.store";
const QUERY_STORE_MEANING: &str = "where the next query with a name keeps what it needs to go on: none for the node's own directory, or s3://BUCKET/FOLDER or file:///FOLDER, in which it has a folder of its name";

/// The URL below which a session's next query is kept; none if that is the node.
pub(crate) fn query_store(settings: &BTreeMap<String, String>) -> Option<&str> {
    settings.get(QUERY_STORE).map(String::as_str).filter(|url| is_store(url))
}

/// Whether a text is the URL of a folder in which queries can be kept.
fn is_store(text: &str) -> bool {
    is_url(text) || local(text).is_some()
}

/// Whether a query may be called so. An id of a query is no name.
pub(crate) fn is_query_name(name: &str) -> bool {
    let is_id = name.split_once('-').is_some_and(|(code, job)| {
        code.len() == 12 && code.bytes().all(|b| b.is_ascii_hexdigit()) && job.bytes().all(|b| b.is_ascii_digit())
    });
    let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !is_id && name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(harmless)
}

/// The name that a session has given to its next query.
pub(crate) fn query_name(settings: &BTreeMap<String, String>) -> Option<&str> {
    settings.get(QUERY_NAME).map(String::as_str)
}

/// Options of a query that no setting changes; a query that goes on has those that it began with.
const KEPT: [Setting; 3] = [
    Setting {
        name: "batch-rows",
        meaning: "events asked for at a time",
        show: |options| options.batch_rows.to_string(),
        apply: |options, value| {
            options.batch_rows = value.parse().ok()?;
            Some(())
        },
    },
    Setting {
        name: "epoch-max-events",
        meaning: "events of an epoch at most",
        show: |options| options.epoch.max_events.to_string(),
        apply: |options, value| {
            options.epoch.max_events = value.parse().ok()?;
            Some(())
        },
    },
    Setting {
        name: "epoch-min-events",
        meaning: "events of an epoch that is cut in time",
        show: |options| options.epoch.min_events.to_string(),
        apply: |options, value| {
            options.epoch.min_events = value.parse().ok()?;
            Some(())
        },
    },
];

/// How a query runs, to be stored.
pub(crate) fn stored(options: &RuntimeOptions) -> BTreeMap<String, String> {
    SETTINGS.iter().chain(&KEPT).map(|setting| (setting.name.to_owned(), (setting.show)(options))).collect()
}

/// How a stored query runs.
///
/// # Errors
/// A value is none of its setting.
pub(crate) fn restored(defaults: &RuntimeOptions, stored: &BTreeMap<String, String>) -> Result<RuntimeOptions> {
    let mut options = defaults.clone();
    for setting in SETTINGS.iter().chain(&KEPT) {
        if let Some(value) = stored.get(setting.name)
            && (setting.apply)(&mut options, value).is_none()
        {
            let (name, meaning) = (setting.name, setting.meaning);
            return Err(StreamError::invalid(format!("the stored setting {name}: expected {meaning}, got '{value}'")));
        }
    }
    Ok(options)
}

/// The settings of a stored query that a session may change before the query goes on: its state is cut anew, and sources that have as
/// many partitions as before are read on.
const CHANGEABLE: [&str; 2] = ["group-size", "parallelism"];

/// The settings of a stored query with what a session has set otherwise; none if that is nothing.
pub(crate) fn changed(
    stored: &BTreeMap<String, String>,
    session: &BTreeMap<String, String>,
) -> Option<BTreeMap<String, String>> {
    let set = session.iter().filter(|(name, _)| CHANGEABLE.contains(&name.as_str()));
    let mut changed = stored.clone();
    changed.extend(set.map(|(name, value)| (name.clone(), value.clone())));
    (changed != *stored).then_some(changed)
}

/// The time that a value of `statement_timeout` gives: none for 0.
fn timeout(value: &str) -> Option<Option<Duration>> {
    let given = match value.trim().parse() {
        Ok(ms) => Duration::from_millis(ms),
        Err(_) => parse_duration(value)?,
    };
    Some(Some(given).filter(|given| !given.is_zero()))
}

/// How long a statement may take in a session with these settings.
pub(crate) fn statement_timeout(settings: &BTreeMap<String, String>) -> Option<Duration> {
    settings.get(STATEMENT_TIMEOUT).and_then(|value| timeout(value)).flatten()
}

/// The error of a statement that took longer.
pub(crate) fn timed_out(limit: Duration) -> StreamError {
    StreamError::TimedOut { limit_ms: limit.as_millis() as u64 }
}

/// Checks a value before it is kept.
///
/// # Errors
/// No such setting, or the value is not one of it.
pub(crate) fn check(name: &str, value: &str) -> Result<()> {
    if CLIENT_SETTINGS.contains(&name) {
        return Ok(());
    }
    let (known, meaning) = if name == STATEMENT_TIMEOUT {
        (timeout(value).is_some(), STATEMENT_TIMEOUT_MEANING)
    } else if name == QUERY_NAME {
        (is_query_name(value), QUERY_NAME_MEANING)
    } else if name == QUERY_STORE {
        (value == "none" || is_store(value), QUERY_STORE_MEANING)
    } else {
        let setting = SETTINGS.iter().find(|s| s.name == name).ok_or_else(|| unknown(name))?;
        ((setting.apply)(&mut RuntimeOptions::default(), value).is_some(), setting.meaning)
    };
    if known {
        return Ok(());
    }
    Err(StreamError::invalid(format!("setting {name}: expected {meaning}, got '{value}'")))
}

fn unknown(name: &str) -> StreamError {
    let names = SETTINGS.iter().map(|s| s.name).chain([STATEMENT_TIMEOUT, QUERY_NAME, QUERY_STORE]);
    StreamError::Unknown {
        kind: "setting".into(),
        name: name.into(),
        position: None,
        hint: hint(name, names, "settings"),
    }
}

/// The value of one of the settings of [`list`]; nothing of what clients of PostgreSQL ask for beside them.
///
/// # Errors
/// No such setting.
pub(crate) fn value_of(name: &str, all: Vec<Vec<String>>) -> Result<String> {
    match all.into_iter().find(|row| row[0] == name) {
        Some(mut row) => Ok(row.swap_remove(1)),
        None if CLIENT_SETTINGS.contains(&name) || ASKED_FOR.contains(&name) => Ok(String::new()),
        None => Err(unknown(name)),
    }
}

/// The options of a query started in a session with these settings.
pub(crate) fn apply(defaults: &RuntimeOptions, settings: &BTreeMap<String, String>) -> RuntimeOptions {
    let mut options = defaults.clone();
    for setting in &SETTINGS {
        if let Some(value) = settings.get(setting.name) {
            let checked = (setting.apply)(&mut options, value);
            debug_assert!(checked.is_some(), "{} was checked when it was set", setting.name);
        }
    }
    options
}

/// All settings in force, with their meaning.
pub(crate) fn list(defaults: &RuntimeOptions, settings: &BTreeMap<String, String>) -> Vec<Vec<String>> {
    let options = apply(defaults, settings);
    let own = SETTINGS.iter().map(|s| vec![s.name.to_owned(), (s.show)(&options), s.meaning.to_owned()]);
    let clients = settings
        .iter()
        .filter(|(name, _)| CLIENT_SETTINGS.contains(&name.as_str()))
        .map(|(name, value)| vec![name.clone(), value.clone(), "set by the client; changes nothing".to_owned()]);
    let timeout = settings.get(STATEMENT_TIMEOUT).map_or("0", String::as_str);
    let timeout = vec![STATEMENT_TIMEOUT.to_owned(), timeout.to_owned(), STATEMENT_TIMEOUT_MEANING.to_owned()];
    let name =
        vec![QUERY_NAME.to_owned(), query_name(settings).unwrap_or_default().to_owned(), QUERY_NAME_MEANING.to_owned()];
    let kept = query_store(settings).unwrap_or("none");
    let store = vec![QUERY_STORE.to_owned(), kept.to_owned(), QUERY_STORE_MEANING.to_owned()];
    own.chain([timeout, name, store]).chain(clients).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_says_what_the_setting_takes() {
        let error = check("parallelism", "zero").unwrap_err();
        assert_eq!(
            error.to_string(),
            "setting parallelism: expected partitions requested from each source, 1 to 1024, got 'zero'"
        );
        assert!(check("parallelism", "2").is_ok());
        assert!(check("memory-limit", "512").is_err() && check("memory-limit", "0B").is_err());
    }

    #[test]
    fn a_setting_that_there_is_not_is_not_shown_as_empty() {
        let all = || list(&RuntimeOptions::default(), &BTreeMap::new());
        assert_eq!(value_of("epoch-events", all()).unwrap(), "0");
        assert_eq!(value_of("server_version", all()).unwrap(), "");
        let error = value_of("paralelism", all()).unwrap_err().to_string();
        assert!(error.contains("setting paralelism does not exist") && error.contains("parallelism"), "{error}");
    }

    #[test]
    fn an_unknown_setting_names_those_that_exist() {
        let error = check("paralellism", "2").unwrap_err();
        assert_eq!(error.to_string(), "setting paralellism does not exist; did you mean parallelism?");
    }

    #[test]
    fn a_query_has_a_name_that_is_none_of_its_ids() {
        for name in ["out", "a-1", "bids_per_minute", "abcdef-012345"] {
            assert!(check(QUERY_NAME, name).is_ok(), "{name}");
        }
        for name in ["", "1", "a b", "a/b", "..", "abcdef012345-7", &"x".repeat(65)] {
            assert!(check(QUERY_NAME, name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_stored_query_runs_as_it_began_whatever_the_defaults_are_now() {
        let mut begun =
            RuntimeOptions { source_partitions: 3, members: 2, batch_rows: 100, ..RuntimeOptions::default() };
        begun.epoch.max_events = 77;
        begun.memory_limit = Some(1 << 20);
        let later = RuntimeOptions { source_partitions: 8, ..RuntimeOptions::default() };
        let again = restored(&later, &stored(&begun)).unwrap();
        assert_eq!((again.source_partitions, again.members, again.batch_rows), (3, 2, 100));
        assert_eq!((again.epoch, again.memory_limit), (begun.epoch, begun.memory_limit));
        let wrong = BTreeMap::from([("parallelism".to_owned(), "many".to_owned())]);
        assert!(restored(&later, &wrong).unwrap_err().to_string().contains("expected partitions"));
    }

    #[test]
    fn settings_change_the_options_of_the_next_query() {
        let settings = BTreeMap::from([("group-size".to_owned(), "3".to_owned())]);
        assert_eq!(apply(&RuntimeOptions::default(), &settings).members, 3);
        let limited = BTreeMap::from([("memory-limit".to_owned(), "2GiB".to_owned())]);
        assert_eq!(apply(&RuntimeOptions::default(), &limited).memory_limit, Some(2 << 30));
        assert_eq!(list(&RuntimeOptions::default(), &settings)[1][1], "3");
    }

    #[test]
    fn a_session_changes_of_a_stored_query_what_its_state_fits() {
        let settings = |size: &str, mode: &str| {
            BTreeMap::from([("group-size".to_owned(), size.to_owned()), ("mode".to_owned(), mode.to_owned())])
        };
        let stored = settings("2", "serverless");
        assert_eq!(changed(&stored, &settings("3", "provisioned")), Some(settings("3", "serverless")));
        assert_eq!(changed(&stored, &settings("2", "provisioned")), None);
        assert_eq!(changed(&stored, &BTreeMap::new()), None);
    }
}
