//! The tenants service: a host of the engine, and a face in front of it, in threads of their own.

use std::{collections::BTreeMap, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use savanna_epoch::{NodeId, ShardId};
use savanna_files_host::OWN;
use savanna_http::types::{Decision, Decisions, Move, MoveTechnique, NewMove, NewMovesAsleep, Tenant};
use savanna_http::{Backup, Problem, TenantsHandle};
use savanna_identity::SecretError;
use savanna_ownership::logs::LogPlace;
use savanna_pgwire_tenants::{Admission, Listener, Server, ServerError, ServerOptions};
use savanna_tenants_host::budget::{Amounts, Resource};
use savanna_tenants_host::shards;
use savanna_tenants_host::{
    Counts, Host, HostError, HostOptions, Keeping, Member, SqlError, Stopper, TenantId, Tenants,
};
use tokio::runtime::Handle;

use crate::{
    cluster::{
        Decided, Joined,
        databases::LogError,
        key_moves::{self, NotMoved},
        moves::{Costs, Moves, Report, TOGETHER, Way},
        shared::PlaceError,
        virtual_nodes,
    },
    config::{NodeConfig, threads_or_cores},
    data_dir::{create_private, high_water},
    membership::Membership,
    places::{clients_max, spill_files},
};

/// Why the tenants service did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TenantsError {
    /// The file of administrators cannot be used.
    #[error("auth.users: {0}")]
    Users(#[from] SecretError),
    /// The directory could not be made.
    #[error("the directory {path} could not be created: {source}; check the permissions of the data directory")]
    Directory { path: PathBuf, source: io::Error },
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The host did not start.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The node has no log for them.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Nor a place for it.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Tenants that run, with a port or for this process alone.
#[derive(Debug)]
pub(crate) enum Running {
    Served(Server),
    Inside(Host),
}

impl Running {
    pub(crate) const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Served(server) => Some(server.address()),
            Self::Inside(_) => None,
        }
    }

    pub(crate) fn stopper(&self) -> Stopper {
        match self {
            Self::Served(server) => server.stopper(),
            Self::Inside(host) => host.stopper(),
        }
    }

    /// Waits until they are stopped, or cannot go on. Blocks.
    pub(crate) fn wait(self) -> Result<(), ServerError> {
        match self {
            Self::Served(server) => server.wait(),
            Self::Inside(host) => {
                let tenants = host.tenants();
                Handle::current().block_on(async move { tenants.stopped().await });
                Ok(host.stop()?)
            }
        }
    }
}

/// Reads the log in the data directory and serves. Blocks while it reads.
pub(crate) fn start(config: &NodeConfig, membership: &Membership) -> Result<(Running, Tenants), TenantsError> {
    let listener = config.runs("tenants").then(|| listen(config)).transpose()?;
    let place = LogPlace::Folder("tenants/log".to_owned());
    let joining = Member::join(Arc::clone(&membership.coordinator), membership.tenure.clone(), place);
    let member = Handle::current().block_on(joining).map_err(SqlError::from).map_err(HostError::from)?;
    let keeping = Keeping { only_read: Some(OWN.to_owned()), ..keeping(config)? };
    let host = Host::start(HostOptions {
        keeping,
        member,
        epoch: membership.log_epoch,
        threads: threads_or_cores(config.tenants_threads).into(),
        lease: Some(membership.guard.clone()),
        others: None,
    })?;
    let tenants = host.tenants();
    let running = match listener {
        Some(listener) => Running::Served(listener.serve(host)?),
        None => Running::Inside(host),
    };
    Ok((running, tenants))
}

/// Reads the log of this node and serves what it has, and clients of what others have. Blocks while it reads.
pub(crate) fn start_among(config: &NodeConfig, joined: &Arc<Joined>) -> Result<(Running, Tenants), TenantsError> {
    let listener = listen(config)?;
    let (member, place) = Handle::current().block_on(joined.tenants_log())?;
    let shared = joined.shared();
    let mut keeping = Keeping { log: Some(shared.log(&place)?), ..keeping(config)? };
    if keeping.store.is_none() {
        keeping.store = shared.rows()?;
    }
    let host = Host::start(HostOptions {
        keeping,
        epoch: shared.epoch_above(&place, member.tenure.epoch)?,
        member,
        threads: threads_or_cores(config.tenants_threads).into(),
        lease: Some(joined.guard()),
        others: Some(Arc::clone(joined.front()) as _),
    })?;
    let tenants = host.tenants();
    Ok((Running::Served(listener.serve_among(host, Arc::clone(joined.front()))?), tenants))
}

/// Listens. Clients wait from then on.
pub(crate) fn listen(config: &NodeConfig) -> Result<Listener, TenantsError> {
    Ok(Listener::bind(ServerOptions {
        listen: SocketAddr::new(config.address, config.tenants_port),
        tls: config.tenants_tls.clone(),
        admission: Admission {
            users: config.administrators()?,
            requires_tls: config.tenants_requires_tls,
            clients_max: places(config),
        },
    })?)
}

/// How many clients may be here at once.
pub(crate) fn places(config: &NodeConfig) -> usize {
    clients_max(config, "tenants", config.tenants_max_clients)
}

/// The log is always in the data directory.
fn keeping(config: &NodeConfig) -> Result<Keeping, TenantsError> {
    let directory = config.data_dir.join("tenants");
    create_private(&directory).map_err(|source| TenantsError::Directory { path: directory.clone(), source })?;
    let mut keeping = Keeping::local(directory);
    keeping.high_water = Some(high_water(&config.data_dir, "tenants"));
    keeping.snapshot_age = config.tenants_snapshot_age;
    keeping.idle = config.tenants_idle;
    keeping.rows_bytes = config.tenants_rows_memory as u64;
    keeping.blocks_bytes = config.tenants_blocks_memory;
    keeping.log_distance = config.tenants_log_distance as u64;
    keeping.patience = config.tenants_patience;
    let cpu = keeping.per_second[Resource::Cpu];
    keeping.per_second = Amounts::new(cpu, config.tenants_log_rate as u64, config.tenants_store_rate as u64);
    keeping.statements_bytes = config.tenants_statements_memory.unwrap_or(keeping.statements_bytes);
    keeping.operator_rows = operator_rows();
    keeping.spills = config.tenants_spills || keeping.operator_rows.is_some();
    keeping.spill_bytes = config.tenants_spill_limit as u64;
    keeping.spill_files = spill_files();
    keeping.transactions.most = config.tenants_transaction_limit;
    keeping.transactions.parts_from = parts_from().unwrap_or(keeping.transactions.parts_from);
    if let Some((bucket, path)) = &config.tenants_store {
        let no_bucket = |error| SqlError::new("58030", format!("tenants.store cannot be used: {error}"));
        keeping.store = Some((Arc::new(bucket.connect().map_err(no_bucket).map_err(HostError::from)?), path.clone()));
    }
    Ok(keeping)
}

/// For tests: in a build for debugging, `TENANTS_OPERATOR_ROWS` is how many rows a step of a plan keeps in memory at most.
fn operator_rows() -> Option<usize> {
    let rows = std::env::var("TENANTS_OPERATOR_ROWS").ok().filter(|_| cfg!(debug_assertions))?;
    rows.parse().ok()
}

/// For tests: in a build for debugging, `TENANTS_PARTS_FROM` is how many bytes a transaction has written whose writes are not put to the log.
fn parts_from() -> Option<usize> {
    let bytes = std::env::var("TENANTS_PARTS_FROM").ok().filter(|_| cfg!(debug_assertions))?;
    bytes.parse().ok()
}

/// The tenants of all nodes as the control API sees them.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) tenants: Tenants,
    /// The cluster, if there are other nodes.
    pub(crate) joined: Option<Arc<Joined>>,
    /// Moves to other nodes.
    pub(crate) moves: Option<Arc<Moves>>,
}

/// A move as the control API shows it, of a database with this name.
fn shown(report: Report, database: Option<String>) -> Move {
    let millis = |time: Duration| time.as_micros() as f64 / 1_000.0;
    let Report { tenant, from, to, way, began, took, window, stayed, costs } = report;
    let Costs { rounds, tail_bytes, image_bytes, block_bytes, noticed } = costs;
    Move {
        shard: shards::shard(tenant).0,
        database,
        from: from.0,
        to: to.0,
        technique: match way {
            Way::StopAndCopy => MoveTechnique::StopAndCopy,
            Way::FlushAndMove => MoveTechnique::FlushAndMove,
            Way::Albatross => MoveTechnique::Albatross,
            Way::Asleep => MoveTechnique::Asleep,
        },
        began_unix_ms: began,
        took_ms: millis(took),
        window_ms: millis(window),
        rounds,
        log_bytes: tail_bytes,
        open_bytes: image_bytes,
        block_bytes,
        waited: noticed.waited,
        wait_p50_ms: millis(noticed.wait_p50),
        wait_max_ms: millis(noticed.wait_max),
        failed: noticed.failed,
        sent_again: noticed.resent,
        silent_nodes: noticed.silent,
        stayed,
    }
}

/// A move of a virtual node of keys as the control API shows it, or why there is none.
fn moved_keys(moved: Result<key_moves::Report, NotMoved>) -> Result<Move, Problem> {
    let millis = |time: Duration| time.as_micros() as f64 / 1_000.0;
    let refused = |state: &'static str, why: String| problem(&SqlError::new(state, why));
    let key_moves::Report { node, from, to, began, took, window, rounds, bytes, stayed } =
        moved.map_err(|error| match error {
            NotMoved::Absent(why) => refused("3D000", why),
            NotMoved::Refused(why) => refused("55000", why),
            NotMoved::Unknown(why) => refused("57P03", why),
        })?;
    Ok(Move {
        shard: virtual_nodes::shard(node).0,
        database: None,
        from: from.0,
        to: to.0,
        technique: MoveTechnique::Albatross,
        began_unix_ms: began,
        took_ms: millis(took),
        window_ms: millis(window),
        rounds,
        log_bytes: bytes,
        open_bytes: 0,
        block_bytes: 0,
        waited: 0,
        wait_p50_ms: 0.0,
        wait_max_ms: 0.0,
        failed: 0,
        sent_again: 0,
        silent_nodes: 0,
        stayed,
    })
}

/// A decision as the control API shows it.
fn decision(decided: Decided, joined: &Joined) -> Decision {
    let Decided { at, by, moves, why, outcome } = decided;
    let (shard, from, to) = match moves {
        Some((shard, from, to)) => (Some(shard), Some(from.0), Some(to.0)),
        None => (None, None, None),
    };
    let database = shard.as_ref().and_then(shards::tenant_of).and_then(|tenant| joined.tenant_name(tenant));
    Decision { at_unix_ms: at, by: by.0, shard: shard.map(|shard| shard.0), database, from, to, why, outcome }
}

impl Control {
    /// The moves of this node.
    fn movable(&self) -> Result<&Arc<Moves>, Problem> {
        self.moves.as_ref().ok_or_else(|| {
            let message = "expected a cluster of several nodes, but this node is alone: nothing can be moved";
            problem(&SqlError::new("55000", message))
        })
    }

    fn show(&self, report: Report) -> Move {
        let name = self.joined.as_ref().and_then(|joined| joined.tenant_name(report.tenant));
        shown(report, name)
    }

    async fn move_one_asleep(&self, tenant: TenantId, to: String) -> Result<Move, Problem> {
        let moved = self.movable()?.ask_asleep(&[tenant], &NodeId::new(to)).await.map_err(|error| problem(&error))?;
        let report = moved.into_iter().next().ok_or_else(|| {
            problem(&SqlError::new("55000", "the database is awake, leaves already, or is not on the node any more"))
        })?;
        Ok(self.show(report))
    }
}

#[async_trait]
impl TenantsHandle for Control {
    async fn list(&self) -> Vec<Tenant> {
        let mut all: BTreeMap<String, Counts> = match &self.joined {
            Some(joined) => joined.tenant_names().into_iter().map(|name| (name, Counts::default())).collect(),
            None => BTreeMap::new(),
        };
        all.extend(self.tenants.list());
        if let Some(joined) = &self.joined {
            all.extend(joined.tenants_of_others().await);
        }
        let tenant = |(name, counts): (String, Counts)| Tenant {
            name,
            sessions: counts.sessions,
            commits: counts.commits,
            rollbacks: counts.rollbacks,
        };
        all.into_iter().map(tenant).collect()
    }

    async fn create(&self, name: String) -> Result<(), Problem> {
        self.tenants.create(&name).await.map_err(|error| problem(&error))
    }

    async fn remove(&self, name: String) -> Result<(), Problem> {
        self.tenants.remove(&name).await.map_err(|error| problem(&error))
    }

    async fn move_to(&self, NewMove { shard, to, technique }: NewMove) -> Result<Move, Problem> {
        if let (Some(node), Some(joined)) = (virtual_nodes::node_of(&ShardId::new(&shard)), &self.joined) {
            return moved_keys(joined.move_keys(node, &NodeId::new(to)).await);
        }
        let moves = self.movable()?;
        let tenant = match shards::tenant_of(&ShardId::new(&shard)) {
            Some(tenant) => tenant,
            None => self.tenants.tenant(&shard).await.map_err(|error| problem(&error))?,
        };
        let way = match technique {
            None | Some(MoveTechnique::Albatross) => Way::Albatross,
            Some(MoveTechnique::FlushAndMove) => Way::FlushAndMove,
            Some(MoveTechnique::StopAndCopy) => Way::StopAndCopy,
            Some(MoveTechnique::Asleep) => return self.move_one_asleep(tenant, to).await,
        };
        let report = moves.ask(tenant, &NodeId::new(to), way).await.map_err(|error| problem(&error))?;
        Ok(self.show(report))
    }

    async fn move_asleep(&self, NewMovesAsleep { shards, to }: NewMovesAsleep) -> Result<Vec<Move>, Problem> {
        if shards.len() > TOGETHER {
            let message = format!("expected {TOGETHER} shards at most, came {}", shards.len());
            return Err(problem(&SqlError::new("22023", message)));
        }
        let tenant = |shard: &String| {
            let named = shards::tenant_of(&ShardId::new(shard));
            named.ok_or_else(|| SqlError::new("22023", format!("expected shards as `tenants/7`, came `{shard}`")))
        };
        let tenants: Vec<_> = shards.iter().map(tenant).collect::<Result<_, _>>().map_err(|error| problem(&error))?;
        let moved = self.movable()?.ask_asleep(&tenants, &NodeId::new(to)).await;
        Ok(moved.map_err(|error| problem(&error))?.into_iter().map(|report| self.show(report)).collect())
    }

    async fn moves(&self) -> Vec<Move> {
        let Some(moves) = &self.moves else { return Vec::new() };
        moves.list().await.into_iter().map(|report| self.show(report)).collect()
    }

    async fn decisions(&self) -> Decisions {
        let Some(joined) = &self.joined else { return Decisions { is_on: false, decisions: Vec::new() } };
        let all = joined.decisions().await.into_iter();
        Decisions { is_on: joined.balances(), decisions: all.map(|decided| decision(decided, joined)).collect() }
    }

    async fn backup(&self, name: String) -> Result<Backup, Problem> {
        let archive = self.tenants.backup(&name).await.map_err(|error| problem(&error))?;
        let bytes = archive.bytes();
        Ok(Backup { bytes, stream: archive.stream().map_err(io::Error::other).boxed() })
    }

    async fn restore(&self, name: String, backup: BoxStream<'static, io::Result<Bytes>>) -> Result<(), Problem> {
        // It would be made here.
        if let Some(joined) = self.joined.as_ref().filter(|joined| !joined.gets_new_tenants()) {
            let node = &joined.tenure().node;
            let message = format!(
                "node {node} is drained, and a database is restored on the node that is asked: ask another one, or `savanna drain {node} --undo`"
            );
            return Err(problem(&SqlError::new("55000", message)));
        }
        self.tenants.restore(&name, backup).await.map_err(|error| problem(&error))
    }
}

fn problem(error: &SqlError) -> Problem {
    Problem::of_sqlstate(error.state, error.to_string())
}
