//! What requests pass before their handler: host check, bounds, metrics.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Problem;
use crate::server::Face;

pub(crate) async fn guard(State(face): State<Face>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().as_str().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| "none".to_owned(), |m| m.as_str().to_owned());
    let response = bounded(&face, request, next).await;
    face.metrics.answered(&method, &route, response.status().as_u16(), started.elapsed());
    response
}

async fn bounded(face: &Face, request: Request, next: Next) -> Response {
    if face.limits.loopback_only && !names_loopback(request.headers()) {
        return Problem::new(
            StatusCode::FORBIDDEN,
            "host",
            "The host is not this one",
            "expected a Host of localhost or 127.0.0.1, because this node listens on the loopback and trusts it",
        )
        .into_response();
    }
    // The permit is given back when the head of the answer is there; a streaming body is bounded by its session's cursors.
    let Ok(_permit) = face.permits.try_acquire() else {
        face.metrics.refused();
        let mut problem = Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "Too many requests",
            format!("{} requests are under way, which is the most; ask again", face.limits.max_requests),
        );
        problem.retry_after_ms = Some(1000);
        return problem.into_response();
    };
    next.run(request).await
}

/// Ends a request that takes too long until the head of its answer.
pub(crate) async fn in_time(State(face): State<Face>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(face.limits.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "No answer in time",
            format!("no answer within {:?}; ask again, or raise http.request_timeout", face.limits.request_timeout),
        )
        .into_response(),
    }
}

/// A page of a foreign site that a browser on this machine was made to resolve to the loopback sends its own name.
fn names_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_pass() {
        let passes = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            names_loopback(&headers)
        };
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "127.0.0.2"] {
            assert!(passes(host), "{host}");
        }
        for host in ["evil.example", "evil.example:8080", "10.0.0.1:8080", "localhost.evil.example", ""] {
            assert!(!passes(host), "{host}");
        }
    }
}
