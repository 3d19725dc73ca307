//! Why a client does not come in.

use std::{io, net::IpAddr};

use savanna_identity::scram::Malformed;

/// SQLSTATE of clients that may not be who they say.
const AUTHORIZATION: &str = "28000";

/// What a client is told that does not come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its SQLSTATE.
    pub state: &'static str,
    /// What was expected, and what came.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Refusal {
    pub(crate) fn new(state: &'static str, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), hint: None }
    }

    fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The startup message names no user.
    pub(crate) fn nameless() -> Self {
        Self::new(AUTHORIZATION, "no PostgreSQL user name specified in startup packet")
    }

    /// The message is no message of the protocol.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new("08P01", message)
    }

    /// Encryption is required.
    #[must_use]
    pub fn in_the_clear() -> Self {
        Self::new(AUTHORIZATION, "expected an encrypted connection, got one without encryption")
            .with_hint("Connect with sslmode=require, or better verify-full.")
    }

    /// Nobody has a password, so only clients of the same machine come in.
    #[must_use]
    pub fn from_elsewhere(address: IpAddr, hint: &str) -> Self {
        Self::new(AUTHORIZATION, format!("expected a client of this machine, got one from {address}")).with_hint(hint)
    }

    /// The password is not the user's, or there is no such user.
    #[must_use]
    pub fn wrong_password(user: &str) -> Self {
        Self::new("28P01", format!("password authentication failed for user \"{user}\""))
    }

    /// All places are taken.
    #[must_use]
    pub fn no_place(clients_max: usize) -> Self {
        Self::new("53300", "sorry, too many clients already")
            .with_hint(format!("There are {clients_max}; try again when others have gone."))
    }
}

/// Why a client did not come in.
#[derive(Debug)]
pub enum Turned {
    /// It went away, or what it sends cannot be told apart from what somebody in between would send.
    Gone(io::Error),
    /// It is told why.
    Refused(Refusal),
}

impl From<io::Error> for Turned {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl From<Refusal> for Turned {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Malformed> for Turned {
    fn from(error: Malformed) -> Self {
        Self::Refused(Refusal::malformed(error.to_string()))
    }
}
