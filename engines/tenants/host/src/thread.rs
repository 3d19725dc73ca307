//! One thread: the tenants that live on it, and their connections.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Instant};

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use savanna_ownership::guard::LeaseGuard;
use savanna_tenants::{budget::Budget, tenant::OpenImage};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::{
    database::{Database, SessionId},
    owner::{self, Moved, Tail, wake, wake_moved},
    role::Acquaintance,
    storage::{Cached, Home, Since},
};
use savanna_tenants_values::error::{Result, SqlError};
use tokio::sync::{mpsc, oneshot};

use crate::{
    maintenance,
    process::{Key, Process},
    slot::{ConnectionGuard, TenantSlot},
    slots::{Slots, dropped},
};

/// A client on its way to its tenant's thread.
pub trait Connection: Send {
    /// Serves the client on this thread until it goes away.
    fn serve(self: Box<Self>, guard: ConnectionGuard) -> LocalBoxFuture<'static, ()>;
    /// Tells the client why it cannot come in.
    fn refuse(self: Box<Self>, error: SqlError) -> LocalBoxFuture<'static, ()>;
    /// Takes the client to another node, where its tenant is by now.
    fn follow(self: Box<Self>, tenant: TenantId) -> LocalBoxFuture<'static, ()>;
}

/// What a thread is told.
pub(crate) enum Order {
    /// A client of a tenant that lives here, awake or not.
    Connect { tenant: TenantId, connection: Box<dyn Connection> },
    /// What does a tenant know of somebody?
    Identify { tenant: TenantId, user: String, answer: oneshot::Sender<Result<Acquaintance>> },
    /// A tenant is to wake: it holds up the log.
    Wake(TenantId),
    /// What does a tenant have in the cache, and of what has come into its storage since?
    ListBlocks { tenant: TenantId, since: Since, listed: oneshot::Sender<Result<Cached>> },
    /// All that was committed of a tenant by now is to be in its storage, or as much of it as may be there.
    Save { tenant: TenantId, all: bool, saved: oneshot::Sender<Result<()>> },
    /// A tenant is to go for ever, if nobody is there.
    Remove { tenant: TenantId, removed: oneshot::Sender<Result<()>> },
    /// A tenant is to move: nobody is let in, and everybody is called away.
    Freeze { tenant: TenantId, attempt: u64, along: bool, frozen: oneshot::Sender<Result<()>> },
    /// The same of a tenant that sleeps, and only of one.
    FreezeAsleep { tenant: TenantId, attempt: u64, frozen: oneshot::Sender<Result<()>> },
    /// Does a tenant sleep, with all of it in its storage?
    AskRest { tenant: TenantId, answer: oneshot::Sender<Result<bool>> },
    /// All of a frozen tenant is to be in its storage, with nobody there; what cannot be there, and is open, goes along.
    Drain { tenant: TenantId, attempt: u64, drained: oneshot::Sender<Result<Moved>> },
    /// A tenant that was frozen by an attempt stays.
    Resume(TenantId, u64),
    /// A tenant stays, whatever attempt has frozen it.
    Thaw(TenantId),
    /// It has moved.
    Release(TenantId, u64),
    /// The statement of the connection with this key was interrupted, and is not to wait any longer.
    StopWaiting(Key),
    /// The host stops: every connection is closed.
    Stop,
}

/// A tenant that has woken: its place in the storage, its rows, and what is open if it has moved here.
type Woken = (Arc<Home>, Database, Option<OpenImage>);

/// Why a tenant has not woken.
enum NotWoken {
    /// What is open in it cannot be read, however often it is tried.
    Image(SqlError),
    /// The storage, the log, or what is in them. What is open in it may be had the next time.
    Below(SqlError),
}

impl From<SqlError> for NotWoken {
    fn from(error: SqlError) -> Self {
        Self::Below(error)
    }
}

impl NotWoken {
    const fn error(&self) -> &SqlError {
        match self {
            Self::Image(error) | Self::Below(error) => error,
        }
    }

    /// What is open in the tenant, if that is worth keeping.
    fn keeps(&self, image: Option<Bytes>) -> Option<Bytes> {
        image.filter(|_| matches!(self, Self::Below(_)))
    }
}

/// What is open in a tenant that has moved here.
fn open_of(image: &[u8]) -> std::result::Result<OpenImage, NotWoken> {
    OpenImage::decode(image).map_err(NotWoken::Image)
}

/// Somebody who waits for a tenant to wake.
enum Waiter {
    Connection(Box<dyn Connection>),
    Identify { user: String, answer: oneshot::Sender<Result<Acquaintance>> },
    Save { all: bool, saved: oneshot::Sender<Result<()>> },
}

/// A session whose waits can be ended by whoever knows its connection's key.
pub(crate) struct LocalSession {
    pub(crate) slot: Rc<TenantSlot>,
    pub(crate) id: SessionId,
}

/// What the connections of a thread share.
pub(crate) struct ThreadContext {
    pub(crate) number: usize,
    pub(crate) process: Arc<Process>,
    pub(crate) lease: Option<LeaseGuard>,
    slots: RefCell<Slots<Rc<TenantSlot>, Waiter>>,
    /// Whose waits can be ended, by key.
    pub(crate) sessions: RefCell<HashMap<Key, LocalSession>>,
    pub(crate) budget: RefCell<Budget>,
    /// From when on the budget counts.
    pub(crate) began: Instant,
}

/// Runs a thread until it is stopped.
pub(crate) fn run(
    number: usize,
    process: Arc<Process>,
    lease: Option<LeaseGuard>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a thread for tenants could not start");
            return;
        }
    };
    let thread = Rc::new(ThreadContext {
        budget: RefCell::new(Budget::new(process.keeping.per_second)),
        began: Instant::now(),
        number,
        process,
        lease,
        slots: RefCell::new(Slots::new(number)),
        sessions: RefCell::default(),
    });
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        tokio::task::spawn_local(maintenance::maintain(Rc::clone(&thread)));
        tokio::task::spawn_local(maintenance::watch_lag(Rc::clone(&thread)));
        while let Some(order) = orders.recv().await
            && !matches!(order, Order::Stop)
        {
            thread.obey(order);
        }
    });
}

impl ThreadContext {
    fn obey(self: &Rc<Self>, order: Order) {
        match order {
            Order::Connect { tenant, connection } => self.receive(tenant, Waiter::Connection(connection)),
            Order::Identify { tenant, user, answer } => self.receive(tenant, Waiter::Identify { user, answer }),
            Order::Save { tenant, all, saved } => self.receive(tenant, Waiter::Save { all, saved }),
            Order::Wake(tenant) => {
                if self.slots.borrow().is_asleep(tenant) && self.is_there(tenant) {
                    self.begin_waking(tenant, Vec::new());
                }
            }
            Order::ListBlocks { tenant, since, listed } => self.list_blocks(tenant, since, listed),
            Order::Remove { tenant, removed } => self.remove(tenant, removed),
            Order::Freeze { tenant, attempt, along, frozen } => {
                let thread = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    // Whoever asked may have gone.
                    _ = frozen.send(thread.freeze(tenant, attempt, along).await);
                });
            }
            // Whoever asked may have gone.
            Order::FreezeAsleep { tenant, attempt, frozen } => {
                let begun = self.slots.borrow_mut().begin_moving_asleep(tenant, attempt, &self.process.owner.lock());
                _ = frozen.send(begun);
            }
            Order::AskRest { tenant, answer } => {
                _ = answer.send(Ok(self.slots.borrow().is_at_rest(tenant, &self.process.owner.lock())));
            }
            Order::Drain { tenant, attempt, drained } => {
                let thread = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    // Whoever asked may have gone.
                    _ = drained.send(thread.drain(tenant, attempt).await);
                });
            }
            Order::Resume(tenant, attempt) => self.resume(tenant, attempt),
            Order::Thaw(tenant) => {
                let attempt = self.slots.borrow().attempt(tenant);
                attempt.into_iter().for_each(|attempt| self.resume(tenant, attempt));
            }
            Order::Release(tenant, attempt) => {
                if self.is_moving(tenant, attempt) {
                    self.end_moving(tenant);
                }
            }
            Order::StopWaiting(key) => {
                if let Some(session) = self.sessions.borrow().get(&key) {
                    let (slot, id) = (Rc::clone(&session.slot), session.id);
                    tokio::task::spawn_local(async move { slot.with(|tenant| tenant.stop_waiting(id)).await });
                }
            }
            Order::Stop => {}
        }
    }

    /// Takes somebody to a tenant, which wakes if it sleeps.
    fn receive(self: &Rc<Self>, tenant: TenantId, waiter: Waiter) {
        let awake = self.slots.borrow().awake(tenant).map(Rc::clone);
        if let Some(slot) = awake {
            return self.admit(&slot, waiter);
        }
        let Some(waiter) = self.slots.borrow_mut().wait(tenant, waiter) else { return };
        if self.is_there(tenant) {
            self.begin_waking(tenant, vec![waiter]);
        } else if self.process.owner.lock().has_left(tenant) {
            follow(waiter, tenant);
        } else {
            refuse(waiter, dropped());
        }
    }

    /// Whether it was not removed since somebody looked it up.
    fn is_there(&self, tenant: TenantId) -> bool {
        self.process.owner.lock().name(tenant).is_some()
    }

    fn admit(self: &Rc<Self>, slot: &Rc<TenantSlot>, waiter: Waiter) {
        let guard = ConnectionGuard::new(self, slot);
        match waiter {
            Waiter::Connection(connection) => {
                tokio::task::spawn_local(connection.serve(guard));
            }
            Waiter::Identify { user, answer } => {
                tokio::task::spawn_local(async move {
                    // Whoever asked may have gone.
                    _ = answer.send(guard.slot().acquaintance(&user).await);
                });
            }
            Waiter::Save { all, saved } => {
                tokio::task::spawn_local(async move {
                    // Whoever asked may have gone.
                    _ = saved.send(maintenance::save(guard.thread(), guard.slot(), all).await);
                });
            }
        }
    }

    fn begin_waking(self: &Rc<Self>, tenant: TenantId, waiters: Vec<Waiter>) {
        let (tail, image) = {
            let mut owner = self.process.owner.lock();
            let tail = self.slots.borrow_mut().begin_waking(tenant, waiters, &mut owner);
            (tail, owner.take_image(tenant))
        };
        let thread = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let (process, again) = (Arc::clone(&thread.process), (tail.clone(), image.clone()));
            let waking = async move {
                let epoch = process.owner.lock().epoch(tenant).ok_or_else(dropped)?;
                let (storage, journal, (tail, image)) = (&process.storage, &process.journal, again);
                let Some(image) = image else {
                    let (home, database) = wake(storage, journal, (tenant, epoch), &tail).await?;
                    return Ok((home, database, None));
                };
                let open = open_of(&image)?;
                let (home, database) = wake_moved(storage, journal, (tenant, epoch), (&tail, open.database())).await?;
                Ok::<Woken, NotWoken>((home, database, Some(open)))
            };
            let woken = thread.process.background.spawn(waking).await;
            let woken = woken.unwrap_or_else(|error| Err(SqlError::internal(error).into()));
            thread.end_waking(tenant, (tail, image), woken);
        });
    }

    fn end_waking(
        self: &Rc<Self>,
        tenant: TenantId,
        (tail, image): (Tail, Option<Bytes>),
        woken: std::result::Result<Woken, NotWoken>,
    ) {
        let process = &self.process;
        match woken {
            Ok((home, database, open)) => {
                process.retries.lock().forget(tenant);
                let activity = process.activity(tenant);
                activity.woke();
                let needed = database.needed_parts().map(str::to_owned).collect();
                let slot = TenantSlot::new(tenant, home, (database, activity), open.as_ref(), process);
                slot.remove_old_parts(needed);
                let waiters = self.slots.borrow_mut().woken(tenant, Rc::clone(&slot));
                for waiter in waiters {
                    self.admit(&slot, waiter);
                }
            }
            Err(why) => {
                let waiters = {
                    let mut owner = process.owner.lock();
                    if let NotWoken::Image(_) = why {
                        // What is committed is served all the same: what was open is lost, as if the node had ended.
                        tracing::error!(
                            tenant,
                            "what is open in a database that has moved here cannot be read, and is rolled back"
                        );
                    }
                    why.keeps(image).into_iter().for_each(|image| owner.put_image_back(tenant, image));
                    self.slots.borrow_mut().cannot_wake(tenant, tail, &mut owner)
                };
                let error = why.error();
                let pause = process.retries.lock().failed(tenant, Instant::now());
                tracing::error!(tenant, %error, ?pause, "a tenant could not wake; its log is kept, and it is tried again");
                for waiter in waiters {
                    refuse(waiter, error.clone());
                }
            }
        }
    }

    /// Removes a tenant for ever, if nobody is there, whether or not anybody waits for that.
    fn remove(self: &Rc<Self>, tenant: TenantId, removed: oneshot::Sender<Result<()>>) {
        let is_free = |slot: &Rc<TenantSlot>| slot.is_empty() && !slot.flushing.get() && !slot.awaits_sessions();
        let begun = {
            let owner = self.process.owner.lock();
            match owner.has_image(tenant) {
                // It has moved here, and wakes.
                true => {
                    Err(SqlError::new("55006", "the database is being accessed by users who are on their way to it"))
                }
                false => self.slots.borrow_mut().begin_removing(tenant, &owner, is_free),
            }
        };
        if begun.is_err() {
            // Whoever asked may have gone.
            _ = removed.send(begun);
            return;
        }
        let thread = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let process = Arc::clone(&thread.process);
            let removing = async move { owner::remove(&process.owner, tenant).await };
            let done = thread.process.background.spawn(removing).await;
            let done = done.unwrap_or_else(|error| Err(SqlError::internal(error)));
            thread.end_removing(tenant, done.is_ok());
            // Whoever asked may have gone.
            _ = removed.send(done);
        });
    }

    fn end_removing(self: &Rc<Self>, tenant: TenantId, is_gone: bool) {
        if is_gone {
            self.process.forget_activity(tenant);
            self.process.retries.lock().forget(tenant);
            let waiters = self.slots.borrow_mut().removed(tenant);
            waiters.into_iter().for_each(|waiter| refuse(waiter, dropped()));
        } else {
            self.end_leaving(tenant);
        }
    }

    /// A tenant stays that was frozen by an attempt.
    fn resume(self: &Rc<Self>, tenant: TenantId, attempt: u64) {
        if let Some(slot) = self.moving_slot(tenant, attempt) {
            slot.is_leaving.set(false);
            slot.welcomes.set(Instant::now());
            self.sessions_of(tenant).into_iter().for_each(|key| self.process.connections.let_stay(key));
        }
        if self.is_moving(tenant, attempt) {
            self.end_leaving(tenant);
        }
    }

    /// A tenant stays.
    fn end_leaving(self: &Rc<Self>, tenant: TenantId) {
        let waiters = self.slots.borrow_mut().stays(tenant);
        waiters.into_iter().for_each(|waiter| self.receive(tenant, waiter));
    }

    /// A tenant is another node's by now.
    fn end_moving(&self, tenant: TenantId) {
        self.process.forget_activity(tenant);
        self.process.retries.lock().forget(tenant);
        let waiters = self.slots.borrow_mut().removed(tenant);
        waiters.into_iter().for_each(|waiter| follow(waiter, tenant));
    }

    /// A tenant that is awake and lets clients in.
    pub(crate) fn awake(&self, tenant: TenantId) -> Option<Rc<TenantSlot>> {
        self.slots.borrow().awake(tenant).map(Rc::clone)
    }

    /// Begins to move a tenant away. Returns it if it is awake.
    pub(crate) fn begin_moving(&self, tenant: TenantId, attempt: u64) -> Result<Option<Rc<TenantSlot>>> {
        let mut slots = self.slots.borrow_mut();
        Ok(slots.begin_moving(tenant, attempt, &self.process.owner.lock())?.map(Rc::clone))
    }

    /// Whether a tenant moves by this attempt.
    pub(crate) fn is_moving(&self, tenant: TenantId, attempt: u64) -> bool {
        self.slots.borrow().is_moving(tenant, attempt)
    }

    /// A tenant that moves by this attempt, if it is awake.
    pub(crate) fn moving_slot(&self, tenant: TenantId, attempt: u64) -> Option<Rc<TenantSlot>> {
        self.slots.borrow().moving(tenant, attempt).map(Rc::clone)
    }

    /// Tenants that have moved here wake, even if nobody comes: what is open in them does not wait for ever.
    pub(crate) fn wake_moved(self: &Rc<Self>) {
        let moved = self.process.owner.lock().due_to_wake();
        let due = self.process.retries.lock().due(moved, Instant::now());
        let mine = due.into_iter().filter(|tenant| self.process.is_on(*tenant, self.number));
        for tenant in mine.filter(|tenant| self.slots.borrow().is_asleep(*tenant)).collect::<Vec<_>>() {
            self.begin_waking(tenant, Vec::new());
        }
    }

    /// The tenants that are awake.
    pub(crate) fn slots(&self) -> Vec<Rc<TenantSlot>> {
        self.slots.borrow().all_awake().map(|(_, slot)| Rc::clone(slot)).collect()
    }

    /// Says from where on the thread's tenants need the log.
    pub(crate) fn report_log_floor(&self) {
        let behind = self.process.journal.appended().next();
        let floor = self.slots.borrow().log_floor(behind, |slot| slot.condition().needs_log_from);
        self.process.owner.lock().truncation.set_floor(self.number, floor);
    }

    /// A tenant falls asleep: nothing of it stays.
    pub(crate) fn sleep(&self, tenant: TenantId) {
        self.process.activity(tenant).takes(0);
        self.slots.borrow_mut().sleep(tenant);
    }
}

/// Takes somebody to the node that a tenant went to.
fn follow(waiter: Waiter, tenant: TenantId) {
    match waiter {
        Waiter::Connection(connection) => drop(tokio::task::spawn_local(connection.follow(tenant))),
        // Whoever asked looks for it again.
        Waiter::Identify { .. } => refuse(waiter, dropped()),
        Waiter::Save { .. } => {
            let message = "the database has moved to another node meanwhile";
            refuse(waiter, SqlError::new("57P03", message).hint("Try again."));
        }
    }
}

/// Tells somebody why it cannot be served.
fn refuse(waiter: Waiter, error: SqlError) {
    match waiter {
        Waiter::Connection(connection) => {
            tokio::task::spawn_local(connection.refuse(error));
        }
        // Whoever asked may have gone.
        Waiter::Identify { answer, .. } => _ = answer.send(Err(error)),
        Waiter::Save { saved, .. } => _ = saved.send(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use savanna_tenants_values::error::state;

    use super::*;

    #[test]
    fn what_is_open_is_kept_unless_it_is_what_cannot_be_read() {
        let image = || Some(Bytes::from_static(b"open"));
        let below = NotWoken::from(SqlError::new(state::DATA_CORRUPTED, "a segment or a commit is damaged"));
        assert_eq!(below.keeps(image()), image(), "a retry may read it");
        let Err(why) = open_of(b"something else") else { panic!("it is no image") };
        assert_eq!(why.keeps(image()), None);
    }
}
