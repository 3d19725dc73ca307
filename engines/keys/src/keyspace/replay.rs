//! Changes that are read back from the log.

use savanna_lattice::Hlc;

use super::content::value_of;
use super::{
    Collection, DATABASES, Database, Entry, Hash, Keyspace, List, STRING_BYTES_MAX, Set, SortedSet, Stream, TABLES,
    Value, replica,
};
use crate::delta::{Body, Header, Malformed, OpReader, STRING_TAG};

impl Keyspace {
    /// Applies a delta that was read back. See [`crate::delta`] for when one applies.
    ///
    /// # Errors
    /// [`Malformed`] if the content does not fit.
    pub fn replay(&mut self, header: Header<'_>, body: Body<'_>) -> Result<(), Malformed> {
        if header.database >= TABLES {
            return Err(Malformed::new(format!("database {}", header.database)));
        }
        self.observe(header.version);
        if let Body::Swap { with } = body {
            if header.database.max(with) >= DATABASES {
                return Err(Malformed::new(format!("database {with}")));
            }
            self.hear_swap(header.database, with, header.version);
            return Ok(());
        }
        if let Body::Flush { is_all } = body {
            if header.database >= DATABASES {
                return Err(Malformed::new(format!("database {}", header.database)));
            }
            self.replay_flush((!is_all).then_some(header.database), header.version);
            return Ok(());
        }
        if let Body::Forget { node } = body {
            self.let_go(node);
            return Ok(());
        }
        if self.groups.replay(&header, &body)? {
            return Ok(());
        }
        let (key, version) = (header.key, header.version);
        if let Body::Replicated { since, copies, writer, state } = body {
            return self.replay_replicated(header, replica::vector(since, copies), writer, state);
        }
        if self.replicas.get(header.database, key).is_some() {
            return Ok(()); // of before it had replicas
        }
        let spot = self.spot_of(key);
        let database = self.databases[usize::from(header.database)]
            .get_or_insert_with(|| Box::new(Database::new(self.table_seed)));
        let present = database.find_mut(spot, key);
        if present.as_ref().is_some_and(|entry| entry.version >= version) {
            return Ok(());
        }
        match body {
            Body::Whole { tag, expires_at, content, .. } => {
                let mut entry = Box::new(Entry::new(key, value_of(tag, content)?, version));
                entry.expire_at(expires_at);
                database.insert(spot, entry);
            }
            Body::Delete => {
                database.remove(spot, key);
                self.note_deletion(spot, version);
            }
            Body::Expiry(at) => {
                let Some(entry) = present.filter(|entry| entry.version == header.base) else { return Ok(()) };
                let before = entry.expires_at();
                entry.expire_at(at);
                entry.version = version;
                database.note_expiry(spot, before, at);
            }
            Body::Replicated { .. }
            | Body::Swap { .. }
            | Body::Flush { .. }
            | Body::Forget { .. }
            | Body::Lent { .. }
            | Body::Returned { .. }
            | Body::Committed { .. }
            | Body::Ended { .. } => {}
            Body::Operations { tag, operations } => match present {
                Some(entry) if entry.version == header.base => {
                    let size_before = entry.value.heap_bytes();
                    let fields_before = entry.value.first_field_expiry();
                    let is_empty = apply_operations(&mut entry.value, tag, operations)?;
                    entry.version = version;
                    let size_after = entry.value.heap_bytes();
                    let fields_after = entry.value.first_field_expiry();
                    database.note_size(size_before, size_after);
                    database.note_field_expiry(spot, fields_before, fields_after);
                    if is_empty {
                        database.remove(spot, key);
                        self.note_deletion(spot, version);
                    }
                }
                None if header.base == Hlc::ZERO => {
                    let value = value_of(tag, operations)?;
                    database.insert(spot, Box::new(Entry::new(key, value, version)));
                }
                // Its beginning is not there, because the key was deleted since: the deletion follows.
                _ => {}
            },
        }
        Ok(())
    }
}

/// Where a part of a string begins at most: `BITFIELD` writes numbers that begin in the longest string and end behind it, and a log
/// may have the last byte of one alone.
const PART_START_MAX: usize = STRING_BYTES_MAX + 8;

/// Applies operations to a value of their type. Says whether nothing is left.
fn apply_operations(value: &mut Value, tag: u8, operations: &[u8]) -> Result<bool, Malformed> {
    fn apply<T: Collection>(value: &mut Value, mut operations: OpReader<'_>) -> Result<bool, Malformed> {
        let value = T::of_mut(value).ok_or_else(|| Malformed::new("operations for another type"))?;
        value.apply(&mut operations)?;
        Ok(value.is_empty())
    }
    let mut operations = OpReader::new(operations);
    match tag {
        STRING_TAG => {
            let (from, part) = (operations.number()?, operations.bytes()?);
            let bytes = value.as_buffer().ok_or_else(|| Malformed::new("operations for another type"))?;
            let from = usize::try_from(from).ok().filter(|from| *from <= PART_START_MAX);
            let from = from.ok_or_else(|| Malformed::new("a part beyond the longest string"))?;
            let end = from + part.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[from..end].copy_from_slice(part);
            Ok(false)
        }
        Hash::TAG => apply::<Hash>(value, operations),
        Set::TAG => apply::<Set>(value, operations),
        List::TAG => apply::<List>(value, operations),
        SortedSet::TAG => apply::<SortedSet>(value, operations),
        Stream::TAG => apply::<Stream>(value, operations),
        other => Err(Malformed::new(format!("operations on type {other}"))),
    }
}
