//! Consumers that share the entries of a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{StreamId, StreamOperation};
use crate::delta::OpWriter;

/// A group of consumers.
#[derive(Clone, Debug)]
pub struct Group {
    /// The number of the last entry that was delivered.
    pub last: StreamId,
    /// How many entries were read, if that is known.
    pub read: Option<u64>,
    pending: BTreeMap<StreamId, Pending>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    /// Bytes of the consumers' names.
    name_bytes: usize,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// To whom.
    pub consumer: Arc<[u8]>,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// How often.
    pub count: u64,
}

/// A consumer.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    /// When it asked for something the last time, in milliseconds since 1970.
    pub seen_at: u64,
    /// What was delivered to it and is not acknowledged.
    pub pending: BTreeSet<StreamId>,
}

/// About how many bytes a group takes besides its name and what is in it.
pub(super) const GROUP_BYTES: usize = size_of::<Group>() + 32;
/// Of a consumer besides its name, and of a pending entry: in both tables, with their share of the trees' nodes.
const CONSUMER_BYTES: usize = size_of::<Consumer>() + 64;
const PENDING_BYTES: usize = size_of::<Pending>() + 3 * size_of::<StreamId>() + 16;

/// What a consumer, and a delivery, take in the log beside their names and numbers.
const SEEN_BYTES: usize = 17;
const DELIVERED_BYTES: usize = 33;

impl Group {
    pub(super) const fn new(last: StreamId, read: Option<u64>) -> Self {
        Self { last, read, pending: BTreeMap::new(), consumers: BTreeMap::new(), name_bytes: 0 }
    }

    /// The entries that are pending from a number on.
    pub fn pending(&self, from: StreamId) -> impl DoubleEndedIterator<Item = (StreamId, &Pending)> {
        self.pending.range(from..).map(|(id, pending)| (*id, pending))
    }

    /// What is known of an entry that is pending.
    #[must_use]
    pub fn pending_at(&self, id: StreamId) -> Option<&Pending> {
        self.pending.get(&id)
    }

    /// How many entries are pending.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// A consumer.
    #[must_use]
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// All consumers in the order of their names.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (&[u8], &Consumer)> {
        self.consumers.iter().map(|(name, consumer)| (&**name, consumer))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.name_bytes + self.consumers.len() * CONSUMER_BYTES + self.pending.len() * PENDING_BYTES
    }

    /// Notes that a consumer asks for something; it need not have been there.
    pub(super) fn see(&mut self, name: &[u8], at: u64) {
        match self.consumers.get_mut(name) {
            Some(consumer) => consumer.seen_at = at,
            None => {
                self.name_bytes += name.len();
                self.consumers.insert(name.into(), Consumer { seen_at: at, pending: BTreeSet::new() });
            }
        }
    }

    pub(super) fn remove_consumer(&mut self, name: &[u8]) {
        if let Some(consumer) = self.consumers.remove(name) {
            self.name_bytes -= name.len();
            consumer.pending.iter().for_each(|id| drop(self.pending.remove(id)));
        }
    }

    /// Notes that an entry was delivered to a consumer that is there.
    pub(super) fn deliver(&mut self, name: &[u8], id: StreamId, at: u64, count: u64) {
        if !self.consumers.contains_key(name) {
            self.see(name, at);
        }
        let Some((name, _)) = self.consumers.get_key_value(name) else { return };
        let name = Arc::clone(name);
        let before = self.pending.insert(id, Pending { consumer: Arc::clone(&name), at, count });
        if let Some(before) = before.filter(|before| before.consumer != name) {
            self.forget(&before.consumer, id);
        }
        if let Some(consumer) = self.consumers.get_mut(&name) {
            consumer.pending.insert(id);
        }
    }

    /// Notes that an entry is pending no longer.
    pub(super) fn settle(&mut self, id: StreamId) {
        if let Some(pending) = self.pending.remove(&id) {
            self.forget(&pending.consumer, id);
        }
    }

    fn forget(&mut self, name: &[u8], id: StreamId) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.pending.remove(&id);
        }
    }

    /// How many bytes [`Group::write_whole`] writes.
    pub(super) fn whole_bytes(&self, group: &[u8]) -> usize {
        let consumers = self.consumers().map(|(name, _)| SEEN_BYTES + group.len() + name.len());
        let deliveries = self.deliveries().map(|(Pending { consumer, .. }, ids)| {
            DELIVERED_BYTES + group.len() + consumer.len() + ids.len() * size_of::<StreamId>()
        });
        consumers.chain(deliveries).sum()
    }

    /// What is pending, together what was delivered together.
    fn deliveries(&self) -> impl Iterator<Item = (&Pending, Vec<StreamId>)> {
        let mut rest = self.pending.iter().peekable();
        std::iter::from_fn(move || {
            let (id, first) = rest.next()?;
            let mut ids = vec![*id];
            let are_alike =
                |other: &Pending| (&other.consumer, other.at, other.count) == (&first.consumer, first.at, first.count);
            while let Some((id, _)) = rest.next_if(|(_, other)| are_alike(other)) {
                ids.push(*id);
            }
            Some((first, ids))
        })
    }

    pub(super) fn write_whole(&self, group: &[u8], operations: &mut OpWriter<'_>) {
        for (name, consumer) in self.consumers() {
            StreamOperation::SeeConsumer { group, name, at: consumer.seen_at }.write(operations);
        }
        for (Pending { consumer, at, count }, ids) in self.deliveries() {
            StreamOperation::Deliver { group, consumer, at: *at, count: *count, ids }.write(operations);
        }
    }
}
