//! Fields and their values.

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

use super::{Collection, Operation, collection_of};
use crate::delta::{Malformed, OpReader, OpWriter};
use crate::keyspace::Change;
use crate::keyspace::entry::Value;
use crate::short_bytes::ShortBytes;

/// Fields and their values, in insertion order.
#[derive(Clone, Debug, Default)]
pub struct Hash {
    fields: IndexMap<ShortBytes, ShortBytes, DefaultHashBuilder>,
    heap_bytes: usize,
}

const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// Of a field besides its bytes: the two strings, the hash, and its share of the table.
const FIELD_BYTES: usize = 72;

impl Hash {
    /// The value of a field.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.fields.get(field).map(|value| &**value)
    }

    /// A field by its place.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.fields.get_index(index).map(|(field, value)| (&**field, &**value))
    }

    /// Fields and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(field, value)| (&**field, &**value))
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        size_of::<Self>() + self.heap_bytes
    }

    pub(in crate::keyspace) fn put(&mut self, field: &[u8], value: &[u8]) -> bool {
        match self.fields.get_mut(field) {
            Some(mine) => {
                self.heap_bytes -= mine.heap_bytes();
                mine.assign(value);
                self.heap_bytes += mine.heap_bytes();
                false
            }
            None => {
                let (field, value) = (ShortBytes::from(field), ShortBytes::from(value));
                self.heap_bytes += FIELD_BYTES + field.heap_bytes() + value.heap_bytes();
                self.fields.insert(field, value);
                true
            }
        }
    }

    pub(in crate::keyspace) fn remove(&mut self, field: &[u8]) -> bool {
        let Some((field, value)) = self.fields.swap_remove_entry(field) else { return false };
        self.heap_bytes -= FIELD_BYTES + field.heap_bytes() + value.heap_bytes();
        true
    }

    /// The next operation of a delta.
    pub(in crate::keyspace) fn operation<'a>(
        operations: &mut OpReader<'a>,
    ) -> Result<Option<Operation<'a, &'a [u8]>>, Malformed> {
        let Some(tag) = operations.tag() else { return Ok(None) };
        let field = operations.bytes()?;
        match tag {
            PUT => Ok(Some(Operation::Put(field, operations.bytes()?))),
            REMOVE => Ok(Some(Operation::Remove(field))),
            other => Err(Malformed::operation("hash", other)),
        }
    }
}

impl Change<'_, Hash> {
    /// Writes a field. Says whether it is new.
    pub fn put(&mut self, field: &[u8], value: &[u8]) -> bool {
        let new = self.value.put(field, value);
        self.log(|operations| {
            operations.tag(PUT);
            operations.bytes(field);
            operations.bytes(value);
        });
        new
    }

    /// Removes a field. Says whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.value.remove(field);
        if removed {
            self.log(|operations| {
                operations.tag(REMOVE);
                operations.bytes(field);
            });
        }
        removed
    }
}

impl Collection for Hash {
    const TAG: u8 = 2;

    collection_of!(Hash);

    fn len(&self) -> usize {
        self.fields.len()
    }

    fn apply(&mut self, operations: &mut OpReader<'_>) -> Result<(), Malformed> {
        while let Some(operation) = Self::operation(operations)? {
            match operation {
                Operation::Put(field, value) => self.put(field, value),
                Operation::Remove(field) => self.remove(field),
            };
        }
        Ok(())
    }

    fn write_whole(&self, operations: &mut OpWriter<'_>) {
        for (field, value) in self.iter() {
            operations.tag(PUT);
            operations.bytes(field);
            operations.bytes(value);
        }
    }
}
