//! CSV: RFC 4180 with any delimiter and quote, LF or CRLF. As in PostgreSQL's, a field of nothing is NULL, and one of two quotes is
//! the empty text; so where there is one column, a line of nothing is a row of NULL.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::builder::{StringBuilder, StringViewBuilder};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use savanna_streams_api::{Result, StreamError, type_name};

use super::infer::Guess;
use super::malformed::{BadRow, Malformed, excerpt};
use super::{Decode, Decoded, Input, values};
use crate::options::{Options, character};

/// How CSV is written by the table's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CsvSettings {
    /// Whether there is a header; none to look.
    pub(crate) header: Option<bool>,
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
}

impl Default for CsvSettings {
    fn default() -> Self {
        Self { header: None, delimiter: b',', quote: b'"' }
    }
}

impl CsvSettings {
    /// Reads the `csv.*` options.
    pub(crate) fn of(options: &Options<'_>) -> Result<Self> {
        let header = options.text("csv.header").and_then(crate::options::truth);
        Ok(Self { header, ..Self::without_header(options)? })
    }

    /// Reads those of connectors that know no headers.
    pub(crate) fn without_header(options: &Options<'_>) -> Result<Self> {
        let (delimiter, quote) = (options.get("csv.delimiter", character)?, options.get("csv.quote", character)?);
        if delimiter == quote {
            return Err(options.error("csv.quote", "another character than 'csv.delimiter'"));
        }
        Ok(Self { header: Some(false), delimiter, quote })
    }
}

/// The records of some bytes, cut into fields.
pub(crate) struct Tokens {
    core: Reader,
    /// Fields behind each other, without quotes.
    text: Vec<u8>,
    /// Where fields end, within their record's text.
    ends: Vec<usize>,
    records: Vec<Record>,
    quote: u8,
    delimiter: u8,
    /// Whether a blank line is a record with an empty field.
    blank_is_record: bool,
    /// The last byte that was read was `\r`: a `\n` still belongs to it.
    after_return: bool,
    /// Where the last record ends in the input, its line end included.
    upto: usize,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// Where the record lies in the input.
    input: (usize, usize),
    line: u64,
    /// Where its text begins.
    text: usize,
    /// Where its field ends begin, and how many there are.
    ends: (usize, usize),
}

impl Tokens {
    pub(crate) fn new(settings: CsvSettings) -> Self {
        let core = ReaderBuilder::new().delimiter(settings.delimiter).quote(settings.quote).build();
        Self {
            core,
            text: Vec::new(),
            ends: Vec::new(),
            records: Vec::new(),
            quote: settings.quote,
            delimiter: settings.delimiter,
            blank_is_record: false,
            after_return: false,
            upto: 0,
        }
    }

    /// Cuts off at most `max_records` records. Returns how many bytes they take.
    pub(crate) fn read(&mut self, input: Input<'_>, max_records: usize) -> usize {
        self.records.clear();
        self.upto = 0;
        self.core.reset();
        // Quotes and delimiters only vanish, so the fields' text is never longer than the input.
        self.text.resize(self.text.len().max(input.bytes.len()), 0);
        let (mut at, mut line, mut text_len, mut ends_len) = (0, input.line, 0, 0);
        loop {
            let is_full = self.records.len() >= max_records;
            match input.bytes.get(at) {
                Some(b'\n') if self.after_return => {
                    if at == self.upto {
                        self.upto += 1;
                    }
                    (at, line, self.after_return) = (at + 1, line + 1, false);
                    continue;
                }
                None => return at,
                Some(_) if is_full => return at,
                Some(end @ (b'\n' | b'\r')) if !self.blank_is_record => {
                    line += u64::from(*end == b'\n');
                    (at, self.after_return) = (at + 1, *end == b'\r');
                    continue;
                }
                Some(end @ (b'\n' | b'\r')) => {
                    self.ends.resize(self.ends.len().max(ends_len + 1), 0);
                    self.ends[ends_len] = 0;
                    self.records.push(Record { input: (at, at), line, text: text_len, ends: (ends_len, 1) });
                    line += u64::from(*end == b'\n');
                    (at, ends_len, self.after_return) = (at + 1, ends_len + 1, *end == b'\r');
                    self.upto = at;
                    continue;
                }
                Some(_) => {}
            }
            let Some((next, text, ends)) = self.read_record(input, at, text_len, ends_len) else { return at };
            self.records.push(Record { input: (at, next), line, text: text_len, ends: (ends_len, ends - ends_len) });
            line += newlines(&input.bytes[at..next]);
            (at, text_len, ends_len) = (next, text, ends);
            self.upto = at;
            self.after_return = input.bytes[..at].ends_with(b"\r");
        }
    }

    /// Reads the record at `at`; none if it is not complete. Returns the new lengths of input, text and ends.
    fn read_record(
        &mut self,
        input: Input<'_>,
        mut at: usize,
        mut text: usize,
        mut ends: usize,
    ) -> Option<(usize, usize, usize)> {
        loop {
            if self.ends.len() < ends + 64 {
                self.ends.resize((ends + 64) * 2, 0);
            }
            let rest = &input.bytes[at..];
            if rest.is_empty() && !input.last {
                return None;
            }
            let (result, read, wrote, ended) =
                self.core.read_record(rest, &mut self.text[text..], &mut self.ends[ends..]);
            at += read;
            text += wrote;
            ends += ended;
            match result {
                ReadRecordResult::Record => return Some((at, text, ends)),
                ReadRecordResult::End => return None,
                ReadRecordResult::OutputFull => self.text.resize(self.text.len() + rest.len() + 64, 0),
                ReadRecordResult::InputEmpty | ReadRecordResult::OutputEndsFull => {}
            }
        }
    }

    fn field(&self, record: &Record, index: usize) -> &[u8] {
        let ends = &self.ends[record.ends.0..record.ends.0 + record.ends.1];
        let start = if index == 0 { 0 } else { ends[index - 1] };
        &self.text[record.text + start..record.text + ends[index]]
    }

    /// Whether a field stands in quotes. `raw` is its record as it was read.
    fn is_quoted(&self, raw: &[u8], index: usize) -> bool {
        let mut at = 0;
        for _ in 0..index {
            if raw.get(at) == Some(&self.quote) {
                at += 1;
                while let Some(length) = memchr::memchr(self.quote, &raw[at..]) {
                    at += length + 1;
                    if raw.get(at) != Some(&self.quote) {
                        break;
                    }
                    at += 1;
                }
            }
            let Some(length) = memchr::memchr(self.delimiter, &raw[at..]) else { return false };
            at += length + 1;
        }
        raw.get(at) == Some(&self.quote)
    }

    fn fields<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = &'a [u8]> {
        (0..record.ends.1).map(move |index| self.field(record, index))
    }

    /// The fields of every record as texts.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<Cow<'_, str>>> {
        self.records.iter().map(|record| self.fields(record).map(String::from_utf8_lossy).collect())
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Where the columns are found.
#[derive(Debug)]
struct Layout {
    /// The field of each wanted column.
    fields: Vec<usize>,
    /// How many fields a record has.
    width: usize,
}

/// Decodes one stream of CSV.
pub(crate) struct CsvDecoder {
    settings: CsvSettings,
    tokens: Tokens,
    wanted: SchemaRef,
    physical: SchemaRef,
    layout: Option<Layout>,
}

impl CsvDecoder {
    pub(crate) fn new(settings: CsvSettings, wanted: &SchemaRef, physical: &SchemaRef) -> Self {
        let (wanted, physical) = (Arc::clone(wanted), Arc::clone(physical));
        let mut tokens = Tokens::new(settings);
        // Of what comes before a header, nothing is a row.
        tokens.blank_is_record = physical.fields().len() == 1 && settings.header != Some(true);
        Self { settings, tokens, wanted, physical, layout: None }
    }

    /// Decides by the first record where the columns are. Returns whether it is a header, or none if there is no
    /// complete record yet.
    fn find_layout(&mut self, input: Input<'_>, place: &str) -> Result<Option<usize>> {
        let consumed = self.tokens.read(input, 1);
        let Some(first) = self.tokens.rows().next() else { return Ok(None) };
        let names: Vec<&str> = first.iter().map(|name| name.trim()).collect();
        let position = |field: &Arc<Field>| {
            let exact = names.iter().position(|name| name == field.name());
            exact.or_else(|| names.iter().position(|name| name.eq_ignore_ascii_case(field.name())))
        };
        let missing = self.physical.fields().iter().find(|field| position(field).is_none());
        let header = self.settings.header.unwrap_or_else(|| missing.is_none() || self.may_be_header(&names));
        let wrong = |what: &str, field: &Field| StreamError::Data {
            place: format!("{place} line {}", input.line),
            message: format!(
                "expected a header with {what} {}, got {}; declare the columns by these names, or set 'csv.header' = 'false' if \
                 the first line holds data",
                field.name(),
                names.join(", ")
            ),
        };
        if let Some(field) = missing.filter(|_| header) {
            return Err(wrong("column", field));
        }
        let fields = self.wanted.fields().iter().map(|field| match header {
            true if names.iter().filter(|name| *name == field.name()).count() > 1 => Err(wrong("one column", field)),
            true => position(field).ok_or_else(|| wrong("column", field)),
            false => self.physical.index_of(field.name()).map_err(|_| wrong("column", field)),
        });
        let fields = fields.collect::<Result<_>>()?;
        let width = if header { names.len() } else { self.physical.fields().len() };
        self.tokens.blank_is_record = width == 1;
        self.tokens.after_return &= header;
        self.layout = Some(Layout { fields, width });
        Ok(Some(if header { consumed } else { 0 }))
    }
}

impl CsvDecoder {
    /// Whether a first line that does not name all columns is a header nevertheless: of another table. It holds names, and
    /// one of them is a column's, or stands where a column has other values than texts.
    fn may_be_header(&self, names: &[&str]) -> bool {
        let columns = self.physical.fields();
        let is_column = |name: &&str| columns.iter().any(|column| column.name().eq_ignore_ascii_case(name));
        let stands_out = columns.iter().any(|column| column.data_type() != &DataType::Utf8View);
        names.len() == columns.len()
            && are_names(names)
            && names.iter().all(is_word)
            && (stands_out || names.iter().any(is_column))
    }
}

impl Decode for CsvDecoder {
    fn decode(&mut self, input: Input<'_>, max_rows: usize, malformed: &mut Malformed) -> Result<Decoded> {
        let mut header = 0;
        if self.layout.is_none() {
            match self.find_layout(input, &malformed.place)? {
                Some(consumed) => header = consumed,
                None => {
                    let consumed = if input.last { input.bytes.len() } else { 0 };
                    return Ok(Decoded {
                        rows: RecordBatch::new_empty(Arc::clone(&self.wanted)),
                        consumed,
                        upto: 0,
                        records: 0,
                    });
                }
            }
        }
        let (header_bytes, bytes) = input.bytes.split_at(header);
        let body = Input { bytes, line: input.line + newlines(header_bytes), last: input.last };
        let consumed = if max_rows == 0 { 0 } else { self.tokens.read(body, max_rows) };
        if max_rows == 0 {
            self.tokens.records.clear();
        }
        let rows = self.rows(body, malformed)?;
        let records = self.tokens.records.len() as u64;
        Ok(Decoded { rows, consumed: header + consumed, upto: header + self.tokens.upto, records })
    }
}

/// Why rows cannot be read: the column and the message of each that is malformed.
type Faults = Vec<Option<(Option<usize>, String)>>;

impl CsvDecoder {
    /// The records that were read, as rows.
    fn rows(&self, input: Input<'_>, malformed: &mut Malformed) -> Result<RecordBatch> {
        let Some(layout) = &self.layout else { return Ok(RecordBatch::new_empty(Arc::clone(&self.wanted))) };
        let records = &self.tokens.records;
        let mut faults: Faults = vec![None; records.len()];
        for (fault, record) in faults.iter_mut().zip(records) {
            if record.ends.1 != layout.width {
                let message = format!("expected {} fields, got {}", layout.width, record.ends.1);
                *fault = Some((None, message));
            }
        }
        let mut columns = Vec::with_capacity(layout.fields.len());
        for (column, (&index, field)) in layout.fields.iter().zip(self.wanted.fields()).enumerate() {
            columns.push(self.column(input, (column, index), field, &mut faults)?);
        }
        if faults.iter().all(Option::is_none) {
            return super::batch(&self.wanted, columns, records.len());
        }
        for (fault, record) in faults.iter().zip(records) {
            if let Some((column, message)) = fault {
                malformed.row(&BadRow {
                    line: record.line,
                    column: column.map(|c| self.wanted.field(c).name().as_str()),
                    message: message.clone(),
                    raw: &input.bytes[record.input.0..record.input.1],
                })?;
            }
        }
        // A malformed row may hold NULL where the column forbids it, until the row is filtered out.
        let nullable = self.wanted.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
        let nullable = Arc::new(arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>()));
        let good: BooleanArray = faults.iter().map(|fault| Some(fault.is_none())).collect();
        let good = filter_record_batch(&super::batch(&nullable, columns, records.len())?, &good)
            .map_err(|e| StreamError::Internal(e.to_string()))?;
        super::batch(&self.wanted, good.columns().to_vec(), good.num_rows())
    }

    /// One column of the records.
    fn column(
        &self,
        input: Input<'_>,
        (column, index): (usize, usize),
        field: &Field,
        faults: &mut Faults,
    ) -> Result<ArrayRef> {
        let takes_nothing = matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView);
        let records = &self.tokens.records;
        let texts = records.iter().zip(faults.iter_mut()).map(|(record, fault)| {
            if fault.is_some() {
                return None;
            }
            let bytes = self.tokens.field(record, index);
            let text = match std::str::from_utf8(bytes) {
                Ok("") if !self.tokens.is_quoted(&input.bytes[record.input.0..record.input.1], index) => None,
                Ok("") if !takes_nothing => {
                    let expected = type_name(field.data_type());
                    let message = format!("expected {expected}, got an empty text; NULL is written without quotes");
                    *fault = Some((Some(column), message));
                    return None;
                }
                Ok(text) => Some(text),
                Err(_) => {
                    *fault = Some((Some(column), format!("expected UTF-8, got {}", excerpt(bytes))));
                    return None;
                }
            };
            if text.is_none() && !field.is_nullable() {
                *fault =
                    Some((Some(column), format!("expected {} NOT NULL, got nothing", type_name(field.data_type()))));
            }
            text
        });
        if field.data_type() == &DataType::Utf8View {
            let mut builder = StringViewBuilder::with_capacity(records.len());
            texts.for_each(|text| builder.append_option(text));
            return Ok(Arc::new(builder.finish()));
        }
        let mut builder = StringBuilder::with_capacity(records.len(), records.len() * 12);
        texts.for_each(|text| builder.append_option(text.map(str::trim)));
        let texts: ArrayRef = Arc::new(builder.finish());
        let (parsed, wrong) = values::parse(&texts, field.data_type())?;
        for row in wrong {
            let got = excerpt(self.tokens.field(&records[row], index));
            faults[row] = Some((Some(column), format!("expected {}, got {got}", type_name(field.data_type()))));
        }
        Ok(parsed)
    }
}

/// The columns of a sample, by its header and values. `complete` tells whether the sample is the whole file.
pub(crate) fn infer(sample: &[u8], complete: bool, settings: CsvSettings) -> Vec<(String, Guess)> {
    const RECORDS_MAX: usize = 10_000;
    let mut tokens = Tokens::new(settings);
    tokens.read(Input { bytes: sample, line: 1, last: complete }, RECORDS_MAX);
    let mut rows = tokens.rows();
    let Some(first) = rows.next() else { return Vec::new() };
    let mut guesses = vec![Guess::Nothing; first.len()];
    for row in rows {
        for (guess, field) in guesses.iter_mut().zip(&row) {
            *guess = std::mem::take(guess).or(Guess::of_text(field.trim()));
        }
    }
    let header = settings.header.unwrap_or_else(|| looks_like_header(&first, &guesses));
    let name = |index: usize| match first[index].trim() {
        name if header && !name.is_empty() => name.to_owned(),
        _ => format!("column{}", index + 1),
    };
    let columns = guesses.into_iter().enumerate();
    columns
        .map(|(index, guess)| {
            let first = if header { Guess::Nothing } else { Guess::of_text(first[index].trim()) };
            (name(index), guess.or(first))
        })
        .collect()
}

/// Names are texts, all different, none empty; and where later values are no texts, the name stands out. If all are texts,
/// names look like names.
fn looks_like_header(first: &[Cow<'_, str>], rest: &[Guess]) -> bool {
    let names: Vec<&str> = first.iter().map(|name| name.trim()).collect();
    let stands_out = rest.iter().any(|guess| !matches!(guess, Guess::Text | Guess::Nothing));
    are_names(&names) && (stands_out || names.iter().all(is_word))
}

/// Whether all are texts, and none is there twice.
fn are_names(names: &[&str]) -> bool {
    let all_texts = names.iter().all(|name| matches!(Guess::of_text(name), Guess::Text));
    all_texts && names.iter().enumerate().all(|(i, name)| !names[..i].contains(name))
}

fn is_word(name: &&str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// Writes rows.
pub(crate) fn write<W: Write>(
    mut out: W,
    schema: &SchemaRef,
    rows: &[RecordBatch],
    settings: CsvSettings,
) -> Result<W, String> {
    if settings.header.unwrap_or(true) {
        let names = schema.fields().iter().map(|field| Some(field.name().as_str()));
        write_record(&mut out, names, settings).map_err(|e| e.to_string())?;
    }
    for batch in rows {
        write_batch(&mut out, batch, settings)?;
    }
    Ok(out)
}

fn write_batch(out: &mut impl Write, batch: &RecordBatch, settings: CsvSettings) -> Result<(), String> {
    let options = FormatOptions::default().with_display_error(false);
    let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
    let columns: Vec<ArrayFormatter<'_>> = columns.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let mut texts = vec![String::new(); columns.len()];
    for row in 0..batch.num_rows() {
        for (text, column) in texts.iter_mut().zip(&columns) {
            text.clear();
            column.value(row).write(text).map_err(|e| e.to_string())?;
        }
        let fields = texts.iter().zip(batch.columns());
        let fields = fields.map(|(text, column)| column.is_valid(row).then_some(text.as_str()));
        write_record(out, fields, settings).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Writes a line of fields; none is NULL.
fn write_record<'f>(
    out: &mut impl Write,
    fields: impl Iterator<Item = Option<&'f str>>,
    settings: CsvSettings,
) -> io::Result<()> {
    let quote = [settings.quote];
    for (at, field) in fields.enumerate() {
        if at > 0 {
            out.write_all(&[settings.delimiter])?;
        }
        let Some(field) = field.map(str::as_bytes) else { continue };
        let is_special = |b: &u8| matches!(b, b'\n' | b'\r') || *b == settings.delimiter || *b == settings.quote;
        if !field.is_empty() && !field.iter().any(is_special) {
            out.write_all(field)?;
            continue;
        }
        out.write_all(&quote)?;
        for (at, part) in field.split(|b| *b == settings.quote).enumerate() {
            if at > 0 {
                out.write_all(&[settings.quote, settings.quote])?;
            }
            out.write_all(part)?;
        }
        out.write_all(&quote)?;
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringViewArray};
    use arrow::datatypes::Schema;
    use proptest::prelude::*;

    use super::super::malformed::OnError;
    use super::*;

    fn texts(columns: usize) -> SchemaRef {
        let column = |at: usize| Field::new(format!("c{at}"), DataType::Utf8View, true);
        Arc::new(Schema::new((0..columns).map(column).collect::<Vec<_>>()))
    }

    /// Reads what comes in parts of these lengths.
    fn read(
        schema: &SchemaRef,
        settings: CsvSettings,
        text: &[u8],
        part: usize,
        max_rows: usize,
    ) -> Vec<Vec<Option<String>>> {
        let mut decoder = CsvDecoder::new(settings, schema, schema);
        let mut malformed = Malformed::new(OnError::Fail, "test").unwrap();
        let (mut at, mut end, mut rows) = (0, part.min(text.len()), Vec::new());
        loop {
            let last = end == text.len();
            let decoded =
                decoder.decode(Input { bytes: &text[at..end], line: 1, last }, max_rows, &mut malformed).unwrap();
            at += decoded.consumed;
            for row in 0..decoded.rows.num_rows() {
                let value = |column: &ArrayRef| {
                    let column = column.as_string_view();
                    column.is_valid(row).then(|| column.value(row).to_owned())
                };
                rows.push(decoded.rows.columns().iter().map(value).collect());
            }
            match (last, decoded.consumed) {
                (true, 0) => return rows,
                (true, _) if at == text.len() => return rows,
                (false, _) => end = (end + part).min(text.len()),
                _ => {}
            }
        }
    }

    #[test]
    fn two_quotes_are_the_empty_text_and_nothing_is_null() {
        let settings = CsvSettings { header: Some(false), ..CsvSettings::default() };
        let rows = read(&texts(3), settings, b"a,\"\",\n\"x,\"\"\",,\"\"\r\n\"\",\"\",\"\"", 100, 10);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(rows[0], [some("a"), some(""), None]);
        assert_eq!(rows[1], [some("x,\""), None, some("")]);
        assert_eq!(rows[2], [some(""), some(""), some("")]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            columns in 1_usize..4,
            cells in prop::collection::vec(prop::option::of("[a\",;\r\n é]{0,4}"), 1..40),
            header: bool, semicolon: bool, crlf: bool, part in 1_usize..20, max_rows in 1_usize..9,
        ) {
            let schema = texts(columns);
            let delimiter = if semicolon { b';' } else { b',' };
            let settings = CsvSettings { header: Some(header), delimiter, quote: b'"' };
            let expected: Vec<Vec<Option<String>>> = cells.chunks_exact(columns).map(<[_]>::to_vec).collect();
            let column = |at: usize| -> ArrayRef {
                Arc::new(expected.iter().map(|row| row[at].as_deref()).collect::<StringViewArray>())
            };
            let rows = RecordBatch::try_new(Arc::clone(&schema), (0..columns).map(column).collect()).unwrap();
            let mut text = write(Vec::new(), &schema, &[rows], settings).unwrap();
            // A line end within a text is part of it.
            if crlf && cells.iter().flatten().all(|cell| !cell.contains(['\r', '\n'])) {
                text = String::from_utf8(text).unwrap().replace('\n', "\r\n").into_bytes();
            }
            prop_assert_eq!(read(&schema, settings, &text, part, max_rows), expected);
        }
    }
}
