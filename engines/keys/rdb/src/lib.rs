//! Redis' files of all keys (RDB), read and written key by key.
//!
//! ```text
//! ┌───────┬─────────┬──────────────────────────────────────────┬─────┬────────┐
//! │ REDIS │ version │ (opcode .. | type key content)*          │ 255 │ CRC-64 │
//! └───────┴─────────┴──────────────────────────────────────────┴─────┴────────┘
//!  5       4 digits                                             1     8
//! ```
//!
//! A value is not looked into: it comes out as the payload that `DUMP` gives and `RESTORE` takes, and only whoever takes it knows the
//! types. So a file may have types that nobody here can use, and the other keys are read all the same.

pub mod crc64;
pub mod kind;
pub mod lzf;
mod reader;
mod skip;
#[cfg(test)]
mod tests;
mod writer;

/// What a library of functions begins with, in a file and in the payload of `FUNCTION DUMP`.
pub const FUNCTIONS: u8 = opcode::FUNCTIONS;

pub use reader::{Entry, FileError, FileReader, Item};
pub use writer::{FileWriter, Pieces, Writer};

/// The version that is written, that of Redis 7.0.
pub const VERSION: u16 = 10;
/// The highest version that is read, that of Redis 7.4.
pub const VERSION_MAX: u16 = 12;

/// The version that a value of a kind needs: [`VERSION`], unless later Redis alone has such.
#[must_use]
pub const fn version_of(kind: u8) -> u16 {
    match kind {
        kind::HASH_EXPIRING | kind::HASH_LISTPACK_EXPIRING => VERSION_MAX,
        _ => VERSION,
    }
}

/// What is between keys in a file.
mod opcode {
    pub(crate) const SLOT: u8 = 244;
    pub(crate) const FUNCTIONS: u8 = 245;
    pub(crate) const MODULE: u8 = 247;
    pub(crate) const IDLE: u8 = 248;
    pub(crate) const FREQUENCY: u8 = 249;
    pub(crate) const FIELD: u8 = 250;
    pub(crate) const SIZES: u8 = 251;
    pub(crate) const EXPIRES_AT_MILLIS: u8 = 252;
    pub(crate) const EXPIRES_AT_SECONDS: u8 = 253;
    pub(crate) const DATABASE: u8 = 254;
    pub(crate) const END: u8 = 255;
}

/// The payload of a value as `DUMP` gives it: its type and content, the version they are of, and a checksum.
#[must_use]
pub fn seal(mut value: Vec<u8>, version: u16) -> Vec<u8> {
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&crc64::of(&value).to_le_bytes());
    value
}
