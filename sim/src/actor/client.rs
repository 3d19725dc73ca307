//! A client: one operation after the other, through the product's router.

use std::{collections::BTreeMap, time::Duration};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_rpc::{
    CallId, Delivery, RequestHead, Route, RouterAction, RouterCore, RouterInput, RouterLimits, RpcError, ShardAt,
    decode_value, encode_value,
    sim::{EndpointAction, EndpointInput, NodeAction, NodeInput, Packet, TimerId},
};

use super::{OWN_TIMERS, Out, OwnInput, Rpc};
use crate::{
    history::{OpId, OpKind, Outcome, Told},
    protocol::{self, LOCATE, READ, RegisterRequest, WRITE, coordinator, decode, encode},
    scenario::Scenario,
};

const THINK: u64 = OWN_TIMERS;
const ROUTE: u64 = OWN_TIMERS + 1;
/// Operations after which a client forgets all routes, as one that has just come does not know any.
const OPS_PER_ROUTER: u64 = 12;
const OP_TIMEOUT: Duration = Duration::from_millis(400);

/// Why an rpc call was made.
enum Purpose {
    Resolve(ShardId),
    Attempt { id: CallId, attempt: u32 },
}

struct Operation {
    op: OpId,
    kind: OpKind,
    request: RegisterRequest,
    shard: ShardId,
    reply: Option<u64>,
}

/// A client's process; it never fails.
pub(crate) struct Client {
    number: usize,
    scenario: &'static Scenario,
    rpc: Rpc,
    router: RouterCore,
    rng: ChaCha8Rng,
    next_op: u64,
    /// Operations since the faults ended.
    turn: usize,
    operation: Option<Operation>,
    purposes: BTreeMap<CallId, Purpose>,
    stopped: bool,
}

impl Client {
    pub(crate) fn new(number: usize, scenario: &'static Scenario, seed: u64) -> Self {
        Self {
            number,
            scenario,
            rpc: Rpc::new(1),
            router: RouterCore::new(Self::limits()),
            rng: ChaCha8Rng::seed_from_u64(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            next_op: 1,
            turn: 0,
            operation: None,
            purposes: BTreeMap::new(),
            stopped: false,
        }
    }

    fn limits() -> RouterLimits {
        RouterLimits {
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(80),
            ..RouterLimits::default()
        }
    }

    /// Begins no further operation.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn step(&mut self, input: NodeInput<Packet>, now: Duration) -> Out {
        let mut out = Out::new();
        match self.rpc.network_input(input) {
            Ok(input) => {
                let actions = self.rpc.feed(input, now, &mut out);
                self.endpoint(actions, now, &mut out);
            }
            Err(OwnInput::Start) => self.think(now, &mut out),
            Err(OwnInput::Timer(THINK)) => self.begin(now, &mut out),
            Err(OwnInput::Timer(_)) => self.route(RouterInput::Tick, now, &mut out),
        }
        if let Some(at) = self.router.next_wake() {
            out.push(NodeAction::Timer { id: TimerId(ROUTE), at: at.max(now) });
        }
        self.rpc.arm(&mut out);
        out
    }

    fn think(&mut self, now: Duration, out: &mut Out) {
        let pause = self.scenario.think_max.mul_f64(self.rng.random_range(0.02..1.0));
        out.push(NodeAction::Timer { id: TimerId(THINK), at: now + pause });
    }

    fn begin(&mut self, now: Duration, out: &mut Out) {
        if self.stopped || self.operation.is_some() {
            return;
        }
        let number = self.next_op;
        self.next_op += 1;
        if number.is_multiple_of(OPS_PER_ROUTER) {
            self.router = RouterCore::new(Self::limits());
        }
        let op = OpId { client: self.number, number };
        let (shard_number, key, writes) = self.next_target(now);
        let kind = if writes { OpKind::Write(((self.number as u64 + 1) << 32) | number) } else { OpKind::Read };
        let value = if let OpKind::Write(value) = kind { value } else { 0 };
        let shard = protocol::shard(shard_number);
        let request = RegisterRequest { key, value };
        out.push(NodeAction::Effect(Told::Invoked { op, shard: shard_number, key, kind }));
        self.operation = Some(Operation { op, kind, request, shard: shard.clone(), reply: None });
        let input =
            RouterInput::Call { id: CallId(number), shard, idempotent: kind == OpKind::Read, timeout: OP_TIMEOUT };
        self.route(input, now, out);
    }

    /// The shard and key of an operation, and whether it writes. By chance while there are faults; afterwards each in turn, read
    /// and then written: so a shard that is not served again shows, not one that nobody happened to ask, and what was
    /// lost shows before it is written over.
    fn next_target(&mut self, now: Duration) -> (usize, u32, bool) {
        let Scenario { shards, keys, .. } = *self.scenario;
        if now < Scenario::SERVING_AGAIN {
            return (self.rng.random_range(0..shards), self.rng.random_range(0..keys), self.rng.random_bool(0.5));
        }
        let round = self.turn / shards;
        let target = (self.turn % shards, (round / 2) as u32 % keys, round % 2 == 1);
        self.turn += 1;
        target
    }

    fn route(&mut self, input: RouterInput, now: Duration, out: &mut Out) {
        for action in self.router.step(input, now) {
            match action {
                RouterAction::Resolve(shard) => {
                    let request = protocol::request(LOCATE, true, encode(&shard), Duration::from_millis(150));
                    self.call(Purpose::Resolve(shard), coordinator(), request, now, out);
                }
                RouterAction::Send { id, attempt, route, time_left } => {
                    let Some(operation) = &self.operation else {
                        continue;
                    };
                    let method = if operation.kind == OpKind::Read { READ } else { WRITE };
                    let shard = ShardAt { shard: operation.shard.clone(), epoch: route.epoch };
                    let head = RequestHead {
                        method: method.to_owned(),
                        shard: Some(shard),
                        idempotent: operation.kind == OpKind::Read,
                    };
                    let body = encode_value(method, &operation.request).expect("two integers can be encoded");
                    // An attempt gets a part of the time, so that a lost packet leaves some for another one.
                    let timeout = if head.idempotent { time_left.min(OP_TIMEOUT / 3) } else { time_left };
                    let request = savanna_rpc::Request { head, body, timeout };
                    self.call(Purpose::Attempt { id, attempt }, route.node, request, now, out);
                }
                RouterAction::Abandon(id) => {
                    let attempts: Vec<CallId> = self
                        .purposes
                        .iter()
                        .filter(|(_, purpose)| matches!(purpose, Purpose::Attempt { id: of, .. } if *of == id))
                        .map(|(call, _)| *call)
                        .collect();
                    for call in attempts {
                        self.purposes.remove(&call);
                        let actions = self.rpc.feed(EndpointInput::Cancel(call), now, out);
                        self.endpoint(actions, now, out);
                    }
                }
                RouterAction::Complete(_, result) => self.complete(result, now, out),
            }
        }
    }

    fn call(&mut self, purpose: Purpose, to: NodeId, request: savanna_rpc::Request, now: Duration, out: &mut Out) {
        let call = self.rpc.new_call();
        self.purposes.insert(call, purpose);
        let actions = self.rpc.call(call, to, request, now, out);
        self.endpoint(actions, now, out);
    }

    fn endpoint(&mut self, actions: Vec<EndpointAction>, now: Duration, out: &mut Out) {
        for action in actions {
            let EndpointAction::Complete(call, result) = action else {
                continue;
            };
            match self.purposes.remove(&call) {
                Some(Purpose::Resolve(shard)) => {
                    let route = result.and_then(|body| decode::<Route>(&body));
                    debug_assert!(route.as_ref().is_ok_and(|route| route.epoch > OwnerEpoch::NONE) || route.is_err());
                    self.route(RouterInput::Resolved(shard, route), now, out);
                }
                Some(Purpose::Attempt { id, attempt }) => {
                    let result = result.and_then(|body| decode_value::<u64>(READ, &body)).map(|value| {
                        if let Some(operation) = &mut self.operation {
                            operation.reply = Some(value);
                        }
                    });
                    self.route(RouterInput::Ended { id, attempt, result }, now, out);
                }
                None => {}
            }
        }
    }

    fn complete(&mut self, result: Result<(), RpcError>, now: Duration, out: &mut Out) {
        let Some(operation) = self.operation.take() else {
            return;
        };
        let outcome = match result {
            Ok(()) => Outcome::Ok(operation.reply.expect("a call that ended well has its reply")),
            Err(error) if error.delivery() == Delivery::NotStarted => Outcome::NotDone(error.to_string()),
            Err(error) => Outcome::Unknown(error.to_string()),
        };
        out.push(NodeAction::Effect(Told::Returned { op: operation.op, outcome }));
        self.think(now, out);
    }
}
