//! Stored queries that go on: at the start of a process, by `RESUME QUERY`, and from savepoints.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use savanna_streams_api::handle::SessionId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::budget;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::sink::Sink;
use savanna_streams_runtime::{Query as RunningQuery, RuntimeOptions};
use savanna_streams_sql::{Planner, Statement};

use super::Inner;
use crate::catalog::{Relation, StreamCatalog};
use crate::durable::{Standing, Store, StoredQuery, StoredRelation};
use crate::views::View;
use crate::{queries, settings, statement_thread};

/// The longest between two attempts to go on with a query.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// A stored query by this release.
pub(super) struct Planned {
    pub(super) graph: StageGraph,
    /// The table that it writes.
    pub(super) table: TableDef,
    /// The materialized view that it fills, if it does.
    view: Option<Arc<View>>,
}

impl Inner {
    /// Runs a stored query from its beginning, or goes on with it.
    pub(super) fn run_recorded(
        &self,
        store: &Arc<Store>,
        query: &StoredQuery,
        graph: StageGraph,
        view: Option<&View>,
        sink: Box<dyn Sink>,
        options: RuntimeOptions,
    ) -> Result<()> {
        if let Some(kept) = &query.kept_in {
            self.options.roots.check(Path::new(&kept.url))?;
        }
        let survival = store.survival(query.id.job)?;
        if let Some(view) = view {
            view.check_held(&survival.records)?;
        }
        let connectors = Arc::clone(&self.options.connectors);
        let functions = savanna_streams_functions::functions();
        let running =
            RunningQuery::start_recorded(query.id.clone(), graph, functions, connectors, sink, options, survival)?;
        self.queries.add(&query.id, query.statement.clone(), running);
        Ok(())
    }

    /// Goes on with a stored query: over the tables and views that it began with, planned anew.
    fn resume(&self, store: &Arc<Store>, stored: &StoredQuery) -> Result<()> {
        stored.check_emission()?;
        if let Some(others) = self.other_tables(stored) {
            tracing::warn!(query = %stored.id, name = stored.name, others, "a query goes on with tables as they were when it began");
        }
        let Planned { graph, table, view } = self.planned(stored)?;
        if graph.code() != stored.id.code {
            tracing::warn!(query = %stored.id, name = stored.name, "a query goes on whose code is another now: this release plans it otherwise, a password was part of it, or its text was changed");
        }
        let sink = match &view {
            Some(view) => view.sink()?,
            None => self.options.connectors.sink(&table, Arc::new(graph.output.clone()))?,
        };
        let options = settings::restored(&self.options.runtime, &stored.settings)?;
        self.run_recorded(store, stored, graph, view.as_deref(), sink, options)
    }

    /// What a stored query is by this release.
    pub(super) fn planned(&self, stored: &StoredQuery) -> Result<Planned> {
        let relation = |stored: &StoredRelation| Ok(self.with_new_secrets(stored.relation()?));
        let relations = stored.relations.iter().map(relation).collect::<Result<Vec<_>>>()?;
        let catalog = Arc::new(StreamCatalog::of(relations));
        let planner = Planner::new(Arc::clone(&catalog) as _, Arc::clone(&self.options.connectors));
        let mut statement = savanna_streams_sql::parse(&stored.statement)?;
        statement.bind(&stored.parameters)?;
        let (view, query, table, columns) = match statement {
            Statement::Insert { table, columns, query } => match catalog.find("table", &table)? {
                Relation::Table(table) => (None, query, table, columns),
                _ => return Err(StreamError::Internal(format!("the stored query {} writes to a view", stored.name))),
            },
            Statement::CreateMaterializedView { query, .. } => {
                let view = self.catalog.filled_by(&stored.id).ok_or_else(|| {
                    let name = &stored.name;
                    StreamError::invalid(format!("the materialized view {name} is gone; DROP MATERIALIZED VIEW {name}"))
                })?;
                let table = view.table().clone();
                (Some(view), query, table, Vec::new())
            }
            _ => return Err(StreamError::Internal(format!("the stored query {} writes nothing", stored.name))),
        };
        let options = settings::restored(&self.options.runtime, &stored.settings)?;
        let graph = budget::within(options.memory_limit, || planner.plan_insert(&query, &table, &columns))?;
        Ok(Planned { graph, table, view })
    }

    /// A table with the secrets of the one that has its name now, if nothing else differs: passwords change.
    fn with_new_secrets(&self, relation: Relation) -> Relation {
        let then = match relation {
            Relation::Table(then) => then,
            other => return other,
        };
        Relation::Table(match self.catalog.find("table", &then.name) {
            Ok(Relation::Table(now)) if now.differences(&then).is_empty() => TableDef { options: now.options, ..then },
            _ => then,
        })
    }

    /// Tables of a stored query in whose place there are others now, with what differs in them.
    fn other_tables(&self, stored: &StoredQuery) -> Option<String> {
        let other = |stored: &StoredRelation| {
            let (Ok(Relation::Table(then)), Ok(Relation::Table(now))) =
                (stored.relation(), self.catalog.find("table", &stored.name))
            else {
                return None;
            };
            let differences = now.differences(&then);
            (!differences.is_empty()).then(|| format!("table {} ({})", stored.name, differences.join(", ")))
        };
        let others: Vec<String> = stored.relations.iter().filter_map(other).collect();
        (!others.is_empty()).then(|| others.join(", "))
    }

    /// A stored table with the secrets of the one that has its name now.
    fn renewed(&self, stored: &StoredRelation) -> Result<StoredRelation> {
        Ok(match self.with_new_secrets(stored.relation()?) {
            Relation::Table(table) => stored.with_options(table.options),
            _ => stored.clone(),
        })
    }

    /// As [`Self::resume`]; a panic is an error of this query alone.
    fn resume_guarded(&self, store: &Arc<Store>, stored: &StoredQuery) -> Result<()> {
        let resume = || budget::planning(|| self.resume(store, stored));
        catch_unwind(AssertUnwindSafe(resume)).unwrap_or_else(|_| {
            Err(StreamError::Internal("going on with the query panicked; the log says where".into()))
        })
    }

    /// Goes on with the queries of former processes, on a thread for that: what they read and write may not answer for long. Until
    /// then they are shown as loading. One that cannot go on is shown as failed. It is tried again in a while if what it reads or writes
    /// has failed, otherwise in the next process.
    pub(super) fn go_on(self: &Arc<Self>) -> Result<()> {
        let mut going_on = Vec::new();
        for stored in self.store.as_ref().map_or_else(Vec::new, |store| store.queries()) {
            self.queries.begin_after(stored.id.job);
            self.queries.add_at_rest(match &stored.standing {
                Standing::Running => queries::going_on(&stored.id, &stored.statement),
                Standing::Stopped | Standing::TakingIn => queries::at_rest(&stored.id, &stored.statement, None),
                Standing::Failed(error) => queries::at_rest(&stored.id, &stored.statement, Some(error.clone())),
            });
            if stored.standing == Standing::Running {
                going_on.push(stored);
            }
        }
        if going_on.is_empty() {
            return Ok(());
        }
        let (tell, told) = sync_channel(1);
        let engine = Arc::downgrade(self);
        let (mut after, patience) = (self.options.retry_after, self.options.patience);
        statement_thread::deep_beside("going-on", move || {
            loop {
                let Some(engine) = engine.upgrade() else { return };
                going_on.retain(|stored| engine.go_on_with(stored));
                drop(engine);
                // Nobody listens who has lost patience, or has heard of the first attempt.
                let _ = tell.try_send(());
                if going_on.is_empty() {
                    return;
                }
                thread::sleep(after);
                after = (after * 2).min(RETRY_AFTER_MAX);
            }
        })?;
        if told.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                "not all queries have gone on yet: what they read or write does not answer; SHOW QUERIES tells which"
            );
        }
        Ok(())
    }

    /// Goes on with a query, unless somebody has stopped, dropped or resumed it meanwhile. Tells whether it is to be tried again.
    fn go_on_with(&self, begun: &StoredQuery) -> bool {
        let _changing = self.changing.lock();
        let (id, statement) = (&begun.id, &begun.statement);
        if self.ends.load(Ordering::Acquire) || self.queries.running(id).is_some() {
            return false;
        }
        // Who resumed it meanwhile in vain may have changed it.
        let stored = self.stored(&id.to_string()).filter(|stored| stored.standing == Standing::Running);
        let (Some(store), Some(stored)) = (&self.store, stored) else {
            self.queries.end_going_on(id);
            return false;
        };
        let failed = self.resume_guarded(store, &stored).err();
        if self.ends.load(Ordering::Acquire) {
            self.queries.cancel(id);
        }
        let Some(error) = failed else {
            tracing::info!(query = %id, name = begun.name, "a query goes on");
            return false;
        };
        tracing::error!(query = %id, name = begun.name, %error, "a query cannot go on");
        let again = matches!(error, StreamError::Io { .. });
        self.queries.add_at_rest(queries::at_rest(id, statement, Some(error)));
        again
    }

    /// `RESUME QUERY`, with what its session has set.
    pub(super) fn resume_stopped(&self, session: SessionId, text: &str) -> Result<()> {
        self.wait_stopped(text);
        let _changing = self.changing.lock();
        let (store, stored) = self.at_rest(text)?;
        let relations = stored.relations.iter().map(|relation| self.renewed(relation)).collect::<Result<Vec<_>>>()?;
        let changed = StoredQuery { relations, ..self.with_settings(session, &stored)? };
        self.go_on_changed(store, &stored, &changed).map_err(|error| self.with_other_tables(error, &stored))
    }

    /// One that was stopped or has failed may not be over yet. Nobody else waits for that meanwhile.
    pub(super) fn wait_stopped(&self, text: &str) {
        if let Some(stored) = self.stored(text).filter(|stored| stored.standing != Standing::Running) {
            self.queries.wait(&stored.id);
        }
    }

    /// A stored query that does not run.
    ///
    /// # Errors
    /// There is none, it is not stored, or it runs.
    pub(super) fn at_rest(&self, text: &str) -> Result<(&Arc<Store>, StoredQuery)> {
        let (store, stored) = self.kept_query(text)?;
        match self.queries.running(&stored.id) {
            Some(_) => Err(StreamError::invalid(format!("query {text} runs; STOP QUERY it first"))),
            None => Ok((store, stored)),
        }
    }

    /// A stored query.
    ///
    /// # Errors
    /// There is none, or it is not stored.
    pub(super) fn kept_query(&self, text: &str) -> Result<(&Arc<Store>, StoredQuery)> {
        match (&self.store, self.stored(text)) {
            (Some(store), Some(stored)) => Ok((store, stored)),
            _ => Err(match self.queries.parse_id(text) {
                Ok(_) => {
                    StreamError::invalid(format!("query {text} does not outlive its end; start its statement again"))
                }
                Err(unknown) => unknown,
            }),
        }
    }

    /// Goes on with a query that is another one now; if that fails, it is the former one again.
    pub(super) fn go_on_changed(&self, store: &Arc<Store>, stored: &StoredQuery, changed: &StoredQuery) -> Result<()> {
        if changed == stored {
            return self.go_on_stored(store, stored);
        }
        store.change(changed)?;
        self.go_on_stored(store, changed).map_err(|error| {
            if let Err(failed) = store.change(stored) {
                let what = format!("the query does not go on as it is now ({error}), and stays so: storing what it was");
                return StreamError::io(what, &failed);
            }
            match store.tell_again(stored.id.job) {
                Ok(()) => error,
                Err(failed) => StreamError::io(
                    format!(
                        "the query does not go on as it is now ({error}), and is what it was, but its bucket may say otherwise until RESUME \
                         QUERY reaches it: storing there what it was"
                    ),
                    &failed,
                ),
            }
        })
    }

    /// What a query reads or writes does not answer. Perhaps its table was made anew for that, and not quite the same.
    pub(super) fn with_other_tables(&self, error: StreamError, stored: &StoredQuery) -> StreamError {
        match (error, self.other_tables(stored)) {
            (StreamError::Io { what, cause }, Some(others)) => {
                let cause = format!(
                    "{cause}; the query keeps its tables as they were when it began, and of those that are there now nothing, not even \
                     passwords, because they differ in more: {others}"
                );
                StreamError::Io { what, cause }
            }
            (error, _) => error,
        }
    }

    /// Goes on with a stored query that does not run.
    pub(super) fn go_on_stored(&self, store: &Arc<Store>, stored: &StoredQuery) -> Result<()> {
        store.stand(stored.id.job, Standing::Running)?;
        if let Err(error) = self.resume(store, stored) {
            store.stand(stored.id.job, stored.standing.clone())?;
            return Err(error);
        }
        Ok(())
    }
}
