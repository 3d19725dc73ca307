//! What a command is refused with, in the words that Redis clients know.

use std::borrow::Cow;

use crate::reply::Reply;

/// Why a command was refused. The texts are those of Redis, because clients compare them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The key holds a value of another type.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The words do not fit together.
    #[error("ERR syntax error")]
    Syntax,
    /// A word is no whole number of 64 bits.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// A word is no number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// There is no such key.
    #[error("ERR no such key")]
    NoSuchKey,
    /// The command is there, its number of words is wrong.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    /// A time to live that cannot be.
    #[error("ERR invalid expire time in '{0}' command")]
    Expiry(&'static str),
    /// Anything else; the code is the first word.
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl CommandError {
    /// An error with a text of its own, which begins with its code.
    #[must_use]
    pub const fn text(text: &'static str) -> Self {
        Self::Other(Cow::Borrowed(text))
    }

    /// Answers with it.
    pub fn answer(&self, reply: &mut dyn Reply) {
        match self {
            Self::Other(text) => reply.error(text),
            other => reply.error(&other.to_string()),
        }
    }
}

impl From<String> for CommandError {
    fn from(text: String) -> Self {
        Self::Other(Cow::Owned(text))
    }
}

/// What a command's function returns: it has answered, or it is refused.
pub type Outcome = Result<(), CommandError>;
