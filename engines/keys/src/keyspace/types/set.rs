//! A set of strings.

use hashbrown::DefaultHashBuilder;
use indexmap::IndexSet;

use super::{Collection, Operation, collection_of};
use crate::delta::{Malformed, OpReader, OpWriter};
use crate::keyspace::Change;
use crate::keyspace::entry::Value;
use crate::short_bytes::ShortBytes;

/// A set of strings, in insertion order.
#[derive(Clone, Debug, Default)]
pub struct Set {
    members: IndexSet<ShortBytes, DefaultHashBuilder>,
    heap_bytes: usize,
}

const ADD: u8 = 1;
const REMOVE: u8 = 2;

/// Of a member besides its bytes: the string, the hash, and its share of the table.
const MEMBER_BYTES: usize = 48;

impl Set {
    /// Whether a string is a member.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        self.members.contains(member)
    }

    /// A member by its place.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&[u8]> {
        self.members.get_index(index).map(|member| &**member)
    }

    /// The members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.members.iter().map(|member| &**member)
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        size_of::<Self>() + self.heap_bytes
    }

    pub(in crate::keyspace) fn add(&mut self, member: &[u8]) -> bool {
        if self.members.contains(member) {
            return false;
        }
        let member = ShortBytes::from(member);
        self.heap_bytes += MEMBER_BYTES + member.heap_bytes();
        self.members.insert(member)
    }

    pub(in crate::keyspace) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(member) = self.members.swap_take(member) else { return false };
        self.heap_bytes -= MEMBER_BYTES + member.heap_bytes();
        true
    }

    /// The next operation of a delta.
    pub(in crate::keyspace) fn operation<'a>(
        operations: &mut OpReader<'a>,
    ) -> Result<Option<Operation<'a, ()>>, Malformed> {
        let Some(tag) = operations.tag() else { return Ok(None) };
        let member = operations.bytes()?;
        match tag {
            ADD => Ok(Some(Operation::Put(member, ()))),
            REMOVE => Ok(Some(Operation::Remove(member))),
            other => Err(Malformed::operation("set", other)),
        }
    }
}

impl<'a> FromIterator<&'a [u8]> for Set {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(members: I) -> Self {
        let mut set = Self::default();
        for member in members {
            set.add(member);
        }
        set
    }
}

impl Change<'_, Set> {
    /// Adds a member. Says whether it is new.
    pub fn add(&mut self, member: &[u8]) -> bool {
        let new = self.value.add(member);
        if new || self.repeats {
            self.log(|operations| {
                operations.tag(ADD);
                operations.bytes(member);
            });
        }
        new
    }

    /// Removes a member. Says whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let removed = self.value.remove(member);
        if removed {
            self.log(|operations| {
                operations.tag(REMOVE);
                operations.bytes(member);
            });
        }
        removed
    }
}

impl Collection for Set {
    const TAG: u8 = 3;

    collection_of!(Set);

    fn len(&self) -> usize {
        self.members.len()
    }

    fn apply(&mut self, operations: &mut OpReader<'_>) -> Result<(), Malformed> {
        while let Some(operation) = Self::operation(operations)? {
            match operation {
                Operation::Put(member, ()) => self.add(member),
                Operation::Remove(member) => self.remove(member),
            };
        }
        Ok(())
    }

    fn write_whole(&self, operations: &mut OpWriter<'_>) {
        for member in self.iter() {
            operations.tag(ADD);
            operations.bytes(member);
        }
    }
}
