//! Every `tests/sql/NAME.sql` gives the rows in `NAME.out`, and every `error_NAME.sql` the error in `error_NAME.err`, however
//! it is run. `SQL_FILE=word` runs the files whose name contains the word; `UPDATE_SNAPSHOTS=1` writes what is expected
//! anew, for people to read in the diff.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use savanna_streams::EngineOptions;
use savanna_streams::api::StreamError;
use savanna_streams::runtime::InvokerChoice;
use savanna_streams::runtime::invoker::FaultPlan;

use crate::session::Session;

/// Far beyond what any file needs; only a hang reaches it.
const FOREVER: Duration = Duration::from_secs(600);

/// One way of running a file.
#[derive(Clone, Copy, Debug)]
struct Way {
    parallelism: u16,
    /// Events per partition and epoch; 0 cuts epochs by time.
    epoch_events: u32,
    mode: Option<&'static str>,
    faults: bool,
}

impl Way {
    /// All that a file is run with. The first one's result is written when files are written anew.
    async fn all() -> Vec<Self> {
        let modes = if has_modes().await { vec![Some("serverless"), Some("provisioned")] } else { vec![None] };
        let mut ways = Vec::new();
        for mode in modes {
            for (parallelism, epoch_events, faults) in
                [(1, 0, false), (1, 1, false), (3, 0, false), (3, 1, false), (3, 2, true)]
            {
                ways.push(Self { parallelism, epoch_events, mode, faults });
            }
        }
        ways
    }

    fn settings(self) -> String {
        let Self { parallelism, epoch_events, mode, .. } = self;
        let mode = mode.map_or_else(String::new, |mode| format!("SET 'mode' = '{mode}';"));
        format!(
            "SET 'parallelism' = '{parallelism}'; SET 'group-size' = '{parallelism}'; \
             SET 'epoch-events' = '{epoch_events}'; {mode}"
        )
    }

    fn options(self) -> EngineOptions {
        let mut options = EngineOptions::default();
        if self.faults {
            options.runtime.invoker = InvokerChoice::Faulty(FaultPlan::everything(7));
            options.runtime.replay_timeout = Duration::from_millis(5);
            options.runtime.replay_limit = 100_000;
            options.runtime.backoff_sleep = |_| {};
        }
        options
    }
}

/// Whether queries can be run in one mode or another.
async fn has_modes() -> bool {
    let session = Session::open(EngineOptions::default()).await;
    let answer = session.run("SET 'mode' = 'provisioned'").await;
    session.close().await;
    !matches!(answer, Err(StreamError::Unknown { .. }))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql")
}

/// The tables that every file may use.
const TABLES: &str = include_str!("../sql/data/tables.ddl");

/// The SQL files whose name starts with `error_`, or the others, by name.
fn scripts(errors: bool) -> Vec<PathBuf> {
    let wanted = std::env::var("SQL_FILE").unwrap_or_default();
    let mut scripts: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| {
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        path.extension() == Some(OsStr::new("sql")) && stem.starts_with("error_") == errors && stem.contains(&wanted)
    });
    scripts.sort();
    scripts
}

/// Runs a file once. In its text, `${DATA}` is the folder of input files and `${OUT}` an empty one of this run.
async fn run(script: &Path, way: Way) -> Result<Vec<String>, StreamError> {
    let out = tempfile::tempdir().unwrap();
    let data = folder().join("data");
    let places = [("${DATA}", data.to_str().unwrap()), ("${OUT}", out.path().to_str().unwrap())];
    let mut text = format!("{TABLES}{}", fs::read_to_string(script).unwrap());
    for (name, place) in places {
        text = text.replace(name, place);
    }
    let session = Session::open(way.options()).await;
    session.run(&way.settings()).await?;
    let ran = tokio::time::timeout(FOREVER, session.run(&text)).await;
    session.close().await;
    ran.unwrap_or_else(|_| panic!("{}, run as {way:?}, does not end", script.display()))
}

/// Compares, or writes anew; tells what differs.
fn compare(expected: &Path, way: Way, first: bool, got: &str) -> Option<String> {
    if first && std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(expected, got).unwrap();
    }
    let wanted = fs::read_to_string(expected).unwrap_or_default();
    (wanted != got).then(|| format!("{}, run as {way:?}\nexpected\n{wanted}\ngot\n{got}", expected.display()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_gives_its_rows_however_it_is_run() {
    let mut differences = Vec::new();
    for script in scripts(false) {
        for (number, way) in Way::all().await.into_iter().enumerate() {
            let got = match run(&script, way).await {
                Ok(results) => results.join("\n"),
                Err(error) => format!("error {}: {error}\n", error.sqlstate()),
            };
            differences.extend(compare(&script.with_extension("out"), way, number == 0, &got));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_file_gives_its_error_however_it_is_run() {
    let mut differences = Vec::new();
    for script in scripts(true) {
        for (number, way) in Way::all().await.into_iter().enumerate() {
            let got = match run(&script, way).await {
                Ok(results) => format!("no error, but rows\n{}", results.join("\n")),
                Err(error) => format!("{}: {error}\n", error.sqlstate()),
            };
            let data = folder().join("data");
            let got = got.replace(data.to_str().unwrap(), "${DATA}");
            differences.extend(compare(&script.with_extension("err"), way, number == 0, &got));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
