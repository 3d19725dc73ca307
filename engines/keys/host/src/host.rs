//! One actor in its host: what is appended, when mail leaves, what may be told, when keys are written once more.
//!
//! A turn runs requests and mail. Then, in this order: the actor's changes are appended to the log, mail for other actors
//! leaves, and what may be told is judged. There are no threads, clocks or sockets here: a thread drives it ([`crate::Worker`]),
//! or a simulation.

use std::time::Duration;

use savanna_journal::{JournalError, Lsn};
use savanna_keys::actor::{Actor, Progress};
use savanna_keys::config::Sync;
use savanna_keys::log::Inherited;
use savanna_keys::placement::ActorId;
use savanna_keys::reply::Reply;
use savanna_keys::request::Args;
use savanna_keys::session::SessionId;

use crate::calls::{Call, Calls};
use crate::gate::{Clearance, Depends, Gate};
use crate::groups::{GroupCall, Letter, Letters};
use crate::log::Log;
use crate::mailbox::Mail;
use crate::rewrite::{Pace, Rewrites};
use crate::spread::TakenIn;

/// About as much is written in a fraction of a millisecond.
const REWRITE_BYTES: usize = 256 << 10;

/// The actor that decides about rewrites for all.
const FIRST: ActorId = ActorId(0);

/// An actor, what it depends on, and its part in keeping the log short.
#[derive(Debug)]
pub struct Host<L> {
    actor: Actor,
    log: Option<L>,
    gate: Gate,
    /// What is told now waits until the log is durable up to here, whatever is set.
    awaited: Lsn,
    calls: Calls,
    letters: Letters,
    pace: Pace,
    /// Used by the first.
    rewrites: Rewrites,
    /// Whether all that is to be logged of a rewrite has arrived, and is to be appended when it was taken in.
    is_to_settle: bool,
    /// Bytes of keys that are written again at once.
    rewrite_bytes: usize,
    /// Whether the first is to hear that this one has appended what a rewrite needs, after what this one has told.
    is_rewritten: bool,
    /// Who waits until keys that were taken in are appended.
    taken_in: Vec<TakenIn>,
}

impl<L: Log> Host<L> {
    /// Hosts an actor whose log was read, if there is one.
    #[must_use]
    pub fn new(actor: Actor, log: Option<L>) -> Self {
        Self {
            actor,
            log,
            gate: Gate::default(),
            awaited: Lsn::NONE,
            calls: Calls::default(),
            letters: Letters::default(),
            pace: Pace::default(),
            rewrites: Rewrites::default(),
            is_to_settle: false,
            rewrite_bytes: REWRITE_BYTES,
            is_rewritten: false,
            taken_in: Vec::new(),
        }
    }

    /// Writes so many bytes of keys again at once.
    #[must_use]
    pub const fn rewriting_by(mut self, bytes: usize) -> Self {
        self.rewrite_bytes = bytes;
        self
    }

    /// Its actor, to be looked at.
    #[must_use]
    pub const fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Its actor, for what needs neither the log nor other actors.
    pub const fn actor_mut(&mut self) -> &mut Actor {
        &mut self.actor
    }

    /// Its log.
    #[must_use]
    pub const fn log(&self) -> Option<&L> {
        self.log.as_ref()
    }

    /// What everything that is said from now on depends on.
    pub(crate) const fn depends(&self) -> &Depends {
        self.gate.depends()
    }

    /// Runs a request of a session. Its reply may be told when [`Host::clear`] says so.
    #[inline]
    pub fn request(&mut self, session: SessionId, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        self.actor.request(session, args, reply)
    }

    /// Takes mail; what it leads to is handed to `post`.
    pub fn hear(&mut self, mail: Mail, post: impl FnMut(ActorId, Mail)) {
        match mail {
            Mail::Messages { from, depends, messages, .. } => {
                self.gate.note(depends);
                messages.into_iter().for_each(|message| self.actor.deliver(from, message));
            }
            Mail::WantRewrite => self.begin_rewrite(post),
            Mail::Rewrite => self.actor.begin_rewrite(),
            Mail::Rewritten(end) => {
                if self.rewrites.hear_done(end) {
                    self.post_to_all(post, || Mail::Settle);
                }
            }
            Mail::Settle => self.is_to_settle = true,
            Mail::Call(Call { request, answer }) => {
                let number = self.actor.serve(&request);
                self.calls.begin(number, answer);
            }
            Mail::Group(GroupCall { request, answer }) => {
                let number = self.actor.serve_group(request);
                self.letters.begin(number, answer);
            }
            Mail::GroupAnswered { number, outcome } => self.actor.hear_group(number, *outcome),
            Mail::Saved(outcome) => self.actor.end_save(&outcome),
            Mail::Arriving(arriving) => {
                let (Inherited { keys, groups, latest }, taken) = arriving.into_parts();
                let outcome = self.actor.take_over(keys, groups, latest);
                self.taken_in.push((taken, outcome.map_err(|refusal| refusal.to_string())));
            }
            Mail::Departure(order) => order.carry_out(&mut self.actor),
            Mail::Arrival(arrival) => self.taken_in.push(arrival.carry_out(&mut self.actor)),
            // For whoever drives it.
            Mail::Answered { .. } | Mail::Owners(_) | Mail::Told(_) | Mail::Stop => {}
        }
    }

    /// Notes whether the log has space for changes.
    pub fn note_space(&mut self) {
        if let Some(log) = &self.log {
            self.actor.note_log_full(log.full());
        }
    }

    /// Ends a turn, `now` after some beginning: appends what was changed, then hands mail to `post`.
    ///
    /// # Errors
    /// The log has ended. Nothing more may be told.
    pub fn finish_turn(&mut self, now: Duration, mut post: impl FnMut(ActorId, Mail)) -> Result<(), JournalError> {
        self.rewrite(now, &mut post)?;
        self.actor.go_on_departing();
        // Who reads a message may write what follows from it: the log has to have this actor's part first.
        self.append()?;
        self.actor.tell_departures();
        for (taken, outcome) in self.taken_in.drain(..) {
            // Who has gone asks again.
            let _ = taken.send(outcome.map(|()| self.gate.depends().get()));
        }
        self.actor.tell_trackers();
        for (number, reply) in self.actor.take_answered() {
            self.calls.end(number, reply);
        }
        self.actor.take_group_letters().into_iter().for_each(|letter| self.letters.take(letter));
        for to in self.actor.actors() {
            let messages = self.actor.take_outbox(to);
            if !messages.is_empty() {
                post(to, Mail::messages(self.actor.id(), self.gate.depends().get(), messages));
            }
        }
        if std::mem::take(&mut self.is_rewritten) {
            post(FIRST, Mail::Rewritten(self.gate.depends().get()));
        }
        Ok(())
    }

    /// Appends what the actor changed: before anybody hears of it, the operating system has it at least.
    ///
    /// # Errors
    /// The log has ended.
    pub fn append(&mut self) -> Result<(), JournalError> {
        let Some(log) = &self.log else {
            self.actor.forget_changes();
            return Ok(());
        };
        if !self.actor.has_changes() {
            return Ok(());
        }
        let sync = self.actor.sync();
        let last = self.actor.append_changes(|draft| log.append(draft, sync))?;
        self.gate.note(last.unwrap_or_default());
        Ok(())
    }

    /// What may be told now.
    pub fn clear(&mut self) -> Clearance {
        let Some(log) = &self.log else {
            return Clearance { held: None, durable: Lsn(u64::MAX), wake_at: None };
        };
        let depends = self.gate.depends().get();
        let durable = log.durable();
        if self.actor.take_flush_awaited() {
            self.awaited = depends;
        }
        let is_kept = match self.actor.sync() {
            Sync::Always => depends <= durable,
            Sync::EverySecond | Sync::No => self.awaited <= durable && log.survives(depends),
        };
        self.gate.clear(durable, is_kept)
    }

    /// Tells other nodes what they may be told.
    pub fn tell_others(&mut self, clearance: Clearance) {
        self.calls.release(clearance);
    }

    /// Takes what may be said about groups.
    pub(crate) fn take_letters(&mut self, clearance: Clearance) -> Vec<Letter> {
        self.letters.release(clearance)
    }

    /// Whether other nodes are to be told something.
    #[must_use]
    pub fn owes_others(&self) -> bool {
        self.calls.wait() || self.letters.wait()
    }

    /// Whether more may be told than [`Host::clear`] said last.
    #[must_use]
    pub fn may_clear_more(&self) -> bool {
        self.log.as_ref().is_some_and(|log| self.gate.has_news(log.durable()))
    }

    /// When keys are to be written again next, if they are.
    #[must_use]
    pub fn rewrite_due(&self) -> Option<Duration> {
        self.actor.is_rewriting().then(|| self.pace.due())
    }

    /// Goes on with a rewrite of the log, if there is one; the first also sees whether one is due or done.
    fn rewrite(&mut self, now: Duration, post: &mut impl FnMut(ActorId, Mail)) -> Result<(), JournalError> {
        if self.log.is_none() {
            return Ok(());
        }
        if self.actor.take_rewrite_wanted() {
            post(FIRST, Mail::WantRewrite);
        }
        let is_written = self.may_rewrite(now) && self.rewrite_some(now);
        let has_settled = self.is_to_settle && self.actor.settle_rewrite();
        self.is_to_settle &= !has_settled;
        if is_written || has_settled {
            self.append()?;
            self.is_rewritten = true;
        }
        if self.actor.id() != FIRST {
            return Ok(());
        }
        let Some(appended) = self.log.as_ref().map(Log::appended_bytes) else { return Ok(()) };
        if self.rewrites.is_due(appended) {
            self.begin_rewrite(post);
        }
        if let Some(log) = &self.log
            && let Some(oldest) = self.rewrites.finish(log.durable(), appended)
        {
            log.truncate_before(oldest)?;
            tracing::info!(%oldest, "the log of the keys service was shortened");
        }
        Ok(())
    }

    /// Whether keys are to be written again now.
    fn may_rewrite(&mut self, now: Duration) -> bool {
        let Some(log) = &self.log else { return false };
        self.actor.is_rewriting() && self.pace.may_write(now, self.actor.has_log_space(), || log.backlog())
    }

    /// Writes some keys again. Says whether that were the last.
    fn rewrite_some(&mut self, now: Duration) -> bool {
        let before = self.actor.changes().len();
        let is_written = self.actor.rewrite_some(self.rewrite_bytes);
        self.pace.note_written(now, is_written || self.actor.changes().len() > before);
        is_written
    }

    /// Begins a rewrite by all, unless one is under way.
    fn begin_rewrite(&mut self, post: impl FnMut(ActorId, Mail)) {
        let Some(log) = &self.log else { return };
        if self.rewrites.begin(log.appended(), log.appended_bytes(), self.actor.actors().count()) {
            self.post_to_all(post, || Mail::Rewrite);
        }
    }

    fn post_to_all(&self, mut post: impl FnMut(ActorId, Mail), mail: impl Fn() -> Mail) {
        self.actor.actors().for_each(|to| post(to, mail()));
    }
}
