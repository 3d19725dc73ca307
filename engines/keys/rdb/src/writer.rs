//! Writing what Redis reads, piece by piece.

use std::io::{self, Seek, SeekFrom, Write};

use crate::{VERSION, crc64, opcode, version_of};

/// Bytes that are being written.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Nothing yet, with memory for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// What was written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// One byte as it is.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A number of things, or a number.
    pub fn length(&mut self, length: u64) {
        match length {
            0..0x40 => self.byte(length as u8),
            0x40..0x4000 => self.bytes(&(length as u16 | 0x4000).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.byte(0x80);
                self.bytes(&(length as u32).to_be_bytes());
            }
            _ => {
                self.byte(0x81);
                self.bytes(&length.to_be_bytes());
            }
        }
    }

    /// A string with its length.
    pub fn string(&mut self, bytes: &[u8]) {
        self.length(bytes.len() as u64);
        self.bytes(bytes);
    }
}

/// How many bytes stand behind the value in a payload: the version, and the checksum.
const SEAL_BYTES: usize = 10;

/// Keys as a file has them, to be put into one with [`FileWriter::pieces`].
#[derive(Debug, Default)]
pub struct Pieces {
    writer: Writer,
    database: Option<u64>,
    /// The version that they need.
    version: u16,
}

impl Pieces {
    /// Adds a key whose value is of a kind, with the content that `write` writes. Keys of one database come best one behind the other.
    pub fn key(
        &mut self,
        database: u64,
        key: &[u8],
        expires_at: Option<u64>,
        kind: u8,
        write: impl FnOnce(&mut Writer),
    ) {
        if self.database.replace(database) != Some(database) {
            self.writer.byte(opcode::DATABASE);
            self.writer.length(database);
        }
        if let Some(at) = expires_at {
            self.writer.byte(opcode::EXPIRES_AT_MILLIS);
            self.writer.bytes(&at.to_le_bytes());
        }
        self.version = self.version.max(version_of(kind));
        self.writer.byte(kind);
        self.writer.string(key);
        write(&mut self.writer);
    }

    /// Adds a library of functions, as its source text.
    pub fn library(&mut self, text: &[u8]) {
        self.writer.byte(opcode::FUNCTIONS);
        self.writer.string(text);
    }

    /// How many bytes they have.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.writer.0.len()
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct FileWriter<W> {
    inner: W,
    checksum: u64,
    bytes: u64,
    database: Option<u64>,
    /// The version that what was written needs.
    version: u16,
}

/// How a file of a version begins.
fn header(version: u16) -> String {
    format!("REDIS{version:04}")
}

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(inner: W) -> io::Result<Self> {
        let mut file = Self { inner, checksum: 0, bytes: 0, database: None, version: VERSION };
        file.put(header(VERSION).as_bytes())?;
        Ok(file)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc64::after(self.checksum, bytes);
        self.bytes += bytes.len() as u64;
        self.inner.write_all(bytes)
    }

    /// Writes something about the file, such as who wrote it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn field(&mut self, name: &str, value: &str) -> io::Result<()> {
        let mut piece = Writer::default();
        piece.byte(opcode::FIELD);
        piece.string(name.as_bytes());
        piece.string(value.as_bytes());
        self.put(&piece.0)
    }

    /// Writes a library of functions, as its source text.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn library(&mut self, text: &[u8]) -> io::Result<()> {
        let mut pieces = Pieces::default();
        pieces.library(text);
        self.put(&pieces.writer.0)
    }

    /// Writes keys that were put together before.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn pieces(&mut self, pieces: &Pieces) -> io::Result<()> {
        // They say of which database they are.
        self.database = pieces.database.or(self.database);
        self.version = self.version.max(pieces.version);
        self.put(&pieces.writer.0)
    }

    /// Writes a key whose value is in the payload of a `DUMP`. Keys of one database come one behind the other.
    ///
    /// # Errors
    /// If it cannot be written, or the payload is of no value.
    pub fn key(&mut self, database: u64, key: &[u8], expires_at: Option<u64>, payload: &[u8]) -> io::Result<()> {
        let value = payload.split_last_chunk::<SEAL_BYTES>().and_then(|(value, _)| value.split_first());
        let (kind, content) = value.ok_or_else(|| io::Error::other("expected the payload of a DUMP, found less"))?;
        let mut pieces = Pieces { database: self.database, ..Pieces::default() };
        pieces.key(database, key, expires_at, *kind, |_| ());
        self.pieces(&pieces)?;
        self.put(content)
    }
}

impl<W: Write + Seek> FileWriter<W> {
    /// Ends the file, and gives back where it was written. It is of the version of Redis 7.0, unless something in it needs a later one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(mut self) -> io::Result<W> {
        self.put(&[opcode::END])?;
        if self.version != VERSION {
            let (before, after) = (header(VERSION), header(self.version));
            let difference: Vec<u8> = before.bytes().zip(after.bytes()).map(|(a, b)| a ^ b).collect();
            // The checksum of what differs is the difference of the checksums.
            self.checksum ^= crc64::before_zeros(crc64::of(&difference), self.bytes - difference.len() as u64);
            self.inner.seek(SeekFrom::Start(0))?;
            self.inner.write_all(after.as_bytes())?;
            self.inner.seek(SeekFrom::End(0))?;
        }
        self.inner.write_all(&self.checksum.to_le_bytes())?;
        Ok(self.inner)
    }
}
