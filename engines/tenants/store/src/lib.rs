//! A tenant's rows, how they are kept, and come back.
//!
//! [`database`]: transactions over versions in memory, over a [`Store`], beside a [`log`]. [`flush`], [`storage`], [`shards`], [`truncation`] and
//! [`owner`]: which tenants there are, how rows are kept, and come back. [`spills`]: files for rows of statements that have no memory for them. [`role`]: who
//! may come in. [`pages`]: the rows of a statement that runs on another thread. [`large`]: transactions that write much. [`points`]: where tests end a process.
//!
//! A [`Store`] is what lies below the version table: the newest version of each key up to a commit, wherever it is kept.
//! A reader never waits in here. If a block is not in memory it is told so by an error, its [`Reading`] knows which block it
//! is, and after somebody has brought it the whole statement runs again.

pub mod database;
pub mod fault;
pub mod flush;
pub mod large;
pub mod log;
mod memory;
pub mod owner;
pub mod pages;
pub mod points;
mod reading;
pub mod role;
mod roots;
mod segments;
pub mod shards;
pub mod spills;
pub mod storage;
pub mod truncation;

use std::fmt::Debug;

use bytes::Bytes;
use savanna_tenants_segments::PageId;
use savanna_tenants_values::error::Result;
use savanna_transaction::{Csn, Direction, KeyRange};

pub use self::{
    memory::MemoryStore,
    reading::{Reading, Want},
    segments::{Change, Live, Sealed, SegmentStore, Segments},
};

/// The rows of one tenant as they were at one commit, which moves forward.
pub trait Store: Debug + Send {
    /// The commit whose state is kept safely: the log up to it is not needed.
    fn flushed(&self) -> Csn;

    /// The value of a key.
    ///
    /// # Errors
    /// If a block is wanted, or broken.
    fn get(&self, key: &[u8], reading: &mut Reading) -> Result<Option<Bytes>>;

    /// The keys of a range in order, with their values.
    fn scan<'a>(&'a self, range: &KeyRange, direction: Direction, reading: &'a mut Reading) -> Box<dyn Rows + 'a>;

    /// Takes a part of what moves it forward to `csn`: keys get these values, or go. Parts come in the order of their keys.
    fn apply(&mut self, csn: Csn, writes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>);

    /// All parts have come. Whether something is still to be done before it has them safely: then [`flushed`](Self::flushed)
    /// moves when that is done. Nothing is applied meanwhile.
    fn seal(&mut self, csn: Csn) -> bool;

    /// Whether it may have got rows since it was opened that were not [applied](Self::apply) here: those that a former owner has written down meanwhile, or
    /// that are read elsewhere.
    fn has_rows_of_others(&self) -> bool {
        true
    }

    /// The block that a key would be in, and whether there is one. Where it is may change by the next seal.
    fn page_of(&self, key: &[u8]) -> Option<PageId>;

    /// Whether writes of these keys could split or merge blocks that are there.
    fn may_change_structure(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> bool;
}

/// Keys with their values, one after the other.
pub trait Rows {
    /// Goes to the next; whether there is one.
    ///
    /// # Errors
    /// If a block is wanted, or broken.
    fn step(&mut self) -> Result<bool>;

    /// The key.
    fn key(&self) -> &[u8];

    /// Its value.
    fn value(&self) -> &[u8];

    /// Keys that have gone and were passed over.
    fn passed(&self) -> usize;

    /// Whether the key has gone: whoever reads by pages stops there, too, when many have.
    fn has_gone(&self) -> bool {
        false
    }
}
