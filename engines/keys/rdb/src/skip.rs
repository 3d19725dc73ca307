//! Passing by what a file has, without looking into it.

use std::io::Read;

use crate::kind;
use crate::reader::{FileError, Source};

type Skipped = Result<(), FileError>;

/// An entry's id in a stream's list of what is pending.
const ID_BYTES: u64 = 16;
const TIME_BYTES: u64 = 8;
const DOUBLE_BYTES: u64 = 8;

pub(crate) fn bytes<R: Read>(source: &mut Source<R>, count: u64) -> Skipped {
    source.take(count).map(drop)
}

pub(crate) fn lengths<R: Read>(source: &mut Source<R>, count: usize) -> Skipped {
    (0..count).try_for_each(|_| source.length().map(drop))
}

fn strings<R: Read>(source: &mut Source<R>, each: u64) -> Skipped {
    for _ in 0..source.length()? {
        (0..each).try_for_each(|_| source.skip_string())?;
    }
    Ok(())
}

/// A value, whose type has been read.
pub(crate) fn value<R: Read>(source: &mut Source<R>, value: u8) -> Skipped {
    match value {
        kind::STRING
        | kind::HASH_ZIPMAP
        | kind::LIST_ZIPLIST
        | kind::SET_INTSET
        | kind::SORTED_SET_ZIPLIST
        | kind::HASH_ZIPLIST
        | kind::HASH_LISTPACK
        | kind::SORTED_SET_LISTPACK
        | kind::SET_LISTPACK => source.skip_string(),
        kind::LIST | kind::SET | kind::LIST_OF_ZIPLISTS => strings(source, 1),
        kind::HASH => strings(source, 2),
        kind::SORTED_SET => each(source, |source| {
            source.skip_string()?;
            bytes(source, DOUBLE_BYTES)
        }),
        kind::SORTED_SET_IN_TEXT => each(source, |source| {
            source.skip_string()?;
            double_in_text(source)
        }),
        kind::LIST_OF_LISTPACKS => each(source, |source| {
            lengths(source, 1)?;
            source.skip_string()
        }),
        kind::HASH_EXPIRING => {
            bytes(source, TIME_BYTES)?;
            each(source, |source| {
                lengths(source, 1)?;
                source.skip_string()?;
                source.skip_string()
            })
        }
        kind::HASH_LISTPACK_EXPIRING => {
            bytes(source, TIME_BYTES)?;
            source.skip_string()
        }
        kind::STREAM | kind::STREAM_2 | kind::STREAM_3 => stream(source, value),
        kind::MODULE => module(source),
        _ => Err(source.wrong("a type of value that Redis 7.4 or earlier has")),
    }
}

fn each<R: Read>(source: &mut Source<R>, skip: impl Fn(&mut Source<R>) -> Skipped) -> Skipped {
    for _ in 0..source.length()? {
        skip(source)?;
    }
    Ok(())
}

/// A number as Redis 3 and earlier wrote it.
fn double_in_text<R: Read>(source: &mut Source<R>) -> Skipped {
    match source.byte()? {
        253..=255 => Ok(()),
        length => bytes(source, u64::from(length)),
    }
}

fn stream<R: Read>(source: &mut Source<R>, version: u8) -> Skipped {
    strings(source, 2)?;
    // How many entries there are, and the last id.
    lengths(source, 3)?;
    if version != kind::STREAM {
        // The first id, the highest that was deleted, and how many there ever were.
        lengths(source, 5)?;
    }
    each(source, |source| {
        source.skip_string()?;
        // The last id that was given out, and how many were.
        lengths(source, if version == kind::STREAM { 2 } else { 3 })?;
        each(source, |source| {
            bytes(source, ID_BYTES + TIME_BYTES)?;
            lengths(source, 1)
        })?;
        each(source, |source| {
            source.skip_string()?;
            bytes(source, if version == kind::STREAM_3 { 2 * TIME_BYTES } else { TIME_BYTES })?;
            each(source, |source| bytes(source, ID_BYTES))
        })
    })
}

/// What a module wrote: its number, and pieces of the kinds that there are for modules.
pub(crate) fn module<R: Read>(source: &mut Source<R>) -> Skipped {
    const END: u64 = 0;
    const SIGNED: u64 = 1;
    const UNSIGNED: u64 = 2;
    const FLOAT: u64 = 3;
    const DOUBLE: u64 = 4;
    const STRING: u64 = 5;
    lengths(source, 1)?;
    loop {
        match source.length()? {
            END => return Ok(()),
            SIGNED | UNSIGNED => lengths(source, 1)?,
            FLOAT => bytes(source, 4)?,
            DOUBLE => bytes(source, DOUBLE_BYTES)?,
            STRING => source.skip_string()?,
            _ => return Err(source.wrong("a piece of a module's value")),
        }
    }
}
