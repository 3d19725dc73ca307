//! A client's socket, with what was read and not yet run, and what was answered and not yet sent.

use std::io::{self, Read as _, Write as _};

use mio::net::TcpStream;
use savanna_keys::session::{SessionId, Ticket};

use crate::output::Output;
use crate::parse::Parser;

/// A client.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Its socket.
    pub stream: TcpStream,
    /// Its session.
    pub session: SessionId,
    /// The protocol's version for replies that come later.
    pub protocol: u8,
    /// Bytes of requests that have not run.
    pub input: Vec<u8>,
    /// Where they are being looked through.
    pub parser: Parser,
    /// What it is to be told.
    pub output: Output,
    /// A reply before which no further request may run.
    pub awaits: Option<Ticket>,
    /// Whether there may be something to read.
    pub is_readable: bool,
    /// Whether the socket takes something.
    pub is_writable: bool,
    /// Whether it ends when everything is sent.
    pub is_closing: bool,
    /// Whether it is in the list of those that are to be served in this turn.
    pub is_listed: bool,
    /// Whether it is in the list of those that may have something to be sent.
    pub is_touched: bool,
    /// Whether there may be complete requests in its input.
    pub was_stopped: bool,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The client is gone.
    Gone,
}

/// With more than this to be sent, a client is not read from.
const OUTPUT_PAUSE_BYTES: usize = 1 << 20;
/// With more than this to be sent, a client that only listens is sent away.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// With more replies awaited than this, a client is not read from: nobody knows how long they are.
const AWAITED_MAX: usize = 128;

impl Connection {
    /// A client that has said nothing yet.
    #[must_use]
    pub(crate) fn new(stream: TcpStream, session: SessionId) -> Self {
        Self {
            stream,
            session,
            protocol: 2,
            input: Vec::new(),
            parser: Parser::default(),
            output: Output::default(),
            awaits: None,
            is_readable: false,
            is_writable: true,
            is_closing: false,
            is_listed: false,
            is_touched: false,
            was_stopped: false,
        }
    }

    /// Whether its next request may run.
    #[must_use]
    pub(crate) fn may_run(&self) -> bool {
        self.awaits.is_none()
            && !self.is_closing
            && self.output.len() < OUTPUT_PAUSE_BYTES
            && self.output.slot_count() < AWAITED_MAX
    }

    /// Reads what is there, once.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> ReadOutcome {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return ReadOutcome::Gone,
                Ok(count) => {
                    // A socket that filled less than the buffer is empty; it says when it is not.
                    self.is_readable = count == buffer.len();
                    return ReadOutcome::Bytes(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    return ReadOutcome::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ReadOutcome::Gone,
            }
        }
    }

    /// Sends what may be sent. Says whether the client is still there.
    pub(crate) fn write(&mut self) -> bool {
        while self.is_writable && !self.output.sendable().is_empty() {
            match self.stream.write(self.output.sendable()) {
                Ok(0) => return false,
                Ok(count) => self.output.note_sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}
