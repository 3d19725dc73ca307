//! What was appended and told, and whether what is read back agrees with it.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use savanna_epoch::NodeEpoch;
use savanna_journal::{Disk, Draft, Journal, JournalError, Lsn, Options, Record, sim::SimDisk};

/// Small segments, so that a short script rolls several times.
pub(crate) const SEGMENT_BYTES: usize = 4096;

pub(crate) fn on(disk: &Arc<SimDisk>) -> Options {
    let disk: Arc<dyn Disk> = Arc::clone(disk) as Arc<dyn Disk>;
    Options::disk(disk).segment_bytes(SEGMENT_BYTES)
}

/// Opens a journal and collects what it replays.
pub(crate) fn open(options: Options, epoch: u64) -> Result<(Journal, Vec<Record>), JournalError> {
    let mut records = Vec::new();
    let journal = Journal::open(options, NodeEpoch(epoch), &mut |record| {
        records.push(record);
        Ok::<(), Infallible>(())
    })?;
    Ok((journal, records))
}

/// Waits on the calling thread.
pub(crate) fn wait(journal: &Journal, lsn: Lsn) -> Result<(), JournalError> {
    futures::executor::block_on(journal.wait_durable(lsn))
}

/// Appends one record with this payload.
pub(crate) fn append(journal: &Journal, payload: &[u8]) -> Result<Lsn, JournalError> {
    journal.append(&[Draft { shard: 1, kind: 1, payload }])
}

/// Groups that were appended, by number, and which of them somebody was told about.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The records that each group has.
    groups: BTreeMap<u64, usize>,
    told: BTreeMap<u64, Lsn>,
}

impl History {
    /// The payloads of the next group. Each says which group it is of and which place it has there.
    pub(crate) fn next_group(&mut self, records: usize, size: usize) -> (u64, Vec<Vec<u8>>) {
        let group = self.groups.len() as u64 + 1;
        self.groups.insert(group, records);
        let payloads = (0..records).map(|at| payload(group, at, size)).collect();
        (group, payloads)
    }

    /// Somebody was told that this group is durable.
    pub(crate) fn tell(&mut self, group: u64, last: Lsn) {
        self.told.insert(group, last);
    }

    /// The number of the group that was appended last.
    pub(crate) fn appended(&self) -> u64 {
        self.groups.len() as u64
    }

    /// How many groups somebody was told about.
    pub(crate) fn told(&self) -> usize {
        self.told.len()
    }

    /// Checks what was read back: groups are whole, unchanged and in order, LSNs have no gap, and whatever was told is
    /// there at the LSN that was told, unless it was before `from`.
    pub(crate) fn check(&self, records: &[Record], from: Lsn) -> Result<(), String> {
        let mut rest = records;
        let mut before = 0;
        let mut last_of = BTreeMap::new();
        if records.first().is_some_and(|first| first.lsn > from) {
            return Err(format!("the log begins at LSN {} instead of {from}", records[0].lsn));
        }
        while let Some(first) = rest.first() {
            let group = group_of(first);
            let len = *self
                .groups
                .get(&group)
                .ok_or_else(|| format!("LSN {} is of group {group}, which nobody appended", first.lsn))?;
            if group <= before {
                return Err(format!("group {group} comes after group {before}"));
            }
            if rest.len() < len {
                return Err(format!("group {group} has {} of {len} records", rest.len()));
            }
            for (at, record) in rest[..len].iter().enumerate() {
                if record.payload != payload(group, at, record.payload.len()) {
                    return Err(format!("LSN {} is not record {at} of group {group}", record.lsn));
                }
                if record.lsn.0 != first.lsn.0 + at as u64 {
                    return Err(format!("LSN {} comes after {}", record.lsn, first.lsn));
                }
            }
            last_of.insert(group, rest[len - 1].lsn);
            before = group;
            rest = &rest[len..];
        }
        if let Some(pair) = records.windows(2).find(|pair| pair[1].lsn != pair[0].lsn.next()) {
            return Err(format!("LSN {} follows {}", pair[1].lsn, pair[0].lsn));
        }
        match self.told.iter().find(|(group, lsn)| **lsn >= from && last_of.get(*group) != Some(*lsn)) {
            Some((group, lsn)) => {
                Err(format!("group {group} was told at LSN {lsn}, and is now at {:?}", last_of.get(group)))
            }
            None => Ok(()),
        }
    }
}

/// Drafts of payloads, of several shards.
pub(crate) fn drafts(payloads: &[Vec<u8>]) -> Vec<Draft<'_>> {
    payloads.iter().enumerate().map(|(at, payload)| Draft { shard: at as u64, kind: 3, payload }).collect()
}

fn payload(group: u64, at: usize, size: usize) -> Vec<u8> {
    let mut bytes = group.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(at as u64).to_le_bytes());
    while bytes.len() < size {
        bytes.push((group as usize * 31 + at * 7 + bytes.len()) as u8);
    }
    bytes
}

fn group_of(record: &Record) -> u64 {
    record.payload.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}
