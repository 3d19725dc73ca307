//! Virtual nodes that change their node while they are used: what the threads of a service are told of that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use savanna_epoch::{NodeId, OwnerEpoch};
use savanna_journal::Lsn;
use savanna_keys::actor::{Actor, Owner};
use savanna_keys::cluster::arrival::Attempt;
use savanna_keys::cluster::departure::{Departure, Stage};
use savanna_keys::cluster::owners::GROUPS;
use savanna_keys::keyspace::adoption::Adopted;
use savanna_keys::placement::ActorId;
use savanna_lattice::Hlc;
use savanna_ownership::KeyGroup;

use crate::mailbox::Mail;
use crate::spread::{Hearer, TakenIn, portions};

/// How long the threads have to hear something. One may run a script.
const HEARD_TIME: Duration = Duration::from_secs(10);

/// Why a virtual node does not move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// It cannot, for this reason.
    #[error("{0}")]
    Failed(String),
    /// A thread does not hear.
    #[error("a thread of keys has not answered for {HEARD_TIME:?}: it runs a script, or is overloaded")]
    Silent,
    /// The service ends.
    #[error("the service of keys ends")]
    Ended,
}

/// What a thread does for a virtual node that goes to another node.
#[derive(Debug)]
pub struct DepartureOrder {
    departure: Arc<Departure>,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Begin,
    Write,
    Freeze,
    Stay,
    Go(NodeId, OwnerEpoch),
    Lose(OwnerEpoch),
}

impl DepartureOrder {
    /// Whether it is decided whose the virtual node is.
    pub(crate) const fn is_end(&self) -> bool {
        matches!(self.step, Step::Stay | Step::Go(..) | Step::Lose(_))
    }

    pub(crate) fn carry_out(self, actor: &mut Actor) {
        let node = self.departure.node();
        match self.step {
            Step::Begin => actor.begin_departure(self.departure),
            Step::Write => actor.write_departure(node),
            Step::Freeze => actor.freeze_departure(node),
            Step::Stay => actor.end_departure(node),
            Step::Go(to, epoch) => actor.complete_departure(node, to, epoch),
            Step::Lose(epoch) => actor.lose_departing(node, epoch),
        }
    }
}

/// What a thread does for a virtual node that comes from another node.
#[derive(Debug)]
pub struct Arrival {
    node: u16,
    step: ArrivalStep,
    /// Who waits until what follows is in the log.
    done: Sender<Result<Lsn, String>>,
}

#[derive(Debug)]
enum ArrivalStep {
    Expect(Attempt, OwnerEpoch),
    Take(Attempt, Vec<Adopted>, Hlc),
    End(Attempt),
    Hear(Hlc),
    Serve(Option<Attempt>, OwnerEpoch),
    Learn(OwnerEpoch),
    Discard(Attempt),
    Clear(Arc<BTreeSet<u16>>, bool),
}

impl Arrival {
    /// What came of it, and who is to hear of it when it is in the log.
    pub(crate) fn carry_out(self, actor: &mut Actor) -> TakenIn {
        let node = self.node;
        let outcome = match self.step {
            ArrivalStep::Expect(attempt, epoch) => actor.expect_arrival(node, attempt, epoch),
            ArrivalStep::Take(attempt, keys, latest) => actor.take_arrival(node, attempt, keys, latest),
            ArrivalStep::End(attempt) => actor.end_arrival(node, attempt),
            ArrivalStep::Hear(latest) => {
                actor.hear_latest(latest);
                Ok(())
            }
            ArrivalStep::Serve(attempt, epoch) => actor.serve_arrival(node, attempt, epoch),
            ArrivalStep::Learn(epoch) => {
                actor.learn_owner(node, Owner::Myself, epoch);
                Ok(())
            }
            ArrivalStep::Discard(attempt) => actor.discard_arrival(node, attempt),
            ArrivalStep::Clear(nodes, come_another_way) => actor.clear_nodes(&nodes, come_another_way),
        };
        (self.done, outcome.map_err(|refusal| refusal.to_string()))
    }
}

/// A virtual node that leaves a service. All calls block.
#[derive(Clone, Debug)]
pub struct Leaving {
    hearer: Hearer,
    departure: Arc<Departure>,
}

impl Leaving {
    fn tell_all(&self, step: &Step) {
        self.hearer.post_to_all(|| {
            Mail::Departure(DepartureOrder { departure: Arc::clone(&self.departure), step: step.clone() })
        });
    }

    fn wait(&self, stage: Stage, time: Duration) -> Result<bool, MoveError> {
        self.departure.wait(stage, time).map_err(|why| MoveError::Failed(why.to_owned()))
    }

    /// What goes to the other node next: deltas, in their order.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        self.departure.take()
    }

    /// How many bytes are to be taken by now.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.departure.waiting_bytes()
    }

    /// Whether the keys as they were when it began are among what was taken or is to be.
    ///
    /// # Errors
    /// [`MoveError::Failed`].
    pub fn is_written(&self, time: Duration) -> Result<bool, MoveError> {
        self.wait(Stage::Written, time)
    }

    /// Nobody begins anything with its keys any more. They wait until it is said how it ends.
    pub fn freeze(&self) {
        self.tell_all(&Step::Freeze);
    }

    /// Whether all that was under way is done, and what is to be taken is the rest.
    ///
    /// # Errors
    /// [`MoveError::Failed`].
    pub fn is_at_rest(&self, time: Duration) -> Result<bool, MoveError> {
        self.wait(Stage::AtRest, time)
    }

    /// It stays: who waited goes on.
    pub fn stay(&self) {
        self.tell_all(&Step::Stay);
    }

    /// It is another node's since an epoch: who waited is sent on, and the keys are forgotten here.
    pub fn go(&self, to: &NodeId, epoch: OwnerEpoch) {
        self.tell_all(&Step::Go(to.clone(), epoch));
    }

    /// It is somebody else's, since this epoch at least, who has not got it from here: it is served no more, and the log keeps what it has of it.
    pub fn lose(&self, epoch: OwnerEpoch) {
        self.tell_all(&Step::Lose(epoch));
    }
}

impl Hearer {
    /// The thread that has a virtual node's keys, if this service has them.
    pub(crate) fn actor_of(&self, node: u16) -> Option<ActorId> {
        node.checked_mul(GROUPS).and_then(|group| KeyGroup::new(group).ok()).map(|group| self.routes().actor_of(group))
    }

    /// A virtual node is to leave: what its keys are, and what is changed from now on, can be taken. Blocks.
    ///
    /// # Errors
    /// [`MoveError`].
    pub fn depart(&self, node: u16) -> Result<Leaving, MoveError> {
        let owner = self.actor_of(node);
        let owner = owner.ok_or_else(|| MoveError::Failed(format!("there is no virtual node {node}")))?;
        let departure = Arc::new(Departure::new(node, self.routes().actors()));
        let leaving = Leaving { hearer: self.clone(), departure };
        leaving.tell_all(&Step::Begin);
        match leaving.wait(Stage::Noted, HEARD_TIME) {
            Ok(true) => {
                let departure = Arc::clone(&leaving.departure);
                self.post(owner, Mail::Departure(DepartureOrder { departure, step: Step::Write }));
                Ok(leaving)
            }
            outcome => {
                leaving.stay();
                Err(outcome.err().unwrap_or(MoveError::Silent))
            }
        }
    }

    /// A virtual node is to come by an attempt, and to be served since an epoch. Blocks.
    ///
    /// # Errors
    /// [`MoveError`].
    pub fn expect(&self, node: u16, attempt: Attempt, epoch: OwnerEpoch) -> Result<(), MoveError> {
        self.arrive(node, ArrivalStep::Expect(attempt, epoch)).map(drop)
    }

    /// All keys of a virtual node that was expected have come: when this returns they are as durable as can be, and nobody has seen them.
    /// Blocks.
    ///
    /// # Errors
    /// [`MoveError`].
    pub fn receive(&self, node: u16, attempt: Attempt, keys: Vec<Adopted>, latest: Hlc) -> Result<(), MoveError> {
        let mut last = Lsn::NONE;
        for portion in portions(keys) {
            last = last.max(self.arrive(node, ArrivalStep::Take(attempt, portion, latest))?);
        }
        for actor in self.routes().all() {
            self.arrive_at(actor, node, ArrivalStep::Hear(latest))?;
        }
        last = last.max(self.arrive(node, ArrivalStep::End(attempt))?);
        self.wait(last).map_err(|error| MoveError::Failed(error.to_string()))
    }

    /// A virtual node is this node's since an epoch, by an attempt, or as its record says: it is served, if its keys are here. Blocks.
    ///
    /// # Errors
    /// [`MoveError`].
    pub fn serve(&self, node: u16, attempt: Option<Attempt>, epoch: OwnerEpoch) -> Result<(), MoveError> {
        // The keys are there before anybody asks for them.
        self.arrive(node, ArrivalStep::Serve(attempt, epoch))?;
        self.routes().all().try_for_each(|actor| self.arrive_at(actor, node, ArrivalStep::Learn(epoch)).map(drop))
    }

    /// A virtual node does not come by an attempt: what has come of it by that is void. Blocks.
    ///
    /// # Errors
    /// [`MoveError`].
    pub fn discard(&self, node: u16, attempt: Attempt) -> Result<(), MoveError> {
        self.arrive(node, ArrivalStep::Discard(attempt)).map(drop)
    }

    /// What is here of virtual nodes is void which this node does not serve, as a move that did not happen has left it, or a process that ended. Those
    /// that are on their way stay, unless they are to come another way. Blocks.
    ///
    /// # Errors
    /// [`MoveError`].
    pub fn clear(&self, nodes: impl IntoIterator<Item = u16>, come_another_way: bool) -> Result<(), MoveError> {
        let nodes: Arc<BTreeSet<u16>> = Arc::new(nodes.into_iter().collect());
        let step = || ArrivalStep::Clear(Arc::clone(&nodes), come_another_way);
        self.routes().all().try_for_each(|actor| self.arrive_at(actor, 0, step()).map(drop))
    }

    fn arrive(&self, node: u16, step: ArrivalStep) -> Result<Lsn, MoveError> {
        let owner = self.actor_of(node);
        let owner = owner.ok_or_else(|| MoveError::Failed(format!("there is no virtual node {node}")))?;
        self.arrive_at(owner, node, step)
    }

    fn arrive_at(&self, actor: ActorId, node: u16, step: ArrivalStep) -> Result<Lsn, MoveError> {
        let (done, outcome) = std::sync::mpsc::channel();
        self.post(actor, Mail::Arrival(Arrival { node, step, done }));
        match outcome.recv_timeout(HEARD_TIME) {
            Ok(outcome) => outcome.map_err(MoveError::Failed),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err(MoveError::Silent),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err(MoveError::Ended),
        }
    }
}
