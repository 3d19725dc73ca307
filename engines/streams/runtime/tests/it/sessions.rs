//! Sessions are right, whatever the parallelism, the epochs and the faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use proptest::prelude::*;
use savanna_ownership::KeyGroupSet;
use savanna_streams_api::ids::{Epoch, StageId};
use savanna_streams_model::state::{DeltaId, KeyedState, MovableState};
use savanna_streams_model::time::Windows;
use savanna_streams_runtime::{AggregateSpec, SessionState};

use crate::graphs::{
    MILLI, filter_chain, functions, identity, input_schema, keep_late_rows, scan, window_aggregate, windowed,
};
use crate::memory::{Memory, Row, batch, rows_of};
use crate::oracle::{Groups, group, groups};
use crate::state::{groups_of, key_groups, rows};
use crate::windows::{any_run, partitions, run};

fn session(gap_ms: i64) -> Windows {
    Windows::Session { gap: gap_ms * MILLI }
}

/// The sessions of some rows by key: sorted by time, cut where the gap is reached.
fn sessions<'r>(rows: impl IntoIterator<Item = &'r Row>, gap_ms: i64, keyed: bool) -> Groups {
    let mut by_key: BTreeMap<Option<i64>, Vec<(i64, i64)>> = BTreeMap::new();
    for row in rows {
        by_key.entry(row.key.filter(|_| keyed)).or_default().push((row.time.unwrap(), row.value));
    }
    let mut sessions = Groups::new();
    for (key, mut rows) in by_key {
        rows.sort_unstable();
        for session in rows.chunk_by(|before, after| after.0 - before.0 < gap_ms) {
            let window = (session[0].0, session.last().unwrap().0 + gap_ms);
            sessions.insert((window, key), group(&session.iter().map(|(_, value)| *value).collect::<Vec<_>>()));
        }
    }
    sessions
}

/// Rows that count, and rows that are late or have no time. Rows with a negative value are filtered out, if told so.
fn on_time(partitions: &[Vec<Row>], delay_ms: i64, filtered: bool) -> (Vec<Row>, Vec<Row>) {
    let (mut kept, mut late) = (Vec::new(), Vec::new());
    for partition in partitions {
        let mut newest = i64::MIN;
        for row in partition {
            newest = newest.max(row.time.unwrap_or(i64::MIN));
            if filtered && row.value < 0 {
                continue;
            }
            if row.time.is_some_and(|time| time >= newest - delay_ms) { kept.push(*row) } else { late.push(*row) }
        }
    }
    late.sort_unstable();
    (kept, late)
}

fn state(gap_ms: i64, keyed: bool) -> SessionState {
    let spec = AggregateSpec::decode(&window_aggregate(session(gap_ms), keyed), &functions()).unwrap();
    SessionState::new(Arc::new(spec), gap_ms * MILLI).unwrap()
}

fn close(state: &mut SessionState, upto_ms: i64) -> Groups {
    groups_of(state.scan(upto_ms.saturating_mul(MILLI)).unwrap(), true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn results_and_late_rows_are_those_of_the_definition(
        partitions in partitions(), gap in 1_i64..25, delay in 0_i64..40, filtered: bool, keyed: bool, how in any_run(),
    ) {
        let (kept, expected_late) = on_time(&partitions, delay, filtered);
        let memory = Arc::new(Memory::with("t", partitions));
        let mut scan = scan("t", delay);
        keep_late_rows(&mut scan);
        let chain = if filtered { filter_chain() } else { identity(&input_schema()) };
        let (status, rows) = run(windowed(scan, chain, session(gap), keyed), &memory, how);
        prop_assert_eq!(groups(&rows, keyed), sessions(&kept, gap, keyed));
        let side: Vec<RecordBatch> = memory.side.lock().iter().flat_map(|(_, rows)| rows.clone()).collect();
        let mut late = rows_of(&side);
        late.sort_unstable();
        prop_assert_eq!(status.late_rows, expected_late.len() as u64);
        prop_assert_eq!(late, expected_late);
    }

    #[test]
    fn updating_elsewhere_and_merging_is_updating(
        first in rows(), second in rows(), gap in 1_i64..25, between in -40_i64..160,
    ) {
        let (mut a, mut b) = (state(gap, true), state(gap, true));
        a.update(&batch(&first)).unwrap();
        b.update(&batch(&second)).unwrap();
        let (a, b) = (a.freeze(Epoch(1)).unwrap(), b.freeze(Epoch(1)).unwrap());
        let mut merged = state(gap, true);
        let id = |sender| DeltaId { epoch: Epoch(1), stage: StageId(0), sender };
        prop_assert!(merged.merge(&b, id(1)).unwrap());
        prop_assert!(merged.merge(&a, id(0)).unwrap());
        prop_assert!(!merged.merge(&b, id(1)).unwrap(), "once per id");
        let all = sessions(first.iter().chain(&second), gap, true);
        let (early, later): (Groups, Groups) = all.into_iter().partition(|((window, _), _)| window.1 <= between);
        prop_assert_eq!(close(&mut merged, between), early);
        prop_assert_eq!(close(&mut merged, i64::MAX), later);
        prop_assert_eq!(merged.bytes(), 0, "closed sessions leave nothing behind");
    }

    #[test]
    fn state_moves_by_key_group_and_comes_back(
        before in rows(), after in rows(), gap in 1_i64..25, moved in key_groups(),
    ) {
        let mut here = state(gap, true);
        here.update(&batch(&before)).unwrap();
        let taken = here.extract(&moved).unwrap();
        prop_assert!(here.extract(&moved).unwrap().is_empty(), "what is taken is gone");
        let mut there = state(gap, true);
        there.install(&taken).unwrap();
        prop_assert!(there.extract(&moved.complement()).unwrap().is_empty(), "nothing else is taken");
        // Rows that come later join the sessions where they are now.
        here.update(&batch(&after)).unwrap();
        here.install(&there.extract(&KeyGroupSet::full()).unwrap()).unwrap();
        prop_assert_eq!(close(&mut here, i64::MAX), sessions(before.iter().chain(&after), gap, true));
    }
}

#[test]
fn a_long_session_of_many_epochs_is_joined_on_the_way() {
    let (mut sender, mut receiver) = (state(5, true), state(5, true));
    let mut most = 0;
    for epoch in 1..=3000_i64 {
        let rows: Vec<Row> = (0..10).map(|key| Row { time: Some(epoch), key: Some(key), value: key }).collect();
        sender.update(&batch(&rows)).unwrap();
        let id = DeltaId { epoch: Epoch(epoch as u64), stage: StageId(0), sender: 0 };
        receiver.merge(&sender.freeze(id.epoch).unwrap(), id).unwrap();
        receiver.complete(id.epoch);
        assert!(close(&mut receiver, epoch).is_empty());
        most = most.max(receiver.bytes());
    }
    assert!(most < 4_000_000, "{most} bytes for ten sessions");
    let closed = close(&mut receiver, i64::MAX);
    assert_eq!(closed.len(), 10);
    assert!(closed.iter().all(|((window, _), group)| *window == (1, 3005) && group.0 == 3000));
}
