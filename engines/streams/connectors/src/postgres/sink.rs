//! A table that is written: an epoch is a transaction.
//!
//! ```text
//!   start:   take the sink over (fences a former process) --> epochs up to the one that stands there are there
//!   epoch:   begin, move on from the epoch before if this process is still the owner, rows, commit
//! ```
//!
//! The epoch is moved on first: the lock of its row makes whoever takes the sink over wait until it is known whether the epoch counts.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use bytes::Bytes;
use futures::SinkExt;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Remote, Sink};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::client::{Failure, PATIENCE, Patience, Tasks, connect, failed};
use super::columns::{Found, Way, check, columns, matching};
use super::epochs::{Held, Judge, Standing, standing};
use super::names::{listed, quoted};
use super::rows::{counted, last_of_each, may_be_one, some_go};
use super::settings::Settings;
use super::text::lines;
use crate::crash::crash_at;

/// A connection is left alone for so long. The system notices by itself when the other side goes.
const TEND_EVERY: Duration = Duration::from_secs(3600);
/// The table of a connection that holds an epoch's rows before they are brought into the other one.
const CHANGES: &str = "savanna_changes";
/// Its column that counts the rows, unless the stream has one of that name.
const PLACE: &str = "savanna_place";

/// Writes a table.
pub(super) struct PostgresSink {
    to: To,
    session: Option<Session>,
    given_up: Arc<watch::Sender<bool>>,
}

/// What is written to where.
struct To {
    settings: Settings,
    /// The stream's table.
    sink: String,
    schema: SchemaRef,
    key: Vec<usize>,
    delete: Option<usize>,
    /// The column that counts rows, if keys that differ here may be equal there.
    place: Option<String>,
}

/// A query that is being written.
struct Session {
    query: QueryId,
    judge: Judge,
    statements: Statements,
    held: Held,
    client: Option<Client>,
    tasks: Tasks,
}

/// What brings rows into the table.
#[derive(Clone, Debug)]
struct Statements {
    /// What a new connection needs.
    prepare: Option<String>,
    copy: String,
    /// Takes changes out that are followed by another one of the same key, as the database compares keys.
    former: Option<String>,
    delete: Option<String>,
    merge: Option<String>,
}

impl PostgresSink {
    pub(super) fn new(settings: Settings, sink: &str, schema: SchemaRef) -> Result<Self> {
        check(&schema)?;
        let column = |name: &String| schema.index_of(name).map_err(|e| StreamError::invalid(e.to_string()));
        let key = settings.key.iter().map(column).collect::<Result<Vec<_>>>()?;
        let delete = settings.delete.as_ref().map(column).transpose()?;
        let place = key.iter().any(|at| may_be_one(schema.field(*at).data_type())).then(|| free_name(&schema));
        let to = To { settings, sink: sink.to_owned(), schema, key, delete, place };
        Ok(Self { to, session: None, given_up: Arc::new(watch::Sender::new(false)) })
    }

    fn patience(&self, length: Duration) -> Patience {
        Patience { until: Instant::now() + length, given_up: self.given_up.subscribe() }
    }

    /// The session of a query; the database is asked which epochs it holds when it begins.
    fn session(&mut self, query: &QueryId) -> Result<&mut Session> {
        if self.session.as_ref().is_none_or(|session| session.query != *query) {
            self.session = None;
            self.session = Some(self.open(query)?);
        }
        self.session.as_mut().ok_or_else(|| StreamError::Internal("a sink without its connection".into()))
    }

    fn open(&self, query: &QueryId) -> Result<Session> {
        let (to, tasks) = (&self.to, Tasks::new()?);
        let judge = Judge::new(&to.settings.epochs, query, &to.sink);
        let (client, statements, held) =
            tasks.persist(&to.settings, "write to", &self.patience(PATIENCE), async || to.begin(&judge).await)?;
        Ok(Session { query: query.clone(), judge, statements, held, client: Some(client), tasks })
    }
}

/// A name that no column has.
fn free_name(schema: &SchemaRef) -> String {
    let mut name = PLACE.to_owned();
    while schema.index_of(&name).is_ok() {
        name.push('_');
    }
    name
}

impl To {
    /// Looks at the table, and takes the sink over.
    async fn begin(&self, judge: &Judge) -> Result<(Client, Statements, Held), Failure> {
        let settings = &self.settings;
        let client = connect(settings).await?;
        let found = columns(&client, &settings.table).await.map_err(|error| failed(settings, "look at", &error))?;
        let statements = self.statements(&found)?;
        self.prepare(&client, &statements).await?;
        self.try_out(&client, &statements).await?;
        let failed = |error: Error| failed(settings, "keep epochs for", &error);
        judge.prepare(&client).await.map_err(failed)?;
        let held = judge.take_over(&client).await.map_err(|error| {
            if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
                held_still(settings).into()
            } else {
                failed(error)
            }
        })?;
        Ok((client, statements, held))
    }

    fn statements(&self, found: &[Found]) -> Result<Statements> {
        let Settings { table, key, .. } = &self.settings;
        let fields: Vec<&Field> = self.schema.fields().iter().map(AsRef::as_ref).collect();
        let written: Vec<&Field> =
            fields.iter().enumerate().filter(|(at, _)| Some(*at) != self.delete).map(|(_, field)| *field).collect();
        let types = matching(table, &written, found, Way::In)?;
        let names: Vec<&String> = written.iter().map(|field| field.name()).collect();
        let columns = listed(names.iter().copied());
        if key.is_empty() {
            let copy = format!("COPY {table} ({columns}) FROM STDIN");
            return Ok(Statements { prepare: None, copy, former: None, delete: None, merge: None });
        }
        let typed = names.iter().zip(types).map(|(name, found)| format!("{} {}", quoted(name), found.sql));
        let goes = self.delete.map(|at| quoted(self.schema.field(at).name()));
        let typed = typed.chain(goes.iter().map(|goes| format!("{goes} boolean")));
        let typed: Vec<String> = typed.chain(self.place.iter().map(|place| format!("{place} bigint"))).collect();
        // A connection that somebody else has had, such as of a pool, may have the table.
        let prepare = format!(
            "DROP TABLE IF EXISTS pg_temp.{CHANGES}; CREATE TEMPORARY TABLE {CHANGES} ({}) ON COMMIT DELETE ROWS",
            typed.join(", ")
        );
        let all = listed(fields.iter().map(|field| field.name()).chain(&self.place));
        let same = key.iter().map(|name| format!("t.{0} = c.{0}", quoted(name))).collect::<Vec<_>>().join(" AND ");
        let former = |place| {
            format!("DELETE FROM pg_temp.{CHANGES} t USING pg_temp.{CHANGES} c WHERE {same} AND t.{place} < c.{place}")
        };
        let former = self.place.as_ref().map(former);
        let delete = goes
            .as_ref()
            .map(|goes| format!("DELETE FROM {table} t USING pg_temp.{CHANGES} c WHERE c.{goes} AND {same}"));
        let stays = goes.as_ref().map_or_else(String::new, |goes| format!(" WHERE {goes} IS NOT TRUE"));
        let others =
            names.iter().filter(|name| !key.contains(name)).map(|name| format!("{0} = EXCLUDED.{0}", quoted(name)));
        let others: Vec<String> = others.collect();
        let change = if others.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", others.join(", ")) };
        let merge = format!(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM pg_temp.{CHANGES}{stays} ON CONFLICT ({}) DO {change}",
            listed(key)
        );
        let copy = format!("COPY pg_temp.{CHANGES} ({all}) FROM STDIN");
        Ok(Statements { prepare: Some(prepare), copy, former, delete, merge: Some(merge) })
    }

    async fn prepare(&self, client: &Client, statements: &Statements) -> Result<(), Failure> {
        let Some(prepare) = &statements.prepare else { return Ok(()) };
        client
            .batch_execute(prepare)
            .await
            .map_err(|error| failed(&self.settings, "make a temporary table for", &error))
    }

    /// Writes nothing, and so finds out whether the user may write, and whether the key is one of the table.
    async fn try_out(&self, client: &Client, statements: &Statements) -> Result<(), Failure> {
        let failed = |error: Error| failed(&self.settings, "write to", &error);
        client.batch_execute(BEGIN).await.map_err(failed)?;
        self.bring(client, &Statements { delete: None, ..statements.clone() }, &[]).await?;
        if let Some(delete) = &statements.delete {
            client.batch_execute(delete).await.map_err(failed)?;
        }
        client.batch_execute("ROLLBACK").await.map_err(failed)
    }

    /// Brings rows into the table, within a transaction.
    async fn bring(&self, client: &Client, statements: &Statements, rows: &[RecordBatch]) -> Result<(), Failure> {
        let failed = |error: Error| failed(&self.settings, "write to", &error);
        let copy = client.copy_in::<_, Bytes>(&statements.copy).await.map_err(failed)?;
        let mut copy = std::pin::pin!(copy);
        for rows in rows {
            let mut portions = Vec::new();
            lines(rows, |portion| portions.push(Bytes::from(portion)))?;
            for portion in portions {
                copy.send(portion).await.map_err(failed)?;
            }
        }
        copy.finish().await.map_err(failed)?;
        let is_wanted = self.delete.is_some_and(|delete| some_go(rows, delete));
        let delete = statements.delete.as_ref().filter(|_| is_wanted);
        let changes = [statements.former.as_ref(), delete, statements.merge.as_ref()];
        for change in changes.into_iter().flatten() {
            client.batch_execute(change).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Writes an epoch in one transaction.
    async fn write(
        &self,
        client: &Client,
        session: Writing<'_>,
        epoch: Epoch,
        rows: &[RecordBatch],
    ) -> Result<(), Failure> {
        let Writing { judge, statements, held } = session;
        let settings = &self.settings;
        let failed = |error: Error| failed(settings, "write to", &error);
        client.batch_execute(BEGIN).await.map_err(failed)?;
        if !judge.advance(client, held, epoch).await.map_err(failed)? {
            client.batch_execute("ROLLBACK").await.map_err(failed)?;
            let found = judge.held(client).await.map_err(failed)?;
            return match standing(found, held, epoch) {
                Standing::Done => Ok(()),
                Standing::Fenced => Err(written_by_another(settings).into()),
                Standing::Changed => Err(changed(settings, found, held).into()),
            };
        }
        if !rows.is_empty() {
            self.bring(client, statements, rows).await?;
        }
        crash_at("postgres-sink-before-commit");
        client.batch_execute("COMMIT").await.map_err(failed)?;
        crash_at("postgres-sink-after-commit");
        Ok(())
    }
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// What an epoch is written by.
#[derive(Clone, Copy)]
struct Writing<'s> {
    judge: &'s Judge,
    statements: &'s Statements,
    held: Held,
}

impl Session {
    /// Writes an epoch, over new connections as long as that makes sense. What a lost connection has left undone is found out by the
    /// condition under which the epoch moves on.
    fn write(&mut self, to: &To, patience: &Patience, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let Self { judge, statements, held, client: kept, tasks, .. } = self;
        let writing = Writing { judge, statements, held: *held };
        tasks.persist(&to.settings, "write to", patience, async || {
            let client = match kept.take() {
                Some(client) => client,
                None => {
                    let client = connect(&to.settings).await?;
                    to.prepare(&client, statements).await?;
                    client
                }
            };
            to.write(&client, writing, epoch, rows).await?;
            *kept = Some(client);
            Ok(())
        })?;
        held.epoch = epoch;
        Ok(())
    }
}

fn held_still(settings: &Settings) -> StreamError {
    let cause = format!(
        "a session of a former process of the query still holds its row of {}; end that process, or its session (pg_stat_activity shows it), or \
         wait until the server notices that it is gone, and RESUME QUERY",
        settings.epochs
    );
    StreamError::io(format!("write to {} at {}", settings.table, settings.place()), &cause)
}

fn written_by_another(settings: &Settings) -> StreamError {
    StreamError::invalid(format!(
        "table {} at {} is being written to by another process of the query; end that process, or RESUME QUERY, which goes on where the table is",
        settings.table,
        settings.place()
    ))
}

fn changed(settings: &Settings, found: Option<Held>, held: Held) -> StreamError {
    let found =
        found.map_or_else(|| "nothing".to_owned(), |found| format!("epoch {} of owner {}", found.epoch, found.owner));
    StreamError::invalid(format!(
        "{} at {}: expected epoch {} of owner {}, which this query has written, found {found}; nobody but the query may change its row. Put it back, \
         or DROP the query",
        settings.epochs,
        settings.place(),
        held.epoch,
        held.owner
    ))
}

impl Sink for PostgresSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        let last = self.session(query)?.held.epoch;
        Ok((last > Epoch::ZERO).then_some(last))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if epoch <= self.session(query)?.held.epoch {
            return Ok(());
        }
        let rows: Vec<RecordBatch> = match self.to.key.as_slice() {
            [] => rows.iter().filter(|rows| rows.num_rows() > 0).cloned().collect(),
            key => last_of_each(rows, key)?,
        };
        let rows = match &self.to.place {
            Some(place) => counted(&rows, place)?,
            None => rows,
        };
        let patience = self.patience(self.to.settings.transaction_timeout);
        let Some(session) = &mut self.session else {
            return Err(StreamError::Internal("a sink without its connection".into()));
        };
        let written = session.write(&self.to, &patience, epoch, &rows);
        if written.is_err() {
            // Who writes on asks anew what the database holds.
            self.session = None;
        }
        written
    }

    /// Every epoch is there when its commit has returned.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }

    fn remote(&self) -> Option<Remote> {
        let given_up = Arc::clone(&self.given_up);
        let give_up = move || {
            given_up.send_replace(true);
        };
        Some(Remote { renew_after: TEND_EVERY, give_up: Arc::new(give_up) })
    }
}
