//! Clients that are served while a script has the actor.
//!
//! The thread is deep inside of the script then. What leaves meanwhile may depend on what was there before, if that is in the log;
//! nothing that leaves depends on what the script has changed.

use std::fmt::Debug;
use std::sync::Arc;

use savanna_journal::{Journal, Lsn};
use savanna_keys::actor::message::{Message, Replies};
use savanna_keys::actor::{Actor, Attendant, Progress};
use savanna_keys::placement::ActorId;
use savanna_keys::reply::Reply;
use savanna_keys::request::Args;
use savanna_keys::session::SessionId;
use savanna_ownership::guard::LeaseGuard;

use crate::admission::Admission;
use crate::gate::Depends;
use crate::mailbox::{Mail, Mailbox, Slot};

/// The clients of a thread, as a script's host needs them.
pub trait Clients: Send + Debug {
    /// Takes those that come, and what they say.
    fn read(&mut self, meanwhile: &mut Meanwhile<'_>);
    /// Tells them what may be told.
    fn write(&mut self, meanwhile: &mut Meanwhile<'_>);
}

/// An actor while it runs a script.
#[derive(Debug)]
pub struct Meanwhile<'a> {
    actor: &'a mut Actor,
    durable: Lsn,
    may_tell_earlier: bool,
}

impl Meanwhile<'_> {
    /// The actor, to be looked at.
    #[must_use]
    pub const fn actor(&self) -> &Actor {
        self.actor
    }

    /// For clients that come.
    pub const fn admission(&mut self) -> Admission<'_> {
        Admission::new(self.actor)
    }

    /// Up to where the log is durable.
    #[must_use]
    pub const fn durable(&self) -> Lsn {
        self.durable
    }

    /// Whether replies may leave that were there when the script began.
    #[must_use]
    pub const fn may_tell_earlier(&self) -> bool {
        self.may_tell_earlier
    }

    /// Takes a request. Its reply depends on nothing.
    pub fn request(&mut self, session: SessionId, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        self.actor.request_meanwhile(session, args, reply)
    }

    /// Takes the replies that came from other actors; to be given back.
    #[must_use]
    pub fn take_replies(&mut self) -> Replies {
        self.actor.take_own_replies()
    }

    /// Gives back the memory of replies.
    pub fn recycle(&mut self, replies: Replies) {
        self.actor.recycle(replies);
    }
}

/// Serves clients and mail while a script runs.
#[derive(Debug)]
pub(crate) struct Attendance {
    pub(crate) clients: Box<dyn Clients>,
    pub(crate) slots: Arc<[Slot]>,
    pub(crate) mailbox: Mailbox,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) lease: Option<LeaseGuard>,
    pub(crate) depends: Depends,
}

impl Attendant for Attendance {
    fn attend(&mut self, actor: &mut Actor) {
        if !self.lease.as_ref().is_none_or(LeaseGuard::serving) {
            return;
        }
        self.hear(actor);
        let durable = self.journal.as_ref().map_or(Lsn(u64::MAX), |journal| journal.durable());
        let depends = (!actor.had_changes()).then(|| self.depends.get());
        let may_tell_earlier = depends.is_some_and(|depends| depends <= durable);
        let mut meanwhile = Meanwhile { actor, durable, may_tell_earlier };
        self.clients.read(&mut meanwhile);
        if let Some(depends) = depends {
            self.send(meanwhile.actor, depends, Actor::take_said_before);
        }
        // It depends on nothing.
        self.send(meanwhile.actor, Lsn::NONE, Actor::take_outbox);
        self.clients.write(&mut meanwhile);
    }
}

impl Attendance {
    /// Takes the mail that need not wait for the script.
    fn hear(&self, actor: &mut Actor) {
        while let Some(mail) = self.mailbox.take_new() {
            self.mailbox.put_off(match mail {
                Mail::Messages { from, depends, messages, published } => {
                    let later = messages.into_iter().filter_map(|message| actor.deliver_meanwhile(from, message));
                    Mail::Messages { from, depends, messages: later.collect(), published }
                }
                other => other,
            });
        }
    }

    /// Sends what the actor says to others.
    fn send(&self, actor: &mut Actor, depends: Lsn, take: impl Fn(&mut Actor, ActorId) -> Vec<Message>) {
        for to in actor.actors() {
            let messages = take(actor, to);
            if !messages.is_empty() {
                self.slots[to.index()].put(Mail::messages(actor.id(), depends, messages));
            }
        }
    }
}
