//! Linearizability of registers whose written values are unique.
//!
//! With unique values it is known which write each read saw, and the question is decidable in `n log n` (Gibbons and
//! Korach, *Testing Shared Memories*, SIAM J. Comput. 26(4), 1997). A write and its reads form a *cluster*, which spans
//! from the earliest return `f` in it to the latest call `s`:
//!
//! ```text
//!   f < s   forward zone [f, s]:   the register certainly had this value all that time
//!   f >= s  backward zone [s, f]:  it had it at some instant in there
//! ```
//!
//! The history is linearizable if and only if no read precedes its write, no two forward zones overlap, and no backward
//! zone lies inside a forward zone.

use std::{collections::BTreeMap, time::Duration};

use super::{Guarantee, Violation};
use crate::history::{History, OpId, OpKind, Outcome, Told};

/// One operation on one register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it was called.
    pub called: Duration,
    /// When it returned; `None` if its fate is unknown (a write that may take effect at any later time).
    pub returned: Option<Duration>,
    /// The value written or read; 0 is the value before all writes.
    pub value: u64,
    /// Whether it is a write.
    pub write: bool,
}

struct Cluster {
    write_called: Option<Duration>,
    first_return: Duration,
    last_call: Duration,
    reads: usize,
    fate_unknown: bool,
}

const NEVER: Duration = Duration::MAX;

/// Checks the operations on one register. Values must be written at most once.
///
/// # Errors
/// What is wrong, in words.
pub fn linearizable(operations: &[Operation]) -> Result<(), String> {
    let mut clusters: BTreeMap<u64, Cluster> = BTreeMap::new();
    clusters.insert(
        0,
        Cluster {
            write_called: Some(Duration::ZERO),
            first_return: Duration::ZERO,
            last_call: Duration::ZERO,
            reads: 0,
            fate_unknown: false,
        },
    );
    for operation in operations {
        let cluster = clusters.entry(operation.value).or_insert(Cluster {
            write_called: None,
            first_return: NEVER,
            last_call: Duration::ZERO,
            reads: 0,
            fate_unknown: false,
        });
        if operation.write {
            cluster.write_called = Some(operation.called);
            cluster.fate_unknown = operation.returned.is_none();
        } else {
            cluster.reads += 1;
        }
        cluster.first_return = cluster.first_return.min(operation.returned.unwrap_or(NEVER));
        cluster.last_call = cluster.last_call.max(operation.called);
    }
    let mut forward = Vec::new();
    let mut backward = Vec::new();
    for (value, cluster) in &clusters {
        let Some(write_called) = cluster.write_called else {
            return Err(format!("a read returned {value:#x}, which nobody wrote, or whose write was refused"));
        };
        if cluster.first_return < write_called {
            return Err(format!(
                "a read returned {value:#x} at {:?}, before it was written at {write_called:?}",
                cluster.first_return
            ));
        }
        if cluster.fate_unknown && cluster.reads == 0 {
            // It may never have happened.
            continue;
        }
        if cluster.first_return < cluster.last_call {
            forward.push((cluster.first_return, cluster.last_call, *value));
        } else {
            backward.push((cluster.last_call, cluster.first_return, *value));
        }
    }
    forward.sort_unstable();
    for pair in forward.windows(2) {
        let [(from, until, value), (next_from, next_until, next)] = pair else {
            continue;
        };
        if next_from < until {
            return Err(format!(
                "the register had value {value:#x} from {from:?} to {until:?} and value {next:#x} from {next_from:?} to {next_until:?}"
            ));
        }
    }
    for (from, until, value) in backward {
        let before = forward.partition_point(|(start, ..)| *start < from);
        if let Some((start, end, other)) = before.checked_sub(1).map(|at| forward[at])
            && start < from
            && until < end
        {
            return Err(format!(
                "value {value:#x} took effect between {from:?} and {until:?}, while the register had value {other:#x} from {start:?} to {end:?}"
            ));
        }
    }
    Ok(())
}

/// Checks every register of a run.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut under_way: BTreeMap<OpId, ((usize, u32), OpKind, Duration)> = BTreeMap::new();
    let mut registers: BTreeMap<(usize, u32), Vec<Operation>> = BTreeMap::new();
    for event in history {
        match &event.what {
            Told::Invoked { op, shard, key, kind } => {
                under_way.insert(*op, ((*shard, *key), *kind, event.at));
            }
            Told::Returned { op, outcome } => {
                let Some((register, kind, called)) = under_way.remove(op) else {
                    continue;
                };
                let (value, write, returned) = match (kind, outcome) {
                    (OpKind::Write(value), Outcome::Ok(_)) => (value, true, Some(event.at)),
                    (OpKind::Write(value), Outcome::Unknown(_)) => (value, true, None),
                    (OpKind::Read, Outcome::Ok(value)) => (*value, false, Some(event.at)),
                    (OpKind::Read, _) | (_, Outcome::NotDone(_)) => continue,
                };
                registers.entry(register).or_default().push(Operation { called, returned, value, write });
            }
            _ => {}
        }
    }
    for (register, kind, called) in under_way.into_values() {
        if let OpKind::Write(value) = kind {
            registers.entry(register).or_default().push(Operation { called, returned: None, value, write: true });
        }
    }
    registers
        .into_iter()
        .filter_map(|((shard, key), operations)| {
            let evidence = linearizable(&operations).err()?;
            Some(Violation {
                guarantee: Guarantee::Linearizable,
                evidence: format!("register {key} of shard {shard}: {evidence}"),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(called: u64, returned: impl Into<Option<u64>>, value: u64) -> Operation {
        let returned = returned.into().map(Duration::from_millis);
        Operation { called: Duration::from_millis(called), returned, value, write: true }
    }

    fn read(called: u64, returned: u64, value: u64) -> Operation {
        let returned = Some(Duration::from_millis(returned));
        Operation { called: Duration::from_millis(called), returned, value, write: false }
    }

    #[test]
    fn overlapping_operations_may_take_effect_in_either_order() {
        for value in [0, 1] {
            assert_eq!(linearizable(&[write(10, 30, 1), read(15, 20, value)]), Ok(()));
        }
        assert_eq!(linearizable(&[write(10, 30, 1), write(12, 32, 2), read(40, 41, 1)]), Ok(()));
        assert_eq!(linearizable(&[write(10, None, 1), read(40, 41, 0), read(50, 51, 1)]), Ok(()));
    }

    #[test]
    fn stale_lost_invented_and_early_reads_are_found() {
        // Stale: the write had returned.
        assert!(linearizable(&[write(10, 20, 1), read(30, 31, 0)]).is_err());
        // Back and forth between two values.
        assert!(linearizable(&[write(10, 20, 1), write(30, 40, 2), read(50, 51, 2), read(60, 61, 1)]).is_err());
        // A value seen once is gone later without another write.
        assert!(linearizable(&[write(10, None, 1), read(20, 21, 1), read(30, 31, 0)]).is_err());
        assert!(linearizable(&[read(10, 11, 7)]).is_err());
        assert!(linearizable(&[read(10, 11, 1), write(20, 30, 1)]).is_err());
        // An acknowledged write is never seen, though the register shows an older value before and after it.
        assert!(linearizable(&[write(5, 6, 1), write(20, 30, 2), read(40, 41, 1)]).is_err());
    }

    /// Tries every order, for histories of a few operations.
    fn by_definition(left: &[Operation], now: u64) -> bool {
        let ends = |operation: &Operation| operation.returned.unwrap_or(NEVER);
        let first_end = left.iter().map(ends).min().unwrap_or(NEVER);
        left.iter().all(|operation| operation.returned.is_none())
            || (0..left.len()).any(|at| {
                let operation = &left[at];
                let allowed = operation.called <= first_end && (operation.write || operation.value == now);
                let rest: Vec<_> = left.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, o)| o.clone()).collect();
                allowed && by_definition(&rest, if operation.write { operation.value } else { now })
            })
    }

    #[test]
    fn agrees_with_the_definition_on_random_histories() {
        use rand::{Rng, SeedableRng};
        let (mut good, mut bad) = (0, 0);
        for seed in 0..20_000_u64 {
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let writes = rng.random_range(1..4_u64);
            let mut instants: Vec<u64> = (1..40).collect();
            let mut draw = |rng: &mut rand_chacha::ChaCha8Rng| {
                let (a, b) = (
                    instants.swap_remove(rng.random_range(0..instants.len())),
                    instants.swap_remove(rng.random_range(0..instants.len() - 1)),
                );
                (a.min(b), a.max(b))
            };
            let mut operations = Vec::new();
            for value in 1..=writes {
                let (called, returned) = draw(&mut rng);
                operations.push(write(called, rng.random_bool(0.8).then_some(returned), value));
            }
            for _ in 0..rng.random_range(1..4) {
                let (called, returned) = draw(&mut rng);
                operations.push(read(called, returned, rng.random_range(0..=writes)));
            }
            let expected = by_definition(&operations, 0);
            assert_eq!(linearizable(&operations).is_ok(), expected, "seed {seed}: {operations:#?}");
            if expected { good += 1 } else { bad += 1 }
        }
        assert!(good > 1000 && bad > 1000, "{good} good and {bad} bad histories");
    }
}
