//! The options of a table whose changes are read.

use std::time::Duration;

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use savanna_streams_api::{Result, StreamError, type_name};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::names::hint;
use savanna_streams_model::time::parse_duration;
use tokio_postgres::config::{Host, SslMode};

use crate::format::declares_none;
use crate::options::{Kind, OptionSpec, Options, Presence};
use crate::postgres::names::{TableName, is_name};
use crate::postgres::settings::{PLACE, Settings as Server, TABLE};

/// The connector's name.
pub(super) const NAME: &str = "postgres-cdc";

const fn option(name: &'static str, kind: Kind, presence: Presence, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind, presence, help }
}

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
        "The table, as 'name' or 'schema.name'; a name with other letters in double quotes. Without a schema it is one of public.",
    ),
    option(
        SLOT,
        Kind::Text,
        Presence::Optional,
        "The replication slot, in which the server keeps changes for the query. Each query has one of its own; it is made if it is not there. \
         Without it the query ends with its process.",
    ),
    option(
        PUBLICATION,
        Kind::Text,
        Presence::Optional,
        "The publication, which says that changes of the table are sent. It is made if it is not there; 'savanna_<table>' if it is not given.",
    ),
    option(
        STARTUP,
        Kind::Choice(&["initial", "latest"]),
        Presence::Default("initial"),
        "'initial': all rows that are there come first. 'latest': changes alone, from where the slot is.",
    ),
    option(
        Meta::Kind.option(),
        Kind::Text,
        Presence::Optional,
        "A VARCHAR column that says what happened: 'read', 'insert', 'update_before', 'update_after', 'delete' or 'truncate'.",
    ),
    option(
        Meta::Position.option(),
        Kind::Text,
        Presence::Optional,
        "A BIGINT column: where in the log the change was committed.",
    ),
    option(
        Meta::Time.option(),
        Kind::Text,
        Presence::Optional,
        "A TIMESTAMP_LTZ(3) or (6) column: when the change was committed. NULL for rows that were there before.",
    ),
    option(
        Meta::Unchanged.option(),
        Kind::Text,
        Presence::Optional,
        "A VARCHAR column that names the columns, with commas between them, that are NULL because they were not changed and PostgreSQL does not send \
         them (TOAST). Without it such a change fails the query.",
    ),
    option(
        ON_TRUNCATE,
        Kind::Choice(&["fail", "row"]),
        Presence::Default("fail"),
        "What happens when the table is emptied by TRUNCATE: the query fails, or it gets a row of kind 'truncate' in which the other columns are NULL.",
    ),
    option(
        HEARTBEAT,
        Kind::Duration,
        Presence::Default("10s"),
        "When the table has not changed for so long, a message is put into the log, so that the server does not keep the log of other tables for the slot.",
    ),
    option(
        RETRY,
        Kind::Duration,
        Presence::Default("5min"),
        "For so long the server may be away while the query runs; then the query fails.",
    ),
];

const SLOT: &str = "slot.name";
/// With what is before it the name of the copy has at most 63.
const SLOT_BYTES_MAX: usize = 50;
const PUBLICATION: &str = "publication.name";
const STARTUP: &str = "scan.startup.mode";
const ON_TRUNCATE: &str = "on-truncate";
const HEARTBEAT: &str = "heartbeat.interval";
const RETRY: &str = "retry.timeout";

/// What a column says about a change, rather than about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meta {
    Kind,
    Position,
    Time,
    Unchanged,
}

impl Meta {
    const ALL: [Self; 4] = [Self::Kind, Self::Position, Self::Time, Self::Unchanged];

    const fn option(self) -> &'static str {
        match self {
            Self::Kind => "op.column",
            Self::Position => "lsn.column",
            Self::Time => "commit-time.column",
            Self::Unchanged => "unchanged.column",
        }
    }

    fn fits(self, data_type: &DataType) -> bool {
        match self {
            Self::Kind | Self::Unchanged => *data_type == DataType::Utf8View,
            Self::Position => *data_type == DataType::Int64,
            Self::Time => {
                matches!(data_type, DataType::Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond, Some(_)))
            }
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Kind | Self::Unchanged => "VARCHAR",
            Self::Position => "BIGINT",
            Self::Time => "TIMESTAMP_LTZ(3) or TIMESTAMP_LTZ(6)",
        }
    }
}

/// What becomes of `TRUNCATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnTruncate {
    Fail,
    Row,
}

/// What a table's options say.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Where the table is.
    pub(super) server: Server,
    pub(super) host: String,
    pub(super) port: u16,
    /// One that outlives a connection; none for one that goes with it.
    pub(super) slot: Option<String>,
    pub(super) publication: String,
    /// The rows that are there come first.
    pub(super) has_copy: bool,
    pub(super) meta: Vec<(Meta, String)>,
    pub(super) on_truncate: OnTruncate,
    pub(super) heartbeat: Duration,
    pub(super) retry: Duration,
    /// All columns that are the table's own.
    pub(super) columns: Vec<Field>,
}

impl Settings {
    /// # Errors
    /// The options, or the table's columns, are none that can be read.
    pub(super) fn new(table: &TableDef) -> Result<Self> {
        let options = Options::check(NAME, OPTIONS, &table.options)?;
        let server = Server::of_changes(&options, &table.primary_key)?;
        if declares_none(table) {
            return Err(StreamError::invalid(format!(
                "table {} needs columns: those of {} are looked at when a query begins",
                table.name, server.table
            )));
        }
        let (host, port) = only_host(&server)?;
        let slot = options.text(SLOT).map(ToOwned::to_owned);
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let may_be_slot = |slot: &String| {
            (1..=SLOT_BYTES_MAX).contains(&slot.len())
                && slot.bytes().all(is_letter)
                && !slot.starts_with(|first: char| first.is_ascii_digit())
        };
        if slot.as_ref().is_some_and(|slot| !may_be_slot(slot)) {
            let expected = format!("at most {SLOT_BYTES_MAX} of the letters a-z, 0-9 and _, not a digit first");
            return Err(options.error(SLOT, &expected));
        }
        let publication = match options.text(PUBLICATION) {
            Some(name) => name.to_owned(),
            None => format!("savanna_{}", server.table.name),
        };
        if !is_name(&publication) || publication.contains(['\'', ',']) {
            return Err(options.error(PUBLICATION, "a name of at most 63 bytes without commas and quotes"));
        }
        let meta: Vec<(Meta, String)> =
            (Meta::ALL.into_iter()).filter_map(|meta| Some((meta, options.text(meta.option())?.to_owned()))).collect();
        let schema = table.physical_schema();
        check_meta(&meta, &schema)?;
        let is_own = |field: &Field| meta.iter().all(|(_, name)| name != field.name());
        let columns: Vec<Field> =
            schema.fields().iter().filter(|field| is_own(field)).map(|field| field.as_ref().clone()).collect();
        if columns.is_empty() {
            return Err(StreamError::invalid(format!("table {} needs a column of {}", table.name, server.table)));
        }
        let settings = Self {
            host,
            port,
            slot,
            publication,
            has_copy: options.text(STARTUP) == Some("initial"),
            meta,
            on_truncate: if options.text(ON_TRUNCATE) == Some("row") { OnTruncate::Row } else { OnTruncate::Fail },
            heartbeat: options.get(HEARTBEAT, parse_duration)?,
            retry: options.get(RETRY, parse_duration)?,
            columns,
            server,
        };
        let range = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
        for (name, time) in [(HEARTBEAT, settings.heartbeat), (RETRY, settings.retry)] {
            if !range.contains(&time) {
                return Err(options.error(name, "a time between 100 ms and 24 h"));
            }
        }
        Ok(settings)
    }

    /// What a column says about a change, if it does.
    pub(super) fn meta_of(&self, field: &Field) -> Option<Meta> {
        self.meta.iter().find(|(_, name)| name == field.name()).map(|(meta, _)| *meta)
    }

    /// The columns of a scan that are the table's own.
    pub(super) fn own(&self, schema: &SchemaRef) -> Vec<Field> {
        let own = schema.fields().iter().filter(|field| self.meta_of(field).is_none());
        own.map(|field| field.as_ref().clone()).collect()
    }

    /// Where the rows are copied to that are there when the query begins.
    pub(super) fn copy(&self) -> TableName {
        self.server.table.beside(&format!("savanna_copy_{}", self.slot.as_deref().unwrap_or_default()))
    }

    /// What tells messages of this slot from others.
    pub(super) fn beat(&self) -> String {
        format!("savanna:{}", self.slot.as_deref().unwrap_or_default())
    }
}

fn check_meta(meta: &[(Meta, String)], schema: &SchemaRef) -> Result<()> {
    for (at, (meta_of, name)) in meta.iter().enumerate() {
        let option = meta_of.option();
        let Ok(field) = schema.field_with_name(name) else {
            return Err(StreamError::Unknown {
                kind: "column".into(),
                name: name.clone(),
                position: None,
                hint: format!(
                    "'{option}' names a column of the table; {}",
                    hint(name, schema.fields().iter().map(|field| field.name().as_str()), "columns that are read")
                ),
            });
        };
        if !meta_of.fits(field.data_type()) {
            return Err(StreamError::invalid(format!(
                "option '{option}' of connector {NAME}: expected a column of {}, got {name}, which is {}",
                meta_of.expected(),
                type_name(field.data_type())
            )));
        }
        if let Some((other, _)) = meta[..at].iter().find(|(_, other)| other == name) {
            return Err(StreamError::invalid(format!(
                "option '{option}' of connector {NAME}: expected another column than '{}', got {name} for both",
                other.option()
            )));
        }
    }
    Ok(())
}

/// The one server that is asked.
fn only_host(server: &Server) -> Result<(String, u16)> {
    let hosts = server.server.get_hosts();
    let host = match hosts {
        [Host::Tcp(name)] => name.clone(),
        [Host::Unix(path)] => path.display().to_string(),
        _ => {
            return Err(StreamError::invalid(format!(
                "connector {NAME}: expected one server, got {}; a replication slot is that of one",
                hosts.len()
            )));
        }
    };
    Ok((host, server.server.get_ports().first().copied().unwrap_or(5432)))
}

/// Whether connections have to be encrypted, or may be.
pub(super) fn encrypts(server: &Server) -> Option<bool> {
    match server.server.get_ssl_mode() {
        SslMode::Disable => None,
        SslMode::Prefer => Some(false),
        _ => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_model::catalog::{ColumnDef, varchar};

    use super::*;

    fn settings(more: &[(&str, &str)]) -> Result<Settings, String> {
        let column =
            |(name, data_type)| ColumnDef { name: String::from(name), data_type, nullable: true, computed: None };
        let given = [("url", "postgresql://ann@h:5433/shop"), ("table", "shop.t")];
        Settings::new(&TableDef {
            name: "t".into(),
            columns: [("id", DataType::Int64), ("op", varchar()), ("lsn", DataType::Int64)]
                .into_iter()
                .map(column)
                .collect(),
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: given.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            statement: String::new(),
        })
        .map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_the_tables_own_but_those_that_tell_of_changes() {
        let told = settings(&[("op.column", "op"), ("lsn.column", "lsn"), ("slot.name", "s")]).unwrap();
        assert_eq!(told.columns.iter().map(Field::name).collect::<Vec<_>>(), ["id"]);
        assert_eq!((told.host.as_str(), told.port, told.publication.as_str()), ("h", 5433, "savanna_t"));
        assert_eq!(told.copy().to_string(), r#""shop"."savanna_copy_s""#);
        assert_eq!(settings(&[]).unwrap().columns.len(), 3);
    }

    #[test]
    fn options_that_cannot_be_are_refused_by_name() {
        for (more, expected) in [
            (
                &[("slot.name", "My slot")][..],
                "option 'slot.name' of connector postgres-cdc: expected at most 50 of the letters",
            ),
            (
                &[("slot.name", "1_slot")],
                "option 'slot.name' of connector postgres-cdc: expected at most 50 of the letters",
            ),
            (
                &[("slot.name", "s23456789_123456789_123456789_123456789_123456789_1")],
                "option 'slot.name' of connector postgres-cdc: expected at most 50 of the letters",
            ),
            (
                &[("op.column", "lsn")],
                "option 'op.column' of connector postgres-cdc: expected a column of VARCHAR, got lsn, which is BIGINT",
            ),
            (&[("op.column", "kind")], "column kind does not exist; 'op.column' names a column of the table"),
            (
                &[("op.column", "op"), ("unchanged.column", "op")],
                "expected another column than 'op.column', got op for both",
            ),
            (&[("publication.name", "a,b")], "option 'publication.name' of connector postgres-cdc: expected a name"),
            (
                &[("heartbeat.interval", "1ms")],
                "option 'heartbeat.interval' of connector postgres-cdc: expected a time",
            ),
            (&[("port", "1")], "option 'port' of connector postgres-cdc: expected nothing, because there is a 'url'"),
        ] {
            let error = settings(more).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let several = settings(&[]).unwrap();
        assert_eq!(encrypts(&several.server), Some(false));
    }
}
