//! Streams in the bytes of Redis.
//!
//! Entries lie in listpacks, each with the number of its first entry. A listpack begins with how many entries it has, how many of them
//! are deleted, and the fields of the first; an entry that has the same leaves them out.

use savanna_keys_rdb::{Writer, kind};

use super::packed::{Listpack, listpack};
use super::reader::Reader;
use super::{NoValue, Read};
use crate::keyspace::types::{Collection as _, Stream, StreamEntry, StreamGroup, StreamId, StreamOperation};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

fn raw(id: StreamId) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.millis.to_be_bytes());
    bytes[8..].copy_from_slice(&id.count.to_be_bytes());
    bytes
}

fn of_raw(bytes: [u8; 16]) -> StreamId {
    let number = u128::from_be_bytes(bytes);
    StreamId { millis: (number >> 64) as u64, count: number as u64 }
}

fn write_id(writer: &mut Writer, id: StreamId) {
    writer.length(id.millis);
    writer.length(id.count);
}

fn read_id(reader: &mut Reader<'_>) -> Read<StreamId> {
    Ok(StreamId { millis: reader.length()?, count: reader.length()? })
}

/// How many entries were read, if nobody knows.
const UNKNOWN: u64 = u64::MAX;

pub(super) fn write(writer: &mut Writer, stream: &Stream) {
    let blocks: Vec<Vec<StreamEntry<'_>>> = stream.blocks().collect();
    writer.length(blocks.len() as u64);
    for entries in &blocks {
        if let Some(first) = entries.first() {
            writer.string(&raw(first.id));
            writer.string(&packed(first, entries));
        }
    }
    writer.length(stream.len() as u64);
    write_id(writer, stream.last());
    write_id(writer, stream.first());
    write_id(writer, stream.max_deleted());
    writer.length(stream.added());
    writer.length(stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        writer.string(name);
        write_group(writer, group);
    }
}

fn packed(first: &StreamEntry<'_>, entries: &[StreamEntry<'_>]) -> Vec<u8> {
    let fields: Vec<&[u8]> = first.fields().map(|(field, _)| field).collect();
    let mut pack = Listpack::new();
    pack.number(entries.len() as i64);
    pack.number(0);
    pack.number(fields.len() as i64);
    fields.iter().for_each(|field| pack.text(field));
    pack.number(0);
    for entry in entries {
        let is_same = entry.fields().map(|(field, _)| field).eq(fields.iter().copied());
        let count = entry.fields().count() as i64;
        pack.number(if is_same { SAME_FIELDS } else { 0 });
        pack.number(entry.id.millis.wrapping_sub(first.id.millis) as i64);
        pack.number(entry.id.count.wrapping_sub(first.id.count) as i64);
        if !is_same {
            pack.number(count);
        }
        for (field, value) in entry.fields() {
            if !is_same {
                pack.text(field);
            }
            pack.text(value);
        }
        // How many elements the entry has before this one.
        pack.number(if is_same { 3 + count } else { 4 + 2 * count });
    }
    pack.into_bytes()
}

fn write_group(writer: &mut Writer, group: &StreamGroup) {
    write_id(writer, group.last);
    writer.length(group.read.unwrap_or(UNKNOWN));
    writer.length(group.pending_count() as u64);
    for (id, pending) in group.pending(StreamId::MIN) {
        writer.bytes(&raw(id));
        writer.bytes(&pending.at.to_le_bytes());
        writer.length(pending.count);
    }
    writer.length(group.consumers().len() as u64);
    for (name, consumer) in group.consumers() {
        writer.string(name);
        writer.bytes(&consumer.seen_at.to_le_bytes());
        writer.length(consumer.pending.len() as u64);
        consumer.pending.iter().for_each(|id| writer.bytes(&raw(*id)));
    }
}

pub(super) fn read(reader: &mut Reader<'_>, version: u8) -> Read<Stream> {
    let mut stream = Stream::default();
    for _ in 0..reader.length()? {
        let first = reader.string()?;
        let first = of_raw(<[u8; 16]>::try_from(&*first).map_err(|_| NoValue::Format)?);
        read_pack(&mut stream, first, &listpack(&reader.packed()?)?)?;
    }
    if reader.length()? != stream.len() as u64 {
        return Err(NoValue::Format);
    }
    let last = read_id(reader)?;
    if stream.top().is_some_and(|top| top > last) {
        return Err(NoValue::Format);
    }
    let (mut max_deleted, mut added) = (StreamId::MIN, stream.len() as u64);
    if version != kind::STREAM {
        read_id(reader)?; // the first, which is the first that is there
        max_deleted = read_id(reader)?;
        added = reader.length()?;
    }
    if added < stream.len() as u64 {
        return Err(NoValue::Format);
    }
    stream.perform(&StreamOperation::SetId { last, added, max_deleted });
    for _ in 0..reader.length()? {
        read_group(&mut stream, reader, version)?;
    }
    Ok(stream)
}

fn read_pack(stream: &mut Stream, first: StreamId, pack: &[Vec<u8>]) -> Read<()> {
    let mut words = pack.iter().map(Vec::as_slice);
    let mut word = || words.next().ok_or(NoValue::Format);
    let number = |text: &[u8]| crate::number::integer(text).ok_or(NoValue::Format);
    let (live, deleted) = (number(word()?)?, number(word()?)?);
    let mut fields = Vec::new();
    for _ in 0..number(word()?)? {
        fields.push(word()?);
    }
    number(word()?)?;
    let mut found = 0;
    for _ in 0..live.checked_add(deleted).ok_or(NoValue::Format)? {
        let flags = number(word()?)?;
        let id = StreamId {
            millis: first.millis.wrapping_add(number(word()?)? as u64),
            count: first.count.wrapping_add(number(word()?)? as u64),
        };
        let mut entry = Vec::new();
        if flags & SAME_FIELDS == 0 {
            for _ in 0..number(word()?)? {
                entry.extend([word()?, word()?]);
            }
        } else {
            for field in &fields {
                entry.extend([*field, word()?]);
            }
        }
        word()?; // how many elements it has
        if flags & DELETED != 0 {
            continue;
        }
        if entry.is_empty() || id <= stream.last() {
            return Err(NoValue::Format);
        }
        found += 1;
        stream.perform(&StreamOperation::Add { id, words: entry });
    }
    if found == live && words.next().is_none() { Ok(()) } else { Err(NoValue::Format) }
}

fn read_group(stream: &mut Stream, reader: &mut Reader<'_>, version: u8) -> Read<()> {
    let name = reader.string()?;
    if stream.group(&name).is_some() {
        return Err(NoValue::Format);
    }
    let last = read_id(reader)?;
    let read = if version == kind::STREAM {
        stream.added_up_to(last)
    } else {
        Some(reader.length()?).filter(|read| *read != UNKNOWN)
    };
    stream.perform(&StreamOperation::CreateGroup { name: &name, last, read });
    let mut pending = std::collections::BTreeMap::new();
    for _ in 0..reader.length()? {
        let (id, at) = (of_raw(reader.chunk()?), u64::from_le_bytes(reader.chunk()?));
        pending.insert(id, (at, reader.length()?));
    }
    for _ in 0..reader.length()? {
        let consumer = reader.string()?;
        let seen_at = u64::from_le_bytes(reader.chunk()?);
        if version == kind::STREAM_3 {
            reader.chunk::<8>()?; // when it got something
        }
        stream.perform(&StreamOperation::SeeConsumer { group: &name, name: &consumer, at: seen_at });
        for _ in 0..reader.length()? {
            let id = of_raw(reader.chunk()?);
            let (at, count) = pending.remove(&id).ok_or(NoValue::Format)?;
            let delivery = StreamOperation::Deliver { group: &name, consumer: &consumer, at, count, ids: vec![id] };
            stream.perform(&delivery);
        }
    }
    // What is pending at nobody is not pending.
    if pending.is_empty() { Ok(()) } else { Err(NoValue::Format) }
}
