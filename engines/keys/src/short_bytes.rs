//! Byte strings that lie in place while they are short.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// How many bytes fit in place.
pub const SHORT: usize = 22;

/// A byte string in 24 bytes: up to [`SHORT`] bytes in place, longer ones in an allocation of their own.
#[derive(Clone)]
pub struct ShortBytes(Form);

#[derive(Clone)]
enum Form {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl ShortBytes {
    /// The empty string.
    pub const EMPTY: Self = Self(Form::Short { length: 0, bytes: [0; SHORT] });

    /// Bytes allocated outside of the 24.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Short { .. } => 0,
            Form::Long(bytes) => bytes.len(),
        }
    }

    /// Takes other bytes; an allocation of the same length is used again.
    pub fn assign(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Form::Long(mine) if mine.len() == bytes.len() => mine.copy_from_slice(bytes),
            _ => *self = Self::from(bytes),
        }
    }

    /// The same bytes as a vector.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Form::Short { length, bytes } => bytes[..usize::from(length)].to_vec(),
            Form::Long(bytes) => bytes.into_vec(),
        }
    }
}

impl Deref for ShortBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => &bytes[..usize::from(*length)],
            Form::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for ShortBytes {
    fn from(from: &[u8]) -> Self {
        if from.len() > SHORT {
            return Self(Form::Long(from.into()));
        }
        let mut bytes = [0; SHORT];
        bytes[..from.len()].copy_from_slice(from);
        Self(Form::Short { length: from.len() as u8, bytes })
    }
}

impl From<Vec<u8>> for ShortBytes {
    fn from(from: Vec<u8>) -> Self {
        if from.len() > SHORT { Self(Form::Long(from.into_boxed_slice())) } else { Self::from(&from[..]) }
    }
}

impl Borrow<[u8]> for ShortBytes {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for ShortBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ShortBytes {}

impl PartialOrd for ShortBytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ShortBytes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for ShortBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for ShortBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_24_bytes_and_keeps_any_length() {
        assert_eq!(size_of::<ShortBytes>(), 24);
        for length in [0, 1, SHORT, SHORT + 1, 500] {
            let bytes = vec![b'x'; length];
            let short = ShortBytes::from(&bytes[..]);
            assert_eq!(&*short, &bytes[..]);
            assert_eq!(short.heap_bytes(), if length > SHORT { length } else { 0 });
            assert_eq!(short.into_vec(), bytes);
        }
    }

    #[test]
    fn assigning_the_same_length_allocates_nothing() {
        let mut value = ShortBytes::from(&[b'a'; 64][..]);
        let before = value.as_ptr();
        value.assign(&[b'b'; 64]);
        assert_eq!(value.as_ptr(), before);
        assert_eq!(&*value, &[b'b'; 64]);
        value.assign(b"short");
        assert_eq!(&*value, b"short");
    }
}
