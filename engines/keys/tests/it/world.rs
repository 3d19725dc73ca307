//! Several actors with queues between them. A seed decides which message is delivered next, so that any delay happens.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use savanna_keys::actor::gossip::{Gossip, PERIOD};
use savanna_keys::actor::message::{Destination, Message, Notice};
use savanna_keys::actor::{Actor, Progress};
use savanna_keys::config::Config;
use savanna_keys::delta;
use savanna_keys::handle::{Answer, KeysRequest};
use savanna_keys::keyspace::Keyspace;
use savanna_keys::keyspace::replica::{Content, Item};
use savanna_keys::placement::{ActorId, Routes};
use savanna_keys::reply::Tape;
use savanna_keys::request::OwnedArgs;
use savanna_keys::session::{SessionId, Ticket};
use savanna_keys_host::{Call, Clearance, Host, Lsn, Mail};
use savanna_lattice::{Hlc, Incarnated, Incarnation, Stamp, UnixMillis, WriterId};

use crate::log::SimLog;

/// Chance from a seed (SplitMix64).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }
}

/// A client of one of the actors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) actor: usize,
    pub(crate) session: SessionId,
}

/// The hosts of all actors, and what is on its way between them. Mail from one to another keeps its order.
pub(crate) struct World {
    hosts: Vec<Host<SimLog>>,
    queues: Vec<Vec<VecDeque<Mail>>>,
    /// What replicas tell each other, with what it depends on: it may come in any order, and twice.
    gossip: Vec<(usize, usize, Lsn, Gossip)>,
    /// How many of such messages were sent.
    pub(crate) told: usize,
    pub(crate) fault: Fault,
    /// Whether what replicas tell keeps its order among the other messages, as in threads' mailboxes.
    pub(crate) is_orderly: bool,
    /// What the actors appended, one behind the other.
    pub(crate) log: SimLog,
    /// Whether all changes are kept, not only those of keys with replicas.
    has_log: bool,
    pub(crate) now: UnixMillis,
    /// Replies that came late.
    arrived: HashMap<(usize, SessionId, Ticket), Tape>,
    kept: u64,
    /// What sessions were told late, in its order, if that is kept: replies, and without a place what they did not ask for.
    told_sessions: Option<HashMap<(usize, SessionId), Vec<Told>>>,
    pub(crate) chance: Chance,
}

/// A reply that came late, or without a place what a session did not ask for.
type Told = (Option<Ticket>, Tape);

/// What goes wrong with what replicas tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It comes late, twice and in any order, which is right.
    Disorder,
    /// One in eight is lost.
    Loss,
    /// Who hears something tells it to the others, as if it had made the change.
    Echo,
    /// Everybody says of itself to have heard everything.
    Boast,
    /// It leaves before the changes that it is about are in the log.
    LateAppend,
    /// Deletions are left out.
    NoDeletions,
    /// Each change is taken into the life that the receiver has.
    NoLives,
    /// A deletion ends the life of what the receiver has, seen or not.
    BlindDeletions,
    /// A copy answers as soon as it has heard all that the first replica knew.
    Haste,
    /// Actors know the time of the present turn only.
    SlowClocks,
    /// Nobody holds back what is not durable. For whoever tells.
    NoGate,
    /// Nobody holds back what other nodes are told.
    NoGateElsewhere,
    /// Mail does not say what it depends on.
    Unmarked,
    /// Who has written its keys once more says so twice.
    Overcounted,
}

/// The simulation's first instant.
pub(crate) const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

thread_local! {
    static INSTANT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn next_instant() -> Hlc {
    INSTANT.set(INSTANT.get() + Duration::from_micros(1));
    Hlc::of_instant(INSTANT.get())
}

/// Whether it says that elements are gone without naming them.
fn clears(item: &Item) -> bool {
    let is_unnamed = match item.state.as_ref().and_then(Incarnated::content) {
        Some(Content::Set(members)) => members.named().is_none(),
        Some(Content::Hash(fields)) => fields.named().is_none(),
        Some(Content::SortedSet(members)) => members.named().is_none(),
        _ => false,
    };
    is_unnamed && !item.is_whole
}

/// Actors that know nothing yet.
pub(crate) fn new_actors(count: u16, config: &Config, seed: u64) -> Vec<Actor> {
    let routes = Routes::over(count);
    routes.all().map(|id| Actor::new(id, routes.clone(), config.clone(), seed)).collect()
}

/// The states of copies that join, among what is told.
fn joining(mail: &Mail) -> Vec<Item> {
    let Mail::Messages { messages, .. } = mail else { return Vec::new() };
    let told = messages.iter().filter_map(|message| match message {
        Message::Gossip(gossip) => Some(&gossip.items),
        _ => None,
    });
    told.flatten().filter(|item| item.is_whole).cloned().collect()
}

impl World {
    pub(crate) fn new(actors: u16, seed: u64) -> Self {
        let log = SimLog::default();
        let config = Config { is_logged: true, ..Config::default() };
        let mut actors = new_actors(actors, &config, seed);
        actors.iter_mut().for_each(|actor| {
            actor.tick(NOW);
        });
        Self::of(actors, log, seed)
    }

    /// A world of these actors, whose changes go to this log.
    pub(crate) fn of(actors: Vec<Actor>, log: SimLog, seed: u64) -> Self {
        let count = actors.len();
        Self {
            // One key at a time is written once more, so that anything may happen between two.
            hosts: actors.into_iter().map(|actor| Host::new(actor, Some(log.clone())).rewriting_by(1)).collect(),
            queues: (0..count).map(|_| (0..count).map(|_| VecDeque::new()).collect()).collect(),
            gossip: Vec::new(),
            told: 0,
            fault: Fault::Disorder,
            is_orderly: false,
            log,
            has_log: false,
            now: NOW,
            arrived: HashMap::new(),
            kept: 0,
            told_sessions: None,
            chance: Chance::new(seed),
        }
    }

    /// All actors.
    pub(crate) fn actors(&self) -> impl Iterator<Item = &Actor> {
        self.hosts.iter().map(Host::actor)
    }

    /// All actors, to have something done to them that no request does.
    pub(crate) fn actors_mut(&mut self) -> impl Iterator<Item = &mut Actor> {
        self.hosts.iter_mut().map(Host::actor_mut)
    }

    /// How many actors there are.
    pub(crate) fn actor_count(&self) -> usize {
        self.hosts.len()
    }

    /// One of them.
    pub(crate) fn actor(&self, index: usize) -> &Actor {
        self.hosts[index].actor()
    }

    /// One of them, as in [`World::actors_mut`].
    pub(crate) fn actor_mut(&mut self, index: usize) -> &mut Actor {
        self.hosts[index].actor_mut()
    }

    /// Lets the actors know the instant of each change, unless their clocks are slow.
    pub(crate) fn keep_time(&mut self) {
        INSTANT.set(Duration::from_millis(self.now.0));
        if self.fault != Fault::SlowClocks {
            self.actors_mut().for_each(|actor| actor.keep_time(|| Duration::ZERO, next_instant, NOW));
        }
    }

    pub(crate) fn client(&mut self, actor: usize) -> Client {
        Client { actor, session: self.actor_mut(actor).open_session(String::new(), String::new()) }
    }

    /// Sends a request that no pause holds back. Gives its reply, or the place of the one that comes later.
    pub(crate) fn request(&mut self, client: Client, words: &[&str]) -> Result<Tape, Ticket> {
        self.try_request(client, words).expect("a request that is not held back")
    }

    /// Sends a request. Gives its reply, or the place of the one that comes later; `None` if it is held back by a pause.
    pub(crate) fn try_request(&mut self, client: Client, words: &[&str]) -> Option<Result<Tape, Ticket>> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut tape = Tape::new();
        let host = &mut self.hosts[client.actor];
        let progress = host.request(client.session, OwnedArgs::of_words(&words).args(), &mut tape);
        self.collect(client.actor);
        match progress {
            Progress::Answered | Progress::Closing => Some(Ok(tape)),
            Progress::Later(ticket) | Progress::LaterAlone(ticket) | Progress::LaterClosing(ticket) => {
                Some(Err(ticket))
            }
            Progress::Held => None,
        }
    }

    /// The reply of that place, if it came.
    pub(crate) fn arrived(&mut self, client: Client, ticket: Ticket) -> Option<Tape> {
        self.arrived.remove(&(client.actor, client.session, ticket))
    }

    /// Keeps what sessions are told late, in its order.
    pub(crate) fn keep_told(&mut self) {
        self.told_sessions = Some(HashMap::new());
    }

    /// Takes what a client was told late, in its order: replies, and without a place what it did not ask for.
    pub(crate) fn take_told(&mut self, client: Client) -> Vec<(Option<Ticket>, Tape)> {
        let told = self.told_sessions.as_mut().and_then(|told| told.remove(&(client.actor, client.session)));
        told.unwrap_or_default()
    }

    /// Keeps a reply that came at once as if it had come late.
    pub(crate) fn keep(&mut self, client: Client, tape: Tape) -> Ticket {
        self.kept += 1;
        let ticket = Ticket(u64::MAX - self.kept);
        self.arrived.insert((client.actor, client.session, ticket), tape);
        ticket
    }

    /// Sends a request and delivers messages until the reply is there.
    pub(crate) fn call(&mut self, client: Client, words: &[&str]) -> String {
        let ticket = match self.request(client, words) {
            Ok(tape) => return tape.to_string(),
            Err(ticket) => ticket,
        };
        loop {
            if let Some(tape) = self.arrived(client, ticket) {
                return tape.to_string();
            }
            assert!(self.deliver_one(), "no reply to {words:?}, and nothing is on its way");
        }
    }

    /// Delivers one message, if there is one.
    pub(crate) fn deliver_one(&mut self) -> bool {
        let actors = self.actor_count();
        let busy: Vec<(usize, usize)> = (0..actors)
            .flat_map(|from| (0..actors).map(move |to| (from, to)))
            .filter(|(from, to)| !self.queues[*from][*to].is_empty())
            .collect();
        if busy.is_empty() && self.gossip.is_empty() {
            return false;
        }
        let place = self.chance.below(busy.len() + usize::from(!self.gossip.is_empty()));
        if place == busy.len() {
            self.deliver_gossip();
            return true;
        }
        let (from, to) = busy[place];
        self.deliver(from, to);
        true
    }

    /// Delivers what an actor has said so far, as threads' mailboxes have it before anything that is said later.
    pub(crate) fn deliver_from(&mut self, from: usize) {
        for to in 0..self.actor_count() {
            for _ in 0..self.queues[from][to].len() {
                self.deliver(from, to);
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        if let Some(mail) = self.queues[from][to].pop_front() {
            let arrived = if self.fault == Fault::Haste { joining(&mail) } else { Vec::new() };
            self.hear(to, mail);
            for Item { database, key, vector, .. } in arrived {
                let notice = Notice::Joined { database, key, vector, asked: 0, seen: Vec::new() };
                self.hear_message(from, to, Lsn::NONE, Message::Notice(notice));
            }
        }
        self.collect(to);
    }

    fn hear_message(&mut self, from: usize, to: usize, depends: Lsn, message: Message) {
        self.hear(to, Mail::messages(ActorId(from as u16), depends, vec![message]));
    }

    fn hear(&mut self, to: usize, mail: Mail) {
        let mut posted = Vec::new();
        self.hosts[to].hear(mail, |next, mail| posted.push((next, mail)));
        posted.into_iter().for_each(|(next, mail)| self.post(to, next.index(), mail));
    }

    /// Sends mail on its way: messages one by one, so that anything may happen between them.
    fn post(&mut self, from: usize, to: usize, mail: Mail) {
        if let (Mail::Rewritten(end), Fault::Overcounted) = (&mail, self.fault) {
            self.queues[from][to].push_back(Mail::Rewritten(*end));
        }
        let Mail::Messages { from: sender, depends, messages, .. } = mail else {
            self.queues[from][to].push_back(mail);
            return;
        };
        let depends = if self.fault == Fault::Unmarked { Lsn::NONE } else { depends };
        for message in messages {
            match message {
                Message::Gossip(gossip) if !self.is_orderly => self.tell(from, to, depends, gossip),
                message => self.queues[from][to].push_back(Mail::messages(sender, depends, vec![message])),
            }
        }
    }

    /// Lets the time be this for all.
    pub(crate) fn tick(&mut self, now: UnixMillis) {
        for actor in 0..self.actor_count() {
            self.actor_mut(actor).tick(now);
            self.collect(actor);
        }
    }

    /// Ends a client's session.
    pub(crate) fn close(&mut self, client: Client) {
        self.actor_mut(client.actor).close_session(client.session);
        self.collect(client.actor);
    }

    /// Delivers everything.
    pub(crate) fn settle(&mut self) {
        while self.deliver_one() {}
    }

    /// Delivers everything but what replicas tell each other.
    pub(crate) fn settle_requests(&mut self) {
        let gossip = std::mem::take(&mut self.gossip);
        self.settle();
        self.gossip = gossip;
    }

    /// Lets time pass, and delivers nothing.
    pub(crate) fn pass(&mut self, millis: u64) {
        self.now = UnixMillis(self.now.0 + millis);
        INSTANT.set(INSTANT.get().max(Duration::from_millis(self.now.0)));
        let now = self.now;
        self.tick(now);
    }

    /// Lets time pass and delivers everything until no replica has anything to tell. Says after how many periods; `None`
    /// if there was no end.
    pub(crate) fn quiesce(&mut self) -> Option<usize> {
        (0..20).find(|_| {
            let is_settled = (0..2_000).any(|_| !self.deliver_one());
            self.pass(PERIOD);
            is_settled && self.gossip.is_empty() && self.actors().all(|actor| actor.gossip_due().is_none())
        })
    }

    fn deliver_gossip(&mut self) {
        let (from, to, depends, mut gossip) = {
            let place = self.chance.below(self.gossip.len());
            self.gossip.swap_remove(place)
        };
        if self.chance.below(4) == 0 {
            self.gossip.push((from, to, depends, gossip.clone()));
        }
        if self.fault == Fault::Echo && !gossip.items.is_empty() {
            for next in (0..self.actor_count()).filter(|next| *next != to) {
                let number = 1_000_000 + self.told as u64;
                self.tell(to, next, depends, Gossip { number, ..gossip.clone() });
            }
        }
        if self.fault == Fault::BlindDeletions {
            let latest = Stamp::new(self.actor(to).keys().latest_version(), WriterId(0));
            for item in gossip.items.iter_mut().filter(|item| clears(item)) {
                item.state = Some(Incarnated::deleted(latest));
            }
        }
        if self.fault == Fault::NoLives {
            for state in gossip.items.iter_mut().filter_map(|item| item.state.as_mut()) {
                let latest = Stamp::new(self.actor(to).keys().latest_version(), state.incarnation().writer);
                if let Some(content) = state.value(self.now).cloned() {
                    *state = Incarnated::begin(Incarnation::new(latest, state.incarnation().tag), content);
                }
            }
        }
        self.hear_message(from, to, depends, Message::Gossip(gossip));
        self.collect(to);
    }

    /// Sends what replicas tell each other, as the fault has it.
    fn tell(&mut self, from: usize, to: usize, depends: Lsn, mut gossip: Gossip) {
        self.told += 1;
        match self.fault {
            Fault::Disorder
            | Fault::NoLives
            | Fault::Echo
            | Fault::LateAppend
            | Fault::BlindDeletions
            | Fault::Haste
            | Fault::SlowClocks
            | Fault::NoGate
            | Fault::NoGateElsewhere
            | Fault::Unmarked
            | Fault::Overcounted => {}
            Fault::Loss => gossip.items.retain(|_| self.chance.below(8) > 0),
            Fault::Boast => gossip.heard.fill(u64::MAX),
            Fault::NoDeletions => gossip
                .items
                .retain(|item| item.state.as_ref().is_none_or(|it| !it.incarnation().tag.is_end() && !clears(item))),
        }
        self.gossip.push((from, to, depends, gossip));
    }

    /// Keeps all changes from now on.
    pub(crate) fn begin_log(&mut self) {
        self.has_log = true;
        self.actors_mut().for_each(Actor::keep_changes);
    }

    /// Ends an actor's turn, and has all in the log that it changed.
    pub(crate) fn append(&mut self, actor: usize) {
        self.end_turn(actor);
        self.log.take_late(actor);
    }

    /// Ends all turns, and has nothing in the log of what happened so far.
    pub(crate) fn forget_log(&mut self) {
        (0..self.actor_count()).for_each(|actor| self.append(actor));
        self.log.forget();
    }

    /// Lets time pass and the log be flushed until a rewrite of it that somebody asked for has ended.
    pub(crate) fn finish_rewrite(&mut self) {
        /// Turns until all know that there is one, and until the first knows that it has ended.
        const TURNS: usize = 3;
        let mut left = TURNS;
        while left > 0 {
            self.pass(1);
            self.settle();
            self.log.flush(usize::MAX);
            (0..self.actor_count()).for_each(|actor| self.append(actor));
            let is_under_way = self.actors().any(|actor| actor.keys().is_being_rewritten());
            left = if is_under_way { TURNS } else { left - 1 };
        }
    }

    /// The keys that the log leads to.
    pub(crate) fn replayed(&self, records: &[(u64, Vec<u8>)]) -> Keyspace {
        let mut keys = Keyspace::new(Routes::over(1), 0);
        keys.set_now(self.now);
        for (_, changes) in records {
            delta::read_all(changes, &mut |header, body| keys.replay(header, body)).expect("deltas");
        }
        keys
    }

    /// What an actor's clients may be told. Other nodes are told what they may be.
    pub(crate) fn clear(&mut self, actor: usize) -> Clearance {
        let clearance = self.hosts[actor].clear();
        let is_careless = self.fault == Fault::NoGateElsewhere;
        self.hosts[actor].tell_others(if is_careless { Clearance { held: None, ..clearance } } else { clearance });
        clearance
    }

    /// Sends a request of another node.
    pub(crate) fn call_from_elsewhere(&mut self, actor: usize, request: KeysRequest, answer: Answer) {
        self.hear(actor, Mail::Call(Call { request: Arc::new(request), answer }));
        self.collect(actor);
    }

    /// Ends an actor's turn.
    pub(crate) fn end_turn(&mut self, actor: usize) {
        let mut posted = Vec::new();
        let now = Duration::from_millis(self.now.0 - NOW.0);
        self.hosts[actor].finish_turn(now, |to, mail| posted.push((to, mail))).expect("a log without faults");
        posted.into_iter().for_each(|(to, mail)| self.post(actor, to.index(), mail));
    }

    /// Takes out what an actor has to say. Its turn ends then, or at some other time if there is nothing.
    fn collect(&mut self, actor: usize) {
        let is_time = self.has_log && self.chance.below(8) == 0;
        if self.fault == Fault::LateAppend {
            self.log.be_late();
        }
        if is_time || self.actor(actor).has_messages() {
            self.end_turn(actor);
        }
        if is_time {
            self.log.take_late(actor);
        }
        let replies = self.actor_mut(actor).take_own_replies();
        for (to, part) in replies.iter() {
            if let Some(told) = &mut self.told_sessions
                && let Destination::Session(session, _) | Destination::Push(session) = to
            {
                let ticket = if let Destination::Session(_, ticket) = to { Some(ticket) } else { None };
                let mut tape = Tape::new();
                part.play(&mut tape);
                told.entry((actor, session)).or_default().push((ticket, tape));
            }
            if let Destination::Session(session, ticket) = to {
                let mut tape = Tape::new();
                part.play(&mut tape);
                self.arrived.insert((actor, session, ticket), tape);
            }
        }
        self.actor_mut(actor).recycle(replies);
    }
}
