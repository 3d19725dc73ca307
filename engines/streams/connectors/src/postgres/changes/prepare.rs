//! What is looked at before a query begins: the table, and the publication that sends its changes.

use savanna_streams_api::StreamError;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::settings::Settings;
use crate::postgres::client::{Failure, connect, failed};
use crate::postgres::columns::{Way, columns, matching};
use crate::postgres::names::quoted;

/// The first release whose changes come in the form that is asked for.
const VERSION_MIN: i32 = 140_000;

/// The number of the table, whose changes are sent from now on.
pub(super) async fn prepare(settings: &Settings) -> Result<u32, Failure> {
    let client = connect(&settings.server).await?;
    let told = |error: tokio_postgres::Error| failed(&settings.server, "look at", &error);
    let table = &settings.server.table;
    const VERSION: &str = "SELECT current_setting('server_version_num')::int";
    let version: i32 = client.query_typed(VERSION, &[]).await.map_err(told)?.first().map_or(0, |row| row.get(0));
    if version < VERSION_MIN {
        let message = format!(
            "changes at {} cannot be read: expected PostgreSQL {} or later, got {}",
            settings.server.place(),
            VERSION_MIN / 10_000,
            version / 10_000
        );
        return Err(StreamError::invalid(message).into());
    }
    let found = columns(&client, table).await.map_err(told)?;
    matching(table, &settings.columns.iter().collect::<Vec<_>>(), &found, Way::Out)?;
    const ASK: &str = "SELECT c.oid, c.relkind::text, c.relpersistence::text, c.relreplident::text, \
        EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), current_setting('wal_level') \
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
    let names = [(&table.schema as _, Type::TEXT), (&table.name as _, Type::TEXT)];
    let rows = client.query_typed(ASK, &names).await.map_err(told)?;
    let Some(row) = rows.first() else {
        return Err(StreamError::invalid(format!(
            "table {table} does not exist in PostgreSQL; make it, or correct 'table'"
        ))
        .into());
    };
    let wrong = |expected: &str| {
        Failure::Final(StreamError::invalid(format!(
            "the changes of {table} at {} cannot be read: {expected}",
            settings.server.place()
        )))
    };
    let (kind, persistence): (String, String) = (row.get(1), row.get(2));
    if !["r", "p"].contains(&kind.as_str()) || persistence != "p" {
        return Err(wrong("expected a table, got a view, or one that is temporary, unlogged or elsewhere"));
    }
    let level: String = row.get(5);
    if level != "logical" {
        return Err(wrong(&format!(
            "expected a server with wal_level = logical, got {level}; set it and start the server again"
        )));
    }
    let (identity, has_key): (String, bool) = (row.get(3), row.get(4));
    let is_known = identity == "f" || identity == "i" || (identity == "d" && has_key);
    publication(&client, settings, is_known).await?;
    Ok(row.get(0))
}

/// Makes the publication, or looks whether it sends what is wanted.
async fn publication(client: &Client, settings: &Settings, is_known: bool) -> Result<(), Failure> {
    let (table, name) = (&settings.server.table, &settings.publication);
    const ASK: &str = "SELECT EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = $2 AND t.tablename = $3) \
        FROM pg_publication p WHERE p.pubname = $1";
    let names = [(name as _, Type::TEXT), (&table.schema as _, Type::TEXT), (&table.name as _, Type::TEXT)];
    let rows = client.query_typed(ASK, &names).await.map_err(|error| failed(&settings.server, "look at", &error))?;
    let quoted = quoted(name);
    match rows.first().map(|row| row.get(0)) {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::Final(StreamError::invalid(format!(
            "publication {quoted} at {} does not send changes of {table}; ALTER PUBLICATION {quoted} ADD TABLE {table} (of a table with partitions, with \
             publish_via_partition_root), or name another one in 'publication.name'",
            settings.server.place()
        )))),
        None if !is_known => Err(Failure::Final(StreamError::invalid(format!(
            "the changes of {table} at {} cannot be read: expected a primary key, or another replica identity, got none: PostgreSQL would refuse \
             UPDATE and DELETE once changes are sent; add a key, or ALTER TABLE {table} REPLICA IDENTITY FULL",
            settings.server.place()
        )))),
        None => {
            let make =
                format!("CREATE PUBLICATION {quoted} FOR TABLE {table} WITH (publish_via_partition_root = true)");
            client.batch_execute(&make).await.map_err(|error| match error.code().map(|code| code.code()) {
                Some("42710") => Failure::Again("another query makes the same publication".into()),
                _ => failed(&settings.server, "publish changes of", &error),
            })
        }
    }
}
