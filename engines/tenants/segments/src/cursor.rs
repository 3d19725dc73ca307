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
}

impl Cursor {
    /// At the beginning of a range, or its end.
    #[must_use]
    pub fn new(segment: Arc<Segment>, range: Arc<KeyRange>, direction: Direction) -> Self {
        let next = match (direction, &range.end) {
            _ if segment.blocks() == 0 || range.is_empty() => None,
            (Direction::Ascending, _) => Some(segment.block_of(&range.start)),
            (Direction::Descending, Some(end)) => Some(segment.block_of(end)),
            (Direction::Descending, None) => Some(segment.blocks() - 1),
        };
        Self { segment, range, direction, next, block: None, groups: 0..0, entries: Entries::default(), left: 0..0 }
    }

    /// Goes to the next key; whether there is one.
    ///
    /// # Errors
    /// [`Missing`] if a block must be fetched first; the cursor stays where it is.
    pub fn step(&mut self, blocks: &mut impl Blocks) -> Result<bool, Missing> {
        match self.direction {
            Direction::Ascending => _ = self.left.next(),
            Direction::Descending => _ = self.left.next_back(),
        }
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
}

impl Merge {
    /// Of segments, newest first.
    #[must_use]
    pub fn new(segments: &[Arc<Segment>], range: &KeyRange, direction: Direction) -> Self {
        let range = Arc::new(range.clone());
        let cursor = |segment: &Arc<Segment>| Cursor::new(Arc::clone(segment), Arc::clone(&range), direction);
        let cursors: Vec<Cursor> = segments.iter().map(cursor).collect();
        Self { behind: vec![true; cursors.len()], cursors, direction, at: None }
    }

    /// Goes to the next key; whether there is one.
    ///
    /// # Errors
    /// [`ReadError::Missing`] if a block must be fetched first; asked again, it goes on from here.
    pub fn step(&mut self, blocks: &mut impl Blocks) -> Result<bool, ReadError> {
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
        Ok(self.at.is_some())
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
