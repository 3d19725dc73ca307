//! The rows that are there when a query begins: they are copied to a table beside, as the slot's snapshot has them, so that they can be read
//! again after a process, or the server, has ended.
//!
//! ```text
//!   the table is made, and its comment says that it was begun --> the slot is made --> rows, and in the comment the place of the slot
//! ```
//!
//! So whoever finds a slot knows by the comment what it is good for. The table goes when the last row of it is needed by nobody.

use std::pin::pin;

use bytes::BytesMut;
use futures::StreamExt;
use savanna_streams_api::StreamError;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::publication::Published;
use super::settings::Settings;
use crate::postgres::client::{Failure, failed};
use crate::postgres::names::{listed, quoted};
use crate::postgres::values::TEXTS;

/// The column that numbers the rows, from 1.
const NUMBER: &str = "savanna_row";
const BEGUN: &str = "savanna: begun";
const FILLED: &str = "savanna: rows at ";
const OF: &str = " of ";

/// What there is of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Nothing,
    /// It was made before its slot, and has no rows yet.
    Begun,
    /// It has all rows, as they were at this place of the log, and this was published there, if that was kept.
    Filled {
        at: u64,
        published: Option<Published>,
    },
}

impl Copied {
    /// By the comment of the copy.
    fn of(comment: &str) -> Option<Self> {
        if comment == BEGUN {
            return Some(Self::Begun);
        }
        let (at, published) = match comment.strip_prefix(FILLED)?.split_once(OF) {
            Some((at, published)) => (at, Some(serde_json::from_str(published).ok()?)),
            None => (comment.strip_prefix(FILLED)?, None),
        };
        Some(Self::Filled { at: at.parse().ok()?, published })
    }

    fn comment(at: u64, published: Published) -> String {
        format!("{FILLED}{at}{OF}{}", serde_json::to_string(&published).unwrap_or_default())
    }
}

/// Looks for the copy.
///
/// # Errors
/// There is another table of its name.
pub(super) async fn find(client: &Client, settings: &Settings) -> Result<Copied, Failure> {
    let copy = settings.copy();
    const ASK: &str = "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND c.relname = $2";
    let names = [(&copy.schema as _, Type::TEXT), (&copy.name as _, Type::TEXT)];
    let rows = client
        .query_typed(ASK, &names)
        .await
        .map_err(|error| failed(&settings.server, "look for the copy of", &error))?;
    let Some(row) = rows.first() else { return Ok(Copied::Nothing) };
    let comment: Option<String> = row.get(0);
    match comment.as_deref().and_then(Copied::of) {
        Some(copied) => Ok(copied),
        None => Err(Failure::Final(StreamError::invalid(format!(
            "table {copy} at {} is in the way: the rows of {} would be copied there; remove it, or name another slot in 'slot.name'",
            settings.server.place(),
            settings.server.table
        )))),
    }
}

/// Makes it, without rows.
pub(super) async fn make(client: &Client, settings: &Settings) -> Result<(), Failure> {
    let copy = settings.copy();
    run(
        client,
        settings,
        &format!(
            "BEGIN; CREATE TABLE {copy} AS SELECT 0::bigint AS {}, {} FROM {} WITH NO DATA; COMMENT ON TABLE {copy} IS '{BEGUN}'; COMMIT",
            quoted(NUMBER),
            columns(settings),
            settings.server.table,
        ),
    )
    .await
}

/// Copies the rows that a snapshot has, which is that of place `at`.
pub(super) async fn fill(
    client: &Client,
    settings: &Settings,
    snapshot: &str,
    at: u64,
    published: Published,
) -> Result<(), Failure> {
    let (copy, comment) = (settings.copy(), Copied::comment(at, published));
    run(
        client,
        settings,
        &format!(
            "SET row_security = off; {}; INSERT INTO {copy} SELECT row_number() OVER (), {} FROM {}; COMMENT ON TABLE {copy} IS '{comment}'; COMMIT",
            see(snapshot, ""),
            columns(settings),
            settings.server.table,
        ),
    )
    .await
}

/// Removes it.
pub(super) async fn remove(client: &Client, settings: &Settings) -> Result<(), Failure> {
    run(client, settings, &format!("DROP TABLE IF EXISTS {}", settings.copy())).await
}

/// Where rows are read that were there before.
pub(super) enum Origin<'a> {
    /// In the copy, behind so many.
    Copy(u64),
    /// In the table itself, as a snapshot has it.
    Table { snapshot: &'a str },
}

/// Reads rows, as lines of `COPY` with these columns.
pub(super) async fn read(
    client: &Client,
    settings: &Settings,
    names: &[String],
    from: Origin<'_>,
    mut take: impl AsyncFnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: tokio_postgres::Error| failed(&settings.server, "read", &error);
    client.batch_execute(TEXTS).await.map_err(failed)?;
    let columns = if names.is_empty() { "NULL".to_owned() } else { listed(names) };
    let select = match from {
        Origin::Copy(read) => {
            let number = quoted(NUMBER);
            format!("SELECT {columns} FROM {} WHERE {number} > {read} ORDER BY {number}", settings.copy())
        }
        Origin::Table { snapshot } => {
            client.batch_execute(&see(snapshot, " READ ONLY")).await.map_err(failed)?;
            format!("SELECT {columns} FROM {}", settings.server.table)
        }
    };
    let mut portions = pin!(client.copy_out(&format!("COPY ({select}) TO STDOUT")).await.map_err(failed)?);
    let mut rest = BytesMut::new();
    while let Some(portion) = portions.next().await {
        rest.extend_from_slice(&portion.map_err(failed)?);
        while let Some(end) = memchr::memchr(b'\n', &rest) {
            let line = rest.split_to(end + 1);
            take(&line[..end]).await?;
        }
    }
    if let Origin::Table { .. } = from {
        client.batch_execute("COMMIT").await.map_err(failed)?;
    }
    Ok(())
}

/// Begins a transaction that sees what a snapshot has.
fn see(snapshot: &str, access: &str) -> String {
    format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ{access}; SET TRANSACTION SNAPSHOT '{}'",
        snapshot.replace('\'', "''")
    )
}

fn columns(settings: &Settings) -> String {
    settings.columns.iter().map(|field| quoted(field.name())).collect::<Vec<_>>().join(", ")
}

async fn run(client: &Client, settings: &Settings, statements: &str) -> Result<(), Failure> {
    client.batch_execute(statements).await.map_err(|error| failed(&settings.server, "copy the rows of", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_says_what_there_is_of_a_copy() {
        let published = Published { table: 7, versions: 8 };
        let filled = Copied::Filled { at: 110, published: Some(published) };
        assert_eq!(Copied::of(&Copied::comment(110, published)), Some(filled));
        assert_eq!(Copied::of("savanna: rows at 110"), Some(Copied::Filled { at: 110, published: None }));
        assert_eq!(Copied::of(BEGUN), Some(Copied::Begun));
        for other in ["", "savanna: rows at ", "savanna: rows at 110 of nothing", "orders of the shop"] {
            assert_eq!(Copied::of(other), None, "{other}");
        }
    }
}
