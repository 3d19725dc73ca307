//! The types that hold more than one string.
//!
//! Elements lie in insertion order and are removed by swapping the last one in, so that one at random is found at once,
//! and a scan that walks *down* from the end misses nothing that stays: what is swapped in comes from where the scan has
//! been, or moves further down.

mod field_expiries;
mod hash;
mod list;
mod set;
mod sorted_set;
mod stream;

pub use self::{
    hash::Hash,
    list::{End, List},
    set::Set,
    sorted_set::{Score, ScoreRange, SortedSet},
    stream::{BlockLimits, Entry as StreamEntry, Group as StreamGroup, Kept, Stream, StreamId, StreamOperation, Trim},
};

pub(super) use self::hash::OfField;
use crate::delta::{Malformed, OpReader, OpWriter};
use crate::keyspace::entry::Value;

/// A type of value that is changed element by element.
pub trait Collection: Default {
    /// Which type it is in deltas.
    const TAG: u8;

    /// Out of a value, if it is of this type.
    fn of(value: &Value) -> Option<&Self>;

    /// Out of a value, to be changed.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;

    /// As a value.
    fn into_value(self) -> Value;

    /// How many elements there are.
    fn len(&self) -> usize;

    /// Whether nothing is left; an empty collection is no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the operations of a delta.
    ///
    /// # Errors
    /// [`Malformed`] if they are not of this type.
    fn apply(&mut self, operations: &mut OpReader<'_>) -> Result<(), Malformed>;

    /// Writes operations that make an empty one equal to this.
    fn write_whole(&self, operations: &mut OpWriter<'_>);
}

/// One operation of a delta.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation<'a, V> {
    /// An element is there, with this beside it.
    Put(&'a [u8], V),
    /// An element is gone.
    Remove(&'a [u8]),
}

macro_rules! collection_of {
    ($type:ident) => {
        fn of(value: &Value) -> Option<&Self> {
            match value {
                Value::$type(it) => Some(it),
                _ => None,
            }
        }

        fn of_mut(value: &mut Value) -> Option<&mut Self> {
            match value {
                Value::$type(it) => Some(it),
                _ => None,
            }
        }

        fn into_value(self) -> Value {
            Value::$type(Box::new(self))
        }
    };
}
use collection_of;
