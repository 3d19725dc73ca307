//! Clients of brokers: how they are set up, what they report, and what an error means to a user.

use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryResult, ProducerContext};
use savanna_streams_api::{Result, StreamError};

use super::settings::Settings;

/// So long a query that starts waits for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// So long a topic may not be known to all brokers that was just made.
const NEWS_TAKE: Duration = Duration::from_secs(1);
/// What brokers do again and again is logged once in so long.
const WARN_EVERY: Duration = Duration::from_secs(60);

thread_local! {
    /// The words to the last error that a call of the client library gave this thread.
    static REASON: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The words to the error that a call has just given this thread: the error itself has none.
pub(super) fn reason() -> String {
    REASON.with_borrow(Clone::clone)
}

/// The offset at which a partition has no message, by the words that tell of it: `Fetch from broker 1 reached end of partition at offset
/// 950 (HighwaterMark 950)`.
pub(super) fn end_told(reason: &str) -> Option<i64> {
    let (_, offset) = reason.split_once("reached end of partition at offset ")?;
    offset.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// What a client reports.
#[derive(Default)]
pub(super) struct Reports {
    topic: String,
    /// The last error, in words.
    last: Mutex<Option<(RDKafkaErrorCode, String)>>,
    /// Why a message could not be written.
    unwritten: Mutex<Option<RDKafkaErrorCode>>,
    warned: Mutex<Option<Instant>>,
}

impl Reports {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { topic: settings.topic.clone(), ..Self::default() }
    }

    /// Whether the brokers do not let the user in.
    pub(super) fn is_refused(&self) -> bool {
        self.last.lock().as_ref().is_some_and(|(code, _)| is_log_in(*code))
    }

    /// Something went well: what was reported before is over.
    pub(super) fn well(&self) {
        *self.last.lock() = None;
    }

    /// Why a message could not be written since this was last asked.
    pub(super) fn unwritten(&self) -> Option<RDKafkaErrorCode> {
        self.unwritten.lock().take()
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(topic = self.topic, ?level, facility, message, "Kafka's client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        REASON.set(reason.to_owned());
        let code = meant(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown), reason);
        // That all are gone tells less than why one of them is.
        let tells_less = code == RDKafkaErrorCode::AllBrokersDown && self.last.lock().is_some();
        if tells_less || code == RDKafkaErrorCode::PartitionEOF {
            return;
        }
        *self.last.lock() = Some((code, reason.to_owned()));
        let mut warned = self.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(
                topic = self.topic,
                reason,
                "a broker of Kafka does not do what it should; its client tries again"
            );
        }
    }
}

impl ConsumerContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
            self.unwritten.lock().get_or_insert(code);
        }
    }
}

/// A client that reads.
pub(super) type Reader = BaseConsumer<Reports>;

/// What all clients have in common.
pub(super) fn config(settings: &Settings) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (name, value) in &settings.of_clients.0 {
        config.set(*name, value);
    }
    config.set("socket.keepalive.enable", "true").set("socket.nagle.disable", "true");
    config.set_log_level(RDKafkaLogLevel::Warning);
    config
}

/// A client that reads, as a member of no group: `group` is only a name.
pub(super) fn reader_config(settings: &Settings, group: &str) -> ClientConfig {
    let mut config = config(settings);
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("allow.auto.create.topics", "false")
        .set("isolation.level", "read_committed")
        // A place that is not there any more is an error: another one would lose rows or give them twice.
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true");
    config
}

/// Makes a client that reads.
pub(super) fn reader(settings: &Settings, config: &ClientConfig) -> Result<Reader> {
    config.create_with_context(Reports::new(settings)).map_err(|error| failed(settings, "make a client", &error, None))
}

/// How many partitions the table's topic has.
///
/// # Errors
/// The brokers cannot be reached, or there is no such topic.
pub(super) fn partitions(settings: &Settings, client: &Reader) -> Result<usize> {
    let begun = Instant::now();
    let deadline = begun + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let found = match client.fetch_metadata(Some(&settings.topic), left) {
            Ok(metadata) => metadata.topics().first().map_or(Ok(0), |topic| match topic.error() {
                Some(error) => Err(KafkaError::MetadataFetch(error.into())),
                None => Ok(topic.partitions().len()),
            }),
            Err(error) => Err(error),
        };
        match found {
            Ok(count) if count > 0 => {
                client.context().well();
                return Ok(count);
            }
            // It is being made.
            Ok(_) | Err(KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable))
                if Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(KafkaError::MetadataFetch(code)) if is_unknown(code) && begun.elapsed() < NEWS_TAKE => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(_) => return Err(unknown_topic(settings)),
            Err(error) => return Err(failed_reading(settings, "look for the topic", &error, client)),
        }
    }
}

/// What an error of a client that reads means; what it has reported meanwhile is part of it.
fn failed_reading(settings: &Settings, what: &str, error: &KafkaError, client: &Reader) -> StreamError {
    const REPORTS: usize = 20;
    for _ in 0..REPORTS {
        // Partitions that are read have queues of their own, so only reports come.
        drop(client.poll(Duration::ZERO));
    }
    failed(settings, what, error, Some(client.context().as_ref()))
}

/// What an error means.
pub(super) fn failed(settings: &Settings, what: &str, error: &KafkaError, reports: Option<&Reports>) -> StreamError {
    let last = reports.and_then(|reports| reports.last.lock().clone());
    let code = error.rdkafka_error_code();
    // Of these, the call itself hears that no broker could be reached.
    let tells_more = |code: &RDKafkaErrorCode| is_log_in(*code) || *code == RDKafkaErrorCode::SSL;
    let told = last.as_ref().map(|(code, _)| *code).filter(tells_more).or(code);
    let Settings { topic, servers, user, .. } = settings;
    match told {
        Some(code) if is_unknown(code) => unknown_topic(settings),
        Some(code) if is_log_in(code) => StreamError::Denied {
            message: format!(
                "Kafka at {servers} does not let user '{user}' in ({}); correct 'properties.sasl.username' and 'properties.sasl.password', or the \
                 brokers' users",
                last.map_or_else(|| code.to_string(), |(_, reason)| reason)
            ),
        },
        Some(code) if is_denied(code) => StreamError::Denied {
            message: format!(
                "Kafka at {servers} does not let user '{user}' {what} {topic} ({code}); grant it to that user, or choose another"
            ),
        },
        Some(code) if is_refused_for_good(code) => StreamError::Data {
            place: format!("topic {topic}"),
            message: format!(
                "expected messages that the topic takes, and it refuses them ({code}); a topic whose cleanup.policy is compact wants 'key.fields'"
            ),
        },
        Some(RDKafkaErrorCode::InvalidTransactionTimeout) => StreamError::invalid(format!(
            "expected a 'sink.transaction-timeout' of at most the brokers' transaction.max.timeout.ms (15 min unless they say otherwise), got {:?}",
            settings.transaction_timeout
        )),
        Some(RDKafkaErrorCode::SSL) => {
            let reason = last.map_or_else(|| Words(error).to_string(), |(_, reason)| reason);
            let cause = format!(
                "{reason}; correct 'properties.security.protocol', 'properties.ssl.truststore.certificates' or 'properties.bootstrap.servers', or \
                 the brokers' certificates"
            );
            StreamError::io(format!("{what} {topic} in Kafka at {servers} by TLS"), &cause)
        }
        _ => {
            let reason = last.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
            let cause = format!(
                "{}{reason}; look whether the brokers are up, and whether 'properties.bootstrap.servers' names them",
                Words(error)
            );
            StreamError::io(format!("{what} {topic} in Kafka at {servers}"), &cause)
        }
    }
}

fn unknown_topic(settings: &Settings) -> StreamError {
    StreamError::invalid(format!(
        "topic {} does not exist in Kafka at {}; make it, or correct 'topic'",
        settings.topic, settings.servers
    ))
}

/// Whether the topic or partition is not there.
fn is_unknown(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{UnknownPartition, UnknownTopic, UnknownTopicOrPartition};
    matches!(code, UnknownTopic | UnknownTopicOrPartition | UnknownPartition)
}

/// Whether it is no use to write again. That a broker does not know the topic passes: it may have just begun. Whether there is none is what the
/// library says when it looks again, which is every 5 min.
pub(super) fn is_hopeless_to_write(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{UnknownPartition, UnknownTopic};
    is_log_in(code) || is_denied(code) || is_refused_for_good(code) || matches!(code, UnknownTopic | UnknownPartition)
}

/// Whether a topic never takes such messages.
fn is_refused_for_good(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{InvalidRecord, InvalidTimestamp, PolicyViolation, UnsupportedForMessageFormat};
    matches!(code, InvalidRecord | InvalidTimestamp | PolicyViolation | UnsupportedForMessageFormat)
}

/// What an error is, by its words. A connection that ends while a user logs in is told as if the user were not let in: the broker goes, or
/// comes.
pub(super) fn meant(code: RDKafkaErrorCode, reason: &str) -> RDKafkaErrorCode {
    if is_log_in(code) && reason.contains("handshake failed: Local:") {
        RDKafkaErrorCode::BrokerTransportFailure
    } else {
        code
    }
}

/// Whether the user is not let in.
fn is_log_in(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed)
}

/// Whether the user may not do this.
fn is_denied(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{
        ClusterAuthorizationFailed, GroupAuthorizationFailed, TopicAuthorizationFailed,
        TransactionalIdAuthorizationFailed,
    };
    matches!(
        code,
        TopicAuthorizationFailed
            | GroupAuthorizationFailed
            | ClusterAuthorizationFailed
            | TransactionalIdAuthorizationFailed
    )
}

/// Whether it is no use to try again. (That the group may not be used hinders nobody who reads.)
pub(super) fn is_hopeless(code: RDKafkaErrorCode) -> bool {
    is_unknown(code) || is_log_in(code) || code == RDKafkaErrorCode::TopicAuthorizationFailed
}

/// Whether an error of reading passes by itself: the library tries again and leaves nothing out. It goes on behind what it cannot decode.
pub(super) fn passes(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{
        AllBrokersDown, BrokerNotAvailable, BrokerTransportFailure, CoordinatorLoadInProgress, CoordinatorNotAvailable,
        FencedLeaderEpoch, FetchSessionIdNotFound, GroupAuthorizationFailed, InvalidFetchSessionEpoch,
        KafkaStorageError, LeaderNotAvailable, ListenerNotFound, NetworkException, NotCoordinator,
        NotLeaderForPartition, OffsetNotAvailable, OperationTimedOut, PreferredLeaderNotAvailable, ReplicaNotAvailable,
        RequestTimedOut, Resolve, ThrottlingQuotaExceeded, Unknown, UnknownLeaderEpoch, UnknownTopicId,
        WaitingForCoordinator,
    };
    matches!(
        code,
        AllBrokersDown
            | BrokerNotAvailable
            | BrokerTransportFailure
            | CoordinatorLoadInProgress
            | CoordinatorNotAvailable
            | FencedLeaderEpoch
            | FetchSessionIdNotFound
            // It hinders nobody who reads.
            | GroupAuthorizationFailed
            | InvalidFetchSessionEpoch
            | KafkaStorageError
            | LeaderNotAvailable
            | ListenerNotFound
            | NetworkException
            | NotCoordinator
            | NotLeaderForPartition
            | OffsetNotAvailable
            | OperationTimedOut
            | PreferredLeaderNotAvailable
            | ReplicaNotAvailable
            | RequestTimedOut
            | Resolve
            | ThrottlingQuotaExceeded
            | Unknown
            | UnknownLeaderEpoch
            | UnknownTopicId
            | WaitingForCoordinator
    )
}

/// The library's words for an error.
pub(super) struct Words<'e>(pub(super) &'e KafkaError);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.0.rdkafka_error_code()) {
            (KafkaError::Transaction(error), _) => f.write_str(&error.string()),
            // Not its value, which may be a secret.
            (KafkaError::ClientConfig(_, cause, name, _), _) => write!(f, "{cause} ({name})"),
            (_, Some(code)) => write!(f, "{code}"),
            (error, None) => write!(f, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_leaves_out_does_not_pass() {
        use RDKafkaErrorCode::{BadCompression, BadMessage, InvalidMessage, MessageSizeTooLarge, NotImplemented};
        for code in [BadMessage, BadCompression, InvalidMessage, MessageSizeTooLarge, NotImplemented] {
            assert!(!passes(code), "{code}");
        }
        assert!(passes(RDKafkaErrorCode::BrokerTransportFailure));
    }

    #[test]
    fn a_broker_that_goes_while_a_user_logs_in_refuses_nobody() {
        let refused = RDKafkaErrorCode::Authentication;
        let gone = "sasl_plaintext://h:1/1: SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported mechanisms: ";
        assert!(!is_hopeless(meant(refused, gone)));
        let unknown =
            "sasl_plaintext://h:1/1: SASL authentication error: Authentication failed: Invalid username or password";
        assert!(is_hopeless(meant(refused, unknown)));
        let other = "SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: SCRAM";
        assert!(is_hopeless(meant(refused, other)));
    }

    #[test]
    fn what_went_well_ends_what_was_reported() {
        let reports = Reports::default();
        reports.error(KafkaError::Global(RDKafkaErrorCode::Authentication), "refused");
        assert!(reports.last.lock().is_some());
        reports.well();
        assert!(reports.last.lock().is_none());
    }

    #[test]
    fn the_end_of_a_partition_is_where_the_library_says() {
        let told = "Fetch from broker 1 reached end of partition at offset 950 (HighwaterMark 1000)";
        assert_eq!(end_told(told), Some(950));
        assert_eq!(end_told("Broker: Unknown error"), None);
    }
}
