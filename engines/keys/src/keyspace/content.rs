//! Values as the content of deltas, and back.

use super::{Collection, Entry, Hash, List, Set, SortedSet, Stream, Value};
use crate::delta::{DeltaLog, Header, Malformed, OpReader, STRING_TAG};
use crate::short_bytes::ShortBytes;

/// Writes an entry's whole value into a log.
pub fn log_whole(log: &mut DeltaLog, header: Header<'_>, entry: &Entry) {
    let expires_at = entry.expires_at();
    log.reserve(entry.whole_bytes());
    match &entry.value {
        Value::String(bytes) => log.string(header, expires_at, bytes, false),
        Value::Buffer(bytes) => log.string(header, expires_at, bytes, false),
        Value::Hash(it) => log.whole(header, Hash::TAG, expires_at, |to| it.write_whole(to)),
        Value::Set(it) => log.whole(header, Set::TAG, expires_at, |to| it.write_whole(to)),
        Value::List(it) => log.whole(header, List::TAG, expires_at, |to| it.write_whole(to)),
        Value::SortedSet(it) => log.whole(header, SortedSet::TAG, expires_at, |to| it.write_whole(to)),
        Value::Stream(it) => log.whole(header, Stream::TAG, expires_at, |to| it.write_whole(to)),
    }
}

/// The value of this type and content.
///
/// # Errors
/// [`Malformed`] if they do not fit.
pub(crate) fn value_of(tag: u8, content: &[u8]) -> Result<Value, Malformed> {
    fn collected<T: Collection>(content: &[u8]) -> Result<Value, Malformed> {
        let mut value = T::default();
        value.apply(&mut OpReader::new(content))?;
        Ok(value.into_value())
    }
    match tag {
        STRING_TAG => Ok(Value::String(ShortBytes::from(content))),
        Hash::TAG => collected::<Hash>(content),
        Set::TAG => collected::<Set>(content),
        List::TAG => collected::<List>(content),
        SortedSet::TAG => collected::<SortedSet>(content),
        Stream::TAG => collected::<Stream>(content),
        other => Err(Malformed::new(format!("a value of type {other}"))),
    }
}
