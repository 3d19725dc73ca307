//! `savanna dev`: a node on this machine, until Ctrl-C or until another process takes its data directory over.

use savanna_node::{Config, Node};
use tokio::signal::unix::{SignalKind, signal};

use super::status;
use crate::args::Format;
use crate::error::{CliError, Exit};
use crate::output;

pub(crate) async fn run(config: Config, format: Format) -> Result<Exit, CliError> {
    let directory = config.node().data_dir.display().to_string();
    let mut stop = Stop::listen()?;
    let starting = Node::start(config, move |waiting| {
        let within = waiting.at_most.as_secs_f64();
        match waiting.holder {
            Some(pid) => {
                eprintln!("process {pid} serves the data directory {directory}; taking over within {within:.1} s")
            }
            None => eprintln!(
                "{directory}/lease is missing or damaged, so that another process may serve the directory; taking it within {within:.1} s"
            ),
        }
    });
    let node = tokio::select! {
        node = starting => node?,
        () = stop.asked() => return Ok(Exit::Done),
    };
    match format {
        Format::Json => output::write_json(&node.status())?,
        Format::Table => {
            output::write(status::text(&node.status()).as_bytes())?;
            eprintln!("Ctrl-C stops it.");
        }
    }
    let lost = tokio::select! {
        () = stop.asked() => None,
        lost = node.lost() => Some(lost),
    };
    let Some(lost) = lost else {
        eprintln!("stopping; Ctrl-C again stops at once");
        return tokio::select! {
            stopped = node.shutdown() => stopped.map(|()| Exit::Done).map_err(CliError::from),
            () = stop.asked() => Err(CliError::Reported(Exit::Interrupted)),
        };
    };
    // What was taken over cannot be given up; that it fails is no news.
    if let Err(error) = node.shutdown().await {
        tracing::debug!(%error, "while leaving the data directory");
    }
    Err(CliError::Lost(lost))
}

/// Ctrl-C, or what a service manager sends.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn listen() -> Result<Self, CliError> {
        let listen = |kind| signal(kind).map_err(CliError::io("listening for signals"));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
