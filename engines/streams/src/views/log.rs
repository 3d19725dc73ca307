//! A view on disk: a journal of its epochs.
//!
//! ```text
//!   part* epoch | part* epoch | .. | part* base | part* epoch | ..
//!                                    ^ what lies before it goes when it is durable
//! ```
//!
//! A unit is some records of rows and then one that names them. A prefix of a journal survives, so a unit is there as a whole or it is passed over.

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, JournalError, Lsn, Options, Record};
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_functions::without_shared_strings;
use serde::{Deserialize, Serialize};

use super::version::{Contents, Shape, Version};
use crate::durable::{decode, encode};

/// Kinds of records.
const PART: u16 = 1;
const EPOCH: u16 = 2;
const BASE: u16 = 3;

/// Bytes of a segment of the journal. A row must fit in one.
const SEGMENT_BYTES: usize = 16 << 20;
/// About so many bytes of rows are in a record.
const PART_BYTES: usize = 2 << 20;
/// So many bytes may wait to be written. The journal refuses more than 64 MiB.
const BACKLOG_BYTES: usize = 16 << 20;
/// A log is not written anew before it has so many bytes behind its base.
const BASE_AFTER: u64 = 4 << 20;
/// How often it is asked whether the disk is full.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// An epoch, or all that a view holds.
#[derive(Debug, Serialize, Deserialize)]
struct Unit {
    epoch: Epoch,
    /// When the epoch was committed, in milliseconds since 1970.
    at: u64,
    /// As many records of rows belong to it; of a base, with the times at which they were committed.
    parts: Vec<u64>,
}

/// The log of a view.
pub(crate) struct ViewLog {
    /// Where it is, for errors.
    place: String,
    journal: Journal,
    /// Bytes behind the last base, and of it.
    since_base: u64,
    base: u64,
    /// It is not written anew before it has so many bytes.
    base_after: u64,
    /// When so many bytes wait to be written, it is waited for them.
    backlog: usize,
}

impl fmt::Debug for ViewLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewLog").field("place", &self.place).finish_non_exhaustive()
    }
}

impl ViewLog {
    /// Opens a log and reads what the view holds.
    ///
    /// # Errors
    /// It cannot be read, has a record that is none, or lacks an epoch: with file and place.
    pub(crate) fn open(
        place: String,
        options: Options,
        owner: NodeEpoch,
        shape: &Arc<Shape>,
    ) -> Result<(Self, Contents)> {
        let mut reading = Reading {
            shape: Arc::clone(shape),
            contents: Contents::new(Arc::clone(shape))?,
            parts: Vec::new(),
            gap: None,
            bytes: 0,
            since_base: 0,
            base: 0,
        };
        let options = options.segment_bytes(SEGMENT_BYTES);
        let opened = Journal::open(options, owner, &mut |record: Record| reading.take(&record));
        let journal = opened.map_err(|e| failed("read", &place, &e))?;
        if let Some(gap) = reading.gap {
            let cause = format!("{gap}; restore it, or DROP the view and create it again");
            return Err(StreamError::io(format!("read the materialized view in {place}"), &cause));
        }
        let (since_base, base) = (reading.since_base, reading.base);
        Ok((
            Self { place, journal, since_base, base, base_after: BASE_AFTER, backlog: BACKLOG_BYTES },
            reading.contents,
        ))
    }

    /// Makes an epoch durable.
    ///
    /// # Errors
    /// It cannot be written. Whether it counts is known when the log is opened again.
    pub(crate) fn append(&mut self, epoch: Epoch, at: u64, rows: &RecordBatch) -> Result<()> {
        let (_, parts, bytes) = self.parts(rows)?;
        self.since_base += bytes + self.end(EPOCH, &Unit { epoch, at, parts: vec![at; parts] })?;
        Ok(())
    }

    /// Writes a version anew, if most of the log is about what is gone. Then what was before it goes.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn shorten(&mut self, version: &Version) -> Result<()> {
        if self.since_base < self.base_after.max(2 * self.base) {
            return Ok(());
        }
        let (mut unit, mut total) = (Unit { epoch: version.epoch, at: version.at, parts: Vec::new() }, 0);
        let mut first = None;
        for piece in version.living() {
            let (rows, at) = piece?;
            let (lsn, parts, bytes) = self.parts(&rows)?;
            first = first.or(lsn);
            unit.parts.extend(std::iter::repeat_n(at, parts));
            total += bytes;
        }
        let before = self.journal.appended();
        total += self.end(BASE, &unit)?;
        let first = first.unwrap_or(Lsn(before.0 + 1));
        self.journal.truncate_before(first).map_err(|e| failed("shorten", &self.place, &e))?;
        (self.since_base, self.base) = (0, total);
        Ok(())
    }

    /// Ends the log in order.
    pub(crate) fn close(&self) {
        if let Err(error) = self.journal.close() {
            tracing::warn!(place = self.place, %error, "the log of a materialized view could not be closed in order");
        }
    }

    /// Writes rows. Tells where the first record is, how many there are, and their bytes.
    fn parts(&self, rows: &RecordBatch) -> Result<(Option<Lsn>, usize, u64)> {
        let (mut first, mut parts, mut bytes) = (None, 0, 0);
        let per_part = (rows.num_rows() * PART_BYTES / rows.get_array_memory_size().max(1)).max(1);
        let mut open: Vec<(usize, usize)> =
            (0..rows.num_rows()).step_by(per_part).map(|from| (from, per_part.min(rows.num_rows() - from))).collect();
        open.reverse();
        while let Some((from, count)) = open.pop() {
            let payload = to_bytes(&without_shared_strings(&rows.slice(from, count))?)?;
            if count > 1 && payload.len() > SEGMENT_BYTES / 2 {
                // Its rows are far longer than most.
                let half = count / 2;
                open.extend([(from + half, count - half), (from, half)]);
                continue;
            }
            let lsn = self.write(PART, &payload)?;
            (first, parts, bytes) = (first.or(Some(lsn)), parts + 1, bytes + payload.len() as u64);
        }
        Ok((first, parts, bytes))
    }

    /// Ends a unit, and waits until it is durable. Tells its bytes.
    fn end(&self, kind: u16, unit: &Unit) -> Result<u64> {
        let payload = encode(unit)?;
        self.wait(self.write(kind, &payload)?)?;
        Ok(payload.len() as u64)
    }

    fn write(&self, kind: u16, payload: &[u8]) -> Result<Lsn> {
        if self.journal.backlog() > self.backlog {
            self.wait(self.journal.appended())?;
        }
        let appended = self.journal.append(&[Draft { shard: 0, kind, payload }]);
        appended.map_err(|error| match error {
            JournalError::TooLarge { bytes, limit } => row_too_large(&self.place, bytes, limit),
            other => failed("write", &self.place, &other),
        })
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        let (tell, told) = sync_channel(1);
        // Nobody waits any more if the disk was full.
        self.journal.gate().hold(lsn, move |outcome| drop(tell.send(outcome)));
        loop {
            match told.recv_timeout(ASKED_EVERY) {
                Ok(outcome) => return outcome.map_err(|e| failed("write", &self.place, &e)),
                Err(RecvTimeoutError::Timeout) => {
                    // Nobody hangs on a full disk: the query fails, and is resumed.
                    if let Some(full) = self.journal.full() {
                        return Err(failed("write", &self.place, &full));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(StreamError::Internal("a journal ended without an answer".into()));
                }
            }
        }
    }
}

/// A log that is being read.
struct Reading {
    shape: Arc<Shape>,
    contents: Contents,
    /// Rows of which the unit is still to come.
    parts: Vec<RecordBatch>,
    /// What is missing before the last base, if something is: then that base says it all.
    gap: Option<String>,
    /// Bytes of the unit.
    bytes: u64,
    since_base: u64,
    base: u64,
}

impl Reading {
    fn take(&mut self, record: &Record) -> Result<(), String> {
        self.bytes += record.payload.len() as u64;
        match record.kind {
            PART => self.parts.push(of_bytes(&record.payload, &self.shape)?),
            EPOCH | BASE => self.unit(record.kind == BASE, decode(&record.payload)?)?,
            other => {
                return Err(format!(
                    "expected rows, an epoch or a base, got a record of kind {other}; start the release that wrote it"
                ));
            }
        }
        Ok(())
    }

    fn unit(&mut self, is_base: bool, unit: Unit) -> Result<(), String> {
        // Rows before its own are of a unit that was never ended, or their beginning was cut off.
        let mut parts = std::mem::take(&mut self.parts);
        let bytes = std::mem::take(&mut self.bytes);
        let surplus = parts.len().checked_sub(unit.parts.len());
        parts.drain(..surplus.unwrap_or_default());
        if is_base {
            let rows = parts.into_iter().zip(unit.parts).collect();
            let base = Contents::of(Arc::clone(&self.shape), unit.epoch, unit.at, rows);
            self.contents = base.map_err(|e| e.to_string())?;
            (self.gap, self.since_base, self.base) = (None, 0, bytes);
            if surplus.is_none() {
                self.gap = Some(format!("the rows of epoch {} are not whole", unit.epoch));
            }
            return Ok(());
        }
        let expected = self.contents.version().epoch.next();
        if unit.epoch != expected || surplus.is_none() {
            let gap = format!(
                "expected epoch {expected} and its rows, got epoch {} and {} records of rows",
                unit.epoch,
                parts.len()
            );
            self.gap.get_or_insert(gap);
            return Ok(());
        }
        let next = self.contents.unbounded_next(unit.epoch, unit.at, &parts).map_err(|e| e.to_string())?;
        self.contents.publish(next);
        self.since_base += bytes;
        Ok(())
    }
}

fn to_bytes(rows: &RecordBatch) -> Result<Vec<u8>> {
    let write = || {
        let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
        writer.write(rows)?;
        writer.into_inner()
    };
    write().map_err(|e| StreamError::Internal(format!("rows of a materialized view cannot be written: {e}")))
}

fn of_bytes(bytes: &[u8], shape: &Shape) -> Result<RecordBatch, String> {
    let read = || {
        let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
        reader.next().unwrap_or_else(|| Ok(RecordBatch::new_empty(reader.schema())))
    };
    let rows: RecordBatch = read().map_err(|e| format!("expected rows: {e}"))?;
    let types = |schema: &arrow::datatypes::Schema| {
        schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>()
    };
    match types(&rows.schema()) == types(&shape.schema) {
        true => Ok(rows),
        false => Err(format!("expected rows of the columns {}, got {}", shape.schema, rows.schema())),
    }
}

fn row_too_large(place: &str, bytes: usize, limit: usize) -> StreamError {
    StreamError::Limit {
        message: format!(
            "a row of the materialized view in {place} takes {bytes} bytes, and the log of a view takes rows of {limit} bytes at most; DROP the \
             view, and create it again without such rows"
        ),
    }
}

fn failed(what: &str, place: &str, error: &JournalError) -> StreamError {
    StreamError::io(format!("{what} the materialized view in {place}"), error)
}

#[cfg(test)]
mod tests {
    use savanna_journal::Disk;
    use savanna_journal::sim::{Fault, SimDisk};

    use super::super::version::tests::{rows, seen, shape};
    use super::*;

    fn open(disk: &Arc<SimDisk>, owner: u64) -> Result<(ViewLog, Contents)> {
        let options = Options::disk(Arc::clone(disk) as Arc<dyn Disk>);
        let (mut log, contents) = ViewLog::open("views/7".into(), options, NodeEpoch(owner), &Arc::new(shape(true)))?;
        log.base_after = 4 << 10;
        Ok((log, contents))
    }

    fn open_without_key(disk: &Arc<SimDisk>, owner: u64) -> Contents {
        let options = Options::disk(Arc::clone(disk) as Arc<dyn Disk>);
        ViewLog::open("views/7".into(), options, NodeEpoch(owner), &Arc::new(shape(false))).unwrap().1
    }

    /// A row that takes so much that the log is written anew every few epochs.
    fn row(epoch: u64) -> RecordBatch {
        rows(&[(epoch as i64 % 5, format!("{epoch} {}", "x".repeat(600)))])
    }

    /// As a view commits.
    fn commit(log: &mut ViewLog, contents: &mut Contents, epoch: u64, rows: &RecordBatch) -> Result<()> {
        let next = contents.next("v", Epoch(epoch), epoch, std::slice::from_ref(rows))?;
        log.append(Epoch(epoch), epoch, &next.written)?;
        contents.publish(next);
        log.shorten(contents.version())
    }

    /// The rows behind an epoch.
    fn expected(epoch: u64) -> Contents {
        let mut contents = Contents::new(Arc::new(shape(true))).unwrap();
        for epoch in 1..=epoch {
            let next = contents.next("v", Epoch(epoch), epoch, &[row(epoch)]).unwrap();
            contents.publish(next);
        }
        contents
    }

    #[test]
    fn a_view_holds_what_was_told_whatever_fails_and_the_power_behind_it() {
        let expected: Vec<_> = (0..=24).map(|epoch| seen(expected(epoch).version())).collect();
        let (mut failed, mut shortened) = (0, 0);
        for (seed, fault) in (0..3).flat_map(|seed| [Fault::Error, Fault::PowerCut].map(|fault| (seed, fault))) {
            for step in (1..120).step_by(2) {
                let disk = SimDisk::new(seed);
                let (mut log, mut contents) = open(&disk, 1).unwrap();
                disk.fail(step, fault);
                let mut told = 0;
                for epoch in 1..=24 {
                    // An epoch whose log could not be shortened behind it is told.
                    let committed = commit(&mut log, &mut contents, epoch, &row(epoch));
                    told = contents.version().epoch.0;
                    shortened += u32::from(log.since_base == 0);
                    if committed.is_err() {
                        failed += 1;
                        break;
                    }
                }
                drop(log);
                disk.crash();
                let (mut log, mut contents) = open(&disk, 2).unwrap();
                let held = contents.version().epoch.0;
                assert!(held == told || held == told + 1, "seed {seed}, {fault:?} at {step}: told {told}, held {held}");
                assert_eq!(seen(contents.version()), expected[held as usize], "seed {seed}, {fault:?} at {step}");
                for epoch in held + 1..=24 {
                    commit(&mut log, &mut contents, epoch, &row(epoch)).unwrap();
                }
                drop(log);
                let (_, contents) = open(&disk, 3).unwrap();
                assert_eq!(seen(contents.version()), expected[24], "seed {seed}, {fault:?} at {step}");
            }
        }
        assert!(failed > 50 && shortened > 50, "{failed} failed, {shortened} shortened");
    }

    #[test]
    fn the_log_of_a_view_that_changes_does_not_grow() {
        let disk = SimDisk::new(1);
        let (mut log, mut contents) = open(&disk, 1).unwrap();
        for epoch in 1..=500 {
            commit(&mut log, &mut contents, epoch, &row(epoch)).unwrap();
        }
        log.close();
        let bytes: usize = disk.files().iter().map(|(_, bytes)| bytes).sum();
        // Segments go as a whole, and are as long as is written ahead.
        assert!(disk.files().len() < 8 && bytes < 8 << 20, "{bytes} bytes in {:?}", disk.files());
        assert_eq!(seen(open(&disk, 2).unwrap().1.version()), seen(contents.version()));
    }

    #[test]
    fn rows_without_their_epoch_and_half_a_base_are_passed_over() {
        let disk = SimDisk::new(1);
        let (mut log, mut contents) = open(&disk, 1).unwrap();
        commit(&mut log, &mut contents, 1, &row(1)).unwrap();
        // The process ends between the rows and the record of an epoch, and within a base.
        log.parts(&row(2)).unwrap();
        log.parts(&row(3)).unwrap();
        let (mut log, mut contents) = open(&disk, 2).unwrap();
        assert_eq!((contents.version().epoch, contents.version().rows), (Epoch(1), 1));
        commit(&mut log, &mut contents, 2, &rows(&[(9, "two".into())])).unwrap();
        let (_, again) = open(&disk, 3).unwrap();
        assert_eq!(seen(again.version()), seen(contents.version()));
        assert_eq!(again.version().rows, 2);
    }

    #[test]
    fn a_base_of_more_than_may_wait_is_written_as_the_disk_takes_it() {
        let disk = SimDisk::new(1);
        let options = Options::disk(Arc::clone(&disk) as Arc<dyn Disk>).backlog_bytes(64 << 10);
        let shape = Arc::new(shape(false));
        let (mut log, _) = ViewLog::open("views/7".into(), options, NodeEpoch(1), &shape).unwrap();
        log.backlog = 16 << 10;
        // Chunks that were given are chunks, and each is a record.
        let many = rows(&(0..20).map(|key| (key, "x".repeat(600))).collect::<Vec<_>>());
        let pieces = vec![(many.clone(), 1); 400];
        let contents = Contents::of(Arc::clone(&shape), Epoch(1), 1, pieces).unwrap();
        log.append(Epoch(1), 1, &many).unwrap();
        log.base_after = 0;
        log.shorten(contents.version()).unwrap();
        assert_eq!(log.since_base, 0);
        drop(log);
        assert_eq!(open_without_key(&disk, 2).version().rows, 8_000);
    }

    #[test]
    fn the_same_rows_go_by_their_age_when_the_log_is_read_again() {
        // A slot has 100 ms, and a row of the first epoch 100 KiB: what is one chunk are two records.
        let shape = Arc::new(Shape { retention: Some(Duration::from_millis(6_400)), ..shape(false) });
        let epochs = [(1_000, 40), (1_050, 15), (7_420, 1), (7_480, 1), (7_500, 1)];
        let seen_by = |reads_again: bool| {
            let disk = SimDisk::new(1);
            let open = |owner| {
                let options = Options::disk(Arc::clone(&disk) as Arc<dyn Disk>);
                ViewLog::open("views/7".into(), options, NodeEpoch(owner), &shape).unwrap()
            };
            let (mut log, mut contents) = open(1);
            let mut counts = Vec::new();
            for (epoch, (at, count)) in (1..).zip(epochs) {
                let many = rows(&(0..count).map(|key| (key, "x".repeat(100 << 10))).collect::<Vec<_>>());
                let next = contents.next("v", Epoch(epoch), at, &[many]).unwrap();
                log.append(Epoch(epoch), at, &next.written).unwrap();
                contents.publish(next);
                log.base_after = 0;
                log.shorten(contents.version()).unwrap();
                counts.push(contents.version().rows);
                if reads_again {
                    drop(log);
                    (log, contents) = open(epoch + 1);
                }
            }
            counts
        };
        assert_eq!(seen_by(false), [40, 55, 56, 57, 3]);
        assert_eq!(seen_by(true), seen_by(false));
    }

    #[test]
    fn rows_that_are_far_longer_than_most_are_written_too() {
        let disk = SimDisk::new(1);
        let options = Options::disk(Arc::clone(&disk) as Arc<dyn Disk>);
        let (mut log, _) = ViewLog::open("views/7".into(), options, NodeEpoch(1), &Arc::new(shape(false))).unwrap();
        // About 20 MB in 20 neighbours, and an average of some hundred bytes.
        let length = |row: usize| if row < 20 { 1 << 20 } else { 10 };
        let uneven = rows(&(0..60_000).map(|row| (row as i64, "x".repeat(length(row)))).collect::<Vec<_>>());
        log.append(Epoch(1), 1, &uneven).unwrap();
        let row = rows(&[(1, "x".repeat(17 << 20))]);
        let error = log.append(Epoch(2), 2, &row).unwrap_err().to_string();
        assert!(error.contains("a row of the materialized view in views/7 takes"), "{error}");
        drop(log);
        assert_eq!(open_without_key(&disk, 2).version().rows, 60_000);
    }

    #[test]
    fn a_log_that_lacks_an_epoch_is_refused_with_its_place() {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk, 1).unwrap();
        log.append(Epoch(1), 1, &row(1)).unwrap();
        log.append(Epoch(3), 3, &row(3)).unwrap();
        drop(log);
        let error = open(&disk, 2).unwrap_err().to_string();
        assert!(error.contains("views/7") && error.contains("expected epoch 2 and its rows, got epoch 3"), "{error}");
    }

    #[test]
    fn a_log_that_is_damaged_is_refused_with_file_and_place() {
        let disk = SimDisk::new(1);
        let (mut log, mut contents) = open(&disk, 1).unwrap();
        for epoch in 1..=4 {
            commit(&mut log, &mut contents, epoch, &row(epoch)).unwrap();
        }
        log.close();
        let (name, _) = disk.files().into_iter().filter(|(name, _)| name.contains("segment")).min().unwrap();
        disk.flip(&name, 500, 1);
        let error = open(&disk, 2).unwrap_err().to_string();
        assert!(error.contains("views/7") && error.contains(&name) && error.contains("damaged"), "{error}");
    }

    #[test]
    fn a_record_of_a_later_release_is_refused() {
        let disk = SimDisk::new(1);
        let (log, _) = open(&disk, 1).unwrap();
        log.wait(log.write(9, b"").unwrap()).unwrap();
        drop(log);
        let error = open(&disk, 2).unwrap_err().to_string();
        assert!(error.contains("got a record of kind 9"), "{error}");
    }
}
