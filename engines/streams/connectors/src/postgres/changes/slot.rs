//! Replication slots: from where on the server keeps its log for a query.

use savanna_streams_api::StreamError;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::decoder::{lsn, parse_lsn};
use super::place::Place;
use super::settings::Settings;
use crate::postgres::client::{Failure, failed};

/// A slot that is there, and of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// What was committed before is not sent any more.
    pub(super) confirmed: u64,
}

/// The slot of a query, if it is there.
///
/// # Errors
/// It is another's, or the server does not keep the log any more that it needs.
pub(super) async fn find(client: &Client, settings: &Settings, name: &str) -> Result<Option<Slot>, Failure> {
    const ASK: &str = "SELECT plugin::text, database = current_database(), wal_status, confirmed_flush_lsn::text \
        FROM pg_replication_slots WHERE slot_name = $1";
    let rows = client.query_typed(ASK, &[(&name as _, Type::TEXT)]).await;
    let rows = rows.map_err(|error| failed(&settings.server, "look for the replication slot of", &error))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (plugin, is_here): (Option<String>, Option<bool>) = (row.get(0), row.get(1));
    let (status, confirmed): (Option<String>, Option<String>) = (row.get(2), row.get(3));
    if plugin.as_deref() != Some("pgoutput") || is_here != Some(true) {
        return Err(wrong(
            settings,
            name,
            "is another's: it has another plugin than pgoutput, or is of another database; name another one in 'slot.name'",
        ));
    }
    if status.as_deref() == Some("lost") {
        return Err(wrong(
            settings,
            name,
            "is lost: it was behind by more than max_slot_wal_keep_size, and the server has removed changes that were not read; drop it and the query, and \
             start again",
        ));
    }
    match confirmed.as_deref().and_then(parse_lsn) {
        Some(confirmed) => Ok(Some(Slot { confirmed })),
        None => Err(Failure::Again(format!("replication slot {name} is being made"))),
    }
}

impl Slot {
    /// Whether all changes behind a place are still sent.
    ///
    /// # Errors
    /// They are not.
    pub(super) fn check(self, settings: &Settings, name: &str, place: Place) -> Result<(), Failure> {
        if self.confirmed <= place.commit {
            return Ok(());
        }
        let cause = format!(
            "was moved on to {}, and the query goes on from {}: changes between them would be missing; drop the query and the slot, and start again",
            lsn(self.confirmed),
            lsn(place.commit)
        );
        Err(wrong(settings, name, &cause))
    }
}

/// That the slot is not there any more.
pub(super) fn gone(settings: &Settings, name: &str) -> Failure {
    wrong(
        settings,
        name,
        "is not there any more, and with it the changes that were not read; drop the query and start it again",
    )
}

/// Why a slot is of no use.
pub(super) fn wrong(settings: &Settings, name: &str, cause: &str) -> Failure {
    let server = &settings.server;
    Failure::Final(StreamError::invalid(format!(
        "replication slot {name} at {}, for changes of {}, {cause}",
        server.place(),
        server.table
    )))
}

/// Removes a slot.
pub(super) async fn remove(client: &Client, settings: &Settings, name: &str) -> Result<(), Failure> {
    let removed = client.query_typed("SELECT pg_drop_replication_slot($1)", &[(&name as _, Type::TEXT)]).await;
    removed.map(drop).map_err(|error| failed(&settings.server, "remove the replication slot of", &error))
}
