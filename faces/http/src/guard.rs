//! What requests pass before their handler: who may ask, bounds, metrics.
//!
//! ```text
//!   guard: host, origin, credentials ─► of health: answered, however busy the node is
//!                              └► others: the body arrives, in time ─► a place among those at work ─► the handler, in time
//! ```

use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header::WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Problem;
use crate::api;
use crate::server::Face;

/// A body that has not come by then, of a request that is not long by nature, does not come.
const BODY_TIME: Duration = Duration::from_secs(10);

pub(crate) async fn guard(State(face): State<Face>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().as_str().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| "none".to_owned(), |m| m.as_str().to_owned());
    let response = match face.access.check(request.method(), request.headers(), api::is_health(&route)) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            let mut response = problem.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                for challenge in face.access.credentials.challenges() {
                    response.headers_mut().append(WWW_AUTHENTICATE, challenge);
                }
            }
            response
        }
    };
    face.metrics.answered(&method, &route, response.status().as_u16(), started.elapsed());
    response
}

/// A request that takes as long as what the client sends: it has a place among those at work.
pub(crate) async fn long(State(face): State<Face>, request: Request, next: Next) -> Response {
    match place(&face, &face.working) {
        Ok(_place) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// A request whose body is small, and whose answer begins in time. Who is slow to send takes no place of those at work.
pub(crate) async fn short(State(face): State<Face>, request: Request, next: Next) -> Response {
    match answer(&face, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn answer(face: &Face, request: Request, next: Next) -> Result<Response, Box<Problem>> {
    let request = match request.body().is_end_stream() {
        true => request,
        false => arrived(face, request).await?,
    };
    // The place is given back when the head of the answer is there; a streaming body is bounded by its session's cursors.
    let _place = place(face, &face.working)?;
    let time = face.limits.request_timeout;
    tokio::time::timeout(time, next.run(request)).await.map_err(|_| {
        Box::new(Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "No answer in time",
            format!("no answer within {time:?}; try again, or raise http.request_timeout"),
        ))
    })
}

/// The request with all of its body.
async fn arrived(face: &Face, request: Request) -> Result<Request, Box<Problem>> {
    let _place = place(face, &face.arriving)?;
    let (head, body) = request.into_parts();
    let time = BODY_TIME.min(face.limits.request_timeout);
    match tokio::time::timeout(time, to_bytes(body, face.limits.max_body_bytes)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, Body::from(bytes))),
        Ok(Err(error)) if is_too_long(&error) => Err(Box::new(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "The body is too large",
            format!("expected at most {} bytes; send less, or raise http.max_body", face.limits.max_body_bytes),
        ))),
        Ok(Err(error)) => Err(Box::new(Problem::bad_request(format!("the body did not arrive: {error}")))),
        Err(_) => Err(Box::new(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "slow",
            "The body did not come in time",
            format!("expected the whole body within {time:?}, but it did not come; send it without pauses"),
        ))),
    }
}

/// Whether a body was refused for its length; the reason is inside of the error.
fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

fn place<'a>(face: &'a Face, places: &'a Semaphore) -> Result<SemaphorePermit<'a>, Box<Problem>> {
    places.try_acquire().map_err(|_| {
        face.metrics.refused();
        let mut problem = Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "Too many requests",
            format!("{} requests are being answered, which is the limit; try again", face.limits.max_requests),
        );
        problem.retry_after_ms = Some(1000);
        Box::new(problem)
    })
}
