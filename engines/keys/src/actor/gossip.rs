//! What replicas tell each other behind the requests.
//!
//! Changes are merged where they are made and told once per [`PERIOD`], or when no request has come for [`DIP`]. What was
//! heard is never told on. An actor that was told something, or is asked, says within the period how far it has heard
//! everybody: that lets the replication of a key end. Where nothing changes, nothing is sent and no clock runs.
//!
//! Messages from one actor to another are numbered. They may come late, twice, or in another order: changes merge anyhow,
//! and what an actor *has heard* counts only up to the first message that is missing.
//!
//! While all keys are held for another actor, nothing is told, and what comes is put off: the log may say already that a database was
//! emptied of which this actor has not heard. What was told before that is heard right before it, so that it is emptied, too; the
//! rest behind it.

use std::collections::BTreeMap;

use savanna_lattice::{Hlc, UnixMillis};

use super::Actor;
use super::message::{Message, Notice};
use crate::keyspace::replica::{Item, Vector};
use crate::placement::ActorId;

/// How long a change waits for others at most, in milliseconds.
pub const PERIOD: u64 = 100;

/// How long without a request, in milliseconds, lets changes be told before the period ends.
pub const DIP: u64 = 5;

/// What one replica holder tells another.
#[derive(Clone, Debug)]
pub struct Gossip {
    /// Counts the sender's messages to all.
    pub number: u64,
    /// The sender's clock: nothing in here is later.
    pub clock: Hlc,
    /// Up to which message the sender has heard each actor.
    pub heard: Vec<u64>,
    /// Whether the sender waits for all to have heard it.
    pub asks: bool,
    /// What it tells.
    pub items: Vec<Item>,
}

/// What an actor knows of the others.
#[derive(Debug)]
pub(super) struct Rounds {
    /// How many messages were sent to each.
    sent: u64,
    /// By actor.
    peers: Vec<Peer>,
    /// Whether something was heard that the others are to know of.
    owes_answer: bool,
    /// When there began to be something to tell, and how many requests there had been.
    waiting: Option<Waiting>,
    /// What first replicas answered, and depends on what was not heard yet.
    joined: Vec<Joined>,
    /// What came while all keys are held for another actor.
    put_off: Option<Vec<(ActorId, Gossip)>>,
}

/// The answer of a key's first replica to a question: see [`Notice::Joined`].
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) database: u8,
    pub(super) key: Box<[u8]>,
    pub(super) vector: Vector,
    pub(super) asked: u64,
    pub(super) seen: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: UnixMillis,
    looked_at: UnixMillis,
    requests: u64,
}

/// What is known of another actor.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// All messages up to this one were heard.
    heard: u64,
    /// Up to where it had heard each actor when it sent that one.
    knows: Vec<u64>,
    /// Messages that came before one that is missing.
    early: BTreeMap<u64, Vec<u64>>,
}

impl Rounds {
    pub(super) fn new(actors: u16) -> Self {
        let peers = vec![Peer::default(); usize::from(actors)];
        Self { sent: 0, peers, owes_answer: false, waiting: None, joined: Vec::new(), put_off: None }
    }

    /// Hears a message's number and what its sender had heard. Says whether it is new.
    fn hear(&mut self, from: ActorId, number: u64, knows: Vec<u64>) -> bool {
        let peer = &mut self.peers[from.index()];
        if number <= peer.heard || peer.early.contains_key(&number) {
            return false;
        }
        peer.early.insert(number, knows);
        while let Some(knows) = peer.early.remove(&(peer.heard + 1)) {
            peer.heard += 1;
            peer.knows = knows;
        }
        true
    }

    /// Whether every actor but `own` had heard a message when it sent the last of those that were heard of it without a gap,
    /// and this one has heard it and all before.
    fn is_known(&self, own: ActorId, from: ActorId, number: u64) -> bool {
        if from != own && self.peers[from.index()].heard < number {
            return false;
        }
        let others = self.peers.iter().enumerate().filter(|(index, _)| *index != own.index());
        others.into_iter().all(|(_, peer)| peer.knows.get(from.index()).is_some_and(|heard| *heard >= number))
    }

    /// Up to where each actor was heard, with the own messages.
    fn heard(&self, own: ActorId) -> Vec<u64> {
        let mut heard: Vec<u64> = self.peers.iter().map(|peer| peer.heard).collect();
        heard[own.index()] = self.sent;
        heard
    }

    /// The last message that was seen of each actor, with those behind one that is missing, and with the own ones.
    fn seen(&self, own: ActorId) -> Vec<u64> {
        let last = |peer: &Peer| peer.early.last_key_value().map_or(peer.heard, |(number, _)| *number);
        let mut seen: Vec<u64> = self.peers.iter().map(last).collect();
        seen[own.index()] = self.sent;
        seen
    }

    /// Takes the answers that depend on nothing any more that was not heard.
    fn take_joined(&mut self, own: ActorId) -> Vec<Joined> {
        if self.joined.is_empty() {
            return Vec::new();
        }
        let heard = self.heard(own);
        self.joined.extract_if(.., |joined| joined.seen.iter().zip(&heard).all(|(seen, heard)| heard >= seen)).collect()
    }
}

impl Actor {
    /// When something is to be told at the latest, if there is anything.
    #[must_use]
    pub fn gossip_due(&self) -> Option<UnixMillis> {
        if !self.has_to_tell() {
            return None;
        }
        let waiting = self.rounds.waiting;
        Some(waiting.map_or_else(|| self.keys.now(), |waiting| UnixMillis(waiting.looked_at.0 + DIP)))
    }

    fn has_to_tell(&self) -> bool {
        self.rounds.put_off.is_none() && (self.keys.has_unsent() || self.rounds.owes_answer)
    }

    /// Tells the others what changed, if it is time.
    pub(super) fn gossip(&mut self) {
        if !self.has_to_tell() {
            return;
        }
        let (now, requests) = (self.keys.now(), self.counters.requests);
        // A clock that was set back begins anew.
        let waiting = self.rounds.waiting.filter(|waiting| waiting.looked_at <= now);
        let waiting = waiting.unwrap_or(Waiting { since: now, looked_at: now, requests });
        self.rounds.waiting = Some(waiting);
        let is_dip = now.0 >= waiting.looked_at.0 + DIP && requests == waiting.requests;
        if is_dip || now.0 >= waiting.since.0 + PERIOD {
            self.tell();
        } else if now.0 >= waiting.looked_at.0 + DIP {
            self.rounds.waiting = Some(Waiting { looked_at: now, requests, ..waiting });
        }
    }

    pub(super) fn tell(&mut self) {
        self.rounds.waiting = None;
        self.rounds.owes_answer = false;
        self.rounds.sent += 1;
        let number = self.rounds.sent;
        let mut items: Vec<Vec<Item>> = self.routes.all().map(|_| Vec::new()).collect();
        for (actor, item) in self.keys.take_unsent(number) {
            items[actor.index()].push(item);
        }
        let asks = self.keys.awaits_all(number);
        let heard = self.rounds.heard(self.id);
        let clock = self.keys.latest_version();
        for (actor, items) in self.routes.all().zip(items) {
            if actor != self.id {
                self.send(actor, Message::Gossip(Gossip { number, clock, heard: heard.clone(), asks, items }));
            }
        }
    }

    /// Hears what another actor tells.
    pub(super) fn hear_gossip(&mut self, from: ActorId, gossip: Gossip) {
        match &mut self.rounds.put_off {
            Some(put_off) => put_off.push((from, gossip)),
            None => {
                self.take_in(from, gossip);
                self.reclaim();
            }
        }
    }

    /// Puts off what others tell: all keys are held for one of them.
    pub(super) fn put_gossip_off(&mut self) {
        self.rounds.put_off = Some(Vec::new());
    }

    /// Hears what was put off and is of before a version, at which a database was emptied. Nothing is given up for it: that would
    /// come behind this version in the log.
    pub(super) fn hear_gossip_before(&mut self, version: Hlc) {
        let before =
            self.rounds.put_off.iter_mut().flat_map(|put_off| put_off.extract_if(.., |(_, it)| it.clock < version));
        for (from, gossip) in before.collect::<Vec<_>>() {
            self.take_in(from, gossip);
        }
    }

    /// Hears all that was put off.
    pub(super) fn hear_gossip_put_off(&mut self) {
        let Some(put_off) = self.rounds.put_off.take() else { return };
        for (from, gossip) in put_off {
            self.take_in(from, gossip);
        }
        self.reclaim();
    }

    /// Whether others have told something that was not taken in.
    pub(super) fn has_put_off(&self) -> bool {
        self.rounds.put_off.as_ref().is_some_and(|put_off| !put_off.is_empty())
    }

    fn take_in(&mut self, from: ActorId, gossip: Gossip) {
        let Gossip { number, clock, heard, asks, items } = gossip;
        if !self.rounds.hear(from, number, heard) {
            return;
        }
        self.keys.observe(clock);
        self.keys.translate_changes();
        self.rounds.owes_answer |= asks || !items.is_empty();
        for item in items {
            self.keys.hear_item(from, number, item);
        }
        for (database, key, vector, asked) in self.keys.take_arrivals() {
            self.send(from, Message::Notice(Notice::Join { database, key, vector, asked }));
        }
        self.use_joined();
    }

    /// Gives up what nobody can refer to any more.
    fn reclaim(&mut self) {
        let (rounds, own) = (&self.rounds, self.id);
        self.keys.reclaim(&|actor, number| rounds.is_known(own, actor, number));
    }
}

/// How a copy begins to answer. It has heard all that the first replica knew; but requests that were on their way there, from
/// before the copy was heard of, may have run since, and their clients would not see here what they did.
///
/// ```text
///  copy's actor                  first replica
///   │ SADD k m ─────────┐  ┌───── all that is known of k
///   │◄──────────────────┼──┘            │
///   │ Join k ───────────┼──┐            │
///   │                   └──┼───────────►│ runs
///   │                      └───────────►│ as soon as k is free:
///   │◄──────────────────────── what changed, Joined k
///   │ answers
/// ```
///
/// Whoever goes to the first replica after that, with what a copy does not answer, stays there until the copy has asked once more in this way. The first replica
/// may have shown what others told it and have not told the copy yet, so its answer says how far it has seen everybody.
impl Actor {
    /// Hears at the first replica of a key that a copy has heard all; everything that came before from there has run.
    pub(super) fn hear_join(&mut self, from: ActorId, database: u8, key: Box<[u8]>, vector: Vector, asked: u64) {
        self.keys.translate_changes();
        if self.keys.has_unsent_of(database, &key) {
            self.tell();
        }
        let seen = self.rounds.seen(self.id);
        self.send(from, Message::Notice(Notice::Joined { database, key, vector, asked, seen }));
    }

    /// Hears the first replica's answer.
    pub(super) fn hear_joined(&mut self, joined: Joined) {
        self.rounds.joined.push(joined);
        self.use_joined();
    }

    fn use_joined(&mut self) {
        for Joined { database, key, vector, asked, .. } in self.rounds.take_joined(self.id) {
            self.keys.hear_joined(database, &key, vector, asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::placement::Routes;

    #[test]
    fn a_rewrite_of_the_log_waits_for_what_was_put_off() {
        let mut actor = Actor::new(ActorId(0), Routes::over(2), Config::default(), 1);
        actor.begin_rewrite();
        actor.put_gossip_off();
        let gossip = Gossip { number: 1, clock: Hlc::ZERO, heard: vec![0, 1], asks: false, items: Vec::new() };
        actor.hear_gossip(ActorId(1), gossip);
        assert!(
            !actor.settle_rewrite() && actor.keys.is_being_rewritten(),
            "what it is about may be before the rewrite only"
        );
        assert_eq!(actor.rounds.heard(ActorId(0)), [0, 0]);
        actor.release_all();
        assert_eq!(actor.rounds.heard(ActorId(0)), [0, 1]);
        assert!(actor.settle_rewrite() && !actor.keys.is_being_rewritten());
    }

    #[test]
    fn what_was_heard_counts_up_to_the_first_message_that_is_missing() {
        let mut rounds = Rounds::new(3);
        let (own, one, two) = (ActorId(0), ActorId(1), ActorId(2));
        assert!(rounds.hear(two, 1, vec![0, 0, 1]));
        assert!(rounds.hear(one, 2, vec![0, 2, 1]), "before the first");
        assert_eq!(rounds.heard(own), [0, 0, 1]);
        assert!(!rounds.is_known(own, two, 1), "the first message may hold what is older");
        assert!(!rounds.hear(one, 2, vec![9, 9, 9]), "it came already");
        assert!(rounds.hear(one, 1, vec![0, 1, 0]));
        assert_eq!(rounds.heard(own), [0, 2, 1]);
        assert!(rounds.is_known(own, two, 1) && !rounds.is_known(own, one, 1));
        assert!(!rounds.hear(two, 1, vec![0, 2, 1]), "late");
        assert!(rounds.hear(two, 2, vec![0, 2, 2]));
        assert!(rounds.is_known(own, one, 2));
    }
}
