//! The encodings that Redis would have chosen for values of this size; Savanna's own are other ones. Clients ask for them, and what
//! Redis has in its small forms it shows in one piece and in order.

use super::{BlockLimits, Collection as _, Hash, Set, SortedSet, Value};
use crate::number::integer;

/// Up to which size Redis keeps values in its small forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingLimits {
    /// Fields of a hash.
    pub hash_entries: usize,
    /// Bytes of a field, and of a value.
    pub hash_value: usize,
    /// Members of a set of numbers.
    pub intset_entries: usize,
    /// Members of a sorted set.
    pub zset_entries: usize,
    /// Bytes of a member.
    pub zset_value: usize,
    /// What a block of a stream takes.
    pub stream_block: BlockLimits,
}

/// No list of fields or members has more bytes in Redis, whatever is set; and a walk shows it in one reply.
const PACKED_BYTES_MAX: usize = 1 << 30;

impl Default for EncodingLimits {
    fn default() -> Self {
        Self {
            hash_entries: 512,
            hash_value: 64,
            intset_entries: 512,
            zset_entries: 128,
            zset_value: 64,
            stream_block: BlockLimits::default(),
        }
    }
}

impl EncodingLimits {
    /// The limit of a setting of Redis, to be read or set.
    pub fn of_setting(&mut self, name: &str) -> Option<&mut usize> {
        Some(match name {
            "hash-max-listpack-entries" | "hash-max-ziplist-entries" => &mut self.hash_entries,
            "hash-max-listpack-value" | "hash-max-ziplist-value" => &mut self.hash_value,
            "set-max-intset-entries" => &mut self.intset_entries,
            "zset-max-listpack-entries" | "zset-max-ziplist-entries" => &mut self.zset_entries,
            "zset-max-listpack-value" | "zset-max-ziplist-value" => &mut self.zset_value,
            "stream-node-max-entries" => &mut self.stream_block.entries,
            "stream-node-max-bytes" => &mut self.stream_block.bytes,
            _ => return None,
        })
    }

    /// Whether a hash is a list of fields and values.
    #[must_use]
    pub fn is_packed_hash(&self, hash: &Hash) -> bool {
        let is_short = |text: &[u8]| text.len() <= self.hash_value;
        let mut bytes = 0;
        hash.len() <= self.hash_entries
            && hash.iter().all(|(field, value)| {
                bytes += field.len() + value.len();
                is_short(field) && is_short(value) && bytes <= PACKED_BYTES_MAX
            })
    }

    /// Whether a set is one of numbers, in their order.
    #[must_use]
    pub fn is_number_set(&self, set: &Set) -> bool {
        set.len() <= self.intset_entries && set.iter().all(|member| integer(member).is_some())
    }

    /// Whether a sorted set is a list of members and scores.
    #[must_use]
    pub fn is_packed_sorted_set(&self, set: &SortedSet) -> bool {
        let mut bytes = 0;
        set.len() <= self.zset_entries
            && set.iter().all(|(member, _)| {
                bytes += member.len();
                member.len() <= self.zset_value && bytes <= PACKED_BYTES_MAX
            })
    }

    /// The name of a value's encoding.
    #[must_use]
    pub fn name_of(&self, value: &Value) -> &'static str {
        match value {
            Value::String(bytes) if integer(bytes).is_some() => "int",
            Value::String(bytes) if bytes.len() <= 44 => "embstr",
            Value::String(_) | Value::Buffer(_) => "raw",
            Value::Hash(hash) if self.is_packed_hash(hash) => "listpack",
            Value::Set(set) if self.is_number_set(set) => "intset",
            Value::Hash(_) | Value::Set(_) => "hashtable",
            Value::List(_) => "quicklist",
            Value::SortedSet(set) if self.is_packed_sorted_set(set) => "listpack",
            Value::SortedSet(_) => "skiplist",
            Value::Stream(_) => "stream",
        }
    }
}
