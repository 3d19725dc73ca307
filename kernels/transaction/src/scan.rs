//! A range as a transaction sees it: what is stored, under what it has written itself.

use std::{cell::Cell, cmp::Ordering, iter::Peekable};

use crate::{
    Csn, KeyRange, Seen,
    row::Key,
    versions::Versions,
    writes::{Write, WriteSet},
};

/// From which end a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key up.
    Ascending,
    /// From the largest key down.
    Descending,
}

type Ahead<'a, T> = Peekable<Box<dyn Iterator<Item = T> + 'a>>;

/// The keys of a range in order, with what is seen of each. Deleted keys are among them, because the storage below may
/// still have them, and so are keys of which only the storage below knows a version that is old enough.
pub struct Scan<'a, V> {
    direction: Direction,
    own: Ahead<'a, &'a Write<V>>,
    stored: Ahead<'a, (&'a Key, &'a u32)>,
    versions: &'a Versions<V>,
    snapshot: Csn,
    durable: Csn,
    reply_after: &'a Cell<Csn>,
}

impl<'a, V> Scan<'a, V> {
    pub(crate) fn new(
        versions: &'a Versions<V>,
        (writes, mark): (&'a WriteSet<V>, usize),
        range: &KeyRange,
        direction: Direction,
        (snapshot, durable): (Csn, Csn),
        reply_after: &'a Cell<Csn>,
    ) -> Self {
        let (own, stored) = (from(direction, writes.range(range, mark)), from(direction, versions.range(range)));
        Self { direction, own, stored, versions, snapshot, durable, reply_after }
    }
}

impl<'a, V> Iterator for Scan<'a, V> {
    type Item = (&'a [u8], Seen<'a, V>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.own.peek(), self.stored.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(own), Some((key, _))) => match self.direction {
                Direction::Ascending => own.key.cmp(key),
                Direction::Descending => own.key.cmp(key).reverse(),
            },
        };
        if order != Ordering::Greater {
            if order == Ordering::Equal {
                self.stored.next();
            }
            let write = self.own.next()?;
            return Some((&write.key, Seen::of(write.value.as_ref())));
        }
        let (key, slot) = self.stored.next()?;
        let (seen, csn) = self.versions.seen(*slot, self.snapshot);
        if csn > self.durable {
            self.reply_after.set(self.reply_after.get().max(csn));
        }
        Some((key, seen))
    }
}

fn from<'a, T>(direction: Direction, range: impl DoubleEndedIterator<Item = T> + 'a) -> Ahead<'a, T> {
    let range: Box<dyn Iterator<Item = T> + 'a> = match direction {
        Direction::Ascending => Box::new(range),
        Direction::Descending => Box::new(range.rev()),
    };
    range.peekable()
}
