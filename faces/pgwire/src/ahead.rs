//! Reading ahead, to notice that a client has gone while it waits for an answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So many bytes are read ahead. The end of a client that has sent more is noticed when it is answered.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// A stream that is read ahead while nobody asks for its bytes. Its clones share the stream.
#[derive(Debug)]
pub(crate) struct Ahead<S>(Arc<Mutex<State<S>>>);

#[derive(Debug)]
struct State<S> {
    stream: S,
    /// What has been read and not been asked for.
    bytes: Vec<u8>,
    ended: bool,
}

impl<S> Clone for Ahead<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Ahead<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(State { stream, bytes: Vec::new(), ended: false })))
    }

    /// Comes back when the client has closed its side.
    pub(crate) async fn gone(&self) {
        std::future::poll_fn(|context| self.0.lock().poll_gone(context)).await;
    }

    fn poll_write_side<T>(&self, poll: impl FnOnce(Pin<&mut S>) -> Poll<T>) -> Poll<T> {
        poll(Pin::new(&mut self.0.lock().stream))
    }
}

impl<S: AsyncRead + Unpin> State<S> {
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut part = [0; 4096];
        while !self.ended {
            if self.bytes.len() >= AHEAD_BYTES_MAX {
                return Poll::Pending;
            }
            let mut read = ReadBuf::new(&mut part);
            // Who asks for bytes next meets the same error.
            self.ended = match std::task::ready!(Pin::new(&mut self.stream).poll_read(context, &mut read)) {
                Ok(()) => read.filled().is_empty(),
                Err(_) => true,
            };
            self.bytes.extend(read.filled());
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.bytes.is_empty() {
            return if state.ended {
                Poll::Ready(Ok(()))
            } else {
                Pin::new(&mut state.stream).poll_read(context, into)
            };
        }
        let count = into.remaining().min(state.bytes.len());
        into.put_slice(&state.bytes[..count]);
        state.bytes.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_side(|stream| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_side(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_side(|stream| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_read_ahead_is_not_lost() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut ahead = Ahead::new(server);
        client.write_all(b"ab").await.unwrap();
        drop(client);
        ahead.gone().await;
        let mut read = Vec::new();
        ahead.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"ab");
    }
}
