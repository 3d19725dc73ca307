//! What clients are told: replies that came from elsewhere, and bytes that go out.

use savanna_keys::actor::message::Destination;
use savanna_keys::actor::saving::CopyFor;

use super::{Thread, ThreadError};
use crate::encode::Encoder;

impl Thread {
    /// Puts replies that came from elsewhere to their connections, and ends those that end behind them.
    pub(super) fn put_replies(&mut self) {
        let replies = self.worker.take_replies();
        for (to, part) in replies.iter() {
            let (session, ticket) = match to {
                Destination::Session(session, ticket) => (session, Some(ticket)),
                Destination::Push(session) => (session, None),
                Destination::Gather(_) | Destination::Waiter(_) | Destination::Call { .. } | Destination::Group(_) => {
                    continue;
                }
            };
            let place = session.place as usize;
            let Some(Some(connection)) = self.state.connections.get_mut(place) else { continue };
            if connection.session != session {
                continue;
            }
            if connection.is_dismissed {
                continue;
            }
            match ticket {
                Some(ticket) => {
                    connection.fill(ticket, self.worker.actor().output_limit(false), &part);
                    if !connection.errors.is_empty() {
                        self.worker.note_errors(&std::mem::take(&mut connection.errors));
                    }
                }
                None => {
                    let room = connection.room(self.worker.actor().output_limit(true));
                    let mut encoder = Encoder::new(connection.output.next(), connection.protocol).at_most(room);
                    part.play(&mut encoder);
                    // There is nobody to be told that a message is missing.
                    connection.is_dismissed |= !encoder.finish();
                }
            }
            self.touch(place);
            self.go_on(place);
        }
        self.worker.recycle(replies);
        for session in self.worker.take_closing() {
            let place = session.place as usize;
            if let Some(Some(connection)) = self.state.connections.get_mut(place)
                && connection.session == session
            {
                connection.is_closing = true;
                self.touch(place);
            }
        }
    }

    /// Begins to send files to who asked for them.
    pub(super) fn begin_copies(&mut self) {
        let now = self.worker.actor().now();
        for CopyFor { session, ticket, copy, greeting } in self.worker.take_copies() {
            let place = session.place as usize;
            let Some(Some(connection)) = self.state.connections.get_mut(place) else { continue };
            if connection.session == session {
                connection.begin_copy(ticket, &greeting, copy, now);
                self.touch(place);
            }
        }
    }

    /// Writes to the connections that have something to be sent.
    pub(super) fn write_all(&mut self) -> Result<(), ThreadError> {
        let clearance = self.worker.clear()?;
        let may_tell = self.worker.may_tell();
        let mut places = std::mem::take(&mut self.state.touched);
        places.retain(|place| {
            let Some(mut connection) = self.state.connections.get_mut(*place).and_then(Option::take) else {
                return false;
            };
            if !may_tell {
                let stays = !connection.is_dismissed;
                self.settle(*place, connection, stays);
                return stays;
            }
            connection.output.release(clearance.held);
            connection.output.hear_durable(clearance.durable);
            let is_there = connection.write(self.worker.actor().now());
            self.weigh(&mut connection);
            let leaves_too_much = !connection.output.is_empty() && self.leaves_too_much(&mut connection);
            let stays = is_there && !connection.is_finished() && !connection.is_dismissed && !leaves_too_much;
            let copies = connection.may_go_on_copying();
            connection.is_touched = connection.output.is_held();
            let is_touched = connection.is_touched;
            self.settle(*place, connection, stays);
            if stays {
                self.go_on(*place);
            }
            if stays && copies {
                self.list(*place);
            }
            stays && is_touched
        });
        self.state.touched = places;
        Ok(())
    }

    /// Lists a connection whose requests had to wait and may run now.
    fn go_on(&mut self, place: usize) {
        if let Some(Some(connection)) = self.state.connections.get(place)
            && connection.may_run()
            && (connection.is_readable || connection.was_stopped)
        {
            self.list(place);
        }
    }
}
