//! The invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use savanna_epoch::{NodeId, OwnerEpoch, ShardId};
use savanna_ownership::event::{Entry, Event};
use savanna_ownership::logs::{self, LogRecord, LogState};
use savanna_ownership::{Exclusive, History, Incarnation, Ownership, RootValue, ShardRecord, Tenure};

use super::process::Process;

/// A broken promise, and the true time (ns) at which it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    TwoServers {
        at: u64,
        shard: ShardId,
        granule: u8,
        first: (Tenure, OwnerEpoch),
        second: (Tenure, OwnerEpoch),
    },
    TwoHolders {
        at: u64,
        name: NodeId,
        first: Incarnation,
        second: Incarnation,
    },
    EpochReused {
        at: u64,
        shard: ShardId,
        epoch: OwnerEpoch,
        first: Tenure,
        second: Tenure,
    },
    HistoryEpoch {
        at: u64,
        shard: ShardId,
        before: Box<ShardRecord>,
        after: Box<ShardRecord>,
    },
    CommitsLost {
        at: u64,
        shard: ShardId,
        before: Box<ShardRecord>,
        after: Box<ShardRecord>,
    },
    /// Who lives handed a shard over, and its commits are in the log to which it goes on appending.
    LeftBehind {
        at: u64,
        shard: ShardId,
        record: Box<ShardRecord>,
    },
    /// Two serve a shard, and its commits are said to be in one log.
    TwoLogs {
        at: u64,
        shard: ShardId,
        record: Box<ShardRecord>,
    },
    /// A log that had ended or was forgotten goes on, or is forgotten although a shard's commits are in it.
    LogChanged {
        at: u64,
        key: String,
        before: Box<Option<LogRecord>>,
        after: Box<Option<LogRecord>>,
    },
    IdsTwice {
        at: u64,
        first: Range<u64>,
        second: Range<u64>,
    },
}

#[derive(Default)]
pub(super) struct Checker {
    /// Who served a shard under which epoch, ever.
    served: BTreeMap<(ShardId, OwnerEpoch), Tenure>,
    /// Id ranges that were told to a process, by start.
    ids: BTreeMap<u64, u64>,
    /// Shards by the durable history.
    durable: BTreeMap<ShardId, ShardRecord>,
    /// Tenures that are not over by the durable history.
    living: BTreeSet<Tenure>,
    /// Logs by the durable history; none of those that were forgotten.
    logs: BTreeMap<String, Option<LogRecord>>,
}

impl Checker {
    /// Checks everything that holds at one instant.
    pub(super) fn instant(&mut self, at: u64, processes: &[Process]) -> Result<(), Violation> {
        let mut servers: BTreeMap<(&ShardId, u8), (&Tenure, OwnerEpoch)> = BTreeMap::new();
        let mut holders: BTreeMap<&NodeId, Incarnation> = BTreeMap::new();
        for process in processes.iter().filter(|process| process.serving(at)) {
            let Some(tenure) = process.tenure() else {
                continue;
            };
            if let Some(first) = holders.insert(&tenure.node, process.incarnation) {
                let name = tenure.node.clone();
                return Err(Violation::TwoHolders { at, name, first, second: process.incarnation });
            }
            for (shard, granule, epoch) in process.served_granules() {
                if let Some((first, first_epoch)) = servers.insert((shard, granule), (tenure, epoch)) {
                    return Err(Violation::TwoServers {
                        at,
                        shard: shard.clone(),
                        granule,
                        first: (first.clone(), first_epoch),
                        second: (tenure.clone(), epoch),
                    });
                }
                let earlier = self.served.entry((shard.clone(), epoch)).or_insert_with(|| tenure.clone());
                if earlier != tenure {
                    let (first, second) = (earlier.clone(), tenure.clone());
                    return Err(Violation::EpochReused { at, shard: shard.clone(), epoch, first, second });
                }
            }
        }
        Ok(())
    }

    /// A process was told that these ids are its own.
    pub(super) fn ids_told(&mut self, at: u64, ids: &Range<u64>) -> Result<(), Violation> {
        let before = self.ids.range(..ids.end).next_back();
        if let Some((&start, &end)) = before
            && end > ids.start
        {
            return Err(Violation::IdsTwice { at, first: start..end, second: ids.clone() });
        }
        self.ids.insert(ids.start, ids.end);
        Ok(())
    }

    /// An entry became durable; they come in order.
    pub(super) fn durable(&mut self, at: u64, entry: &Entry) -> Result<(), Violation> {
        match &entry.event {
            Event::ShardChanged { shard, record } => self.changed(at, shard, record),
            Event::BatchApplied { shards, roots } => {
                shards.iter().try_for_each(|(shard, record)| self.changed(at, shard, record))?;
                roots.iter().try_for_each(|(key, value)| self.log_changed(at, key, value.as_ref()))
            }
            Event::RootChanged { key, value } => self.log_changed(at, key, value.as_ref()),
            Event::NodeGranted { node, .. } => {
                self.living.insert(node.tenure.clone());
                Ok(())
            }
            Event::NodeEnded { tenure, .. } => {
                self.living.remove(tenure);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn changed(&mut self, at: u64, shard: &ShardId, record: &ShardRecord) -> Result<(), Violation> {
        let Some(before) = self.durable.insert(shard.clone(), record.clone()) else {
            return Ok(());
        };
        let granted = match &record.ownership {
            Ownership::Exclusive(state) => before.owner() != Some(state.owner()),
            Ownership::Replicated { .. } | Ownership::Retired => false,
        };
        let is_dual = matches!(record.ownership, Ownership::Exclusive(Exclusive::Dual { .. }));
        if is_dual && record.history.is_some() {
            return Err(Violation::TwoLogs { at, shard: shard.clone(), record: Box::new(record.clone()) });
        }
        let is_left_behind = |history: &History| {
            let log = self.logs.get(&logs::key(&history.log)).and_then(Option::as_ref);
            log.is_some_and(|log| {
                let is_former = before.owner() == Some(&log.holder) && self.living.contains(&log.holder);
                log.state == LogState::Open && is_former
            })
        };
        if granted && record.history == before.history && record.history.as_ref().is_some_and(is_left_behind) {
            return Err(Violation::LeftBehind { at, shard: shard.clone(), record: Box::new(record.clone()) });
        }
        let (before, after) = (Box::new(before), Box::new(record.clone()));
        if record.epoch < before.epoch || (granted && record.epoch == before.epoch) {
            return Err(Violation::HistoryEpoch { at, shard: shard.clone(), before, after });
        }
        // The commits of a shard are where they were, or where its owner is, unless its owner, who had them all, let it go.
        let holds = |history: &History, owner: &Tenure| {
            let log = self.logs.get(&logs::key(&history.log)).and_then(Option::as_ref);
            log.is_some_and(|log| log.state == LogState::Open && log.holder == *owner)
        };
        let is_at_the_owner = match (&record.history, record.owner()) {
            (Some(history), Some(owner)) => history.epoch == record.epoch && holds(history, owner),
            (None, None) => match (&before.history, before.owner()) {
                (Some(history), Some(owner)) => holds(history, owner),
                (history, _) => history.is_none(),
            },
            _ => false,
        };
        let is_planned = matches!(before.ownership, Ownership::Exclusive(Exclusive::Moving { .. }));
        if record.history != before.history && !(is_at_the_owner && (!granted || is_planned)) {
            return Err(Violation::CommitsLost { at, shard: shard.clone(), before, after });
        }
        Ok(())
    }

    fn log_changed(&mut self, at: u64, key: &str, value: Option<&RootValue>) -> Result<(), Violation> {
        let after: Option<LogRecord> = value.map(|value| serde_json::from_slice(&value.0).expect("a log's"));
        let before = self.logs.insert(key.to_owned(), after.clone());
        let is_named = || {
            let mut histories = self.durable.values().filter_map(|record| record.history.as_ref());
            histories.any(|history| logs::key(&history.log) == key)
        };
        let is_allowed = match (&before, &after) {
            (None, Some(log)) => log.state == LogState::Open,
            (Some(Some(before)), Some(_)) => before.state == LogState::Open,
            (Some(Some(before)), None) => before.state == LogState::Sealed && !is_named(),
            (None | Some(None), None) | (Some(None), Some(_)) => false,
        };
        if is_allowed {
            return Ok(());
        }
        let (before, after) = (Box::new(before.flatten()), Box::new(after));
        Err(Violation::LogChanged { at, key: key.to_owned(), before, after })
    }
}
