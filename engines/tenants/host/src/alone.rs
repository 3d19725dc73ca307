//! A node without a cluster: its coordinator is in its directory, and nobody else's.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use savanna_epoch::{NodeEpoch, NodeId};
use savanna_journal::{Disk, Options, OsDisk};
use savanna_ownership::{
    BootClock, Incarnation, NodeSpec,
    embedded::{EmbeddedCoordinator, EmbeddedOptions},
    logs::LogPlace,
};
use savanna_tenants_store::shards::Member;
use savanna_tenants_values::error::SqlError;

use crate::{
    host::{HostError, HostOptions},
    process::Keeping,
};

/// The name of a node that nobody looks for.
const NODE: &str = "alone";
/// The resident of an embedded coordinator needs no lease, so that this is nobody's.
const TTL: Duration = Duration::from_secs(3);

impl HostOptions {
    /// For tenants in a directory that belongs to this process alone: examples, tests. `high_water` is a folder where it is noted how far
    /// the logs have been durable. Blocks; must not be called in an asynchronous context.
    ///
    /// # Errors
    /// [`HostError::Start`], and [`HostError::Recovery`] if the coordinator's journal cannot be read.
    pub fn alone(
        keeping: Keeping,
        epoch: NodeEpoch,
        threads: usize,
        high_water: Option<&std::path::Path>,
    ) -> Result<Self, HostError> {
        let note = |journal| -> Option<Arc<dyn Disk>> { Some(Arc::new(OsDisk::new(high_water?.join(journal)))) };
        let keeping = Keeping { high_water: note("log").or(keeping.high_water), ..keeping };
        let journal = Options::dir(keeping.data_dir.join("coordinator"));
        let journal = match note("coordinator") {
            None => journal,
            Some(notes) => journal.high_water(notes),
        };
        Self::beside(journal, keeping, epoch, threads)
    }

    /// As [`alone`](Self::alone), with the coordinator's journal anywhere.
    ///
    /// # Errors
    /// As [`alone`](Self::alone).
    pub fn beside(journal: Options, keeping: Keeping, epoch: NodeEpoch, threads: usize) -> Result<Self, HostError> {
        // Only the watchers of a coordinator need its tasks, and here nobody watches it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(HostError::Start)?;
        let member = runtime.block_on(join(journal, epoch))?;
        Ok(Self { keeping, member, epoch, threads, lease: None, others: None })
    }
}

async fn join(journal: Options, epoch: NodeEpoch) -> Result<Member, SqlError> {
    let options = EmbeddedOptions { ttl: TTL, clock: Arc::new(BootClock), guard: None };
    let coordinator = EmbeddedCoordinator::open(journal, epoch, options).await;
    let coordinator = coordinator.map_err(|error| SqlError::new("58000", error.to_string()))?;
    let incarnation = Incarnation(getrandom::u64().map_err(SqlError::internal)?);
    let (name, labels) = (NodeId::new(NODE), BTreeMap::new());
    let spec = NodeSpec { name, incarnation, address: "nowhere".to_owned(), labels };
    let refused = |error: savanna_ownership::CoordinatorError| SqlError::new("58000", error.to_string());
    let tenure = coordinator.reside(&spec).await.map_err(refused)?;
    let place = LogPlace::Folder("log".to_owned());
    Ok(Member::join(Arc::new(coordinator), tenure, place).await?)
}
