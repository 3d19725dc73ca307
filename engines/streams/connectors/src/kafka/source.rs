//! A topic that is read: one client for all partitions, and a reader for each.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
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
/// How often it is looked whether the topic has more partitions.
const LOOK_EVERY: Duration = Duration::from_secs(60);
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

    fn open(
        &self,
        scan: &ScanSpec,
        partition: usize,
        partitions: usize,
        from: Option<&Offset>,
    ) -> Result<Box<dyn SourceReader>> {
        let count = self.topics.partitions(&self.settings)?;
        if count != partitions {
            return Err(other_partitions(&self.settings, partitions, count));
        }
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

fn other_partitions(settings: &Settings, expected: usize, found: usize) -> StreamError {
    StreamError::invalid(format!(
        "topic {} has {found} partitions now, but the query reads {expected}: rows of the others would be missing; drop the query, and start \
         another one where it ends ('scan.startup.mode' = 'timestamp')",
        settings.topic
    ))
}

/// A client that reads the partitions of a topic.
pub(super) struct TopicClient {
    pub(super) settings: Settings,
    pub(super) reader: Arc<Reader>,
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
        Ok(Self { settings, reader, watch })
    }

    /// # Errors
    /// It is no use to read on.
    pub(super) fn check(&self) -> Result<()> {
        self.watch.failed.lock().clone().map_or(Ok(()), Err)
    }

    /// The first message of a partition that is there, and the offset behind the last one that was committed.
    pub(super) fn bounds(&self, partition: i32) -> Result<(i64, i64)> {
        let found = self.reader.fetch_watermarks(&self.settings.topic, partition, PATIENCE);
        found.map_err(|error| self.failed("look for the messages of", &error))
    }

    /// Where a new query begins in a partition, and ends.
    fn beginning(&self, partition: i32) -> Result<Place> {
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
        let mut looked = Instant::now();
        while !self.is_over() {
            if let Some(Err(error)) = self.reader.poll(POLL)
                && self.is_final(&error)
            {
                let told = failed(&self.settings, "read", &error, Some(self.reader.context().as_ref()));
                return self.fail(told);
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                match partitions(&self.settings, &self.reader) {
                    Ok(count) if count != self.partitions => {
                        return self.fail(other_partitions(&self.settings, self.partitions, count));
                    }
                    Err(error @ StreamError::Denied { .. }) => return self.fail(error),
                    // Whether it is there is told by those who read it.
                    _ => {}
                }
            }
        }
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
