//! A request's words, where they lie in the buffer that was received.

use std::ops::Index;

use serde::{Deserialize, Serialize, Serializer};

use crate::wire;

/// Where one word lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: u32,
    /// Its length.
    pub length: u32,
}

/// A request: the command's name and its arguments, not copied.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The words at `spans` of `bytes`; each span must lie inside.
    #[must_use]
    pub const fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
    }

    /// How many words there are, the command's name included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One word. (Indexing gives it for as long as the `Args`, this as long as the buffer.)
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let Span { start, length } = self.spans[index];
        &self.bytes[start as usize..start as usize + length as usize]
    }

    /// The words from `first` on; none if there are fewer.
    pub fn from(self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        (first.min(self.len())..self.len()).map(move |index| self.at(index))
    }

    /// The request without its first `count` words.
    #[must_use]
    pub fn skip(self, count: usize) -> Self {
        Self { bytes: self.bytes, spans: &self.spans[count.min(self.spans.len())..] }
    }

    /// Bytes of all words.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.spans.iter().map(|span| span.length as usize).sum()
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

/// Requests that were copied out of their buffers, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Words")]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// Their form for other nodes: words lie behind each other, so their lengths say where.
#[derive(Deserialize)]
struct Words {
    lengths: Vec<u32>,
    #[serde(with = "wire")]
    bytes: Vec<u8>,
}

impl Serialize for OwnedArgs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename = "Words")]
        struct WordsOf<'a> {
            lengths: Vec<u32>,
            #[serde(with = "wire")]
            bytes: &'a [u8],
        }
        let lengths = self.spans.iter().map(|span| span.length).collect();
        WordsOf { lengths, bytes: &self.bytes }.serialize(serializer)
    }
}

impl TryFrom<Words> for OwnedArgs {
    type Error = String;

    fn try_from(Words { lengths, bytes }: Words) -> Result<Self, String> {
        let mut spans = Vec::with_capacity(lengths.len());
        let mut start = 0_u32;
        for length in lengths {
            spans.push(Span { start, length });
            start = start.checked_add(length).ok_or("words of more than 4 GiB")?;
        }
        if start as usize != bytes.len() {
            return Err(format!("expected words of {start} bytes, got {}", bytes.len()));
        }
        Ok(Self { bytes, spans })
    }
}

impl OwnedArgs {
    /// Copies one request.
    #[must_use]
    pub fn of(args: Args<'_>) -> Self {
        let mut owned = Self { bytes: Vec::with_capacity(args.byte_count()), spans: Vec::with_capacity(args.len()) };
        owned.push(args);
        owned
    }

    /// A request of these words.
    #[must_use]
    pub fn of_words(words: &[&[u8]]) -> Self {
        let mut owned = Self::default();
        for word in words {
            owned.push_word(word);
        }
        owned
    }

    /// Copies a request behind those that are there. Returns which words are its own.
    pub fn push(&mut self, args: Args<'_>) -> std::ops::Range<usize> {
        let first = self.spans.len();
        for word in args.from(0) {
            self.push_word(word);
        }
        first..self.spans.len()
    }

    fn push_word(&mut self, word: &[u8]) {
        self.spans.push(Span { start: self.bytes.len() as u32, length: word.len() as u32 });
        self.bytes.extend_from_slice(word);
    }

    /// All words as one request.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// How many words there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The words of one of several requests.
    #[must_use]
    pub fn words(&self, words: std::ops::Range<usize>) -> Args<'_> {
        Args::new(&self.bytes, &self.spans[words])
    }

    /// Bytes held.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that it takes, with what is reserved for more.
    #[must_use]
    pub const fn memory(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_requests_keep_their_words() {
        let mut batch = OwnedArgs::default();
        let first = batch.push(OwnedArgs::of_words(&[b"GET", b"a"]).args());
        let second = batch.push(OwnedArgs::of_words(&[b"SET", b"b", b""]).args());
        assert!(batch.words(first).from(0).eq([&b"GET"[..], b"a"]));
        let second = batch.words(second);
        assert_eq!((second.len(), &second[1], &second[2]), (3, &b"b"[..], &b""[..]));
        assert!(second.skip(1).from(0).eq([&b"b"[..], b""]));
    }
}
