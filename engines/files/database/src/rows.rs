//! Rows of the namespace as rows of the tables, and back.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Buf as _;
use savanna_files::Stored;
use savanna_files::change::{Block, CallId, File, Kind, More, Retry, RetryAnswer, Row, Unfinished, Writer};
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp, Txid};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row as SqlRow};

use crate::DatabaseError;

/// Rows, a column each.
#[derive(Debug, Default)]
pub(crate) struct Columns<'a> {
    parent: Vec<i64>,
    name: Vec<&'a [u8]>,
    id: Vec<i64>,
    is_directory: Vec<bool>,
    owner: Vec<Cow<'a, str>>,
    group: Vec<Cow<'a, str>>,
    mode: Vec<i32>,
    mtime: Vec<i64>,
    atime: Vec<i64>,
    replication: Vec<i32>,
    block_size: Vec<i64>,
    length: Vec<i64>,
    blocks: Vec<String>,
    client: Vec<Option<Cow<'a, str>>>,
    machine: Vec<Option<Cow<'a, str>>>,
    children: Vec<i64>,
    txid: Vec<i64>,
    more: Vec<Option<Vec<u8>>>,
    unfinished: Vec<Option<i64>>,
    written: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(rows: &'a [Stored]) -> Self {
        let mut columns = Self::default();
        for Stored { row, children, txid } in rows {
            let file = match &row.kind {
                Kind::File(file) => Some(&**file),
                Kind::Directory => None,
            };
            let writer = file.and_then(|file| file.writer.as_ref());
            columns.parent.push(row.parent.0.cast_signed());
            columns.name.push(&row.name);
            columns.id.push(row.id.0.cast_signed());
            columns.is_directory.push(file.is_none());
            columns.owner.push(text(&row.owner));
            columns.group.push(text(&row.group));
            columns.mode.push(row.mode.into());
            columns.mtime.push(row.mtime.0.cast_signed());
            columns.atime.push(row.atime.0.cast_signed());
            columns.replication.push(file.map_or(0, |file| file.replication.into()));
            columns.block_size.push(file.map_or(0, |file| file.block_size.bytes().cast_signed()));
            columns.length.push(file.map_or(0, |file| file.length().cast_signed()));
            columns.blocks.push(array(file.map_or(&[], |file| &file.blocks)));
            columns.client.push(writer.map(|writer| text(&writer.client)));
            columns.machine.push(writer.map(|writer| text(&writer.machine)));
            columns.children.push(i64::try_from(*children).unwrap_or(i64::MAX));
            columns.txid.push(txid.0.cast_signed());
            columns.more.push(row.more.as_ref().map(|more| more.encode()));
            columns.unfinished.push(writer.and_then(|writer| unfinished_as_number(writer.unfinished)));
            columns.written.push(writer.and_then(|writer| writer.written).map(|stamp| stamp.0.cast_signed()));
        }
        columns
    }

    /// In the order of the statement.
    pub(crate) fn parameters(&self) -> [&(dyn ToSql + Sync); 20] {
        [
            &self.parent,
            &self.name,
            &self.id,
            &self.is_directory,
            &self.owner,
            &self.group,
            &self.mode,
            &self.mtime,
            &self.atime,
            &self.replication,
            &self.block_size,
            &self.length,
            &self.blocks,
            &self.client,
            &self.machine,
            &self.children,
            &self.txid,
            &self.more,
            &self.unfinished,
            &self.written,
        ]
    }
}

/// A text without NUL, which SQL does not know. Operations refuse it; logs of earlier releases may have it.
fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// Blocks as the text of an array of four numbers each.
fn array(blocks: &[Block]) -> String {
    let numbers = blocks.iter().flat_map(|block| {
        [block.id.0, block.stamp.0, block.length, u64::from(block.is_committed)]
            .map(|number| number.cast_signed().to_string())
    });
    format!("{{{}}}", numbers.collect::<Vec<_>>().join(","))
}

fn blocks(numbers: &[i64]) -> Vec<Block> {
    let (blocks, _) = numbers.as_chunks::<4>();
    let block = |[id, stamp, length, is_committed]: &[i64; 4]| Block {
        id: BlockId(id.cast_unsigned()),
        stamp: Stamp(stamp.cast_unsigned()),
        length: length.cast_unsigned(),
        is_committed: *is_committed == 1,
    };
    blocks.iter().map(block).collect()
}

/// A file that goes if it is not written to its end.
const GOES: i64 = -1;

/// What becomes of a file that is not written to its end, as a number; nothing if it stays.
const fn unfinished_as_number(unfinished: Unfinished) -> Option<i64> {
    match unfinished {
        Unfinished::Stays => None,
        Unfinished::Goes => Some(GOES),
        Unfinished::CutTo(length) => Some(length.cast_signed()),
    }
}

fn unfinished_of(number: Option<i64>) -> Result<Unfinished, DatabaseError> {
    Ok(match number {
        None => Unfinished::Stays,
        Some(GOES) => Unfinished::Goes,
        Some(length) => Unfinished::CutTo(fits(length, "a length of a file, or -1")?),
    })
}

/// A number that should fit.
fn fits<T: TryFrom<i64>>(number: i64, what: &'static str) -> Result<T, DatabaseError> {
    T::try_from(number).map_err(|_| DatabaseError::Damaged { what, came: number })
}

/// A row of the tables; none if the columns are empty.
pub(crate) fn stored(row: &SqlRow) -> Result<Option<Stored>, DatabaseError> {
    let number = |at: usize| row.try_get::<_, i64>(at);
    let Some(parent) = row.try_get::<_, Option<i64>>(1)? else { return Ok(None) };
    let text = |at: usize| row.try_get::<_, &str>(at).map(Arc::from);
    let kind = if row.try_get(4)? {
        Kind::Directory
    } else {
        let client: Option<&str> = row.try_get(13)?;
        let machine: Option<&str> = row.try_get(14)?;
        let unfinished = unfinished_of(row.try_get(18)?)?;
        let written = row.try_get::<_, Option<i64>>(19)?.map(|stamp| Stamp(stamp.cast_unsigned()));
        let writer = client.map(|client| {
            let machine = machine.unwrap_or_default().into();
            Box::new(Writer { client: client.into(), machine, unfinished, written })
        });
        Kind::File(Box::new(File {
            replication: fits(row.try_get::<_, i32>(10)?.into(), "a replication from 0 to 65535")?,
            block_size: number(11)?.cast_unsigned().into(),
            blocks: blocks(&row.try_get::<_, Vec<i64>>(12)?).into(),
            writer,
        }))
    };
    Ok(Some(Stored {
        row: Row {
            parent: InodeId(parent.cast_unsigned()),
            name: row.try_get::<_, &[u8]>(2)?.into(),
            id: InodeId(number(3)?.cast_unsigned()),
            owner: text(5)?,
            group: text(6)?,
            mode: fits(row.try_get::<_, i32>(7)?.into(), "a mode from 0 to 65535")?,
            mtime: Millis(number(8)?.cast_unsigned()),
            atime: Millis(number(9)?.cast_unsigned()),
            kind,
            more: row.try_get::<_, Option<&[u8]>>(17)?.map(More::decode).transpose()?.map(Box::new),
        },
        children: fits(number(15)?, "a count of children")?,
        txid: Txid(number(16)?.cast_unsigned()),
    }))
}

/// An answer as two numbers.
const fn as_numbers(answer: RetryAnswer) -> (u8, u64) {
    match answer {
        RetryAnswer::Done => (0, 0),
        RetryAnswer::Bool(false) => (1, 0),
        RetryAnswer::Bool(true) => (2, 0),
        RetryAnswer::Created(id) => (3, id.0),
        RetryAnswer::Appended(id) => (4, id.0),
    }
}

fn of_numbers(kind: i64, id: u64) -> Result<RetryAnswer, DatabaseError> {
    Ok(match kind {
        0 => RetryAnswer::Done,
        1 => RetryAnswer::Bool(false),
        2 => RetryAnswer::Bool(true),
        3 => RetryAnswer::Created(InodeId(id)),
        4 => RetryAnswer::Appended(InodeId(id)),
        other => return Err(DatabaseError::Damaged { what: "an answer from 0 to 4", came: other }),
    })
}

/// An answer that is kept, with its instant and change.
type Kept = (Millis, Txid, Retry);

/// Bytes of a kept answer: the client, the call, the instant, the change, and the answer as two numbers.
pub(crate) const ANSWER_BYTES: usize = 16 + 4 + 8 + 8 + 1 + 8;

/// Answers that are kept, as bytes; numbers begin with their largest byte.
pub(crate) fn answers_as_bytes(kept: &[Kept]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(kept.len() * ANSWER_BYTES);
    for (at, txid, Retry { call, answer }) in kept {
        let (kind, id) = as_numbers(*answer);
        bytes.extend(call.client);
        bytes.extend(call.call.to_be_bytes());
        bytes.extend(at.0.to_be_bytes());
        bytes.extend(txid.0.to_be_bytes());
        bytes.push(kind);
        bytes.extend(id.to_be_bytes());
    }
    bytes
}

/// The answers of [`answers_as_bytes`].
pub(crate) fn answers(bytes: &[u8]) -> Result<Vec<Kept>, DatabaseError> {
    let (kept, rest) = bytes.as_chunks::<ANSWER_BYTES>();
    if !rest.is_empty() {
        let came = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        return Err(DatabaseError::Damaged { what: "answers of 45 bytes each", came });
    }
    kept.iter().map(|kept| kept_answer(kept)).collect()
}

fn kept_answer(mut bytes: &[u8]) -> Result<Kept, DatabaseError> {
    let mut next = [0; 16];
    bytes.copy_to_slice(&mut next);
    let call = CallId { client: next, call: bytes.get_i32() };
    let (at, txid) = (Millis(bytes.get_u64()), Txid(bytes.get_u64()));
    let answer = of_numbers(bytes.get_u8().into(), bytes.get_u64())?;
    Ok((at, txid, Retry { call, answer }))
}

/// The same of a row of earlier versions.
pub(crate) fn retry(row: &SqlRow) -> Result<Kept, DatabaseError> {
    let number = |at: usize| -> Result<u64, Error> { Ok(row.try_get::<_, i64>(at)?.cast_unsigned()) };
    let client: &[u8] = row.try_get(0)?;
    let length = i64::try_from(client.len()).unwrap_or(i64::MAX);
    let client =
        client.try_into().map_err(|_| DatabaseError::Damaged { what: "a client of 16 bytes", came: length })?;
    let answer = of_numbers(row.try_get::<_, i32>(4)?.into(), number(5)?)?;
    let call = CallId { client, call: row.try_get(1)? };
    Ok((Millis(number(2)?), Txid(number(3)?), Retry { call, answer }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_from_their_bytes() {
        let id = InodeId(1 << 60);
        let all = [
            RetryAnswer::Done,
            RetryAnswer::Bool(false),
            RetryAnswer::Bool(true),
            RetryAnswer::Created(id),
            RetryAnswer::Appended(id),
        ];
        let kept: Vec<Kept> = (1..)
            .zip(all)
            .map(|(n, answer)| {
                let call = CallId { client: [n; 16], call: -i32::from(n) };
                (Millis(1 << 40), Txid(u64::from(n)), Retry { call, answer })
            })
            .collect();
        let bytes = answers_as_bytes(&kept);
        assert_eq!(answers(&bytes).unwrap(), kept);
        assert!(answers(&[]).unwrap().is_empty());
        assert!(answers(&bytes[1..]).is_err());
        let mut other = bytes;
        other[36] = 9;
        assert!(answers(&other).is_err());
    }
}
