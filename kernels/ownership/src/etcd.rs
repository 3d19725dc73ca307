//! The coordinator on an etcd cluster (API v3, 3.4 or later).
//!
//! ```text
//! <prefix>nodes/NAME    a node that holds its lease; the key hangs on an etcd lease and goes with it
//! <prefix>epochs/NAME   the newest epoch granted for the name; stays
//! <prefix>claims/NAME   the process that claims the name
//! <prefix>shards/NAME   a shard's record
//! <prefix>ids/NAME      the first id that has not been handed out
//! <prefix>roots/KEY     a root's bytes
//! ```
//!
//! Values are JSON, except roots, which are their bytes. A record's version is its key's mod-revision. Every change is one
//! transaction that compares the versions of all that the decision was based on; for a shard these include the node keys
//! of the tenures involved, so that a lease cannot end or begin between the decision and its effect.
//!
//! etcd before 3.4.31 (and 3.5 before 3.5.13) has a weakness in clusters of several members: a leader that stalls and is
//! replaced may still revoke leases early when it awakes. Exclusion in time is then not certain; owner epochs still keep
//! the old owner from writing. Run a later version in production.

mod codec;
mod nodes;
mod watch;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, GetResponse, KeyValue, KvClient, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use savanna_epoch::{NodeId, ShardId};

use crate::coordinator::{ChangeStream, ClaimOutcome, Coordinator, Grant, Snapshot};
use crate::error::{CoordinatorError, FIRST_ID, NameOf, check_name, check_root, next_ids};
use crate::event::RootValue;
use crate::record::{NodeRecord, NodeSpec, Revision, ShardRecord, Tenure, Transition, Versioned};
use crate::transition::{check_transition, tenures_of};

use codec::{Area, Keys, StoredNode, decode, encode, version_of};

/// How to reach and use an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// The members, as `host:port` or `http://host:port`.
    pub endpoints: Vec<String>,
    /// What all keys begin with; two clusters of nodes on one etcd need two prefixes. Ends with a slash.
    pub prefix: String,
    /// The ttl of node leases. etcd counts whole seconds, and has a minimum of its own.
    pub ttl: Duration,
    /// How long a request may take before it counts as unanswered.
    pub timeout: Duration,
}

impl EtcdOptions {
    /// The defaults for these members: prefix `/savanna/`, leases of 3 s, requests of 2 s.
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints, prefix: "/savanna/".to_owned(), ttl: Duration::from_secs(3), timeout: Duration::from_secs(2) }
    }
}

/// A coordinator that keeps everything in etcd; any number of them may run on one cluster.
#[derive(Clone)]
pub struct EtcdCoordinator {
    client: Client,
    keys: Keys,
    ttl: Duration,
}

impl std::fmt::Debug for EtcdCoordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdCoordinator").field("keys", &self.keys).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// The largest answer taken from etcd, in bytes: a snapshot of everything, or a batch of changes.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// How often a transaction is tried whose records change all the time under it, before it gives up.
const ATTEMPTS: usize = 32;

impl EtcdCoordinator {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// `Unavailable` if no member answers.
    pub async fn connect(options: EtcdOptions) -> Result<Self, CoordinatorError> {
        let connect = ConnectOptions::new()
            .with_connect_timeout(options.timeout)
            .with_timeout(options.timeout)
            .with_require_leader(true);
        let mut client = Client::connect(&options.endpoints, Some(connect)).await.map_err(CoordinatorError::from)?;
        // Connections are made lazily; find out now whether anybody is there.
        client.status().await.map_err(CoordinatorError::from)?;
        Ok(Self { client, keys: Keys::new(options.prefix), ttl: options.ttl })
    }

    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, CoordinatorError> {
        self.kv().txn(txn).await.map_err(CoordinatorError::from)
    }

    async fn get(&self, key: String) -> Result<Option<KeyValue>, CoordinatorError> {
        let mut response = self.kv().get(key, None).await.map_err(CoordinatorError::from)?;
        Ok(response.take_kvs().into_iter().next())
    }

    /// Reads several keys at one revision; absent ones are none.
    async fn get_all<const N: usize>(&self, keys: [String; N]) -> Result<[Option<KeyValue>; N], CoordinatorError> {
        let reads: Vec<TxnOp> = keys.into_iter().map(|key| TxnOp::get(key, None)).collect();
        let mut values = reads_of(&self.txn(Txn::new().and_then(reads)).await?).map(|mut read| read.take_kvs().pop());
        Ok(std::array::from_fn(|_| values.next().flatten()))
    }

    /// Reads a shard and the nodes that a change of it depends on, at one revision.
    async fn read_for(&self, transition: &Transition) -> Result<(Option<KeyValue>, Nodes), CoordinatorError> {
        let shard_key = self.keys.key(Area::Shards, &transition.shard.0);
        // The old record names nodes too, which are not known before it is read: read it, then all at once.
        let seen = self.get(shard_key.clone()).await?;
        let seen_record: Option<ShardRecord> = seen.as_ref().map(decode).transpose()?;
        let mut names: Vec<NodeId> = tenures_of(seen_record.as_ref(), &transition.record, transition.by.as_ref())
            .map(|t| t.node.clone())
            .collect();
        names.sort();
        names.dedup();
        let mut reads = vec![TxnOp::get(shard_key.clone(), None)];
        reads.extend(names.iter().map(|name| TxnOp::get(self.keys.key(Area::Nodes, &name.0), None)));
        // If the shard has changed meanwhile, its version is not the expected one or the commit's comparison fails.
        let response = self.txn(Txn::new().and_then(reads)).await?;
        let mut values = reads_of(&response).map(|mut read| read.take_kvs().pop());
        let shard = values.next().flatten();
        let nodes = names.into_iter().zip(values).collect();
        Ok((shard, nodes))
    }

    /// One attempt at a transition; none if something changed between reading and writing.
    async fn try_transition(&self, transition: &Transition) -> Result<Option<Revision>, CoordinatorError> {
        let (shard, nodes) = self.read_for(transition).await?;
        expect_version(shard.as_ref(), transition.expected, &transition.shard.0)?;
        let old: Option<ShardRecord> = shard.as_ref().map(decode).transpose()?;
        let mut living: BTreeMap<NodeId, NodeRecord> = BTreeMap::new();
        for (name, node) in &nodes {
            if let Some(node) = node {
                living.insert(name.clone(), decode::<StoredNode>(node)?.record);
            }
        }
        check_transition(old.as_ref(), &transition.record, transition.by.as_ref(), |tenure| {
            living.get(&tenure.node).is_some_and(|node| node.tenure == *tenure)
        })
        .map_err(|source| CoordinatorError::Transition { shard: transition.shard.0.clone(), source })?;

        let shard_key = self.keys.key(Area::Shards, &transition.shard.0);
        let mut unchanged = vec![at_version(shard_key.clone(), shard.as_ref())];
        unchanged
            .extend(nodes.iter().map(|(name, node)| at_version(self.keys.key(Area::Nodes, &name.0), node.as_ref())));
        let write = TxnOp::put(shard_key, encode(&transition.record), None);
        self.commit(unchanged, vec![write]).await
    }

    /// Writes if nothing changed; returns the revision, or none if something did.
    async fn commit(&self, unchanged: Vec<Compare>, writes: Vec<TxnOp>) -> Result<Option<Revision>, CoordinatorError> {
        let response = self.txn(Txn::new().when(unchanged).and_then(writes)).await?;
        Ok(response.succeeded().then(|| header_revision(response.header())))
    }

    /// Changes a root that is at the expected version.
    async fn change_root(&self, key: &str, expected: Revision, write: TxnOp) -> Result<Revision, CoordinatorError> {
        for _ in 0..ATTEMPTS {
            let root_key = self.keys.key(Area::Roots, key);
            let compare = Compare::mod_revision(root_key.clone(), CompareOp::Equal, expected.0.cast_signed());
            if let Some(revision) = self.commit(vec![compare], vec![write.clone()]).await? {
                return Ok(revision);
            }
            expect_version(self.get(root_key).await?.as_ref(), expected, key)?;
        }
        Err(too_busy(key))
    }
}

/// The node keys that a decision read, by name.
type Nodes = Vec<(NodeId, Option<KeyValue>)>;

fn reads_of(response: &TxnResponse) -> impl Iterator<Item = GetResponse> + use<> {
    response.op_responses().into_iter().filter_map(|response| match response {
        TxnOpResponse::Get(read) => Some(read),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    })
}

/// Holds while the key is as it was read; absent keys have mod-revision 0.
fn at_version(key: String, read: Option<&KeyValue>) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, read.map_or(0, KeyValue::mod_revision))
}

fn header_revision(header: Option<&etcd_client::ResponseHeader>) -> Revision {
    Revision(header.map_or(0, |header| header.revision().cast_unsigned()))
}

fn expect_version(read: Option<&KeyValue>, expected: Revision, record: &str) -> Result<(), CoordinatorError> {
    let current = read.map_or(Revision::NONE, version_of);
    if current == expected {
        Ok(())
    } else {
        Err(CoordinatorError::Conflict { record: record.to_owned(), expected, current })
    }
}

fn too_busy(record: &str) -> CoordinatorError {
    CoordinatorError::Unavailable { reason: format!("`{record}` changed {ATTEMPTS} times while it was being changed") }
}

#[async_trait]
impl Coordinator for EtcdCoordinator {
    async fn register(&self, spec: &NodeSpec) -> Result<Grant, CoordinatorError> {
        self.register_node(spec).await
    }

    async fn claim(&self, spec: &NodeSpec) -> Result<ClaimOutcome, CoordinatorError> {
        self.claim_node(spec).await
    }

    async fn heartbeat(&self, tenure: &Tenure) -> Result<Duration, CoordinatorError> {
        self.renew_node(tenure).await
    }

    async fn deregister(&self, tenure: &Tenure) -> Result<(), CoordinatorError> {
        self.end_node(tenure).await
    }

    async fn snapshot(&self) -> Result<Snapshot, CoordinatorError> {
        let areas = [Area::Nodes, Area::Shards, Area::Roots];
        let reads: Vec<TxnOp> =
            areas.iter().map(|area| TxnOp::get(self.keys.area(*area), Some(GetOptions::new().with_prefix()))).collect();
        let response = self.txn(Txn::new().and_then(reads)).await?;
        let mut snapshot = Snapshot { revision: header_revision(response.header()), ..Snapshot::default() };
        for (area, read) in areas.into_iter().zip(reads_of(&response)) {
            for kv in read.kvs() {
                let name = self.keys.name(area, kv)?;
                let version = version_of(kv);
                match area {
                    Area::Nodes => snapshot.nodes.push(decode::<StoredNode>(kv)?.record),
                    Area::Shards => {
                        snapshot.shards.push((ShardId(name), Versioned { version, value: decode(kv)? }));
                    }
                    _ => snapshot.roots.push((name, Versioned { version, value: RootValue(kv.value().to_vec()) })),
                }
            }
        }
        Ok(snapshot)
    }

    async fn shard(&self, shard: &ShardId) -> Result<Option<Versioned<ShardRecord>>, CoordinatorError> {
        let read = self.get(self.keys.key(Area::Shards, &shard.0)).await?;
        read.map(|kv| Ok(Versioned { version: version_of(&kv), value: decode(&kv)? })).transpose()
    }

    async fn transition(&self, transition: &Transition) -> Result<Revision, CoordinatorError> {
        check_name(NameOf::Shard, &transition.shard.0)?;
        for _ in 0..ATTEMPTS {
            if let Some(revision) = self.try_transition(transition).await? {
                return Ok(revision);
            }
        }
        Err(too_busy(&transition.shard.0))
    }

    async fn allocate(&self, name: &str, count: u64) -> Result<Range<u64>, CoordinatorError> {
        check_name(NameOf::Ids, name)?;
        let key = self.keys.key(Area::Ids, name);
        for _ in 0..ATTEMPTS {
            let read = self.get(key.clone()).await?;
            let next: u64 = read.as_ref().map(decode).transpose()?.unwrap_or(FIRST_ID);
            let ids = next_ids(name, next, count)?;
            let write = TxnOp::put(key.clone(), encode(&ids.end), None);
            if self.commit(vec![at_version(key.clone(), read.as_ref())], vec![write]).await?.is_some() {
                return Ok(ids);
            }
        }
        Err(too_busy(name))
    }

    async fn root(&self, key: &str) -> Result<Option<Versioned<RootValue>>, CoordinatorError> {
        let read = self.get(self.keys.key(Area::Roots, key)).await?;
        Ok(read.map(|kv| Versioned { version: version_of(&kv), value: RootValue(kv.value().to_vec()) }))
    }

    async fn put_root(&self, key: &str, expected: Revision, value: RootValue) -> Result<Revision, CoordinatorError> {
        check_root(key, &value.0)?;
        let write = TxnOp::put(self.keys.key(Area::Roots, key), value.0, None);
        self.change_root(key, expected, write).await
    }

    async fn delete_root(&self, key: &str, expected: Revision) -> Result<Revision, CoordinatorError> {
        check_name(NameOf::Root, key)?;
        if expected == Revision::NONE {
            let current = self.get(self.keys.key(Area::Roots, key)).await?.as_ref().map_or(Revision::NONE, version_of);
            return Err(CoordinatorError::Conflict { record: key.to_owned(), expected, current });
        }
        let write = TxnOp::delete(self.keys.key(Area::Roots, key), None);
        self.change_root(key, expected, write).await
    }

    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        self.watch_changes(since).await
    }
}
