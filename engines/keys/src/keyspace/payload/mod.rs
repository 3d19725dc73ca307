//! Values in the bytes that Redis gives them (`DUMP`, `RESTORE`).
//!
//! ```text
//! ┌──────┬─────────┬───────────┬────────┐
//! │ type │ content │ version 2 │ CRC-64 │   version: of Redis' files; CRC-64: of all before it
//! └──────┴─────────┴───────────┴────────┘
//!  1                2           8
//! ```
//!
//! What is written has the plain form of each type, which every Redis since 7.0 reads. What is read may also have the packed forms that
//! Redis 5 and later write: ziplists, listpacks and sets of whole numbers.

mod packed;
mod reader;
mod streams;

use savanna_keys_rdb::{FUNCTIONS, VERSION, VERSION_MAX, Writer, crc64, kind, seal, version_of};
use savanna_lattice::UnixMillis;

use self::packed::{intset, listpack, ziplist};
use self::reader::Reader;
use super::entry::LATEST_EXPIRY;
use super::types::{Collection as _, Hash, List, Score, Set, SortedSet};
use super::{STRING_BYTES_MAX, Value};
use crate::number::integer;
use crate::short_bytes::ShortBytes;

/// Why bytes are no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoValue {
    /// They were changed, or are of a later version.
    #[error("ERR DUMP payload version or checksum are wrong")]
    Checksum,
    /// They do not have the form of any type.
    #[error("ERR Bad data format")]
    Format,
    /// There is no memory for it.
    #[error("OOM the operating system does not have the memory for this value, which is longer than its payload")]
    Memory,
}

type Read<T> = Result<T, NoValue>;

/// A value as bytes.
#[must_use]
pub fn dump(value: &Value) -> Vec<u8> {
    let mut writer = Writer::with_capacity(value.heap_bytes());
    let kind = kind_of(value);
    writer.byte(kind);
    write(&mut writer, value);
    seal(writer.into_bytes(), version_of(kind))
}

/// The byte that says of what kind a value is.
#[must_use]
pub fn kind_of(value: &Value) -> u8 {
    match value {
        Value::String(_) | Value::Buffer(_) => kind::STRING,
        Value::List(_) => kind::LIST,
        Value::Set(_) => kind::SET,
        Value::Hash(hash) if hash.first_expiry().is_some() => kind::HASH_EXPIRING,
        Value::Hash(_) => kind::HASH,
        Value::SortedSet(_) => kind::SORTED_SET,
        Value::Stream(_) => kind::STREAM_2,
    }
}

/// Writes what stands behind the byte of the kind.
pub fn write(writer: &mut Writer, value: &Value) {
    match value {
        Value::String(bytes) => writer.string(bytes),
        Value::Buffer(bytes) => writer.string(bytes),
        Value::List(list) => {
            writer.length(list.len() as u64);
            list.iter().for_each(|element| writer.string(element));
        }
        Value::Set(set) => {
            writer.length(set.len() as u64);
            set.iter().for_each(|member| writer.string(member));
        }
        Value::Hash(hash) => {
            let first = hash.first_expiry().map(|(at, _)| at);
            if let Some(first) = first {
                writer.bytes(&first.0.to_le_bytes());
            }
            writer.length(hash.len() as u64);
            for (field, value) in hash.iter() {
                if let Some(first) = first {
                    // Counted from the first, from 1; 0 is never.
                    writer.length(hash.expiry_of(field).map_or(0, |at| at.0 - first.0 + 1));
                }
                writer.string(field);
                writer.string(value);
            }
        }
        Value::SortedSet(set) => {
            writer.length(set.len() as u64);
            // The highest first, as Redis, which reads them faster so.
            for (member, score) in set.iter().rev() {
                writer.string(member);
                writer.bytes(&score.get().to_le_bytes());
            }
        }
        Value::Stream(stream) => streams::write(writer, stream),
    }
}

/// The value of bytes that [`dump`] or a Redis gave.
///
/// # Errors
/// [`NoValue`].
pub fn restore(payload: &[u8]) -> Read<Value> {
    let mut reader = Reader::new(unsealed(payload)?);
    let value = read(&mut reader)?;
    if reader.is_at_end() { Ok(value) } else { Err(NoValue::Format) }
}

/// What is in a payload, if nobody has changed it.
fn unsealed(payload: &[u8]) -> Read<&[u8]> {
    let (checked, checksum) = payload.split_last_chunk().ok_or(NoValue::Checksum)?;
    let (value, version) = checked.split_last_chunk().ok_or(NoValue::Checksum)?;
    let is_known = u16::from_le_bytes(*version) <= VERSION_MAX;
    if is_known && crc64::of(checked) == u64::from_le_bytes(*checksum) { Ok(value) } else { Err(NoValue::Checksum) }
}

/// Libraries of functions, by their texts, as bytes (`FUNCTION DUMP`).
#[must_use]
pub fn dump_libraries<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut writer = Writer::default();
    for text in texts {
        writer.byte(FUNCTIONS);
        writer.string(text);
    }
    seal(writer.into_bytes(), VERSION)
}

/// The texts of libraries out of bytes that [`dump_libraries`] or a Redis gave.
///
/// # Errors
/// [`NoValue`].
pub fn restore_libraries(payload: &[u8]) -> Read<Vec<Vec<u8>>> {
    let mut reader = Reader::new(unsealed(payload)?);
    let mut texts = Vec::new();
    while !reader.is_at_end() {
        if reader.byte()? != FUNCTIONS {
            return Err(NoValue::Format);
        }
        texts.push(reader.string()?.into_owned());
    }
    Ok(texts)
}

fn read(reader: &mut Reader<'_>) -> Read<Value> {
    Ok(match reader.byte()? {
        kind::STRING => {
            let bytes = reader.string()?;
            if bytes.len() > STRING_BYTES_MAX {
                return Err(NoValue::Format);
            }
            Value::String(ShortBytes::from(&*bytes))
        }
        kind::LIST => list_of(&reader.strings(1)?)?,
        kind::LIST_ZIPLIST => list_of(&ziplist(&reader.packed()?)?)?,
        kind::LIST_OF_ZIPLISTS => {
            let mut elements = Vec::new();
            for _ in 0..reader.length()? {
                elements.append(&mut ziplist(&reader.packed()?)?);
            }
            list_of(&elements)?
        }
        kind::LIST_OF_LISTPACKS => {
            const PLAIN: u64 = 1;
            let mut elements = Vec::new();
            for _ in 0..reader.length()? {
                let is_plain = reader.length()? == PLAIN;
                if is_plain {
                    elements.push(reader.string()?.into_owned());
                } else {
                    elements.append(&mut listpack(&reader.packed()?)?);
                }
            }
            list_of(&elements)?
        }
        kind::SET => set_of(&reader.strings(1)?)?,
        kind::SET_INTSET => set_of(&intset(&reader.packed()?)?)?,
        kind::SET_LISTPACK => set_of(&listpack(&reader.packed()?)?)?,
        kind::HASH => hash_of(&reader.strings(2)?)?,
        kind::HASH_EXPIRING => {
            let first = u64::try_from(i64::from_le_bytes(reader.chunk()?)).map_err(|_| NoValue::Format)?;
            let mut hash = Hash::default();
            for _ in 0..reader.length()? {
                let at = match reader.length()? {
                    0 => None,
                    after => Some(first.checked_add(after - 1).ok_or(NoValue::Format)?),
                };
                let (field, value) = (reader.string()?, reader.string()?);
                put_expiring(&mut hash, &field, &value, at)?;
            }
            not_empty(hash)?
        }
        kind::HASH_LISTPACK_EXPIRING => {
            // The first is among them.
            reader.take(size_of::<u64>())?;
            let mut hash = Hash::default();
            let words = listpack(&reader.packed()?)?;
            let (fields, rest) = words.as_chunks::<3>();
            for [field, value, at] in fields {
                let at = integer(at).and_then(|at| u64::try_from(at).ok()).ok_or(NoValue::Format)?;
                put_expiring(&mut hash, field, value, Some(at).filter(|at| *at != 0))?;
            }
            if rest.is_empty() { not_empty(hash)? } else { return Err(NoValue::Format) }
        }
        kind::HASH_ZIPLIST => hash_of(&ziplist(&reader.packed()?)?)?,
        kind::HASH_LISTPACK => hash_of(&listpack(&reader.packed()?)?)?,
        of_text @ (kind::SORTED_SET | kind::SORTED_SET_IN_TEXT) => {
            let mut set = SortedSet::default();
            for _ in 0..reader.length()? {
                let member = reader.string()?.into_owned();
                let score = if of_text == kind::SORTED_SET { reader.double()? } else { reader.double_in_text()? };
                add_scored(&mut set, &member, score)?;
            }
            not_empty(set)?
        }
        kind::SORTED_SET_ZIPLIST => sorted_set_of(&ziplist(&reader.packed()?)?)?,
        kind::SORTED_SET_LISTPACK => sorted_set_of(&listpack(&reader.packed()?)?)?,
        version @ (kind::STREAM | kind::STREAM_2 | kind::STREAM_3) => streams::read(reader, version)?.into_value(),
        _ => return Err(NoValue::Format),
    })
}

fn not_empty<T: super::Collection>(collection: T) -> Read<Value> {
    if collection.is_empty() { Err(NoValue::Format) } else { Ok(collection.into_value()) }
}

fn list_of(elements: &[Vec<u8>]) -> Read<Value> {
    not_empty(elements.iter().map(Vec::as_slice).collect::<List>())
}

fn set_of(members: &[Vec<u8>]) -> Read<Value> {
    let set: Set = members.iter().map(Vec::as_slice).collect();
    if set.len() == members.len() { not_empty(set) } else { Err(NoValue::Format) }
}

fn hash_of(words: &[Vec<u8>]) -> Read<Value> {
    let (pairs, rest) = words.as_chunks::<2>();
    let mut hash = Hash::default();
    let are_new = pairs.iter().all(|[field, value]| hash.put(field, value));
    if are_new && rest.is_empty() { not_empty(hash) } else { Err(NoValue::Format) }
}

/// Puts a field that is new, and expires at a time in milliseconds since 1970.
fn put_expiring(hash: &mut Hash, field: &[u8], value: &[u8], at: Option<u64>) -> Read<()> {
    let is_new = hash.put(field, value);
    if let Some(at) = at {
        hash.expire(field, UnixMillis(at).min(LATEST_EXPIRY));
    }
    if is_new { Ok(()) } else { Err(NoValue::Format) }
}

fn sorted_set_of(words: &[Vec<u8>]) -> Read<Value> {
    let (pairs, rest) = words.as_chunks::<2>();
    let mut set = SortedSet::default();
    for [member, score] in pairs {
        add_scored(&mut set, member, reader::parse_double(score)?)?;
    }
    if rest.is_empty() { not_empty(set) } else { Err(NoValue::Format) }
}

fn add_scored(set: &mut SortedSet, member: &[u8], score: f64) -> Read<()> {
    let is_new = set.put(member, Score::new(score).ok_or(NoValue::Format)?);
    if is_new { Ok(()) } else { Err(NoValue::Format) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a Redis 7.0 gave for values in packed forms.
    #[test]
    fn packed_forms_are_read() {
        let shown = |bytes: &[u8]| match restore(&sealed(bytes)) {
            Ok(Value::Hash(hash)) => {
                hash.iter().map(|(f, v)| format!("{}={} ", f.escape_ascii(), v.escape_ascii())).collect()
            }
            Ok(Value::Set(set)) => set.iter().map(|member| format!("{} ", member.escape_ascii())).collect(),
            Ok(Value::List(list)) => list.iter().map(|element| format!("{} ", element.escape_ascii())).collect(),
            other => format!("{other:?}"),
        };
        assert_eq!(shown(b"\x0b\x0c\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\xff\xff"), "1 -1 ");
        // A ziplist of "a", 3, 1000.
        let ziplist = b"\x0a\x14\x14\x00\x00\x00\x0f\x00\x00\x00\x03\x00\x00\x01a\x03\xf4\x02\xc0\xe8\x03\xff\x00\x00";
        assert_eq!(shown(&ziplist[..22]), "a 3 1000 ");
        assert_eq!(shown(&ziplist[..21]), "Err(Format)", "it ends too early");
        let listpack = b"\x10\x10\x10\x00\x00\x00\x04\x00\x81a\x02\x05\x01\x81b\x02\xff";
        assert_eq!(shown(listpack), "Err(Format)", "its length is wrong");
        for bytes in [&b""[..], b"\x01\x00", b"\x02\x02\x01a\x01a", b"\x04\x01\x01a", b"\x63", b"\x00\x01aa"] {
            assert_eq!(shown(bytes), "Err(Format)", "{bytes:?}");
        }
    }

    fn sealed(bytes: &[u8]) -> Vec<u8> {
        seal(bytes.to_vec(), VERSION)
    }

    #[test]
    fn nothing_that_anybody_sends_takes_more_than_it_has_bytes() {
        // Lengths beyond all memory, in each of the forms.
        for kind in 0..=25 {
            for length in [
                &b"\x81\xff\xff\xff\xff\xff\xff\xff\xff"[..],
                b"\x80\xff\xff\xff\xff",
                b"\xc3\x05\x81\xff\xff\xff\xff\xff\xff\xff\xffabcde",
            ] {
                let bytes = [&[kind][..], length, b"some bytes behind"].concat();
                assert!(restore(&sealed(&bytes)).is_err(), "{kind}");
            }
        }
    }
}
