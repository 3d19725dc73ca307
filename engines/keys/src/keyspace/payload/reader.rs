//! Reading what Redis wrote, piece by piece.

use std::borrow::Cow;

use savanna_keys_rdb::lzf;

use super::{NoValue, Read};
use crate::keyspace::STRING_BYTES_MAX;
use crate::memory;

/// Bytes that are being read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// How much memory what was read takes, about, and for how much was asked.
    taken: usize,
    asked: usize,
}

/// A length, or the way in which a string is written.
enum Length {
    Plain(u64),
    Encoded(u8),
}

/// What a string takes beside its bytes, about.
const WORD_BYTES: usize = 32;

const INT_8: u8 = 0;
const INT_16: u8 = 1;
const INT_32: u8 = 2;
const COMPRESSED: u8 = 3;

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, taken: 0, asked: 0 }
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (part, rest) = self.bytes.split_at_checked(count).ok_or(NoValue::Format)?;
        self.bytes = rest;
        Ok(part)
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (chunk, rest) = self.bytes.split_first_chunk().ok_or(NoValue::Format)?;
        self.bytes = rest;
        Ok(*chunk)
    }

    pub(super) fn byte(&mut self) -> Read<u8> {
        self.chunk().map(|[byte]| byte)
    }

    fn any_length(&mut self) -> Read<Length> {
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(u64::from(first)),
            (1, _) => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (3, _) => Length::Encoded(first & 0x3f),
            (_, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.chunk()?))),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.chunk()?)),
            _ => return Err(NoValue::Format),
        })
    }

    /// A number of things, or a number.
    pub(super) fn length(&mut self) -> Read<u64> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Encoded(_) => Err(NoValue::Format),
        }
    }

    /// Asks for memory for a string of so many bytes before it is there: a payload may say much with few bytes.
    fn ask(&mut self, length: usize) -> Read<()> {
        self.taken = self.taken.saturating_add(length + WORD_BYTES);
        if self.taken > self.asked {
            // By half as much again, so that a long list does not ask for each of its elements.
            self.asked = self.taken.saturating_add(self.taken / 2);
            memory::ask_for_value(self.asked).map_err(|_| NoValue::Memory)?;
        }
        Ok(())
    }

    /// Many strings in one.
    pub(super) fn packed(&mut self) -> Read<Cow<'a, [u8]>> {
        let packed = self.string()?;
        // An element may take two bytes there.
        self.ask((packed.len() / 2).saturating_mul(WORD_BYTES))?;
        Ok(packed)
    }

    pub(super) fn string(&mut self) -> Read<Cow<'a, [u8]>> {
        let number = |number: i64| Ok(Cow::Owned(number.to_string().into_bytes()));
        match self.any_length()? {
            Length::Plain(length) => {
                let length = usize::try_from(length).map_err(|_| NoValue::Format)?;
                let bytes = self.take(length)?;
                self.ask(length)?;
                Ok(Cow::Borrowed(bytes))
            }
            Length::Encoded(INT_8) => number(i64::from(i8::from_le_bytes(self.chunk()?))),
            Length::Encoded(INT_16) => number(i64::from(i16::from_le_bytes(self.chunk()?))),
            Length::Encoded(INT_32) => number(i64::from(i32::from_le_bytes(self.chunk()?))),
            Length::Encoded(COMPRESSED) => {
                let (compressed, length) = (self.length()?, self.length()?);
                let compressed = usize::try_from(compressed).map_err(|_| NoValue::Format)?;
                let length = usize::try_from(length).ok().filter(|length| *length <= STRING_BYTES_MAX);
                let (compressed, length) = (self.take(compressed)?, length.ok_or(NoValue::Format)?);
                if !lzf::may_have(compressed, length) {
                    return Err(NoValue::Format);
                }
                self.ask(length)?;
                lzf::expand(compressed, length).map(Cow::Owned).ok_or(NoValue::Format)
            }
            Length::Encoded(_) => Err(NoValue::Format),
        }
    }

    /// A number of things that have `each` strings.
    pub(super) fn strings(&mut self, each: u64) -> Read<Vec<Vec<u8>>> {
        let count = self.length()?.checked_mul(each).ok_or(NoValue::Format)?;
        // One by one: a count that is wrong takes no memory.
        let mut strings = Vec::new();
        for _ in 0..count {
            strings.push(self.string()?.into_owned());
        }
        Ok(strings)
    }

    pub(super) fn double(&mut self) -> Read<f64> {
        self.chunk().map(f64::from_le_bytes)
    }

    /// A number as Redis 3 and earlier wrote it.
    pub(super) fn double_in_text(&mut self) -> Read<f64> {
        match self.byte()? {
            253 => Err(NoValue::Format),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            length => parse_double(self.take(usize::from(length))?),
        }
    }
}

pub(super) fn parse_double(text: &[u8]) -> Read<f64> {
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(NoValue::Format)
}
