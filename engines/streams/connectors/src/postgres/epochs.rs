//! The table that says which epochs the database holds, and which process writes the next one.
//!
//! ```text
//!   query | sink | owner | epoch      owner: how often a process took the sink over
//! ```
//!
//! A process that starts raises the owner and reads the epoch, in one step. Each epoch is moved on by a condition: the owner is still this
//! process, and the epoch is the one that it knows of. Who was replaced, or has an answer that was lost, moves nothing.

use savanna_streams_api::ids::{Epoch, QueryId};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use super::names::TableName;

/// So long a process that starts waits for a former one: less than for the server, so that it is known which of them it waited for.
const TAKE_OVER: &str = "7s";

/// The place of a query's sink in the table.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    table: TableName,
    query: String,
    /// The table of the stream: two tables of one query have judges of their own.
    sink: String,
}

/// What stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) owner: i64,
    pub(super) epoch: Epoch,
}

/// What it means that an epoch could not be moved on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The epoch is there: the answer to its commit was lost.
    Done,
    /// Another process has taken the sink over.
    Fenced,
    /// What this process knows of is not there: somebody has changed the table.
    Changed,
}

impl Judge {
    pub(super) fn new(table: &TableName, query: &QueryId, sink: &str) -> Self {
        Self { table: table.clone(), query: query.to_string(), sink: sink.to_owned() }
    }

    /// Makes the table, unless it is there: who may not make tables may still use one.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), Error> {
        if self.is_there(client).await? {
            return Ok(());
        }
        let make = format!(
            "CREATE TABLE IF NOT EXISTS {} (query text NOT NULL, sink text NOT NULL, owner bigint NOT NULL, epoch bigint NOT NULL, \
             PRIMARY KEY (query, sink))",
            self.table
        );
        match client.batch_execute(&make).await {
            // Somebody else has made it just now, which PostgreSQL tells as an error.
            Err(_) if self.is_there(client).await? => Ok(()),
            made => made,
        }
    }

    async fn is_there(&self, client: &Client) -> Result<bool, Error> {
        let ask = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
        let names = [(&self.table.schema as _, Type::TEXT), (&self.table.name as _, Type::TEXT)];
        Ok(!client.query_typed(ask, &names).await?.is_empty())
    }

    /// Takes the sink over, and tells which epoch it holds. A former owner that is about to commit is waited for.
    pub(super) async fn take_over(&self, client: &Client) -> Result<Held, Error> {
        let take = format!(
            "INSERT INTO {} AS e (query, sink, owner, epoch) VALUES ($1, $2, 1, 0) \
             ON CONFLICT (query, sink) DO UPDATE SET owner = e.owner + 1 RETURNING owner, epoch",
            self.table
        );
        // Not at once: what waits here for somebody who has gone meanwhile must not count.
        let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '{TAKE_OVER}'");
        client.batch_execute(&begin).await?;
        let held = client.query_typed_one(&take, &self.place()).await.map(|row| held(&row))?;
        client.batch_execute("COMMIT").await?;
        Ok(held)
    }

    /// Moves on to an epoch, if this process may. Part of the transaction that holds the epoch's rows.
    pub(super) async fn advance(&self, client: &Client, from: Held, to: Epoch) -> Result<bool, Error> {
        let advance = format!(
            "UPDATE {} SET epoch = $3 WHERE query = $1 AND sink = $2 AND owner = $4 AND epoch = $5",
            self.table
        );
        let (to, known) = (number(to), number(from.epoch));
        let [query, sink] = self.place();
        let values = [query, sink, (&to as _, Type::INT8), (&from.owner as _, Type::INT8), (&known as _, Type::INT8)];
        Ok(client.execute_typed(&advance, &values).await? == 1)
    }

    /// What stands there now.
    pub(super) async fn held(&self, client: &Client) -> Result<Option<Held>, Error> {
        let ask = format!("SELECT owner, epoch FROM {} WHERE query = $1 AND sink = $2", self.table);
        Ok(client.query_typed_opt(&ask, &self.place()).await?.map(|row| held(&row)))
    }

    fn place(&self) -> [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] {
        [(&self.query, Type::TEXT), (&self.sink, Type::TEXT)]
    }
}

/// What it means that `found` stands there, where this process has written up to `mine` and wanted to write `epoch`.
pub(super) fn standing(found: Option<Held>, mine: Held, epoch: Epoch) -> Standing {
    match found {
        Some(found) if found.owner > mine.owner => Standing::Fenced,
        Some(found) if found.owner == mine.owner && found.epoch == epoch => Standing::Done,
        _ => Standing::Changed,
    }
}

fn held(row: &Row) -> Held {
    let (owner, epoch): (i64, i64) = (row.get(0), row.get(1));
    Held { owner, epoch: Epoch(epoch.unsigned_abs()) }
}

fn number(epoch: Epoch) -> i64 {
    i64::try_from(epoch.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_an_epoch_counts_is_what_the_database_says() {
        let held = |owner, epoch| Held { owner, epoch: Epoch(epoch) };
        let mine = held(3, 7);
        for (found, expected) in [
            (Some(held(3, 8)), Standing::Done),
            (Some(held(4, 7)), Standing::Fenced),
            // The next owner has it, or took over when it was there.
            (Some(held(4, 8)), Standing::Fenced),
            (Some(held(3, 6)), Standing::Changed),
            (Some(held(3, 9)), Standing::Changed),
            (Some(held(2, 7)), Standing::Changed),
            (None, Standing::Changed),
        ] {
            assert_eq!(standing(found, mine, Epoch(8)), expected, "{found:?}");
        }
    }
}
