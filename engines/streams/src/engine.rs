//! The engine: one request in, one reply out.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use parking_lot::Mutex;
use savanna_price::FunctionPrice;
use savanna_streams_api::handle::{
    CursorId, HandleError, Parameter, Purpose, QueryStatus, Rows, SessionId, StreamHandle, StreamReply, StreamRequest,
};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::{BuiltinConnectors, Roots, unique};
use savanna_streams_functions::budget;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::graph::StageGraph;
use savanna_streams_model::sink::Sink;
use savanna_streams_model::source::Connectors;
use savanna_streams_runtime::{Query as RunningQuery, RuntimeOptions, cannot_survive, delivery};
use savanna_streams_sql::{Asker, ObjectKind, Planner, Query, Show, Statement};

use self::materialized::Declaration;
use crate::catalog::{IfExists, NotingCatalog, Relation, StreamCatalog};
use crate::cursor::{self, Cursor};
use crate::durable::{EMISSION, Emptied, KeptIn, Standing, Store, StoreOptions, StoredQuery, StoredRelation};
use crate::queries::{self, Queries};
use crate::session::Sessions;
use crate::statement_thread::{self, StatementThreads, Waiting};
use crate::{cost, settings, show};

/// The most rows that one fetch returns, whatever was asked for.
const MAX_ROWS_PER_FETCH: usize = 65_536;

/// The longest that one fetch waits, whatever was asked for.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How an engine runs queries and what it bounds.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// How queries run.
    pub runtime: RuntimeOptions,
    /// What functions cost, for what `EXPLAIN` says.
    pub price: FunctionPrice,
    /// Where tables live.
    pub connectors: Arc<dyn Connectors>,
    /// The folders in which queries may be saved.
    pub roots: Roots,
    /// Most sessions open at once.
    pub max_sessions: usize,
    /// Most results open in one session.
    pub max_cursors: usize,
    /// Most queries that run at once.
    pub max_queries: usize,
    /// How many ended queries `SHOW QUERIES` remembers.
    pub ended_queries: usize,
    /// So long an engine that is opened waits for the queries of former processes to go on. Those that take longer, because what they
    /// read or write does not answer, go on beside everything else.
    pub patience: Duration,
    /// After so long a query is tried again that could not go on because what it reads or writes failed; later less often.
    pub retry_after: Duration,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            runtime: RuntimeOptions::default(),
            price: FunctionPrice::default(),
            connectors: Arc::new(BuiltinConnectors::default()),
            roots: Roots::anywhere(),
            max_sessions: 1_000,
            max_cursors: 64,
            max_queries: 256,
            ended_queries: 100,
            patience: Duration::from_secs(5),
            retry_after: Duration::from_secs(5),
        }
    }
}

/// The streams engine of one node.
pub struct StreamEngine {
    inner: Arc<Inner>,
    threads: StatementThreads,
}

/// What requests work on; shared with the threads that do what may block.
struct Inner {
    options: EngineOptions,
    catalog: Arc<StreamCatalog>,
    planner: Planner,
    sessions: Sessions,
    queries: Queries,
    /// What outlives the process, if it has a place.
    store: Option<Arc<Store>>,
    /// Locked while a stored query begins, goes on, is stopped or dropped: what is stored of it is what becomes of it. That a query goes on
    /// may take long, so what is done to others does not wait for it.
    changing: Mutex<()>,
    /// The engine ends: no query goes on any more.
    ends: AtomicBool,
}

impl fmt::Debug for StreamEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamEngine").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl StreamEngine {
    /// An engine with an empty catalog, of which nothing outlives the process.
    pub fn new(options: EngineOptions) -> Arc<Self> {
        Self::over(options, StreamCatalog::default(), None)
    }

    /// An engine with the tables, views and queries of former processes. Queries go on. Blocks while it reads, and for
    /// [`EngineOptions::patience`] at most until they do.
    ///
    /// # Errors
    /// What was kept cannot be read: with file and place. A query that cannot go on is no error; it is shown as failed.
    pub fn open(options: EngineOptions, kept: StoreOptions) -> Result<Arc<Self>> {
        statement_thread::deep(move || {
            let store = Store::open(kept)?;
            let relation = |stored: &StoredRelation| {
                match &stored.query {
                None => stored.relation(),
                Some(filled_by) => store.view(stored, filled_by).map(|view| {
                    if let Err(error) = view.open() {
                        tracing::error!(name = stored.name, %error, "a materialized view cannot be read; it answers with this error");
                    }
                    Relation::Materialized(view)
                }),
            }
            };
            let readable = |stored: &StoredRelation| match relation(stored) {
                Ok(relation) => Some(relation),
                Err(error) => {
                    let name = &stored.name;
                    tracing::error!(name, %error, "a stored table or view cannot be read; DROP it, or create it anew");
                    None
                }
            };
            let relations: Vec<_> = store.relations().iter().filter_map(readable).collect();
            let engine = Self::over(options, StreamCatalog::of(relations), Some(store));
            engine.inner.go_on()?;
            Ok(engine)
        })?
    }

    fn over(options: EngineOptions, catalog: StreamCatalog, store: Option<Arc<Store>>) -> Arc<Self> {
        let catalog = Arc::new(catalog);
        let planner = Planner::new(Arc::clone(&catalog) as _, Arc::clone(&options.connectors));
        let sessions = Sessions::new(options.max_sessions, options.max_cursors);
        let queries = Queries::new(options.max_queries, options.ended_queries);
        let inner = Inner {
            options,
            catalog,
            planner,
            sessions,
            queries,
            store,
            changing: Mutex::new(()),
            ends: AtomicBool::new(false),
        };
        Arc::new(Self { inner: Arc::new(inner), threads: StatementThreads::default() })
    }

    /// All queries, newest first.
    pub fn queries(&self) -> Vec<QueryStatus> {
        self.inner.all_queries()
    }

    /// Closes every session, cancels every query and waits until their threads have ended.
    pub async fn shutdown(&self) {
        let engine = Arc::clone(&self.inner);
        engine.ends.store(true, Ordering::Release);
        let stopped = tokio::task::spawn_blocking(move || {
            engine.sessions.close_all();
            engine.queries.stop_all();
            engine.catalog.views().iter().for_each(|view| view.close());
        });
        if let Err(error) = stopped.await {
            tracing::error!(%error, "stopping the queries failed");
        }
    }
}

impl Inner {
    fn describe(&self, session: SessionId, sql: &str, declared: &[Option<DataType>]) -> Result<StreamReply> {
        let mut statement = savanna_streams_sql::parse(sql)?;
        let parameters = self.planner.parameter_types(&statement, declared)?;
        let nulls: Vec<_> =
            parameters.iter().map(|data_type| Parameter { data_type: data_type.clone(), text: None }).collect();
        statement.bind(&nulls)?;
        Ok(StreamReply::Described { schema: self.columns(session, &statement)?, parameters })
    }

    /// The columns that a statement answers with.
    fn columns(&self, session: SessionId, statement: &Statement) -> Result<Option<SchemaRef>> {
        Ok(match statement {
            Statement::Query(query) => match self.planner.system_schema(query, &self.asker(session)?)? {
                Some(schema) => Some(schema),
                None if self.planner.reads_views(query) => Some(self.planner.over_views_schema(query)?),
                None => Some(self.planner.output_schema(query)?),
            },
            Statement::Fetch { cursor, moves: false, .. } => Some(self.sessions.named_schema(session, cursor)?),
            Statement::Explain { .. } => Some(show::lines("plan", "")?.schema),
            Statement::Show(what) => Some(self.show(what, None)?.schema),
            Statement::Describe { name } => Some(self.describe_relation(name)?.schema),
            _ => None,
        })
    }

    fn execute(&self, asked: &Asked<'_>, parameters: &[Parameter]) -> Result<StreamReply> {
        let session = asked.session;
        self.sessions.user(session)?;
        let mut statement = savanna_streams_sql::parse(asked.sql)?;
        statement.bind(parameters)?;
        match statement {
            Statement::CreateTable { mut table, if_not_exists, temporary } => {
                self.options.connectors.check(&mut table)?;
                savanna_streams_sql::check_watermark(&table)?;
                asked.waiting.check()?;
                let if_exists = if if_not_exists { IfExists::Keep } else { IfExists::Fail };
                let name = table.name.clone();
                self.catalog.create(&name, Relation::Table(table), if_exists, |table| self.keep(table, temporary))?;
                Ok(done("CREATE TABLE"))
            }
            Statement::CreateView { view, or_replace, if_not_exists, temporary } => {
                let schema = self.planner.view_schema(&view);
                schema.map_err(|error| savanna_streams_sql::placed_in_part(error, &view.query, asked.sql))?;
                asked.waiting.check()?;
                let if_exists = match (or_replace, if_not_exists) {
                    (true, _) => IfExists::Replace,
                    (false, true) => IfExists::Keep,
                    (false, false) => IfExists::Fail,
                };
                let name = view.name.clone();
                self.catalog.create(&name, Relation::View(view), if_exists, |view| self.keep(view, temporary))?;
                Ok(done("CREATE VIEW"))
            }
            Statement::CreateMaterializedView { view, options, query, if_not_exists, temporary } => {
                let declared = Declaration { view, options, query, if_not_exists, temporary };
                self.create_materialized_view(asked, declared)
            }
            Statement::Drop { kind: ObjectKind::MaterializedView, name, if_exists } => {
                self.drop_materialized_view(&name, if_exists)
            }
            Statement::Drop { kind, name, if_exists } => {
                let (kind, tag) = match kind {
                    ObjectKind::Table => ("table", "DROP TABLE"),
                    _ => ("view", "DROP VIEW"),
                };
                let stored = self.store.as_ref().filter(|store| store.has_relation(&name));
                let forget = || stored.map_or(Ok(()), |store| store.drop_relation(&name));
                match stored {
                    // It is stored and could not be read.
                    Some(_) if !self.catalog.has(&name) => forget()?,
                    _ => drop(self.catalog.remove(kind, &name, if_exists, forget)?),
                }
                Ok(done(tag))
            }
            Statement::Insert { table, columns, query } => {
                self.insert(asked, parameters, &Insert { table, columns, query })
            }
            Statement::Query(query) => self.select(asked, &query, Purpose::Select),
            Statement::Copy { query, format } => {
                let copied = self.select(asked, &query, Purpose::Copy(format));
                // That of a table was not written by the user.
                copied.map_err(|error| if asked.sql.contains(query.text()) { error } else { error.at(None) })
            }
            Statement::Declare { cursor, hold, query } => {
                self.sessions.check_name(session, &cursor)?;
                let (schema, rows, _) = self.open(asked, &query)?;
                self.sessions.declare(session, &cursor, schema, rows, hold)?;
                Ok(done("DECLARE CURSOR"))
            }
            Statement::Fetch { cursor, rows, moves } => {
                let (schema, cursor) = self.sessions.fetch_named(session, &cursor, rows)?;
                let purpose = if moves { Purpose::Move } else { Purpose::Fetch };
                Ok(StreamReply::Rows { schema, cursor, query: None, purpose })
            }
            Statement::Close { cursor } => {
                self.sessions.close_named(session, cursor.as_deref())?;
                Ok(done(if cursor.is_some() { "CLOSE CURSOR" } else { "CLOSE CURSOR ALL" }))
            }
            Statement::Explain { inner } => {
                let text = match *inner {
                    Statement::ResumeQuery { id, changed } => self.explain_resume(session, &id, changed)?,
                    inner => self.explain(session, &inner)?,
                };
                self.answer(session, show::lines("plan", &text)?)
            }
            Statement::Show(what) => {
                let rows = self.show(&what, Some(session))?;
                self.answer(session, rows)
            }
            Statement::Describe { name } => {
                let rows = self.describe_relation(&name)?;
                self.answer(session, rows)
            }
            Statement::Set { name, value } => {
                settings::check(&name, &value)?;
                self.sessions.set(session, &name, &value)?;
                Ok(done("SET"))
            }
            Statement::Reset { name } => {
                self.sessions.reset(session, name.as_deref())?;
                Ok(done("RESET"))
            }
            Statement::StopQuery { id, savepoint } => {
                let id = self.find_query(&id)?;
                match savepoint {
                    Some(directory) => {
                        let instead = "its rows are in this node; STOP QUERY it without a savepoint";
                        self.check_fills_no_view(&id, "STOP QUERY .. WITH SAVEPOINT", instead)?;
                        self.save(&id, Path::new(&directory))?;
                    }
                    None => self.stop(&id)?,
                }
                Ok(done("STOP QUERY"))
            }
            Statement::ResumeSavepoint { directory } => {
                self.resume_saved(session, Path::new(&directory))?;
                Ok(done("RESUME QUERY"))
            }
            Statement::ResumeQuery { id, changed } => {
                match changed {
                    Some(text) => self.resume_changed(asked, parameters, &id, text)?,
                    None => self.resume_stopped(session, &id)?,
                }
                Ok(done("RESUME QUERY"))
            }
            Statement::DropQuery { id } => {
                let id = self.find_query(&id)?;
                self.check_fills_no_view(&id, "DROP QUERY", "DROP MATERIALIZED VIEW takes both away")?;
                self.drop_query(&id)?;
                Ok(done("DROP QUERY"))
            }
            Statement::Begin => {
                self.sessions.begin(session)?;
                Ok(done("BEGIN"))
            }
            Statement::Commit => {
                self.sessions.end_transaction(session)?;
                Ok(done("COMMIT"))
            }
            Statement::Rollback => {
                self.sessions.end_transaction(session)?;
                Ok(done("ROLLBACK"))
            }
        }
    }

    /// Starts a query that runs on its own. One that has a name outlives the process.
    fn insert(&self, asked: &Asked<'_>, parameters: &[Parameter], insert: &Insert) -> Result<StreamReply> {
        let (table, graph, relations) = self.plan_noted(insert)?;
        let sink = self.options.connectors.sink(&table, Arc::new(graph.output.clone()))?;
        let settings = self.sessions.settings(asked.session)?;
        let Some(name) = settings::query_name(&settings) else {
            let (id, _) = self.start(asked, graph, sink)?;
            return Ok(StreamReply::Started { query: id });
        };
        let store = self.keeps(name, &graph, sink.as_ref())?;
        asked.waiting.check()?;
        let options = settings::apply(&self.options.runtime, &settings);
        let id = self.queries.next_id(graph.code())?;
        let query = StoredQuery {
            kept_in: self.kept_in(name, &id, &settings, &options)?,
            id,
            name: name.to_owned(),
            statement: asked.sql.to_owned(),
            parameters: parameters.to_vec(),
            settings: settings::stored(&options),
            relations,
            standing: Standing::Running,
            emission: EMISSION,
            anew_behind: Epoch::ZERO,
            emptied: Emptied::default(),
        };
        let _changing = self.changing.lock();
        store.add(query.clone()).map_err(|error| perhaps_stored(error, name))?;
        if let Err(error) = self.run_recorded(store, &query, graph, None, sink, options) {
            if let Err(also) = store.forget(query.id.job) {
                tracing::error!(query = %query.id, name, error = %also, "a query that could not start is still stored; DROP QUERY it");
                return Err(perhaps_stored(error, name));
            }
            return Err(error);
        }
        Ok(StreamReply::Started { query: query.id })
    }

    /// The folder in which a query is kept, if its session has set one.
    ///
    /// # Errors
    /// It may not be used, has a query of that name, or would come to have too much.
    fn kept_in(
        &self,
        name: &str,
        id: &QueryId,
        settings: &BTreeMap<String, String>,
        options: &RuntimeOptions,
    ) -> Result<Option<KeptIn>> {
        let Some(url) = settings::query_store(settings) else { return Ok(None) };
        let url = format!("{}/{name}", url.trim_end_matches('/'));
        self.options.roots.check(Path::new(&url))?;
        if options.snapshot_interval.is_none() {
            return Err(StreamError::invalid(
                "a query that is kept in a bucket ('query.store') needs a 'snapshot-interval', such as 60s: otherwise the records of its epochs, an \
                 object for each, would become too many",
            ));
        }
        if let Some(kept) = Store::living_at(&url)? {
            return Err(StreamError::invalid(format!(
                "query {name} is kept in {kept} already; RESUME QUERY FROM SAVEPOINT with this place takes it over; or SET another 'query.store' or \
                 'query.name'"
            )));
        }
        // Each query has a folder of its own: whoever had one before of the same name may write late.
        Ok(Some(KeptIn { url: format!("{url}/{}", id.job), holder: unique()? }))
    }

    /// The table that is written, the plan, and the tables and views that it names, to be stored.
    fn plan_noted(&self, insert: &Insert) -> Result<(TableDef, StageGraph, Vec<StoredRelation>)> {
        let table = self.table(&insert.table)?;
        let noting = Arc::new(NotingCatalog::new(Arc::clone(&self.catalog)));
        let planner = Planner::new(Arc::clone(&noting) as _, Arc::clone(&self.options.connectors));
        let graph = planner.plan_insert(&insert.query, &table, &insert.columns)?;
        let mut relations = noting.noted();
        relations.retain(|noted| noted.name() != table.name);
        relations.push(Relation::Table(table.clone()));
        let relations = relations.iter().map(StoredRelation::of).collect::<Result<_>>()?;
        Ok((table, graph, relations))
    }

    /// Where a query is kept that has a name: it outlives the process.
    fn keeps(&self, name: &str, graph: &StageGraph, sink: &dyn Sink) -> Result<&Arc<Store>> {
        let kept = match &self.store {
            None => Err("only a node that is no member of a cluster keeps queries".to_owned()),
            Some(store) => {
                cannot_survive(graph, self.options.connectors.as_ref(), sink.delivery())?.map_or(Ok(store), Err)
            }
        };
        kept.map_err(|reason| {
            StreamError::invalid(format!(
                "query {name} cannot outlive its process: {reason}; RESET 'query.name' to run it as long as the process"
            ))
        })
    }

    /// Stops a query. One that is stored does not go on by itself, whether it runs now or not.
    fn stop(&self, id: &QueryId) -> Result<()> {
        let cancelled = |is_known| if is_known { Ok(()) } else { Err(queries::unknown(&id.to_string())) };
        if self.stored(&id.to_string()).is_none() {
            return cancelled(self.queries.cancel(id));
        }
        let _changing = self.changing.lock();
        let stored = self.stored(&id.to_string());
        if let (Some(store), Some(Standing::Running)) = (&self.store, stored.as_ref().map(|stored| &stored.standing)) {
            store.stand(id.job, Standing::Stopped)?;
        }
        // Of those that have ended, only the last are known.
        cancelled(self.queries.cancel(id) || stored.is_some())
    }

    /// `DROP QUERY`: stops it, and forgets it if it is stored. What it wrote stays.
    fn drop_query(&self, id: &QueryId) -> Result<()> {
        loop {
            let is_known = self.queries.cancel(id);
            self.queries.wait(id);
            if self.stored(&id.to_string()).is_none() {
                return if is_known { Ok(()) } else { Err(queries::unknown(&id.to_string())) };
            }
            let _changing = self.changing.lock();
            if self.queries.running(id).is_some() {
                // Somebody has resumed it meanwhile.
                continue;
            }
            return match (&self.store, self.stored(&id.to_string())) {
                (Some(store), Some(stored)) => store.forget(stored.id.job),
                _ if is_known => Ok(()),
                _ => Err(queries::unknown(&id.to_string())),
            };
        }
    }

    /// All queries, newest first. Those that are stored are there, however many have ended since.
    fn all_queries(&self) -> Vec<QueryStatus> {
        let mut all = self.queries.list();
        for stored in self.store.as_ref().map_or_else(Vec::new, |store| store.queries()) {
            if all.iter().any(|status| status.query.job == stored.id.job) {
                continue;
            }
            let error = match stored.standing {
                Standing::Failed(error) => Some(error),
                Standing::Running => Some(StreamError::invalid("the query could not go on; RESUME QUERY says why")),
                Standing::Stopped | Standing::TakingIn => None,
            };
            all.push(queries::at_rest(&stored.id, &stored.statement, error));
        }
        self.tell_of_views(&mut all);
        all.sort_by_key(|status| std::cmp::Reverse(status.query.job));
        all
    }

    fn stored(&self, text: &str) -> Option<StoredQuery> {
        self.store.as_ref().and_then(|store| store.query(text))
    }

    /// A query by its name or id.
    fn find_query(&self, text: &str) -> Result<QueryId> {
        if let Some(stored) = self.stored(text) {
            return Ok(stored.id);
        }
        // One that ends with the process has no other name.
        let fills = self.catalog.views().into_iter().find(|view| view.table().name == text);
        fills.map_or_else(|| self.queries.parse_id(text), |view| Ok(view.id().clone()))
    }

    /// Makes a table or view outlive the process, unless it is temporary.
    fn keep(&self, relation: &Relation, temporary: bool) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if temporary {
            return match store.has_relation(relation.name()) {
                true => Err(StreamError::invalid(format!(
                    "{} {name} is kept, and a temporary one cannot take its place; DROP it, or choose another name",
                    relation.kind(),
                    name = relation.name()
                ))),
                false => Ok(()),
            };
        }
        store.put_relation(StoredRelation::of(relation)?)
    }

    fn select(&self, asked: &Asked<'_>, query: &Query, purpose: Purpose) -> Result<StreamReply> {
        let (schema, rows, query) = self.open(asked, query)?;
        let cursor = self.sessions.add_cursor(asked.session, rows)?;
        Ok(StreamReply::Rows { schema, cursor, query, purpose })
    }

    /// Starts a query whose rows are fetched.
    fn open(&self, asked: &Asked<'_>, query: &Query) -> Result<(SchemaRef, Cursor, Option<QueryId>)> {
        let limit = settings::apply(&self.options.runtime, &self.sessions.settings(asked.session)?).memory_limit;
        if let Some(rows) = self.over_views(asked, query, limit)? {
            return Ok((Arc::clone(&rows.schema), Cursor::of_rows(rows), None));
        }
        let known = match self.planner.system(query, &self.asker(asked.session)?)? {
            Some(batch) => Some(batch),
            None => budget::within(limit, || self.planner.constant(query))?,
        };
        if let Some(batch) = known {
            let schema = batch.schema();
            let rows = Rows { schema: Arc::clone(&schema), batches: vec![batch] };
            return Ok((schema, Cursor::of_rows(rows), None));
        }
        let graph = self.planner.plan(query, None)?;
        let schema = Arc::new(graph.output.clone());
        let (sink, rows) = cursor::channel();
        let (id, query) = self.start(asked, graph, Box::new(sink))?;
        Ok((Arc::clone(&schema), Cursor::of_query(schema, rows, query), Some(id)))
    }

    /// Ends what a statement has started whose client did not wait for the answer.
    fn undo(self: &Arc<Self>, session: SessionId, reply: StreamReply) {
        match reply {
            StreamReply::Rows { cursor, .. } => drop(self.sessions.remove_cursor(session, cursor)),
            StreamReply::Started { query } => {
                // Whoever lets go of an answer may be nobody who can wait.
                let engine = Arc::clone(self);
                let dropping = move || {
                    if let Err(error) = engine.drop_query(&query) {
                        tracing::warn!(%query, %error, "a query that nobody waited for could not be dropped");
                    }
                };
                if let Err(error) = thread::Builder::new().name("drop-query".into()).spawn(dropping) {
                    tracing::warn!(%error, "a query that nobody waited for could not be dropped");
                }
            }
            _ => {}
        }
    }

    fn asker(&self, session: SessionId) -> Result<Asker> {
        let settings = self.settings(Some(session))?.into_iter();
        let settings = settings.map(|row| (row[0].clone(), row[1].clone())).collect();
        Ok(Asker { user: self.sessions.user(session)?, settings })
    }

    fn start(&self, asked: &Asked<'_>, graph: StageGraph, sink: Box<dyn Sink>) -> Result<(QueryId, Arc<RunningQuery>)> {
        asked.waiting.check()?;
        let id = self.queries.next_id(graph.code())?;
        let connectors = Arc::clone(&self.options.connectors);
        let functions = savanna_streams_functions::functions();
        let options = settings::apply(&self.options.runtime, &self.sessions.settings(asked.session)?);
        let query = RunningQuery::start(id.clone(), graph, functions, connectors, sink, options)?;
        self.queries.add(&id, asked.sql.to_owned(), Arc::clone(&query));
        Ok((id, query))
    }

    /// What `EXPLAIN` says of how often each row is written.
    fn promise(&self, graph: &StageGraph, table: &TableDef) -> Result<String> {
        let connectors = self.options.connectors.as_ref();
        let sink = connectors.delivery(table)?;
        let promised = delivery(graph, connectors, sink)?;
        let why = match cannot_survive(graph, connectors, sink)? {
            Some(reason) => format!("it ends with its process: {reason}"),
            None => {
                "with a 'query.name' on a node it outlives its process, and without one it ends with that".to_owned()
            }
        };
        Ok(format!("delivery: {promised}; {why}\n"))
    }

    fn explain(&self, session: SessionId, statement: &Statement) -> Result<String> {
        let mut promise = String::new();
        let graph = match statement {
            Statement::Query(query) if self.planner.reads_views(query) => {
                return self.planner.explain_over_views(query);
            }
            Statement::CreateMaterializedView { view, options, query, .. } => {
                let declared = self.declared(&self.planner, view, options, query)?;
                self.planner.plan_insert(query, &declared.table, &[])?
            }
            Statement::Query(query) => self.planner.plan(query, None)?,
            Statement::Insert { table, columns, query } => {
                let table = self.table(table)?;
                let graph = self.planner.plan_insert(query, &table, columns)?;
                promise = self.promise(&graph, &table)?;
                graph
            }
            _ => {
                return Err(StreamError::invalid(
                    "EXPLAIN takes a SELECT, an INSERT INTO, a CREATE MATERIALIZED VIEW or a RESUME QUERY",
                ));
            }
        };
        let options = settings::apply(&self.options.runtime, &self.sessions.settings(session)?);
        let stages = savanna_streams_sql::explain(&graph, &savanna_streams_functions::functions());
        Ok(stages + &promise + &cost::advice(&graph, &options, self.options.price))
    }

    fn table(&self, name: &str) -> Result<TableDef> {
        match self.catalog.find("table", name)? {
            Relation::Table(table) => Ok(table),
            _ => Err(StreamError::Internal(format!("the view {name} was found as a table"))),
        }
    }

    fn describe_relation(&self, name: &str) -> Result<Rows> {
        if let Ok(Relation::View(view)) = self.catalog.find("view", name) {
            return show::describe_columns(self.planner.view_schema(&view)?.as_ref());
        }
        if let Ok(Relation::Materialized(view)) = self.catalog.find("materialized view", name) {
            return show::describe_columns(&view.table().schema());
        }
        show::describe_table(&self.table(name)?)
    }

    fn show(&self, what: &Show, session: Option<SessionId>) -> Result<Rows> {
        match what {
            Show::Tables => show::relations(&self.catalog.all(), "table"),
            Show::Views => show::relations(&self.catalog.all(), "view"),
            Show::MaterializedViews => self.show_materialized_views(),
            Show::Queries => {
                let stored = self.store.as_ref().map_or_else(Vec::new, |store| store.queries());
                let running =
                    |query: &StoredQuery| Some((query.id.clone(), self.queries.running(&query.id)?.snapshots()));
                let snapshots = stored.iter().filter_map(running).collect();
                let names = stored.into_iter().map(|query| (query.id, query.name)).collect();
                let all = self.all_queries();
                let promise = |status: &QueryStatus| {
                    Some((status.query.clone(), self.queries.running(&status.query)?.delivery()))
                };
                let deliveries = all.iter().filter_map(promise).collect();
                show::queries(&all, &names, &snapshots, &deliveries)
            }
            Show::Connectors => show::connectors(&self.options.connectors.list()),
            Show::Functions => {
                let names = savanna_streams_sql::function_names();
                show::table(&["function"], &names.into_iter().map(|name| vec![name]).collect::<Vec<_>>())
            }
            Show::CreateTable(name) => show::lines("statement", self.catalog.find("table", name)?.statement()),
            Show::CreateView(name) => show::lines("statement", self.catalog.find("view", name)?.statement()),
            Show::CreateMaterializedView(name) => {
                show::lines("statement", self.catalog.find("materialized view", name)?.statement())
            }
            Show::All => show::table(&["name", "setting", "meaning"], &self.settings(session)?),
            Show::Setting(name) => {
                let value = settings::value_of(name, self.settings(session)?)?;
                show::table(&[name], &[vec![value]])
            }
        }
    }

    fn settings(&self, session: Option<SessionId>) -> Result<Vec<Vec<String>>> {
        let of_session = session.map_or_else(|| Ok(BTreeMap::new()), |id| self.sessions.settings(id))?;
        Ok(settings::list(&self.options.runtime, &of_session))
    }

    fn answer(&self, session: SessionId, rows: Rows) -> Result<StreamReply> {
        let schema = Arc::clone(&rows.schema);
        let cursor = self.sessions.add_cursor(session, Cursor::of_rows(rows))?;
        Ok(StreamReply::Rows { schema, cursor, query: None, purpose: Purpose::Select })
    }

    async fn fetch(
        &self,
        session: SessionId,
        cursor: CursorId,
        max_rows: usize,
        wait: Duration,
    ) -> Result<StreamReply> {
        let reading = self.sessions.cursor(session, cursor)?;
        let most = max_rows.max(1).min(reading.left()).min(MAX_ROWS_PER_FETCH);
        let fetched = match reading.time_left() {
            Ok(left) => {
                let wait = wait.min(MAX_WAIT).min(left.unwrap_or(MAX_WAIT));
                reading.cursor.lock().await.fetch(most, wait).await
            }
            Err(timed_out) => Err(timed_out),
        };
        if let Ok((rows, _)) = &fetched {
            reading.took(rows.len());
        }
        let over = !matches!(fetched, Ok((_, false))) || reading.left() == 0;
        if over {
            self.sessions.remove_cursor(session, cursor);
        }
        let (rows, _) = fetched?;
        Ok(StreamReply::Fetched { rows, end: over })
    }
}

/// `INSERT INTO table (columns) query`.
struct Insert {
    table: String,
    columns: Vec<String>,
    query: Query,
}

/// A statement that a session has sent.
struct Asked<'a> {
    session: SessionId,
    sql: &'a str,
    waiting: &'a Waiting<StreamReply>,
}

fn done(tag: &str) -> StreamReply {
    StreamReply::Done { tag: tag.to_owned() }
}

impl StreamEngine {
    /// Waits for the answer to a statement as long as its session lets it take.
    async fn within_time<T>(&self, session: SessionId, answer: impl Future<Output = Result<T>>) -> Result<T> {
        match self.inner.sessions.statement_timeout(session) {
            None => answer.await,
            Some(limit) => {
                tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(settings::timed_out(limit)))
            }
        }
    }
}

#[async_trait]
impl StreamHandle for StreamEngine {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        let reply = self.answer(request).await;
        if let Err(HandleError::Stream(StreamError::Internal(what))) = &reply {
            tracing::error!(what, "an invariant of the streams engine is broken");
        }
        reply
    }
}

impl StreamEngine {
    async fn answer(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        let engine = Arc::clone(&self.inner);
        Ok(match request {
            StreamRequest::OpenSession { user } => StreamReply::Session { session: engine.sessions.open(user)? },
            StreamRequest::CloseSession { session } => {
                engine.sessions.close(session);
                done("CLOSE SESSION")
            }
            StreamRequest::Split { sql } => {
                let split = move |_: &Waiting<_>| savanna_streams_sql::split(&sql);
                let fragments = self.threads.run(split, drop).await?;
                StreamReply::Statements { statements: fragments.into_iter().map(|fragment| fragment.text).collect() }
            }
            StreamRequest::Describe { session, sql, parameters } => {
                let describe = move |_: &Waiting<_>| {
                    let described = budget::planning(|| engine.describe(session, &sql, &parameters));
                    described.map_err(|error| savanna_streams_sql::placed(error, &sql))
                };
                self.within_time(session, self.threads.run(describe, drop)).await?
            }
            StreamRequest::Execute { session, sql, parameters } => {
                let undone = Arc::clone(&engine);
                let execute = move |waiting: &Waiting<_>| {
                    let asked = Asked { session, sql: &sql, waiting };
                    let executed = budget::planning(|| engine.execute(&asked, &parameters));
                    executed.map_err(|error| savanna_streams_sql::placed(error, &sql))
                };
                let undo = move |reply| undone.undo(session, reply);
                self.within_time(session, self.threads.run(execute, undo)).await?
            }
            StreamRequest::Fetch { session, cursor, max_rows, wait_ms } => {
                engine.fetch(session, cursor, max_rows, Duration::from_millis(wait_ms)).await?
            }
            StreamRequest::CloseCursor { session, cursor } => {
                // What `FETCH` left behind stays in the cursor that has a name.
                if let Some(reading) = engine.sessions.remove_cursor(session, cursor)
                    && reading.is_whole()
                {
                    reading.cursor.lock().await.close();
                }
                done("CLOSE CURSOR")
            }
            StreamRequest::CancelQuery { query } => {
                let stop = move |_: &Waiting<_>| engine.stop(&query);
                self.threads.run(stop, drop).await?;
                done("STOP QUERY")
            }
            StreamRequest::ListQueries => StreamReply::Queries { queries: engine.all_queries() },
        })
    }
}

/// An error of a disk leaves open whether a query is stored.
fn perhaps_stored(error: StreamError, name: &str) -> StreamError {
    match error {
        StreamError::Io { what, cause } => {
            let cause = format!(
                "{cause}; query {name} may be there after a restart: look for it before the statement is sent again"
            );
            StreamError::Io { what, cause }
        }
        other => other,
    }
}

mod changed;
mod going_on;
mod materialized;
mod savepoints;
#[cfg(test)]
mod tests;
