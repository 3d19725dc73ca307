//! Calls and answers as they go over the wire: JSON around the bodies of payloads, which are in the form of a state, zstd, base64.

use std::collections::BTreeMap;
use std::io::Read as _;

use arrow::array::RecordBatch;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
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
    /// The hash of the context that the caller means, in hexadecimal digits.
    pub(crate) plan: String,
    pub(crate) stage: StageId,
    /// The part of the keys that the member owns.
    pub(crate) shuffle: u16,
    /// The epoch whose outputs are asked for.
    pub(crate) wanted: Epoch,
    /// The newest epoch that the sink is known to hold.
    pub(crate) committed: Epoch,
    /// Pieces of outputs that have come already.
    pub(crate) skip: usize,
    /// Bytes of the answer at most.
    pub(crate) answer_max: usize,
    /// Whether the state behind `wanted` is to be in the answer.
    pub(crate) hand_over: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// The state of a member behind an epoch, for one that lacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<WireState>,
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
    /// How many pieces the outputs of the epoch have in all.
    pub(crate) pieces: usize,
    pub(crate) outputs: Vec<WireOutput>,
    /// The ends of windows that were closed in the epoch.
    pub(crate) windows: Vec<i64>,
    /// Rows without event time that were left out.
    pub(crate) without_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<WireState>,
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

/// A state of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireState {
    /// Behind which epoch.
    pub(crate) epoch: Epoch,
    pub(crate) data: String,
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
pub(crate) fn decode_outputs(outputs: &[WireOutput], query: &QueryId) -> Result<Vec<Outgoing>> {
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
