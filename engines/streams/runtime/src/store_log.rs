//! The log of a query in an object store: who has the query, the records of its epochs, and the snapshot that counts.
//!
//! ```text
//!   1 claim (owner 1)   2 record e1   3 record e2   4 claim (owner 1, snapshot of e2)   5 record e3   6 claim (owner 6)   7 record e4
//!                                                                                        another process has the query
//! ```
//!
//! Entries are objects that are numbered without gaps, and each is created only if there is none of its number. So what an owner writes
//! next has the number behind the last entry that it knows: if another process has written since, the two meet in the store, and one
//! has it. Whoever takes the query over writes a claim behind the last entry; from then on whatever a former owner writes is refused,
//! however late it comes: its next number is that of a claim, and claims stay.
//!
//! [`StoreLog`] decides what is written and under which number, and does nothing else.

use std::collections::{BTreeMap, VecDeque};

use savanna_streams_api::ids::Epoch;
use serde::{Deserialize, Serialize};

use crate::driver::EpochRecord;
use crate::snapshot::Manifest;

/// So many claims of former owners stay where entries before them have gone.
const CLAIMS_MAX: usize = 256;

/// An entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A process has the query, or has it still and changes what counts.
    Claim(Box<Claim>),
    /// An epoch is recorded.
    Record {
        /// Who recorded it.
        owner: u64,
        /// Its record.
        record: EpochRecord,
    },
    /// The query was forgotten: what is here belongs to nobody.
    Ended {
        /// Who had it.
        owner: u64,
    },
}

/// Who has a query, and what counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The number of the first claim of this owner. That of a later owner is higher.
    pub owner: u64,
    /// The node that has it, through all of its processes.
    pub holder: String,
    /// A word that no other claim has: two who write under one number are told apart.
    pub token: String,
    /// Entries before this number count no more.
    pub first: u64,
    /// The last claims by which an owner began, in order.
    pub claims: Vec<u64>,
    /// The snapshot that counts.
    pub snapshot: Option<Manifest>,
    /// The query as its node has stored it.
    pub query: String,
}

/// What the entries of a log come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The number of the last entry; 0 if there is none.
    pub last: u64,
    /// The last claim, unless the query was forgotten.
    pub claim: Option<Claim>,
    /// The records that count, with their numbers.
    pub records: Vec<(u64, EpochRecord)>,
    /// Claims by which owners began, also of a query that was forgotten.
    claims: Vec<u64>,
}

impl Found {
    /// From the entries that are there, from the first that counts to the last; others may be among them.
    ///
    /// # Errors
    /// Something is missing: with its number.
    pub fn of(mut entries: BTreeMap<u64, Entry>) -> Result<Self, String> {
        let Some(last) = entries.keys().next_back().copied() else { return Ok(Self::default()) };
        let claim = entries.values().rev().find_map(|entry| match entry {
            Entry::Claim(claim) => Some(claim.clone()),
            Entry::Record { .. } | Entry::Ended { .. } => None,
        });
        if matches!(entries.get(&last), Some(Entry::Ended { .. })) {
            // What is left of it may be removed in any order.
            let claims = claim.map_or_else(Vec::new, |claim| claim.claims);
            return Ok(Self { last, claim: None, records: Vec::new(), claims });
        }
        let claim = claim.ok_or_else(|| format!("expected a claim among the entries up to {last}, got none"))?;
        if let Some(missing) = (claim.first..=last).find(|number| !entries.contains_key(number)) {
            return Err(format!("expected all entries from {} to {last}, but {missing} is not there", claim.first));
        }
        let (mut records, mut has_it) = (Vec::new(), None);
        for (number, entry) in entries.split_off(&claim.first) {
            match entry {
                Entry::Record { owner, .. } if has_it.is_some_and(|has_it| has_it != owner) => {
                    return Err(format!("entry {number} was written by owner {owner}, whom another one had shut out"));
                }
                Entry::Record { record, .. } => records.push((number, record)),
                Entry::Claim(claim) => has_it = Some(claim.owner),
                Entry::Ended { .. } => {}
            }
        }
        Ok(Self { last, records, claims: claim.claims.clone(), claim: Some(*claim) })
    }

    /// The claim by which a process takes the query over, and its number.
    #[must_use]
    pub fn claim(&self, holder: &str, token: &str, query: &str) -> (u64, Claim) {
        let number = self.last + 1;
        let former = self.claim.as_ref();
        let mut claims = self.claims.clone();
        claims.push(number);
        claims.drain(..claims.len().saturating_sub(CLAIMS_MAX));
        let claim = Claim {
            owner: number,
            holder: holder.to_owned(),
            token: token.to_owned(),
            first: former.map_or(number, |claim| claim.first),
            claims,
            snapshot: former.and_then(|claim| claim.snapshot.clone()),
            query: query.to_owned(),
        };
        (number, claim)
    }
}

/// The log of one owner, whose claim is there.
#[derive(Clone, Debug)]
pub struct StoreLog {
    claim: Claim,
    /// The number of the last entry that is known to be there.
    last: u64,
    /// Where the records are that count.
    places: VecDeque<(Epoch, u64)>,
}

impl StoreLog {
    /// Behind a claim, made of what was found, that is there under its number.
    #[must_use]
    pub fn new(found: &Found, number: u64, claim: Claim) -> Self {
        let places = found.records.iter().map(|(number, record)| (record.epoch, *number)).collect();
        Self { claim, last: number, places }
    }

    /// Who writes.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.claim.owner
    }

    /// The number of the next entry.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.last + 1
    }

    /// The snapshot that counts.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Manifest> {
        self.claim.snapshot.as_ref()
    }

    /// The entry that records an epoch.
    #[must_use]
    pub fn record(&self, record: &EpochRecord) -> Entry {
        Entry::Record { owner: self.claim.owner, record: record.clone() }
    }

    /// The entry by which a snapshot counts.
    #[must_use]
    pub fn switch(&self, manifest: &Manifest) -> Entry {
        Entry::Claim(Box::new(Claim { snapshot: Some(manifest.clone()), ..self.claim.clone() }))
    }

    /// The entry behind which records before this epoch count no more; none if there are none.
    #[must_use]
    pub fn forget_before(&self, epoch: Epoch) -> Option<Entry> {
        let first = self.places.iter().find(|(kept, _)| *kept >= epoch).map_or(self.next(), |(_, number)| *number);
        let goes = self.places.front().is_some_and(|(kept, _)| *kept < epoch);
        goes.then(|| Entry::Claim(Box::new(Claim { first, ..self.claim.clone() })))
    }

    /// The entry by which the query belongs to nobody.
    #[must_use]
    pub fn ended(&self) -> Entry {
        Entry::Ended { owner: self.claim.owner }
    }

    /// An entry is there, under the number that was the next one. Tells which entries before it are of no use any more.
    pub fn put(&mut self, entry: Entry) -> Vec<u64> {
        self.last += 1;
        match entry {
            Entry::Record { record, .. } => self.places.push_back((record.epoch, self.last)),
            Entry::Ended { .. } => {}
            Entry::Claim(claim) => {
                let before = std::mem::replace(&mut self.claim, *claim).first;
                let gone = self.places.partition_point(|(_, number)| *number < self.claim.first);
                self.places.drain(..gone);
                return (before..self.claim.first).filter(|number| !self.stays(*number)).collect();
            }
        }
        Vec::new()
    }

    /// Whether an entry of this number is needed by anybody, or was written behind what is known.
    #[must_use]
    pub fn stays(&self, number: u64) -> bool {
        number >= self.claim.first || self.claim.claims.binary_search(&number).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_model::time::EventTime;

    use super::*;

    fn record(epoch: u64) -> EpochRecord {
        EpochRecord {
            epoch: Epoch(epoch),
            processing_time: EventTime(0),
            sources: Vec::new(),
            committed: Epoch::ZERO,
            lookups: Vec::new(),
            layout: crate::driver::Layout::default(),
        }
    }

    /// A store of entries, each created once.
    #[derive(Default)]
    struct Entries(BTreeMap<u64, Entry>);

    impl Entries {
        fn create(&mut self, number: u64, entry: &Entry) -> bool {
            let is_new = !self.0.contains_key(&number);
            self.0.entry(number).or_insert_with(|| entry.clone());
            is_new
        }

        fn open(&mut self, holder: &str) -> (StoreLog, Vec<u64>) {
            let found = Found::of(self.0.clone()).unwrap();
            let (number, claim) = found.claim(holder, &format!("{holder}-{}", found.last), "the query");
            assert!(self.create(number, &Entry::Claim(Box::new(claim.clone()))));
            let log = StoreLog::new(&found, number, claim);
            self.0.retain(|number, _| log.stays(*number));
            (log, found.records.iter().map(|(_, record)| record.epoch.0).collect())
        }

        fn put(&mut self, log: &mut StoreLog, entry: Entry) -> bool {
            let is_there = self.create(log.next(), &entry);
            if is_there {
                log.put(entry).iter().for_each(|number| drop(self.0.remove(number)));
            }
            is_there
        }
    }

    #[test]
    fn what_was_recorded_is_there_for_the_next_owner_and_a_former_one_writes_no_more() {
        let mut store = Entries::default();
        let (mut first, none) = store.open("a");
        assert!(none.is_empty());
        for epoch in 1..=3 {
            let entry = first.record(&record(epoch));
            assert!(store.put(&mut first, entry));
        }
        let (mut second, records) = store.open("b");
        assert_eq!((records.as_slice(), second.owner() > first.owner()), ([1, 2, 3].as_slice(), true));
        let late = first.record(&record(4));
        assert!(!store.put(&mut first.clone(), late.clone()));
        // However much has been written, and has gone, since.
        for epoch in 4..=9 {
            let entry = second.record(&record(epoch));
            assert!(store.put(&mut second, entry));
        }
        let forget = second.forget_before(Epoch(8)).unwrap();
        assert!(store.put(&mut second, forget));
        assert!(second.forget_before(Epoch(8)).is_none());
        assert!(!store.put(&mut first, late));
        assert_eq!(store.open("a").1, [8, 9]);
    }

    #[test]
    fn entries_that_count_no_more_go_but_for_claims_of_owners() {
        let mut store = Entries::default();
        for owner in 0..300 {
            let (mut log, _) = store.open("a");
            let entry = log.record(&record(owner + 1));
            assert!(store.put(&mut log, entry));
            let forget = log.forget_before(Epoch(owner + 2)).unwrap();
            assert!(store.put(&mut log, forget));
        }
        let stay = CLAIMS_MAX + 1;
        assert!((stay..=stay + 2).contains(&store.0.len()), "{} entries", store.0.len());
    }

    #[test]
    fn a_log_that_has_lost_an_entry_is_refused_with_its_number() {
        let mut store = Entries::default();
        let (mut log, _) = store.open("a");
        for epoch in 1..=3 {
            let entry = log.record(&record(epoch));
            store.put(&mut log, entry);
        }
        let without = |number: u64| {
            let mut entries = store.0.clone();
            entries.remove(&number);
            Found::of(entries)
        };
        assert!(without(3).unwrap_err().contains("expected all entries from 1 to 4, but 3 is not there"));
        assert!(without(1).unwrap_err().contains("expected a claim"));
        // That the last one is gone is not seen here: the sink knows more then.
        assert_eq!(without(4).unwrap().records.len(), 2);
    }

    #[test]
    fn a_record_of_an_owner_that_was_shut_out_is_found_out() {
        let mut store = Entries::default();
        let (former, _) = store.open("a");
        let (later, _) = store.open("b");
        store.0.insert(later.next(), former.record(&record(1)));
        assert!(Found::of(store.0.clone()).unwrap_err().contains("was written by owner 1"));
    }

    #[test]
    fn what_has_ended_belongs_to_nobody() {
        let mut store = Entries::default();
        let (mut log, _) = store.open("a");
        let (recorded, ended) = (log.record(&record(1)), log.ended());
        assert!(store.put(&mut log, recorded) && store.put(&mut log, ended));
        assert_eq!(Found::of(store.0.clone()).unwrap().claim, None);
        // It is being removed.
        assert_eq!(Found::of(store.0.clone().split_off(&3)).unwrap().claim, None);
        assert!(store.open("b").1.is_empty());
    }
}
