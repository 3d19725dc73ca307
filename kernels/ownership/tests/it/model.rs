//! What batches do, as simply as it can be said, and batches at random to try it with.

use std::collections::BTreeMap;

use rand::seq::IndexedRandom;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::{LogId, OwnerEpoch, ShardId};
use savanna_ownership::logs::{self, LogRecord, LogState};
use savanna_ownership::transition::check_transition;
use savanna_ownership::{
    Batch, CoordinatorError, Exclusive, Expected, History, MAX_BATCH_RECORDS, Ownership, ReplicationVector, Revision,
    RingVersion, RootChange, RootExpectation, RootValue, ShardRecord, Snapshot, Tenure, Transition, Versioned,
};

/// Why the model refuses a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Of this record.
    Conflict(String),
    /// Of this shard.
    Rule(String),
    Limit,
}

impl Refusal {
    pub(crate) fn is_the_same_as(&self, error: &CoordinatorError) -> bool {
        match (self, error) {
            (
                Self::Conflict(record),
                CoordinatorError::Conflict { record: came, .. } | CoordinatorError::OtherValue { record: came, .. },
            ) => record == came,
            (Self::Rule(shard), CoordinatorError::Transition { shard: came, .. }) => shard == came,
            (Self::Limit, CoordinatorError::Invalid { .. }) => true,
            _ => false,
        }
    }
}

/// The records, with versions of the model's own.
pub(crate) struct Model {
    rng: ChaCha8Rng,
    /// The last one's lease is over.
    tenures: Vec<Tenure>,
    revision: Revision,
    shards: BTreeMap<ShardId, Versioned<ShardRecord>>,
    roots: BTreeMap<String, Versioned<RootValue>>,
    /// Each value is written once.
    values: u32,
}

impl Model {
    /// Begins with the roots that are there, and fills in their versions.
    pub(crate) fn new(
        seed: u64,
        tenures: Vec<Tenure>,
        begin: &Snapshot,
        versions: &mut BTreeMap<Revision, Revision>,
    ) -> Self {
        let mut model = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            tenures,
            revision: Revision::NONE,
            shards: BTreeMap::new(),
            roots: BTreeMap::new(),
            values: 0,
        };
        for (key, root) in &begin.roots {
            model.revision = model.revision.next();
            versions.insert(model.revision, root.version);
            model.roots.insert(key.clone(), Versioned { version: model.revision, value: root.value.clone() });
        }
        model
    }

    fn lives(&self, tenure: &Tenure) -> bool {
        self.tenures[..self.tenures.len() - 1].contains(tenure)
    }

    fn holds(&self, tenure: &Tenure, log: &LogId) -> bool {
        let record =
            self.roots.get(&logs::key(log)).map(|root| serde_json::from_slice::<LogRecord>(&root.value.0).unwrap());
        record.is_some_and(|record| record.state == LogState::Open && record.holder == *tenure)
    }

    /// All of it, or nothing.
    pub(crate) fn apply(&mut self, batch: &Batch) -> Result<Revision, Refusal> {
        let count = batch.transitions.len() + batch.roots.len();
        if count == 0 || count + batch.expects.len() > MAX_BATCH_RECORDS {
            return Err(Refusal::Limit);
        }
        for change in &batch.transitions {
            let version = self.shards.get(&change.shard).map_or(Revision::NONE, |record| record.version);
            if version != change.expected {
                return Err(Refusal::Conflict(change.shard.0.clone()));
            }
        }
        for change in &batch.roots {
            let root = self.roots.get(&change.key);
            let is_deletion_of_nothing = root.is_none() && change.value.is_none();
            if is_deletion_of_nothing || root.map_or(Revision::NONE, |root| root.version) != change.expected {
                return Err(Refusal::Conflict(change.key.clone()));
            }
        }
        for expectation in &batch.expects {
            let root = self.roots.get(&expectation.key);
            let is_so = match &expectation.expected {
                Expected::Version(version) => root.map_or(Revision::NONE, |root| root.version) == *version,
                Expected::Value(value) => root.is_some_and(|root| root.value == *value),
            };
            if !is_so {
                return Err(Refusal::Conflict(expectation.key.clone()));
            }
        }
        for change in &batch.transitions {
            let old = self.shards.get(&change.shard).map(|record| &record.value);
            let lives = |tenure: &Tenure| self.lives(tenure);
            check_transition(old, &change.record, change.by.as_ref(), lives, |tenure, log| self.holds(tenure, log))
                .map_err(|_| Refusal::Rule(change.shard.0.clone()))?;
        }
        self.revision = self.revision.next();
        let version = self.revision;
        for change in &batch.transitions {
            self.shards.insert(change.shard.clone(), Versioned { version, value: change.record.clone() });
        }
        for change in &batch.roots {
            match &change.value {
                Some(value) => drop(self.roots.insert(change.key.clone(), Versioned { version, value: value.clone() })),
                None => drop(self.roots.remove(&change.key)),
            }
        }
        Ok(version)
    }

    /// A batch of some changes, most of which are allowed.
    pub(crate) fn propose(&mut self) -> Batch {
        let mut batch = Batch::default();
        if self.rng.random_bool(0.03) {
            if self.rng.random() {
                let new = |number| RootChange { key: format!("many/{number}"), expected: Revision::NONE, value: None };
                batch.roots = (0..=MAX_BATCH_RECORDS).map(new).collect();
            }
            return batch;
        }
        let (shards, roots) = [(1, 0), (0, 1), (1, 1), (3, 2), (5, 0)][self.rng.random_range(0..5)];
        for number in rand::seq::index::sample(&mut self.rng, 6, shards) {
            let change = self.propose_transition(ShardId::new(format!("tenants/{number}")));
            batch.transitions.push(change);
        }
        for number in rand::seq::index::sample(&mut self.rng, 4, roots) {
            let change = self.propose_root(format!("roots/{number}"));
            batch.roots.push(change);
        }
        if self.rng.random_bool(0.3) {
            let key = format!("roots/{}", self.rng.random_range(4..6));
            let expectation = self.expect(key);
            batch.expects.push(expectation);
            // It is written at times.
            if self.rng.random_bool(0.3) {
                let key = format!("roots/{}", self.rng.random_range(4..6));
                if batch.expects[0].key != key {
                    let change = self.propose_root(key);
                    batch.roots.push(change);
                }
            }
        }
        batch
    }

    /// What a root is, most of the time.
    fn expect(&mut self, key: String) -> RootExpectation {
        let current = self.roots.get(&key).cloned();
        let expected = match current {
            Some(root) if self.rng.random() => {
                let value = if self.rng.random_bool(0.1) { RootValue(Vec::new()) } else { root.value };
                Expected::Value(value)
            }
            current => Expected::Version(self.expected(current.map(|root| root.version))),
        };
        RootExpectation { key, expected }
    }

    /// The right version, most of the time.
    fn expected(&mut self, current: Option<Revision>) -> Revision {
        let is_stale = self.revision > Revision::NONE && self.rng.random_bool(0.04);
        if is_stale { Revision(self.rng.random_range(1..=self.revision.0)) } else { current.unwrap_or(Revision::NONE) }
    }

    fn propose_root(&mut self, key: String) -> RootChange {
        let current = self.roots.get(&key).map(|root| root.version);
        if current.is_none() && self.rng.random_bool(0.1) || current.is_some() && self.rng.random_bool(0.3) {
            return RootChange { key, expected: current.unwrap_or(Revision::NONE), value: None };
        }
        self.values += 1;
        let expected = self.expected(current);
        RootChange { key, expected, value: Some(RootValue(self.values.to_le_bytes().to_vec())) }
    }

    fn propose_transition(&mut self, shard: ShardId) -> Transition {
        let current = self.shards.get(&shard).cloned();
        let rng = &mut self.rng;
        let other = self.tenures.choose(rng).expect("there are some").clone();
        let epoch = current.as_ref().map_or(OwnerEpoch::NONE, |record| record.value.epoch);
        let history = current.as_ref().and_then(|record| record.value.history.clone());
        let at =
            |owner: &Tenure, epoch| Some(History { log: LogId::new(owner.node.clone(), 1, "tenants").unwrap(), epoch });
        let serving = |owner: &Tenure, epoch| ShardRecord::serving(owner.clone(), epoch);
        let state = current.as_ref().map(|record| record.value.ownership.clone());
        let (record, by) = match state {
            Some(Ownership::Exclusive(state)) => {
                let owner = state.owner().clone();
                let record = match (rng.random_range(0..6), &state) {
                    (0, _) => ShardRecord::exclusive(epoch, state.clone()).with_history(at(&owner, epoch)),
                    (1, _) => ShardRecord::retired(epoch),
                    (2 | 3, Exclusive::Serving { .. }) => {
                        let moving = Exclusive::Moving { from: owner.clone(), to: other.clone() };
                        ShardRecord::exclusive(epoch, moving).with_history(history)
                    }
                    (2, Exclusive::Moving { from, to }) => {
                        let dual = Exclusive::Dual { from: from.clone(), to: to.clone() };
                        ShardRecord::exclusive(epoch.next(), dual).with_history(history)
                    }
                    (3, Exclusive::Moving { to, .. }) => serving(to, epoch.next()).with_history(at(to, epoch.next())),
                    (2 | 3, Exclusive::Dual { to, .. }) => serving(to, epoch).with_history(history),
                    _ => serving(&other, epoch.next()).with_history(history),
                };
                let servers: Vec<Tenure> = state.servers().into_iter().cloned().collect();
                (record, servers.choose(rng).cloned().filter(|_| rng.random_bool(0.9)))
            }
            Some(Ownership::Replicated { .. } | Ownership::Retired) | None if rng.random_bool(0.2) => {
                let ring_version = RingVersion(rng.random_range(0..3));
                let ownership = Ownership::Replicated { ring_version, vector: ReplicationVector(Vec::new()) };
                (ShardRecord { epoch, ownership, history: None }, None)
            }
            _ => (serving(&other, epoch.next()), None),
        };
        let expected = self.expected(current.as_ref().map(|record| record.version));
        Transition { shard, expected, record, by }
    }

    /// Fails unless a coordinator has the same; `versions` are its own by those of the model.
    pub(crate) fn assert_is(&self, snapshot: &Snapshot, versions: &BTreeMap<Revision, Revision>, number: u32) {
        let shards: Vec<_> = self
            .shards
            .iter()
            .map(|(shard, record)| {
                (shard.clone(), Versioned { version: versions[&record.version], value: record.value.clone() })
            })
            .collect();
        assert_eq!(snapshot.shards, shards, "after batch {number}");
        let roots: Vec<_> = self
            .roots
            .iter()
            .map(|(key, root)| (key.clone(), Versioned { version: versions[&root.version], value: root.value.clone() }))
            .collect();
        assert_eq!(snapshot.roots, roots, "after batch {number}");
    }
}

/// What came of the batches; what never came was not tested.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    applied: u32,
    conflicts: u32,
    rules: u32,
    limits: u32,
}

impl Seen {
    pub(crate) fn count(&mut self, result: &Result<Revision, Refusal>) {
        *match result {
            Ok(_) => &mut self.applied,
            Err(Refusal::Conflict(_)) => &mut self.conflicts,
            Err(Refusal::Rule(_)) => &mut self.rules,
            Err(Refusal::Limit) => &mut self.limits,
        } += 1;
    }

    pub(crate) fn assert_all(&self) {
        assert!(self.applied > 40 && self.conflicts > 5 && self.rules > 20 && self.limits > 1, "{self:?}");
    }
}
