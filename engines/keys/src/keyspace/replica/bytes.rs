//! The bytes of keys, members and values in what replicas merge.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that never change. A change is kept in the state, in what is to be told, and in what is told to each replica: they
/// share one copy. Encoded in one piece, which is the same form as byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(Arc<[u8]>);

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(ToBytes)
    }
}

struct ToBytes;

impl Visitor<'_> for ToBytes {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use savanna_lattice::{decode, encode};

    use super::Bytes;

    proptest! {
        #[test]
        fn the_form_is_that_of_single_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let form = encode(&Bytes::from(&*bytes)).unwrap();
            prop_assert_eq!(&form, &encode(&bytes).unwrap());
            prop_assert_eq!(&*decode::<Bytes>(&form).unwrap(), &*bytes);
        }

        #[test]
        fn hostile_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode::<Bytes>(&bytes);
        }
    }
}
