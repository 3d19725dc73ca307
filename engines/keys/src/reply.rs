//! Replies: the values of RESP3, given to whoever encodes them, or kept on a tape.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{memory, wire};

/// What a command answers with. A face encodes it for its client's protocol; a [`Tape`] keeps it.
///
/// An aggregate is begun with its length and followed by as many values.
pub trait Reply {
    /// A short text such as `OK`.
    fn simple(&mut self, text: &str);
    /// An error, with its code as the first word.
    fn error(&mut self, text: &str);
    /// A whole number.
    fn integer(&mut self, number: i64);
    /// True or false.
    fn boolean(&mut self, flag: bool);
    /// A byte string.
    fn bulk(&mut self, bytes: &[u8]);
    /// No value.
    fn null(&mut self);
    /// No aggregate (RESP2 tells it from no value).
    fn null_array(&mut self);
    /// A number with a fraction.
    fn double(&mut self, number: f64);
    /// A number with a fraction, with up to 17 digits behind the point.
    fn fraction(&mut self, number: f64) {
        self.double(number);
    }
    /// Text for people.
    fn verbatim(&mut self, text: &str);
    /// A list of `length` values.
    fn array(&mut self, length: usize);
    /// A map of `length` keys and values, by turns.
    fn map(&mut self, length: usize);
    /// A set of `length` values.
    fn set(&mut self, length: usize);
    /// Something that was not asked for, of `length` values.
    fn push(&mut self, length: usize);
    /// A list of `length` pairs, each announced by [`Reply::pair`]: lists in RESP3, flat in RESP2.
    fn pairs(&mut self, length: usize);
    /// The beginning of one of the pairs.
    fn pair(&mut self);

    /// A map of `length` names and values, each announced by [`Reply::name`]: a list of pairs in RESP2.
    fn named(&mut self, length: usize);
    /// The beginning of a name and its value.
    fn name(&mut self);

    /// About so many bytes follow: room is made for them at once.
    fn expect(&mut self, _bytes: usize) {}

    /// From here on the client speaks this version of RESP.
    fn use_protocol(&mut self, _version: u8) {}

    /// From here on the client's requests are answered so.
    fn answer(&mut self, _answering: Answering) {}

    /// The text `OK`.
    fn ok(&mut self) {
        self.simple("OK");
    }

    /// A byte string, or no value.
    fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// 1 or 0.
    fn flag(&mut self, flag: bool) {
        self.integer(i64::from(flag));
    }

    /// A count.
    fn count(&mut self, count: usize) {
        self.integer(count as i64);
    }
}

/// Whether a client wants replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// It does, also to the present request.
    On,
    /// It wants none any more.
    Off,
    /// It wants none to the next request.
    SkipNext,
    /// It wants none to the present request.
    Skip,
}

/// What stands in the place of a reply that is longer than a client may be sent.
pub const TOO_LONG: &str = "ERR the reply is too long; ask for it in parts";

/// Replies as plain bytes, to be sent to another thread or node, or read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tape {
    #[serde(with = "wire")]
    bytes: Vec<u8>,
    /// Where the present reply has to end, if it has to.
    #[serde(skip)]
    stop: Option<usize>,
    #[serde(skip)]
    is_too_long: bool,
}

/// What an empty tape keeps of its memory.
const KEPT_BYTES: usize = 1 << 20;
/// No reply on a tape is longer.
pub(crate) const REPLY_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mark {
    Simple,
    Error,
    Integer,
    Bulk,
    Null,
    NullArray,
    Double,
    Verbatim,
    Array,
    Map,
    Set,
    Push,
    Pairs,
    Pair,
    Boolean,
    Fraction,
    Named,
    Name,
}

const MARKS: [Mark; 18] = [
    Mark::Simple,
    Mark::Error,
    Mark::Integer,
    Mark::Bulk,
    Mark::Null,
    Mark::NullArray,
    Mark::Double,
    Mark::Verbatim,
    Mark::Array,
    Mark::Map,
    Mark::Set,
    Mark::Push,
    Mark::Pairs,
    Mark::Pair,
    Mark::Boolean,
    Mark::Fraction,
    Mark::Named,
    Mark::Name,
];

impl Tape {
    /// An empty tape.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), stop: None, is_too_long: false }
    }

    /// Where the next value will begin.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has one reply that is long, and not too long.
    #[must_use]
    pub(crate) const fn is_long_reply(&self) -> bool {
        /// What is shorter is copied sooner than memory is found for the next one.
        const LONG_BYTES: usize = 64 << 10;
        !self.is_too_long && self.bytes.len() >= LONG_BYTES && self.bytes.len() <= REPLY_BYTES_MAX
    }

    /// Whether nothing is on it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes everything off; its memory is used again unless it is much.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
    }

    /// Writes one reply; in place of one that is too long there is an error.
    pub fn write_reply(&mut self, write: impl FnOnce(&mut Self)) {
        self.write_at_most(REPLY_BYTES_MAX, TOO_LONG, write);
    }

    /// Writes one reply; in place of one that has more bytes there is the error `too_long`.
    pub(crate) fn write_at_most(&mut self, bytes: usize, too_long: &str, write: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.stop = Some(start + bytes);
        write(self);
        self.stop = None;
        if std::mem::take(&mut self.is_too_long) {
            self.bytes.truncate(start);
            self.bytes.shrink_to(KEPT_BYTES);
            self.error(too_long);
        }
    }

    /// Plays everything.
    pub fn play(&self, to: &mut dyn Reply) {
        self.play_part(0..self.bytes.len(), to);
    }

    /// Plays what lies between two positions.
    ///
    /// # Panics
    /// If they are no positions of this tape.
    pub fn play_part(&self, part: Range<usize>, to: &mut dyn Reply) {
        let mut rest = &self.bytes[part];
        while let Some(value) = next(&mut rest) {
            value.play(to);
        }
    }

    /// Whether what lies there is one reply, with all values of an aggregate. Of a tape that another node sent this is not certain.
    #[must_use]
    pub fn is_reply(&self, part: Range<usize>) -> bool {
        let Some(mut rest) = self.bytes.get(part) else { return false };
        let mut missing = 1_usize;
        while missing > 0 {
            let Some(value) = next(&mut rest) else { return false };
            missing = (missing - 1).saturating_add(value.part_count());
        }
        rest.is_empty()
    }

    /// The elements of a list, which is all that it has.
    #[must_use]
    pub fn elements(&self) -> Vec<Self> {
        let mut rest = &self.bytes[..];
        let Some(Value::Array(length)) = next(&mut rest) else { return Vec::new() };
        let element = |_| {
            let before = rest;
            let mut missing = 1_usize;
            while missing > 0 {
                missing = next(&mut rest).map_or(0, |value| (missing - 1).saturating_add(value.part_count()));
            }
            Self { bytes: before[..before.len() - rest.len()].to_vec(), ..Self::default() }
        };
        (0..length).map(element).collect()
    }

    /// The values, an aggregate's beginning as one of its own.
    pub fn values(&self) -> impl Iterator<Item = Value<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || next(&mut rest))
    }

    /// The first value.
    #[must_use]
    pub fn first(&self) -> Option<Value<'_>> {
        self.values().next()
    }

    fn mark(&mut self, mark: Mark) {
        self.put(&[&[mark as u8]]);
    }

    fn number(&mut self, mark: Mark, number: u64) {
        self.put(&[&[mark as u8], &number.to_le_bytes()]);
    }

    fn string(&mut self, mark: Mark, bytes: &[u8]) {
        self.put(&[&[mark as u8], &(bytes.len() as u64).to_le_bytes(), bytes]);
    }

    fn put(&mut self, parts: &[&[u8]]) {
        let count: usize = parts.iter().map(|part| part.len()).sum();
        self.is_too_long |= self.stop.is_some_and(|stop| self.bytes.len() + count > stop);
        if !self.is_too_long && !memory::reserve(&mut self.bytes, count) {
            self.is_too_long = true;
        }
        if !self.is_too_long {
            parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        }
    }
}

/// One value on a tape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// See [`Reply::simple`].
    Simple(&'a str),
    /// See [`Reply::error`].
    Error(&'a str),
    /// See [`Reply::integer`].
    Integer(i64),
    /// See [`Reply::boolean`].
    Boolean(bool),
    /// See [`Reply::bulk`].
    Bulk(&'a [u8]),
    /// See [`Reply::null`].
    Null,
    /// See [`Reply::null_array`].
    NullArray,
    /// See [`Reply::double`].
    Double(f64),
    /// See [`Reply::fraction`].
    Fraction(f64),
    /// See [`Reply::verbatim`].
    Verbatim(&'a str),
    /// See [`Reply::array`].
    Array(usize),
    /// See [`Reply::map`].
    Map(usize),
    /// See [`Reply::set`].
    Set(usize),
    /// See [`Reply::push`].
    Push(usize),
    /// See [`Reply::pairs`].
    Pairs(usize),
    /// See [`Reply::pair`].
    Pair,
    /// See [`Reply::named`].
    Named(usize),
    /// See [`Reply::name`].
    Name,
}

impl Value<'_> {
    /// How many values behind it belong to it.
    const fn part_count(self) -> usize {
        match self {
            Self::Array(length)
            | Self::Set(length)
            | Self::Push(length)
            | Self::Pairs(length)
            | Self::Named(length) => length,
            Self::Map(length) => length.saturating_mul(2),
            Self::Pair | Self::Name => 2,
            _ => 0,
        }
    }

    /// Gives the value to `to`.
    pub fn play(self, to: &mut dyn Reply) {
        match self {
            Self::Simple(text) => to.simple(text),
            Self::Error(text) => to.error(text),
            Self::Integer(number) => to.integer(number),
            Self::Boolean(flag) => to.boolean(flag),
            Self::Bulk(bytes) => to.bulk(bytes),
            Self::Null => to.null(),
            Self::NullArray => to.null_array(),
            Self::Double(number) => to.double(number),
            Self::Fraction(number) => to.fraction(number),
            Self::Verbatim(text) => to.verbatim(text),
            Self::Array(length) => to.array(length),
            Self::Map(length) => to.map(length),
            Self::Set(length) => to.set(length),
            Self::Push(length) => to.push(length),
            Self::Pairs(length) => to.pairs(length),
            Self::Pair => to.pair(),
            Self::Named(length) => to.named(length),
            Self::Name => to.name(),
        }
    }
}

/// Takes the next value off `rest`. What does not parse is the end: see [`Tape::is_reply`] for tapes of other nodes.
fn next<'a>(rest: &mut &'a [u8]) -> Option<Value<'a>> {
    let (&mark, mut after) = rest.split_first()?;
    let mut number = || {
        let (number, rest) = after.split_first_chunk()?;
        after = rest;
        Some(u64::from_le_bytes(*number))
    };
    let value = match *MARKS.get(usize::from(mark))? {
        Mark::Integer => Value::Integer(number()? as i64),
        Mark::Boolean => Value::Boolean(number()? != 0),
        Mark::Double => Value::Double(f64::from_bits(number()?)),
        Mark::Fraction => Value::Fraction(f64::from_bits(number()?)),
        Mark::Array => Value::Array(number()? as usize),
        Mark::Map => Value::Map(number()? as usize),
        Mark::Set => Value::Set(number()? as usize),
        Mark::Push => Value::Push(number()? as usize),
        Mark::Pairs => Value::Pairs(number()? as usize),
        Mark::Pair => Value::Pair,
        Mark::Named => Value::Named(number()? as usize),
        Mark::Name => Value::Name,
        Mark::Null => Value::Null,
        Mark::NullArray => Value::NullArray,
        string @ (Mark::Simple | Mark::Error | Mark::Bulk | Mark::Verbatim) => {
            let length = number()? as usize;
            let (bytes, rest) = after.split_at_checked(length)?;
            after = rest;
            match string {
                Mark::Bulk => Value::Bulk(bytes),
                Mark::Error => Value::Error(str::from_utf8(bytes).ok()?),
                Mark::Verbatim => Value::Verbatim(str::from_utf8(bytes).ok()?),
                _ => Value::Simple(str::from_utf8(bytes).ok()?),
            }
        }
    };
    *rest = after;
    Some(value)
}

impl Reply for Tape {
    fn expect(&mut self, bytes: usize) {
        // Where there is not as much, what is written finds that out.
        memory::reserve(&mut self.bytes, bytes.min(REPLY_BYTES_MAX));
    }

    fn simple(&mut self, text: &str) {
        self.string(Mark::Simple, text.as_bytes());
    }

    fn error(&mut self, text: &str) {
        self.string(Mark::Error, text.as_bytes());
    }

    fn integer(&mut self, number: i64) {
        self.number(Mark::Integer, number as u64);
    }

    fn boolean(&mut self, flag: bool) {
        self.number(Mark::Boolean, u64::from(flag));
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.string(Mark::Bulk, bytes);
    }

    fn null(&mut self) {
        self.mark(Mark::Null);
    }

    fn null_array(&mut self) {
        self.mark(Mark::NullArray);
    }

    fn double(&mut self, number: f64) {
        self.number(Mark::Double, number.to_bits());
    }

    fn fraction(&mut self, number: f64) {
        self.number(Mark::Fraction, number.to_bits());
    }

    fn verbatim(&mut self, text: &str) {
        self.string(Mark::Verbatim, text.as_bytes());
    }

    fn array(&mut self, length: usize) {
        self.number(Mark::Array, length as u64);
    }

    fn map(&mut self, length: usize) {
        self.number(Mark::Map, length as u64);
    }

    fn set(&mut self, length: usize) {
        self.number(Mark::Set, length as u64);
    }

    fn push(&mut self, length: usize) {
        self.number(Mark::Push, length as u64);
    }

    fn pairs(&mut self, length: usize) {
        self.number(Mark::Pairs, length as u64);
    }

    fn pair(&mut self) {
        self.mark(Mark::Pair);
    }

    fn named(&mut self, length: usize) {
        self.number(Mark::Named, length as u64);
    }

    fn name(&mut self) {
        self.mark(Mark::Name);
    }
}

impl fmt::Display for Tape {
    /// One value per line, for tests and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.values().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            match value {
                Value::Simple(text) => write!(f, "{separator}{text}")?,
                Value::Error(text) => write!(f, "{separator}!{text}")?,
                Value::Integer(number) => write!(f, "{separator}{number}")?,
                Value::Boolean(flag) => write!(f, "{separator}{flag}")?,
                Value::Bulk(bytes) => write!(f, "{separator}\"{}\"", bytes.escape_ascii())?,
                Value::Null | Value::NullArray => write!(f, "{separator}nil")?,
                Value::Double(number) | Value::Fraction(number) => write!(f, "{separator}{number:?}")?,
                Value::Verbatim(text) => write!(f, "{separator}{text}")?,
                Value::Array(length) => write!(f, "{separator}[{length}]")?,
                Value::Map(length) => write!(f, "{separator}%{length}")?,
                Value::Set(length) => write!(f, "{separator}~{length}")?,
                Value::Push(length) => write!(f, "{separator}>{length}")?,
                Value::Pairs(length) => write!(f, "{separator}[{length} pairs]")?,
                Value::Pair => write!(f, "{separator}&")?,
                Value::Named(length) => write!(f, "{separator}[{length} named]")?,
                Value::Name => write!(f, "{separator}=")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_a_tape_plays_again() {
        let mut tape = Tape::new();
        tape.map(1);
        tape.bulk(b"key\r\n");
        tape.array(3);
        tape.integer(-7);
        tape.double(2.5);
        tape.null();
        let first = tape.position();
        tape.error("ERR no");
        tape.pairs(1);
        tape.pair();
        tape.simple("a");
        tape.verbatim("b");
        let mut copy = Tape::new();
        tape.play_part(0..first, &mut copy);
        tape.play_part(first..tape.position(), &mut copy);
        assert_eq!(copy, tape);
        assert_eq!(tape.to_string(), "%1 \"key\\r\\n\" [3] -7 2.5 nil !ERR no [1 pairs] & a b");
    }
}
