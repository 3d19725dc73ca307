//! The options of a table in Redis.

use std::fmt;
use std::time::Duration;

use arrow::datatypes::DataType;
use redis::{Connection, RedisError};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::{ColumnDef, TableDef};
use savanna_streams_model::time::parse_duration;

use crate::format::malformed::OnError;
use crate::options::{Kind, OptionSpec, Options, Presence};

/// The connector's name.
pub(super) const NAME: &str = "redis";

const fn option(name: &'static str, kind: Kind, presence: Presence, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind, presence, help }
}

const URL: &str = "url";
const KEY: &str = "key";
const KEY_FIELDS: &str = "key.fields";
const TTL: &str = "ttl";
const DELETE_COLUMN: &str = "sink.delete-column";
const RETRY_TIMEOUT: &str = "retry.timeout";
const ON_ERROR: &str = "on-error";

pub(super) const OPTIONS: &[OptionSpec] = &[
    option(
        URL,
        Kind::Text,
        Presence::Required,
        "The server: 'redis://user:password@host:port/0', or 'rediss://..' for TLS.",
    ),
    option(
        "type",
        Kind::Choice(&["hash", "string", "stream", "list"]),
        Presence::Default("hash"),
        "What a row becomes: a hash of its other columns, a string that is a JSON object of them, or an entry of a stream or a list.",
    ),
    option(KEY, Kind::Text, Presence::Optional, "The key, or what keys begin with, such as 'auction:'."),
    option(
        KEY_FIELDS,
        Kind::Text,
        Presence::Optional,
        "Columns whose values follow in the key, with ';' between the columns and ':' between the values.",
    ),
    option(TTL, Kind::Duration, Presence::Optional, "A key expires so long after it was written last."),
    option(
        DELETE_COLUMN,
        Kind::Text,
        Presence::Optional,
        "A BOOLEAN column that is not written: where it is TRUE, the key goes. Of 'hash' and 'string'.",
    ),
    option(
        RETRY_TIMEOUT,
        Kind::Duration,
        Presence::Default("5min"),
        "For so long the server may be away when an epoch is written; then the query fails.",
    ),
    option(
        ON_ERROR,
        Kind::Choice(&["fail", "skip"]),
        Presence::Default("fail"),
        "What happens to a key that is read and is no row: the query fails, or it is skipped and counted.",
    ),
];

/// How the keys begin that say which epochs there are.
pub(super) const JUDGES: &str = "savanna:epochs:";
/// How long the server may take for one step.
const STEP: Duration = Duration::from_secs(10);
/// Keys expire, and servers are waited for, no later than that.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What a row becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Hash,
    String,
    Stream,
    List,
}

impl Form {
    /// Whether each row is an entry more.
    const fn appends(self) -> bool {
        matches!(self, Self::Stream | Self::List)
    }

    /// The type that a key must have that is there already; none if it is replaced.
    pub(super) const fn appends_to(self) -> Option<&'static str> {
        match self {
            Self::Hash => Some("hash"),
            Self::String => None,
            Self::Stream => Some("stream"),
            Self::List => Some("list"),
        }
    }
}

/// What a table's options say.
#[derive(Clone)]
pub(super) struct Settings {
    /// Not shown: it may have a password.
    pub(super) client: redis::Client,
    /// Host and port.
    pub(super) server: String,
    pub(super) form: Form,
    pub(super) prefix: String,
    pub(super) key_fields: Vec<String>,
    /// The column that says that a key goes.
    pub(super) delete_column: Option<String>,
    pub(super) ttl: Option<Duration>,
    pub(super) retry_timeout: Duration,
    pub(super) on_error: OnError,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Settings {
    pub(super) fn new(table: &TableDef) -> Result<Self> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        let url = options.text(URL).filter(|url| url.starts_with("redis://") || url.starts_with("rediss://"));
        let client = url.and_then(|url| redis::Client::open(url).ok()).ok_or_else(|| {
            // What is given is not shown: it may be the password.
            StreamError::invalid(format!(
                "option '{URL}' of connector {NAME}: expected 'redis://host:port', with 'user:password@' before the host if there is a password"
            ))
        })?;
        let form = match options.text("type") {
            Some("string") => Form::String,
            Some("stream") => Form::Stream,
            Some("list") => Form::List,
            _ => Form::Hash,
        };
        let names = options.text(KEY_FIELDS).map_or_else(Vec::new, |names| names.split(';').map(str::trim).collect());
        let key_fields = names.into_iter().map(|name| column(table, name)).collect::<Result<Vec<_>>>()?;
        let prefix = options.text(KEY).unwrap_or_default().to_owned();
        if prefix.starts_with(JUDGES) {
            return Err(options.error(KEY, &format!("another beginning than '{JUDGES}'")));
        }
        let is_one_key = key_fields.is_empty();
        if is_one_key && (prefix.is_empty() || !form.appends()) {
            return Err(options.error(
                KEY_FIELDS,
                "columns of the table, or a 'key' for a 'type' of many entries ('stream' or 'list')",
            ));
        }
        let delete_column = options.text(DELETE_COLUMN).map(|name| column(table, name)).transpose()?;
        if let Some(name) = &delete_column {
            let is_flag = |column: &ColumnDef| column.name == *name && column.data_type == DataType::Boolean;
            if !table.columns.iter().any(is_flag) || key_fields.contains(name) {
                return Err(options.error(DELETE_COLUMN, "a BOOLEAN column that is not in the key"));
            }
            if form.appends() {
                return Err(options.error(DELETE_COLUMN, "nothing for a 'type' of which each row is an entry more"));
            }
        }
        let written = table.columns.iter().filter(|column| column.computed.is_none()).count();
        if written == key_fields.len() + usize::from(delete_column.is_some()) {
            return Err(options.error(KEY_FIELDS, "not all columns: the others are what is written"));
        }
        let server = client.get_connection_info().addr().to_string();
        let retry_timeout = options.get(RETRY_TIMEOUT, |text| parse_duration(text).filter(|time| *time <= LONGEST))?;
        let ttl = |text: &str| parse_duration(text).filter(|ttl| ttl.as_millis() > 0 && *ttl <= LONGEST);
        let ttl = options.find(TTL, ttl)?;
        let on_error = options.get(ON_ERROR, OnError::parse)?;
        Ok(Self { client, server, form, prefix, key_fields, delete_column, ttl, retry_timeout, on_error })
    }

    /// Whether a column is a part of what a key has.
    pub(super) fn is_value(&self, column: &String) -> bool {
        !self.key_fields.contains(column) && self.delete_column.as_ref() != Some(column)
    }

    /// A connection of which no step takes long.
    pub(super) fn connect(&self) -> Result<Connection, RedisError> {
        let connection = self.client.get_connection_with_timeout(STEP)?;
        connection.set_read_timeout(Some(STEP))?;
        connection.set_write_timeout(Some(STEP))?;
        Ok(connection)
    }
}

/// An error in words.
pub(super) fn told(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// The name of a column that is written.
fn column(table: &TableDef, name: &str) -> Result<String> {
    let is_it = |column: &&ColumnDef| column.name == name && column.computed.is_none();
    match table.columns.iter().find(is_it) {
        Some(column) => Ok(column.name.clone()),
        None => Err(StreamError::Unknown {
            kind: "column".into(),
            name: name.into(),
            position: None,
            hint: format!(
                "'{KEY_FIELDS}' and '{DELETE_COLUMN}' name columns of the table, those of a key with ';' between them"
            ),
        }),
    }
}
