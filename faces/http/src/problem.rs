//! Errors as RFC 9457 problems.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use savanna_streams_api::handle::HandleError;
use savanna_streams_api::{Position, StreamError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of problems.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// What went wrong, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind, stable: `urn:savanna:problem:<kind>`.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "urn:savanna:problem:syntax")]
    pub kind: Box<str>,
    /// The kind in words.
    #[schema(value_type = String)]
    pub title: Box<str>,
    /// The HTTP status.
    pub status: u16,
    /// What was expected, what came, what to do.
    pub detail: String,
    /// The SQLSTATE that PostgreSQL clients would see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub sqlstate: Option<Box<str>>,
    /// Where in the statement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<TextPosition>,
    /// The engine's own error, for programs that know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub cause: Option<Box<serde_json::Value>>,
    /// Milliseconds after which to ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A place in a statement's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextPosition {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl From<Position> for TextPosition {
    fn from(position: Position) -> Self {
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: narrow(position.line), column: narrow(position.column) }
    }
}

impl Problem {
    /// A problem of the request itself.
    pub fn new(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:savanna:problem:{kind}").into(),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            sqlstate: None,
            position: None,
            cause: None,
            retry_after_ms: None,
        }
    }

    /// A request that is not what the API takes.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "The request is malformed", detail)
    }

    /// Something that is not there.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "No such resource", detail)
    }

    /// Another node, that was to be asked, does not answer.
    pub fn silent_node(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "node-silent", "The node does not answer", detail)
    }

    /// Another node, that was asked, does not do it.
    pub fn refusing_node(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "node-refuses", "The node refuses", detail)
    }

    /// An error that PostgreSQL clients would see.
    pub fn of_sqlstate(sqlstate: &str, detail: impl Into<String>) -> Self {
        let (status, kind, title) = match sqlstate {
            "3D000" => (StatusCode::NOT_FOUND, "unknown-name", "No such name"),
            "42P04" => (StatusCode::CONFLICT, "exists", "The name is taken"),
            "55000" => (StatusCode::CONFLICT, "not-now", "It cannot be done now"),
            "55006" => (StatusCode::CONFLICT, "in-use", "It is in use"),
            "22023" | "22P04" | "42602" => (StatusCode::BAD_REQUEST, "invalid", "The request cannot be done"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The service failed"),
        };
        Self { sqlstate: Some(sqlstate.into()), ..Self::new(status, kind, title, detail) }
    }

    /// A reply of the engine that does not fit its request.
    pub(crate) fn unexpected_reply(request: &str) -> Self {
        let detail = format!("the engine's reply does not fit {request}; do face and engine run the same version?");
        Self::new(StatusCode::BAD_GATEWAY, "unexpected-reply", "The engine gave an unexpected answer", detail)
    }

    /// The engine's error, if it was one.
    pub fn into_stream_error(self) -> Option<StreamError> {
        match self.into_handle_error() {
            HandleError::Stream(error) => Some(error),
            _ => None,
        }
    }

    /// The error as a handle in this process would have given it. A problem without a cause is one of the request.
    pub fn into_handle_error(self) -> HandleError {
        let cause = self.cause.and_then(|cause| serde_json::from_value(*cause).ok());
        cause.unwrap_or_else(|| {
            if self.status >= 500 {
                HandleError::Unavailable(self.detail)
            } else {
                HandleError::Stream(StreamError::invalid(self.detail))
            }
        })
    }
}

impl From<StreamError> for Problem {
    fn from(error: StreamError) -> Self {
        HandleError::Stream(error).into()
    }
}

impl From<HandleError> for Problem {
    fn from(error: HandleError) -> Self {
        let (status, kind, title) = classify(&error);
        let mut problem = Self::new(status, kind, title, error.to_string());
        if let HandleError::Stream(error) = &error {
            problem.sqlstate = Some(error.sqlstate().into());
            problem.position = error.position().map(TextPosition::from);
        }
        if let HandleError::Frozen { retry_after_ms } = &error {
            problem.retry_after_ms = Some(*retry_after_ms);
        }
        problem.cause = serde_json::to_value(&error).ok().map(Box::new);
        problem
    }
}

fn classify(error: &HandleError) -> (StatusCode, &'static str, &'static str) {
    let stream = match error {
        HandleError::Stream(error) => error,
        HandleError::Moved { .. } => {
            return (StatusCode::MISDIRECTED_REQUEST, "moved", "Another node serves this");
        }
        HandleError::Frozen { .. } => {
            return (StatusCode::SERVICE_UNAVAILABLE, "frozen", "It is being moved");
        }
        HandleError::Unavailable(_) => {
            return (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The streams service does not answer");
        }
    };
    match stream {
        StreamError::Syntax { .. } => (StatusCode::BAD_REQUEST, "syntax", "The text is not a statement"),
        StreamError::Unsupported { .. } => (StatusCode::BAD_REQUEST, "unsupported", "Savanna does not support this"),
        StreamError::Unknown { .. } => (StatusCode::NOT_FOUND, "unknown-name", "No such name"),
        StreamError::Exists { .. } => (StatusCode::CONFLICT, "exists", "The name is taken"),
        StreamError::Invalid { .. } => (StatusCode::BAD_REQUEST, "invalid", "The statement is invalid"),
        StreamError::Data { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "data", "A row cannot be processed"),
        StreamError::Io { .. } => (StatusCode::BAD_GATEWAY, "io", "A file, disk or network failed"),
        StreamError::Denied { .. } => (StatusCode::FORBIDDEN, "denied", "This is not allowed"),
        StreamError::Cancelled => (StatusCode::CONFLICT, "cancelled", "The query was cancelled"),
        StreamError::TimedOut { .. } => (StatusCode::CONFLICT, "timed-out", "The statement took too long"),
        StreamError::Limit { .. } => (StatusCode::SERVICE_UNAVAILABLE, "limit", "A limit is reached"),
        StreamError::TooComplex { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "too-complex", "The statement is too long or nested too deeply")
        }
        StreamError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "A bug in Savanna"),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after_ms.map(|ms| HeaderValue::from(ms.div_ceil(1000)));
        // A problem is strings and numbers; serde_json cannot fail on these.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_error_keeps_its_sqlstate_and_position_and_comes_back_whole() {
        let error = StreamError::Unknown {
            kind: "column".into(),
            name: "prise".into(),
            position: Some(Position { line: 1, column: 8 }),
            hint: "did you mean price?".into(),
        };
        let problem = Problem::from(error.clone());
        assert_eq!(problem.status, 404);
        assert_eq!(problem.sqlstate.as_deref(), Some("42703"));
        assert_eq!(problem.position, Some(TextPosition { line: 1, column: 8 }));
        let sent = serde_json::to_string(&problem).unwrap();
        let received: Problem = serde_json::from_str(&sent).unwrap();
        assert_eq!(received.into_stream_error(), Some(error));
    }

    #[test]
    fn a_frozen_shard_says_when_to_ask_again() {
        let response = Problem::from(HandleError::Frozen { retry_after_ms: 1500 }).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    }
}
