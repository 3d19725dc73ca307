//! Data nodes: who they are, when they were heard of, what room they have, and which of them get a new block.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::Copying;
use crate::ids::{BlockId, Millis, Stamp, Txid};

/// A data node, by its number since the process began. The first is the one in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holder(pub u16);

impl Holder {
    /// The data node in the process.
    pub const HERE: Self = Self(0);
}

/// Where a replica is: a storage of a data node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The data node.
    pub holder: Holder,
    /// Its storage, by number.
    pub storage: u16,
}

impl Place {
    /// The only storage of the data node in the process.
    pub const HERE: Self = Self { holder: Holder::HERE, storage: 0 };
}

/// What a data node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Its name, for ever.
    pub uuid: String,
    /// Where it is.
    pub address: String,
    /// What it calls its machine.
    pub host: String,
    /// Where blocks come and go.
    pub transfer_port: u32,
    /// Its pages.
    pub info_port: u32,
    /// Its calls.
    pub ipc_port: u32,
    /// Its release.
    pub software: String,
    /// Over which connection it says so, in the order in which they began.
    pub connection: u64,
}

/// A storage of a data node, as it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageFigures {
    /// Its name, for ever.
    pub id: String,
    /// Of which kind it is, by the number that clients know.
    pub kind: i32,
    /// Whether nothing can be written to it.
    pub has_failed: bool,
    /// All bytes.
    pub capacity: u64,
    /// Bytes of replicas.
    pub used: u64,
    /// Bytes of replicas of this installation.
    pub pool_used: u64,
    /// Bytes that are free.
    pub remaining: u64,
}

/// What a data node says when it is heard of.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat {
    /// Its storages.
    pub storages: Vec<StorageFigures>,
    /// How many of its disks have failed: it leaves those out.
    pub failed_disks: u32,
    /// Connections of blocks that it serves.
    pub load: u32,
    /// Whether it asks to report all its replicas.
    pub wants_to_report: bool,
}

/// How long data nodes may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// So long, and it is not asked if others can be.
    pub stale: u64,
    /// So long, and its replicas do not count any more.
    pub dead: u64,
}

impl Default for Silence {
    fn default() -> Self {
        Self { stale: 30_000, dead: 630_000 }
    }
}

/// Whether a data node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It is.
    Live,
    /// It is silent.
    Stale,
    /// It was silent for too long.
    Dead,
}

/// Why a replica is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// No file has its block.
    Gone,
    /// There are more than the file should have.
    Excess,
    /// It is damaged, or of an older generation.
    Bad,
}

/// A replica that is to be removed, once the log has all up to a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    pub(super) stamp: Stamp,
    pub(super) since: Txid,
    pub(super) why: Why,
}

/// A storage.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) figures: StorageFigures,
    /// What is there, as far as it was reported.
    pub(super) blocks: BTreeSet<BlockId>,
    /// What was there when it went, and was not said again since: it does not count, and is taken from its blocks a part at a time.
    gone: Vec<BTreeSet<BlockId>>,
    /// Whether all of it was reported since the data node registered.
    pub(super) has_reported: bool,
    /// How many reports of all have come: only the newest counts.
    reports: u64,
    /// Whether the newest is being compared, and what was said otherwise since it came: that is newer.
    pub(super) is_comparing: bool,
    pub(super) said_since: BTreeSet<BlockId>,
}

impl Storage {
    /// What was reported until now is not compared any more. What was said otherwise, if there is any.
    fn stop_comparing(&mut self) -> Option<BTreeSet<BlockId>> {
        self.is_comparing = false;
        Some(std::mem::take(&mut self.said_since)).filter(|said| !said.is_empty())
    }

    /// It has nothing any more. Whether it had something.
    fn lose(&mut self) -> bool {
        let had_any = !self.blocks.is_empty();
        if had_any {
            self.gone.push(std::mem::take(&mut self.blocks));
        }
        had_any
    }

    /// A report of all has come. Its number.
    pub(super) const fn begin_comparing(&mut self) -> u64 {
        self.is_comparing = true;
        self.reports += 1;
        self.reports
    }

    /// Whether no report has come since this one.
    pub(super) const fn is_newest(&self, report: u64) -> bool {
        self.reports == report
    }

    /// One of what is gone.
    fn take_gone(&mut self) -> Option<BlockId> {
        while let Some(last) = self.gone.last_mut() {
            match last.pop_first() {
                Some(block) => return Some(block),
                None => drop(self.gone.pop()),
            }
        }
        None
    }

    /// A replica is there again, or nobody wants to know of it any more. Whether it was gone.
    fn is_not_gone(&mut self, block: BlockId) -> bool {
        self.gone.iter_mut().any(|gone| gone.remove(&block))
    }
}

/// A data node of another process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) registration: Registration,
    pub(super) heard: Millis,
    pub(super) is_dead: bool,
    /// The newest block when it was dead last.
    lost_at: BlockId,
    /// Whether it has reported all that it has since it registered.
    has_reported: bool,
    /// How often it has registered: what it said before does not count any more.
    registered: u64,
    pub(super) storages: Vec<Storage>,
    failed_disks: u32,
    pub(super) load: u32,
    /// Under what number it may report all its replicas, and since when.
    pub(super) lease: Option<(u64, Millis)>,
    pub(super) removals: BTreeMap<BlockId, Removal>,
    /// How many of them go because there are too many.
    pub(super) excess: usize,
    /// What it was told to remove, and when: until it says that it did, a report that it made before may have it.
    pub(super) told: BTreeMap<BlockId, (Stamp, Millis)>,
    /// The same in the order of time.
    told_at: VecDeque<(Millis, BlockId)>,
    /// What it has to send to others.
    pub(super) copies: Vec<Copying>,
}

impl Node {
    /// What it has is known.
    pub(super) const fn is_sure(&self) -> bool {
        !self.is_dead && self.has_reported
    }

    /// A replica is to be removed.
    pub(super) fn is_to_remove(&mut self, block: BlockId, removal: Removal) {
        self.stays(block);
        self.excess += usize::from(removal.why == Why::Excess);
        self.removals.insert(block, removal);
    }

    /// A replica is not to be removed any more, or is removed now.
    pub(super) fn stays(&mut self, block: BlockId) {
        if let Some(removal) = self.removals.remove(&block) {
            self.excess -= usize::from(removal.why == Why::Excess);
        }
    }

    /// It is told to remove a replica.
    pub(super) fn tell(&mut self, block: BlockId, stamp: Stamp, now: Millis) {
        self.told.insert(block, (stamp, now));
        self.told_at.push_back((now, block));
    }

    /// What it was told so long ago that it does not count any more goes, at most so much.
    pub(super) fn forget_told(&mut self, now: Millis, time: u64, most: usize) {
        for _ in 0..most {
            let Some((since, block)) = self.told_at.pop_front_if(|(since, _)| now.since(*since) >= time) else {
                return;
            };
            if self.told.get(&block).is_some_and(|(_, last)| *last == since) {
                self.told.remove(&block);
            }
        }
    }

    /// Bytes that are free on all of its storages.
    pub(super) fn room(&self) -> u64 {
        self.usable().map(|(_, figures)| figures.remaining).fold(0, u64::saturating_add)
    }

    fn remaining(&self) -> u64 {
        self.usable().map(|(_, figures)| figures.remaining).max().unwrap_or(0)
    }

    fn usable(&self) -> impl Iterator<Item = (u16, &StorageFigures)> {
        let storages = (0_u16..).zip(&self.storages).map(|(number, storage)| (number, &storage.figures));
        storages.filter(|(_, figures)| !figures.has_failed && !figures.id.is_empty())
    }

    /// The storage with the most room.
    fn roomiest(&self) -> Option<u16> {
        self.usable().max_by_key(|(number, figures)| (figures.remaining, std::cmp::Reverse(*number))).map(|(it, _)| it)
    }
}

/// A data node as others see it.
#[derive(Clone, Debug)]
pub struct NodeShown {
    /// Its number.
    pub holder: Holder,
    /// What it says of itself.
    pub registration: Registration,
    /// Its storages.
    pub storages: Vec<StorageFigures>,
    /// Whether it is there.
    pub liveness: Liveness,
    /// Milliseconds since it was heard of.
    pub silent: u64,
    /// Blocks of which it has a replica.
    pub blocks: usize,
    /// How many of its disks have failed.
    pub failed_disks: u32,
    /// Connections of blocks that it serves.
    pub load: u32,
}

/// What nobody asks for any more, and takes long to be dropped.
#[derive(Debug, Default)]
struct Rubbish {
    removals: Vec<BTreeMap<BlockId, Removal>>,
    told: Vec<BTreeMap<BlockId, (Stamp, Millis)>>,
    said: Vec<BTreeSet<BlockId>>,
}

/// One of some that nobody asks for any more. Whether there was any.
fn drop_one<M, T>(all: &mut Vec<M>, pop: impl Fn(&mut M) -> Option<T>) -> bool {
    while let Some(last) = all.last_mut() {
        if pop(last).is_some() {
            return true;
        }
        all.pop();
    }
    false
}

/// All data nodes of other processes that were heard of.
#[derive(Debug, Default)]
pub struct Nodes {
    pub(super) nodes: Vec<Node>,
    /// Storages of which something is gone.
    losing: BTreeSet<Place>,
    rubbish: Rubbish,
    /// How long they may be silent.
    pub silence: Silence,
    /// Those of an earlier process that have not reported yet, and the newest block when this one began.
    awaited: BTreeSet<String>,
    newest: BlockId,
    /// There were others once, whether they are there or not: what is not here may be there.
    had_others: bool,
    /// Those that were there before and have not come back, which were waited for in vain by this process or an earlier one, and the newest block that
    /// there was when that was given up: they have no later one.
    lost: BTreeMap<String, BlockId>,
    leases: u64,
    /// The newest instant that was heard of.
    now: Millis,
}

/// The most that are known; who is dead keeps its number.
const NODES_MAX: usize = 10_000;
/// The most storages of one.
const STORAGES_MAX: usize = 512;
/// The longest name of a data node, or of a storage.
const NAME_MAX: usize = 256;
/// It is looked at what time it is more often than that.
const STOPPED: u64 = 10_000;
/// Data nodes that report all their replicas at the same time.
const REPORTS_MAX: usize = 6;
/// So long one may take for that.
const REPORT_TIME: u64 = 5 * 60_000;

impl Nodes {
    /// It is so late. If nothing was looked at for a while, this process was stopped: nobody else was silent.
    pub(super) fn advance(&mut self, now: Millis) {
        let stopped = now.since(self.now).saturating_sub(STOPPED);
        if stopped > 0 {
            self.nodes.iter_mut().for_each(|node| node.heard = Millis(node.heard.0 + stopped));
        }
        self.now = self.now.max(now);
    }

    /// The newest instant that was heard of.
    pub(super) const fn now(&self) -> Millis {
        self.now
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn live(&self) -> usize {
        self.holders().filter(|holder| self.liveness(*holder) == Liveness::Live).count()
    }

    pub(super) fn get(&self, holder: Holder) -> Option<&Node> {
        self.nodes.get(usize::from(holder.0).checked_sub(1)?)
    }

    pub(super) fn get_mut(&mut self, holder: Holder) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(holder.0).checked_sub(1)?)
    }

    /// The data node of a name.
    #[must_use]
    pub fn find(&self, uuid: &str) -> Option<Holder> {
        let at = self.nodes.iter().position(|node| node.registration.uuid == uuid)?;
        Some(Holder(u16::try_from(at + 1).ok()?))
    }

    /// All of them.
    pub fn holders(&self) -> impl Iterator<Item = Holder> + use<> {
        (1..=u16::try_from(self.nodes.len()).unwrap_or(u16::MAX)).map(Holder)
    }

    /// A data node says who it is. None if there are too many.
    pub(super) fn register(&mut self, registration: Registration) -> Option<Holder> {
        let now = self.now;
        let names = [&registration.uuid, &registration.host, &registration.software];
        if names.into_iter().any(|name| name.len() > NAME_MAX) {
            return None;
        }
        if let Some(holder) = self.find(&registration.uuid) {
            let node = self.get_mut(holder)?;
            (node.registration, node.heard, node.is_dead, node.lease) = (registration, now, false, None);
            node.has_reported = false;
            node.registered += 1;
            node.copies.clear();
            node.told_at.clear();
            // It may have begun anew, with other disks.
            let said = node.storages.iter_mut().filter_map(|storage| {
                storage.has_reported = false;
                storage.stop_comparing()
            });
            let (said, told) = (said.collect::<Vec<_>>(), std::mem::take(&mut node.told));
            self.rubbish.said.extend(said);
            self.rubbish.told.push(told);
            return Some(holder);
        }
        let holder = Holder(u16::try_from(self.nodes.len() + 1).ok().filter(|_| self.nodes.len() < NODES_MAX)?);
        self.had_others = true;
        self.nodes.push(Node {
            registration,
            heard: now,
            is_dead: false,
            lost_at: BlockId(0),
            has_reported: false,
            registered: 1,
            storages: Vec::new(),
            failed_disks: 0,
            load: 0,
            lease: None,
            removals: BTreeMap::new(),
            excess: 0,
            told: BTreeMap::new(),
            told_at: VecDeque::new(),
            copies: Vec::new(),
        });
        Some(holder)
    }

    /// A data node is there. Storages that it does not have any more; none if it has to say who it is first.
    pub(super) fn heard(&mut self, holder: Holder, heartbeat: Heartbeat) -> Option<Vec<Place>> {
        let now = self.now;
        let node = self.get_mut(holder).filter(|node| !node.is_dead)?;
        (node.heard, node.load, node.failed_disks) = (now, heartbeat.load, heartbeat.failed_disks);
        let is_there = |storage: &Storage| {
            let mut told = heartbeat.storages.iter();
            told.any(|figures| figures.id == storage.figures.id && !figures.has_failed)
        };
        let gone = node.storages.iter_mut().zip(0..).filter(|(storage, _)| !is_there(storage));
        let gone = gone.map(|(storage, number)| {
            // There is no room either.
            let StorageFigures { id, kind, .. } = std::mem::take(&mut storage.figures);
            storage.figures = StorageFigures { id, kind, ..StorageFigures::default() };
            Place { holder, storage: number }
        });
        let gone = gone.collect();
        for figures in heartbeat.storages {
            let Some(number) = self.storage(holder, &figures.id, figures.kind) else { continue };
            if let Some(storage) = self.get_mut(holder).and_then(|node| node.storages.get_mut(usize::from(number))) {
                storage.figures = figures;
            }
        }
        Some(gone)
    }

    pub(super) fn storage_of(&self, place: Place) -> Option<&Storage> {
        self.get(place.holder)?.storages.get(usize::from(place.storage))
    }

    pub(super) fn storage_mut(&mut self, place: Place) -> Option<&mut Storage> {
        self.get_mut(place.holder)?.storages.get_mut(usize::from(place.storage))
    }

    /// A storage has nothing any more.
    pub(super) fn lose_storage(&mut self, place: Place) {
        let Some(storage) = self.storage_mut(place) else { return };
        let (said, had_any) = (storage.stop_comparing(), storage.lose());
        self.rubbish.said.extend(said);
        if had_any {
            self.losing.insert(place);
        }
    }

    /// A report of all that a storage has was compared to its end.
    pub(super) fn end_comparing(&mut self, place: Place) {
        let Some(storage) = self.storage_mut(place) else { return };
        storage.has_reported = true;
        let said = storage.stop_comparing();
        self.rubbish.said.extend(said);
    }

    /// Whether something is gone that was not taken from its blocks yet.
    pub(super) fn is_losing(&self) -> bool {
        !self.losing.is_empty()
    }

    /// Whether what a storage had of a block is gone with all that it had.
    pub(super) fn is_gone(&self, place: Place, block: BlockId) -> bool {
        self.storage_of(place).is_some_and(|storage| storage.gone.iter().any(|gone| gone.contains(&block)))
    }

    /// A replica of a storage is there again, or nobody wants to know of it any more. Whether it was gone.
    pub(super) fn is_not_gone(&mut self, place: Place, block: BlockId) -> bool {
        self.storage_mut(place).is_some_and(|storage| storage.is_not_gone(block))
    }

    /// One of the replicas that are gone.
    pub(super) fn take_gone(&mut self) -> Option<(Place, BlockId)> {
        while let Some(place) = self.losing.first().copied() {
            if let Some(block) = self.storage_mut(place).and_then(Storage::take_gone) {
                return Some((place, block));
            }
            self.losing.remove(&place);
        }
        None
    }

    /// One of what nobody asks for any more goes. Whether there was any.
    pub(super) fn drop_rubbish(&mut self) -> bool {
        let Rubbish { removals, told, said } = &mut self.rubbish;
        drop_one(removals, BTreeMap::pop_first)
            || drop_one(told, BTreeMap::pop_first)
            || drop_one(said, BTreeSet::pop_first)
    }

    /// Something is said of a replica that is no report of all.
    pub(super) fn is_said(&mut self, place: Place, block: BlockId) {
        if let Some(storage) = self.storage_mut(place).filter(|storage| storage.is_comparing) {
            storage.said_since.insert(block);
        }
    }

    /// The number of a storage, which may be new. None if there are too many.
    pub(super) fn storage(&mut self, holder: Holder, id: &str, kind: i32) -> Option<u16> {
        let node = self.get_mut(holder)?;
        let at = node.storages.iter().position(|storage| storage.figures.id == id).unwrap_or(node.storages.len());
        let number = u16::try_from(at).ok().filter(|_| at < STORAGES_MAX && id.len() <= NAME_MAX)?;
        if at == node.storages.len() {
            let figures = StorageFigures { id: id.to_owned(), kind, ..StorageFigures::default() };
            node.storages.push(Storage { figures, ..Storage::default() });
        }
        Some(number)
    }

    /// The name of a storage, and its kind.
    #[must_use]
    pub fn storage_name(&self, place: Place) -> Option<(&str, i32)> {
        let storage = self.get(place.holder)?.storages.get(usize::from(place.storage))?;
        Some((&storage.figures.id, storage.figures.kind))
    }

    /// The storage of a data node of a name; the first if it has none of that name.
    #[must_use]
    pub fn place(&self, uuid: &str, storage: &str) -> Option<Place> {
        let holder = self.find(uuid)?;
        let storages = &self.get(holder)?.storages;
        let at = storages.iter().position(|other| other.figures.id == storage).unwrap_or(0);
        Some(Place { holder, storage: u16::try_from(at).ok()? })
    }

    /// Under what number a data node may report all its replicas; 0 if too many do.
    pub(super) fn lease(&mut self, holder: Holder) -> u64 {
        let now = self.now;
        let is_open = |node: &Node| node.lease.is_some_and(|(_, since)| now.since(since) < REPORT_TIME);
        if let Some((number, _)) = self.get(holder).filter(|node| is_open(node)).and_then(|node| node.lease) {
            return number;
        }
        if self.nodes.iter().filter(|node| is_open(node)).count() >= REPORTS_MAX {
            return 0;
        }
        self.leases += 1;
        let number = self.leases;
        if let Some(node) = self.get_mut(holder) {
            node.lease = Some((number, now));
        }
        number
    }

    /// Whether what comes of a data node over a connection was said before it registered: by a process of it that has ended.
    #[must_use]
    pub fn is_late(&self, holder: Holder, connection: u64) -> bool {
        self.get(holder).is_some_and(|node| connection < node.registration.connection)
    }

    /// How often a data node has registered, or was dead.
    #[must_use]
    pub fn registered(&self, holder: Holder) -> u64 {
        self.get(holder).map_or(0, |node| node.registered)
    }

    /// What a live data node of a name said of itself.
    #[must_use]
    pub fn registration(&self, uuid: &str) -> Option<(&Registration, Liveness)> {
        let holder = self.find(uuid)?;
        Some((&self.get(holder)?.registration, self.liveness(holder)))
    }

    /// Whether a data node may report under a number. 0 is what one says that was told to report by hand.
    #[must_use]
    pub fn may_report(&self, holder: Holder, number: u64) -> bool {
        let lease = self.get(holder).and_then(|node| node.lease);
        (number == 0 && lease.is_none())
            || lease.is_some_and(|(own, since)| own == number && self.now.since(since) < REPORT_TIME)
    }

    /// A data node has reported all replicas of its storages. Those of which it said nothing.
    pub(super) fn reported(&mut self, holder: Holder) -> Vec<Place> {
        let Some(node) = self.get_mut(holder) else { return Vec::new() };
        (node.lease, node.has_reported) = (None, true);
        let silent = node.storages.iter_mut().zip(0..).filter(|(storage, _)| !storage.has_reported);
        let silent = silent.map(|(storage, number)| {
            storage.has_reported = true;
            Place { holder, storage: number }
        });
        let silent = silent.collect();
        let uuid = node.registration.uuid.clone();
        self.awaited.remove(&uuid);
        self.lost.remove(&uuid);
        silent
    }

    /// These were there before the process began; this was the newest block then.
    pub fn await_all(&mut self, names: impl IntoIterator<Item = String>, newest: BlockId) {
        self.newest = newest;
        self.awaited.extend(names);
        self.had_others |= !self.awaited.is_empty();
    }

    /// Those of an earlier process that have not reported yet.
    #[must_use]
    pub const fn awaited(&self) -> &BTreeSet<String> {
        &self.awaited
    }

    /// There were others once.
    pub const fn had_others(&mut self) {
        self.had_others = true;
    }

    /// This one was there once, and had not come back when an earlier process ended; no block is there that is newer than this one.
    pub fn lose(&mut self, name: String, newest: BlockId) {
        self.lost.insert(name, newest);
        self.had_others = true;
    }

    /// Those that were there once and are not, and are not waited for: they may have what nobody else has, of blocks up to these.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<String, BlockId> {
        let dead = self.nodes.iter().filter(|node| node.is_dead);
        let dead = dead.map(|node| (node.registration.uuid.clone(), node.lost_at));
        self.lost.clone().into_iter().chain(dead).collect()
    }

    /// Whether somebody may have a replica of a block who has not said so: who is dead, or lost, or has not reported yet.
    pub(super) fn is_anybody_unheard(&self, block: BlockId) -> bool {
        let is_unheard = |node: &Node| if node.is_dead { block <= node.lost_at } else { !node.has_reported };
        !self.awaited.is_empty()
            || self.lost.values().any(|newest| block <= *newest)
            || self.nodes.iter().any(is_unheard)
    }

    /// Whether all blocks are here alone: there never was anybody else.
    #[must_use]
    pub const fn are_alone(&self) -> bool {
        !self.had_others
    }

    /// Nobody is waited for any more.
    pub(super) fn await_nobody(&mut self) {
        let newest = self.newest;
        self.lost.extend(std::mem::take(&mut self.awaited).into_iter().map(|name| (name, newest)));
    }

    /// Whether a data node is there.
    #[must_use]
    pub fn liveness(&self, holder: Holder) -> Liveness {
        match self.get(holder) {
            None if holder == Holder::HERE => Liveness::Live,
            Some(node) if !node.is_dead => {
                if self.now.since(node.heard) > self.silence.stale {
                    Liveness::Stale
                } else {
                    Liveness::Live
                }
            }
            _ => Liveness::Dead,
        }
    }

    /// Whether a data node's replicas count.
    pub(super) fn counts(&self, holder: Holder) -> bool {
        holder == Holder::HERE || self.get(holder).is_some_and(|node| !node.is_dead)
    }

    /// Whether it is known what a data node has.
    pub(super) fn is_sure(&self, holder: Holder) -> bool {
        holder == Holder::HERE || self.get(holder).is_some_and(Node::is_sure)
    }

    /// Whether a replica of a data node is to be removed.
    pub(super) fn is_leaving(&self, holder: Holder, block: BlockId) -> bool {
        self.get(holder).is_some_and(|node| node.removals.contains_key(&block))
    }

    /// Those that have been silent for too long since this was asked last, which are dead from now on. This is the newest block.
    pub(super) fn bury(&mut self, newest: BlockId) -> Vec<Holder> {
        let (dead, now) = (self.silence.dead, self.now);
        let rubbish = &mut self.rubbish.removals;
        let gone = self.nodes.iter_mut().zip(1..).filter(|(node, _)| !node.is_dead && now.since(node.heard) > dead);
        let gone = gone.map(|(node, number)| {
            (node.is_dead, node.has_reported, node.lost_at) = (true, false, newest);
            node.registered += 1;
            node.lease = None;
            rubbish.push(std::mem::take(&mut node.removals));
            node.excess = 0;
            node.copies.clear();
            Holder(number)
        });
        gone.collect()
    }

    /// Where so many bytes of a block may be written, on other data nodes than these: the one that has the least to do first, and each in
    /// its turn among those that have as much.
    pub(super) fn choose(
        &self,
        (block, bytes): (BlockId, u64),
        count: usize,
        not: impl Fn(Holder) -> bool,
    ) -> Vec<Place> {
        let fits = |holder: &Holder| {
            self.liveness(*holder) == Liveness::Live
                && self.get(*holder).is_some_and(|node| node.remaining() >= bytes)
                && !not(*holder)
        };
        let mut found: Vec<Holder> = self.holders().filter(fits).collect();
        if !found.is_empty() {
            let turn = block.0 % found.len() as u64;
            found.rotate_left(usize::try_from(turn).unwrap_or(0));
        }
        found.sort_by_key(|holder| {
            self.get(*holder).map_or(0, |node| node.load.saturating_add(node.copies.len() as u32))
        });
        let place = |holder| Some(Place { holder, storage: self.get(holder)?.roomiest()? });
        found.into_iter().filter_map(place).take(count).collect()
    }

    /// All data nodes, as others see them.
    #[must_use]
    pub fn shown(&self) -> Vec<NodeShown> {
        let shown = self.holders().zip(&self.nodes).map(|(holder, node)| NodeShown {
            holder,
            registration: node.registration.clone(),
            storages: node.storages.iter().map(|storage| storage.figures.clone()).collect(),
            liveness: self.liveness(holder),
            silent: self.now.since(node.heard),
            blocks: node.storages.iter().map(|storage| storage.blocks.len()).sum(),
            failed_disks: node.failed_disks,
            load: node.load,
        });
        shown.collect()
    }
}
