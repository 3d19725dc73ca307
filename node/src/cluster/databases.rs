//! Tenants of a cluster: which there are, what was granted to this node, and what becomes of those whose node is gone.
//!
//! ```text
//!  tenants/store/         the storage, which all nodes share
//!  tenants/logs/n1.3/     the log of one tenure, which it alone appends to; adopted by others when that is over
//!  tenants/log/           the log of whoever was alone with a data directory, or made its records; adopted like any other
//! ```
//!
//! Each tenant is a shard, `tenants/N`. The owner of the shard `tenants` is the controller: it makes the records of a directory that has none, and looks
//! after the tenants of nodes that are gone ([`savanna_control`] decides, this carries it out). Nobody who is served waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::future::join_all;
use savanna_control::drained::{drained, ended, expectation, expectations};
use savanna_control::failover::GRANTS_PER_BATCH;
use savanna_control::placement::{self, Placement};
use savanna_control::{Decision, Intent, Loads, Stuck, step};
use savanna_epoch::{LogId, NodeId, ShardId};
use savanna_journal::JournalError;
use savanna_ownership::logs::{self, LogPlace, LogRecord, LogState};
use savanna_ownership::{
    Batch, ClusterView, Coordinator, CoordinatorError, NodeRecord, RootExpectation, ShardRecord, Tenure, Transition,
};
use savanna_pgwire_tenants::{Names, list};
use savanna_tenants_host::shards::{self, ShardsError};
use savanna_tenants_host::{Counts, Member, Place, SqlError, TenantId, Tenants, error::state::IO_ERROR};

use super::grants::{PATIENCE, PERIOD};
use super::loads::KnownLoads;
use super::reach::{self, Forgotten};
use super::shared::{PlaceError, Shared, name_of};
use super::view::{View, route};
use super::{Joined, services_of};
use crate::roles::Role;

/// The service, also in the names of logs.
const SERVICE: &str = "tenants";
/// The shard whose owner is the controller.
pub(crate) const CONTROLLER: &str = "tenants";
/// The log of a directory that somebody was alone with.
const FIRST_LOG: &str = "tenants/log";
/// The database that everybody needs to log in.
const LOGIN: &str = "postgres";
/// How long the coordinator is asked for a name that this node does not know.
const NAME_TIME: Duration = Duration::from_secs(5);
/// How long a start waits until there are records of tenants.
const RECORDS_TIME: Duration = Duration::from_secs(5);
/// How long another node is waited for that is to say what goes on in its databases.
const LIST_TIME: Duration = Duration::from_secs(1);
/// The coordinator is asked again after this time.
const PAUSE: Duration = Duration::from_millis(50);
/// How often it is looked for what nodes have left behind in the directory.
const FORGET_PERIOD: Duration = Duration::from_secs(60);
/// So many roots are removed at once.
const ROOTS_MAX: usize = 16;

/// Why a node has no log for tenants.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The records.
    #[error(transparent)]
    Shards(#[from] ShardsError),
    /// The place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Whoever makes the records has not done so.
    #[error(
        "there are no records of tenants yet; the node that has shard `tenants` makes them: `savanna shards` says which that is"
    )]
    NoRecords,
}

/// The names of databases, as this node knows them, and the coordinator where it does not.
pub(super) struct KnownNames {
    pub(super) node: NodeId,
    pub(super) view: View,
    pub(super) loads: KnownLoads,
    pub(super) coordinator: Arc<dyn Coordinator>,
}

#[async_trait]
impl Names for KnownNames {
    async fn tenant(&self, name: &str) -> Result<Option<TenantId>, SqlError> {
        if let Some(tenant) = shards::named(&self.view.now(), name)? {
            return Ok(Some(tenant));
        }
        let looking = async {
            loop {
                match shards::look_up(&*self.coordinator, name).await {
                    Err(ShardsError::Coordinator(CoordinatorError::Unavailable { .. })) => {
                        tokio::time::sleep(PAUSE).await
                    }
                    Ok(Some((tenant, since))) => {
                        // Then it is known where it is, too.
                        self.view.clone().until(|view| view.revision() >= since).await;
                        return Ok(Some(tenant));
                    }
                    known => return Ok(known?.map(|(tenant, _)| tenant)),
                }
            }
        };
        tokio::time::timeout(NAME_TIME, looking).await.unwrap_or_else(|_| {
            let message =
                format!("whether there is a database \"{name}\" is not known: the coordinator does not answer");
            Err(SqlError::new("58000", message).hint("Try again later."))
        })
    }

    fn has_owner(&self, tenant: TenantId) -> bool {
        route(&self.view.now(), &shards::shard(tenant)).is_some()
    }

    fn place_for_new(&self, failed: &BTreeSet<NodeId>) -> Option<Place> {
        let view = self.view.now();
        place_for_new(&view, among(&view, self.loads.loads(&view)), &self.node, failed)
    }

    fn place_here(&self) -> Option<Vec<RootExpectation>> {
        let view = self.view.now();
        let takes = placement::takes_new(&view, &among(&view, self.loads.loads(&view)), &self.node);
        takes.then(|| vec![expectation(&view, &self.node)])
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.view.now().nodes().map(|node| node.tenure.node.clone()).collect()
    }

    fn hosts(&self) -> Vec<NodeId> {
        self.view.now().nodes().filter(|node| is_host(node)).map(|node| node.tenure.node.clone()).collect()
    }
}

/// Where a new tenant is to be that a node was asked for and some did not take: there, if no node can have it; none if no other is left.
fn place_for_new(view: &ClusterView, loads: Loads, node: &NodeId, failed: &BTreeSet<NodeId>) -> Option<Place> {
    let loads = placement::without(view, loads, failed);
    let host = placement::host_for_new(view, &loads, node);
    if host.is_none() && !failed.is_empty() {
        return None;
    }
    let at = host.filter(|tenure| tenure.node != *node).cloned();
    let expects = vec![expectation(view, at.as_ref().map_or(node, |at| &at.node))];
    Some(Place { at, expects })
}

impl Joined {
    /// The log of tenants that this node appends to, and where it is: one of this tenure's own. If there are no records of tenants yet, and this node
    /// is the controller, it is the log that the directory has, out of which they are made. Blocks until there are records, but not for ever.
    ///
    /// # Errors
    /// [`LogError`].
    pub(crate) async fn tenants_log(&self) -> Result<(Member, LogPlace), LogError> {
        let until = tokio::time::Instant::now() + RECORDS_TIME;
        let mut changes = self.view.clone();
        while tokio::time::Instant::now() < until {
            let view = changes.now();
            let (coordinator, tenure) = (Arc::clone(&self.coordinator), self.tenure.clone());
            if shards::are_kept(&view)? || shards::own_log(&view, &tenure).is_some() {
                return self.own_tenants_log(coordinator, tenure).await;
            }
            if matches!(*self.role(CONTROLLER).borrow(), Role::Owner(_)) {
                if let Shared::Store(_) = self.shared {
                    // Nobody was alone there before.
                    return self.own_tenants_log(coordinator, tenure).await;
                }
                let place = LogPlace::Folder(FIRST_LOG.to_owned());
                return Ok((Member::join(coordinator, tenure, place.clone()).await?, place));
            }
            let _ = tokio::time::timeout(PAUSE, changes.changed()).await;
        }
        Err(LogError::NoRecords)
    }

    async fn own_tenants_log(
        &self,
        coordinator: Arc<dyn Coordinator>,
        tenure: Tenure,
    ) -> Result<(Member, LogPlace), LogError> {
        Ok(Member::begin(coordinator, tenure, |log| self.shared.place_of(log)).await?)
    }

    /// The names of all databases, as far as this node knows.
    pub(crate) fn tenant_names(&self) -> Vec<String> {
        shards::by_name(&self.view.now()).into_keys().collect()
    }

    /// The name of a database, as far as this node knows.
    pub(crate) fn tenant_name(&self, tenant: TenantId) -> Option<String> {
        shards::names(&self.view.now()).remove(&tenant).map(|(name, _)| name)
    }

    /// Whether databases are made on this node, or restored: it is not drained, or no other node serves any and is not.
    pub(crate) fn gets_new_tenants(&self) -> bool {
        let view = self.view.now();
        placement::takes_new(&view, &among(&view, self.known_loads().loads(&view)), &self.tenure.node)
    }

    /// The databases of the other nodes, as far as these answer, with what goes on in them.
    pub(crate) async fn tenants_of_others(&self) -> Vec<(String, Counts)> {
        let (view, transport) = (self.view.now(), self.transport());
        let others = view.nodes().filter(|node| node.tenure.node != self.tenure.node);
        let asked = others.filter(|node| is_host(node)).map(|node| {
            let (transport, node) = (Arc::clone(&transport), node.tenure.node.clone());
            async move {
                let listed = tokio::time::timeout(LIST_TIME, list(&*transport, &node)).await;
                listed.ok().and_then(Result::ok).unwrap_or_else(|| {
                    tracing::warn!(%node, "what goes on in the databases of a node is not known: it does not answer");
                    Vec::new()
                })
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Takes in what is granted to this node, as long as it runs.
    pub(crate) async fn take_in_tenants(self: Arc<Self>, tenants: Tenants) {
        let mut view = self.view.clone();
        loop {
            let now = view.now();
            if !shards::is_ready(&now, &self.tenure) {
                match self.coordinator.apply(&shards::say_ready(&now, &self.tenure).into()).await {
                    Ok(said) => view.until(|view| view.revision() >= said).await,
                    Err(error) => {
                        tracing::warn!(%error, "the others do not know yet that this node serves databases; it is said again");
                        tokio::time::sleep(PERIOD).await;
                    }
                }
                continue;
            }
            match take_in(&now, &tenants, &self.shared).await {
                Ok(()) => {
                    if !view.changed().await {
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "databases that were granted to this node are not there yet; it is tried again");
                    tokio::time::sleep(PERIOD).await;
                }
            }
        }
    }

    /// Sees to the tenants and logs of nodes that are gone, while this node is the controller.
    pub(crate) async fn control(self: Arc<Self>) {
        let (mut view, mut role) = (self.view.clone(), self.role(CONTROLLER));
        let mut unowned_since = None;
        let mut told = Told::default();
        let mut forgot_at = tokio::time::Instant::now();
        loop {
            let role = *role.borrow_and_update();
            if let Role::Owner(_) = role {
                if forgot_at.elapsed() >= FORGET_PERIOD {
                    forgot_at = tokio::time::Instant::now();
                    self.forget_pulses(view.now()).await;
                }
                let (now, time) = (view.now(), tokio::time::Instant::now());
                unowned_since = is_unowned(&now).then(|| unowned_since.unwrap_or(time));
                let is_patience_over = unowned_since.is_some_and(|since| time - since >= PATIENCE);
                match due(&now, self.known_loads().loads(&now), is_patience_over) {
                    Ok(Decision { intents, stuck }) => {
                        told.stuck(stuck);
                        told.failed(self.carry_out(&now, intents).await);
                    }
                    Err(error) => told.undecided(&error.to_string()),
                }
                self.forget_drains(&now).await;
            }
            let _ = tokio::time::timeout(PERIOD, view.changed()).await;
        }
    }

    /// Removes what was said of nodes that were drained and have ended. What is not removed now is tried again.
    async fn forget_drains(&self, view: &ClusterView) {
        let roots: Vec<_> = ended(view).take(ROOTS_MAX).collect();
        if roots.is_empty() {
            return;
        }
        if let Err(error) = self.coordinator.apply(&Batch { roots, ..Batch::default() }).await {
            tracing::debug!(%error, "what was said of drained nodes that have ended stays for now");
        }
    }

    /// Removes from a common directory what nodes have shown there that have ended long ago. What stays is looked at again.
    async fn forget_pulses(&self, view: Arc<ClusterView>) {
        let Shared::Directory(directory) = &self.shared else { return };
        let (directory, own) = (directory.clone(), self.tenure.node.clone());
        let lives = move |node: &NodeId| view.node(node).is_some();
        match blocking(move || reach::forget(&directory, &own, lives, SystemTime::now())).await {
            Ok(Ok(Forgotten { gone, kept })) => {
                gone.iter().for_each(|node| tracing::info!(%node, "a node that is gone is forgotten"));
                for (node, error) in kept {
                    tracing::debug!(%node, %error, "what a node has shown that is gone stays for now");
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, "what nodes have shown that are gone stays for now"),
            Err(error) => tracing::debug!(error, "what nodes have shown that are gone stays for now"),
        }
    }

    /// Says that this node serves no tenants, and gives those to others that it was granted and that have nothing in its log.
    pub(crate) async fn hand_back(&self) {
        let view = self.view.now();
        let closed = shards::say_closed(&view, &self.tenure).map(Batch::from);
        let loads = self.known_loads().loads(&view);
        let batches = closed.into_iter().chain(handed_back(&view, loads, &self.tenure));
        for batch in batches {
            let count = batch.transitions.len();
            match self.coordinator.apply(&batch).await {
                Ok(_) if count == 0 => tracing::warn!("this node cannot serve databases, and says so"),
                Ok(_) => tracing::warn!(count, "databases that this node cannot serve are given to others"),
                Err(error) => {
                    tracing::warn!(%error, count, "databases that this node cannot serve stay its own for now")
                }
            }
        }
    }

    /// Does what was decided. When a step of a log fails, its later ones wait for the next decision. Returns what failed, by log.
    pub(super) async fn carry_out(&self, view: &ClusterView, intents: Vec<Intent>) -> BTreeMap<Option<LogId>, String> {
        let mut failed = BTreeMap::new();
        for intent in intents {
            let log = intent.log().cloned();
            if log.is_some() && failed.contains_key(&log) {
                continue;
            }
            if let Err(error) = self.do_one(view, intent).await {
                failed.insert(log, error);
            }
        }
        failed
    }

    async fn do_one(&self, view: &ClusterView, intent: Intent) -> Result<(), String> {
        let propose = async |batch: Batch| match self.coordinator.apply(&batch).await {
            Ok(_) => Ok(()),
            // What was decided by an old view is decided anew.
            Err(CoordinatorError::Conflict { .. }) => Err(OVERTAKEN.to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let shared = self.shared.clone();
        match intent {
            Intent::SealRecord { log, change } => {
                propose(change.into()).await?;
                tracing::info!(%log, "the log of a node that is gone ends");
                Ok(())
            }
            Intent::SealLog { is_needed, place, epoch, .. } => {
                match blocking(move || shared.seal(&place, epoch).map(drop)).await? {
                    Err(PlaceError::Log { source: JournalError::NoLog { .. }, .. }) if !is_needed => Ok(()),
                    sealed => sealed.map_err(|error| error.to_string()),
                }
            }
            Intent::Grant { batch, .. } => {
                let count = batch.transitions.len();
                propose(batch).await?;
                tracing::info!(count, "shards of a node that is gone are granted to others");
                Ok(())
            }
            Intent::DeleteLog { place, .. } => {
                blocking(move || shared.delete(&place)).await?.map_err(|error| error.to_string())
            }
            Intent::ForgetLog { log, change } => {
                let roots = std::iter::once(change).chain(shards::forget_end(view, &log)).collect();
                propose(Batch { roots, ..Batch::default() }).await
            }
        }
    }
}

/// Why a step is not done that was decided by an old view.
const OVERTAKEN: &str = "it was decided by an old view";

/// What was told of what could not be done: it is told again when it is something else.
#[derive(Default)]
pub(super) struct Told {
    undecided: String,
    failed: BTreeMap<Option<LogId>, String>,
    stuck: BTreeMap<ShardId, Stuck>,
}

impl Told {
    fn undecided(&mut self, error: &str) {
        if self.undecided != error {
            tracing::error!(error, "nobody looks after the tenants of nodes that are gone");
            error.clone_into(&mut self.undecided);
        }
    }

    pub(super) fn failed(&mut self, failed: BTreeMap<Option<LogId>, String>) {
        let is_new = |log: &Option<LogId>, error: &String| self.failed.get(log) != Some(error) && error != OVERTAKEN;
        for (log, error) in failed.iter().filter(|(log, error)| is_new(log, error)) {
            let log = log.as_ref().map(ToString::to_string);
            tracing::warn!(error, log, "a step of a failover was not done; it is tried again");
        }
        self.failed = failed;
    }

    fn stuck(&mut self, stuck: BTreeMap<ShardId, Stuck>) {
        for (shard, why) in stuck.iter().filter(|(shard, why)| self.stuck.get(*shard) != Some(*why)) {
            match why {
                Stuck::NoNode => tracing::warn!(%shard, "no node can have the database of a node that is gone"),
                Stuck::Private(log) => {
                    tracing::error!(%shard, %log, "the database has commits on the disk of a node that is gone: start that node");
                }
                Stuck::Lost(log) => {
                    tracing::error!(%shard, %log, "expected a record of the log that has commits of the database, found none that can be read");
                }
            }
        }
        self.stuck = stuck;
    }
}

/// Does what waits for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

/// Takes in what the view says was granted, as far as it can be. What cannot be read keeps nothing else waiting.
async fn take_in(view: &ClusterView, tenants: &Tenants, shared: &Shared) -> Result<(), SqlError> {
    let (awaited, has_new) = tenants.awaited(view);
    let mut outcome = Ok(());
    if has_new {
        outcome = tenants.adopt_new().await.map(drop);
    }
    for (log, record) in adoptable(view, awaited) {
        let (shared, name, epoch) = (shared.clone(), log.to_string(), record.seal_epoch());
        let seal =
            move || shared.seal(&record.place, epoch).map_err(|error| SqlError::new(IO_ERROR, error.to_string()));
        match tenants.adopt(log, seal).await {
            Ok(arrived) => {
                tracing::info!(log = name, count = arrived.len(), "databases of a node that is gone are here now")
            }
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}

/// The logs out of which tenants can be taken in: those whose records say that they have ended. To any other somebody may still append.
fn adoptable(view: &ClusterView, awaited: BTreeSet<LogId>) -> Vec<(LogId, LogRecord)> {
    let mut adoptable = Vec::new();
    for log in awaited {
        match logs::get(view, &log) {
            Ok(Some((_, record))) if record.state == LogState::Sealed && !is_used(view, &log, &record.place) => {
                adoptable.push((log, record));
            }
            Ok(Some(_)) => {}
            Ok(None) => tracing::error!(%log, "expected a record of the log that has commits of databases, found none"),
            Err(error) => shards::tell_unreadable(&error),
        }
    }
    adoptable
}

/// Whether another log has the same place that is not forgotten before: what is there is not only this one's.
fn is_shared(view: &ClusterView, log: &LogId, place: &LogPlace, forgotten: &BTreeSet<LogId>) -> bool {
    others_at(view, log, place).any(|(other, _)| other.is_none_or(|other| !forgotten.contains(&other)))
}

/// The logs beside this one that are at a place, or may be, as their records cannot be read.
fn others_at<'v>(
    view: &'v ClusterView,
    log: &'v LogId,
    place: &'v LogPlace,
) -> impl Iterator<Item = (Option<LogId>, Option<LogRecord>)> + use<'v> {
    let others = logs::each(view).map(|(log, record)| (log.ok(), record.ok()));
    let others = others.filter(move |(other, _)| other.as_ref() != Some(log));
    others.filter(move |(other, record)| match record {
        Some(record) => record.place == *place,
        // A log is at the place that belongs to its name, or where the first one was.
        None => is_first(place) || other.as_ref().is_some_and(|other| is_named_after(place, other)),
    })
}

/// Whether a place has the name of a log.
fn is_named_after(place: &LogPlace, log: &LogId) -> bool {
    matches!(place, LogPlace::Folder(name) | LogPlace::Prefix(name) if *name == name_of(log))
}

/// Whether a place is that of the log that the directory had before there was a cluster.
fn is_first(place: &LogPlace) -> bool {
    matches!(place, LogPlace::Folder(folder) if folder == FIRST_LOG)
}

/// Whether nobody who lives has a tenant.
fn is_unowned(view: &ClusterView) -> bool {
    let mut owners = view.shards(TENANTS).filter_map(|(_, record)| record.value.owner());
    !owners.any(|owner| view.lives(owner))
}

/// Whether a node is to have tenants.
fn is_host(node: &NodeRecord) -> bool {
    services_of(node).any(|service| service == SERVICE)
}

/// What all shards of tenants begin with.
const TENANTS: &str = "tenants/";

/// What is to be done about the tenants and logs of nodes that are gone, and what cannot be. When nobody who lives has any tenants, as all have only
/// started, nothing is granted until all nodes that are there serve, or `is_patience_over`. Nothing is done before there are all records of tenants: no
/// history names yet what whoever makes them has of a former release.
fn due(view: &ClusterView, loads: Loads, is_patience_over: bool) -> Result<Decision, ShardsError> {
    if !shards::are_kept(view)? {
        return Ok(Decision::default());
    }
    let loads = among(view, loads);
    let are_all_open = view.nodes().all(|node| !is_host(node) || !loads.closed.contains(&node.tenure.node));
    let may_grant = !is_unowned(view) || is_patience_over || are_all_open;
    let mut due = Vec::new();
    let mut forgotten = BTreeSet::new();
    let Decision { intents, mut stuck } = step(view, &loads);
    stuck.retain(|shard, _| may_grant && is_tenant(shard));
    for intent in intents {
        match intent {
            Intent::Grant { log, mut batch } => {
                batch.transitions.retain(|transition| shards::tenant_of(&transition.shard).is_some());
                if may_grant && !batch.transitions.is_empty() {
                    due.push(Intent::Grant { log, batch });
                }
            }
            // A place ends with the last of its logs.
            Intent::SealLog { ref log, ref place, .. } if is_used(view, log, place) => {}
            Intent::DeleteLog { ref log, ref place } if is_shared(view, log, place, &forgotten) => {}
            Intent::ForgetLog { log, change } if log.service == SERVICE => {
                forgotten.insert(log.clone());
                due.push(Intent::ForgetLog { log, change });
            }
            intent if intent.log().is_some_and(|log| log.service == SERVICE) => due.push(intent),
            _ => {}
        }
    }
    Ok(Decision { intents: due, stuck })
}

/// Whether somebody may append to another log of the same place.
fn is_used(view: &ClusterView, log: &LogId, place: &LogPlace) -> bool {
    others_at(view, log, place).any(|(_, record)| record.is_none_or(|record| record.state == LogState::Open))
}

/// What nodes say that they do, for decisions about tenants: only those count, and only nodes can have some that say that they serve them.
pub(super) fn among(view: &ClusterView, loads: Loads) -> Loads {
    let login = shards::named(view, LOGIN).inspect_err(shards::tell_unreadable).ok().flatten();
    let (login, drained) = (login.map(shards::shard), drained(view));
    let mut loads = Loads { login, drained, prefix: TENANTS.to_owned(), ..loads };
    for node in view.nodes() {
        if !shards::is_ready(view, &node.tenure) {
            loads.closed.insert(node.tenure.node.clone());
        }
    }
    loads
}

/// What a tenure proposes that cannot serve tenants: that others have those of which its own log has nothing. Nobody else may have the rest while
/// that log goes on.
fn handed_back(view: &ClusterView, loads: Loads, by: &Tenure) -> Vec<Batch> {
    let mut loads = among(view, loads);
    loads.closed.insert(by.node.clone());
    let mut placement = Placement::new(view, &loads);
    let own = shards::own_log(view, by).map(|(log, _)| log);
    let mut transitions = Vec::new();
    for (shard, record) in view.shards(TENANTS) {
        let log = record.value.history.as_ref().map(|history| &history.log);
        if record.value.owner() != Some(by) || (log.is_some() && log == own.as_ref()) {
            continue;
        }
        let Some(to) = placement.place(Some(shard), None) else { break };
        let next =
            ShardRecord::serving(to.clone(), record.value.epoch.next()).with_history(record.value.history.clone());
        transitions.push(Transition {
            shard: shard.clone(),
            expected: record.version,
            record: next,
            by: Some(by.clone()),
        });
    }
    let batches = transitions.chunks(GRANTS_PER_BATCH);
    let batch = |some: &[Transition]| Batch {
        transitions: some.to_vec(),
        expects: expectations(view, some),
        ..Batch::default()
    };
    batches.map(batch).collect()
}

/// Whether a log is one that a tenure holds and appends to.
pub(super) fn holds(view: &ClusterView, log: &LogId, owner: &Tenure) -> bool {
    let record = logs::get(view, log).ok().flatten();
    record.is_some_and(|(_, record)| record.state == LogState::Open && record.holder == *owner)
}

/// Whether a shard is a tenant's.
pub(super) fn is_tenant(shard: &ShardId) -> bool {
    shards::tenant_of(shard).is_some()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use savanna_epoch::OwnerEpoch;
    use savanna_ownership::core::Request;
    use savanna_ownership::logs::NewLog;
    use savanna_ownership::{History, MonoTime, Revision, RootChange, RootValue};

    use super::super::grants::tests::{ALL, Cluster};
    use super::*;

    impl Cluster {
        fn apply(&mut self, batch: Batch) {
            self.0.step(&Request::Apply(batch), MonoTime(0)).reply.unwrap();
        }

        /// A node opens a log of tenants at a place.
        fn begin(&mut self, owner: &Tenure, number: u64, place: LogPlace) -> LogId {
            let new = NewLog::numbered(&owner.node, SERVICE, &(number..number + 1)).unwrap();
            let log = new.id().clone();
            self.apply(logs::begin(&self.view(), new, place, owner.clone()).unwrap().into());
            log
        }

        /// A node serves tenants.
        fn serves(&mut self, tenure: &Tenure) {
            self.apply(shards::say_ready(&self.view(), tenure).into());
        }

        /// There are all records of tenants.
        fn keep(&mut self) {
            let value = Some(RootValue(br#"{"carried":0}"#.to_vec()));
            self.apply(RootChange { key: "tenant-numbers".to_owned(), expected: Revision::NONE, value }.into());
        }

        /// Nodes that serve tenants.
        fn hosts(&mut self, names: &[&str]) -> Vec<Tenure> {
            self.keep();
            let begin = |name: &&str| {
                let tenure = self.join(name, ALL);
                let place =
                    Shared::Directory(PathBuf::new()).place_of(&LogId::new(tenure.node.clone(), 1, SERVICE).unwrap());
                self.begin(&tenure, 1, place);
                self.serves(&tenure);
                tenure
            };
            names.iter().map(begin).collect()
        }

        /// A tenant with commits in its owner's log.
        fn tenant(&mut self, number: u64, owner: &Tenure) {
            let shard = shards::shard(number);
            let record = ShardRecord::serving(owner.clone(), OwnerEpoch(1));
            let made = Transition { shard: shard.clone(), expected: Revision::NONE, record, by: Some(owner.clone()) };
            self.apply(made.into());
            let log = shards::own_log(&self.view(), owner).unwrap().0;
            let known = self.0.shard(&shard).unwrap().clone();
            let record = known.value.with_history(Some(History { log, epoch: OwnerEpoch(1) }));
            self.apply(Transition { shard, expected: known.version, record, by: Some(owner.clone()) }.into());
        }

        fn due(&self, is_patience_over: bool) -> Vec<Intent> {
            due(&self.view(), Loads::default(), is_patience_over).unwrap().intents
        }

        /// Does what is due to the records, until nothing is. Returns the owners, by number of the tenant.
        fn settle(&mut self) -> Vec<(u64, String)> {
            for _ in 0..10 {
                for intent in self.due(true) {
                    match intent {
                        Intent::SealRecord { change, .. } | Intent::ForgetLog { change, .. } => {
                            self.apply(change.into())
                        }
                        Intent::Grant { batch, .. } => self.apply(batch),
                        Intent::SealLog { .. } | Intent::DeleteLog { .. } => {}
                    }
                }
            }
            let view = self.view();
            let owner = |(shard, record): (&ShardId, &savanna_ownership::Versioned<ShardRecord>)| {
                (shards::tenant_of(shard).unwrap(), record.value.owner().unwrap().node.0.clone())
            };
            view.shards(TENANTS).map(owner).collect()
        }
    }

    fn pairs(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        expected.iter().map(|(tenant, node)| (*tenant, (*node).to_owned())).collect()
    }

    /// Where a new tenant goes that a node is asked for, while no node says what it does.
    fn new_host(cluster: &Cluster, asked: &Tenure) -> Option<Tenure> {
        let view = cluster.view();
        place_for_new(&view, among(&view, Loads::default()), &asked.node, &BTreeSet::new()).unwrap().at
    }

    #[test]
    fn tenants_of_a_node_that_is_gone_go_to_nodes_that_have_opened_a_log_those_with_fewest_first() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2", "n3"]);
        (1..=4).for_each(|tenant| cluster.tenant(tenant, &hosts[0]));
        (5..=6).for_each(|tenant| cluster.tenant(tenant, &hosts[1]));
        cluster.join("n4", ALL);
        assert_eq!(cluster.due(true), [], "nobody is gone");
        cluster.leave(hosts[0].clone());
        let first = cluster.due(true);
        assert!(
            matches!(&first[..], [Intent::SealRecord { log, .. }] if log.node.0 == "n1"),
            "the record first: {first:?}"
        );
        let expected = [(1, "n3"), (2, "n3"), (3, "n2"), (4, "n3"), (5, "n2"), (6, "n2")];
        assert_eq!(cluster.settle(), pairs(&expected));
        // Who comes back gets nothing by itself, though it has fewest.
        let again = cluster.join("n1", ALL);
        cluster.begin(&again, 2, LogPlace::Folder("again".to_owned()));
        cluster.serves(&again);
        assert_eq!(cluster.settle(), pairs(&expected));
        assert_eq!(new_host(&cluster, &hosts[1]), Some(again), "but what is new");
    }

    #[test]
    fn nothing_is_adopted_before_its_log_is_sealed() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2"]);
        let log = shards::own_log(&cluster.view(), &hosts[0]).unwrap().0;
        let adoptable = |cluster: &Cluster| adoptable(&cluster.view(), BTreeSet::from([log.clone()]));
        assert_eq!(adoptable(&cluster), []);
        cluster.leave(hosts[0].clone());
        assert_eq!(adoptable(&cluster), [], "whoever comes back under its name may still append");
        cluster.apply(logs::seal(&cluster.view(), &log).unwrap().into());
        assert_eq!(adoptable(&cluster).len(), 1);
    }

    #[test]
    fn who_starts_with_others_waits_for_them() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2", "n3"]);
        (1..=3).for_each(|tenant| cluster.tenant(tenant, &hosts[0]));
        hosts.into_iter().for_each(|host| cluster.leave(host));
        for intent in cluster.due(false) {
            if let Intent::SealRecord { change, .. } = intent {
                cluster.apply(change.into());
            }
        }
        let grants = |cluster: &Cluster, is_patience_over| {
            cluster.due(is_patience_over).iter().any(|intent| matches!(intent, Intent::Grant { .. }))
        };
        let first = cluster.join("n1", ALL);
        cluster.join("n4", "keys");
        let second = cluster.join("n2", ALL);
        cluster.begin(&first, 2, LogPlace::Folder("first".to_owned()));
        cluster.serves(&first);
        assert!(!grants(&cluster, false), "it would get all of them");
        assert!(grants(&cluster, true));
        cluster.begin(&second, 2, LogPlace::Folder("second".to_owned()));
        assert!(!grants(&cluster, false), "its host may not start");
        cluster.serves(&second);
        assert!(grants(&cluster, false));
    }

    #[test]
    fn a_place_with_several_logs_ends_and_goes_with_the_last_of_them() {
        let mut cluster = Cluster::new();
        cluster.keep();
        let place = LogPlace::Folder(FIRST_LOG.to_owned());
        let former = cluster.join("n1", ALL);
        let log = cluster.begin(&former, 1, place.clone());
        cluster.leave(former);
        cluster.apply(logs::seal(&cluster.view(), &log).unwrap().into());
        let ends = |cluster: &Cluster| cluster.due(true).iter().any(|intent| matches!(intent, Intent::SealLog { .. }));
        assert!(ends(&cluster));
        let next = cluster.join("n2", ALL);
        let open = cluster.begin(&next, 1, place.clone());
        assert!(!ends(&cluster), "somebody appends to it");
        assert_eq!(adoptable(&cluster.view(), BTreeSet::from([log.clone()])), []);
        let deletions = |cluster: &Cluster| {
            cluster.due(true).iter().filter(|intent| matches!(intent, Intent::DeleteLog { .. })).count()
        };
        assert_eq!(deletions(&cluster), 0);
        cluster.leave(next);
        cluster.apply(logs::seal(&cluster.view(), &open).unwrap().into());
        assert_eq!(deletions(&cluster), 1, "two logs end, and the place with the last");
        cluster.settle();
        assert_eq!(logs::all(&cluster.view()).unwrap().len(), 0);
    }

    #[test]
    fn a_record_that_cannot_be_read_keeps_its_own_place_and_nobody_else() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2", "n3"]);
        (1..=2).for_each(|tenant| cluster.tenant(tenant, &hosts[0]));
        let later = |key: &str| {
            let value = Some(RootValue(b"a later release".to_vec()));
            RootChange { key: key.to_owned(), expected: Revision::NONE, value }
        };
        for key in ["logs/n9.1/keys", "tenant-names/odd", "tenant-garbage/x"] {
            cluster.apply(later(key).into());
        }
        let part = ShardId::new("tenants/7/1");
        let record = ShardRecord::serving(hosts[1].clone(), OwnerEpoch(1));
        cluster.apply(Transition { shard: part, expected: Revision::NONE, record, by: None }.into());
        let log = shards::own_log(&cluster.view(), &hosts[0]).unwrap().0;
        cluster.leave(hosts[0].clone());
        let batches = handed_back(&cluster.view(), Loads::default(), &hosts[1]);
        assert!(
            batches.iter().all(|batch| batch.transitions.iter().all(|t| t.shard.0 == "tenants/7/1")),
            "{batches:?}"
        );
        // Their owners are others once the log's record is sealed; it stays, as nobody has adopted them.
        for intent in cluster.due(true) {
            if let Intent::SealRecord { change, .. } = intent {
                cluster.apply(change.into());
            }
        }
        assert!(cluster.due(true).iter().any(|intent| matches!(intent, Intent::Grant { .. })));
        assert_eq!(adoptable(&cluster.view(), BTreeSet::from([log.clone()])).len(), 1);
        let place = LogPlace::Folder(name_of(&log));
        assert!(!is_used(&cluster.view(), &log, &place) && !is_shared(&cluster.view(), &log, &place, &BTreeSet::new()));
        let first = LogPlace::Folder(FIRST_LOG.to_owned());
        assert!(is_used(&cluster.view(), &log, &first) && is_shared(&cluster.view(), &log, &first, &BTreeSet::new()));
        let unread = LogId::new(NodeId::new("n9"), 1, "keys").unwrap();
        assert!(is_used(&cluster.view(), &log, &LogPlace::Folder(name_of(&unread))));
    }

    #[test]
    fn nothing_ends_before_the_records_of_tenants_are_made() {
        let mut cluster = Cluster::new();
        let maker = cluster.join("n1", ALL);
        cluster.begin(&maker, 1, LogPlace::Folder(FIRST_LOG.to_owned()));
        cluster.leave(maker);
        assert_eq!(cluster.due(true), [], "no history names yet what it has");
        cluster.keep();
        assert_eq!(cluster.due(true).len(), 1);
    }

    #[test]
    fn a_node_whose_host_does_not_start_gets_nothing_and_gives_what_it_was_granted_to_others() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2"]);
        let broken = cluster.join("n3", ALL);
        cluster.begin(&broken, 1, LogPlace::Folder("broken".to_owned()));
        (1..=2).for_each(|tenant| cluster.tenant(tenant, &hosts[0]));
        (3..=5).for_each(|tenant| cluster.tenant(tenant, &hosts[1]));
        assert_eq!(new_host(&cluster, &hosts[1]), Some(hosts[0].clone()), "not the broken one");
        cluster.leave(hosts[0].clone());
        assert!(cluster.settle().iter().all(|(_, owner)| owner == "n2"));
        // It was granted some before it broke, and has commits of one.
        let granted = |cluster: &mut Cluster, tenant| {
            let record = ShardRecord::serving(broken.clone(), OwnerEpoch(1));
            let shard = shards::shard(tenant);
            cluster.apply(Transition { shard, expected: Revision::NONE, record, by: None }.into());
        };
        granted(&mut cluster, 6);
        cluster.tenant(7, &broken);
        for batch in handed_back(&cluster.view(), Loads::default(), &broken) {
            cluster.apply(batch);
        }
        let owners = cluster.settle();
        assert_eq!(owners[5..], pairs(&[(6, "n2"), (7, "n3")]));
        assert!(handed_back(&cluster.view(), Loads::default(), &broken).is_empty());
        cluster.leave(hosts[1].clone());
        assert!(handed_back(&cluster.view(), Loads::default(), &broken).is_empty(), "nobody else can");
    }

    #[test]
    fn what_a_node_gives_to_others_does_not_come_to_one_that_was_drained_meanwhile() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2", "n3"]);
        let record = ShardRecord::serving(hosts[0].clone(), OwnerEpoch(1));
        let granted = Transition { shard: shards::shard(1), expected: Revision::NONE, record, by: None };
        cluster.apply(granted.into());
        let decided = |cluster: &Cluster| handed_back(&cluster.view(), Loads::default(), &hosts[0]).remove(0);
        let old = decided(&cluster);
        let to = |batch: &Batch| batch.transitions[0].record.owner().unwrap().node.clone();
        assert_eq!(to(&old).0, "n2");
        let change = savanna_control::drained::change(&cluster.view(), &to(&old), true, |_| true);
        cluster.apply(change.unwrap().unwrap());
        assert!(cluster.0.step(&Request::Apply(old), MonoTime(0)).reply.is_err());
        let anew = decided(&cluster);
        assert_eq!(to(&anew).0, "n3");
        cluster.apply(anew);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2"]);
        cluster.tenant(1, &hosts[0]);
        cluster.leave(hosts[0].clone());
        let log = LogId::new(NodeId::new("n1"), 1, SERVICE).unwrap();
        let (version, _) = logs::get(&cluster.view(), &log).unwrap().unwrap();
        cluster.apply(RootChange { key: logs::key(&log), expected: version, value: None }.into());
        let decision = due(&cluster.view(), Loads::default(), true).unwrap();
        assert_eq!(decision.stuck, BTreeMap::from([(shards::shard(1), Stuck::Lost(log))]));
    }

    #[test]
    fn where_a_new_tenant_is_made_expects_that_its_node_was_not_drained_since() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2"]);
        let place_after = |cluster: &Cluster, failed: &[&Tenure]| {
            let (view, failed) = (cluster.view(), failed.iter().map(|tenure| tenure.node.clone()).collect());
            place_for_new(&view, among(&view, Loads::default()), &hosts[0].node, &failed)
        };
        let place = |cluster: &Cluster| place_after(cluster, &[]).unwrap();
        let here = place(&cluster);
        assert_eq!((here.at, here.expects[0].key.as_str()), (None, "drained/n1"));
        let change = savanna_control::drained::change(&cluster.view(), &hosts[0].node, true, |_| true);
        cluster.apply(change.unwrap().unwrap());
        let there = place(&cluster);
        assert_eq!((there.at.as_ref(), there.expects[0].key.as_str()), (Some(&hosts[1]), "drained/n2"));
        assert_eq!(place_after(&cluster, &[&hosts[1]]), None, "it does not come back to a node that is drained");
    }

    #[test]
    fn a_new_tenant_goes_where_fewest_are_and_rather_here() {
        let mut cluster = Cluster::new();
        let hosts = cluster.hosts(&["n1", "n2"]);
        let place = |cluster: &Cluster, node: &Tenure| {
            let host = new_host(cluster, node);
            host.map_or_else(|| "here".to_owned(), |tenure| tenure.node.0)
        };
        assert_eq!((place(&cluster, &hosts[0]), place(&cluster, &hosts[1])), ("here".to_owned(), "here".to_owned()));
        cluster.tenant(1, &hosts[0]);
        assert_eq!((place(&cluster, &hosts[0]), place(&cluster, &hosts[1])), ("n2".to_owned(), "here".to_owned()));
        // A node without a log cannot have any.
        cluster.join("n3", ALL);
        cluster.tenant(2, &hosts[1]);
        assert_eq!(place(&cluster, &hosts[0]), "here");
    }
}
