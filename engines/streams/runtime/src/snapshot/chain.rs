//! What of a state is written: all of it, or what has changed since the snapshot that counts.
//!
//! ```text
//!   part of a member:  whole <- changes <- changes <- changes      names, lengths and checksums are in the manifest
//!                      whole <- all of these, and the next ones     when there are many
//!                      whole                                        when they are as large, most of what is there is gone, or there
//!                                                                   were so many snapshots since the last one
//! ```
//!
//! The parts of a snapshot are told when it counts, and not before: what one was to have that was given up is told with the next one.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::{Changes, MemberPart, Part, PartFile, Pieces, State, write_changes, write_state};

/// So many changes follow a whole state at most.
const CHANGES_MAX: usize = 16;
/// A part is whole again after so many snapshots at most, so that what lies in the store grows never older than that; and after half as many
/// at least if only this is why.
const WHOLE_AFTER: usize = 128;

/// What of a state is to be written.
#[derive(Debug)]
pub enum Written {
    /// All of it.
    Whole,
    /// What has become of it since the snapshot that counts.
    Changes(Changes),
    /// What has become of it since it was written as a whole, in the place of all changes since.
    AllChanges(Changes),
}

impl Written {
    /// # Errors
    /// As `out`.
    pub fn write(&self, state: &State, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Whole => write_state(state, out),
            Self::Changes(changes) | Self::AllChanges(changes) => write_changes(changes, out),
        }
    }
}

/// The part of a member, and what its state consisted of.
#[derive(Clone, Debug)]
struct Chain {
    part: Part,
    /// Of the whole state.
    base: Known,
    /// Of the state.
    last: Known,
    /// How many snapshots have followed that in which it was whole.
    followed: usize,
}

/// What of a state is known.
#[derive(Clone, Debug)]
struct Known {
    /// None if nothing can be told but the whole.
    pieces: Option<Arc<Pieces>>,
    /// How many rows are in the files up to this one.
    rows: usize,
}

impl Known {
    /// What has become of it, if at most so many rows are read then.
    fn until(&self, state: &State, rows: usize) -> Option<Changes> {
        let changes = self.pieces.as_ref()?.until(state)?;
        (self.rows + changes.rows() < rows).then_some(changes)
    }
}

/// The parts of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Chains(BTreeMap<MemberPart, Chain>);

impl Chains {
    /// What is to be written of a member's state for a snapshot that follows this one, which counts.
    pub fn next(&self, member: MemberPart, state: &State) -> Written {
        self.0.get(&member).and_then(|chain| chain.next(state)).unwrap_or(Written::Whole)
    }

    /// Adds the part of a member, which has this state: it follows that of the snapshot `before`, if it is not the whole.
    pub fn add(
        &mut self,
        before: &Self,
        member: MemberPart,
        members: u16,
        state: &State,
        written: &Written,
        file: PartFile,
    ) {
        let (stage, shuffle) = member;
        let pieces = Pieces::of(state).map(Arc::new);
        let known = |rows| Known { pieces, rows };
        let chain = match (written, before.0.get(&member).cloned()) {
            (Written::Changes(changes), Some(mut former)) => {
                former.part.changes.push(file);
                former.part.gives = Some(changes.gives);
                let last = known(former.last.rows + changes.rows());
                Chain { last, followed: former.followed + 1, ..former }
            }
            (Written::AllChanges(changes), Some(mut former)) => {
                former.part.changes = vec![file];
                former.part.gives = Some(changes.gives);
                let last = known(former.base.rows + changes.rows());
                Chain { last, followed: former.followed + 1, ..former }
            }
            _ => {
                let known = known(rows_of(state));
                let gives = known.pieces.as_ref().map(|pieces| pieces.sum());
                let part = Part { gives, ..Part::whole(stage, shuffle, members, file) };
                Chain { part, base: known.clone(), last: known, followed: 0 }
            }
        };
        self.0.insert(member, chain);
    }

    /// Its parts.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.0.values().map(|chain| &chain.part)
    }
}

impl Chain {
    /// What of the state is written as changes; nothing if it is better to write all of it, so that what is read is at most about twice what
    /// is kept.
    fn next(&self, state: &State) -> Option<Written> {
        let Part { bytes, changes, .. } = &self.part;
        let changed: u64 = changes.iter().map(|file| file.bytes).sum();
        if changed >= *bytes || self.followed >= self.whole_after() {
            return None;
        }
        let rows = 2 * rows_of(state).max(1);
        match changes.len() < CHANGES_MAX {
            true => self.last.until(state, rows).map(Written::Changes),
            false => self.base.until(state, rows).map(Written::AllChanges),
        }
    }

    /// After how many snapshots it is whole again. Members that began together are not so together.
    fn whole_after(&self) -> usize {
        let Part { shuffle, members, .. } = self.part;
        let half = WHOLE_AFTER / 2;
        half + half * (usize::from(shuffle) + 1) / usize::from(members.max(1))
    }
}

fn rows_of(state: &State) -> usize {
    state.tables.iter().map(|table| table.rows.num_rows()).sum()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use savanna_streams_api::ids::StageId;

    use super::*;
    use crate::snapshot::Piece;

    const MEMBER: MemberPart = (StageId(1), 0);

    fn pieces(count: i64) -> Vec<Piece> {
        let piece = |number| {
            let rows: ArrayRef = Arc::new(Int64Array::from(vec![number; 10]));
            Piece::new(RecordBatch::try_from_iter([("n", rows)]).unwrap())
        };
        (0..count).map(piece).collect()
    }

    fn state(pieces: &[Piece]) -> State {
        let mut state = State::default();
        pieces.iter().for_each(|piece| state.put_piece("n", [0; 2], piece));
        state
    }

    /// The next snapshot, whose file has so many bytes, and whether it is whole.
    fn next(before: &Chains, state: &State, bytes: u64) -> (Chains, bool) {
        let (written, mut next) = (before.next(MEMBER, state), Chains::default());
        next.add(before, MEMBER, 1, state, &written, PartFile { name: String::new(), bytes, checksum: 0 });
        (next, matches!(written, Written::Whole))
    }

    /// Snapshots of these pieces, one behind the other: how many changes come before the first that is whole again.
    fn changes(all: &[Piece], windows: impl Iterator<Item = Range<usize>>, bytes: u64) -> usize {
        let mut windows = windows;
        let (mut chains, is_whole) = next(&Chains::default(), &state(&all[windows.next().unwrap()]), 1_000);
        assert!(is_whole, "the first one");
        for (changes, window) in windows.enumerate() {
            let is_whole;
            (chains, is_whole) = next(&chains, &state(&all[window]), bytes);
            let files: Vec<usize> = chains.parts().map(|part| part.files().count()).collect();
            assert_eq!(files, [if is_whole { 1 } else { changes + 2 }]);
            if is_whole {
                return changes;
            }
        }
        panic!("it is never whole");
    }

    #[test]
    fn a_part_is_whole_again_when_its_changes_are_as_large_or_most_of_what_is_read_is_gone() {
        let all = pieces(300);
        assert_eq!(changes(&all, (100..).map(|end| 0..end), 500), 2, "as large as the whole");
        assert_eq!(
            changes(&all, (0..).map(|first| first * 30..100 + first * 30), 1),
            3,
            "most of what is read is gone"
        );
        assert_eq!(changes(&all, (0..).map(|first| first * 30..100), 1), 1, "most of it is gone, and nothing has come");
        assert_eq!(
            changes(&all, (0..).map(|number| number * 100..number * 100 + 100), 1),
            0,
            "all of it is other rows"
        );
    }

    #[test]
    fn many_changes_become_one() {
        let all = pieces(200);
        let (mut chains, mut most) = (next(&Chains::default(), &state(&all[..100]), 1_000).0, 0);
        for end in 101..150 {
            let is_whole;
            (chains, is_whole) = next(&chains, &state(&all[..end]), 1);
            assert!(!is_whole, "little of it has changed");
            most = most.max(chains.parts().map(|part| part.changes.len()).sum());
            // It has come to be one of all since the whole, or one more.
            let rows = chains.0[&MEMBER].last.rows;
            assert_eq!(rows, end * 10);
        }
        assert_eq!((most, chains.0[&MEMBER].part.changes.len()), (CHANGES_MAX, 49 % CHANGES_MAX));
    }

    #[test]
    fn a_part_is_whole_again_after_so_many_snapshots_although_little_of_it_changes_and_not_with_all_others() {
        let all = pieces(400);
        let mut after = Vec::new();
        for shuffle in 0..4 {
            let member = (StageId(1), shuffle);
            let (mut chains, mut wholes) = (Chains::default(), Vec::new());
            for number in 0..300 {
                let state = state(&all[..100 + number]);
                let (written, mut next) = (chains.next(member, &state), Chains::default());
                let file =
                    PartFile { name: number.to_string(), bytes: 1_000 - 999 * u64::from(number > 0), checksum: 0 };
                next.add(&chains, member, 4, &state, &written, file);
                chains = next;
                // Else its changes would be as large as what is whole now, by what this says of lengths.
                if matches!(written, Written::Whole) {
                    chains.0.values_mut().for_each(|chain| chain.part.bytes = 1_000);
                    wholes.push(number);
                }
            }
            assert!(wholes.windows(2).all(|pair| pair[1] - pair[0] <= WHOLE_AFTER + 1), "{wholes:?}");
            after.push(wholes[1]);
        }
        assert_eq!(after, [81, 97, 113, 129]);
    }

    #[test]
    fn rows_that_are_no_piece_are_written_whole() {
        let mut without = state(&pieces(3));
        without.put("n", [0; 2], pieces(1)[0].rows().clone());
        let (chains, _) = next(&Chains::default(), &without, 1_000);
        assert!(next(&chains, &without, 1).1);
        assert!(next(&chains, &state(&pieces(3)), 1).1);
    }
}
