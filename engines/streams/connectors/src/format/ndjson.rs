//! NDJSON: one JSON object per line. Fields that nobody asked for are skipped, missing ones are NULL.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::json::{ReaderBuilder, reader::Decoder};
use savanna_streams_api::json::write_lines;
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::varchar;
use serde_json::Value;

use super::infer::Guess;
use super::malformed::{BadRow, Malformed, excerpt};
use super::{Decode, Decoded, Input, values};

/// Decodes one stream of NDJSON.
pub(crate) struct NdjsonDecoder {
    wanted: SchemaRef,
    /// What arrow decodes: whole numbers as texts, because it would cut `1.5` to a BIGINT silently.
    loose: SchemaRef,
}

/// Objects and arrays in each other. Types are not deeper; a decoder goes down into them.
const DEPTH_MAX: usize = 100;

/// One line that is not blank.
#[derive(Clone, Copy)]
struct Line<'a> {
    bytes: &'a [u8],
    number: u64,
}

/// Why a row cannot be read.
struct Fault {
    column: Option<String>,
    message: String,
}

impl NdjsonDecoder {
    pub(crate) fn new(wanted: &SchemaRef, physical: &SchemaRef) -> Self {
        // Rows have to be counted even if no column is wanted; then any column does.
        let read = if wanted.fields().is_empty() {
            &physical.fields()[..physical.fields().len().min(1)]
        } else {
            wanted.fields()
        };
        let loose = Schema::new(read.iter().map(|field| loosen(field)).collect::<Fields>());
        Self { wanted: Arc::clone(wanted), loose: Arc::new(loose) }
    }

    fn decoder(&self, rows: usize) -> Result<Decoder> {
        ReaderBuilder::new(Arc::clone(&self.loose))
            .with_batch_size(rows.max(1))
            .with_coerce_primitive(true)
            .build_decoder()
            .map_err(|e| StreamError::invalid(format!("the columns cannot be read from JSON: {e}")))
    }

    /// All lines at once: none if any of them is not one object of fitting values.
    fn decode_all(&self, chunk: &[u8], lines: usize) -> Result<Option<RecordBatch>> {
        let mut decoder = self.decoder(lines)?;
        let Ok(used) = decoder.decode(chunk) else { return Ok(None) };
        let rest_is_blank = chunk[used..].iter().all(u8::is_ascii_whitespace);
        match decoder.flush() {
            Ok(Some(batch)) if rest_is_blank && batch.num_rows() == lines => Ok(Some(batch)),
            Ok(None) if rest_is_blank && lines == 0 => Ok(Some(RecordBatch::new_empty(Arc::clone(&self.loose)))),
            _ => Ok(None),
        }
    }

    /// Line by line, leaving out the malformed ones.
    fn decode_each(&self, lines: &mut Vec<Line<'_>>, malformed: &mut Malformed) -> Result<RecordBatch> {
        let (mut good, mut batches) = (Vec::with_capacity(lines.len()), Vec::with_capacity(lines.len()));
        for line in lines.drain(..) {
            if is_too_deep(line.bytes) {
                let message = format!("expected values that are at most {DEPTH_MAX} deep, got {}", excerpt(line.bytes));
                malformed.fault(line, &Fault { column: None, message })?;
                continue;
            }
            match self.decode_all(line.bytes, 1)? {
                Some(row) => {
                    good.push(line);
                    batches.push(row);
                }
                None => malformed.fault(line, &self.explain(line.bytes)?)?,
            }
        }
        *lines = good;
        concat_batches(&self.loose, &batches).map_err(|e| StreamError::Internal(e.to_string()))
    }

    /// Why a line cannot be decoded.
    fn explain(&self, line: &[u8]) -> Result<Fault> {
        let fields = match serde_json::from_slice::<Value>(line) {
            Ok(Value::Object(fields)) => fields,
            Ok(other) => {
                let message = format!("expected one JSON object, got {}", excerpt(other.to_string().as_bytes()));
                return Ok(Fault { column: None, message });
            }
            Err(error) => {
                // serde_json counts lines within the text it was given, which is one line.
                let what = error.to_string().replace("at line 1 column", "at character");
                return Ok(Fault {
                    column: None,
                    message: format!("expected one JSON object, got {} ({what})", excerpt(line)),
                });
            }
        };
        for (loose, field) in self.loose.fields().iter().zip(self.read_fields()) {
            if let Some(fault) = self.explain_field(field.name(), loose, field, fields.get(field.name()))? {
                return Ok(fault);
            }
        }
        Ok(Fault { column: None, message: format!("expected one JSON object, got {}", excerpt(line)) })
    }

    /// The fields that [`Self::loose`] stands for.
    fn read_fields(&self) -> &Fields {
        if self.wanted.fields().is_empty() { self.loose.fields() } else { self.wanted.fields() }
    }

    fn explain_field(&self, path: &str, loose: &Field, field: &Field, value: Option<&Value>) -> Result<Option<Fault>> {
        let value = value.unwrap_or(&Value::Null);
        let fault = |got: &str| Fault {
            column: Some(path.to_owned()),
            message: format!("expected {}, got {got}", type_name(field.data_type())),
        };
        if value.is_null() {
            return Ok((!field.is_nullable()).then(|| fault("NULL")));
        }
        if let (DataType::Struct(loose), DataType::Struct(fields), Value::Object(values)) =
            (loose.data_type(), field.data_type(), value)
        {
            for (loose, field) in loose.iter().zip(fields) {
                let path = format!("{path}.{}", field.name());
                if let Some(fault) = self.explain_field(&path, loose, field, values.get(field.name()))? {
                    return Ok(Some(fault));
                }
            }
            return Ok(None);
        }
        let alone = Self { wanted: Arc::new(Schema::empty()), loose: Arc::new(Schema::new(vec![loose.clone()])) };
        let object = Value::Object([(field.name().clone(), value.clone())].into_iter().collect()).to_string();
        let fits = alone.decode_all(object.as_bytes(), 1)?.is_some();
        let got = match value {
            Value::String(text) => excerpt(text.as_bytes()),
            other => excerpt(other.to_string().as_bytes()),
        };
        Ok((!fits).then(|| fault(&got)))
    }
}

impl Malformed {
    fn fault(&mut self, line: Line<'_>, fault: &Fault) -> Result<()> {
        self.row(&BadRow {
            line: line.number,
            column: fault.column.as_deref(),
            message: fault.message.clone(),
            raw: line.bytes,
        })
    }
}

impl Decode for NdjsonDecoder {
    fn decode(&mut self, input: Input<'_>, max_rows: usize, malformed: &mut Malformed) -> Result<Decoded> {
        let (mut lines, consumed) = split_lines(input, max_rows);
        let records = lines.len() as u64;
        let all = match lines.iter().any(|line| is_too_deep(line.bytes)) {
            true => None,
            false => self.decode_all(&input.bytes[..consumed], lines.len())?,
        };
        let batch = match all {
            Some(batch) => batch,
            None => self.decode_each(&mut lines, malformed)?,
        };
        let rows = self.tighten(&batch, &lines, malformed)?;
        Ok(Decoded { rows, consumed, upto: behind_blanks(&input.bytes[..consumed]), records })
    }
}

/// Where the last line ends that is not blank, its line end included.
fn behind_blanks(bytes: &[u8]) -> usize {
    let text = bytes.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
    memchr::memchr(b'\n', &bytes[text..]).map_or(bytes.len(), |end| text + end + 1)
}

impl NdjsonDecoder {
    /// Gives the columns their types, leaving out rows with texts that are no whole numbers.
    fn tighten(&self, batch: &RecordBatch, lines: &[Line<'_>], malformed: &mut Malformed) -> Result<RecordBatch> {
        if self.wanted.fields().is_empty() {
            return super::batch(&self.wanted, Vec::new(), batch.num_rows());
        }
        let mut faults: Vec<Option<Fault>> = std::iter::repeat_with(|| None).take(batch.num_rows()).collect();
        let columns = batch.columns().iter().zip(self.wanted.fields());
        let columns: Vec<ArrayRef> =
            columns.map(|(array, field)| tighten(array, field, field.name(), &mut faults)).collect::<Result<_>>()?;
        let types = self.wanted.fields().iter().zip(&columns);
        let schema: Fields = types.map(|(f, c)| Field::new(f.name(), c.data_type().clone(), true)).collect();
        let rows = super::batch(&Arc::new(Schema::new(schema)), columns, batch.num_rows())?;
        let rows = if faults.iter().any(Option::is_some) {
            for (fault, line) in faults.iter().zip(lines) {
                if let Some(fault) = fault {
                    malformed.fault(*line, fault)?;
                }
            }
            let good = faults.iter().map(|fault| Some(fault.is_none())).collect();
            filter_record_batch(&rows, &good).map_err(|e| StreamError::Internal(e.to_string()))?
        } else {
            rows
        };
        super::batch(&self.wanted, rows.columns().to_vec(), rows.num_rows())
    }
}

/// At most `max` lines that are not blank, and how many bytes they take.
fn split_lines(input: Input<'_>, max: usize) -> (Vec<Line<'_>>, usize) {
    let (mut lines, mut at, mut number) = (Vec::new(), 0, input.line);
    while lines.len() < max && at < input.bytes.len() {
        let rest = &input.bytes[at..];
        let length = match memchr::memchr(b'\n', rest) {
            Some(end) => end + 1,
            None if input.last => rest.len(),
            None => break,
        };
        let bytes = &rest[..length];
        if !bytes.iter().all(u8::is_ascii_whitespace) {
            lines.push(Line { bytes, number });
        }
        at += length;
        number += 1;
    }
    (lines, at)
}

/// Whether a line has objects and arrays deeper in each other than any type.
fn is_too_deep(line: &[u8]) -> bool {
    // Of nearly all lines, there are not even so many.
    if memchr::memchr2_iter(b'{', b'[', line).nth(DEPTH_MAX).is_none() {
        return false;
    }
    let (mut depth, mut in_text) = (0_usize, false);
    let mut bytes = line.iter();
    while let Some(byte) = bytes.next() {
        match (byte, in_text) {
            (b'"', _) => in_text = !in_text,
            (b'\\', true) => {
                bytes.next();
            }
            (b'{' | b'[', false) => depth += 1,
            (b'}' | b']', false) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

/// The field with texts in place of whole numbers, and with NULL allowed where that would stop the decoder.
fn loosen(field: &Field) -> Field {
    let data_type = match field.data_type() {
        integer if integer.is_integer() => varchar(),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| loosen(field)).collect()),
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
}

/// The opposite for an array: whole numbers out of texts. Notes which rows hold other texts.
fn tighten(array: &ArrayRef, field: &Field, path: &str, faults: &mut [Option<Fault>]) -> Result<ArrayRef> {
    match field.data_type() {
        integer if integer.is_integer() => {
            let (parsed, wrong) = values::parse(array, integer)?;
            let texts = array.as_string_view();
            for row in wrong {
                let message = format!("expected {}, got {}", type_name(integer), excerpt(texts.value(row).as_bytes()));
                faults[row].get_or_insert_with(|| Fault { column: Some(path.to_owned()), message });
            }
            Ok(parsed)
        }
        DataType::Struct(fields) => {
            let row = array.as_struct();
            let columns = row
                .columns()
                .iter()
                .zip(fields)
                .map(|(column, field)| tighten(column, field, &format!("{path}.{}", field.name()), faults));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            // A fault leaves NULL behind where the field may forbid it, so such rows are allowed until they are left out.
            let row = StructArray::try_new(fields.clone(), columns, row.nulls().cloned());
            row.map(|row| Arc::new(row) as ArrayRef).map_err(|e| StreamError::invalid(format!("column {path}: {e}")))
        }
        _ => Ok(Arc::clone(array)),
    }
}

/// The columns of a sample. `complete` tells whether the sample is the whole file.
pub(crate) fn infer(sample: &[u8], complete: bool) -> Vec<(String, Guess)> {
    const LINES_MAX: usize = 10_000;
    let (lines, _) = split_lines(Input { bytes: sample, line: 1, last: complete }, LINES_MAX);
    let guesses = lines.iter().filter_map(|line| serde_json::from_slice::<Guess>(line.bytes).ok());
    match guesses.filter(|guess| matches!(guess, Guess::Row(_))).fold(Guess::Nothing, Guess::or) {
        Guess::Row(fields) => fields,
        _ => Vec::new(),
    }
}

/// Writes rows.
pub(crate) fn write<W: Write>(out: W, rows: &[RecordBatch]) -> Result<W, String> {
    write_lines(out, rows).map_err(|e| e.to_string())
}
