//! CSV: RFC 4180 with any delimiter and quote, LF or CRLF. An empty field is NULL.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use arrow::array::builder::{StringBuilder, StringViewBuilder};
use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Field, SchemaRef};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use savanna_streams_model::{Result, StreamError, type_name};

use super::infer::Guess;
use super::malformed::{BadRow, Malformed, excerpt};
use super::{Decode, Decoded, Input, values};
use crate::options::{Options, character};

/// How CSV is written by the table's options.
#[derive(Clone, Copy, Debug)]
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
        let (delimiter, quote) = (options.get("csv.delimiter", character)?, options.get("csv.quote", character)?);
        if delimiter == quote {
            return Err(options.error("csv.quote", "another character than 'csv.delimiter'"));
        }
        Ok(Self { header: options.text("csv.header").and_then(crate::options::truth), delimiter, quote })
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
        Self { core, text: Vec::new(), ends: Vec::new(), records: Vec::new() }
    }

    /// Cuts off at most `max_records` records. Returns how many bytes they take.
    pub(crate) fn read(&mut self, input: Input<'_>, max_records: usize) -> usize {
        self.records.clear();
        self.core.reset();
        // Quotes and delimiters only vanish, so the fields' text is never longer than the input.
        self.text.resize(self.text.len().max(input.bytes.len()), 0);
        let (mut at, mut line, mut text_len, mut ends_len) = (0, input.line, 0, 0);
        loop {
            let blank = input.bytes[at..].iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
            line += newlines(&input.bytes[at..at + blank]);
            at += blank;
            if self.records.len() >= max_records || at == input.bytes.len() {
                return at;
            }
            let Some((next, text, ends)) = self.read_record(input, at, text_len, ends_len) else { return at };
            self.records.push(Record { input: (at, next), line, text: text_len, ends: (ends_len, ends - ends_len) });
            line += newlines(&input.bytes[at..next]);
            (at, text_len, ends_len) = (next, text, ends);
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
        Self { settings, tokens: Tokens::new(settings), wanted, physical, layout: None }
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
        let all_named = self.physical.fields().iter().all(|field| position(field).is_some());
        let header = self.settings.header.unwrap_or(all_named);
        let fields = self.wanted.fields().iter().map(|field| {
            let found = if header { position(field) } else { self.physical.index_of(field.name()).ok() };
            found.ok_or_else(|| StreamError::Data {
                place: format!("{place} line {}", input.line),
                message: format!(
                    "expected a header with column {}, got {}; declare the columns by these names, or set 'csv.header' \
                     = 'false' if the first line holds data",
                    field.name(),
                    names.join(", ")
                ),
            })
        });
        let fields = fields.collect::<Result<_>>()?;
        let width = if header { names.len() } else { self.physical.fields().len() };
        self.layout = Some(Layout { fields, width });
        Ok(Some(if header { consumed } else { 0 }))
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
        Ok(Decoded { rows, consumed: header + consumed, records: self.tokens.records.len() as u64 })
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
            columns.push(self.column(column, index, field, &mut faults)?);
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
    fn column(&self, column: usize, index: usize, field: &Field, faults: &mut Faults) -> Result<ArrayRef> {
        let records = &self.tokens.records;
        let texts = records.iter().zip(faults.iter_mut()).map(|(record, fault)| {
            if fault.is_some() {
                return None;
            }
            let bytes = self.tokens.field(record, index);
            let text = match std::str::from_utf8(bytes) {
                Ok(text) => Some(text).filter(|text| !text.is_empty()),
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
    let all_texts = names.iter().all(|name| matches!(Guess::of_text(name), Guess::Text));
    let distinct = names.iter().enumerate().all(|(i, name)| !names[..i].contains(name));
    let stands_out = rest.iter().any(|guess| !matches!(guess, Guess::Text | Guess::Nothing));
    let is_word = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    all_texts && distinct && (stands_out || names.iter().all(is_word))
}

/// Writes rows.
pub(crate) fn write<W: Write>(
    out: W,
    schema: &SchemaRef,
    rows: &[RecordBatch],
    settings: CsvSettings,
) -> Result<W, String> {
    let mut writer = WriterBuilder::new()
        .with_header(settings.header.unwrap_or(true))
        .with_delimiter(settings.delimiter)
        .with_quote(settings.quote)
        .build(out);
    if rows.is_empty() {
        writer.write(&RecordBatch::new_empty(Arc::clone(schema))).map_err(|e| e.to_string())?;
    }
    for batch in rows {
        writer.write(batch).map_err(|e| e.to_string())?;
    }
    Ok(writer.into_inner())
}
