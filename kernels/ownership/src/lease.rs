//! Leases with a clock margin, both sides of them, without any clock.
//!
//! ```text
//! holder's clock    send renewal                       stop serving
//!                   |--------- ttl - margin ---------------|
//! true time      ---+-----+--------------------------------+--------+---->
//! grantor's clock         |------------------- ttl ----------------|
//!                         receive, renew                            may grant to another
//! ```
//!
//! The holder counts from *before* it sent, the grantor from *after* it received, so messages may take any time. The
//! margin is what the two clocks may drift apart within one ttl. No reading of one side is ever compared with one of the
//! other.

use std::collections::BTreeMap;
use std::time::Duration;

use savanna_epoch::NodeId;

use crate::time::MonoTime;

/// How long a lease lasts and how it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    ttl: Duration,
    margin: Duration,
}

/// Terms under which a holder could never serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a clock margin below the lease's ttl of {ttl:?}, came {margin:?}; use a longer lease or a shorter margin"
)]
pub struct LeaseTermsError {
    /// The ttl that came.
    pub ttl: Duration,
    /// The margin that came.
    pub margin: Duration,
}

impl Default for LeaseTerms {
    /// 3 s with a margin of 500 ms.
    fn default() -> Self {
        Self { ttl: Duration::from_secs(3), margin: Duration::from_millis(500) }
    }
}

impl LeaseTerms {
    /// Terms of a lease.
    ///
    /// # Errors
    /// [`LeaseTermsError`] unless the margin is below the ttl.
    pub fn new(ttl: Duration, margin: Duration) -> Result<Self, LeaseTermsError> {
        if margin < ttl { Ok(Self { ttl, margin }) } else { Err(LeaseTermsError { ttl, margin }) }
    }

    /// How long the grantor keeps a lease after it received a renewal.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// By how much the holder stops earlier.
    #[must_use]
    pub const fn margin(&self) -> Duration {
        self.margin
    }

    /// How often the holder asks for renewal: thrice within the time it may serve, so that two may get lost.
    #[must_use]
    pub fn renew_every(&self) -> Duration {
        (self.ttl - self.margin) / 3
    }

    /// The same margin under the ttl that a grantor really gave.
    ///
    /// # Errors
    /// [`LeaseTermsError`] if that ttl is not above the margin.
    pub fn with_ttl(&self, ttl: Duration) -> Result<Self, LeaseTermsError> {
        Self::new(ttl, self.margin)
    }
}

/// The grantor's side: when each lease runs out, by the grantor's clock. Volatile on purpose: a grantor that restarts
/// gives every lease a whole ttl again ([`LeaseClock::renew`] for each holder), because it may have renewed it just
/// before it stopped.
#[derive(Clone, Debug, Default)]
pub struct LeaseClock {
    expiry: BTreeMap<NodeId, MonoTime>,
}

impl LeaseClock {
    /// Starts or extends a lease: it lasts `ttl` from `now`, the time at which the request *arrived*. Never shortens one.
    pub fn renew(&mut self, node: &NodeId, ttl: Duration, now: MonoTime) {
        let until = now.after(ttl);
        match self.expiry.get_mut(node) {
            Some(expiry) => *expiry = until.max(*expiry),
            None => {
                self.expiry.insert(node.clone(), until);
            }
        }
    }

    /// Ends a lease, because its holder gave it up.
    pub fn end(&mut self, node: &NodeId) {
        self.expiry.remove(node);
    }

    /// How long a lease lasts yet; zero if it has run out or is not known.
    #[must_use]
    pub fn remaining(&self, node: &NodeId, now: MonoTime) -> Duration {
        self.expiry.get(node).map_or(Duration::ZERO, |expiry| expiry.since(now))
    }

    /// The holders whose lease has run out; it may be granted again.
    pub fn expired(&self, now: MonoTime) -> impl Iterator<Item = &NodeId> {
        self.expiry.iter().filter(move |&(_, expiry)| *expiry <= now).map(|(node, _)| node)
    }

    /// When the next lease runs out.
    #[must_use]
    pub fn next_expiry(&self) -> Option<MonoTime> {
        self.expiry.values().min().copied()
    }
}

/// Which request for renewal an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RenewalId(pub u64);

/// Why a holder lost its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Somebody claimed it, so that it was not renewed any more, and it has run out.
    Claimed,
    /// The grantor says that it is over.
    Ended,
    /// The holder gave it up.
    Released,
}

/// What a [`LeaseHolder`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderInput {
    /// Time has passed.
    Tick,
    /// The grantor extended the lease by this ttl from when it heard of it. Another grantor may give another one.
    Renewed(RenewalId, Duration),
    /// The grantor refuses to extend it: somebody claimed it. What was granted still holds.
    Claimed,
    /// The grantor says that the lease is over.
    Ended,
    /// The holder gives the lease up; it has stopped serving.
    Release,
}

/// What a [`LeaseHolder`] wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderAction {
    /// Ask the grantor for renewal.
    Renew(RenewalId),
    /// Serving must pause: no renewal has come in time. It may come yet.
    Suspend,
    /// A late renewal came: serving may go on.
    Resume,
    /// The lease will not be renewed any more; finish what can be finished by then.
    Drain {
        /// When serving must stop.
        until: MonoTime,
    },
    /// It is over, for good.
    Stop(Loss),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Serving,
    Suspended,
    Draining,
    Lost(Loss),
}

/// The holder's side of a lease. [`LeaseHolder::serving`] is the only thing that may be asked before something is told
/// to anybody; it looks at the clock, so that a holder that was paused knows at once, whatever it has missed.
#[derive(Clone, Debug)]
pub struct LeaseHolder {
    terms: LeaseTerms,
    standing: Standing,
    serve_until: MonoTime,
    next_renewal: MonoTime,
    next_id: RenewalId,
    /// When each renewal that may still be answered was sent; at most a few, as older ones are forgotten after a ttl.
    sent: BTreeMap<RenewalId, MonoTime>,
}

impl LeaseHolder {
    /// The holder of a lease that was asked for at `sent_at` (read *before* sending) and has been granted.
    #[must_use]
    pub fn new(terms: LeaseTerms, sent_at: MonoTime) -> Self {
        Self {
            terms,
            standing: Standing::Serving,
            serve_until: sent_at.after(terms.ttl - terms.margin),
            next_renewal: sent_at.after(terms.renew_every()),
            next_id: RenewalId(0),
            sent: BTreeMap::new(),
        }
    }

    /// Whether the holder may serve at this instant.
    #[must_use]
    pub fn serving(&self, now: MonoTime) -> bool {
        !matches!(self.standing, Standing::Lost(_)) && now < self.serve_until
    }

    /// The instant from which the holder may not serve, unless it is renewed before.
    #[must_use]
    pub fn serve_until(&self) -> MonoTime {
        match self.standing {
            Standing::Lost(_) => MonoTime(0),
            _ => self.serve_until,
        }
    }

    /// When the next `Tick` has something to do; `None` once the lease is lost.
    #[must_use]
    pub fn wake_at(&self) -> Option<MonoTime> {
        match self.standing {
            Standing::Serving => Some(self.next_renewal.min(self.serve_until)),
            Standing::Suspended => Some(self.next_renewal),
            Standing::Draining => Some(self.serve_until),
            Standing::Lost(_) => None,
        }
    }

    /// Takes one input at time `now`.
    pub fn step(&mut self, input: HolderInput, now: MonoTime) -> Vec<HolderAction> {
        let mut actions = Vec::new();
        if matches!(self.standing, Standing::Lost(_)) {
            return actions;
        }
        match input {
            HolderInput::Tick => {}
            HolderInput::Renewed(id, ttl) => self.renewed(id, ttl),
            HolderInput::Claimed => {
                if self.standing != Standing::Draining {
                    self.standing = Standing::Draining;
                    actions.push(HolderAction::Drain { until: self.serve_until });
                }
            }
            HolderInput::Ended => self.lose(Loss::Ended, &mut actions),
            HolderInput::Release => self.lose(Loss::Released, &mut actions),
        }
        self.pass_time(now, &mut actions);
        actions
    }

    fn renewed(&mut self, id: RenewalId, ttl: Duration) {
        // Of a lease that is not longer than the margin, there is nothing that may be used.
        let Ok(terms) = self.terms.with_ttl(ttl) else { return };
        // An id that is not pending was answered twice, or so late that the lease it gave is over by now.
        if let Some(sent_at) = self.sent.remove(&id)
            && self.standing != Standing::Draining
        {
            self.terms = terms;
            self.serve_until = self.serve_until.max(sent_at.after(ttl - terms.margin));
        }
    }

    fn lose(&mut self, loss: Loss, actions: &mut Vec<HolderAction>) {
        self.standing = Standing::Lost(loss);
        self.sent.clear();
        actions.push(HolderAction::Stop(loss));
    }

    fn pass_time(&mut self, now: MonoTime, actions: &mut Vec<HolderAction>) {
        let lapsed = now >= self.serve_until;
        match self.standing {
            Standing::Serving if lapsed => {
                self.standing = Standing::Suspended;
                actions.push(HolderAction::Suspend);
            }
            Standing::Suspended if !lapsed => {
                self.standing = Standing::Serving;
                actions.push(HolderAction::Resume);
            }
            Standing::Draining if lapsed => self.lose(Loss::Claimed, actions),
            _ => {}
        }
        if matches!(self.standing, Standing::Serving | Standing::Suspended) && now >= self.next_renewal {
            self.sent.retain(|_, sent_at| sent_at.after(self.terms.ttl) > now);
            let id = self.next_id;
            self.next_id = RenewalId(id.0 + 1);
            self.sent.insert(id, now);
            self.next_renewal = now.after(self.terms.renew_every());
            actions.push(HolderAction::Renew(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TTL: Duration = Duration::from_secs(3);

    fn at(seconds: f64) -> MonoTime {
        MonoTime((seconds * SECOND as f64) as u64)
    }

    /// ttl 3 s, margin 0.6 s: serve 2.4 s, renew every 0.8 s.
    fn holder() -> LeaseHolder {
        LeaseHolder::new(LeaseTerms::new(TTL, Duration::from_millis(600)).unwrap(), at(10.0))
    }

    #[test]
    fn a_holder_serves_from_the_time_it_sent_and_stops_a_margin_early() {
        let holder = holder();
        assert!(holder.serving(at(12.39)));
        assert!(!holder.serving(at(12.4)));
    }

    #[test]
    fn a_renewal_counts_from_its_own_sending_however_late_the_answer_is() {
        let mut holder = holder();
        assert_eq!(holder.step(HolderInput::Tick, at(10.8)), [HolderAction::Renew(RenewalId(0))]);
        assert_eq!(holder.step(HolderInput::Tick, at(11.6)), [HolderAction::Renew(RenewalId(1))]);
        holder.step(HolderInput::Renewed(RenewalId(0), TTL), at(12.0));
        assert_eq!(holder.serve_until(), at(13.2));
        // The same answer again, and one that nobody asked for, change nothing.
        holder.step(HolderInput::Renewed(RenewalId(0), TTL), at(12.1));
        holder.step(HolderInput::Renewed(RenewalId(9), TTL), at(12.1));
        assert_eq!(holder.serve_until(), at(13.2));
    }

    #[test]
    fn a_holder_that_was_paused_does_not_serve_even_before_it_has_stepped() {
        let mut holder = holder();
        assert!(!holder.serving(at(60.0)));
        assert_eq!(
            holder.step(HolderInput::Tick, at(60.0)),
            [HolderAction::Suspend, HolderAction::Renew(RenewalId(0))]
        );
        assert_eq!(holder.step(HolderInput::Ended, at(60.1)), [HolderAction::Stop(Loss::Ended)]);
        assert_eq!(holder.step(HolderInput::Renewed(RenewalId(0), TTL), at(60.2)), []);
        assert!(!holder.serving(at(60.2)));
        assert_eq!(holder.wake_at(), None);
    }

    #[test]
    fn a_late_renewal_resumes_serving_as_the_grantor_still_keeps_the_lease() {
        let mut holder = holder();
        holder.step(HolderInput::Tick, at(12.0));
        assert_eq!(holder.step(HolderInput::Tick, at(12.5)), [HolderAction::Suspend]);
        assert_eq!(holder.step(HolderInput::Renewed(RenewalId(0), TTL), at(12.6)), [HolderAction::Resume]);
        assert!(holder.serving(at(12.6)));
    }

    #[test]
    fn a_claim_ends_renewals_and_serving_ends_with_what_was_granted() {
        let mut holder = holder();
        holder.step(HolderInput::Tick, at(10.8));
        assert_eq!(holder.step(HolderInput::Claimed, at(11.0)), [HolderAction::Drain { until: at(12.4) }]);
        holder.step(HolderInput::Renewed(RenewalId(0), TTL), at(11.1));
        assert_eq!(holder.serve_until(), at(12.4));
        assert_eq!(holder.step(HolderInput::Tick, at(11.7)), []);
        assert_eq!(holder.step(HolderInput::Tick, at(12.4)), [HolderAction::Stop(Loss::Claimed)]);
    }

    #[test]
    fn each_renewal_counts_by_the_ttl_that_it_gave() {
        let mut holder = holder();
        assert_eq!(holder.step(HolderInput::Tick, at(10.8)), [HolderAction::Renew(RenewalId(0))]);
        holder.step(HolderInput::Renewed(RenewalId(0), Duration::from_secs(1)), at(10.9));
        assert_eq!(holder.serve_until(), at(12.4), "what was granted before holds");
        assert_eq!(holder.step(HolderInput::Tick, at(11.6)), [HolderAction::Renew(RenewalId(1))]);
        holder.step(HolderInput::Renewed(RenewalId(1), Duration::from_secs(1)), at(11.6));
        assert_eq!(holder.serve_until(), at(12.4), "11.6 s, and 1 s less the margin: not more");
        assert_eq!(holder.step(HolderInput::Tick, at(12.3)), [HolderAction::Renew(RenewalId(2))]);
        holder.step(HolderInput::Renewed(RenewalId(2), Duration::from_millis(600)), at(12.3));
        assert_eq!(holder.serve_until(), at(12.4), "nothing is left of a lease that is as short as the margin");
    }

    #[test]
    fn the_grantor_counts_from_arrival_and_never_shortens_a_lease() {
        let mut clock = LeaseClock::default();
        let (node, ttl) = (NodeId::new("n1"), Duration::from_secs(3));
        clock.renew(&node, ttl, at(1.0));
        clock.renew(&node, Duration::from_secs(1), at(2.0));
        assert_eq!(clock.expired(at(3.9)).count(), 0);
        assert_eq!(clock.remaining(&node, at(3.0)), Duration::from_secs(1));
        assert_eq!(clock.expired(at(4.0)).collect::<Vec<_>>(), [&node]);
        assert_eq!(clock.next_expiry(), Some(at(4.0)));
    }

    #[test]
    fn a_margin_of_a_whole_ttl_is_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(LeaseTerms::new(second, second), Err(LeaseTermsError { ttl: second, margin: second }));
    }
}
