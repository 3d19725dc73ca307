//! When a node takes the coordinator of a cluster whose nodes share a directory, and when it leaves it to others.
//!
//! Who holds the directory's lease runs the coordinator. Whoever finds that it does not answer, and that the lease is neither free nor of a process
//! that is known dead, claims it when the holder seems to stand still ([`Doubt`]); and a holder whose coordinator answers nobody goes ([`Health`]).
//! Nothing of this is needed for safety, which is the lease's.

use std::time::{Duration, Instant, SystemTime};

use savanna_ownership::{CoordinatorError, Incarnation};

/// Between two looks at who runs the coordinator.
pub const PERIOD: Duration = Duration::from_millis(500);
/// The same, when it did not answer.
pub const PERIOD_IN_DOUBT: Duration = Duration::from_millis(100);
/// How long it has to answer.
pub const PING_TIME: Duration = Duration::from_millis(500);
/// After a failure of the node's own.
pub const PAUSE: Duration = Duration::from_secs(1);
/// So often it may miss to answer.
const MISSES_MAX: u32 = 3;
/// A coordinator that has not shown for so long that it works may stand still.
const PULSE_TIME: Duration = PERIOD.saturating_mul(4);

/// What a candidate has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The coordinator answers.
    Answer,
    /// Nobody answers, and the directory is held by a process that may live.
    Silence(Silence),
}

/// What is known of a coordinator that does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// Whether it has said where it is.
    pub said: bool,
    /// Another process that may live and waits for it.
    pub claimant: Option<Incarnation>,
    /// Changes for as long as it works.
    pub pulse: Option<SystemTime>,
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look again.
    Look,
    /// Claim the directory, and wait until its lease has run out.
    Claim,
}

/// Decides when the directory is claimed of a process that may live.
///
/// Whoever claims later makes an earlier claimant wait anew. So it has twice the time that it needs, from when its claim was seen first.
#[derive(Debug)]
pub struct Doubt {
    ttl: Duration,
    misses: u32,
    /// The other claimant, and when it was seen first.
    claimant: Option<(Incarnation, Instant)>,
    /// The pulse as it was seen last, and since when.
    pulse: Option<(SystemTime, Instant)>,
}

impl Doubt {
    /// Of a candidate that has found nothing yet; leases of the directory last so long.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl, misses: 0, claimant: None, pulse: None }
    }

    /// Whether it may work.
    fn may_work(&mut self, pulse: Option<SystemTime>, now: Instant) -> bool {
        let Some(pulse) = pulse else { return false };
        let known = self.pulse.filter(|(before, _)| *before == pulse);
        let (_, since) = *self.pulse.insert(known.unwrap_or((pulse, now)));
        now.saturating_duration_since(since) < PULSE_TIME
    }

    /// Takes in what it has found.
    pub fn step(&mut self, found: Found, now: Instant) -> Next {
        let Found::Silence(Silence { said: true, claimant, pulse }) = found else {
            *self = Self::new(self.ttl);
            return Next::Look;
        };
        self.misses += 1;
        let may_work = self.may_work(pulse, now);
        if self.claimant.map(|(known, _)| known) != claimant {
            self.claimant = claimant.map(|other| (other, now));
        }
        let had_its_time = self.claimant.is_none_or(|(_, since)| now.saturating_duration_since(since) >= 2 * self.ttl);
        if self.misses < MISSES_MAX || !had_its_time || may_work {
            return Next::Look;
        }
        *self = Self::new(self.ttl);
        Next::Claim
    }
}

/// Decides when a node leaves its coordinator to others: it has stopped for good, or could answer nobody for as long as a lease lasts.
#[derive(Debug)]
pub struct Health {
    ttl: Duration,
    /// Since when it answers nobody.
    ill_since: Option<Instant>,
}

impl Health {
    /// Of a coordinator that begins; leases of the directory last so long.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl, ill_since: None }
    }

    /// Takes in what came of asking it.
    pub fn is_over(&mut self, answer: &Result<(), CoordinatorError>, now: Instant) -> bool {
        match answer {
            Ok(()) => {
                self.ill_since = None;
                false
            }
            Err(CoordinatorError::Unavailable { .. }) => {
                now.saturating_duration_since(*self.ill_since.get_or_insert(now)) >= self.ttl
            }
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    #[test]
    fn a_holder_that_answers_now_and_then_is_never_claimed_of() {
        let (mut doubt, now) = (Doubt::new(TTL), Instant::now());
        let silence = Found::Silence(Silence { said: true, ..Silence::default() });
        for found in [silence, silence, Found::Answer, silence, silence, Found::Answer] {
            assert_eq!(doubt.step(found, now), Next::Look);
        }
        assert_eq!([silence; 3].map(|found| doubt.step(found, now)), [Next::Look, Next::Look, Next::Claim]);
        assert_eq!(doubt.step(silence, now), Next::Look, "one claim at a time");
    }

    #[test]
    fn a_holder_that_has_not_said_where_it_is_is_waited_for() {
        let mut doubt = Doubt::new(TTL);
        for _ in 0..100 {
            assert_eq!(doubt.step(Found::Silence(Silence::default()), Instant::now()), Next::Look);
        }
    }

    #[test]
    fn who_has_claimed_it_has_time_for_the_lease_to_run_out_however_long_that_is() {
        for ttl in [TTL, 20 * TTL] {
            let (mut doubt, began) = (Doubt::new(ttl), Instant::now());
            let claimed =
                |by| Found::Silence(Silence { said: true, claimant: Some(Incarnation(by)), ..Silence::default() });
            for look in 0..100_u32 {
                assert_eq!(doubt.step(claimed(1), began + look * ttl / 50), Next::Look);
            }
            // Another one claims: it waits from its own claim on.
            assert_eq!(doubt.step(claimed(2), began + 2 * ttl), Next::Look);
            assert_eq!(doubt.step(claimed(2), began + 4 * ttl - Duration::from_nanos(1)), Next::Look);
            assert_eq!(doubt.step(claimed(2), began + 4 * ttl), Next::Claim);
        }
    }

    #[test]
    fn one_that_works_is_never_claimed_of() {
        let (mut doubt, began) = (Doubt::new(TTL), Instant::now());
        let silence = |pulse| {
            let pulse = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(pulse));
            Found::Silence(Silence { said: true, pulse, ..Silence::default() })
        };
        for look in 0..100_u32 {
            assert_eq!(doubt.step(silence(look.into()), began + look * PERIOD), Next::Look);
        }
        let last = began + 99 * PERIOD;
        assert_eq!(doubt.step(silence(99), last + PULSE_TIME - Duration::from_nanos(1)), Next::Look);
        assert_eq!(doubt.step(silence(99), last + PULSE_TIME), Next::Claim);
    }

    #[test]
    fn a_coordinator_that_has_stopped_or_answers_nobody_for_a_lease_is_left_to_others() {
        let (mut health, now) = (Health::new(TTL), Instant::now());
        let unavailable = || Err(CoordinatorError::Unavailable { reason: String::new() });
        assert!(!health.is_over(&unavailable(), now));
        assert!(!health.is_over(&Ok(()), now + TTL), "it came back");
        assert!(!health.is_over(&unavailable(), now + TTL));
        assert!(!health.is_over(&unavailable(), now + TTL + TTL / 2));
        assert!(health.is_over(&unavailable(), now + 2 * TTL));
        assert!(Health::new(TTL).is_over(&Err(CoordinatorError::Stopped { reason: String::new() }), now));
    }
}
