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
use savanna_epoch::{LogId, NodeEpoch, NodeId};
use savanna_journal::Options as JournalOptions;
use savanna_keys::cluster::ClusterNode;
use savanna_keys::cluster::owners::{Owners, Peer, PeerId, Whose};
use savanna_keys_host::Hearer;
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState, NewLog};
use savanna_ownership::{Batch, ClusterView, CoordinatorError, History, Tenure, Transition};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Joined;
use super::histories::TakeError;
use super::shared::PlaceError;
use super::view::View;
use super::virtual_nodes::{PREFIX, SERVICE, is_host, node_of};
use crate::remote::RemoteKeys;

/// What was not done is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);
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
    pub(crate) fn has_shares(self: &Arc<Self>, hearer: &Hearer, log: LogId, keys: RemoteKeys) -> JoinSet<()> {
        let (taken, known) = watch::channel(BTreeSet::new());
        let (ports, told) = watch::channel(BTreeMap::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(tell_owners(self.view.clone(), self.tenure.clone(), hearer.clone(), known, told));
        tasks.spawn(ask_ports(self.view.clone(), self.tenure.clone(), keys, ports));
        tasks.spawn(Arc::clone(self).take_shares(hearer.clone(), log, taken));
        tasks
    }

    /// Takes what this node is granted.
    async fn take_shares(self: Arc<Self>, hearer: Hearer, own: LogId, taken: watch::Sender<BTreeSet<u16>>) {
        let mut view = self.view.clone();
        loop {
            let now = view.now();
            let granted = Granted::of(&now, &self.tenure, &own);
            taken.send_if_modified(|known| {
                let before = known.len();
                known.extend(granted.here.iter().copied());
                known.len() > before
            });
            let mut is_done = true;
            if !granted.new.is_empty() {
                is_done &= self.take(&now, &granted.new, &own, &taken).await;
            }
            for (log, nodes) in granted.elsewhere {
                is_done &= self.adopt(&now, &hearer, &log, &nodes).await && self.take(&now, &nodes, &own, &taken).await;
            }
            match is_done {
                true if !view.changed().await => return,
                true => {}
                false => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Reads what a log that has ended has of virtual nodes, into the node's own. Says whether it did.
    async fn adopt(&self, view: &ClusterView, hearer: &Hearer, log: &LogId, nodes: &[u16]) -> bool {
        let Ok(Some((_, record))) = logs::get(view, log) else {
            tracing::error!(%log, "expected a record of the log that has keys which this node was granted, found none that can be read");
            return false;
        };
        if record.state != LogState::Sealed {
            return false;
        }
        let (shared, hearer, epoch) = (self.shared.clone(), hearer.clone(), record.seal_epoch());
        let (place, wanted): (LogPlace, BTreeSet<u16>) = (record.place, nodes.iter().copied().collect());
        let reading = move || -> Result<usize, String> {
            let sealed = shared.seal(&place, epoch).map_err(|error| error.to_string())?;
            hearer.adopt(&sealed, &|node| wanted.contains(&node)).map_err(|error| error.to_string())
        };
        match tokio::task::spawn_blocking(reading).await {
            Ok(Ok(keys)) => {
                tracing::info!(%log, nodes = nodes.len(), keys, "keys of a node that is gone are here now");
                true
            }
            Ok(Err(error)) => {
                tracing::error!(%log, error, "keys that were granted to this node are not here yet; it is tried again");
                false
            }
            Err(error) => {
                tracing::error!(%log, %error, "keys that were granted to this node are not here yet; it is tried again");
                false
            }
        }
    }

    /// Says that the keys of virtual nodes are in the own log, which has all of them; then they are served. Says whether all were told.
    async fn take(&self, view: &ClusterView, nodes: &[u16], own: &LogId, taken: &watch::Sender<BTreeSet<u16>>) -> bool {
        let transition = |node: &u16| {
            let shard = super::virtual_nodes::shard(*node);
            let record = view.shard(&shard)?;
            let epoch = record.value.epoch_of(&self.tenure)?;
            let history = Some(History { log: own.clone(), epoch });
            let (expected, record) = (record.version, record.value.clone().with_history(history));
            Some((*node, Transition { shard, expected, record, by: Some(self.tenure.clone()) }))
        };
        let transitions: Vec<(u16, Transition)> = nodes.iter().filter_map(transition).collect();
        let mut is_done = transitions.len() == nodes.len();
        for some in transitions.chunks(GRANTS_PER_BATCH) {
            let batch = Batch {
                transitions: some.iter().map(|(_, transition)| transition.clone()).collect(),
                ..Batch::default()
            };
            match self.coordinator.apply(&batch).await {
                Ok(_) => taken.send_modify(|taken| taken.extend(some.iter().map(|(node, _)| *node))),
                Err(error) => {
                    tracing::debug!(%error, "whose keys this node has is not known to all yet; it is said again");
                    is_done = false;
                }
            }
        }
        is_done
    }
}

/// What a node is granted, by where its keys are.
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
    fn of(view: &ClusterView, tenure: &Tenure, own: &LogId) -> Self {
        let mut granted = Self::default();
        for (shard, record) in view.shards(PREFIX) {
            let (Some(node), Some(_)) = (node_of(shard), record.value.epoch_of(tenure)) else { continue };
            match &record.value.history {
                None => granted.new.push(node),
                Some(history) if history.log == *own => granted.here.push(node),
                Some(history) => granted.elsewhere.entry(history.log.clone()).or_default().push(node),
            }
        }
        granted
    }
}

/// Where clients of clusters reach other nodes, as these have said.
type Ports = BTreeMap<Tenure, Option<Arc<ClusterNode>>>;

/// Tells the service who has which virtual node, whenever that changes.
async fn tell_owners(
    mut view: View,
    tenure: Tenure,
    hearer: Hearer,
    mut taken: watch::Receiver<BTreeSet<u16>>,
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
fn owners(
    view: &ClusterView,
    myself: &Tenure,
    taken: &BTreeSet<u16>,
    ports: &Ports,
    numbered: &mut Vec<Tenure>,
) -> Owners {
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
    for (shard, record) in view.shards(PREFIX) {
        let (Some(node), Some(owner)) = (node_of(shard), record.value.owner()) else { continue };
        let whose = match numbered.iter().position(|tenure| tenure == owner) {
            _ if owner == myself && taken.contains(&node) => Whose::Here,
            Some(number) if view.lives(owner) => Whose::There(PeerId(number as u16)),
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
    use savanna_epoch::OwnerEpoch;
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

    #[test]
    fn what_is_granted_is_served_when_it_is_taken_and_other_nodes_keep_their_numbers() {
        let mut cluster = Cluster::new();
        let [n1, n2, n3] = ["n1", "n2", "n3"].map(|name| cluster.join(name, ALL));
        cluster.join("n4", "tenants");
        for (node, owner) in [(0, &n1), (1, &n1), (2, &n2), (3, &n3)] {
            grant(&mut cluster, node, owner);
        }
        let own = NewLog::numbered(&n1.node, SERVICE, &(1..2)).unwrap();
        let granted = Granted::of(&cluster.view(), &n1, own.id());
        assert_eq!(granted, Granted { new: vec![0, 1], ..Granted::default() });
        let (mut numbered, ports) = (Vec::new(), Ports::new());
        let mut told = |cluster: &Cluster, taken: &[u16]| {
            let owners = owners(&cluster.view(), &n1, &taken.iter().copied().collect(), &ports, &mut numbered);
            ([0, 1, 2, 3, 4].map(|node| owners.of(node)), owners)
        };
        let [two, three] = [0, 1].map(|number| Whose::There(PeerId(number)));
        assert_eq!(told(&cluster, &[]).0, [Whose::Nobody, Whose::Nobody, two, three, Whose::Nobody]);
        assert_eq!(told(&cluster, &[1]).0, [Whose::Nobody, Whose::Here, two, three, Whose::Nobody]);
        cluster.leave(n2.clone());
        let again = cluster.join("n2", ALL);
        grant(&mut cluster, 4, &again);
        let (whose, owners) = told(&cluster, &[1]);
        assert_eq!(whose, [Whose::Nobody, Whose::Here, Whose::Nobody, three, Whose::There(PeerId(2))]);
        assert!(owners.peer(PeerId(0)).is_some_and(|peer| !peer.is_there && peer.node == n2.node));
        assert_eq!(owners.peers().count(), 2, "who serves no keys is none of them");
    }
}
