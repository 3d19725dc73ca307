//! Which of the nodes that work one of them reaches.
//!
//! All nodes of a cluster share its directory, and each shows there that it works. So who does not answer, and shows all the same
//! that it works, is on the other side of a cut network. A node on the smaller side does not run the coordinator: it leaves it to the larger
//! side, and takes it from nobody. Of two halves the one that has it keeps it; of three parts or more, none of which is half, none has it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use savanna_epoch::NodeId;

/// How long a node has to answer that may be beyond a cut.
pub const REACH_TIME: Duration = Duration::from_millis(400);
/// The pause between two looks of the node with the coordinator.
pub const REACH_PERIOD: Duration = Duration::from_millis(200);
/// How often a node shows that it works.
pub const PULSE_PERIOD: Duration = Duration::from_millis(200);
/// A node that has not shown for so long that it works, does not.
const STILL_TIME: Duration = Duration::from_secs(1);
/// How often a node that works may miss to answer.
const MISSES_MAX: u32 = 3;
/// So often a node that does not answer has shown that it works before that is believed: it may have died since the first time.
const CHANGES_MIN: u32 = 2;

/// What another node shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Its name.
    pub node: NodeId,
    /// Where it answers.
    pub address: SocketAddr,
    /// Changes for as long as it works.
    pub at: SystemTime,
}

/// The nodes that work, as one of them finds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// That answer, and itself.
    pub reached: usize,
    /// That work, and do not answer.
    pub beyond: usize,
    /// That do not answer, and may work.
    unsure: usize,
}

impl Sides {
    /// Whether the node is on the smaller side.
    #[must_use]
    pub const fn is_smaller(self) -> bool {
        self.reached < self.beyond
    }

    /// Whether it may be.
    #[must_use]
    pub const fn may_be_smaller(self) -> bool {
        self.reached < self.beyond + self.unsure
    }
}

/// A node that has not answered.
#[derive(Clone, Copy, Debug)]
struct Missed {
    times: u32,
    /// Its pulse, when it was seen to change, and how often since the node was missed.
    pulse: SystemTime,
    changed: Instant,
    changes: u32,
}

impl Missed {
    fn is_still(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.changed) >= STILL_TIME
    }
}

/// Decides on which side of a cut network a node is.
#[derive(Debug, Default)]
pub struct Reach(BTreeMap<NodeId, Missed>);

impl Reach {
    /// Whether a node is to be asked: not if it did not answer, and has shown nothing for long.
    #[must_use]
    pub fn asks(&self, pulse: &Pulse, now: Instant) -> bool {
        self.0.get(&pulse.node).is_none_or(|missed| missed.pulse != pulse.at || !missed.is_still(now))
    }

    /// Takes in what others show, and whether they have answered.
    pub fn step(&mut self, found: &[(Pulse, bool)], now: Instant) -> Sides {
        self.0.retain(|node, _| found.iter().any(|(pulse, _)| pulse.node == *node));
        let mut sides = Sides { reached: 1, ..Sides::default() };
        for (pulse, answered) in found {
            if *answered {
                self.0.remove(&pulse.node);
                sides.reached += 1;
                continue;
            }
            let first = Missed { times: 0, pulse: pulse.at, changed: now, changes: 0 };
            let missed = self.0.entry(pulse.node.clone()).or_insert(first);
            missed.times += 1;
            if missed.pulse != pulse.at {
                (missed.pulse, missed.changed, missed.changes) = (pulse.at, now, missed.changes + 1);
            }
            if !missed.is_still(now) {
                let is_beyond = missed.times >= MISSES_MAX && missed.changes >= CHANGES_MIN;
                *(if is_beyond { &mut sides.beyond } else { &mut sides.unsure }) += 1;
            }
        }
        sides
    }

    /// The coordinator answers: what was missed before counts no more.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(100);

    /// What others show in a round: those that work change their pulses.
    fn found(round: u32, others: &[(&str, bool, bool)]) -> Vec<(Pulse, bool)> {
        let found = |(name, works, answers): &(&str, bool, bool)| {
            let at = SystemTime::UNIX_EPOCH + if *works { round * ROUND } else { Duration::ZERO };
            (Pulse { node: NodeId::new(*name), address: ([127, 0, 0, 1], 1).into(), at }, *answers)
        };
        others.iter().map(found).collect()
    }

    /// How it stands after so many rounds of the same.
    fn after(rounds: u32, others: &[(&str, bool, bool)]) -> Sides {
        let (mut reach, began) = (Reach::default(), Instant::now());
        let mut step = |round| reach.step(&found(round, others), began + round * ROUND);
        (0..rounds).map(&mut step).last().unwrap_or_default()
    }

    #[test]
    fn who_does_not_answer_and_shows_that_it_works_is_beyond_a_cut() {
        let cut = [("b", true, false), ("c", true, false)];
        assert!(!after(2, &cut).is_smaller(), "it may be busy");
        assert!(after(3, &cut).is_smaller() && after(100, &cut).is_smaller());
        let on_the_larger_side = [("b", true, false), ("c", true, true)];
        assert!((1..100).all(|rounds| !after(rounds, &on_the_larger_side).may_be_smaller()));
    }

    #[test]
    fn who_does_not_work_is_on_no_side_after_a_while() {
        let dead = [("b", false, false), ("c", false, false)];
        assert!((1..100).all(|rounds| !after(rounds, &dead).is_smaller()));
        let may_be_smaller = |rounds| after(rounds, &dead).may_be_smaller();
        assert!(may_be_smaller(10) && !may_be_smaller(11), "nobody is sure before");
    }

    #[test]
    fn who_was_beyond_a_cut_and_died_is_on_no_side_after_a_while_and_is_asked_no_more() {
        let (mut reach, began) = (Reach::default(), Instant::now());
        let at = |round: u32| found(round.min(5), &[("b", true, false), ("c", true, false)]);
        let sides: Vec<_> = (0..17).map(|round| reach.step(&at(round), began + round * ROUND)).collect();
        assert!(sides[5].is_smaller() && sides[14].is_smaller(), "{sides:?}");
        assert!(!sides[15].is_smaller() && !sides[15].may_be_smaller() && !sides[16].may_be_smaller(), "{sides:?}");
        let (asks, now) = (|pulses: &[(Pulse, bool)], now| reach.asks(&pulses[0].0, now), began + 16 * ROUND);
        assert!(!asks(&at(5), now) && asks(&found(6, &[("b", true, false)]), now), "it has come back");
        assert!(asks(&at(5), began + 14 * ROUND));
    }

    #[test]
    fn of_two_halves_none_is_the_smaller_and_of_three_parts_all_are() {
        let two = [("b", true, false)];
        let four = [("b", true, true), ("c", true, false), ("d", true, false)];
        assert!((1..100).all(|rounds| !after(rounds, &two).may_be_smaller()));
        assert!((1..100).all(|rounds| !after(rounds, &four).may_be_smaller()));
        let five = [("b", true, true), ("c", true, false), ("d", true, false), ("e", true, false)];
        assert!(after(3, &five).is_smaller());
    }

    #[test]
    fn who_has_answered_in_between_is_missed_anew() {
        let (mut reach, began) = (Reach::default(), Instant::now());
        let mut step = |round, answers| {
            let found = found(round, &[("b", true, answers), ("c", true, answers)]);
            reach.step(&found, began + round * ROUND).is_smaller()
        };
        assert!(
            !step(0, false)
                && !step(1, false)
                && !step(2, true)
                && !step(3, false)
                && !step(4, false)
                && step(5, false)
        );
        reach.forget();
        let found = found(6, &[("b", true, false), ("c", true, false)]);
        assert!(!reach.step(&found, began + 6 * ROUND).is_smaller(), "the coordinator has answered in between");
    }
}
