//! A client's socket, with what was read and not yet run, and what was answered and not yet sent.

use std::io;
use std::os::unix::fs::FileExt as _;

use savanna_keys::actor::message::Part;
use savanna_keys::actor::saving::FileCopy;
use savanna_keys::actor::{Progress, Traffic};
use savanna_keys::config::OutputLimit;
use savanna_keys::error_counts::ErrorCounts;
use savanna_keys::reply::{Answering, Reply as _};
use savanna_keys::session::{ClientMemory, Session, SessionId, Ticket};
use savanna_lattice::UnixMillis;

use crate::encode::Encoder;
use crate::output::Output;
use crate::parse::{Parser, ProtocolError};
use crate::stream::Stream;
use crate::thread::PendingClient;

/// A client.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Its socket.
    pub stream: Stream,
    /// Its session.
    pub session: SessionId,
    /// What it is as long as it asked for nothing, or did not say who it is.
    pub pending: Option<PendingClient>,
    /// The protocol's version for replies that come later.
    pub protocol: u8,
    /// Whether it wants replies; `None` if it does.
    pub answering: Option<Answering>,
    /// Bytes of requests that have not run.
    pub input: Vec<u8>,
    /// Where they are being looked through.
    pub parser: Parser,
    /// What it is to be told.
    pub output: Output,
    /// A file that it is to be told behind that; nothing else comes then.
    pub copy: Option<Copying>,
    /// A reply before which no further request may run.
    pub awaits: Option<Ticket>,
    /// How many replies may be awaited: so many as are no more than a pause's worth of bytes, if they are as long as those
    /// that came.
    awaited_max: usize,
    /// Whether there may be something to read.
    pub is_readable: bool,
    /// Whether the socket takes something.
    pub is_writable: bool,
    /// Whether the client sends nothing more. Who waits for a key then waits for nobody.
    pub is_hung_up: bool,
    /// Whether it waits until other threads have heard what it published.
    pub is_held_back: bool,
    /// Whether its next request waits for the end of a pause.
    pub is_held: bool,
    /// Whether it ends when everything is sent.
    pub is_closing: bool,
    /// Whether it ends when it was written to once more, whatever is left to be sent.
    pub is_dismissed: bool,
    /// When it last said something, or took something.
    pub heard_at: UnixMillis,
    /// Since when more was waiting to be sent than the soft limit.
    pub over_soft_since: Option<UnixMillis>,
    /// Errors that it was told since they were taken.
    pub errors: ErrorCounts,
    /// Bytes and system calls since they were taken.
    pub traffic: Traffic,
    /// What it took when that was last looked at, and whether it may be sent away if all take too much.
    pub weight: (usize, bool),
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
    /// The client has said everything.
    End,
    /// The client is gone.
    Gone,
}

/// A file that is being sent.
#[derive(Debug)]
pub(crate) struct Copying {
    copy: FileCopy,
    /// How many of its bytes are among what is to be sent, or sent.
    sent: u64,
}

/// A client that takes nothing of its file for so long is disconnected: as long as it is there, so is the file.
const COPY_PATIENCE_MILLIS: u64 = 60_000;
/// So much of a file is sent at once.
const COPIED_BYTES: u64 = 256 << 10;
/// With more than this to be sent, a client is not read from.
const OUTPUT_PAUSE_BYTES: usize = 1 << 20;
/// No reply is longer.
const REPLY_BYTES_MAX: usize = 1 << 30;
/// With more replies awaited than this, a client is not read from.
const AWAITED_MAX: usize = 128;
/// As many may be awaited at first, when nobody knows how long they are.
const AWAITED_FIRST: usize = 16;

impl Connection {
    /// A client that has said nothing yet.
    #[must_use]
    pub(crate) fn new(stream: Stream, session: SessionId, now: UnixMillis) -> Self {
        Self {
            stream,
            session,
            pending: None,
            protocol: 2,
            answering: None,
            input: Vec::new(),
            parser: Parser::default(),
            output: Output::default(),
            copy: None,
            awaits: None,
            awaited_max: AWAITED_FIRST,
            is_readable: false,
            is_writable: true,
            is_hung_up: false,
            is_held_back: false,
            is_held: false,
            is_closing: false,
            is_dismissed: false,
            heard_at: now,
            over_soft_since: None,
            errors: ErrorCounts::new(),
            traffic: Traffic::default(),
            weight: (0, false),
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
            && !self.is_dismissed
            && !self.is_held_back
            && !self.is_held
            && self.copy.is_none()
            && self.output.len() < OUTPUT_PAUSE_BYTES
            && self.output.awaited_count() < self.awaited_max
    }

    /// Learns from a reply that was awaited how many more may be.
    fn note_awaited(&mut self, bytes: usize) {
        let fitting = OUTPUT_PAUSE_BYTES / bytes.max(1);
        self.awaited_max = fitting.min(self.awaited_max + 1).clamp(1, AWAITED_MAX);
    }

    /// Reads what is there, once.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> ReadOutcome {
        loop {
            match self.stream.read(buffer) {
                Ok((0, _)) => {
                    self.is_readable = false;
                    return ReadOutcome::End;
                }
                Ok((count, may_be_more)) => {
                    // The end may have been announced together with the last bytes, and is not announced again.
                    self.is_readable = may_be_more || self.is_hung_up;
                    self.traffic.bytes_in += count as u64;
                    self.traffic.reads += 1;
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

    /// Begins to send a file in the place of a reply that was awaited.
    pub(crate) fn begin_copy(&mut self, ticket: Ticket, greeting: &str, copy: FileCopy, now: UnixMillis) {
        self.output.fill(ticket, |bytes, _| bytes.extend_from_slice(greeting.as_bytes()));
        if self.awaits == Some(ticket) {
            self.awaits = None;
        }
        self.copy = Some(Copying { copy, sent: 0 });
        self.heard_at = now;
    }

    /// Whether the client has taken nothing of its file for too long.
    pub(crate) fn neglects_copy(&self, now: UnixMillis) -> bool {
        self.copy.is_some() && now.0.saturating_sub(self.heard_at.0) >= COPY_PATIENCE_MILLIS
    }

    /// Whether more of a file may be sent at once. What waits for the log is sent first, and wakes the thread.
    pub(crate) fn may_go_on_copying(&self) -> bool {
        self.copy.is_some() && self.is_writable && !self.output.is_held()
    }

    /// Puts the next part of a file to what is to be sent, if that is all sent. Says whether it could be read.
    fn go_on_copying(&mut self) -> bool {
        let Some(copying) = self.copy.as_mut().filter(|_| self.output.is_empty()) else { return true };
        let left = copying.copy.bytes - copying.sent;
        let mut part = vec![0; left.min(COPIED_BYTES) as usize];
        if copying.copy.file.read_exact_at(&mut part, copying.sent).is_err() {
            return false;
        }
        copying.sent += part.len() as u64;
        if copying.sent == copying.copy.bytes {
            self.copy = None;
            self.is_closing = true;
        }
        self.output.next().extend_from_slice(&part);
        self.output.release(None);
        true
    }

    /// Sends what may be sent. Says whether the client is still there.
    pub(crate) fn write(&mut self, now: UnixMillis) -> bool {
        if self.copy.is_some() && !self.go_on_copying() {
            return false;
        }
        while self.is_writable && !(self.output.sendable().is_empty() && self.stream.is_flushed()) {
            let sendable = self.output.sendable();
            let written = if sendable.is_empty() {
                self.stream.flush().map(|()| None)
            } else {
                self.stream.write(sendable).map(Some)
            };
            match written {
                Ok(None) => {}
                Ok(Some(0)) => return false,
                Ok(Some(count)) => {
                    self.heard_at = now;
                    self.traffic.bytes_out += count as u64;
                    self.traffic.writes += 1;
                    self.output.note_sent(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether everything was said and sent.
    #[must_use]
    pub(crate) fn is_finished(&self) -> bool {
        self.is_closing && self.output.is_empty() && self.stream.is_flushed()
    }

    /// Has a request answered by `run`.
    pub(crate) fn answer(
        &mut self,
        limit: OutputLimit,
        run: impl FnOnce(SessionId, &mut Encoder<'_>) -> Progress,
    ) -> Progress {
        let room = self.room(limit);
        let mut encoder = Encoder::new(self.output.next(), self.protocol).at_most(room);
        encoder.answering = self.answering;
        let progress = run(self.session, &mut encoder);
        let had_room = encoder.finish();
        self.protocol = encoder.protocol;
        self.errors.add(&encoder.errors);
        self.is_dismissed |= !had_room && room < REPLY_BYTES_MAX;
        let mut protocol = Some(self.protocol);
        if let Some(answering) = encoder.answering
            && progress != Progress::Held
        {
            if answering != Answering::On {
                encoder.keep_quiet();
                protocol = None;
            }
            self.note_answering(answering);
        }
        match progress {
            Progress::Answered => {}
            Progress::Later(ticket) => self.output.wait(ticket, protocol),
            Progress::LaterAlone(ticket) => {
                self.output.wait(ticket, protocol);
                self.awaits = Some(ticket);
            }
            Progress::Closing => self.is_closing = true,
            Progress::LaterClosing(ticket) => {
                self.output.wait(ticket, protocol);
                self.is_closing = true;
            }
            Progress::Held => self.is_held = true,
        }
        progress
    }

    /// Tells the client that it is not understood, and ends with that.
    pub(crate) fn refuse(&mut self, error: ProtocolError) {
        if error == ProtocolError::Http {
            tracing::warn!(
                "a client of the keys service sent an HTTP request, perhaps for a web page; it is disconnected"
            );
        }
        Encoder::new(self.output.next(), self.protocol).error(&format!("ERR {error}"));
        self.is_closing = true;
    }

    /// Puts a reply that was awaited to its place.
    pub(crate) fn fill(&mut self, ticket: Ticket, limit: OutputLimit, part: &Part<'_>) {
        let room = self.room(limit);
        let mut had_room = true;
        let count = self.output.fill(ticket, |bytes, protocol| {
            let mut encoder = Encoder::new(bytes, protocol).at_most(room);
            // The lengths of long values have more digits than on the tape.
            encoder.expect(part.byte_count() + part.byte_count() / 1024);
            part.play(&mut encoder);
            had_room = encoder.finish();
            self.errors.add(&encoder.errors);
        });
        self.is_dismissed |= !had_room && room < REPLY_BYTES_MAX;
        self.note_awaited(count);
        if self.awaits == Some(ticket) {
            self.awaits = None;
        }
    }

    /// Notes what a request says about the replies to those that follow.
    fn note_answering(&mut self, said: Answering) {
        let before = self.answering;
        self.answering = match said {
            Answering::On | Answering::Skip => None,
            Answering::Off => Some(Answering::Off),
            // Who wants no replies at all skips none.
            Answering::SkipNext if before == Some(Answering::Off) => before,
            Answering::SkipNext => Some(Answering::Skip),
        };
    }

    /// What it takes.
    #[must_use]
    pub(crate) fn memory(&self) -> ClientMemory {
        let (input, output) = (self.input.len(), self.output.len());
        let total = size_of::<Self>() + size_of::<Session>() + self.input.capacity() + self.output.capacity();
        ClientMemory { input, output, total }
    }

    /// Whether nothing is on its way to it.
    #[must_use]
    pub(crate) fn is_quiet(&self) -> bool {
        self.awaits.is_none() && self.output.is_empty() && !self.is_held
    }

    /// How many bytes the next reply may have.
    #[must_use]
    pub(crate) fn room(&self, limit: OutputLimit) -> usize {
        let hard = if limit.hard == 0 { usize::MAX } else { limit.hard };
        hard.saturating_sub(self.output.len()).min(REPLY_BYTES_MAX)
    }

    /// Whether it leaves more unread than it may.
    pub(crate) fn leaves_too_much(&mut self, limit: OutputLimit, now: UnixMillis) -> bool {
        let waiting = self.output.len();
        if limit.soft == 0 || waiting <= limit.soft {
            self.over_soft_since = None;
        } else {
            let since = *self.over_soft_since.get_or_insert(now);
            if now.0.saturating_sub(since.0) >= limit.soft_seconds.saturating_mul(1000) {
                return true;
            }
        }
        limit.hard != 0 && waiting > limit.hard
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_client_that_takes_nothing_of_its_file_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let _client = TcpStream::connect(listener.local_addr().expect("a port")).expect("a client");
        let (socket, _) = listener.accept().expect("a client");
        socket.set_nonblocking(true).expect("a socket");
        let stream = Stream::new(mio::net::TcpStream::from_std(socket), None).expect("no TLS");
        let mut connection = Connection::new(stream, SessionId { place: 0, serial: 0 }, UnixMillis(0));
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 30).expect("a disk");
        connection.output.wait(Ticket(1), Some(2));
        let copy = FileCopy { file: Arc::new(file), bytes: 1 << 30 };
        connection.begin_copy(Ticket(1), "$1073741824\r\n", copy, UnixMillis(70_000));
        assert!(!connection.neglects_copy(UnixMillis(129_999)), "it was not heard before, but the file has only come");
        // What waits for the log wakes the thread, which is not to turn until then.
        connection.output.release(Some(savanna_keys_host::Lsn(1)));
        assert!(connection.write(UnixMillis(71_000)) && !connection.may_go_on_copying());
        connection.output.hear_durable(savanna_keys_host::Lsn(1));
        while connection.is_writable {
            assert!(connection.may_go_on_copying() && connection.write(UnixMillis(72_000)));
        }
        assert!(!connection.neglects_copy(UnixMillis(131_999)));
        assert!(connection.neglects_copy(UnixMillis(132_000)));
    }
}
