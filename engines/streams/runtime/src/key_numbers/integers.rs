//! Numbers for keys of one `BIGINT` column: an open-addressing table of numbers, so sparse that nearly every look-up is one
//! multiplication and one comparison. A branch that goes the other way costs as much as all the rest.

use std::hash::{BuildHasher, RandomState};

use arrow::array::{Array, Int64Array};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use savanna_streams_api::Result;

use crate::error::computing;

/// The numbers given so far.
pub(super) struct IntegerNumbers {
    /// A power of two of them, at most a quarter of them taken: the number of a key, or [`FREE`].
    slots: Vec<u32>,
    /// By number; 0 for NULL.
    keys: Vec<i64>,
    null: Option<u32>,
    /// Of each table another, so that nobody can choose keys that collide.
    seed: u64,
}

/// No number: there are never so many keys.
const FREE: u32 = u32::MAX;
const SLOTS_MIN: usize = 64;

impl IntegerNumbers {
    pub(super) fn new() -> Self {
        Self { slots: vec![FREE; SLOTS_MIN], keys: Vec::new(), null: None, seed: RandomState::new().hash_one(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn number(&mut self, keys: &Int64Array, numbers: &mut Vec<usize>) -> Result<()> {
        if self.keys.len() + keys.len() >= FREE as usize {
            return Err(computing(
                "a key",
                &"more than 4 billion different keys; use more partitions or shorter windows",
            ));
        }
        numbers.clear();
        if keys.null_count() == 0 {
            numbers.extend(keys.values().iter().map(|key| self.number_of(*key) as usize));
        } else {
            let number = |key: Option<i64>| match key {
                Some(key) => self.number_of(key),
                None => self.number_of_null(),
            };
            numbers.extend(keys.iter().map(number).map(|number| number as usize));
        }
        Ok(())
    }

    pub(super) fn into_keys(self) -> Int64Array {
        let rows = self.keys.len();
        let nulls = self.null.map(|null| (0..rows).map(|row| row != null as usize).collect::<NullBuffer>());
        Int64Array::new(ScalarBuffer::from(self.keys), nulls)
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>() + self.keys.capacity() * size_of::<i64>()
    }

    #[inline]
    fn number_of(&mut self, key: i64) -> u32 {
        let mut at = self.home(key);
        loop {
            let number = self.slots[at];
            match self.keys.get(number as usize) {
                Some(known) if *known == key => return number,
                Some(_) => at = self.next(at),
                None => return self.insert(key, at),
            }
        }
    }

    fn number_of_null(&mut self) -> u32 {
        *self.null.get_or_insert_with(|| {
            self.keys.push(0);
            self.keys.len() as u32 - 1
        })
    }

    /// Gives a key the next number; `at` is the free slot where it belongs.
    #[cold]
    fn insert(&mut self, key: i64, at: usize) -> u32 {
        let number = self.keys.len() as u32;
        self.keys.push(key);
        self.slots[at] = number;
        if self.keys.len() * 4 > self.slots.len() {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        self.slots = vec![FREE; self.slots.len() * 2];
        for (number, key) in (0..).zip(&self.keys) {
            if self.null == Some(number) {
                continue;
            }
            let mut at = self.home(*key);
            while self.slots[at] != FREE {
                at = self.next(at);
            }
            self.slots[at] = number;
        }
    }

    /// The slot where the search for a key begins: both halves of a product, so that all bits of the key count.
    fn home(&self, key: i64) -> usize {
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(key as u64 ^ self.seed) * FACTOR;
        (product as u64 ^ (product >> 64) as u64) as usize & (self.slots.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_numbered_in_the_order_in_which_they_come(
            batches in prop::collection::vec(
                prop::collection::vec(prop::option::weighted(0.9, prop_oneof![-50_i64..50, any::<i64>()]), 0..200), 1..6,
            ),
        ) {
            let mut table = IntegerNumbers::new();
            let (mut expected, mut keys) = (HashMap::new(), Vec::new());
            let mut numbers = vec![7];
            for batch in batches {
                table.number(&Int64Array::from(batch.clone()), &mut numbers).unwrap();
                prop_assert_eq!(numbers.len(), batch.len());
                for (key, number) in batch.iter().zip(&numbers) {
                    let next = expected.len();
                    let first = *expected.entry(*key).or_insert(next);
                    if first == next {
                        keys.push(*key);
                    }
                    prop_assert_eq!(*number, first);
                }
            }
            prop_assert_eq!(table.len(), keys.len());
            prop_assert_eq!(table.into_keys(), Int64Array::from(keys));
        }
    }
}
