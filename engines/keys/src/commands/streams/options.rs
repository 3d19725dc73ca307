//! Numbers of entries, and how streams are added to and trimmed, as requests say it.

use crate::error::CommandError;
use crate::keyspace::{Kept, StreamId, Trim};
use crate::number::parse_integer;
use crate::request::Args;

/// How many entries rough trimming removes at most, if it is not said, where a block takes so many (0 for no limit).
fn rough_limit(block_entries: usize) -> usize {
    const BLOCKS: usize = 100;
    const UNLIMITED: usize = 10_000;
    const MOST: usize = 1_000_000;
    if block_entries == 0 { UNLIMITED } else { block_entries.saturating_mul(BLOCKS).min(MOST) }
}

const NOT_AN_ID: CommandError = CommandError::text("ERR Invalid stream ID specified as stream command argument");

fn parse_part(digits: &[u8]) -> Result<u64, CommandError> {
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(NOT_AN_ID)
}

fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b'-') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// A number of an entry; `count` is its second part if it has none.
pub(super) fn parse_id(text: &[u8], count: u64) -> Result<StreamId, CommandError> {
    let (millis, given) = split(text);
    Ok(StreamId { millis: parse_part(millis)?, count: given.map_or(Ok(count), parse_part)? })
}

/// As [`parse_id`]; `-` is the lowest number, `+` the highest.
pub(super) fn parse_any_id(text: &[u8], count: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => parse_id(text, count),
    }
}

/// The number behind one, where a range begins that does not include it.
pub(super) fn next_of(id: StreamId) -> Result<StreamId, CommandError> {
    id.next().ok_or(CommandError::text("ERR invalid start ID for the interval"))
}

/// The number before one, where a range ends that does not include it.
pub(super) fn previous_of(id: StreamId) -> Result<StreamId, CommandError> {
    id.previous().ok_or(CommandError::text("ERR invalid end ID for the interval"))
}

/// A bound of a range; behind `(` is a number that is not included, but `beside` it is.
pub(super) fn parse_bound(
    text: &[u8],
    count: u64,
    beside: fn(StreamId) -> Result<StreamId, CommandError>,
) -> Result<StreamId, CommandError> {
    match text {
        [b'(', excluded @ ..] if !excluded.is_empty() => beside(parse_id(excluded, count)?),
        text => parse_any_id(text, count),
    }
}

/// The number of an entry that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewId {
    /// That of the time, or the one behind the last.
    Now,
    /// The next one of a millisecond.
    At(u64),
    /// This one.
    Given(StreamId),
}

impl NewId {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        match split(text) {
            (millis, Some(b"*")) => Ok(Self::At(parse_part(millis)?)),
            _ => Ok(Self::Given(parse_id(text, 0)?)),
        }
    }
}

/// What `XADD` was asked for.
#[derive(Debug)]
pub(super) struct Addition {
    pub(super) id: NewId,
    /// Whether a stream that is not there is made.
    pub(super) creates: bool,
    pub(super) trim: Option<Trim>,
    /// Where the fields begin.
    pub(super) first: usize,
}

/// How a stream is trimmed, as far as it was read.
#[derive(Default)]
struct Trimming {
    kept: Option<Kept>,
    is_rough: bool,
    limit: Option<usize>,
}

const NOT_ROUGH: &str = "ERR syntax error, LIMIT cannot be used without the special ~ option";

impl Trimming {
    /// Reads an option whose name is `name`, if it is one of trimming; `left` is how many words are behind the name.
    fn read<'a>(
        &mut self,
        name: &[u8],
        words: &mut (impl ExactSizeIterator<Item = &'a [u8]> + Clone),
    ) -> Result<bool, CommandError> {
        let left = words.len();
        match name {
            b"maxlen" | b"minid" if left > 0 => {
                if self.kept.is_some() {
                    return Err(CommandError::text(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let mut word = words.next().unwrap_or_default();
                self.is_rough = left >= 2 && word == b"~";
                if left >= 2 && (word == b"~" || word == b"=") {
                    word = words.next().unwrap_or_default();
                }
                self.kept = Some(if name == b"minid" {
                    Kept::From(parse_id(word, 0)?)
                } else {
                    let length = usize::try_from(parse_integer(word)?);
                    Kept::Length(length.map_err(|_| CommandError::text("ERR The MAXLEN argument must be >= 0."))?)
                });
            }
            b"limit" if left > 0 => {
                let limit = usize::try_from(parse_integer(words.next().unwrap_or_default())?);
                self.limit = Some(limit.map_err(|_| CommandError::text("ERR The LIMIT argument must be >= 0."))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(self, block_entries: usize) -> Result<Option<Trim>, CommandError> {
        let Some(kept) = self.kept else {
            return match self.limit {
                None => Ok(None),
                Some(0) => Err(CommandError::text(NOT_ROUGH)),
                Some(_) => Err(CommandError::text(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                )),
            };
        };
        if self.limit.is_some() && !self.is_rough {
            return Err(CommandError::text(NOT_ROUGH));
        }
        let limit = self.limit.unwrap_or_else(|| if self.is_rough { rough_limit(block_entries) } else { 0 });
        Ok(Some(Trim { kept, is_rough: self.is_rough, limit: (limit > 0).then_some(limit) }))
    }
}

impl Addition {
    pub(super) fn parse(args: Args<'_>, block_entries: usize) -> Result<Self, CommandError> {
        let (mut trimming, mut creates, mut id) = (Trimming::default(), true, None);
        let mut words = args.from(2);
        while let Some(word) = words.next() {
            if word == b"*" {
                id = Some(NewId::Now);
                break;
            }
            let name = word.to_ascii_lowercase();
            if trimming.read(&name, &mut words)? {
                continue;
            }
            if name == b"nomkstream" {
                creates = false;
                continue;
            }
            id = Some(NewId::parse(word)?);
            break;
        }
        let first = args.len() - words.len();
        // The checks come in Redis' order: how it is trimmed, and then whether there is an entry.
        let trim = trimming.finish(block_entries)?;
        let id = id.ok_or_else(|| CommandError::Arity("xadd".to_owned()))?;
        Ok(Self { id, creates, trim, first })
    }
}

/// How `XTRIM` trims.
pub(super) fn parse_trim(args: Args<'_>, block_entries: usize) -> Result<Trim, CommandError> {
    let mut trimming = Trimming::default();
    let mut words = args.from(2);
    while let Some(word) = words.next() {
        if !trimming.read(&word.to_ascii_lowercase(), &mut words)? {
            return Err(CommandError::Syntax);
        }
    }
    let refusal = CommandError::text("ERR syntax error, XTRIM must be called with a trimming strategy");
    trimming.finish(block_entries)?.ok_or(refusal)
}
