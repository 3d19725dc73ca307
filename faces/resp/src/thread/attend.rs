//! Clients that are served while a script has the actor.
//!
//! The thread is deep inside of the script then, so it lends its connections before it runs what may be a script, and takes
//! them back after.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use savanna_journal::{Journal, Lsn};
use savanna_keys::actor::message::{Destination, Message};
use savanna_keys::actor::{Actor, Attendant};
use savanna_keys::placement::ActorId;
use savanna_keys::request::Args;
use savanna_ownership::guard::LeaseGuard;

use super::accept::{Connections, Door};
use super::serve::limits_of;
use super::{READ_BYTES, Thread};
use crate::connection::{Connection, ReadOutcome};
use crate::mailbox::{Mail, Mailbox};

/// The connections while the actor runs what may be a script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lent(Arc<Mutex<Loan>>);

#[derive(Debug, Default)]
struct Loan {
    /// None while the thread has them.
    connections: Option<Connections>,
    /// What the replies that were there before depend on; `None` if that is not in the log.
    depends: Option<Lsn>,
    /// Those that something came from.
    served: Vec<usize>,
}

impl Lent {
    /// What serves connections while they are lent.
    pub(super) fn attendance(&self, thread: &Thread) -> Box<dyn Attendant> {
        Box::new(Attendance {
            lent: self.clone(),
            door: thread.door.clone(),
            mailbox: thread.mailbox.clone(),
            journal: thread.journal.clone(),
            lease: thread.lease.clone(),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// With what the replies to them depend on so far, if that is in the log.
    pub(super) fn lend(&self, connections: &mut Connections, depends: Option<Lsn>) {
        let mut loan = self.loan();
        (loan.connections, loan.depends) = (Some(std::mem::take(connections)), depends);
    }

    /// Says which connections were served meanwhile.
    pub(super) fn take_back(&self, connections: &mut Connections) -> Vec<usize> {
        let mut loan = self.loan();
        if let Some(lent) = loan.connections.take() {
            *connections = lent;
        }
        std::mem::take(&mut loan.served)
    }

    /// Of this thread alone: nobody waits for it.
    fn loan(&self) -> MutexGuard<'_, Loan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Attendance {
    lent: Lent,
    door: Door,
    mailbox: Mailbox,
    journal: Option<Arc<Journal>>,
    lease: Option<LeaseGuard>,
    buffer: Vec<u8>,
}

impl Attendant for Attendance {
    fn attend(&mut self, actor: &mut Actor) {
        if !self.lease.as_ref().is_none_or(LeaseGuard::serving) {
            return;
        }
        let lent = self.lent.clone();
        let mut loan = lent.loan();
        let Loan { connections: Some(connections), depends, served } = &mut *loan else { return };
        // Who cannot be accepted now is when the script has ended.
        let _ = self.door.accept(actor, connections);
        self.hear(actor, connections);
        let durable = self.journal.as_ref().map_or(Lsn(u64::MAX), |journal| journal.durable());
        let is_durable = depends.is_some_and(|depends| depends <= durable);
        for (place, connection) in connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            // What waits to be told may depend on what is not in the log yet; that of the script is not.
            if !is_durable && !connection.output.is_empty() {
                continue;
            }
            connection.output.hear_durable(durable);
            if connection.may_run() && self.serve(actor, connection) || !connection.output.is_empty() {
                served.push(place);
            }
        }
        if let Some(depends) = *depends {
            self.send(actor, depends, Actor::take_said_before);
        }
        // It depends on nothing.
        self.send(actor, Lsn::NONE, Actor::take_outbox);
        put_replies(actor, connections, served);
        for place in served.iter() {
            if let Some(Some(connection)) = connections.get_mut(*place) {
                connection.output.release(None);
                connection.is_dismissed |= !connection.write(actor.keys.now());
            }
        }
    }
}

impl Attendance {
    /// Takes the mail that need not wait for the script.
    fn hear(&self, actor: &mut Actor, connections: &mut Connections) {
        while let Some(mail) = self.mailbox.take_new() {
            let later = match mail {
                Mail::Client(stream, is_encrypted) => {
                    self.door.greet_given(stream, is_encrypted, actor, connections);
                    continue;
                }
                Mail::Messages { from, depends, messages, published } => {
                    let later = messages.into_iter().filter_map(|message| actor.deliver_meanwhile(from, message));
                    Mail::Messages { from, depends, messages: later.collect(), published }
                }
                other => other,
            };
            self.mailbox.put_off(later);
        }
    }

    /// Reads from a client and answers. Says whether anything came.
    fn serve(&mut self, actor: &mut Actor, connection: &mut Connection) -> bool {
        match connection.read(&mut self.buffer) {
            ReadOutcome::Gone => connection.is_dismissed = true,
            ReadOutcome::End => connection.is_closing = true,
            ReadOutcome::Nothing if connection.input.is_empty() => return false,
            ReadOutcome::Nothing => {}
            ReadOutcome::Bytes(count) => connection.input.extend_from_slice(&self.buffer[..count]),
        }
        let input = std::mem::take(&mut connection.input);
        let ran = answer(actor, connection, &input);
        connection.input = input;
        connection.input.drain(..ran);
        connection.was_stopped = !connection.input.is_empty();
        true
    }

    /// Sends what the actor says to others.
    fn send(&self, actor: &mut Actor, depends: Lsn, take: impl Fn(&mut Actor, ActorId) -> Vec<Message>) {
        for to in actor.actors() {
            let messages = take(actor, to);
            if !messages.is_empty() {
                let published = messages.iter().map(Message::published_bytes).sum();
                self.door.slots[to.index()].put(Mail::Messages { from: actor.id(), depends, messages, published });
            }
        }
    }
}

/// Answers the complete requests among `bytes`. Says how many bytes they had.
fn answer(actor: &mut Actor, connection: &mut Connection, bytes: &[u8]) -> usize {
    let mut parser = std::mem::take(&mut connection.parser);
    let mut ran = 0;
    while connection.may_run() {
        let (limits, output_limit) = limits_of(actor, connection.session);
        match parser.next(&bytes[ran..], &limits) {
            Ok(None) => break,
            Ok(Some(length)) => {
                let args = Args::new(&bytes[ran..], parser.spans());
                connection.answer(output_limit, |session, reply| actor.request_meanwhile(session, args, reply));
                ran += length;
            }
            Err(error) => {
                connection.refuse(error);
                ran = bytes.len();
            }
        }
    }
    connection.parser = parser;
    ran
}

/// Puts the replies that other actors gave meanwhile to their connections.
fn put_replies(actor: &mut Actor, connections: &mut Connections, served: &mut Vec<usize>) {
    let replies = actor.take_own_replies();
    for (to, part) in replies.iter() {
        if let Destination::Session(session, ticket) = to
            && let Some(Some(connection)) = connections.get_mut(session.place as usize)
            && connection.session == session
        {
            connection.fill(ticket, actor.config.output_normal, &part);
            served.push(session.place as usize);
        }
    }
    actor.recycle(replies);
}
