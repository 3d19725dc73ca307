//! What is looked at before a query begins: the table, and the publication that sends its changes.

use arrow::datatypes::Field;
use savanna_streams_api::StreamError;
use tokio_postgres::types::Type;

use super::publication::{self, Looks, Published, is_as_before};
use super::settings::Settings;
use crate::postgres::client::{Failure, connect, failed};
use crate::postgres::columns::{Way, columns, matching};

/// The first release whose changes come in the form that is asked for.
const VERSION_MIN: i32 = 140_000;

/// What is published, from now on: changes of the table, with the columns that are wanted. `before` is what it was where a query goes on.
pub(super) async fn prepare(
    settings: &Settings,
    wanted: &[Field],
    before: Option<Published>,
) -> Result<Published, Failure> {
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
    let looks = Looks::new(&client, settings).await?;
    let mut found = looks.found(&client).await?;
    if let Some(before) = before {
        is_as_before(settings, before, found)?;
    }
    if found.is_none() {
        publication::make(&client, settings, is_known).await?;
        found = looks.found(&client).await?;
    }
    // Who alters it behind the look is noticed by the next one.
    publication::check(&client, settings, wanted).await?;
    found.ok_or_else(|| Failure::Again("the table or its publication has just gone".into()))
}
