//! What an operation changes: rows as they are afterwards. It is the record of the log, and what the tree takes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, InodeId, Millis, Stamp, Txid};

/// All changes of one operation. To apply one twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number.
    pub txid: Txid,
    /// When the operation was done.
    pub at: Millis,
    /// The numbers that were given last.
    pub counters: Counters,
    /// Inodes that were made or changed, as they are now. A directory comes before what is in it.
    pub rows: Vec<Row>,
    /// Inodes that went, a directory after what was in it.
    pub gone: Vec<InodeId>,
    /// How a call is answered when it comes again.
    pub retry: Option<Retry>,
}

/// The numbers that were given last; none is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The newest inode.
    pub inode: InodeId,
    /// The newest block.
    pub block: BlockId,
    /// The newest generation stamp.
    pub stamp: Stamp,
}

impl Default for Counters {
    /// What HDFS begins after.
    fn default() -> Self {
        Self { inode: InodeId::ROOT, block: BlockId(1 << 30), stamp: Stamp(1_000) }
    }
}

/// An inode as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub id: InodeId,
    /// The directory that it is in.
    pub parent: InodeId,
    /// Its name there.
    pub name: Box<[u8]>,
    /// Who owns it.
    pub owner: Arc<str>,
    /// The group that it belongs to.
    pub group: Arc<str>,
    /// Permission bits, with the sticky bit.
    pub mode: u16,
    /// When its content changed last.
    pub mtime: Millis,
    /// When it was read last, as far as that is kept.
    pub atime: Millis,
    /// What it is.
    pub kind: Kind,
}

impl Row {
    /// What it has if it is a file.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.kind {
            Kind::Directory => None,
            Kind::File(file) => Some(file),
        }
    }
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File(Box<File>),
}

/// What a file has beside what every inode has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// How many replicas its blocks should have.
    pub replication: u16,
    /// The most bytes that a block of it holds.
    pub block_size: u64,
    /// Its blocks, in their order.
    pub blocks: Vec<Block>,
    /// Who writes it, if it is being written.
    pub writer: Option<Writer>,
}

impl File {
    /// Whether the data node is to cut its last block to the length that the block has here.
    #[must_use]
    pub fn is_being_cut(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| *writer.client == *TRUNCATION)
    }

    /// Bytes of its blocks; of the last one as far as it is known while it is written.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.blocks.iter().map(|block| block.length).sum()
    }
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its number.
    pub id: BlockId,
    /// Its generation.
    pub stamp: Stamp,
    /// Its bytes; of one that is being written as far as the writer has said.
    pub length: u64,
    /// Whether its writer has said that this is all.
    pub is_committed: bool,
}

/// Who has the lease of a file that is being closed because its writer has gone.
pub const RECOVERY: &str = "savanna_recovery";
/// Who has the lease of a file whose last block is being cut.
pub const TRUNCATION: &str = "savanna_truncation";

/// Who writes a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The name that the client gave itself; its lease has it.
    pub client: Arc<str>,
    /// Where it is.
    pub machine: Arc<str>,
}

/// A call that is done once, however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The client, as it chose.
    pub client: [u8; 16],
    /// The number of its call.
    pub call: i32,
}

/// How a call is answered when it comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The call.
    pub call: CallId,
    /// Its answer.
    pub answer: RetryAnswer,
}

/// The answer to a call that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryAnswer {
    /// Done.
    Done,
    /// A truth value.
    Bool(bool),
    /// The file that was made.
    Created(InodeId),
    /// The file that was opened to be written on.
    Appended(InodeId),
}

/// The first byte of a change in the log. A change of the form below needs another number.
const FORMAT: u8 = 2;
/// The oldest that is read: [`RetryAnswer::Appended`] came after it.
const OLDEST: u8 = 1;

/// Why bytes are no change.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Of another release.
    #[error("expected a change of format {OLDEST} to {FORMAT}, came {came:?}; open it with the release that wrote it")]
    Format {
        /// Its format, if there is any byte.
        came: Option<u8>,
    },
    /// Cut or damaged.
    #[error("a change of the namespace cannot be read: {0}")]
    Damaged(#[from] postcard::Error),
}

impl Change {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Writing into memory fails only for types that do not say how long they are, and there are none.
        postcard::to_extend(self, vec![FORMAT]).unwrap_or_default()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        match bytes.split_first() {
            Some((OLDEST..=FORMAT, rest)) => Ok(postcard::from_bytes(rest)?),
            other => Err(FormatError::Format { came: other.map(|(format, _)| *format) }),
        }
    }
}
