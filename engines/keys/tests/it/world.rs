//! Several actors with queues between them. A seed decides which message is delivered next, so that any delay happens.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use savanna_keys::actor::gossip::{Gossip, PERIOD};
use savanna_keys::actor::message::{Destination, Message};
use savanna_keys::actor::{Actor, Progress};
use savanna_keys::config::Config;
use savanna_keys::keyspace::replica::{Content, Item};
use savanna_keys::placement::{ActorId, Placement};
use savanna_keys::reply::Tape;
use savanna_keys::request::OwnedArgs;
use savanna_keys::session::{SessionId, Ticket};
use savanna_lattice::{Hlc, Incarnated, Incarnation, Stamp, UnixMillis, WriterId};

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

/// The actors, and what is on its way between them. Messages from one actor to another keep their order.
pub(crate) struct World {
    pub(crate) actors: Vec<Actor>,
    queues: Vec<Vec<VecDeque<Message>>>,
    /// What replicas tell each other: it may come in any order, and twice.
    gossip: Vec<(usize, usize, Gossip)>,
    /// How many of such messages were sent.
    pub(crate) told: usize,
    pub(crate) fault: Fault,
    /// Whether what replicas tell keeps its order among the other messages, as in threads' mailboxes.
    pub(crate) is_orderly: bool,
    /// What the actors appended, one behind the other, if there is a log.
    pub(crate) log: Option<Vec<Vec<u8>>>,
    pub(crate) now: UnixMillis,
    /// Replies that came late.
    arrived: HashMap<(usize, SessionId, Ticket), Tape>,
    kept: u64,
    pub(crate) chance: Chance,
}

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

impl World {
    pub(crate) fn new(actors: u16, seed: u64) -> Self {
        let placement = Placement::over(actors);
        let mut world = Self {
            actors: placement.all().map(|id| Actor::new(id, placement, Config::default(), seed)).collect(),
            queues: placement.all().map(|_| placement.all().map(|_| VecDeque::new()).collect()).collect(),
            gossip: Vec::new(),
            told: 0,
            fault: Fault::Disorder,
            is_orderly: false,
            log: None,
            now: NOW,
            arrived: HashMap::new(),
            kept: 0,
            chance: Chance::new(seed),
        };
        for actor in &mut world.actors {
            actor.tick(NOW);
        }
        world
    }

    /// Lets the actors know the instant of each change, unless their clocks are slow.
    pub(crate) fn keep_time(&mut self) {
        INSTANT.set(Duration::from_millis(self.now.0));
        if self.fault != Fault::SlowClocks {
            self.actors.iter_mut().for_each(|actor| actor.keys.instant = next_instant);
        }
    }

    pub(crate) fn client(&mut self, actor: usize) -> Client {
        Client { actor, session: self.actors[actor].open_session(String::new(), String::new()) }
    }

    /// Sends a request that no pause holds back. Gives its reply, or the place of the one that comes later.
    pub(crate) fn request(&mut self, client: Client, words: &[&str]) -> Result<Tape, Ticket> {
        self.try_request(client, words).expect("a request that is not held back")
    }

    /// Sends a request. Gives its reply, or the place of the one that comes later; `None` if it is held back by a pause.
    pub(crate) fn try_request(&mut self, client: Client, words: &[&str]) -> Option<Result<Tape, Ticket>> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut tape = Tape::new();
        let actor = &mut self.actors[client.actor];
        let progress = actor.request(client.session, OwnedArgs::of_words(&words).args(), &mut tape);
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
        let actors = self.actors.len();
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
        if let Some(message) = self.queues[from][to].pop_front() {
            let arrived = match &message {
                Message::Gossip(gossip) if self.fault == Fault::Haste => {
                    gossip.items.iter().filter(|item| item.is_whole).cloned().collect()
                }
                _ => Vec::new(),
            };
            self.actors[to].deliver(ActorId(from as u16), message);
            for Item { database, key, vector, .. } in arrived {
                self.actors[to].deliver(ActorId(from as u16), Message::Joined { database, key, vector });
            }
        }
        self.collect(to);
        true
    }

    /// Lets the time be this for all.
    pub(crate) fn tick(&mut self, now: UnixMillis) {
        for actor in 0..self.actors.len() {
            self.actors[actor].tick(now);
            self.collect(actor);
        }
    }

    /// Ends a client's session.
    pub(crate) fn close(&mut self, client: Client) {
        self.actors[client.actor].close_session(client.session);
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
        for actor in 0..self.actors.len() {
            self.actors[actor].tick(self.now);
            self.collect(actor);
        }
    }

    /// Lets time pass and delivers everything until no replica has anything to tell. Says after how many periods; `None`
    /// if there was no end.
    pub(crate) fn quiesce(&mut self) -> Option<usize> {
        (0..20).find(|_| {
            let is_settled = (0..2_000).any(|_| !self.deliver_one());
            self.pass(PERIOD);
            is_settled && self.gossip.is_empty() && self.actors.iter().all(|actor| actor.gossip_due().is_none())
        })
    }

    fn deliver_gossip(&mut self) {
        let (from, to, mut gossip) = {
            let place = self.chance.below(self.gossip.len());
            self.gossip.swap_remove(place)
        };
        if self.chance.below(4) == 0 {
            self.gossip.push((from, to, gossip.clone()));
        }
        if self.fault == Fault::Echo && !gossip.items.is_empty() {
            for next in (0..self.actors.len()).filter(|next| *next != to) {
                let number = 1_000_000 + self.told as u64;
                self.tell(to, next, Gossip { number, ..gossip.clone() });
            }
        }
        if self.fault == Fault::BlindDeletions {
            let latest = Stamp::new(self.actors[to].keys.latest_version(), WriterId(0));
            for item in gossip.items.iter_mut().filter(|item| clears(item)) {
                item.state = Some(Incarnated::deleted(latest));
            }
        }
        if self.fault == Fault::NoLives {
            for state in gossip.items.iter_mut().filter_map(|item| item.state.as_mut()) {
                let latest = Stamp::new(self.actors[to].keys.latest_version(), state.incarnation().writer);
                if let Some(content) = state.value(self.now).cloned() {
                    *state = Incarnated::begin(Incarnation::new(latest, state.incarnation().tag), content);
                }
            }
        }
        self.actors[to].deliver(ActorId(from as u16), Message::Gossip(gossip));
        self.collect(to);
    }

    /// Sends what replicas tell each other, as the fault has it.
    fn tell(&mut self, from: usize, to: usize, mut gossip: Gossip) {
        self.told += 1;
        match self.fault {
            Fault::Disorder
            | Fault::NoLives
            | Fault::Echo
            | Fault::LateAppend
            | Fault::BlindDeletions
            | Fault::Haste
            | Fault::SlowClocks => {}
            Fault::Loss => gossip.items.retain(|_| self.chance.below(8) > 0),
            Fault::Boast => gossip.heard.fill(u64::MAX),
            Fault::NoDeletions => gossip
                .items
                .retain(|item| item.state.as_ref().is_none_or(|it| !it.incarnation().tag.is_end() && !clears(item))),
        }
        self.gossip.push((from, to, gossip));
    }

    /// Has a log from now on.
    pub(crate) fn begin_log(&mut self) {
        self.log = Some(Vec::new());
        self.actors.iter_mut().for_each(|actor| actor.keys.log.enable(true));
    }

    /// Appends what an actor changed.
    pub(crate) fn append(&mut self, actor: usize) {
        let keys = &mut self.actors[actor].keys;
        keys.translate_changes();
        if let Some(log) = &mut self.log {
            log.push(keys.log.bytes().to_vec());
            keys.log.clear();
        }
    }

    /// Takes out what an actor has to say. Its changes are appended before, or at some other time if there is nothing.
    fn collect(&mut self, actor: usize) {
        if self.log.is_some()
            && (self.chance.below(8) == 0 || self.actors[actor].has_messages() && self.fault != Fault::LateAppend)
        {
            self.append(actor);
        }
        for to in 0..self.actors.len() {
            let messages = self.actors[actor].take_outbox(ActorId(to as u16));
            for message in messages {
                match message {
                    Message::Gossip(gossip) if !self.is_orderly => self.tell(actor, to, gossip),
                    message => self.queues[actor][to].push_back(message),
                }
            }
        }
        let replies = self.actors[actor].take_own_replies();
        for (to, part) in replies.iter() {
            if let Destination::Session(session, ticket) = to {
                let mut tape = Tape::new();
                part.play(&mut tape);
                self.arrived.insert((actor, session, ticket), tape);
            }
        }
        self.actors[actor].recycle(replies);
    }
}
