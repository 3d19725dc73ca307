//! Unique keys and foreign keys are reads in index-key space: they hold at every level, and in every mixture of levels.

use savanna_transaction::{ConflictKind, Fault, Isolation, Transactions};

use crate::session::Answer;
use crate::table::*;

const LEVELS: [Isolation; 3] = [RC, SI, SER];

#[test]
fn one_of_two_who_insert_a_key_gets_it() {
    expect(
        "unique",
        &[RC],
        vec![
            (0, insert(3, 30), changed(1)),
            (1, insert(3, 31), WAITS),
            (0, commit(), DONE),
            (1, then(), Answer::Duplicate),
        ],
    );
    expect(
        "unique, the first gives up",
        &[RC],
        vec![
            (0, insert(3, 30), changed(1)),
            (1, insert(3, 31), WAITS),
            (0, abort(), DONE),
            (1, then(), changed(1)),
            (1, commit(), DONE),
            (0, read(3), value(31)),
        ],
    );
    for level in [SI, SER] {
        let kind = if level == SI { ConflictKind::Write } else { ConflictKind::Probe };
        expect(
            "unique",
            &[level],
            vec![
                (0, insert(3, 30), changed(1)),
                (1, insert(3, 31), changed(1)),
                (0, commit(), DONE),
                (1, commit(), conflict(kind)),
                (1, insert(3, 32), Answer::Duplicate),
            ],
        );
    }
}

/// A child comes while its parent goes; the child commits first.
fn child_first(levels: &[Isolation], fault: Option<Fault>) -> Result<(), String> {
    let child = levels[0] == RC;
    let lines = match levels[1] {
        // Who deletes at READ COMMITTED waits for the child's lock, and then finds the child. A child that is validated
        // has no lock before it commits; then the deletion is first, and is seen.
        Isolation::ReadCommitted if child => vec![
            (0, refer([1, 7], 70), changed(1)),
            (1, remove(1), WAITS),
            (0, commit(), DONE),
            (1, then(), Answer::Referred),
        ],
        Isolation::ReadCommitted => vec![
            (0, refer([1, 7], 70), changed(1)),
            (1, remove(1), changed(1)),
            (0, commit(), WAITS),
            (1, commit(), DONE),
            (0, then(), conflict(ConflictKind::Probe)),
        ],
        _ => vec![
            (0, refer([1, 7], 70), changed(1)),
            (1, remove(1), changed(1)),
            (0, commit(), DONE),
            (1, commit(), conflict(ConflictKind::Probe)),
        ],
    };
    play(database(fault), levels, lines)
}

/// As above; the parent is gone first.
fn parent_first(levels: &[Isolation], fault: Option<Fault>) -> Result<(), String> {
    let lines = match (levels[0], levels[1]) {
        (RC, RC) => vec![
            (1, remove(1), changed(1)),
            (0, refer([1, 7], 70), WAITS),
            (1, commit(), DONE),
            (0, then(), Answer::Missing),
        ],
        // The child's lock is taken first: the deletion waits for it when it commits.
        (RC, _) => vec![
            (1, remove(1), changed(1)),
            (0, refer([1, 7], 70), changed(1)),
            (1, commit(), WAITS),
            (0, commit(), DONE),
            (1, then(), conflict(ConflictKind::Probe)),
        ],
        _ => vec![
            (1, remove(1), changed(1)),
            (0, refer([1, 7], 70), changed(1)),
            (1, commit(), DONE),
            (0, commit(), conflict(ConflictKind::Probe)),
        ],
    };
    play(database(fault), levels, lines)
}

fn database(fault: Option<Fault>) -> Transactions<i64> {
    fault.map_or_else(Transactions::default, Transactions::broken)
}

#[test]
fn no_child_stays_without_its_parent_at_any_two_levels() {
    for child in LEVELS {
        for parent in LEVELS {
            for table in [child_first, parent_first] {
                if let Err(difference) = table(&[child, parent], None) {
                    panic!("child at {child:?}, parent at {parent:?}: {difference}");
                }
            }
        }
    }
}

#[test]
fn a_parent_that_went_is_missed_whatever_else_became_of_it_since() {
    let changed_then_gone = || vec![add(1, 5), commit(), remove(1), commit()];
    let gone_and_back = || vec![remove(1), commit(), insert(1, 30), commit(), add(1, 5), commit()];
    for steps in [changed_then_gone, gone_and_back] {
        for child in [SI, SER] {
            for parent in LEVELS {
                let others = steps().into_iter().enumerate().map(|(at, step)| {
                    let answer = if at % 2 == 0 { changed(1) } else { DONE };
                    (1, step, answer)
                });
                let mut lines = vec![(0, refer([1, 7], 70), changed(1))];
                lines.extend(others);
                lines.push((0, commit(), conflict(ConflictKind::Probe)));
                expect("a parent that went", &[child, parent], lines);
            }
        }
    }
}

#[test]
fn children_without_parents_are_found_when_probes_are_not_validated() {
    let fault = Some(Fault::ProbesAreNotValidated);
    for level in [SI, SER] {
        child_first(&[level, level], fault).expect_err("the parent goes");
        parent_first(&[level, level], fault).expect_err("the child comes");
    }
    child_first(&[SI, RC], Some(Fault::CommitsIgnoreLocks)).expect_err("the child does not wait for the deletion");
}

#[test]
fn a_parent_may_change_while_children_come() {
    for level in LEVELS {
        expect(
            "content and key",
            &[level],
            vec![
                (0, refer([1, 7], 70), changed(1)),
                (1, add(1, 5), changed(1)),
                (2, refer([1, 8], 80), changed(1)),
                (1, commit(), DONE),
                (0, commit(), DONE),
                (2, commit(), DONE),
            ],
        );
    }
}
