//! Fields and their values.

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

use savanna_lattice::UnixMillis;

use super::field_expiries::FieldExpiries;
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
    /// Fields that expire, if there are any.
    expiries: Option<Box<FieldExpiries>>,
}

/// What an operation says of a field.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyspace) enum OfField<'a> {
    /// Its value. It does not expire.
    Value(&'a [u8]),
    /// When it expires, if it is there; [`UnixMillis::NEVER`] for never.
    ExpiresAt(UnixMillis),
}

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const EXPIRE: u8 = 3;

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
        size_of::<Self>() + self.heap_bytes + self.expiries.as_ref().map_or(0, |expiries| expiries.byte_count())
    }

    /// When a field expires, if it does.
    #[must_use]
    pub fn expiry_of(&self, field: &[u8]) -> Option<UnixMillis> {
        self.expiries.as_ref()?.get(field)
    }

    /// The field that expires first, and when.
    #[must_use]
    pub fn first_expiry(&self) -> Option<(UnixMillis, &[u8])> {
        self.expiries.as_ref()?.first()
    }

    /// Lets a field that is there expire at a time, or never; [`UnixMillis::NEVER`] for that. Says whether it is there.
    pub(in crate::keyspace) fn expire(&mut self, field: &[u8], at: UnixMillis) -> bool {
        let is_there = self.fields.contains_key(field);
        if at == UnixMillis::NEVER {
            self.forget_expiry(field);
        } else if is_there {
            self.expiries.get_or_insert_default().put(field, at);
        }
        is_there
    }

    fn forget_expiry(&mut self, field: &[u8]) {
        if let Some(expiries) = &mut self.expiries
            && expiries.remove(field)
            && expiries.is_empty()
        {
            self.expiries = None;
        }
    }

    /// Writes a field, which does not expire then. Says whether it is new.
    pub(in crate::keyspace) fn put(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.forget_expiry(field);
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
        self.forget_expiry(field);
        let Some((field, value)) = self.fields.swap_remove_entry(field) else { return false };
        self.heap_bytes -= FIELD_BYTES + field.heap_bytes() + value.heap_bytes();
        true
    }

    /// The next operation of a delta.
    pub(in crate::keyspace) fn operation<'a>(
        operations: &mut OpReader<'a>,
    ) -> Result<Option<Operation<'a, OfField<'a>>>, Malformed> {
        let Some(tag) = operations.tag() else { return Ok(None) };
        let field = operations.bytes()?;
        match tag {
            PUT => Ok(Some(Operation::Put(field, OfField::Value(operations.bytes()?)))),
            REMOVE => Ok(Some(Operation::Remove(field))),
            EXPIRE => Ok(Some(Operation::Put(field, OfField::ExpiresAt(UnixMillis(operations.number()?))))),
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

    /// Writes a field, which expires when it did.
    pub fn put_in_its_time(&mut self, field: &[u8], value: &[u8]) {
        let at = self.value.expiry_of(field);
        self.put(field, value);
        if let Some(at) = at {
            self.expire(field, at);
        }
    }

    /// Lets a field that is there expire at a time, or never.
    pub fn expire(&mut self, field: &[u8], at: UnixMillis) {
        if self.value.expire(field, at) {
            self.log(|operations| {
                operations.tag(EXPIRE);
                operations.bytes(field);
                operations.number(at.0);
            });
        }
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
                Operation::Put(field, OfField::Value(value)) => self.put(field, value),
                Operation::Put(field, OfField::ExpiresAt(at)) => self.expire(field, at),
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
            if let Some(at) = self.expiry_of(field) {
                operations.tag(EXPIRE);
                operations.bytes(field);
                operations.number(at.0);
            }
        }
    }
}
