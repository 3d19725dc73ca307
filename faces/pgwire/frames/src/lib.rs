//! What a message of a PostgreSQL client looks like, so that one that only says it is one reaches no decoder.
//!
//! The decoder of the `pgwire` crate believes every count and length inside a message: it reads past the message's end into the
//! next one, and panics where there is none. So the faces follow each body with a [`Body`] first, as its bytes come and
//! without a copy, and refuse it unless its fields end exactly where it ends.

mod body;

pub use body::{Body, Malformed};
