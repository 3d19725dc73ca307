//! Whole nodes in this process, with a stub of an engine.

mod cluster;
mod damage;
mod docs;
mod doors;
mod keys_elsewhere;
mod restart;
mod services;
mod takeover;
mod two_processes;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use savanna_node::config::Sources;
use savanna_node::{Config, StreamsService};
use savanna_streams_api::handle::{HandleError, StreamHandle, StreamReply, StreamRequest};

/// An engine without queries.
#[derive(Debug, Default)]
pub(crate) struct StubEngine {
    pub(crate) stopped: AtomicBool,
}

#[async_trait]
impl StreamHandle for StubEngine {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        match request {
            StreamRequest::ListQueries => Ok(StreamReply::Queries { queries: Vec::new() }),
            _ => Err(HandleError::Unavailable("a stub".into())),
        }
    }
}

pub(crate) fn stub() -> (Arc<StubEngine>, StreamsService) {
    let engine = Arc::new(StubEngine::default());
    let stopping = Arc::clone(&engine);
    let stop = Box::new(move || -> futures::future::BoxFuture<'static, ()> {
        Box::pin(async move { stopping.stopped.store(true, Ordering::Relaxed) })
    });
    let handle = Arc::clone(&engine) as _;
    (engine, StreamsService { handle, stop })
}

/// A configuration for tests: any ports, a short lease.
pub(crate) fn config(directory: &Path, flags: &[(&str, &str)]) -> Config {
    let mut sources = Sources::none();
    let defaults = [
        ("pgwire.port", "0"),
        ("http.port", "0"),
        ("keys.port", "0"),
        ("keys.threads", "1"),
        ("tenants.port", "0"),
        ("tenants.threads", "1"),
        ("files.port", "0"),
        ("files.data_port", "0"),
        ("files.http_port", "0"),
        ("files.threads", "1"),
        ("lease.ttl", "600ms"),
        ("lease.margin", "100ms"),
        ("shutdown.timeout", "2s"),
    ];
    for (key, value) in defaults.iter().chain(flags) {
        sources = sources.flag(key, value, "--test");
    }
    Config::load(&sources.flag("data_dir", directory.to_str().unwrap(), "--data-dir")).unwrap()
}
