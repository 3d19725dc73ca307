//! The embedded coordinator's decisions, without journal, clock or tasks.
//!
//! [`CoordinatorCore::step`] decides a request and applies what follows from it; the driver journals the entries that it
//! returns and lets the reply out when they, and all before them, are durable. [`CoordinatorCore::replay`] rebuilds the
//! same state from the journal.

mod request;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use savanna_epoch::{LogId, NodeEpoch, NodeId, ShardId};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, check_batch, expect_root, expect_root_version, expect_version};
use crate::coordinator::{ClaimOutcome, Grant, Snapshot};
use crate::error::{CoordinatorError, FIRST_ID, check_node, next_ids};
use crate::event::{Change, Entry, Event, RootValue, TenureEnd};
use crate::lease::LeaseClock;
use crate::logs;
use crate::record::{Incarnation, NodeRecord, NodeSpec, Revision, ShardRecord, Tenure, Transition, Versioned};
use crate::time::MonoTime;
use crate::transition::check_transition;

pub use request::{Reply, Request, Step};

/// How many changes are kept for watchers that are behind, unless they are too long.
pub const CHANGES_KEPT: usize = 16_384;
/// How many bytes the changes have that are kept.
pub const CHANGES_KEPT_BYTES: usize = 64 << 20;
/// How many changes are copied at once for a watcher that is behind, while others wait for the coordinator.
pub const CHANGES_AT_ONCE: usize = 1024;
/// How many bytes they have, except for the last of them.
pub const CHANGES_AT_ONCE_BYTES: usize = 4 << 20;

/// All that has to survive, as one value: what a journal starts with after it was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    revision: Revision,
    nodes: BTreeMap<NodeId, NodeRecord>,
    /// The newest epoch of every name ever granted.
    node_epochs: BTreeMap<NodeId, NodeEpoch>,
    claims: BTreeMap<NodeId, Incarnation>,
    shards: BTreeMap<ShardId, Versioned<ShardRecord>>,
    /// The first id of each sequence that has not been handed out.
    ids: BTreeMap<String, u64>,
    roots: BTreeMap<String, Versioned<RootValue>>,
    /// Names that are held by a process in which the coordinator ran.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    residents: BTreeSet<NodeId>,
}

impl Image {
    /// At the revision of the image.
    fn put_shard(&mut self, shard: ShardId, value: ShardRecord) {
        self.shards.insert(shard, Versioned { version: self.revision, value });
    }

    /// At the revision of the image; without a value the root is deleted.
    fn put_root(&mut self, key: String, value: Option<RootValue>) {
        match value {
            Some(value) => drop(self.roots.insert(key, Versioned { version: self.revision, value })),
            None => drop(self.roots.remove(&key)),
        }
    }
}

/// The coordinator as a state machine: requests and the time in, replies and journal entries out.
#[derive(Clone, Debug)]
pub struct CoordinatorCore {
    ttl: Duration,
    state: Image,
    /// Volatile; see [`CoordinatorCore::restart_leases`].
    leases: LeaseClock,
    /// The node that this process is. It has no lease here: it serves for as long as it may run the coordinator.
    resident: Option<Tenure>,
    changes: VecDeque<Change>,
    changes_bytes: usize,
    /// All changes after this revision are in `changes`.
    changes_after: Revision,
}

impl CoordinatorCore {
    /// A coordinator without history, that grants leases of `ttl`.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self::from_image(ttl, Image::default())
    }

    /// A coordinator that continues from an image.
    #[must_use]
    pub fn from_image(ttl: Duration, image: Image) -> Self {
        Self {
            ttl,
            changes_after: image.revision,
            state: image,
            leases: LeaseClock::default(),
            resident: None,
            changes: VecDeque::new(),
            changes_bytes: 0,
        }
    }

    /// All that has to survive.
    #[must_use]
    pub const fn image(&self) -> &Image {
        &self.state
    }

    /// Applies an entry of the journal.
    ///
    /// # Errors
    /// `Corrupt` if it is not the one that follows.
    pub fn replay(&mut self, entry: &Entry) -> Result<(), CoordinatorError> {
        let expected = self.state.revision.next();
        if entry.revision != expected {
            return Err(CoordinatorError::Corrupt {
                place: format!("journal entry {}", entry.revision),
                reason: format!("expected revision {expected}"),
            });
        }
        self.apply(entry);
        Ok(())
    }

    /// Call once after the last `replay`. Renewals are not journaled, and a clock does not survive a restart: every
    /// holder may have been renewed just before the restart, so each gets a whole lease from now.
    pub fn restart_leases(&mut self, now: MonoTime) {
        self.leases = LeaseClock::default();
        for node in self.state.nodes.keys() {
            self.leases.renew(node, self.ttl, now);
        }
    }

    /// The revision of the last change.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.state.revision
    }

    /// When a `Tick` will have a lease to end.
    #[must_use]
    pub fn wake_at(&self) -> Option<MonoTime> {
        self.leases.next_expiry()
    }

    /// A shard's record.
    #[must_use]
    pub fn shard(&self, shard: &ShardId) -> Option<&Versioned<ShardRecord>> {
        self.state.shards.get(shard)
    }

    /// A root's value.
    #[must_use]
    pub fn root(&self, key: &str) -> Option<&Versioned<RootValue>> {
        self.state.roots.get(key)
    }

    /// The node that holds a name.
    #[must_use]
    pub fn node(&self, node: &NodeId) -> Option<&NodeRecord> {
        self.state.nodes.get(node)
    }

    /// All records.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            revision: self.state.revision,
            nodes: self.state.nodes.values().cloned().collect(),
            shards: self.state.shards.iter().map(|(shard, record)| (shard.clone(), record.clone())).collect(),
            roots: self.state.roots.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }

    /// The first changes after `since` and up to `until`: at most [`CHANGES_AT_ONCE`], and no more once they have [`CHANGES_AT_ONCE_BYTES`]. None if
    /// there are none.
    ///
    /// # Errors
    /// `Compacted` if some of them are no longer kept.
    pub fn changes(&self, since: Revision, until: Revision) -> Result<Vec<Change>, CoordinatorError> {
        if since < self.changes_after {
            return Err(CoordinatorError::Compacted { since, oldest: self.changes_after });
        }
        let first = self.changes.partition_point(|change| change.revision <= since);
        let mut room = CHANGES_AT_ONCE_BYTES;
        let has_room = |change: &&Change| {
            let had_room = room > 0;
            room = room.saturating_sub(change.bytes());
            had_room
        };
        let changes = self.changes.range(first..).take_while(|change| change.revision <= until);
        Ok(changes.take(CHANGES_AT_ONCE).take_while(has_room).cloned().collect())
    }

    /// Decides a request that arrived at `now`, and applies what follows from it.
    pub fn step(&mut self, request: &Request, now: MonoTime) -> Step {
        let mut entries = Vec::new();
        self.end_expired(now, &mut entries);
        let reply = match request {
            Request::Register(spec) => self.register(spec, now, &mut entries).map(Reply::Granted),
            Request::Claim(spec) => self.claim(spec, now, &mut entries).map(Reply::Claim),
            Request::Reside(spec) => self.reside(spec, now, &mut entries).map(Reply::Claim),
            Request::Heartbeat(tenure) => self.heartbeat(tenure, now).map(Reply::Renewed),
            Request::Deregister(tenure) => {
                if self.lives(tenure) {
                    let ended = Event::NodeEnded { tenure: tenure.clone(), reason: TenureEnd::Deregistered };
                    self.record(ended, &mut entries);
                }
                Ok(Reply::Done)
            }
            Request::Apply(batch) => self.apply_batch(batch, &mut entries).map(Reply::Changed),
            Request::Allocate { name, count } => self.allocate(name, *count, &mut entries).map(Reply::Ids),
            Request::Tick => Ok(Reply::Done),
        };
        Step { reply, entries }
    }

    fn end_expired(&mut self, now: MonoTime, entries: &mut Vec<Entry>) {
        let expired: Vec<Tenure> = self
            .leases
            .expired(now)
            .filter_map(|node| self.state.nodes.get(node))
            .map(|record| record.tenure.clone())
            .collect();
        for tenure in expired {
            self.record(Event::NodeEnded { tenure, reason: TenureEnd::Expired }, entries);
        }
    }

    fn register(
        &mut self,
        spec: &NodeSpec,
        now: MonoTime,
        entries: &mut Vec<Entry>,
    ) -> Result<Grant, CoordinatorError> {
        check_node(spec)?;
        let claimant = self.state.claims.get(&spec.name).copied().filter(|by| *by != spec.incarnation);
        match self.state.nodes.get(&spec.name) {
            Some(held) if held.incarnation == spec.incarnation => {
                let tenure = held.tenure.clone();
                self.renew(tenure, now)
            }
            None if claimant.is_none() => Ok(self.grant(spec, Some(now), entries)),
            held => Err(CoordinatorError::Held {
                node: spec.name.clone(),
                tenure: held.map(|record| record.tenure.epoch),
                remaining: self.remaining(&spec.name, now),
            }),
        }
    }

    fn claim(
        &mut self,
        spec: &NodeSpec,
        now: MonoTime,
        entries: &mut Vec<Entry>,
    ) -> Result<ClaimOutcome, CoordinatorError> {
        check_node(spec)?;
        let Some(held) = self.state.nodes.get(&spec.name) else {
            return Ok(ClaimOutcome::Granted(self.grant(spec, Some(now), entries)));
        };
        if held.incarnation == spec.incarnation {
            let tenure = held.tenure.clone();
            return self.renew(tenure, now).map(ClaimOutcome::Granted);
        }
        if self.resident.as_ref() == Some(&held.tenure) {
            return Err(CoordinatorError::Held {
                node: spec.name.clone(),
                tenure: Some(held.tenure.epoch),
                remaining: self.ttl,
            });
        }
        if self.state.claims.get(&spec.name) != Some(&spec.incarnation) {
            let placed = Event::ClaimPlaced { node: spec.name.clone(), claimant: spec.incarnation };
            self.record(placed, entries);
        }
        Ok(ClaimOutcome::Pending { retry_after: self.remaining(&spec.name, now) })
    }

    /// Who was resident before ran the coordinator, which only one process can: it is over. Of any other holder of the
    /// name the lease has to run out first.
    fn reside(
        &mut self,
        spec: &NodeSpec,
        now: MonoTime,
        entries: &mut Vec<Entry>,
    ) -> Result<ClaimOutcome, CoordinatorError> {
        check_node(spec)?;
        if let Some(held) = self.state.nodes.get(&spec.name) {
            let tenure = held.tenure.clone();
            if self.resident.as_ref() == Some(&tenure) {
                return Ok(ClaimOutcome::Granted(Grant { tenure, ttl: self.ttl }));
            }
            if !self.state.residents.contains(&spec.name) {
                return self.claim(spec, now, entries);
            }
            self.record(Event::NodeEnded { tenure, reason: TenureEnd::Expired }, entries);
        }
        let grant = self.grant(spec, None, entries);
        self.resident = Some(grant.tenure.clone());
        Ok(ClaimOutcome::Granted(grant))
    }

    /// Grants a name: with a lease from `now`, or to the resident.
    fn grant(&mut self, spec: &NodeSpec, now: Option<MonoTime>, entries: &mut Vec<Entry>) -> Grant {
        let epoch = self.state.node_epochs.get(&spec.name).copied().unwrap_or(NodeEpoch::NONE).next();
        let node = NodeRecord::granted(spec, epoch);
        let tenure = node.tenure.clone();
        self.record(Event::NodeGranted { node, resident: now.is_none() }, entries);
        if let Some(now) = now {
            self.leases.renew(&spec.name, self.ttl, now);
        }
        Grant { tenure, ttl: self.ttl }
    }

    fn heartbeat(&mut self, tenure: &Tenure, now: MonoTime) -> Result<Duration, CoordinatorError> {
        if !self.lives(tenure) {
            return Err(CoordinatorError::TenureOver { tenure: tenure.clone() });
        }
        self.renew(tenure.clone(), now).map(|grant| grant.ttl)
    }

    /// Extends the lease of a tenure that lives, unless another process claimed its name.
    fn renew(&mut self, tenure: Tenure, now: MonoTime) -> Result<Grant, CoordinatorError> {
        if let Some(&by) = self.state.claims.get(&tenure.node) {
            return Err(CoordinatorError::Claimed { tenure, by });
        }
        if self.resident.as_ref() != Some(&tenure) {
            self.leases.renew(&tenure.node, self.ttl, now);
        }
        Ok(Grant { tenure, ttl: self.ttl })
    }

    /// How long a name is held yet, unless its holder renews.
    fn remaining(&self, node: &NodeId, now: MonoTime) -> Duration {
        match &self.resident {
            Some(tenure) if tenure.node == *node => self.ttl,
            _ => self.leases.remaining(node, now),
        }
    }

    /// Checks everything before it changes anything.
    fn apply_batch(&mut self, batch: &Batch, entries: &mut Vec<Entry>) -> Result<Revision, CoordinatorError> {
        check_batch(batch)?;
        for Transition { shard, expected, .. } in &batch.transitions {
            expect_version(self.shard(shard).map(|record| record.version), *expected, &shard.0)?;
        }
        for root in &batch.roots {
            expect_root_version(self.root(&root.key).map(|value| value.version), root)?;
        }
        for expectation in &batch.expects {
            let root = self.root(&expectation.key);
            expect_root(root.map(|root| (root.version, &root.value.0[..])), expectation)?;
        }
        let holds = |tenure: &Tenure, log: &LogId| {
            let key = logs::key(log);
            !batch.changes_root(&key) && logs::is_held(self.root(&key).map(|root| &root.value.0[..]), tenure)
        };
        for Transition { shard, record, by, .. } in &batch.transitions {
            let old = self.shard(shard).map(|old| &old.value);
            check_transition(old, record, by.as_ref(), |tenure| self.lives(tenure), holds)
                .map_err(|source| CoordinatorError::Transition { shard: shard.to_string(), source })?;
        }
        Ok(self.record(Event::of(batch), entries))
    }

    fn allocate(&mut self, name: &str, count: u64, entries: &mut Vec<Entry>) -> Result<Range<u64>, CoordinatorError> {
        let range = next_ids(name, self.state.ids.get(name).copied().unwrap_or(FIRST_ID), count)?;
        self.record(Event::IdsAllocated { name: name.to_owned(), next: range.end }, entries);
        Ok(range)
    }

    fn lives(&self, tenure: &Tenure) -> bool {
        self.state.nodes.get(&tenure.node).is_some_and(|record| record.tenure == *tenure)
    }

    fn record(&mut self, event: Event, entries: &mut Vec<Entry>) -> Revision {
        let entry = Entry { revision: self.state.revision.next(), event };
        self.apply(&entry);
        let revision = entry.revision;
        entries.push(entry);
        revision
    }

    fn apply(&mut self, entry: &Entry) {
        self.state.revision = entry.revision;
        match entry.event.clone() {
            Event::NodeGranted { node, resident } => {
                let name = node.tenure.node.clone();
                self.state.claims.remove(&name);
                if resident {
                    self.state.residents.insert(name.clone());
                }
                self.state.node_epochs.insert(name.clone(), node.tenure.epoch);
                self.state.nodes.insert(name, node);
            }
            Event::NodeEnded { tenure, .. } => {
                self.state.nodes.remove(&tenure.node);
                self.state.residents.remove(&tenure.node);
                self.leases.end(&tenure.node);
            }
            Event::ClaimPlaced { node, claimant } => {
                self.state.claims.insert(node, claimant);
            }
            Event::ShardChanged { shard, record } => self.state.put_shard(shard, record),
            Event::IdsAllocated { name, next } => {
                self.state.ids.insert(name, next);
            }
            Event::RootChanged { key, value } => self.state.put_root(key, value),
            Event::BatchApplied { shards, roots } => {
                shards.into_iter().for_each(|(shard, record)| self.state.put_shard(shard, record));
                roots.into_iter().for_each(|(key, value)| self.state.put_root(key, value));
            }
        }
        if let Some(change) = entry.change() {
            self.keep(change);
        }
    }

    /// Keeps a change for watchers, and drops the oldest when they are too many or too long.
    fn keep(&mut self, change: Change) {
        self.changes_bytes += change.bytes();
        self.changes.push_back(change);
        while (self.changes.len() > CHANGES_KEPT || self.changes_bytes > CHANGES_KEPT_BYTES)
            && let Some(dropped) = self.changes.pop_front()
        {
            self.changes_bytes -= dropped.bytes();
            self.changes_after = dropped.revision;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::RootChange;

    const TTL: Duration = Duration::from_secs(3);
    const SECOND: u64 = 1_000_000_000;

    fn spec(name: &str, incarnation: u64) -> NodeSpec {
        NodeSpec {
            name: NodeId::new(name),
            incarnation: Incarnation(incarnation),
            address: String::new(),
            labels: BTreeMap::new(),
        }
    }

    fn granted(step: Step) -> Tenure {
        match step.reply {
            Ok(Reply::Granted(grant) | Reply::Claim(ClaimOutcome::Granted(grant))) => grant.tenure,
            other => panic!("expected a grant, came {other:?}"),
        }
    }

    #[test]
    fn a_claimed_holder_is_not_renewed_and_the_claimant_follows_under_the_next_epoch() {
        let mut core = CoordinatorCore::new(TTL);
        let first = granted(core.step(&Request::Register(spec("dev", 1)), MonoTime(0)));
        let pending = core.step(&Request::Claim(spec("dev", 2)), MonoTime(SECOND));
        assert_eq!(pending.reply, Ok(Reply::Claim(ClaimOutcome::Pending { retry_after: Duration::from_secs(2) })));
        let refused = core.step(&Request::Heartbeat(first.clone()), MonoTime(SECOND));
        assert_eq!(refused.reply, Err(CoordinatorError::Claimed { tenure: first.clone(), by: Incarnation(2) }));
        // The restarted holder cannot slip in between the end of the lease and the claimant.
        let slip = core.step(&Request::Register(spec("dev", 3)), MonoTime(3 * SECOND));
        assert!(matches!(slip.reply, Err(CoordinatorError::Held { tenure: None, .. })));
        let second = granted(core.step(&Request::Claim(spec("dev", 2)), MonoTime(3 * SECOND)));
        assert_eq!(second.epoch, first.epoch.next());
        let over = core.step(&Request::Heartbeat(first.clone()), MonoTime(3 * SECOND));
        assert_eq!(over.reply, Err(CoordinatorError::TenureOver { tenure: first }));
    }

    #[test]
    fn after_a_restart_every_lease_lasts_a_whole_ttl_again() {
        let mut core = CoordinatorCore::new(TTL);
        let step = core.step(&Request::Register(spec("n1", 1)), MonoTime(50 * SECOND));
        let mut restarted = CoordinatorCore::new(TTL);
        for entry in &step.entries {
            restarted.replay(entry).unwrap();
        }
        restarted.restart_leases(MonoTime(SECOND));
        assert!(restarted.step(&Request::Tick, MonoTime(4 * SECOND - 1)).entries.is_empty());
        assert_eq!(restarted.step(&Request::Tick, MonoTime(4 * SECOND)).entries.len(), 1);
    }

    #[test]
    fn the_resident_needs_no_renewal_and_nobody_can_claim_its_name() {
        let mut core = CoordinatorCore::new(TTL);
        let resident = granted(core.step(&Request::Reside(spec("dev", 1)), MonoTime(0)));
        let stalled = MonoTime(60 * SECOND);
        assert!(core.step(&Request::Tick, stalled).entries.is_empty());
        assert_eq!(core.step(&Request::Heartbeat(resident.clone()), stalled).reply, Ok(Reply::Renewed(TTL)));
        let later = MonoTime(120 * SECOND);
        assert!(core.step(&Request::Tick, later).entries.is_empty(), "a renewal makes it no lease that can run out");
        let claimed = core.step(&Request::Claim(spec("dev", 2)), later);
        assert!(matches!(claimed.reply, Err(CoordinatorError::Held { .. })) && claimed.entries.is_empty());
        assert_eq!(granted(core.step(&Request::Reside(spec("dev", 1)), later)), resident);
    }

    #[test]
    fn the_next_resident_follows_at_once_and_a_remote_holder_of_the_name_keeps_its_lease() {
        let mut core = CoordinatorCore::new(TTL);
        let mut log = core.step(&Request::Reside(spec("dev", 1)), MonoTime(0)).entries;
        log.extend(core.step(&Request::Register(spec("far", 2)), MonoTime(0)).entries);
        let json: Vec<String> = log.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        let mut restarted = CoordinatorCore::new(TTL);
        for entry in &json {
            restarted.replay(&serde_json::from_str(entry).unwrap()).unwrap();
        }
        restarted.restart_leases(MonoTime(SECOND));
        let next = granted(restarted.step(&Request::Reside(spec("dev", 3)), MonoTime(SECOND)));
        assert_eq!(next.epoch, NodeEpoch(2));
        let far = restarted.step(&Request::Reside(spec("far", 3)), MonoTime(SECOND));
        assert_eq!(far.reply, Ok(Reply::Claim(ClaimOutcome::Pending { retry_after: TTL })));
    }

    #[test]
    fn an_entry_out_of_order_is_refused() {
        let mut core = CoordinatorCore::new(TTL);
        let allocated = Event::IdsAllocated { name: "x".to_owned(), next: 2 };
        let entry = Entry { revision: Revision(2), event: allocated };
        let message = core.replay(&entry).unwrap_err().to_string();
        assert!(message.contains("journal entry 2") && message.contains("expected revision 1"), "{message}");
    }

    #[test]
    fn a_watcher_that_is_too_far_behind_is_told_so() {
        let mut core = CoordinatorCore::new(TTL);
        for number in 0..=CHANGES_KEPT {
            let (key, value) = (format!("k{number}"), Some(RootValue(Vec::new())));
            let put = RootChange { key, expected: Revision::NONE, value };
            core.step(&Request::Apply(put.into()), MonoTime(0)).reply.unwrap();
        }
        let until = core.revision();
        assert_eq!(
            core.changes(Revision(0), until),
            Err(CoordinatorError::Compacted { since: Revision(0), oldest: Revision(1) })
        );
        assert_eq!(core.changes(Revision(1), until).unwrap().len(), CHANGES_AT_ONCE, "the rest comes next");
        assert_eq!(core.changes(Revision(1), Revision(3)).unwrap().len(), 2);
    }

    #[test]
    fn long_changes_are_kept_up_to_so_many_bytes() {
        let mut core = CoordinatorCore::new(TTL);
        let mut version = Revision::NONE;
        for _ in 0..100 {
            let value = Some(RootValue(vec![0; 1 << 20]));
            let put = RootChange { key: "r".to_owned(), expected: version, value };
            core.step(&Request::Apply(put.into()), MonoTime(0)).reply.unwrap();
            version = core.revision();
        }
        let Err(CoordinatorError::Compacted { oldest, .. }) = core.changes(Revision(1), version) else {
            panic!("100 MiB of changes are kept")
        };
        let (mut since, mut kept, mut most) = (oldest, 0, 0);
        while since < version {
            let some = core.changes(since, version).unwrap();
            since = some.last().expect("there are more").revision;
            kept += some.len();
            most = most.max(some.len());
        }
        assert!((60..=64).contains(&kept), "{kept}");
        assert!((2..=4).contains(&most), "{most} MiB at once");
    }

    #[test]
    fn an_image_is_as_good_as_the_entries_before_it() {
        let mut core = CoordinatorCore::new(TTL);
        core.step(&Request::Register(spec("n1", 1)), MonoTime(0));
        core.step(&Request::Allocate { name: "x".to_owned(), count: 10 }, MonoTime(0));
        let json = serde_json::to_string(core.image()).unwrap();
        let mut restored = CoordinatorCore::from_image(TTL, serde_json::from_str(&json).unwrap());
        assert_eq!(restored.snapshot(), core.snapshot());
        let ids = restored.step(&Request::Allocate { name: "x".to_owned(), count: 1 }, MonoTime(0));
        assert_eq!(ids.reply, Ok(Reply::Ids(11..12)));
    }
}
