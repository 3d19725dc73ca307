//! The block manager: which file a block belongs to, which data nodes have it, and what they have to do about that. It decides; it reads no disk
//! and no clock: what is heard of data nodes comes in, with the instant, and what they are to do is asked for.
//!
//! Which blocks there are follows from the files' rows. Which replicas there are is never kept: a data node reports all of them
//! when it begins, and each one that comes or goes later.
//!
//! `entries` are the blocks, `nodes` knows the data nodes, `reports` takes what they say, `comparing` all that they say that they have, `work` decides what they do,
//! `ending` how blocks are ended whose writers have gone.
//!
//! Whoever calls this has a lock. So what takes the longer the more blocks there are is done in parts, and others have the lock in between: a part is at most as
//! large as the caller says.

mod comparing;
mod ending;
mod entries;
mod nodes;
mod reports;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::change::{Block, File};
use crate::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use crate::request::{BlockName, Reply, Request};

pub use self::comparing::{Begun, Comparison, Outdated};
use self::ending::Closing;
pub use self::ending::{Ended, Here, NotEnded, RecoveryOrder};
pub use self::entries::Counts;
use self::entries::Entries;
pub use self::nodes::{Heartbeat, Holder, Liveness, NodeShown, Nodes, Place, Registration, Silence, StorageFigures};
pub use self::work::Duties;

/// A replica that is complete, as a data node reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its block.
    pub block: BlockId,
    /// Its generation.
    pub stamp: Stamp,
    /// Its bytes.
    pub length: u64,
}

/// A replica that is to be sent to another data node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copying {
    /// What of.
    pub block: BlockName,
    /// Who has it.
    pub from: Holder,
    /// Where it is to be.
    pub to: Place,
    /// Since when.
    pub since: Millis,
}

/// A replica of a data node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    place: Place,
    stamp: Stamp,
    length: u64,
    state: State,
    /// Whether somebody found it damaged.
    is_corrupt: bool,
    /// How often its data node had registered when it said so: only what it says since then comes late.
    registered: u64,
}

impl Held {
    fn is_whole(&self) -> bool {
        self.state == State::Whole
    }
}

/// What a replica of a data node is. Under one generation it becomes only what comes later here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It is being written.
    Begun,
    /// It is not being written.
    Whole,
    /// Its writer has gone, with its data node.
    Left,
}

/// What a file says of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    stamp: Stamp,
    length: u64,
    /// How many replicas there should be.
    replication: u16,
    /// Whether it is being written.
    is_open: bool,
}

#[derive(Debug)]
struct Entry {
    /// None is here, if it is [`InodeId::NOWHERE`].
    inode: InodeId,
    /// What its file said last; nothing if that was not here since the process began.
    wanted: Option<Wanted>,
    /// What the data node in the process has of it, if that is whole: generation and length.
    here: Option<(Stamp, u64)>,
    is_corrupt_here: bool,
    /// What others have.
    others: Vec<Held>,
}

impl Entry {
    const fn of(inode: InodeId) -> Self {
        Self { inode, wanted: None, here: None, is_corrupt_here: false, others: Vec::new() }
    }

    fn replicas(&self) -> impl Iterator<Item = Held> {
        let is_corrupt = self.is_corrupt_here;
        let here = self.here.map(|(stamp, length)| Held {
            place: Place::HERE,
            stamp,
            length,
            state: State::Whole,
            is_corrupt,
            registered: 0,
        });
        here.into_iter().chain(self.others.iter().copied())
    }

    /// Also what a data node had that is gone, as long as that was not looked at.
    fn whole(&self) -> impl Iterator<Item = Held> {
        self.replicas().filter(Held::is_whole)
    }

    fn is_missing(&self) -> bool {
        match self.wanted {
            None => self.whole().next().is_none(),
            Some(wanted) => !wanted.is_open && !self.whole().any(|held| is_all(&held, wanted.stamp, wanted.length)),
        }
    }

    fn is_corrupt(&self) -> bool {
        self.whole().next().is_some() && self.whole().all(|held| held.is_corrupt)
    }
}

/// Who writes a block.
#[derive(Debug)]
struct Pipeline {
    /// In the order of the pipeline, and how often their data nodes had registered by then.
    places: Vec<(Place, u64)>,
    /// Whether there is nobody else.
    is_all: bool,
}

/// All blocks of the files that are here, all replicas, and all data nodes.
#[derive(Debug, Default)]
pub struct Blocks {
    entries: Entries,
    /// Those that no file has any more, and the data node in the process may still have.
    unwanted: Vec<BlockId>,
    /// The data nodes of other processes.
    pub nodes: Nodes,
    /// Who writes the blocks that are being written.
    pipelines: HashMap<BlockId, Pipeline>,
    /// Blocks that other data nodes end.
    closings: BTreeMap<BlockId, Closing>,
    /// What data nodes have of blocks of which no file is here.
    unchecked: BTreeSet<BlockId>,
    /// Those that are newer than anything that was given.
    newer: BTreeSet<BlockId>,
    /// Blocks whose replicas are to be looked at.
    unseen: BTreeSet<BlockId>,
    /// Blocks that have fewer replicas than they should, when they were looked at last.
    low: BTreeSet<BlockId>,
    /// When blocks were closed whose replicas are not all reported yet.
    fresh: HashMap<BlockId, Millis>,
    /// What is being sent.
    copies: BTreeMap<BlockId, Copying>,
    /// How much data nodes send.
    sending: BTreeMap<Holder, usize>,
    /// Blocks of which something is to be sent when somebody has less to send.
    stalled: BTreeSet<BlockId>,
    /// Up to where they were looked at.
    stalled_up_to: BlockId,
    /// What could not be sent: by whom, how often, and until when it is not tried again.
    failed: HashMap<BlockId, (Holder, u32, Millis)>,
    /// Blocks of which the data node in the process has the only good replica, if that is good.
    doubtful: BTreeSet<BlockId>,
    /// Those that were compared with their checksums, and are good, and when: that counts when they are looked at next, and not for long.
    compared: BTreeMap<BlockId, Millis>,
    /// What the data node in the process is to remove, if it is damaged.
    removals_here: BTreeMap<BlockId, nodes::Removal>,
    /// What the data node in the process has to send.
    copies_here: Vec<Copying>,
    /// The newest change.
    txid: Txid,
}

impl Blocks {
    /// The file that a block belongs to.
    #[must_use]
    pub fn inode(&self, block: BlockId) -> Option<InodeId> {
        self.entries.get(&block).map(|entry| entry.inode).filter(|inode| *inode != InodeId::NOWHERE)
    }

    /// How many blocks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a data node has all of a block.
    #[must_use]
    pub fn has(&self, block: &Block) -> bool {
        self.entries
            .get(&block.id)
            .is_some_and(|entry| self.replicas(block.id, entry).any(|held| is_all(&held, block.stamp, block.length)))
    }

    /// The replicas of a block that count: those that are not of a storage that is gone.
    fn replicas(&self, block: BlockId, entry: &Entry) -> impl Iterator<Item = Held> {
        entry.replicas().filter(move |held| !self.nodes.is_gone(held.place, block))
    }

    /// The same of those that are not here.
    fn others(&self, block: BlockId) -> impl Iterator<Item = &Held> {
        let others = self.entries.get(&block).into_iter().flat_map(|entry| &entry.others);
        others.filter(move |held| !self.nodes.is_gone(held.place, block))
    }

    /// Where all of a block is: here first, and those that are silent last. Damaged replicas count only if there are no others.
    #[must_use]
    pub fn places(&self, block: &Block) -> Vec<Place> {
        let Some(entry) = self.entries.get(&block.id) else { return Vec::new() };
        let all = |is_corrupt| {
            let all = self.replicas(block.id, entry).filter(move |held| is_all(held, block.stamp, block.length));
            let mut places: Vec<Place> =
                all.filter(|held| held.is_corrupt == is_corrupt).map(|held| held.place).collect();
            places.retain(|place| !self.nodes.is_leaving(place.holder, block.id));
            places.sort_by_key(|place| (self.nodes.liveness(place.holder) != Liveness::Live, *place));
            places
        };
        let sound = all(false);
        if sound.is_empty() { all(true) } else { sound }
    }

    /// Who writes a block that is being written, in the order of the pipeline; the data node in the process last, because it sends nothing on.
    #[must_use]
    pub fn pipeline(&self, block: BlockId) -> Vec<Place> {
        if let Some(pipeline) = self.pipelines.get(&block) {
            let places = pipeline.places.iter().map(|(place, _)| *place);
            return places.filter(|place| self.nodes.counts(place.holder)).collect();
        }
        // The process began since. What is being written here is not reported.
        let begun = self.others(block).filter(|held| !held.is_whole()).map(|held| held.place);
        begun.chain([Place::HERE]).collect()
    }

    /// Who writes a block from now on, as a client was told or has said.
    pub fn follow(&mut self, request: &Request, reply: &Reply) {
        match (request, reply) {
            (Request::AddBlock { .. }, Reply::Block(located)) | (_, Reply::Appended(Some(located), _)) => {
                self.written_by(located.block.id, located.places.clone(), true);
            }
            (Request::UpdatePipeline { new, places, are_all, .. }, Reply::Done) => {
                self.written_by(new.id, places.clone(), *are_all);
            }
            _ => {}
        }
    }

    /// A block is written by these from now on: by nobody else, unless some were named that are not known.
    fn written_by(&mut self, block: BlockId, places: Vec<Place>, is_all: bool) {
        let is_open = |entry: &Entry| entry.wanted.is_some_and(|wanted| wanted.is_open);
        if !self.nodes.is_empty() && !places.is_empty() && self.entries.get(&block).is_some_and(is_open) {
            let places = places.into_iter().map(|place| (place, self.nodes.registered(place.holder))).collect();
            self.pipelines.insert(block, Pipeline { places, is_all });
        } else {
            // Whoever wrote it before does not any more.
            self.pipelines.remove(&block);
        }
    }

    /// Where a new block may be written, in the order of the pipeline, without some data nodes: here, if that is not one of them, and as many others as
    /// there should be replicas.
    #[must_use]
    pub fn choose(&self, block: BlockId, bytes: u64, replication: u16, without: &[Holder]) -> Vec<Place> {
        let is_here = !without.contains(&Holder::HERE);
        let others = usize::from(replication.max(1)) - usize::from(is_here);
        let mut places = self.nodes.choose((block, bytes), others, |holder| without.contains(&holder));
        places.extend(is_here.then_some(Place::HERE));
        places
    }

    /// Where one more replica of a block that is being written may be; it comes first in the pipeline.
    #[must_use]
    pub fn choose_more(&self, block: BlockId, count: usize, without: &[Holder]) -> Vec<Place> {
        let mut places = self.nodes.choose((block, 0), count, |holder| without.contains(&holder));
        if places.len() < count && !without.contains(&Holder::HERE) {
            places.push(Place::HERE);
        }
        places
    }

    /// The generation of a block that its file wants, as far as that is known.
    #[must_use]
    pub fn wanted_stamp(&self, block: BlockId) -> Option<Stamp> {
        Some(self.entries.get(&block)?.wanted?.stamp)
    }

    /// Whether somebody found all replicas of a block damaged.
    #[must_use]
    pub fn is_corrupt(&self, block: BlockId) -> bool {
        let Some(entry) = self.entries.get(&block) else { return false };
        let mut whole = self.replicas(block, entry).filter(Held::is_whole).peekable();
        whole.peek().is_some() && whole.all(|held| held.is_corrupt)
    }

    /// Somebody found the replica of a data node damaged.
    pub fn found_corrupt(&mut self, block: BlockId, holder: Holder) {
        let Some(mut entry) = self.entries.get_mut(&block) else { return };
        if holder == Holder::HERE {
            entry.is_corrupt_here = true;
        }
        for held in entry.others.iter_mut().filter(|held| held.place.holder == holder) {
            held.is_corrupt = true;
        }
        drop(entry);
        self.look_at(block);
    }

    /// The data node in the process has a replica. Whether any file wants it; if not, it may go.
    pub fn received(&mut self, replica: Replica) -> bool {
        let Some(mut entry) = self.entries.get_mut(&replica.block) else { return false };
        // What comes late is of an older generation.
        if entry.here.is_none_or(|(stamp, _)| stamp <= replica.stamp) {
            if entry.here != Some((replica.stamp, replica.length)) {
                entry.is_corrupt_here = false;
            }
            entry.here = Some((replica.stamp, replica.length));
        }
        drop(entry);
        self.copied(replica.block, Holder::HERE);
        self.look_at(replica.block);
        true
    }

    /// When it begins, the data node in the process has a replica. Of a file that is not here, perhaps.
    pub fn reported(&mut self, replica: Replica) {
        drop(self.entries.get_or_new(replica.block, InodeId::NOWHERE));
        self.received(replica);
    }

    /// No file has these blocks, nor ever will.
    pub fn forget(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            if let Some(entry) = self.entries.remove(block) {
                self.drop_replicas(*block, &entry);
            }
        }
    }

    /// A file is not here any more, and still has its blocks. What data nodes have of them is kept.
    pub(crate) fn given_up(&mut self, inode: InodeId, blocks: &[Block]) {
        for block in blocks {
            let Some(mut entry) = self.entries.get_mut(&block.id).filter(|entry| entry.inode == inode) else {
                continue;
            };
            let has_any = entry.replicas().next().is_some();
            if has_any {
                entry.inode = InodeId::NOWHERE;
            }
            drop(entry);
            if !has_any {
                self.entries.remove(&block.id);
                self.drop_looks(block.id);
            }
        }
    }

    /// What no file has any more, since this was asked last, as far as the data node in the process may have it. It may go once the changes that
    /// took it away are durable.
    pub fn take_unwanted(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.unwanted)
    }

    /// Blocks which no data node has, or that somebody found damaged, among so many behind some that were looked at, in any order: which, of which file, and whether
    /// it is lacking; and how many were looked at by then, if there are more.
    #[must_use]
    pub fn damaged(&self, from: usize, most: usize) -> (Vec<(BlockId, InodeId, bool)>, Option<usize>) {
        let damaged = self.entries.part(from, most).filter(|(_, entry)| entry.is_missing() || entry.is_corrupt());
        let damaged = damaged.map(|(block, entry)| (block, entry.inode, entry.is_missing())).collect();
        let up_to = from.saturating_add(most);
        (damaged, Some(up_to).filter(|up_to| self.entries.is_behind(*up_to)))
    }

    /// How many blocks stand how. What a data node or a storage had that is gone counts until it was taken from its blocks.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.entries.counts()
    }

    /// How many times a block was looked at since this was asked last.
    #[cfg(any(test, feature = "flaws"))]
    #[must_use]
    pub fn take_looks(&self) -> usize {
        self.entries.take_looks()
    }

    /// Whether data nodes have at least 99.9 % of the blocks of files that are here and not being written. That is not known as long as something is gone that was
    /// not taken from its blocks.
    #[must_use]
    pub fn are_enough(&self) -> bool {
        let Counts { closed, lacking, .. } = self.counts();
        !self.nodes.is_losing() && lacking.saturating_mul(1_000) <= closed
    }

    /// What comes is of a change.
    pub(crate) const fn begins(&mut self, txid: Txid) {
        self.txid = txid;
    }

    /// A file has other blocks than before, or wants others of them. Those that another file has meanwhile stay.
    pub(crate) fn changed(&mut self, inode: InodeId, before: Option<&File>, after: Option<&File>) {
        fn blocks(file: Option<&File>) -> &[Block] {
            file.map_or(&[], |file| &file.blocks)
        }
        let (before, now) = (blocks(before), blocks(after));
        for block in now {
            let wanted = after.map(|file| Wanted {
                stamp: block.stamp,
                length: block.length,
                replication: file.replication,
                is_open: file.writer.is_some() && !block.is_committed,
            });
            self.newer.remove(&block.id);
            let mut entry = self.entries.get_or_new(block.id, inode);
            entry.inode = inode;
            let before = std::mem::replace(&mut entry.wanted, wanted);
            drop(entry);
            if before != wanted {
                if wanted.is_some_and(|wanted| !wanted.is_open) && self.pipelines.remove(&block.id).is_some() {
                    self.fresh.insert(block.id, self.nodes.now());
                }
                self.look_at(block.id);
            }
        }
        for block in before {
            let is_of_it = self.entries.get(&block.id).is_some_and(|entry| entry.inode == inode);
            if is_of_it && !now.iter().any(|other| other.id == block.id) {
                if let Some(entry) = self.entries.remove(&block.id) {
                    self.drop_replicas(block.id, &entry);
                }
                self.unwanted.push(block.id);
            }
        }
    }

    /// A block is to be looked at, if there is anybody but the data node in the process.
    fn look_at(&mut self, block: BlockId) {
        if !self.nodes.is_empty() {
            self.unseen.insert(block);
        }
    }
}

/// Whether a replica has all of a generation of a block.
fn is_all(held: &Held, stamp: Stamp, length: u64) -> bool {
    held.is_whole() && (held.stamp, held.length) == (stamp, length)
}

#[cfg(test)]
mod tests;
