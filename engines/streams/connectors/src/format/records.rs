//! Bytes that come in pieces, decoded record by record: the driver around a [`Decode`].

use std::time::Duration;

use arrow::array::RecordBatch;
use savanna_streams_api::Result;

use super::malformed::{BadRow, Malformed, excerpt};
use super::{Decode, Input};

/// The longest record. A quote that is never closed, or a file that is no text, ends here instead of filling the memory.
pub(crate) const RECORD_BYTES_MAX: usize = 16 << 20;

/// What filling a buffer gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Some bytes.
    More,
    /// None now.
    Nothing,
    /// None ever again.
    End,
}

/// Where bytes come from.
pub(crate) trait ByteSource: Send {
    /// Appends at least one byte and up to about `wanted`, waiting at most about `wait` for the first.
    fn fill(&mut self, buffer: &mut Vec<u8>, wanted: usize, wait: Duration) -> Result<Fill>;
}

/// What [`Records::next`] gave.
#[derive(Debug)]
pub(crate) enum Next {
    /// Rows, and how many records they stand for.
    Rows(RecordBatch, u64),
    /// Nothing now.
    Nothing,
    /// Nothing more.
    End,
}

/// A stream of records.
pub(crate) struct Records<S> {
    pub(crate) source: S,
    decoder: Box<dyn Decode>,
    buffer: Vec<u8>,
    /// Where the next record starts in the buffer.
    start: usize,
    /// Where it starts in the stream.
    offset: u64,
    /// The line it starts on, from 1.
    line: u64,
    /// Byte and line behind the last record that was given.
    behind: (u64, u64),
    ended: bool,
    /// Whether bytes are dropped up to the next line end, because a record was too long.
    dropping: bool,
}

impl<S: ByteSource> Records<S> {
    /// How many bytes are read at a time.
    const CHUNK: usize = 256 << 10;

    /// Records of `source`, which stands at `offset`, on `line`.
    pub(crate) fn new(source: S, decoder: Box<dyn Decode>, offset: u64, line: u64) -> Self {
        let behind = (offset, line);
        Self { source, decoder, buffer: Vec::new(), start: 0, offset, line, behind, ended: false, dropping: false }
    }

    /// The place of the next record: byte and line.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.offset, self.line)
    }

    /// Byte and line behind the last record that was given. What follows up to [`Self::position`] is a header or blank lines: where it was
    /// passed depends on how much was asked for.
    pub(crate) fn behind(&self) -> (u64, u64) {
        self.behind
    }

    /// The next rows.
    pub(crate) fn next(&mut self, max_rows: usize, wait: Duration, malformed: &mut Malformed) -> Result<Next> {
        loop {
            if self.dropping {
                self.drop_line();
            }
            if !self.dropping && (self.start < self.buffer.len() || self.ended) {
                self.skip_byte_order_mark();
                let bytes = &self.buffer[self.start..];
                let input = Input { bytes, line: self.line, last: self.ended };
                let decoded = self.decoder.decode(input, max_rows.max(1), malformed)?;
                let left = bytes.len() - decoded.consumed;
                if decoded.records > 0 {
                    let upto = &bytes[..decoded.upto];
                    let lines = memchr::memchr_iter(b'\n', upto).count() as u64;
                    self.behind = (self.offset + upto.len() as u64, self.line + lines);
                }
                self.advance(decoded.consumed);
                if decoded.records > 0 {
                    return Ok(Next::Rows(decoded.rows, decoded.records));
                }
                if self.ended {
                    return Ok(Next::End);
                }
                if decoded.consumed == 0 && left > RECORD_BYTES_MAX {
                    self.too_long(malformed)?;
                    continue;
                }
            } else if self.ended {
                return Ok(Next::End);
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            // A long record is decoded again from its start each time, so the pieces grow with it.
            let wanted = Self::CHUNK.max(self.buffer.len());
            match self.source.fill(&mut self.buffer, wanted, wait)? {
                Fill::More => {}
                Fill::Nothing => return Ok(Next::Nothing),
                Fill::End => self.ended = true,
            }
        }
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.buffer[self.start..self.start + bytes];
        self.line += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.offset += bytes as u64;
        self.start += bytes;
    }

    fn skip_byte_order_mark(&mut self) {
        if self.offset == 0 && self.buffer[self.start..].starts_with(b"\xef\xbb\xbf") {
            self.advance(3);
        }
    }

    fn too_long(&mut self, malformed: &mut Malformed) -> Result<()> {
        let raw = &self.buffer[self.start..];
        let message = format!(
            "expected a row of at most {} MiB, got a longer one that starts with {}; is a quote or line end missing?",
            RECORD_BYTES_MAX >> 20,
            excerpt(raw)
        );
        malformed.row(&BadRow { line: self.line, column: None, message, raw: &raw[..raw.len().min(4096)] })?;
        self.dropping = true;
        Ok(())
    }

    fn drop_line(&mut self) {
        let rest = &self.buffer[self.start..];
        let end = memchr::memchr(b'\n', rest);
        self.dropping = end.is_none();
        self.advance(end.map_or(rest.len(), |end| end + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};

    use super::super::{Format, TextFormat, csv::CsvSettings, malformed::OnError};
    use super::*;

    /// Gives bytes in pieces of a fixed size.
    struct Pieces<'a>(&'a [u8], usize);

    impl ByteSource for Pieces<'_> {
        fn fill(&mut self, buffer: &mut Vec<u8>, _: usize, _: Duration) -> Result<Fill> {
            let (now, later) = self.0.split_at(self.1.min(self.0.len()));
            buffer.extend_from_slice(now);
            self.0 = later;
            Ok(if now.is_empty() { Fill::End } else { Fill::More })
        }
    }

    fn read(format: Format, bytes: &[u8], piece: usize, max_rows: usize) -> (Vec<String>, u64) {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let schema = Arc::new(Schema::new(vec![field("a", DataType::Int64), field("b", DataType::Utf8View)]));
        let text = TextFormat { format, csv: CsvSettings::default(), physical: Arc::clone(&schema), wanted: schema };
        let mut records = Records::new(Pieces(bytes, piece), text.decoder(), 0, 1);
        let mut malformed = Malformed::new(OnError::Skip, "test").unwrap();
        let mut lines = Vec::new();
        while let Next::Rows(rows, _) = records.next(max_rows, Duration::ZERO, &mut malformed).unwrap() {
            let csv = CsvSettings { header: Some(false), ..CsvSettings::default() };
            let out = super::super::csv::write(Vec::new(), &rows.schema(), &[rows], csv).unwrap();
            lines.extend(String::from_utf8(out).unwrap().lines().map(ToOwned::to_owned));
        }
        (lines, malformed.skipped)
    }

    #[test]
    fn rows_do_not_depend_on_how_bytes_arrive() {
        let csv = b"\xef\xbb\xbfa,b\r\n1,x\r\n\r\n2,\"y,\"\"\nz\"\r\noops,4\n5,q\n6".as_slice();
        let json = b"{\"a\":1,\"b\":\"x\"}\n\n{\"a\":\"2\",\"b\":true}\n{\"a\":1.5}\nnonsense\n{\"a\":5}".as_slice();
        for (format, bytes, skipped) in [(Format::Csv, csv, 2), (Format::Ndjson, json, 2)] {
            let expected = read(format, bytes, usize::MAX, usize::MAX);
            assert_eq!(expected.1, skipped, "{expected:?}");
            for piece in 1..bytes.len() {
                for max_rows in [1, 2, 100] {
                    let got = read(format, bytes, piece, max_rows);
                    assert_eq!(got, expected, "{format:?} in pieces of {piece} bytes, {max_rows} rows at a time");
                }
            }
        }
    }

    #[test]
    fn what_lies_behind_the_last_record_is_where_it_ends_however_much_was_asked_for() {
        let text = |columns: &[&str]| -> Arc<Schema> {
            Arc::new(Schema::new(
                columns.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect::<Vec<_>>(),
            ))
        };
        // The second: lines of one column that are blank are records.
        for (format, schema, bytes, records, expected) in [
            (Format::Csv, text(&["a", "b"]), "a,b\r\n1,x\r\n\r\n2,y\r\n\r\n\r\n", 2, (17, 5)),
            (Format::Csv, text(&["a"]), "a\n1\n\n", 2, (5, 4)),
            (Format::Csv, text(&["a", "b"]), "a,b\n\n", 0, (0, 1)),
            (Format::Ndjson, text(&["a"]), "{\"a\":\"1\"}\n\n{\"a\":\"2\"}\n \n\n", 2, (21, 4)),
        ] {
            for most in [1, 2, 100] {
                let csv = CsvSettings::default();
                let text = TextFormat { format, csv, physical: Arc::clone(&schema), wanted: Arc::clone(&schema) };
                let mut read = Records::new(Pieces(bytes.as_bytes(), 100), text.decoder(), 0, 1);
                let mut malformed = Malformed::new(OnError::Fail, "test").unwrap();
                let mut given = 0;
                while given < records {
                    match read.next(most, Duration::ZERO, &mut malformed).unwrap() {
                        Next::Rows(_, more) => given += more,
                        other => panic!("{bytes:?}: {other:?}"),
                    }
                }
                assert_eq!((given, read.behind()), (records, expected), "{bytes:?}, {most} at a time");
                let over = read.next(most, Duration::ZERO, &mut malformed).unwrap();
                assert!(matches!(over, Next::End) && read.behind() == expected, "{bytes:?}");
            }
        }
    }

    #[test]
    fn a_record_without_end_does_not_fill_the_memory() {
        let mut bytes = b"a,b\n1,\"".to_vec();
        bytes.resize(RECORD_BYTES_MAX + (1 << 20), b'x');
        bytes.extend_from_slice(b"\n2,y\n");
        assert_eq!(read(Format::Csv, &bytes, 8 << 20, 10), (vec!["2,y".to_owned()], 1));
    }
}
