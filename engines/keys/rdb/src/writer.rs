//! Writing what Redis reads, piece by piece.

use std::io::{self, Write};

use crate::{VERSION, crc64, opcode};

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

/// A file that is being written.
#[derive(Debug)]
pub struct FileWriter<W> {
    inner: W,
    checksum: u64,
    database: Option<u64>,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(inner: W) -> io::Result<Self> {
        let mut file = Self { inner, checksum: 0, database: None };
        file.put(format!("REDIS{VERSION:04}").as_bytes())?;
        Ok(file)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc64::after(self.checksum, bytes);
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
        let mut piece = Writer::default();
        piece.byte(opcode::FUNCTIONS);
        piece.string(text);
        self.put(&piece.0)
    }

    /// Writes a key whose value is in the payload of a `DUMP`. Keys of one database come one behind the other.
    ///
    /// # Errors
    /// If it cannot be written, or the payload is of no value.
    pub fn key(&mut self, database: u64, key: &[u8], expires_at: Option<u64>, payload: &[u8]) -> io::Result<()> {
        let value = payload.split_last_chunk::<SEAL_BYTES>().and_then(|(value, _)| value.split_first());
        let (kind, content) = value.ok_or_else(|| io::Error::other("expected the payload of a DUMP, found less"))?;
        let mut piece = Writer::default();
        if self.database != Some(database) {
            piece.byte(opcode::DATABASE);
            piece.length(database);
            self.database = Some(database);
        }
        if let Some(at) = expires_at {
            piece.byte(opcode::EXPIRES_AT_MILLIS);
            piece.bytes(&at.to_le_bytes());
        }
        piece.byte(*kind);
        piece.string(key);
        self.put(&piece.0)?;
        self.put(content)
    }

    /// Ends the file, and gives back where it was written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(mut self) -> io::Result<W> {
        self.put(&[opcode::END])?;
        self.inner.write_all(&self.checksum.to_le_bytes())?;
        Ok(self.inner)
    }
}
