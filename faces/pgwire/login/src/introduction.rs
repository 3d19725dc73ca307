//! What a client says of itself.

use pgwire::messages::startup::Startup;

use crate::Refusal;

/// What a startup message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Who it says it is; not proved.
    pub user: String,
    /// The database that it wants: that of the user's name unless it says so.
    pub database: String,
    /// Everything else, mostly settings.
    pub settings: Vec<(String, String)>,
}

impl Introduction {
    /// Reads a startup message.
    ///
    /// # Errors
    /// It names no user, or asks for replication.
    pub fn of(startup: &Startup) -> Result<Self, Refusal> {
        let mut settings: Vec<(String, String)> =
            startup.parameters.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut take = |name: &str| {
            let at = settings.iter().position(|(other, _)| other == name)?;
            Some(settings.swap_remove(at).1)
        };
        let user = take("user").unwrap_or_default();
        let database = take("database").filter(|name| !name.is_empty()).unwrap_or_else(|| user.clone());
        if user.is_empty() {
            return Err(Refusal::nameless());
        }
        if take("replication").is_some_and(|value| value != "false" && value != "0") {
            return Err(Refusal::new("0A000", "replication is not supported"));
        }
        Ok(Self { user, database, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(parameters: &[(&str, &str)]) -> Result<Introduction, Refusal> {
        let mut startup = Startup::new();
        startup.parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Introduction::of(&startup)
    }

    #[test]
    fn a_client_names_itself_and_perhaps_a_database() {
        let ann = introduction(&[("user", "ann"), ("TimeZone", "UTC"), ("database", "")]).unwrap();
        assert_eq!((ann.user.as_str(), ann.database.as_str()), ("ann", "ann"));
        assert_eq!(ann.settings, [("TimeZone".to_owned(), "UTC".to_owned())]);
        assert_eq!(introduction(&[("database", "shop")]).unwrap_err().state, "28000");
        assert_eq!(introduction(&[("user", "ann"), ("replication", "database")]).unwrap_err().state, "0A000");
    }
}
