//! Commits in the log that all tenants of a process share.
//!
//! ```text
//! CREATED  name                                     the record's shard is the tenant from now on
//! COMMIT   csn of the tenant's commit before, 8 bytes | csn, 8 | write | write | ..        all numbers smallest first
//!          write: length of the key, 4 | key | length of the value, 4, or ff ff ff ff if the key goes | value
//!          or, instead of writes: ff ff ff ff | keys, 8 | bytes of the writes, 8 | part | part | ..      see `parts`
//!          part: length of the path, 4 | path | bytes, 8 | CRC-32C, 4
//! DROPPED  nothing
//! UNLINKED csn, 8 bytes | write | write | ..       a commit as former releases wrote it
//! RESERVED nothing                               the shard is a number that is given; what is stored under it is nobody's yet
//! OWNED    epoch of the shard, 8 bytes            the tenant's history of that epoch begins behind it
//! TAIL     epoch of the shard, 8 bytes | commit   a record COMMIT that another log had, taken over under that epoch
//! ```
//!
//! CREATED, DROPPED and RESERVED are of former releases.

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use savanna_epoch::OwnerEpoch;
use savanna_journal::{Draft, Journal, JournalError, Lsn};
use savanna_manifest::ObjectRef;
use savanna_transaction::{Committed, Csn};

/// The kinds of records.
pub(crate) const UNLINKED: u16 = 1;
pub(crate) const CREATED: u16 = 2;
pub(crate) const DROPPED: u16 = 3;
pub(crate) const RESERVED: u16 = 4;
pub(crate) const COMMIT: u16 = 5;
pub(crate) const OWNED: u16 = 6;
pub(crate) const TAIL: u16 = 7;

/// Whether this release knows records of a kind.
pub(crate) const fn is_kind(kind: u16) -> bool {
    UNLINKED <= kind && kind <= TAIL
}

const GONE: u32 = u32::MAX;
/// No key is so long: what follows names parts.
const IN_PARTS: [u8; 4] = u32::MAX.to_le_bytes();

/// Where a tenant's commits are logged. Appending orders and buffers; it does not wait.
pub trait Log: Debug + Send {
    /// Appends a commit's record.
    ///
    /// # Errors
    /// Those of the journal.
    fn append(&mut self, record: &[u8]) -> Result<Lsn, JournalError>;

    /// Everything up to here is durable.
    fn durable(&self) -> Lsn;
}

/// A tenant's part of the process's journal.
#[derive(Debug)]
pub struct Shard {
    /// The journal.
    pub journal: Arc<Journal>,
    /// The tenant's number.
    pub shard: u64,
}

impl Log for Shard {
    fn append(&mut self, record: &[u8]) -> Result<Lsn, JournalError> {
        append(&self.journal, &[Draft { shard: self.shard, kind: COMMIT, payload: record }])
    }

    fn durable(&self) -> Lsn {
        self.journal.durable()
    }
}

/// Appends to a journal that has space for it. What was appended to another one would keep waiting whoever reads it.
pub(crate) fn append(journal: &Journal, group: &[Draft<'_>]) -> Result<Lsn, JournalError> {
    if let Some(full) = journal.full() {
        return Err(full);
    }
    let bytes = Journal::written_bytes(group);
    journal.take_space(bytes)?;
    let appended = journal.append(group);
    journal.give_back(bytes);
    appended
}

/// A commit's record. `before` is the tenant's last one in the log.
pub(crate) fn encode(before: Csn, committed: &Committed<Box<[u8]>>) -> Vec<u8> {
    let writes = committed.writes().map(|(key, value)| (key, value.map(|value| &**value)));
    encode_writes(before, committed.csn(), writes)
}

/// The record of a commit that has written these keys.
pub(crate) fn encode_writes<'a>(
    before: Csn,
    csn: Csn,
    writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> Vec<u8> {
    let mut record = [before.0.to_le_bytes(), csn.0.to_le_bytes()].concat();
    writes.for_each(|(key, value)| put_write(&mut record, key, value));
    record
}

/// Appends a write.
pub(crate) fn put_write(bytes: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    bytes.extend((key.len() as u32).to_le_bytes());
    bytes.extend(key);
    bytes.extend(value.map_or(GONE, |value| value.len() as u32).to_le_bytes());
    bytes.extend(value.unwrap_or_default());
}

/// A commit whose writes are not in its record, but in parts beside the segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InParts {
    /// The tenant's commit before.
    pub before: Csn,
    /// The commit's number.
    pub csn: Csn,
    /// Keys that it writes, and the bytes of these writes.
    pub keys: u64,
    /// The same as bytes of a record.
    pub bytes: u64,
    /// Where the writes are, in the order of keys.
    pub objects: Vec<ObjectRef>,
}

impl InParts {
    /// The record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { before, csn, keys, bytes, objects } = self;
        let mut record = [before.0.to_le_bytes(), csn.0.to_le_bytes()].concat();
        record.extend(IN_PARTS);
        record.extend(keys.to_le_bytes());
        record.extend(bytes.to_le_bytes());
        for ObjectRef { path, bytes, crc32c } in objects {
            record.extend((path.len() as u32).to_le_bytes());
            record.extend(path.as_bytes());
            record.extend(bytes.to_le_bytes());
            record.extend(crc32c.to_le_bytes());
        }
        record
    }

    /// What a record of a commit says; nothing if its writes are in it.
    pub(crate) fn of(record: &[u8]) -> Result<Option<Self>, RecordError> {
        let mut fields = Fields { record, at: 0 };
        let before = Csn(fields.number("the number of the commit before", 8)?);
        let csn = Csn(fields.number("a commit's number", 8)?);
        if record.get(fields.at..).is_none_or(|rest| !rest.starts_with(&IN_PARTS)) {
            return Ok(None);
        }
        fields.at += IN_PARTS.len();
        let (keys, bytes) =
            (fields.number("how many keys are in parts", 8)?, fields.number("how many bytes they are", 8)?);
        let mut objects = Vec::new();
        while !fields.is_over() {
            let length = fields.number("the length of a part's path", 4)? as usize;
            let wrong = RecordError { expected: "a part's path", at: fields.at };
            let path = str::from_utf8(fields.take("a part's path", length)?).map_err(|_| wrong)?.to_owned();
            let bytes = fields.number("a part's length", 8)?;
            let crc32c = fields.number("a part's checksum", 4)? as u32;
            objects.push(ObjectRef { path, bytes, crc32c });
        }
        Ok(Some(Self { before, csn, keys, bytes, objects }))
    }
}

/// What is read of a record, one field after the other.
struct Fields<'r> {
    record: &'r [u8],
    at: usize,
}

impl<'r> Fields<'r> {
    fn take(&mut self, expected: &'static str, bytes: usize) -> Result<&'r [u8], RecordError> {
        let at = self.at;
        let taken = self.record.get(at..).and_then(|rest| rest.get(..bytes)).ok_or(RecordError { expected, at })?;
        self.at += bytes;
        Ok(taken)
    }

    /// A number, smallest byte first.
    fn number(&mut self, expected: &'static str, bytes: usize) -> Result<u64, RecordError> {
        let bytes = self.take(expected, bytes)?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    const fn is_over(&self) -> bool {
        self.at == self.record.len()
    }
}

/// A record that is no commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {expected} at byte {at} of a tenant's record, but it has something else, or ends there; another program wrote it"
)]
pub struct RecordError {
    pub(crate) expected: &'static str,
    pub(crate) at: usize,
}

/// The epoch that a record of [`OWNED`] names.
pub(crate) fn owned(record: &[u8]) -> Result<OwnerEpoch, RecordError> {
    let (epoch, rest) = record.split_first_chunk().ok_or(RecordError { expected: "an epoch", at: 0 })?;
    if rest.is_empty() {
        Ok(OwnerEpoch(u64::from_le_bytes(*epoch)))
    } else {
        Err(RecordError { expected: "the end", at: epoch.len() })
    }
}

/// The epoch that a record of [`TAIL`] names, and the commit.
pub(crate) fn tail(record: &Bytes) -> Result<(OwnerEpoch, Bytes), RecordError> {
    let (epoch, commit) = record.split_first_chunk().ok_or(RecordError { expected: "an epoch", at: 0 })?;
    Ok((OwnerEpoch(u64::from_le_bytes(*epoch)), record.slice_ref(commit)))
}

/// The record of a commit that does not say which one came before it.
pub(crate) fn link(unlinked: &[u8]) -> Vec<u8> {
    [&Csn::NONE.0.to_le_bytes(), unlinked].concat()
}

/// The number of a record's commit; none if it is too short.
pub(crate) fn commit_number(record: &[u8]) -> Option<Csn> {
    let number = record.get(8..16)?.try_into().ok()?;
    Some(Csn(u64::from_le_bytes(number)))
}

/// What a record of a commit says that has its writes: the number of the commit before it, its own, and each key with its new value.
pub(crate) fn decode(
    record: &[u8],
    mut write: impl FnMut(Csn, &[u8], Option<&[u8]>),
) -> Result<(Csn, Csn), RecordError> {
    let mut fields = Fields { record, at: 0 };
    let before = Csn(fields.number("the number of the commit before", 8)?);
    let csn = Csn(fields.number("a commit's number", 8)?);
    writes(fields, |key, value| write(csn, key, value))?;
    Ok((before, csn))
}

/// The writes of a part, behind its first `from` bytes.
pub(crate) fn decode_part(
    part: &[u8],
    from: usize,
    write: impl FnMut(&[u8], Option<&[u8]>),
) -> Result<(), RecordError> {
    writes(Fields { record: part, at: from }, write)
}

fn writes(mut fields: Fields<'_>, mut write: impl FnMut(&[u8], Option<&[u8]>)) -> Result<(), RecordError> {
    while !fields.is_over() {
        let length = fields.number("a key's length", 4)? as usize;
        let key = fields.take("a key", length)?;
        let length = fields.number("a value's length", 4)? as u32;
        let value = fields.take("a value", if length == GONE { 0 } else { length as usize })?;
        write(key, (length != GONE).then_some(value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use savanna_transaction::{Change, Commit, Isolation, Transactions};

    use super::*;

    fn record() -> Vec<u8> {
        let mut transactions: Transactions<Box<[u8]>> = Transactions::default();
        let txn = transactions.begin(Isolation::Snapshot);
        transactions.statement(txn).unwrap();
        transactions.write(txn, b"a", Some(Box::from(&b"1"[..])), Change::Existence).unwrap();
        transactions.write(txn, b"b", None, Change::Existence).unwrap();
        transactions.write(txn, b"c", Some(Box::from(&b""[..])), Change::Existence).unwrap();
        let Ok(Commit::Committed(committed)) = transactions.commit(txn) else { panic!("nobody else is there") };
        encode(Csn::NONE, &committed)
    }

    #[test]
    fn what_is_logged_is_read_back() {
        let mut writes = Vec::new();
        let csn = decode(&record(), |csn, key, value| writes.push(format!("{csn} {key:?} {value:?}")));
        assert_eq!(csn, Ok((Csn::NONE, Csn(1))));
        assert_eq!((commit_number(&record()), commit_number(&record()[..15])), (Some(Csn(1)), None));
        assert_eq!(writes, ["1 [97] Some([49])", "1 [98] None", "1 [99] Some([])"]);
    }

    #[test]
    fn what_is_in_parts_is_named() {
        let object = |path: &str, bytes, crc32c| ObjectRef { path: path.to_owned(), bytes, crc32c };
        let objects = vec![object("writes/1", 70, 7), object("writes/2", u64::MAX, u32::MAX)];
        let named = InParts { before: Csn(1), csn: Csn(3), keys: 9, bytes: 140, objects };
        let record = named.encode();
        assert_eq!((InParts::of(&record), commit_number(&record)), (Ok(Some(named)), Some(Csn(3))));
        assert!(decode(&record, |_, _, _| ()).is_err(), "they are not in it");
        assert_eq!(InParts::of(&self::record()), Ok(None));
        // Between two parts the record could as well have ended: how many keys there are is compared.
        let whole = [36, 60];
        for length in 0..record.len() {
            let cut = InParts::of(&record[..length]);
            assert_eq!(cut.is_ok(), whole.contains(&length) || (16..20).contains(&length), "{length} bytes: {cut:?}");
        }
    }

    #[test]
    fn a_record_that_ends_early_is_refused() {
        let record = record();
        let whole = [16, 26, 35, record.len()];
        for length in 0..record.len() {
            assert_eq!(decode(&record[..length], |_, _, _| ()).is_ok(), whole.contains(&length), "{length} bytes");
        }
    }
}
