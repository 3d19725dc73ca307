//! Hermitage's anomalies at each level, as tables: who sees what, who waits, who is aborted. (Martin Kleppmann's
//! collection; names as in Adya 1999. The answers at READ COMMITTED are PostgreSQL's.)

use savanna_transaction::{ConflictKind, Isolation};

use crate::session::Answer;
use crate::table::*;

const LEVELS: [Isolation; 3] = [RC, SI, SER];

/// What the three levels answer.
fn by<T>(isolation: Isolation, rc: T, si: T, ser: T) -> T {
    match isolation {
        Isolation::ReadCommitted => rc,
        Isolation::Snapshot => si,
        Isolation::Serializable => ser,
    }
}

#[test]
fn g0_dirty_writes_do_not_interleave() {
    expect(
        "G0",
        &[RC],
        vec![
            (0, set(1, 11), changed(1)),
            (1, set(1, 12), WAITS),
            (0, set(2, 21), changed(1)),
            (0, commit(), DONE),
            (1, then(), changed(1)),
            (0, scan(), rows(&[(1, 11), (2, 21)])),
            (1, set(2, 22), changed(1)),
            (1, commit(), DONE),
            (0, scan(), rows(&[(1, 12), (2, 22)])),
        ],
    );
    for level in [SI, SER] {
        let kind = if level == SI { ConflictKind::Write } else { ConflictKind::Read };
        expect(
            "G0",
            &[level],
            vec![
                (0, set(1, 11), changed(1)),
                (1, set(1, 12), changed(1)),
                (0, set(2, 21), changed(1)),
                (0, commit(), DONE),
                (1, set(2, 22), changed(1)),
                (1, commit(), conflict(kind)),
                (0, scan(), rows(&[(1, 11), (2, 21)])),
            ],
        );
    }
}

#[test]
fn g1a_nobody_reads_what_is_aborted() {
    for level in LEVELS {
        expect(
            "G1a",
            &[level],
            vec![
                (0, set(1, 101), changed(1)),
                (1, scan(), rows(&[(1, 10), (2, 20)])),
                (0, abort(), DONE),
                (1, scan(), rows(&[(1, 10), (2, 20)])),
                (1, commit(), DONE),
            ],
        );
    }
}

#[test]
fn g1b_nobody_reads_what_is_overwritten_in_the_same_transaction() {
    for level in LEVELS {
        let after = by(level, 11, 10, 10);
        expect(
            "G1b",
            &[level],
            vec![
                (0, set(1, 101), changed(1)),
                (1, scan(), rows(&[(1, 10), (2, 20)])),
                (0, set(1, 11), changed(1)),
                (0, commit(), DONE),
                (1, scan(), rows(&[(1, after), (2, 20)])),
                (1, commit(), DONE),
            ],
        );
    }
}

#[test]
fn g1c_information_does_not_flow_in_a_circle() {
    for level in LEVELS {
        let second = by(level, DONE, DONE, conflict(ConflictKind::Read));
        expect(
            "G1c",
            &[level],
            vec![
                (0, set(1, 11), changed(1)),
                (1, set(2, 22), changed(1)),
                (0, read(2), value(20)),
                (1, read(1), value(10)),
                (0, commit(), DONE),
                (1, commit(), second),
            ],
        );
    }
}

#[test]
fn otv_what_was_observed_does_not_vanish() {
    expect(
        "OTV",
        &[RC],
        vec![
            (0, set(1, 11), changed(1)),
            (0, set(2, 19), changed(1)),
            (1, set(1, 12), WAITS),
            (0, commit(), DONE),
            (1, then(), changed(1)),
            (2, read(1), value(11)),
            (1, set(2, 18), changed(1)),
            (2, read(2), value(19)),
            (1, commit(), DONE),
            (2, read(2), value(18)),
            (2, read(1), value(12)),
        ],
    );
    for level in [SI, SER] {
        expect(
            "OTV",
            &[level],
            vec![
                (0, set(1, 11), changed(1)),
                (0, set(2, 19), changed(1)),
                (0, commit(), DONE),
                (2, read(1), value(11)),
                (1, set(1, 12), changed(1)),
                (1, set(2, 18), changed(1)),
                (1, commit(), DONE),
                (2, read(2), value(19)),
                (2, read(1), value(11)),
                (2, commit(), DONE),
            ],
        );
    }
}

#[test]
fn pmp_rows_that_come_to_match_are_seen_by_new_snapshots_only() {
    for level in LEVELS {
        let after: &[Row] = by(level, &[(1, 10), (2, 20), (3, 30)], &[(1, 10), (2, 20)], &[(1, 10), (2, 20)]);
        expect(
            "PMP",
            &[level],
            vec![
                (0, scan(), rows(&[(1, 10), (2, 20)])),
                (1, insert(3, 30), changed(1)),
                (1, commit(), DONE),
                (0, scan(), rows(after)),
                (0, commit(), DONE),
            ],
        );
    }
}

#[test]
fn pmp_a_write_by_predicate_looks_again_at_what_it_waited_for() {
    expect(
        "PMP, write",
        &[RC],
        vec![
            (0, add_to_all(10), changed(2)),
            (1, delete_where(20), WAITS),
            (0, commit(), DONE),
            (1, then(), changed(0)),
            (1, commit(), DONE),
            (0, scan(), rows(&[(1, 20), (2, 30)])),
        ],
    );
    for level in [SI, SER] {
        let kind = by(level, ConflictKind::Write, ConflictKind::Write, ConflictKind::Read);
        expect(
            "PMP, write",
            &[level],
            vec![
                (0, add_to_all(10), changed(2)),
                (1, delete_where(20), changed(1)),
                (0, commit(), DONE),
                (1, commit(), conflict(kind)),
            ],
        );
    }
}

#[test]
fn p4_lost_update() {
    expect(
        "P4",
        &[RC],
        vec![
            (0, read(1), value(10)),
            (1, read(1), value(10)),
            (0, set(1, 11), changed(1)),
            (1, set(1, 11), WAITS),
            (0, commit(), DONE),
            (1, then(), changed(1)), // READ COMMITTED does not prevent it
            (1, commit(), DONE),
        ],
    );
    for level in [SI, SER] {
        let kind = by(level, ConflictKind::Write, ConflictKind::Write, ConflictKind::Read);
        expect(
            "P4",
            &[level],
            vec![
                (0, read(1), value(10)),
                (1, read(1), value(10)),
                (0, set(1, 11), changed(1)),
                (1, set(1, 11), changed(1)),
                (0, commit(), DONE),
                (1, commit(), conflict(kind)),
            ],
        );
    }
}

#[test]
fn an_increment_is_not_lost_at_any_level() {
    expect(
        "increment",
        &[RC],
        vec![
            (0, add(1, 1), changed(1)),
            (1, add(1, 1), WAITS),
            (0, commit(), DONE),
            (1, then(), changed(1)),
            (1, commit(), DONE),
            (0, read(1), value(12)),
        ],
    );
}

#[test]
fn g_single_read_skew() {
    for level in LEVELS {
        let second = by(level, 18, 20, 20);
        expect(
            "G-single",
            &[level],
            vec![
                (0, read(1), value(10)),
                (1, set(1, 12), changed(1)),
                (1, set(2, 18), changed(1)),
                (1, commit(), DONE),
                (0, read(2), value(second)),
                (0, commit(), DONE),
            ],
        );
    }
}

#[test]
fn g_single_by_predicate() {
    for level in LEVELS {
        let second: &[Row] = by(level, &[(1, 12), (2, 18)], &[(1, 10), (2, 20)], &[(1, 10), (2, 20)]);
        expect(
            "G-single, predicate",
            &[level],
            vec![
                (0, scan(), rows(&[(1, 10), (2, 20)])),
                (1, set(1, 12), changed(1)),
                (1, set(2, 18), changed(1)),
                (1, commit(), DONE),
                (0, scan(), rows(second)),
                (0, commit(), DONE),
            ],
        );
    }
}

#[test]
fn g_single_by_a_write_predicate() {
    for level in LEVELS {
        let deleted = by(level, changed(0), changed(1), changed(1));
        let kind = by(level, ConflictKind::Write, ConflictKind::Write, ConflictKind::Read);
        let end = by(level, DONE, conflict(kind), conflict(kind));
        expect(
            "G-single, write predicate",
            &[level],
            vec![
                (0, read(1), value(10)),
                (1, set(1, 12), changed(1)),
                (1, set(2, 18), changed(1)),
                (1, commit(), DONE),
                (0, delete_where(20), deleted),
                (0, commit(), end),
            ],
        );
    }
}

#[test]
fn g2_item_write_skew() {
    for level in LEVELS {
        expect(
            "G2-item",
            &[level],
            vec![
                (0, read(1), value(10)),
                (0, read(2), value(20)),
                (1, read(1), value(10)),
                (1, read(2), value(20)),
                (0, set(1, 11), changed(1)),
                (1, set(2, 21), changed(1)),
                (0, commit(), DONE),
                (1, commit(), by(level, DONE, DONE, conflict(ConflictKind::Read))),
            ],
        );
    }
}

#[test]
fn g2_write_skew_by_predicate() {
    for level in LEVELS {
        expect(
            "G2",
            &[level],
            vec![
                (0, scan(), rows(&[(1, 10), (2, 20)])),
                (1, scan(), rows(&[(1, 10), (2, 20)])),
                (0, insert(3, 30), changed(1)),
                (1, insert(4, 42), changed(1)),
                (0, commit(), DONE),
                (1, commit(), by(level, DONE, DONE, conflict(ConflictKind::Range))),
            ],
        );
    }
}

#[test]
fn g2_with_two_edges_and_a_reader_between() {
    for level in LEVELS {
        expect(
            "G2, two edges",
            &[level],
            vec![
                (0, scan(), rows(&[(1, 10), (2, 20)])),
                (1, add(2, 5), changed(1)),
                (1, commit(), DONE),
                (2, scan(), rows(&[(1, 10), (2, 25)])),
                (2, commit(), DONE),
                (0, set(1, 0), changed(1)),
                (0, commit(), by(level, DONE, DONE, conflict(ConflictKind::Range))),
            ],
        );
    }
}

#[test]
fn a_deleted_row_stays_deleted_for_whoever_waited() {
    expect(
        "delete",
        &[RC],
        vec![
            (0, delete(1), changed(1)),
            (1, add(1, 5), WAITS),
            (0, commit(), DONE),
            (1, then(), changed(0)),
            (1, read(1), Answer::Value(None)),
            (1, commit(), DONE),
        ],
    );
}

#[test]
fn a_serializable_commit_waits_for_a_lock_and_then_looks() {
    // Session 0 locks and does not write: session 1 waits at its commit and gets through.
    expect(
        "locked only",
        &[RC, SER],
        vec![
            (0, lock(1, savanna_transaction::RowLock::Update), value(10)),
            (1, add(1, 5), changed(1)),
            (1, commit(), WAITS),
            (0, commit(), DONE),
            (1, then(), DONE),
            (0, read(1), value(15)),
        ],
    );
    expect(
        "locked and written",
        &[RC, SER],
        vec![
            (0, add(1, 1), changed(1)),
            (1, add(1, 5), changed(1)),
            (1, commit(), WAITS),
            (0, commit(), DONE),
            (1, then(), conflict(ConflictKind::Read)),
            (0, read(1), value(11)),
        ],
    );
}
