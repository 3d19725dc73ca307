//! Functions of the session's settings.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::Value,
};

use super::{Resolved, is_texty, wrong_arguments};
use crate::{
    expression::Facts,
    prepare::{isolation_name, isolation_of},
    settings::switch,
};

/// A function of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingFunction {
    /// `current_setting`
    Current,
    /// `set_config`
    Set,
}

/// A setting that a statement has set; it counts for the session when the statement is done.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct Configured {
    pub name: String,
    /// `None` for its default.
    pub value: Option<String>,
    /// Whether it ends with the transaction.
    pub local: bool,
}

/// The function of settings of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<SettingFunction>> {
    use SettingFunction as F;
    use Type::{Bool, Text, Unknown};
    Some(match (name, arguments) {
        ("current_setting", [name]) if is_texty(name) => (F::Current, vec![Text], Text),
        ("current_setting", [name, Bool | Unknown]) if is_texty(name) => (F::Current, vec![Text, Bool], Text),
        ("set_config", [name, value, Bool | Unknown]) if is_texty(name) && is_texty(value) => {
            (F::Set, vec![Text, Text, Bool], Text)
        }
        _ => return None,
    })
}

impl SettingFunction {
    pub(super) fn is_strict(self) -> bool {
        self == Self::Current
    }

    pub(super) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        match (self, arguments) {
            (Self::Current, [Value::Text(name), missing @ ..]) => match facts.setting(&name.to_ascii_lowercase()) {
                Ok(value) => Ok(Value::Text(value)),
                Err(error) if error.state == state::UNDEFINED_OBJECT && matches!(missing, [Value::Bool(true)]) => {
                    Ok(Value::Null)
                }
                Err(error) => Err(error),
            },
            (Self::Set, [Value::Null, ..]) => {
                Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "SET requires parameter name"))
            }
            (Self::Set, [Value::Text(name), value, local]) => {
                let value = if let Value::Text(value) = value { Some(value.clone()) } else { None };
                let local = matches!(local, Value::Bool(true));
                let name = name.to_ascii_lowercase();
                facts.configure(Configured { name: name.clone(), value, local })?;
                facts.setting(&name).map(Value::Text).or(Ok(Value::Text(String::new())))
            }
            _ => Err(wrong_arguments(self)),
        }
    }
}

impl Facts {
    /// What a setting is here, with what the statement has set so far.
    ///
    /// # Errors
    /// 42704 if there is no such setting.
    pub fn setting(&self, name: &str) -> Result<String> {
        let configured = self.configured.borrow();
        match (name, self.modes) {
            ("transaction_isolation", Some((isolation, _))) => Ok(isolation_name(isolation).to_owned()),
            ("transaction_isolation", None) => self.settings.show("default_transaction_isolation"),
            ("transaction_read_only", Some((_, read_only))) => {
                let only = read_only || configured.iter().any(|set| set.name == name);
                Ok(if only { "on" } else { "off" }.to_owned())
            }
            ("transaction_read_only", None) => self.settings.show("default_transaction_read_only"),
            _ if configured.is_empty() => self.settings.show(name),
            _ => {
                let mut settings = self.settings.clone();
                for set in configured.iter().filter(|set| !set.is_of_transaction()) {
                    settings.set(&set.name, set.value.as_deref())?;
                }
                settings.show(name)
            }
        }
    }

    /// Notes a setting that counts from now on. What a transaction is like can only be said before it reads.
    fn configure(&self, set: Configured) -> Result<()> {
        let late = |what: &str| {
            let message = format!("{what} must be set before any query");
            Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message))
        };
        match (set.name.as_str(), set.value.as_deref(), self.modes) {
            ("transaction_isolation", Some(level), Some((isolation, _))) => {
                return if isolation_of(level)? == isolation { Ok(()) } else { late("transaction isolation level") };
            }
            ("transaction_read_only", Some(value), Some((_, read_only))) => match switch(&set.name, value)? {
                only if only == read_only => return Ok(()),
                false => return late("transaction read-write mode"),
                true => {}
            },
            _ => self.settings.clone().set(&set.name, set.value.as_deref())?,
        }
        self.configured.borrow_mut().push(set);
        Ok(())
    }
}

impl Configured {
    /// Whether it says that the transaction only reads from now on.
    pub(crate) fn is_of_transaction(&self) -> bool {
        self.name == "transaction_read_only"
    }
}
