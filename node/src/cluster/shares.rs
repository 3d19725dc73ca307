//! What this node has of keys that are spread: it takes what it is granted, out of the logs of nodes that are gone, and tells its service who has
//! which virtual node.
//!
//! ```text
//!  keys/v/7: Serving{this}@2, history n1.3 ─► read the sealed log n1.3 ─► append to the own log, durable ─► history n2.1 ─► serve
//! ```
//!
//! A virtual node is served when its record says that its keys are in this node's log, and not before: who is granted it next reads that log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use savanna_control::failover::GRANTS_PER_BATCH;
use savanna_epoch::{LogId, NodeEpoch, NodeId, OwnerEpoch};
use savanna_journal::Options as JournalOptions;
use savanna_keys::cluster::ClusterNode;
use savanna_keys::cluster::owners::{Owners, Peer, PeerId, Whose};
use savanna_keys_host::Hearer;
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState, NewLog};
use savanna_ownership::{Batch, ClusterView, CoordinatorError, History, Revision, Tenure, Transition};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::histories::TakeError;
use super::key_moves::{KeyMoves, Taken};
use super::shared::PlaceError;
use super::view::View;
use super::virtual_nodes::{PREFIX, SERVICE, is_host, node_of};
use super::{Joined, databases};
use crate::remote::RemoteKeys;

/// What was not done is tried again after this time, which is doubled as long as it fails.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Before a node is asked again that has not said where clients of clusters reach it.
const PORT_PAUSE: Duration = Duration::from_millis(200);

/// Why a node has no log for its keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnLogError {
    #[error(transparent)]
    Take(#[from] TakeError),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// The log of a node's own keys.
#[derive(Debug)]
pub(crate) struct OwnLog {
    pub(crate) log: LogId,
    /// How it is opened, and under which epoch.
    pub(crate) options: (JournalOptions, NodeEpoch),
}

impl Joined {
    /// The log of the keys of this tenure: begun, or the one that it has begun.
    pub(crate) async fn own_keys_log(&self) -> Result<OwnLog, OwnLogError> {
        let failed =
            |source| TakeError::Coordinator { shard: savanna_epoch::ShardId::new(SERVICE), source: Box::new(source) };
        let (log, place) = loop {
            let view = ClusterView::new(self.coordinator.snapshot().await.map_err(failed)?);
            let is_own = |log: &LogId, record: &LogRecord| {
                log.service == SERVICE
                    && record.holder == self.tenure
                    && record.state == LogState::Open
                    && record.place == self.shared.place_of(log)
            };
            if let Some((log, record)) = logs::readable(&view).0.into_iter().find(|(log, record)| is_own(log, record)) {
                break (log, record.place);
            }
            let new = NewLog::allocate(&*self.coordinator, &self.tenure.node, SERVICE).await.map_err(failed)?;
            let (log, place) = (new.id().clone(), self.shared.place_of(new.id()));
            let begun = logs::begin(&view, new, place.clone(), self.tenure.clone()).map_err(TakeError::from)?;
            match self.coordinator.apply(&begun.into()).await {
                Ok(_) => break (log, place),
                // Whether it was done shows when the records are read again.
                Err(CoordinatorError::Conflict { .. } | CoordinatorError::Unavailable { .. }) => {}
                Err(error) => return Err(failed(error).into()),
            }
        };
        self.shared.make_private(&place)?;
        let epoch = self.shared.epoch_above(&place, self.tenure.epoch)?;
        Ok(OwnLog { log, options: (self.shared.log(&place)?, epoch) })
    }

    /// Takes what this node is granted, and tells its service who has what, as long as the tasks are kept. `log` is the node's own.
    pub(crate) fn has_shares(
        self: &Arc<Self>,
        hearer: &Hearer,
        log: LogId,
        keys: RemoteKeys,
        moves: &Arc<KeyMoves>,
    ) -> JoinSet<()> {
        let known = moves.taken().subscribe();
        let (ports, told) = watch::channel(BTreeMap::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(tell_owners(self.view.clone(), self.tenure.clone(), hearer.clone(), known, told));
        tasks.spawn(ask_ports(self.view.clone(), self.tenure.clone(), keys, ports));
        tasks.spawn(Arc::clone(self).take_shares(hearer.clone(), log, Arc::clone(moves)));
        tasks
    }

    /// Takes what this node is granted. What is taken is served by then: it is never read out of a log again.
    async fn take_shares(self: Arc<Self>, hearer: Hearer, own: LogId, moves: Arc<KeyMoves>) {
        let (mut view, taken) = (self.view.clone(), moves.taken());
        let (mut read, mut pause, mut told) = (BTreeSet::new(), PAUSE, String::new());
        let _ending = moves.ending();
        // A view may be of before a former service of this tenure gave something away.
        while moves.may_move() {
            match moves.begin_anew().await {
                Ok(since) => {
                    view.until(|view| view.revision() >= since).await;
                    pause = PAUSE;
                    break;
                }
                Err(error) => {
                    tracing::warn!(
                        error,
                        "keys are not served yet, as the records cannot be read or changed; it is tried again"
                    );
                    tokio::time::sleep(PAUSE_MAX.min(pause)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        // Beside this, which may take long.
        let mut hearing = JoinSet::new();
        if moves.may_move() {
            hearing.spawn(Arc::clone(&moves).hear_views(view.clone()));
        }
        loop {
            let now = view.now();
            let granted = Granted::of(&now, &self.tenure, &own, &taken.borrow());
            let here: Vec<(u16, OwnerEpoch)> =
                granted.here.iter().filter_map(|node| Some((*node, epoch_of(&now, *node)?))).collect();
            let (here, mut failed) =
                if moves.may_move() { moves.serve_here(here).await } else { (here, String::new()) };
            taken.send_if_modified(|known| {
                known.extend(here.iter().copied());
                !here.is_empty()
            });
            let mut ready = granted.new;
            for (log, nodes) in granted.elsewhere {
                // What was read in is in the own log: only its record is missing.
                let is_read = |node: &u16| read.contains(&(log.clone(), *node));
                let (mut known, unread): (Vec<u16>, Vec<u16>) = nodes.into_iter().partition(is_read);
                if !unread.is_empty() {
                    moves.end_coming(&now, &unread).await;
                    match self.adopt(&now, &hearer, &log, &unread).await {
                        Ok(()) => {
                            read.extend(unread.iter().map(|node| (log.clone(), *node)));
                            known.extend(unread);
                        }
                        Err(error) => failed = error,
                    }
                }
                ready.extend(known);
            }
            let seen = match self.take(&now, &ready, &own, taken).await {
                Ok(seen) => seen,
                Err(error) => {
                    failed = error;
                    Revision::NONE
                }
            };
            if failed.is_empty() {
                (pause, told) = (PAUSE, String::new());
                // An older view would show what is taken as granted alone; one that came meanwhile may show more.
                let looked = now.revision();
                view.until(|view| view.revision() > looked && view.revision() >= seen).await;
                continue;
            }
            if failed != told {
                tracing::error!(
                    error = failed,
                    "keys that were granted to this node are not served yet; it is tried again"
                );
                told = failed;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reads what a log that has ended has of virtual nodes, into the node's own.
    async fn adopt(&self, view: &ClusterView, hearer: &Hearer, log: &LogId, nodes: &[u16]) -> Result<(), String> {
        let Ok(Some((_, record))) = logs::get(view, log) else {
            return Err(format!("expected a record of log {log}, found none that can be read"));
        };
        if record.state != LogState::Sealed {
            return Err(format!("log {log} has not ended yet"));
        }
        let (shared, hearer, epoch) = (self.shared.clone(), hearer.clone(), record.seal_epoch());
        let (place, wanted): (LogPlace, BTreeSet<u16>) = (record.place, nodes.iter().copied().collect());
        let reading = move || -> Result<usize, String> {
            let sealed = shared.seal(&place, epoch).map_err(|error| error.to_string())?;
            hearer.adopt(&sealed, &|node| wanted.contains(&node)).map_err(|error| error.to_string())
        };
        let keys = tokio::task::spawn_blocking(reading).await.map_err(|error| error.to_string())??;
        tracing::info!(%log, nodes = nodes.len(), keys, "keys of a node that is gone are here now");
        Ok(())
    }

    /// Says that the keys of virtual nodes are in the own log, which has all of them; then they are served. Gives the revision at which that is
    /// known.
    async fn take(
        &self,
        view: &ClusterView,
        nodes: &[u16],
        own: &LogId,
        taken: &watch::Sender<Taken>,
    ) -> Result<Revision, String> {
        let transition = |node: &u16| {
            let shard = super::virtual_nodes::shard(*node);
            let record = view.shard(&shard)?;
            let epoch = record.value.epoch_of(&self.tenure)?;
            let history = Some(History { log: own.clone(), epoch });
            let (expected, record) = (record.version, record.value.clone().with_history(history));
            Some((*node, Transition { shard, expected, record, by: Some(self.tenure.clone()) }))
        };
        let transitions: Vec<(u16, Transition)> = nodes.iter().filter_map(transition).collect();
        let mut seen = Revision::NONE;
        for some in transitions.chunks(GRANTS_PER_BATCH) {
            let batch = Batch {
                transitions: some.iter().map(|(_, transition)| transition.clone()).collect(),
                ..Batch::default()
            };
            seen = self.coordinator.apply(&batch).await.map_err(|error| error.to_string())?;
            taken.send_modify(|taken| {
                taken.extend(some.iter().map(|(node, transition)| (*node, transition.record.epoch)));
            });
        }
        Ok(seen)
    }
}

/// What a node is granted and has not taken, by where its keys are.
#[derive(Debug, Default, PartialEq, Eq)]
struct Granted {
    /// In its own log.
    here: Vec<u16>,
    /// In no log: there are none.
    new: Vec<u16>,
    /// In logs of others.
    elsewhere: BTreeMap<LogId, Vec<u16>>,
}

impl Granted {
    fn of(view: &ClusterView, tenure: &Tenure, own: &LogId, taken: &Taken) -> Self {
        let mut granted = Self::default();
        for (shard, record) in view.shards(PREFIX) {
            let (Some(node), Some(epoch)) = (node_of(shard), record.value.epoch_of(tenure)) else { continue };
            // A view that is behind shows what was given away.
            if taken.get(&node).is_some_and(|taken| *taken >= epoch) {
                continue;
            }
            match &record.value.history {
                None => granted.new.push(node),
                Some(history) if history.log == *own => granted.here.push(node),
                Some(history) => granted.elsewhere.entry(history.log.clone()).or_default().push(node),
            }
        }
        granted
    }
}

/// Under which epoch somebody has a virtual node.
fn epoch_of(view: &ClusterView, node: u16) -> Option<OwnerEpoch> {
    Some(view.shard(&super::virtual_nodes::shard(node))?.value.epoch)
}

/// Where clients of clusters reach other nodes, as these have said.
type Ports = BTreeMap<Tenure, Option<Arc<ClusterNode>>>;

/// Tells the service who has which virtual node, whenever that changes.
async fn tell_owners(
    mut view: View,
    tenure: Tenure,
    hearer: Hearer,
    mut taken: watch::Receiver<Taken>,
    mut ports: watch::Receiver<Ports>,
) {
    let (mut numbered, mut told) = (Vec::new(), None);
    loop {
        let now = view.now();
        let owners = owners(&now, &tenure, &taken.borrow_and_update(), &ports.borrow_and_update(), &mut numbered);
        if told.as_ref() != Some(&owners) {
            told = Some(owners.clone());
            hearer.say(owners);
        }
        let goes_on = tokio::select! {
            goes_on = view.changed() => goes_on,
            changed = taken.changed() => changed.is_ok(),
            changed = ports.changed() => changed.is_ok(),
        };
        if !goes_on {
            return;
        }
    }
}

/// Who has which virtual node. Other nodes have the numbers that they had before; new ones get some.
fn owners(view: &ClusterView, myself: &Tenure, taken: &Taken, ports: &Ports, numbered: &mut Vec<Tenure>) -> Owners {
    let others = view.nodes().map(|node| &node.tenure).filter(|tenure| *tenure != myself && is_host(view, tenure));
    for tenure in others {
        if !numbered.contains(tenure) {
            numbered.push(tenure.clone());
        }
    }
    let peer = |tenure: &Tenure| Peer {
        node: tenure.node.clone(),
        is_there: view.lives(tenure),
        cluster_port: ports.get(tenure).cloned().flatten(),
    };
    let mut owners = Owners::among(numbered.iter().map(peer).collect());
    // Whose logs they are is in a record each.
    let mut holders: BTreeMap<(&LogId, &Tenure), bool> = BTreeMap::new();
    for (shard, record) in view.shards(PREFIX) {
        let (Some(node), Some(owner)) = (node_of(shard), record.value.owner()) else { continue };
        // Who was granted something has it when it says that its keys are in its log.
        let mut has_taken = || {
            let Some(history) = &record.value.history else { return false };
            *holders.entry((&history.log, owner)).or_insert_with(|| databases::holds(view, &history.log, owner))
        };
        let whose = match numbered.iter().position(|tenure| tenure == owner) {
            _ if owner == myself && taken.get(&node) == Some(&record.value.epoch) => Whose::Here,
            _ if owner == myself => {
                owners.note_arriving();
                Whose::Nobody
            }
            Some(number) if view.lives(owner) && has_taken() => Whose::There(PeerId(number as u16)),
            _ => Whose::Nobody,
        };
        owners.set(node, whose, record.value.epoch);
    }
    owners
}

/// Asks the other nodes where clients of clusters reach them.
async fn ask_ports(mut view: View, myself: Tenure, keys: RemoteKeys, ports: watch::Sender<Ports>) {
    loop {
        let now = view.now();
        let others = now.nodes().map(|node| &node.tenure).filter(|tenure| **tenure != myself && is_host(&now, tenure));
        let others: Vec<Tenure> = others.cloned().collect();
        let unknown: Vec<Tenure> =
            others.iter().filter(|tenure| !ports.borrow().contains_key(*tenure)).cloned().collect();
        let mut is_known = true;
        for tenure in unknown {
            match port_of(&keys, &tenure.node).await {
                Some(port) => ports.send_modify(|ports| drop(ports.insert(tenure, port.map(Arc::new)))),
                None => is_known = false,
            }
        }
        ports.send_if_modified(|ports| {
            let before = ports.len();
            ports.retain(|tenure, _| others.contains(tenure));
            ports.len() < before
        });
        match is_known {
            true if !view.changed().await => return,
            true => {}
            false => tokio::time::sleep(PORT_PAUSE).await,
        }
    }
}

/// Where clients of clusters reach a node, if it says so by now.
async fn port_of(keys: &RemoteKeys, node: &NodeId) -> Option<Option<ClusterNode>> {
    /// One that does not answer keeps the others waiting.
    const TIME: Duration = Duration::from_secs(1);
    tokio::time::timeout(TIME, keys.cluster_port_of(node)).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use savanna_ownership::core::Request;
    use savanna_ownership::{MonoTime, Revision, ShardRecord};

    use super::super::grants::tests::{ALL, Cluster};
    use super::super::virtual_nodes::shard;
    use super::*;

    fn grant(cluster: &mut Cluster, node: u16, owner: &Tenure) {
        let record = ShardRecord::serving(owner.clone(), OwnerEpoch(1));
        let granted = Transition { shard: shard(node), expected: Revision::NONE, record, by: None };
        cluster.0.step(&Request::Apply(granted.into()), MonoTime(0)).reply.unwrap();
    }

    /// An owner says that the keys of virtual nodes are in a log of its own.
    fn take(cluster: &mut Cluster, nodes: &[u16], owner: &Tenure) {
        let new = NewLog::numbered(&owner.node, SERVICE, &(owner.epoch.0..owner.epoch.0 + 1)).unwrap();
        let log = new.id().clone();
        let begun = logs::begin(&cluster.view(), new, LogPlace::Folder(log.to_string()), owner.clone()).unwrap();
        cluster.0.step(&Request::Apply(begun.into()), MonoTime(0)).reply.unwrap();
        for node in nodes {
            let record = cluster.view().shard(&shard(*node)).unwrap().clone();
            let history = Some(History { log: log.clone(), epoch: record.value.epoch });
            let taken = Transition {
                shard: shard(*node),
                expected: record.version,
                record: record.value.with_history(history),
                by: Some(owner.clone()),
            };
            cluster.0.step(&Request::Apply(taken.into()), MonoTime(0)).reply.unwrap();
        }
    }

    #[test]
    fn what_is_granted_is_served_when_it_is_taken_and_other_nodes_keep_their_numbers() {
        let mut cluster = Cluster::new();
        let [n1, n2, n3] = ["n1", "n2", "n3"].map(|name| cluster.join(name, ALL));
        cluster.join("n4", "tenants");
        for (node, owner) in [(0, &n1), (1, &n1), (2, &n2), (3, &n3)] {
            grant(&mut cluster, node, owner);
        }
        let own = NewLog::numbered(&n1.node, SERVICE, &(1..2)).unwrap();
        let granted = Granted::of(&cluster.view(), &n1, own.id(), &Taken::new());
        assert_eq!(granted, Granted { new: vec![0, 1], ..Granted::default() });
        let granted = Granted::of(&cluster.view(), &n1, own.id(), &Taken::from([(0, OwnerEpoch(1))]));
        assert_eq!(granted, Granted { new: vec![1], ..Granted::default() }, "the view is behind: it is served");
        let (mut numbered, ports) = (Vec::new(), Ports::new());
        let mut told = |cluster: &Cluster, taken: &[u16]| {
            let taken = taken.iter().map(|node| (*node, OwnerEpoch(1))).collect();
            let owners = owners(&cluster.view(), &n1, &taken, &ports, &mut numbered);
            ([0, 1, 2, 3, 4].map(|node| owners.of(node)), owners)
        };
        let [two, three] = [0, 1].map(|number| Whose::There(PeerId(number)));
        assert_eq!(told(&cluster, &[]).0, [Whose::Nobody; 5], "nobody has said that its log has them");
        take(&mut cluster, &[2], &n2);
        take(&mut cluster, &[3], &n3);
        let (whose, owners) = told(&cluster, &[]);
        assert_eq!(whose, [Whose::Nobody, Whose::Nobody, two, three, Whose::Nobody]);
        assert!(owners.are_arriving());
        assert_eq!(told(&cluster, &[1]).0, [Whose::Nobody, Whose::Here, two, three, Whose::Nobody]);
        assert!(!told(&cluster, &[0, 1]).1.are_arriving());
        cluster.leave(n2.clone());
        let again = cluster.join("n2", ALL);
        grant(&mut cluster, 4, &again);
        take(&mut cluster, &[4], &again);
        let (whose, owners) = told(&cluster, &[1]);
        assert_eq!(whose, [Whose::Nobody, Whose::Here, Whose::Nobody, three, Whose::There(PeerId(2))]);
        assert!(owners.peer(PeerId(0)).is_some_and(|peer| !peer.is_there && peer.node == n2.node));
        assert_eq!(owners.peers().count(), 2, "who serves no keys is none of them");
    }
}
