//! What leaves.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use savanna_functions_host::Refusal;
use serde_json::{Value, json};

/// An answer.
pub(crate) type Answer = Response<Full<Bytes>>;

/// An answer of bytes.
pub(crate) fn bytes(status: u16, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

/// An answer of JSON.
pub(crate) fn json(status: u16, body: &Value) -> Answer {
    let mut answer = bytes(status, body.to_string());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// An answer without a body.
pub(crate) fn empty(status: u16) -> Answer {
    bytes(status, Bytes::new())
}

/// A refusal, in Lambda's form.
pub(crate) fn refusal(refusal: &Refusal) -> Answer {
    let kind = refusal.kind;
    let by = if kind.status() >= 500 { "Service" } else { "User" };
    let mut body = json!({ "Type": by, "Message": refusal.message, "message": refusal.message });
    if let Some(reason) = kind.reason() {
        body["Reason"] = json!(reason);
    }
    let mut answer = json(kind.status(), &body);
    let headers = answer.headers_mut();
    headers.insert("x-amzn-ErrorType", HeaderValue::from_static(kind.code()));
    if kind.status() == 429 {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}
