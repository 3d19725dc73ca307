//! How clients of the PostgreSQL protocol come in, the same for every face that speaks it.
//!
//! ```text
//!  encryption? ─► startup message ─► Introduction ─► the face asks for a password? ─► SCRAM ─► the face
//! ```
//!
//! A [`Handshake`] reads and answers what comes before the first statement; the face decides. What it refuses it says with a
//! [`Refusal`].

mod handshake;
mod introduction;
mod refusal;

use std::io;
use std::time::Duration;

pub use handshake::{Handshake, MESSAGE_BYTES_MAX, Opening, Socket};
pub use introduction::Introduction;
pub use refusal::{Refusal, Turned};
use savanna_identity::{Users, Verifier};

/// A client that has not said who it is by then is sent away.
pub const STARTUP_TIME: Duration = Duration::from_secs(60);

/// Who is let in.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The node's administrators.
    pub users: Users,
    /// Whether only encrypted connections are taken.
    pub requires_tls: bool,
    /// Clients that may be here at once.
    pub clients_max: usize,
}

impl Default for Admission {
    fn default() -> Self {
        Self { users: Users::default(), requires_tls: false, clients_max: 10_000 }
    }
}

/// What those are asked for who name a user that there is not: the same each time, and no proof fits it.
#[derive(Clone)]
pub struct Nobody([u8; 32]);

/// It is nobody's business in a log.
impl std::fmt::Debug for Nobody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nobody")
    }
}

impl Nobody {
    /// Other ones than before.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub fn new() -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self(secret))
    }

    /// A verifier for this name.
    #[must_use]
    pub fn verifier(&self, name: &str) -> Verifier {
        Verifier::of_nobody(&self.0, name)
    }
}
