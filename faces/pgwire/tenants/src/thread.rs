//! One thread: the tenants that live on it, and their connections.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::BytesMut;
use parking_lot::Mutex;
use savanna_journal::Journal;
use savanna_ownership::guard::LeaseGuard;
use savanna_tenants::{
    SessionId, SqlError,
    activity::Activity,
    database::Database,
    error::{Result, state},
    role::Acquaintance,
    tenant::Tenant,
};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::{connection, registry::Registry, socket::Parked};

/// How often a thread looks for what is to be removed of its tenants.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Keys that are removed at once.
const SWEEP_KEYS: usize = 1_000;
/// From 1970-01-01 to 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// What a thread is told.
pub(crate) enum Order {
    /// A tenant lives here from now on.
    Adopt { name: String, database: Box<Database>, activity: Arc<Activity> },
    /// A tenant is to go, if nobody is there; the answer is whether it went.
    Retire { name: String, gone: oneshot::Sender<bool> },
    /// A client of a tenant that lives here.
    Client(Box<Client>),
    /// What does a tenant know of somebody?
    Ask { name: String, user: String, answer: oneshot::Sender<Result<Acquaintance>> },
    /// Whoever knows a connection's key wants its statement to end.
    Cancel((i32, i32)),
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
    /// Its process's number and a secret: who knows both can cancel what it does.
    pub(crate) key: (i32, i32),
    /// Where its random numbers begin.
    pub(crate) seed: u64,
}

/// A tenant and those who wait in it.
pub(crate) struct Room {
    tenant: RefCell<Tenant>,
    waiting: RefCell<HashMap<SessionId, Rc<Notify>>>,
}

impl Room {
    fn new(database: Database, activity: Arc<Activity>) -> Rc<Self> {
        Rc::new(Self { tenant: RefCell::new(Tenant::new(database, activity)), waiting: RefCell::default() })
    }

    /// Does something with the tenant, and wakes whom that woke.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Tenant) -> T) -> T {
        let mut tenant = self.tenant.borrow_mut();
        tenant.set_now(now());
        let result = work(&mut tenant);
        let waiting = self.waiting.borrow();
        for id in tenant.woken() {
            if let Some(notify) = waiting.get(&id) {
                notify.notify_one();
            }
        }
        result
    }

    /// What a session is woken by.
    pub(crate) fn waits(&self, id: SessionId) -> Rc<Notify> {
        Rc::clone(self.waiting.borrow_mut().entry(id).or_default())
    }

    /// A session is over.
    pub(crate) fn leave(&self, id: SessionId) {
        self.with(|tenant| tenant.close_session(id));
        self.waiting.borrow_mut().remove(&id);
    }
}

/// Microseconds since 2000-01-01.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64 - EPOCH_MICROS
}

/// A connection that can be cancelled by whoever knows its key.
pub(crate) struct Known {
    pub(crate) room: Rc<Room>,
    pub(crate) session: SessionId,
}

/// What the connections of a thread share.
pub(crate) struct Here {
    pub(crate) journal: Arc<Journal>,
    pub(crate) lease: Option<LeaseGuard>,
    pub(crate) registry: Arc<Mutex<Registry>>,
    rooms: RefCell<HashMap<String, Rc<Room>>>,
    /// Who can be cancelled, by key.
    pub(crate) connections: RefCell<HashMap<(i32, i32), Known>>,
}

/// Runs a thread until it is stopped.
pub(crate) fn run(
    journal: Arc<Journal>,
    lease: Option<LeaseGuard>,
    registry: Arc<Mutex<Registry>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a thread for tenants could not start");
            return;
        }
    };
    let here = Rc::new(Here { journal, lease, registry, rooms: RefCell::default(), connections: RefCell::default() });
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        tokio::task::spawn_local(keep_house(Rc::clone(&here)));
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
            Order::Adopt { name, database, activity } => {
                self.rooms.borrow_mut().insert(name, Room::new(*database, activity));
            }
            Order::Retire { name, gone } => {
                let mut rooms = self.rooms.borrow_mut();
                let empty = rooms.get(&name).is_some_and(|room| room.tenant.borrow().sessions() == 0);
                if empty {
                    rooms.remove(&name);
                }
                // Whoever asked may have gone.
                _ = gone.send(empty);
            }
            Order::Client(client) => {
                let room = self.rooms.borrow().get(&client.database).map(Rc::clone);
                if let Some(room) = room {
                    tokio::task::spawn_local(connection::serve(Rc::clone(self), room, *client));
                }
            }
            Order::Ask { name, user, answer } => {
                let room = self.rooms.borrow().get(&name).map(Rc::clone);
                let known = match room {
                    Some(room) => room.with(|tenant| tenant.database().acquaintance(&user)),
                    None => {
                        Err(SqlError::new(state::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist")))
                    }
                };
                // Whoever asked may have gone.
                _ = answer.send(known);
            }
            Order::Cancel(key) => {
                if let Some(known) = self.connections.borrow().get(&key) {
                    known.room.with(|tenant| tenant.cancel(known.session));
                }
            }
            Order::Stop => {}
        }
    }
}

/// Removes what no table has any more, a little at a time.
async fn keep_house(here: Rc<Here>) {
    loop {
        tokio::time::sleep(HOUSEKEEPING).await;
        let rooms: Vec<Rc<Room>> = here.rooms.borrow().values().map(Rc::clone).collect();
        for room in rooms {
            loop {
                match room.with(|tenant| tenant.database().sweep(SWEEP_KEYS)) {
                    Ok(true) => tokio::task::yield_now().await,
                    Ok(false) => break,
                    Err(error) => {
                        tracing::error!(%error, "what is to be removed of a tenant stays");
                        break;
                    }
                }
            }
        }
    }
}
