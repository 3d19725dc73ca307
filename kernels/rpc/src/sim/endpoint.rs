//! Request and reply over a network that loses, repeats and reorders, as a pure state machine.
//!
//! A node that asks opens a *link* to the node it asks, as TCP would open a connection. Each direction of asking has a
//! link of its own. A link's number never repeats (the asker's incarnation and a counter), and every packet on it names
//! the incarnation of the node that answers: a request that was delayed past a restart is not answered by the new
//! incarnation. That is what keeps *at most once* true here.
//!
//! ```text
//!   asker                         answerer
//!     | Open{link}  (repeated)      |
//!     |---------------------------->|   a new session, unless this link has one
//!     |      Opened{link, answerer} |
//!     |<----------------------------|
//!     | Ask{link, answerer, frame}  |
//!     |---------------------------->|   unknown link or another incarnation: Reset{link}
//!     |        Answer{link, frame}  |
//!     |<----------------------------|
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use savanna_epoch::NodeId;

use super::{NodeAction, NodeInput, SimNode, TimerId};
use crate::{
    CallId, Delivery, Frame, Request, RequestContext, RequestId, RpcError, SessionAction, SessionCore, SessionInput,
    SessionLimits,
};

/// What two endpoints send to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// I want to ask over this link.
    Open {
        /// The asker's number for the link.
        link: u64,
    },
    /// Go on.
    Opened {
        /// The link.
        link: u64,
        /// The incarnation of the node that answers.
        answerer: u64,
    },
    /// From the asker.
    Ask {
        /// The link.
        link: u64,
        /// The incarnation that opened it.
        answerer: u64,
        /// What it says.
        frame: Frame,
    },
    /// From the node that answers.
    Answer {
        /// The link.
        link: u64,
        /// What it says.
        frame: Frame,
    },
    /// I know no such link.
    Reset {
        /// The link.
        link: u64,
    },
}

/// A handler that runs at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandlerKey {
    from: NodeId,
    link: u64,
    request: RequestId,
}

/// What happens to an endpoint.
#[derive(Debug)]
pub enum EndpointInput {
    /// This node asks. The id is new.
    Call(CallId, NodeId, Request),
    /// The caller went away.
    Cancel(CallId),
    /// A packet came.
    Packet(NodeId, Packet),
    /// A handler came to its end.
    Handled(HandlerKey, Result<Bytes, RpcError>),
    /// Time has passed; due at [`Endpoint::next_wake`].
    Tick,
}

/// What the driver of an endpoint has to do.
#[derive(Debug)]
pub enum EndpointAction {
    /// Send a packet.
    Send(NodeId, Packet),
    /// Start a handler and report its end.
    Start(HandlerKey, RequestContext, Bytes),
    /// Drop a running handler; do not report it.
    Abort(HandlerKey),
    /// A call has ended. Given exactly once for each call that was not cancelled.
    Complete(CallId, Result<Bytes, RpcError>),
}

/// Bounds and pauses of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Bounds of each link, and of the calls that wait for one to open.
    pub session: SessionLimits,
    /// How long opening a link is tried.
    pub open_timeout: Duration,
    /// The pause between two tries.
    pub open_retry: Duration,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            session: SessionLimits::default(),
            open_timeout: Duration::from_secs(1),
            open_retry: Duration::from_millis(50),
        }
    }
}

/// One node's requests and replies.
#[derive(Debug)]
pub struct Endpoint {
    incarnation: u64,
    limits: EndpointLimits,
    next_link: u64,
    asking: BTreeMap<NodeId, Asking>,
    answering: BTreeMap<NodeId, Answering>,
    called: BTreeMap<CallId, NodeId>,
}

#[derive(Debug)]
struct Asking {
    link: u64,
    state: AskingState,
}

#[derive(Debug)]
enum AskingState {
    Opening { waiting: VecDeque<(CallId, Request, Duration)>, retry_at: Duration, give_up_at: Duration },
    Open { answerer: u64, session: Box<SessionCore> },
}

#[derive(Debug)]
struct Answering {
    link: u64,
    session: SessionCore,
}

impl Endpoint {
    /// The endpoint of a node in its `incarnation`, which is higher after each restart.
    #[must_use]
    pub fn new(incarnation: u64, limits: EndpointLimits) -> Self {
        Self {
            incarnation,
            limits,
            next_link: incarnation << 32,
            asking: BTreeMap::new(),
            answering: BTreeMap::new(),
            called: BTreeMap::new(),
        }
    }

    /// When [`EndpointInput::Tick`] is due, if ever.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        let asking = self.asking.values().map(|asking| match &asking.state {
            AskingState::Opening { retry_at, give_up_at, waiting } => {
                let deadline = waiting.iter().map(|(_, _, deadline)| *deadline).min();
                deadline.into_iter().fold(*retry_at.min(give_up_at), Duration::min)
            }
            AskingState::Open { session, .. } => session.next_wake(),
        });
        asking.chain(self.answering.values().map(|answering| answering.session.next_wake())).min()
    }

    /// Takes one input.
    pub fn step(&mut self, input: EndpointInput, now: Duration) -> Vec<EndpointAction> {
        let mut actions = Vec::new();
        match input {
            EndpointInput::Call(id, to, request) => self.call(id, &to, request, now, &mut actions),
            EndpointInput::Cancel(id) => self.cancel(id, now, &mut actions),
            EndpointInput::Packet(from, packet) => self.packet(&from, packet, now, &mut actions),
            EndpointInput::Handled(key, result) => {
                if self.answering.get(&key.from).is_some_and(|answering| answering.link == key.link) {
                    self.answer(&key.from, SessionInput::Handled(key.request, result), now, &mut actions);
                }
            }
            EndpointInput::Tick => self.tick(now, &mut actions),
        }
        for action in &actions {
            if let EndpointAction::Complete(id, _) = action {
                self.called.remove(id);
            }
        }
        actions
    }

    fn call(&mut self, id: CallId, to: &NodeId, request: Request, now: Duration, actions: &mut Vec<EndpointAction>) {
        self.called.insert(id, to.clone());
        if !self.asking.contains_key(to) {
            self.next_link += 1;
            let state = AskingState::Opening {
                waiting: VecDeque::new(),
                retry_at: now + self.limits.open_retry,
                give_up_at: now + self.limits.open_timeout,
            };
            self.asking.insert(to.clone(), Asking { link: self.next_link, state });
            actions.push(EndpointAction::Send(to.clone(), Packet::Open { link: self.next_link }));
        }
        match &mut self.asking.get_mut(to).expect("inserted above").state {
            AskingState::Opening { waiting, .. } if waiting.len() >= self.limits.session.queued_max => {
                let limit = self.limits.session.queued_max as u64;
                let error = RpcError::Overloaded { what: format!("the queue of requests to node {to}"), limit };
                actions.push(EndpointAction::Complete(id, Err(error)));
            }
            AskingState::Opening { waiting, .. } => {
                let deadline = now.saturating_add(request.timeout);
                waiting.push_back((id, request, deadline));
            }
            AskingState::Open { .. } => self.ask(to, SessionInput::Call(id, request), now, actions),
        }
    }

    fn cancel(&mut self, id: CallId, now: Duration, actions: &mut Vec<EndpointAction>) {
        let Some(to) = self.called.remove(&id) else {
            return;
        };
        match self.asking.get_mut(&to).map(|asking| &mut asking.state) {
            Some(AskingState::Opening { waiting, .. }) => waiting.retain(|(waiting, ..)| *waiting != id),
            Some(AskingState::Open { .. }) => self.ask(&to, SessionInput::Cancel(id), now, actions),
            None => {}
        }
    }

    fn packet(&mut self, from: &NodeId, packet: Packet, now: Duration, actions: &mut Vec<EndpointAction>) {
        match packet {
            Packet::Open { link } => self.open(from, link, now, actions),
            Packet::Opened { link, answerer } => self.opened(from, link, answerer, now, actions),
            Packet::Ask { link, answerer, frame } => {
                let known = self.answering.get(from).is_some_and(|answering| answering.link == link);
                if known && answerer == self.incarnation {
                    self.answer(from, SessionInput::Received(frame), now, actions);
                } else {
                    actions.push(EndpointAction::Send(from.clone(), Packet::Reset { link }));
                }
            }
            Packet::Answer { link, frame } => {
                let open = self
                    .asking
                    .get(from)
                    .is_some_and(|asking| asking.link == link && matches!(asking.state, AskingState::Open { .. }));
                if open {
                    self.ask(from, SessionInput::Received(frame), now, actions);
                }
            }
            Packet::Reset { link } => {
                if self.asking.get(from).is_some_and(|asking| asking.link == link) {
                    self.lose(from, "it does not know this connection any more: it was restarted", now, actions);
                }
            }
        }
    }

    fn open(&mut self, from: &NodeId, link: u64, now: Duration, actions: &mut Vec<EndpointAction>) {
        let known = self.answering.get(from).map(|answering| answering.link);
        if known.is_some_and(|known| known > link) {
            return;
        }
        if known != Some(link) {
            if known.is_some() {
                self.answer(from, SessionInput::Lost("replaced by a newer connection".to_owned()), now, actions);
            }
            let session = SessionCore::new(from.clone(), self.limits.session, now);
            self.answering.insert(from.clone(), Answering { link, session });
        }
        actions.push(EndpointAction::Send(from.clone(), Packet::Opened { link, answerer: self.incarnation }));
    }

    fn opened(&mut self, from: &NodeId, link: u64, answerer: u64, now: Duration, actions: &mut Vec<EndpointAction>) {
        let Some(asking) = self.asking.get_mut(from) else {
            return;
        };
        if asking.link != link || matches!(asking.state, AskingState::Open { .. }) {
            return;
        }
        let session = Box::new(SessionCore::new(from.clone(), self.limits.session, now));
        let opening = std::mem::replace(&mut asking.state, AskingState::Open { answerer, session });
        if let AskingState::Opening { waiting, .. } = opening {
            for (id, request, deadline) in waiting {
                let request = Request { timeout: deadline.saturating_sub(now), ..request };
                self.ask(from, SessionInput::Call(id, request), now, actions);
            }
        }
    }

    /// Gives an input to the session over which this node asks `to`.
    fn ask(&mut self, to: &NodeId, input: SessionInput, now: Duration, actions: &mut Vec<EndpointAction>) {
        let Some(Asking { link, state: AskingState::Open { answerer, session } }) = self.asking.get_mut(to) else {
            return;
        };
        let (link, answerer) = (*link, *answerer);
        let mut lost = None;
        for action in session.step(input, now) {
            match action {
                SessionAction::Send(frame) => {
                    actions.push(EndpointAction::Send(to.clone(), Packet::Ask { link, answerer, frame }));
                }
                SessionAction::Complete(id, result) => actions.push(EndpointAction::Complete(id, result)),
                SessionAction::Close(reason) => lost = Some(reason),
                // The other side of this link only answers; a request from it has no meaning.
                SessionAction::Start(..) | SessionAction::Abort(_) => {}
            }
        }
        if let Some(reason) = lost {
            self.lose(to, &reason, now, actions);
        }
    }

    /// Gives an input to the session over which this node answers `from`.
    fn answer(&mut self, from: &NodeId, input: SessionInput, now: Duration, actions: &mut Vec<EndpointAction>) {
        let Some(Answering { link, session }) = self.answering.get_mut(from) else {
            return;
        };
        let link = *link;
        let key = |request| HandlerKey { from: from.clone(), link, request };
        let mut closed = None;
        for action in session.step(input, now) {
            match action {
                SessionAction::Send(frame) => {
                    actions.push(EndpointAction::Send(from.clone(), Packet::Answer { link, frame }));
                }
                SessionAction::Start(id, context, body) => actions.push(EndpointAction::Start(key(id), context, body)),
                SessionAction::Abort(id) => actions.push(EndpointAction::Abort(key(id))),
                SessionAction::Close(reason) => closed = Some(reason),
                // Nothing is asked over this link from this side.
                SessionAction::Complete(..) => {}
            }
        }
        if let Some(reason) = closed {
            self.answer(from, SessionInput::Lost(reason), now, actions);
            self.answering.remove(from);
        }
    }

    fn lose(&mut self, to: &NodeId, reason: &str, now: Duration, actions: &mut Vec<EndpointAction>) {
        let Some(asking) = self.asking.remove(to) else {
            return;
        };
        match asking.state {
            AskingState::Opening { waiting, .. } => {
                for (id, ..) in waiting {
                    let error = RpcError::Unreachable {
                        node: to.clone(),
                        reason: reason.to_owned(),
                        delivery: Delivery::NotStarted,
                    };
                    actions.push(EndpointAction::Complete(id, Err(error)));
                }
            }
            AskingState::Open { mut session, .. } => {
                for action in session.step(SessionInput::Lost(reason.to_owned()), now) {
                    if let SessionAction::Complete(id, result) = action {
                        actions.push(EndpointAction::Complete(id, result));
                    }
                }
            }
        }
    }

    fn tick(&mut self, now: Duration, actions: &mut Vec<EndpointAction>) {
        for from in self.answering.keys().cloned().collect::<Vec<_>>() {
            if self.answering[&from].session.next_wake() <= now {
                self.answer(&from, SessionInput::Tick, now, actions);
            }
        }
        for to in self.asking.keys().cloned().collect::<Vec<_>>() {
            let asking = self.asking.get_mut(&to).expect("listed above");
            match &mut asking.state {
                AskingState::Opening { waiting, retry_at, give_up_at } => {
                    waiting.retain(|(id, request, deadline)| {
                        let late = *deadline <= now;
                        if late {
                            let error = RpcError::TimedOut { limit: request.timeout };
                            actions.push(EndpointAction::Complete(*id, Err(error)));
                        }
                        !late
                    });
                    if *give_up_at <= now {
                        self.lose(&to, "it does not answer", now, actions);
                    } else if *retry_at <= now {
                        *retry_at = now + self.limits.open_retry;
                        actions.push(EndpointAction::Send(to.clone(), Packet::Open { link: asking.link }));
                    }
                }
                AskingState::Open { session, .. } if session.next_wake() <= now => {
                    self.ask(&to, SessionInput::Tick, now, actions);
                }
                AskingState::Open { .. } => {}
            }
        }
    }

    const WAKE: TimerId = TimerId(0);

    /// The actions in the network's terms: packets are sent, everything else is told to the driver.
    pub(super) fn in_network_terms(&self, actions: Vec<EndpointAction>) -> Vec<NodeAction<Packet, EndpointAction>> {
        let actions = actions.into_iter().map(|action| match action {
            EndpointAction::Send(to, message) => NodeAction::Send { to, message },
            other => NodeAction::Effect(other),
        });
        let wake = self.next_wake().map(|at| NodeAction::Timer { id: Self::WAKE, at });
        actions.chain(wake).collect()
    }
}

impl SimNode for Endpoint {
    type Message = Packet;
    type Effect = EndpointAction;

    fn step(&mut self, input: NodeInput<Packet>, now: Duration) -> Vec<NodeAction<Packet, EndpointAction>> {
        let input = match input {
            NodeInput::Start | NodeInput::Timer(_) => EndpointInput::Tick,
            NodeInput::Message { from, message } => EndpointInput::Packet(from, message),
        };
        let actions = Self::step(self, input, now);
        self.in_network_terms(actions)
    }
}
