//! What one stage hands to the next: the payload of an invocation (Flock, C4 and C8).

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use crate::state::Delta;
use crate::time::EventTime;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};

/// The set that a payload belongs to. A member collects `len` payloads with sequence numbers `0..len` for each key;
/// then, and only then, the set is complete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetKey {
    /// The query and its run.
    pub query: QueryId,
    /// The micro-batch.
    pub epoch: Epoch,
    /// The stage that sent it.
    pub from: StageId,
    /// Which part of the sender's output, by position: the same in every instance of the sending stage.
    pub shuffle: u16,
}

/// One invocation's data. Cheap to clone: columns are shared.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The set it belongs to.
    pub set: SetKey,
    /// Which payload of the set, from 0 (SEQ_NUM).
    pub sequence: u32,
    /// How many payloads the set has (SEQ_LEN).
    pub sequence_len: u32,
    /// The sender's watermark after this epoch.
    pub watermark: EventTime,
    /// The data. An empty output is sent all the same, or the receiver would never complete.
    pub body: Body,
}

/// The data of a payload.
#[derive(Clone, Debug)]
pub enum Body {
    /// Rows.
    Rows(Vec<RecordBatch>),
    /// Changes of panes.
    Delta(Delta),
    /// Rows as a scan has read them, where what becomes of them is computed elsewhere.
    Read(Vec<ReadRows>),
}

/// Rows that a scan has read, and for which windows they are not too late.
#[derive(Clone, Debug)]
pub struct ReadRows {
    /// In the scan's columns.
    pub rows: RecordBatch,
    /// They count only for windows that end at this instant (microseconds) or later, if there is one.
    pub first_window_end: Option<i64>,
}

impl Body {
    /// The memory that its rows hold, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.iter().map(RecordBatch::get_array_memory_size).sum(),
            Self::Delta(delta) => delta.bytes(),
            Self::Read(read) => read.iter().map(|read| read.rows.get_array_memory_size()).sum(),
        }
    }
}
