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

/// A member's part of the next snapshot: what of its state is to be written.
#[derive(Debug)]
pub struct Next<'s> {
    member: MemberPart,
    members: u16,
    state: &'s State,
    pieces: Option<Arc<Pieces>>,
    /// What has become of the state, and the chain that it is told behind. Without these, all of it is written.
    behind: Option<(Chain, Changes)>,
}

impl Next<'_> {
    /// Whether it is all of the state.
    pub fn is_whole(&self) -> bool {
        self.behind.is_none()
    }

    /// # Errors
    /// As `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.behind {
            None => write_state(self.state, out),
            Some((_, changes)) => write_changes(changes, out),
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

/// The parts of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Chains(BTreeMap<MemberPart, Chain>);

impl Chains {
    /// What is to be written of the state of a member, of so many, for a snapshot that follows this one, which counts.
    pub fn next<'s>(&self, member: MemberPart, members: u16, state: &'s State) -> Next<'s> {
        let pieces = Pieces::of(state).map(Arc::new);
        let chain = self.0.get(&member);
        let behind = pieces.as_ref().and_then(|now| chain?.next(state, now));
        Next { member, members, state, pieces, behind }
    }

    /// Adds the part of a member, which is in this file.
    pub fn add(&mut self, next: Next<'_>, file: PartFile) {
        let Next { member, members, state, pieces, behind } = next;
        let chain = match behind {
            Some((mut chain, changes)) => {
                chain.part.changes.push(file);
                chain.part.gives = Some(changes.gives);
                let last = Known { pieces, rows: chain.last.rows + changes.rows() };
                Chain { last, followed: chain.followed + 1, ..chain }
            }
            None => {
                let gives = pieces.as_ref().map(|pieces| pieces.sum());
                let known = Known { pieces, rows: rows_of(state) };
                let part = Part { gives, ..Part::whole(member.0, member.1, members, file) };
                Chain { part, base: known.clone(), last: known, followed: 0 }
            }
        };
        self.0.insert(member, chain);
    }

    /// Memory of what is known of the states, in bytes: which pieces they have, and which of their rows are marked.
    pub(crate) fn bytes(&self) -> usize {
        self.0.values().map(Chain::bytes).sum()
    }

    /// Its parts.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.0.values().map(|chain| &chain.part)
    }
}

impl Chain {
    /// What has become of the state, and the chain that it is told behind; nothing if it is better to write all of it, so that what is read
    /// is at most about twice what is kept.
    fn next(&self, state: &State, now: &Pieces) -> Option<(Self, Changes)> {
        let Part { bytes, changes, .. } = &self.part;
        let changed: u64 = changes.iter().map(|file| file.bytes).sum();
        if changed >= *bytes || self.followed >= self.whole_after() {
            return None;
        }
        let chain = if changes.len() < CHANGES_MAX { self.clone() } else { self.without_changes() };
        let changes = chain.last.pieces.as_ref()?.until(state, now)?;
        let rows = chain.last.rows + changes.rows();
        (rows < 2 * rows_of(state).max(1)).then_some((chain, changes))
    }

    fn bytes(&self) -> usize {
        let last = self.last.pieces.iter();
        // One that is whole is both.
        let base = self.base.pieces.iter().filter(|base| !last.clone().any(|last| Arc::ptr_eq(base, last)));
        last.clone().chain(base).map(|pieces| pieces.bytes()).sum()
    }

    /// As it was when the state was whole: what is told next is all since.
    fn without_changes(&self) -> Self {
        let mut chain = Self { last: self.base.clone(), ..self.clone() };
        chain.part.changes.clear();
        chain
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
        let (next, mut chains) = (before.next(MEMBER, 1, state), Chains::default());
        let is_whole = next.is_whole();
        chains.add(next, PartFile { name: String::new(), bytes, checksum: 0 });
        (chains, is_whole)
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
                let (next, mut added) = (chains.next(member, 4, &state), Chains::default());
                let is_whole = next.is_whole();
                let file =
                    PartFile { name: number.to_string(), bytes: 1_000 - 999 * u64::from(number > 0), checksum: 0 };
                added.add(next, file);
                chains = added;
                // Else its changes would be as large as what is whole now, by what this says of lengths.
                if is_whole {
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
