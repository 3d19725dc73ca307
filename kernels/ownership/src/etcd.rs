//! The coordinator on an etcd cluster (API v3, 3.4 or later).
//!
//! ```text
//! <prefix>nodes/NAME    a node that holds its lease; the key hangs on an etcd lease and goes with it
//! <prefix>epochs/NAME   the newest epoch granted for the name; stays
//! <prefix>claims/NAME   the process that claims the name
//! <prefix>shards/NAME   a shard's record
//! <prefix>ids/NAME      the first id that has not been handed out
//! <prefix>roots/KEY     a root's bytes
//! <prefix>format        the format of all these
//! ```
//!
//! Values are JSON, except roots, which are their bytes. A record's version is its key's mod-revision. Every change is one
//! transaction that compares the versions of all that the decision was based on; for shards these include the node keys
//! of the tenures involved, so that a lease cannot end or begin between the decision and its effect, and the records of the logs that new
//! histories name.
//!
//! The format is compared in every transaction and when a coordinator connects, which refuses records without one. A release that keeps its records otherwise, or knows more of
//! them, writes another format: the nodes of both never write on one etcd, for one would write back records without what it does not know.
//!
//! etcd before 3.4.31 (and 3.5 before 3.5.13) has a weakness in clusters of several members: a leader that stalls and is
//! replaced may still revoke leases early when it awakes. Exclusion in time is then not certain; owner epochs still keep
//! the old owner from writing. Run a later version in production.

mod access;
mod codec;
mod members;
mod nodes;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, GetResponse, KeyValue, KvClient, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use savanna_epoch::{LogId, NodeId, ShardId};

use crate::batch::{Batch, Expected, check_batch, expect_root, expect_root_version, expect_version};
use crate::coordinator::{ChangeStream, ClaimOutcome, Coordinator, Grant, Snapshot};
use crate::error::{CoordinatorError, FIRST_ID, NameOf, check_name, next_ids};
use crate::event::RootValue;
use crate::logs;
use crate::record::{NodeRecord, NodeSpec, Revision, ShardRecord, Tenure, Versioned};
use crate::transition::{check_transition, log_of, tenures_of};

pub use access::{EtcdLogin, EtcdTls, EtcdTlsError};
use codec::{Area, Keys, StoredNode, decode, encode, version_of};

/// How to reach and use an etcd cluster.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The members, as `host:port`, or without TLS as `http://host:port`.
    pub endpoints: Vec<String>,
    /// What all keys begin with; two clusters of nodes on one etcd need two prefixes. Ends with a slash.
    pub prefix: String,
    /// The ttl of node leases. etcd counts whole seconds, and has a minimum of its own.
    pub ttl: Duration,
    /// How long a request may take before it counts as unanswered.
    pub timeout: Duration,
    /// What encrypts connections; none where they are not encrypted.
    pub tls: Option<EtcdTls>,
    /// The user whom etcd knows the node by; none where it has no users, or takes the common name of the certificate for the user.
    pub login: Option<EtcdLogin>,
}

impl EtcdOptions {
    /// The defaults for these members: prefix `/savanna/`, leases of 3 s, requests of 2 s, no encryption and no user.
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> Self {
        let [ttl, timeout] = [3, 2].map(Duration::from_secs);
        Self { endpoints, prefix: "/savanna/".to_owned(), ttl, timeout, tls: None, login: None }
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

/// How long a connection with requests on it may be quiet before it is asked whether anybody is there. etcd closes those that ask more often than every
/// 5 s, or without any request (`--grpc-keepalive-min-time`).
const PING_EVERY: Duration = Duration::from_secs(10);

/// The format of the records. One more when an earlier release would do harm to them.
const FORMAT: &str = "1";

/// How often a transaction is tried whose records change all the time under it, before it gives up.
const ATTEMPTS: usize = 32;

impl EtcdCoordinator {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// `Unavailable` if no member answers, `Refused` if etcd does not let the node in, `Invalid` for addresses that are none.
    pub async fn connect(options: EtcdOptions) -> Result<Self, CoordinatorError> {
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(options.timeout)
            .with_timeout(options.timeout)
            // A watch waits for ever; that nobody is at its other end any more is noticed by this alone.
            .with_keep_alive(PING_EVERY, options.timeout)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true);
        if let Some(EtcdLogin { user, password }) = &options.login {
            // Tokens run out when they are not used, and an etcd that starts again knows none.
            connect = connect.with_user(user, password).with_auto_token_refresh(true);
        }
        let connected = match &options.tls {
            Some(tls) => Client::from_channel(members::connect(&options, tls)?, Some(connect)).await,
            None => Client::connect(&options.endpoints, Some(connect)).await,
        };
        let mut client = connected.map_err(|error| access::unconnected(&error))?;
        // Connections are made lazily; find out now whether anybody is there.
        client.status().await.map_err(|error| access::unconnected(&error))?;
        let coordinator = Self { client, keys: Keys::new(options.prefix), ttl: options.ttl };
        coordinator.agree_on_format().await?;
        Ok(coordinator)
    }

    /// Writes the format if there is nothing, and fails if there is another, or if there are records and no format.
    async fn agree_on_format(&self) -> Result<(), CoordinatorError> {
        let key = self.keys.format();
        let is_empty = |area| Compare::mod_revision(self.keys.area(area), CompareOp::Equal, 0).with_prefix();
        let mut is_first: Vec<Compare> = Area::ALL.into_iter().map(is_empty).collect();
        is_first.push(at_version(key.clone(), None));
        let write = vec![TxnOp::put(key.clone(), FORMAT, None)];
        let txn = Txn::new().when(is_first).and_then(write).or_else(vec![TxnOp::get(key, None)]);
        let response = self.kv().txn(txn).await.map_err(|error| access::unconnected(&error))?;
        if response.succeeded() { Ok(()) } else { self.expect_format(&response) }
    }

    /// Fails unless the format was read that this release knows.
    fn expect_format(&self, read: &TxnResponse) -> Result<(), CoordinatorError> {
        let format = reads_of(read).find_map(|mut read| read.take_kvs().pop());
        let found = format.as_ref().map_or(&b"none"[..], KeyValue::value);
        if found == FORMAT.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(found).into_owned();
        Err(CoordinatorError::Format { place: self.keys.prefix().to_owned(), supported: FORMAT.to_owned(), found })
    }

    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, CoordinatorError> {
        let mut answer = self.kv().txn(txn.clone()).await;
        if let Err(error) = &answer
            && access::wants_new_token(error)
        {
            // Nothing of it was done. The client has a new token by itself only when one is unknown, not when it is from before a change of etcd's users.
            self.client.refresh_token().await.map_err(CoordinatorError::from)?;
            answer = self.kv().txn(txn).await;
        }
        answer.map_err(CoordinatorError::from)
    }

    async fn get(&self, key: String) -> Result<Option<KeyValue>, CoordinatorError> {
        let mut response = self.kv().get(key, None).await.map_err(CoordinatorError::from)?;
        Ok(response.take_kvs().into_iter().next())
    }

    /// Reads several keys at one revision; absent ones are none.
    async fn get_all(&self, reads: Vec<TxnOp>) -> Result<Vec<Option<KeyValue>>, CoordinatorError> {
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        let response = self.txn(Txn::new().and_then(reads)).await?;
        Ok(reads_of(&response).map(|mut read| read.take_kvs().pop()).collect())
    }

    /// Reads what a batch changes and the nodes that it depends on, at one revision.
    async fn read_for(&self, batch: &Batch) -> Result<Read, CoordinatorError> {
        let shard_keys: Vec<String> =
            batch.transitions.iter().map(|change| self.keys.key(Area::Shards, &change.shard.0)).collect();
        let root_keys: Vec<String> = batch.roots.iter().map(|root| self.keys.key(Area::Roots, &root.key)).collect();
        // The old records name nodes and logs too, which are not known before they are read: read them, then all at once.
        let seen = self.get_all(shard_keys.iter().map(|key| TxnOp::get(key.clone(), None)).collect()).await?;
        let (mut names, mut logs) = (BTreeSet::new(), BTreeSet::new());
        for (change, seen) in batch.transitions.iter().zip(&seen) {
            let old: Option<ShardRecord> = seen.as_ref().map(decode).transpose()?;
            let tenures = tenures_of(old.as_ref(), &change.record, change.by.as_ref());
            names.extend(tenures.map(|tenure| tenure.node.clone()));
            logs.extend(log_of(old.as_ref(), &change.record, change.by.as_ref()).cloned());
        }
        check_compares(shard_keys.len() + root_keys.len() + batch.expects.len(), names.len(), logs.len())?;
        let keys_only = GetOptions::new().with_keys_only();
        let root = |key: &str| TxnOp::get(self.keys.key(Area::Roots, key), None);
        let mut reads: Vec<TxnOp> = shard_keys.into_iter().map(|key| TxnOp::get(key, None)).collect();
        reads.extend(root_keys.into_iter().map(|key| TxnOp::get(key, Some(keys_only.clone()))));
        reads.extend(batch.expects.iter().map(|expectation| match expectation.expected {
            Expected::Version(_) => TxnOp::get(self.keys.key(Area::Roots, &expectation.key), Some(keys_only.clone())),
            Expected::Value(_) => root(&expectation.key),
        }));
        reads.extend(logs.iter().map(|log| root(&logs::key(log))));
        reads.extend(names.iter().map(|name| TxnOp::get(self.keys.key(Area::Nodes, &name.0), None)));
        // If a shard has changed meanwhile, its version is not the expected one or the commit's comparison fails.
        let mut rest = self.get_all(reads).await?.into_iter();
        Ok(Read {
            shards: rest.by_ref().take(batch.transitions.len()).collect(),
            roots: rest.by_ref().take(batch.roots.len()).collect(),
            expected: rest.by_ref().take(batch.expects.len()).collect(),
            logs: logs.into_iter().zip(rest.by_ref()).collect(),
            nodes: names.into_iter().zip(rest).collect(),
        })
    }

    /// One attempt at a batch; none if something changed between reading and writing.
    async fn try_batch(&self, batch: &Batch) -> Result<Option<Revision>, CoordinatorError> {
        let read = self.read_for(batch).await?;
        for (change, shard) in batch.transitions.iter().zip(&read.shards) {
            expect_version(shard.as_ref().map(version_of), change.expected, &change.shard.0)?;
        }
        for (change, root) in batch.roots.iter().zip(&read.roots) {
            expect_root_version(root.as_ref().map(version_of), change)?;
        }
        for (expectation, root) in batch.expects.iter().zip(&read.expected) {
            expect_root(root.as_ref().map(|kv| (version_of(kv), kv.value())), expectation)?;
        }
        let mut living: BTreeMap<NodeId, NodeRecord> = BTreeMap::new();
        for (name, node) in &read.nodes {
            if let Some(node) = node {
                living.insert(name.clone(), decode::<StoredNode>(node)?.record);
            }
        }
        let mut unchanged = Vec::new();
        let mut writes = Vec::new();
        for (change, shard) in batch.transitions.iter().zip(&read.shards) {
            let old: Option<ShardRecord> = shard.as_ref().map(decode).transpose()?;
            let lives = |tenure: &Tenure| living.get(&tenure.node).is_some_and(|node| node.tenure == *tenure);
            let holds = |tenure: &Tenure, log: &LogId| {
                let root = read.logs.get(log).and_then(Option::as_ref);
                !batch.changes_root(&logs::key(log)) && logs::is_held(root.map(KeyValue::value), tenure)
            };
            check_transition(old.as_ref(), &change.record, change.by.as_ref(), lives, holds)
                .map_err(|source| CoordinatorError::Transition { shard: change.shard.0.clone(), source })?;
            let key = self.keys.key(Area::Shards, &change.shard.0);
            unchanged.push(at_version(key.clone(), shard.as_ref()));
            writes.push(TxnOp::put(key, encode(&change.record), None));
        }
        for (change, root) in batch.roots.iter().zip(&read.roots) {
            let key = self.keys.key(Area::Roots, &change.key);
            unchanged.push(at_version(key.clone(), root.as_ref()));
            writes.push(match &change.value {
                Some(value) => TxnOp::put(key, value.0.clone(), None),
                None => TxnOp::delete(key, None),
            });
        }
        for (expectation, root) in batch.expects.iter().zip(&read.expected) {
            unchanged.push(at_version(self.keys.key(Area::Roots, &expectation.key), root.as_ref()));
        }
        for (log, root) in &read.logs {
            unchanged.push(at_version(self.keys.key(Area::Roots, &logs::key(log)), root.as_ref()));
        }
        let nodes = read.nodes.iter();
        unchanged.extend(nodes.map(|(name, node)| at_version(self.keys.key(Area::Nodes, &name.0), node.as_ref())));
        self.commit(unchanged, writes).await
    }

    /// Writes if nothing changed; returns the revision, or none if something did.
    async fn commit(
        &self,
        mut unchanged: Vec<Compare>,
        writes: Vec<TxnOp>,
    ) -> Result<Option<Revision>, CoordinatorError> {
        let format = self.keys.format();
        unchanged.push(Compare::value(format.clone(), CompareOp::Equal, FORMAT));
        let txn = Txn::new().when(unchanged).and_then(writes).or_else(vec![TxnOp::get(format, None)]);
        let response = self.txn(txn).await?;
        if response.succeeded() {
            return Ok(Some(header_revision(response.header())));
        }
        self.expect_format(&response)?;
        Ok(None)
    }
}

/// What a decision about a batch is based on, in the batch's order; absent keys are none.
struct Read {
    shards: Vec<Option<KeyValue>>,
    /// Without their values.
    roots: Vec<Option<KeyValue>>,
    expected: Vec<Option<KeyValue>>,
    logs: BTreeMap<LogId, Option<KeyValue>>,
    nodes: Vec<(NodeId, Option<KeyValue>)>,
}

/// Comparisons in one transaction, unless etcd is told otherwise (`--max-txn-ops`).
const MAX_COMPARES: usize = 128;

fn check_compares(records: usize, nodes: usize, logs: usize) -> Result<(), CoordinatorError> {
    // The format is compared too.
    if records + nodes + logs < MAX_COMPARES {
        return Ok(());
    }
    Err(CoordinatorError::Invalid {
        expected: format!(
            "a batch of less than {MAX_COMPARES} records, and nodes and logs that they name, which etcd compares at once"
        ),
        came: format!("{records} records, {nodes} nodes and {logs} logs"),
        advice: "make several batches of it".to_owned(),
    })
}

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

    async fn apply(&self, batch: &Batch) -> Result<Revision, CoordinatorError> {
        check_batch(batch)?;
        for _ in 0..ATTEMPTS {
            if let Some(revision) = self.try_batch(batch).await? {
                return Ok(revision);
            }
        }
        Err(too_busy("a record of the batch"))
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

    async fn watch(&self, since: Revision) -> Result<ChangeStream, CoordinatorError> {
        self.watch_changes(since).await
    }
}
