//! Clients that are served while a script has the actor.
//!
//! The thread is deep inside of the script then, so it lends its connections before it runs what may be a script, and takes
//! them back after.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use savanna_keys::actor::message::Destination;
use savanna_keys::request::Args;
use savanna_keys_host::{Clients, Meanwhile};

use super::accept::{Acceptor, Connections};
use super::serve::limits_of;
use super::{READ_BYTES, Thread};
use crate::connection::{Connection, ReadOutcome};

/// The connections while the actor runs what may be a script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lent(Arc<Mutex<Loan>>);

#[derive(Debug, Default)]
struct Loan {
    /// None while the thread has them.
    connections: Option<Connections>,
    /// Those that something came from.
    served: Vec<usize>,
}

impl Lent {
    /// What serves connections while they are lent.
    pub(super) fn attendance(&self, thread: &Thread) -> Box<dyn Clients> {
        Box::new(Attendance { lent: self.clone(), acceptor: thread.acceptor.clone(), buffer: vec![0; READ_BYTES] })
    }

    pub(super) fn lend(&self, connections: &mut Connections) {
        self.loan().connections = Some(std::mem::take(connections));
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
    acceptor: Acceptor,
    buffer: Vec<u8>,
}

impl Clients for Attendance {
    fn read(&mut self, meanwhile: &mut Meanwhile<'_>) {
        let lent = self.lent.clone();
        let mut loan = lent.loan();
        let Loan { connections: Some(connections), served } = &mut *loan else { return };
        // Who cannot be accepted now is when the script has ended.
        let _ = self.acceptor.accept(&mut meanwhile.admission(), connections);
        self.acceptor.take_arrivals(&mut meanwhile.admission(), connections);
        for (place, connection) in connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            // What waits to be told may depend on what is not in the log yet; that of the script is not.
            if !meanwhile.may_tell_earlier() && !connection.output.is_empty() {
                continue;
            }
            connection.output.hear_durable(meanwhile.durable());
            if connection.may_run() && self.serve(meanwhile, connection) || !connection.output.is_empty() {
                served.push(place);
            }
        }
    }

    fn write(&mut self, meanwhile: &mut Meanwhile<'_>) {
        let mut loan = self.lent.loan();
        let Loan { connections: Some(connections), served } = &mut *loan else { return };
        put_replies(meanwhile, connections, served);
        for place in served.iter() {
            if let Some(Some(connection)) = connections.get_mut(*place) {
                connection.output.release(None);
                connection.is_dismissed |= !connection.write(meanwhile.actor().now());
            }
        }
    }
}

impl Attendance {
    /// Reads from a client and answers. Says whether anything came.
    fn serve(&mut self, meanwhile: &mut Meanwhile<'_>, connection: &mut Connection) -> bool {
        match connection.read(&mut self.buffer) {
            ReadOutcome::Gone => connection.is_dismissed = true,
            ReadOutcome::End => connection.is_closing = true,
            ReadOutcome::Nothing if connection.input.is_empty() => return false,
            ReadOutcome::Nothing => {}
            ReadOutcome::Bytes(count) => connection.input.extend_from_slice(&self.buffer[..count]),
        }
        let input = std::mem::take(&mut connection.input);
        let ran = answer(meanwhile, &self.acceptor, connection, &input);
        connection.input = input;
        connection.input.drain(..ran);
        connection.was_stopped = !connection.input.is_empty();
        true
    }
}

/// Answers the complete requests among `bytes`. Says how many bytes they had.
fn answer(meanwhile: &mut Meanwhile<'_>, acceptor: &Acceptor, connection: &mut Connection, bytes: &[u8]) -> usize {
    let mut parser = std::mem::take(&mut connection.parser);
    let mut ran = 0;
    while connection.may_run() {
        let (limits, output_limit) = limits_of(meanwhile.actor(), connection.session);
        match parser.next(&bytes[ran..], &limits) {
            Ok(None) => break,
            Ok(Some(length)) => {
                let args = Args::new(&bytes[ran..], parser.spans());
                connection.answer(output_limit, |session, reply| meanwhile.request(session, args, reply));
                ran += length;
                acceptor.know(connection, meanwhile.actor());
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
fn put_replies(meanwhile: &mut Meanwhile<'_>, connections: &mut Connections, served: &mut Vec<usize>) {
    let replies = meanwhile.take_replies();
    for (to, part) in replies.iter() {
        if let Destination::Session(session, ticket) = to
            && let Some(Some(connection)) = connections.get_mut(session.place as usize)
            && connection.session == session
        {
            let place = session.place as usize;
            // What came before the script, and is not in the log yet, lets nothing past.
            let is_told = meanwhile.may_tell_earlier() || served.contains(&place) || connection.output.is_marked();
            connection.fill(ticket, meanwhile.actor().output_limit(false), &part);
            if is_told {
                served.push(place);
            }
        }
    }
    meanwhile.recycle(replies);
}
