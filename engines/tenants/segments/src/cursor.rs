//! Several segments as one: of each key what the newest says.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use bytes::Bytes;
use savanna_transaction::{Direction, KeyRange};

use crate::{
    PageId,
    block::{Block, Entries},
    error::{Missing, ReadError},
    filter::KeyHash,
    segment::Segment,
};

/// Where blocks come from.
pub trait Blocks {
    /// A block, if it is in memory.
    fn block(&mut self, page: PageId) -> Option<Arc<Block>>;
}

impl<F: FnMut(PageId) -> Option<Arc<Block>>> Blocks for F {
    fn block(&mut self, page: PageId) -> Option<Arc<Block>> {
        self(page)
    }
}

/// What segments say of a key: nothing, that it went, or its value. They are given newest first.
///
/// # Errors
/// [`Missing`] if a block must be fetched first.
pub fn get(segments: &[Arc<Segment>], key: &[u8], blocks: &mut impl Blocks) -> Result<Option<Option<Bytes>>, Missing> {
    let hash = KeyHash::of(key);
    for segment in segments {
        if !segment.may_contain(hash) {
            continue;
        }
        let page = segment.page(segment.block_of(key));
        let block = blocks.block(page).ok_or(Missing(page))?;
        if let Some(found) = block.get(key) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The keys of one segment in a range.
#[derive(Debug)]
pub struct Cursor {
    segment: Arc<Segment>,
    range: Arc<KeyRange>,
    direction: Direction,
    /// The block that comes next.
    next: Option<u32>,
    block: Option<Arc<Block>>,
    /// Groups of the block that are still to come.
    groups: Range<usize>,
    /// The group that is read.
    entries: Entries,
    /// Entries of the group that are still to come.
    left: Range<usize>,
    /// How many these were in the beginning.
    entered: usize,
}

impl Cursor {
    /// At the beginning of a range, or its end.
    #[must_use]
    pub fn new(segment: Arc<Segment>, range: Arc<KeyRange>, direction: Direction) -> Self {
        let ends_before = |first: &[u8]| range.end.as_ref().is_some_and(|end| end.as_slice() <= first);
        let next = match (direction, &range.end) {
            // Without blocks there is no first key.
            _ if range.is_empty() || segment.first_key(0).is_none_or(ends_before) => None,
            (Direction::Ascending, _) => Some(segment.block_of(&range.start)),
            (Direction::Descending, Some(end)) => Some(segment.block_of(end)),
            (Direction::Descending, None) => Some(segment.blocks() - 1),
        };
        let entries = Entries::default();
        Self { segment, range, direction, next, block: None, groups: 0..0, entries, left: 0..0, entered: 0 }
    }

    /// Goes to the next key; whether there is one.
    ///
    /// # Errors
    /// [`Missing`] if a block must be fetched first; the cursor stays where it is.
    pub fn step(&mut self, blocks: &mut impl Blocks) -> Result<bool, Missing> {
        self.pass();
        while self.left.is_empty() {
            let group = match self.direction {
                Direction::Ascending => self.groups.next(),
                Direction::Descending => self.groups.next_back(),
            };
            if let Some(group) = group {
                self.enter_group(group);
                continue;
            }
            let Some(next) = self.next else {
                self.block = None;
                return Ok(false);
            };
            let page = self.segment.page(next);
            let Some(block) = blocks.block(page) else {
                // Asked again, it finds the same block missing.
                self.block = None;
                return Err(Missing(page));
            };
            self.enter(next, block);
        }
        Ok(true)
    }

    /// Goes on in the group that it is in.
    fn pass(&mut self) {
        match self.direction {
            Direction::Ascending => _ = self.left.next(),
            Direction::Descending => _ = self.left.next_back(),
        }
    }

    fn enter(&mut self, number: u32, block: Arc<Block>) {
        let last = self.range.end.as_ref().map_or_else(|| block.groups(), |end| block.group_of(end) + 1);
        self.groups = block.group_of(&self.range.start)..last.min(block.groups());
        self.next = match self.direction {
            Direction::Ascending => Some(number + 1).filter(|next| {
                let first = self.segment.first_key(*next);
                first.is_some_and(|first| self.range.end.as_ref().is_none_or(|end| first < end.as_slice()))
            }),
            Direction::Descending => {
                let begins = self.segment.first_key(number).is_some_and(|first| first <= self.range.start.as_slice());
                number.checked_sub(1).filter(|_| !begins)
            }
        };
        self.block = Some(block);
    }

    fn enter_group(&mut self, group: usize) {
        let Self { block: Some(block), range, entries, .. } = self else { return };
        block.read_group(group, entries);
        // Most groups are as a whole in a range: the first and the last key tell.
        let last = entries.len().saturating_sub(1);
        let begins = entries.len() > 0 && entries.key(0) >= range.start.as_slice();
        let first = if begins { 0 } else { entries.place_of(&range.start) };
        let end = match &range.end {
            Some(end) if entries.len() > 0 && entries.key(last) >= end.as_slice() => entries.place_of(end),
            _ => entries.len(),
        };
        self.left = first..end.max(first);
        self.entered = self.left.len();
    }

    /// The entry that the cursor is at.
    fn place(&self) -> Option<usize> {
        match self.direction {
            _ if self.left.is_empty() => None,
            Direction::Ascending => Some(self.left.start),
            Direction::Descending => Some(self.left.end - 1),
        }
    }

    /// The key that it is at.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.place().map(|at| self.entries.key(at))
    }

    /// At the first key of a group, the last one that it has of it, and how many come up to there.
    fn group_ahead(&self) -> Option<(&[u8], usize)> {
        if self.left.is_empty() || self.left.len() < self.entered {
            return None;
        }
        let last = match self.direction {
            Direction::Ascending => self.left.end - 1,
            Direction::Descending => self.left.start,
        };
        Some((self.entries.key(last), self.left.len() - 1))
    }

    /// That key's value, or `None` if it goes.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        let place = self.entries.value(self.place()?)?;
        Some(&self.block.as_ref()?.bytes()[place])
    }
}

/// The keys of several segments in a range, each once, as the newest of them says. Keys that go are among them.
#[derive(Debug)]
pub struct Merge {
    /// Newest first.
    cursors: Vec<Cursor>,
    direction: Direction,
    /// Cursors that must step before there is a next key.
    behind: Vec<bool>,
    at: Option<usize>,
    /// So many keys of the cursor that it is at are next, before all that others have: these are not compared.
    run: usize,
}

impl Merge {
    /// Of segments, newest first.
    #[must_use]
    pub fn new(segments: &[Arc<Segment>], range: &KeyRange, direction: Direction) -> Self {
        let range = Arc::new(range.clone());
        let cursor = |segment: &Arc<Segment>| Cursor::new(Arc::clone(segment), Arc::clone(&range), direction);
        let cursors: Vec<Cursor> = segments.iter().map(cursor).collect();
        Self { behind: vec![true; cursors.len()], cursors, direction, at: None, run: 0 }
    }

    /// Goes to the next key; whether there is one.
    ///
    /// # Errors
    /// [`ReadError::Missing`] if a block must be fetched first; asked again, it goes on from here.
    pub fn step(&mut self, blocks: &mut impl Blocks) -> Result<bool, ReadError> {
        if let (Some(at), 1..) = (self.at, self.run) {
            self.run -= 1;
            self.cursors[at].pass();
            return Ok(true);
        }
        for (cursor, behind) in self.cursors.iter_mut().zip(&mut self.behind) {
            if *behind {
                cursor.step(blocks)?;
                *behind = false;
            }
        }
        let mut first: Option<(usize, &[u8])> = None;
        for (at, cursor) in self.cursors.iter().enumerate() {
            let Some(key) = cursor.key() else { continue };
            let order = first.map_or(Ordering::Less, |(_, other)| match self.direction {
                Direction::Ascending => key.cmp(other),
                Direction::Descending => other.cmp(key),
            });
            match order {
                Ordering::Less => {
                    self.behind[..at].fill(false);
                    self.behind[at] = true;
                    first = Some((at, key));
                }
                Ordering::Equal => self.behind[at] = true,
                Ordering::Greater => {}
            }
        }
        self.at = first.map(|(at, _)| at);
        self.run = self.run_of_group();
        Ok(self.at.is_some())
    }

    /// At the first key of a group, how many more of it come before all that the others have, if the whole group does. Asked once in a group, it costs
    /// little where keys of segments alternate.
    fn run_of_group(&self) -> usize {
        let Some((at, (last, count))) = self.at.and_then(|at| Some((at, self.cursors[at].group_ahead()?))) else {
            return 0;
        };
        let others = self.cursors.iter().enumerate().filter(|(other, _)| *other != at);
        let is_before = |key: &[u8]| match self.direction {
            Direction::Ascending => last < key,
            Direction::Descending => last > key,
        };
        if others.filter_map(|(_, cursor)| cursor.key()).all(is_before) { count } else { 0 }
    }

    /// The key that it is at.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.cursors[self.at?].key()
    }

    /// That key's value, or `None` if it goes.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.cursors[self.at?].value()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::Bytes;
    use savanna_transaction::Csn;

    use super::*;
    use crate::{SegmentBuilder, open_tail};

    /// Segments of these keys, newest first, with their blocks.
    fn segments(keys: &[Vec<u32>]) -> (Vec<Arc<Segment>>, HashMap<PageId, Arc<Block>>) {
        let mut blocks = HashMap::new();
        let segments = (1..).zip(keys).map(|(number, keys)| {
            let mut builder = SegmentBuilder::default();
            for key in keys {
                builder.add(&key.to_be_bytes(), Some(&number.to_string().into_bytes()));
            }
            let bytes: Bytes = builder.finish(Csn(0), Csn(1));
            let segment = open_tail(number, bytes.len() as u64, &bytes).expect("a segment").expect("all of it");
            let all = 0..segment.blocks();
            let range = segment.range(all.clone());
            let cut = segment.cut(all.clone(), &bytes.slice(range.start as usize..range.end as usize)).expect("blocks");
            blocks.extend(all.map(|block| segment.page(block)).zip(cut.into_iter().map(Arc::new)));
            Arc::new(segment)
        });
        (segments.collect(), blocks)
    }

    /// Reads all of segments; in how many steps keys of different segments were compared.
    fn compared(keys: &[Vec<u32>], direction: Direction) -> usize {
        let (segments, blocks) = segments(keys);
        let mut merge = Merge::new(&segments, &KeyRange::ALL, direction);
        let (mut found, mut compared) = (Vec::new(), 0);
        loop {
            compared += usize::from(merge.run == 0);
            if !merge.step(&mut |page| blocks.get(&page).map(Arc::clone)).expect("all blocks are there") {
                break;
            }
            let key = merge.key().and_then(|key| key.try_into().ok()).map(u32::from_be_bytes).expect("a number");
            let newest = keys.iter().position(|keys| keys.contains(&key)).map(|at| (at + 1).to_string().into_bytes());
            assert_eq!(merge.value().map(<[u8]>::to_vec), newest, "{key}");
            found.push(key);
        }
        let mut expected: Vec<u32> = keys.concat();
        expected.sort_unstable();
        expected.dedup();
        if direction == Direction::Descending {
            expected.reverse();
        }
        assert_eq!(found, expected);
        compared
    }

    #[test]
    fn keys_of_a_group_are_compared_with_those_of_others_once_if_all_of_it_comes_before_them() {
        let range = |keys: Range<u32>| keys.collect::<Vec<u32>>();
        for direction in [Direction::Ascending, Direction::Descending] {
            let alone = compared(&[range(0..1_280)], direction);
            let behind = compared(&[range(640..1_280), range(0..640)], direction);
            assert_eq!((alone, behind), (81, 81), "80 groups of 16 keys, and the end");
            // In 12 of the groups one of the keys is in the other segment, too.
            let few = compared(&[(0..12).map(|at| at * 100 + 50).collect(), range(0..1_280)], direction);
            assert_eq!(few, 68 + 12 * 16 + 1);
            let turns = [(0..640).map(|at| at * 2).collect(), (0..640).map(|at| at * 2 + 1).collect()];
            assert_eq!(compared(&turns, direction), 1_281);
        }
    }

    #[test]
    fn a_segment_behind_a_range_is_not_read() {
        let (segments, _) = segments(&[(100..200).collect(), Vec::new()]);
        let key = |number: u32| number.to_be_bytes().to_vec();
        for direction in [Direction::Ascending, Direction::Descending] {
            let step = |start, end| {
                Merge::new(&segments, &KeyRange { start, end }, direction).step(&mut |_: PageId| None::<Arc<Block>>)
            };
            assert!(matches!(step(key(0), Some(key(100))), Ok(false)));
            assert!(matches!(step(key(0), Some(key(101))), Err(ReadError::Missing(_))));
            assert!(matches!(step(key(0), None), Err(ReadError::Missing(_))));
        }
    }
}
