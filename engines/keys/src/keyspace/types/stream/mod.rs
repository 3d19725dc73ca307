//! A stream: entries in the order of their numbers, and groups of consumers that share them.
//!
//! Entries lie in blocks ([`block`]), consumers and what they have not acknowledged in groups ([`group`]). Every change is
//! one [`StreamOperation`]: the log keeps what was done, also to cursors and to what is pending.

mod block;
mod group;
mod operation;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use self::block::Block;
pub use self::block::{BlockLimits, Entry};
pub use self::group::Group;
pub use self::operation::StreamOperation;
use super::{Collection, collection_of};
use crate::delta::{Malformed, OpReader, OpWriter};
use crate::keyspace::Change;
use crate::keyspace::entry::Value;

/// The number of an entry: milliseconds since 1970, and a count among those of the same millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds since 1970.
    pub millis: u64,
    /// Counts those of the same millisecond.
    pub count: u64,
}

impl StreamId {
    /// Before all entries.
    pub const MIN: Self = Self { millis: 0, count: 0 };
    /// After all entries.
    pub const MAX: Self = Self { millis: u64::MAX, count: u64::MAX };

    /// The next one, unless it is the last.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match (self.millis.checked_add(1), self.count.checked_add(1)) {
            (_, Some(count)) => Some(Self { count, ..self }),
            (Some(millis), None) => Some(Self { millis, count: 0 }),
            (None, None) => None,
        }
    }

    /// The one before, unless it is the first.
    #[must_use]
    pub const fn previous(self) -> Option<Self> {
        match (self.millis.checked_sub(1), self.count.checked_sub(1)) {
            (_, Some(count)) => Some(Self { count, ..self }),
            (Some(millis), None) => Some(Self { millis, count: u64::MAX }),
            (None, None) => None,
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.count)
    }
}

/// Entries and groups of consumers.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    blocks: VecDeque<Block>,
    length: usize,
    last: StreamId,
    max_deleted: StreamId,
    added: u64,
    groups: BTreeMap<Box<[u8]>, Group>,
    /// Of blocks and groups.
    heap_bytes: usize,
    /// Whether anything was done to it. An empty stream is a key, too.
    is_made: bool,
    /// How much its next blocks take.
    block_limits: BlockLimits,
}

/// What an operation takes in the log beside its words, with a number of an entry and a count; and a word beside its bytes.
const ENTRY_BYTES: usize = 25;
const WORD_BYTES: usize = 4;

/// What is to be left of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// So many entries.
    Length(usize),
    /// Those from this number on.
    From(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// What is left.
    pub kept: Kept,
    /// Whether only whole blocks are removed, so that more may be left.
    pub is_rough: bool,
    /// At most so many entries are removed.
    pub limit: Option<usize>,
}

impl Stream {
    /// The number of the last entry that was added.
    #[must_use]
    pub const fn last(&self) -> StreamId {
        self.last
    }

    /// The highest number of an entry that was deleted.
    #[must_use]
    pub const fn max_deleted(&self) -> StreamId {
        self.max_deleted
    }

    /// How many entries were ever added.
    #[must_use]
    pub const fn added(&self) -> u64 {
        self.added
    }

    /// In how many blocks the entries lie.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The number of the first entry; the lowest if there is none.
    #[must_use]
    pub fn first(&self) -> StreamId {
        self.range(StreamId::MIN, StreamId::MAX).next().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// The number of the last entry that is there.
    #[must_use]
    pub fn top(&self) -> Option<StreamId> {
        self.range_reversed(StreamId::MIN, StreamId::MAX).next().map(|entry| entry.id)
    }

    /// Whether an entry is there.
    #[must_use]
    pub fn contains(&self, id: StreamId) -> bool {
        self.entry(id).is_some()
    }

    /// An entry.
    #[must_use]
    pub fn entry(&self, id: StreamId) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    /// The entries from one number to another, both included.
    pub fn range(&self, low: StreamId, high: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let first = self.blocks.partition_point(|block| block.last() < low);
        self.blocks
            .range(first..)
            .take_while(move |block| block.first() <= high)
            .flat_map(Block::entries)
            .skip_while(move |entry| entry.id < low)
            .take_while(move |entry| entry.id <= high)
    }

    /// As [`Stream::range`], the last first.
    pub fn range_reversed(&self, low: StreamId, high: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let end = self.blocks.partition_point(|block| block.first() <= high);
        self.blocks
            .range(..end)
            .rev()
            .take_while(move |block| block.last() >= low)
            .flat_map(|block| block.entries().collect::<Vec<_>>().into_iter().rev())
            .skip_while(move |entry| entry.id > high)
            .take_while(move |entry| entry.id >= low)
    }

    /// A group.
    #[must_use]
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// All groups in the order of their names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// How many entries trimming removes.
    #[must_use]
    pub fn trimmed(&self, trim: Trim) -> usize {
        let (mut length, mut count) = (self.length, 0);
        for block in &self.blocks {
            let live = block.live();
            let is_enough = matches!(trim.kept, Kept::Length(kept) if length <= kept);
            if is_enough || trim.limit.is_some_and(|limit| count + live > limit) {
                break;
            }
            let is_all = match trim.kept {
                Kept::Length(kept) => length - live >= kept,
                Kept::From(id) => block.last() < id,
            };
            if is_all {
                (length, count) = (length - live, count + live);
                continue;
            }
            if !trim.is_rough {
                count += match trim.kept {
                    Kept::Length(kept) => length - kept,
                    Kept::From(id) => block.entries().take_while(|entry| entry.id < id).count(),
                };
            }
            break;
        }
        count
    }

    /// Whether an entry from a number on was deleted, so that counting up to it says nothing about those behind.
    #[must_use]
    pub fn has_gap_from(&self, id: StreamId) -> bool {
        self.length > 0
            && self.max_deleted != StreamId::MIN
            && self.first() <= self.max_deleted
            && id <= self.max_deleted
    }

    /// How many entries were ever added up to a number, if that can be told.
    #[must_use]
    pub fn added_up_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.length == 0 && id <= self.last || id == self.last {
            return Some(self.added);
        }
        if id > self.last {
            return None;
        }
        let first = self.first();
        if self.max_deleted == StreamId::MIN || self.max_deleted < first {
            if id < first {
                return Some(self.added.wrapping_sub(self.length as u64));
            }
            if id == first {
                return Some(self.added.wrapping_sub(self.length as u64).wrapping_add(1));
            }
        }
        None
    }

    /// How many entries a group has not read, if that can be told.
    #[must_use]
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.added == 0 {
            return Some(0);
        }
        let read = match group.read {
            Some(read) if !self.has_gap_from(group.last) => Some(read),
            _ => self.added_up_to(group.last),
        };
        read.map(|read| self.added.wrapping_sub(read) as i64)
    }

    /// About how many bytes it takes.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        size_of::<Self>() + self.heap_bytes
    }

    /// How many bytes it takes written as a whole: every entry with its fields.
    #[must_use]
    pub fn whole_bytes(&self) -> usize {
        let words = |entry: Entry<'_>| {
            entry.fields().map(|(field, value)| 2 * WORD_BYTES + field.len() + value.len()).sum::<usize>()
        };
        let entries = self.range(StreamId::MIN, StreamId::MAX).map(|entry| ENTRY_BYTES + words(entry));
        let groups = self.groups().map(|(name, group)| ENTRY_BYTES + WORD_BYTES + name.len() + group.whole_bytes(name));
        entries.chain(groups).sum::<usize>() + 2 * ENTRY_BYTES
    }

    /// The entries that are there, block by block.
    pub(in crate::keyspace) fn blocks(&self) -> impl Iterator<Item = Vec<Entry<'_>>> {
        self.blocks.iter().map(|block| block.entries().collect())
    }

    /// Does an operation. One on what is not there does nothing.
    pub(in crate::keyspace) fn perform(&mut self, operation: &StreamOperation<'_>) {
        self.is_made = true;
        match operation {
            StreamOperation::Add { id, words } => self.add(*id, words),
            StreamOperation::Delete(id) => self.delete(*id),
            StreamOperation::Trim(count) => self.trim(*count),
            StreamOperation::SetId { last, added, max_deleted } => {
                // Entries may follow whose numbers are lower than those of deleted ones at the end.
                if let Some(block) = self.blocks.back_mut() {
                    block.forget_deleted_end();
                }
                let last = self.top().map_or(*last, |top| top.max(*last));
                (self.last, self.added, self.max_deleted) = (last, *added, *max_deleted);
            }
            StreamOperation::CreateGroup { name, last, read } => {
                self.destroy_group(name);
                self.heap_bytes += group::GROUP_BYTES + name.len();
                self.groups.insert((*name).into(), Group::new(*last, *read));
            }
            StreamOperation::DestroyGroup(name) => self.destroy_group(name),
            StreamOperation::MoveGroup { name, last, read } => {
                self.change_group(name, |group| (group.last, group.read) = (*last, *read));
            }
            StreamOperation::SeeConsumer { group, name, at } => {
                self.change_group(group, |group| group.see(name, *at));
            }
            StreamOperation::DeleteConsumer { group, name } => {
                self.change_group(group, |group| group.remove_consumer(name));
            }
            StreamOperation::Deliver { group, consumer, at, count, ids } => {
                self.change_group(group, |group| ids.iter().for_each(|id| group.deliver(consumer, *id, *at, *count)));
            }
            StreamOperation::Settle { group, ids } => {
                self.change_group(group, |group| ids.iter().for_each(|id| group.settle(*id)));
            }
        }
    }

    fn destroy_group(&mut self, name: &[u8]) {
        if let Some(group) = self.groups.remove(name) {
            self.heap_bytes -= group::GROUP_BYTES + name.len() + group.heap_bytes();
        }
    }

    fn change_group(&mut self, name: &[u8], change: impl FnOnce(&mut Group)) {
        if let Some(group) = self.groups.get_mut(name) {
            let before = group.heap_bytes();
            change(group);
            self.heap_bytes = self.heap_bytes + group.heap_bytes() - before;
        }
    }

    fn add(&mut self, id: StreamId, words: &[&[u8]]) {
        // Operations may come from anybody (`RESTORE`).
        if id <= self.last {
            return;
        }
        (self.last, self.added, self.length) = (id, self.added.wrapping_add(1), self.length + 1);
        if let Some(block) = self.blocks.back_mut() {
            let before = block.byte_count();
            let is_in = block.push(id, words, self.block_limits);
            self.heap_bytes = self.heap_bytes + block.byte_count() - before;
            if is_in {
                return;
            }
        }
        let block = Block::new(id, words);
        self.heap_bytes += block.byte_count();
        self.blocks.push_back(block);
    }

    fn delete(&mut self, id: StreamId) {
        let at = self.blocks.partition_point(|block| block.last() < id);
        let Some(block) = self.blocks.get_mut(at).filter(|block| block.first() <= id) else { return };
        if !block.delete(id) {
            return;
        }
        self.length -= 1;
        self.max_deleted = self.max_deleted.max(id);
        if block.live() == 0
            && let Some(block) = self.blocks.remove(at)
        {
            self.heap_bytes -= block.byte_count();
        }
    }

    fn trim(&mut self, mut count: usize) {
        while let Some(block) = self.blocks.front_mut() {
            if block.live() > count {
                self.length -= count;
                block.delete_first(count);
                return;
            }
            count -= block.live();
            self.length -= block.live();
            self.heap_bytes -= block.byte_count();
            self.blocks.pop_front();
        }
    }
}

impl Change<'_, Stream> {
    /// Says how much the blocks take that come. It is no change of what is there, and not in the log.
    pub const fn limit_blocks(&mut self, limits: BlockLimits) {
        self.value.block_limits = limits;
    }

    /// Does an operation.
    pub fn perform(&mut self, operation: &StreamOperation<'_>) {
        self.value.perform(operation);
        self.log(|operations| operation.write(operations));
    }
}

impl Collection for Stream {
    const TAG: u8 = 7;

    collection_of!(Stream);

    fn len(&self) -> usize {
        self.length
    }

    fn is_empty(&self) -> bool {
        !self.is_made
    }

    fn apply(&mut self, operations: &mut OpReader<'_>) -> Result<(), Malformed> {
        while let Some(operation) = StreamOperation::read(operations)? {
            self.perform(&operation);
        }
        Ok(())
    }

    fn write_whole(&self, operations: &mut OpWriter<'_>) {
        for entry in self.range(StreamId::MIN, StreamId::MAX) {
            let words = entry.fields().flat_map(|(field, value)| [field, value]).collect();
            StreamOperation::Add { id: entry.id, words }.write(operations);
        }
        let (last, added, max_deleted) = (self.last, self.added, self.max_deleted);
        StreamOperation::SetId { last, added, max_deleted }.write(operations);
        for (name, group) in self.groups() {
            StreamOperation::CreateGroup { name, last: group.last, read: group.read }.write(operations);
            group.write_whole(name, operations);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(millis: u64, count: u64) -> StreamId {
        StreamId { millis, count }
    }

    fn ids(stream: &Stream) -> Vec<StreamId> {
        stream.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id).collect()
    }

    fn written(stream: &Stream) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.write_whole(&mut OpWriter::new(&mut bytes));
        bytes
    }

    #[test]
    fn numbers_count_over_their_parts() {
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    }

    #[test]
    fn a_stream_without_entries_is_there_once_it_was_made() {
        let mut stream = Stream::default();
        assert!(stream.is_empty());
        stream.perform(&StreamOperation::CreateGroup { name: b"g", last: StreamId::MIN, read: None });
        stream.perform(&StreamOperation::DestroyGroup(b"g"));
        assert!(!stream.is_empty() && stream.heap_bytes == 0);
        let mut again = Stream::default();
        again.apply(&mut OpReader::new(&written(&stream))).expect("reads");
        assert!(!again.is_empty());
    }

    #[test]
    fn entries_follow_a_lower_number_than_that_of_a_deleted_one() {
        let mut stream = Stream::default();
        let add = |id| StreamOperation::Add { id, words: vec![b"a", b"b"] };
        let back_to = |last| StreamOperation::SetId { last, added: 2, max_deleted: id(6, 1) };
        for operation in [
            add(id(5, 1)),
            add(id(6, 1)),
            StreamOperation::Delete(id(6, 1)),
            back_to(id(5, 1)),
            add(id(5, 2)),
            add(id(6, 1)),
        ] {
            stream.perform(&operation);
        }
        assert_eq!(ids(&stream), [id(5, 1), id(5, 2), id(6, 1)]);
        assert_eq!((stream.len(), stream.last(), stream.entry(id(5, 2)).is_some()), (3, id(6, 1), true));
        let mut again = Stream::default();
        again.apply(&mut OpReader::new(&written(&stream))).expect("reads");
        assert_eq!((ids(&again), again.last()), (ids(&stream), stream.last()));
        // What is there is not behind the end.
        stream.perform(&back_to(id(5, 1)));
        assert_eq!(stream.last(), id(6, 1));
    }

    proptest! {
        #[test]
        fn entries_are_those_of_a_sorted_map(
            steps in prop::collection::vec((0..10_u8, 0..400_u64, 0..3_u64), 1..800)
        ) {
            let mut stream = Stream::default();
            let mut model: BTreeMap<StreamId, Vec<Vec<u8>>> = BTreeMap::new();
            let mut pending: BTreeMap<StreamId, (Vec<u8>, u64)> = BTreeMap::new();
            stream.perform(&StreamOperation::CreateGroup { name: b"g", last: StreamId::MIN, read: Some(0) });
            for (step, number, more) in steps {
                match step {
                    0..6 => {
                        let at = id(stream.last().millis + more, if more == 0 { stream.last().count + 1 } else { number });
                        let words: Vec<Vec<u8>> = if number % 3 == 0 {
                            vec![b"field".to_vec(), vec![b'x'; number as usize]]
                        } else {
                            vec![b"a".to_vec(), number.to_string().into(), b"b".to_vec(), vec![]]
                        };
                        stream.perform(&StreamOperation::Add { id: at, words: words.iter().map(Vec::as_slice).collect() });
                        model.insert(at, words);
                    }
                    6 => {
                        if let Some(at) = model.keys().nth(number as usize % model.len().max(1)).copied() {
                            stream.perform(&StreamOperation::Delete(at));
                            model.remove(&at);
                        }
                    }
                    7 => {
                        let kept = model.len().saturating_sub(more as usize);
                        let trim = Trim { kept: Kept::Length(kept), is_rough: false, limit: None };
                        let count = stream.trimmed(trim);
                        prop_assert_eq!(count, model.len() - kept);
                        stream.perform(&StreamOperation::Trim(count));
                        (0..count).for_each(|_| drop(model.pop_first()));
                    }
                    8 => {
                        if let Some(at) = model.keys().nth(number as usize % model.len().max(1)).copied() {
                            let name = vec![b'a' + more as u8];
                            let ids = vec![at];
                            let operation = StreamOperation::Deliver { group: b"g", consumer: &name, at: number, count: more, ids };
                            stream.perform(&operation);
                            pending.insert(at, (name, more));
                        }
                    }
                    _ => {
                        if let Some(at) = pending.keys().next().copied() {
                            stream.perform(&StreamOperation::Settle { group: b"g", ids: vec![at] });
                            pending.remove(&at);
                        }
                    }
                }
            }
            prop_assert_eq!(stream.len(), model.len());
            prop_assert_eq!(ids(&stream), model.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(stream.first(), model.keys().next().copied().unwrap_or_default());
            prop_assert_eq!(stream.top(), model.keys().next_back().copied());
            for entry in stream.range(StreamId::MIN, StreamId::MAX) {
                let words: Vec<Vec<u8>> =
                    entry.fields().flat_map(|(field, value)| [field.to_vec(), value.to_vec()]).collect();
                prop_assert_eq!(Some(&words), model.get(&entry.id));
            }
            let (low, high) = (id(20, 1), id(300, 0));
            let expected: Vec<StreamId> = model.range(low..=high).map(|(at, _)| *at).collect();
            prop_assert_eq!(stream.range(low, high).map(|entry| entry.id).collect::<Vec<_>>(), expected.clone());
            let mut reversed: Vec<StreamId> = stream.range_reversed(low, high).map(|entry| entry.id).collect();
            reversed.reverse();
            prop_assert_eq!(reversed, expected);
            let group = stream.group(b"g").expect("it is there");
            let shown: Vec<_> =
                group.pending(StreamId::MIN).map(|(at, pending)| (at, (pending.consumer.to_vec(), pending.count))).collect();
            prop_assert_eq!(shown, pending.into_iter().collect::<Vec<_>>());
            let mut again = Stream::default();
            again.apply(&mut OpReader::new(&written(&stream))).expect("reads");
            prop_assert_eq!(written(&again), written(&stream));
            let bytes = written(&stream).len();
            prop_assert!((bytes..bytes + 100).contains(&stream.whole_bytes()), "{} {}", bytes, stream.whole_bytes());
            prop_assert_eq!(again.group(b"g").map(Group::pending_count), Some(group.pending_count()));
            prop_assert_eq!(again.group(b"g").map(|group| group.consumers().len()), Some(group.consumers().len()));
            prop_assert_eq!((again.last(), again.added(), again.max_deleted()), (stream.last(), stream.added(), stream.max_deleted()));
            // What is kept of memory is right to the last byte when all is gone.
            stream.perform(&StreamOperation::Trim(stream.len()));
            stream.perform(&StreamOperation::DestroyGroup(b"g"));
            prop_assert_eq!(stream.heap_bytes, 0);
        }
    }
}
