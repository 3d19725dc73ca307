//! `savanna sql`.

use std::io::{IsTerminal, Read};
use std::path::Path;

use savanna_node::Config;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Format, Sql};
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::sql::engine::Engine;
use crate::sql::on_functions;
use crate::sql::repl;
use crate::sql::shell::{Ended, Shell};

/// The largest script.
const SCRIPT_BYTES_MAX: u64 = 64 << 20;

pub(crate) async fn run(config: &Config, format: Format, sql: Sql) -> Result<Exit, CliError> {
    // A file that is not there is told before anything is started.
    let script = script(&sql)?;
    let engine = match &sql.url {
        Some(url) => Engine::remote(Client::new(Some(url), &sql.trust, config.node())?).await?,
        None => match sql.on.on {
            Some(host) => Engine::on_functions(config, on_functions::options(config, host, &sql.on)?).await?,
            None => Engine::embedded(config).await?,
        },
    };
    if let Some(limit) = &sql.memory_limit {
        engine.set("memory-limit", limit).await?;
    }
    let mut shell = Shell::new(engine, format);
    let ended = match script {
        Some(script) => {
            // Queries are stopped in order, so that what their sinks have is visible.
            let mut terminate = signal(SignalKind::terminate()).map_err(CliError::io("listening for signals"))?;
            tokio::select! {
                ended = run_script(&mut shell, &script) => ended?,
                _ = terminate.recv() => Ended::Interrupted,
            }
        }
        None => {
            let runtime = tokio::runtime::Handle::current();
            tokio::task::block_in_place(|| repl::run(&mut shell, &runtime))?;
            Ended::Done
        }
    };
    Ok(shell.close(ended).await?.exit())
}

async fn run_script(shell: &mut Shell, script: &Script) -> Result<Ended, CliError> {
    match shell.run(&script.text, script.file.as_deref()).await? {
        Ended::Done => shell.finish().await,
        ended => Ok(ended),
    }
}

struct Script {
    text: String,
    /// For messages; none for text of the command line.
    file: Option<String>,
}

/// The text to run, or none for the prompt.
fn script(sql: &Sql) -> Result<Option<Script>, CliError> {
    if !sql.command.is_empty() {
        return Ok(Some(Script { text: sql.command.join(";\n"), file: None }));
    }
    match &sql.file {
        Some(path) if path != Path::new("-") => {
            let name = path.display().to_string();
            let file = std::fs::File::open(path).map_err(CliError::io(format!("opening {name}")))?;
            Ok(Some(Script { text: read(file, &name)?, file: Some(name) }))
        }
        None if std::io::stdin().is_terminal() => Ok(None),
        _ => Ok(Some(Script { text: read(std::io::stdin(), "stdin")?, file: Some("stdin".to_owned()) })),
    }
}

fn read(input: impl Read, name: &str) -> Result<String, CliError> {
    let mut text = String::new();
    input.take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut text).map_err(CliError::io(format!("reading {name}")))?;
    if text.len() as u64 > SCRIPT_BYTES_MAX {
        return Err(CliError::Usage(format!("{name} is longer than {} MiB; split it", SCRIPT_BYTES_MAX >> 20)));
    }
    Ok(text)
}
