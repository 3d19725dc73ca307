//! Every node of a cluster can run its coordinator; the one that holds the lease of the data directory does.
//!
//! ```text
//!            the one that runs it answers
//!           ┌──────────────┐
//!           ▼              │
//!         looks ───────────┘       it does not answer, and its lease is free, or it is known dead
//!           ▲  └──────────────────────────────────────────────────────────────────────┐
//!           │  └── its lease is its own, it has not answered three times, and it ─────┤
//!           │      stands still: claims, waits until the lease has run out             ▼
//!           └───────────────────────────────────────────── lease lost ───────────── runs it
//! ```
//!
//! Whoever runs it shows on the disk that it works: a node that the network has cut off from it, though not from the disk, leaves it alone. On
//! the smaller side of a cut nobody runs it. What is decided when is in [`candidacy`](savanna_control::candidacy) and [`reach`](savanna_control::reach).
//!
//! A holder that has not said where it is may be starting, or is no node of a cluster (`savanna dev`); nothing is claimed of it. The answer is
//! the coordinator's own: one that has stopped, as its disk fails, does not answer, and its node leaves it to others.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use parking_lot::Mutex;
use savanna_control::candidacy::{Doubt, Found, Health, Next, PAUSE, PERIOD, PERIOD_IN_DOUBT, PING_TIME, Silence};
use savanna_control::reach::{REACH_PERIOD, REACH_TIME, Reach, Sides};
use savanna_epoch::{NodeId, ShardId};
use savanna_journal::Options as JournalOptions;
use savanna_ownership::data_dir::{DataDirLease, DataDirOptions, Process};
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::guard::LeaseStatus;
use savanna_ownership::{BootClock, Coordinator, CoordinatorError, remote};
use savanna_rpc::{Addresses, MethodTable, MutualTls, RpcError, Service, ServiceTable, TcpServer, TcpTransport, call};
use tokio::sync::watch;

use super::cluster_file::{ClusterFile, ClusterFileError};
use super::grants::{self, SHARDS};
use super::leader::{self, Leader, Ping, connections};
use super::reach::{self, Showing};
use super::shared::Shared;
use crate::config::NodeConfig;
use crate::data_dir::{directory_options, high_water, newest_epoch_in};

/// Whether a coordinator answers: it reads a record.
async fn answer_of(coordinator: &Arc<dyn Coordinator>) -> Result<(), CoordinatorError> {
    coordinator.shard(&ShardId::new(SHARDS[0])).await.map(drop)
}

/// What candidates ask of who runs the coordinator.
fn ping(coordinator: &Arc<dyn Coordinator>) -> Arc<dyn Service> {
    let coordinator = Arc::clone(coordinator);
    Arc::new(MethodTable::new().method(PhantomData::<Ping>, move |_, ()| {
        let coordinator = Arc::clone(&coordinator);
        async move { answer_of(&coordinator).await.map_err(|error| RpcError::Refused { reason: error.to_string() }) }
    }))
}

/// A node that runs the coordinator when it is its turn.
pub(super) struct Candidate {
    config: NodeConfig,
    directory: PathBuf,
    options: DataDirOptions,
    /// None if connections to other nodes are not encrypted.
    tls: Option<MutualTls>,
    addresses: Arc<Addresses>,
    /// Made with the file of the cluster, once it is there.
    transport: OnceLock<TcpTransport>,
    /// On which side of a cut network the node is.
    reach: Mutex<Reach>,
    /// Shows others that this node works, once the file of the cluster is there.
    showing: Option<Showing>,
    /// What this node has found, for who waits for it.
    state: watch::Sender<State>,
}

/// Who runs the coordinator, as a candidate knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Another node, or nobody.
    #[default]
    Others,
    /// This node.
    This,
    /// Nobody, and this process keeps the directory: it starts, or is `savanna dev`.
    KeptBy(u32),
    /// A node on the other side of a cut network, or nobody.
    CutOff(Sides),
    /// Nodes that encrypt what they say and this one does not, or the other way round.
    Encryption {
        /// Whether this one does.
        is_encrypted: bool,
    },
}

impl Candidate {
    pub(super) fn new(config: &NodeConfig, tls: Option<MutualTls>) -> Self {
        let directory = config.data_dir.clone();
        let options = directory_options(config);
        let (state, _) = watch::channel(State::Others);
        let (config, addresses, transport) = (config.clone(), Arc::default(), OnceLock::new());
        Self { config, directory, options, tls, addresses, transport, reach: Mutex::default(), showing: None, state }
    }

    /// Follows who runs the coordinator.
    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Looks, and runs the coordinator whenever it is this node's turn, until `stopping` says so; then gives the directory up.
    pub(super) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        self.work(&mut stopping).await;
        if self.showing.take().is_some() {
            let (directory, node) = (self.directory.clone(), NodeId::new(&self.config.name));
            // Whoever comes later sees nothing new.
            let _ = tokio::task::spawn_blocking(move || reach::end(&directory, &node)).await;
        }
    }

    async fn work(&mut self, stopping: &mut watch::Receiver<bool>) {
        let mut doubt = Doubt::new(self.config.lease.ttl());
        while !*stopping.borrow() {
            let pause = match self.turn(&mut doubt, stopping).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(error, "this node could not run the coordinator; it tries again");
                    PAUSE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // A closed channel means that the node is gone.
                _ = stopping.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn turn(&mut self, doubt: &mut Doubt, stopping: &mut watch::Receiver<bool>) -> Result<Duration, String> {
        let (directory, lease) = (self.directory.clone(), self.config.lease);
        let read = move || Ok::<_, ClusterFileError>((ClusterFile::read(&directory, lease)?, Leader::read(&directory)));
        let (file, leader) = blocking(read).await?;
        let file = file.map(|file| file.encrypted_by(self.tls.as_ref()));
        if self.showing.is_none() && self.do_others_otherwise().await? {
            self.state.send_replace(State::Encryption { is_encrypted: self.tls.is_some() });
            return Ok(PERIOD);
        }
        if let Some(file) = &file {
            self.show(file).await?;
        }
        if let (Some(file), Some(leader)) = (&file, &leader)
            && self.answers(file, leader).await
        {
            doubt.step(Found::Answer, Instant::now());
            self.reach.lock().forget();
            self.state.send_replace(State::Others);
            return Ok(PERIOD);
        }
        if let Some(file) = &file {
            let sides = self.sides(file).await;
            if sides.may_be_smaller() {
                let state = if sides.is_smaller() { State::CutOff(sides) } else { State::Others };
                let is_new = self.state.send_replace(state) != state;
                if let (State::CutOff(Sides { reached, beyond, .. }), true) = (state, is_new) {
                    tracing::warn!(
                        reached,
                        beyond,
                        "this node reaches fewer nodes that work, itself included, than it does not"
                    );
                }
                return Ok(PERIOD_IN_DOUBT);
            }
        }
        let (directory, options) = (self.directory.clone(), self.options.clone());
        let taken = blocking(move || DataDirLease::take_if_free(&directory, &options)).await?;
        let lease = match taken {
            Ok(lease) => lease,
            Err(held) => {
                let said = leader.is_some_and(|leader| leader.epoch == held.epoch);
                let pid = held.holder.map(|holder| holder.pid);
                let keeper = pid.filter(|_| !said);
                self.state.send_replace(keeper.map_or(State::Others, State::KeptBy));
                let is_other = |claimant: &Process| claimant.incarnation != self.options.incarnation;
                let claimant = held.claim.filter(is_other).filter(|claimant| !claimant.is_known_dead());
                let claimant = claimant.map(|claimant| claimant.incarnation);
                let directory = self.directory.clone();
                let pulse = blocking(move || Ok::<_, String>(leader::pulse(&directory))).await?;
                let silence = Silence { said, claimant, pulse };
                match doubt.step(Found::Silence(silence), Instant::now()) {
                    Next::Look => return Ok(PERIOD_IN_DOUBT),
                    Next::Claim => {}
                }
                tracing::warn!(pid, "the node that runs the coordinator does not answer; another one takes over");
                let (directory, options, stop) = (self.directory.clone(), self.options.clone(), stopping.clone());
                let is_wanted = move || !*stop.borrow();
                let acquired = blocking(move || DataDirLease::acquire_while(&directory, &options, |_| {}, is_wanted));
                match acquired.await {
                    Err(_) if *stopping.borrow() => return Ok(PERIOD),
                    acquired => acquired?,
                }
            }
        };
        self.hold(lease, stopping).await?;
        Ok(PERIOD_IN_DOUBT)
    }

    /// Whether nodes work with which this one could not talk, as they encrypt and it does not, or the other way round. It leaves all to them.
    async fn do_others_otherwise(&self) -> Result<bool, String> {
        let (directory, own, is_encrypted) =
            (self.directory.clone(), NodeId::new(&self.config.name), self.tls.is_some());
        blocking(move || reach::do_others_otherwise(&directory, &own, is_encrypted, SystemTime::now())).await
    }

    /// Begins to show that the node works, unless it does.
    async fn show(&mut self, file: &ClusterFile) -> Result<(), String> {
        if self.showing.is_none() {
            let (directory, node) = (self.directory.clone(), NodeId::new(&self.config.name));
            let address = SocketAddr::new(self.config.cluster_address, 0);
            let showing = Showing::begin(directory, file.cluster.clone(), node, address).await;
            self.showing =
                Some(showing.map_err(|error| format!("cannot listen for other nodes on {address}: {error}"))?);
        }
        Ok(())
    }

    fn transport(&self, file: &ClusterFile) -> &TcpTransport {
        self.transport.get_or_init(|| {
            let (from, addresses) = (NodeId::new(&self.config.name), Arc::clone(&self.addresses));
            TcpTransport::within(file.cluster.clone(), from, addresses, connections())
        })
    }

    async fn answers(&self, file: &ClusterFile, leader: &Leader) -> bool {
        self.addresses.set(leader.name(), leader.address.as_str());
        call::<Ping>(self.transport(file), &leader.name(), &(), PING_TIME).await.is_ok()
    }

    /// Looks on which side of a cut network the node is. Where nothing can be seen, there is none.
    async fn sides(&self, file: &ClusterFile) -> Sides {
        let (directory, own) = (self.directory.clone(), NodeId::new(&self.config.name));
        let is_encrypted = file.cluster.is_encrypted();
        let pulses = blocking(move || reach::pulses(&directory, &own, is_encrypted)).await.unwrap_or_else(|error| {
            tracing::debug!(error, "it is not known which other nodes work");
            Vec::new()
        });
        let now = Instant::now();
        let (asked, still): (Vec<_>, Vec<_>) = pulses.into_iter().partition(|pulse| self.reach.lock().asks(pulse, now));
        let answers = join_all(asked.iter().map(|pulse| async {
            let name = reach::name_of(&pulse.node);
            self.addresses.set(name.clone(), pulse.address.to_string());
            call::<Ping>(self.transport(file), &name, &(), REACH_TIME).await.is_ok()
        }));
        let answers = answers.await;
        still.iter().for_each(|pulse| self.addresses.remove(&reach::name_of(&pulse.node)));
        let found: Vec<_> =
            asked.into_iter().zip(answers).chain(still.into_iter().map(|pulse| (pulse, false))).collect();
        self.reach.lock().step(&found, Instant::now())
    }

    /// Waits until the node is on the smaller side of a cut network.
    async fn cut_off(&self, file: &ClusterFile) -> Sides {
        loop {
            let sides = self.sides(file).await;
            if sides.is_smaller() {
                return sides;
            }
            tokio::time::sleep(REACH_PERIOD).await;
        }
    }

    /// Whether a cluster that is made now spreads its keys over the nodes. Where there is a log of all keys, there are some.
    fn spreads_keys(&self) -> bool {
        let is_new = || {
            let kept = Shared::Directory(self.config.data_dir.clone()).has_no_keys_log();
            kept.inspect_err(|error| tracing::warn!(%error, "keys are not spread, as they may have an owner"))
                .unwrap_or(false)
        };
        self.config.keys_spread && is_new()
    }

    /// Runs the coordinator for as long as the lease lasts, or until the node stops.
    async fn hold(&mut self, lease: DataDirLease, stopping: &mut watch::Receiver<bool>) -> Result<(), String> {
        self.state.send_replace(State::This);
        let outcome = if *stopping.borrow() { Ok(()) } else { self.serve(&lease, stopping).await };
        self.state.send_replace(State::Others);
        // What others have by now cannot be given up; that is no news.
        let released = tokio::task::spawn_blocking(move || lease.release()).await;
        tracing::debug!(?released, "the lease of the data directory");
        outcome
    }

    async fn serve(&mut self, lease: &DataDirLease, stopping: &mut watch::Receiver<bool>) -> Result<(), String> {
        let (directory, epoch, terms) = (self.directory.clone(), lease.epoch(), self.config.lease);
        let newest = blocking(move || newest_epoch_in(&directory)).await?;
        let (directory, spreads) = (self.directory.clone(), self.spreads_keys());
        let file = blocking(move || ClusterFile::ensure(&directory, newest.max(epoch), terms, spreads)).await?;
        let file = file.encrypted_by(self.tls.as_ref());
        self.show(&file).await?;
        let journal = JournalOptions::dir(self.directory.join("coordinator"))
            .high_water(high_water(&self.directory, "coordinator"));
        let ttl = self.config.lease.ttl();
        let options = EmbeddedOptions { ttl, clock: Arc::new(BootClock), guard: Some(lease.guard()) };
        let coordinator = EmbeddedCoordinator::open(journal, lease.epoch(), options).await;
        let coordinator: Arc<dyn Coordinator> = Arc::new(coordinator.map_err(|error| error.to_string())?);

        let name = self.config.name.clone();
        let mut leader = Leader { node: name, epoch: lease.epoch(), address: String::new() };
        let services = ServiceTable::new().service(remote::SERVICE, remote::service(&coordinator));
        let services = services.service("leader", ping(&coordinator));
        let address = SocketAddr::new(self.config.cluster_address, 0);
        let server = TcpServer::within(file.cluster.clone(), address, leader.name(), Arc::new(services), connections());
        let server = server.await.map_err(|error| format!("the coordinator cannot listen: {error}"))?;
        leader.address = server.local_address().to_string();
        self.publish(&leader).await?;
        tracing::info!(address = leader.address, epoch = lease.epoch().0, "this node runs the coordinator");

        let over = |status: &LeaseStatus| matches!(status, LeaseStatus::Draining | LeaseStatus::Lost(_));
        let mut status = lease.status();
        let outcome = tokio::select! {
            _ = status.wait_for(over) => {
                tracing::warn!("another node takes the coordinator over");
                Ok(())
            }
            _ = stopping.wait_for(|stop| *stop) => Ok(()),
            () = grants::propose(Arc::clone(&coordinator), self.config.cluster_nodes, file.spreads_keys) => Ok(()),
            Sides { reached, beyond, .. } = self.cut_off(&file) => {
                tracing::warn!(reached, beyond, "this node reaches fewer nodes that work, itself included, than it does not; the coordinator is left to those");
                Ok(())
            }
            reason = self.look_after(&coordinator, &leader) => Err(format!("its coordinator answers nobody: {reason}")),
        };
        server.shut_down().await;
        // It closes its journal; one that panics there has closed it, too.
        let _ = tokio::task::spawn_blocking(move || drop(coordinator)).await;
        outcome
    }

    /// Says anew where the coordinator is whenever that is not to be read, until it answers nobody any more; then why.
    async fn look_after(&self, coordinator: &Arc<dyn Coordinator>, leader: &Leader) -> String {
        let mut health = Health::new(self.config.lease.ttl());
        loop {
            tokio::time::sleep(PERIOD).await;
            let answer = answer_of(coordinator).await;
            let is_over = health.is_over(&answer, Instant::now());
            match answer {
                Err(error) if is_over => return error.to_string(),
                // Another node may run it by now, and say so.
                Err(_) => {}
                Ok(()) => {
                    if let Err(error) = self.publish(leader).await {
                        tracing::warn!(error, "other nodes may not find the coordinator");
                    }
                }
            }
        }
    }

    /// Says where the coordinator is, and shows that it works.
    async fn publish(&self, leader: &Leader) -> Result<(), String> {
        let (directory, leader) = (self.directory.clone(), leader.clone());
        let publish = move || match Leader::read(&directory) {
            Some(said) if said == leader => leader::beat(&directory),
            _ => leader.publish(&directory),
        };
        blocking(publish).await.map_err(|error| format!("its address could not be written: {error}"))
    }
}

/// Does what waits for the disk, away from the thread that keeps the leases.
async fn blocking<T: Send + 'static, E: ToString + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
    done.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use savanna_ownership::core::CoordinatorCore;
    use savanna_ownership::embedded::{Log, LogError, LogPosition};
    use savanna_rpc::{InProcessLimits, InProcessNet};

    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    /// A disk that fails at the first write.
    struct BrokenLog;

    #[async_trait::async_trait]
    impl Log for BrokenLog {
        fn append(&self, _payloads: &[Vec<u8>]) -> Result<LogPosition, LogError> {
            Err(LogError("input/output error".to_owned()))
        }

        async fn wait_durable(&self, _position: LogPosition) -> Result<(), LogError> {
            Err(LogError("input/output error".to_owned()))
        }
    }

    #[tokio::test]
    async fn a_coordinator_that_has_stopped_answers_no_candidate() {
        let core = CoordinatorCore::new(TTL);
        let coordinator = EmbeddedCoordinator::start(core, Arc::new(BrokenLog), Arc::new(BootClock), None);
        let coordinator: Arc<dyn Coordinator> = Arc::new(coordinator);
        let net = InProcessNet::new(InProcessLimits::default());
        let services = ServiceTable::new().service("leader", ping(&coordinator));
        let _served = net.serve(NodeId::new("n1"), Arc::new(services));
        let transport = net.transport(NodeId::new("n2"));
        let answers = async || call::<Ping>(&transport, &NodeId::new("n1"), &(), PING_TIME).await.is_ok();
        assert!(answers().await);
        assert!(coordinator.allocate("x", 1).await.is_err());
        assert!(!answers().await);
    }
}
