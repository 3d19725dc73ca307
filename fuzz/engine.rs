//! What the targets of the engine's faces share: an engine that knows nothing, and a client that only sends.

use std::future::Future;

use async_trait::async_trait;
use savanna_streams_api::StreamError;
use savanna_streams_api::handle::{HandleError, SessionId, StreamHandle, StreamReply, StreamRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Does every statement without rows.
#[derive(Debug)]
pub struct NoEngine;

#[async_trait]
impl StreamHandle for NoEngine {
    async fn call(&self, request: StreamRequest) -> Result<StreamReply, HandleError> {
        Ok(match request {
            StreamRequest::OpenSession { .. } => StreamReply::Session { session: SessionId(1) },
            StreamRequest::Split { sql } => StreamReply::Statements { statements: vec![sql] },
            StreamRequest::Describe { .. } => StreamReply::Described { schema: None, parameters: vec![] },
            StreamRequest::ListQueries => StreamReply::Queries { queries: Vec::new() },
            StreamRequest::Execute { .. } | StreamRequest::CloseSession { .. } => {
                StreamReply::Done { tag: "CREATE TABLE".into() }
            }
            other => return Err(StreamError::Internal(format!("{other:?}")).into()),
        })
    }
}

/// Sends bytes to a server and reads its answer to the end, on one thread.
pub fn talk<F: Future<Output = ()>>(bytes: &[u8], server: impl FnOnce(DuplexStream) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (mut client, stream) = tokio::io::duplex(1 << 16);
        let answer = async {
            // The server may hang up first.
            let _ = client.write_all(bytes).await;
            let _ = client.shutdown().await;
            let _ = client.read_to_end(&mut Vec::new()).await;
        };
        tokio::join!(answer, server(stream));
    });
}
