//! `savanna nexmark`.

use std::time::Duration;

use savanna_node::Config;
use savanna_node::price::FunctionPrice;
use savanna_node::streams::price;
use savanna_streams_api::handle::{HandleError, QueryStatus};
use serde::Serialize;
use tempfile::TempDir;

use crate::args::{EventFormat, Format, Mode, NexmarkDemo, NexmarkGenerate, NexmarkQuery, NexmarkRun};
use crate::error::{CliError, Exit};
use crate::nexmark::{self, Events};
use crate::output;
use crate::progress::{LiveLine, short};
use crate::sql::engine::{Engine, Executed};
use crate::sql::shell::{Ended, Shell};

/// How often a running query is looked at.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// What a run took; the object of `--output json`.
#[derive(Debug, Serialize)]
struct Report {
    query: String,
    mode: &'static str,
    events: u64,
    result_rows: u64,
    seconds: f64,
    cpu_seconds: f64,
    generator_cpu_seconds: f64,
    events_per_second: f64,
    events_per_cpu_second: f64,
    peak_rss_bytes: u64,
    billed_ms: u64,
    cost_usd: f64,
}

impl Report {
    fn new(query: &str, mode: Mode, status: &QueryStatus, price: &FunctionPrice) -> Self {
        let events = status.events as f64;
        Self {
            query: query.to_owned(),
            mode: mode.name(),
            events: status.events,
            result_rows: status.result_rows,
            seconds: status.seconds,
            cpu_seconds: status.cpu_seconds,
            generator_cpu_seconds: status.generator_cpu_seconds,
            events_per_second: events / status.seconds.max(1e-9),
            events_per_cpu_second: events / status.cpu_seconds.max(1e-9),
            peak_rss_bytes: peak_rss_bytes(),
            billed_ms: status.billed_ms,
            cost_usd: price.dollars(status.invocations, status.billed_ms),
        }
    }
}

pub(crate) async fn run(config: &Config, format: Format, run: &NexmarkRun) -> Result<Exit, CliError> {
    let engine = Engine::embedded(config).await?;
    let number = |number: Option<u16>| number.map(|number| number.to_string());
    let settings = [
        ("parallelism", number(run.parallelism)),
        ("group-size", number(run.group_size)),
        ("memory-limit", run.memory_limit.clone()),
        ("mode", Some(run.mode.name().to_owned())),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            engine.set(name, &value).await?;
        }
    }
    let events = Events { count: run.events, seed: run.seed };
    prepare(&engine, &nexmark::source(events)).await?;
    let files = files_of(run.query)?;
    let query = nexmark::query(run.query, &files.path().to_string_lossy());
    let (status, ended) = complete(&engine, &query).await?;
    let price = price(config.node()).map_err(HandleError::from)?;
    let report = Report::new(nexmark::name(run.query), run.mode, &status, &price);
    match format {
        Format::Json => output::write_json(&report)?,
        Format::Table => {
            let serde_json::Value::Object(fields) = serde_json::json!(report) else {
                return Ok(Exit::Failed);
            };
            let plain = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let rows: Vec<Vec<String>> = fields.into_iter().map(|(name, value)| vec![name, plain(value)]).collect();
            output::write(output::text_table(&["figure", "value"], &rows).as_bytes())?;
            eprintln!("cost: {}", price.formula(status.invocations, status.billed_ms));
        }
    }
    engine.close().await;
    Ok(exit_of(ended))
}

pub(crate) async fn generate(config: &Config, format: Format, generate: &NexmarkGenerate) -> Result<Exit, CliError> {
    let directory = &generate.out;
    std::fs::create_dir_all(directory).map_err(CliError::io(format!("making {}", directory.display())))?;
    let Some(path) = directory.to_str() else {
        return Err(CliError::Usage(format!(
            "--out takes a directory with a name in UTF-8, came {}",
            directory.display()
        )));
    };
    let engine = Engine::embedded(config).await?;
    // One partition, so that the files hold the events in order.
    engine.execute("SET 'parallelism' = '1'").await?;
    let kind = match generate.format {
        EventFormat::Parquet => "parquet",
        EventFormat::Ndjson => "ndjson",
    };
    let events = Events { count: generate.events, seed: generate.seed };
    prepare(&engine, &nexmark::source(events)).await?;
    prepare(&engine, &nexmark::file_table(path, kind)).await?;
    let (status, ended) = complete(&engine, nexmark::COPY).await?;
    engine.close().await;
    let (written, seconds) = (status.result_rows, status.seconds);
    match format {
        Format::Json => output::write_json(&serde_json::json!({
            "events": written, "seed": generate.seed, "format": kind, "directory": path, "seconds": seconds,
        }))?,
        Format::Table => {
            output::write(format!("{written} events in {path} as {kind}, {seconds:.2} s\n").as_bytes())?;
        }
    }
    Ok(exit_of(ended))
}

pub(crate) async fn demo(config: &Config, format: Format, demo: &NexmarkDemo) -> Result<Exit, CliError> {
    let engine = Engine::embedded(config).await?;
    eprintln!(
        "the hottest auctions of each second, {} events per second for {} s; Ctrl-C stops",
        demo.rate, demo.seconds
    );
    prepare(&engine, &nexmark::paced_source(demo.rate, demo.seconds)).await?;
    let mut shell = Shell::new(engine, format);
    let ended = shell.run(nexmark::DEMO, None).await?;
    let summary = shell.close(ended).await?;
    if let Some(query) = summary.queries.first()
        && format == Format::Table
    {
        let price = price(config.node()).map_err(HandleError::from)?;
        let rate = short(query.events as f64 / query.cpu_seconds.max(1e-9));
        eprintln!("one CPU would have done {rate} events/s");
        eprintln!("on functions: {}", price.formula(query.invocations, query.billed_ms));
    }
    Ok(exit_of(ended))
}

/// A directory for the files of a query, with those that it reads; it goes when the value is dropped.
fn files_of(query: NexmarkQuery) -> Result<TempDir, CliError> {
    let making = || "making a directory for the files of the query".to_owned();
    let directory = tempfile::tempdir().map_err(CliError::io(making()))?;
    if query == NexmarkQuery::Q13 {
        std::fs::write(directory.path().join("side_input.csv"), nexmark::side_input())
            .map_err(CliError::io(making()))?;
    }
    Ok(directory)
}

/// Runs statements that return nothing.
async fn prepare(engine: &Engine, sql: &str) -> Result<(), CliError> {
    for statement in engine.split(sql).await? {
        engine.execute(&statement).await?;
    }
    Ok(())
}

/// Runs the statements of a query, the last of which is an `INSERT INTO`, until that has ended.
async fn complete(engine: &Engine, sql: &str) -> Result<(QueryStatus, Ended), CliError> {
    let mut started = None;
    for statement in engine.split(sql).await? {
        if let Executed::Started(query) = engine.execute(&statement).await? {
            started = Some(query);
        }
    }
    let gone = || HandleError::Unavailable("the query no longer exists".to_owned());
    let query = started.ok_or_else(gone)?;
    let mut live = LiveLine::new();
    let mut ended = Ended::Done;
    let mut ctrl_c = std::pin::pin!(tokio::signal::ctrl_c());
    let status = loop {
        let status = engine.status(&query).await?.ok_or_else(gone)?;
        if status.state.is_over() {
            break status;
        }
        if live.due() {
            live.show(&status);
        }
        tokio::select! {
            _ = &mut ctrl_c, if ended == Ended::Done => {
                engine.cancel(&query).await?;
                ended = Ended::Interrupted;
            }
            () = tokio::time::sleep(WATCH_EVERY) => {}
        }
    };
    live.clear();
    match status.error.clone() {
        Some(error) => Err(HandleError::Stream(error).into()),
        None => Ok((status, ended)),
    }
}

const fn exit_of(ended: Ended) -> Exit {
    match ended {
        Ended::Done => Exit::Done,
        Ended::Failed => Exit::Failed,
        Ended::Interrupted => Exit::Interrupted,
    }
}

/// The most memory that this process has had at once.
fn peak_rss_bytes() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    // Linux counts in KiB, macOS in bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * unit)
}
