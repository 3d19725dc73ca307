//! A connection over which changes come.

use std::time::Duration;

use bytes::Bytes;
use pgwire_replication::{Lsn, PgWireError, ReplicationClient, ReplicationConfig, ReplicationEvent};
use savanna_streams_api::StreamError;
use tokio::time::timeout;

use super::decoder::parse_lsn;
use super::settings::Settings;
use super::tunnel::{self, Tunnel};
use crate::postgres::client::{Failure, passes};
use crate::postgres::names::quoted;

/// Has values come in one way, whatever the server, the database or the user say: as [`TEXTS`](crate::postgres::values::TEXTS).
const OPTIONS: &str =
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c bytea_output=hex -c extra_float_digits=1";
/// So long a server may take to let in.
const CONNECT: Duration = Duration::from_secs(10);
/// The server hears at least so often that somebody is there.
const STATUS: Duration = Duration::from_secs(1);
/// Messages that wait in the connection, beside those that are decoded.
const WAITING: usize = 16;
/// A change takes no more bytes.
const MESSAGE_MAX: usize = 256 << 20;

/// A connection, at first without changes.
pub(super) struct Session {
    client: ReplicationClient,
    /// The cluster of databases.
    pub(super) system: u64,
    _tunnel: Option<Tunnel>,
}

/// A slot that was just made.
pub(super) struct Made {
    /// From where on changes come.
    pub(super) at: u64,
    /// What sees all that was committed before. It is there until the session goes on.
    pub(super) snapshot: String,
}

impl Session {
    /// Connects. Changes come from `start` on, or from where the slot is if that is 0; the server is told no more than what it knows: that all
    /// before `confirmed` is not needed.
    pub(super) async fn open(settings: &Settings, slot: &str, start: u64, confirmed: u64) -> Result<Self, Failure> {
        let server = &settings.server.server;
        let tunnel = tunnel::dig(settings).await?;
        let (host, port) = match &tunnel {
            Some(tunnel) => ("127.0.0.1".to_owned(), tunnel.port),
            None => (settings.host.clone(), settings.port),
        };
        let password = server.get_password().map(String::from_utf8_lossy).unwrap_or_default();
        let mut config = ReplicationConfig::new(
            host,
            settings.server.user(),
            password,
            server.get_dbname().unwrap_or_default(),
            slot,
            quoted(&settings.publication),
        )
        .with_port(port)
        .with_start_lsn(Lsn(start))
        .with_ack_lsn(Lsn(confirmed))
        .with_status_interval(STATUS)
        .with_buffer_size(WAITING)
        .with_options(OPTIONS);
        config.max_message_size = MESSAGE_MAX;
        config.application_name = server.get_application_name().map(ToOwned::to_owned);
        let told = |error: &PgWireError| failed(settings, "read the changes of", error);
        let mut client = ReplicationClient::connect_gated(config).await.map_err(|error| told(&error))?;
        let known = timeout(CONNECT, client.identify_system()).await;
        let known = known.map_err(|_| Failure::Again("the server did not answer in time".into()))?;
        let known = known.map_err(|error| told(&error))?;
        let system = known.system_id.parse().map_err(|_| {
            StreamError::invalid(format!("expected the number of a cluster of databases, got {}", known.system_id))
        })?;
        Ok(Self { client, system, _tunnel: tunnel })
    }

    /// Makes a slot. It waits until the transactions that run are over.
    pub(super) async fn make_slot(&mut self, settings: &Settings, slot: &str) -> Result<Made, Failure> {
        let temporary = if settings.slot.is_none() { " TEMPORARY" } else { "" };
        let make = format!("CREATE_REPLICATION_SLOT {}{temporary} LOGICAL pgoutput EXPORT_SNAPSHOT", quoted(slot));
        let rows = self.client.simple_query(&make).await;
        let rows = rows.map_err(|error| failed(settings, "make a replication slot for", &error))?;
        let text = |at: usize| -> Option<String> {
            let value: &Option<Bytes> = rows.first()?.get(at)?;
            String::from_utf8(value.as_ref()?.to_vec()).ok()
        };
        match (text(1).as_deref().and_then(parse_lsn), text(2)) {
            (Some(at), Some(snapshot)) => Ok(Made { at, snapshot }),
            _ => Err(StreamError::invalid(format!(
                "expected the place of a new replication slot, got another answer to {make}"
            ))
            .into()),
        }
    }

    /// Has changes come.
    pub(super) async fn start(&mut self, settings: &Settings) -> Result<(), Failure> {
        let told = |error: PgWireError| failed(settings, "read the changes of", &error);
        self.client.start().await.map_err(told)?;
        self.client.wait_started().await.map_err(told)
    }

    /// What comes next.
    pub(super) async fn next(&mut self, settings: &Settings) -> Result<ReplicationEvent, Failure> {
        match self.client.recv().await {
            Ok(Some(event)) => Ok(event),
            Ok(None) => Err(Failure::Again("the server sends no more changes".into())),
            Err(error) => Err(failed(settings, "read the changes of", &error)),
        }
    }

    /// Tells the server that nobody needs what was committed before.
    pub(super) fn confirm(&self, at: u64) {
        self.client.update_applied_lsn(Lsn(at));
    }
}

/// What an error means, where `what` was tried with the table.
fn failed(settings: &Settings, what: &str, error: &PgWireError) -> Failure {
    let server = &settings.server;
    let (table, place, user) = (&server.table, server.place(), server.user());
    match error {
        PgWireError::Server(words) | PgWireError::Auth(words) => {
            let code = words.split_once("SQLSTATE ").and_then(|(_, code)| code.get(..5)).unwrap_or_default();
            let error = match code {
                _ if passes(code) => return Failure::Again(words.clone()),
                "42501" => StreamError::Denied {
                    message: format!(
                        "PostgreSQL at {place} does not let user '{user}' {what} {table} ({words}); ALTER ROLE \"{user}\" REPLICATION, or choose another"
                    ),
                },
                _ if code.starts_with("28") || matches!(error, PgWireError::Auth(_)) => StreamError::Denied {
                    message: format!(
                        "PostgreSQL at {place} does not let user '{user}' in ({words}); correct 'username' and 'password', or the server's users"
                    ),
                },
                _ => StreamError::invalid(format!("PostgreSQL at {place} cannot {what} {table}: {words}")),
            };
            Failure::Final(error)
        }
        PgWireError::MessageTooLarge { payload_bytes, limit_bytes } => Failure::Final(StreamError::Data {
            place: format!("changes of {table} at {place}"),
            message: format!(
                "expected changes of at most {limit_bytes} bytes, got one of {payload_bytes}; leave its columns out of the publication"
            ),
        }),
        PgWireError::Protocol(words) => Failure::Final(StreamError::io(format!("{what} {table} at {place}"), words)),
        other => Failure::Again(other.to_string()),
    }
}
