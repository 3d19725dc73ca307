//! What clients ask for: bytes of connections, requests, an actor that runs them.

use savanna_keys::actor::{Actor, Progress};
use savanna_keys::config::OutputLimit;
use savanna_keys::memory::reserve;
use savanna_keys::request::Args;
use savanna_keys::session::SessionId;

use super::ahead::Ahead;
use super::{READ_BYTES, Thread};
use crate::connection::{Connection, ReadOutcome};
use crate::parse::{Limits, Parser, ProtocolError};

impl Thread {
    pub(super) fn serve_listed(&mut self) {
        // Who is listed again while it is served comes in the next turn.
        let listed = std::mem::take(&mut self.state.listed);
        for place in &listed {
            let Some(mut connection) = self.state.connections.get_mut(*place).and_then(Option::take) else { continue };
            connection.is_listed = false;
            let stays = self.serve(&mut connection);
            self.weigh(&mut connection);
            self.settle(*place, connection, stays);
        }
        for place in listed {
            self.touch(place);
        }
    }

    /// Runs what a client asked for. Says whether the client is still there.
    fn serve(&mut self, connection: &mut Connection) -> bool {
        let is_there = self.read_and_run(connection);
        // Who hung up waits for nobody.
        is_there
            && !(connection.is_hung_up && (connection.is_held || self.worker.actor().is_waiting(connection.session)))
    }

    fn read_and_run(&mut self, connection: &mut Connection) -> bool {
        self.run_input(connection);
        if !connection.is_readable || !connection.may_run() {
            return true;
        }
        let mut buffer = std::mem::take(&mut self.state.buffer);
        let stays = match connection.read(&mut buffer) {
            ReadOutcome::Gone => false,
            ReadOutcome::End => {
                // It may still be waiting for replies.
                connection.is_closing = true;
                true
            }
            ReadOutcome::Nothing => true,
            ReadOutcome::Bytes(count) => {
                connection.heard_at = self.worker.actor().now();
                if connection.input.is_empty() {
                    let ran = self.run_bytes(connection, &buffer[..count]);
                    Self::keep_input(connection, &buffer[ran..count]);
                    connection.was_stopped = !connection.input.is_empty() && !connection.may_run();
                } else {
                    Self::keep_input(connection, &buffer[..count]);
                    self.run_input(connection);
                }
                true
            }
        };
        self.state.buffer = buffer;
        if stays && connection.is_readable && !connection.is_listed {
            connection.is_listed = true;
            self.state.listed.push(connection.session.place as usize);
        }
        stays
    }

    /// Keeps what was read and has not run. Where there is no memory for it, the client is told so and sent away.
    fn keep_input(connection: &mut Connection, bytes: &[u8]) {
        if reserve(&mut connection.input, bytes.len()) {
            connection.input.extend_from_slice(bytes);
        } else {
            connection.input = Vec::new();
            connection.refuse(ProtocolError::NoMemory);
        }
    }

    fn run_input(&mut self, connection: &mut Connection) {
        if connection.input.is_empty() || !connection.may_run() {
            return;
        }
        let input = std::mem::take(&mut connection.input);
        let ran = self.run_bytes(connection, &input);
        connection.input = input;
        connection.input.drain(..ran);
        // What is left is the beginning of a request, unless something stopped before it.
        connection.was_stopped = !connection.input.is_empty() && !connection.may_run();
        if connection.input.is_empty() {
            connection.input.shrink_to(READ_BYTES);
        }
    }

    /// Runs the complete requests in `bytes`, as far as they may run. Says how many bytes they had.
    fn run_bytes(&mut self, connection: &mut Connection, bytes: &[u8]) -> usize {
        let mut parser = std::mem::take(&mut connection.parser);
        let mut ahead = self.state.ahead.take().unwrap_or_default();
        let ran = self.run_parsed(connection, &mut parser, &mut ahead, bytes);
        self.state.ahead = Some(ahead);
        parser.shrink();
        connection.parser = parser;
        ran
    }

    fn run_parsed(
        &mut self,
        connection: &mut Connection,
        parser: &mut Parser,
        ahead: &mut Ahead,
        bytes: &[u8],
    ) -> usize {
        let (mut limits, output_limit) = limits_of(self.worker.actor(), connection.session);
        // What was found of another client.
        ahead.clear();
        let mut ran = 0;
        while connection.may_run() {
            // Of a pipeline: one request alone has nothing to be fetched beside it.
            if ran > 0 && ran < bytes.len() && ahead.is_empty() {
                let (keys, count) = ahead.find(&bytes[ran..], &limits);
                self.worker.bring_near(connection.session, &keys[..count]);
            }
            let found = match ahead.next() {
                Some(found) => Ok(Some(found)),
                None => parser.next(&bytes[ran..], &limits).map(|length| length.map(|length| (length, parser.spans()))),
            };
            match found {
                Ok(None) => break,
                Ok(Some((length, spans))) => {
                    let args = Args::new(&bytes[ran..], spans);
                    // An empty line, or a list of no words, is a request of none.
                    let name = args.from(0).next().and_then(<[u8]>::first);
                    // `EVAL`, `EXEC`, `FCALL` and their kin.
                    let may_be_script = name.is_some_and(|first| matches!(first, b'e' | b'E' | b'f' | b'F'));
                    let progress = connection.answer(output_limit, |session, reply| {
                        if may_be_script {
                            self.lending(|worker| worker.request(session, args, reply))
                        } else {
                            self.worker.request(session, args, reply)
                        }
                    });
                    if progress == Progress::Held {
                        self.state.paused.push(connection.session.place as usize);
                        break;
                    }
                    ran += length;
                    if !connection.errors.is_empty() {
                        self.worker.note_errors(&std::mem::take(&mut connection.errors));
                    }
                    self.acceptor.know(connection, self.worker.actor());
                    if limits.words == Limits::OF_UNAUTHENTICATED.words {
                        limits = limits_of(self.worker.actor(), connection.session).0;
                    }
                    if self.worker.has_published_too_much() {
                        connection.is_held_back = true;
                        self.state.held_back.push(connection.session.place as usize);
                    }
                }
                Err(error) => {
                    connection.refuse(error);
                    return bytes.len();
                }
            }
        }
        ran
    }
}

/// How long a session's requests may be, and what it may leave unread.
pub(super) fn limits_of(actor: &Actor, session: SessionId) -> (Limits, OutputLimit) {
    let limits = actor.limits_of(session);
    let requests = if limits.is_known {
        Limits { word_bytes: limits.word_bytes, request_bytes: limits.request_bytes, ..Limits::default() }
    } else {
        Limits::OF_UNAUTHENTICATED
    };
    (requests, limits.output)
}
