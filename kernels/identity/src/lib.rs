//! Who clients are, the same for every face: users with passwords, the token of the control API, and how they are proved.
//!
//! ```text
//!   file of users ─► Users ─┬─ Verifier ─► Exchange   SCRAM-SHA-256, with or without channel binding
//!                           └─ password               for protocols that send it (over TLS)
//!   file of a token ─► Token
//! ```
//!
//! Everything here is pure, except what reads files, and [`Entrance`], which accepts clients. [`PendingClients`] are the clients who
//! have not said yet who they are. [`Tls`] is what encryption needs, and
//! [`cancel_key`] has the keys by which clients cancel what they have begun; [`aws_signature`] is how requests to services of AWS are signed.

pub mod aws_signature;
pub mod cancel_key;
pub mod certificate;
mod descriptors;
mod entrance;
mod pending;
pub mod scram;
mod secrets;
mod throttle;
mod tls;
mod verifier;

pub use descriptors::{descriptors_max, raise_descriptors_max};
pub use entrance::{Entrance, PendingClient};
pub use pending::PendingClients;
pub use secrets::{Login, SecretError, Token, User, Users, read_password};
pub use throttle::Throttle;
pub use tls::{Tls, TlsError, TlsFiles};
pub use verifier::{NoVerifier, SALT_BYTES, Verifier};
