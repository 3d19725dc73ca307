//! The records of the coordinator as a node knows them: a snapshot, and the changes since.
//!
//! Pure. Whoever keeps a view asks it what it [needs](ClusterView::needs) and feeds what comes; [`Follower`] does that with a
//! coordinator. A view is true as of its revision and may be old; so it is for routing, and for what stays true once it
//! was (a tenure that is over, a log that is sealed), and for proposals, which the coordinator compares with its own.
//!
//! ```text
//!             snapshot                    change, change, ..                 not kept so long
//!  nothing ─────────────► as of revision r ─────────────► as of revision s ─────────────────► needs a snapshot:
//!                                 ▲                            │ connection lost: resumes         the difference to it is
//!                                 └────────────────────────────┘ after s                          told as if it were one change
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use savanna_epoch::{NodeId, ShardId};

use crate::coordinator::{ChangeStream, Coordinator, Snapshot};
use crate::error::CoordinatorError;
use crate::event::{Change, Changed, RootValue};
use crate::record::{NodeRecord, Revision, ShardRecord, Tenure, Versioned};

/// How a view goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// All records; then [`ClusterView::replace`].
    Snapshot,
    /// The changes after a revision; then [`ClusterView::apply`].
    Changes(Revision),
}

/// The records at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    revision: Revision,
    nodes: BTreeMap<NodeId, NodeRecord>,
    shards: BTreeMap<ShardId, Versioned<ShardRecord>>,
    roots: BTreeMap<String, Versioned<RootValue>>,
    /// Whether the changes after `revision` can be had.
    has_successors: bool,
}

impl ClusterView {
    /// A view of a snapshot.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            revision: snapshot.revision,
            nodes: snapshot.nodes.into_iter().map(|node| (node.tenure.node.clone(), node)).collect(),
            shards: snapshot.shards.into_iter().collect(),
            roots: snapshot.roots.into_iter().collect(),
            has_successors: true,
        }
    }

    /// All changes up to here are in it.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// What it needs to go on.
    #[must_use]
    pub fn needs(&self) -> Needs {
        if self.has_successors { Needs::Changes(self.revision) } else { Needs::Snapshot }
    }

    /// Takes in the next change. One that is in it already, because it came twice, is nothing new.
    pub fn apply(&mut self, change: &Change) -> bool {
        if change.revision <= self.revision {
            return false;
        }
        self.revision = change.revision;
        for what in &change.what {
            self.change(what);
        }
        true
    }

    /// Takes in why no more changes come. Of those that are no longer kept, it will never hear.
    pub fn interrupted(&mut self, error: &CoordinatorError) {
        self.has_successors &= !matches!(error, CoordinatorError::Compacted { .. });
    }

    /// Goes over to a snapshot and returns the difference, as if it had happened at the snapshot's revision.
    ///
    /// # Errors
    /// `Unavailable` if it is older than the view, which is not changed.
    pub fn replace(&mut self, snapshot: Snapshot) -> Result<Change, CoordinatorError> {
        if snapshot.revision < self.revision {
            let (known, came) = (self.revision, snapshot.revision);
            let reason = format!("records as of revision {came}, when those of revision {known} had been read before");
            return Err(CoordinatorError::Unavailable { reason });
        }
        let new = Self::new(snapshot);
        let what = self.difference(&new);
        *self = new;
        Ok(Change { revision: self.revision, what })
    }

    fn change(&mut self, what: &Changed) {
        let version = self.revision;
        match what {
            Changed::NodeUp(node) => drop(self.nodes.insert(node.tenure.node.clone(), node.clone())),
            Changed::NodeDown(node) => drop(self.nodes.remove(node)),
            Changed::Shard(shard, record) => {
                self.shards.insert(shard.clone(), Versioned { version, value: record.clone() });
            }
            Changed::Root(key, value) => {
                self.roots.insert(key.clone(), Versioned { version, value: value.clone() });
            }
            Changed::RootDeleted(key) => drop(self.roots.remove(key)),
        }
    }

    /// What happened between this view and a later one. Shards are never deleted.
    fn difference(&self, later: &Self) -> Vec<Changed> {
        let tenure_in = |view: &Self, node: &NodeRecord| {
            view.nodes.get(&node.tenure.node).is_some_and(|other| other.tenure == node.tenure)
        };
        let downs = self.nodes.values().filter(|node| !tenure_in(later, node));
        let ups = later.nodes.values().filter(|node| !tenure_in(self, node));
        let is_new = |version: Option<Revision>, now: Revision| version != Some(now);
        let shards = later
            .shards
            .iter()
            .filter(|(shard, record)| is_new(self.shards.get(*shard).map(|old| old.version), record.version));
        let roots =
            later.roots.iter().filter(|(key, root)| is_new(self.roots.get(*key).map(|old| old.version), root.version));
        let deleted = self.roots.keys().filter(|key| !later.roots.contains_key(*key));
        downs
            .map(|node| Changed::NodeDown(node.tenure.node.clone()))
            .chain(ups.map(|node| Changed::NodeUp(node.clone())))
            .chain(shards.map(|(shard, record)| Changed::Shard(shard.clone(), record.value.clone())))
            .chain(roots.map(|(key, root)| Changed::Root(key.clone(), root.value.clone())))
            .chain(deleted.map(|key| Changed::RootDeleted(key.clone())))
            .collect()
    }

    /// The records of the view.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            revision: self.revision,
            nodes: self.nodes.values().cloned().collect(),
            shards: self.shards.iter().map(|(shard, record)| (shard.clone(), record.clone())).collect(),
            roots: self.roots.iter().map(|(key, root)| (key.clone(), root.clone())).collect(),
        }
    }

    /// The node that holds a name.
    #[must_use]
    pub fn node(&self, node: &NodeId) -> Option<&NodeRecord> {
        self.nodes.get(node)
    }

    /// All nodes that hold their lease, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    /// Whether a tenure holds its lease. One that is in any record of the view and does not, never will again.
    #[must_use]
    pub fn lives(&self, tenure: &Tenure) -> bool {
        self.nodes.get(&tenure.node).is_some_and(|node| node.tenure == *tenure)
    }

    /// A shard's record.
    #[must_use]
    pub fn shard(&self, shard: &ShardId) -> Option<&Versioned<ShardRecord>> {
        self.shards.get(shard)
    }

    /// All shards whose name begins so, by name.
    pub fn shards<'v>(&'v self, prefix: &'v str) -> impl Iterator<Item = (&'v ShardId, &'v Versioned<ShardRecord>)> {
        let from = ShardId::new(prefix);
        self.shards.range(from..).take_while(move |(shard, _)| shard.0.starts_with(prefix))
    }

    /// A root's value.
    #[must_use]
    pub fn root(&self, key: &str) -> Option<&Versioned<RootValue>> {
        self.roots.get(key)
    }

    /// All roots whose key begins so, by key.
    pub fn roots<'v>(&'v self, prefix: &'v str) -> impl Iterator<Item = (&'v str, &'v Versioned<RootValue>)> {
        let roots = self.roots.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix));
        roots.map(|(key, root)| (key.as_str(), root))
    }
}

/// Keeps a view up to date with a coordinator.
pub struct Follower {
    coordinator: Arc<dyn Coordinator>,
    view: ClusterView,
    changes: Option<ChangeStream>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("revision", &self.view.revision).finish_non_exhaustive()
    }
}

impl Follower {
    /// Follows from a view on, which may be empty.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>, view: ClusterView) -> Self {
        Self { coordinator, view, changes: None }
    }

    /// What is known.
    #[must_use]
    pub const fn view(&self) -> &ClusterView {
        &self.view
    }

    /// Waits for the next change, which is in the view then. May be dropped and asked again at any time.
    ///
    /// # Errors
    /// What the coordinator says, but for changes that are no longer kept. Ask again, after a pause: it goes on from
    /// where it was.
    pub async fn next(&mut self) -> Result<Change, CoordinatorError> {
        loop {
            match self.step().await {
                Ok(Some(change)) => return Ok(change),
                Ok(None) => {}
                Err(error) => {
                    self.changes = None;
                    self.view.interrupted(&error);
                    if !matches!(error, CoordinatorError::Compacted { .. }) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Does what the view needs; none if that brought nothing new.
    async fn step(&mut self) -> Result<Option<Change>, CoordinatorError> {
        let changes = match (&mut self.changes, self.view.needs()) {
            (_, Needs::Snapshot) => {
                let snapshot = self.coordinator.snapshot().await?;
                let change = self.view.replace(snapshot)?;
                return Ok((!change.what.is_empty()).then_some(change));
            }
            (Some(changes), Needs::Changes(_)) => changes,
            (none, Needs::Changes(since)) => none.insert(self.coordinator.watch(since).await?),
        };
        match changes.next().await {
            Some(change) => {
                let change = change?;
                Ok(self.view.apply(&change).then_some(change))
            }
            None => Err(CoordinatorError::Unavailable { reason: "the changes ended".to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use savanna_epoch::OwnerEpoch;

    use super::*;
    use crate::batch::{Batch, RootChange};
    use crate::core::{CoordinatorCore, Reply, Request};
    use crate::record::{Incarnation, NodeSpec, Transition};
    use crate::time::MonoTime;

    fn changes(core: &CoordinatorCore, since: Revision) -> Vec<Change> {
        core.changes(since, core.revision()).unwrap()
    }

    /// Some life: nodes come, go and come again, a shard changes hands, roots are written and deleted.
    fn live(core: &mut CoordinatorCore, round: u64) {
        let now = MonoTime(round);
        let spec = |name: &str| NodeSpec {
            name: NodeId::new(name),
            incarnation: Incarnation(round),
            address: String::new(),
            labels: BTreeMap::new(),
        };
        let register = Request::Register(spec(if round.is_multiple_of(2) { "a" } else { "b" }));
        let Ok(Reply::Granted(grant)) = core.step(&register, now).reply else { panic!("the name is free") };
        let shard = ShardId::new("s");
        let expected = core.shard(&shard).map_or(Revision::NONE, |record| record.version);
        let record = ShardRecord::serving(grant.tenure.clone(), OwnerEpoch(round));
        let key = format!("r/{}", round % 3);
        let root = core.root(&key).map(|root| root.version);
        let value = (round % 5 != 4 || root.is_none()).then(|| RootValue(round.to_le_bytes().to_vec()));
        let roots = vec![RootChange { key, expected: root.unwrap_or(Revision::NONE), value }];
        let transitions = vec![Transition { shard, expected, record, by: None }];
        let batch = Batch { transitions, roots, expects: Vec::new() };
        core.step(&Request::Apply(batch), now).reply.unwrap();
        core.step(&Request::Deregister(grant.tenure), now).reply.unwrap();
    }

    #[test]
    fn changes_and_a_snapshot_lead_to_the_same_view_and_the_difference_says_how() {
        let mut core = CoordinatorCore::new(std::time::Duration::from_secs(3600));
        let mut followed = ClusterView::new(core.snapshot());
        for round in 1..40 {
            live(&mut core, round);
            let before = followed.clone();
            for change in changes(&core, followed.revision()) {
                assert!(followed.apply(&change));
                assert!(!followed.apply(&change), "a change that came twice");
            }
            assert_eq!(followed.snapshot(), core.snapshot());
            let mut replaced = before.clone();
            let difference = replaced.replace(core.snapshot()).unwrap();
            assert_eq!(replaced, followed);
            // Whoever follows the difference sees the same, at later versions.
            let mut told = before;
            told.apply(&difference);
            let values = |view: &ClusterView| {
                let shards: Vec<_> =
                    view.shards("").map(|(shard, record)| (shard.clone(), record.value.clone())).collect();
                let roots: Vec<_> = view.roots("").map(|(key, root)| (key.to_owned(), root.value.clone())).collect();
                (view.nodes.clone(), shards, roots)
            };
            assert_eq!(values(&told), values(&followed));
        }
    }

    #[test]
    fn a_view_that_is_left_behind_needs_a_snapshot_that_is_not_older() {
        let mut core = CoordinatorCore::new(std::time::Duration::from_secs(3600));
        assert_eq!(ClusterView::default().needs(), Needs::Snapshot);
        let old = core.snapshot();
        assert_eq!(ClusterView::new(old.clone()).needs(), Needs::Changes(Revision::NONE), "an empty one is one");
        live(&mut core, 1);
        let mut view = ClusterView::new(core.snapshot());
        view.interrupted(&CoordinatorError::Unavailable { reason: String::new() });
        assert_eq!(view.needs(), Needs::Changes(core.revision()));
        view.interrupted(&CoordinatorError::Compacted { since: Revision(1), oldest: Revision(2) });
        assert_eq!(view.needs(), Needs::Snapshot);
        assert!(view.replace(old).is_err());
        assert_eq!((view.needs(), view.revision()), (Needs::Snapshot, core.revision()));
        assert_eq!(view.replace(core.snapshot()).unwrap().what, []);
        assert_eq!(view.needs(), Needs::Changes(core.revision()));
    }

    #[test]
    fn shards_and_roots_are_found_by_the_beginning_of_their_names() {
        let mut core = CoordinatorCore::new(std::time::Duration::from_secs(3600));
        for key in ["maps", "maps/a", "maps/b", "maps0"] {
            let change =
                RootChange { key: key.to_owned(), expected: Revision::NONE, value: Some(RootValue::default()) };
            core.step(&Request::Apply(change.into()), MonoTime(0)).reply.unwrap();
        }
        let view = ClusterView::new(core.snapshot());
        assert_eq!(view.roots("maps/").map(|(key, _)| key).collect::<Vec<_>>(), ["maps/a", "maps/b"]);
    }
}
