//! Random histories of three replicas, and the checks that hold for any lattice with deltas.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use savanna_lattice::laws::{Violation, check_bottom, check_delta, check_deltas, check_lattice};
use savanna_lattice::{Hlc, Lattice, Stamp, UnixMillis, WriterId};

pub(crate) const REPLICAS: usize = 3;

/// A type under test: how it begins, and how a replica changes it.
pub(crate) trait Subject: Lattice + Clone + PartialEq + Debug {
    /// What every replica has at first.
    fn start() -> Self;

    /// Changes the value and returns the delta.
    fn change(&mut self, change: Change) -> Self;
}

/// A change, to be understood by each type in its own way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) writer: WriterId,
    pub(crate) choice: u8,
    /// Of its own for each change of a history.
    pub(crate) stamp: Stamp,
}

impl Change {
    /// One of `count` things to do, and the rest of the choice for what is inside.
    pub(crate) fn pick(self, count: u8) -> (u8, Self) {
        (self.choice % count, Self { choice: self.choice / count, ..self })
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A replica changes its value.
    Change { replica: usize, choice: u8 },
    /// A replica sends its whole value to another one.
    Tell { from: usize, to: usize },
    /// One of the deltas so far arrives, late, early or again.
    Deliver { delta: prop::sample::Index, to: usize },
}

pub(crate) fn any_history() -> impl Strategy<Value = Vec<Step>> {
    let replica = || 0..REPLICAS;
    let step = prop_oneof![
        5 => (replica(), any::<u8>()).prop_map(|(replica, choice)| Step::Change { replica, choice }),
        1 => (replica(), replica()).prop_map(|(from, to)| Step::Tell { from, to }),
        2 => (any::<prop::sample::Index>(), replica()).prop_map(|(delta, to)| Step::Deliver { delta, to }),
    ];
    prop::collection::vec(step, 1..24)
}

/// What came of a history.
pub(crate) struct Outcome<S> {
    pub(crate) replicas: Vec<S>,
    pub(crate) deltas: Vec<S>,
}

/// Plays a history; checks each change's delta.
pub(crate) fn play<S: Subject>(steps: &[Step]) -> Result<Outcome<S>, Violation> {
    let mut replicas = vec![S::start(); REPLICAS];
    let mut deltas: Vec<S> = Vec::new();
    for (time, step) in (1_u64..).zip(steps) {
        match step {
            Step::Change { replica, choice } => {
                let writer = WriterId(u32::try_from(*replica).expect("three") + 1);
                let stamp = Stamp::new(Hlc::new(UnixMillis(time), 0), writer);
                let before = replicas[*replica].clone();
                let delta = replicas[*replica].change(Change { writer, choice: *choice, stamp });
                check_delta(&before, &delta, &replicas[*replica])?;
                deltas.push(delta);
            }
            Step::Tell { from, to } => {
                let told = replicas[*from].clone();
                replicas[*to].merge(told);
            }
            Step::Deliver { delta, to } if !deltas.is_empty() => {
                let arrived = delta.get(&deltas).clone();
                replicas[*to].merge(arrived);
            }
            Step::Deliver { .. } => {}
        }
    }
    Ok(Outcome { replicas, deltas })
}

/// Runs a check over random histories; panics with the smallest one that fails. (Not generic, so that it is compiled
/// once.)
pub(crate) fn for_all_histories(check: fn(&[Step]) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    if let Err(failure) = runner.run(&any_history(), |history| check(&history)) {
        panic!("{failure}");
    }
}

/// The laws, over what came of a history.
pub(crate) fn laws_hold<S: Subject>(steps: &[Step]) -> Result<(), TestCaseError> {
    let failed = |violation: Violation| TestCaseError::fail(violation.to_string());
    let Outcome { replicas, deltas } = play::<S>(steps).map_err(failed)?;

    let mut samples = replicas.clone();
    samples.extend(deltas.iter().rev().take(3).cloned());
    check_lattice(&samples).map_err(failed)?;
    check_deltas(&S::start(), &deltas).map_err(failed)?;

    // All states together, and all deltas together: the same value at every replica.
    let mut whole = S::start();
    for replica in &replicas {
        whole.merge(replica.clone());
    }
    for replica in replicas {
        let mut healed = replica.clone();
        healed.merge(whole.clone());
        prop_assert_eq!(&healed, &whole, "healed by the whole state");
        let mut replayed = replica;
        for delta in deltas.iter().rev().chain(&deltas) {
            replayed.merge(delta.clone());
        }
        prop_assert_eq!(&replayed, &whole, "healed by deltas, backwards and again forwards");
    }
    Ok(())
}

/// That the default value changes nothing that came of a history.
pub(crate) fn bottom_holds<S: Subject + Default>(steps: &[Step]) -> Result<(), TestCaseError> {
    let failed = |violation: Violation| TestCaseError::fail(violation.to_string());
    let Outcome { replicas, deltas } = play::<S>(steps).map_err(failed)?;
    let samples: Vec<S> = replicas.into_iter().chain(deltas).collect();
    check_bottom(&samples).map_err(failed)
}
