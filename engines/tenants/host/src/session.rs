//! A client's session on its tenant's thread: its statements wait for their turn, run, wait for others, and are paid for.
//!
//! Whoever serves a client calls [`Session`] directly, on the same thread and with what it has read of the client: nothing is copied, locked
//! or handed over on the way to a statement that neither waits nor takes long.

mod beside;
mod turns;
mod waits;

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use savanna_journal::Lsn;
use savanna_tenants::{
    Outcome, SpoolRows, Status,
    budget::Amounts,
    tenant::{Binding, Login, Notice, Notification, SessionImage, Tenant},
};
use savanna_tenants_sql::{
    backends::{self, Asker, Backends as _},
    copy::CopyField,
    doing::Doing,
    interrupt::{Interrupts, Reason},
    plan::OutputColumn,
    settings::{Encoding, Timeouts},
};
use savanna_tenants_store::{database::SessionId, role::Acquaintance};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, style::Style},
};
use tokio::sync::Notify;

use self::turns::Spent;
pub use self::waits::Waiting;
use crate::{
    connections::{Connected, OwnKey, Termination},
    moving::Departed,
    process::{ADMINISTRATION, Key, Process},
    slot::{ConnectionGuard, TenantSlot},
    tenants,
    thread::{LocalSession, ThreadContext},
};

/// What reading and answering a message costs beside what it asks for.
const MESSAGE_TIME: Duration = Duration::from_micros(3);
/// Longer texts are read aside: a megabyte of values takes seconds to parse and to plan.
const TEXT_BYTES_HERE: usize = 64 << 10;
/// More rows of a COPY are written aside.
const COPY_ROWS_HERE: usize = 8_192;
/// How often somebody looks whether a statement is to end that cannot be woken.
const LOOK: Duration = Duration::from_millis(20);
/// How long answers wait before the lease is looked at again.
const LEASE_LOOK: Duration = Duration::from_millis(20);
/// All tenants are entitled to the same.
pub(crate) const WEIGHT: u32 = 1;

/// The client of a session, as that sees it while it works.
pub trait Peer {
    /// Waits until the client has gone away. What it sends meanwhile is kept; nothing is lost if nobody waits any more.
    fn gone(&mut self) -> impl Future<Output = io::Error>;
    /// The same; `None` as soon as more of what it has sent is kept than goes along when its session leaves.
    fn gone_while_light(&mut self) -> impl Future<Output = Option<io::Error>>;
    /// Whether no more of what it has sent is kept than goes along.
    fn is_light(&self) -> bool;
    /// Tells it something beside an answer.
    fn notice(&mut self, notice: &Notice);
    /// The client is told what another session says.
    fn heard(&mut self, heard: &Notification);
    /// Says how dates and intervals are shown, and where its clocks are, which may be no news.
    fn style(&mut self, style: Style);
    /// How its texts are written.
    fn encoding(&mut self, encoding: Encoding);
}

/// Why a session ends.
#[derive(Debug)]
pub enum End {
    /// The client went away, or can no longer be understood.
    Client(io::Error),
    /// The client is told why, and sent away.
    Fatal(SqlError),
    /// The statement was taken back before it had done anything, as the session leaves with its tenant: it is to be asked for again there.
    TakenBack,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Client(error)
    }
}

/// What came of something, unless the session ends.
pub type Served<T> = std::result::Result<T, End>;

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub user: String,
    /// The tenant's name.
    pub database: String,
    /// Whether it may do things outside of its database.
    pub administrator: bool,
    /// Whether it is a part of this process, to which the database belongs that [others only read](crate::Keeping::only_read).
    pub is_inside: bool,
    /// Where it is, if that is known.
    pub client: Option<SocketAddr>,
}

/// What came of the execution of a portal, and how its rows are to be written.
pub type Executed = (Outcome, Vec<OutputColumn>, Vec<i16>);

/// A client's session. Dropping it ends it, and rolls its transaction back.
pub struct Session {
    thread: Rc<ThreadContext>,
    slot: Rc<TenantSlot>,
    id: SessionId,
    key: OwnKey,
    identity: Identity,
    interrupts: Arc<Interrupts>,
    doing: Arc<Doing>,
    timeouts: Timeouts,
    style: Style,
    encoding: Encoding,
    woken: Rc<Notify>,
    heard: Rc<Notify>,
    /// What it has not paid for.
    spent: Spent,
    /// The log must be durable up to here before the answers may leave.
    after: Lsn,
    /// Whether a statement has failed before it got to the tenant.
    failed_aside: bool,
    /// What the client was told last that it is in.
    status: Status,
    termination: Arc<Termination>,
    /// What may become of its statement that waits when the session is to leave.
    waits_as: Waiting,
    /// The attempt to move the tenant for which a statement that runs was called away last.
    called_for: Option<u64>,
    _guard: ConnectionGuard,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.thread.sessions.borrow_mut().remove(&self.key.get());
        // If its statement still runs, nobody wants to know what comes of it.
        self.interrupts.interrupt(Reason::Cancelled);
        self.slot.leave(self.id);
    }
}

impl ConnectionGuard {
    /// Waits until the tenant is not busy with a statement of somebody else; for so long at most.
    ///
    /// # Errors
    /// 57P03.
    pub async fn free_within(&self, time: Duration) -> Result<()> {
        tokio::time::timeout(time, self.slot().wanted_back()).await.map_err(|_| {
            SqlError::new("57P03", "the database is busy with a long statement").hint(
                "Try again later. An administrator can find the statement's connection in pg_stat_activity of another database, and end \
                 the statement with pg_cancel_backend(pid).",
            )
        })
    }

    /// For how long somebody who logs in waits for a tenant that a statement keeps busy.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.thread().process.keeping.patience
    }

    /// Opens a session with the settings that its client begins with.
    ///
    /// # Errors
    /// 53300; if there is no such setting or value.
    pub async fn open(self, identity: Identity, settings: &[(String, String)]) -> Result<Session> {
        self.open_as(identity, |tenant, login| open(tenant, login, settings), None).await
    }

    /// Opens a session that goes on where it departed from.
    ///
    /// # Errors
    /// 53300.
    pub async fn reopen(self, identity: Identity, departed: &Departed) -> Result<Session> {
        self.open_as(identity, |tenant, login| reopen(tenant, login, &departed.image), Some(departed.key)).await
    }

    /// Opens a session, under the key that it had if nobody else has its number.
    async fn open_as(
        self,
        identity: Identity,
        open: impl FnOnce(&mut Tenant, Login<'_>) -> Result<SessionId>,
        former: Option<Key>,
    ) -> Result<Session> {
        let (thread, slot) = (Rc::clone(self.thread()), Rc::clone(self.slot()));
        let (key, seed) = thread.process.connections.key().map_err(SqlError::internal)?;
        let key = former.and_then(|former| thread.process.connections.keep(former)).unwrap_or(key);
        let Identity { user, database, administrator, is_inside, .. } = &identity;
        let only_reads = !is_inside && thread.process.keeping.only_read.as_ref() == Some(database);
        let login = Login { user, database, administrator: *administrator, seed };
        let connections = Arc::clone(&thread.process.connections);
        let opened = slot.with(|tenant| {
            let id = open(tenant, login)?;
            if only_reads {
                tenant.only_reads(id);
            }
            tenant.connect(id, key.get().0, connections);
            let shown = (tenant.style(id), tenant.encoding(id));
            let doing = tenant.doing(id);
            doing.note(|noted| noted.client = identity.client);
            Ok::<_, SqlError>((id, (tenant.interrupts(id), doing), tenant.timeouts(id), shown, tenant.status(id)))
        });
        let (id, (interrupts, doing), timeouts, (style, encoding), status) = opened.await?;
        let (woken, heard) = (slot.waits(id), slot.hears(id));
        // What it heard on its way here.
        heard.notify_one();
        thread.sessions.borrow_mut().insert(key.get(), LocalSession { slot: Rc::clone(&slot), id });
        let termination = Arc::<Termination>::default();
        let connected = Connected {
            database: database.clone(),
            user: user.clone(),
            interrupts: Arc::clone(&interrupts),
            termination: Arc::clone(&termination),
            doing: Arc::clone(&doing),
            thread: thread.number,
        };
        thread.process.connections.arrive(key.get(), connected);
        if slot.is_leaving.get() {
            termination.leave();
        }
        Ok(Session {
            thread,
            slot,
            id,
            key,
            identity,
            interrupts,
            doing,
            timeouts,
            style,
            encoding,
            woken,
            heard,
            spent: Spent::default(),
            after: Lsn::NONE,
            failed_aside: false,
            status,
            termination,
            waits_as: Waiting::default(),
            called_for: None,
            _guard: self,
        })
    }
}

/// Opens a session, or leaves nothing of it.
fn open(tenant: &mut Tenant, login: Login<'_>, settings: &[(String, String)]) -> Result<SessionId> {
    let session = tenant.open_session(login)?;
    for (setting, value) in settings {
        if let Err(error) = tenant.set(session, setting, value) {
            tenant.close_session(session);
            return Err(error);
        }
    }
    tenant.begin_session(session);
    Ok(session)
}

/// Opens a session as it was elsewhere, or leaves nothing of it.
fn reopen(tenant: &mut Tenant, login: Login<'_>, image: &SessionImage) -> Result<SessionId> {
    let session = tenant.open_again(login)?;
    match tenant.restore(session, image) {
        Ok(()) => Ok(session),
        Err(error) => {
            tenant.close_session(session);
            Err(error)
        }
    }
}

/// Whether a text takes long enough to read to be in others' way.
const fn is_long(text: &str) -> bool {
    text.len() > TEXT_BYTES_HERE
}

/// What clients ask for.
impl Session {
    /// By what its client can end what it does.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key.get()
    }

    /// Who its client is.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How its client is shown dates and intervals, and where its clocks are.
    #[must_use]
    pub const fn style(&self) -> Style {
        self.style
    }

    /// How its texts are written.
    #[must_use]
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// How long its statements and pauses may take.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// What the client was told last that it is in.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    pub(crate) const fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) const fn slot(&self) -> &Rc<TenantSlot> {
        &self.slot
    }

    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.thread.process
    }

    /// Waits until its client is to hear of other sessions, and the tenant is not busy with a statement of somebody else. Whoever does not wait to the end is told
    /// with the next answer.
    pub fn heard(&self) -> impl Future<Output = ()> + use<> {
        let (heard, slot) = (Rc::clone(&self.heard), Rc::clone(&self.slot));
        async move {
            heard.notified().await;
            slot.returned().await;
        }
    }

    /// By what it is told that it is to end.
    #[must_use]
    pub const fn termination(&self) -> &Arc<Termination> {
        &self.termination
    }

    /// Says what may become of a statement that waits when the session is to leave.
    pub const fn waits_as(&mut self, waiting: Waiting) {
        self.waits_as = waiting;
    }

    /// Waits until the tenant may begin something for the client, which has sent so many messages for that.
    pub async fn begin(&mut self, messages: u32) {
        self.pay();
        self.wait_for_budget().await;
        self.spent.time += MESSAGE_TIME * messages;
    }

    /// Cuts a text into statements.
    ///
    /// # Errors
    /// 42601; 57014 if it was ended while it waited for its turn.
    pub async fn split(&mut self, peer: &mut impl Peer, text: String) -> Served<Result<Vec<String>>> {
        let id = self.id;
        if let Err(error) = self.turn(peer, Instant::now()).await? {
            return Ok(Err(error));
        }
        self.tenant_reads(peer, text, move |tenant, text| tenant.split(id, text)).await
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// The statement's.
    pub async fn run(
        &mut self,
        peer: &mut impl Peer,
        text: String,
    ) -> Served<Result<(Outcome, Option<Vec<OutputColumn>>)>> {
        let id = self.id;
        self.until_done_from(peer, is_long(&text), move |tenant| tenant.run(id, &text)).await
    }

    /// The end of what belongs together: a transaction that the client did not begin ends here.
    ///
    /// # Errors
    /// The commit's.
    pub async fn finish(&mut self, peer: &mut impl Peer) -> Served<Result<()>> {
        // What failed before it got to the tenant is finished with that.
        if self.failed_aside {
            return Ok(Ok(()));
        }
        let id = self.id;
        self.until_done(peer, move |tenant| tenant.finish(id)).await
    }

    /// The client is about to be told what came of its statements, and what it is to hear of other sessions. What it is in.
    pub async fn told(&mut self, peer: &mut impl Peer) -> Status {
        let id = self.id;
        self.status = match (std::mem::take(&mut self.failed_aside), self.status) {
            // The tenant hears of it when it is here again.
            (true, Status::Idle) => Status::Idle,
            (true, _) => Status::Failed,
            (false, _) => {
                let (status, heard) = self.tenant(peer, |tenant| (tenant.told(id), tenant.hear(id))).await;
                heard.iter().for_each(|heard| peer.heard(heard));
                status
            }
        };
        self.status
    }

    /// Prepares a statement under a name, with types of parameters by their numbers, 0 for what is to be found out.
    ///
    /// # Errors
    /// As PostgreSQL's.
    pub async fn parse(
        &mut self,
        peer: &mut impl Peer,
        name: String,
        text: String,
        types: Vec<u32>,
    ) -> Served<Result<()>> {
        let id = self.id;
        if let Err(error) = self.turn(peer, Instant::now()).await? {
            return Ok(Err(error));
        }
        self.tenant_reads(peer, text, move |tenant, text| tenant.parse(id, &name, text, &types)).await
    }

    /// Makes a portal.
    ///
    /// # Errors
    /// As PostgreSQL's.
    pub async fn bind(&mut self, peer: &mut impl Peer, binding: &Binding<'_>) -> Served<Result<()>> {
        let id = self.id;
        self.in_turn(peer, |tenant| tenant.bind(id, binding)).await
    }

    /// The types of a statement's parameters, and its columns if it has any.
    ///
    /// # Errors
    /// 26000.
    pub async fn describe_statement(
        &mut self,
        peer: &mut impl Peer,
        name: &str,
    ) -> Served<Result<(Vec<Type>, Option<Vec<OutputColumn>>)>> {
        let id = self.id;
        self.in_turn(peer, |tenant| tenant.describe_statement(id, name)).await
    }

    /// A portal's columns if it has any, and how they are to be written.
    ///
    /// # Errors
    /// 34000.
    pub async fn describe_portal(
        &mut self,
        peer: &mut impl Peer,
        name: &str,
    ) -> Served<Result<(Option<Vec<OutputColumn>>, Vec<i16>)>> {
        let id = self.id;
        self.in_turn(peer, |tenant| tenant.describe_portal(id, name)).await
    }

    /// Executes a portal, up to so many rows, or all with 0.
    ///
    /// # Errors
    /// The statement's.
    pub async fn execute(&mut self, peer: &mut impl Peer, name: &str, rows_max: usize) -> Served<Result<Executed>> {
        let id = self.id;
        let (columns, formats) = match self.describe_portal(peer, name).await? {
            Ok((columns, formats)) => (columns.unwrap_or_default(), formats),
            Err(error) => return Ok(Err(error)),
        };
        let portal = name.to_owned();
        let executed = self.until_done(peer, move |tenant| tenant.execute(id, &portal, rows_max)).await?;
        Ok(executed.map(|outcome| (outcome, columns, formats)))
    }

    /// Forgets a statement.
    ///
    /// # Errors
    /// 57014 if it was ended while it waited for its turn.
    pub async fn close_statement(&mut self, peer: &mut impl Peer, name: &str) -> Served<Result<()>> {
        let id = self.id;
        self.in_turn(peer, |tenant| {
            tenant.close_statement(id, name);
            Ok(())
        })
        .await
    }

    /// Forgets a portal.
    ///
    /// # Errors
    /// As [`close_statement`](Self::close_statement).
    pub async fn close_portal(&mut self, peer: &mut impl Peer, name: &str) -> Served<Result<()>> {
        let id = self.id;
        self.in_turn(peer, |tenant| {
            tenant.close_portal(id, name);
            Ok(())
        })
        .await
    }

    /// What the client has asked for failed before it got here, and with it its transaction.
    ///
    /// # Errors
    /// As [`close_statement`](Self::close_statement).
    pub async fn fail(&mut self, peer: &mut impl Peer) -> Served<Result<()>> {
        let id = self.id;
        self.in_turn(peer, |tenant| {
            tenant.fail(id);
            Ok(())
        })
        .await
    }

    /// Rows of a COPY are on their way.
    ///
    /// # Errors
    /// 57014 if it is to end.
    pub async fn copy_goes_on(&mut self, peer: &mut impl Peer) -> Result<()> {
        let id = self.id;
        self.tenant(peer, |tenant| tenant.copy_goes_on(id)).await
    }

    /// The rows of a COPY could not be read.
    pub async fn copy_fail(&mut self, peer: &mut impl Peer) {
        let id = self.id;
        self.tenant(peer, |tenant| tenant.copy_fail(id)).await;
    }

    /// Writes rows of a COPY: the last ones, or some that come before them.
    ///
    /// # Errors
    /// The statement's.
    pub async fn copy_in(
        &mut self,
        peer: &mut impl Peer,
        rows: Vec<Vec<CopyField>>,
        are_last: bool,
    ) -> Served<Result<Outcome>> {
        let (id, aside, rows) = (self.id, rows.len() > COPY_ROWS_HERE, Arc::new(rows));
        self.until_done_from(peer, aside, move |tenant| tenant.copy_in(id, &rows, are_last)).await
    }

    /// Sends the signal that a text asks for, if it asks for nothing else and the database itself is busy, perhaps with what is to end.
    /// Returns the function's name, and whether there was a connection of the number.
    ///
    /// # Errors
    /// 42501.
    pub async fn signal(&self, text: &str) -> Option<(&'static str, Result<bool>)> {
        if !self.slot.is_aside() || self.status != Status::Idle {
            return None;
        }
        let (name, signal, pid) = backends::request(text)?;
        let Identity { user, database, administrator, .. } = &self.identity;
        let asker = Asker { user, database, administrator: *administrator };
        let connections = &*self.thread.process.connections;
        let is_here = connections.list().iter().any(|backend| backend.pid == pid);
        let elsewhere = if asker.administrator && !is_here { connections.elsewhere().await.0 } else { Vec::new() };
        Some((name, asker.tell(connections, &elsewhere, pid, signal)))
    }

    /// Some of the rows of an answer that are still to come, none at the end. A file is read where nobody waits for the thread, and paid for. The client
    /// may cancel what is still to come.
    ///
    /// # Errors
    /// 57014, 58030.
    pub async fn some_rows(&mut self, rows: &mut SpoolRows) -> Result<Vec<Vec<Value>>> {
        if rows.left() == 0 {
            self.interrupts.end();
            return Ok(Vec::new());
        }
        if !rows.is_owed() {
            // Its statement is over, but not what the client waits for.
            self.interrupts.begin();
            self.interrupts.check()?;
        }
        if !rows.is_filed() {
            return rows.some();
        }
        let mut taken = std::mem::take(rows);
        let reading = self.thread.process.background.spawn_blocking(move || {
            let began = Instant::now();
            let some = taken.some();
            (taken, some, began.elapsed())
        });
        let (taken, some, time) = reading.await.map_err(SqlError::internal)?;
        *rows = taken;
        self.spent.time += time;
        self.pay();
        some
    }

    /// Does what a statement asks of the process and not of its database, and returns what the client is told of it. Whatever else came of
    /// a statement stays as it is.
    ///
    /// # Errors
    /// As those of [`Tenants`](crate::Tenants) that make and remove databases.
    pub async fn carry_out(&mut self, peer: &mut impl Peer, outcome: Outcome) -> Result<Outcome> {
        let done = |tag: &str| Outcome::Done { tag: tag.to_owned() };
        match outcome {
            Outcome::CreateDatabase(name) => {
                let _errand = self.slot.errand();
                self.thread.process.create(&name).await?;
                Ok(done("CREATE DATABASE"))
            }
            Outcome::DropDatabase { name, if_exists } => {
                self.drop_database(peer, &name, if_exists).await?;
                Ok(done("DROP DATABASE"))
            }
            Outcome::Done { tag } => {
                if matches!(tag.as_ref(), "CREATE ROLE" | "ALTER ROLE") {
                    self.warn_of_open_administration(peer).await;
                }
                Ok(Outcome::Done { tag })
            }
            other => Ok(other),
        }
    }

    async fn drop_database(&mut self, peer: &mut impl Peer, name: &str, if_exists: bool) -> Result<()> {
        if self.thread.process.tenant(name) == Ok(self.slot.id) {
            return Err(SqlError::new("55006", "cannot drop the currently open database"));
        }
        let _errand = self.slot.errand();
        match tenants::remove(&self.thread.process, name).await {
            Ok(()) => {}
            Err(error) if if_exists && error.state == state::INVALID_CATALOG_NAME => {
                peer.notice(&Notice::plain(format!("database \"{name}\" does not exist, skipping")));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A password here keeps nobody of this machine from the database of administrators, if none of them has one.
    async fn warn_of_open_administration(&self, peer: &mut impl Peer) {
        let process = Arc::clone(&self.thread.process);
        let Ok(administration) = process.locate(ADMINISTRATION).await else { return };
        if administration == self.slot.id {
            return;
        }
        // Nobody is warned in vain if they cannot be asked.
        if let Ok(Acquaintance { guarded: false, .. }) = process.ask(administration, ADMINISTRATION).await {
            let message = "no administrator has a password: every client of this machine may remove this database; \
                           CREATE USER .. PASSWORD in database postgres";
            peer.notice(&Notice::warning("01000", message));
        }
    }

    /// Waits until the log is durable up to what the answers depend on, and this process may speak for its tenants.
    ///
    /// # Errors
    /// If the log has failed: nobody may hear of what was answered.
    pub async fn gate(&mut self) -> Served<()> {
        let journal = &self.thread.process.journal;
        let after = std::mem::take(&mut self.after);
        if after > journal.durable()
            && let Err(error) = journal.wait_durable(after).await
        {
            tracing::error!(%error, "the tenants' log failed");
            return Err(End::Fatal(error.into()));
        }
        // One that is renewed late serves again; one that is lost ends the server, and nobody hears of this.
        while self.thread.lease.as_ref().is_some_and(|lease| !lease.serving()) {
            tokio::time::sleep(LEASE_LOOK).await;
        }
        Ok(())
    }

    /// Does something for the client beside the tenant, and pays for it.
    pub fn paid<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.spent.time += began.elapsed();
        self.pay();
        result
    }

    /// Pays for what was done since the last time, if anything was.
    pub fn pay(&mut self) {
        let Spent { time, log_bytes } = std::mem::take(&mut self.spent);
        if time.is_zero() {
            return;
        }
        let cpu_micros = time.as_micros() as u64;
        self.slot.activity.spent(cpu_micros, log_bytes);
        let spent = Amounts::new(cpu_micros, log_bytes, self.slot.take_requests());
        self.thread.budget.borrow_mut().charge(self.slot.id, WEIGHT, spent, self.thread.began.elapsed());
    }
}
