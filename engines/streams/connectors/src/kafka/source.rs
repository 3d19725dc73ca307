//! A topic that is read: one client for all partitions, and a reader for each.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::{Offset, Repeats, ScanSpec, Source, SourceReader};

use super::client::{PATIENCE, Reader, Words, failed, is_hopeless, meant, partitions, reader, reader_config, reason};
use super::place::Place;
use super::reader::PartitionReader;
use super::schemas::Schemas;
use super::settings::{Settings, Startup};
use super::topics::Topics;

/// Values of messages that were fetched and not read yet take so much memory, in KiB, over all partitions of a table.
const FETCHED_KIB: usize = 64 << 10;
/// The same for one partition, at least.
const FETCHED_KIB_MIN: usize = 64;
/// What a fetched message takes beside its value, in bytes, rounded up: that is not counted by the library, so their number has a bound, too.
const BESIDE_THE_VALUE: usize = 512;
/// So many fetched messages wait in a partition, at least and at most.
const FETCHED_MESSAGES: RangeInclusive<usize> = 100..=100_000;
/// A fetch brings so much of one partition at most, in KiB, unless a batch of messages is longer.
const FETCH_KIB: RangeInclusive<usize> = 4..=1 << 10;
/// After so long it is looked for the first time, and again where there seem to be fewer partitions than before.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// So long a new partition is waited for.
const ASK: Duration = Duration::from_secs(2);
/// So long the thread that looks waits for what the client reports.
const POLL: Duration = Duration::from_millis(100);

/// A table that is read.
pub(super) struct KafkaSource {
    settings: Settings,
    topics: Arc<Topics>,
    client: Mutex<Option<Arc<TopicClient>>>,
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSource").field("topic", &self.settings.topic).finish_non_exhaustive()
    }
}

impl KafkaSource {
    pub(super) fn new(settings: Settings, topics: Arc<Topics>) -> Self {
        Self { settings, topics, client: Mutex::new(None) }
    }

    /// The client of all partitions.
    fn client(&self, partitions: usize) -> Result<Arc<TopicClient>> {
        let mut client = self.client.lock();
        if let Some(client) = &*client {
            return Ok(Arc::clone(client));
        }
        let made = Arc::new(TopicClient::start(self.settings.clone(), partitions)?);
        Ok(Arc::clone(client.insert(made)))
    }
}

impl Source for KafkaSource {
    fn bounded(&self) -> bool {
        self.settings.bounded
    }

    fn replayable(&self) -> bool {
        true
    }

    /// A partition gives the same messages in the same order.
    fn repeats(&self) -> Repeats {
        Repeats::ByEvents
    }

    /// Those of the topic, however many are wanted: each has a place and a watermark of its own.
    fn partitions(&self, _: usize) -> Result<usize> {
        self.topics.partitions(&self.settings)
    }

    fn partitions_again(&self, _: usize, known: usize) -> Result<usize> {
        let begun = Instant::now();
        loop {
            match self.topics.partitions_now(&self.settings)? {
                found if found >= known => return Ok(found),
                found if begun.elapsed() >= PATIENCE => return Err(fewer_partitions(&self.settings, known, found)),
                _ => thread::sleep(LOOK_AGAIN),
            }
        }
    }

    /// Topics may get more partitions while they are read.
    fn grows(&self) -> bool {
        true
    }

    fn open(
        &self,
        scan: &ScanSpec,
        partition: usize,
        partitions: usize,
        from: Option<&Offset>,
    ) -> Result<Box<dyn SourceReader>> {
        let number = i32::try_from(partition)
            .map_err(|_| StreamError::Internal("a partition has a number of 31 bits".into()))?;
        let client = self.client(partitions)?;
        let place = match from {
            Some(offset) => Place::of(offset, number)?,
            None => client.beginning(number)?,
        };
        Ok(Box::new(PartitionReader::new(client, scan, place, from.is_none())?))
    }
}

/// Kafka takes none away: it is another topic.
fn fewer_partitions(settings: &Settings, expected: usize, found: usize) -> StreamError {
    StreamError::invalid(format!(
        "topic {} has {found} partitions now, but the query has read {expected}: it was deleted and made anew; drop the query, and start it again",
        settings.topic
    ))
}

/// The first message of a partition that came to be. One whose broker does not answer begins where all do: it has rows when that is back.
fn first_of(settings: &Settings, reader: &Reader, partition: i32) -> i64 {
    match reader.fetch_watermarks(&settings.topic, partition, ASK) {
        Ok((first, _)) => first,
        Err(error) => {
            let error = Words(&error).to_string();
            tracing::warn!(
                topic = settings.topic,
                partition,
                error,
                "a new partition does not answer; it is read from its beginning"
            );
            0
        }
    }
}

/// A client that reads the partitions of a topic.
pub(super) struct TopicClient {
    pub(super) settings: Settings,
    pub(super) reader: Arc<Reader>,
    /// How many partitions the query had.
    partitions: usize,
    /// The schemas of the messages, if they have some.
    pub(super) schemas: Option<Arc<Schemas>>,
    watch: Arc<Watch>,
}

/// What may be fetched of a partition before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fetched {
    /// Of values.
    kib: usize,
    messages: usize,
    /// Of values, by one fetch, which may come on top.
    at_once_kib: usize,
}

impl Fetched {
    /// The share of each of so many partitions.
    fn of(partitions: usize) -> Self {
        let within = |range: &RangeInclusive<usize>, value: usize| value.clamp(*range.start(), *range.end());
        let kib = FETCHED_KIB / partitions.max(1);
        Self {
            kib: kib.max(FETCHED_KIB_MIN),
            messages: within(&FETCHED_MESSAGES, (kib << 10) / BESIDE_THE_VALUE),
            at_once_kib: within(&FETCH_KIB, kib / 32),
        }
    }
}

/// What the thread beside the readers finds.
#[derive(Default)]
struct Watch {
    failed: Mutex<Option<StreamError>>,
    /// The first messages of partitions that came to be.
    joined: Mutex<BTreeMap<i32, i64>>,
    /// How many there are with these; 0 if none came to be.
    partitions: AtomicUsize,
}

impl TopicClient {
    fn start(settings: Settings, partitions: usize) -> Result<Self> {
        let mut config = reader_config(&settings, &settings.group);
        let Fetched { kib, messages, at_once_kib } = Fetched::of(partitions);
        config
            .set("queued.max.messages.kbytes", kib.to_string())
            .set("queued.min.messages", messages.to_string())
            .set("fetch.message.max.bytes", (at_once_kib << 10).to_string())
            // A partition whose messages wait is asked for more soon after they were taken.
            .set("fetch.queue.backoff.ms", "10")
            .set("enable.partition.eof", settings.bounded.to_string());
        let (reader, watch) = (Arc::new(reader(&settings, &config)?), Arc::<Watch>::default());
        let watching =
            Watching { settings: settings.clone(), partitions, reader: Arc::clone(&reader), watch: Arc::clone(&watch) };
        thread::Builder::new()
            .name("kafka-watch".into())
            .spawn(move || watching.run())
            .map_err(|e| StreamError::io("start a thread to watch a topic", &e))?;
        let schemas = settings.registry.clone().map(Schemas::new);
        Ok(Self { settings, reader, partitions, schemas, watch })
    }

    /// # Errors
    /// It is no use to read on.
    pub(super) fn check(&self) -> Result<()> {
        self.watch.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// How many partitions the topic has, if some came to be.
    pub(super) fn partitions(&self) -> Option<usize> {
        Some(self.watch.partitions.load(Ordering::Acquire)).filter(|count| *count > 0)
    }

    /// The first message of a partition that is there, and the offset behind the last one that was committed.
    pub(super) fn bounds(&self, partition: i32) -> Result<(i64, i64)> {
        let found = self.reader.fetch_watermarks(&self.settings.topic, partition, PATIENCE);
        found.map_err(|error| self.failed("look for the messages of", &error))
    }

    /// Where a new query begins in a partition, and ends.
    fn beginning(&self, partition: i32) -> Result<Place> {
        // One that came to be since the query began has nothing that it would leave out.
        if let Some(first) = self.watch.joined.lock().get(&partition) {
            return Ok(Place::at(partition, *first, None));
        }
        if usize::try_from(partition).is_ok_and(|number| number >= self.partitions) && !self.settings.bounded {
            return Ok(Place::at(partition, first_of(&self.settings, &self.reader, partition), None));
        }
        let (first, behind) = self.bounds(partition)?;
        let begin = match self.settings.startup {
            Startup::Earliest => first,
            Startup::Latest => behind,
            Startup::Timestamp(at) => self.offset_at(partition, at)?.unwrap_or(behind),
        };
        Ok(Place::at(partition, begin, self.settings.bounded.then_some(behind)))
    }

    /// The first message that is not older; none if all are.
    fn offset_at(&self, partition: i32, timestamp: i64) -> Result<Option<i64>> {
        let wanted = || self.failed("look for the messages of", &KafkaError::Canceled);
        let mut times = TopicPartitionList::new();
        times
            .add_partition_offset(&self.settings.topic, partition, KafkaOffset::Offset(timestamp))
            .map_err(|error| self.failed("look for the messages of", &error))?;
        let found = self.reader.offsets_for_times(times, PATIENCE);
        let found = found.map_err(|error| self.failed("look for the messages of", &error))?;
        let found = found.find_partition(&self.settings.topic, partition).ok_or_else(wanted)?;
        found.error().map_err(|error| self.failed("look for the messages of", &error))?;
        match found.offset() {
            KafkaOffset::Offset(offset) => Ok(Some(offset)),
            _ => Ok(None),
        }
    }

    fn failed(&self, what: &str, error: &KafkaError) -> StreamError {
        failed(&self.settings, what, error, Some(self.reader.context().as_ref()))
    }
}

/// Takes what the client reports, and looks at the topic now and then.
struct Watching {
    settings: Settings,
    partitions: usize,
    reader: Arc<Reader>,
    watch: Arc<Watch>,
}

impl Watching {
    fn run(self) {
        self.look();
        // The client ends with the last who has it, and that takes a while: it is to be this thread, and none that reads for others, too.
        while !self.is_over() {
            thread::sleep(POLL);
        }
    }

    /// Nobody else has the client any more.
    fn is_over(&self) -> bool {
        Arc::strong_count(&self.reader) == 1
    }

    fn look(&self) {
        // Not at once: who opens a partition meanwhile needs what the client reports.
        let (mut known, mut looked, mut wait) = (self.partitions, Instant::now(), LOOK_AGAIN);
        let mut fewer_since = None;
        while !self.is_over() {
            if let Some(Err(error)) = self.reader.poll(POLL)
                && self.is_final(&error)
            {
                let told = failed(&self.settings, "read", &error, Some(self.reader.context().as_ref()));
                return self.fail(told);
            }
            if looked.elapsed() >= wait {
                (looked, wait) = (Instant::now(), self.settings.discovery);
                match partitions(&self.settings, &self.reader) {
                    // A broker that has not heard of the last ones yet says so as well.
                    Ok(count) if count < known => {
                        if fewer_since.get_or_insert(looked).elapsed() >= PATIENCE {
                            return self.fail(fewer_partitions(&self.settings, known, count));
                        }
                        wait = LOOK_AGAIN;
                    }
                    // What is bounded ends where it did when the query began.
                    Ok(count) if count > known && !self.settings.bounded => {
                        self.found(known, count);
                        (known, fewer_since) = (count, None);
                    }
                    Err(error @ StreamError::Denied { .. }) => return self.fail(error),
                    Ok(_) => fewer_since = None,
                    // Whether it is there is told by those who read it.
                    Err(_) => {}
                }
            }
        }
    }

    /// Partitions came to be.
    fn found(&self, known: usize, count: usize) {
        let new = (known..count).filter_map(|number| i32::try_from(number).ok());
        let firsts: BTreeMap<i32, i64> =
            new.map(|number| (number, first_of(&self.settings, &self.reader, number))).collect();
        tracing::info!(topic = self.settings.topic, known, count, "a topic has more partitions");
        self.watch.joined.lock().extend(firsts);
        self.watch.partitions.store(count, Ordering::Release);
    }

    fn is_final(&self, error: &KafkaError) -> bool {
        let fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
        if !fatal {
            tracing::debug!(topic = self.settings.topic, error = %Words(error), "Kafka's client reports");
        }
        fatal || error.rdkafka_error_code().is_some_and(|code| is_hopeless(meant(code, &reason())))
    }

    fn fail(&self, error: StreamError) {
        self.watch.failed.lock().get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_share_the_memory_of_a_table() {
        assert_eq!(Fetched::of(1), Fetched { kib: 64 << 10, messages: 100_000, at_once_kib: 1 << 10 });
        assert_eq!(Fetched::of(64), Fetched { kib: 1 << 10, messages: 2_048, at_once_kib: 32 });
        assert_eq!(Fetched::of(10_000), Fetched { kib: 64, messages: 100, at_once_kib: 4 });
    }
}
