//! One thread: the tenants that live on it, and their connections.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Instant};

use bytes::BytesMut;
use savanna_journal::Lsn;
use savanna_ownership::guard::LeaseGuard;
use savanna_tenants::{
    SessionId, SqlError,
    budget::Budget,
    error::{Result, state},
    owner::wake,
    role::Acquaintance,
};
use savanna_tenants_segments::TenantId;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::{
    connection, housekeeping,
    process::{Key, Process},
    room::Room,
    socket::Parked,
};

/// What a thread is told.
pub(crate) enum Order {
    /// A client of a tenant that lives here, awake or not.
    Client { tenant: TenantId, client: Box<Client> },
    /// What does a tenant know of somebody?
    Ask { tenant: TenantId, user: String, answer: oneshot::Sender<Result<Acquaintance>> },
    /// A tenant is to wake: it holds up the log.
    Wake(TenantId),
    /// All that was committed of a tenant by now is to be in its storage.
    Save { tenant: TenantId, saved: oneshot::Sender<Result<()>> },
    /// A tenant is to go for ever, if nobody is there.
    Remove { tenant: TenantId, removed: oneshot::Sender<Result<Lsn>> },
    /// The statement of the connection with this key was interrupted, and is not to wait any longer.
    StopWaiting(Key),
    /// The server stops: every connection is closed.
    Stop,
}

/// A client that may come in.
pub(crate) struct Client {
    pub(crate) socket: Parked,
    /// What was read of it already.
    pub(crate) input: BytesMut,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) settings: Vec<(String, String)>,
    /// Whether it may do things outside of its database.
    pub(crate) administrator: bool,
    /// Its place among those who may be here at once.
    pub(crate) place: OwnedSemaphorePermit,
    /// By what it can be cancelled.
    pub(crate) key: Key,
    /// Where its random numbers begin.
    pub(crate) seed: u64,
}

/// Somebody who waits for a tenant to wake.
enum Caller {
    Client(Client),
    Asker { user: String, answer: oneshot::Sender<Result<Acquaintance>> },
    Saver(oneshot::Sender<Result<()>>),
}

/// A tenant that does not sleep.
enum Place {
    /// It wakes, and these wait for it. The log is needed from here on.
    Waking {
        callers: Vec<Caller>,
        needs_log_from: Option<Lsn>,
    },
    Awake(Rc<Room>),
}

/// A connection whose waits can be ended by whoever knows its key.
pub(crate) struct Known {
    pub(crate) room: Rc<Room>,
    pub(crate) session: SessionId,
}

/// What the connections of a thread share.
pub(crate) struct Here {
    pub(crate) number: usize,
    pub(crate) process: Arc<Process>,
    pub(crate) lease: Option<LeaseGuard>,
    places: RefCell<HashMap<TenantId, Place>>,
    /// Whose waits can be ended, by key.
    pub(crate) connections: RefCell<HashMap<Key, Known>>,
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
    let here = Rc::new(Here {
        budget: RefCell::new(Budget::new(process.keeping.per_second)),
        began: Instant::now(),
        number,
        process,
        lease,
        places: RefCell::default(),
        connections: RefCell::default(),
    });
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        tokio::task::spawn_local(housekeeping::keep_house(Rc::clone(&here)));
        tokio::task::spawn_local(housekeeping::watch_lag(Rc::clone(&here)));
        while let Some(order) = orders.recv().await
            && !matches!(order, Order::Stop)
        {
            here.obey(order);
        }
    });
}

impl Here {
    fn obey(self: &Rc<Self>, order: Order) {
        match order {
            Order::Client { tenant, client } => self.receive(tenant, Caller::Client(*client)),
            Order::Ask { tenant, user, answer } => self.receive(tenant, Caller::Asker { user, answer }),
            Order::Save { tenant, saved } => self.receive(tenant, Caller::Saver(saved)),
            Order::Wake(tenant) => {
                if !self.places.borrow().contains_key(&tenant) && self.is_there(tenant) {
                    self.begin_waking(tenant, Vec::new());
                }
            }
            Order::Remove { tenant, removed } => {
                // Whoever asked may have gone.
                _ = removed.send(self.remove(tenant));
            }
            Order::StopWaiting(key) => {
                if let Some(known) = self.connections.borrow().get(&key) {
                    let (room, session) = (Rc::clone(&known.room), known.session);
                    tokio::task::spawn_local(async move { room.with(|tenant| tenant.stop_waiting(session)).await });
                }
            }
            Order::Stop => {}
        }
    }

    /// Takes somebody to a tenant, which wakes if it sleeps.
    fn receive(self: &Rc<Self>, tenant: TenantId, caller: Caller) {
        match self.places.borrow_mut().get_mut(&tenant) {
            Some(Place::Awake(room)) => return self.let_in(room, caller),
            Some(Place::Waking { callers, .. }) => return callers.push(caller),
            None => {}
        }
        if self.is_there(tenant) {
            self.begin_waking(tenant, vec![caller]);
        } else {
            turn_away(caller, gone());
        }
    }

    /// Whether it was not removed since somebody looked it up.
    fn is_there(&self, tenant: TenantId) -> bool {
        self.process.owner.lock().name(tenant).is_some()
    }

    fn let_in(self: &Rc<Self>, room: &Rc<Room>, caller: Caller) {
        let visit = room.enter();
        match caller {
            Caller::Client(client) => {
                tokio::task::spawn_local(connection::serve(Rc::clone(self), visit, client));
            }
            Caller::Asker { user, answer } => {
                tokio::task::spawn_local(async move {
                    // Whoever asked may have gone.
                    _ = answer.send(visit.room().acquaintance(&user).await);
                });
            }
            Caller::Saver(saved) => {
                let here = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    // Whoever asked may have gone.
                    _ = saved.send(housekeeping::save(here, visit.room()).await);
                });
            }
        }
    }

    fn begin_waking(self: &Rc<Self>, tenant: TenantId, callers: Vec<Caller>) {
        let tail = self.process.owner.lock().take_tail(tenant, self.number);
        let needs_log_from = tail.first().map(|(lsn, _)| *lsn);
        self.places.borrow_mut().insert(tenant, Place::Waking { callers, needs_log_from });
        let here = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let (process, again) = (Arc::clone(&here.process), tail.clone());
            let waking = async move { wake(&process.storage, &process.journal, tenant, &again).await };
            let woken = here.process.background.spawn(waking).await;
            let woken = woken.unwrap_or_else(|error| Err(SqlError::internal(error)));
            if woken.is_err() {
                here.process.owner.lock().put_back(tenant, tail);
            }
            here.end_waking(tenant, woken);
        });
    }

    fn end_waking(
        self: &Rc<Self>,
        tenant: TenantId,
        woken: Result<(Arc<savanna_tenants::storage::Home>, savanna_tenants::database::Database)>,
    ) {
        let Some(Place::Waking { callers, .. }) = self.places.borrow_mut().remove(&tenant) else { return };
        match woken {
            Ok((home, database)) => {
                self.process.retries.lock().forget(tenant);
                let room = Room::new(tenant, home, (database, self.process.activity(tenant)), &self.process);
                self.places.borrow_mut().insert(tenant, Place::Awake(Rc::clone(&room)));
                for caller in callers {
                    self.let_in(&room, caller);
                }
            }
            Err(error) => {
                let pause = self.process.retries.lock().failed(tenant, Instant::now());
                tracing::error!(tenant, %error, ?pause, "a tenant could not wake; its log is kept, and it is tried again");
                for caller in callers {
                    turn_away(caller, error.clone());
                }
            }
        }
    }

    /// Removes a tenant for ever, if nobody is there. In one step: it is never let go and still there.
    fn remove(&self, tenant: TenantId) -> Result<Lsn> {
        let mut places = self.places.borrow_mut();
        let mut owner = self.process.owner.lock();
        let name = owner.name(tenant).ok_or_else(gone)?.to_owned();
        let is_free = match places.get(&tenant) {
            Some(Place::Awake(room)) => room.is_empty() && !room.flushing.get(),
            Some(Place::Waking { .. }) => false,
            None => true,
        };
        if !is_free {
            let message = format!("database \"{name}\" is being accessed by other users");
            return Err(SqlError::new("55006", message));
        }
        let removed = owner.remove(&name)?;
        places.remove(&tenant);
        self.process.forget_activity(tenant);
        self.process.retries.lock().forget(tenant);
        Ok(removed)
    }

    /// The tenants that are awake.
    pub(crate) fn rooms(&self) -> Vec<(TenantId, Rc<Room>)> {
        let places = self.places.borrow();
        let awake = places.iter().filter_map(|(tenant, place)| match place {
            Place::Awake(room) => Some((*tenant, Rc::clone(room))),
            _ => None,
        });
        awake.collect()
    }

    /// From where on those who wake need the log.
    pub(crate) fn wakers_need_log_from(&self) -> Option<Lsn> {
        let needs = |place: &Place| match place {
            Place::Waking { needs_log_from, .. } => *needs_log_from,
            _ => None,
        };
        self.places.borrow().values().filter_map(needs).min()
    }

    /// A tenant falls asleep: nothing of it stays.
    pub(crate) fn forget(&self, tenant: TenantId) {
        self.places.borrow_mut().remove(&tenant);
    }
}

fn gone() -> SqlError {
    SqlError::new(state::INVALID_CATALOG_NAME, "the database was dropped")
}

/// Tells somebody why it cannot be served.
fn turn_away(caller: Caller, error: SqlError) {
    match caller {
        Caller::Client(client) => {
            tokio::task::spawn_local(connection::refuse(client, error));
        }
        // Whoever asked may have gone.
        Caller::Asker { answer, .. } => _ = answer.send(Err(error)),
        Caller::Saver(saved) => _ = saved.send(Err(error)),
    }
}
