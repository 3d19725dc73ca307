//! A transaction manager as bytes: another process takes it over and decides as this one would have.
//!
//! One byte of version, then postcard. Numbers of transactions, commits and holders stay what they are, so that savepoints, views
//! and sessions that name them stay right. What is derived is not written: snapshots in use (from transactions and views), who waits
//! (from queues), parties (from transactions). What was [frozen](Transactions::freeze) belongs to a flush of this process and stays
//! behind.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Holder, Transactions};
use crate::{
    Change, Csn, Event, ImageError, Isolation, NotDrained, RowLock, TxnId, View,
    fault::Rules,
    history::{Record, Written},
    locks::LockedRow,
    reads::ReadSet,
    row::{Key, Row},
    txn::{ALL_WRITES, Held, Txn},
    versions::{RowVersions, Versions},
    watermark::Watermark,
    writes::WriteSet,
};

/// The version of images that is written.
pub const IMAGE_VERSION: u8 = 1;

/// Numbers above this one come from no manager: the rest is room for those to come.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Keys that a commit has written, with their values; `None` where it deleted.
pub type CommittedWrites<'a, V> = Vec<(&'a [u8], Option<&'a V>)>;

#[derive(Debug, Serialize, Deserialize)]
struct Image<V> {
    begun: u64,
    last: Csn,
    recovered: Csn,
    rows: Vec<RowVersions<V>>,
    crowded: Vec<(Csn, u64)>,
    history: Vec<RecordImage>,
    holders: Vec<HolderImage>,
    txns: Vec<TxnImage<V>>,
    locks: Vec<LockedRow>,
    events: Vec<Event>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordImage {
    csn: Csn,
    written: Vec<(Key, Change)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct HolderImage {
    id: TxnId,
    held: Vec<(Key, RowLock)>,
    unsettled: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TxnImage<V> {
    id: TxnId,
    isolation: Isolation,
    snapshot: Option<Csn>,
    reads: ReadSet,
    writes: Vec<(Key, Option<V>, Change)>,
    mark: u64,
    locks: Vec<Held>,
    holder: Option<TxnId>,
    /// `None`: every write.
    sees: Option<u64>,
    views: Vec<View>,
    compared: Csn,
    reply_after: Csn,
}

impl<V: Serialize> Transactions<V> {
    /// Writes everything down that decides what happens later: transactions with what they read, wrote and locked, who waits in
    /// which order, versions, and the commits that others are still to be validated against. Events that nobody has taken are among
    /// it. Nothing changes here, so that a move that is given up goes on where it was.
    ///
    /// # Errors
    /// [`ImageError::NotDrained`] while a commit has a number and is not published and durable: it would be in neither place.
    /// [`ImageError::Unrepresentable`] only for values that postcard has no form for.
    pub fn export(&self) -> Result<Vec<u8>, ImageError> {
        self.write_image(true)
    }

    /// As [`export`](Self::export), without rows: whoever takes over has the [storage below](Seen::Below) and [replays](Self::replay) what
    /// was [committed since](Self::committed_since).
    ///
    /// # Errors
    /// As [`export`](Self::export).
    pub fn export_without_rows(&self) -> Result<Vec<u8>, ImageError> {
        self.write_image(false)
    }

    /// What commits later than `csn` have written, as far as anybody can see it yet: of each commit its keys with their values.
    pub fn committed_since(&self, csn: Csn) -> BTreeMap<Csn, CommittedWrites<'_, V>> {
        let mut commits = BTreeMap::<Csn, CommittedWrites<'_, V>>::new();
        for (key, csn, value) in self.versions.since(csn) {
            commits.entry(csn).or_default().push((key, value));
        }
        commits
    }

    fn write_image(&self, with_rows: bool) -> Result<Vec<u8>, ImageError> {
        let (last, told) = (self.published.last(), self.published.reached().min(self.durable.reached()));
        if told < last || !self.in_flight.is_empty() {
            return Err(NotDrained { last, told }.into());
        }
        let mut holders: Vec<HolderImage> = self.holders.iter().map(|(id, holder)| holder.image(*id)).collect();
        holders.sort_unstable_by_key(|holder| holder.id);
        let mut txns: Vec<TxnImage<&V>> = self.txns.iter().map(|(id, txn)| txn_image(*id, txn)).collect();
        txns.sort_unstable_by_key(|txn| txn.id);
        let image = Image {
            begun: self.begun,
            last,
            recovered: self.recovered,
            rows: if with_rows { self.versions.image() } else { Vec::new() },
            crowded: if with_rows { self.versions.crowded() } else { Vec::new() },
            history: self.history.iter().map(record_image).collect(),
            holders,
            txns,
            locks: self.locks.image(),
            events: self.events.clone(),
        };
        postcard::to_extend(&image, vec![IMAGE_VERSION]).map_err(|error| ImageError::Unrepresentable(error.to_string()))
    }
}

impl<V: DeserializeOwned> Transactions<V> {
    /// Takes over what another process [exported](Self::export). Everything in it counts as published and durable.
    ///
    /// # Errors
    /// [`ImageError::Version`], [`ImageError::Malformed`], [`ImageError::Inconsistent`]. Bytes that nobody exported are one of them,
    /// as far as they could do harm here.
    pub fn import(bytes: &[u8]) -> Result<Self, ImageError> {
        let malformed = |reason| ImageError::Malformed { came: bytes.len(), reason };
        let (&version, image) = bytes.split_first().ok_or_else(|| malformed("no version".to_owned()))?;
        if version != IMAGE_VERSION {
            return Err(ImageError::Version { found: version });
        }
        match postcard::take_from_bytes::<Image<V>>(image) {
            Ok((image, [])) => Self::restored(image),
            Ok((_, rest)) => Err(malformed(format!("{} bytes too many", rest.len()))),
            Err(error) => Err(malformed(error.to_string())),
        }
    }

    fn restored(image: Image<V>) -> Result<Self, ImageError> {
        image.check()?;
        let rules = Rules::default();
        let mut restored = Self::with_rules(image.recovered, rules);
        restored.begun = image.begun;
        restored.published = Watermark::at(image.last);
        restored.durable = Watermark::at(image.last);
        restored.versions = Versions::restored(image.rows, image.crowded, rules)
            .ok_or(ImageError::Inconsistent("keys or versions are not in order"))?;
        for record in image.history {
            restored.history.push(record.into());
        }
        for HolderImage { id, held, unsettled } in image.holders {
            restored.holders.insert(id, Holder::restored(held, unsettled));
        }
        let mut snapshots: Vec<Csn> = Vec::new();
        for txn in image.txns {
            snapshots.extend(txn.snapshot.into_iter().chain(txn.views.iter().map(|view| view.snapshot)));
            if let Some(holder) = txn.holder {
                restored.locks.join(txn.id, holder);
            }
            restored.txns.insert(txn.id, Box::new(txn.into()));
        }
        snapshots.sort_unstable();
        snapshots.into_iter().for_each(|snapshot| restored.snapshots.take(snapshot));
        for locked in image.locks {
            restored.restore_row(locked)?;
        }
        restored.events = image.events;
        Ok(restored)
    }

    /// Puts a row's queue back, and those to sleep who wait in it.
    fn restore_row(&mut self, locked: LockedRow) -> Result<(), ImageError> {
        for (waiter, _) in &locked.waiters {
            let id = self.locks.transaction(*waiter);
            let txn = self.txns.get_mut(&id).ok_or(ImageError::Inconsistent("nobody waits for a lock"))?;
            txn.waiting = true;
        }
        if self.locks.restore(locked) { Ok(()) } else { Err(ImageError::Inconsistent("somebody waits twice")) }
    }
}

impl<V> Image<V> {
    /// Whether its parts agree, as far as anything here relies on it.
    fn check(&self) -> Result<(), ImageError> {
        let known: BTreeSet<TxnId> =
            self.txns.iter().map(|txn| txn.id).chain(self.holders.iter().map(|holder| holder.id)).collect();
        let holders: BTreeSet<TxnId> = self.holders.iter().map(|holder| holder.id).collect();
        let employers: BTreeSet<TxnId> = self.txns.iter().filter_map(|txn| txn.holder).collect();
        let employed = self.txns.iter().filter(|txn| txn.holder.is_some()).count();
        let held: BTreeSet<(TxnId, Row)> =
            self.locks.iter().flat_map(|locked| locked.holders.iter().map(|(id, _)| (*id, locked.row))).collect();
        let holders_of_rows: usize = self.locks.iter().map(|locked| locked.holders.len()).sum();
        let mut named = self.locks.iter().flat_map(|locked| locked.holders.iter().chain(&locked.waiters));
        let mut versions = self.rows.iter().flat_map(|row| &row.versions);
        let rules = [
            (self.last.0 <= NUMBER_MAX && self.begun <= NUMBER_MAX, "a number is out of bounds"),
            (self.recovered <= self.last, "more was recovered than was committed"),
            (known.len() == self.txns.len() + self.holders.len(), "two transactions have one number"),
            (known.iter().all(|id| id.0 <= self.begun), "a transaction was never begun"),
            (
                employers.is_subset(&holders) && employers.len() == employed,
                "two transactions run for one holder, or one for nobody",
            ),
            (versions.all(|(csn, _)| *csn <= self.last), "a version is newer than the last commit"),
            (self.history.is_sorted_by(|one, next| one.csn < next.csn), "commits are not in order"),
            (self.history.iter().all(|record| record.csn <= self.last), "a commit is newer than the last one"),
            (self.locks.is_sorted_by(|one, next| one.row < next.row), "locked rows are not in order"),
            (held.len() == holders_of_rows, "somebody holds a row twice"),
            (named.all(|(id, _)| known.contains(id)), "a lock belongs to nobody"),
            (self.txns.iter().all(|txn| txn.agrees(self.last, &held)), "a transaction has more than it can"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err(ImageError::Inconsistent(broken)),
            None => Ok(()),
        }
    }
}

impl<V> TxnImage<V> {
    fn agrees(&self, last: Csn, held: &BTreeSet<(TxnId, Row)>) -> bool {
        let mut snapshots = self.snapshot.iter().chain(self.views.iter().map(|view| &view.snapshot));
        snapshots.all(|snapshot| *snapshot <= last)
            && self.reply_after <= last
            && self.compared <= last
            && self.mark <= self.writes.len() as u64
            && u32::try_from(self.writes.len()).is_ok()
            && self.locks.iter().all(|lock| held.contains(&(self.id, lock.row)))
    }
}

fn txn_image<V>(id: TxnId, txn: &Txn<V>) -> TxnImage<&V> {
    TxnImage {
        id,
        isolation: txn.isolation,
        snapshot: txn.snapshot,
        reads: txn.reads.clone(),
        writes: txn
            .writes
            .written()
            .map(|write| (Key::clone(&write.key), write.value.as_ref(), write.change))
            .collect(),
        mark: txn.writes.mark() as u64,
        locks: txn.locks.clone(),
        holder: txn.holder,
        sees: (txn.sees != ALL_WRITES).then_some(txn.sees as u64),
        views: txn.views.clone(),
        compared: txn.compared,
        reply_after: txn.reply_after.get(),
    }
}

impl<V> From<TxnImage<V>> for Txn<V> {
    fn from(image: TxnImage<V>) -> Self {
        Self {
            isolation: image.isolation,
            snapshot: image.snapshot,
            waiting: false,
            reads: image.reads,
            writes: WriteSet::restored(image.writes.into_iter(), image.mark as usize),
            locks: image.locks,
            holder: image.holder,
            sees: image.sees.map_or(ALL_WRITES, |sees| sees as usize),
            views: image.views,
            compared: image.compared,
            reply_after: Cell::new(image.reply_after),
        }
    }
}

fn record_image(record: &Record) -> RecordImage {
    let written = record.written.iter().map(|written| (Key::clone(&written.key), written.change)).collect();
    RecordImage { csn: record.csn, written }
}

impl From<RecordImage> for Record {
    fn from(image: RecordImage) -> Self {
        let written = |(key, change): (Key, Change)| Written { row: Row::of(&key), key, change };
        Self { csn: image.csn, written: image.written.into_iter().map(written).collect() }
    }
}

impl Holder {
    fn image(&self, id: TxnId) -> HolderImage {
        let mut held: Vec<(Key, RowLock)> = self.held.values().flatten().cloned().collect();
        held.sort_unstable();
        HolderImage { id, held, unsettled: self.unsettled.clone() }
    }

    fn restored(held: Vec<(Key, RowLock)>, unsettled: Vec<Row>) -> Self {
        let mut holder = Self { unsettled, ..Self::default() };
        for (key, mode) in held {
            holder.held.entry(Row::of(&key)).or_default().push((key, mode));
        }
        holder
    }
}
