//! Sessions whose clients are on other nodes.

use std::{collections::HashMap, marker::PhantomData, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use savanna_epoch::NodeId;
use savanna_pgwire_connection::Output;
use savanna_pgwire_login::Refusal;
use savanna_rpc::{MethodTable, RpcError, Service, Transport, call};
use savanna_tenants_host::{Counts, Identity, Signal, SqlError, TenantId, Tenants, error::state};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};

use super::{
    calls::{
        Adopt, Cancel, Failure, Know, List, ListBackends, Open, OpenRequest, Opening, Refused, Remove, Save, SayToBack,
        SayToFront, SessionName, SignalBackend, Space, backend, sent,
    },
    front::Front,
    line::{Line, LineImage, ORPHANED, Pause, Relayed, SILENCE},
    stream::{Part, Which},
};
use crate::connection::Client;

/// A request waits so long for what it comes to; what takes longer is brought.
const HOLD: Duration = Duration::from_millis(2);
/// How long a front has for one request.
const FRONT_TIME: Duration = Duration::from_secs(5);

/// Sessions by their names.
pub(super) type Sessions = Mutex<HashMap<SessionName, (Opening, Arc<Line>)>>;

/// The clients of other nodes by their tenants: those that are here, and those that another node does not have yet.
#[derive(Debug, Default)]
pub(super) struct Present(Mutex<HashMap<TenantId, usize>>);

impl Present {
    /// Waits until a tenant has none.
    async fn until_none(&self, tenant: TenantId) {
        while self.0.lock().contains_key(&tenant) {
            sleep(MOVING_PAUSE).await;
        }
    }
}

/// A client of another node, which counts as long as this is kept.
#[derive(Debug)]
pub(super) struct Presence {
    tenant: TenantId,
    present: Arc<Present>,
}

impl Presence {
    pub(super) fn of(tenant: TenantId, present: &Arc<Present>) -> Self {
        *present.0.lock().entry(tenant).or_default() += 1;
        Self { tenant, present: Arc::clone(present) }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut present = self.present.0.lock();
        if let Some(count) = present.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                present.remove(&self.tenant);
            }
        }
    }
}

/// How long after a database has moved its sessions may be on their way, and how long to wait for one then.
const MOVING_TIME: Duration = Duration::from_secs(30);
const MOVING_PAUSE: Duration = Duration::from_millis(2);
/// How long the sessions of a database that has moved have to reach the node that it went to.
const HAND_OVER_TIME: Duration = Duration::from_secs(5);

/// Serves the clients of other nodes.
pub struct Back {
    tenants: Tenants,
    /// One for each session that may be here at once.
    places: Arc<Semaphore>,
    clients_max: usize,
    transport: Arc<dyn Transport>,
    sessions: Arc<Sessions>,
    present: Arc<Present>,
    /// Until when sessions may be on their way to or from here, with their databases.
    moving_until: Mutex<Option<Instant>>,
    /// The way to where databases go from here.
    front: Option<Arc<Front>>,
}

impl std::fmt::Debug for Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Back").field("sessions", &self.sessions.lock().len()).finish_non_exhaustive()
    }
}

impl Back {
    /// In front of these tenants, for at most so many clients. Fronts are reached over the transport, and databases that move away by this node's own.
    #[must_use]
    pub fn new(
        tenants: Tenants,
        clients_max: usize,
        transport: Arc<dyn Transport>,
        front: Option<Arc<Front>>,
    ) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(clients_max));
        let (sessions, present, moving_until) = (Arc::default(), Arc::default(), Mutex::default());
        Arc::new(Self { tenants, places, clients_max, transport, sessions, present, moving_until, front })
    }

    /// A database is about to come here, or to go: a session that is not known may be on its way with it.
    pub fn expect_sessions(&self) {
        *self.moving_until.lock() = Some(Instant::now() + MOVING_TIME);
    }

    /// Waits until the sessions of a tenant that has moved are where it went: until then they end with this node.
    pub async fn handed_over(&self, tenant: TenantId) {
        if timeout(HAND_OVER_TIME, self.present.until_none(tenant)).await.is_err() {
            tracing::warn!(tenant, "sessions of a database that has moved do not reach the node that it went to");
        }
    }

    /// What fronts ask: `tenants/..`.
    #[must_use]
    pub fn service(self: Arc<Self>) -> Arc<dyn Service> {
        let [know, list, backends, signal, save, remove, open, adopt, say, space, cancel] =
            [0; 11].map(|_| Arc::clone(&self));
        Arc::new(
            MethodTable::new()
                .method(PhantomData::<Know>, move |_, (tenant, user)| {
                    let tenants = know.tenants.clone();
                    async move {
                        let known = tenants.acquaintance(tenant, &user).await;
                        Ok(known.map(Into::into).map_err(Failure::from))
                    }
                })
                .method(PhantomData::<List>, move |_, ()| {
                    let listed = list.tenants.list().into_iter();
                    let listed =
                        listed.map(|(name, counts)| (name, [counts.sessions, counts.commits, counts.rollbacks]));
                    let listed = listed.collect();
                    async { Ok(listed) }
                })
                .method(PhantomData::<ListBackends>, move |_, ()| {
                    let listed = backends.tenants.backends().into_iter().map(sent).collect();
                    async { Ok(listed) }
                })
                .method(PhantomData::<SignalBackend>, move |_, (asked, ends)| {
                    let what = if ends { Signal::Terminate } else { Signal::Cancel };
                    let is_here = signal.tenants.signal(&backend(asked, None), what);
                    async move { Ok(is_here) }
                })
                .method(PhantomData::<Save>, move |_, tenant| {
                    let tenants = save.tenants.clone();
                    async move { Ok(tenants.save(tenant).await.map_err(Failure::from)) }
                })
                .method(PhantomData::<Remove>, move |_, (tenant, name)| {
                    let tenants = remove.tenants.clone();
                    async move { Ok(removed(&tenants, tenant, &name).await.map_err(Failure::from)) }
                })
                .method(PhantomData::<Open>, move |_, request| {
                    let opened = open.open(request);
                    async move { opened }
                })
                .method(PhantomData::<Adopt>, move |_, (request, opening, line)| {
                    let adopted = match line.is_sound() {
                        true => Ok(adopt.adopt(request, opening, line)),
                        false => Err(RpcError::Malformed {
                            reason: "the numbers of a session's bytes do not fit".to_owned(),
                        }),
                    };
                    async move { adopted }
                })
                .method(PhantomData::<SayToBack>, move |_, (session, opening, part)| {
                    let back = Arc::clone(&say);
                    async move { back.say(&session, opening, part).await }
                })
                .method(PhantomData::<Space>, move |_, ()| {
                    let expected = space.tenants.expect_space().map_err(Failure::from);
                    async { Ok(expected) }
                })
                .method(PhantomData::<Cancel>, move |_, key| {
                    cancel.tenants.cancel(key);
                    async { Ok(()) }
                }),
        )
    }

    /// Ends the sessions whose clients are at a front that is gone; what they hold is free.
    pub fn lose(&self, front: &NodeId) {
        for (_, (_, line)) in self.sessions.lock().iter().filter(|(session, _)| session.front == *front) {
            line.lose("the node that the client was connected to is gone");
        }
    }

    fn open(self: &Arc<Self>, request: OpenRequest) -> Result<Result<Opening, Refused>, RpcError> {
        let OpenRequest { session, tenant, user, database, administrator, begins } = request;
        let mut sessions = self.sessions.lock();
        if let Some((opening, _)) = sessions.get(&session) {
            return Ok(Ok(*opening));
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Ok(Err(Refused(refused_place(self.clients_max))));
        };
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(|error| RpcError::Refused { reason: error.to_string() })?;
        let opening = Opening(u64::from_ne_bytes(number));
        let request = OpenRequest { session, tenant, user, database, administrator, begins };
        self.begin(request, opening, Line::default(), (place, &mut sessions));
        Ok(Ok(opening))
    }

    /// Goes on with a session that another node had.
    fn adopt(self: &Arc<Self>, request: OpenRequest, opening: Opening, line: LineImage) -> Result<(), Refused> {
        let mut sessions = self.sessions.lock();
        if sessions.contains_key(&request.session) {
            return Ok(());
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Refused(refused_place(self.clients_max)))?;
        self.begin(request, opening, Line::of(line), (place, &mut sessions));
        Ok(())
    }

    fn begin(
        self: &Arc<Self>,
        request: OpenRequest,
        opening: Opening,
        line: Line,
        (place, sessions): (OwnedSemaphorePermit, &mut HashMap<SessionName, (Opening, Arc<Line>)>),
    ) {
        let OpenRequest { session, tenant, user, database, administrator, begins } = request;
        let line = Arc::new(line);
        sessions.insert(session.clone(), (opening, Arc::clone(&line)));
        let identity = Identity { user, database, administrator, is_inside: false, client: None };
        let (line_of_session, sessions) = (Arc::clone(&line), Arc::clone(&self.sessions));
        let presence = Presence::of(tenant, &self.present);
        let socket =
            Relayed { line: line_of_session, session: session.clone(), opening, sessions, _presence: presence };
        let (input, front) = (BytesMut::new(), self.front.clone());
        self.tenants.connect(tenant, Box::new(Client { socket, input, identity, begins, place, front, since: None }));
        tokio::spawn(Arc::clone(self).bring(session, opening, line));
    }

    async fn say(&self, session: &SessionName, opening: Opening, part: Part) -> Result<Part, RpcError> {
        let line =
            self.sessions.lock().get(session).filter(|(known, _)| *known == opening).map(|(_, line)| Arc::clone(line));
        let Some(line) = line else {
            if self.moving_until.lock().is_some_and(|until| Instant::now() < until) {
                return Err(RpcError::Frozen { retry_after: MOVING_PAUSE });
            }
            return Err(RpcError::Refused { reason: "the session has ended; connect again".to_owned() });
        };
        let answer = line.answer(part, HOLD).await.map_err(|error| RpcError::Malformed { reason: error.to_string() });
        // Where it went meanwhile, that is asked again.
        if line.look(|ends| ends.has_departed) { Err(RpcError::Frozen { retry_after: MOVING_PAUSE }) } else { answer }
    }

    /// Brings what no request of the front has fetched, until both sides have ended or do not reach each other.
    async fn bring(self: Arc<Self>, session: SessionName, opening: Opening, line: Arc<Line>) {
        let (mut reached, mut heard_at) = (Instant::now(), Instant::now());
        let mut pause = Pause::new();
        loop {
            // Without news, the front is only told that somebody is here.
            let _ = timeout(SILENCE, line.until_due()).await;
            if line.look(|ends| ends.has_departed) {
                return;
            }
            if line.look(|ends| ends.side.is_heard_out()) {
                break;
            }
            let part = line.part(Which::News);
            let end = part.end();
            let request = (session.number, opening, part);
            match call::<SayToFront>(self.transport.as_ref(), &session.front, &request, FRONT_TIME).await {
                Ok(heard) => {
                    reached = Instant::now();
                    if let Err(error) = line.hear(heard) {
                        line.lose(error.to_string());
                        break;
                    }
                }
                Err(error) if !error.is_retriable() || reached.elapsed() >= ORPHANED => {
                    line.lose(error.to_string());
                    break;
                }
                Err(error) => tracing::debug!(%error, session = session.number, "a front is not reached"),
            }
            if line.look(|ends| ends.side.was_heard(end)) {
                (pause, heard_at) = (Pause::new(), Instant::now());
                continue;
            }
            // Nobody waits for the session any more, and its client takes nothing.
            if line.look(|ends| ends.side.has_ended()) && heard_at.elapsed() >= ORPHANED {
                break;
            }
            pause.wait().await;
            line.change(|ends| ends.side.doubt());
        }
        if !line.look(|ends| ends.has_departed) {
            self.sessions.lock().remove(&session);
        }
    }
}

/// The tenants of another node by name, with what goes on in them.
///
/// # Errors
/// If it is not reached.
pub async fn list(transport: &dyn Transport, node: &NodeId) -> Result<Vec<(String, Counts)>, RpcError> {
    let listed = call::<List>(transport, node, &(), FRONT_TIME).await?;
    let counts =
        |[sessions, commits, rollbacks]: [u64; 3]| Counts { sessions, commits, rollbacks, ..Counts::default() };
    Ok(listed.into_iter().map(|(name, numbers)| (name, counts(numbers))).collect())
}

/// Removes a tenant of this node, if it is the one of that name.
async fn removed(tenants: &Tenants, tenant: TenantId, name: &str) -> Result<(), SqlError> {
    if tenants.tenant(name).await? != tenant || !tenants.has(tenant) {
        return Err(SqlError::new(state::INVALID_CATALOG_NAME, "the database was dropped"));
    }
    tenants.remove(name).await
}

fn refused_place(clients_max: usize) -> Bytes {
    let mut output = Output::default();
    output.fatal(&Refusal::no_place(clients_max).into());
    output.bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_clients_of_a_tenant_waits_for_each_of_them_and_for_no_other() {
        let present = Arc::new(Present::default());
        let none = |tenant| timeout(Duration::from_secs(1), present.until_none(tenant));
        let (first, second, _of_another) =
            (Presence::of(1, &present), Presence::of(1, &present), Presence::of(2, &present));
        assert!(none(1).await.is_err());
        drop(first);
        assert!(none(1).await.is_err());
        drop(second);
        assert!(none(1).await.is_ok() && none(2).await.is_err());
    }
}
