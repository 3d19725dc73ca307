//! Rows as messages, one row in each: JSON, CSV, or the bytes themselves; and changes, as Debezium writes them.
//!
//! Messages are decoded as lines, all at once. Where that does not give a row for each, or one is malformed, they are decoded one by
//! one, so that a message which ends amid a quote or holds two rows spoils none but itself.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder, RecordBatch, StringViewBuilder};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::ColumnDef;

use super::avro;
use super::csv::{self, CsvDecoder, CsvSettings};
use super::debezium;
use super::malformed::{BadRow, Malformed, excerpt};
use super::ndjson::{self, NdjsonDecoder};
use super::{Decode, Format, Input};
use crate::options::Options;

/// How a row stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageFormat {
    /// A JSON object.
    Json,
    /// A line of CSV, without a header.
    Csv(CsvSettings),
    /// The only column, as it is.
    Raw,
    /// A change of a row in JSON. It is read and not written.
    Debezium,
    /// A record whose schema is in a registry.
    Avro,
}

impl MessageFormat {
    /// The values of the options that name one.
    pub(crate) const NAMES: &'static [&'static str] = &["json", "ndjson", "csv", "raw"];
    /// The same, of what the value of a message may hold.
    pub(crate) const NAMES_OF_VALUES: &'static [&'static str] =
        &["json", "ndjson", "csv", "raw", "debezium-json", "avro-confluent"];

    /// The format that an option names; `csv.*` options tell how CSV is written.
    pub(crate) fn of(options: &Options<'_>, option: &str) -> Result<Option<Self>> {
        let csv = CsvSettings::without_header(options)?;
        options.find(option, |text| match text {
            "json" | "ndjson" => Some(Self::Json),
            "csv" => Some(Self::Csv(csv)),
            "raw" => Some(Self::Raw),
            "debezium-json" => Some(Self::Debezium),
            "avro-confluent" => Some(Self::Avro),
            _ => None,
        })
    }

    /// Refuses columns that a message cannot hold.
    pub(crate) fn check(self, columns: &[ColumnDef]) -> Result<()> {
        match self {
            Self::Json | Self::Debezium => Ok(()),
            Self::Avro => {
                let fields = columns.iter().filter(|column| column.computed.is_none());
                let fields = fields.map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable));
                avro::write::schema(&Schema::new(fields.collect::<Vec<_>>())).map(drop)
            }
            Self::Csv(_) => Format::Csv.check(columns),
            Self::Raw => {
                let mut read = columns.iter().filter(|column| column.computed.is_none());
                match (read.next(), read.next()) {
                    (Some(column), None) if is_raw(&column.data_type) => Ok(()),
                    (Some(column), None) => Err(StreamError::invalid(format!(
                        "'format' = 'raw' holds one column of VARCHAR or BYTES, but column {} is {}",
                        column.name,
                        type_name(&column.data_type)
                    ))),
                    _ => Err(StreamError::invalid(
                        "'format' = 'raw' holds one column of VARCHAR or BYTES; declare one, or choose another 'format', such as 'json'",
                    )),
                }
            }
        }
    }
}

fn is_raw(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// Messages that were read, in order.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Their bytes, each with a line end behind it.
    text: Vec<u8>,
    /// Where each lies in them without the line end, and its offset in the topic. None for a message without a value.
    places: Vec<(i64, Option<Range<usize>>)>,
    /// Whether one has a line end within it.
    breaks: bool,
}

impl Messages {
    /// Adds a message; none is one without a value.
    pub(crate) fn push(&mut self, offset: i64, value: Option<&[u8]>) {
        let place = value.map(|value| {
            let start = self.text.len();
            self.text.extend_from_slice(value);
            start..self.text.len()
        });
        if place.is_some() {
            self.text.push(b'\n');
        }
        self.places.push((offset, place));
    }

    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Their offsets and values, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = (i64, Option<&[u8]>)> {
        self.places.iter().map(|(offset, place)| (*offset, place.clone().map(|place| &self.text[place])))
    }

    /// Whether some are rows of one message.
    fn has_pairs(&self) -> bool {
        self.places.windows(2).any(|pair| pair[0].0 == pair[1].0)
    }

    /// How many bytes they have.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Takes line ends away: those at the end of a value, and in JSON, where they mean as much as a blank, those within.
    fn prepare(&mut self, format: MessageFormat) {
        for (_, place) in &mut self.places {
            let Some(place) = place else { continue };
            let value = &mut self.text[place.clone()];
            if memchr::memchr2(b'\n', b'\r', value).is_none() {
                continue;
            }
            if format == MessageFormat::Json {
                value.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
                continue;
            }
            let line = value.strip_suffix(b"\n").unwrap_or(&*value);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.breaks |= memchr::memchr2(b'\n', b'\r', line).is_some();
            place.end = place.start + line.len();
            self.text[place.end] = b'\n';
        }
    }

    /// Takes all away.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
        self.breaks = false;
    }
}

/// Makes rows of messages.
pub(crate) struct MessageDecoder {
    format: MessageFormat,
    wanted: SchemaRef,
    /// None for messages that are not decoded.
    decoder: Option<Box<dyn Decode>>,
    /// The column that says what happened, where messages are changes.
    op_column: String,
}

impl MessageDecoder {
    /// For messages that hold the columns `physical`, of which `wanted` are read.
    pub(crate) fn new(format: MessageFormat, physical: &SchemaRef, wanted: &SchemaRef) -> Self {
        let decoder: Option<Box<dyn Decode>> = match format {
            MessageFormat::Json | MessageFormat::Debezium => Some(Box::new(NdjsonDecoder::new(wanted, physical))),
            MessageFormat::Csv(settings) => Some(Box::new(CsvDecoder::new(settings, wanted, physical))),
            // Another decoder has those of a schema that is elsewhere.
            MessageFormat::Raw | MessageFormat::Avro => None,
        };
        Self { format, wanted: Arc::clone(wanted), decoder, op_column: String::new() }
    }

    /// The same, with the column that says what happened.
    pub(crate) fn with_op_column(self, op_column: &str) -> Self {
        Self { op_column: op_column.to_owned(), ..self }
    }

    /// The rows of all messages, which are gone then. One without a value is no row, but in the raw format NULL.
    ///
    /// # Errors
    /// A message is malformed, and `malformed` says to fail.
    pub(crate) fn rows(&mut self, messages: &mut Messages, malformed: &mut Malformed) -> Result<RecordBatch> {
        let mut format = self.format;
        if format == MessageFormat::Debezium {
            let rows = debezium::expand(messages, &self.op_column, &self.wanted, malformed)?;
            (*messages, format) = (rows, MessageFormat::Json);
        }
        let rows = match &mut self.decoder {
            None => raw_rows(&self.wanted, messages, malformed),
            Some(decoder) => {
                messages.prepare(format);
                match all_rows(decoder.as_mut(), messages, malformed) {
                    Some(rows) => Ok(rows),
                    None => each_row(decoder.as_mut(), &self.wanted, messages, malformed),
                }
            }
        };
        messages.clear();
        rows
    }
}

/// All at once; none if that does not give a row for each.
fn all_rows(decoder: &mut dyn Decode, messages: &Messages, malformed: &mut Malformed) -> Option<RecordBatch> {
    let values = messages.places.iter().filter(|(_, place)| place.is_some()).count();
    if messages.breaks || values == 0 {
        return None;
    }
    let skipped = malformed.skipped;
    let input = Input { bytes: &messages.text, line: 1, last: true };
    let decoded = decoder.decode(input, usize::MAX, malformed).ok();
    let is_whole = malformed.skipped == skipped || !messages.has_pairs();
    let decoded = decoded
        .filter(|decoded| is_whole && decoded.records == values as u64 && decoded.consumed == messages.text.len());
    if decoded.is_none() {
        malformed.skipped = skipped;
    }
    decoded.map(|decoded| decoded.rows)
}

/// One by one.
fn each_row(
    decoder: &mut dyn Decode,
    wanted: &SchemaRef,
    messages: &Messages,
    malformed: &mut Malformed,
) -> Result<RecordBatch> {
    let mut rows: Vec<RecordBatch> = Vec::with_capacity(messages.len());
    // Of a message that is several rows, all count or none, and one that is malformed counts once.
    let (mut last, mut begun, mut spoilt) = (None, 0, false);
    for (offset, place) in &messages.places {
        let Some(place) = place else { continue };
        if last.replace(*offset) != Some(*offset) {
            (begun, spoilt) = (rows.len(), false);
        }
        if spoilt {
            continue;
        }
        let (value, line) = (&messages.text[place.clone()], offset.unsigned_abs());
        // Nothing at all is a line as well: of a table of one column, it is a row.
        let bytes = if value.is_empty() { &messages.text[place.end..=place.end] } else { value };
        let input = Input { bytes, line, last: true };
        // A second record shows that there is more than one.
        let skipped = malformed.skipped;
        let decoded = decoder.decode(input, 2, malformed)?;
        if decoded.records == 1 && decoded.consumed == input.bytes.len() {
            spoilt = malformed.skipped > skipped;
            if spoilt {
                rows.truncate(begun);
            } else {
                rows.push(decoded.rows);
            }
            continue;
        }
        spoilt = true;
        rows.truncate(begun);
        malformed.skipped = skipped;
        let message = format!("expected one row in a message, got {}", excerpt(value));
        malformed.row(&BadRow { line, column: None, message, raw: value })?;
    }
    concat_batches(wanted, &rows).map_err(|e| StreamError::Internal(format!("messages gave unlike rows: {e}")))
}

fn raw_rows(wanted: &SchemaRef, messages: &Messages, malformed: &mut Malformed) -> Result<RecordBatch> {
    let Some(field) = wanted.fields().first() else {
        return super::batch(wanted, Vec::new(), messages.len());
    };
    let (mut texts, mut bytes, mut rows) = (StringViewBuilder::new(), BinaryViewBuilder::new(), 0);
    for (offset, place) in &messages.places {
        let value = place.clone().map(|place| &messages.text[place]);
        let wrong = match value {
            None if !field.is_nullable() => Some("expected a value NOT NULL, got a message without one".to_owned()),
            Some(value) if field.data_type() == &DataType::Utf8View && std::str::from_utf8(value).is_err() => {
                Some(format!("expected UTF-8, got {}", excerpt(value)))
            }
            _ => None,
        };
        if let Some(message) = wrong {
            let raw = value.unwrap_or_default();
            malformed.row(&BadRow { line: offset.unsigned_abs(), column: Some(field.name()), message, raw })?;
            continue;
        }
        rows += 1;
        match field.data_type() {
            DataType::Utf8View => texts.append_option(value.and_then(|value| std::str::from_utf8(value).ok())),
            _ => bytes.append_option(value),
        }
    }
    let column: ArrayRef = match field.data_type() {
        DataType::Utf8View => Arc::new(texts.finish()),
        _ => Arc::new(bytes.finish()),
    };
    super::batch(wanted, vec![column], rows)
}

/// The values of rows, one for each; none is a message without a value.
#[derive(Debug)]
pub(crate) struct Values {
    text: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
}

impl Values {
    /// Values that lie in some bytes.
    pub(crate) fn new(text: Vec<u8>, places: Vec<Option<Range<usize>>>) -> Self {
        Self { text, places }
    }

    /// The same, where some rows have no value.
    pub(crate) fn without(mut self, gone: &[bool]) -> Self {
        for (place, _) in self.places.iter_mut().zip(gone).filter(|(_, gone)| **gone) {
            *place = None;
        }
        self
    }

    /// The value of a row.
    pub(crate) fn of(&self, row: usize) -> Option<&[u8]> {
        self.places[row].clone().map(|place| &self.text[place])
    }
}

impl MessageFormat {
    /// Writes rows as messages.
    ///
    /// # Errors
    /// The format cannot hold a column.
    pub(crate) fn values(self, rows: &RecordBatch) -> Result<Values> {
        let failed = |e: String| StreamError::invalid(format!("rows cannot be written as messages: {e}"));
        match self {
            Self::Json => {
                let text = ndjson::write(Vec::new(), std::slice::from_ref(rows)).map_err(failed)?;
                // JSON has no line ends within.
                Ok(lines(text))
            }
            Self::Csv(settings) => {
                let write =
                    |rows: RecordBatch| csv::write(Vec::new(), &rows.schema(), &[rows], settings).map_err(failed);
                let values = lines(write(rows.clone())?);
                if values.places.len() == rows.num_rows() {
                    return Ok(values);
                }
                // A text of some row has a line end.
                let (mut text, mut places) = (Vec::new(), Vec::new());
                for row in 0..rows.num_rows() {
                    let value = write(rows.slice(row, 1))?;
                    let start = text.len();
                    text.extend_from_slice(value.strip_suffix(b"\n").unwrap_or(&value));
                    places.push(Some(start..text.len()));
                }
                Ok(Values { text, places })
            }
            Self::Raw => raw_values(rows),
            Self::Debezium => Err(failed("'debezium-json' is read and not written".into())),
            Self::Avro => Err(failed("the registry of their schema was not asked".into())),
        }
    }
}

fn lines(text: Vec<u8>) -> Values {
    let mut start = 0;
    let places =
        memchr::memchr_iter(b'\n', &text).map(|end| Some(std::mem::replace(&mut start, end + 1)..end)).collect();
    Values { text, places }
}

fn raw_values(rows: &RecordBatch) -> Result<Values> {
    let (mut text, mut places) = (Vec::new(), Vec::new());
    let [column] = rows.columns() else {
        return Err(StreamError::invalid("'raw' holds one column of VARCHAR or BYTES"));
    };
    for row in 0..rows.num_rows() {
        let value: Option<&[u8]> = match column.data_type() {
            _ if column.is_null(row) => None,
            DataType::Utf8View => Some(column.as_string_view().value(row).as_bytes()),
            DataType::BinaryView => Some(column.as_binary_view().value(row)),
            other => {
                let found = type_name(other);
                return Err(StreamError::invalid(format!("'raw' holds a column of VARCHAR or BYTES, got {found}")));
            }
        };
        places.push(value.map(|value| {
            let start = text.len();
            text.extend_from_slice(value);
            start..text.len()
        }));
    }
    Ok(Values { text, places })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use proptest::prelude::*;

    use super::super::malformed::OnError;
    use super::*;

    const CSV: MessageFormat = MessageFormat::Csv(CsvSettings { header: Some(false), delimiter: b',', quote: b'"' });

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8View, true)]))
    }

    fn text(name: &str, nullable: bool) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new(name, DataType::Utf8View, nullable)]))
    }

    /// The rows as lines of CSV, and how many messages were skipped.
    fn read(format: MessageFormat, schema: &SchemaRef, values: &[Option<&[u8]>]) -> (Vec<String>, u64) {
        let mut malformed = Malformed::of_messages(OnError::Skip, "topic t, partition 0,").unwrap();
        let rows = decode(format, schema, values, &mut malformed).unwrap();
        let settings = CsvSettings { header: Some(false), ..CsvSettings::default() };
        let written = csv::write(Vec::new(), schema, &[rows], settings).unwrap();
        (String::from_utf8(written).unwrap().lines().map(ToOwned::to_owned).collect(), malformed.skipped)
    }

    fn decode(
        format: MessageFormat,
        schema: &SchemaRef,
        values: &[Option<&[u8]>],
        malformed: &mut Malformed,
    ) -> Result<RecordBatch> {
        let mut messages = Messages::default();
        values.iter().enumerate().for_each(|(at, value)| messages.push(100 + at as i64, *value));
        let rows = MessageDecoder::new(format, schema, schema).rows(&mut messages, malformed);
        assert_eq!((messages.len(), messages.bytes()), (0, 0));
        rows
    }

    #[test]
    fn each_message_is_a_row_and_a_malformed_one_spoils_no_other() {
        let json: &[Option<&[u8]>] = &[
            Some(b"{\"a\":1,\"b\":\"x\"}"),
            Some(b"{\n  \"a\": 2,\r\n  \"b\": \"y\"\n}\n"),
            None,
            Some(b"{\"a\":3}{\"a\":4}"),
            Some(b""),
            Some(b"{\"a\":\"no number\"}"),
            Some(b"[1]"),
            Some(b"{\"a\":5,\"b\":\"z\"}"),
        ];
        assert_eq!(read(MessageFormat::Json, &schema(), json), (vec!["1,x".into(), "2,y".into(), "5,z".into()], 4));
        let lines: &[Option<&[u8]>] = &[
            Some(b"1,x"),
            Some(b"2,\"y"),
            Some(b"z\",\"\n3"),
            Some(b"4,\"w\"\r\n"),
            None,
            Some(b"5,p\n6,q"),
            Some(b""),
            Some(b"oops,r"),
            Some(b"7,s"),
        ];
        let (rows, skipped) = read(CSV, &schema(), lines);
        assert_eq!(rows.first().map(String::as_str), Some("1,x"));
        assert!(rows.ends_with(&["4,w".into(), "7,s".into()]), "{rows:?}");
        assert_eq!(read(CSV, &text("line", true), &[Some(b"a"), Some(b""), Some(b"b\n")]).0, ["a", "", "b"]);
        assert_eq!(rows.len() as u64 + skipped, 8, "{rows:?}");
    }

    #[test]
    fn an_error_names_the_offset_of_the_message() {
        let mut malformed = Malformed::of_messages(OnError::Fail, "topic t, partition 0,").unwrap();
        let values: &[Option<&[u8]>] = &[Some(b"{\"a\":1}"), None, Some(b"{\"a\":1.5}")];
        let error = decode(MessageFormat::Json, &schema(), values, &mut malformed).unwrap_err().to_string();
        assert!(error.starts_with("topic t, partition 0, offset 102, column a"), "{error}");
        assert!(error.contains("expected BIGINT"), "{error}");
        let error = decode(CSV, &schema(), &[Some(b"1,x"), Some(b"1,x\n2,y")], &mut malformed).unwrap_err().to_string();
        assert!(error.contains("offset 101") && error.contains("expected one row in a message"), "{error}");
    }

    #[test]
    fn raw_messages_are_their_bytes_and_those_without_a_value_are_null() {
        let values: &[Option<&[u8]>] = &[Some(b"a\nb"), None, Some(b"\xff"), Some(b"")];
        let mut malformed = Malformed::of_messages(OnError::Skip, "t").unwrap();
        let rows = decode(MessageFormat::Raw, &text("line", true), values, &mut malformed).unwrap();
        let lines: Vec<_> = rows.column(0).as_string_view().iter().collect();
        assert_eq!((lines.as_slice(), malformed.skipped), ([Some("a\nb"), None, Some("")].as_slice(), 1));
        let rows = decode(MessageFormat::Raw, &text("line", false), &values[..2], &mut malformed).unwrap();
        assert_eq!((rows.num_rows(), malformed.skipped), (1, 2));
        let written = MessageFormat::Raw.values(&rows).unwrap();
        assert_eq!(written.of(0), Some(b"a\nb".as_slice()));
    }

    #[test]
    fn a_row_is_one_message_whatever_its_texts_hold() {
        let rows = RecordBatch::try_new(
            schema(),
            vec![
                Arc::new(Int64Array::from(vec![Some(1), None])),
                Arc::new(StringViewArray::from(vec![Some("two\nlines"), Some("one")])),
            ],
        )
        .unwrap();
        let csv = CSV.values(&rows).unwrap();
        assert_eq!((csv.of(0), csv.of(1)), (Some(b"1,\"two\nlines\"".as_slice()), Some(b",one".as_slice())));
        let json = MessageFormat::Json.values(&rows).unwrap();
        assert_eq!(json.of(1), Some(b"{\"a\":null,\"b\":\"one\"}".as_slice()));
    }

    #[test]
    fn raw_messages_hold_one_column() {
        let column = |name: &str, data_type| ColumnDef { name: name.into(), data_type, nullable: true, computed: None };
        let texts = [column("a", DataType::Utf8View), column("b", DataType::Utf8View)];
        assert!(MessageFormat::Raw.check(&texts[..1]).is_ok());
        let error = MessageFormat::Raw.check(&texts).unwrap_err().to_string();
        assert!(error.contains("holds one column of VARCHAR or BYTES"), "{error}");
        assert!(MessageFormat::Raw.check(&[column("n", DataType::Int64)]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            cells in prop::collection::vec((prop::option::of(-3_i64..3), prop::option::of("[a\",;\n é]{0,4}")), 1..20), json: bool,
        ) {
            let rows = RecordBatch::try_new(
                schema(),
                vec![
                    Arc::new(cells.iter().map(|(a, _)| *a).collect::<Int64Array>()),
                    Arc::new(cells.iter().map(|(_, b)| b.as_deref()).collect::<StringViewArray>()),
                ],
            )
            .unwrap();
            let format = if json { MessageFormat::Json } else { CSV };
            let values = format.values(&rows).unwrap();
            let values: Vec<_> = (0..rows.num_rows()).map(|row| values.of(row)).collect();
            let mut malformed = Malformed::of_messages(OnError::Fail, "t").unwrap();
            prop_assert_eq!(decode(format, &schema(), &values, &mut malformed).unwrap(), rows);
        }
    }
}
