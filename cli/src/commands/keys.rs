//! `savanna keys`.

mod connection;
mod export;
mod import;
mod replica;
mod target;

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Url;
use savanna_keys_rdb::FileReader;
use savanna_node::Config;
use serde_json::json;

use self::connection::{Connection, plain};
use self::replica::Master;
use self::target::Target;
use crate::args::{Export, Format, Import, KeysCommand};
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn run(config: &Config, format: Format, command: KeysCommand) -> Result<Exit, CliError> {
    let server = |url: &Option<String>| match url {
        Some(url) => parse(url),
        None => parse(&format!("redis://127.0.0.1:{}", config.node().keys_port)),
    };
    let import = match command {
        KeysCommand::Import(import) => import,
        KeysCommand::Export(export) => {
            let from = server(&export.from)?;
            let work = tokio::task::spawn_blocking(move || write_down(&export, &from, format));
            return work.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        }
    };
    let target = server(&import.to)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    if import.follow {
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stops.store(true, Ordering::Relaxed);
            }
        });
    }
    // It waits for sockets and files, each in its turn.
    let work = tokio::task::spawn_blocking(move || bring(&import, &target, &stop));
    let done = work.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    done.show(format)
}

fn write_down(export: &Export, from: &Url, format: Format) -> Result<Exit, CliError> {
    let mut connection = Connection::open(from, export.ca_file.as_deref())?;
    let (counts, file, from) = (export::all_to(&export.file, &mut connection)?, export.file.display(), plain(from));
    let export::Counts { keys, libraries, bytes } = counts;
    if format == Format::Json {
        output::write_json(
            &json!({ "from": from, "file": file.to_string(), "keys": keys, "libraries": libraries, "bytes": bytes }),
        )?;
    } else {
        output::write(
            format!("{keys} keys and {libraries} libraries of {from} are in {file}, {bytes} bytes\n").as_bytes(),
        )?;
    }
    Ok(Exit::Done)
}

fn parse(text: &str) -> Result<Url, CliError> {
    Url::parse(text).ok().filter(|url| ["redis", "rediss"].contains(&url.scheme()) && url.has_host()).ok_or_else(|| {
        CliError::Usage(format!("expected redis://[[USER]:PASSWORD@]HOST[:PORT] or rediss://.., but `{text}` came"))
    })
}

/// What was done.
struct Done {
    from: String,
    counts: import::Counts,
    refused: u64,
    /// Commands that came after the keys, and how many bytes of the Redis' history are missing.
    followed: Option<(u64, u64)>,
}

fn bring(import: &Import, to: &Url, stop: &AtomicBool) -> Result<Done, CliError> {
    let is_live = import.source.contains("://");
    if import.follow && !is_live {
        return Err(CliError::Usage(format!(
            "--follow is for a Redis that goes on, redis://HOST[:PORT]; `{}` is a file",
            import.source
        )));
    }
    let mut target = Target::new(Connection::open(to, import.ca_file.as_deref())?);
    let there = target.keys()?;
    if there > 0 && !import.replace {
        return Err(CliError::Usage(format!(
            "{} has {there} keys already, and those of {} would be among them: with --replace the keys that both have are \
             replaced, and the others stay",
            plain(to),
            import.source
        )));
    }
    if !is_live {
        let counts = of_file(&import.source, &mut target, import.replace)?;
        return Ok(Done { from: import.source.clone(), counts, refused: target.refused(), followed: None });
    }
    let url = parse(&import.source)?;
    let mut master = Master::connect(&url, import.ca_file.as_deref())?;
    let counts = master.copy(&mut target, import.replace)?;
    let followed = if import.follow {
        eprintln!(
            "{} keys are there, and what is written to {} from now on comes as well.\nTo change over: stop those who write \
             there, press Ctrl-C here, and send them to {}.",
            counts.keys,
            plain(&url),
            plain(to)
        );
        Some(master.follow(&mut target, stop)?)
    } else {
        None
    };
    Ok(Done { from: plain(&url), counts, refused: target.refused(), followed })
}

fn of_file(path: &str, target: &mut Target, replaces: bool) -> Result<import::Counts, CliError> {
    const READ_BYTES: usize = 1 << 20;
    let failed = || CliError::io(format!("opening {path}"));
    let file = File::open(path).map_err(failed())?;
    let all = file.metadata().map_err(failed())?.len();
    let mut file =
        FileReader::new(BufReader::with_capacity(READ_BYTES, file)).map_err(|error| import::unread(&error))?;
    import::all_of(&mut file, Some(all), target, replaces)
}

impl Done {
    fn show(&self, format: Format) -> Result<Exit, CliError> {
        let Self { from, counts, refused, followed } = self;
        let missing = followed.map_or(0, |(_, missing)| missing);
        if format == Format::Json {
            output::write_json(&json!({
                "from": from, "keys": counts.keys, "libraries": counts.libraries, "refused": refused,
                "commands": followed.map(|(commands, _)| commands), "missing_bytes": missing,
            }))?;
        } else {
            let mut text = format!("{} keys of {from} were read, {refused} requests were refused", counts.keys);
            if let Some((commands, _)) = followed {
                text += &format!("; {commands} commands came after them");
            }
            output::write(format!("{text}\n").as_bytes())?;
        }
        if missing > 0 {
            return Err(CliError::Refused(format!(
                "the last {missing} bytes that {from} wrote are not here: somebody still writes there; begin again with --replace"
            )));
        }
        Ok(if *refused == 0 { Exit::Done } else { Exit::Failed })
    }
}
