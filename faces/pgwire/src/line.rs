//! A client's connection, perhaps with encryption on top.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A connection over any stream of bytes.
#[derive(Debug)]
pub(crate) enum Line<S> {
    Plain(S),
    Encrypted(Box<TlsStream<S>>),
    /// The client ended in the handshake.
    Ended,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> savanna_pgwire_login::Socket for Line<S> {
    async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        self.read_buf(into).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await?;
        self.flush().await
    }

    async fn encrypt(&mut self, configuration: Arc<ServerConfig>) -> io::Result<()> {
        let Self::Plain(stream) = std::mem::replace(self, Self::Ended) else {
            return Err(io::Error::other("the connection is encrypted already"));
        };
        let encrypted = TlsAcceptor::from(configuration).accept(stream).await?;
        *self = Self::Encrypted(Box::new(encrypted));
        Ok(())
    }

    fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }

    async fn close(mut self) {
        if let Err(error) = self.shutdown().await {
            tracing::debug!(%error, "a client went away before the goodbye");
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Line<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, into),
            Self::Ended => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Ended => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
            Self::Ended => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Ended => Poll::Ready(Ok(())),
        }
    }
}
