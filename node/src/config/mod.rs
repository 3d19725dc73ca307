//! Configuration: `savanna.toml` < `SAVANNA_*` < flags.
//!
//! A setting has a key (`http.port`), which in the file is a table and a name (`[http] port = 8080`), and in the
//! environment `SAVANNA_HTTP_PORT`. Units are in the value: `64MiB`, `250ms`. A name that is no setting is an error, with
//! the names that are near; so a typing mistake is found when it is made.

mod keys;
mod sources;
mod table;
mod units;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use object_store::path::Path;
use savanna_http::types::Setting;
use savanna_keys::config::Config as KeysConfig;
use savanna_lambda::Isolation;
use savanna_manifest::s3::Bucket;
use savanna_ownership::LeaseTerms;
use savanna_pgwire_tenants::TlsFiles;
use savanna_resp::ClusterPort;
use savanna_rpc::TlsFiles as NodeTlsFiles;

use crate::cluster::StoreUrl;

pub use sources::Sources;
pub use table::{SETTINGS, SettingSpec};

/// Threads as configured; one per core if nobody said.
pub(crate) fn threads_or_cores(configured: Option<u16>) -> u16 {
    configured.unwrap_or_else(|| {
        let cores = available_parallelism().map_or(1, NonZero::get);
        u16::try_from(cores).unwrap_or(u16::MAX)
    })
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// What is wrong with the configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: the configuration cannot be read: {reason}; check the path, or leave --config out")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: String,
    },
    /// The file is not TOML.
    #[error("{path}:{line}: this is not TOML: {reason}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's reason.
        reason: String,
    },
    /// No such setting.
    #[error("{place}: there is no setting {key}; {hint}")]
    Unknown {
        /// Where it was set.
        place: Source,
        /// The key as written.
        key: String,
        /// The names that are near.
        hint: String,
    },
    /// The file with settings of keys cannot be read.
    #[error("{place}: keys.config names {path}, which cannot be read: {reason}; check the path")]
    Import {
        /// Where it was named.
        place: Source,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: String,
    },
    /// A value that a setting of keys does not take. It is not shown: it may be a password.
    #[error("{place}: {setting}: {reason}")]
    Keys {
        /// Where it was set.
        place: Source,
        /// The setting as written.
        setting: String,
        /// What it takes.
        reason: String,
    },
    /// A value that the setting does not take.
    #[error("{place}: {key} takes {expected}, but `{value}` came")]
    Value {
        /// Where it was set.
        place: Source,
        /// The setting.
        key: &'static str,
        /// What it takes.
        expected: String,
        /// What came.
        value: String,
    },
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced {
    /// As it was written.
    pub value: String,
    /// Where.
    pub source: Source,
}

/// All settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    values: BTreeMap<&'static str, Sourced>,
    node: NodeConfig,
}

/// What is behind the names of files.
#[derive(Clone, PartialEq, Eq)]
pub enum FilesDatabase {
    /// Nothing: they are in memory and the log.
    None,
    /// A database of the node itself.
    Own,
    /// The one at `postgres://user:password@host/database`.
    At(String),
}

/// An address has a password.
impl fmt::Debug for FilesDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Own => "Own",
            Self::At(_) => "At",
        })
    }
}

/// The settings as the node uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// The node's name.
    pub name: String,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// The services that it runs.
    pub services: Vec<String>,
    /// The address on which every face listens.
    pub address: IpAddr,
    /// The port of the PostgreSQL protocol of streams, 0 for any.
    pub pgwire_port: u16,
    /// What clients of streams can encrypt their connections with.
    pub pgwire_tls: Option<TlsFiles>,
    /// Whether they have to.
    pub pgwire_requires_tls: bool,
    /// The port of the HTTP face, 0 for any.
    pub http_port: u16,
    /// The file with the administrators of this node.
    pub auth_users: Option<PathBuf>,
    /// A file with the token that requests to the control API carry; none to ask for nothing.
    pub auth_token: Option<PathBuf>,
    /// What connections to the control API are encrypted with; none for plain ones.
    pub http_tls: Option<TlsFiles>,
    /// Whether plain connections to the control API may come from beyond the loopback.
    pub http_plaintext: bool,
    /// The largest body of an HTTP request, in bytes.
    pub http_max_body: usize,
    /// How long an HTTP request may take until the head of its answer.
    pub http_request_timeout: Duration,
    /// How many HTTP requests may be under way.
    pub http_max_requests: usize,
    /// How long an HTTP session may be idle.
    pub http_session_idle: Duration,
    /// The lease of the data directory and of the node.
    pub lease: LeaseTerms,
    /// How long a shutdown may take.
    pub shutdown_timeout: Duration,
    /// The filter of logs.
    pub log: String,
    /// The port of the Redis protocol, 0 for any.
    pub keys_port: u16,
    /// `keys.cluster_port`
    pub keys_cluster_port: ClusterPort,
    /// Whether the keys of a new cluster are spread over its nodes.
    pub keys_spread: bool,
    /// Whether keys that are spread move between nodes while they are used, as far as this node goes.
    pub keys_moves: bool,
    /// Whether requests about keys of several nodes are run, as far as this node goes.
    pub keys_groups: bool,
    /// Threads of the keys service; none for one per core.
    pub keys_threads: Option<u16>,
    /// The file in the form of `redis.conf` whose settings it has, if it has one.
    pub keys_file: Option<PathBuf>,
    /// Whether its clients may stop the node; none for where it has nothing but keys.
    pub keys_shutdown: Option<bool>,
    /// Its other settings.
    pub keys: KeysConfig,
    /// The port of the PostgreSQL protocol of tenants, 0 for any.
    pub tenants_port: u16,
    /// Threads of the tenants service; none for one per core.
    pub tenants_threads: Option<u16>,
    /// The bucket in which tenants are kept, and the path in it; none for the data directory.
    pub tenants_store: Option<(Bucket, Path)>,
    /// How old a snapshot in a tenant may be that holds up its log.
    pub tenants_snapshot_age: Duration,
    /// A tenant without clients for so long falls asleep.
    pub tenants_idle: Duration,
    /// Bytes of rows of all tenants in memory.
    pub tenants_rows_memory: usize,
    /// Bytes of blocks of all tenants in memory.
    pub tenants_blocks_memory: usize,
    /// Bytes that statements of all tenants keep; none for a quarter of the machine's memory.
    pub tenants_statements_memory: Option<usize>,
    /// Whether rows that statements of tenants have no memory for go to files.
    pub tenants_spills: bool,
    /// Bytes of such files that one tenant may have.
    pub tenants_spill_limit: usize,
    /// Bytes that one transaction may write.
    pub tenants_transaction_limit: usize,
    /// A tenant that needs a part of the log so many bytes back is flushed.
    pub tenants_log_distance: usize,
    /// Bytes of the log per second that the tenants of a thread share.
    pub tenants_log_rate: usize,
    /// Requests to the store per second that the tenants of a thread share.
    pub tenants_store_rate: usize,
    /// How long a long statement keeps its place while others wait.
    pub tenants_patience: Duration,
    /// Clients of tenants that may be connected.
    pub tenants_max_clients: usize,
    /// What clients of tenants can encrypt their connections with; none to offer nothing.
    pub tenants_tls: Option<TlsFiles>,
    /// Whether they have to.
    pub tenants_requires_tls: bool,
    /// The port of Hadoop's calls, 0 for any.
    pub files_port: u16,
    /// The port of Hadoop's transfer of blocks, 0 for any.
    pub files_data_port: u16,
    /// The port of files over HTTP, 0 for any.
    pub files_http_port: u16,
    /// Threads of the files service; none for one per core.
    pub files_threads: Option<u16>,
    /// Clients of files that may be connected.
    pub files_max_clients: usize,
    /// Whether clients of files are believed who they are where not everybody is trusted.
    pub files_trusts_names: bool,
    /// Names by which clients of files may reach this node over HTTP.
    pub files_hosts: Vec<String>,
    /// Addresses of machines whose data nodes of Hadoop are admitted.
    pub files_datanodes: Vec<IpAddr>,
    /// After such a silence replicas of a data node do not count any more.
    pub files_dead_after: Duration,
    /// Replicas of a file if its client does not say how many.
    pub files_replication: u16,
    /// Whether calls of files are noted in an audit log.
    pub files_audit: bool,
    /// Minutes for which what users delete is in their trash, 0 to delete at once.
    pub files_trash: u32,
    /// What is behind the names of files.
    pub files_database: FilesDatabase,
    /// Files and directories that may be in memory, if that is a database.
    pub files_cache: usize,
    /// The port of Lambda's API, 0 for any.
    pub functions_port: u16,
    /// Threads of the functions service; none for one per core.
    pub functions_threads: Option<u16>,
    /// Clients of functions that may be connected.
    pub functions_max_clients: usize,
    /// The bucket and the path where code of functions is; none for the data directory.
    pub functions_store: Option<(Bucket, Path)>,
    /// The region in ARNs.
    pub functions_region: String,
    /// The file with the key that requests are signed with; none to ask for nothing.
    pub functions_secret: Option<PathBuf>,
    /// What functions are kept from.
    pub functions_isolation: Isolation,
    /// Ports that functions may connect to.
    pub functions_connect_ports: Vec<u16>,
    /// Invocations that all functions may have at once.
    pub functions_concurrency: usize,
    /// An instance with nothing to do ends after this.
    pub functions_idle: Duration,
    /// What a minute is between attempts of an event.
    pub functions_retry_minute: Duration,
    /// The file with what is paid for functions; none for what AWS asks.
    pub functions_prices: Option<PathBuf>,
    /// The keys server whose streams are told of events.
    pub functions_keys_url: Option<String>,
    /// Where other nodes of the cluster reach this one.
    pub cluster_address: IpAddr,
    /// The port for other nodes of the cluster, 0 for any.
    pub cluster_port: u16,
    /// Where a cluster over several machines keeps logs and rows; none for where it does already.
    pub cluster_store: Option<StoreUrl>,
    /// The file with the secret of such a cluster.
    pub cluster_secret: Option<PathBuf>,
    /// What connections to other nodes are encrypted with; none if they are not.
    pub cluster_tls: Option<NodeTlsFiles>,
    /// The authorities that sign certificates of etcd; none where etcd is asked without encryption.
    pub cluster_etcd_ca: Option<PathBuf>,
    /// What etcd is shown; none where it asks for no certificate.
    pub cluster_etcd_tls: Option<TlsFiles>,
    /// The user of etcd that the node is; none where it asks for no user.
    pub cluster_etcd_user: Option<String>,
    /// How many nodes are waited for before services get their first owners.
    pub cluster_nodes: usize,
    /// Whether databases move from busy nodes to others when this node decides that.
    pub cluster_balance: bool,
    /// Folders that tables of files may use, beside `files` in the data directory.
    pub streams_files: Vec<PathBuf>,
    /// Partitions asked of each source; none for as many as the engine chooses.
    pub streams_parallelism: Option<usize>,
    /// Members of each function group; none for as many as the engine chooses.
    pub streams_group_size: Option<u16>,
}

impl Config {
    /// The settings as the node uses them.
    pub const fn node(&self) -> &NodeConfig {
        &self.node
    }

    /// A setting's value as text, and where it came from.
    pub fn get(&self, key: &str) -> Option<&Sourced> {
        self.values.get(key)
    }

    /// All of them in the order of their table, for `config show`.
    pub fn settings(&self) -> Vec<Setting> {
        let shown = |spec: &SettingSpec| {
            let sourced = self.values.get(spec.key)?;
            let (key, value) = (spec.key.to_owned(), sourced.value.clone());
            Some(Setting { key, value, source: sourced.source.to_string() })
        };
        SETTINGS.iter().filter_map(shown).collect()
    }

    /// Puts the sources over one another and checks every value.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown name, or a wrong value; with the place.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let default =
            |spec: &SettingSpec| (spec.key, Sourced { value: spec.default.to_owned(), source: Source::Default });
        let mut values: BTreeMap<&'static str, Sourced> = SETTINGS.iter().map(default).collect();
        for (key, sourced) in sources.read()? {
            let spec = SETTINGS.iter().find(|spec| spec.key == key);
            let spec = spec.ok_or_else(|| unknown(key, &sourced.source))?;
            values.insert(spec.key, sourced);
        }
        if let Some(path) = table::file(&values[keys::IMPORT].value) {
            for (key, imported) in keys::import(&path, &values[keys::IMPORT].source)? {
                if values[key].source == Source::Default {
                    values.insert(key, imported);
                }
            }
        }
        let node = NodeConfig::of(&values)?;
        for secret in [keys::SECRET, table::FILES_DATABASE] {
            let is_default = |sourced: &&mut Sourced| ["", "none", table::OWN].contains(&sourced.value.as_str());
            if let Some(sourced) = values.get_mut(secret).filter(|sourced| !is_default(sourced)) {
                sourced.value = "(hidden)".to_owned();
            }
        }
        Ok(Self { values, node })
    }
}

/// The error for a name that is no setting.
fn unknown(key: String, place: &Source) -> ConfigError {
    let names = SETTINGS.iter().map(|spec| spec.key);
    let near = nearest(&key, names);
    let hint = match near.as_slice() {
        [] => "`savanna config show` lists all".to_owned(),
        near => format!("did you mean {}? `savanna config show` lists all", near.join(" or ")),
    };
    ConfigError::Unknown { place: place.clone(), key, hint }
}

/// The names that somebody may have meant, best first, at most two.
pub(crate) fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let given = given.to_lowercase();
    let mut near: Vec<(f64, &str)> =
        names.map(|name| (strsim::jaro_winkler(&given, name), name)).filter(|(score, _)| *score > 0.84).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(2).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, env: &[(&str, &str)], flags: &[(&str, &str, &str)]) -> Result<Config, ConfigError> {
        let pairs = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut sources = Sources::none().text("savanna.toml", file).environment(env.iter().map(pairs));
        for (key, value, flag) in flags {
            sources = sources.flag(key, value, flag);
        }
        Config::load(&sources)
    }

    fn source(config: &Config, key: &str) -> String {
        config.get(key).unwrap().source.to_string()
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
        let file = "[http]\nport = 1\n[pgwire]\nport = 2\n[node]\nname = \"file\"\n";
        let env = [("SAVANNA_HTTP_PORT", "3"), ("SAVANNA_PGWIRE_PORT", "4"), ("HOME", "/x")];
        let config = load(file, &env, &[("http.port", "5", "--http-port")]).unwrap();
        assert_eq!((config.node().http_port, config.node().pgwire_port), (5, 4));
        assert_eq!(config.node().name, "file");
        assert_eq!(source(&config, "http.port"), "flag --http-port");
        assert_eq!(source(&config, "pgwire.port"), "environment SAVANNA_PGWIRE_PORT");
        assert_eq!(source(&config, "node.name"), "savanna.toml:6");
        assert_eq!(source(&config, "log"), "default");
    }

    #[test]
    fn values_carry_their_units() {
        let file = "[http]\nmax_body = \"64MiB\"\nrequest_timeout = '250ms'\n[lease]\nttl = \"2s\"\n";
        let config = load(file, &[], &[]).unwrap();
        assert_eq!(config.node().http_max_body, 64 << 20);
        assert_eq!(config.node().http_request_timeout, Duration::from_millis(250));
        assert_eq!(config.node().lease.ttl(), Duration::from_secs(2));
    }

    #[test]
    fn an_unknown_setting_is_refused_with_its_place_and_near_names() {
        let error = load("\n[http]\nprot = 1\n", &[], &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "savanna.toml:3: there is no setting http.prot; did you mean http.port or http.plaintext? `savanna config show` lists all"
        );
        let error = load("", &[("SAVANNA_HTPP_PORT", "1")], &[]).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("environment SAVANNA_HTPP_PORT: there is no setting"), "{text}");
        assert!(text.contains("SAVANNA_HTTP_PORT"), "{text}");
        let error = load("zzz = 1", &[], &[]).unwrap_err();
        assert_eq!(error.to_string(), "savanna.toml:1: there is no setting zzz; `savanna config show` lists all");
    }

    #[test]
    fn a_wrong_value_says_what_the_setting_takes_and_where_it_came_from() {
        let cases = [
            ("http.port", "80x80", "a port, 0 to 65535 (0 for any)"),
            ("http.max_body", "64", "a size above 0 with its unit, such as 64MiB"),
            ("shutdown.timeout", "10", "a time above 0 with its unit, such as 250ms"),
            ("address", "localhost", "an IP address, such as 127.0.0.1"),
            ("streams.parallelism", "0", "a whole number, 1 to 1024, or auto"),
        ];
        for (key, value, expected) in cases {
            let error = load("", &[], &[(key, value, "--set")]).unwrap_err();
            assert_eq!(error.to_string(), format!("flag --set: {key} takes {expected}, but `{value}` came"));
        }
    }

    #[test]
    fn an_unknown_service_names_those_that_exist() {
        let error = load("", &[], &[("services", "streams,kyes", "--only")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "flag --only: services takes names of services (streams, keys, tenants, files, functions, pgwire, http), with commas between them, but `streams,kyes` came"
        );
    }

    #[test]
    fn single_faces_can_be_chosen() {
        let runs = |services: &str| {
            let config = load("", &[], &[("services", services, "--only")]).unwrap();
            ["pgwire", "http", "keys", "tenants"].map(|service| config.node().runs(service))
        };
        assert_eq!(runs("streams"), [true, true, false, false]);
        assert_eq!(runs("http"), [false, true, false, false]);
        assert_eq!(runs("pgwire, http,http"), [true, true, false, false]);
        assert_eq!(runs("keys"), [false, true, true, false]);
        assert_eq!(runs("tenants"), [false, true, false, true]);
    }

    #[test]
    fn a_margin_as_long_as_the_lease_is_refused() {
        let error = load("", &[], &[("lease.margin", "3s", "--set")]).unwrap_err();
        assert_eq!(error.to_string(), "flag --set: lease.margin takes a time below lease.ttl (3s), but `3s` came");
    }

    #[test]
    fn what_is_not_toml_is_refused_with_its_line() {
        let error = load("[http]\nport = = 1\n", &[], &[]).unwrap_err();
        assert!(error.to_string().starts_with("savanna.toml:2: this is not TOML: "), "{error}");
    }

    #[test]
    fn variables_that_others_set_are_left_alone() {
        let env = [
            ("SAVANNA_NO_INSTALL", "1"),
            ("SAVANNA_SERVICE_HOST", "10.0.0.1"),
            ("SAVANNA_PORT", "tcp://10.0.0.1:8080"),
            ("SAVANNA_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ];
        load("", &env, &[]).unwrap();
    }

    #[test]
    fn every_setting_is_shown_with_its_value_and_source() {
        let config = load("", &[], &[]).unwrap();
        assert_eq!(config.settings().len(), SETTINGS.len());
        assert!(config.settings().iter().all(|s| s.source == "default" && !s.key.is_empty()));
    }
}
