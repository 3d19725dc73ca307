//! Actors with private keys: the same ones as in the server, with queues instead of its event loop.
//!
//! A request goes to one of the actors that have a replica of its key, as Anna's clients choose it; what was changed is told
//! to the others once per period. An actor's clock goes by its requests, so that what is told per request does not depend on the
//! machine.

use std::sync::mpsc::{Receiver, Sender, channel};

use savanna_keys::actor::gossip::DIP;
use savanna_keys::actor::message::Message;
use savanna_keys::actor::{Actor, Progress};
use savanna_keys::config::Config;
use savanna_keys::placement::{ActorId, Routes, group_of};
use savanna_keys::reply::{Tape, Value};
use savanna_keys::request::{Args, OwnedArgs, Span};
use savanna_keys::session::SessionId;
use savanna_lattice::UnixMillis;

use super::workload::{Rank, Spent, Workload, name, run_all};

const START: UnixMillis = UnixMillis(1_800_000_000_000);
/// How many requests an actor takes in a millisecond of its clock.
const REQUESTS_PER_MILLI: usize = 1000;
/// How many requests an actor takes before it looks at its mail: as many as a client with a pipeline sends.
const TURN: usize = 64;
/// `SET`, the key and the value behind each other.
const KEY: std::ops::Range<usize> = 3..11;

enum Mail {
    Messages(ActorId, Vec<Message>),
    /// The sender has told all that it changed.
    Done,
}

struct Worker {
    actor: Actor,
    session: SessionId,
    now: UnixMillis,
    plan: Vec<Rank>,
    /// A request, to be overwritten.
    request: Vec<u8>,
    spans: [Span; 3],
    reply: Tape,
    inbox: Receiver<Mail>,
    /// To each actor, this one included.
    peers: Vec<Sender<Mail>>,
    /// How many have told all.
    done: usize,
}

/// Updates keys with so many replicas each.
pub(crate) fn run(workload: &Workload, copies: u16) -> Spent {
    let routes = Routes::over(workload.threads as u16);
    let copies = copies.min(routes.actors());
    let owner = |rank| routes.actor_of(group_of(&name(rank))).index();
    let plans = workload.plan(|rank, number| (owner(rank) + number % usize::from(copies)) % workload.threads);
    let (peers, inboxes): (Vec<_>, Vec<_>) = routes.all().map(|_| channel()).unzip();
    let mut workers: Vec<Worker> = routes
        .all()
        .zip(plans)
        .zip(inboxes)
        .map(|((id, plan), inbox)| {
            Worker::new(workload, Actor::new(id, routes.clone(), Config::default(), 1), plan, inbox, &peers)
        })
        .collect();
    for rank in 0..workload.keys as Rank {
        let first = &mut workers[owner(rank)];
        first.update(rank, 0);
        if copies > 1 {
            first.replicate(rank, copies);
        }
    }
    settle(&mut workers);
    let spent = run_all(&mut workers.iter_mut().map(|worker| move || worker.work()).collect::<Vec<_>>());
    check(&mut workers, owner, usize::from(copies));
    spent
}

/// Lets the actors tell each other everything.
fn settle(workers: &mut [Worker]) {
    while workers.iter().any(|worker| worker.actor.gossip_due().is_some()) {
        for worker in &mut *workers {
            worker.wait_a_moment();
        }
        for worker in &mut *workers {
            worker.take_mail();
        }
    }
}

/// The most popular keys have the same value wherever they are.
fn check(workers: &mut [Worker], owner: impl Fn(Rank) -> usize, copies: usize) {
    for rank in 0..10 {
        let threads = workers.len();
        let values: Vec<Tape> =
            (0..copies).map(|copy| workers[(owner(rank) + copy) % threads].value_of(rank)).collect();
        assert!(matches!(values[0].first(), Some(Value::Bulk(_))), "key {rank} has no value");
        assert!(values.iter().all(|value| *value == values[0]), "the replicas of key {rank} differ");
    }
}

impl Worker {
    fn new(
        workload: &Workload,
        mut actor: Actor,
        plan: Vec<Rank>,
        inbox: Receiver<Mail>,
        peers: &[Sender<Mail>],
    ) -> Self {
        actor.tick(START);
        let session = actor.open_session(String::new(), String::new());
        let request = [b"SET", &name(0)[..], &workload.value()].concat();
        let span = |start: usize, end: usize| Span { start: start as u32, length: (end - start) as u32 };
        let spans = [span(0, KEY.start), span(KEY.start, KEY.end), span(KEY.end, request.len())];
        let peers = peers.to_vec();
        Self { actor, session, now: START, plan, request, spans, reply: Tape::new(), inbox, peers, done: 0 }
    }

    /// Carries out the plan, and hears what the others changed.
    fn work(&mut self) {
        let plan = std::mem::take(&mut self.plan);
        let mut number = 0;
        for turn in plan.chunks(TURN) {
            self.now = UnixMillis(self.now.0.max(START.0 + (number / REQUESTS_PER_MILLI) as u64));
            self.actor.tick(self.now);
            self.take_mail();
            self.reply.clear();
            for rank in turn {
                number += 1;
                self.update(*rank, number);
            }
            assert!(self.reply.values().all(|value| value == Value::Simple("OK")), "{}", self.reply);
            self.send();
        }
        while self.actor.gossip_due().is_some() {
            self.wait_a_moment();
        }
        self.tell_all(|| Mail::Done);
        while self.done < self.peers.len() {
            let Ok(mail) = self.inbox.recv() else { return };
            self.hear(mail);
            while self.actor.gossip_due().is_some() {
                self.wait_a_moment();
            }
        }
    }

    /// `SET` of one key.
    fn update(&mut self, rank: Rank, number: usize) {
        self.request[KEY].copy_from_slice(&name(rank));
        self.request[KEY.end..][..8].copy_from_slice(&number.to_le_bytes());
        let args = Args::new(&self.request, &self.spans);
        let progress = self.actor.request(self.session, args, &mut self.reply);
        assert_eq!(progress, Progress::Answered, "the key is here");
    }

    fn replicate(&mut self, rank: Rank, copies: u16) {
        let args = OwnedArgs::of_words(&[b"SAV.REPLICATE", &name(rank), copies.to_string().as_bytes()]);
        let progress = self.actor.request(self.session, args.args(), &mut self.reply);
        assert_eq!(progress, Progress::Answered, "the key is here");
        self.actor.forget_changes();
        self.reply.clear();
    }

    fn value_of(&mut self, rank: Rank) -> Tape {
        let mut reply = Tape::new();
        let args = OwnedArgs::of_words(&[b"GET", &name(rank)]);
        let progress = self.actor.request(self.session, args.args(), &mut reply);
        assert_eq!(progress, Progress::Answered, "the key is here");
        reply
    }

    /// Lets enough time go for what is to be told to be told.
    fn wait_a_moment(&mut self) {
        self.now.0 += DIP;
        self.actor.tick(self.now);
        self.send();
    }

    fn take_mail(&mut self) {
        while let Ok(mail) = self.inbox.try_recv() {
            self.hear(mail);
        }
    }

    fn hear(&mut self, mail: Mail) {
        match mail {
            Mail::Messages(from, messages) => {
                messages.into_iter().for_each(|message| self.actor.deliver(from, message));
            }
            Mail::Done => self.done += 1,
        }
    }

    /// Nothing is kept on a disk; messages leave.
    fn send(&mut self) {
        self.actor.forget_changes();
        for to in self.actor.actors() {
            let messages = self.actor.take_outbox(to);
            if !messages.is_empty() {
                self.tell(to, Mail::Messages(self.actor.id(), messages));
            }
        }
    }

    fn tell_all(&self, mail: impl Fn() -> Mail) {
        self.actor.actors().for_each(|to| self.tell(to, mail()));
    }

    /// Who has heard of everybody's end hears nothing more.
    fn tell(&self, to: ActorId, mail: Mail) {
        let _ = self.peers[to.index()].send(mail);
    }
}
