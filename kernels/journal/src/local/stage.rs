//! Records that are not durable yet, where the operating system has them: they survive the end of the process, at the price of
//! a write, and not the end of the machine.
//!
//! ```text
//! stage-<epoch>-<opening>-<0 or 1>    a segment's header, then records, in any of the two, until they are durable in a segment
//! ```
//!
//! The two files take turns: one is written over from its beginning when all that it has is durable. So what is behind the
//! newest record of a file is of before, and says nothing that the log does not have. Of use are the records that follow the
//! log's last without a gap; whoever opens the log next takes them into its first segment, and removes the files. They are never
//! flushed: after a loss of power, whatever whole records are there are taken.
//!
//! An owner that was fenced may stage on. So nobody is told of a staged record before the fence was seen *after* it was staged: whoever
//! removed the fence later reads the record.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{
    disk::{Disk, DiskFile},
    fence::Fence,
    write_all,
};
use crate::{
    error::JournalError,
    record::{self, Draft, Lsn, Record, RecordHeader, Seal},
    segment::{Header, SEGMENT_HEADER, Term},
};

/// A file that is longer than this is left for the other one when that has nothing of use.
const FILE_BYTES: usize = 1 << 20;

/// A file that became longer than this, by long records, gives space back before it is written over.
const LONG_BYTES: usize = 4 * FILE_BYTES;

/// What is staged of an open log.
#[derive(Debug)]
pub(crate) struct Stage {
    disk: Arc<dyn Disk>,
    fence: Fence,
    files: [Option<StageFile>; 2],
    current: usize,
    /// The records from here on up to `last` are staged without a gap.
    first: Lsn,
    last: Lsn,
    /// The fence stood when the records up to here were staged: whoever takes the log over finds them.
    fenced: Lsn,
    buffer: Vec<u8>,
    has_failed: bool,
}

#[derive(Debug)]
struct StageFile {
    name: String,
    file: Box<dyn DiskFile>,
    seal: Seal,
    end: usize,
    last: Lsn,
}

impl Stage {
    pub(super) fn new(disk: Arc<dyn Disk>, fence: Fence) -> Self {
        Self {
            disk,
            fence,
            files: [None, None],
            current: 0,
            first: Lsn::NONE,
            last: Lsn::NONE,
            fenced: Lsn::NONE,
            buffer: Vec::new(),
            has_failed: false,
        }
    }

    /// Whether everything up to a record survives the end of the process, in this log or in that of whoever took it over.
    pub(crate) fn survives(&mut self, lsn: Lsn, durable: Lsn) -> bool {
        lsn <= durable || lsn <= self.last && self.first <= durable.next() && self.is_found(lsn)
    }

    /// Whether a newer owner finds a record that is staged: it removes the fence before it reads. Looks once for all that is staged by now.
    fn is_found(&mut self, lsn: Lsn) -> bool {
        if lsn > self.fenced && self.fence.check(self.disk.as_ref()).is_ok() {
            self.fenced = self.last;
        }
        lsn <= self.fenced
    }

    /// Stages a group of records. That it fails takes nothing away from the log.
    pub(crate) fn put(&mut self, first: Lsn, stream: u32, group: &[Draft<'_>], durable: Lsn) {
        let written = self.write(first, stream, group, durable);
        match written {
            Ok(()) => {
                if first != self.last.next() {
                    self.first = first;
                }
                self.last = Lsn(first.0 + group.len() as u64 - 1);
                self.has_failed = false;
            }
            Err(error) => {
                // What comes next does not follow the last that is there.
                (self.first, self.last) = (Lsn::NONE, Lsn::NONE);
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(%error, "replies wait until they are durable");
                }
            }
        }
    }

    fn write(&mut self, first: Lsn, stream: u32, group: &[Draft<'_>], durable: Lsn) -> Result<(), JournalError> {
        let other = 1 - self.current;
        let is_long = self.files[self.current].as_ref().is_some_and(|file| file.end > FILE_BYTES);
        if is_long && self.files[other].as_ref().is_none_or(|file| file.last <= durable) {
            self.current = other;
            if let Some(file) = &mut self.files[other] {
                if file.end > LONG_BYTES
                    && let Err(error) = file.file.shorten(FILE_BYTES as u64)
                {
                    tracing::debug!(file = file.name, %error, "could not shorten staged records; they only take space");
                }
                file.end = SEGMENT_HEADER;
            }
        }
        let disk = &self.disk;
        let slot = &mut self.files[self.current];
        let file = match slot {
            Some(file) => file,
            None => slot.insert(StageFile::create(disk.as_ref(), self.fence.term(), self.current)?),
        };
        self.buffer.clear();
        for (at, draft) in group.iter().enumerate() {
            let header = RecordHeader {
                stream,
                epoch: self.fence.term().epoch,
                lsn: Lsn(first.0 + at as u64),
                shard: draft.shard,
                kind: draft.kind,
                last: at + 1 == group.len(),
                // It may be durable by now, which no record says of itself.
                durable: Lsn::NONE,
            };
            let offset = (file.end + self.buffer.len()) as u64;
            record::encode(&mut self.buffer, file.seal, offset, &header, draft.payload);
        }
        write_all(file.file.as_mut(), &self.buffer, file.end)
            .map_err(JournalError::io("write", disk.describe(&file.name)))?;
        file.end += self.buffer.len();
        file.last = Lsn(first.0 + group.len() as u64 - 1);
        self.buffer.shrink_to(FILE_BYTES);
        Ok(())
    }

    /// Removes the files of a log that is closed with all of it durable.
    pub(crate) fn remove(&mut self) {
        for StageFile { name, .. } in self.files.iter_mut().filter_map(Option::take) {
            remove(self.disk.as_ref(), &name);
        }
    }
}

impl StageFile {
    fn create(disk: &dyn Disk, term: Term, number: usize) -> Result<Self, JournalError> {
        let name = format!("stage-{:020}-{:010}-{number}", term.epoch.0, term.opening);
        let header = Header {
            term,
            sequence: number as u64,
            first: Lsn(1),
            base: Lsn::NONE,
            oldest: Lsn(1),
            body: None,
            opens_term: false,
            seals: false,
            beside: None,
        };
        let (head, seal) = header.encode();
        let mut file = disk.create(&name).map_err(JournalError::io("create", disk.describe(&name)))?;
        if let Err(error) = write_all(file.as_mut(), &head, 0) {
            remove(disk, &name);
            return Err(JournalError::io("write", disk.describe(&name))(error));
        }
        Ok(Self { name, file, seal, end: SEGMENT_HEADER, last: Lsn::NONE })
    }
}

/// The staged records of a term that follow the last of the log, in whole groups.
pub(super) fn read(disk: &dyn Disk, term: Term, last: Lsn) -> Result<Vec<Record>, JournalError> {
    let mut staged = BTreeMap::new();
    for name in names(disk)? {
        let file = disk.describe(&name);
        let bytes = Bytes::from(disk.read(&name, u64::MAX).map_err(JournalError::io("read", file.as_str()))?);
        let Ok((header, seal)) = Header::decode(&bytes, &file) else { continue };
        if header.term != term {
            continue;
        }
        let mut offset = SEGMENT_HEADER;
        while let Ok((found, payload, end)) = record::decode(&bytes, offset, seal) {
            if found.lsn > last {
                let record = Record {
                    lsn: found.lsn,
                    epoch: found.epoch,
                    stream: found.stream,
                    shard: found.shard,
                    kind: found.kind,
                    payload: bytes.slice_ref(payload),
                };
                staged.insert(found.lsn, (record, found.last));
            }
            offset = end;
        }
    }
    let mut records = Vec::new();
    let mut whole = 0;
    for (lsn, (record, ends_group)) in staged {
        if lsn.0 != last.0 + records.len() as u64 + 1 {
            break;
        }
        records.push(record);
        if ends_group {
            whole = records.len();
        }
    }
    records.truncate(whole);
    Ok(records)
}

/// Removes what older terms have staged, which a segment has by now.
pub(super) fn remove_older(disk: &dyn Disk) -> Result<(), JournalError> {
    for name in names(disk)? {
        remove(disk, &name);
    }
    Ok(())
}

fn names(disk: &dyn Disk) -> Result<Vec<String>, JournalError> {
    let names = disk.list().map_err(JournalError::io("list", disk.describe("")))?;
    Ok(names.into_iter().filter(|name| name.starts_with("stage-")).collect())
}

fn remove(disk: &dyn Disk, name: &str) {
    if let Err(error) = disk.remove(name) {
        let file = disk.describe(name);
        tracing::debug!(file, %error, "could not remove staged records; the log has all of them");
    }
}
