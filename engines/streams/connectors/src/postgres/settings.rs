//! The options of a table in PostgreSQL.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use arrow::datatypes::DataType;
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::{ColumnDef, TableDef};
use savanna_streams_model::names::hint;
use savanna_streams_model::time::parse_duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::names::{TableName, is_name};
use crate::format::declares_none;
use crate::options::{Kind, OptionSpec, Options, Presence};

/// The connector's name.
pub(super) const NAME: &str = "postgres";

const fn option(name: &'static str, kind: Kind, presence: Presence, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind, presence, help }
}

/// The options that say where the server is, and who asks.
pub(super) const PLACE: [OptionSpec; 7] = [
    option(
        URL,
        Kind::Text,
        Presence::Optional,
        "The server and the database: 'postgresql://host:port/database'. Or 'host', 'port' and 'database'.",
    ),
    option(HOST, Kind::Text, Presence::Optional, "The server, if there is no 'url': a name, or an address."),
    option(
        PORT,
        Kind::Integer { min: 1, max: 65_535 },
        Presence::Optional,
        "Its port, beside 'host'; 5432 if it is not given.",
    ),
    option(DATABASE, Kind::Text, Presence::Optional, "The database, beside 'host'."),
    option(USERNAME, Kind::Text, Presence::Optional, "The user, unless 'url' names one."),
    option(PASSWORD, Kind::Text, Presence::Optional, "The user's password. It is not shown."),
    option(
        SSLMODE,
        Kind::Choice(&["disable", "prefer", "require", "verify-full"]),
        Presence::Default("prefer"),
        "'prefer': encrypted if the server can do so. 'require': always. 'verify-full': and with a certificate of an authority that the system trusts.",
    ),
];

pub(super) const OPTIONS: &[OptionSpec] = &[
    PLACE[0],
    PLACE[1],
    PLACE[2],
    PLACE[3],
    PLACE[4],
    PLACE[5],
    PLACE[6],
    option(
        TABLE,
        Kind::Text,
        Presence::Required,
        "The table, as 'name' or 'schema.name'; a name with other letters in double quotes. It has to be there. Without a schema it is one of public.",
    ),
    option(
        DELETE_COLUMN,
        Kind::Text,
        Presence::Optional,
        "A BOOLEAN column that is not written: a row in which it is TRUE takes away the row of its key.",
    ),
    option(
        EPOCHS_TABLE,
        Kind::Text,
        Presence::Default("savanna_epochs"),
        "The table, in the same schema, that says which epochs the database holds. It is made if it is not there.",
    ),
    option(
        TRANSACTION_TIMEOUT,
        Kind::Duration,
        Presence::Default("5min"),
        "For so long the server may be away when an epoch is written; then the query fails.",
    ),
];

const URL: &str = "url";
const HOST: &str = "host";
const PORT: &str = "port";
const DATABASE: &str = "database";
const USERNAME: &str = "username";
const PASSWORD: &str = "password";
const SSLMODE: &str = "sslmode";
pub(super) const TABLE: &str = "table";
const DELETE_COLUMN: &str = "sink.delete-column";
const EPOCHS_TABLE: &str = "sink.epochs-table";
const TRANSACTION_TIMEOUT: &str = "sink.transaction-timeout";

/// A server that does not answer counts as gone after so long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

/// What a table's options say.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) server: Config,
    /// Whether the server has to prove by a certificate that it is the one.
    pub(super) verifies: bool,
    pub(super) table: TableName,
    pub(super) epochs: TableName,
    /// The columns that tell rows apart; none for a table of which rows are only added.
    pub(super) key: Vec<String>,
    /// The column that says that a row goes.
    pub(super) delete: Option<String>,
    pub(super) transaction_timeout: Duration,
}

/// The password is not shown.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("place", &self.place()).field("table", &self.table).finish_non_exhaustive()
    }
}

impl Settings {
    /// # Errors
    /// The options, or the table's columns, are none that can be written.
    pub(super) fn new(table: &TableDef) -> Result<Self> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        let name = table_name(&options)?;
        let epochs = options.text(EPOCHS_TABLE).filter(|text| is_name(text)).map(|text| name.beside(text));
        let epochs = epochs.ok_or_else(|| options.error(EPOCHS_TABLE, "a name of at most 63 bytes"))?;
        if epochs == name {
            return Err(options.error(EPOCHS_TABLE, "another table than 'table'"));
        }
        let settings = Self {
            server: server(&options)?,
            verifies: options.text(SSLMODE) == Some("verify-full"),
            table: name,
            epochs,
            key: table.primary_key.clone(),
            delete: options.text(DELETE_COLUMN).map(ToOwned::to_owned),
            transaction_timeout: options.get(TRANSACTION_TIMEOUT, parse_duration)?,
        };
        if !(Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&settings.transaction_timeout) {
            return Err(options.error(TRANSACTION_TIMEOUT, "a time between 1 s and 24 h"));
        }
        settings.check(table)?;
        Ok(settings)
    }

    /// Those of a table of which changes are read.
    ///
    /// # Errors
    /// The options name no server, or no table.
    pub(super) fn of_changes(options: &Options<'_>, key: &[String]) -> Result<Self> {
        let table = table_name(options)?;
        Ok(Self {
            server: server(options)?,
            verifies: options.text(SSLMODE) == Some("verify-full"),
            epochs: table.clone(),
            table,
            key: key.to_vec(),
            delete: None,
            transaction_timeout: Duration::ZERO,
        })
    }

    /// Refuses columns that do not fit the options.
    fn check(&self, table: &TableDef) -> Result<()> {
        if declares_none(table) {
            return Err(StreamError::invalid(format!(
                "table {} needs columns: those of {} are looked at when a query begins",
                table.name, self.table
            )));
        }
        let physical: Vec<&ColumnDef> = table.columns.iter().filter(|column| column.computed.is_none()).collect();
        let find = |name: &String, what: &str| {
            physical.iter().find(|column| column.name == *name).copied().ok_or_else(|| StreamError::Unknown {
                kind: "column".into(),
                name: name.clone(),
                position: None,
                hint: format!(
                    "{what}; {}",
                    hint(name, physical.iter().map(|c| c.name.as_str()), "columns that are written")
                ),
            })
        };
        self.key.iter().try_for_each(|name| find(name, "PRIMARY KEY names columns of the table").map(drop))?;
        let Some(delete) = &self.delete else { return Ok(()) };
        let column = find(delete, &format!("'{DELETE_COLUMN}' names a column of the table"))?;
        let problem = if column.data_type != DataType::Boolean {
            format!("a column of BOOLEAN, got {delete}, which is {}", type_name(&column.data_type))
        } else if self.key.is_empty() {
            "nothing, unless the table has a PRIMARY KEY (..) NOT ENFORCED: without one nothing tells which row goes"
                .to_owned()
        } else if self.key.contains(delete) {
            format!("a column that is no part of the PRIMARY KEY, got {delete}")
        } else {
            return Ok(());
        };
        Err(StreamError::invalid(format!("option '{DELETE_COLUMN}' of connector {NAME}: expected {problem}")))
    }

    /// The server and the database, for messages.
    pub(super) fn place(&self) -> String {
        let hosts = self.server.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let ports = self.server.get_ports();
        let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
        let hosts: Vec<String> = hosts.enumerate().map(|(at, host)| format!("{host}:{}", port(at))).collect();
        format!("{}/{}", hosts.join(","), self.server.get_dbname().unwrap_or_default())
    }

    pub(super) fn user(&self) -> &str {
        self.server.get_user().unwrap_or_default()
    }
}

/// The table that the options name.
fn table_name(options: &Options<'_>) -> Result<TableName> {
    let expected = "'name' or 'schema.name', each of at most 63 bytes, with other letters in double quotes";
    options.text(TABLE).and_then(TableName::parse).ok_or_else(|| options.error(TABLE, expected))
}

/// Where to connect to, and as whom. No error tells what was given: the password may be in it.
fn server(options: &Options<'_>) -> Result<Config> {
    let wrong = |name: &str, expected: &str| {
        StreamError::invalid(format!("option '{name}' of connector {}: expected {expected}", options.connector()))
    };
    let mut config = match options.text(URL) {
        Some(url) => {
            if let Some(twice) = [HOST, PORT, DATABASE].into_iter().find(|name| options.text(name).is_some()) {
                return Err(wrong(twice, "nothing, because there is a 'url', got a value"));
            }
            let scheme = url.split_once("://").map(|(scheme, _)| scheme);
            if !matches!(scheme, Some("postgresql" | "postgres")) {
                return Err(wrong(URL, "'postgresql://host:port/database', got another text"));
            }
            if url.split_once('?').is_some_and(|(_, parameters)| parameters.contains("sslmode=")) {
                return Err(wrong(URL, "no sslmode in it; give it as option 'sslmode'"));
            }
            Config::from_str(url).map_err(|_| {
                wrong(URL, "'postgresql://host:port/database' with letters such as '@' in names written as %40, got another text")
            })?
        }
        None => {
            let mut config = Config::new();
            config.host(
                options.text(HOST).ok_or_else(|| wrong(URL, "where the server is, here or in 'host', got nothing"))?,
            );
            if options.text(PORT).is_some() {
                config.port(options.integer(PORT)?);
            }
            config.dbname(
                options.text(DATABASE).ok_or_else(|| wrong(DATABASE, "the database, beside 'host', got nothing"))?,
            );
            config
        }
    };
    if config.get_hosts().is_empty() {
        return Err(wrong(URL, "a server in it, such as in 'postgresql://host:port/database', got none"));
    }
    if config.get_dbname().is_none() {
        return Err(wrong(URL, "a database in it, such as in 'postgresql://host:port/database', got none"));
    }
    match (options.text(USERNAME), config.get_user()) {
        (Some(_), Some(_)) => return Err(wrong(USERNAME, "nothing, because 'url' names a user, got a value")),
        (Some(user), None) => drop(config.user(user)),
        (None, Some(_)) => {}
        (None, None) => return Err(wrong(USERNAME, "the user, got nothing")),
    }
    match (options.text(PASSWORD), config.get_password()) {
        (Some(_), Some(_)) => return Err(wrong(PASSWORD, "nothing, because 'url' has one, got a value")),
        (Some(password), None) => drop(config.password(password)),
        (None, _) => {}
    }
    config
        .ssl_mode(match options.text(SSLMODE) {
            Some("disable") => SslMode::Disable,
            Some("require" | "verify-full") => SslMode::Require,
            _ => SslMode::Prefer,
        })
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_user_timeout(SILENCE)
        .keepalives_idle(SILENCE);
    if config.get_application_name().is_none() {
        config.application_name("savanna");
    }
    Ok(config)
}
