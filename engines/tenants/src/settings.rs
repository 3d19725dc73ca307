//! What a session can set. A setting that would have no effect is refused, unless its value is the one that holds anyway.

use savanna_transaction::Isolation;

use crate::{
    error::{Result, SqlError, state},
    sql::prepare::{isolation_name, isolation_of},
};

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
    extra_float_digits: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            application_name: String::new(),
            isolation: Isolation::ReadCommitted,
            read_only: false,
            notices: true,
            extra_float_digits: "1".to_owned(),
        }
    }
}

/// Settings with the one value that they have, and other ways to write it.
const FIXED: &[(&str, &str, &[&str])] = &[
    ("bytea_output", "hex", &[]),
    ("client_encoding", "UTF8", &["utf8", "utf-8", "unicode", "'utf8'", "'utf-8'"]),
    ("datestyle", "ISO, MDY", &["iso", "iso, mdy", "mdy"]),
    ("idle_in_transaction_session_timeout", "0", &["0ms", "0s"]),
    ("integer_datetimes", "on", &[]),
    ("intervalstyle", "postgres", &[]),
    ("is_superuser", "on", &[]),
    ("lock_timeout", "0", &["0ms", "0s"]),
    ("max_identifier_length", "63", &[]),
    ("password_encryption", "scram-sha-256", &["'scram-sha-256'"]),
    ("row_security", "on", &["off"]),
    ("search_path", "\"$user\", public", &["public", "$user, public", "\"public\""]),
    ("server_encoding", "UTF8", &[]),
    ("server_version", SERVER_VERSION, &[]),
    ("server_version_num", "150000", &[]),
    ("standard_conforming_strings", "on", &["true", "1"]),
    ("statement_timeout", "0", &["0ms", "0s"]),
    ("synchronous_commit", "on", &["true", "1"]),
    ("timezone", "UTC", &["utc", "gmt", "etc/utc", "etc/gmt", "z", "+00", "0", "+00:00"]),
];

/// What clients are told that they talk to.
pub const SERVER_VERSION: &str = "15.0";

impl Settings {
    /// Sets a setting; without a value to its default.
    ///
    /// # Errors
    /// 42704 if there is no such setting, 22023 if it has no such value, 0A000 if the value would have no effect.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let default = Self::default();
        let on = |value: &str| match value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            _ => Err(SqlError::new(
                state::INVALID_PARAMETER_VALUE,
                format!("parameter \"{name}\" requires a Boolean value"),
            )),
        };
        match (name, value) {
            ("", None) => *self = default,
            ("application_name", value) => self.application_name = value.unwrap_or_default().to_owned(),
            ("default_transaction_isolation", value) => {
                self.isolation = value.map_or(Ok(default.isolation), isolation_of)?;
            }
            ("default_transaction_read_only", value) => self.read_only = value.map_or(Ok(false), on)?,
            ("client_min_messages", value) => {
                self.notices = match value.unwrap_or("notice").to_ascii_lowercase().as_str() {
                    "warning" | "error" | "fatal" | "panic" => false,
                    "notice" | "log" | "info" | "debug" | "debug1" | "debug2" | "debug3" | "debug4" | "debug5" => true,
                    other => {
                        let message = format!("invalid value for parameter \"client_min_messages\": \"{other}\"");
                        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                    }
                };
            }
            ("extra_float_digits", value) => {
                let digits = value.unwrap_or("1");
                if !matches!(digits, "1" | "2" | "3") {
                    return Err(SqlError::unsupported(format_args!("extra_float_digits of {digits}")));
                }
                self.extra_float_digits = digits.to_owned();
            }
            (name, value) => {
                let Some((_, fixed, others)) = FIXED.iter().find(|(fixed, ..)| *fixed == name) else {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
                };
                let value = value.unwrap_or(fixed);
                if !value.eq_ignore_ascii_case(fixed) && !others.iter().any(|other| value.eq_ignore_ascii_case(other)) {
                    return Err(SqlError::unsupported(format_args!("{name} of \"{value}\"")));
                }
            }
        }
        Ok(())
    }

    /// What a setting is.
    ///
    /// # Errors
    /// 42704 if there is no such setting.
    pub(crate) fn show(&self, name: &str) -> Result<String> {
        Ok(match name {
            "application_name" => self.application_name.clone(),
            "default_transaction_isolation" => isolation_name(self.isolation).to_owned(),
            "default_transaction_read_only" => if self.read_only { "on" } else { "off" }.to_owned(),
            "client_min_messages" => if self.notices { "notice" } else { "warning" }.to_owned(),
            "extra_float_digits" => self.extra_float_digits.clone(),
            name => match FIXED.iter().find(|(fixed, ..)| *fixed == name) {
                Some((_, value, _)) => (*value).to_owned(),
                None => {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    return Err(SqlError::new(state::UNDEFINED_OBJECT, message));
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let mut settings = Settings::default();
        assert_eq!(settings.set("timezone", Some("Etc/UTC")), Ok(()));
        assert_eq!(settings.set("timezone", Some("Europe/Berlin")).unwrap_err().state, state::FEATURE_NOT_SUPPORTED);
        assert_eq!(settings.set("work_mem", Some("1GB")).unwrap_err().state, state::UNDEFINED_OBJECT);
        assert_eq!(settings.set("default_transaction_isolation", Some("serializable")), Ok(()));
        assert_eq!(settings.show("default_transaction_isolation").as_deref(), Ok("serializable"));
        settings.set("", None).unwrap();
        assert_eq!(settings, Settings::default());
    }
}
