//! An engine that does every statement and knows nothing.

use async_trait::async_trait;
use savanna_streams_api::StreamError;
use savanna_streams_api::handle::{HandleError, SessionId, StreamHandle, StreamReply, StreamRequest};

#[derive(Debug)]
pub(crate) struct Stub;

#[async_trait]
impl StreamHandle for Stub {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        Ok(match request {
            StreamRequest::OpenSession { .. } => StreamReply::Session { session: SessionId(1) },
            StreamRequest::Split { sql } => StreamReply::Statements { statements: vec![sql] },
            StreamRequest::Describe { .. } => StreamReply::Described { schema: None, parameters: vec![] },
            StreamRequest::Execute { .. } | StreamRequest::CloseSession { .. } => {
                StreamReply::Done { tag: "CREATE TABLE".into() }
            }
            other => return Err(StreamError::Internal(format!("the stub does not do {other:?}")).into()),
        })
    }
}
