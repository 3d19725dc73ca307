//! What leaves.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use savanna_files_host::{Class, FilesError, Unanswered};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::exception;

/// An answer.
pub(crate) type Answer = Response<Content>;

/// A client that takes nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nobody may be told anything more: the connection ends.
#[derive(Debug, thiserror::Error)]
#[error("the connection ends without the rest of an answer")]
pub(crate) struct Cut;

/// Why there is no answer yet.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is refused.
    Refused(FilesError),
    /// Nobody may be told anything.
    Gone,
}

impl From<FilesError> for Refusal {
    fn from(error: FilesError) -> Self {
        Self::Refused(error)
    }
}

impl From<Unanswered> for Refusal {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Refused(error) => Self::Refused(error),
            Unanswered::Gone => Self::Gone,
        }
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// All of it.
    Whole(Bytes),
    /// What comes, of so many bytes if that is known.
    Parts(Receiver<Part>, Option<u64>),
}

/// A part of a body. Without an end it is not all: the client has to see that.
#[derive(Debug)]
pub(crate) enum Part {
    Bytes(Bytes),
    End,
}

impl Body for Content {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Parts(parts, left) => parts.poll_recv(context).map(|part| match part {
                Some(Part::Bytes(bytes)) => {
                    *left = left.map(|left| left.saturating_sub(bytes.len() as u64));
                    Some(Ok(Frame::data(bytes)))
                }
                Some(Part::End) => None,
                None => Some(Err(Cut)),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Parts(_, left) => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// Where parts of a body go; there are few at a time.
#[derive(Debug)]
pub(crate) struct Parts(Sender<Part>);

impl Parts {
    /// Gives a part to a client. Whether it takes more.
    pub(crate) async fn give(&self, bytes: Bytes) -> bool {
        matches!(tokio::time::timeout(PATIENCE, self.0.send(Part::Bytes(bytes))).await, Ok(Ok(())))
    }

    /// That was all.
    pub(crate) async fn end(self) {
        // Who has gone need not know it.
        let _ = tokio::time::timeout(PATIENCE, self.0.send(Part::End)).await;
    }
}

/// An answer whose body comes in parts.
pub(crate) fn parts(kind: &'static str, length: Option<u64>) -> (Answer, Parts) {
    let (sender, receiver) = channel(1);
    let mut answer = of(StatusCode::OK, kind, Content::Parts(receiver, length));
    if let Some(length) = length {
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    (answer, Parts(sender))
}

/// An answer with nothing in it.
pub(crate) fn empty(status: StatusCode) -> Answer {
    of(status, BYTES, Content::Whole(Bytes::new()))
}

/// An answer of JSON.
pub(crate) fn json(value: &Value) -> Answer {
    of(StatusCode::OK, JSON, Content::Whole(value.to_string().into()))
}

/// A refusal, in the form of WebHDFS.
pub(crate) fn refusal(error: &FilesError) -> Answer {
    let status = match error.class {
        Class::FileNotFound => StatusCode::NOT_FOUND,
        Class::IllegalArgument | Class::InvalidPath | Class::Unsupported => StatusCode::BAD_REQUEST,
        _ => StatusCode::FORBIDDEN,
    };
    let class = exception::class(error.class);
    let name = class.rsplit(['.', '$']).next().unwrap_or(class);
    let remote = json!({ "exception": name, "javaClassName": class, "message": error.message });
    of(status, JSON, Content::Whole(json!({ "RemoteException": remote }).to_string().into()))
}

/// Bytes of files, which no browser is to take for anything else.
pub(crate) const BYTES: &str = "application/octet-stream";
/// What most answers are.
pub(crate) const JSON: &str = "application/json";

fn of(status: StatusCode, kind: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// What has an answer in any case.
pub(crate) type Answered = Result<Answer, Refusal>;

/// An answer for a client, or the end of its connection.
pub(crate) fn finished(answered: Answered) -> Result<Answer, Cut> {
    match answered {
        Ok(answer) => Ok(answer),
        Err(Refusal::Refused(error)) => Ok(refusal(&error)),
        Err(Refusal::Gone) => Err(Cut),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_that_was_cut_does_not_seem_to_be_all() {
        let (answer, parts) = parts(BYTES, None);
        assert!(parts.give(Bytes::from_static(b"a")).await);
        drop(parts);
        assert!(answer.into_body().collect().await.is_err());
        let (answer, parts) = super::parts(BYTES, Some(1));
        let (collected, ()) = tokio::join!(answer.into_body().collect(), async {
            assert!(parts.give(Bytes::from_static(b"a")).await);
            parts.end().await;
        });
        assert_eq!(collected.unwrap().to_bytes(), &b"a"[..]);
    }

    #[test]
    fn a_refusal_says_its_exception() {
        for (class, status, name) in [
            (Class::FileNotFound, 404, "FileNotFoundException"),
            (Class::AccessControl, 403, "AccessControlException"),
            (Class::IllegalArgument, 400, "HadoopIllegalArgumentException"),
            (Class::NameTooLong, 403, "PathComponentTooLongException"),
            (Class::Unsupported, 400, "UnsupportedOperationException"),
        ] {
            let answer = refusal(&FilesError::new(class, "no"));
            assert_eq!(answer.status(), status);
            let Content::Whole(body) = answer.into_body() else { panic!() };
            let said: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(
                (&said["RemoteException"]["exception"], &said["RemoteException"]["message"]),
                (&json!(name), &json!("no"))
            );
        }
    }
}
