//! What can be set, in the names that Redis has for it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use savanna_identity::Users as Administrators;

use crate::keyspace::encodings::EncodingLimits;
use crate::keyspace::events::EventClasses;
use crate::number::{float, integer};
use crate::pattern;

pub mod file;

/// When changes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sync {
    /// Before anybody is told.
    Always,
    /// Soon after: a crash of the machine may lose what was told last, one of the process alone nothing.
    #[default]
    EverySecond,
    /// As with `EverySecond`; the log flushes what it is given.
    No,
}

/// What happens when memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Eviction {
    /// Commands that need more are refused.
    #[default]
    Refuse,
    /// Keys are deleted.
    Evict(Scope, Order),
}

/// Which keys may be deleted to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those that expire some time.
    Expiring,
}

/// Which key is deleted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that was used longest ago.
    LeastRecent,
    /// The one that is used most rarely.
    LeastFrequent,
    /// The one that would expire first.
    FirstToExpire,
    /// Any.
    Chance,
}

impl Eviction {
    const NAMES: [(&str, Self); 8] = [
        ("volatile-lru", Self::Evict(Scope::Expiring, Order::LeastRecent)),
        ("volatile-lfu", Self::Evict(Scope::Expiring, Order::LeastFrequent)),
        ("volatile-random", Self::Evict(Scope::Expiring, Order::Chance)),
        ("volatile-ttl", Self::Evict(Scope::Expiring, Order::FirstToExpire)),
        ("allkeys-lru", Self::Evict(Scope::All, Order::LeastRecent)),
        ("allkeys-lfu", Self::Evict(Scope::All, Order::LeastFrequent)),
        ("allkeys-random", Self::Evict(Scope::All, Order::Chance)),
        ("noeviction", Self::Refuse),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }

    fn of_name(wanted: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, policy)| policy).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| name).join(", ");
            format!("argument(s) must be one of the following: {names}")
        })
    }
}

/// How much a client may leave unread before it is sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// More bytes than this, 0 for no limit.
    pub hard: usize,
    /// More bytes than this, 0 for no limit, ..
    pub soft: usize,
    /// .. for so many seconds.
    pub soft_seconds: u64,
}

/// How much memory all clients together may take, for what they ask and are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientsMemory {
    /// So many bytes, 0 for no limit.
    Bytes(usize),
    /// So many percent of what keys may take.
    Percent(u8),
}

impl ClientsMemory {
    fn parse(text: &[u8]) -> Result<Self, &'static str> {
        const EXPECTED: &str = "argument must be a memory or percent value, such as 64mb or 5%";
        let Some(digits) = text.strip_suffix(b"%") else { return bytes(text).map(Self::Bytes).ok_or(EXPECTED) };
        match integer(digits) {
            Some(percent @ 1..=100) => Ok(Self::Percent(percent as u8)),
            Some(101..) => Err("percentage argument must be less or equal to 100"),
            Some(_) | None => Err(EXPECTED),
        }
    }

    fn shown(self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// Something that nobody is shown by mistake.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Keeps a secret.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(secret.into())
    }

    /// The secret.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A longer password is none: who comes in must not cost much.
pub(crate) const PASSWORD_BYTES_MAX: usize = 512;

/// Connections that are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The port, 0 for none.
    pub port: u16,
    /// The server's certificates, the chain of one, in PEM.
    pub certificates: PathBuf,
    /// The key of the first one, in PEM.
    pub key: PathBuf,
    /// Those who may have signed clients' certificates, in PEM.
    pub authorities: PathBuf,
    /// Whether clients have to show certificates.
    pub clients: TlsClients,
}

/// Whether clients have to show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsClients {
    /// Who shows none is not let in.
    #[default]
    Required,
    /// One that is shown must be right.
    Optional,
    /// Nobody is asked.
    Unasked,
}

/// An actor's configuration; all actors of a node have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What clients have to know, if anything.
    pub password: Option<Secret>,
    /// The administrators of the node, who may do everything.
    pub administrators: Administrators,
    /// Whether clients from other machines are refused while nobody has to say who it is.
    pub is_protected: bool,
    /// Bytes that keys may take, 0 for no limit.
    pub memory_max: usize,
    /// What happens when they do.
    pub eviction: Eviction,
    /// How much rarer a use is counted with each that was, and the minutes without a use that take one away.
    pub use_counting: (u32, u8),
    /// The longest word of a request.
    pub request_bytes_max: usize,
    /// When changes are durable.
    pub sync: Sync,
    /// The port that clients come to, as `INFO` tells it.
    pub port: u16,
    /// The port for clients of clusters, 0 for none.
    pub cluster_port: u16,
    /// The node's name for clients of clusters; none for one that is this process' alone.
    pub node_id: Option<String>,
    /// Whether there is a log.
    pub is_logged: bool,
    /// Clients of the node.
    pub clients_max: usize,
    /// Seconds after which an idle client is sent away, 0 for never.
    pub idle_seconds_max: u64,
    /// Seconds that a client has to finish the TLS handshake, and to say who it is where it must.
    pub login_seconds_max: u64,
    /// Seconds after which a silent client is asked by the operating system whether it is still there, 0 for never.
    pub keepalive_seconds: u32,
    /// What a client that asks and does not read the answers may leave.
    pub output_normal: OutputLimit,
    /// What a client that listens to messages may leave.
    pub output_listening: OutputLimit,
    /// The longest request.
    pub query_bytes_max: usize,
    /// Requests that ran for so many microseconds are noted; negative for none.
    pub slow_micros: i64,
    /// How many of them are kept.
    pub slow_kept: usize,
    /// How many refusals of users' requests are kept.
    pub denied_kept: usize,
    /// Where users are read from at the start, and saved.
    pub users_file: Option<PathBuf>,
    /// Connections that are encrypted.
    pub tls: Tls,
    /// Milliseconds after which a script is stopped, unless others wait longer for it.
    pub script_millis_max: u64,
    /// Milliseconds that others wait for a script before they hear that the server is busy; 0 for as long as they always do.
    pub busy_millis: u64,
    /// Keys of which it is known who has read them, 0 for no limit.
    pub tracked_keys_max: usize,
    /// What copies of keys may take that get replicas by themselves, 0 for none.
    pub hot_keys_memory: usize,
    /// No key gets replicas by itself that had fewer requests of late.
    pub hot_keys_requests_min: usize,
    /// What clients are told that becomes of keys.
    pub events: EventClasses,
    /// Milliseconds from which on what takes so long is kept for `LATENCY`; 0 to keep nothing.
    pub latency_millis: u64,
    /// Up to which size `OBJECT ENCODING` tells Redis' small forms.
    pub encodings: EncodingLimits,
    /// Whether it is counted how many calls of each command took how long.
    pub tracks_latency: bool,
    /// The parts of the calls, in percent, of which `INFO latencystats` tells how long they took at most.
    pub latency_percentiles: Vec<f64>,
    /// What all clients together may take.
    pub clients_memory: ClientsMemory,
    /// Where all keys are saved to a file of Redis, and read from at the first start; none to do neither.
    pub dump_directory: Option<PathBuf>,
    /// What that file is called.
    pub dump_name: String,
    /// The file from which settings were read, in which `CONFIG REWRITE` writes what was set since; none if there is no such file.
    pub settings_file: Option<PathBuf>,
    /// Whether clients may stop the process.
    pub may_be_shut_down: bool,
    /// What clients have set that changes nothing here, to be read back.
    pub without_effect: BTreeMap<&'static str, String>,
}

/// Its numbers with a point are percentiles from 0 to 100, and never what equals nothing.
impl Eq for Config {}

impl Default for Config {
    fn default() -> Self {
        Self {
            password: None,
            administrators: Administrators::default(),
            is_protected: true,
            memory_max: 0,
            eviction: Eviction::default(),
            use_counting: (10, 1),
            request_bytes_max: 512 << 20,
            sync: Sync::default(),
            port: 0,
            cluster_port: 0,
            node_id: None,
            is_logged: false,
            clients_max: 10_000,
            idle_seconds_max: 0,
            login_seconds_max: 60,
            keepalive_seconds: 300,
            output_normal: OutputLimit { hard: 0, soft: 0, soft_seconds: 0 },
            output_listening: OutputLimit { hard: 32 << 20, soft: 8 << 20, soft_seconds: 60 },
            query_bytes_max: 1 << 30,
            slow_micros: 10_000,
            slow_kept: 128,
            denied_kept: 128,
            users_file: None,
            tls: Tls::default(),
            script_millis_max: 5000,
            busy_millis: 5000,
            tracked_keys_max: 1_000_000,
            hot_keys_memory: 0,
            hot_keys_requests_min: 1_000_000,
            events: EventClasses::default(),
            latency_millis: 0,
            encodings: EncodingLimits::default(),
            tracks_latency: true,
            latency_percentiles: vec![50.0, 99.0, 99.9],
            clients_memory: ClientsMemory::Bytes(0),
            dump_directory: None,
            dump_name: "dump.rdb".to_owned(),
            settings_file: None,
            may_be_shut_down: false,
            without_effect: BTreeMap::new(),
        }
    }
}

/// The limit of Redis for its replicas, of which there are none here.
const NO_REPLICAS: OutputLimit = OutputLimit { hard: 256 << 20, soft: 64 << 20, soft_seconds: 60 };

/// Settings that tune how Redis stores things. Savanna does not store them so; clients that set them may, and some are what
/// `OBJECT ENCODING` goes by.
const WITHOUT_EFFECT: [(&str, &str); 19] = [
    ("save", ""),
    ("maxmemory-samples", "5"),
    ("repl-backlog-size", "1048576"),
    ("hz", "10"),
    ("list-max-listpack-size", "-2"),
    ("list-max-ziplist-size", "-2"),
    ("list-compress-depth", "0"),
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "512"),
    ("hash-max-ziplist-value", "64"),
    ("set-max-intset-entries", "512"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("zset-max-ziplist-entries", "128"),
    ("zset-max-ziplist-value", "64"),
    ("hll-sparse-max-bytes", "3000"),
    ("stream-node-max-bytes", "4096"),
    ("stream-node-max-entries", "100"),
];

/// What Redis can only be started with, as it is here: a node is no replica, and in no cluster of Redis.
const IMMUTABLE: [(&str, &str); 4] =
    [("cluster-enabled", "no"), ("daemonize", "no"), ("replicaof", ""), ("slaveof", "")];

impl Config {
    /// How uses of keys are counted, if the policy needs that.
    #[must_use]
    pub fn counting(&self) -> Option<(u32, u8)> {
        matches!(self.eviction, Eviction::Evict(_, Order::LeastFrequent)).then_some(self.use_counting)
    }

    /// How long a script may run.
    #[must_use]
    pub fn script_time(&self) -> Duration {
        Duration::from_millis(self.script_millis_max.max(self.busy_millis))
    }

    /// How many bytes all clients together may take, if there is a limit: never so few that nobody could ask for more.
    #[must_use]
    pub fn clients_bytes_max(&self) -> Option<usize> {
        const LEAST: usize = 128 << 10;
        let bytes = match self.clients_memory {
            ClientsMemory::Bytes(bytes) => bytes,
            ClientsMemory::Percent(percent) => (self.memory_max as u128 * u128::from(percent) / 100) as usize,
        };
        (bytes > 0).then_some(bytes.max(LEAST))
    }

    /// Names and values whose names match a pattern.
    #[must_use]
    pub fn matching(&self, wanted: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let path = |path: &PathBuf| path.display().to_string();
        let password = self.password.as_ref().map_or_else(Vec::new, |password| password.reveal().to_vec());
        let clients = match self.tls.clients {
            TlsClients::Required => "yes",
            TlsClients::Optional => "optional",
            TlsClients::Unasked => "no",
        };
        let own = [
            ("aclfile", self.users_file.as_ref().map_or_else(String::new, path)),
            ("acllog-max-len", self.denied_kept.to_string()),
            (
                "appendfsync",
                match self.sync {
                    Sync::Always => "always".to_owned(),
                    Sync::EverySecond => "everysec".to_owned(),
                    Sync::No => "no".to_owned(),
                },
            ),
            ("appendonly", if self.is_logged { "yes" } else { "no" }.to_owned()),
            ("client-output-buffer-limit", self.output_limits()),
            ("client-query-buffer-limit", self.query_bytes_max.to_string()),
            ("busy-reply-threshold", self.busy_millis.to_string()),
            ("lua-time-limit", self.busy_millis.to_string()),
            ("script-time-limit", self.script_millis_max.to_string()),
            ("dbfilename", self.dump_name.clone()),
            ("dir", self.dump_directory.as_ref().map_or_else(String::new, path)),
            ("databases", crate::keyspace::DATABASES.to_string()),
            ("latency-monitor-threshold", self.latency_millis.to_string()),
            ("latency-tracking", if self.tracks_latency { "yes" } else { "no" }.to_owned()),
            (
                "latency-tracking-info-percentiles",
                self.latency_percentiles.iter().map(f64::to_string).collect::<Vec<_>>().join(" "),
            ),
            ("hot-keys-memory", self.hot_keys_memory.to_string()),
            ("hot-keys-min-requests", self.hot_keys_requests_min.to_string()),
            ("lfu-decay-time", self.use_counting.1.to_string()),
            ("lfu-log-factor", self.use_counting.0.to_string()),
            ("maxclients", self.clients_max.to_string()),
            ("maxmemory", self.memory_max.to_string()),
            ("maxmemory-clients", self.clients_memory.shown()),
            ("maxmemory-policy", self.eviction.name().to_owned()),
            ("notify-keyspace-events", self.events.to_text()),
            ("proto-max-bulk-len", self.request_bytes_max.to_string()),
            ("port", self.port.to_string()),
            ("protected-mode", if self.is_protected { "yes" } else { "no" }.to_owned()),
            ("slowlog-log-slower-than", self.slow_micros.to_string()),
            ("slowlog-max-len", self.slow_kept.to_string()),
            ("tcp-keepalive", self.keepalive_seconds.to_string()),
            ("tracking-table-max-keys", self.tracked_keys_max.to_string()),
            ("timeout", self.idle_seconds_max.to_string()),
            ("tls-auth-clients", clients.to_owned()),
            ("tls-ca-cert-file", path(&self.tls.authorities)),
            ("tls-cert-file", path(&self.tls.certificates)),
            ("tls-key-file", path(&self.tls.key)),
            ("tls-port", self.tls.port.to_string()),
        ];
        let mut encodings = self.encodings;
        let without_effect = WITHOUT_EFFECT.map(|(name, value)| {
            let kept = self.without_effect.get(name).map(String::as_str).unwrap_or(value);
            (name, encodings.of_setting(name).map_or_else(|| kept.to_owned(), |limit| limit.to_string()))
        });
        let immutable = IMMUTABLE.map(|(name, value)| (name, value.to_owned()));
        let wanted = wanted.to_ascii_lowercase();
        let texts =
            own.into_iter().chain(without_effect).chain(immutable).map(|(name, value)| (name, value.into_bytes()));
        let all = texts.chain([("requirepass", password)]);
        all.filter(|(name, _)| pattern::matches(&wanted, name.as_bytes())).collect()
    }

    /// Whether a setting that can only be given at the start is to be what it is.
    #[must_use]
    pub fn is_kept(&self, name: &[u8], value: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        let is_meant = matches!(name.as_slice(), b"appendonly" | b"port") || name.starts_with(b"tls-");
        is_meant && self.matching(&name).iter().any(|(_, known)| known == value)
    }

    /// Whether a setting changes anything here.
    #[must_use]
    pub fn has_effect(name: &[u8]) -> bool {
        !WITHOUT_EFFECT.iter().any(|(other, _)| name.eq_ignore_ascii_case(other.as_bytes()))
    }

    /// Sets one value before there are actors: what [`Config::set`] sets, and what cannot be changed later.
    ///
    /// # Errors
    /// A text that says what was expected.
    pub fn set_at_start(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value);
        let path = || PathBuf::from(OsStr::from_bytes(value));
        match name.to_ascii_lowercase().as_slice() {
            b"aclfile" => self.users_file = (!value.is_empty()).then(path),
            b"dir" => self.dump_directory = (!value.is_empty()).then(path),
            b"dbfilename" => {
                if value.is_empty() || text.contains('/') || text.contains('\0') || matches!(&*text, "." | "..") {
                    return Err(format!("dbfilename must be the name of a file without a path, came '{text}'"));
                }
                self.dump_name = text.into_owned();
            }
            b"tls-port" => {
                self.tls.port = text.parse().map_err(|_| format!("tls-port must be a port, came '{text}'"))?;
            }
            b"tls-cert-file" => self.tls.certificates = path(),
            b"tls-key-file" => self.tls.key = path(),
            b"tls-ca-cert-file" => self.tls.authorities = path(),
            b"tls-auth-clients" => {
                self.tls.clients = match value {
                    b"yes" => TlsClients::Required,
                    b"optional" => TlsClients::Optional,
                    b"no" => TlsClients::Unasked,
                    _ => return Err(format!("tls-auth-clients must be yes, no or optional, came '{text}'")),
                };
            }
            _ => return self.set(name, value),
        }
        Ok(())
    }

    fn output_limits(&self) -> String {
        let line =
            |name: &str, limit: OutputLimit| format!("{name} {} {} {}", limit.hard, limit.soft, limit.soft_seconds);
        [line("normal", self.output_normal), line("slave", NO_REPLICAS), line("pubsub", self.output_listening)]
            .join(" ")
    }

    /// Sets limits: `CLASS HARD SOFT SECONDS ..`; all or none of them.
    fn set_output_limits(&mut self, value: &[u8]) -> Result<(), String> {
        const EXPECTED: &str = "Wrong number of arguments in buffer limit configuration.";
        let words: Vec<&[u8]> = value.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let (mut normal, mut listening) = (self.output_normal, self.output_listening);
        let (groups, rest) = words.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(EXPECTED.to_owned());
        }
        for [class, hard, soft, seconds] in groups {
            let limit =
                bytes(hard).zip(bytes(soft)).zip(integer(seconds).and_then(|seconds| u64::try_from(seconds).ok()));
            let Some(((hard, soft), soft_seconds)) = limit else {
                return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned());
            };
            let limit = OutputLimit { hard, soft, soft_seconds };
            match class.to_ascii_lowercase().as_slice() {
                b"normal" => normal = limit,
                b"pubsub" => listening = limit,
                b"slave" | b"replica" => {}
                _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
            }
        }
        (self.output_normal, self.output_listening) = (normal, listening);
        Ok(())
    }

    /// Sets one value.
    ///
    /// # Errors
    /// A text that says what was expected.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let text = || String::from_utf8_lossy(value).into_owned();
        let number = || {
            let number = integer(value).and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("argument must be a whole number, came '{}'", text()))
        };
        match name.as_str() {
            "appendfsync" => {
                self.sync = match value {
                    b"always" => Sync::Always,
                    b"everysec" => Sync::EverySecond,
                    b"no" => Sync::No,
                    _ => return Err("argument(s) must be one of the following: always, everysec, no".to_owned()),
                };
            }
            "maxmemory" => self.memory_max = bytes(value).ok_or("argument must be a memory value")?,
            "maxmemory-clients" => {
                self.clients_memory = ClientsMemory::parse(value)?;
            }
            "maxmemory-policy" => self.eviction = Eviction::of_name(&text())?,
            "lfu-log-factor" => self.use_counting.0 = within(number()?, 0..=i32::MAX as usize)? as u32,
            "lfu-decay-time" => self.use_counting.1 = within(number()?, 0..=usize::from(u8::MAX))? as u8,
            "latency-monitor-threshold" => self.latency_millis = within(number()?, 0..=i32::MAX as usize)? as u64,
            "latency-tracking" => self.tracks_latency = yes_or_no(value)?,
            "latency-tracking-info-percentiles" => {
                let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                let percentiles: Option<Vec<f64>> = words.map(float).collect();
                let is_percent = |percent: &f64| (0.0..=100.0).contains(percent);
                self.latency_percentiles = percentiles
                    .filter(|all| all.len() <= PERCENTILES_MAX && all.iter().all(is_percent))
                    .ok_or("latency-tracking-info-percentiles argument(s) must be numbers between 0.0 and 100.0")?;
            }
            "notify-keyspace-events" => {
                self.events =
                    EventClasses::parse(value).ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            }
            "proto-max-bulk-len" => {
                let limit = bytes(value).ok_or("argument must be a memory value")?;
                if limit < 1 << 20 {
                    return Err("argument must be at least 1mb".to_owned());
                }
                self.request_bytes_max = limit.min(u32::MAX as usize / 2);
            }
            "protected-mode" => {
                self.is_protected = yes_or_no(value)?;
            }
            "requirepass" => {
                if value.len() > PASSWORD_BYTES_MAX {
                    return Err(format!("argument must be at most {PASSWORD_BYTES_MAX} bytes long"));
                }
                self.password = (!value.is_empty()).then(|| Secret::new(value));
            }
            "acllog-max-len" => self.denied_kept = within(number()?, 0..=KEPT_MAX)?,
            "client-output-buffer-limit" => self.set_output_limits(value)?,
            "client-query-buffer-limit" => {
                let limit = bytes(value).ok_or("argument must be a memory value")?;
                if !(1 << 20..=u32::MAX as usize / 2).contains(&limit) {
                    return Err("argument must be between 1mb and 2147483647".to_owned());
                }
                self.query_bytes_max = limit;
            }
            "slowlog-log-slower-than" => {
                let micros = integer(value).filter(|micros| *micros >= -1);
                self.slow_micros =
                    micros.ok_or_else(|| format!("argument must be between -1 and {}, came '{}'", i64::MAX, text()))?;
            }
            "slowlog-max-len" => self.slow_kept = within(number()?, 0..=KEPT_MAX)?,
            "tcp-keepalive" => {
                // No operating system waits longer.
                self.keepalive_seconds = within(number()?, 0..=32_767)? as u32;
            }
            "timeout" => self.idle_seconds_max = within(number()?, 0..=i32::MAX as usize)? as u64,
            "hot-keys-memory" => self.hot_keys_memory = bytes(value).ok_or("argument must be a memory value")?,
            "hot-keys-min-requests" => self.hot_keys_requests_min = within(number()?, 1..=u32::MAX as usize)?,
            "tracking-table-max-keys" => self.tracked_keys_max = number()?,
            "maxclients" => self.clients_max = within(number()?, 1..=u32::MAX as usize)?,
            "busy-reply-threshold" | "lua-time-limit" => {
                self.busy_millis = within(number()?, 0..=u32::MAX as usize)? as u64;
            }
            // Never 0 for no limit: a script is served by a thread that serves nobody else meanwhile.
            "script-time-limit" => {
                self.script_millis_max = within(number()?, 1..=u32::MAX as usize)? as u64;
            }
            "appendonly" | "databases" | "aclfile" | "tls-port" | "tls-cert-file" | "tls-key-file"
            | "tls-ca-cert-file" | "tls-auth-clients" => return Err("can't set immutable config".to_owned()),
            // Who may send commands does not write files where he likes.
            "dir" | "dbfilename" => return Err("can't set protected config".to_owned()),
            "stream-node-max-bytes" => {
                self.encodings.stream_block.bytes = bytes(value).ok_or("argument must be a memory value")?;
            }
            other if let Some(limit) = self.encodings.of_setting(other) => *limit = number()?,
            other if let Some((name, _)) = WITHOUT_EFFECT.iter().find(|(name, _)| *name == other) => {
                within(value.len(), 0..=WITHOUT_EFFECT_BYTES_MAX)?;
                self.without_effect.insert(name, text());
            }
            "port" => return Err("can't set immutable config".to_owned()),
            other if IMMUTABLE.iter().any(|(name, _)| *name == other) => {
                return Err("can't set immutable config".to_owned());
            }
            _ => return Err("Unknown option or number of arguments for CONFIG SET".to_owned()),
        }
        Ok(())
    }
}

/// No more slow or refused requests are kept.
const KEPT_MAX: usize = 1 << 20;

/// What changes nothing is no longer than this.
const WITHOUT_EFFECT_BYTES_MAX: usize = 1 << 10;

/// No more percentiles are told of each command.
const PERCENTILES_MAX: usize = 16;

fn yes_or_no(value: &[u8]) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

fn within(number: usize, range: RangeInclusive<usize>) -> Result<usize, String> {
    let refusal = || format!("argument must be between {} and {}, came {number}", range.start(), range.end());
    if range.contains(&number) { Ok(number) } else { Err(refusal()) }
}

/// A number of bytes: `100`, `64kb`, `1gb`, `1m`.
fn bytes(text: &[u8]) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let number = usize::try_from(integer(&text[..digits])?).ok()?;
    let unit = match &text[digits..] {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_were_set() {
        let mut config = Config::default();
        for (name, value, shown) in [
            ("appendfsync", "always", "always"),
            ("MaxMemory", "2mb", "2097152"),
            ("timeout", "5", "5"),
            ("maxmemory-policy", "allkeys-LRU", "allkeys-lru"),
        ] {
            config.set(name.as_bytes(), value.as_bytes()).expect(name);
            assert_eq!(config.matching(name.as_bytes())[0].1, shown.as_bytes());
        }
        for (name, value) in [
            ("maxclients", "0"),
            ("timeout", "9223372036854775807"),
            ("tcp-keepalive", "40000"),
            ("script-time-limit", "0"),
        ] {
            assert!(config.set(name.as_bytes(), value.as_bytes()).is_err(), "{name}");
        }
        assert!(config.set(b"maxmemory", b"2xb").is_err());
        assert!(config.set(b"no-such-thing", b"1").is_err());
        assert_eq!(config.matching(b"max*").len(), 5);
    }

    #[test]
    fn the_memory_of_clients_is_a_number_of_bytes_or_a_part_of_that_of_keys() {
        let mut config = Config::default();
        assert_eq!(config.clients_bytes_max(), None);
        for (value, shown, limit) in
            [("1mb", "1048576", Some(1 << 20)), ("1", "1", Some(128 << 10)), ("5%", "5%", None), ("0", "0", None)]
        {
            config.set(b"maxmemory-clients", value.as_bytes()).expect(value);
            assert_eq!(config.matching(b"maxmemory-clients")[0].1, shown.as_bytes());
            assert_eq!(config.clients_bytes_max(), limit);
        }
        config.set(b"maxmemory", b"100mb").expect("a limit");
        config.set(b"maxmemory-clients", b"5%").expect("a part of it");
        assert_eq!(config.clients_bytes_max(), Some(5 << 20));
        for value in ["0%", "101%", "-1", "x", "%"] {
            assert!(config.set(b"maxmemory-clients", value.as_bytes()).is_err(), "{value}");
        }
    }

    #[test]
    fn passwords_are_bytes_and_are_not_shown_by_mistake() {
        let mut config = Config::default();
        config.set_at_start(b"RequirePass", b"\xff\xfehunter2").expect("bytes");
        assert_eq!(config.matching(b"requirepass"), [("requirepass", b"\xff\xfehunter2".to_vec())]);
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(config.set(b"requirepass", &[b'x'; 513]).is_err());
    }
}
