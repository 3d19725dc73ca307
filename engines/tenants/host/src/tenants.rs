//! All tenants of a host: for whoever administrates them from outside of SQL, and for faces, which take clients to them.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::stream::BoxStream;
use savanna_epoch::LogId;
use savanna_journal::{SealedLog, Stats as LogStats};
use savanna_ownership::ClusterView;
use savanna_tenants::activity::Counts;
use savanna_tenants_segments::TenantId;
use savanna_tenants_sql::backends::{Backend, Backends as _, Signal};
use savanna_tenants_store::{
    owner::{self, wake},
    role::Acquaintance,
    shards::FIRST_EPOCH,
    storage::{Archive, Asked, StoreFigures},
};
use savanna_tenants_values::error::{SqlError, state};
use tokio::sync::oneshot;

use crate::{
    access::{self, Access, Claim},
    host::Stopper,
    known::Heard,
    process::{ADMINISTRATION, Key, Process, check_name},
    thread::{Connection, Order},
};

/// How long those are waited for who are about to leave a tenant that is to be removed, as in PostgreSQL: a client that has said
/// goodbye does not wait until that is heard.
const LEAVING: Duration = Duration::from_secs(5);
const LEAVING_ROUND: Duration = Duration::from_millis(10);
/// So often it is tried to make a restored tenant whose node was drained or filled a moment ago, as the records say, and the pause behind each time: so long this node
/// may be late to hear of it.
const PLACE_ATTEMPTS: usize = 40;
const PLACE_PAUSE: Duration = Duration::from_millis(50);

/// The tenants of a host. Cheap to clone.
#[derive(Clone)]
pub struct Tenants {
    process: Arc<Process>,
    stopper: Stopper,
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").finish_non_exhaustive()
    }
}

impl Tenants {
    pub(crate) const fn new(process: Arc<Process>, stopper: Stopper) -> Self {
        Self { process, stopper }
    }

    pub(crate) const fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The tenant of a name, wherever it is.
    ///
    /// # Errors
    /// 3D000, and 58000 if it is not known whether there is one.
    pub async fn tenant(&self, name: &str) -> Result<TenantId, SqlError> {
        self.process.locate(name).await
    }

    /// Whether a tenant is on this node.
    #[must_use]
    pub fn has(&self, tenant: TenantId) -> bool {
        self.process.has(tenant)
    }

    /// What a tenant of this node knows of somebody.
    ///
    /// # Errors
    /// 57P03 if it cannot say so in time.
    pub async fn acquaintance(&self, tenant: TenantId, user: &str) -> Result<Acquaintance, SqlError> {
        self.process.ask_here(tenant, user).await
    }

    /// What was granted to this node and has not arrived: the logs that have commits of such tenants, and whether there are others, of which
    /// no log has any.
    #[must_use]
    pub fn awaited(&self, view: &ClusterView) -> (BTreeSet<LogId>, bool) {
        owner::forget_warm(&self.process.owner, &self.process.storage, view);
        owner::awaited(&self.process.owner, view)
    }

    /// Takes in what was granted to this node and has commits in a log whose record is sealed. `seal` ends that log, and blocks.
    ///
    /// # Errors
    /// Those of the logs and of the coordinator.
    pub async fn adopt(
        &self,
        log: LogId,
        seal: impl FnOnce() -> Result<SealedLog, SqlError> + Send + 'static,
    ) -> Result<Vec<TenantId>, SqlError> {
        let process = Arc::clone(&self.process);
        let adopting = move || {
            let sealed = seal()?;
            process.background.block_on(owner::adopt(&process.owner, &process.storage, &log, &sealed))
        };
        self.process.background.spawn_blocking(adopting).await.map_err(SqlError::internal)?
    }

    /// Takes in what was granted to this node and has commits in no log.
    ///
    /// # Errors
    /// Those of the log and of the coordinator.
    pub async fn adopt_new(&self) -> Result<Vec<TenantId>, SqlError> {
        let process = Arc::clone(&self.process);
        let adopting = async move { owner::adopt_new(&process.owner).await };
        self.process.background.spawn(adopting).await.map_err(SqlError::internal)?
    }

    /// Decides how a client may come in. Returns also what the database of administrators has said of it, for [`came_in`](Self::came_in).
    ///
    /// # Errors
    /// 57P03 if who may come in cannot be read in time.
    pub async fn access(&self, claim: Claim<'_>) -> Result<(Access, Heard), SqlError> {
        let administrators = self.process.administrators(claim.user).await?;
        let own = match claim.tenant {
            Some(tenant) => self.process.ask(tenant, claim.user).await?,
            None => Acquaintance::default(),
        };
        Ok((access::decide(&claim, administrators.known.clone(), own), administrators))
    }

    /// Somebody has proved who it is: what the database of administrators has said of it counts for a while, if no node has that database.
    pub fn came_in(&self, user: &str, heard: &Heard) {
        self.process.note_known(user, heard);
    }

    /// Whether the log has space for more.
    ///
    /// # Errors
    /// 53100 if it has none.
    pub fn expect_space(&self) -> Result<(), SqlError> {
        self.process.journal.full().map_or(Ok(()), |full| Err(full.into()))
    }

    /// Takes a client to a tenant's thread, where it is served, or refused.
    pub fn connect(&self, tenant: TenantId, connection: Box<dyn Connection>) {
        self.process.tell(tenant, Order::Connect { tenant, connection });
    }

    /// Ends the statement of the connection that has the key.
    pub fn cancel(&self, key: Key) {
        self.process.connections.cancel(key);
    }

    /// The connections of databases on this node.
    #[must_use]
    pub fn backends(&self) -> Vec<Backend> {
        self.process.connections.list()
    }

    /// Tells a connection of this node something that another node has asked for, which has seen it. Whether it is there.
    pub fn signal(&self, backend: &Backend, signal: Signal) -> bool {
        self.process.connections.tell_for(backend, signal)
    }

    /// Waits until the host is to stop, or cannot go on.
    pub async fn stopped(&self) {
        self.stopper.stopped().await;
    }

    /// All that are on this node by name, with what goes on in them.
    #[must_use]
    pub fn list(&self) -> Vec<(String, Counts)> {
        self.process.list()
    }

    /// What goes on in all that are on this node.
    #[must_use]
    pub fn counts(&self) -> Vec<(TenantId, Counts)> {
        self.process.counts()
    }

    /// How many of them are awake, as was counted last.
    #[must_use]
    pub fn awake(&self) -> usize {
        self.process.awake()
    }

    /// What was written to their log since the server began.
    #[must_use]
    pub fn log(&self) -> LogStats {
        self.process.journal.stats()
    }

    /// What was asked of the storage since the server began.
    #[must_use]
    pub fn store(&self, asked: Asked) -> StoreFigures {
        self.process.storage.figures(asked)
    }

    pub(crate) fn save_end(&self) {
        self.process.save_end();
    }

    /// Makes one; the answer is durable.
    ///
    /// # Errors
    /// 42P04 if there is one, 42602 if it cannot be called so; those of the coordinator.
    pub async fn create(&self, name: &str) -> Result<(), SqlError> {
        self.process.create(name).await
    }

    /// Removes one; the answer is durable.
    ///
    /// # Errors
    /// 3D000 if there is none, 55006 if somebody is there; those of the coordinator.
    pub async fn remove(&self, name: &str) -> Result<(), SqlError> {
        remove(&self.process, name).await
    }

    /// One with all that is committed in it by now, as an archive. It goes on meanwhile.
    ///
    /// # Errors
    /// 3D000 if there is none, 55000 if the storage does not get what is committed; those of the storage.
    pub async fn backup(&self, name: &str) -> Result<Archive, SqlError> {
        let tenant = self.process.locate(name).await?;
        let elsewhere = self.process.elsewhere(tenant);
        match elsewhere {
            Some(others) => others.save(tenant).await?,
            None => self.save(tenant).await?,
        }
        let process = Arc::clone(&self.process);
        let archive = async move { process.storage.archive(tenant).await };
        let archive = self.process.background.spawn(archive).await.map_err(SqlError::internal)??;
        match elsewhere {
            None => self.process.expect_owned(tenant)?,
            // It was there when nothing was found of it, or it was dropped meanwhile.
            Some(others) if archive.is_empty() => others.save(tenant).await?,
            Some(_) => {}
        }
        Ok(archive)
    }

    /// Sees to it that all that is committed by now of a tenant of this node is in the storage.
    ///
    /// # Errors
    /// 55000 if the storage does not get it; those of the storage.
    pub async fn save(&self, tenant: TenantId) -> Result<(), SqlError> {
        let (saved, answer) = oneshot::channel();
        self.process.tell(tenant, Order::Save { tenant, all: true, saved });
        answer.await.unwrap_or_else(|_| Err(SqlError::new("57P01", "the server is stopping")))
    }

    /// Makes one of an archive; it is there, and durable, or it is not there. It goes on if nobody waits for the answer.
    ///
    /// # Errors
    /// 42P04 if there is one, 42602 if it cannot be called so, 22P04 if the archive is none, 55000 if this node was drained meanwhile; those of the coordinator and the
    /// storage.
    pub async fn restore(
        &self,
        name: &str,
        archive: BoxStream<'static, std::io::Result<Bytes>>,
    ) -> Result<(), SqlError> {
        check_name(name)?;
        let restoring = restore(Arc::clone(&self.process), name.to_owned(), archive);
        self.process.background.spawn(restoring).await.map_err(SqlError::internal)?
    }
}

/// Removes a tenant, wherever it is, in which nobody is, or who is there leaves soon; the answer is durable.
pub(crate) async fn remove(process: &Process, name: &str) -> Result<(), SqlError> {
    if name == ADMINISTRATION {
        return Err(SqlError::new("55006", "cannot drop the database of the administrators"));
    }
    if process.keeping.only_read.as_deref() == Some(name) {
        let message = format!("cannot drop database \"{name}\": it belongs to another service of this node");
        return Err(SqlError::new("55006", message).hint("Files keep their names in it; without it they are lost."));
    }
    let tenant = process.locate(name).await?;
    if let Some(others) = process.elsewhere(tenant) {
        return others.remove(tenant, name).await;
    }
    let began = Instant::now();
    loop {
        let (removed, answer) = oneshot::channel();
        process.tell(tenant, Order::Remove { tenant, removed });
        let removed = answer.await.map_err(|_| SqlError::new("57P01", "the server is stopping"))?;
        // It has moved meanwhile, or has begun to.
        if removed.is_err()
            && let Some(others) = process.elsewhere(tenant).filter(|others| others.has_owner(tenant))
        {
            return others.remove(tenant, name).await;
        }
        match removed {
            Err(error) if error.state == "55006" && began.elapsed() < LEAVING => {
                tokio::time::sleep(LEAVING_ROUND).await;
            }
            removed => return removed,
        }
    }
}

async fn restore(
    process: Arc<Process>,
    name: String,
    archive: BoxStream<'static, std::io::Result<Bytes>>,
) -> Result<(), SqlError> {
    if process.locate(&name).await.is_ok() {
        return Err(SqlError::new(state::DUPLICATE_DATABASE, format!("database \"{name}\" already exists")));
    }
    // If the process ends before the tenant is there, whoever comes next removes what it has left.
    let tenant = owner::reserve(&process.owner).await?;
    let created = match fill(&process, tenant, archive).await {
        // That took as long as whoever sends the archive took.
        Ok(()) => make_restored(&process, tenant, &name).await,
        Err(error) => Err(error),
    };
    if created.is_err() {
        process.owner.lock().give_up(tenant);
    }
    created
}

/// Makes a tenant whose rows are in the storage, unless this node gets nothing new. Where the records say otherwise than this node knows, it asks again, as it hears of it soon.
async fn make_restored(process: &Process, tenant: TenantId, name: &str) -> Result<(), SqlError> {
    let mut attempts = 0;
    loop {
        let Some(expects) = process.place_here() else { return Err(drained(name)) };
        attempts += 1;
        match owner::create_as(&process.owner, tenant, name, &expects).await {
            Err(error) if error.state == "57P03" && attempts < PLACE_ATTEMPTS => tokio::time::sleep(PLACE_PAUSE).await,
            made => return made,
        }
    }
}

/// What whoever restores a tenant hears when its node gets nothing new by now.
fn drained(name: &str) -> SqlError {
    let message = format!("this node was drained while the database \"{name}\" was restored, and gets nothing new");
    SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .hint("Restore it through another node, or end the drain of this one (`savanna drain NODE --undo`).")
}

/// Puts an archive where a tenant is to be, and makes sure that it can be used.
async fn fill(
    process: &Process,
    tenant: TenantId,
    archive: BoxStream<'static, std::io::Result<Bytes>>,
) -> Result<(), SqlError> {
    process.storage.restore(tenant, archive).await?;
    wake(&process.storage, &process.journal, (tenant, FIRST_EPOCH), &Vec::new()).await?;
    Ok(())
}
