//! All threads of the service: what they share, from the beginning to the end.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Journal, Options, Stats as LogStats};
use savanna_keys::access::Users;
use savanna_keys::actor::Actor;
use savanna_keys::cluster::owners::GROUPS;
use savanna_keys::cluster::table::VIRTUAL_NODES;
use savanna_keys::config::Config;
use savanna_keys::figures::Figures;
use savanna_keys::group::{GroupReply, GroupRequest};
use savanna_keys::handle::{Answer, HandleError, KeysHandle, KeysNodes, KeysRequest, Owner, SharedKeysHandle};
use savanna_keys::log::recover;
use savanna_keys::placement::{ActorId, Routes, group_of};
use savanna_lattice::UnixMillis;
use savanna_ownership::KeyGroup;
use savanna_ownership::guard::LeaseGuard;

use crate::calls::Call;
use crate::courier::Courier;
use crate::ending::Ending;
use crate::error::HostError;
use crate::groups::GroupCall;
use crate::host::Host;
use crate::loading::load;
use crate::mailbox::{Bell, Mail, Slot, mailbox};
use crate::memory::Release;
use crate::saving::{Desk, Place};
use crate::spread::{Hearer, Spread};
use crate::worker::{Abroad, Worker, unix_now};

/// What a service is to be.
#[derive(Debug)]
pub struct HostOptions {
    /// How many threads it has.
    pub threads: u16,
    /// What is set.
    pub config: Config,
    /// Where its log is, and under which epoch it is written; none to keep nothing.
    pub log: Option<(Options, NodeEpoch)>,
    /// The lease under which it may tell anybody anything; none where nobody else could have its keys.
    pub lease: Option<LeaseGuard>,
    /// A seed for what is left to chance.
    pub seed: u64,
    /// Who has the keys, if another node does. There is no log then.
    pub elsewhere: Option<Elsewhere>,
    /// How the others are reached, if each node has some of the keys. Who has which is said by [`Service::hearer`].
    pub spread: Option<Spread>,
}

/// Keys that another node has.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Who has them, as far as is known.
    pub owner: Owner,
    /// How nodes are reached.
    pub nodes: Arc<dyn KeysNodes>,
    /// How long a command is asked again while nobody does it.
    pub patience: Duration,
}

/// A service whose workers run somewhere.
#[derive(Debug)]
pub struct Service {
    slots: Arc<[Slot]>,
    routes: Routes,
    figures: Arc<[Arc<Mutex<Figures>>]>,
    lease: Option<LeaseGuard>,
    /// Who has the keys, if another node does.
    owner: Option<Owner>,
    journal: Option<Arc<Journal>>,
    /// Whether virtual nodes may come and go while they are used.
    may_move: bool,
    ending: Ending,
}

impl Service {
    /// Reads the log. Gives the service and a worker for each of the threads, which `wakers` wake. Blocks while it reads.
    ///
    /// # Errors
    /// [`HostError::Users`], [`HostError::Log`], [`HostError::Dump`].
    ///
    /// # Panics
    /// If there are not as many wakers as [`Routes::over`] gives actors to the threads.
    pub fn open(options: HostOptions, wakers: Vec<Waker>) -> Result<(Self, Vec<Worker>), HostError> {
        let HostOptions { threads, mut config, log, lease, seed, elsewhere, spread } = options;
        let routes = Routes::over(threads);
        assert_eq!(wakers.len(), usize::from(routes.actors()), "each thread has a waker");
        config.is_logged = log.is_some();
        let users = Users::configured(&config).map_err(HostError::Users)?;
        let mut actors: Vec<Actor> =
            routes.all().map(|id| Actor::new(id, routes.clone(), config.clone(), seed)).collect();
        Actor::introduce(&mut actors);
        if elsewhere.is_some() {
            actors.iter_mut().for_each(Actor::face_elsewhere);
        } else if let Some(Spread { may_move, groups, .. }) = &spread {
            // A service that begins anew counts its groups from 1 again.
            let life = RandomState::new().build_hasher().finish();
            actors.iter_mut().for_each(|actor| {
                actor.join_nodes(*may_move);
                actor.join_groups(*groups, life);
            });
        }
        actors.iter_mut().for_each(|actor| actor.change_users(|all| *all = users.clone()));
        let epoch = log.as_ref().map_or(0, |(_, epoch)| epoch.0);
        let journal = log.map(|(options, epoch)| recover(options, epoch, &mut actors)).transpose();
        let journal = journal.map_err(HostError::Log)?;
        let dump = config.dump_directory.as_ref();
        let dump = dump.map(|directory| Place::new(directory.join(&config.dump_name), epoch));
        if let Some(journal) = &journal {
            load(dump.as_ref().map(Place::file), journal, &mut actors, unix_now())?;
        }
        let (slots, mailboxes): (Vec<_>, Vec<_>) = wakers.into_iter().map(mailbox).unzip();
        let slots: Arc<[Slot]> = slots.into();
        let desk = Arc::new(Desk::new(dump, journal.clone(), lease.clone(), Arc::clone(&slots)));
        let figures = actors.iter().map(|actor| Arc::new(Mutex::new(actor.figures()))).collect();
        let owner = elsewhere.as_ref().map(|elsewhere| elsewhere.owner.clone());
        let ending = Ending::default();
        let abroad = || match (&elsewhere, &spread) {
            (Some(Elsewhere { owner, nodes, patience }), _) => Some(Abroad {
                couriers: vec![Courier::new(owner.clone(), *patience)],
                patience: *patience,
                may_move: false,
                nodes: Arc::clone(nodes),
            }),
            (None, Some(Spread { nodes, patience, may_move, .. })) => Some(Abroad {
                couriers: Vec::new(),
                patience: *patience,
                may_move: *may_move,
                nodes: Arc::clone(nodes),
            }),
            (None, None) => None,
        };
        let may_move = spread.as_ref().is_some_and(|spread| spread.may_move);
        let service = Self { slots, routes, figures, journal, lease: lease.clone(), owner, may_move, ending };
        let workers = actors.into_iter().zip(mailboxes).zip(service.figures.iter());
        let workers = workers.map(|((actor, mailbox), figures)| Worker {
            host: Host::new(actor, service.journal.clone()),
            slots: Arc::clone(&service.slots),
            mailbox,
            lease: lease.clone(),
            abroad: abroad(),
            desk: Arc::clone(&desk),
            saves_at: Duration::ZERO,
            has_log_failed: Arc::new(AtomicBool::new(false)),
            figures: Arc::clone(figures),
            told_figures_at: UnixMillis(0),
            owes_figures: false,
            release: Release::new(),
            ending: service.ending.clone(),
            is_stopping: false,
        });
        let workers = workers.collect();
        Ok((service, workers))
    }

    /// Tells its figures while somebody else waits for its end.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        let journal = self.journal.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Gauge { threads: Arc::clone(&self.figures), journal }
    }

    /// Its keys, as other nodes ask for them.
    #[must_use]
    pub fn handle(&self) -> SharedKeysHandle {
        let (slots, lease, owner) = (Arc::clone(&self.slots), self.lease.clone(), self.owner.clone());
        Arc::new(LocalKeys { slots, routes: self.routes.clone(), lease, owner })
    }

    /// What tells it who has which keys, where each node has some.
    #[must_use]
    pub fn hearer(&self) -> Hearer {
        Hearer::new(Arc::clone(&self.slots), self.routes.clone(), self.journal.as_ref(), self.may_move)
    }

    /// What stops it while somebody else waits for its end.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { slots: Arc::clone(&self.slots) }
    }

    /// Does this, once, when a client asks for the end of the process, as [`Config::may_be_shut_down`] allows.
    pub fn when_asked_to_end(&self, act: impl FnOnce() + Send + 'static) {
        self.ending.listen(Box::new(act));
    }

    /// What wakes its threads, by actor.
    pub fn bells(&self) -> impl Iterator<Item = &Bell> {
        self.slots.iter().map(Slot::bell)
    }

    /// Flushes what its workers have left. They have ended.
    ///
    /// # Errors
    /// [`HostError::LastFlush`].
    pub fn close(&mut self) -> Result<(), HostError> {
        self.journal.take().map_or(Ok(()), |journal| journal.close().map_err(HostError::LastFlush))
    }
}

/// The keys of a service of this process, for others than the clients of its own threads.
#[derive(Clone, Debug)]
struct LocalKeys {
    slots: Arc<[Slot]>,
    routes: Routes,
    lease: Option<LeaseGuard>,
    owner: Option<Owner>,
}

/// How long others wait before they ask a service again that has not renewed its lease.
const LEASE_PAUSE_MS: u64 = 50;

impl LocalKeys {
    /// The actor that has the first key of a request; it asks others for theirs.
    fn first_of(&self, request: &KeysRequest) -> ActorId {
        let mut steps = request.parts().flat_map(|part| part.steps());
        let key = steps.find_map(|(command, args)| command.keys.of(args).ok()?.next());
        key.map_or(ActorId(0), |key| self.routes.actor_of(group_of(key)))
    }
}

impl KeysHandle for LocalKeys {
    fn call(&self, request: Arc<KeysRequest>, answer: Answer) {
        if let Some(Owner { node, epoch }) = self.owner.clone() {
            return answer.give(Err(HandleError::Moved { to: node, epoch }));
        }
        if !self.lease.as_ref().is_none_or(LeaseGuard::serving) {
            return answer.give(Err(HandleError::Frozen { retry_after_ms: LEASE_PAUSE_MS }));
        }
        let actor = self.first_of(&request);
        self.slots[actor.index()].put(Mail::Call(Call { request, answer }));
    }

    fn group(&self, request: GroupRequest, answer: Answer<GroupReply>) {
        if !self.lease.as_ref().is_none_or(LeaseGuard::serving) {
            return answer.give(Err(HandleError::Frozen { retry_after_ms: LEASE_PAUSE_MS }));
        }
        let first = request.to().checked_mul(GROUPS).and_then(|group| KeyGroup::new(group).ok());
        match first.map(|group| self.routes.actor_of(group)) {
            Some(actor) => self.slots[actor.index()].put(Mail::Group(GroupCall { request, answer })),
            None => {
                let reason = format!("expected one of {VIRTUAL_NODES} virtual nodes, came {}", request.to());
                answer.give(Err(HandleError::Unavailable { reason, may_have_run: false }));
            }
        }
    }
}

/// Tells the figures of a service, which may be a second old. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gauge {
    threads: Arc<[Arc<Mutex<Figures>>]>,
    journal: Weak<Journal>,
}

impl Gauge {
    /// The figures of each thread.
    #[must_use]
    pub fn threads(&self) -> Vec<Figures> {
        self.threads.iter().map(|figures| figures.lock().clone()).collect()
    }

    /// What was written to the log since the service began, if it has one and goes on.
    #[must_use]
    pub fn log(&self) -> Option<LogStats> {
        Some(self.journal.upgrade()?.stats())
    }
}

/// Stops a service.
#[derive(Clone, Debug)]
pub struct Stopper {
    slots: Arc<[Slot]>,
}

impl Stopper {
    /// Tells all workers to stop. They end a little later.
    pub fn stop(&self) {
        self.slots.iter().for_each(|slot| slot.put(Mail::Stop));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use savanna_epoch::{NodeId, OwnerEpoch};
    use savanna_keys::command::{Command, CommandNumber};
    use savanna_keys::handle::KeysReply;
    use savanna_keys::request::OwnedArgs;
    use savanna_ownership::time::BootClock;

    use super::*;

    fn options(threads: u16) -> HostOptions {
        HostOptions {
            threads,
            config: Config::default(),
            log: None,
            lease: None,
            seed: 1,
            elsewhere: None,
            spread: None,
        }
    }

    fn open(options: HostOptions) -> (Service, Vec<Worker>) {
        let wakers = vec![Waker::noop().clone(); usize::from(options.threads)];
        Service::open(options, wakers).expect("no log")
    }

    /// Asks a service as another node does. Says what it answered after the turn of each thread; `None` if it did not.
    fn ask(service: &Service, workers: &mut [Worker], words: &[&[u8]]) -> Option<Result<KeysReply, HandleError>> {
        let mut request = KeysRequest::default();
        let command = Command::find(words[0]).and_then(CommandNumber::of).expect("a command");
        request.push(0, command, OwnedArgs::of_words(words).args());
        let (sender, receiver) = channel();
        service.handle().call(Arc::new(request), Answer::new(move |outcome| drop(sender.send(outcome))));
        for worker in workers {
            worker.begin_turn();
            worker.finish_turn().expect("no log");
            worker.clear().expect("no log");
        }
        receiver.try_recv().ok()
    }

    /// Nodes that nobody asks.
    #[derive(Debug)]
    struct Nobody;

    impl KeysNodes for Nobody {
        fn at(&self, node: &NodeId) -> SharedKeysHandle {
            panic!("{node} was asked");
        }
    }

    #[test]
    fn a_node_without_keys_says_who_has_them() {
        let owner = Owner { node: NodeId::new("b"), epoch: OwnerEpoch(3) };
        let elsewhere = Elsewhere { owner, nodes: Arc::new(Nobody), patience: Duration::ZERO };
        let (service, mut workers) = open(HostOptions { elsewhere: Some(elsewhere), ..options(2) });
        let moved = HandleError::Moved { to: NodeId::new("b"), epoch: OwnerEpoch(3) };
        assert_eq!(ask(&service, &mut workers, &[b"GET", b"a"]), Some(Err(moved)));
    }

    #[test]
    fn a_node_that_has_lost_its_lease_tells_others_nothing() {
        let lease = LeaseGuard::new(Arc::new(BootClock));
        let (service, mut workers) = open(HostOptions { lease: Some(lease), ..options(1) });
        let outcome = ask(&service, &mut workers, &[b"GET", b"a"]);
        assert!(matches!(outcome, Some(Err(HandleError::Frozen { .. }))), "{outcome:?}");
    }

    #[test]
    fn other_nodes_are_answered_at_the_end_of_a_turn() {
        let (service, mut workers) = open(options(3));
        for (words, expected) in [(&[&b"SET"[..], b"a", b"1"][..], "OK"), (&[b"GET", b"a"], "\"1\"")] {
            let reply = ask(&service, &mut workers, words).expect("an answer").expect("the keys are here");
            let mut tape = savanna_keys::reply::Tape::new();
            reply.outcomes().next().expect("one").expect("done").play(&mut tape);
            assert_eq!(tape.to_string(), expected);
        }
        drop(workers);
        let outcome = ask(&service, &mut [], &[b"GET", b"a"]);
        assert!(matches!(outcome, Some(Err(HandleError::Unavailable { .. }))), "its threads have ended: {outcome:?}");
    }

    #[test]
    fn a_panic_in_one_thread_stops_all() {
        let (_service, mut workers) = open(options(2));
        let mut other = workers.pop().expect("two");
        let panicking = std::thread::spawn(move || {
            let _workers = workers;
            panic!("a bug");
        });
        assert!(panicking.join().is_err());
        other.begin_turn();
        assert!(other.is_stopping());
    }
}
