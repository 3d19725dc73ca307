//! One partition that is read.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::{Offset, Read, ScanSpec, SourceBatch, SourceReader};

use super::client::{Reports, Words, end_told, failed, is_hopeless, passes, reason};
use super::place::Place;
use super::schemas::Schemas;
use super::source::TopicClient;
use crate::format::avro::read::AvroDecoder;
use crate::format::avro::schema_of;
use crate::format::malformed::Malformed;
use crate::format::messages::{MessageDecoder, Messages};

/// A read gives about so many bytes at most.
const READ_BYTES_MAX: usize = 4 << 20;

/// Reads one partition.
pub(super) struct PartitionReader {
    /// The messages of the partition, once it is read. Goes before its client does.
    queue: Option<PartitionQueue<Reports>>,
    client: Arc<TopicClient>,
    /// Behind what was given.
    place: Place,
    /// Behind what was polled, and may wait for its schemas.
    polled: Place,
    waiting: Messages,
    /// Whether the query has no place here yet.
    is_new: bool,
    /// Why the place that it had is of no use.
    refused: Option<StreamError>,
    decoder: Decoder,
    malformed: Malformed,
    /// Nothing more comes.
    ended: bool,
}

/// What makes rows of messages.
enum Decoder {
    /// By themselves.
    Messages(MessageDecoder),
    /// By schemas that are elsewhere.
    Avro(AvroDecoder, Arc<Schemas>),
}

/// What a poll gave.
enum Polled {
    Message,
    Nothing,
    End,
}

impl PartitionReader {
    pub(super) fn new(client: Arc<TopicClient>, scan: &ScanSpec, place: Place, is_new: bool) -> Result<Self> {
        let settings = &client.settings;
        let decoder = match &client.schemas {
            Some(schemas) => Decoder::Avro(AvroDecoder::new(&scan.schema()), Arc::clone(schemas)),
            None => Decoder::Messages(
                MessageDecoder::new(settings.format, &scan.table.physical_schema(), &scan.schema())
                    .with_op_column(&settings.op_column),
            ),
        };
        let name = format!("topic {}, partition {},", settings.topic, place.partition);
        let malformed = Malformed::of_messages(settings.on_error.clone(), name)?;
        let (queue, polled, waiting, refused) = (None, place, Messages::default(), None);
        Ok(Self { queue, client, place, polled, waiting, is_new, refused, decoder, malformed, ended: false })
    }

    /// Has the messages from the place on come.
    fn begin(&mut self) -> Result<()> {
        let (topic, Place { partition, next, .. }) = (&self.client.settings.topic, self.place);
        // Before it is assigned: its messages would come with those of others otherwise.
        let queue = self.client.reader.split_partition_queue(topic, partition);
        let mut from = TopicPartitionList::new();
        let assigned = from
            .add_partition_offset(topic, partition, KafkaOffset::Offset(next))
            .and_then(|()| self.client.reader.incremental_assign(&from));
        assigned.map_err(|error| {
            failed(&self.client.settings, "read", &error, Some(self.client.reader.context().as_ref()))
        })?;
        self.queue = queue;
        if self.queue.is_some() { Ok(()) } else { Err(StreamError::Internal("a partition has no queue".into())) }
    }

    /// Takes the next message, if it is there.
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        let Some(queue) = &self.queue else { return Ok(Polled::Nothing) };
        match queue.poll(wait) {
            None => Ok(Polled::Nothing),
            Some(Ok(message)) => {
                if self.polled.end.is_some_and(|end| message.offset() >= end) {
                    return Ok(Polled::End);
                }
                match &self.client.settings.keyed {
                    Some(keyed) => {
                        keyed.push(&mut self.waiting, message.offset(), message.key(), message.payload());
                    }
                    None => self.waiting.push(message.offset(), message.payload()),
                }
                // Where a message without a value is a row, its key says which.
                let summed = self.client.settings.keyed.as_ref().and_then(|_| message.key());
                self.polled.pass(message.offset(), message.payload().or(summed));
                Ok(Polled::Message)
            }
            Some(Err(KafkaError::PartitionEOF(_))) => {
                Ok(if self.polled.ends_at(end_told(&reason())) { Polled::End } else { Polled::Nothing })
            }
            Some(Err(error)) => match self.told(&error) {
                Some(told) => Err(told),
                None => Ok(Polled::Nothing),
            },
        }
    }

    /// What an error means, if it does not pass.
    fn told(&self, error: &KafkaError) -> Option<StreamError> {
        let settings = &self.client.settings;
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => Some(self.gone()),
            Some(RDKafkaErrorCode::NotImplemented) => Some(self.unreadable(
                "expected messages that are not compressed, or by gzip, snappy or lz4, got others (zstd?); set another compression.type where they \
                 are written"
                    .into(),
            )),
            Some(code) if is_hopeless(code) => Some(failed(settings, "read", error, Some(self.client.reader.context().as_ref()))),
            Some(code) if passes(code) => {
                let partition = self.place.partition;
                tracing::debug!(topic = settings.topic, partition, error = %Words(error), "a partition cannot be read now; its client tries again");
                None
            }
            // The library would go on behind it.
            _ => Some(self.unreadable(format!(
                "expected messages that are whole, got {} ({}); RESUME the query or start its statement again, which reads them again: if the same \
                 comes, the topic is damaged",
                Words(error),
                reason()
            ))),
        }
    }

    /// That what comes next cannot be read.
    fn unreadable(&self, message: String) -> StreamError {
        let Place { partition, next, .. } = self.polled;
        StreamError::Data {
            place: format!("topic {}, partition {partition}, offset {next}", self.client.settings.topic),
            message,
        }
    }

    /// That the place is not there any more.
    fn gone(&self) -> StreamError {
        let found = match self.client.bounds(self.place.partition) {
            Ok((first, behind)) => format!("the partition has messages from {first} to before {behind} now"),
            Err(error) => error.to_string(),
        };
        self.unreadable(format!(
            "expected the messages from here on, but {found}: they were deleted, or the topic was made anew; let Kafka keep messages for longer \
             (retention.ms) than a query may rest, and drop this one and start it again"
        ))
    }
}

impl SourceReader for PartitionReader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        if self.waiting.len() == 0 {
            if self.ended || self.place.is_at_end() {
                return Ok(Read::End);
            }
            self.client.check()?;
            if self.queue.is_none() {
                self.begin()?;
            }
            let mut wait = wait;
            while self.waiting.len() < max_events.max(1) && self.waiting.bytes() < READ_BYTES_MAX {
                match self.poll(wait)? {
                    Polled::Message => wait = Duration::ZERO,
                    Polled::Nothing => break,
                    Polled::End => {
                        self.ended = true;
                        break;
                    }
                }
            }
            if self.waiting.len() == 0 {
                return Ok(if self.ended { Read::End } else { Read::Pending });
            }
            self.client.reader.context().well();
        }
        let events = self.waiting.len() as u64;
        let rows = match &mut self.decoder {
            Decoder::Messages(decoder) => decoder.rows(&mut self.waiting, &mut self.malformed)?,
            Decoder::Avro(decoder, schemas) => {
                let ids = self.waiting.values().filter_map(|(_, value)| schema_of(value?).ok());
                if !schemas.knows(ids)? {
                    return Ok(Read::Pending);
                }
                let rows = decoder.rows(&self.waiting, &mut self.malformed, |id| schemas.of(id))?;
                self.waiting.clear();
                rows
            }
        };
        self.place = self.polled;
        Ok(Read::Rows(SourceBatch { split: 0, rows, left_out_time: None, events }))
    }

    fn offset(&self) -> Offset {
        self.place.offset()
    }

    /// A query that goes on began, and ends, where it did: not where a new one would now.
    fn hurry(&mut self, until: &Offset) {
        match Place::of(until, self.place.partition) {
            Ok(before) if self.is_new => (self.place, self.polled) = (before.beginning(), before.beginning()),
            Ok(_) => {}
            Err(error) => self.refused = Some(error),
        }
    }

    /// Those whose schemas are being asked for.
    fn has_rows(&self) -> bool {
        self.waiting.len() > 0
    }

    fn partitions(&self) -> Option<usize> {
        self.client.partitions()
    }

    fn comes_later(&self) -> bool {
        true
    }

    fn skipped(&self) -> u64 {
        self.malformed.skipped
    }
}
