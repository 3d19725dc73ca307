//! Clients whose database is on another node: this node's socket, that node's session, the client's bytes between them.
//!
//! ```text
//!  client ══ socket, TLS, login ══ front ── tenants/say.1 ──► back ══ Session
//!                                  front ◄── front/say.1 ──── back
//! ```
//!
//! The [`Front`] keeps the socket and the login; what a database knows of a client it asks its node. The [`Back`] serves the session as if the client were there: its socket is a
//! [`line`]. A client's message goes over in one request, and what it comes to mostly returns in the reply; what takes longer
//! is brought by requests of the back. Bytes are numbered ([`stream`]), so either side repeats a request whatever became of it,
//! and nothing happens twice. A back ends a session whose front it does not reach for a minute; a front tells its client when the back
//! does not answer for some seconds, or does not know the session.

mod back;
mod bytes;
mod calls;
mod felt;
mod front;
mod line;
#[cfg(test)]
mod simulation;
mod stream;
mod unanswered;

pub use back::{Back, list};
pub use calls::{Class, class_of};
pub use felt::Felt;
pub use front::{Front, Names, retired};
