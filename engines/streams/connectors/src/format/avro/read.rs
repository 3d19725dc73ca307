//! Messages to rows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_avro::reader::{Decoder, ReaderBuilder};
use arrow_avro::schema::{AvroSchema, Fingerprint, FingerprintAlgorithm, SchemaStore};
use savanna_streams_api::{Result, StreamError};

use super::convert::convert;
use super::schema_of;
use crate::format::malformed::{BadRow, Malformed};
use crate::format::messages::Messages;

/// A schema as its registry has it, or why it is of no use.
pub(crate) type Known = Result<Arc<str>, String>;

/// Makes rows of messages.
pub(crate) struct AvroDecoder {
    wanted: SchemaRef,
    /// What reads the messages of a schema, by its number.
    decoders: BTreeMap<u32, Decoder>,
}

impl fmt::Debug for AvroDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AvroDecoder").field("schemas", &self.decoders.keys()).finish_non_exhaustive()
    }
}

/// Of so many schemas, what reads their messages is kept; it is made anew for others.
const DECODERS_MAX: usize = 100;

/// A message, by its offset.
type Message<'m> = (i64, &'m [u8]);

/// What is wrong with a message, and in which column.
type Wrong = (Option<String>, String);

impl AvroDecoder {
    /// For the columns that are read.
    pub(crate) fn new(wanted: &SchemaRef) -> Self {
        Self { wanted: Arc::clone(wanted), decoders: BTreeMap::new() }
    }

    /// The rows of all messages. One without a value is no row. `schema` knows the schemas of all of them.
    ///
    /// # Errors
    /// A message is malformed, and `malformed` says to fail.
    pub(crate) fn rows(
        &mut self,
        messages: &Messages,
        malformed: &mut Malformed,
        schema: impl Fn(u32) -> Known,
    ) -> Result<RecordBatch> {
        let mut batches = Vec::new();
        // Messages of one schema that follow each other.
        let mut run: (u32, Vec<Message<'_>>) = (0, Vec::new());
        for (offset, value) in messages.values() {
            let Some(value) = value else { continue };
            match schema_of(value) {
                Ok(id) if id == run.0 => run.1.push((offset, value)),
                Ok(id) => {
                    let ended = std::mem::replace(&mut run, (id, vec![(offset, value)]));
                    self.run(ended, malformed, &schema, &mut batches)?;
                }
                Err(message) => malformed.row(&bad(offset, value, &(None, message)))?,
            }
        }
        self.run(run, malformed, &schema, &mut batches)?;
        concat_batches(&self.wanted, &batches)
            .map_err(|e| StreamError::Internal(format!("messages of Avro gave unlike rows: {e}")))
    }

    /// Keeps what reads messages of a schema.
    fn keep(&mut self, id: u32, decoder: Decoder) {
        if self.decoders.len() >= DECODERS_MAX {
            self.decoders.clear();
        }
        self.decoders.insert(id, decoder);
    }

    fn run(
        &mut self,
        (id, messages): (u32, Vec<Message<'_>>),
        malformed: &mut Malformed,
        schema: &impl Fn(u32) -> Known,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let text = match schema(id) {
            Ok(text) => text,
            Err(cause) => {
                let wrong = (None, cause);
                return messages.iter().try_for_each(|(offset, value)| malformed.row(&bad(*offset, value, &wrong)));
            }
        };
        let mut whole = match self.decoders.remove(&id).map_or_else(|| decoder(id, &text), Ok) {
            Ok(decoder) => decoder,
            Err(cause) => {
                let wrong = (None, cause);
                return messages.iter().try_for_each(|(offset, value)| malformed.row(&bad(*offset, value, &wrong)));
            }
        };
        // All at once; and one by one if one of them spoils that.
        if let Ok(rows) = self.decode(&mut whole, &messages) {
            self.keep(id, whole);
            batches.push(rows);
            return Ok(());
        }
        let mut last = None;
        for message in &messages {
            // One that was given a message which is none has what is left of it.
            let mut one = match last.take().map_or_else(|| decoder(id, &text), Ok) {
                Ok(one) => one,
                Err(cause) => return Err(StreamError::Internal(format!("a schema that was read is none: {cause}"))),
            };
            match self.decode(&mut one, std::slice::from_ref(message)) {
                Ok(rows) => {
                    batches.push(rows);
                    last = Some(one);
                }
                Err(wrong) => malformed.row(&bad(message.0, message.1, &wrong))?,
            }
        }
        if let Some(last) = last {
            self.keep(id, last);
        }
        Ok(())
    }

    /// The rows of messages of one schema.
    fn decode(&self, decoder: &mut Decoder, messages: &[Message<'_>]) -> Result<RecordBatch, Wrong> {
        for (_, message) in messages {
            let room = decoder.capacity();
            let used = decoder.decode(message);
            let is_read = decoder.capacity() + 1 == room;
            match used {
                Ok(used) if used == message.len() && is_read => {}
                Err(error) if !is_read => {
                    return Err((None, format!("expected one record of its schema, got none: {error}")));
                }
                _ => {
                    let cause = format!(
                        "expected one record of its schema, got {} bytes that are none, or more than one",
                        message.len()
                    );
                    return Err((None, cause));
                }
            }
        }
        let rows = decoder.flush().map_err(|e| (None, e.to_string()))?;
        let rows = rows.ok_or_else(|| (None, "expected a record, got none".to_owned()))?;
        self.convert(&rows)
    }

    fn convert(&self, rows: &RecordBatch) -> Result<RecordBatch, Wrong> {
        let of: &Schema = rows.schema_ref();
        let column = |to: &arrow::datatypes::FieldRef| -> Result<ArrayRef, Wrong> {
            let named = |message: String| (Some(to.name().clone()), message);
            match of.column_with_name(to.name()) {
                Some((at, from)) => convert(rows.column(at), from, to).map_err(named),
                None if to.is_nullable() => Ok(new_null_array(to.data_type(), rows.num_rows())),
                None => Err(named("expected a value NOT NULL, and its schema has no such field".into())),
            }
        };
        let columns = self.wanted.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
        crate::format::batch(&self.wanted, columns, rows.num_rows()).map_err(|e| (None, e.to_string()))
    }
}

fn bad<'m>(offset: i64, raw: &'m [u8], (column, message): &'m Wrong) -> BadRow<'m> {
    BadRow { line: offset.unsigned_abs(), column: column.as_deref(), message: message.clone(), raw }
}

/// What reads messages of a schema.
fn decoder(id: u32, schema: &str) -> Result<Decoder, String> {
    let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
    let number = Fingerprint::Id(id);
    let made = store.set(number, AvroSchema::new(schema.to_owned())).and_then(|_| {
        // It is asked for all rows that it has been given; as views, it would give texts that are NULL as empty ones.
        let builder = ReaderBuilder::new().with_batch_size(usize::MAX / 2);
        builder.with_writer_schema_store(store).with_active_fingerprint(number).build_decoder()
    });
    made.map_err(|e| format!("expected a schema of a record, got number {id} of the registry, which is none: {e}"))
}
