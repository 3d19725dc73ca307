//! Snapshots of one member, in memory, each of which follows the one that counts.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_streams_api::ids::StageId;
use savanna_streams_runtime::snapshot::{Chains, MemberPart, Part, PartFile, State, Table};

const MEMBER: MemberPart = (StageId(1), 0);

/// The snapshots of a process.
#[derive(Default)]
pub(crate) struct Followed {
    /// Of the one that counts.
    chains: Chains,
    files: BTreeMap<String, Vec<u8>>,
    /// Of each that was written: whether it is all of the state, and its length.
    pub(crate) written: Vec<(bool, usize)>,
}

impl Followed {
    /// Writes the next one, and reads it as a process does that goes on from it. If it is given up, the next one follows the one before.
    pub(crate) fn snapshot(&mut self, state: &State, counts: bool) -> State {
        let (part, mut bytes) = (self.chains.next(MEMBER, 1, state), Vec::new());
        part.write(&mut bytes).unwrap();
        let file = PartFile { name: self.written.len().to_string(), bytes: bytes.len() as u64, checksum: 0 };
        self.written.push((part.is_whole(), bytes.len()));
        self.files.insert(file.name.clone(), bytes);
        let mut next = Chains::default();
        next.add(part, file);
        let read = self.read(next.parts().next().unwrap());
        assert_same(&read, state);
        if counts {
            self.chains = next;
        }
        let named: Vec<String> = self.chains.parts().flat_map(Part::files).map(|file| file.name).collect();
        self.files.retain(|name, _| named.contains(name));
        read
    }

    fn read(&self, part: &Part) -> State {
        part.read(|file| Ok(self.files[&file.name].clone())).unwrap()
    }
}

/// What was read is what was handed out, in the order that counts: that of the pieces of one kind that belong together.
fn assert_same(read: &State, handed: &State) {
    assert_eq!(read.marks, handed.marks);
    let sorted = |state: &State| {
        let mut tables = state.tables.clone();
        tables.sort_by_key(|table| (table.name.clone(), table.at));
        tables.into_iter().map(|Table { name, at, rows, piece, .. }| (name, at, piece, rows)).collect::<Vec<_>>()
    };
    assert_eq!(sorted(read), sorted(handed));
}

/// An operator, and what is done with it.
pub(crate) struct Operator<'a, S, I, O> {
    pub(crate) new: &'a dyn Fn() -> S,
    pub(crate) apply: &'a dyn Fn(&mut S, &I) -> O,
    pub(crate) state: &'a dyn Fn(&mut S) -> State,
    pub(crate) restore: &'a dyn Fn(&mut S, &State),
}

/// How many snapshots of all were changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) changes: usize,
    pub(crate) wholes: usize,
    pub(crate) crashes: usize,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.changes += other.changes;
        self.wholes += other.wholes;
        self.crashes += other.crashes;
    }
}

impl<S, I, O: PartialEq + std::fmt::Debug> Operator<'_, S, I, O> {
    /// Does the same with one that is never disturbed and with one that ends and goes on from its last snapshot that counts, over and over:
    /// in each step, what comes out is the same.
    pub(crate) fn survives(&self, seed: u64, steps: &[I]) -> Seen {
        let mut undisturbed = (self.new)();
        let expected: Vec<O> = steps.iter().map(|step| (self.apply)(&mut undisturbed, step)).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut here, mut followed, mut at) = ((self.new)(), Followed::default(), 0);
        let (mut counts, mut seen): (Option<(usize, State)>, Seen) = (None, Seen::default());
        while at < steps.len() {
            let out = (self.apply)(&mut here, &steps[at]);
            assert_eq!(out, expected[at], "seed {seed}, step {at}, behind {:?}", counts.as_ref().map(|(at, _)| at));
            at += 1;
            if rng.random_ratio(2, 3) {
                let is_complete = rng.random_ratio(2, 3);
                let read = followed.snapshot(&(self.state)(&mut here), is_complete);
                if is_complete {
                    counts = Some((at, read));
                }
            }
            if seen.crashes < 6 && rng.random_ratio(1, 8) {
                seen += seen_of(&followed);
                seen.crashes += 1;
                (here, followed) = ((self.new)(), Followed::default());
                at = counts.as_ref().map_or(0, |(at, _)| *at);
                counts.iter().for_each(|(_, state)| (self.restore)(&mut here, state));
            }
        }
        seen += seen_of(&followed);
        seen
    }
}

fn seen_of(followed: &Followed) -> Seen {
    let wholes = followed.written.iter().filter(|(is_whole, _)| *is_whole).count();
    Seen { changes: followed.written.len() - wholes, wholes, crashes: 0 }
}
