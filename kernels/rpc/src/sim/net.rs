//! The network: events in the order of virtual time, and every fault that a message or a node can have.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    fmt,
    time::Duration,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::NodeId;

use super::Trace;

/// A timer of one node. Setting it again moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u64);

/// What happens to a node.
#[derive(Clone, Debug)]
pub enum NodeInput<M> {
    /// It was started, for the first time or after a crash.
    Start,
    /// A message came.
    Message {
        /// Its sender.
        from: NodeId,
        /// The message.
        message: M,
    },
    /// A timer is due.
    Timer(TimerId),
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum NodeAction<M, E> {
    /// Send a message.
    Send {
        /// To whom.
        to: NodeId,
        /// The message.
        message: M,
    },
    /// Wake me when my clock shows `at`.
    Timer {
        /// Which timer.
        id: TimerId,
        /// When, by the node's own clock.
        at: Duration,
    },
    /// Tell whoever drives the simulation.
    Effect(E),
}

/// A node as a pure state machine. `now` is the node's own clock.
pub trait SimNode {
    /// What nodes say to each other.
    type Message: Clone + fmt::Debug;
    /// What a node tells the simulation.
    type Effect;

    /// Takes one input.
    fn step(&mut self, input: NodeInput<Self::Message>, now: Duration) -> Vec<NodeAction<Self::Message, Self::Effect>>;
}

/// The chances of a message. Probabilities are per thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetFaults {
    /// Shortest time on the way.
    pub delay_min: Duration,
    /// Longest ordinary time on the way.
    pub delay_max: Duration,
    /// Lost.
    pub drop_per_mille: u32,
    /// Delivered twice.
    pub duplicate_per_mille: u32,
    /// Overtaken by later ones; the others keep their order on each link.
    pub reorder_per_mille: u32,
    /// Longest extra time of an overtaken message.
    pub reorder_delay_max: Duration,
}

impl NetFaults {
    /// A local network in good health.
    pub const HEALTHY: Self = Self {
        delay_min: Duration::from_micros(200),
        delay_max: Duration::from_millis(2),
        drop_per_mille: 0,
        duplicate_per_mille: 0,
        reorder_per_mille: 0,
        reorder_delay_max: Duration::ZERO,
    };
}

/// How a node's clock differs from true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSkew {
    /// How far it is ahead at the start.
    pub ahead: Duration,
    /// How much faster it runs, in parts per million; negative: slower.
    pub drift_ppm: i32,
}

/// True time of a simulation, and the nodes' deviations from it.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    now: Duration,
    skews: BTreeMap<NodeId, ClockSkew>,
}

impl VirtualClock {
    /// True time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// What a node's clock shows.
    #[must_use]
    pub fn local(&self, node: &NodeId) -> Duration {
        let skew = self.skews.get(node).copied().unwrap_or_default();
        let drift = self.now.as_nanos() as i128 * i128::from(skew.drift_ppm) / 1_000_000;
        let nanos = self.now.as_nanos() as i128 + drift + skew.ahead.as_nanos() as i128;
        Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// True time when a node's clock shows `local`, not before now.
    fn when(&self, node: &NodeId, local: Duration) -> Duration {
        let skew = self.skews.get(node).copied().unwrap_or_default();
        let since_start = local.as_nanos() as i128 - skew.ahead.as_nanos() as i128;
        let rate = 1_000_000 + i128::from(skew.drift_ppm);
        // Rounded up: a timer is never early by its own clock.
        let nanos = (since_start * 1_000_000 + rate - 1) / rate.max(1);
        self.now.max(Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)))
    }
}

#[derive(Debug)]
struct Event<M> {
    at: Duration,
    /// Order among events of one instant.
    number: u64,
    node: NodeId,
    what: What<M>,
}

#[derive(Debug)]
enum What<M> {
    Start { incarnation: u64 },
    Message { from: NodeId, message: M },
    Timer { incarnation: u64, id: TimerId, set: u64 },
}

impl<M> PartialEq for Event<M> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<M> Eq for Event<M> {}

impl<M> PartialOrd for Event<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Event<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Slot<N: SimNode> {
    node: Option<N>,
    incarnation: u64,
    paused: bool,
    held: VecDeque<What<N::Message>>,
    /// The number under which each timer was set last; earlier settings are void.
    timers: BTreeMap<TimerId, u64>,
}

/// Nodes, the messages between them, and time.
pub struct SimNet<N: SimNode> {
    clock: VirtualClock,
    rng: ChaCha8Rng,
    faults: NetFaults,
    blocked: BTreeSet<(NodeId, NodeId)>,
    last_arrival: BTreeMap<(NodeId, NodeId), Duration>,
    slots: BTreeMap<NodeId, Slot<N>>,
    events: BinaryHeap<Reverse<Event<N::Message>>>,
    next_number: u64,
    trace: Trace,
}

impl<N: SimNode> SimNet<N> {
    /// An empty network. `trace_lines_max`: see [`Trace::new`].
    #[must_use]
    pub fn new(seed: u64, faults: NetFaults, trace_lines_max: usize) -> Self {
        Self {
            clock: VirtualClock::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            faults,
            blocked: BTreeSet::new(),
            last_arrival: BTreeMap::new(),
            slots: BTreeMap::new(),
            events: BinaryHeap::new(),
            next_number: 0,
            trace: Trace::new(trace_lines_max),
        }
    }

    /// True time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The clocks.
    #[must_use]
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// Sets a node's clock wrong. Before the node starts: a running node never sees its clock jump.
    pub fn set_skew(&mut self, node: NodeId, skew: ClockSkew) {
        debug_assert!(!self.slots.contains_key(&node), "the skew of {node} is set before it starts");
        self.clock.skews.insert(node, skew);
    }

    /// Changes the chances of messages from now on.
    pub fn set_faults(&mut self, faults: NetFaults) {
        self.faults = faults;
    }

    /// The record so far.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Adds an event of the driver's to the record.
    pub fn note(&mut self, event: fmt::Arguments<'_>) {
        self.trace.note(self.clock.now, event);
    }

    /// A node that runs.
    #[must_use]
    pub fn node(&self, id: &NodeId) -> Option<&N> {
        self.slots.get(id)?.node.as_ref()
    }

    /// Whether a node runs (paused or not).
    #[must_use]
    pub fn is_up(&self, id: &NodeId) -> bool {
        self.node(id).is_some()
    }

    /// How often the node was started, at least 1 for one that ever was.
    #[must_use]
    pub fn incarnation(&self, id: &NodeId) -> u64 {
        self.slots.get(id).map_or(0, |slot| slot.incarnation)
    }

    /// Starts a node, new or after a crash, with this state.
    pub fn start(&mut self, id: NodeId, node: N) {
        let slot = self.slots.entry(id.clone()).or_insert_with(|| Slot {
            node: None,
            incarnation: 0,
            paused: false,
            held: VecDeque::new(),
            timers: BTreeMap::new(),
        });
        assert!(slot.node.is_none(), "node {id} runs already: crash it first");
        slot.node = Some(node);
        slot.incarnation += 1;
        let incarnation = slot.incarnation;
        self.trace.note(self.clock.now, format_args!("{id} starts, incarnation {incarnation}"));
        self.schedule(self.clock.now, id, What::Start { incarnation });
    }

    /// Ends a node at once and gives back its state, of which only what is on its disk may be used again. Its timers
    /// are void; messages on their way reach whoever runs under its name when they arrive.
    pub fn crash(&mut self, id: &NodeId) -> Option<N> {
        let slot = self.slots.get_mut(id)?;
        let node = slot.node.take()?;
        slot.paused = false;
        slot.held.clear();
        slot.timers.clear();
        self.trace.note(self.clock.now, format_args!("{id} crashes"));
        Some(node)
    }

    /// Stops a node as a long garbage collection or a suspended machine would: its clock goes on, its messages and
    /// timers wait.
    pub fn pause(&mut self, id: &NodeId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.paused = true;
            self.trace.note(self.clock.now, format_args!("{id} is paused"));
        }
    }

    /// Lets a paused node go on.
    pub fn resume(&mut self, id: &NodeId) {
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        slot.paused = false;
        let held = std::mem::take(&mut slot.held);
        self.trace.note(self.clock.now, format_args!("{id} resumes"));
        for what in held {
            self.schedule(self.clock.now, id.clone(), what);
        }
    }

    /// Loses every message between two nodes, in both directions, from now on.
    pub fn partition(&mut self, a: &NodeId, b: &NodeId) {
        self.block(a, b);
        self.block(b, a);
    }

    /// Loses every message from one node to another, in this direction only.
    pub fn block(&mut self, from: &NodeId, to: &NodeId) {
        self.trace.note(self.clock.now, format_args!("{from} -> {to} is cut"));
        self.blocked.insert((from.clone(), to.clone()));
    }

    /// Ends what [`SimNet::partition`] or [`SimNet::block`] began between two nodes.
    pub fn reconnect(&mut self, a: &NodeId, b: &NodeId) {
        self.trace.note(self.clock.now, format_args!("{a} and {b} reach each other again"));
        self.blocked.retain(|(from, to)| !((from == a && to == b) || (from == b && to == a)));
    }

    /// Ends every partition.
    pub fn heal(&mut self) {
        self.trace.note(self.clock.now, format_args!("the network is whole"));
        self.blocked.clear();
    }

    /// Lets a node act outside its own step (a call from the driver). Effects are returned.
    pub fn with_node<R>(
        &mut self,
        id: &NodeId,
        act: impl FnOnce(&mut N, Duration) -> (R, Vec<NodeAction<N::Message, N::Effect>>),
    ) -> Option<(R, Vec<N::Effect>)> {
        let local = self.clock.local(id);
        let slot = self.slots.get_mut(id)?;
        let (result, actions) = act(slot.node.as_mut()?, local);
        Some((result, self.perform(id, actions)))
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Duration> {
        self.events.peek().map(|Reverse(event)| event.at)
    }

    /// Moves the clock forward without an event.
    pub fn advance_to(&mut self, at: Duration) {
        debug_assert!(self.next_event_at().is_none_or(|next| next >= at), "no event is skipped");
        self.clock.now = self.clock.now.max(at);
    }

    /// Lets the next event happen; `None` if there is none. Returns what the node told.
    pub fn step(&mut self) -> Option<Vec<(NodeId, N::Effect)>> {
        let Reverse(event) = self.events.pop()?;
        debug_assert!(event.at >= self.clock.now, "time does not go back");
        self.clock.now = event.at;
        let id = event.node;
        let Some(slot) = self.slots.get_mut(&id) else {
            return Some(Vec::new());
        };
        if slot.paused {
            slot.held.push_back(event.what);
            return Some(Vec::new());
        }
        let Some(node) = slot.node.as_mut() else {
            return Some(Vec::new());
        };
        let input = match event.what {
            What::Start { incarnation } if incarnation == slot.incarnation => NodeInput::Start,
            What::Timer { incarnation, id, set }
                if incarnation == slot.incarnation && slot.timers.get(&id) == Some(&set) =>
            {
                slot.timers.remove(&id);
                NodeInput::Timer(id)
            }
            What::Message { from, message } => NodeInput::Message { from, message },
            What::Start { .. } | What::Timer { .. } => return Some(Vec::new()),
        };
        self.trace.note(self.clock.now, format_args!("{id} <- {input:?}"));
        let actions = node.step(input, self.clock.local(&id));
        let effects = self.perform(&id, actions);
        Some(effects.into_iter().map(|effect| (id.clone(), effect)).collect())
    }

    fn perform(&mut self, id: &NodeId, actions: Vec<NodeAction<N::Message, N::Effect>>) -> Vec<N::Effect> {
        let mut effects = Vec::new();
        for action in actions {
            match action {
                NodeAction::Send { to, message } => self.send(id, &to, &message),
                NodeAction::Timer { id: timer, at } => {
                    let at = self.clock.when(id, at);
                    let set = self.next_number;
                    let slot = self.slots.get_mut(id).expect("only a node that runs acts");
                    slot.timers.insert(timer, set);
                    let incarnation = slot.incarnation;
                    self.schedule(at, id.clone(), What::Timer { incarnation, id: timer, set });
                }
                NodeAction::Effect(effect) => effects.push(effect),
            }
        }
        effects
    }

    fn send(&mut self, from: &NodeId, to: &NodeId, message: &N::Message) {
        // Drawn whether or not the link is cut, so that a cut changes nothing else in the run.
        let lost = self.chance(self.faults.drop_per_mille);
        let copies = if self.chance(self.faults.duplicate_per_mille) { 2 } else { 1 };
        for _ in 0..copies {
            let mut at = self.clock.now + self.draw(self.faults.delay_min, self.faults.delay_max);
            let link = (from.clone(), to.clone());
            if self.chance(self.faults.reorder_per_mille) {
                at += self.draw(Duration::ZERO, self.faults.reorder_delay_max);
            } else {
                let last = self.last_arrival.entry(link.clone()).or_default();
                at = at.max(*last);
                *last = at;
            }
            if lost || self.blocked.contains(&link) {
                self.trace.note(self.clock.now, format_args!("{from} -> {to} lost: {message:?}"));
            } else {
                self.schedule(at, to.clone(), What::Message { from: from.clone(), message: message.clone() });
            }
        }
    }

    fn schedule(&mut self, at: Duration, node: NodeId, what: What<N::Message>) {
        let number = self.next_number;
        self.next_number += 1;
        self.events.push(Reverse(Event { at, number, node, what }));
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        self.rng.random_range(0..1000) < per_mille
    }

    fn draw(&mut self, min: Duration, max: Duration) -> Duration {
        let (min, max) = (min.as_micros() as u64, max.as_micros() as u64);
        Duration::from_micros(self.rng.random_range(min..=max.max(min)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends numbered messages to its peer every millisecond and tells what it gets.
    struct Talker {
        peer: NodeId,
        next: u32,
        last: u32,
    }

    impl SimNode for Talker {
        type Message = u32;
        type Effect = u32;

        fn step(&mut self, input: NodeInput<u32>, now: Duration) -> Vec<NodeAction<u32, u32>> {
            match input {
                NodeInput::Message { message, .. } => vec![NodeAction::Effect(message)],
                NodeInput::Start | NodeInput::Timer(_) if self.next < self.last => {
                    self.next += 1;
                    vec![
                        NodeAction::Send { to: self.peer.clone(), message: self.next },
                        NodeAction::Timer { id: TimerId(1), at: now + Duration::from_millis(1) },
                    ]
                }
                _ => Vec::new(),
            }
        }
    }

    fn talk(seed: u64, faults: NetFaults, prepare: impl FnOnce(&mut SimNet<Talker>)) -> (Vec<u32>, u64) {
        let (a, b) = (NodeId::new("a"), NodeId::new("b"));
        let mut net = SimNet::new(seed, faults, 0);
        net.start(a.clone(), Talker { peer: b.clone(), next: 0, last: 200 });
        net.start(b, Talker { peer: a, next: 0, last: 0 });
        prepare(&mut net);
        let mut heard = Vec::new();
        while let Some(effects) = net.step() {
            heard.extend(effects.into_iter().map(|(_, number)| number));
        }
        (heard, net.trace().hash())
    }

    #[test]
    fn a_healthy_link_keeps_order_and_one_seed_is_one_run() {
        let (heard, hash) = talk(7, NetFaults::HEALTHY, |_| {});
        assert_eq!(heard, (1..=200).collect::<Vec<_>>());
        assert_eq!(talk(7, NetFaults::HEALTHY, |_| {}).1, hash);
        assert_ne!(talk(8, NetFaults::HEALTHY, |_| {}).1, hash);
    }

    #[test]
    fn each_fault_happens_when_its_chance_is_set() {
        let healthy = NetFaults::HEALTHY;
        let (dropped, _) = talk(1, NetFaults { drop_per_mille: 200, ..healthy }, |_| {});
        assert!(dropped.len() < 200);
        let (doubled, _) = talk(1, NetFaults { duplicate_per_mille: 200, ..healthy }, |_| {});
        assert!(doubled.len() > 200);
        let overtaking = NetFaults { reorder_per_mille: 200, reorder_delay_max: Duration::from_millis(20), ..healthy };
        let (mut reordered, _) = talk(1, overtaking, |_| {});
        assert!(!reordered.is_sorted());
        reordered.sort_unstable();
        assert_eq!(reordered, (1..=200).collect::<Vec<_>>());
    }

    #[test]
    fn a_paused_node_gets_everything_later_and_a_cut_one_nothing() {
        let b = NodeId::new("b");
        let mut net = None;
        let (heard, _) = talk(1, NetFaults::HEALTHY, |sim| {
            sim.pause(&b);
            while sim.now() < Duration::from_millis(50) {
                assert!(sim.step().is_some_and(|effects| effects.is_empty()));
            }
            sim.resume(&b);
            net = Some(());
        });
        assert_eq!(heard.len(), 200);
        let (heard, _) = talk(1, NetFaults::HEALTHY, |sim| sim.partition(&NodeId::new("a"), &NodeId::new("b")));
        assert!(heard.is_empty());
    }

    #[test]
    fn a_skewed_clock_and_its_timers_agree() {
        let node = NodeId::new("a");
        let mut clock = VirtualClock::default();
        clock.skews.insert(node.clone(), ClockSkew { ahead: Duration::from_millis(250), drift_ppm: -100_000 });
        clock.now = Duration::from_secs(10);
        assert_eq!(clock.local(&node), Duration::from_millis(9_250));
        let at = clock.when(&node, Duration::from_millis(10_150));
        assert_eq!(at, Duration::from_secs(11));
    }
}
