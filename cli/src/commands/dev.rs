//! `savanna dev`: a node on this machine, until Ctrl-C or until another process takes its data directory over.

use savanna_node::{Config, Join, Node};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

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
    serve(node, format, stop).await
}

/// Runs a node of a cluster.
pub(crate) async fn join(
    config: Config,
    join: &Join,
    format: Format,
    stops_with_stdin: bool,
) -> Result<Exit, CliError> {
    let mut stop = Stop::listen()?;
    if stops_with_stdin {
        stop.watch_stdin()?;
    }
    let node = tokio::select! {
        node = Node::join(config, join) => node?,
        () = stop.asked() => return Ok(Exit::Done),
    };
    serve(node, format, stop).await
}

/// Runs a node that was started, until somebody stops it or it may no longer serve.
async fn serve(node: Node, format: Format, mut stop: Stop) -> Result<Exit, CliError> {
    match format {
        Format::Json => output::write_json(&node.status())?,
        Format::Table => {
            output::write(status::text(&node.status()).as_bytes())?;
            eprintln!("Ctrl-C stops it.");
        }
    }
    let lost = tokio::select! {
        () = stop.asked() => None,
        () = node.asked_to_end() => None,
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

/// Ctrl-C, what a service manager sends, or the end of who has started this.
pub(crate) struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// Closed when standard input ends.
    stdin: Option<oneshot::Receiver<()>>,
}

impl Stop {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = |kind| signal(kind).map_err(CliError::io("listening for signals"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            stdin: None,
        })
    }

    /// The end of standard input counts, too: it comes when the process at its other end is gone.
    fn watch_stdin(&mut self) -> Result<(), CliError> {
        let (open, closed) = oneshot::channel();
        self.stdin = Some(closed);
        let wait = move || {
            let _open: oneshot::Sender<()> = open;
            // What comes is nothing to this; that it cannot be read is an end, too.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        };
        let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(wait);
        thread.map(drop).map_err(CliError::io("starting a thread that reads standard input"))
    }

    /// Ready each time when somebody asks.
    pub(crate) async fn asked(&mut self) {
        let stdin = &mut self.stdin;
        let closed = async {
            match stdin {
                Some(stdin) => drop(stdin.await),
                None => std::future::pending().await,
            }
            *stdin = None;
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = closed => {}
        }
    }
}
