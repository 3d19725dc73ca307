//! When fields of a hash expire.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use savanna_lattice::UnixMillis;

use crate::short_bytes::ShortBytes;

/// Fields that expire, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldExpiries {
    at: HashMap<ShortBytes, UnixMillis>,
    /// The same, the first to expire first.
    order: BTreeSet<(UnixMillis, ShortBytes)>,
    heap_bytes: usize,
}

/// Of a field that expires, beside its bytes: two names, the time twice, and its share of table and tree.
const EXPIRY_BYTES: usize = 112;

impl FieldExpiries {
    pub(super) fn get(&self, field: &[u8]) -> Option<UnixMillis> {
        self.at.get(field).copied()
    }

    pub(super) fn put(&mut self, field: &[u8], at: UnixMillis) {
        self.remove(field);
        let name = ShortBytes::from(field);
        self.heap_bytes += EXPIRY_BYTES + 2 * name.heap_bytes();
        self.at.insert(name.clone(), at);
        self.order.insert((at, name));
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some((name, at)) = self.at.remove_entry(field) else { return false };
        self.heap_bytes -= EXPIRY_BYTES + 2 * name.heap_bytes();
        self.order.remove(&(at, name));
        true
    }

    /// The field that expires first, and when.
    pub(super) fn first(&self) -> Option<(UnixMillis, &[u8])> {
        self.order.first().map(|(at, field)| (*at, &**field))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// About how many bytes they take.
    pub(super) const fn byte_count(&self) -> usize {
        size_of::<Self>() + self.heap_bytes
    }
}
