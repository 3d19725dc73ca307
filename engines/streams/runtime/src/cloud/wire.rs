//! Calls and answers as they go over the wire: JSON around the bodies of payloads, which are in the form of a state, zstd, base64.

use std::collections::BTreeMap;
use std::io::Read as _;

use arrow::array::RecordBatch;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use savanna_ownership::stable_hash;
use savanna_streams_api::ids::{Epoch, MemberId, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::payload::{Body, Payload, ReadRows, SetKey};
use savanna_streams_model::state::{Delta, PaneDelta};
use savanna_streams_model::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::error::broken;
use crate::member::Outgoing;
use crate::snapshot::{State, read_state, write_state};

/// The form of calls and answers.
pub(crate) const VERSION: u32 = 1;
/// The level of compression: whoever waits pays for a better one.
const LEVEL: i32 = 1;
/// Bytes that a body may come to when it is unpacked.
const UNPACKED_MAX: u64 = 1 << 30;
/// Bytes of all that is around bodies in a call or an answer, a context aside.
const AROUND_MAX: usize = 64 << 10;
/// Payloads of a set: memory is taken for as many as are said.
const SENDERS_MAX: u32 = 1 << 16;
/// Bytes of what is around one body.
pub(crate) const AROUND_ONE: usize = 256;

/// What a function is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) version: u32,
    pub(crate) query: QueryId,
    /// The run of the query, by a number that no other one has: jobs are numbered by the clock of each process.
    pub(crate) run: String,
    /// The hash of the context that the caller means, in hexadecimal digits.
    pub(crate) plan: String,
    pub(crate) stage: StageId,
    /// The part of the keys that the member owns.
    pub(crate) shuffle: u16,
    /// The epoch whose outputs are asked for.
    pub(crate) wanted: Epoch,
    /// The newest epoch that the sink is known to hold.
    pub(crate) committed: Epoch,
    /// How many pieces have come already, of each of the answers that there are, by their digests.
    pub(crate) come: Vec<(String, usize)>,
    /// Bytes of the answer at most.
    pub(crate) answer_max: usize,
    /// Whether the state behind `wanted` is to be in the answer.
    pub(crate) hand_over: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// A part of the state of a member, for an instance that lacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<StatePart>,
    pub(crate) payloads: Vec<WirePayload>,
}

/// What a function answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) version: u32,
    pub(crate) status: Status,
    /// How long it took.
    pub(crate) micros: u64,
    /// Memory of its state.
    pub(crate) bytes: usize,
    /// The digest of all pieces. Two instances may have computed the same in another order: pieces of one digest belong together.
    pub(crate) digest: String,
    /// How many pieces there are in all, and which of them is the first one here.
    pub(crate) count: usize,
    pub(crate) first: usize,
    pub(crate) pieces: Vec<Piece>,
    /// The ends of windows that were closed in the epoch, packed; with the last piece. Too many are not told: they are a figure.
    pub(crate) windows: String,
    /// Rows without event time that were left out.
    pub(crate) without_time: u64,
}

/// A piece of what a function has to tell of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Piece {
    /// Something that is sent on.
    Output(WireOutput),
    /// Text of the member's state behind the epoch.
    State(String),
}

impl Piece {
    /// Bytes on the wire, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Output(output) => output.payload.bytes(),
            Self::State(text) => text.len() + AROUND_ONE,
        }
    }
}

/// The digest of pieces.
///
/// # Errors
/// They have no text.
pub(crate) fn digest(pieces: &[Piece]) -> Result<String> {
    let mut hashes = Vec::with_capacity(pieces.len() * 8);
    for piece in pieces {
        let text = serde_json::to_vec(piece).map_err(|e| broken(format!("a piece of an answer has no text: {e}")))?;
        hashes.extend_from_slice(&stable_hash(&text).to_le_bytes());
    }
    Ok(format!("{:016x}", stable_hash(&hashes)))
}

/// A text in parts of so many bytes at most. It has no other characters than those of base64.
pub(crate) fn text_parts(text: &str, max: usize) -> impl Iterator<Item = &str> {
    text.as_bytes().chunks(max.max(1)).map(|part| str::from_utf8(part).unwrap_or_default())
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    /// The epoch is applied.
    Applied,
    /// Something of the epoch is missing that is to come with another call.
    Incomplete,
    /// The epochs that came do not follow on what this instance has applied.
    StateMissing {
        /// The last one that it has applied.
        have: Epoch,
        /// The one that came first.
        need: Epoch,
    },
    /// The instance is another stage than the caller means, or none yet.
    ContextMissing,
    /// The query fails.
    Failed(StreamError),
}

/// A state of a member, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptState {
    /// Behind which epoch.
    pub(crate) epoch: Epoch,
    pub(crate) text: String,
}

/// A part of a state on its way to an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatePart {
    /// Behind which epoch.
    pub(crate) epoch: Epoch,
    pub(crate) part: u32,
    pub(crate) parts: u32,
    pub(crate) text: String,
}

/// The parts of a state that have come.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    of: Option<(String, u16, Epoch)>,
    parts: Vec<Option<String>>,
}

impl Arriving {
    /// Takes a part of a run's state for a part of the keys. Gives the whole once it is there.
    ///
    /// # Errors
    /// It contradicts those that came before.
    pub(crate) fn take(&mut self, run: &str, shuffle: u16, part: &StatePart) -> Result<Option<String>> {
        let of = (run.to_owned(), shuffle, part.epoch);
        let parts = part.parts as usize;
        if self.of.as_ref() != Some(&of) || self.parts.len() != parts.min(PARTS_MAX) {
            *self = Self { of: Some(of), parts: vec![None; parts.min(PARTS_MAX)] };
        }
        let place = self.parts.get_mut(part.part as usize);
        *place.ok_or_else(|| broken(format!("part {} came of a state of {}", part.part, part.parts)))? =
            Some(part.text.clone());
        if self.parts.iter().any(Option::is_none) {
            return Ok(None);
        }
        let whole = std::mem::take(self).parts.into_iter().flatten().collect();
        Ok(Some(whole))
    }
}

/// A payload, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WirePayload {
    /// The sending stage.
    pub(crate) edge: StageId,
    pub(crate) epoch: Epoch,
    pub(crate) seq: u32,
    pub(crate) seq_len: u32,
    pub(crate) shuffle: u16,
    pub(crate) part: u32,
    pub(crate) parts: u32,
    /// In microseconds; the largest number at the end of the input.
    pub(crate) watermark: i64,
    kind: Kind,
    data: String,
}

/// A payload and the member that gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireOutput {
    pub(crate) stage: StageId,
    pub(crate) member: u16,
    #[serde(flatten)]
    pub(crate) payload: WirePayload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Rows,
    Delta,
    Read,
}

const ROWS: &str = "rows";
const PANES: &str = "panes";
const FRAGMENTS: &str = "fragments";

/// Bytes that one body may have in base64, if it is alone in a call or an answer of so many bytes.
pub(crate) fn body_max(limit: usize) -> usize {
    limit.saturating_sub(AROUND_MAX).max(AROUND_ONE)
}

impl WirePayload {
    /// Bytes on the wire, about.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + AROUND_ONE
    }

    /// A part that is not waited for others with: each is whole in itself.
    pub(crate) fn as_a_whole(&self) -> Self {
        Self { part: 0, parts: 1, ..self.clone() }
    }

    /// The payload of a run, or a part of it.
    ///
    /// # Errors
    /// It is damaged.
    pub(crate) fn decode(&self, query: &QueryId) -> Result<Payload> {
        if self.seq_len > SENDERS_MAX {
            return Err(broken(format!("expected at most {SENDERS_MAX} payloads in a set, got {}", self.seq_len)));
        }
        let body = body_of(self.kind, unpack_state(&self.data)?)?;
        let set = SetKey { query: query.clone(), epoch: self.epoch, from: self.edge, shuffle: self.shuffle };
        let (sequence, sequence_len) = (self.seq, self.seq_len);
        Ok(Payload { set, sequence, sequence_len, watermark: EventTime(self.watermark), body })
    }
}

/// A payload in parts of at most so many bytes each.
///
/// # Errors
/// A single row is larger.
pub(crate) fn encode(payload: &Payload, max: usize) -> Result<Vec<WirePayload>> {
    let mut bodies = Vec::new();
    pieces(&payload.body, max, &mut bodies)?;
    let parts = u32::try_from(bodies.len()).map_err(|_| broken("a payload of too many parts"))?;
    let part = |(part, (kind, data))| WirePayload {
        edge: payload.set.from,
        epoch: payload.set.epoch,
        seq: payload.sequence,
        seq_len: payload.sequence_len,
        shuffle: payload.set.shuffle,
        part,
        parts,
        watermark: payload.watermark.0,
        kind,
        data,
    };
    Ok((0..).zip(bodies).map(part).collect())
}

/// What is sent to others, in pieces.
///
/// # Errors
/// A single row is larger than a piece may be.
pub(crate) fn encode_outputs(sent: &[Outgoing], max: usize) -> Result<Vec<WireOutput>> {
    let mut outputs = Vec::new();
    for Outgoing { to, payload } in sent {
        let output = |payload| WireOutput { stage: to.stage, member: to.member, payload };
        outputs.extend(encode(payload, max)?.into_iter().map(output));
    }
    Ok(outputs)
}

/// The opposite of [`encode_outputs`].
///
/// # Errors
/// They are damaged, or parts are missing.
pub(crate) fn decode_outputs<'o>(
    outputs: impl Iterator<Item = &'o WireOutput>,
    query: &QueryId,
) -> Result<Vec<Outgoing>> {
    let mut parts = Parts::default();
    let mut sent = Vec::new();
    for WireOutput { stage, member, payload } in outputs {
        if let Some(payload) = parts.take(payload, query)? {
            sent.push(Outgoing { to: MemberId { query: query.clone(), stage: *stage, member: *member }, payload });
        }
    }
    if parts.is_empty() { Ok(sent) } else { Err(broken("a function's answer lacks parts of a payload")) }
}

/// Parts of payloads of which not all have come.
#[derive(Debug, Default)]
pub(crate) struct Parts(BTreeMap<(Epoch, StageId, u16, u32), Vec<Option<Body>>>);

impl Parts {
    /// Takes a part; gives the payload once all its parts are there.
    ///
    /// # Errors
    /// It is damaged, or contradicts one that came before.
    pub(crate) fn take(&mut self, part: &WirePayload, query: &QueryId) -> Result<Option<Payload>> {
        let payload = part.decode(query)?;
        if part.parts == 1 && part.part == 0 {
            return Ok(Some(payload));
        }
        let key = (part.epoch, part.edge, part.shuffle, part.seq);
        let came = self.0.entry(key).or_default();
        if came.is_empty() {
            // No more than what has come at most: each part is at least a few bytes.
            came.resize_with((part.parts as usize).min(PARTS_MAX), || None);
        }
        if part.parts as usize != came.len() {
            let of = came.len();
            return Err(broken(format!("part {} of {} came to a payload of {of} parts", part.part, part.parts)));
        }
        let place = came.get_mut(part.part as usize);
        *place.ok_or_else(|| broken(format!("part {} came of a payload of {}", part.part, part.parts)))? =
            Some(payload.body);
        if came.iter().any(Option::is_none) {
            return Ok(None);
        }
        let bodies = self.0.remove(&key).into_iter().flatten().flatten();
        Ok(Some(Payload { body: joined(bodies)?, ..payload_of(part, query) }))
    }

    /// Nothing of these epochs is waited for any more.
    pub(crate) fn forget(&mut self, applied: Epoch) {
        self.0.retain(|(epoch, ..), _| *epoch > applied);
    }

    /// Whether nothing is waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Parts of a payload: 100 GB.
const PARTS_MAX: usize = 20_000;

fn payload_of(part: &WirePayload, query: &QueryId) -> Payload {
    let set = SetKey { query: query.clone(), epoch: part.epoch, from: part.edge, shuffle: part.shuffle };
    Payload {
        set,
        sequence: part.seq,
        sequence_len: part.seq_len,
        watermark: EventTime(part.watermark),
        body: Body::Rows(Vec::new()),
    }
}

/// One body of several that were cut.
///
/// # Errors
/// They are of several kinds.
pub(crate) fn joined(bodies: impl Iterator<Item = Body>) -> Result<Body> {
    let mut whole: Option<Body> = None;
    for body in bodies {
        match (&mut whole, body) {
            (None, body) => whole = Some(body),
            (Some(Body::Rows(rows)), Body::Rows(more)) => rows.extend(more),
            (Some(Body::Read(rows)), Body::Read(more)) => rows.extend(more),
            (Some(Body::Delta(delta)), Body::Delta(more)) => {
                delta.panes.extend(more.panes);
                delta.fragments.extend(more.fragments);
            }
            (Some(_), _) => return Err(broken("a payload has parts of several kinds")),
        }
    }
    whole.ok_or_else(|| broken("a payload without parts"))
}

fn pieces(body: &Body, max: usize, out: &mut Vec<(Kind, String)>) -> Result<()> {
    let (kind, state) = state_of(body)?;
    let data = pack_state(&state)?;
    if data.len() <= max {
        out.push((kind, data));
        return Ok(());
    }
    let Some((left, right)) = halves(body) else {
        return Err(StreamError::Limit {
            message: format!(
                "a row takes {} bytes on its way to a function, where {max} fit; select fewer or shorter columns",
                data.len()
            ),
        });
    };
    pieces(&left, max, out)?;
    pieces(&right, max, out)
}

/// A body in two of about the same number of rows; none if it has one row.
fn halves(body: &Body) -> Option<(Body, Body)> {
    match body {
        Body::Rows(rows) => {
            cut(rows, RecordBatch::num_rows, RecordBatch::slice).map(|(l, r)| (Body::Rows(l), Body::Rows(r)))
        }
        Body::Read(read) => {
            let slice = |read: &ReadRows, from, rows| ReadRows { rows: read.rows.slice(from, rows), ..read.clone() };
            cut(read, |read| read.rows.num_rows(), slice).map(|(l, r)| (Body::Read(l), Body::Read(r)))
        }
        Body::Delta(delta) => {
            let rows = |pane: &PaneDelta| pane.rows.num_rows();
            let slice = |pane: &PaneDelta, from, rows| PaneDelta { rows: pane.rows.slice(from, rows), ..pane.clone() };
            let whole = |panes, fragments| Body::Delta(Delta { panes, fragments, ..Delta::default() });
            if !delta.panes.is_empty() && !delta.fragments.is_empty() {
                return Some((whole(delta.panes.clone(), Vec::new()), whole(Vec::new(), delta.fragments.clone())));
            }
            if let Some((left, right)) = cut(&delta.panes, rows, slice) {
                return Some((whole(left, Vec::new()), whole(right, Vec::new())));
            }
            let (left, right) = cut(&delta.fragments, RecordBatch::num_rows, RecordBatch::slice)?;
            Some((whole(Vec::new(), left), whole(Vec::new(), right)))
        }
    }
}

/// Batches in two halves by rows.
fn cut<B: Clone>(
    batches: &[B],
    rows: impl Fn(&B) -> usize,
    slice: impl Fn(&B, usize, usize) -> B,
) -> Option<(Vec<B>, Vec<B>)> {
    let half = batches.iter().map(&rows).sum::<usize>() / 2;
    if half == 0 {
        return None;
    }
    let (mut left, mut right, mut before) = (Vec::new(), Vec::new(), 0);
    for batch in batches {
        let count = rows(batch);
        let first = half.saturating_sub(before).min(count);
        if first == count {
            left.push(batch.clone());
        } else if first == 0 {
            right.push(batch.clone());
        } else {
            left.push(slice(batch, 0, first));
            right.push(slice(batch, first, count - first));
        }
        before += count;
    }
    Some((left, right))
}

fn state_of(body: &Body) -> Result<(Kind, State)> {
    let mut state = State::default();
    let kind = match body {
        Body::Rows(batches) => {
            batches.iter().for_each(|rows| state.put(ROWS, [0; 2], rows.clone()));
            Kind::Rows
        }
        Body::Read(read) => {
            for ReadRows { rows, first_window_end } in read {
                state.put(ROWS, [first_window_end.unwrap_or(i64::MIN), 0], rows.clone());
            }
            Kind::Read
        }
        Body::Delta(Delta { panes, fragments, sides }) => {
            if sides.iter().any(|side| !side.is_empty()) {
                return Err(broken("rows of a join's state are no payload"));
            }
            for PaneDelta { pane, first_window_end, rows } in panes {
                state.put(PANES, [*pane, *first_window_end], rows.clone());
            }
            fragments.iter().for_each(|rows| state.put(FRAGMENTS, [0; 2], rows.clone()));
            Kind::Delta
        }
    };
    Ok((kind, state))
}

fn body_of(kind: Kind, state: State) -> Result<Body> {
    let mut delta = Delta::default();
    let (mut rows, mut read) = (Vec::new(), Vec::new());
    for table in state.tables {
        let [first, second] = table.at;
        match (kind, table.name.as_str()) {
            (Kind::Rows, ROWS) => rows.push(table.rows),
            (Kind::Read, ROWS) => {
                let first_window_end = (first != i64::MIN).then_some(first);
                read.push(ReadRows { rows: table.rows, first_window_end });
            }
            (Kind::Delta, PANES) => {
                delta.panes.push(PaneDelta { pane: first, first_window_end: second, rows: table.rows });
            }
            (Kind::Delta, FRAGMENTS) => delta.fragments.push(table.rows),
            (_, name) => return Err(broken(format!("a payload of {kind:?} has rows of the kind {name}"))),
        }
    }
    Ok(match kind {
        Kind::Rows => Body::Rows(rows),
        Kind::Read => Body::Read(read),
        Kind::Delta => Body::Delta(delta),
    })
}

/// A state as text.
///
/// # Errors
/// It has rows that have no form.
pub(crate) fn pack_state(state: &State) -> Result<String> {
    let mut bytes = Vec::new();
    write_state(state, &mut bytes).map_err(|e| broken(format!("rows cannot be sent: {e}")))?;
    pack(&bytes)
}

/// The opposite of [`pack_state`].
///
/// # Errors
/// It is damaged.
pub(crate) fn unpack_state(text: &str) -> Result<State> {
    read_state(&unpack(text)?).map_err(|what| broken(format!("rows that were sent cannot be read: {what}")))
}

/// Bytes as text: zstd, base64.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn pack(bytes: &[u8]) -> Result<String> {
    let packed = zstd::encode_all(bytes, LEVEL).map_err(|e| broken(format!("bytes cannot be packed: {e}")))?;
    Ok(BASE64_STANDARD.encode(packed))
}

/// The opposite of [`pack`].
///
/// # Errors
/// It is damaged, or unpacks to more than it may.
pub(crate) fn unpack(text: &str) -> Result<Vec<u8>> {
    let failed = |what: String| broken(format!("expected zstd in base64: {what}"));
    let packed = BASE64_STANDARD.decode(text).map_err(|e| failed(e.to_string()))?;
    let mut bytes = Vec::new();
    let decoder = zstd::Decoder::new(packed.as_slice()).map_err(|e| failed(e.to_string()))?;
    decoder.take(UNPACKED_MAX + 1).read_to_end(&mut bytes).map_err(|e| failed(e.to_string()))?;
    if bytes.len() as u64 > UNPACKED_MAX {
        return Err(failed(format!("it unpacks to more than {UNPACKED_MAX} bytes")));
    }
    Ok(bytes)
}

/// Instants as text.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn pack_instants(instants: &[i64]) -> Result<String> {
    let mut before = 0_i64;
    let mut bytes = Vec::with_capacity(instants.len() * 8);
    for instant in instants {
        // Those of windows follow one another at equal distances.
        bytes.extend_from_slice(&instant.wrapping_sub(before).to_le_bytes());
        before = *instant;
    }
    pack(&bytes)
}

/// The opposite of [`pack_instants`].
///
/// # Errors
/// It is damaged.
pub(crate) fn unpack_instants(text: &str) -> Result<Vec<i64>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut before = 0_i64;
    let bytes = unpack(text)?;
    let (numbers, _) = bytes.as_chunks::<8>();
    let instant = |number: &[u8; 8]| {
        before = before.wrapping_add(i64::from_le_bytes(*number));
        before
    };
    Ok(numbers.iter().map(instant).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch(from: i64, rows: i64) -> RecordBatch {
        let fields = vec![Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8, true)];
        let numbers: Vec<Option<i64>> = (from..from + rows).map(|n| (n % 5 != 0).then_some(n)).collect();
        let texts: Vec<String> =
            (from..from + rows).map(|n| format!("{:x}", n.wrapping_mul(0x1e37_79b9_7f4a_7c15))).collect();
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    fn payload(body: Body) -> Payload {
        let query = QueryId { code: "c".into(), job: 1 };
        let set = SetKey { query, epoch: Epoch(3), from: StageId(1), shuffle: 2 };
        Payload { set, sequence: 4, sequence_len: 9, watermark: EventTime::MAX, body }
    }

    /// What a body has, row by row.
    fn rows(body: &Body) -> Vec<(String, i64, i64, String)> {
        let of = |kind: &str, at: [i64; 2], batch: &RecordBatch| {
            let row = |row: usize| {
                let texts = arrow::util::display::array_value_to_string(batch.column(0), row).unwrap();
                let more = arrow::util::display::array_value_to_string(batch.column(1), row).unwrap();
                (kind.to_owned(), at[0], at[1], format!("{texts} {more}"))
            };
            (0..batch.num_rows()).map(row).collect::<Vec<_>>()
        };
        match body {
            Body::Rows(batches) => batches.iter().flat_map(|batch| of("rows", [0; 2], batch)).collect(),
            Body::Read(read) => {
                read.iter().flat_map(|read| of("read", [read.first_window_end.unwrap_or(-1), 0], &read.rows)).collect()
            }
            Body::Delta(delta) => {
                let panes =
                    delta.panes.iter().flat_map(|pane| of("pane", [pane.pane, pane.first_window_end], &pane.rows));
                panes.chain(delta.fragments.iter().flat_map(|rows| of("fragment", [0; 2], rows))).collect()
            }
        }
    }

    fn bodies() -> Vec<Body> {
        let read = |first_window_end, from, count| ReadRows { rows: batch(from, count), first_window_end };
        let pane = |pane, from, count| PaneDelta { pane, first_window_end: pane + 7, rows: batch(from, count) };
        vec![
            Body::Rows(Vec::new()),
            Body::Rows(vec![batch(0, 1), batch(1, 0), batch(1, 90), batch(91, 33)]),
            Body::Read(vec![read(None, 0, 70), read(Some(5), 70, 1), read(None, 71, 60)]),
            Body::Delta(Delta { panes: vec![pane(-9, 0, 40), pane(3, 40, 1), pane(4, 41, 50)], ..Delta::default() }),
            Body::Delta(Delta { fragments: vec![batch(0, 80), batch(80, 7)], ..Delta::default() }),
            Body::Delta(Delta { panes: vec![pane(1, 0, 30)], fragments: vec![batch(30, 30)], ..Delta::default() }),
        ]
    }

    #[test]
    fn a_body_is_the_same_behind_any_cut() {
        for body in bodies() {
            let payload = payload(body);
            let mut most = 0;
            for max in [1_000, 1_200, 1_700, 2_500, 1 << 20] {
                let parts = encode(&payload, max).unwrap();
                assert!(parts.iter().all(|part| part.data.len() <= max));
                most = most.max(parts.len());
                // In any order; the last one to come makes it whole.
                let mut came = Parts::default();
                let mut whole = None;
                for part in parts.iter().rev() {
                    assert!(whole.is_none(), "it is whole only with all of its parts");
                    whole = came.take(part, &payload.set.query).unwrap();
                }
                let whole = whole.unwrap();
                assert!(came.is_empty());
                assert_eq!(rows(&whole.body), rows(&payload.body));
                assert_eq!(
                    (whole.set, whole.sequence, whole.sequence_len, whole.watermark),
                    (payload.set.clone(), 4, 9, EventTime::MAX)
                );
            }
            assert!(most > 1 || rows(&payload.body).is_empty(), "nothing was cut");
        }
    }

    #[test]
    fn a_row_that_fits_nowhere_is_an_error() {
        let refused = encode(&payload(Body::Rows(vec![batch(0, 9)])), 100);
        assert!(matches!(refused, Err(StreamError::Limit { .. })), "{refused:?}");
    }

    #[test]
    fn what_is_damaged_is_an_error() {
        let query = QueryId { code: "c".into(), job: 1 };
        for body in bodies() {
            let part = encode(&payload(body), 1 << 20).unwrap().remove(0);
            let unpacked = unpack(&part.data).unwrap();
            for at in (0..unpacked.len()).step_by(7) {
                let mut damaged = unpacked.clone();
                damaged[at] ^= 0x55;
                // Whatever it is then, it is no panic.
                let _ = WirePayload { data: pack(&damaged).unwrap(), ..part.clone() }.decode(&query);
            }
            assert!(WirePayload { data: part.data[1..].to_owned(), ..part.clone() }.decode(&query).is_err());
            assert!(WirePayload { seq_len: u32::MAX, ..part.clone() }.decode(&query).is_err());
            let far = WirePayload { part: u32::MAX - 1, parts: u32::MAX, ..part.clone() };
            assert!(Parts::default().take(&far, &query).is_err());
        }
    }

    #[test]
    fn instants_and_parts_of_a_text_come_back() {
        let instants = [i64::MIN, -5, 0, 1, i64::MAX];
        assert_eq!(unpack_instants(&pack_instants(&instants).unwrap()).unwrap(), instants);
        assert_eq!(unpack_instants("").unwrap(), [0_i64; 0]);
        assert!(unpack_instants("?").is_err());
        let million: Vec<i64> = (0..1_000_000).map(|n| n * 1_000_000).collect();
        assert!(pack_instants(&million).unwrap().len() < 8 << 10, "equal distances take next to nothing");
        let mut arriving = Arriving::default();
        let parts: Vec<&str> = text_parts("abcdefgh", 3).collect();
        assert_eq!(parts, ["abc", "def", "gh"]);
        let part =
            |number: u32| StatePart { epoch: Epoch(1), part: number, parts: 3, text: parts[number as usize].into() };
        assert_eq!(arriving.take("r", 0, &part(2)).unwrap(), None);
        assert_eq!(arriving.take("other", 0, &part(1)).unwrap(), None, "parts of one run are none of another");
        assert_eq!(arriving.take("r", 0, &part(0)).unwrap(), None);
        assert_eq!(arriving.take("r", 0, &part(1)).unwrap(), None);
        assert_eq!(arriving.take("r", 0, &part(2)).unwrap().as_deref(), Some("abcdefgh"));
        assert!(arriving.take("r", 0, &StatePart { part: 9, ..part(0) }).is_err());
    }

    #[test]
    fn a_digest_tells_answers_apart() {
        let output = |seq| {
            let payload = encode(&Payload { sequence: seq, ..payload(Body::Rows(vec![batch(0, 3)])) }, 1 << 20)
                .unwrap()
                .remove(0);
            Piece::Output(WireOutput { stage: StageId(2), member: 0, payload })
        };
        let (one, two) = (output(0), output(1));
        let order = [one.clone(), two.clone()];
        assert_eq!(digest(&order).unwrap(), digest(&order.clone()).unwrap());
        assert_ne!(digest(&order).unwrap(), digest(&[two, one]).unwrap());
    }
}
