//! The table of settings, and how their texts become values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use savanna_identity::{SecretError, Users};
use savanna_lambda::Isolation;
use savanna_manifest::s3::Bucket;
use savanna_ownership::LeaseTerms;
use savanna_pgwire_tenants::TlsFiles;
use savanna_resp::ClusterPort;
use savanna_rpc::TlsFiles as NodeTlsFiles;

use super::{ConfigError, FilesDatabase, NodeConfig, Sourced, keys, units};
use crate::cluster::StoreUrl;
use crate::telemetry;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingSpec {
    /// Its key.
    pub key: &'static str,
    /// Its value where nobody sets it.
    pub default: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
}

/// The database of files; it has a password, so nobody is shown it.
pub(super) const FILES_DATABASE: &str = "files.database";
/// A database of the node itself.
pub(super) const OWN: &str = "own";

/// What a node can be told to run: an engine with all its faces, or single faces (with the engine behind them).
pub(crate) const SERVICES: [&str; 7] = ["streams", "keys", "tenants", "files", "functions", "pgwire", "http"];

/// Where clients of clusters of keys come in, if nothing else is set.
const CLUSTER_PORT: u16 = 7000;

/// What encrypts connections between nodes: certificate, key, authorities. All are set, or none.
const CLUSTER_TLS: [&str; 3] = ["cluster.tls_cert", "cluster.tls_key", "cluster.tls_ca"];

const fn setting(key: &'static str, default: &'static str, help: &'static str) -> SettingSpec {
    SettingSpec { key, default, help }
}

/// All settings, in the order in which they are shown.
pub const SETTINGS: &[SettingSpec] = &[
    setting("node.name", "dev", "the node's name, unique in its cluster"),
    setting("data_dir", "savanna-data", "where data is kept; one process at a time serves it"),
    setting(
        "services",
        "streams,keys,tenants",
        "what to run: streams, keys, tenants, files, functions (an engine with all its faces), or single faces of pgwire, http",
    ),
    setting("address", "127.0.0.1", "the IP address on which every face listens"),
    setting("pgwire.port", "5434", "port of the PostgreSQL protocol of streams, 0 for any"),
    setting("pgwire.tls_cert", "none", "a PEM file with the certificates of streams for encrypted connections"),
    setting("pgwire.tls_key", "none", "a PEM file with the key of pgwire.tls_cert"),
    setting(
        "pgwire.require_tls",
        "false",
        "true refuses unencrypted connections to streams; they are always refused where address is not the loopback",
    ),
    setting("http.port", "8080", "port of control API, metrics and health, 0 for any"),
    setting("auth.token", "none", "a file with a token for the control API"),
    setting(
        "auth.users",
        "none",
        "a file with the node's administrators, a name and a password in each line; once it is set, every service asks every client",
    ),
    setting("http.tls_cert", "none", "a PEM file with the certificates of the control API for encrypted connections"),
    setting("http.tls_key", "none", "a PEM file with the key of http.tls_cert"),
    setting(
        "http.plaintext",
        "false",
        "true lets the control API listen beyond the loopback without TLS, such as behind a proxy that encrypts",
    ),
    setting("http.max_body", "1MiB", "the largest body of a request"),
    setting("http.request_timeout", "30s", "how long a request may take until the head of its answer"),
    setting("http.max_requests", "256", "how many requests may be under way"),
    setting("http.session_idle", "10min", "how long a SQL session over HTTP may be idle"),
    setting(
        "lease.ttl",
        "3s",
        "how long a lease lasts without being renewed; the same for all processes on one directory",
    ),
    setting("lease.margin", "500ms", "how much earlier than its lease ends a process stops serving"),
    setting("shutdown.timeout", "10s", "how long a shutdown may take before the rest is cut off"),
    setting("log", "info", "what is logged: a level, or directives such as info,savanna_streams=debug"),
    setting("keys.port", "6380", "port of the Redis protocol, 0 for any"),
    setting(
        "keys.cluster_port",
        "none",
        "port of the Redis protocol for clients of clusters (redis-cli -c), 0 for any, none; auto is 7000 if that is free",
    ),
    setting(
        "keys.spread",
        "false",
        "whether the keys of a cluster that is made are spread over its nodes, and not all at one",
    ),
    setting(
        "keys.moves",
        "false",
        "on trial: whether keys that are spread may move between nodes while they are used; the same at all nodes",
    ),
    setting(
        "keys.groups",
        "false",
        "on trial: whether requests about keys of several nodes are run where keys are spread; the same at all nodes",
    ),
    setting("keys.threads", "auto", "threads of the keys service, one per core if auto"),
    setting(
        "keys.config",
        "none",
        "a file with settings of keys in the form of redis.conf; what is set elsewhere counts before it",
    ),
    setting(
        "keys.shutdown",
        "auto",
        "whether SHUTDOWN stops the node: yes, no, or auto for yes if services is keys alone",
    ),
    setting("keys.aclfile", "", "a file with users of keys, as ACL SAVE writes it; empty for none"),
    setting("keys.acllog_max_len", "128", "how many refused requests ACL LOG keeps"),
    setting(
        "keys.appendfsync",
        "everysec",
        "when changes are on the disk: always (before the reply), everysec or no (soon after)",
    ),
    setting(
        "keys.client_output_buffer_limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        "bytes that a client may leave unread: class, hard limit, soft limit, its seconds",
    ),
    setting("keys.client_query_buffer_limit", "1073741824", "the longest request"),
    setting("keys.dbfilename", "dump.rdb", "what the file is called that SAVE writes, and the first start reads"),
    setting("keys.dir", "", "where that file is; empty for the data directory"),
    setting(
        "keys.hot_keys_memory",
        "0",
        "memory for copies of keys that are read so often that they get replicas by themselves, 0 for none",
    ),
    setting("keys.hot_keys_min_requests", "1000000", "recent requests without which no key gets replicas by itself"),
    setting(
        "keys.latency_monitor_threshold",
        "0",
        "milliseconds from which on LATENCY keeps what takes so long, 0 to keep nothing",
    ),
    setting("keys.latency_tracking", "yes", "whether it is counted how many calls of each command took how long"),
    setting("keys.latency_tracking_info_percentiles", "50 99 99.9", "the percentiles that INFO latencystats tells"),
    setting("keys.lfu_decay_time", "1", "minutes without a use that count one less, under a policy by frequency"),
    setting("keys.lfu_log_factor", "10", "how much rarer each further use is counted, under a policy by frequency"),
    setting(
        "keys.lua_time_limit",
        "5000",
        "milliseconds that others wait for a script before they are told BUSY; after 500 all are but for PING, ECHO and SELECT",
    ),
    setting("keys.maxclients", "10000", "clients that may be connected"),
    setting("keys.maxmemory", "0", "memory for keys and values, 0 for no limit"),
    setting(
        "keys.maxmemory_clients",
        "0",
        "memory for what clients ask and are told, in bytes or percent of maxmemory (5%); 0 for no limit",
    ),
    setting("keys.maxmemory_policy", "noeviction", "which keys are deleted above maxmemory"),
    setting("keys.notify_keyspace_events", "", "which events of keys are published, empty for none"),
    setting("keys.proto_max_bulk_len", "536870912", "the longest word of a request"),
    setting(
        "keys.protected_mode",
        "yes",
        "yes refuses clients of other machines while no password is needed, and passwords of administrators in the clear",
    ),
    setting("keys.requirepass", "", "the password of the user default, empty for none"),
    setting(
        "keys.script_time_limit",
        "5000",
        "milliseconds after which a script is stopped, or lua_time_limit if that is longer",
    ),
    setting("keys.slowlog_log_slower_than", "10000", "microseconds after which SLOWLOG keeps a command, -1 for never"),
    setting("keys.slowlog_max_len", "128", "how many commands SLOWLOG keeps"),
    setting(
        "keys.tcp_keepalive",
        "300",
        "seconds after which the operating system probes a silent client, 0 for never",
    ),
    setting("keys.timeout", "0", "seconds after which an idle client is disconnected, 0 for never"),
    setting(
        "keys.tracking_table_max_keys",
        "1000000",
        "keys of which it is known which clients keep copies, 0 for no limit",
    ),
    setting("keys.tls_port", "0", "port of the Redis protocol over TLS, 0 for none"),
    setting("keys.tls_cert_file", "", "a PEM file with the certificates of keys"),
    setting("keys.tls_key_file", "", "a PEM file with the key of keys.tls_cert_file"),
    setting("keys.tls_ca_cert_file", "", "a PEM file with the authorities that sign certificates of clients"),
    setting("keys.tls_auth_clients", "yes", "whether clients show certificates over TLS: yes, optional or no"),
    setting("tenants.port", "5433", "port of the PostgreSQL protocol of tenants, 0 for any"),
    setting("tenants.threads", "auto", "threads of the tenants service, one per core if auto"),
    setting("tenants.store", "local", "where tenants are kept: local (the data directory), or s3://BUCKET/PATH"),
    setting(
        "tenants.snapshot_age",
        "1h",
        "a transaction with an older snapshot is ended if it holds up the log of tenants",
    ),
    setting("tenants.idle", "5min", "idle time after which a tenant without clients is put to sleep"),
    setting("tenants.rows_memory", "1GiB", "memory for rows of all tenants; further rows are moved to the store"),
    setting("tenants.blocks_memory", "256MiB", "memory for blocks that were read from the store, of all tenants"),
    setting(
        "tenants.statements_memory",
        "auto",
        "memory for statements of all tenants, a quarter of the machine's if auto",
    ),
    setting(
        "tenants.spills",
        "true",
        "whether rows that statements of tenants have no memory for go to files; they are refused otherwise",
    ),
    setting("tenants.spill_limit", "16GiB", "bytes of such files that one tenant may have"),
    setting(
        "tenants.transaction_limit",
        "1GiB",
        "bytes of rows and entries of indexes that one transaction of a tenant may write",
    ),
    setting("tenants.log_distance", "256MiB", "a tenant that needs an older part of the log than this is flushed"),
    setting("tenants.log_rate", "256MiB", "bytes of the log per second that the tenants of a thread share"),
    setting("tenants.store_rate", "10000", "requests to the store per second that the tenants of a thread share"),
    setting(
        "tenants.patience",
        "1min",
        "how long a long statement keeps its place, and a login waits, while others wait for the same",
    ),
    setting("tenants.max_clients", "10000", "clients that may be connected"),
    setting("tenants.tls_cert", "none", "a PEM file with the certificates of tenants for encrypted connections"),
    setting("tenants.tls_key", "none", "a PEM file with the key of tenants.tls_cert"),
    setting("tenants.require_tls", "false", "true refuses unencrypted connections to tenants"),
    setting(
        "files.port",
        "8020",
        "port of Hadoop's calls (hdfs://HOST:PORT/), 0 for any; a node of a cluster has no files",
    ),
    setting("files.data_port", "9866", "port on which clients of files read and write blocks, 0 for any"),
    setting("files.http_port", "9870", "port of WebHDFS (webhdfs://HOST:PORT/) and of /jmx, 0 for any"),
    setting("files.threads", "auto", "threads for calls of the files service, one per core if auto"),
    setting(
        "files.max_clients",
        "1000",
        "clients of files that may be connected, for calls, for blocks and over HTTP each",
    ),
    setting(
        "files.trust_names",
        "false",
        "true believes clients of files who they are also beyond the loopback, and where auth.users is set",
    ),
    setting(
        "files.hosts",
        "none",
        "names by which clients reach files over HTTP, with commas between them, beside addresses, localhost and the name of the machine",
    ),
    setting(
        "files.datanodes",
        "none",
        "addresses of machines whose data nodes of Hadoop may register, with commas between them; 127.0.0.1 is this one",
    ),
    setting(
        "files.dead_after",
        "630s",
        "silence after which the replicas of a data node of Hadoop do not count any more and are made anew",
    ),
    setting(
        "files.replication",
        "1",
        "replicas of a file whose client does not say how many (dfs.replication); clients of Hadoop say 3",
    ),
    setting(
        "files.audit",
        "false",
        "true notes each call of files in filesystem/audit.log of the data directory, as Hadoop's audit log does",
    ),
    setting(
        "files.trash",
        "0",
        "minutes for which what users of files delete is in their trash (fs.trash.interval), 0 to delete at once",
    ),
    setting(
        FILES_DATABASE,
        OWN,
        "what is behind the names of files: own (the database savanna_files of this node), postgres://USER:PASSWORD@HOST/DATABASE, or none (memory and the log alone)",
    ),
    setting("files.cache", "1000000", "files and directories in memory, unless files.database is none"),
    setting(
        "functions.port",
        "9001",
        "port of Lambda's API (http://HOST:PORT/), 0 for any; a node of a cluster has no functions",
    ),
    setting("functions.threads", "auto", "threads for requests to functions, one per core if auto"),
    setting("functions.max_clients", "1000", "clients of functions that may be connected"),
    setting("functions.region", "us-east-1", "the region in the ARNs of functions"),
    setting(
        "functions.secret_file",
        "none",
        "a file (mode 600) with a key's name and its secret, with which requests have to be signed (AWS signature 4)",
    ),
    setting(
        "functions.isolation",
        "preferred",
        "required refuses to run functions that cannot be kept apart (namespaces, Landlock), preferred warns, none keeps them from nothing",
    ),
    setting(
        "functions.connect_ports",
        "none",
        "TCP ports that functions may connect to, with commas between them, beside that of their runtime",
    ),
    setting(
        "functions.store",
        "local",
        "where code of functions is kept: local (the data directory), or s3://BUCKET/PATH that is nobody else's",
    ),
    setting("functions.concurrency", "100", "invocations that all functions may have at once"),
    setting("functions.idle", "5min", "an instance of a function with nothing to do ends after this"),
    setting(
        "functions.retry_minute",
        "1min",
        "what an event waits after its first attempt that failed; after the second twice as long",
    ),
    setting(
        "functions.prices",
        "none",
        "a JSON file with per_million_requests and per_gigabyte_second in dollars; AWS' prices if none",
    ),
    setting(
        "functions.keys_url",
        "none",
        "the keys server whose streams can be told what became of events, such as redis://127.0.0.1:6380; without a password, which would be shown with the settings",
    ),
    setting("cluster.address", "127.0.0.1", "address on which other nodes of the cluster reach this one"),
    setting("cluster.port", "7400", "port for other nodes of the cluster, 0 for any; a node that is alone has none"),
    setting(
        "cluster.store",
        "none",
        "where a cluster over several machines keeps logs and rows: s3://BUCKET/PATH (file:///FOLDER on one machine, for tests)",
    ),
    setting(
        "cluster.secret_file",
        "none",
        "a file with the secret that the nodes of a cluster over several machines know",
    ),
    setting(
        CLUSTER_TLS[0],
        "none",
        "a PEM file with the certificate of this node for encrypted connections between nodes, for the DNS name savanna-node",
    ),
    setting(CLUSTER_TLS[1], "none", "a PEM file with the key of cluster.tls_cert"),
    setting(CLUSTER_TLS[2], "none", "a PEM file with the authorities that sign certificates of nodes"),
    setting(
        "cluster.etcd_ca",
        "none",
        "a PEM file with the authorities that sign certificates of etcd, for --join etcds://",
    ),
    setting("cluster.etcd_cert", "none", "a PEM file with the certificate that etcd is shown, where it asks for one"),
    setting("cluster.etcd_key", "none", "a PEM file with the key of cluster.etcd_cert"),
    setting(
        "cluster.etcd_user",
        "none",
        "the user of etcd that the node is, with the password in the environment variable SAVANNA_ETCD_PASSWORD",
    ),
    setting("cluster.nodes", "1", "how many nodes are waited for, 2 s at most, before services get their first owners"),
    setting(
        "cluster.balance",
        "off",
        "on moves databases from busy nodes to others; the node that has shard tenants decides, so set it for all",
    ),
    setting(
        "streams.files",
        ".",
        "folders that tables of files and dead letters may use (tables also s3://BUCKET/FOLDER), with commas between them, beside files in the data directory",
    ),
    setting("streams.parallelism", "auto", "partitions requested from each source"),
    setting("streams.group_size", "auto", "members of each function group"),
];

/// The file that a value names.
pub(super) fn file(value: &str) -> Option<PathBuf> {
    let path = value.trim();
    (!["", "none"].contains(&path)).then(|| PathBuf::from(path))
}

/// Takes the values out and remembers where they came from, for messages.
struct Reader<'a>(&'a BTreeMap<&'static str, Sourced>);

impl Reader<'_> {
    fn get<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let sourced = &self.0[key];
        parse(sourced.value.trim()).ok_or_else(|| ConfigError::Value {
            place: sourced.source.clone(),
            key,
            expected: expected.to_owned(),
            value: sourced.value.clone(),
        })
    }

    fn port(&self, key: &'static str) -> Result<u16, ConfigError> {
        self.get(key, "a port, 0 to 65535 (0 for any)", |text| text.parse().ok())
    }

    fn time(&self, key: &'static str) -> Result<Duration, ConfigError> {
        self.get(key, "a time above 0 with its unit, such as 250ms", units::time)
    }

    fn size(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.get(key, "a size above 0 with its unit, such as 64MiB", units::size)
    }

    fn automatic_size(&self, key: &'static str) -> Result<Option<usize>, ConfigError> {
        self.get(key, "a size above 0 with its unit, such as 64MiB, or auto", |text| match text {
            "auto" => Some(None),
            size => units::size(size).map(Some),
        })
    }

    fn text(&self, key: &'static str) -> Result<String, ConfigError> {
        let named = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        self.get(key, "a text that is not empty", |text| named(text).then(|| text.to_owned()))
    }

    fn file(&self, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        self.get(key, "the path of a file, or none", |text| (!text.is_empty()).then(|| file(text)))
    }

    /// Both files of encryption, or neither.
    fn tls(&self, certificates: &'static str, key: &'static str) -> Result<Option<TlsFiles>, ConfigError> {
        match (self.file(certificates)?, self.file(key)?) {
            (Some(certificates), Some(key)) => Ok(Some(TlsFiles { certificates, key })),
            (None, None) => Ok(None),
            (Some(_), None) => self.get(key, &format!("the path of the key of {certificates}"), |_| None),
            (None, Some(_)) => self.get(certificates, &format!("the path of the certificates of {key}"), |_| None),
        }
    }

    /// All files of encryption between nodes, or none.
    fn cluster_tls(&self) -> Result<Option<NodeTlsFiles>, ConfigError> {
        let [certificates, key, authorities] = CLUSTER_TLS.map(|setting| self.file(setting));
        match (certificates?, key?, authorities?) {
            (Some(certificates), Some(key), Some(authorities)) => {
                Ok(Some(NodeTlsFiles { certificates, key, authorities }))
            }
            (None, None, None) => Ok(None),
            files => {
                let missing = [files.0, files.1, files.2].iter().position(Option::is_none).unwrap_or_default();
                let expected = format!("the path of a file, as all of {} are set, or none", CLUSTER_TLS.join(", "));
                self.get(CLUSTER_TLS[missing], &expected, |_| None)
            }
        }
    }

    /// Whether encryption is required, which needs its files.
    fn requires_tls(&self, key: &'static str, files: Option<&TlsFiles>) -> Result<bool, ConfigError> {
        let requires = self.flag(key)?;
        let expected = "false as long as there are no certificates: set tls_cert and tls_key of the same service";
        self.get(key, expected, |_| (files.is_some() || !requires).then_some(requires))
    }

    fn count(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.get(key, "a whole number, 1 to 65535", |text| text.parse::<u16>().ok().filter(|n| *n > 0).map(usize::from))
    }

    /// What is behind the names of files. What is wrong with it is said without it: it may have a password.
    fn files_database(&self) -> Result<FilesDatabase, ConfigError> {
        self.get(FILES_DATABASE, "own, an address, or none", |text| {
            Some(match text {
                OWN => FilesDatabase::Own,
                "" | "none" => FilesDatabase::None,
                address => FilesDatabase::At(address.to_owned()),
            })
        })
    }

    fn flag(&self, key: &'static str) -> Result<bool, ConfigError> {
        self.get(key, "true or false", |text| text.parse().ok())
    }

    fn automatic(&self, key: &'static str) -> Result<Option<u16>, ConfigError> {
        self.get(key, "a whole number, 1 to 1024, or auto", |text| match text {
            "auto" => Some(None),
            number => number.parse().ok().filter(|n| (1..=1024).contains(n)).map(Some),
        })
    }
}

impl NodeConfig {
    /// Whether a service is to be started.
    pub fn runs(&self, name: &str) -> bool {
        let faces = |service: &str| match service {
            "streams" => ["pgwire", "http"].contains(&name),
            "keys" | "tenants" | "files" | "functions" => name == "http",
            _ => false,
        };
        self.services.iter().any(|service| service == name || faces(service))
    }

    /// Whether names of files are in a database of the node itself.
    pub fn keeps_names_of_files(&self) -> bool {
        self.runs("files") && self.files_database == FilesDatabase::Own
    }

    /// Reads the node's administrators; nobody if no file of them is configured.
    pub(crate) fn administrators(&self) -> Result<Users, SecretError> {
        self.auth_users.as_deref().map_or_else(|| Ok(Users::default()), Users::read)
    }

    pub(super) fn of(values: &BTreeMap<&'static str, Sourced>) -> Result<Self, ConfigError> {
        let read = Reader(values);
        let ttl = read.time("lease.ttl")?;
        read.time("lease.margin")?;
        let below = format!("a time below lease.ttl ({})", values["lease.ttl"].value);
        let lease = read.get("lease.margin", &below, |text| LeaseTerms::new(ttl, units::time(text)?).ok())?;
        let pgwire_tls = read.tls("pgwire.tls_cert", "pgwire.tls_key")?;
        let tenants_tls = read.tls("tenants.tls_cert", "tenants.tls_key")?;
        let services = format!("names of services ({}), with commas between them", SERVICES.join(", "));
        Ok(Self {
            name: read.text("node.name")?,
            data_dir: PathBuf::from(read.text("data_dir")?),
            services: read.get("services", &services, service_names)?,
            address: read.get("address", "an IP address, such as 127.0.0.1", |text| text.parse::<IpAddr>().ok())?,
            pgwire_port: read.port("pgwire.port")?,
            pgwire_requires_tls: read.requires_tls("pgwire.require_tls", pgwire_tls.as_ref())?,
            pgwire_tls,
            http_port: read.port("http.port")?,
            auth_users: read.file("auth.users")?,
            auth_token: read.file("auth.token")?,
            http_tls: read.tls("http.tls_cert", "http.tls_key")?,
            http_plaintext: read.flag("http.plaintext")?,
            http_max_body: read.size("http.max_body")?,
            http_request_timeout: read.time("http.request_timeout")?,
            http_max_requests: read.count("http.max_requests")?,
            http_session_idle: read.time("http.session_idle")?,
            lease,
            shutdown_timeout: read.time("shutdown.timeout")?,
            log: read.get("log", "a level (error, warn, info, debug, trace, off) or directives", |text| {
                telemetry::is_filter(text).then(|| text.to_owned())
            })?,
            keys_port: read.port("keys.port")?,
            keys_cluster_port: read.get(
                "keys.cluster_port",
                "auto, none, or a port, 0 to 65535 (0 for any)",
                |text| match text {
                    "auto" => Some(ClusterPort::IfFree(CLUSTER_PORT)),
                    "none" => Some(ClusterPort::None),
                    port => port.parse().ok().map(ClusterPort::At),
                },
            )?,
            keys_spread: read.flag("keys.spread")?,
            keys_moves: read.flag("keys.moves")?,
            keys_groups: read.flag("keys.groups")?,
            keys_threads: read.automatic("keys.threads")?,
            keys_file: read.file(keys::IMPORT)?,
            keys_shutdown: read.get("keys.shutdown", "auto, yes or no", |text| match text {
                "auto" => Some(None),
                "yes" => Some(Some(true)),
                "no" => Some(Some(false)),
                _ => None,
            })?,
            keys: keys::settings(values)?,
            tenants_port: read.port("tenants.port")?,
            tenants_store: read.get("tenants.store", "local, or s3://BUCKET/PATH", |text| match text {
                "local" => Some(None),
                url => Bucket::of_url(url).map(Some),
            })?,
            tenants_snapshot_age: read.time("tenants.snapshot_age")?,
            tenants_idle: read.time("tenants.idle")?,
            tenants_rows_memory: read.size("tenants.rows_memory")?,
            tenants_blocks_memory: read.size("tenants.blocks_memory")?,
            tenants_spills: read.flag("tenants.spills")?,
            tenants_spill_limit: read.size("tenants.spill_limit")?,
            tenants_transaction_limit: read.size("tenants.transaction_limit")?,
            tenants_statements_memory: read.automatic_size("tenants.statements_memory")?,
            tenants_log_distance: read.size("tenants.log_distance")?,
            tenants_log_rate: read.size("tenants.log_rate")?,
            tenants_store_rate: read.count("tenants.store_rate")?,
            tenants_patience: read.time("tenants.patience")?,
            tenants_max_clients: read.count("tenants.max_clients")?,
            tenants_requires_tls: read.requires_tls("tenants.require_tls", tenants_tls.as_ref())?,
            tenants_tls,
            tenants_threads: read.automatic("tenants.threads")?,
            files_port: read.port("files.port")?,
            files_data_port: read.port("files.data_port")?,
            files_http_port: read.port("files.http_port")?,
            files_threads: read.automatic("files.threads")?,
            files_max_clients: read.count("files.max_clients")?,
            files_trusts_names: read.flag("files.trust_names")?,
            files_hosts: read.get("files.hosts", "names with commas between them, or none", |text| match text {
                "none" => Some(Vec::new()),
                names => {
                    let fits = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
                    let names = names.split(',').map(str::trim);
                    names.map(|name| (!name.is_empty() && name.bytes().all(fits)).then(|| name.to_owned())).collect()
                }
            })?,
            files_datanodes: read.get("files.datanodes", "addresses with commas between them, or none", |text| {
                match text {
                    "none" => Some(Vec::new()),
                    addresses => addresses.split(',').map(|address| address.trim().parse().ok()).collect(),
                }
            })?,
            files_dead_after: read.time("files.dead_after")?,
            files_replication: read.get("files.replication", "a whole number, 1 to 512", |text| {
                text.parse::<u16>().ok().filter(|n| (1..=512).contains(n))
            })?,
            files_audit: read.flag("files.audit")?,
            files_trash: read.get("files.trash", "a whole number of minutes, 0 to 5256000", |text| {
                text.parse::<u32>().ok().filter(|minutes| *minutes <= 5_256_000)
            })?,
            files_database: read.files_database()?,
            files_cache: read.get("files.cache", "a whole number, 1 to 1000000000", |text| {
                text.parse::<usize>().ok().filter(|n| (1..=1_000_000_000).contains(n))
            })?,
            functions_port: read.port("functions.port")?,
            functions_threads: read.automatic("functions.threads")?,
            functions_max_clients: read.count("functions.max_clients")?,
            functions_region: read.get("functions.region", "a region, such as us-east-1", |text| {
                let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                ((1..=32).contains(&text.len()) && text.bytes().all(fits)).then(|| text.to_owned())
            })?,
            functions_secret: read.file("functions.secret_file")?,
            functions_isolation: read.get("functions.isolation", "required, preferred or none", |text| match text {
                "required" => Some(Isolation::Required),
                "preferred" => Some(Isolation::Preferred),
                "none" => Some(Isolation::None),
                _ => None,
            })?,
            functions_connect_ports: read.get(
                "functions.connect_ports",
                "port numbers with commas between them, or none",
                |text| match text {
                    "none" => Some(Vec::new()),
                    ports => ports.split(',').map(|port| port.trim().parse().ok()).collect(),
                },
            )?,
            functions_store: read.get("functions.store", "local, or s3://BUCKET/PATH", |text| match text {
                "local" => Some(None),
                url => Bucket::of_url(url).map(Some),
            })?,
            functions_concurrency: read.count("functions.concurrency")?,
            functions_idle: read.time("functions.idle")?,
            functions_retry_minute: read.time("functions.retry_minute")?,
            functions_prices: read.file("functions.prices")?,
            functions_keys_url: read.get("functions.keys_url", "redis://HOST:PORT, or none", |text| match text {
                "none" => Some(None),
                url => url.starts_with("redis://").then(|| Some(url.to_owned())),
            })?,
            cluster_address: read.get(
                "cluster.address",
                "an IP address that other nodes reach, such as 10.0.0.1",
                |text| text.parse().ok().filter(|address: &IpAddr| !address.is_unspecified()),
            )?,
            cluster_port: read.port("cluster.port")?,
            cluster_store: read.get(
                "cluster.store",
                "s3://BUCKET/PATH, file:///FOLDER, or none",
                |text| match text {
                    "none" => Some(None),
                    url => StoreUrl::parse(url).map(Some),
                },
            )?,
            cluster_secret: read.file("cluster.secret_file")?,
            cluster_tls: read.cluster_tls()?,
            cluster_etcd_ca: read.file("cluster.etcd_ca")?,
            cluster_etcd_tls: read.tls("cluster.etcd_cert", "cluster.etcd_key")?,
            cluster_etcd_user: read.get(
                "cluster.etcd_user",
                "the name of a user of etcd, or none",
                |text| match text {
                    "" => None,
                    "none" => Some(None),
                    user => Some(Some(user.to_owned())),
                },
            )?,
            cluster_balance: read.get("cluster.balance", "on or off", |text| match text {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            })?,
            cluster_nodes: read.get("cluster.nodes", "a whole number, 1 to 1024", |text| {
                text.parse::<usize>().ok().filter(|n| (1..=1024).contains(n))
            })?,
            streams_files: read.get("streams.files", "paths of folders, with commas between them", |text| {
                let folders: Vec<PathBuf> = text.split(',').map(|folder| PathBuf::from(folder.trim())).collect();
                (!folders.iter().any(|folder| folder.as_os_str().is_empty())).then_some(folders)
            })?,
            streams_parallelism: read.automatic("streams.parallelism")?.map(usize::from),
            streams_group_size: read.automatic("streams.group_size")?,
        })
    }
}

fn service_names(text: &str) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim) {
        if !SERVICES.contains(&name) {
            return None;
        }
        if !names.iter().any(|n| n == name) {
            names.push(name.to_owned());
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_setting() {
        let values = SETTINGS.iter().map(|spec| {
            let value = spec.default.to_owned();
            (spec.key, Sourced { value, source: super::super::Source::Default })
        });
        NodeConfig::of(&values.collect()).unwrap();
    }

    #[test]
    fn every_setting_says_what_it_is() {
        for spec in SETTINGS {
            assert!(!spec.help.is_empty(), "{}", spec.key);
        }
    }

    #[test]
    fn nodes_encrypt_with_all_their_files_or_with_none() {
        let load = |set: &[&str]| {
            let values = SETTINGS.iter().map(|spec| {
                let value = if set.contains(&spec.key) { "/a.pem" } else { spec.default }.to_owned();
                (spec.key, Sourced { value, source: super::super::Source::Default })
            });
            NodeConfig::of(&values.collect()).map(|config| config.cluster_tls.is_some())
        };
        assert_eq!((load(&CLUSTER_TLS), load(&[])), (Ok(true), Ok(false)));
        for missing in CLUSTER_TLS {
            let set: Vec<_> = CLUSTER_TLS.into_iter().filter(|setting| *setting != missing).collect();
            let refused = load(&set).unwrap_err().to_string();
            let expected = format!(
                "{} takes the path of a file, as all of cluster.tls_cert, cluster.tls_key, cluster.tls_ca are set, or none, but `none` came",
                missing
            );
            assert_eq!(refused, format!("default: {expected}"));
        }
    }
}
