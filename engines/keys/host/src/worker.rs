//! A thread's share of the service: an actor in its host, mail, clocks, the lease, and what watchers are told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use savanna_journal::{Journal, JournalError};
use savanna_keys::actor::message::Replies;
use savanna_keys::actor::saving::CopyFor;
use savanna_keys::actor::{Actor, GroupWay, Owner, Progress, Traffic, Way, is_home};
use savanna_keys::cluster::owners::{Owners, PeerId};
use savanna_keys::error_counts::ErrorCounts;
use savanna_keys::figures::Figures;
use savanna_keys::handle::{Answer, HandleError, KeysNodes, KeysReply};
use savanna_keys::placement::ActorId;
use savanna_keys::reply::Reply;
use savanna_keys::request::Args;
use savanna_keys::session::{ClientMemory, SessionId};
use savanna_lattice::{Hlc, UnixMillis};
use savanna_ownership::guard::LeaseGuard;

use crate::admission::Admission;
use crate::calls::Call;
use crate::courier::{Courier, Departure};
use crate::ending::Ending;
use crate::error::HostError;
use crate::gate::Clearance;
use crate::groups::{GroupCall, Letter};
use crate::host::Host;
use crate::mailbox::{Bell, Mail, Mailbox, Slot};
use crate::meanwhile::{Attendance, Clients};
use crate::memory::Release;
use crate::saving::Desk;

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(10);
/// How long replies wait before the lease is looked at again.
const LEASE_PAUSE: Duration = Duration::from_millis(10);
/// With more replies and messages for sessions than this, a turn takes no more mail.
const HEARD_BYTES: usize = 8 << 20;
/// About as much of the keys is written for a file in a fraction of a millisecond.
const SAVE_BYTES: usize = 256 << 10;
/// How often that is done. The thread sleeps between: one that never does waits for its core when a request comes.
const SAVE_PERIOD: Duration = Duration::from_millis(1);
/// After this time somebody may have what nobody has.
const OWNERLESS_PAUSE_MS: u64 = 50;
/// How old the figures of the service may be.
const FIGURES_PERIOD: Duration = Duration::from_secs(1);

/// What one thread runs. All end when one is dropped, by a panic too: its keys are nobody's then.
///
/// A turn is [`Worker::begin_turn`], requests, [`Worker::finish_turn`]; then replies may be put to their places, and leave as
/// [`Worker::clear`] says. Between turns the thread sleeps for [`Worker::timeout`], between [`Worker::fall_asleep`] and
/// [`Worker::wake_up`].
#[derive(Debug)]
pub struct Worker {
    pub(crate) host: Host<Arc<Journal>>,
    /// The mailboxes of all, this one's too, by actor.
    pub(crate) slots: Arc<[Slot]>,
    pub(crate) mailbox: Mailbox,
    pub(crate) lease: Option<LeaseGuard>,
    /// Asks for keys, if another node has them.
    pub(crate) abroad: Option<Abroad>,
    /// Where what is written for a file with all keys goes, and when to go on with that.
    pub(crate) desk: Arc<Desk>,
    pub(crate) saves_at: Duration,
    pub(crate) has_log_failed: Arc<AtomicBool>,
    /// Its figures, for whoever watches.
    pub(crate) figures: Arc<Mutex<Figures>>,
    /// When they were told last, and whether they may have changed since.
    pub(crate) told_figures_at: UnixMillis,
    pub(crate) owes_figures: bool,
    pub(crate) release: Release,
    pub(crate) ending: Ending,
    pub(crate) is_stopping: bool,
}

/// How a worker reaches keys of other nodes.
#[derive(Debug)]
pub(crate) struct Abroad {
    /// By lanes.
    pub(crate) couriers: Vec<Courier>,
    /// How long those ask that are still to come.
    pub(crate) patience: Duration,
    pub(crate) may_move: bool,
    pub(crate) nodes: Arc<dyn KeysNodes>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.slots.iter().for_each(|slot| slot.put(Mail::Stop));
    }
}

/// What all threads count durations from, and when that was.
static BEGIN: OnceLock<(Instant, UnixMillis)> = OnceLock::new();

fn since_begin() -> Duration {
    BEGIN.get().map_or(Duration::ZERO, |(begin, _)| begin.elapsed())
}

pub(crate) fn unix_now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(since.as_millis() as u64)
}

fn instant() -> Hlc {
    Hlc::of_instant(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl Worker {
    /// Begins, with who serves clients while scripts run. Says when to come again.
    pub fn begin(&mut self, clients: Box<dyn Clients>) -> Option<UnixMillis> {
        let attendance = Attendance {
            clients,
            slots: Arc::clone(&self.slots),
            mailbox: self.mailbox.clone(),
            journal: self.host.log().cloned(),
            lease: self.lease.clone(),
            depends: self.host.depends().clone(),
        };
        let actor = self.host.actor_mut();
        actor.employ(Box::new(attendance));
        let due = actor.tick(unix_now());
        let (_, began) = BEGIN.get_or_init(|| (Instant::now(), unix_now()));
        actor.keep_time(since_begin, instant, *began);
        due
    }

    /// Its actor, to be looked at.
    #[must_use]
    pub const fn actor(&self) -> &Actor {
        self.host.actor()
    }

    /// For clients that come and go.
    pub const fn admission(&mut self) -> Admission<'_> {
        Admission::new(self.host.actor_mut())
    }

    /// Runs a request of a session.
    #[inline]
    pub fn request(&mut self, session: SessionId, args: Args<'_>, reply: &mut dyn Reply) -> Progress {
        self.host.request(session, args, reply)
    }

    /// Brings the entries of keys near that a session's next requests are about. See [`Actor::bring_near`].
    pub fn bring_near(&mut self, session: SessionId, keys: &[&[u8]]) {
        self.host.actor_mut().bring_near(session, keys);
    }

    /// Notes errors that clients were told.
    pub fn note_errors(&mut self, errors: &ErrorCounts) {
        self.host.actor_mut().note_errors(errors);
    }

    /// Notes what came from clients and went to them.
    pub const fn note_traffic(&mut self, traffic: Traffic) {
        self.host.actor_mut().note_traffic(traffic);
    }

    /// Notes what a session's connection takes. Says how much the client takes, and whether it may be sent away for that.
    #[inline]
    pub fn note_client_memory(&mut self, session: SessionId, memory: ClientMemory) -> (usize, bool) {
        self.host.actor_mut().note_client_memory(session, memory)
    }

    /// Whether it was told to stop.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Does what is due, and takes the mail, unless there is much for clients already. Says when to come again. This may run
    /// scripts.
    pub fn begin_turn(&mut self) -> Option<UnixMillis> {
        let due = self.host.actor_mut().tick(unix_now());
        if let Some(abroad) = &self.abroad {
            let owner = abroad.nodes.owner();
            self.host.actor_mut().hear_owner(owner);
        }
        self.host.note_space();
        while self.actor().reply_bytes() < HEARD_BYTES
            && let Some(mail) = self.mailbox.take()
        {
            self.own_slot().note_heard(&mail);
            match mail {
                Mail::Stop => self.is_stopping = true,
                Mail::Owners(owners) => self.hear_owners(&owners),
                Mail::Told(replies) => self.host.actor_mut().hear_answers(*replies),
                Mail::Answered { lane, number, outcome } => self.hear_answers(lane, number, *outcome),
                mail => {
                    let is_ended = matches!(&mail, Mail::Departure(order) if order.is_end());
                    self.host.hear(mail, post_to(&self.slots));
                    if is_ended {
                        self.ask_at_once();
                    }
                }
            }
        }
        self.host.actor_mut().run_groups();
        due
    }

    /// What waits to be asked again is asked at once: somebody has it by now.
    fn ask_at_once(&mut self) {
        let now = since_begin();
        self.abroad.iter_mut().flat_map(|abroad| &mut abroad.couriers).for_each(|courier| courier.hurry(now));
    }

    /// Hears who has which keys. What a node was asked that is gone it does not answer any more.
    fn hear_owners(&mut self, owners: &Arc<Owners>) {
        let actor = self.host.actor_mut();
        actor.hear_owners(owners);
        let own = &self.slots[actor.id().index()];
        let is_gone = |peer: PeerId| owners.peer(peer).is_none_or(|peer| !peer.is_there);
        for (lane, courier) in self.abroad.iter().flat_map(|abroad| &abroad.couriers).enumerate() {
            if let Some(number) = courier.in_vain(is_gone) {
                let reason = "the node that was asked is gone".to_owned();
                let outcome = Box::new(Err(HandleError::Unavailable { reason, may_have_run: true }));
                own.put(Mail::Answered { lane, number, outcome });
            }
        }
    }

    fn hear_answers(&mut self, lane: usize, number: u64, outcome: Result<KeysReply, HandleError>) {
        let Some(courier) = self.abroad.as_mut().and_then(|abroad| abroad.couriers.get_mut(lane)) else { return };
        let replies = courier.hear(since_begin(), number, outcome);
        let actor = self.host.actor_mut();
        for (node, owner, epoch) in courier.take_moved() {
            // It is known here before the records say so: what was refused is asked there at once.
            if actor.learn_owner(node, Owner::Other(owner), epoch) {
                courier.hurry(since_begin());
            }
        }
        actor.end_asked(&courier.take_ended());
        actor.hear_answers(replies);
    }

    /// Asks other nodes for what is due.
    fn ask(&mut self) {
        let Some(abroad) = &mut self.abroad else { return };
        let actor = self.host.actor_mut();
        let own = &self.slots[actor.id().index()];
        while abroad.couriers.len() < actor.lanes() {
            abroad.couriers.push(Courier::of_lane(abroad.patience, abroad.may_move));
        }
        let now = since_begin();
        for (lane, courier) in abroad.couriers.iter_mut().enumerate() {
            let Some(departure) = courier.depart(now, || actor.take_asked(lane)) else { continue };
            let Departure { to, about, mut request, number } = departure;
            let way = actor.way_of(lane, about);
            if to.is_none() && about.is_some() && !is_home(lane, &way) {
                // Parts about all keys of the lane's own node are nobody else's.
                let (replies, rest) = courier.shed();
                if !replies.is_empty() {
                    own.put(Mail::Told(Box::new(replies)));
                }
                let Some(rest) = rest else { continue };
                request = rest;
            }
            let slot = own.clone();
            let answer =
                Answer::new(move |outcome| slot.put(Mail::Answered { lane, number, outcome: Box::new(outcome) }));
            if let Some(node) = to {
                abroad.nodes.at(&node).call(request, answer);
                continue;
            }
            match way {
                Way::Here => own.put(Mail::Call(Call { request, answer })),
                Way::To(peer, node) => {
                    courier.note_peer(peer);
                    abroad.nodes.at(&node).call(request, answer);
                }
                Way::Nowhere => answer.give(Err(HandleError::Frozen { retry_after_ms: OWNERLESS_PAUSE_MS })),
                Way::Gone => {
                    let reason = "the node is gone".to_owned();
                    answer.give(Err(HandleError::Unavailable { reason, may_have_run: false }));
                }
            }
        }
    }

    fn own_slot(&self) -> &Slot {
        &self.slots[self.actor().id().index()]
    }

    /// Appends what was changed, and sends mail. Replies may be told from now on, as [`Worker::clear`] says.
    ///
    /// # Errors
    /// The log has ended. Nothing may be told.
    pub fn finish_turn(&mut self) -> Result<(), HostError> {
        // There is to be a file before anybody writes for it.
        if let Some(order) = self.host.actor_mut().take_save_begun() {
            self.desk.begin(order);
        }
        let now = if self.actor().is_rewriting() { since_begin() } else { Duration::ZERO };
        self.host.finish_turn(now, post_to(&self.slots)).map_err(HostError::Ended)?;
        if self.host.actor_mut().take_stop_wanted() {
            self.ending.ask();
        }
        self.save_some();
        self.ask();
        self.tell_figures();
        Ok(())
    }

    /// Goes on with a file with all keys, if one is being written. What the actor changed is appended.
    fn save_some(&mut self) {
        if !self.actor().is_saving() || since_begin() < self.saves_at {
            return;
        }
        self.saves_at = since_begin() + SAVE_PERIOD;
        let bytes = if self.desk.takes_more() { SAVE_BYTES } else { 0 };
        let depends = self.host.depends().get();
        let actor = self.host.actor_mut();
        let saved = actor.save_some(bytes);
        let number = saved.number;
        if (saved.is_done || saved.pieces.byte_count() > 0) && !self.desk.put(actor.id(), saved, depends) {
            actor.end_walk(number);
        }
    }

    /// Takes the files that clients are to be sent.
    #[must_use]
    pub fn take_copies(&mut self) -> Vec<CopyFor> {
        self.host.actor_mut().take_copies()
    }

    /// Ends: hands to the log what is not there.
    ///
    /// # Errors
    /// The log has ended.
    pub fn finish(&mut self) -> Result<(), HostError> {
        self.host.append().map_err(HostError::Ended)
    }

    /// Takes the replies that came for its sessions from other actors; to be given back.
    #[must_use]
    pub fn take_replies(&mut self) -> Replies {
        self.host.actor_mut().take_own_replies()
    }

    /// Gives back the memory of replies.
    pub fn recycle(&mut self, replies: Replies) {
        self.host.actor_mut().recycle(replies);
    }

    /// Takes the sessions that end when they have been told what they asked for.
    #[must_use]
    pub fn take_closing(&mut self) -> Vec<SessionId> {
        self.host.actor_mut().take_closing()
    }

    /// Takes the sessions that have to end.
    #[must_use]
    pub fn take_dismissed(&mut self) -> Vec<SessionId> {
        self.host.actor_mut().take_dismissed()
    }

    /// Whether this process is the one that serves these keys. If not, another one may have changed them already, and nobody
    /// may be told anything.
    #[must_use]
    pub fn may_tell(&self) -> bool {
        self.lease.as_ref().is_none_or(LeaseGuard::serving)
    }

    /// Says what clients may be told, and tells other nodes what they asked for; the log wakes the thread when that is more.
    ///
    /// # Errors
    /// The log has ended. Nothing may be told.
    pub fn clear(&mut self) -> Result<Clearance, HostError> {
        if self.has_log_failed.load(Ordering::Acquire) {
            return Err(HostError::Ended(JournalError::Stopped { reason: "a flush failed".to_owned() }));
        }
        let clearance = self.host.clear();
        if let (Some(wake_at), Some(journal)) = (clearance.wake_at, self.host.log()) {
            let (bell, failed) = (self.bell().clone(), Arc::clone(&self.has_log_failed));
            journal.gate().hold(wake_at, move |outcome| {
                if outcome.is_err() {
                    failed.store(true, Ordering::Release);
                }
                bell.ring();
            });
        }
        if self.host.owes_others() && self.may_tell() {
            self.host.tell_others(clearance);
            let letters = self.host.take_letters(clearance);
            letters.into_iter().for_each(|letter| self.send_letter(letter));
        }
        Ok(clearance)
    }

    /// Sends what is said about a group.
    fn send_letter(&self, letter: Letter) {
        let (number, request) = match letter {
            Letter::Answer(answer, outcome) => return answer.give(outcome),
            Letter::Ask(number, request) => (number, request),
        };
        let own = self.own_slot().clone();
        let answer = Answer::new(move |outcome| own.put(Mail::GroupAnswered { number, outcome: Box::new(outcome) }));
        match (self.actor().way_of_group(request.to()), &self.abroad) {
            (GroupWay::At(actor), _) => self.slots[actor.index()].put(Mail::Group(GroupCall { request, answer })),
            (GroupWay::To(node), Some(abroad)) => abroad.nodes.at(&node).group(request, answer),
            _ => answer.give(Err(HandleError::Frozen { retry_after_ms: OWNERLESS_PAUSE_MS })),
        }
    }

    /// Wakes this thread.
    #[must_use]
    pub const fn bell(&self) -> &Bell {
        self.mailbox.bell()
    }

    /// Whether another thread was told something that was published since this was asked last, and any has much of that to hear.
    #[must_use]
    pub fn has_published_too_much(&mut self) -> bool {
        self.host.actor_mut().has_published_elsewhere() && self.is_anybody_behind()
    }

    /// Whether a thread has much to hear of what was published.
    #[must_use]
    pub fn is_anybody_behind(&self) -> bool {
        self.slots.iter().any(Slot::is_behind)
    }

    /// How long the thread may sleep, if it was told to come again at `due`, and has something to tell if `waits`.
    #[must_use]
    pub fn timeout(&self, due: Option<UnixMillis>, waits: bool) -> Duration {
        let (actor, now) = (self.actor(), unix_now());
        if actor.owes_room() {
            return Duration::ZERO;
        }
        let until = |due: UnixMillis| Duration::from_millis(due.0.saturating_sub(now.0));
        let dues = [due, actor.next_time_out(), actor.gossip_due()].into_iter().flatten().map(until);
        let mut timeout = dues.min().unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
        let waits = waits || self.host.owes_others();
        if waits && !self.may_tell() {
            timeout = timeout.min(LEASE_PAUSE);
        }
        if self.owes_figures {
            timeout = timeout.min(FIGURES_PERIOD);
        }
        if let Some(due) = self.host.rewrite_due() {
            timeout = timeout.min(due.saturating_sub(since_begin()));
        }
        if actor.is_departing() {
            timeout = timeout.min(SAVE_PERIOD);
        }
        if actor.has_groups_to_run() {
            timeout = Duration::ZERO;
        }
        if let Some(due) = actor.groups_due() {
            timeout = timeout.min(due.saturating_sub(since_begin()));
        }
        if actor.is_saving() {
            timeout = timeout.min(self.saves_at.saturating_sub(since_begin()));
        }
        if let Some(due) = self.abroad.iter().flat_map(|abroad| &abroad.couriers).filter_map(Courier::due).min() {
            timeout = timeout.min(due.saturating_sub(since_begin()));
        }
        self.release.due().map_or(timeout, |due| timeout.min(due))
    }

    /// Says that the thread is about to sleep. Says whether it may: there is no mail, and if it `waits` to tell something, not more
    /// of that may be told than before. What comes later wakes it.
    #[must_use]
    pub fn fall_asleep(&self, waits: bool) -> bool {
        self.mailbox.fall_asleep();
        let waits = waits || self.host.owes_others();
        let may_tell_more = waits && self.may_tell() && self.host.may_clear_more();
        !may_tell_more && !self.mailbox.has_mail()
    }

    /// Says that the thread slept so long, and is awake, and whether there is something to do. Memory that is free goes back if it is
    /// time.
    pub fn wake_up(&mut self, slept: Duration, is_busy: bool) {
        self.mailbox.wake_up();
        let is_busy = is_busy || self.mailbox.has_mail() || self.host.actor_mut().is_dropping();
        self.release.wake(slept, is_busy);
    }

    /// Tells the figures, not at every turn: keys that have copies are counted one by one.
    fn tell_figures(&mut self) {
        let now = self.actor().now();
        self.owes_figures = now.0.saturating_sub(self.told_figures_at.0) < FIGURES_PERIOD.as_millis() as u64;
        if !self.owes_figures {
            self.told_figures_at = now;
            *self.figures.lock() = self.actor().figures();
        }
    }
}

/// Puts mail into the mailboxes.
fn post_to(slots: &[Slot]) -> impl FnMut(ActorId, Mail) {
    |to, mail| slots[to.index()].put(mail)
}
