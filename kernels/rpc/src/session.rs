//! The protocol between two nodes as a pure state machine: windows, deadlines, cancellation, duplicates, half-open
//! connections. The TCP transport and the simulated one drive the same [`SessionCore`], one per connection.
//!
//! ```text
//!  caller                                              handler
//!    | Call        +-------------+        +-------------+
//!    +------------>| window      | Request| seen? room? | Start
//!    |             | queue       |------->| in time?    +------>
//!    |             | deadlines   |        | deadlines   |
//!    |  Complete   |             |  Reply |             | Handled
//!    |<------------|             |<-------|             |<------
//!                  +-------------+        +-------------+
//! ```
//!
//! Time is a monotonic clock's reading since an origin of the driver's choice. Both sides may ask.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use savanna_epoch::NodeId;

use crate::{Delivery, Frame, Message, Request, RequestContext, RequestHead, RequestId, RpcError};

/// Bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Requests sent and not answered.
    pub in_flight_max: usize,
    /// Requests that wait for a place in the window.
    pub queued_max: usize,
    /// Handlers that run for the other side.
    pub handlers_max: usize,
    /// Request ids remembered above the oldest one that is not known to be a duplicate.
    pub seen_max: usize,
    /// Nothing heard for this long: ask whether the other side is there.
    pub ping_after: Duration,
    /// Nothing heard for this long: the connection is dead.
    pub dead_after: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            in_flight_max: 256,
            queued_max: 1024,
            handlers_max: 256,
            seen_max: 4096,
            ping_after: Duration::from_secs(5),
            dead_after: Duration::from_secs(15),
        }
    }
}

/// A call of this side's, numbered by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What happens to a session.
#[derive(Debug)]
pub enum SessionInput {
    /// This side asks. The id is new.
    Call(CallId, Request),
    /// This side no longer waits for a call (the caller went away). Unknown ids are ignored.
    Cancel(CallId),
    /// The other side said something.
    Received(Frame),
    /// A handler that was started came to its end.
    Handled(RequestId, Result<Bytes, RpcError>),
    /// Time has passed; due at [`SessionCore::next_wake`].
    Tick,
    /// The connection is lost, with the reason. Nothing else may follow.
    Lost(String),
}

/// What the driver has to do, in this order.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionAction {
    /// Send a frame.
    Send(Frame),
    /// Start a handler and report its end with [`SessionInput::Handled`].
    Start(RequestId, RequestContext, Bytes),
    /// Drop a running handler; do not report it.
    Abort(RequestId),
    /// A call of this side's has ended. Given exactly once for each call that was not cancelled.
    Complete(CallId, Result<Bytes, RpcError>),
    /// The connection cannot be used any more: close it and give [`SessionInput::Lost`] with the reason.
    Close(String),
}

/// One connection's protocol.
#[derive(Debug)]
pub struct SessionCore {
    peer: NodeId,
    limits: SessionLimits,
    sent: BTreeMap<RequestId, Waiting>,
    sent_as: BTreeMap<CallId, RequestId>,
    queued: VecDeque<(CallId, Request, Duration)>,
    /// When calls, sent or queued, run out of time.
    deadlines: BTreeSet<(Duration, CallId)>,
    next_request: u64,
    handlers: BTreeMap<RequestId, Duration>,
    seen: SeenRequests,
    heard_at: Duration,
    pinged_at: Option<Duration>,
}

#[derive(Debug)]
struct Waiting {
    call: CallId,
    limit: Duration,
    deadline: Duration,
}

impl SessionCore {
    /// A new connection to `peer`, over which nothing was said yet.
    #[must_use]
    pub fn new(peer: NodeId, limits: SessionLimits, now: Duration) -> Self {
        Self {
            peer,
            limits,
            sent: BTreeMap::new(),
            sent_as: BTreeMap::new(),
            queued: VecDeque::new(),
            deadlines: BTreeSet::new(),
            next_request: 1,
            handlers: BTreeMap::new(),
            seen: SeenRequests::new(limits.seen_max),
            heard_at: now,
            pinged_at: None,
        }
    }

    /// The node on the other side.
    #[must_use]
    pub fn peer(&self) -> &NodeId {
        &self.peer
    }

    /// Whether no call waits and no handler runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.queued.is_empty() && self.handlers.is_empty()
    }

    /// Calls of this side's that wait for an answer or for a place in the window.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.sent.len() + self.queued.len()
    }

    /// When [`SessionInput::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Duration {
        let silence = match self.pinged_at {
            None => self.heard_at + self.limits.ping_after,
            Some(_) => self.heard_at + self.limits.dead_after,
        };
        let call = self.deadlines.first().map(|(deadline, _)| *deadline);
        let handler = self.handlers.values().min().copied();
        [call, handler].into_iter().flatten().fold(silence, Duration::min)
    }

    /// Takes one input.
    pub fn step(&mut self, input: SessionInput, now: Duration) -> Vec<SessionAction> {
        let mut actions = Vec::new();
        match input {
            SessionInput::Call(call, request) => self.call(call, request, now, &mut actions),
            SessionInput::Cancel(call) => self.cancel(call, now, &mut actions),
            SessionInput::Received(frame) => self.received(frame, now, &mut actions),
            SessionInput::Handled(request, result) => {
                if self.handlers.remove(&request).is_some() {
                    actions.push(SessionAction::Send(Frame::answer(request, result)));
                }
            }
            SessionInput::Tick => self.tick(now, &mut actions),
            SessionInput::Lost(reason) => self.lost(&reason, &mut actions),
        }
        debug_assert!(self.sent.len() <= self.limits.in_flight_max && self.queued.len() <= self.limits.queued_max);
        debug_assert!(self.sent.len() == self.sent_as.len() && self.handlers.len() <= self.limits.handlers_max);
        actions
    }

    fn call(&mut self, call: CallId, request: Request, now: Duration, actions: &mut Vec<SessionAction>) {
        let deadline = now.saturating_add(request.timeout);
        if self.sent.len() < self.limits.in_flight_max {
            self.deadlines.insert((deadline, call));
            self.send(call, request, deadline, now, actions);
        } else if self.queued.len() < self.limits.queued_max {
            self.deadlines.insert((deadline, call));
            self.queued.push_back((call, request, deadline));
        } else {
            let error = RpcError::Overloaded {
                what: format!("the queue of requests to node {}", self.peer),
                limit: self.limits.queued_max as u64,
            };
            actions.push(SessionAction::Complete(call, Err(error)));
        }
    }

    fn send(
        &mut self,
        call: CallId,
        request: Request,
        deadline: Duration,
        now: Duration,
        actions: &mut Vec<SessionAction>,
    ) {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.sent.insert(id, Waiting { call, limit: request.timeout, deadline });
        self.sent_as.insert(call, id);
        let message =
            Message::Request { head: request.head, time_left: deadline.saturating_sub(now), body: request.body };
        actions.push(SessionAction::Send(Frame { request: id, message }));
    }

    /// Sends what the window has room for.
    fn pump(&mut self, now: Duration, actions: &mut Vec<SessionAction>) {
        while self.sent.len() < self.limits.in_flight_max {
            let Some((call, request, deadline)) = self.queued.pop_front() else {
                return;
            };
            self.send(call, request, deadline, now, actions);
        }
    }

    fn cancel(&mut self, call: CallId, now: Duration, actions: &mut Vec<SessionAction>) {
        if let Some(id) = self.sent_as.remove(&call) {
            let waiting = self.sent.remove(&id).expect("both maps hold the same calls");
            self.deadlines.remove(&(waiting.deadline, call));
            actions.push(SessionAction::Send(Frame { request: id, message: Message::Cancel }));
            self.pump(now, actions);
        } else if let Some(at) = self.queued.iter().position(|(queued, ..)| *queued == call)
            && let Some((_, _, deadline)) = self.queued.remove(at)
        {
            self.deadlines.remove(&(deadline, call));
        }
    }

    fn received(&mut self, frame: Frame, now: Duration, actions: &mut Vec<SessionAction>) {
        self.heard_at = now;
        self.pinged_at = None;
        let id = frame.request;
        match frame.message {
            Message::Request { head, time_left, body } => self.requested(id, head, time_left, body, now, actions),
            Message::Reply(body) => self.answered(id, Ok(body), now, actions),
            Message::Error(error) => self.answered(id, Err(error), now, actions),
            Message::Cancel => {
                // The cancel may overtake its request, which must then not start.
                self.seen.insert(id);
                if self.handlers.remove(&id).is_some() {
                    actions.push(SessionAction::Abort(id));
                }
            }
            Message::Ping => {
                actions.push(SessionAction::Send(Frame { request: RequestId(0), message: Message::Pong }));
            }
            Message::Pong => {}
            Message::Hello(hello) => actions.push(SessionAction::Close(format!(
                "expected a request or an answer from node {}, got a second hello from node {}",
                self.peer, hello.from
            ))),
            Message::Proof(_) => actions.push(SessionAction::Close(format!(
                "expected a request or an answer from node {}, got a proof that nobody asked for",
                self.peer
            ))),
        }
    }

    fn requested(
        &mut self,
        id: RequestId,
        head: RequestHead,
        time_left: Duration,
        body: Bytes,
        now: Duration,
        actions: &mut Vec<SessionAction>,
    ) {
        if !self.seen.insert(id) {
            return;
        }
        if self.handlers.len() >= self.limits.handlers_max {
            let error = RpcError::Overloaded {
                what: "the set of handlers running for this connection".to_owned(),
                limit: self.limits.handlers_max as u64,
            };
            actions.push(SessionAction::Send(Frame::answer(id, Err(error))));
            return;
        }
        self.handlers.insert(id, now.saturating_add(time_left));
        let context = RequestContext { from: self.peer.clone(), head, time_left };
        actions.push(SessionAction::Start(id, context, body));
    }

    fn answered(
        &mut self,
        id: RequestId,
        result: Result<Bytes, RpcError>,
        now: Duration,
        actions: &mut Vec<SessionAction>,
    ) {
        // Late and repeated answers find nobody waiting.
        if let Some(waiting) = self.sent.remove(&id) {
            self.sent_as.remove(&waiting.call);
            self.deadlines.remove(&(waiting.deadline, waiting.call));
            actions.push(SessionAction::Complete(waiting.call, result));
            self.pump(now, actions);
        }
    }

    fn tick(&mut self, now: Duration, actions: &mut Vec<SessionAction>) {
        while let Some(&(deadline, call)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            let limit = if let Some(id) = self.sent_as.remove(&call) {
                let waiting = self.sent.remove(&id).expect("both maps hold the same calls");
                actions.push(SessionAction::Send(Frame { request: id, message: Message::Cancel }));
                waiting.limit
            } else {
                let at = self.queued.iter().position(|(queued, ..)| *queued == call);
                let queued = at.and_then(|at| self.queued.remove(at));
                queued.expect("a call with a deadline is sent or queued").1.timeout
            };
            actions.push(SessionAction::Complete(call, Err(RpcError::TimedOut { limit })));
        }
        let late: Vec<RequestId> =
            self.handlers.iter().filter(|(_, deadline)| **deadline <= now).map(|(id, _)| *id).collect();
        for id in late {
            // The caller's own clock ends the call; nobody waits for an answer.
            self.handlers.remove(&id);
            actions.push(SessionAction::Abort(id));
        }
        self.pump(now, actions);
        let silent_for = now.saturating_sub(self.heard_at);
        if silent_for >= self.limits.dead_after {
            actions.push(SessionAction::Close(format!(
                "nothing was heard from node {} for {silent_for:?}, not even an answer to a ping",
                self.peer
            )));
        } else if silent_for >= self.limits.ping_after && self.pinged_at.is_none() {
            self.pinged_at = Some(now);
            actions.push(SessionAction::Send(Frame::ping()));
        }
    }

    fn lost(&mut self, reason: &str, actions: &mut Vec<SessionAction>) {
        let unreachable =
            |delivery| RpcError::Unreachable { node: self.peer.clone(), reason: reason.to_owned(), delivery };
        for waiting in std::mem::take(&mut self.sent).into_values() {
            actions.push(SessionAction::Complete(waiting.call, Err(unreachable(Delivery::Unknown))));
        }
        for (call, ..) in std::mem::take(&mut self.queued) {
            actions.push(SessionAction::Complete(call, Err(unreachable(Delivery::NotStarted))));
        }
        self.sent_as.clear();
        self.deadlines.clear();
        actions.extend(std::mem::take(&mut self.handlers).into_keys().map(SessionAction::Abort));
    }
}

/// The request ids that came, so that none starts twice. Remembers `capacity` ids above `below`; whatever is under
/// `below` counts as seen. An id delayed beyond that is dropped, which its caller sees as a time-out.
#[derive(Debug)]
struct SeenRequests {
    below: u64,
    above: BTreeSet<u64>,
    capacity: usize,
}

impl SeenRequests {
    fn new(capacity: usize) -> Self {
        Self { below: 1, above: BTreeSet::new(), capacity: capacity.max(1) }
    }

    /// Whether the id is new.
    fn insert(&mut self, id: RequestId) -> bool {
        if id.0 < self.below || !self.above.insert(id.0) {
            return false;
        }
        while self.above.first() == Some(&self.below) {
            self.above.pop_first();
            self.below += 1;
        }
        if self.above.len() > self.capacity
            && let Some(oldest) = self.above.pop_first()
        {
            self.below = oldest + 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn request(timeout_ms: u32) -> Request {
        let head = RequestHead { method: "t/m".into(), shard: None, idempotent: false };
        Request { head, body: Bytes::from_static(b"x"), timeout: MS * timeout_ms }
    }

    fn session(limits: SessionLimits) -> SessionCore {
        SessionCore::new(NodeId::new("b"), limits, Duration::ZERO)
    }

    fn incoming(id: u64, time_left: Duration) -> SessionInput {
        let message = Message::Request { head: request(1).head, time_left, body: Bytes::new() };
        SessionInput::Received(Frame { request: RequestId(id), message })
    }

    fn reply(id: u64) -> SessionInput {
        SessionInput::Received(Frame::answer(RequestId(id), Ok(Bytes::from_static(b"y"))))
    }

    #[test]
    fn the_window_and_the_queue_are_bounded_and_an_answer_makes_room() {
        let mut core = session(SessionLimits { in_flight_max: 1, queued_max: 1, ..SessionLimits::default() });
        assert!(matches!(core.step(SessionInput::Call(CallId(1), request(50)), MS)[..], [SessionAction::Send(_)]));
        assert!(core.step(SessionInput::Call(CallId(2), request(50)), MS).is_empty());
        let third = core.step(SessionInput::Call(CallId(3), request(50)), MS);
        assert!(matches!(third[..], [SessionAction::Complete(CallId(3), Err(RpcError::Overloaded { .. }))]));
        let answered = core.step(reply(1), MS * 2);
        assert!(matches!(answered[..], [SessionAction::Complete(CallId(1), Ok(_)), SessionAction::Send(_)]));
    }

    #[test]
    fn what_a_call_waited_for_its_place_is_taken_off_the_time_that_it_has_left() {
        let mut core = session(SessionLimits { in_flight_max: 1, ..SessionLimits::default() });
        core.step(SessionInput::Call(CallId(1), request(50)), MS);
        core.step(SessionInput::Call(CallId(2), request(50)), MS);
        let actions = core.step(reply(1), MS * 31);
        let [_, SessionAction::Send(Frame { message: Message::Request { time_left, .. }, .. })] = &actions[..] else {
            panic!("{actions:?}");
        };
        assert_eq!(*time_left, MS * 20);
    }

    #[test]
    fn a_duplicate_or_cancelled_request_starts_nothing() {
        let mut core = session(SessionLimits::default());
        assert_eq!(core.step(incoming(1, MS), MS).len(), 1);
        assert!(core.step(incoming(1, MS), MS).is_empty());
        let cancel = Frame { request: RequestId(2), message: Message::Cancel };
        assert!(core.step(SessionInput::Received(cancel), MS).is_empty());
        assert!(core.step(incoming(2, MS), MS).is_empty(), "the cancel overtook it");
        assert_eq!(core.step(incoming(3, MS), MS).len(), 1);
    }

    #[test]
    fn ids_below_the_memory_count_as_seen() {
        let mut seen = SeenRequests::new(2);
        assert!([10, 12, 14].into_iter().all(|id| seen.insert(RequestId(id))));
        assert!(!seen.insert(RequestId(9)) && !seen.insert(RequestId(10)) && seen.insert(RequestId(11)));
    }

    #[test]
    fn a_call_ends_at_its_deadline_and_the_other_side_is_told() {
        let mut core = session(SessionLimits { in_flight_max: 1, ..SessionLimits::default() });
        core.step(SessionInput::Call(CallId(1), request(10)), Duration::ZERO);
        core.step(SessionInput::Call(CallId(2), request(10)), Duration::ZERO);
        assert_eq!(core.next_wake(), MS * 10);
        let actions = core.step(SessionInput::Tick, MS * 10);
        let completed =
            actions.iter().filter(|a| matches!(a, SessionAction::Complete(_, Err(RpcError::TimedOut { .. })))).count();
        let cancels =
            actions.iter().filter(|a| matches!(a, SessionAction::Send(f) if f.message == Message::Cancel)).count();
        assert_eq!((completed, cancels), (2, 1), "the queued one was never sent: {actions:?}");
        assert!(core.step(reply(1), MS * 11).is_empty(), "a late answer finds nobody");
        assert!(core.is_idle());
    }

    #[test]
    fn a_handler_past_the_callers_deadline_is_dropped() {
        let mut core = session(SessionLimits::default());
        core.step(incoming(1, MS * 5), Duration::ZERO);
        assert_eq!(core.step(SessionInput::Tick, MS * 5), [SessionAction::Abort(RequestId(1))]);
        assert!(core.step(SessionInput::Handled(RequestId(1), Ok(Bytes::new())), MS * 6).is_empty());
    }

    #[test]
    fn a_silent_peer_is_pinged_once_and_then_given_up() {
        let limits = SessionLimits::default();
        let mut core = session(limits);
        assert_eq!(core.next_wake(), limits.ping_after);
        assert_eq!(core.step(SessionInput::Tick, limits.ping_after), [SessionAction::Send(Frame::ping())]);
        assert_eq!(core.next_wake(), limits.dead_after);
        assert!(matches!(core.step(SessionInput::Tick, limits.dead_after)[..], [SessionAction::Close(_)]));
    }

    #[test]
    fn a_lost_connection_tells_what_may_have_run_from_what_did_not() {
        let mut core = session(SessionLimits { in_flight_max: 1, ..SessionLimits::default() });
        core.step(SessionInput::Call(CallId(1), request(10)), Duration::ZERO);
        core.step(SessionInput::Call(CallId(2), request(10)), Duration::ZERO);
        core.step(incoming(1, MS), Duration::ZERO);
        let actions = core.step(SessionInput::Lost("reset".into()), MS);
        let deliveries: Vec<_> = actions
            .iter()
            .filter_map(|action| match action {
                SessionAction::Complete(_, Err(error)) => Some(error.delivery()),
                _ => None,
            })
            .collect();
        assert_eq!(deliveries, [Delivery::Unknown, Delivery::NotStarted]);
        assert!(actions.contains(&SessionAction::Abort(RequestId(1))));
    }
}
