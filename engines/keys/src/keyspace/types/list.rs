//! A list of strings.

use std::collections::VecDeque;

use super::{Collection, collection_of};
use crate::delta::{Malformed, OpReader, OpWriter};
use crate::keyspace::Change;
use crate::keyspace::entry::Value;
use crate::short_bytes::ShortBytes;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where index 0 is.
    Left,
    /// Where index -1 is.
    Right,
}

/// A list of strings. Both ends and any index are reached at once.
#[derive(Clone, Debug, Default)]
pub struct List {
    elements: VecDeque<ShortBytes>,
    heap_bytes: usize,
}

const PUSH_LEFT: u8 = 1;
const PUSH_RIGHT: u8 = 2;
const POP_LEFT: u8 = 3;
const POP_RIGHT: u8 = 4;
const PUT: u8 = 5;
const INSERT: u8 = 6;
const REMOVE: u8 = 7;
const KEEP: u8 = 8;
const REMOVE_ALL: u8 = 9;

impl List {
    /// An element.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.elements.get(index).map(|element| &**element)
    }

    /// The elements from left to right.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.elements.iter().map(|element| &**element)
    }

    /// The elements of a range.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn range(&self, range: std::ops::Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        self.elements.range(range).map(|element| &**element)
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        size_of::<Self>() + self.heap_bytes + self.elements.len() * size_of::<ShortBytes>()
    }

    fn push(&mut self, end: End, element: &[u8]) {
        let element = ShortBytes::from(element);
        self.heap_bytes += element.heap_bytes();
        match end {
            End::Left => self.elements.push_front(element),
            End::Right => self.elements.push_back(element),
        }
    }

    fn pop(&mut self, end: End) -> Option<ShortBytes> {
        let element = match end {
            End::Left => self.elements.pop_front(),
            End::Right => self.elements.pop_back(),
        }?;
        self.heap_bytes -= element.heap_bytes();
        Some(element)
    }

    fn put(&mut self, index: usize, element: &[u8]) -> bool {
        let Some(mine) = self.elements.get_mut(index) else { return false };
        self.heap_bytes -= mine.heap_bytes();
        mine.assign(element);
        self.heap_bytes += mine.heap_bytes();
        true
    }

    fn insert(&mut self, index: usize, element: &[u8]) -> bool {
        if index > self.elements.len() {
            return false;
        }
        let element = ShortBytes::from(element);
        self.heap_bytes += element.heap_bytes();
        self.elements.insert(index, element);
        true
    }

    fn remove(&mut self, index: usize) -> bool {
        let Some(element) = self.elements.remove(index) else { return false };
        self.heap_bytes -= element.heap_bytes();
        true
    }

    /// Removes the elements at places in ascending order: one alone would move what is behind it, so all are left out at once.
    fn remove_all(&mut self, places: impl IntoIterator<Item = usize>) {
        let (mut places, mut gone) = (places.into_iter().peekable(), 0);
        let mut at = 0;
        self.elements.retain(|element| {
            let stays = places.next_if_eq(&at).is_none();
            at += 1;
            if !stays {
                gone += element.heap_bytes();
            }
            stays
        });
        self.heap_bytes -= gone;
    }

    fn keep(&mut self, start: usize, end: usize) {
        let end = end.min(self.elements.len());
        let start = start.min(end);
        for gone in self.elements.drain(end..).map(|e| e.heap_bytes()).collect::<Vec<_>>() {
            self.heap_bytes -= gone;
        }
        for gone in self.elements.drain(..start).map(|e| e.heap_bytes()).collect::<Vec<_>>() {
            self.heap_bytes -= gone;
        }
    }
}

impl<'a> FromIterator<&'a [u8]> for List {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(elements: I) -> Self {
        let mut list = Self::default();
        elements.into_iter().for_each(|element| list.push(End::Right, element));
        list
    }
}

impl Change<'_, List> {
    /// Puts an element at an end.
    pub fn push(&mut self, end: End, element: &[u8]) {
        self.value.push(end, element);
        self.log(|operations| {
            operations.tag(if end == End::Left { PUSH_LEFT } else { PUSH_RIGHT });
            operations.bytes(element);
        });
    }

    /// Takes an element from an end.
    pub fn pop(&mut self, end: End) -> Option<ShortBytes> {
        let element = self.value.pop(end)?;
        self.log(|operations| operations.tag(if end == End::Left { POP_LEFT } else { POP_RIGHT }));
        Some(element)
    }

    /// Writes over an element. Says whether it is there.
    pub fn put(&mut self, index: usize, element: &[u8]) -> bool {
        let there = self.value.put(index, element);
        if there {
            self.log(|operations| {
                operations.tag(PUT);
                operations.number(index as u64);
                operations.bytes(element);
            });
        }
        there
    }

    /// Puts an element before the one at `index`.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        if self.value.insert(index, element) {
            self.log(|operations| {
                operations.tag(INSERT);
                operations.number(index as u64);
                operations.bytes(element);
            });
        }
    }

    /// Removes the elements at these places, which are in ascending order.
    pub fn remove_all(&mut self, places: &[usize]) {
        if places.is_empty() {
            return;
        }
        self.value.remove_all(places.iter().copied());
        self.log(|operations| {
            operations.tag(REMOVE_ALL);
            operations.number(places.len() as u64);
            places.iter().for_each(|place| operations.number(*place as u64));
        });
    }

    /// Removes what is not in a range.
    pub fn keep(&mut self, range: std::ops::Range<usize>) {
        if range.start == 0 && range.end >= self.value.len() {
            return;
        }
        self.value.keep(range.start, range.end);
        self.log(|operations| {
            operations.tag(KEEP);
            operations.number(range.start as u64);
            operations.number(range.end as u64);
        });
    }
}

impl Collection for List {
    const TAG: u8 = 4;

    collection_of!(List);

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn apply(&mut self, operations: &mut OpReader<'_>) -> Result<(), Malformed> {
        while let Some(tag) = operations.tag() {
            match tag {
                PUSH_LEFT => self.push(End::Left, operations.bytes()?),
                PUSH_RIGHT => self.push(End::Right, operations.bytes()?),
                POP_LEFT => drop(self.pop(End::Left)),
                POP_RIGHT => drop(self.pop(End::Right)),
                PUT => {
                    let index = operations.number()? as usize;
                    self.put(index, operations.bytes()?);
                }
                INSERT => {
                    let index = operations.number()? as usize;
                    self.insert(index, operations.bytes()?);
                }
                REMOVE => drop(self.remove(operations.number()? as usize)),
                REMOVE_ALL => {
                    let count = operations.number()?;
                    // One by one: a count that is wrong takes no memory.
                    let mut places = Vec::new();
                    for _ in 0..count {
                        places.push(operations.number()? as usize);
                    }
                    self.remove_all(places);
                }
                KEEP => {
                    let start = operations.number()? as usize;
                    self.keep(start, operations.number()? as usize);
                }
                other => return Err(Malformed::operation("list", other)),
            }
        }
        Ok(())
    }

    fn write_whole(&self, operations: &mut OpWriter<'_>) {
        for element in self.iter() {
            operations.tag(PUSH_RIGHT);
            operations.bytes(element);
        }
    }
}
