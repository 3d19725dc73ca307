//! How often commands ran, and how long.
//!
//! Two looks at the clock cost as much as a short command: of those that always take the same short time, one of many is timed, and
//! counts for all.

use std::time::Duration;

use super::Actor;
use crate::access::{Permission, permission_for, permissions};
use crate::command::Command;
use crate::error::CommandError;
use crate::request::Args;

/// One of so many short commands is timed, on average.
const TIMED_OF: u32 = 64;
/// Classes of durations: up to 1 microsecond, up to 2, up to 4, ..
pub(crate) const CLASSES: usize = 32;

/// When a command began, and for how many it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    began: Duration,
    counts_for: u32,
}

/// The calls of one command, or subcommand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// How many.
    pub(crate) count: u64,
    /// How long they took, about.
    pub(crate) took: Duration,
    /// How many requests of it were refused before they ran.
    pub(crate) rejected: u64,
    /// How many ran and failed.
    pub(crate) failed: u64,
    /// How many of them took how long, about, by class.
    pub(crate) classes: Option<Box<[u64; CLASSES]>>,
}

/// The calls of all commands; of those that have subcommands, by these.
#[derive(Debug)]
pub(crate) struct CallCounts {
    /// As [`permissions`].
    commands: Box<[Calls]>,
    /// How many short commands are not timed before the next.
    untimed: u32,
    /// For the next distance, which differs each time: clients that repeat the same few commands would have the same one timed.
    chance: u32,
}

impl Default for CallCounts {
    fn default() -> Self {
        Self { commands: vec![Calls::default(); permissions().len()].into(), untimed: TIMED_OF, chance: 1 }
    }
}

impl CallCounts {
    fn of_mut(&mut self, command: &'static Command, args: Args<'_>) -> Option<&mut Calls> {
        self.commands.get_mut(permission_for(command, args)?)
    }

    /// Whether the next short command is timed.
    fn is_next_timed(&mut self) -> bool {
        self.untimed -= 1;
        if self.untimed > 0 {
            return false;
        }
        self.chance = self.chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.untimed = 1 + (self.chance >> 16) % (2 * TIMED_OF - 1);
        true
    }

    /// Notes a call of this [permission](permission_for).
    pub(super) fn note(&mut self, permission: Option<usize>) {
        if let Some(calls) = permission.and_then(|index| self.commands.get_mut(index)) {
            calls.count += 1;
        }
    }

    /// Notes a request that was refused before it ran.
    pub(super) fn note_rejected(&mut self, command: &'static Command, args: Args<'_>) {
        if let Some(calls) = self.of_mut(command, args) {
            calls.rejected += 1;
        }
    }

    /// Notes a call that ended with this error: for want of memory it did not run.
    pub(super) fn note_failed(&mut self, command: &'static Command, args: Args<'_>, error: &CommandError) {
        let is_rejection = matches!(error, CommandError::Other(text) if text.starts_with("OOM "));
        if let Some(calls) = self.of_mut(command, args) {
            *(if is_rejection { &mut calls.rejected } else { &mut calls.failed }) += 1;
        }
    }

    /// The commands and subcommands that were called, or ran here for other actors.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static Permission, &Calls)> {
        let is_known = |calls: &Calls| calls.count + calls.rejected + calls.failed > 0 || calls.classes.is_some();
        permissions().iter().zip(&self.commands).filter(move |(_, calls)| is_known(calls))
    }
}

/// At most how many microseconds this part of the calls took, from how many took how long by class; none if there were no calls.
#[must_use]
pub(crate) fn percentile(classes: &[u64], percent: f64) -> Option<f64> {
    let all: u64 = classes.iter().sum();
    let wanted = (all as f64 * percent / 100.0).ceil().max(1.0) as u64;
    let mut so_far = 0;
    let class = classes.iter().position(|count| {
        so_far += count;
        so_far >= wanted
    });
    class.map(|class| (1_u64 << class) as f64)
}

impl Actor {
    /// When a command begins, if its time is taken; those that always take so long as to be worth it, and of others one of many.
    #[inline]
    pub(super) fn take_time(&mut self, is_worth_it: bool) -> Option<Timing> {
        let counts_for = if is_worth_it { 1 } else { TIMED_OF };
        let is_timed = is_worth_it || self.calls.is_next_timed();
        is_timed.then(|| Timing { began: (self.stopwatch)(), counts_for })
    }

    /// How long a command took, which is noted.
    pub(super) fn took_since(&mut self, timing: Timing, command: &'static Command, args: Args<'_>) -> Duration {
        let took = (self.stopwatch)().saturating_sub(timing.began);
        if let Some(calls) = self.calls.of_mut(command, args) {
            calls.took += took * timing.counts_for;
            if self.config.tracks_latency {
                let micros = (took.as_nanos().div_ceil(1000) as u64).max(1);
                let class = micros.next_power_of_two().trailing_zeros() as usize;
                calls.classes.get_or_insert_default()[class.min(CLASSES - 1)] += u64::from(timing.counts_for);
            }
        }
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_commands_in_turn_each_is_timed_and_one_of_64_in_all() {
        let mut counts = CallCounts::default();
        let mut timed = [0_u32; 2];
        for turn in 0..64_000 {
            timed[turn % 2] += u32::from(counts.is_next_timed());
        }
        assert!(timed.iter().all(|&timed| (400..600).contains(&timed)), "{timed:?}");
    }

    #[test]
    fn percentiles_are_the_ends_of_the_classes_that_reach_them() {
        let mut classes = [0; CLASSES];
        assert_eq!(percentile(&classes, 50.0), None);
        (classes[0], classes[3], classes[10]) = (98, 1, 1);
        assert_eq!(percentile(&classes, 0.0), Some(1.0));
        assert_eq!(percentile(&classes, 50.0), Some(1.0));
        assert_eq!(percentile(&classes, 98.0), Some(1.0));
        assert_eq!(percentile(&classes, 99.0), Some(8.0));
        assert_eq!(percentile(&classes, 99.9), Some(1024.0));
        assert_eq!(percentile(&classes, 100.0), Some(1024.0));
    }
}
