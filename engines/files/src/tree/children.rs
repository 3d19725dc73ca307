//! The children of a directory in the order of their names' bytes.

use super::Slot;

/// A chunk that is longer is cut in two: a new name moves at most so many slots.
const CHUNK_MAX: usize = 512;

/// Slots in chunks, each in the order of names, none empty. Names are looked up in the slab.
#[derive(Debug, Default)]
pub(super) struct Children(Vec<Vec<Slot>>);

impl Children {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slots whose names come after one, in their order.
    pub(super) fn after<'s, 'a, N: Fn(Slot) -> &'a [u8]>(
        &'s self,
        after: &[u8],
        name: N,
    ) -> impl Iterator<Item = Slot> + use<'s, 'a, N> {
        let chunk = self.chunk_of(after, &name);
        let first = self.0.get(chunk);
        let within = first.map_or(0, |slots| slots.partition_point(|slot| name(*slot) <= after));
        let rest = self.0.iter().skip(chunk + 1).flatten();
        first.map(|slots| &slots[within..]).into_iter().flatten().chain(rest).copied()
    }

    /// How many slots' names come after one.
    pub(super) fn count_after<'a>(&self, after: &[u8], name: impl Fn(Slot) -> &'a [u8]) -> usize {
        let chunk = self.chunk_of(after, &name);
        let first =
            self.0.get(chunk).map_or(0, |slots| slots.len() - slots.partition_point(|slot| name(*slot) <= after));
        first + self.0.iter().skip(chunk + 1).map(Vec::len).sum::<usize>()
    }

    /// Puts a slot in the place of its name.
    pub(super) fn insert<'a>(&mut self, slot: Slot, name: impl Fn(Slot) -> &'a [u8]) {
        let new = name(slot);
        let chunk = self.chunk_of(new, &name);
        let Some(slots) = self.0.get_mut(chunk) else {
            self.0.push(vec![slot]);
            return;
        };
        let place = slots.partition_point(|other| name(*other) < new);
        slots.insert(place, slot);
        if slots.len() > CHUNK_MAX {
            // Names that come in their order fill chunks.
            let keep = if place == CHUNK_MAX { CHUNK_MAX } else { CHUNK_MAX / 2 };
            let rest = slots.split_off(keep);
            slots.shrink_to(CHUNK_MAX);
            self.0.insert(chunk + 1, rest);
        }
    }

    /// Takes a slot out, whose name is still known.
    pub(super) fn remove<'a>(&mut self, slot: Slot, name: impl Fn(Slot) -> &'a [u8]) {
        let old = name(slot);
        let chunk = self.chunk_of(old, &name);
        let Some(slots) = self.0.get_mut(chunk) else { return };
        let place = slots.partition_point(|other| name(*other) < old);
        if slots.get(place) == Some(&slot) {
            slots.remove(place);
        }
        if slots.is_empty() {
            self.0.remove(chunk);
        }
    }

    /// The chunk that a name belongs into: the last one that begins at or before it.
    fn chunk_of<'a>(&self, wanted: &[u8], name: &impl Fn(Slot) -> &'a [u8]) -> usize {
        let later = self.0.partition_point(|slots| slots.first().is_some_and(|first| name(*first) <= wanted));
        later.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn children_are_in_the_order_of_their_names_and_paged_from_any() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let names: Vec<Vec<u8>> = (0..5_000_u32).map(|n| n.to_be_bytes()[1..].to_vec()).collect();
        let name = |slot: Slot| names[slot as usize].as_slice();
        let (mut children, mut model) = (Children::default(), BTreeSet::new());
        for _ in 0..20_000 {
            let slot = random.random_range(0..5_000);
            if model.insert(slot) {
                children.insert(slot, name);
            } else {
                model.remove(&slot);
                children.remove(slot, name);
            }
        }
        assert_eq!(children.is_empty(), model.is_empty());
        for after in [0, 1, 17, 2_500, 4_999] {
            let expected: Vec<Slot> = model.range(after + 1..).copied().collect();
            assert_eq!(children.after(name(after), name).collect::<Vec<_>>(), expected, "behind {after}");
            assert_eq!(children.count_after(name(after), name), expected.len());
        }
        assert_eq!(children.after(b"", name).collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
        assert!(children.0.iter().all(|slots| !slots.is_empty() && slots.len() <= CHUNK_MAX));
    }
}
