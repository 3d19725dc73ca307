//! Lambda's Runtime API, at a loopback port for each instance.
//!
//! Whoever connects there is not trusted: it may be anything that a zip has. It gets the instance's own work, and can answer that alone.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use savanna_functions::core::{InstanceId, Outcome};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use crate::ANSWER_MAX;
use crate::functions::Functions;

const PREFIX: &str = "/2018-06-01/runtime/";
/// Connections of one instance.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a description of an error.
const ERROR_MAX: usize = 256 << 10;

type Answer = Response<Full<Bytes>>;

/// What an instance works on, as its Runtime API sees it.
pub trait Work: Clone + Send + Sync + 'static {
    /// It asks for work; nothing if it may not.
    fn next(&self) -> Option<oneshot::Receiver<Delivery>>;

    /// Whether it works on a request.
    fn works_on(&self, request: &str) -> bool;

    /// It has answered. Whether that was the request it works on.
    fn answered(&self, request: &str, outcome: Outcome, said: Bytes) -> bool;

    /// It cannot be made ready.
    fn init_failed(&self, said: Bytes);
}

/// Work as an instance gets it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The request: a UUID.
    pub request: String,
    /// What its client says of itself.
    pub client_context: Option<String>,
    /// The functions on the way, as they are handed on.
    pub lineage: String,
    /// What the function gets.
    pub payload: Bytes,
    /// Milliseconds since 1970.
    pub deadline: u64,
    /// The function as it was asked for.
    pub arn: String,
}

/// The work of an instance of a host.
#[derive(Clone)]
pub(crate) struct InstanceWork {
    pub(crate) functions: Functions,
    pub(crate) instance: InstanceId,
}

impl Work for InstanceWork {
    fn next(&self) -> Option<oneshot::Receiver<Delivery>> {
        self.functions.next(self.instance)
    }

    fn works_on(&self, request: &str) -> bool {
        self.functions.works_on(self.instance, request)
    }

    fn answered(&self, request: &str, outcome: Outcome, said: Bytes) -> bool {
        self.functions.answered(self.instance, request, outcome, said)
    }

    fn init_failed(&self, said: Bytes) {
        self.functions.init_failed(self.instance, said);
    }
}

/// Serves an instance until it is aborted.
pub(crate) async fn serve(work: InstanceWork, listener: TcpListener) {
    // One body at a time is taken: it may be megabytes.
    let bodies = Arc::new(Semaphore::new(1));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "an instance of a function could not connect");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Or the head of an answer waits 40 ms for its body.
        let _ = stream.set_nodelay(true);
        let (work, bodies) = (work.clone(), Arc::clone(&bodies));
        connections.spawn(async move {
            serve_instance(work, bodies, stream).await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection of an instance, whose bodies are taken one at a time, until it goes.
pub async fn serve_instance<W, S>(work: W, bodies: Arc<Semaphore>, stream: S)
where
    W: Work,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |request| {
        let (work, bodies) = (work.clone(), Arc::clone(&bodies));
        async move { Ok::<_, Infallible>(answer(&work, &bodies, request).await) }
    });
    // What an instance gets wrong ends its connection, and is its own loss.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(work: &impl Work, bodies: &Semaphore, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.strip_prefix(PREFIX).unwrap_or_default().split('/').collect();
    if let ["invocation", of, "response" | "error"] = parts.as_slice()
        && !work.works_on(of)
    {
        return accepted(false);
    }
    let _one = if request.method() == Method::POST { bodies.acquire().await.ok() } else { None };
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["invocation", "next"]) => next(work).await,
        (&Method::POST, ["invocation", of, "response"]) => respond(work, of, request.into_body()).await,
        (&Method::POST, ["invocation", of, "error"]) => match read(request.into_body(), ERROR_MAX).await {
            Ok(said) => accepted(work.answered(of, Outcome::Failed, said)),
            Err(refused) => refused,
        },
        (&Method::POST, ["init", "error"]) => match read(request.into_body(), ERROR_MAX).await {
            Ok(said) => {
                work.init_failed(said);
                accepted(true)
            }
            Err(refused) => refused,
        },
        _ => error(StatusCode::NOT_FOUND, "UnknownPath", "there is no such path in the Runtime API of 2018-06-01"),
    }
}

/// Gives the instance its next work, when there is some.
async fn next(work: &impl Work) -> Answer {
    let busy = || {
        error(
            StatusCode::FORBIDDEN,
            "InvalidState",
            "the invocation before has no answer yet, or the instance is ending",
        )
    };
    let Some(delivery) = work.next() else { return busy() };
    let Ok(delivery) = delivery.await else { return busy() };
    let Delivery { request, client_context, lineage, payload, deadline, arn } = delivery;
    let root = request.replace('-', "");
    let (time, number) = root.split_at_checked(8).unwrap_or_default();
    let trace = format!("Root=1-{time}-{number};Sampled=0;{lineage}");
    let mut answer = Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .header("Lambda-Runtime-Aws-Request-Id", &request)
        .header("Lambda-Runtime-Deadline-Ms", deadline)
        .header("Lambda-Runtime-Invoked-Function-Arn", arn)
        .header("Lambda-Runtime-Trace-Id", trace);
    if let Some(context) = client_context.as_deref().and_then(|context| HeaderValue::from_str(context).ok()) {
        answer = answer.header("Lambda-Runtime-Client-Context", context);
    }
    answer.body(Full::new(payload)).unwrap_or_else(|_| busy())
}

async fn respond(work: &impl Work, of: &str, body: Incoming) -> Answer {
    match Limited::new(body, ANSWER_MAX).collect().await {
        Ok(said) => accepted(work.answered(of, Outcome::Success, said.to_bytes())),
        Err(failed) if failed.is::<LengthLimitError>() => {
            let message = format!("Response payload size exceeded maximum allowed payload size ({ANSWER_MAX} bytes).");
            let said = json!({ "errorMessage": message, "errorType": "Function.ResponseSizeTooLarge" }).to_string();
            work.answered(of, Outcome::Failed, Bytes::from(said));
            error(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &message)
        }
        Err(failed) => error(StatusCode::BAD_REQUEST, "InvalidRequest", &failed.to_string()),
    }
}

async fn read(body: Incoming, max: usize) -> Result<Bytes, Answer> {
    let read = Limited::new(body, max).collect().await;
    read.map(http_body_util::Collected::to_bytes)
        .map_err(|failed| error(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &failed.to_string()))
}

fn accepted(is_current: bool) -> Answer {
    if !is_current {
        return error(
            StatusCode::BAD_REQUEST,
            "InvalidRequestID",
            "this is not the invocation that the instance works on",
        );
    }
    let mut answer = Response::new(Full::new(Bytes::from_static(b"{\"status\":\"OK\"}\n")));
    *answer.status_mut() = StatusCode::ACCEPTED;
    answer
}

fn error(status: StatusCode, kind: &str, message: &str) -> Answer {
    let body = json!({ "errorType": kind, "errorMessage": message }).to_string();
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
