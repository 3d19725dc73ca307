//! The actors of the simulated cluster: thin drivers of the product's cores.

mod client;
mod coordinator;
mod owner;

use std::time::Duration;

use savanna_epoch::{NodeEpoch, OwnerEpoch};
use savanna_ownership::MonoTime;
use savanna_rpc::sim::{
    Endpoint, EndpointAction, EndpointInput, EndpointLimits, NodeAction, NodeInput, Packet, SimNode, TimerId,
};
use savanna_rpc::{CallId, Request, SessionLimits};

pub(crate) use self::{
    client::Client,
    coordinator::Coordinator,
    owner::{Owner, OwnerConfig},
};
use crate::history::Told;

/// The epoch under which the log of a shard is opened. Each shard has one of its own here, so that the log's fence is the shard's.
pub(crate) const fn log_epoch(epoch: OwnerEpoch) -> NodeEpoch {
    NodeEpoch(epoch.0)
}

/// What an actor does in one step.
pub(crate) type Out = Vec<NodeAction<Packet, Told>>;

const ENDPOINT_TIMER: TimerId = TimerId(0);
/// Timers of the actors themselves begin here.
const OWN_TIMERS: u64 = 1;

/// Any of the actors.
pub(crate) enum Actor {
    Coordinator(Box<Coordinator>),
    Owner(Box<Owner>),
    Client(Box<Client>),
}

impl SimNode for Actor {
    type Message = Packet;
    type Effect = Told;

    fn step(&mut self, input: NodeInput<Packet>, now: Duration) -> Out {
        match self {
            Self::Coordinator(coordinator) => coordinator.step(input, now),
            Self::Owner(owner) => owner.step(input, now),
            Self::Client(client) => client.step(input, now),
        }
    }
}

/// An endpoint with its timer and the numbers of its calls.
pub(crate) struct Rpc {
    endpoint: Endpoint,
    next_call: u64,
    armed: Option<Duration>,
}

impl Rpc {
    fn new(incarnation: u64) -> Self {
        let session = SessionLimits {
            ping_after: Duration::from_millis(400),
            dead_after: Duration::from_millis(1_000),
            ..SessionLimits::default()
        };
        let limits =
            EndpointLimits { session, open_timeout: Duration::from_millis(300), open_retry: Duration::from_millis(40) };
        Self { endpoint: Endpoint::new(incarnation, limits), next_call: 1, armed: None }
    }

    /// Gives an input to the endpoint; what is left for the actor comes back.
    fn feed(&mut self, input: EndpointInput, now: Duration, out: &mut Out) -> Vec<EndpointAction> {
        let mut left = Vec::new();
        for action in self.endpoint.step(input, now) {
            match action {
                EndpointAction::Send(to, message) => out.push(NodeAction::Send { to, message }),
                other => left.push(other),
            }
        }
        left
    }

    /// What a message or the endpoint's own timer leads to; `None` for timers of the actor.
    fn network_input(&mut self, input: NodeInput<Packet>) -> Result<EndpointInput, OwnInput> {
        match input {
            NodeInput::Start => Err(OwnInput::Start),
            NodeInput::Message { from, message } => Ok(EndpointInput::Packet(from, message)),
            NodeInput::Timer(ENDPOINT_TIMER) => {
                self.armed = None;
                Ok(EndpointInput::Tick)
            }
            NodeInput::Timer(TimerId(number)) => Err(OwnInput::Timer(number)),
        }
    }

    fn new_call(&mut self) -> CallId {
        let id = CallId(self.next_call);
        self.next_call += 1;
        id
    }

    /// Starts a call. It may end at once, in what comes back.
    fn call(
        &mut self,
        id: CallId,
        to: savanna_epoch::NodeId,
        request: Request,
        now: Duration,
        out: &mut Out,
    ) -> Vec<EndpointAction> {
        self.feed(EndpointInput::Call(id, to, request), now, out)
    }

    /// Sets the endpoint's timer if it changed; to be called at the end of each step.
    fn arm(&mut self, out: &mut Out) {
        let wake = self.endpoint.next_wake();
        if wake != self.armed
            && let Some(at) = wake
        {
            out.push(NodeAction::Timer { id: ENDPOINT_TIMER, at });
        }
        self.armed = wake;
    }
}

/// What is not the network's business.
pub(crate) enum OwnInput {
    Start,
    Timer(u64),
}

/// A clock's reading as leases want it.
fn mono(now: Duration) -> MonoTime {
    MonoTime(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// A reading of a lease's clock as timers want it.
fn reading(time: MonoTime) -> Duration {
    Duration::from_nanos(time.0)
}
