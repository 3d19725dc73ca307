//! Who sends what to whom: the stage graph with its parallelism filled in (Flock, C6 and C8).

use std::sync::Arc;

use parking_lot::RwLock;
use savanna_ownership::{Direction, HashRing, stable_hash};
use savanna_streams_api::ids::{Epoch, MemberId, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::graph::{Exchange, Operator, StageGraph};
use savanna_streams_model::payload::{Body, Payload, SetKey};
use savanna_streams_model::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::arena::InputKey;
use crate::error::broken;
use crate::member::Outgoing;

/// The part number of a scan's late rows, which go to the sink stage past all stages between.
pub(crate) const LATE_SHUFFLE: u16 = u16::MAX;

/// Members of a group; the last part number is taken by late rows.
pub(crate) const MEMBERS_MAX: u16 = 4096;

/// A graph with its parallelism.
#[derive(Debug)]
pub(crate) struct Topology {
    query: QueryId,
    stages: Vec<StageShape>,
}

#[derive(Debug)]
struct StageShape {
    /// Payloads per set that this stage sends: source partitions, or members.
    senders: Senders,
    /// The member that gets part `i` of what is sent to this stage. Empty for scans.
    routes: Vec<u16>,
    next: Option<StageId>,
    inputs: Vec<InputSource>,
}

/// How many payloads the sets of a stage have, from which epoch on: source partitions may join.
#[derive(Clone, Debug)]
struct Senders(Arc<RwLock<Vec<(Epoch, u32)>>>);

impl Senders {
    fn new(count: u32) -> Self {
        Self(Arc::new(RwLock::new(vec![(Epoch::ZERO, count)])))
    }

    fn of(&self, epoch: Epoch) -> u32 {
        self.0.read().iter().rev().find(|(from, _)| *from <= epoch).map_or(0, |(_, count)| *count)
    }

    /// One more from this epoch on; those come in order.
    fn join(&self, from: Epoch) {
        let mut counts = self.0.write();
        let count = counts.last().map_or(0, |(_, count)| *count) + 1;
        counts.push((from, count));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InputSource {
    from: StageId,
    late_rows: bool,
}

/// What a stage has to know of the others: whom it hears, and to whom it sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) stage: StageId,
    inputs: Vec<InputSource>,
    /// Payloads per set that it sends.
    senders: u32,
    /// The next stage, and the member of it that gets each part; none for the sink.
    next: Option<(StageId, Vec<u16>)>,
}

impl Place {
    /// The payload sets that the member which owns part `shuffle` waits for in each epoch.
    pub(crate) fn inputs(&self, shuffle: u16) -> Vec<InputKey> {
        let key = |input: &InputSource| InputKey {
            from: input.from,
            shuffle: if input.late_rows { LATE_SHUFFLE } else { shuffle },
        };
        self.inputs.iter().map(key).collect()
    }

    /// Where instance `sequence` of the stage sends its output; none for the sink.
    pub(crate) fn outlet(&self, query: &QueryId, sequence: u32) -> Option<Outlet> {
        let (stage, routes) = self.next.as_ref()?;
        let member = |member: &u16| MemberId { query: query.clone(), stage: *stage, member: *member };
        Some(Outlet {
            query: query.clone(),
            from: self.stage,
            to: routes.iter().map(member).collect(),
            first_shuffle: 0,
            sequence,
            senders: Senders::new(self.senders),
        })
    }
}

impl Topology {
    /// Fills the parallelism in: `partitions[i]` source partitions of scan stage `i`, and `members` for each group fed by
    /// key group.
    pub(crate) fn new(query: &QueryId, graph: &StageGraph, partitions: &[usize], members: u16) -> Result<Self> {
        if members == 0 || members > MEMBERS_MAX {
            return Err(StreamError::invalid(format!(
                "a function group has 1 to {MEMBERS_MAX} members, but {members} were asked for"
            )));
        }
        check(graph)?;
        let mut stages: Vec<StageShape> = Vec::with_capacity(graph.stages.len());
        for (index, stage) in graph.stages.iter().enumerate() {
            let inputs = inputs(graph, index);
            let keyed = |input: &InputSource| !input.late_rows && is_keyed(graph, input.from);
            let size = if inputs.iter().any(keyed) { members } else { 1 };
            let is_scan = matches!(stage.operator, Operator::Scan(_));
            stages.push(StageShape {
                senders: Senders::new(if is_scan { partitions[index] as u32 } else { u32::from(size) }),
                routes: if is_scan { Vec::new() } else { routes(query, stage.id, size) },
                next: stage.next,
                inputs,
            });
        }
        Ok(Self { query: query.clone(), stages })
    }

    /// Members of a stage.
    pub(crate) fn members(&self, stage: StageId) -> u16 {
        self.shape(stage).routes.len() as u16
    }

    /// What a stage has to know of the others.
    pub(crate) fn place(&self, stage: StageId) -> Place {
        let StageShape { senders, next, inputs, .. } = self.shape(stage);
        let next = next.map(|next| (next, self.shape(next).routes.clone()));
        Place { stage, inputs: inputs.clone(), senders: senders.of(Epoch::ZERO), next }
    }

    /// From an epoch on, a scan has one partition more.
    pub(crate) fn join(&self, scan: StageId, from: Epoch) {
        self.shape(scan).senders.join(from);
    }

    /// The payload sets that the member which owns part `shuffle` waits for in each epoch.
    pub(crate) fn inputs(&self, stage: StageId, shuffle: u16) -> Vec<InputKey> {
        self.place(stage).inputs(shuffle)
    }

    /// The member that owns part `shuffle` of what is sent to a stage.
    pub(crate) fn member(&self, stage: StageId, shuffle: u16) -> MemberId {
        MemberId { query: self.query.clone(), stage, member: self.shape(stage).routes[usize::from(shuffle)] }
    }

    /// Where instance `sequence` of a stage sends its output; none for the sink.
    pub(crate) fn outlet(&self, stage: StageId, sequence: u32) -> Option<Outlet> {
        let outlet = self.place(stage).outlet(&self.query, sequence)?;
        Some(Outlet { senders: self.shape(stage).senders.clone(), ..outlet })
    }

    /// Where partition `sequence` of a scan sends what it has read, if a function computes what becomes of it.
    pub(crate) fn read_outlet(&self, stage: StageId, sequence: u32) -> Outlet {
        let member = u16::try_from(sequence).unwrap_or(u16::MAX);
        Outlet {
            query: self.query.clone(),
            from: stage,
            to: vec![MemberId { query: self.query.clone(), stage, member }],
            first_shuffle: 0,
            sequence,
            senders: self.shape(stage).senders.clone(),
        }
    }

    /// Where partition `sequence` of a scan sends its late rows.
    pub(crate) fn late_outlet(&self, stage: StageId, sequence: u32) -> Outlet {
        let sink = StageId((self.stages.len() - 1) as u16);
        Outlet {
            query: self.query.clone(),
            from: stage,
            to: vec![self.member(sink, 0)],
            first_shuffle: LATE_SHUFFLE,
            sequence,
            senders: self.shape(stage).senders.clone(),
        }
    }

    fn shape(&self, stage: StageId) -> &StageShape {
        &self.stages[usize::from(stage.0)]
    }
}

/// One sender's way out.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    query: QueryId,
    from: StageId,
    to: Vec<MemberId>,
    first_shuffle: u16,
    sequence: u32,
    senders: Senders,
}

impl Outlet {
    /// The same for another instance of the stage, in another run of the query.
    pub(crate) fn turn_to(&mut self, query: &QueryId, sequence: u32) {
        self.sequence = sequence;
        if self.query != *query {
            self.query = query.clone();
            self.to.iter_mut().for_each(|to| to.query = query.clone());
        }
    }

    /// How many parts an output is cut into.
    pub(crate) fn parts(&self) -> u16 {
        self.to.len() as u16
    }

    /// The payloads of an epoch, one per part.
    pub(crate) fn send(&self, epoch: Epoch, watermark: EventTime, bodies: Vec<Body>) -> Vec<Outgoing> {
        debug_assert_eq!(bodies.len(), self.to.len(), "empty parts are sent as well");
        let sequence_len = self.senders.of(epoch);
        let outgoing = |((shuffle, to), body): ((u16, &MemberId), Body)| {
            let set = SetKey { query: self.query.clone(), epoch, from: self.from, shuffle };
            let sequence = self.sequence;
            Outgoing { to: to.clone(), payload: Payload { set, sequence, sequence_len, watermark, body } }
        };
        (self.first_shuffle..=LATE_SHUFFLE).zip(&self.to).zip(bodies).map(outgoing).collect()
    }
}

/// One look-up on the ring says where a stage's parts begin; part k goes to the k-th member counter-clockwise, so that every
/// sender finds the same receiver without asking anybody.
fn routes(query: &QueryId, stage: StageId, members: u16) -> Vec<u16> {
    let names: Vec<String> =
        (0..members).map(|member| MemberId { query: query.clone(), stage, member }.to_string()).collect();
    let ring = HashRing::of(names.iter().cloned());
    let position = stable_hash(format!("{}-{:02}", query.code, stage.0).as_bytes());
    ring.walk(position, Direction::CounterClockwise)
        .filter_map(|name| names.iter().position(|other| other == name))
        .map(|member| member as u16)
        .collect()
}

fn inputs(graph: &StageGraph, index: usize) -> Vec<InputSource> {
    let data = |from: StageId| InputSource { from, late_rows: false };
    match &graph.stages[index].operator {
        Operator::Scan(_) => Vec::new(),
        Operator::Aggregate(aggregate) => aggregate.inputs.iter().copied().map(data).collect(),
        Operator::Window(window) => {
            let mut from: Vec<StageId> = window.inputs.iter().map(|input| input.stage).collect();
            from.sort_unstable();
            from.dedup();
            from.into_iter().map(data).collect()
        }
        Operator::IntervalJoin(join) => join.left.stages.iter().chain(&join.right.stages).copied().map(data).collect(),
        Operator::Sink(sink) => {
            let late = graph.stages.iter().filter(|stage| keeps_late_rows(&stage.operator));
            let late = late.map(|stage| InputSource { from: stage.id, late_rows: true });
            sink.inputs.iter().copied().map(data).chain(late).collect()
        }
    }
}

/// Whether a stage sends its rows to the owners of their key groups.
fn is_keyed(graph: &StageGraph, stage: StageId) -> bool {
    matches!(graph.stages[usize::from(stage.0)].exchange, Exchange::KeyGroup { .. })
}

/// Whether a stage is a scan with a side table for late rows.
pub(crate) fn keeps_late_rows(operator: &Operator) -> bool {
    matches!(operator, Operator::Scan(scan) if scan.watermark.as_ref().is_some_and(|w| w.late_rows.is_some()))
}

/// Checks what the planner promises about a graph.
fn check(graph: &StageGraph) -> Result<()> {
    let last = graph.stages.len().checked_sub(1).ok_or_else(|| broken("a stage graph without stages"))?;
    for (index, stage) in graph.stages.iter().enumerate() {
        if usize::from(stage.id.0) != index {
            return Err(broken(format!("stage {} stands at place {index} of its graph", stage.id)));
        }
        let is_sink = matches!(stage.operator, Operator::Sink(_));
        if is_sink != (index == last) || stage.next.is_some() == is_sink || stage.output.is_some() == is_sink {
            return Err(broken(format!(
                "stage {index}: the sink is the last stage, and the only one without an output and a next"
            )));
        }
        let sends_deltas = stage.output.as_ref().is_some_and(|output| output.aggregate.is_some());
        let Some(next) = stage.next else { continue };
        if usize::from(next.0) <= index || usize::from(next.0) > last {
            return Err(broken(format!("stage {index} sends to stage {next}, which does not come after it")));
        }
        let next_operator = &graph.stages[usize::from(next.0)].operator;
        if matches!(next_operator, Operator::Aggregate(_)) != sends_deltas {
            return Err(broken(format!(
                "stage {index} must send partial aggregates to an aggregate, and rows to others"
            )));
        }
        if !inputs(graph, usize::from(next.0)).iter().any(|input| input.from == stage.id && !input.late_rows) {
            return Err(broken(format!("stage {next} does not list stage {index}, which sends to it, as an input")));
        }
    }
    for (index, stage) in graph.stages.iter().enumerate() {
        let inputs: Vec<StageId> =
            inputs(graph, index).iter().filter(|input| !input.late_rows).map(|input| input.from).collect();
        for input in &inputs {
            let from = graph.stages.get(usize::from(input.0));
            if from.and_then(|from| from.next) != Some(stage.id) {
                return Err(broken(format!("stage {index} reads stage {input}, which does not send to it")));
            }
        }
        let keyed = inputs.iter().filter(|input| is_keyed(graph, **input)).count();
        if keyed != 0 && (keyed != inputs.len() || index == last) {
            return Err(broken(format!(
                "stage {index}: all inputs of a function group are cut by key, and none of the sink's"
            )));
        }
    }
    Ok(())
}
