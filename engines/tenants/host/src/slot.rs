//! A tenant that is awake: its state, its sessions that wait, and its place in the storage.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use savanna_journal::Journal;
use savanna_tenants::{
    activity::Activity,
    budget::Amounts,
    tenant::{OpenImage, Tenant, Writes},
};
use savanna_tenants_segments::{Block, PageId, TenantId};
use savanna_tenants_store::{
    Reading, Want,
    database::{Database, SessionId, Swept},
    large::{Part, Parts},
    pages::{Asked, Page, PageRequest},
    points,
    role::{Acquaintance, Roles},
    storage::{Home, StorageError},
};
use savanna_tenants_values::error::{Result, SqlError, state};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    places::{Place, Places},
    policy::{Condition, Found},
    process::Process,
    session::WEIGHT,
    thread::ThreadContext,
};

/// From 1970-01-01 to 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// For so long a tenant counts as shared after somebody else than before has done something with it.
const LATELY: Duration = Duration::from_secs(5);

/// So long the storage may take for a part of what a transaction has written.
const PART_TIME: Duration = Duration::from_secs(60);
/// So long nobody tries to remove parts again after that has failed.
const LITTER_PAUSE: Duration = Duration::from_secs(1);
/// So long a page waits behind statements; then it comes by the same right.
const PAGE_PATIENCE: Duration = Duration::from_millis(50);
/// So long a tenant stays between two statements that take it along, if queries beside it wait for rows.
const PAGES_BETWEEN: Duration = Duration::from_millis(50);

/// A tenant and those who wait in it.
pub(crate) struct TenantSlot {
    pub(crate) id: TenantId,
    /// Nothing while it is aside: on another thread, with a statement that takes long.
    tenant: RefCell<Option<Tenant>>,
    /// That it is here again.
    back: Notify,
    /// Since when, if it was away.
    back_at: Cell<Instant>,
    /// That somebody waits for that.
    wanted: Notify,
    /// The session that did something with it last, and when that was another one than before.
    user: Cell<Option<SessionId>>,
    shared: Cell<Option<Instant>>,
    /// What it was when it was here last.
    condition: Cell<Condition>,
    /// While it is aside, the roles that it left with: who logs in does not wait for its statement. What that commits is told
    /// to nobody before the tenant is back.
    roles_aside: RefCell<Option<Result<Rc<Roles>>>>,
    /// Sessions that ended while it was aside.
    left_aside: RefCell<Vec<SessionId>>,
    /// Sessions whose statement failed before it got to the tenant, while that was aside.
    failed_aside: RefCell<Vec<SessionId>>,
    waiting: RefCell<HashMap<SessionId, Rc<Notify>>>,
    /// Those who may hear of other sessions.
    hearing: RefCell<HashMap<SessionId, Rc<Notify>>>,
    pub(crate) home: Arc<Home>,
    /// What goes on in it, for whoever watches it.
    pub(crate) activity: Arc<Activity>,
    background: tokio::runtime::Handle,
    journal: Arc<Journal>,
    /// Whose statement of this tenant is aside, or waits for a place there.
    turn_aside: Arc<Semaphore>,
    /// Places for tenants that are aside.
    places_aside: Arc<Places>,
    /// What this tenant's queries may have of the places beside.
    turns_beside: Arc<Semaphore>,
    /// Places for queries that run beside their tenants.
    places_beside: Arc<Places>,
    /// Clients that are connected or about to be.
    connections: Cell<usize>,
    /// When the last client left; nothing if there was none since it woke.
    left: Cell<Option<Instant>>,
    /// Whether it is being flushed.
    pub(crate) flushing: Cell<bool>,
    /// Whether it moves to another node.
    pub(crate) is_leaving: Cell<bool>,
    /// Since when it does, or did last.
    pub(crate) leaves_since: Cell<Instant>,
    /// The attempt to move it last in which what is open in its sessions goes along, if that was the last one.
    pub(crate) along: Cell<Option<u64>>,
    /// Statements that wait for something that the process does.
    errands: Cell<usize>,
    /// Since when sessions may come for what they have left here.
    pub(crate) welcomes: Cell<Instant>,
    /// Behind the keys that were evicted last.
    pub(crate) evicted_to: RefCell<Vec<u8>>,
    /// Whether its last flush failed, and more waits than may.
    pub(crate) storage_full: Cell<bool>,
    /// Whether something is being fetched for its own work.
    sweeping: Cell<bool>,
    /// Whether parts are being removed that nobody needs.
    removes_litter: Cell<bool>,
    /// Requests to the storage that nobody has paid for.
    requests: Cell<u64>,
}

/// Where something runs that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// On another thread, with its tenant.
    Aside,
    /// On another thread, while its tenant stays.
    Beside,
}

/// A place for something that takes long.
pub(crate) struct PlaceAside {
    _turn: Option<OwnedSemaphorePermit>,
    place: Place,
}

impl PlaceAside {
    /// Whether it is to be given up.
    pub(crate) fn is_wanted(&self) -> bool {
        self.place.is_wanted()
    }
}

/// A statement of a tenant asks something of the process, and waits for that.
pub(crate) struct Errand(Rc<TenantSlot>);

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.errands.set(self.0.errands.get() - 1);
    }
}

/// A connection to a tenant, or somebody who asks it something: it stays awake meanwhile.
pub struct ConnectionGuard {
    thread: Rc<ThreadContext>,
    slot: Rc<TenantSlot>,
}

impl std::fmt::Debug for ConnectionGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionGuard").field("tenant", &self.slot.id).finish_non_exhaustive()
    }
}

impl ConnectionGuard {
    pub(crate) fn new(thread: &Rc<ThreadContext>, slot: &Rc<TenantSlot>) -> Self {
        slot.connections.set(slot.connections.get() + 1);
        Self { thread: Rc::clone(thread), slot: Rc::clone(slot) }
    }

    pub(crate) const fn thread(&self) -> &Rc<ThreadContext> {
        &self.thread
    }

    pub(crate) const fn slot(&self) -> &Rc<TenantSlot> {
        &self.slot
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        self.slot.id
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.slot.connections.set(self.slot.connections.get() - 1);
        self.slot.left.set(Some(Instant::now()));
    }
}

impl TenantSlot {
    pub(crate) fn new(
        id: TenantId,
        home: Arc<Home>,
        (database, activity): (Database, Arc<Activity>),
        open: Option<&OpenImage>,
        process: &Process,
    ) -> Rc<Self> {
        let tenant = match open {
            Some(open) => Tenant::taking_over(database, Arc::clone(&activity), open, now()),
            None => Tenant::new(database, Arc::clone(&activity)),
        };
        let tenant = tenant.sharing(Arc::clone(&process.statements));
        let spills = process.keeping.spills.then(|| Arc::new(process.spills.of_another()));
        let tenant = match spills {
            Some(spills) => tenant.spilling(spills),
            None => tenant,
        };
        let tenant = tenant.writing_in_parts(process.keeping.transactions, Arc::clone(home.litter()));
        Rc::new(Self {
            id,
            tenant: RefCell::new(Some(tenant)),
            activity,
            back: Notify::new(),
            back_at: Cell::new(Instant::now()),
            wanted: Notify::new(),
            user: Cell::new(None),
            shared: Cell::new(None),
            condition: Cell::default(),
            roles_aside: RefCell::default(),
            left_aside: RefCell::default(),
            failed_aside: RefCell::default(),
            waiting: RefCell::default(),
            hearing: RefCell::default(),
            home,
            background: process.background.clone(),
            journal: Arc::clone(&process.journal),
            turn_aside: Arc::new(Semaphore::new(1)),
            places_aside: Arc::clone(&process.aside),
            turns_beside: Arc::new(Semaphore::new(process.beside_of_one)),
            places_beside: Arc::clone(&process.beside),
            connections: Cell::new(0),
            left: Cell::new(None),
            flushing: Cell::new(false),
            is_leaving: Cell::new(false),
            leaves_since: Cell::new(Instant::now()),
            along: Cell::new(None),
            errands: Cell::new(0),
            welcomes: Cell::new(Instant::now()),
            evicted_to: RefCell::default(),
            storage_full: Cell::new(false),
            sweeping: Cell::new(false),
            removes_litter: Cell::new(false),
            requests: Cell::new(0),
        })
    }

    /// Does something with the tenant when it is here, wakes whom that woke, and fetches what that wants.
    pub(crate) async fn with<T>(self: &Rc<Self>, work: impl FnOnce(&mut Tenant) -> T) -> T {
        loop {
            if let Some(tenant) = self.tenant.borrow_mut().as_mut() {
                tenant.set_now(now());
                let result = work(tenant);
                self.follow(tenant);
                return result;
            }
            self.wanted_back().await;
        }
    }

    /// A session does something with the tenant.
    pub(crate) fn used_by(&self, id: SessionId) {
        if self.user.replace(Some(id)).is_some_and(|before| before != id) {
            self.shared.set(Some(Instant::now()));
        }
    }

    /// Whether several sessions did something with the tenant lately.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.get().is_some_and(|when| when.elapsed() < LATELY)
    }

    /// A statement asks something of the process; it is over when what this returns is gone.
    pub(crate) fn errand(self: &Rc<Self>) -> Errand {
        self.errands.set(self.errands.get() + 1);
        Errand(Rc::clone(self))
    }

    /// Whether a statement waits for something that the process does.
    pub(crate) fn has_errands(&self) -> bool {
        self.errands.get() > 0
    }

    /// Waits until the tenant is on this thread.
    pub(crate) async fn returned(&self) {
        while self.is_aside() {
            self.back.notified().await;
        }
    }

    /// The same for somebody who has something to do with it, so that what can run without it lets it go.
    pub(crate) async fn wanted_back(&self) {
        while self.is_aside() {
            self.wanted.notify_waiters();
            self.back.notified().await;
        }
    }

    /// Waits until somebody waits for the tenant.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Waits for a place for something that takes long. The tenant's own turn comes first: a tenant has one place aside at most, and
    /// a part of those beside, however many of its statements wait.
    pub(crate) async fn place(&self, runs: Where) -> PlaceAside {
        let (turn, places) = match runs {
            Where::Aside => (&self.turn_aside, &self.places_aside),
            Where::Beside => (&self.turns_beside, &self.places_beside),
        };
        let turn = Arc::clone(turn).acquire_owned().await;
        PlaceAside { _turn: turn.ok(), place: places.take().await }
    }

    /// Does something that takes long on another thread, without the tenant. It must be waited for.
    pub(crate) async fn beside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self.background.spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The process ends, and the statement with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives a session's query that runs beside the tenant the rows that it asks for, until it asks no more. The tenant pays for what time that
    /// takes here.
    pub(crate) async fn serve_pages(
        self: &Rc<Self>,
        id: SessionId,
        mut asked: mpsc::UnboundedReceiver<Asked>,
        thread: &ThreadContext,
    ) {
        let mut reading = Reading::in_pages();
        while let Some(asked) = asked.recv().await {
            self.wait_for_page(thread).await;
            if !asked.is_wanted() {
                continue;
            }
            reading.next_page();
            let page = self.page(id, &asked.request, &mut reading, thread).await;
            asked.answer(page);
            // Whoever came meanwhile comes before the next page.
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the tenant may give a page: behind its statements, but not for ever.
    async fn wait_for_page(&self, thread: &ThreadContext) {
        let since = Instant::now();
        loop {
            let ask_again = {
                let mut budget = thread.budget.borrow_mut();
                let now = thread.began.elapsed();
                let admits = match since.elapsed() < PAGE_PATIENCE {
                    true => budget.admits_page(self.id, now),
                    false => budget.admits(self.id, now),
                };
                if admits {
                    return;
                }
                budget.ask_again()
            };
            tokio::time::sleep_until((thread.began + ask_again).into()).await;
        }
    }

    async fn page(
        self: &Rc<Self>,
        id: SessionId,
        request: &PageRequest,
        reading: &mut Reading,
        thread: &ThreadContext,
    ) -> Result<Page> {
        loop {
            let read = self.with(|tenant| {
                let began = Instant::now();
                let page = tenant.page(id, request, reading);
                let micros = began.elapsed().as_nanos().div_ceil(1_000) as u64;
                self.activity.spent(micros, 0);
                let spent = Amounts::new(micros, 0, self.take_requests());
                thread.budget.borrow_mut().charge(self.id, WEIGHT, spent, thread.began.elapsed());
                page
            });
            match read.await? {
                Ok(page) => return Ok(page),
                Err(want) => reading.arrived(&self.fetch(want).await?)?,
            }
        }
    }

    /// Does something that takes long with the tenant, on another thread: nobody else gets to the tenant meanwhile, but others get to this
    /// thread. It must be waited for.
    pub(crate) async fn with_aside<T, W>(self: &Rc<Self>, _place: &PlaceAside, work: W) -> T
    where
        T: Send + 'static,
        W: FnOnce(&mut Tenant) -> T + Send + 'static,
    {
        let mut tenant = loop {
            let rest = PAGES_BETWEEN.saturating_sub(self.back_at.get().elapsed());
            if self.has_readers() && !self.is_aside() && !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            let roles = self.roles().await;
            match self.tenant.take() {
                Some(tenant) => {
                    self.roles_aside.replace(Some(roles));
                    break tenant;
                }
                None => self.back.notified().await,
            }
        };
        let mut condition = Condition::of(tenant.database());
        // What it logs meanwhile is needed, too.
        condition.clean = false;
        condition.needs_log_from.get_or_insert_with(|| self.journal.appended().next());
        self.condition.set(condition);
        tenant.set_now(now());
        let working = self.background.spawn_blocking(move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut tenant)));
            (tenant, result)
        });
        let Ok((mut tenant, result)) = working.await else {
            // The process ends, and the statement with it.
            return std::future::pending().await;
        };
        for session in self.failed_aside.take() {
            fail(&mut tenant, session);
        }
        for session in self.left_aside.take() {
            tenant.close_session(session);
        }
        self.follow(&mut tenant);
        self.tenant.replace(Some(tenant));
        self.roles_aside.take();
        self.back_at.set(Instant::now());
        self.back.notify_waiters();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Whether a query runs beside the tenant, or waits for a place to.
    fn has_readers(&self) -> bool {
        Arc::strong_count(&self.turns_beside) > 1
    }

    /// Whether the tenant is on another thread.
    pub(crate) fn is_aside(&self) -> bool {
        self.tenant.borrow().is_none()
    }

    /// What the tenant has in memory and in the log, as far as is known.
    pub(crate) fn condition(&self) -> Condition {
        if let Some(tenant) = self.tenant.borrow_mut().as_mut() {
            self.condition.set(Condition::of(tenant.database()));
        }
        self.condition.get()
    }

    /// Does what follows from something that was done with the tenant.
    fn follow(self: &Rc<Self>, tenant: &mut Tenant) {
        let (waiting, hearing) = (self.waiting.borrow(), self.hearing.borrow());
        let woken = tenant.woken().into_iter().filter_map(|id| waiting.get(&id));
        let heard = tenant.heard();
        woken.chain(heard.iter().filter_map(|id| hearing.get(id))).for_each(|notify| notify.notify_one());
        for want in tenant.wants() {
            tokio::task::spawn_local(Rc::clone(self).bring(want));
        }
        for writes in tenant.wants_parts() {
            tokio::task::spawn_local(Rc::clone(self).write(writes));
        }
    }

    /// Writes down what a transaction has written that is about to commit.
    fn write(self: Rc<Self>, writes: Writes) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let parts = self.write_parts(writes).await;
            points::reached("all parts are durable");
            self.with(|tenant| tenant.written(writes, parts)).await;
        })
    }

    async fn write_parts(self: &Rc<Self>, writes: Writes) -> Result<Parts> {
        let (mut parts, mut next) = (self.home.new_parts(), Some(Part::default()));
        while let Some(mut part) = next {
            while !part.is_full() {
                self.with(|tenant| tenant.write_part(writes, &mut part)).await?;
                // Whoever came meanwhile comes before the rest.
                tokio::task::yield_now().await;
            }
            next = part.next();
            let put = self.store(|home| async move { home.put_part(&mut parts, part).await.map(|()| parts) });
            let in_time = tokio::time::timeout(PART_TIME, put).await;
            parts = in_time.map_err(|_| too_slow())??;
            points::reached("a part is durable");
        }
        Ok(parts)
    }

    /// Removes what former owners have left of transactions' writes.
    pub(crate) fn remove_old_parts(&self, needed: BTreeSet<String>) {
        let home = Arc::clone(&self.home);
        self.background.spawn(async move {
            if let Err(error) = home.remove_old_parts(&needed).await {
                tracing::warn!(%error, "what transactions of former owners had written stays in the storage until the database wakes again");
            }
        });
    }

    /// Whether parts are to be removed that nobody needs.
    pub(crate) fn has_litter(&self) -> bool {
        self.removes_litter.get() || !self.home.litter().is_empty()
    }

    /// Removes what nobody needs of transactions' writes, if there is any.
    pub(crate) fn remove_litter(self: &Rc<Self>) {
        if self.home.litter().is_empty() || self.removes_litter.replace(true) {
            return;
        }
        let slot = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(error) = slot.store(|home| async move { home.remove_litter().await }).await {
                tracing::warn!(%error, "what a transaction had written stays in the storage; it is tried again");
                tokio::time::sleep(LITTER_PAUSE).await;
            }
            slot.removes_litter.set(false);
        });
    }

    /// Brings blocks to those who want them.
    fn bring(self: Rc<Self>, want: Want) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let blocks = self.fetch(want.clone()).await;
            self.with(|tenant| tenant.arrived(&want, &blocks)).await;
        })
    }

    /// What a session is woken by.
    pub(crate) fn waits(&self, id: SessionId) -> Rc<Notify> {
        Rc::clone(self.waiting.borrow_mut().entry(id).or_default())
    }

    /// What a session is called by that has heard something.
    pub(crate) fn hears(&self, id: SessionId) -> Rc<Notify> {
        Rc::clone(self.hearing.borrow_mut().entry(id).or_default())
    }

    /// A session is over.
    pub(crate) fn leave(self: &Rc<Self>, id: SessionId) {
        if self.user.get() == Some(id) {
            self.user.set(None);
        }
        match self.tenant.borrow_mut().as_mut() {
            Some(tenant) => {
                tenant.close_session(id);
                self.follow(tenant);
            }
            None => self.left_aside.borrow_mut().push(id),
        }
        self.waiting.borrow_mut().remove(&id);
        self.hearing.borrow_mut().remove(&id);
    }

    /// A session's statement fails that has not got to the tenant, and with it all that belongs together with it.
    pub(crate) fn fail(self: &Rc<Self>, id: SessionId) {
        match self.tenant.borrow_mut().as_mut() {
            Some(tenant) => {
                fail(tenant, id);
                self.follow(tenant);
            }
            None => self.failed_aside.borrow_mut().push(id),
        }
    }

    /// Whether no client is connected or about to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.get() == 0
    }

    /// Whether it has something for sessions that are on their way to it.
    pub(crate) fn awaits_sessions(&self) -> bool {
        self.tenant.borrow().as_ref().is_some_and(Tenant::awaits_sessions)
    }

    /// Whether a session may go away with the tenant: nothing keeps it that stays here.
    pub(crate) async fn lets_go(self: &Rc<Self>, id: SessionId) -> bool {
        match self.along.get() {
            Some(_) => self.is_leaving.get() && self.with(|tenant| tenant.is_fixed(id)).await.is_none(),
            None => self.with(|tenant| tenant.is_bound(id)).await.is_none(),
        }
    }

    /// What maintenance finds.
    pub(crate) fn found(&self) -> Found {
        let idle_for = || self.left.get().map_or(Duration::MAX, |left| left.elapsed());
        Found {
            condition: self.condition(),
            idle_for: self.is_empty().then(idle_for),
            flushing: self.flushing.get(),
            storage_full: self.storage_full.get(),
        }
    }

    /// Does something with the tenant's place in the storage, on another thread.
    pub(crate) async fn store<T, F>(&self, work: impl FnOnce(Arc<Home>) -> F) -> std::result::Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, StorageError>> + Send + 'static,
    {
        self.requests.set(self.requests.get() + 1);
        let done = self.background.spawn(work(Arc::clone(&self.home))).await;
        done.unwrap_or_else(|error| Err(StorageError::Ended(error.to_string())))
    }

    /// The requests to the storage since the last time.
    pub(crate) fn take_requests(&self) -> u64 {
        self.requests.take()
    }

    async fn fetch(&self, want: Want) -> Result<Vec<(PageId, Arc<Block>)>> {
        self.store(|home| async move { home.fetch(&want).await }).await.map_err(SqlError::from)
    }

    /// What the tenant knows of somebody.
    pub(crate) async fn acquaintance(self: &Rc<Self>, user: &str) -> Result<Acquaintance> {
        Ok(self.roles().await?.acquaintance(user))
    }

    /// The tenant's roles; if it is aside, those that it left with.
    async fn roles(self: &Rc<Self>) -> Result<Rc<Roles>> {
        let mut reading = Reading::default();
        loop {
            if let Some(roles) = self.roles_aside.borrow().clone() {
                return roles;
            }
            match self.with(|tenant| tenant.database().committed_roles(&mut reading)).await? {
                Ok(roles) => return Ok(Rc::new(roles)),
                Err(want) => reading.arrived(&self.fetch(want).await?)?,
            }
        }
    }

    /// Removes keys that no table has any more, at most so many. Whether there are others.
    pub(crate) async fn sweep(self: &Rc<Self>, keys_max: usize) -> Result<bool> {
        if self.sweeping.get() || self.is_aside() {
            return Ok(false);
        }
        match self.with(|tenant| tenant.database().sweep(keys_max)).await? {
            Swept::Clean => Ok(false),
            Swept::More => Ok(true),
            Swept::Wants(want) => {
                self.sweeping.set(true);
                let slot = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    let taken = match slot.fetch(want).await {
                        Ok(blocks) => slot.with(|tenant| tenant.database().chores().arrived(&blocks)).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = taken {
                        tracing::error!(%error, "what is to be removed of a tenant stays");
                    }
                    slot.sweeping.set(false);
                });
                Ok(false)
            }
        }
    }
}

fn too_slow() -> SqlError {
    let message = format!("what the transaction has written was not in the storage within {PART_TIME:?}");
    SqlError::new(state::IO_ERROR, message).hint("Nothing was changed. Try again when the store works.")
}

fn fail(tenant: &mut Tenant, session: SessionId) {
    tenant.fail(session);
    if let Err(error) = tenant.finish(session) {
        tracing::debug!(%error, "nothing is left of a transaction that failed");
    }
    tenant.told(session);
}

/// Microseconds since 2000-01-01.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64 - EPOCH_MICROS
}
