//! A tenant that is awake: its state, those who wait in it, and its place in the storage.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use savanna_tenants::{
    SessionId, SqlError,
    activity::Activity,
    database::{Database, Swept},
    error::Result,
    role::Acquaintance,
    storage::{Home, StorageError},
    store::{Reading, Want},
    tenant::Tenant,
};
use savanna_tenants_segments::{Block, PageId, TenantId};
use tokio::sync::Notify;

/// From 1970-01-01 to 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A tenant and those who wait in it.
pub(crate) struct Room {
    pub(crate) id: TenantId,
    tenant: RefCell<Tenant>,
    waiting: RefCell<HashMap<SessionId, Rc<Notify>>>,
    pub(crate) home: Arc<Home>,
    background: tokio::runtime::Handle,
    /// Clients that are here or on their way in.
    visitors: Cell<usize>,
    /// When the last client left; nothing if there was none since it woke.
    left: Cell<Option<Instant>>,
    /// Whether it is being flushed.
    pub(crate) flushing: Cell<bool>,
    /// Whether something is being fetched for its own work.
    sweeping: Cell<bool>,
    /// Requests to the storage that nobody has paid for.
    requests: Cell<u64>,
}

/// That a client is in a room.
pub(crate) struct Visit(Rc<Room>);

impl Visit {
    pub(crate) fn room(&self) -> &Rc<Room> {
        &self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visitors.set(self.0.visitors.get() - 1);
        self.0.left.set(Some(Instant::now()));
    }
}

impl Room {
    pub(crate) fn new(
        id: TenantId,
        home: Arc<Home>,
        (database, activity): (Database, Arc<Activity>),
        background: tokio::runtime::Handle,
    ) -> Rc<Self> {
        Rc::new(Self {
            id,
            tenant: RefCell::new(Tenant::new(database, activity)),
            waiting: RefCell::default(),
            home,
            background,
            visitors: Cell::new(0),
            left: Cell::new(None),
            flushing: Cell::new(false),
            sweeping: Cell::new(false),
            requests: Cell::new(0),
        })
    }

    /// Does something with the tenant, wakes whom that woke, and fetches what that wants.
    pub(crate) fn with<T>(self: &Rc<Self>, work: impl FnOnce(&mut Tenant) -> T) -> T {
        let mut tenant = self.tenant.borrow_mut();
        tenant.set_now(now());
        let result = work(&mut tenant);
        let waiting = self.waiting.borrow();
        for id in tenant.woken() {
            if let Some(notify) = waiting.get(&id) {
                notify.notify_one();
            }
        }
        for want in tenant.wants() {
            tokio::task::spawn_local(Rc::clone(self).bring(want));
        }
        result
    }

    /// Brings blocks to those who want them.
    fn bring(self: Rc<Self>, want: Want) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let blocks = self.fetch(want.clone()).await;
            self.with(|tenant| tenant.arrived(&want, &blocks));
        })
    }

    /// What a session is woken by.
    pub(crate) fn waits(&self, id: SessionId) -> Rc<Notify> {
        Rc::clone(self.waiting.borrow_mut().entry(id).or_default())
    }

    /// A session is over.
    pub(crate) fn leave(self: &Rc<Self>, id: SessionId) {
        self.with(|tenant| tenant.close_session(id));
        self.waiting.borrow_mut().remove(&id);
    }

    /// A client comes: the tenant stays awake until it is gone.
    pub(crate) fn enter(self: &Rc<Self>) -> Visit {
        self.visitors.set(self.visitors.get() + 1);
        Visit(Rc::clone(self))
    }

    /// Whether no client is here or on its way in.
    pub(crate) fn is_empty(&self) -> bool {
        self.visitors.get() == 0
    }

    /// Whether no client has been here for so long.
    pub(crate) fn is_idle(&self, time: Duration) -> bool {
        self.is_empty() && self.left.get().is_none_or(|left| left.elapsed() >= time)
    }

    /// Does something with the tenant's place in the storage, on another thread.
    pub(crate) async fn store<T, F>(&self, work: impl FnOnce(Arc<Home>) -> F) -> std::result::Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, StorageError>> + Send + 'static,
    {
        let done = self.background.spawn(work(Arc::clone(&self.home))).await;
        done.unwrap_or_else(|error| Err(StorageError::Ended(error.to_string())))
    }

    /// The requests to the storage since the last time.
    pub(crate) fn take_requests(&self) -> u64 {
        self.requests.take()
    }

    async fn fetch(&self, want: Want) -> Result<Vec<(PageId, Arc<Block>)>> {
        self.requests.set(self.requests.get() + 1);
        self.store(|home| async move { home.fetch(&want).await }).await.map_err(SqlError::from)
    }

    /// What the tenant knows of somebody.
    pub(crate) async fn acquaintance(self: &Rc<Self>, user: &str) -> Result<Acquaintance> {
        let mut reading = Reading::default();
        loop {
            match self.with(|tenant| tenant.database().acquaintance(user, &mut reading))? {
                Ok(known) => return Ok(known),
                Err(want) => reading.arrived(&self.fetch(want).await?)?,
            }
        }
    }

    /// Removes keys that no table has any more, at most so many. Whether there are others.
    pub(crate) fn sweep(self: &Rc<Self>, keys_max: usize) -> Result<bool> {
        if self.sweeping.get() {
            return Ok(false);
        }
        match self.with(|tenant| tenant.database().sweep(keys_max))? {
            Swept::Clean => Ok(false),
            Swept::More => Ok(true),
            Swept::Wants(want) => {
                self.sweeping.set(true);
                let room = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    let taken = match room.fetch(want).await {
                        Ok(blocks) => room.with(|tenant| tenant.database().chores().arrived(&blocks)),
                        Err(error) => Err(error),
                    };
                    if let Err(error) = taken {
                        tracing::error!(%error, "what is to be removed of a tenant stays");
                    }
                    room.sweeping.set(false);
                });
                Ok(false)
            }
        }
    }
}

/// Microseconds since 2000-01-01.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64 - EPOCH_MICROS
}
