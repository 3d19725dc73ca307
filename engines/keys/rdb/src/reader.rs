//! Reading a file from its beginning to its end, once.

use std::io::{self, Read};

use crate::{VERSION_MAX, crc64, lzf, opcode, seal, skip};

/// Why a file is not read further.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read, or ends too early.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("expected a file of Redis, which begins with \"REDIS\" and four digits; found \"{found}\"")]
    NoRdb {
        /// What it begins with.
        found: String,
    },
    /// It is of a later Redis.
    #[error("expected a file of version {VERSION_MAX} at most (Redis 7.4); this is of version {found}")]
    Version {
        /// The version that it says.
        found: u16,
    },
    /// It has something that is in no file of Redis.
    #[error("byte {at} of the file is not what Redis writes: expected {expected}")]
    Form {
        /// Where.
        at: u64,
        /// What could have been there.
        expected: &'static str,
    },
    /// It was changed after it was written.
    #[error("the checksum at the end of the file is not that of its content: the file was changed or is damaged")]
    Checksum,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of its database.
    pub database: u64,
    /// Its name.
    pub key: Vec<u8>,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: Option<u64>,
    /// What `DUMP` would give for its value.
    pub payload: Vec<u8>,
}

/// What a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Something that was written about the file, such as `redis-ver`.
    Field {
        /// Its name.
        name: Vec<u8>,
        /// What it is.
        value: Vec<u8>,
    },
    /// A library of functions, as its source text.
    Functions(Vec<u8>),
    /// A key.
    Key(Entry),
}

/// A file that is being read.
#[derive(Debug)]
pub struct FileReader<R> {
    bytes: Source<R>,
    version: u16,
    database: u64,
    is_at_end: bool,
}

impl<R: Read> FileReader<R> {
    /// Reads how the file begins.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn new(inner: R) -> Result<Self, FileError> {
        let mut bytes = Source { inner, kept: None, checksum: 0, at: 0 };
        let start: [u8; 9] = bytes.chunk()?;
        let version = start
            .strip_prefix(b"REDIS")
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| FileError::NoRdb { found: start.escape_ascii().to_string() })?;
        if version > VERSION_MAX {
            return Err(FileError::Version { found: version });
        }
        Ok(Self { bytes, version, database: 0, is_at_end: false })
    }

    /// How many bytes were read.
    pub const fn position(&self) -> u64 {
        self.bytes.at
    }

    /// Whoever has what follows the file.
    pub fn into_inner(self) -> R {
        self.bytes.inner
    }

    /// What comes next; at the end, whose checksum was right, nothing.
    ///
    /// # Errors
    /// [`FileError`]; the rest of the file cannot be read after one.
    pub fn next_item(&mut self) -> Result<Option<Item>, FileError> {
        let mut expires_at = None;
        while !self.is_at_end {
            match self.bytes.byte()? {
                opcode::END => self.end()?,
                opcode::DATABASE => self.database = self.bytes.length()?,
                opcode::SIZES => skip::lengths(&mut self.bytes, 2)?,
                opcode::SLOT => skip::lengths(&mut self.bytes, 3)?,
                opcode::IDLE => skip::lengths(&mut self.bytes, 1)?,
                opcode::FREQUENCY => skip::bytes(&mut self.bytes, 1)?,
                opcode::EXPIRES_AT_SECONDS => {
                    expires_at = Some(past_or(i64::from(i32::from_le_bytes(self.bytes.chunk()?)) * 1_000));
                }
                opcode::EXPIRES_AT_MILLIS => expires_at = Some(past_or(i64::from_le_bytes(self.bytes.chunk()?))),
                opcode::MODULE => skip::module(&mut self.bytes)?,
                opcode::FIELD => {
                    let (name, value) = (self.bytes.text()?, self.bytes.text()?);
                    return Ok(Some(Item::Field { name, value }));
                }
                opcode::FUNCTIONS => return Ok(Some(Item::Functions(self.bytes.text()?))),
                kind => return self.key(kind, expires_at).map(Some),
            }
        }
        Ok(None)
    }

    fn key(&mut self, kind: u8, expires_at: Option<u64>) -> Result<Item, FileError> {
        let key = self.bytes.text()?;
        self.bytes.kept = Some(vec![kind]);
        let skipped = skip::value(&mut self.bytes, kind);
        let value = self.bytes.kept.take().unwrap_or_default();
        skipped?;
        // Whoever reads the payload goes by its type, and refuses versions that are higher than the types it knows.
        Ok(Item::Key(Entry { database: self.database, key, expires_at, payload: seal(value, self.version) }))
    }

    fn end(&mut self) -> Result<(), FileError> {
        const FIRST_WITH_CHECKSUM: u16 = 5;
        self.is_at_end = true;
        if self.version < FIRST_WITH_CHECKSUM {
            return Ok(());
        }
        let expected = self.bytes.checksum;
        let found = u64::from_le_bytes(self.bytes.chunk()?);
        // 0 is what a Redis without `rdbchecksum` writes.
        if found == expected || found == 0 { Ok(()) } else { Err(FileError::Checksum) }
    }
}

/// How a string is written.
enum Length {
    Plain(u64),
    Encoded(u8),
}

const INT_8: u8 = 0;
const INT_16: u8 = 1;
const INT_32: u8 = 2;
const COMPRESSED: u8 = 3;

/// Bytes that are read once: summed, counted, and kept if they are of a value.
#[derive(Debug)]
pub(crate) struct Source<R> {
    inner: R,
    kept: Option<Vec<u8>>,
    checksum: u64,
    at: u64,
}

impl<R: Read> Source<R> {
    pub(crate) const fn wrong(&self, expected: &'static str) -> FileError {
        FileError::Form { at: self.at, expected }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.checksum = crc64::after(self.checksum, bytes);
        self.at += bytes.len() as u64;
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
    }

    pub(crate) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        let mut chunk = [0; N];
        self.inner.read_exact(&mut chunk)?;
        self.note(&chunk);
        Ok(chunk)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, FileError> {
        self.chunk().map(|[byte]| byte)
    }

    /// So many bytes. Memory is taken as they come, whatever the file says how many there are.
    pub(crate) fn take(&mut self, count: u64) -> Result<Vec<u8>, FileError> {
        let mut bytes = Vec::new();
        let found = (&mut self.inner).take(count).read_to_end(&mut bytes)?;
        if (found as u64) < count {
            return Err(FileError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        self.note(&bytes);
        Ok(bytes)
    }

    fn any_length(&mut self) -> Result<Length, FileError> {
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(u64::from(first)),
            (1, _) => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (3, _) => Length::Encoded(first & 0x3f),
            (_, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.chunk()?))),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.chunk()?)),
            _ => return Err(self.wrong("a length")),
        })
    }

    /// A number of things, or a number.
    pub(crate) fn length(&mut self) -> Result<u64, FileError> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Encoded(_) => Err(self.wrong("a length")),
        }
    }

    /// Passes by a string, whichever way it is written.
    pub(crate) fn skip_string(&mut self) -> Result<(), FileError> {
        let count = match self.any_length()? {
            Length::Plain(length) => length,
            Length::Encoded(INT_8) => 1,
            Length::Encoded(INT_16) => 2,
            Length::Encoded(INT_32) => 4,
            Length::Encoded(COMPRESSED) => {
                let compressed = self.length()?;
                self.length()?;
                compressed
            }
            Length::Encoded(_) => return Err(self.wrong("a string")),
        };
        self.take(count).map(drop)
    }

    /// A string that is a name or a text: of keys, fields and functions.
    fn text(&mut self) -> Result<Vec<u8>, FileError> {
        let number = |number: i64| Ok(number.to_string().into_bytes());
        match self.any_length()? {
            Length::Plain(length) => self.take(length),
            Length::Encoded(INT_8) => number(i64::from(i8::from_le_bytes(self.chunk()?))),
            Length::Encoded(INT_16) => number(i64::from(i16::from_le_bytes(self.chunk()?))),
            Length::Encoded(INT_32) => number(i64::from(i32::from_le_bytes(self.chunk()?))),
            Length::Encoded(COMPRESSED) => {
                let (compressed, length) = (self.length()?, self.length()?);
                let compressed = self.take(compressed)?;
                let length = usize::try_from(length).map_err(|_| self.wrong("the length of a text"))?;
                lzf::expand(&compressed, length).ok_or_else(|| self.wrong("a compressed text"))
            }
            Length::Encoded(_) => Err(self.wrong("a string")),
        }
    }
}

/// A time, or if it is before 1970 the first millisecond of it: 0 would be none for who restores the key.
fn past_or(millis: i64) -> u64 {
    u64::try_from(millis).unwrap_or(0).max(1)
}
