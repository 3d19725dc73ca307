//! The face put together: router, bounds, and the loop that serves a listener.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use savanna_identity::Tls;
use savanna_streams_api::handle::{SessionId, SharedStreamHandle, StreamRequest};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::access::{Access, Credentials};
use crate::api::Kind;
use crate::facts::Facts;
use crate::guard::{guard, long, short};
use crate::metrics::Metrics;
use crate::sessions::Sessions;
use crate::{NodeView, Problem, api, connections};

/// Bounds of the face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// The largest request body, in bytes.
    pub max_body_bytes: usize,
    /// How long a request may take until the head of its answer.
    pub request_timeout: Duration,
    /// How many requests may be under way, and how many bodies on their way in.
    pub max_requests: usize,
    /// How many clients may be connected.
    pub max_connections: usize,
    /// How many sessions may be open.
    pub max_sessions: usize,
    /// How long a session may be idle.
    pub session_idle_timeout: Duration,
    /// Whether to answer only requests that name the loopback as their host.
    pub loopback_only: bool,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 1 << 20,
            request_timeout: Duration::from_secs(30),
            max_requests: 256,
            max_connections: 1024,
            max_sessions: 256,
            session_idle_timeout: Duration::from_secs(600),
            loopback_only: true,
        }
    }
}

/// What handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Face(Arc<FaceParts>);

#[derive(Debug)]
pub(crate) struct FaceParts {
    pub(crate) handle: SharedStreamHandle,
    pub(crate) view: Arc<dyn NodeView>,
    pub(crate) facts: Facts,
    pub(crate) limits: HttpLimits,
    pub(crate) access: Access,
    /// Places of requests whose body is on its way.
    pub(crate) arriving: Semaphore,
    /// Places of requests that are at work.
    pub(crate) working: Semaphore,
    pub(crate) sessions: Sessions,
    pub(crate) metrics: Arc<Metrics>,
}

impl Deref for Face {
    type Target = FaceParts;

    fn deref(&self) -> &FaceParts {
        &self.0
    }
}

/// The HTTP face of a node.
#[derive(Clone, Debug)]
pub struct HttpFace {
    face: Face,
    tls: Option<Tls>,
}

impl HttpFace {
    /// A face before an engine and a node, for whoever reaches it.
    pub fn new(handle: SharedStreamHandle, view: Arc<dyn NodeView>, limits: HttpLimits) -> Self {
        Self::guarded(Facts::new(handle, view), limits, Credentials::default(), None)
    }

    /// A face before a node that knows itself, for those who carry the credentials if there are any, over TLS if there is a configuration for it.
    pub fn guarded(facts: Facts, limits: HttpLimits, credentials: Credentials, tls: Option<Tls>) -> Self {
        let face = Face(Arc::new(FaceParts {
            handle: Arc::clone(facts.handle()),
            view: Arc::clone(facts.view()),
            metrics: Arc::clone(&facts.metrics),
            facts,
            limits,
            access: Access { loopback_only: limits.loopback_only, credentials },
            arriving: Semaphore::new(limits.max_requests),
            working: Semaphore::new(limits.max_requests),
            sessions: Sessions::new(limits.session_idle_timeout, limits.max_sessions),
        }));
        Self { face, tls }
    }

    /// Its routes.
    pub fn router(&self) -> Router {
        let face = &self.face;
        api::routes()
            .into_iter()
            .fold(Router::new(), |router, route| {
                let handler = match route.kind {
                    Kind::Health => route.handler,
                    Kind::Short => route.handler.layer(from_fn_with_state(face.clone(), short)),
                    Kind::Long => route.handler.layer(from_fn_with_state(face.clone(), long)),
                };
                router.route(route.path, handler)
            })
            .fallback(no_such_route)
            .method_not_allowed_fallback(no_such_method)
            .layer(DefaultBodyLimit::max(face.limits.max_body_bytes))
            .layer(from_fn_with_state(face.clone(), guard))
            .with_state(face.clone())
    }

    /// Serves until `shutdown` is ready and the requests under way are answered, then closes the sessions.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send + 'static) {
        let sweeper = tokio::spawn(sweep(self.face.clone()));
        let (router, connections_max) = (self.router(), self.face.limits.max_connections);
        connections::serve(listener, router, self.tls, connections_max, shutdown).await;
        sweeper.abort();
        for session in self.face.sessions.drain() {
            close(&self.face, session).await;
        }
    }
}

/// Closes sessions that nobody has used for long.
async fn sweep(face: Face) {
    let every = (face.sessions.idle_timeout() / 4).max(Duration::from_millis(10));
    loop {
        tokio::time::sleep(every).await;
        for session in face.sessions.expire(Instant::now()) {
            tracing::debug!(session = session.0, "closing an idle session");
            close(&face, session).await;
        }
    }
}

async fn close(face: &Face, session: SessionId) {
    if let Err(error) = face.handle.call(StreamRequest::CloseSession { session }).await {
        tracing::debug!(session = session.0, %error, "the session could not be closed");
    }
}

async fn no_such_route(uri: Uri) -> Problem {
    Problem::not_found(format!("there is no path {}; GET {} lists the paths", uri.path(), api::OPENAPI_PATH))
}

async fn no_such_method(method: Method, uri: Uri, route: Option<MatchedPath>) -> Problem {
    let takes = route.map_or_else(String::new, |route| api::methods_of(route.as_str()));
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method",
        "The method is not allowed here",
        format!("{} takes {takes}, but {method} came", uri.path()),
    )
}
