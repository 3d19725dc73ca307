//! Statements in, rows out: what `-c`, `-f` and the prompt share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use savanna_http::Problem;
use savanna_streams_api::Position;
use savanna_streams_api::StreamError;
use savanna_streams_api::handle::{CursorId, HandleError, QueryStatus, Rows};
use savanna_streams_api::ids::QueryId;

use super::diagnostic::{self, Origin};
use super::engine::{Engine, Executed};
use super::summary::{self, Outcome, Summary};
use crate::args::Format;
use crate::error::CliError;
use crate::output::{self, ResultWriter};
use crate::progress::LiveLine;

/// How long a fetch waits before the status line may change.
const FETCH_WAIT: Duration = Duration::from_millis(200);

/// How often a query that writes to a sink is looked at.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// How a statement or a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is done.
    Done,
    /// It failed; the error was told.
    Failed,
    /// Ctrl-C.
    Interrupted,
}

/// Runs statements and writes what they return.
#[derive(Debug)]
pub(crate) struct Shell {
    engine: Engine,
    format: Format,
    live: LiveLine,
    summary: Summary,
    started: Instant,
    /// Queries of `INSERT INTO`, which run beside the statements that follow.
    background: Vec<QueryId>,
}

impl Shell {
    pub(crate) fn new(engine: Engine, format: Format) -> Self {
        let (live, summary) = (LiveLine::new(), Summary::new());
        Self { engine, format, live, summary, started: Instant::now(), background: Vec::new() }
    }

    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs all statements of a text, until one does not end well.
    pub(crate) async fn run(&mut self, text: &str, file: Option<&str>) -> Result<Ended, CliError> {
        let whole = Origin { file, start: Position { line: 1, column: 1 } };
        let statements = match self.engine.split(text).await {
            Ok(statements) => statements,
            Err(error) => {
                self.summary.statements += 1;
                return self.fail(error, text, whole);
            }
        };
        let mut from = 0;
        for statement in statements {
            let found = diagnostic::find(text, &statement, from);
            let start = found.map_or(whole.start, |(start, _)| start);
            from = found.map_or(from, |(_, end)| end);
            let ended = self.statement(&statement, Origin { file, start }).await?;
            if ended != Ended::Done {
                return Ok(ended);
            }
        }
        Ok(Ended::Done)
    }

    /// Waits for the queries that were started, if they would end with this process.
    pub(crate) async fn finish(&mut self) -> Result<Ended, CliError> {
        let mut ended = Ended::Done;
        for query in std::mem::take(&mut self.background) {
            if !self.engine.is_embedded() {
                continue;
            }
            if ended == Ended::Interrupted {
                self.engine.cancel(&query).await?;
            } else if self.watch(&query).await? == Ended::Interrupted {
                ended = Ended::Interrupted;
            }
            if let Some(status) = self.engine.final_status(&query).await?
                && self.told(status) == Ended::Failed
                && ended == Ended::Done
            {
                ended = Ended::Failed;
            }
        }
        Ok(ended)
    }

    /// Writes the summary and closes the session.
    pub(crate) async fn close(mut self, ended: Ended) -> Result<Summary, CliError> {
        self.live.clear();
        self.summary.seconds = self.started.elapsed().as_secs_f64();
        self.summary.outcome = match ended {
            Ended::Done => Outcome::Finished,
            Ended::Failed => Outcome::Failed,
            Ended::Interrupted => Outcome::Cancelled,
        };
        self.engine.close().await;
        if self.format == Format::Json {
            let line = serde_json::to_string(&self.summary).map_err(|error| CliError::Refused(error.to_string()))?;
            eprintln!("{line}");
        }
        Ok(self.summary)
    }

    async fn statement(&mut self, statement: &str, origin: Origin<'_>) -> Result<Ended, CliError> {
        self.summary.statements += 1;
        match self.engine.execute(statement).await {
            Err(error) => self.fail(error, statement, origin),
            Ok(Executed::Done(tag)) => {
                self.note(&tag)?;
                Ok(Ended::Done)
            }
            Ok(Executed::Started(query)) => {
                self.note(&format!("INSERT: query {query} runs"))?;
                self.background.push(query);
                Ok(Ended::Done)
            }
            Ok(Executed::Rows { rows, cursor, query }) => {
                let flowed = self.flow(&rows, cursor, query.as_ref()).await;
                self.live.clear();
                let ended = match flowed {
                    Ok(ended) => ended,
                    Err(Flow::Engine(error)) => self.fail(error, statement, origin)?,
                    Err(Flow::Output(error)) => return Err(error),
                };
                if let Some(query) = query
                    && let Some(status) = self.engine.final_status(&query).await?
                {
                    self.told_ended(status);
                }
                Ok(ended)
            }
        }
    }

    /// Writes the rows of a cursor as they come.
    async fn flow(&mut self, none: &Rows, cursor: CursorId, query: Option<&QueryId>) -> Result<Ended, Flow> {
        let mut writer = ResultWriter::new(self.format, Arc::clone(&none.schema));
        let mut ctrl_c = std::pin::pin!(tokio::signal::ctrl_c());
        let ended = loop {
            let fetched = tokio::select! {
                biased;
                _ = &mut ctrl_c => {
                    self.engine.close_cursor(cursor).await?;
                    break Ended::Interrupted;
                }
                fetched = self.engine.fetch(cursor, FETCH_WAIT) => fetched,
            };
            let (rows, end) = fetched?;
            let page = writer.page(&rows.batches).map_err(|error| StreamError::Internal(error.to_string()))?;
            if !page.is_empty() {
                self.live.clear();
                output::write(&page).map_err(Flow::Output)?;
            }
            if end {
                break Ended::Done;
            }
            self.show(query).await?;
        };
        self.live.clear();
        output::write(&writer.end()).map_err(Flow::Output)?;
        self.summary.rows += writer.rows();
        Ok(ended)
    }

    /// Waits until a query has ended, or Ctrl-C cancels it.
    async fn watch(&mut self, query: &QueryId) -> Result<Ended, CliError> {
        let mut ctrl_c = std::pin::pin!(tokio::signal::ctrl_c());
        let ended = loop {
            match self.engine.status(query).await? {
                Some(status) if !status.state.is_over() => {
                    if self.live.due() {
                        self.live.show(&status);
                    }
                }
                _ => break Ended::Done,
            }
            tokio::select! {
                _ = &mut ctrl_c => {
                    self.engine.cancel(query).await?;
                    break Ended::Interrupted;
                }
                () = tokio::time::sleep(WATCH_EVERY) => {}
            }
        };
        self.live.clear();
        Ok(ended)
    }

    async fn show(&mut self, query: Option<&QueryId>) -> Result<(), HandleError> {
        if let Some(query) = query
            && self.live.due()
            && let Some(status) = self.engine.status(query).await?
        {
            self.live.show(&status);
        }
        Ok(())
    }

    /// Tells how a query of `INSERT INTO` ended, its error included.
    fn told(&mut self, status: QueryStatus) -> Ended {
        let failed = status.error.clone();
        let statement = status.statement.clone();
        self.told_ended(status);
        let Some(error) = failed else {
            return Ended::Done;
        };
        let error = HandleError::Stream(error);
        let origin = Origin { file: None, start: Position { line: 1, column: 1 } };
        eprint!("{}", diagnostic::render(&error, &statement, origin));
        self.summary.error = Some(Problem::from(error));
        Ended::Failed
    }

    fn told_ended(&mut self, status: QueryStatus) {
        if self.format == Format::Table {
            eprintln!("{}", summary::line(&status));
        }
        self.summary.add(status);
    }

    /// What a statement without rows says: beside the rows for people, not among them for programs.
    fn note(&mut self, text: &str) -> Result<(), CliError> {
        match self.format {
            Format::Table => output::write(format!("{text}\n").as_bytes()),
            Format::Json => Ok(()),
        }
    }

    fn fail(&mut self, error: HandleError, statement: &str, origin: Origin<'_>) -> Result<Ended, CliError> {
        self.live.clear();
        if !matches!(error, HandleError::Stream(_)) {
            return Err(error.into());
        }
        eprint!("{}", diagnostic::render(&error, statement, origin));
        self.summary.error = Some(Problem::from(error));
        Ok(Ended::Failed)
    }
}

/// What interrupts a result.
enum Flow {
    Engine(HandleError),
    Output(CliError),
}

impl From<HandleError> for Flow {
    fn from(error: HandleError) -> Self {
        Self::Engine(error)
    }
}

impl From<StreamError> for Flow {
    fn from(error: StreamError) -> Self {
        Self::Engine(error.into())
    }
}
