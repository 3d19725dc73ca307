//! How a session gets at its tenant: when it is its turn, here or where it is in nobody's way, and what that costs.

use std::{
    io,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use savanna_journal::Lsn;
use savanna_tenants::{
    Status,
    tenant::{Notice, Tenant},
};
use savanna_tenants_sql::{
    doing::{Phase, Wait},
    interrupt::Reason,
    settings::{Encoding, Timeouts},
};
use savanna_tenants_store::database::{SessionId, Step};
use savanna_tenants_values::{error::Result, value::style::Style};

use super::{End, LOOK, Peer, Served, Session, beside::Way, is_long};
use crate::{
    alarm::Alarm,
    slot::{PlaceAside, Where},
};

/// What was used and is not paid for.
#[derive(Debug, Default)]
pub(super) struct Spent {
    pub(super) time: Duration,
    pub(super) log_bytes: u64,
}

/// What came of something that was done with the tenant, beside its result.
struct Trace {
    spent: Spent,
    timeouts: Timeouts,
    style: Style,
    encoding: Encoding,
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
        let (timeouts, style, encoding) = (tenant.timeouts(session), tenant.style(session), tenant.encoding(session));
        let (after, notices) = (tenant.reply_after(session), tenant.notices(session));
        (result, Trace { spent, timeouts, style, encoding, after, notices })
    }
}

/// How it gets at its tenant.
impl Session {
    /// Does something with the tenant.
    pub(super) async fn tenant<T>(&mut self, peer: &mut impl Peer, work: impl FnOnce(&mut Tenant) -> T) -> T {
        self.slot.used_by(self.id);
        let traced = self.slot.with(traced(self.id, work)).await;
        self.note(peer, traced)
    }

    /// Does something with the tenant when it is its turn.
    pub(super) async fn in_turn<T>(
        &mut self,
        peer: &mut impl Peer,
        work: impl FnOnce(&mut Tenant) -> Result<T>,
    ) -> Served<Result<T>> {
        match self.turn(peer, Instant::now()).await? {
            Ok(()) => Ok(self.tenant(peer, work).await),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Waits until the tenant is here, if a statement of somebody else keeps it busy. That is a part of this client's statement: it has its
    /// time, can be cancelled, and ends with the client.
    pub(super) async fn turn(&mut self, peer: &mut impl Peer, began: Instant) -> Served<Result<()>> {
        if !self.slot.is_aside() {
            return Ok(Ok(()));
        }
        let is_first = !self.interrupts.is_running();
        self.interrupts.begin();
        self.doing.note(|noted| {
            if noted.phase != Phase::Active {
                // It is shown when it has begun.
                (noted.phase, noted.text) = (Phase::Active, None);
            }
            noted.wait = Some(Wait::Place);
        });
        let _alarm = self.alarm(began);
        let slot = Rc::clone(&self.slot);
        let mut returned = pin!(slot.wanted_back());
        loop {
            tokio::select! {
                biased;
                () = &mut returned => break,
                error = peer.gone() => return Err(End::Client(error)),
                () = tokio::time::sleep(LOOK) => {
                    if self.termination.is_asked() {
                        return Err(End::Fatal(self.termination.error()));
                    }
                    if let Err(error) = self.interrupts.check() {
                        self.interrupts.end();
                        let phase = if self.status == Status::Idle { Phase::Idle } else { Phase::InFailedTransaction };
                        self.doing.note(|noted| (noted.phase, noted.wait) = (phase, None));
                        self.failed_aside = true;
                        self.slot.fail(self.id);
                        return Ok(Err(error));
                    }
                }
            }
        }
        if is_first {
            // What was interrupted meanwhile is when it begins.
            _ = self.interrupts.end_unless_interrupted();
        }
        Ok(Ok(()))
    }

    /// Waits for a place for something that takes long; `None` if that was interrupted meanwhile. A statement that has given way for it is taken back if its session is to
    /// leave: those before it may take long.
    pub(super) async fn place(&self, peer: &mut impl Peer, runs: Where) -> Served<Option<PlaceAside>> {
        let slot = Rc::clone(&self.slot);
        let mut place = pin!(slot.place(runs));
        loop {
            tokio::select! {
                biased;
                place = &mut place => return Ok(Some(place)),
                error = peer.gone() => return Err(End::Client(error)),
                () = tokio::time::sleep(LOOK) => {
                    if self.interrupts.is_interrupted() {
                        return Ok(None);
                    }
                    if peer.is_light() && !self.slot.is_aside() && self.is_taken_back().await {
                        return Err(End::TakenBack);
                    }
                }
            }
        }
    }

    /// Does something that takes long with the tenant, where it is in no other tenant's way. If the client goes away meanwhile, it is
    /// interrupted: nobody wants to know what comes of it. It gives way once more if it has the tenant only until somebody wants that.
    pub(super) async fn tenant_aside<T: Send + 'static>(
        &mut self,
        peer: &mut impl Peer,
        (place, mut until_wanted): (PlaceAside, bool),
        work: impl FnOnce(&mut Tenant) -> T + Send + 'static,
    ) -> Served<T> {
        let slot = Rc::clone(&self.slot);
        let mut working = pin!(slot.with_aside(&place, traced(self.id, work)));
        let mut gone: Option<io::Error> = None;
        let traced = loop {
            tokio::select! {
                biased;
                traced = &mut working => break traced,
                error = peer.gone(), if gone.is_none() => gone = Some(error),
                () = slot.wanted(), if until_wanted => until_wanted = !self.interrupts.call_away(),
                () = tokio::time::sleep(LOOK) => {
                    // It may not have begun yet.
                    if gone.is_some() {
                        self.interrupts.interrupt(Reason::Cancelled);
                    } else if place.is_wanted() {
                        self.interrupts.interrupt(Reason::PlaceWanted);
                    } else if self.is_called_away() && peer.is_light() && self.interrupts.call_away() {
                        // It is looked at when it has given way whether it can leave. If not, it begins again here.
                        self.called_for = self.slot.along.get();
                    }
                }
            }
        };
        let result = self.note(peer, traced);
        gone.map_or(Ok(result), |error| Err(End::Client(error)))
    }

    fn note<T>(&mut self, peer: &mut impl Peer, (result, trace): (T, Trace)) -> T {
        let Trace { spent, timeouts, style, encoding, after, notices } = trace;
        self.spent.time += spent.time;
        self.spent.log_bytes += spent.log_bytes;
        self.timeouts = timeouts;
        self.style = style;
        self.encoding = encoding;
        peer.style(style);
        peer.encoding(encoding);
        self.after = self.after.max(after);
        for notice in notices {
            peer.notice(&notice);
        }
        result
    }

    /// Does something with the tenant and a text of the client's, which may take long to read.
    pub(super) async fn tenant_reads<T: Send + 'static>(
        &mut self,
        peer: &mut impl Peer,
        text: String,
        work: impl FnOnce(&mut Tenant, &str) -> T + Send + 'static,
    ) -> Served<T> {
        if is_long(&text)
            && let Some(place) = self.place(peer, Where::Aside).await?
        {
            let _alarm = self.alarm(Instant::now());
            return self.tenant_aside(peer, (place, false), move |tenant| work(tenant, &text)).await;
        }
        Ok(self.tenant(peer, |tenant| work(tenant, &text)).await)
    }

    /// Runs a statement of the tenant's until it need not wait any more, or its time is over.
    pub(super) async fn until_done<T: Send + 'static>(
        &mut self,
        peer: &mut impl Peer,
        work: impl Fn(&mut Tenant) -> Result<Step<T>> + Clone + Send + 'static,
    ) -> Served<Result<T>> {
        self.until_done_from(peer, false, work).await
    }

    /// The same, from the beginning `aside` if it is known to take long.
    pub(super) async fn until_done_from<T: Send + 'static>(
        &mut self,
        peer: &mut impl Peer,
        mut aside: bool,
        work: impl Fn(&mut Tenant) -> Result<Step<T>> + Clone + Send + 'static,
    ) -> Served<Result<T>> {
        let (session, began) = (self.id, Instant::now());
        let (mut alarm, mut is_wanted) = (None, false);
        loop {
            // What is done here and now needs none.
            if aside && alarm.is_none() {
                alarm = self.alarm(began);
            }
            let way = if aside { self.read_beside(peer, (began, is_wanted)).await? } else { Ok(Way::Along) };
            let (read, until_wanted) = match way {
                Ok(Way::Read(read)) => (Some(read), false),
                Ok(way) => (None, matches!(way, Way::UntilWanted)),
                Err(error) => return Ok(Err(error)),
            };
            let place = if aside && read.is_none() { self.place(peer, Where::Aside).await? } else { None };
            is_wanted |= place.is_some();
            let step = match place {
                None => match self.turn(peer, began).await? {
                    Ok(()) => {
                        let come = |tenant: &mut Tenant| read.is_none_or(|read| tenant.has_read(session, read));
                        self.tenant(peer, |tenant| if come(tenant) { work(tenant) } else { Ok(Step::Wait) }).await
                    }
                    Err(error) => return Ok(Err(error)),
                },
                Some(place) => {
                    let work = work.clone();
                    let run = move |tenant: &mut Tenant| {
                        tenant.runs_aside(session, until_wanted);
                        work(tenant)
                    };
                    self.tenant_aside(peer, (place, until_wanted), run).await?
                }
            };
            if self.termination.is_asked() {
                return Err(End::Fatal(self.termination.error()));
            }
            if alarm.is_none() && matches!(step, Ok(Step::Wait)) {
                alarm = self.alarm(began);
            }
            match step {
                Ok(Step::Done(value)) => return Ok(Ok(value)),
                Ok(Step::Wait) if self.tenant(peer, |tenant| tenant.gives_way(session)).await => {
                    if peer.is_light() && self.is_taken_back().await {
                        return Err(End::TakenBack);
                    }
                    aside = true;
                }
                Ok(Step::Wait) if self.tenant(peer, |tenant| tenant.asks_elsewhere(session)).await => {
                    self.ask_elsewhere(peer).await?;
                }
                Ok(Step::Wait) => self.wait(peer).await?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Asks the other nodes for their connections; those that do not say in time are left out, and the client is told.
    async fn ask_elsewhere(&mut self, peer: &mut impl Peer) -> Served<()> {
        let connections = Arc::clone(&self.thread.process.connections);
        let (elsewhere, silent) = tokio::select! {
            biased;
            answered = connections.elsewhere() => answered,
            error = peer.gone() => return Err(End::Client(error)),
        };
        for node in silent {
            let message = format!("node {node} has not said which connections it has; they are left out");
            peer.notice(&Notice::warning("01000", message));
        }
        let session = self.id;
        self.tenant(peer, |tenant| tenant.hear_elsewhere(session, elsewhere)).await;
        Ok(())
    }

    /// Waits until the tenant may begin a statement.
    pub(super) async fn wait_for_budget(&self) {
        let began = self.thread.began;
        loop {
            let ask_again = {
                let mut budget = self.thread.budget.borrow_mut();
                if budget.admits(self.slot.id, began.elapsed()) {
                    return;
                }
                budget.ask_again()
            };
            tokio::time::sleep_until((began + ask_again).into()).await;
        }
    }

    /// What ends the statement that began then after its time.
    fn alarm(&self, began: Instant) -> Option<Alarm> {
        let time = Duration::from_millis(self.timeouts.statement.into());
        let left = time.saturating_sub(began.elapsed());
        (!time.is_zero()).then(|| Alarm::set(&self.thread.process, self.key.get(), &self.interrupts, left))
    }
}
