use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use parking_lot::Mutex;
use savanna_streams_api::ids::MemberId;
use savanna_streams_model::payload::SetKey;
use savanna_streams_model::time::EventTime;

use super::*;
use crate::cloud::wire::{WireOutput, digest, encode_outputs};

/// Instances that have computed the same in other orders, and give one piece at a time. They take turns.
#[derive(Debug)]
struct InTurns {
    instances: Vec<Vec<Piece>>,
    calls: Mutex<usize>,
}

impl Cloud for InTurns {
    fn program(&self) -> &'static str {
        "test"
    }

    fn deploy(&self, _: &[CloudFunction]) -> Result<()> {
        Ok(())
    }

    fn call(&self, _: &str, call: Vec<u8>, _: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError> {
        let call: Call = serde_json::from_slice(&call).unwrap();
        let mut calls = self.calls.lock();
        let pieces = &self.instances[*calls % self.instances.len()];
        *calls += 1;
        let digest = digest(pieces).unwrap();
        let first = call.come.iter().find(|(of, _)| *of == digest).map_or(0, |(_, come)| *come);
        let answer = Answer {
            version: VERSION,
            status: Status::Applied,
            micros: 1,
            bytes: 0,
            digest,
            count: pieces.len(),
            first,
            pieces: pieces[first..=first].to_vec(),
            windows: String::new(),
            without_time: 0,
        };
        Ok(serde_json::to_vec(&answer).unwrap())
    }
}

fn query() -> QueryId {
    QueryId { code: "c".into(), job: 1 }
}

fn payload(numbers: Vec<i64>) -> Payload {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let rows = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(numbers))]).unwrap();
    let set = SetKey { query: query(), epoch: Epoch(1), from: StageId(1), shuffle: 0 };
    Payload { set, sequence: 0, sequence_len: 1, watermark: EventTime(0), body: Body::Rows(vec![rows]) }
}

/// The pieces of one output that was cut.
fn pieces(numbers: Vec<i64>) -> Vec<Piece> {
    let to = MemberId { query: query(), stage: StageId(2), member: 0 };
    let outputs: Vec<WireOutput> = encode_outputs(&[Outgoing { to, payload: payload(numbers) }], 900).unwrap();
    assert!(outputs.len() > 2, "it is cut");
    outputs.into_iter().map(Piece::Output).collect()
}

/// Numbers that are not compressed to nothing.
fn numbers() -> Vec<i64> {
    (1..200_i64).map(|n| n.wrapping_mul(0x1e37_79b9_7f4a_7c15)).collect()
}

fn outputs_of(instances: Vec<Vec<Piece>>) -> Vec<i64> {
    let cloud = Arc::new(InTurns { instances, calls: Mutex::default() });
    let run = Run { cloud, query: query(), number: "r".into() };
    let function = Function {
        run: Arc::new(run),
        name: "f".into(),
        stage: StageId(1),
        shuffle: 0,
        context: Arc::new(Specialised { text: String::new(), hash: "h".into() }),
        progress: Arc::new(Progress::new(0, false)),
        stopped: Arc::default(),
        sleep: |_| (),
    };
    let part = encode(&payload(vec![1]), 1 << 20).unwrap().remove(0);
    let bring = |_: Epoch, _: bool| vec![Brought::Payloads(vec![&part])];
    let whole = function.bring(Epoch(1), Epoch::ZERO, Epoch::ZERO, false, bring).unwrap();
    let [outgoing] = whole.outputs.as_slice() else { panic!("{} outputs", whole.outputs.len()) };
    let Body::Rows(rows) = &outgoing.payload.body else { panic!("rows were sent") };
    rows.iter().flat_map(|rows| rows.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

#[test]
fn pieces_of_two_computations_are_not_put_together() {
    let forwards = numbers();
    let backwards: Vec<i64> = forwards.iter().rev().copied().collect();
    let found = outputs_of(vec![pieces(forwards.clone()), pieces(backwards.clone())]);
    assert!(found == forwards || found == backwards, "rows are lost, and others come twice");
    assert_eq!(outputs_of(vec![pieces(forwards.clone())]), forwards);
}

#[test]
fn calls_are_filled_and_not_beyond() {
    let parts = encode(&payload(numbers()), 900).unwrap();
    let limit = (64 << 10) + 2_600;
    let calls = packed(parts.iter(), limit);
    assert!(calls.len() > 1 && calls[0].len() > 1, "{} calls", calls.len());
    assert_eq!(calls.concat(), parts.iter().collect::<Vec<_>>());
    let bytes = |call: &Vec<&WirePayload>| call.iter().map(|part| part.bytes()).sum::<usize>();
    assert!(calls.iter().all(|call| bytes(call) <= body_max(limit)));
}
