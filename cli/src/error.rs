//! What ends a command, and the exit codes.

use std::process::ExitCode;

use savanna_node::config::ConfigError;
use savanna_node::{Lost, NodeError};
use savanna_streams_api::handle::HandleError;

/// The exit codes of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Done = 0,
    /// A statement or query failed.
    Failed = 1,
    /// The command line or the configuration is wrong; clap uses the same number.
    Usage = 2,
    /// A node does not answer, could not start, or lost its data directory.
    Node = 3,
    /// Another process has the name of this node of a cluster: to start it again would be to take the name back.
    Replaced = 4,
    /// Ctrl-C ended it: 128 and the number of SIGINT, as shells do.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The command line asks for something that does not go together.
    #[error("{0}")]
    Usage(String),
    /// The node did not start or stop.
    #[error(transparent)]
    Node(Box<NodeError>),
    /// One of several nodes did not start or stop.
    #[error("{0}")]
    NotStarted(String),
    /// The node may no longer serve.
    #[error("{0}")]
    Lost(Lost),
    /// The engine's or the node's answer.
    #[error(transparent)]
    Handle(#[from] HandleError),
    /// No node answers at the URL.
    #[error("no node answers at {url}: {reason}{}", advice(reason))]
    NoNode {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
    /// The node refused the request.
    #[error("{0}")]
    Refused(String),
    /// A file, the terminal or the output failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The asynchronous runtime could not be made.
    #[error("the runtime could not start: {0}; check the limits on threads and open files (ulimit -a)")]
    Runtime(std::io::Error),
    /// It was told to the user already.
    #[error("reported")]
    Reported(Exit),
}

impl From<NodeError> for CliError {
    fn from(error: NodeError) -> Self {
        Self::Node(Box::new(error))
    }
}

/// What to do where the reason does not say so itself.
fn advice(reason: &str) -> &'static str {
    match reason.contains("; ") {
        true => "",
        false => "; start one with `savanna dev`, or give the address of another with --url",
    }
}

impl CliError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Node(error) if matches!(**error, NodeError::Config(_)) => Exit::Usage,
            Self::Config(_) | Self::Usage(_) => Exit::Usage,
            Self::Handle(HandleError::Stream(_)) | Self::Refused(_) | Self::Io { .. } => Exit::Failed,
            Self::Lost(Lost::Name(lost)) if lost.is_claimed => Exit::Replaced,
            Self::Node(_)
            | Self::Lost(_)
            | Self::NotStarted(_)
            | Self::Handle(_)
            | Self::NoNode { .. }
            | Self::Runtime(_) => Exit::Node,
            Self::Reported(exit) => *exit,
        }
    }
}
