//! Transactions that write more than one record of the log is to have.
//!
//! ```text
//!  the transaction's writes ── some keys at a time ──► parts: objects beside the segments, each durable
//!                                                        │ their names
//!                                                        ▼
//!                                         one record of the log: the commit
//! ```
//!
//! Before that record nobody needs the parts: whoever ends then leaves litter. Behind it they are what the log would have, until the storage has the
//! commit in its segments. Litter goes at once, or, of a process that has ended, when the tenant's next owner wakes it.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use savanna_manifest::{ObjectRef, WriterId};
use savanna_tenants_values::{
    error::{Result, SqlError},
    memory::{Lent, Pool},
};
use savanna_transaction::{Csn, TxnId};

use crate::{database::Database, log::put_write};

/// What a part begins with.
pub(crate) const MAGIC: &[u8; 8] = b"SAVPART1";
/// A part is written when it has so many bytes.
pub const PART_BYTES: usize = 8 << 20;
/// So many bytes of one are made at once, before others have their turn.
const PIECE_BYTES: usize = 512 << 10;

/// How much transactions may write, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of writes from which on they go to parts.
    pub parts_from: usize,
    /// Bytes of writes that a transaction may have.
    pub most: usize,
}

/// Objects that nobody needs and that are to be removed.
#[derive(Debug, Default)]
pub struct Litter {
    paths: Mutex<Vec<String>>,
}

impl Litter {
    pub(crate) fn add(&self, paths: impl IntoIterator<Item = String>) {
        self.paths.lock().extend(paths);
    }

    /// Whether there is any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.lock().is_empty()
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.paths.lock())
    }
}

/// Parts of a transaction that has not committed. When they are dropped they are litter.
#[derive(Debug)]
pub struct Parts {
    pub(crate) name: WriterId,
    pub(crate) objects: Vec<ObjectRef>,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    litter: Arc<Litter>,
}

impl Parts {
    pub(crate) fn new(litter: Arc<Litter>) -> Self {
        Self { name: WriterId::random(), objects: Vec::new(), keys: 0, bytes: 0, litter }
    }

    /// Expects that they are all that a transaction has written, which is so many keys.
    pub(crate) fn expect_keys(&self, keys: usize) -> Result<()> {
        if self.keys == keys as u64 {
            return Ok(());
        }
        let message = format_args!("the parts of a transaction have {} keys, and it has written {keys}", self.keys);
        Err(SqlError::internal(message))
    }

    /// They belong to a commit from now on.
    fn committed(mut self) -> Vec<ObjectRef> {
        std::mem::take(&mut self.objects)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.litter.add(self.objects.drain(..).map(|object| object.path));
    }
}

/// A part that is being made.
#[derive(Debug)]
pub struct Part {
    pub(crate) content: Vec<u8>,
    pub(crate) keys: u64,
    /// The first key that is not in it or one before.
    from: Option<Vec<u8>>,
}

impl Default for Part {
    fn default() -> Self {
        Self { content: MAGIC.to_vec(), keys: 0, from: Some(Vec::new()) }
    }
}

impl Part {
    /// Whether it is to be written down.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.content.len() >= PART_BYTES || self.from.is_none()
    }

    /// What comes behind it; nothing if it is the last.
    #[must_use]
    pub fn next(&self) -> Option<Self> {
        self.from.as_ref().map(|from| Self { from: Some(from.clone()), ..Self::default() })
    }
}

/// The large commits of a tenant.
#[derive(Debug, Default)]
pub(crate) struct Large {
    limits: Option<Limits>,
    litter: Option<Arc<Litter>>,
    /// Where transactions take memory that write much.
    memory: Option<Arc<Pool>>,
    /// Parts that the storage lacks, of commits in their order.
    needed: VecDeque<(Csn, u64, Vec<String>)>,
}

impl Large {
    /// A commit is in parts.
    pub(crate) fn push(&mut self, csn: Csn, objects: Vec<ObjectRef>) {
        let bytes = objects.iter().map(|object| object.bytes).sum();
        self.needed.push_back((csn, bytes, objects.into_iter().map(|object| object.path).collect()));
    }

    /// The storage has all commits up to one in its segments. Whether any of them was in parts, which nobody needs now.
    pub(crate) fn flushed(&mut self, upto: Csn) -> bool {
        let before = self.needed.len();
        while let Some((.., paths)) = self.needed.pop_front_if(|(csn, ..)| *csn <= upto) {
            self.litter.iter().for_each(|litter| litter.add(paths.iter().cloned()));
        }
        self.needed.len() < before
    }
}

impl Database {
    /// Lets transactions write more than a record of the log has, in parts; those that nobody needs are put to the litter.
    pub fn write_in_parts(&mut self, limits: Limits, litter: Arc<Litter>) {
        self.large.limits = Some(limits);
        self.large.litter = Some(litter);
    }

    /// Lets transactions that write much take memory where statements do.
    pub fn share_memory(&mut self, memory: Arc<Pool>) {
        self.large.memory = Some(memory);
    }

    /// Memory for what is written, none yet.
    #[must_use]
    pub fn lent(&self) -> Lent {
        Lent::of(self.large.memory.clone())
    }

    /// Bytes that a transaction may write.
    #[must_use]
    pub fn transaction_bytes_max(&self) -> usize {
        self.large.limits.map_or(super::database::RECORD_BYTES_MAX, |limits| limits.most)
    }

    /// Whether a transaction that has written so many bytes is to have them in parts when it commits.
    pub fn wants_parts(&self, txn: TxnId, bytes: usize) -> Result<bool> {
        let is_large = self.large.limits.is_some_and(|limits| bytes >= limits.parts_from);
        Ok(is_large && self.transactions.written_from(txn, &[])?.next().is_some())
    }

    /// Goes on with a part of what a transaction has written: some of the keys behind those that it has.
    ///
    /// # Errors
    /// If the transaction does not live.
    pub fn write_part(&self, txn: TxnId, part: &mut Part) -> Result<()> {
        let Some(from) = part.from.take() else { return Ok(()) };
        let enough = (part.content.len() + PIECE_BYTES).min(PART_BYTES);
        let mut writes = self.transactions.written_from(txn, &from)?;
        for (key, value) in writes.by_ref() {
            put_write(&mut part.content, key, value.map(|value| &**value));
            part.keys += 1;
            if part.content.len() >= enough {
                break;
            }
        }
        part.from = writes.next().map(|(key, _)| key.to_vec());
        Ok(())
    }

    /// The parts that the storage lacks.
    pub fn needed_parts(&self) -> impl Iterator<Item = &str> {
        self.large.needed.iter().flat_map(|(.., paths)| paths).map(String::as_str)
    }

    /// How many bytes these are.
    #[must_use]
    pub fn needed_parts_bytes(&self) -> u64 {
        self.large.needed.iter().map(|(_, bytes, _)| bytes).sum()
    }

    /// Parts belong to a commit.
    pub(crate) fn keep_parts(&mut self, csn: Csn, parts: Parts) {
        self.large.push(csn, parts.committed());
    }
}
