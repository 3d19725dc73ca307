//! The streams engine, as a node and the command line run it.

use std::path::PathBuf;
use std::sync::Arc;

use savanna_streams::connectors::{BuiltinConnectors, Roots};
use savanna_streams::{EngineOptions, StreamEngine};

use crate::config::NodeConfig;
use crate::services::StreamsService;

// What the project's binaries allocate with.
use mimalloc as _;

unsafe extern "C" {
    /// Gives the system what is free: in the pages of this thread, and in those that belong to none.
    safe fn mi_collect(force: bool);
}

/// An engine in this process, with the options of the configuration. Its tables use any files of the user's.
pub fn open(config: &NodeConfig) -> StreamsService {
    service(options(config))
}

/// The engine of a node: whoever reaches a face uses files below the configured folders only.
pub(crate) fn open_in_node(config: &NodeConfig) -> StreamsService {
    let connectors = Arc::new(BuiltinConnectors::with_roots(roots(config)));
    service(EngineOptions { connectors, ..options(config) })
}

fn options(config: &NodeConfig) -> EngineOptions {
    let mut options = EngineOptions::default();
    options.runtime.give_back = || mi_collect(true);
    if let Some(parallelism) = config.streams_parallelism {
        options.runtime.source_partitions = parallelism;
    }
    if let Some(members) = config.streams_group_size {
        options.runtime.members = members;
    }
    options
}

/// The folders for files. The rest of the data directory is the node's own, wherever it lies.
fn roots(config: &NodeConfig) -> Roots {
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let data = absolute(&config.data_dir);
    let mut allowed: Vec<PathBuf> = config.streams_files.iter().map(absolute).collect();
    allowed.push(data.join("files"));
    Roots::below(allowed, vec![data], "start the node with --files DIR (streams.files) to allow another one")
}

fn service(options: EngineOptions) -> StreamsService {
    let engine = StreamEngine::new(options);
    let handle = Arc::clone(&engine) as _;
    StreamsService { handle, stop: Box::new(move || Box::pin(async move { engine.shutdown().await })) }
}
