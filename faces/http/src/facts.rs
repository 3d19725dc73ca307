//! What a node tells of itself: to its own clients, and to other nodes for theirs.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use savanna_streams_api::handle::{SharedStreamHandle, StreamReply, StreamRequest};
use serde::{Deserialize, Serialize};

use crate::metrics::{Metrics, OPENMETRICS};
use crate::types::Settings;
use crate::{NodeView, Problem};

/// How long the engine is waited for that says which queries there are: whoever scrapes does not wait for long.
const QUERIES_TIME: Duration = Duration::from_secs(1);

/// What a node is asked for. Nodes say it to each other: what there is keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The node, its services, its lease.
    Status,
    /// Its settings, those that are secret hidden.
    Settings,
    /// Its metrics.
    Metrics,
}

impl Fact {
    /// In words, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Settings => "settings",
            Self::Metrics => "metrics",
        }
    }

    /// The media type in which it is told.
    const fn media_type(self) -> &'static str {
        match self {
            Self::Status | Self::Settings => "application/json",
            Self::Metrics => OPENMETRICS,
        }
    }

    /// An answer with what a node has told.
    pub(crate) fn answer(self, told: String) -> Response {
        ([(header::CONTENT_TYPE, self.media_type())], told).into_response()
    }
}

/// Who asks a node through another one. Nodes say it to each other: what there is keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// Whoever reaches that node, which asks nobody who he is.
    Anybody,
    /// Somebody who has shown it a token, or a name and a password.
    Known,
}

/// What a node knows of itself. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Facts {
    handle: SharedStreamHandle,
    view: Arc<dyn NodeView>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Facts {
    /// Of a node with this engine of streams.
    pub fn new(handle: SharedStreamHandle, view: Arc<dyn NodeView>) -> Self {
        Self { handle, view, metrics: Arc::new(Metrics::new()) }
    }

    /// The engine of streams.
    pub(crate) const fn handle(&self) -> &SharedStreamHandle {
        &self.handle
    }

    /// The node.
    pub(crate) const fn view(&self) -> &Arc<dyn NodeView> {
        &self.view
    }

    /// What it is asked for, as the control API writes it.
    ///
    /// # Errors
    /// It cannot be written, which is a bug.
    pub async fn tell(&self, fact: Fact) -> Result<String, Problem> {
        match fact {
            Fact::Status => json(fact, &self.view.status()),
            Fact::Settings => json(fact, &Settings { settings: self.view.settings() }),
            Fact::Metrics => self.metrics().await,
        }
    }

    async fn metrics(&self) -> Result<String, Problem> {
        // A node whose engine does not answer still tells the rest; its `service_up` says which service is missing.
        let asked = tokio::time::timeout(QUERIES_TIME, self.handle.call(StreamRequest::ListQueries)).await;
        let queries = match asked {
            Ok(Ok(StreamReply::Queries { queries })) => Some(queries),
            Ok(_) | Err(_) => None,
        };
        let (status, figures) = (self.view.status(), self.view.figures());
        let written = self.metrics.encode(&status, &figures, queries.as_deref());
        written.map_err(|error| unwritten(Fact::Metrics, &error))
    }
}

fn json(fact: Fact, value: &impl Serialize) -> Result<String, Problem> {
    serde_json::to_string(value).map_err(|error| unwritten(fact, &error))
}

fn unwritten(fact: Fact, error: &dyn std::error::Error) -> Problem {
    let detail = format!("the {} could not be written: {error}; please report it", fact.name());
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "A bug in Savanna", detail)
}

/// Nodes of a cluster, wherever they are.
pub type SharedNodes = Arc<dyn NodesHandle>;

/// What nodes of a cluster can be asked, and told.
#[async_trait]
pub trait NodesHandle: Debug + Send + Sync {
    /// What a node that is not this one tells of itself, as its own control API writes it.
    async fn tell(&self, node: &str, fact: Fact, asker: Asker) -> Result<String, Problem>;

    /// Says that a node, this or another one, gets nothing new, or that it gets something again.
    async fn drain(&self, node: &str, is_drained: bool) -> Result<(), Problem>;
}
