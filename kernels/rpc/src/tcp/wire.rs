//! The two directions of a connection, encrypted or not.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf, split},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tokio_rustls::TlsStream;

/// What comes in.
pub(super) enum Reader {
    Plain(OwnedReadHalf),
    Encrypted(ReadHalf<TlsStream<TcpStream>>),
}

/// What goes out.
pub(super) enum Writer {
    Plain(OwnedWriteHalf),
    Encrypted(WriteHalf<TlsStream<TcpStream>>),
}

/// Both directions of an unencrypted connection.
pub(super) fn plain(stream: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Plain(reader), Writer::Plain(writer))
}

/// Both directions of an encrypted one.
pub(super) fn encrypted(stream: TlsStream<TcpStream>) -> (Reader, Writer) {
    let (reader, writer) = split(stream);
    (Reader::Encrypted(reader), Writer::Encrypted(writer))
}

impl Writer {
    /// Whether what was written may wait for a flush.
    pub(super) const fn keeps_bytes(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }
}

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(reader) => Pin::new(reader).poll_read(context, buffer),
            Self::Encrypted(reader) => Pin::new(reader).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(writer) => Pin::new(writer).poll_write(context, bytes),
            Self::Encrypted(writer) => Pin::new(writer).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(writer) => Pin::new(writer).poll_flush(context),
            Self::Encrypted(writer) => Pin::new(writer).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(writer) => Pin::new(writer).poll_shutdown(context),
            Self::Encrypted(writer) => Pin::new(writer).poll_shutdown(context),
        }
    }
}
