//! The streams engine, as a node and the command line run it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use savanna_epoch::NodeEpoch;
use savanna_ownership::guard::LeaseGuard;
use savanna_price::FunctionPrice;
use savanna_streams::connectors::{BuiltinConnectors, Roots};
use savanna_streams::{EngineOptions, HasItsPlace, StoreOptions, StreamEngine};
use savanna_streams_api::StreamError;
use savanna_streams_api::handle::{HandleError, StreamHandle, StreamReply, StreamRequest};
use savanna_streams_lambda::Lambda;
pub use savanna_streams_lambda::LambdaOptions;

use crate::config::NodeConfig;
use crate::data_dir;
use crate::functions;
use crate::services::StreamsService;

// What the project's binaries allocate with.
use mimalloc as _;

unsafe extern "C" {
    /// Gives the system what is free: in the pages of this thread, and in those that belong to none.
    safe fn mi_collect(force: bool);
}

/// An engine in this process, with the options of the configuration. Its tables use any files of the user's.
///
/// # Errors
/// The prices of functions cannot be had.
pub fn open(config: &NodeConfig) -> Result<StreamsService, StreamError> {
    Ok(service(StreamEngine::new(EngineOptions { price: price(config)?, ..options(config) })))
}

/// The same, with the stages of queries as functions of a host.
///
/// # Errors
/// The program of stages or the prices of functions cannot be read, or the host has no address.
pub fn open_on_functions(config: &NodeConfig, on: LambdaOptions) -> Result<StreamsService, StreamError> {
    let price = FunctionPrice { memory_mb: on.memory_mb, ..price(config)? };
    let mut options = EngineOptions { price, ..options(config) };
    options.runtime.cloud = Some(Arc::new(Lambda::new(on)?));
    Ok(service(StreamEngine::new(options)))
}

/// The engine of a node: whoever reaches a face uses files below the configured folders only.
pub(crate) fn open_in_node(config: &NodeConfig) -> StreamsService {
    service(StreamEngine::new(options_in_node(config)))
}

/// As [`open_in_node`], for a node that has its data directory alone, under this epoch: tables, views and queries are kept there. If
/// what is there cannot be read, the service answers with the reason alone, which is returned as well.
pub(crate) async fn open_kept(
    config: &NodeConfig,
    epoch: NodeEpoch,
    lease: LeaseGuard,
) -> (StreamsService, Option<String>) {
    let data = &config.data_dir;
    let kept = StoreOptions {
        directory: data.join(DIRECTORY),
        epoch,
        high_water: Some(data_dir::high_water(data, "streams")),
        may_commit: Some(HasItsPlace(Arc::new(move || lease.serving()))),
    };
    let options = options_in_node(config);
    let opened = tokio::task::spawn_blocking(move || StreamEngine::open(options, kept)).await;
    let reason = match opened {
        Ok(Ok(engine)) => return (service(engine), None),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    let refusing = Arc::new(Refusing { reason: reason.clone() });
    (StreamsService { handle: refusing, stop: Box::new(|| Box::pin(async {})) }, Some(reason))
}

/// What a node that joins a cluster says of queries that it had when it was alone: none goes on there.
pub(crate) fn warn_of_kept(config: &NodeConfig) {
    let catalog = config.data_dir.join(CATALOG);
    if catalog.exists() {
        tracing::warn!(
            catalog = %catalog.display(),
            "tables, views and queries of streams that are kept here are not used in a cluster: queries go on when the node is alone again"
        );
    }
}

/// The directory of streams in the data directory, and the journal in it.
const DIRECTORY: &str = "streams";
pub(crate) const CATALOG: &str = "streams/catalog";

/// Streams whose catalog cannot be read.
#[derive(Debug)]
struct Refusing {
    reason: String,
}

#[async_trait]
impl StreamHandle for Refusing {
    async fn call(&self, _: StreamRequest) -> Result<StreamReply, HandleError> {
        Err(HandleError::Unavailable(self.reason.clone()))
    }
}

fn options_in_node(config: &NodeConfig) -> EngineOptions {
    let roots = roots(config);
    let connectors = Arc::new(BuiltinConnectors::with_roots(roots.clone()));
    let price = price(config).unwrap_or_else(|error| {
        // Functions themselves, if they are served, do not start.
        tracing::warn!(%error, "EXPLAIN says what functions cost by the prices of AWS");
        FunctionPrice::default()
    });
    EngineOptions { connectors, roots, price, ..options(config) }
}

/// What functions cost, for what `EXPLAIN` and the benchmark say.
///
/// # Errors
/// The file with the prices cannot be read, or has none.
pub fn price(config: &NodeConfig) -> Result<FunctionPrice, StreamError> {
    let prices = functions::prices(config).map_err(|error| StreamError::invalid(error.to_string()))?;
    Ok(FunctionPrice { prices, ..FunctionPrice::default() })
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
    let is_url = |path: &PathBuf| path.to_str().is_some_and(|text| text.starts_with("s3://"));
    let absolute = |path: &PathBuf| match is_url(path) {
        true => path.clone(),
        false => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
    };
    let data = absolute(&config.data_dir);
    let mut allowed: Vec<PathBuf> = config.streams_files.iter().map(absolute).collect();
    allowed.push(data.join("files"));
    Roots::below(
        allowed,
        vec![data],
        "start the node with --files DIR or s3://BUCKET/FOLDER (streams.files) to allow another one",
    )
}

fn service(engine: Arc<StreamEngine>) -> StreamsService {
    let handle = Arc::clone(&engine) as _;
    StreamsService { handle, stop: Box::new(move || Box::pin(async move { engine.shutdown().await })) }
}
