//! Every node of a cluster can run its coordinator; the one that holds the lease of the data directory does.
//!
//! ```text
//!            the one that runs it answers
//!           ┌──────────────┐
//!           ▼              │
//!         looks ───────────┘       it does not answer, and its lease is free, or it is known dead
//!           ▲  └──────────────────────────────────────────────────────────────────────┐
//!           │  └── its lease is its own, and it has not answered three times: claims, ─┤
//!           │      waits until the lease has run out                                   ▼
//!           └───────────────────────────────────────────── lease lost ───────────── runs it
//! ```
//!
//! A holder that has not said where it is may be starting, or is no node of a cluster (`savanna dev`); nothing is claimed of it.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use savanna_epoch::NodeId;
use savanna_journal::Options as JournalOptions;
use savanna_ownership::data_dir::{DataDirError, DataDirLease, DataDirOptions, Process};
use savanna_ownership::embedded::{EmbeddedCoordinator, EmbeddedOptions};
use savanna_ownership::guard::LeaseStatus;
use savanna_ownership::{BootClock, Coordinator, remote};
use savanna_rpc::{Addresses, MethodTable, ServiceTable, TcpServer, TcpTransport, call};
use tokio::sync::watch;

use super::grants;
use super::papers::Papers;
use super::seat::{Ping, Seat, connections};
use crate::config::NodeConfig;
use crate::data_dir::{directory_options, high_water, newest_epoch_in};

/// Between two looks at who runs the coordinator.
const PERIOD: Duration = Duration::from_millis(500);
/// The same, when it did not answer.
const PERIOD_IN_DOUBT: Duration = Duration::from_millis(100);
/// How long it has to answer.
const PING_TIME: Duration = Duration::from_millis(500);
/// After a failure of its own.
const PAUSE: Duration = Duration::from_secs(1);
/// So often it may miss to answer.
const MISSES_MAX: u32 = 3;
/// The same, while another candidate waits for its lease to run out: whoever claims later makes the other wait anew.
const MISSES_MAX_CLAIMED: u32 = 30;

/// What a candidate has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The coordinator answers.
    Answer,
    /// Nobody answers, and the directory is held by a process that may live. `said` if it has said where it is, `claimed` if another
    /// one that may live waits for it.
    Silence { said: bool, claimed: bool },
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Look,
    Claim,
}

/// Decides when the directory is claimed of a process that may live.
#[derive(Debug, Default)]
struct Doubt {
    misses: u32,
}

impl Doubt {
    fn step(&mut self, found: Found) -> Next {
        self.misses = match found {
            Found::Silence { said: true, .. } => self.misses + 1,
            Found::Answer | Found::Silence { said: false, .. } => 0,
        };
        let max = if matches!(found, Found::Silence { claimed: true, .. }) { MISSES_MAX_CLAIMED } else { MISSES_MAX };
        if self.misses >= max {
            self.misses = 0;
            return Next::Claim;
        }
        Next::Look
    }
}

/// A node that runs the coordinator when it is its turn.
pub(super) struct Candidate {
    config: NodeConfig,
    directory: PathBuf,
    options: DataDirOptions,
    addresses: Arc<Addresses>,
    /// Made with the papers of the cluster, once they are there.
    transport: Option<TcpTransport>,
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
}

impl Candidate {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let directory = config.data_dir.clone();
        let options = directory_options(config);
        let (state, _) = watch::channel(State::Others);
        Self { config: config.clone(), directory, options, addresses: Arc::default(), transport: None, state }
    }

    /// Follows who runs the coordinator.
    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Looks, and runs the coordinator whenever it is this node's turn, until `stopping` says so; then gives the directory up.
    pub(super) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut doubt = Doubt::default();
        while !*stopping.borrow() {
            let pause = match self.turn(&mut doubt, &mut stopping).await {
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
        let seat = Seat::read(&self.directory);
        if let Some(seat) = &seat
            && self.answers(seat).await
        {
            doubt.step(Found::Answer);
            self.state.send_replace(State::Others);
            return Ok(PERIOD);
        }
        let (directory, options) = (self.directory.clone(), self.options.clone());
        let taken = blocking(move || DataDirLease::take_if_free(&directory, &options)).await?;
        let lease = match taken {
            Ok(lease) => lease,
            Err(held) => {
                let said = seat.is_some_and(|seat| seat.epoch == held.epoch);
                let pid = held.holder.map(|holder| holder.pid);
                let keeper = pid.filter(|_| !said);
                self.state.send_replace(keeper.map_or(State::Others, State::KeptBy));
                let is_other = |claimant: &Process| claimant.incarnation != self.options.incarnation;
                let claimed = held.claim.filter(is_other).is_some_and(|claimant| !claimant.is_known_dead());
                match doubt.step(Found::Silence { said, claimed }) {
                    Next::Look => return Ok(PERIOD_IN_DOUBT),
                    Next::Claim => {}
                }
                tracing::warn!(pid, "the node that runs the coordinator does not answer; another one takes over");
                let (directory, options) = (self.directory.clone(), self.options.clone());
                blocking(move || DataDirLease::acquire(&directory, &options, |_| {})).await?
            }
        };
        self.hold(lease, stopping).await?;
        Ok(PERIOD_IN_DOUBT)
    }

    async fn answers(&mut self, seat: &Seat) -> bool {
        if self.transport.is_none() {
            let Ok(Some(papers)) = Papers::read(&self.directory) else { return false };
            let from = NodeId::new(&self.config.name);
            let addresses = Arc::clone(&self.addresses);
            self.transport = Some(TcpTransport::within(papers.cluster, from, addresses, connections()));
        }
        let Some(transport) = &self.transport else { return false };
        self.addresses.set(seat.name(), seat.address.as_str());
        call::<Ping>(transport, &seat.name(), &(), PING_TIME).await.is_ok()
    }

    /// Runs the coordinator for as long as the lease lasts, or until the node stops.
    async fn hold(&self, lease: DataDirLease, stopping: &mut watch::Receiver<bool>) -> Result<(), String> {
        self.state.send_replace(State::This);
        let outcome = self.serve(&lease, stopping).await;
        self.state.send_replace(State::Others);
        // What others have by now cannot be given up; that is no news.
        let released = tokio::task::spawn_blocking(move || lease.release()).await;
        tracing::debug!(?released, "the lease of the data directory");
        outcome
    }

    async fn serve(&self, lease: &DataDirLease, stopping: &mut watch::Receiver<bool>) -> Result<(), String> {
        let newest = newest_epoch_in(&self.directory).map_err(|error| error.to_string())?;
        let papers = Papers::ensure(&self.directory, newest.max(lease.epoch())).map_err(|error| error.to_string())?;
        let journal = JournalOptions::dir(self.directory.join("coordinator"))
            .high_water(high_water(&self.directory, "coordinator"));
        let ttl = self.config.lease.ttl();
        let options = EmbeddedOptions { ttl, clock: Arc::new(BootClock), guard: Some(lease.guard()) };
        let coordinator = EmbeddedCoordinator::open(journal, lease.epoch(), options).await;
        let coordinator: Arc<dyn Coordinator> = Arc::new(coordinator.map_err(|error| error.to_string())?);

        let name = self.config.name.clone();
        let mut seat = Seat { node: name, epoch: lease.epoch(), address: String::new() };
        let ping = MethodTable::new().method(PhantomData::<Ping>, |_, ()| async { Ok(()) });
        let services =
            ServiceTable::new().service(remote::SERVICE, remote::service(&coordinator)).service("seat", Arc::new(ping));
        let address = (self.config.reachable_address(), 0);
        let server = TcpServer::within(papers.cluster, address, seat.name(), Arc::new(services), connections());
        let server = server.await.map_err(|error| format!("the coordinator cannot listen: {error}"))?;
        seat.address = server.local_address().to_string();
        seat.publish(&self.directory).map_err(|error| format!("its address could not be written: {error}"))?;
        tracing::info!(address = seat.address, epoch = lease.epoch().0, "this node runs the coordinator");

        let over = |status: &LeaseStatus| matches!(status, LeaseStatus::Draining | LeaseStatus::Lost(_));
        let mut status = lease.status();
        tokio::select! {
            _ = status.wait_for(over) => tracing::warn!("another node takes the coordinator over"),
            _ = stopping.wait_for(|stop| *stop) => {}
            () = grants::propose(Arc::clone(&coordinator), self.config.cluster_nodes) => {}
        }
        server.shut_down().await;
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DataDirError> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
    done.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_answers_now_and_then_is_never_claimed_of() {
        let mut doubt = Doubt::default();
        let silence = Found::Silence { said: true, claimed: false };
        for found in [silence, silence, Found::Answer, silence, silence, Found::Answer] {
            assert_eq!(doubt.step(found), Next::Look);
        }
        assert_eq!([silence; 3].map(|found| doubt.step(found)), [Next::Look, Next::Look, Next::Claim]);
        assert_eq!(doubt.step(silence), Next::Look, "one claim at a time");
    }

    #[test]
    fn a_holder_that_has_not_said_where_it_is_is_waited_for() {
        let mut doubt = Doubt::default();
        for _ in 0..100 {
            assert_eq!(doubt.step(Found::Silence { said: false, claimed: false }), Next::Look);
        }
    }

    #[test]
    fn who_has_claimed_it_has_time_for_the_lease_to_run_out() {
        let mut doubt = Doubt::default();
        let claimed = Found::Silence { said: true, claimed: true };
        let steps: Vec<_> = (0..MISSES_MAX_CLAIMED).map(|_| doubt.step(claimed)).collect();
        let (last, before) = steps.split_last().unwrap();
        assert!(before.iter().all(|next| *next == Next::Look) && *last == Next::Claim);
    }
}
