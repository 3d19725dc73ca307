//! The streams engine, as a node and the command line run it.

use std::sync::Arc;

use savanna_streams::{EngineOptions, StreamEngine};

use crate::config::NodeConfig;
use crate::services::StreamsService;

/// An engine in this process, with the options of the configuration.
pub fn open(config: &NodeConfig) -> StreamsService {
    let mut options = EngineOptions::default();
    if let Some(parallelism) = config.streams_parallelism {
        options.runtime.source_partitions = parallelism;
    }
    if let Some(members) = config.streams_group_size {
        options.runtime.members = members;
    }
    let engine = StreamEngine::new(options);
    let handle = Arc::clone(&engine) as _;
    StreamsService { handle, stop: Box::new(move || Box::pin(async move { engine.shutdown().await })) }
}
