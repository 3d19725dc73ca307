//! What a session can set. A setting that would have no effect is refused, unless its value is the one that holds anyway.

mod encoding;
mod search_path;
mod taken;
mod units;

use std::{collections::BTreeMap, sync::Arc};

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::{style::Style, zone::Zone},
};
use savanna_transaction::Isolation;

pub use self::{encoding::Encoding, search_path::SearchPath};
use self::{
    taken::{invalid, outside, taken},
    units::{Unit, number},
};
use crate::prepare::{isolation_name, isolation_of};

/// A session's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name that the client gave itself.
    pub application_name: String,
    /// The level of transactions that do not say.
    pub isolation: Isolation,
    /// Whether transactions that do not say may write.
    pub read_only: bool,
    /// Whether notices are sent.
    pub notices: bool,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How it reads and shows dates and intervals, and where its clocks are.
    pub style: Style,
    /// How its texts are written.
    pub encoding: Encoding,
    /// The schemas in which it looks for names.
    pub search_path: SearchPath,
    extra_float_digits: String,
    /// Whether it is an administrator's, which is all that there is of superusers.
    pub(crate) administrator: bool,
    /// What was set of those that change nothing, as it is shown.
    taken: BTreeMap<&'static str, String>,
    /// Settings that only their users know, by names with a dot.
    own: BTreeMap<String, String>,
    /// What its client began with, to which `RESET` goes back.
    first: Option<Arc<Self>>,
}

/// How long a statement takes of a client that does not say.
const STATEMENT_MILLIS: u32 = 10 * 60_000;

/// How long things may take, in milliseconds; 0 for as long as they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A statement.
    pub statement: u32,
    /// A wait for a lock.
    pub lock: u32,
    /// A pause of the client in a transaction.
    pub idle_in_transaction: u32,
    /// A pause of the client outside of one.
    pub idle: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { statement: STATEMENT_MILLIS, lock: 0, idle_in_transaction: 0, idle: 0 }
    }
}

impl Timeouts {
    fn named(&mut self, name: &str) -> Option<&mut u32> {
        Some(match name {
            "statement_timeout" => &mut self.statement,
            "lock_timeout" => &mut self.lock,
            "idle_in_transaction_session_timeout" => &mut self.idle_in_transaction,
            "idle_session_timeout" => &mut self.idle,
            _ => return None,
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            application_name: String::new(),
            isolation: Isolation::ReadCommitted,
            read_only: false,
            notices: true,
            timeouts: Timeouts::default(),
            style: Style::PLAIN,
            encoding: Encoding::default(),
            search_path: SearchPath::default(),
            extra_float_digits: "1".to_owned(),
            administrator: false,
            taken: BTreeMap::new(),
            own: BTreeMap::new(),
            first: None,
        }
    }
}

/// The names of settings that have more than one value.
const CHANGING: [&str; 14] = [
    "application_name",
    "client_encoding",
    "client_min_messages",
    "datestyle",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "search_path",
    "statement_timeout",
    "timezone",
];

/// Settings with the one value that they have, and other ways to write it.
const FIXED: &[(&str, &str, &[&str])] = &[
    ("array_nulls", "on", &["true", "1"]),
    ("bytea_output", "hex", &[]),
    ("backslash_quote", "safe_encoding", &[]),
    ("default_table_access_method", "heap", &[]),
    ("default_tablespace", "", &["pg_default"]),
    ("default_transaction_deferrable", "off", &["false", "no", "0"]),
    ("escape_string_warning", "on", &["true", "1"]),
    ("in_hot_standby", "off", &[]),
    ("integer_datetimes", "on", &[]),
    ("is_superuser", "on", &[]),
    ("lc_messages", "C", &[]),
    ("lc_monetary", "C", &[]),
    ("lc_numeric", "C", &[]),
    ("lc_time", "C", &[]),
    ("lo_compat_privileges", "off", &["false", "no", "0"]),
    ("quote_all_identifiers", "off", &["false", "no", "0"]),
    ("session_replication_role", "origin", &["local"]),
    ("temp_tablespaces", "", &["pg_default"]),
    ("transform_null_equals", "off", &["false", "no", "0"]),
    ("lc_collate", "C", &[]),
    ("lc_ctype", "C.UTF-8", &[]),
    ("max_connections", "100", &[]),
    ("max_identifier_length", "63", &[]),
    ("max_index_keys", "32", &[]),
    ("max_prepared_transactions", "0", &[]),
    ("password_encryption", "scram-sha-256", &["'scram-sha-256'"]),
    ("server_encoding", "UTF8", &[]),
    ("server_version", SERVER_VERSION, &[]),
    ("server_version_num", "150000", &[]),
    ("standard_conforming_strings", "on", &["true", "1"]),
    ("transaction_deferrable", "off", &["false", "no", "0"]),
];

/// What a session has of settings with names of their users' own.
const OWN_MAX: usize = 1_000;
const OWN_BYTES_MAX: usize = 64 << 10;

fn unknown(name: &str) -> SqlError {
    SqlError::new(state::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// What a setting that can be on or off is set to.
pub(crate) fn switch(name: &str, value: &str) -> Result<bool> {
    switched(value).ok_or_else(|| {
        let message = format!("parameter \"{name}\" requires a Boolean value");
        SqlError::new(state::INVALID_PARAMETER_VALUE, message)
    })
}

/// Whether a word says on or off: `on`, `off`, or what `true`, `false`, `yes` or `no` begin with.
fn switched(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str| !value.is_empty() && word.starts_with(&value);
    match value.as_str() {
        "on" | "1" => Some(true),
        "of" | "off" | "0" => Some(false),
        _ if begins("true") || begins("yes") => Some(true),
        _ if begins("false") || begins("no") => Some(false),
        _ => None,
    }
}

/// What clients are told that they talk to.
pub const SERVER_VERSION: &str = "15.0";

impl Settings {
    /// Those of an administrator, or of somebody else.
    pub fn of(administrator: bool) -> Self {
        Self { administrator, ..Self::default() }
    }

    /// Sets a setting; without a value to its default.
    ///
    /// # Errors
    /// 42704 if there is no such setting, 22023 if it has no such value, 0A000 if the value would have no effect.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let default = self.first();
        match (name, value) {
            ("", None) => *self = default,
            ("application_name", value) => {
                self.application_name = value.map_or(default.application_name, ToOwned::to_owned);
            }
            ("default_transaction_isolation", value) => {
                self.isolation = value.map_or(Ok(default.isolation), isolation_of)?;
            }
            ("default_transaction_read_only", value) => {
                self.read_only = value.map_or(Ok(default.read_only), |value| switch(name, value))?
            }
            (name @ "client_min_messages", value) => {
                let unset = if default.notices { "notice" } else { "warning" };
                self.notices = match value.unwrap_or(unset).to_ascii_lowercase().as_str() {
                    "warning" | "error" | "fatal" | "panic" => false,
                    "notice" | "log" | "info" | "debug" | "debug1" | "debug2" | "debug3" | "debug4" | "debug5" => true,
                    other => {
                        return Err(invalid(name, other));
                    }
                };
            }
            ("extra_float_digits", value) => {
                let digits = value.unwrap_or(&default.extra_float_digits);
                if !matches!(digits, "1" | "2" | "3") {
                    return Err(SqlError::unsupported(format_args!("extra_float_digits of {digits}")));
                }
                self.extra_float_digits = digits.to_owned();
            }
            ("search_path", value) => {
                self.search_path = value.map_or(Ok(default.search_path), SearchPath::parse)?;
            }
            ("client_encoding", value) => {
                self.encoding = value.map_or(Ok(default.encoding), Encoding::parse)?;
            }
            ("datestyle", value) => {
                let unset = default.style.date_style();
                self.style = self.style.with_date_style(value.unwrap_or(&unset), default.style)?;
            }
            ("intervalstyle", value) => {
                self.style = self.style.with_interval_style(value.unwrap_or(default.style.interval_style()))?;
            }
            ("timezone", value) => {
                self.style.zone = match value {
                    None => default.style.zone,
                    Some(value) if value.eq_ignore_ascii_case("local") => Style::PLAIN.zone,
                    Some(value) => Zone::setting(value)?,
                };
            }
            (name, value) if self.timeouts.named(name).is_some() => {
                let mut unset = default.timeouts;
                let unset = unset.named(name).map_or(0, |millis| *millis);
                let millis = value.map_or(Ok(unset), |value| milliseconds(name, value))?;
                if let Some(timeout) = self.timeouts.named(name) {
                    *timeout = millis;
                }
            }
            (name, value) if name.contains('.') => {
                self.set_own(name, value.or_else(|| default.own.get(name).map(String::as_str)))?;
            }
            ("is_superuser", _) => {
                let message = "parameter \"is_superuser\" cannot be changed";
                return Err(SqlError::new("55P02", message));
            }
            (name, value) if let Some(known) = taken(name) => {
                let unset = default.taken.get(name).cloned();
                match value.map(|value| known.shown(value)).transpose()?.or(unset) {
                    Some(value) => self.taken.insert(known.name, value),
                    None => self.taken.remove(known.name),
                };
            }
            (name, value) => {
                let Some((_, fixed, others)) = FIXED.iter().find(|(fixed, ..)| *fixed == name) else {
                    return Err(unknown(name));
                };
                let value = value.unwrap_or(fixed);
                if !value.eq_ignore_ascii_case(fixed) && !others.iter().any(|other| value.eq_ignore_ascii_case(other)) {
                    return Err(SqlError::unsupported(format_args!("{name} of \"{value}\"")));
                }
            }
        }
        Ok(())
    }

    /// From here on `RESET` goes back to what is set now.
    pub fn begin(&mut self) {
        self.first = None;
        self.first = Some(Arc::new(self.clone()));
    }

    /// What `RESET` goes back to.
    fn first(&self) -> Self {
        let first = self.first.as_deref().cloned().unwrap_or_default();
        Self { first: self.first.clone(), ..first }
    }

    /// What was set, for a session that goes on elsewhere: what `RESET` goes back to, as far as it is no default, and what is otherwise by now.
    pub fn written(&self) -> [Vec<(String, String)>; 2] {
        let first = self.first();
        [first.differs_from(&Self::of(self.administrator)), self.differs_from(&first)]
    }

    /// Settings that were [written](Self::written), of an administrator or somebody else.
    ///
    /// # Errors
    /// There is no such setting or value.
    pub fn restored(administrator: bool, [first, since]: &[Vec<(String, String)>; 2]) -> Result<Self> {
        let mut settings = Self::of(administrator);
        for (name, value) in first {
            settings.set(name, Some(value))?;
        }
        settings.begin();
        for (name, value) in since {
            settings.set(name, Some(value))?;
        }
        Ok(settings)
    }

    fn differs_from(&self, other: &Self) -> Vec<(String, String)> {
        let taken = self.taken.keys().chain(other.taken.keys()).copied();
        let names = CHANGING.into_iter().chain(taken).chain(self.own.keys().map(String::as_str));
        let values = names.filter_map(|name| Some((name, self.show(name).ok()?)));
        let differing = values.filter(|(name, value)| other.show(name).ok().as_ref() != Some(value));
        differing.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What a setting is.
    ///
    /// # Errors
    /// 42704 if there is no such setting.
    pub fn show(&self, name: &str) -> Result<String> {
        let mut timeouts = self.timeouts;
        Ok(match name {
            "application_name" => self.application_name.clone(),
            "default_transaction_isolation" => isolation_name(self.isolation).to_owned(),
            "default_transaction_read_only" => if self.read_only { "on" } else { "off" }.to_owned(),
            "client_min_messages" => if self.notices { "notice" } else { "warning" }.to_owned(),
            "search_path" => self.search_path.to_string(),
            "client_encoding" => self.encoding.name().to_owned(),
            "datestyle" => self.style.date_style(),
            "intervalstyle" => self.style.interval_style().to_owned(),
            "timezone" => self.style.zone.name(),
            "extra_float_digits" => self.extra_float_digits.clone(),
            "is_superuser" => if self.administrator { "on" } else { "off" }.to_owned(),
            name if let Some(millis) = timeouts.named(name) => Unit::Milliseconds.shown((*millis).into()),
            name if let Some(known) = taken(name) => {
                self.taken.get(name).map_or(known.default, String::as_str).to_owned()
            }
            name => match (FIXED.iter().find(|(fixed, ..)| *fixed == name), self.own.get(name)) {
                (Some((_, value, _)), _) => (*value).to_owned(),
                (None, Some(value)) => value.clone(),
                (None, None) => return Err(unknown(name)),
            },
        })
    }

    /// Sets a setting of a user's own; without a value it is as if it had never been set.
    fn set_own(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let part = |part: &str| {
            let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
            part.starts_with(|c: char| c.is_alphabetic() || c == '_') && part.chars().all(word)
        };
        if !name.split('.').all(part) {
            let message = format!("invalid configuration parameter name \"{name}\"");
            return Err(SqlError::new("42602", message)
                .detail("Custom parameter names must be two or more simple identifiers separated by dots."));
        }
        let Some(value) = value else {
            self.own.remove(name);
            return Ok(());
        };
        self.own.insert(name.to_owned(), value.to_owned());
        let bytes: usize = self.own.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.own.len() > OWN_MAX || bytes > OWN_BYTES_MAX {
            self.own.remove(name);
            let message =
                format!("a session has at most {OWN_MAX} settings of its own, of {} KiB", OWN_BYTES_MAX >> 10);
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }

    /// All settings, by their names, with what they are and would be if nobody had set them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, String, String)> {
        let default = Self::default();
        let mut names: Vec<&str> = CHANGING.into_iter().chain(FIXED.iter().map(|(name, ..)| *name)).collect();
        taken::names().for_each(|name| names.push(name));
        names.extend(self.own.keys().map(String::as_str));
        names.sort_unstable();
        names.into_iter().map(move |name| {
            let shown = |settings: &Self| settings.show(name).unwrap_or_default();
            (name, shown(self), shown(&default))
        })
    }
}

/// A time as a setting has it: a number of milliseconds, or with a unit.
fn milliseconds(name: &str, value: &str) -> Result<u32> {
    let millis = number(name, value, Unit::Milliseconds)?.round_ties_even();
    if !(0.0..=f64::from(i32::MAX)).contains(&millis) {
        return Err(outside(name, &Unit::Milliseconds.beside(millis), "0", &i32::MAX.to_string()));
    }
    Ok(millis as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("timezone", Some("Etc/UTC")), Ok(()));
        assert_eq!(settings.set("timezone", Some("Europe/Nowhere")).unwrap_err().state, state::INVALID_PARAMETER_VALUE);
        assert_eq!(settings.set("bytea_output", Some("escape")).unwrap_err().state, state::FEATURE_NOT_SUPPORTED);
        assert_eq!(settings.set("app.a b", Some("x")).unwrap_err().state, "42602");
        assert_eq!(settings.set("app.user", Some("x")), Ok(()));
        assert_eq!(settings.show("app.user").as_deref(), Ok("x"));
        assert!(settings.all().all(|(name, value, _)| !value.is_empty()
            || ["application_name", "default_tablespace", "temp_tablespaces"].contains(&name)));
        assert_eq!(settings.set("shared_memory", Some("1GB")).unwrap_err().state, state::UNDEFINED_OBJECT);
        assert_eq!(settings.set("default_tablespace", Some("fast")).unwrap_err().state, state::FEATURE_NOT_SUPPORTED);
        assert_eq!(settings.set("default_transaction_isolation", Some("serializable")), Ok(()));
        assert_eq!(settings.show("default_transaction_isolation").as_deref(), Ok("serializable"));
        for (value, shown) in
            [("1500", "1500ms"), ("2 s", "2s"), ("90min", "90min"), ("1.5h", "90min"), ("0", "0"), ("600us", "1ms")]
        {
            settings.set("statement_timeout", Some(value)).unwrap();
            assert_eq!(settings.show("statement_timeout").as_deref(), Ok(shown), "{value}");
        }
        for value in ["-1", "1 week", "", "s", "1e12"] {
            let refused = settings.set("lock_timeout", Some(value)).unwrap_err();
            assert_eq!(refused.state, state::INVALID_PARAMETER_VALUE, "{value}");
        }
        settings.set("", None).unwrap();
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn what_is_reset_is_as_the_client_began() {
        let mut settings = Settings::default();
        let begun = [
            ("application_name", "psql"),
            ("timezone", "Europe/Berlin"),
            ("datestyle", "German, YMD"),
            ("intervalstyle", "iso_8601"),
            ("client_encoding", "sql_ascii"),
            ("statement_timeout", "5s"),
            ("default_transaction_isolation", "serializable"),
            ("default_transaction_read_only", "on"),
            ("client_min_messages", "warning"),
            ("extra_float_digits", "3"),
            ("search_path", "a, b"),
            ("app.tenant", "one"),
            ("work_mem", "1MB"),
        ];
        let other = [
            "other",
            "UTC",
            "SQL, DMY",
            "sql_standard",
            "utf8",
            "0",
            "read committed",
            "off",
            "notice",
            "2",
            "c",
            "two",
            "2MB",
        ];
        begun.iter().for_each(|(name, value)| settings.set(name, Some(value)).unwrap());
        settings.begin();
        let first = settings.clone();
        for all in [false, true] {
            begun.iter().zip(other).for_each(|((name, _), value)| settings.set(name, Some(value)).unwrap());
            settings.set("app.more", Some("x")).unwrap();
            settings.set("enable_sort", Some("off")).unwrap();
            assert_eq!(Settings::restored(false, &settings.written()), Ok(settings.clone()));
            match all {
                true => settings.set("", None).unwrap(),
                false => {
                    let names = begun.iter().map(|(name, _)| *name).chain(["app.more", "enable_sort"]);
                    names.for_each(|name| settings.set(name, None).unwrap());
                }
            }
            assert_eq!(settings, first);
        }
    }
}
