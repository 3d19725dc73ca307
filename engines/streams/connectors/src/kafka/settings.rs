//! The options of a table in Kafka.

use std::fmt;
use std::time::{Duration, SystemTime};

use arrow::datatypes::DataType;
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::Delivery;
use savanna_streams_model::time::parse_duration;

use crate::format::keyed::Keyed;
use crate::format::malformed::OnError;
use crate::format::messages::MessageFormat;
use crate::format::{CSV_DELIMITER, CSV_HEADER, CSV_QUOTE, declares_none};
use crate::options::{Kind, OptionSpec, Options, Presence, instant_ms};

/// The connector's name.
pub(super) const NAME: &str = "kafka";

const fn option(name: &'static str, kind: Kind, presence: Presence, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind, presence, help }
}

pub(super) const OPTIONS: &[OptionSpec] = &[
    option("topic", Kind::Text, Presence::Required, "The topic. It has to be there."),
    option(
        "properties.bootstrap.servers",
        Kind::Text,
        Presence::Required,
        "Brokers to ask first: 'host:port', several with commas between them.",
    ),
    option(
        "format",
        Kind::Choice(MessageFormat::NAMES_OF_VALUES),
        Presence::Required,
        "What a message holds: a JSON object, a line of CSV, or the only column, of VARCHAR or BYTES, as it is; 'debezium-json' of a table that is \
         read: a change, as Debezium writes it; 'avro-confluent': a record of Avro whose schema is in a registry.",
    ),
    option(
        REGISTRY,
        Kind::Text,
        Presence::Optional,
        "Of 'avro-confluent': where the registry of schemas is: 'http://host:8081'.",
    ),
    option(
        SUBJECT,
        Kind::Text,
        Presence::Optional,
        "Of 'avro-confluent': the name under which the schema of written messages is registered; 'TOPIC-value' if it is not given.",
    ),
    option(
        USER_INFO,
        Kind::Text,
        Presence::Optional,
        "Of 'avro-confluent': who asks the registry: 'user:password'. It is not shown.",
    ),
    option(
        OP_COLUMN,
        Kind::Text,
        Presence::Optional,
        "The column of VARCHAR that says what happened to a row. Of 'debezium-json': 'read', 'insert', 'update_before', 'update_after' or 'delete'; \
         of 'json' with 'key.fields': 'upsert' or 'delete', which is a message without a value.",
    ),
    option(
        "scan.startup.mode",
        Kind::Choice(&["earliest", "earliest-offset", "latest", "latest-offset", "timestamp"]),
        Presence::Default("earliest"),
        "Where a new query begins: at the first message, behind the last one, or at 'scan.startup.timestamp-millis'.",
    ),
    option(
        "scan.startup.timestamp-millis",
        Kind::Instant,
        Presence::Optional,
        "The first messages that are read are not older than this, by the time that Kafka keeps with them.",
    ),
    option(
        "scan.bounded.mode",
        Kind::Choice(&["unbounded", "latest-offset"]),
        Presence::Default("unbounded"),
        "'latest-offset': the table ends behind the message that is the last one when the query begins.",
    ),
    option(
        DISCOVERY,
        Kind::Duration,
        Presence::Default("60s"),
        "How often it is looked whether the topic has more partitions, which then join the query.",
    ),
    option(
        ON_ERROR,
        Kind::Choice(&["fail", "skip"]),
        Presence::Default("fail"),
        "What happens to a malformed message: the query fails, or it is skipped and counted.",
    ),
    option(KEY_FIELDS, Kind::Text, Presence::Optional, "Columns that make the key of messages, with ';' between them."),
    option(
        KEY_FORMAT,
        Kind::Choice(MessageFormat::NAMES),
        Presence::Optional,
        "What a key holds; as 'format' if it is not given.",
    ),
    option(
        "sink.delivery-guarantee",
        Kind::Choice(&["exactly-once", "at-least-once"]),
        Presence::Default("exactly-once"),
        "'exactly-once': each epoch is a transaction. 'at-least-once': none; quicker, and rows of the last epochs may come again.",
    ),
    option(
        "sink.transactional-id-prefix",
        Kind::Text,
        Presence::Default("savanna"),
        "How the transactional ids and groups of the queries begin that write the topic.",
    ),
    option(
        TRANSACTION_TIMEOUT,
        Kind::Duration,
        Presence::Default("5min"),
        "For so long brokers may be away when an epoch is written; then the query fails. At most their transaction.max.timeout.ms.",
    ),
    option(
        "properties.client.id",
        Kind::Text,
        Presence::Default("savanna"),
        "The name in the brokers' logs and quotas.",
    ),
    option("properties.client.rack", Kind::Text, Presence::Optional, "Where this node is; replicas near it are read."),
    option(
        "properties.group.id",
        Kind::Text,
        Presence::Default("savanna"),
        "A group that the brokers let this user name. Nothing is kept in it, and nobody joins it.",
    ),
    option(
        PROTOCOL,
        Kind::Choice(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
        Presence::Default("PLAINTEXT"),
        "How brokers are talked to: 'SSL' and 'SASL_SSL' by TLS, 'SASL_..' with a user that logs in.",
    ),
    option(
        "properties.sasl.mechanism",
        Kind::Choice(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        Presence::Default("PLAIN"),
        "How the user logs in.",
    ),
    option(USERNAME, Kind::Text, Presence::Optional, "The user."),
    option(PASSWORD, Kind::Text, Presence::Optional, "The password. It is not shown."),
    option(
        AUTHORITIES,
        Kind::Text,
        Presence::Optional,
        "The certificates of authorities that the brokers' are looked at by, as PEM; those that the system trusts if they are not given.",
    ),
    option(CERTIFICATE, Kind::Text, Presence::Optional, "A certificate to be known by, with its chain, as PEM."),
    option(PRIVATE_KEY, Kind::Text, Presence::Optional, "Its private key, as PEM. It is not shown."),
    option(KEY_PASSWORD, Kind::Text, Presence::Optional, "What the private key is encrypted with. It is not shown."),
    option(
        HOST_CHECK,
        Kind::Choice(&["https", "none"]),
        Presence::Default("https"),
        "Whether the brokers' certificates have to be for their hosts.",
    ),
    option(
        "properties.compression.type",
        Kind::Choice(&["none", "gzip", "snappy", "lz4"]),
        Presence::Default("none"),
        "How written messages are compressed.",
    ),
    option(
        "properties.linger.ms",
        Kind::Integer { min: 0, max: 900_000 },
        Presence::Default("5"),
        "For so long written messages wait for others to be sent along with.",
    ),
    option(
        "properties.max.request.size",
        Kind::Integer { min: 1_000, max: LONGEST },
        Presence::Default("1000000"),
        "The longest message that is written, in bytes.",
    ),
    CSV_DELIMITER,
    CSV_QUOTE,
];

/// The longest message that can be written, in bytes: it has to fit into the memory of those that wait to be sent.
pub(super) const LONGEST: i64 = 32_000_000;

const DISCOVERY: &str = "scan.topic-partition-discovery.interval";
const ON_ERROR: &str = "on-error";
const OP_COLUMN: &str = "op.column";
const REGISTRY: &str = "avro-confluent.url";
const SUBJECT: &str = "avro-confluent.subject";
const USER_INFO: &str = "avro-confluent.basic-auth.user-info";
const KEY_FIELDS: &str = "key.fields";
const KEY_FORMAT: &str = "key.format";
const TRANSACTION_TIMEOUT: &str = "sink.transaction-timeout";
const PROTOCOL: &str = "properties.security.protocol";
const USERNAME: &str = "properties.sasl.username";
const PASSWORD: &str = "properties.sasl.password";
const AUTHORITIES: &str = "properties.ssl.truststore.certificates";
const CERTIFICATE: &str = "properties.ssl.keystore.certificate.chain";
const PRIVATE_KEY: &str = "properties.ssl.keystore.key";
const KEY_PASSWORD: &str = "properties.ssl.key.password";
const HOST_CHECK: &str = "properties.ssl.endpoint.identification.algorithm";

/// Options that are properties of the client library, and its names for them.
const OF_CLIENTS: &[(&str, &str)] = &[
    ("properties.bootstrap.servers", "bootstrap.servers"),
    ("properties.client.id", "client.id"),
    ("properties.client.rack", "client.rack"),
    (PROTOCOL, "security.protocol"),
    ("properties.sasl.mechanism", "sasl.mechanism"),
    (USERNAME, "sasl.username"),
    (PASSWORD, "sasl.password"),
    (AUTHORITIES, "ssl.ca.pem"),
    (CERTIFICATE, "ssl.certificate.pem"),
    (PRIVATE_KEY, "ssl.key.pem"),
    (KEY_PASSWORD, "ssl.key.password"),
    (HOST_CHECK, "ssl.endpoint.identification.algorithm"),
];
/// The same, of those that write.
const OF_PRODUCERS: &[(&str, &str)] = &[
    ("properties.compression.type", "compression.type"),
    ("properties.linger.ms", "linger.ms"),
    ("properties.max.request.size", "message.max.bytes"),
];

/// Where a new query begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Startup {
    Earliest,
    Latest,
    /// Milliseconds since 1970.
    Timestamp(i64),
}

/// The columns of a key, and how it holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) fields: Vec<String>,
    pub(super) format: MessageFormat,
}

/// A registry of schemas. The password is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Registry {
    pub(super) url: String,
    /// Under which name the schema of written messages is registered.
    pub(super) subject: String,
    /// Who asks, and the password.
    pub(super) user: Option<(String, String)>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// Properties of the client library. Not shown: one of them is a password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Properties(pub(super) Vec<(&'static str, String)>);

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// What a table's options say.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) topic: String,
    pub(super) servers: String,
    pub(super) user: String,
    pub(super) group: String,
    pub(super) format: MessageFormat,
    /// The column that says what happened, where messages are changes.
    pub(super) op_column: String,
    /// How rows are read that have keys, and are gone where a message has no value.
    pub(super) keyed: Option<Keyed>,
    /// Where the schemas of messages are.
    pub(super) registry: Option<Registry>,
    pub(super) on_error: OnError,
    pub(super) startup: Startup,
    pub(super) bounded: bool,
    /// How often it is looked whether there are more partitions.
    pub(super) discovery: Duration,
    pub(super) key: Option<Key>,
    pub(super) delivery: Delivery,
    pub(super) prefix: String,
    pub(super) transaction_timeout: Duration,
    pub(super) of_clients: Properties,
    pub(super) of_producers: Properties,
}

impl Settings {
    pub(super) fn new(table: &TableDef) -> Result<Self> {
        if table.options.contains_key(CSV_HEADER.name) {
            return Err(StreamError::invalid(
                "a message is one row, so there is no 'csv.header' in Kafka; leave it out",
            ));
        }
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        if !options.text("topic").is_some_and(is_topic) {
            return Err(options.error("topic", "one topic of at most 249 letters, digits, '.', '_' and '-'"));
        }
        let text = |name: &str| options.get(name, |text| Some(text.to_owned()));
        let format = MessageFormat::of(&options, "format")?.ok_or_else(|| options.error("format", "a format"))?;
        let key = key(&options, format)?;
        let keyed = keyed(&options, format, key.as_ref())?;
        let settings = Self {
            topic: text("topic")?,
            servers: text("properties.bootstrap.servers")?,
            user: options.text(USERNAME).unwrap_or_default().to_owned(),
            group: text("properties.group.id")?,
            format,
            op_column: options.text(OP_COLUMN).unwrap_or_default().to_owned(),
            keyed,
            registry: registry(&options, format)?,
            on_error: options.get(ON_ERROR, OnError::parse)?,
            startup: startup(&options)?,
            bounded: options.text("scan.bounded.mode") == Some("latest-offset"),
            discovery: options.get(DISCOVERY, parse_duration)?,
            key,
            delivery: match options.text("sink.delivery-guarantee") {
                Some("at-least-once") => Delivery::AtLeastOnce,
                _ => Delivery::ExactlyOnce,
            },
            prefix: text("sink.transactional-id-prefix")?,
            transaction_timeout: options.get(TRANSACTION_TIMEOUT, parse_duration)?,
            of_clients: properties(&options, OF_CLIENTS),
            of_producers: properties(&options, OF_PRODUCERS),
        };
        let times = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
        for (name, time) in [(TRANSACTION_TIMEOUT, settings.transaction_timeout), (DISCOVERY, settings.discovery)] {
            if !times.contains(&time) {
                return Err(options.error(name, "a time between 1 s and 24 h"));
            }
        }
        check_certificates(&options)?;
        let logs_in = logs_in(&options);
        // What is given is not shown: it may be the password.
        let wrong = |name: &str, expected: &str| {
            Err(StreamError::invalid(format!("option '{name}' of connector {NAME}: expected {expected}")))
        };
        match [USERNAME, PASSWORD].into_iter().find(|name| options.text(name).is_some() != logs_in) {
            Some(name) if logs_in => {
                wrong(name, "the user's, because 'properties.security.protocol' has a user log in, got nothing")
            }
            Some(name) => {
                wrong(name, "nothing, unless 'properties.security.protocol' is SASL_PLAINTEXT or SASL_SSL, got a value")
            }
            None => Ok(settings),
        }
    }

    /// Refuses columns that messages cannot hold.
    pub(super) fn check(&self, table: &TableDef) -> Result<()> {
        if declares_none(table) {
            return Err(StreamError::invalid(format!(
                "table {} needs columns: what a topic holds is not looked at before a query reads it",
                table.name
            )));
        }
        self.format.check(&table.columns)?;
        if !self.op_column.is_empty() {
            let column = table.columns.iter().find(|column| column.name == self.op_column && column.computed.is_none());
            let wrong = match column {
                Some(column) if column.data_type == DataType::Utf8View => None,
                Some(column) => Some(format!("column {}, which is {}", column.name, type_name(&column.data_type))),
                None => Some(format!("'{}', which is no column of table {}", self.op_column, table.name)),
            };
            if let Some(got) = wrong {
                return Err(StreamError::invalid(format!(
                    "option '{OP_COLUMN}' of connector {NAME}: expected a column of VARCHAR that says what happened to a row, got {got}"
                )));
            }
        }
        let Some(key) = &self.key else { return Ok(()) };
        let column = |name: &String| {
            let column = table.columns.iter().find(|column| column.name == *name && column.computed.is_none());
            column.cloned().ok_or_else(|| StreamError::Unknown {
                kind: "column".into(),
                name: name.clone(),
                position: None,
                hint: format!("'{KEY_FIELDS}' names columns of the table, with ';' between them"),
            })
        };
        key.format.check(&key.fields.iter().map(column).collect::<Result<Vec<_>>>()?)
    }
}

impl Settings {
    /// Refuses a table that is read alone.
    pub(super) fn check_written(&self, table: &str) -> Result<()> {
        match self.format {
            MessageFormat::Debezium => Err(StreamError::invalid(format!(
                "table {table} has 'format' = 'debezium-json', which is read and not written; write rows to a table with another 'format', such as 'json'"
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether Kafka can have such a topic.
fn is_topic(name: &str) -> bool {
    !matches!(name, "." | "..")
        && name.len() <= 249
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn startup(options: &Options<'_>) -> Result<Startup> {
    const TIMESTAMP: &str = "scan.startup.timestamp-millis";
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()
            .and_then(|now| i64::try_from(now.as_millis()).ok())
    };
    let timestamp = options.find(TIMESTAMP, |text| if text == "now" { now() } else { instant_ms(text) })?;
    match (options.text("scan.startup.mode"), timestamp) {
        (Some("timestamp"), Some(timestamp)) => Ok(Startup::Timestamp(timestamp)),
        (Some("timestamp"), None) => {
            Err(options.error(TIMESTAMP, "a time, because 'scan.startup.mode' is 'timestamp'"))
        }
        (_, Some(_)) => Err(options.error(TIMESTAMP, "nothing, unless 'scan.startup.mode' is 'timestamp'")),
        (Some("latest" | "latest-offset"), None) => Ok(Startup::Latest),
        (_, None) => Ok(Startup::Earliest),
    }
}

/// Where the schemas of messages are, if they have some.
fn registry(options: &Options<'_>, format: MessageFormat) -> Result<Option<Registry>> {
    let given = [REGISTRY, SUBJECT, USER_INFO].into_iter().find(|name| options.text(name).is_some());
    if format != MessageFormat::Avro {
        return match given {
            // What is given is not shown: it may be a password.
            Some(name) => Err(StreamError::invalid(format!(
                "option '{name}' of connector {NAME}: expected nothing, unless 'format' is 'avro-confluent'"
            ))),
            None => Ok(None),
        };
    }
    let is_url =
        |url: &&str| ["http://", "https://"].iter().any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
    let Some(url) = options.text(REGISTRY).filter(is_url) else {
        return Err(StreamError::invalid(format!(
            "option '{REGISTRY}' of connector {NAME}: expected where the registry of schemas is, 'http://host:8081', because 'format' is \
             'avro-confluent'"
        )));
    };
    if url.contains('@') {
        return Err(StreamError::invalid(format!(
            "option '{REGISTRY}' of connector {NAME}: expected an address without a user; name it in '{USER_INFO}'"
        )));
    }
    let user = options.text(USER_INFO).map(|info| info.split_once(':'));
    if user == Some(None) {
        return Err(StreamError::invalid(format!(
            "option '{USER_INFO}' of connector {NAME}: expected 'user:password'"
        )));
    }
    let subject = options
        .text(SUBJECT)
        .map_or_else(|| format!("{}-value", options.text("topic").unwrap_or_default()), ToOwned::to_owned);
    let user = user.flatten().map(|(user, password)| (user.to_owned(), password.to_owned()));
    Ok(Some(Registry { url: url.trim_end_matches('/').to_owned(), subject, user }))
}

/// How rows with keys are read that may be gone.
fn keyed(options: &Options<'_>, format: MessageFormat, key: Option<&Key>) -> Result<Option<Keyed>> {
    let op_column = options.text(OP_COLUMN).map(ToOwned::to_owned);
    match (format, op_column, key) {
        (MessageFormat::Debezium, None, _) => Err(options.error(
            OP_COLUMN,
            "a column of VARCHAR that says what happened to a row, because 'format' is 'debezium-json'",
        )),
        (MessageFormat::Debezium, Some(_), _) | (_, None, _) => Ok(None),
        (MessageFormat::Json, Some(op_column), Some(key)) if !key.fields.contains(&op_column) => match key.format {
            MessageFormat::Json => Ok(Some(Keyed { op_column, fields: key.fields.clone(), is_raw: false })),
            MessageFormat::Raw => Ok(Some(Keyed { op_column, fields: key.fields.clone(), is_raw: true })),
            _ => Err(options
                .error(KEY_FORMAT, "'json' or 'raw', because 'op.column' says what happened to the row of a key")),
        },
        _ => Err(options.error(
            OP_COLUMN,
            "nothing, unless 'format' is 'debezium-json', or is 'json' and 'key.fields' names other columns",
        )),
    }
}

fn key(options: &Options<'_>, of_values: MessageFormat) -> Result<Option<Key>> {
    let format = MessageFormat::of(options, KEY_FORMAT)?;
    let Some(fields) = options.text(KEY_FIELDS) else {
        return match format {
            Some(_) => Err(options.error(KEY_FORMAT, "nothing, unless 'key.fields' names columns")),
            None => Ok(None),
        };
    };
    let fields: Vec<String> = fields.split(';').map(|name| name.trim().to_owned()).collect();
    if fields.iter().any(String::is_empty) {
        return Err(options.error(KEY_FIELDS, "names of columns with ';' between them"));
    }
    match format.unwrap_or(of_values) {
        MessageFormat::Avro => {
            Err(options.error(KEY_FORMAT, "how keys are written, such as 'json', because 'format' is 'avro-confluent'"))
        }
        format => Ok(Some(Key { fields, format })),
    }
}

/// Those that are given or have a default. Who does not log in has no mechanism for it, and who does not encrypt no certificates.
fn properties(options: &Options<'_>, names: &[(&str, &'static str)]) -> Properties {
    let (logs_in, encrypts) = (logs_in(options), encrypts(options));
    let meant = names.iter().filter(|(_, property)| {
        (logs_in || !property.starts_with("sasl.")) && (encrypts || !property.starts_with("ssl."))
    });
    let given = meant.filter_map(|(option, property)| {
        let value = options.text(option)?;
        // Of a text on one line, as Java's clients take it.
        Some((*property, if property.ends_with(".pem") { value.replace("\\n", "\n") } else { value.to_owned() }))
    });
    let mut all: Vec<_> = given.collect();
    if encrypts && names.iter().any(|(option, _)| *option == AUTHORITIES) && options.text(AUTHORITIES).is_none() {
        all.push(("ssl.ca.location", std::env::var("SSL_CERT_FILE").unwrap_or_else(|_| "probe".to_owned())));
    }
    Properties(all)
}

fn logs_in(options: &Options<'_>) -> bool {
    options.text(PROTOCOL).is_some_and(|protocol| protocol.starts_with("SASL_"))
}

fn encrypts(options: &Options<'_>) -> bool {
    options.text(PROTOCOL).is_some_and(|protocol| protocol.ends_with("SSL"))
}

/// # Errors
/// Certificates where nothing is encrypted, or one half of what goes together.
fn check_certificates(options: &Options<'_>) -> Result<()> {
    let is_given = |name: &str| options.text(name).is_some();
    // What is given is not shown: it may be a private key.
    let wrong = |name: &str, expected: &str| {
        Err(StreamError::invalid(format!("option '{name}' of connector {NAME}: expected {expected}")))
    };
    if !encrypts(options) {
        return match [AUTHORITIES, CERTIFICATE, PRIVATE_KEY, KEY_PASSWORD].into_iter().find(|name| is_given(name)) {
            Some(name) => wrong(name, "nothing, unless 'properties.security.protocol' is SSL or SASL_SSL, got a value"),
            None => Ok(()),
        };
    }
    let is_pem = |name: &str| options.text(name).is_none_or(|text| text.contains("-----BEGIN "));
    if let Some(name) = [AUTHORITIES, CERTIFICATE, PRIVATE_KEY].into_iter().find(|name| !is_pem(name)) {
        return wrong(name, "PEM ('-----BEGIN ..'), got something else; give the text and not the name of a file");
    }
    match (is_given(CERTIFICATE), is_given(PRIVATE_KEY), is_given(KEY_PASSWORD)) {
        (true, false, _) => wrong(PRIVATE_KEY, "the private key of the certificate, got nothing"),
        (false, true, _) => wrong(CERTIFICATE, "the certificate of the private key, got nothing"),
        (false, false, true) => wrong(KEY_PASSWORD, "nothing, unless a private key is given"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_model::catalog::ColumnDef;

    use super::*;

    fn table(options: &[(&str, &str)]) -> TableDef {
        let column = |name: &str, data_type| ColumnDef { name: name.into(), data_type, nullable: true, computed: None };
        let given = [("connector", NAME), ("topic", "t"), ("properties.bootstrap.servers", "h:1"), ("format", "json")];
        TableDef {
            name: "t".into(),
            columns: vec![column("a", DataType::Int64), column("b", DataType::Utf8View)],
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: given.iter().chain(options).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            statement: String::new(),
        }
    }

    fn refused(options: &[(&str, &str)]) -> String {
        let table = table(options);
        Settings::new(&table).and_then(|settings| settings.check(&table)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_given_is_as_documented() {
        let settings = Settings::new(&table(&[])).unwrap();
        assert_eq!(
            (settings.startup, settings.bounded, settings.delivery),
            (Startup::Earliest, false, Delivery::ExactlyOnce)
        );
        assert_eq!(settings.transaction_timeout, Duration::from_secs(300));
        assert!(settings.of_clients.0.contains(&("security.protocol", "PLAINTEXT".into())));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (options, expected) in [
            (vec![("topic", "a,b")], "one topic of at most 249"),
            (vec![("topic", "..")], "one topic of at most 249"),
            (vec![("scan.startup.mode", "timestamp")], "because 'scan.startup.mode' is 'timestamp'"),
            (vec![("scan.startup.timestamp-millis", "5")], "unless 'scan.startup.mode' is 'timestamp'"),
            (vec![("key.format", "json")], "unless 'key.fields' names columns"),
            (vec![("key.fields", "a;;b")], "names of columns with ';' between them"),
            (vec![("key.fields", "c")], "column c does not exist"),
            (
                vec![("key.fields", "a"), ("key.format", "raw")],
                "one column of VARCHAR or BYTES, but column a is BIGINT",
            ),
            (vec![("format", "raw")], "'raw' holds one column"),
            (vec![("format", "debezium-json")], "because 'format' is 'debezium-json'"),
            (vec![("format", "debezium-json"), ("op.column", "c")], "no column of table t"),
            (vec![("format", "debezium-json"), ("op.column", "a")], "column a, which is BIGINT"),
            (vec![("op.column", "b")], "nothing, unless 'format' is 'debezium-json'"),
            (vec![("op.column", "b"), ("key.fields", "b")], "names other columns"),
            (vec![("format", "avro-confluent")], "'http://host:8081'"),
            (vec![("format", "avro-confluent"), (REGISTRY, "h:1")], "'http://host:8081'"),
            (
                vec![("format", "avro-confluent"), (REGISTRY, "http://h"), (USER_INFO, "ann")],
                "expected 'user:password'",
            ),
            (vec![("format", "avro-confluent"), (REGISTRY, "http://ann:x@h")], "an address without a user"),
            (vec![("format", "avro-confluent"), (REGISTRY, "http://h"), ("key.fields", "a")], "how keys are written"),
            (vec![(REGISTRY, "http://h")], "unless 'format' is 'avro-confluent'"),
            (vec![("op.column", "b"), ("key.fields", "a"), ("format", "csv")], "or is 'json'"),
            (vec![("op.column", "b"), ("key.fields", "a"), ("key.format", "csv")], "'json' or 'raw'"),
            (vec![("op.column", "a"), ("key.fields", "b")], "column a, which is BIGINT"),
            (vec![("key.fields", "a"), ("key.format", "debezium-json")], "'key.format'"),
            (vec![("sink.transaction-timeout", "2ms")], "a time between 1 s and 24 h"),
            (vec![("scan.topic-partition-discovery.interval", "2ms")], "a time between 1 s and 24 h"),
            (vec![("properties.security.protocol", "SASL_PLAINTEXT")], "'properties.sasl.username'"),
            (vec![("properties.sasl.password", "x")], "unless 'properties.security.protocol' is SASL_PLAINTEXT"),
            (vec![(AUTHORITIES, "-----BEGIN X")], "is SSL or SASL_SSL"),
            (vec![("properties.security.protocol", "SSL"), (AUTHORITIES, "/etc/ca.pem")], "give the text"),
            (
                vec![("properties.security.protocol", "SSL"), (CERTIFICATE, "-----BEGIN X")],
                "the private key of the certificate",
            ),
            (vec![("csv.header", "true")], "there is no 'csv.header'"),
            (vec![("properties.max.request.size", "40000000")], "from 1000 to 32000000"),
            (vec![("on-error", "dead-letter:x")], "'fail' or 'skip'"),
            (vec![("properties.enable.auto.commit", "true")], "does not exist"),
        ] {
            let error = refused(&options);
            assert!(error.contains(expected), "{options:?}: {error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let log_in = [("properties.security.protocol", "SASL_PLAINTEXT"), (USERNAME, "ann"), (PASSWORD, "secret")];
        let settings = Settings::new(&table(&log_in)).unwrap();
        assert!(!format!("{settings:?}").contains("secret"));
        let encrypted = Settings::new(&table(&[(PROTOCOL, "SSL"), (AUTHORITIES, "-----BEGIN X\\nY")])).unwrap();
        assert!(encrypted.of_clients.0.contains(&("ssl.ca.pem", "-----BEGIN X\nY".into())));
        assert!(
            !encrypted.of_clients.0.iter().any(|(name, _)| name.starts_with("sasl.") || *name == "ssl.ca.location")
        );
        let error = refused(&[(PASSWORD, "secret")]);
        assert!(error.contains(PASSWORD) && !error.contains("secret"), "{error}");
    }

    #[test]
    fn keys_are_columns_in_a_format_of_their_own() {
        let key = |options| Settings::new(&table(options)).unwrap().key.unwrap();
        assert_eq!(
            key(&[(KEY_FIELDS, "a; b")]),
            Key { fields: vec!["a".into(), "b".into()], format: MessageFormat::Json }
        );
        assert_eq!(key(&[(KEY_FIELDS, "b"), (KEY_FORMAT, "raw")]).format, MessageFormat::Raw);
    }
}
