//! The engine: one request in, one reply out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use savanna_streams_api::handle::{
    CursorId, HandleError, Parameter, Purpose, QueryStatus, Rows, SessionId, StreamHandle, StreamReply, StreamRequest,
};
use savanna_streams_api::ids::QueryId;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::BuiltinConnectors;
use savanna_streams_functions::budget;
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::sink::Sink;
use savanna_streams_model::source::Connectors;
use savanna_streams_runtime::{Query as RunningQuery, RuntimeOptions};
use savanna_streams_sql::{Asker, ObjectKind, Planner, Query, Show, Statement};

use crate::catalog::{IfExists, Relation, StreamCatalog};
use crate::cursor::{self, Cursor};
use crate::queries::Queries;
use crate::session::Sessions;
use crate::statement_thread::{StatementThreads, Waiting};
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
    /// Where tables live.
    pub connectors: Arc<dyn Connectors>,
    /// Most sessions open at once.
    pub max_sessions: usize,
    /// Most results open in one session.
    pub max_cursors: usize,
    /// Most queries that run at once.
    pub max_queries: usize,
    /// How many ended queries `SHOW QUERIES` remembers.
    pub ended_queries: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            runtime: RuntimeOptions::default(),
            connectors: Arc::new(BuiltinConnectors::default()),
            max_sessions: 1_000,
            max_cursors: 64,
            max_queries: 256,
            ended_queries: 100,
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
}

impl fmt::Debug for StreamEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamEngine").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl StreamEngine {
    /// An engine with an empty catalog.
    pub fn new(options: EngineOptions) -> Arc<Self> {
        let catalog = Arc::new(StreamCatalog::default());
        let planner = Planner::new(Arc::clone(&catalog) as _, Arc::clone(&options.connectors));
        let sessions = Sessions::new(options.max_sessions, options.max_cursors);
        let queries = Queries::new(options.max_queries, options.ended_queries);
        let inner = Inner { options, catalog, planner, sessions, queries };
        Arc::new(Self { inner: Arc::new(inner), threads: StatementThreads::default() })
    }

    /// All queries, newest first.
    pub fn queries(&self) -> Vec<QueryStatus> {
        self.inner.queries.list()
    }

    /// Closes every session, cancels every query and waits until their threads have ended.
    pub async fn shutdown(&self) {
        let engine = Arc::clone(&self.inner);
        let stopped = tokio::task::spawn_blocking(move || {
            engine.sessions.close_all();
            engine.queries.stop_all();
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
            Statement::CreateTable { mut table, if_not_exists, .. } => {
                self.options.connectors.check(&mut table)?;
                savanna_streams_sql::check_watermark(&table)?;
                asked.waiting.check()?;
                let if_exists = if if_not_exists { IfExists::Keep } else { IfExists::Fail };
                let name = table.name.clone();
                self.catalog.create(&name, Relation::Table(table), if_exists)?;
                Ok(done("CREATE TABLE"))
            }
            Statement::CreateView { view, or_replace, if_not_exists, .. } => {
                let schema = self.planner.view_schema(&view);
                schema.map_err(|error| savanna_streams_sql::placed_in_part(error, &view.query, asked.sql))?;
                asked.waiting.check()?;
                let if_exists = match (or_replace, if_not_exists) {
                    (true, _) => IfExists::Replace,
                    (false, true) => IfExists::Keep,
                    (false, false) => IfExists::Fail,
                };
                let name = view.name.clone();
                self.catalog.create(&name, Relation::View(view), if_exists)?;
                Ok(done("CREATE VIEW"))
            }
            Statement::Drop { kind, name, if_exists } => {
                let (kind, tag) = match kind {
                    ObjectKind::Table => ("table", "DROP TABLE"),
                    ObjectKind::View => ("view", "DROP VIEW"),
                };
                self.catalog.remove(kind, &name, if_exists)?;
                Ok(done(tag))
            }
            Statement::Insert { table, columns, query } => self.insert(asked, &table, &columns, &query),
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
                let text = self.explain(session, &inner)?;
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
            Statement::StopQuery { id } => {
                self.queries.cancel(&self.queries.parse_id(&id)?)?;
                Ok(done("STOP QUERY"))
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

    fn insert(&self, asked: &Asked<'_>, table: &str, columns: &[String], query: &Query) -> Result<StreamReply> {
        let table = self.table(table)?;
        let graph = self.planner.plan_insert(query, &table, columns)?;
        let sink = self.options.connectors.sink(&table, Arc::new(graph.output.clone()))?;
        let (id, _) = self.start(asked, graph, sink)?;
        Ok(StreamReply::Started { query: id })
    }

    fn select(&self, asked: &Asked<'_>, query: &Query, purpose: Purpose) -> Result<StreamReply> {
        let (schema, rows, query) = self.open(asked, query)?;
        let cursor = self.sessions.add_cursor(asked.session, rows)?;
        Ok(StreamReply::Rows { schema, cursor, query, purpose })
    }

    /// Starts a query whose rows are fetched.
    fn open(&self, asked: &Asked<'_>, query: &Query) -> Result<(SchemaRef, Cursor, Option<QueryId>)> {
        let limit = settings::apply(&self.options.runtime, &self.sessions.settings(asked.session)?).memory_limit;
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
    fn undo(&self, session: SessionId, reply: &StreamReply) {
        match reply {
            StreamReply::Rows { cursor, .. } => drop(self.sessions.remove_cursor(session, *cursor)),
            StreamReply::Started { query } => drop(self.queries.cancel(query)),
            _ => {}
        }
    }

    fn asker(&self, session: SessionId) -> Result<Asker> {
        let settings = self.settings(Some(session))?.into_iter();
        let settings = settings.map(|row| (row[0].clone(), row[1].clone())).collect();
        Ok(Asker { user: self.sessions.user(session)?, settings })
    }

    fn start(
        &self,
        asked: &Asked<'_>,
        graph: savanna_streams_model::graph::StageGraph,
        sink: Box<dyn Sink>,
    ) -> Result<(QueryId, Arc<RunningQuery>)> {
        asked.waiting.check()?;
        let id = self.queries.next_id(graph.code())?;
        let connectors = Arc::clone(&self.options.connectors);
        let functions = savanna_streams_functions::functions();
        let options = settings::apply(&self.options.runtime, &self.sessions.settings(asked.session)?);
        let query = RunningQuery::start(id.clone(), graph, functions, connectors, sink, options)?;
        self.queries.add(&id, asked.sql.to_owned(), Arc::clone(&query));
        Ok((id, query))
    }

    fn explain(&self, session: SessionId, statement: &Statement) -> Result<String> {
        let graph = match statement {
            Statement::Query(query) => self.planner.plan(query, None)?,
            Statement::Insert { table, columns, query } => {
                let table = self.table(table)?;
                self.planner.plan_insert(query, &table, columns)?
            }
            _ => return Err(StreamError::invalid("EXPLAIN takes a SELECT or an INSERT INTO")),
        };
        let options = settings::apply(&self.options.runtime, &self.sessions.settings(session)?);
        let stages = savanna_streams_sql::explain(&graph, &savanna_streams_functions::functions());
        Ok(stages + &cost::advice(&graph, &options))
    }

    fn table(&self, name: &str) -> Result<TableDef> {
        match self.catalog.find("table", name)? {
            Relation::Table(table) => Ok(table),
            Relation::View(_) => Err(StreamError::Internal(format!("the view {name} was found as a table"))),
        }
    }

    fn describe_relation(&self, name: &str) -> Result<Rows> {
        if let Ok(Relation::View(view)) = self.catalog.find("view", name) {
            return show::describe_columns(self.planner.view_schema(&view)?.as_ref());
        }
        show::describe_table(&self.table(name)?)
    }

    fn show(&self, what: &Show, session: Option<SessionId>) -> Result<Rows> {
        match what {
            Show::Tables => show::relations(&self.catalog.all(), "table"),
            Show::Views => show::relations(&self.catalog.all(), "view"),
            Show::Queries => show::queries(&self.queries.list()),
            Show::Connectors => show::connectors(&self.options.connectors.list()),
            Show::Functions => {
                let names = savanna_streams_sql::function_names();
                show::table(&["function"], &names.into_iter().map(|name| vec![name]).collect::<Vec<_>>())
            }
            Show::CreateTable(name) => show::lines("statement", self.catalog.find("table", name)?.statement()),
            Show::CreateView(name) => show::lines("statement", self.catalog.find("view", name)?.statement()),
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
                let undo = move |reply| undone.undo(session, &reply);
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
                engine.queries.cancel(&query)?;
                done("STOP QUERY")
            }
            StreamRequest::ListQueries => StreamReply::Queries { queries: engine.queries.list() },
        })
    }
}
