//! How a connection gets at its tenant: statements wait for their turn, run, wait for others, and are paid for.

use std::{
    io,
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use pgwire::messages::PgWireFrontendMessage;
use savanna_journal::Lsn;
use savanna_tenants::{
    SessionId,
    budget::Amounts,
    database::Step,
    error::Result,
    interrupt::Reason,
    settings::Timeouts,
    tenant::{Notice, Tenant},
    value::zone::Zone,
};

use super::{Connection, End, MESSAGE_BYTES_MAX, Served};
use crate::{alarm::Alarm, connections::Ending, room::PlaceAside};

/// What reading and answering a message costs beside what it asks for.
const MESSAGE_TIME: Duration = Duration::from_micros(3);
/// Longer texts are read aside: a megabyte of values takes seconds to parse and to plan.
const TEXT_BYTES_HERE: usize = 64 << 10;
/// How often somebody looks whether a statement is to end that cannot be woken.
const LOOK: Duration = Duration::from_millis(20);
/// All tenants are entitled to the same.
const WEIGHT: u32 = 1;

#[derive(Debug, Default)]
pub(super) struct Spent {
    time: Duration,
    log_bytes: u64,
}

/// What came of something that was done with the tenant, beside its result.
struct Trace {
    spent: Spent,
    timeouts: Timeouts,
    zone: Zone,
    /// The answer may leave when the log is durable up to here.
    after: Lsn,
    notices: Vec<Notice>,
}

/// Work on the tenant for a session, and its trace.
fn traced<T>(session: SessionId, work: impl FnOnce(&mut Tenant) -> T) -> impl FnOnce(&mut Tenant) -> (T, Trace) {
    move |tenant| {
        let (began, before) = (Instant::now(), tenant.database().logged_bytes());
        let result = work(tenant);
        let spent = Spent { time: began.elapsed(), log_bytes: tenant.database().logged_bytes() - before };
        let (timeouts, zone) = (tenant.timeouts(session), tenant.zone(session));
        let (after, notices) = (tenant.reply_after(session), tenant.notices(session));
        (result, Trace { spent, timeouts, zone, after, notices })
    }
}

/// Whether a text takes long enough to read to be in others' way.
pub(super) const fn is_long(text: &str) -> bool {
    text.len() > TEXT_BYTES_HERE
}

impl Connection {
    /// Does something with the tenant.
    pub(super) async fn tenant<T>(&mut self, work: impl FnOnce(&mut Tenant) -> T) -> T {
        let traced = self.room.with(traced(self.session, work)).await;
        self.note(traced)
    }

    /// Waits until the tenant is here, if a statement of somebody else keeps it busy. That is a part of this client's statement: it has its
    /// time, can be cancelled, and ends with the client.
    pub(super) async fn turn(&mut self, began: Instant) -> Served<Result<()>> {
        if !self.room.is_aside() {
            return Ok(Ok(()));
        }
        let is_first = !self.interrupts.is_running();
        self.interrupts.begin();
        let _alarm = self.alarm(began);
        let room = Rc::clone(&self.room);
        let mut here = pin!(room.here());
        loop {
            tokio::select! {
                biased;
                () = &mut here => break,
                read = self.socket.read(&mut self.input), if self.input.len() <= MESSAGE_BYTES_MAX => {
                    if read? == 0 {
                        return Err(End::Socket(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                () = tokio::time::sleep(LOOK) => {
                    if self.ending.is_asked() {
                        return Err(End::Fatal(Ending::error()));
                    }
                    if let Err(error) = self.interrupts.check() {
                        self.interrupts.end();
                        self.failed_aside = true;
                        self.room.fail(self.session);
                        return Ok(Err(error));
                    }
                }
            }
        }
        if is_first && !self.interrupts.is_interrupted() {
            self.interrupts.end();
        }
        Ok(Ok(()))
    }

    /// Waits for a place for something that takes long; `None` if that was interrupted meanwhile.
    async fn place_aside(&mut self) -> Served<Option<PlaceAside>> {
        let room = Rc::clone(&self.room);
        let mut place = pin!(room.place_aside());
        loop {
            tokio::select! {
                biased;
                place = &mut place => return Ok(Some(place)),
                read = self.socket.read(&mut self.input), if self.input.len() <= MESSAGE_BYTES_MAX => {
                    if read? == 0 {
                        return Err(End::Socket(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                () = tokio::time::sleep(LOOK) => {
                    if self.interrupts.is_interrupted() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Does something that takes long with the tenant, where it is in no other tenant's way. If the client goes away meanwhile, it is
    /// interrupted: nobody wants to know what comes of it.
    async fn tenant_aside<T: Send + 'static>(
        &mut self,
        place: PlaceAside,
        work: impl FnOnce(&mut Tenant) -> T + Send + 'static,
    ) -> Served<T> {
        let room = Rc::clone(&self.room);
        let mut working = pin!(room.with_aside(&place, traced(self.session, work)));
        let mut gone: Option<io::Error> = None;
        let traced = loop {
            let listens = gone.is_none() && self.input.len() <= MESSAGE_BYTES_MAX;
            tokio::select! {
                biased;
                traced = &mut working => break traced,
                read = self.socket.read(&mut self.input), if listens => match read {
                    Ok(0) => gone = Some(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) => gone = Some(error),
                },
                () = tokio::time::sleep(LOOK) => {
                    // It may not have begun yet.
                    if gone.is_some() {
                        self.interrupts.interrupt(Reason::Cancelled);
                    } else if place.is_wanted() {
                        self.interrupts.interrupt(Reason::PlaceWanted);
                    }
                }
            }
        };
        let result = self.note(traced);
        gone.map_or(Ok(result), |error| Err(End::Socket(error)))
    }

    fn note<T>(&mut self, (result, trace): (T, Trace)) -> T {
        let Trace { spent, timeouts, zone, after, notices } = trace;
        self.spent.time += spent.time;
        self.spent.log_bytes += spent.log_bytes;
        self.timeouts = timeouts;
        self.output.zone(zone);
        self.after = self.after.max(after);
        for notice in notices {
            self.output.notice(&notice);
        }
        result
    }

    /// Does something with the tenant and a text of the client's, which may take long to read.
    pub(super) async fn tenant_reads<T: Send + 'static>(
        &mut self,
        text: String,
        work: impl FnOnce(&mut Tenant, &str) -> T + Send + 'static,
    ) -> Served<T> {
        if is_long(&text)
            && let Some(place) = self.place_aside().await?
        {
            let _alarm = self.alarm(Instant::now());
            return self.tenant_aside(place, move |tenant| work(tenant, &text)).await;
        }
        Ok(self.tenant(|tenant| work(tenant, &text)).await)
    }

    /// Runs a statement of the tenant's until it need not wait any more, or its time is over.
    pub(super) async fn until_done<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Tenant) -> Result<Step<T>> + Clone + Send + 'static,
    ) -> Served<Result<T>> {
        self.until_done_from(false, work).await
    }

    /// The same, from the beginning `aside` if it is known to take long.
    pub(super) async fn until_done_from<T: Send + 'static>(
        &mut self,
        mut aside: bool,
        work: impl Fn(&mut Tenant) -> Result<Step<T>> + Clone + Send + 'static,
    ) -> Served<Result<T>> {
        let (session, began) = (self.session, Instant::now());
        let mut alarm = None;
        loop {
            // What is done here and now needs none.
            if aside && alarm.is_none() {
                alarm = self.alarm(began);
            }
            let place = if aside { self.place_aside().await? } else { None };
            let step = match place {
                None => match self.turn(began).await? {
                    Ok(()) => self.tenant(&work).await,
                    Err(error) => return Ok(Err(error)),
                },
                Some(place) => {
                    let work = work.clone();
                    let run = move |tenant: &mut Tenant| {
                        tenant.runs_aside(session);
                        work(tenant)
                    };
                    self.tenant_aside(place, run).await?
                }
            };
            if self.ending.is_asked() {
                return Err(End::Fatal(Ending::error()));
            }
            if alarm.is_none() && matches!(step, Ok(Step::Wait)) {
                alarm = self.alarm(began);
            }
            match step {
                Ok(Step::Done(value)) => return Ok(Ok(value)),
                Ok(Step::Wait) if self.tenant(|tenant| tenant.gives_way(session)).await => aside = true,
                Ok(Step::Wait) => self.wait().await?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Waits until the tenant may begin a statement.
    pub(super) async fn wait_for_budget(&self) {
        let began = self.here.began;
        loop {
            let ask_again = {
                let mut budget = self.here.budget.borrow_mut();
                if budget.admits(self.room.id, began.elapsed()) {
                    return;
                }
                budget.ask_again()
            };
            tokio::time::sleep_until((began + ask_again).into()).await;
        }
    }

    /// Notes what a message itself costs. A simple query is answered with what Bind and Execute are.
    pub(super) fn owe_for(&mut self, message: &PgWireFrontendMessage) {
        let messages = if matches!(message, PgWireFrontendMessage::Query(_)) { 2 } else { 1 };
        self.spent.time += MESSAGE_TIME * messages;
    }

    /// Does something for the client beside the tenant, and pays for it.
    pub(super) fn paid<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.spent.time += began.elapsed();
        self.pay();
        result
    }

    /// Pays for what was done since the last time, if anything was.
    pub(super) fn pay(&mut self) {
        let Spent { time, log_bytes } = std::mem::take(&mut self.spent);
        if time.is_zero() {
            return;
        }
        let spent = Amounts::new(time.as_micros() as u64, log_bytes, self.room.take_requests());
        self.here.budget.borrow_mut().charge(self.room.id, WEIGHT, spent, self.here.began.elapsed());
    }

    /// What ends the statement that began then after its time.
    fn alarm(&self, began: Instant) -> Option<Alarm> {
        let time = Duration::from_millis(self.timeouts.statement.into());
        let left = time.saturating_sub(began.elapsed());
        (!time.is_zero()).then(|| Alarm::set(&self.here.process, self.key, &self.interrupts, left))
    }

    /// Waits until the session is woken, which it also is when it has waited for a lock for too long.
    pub(super) async fn wait(&mut self) -> Served<()> {
        let session = self.session;
        if self.timeouts.lock > 0 && self.room.with(|tenant| tenant.waits_for_lock(session)).await {
            let time = Duration::from_millis(self.timeouts.lock.into());
            match tokio::time::timeout(time, self.until_woken()).await {
                Ok(woken) => return woken,
                Err(_) => self.tenant(|tenant| tenant.interrupt(session, Reason::LockTimeout)).await,
            }
        }
        self.until_woken().await
    }

    /// Waits until the session is woken. Meanwhile the client may go away.
    pub(super) async fn until_woken(&mut self) -> Served<()> {
        let woken = Rc::clone(&self.woken);
        loop {
            if self.input.len() > MESSAGE_BYTES_MAX {
                woken.notified().await;
                return Ok(());
            }
            tokio::select! {
                biased;
                () = woken.notified() => return Ok(()),
                read = self.socket.read(&mut self.input) => {
                    if read? == 0 {
                        return Err(End::Socket(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
            }
        }
    }
}
