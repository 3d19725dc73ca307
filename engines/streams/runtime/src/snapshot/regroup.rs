//! The states of a snapshot for groups of another size than those that wrote it: rows go to the members that own their keys now.

use std::collections::BTreeMap;

use savanna_streams_api::ids::StageId;
use savanna_streams_api::{Result, StreamError};

use super::{Manifest, MemberPart, Snapshot, State, Table, check};
use crate::key_cut::KeyCut;
use crate::topology::MEMBERS_MAX;

/// The state of each member, of so many for each stage. `columns` tells by which columns rows of a stage's state, by their name, are cut
/// by key, if they are.
///
/// # Errors
/// The snapshot does not fit what the stages hold.
pub(crate) fn regroup(
    snapshot: Snapshot,
    signatures: &[String],
    members: &BTreeMap<StageId, u16>,
    columns: impl Fn(StageId, &str) -> Option<Vec<usize>>,
) -> Result<BTreeMap<MemberPart, State>> {
    let Snapshot { manifest, states } = snapshot;
    let then = members_then(&manifest, members);
    check(&manifest, signatures, &then)?;
    let mut parts: BTreeMap<MemberPart, State> =
        manifest.parts.iter().map(|part| (part.stage, part.shuffle)).zip(states).collect();
    for (stage, now) in members {
        if then.get(stage) == Some(now) {
            continue;
        }
        let of_stage = parts.extract_if(.., |(of, _), _| of == stage).map(|(_, state)| state).collect();
        let cut = cut(*stage, of_stage, *now, |rows| columns(*stage, rows))?;
        parts.extend((0..).zip(cut).map(|(shuffle, state)| ((*stage, shuffle), state)));
    }
    Ok(parts)
}

/// How many members the stages had that wrote a snapshot; as many as now where it does not say, which `check` refuses.
fn members_then(manifest: &Manifest, now: &BTreeMap<StageId, u16>) -> BTreeMap<StageId, u16> {
    let then = |(stage, now): (&StageId, &u16)| {
        let part = manifest.parts.iter().find(|part| part.stage == *stage);
        let members = part.map(|part| part.members).filter(|members| (1..=MEMBERS_MAX).contains(members));
        (*stage, members.unwrap_or(*now))
    };
    now.iter().map(then).collect()
}

/// The states of a stage's members as those of so many.
fn cut(
    stage: StageId,
    states: Vec<State>,
    members: u16,
    columns: impl Fn(&str) -> Option<Vec<usize>>,
) -> Result<Vec<State>> {
    let unfit = |what: String| {
        StreamError::invalid(format!(
            "the snapshot of stage {stage} cannot be regrouped: {what}; SET 'group-size' to what it was before"
        ))
    };
    // Instants follow from watermarks, which all members of a stage get.
    let marks = states.first().map(|state| state.marks.clone()).unwrap_or_default();
    if let Some(other) = states.iter().find(|state| state.marks != marks) {
        return Err(unfit(format!("expected all members at {marks:?}, got one at {:?}", other.marks)));
    }
    let mut cut = vec![State { marks, tables: Vec::new() }; usize::from(members)];
    for Table { name, at, rows, .. } in states.into_iter().flat_map(|state| state.tables) {
        let columns = columns(&name).filter(|columns| columns.iter().all(|column| *column < rows.num_columns()));
        let columns = columns.ok_or_else(|| unfit(format!("its rows {name:?} have no keys to be cut by")))?;
        let by_key = KeyCut::new(columns, rows.schema_ref())?;
        for (state, rows) in cut.iter_mut().zip(by_key.by_member(&rows, members)?) {
            if let Some(rows) = rows {
                state.put(&name, at, rows);
            }
        }
    }
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray as _, Int64Array, RecordBatch};
    use arrow::datatypes::Int64Type;

    use super::*;

    const STAGE: StageId = StageId(1);

    fn state(keys: impl IntoIterator<Item = i64>, closed: i64) -> State {
        let keys = Int64Array::from_iter_values(keys);
        let mut state = State { marks: BTreeMap::from([("closed".to_owned(), closed)]), ..State::default() };
        state.put("panes", [3, 7], RecordBatch::try_from_iter([("key", Arc::new(keys) as _)]).unwrap());
        state
    }

    fn keys(state: &State) -> Vec<i64> {
        let keys = |(at, rows): (&[i64; 2], &RecordBatch)| {
            assert_eq!(*at, [3, 7]);
            rows.column(0).as_primitive::<Int64Type>().values().to_vec()
        };
        state.of("panes").flat_map(keys).collect()
    }

    fn by_key(rows: &str) -> Option<Vec<usize>> {
        (rows == "panes").then(|| vec![0])
    }

    #[test]
    fn rows_go_to_the_members_that_own_their_keys() {
        let whole = cut(STAGE, vec![state(0..100, 5)], 1, by_key).unwrap();
        assert_eq!(keys(&whole[0]), (0..100).collect::<Vec<_>>());
        let three = cut(STAGE, whole, 3, by_key).unwrap();
        assert!(three.iter().all(|state| !keys(state).is_empty() && state.marks["closed"] == 5));
        // Whatever way leads there, a key has one owner.
        let five = cut(STAGE, three.clone(), 5, by_key).unwrap();
        let again = cut(STAGE, five, 3, by_key).unwrap();
        let sorted = |state: &State| {
            let mut keys = keys(state);
            keys.sort_unstable();
            keys
        };
        assert_eq!(again.iter().map(sorted).collect::<Vec<_>>(), three.iter().map(sorted).collect::<Vec<_>>());
    }

    #[test]
    fn states_that_cannot_be_cut_are_refused() {
        let refused =
            |states, columns: fn(&str) -> Option<Vec<usize>>| cut(STAGE, states, 2, columns).unwrap_err().to_string();
        let error = refused(vec![state(0..2, 5), state(2..4, 6)], by_key);
        assert!(error.contains("expected all members at"), "{error}");
        for columns in [(|_| None) as fn(&str) -> Option<Vec<usize>>, |_| Some(vec![1])] {
            let error = refused(vec![state(0..2, 5)], columns);
            assert!(error.contains("have no keys to be cut by"), "{error}");
        }
    }
}
