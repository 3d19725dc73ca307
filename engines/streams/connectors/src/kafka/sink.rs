//! A topic that is written: an epoch is a transaction.
//!
//! ```text
//!   start:   init_transactions (ends what a former process left, and fences it) --> which offset has the group? --> epochs up to it are there
//!   epoch:   begin, messages, offset = epoch on partition 0 of the topic, commit
//! ```
//!
//! In this order: while a transaction of a former process is open, the brokers do not tell the offset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use rdkafka::consumer::{Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Remote, Sink};

use super::client::{
    PATIENCE, Reader, Reports, config, failed, is_hopeless_to_write, partitions, reader, reader_config,
};
use super::schemas::register;
use super::settings::{LONGEST, Registry, Settings};
use crate::crash::crash_at;
use crate::format::avro::write;
use crate::format::keyed::gone;
use crate::format::messages::{MessageFormat, Values};

/// Brokers forget the offset of a group without members after a week (offsets.retention.minutes), so it is written again after so long.
const RENEW_AFTER: Duration = Duration::from_secs(3600);
/// While nothing is written, what the client reports is taken once in so long.
const TEND_EVERY: Duration = Duration::from_secs(60);
/// So many reports are taken at a time.
const REPORTS: usize = 200;
/// So many before an epoch is written.
const REPORTS_OF_EPOCH: usize = 20;
/// A call to the brokers returns after so long at most, so that a query can be stopped.
const STEP: Duration = Duration::from_secs(2);
/// After so long a failed epoch is tried again, and later less often.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Messages that wait to be sent take so much memory at most, in KiB.
const WAITING_KIB: i64 = 32 << 10;
const _: () = assert!(LONGEST < WAITING_KIB << 10, "the longest message would never be sent");
/// So long is waited for messages to be delivered, or for a broker, before it is asked again.
const WAIT: Duration = Duration::from_millis(2);
const WAIT_FOR_BROKERS: Duration = Duration::from_millis(20);

/// Writes a topic.
pub(super) struct KafkaSink {
    settings: Settings,
    /// The table's name: two tables of one query have judges of their own.
    table: String,
    /// The columns of keys, and their format.
    key: Option<(Vec<usize>, MessageFormat)>,
    /// The column that says which rows are gone, if one does. It is not written.
    op_column: Option<usize>,
    /// The columns of values.
    columns: Vec<usize>,
    /// Where the schema of values is, and what it is, if they have one.
    avro: Option<Avro>,
    session: Option<Session>,
    given_up: Arc<AtomicBool>,
}

/// The schema of values.
struct Avro {
    registry: Registry,
    schema: String,
    /// Its number, once it is registered.
    id: Option<u32>,
}

/// The clients of a query that is being written.
struct Session {
    query: QueryId,
    producer: BaseProducer<Reports>,
    /// The group whose offset is the epoch; none if epochs are not kept.
    judge: Option<ConsumerGroupMetadata>,
    last: Epoch,
    /// When an epoch was last written.
    written: Instant,
}

impl Session {
    /// Takes what the client reports.
    fn tend(&self, reports: usize) {
        (0..reports).for_each(|_| self.producer.poll(Duration::ZERO));
    }
}

/// Why an epoch was not written.
enum Failure {
    /// Nothing of it counts; it may be tried again.
    Again(KafkaError),
    /// A new client asks whether it counts, before it is tried again.
    Anew(KafkaError),
    /// It will not go, or nobody knows whether it went.
    Final(StreamError),
}

/// The messages of some rows.
struct Written {
    rows: usize,
    values: Values,
    keys: Option<Values>,
}

impl KafkaSink {
    pub(super) fn new(settings: Settings, table: &str, schema: &SchemaRef) -> Result<Self> {
        let column =
            |name: &String| schema.index_of(name).map_err(|e| StreamError::invalid(format!("'key.fields': {e}")));
        let key = match &settings.key {
            Some(key) => Some((key.fields.iter().map(column).collect::<Result<_>>()?, key.format)),
            None => None,
        };
        let op_column = settings.keyed.as_ref().map(|keyed| column(&keyed.op_column)).transpose()?;
        let columns = (0..schema.fields().len()).filter(|column| Some(*column) != op_column).collect();
        let avro = match &settings.registry {
            Some(registry) => Some(Avro { registry: registry.clone(), schema: write::schema(schema)?, id: None }),
            None => None,
        };
        let (table, given_up) = (table.to_owned(), Arc::default());
        Ok(Self { settings, table, key, op_column, columns, avro, session: None, given_up })
    }

    fn is_exact(&self) -> bool {
        self.settings.delivery == Delivery::ExactlyOnce
    }

    /// The clients of a query; it is asked which epochs the topic holds when they are made.
    fn session(&mut self, query: &QueryId) -> Result<&mut Session> {
        if self.session.as_ref().is_none_or(|session| session.query != *query) {
            self.session = None;
            self.register()?;
            self.session = Some(self.open(query)?);
        }
        self.session.as_mut().ok_or_else(|| StreamError::Internal("a sink without its clients".into()))
    }

    /// Has the registry know the schema of values.
    fn register(&mut self) -> Result<()> {
        let Some(avro) = self.avro.as_mut().filter(|avro| avro.id.is_none()) else { return Ok(()) };
        avro.id = Some(register(&avro.registry, &avro.schema, Instant::now() + PATIENCE, &self.given_up)?);
        Ok(())
    }

    fn open(&self, query: &QueryId) -> Result<Session> {
        let settings = &self.settings;
        let id = format!("{}-{query}-{}", settings.prefix, self.table);
        let group = if self.is_exact() { &id } else { &settings.group };
        let asks = reader(settings, &reader_config(settings, group))?;
        partitions(settings, &asks)?;
        let mut config = config(settings);
        for (name, value) in &settings.of_producers.0 {
            config.set(*name, value);
        }
        config
            .set("enable.idempotence", "true")
            // Keys go where those of Java's clients go.
            .set("partitioner", "murmur2_random")
            .set("queue.buffering.max.kbytes", WAITING_KIB.to_string());
        // A coordinator that says nothing is asked again, so that a query can be stopped.
        config.set("socket.timeout.ms", settings.transaction_timeout.min(PATIENCE).as_millis().to_string());
        let timeout = settings.transaction_timeout.as_millis().to_string();
        if self.is_exact() {
            config.set("transactional.id", &id).set("transaction.timeout.ms", timeout);
        } else {
            config.set("message.timeout.ms", timeout);
        }
        let made = config.create_with_context::<_, BaseProducer<Reports>>(Reports::new(settings));
        let producer = made.map_err(|error| failed(settings, "make a client to write", &error, None))?;
        if !self.is_exact() {
            return Ok(Session {
                query: query.clone(),
                producer,
                judge: None,
                last: Epoch::ZERO,
                written: Instant::now(),
            });
        }
        self.begin(&producer)?;
        let last = self.held(&asks)?;
        let group = asks.group_metadata().ok_or_else(|| StreamError::Internal("a client without its group".into()))?;
        Ok(Session { query: query.clone(), producer, judge: Some(group), last, written: Instant::now() })
    }

    /// Ends what a former process left open, and fences it.
    fn begin(&self, producer: &BaseProducer<Reports>) -> Result<()> {
        let deadline = Instant::now() + 3 * PATIENCE;
        loop {
            if self.given_up.load(Ordering::Acquire) {
                return Err(StreamError::Cancelled);
            }
            match producer.init_transactions(STEP) {
                Ok(()) => return Ok(()),
                Err(KafkaError::Transaction(error)) if error.is_retriable() && Instant::now() < deadline => {
                    producer.poll(BACK_OFF);
                }
                Err(error) => {
                    producer.poll(BACK_OFF);
                    return Err(failed(&self.settings, "write to", &error, Some(producer.context().as_ref())));
                }
            }
        }
    }

    /// The epoch that the topic holds.
    fn held(&self, asks: &Reader) -> Result<Epoch> {
        let error = |error| failed(&self.settings, "ask for the epoch of", &error, Some(asks.context().as_ref()));
        let mut of = TopicPartitionList::new();
        of.add_partition(&self.settings.topic, JUDGE);
        let held = asks.committed_offsets(of, 3 * PATIENCE).map_err(error)?;
        let held = held.find_partition(&self.settings.topic, JUDGE);
        let Some(held) = held else { return Ok(Epoch::ZERO) };
        held.error().map_err(error)?;
        match held.offset() {
            Offset::Offset(epoch) => Ok(Epoch(epoch.unsigned_abs())),
            _ => Ok(Epoch::ZERO),
        }
    }

    fn project(rows: &RecordBatch, columns: &[usize]) -> Result<RecordBatch> {
        rows.project(columns).map_err(|e| StreamError::Internal(format!("columns of a message: {e}")))
    }

    fn written(&self, rows: &[RecordBatch]) -> Result<Vec<Written>> {
        let write = |rows: &RecordBatch| {
            let keys = match &self.key {
                Some((columns, format)) => Some(format.values(&Self::project(rows, columns)?)?),
                None => None,
            };
            let columns = Self::project(rows, &self.columns)?;
            let mut values = match &self.avro {
                Some(Avro { schema, id: Some(id), .. }) => write::values(&columns, *id, schema)?,
                Some(_) => return Err(StreamError::Internal("rows of a schema without a number".into())),
                None => self.settings.format.values(&columns)?,
            };
            if let Some(column) = self.op_column {
                values = values.without(&gone(rows, column)?);
            }
            Ok(Written { rows: rows.num_rows(), values, keys })
        };
        rows.iter().filter(|rows| rows.num_rows() > 0).map(write).collect()
    }

    /// Writes an epoch, and tries again while that makes sense.
    fn write(&mut self, query: &QueryId, epoch: Epoch, messages: &[Written]) -> Result<()> {
        let given_up = Arc::clone(&self.given_up);
        let settings = self.settings.clone();
        let deadline = Instant::now() + settings.transaction_timeout;
        let (mut back_off, mut is_unsure) = (BACK_OFF, false);
        let is_over = || given_up.load(Ordering::Acquire) || Instant::now() >= deadline;
        loop {
            let session = match self.session(query) {
                Ok(session) => session,
                // Who has written before waits for brokers.
                Err(StreamError::Io { .. }) if is_unsure && !is_over() => {
                    thread::sleep(back_off);
                    back_off = (back_off * 2).min(BACK_OFF_MAX);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if is_unsure && session.last >= epoch {
                return if session.last == epoch { Ok(()) } else { Err(written_by_another(&settings)) };
            }
            let attempt = Attempt { settings: &settings, session: &*session, given_up: &given_up, deadline };
            let error = match attempt.run(epoch, messages) {
                Ok(()) => {
                    session.written = Instant::now();
                    return Ok(());
                }
                Err(Failure::Again(error)) => error,
                Err(Failure::Anew(error)) => {
                    is_unsure = true;
                    error
                }
                Err(Failure::Final(error)) => {
                    // Who writes on asks anew what the topic holds.
                    self.session = None;
                    return Err(error);
                }
            };
            if given_up.load(Ordering::Acquire) {
                return Err(StreamError::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(failed(&settings, "write to", &error, Some(session.producer.context().as_ref())));
            }
            tracing::warn!(topic = settings.topic, %query, %epoch, %error, "an epoch could not be written; it is tried again");
            session.producer.poll(back_off);
            back_off = (back_off * 2).min(BACK_OFF_MAX);
            if is_unsure {
                self.session = None;
            }
        }
    }
}

/// The partition with the offset that is the epoch.
const JUDGE: i32 = 0;

/// An epoch that is written once.
struct Attempt<'s> {
    settings: &'s Settings,
    session: &'s Session,
    given_up: &'s AtomicBool,
    deadline: Instant,
}

impl Attempt<'_> {
    fn run(&self, epoch: Epoch, messages: &[Written]) -> Result<(), Failure> {
        let Session { producer, judge, .. } = self.session;
        // What was reported before may be over.
        self.session.tend(REPORTS_OF_EPOCH);
        producer.context().well();
        let Some(group) = judge else {
            self.send(messages)?;
            return self.flush();
        };
        producer.begin_transaction().map_err(|error| self.sort(error))?;
        let written = self.send(messages).and_then(|()| self.note(epoch, group));
        if let Err(failure) = written {
            return Err(self.abort(failure));
        }
        crash_at("kafka-sink-before-commit");
        self.deliver();
        match self.patiently(|| producer.commit_transaction(STEP)) {
            Ok(()) => {}
            // It counts or it does not: the next process asks.
            Err(error) if self.is_unsure(&error) => return Err(Failure::Final(self.lost(&error))),
            Err(error @ KafkaError::Flush(_)) => return Err(self.abort(self.sort(error))),
            Err(error) => return Err(self.ask_anew(error)),
        }
        crash_at("kafka-sink-after-commit");
        Ok(())
    }

    /// Hands all messages to the client.
    fn send(&self, messages: &[Written]) -> Result<(), Failure> {
        for batch in messages {
            for row in 0..batch.rows {
                let key = batch.keys.as_ref().and_then(|keys| keys.of(row));
                self.send_one(key, batch.values.of(row))?;
            }
        }
        Ok(())
    }

    fn send_one(&self, key: Option<&[u8]>, value: Option<&[u8]>) -> Result<(), Failure> {
        let producer = &self.session.producer;
        loop {
            let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&self.settings.topic);
            if let Some(key) = key {
                record = record.key(key);
            }
            if let Some(value) = value {
                record = record.payload(value);
            }
            match producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    self.check(|| KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull))?;
                    producer.poll(WAIT);
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                    return Err(Failure::Final(self.too_long(value.map_or(0, <[u8]>::len))));
                }
                Err((error, _)) => return Err(self.sort(error)),
            }
        }
    }

    /// The epoch becomes part of the transaction.
    fn note(&self, epoch: Epoch, group: &ConsumerGroupMetadata) -> Result<(), Failure> {
        let offset =
            i64::try_from(epoch.0).map_err(|_| Failure::Final(StreamError::Internal("an epoch beyond 2^63".into())))?;
        let mut offsets = TopicPartitionList::new();
        offsets
            .add_partition_offset(&self.settings.topic, JUDGE, Offset::Offset(offset))
            .map_err(|error| self.sort(error))?;
        let producer = &self.session.producer;
        self.patiently(|| producer.send_offsets_to_transaction(&offsets, group, STEP)).map_err(|error| self.sort(error))
    }

    /// Waits until no message is under way. The library's own waiting takes a tenth of a second at a time.
    fn deliver(&self) {
        while self.session.producer.in_flight_count() > 0 && !self.is_over() {
            self.session.producer.poll(WAIT);
        }
    }

    /// All messages are there, without a transaction.
    fn flush(&self) -> Result<(), Failure> {
        let producer = &self.session.producer;
        self.deliver();
        self.patiently(|| producer.flush(STEP)).map_err(|error| self.sort(error))?;
        producer.context().unwritten().map_or(Ok(()), |code| Err(self.undelivered(code)))
    }

    /// Calls until it is done, or fails for another reason than time.
    fn patiently(&self, mut call: impl FnMut() -> KafkaResult<()>) -> KafkaResult<()> {
        loop {
            let Err(error) = call() else { return Ok(()) };
            let is_late = match &error {
                KafkaError::Flush(code) => *code == RDKafkaErrorCode::OperationTimedOut,
                KafkaError::Transaction(error) => error.is_retriable(),
                _ => false,
            };
            if !is_late || self.is_over() {
                return Err(error);
            }
            self.session.producer.poll(WAIT_FOR_BROKERS);
        }
    }

    fn is_over(&self) -> bool {
        let is_refused = self.session.producer.context().is_refused();
        is_refused || self.given_up.load(Ordering::Acquire) || Instant::now() >= self.deadline
    }

    fn check(&self, error: impl FnOnce() -> KafkaError) -> Result<(), Failure> {
        if self.is_over() { Err(Failure::Again(error())) } else { Ok(()) }
    }

    /// Gives the transaction up.
    fn abort(&self, failure: Failure) -> Failure {
        let producer = &self.session.producer;
        // What waits for a broker that is away need not be waited for.
        let aborted = self.patiently(|| producer.abort_transaction(STEP));
        let unwritten = producer.context().unwritten();
        match (failure, aborted, unwritten) {
            (Failure::Again(_), _, Some(code))
                if code == RDKafkaErrorCode::MessageSizeTooLarge || is_hopeless_to_write(code) =>
            {
                self.undelivered(code)
            }
            (failure, Ok(()), _) => failure,
            (Failure::Again(_), Err(error), _) => Failure::Final(self.lost(&error)),
            (failure, Err(_), _) => failure,
        }
    }

    /// The brokers refused a commit, which they may have done before, or was there a message that they did not take?
    fn ask_anew(&self, error: KafkaError) -> Failure {
        match (self.sort(error), self.session.producer.context().unwritten()) {
            (Failure::Again(_), Some(code))
                if code == RDKafkaErrorCode::MessageSizeTooLarge || is_hopeless_to_write(code) =>
            {
                self.undelivered(code)
            }
            (Failure::Again(error), _) => self.unless_fenced(error),
            (failure, _) => failure,
        }
    }

    /// A new client would fence whoever writes meanwhile: the brokers tell this one if it was fenced itself.
    fn unless_fenced(&self, error: KafkaError) -> Failure {
        match self.session.producer.abort_transaction(PATIENCE) {
            Err(refused) if self.is_fenced(&refused) => Failure::Final(self.lost(&refused)),
            _ => Failure::Anew(error),
        }
    }

    fn is_fenced(&self, error: &KafkaError) -> bool {
        self.fatal(error).is_some_and(is_fencing)
    }

    /// What has ended the client, or else what it was refused with.
    fn fatal(&self, error: &KafkaError) -> Option<RDKafkaErrorCode> {
        self.session.producer.client().fatal_error().map(|(code, _)| code).or_else(|| error.rdkafka_error_code())
    }

    /// What it means that a message was not taken.
    fn undelivered(&self, code: RDKafkaErrorCode) -> Failure {
        match code {
            RDKafkaErrorCode::MessageSizeTooLarge => Failure::Final(self.too_long(0)),
            code => self.sort(KafkaError::MessageProduction(code)),
        }
    }

    /// Whether an epoch may be tried again after an error.
    fn sort(&self, error: KafkaError) -> Failure {
        match &error {
            KafkaError::Transaction(cause) if cause.is_fatal() => Failure::Final(self.lost(&error)),
            _ if self.session.producer.client().fatal_error().is_some() => Failure::Final(self.lost(&error)),
            _ if self.is_hopeless(&error) => Failure::Final(self.failed(&error)),
            _ => Failure::Again(error),
        }
    }

    fn is_hopeless(&self, error: &KafkaError) -> bool {
        self.session.producer.context().is_refused() || error.rdkafka_error_code().is_some_and(is_hopeless_to_write)
    }

    fn failed(&self, error: &KafkaError) -> StreamError {
        failed(self.settings, "write to", error, Some(self.session.producer.context().as_ref()))
    }

    /// Whether a commit may have been done although it failed.
    fn is_unsure(&self, error: &KafkaError) -> bool {
        match error {
            KafkaError::Transaction(cause) => !cause.txn_requires_abort(),
            // Nothing was asked of the brokers yet.
            KafkaError::Flush(_) => false,
            _ => true,
        }
    }

    fn too_long(&self, bytes: usize) -> StreamError {
        let got = if bytes > 0 { format!("one of {bytes} bytes") } else { "a longer one".to_owned() };
        StreamError::Data {
            place: format!("topic {}", self.settings.topic),
            message: format!(
                "expected messages that the topic takes (max.message.bytes) and 'properties.max.request.size' allows, got {got}; raise the \
                 lower of the two"
            ),
        }
    }

    /// Somebody else writes, or the transaction took too long.
    fn lost(&self, error: &KafkaError) -> StreamError {
        if self.given_up.load(Ordering::Acquire) {
            return StreamError::Cancelled;
        }
        if self.is_fenced(error) { written_by_another(self.settings) } else { self.failed(error) }
    }
}

/// Whether brokers say so that another client has the transactions.
const fn is_fencing(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch)
}

fn written_by_another(settings: &Settings) -> StreamError {
    StreamError::invalid(format!(
        "topic {} is being written to by another process of the query, or an epoch took longer than 'sink.transaction-timeout' ({:?}) and \
         the brokers gave it up; end the other process, or RESUME QUERY, which goes on where the topic is",
        settings.topic, settings.transaction_timeout
    ))
}

impl Sink for KafkaSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        let last = self.session(query)?.last;
        Ok((self.is_exact() && last > Epoch::ZERO).then_some(last))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let is_exact = self.is_exact();
        if epoch <= self.session(query)?.last {
            return Ok(());
        }
        let messages = self.written(rows)?;
        if is_exact || !messages.is_empty() {
            self.write(query, epoch, &messages)?;
        }
        self.session(query)?.last = epoch;
        Ok(())
    }

    /// Every epoch is there when its commit has returned.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        self.settings.delivery
    }

    fn remote(&self) -> Option<Remote> {
        let given_up = Arc::clone(&self.given_up);
        Some(Remote { renew_after: TEND_EVERY, give_up: Arc::new(move || given_up.store(true, Ordering::Release)) })
    }

    fn renew(&mut self, query: &QueryId) -> Result<()> {
        let session = self.session(query)?;
        session.tend(REPORTS);
        let (last, is_due) = (session.last, session.written.elapsed() >= RENEW_AFTER);
        if is_due && self.is_exact() && last > Epoch::ZERO { self.write(query, last, &[]) } else { Ok(()) }
    }
}
