//! How lattices look in a log, a message or a snapshot: one byte of version, then the value in postcard.
//!
//! The bytes of equal values are equal, except that a delta differs from a state that has seen the same. A change of any
//! type's form is a new version; the old ones stay readable and are pinned by the fixtures in `tests/it/form.rs`.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version that is written.
pub const FORM_VERSION: u8 = 1;

/// Bytes that are no value of the type that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// Of a version that this release does not know.
    #[error(
        "expected a value in form 1 to {FORM_VERSION}, came form {found}; read it with the release that wrote it, or a later one"
    )]
    Version {
        /// The version that came.
        found: u8,
    },
    /// Cut short, too long, or not what the type allows.
    #[error("expected a whole value of {expected}, came {came} bytes: {reason}; discard them and ask another replica")]
    Malformed {
        /// The type.
        expected: &'static str,
        /// How many bytes there were.
        came: usize,
        /// What is wrong with them.
        reason: String,
    },
    /// A value that postcard cannot represent.
    #[error(
        "expected a value that can be encoded, came one of {of}: {reason}; give its type a serde form of plain data"
    )]
    Unrepresentable {
        /// The type.
        of: &'static str,
        /// What postcard says.
        reason: String,
    },
}

/// Encodes a value in the present version.
///
/// # Errors
/// [`FormError::Unrepresentable`] only for types of your own inside; those of this crate always have a form.
pub fn encode<L: Serialize>(value: &L) -> Result<Vec<u8>, FormError> {
    postcard::to_extend(value, vec![FORM_VERSION])
        .map_err(|error| FormError::Unrepresentable { of: std::any::type_name::<L>(), reason: error.to_string() })
}

/// Decodes a value of any version so far. Checks what the type promises of itself; hostile bytes are an error, not a
/// panic.
///
/// # Errors
/// [`FormError::Version`] and [`FormError::Malformed`].
pub fn decode<L: DeserializeOwned>(bytes: &[u8]) -> Result<L, FormError> {
    let malformed = |reason| FormError::Malformed { expected: std::any::type_name::<L>(), came: bytes.len(), reason };
    let (&version, value) = bytes.split_first().ok_or_else(|| malformed("no version".to_owned()))?;
    if version != FORM_VERSION {
        return Err(FormError::Version { found: version });
    }
    match postcard::take_from_bytes(value) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(malformed(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(malformed(error.to_string())),
    }
}
