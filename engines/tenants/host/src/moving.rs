//! A tenant leaves for another node, or comes from one: what its thread does for that.
//!
//! ```text
//!  freeze   when no session is tied to its place: whoever comes waits; connections go when nothing keeps them, those that something keeps are ended after a while
//!  drain    nobody is there any more, and the storage has everything
//!  release  the record says that it is another node's: whoever waits is taken there
//!  resume   or it stays: whoever waits goes on here
//! ```

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use savanna_epoch::{LogId, OwnerEpoch};
use savanna_ownership::Revision;
use savanna_tenants::tenant::{Bound, InTransaction, OpenImage, SessionImage, Tenant};
use savanna_tenants_segments::TenantId;
use savanna_tenants_store::owner::{self, Moved};
use savanna_tenants_values::error::{Result, SqlError};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    maintenance,
    process::{Key, Process},
    session::{Identity, Session},
    slot::TenantSlot,
    tenants::Tenants,
    thread::{Connection, Order, ThreadContext},
};

/// How long a tenant that moves waits for transactions, and for what else keeps sessions where they are.
const PATIENCE: Duration = Duration::from_secs(5);
/// What goes along of open transactions and of what was committed since they began, in bytes.
const MOVED_BYTES_MAX: usize = 64 << 20;
/// If no more than that was committed since the storage was written to last, it goes along, too: nobody waits for the storage then.
const TAIL_BYTES_MAX: u64 = 4 << 20;
/// For so long a statement that runs aside is waited for before it is called away.
const ASIDE: Duration = Duration::from_millis(200);
/// How often it is looked whether everybody has gone.
const ROUND: Duration = Duration::from_millis(1);

/// A session that left its node: what its client has set and prepared, and the key by which its statements are cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Departed {
    pub(crate) image: SessionImage,
    pub(crate) key: Key,
}

impl Departed {
    /// What the session is in, if that is a transaction.
    #[must_use]
    pub fn transaction(&self) -> Option<InTransaction> {
        self.image.transaction()
    }
}

/// The way back to the tenant of a session that left.
pub struct Return {
    process: Arc<Process>,
    tenant: TenantId,
}

impl std::fmt::Debug for Return {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Return").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl Return {
    /// Takes the client to the tenant's thread, where it waits for what becomes of the move.
    pub fn connect(self, connection: Box<dyn Connection>) {
        let Self { process, tenant } = self;
        process.tell(tenant, Order::Connect { tenant, connection });
    }
}

impl Session {
    /// Waits until the session is to end (`true`), or to leave with its tenant, which it does only if it is `free` to and nothing else keeps it.
    pub fn dismissed(&self, free: bool) -> impl Future<Output = bool> + use<> {
        let (termination, slot, id) = (Arc::clone(self.termination()), Rc::clone(self.slot()), self.id());
        async move {
            loop {
                termination.called().await;
                if termination.is_asked() {
                    return true;
                }
                if free && slot.lets_go(id).await {
                    return false;
                }
                // The move may be given up, and come again.
                termination.asked_again().await;
            }
        }
    }

    /// Leaves its tenant, which moves. The session is over here.
    ///
    /// # Errors
    /// There is no such session.
    pub async fn depart(self) -> Result<(Identity, Departed, Return)> {
        let id = self.id();
        let along = self.slot().along.get();
        let depart = |tenant: &mut Tenant| match along {
            Some(attempt) => tenant.depart(id, attempt),
            // It was let go with what is open in it, and that move was given up.
            None if tenant.is_bound(id).is_some() => tenant.depart(id, 0),
            None => tenant.image(id),
        };
        let image = self.slot().with(depart).await?;
        let back = Return { process: Arc::clone(self.process()), tenant: self.slot().id };
        Ok((self.identity().clone(), Departed { image, key: self.key() }, back))
    }
}

impl Tenants {
    /// Begins to take a tenant away from its clients, so that it can move by an attempt, which has a number of its own: whoever comes
    /// waits, whoever is there goes when nothing keeps it. What is open in its sessions goes `along`, or keeps them; if it is to go along, the tenant is served
    /// until no session has anything that cannot.
    ///
    /// # Errors
    /// 3D000 if it is not here, 55006 if it wakes or leaves, or what cannot go along is there for too long.
    pub async fn freeze(&self, tenant: TenantId, attempt: u64, along: bool) -> Result<()> {
        self.ask(tenant, |frozen| Order::Freeze { tenant, attempt, along, frozen }).await
    }

    /// As [`freeze`](Self::freeze), for a tenant that sleeps with nothing open; it is not woken for that.
    ///
    /// # Errors
    /// 3D000 if it is not here, 55006 if it is awake, wakes or leaves, or has something that its storage has not.
    pub async fn freeze_asleep(&self, tenant: TenantId, attempt: u64) -> Result<()> {
        self.ask(tenant, |frozen| Order::FreezeAsleep { tenant, attempt, frozen }).await
    }

    /// Whether a tenant of this node sleeps with all of it in its storage. It may wake at any moment.
    pub async fn is_at_rest(&self, tenant: TenantId) -> bool {
        self.ask(tenant, |answer| Order::AskRest { tenant, answer }).await.unwrap_or(false)
    }

    /// Waits until nobody is in a frozen tenant any more and the storage has all of it. What is open and goes along is returned, with what is not in the storage
    /// because of that. Otherwise who stays for too long is sent away.
    ///
    /// # Errors
    /// 55006 if it goes on here, or somebody stays for too long in spite of whom it does not go; those of the storage.
    pub async fn drain(&self, tenant: TenantId, attempt: u64) -> Result<Moved> {
        self.ask(tenant, |drained| Order::Drain { tenant, attempt, drained }).await
    }

    /// A frozen tenant goes on here after all.
    pub fn resume(&self, tenant: TenantId, attempt: u64) {
        self.process().tell(tenant, Order::Resume(tenant, attempt));
    }

    /// A tenant goes on here, whatever attempt has frozen it: its record says so, and nobody moves it any more.
    pub fn thaw(&self, tenant: TenantId) {
        self.process().tell(tenant, Order::Thaw(tenant));
    }

    /// The record of a tenant of this node has another version by now.
    pub fn note_version(&self, tenant: TenantId, version: Revision) {
        self.process().owner.lock().stay(tenant, version);
    }

    /// The epoch under which a tenant is on this node, if it is.
    #[must_use]
    pub fn epoch(&self, tenant: TenantId) -> Option<OwnerEpoch> {
        self.process().owner.lock().epoch(tenant)
    }

    /// The log of this node's tenants.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.process().owner.lock().log_id().clone()
    }

    /// A drained tenant is another node's: its record says so.
    pub fn release(&self, tenant: TenantId, attempt: u64) {
        self.process().owner.lock().leave(tenant);
        self.process().storage.forget_warm(tenant);
        self.process().tell(tenant, Order::Release(tenant, attempt));
    }

    /// Prepares this node's log for a tenant that comes from another node by an attempt, of which a later one has a higher number: the storage has all of it but
    /// what it brings along. Returns the log.
    ///
    /// # Errors
    /// Those of the log.
    pub async fn expect(&self, tenant: TenantId, (epoch, attempt): (OwnerEpoch, u64), moved: Moved) -> Result<LogId> {
        // What cannot be read is refused while the other node has it still.
        moved.image.as_deref().map(OpenImage::decode).transpose()?;
        let process = Arc::clone(self.process());
        let expecting = async move { owner::expect_with(&process.owner, tenant, (epoch, attempt), moved).await };
        self.process().background.spawn(expecting).await.map_err(SqlError::internal)?
    }

    /// An attempt to bring a tenant here was given up.
    pub fn expect_no_more(&self, tenant: TenantId, attempt: u64) {
        self.process().owner.lock().expect_no_more(tenant, attempt);
    }

    /// Writes to the storage what it may have of a tenant while it is served.
    ///
    /// # Errors
    /// As those of [`save`](Self::save).
    pub async fn save_some(&self, tenant: TenantId) -> Result<()> {
        self.ask(tenant, |saved| Order::Save { tenant, all: false, saved }).await
    }

    pub(crate) async fn ask<T>(
        &self,
        tenant: TenantId,
        order: impl FnOnce(oneshot::Sender<Result<T>>) -> Order,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.process().tell(tenant, order(answer));
        answered.await.unwrap_or_else(|_| Err(SqlError::new("57P01", "the server is stopping")))
    }
}

impl ThreadContext {
    pub(crate) async fn freeze(&self, tenant: TenantId, attempt: u64, along: bool) -> Result<()> {
        if along {
            self.until_movable(tenant).await?;
        }
        if let Some(slot) = self.begin_moving(tenant, attempt)?
            && !slot.is_leaving.replace(true)
        {
            slot.along.set(along.then_some(attempt));
            slot.leaves_since.set(Instant::now());
            self.sessions_of(tenant).into_iter().for_each(|key| self.process.connections.call_away(key));
        }
        Ok(())
    }

    /// What ties a session to this node may take long, as a COPY or the removal of another database does, and nobody has to wait for it. A statement that runs aside gives way
    /// only when the tenant leaves.
    async fn until_movable(&self, tenant: TenantId) -> Result<()> {
        let began = Instant::now();
        while let Some(slot) = self.awake(tenant) {
            let Ok(fixed) = tokio::time::timeout(ASIDE, self.fixed(&slot)).await else { break };
            if fixed.is_none() && !slot.has_errands() {
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(in_the_way(fixed));
            }
            tokio::time::sleep(ROUND).await;
        }
        Ok(())
    }

    /// The keys of the sessions that a tenant has here.
    pub(crate) fn sessions_of(&self, tenant: TenantId) -> Vec<Key> {
        self.sessions.borrow().iter().filter(|(_, session)| session.slot.id == tenant).map(|(key, _)| *key).collect()
    }

    pub(crate) async fn drain(self: &Rc<Self>, tenant: TenantId, attempt: u64) -> Result<Moved> {
        let Some(slot) = self.moving_slot(tenant, attempt) else {
            // Who sleeps has everything in the storage.
            return if self.is_moving(tenant, attempt) { Ok(Moved::default()) } else { Err(stays()) };
        };
        let along = slot.along.get().is_some();
        let began = Instant::now();
        let mut is_over = false;
        while !slot.is_empty() || slot.flushing.get() {
            if !self.is_moving(tenant, attempt) {
                return Err(stays());
            }
            if began.elapsed() > PATIENCE && along {
                return Err(in_the_way(self.fixed(&slot).await));
            }
            if began.elapsed() > PATIENCE && !std::mem::replace(&mut is_over, true) {
                self.sessions_of(tenant).into_iter().for_each(|key| self.process.connections.end_as_moved(key));
            }
            tokio::time::sleep(ROUND).await;
        }
        slot.flushing.set(true);
        let written = write_down(self, &slot, attempt, along).await;
        slot.flushing.set(false);
        written
    }

    /// What ties a session of a tenant to this node, if anything does.
    async fn fixed(&self, slot: &Rc<TenantSlot>) -> Option<Bound> {
        let ids: Vec<_> = self
            .sessions
            .borrow()
            .values()
            .filter(|session| session.slot.id == slot.id)
            .map(|session| session.id)
            .collect();
        slot.with(|tenant| ids.into_iter().find_map(|id| tenant.is_fixed(id))).await
    }
}

/// Why a tenant does not go.
fn in_the_way(fixed: Option<Bound>) -> SqlError {
    let what = match fixed {
        Some(Bound::Copy) => "a COPY that takes rows",
        Some(Bound::Cursors) => {
            "a cursor or portal of a transaction that changed the time zone, the style of dates or the tables"
        }
        Some(Bound::Size) => {
            "a session with more rows in cursors, temporary tables or its transaction than are taken along"
        }
        _ => "a statement that runs, or waits for a lock behind others of its message,",
    };
    SqlError::new("55006", format!("{what} is in the way for more than {PATIENCE:?}"))
        .hint("Move the database when that is over. `--technique flush-and-move` ends such sessions.")
}

/// Writes all of a tenant to its storage in which nobody is any more, but for what snapshots hold up that go along, and what was committed lately if commits go `along`. Returns these, and
/// what is open.
async fn write_down(thread: &Rc<ThreadContext>, slot: &Rc<TenantSlot>, attempt: u64, along: bool) -> Result<Moved> {
    slot.with(Tenant::give_numbers_back).await?;
    if along {
        let moved = write_down_but(TAIL_BYTES_MAX, thread, slot, attempt).await?;
        if bytes_of(&moved) <= MOVED_BYTES_MAX {
            return Ok(moved);
        }
    }
    let moved = write_down_but(0, thread, slot, attempt).await?;
    match bytes_of(&moved) {
        0..=MOVED_BYTES_MAX => Ok(moved),
        bytes => Err(too_much(bytes)),
    }
}

/// Why what is open, or was committed behind it, does not go along.
fn too_much(bytes: usize) -> SqlError {
    let message = format!(
        "open transactions and what was committed since they began are {bytes} bytes, of which {MOVED_BYTES_MAX} go along at most"
    );
    SqlError::new("55006", message).hint("Move the database when the oldest transactions are over.")
}

/// The same, if no more than so many bytes of commits are to go along that the storage may have.
async fn write_down_but(
    tail_max: u64,
    thread: &Rc<ThreadContext>,
    slot: &Rc<TenantSlot>,
    attempt: u64,
) -> Result<Moved> {
    let is_ready = |tenant: &mut Tenant| {
        let database = tenant.database();
        database.is_written_down() || tail_max > 0 && database.fits_tail(tail_max)
    };
    while !slot.with(is_ready).await {
        if !thread.is_moving(slot.id, attempt) {
            return Err(stays());
        }
        maintenance::flush_for_good(thread, slot).await?;
    }
    // It would be made for nothing.
    let large = slot.with(|tenant| tenant.database().needed_parts_bytes()).await;
    if large > MOVED_BYTES_MAX as u64 {
        return Err(too_much(large as usize));
    }
    let last = slot.with(|tenant| tenant.database().last_logged()).await;
    thread.process.journal.wait_durable(last).await?;
    let moved = slot.with(|tenant| {
        let image = tenant.open_image()?.map(|image| image.encode()).transpose()?;
        Ok::<_, SqlError>(Moved { tail: tenant.database().tail(), image })
    });
    moved.await
}

fn bytes_of(moved: &Moved) -> usize {
    moved.tail.iter().map(Vec::len).sum::<usize>() + moved.image.as_ref().map_or(0, Vec::len)
}

fn stays() -> SqlError {
    SqlError::new("55006", "the database goes on here")
}
