//! A client's socket, encrypted or not.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::ServerConfig;

use crate::tls::TlsStream;

/// A socket that is read and written without waiting.
#[derive(Debug)]
pub(crate) enum Stream {
    /// What is sent is what is meant.
    Plain(TcpStream),
    /// TLS.
    Encrypted(Box<TlsStream>),
}

impl Stream {
    /// Encrypted, if there is a configuration for it.
    pub(crate) fn new(socket: TcpStream, tls: Option<Arc<ServerConfig>>) -> Result<Self, rustls::Error> {
        Ok(match tls {
            None => Self::Plain(socket),
            Some(tls) => Self::Encrypted(Box::new(TlsStream::new(socket, tls)?)),
        })
    }

    /// Whether the client and the server have agreed on how they speak.
    pub(crate) fn is_established(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Encrypted(stream) => stream.is_established(),
        }
    }

    /// Whether bytes came that were not read yet.
    pub(crate) fn has_input(&self) -> bool {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Encrypted(stream) => stream.socket(),
        };
        socket.peek(&mut [0]).is_ok_and(|count| count > 0)
    }

    /// Reads what is there. Gives how many bytes came, 0 at the end, and whether there may be more.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
        match self {
            // A socket that filled less than the buffer is empty; it says when it is not.
            Self::Plain(socket) => socket.read(buffer).map(|count| (count, count == buffer.len())),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }

    /// Takes some of `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    /// Sends what it has taken.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Encrypted(stream) => stream.flush(),
        }
    }

    /// Whether everything that it has taken is sent.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Encrypted(stream) => stream.is_flushed(),
        }
    }

    /// Says that nothing follows.
    pub(crate) fn say_goodbye(&mut self) {
        if let Self::Encrypted(stream) = self {
            stream.say_goodbye();
        }
    }
}
