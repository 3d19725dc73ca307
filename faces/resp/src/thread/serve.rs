//! What clients ask for: bytes of connections, requests, an actor that runs them.

use savanna_keys::access::Access;
use savanna_keys::actor::Progress;
use savanna_keys::config::OutputLimit;
use savanna_keys::keyspace::NEAR_MAX;
use savanna_keys::reply::{Answering, Reply as _};
use savanna_keys::request::Args;
use savanna_keys::session::{Session, SessionId};

use super::{READ_BYTES, Thread};
use crate::connection::{Connection, REPLY_BYTES_MAX, ReadOutcome};
use crate::encode::Encoder;
use crate::parse::{Limits, ProtocolError};

impl Thread {
    pub(super) fn serve_listed(&mut self) {
        // Who is listed again while it is served comes in the next turn.
        let listed = std::mem::take(&mut self.state.listed);
        for place in &listed {
            let Some(mut connection) = self.state.connections.get_mut(*place).and_then(Option::take) else { continue };
            connection.is_listed = false;
            let stays = self.serve(&mut connection);
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
        is_there && !(connection.is_hung_up && (connection.is_held || self.actor.is_waiting(connection.session)))
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
                connection.heard_at = self.actor.keys.now();
                if connection.input.is_empty() {
                    let ran = self.run_bytes(connection, &buffer[..count]);
                    connection.input.extend_from_slice(&buffer[ran..count]);
                    connection.was_stopped = !connection.input.is_empty() && !connection.may_run();
                } else {
                    connection.input.extend_from_slice(&buffer[..count]);
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
        let (mut limits, output_limit) = self.limits_of(connection.session);
        let (mut ran, mut near) = (0, 0);
        while connection.may_run() {
            // Of a pipeline: one request alone has nothing to be fetched beside it.
            if ran > 0 && ran >= near && ran < bytes.len() {
                near = ran + self.look_ahead(connection.session, &bytes[ran..], &limits);
            }
            match connection.parser.next(&bytes[ran..], &limits) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let args = Args::new(&bytes[ran..], connection.parser.spans());
                    let room = connection.room(output_limit);
                    let mut encoder = Encoder::new(connection.output.next(), connection.protocol).at_most(room);
                    encoder.answering = connection.answering;
                    let progress = self.actor.request(connection.session, args, &mut encoder);
                    let had_room = encoder.finish();
                    connection.protocol = encoder.protocol;
                    connection.is_dismissed |= !had_room && room < REPLY_BYTES_MAX;
                    let mut protocol = Some(connection.protocol);
                    if let Some(answering) = encoder.answering
                        && progress != Progress::Held
                    {
                        if answering != Answering::On {
                            encoder.keep_quiet();
                            protocol = None;
                        }
                        connection.note_answering(answering);
                    }
                    match progress {
                        Progress::Answered => {}
                        Progress::Later(ticket) => connection.output.wait(ticket, protocol),
                        Progress::LaterAlone(ticket) => {
                            connection.output.wait(ticket, protocol);
                            connection.awaits = Some(ticket);
                        }
                        Progress::Closing => connection.is_closing = true,
                        Progress::LaterClosing(ticket) => {
                            connection.output.wait(ticket, protocol);
                            connection.is_closing = true;
                        }
                        Progress::Held => {
                            connection.is_held = true;
                            self.state.paused.push(connection.session.place as usize);
                            break;
                        }
                    }
                    ran += length;
                    if limits.words == Limits::OF_STRANGERS.words {
                        limits = self.limits_of(connection.session).0;
                    }
                    if self.actor.has_published_elsewhere() && self.is_anybody_behind() {
                        connection.is_held_back = true;
                        self.state.held_back.push(connection.session.place as usize);
                    }
                }
                Err(error) => {
                    if error == ProtocolError::Http {
                        tracing::warn!(
                            "a client of the keys service speaks HTTP, maybe for a web page; it is sent away"
                        );
                    }
                    Encoder::new(connection.output.next(), connection.protocol).error(&format!("ERR {error}"));
                    connection.is_closing = true;
                    return bytes.len();
                }
            }
        }
        connection.parser.shrink();
        ran
    }

    /// Lets the memory come near that the next requests in `bytes` are going to ask for, many at a time: one after the other,
    /// each would wait for it. Says how many bytes they have.
    fn look_ahead(&mut self, session: SessionId, bytes: &[u8], limits: &Limits) -> usize {
        let (mut keys, mut count, mut end) = ([&[][..]; NEAR_MAX], 0, 0);
        let mut scout = std::mem::take(&mut self.state.scout);
        while count < NEAR_MAX
            && let Ok(Some(length)) = scout.next(&bytes[end..], limits)
        {
            // Of nearly all commands, a key.
            if let Some(word) = scout.spans().get(1) {
                keys[count] = &bytes[end + word.start as usize..][..word.length as usize];
                count += 1;
            }
            end += length;
        }
        self.actor.bring_near(session, &keys[..count]);
        scout.forget();
        scout.shrink();
        self.state.scout = scout;
        end.max(1)
    }

    /// How long a session's requests may be, and what it may leave unread.
    fn limits_of(&self, session: SessionId) -> (Limits, OutputLimit) {
        let config = &self.actor.config;
        let session = self.actor.sessions.get(session);
        let limits = match session.map(|session| session.access) {
            Some(Access::Unknown) => Limits::OF_STRANGERS,
            _ => Limits {
                word_bytes: config.request_bytes_max,
                request_bytes: config.query_bytes_max,
                ..Limits::default()
            },
        };
        let listens = session.is_some_and(Session::is_subscribed);
        (limits, if listens { config.output_listening } else { config.output_normal })
    }
}
