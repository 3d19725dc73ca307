//! Queries that take long and run beside their tenant: on another thread, while the tenant stays on its own and serves others. The session
//! gives them the rows that they ask for, as a client among the tenant's others.

use std::{
    io,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use savanna_tenants::{activity::Activity, tenant::Read};
use savanna_tenants_sql::interrupt::Reason;
use savanna_tenants_store::pages::Source;
use savanna_tenants_values::error::Result;
use tokio::sync::mpsc;

use super::{End, LOOK, Peer, Served, Session};
use crate::slot::Where;

/// How a statement goes on that takes long.
pub(super) enum Way {
    /// It has run beside its tenant; what came of it is for that to [hear](savanna_tenants::tenant::Tenant::has_read).
    Read(Read),
    /// It takes the tenant along, which is faster, until somebody else wants that.
    UntilWanted,
    /// It takes the tenant along.
    Along,
}

impl Session {
    /// Runs the session's statement that gives way beside the tenant, if it is a query that can and others want the tenant, or may.
    ///
    /// # Errors
    /// If it was ended while it waited for its tenant; that has been told to the tenant.
    pub(super) async fn read_beside(
        &mut self,
        peer: &mut impl Peer,
        (began, is_wanted): (Instant, bool),
    ) -> Served<Result<Way>> {
        let id = self.id;
        if let Err(error) = self.turn(peer, began).await? {
            return Ok(Err(error));
        }
        if !self.slot.with(|tenant| tenant.may_read_beside(id)).await {
            return Ok(Ok(Way::Along));
        }
        if !is_wanted && !self.slot.is_shared() {
            return Ok(Ok(Way::UntilWanted));
        }
        let Some(place) = self.place(peer, Where::Beside).await? else { return Ok(Ok(Way::Along)) };
        // Somebody may have taken the tenant away meanwhile.
        if let Err(error) = self.turn(peer, began).await? {
            return Ok(Err(error));
        }
        let Some(reader) = self.slot.with(|tenant| tenant.reader(id)).await else { return Ok(Ok(Way::Along)) };

        self.doing.note(|noted| noted.wait = None);
        let (ask, asked) = mpsc::unbounded_channel();
        let interrupts = Arc::clone(&self.interrupts);
        let ask = move |asked| _ = ask.send(asked);
        let source = Source::new(ask, move || interrupts.check());
        let (slot, thread) = (Rc::clone(&self.slot), Rc::clone(&self.thread));
        let mut note_time = time_elsewhere(Arc::clone(&slot.activity), source.waited());
        let mut working = pin!(slot.beside(move || reader.run(source)));
        let mut serving = pin!(slot.serve_pages(id, asked, &thread));
        let (mut serves, mut gone): (bool, Option<io::Error>) = (true, None);
        let read = loop {
            tokio::select! {
                biased;
                read = &mut working => break read,
                error = peer.gone(), if gone.is_none() => gone = Some(error),
                () = &mut serving, if serves => serves = false,
                () = tokio::time::sleep(LOOK) => {}
            }
            note_time();
            if gone.is_some() {
                self.interrupts.interrupt(Reason::Cancelled);
            } else if place.is_wanted() {
                self.interrupts.interrupt(Reason::PlaceWanted);
            } else if self.is_called_away() && peer.is_light() && self.interrupts.call_away() {
                self.called_for = self.slot.along.get();
            }
        };
        note_time();
        gone.map_or(Ok(Ok(Way::Read(read))), |error| Err(End::Client(error)))
    }
}

/// Notes, whenever it is called, for how long a query has run elsewhere since it began, without the time that it has waited for rows. That is
/// nothing that the tenant's thread would have to share out, but is what the tenant has used.
fn time_elsewhere(activity: Arc<Activity>, waited: Arc<AtomicU64>) -> impl FnMut() {
    let (began, mut noted) = (Instant::now(), 0);
    move || {
        let busy = (began.elapsed().as_micros() as u64).saturating_sub(waited.load(Ordering::Relaxed));
        activity.spent(busy.saturating_sub(noted), 0);
        noted = noted.max(busy);
    }
}
