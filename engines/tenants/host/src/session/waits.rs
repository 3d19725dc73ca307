//! How a session waits: for a lock, for the storage, for a time, and for what becomes of its tenant. When that moves, what waits or runs may be taken back: it has done nothing, and is
//! asked for again at the next node.

use std::time::Duration;

use savanna_tenants::tenant::Tenant;
use savanna_tenants_sql::interrupt::Reason;

use super::{End, Peer, Served, Session};

/// When its tenant has begun to leave so long ago, a statement that runs gives way.
const ENDS_SOON: Duration = Duration::from_millis(200);

/// What may become of a statement that waits for a lock or the storage, or runs where it is in nobody's way, when its session is to leave with the tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It goes on to wait.
    #[default]
    Stays,
    /// It is taken back; its client's message is there to be obeyed again.
    IsTakenBack,
    /// The same, and with it the transaction, which the client did not begin and of which it has heard nothing.
    IsTakenBackWhole,
}

impl Session {
    /// Waits until the session is woken, which it also is when it has slept, or has waited for a lock for too long.
    pub(super) async fn wait(&mut self, peer: &mut impl Peer) -> Served<()> {
        let session = self.id;
        self.slot.activity.waited();
        if let Some(time) = self.slot.with(|tenant| tenant.sleeps(session)).await {
            let Ok(woken) = tokio::time::timeout(time, self.until_woken(peer)).await else {
                self.tenant(peer, |tenant| tenant.has_slept(session)).await;
                return Ok(());
            };
            return woken;
        }
        if self.timeouts.lock > 0 && self.slot.with(|tenant| tenant.waits_for_lock(session)).await {
            let time = Duration::from_millis(self.timeouts.lock.into());
            match tokio::time::timeout(time, self.until_woken(peer)).await {
                Ok(woken) => return woken,
                Err(_) => self.tenant(peer, |tenant| tenant.interrupt(session, Reason::LockTimeout)).await,
            }
        }
        self.until_woken(peer).await
    }

    /// Waits until the session is woken. Meanwhile the client may go away, or send so much that its statement is not taken back: all of that would have to go along.
    async fn until_woken(&self, peer: &mut impl Peer) -> Served<()> {
        if self.waits_as != Waiting::Stays {
            tokio::select! {
                biased;
                () = self.woken.notified() => return Ok(()),
                gone = peer.gone_while_light() => if let Some(error) = gone {
                    return Err(End::Client(error));
                },
                () = self.taken_back() => return Err(End::TakenBack),
            }
        }
        tokio::select! {
            biased;
            () = self.woken.notified() => Ok(()),
            error = peer.gone() => Err(End::Client(error)),
        }
    }

    /// Waits until the statement that waits was taken back, as the session is to leave.
    async fn taken_back(&self) {
        loop {
            self.termination.called().await;
            if self.is_taken_back().await {
                return;
            }
            // The move may be given up, and come again.
            self.termination.asked_again().await;
        }
    }

    /// Takes the statement that waits back if the session is to leave and nothing is against it. Whether it was.
    pub(super) async fn is_taken_back(&self) -> bool {
        let (id, whole) = (self.id, self.waits_as == Waiting::IsTakenBackWhole);
        let goes = self.waits_as != Waiting::Stays && self.slot.along.get().is_some() && !self.termination.is_asked();
        goes && self.slot.lets_go(id).await && self.slot.with(|tenant: &mut Tenant| tenant.take_back(id, whole)).await
    }

    /// Whether a statement that runs where it is in nobody's way is to give way, as its session is to leave, and was not called away for that.
    pub(super) fn is_called_away(&self) -> bool {
        let along = self.slot.along.get();
        let is_to_leave = self.waits_as != Waiting::Stays && self.slot.is_leaving.get() && along.is_some();
        is_to_leave && along != self.called_for && self.slot.leaves_since.get().elapsed() > ENDS_SOON
    }
}
