//! What becomes of the logs and shards of nodes that are gone.
//!
//! | step | who | does | interrupted here |
//! |---|---|---|---|
//! | F1 | coordinator | ends the lease of X | the next one gives X a whole lease again |
//! | F2 | controller | [`Intent::SealRecord`]: the record of X's log says that it is sealed, unless X came back first | is proposed again |
//! | F3 | controller | [`Intent::SealLog`]: the log itself ends | is done again, by the controller or by who adopts |
//! | F4 | controller | places the shards | nothing is kept; placed anew |
//! | F5 | controller | [`Intent::Grant`]: new owners, in batches; the histories stay | the rest is still owned by who is gone |
//! | F6 | new owners | adopt: read the sealed log, write to their own, set the history, serve | another gets the shard, and reads the same log |
//! | F7 | controller | [`Intent::SealLog`], [`Intent::DeleteLog`], [`Intent::ForgetLog`], once no history names it | is done again |
//!
//! Deletions come last: what can be served is served first. A log is sealed before it is deleted, though nobody needs it: a holder that was
//! paused and wakes up meets the end of its log, and not a place where it may go on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use savanna_epoch::{LogId, NodeEpoch, NodeId, ShardId};
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState};
use savanna_ownership::{
    Batch, ClusterView, Exclusive, MAX_BATCH_RECORDS, Ownership, RootChange, ShardRecord, Tenure, Transition, Versioned,
};

use crate::drained;
use crate::load::Loads;
use crate::placement::Placement;

/// Grants in one batch: each names at most three nodes, and expects that one of them was not [drained](crate::drained); etcd compares all of that in one transaction.
pub const GRANTS_PER_BATCH: usize = MAX_BATCH_RECORDS * 2 / 5 - 1;

/// Something to do. Those of one log build on each other: when one fails, the later ones of that log are dropped, and the next decision, by a
/// later view, says what is still to do. Those of other logs go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Propose that a log is sealed.
    SealRecord {
        /// The log.
        log: LogId,
        /// What to propose.
        change: RootChange,
    },
    /// End a log whose record says that it is sealed. May be repeated.
    SealLog {
        /// The log.
        log: LogId,
        /// Whether a shard has commits in it. If none has, it may be that there is no log: its holder died before it began.
        is_needed: bool,
        /// Where it is.
        place: LogPlace,
        /// The epoch under which it is sealed.
        epoch: NodeEpoch,
    },
    /// Propose new owners.
    Grant {
        /// The log that their shards' histories name; none of shards without one.
        log: Option<LogId>,
        /// What to propose.
        batch: Batch,
    },
    /// Delete a log that no shard needs, if it is there; in an object store all but the object that ends it. May be repeated.
    DeleteLog {
        /// The log.
        log: LogId,
        /// Where it is.
        place: LogPlace,
    },
    /// Propose to delete the record of a log that is deleted.
    ForgetLog {
        /// The log.
        log: LogId,
        /// What to propose.
        change: RootChange,
    },
}

impl Intent {
    /// The log that it is about.
    #[must_use]
    pub const fn log(&self) -> Option<&LogId> {
        match self {
            Self::SealRecord { log, .. }
            | Self::SealLog { log, .. }
            | Self::DeleteLog { log, .. }
            | Self::ForgetLog { log, .. } => Some(log),
            Self::Grant { log, .. } => log.as_ref(),
        }
    }
}

/// Why nobody can own a shard for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// There is no node that takes it.
    NoNode,
    /// Its commits are in a log on the disk of a node that is gone: it waits until a process of that node is there.
    Private(LogId),
    /// Its commits are in a log of which there is no record that can be read. Somebody has to look.
    Lost(LogId),
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// In this order.
    pub intents: Vec<Intent>,
    /// Shards of nodes that are gone, for which nothing can be done.
    pub stuck: BTreeMap<ShardId, Stuck>,
}

/// What to do about nodes that are gone, as far as the view knows. An old view leads to proposals that are refused.
#[must_use]
pub fn step(view: &ClusterView, loads: &Loads) -> Decision {
    step_in_batches(view, loads, GRANTS_PER_BATCH)
}

/// As [`step`], with at most so many grants in a batch.
///
/// # Panics
/// If it is 0.
#[must_use]
pub fn step_in_batches(view: &ClusterView, loads: &Loads, grants_per_batch: usize) -> Decision {
    let LogsThatEnd { records, unneeded } = logs_that_end(view);
    let mut decision = Decision { intents: records, ..Decision::default() };
    let mut placement = Placement::new(view, loads);
    let mut grants: Vec<(Option<Source>, Vec<Transition>)> = Vec::new();
    for (shard, record) in orphans(view, loads) {
        let source = match past_of(view, &record.value) {
            Past::Readable(source) => source,
            Past::Unsealed => continue,
            Past::Stuck(stuck) => {
                decision.stuck.insert(shard.clone(), stuck);
                continue;
            }
        };
        let to = match destined(view, &record.value, source.as_ref(), &loads.drained).cloned() {
            Some(to) => {
                placement.gives(&to, Some(shard));
                to
            }
            None => match placement.place(Some(shard), None) {
                Some(to) => to.clone(),
                None => {
                    decision.stuck.insert(shard.clone(), Stuck::NoNode);
                    continue;
                }
            },
        };
        let grant = grant(shard, record, to);
        match grants.iter_mut().find(|(of, _)| *of == source) {
            Some((_, same)) => same.push(grant),
            None => grants.push((source, vec![grant])),
        }
    }
    for (source, transitions) in grants {
        if let Some(Source { log, record, only: None }) = &source {
            decision.intents.push(seal_log(log, record, true));
        }
        let batches = transitions.chunks(grants_per_batch).map(|some| Batch {
            transitions: some.to_vec(),
            expects: drained::expectations(view, some),
            ..Batch::default()
        });
        let log = source.map(|source| source.log);
        decision.intents.extend(batches.map(|batch| Intent::Grant { log: log.clone(), batch }));
    }
    decision.intents.extend(unneeded);
    decision
}

fn seal_log(log: &LogId, record: &LogRecord, is_needed: bool) -> Intent {
    Intent::SealLog { log: log.clone(), is_needed, place: record.place.clone(), epoch: record.seal_epoch() }
}

/// What is to be done about logs.
#[derive(Default)]
struct LogsThatEnd {
    /// Whose holder is gone (F2).
    records: Vec<Intent>,
    /// That no shard needs any more (F7).
    unneeded: Vec<Intent>,
}

fn logs_that_end(view: &ClusterView) -> LogsThatEnd {
    let names = view.roots(logs::PREFIX).filter_map(|(key, _)| key[logs::PREFIX.len()..].parse::<LogId>().ok());
    let mut intents = LogsThatEnd::default();
    for log in names {
        // One that cannot be read is somebody else's, or is told of the shards that need it.
        let Ok(Some((_, record))) = logs::get(view, &log) else { continue };
        let is_private = matches!(record.place, LogPlace::Private(_));
        // The node alone reaches it: while it has commits of a shard, the node may take it over again.
        if is_private && logs::shards_in(view, &log).next().is_some() {
            continue;
        }
        if let Ok(change) = logs::seal(view, &log) {
            intents.records.push(Intent::SealRecord { log, change });
        } else if let Ok(change) = logs::remove(view, &log) {
            // What is on the node's disk, the node removes itself.
            if !is_private {
                intents.unneeded.push(seal_log(&log, &record, false));
                intents.unneeded.push(Intent::DeleteLog { log: log.clone(), place: record.place });
            }
            intents.unneeded.push(Intent::ForgetLog { log, change });
        }
    }
    intents
}

/// The shards of these loads whose owner is gone, in the order in which they get another: the one that everybody needs, then the busiest.
fn orphans<'v>(view: &'v ClusterView, loads: &Loads) -> Vec<(&'v ShardId, &'v Versioned<ShardRecord>)> {
    let is_of_them = |shard: &ShardId| shard.0.starts_with(&loads.prefix);
    let is_orphan = |record: &Versioned<ShardRecord>| record.value.owner().is_some_and(|owner| !view.lives(owner));
    let orphans = view.shards("").filter(|(shard, record)| is_of_them(shard) && is_orphan(record));
    let mut orphans: Vec<_> = orphans.collect();
    orphans.sort_by_key(|(shard, _)| (loads.login.as_ref() != Some(*shard), Reverse(load_of(loads, shard)), *shard));
    orphans
}

fn load_of(loads: &Loads, shard: &ShardId) -> u64 {
    loads.shards.get(shard).copied().unwrap_or_default()
}

/// The log that a shard's commits are in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    log: LogId,
    record: LogRecord,
    /// Who alone can read it; nobody alone once it is sealed where all reach it.
    only: Option<Tenure>,
}

/// Where a new owner finds the commits of a shard.
enum Past {
    /// Here; or in no log.
    Readable(Option<Source>),
    /// In a log whose record is sealed first.
    Unsealed,
    Stuck(Stuck),
}

fn past_of(view: &ClusterView, record: &ShardRecord) -> Past {
    let Some(history) = &record.history else { return Past::Readable(None) };
    let log = history.log.clone();
    let Ok(Some((_, record))) = logs::get(view, &log) else { return Past::Stuck(Stuck::Lost(log)) };
    let only = match (record.state, &record.place) {
        (LogState::Open, _) if view.lives(&record.holder) => Some(record.holder.clone()),
        // Its node is back, and has not taken it over yet.
        (_, LogPlace::Private(_)) => match view.nodes().find(|node| node.tenure.node == log.node) {
            Some(node) => Some(node.tenure.clone()),
            None => return Past::Stuck(Stuck::Private(log)),
        },
        (LogState::Open, _) => return Past::Unsealed,
        (LogState::Sealed, _) => None,
    };
    Past::Readable(Some(Source { log, record, only }))
}

fn grant(shard: &ShardId, record: &Versioned<ShardRecord>, to: Tenure) -> Transition {
    let ShardRecord { epoch, history, .. } = record.value.clone();
    let granted = ShardRecord::serving(to, epoch.next()).with_history(history);
    Transition { shard: shard.clone(), expected: record.version, record: granted, by: None }
}

/// Who alone may get a shard, or has something of it already. The target of a move has nothing that others have not, so that one that is drained is none.
fn destined<'r>(
    view: &ClusterView,
    record: &'r ShardRecord,
    source: Option<&'r Source>,
    drained: &BTreeSet<NodeId>,
) -> Option<&'r Tenure> {
    let survivor = match &record.ownership {
        Ownership::Exclusive(Exclusive::Dual { from, .. }) => Some(from),
        _ => None,
    };
    let only = source.and_then(|source| source.only.as_ref());
    let target = match &record.ownership {
        Ownership::Exclusive(Exclusive::Moving { to, .. }) => Some(to).filter(|to| !drained.contains(&to.node)),
        _ => None,
    };
    [survivor, only, target].into_iter().flatten().find(|tenure| view.lives(tenure))
}
