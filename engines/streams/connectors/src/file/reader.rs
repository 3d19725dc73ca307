//! One partition of files. Of the files that have something, the one with the lowest watermark is read next, so that no window
//! waits longer than it must; where there are no watermarks, they are read one after the other by name.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::{Offset, Read, SourceBatch, SourceReader, SplitChange};
use savanna_streams_model::time::EventTime;
use serde::{Deserialize, Serialize};

use super::bytes::{Seen, look, replaced, shrunk};
use super::listing;
pub(crate) use super::split::{Follow, Reading, Unit};
use super::split::{Split, State};
use crate::format::Format;
use crate::format::malformed::Malformed;
use crate::format::parquet::row_groups;
use crate::format::records::Next;

/// How often files that are followed are looked at.
const POLL: Duration = Duration::from_millis(50);
/// Looking at them takes at most one part in so many of the time.
const POLL_SHARE: u32 = 10;
/// So many files are open at once.
const OPEN_MAX: usize = 128;
/// So many rows of each split are read first: enough to see at which time it begins.
const FIRST_ROWS: usize = 16;

/// A place in a partition, as JSON. Everything before it has been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// How many units the partition has; none if more may come.
    of: Option<usize>,
    /// The units that were begun.
    units: Vec<UnitPlace>,
}

/// How far a unit was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UnitPlace {
    file: PathBuf,
    group: usize,
    /// Whether it was read to its end.
    done: bool,
    at: u64,
    line: u64,
    /// How a file begins that grows: a fingerprint of its first bytes, of those that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<String>,
}

/// Reads one partition.
pub(crate) struct FileReader {
    reading: Reading,
    splits: Vec<Split>,
    of: Option<usize>,
    /// The last split of each file, where new files are waited for.
    by_path: HashMap<PathBuf, usize>,
    /// What the engine has not heard yet.
    changes: VecDeque<SplitChange>,
    reads: u64,
    polled: Instant,
    poll_took: Duration,
    malformed: Malformed,
}

impl FileReader {
    /// Opens the partition of these units at the start, or at an offset.
    pub(crate) fn open(reading: Reading, units: Vec<Unit>, from: Option<&Offset>) -> Result<Self> {
        let of = (reading.follow == Follow::No).then_some(units.len());
        let mut splits: Vec<Split> = units.into_iter().map(Split::new).collect();
        if let Some(offset) = from {
            go_to(&mut splits, offset, of).map_err(|cause| wrong_offset(&reading.path, offset, &cause))?;
        }
        let malformed = Malformed::new(reading.on_error.clone(), "")?;
        let (polled, poll_took) = (Instant::now(), Duration::ZERO);
        let (by_path, changes) = (HashMap::new(), VecDeque::new());
        let mut reader = Self { reading, splits, of, by_path, changes, reads: 0, polled, poll_took, malformed };
        for split in 0..reader.splits.len() {
            reader.remember(split)?;
            if reader.splits[split].state == State::Ended {
                reader.changes.push_back(SplitChange::Ended(split));
            }
        }
        Ok(reader)
    }

    fn is_following(&self) -> bool {
        self.reading.follow != Follow::No
    }

    /// Notes which file a split reads, to see when it changes.
    fn remember(&mut self, split: usize) -> Result<()> {
        if self.is_following() {
            let path = self.splits[split].path().to_owned();
            self.splits[split].seen = look(&path)?;
            self.by_path.insert(path, split);
        }
        Ok(())
    }

    /// The split to read next.
    fn next_split(&self) -> Option<usize> {
        let readable = self.splits.iter().enumerate().filter(|(_, split)| split.state == State::Readable);
        // Files that grow take turns; others are read to their ends.
        let turn = |split: &Split| if self.is_following() { split.last_read } else { 0 };
        readable.min_by_key(|(number, split)| (split.watermark, turn(split), *number)).map(|(number, _)| number)
    }

    /// Opens a split; closes the one that was not read for the longest time if too many are open.
    fn open_split(&mut self, number: usize) -> Result<()> {
        let open = || self.splits.iter().enumerate().filter(|(_, split)| split.is_open());
        if open().nth(OPEN_MAX - 1).is_some()
            && let Some((oldest, _)) = open().min_by_key(|(_, split)| split.last_read)
        {
            self.splits[oldest].close();
        }
        self.splits[number].open(&self.reading, &mut self.malformed)
    }

    fn read_split(&mut self, number: usize, max_events: usize) -> Result<Option<Read>> {
        self.malformed.place = self.splits[number].path().display().to_string();
        if !self.splits[number].is_open() {
            self.open_split(number)?;
        }
        self.reads += 1;
        let alone = self.splits.len() == 1;
        let split = &mut self.splits[number];
        split.last_read = self.reads;
        let most = if split.is_fresh() && !alone { max_events.min(FIRST_ROWS) } else { max_events };
        Ok(match split.read(most, &mut self.malformed)? {
            Next::Rows(rows, events) => {
                Some(Read::Rows(SourceBatch { split: number, rows, left_out_time: None, events }))
            }
            Next::Nothing => {
                split.state = State::Waits;
                self.changes.push_back(SplitChange::Waits(number));
                None
            }
            Next::End => {
                self.end(number);
                None
            }
        })
    }

    fn end(&mut self, number: usize) {
        self.splits[number].close();
        self.splits[number].state = State::Ended;
        self.changes.push_back(SplitChange::Ended(number));
    }

    /// Adds the splits of a file that has appeared.
    fn add(&mut self, path: &Path) -> Result<()> {
        let groups = if self.reading.text.format == Format::Parquet { row_groups(path)?.len() } else { 1 };
        for group in 0..groups {
            self.splits.push(Split::new(Unit { path: path.to_owned(), group }));
            self.changes.push_back(SplitChange::Began);
            self.remember(self.splits.len() - 1)?;
        }
        Ok(())
    }

    /// Looks for new files, and for more in those that are there.
    fn poll(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut there = listing::files(&self.reading.path, &self.reading.roots)?;
        self.look_for_gone(&there)?;
        there.retain(|path| !self.by_path.contains_key(path));
        let mut known: Vec<(PathBuf, usize)> =
            self.by_path.iter().map(|(path, split)| (path.clone(), *split)).collect();
        known.sort_unstable();
        for (path, split) in known {
            self.look_at(&path, split)?;
        }
        there.iter().try_for_each(|path| self.add(path))?;
        (self.polled, self.poll_took) = (Instant::now(), begun.elapsed());
        Ok(())
    }

    /// Files that are not there any more do not grow.
    fn look_for_gone(&mut self, there: &[PathBuf]) -> Result<()> {
        let gone = |(path, split): (&PathBuf, &usize)| {
            let is_gone = self.splits[*split].state != State::Readable && there.binary_search(path).is_err();
            is_gone.then(|| (path.clone(), *split))
        };
        let gone: Vec<_> = self.by_path.iter().filter_map(gone).collect();
        for (path, split) in gone {
            if self.splits[split].state == State::Waits {
                if path == Path::new(&self.reading.path) {
                    return Err(StreamError::io(
                        format!("follow {}", path.display()),
                        &"the file is not there any more",
                    ));
                }
                self.check_renamed(&path, split, there)?;
                self.end_growth(split)?;
            }
            self.by_path.remove(&path);
        }
        Ok(())
    }

    /// A file is not there any more: what is left of it is a last row without a line end.
    fn end_growth(&mut self, number: usize) -> Result<()> {
        let split = &mut self.splits[number];
        if split.stop_following() {
            split.state = State::Readable;
        } else if split.seen.as_ref().is_some_and(|seen| seen.length() == split.at) {
            self.end(number);
        } else {
            return Err(removed(split.path()));
        }
        Ok(())
    }

    /// A file under a new name would be read again.
    fn check_renamed(&self, path: &Path, split: usize, there: &[PathBuf]) -> Result<()> {
        let Some(open) = self.splits[split].open_file()? else { return Ok(()) };
        for other in there.iter().filter(|other| !self.by_path.contains_key(*other)) {
            if look(other)?.is_some_and(|seen| seen.is_same_file(&open)) {
                return Err(StreamError::Data {
                    place: other.display().to_string(),
                    message: format!(
                        "expected a new file, got {} under a new name: its rows would come twice; move files out of a \
                         directory that is followed, or start the query again",
                        path.display()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Looks whether a file that was read to its end has changed.
    fn look_at(&mut self, path: &Path, number: usize) -> Result<()> {
        let grows = self.reading.grows();
        let split = &mut self.splits[number];
        let Some(now) = look(path)? else { return Ok(()) };
        let Some(before) = split.seen.replace(now.clone()).filter(|before| *before != now) else { return Ok(()) };
        if !now.is_same_file(&before) {
            return Err(replaced(path));
        }
        match split.state {
            State::Readable => {}
            State::Waits if now.length() < split.at => return Err(shrunk(path, split.at, now.length())),
            State::Waits => split.state = State::Readable,
            State::Ended if grows => {}
            State::Ended => return Err(changed(path, &before, &now)),
        }
        Ok(())
    }

    /// How long not to look at files because that takes long.
    fn rest(&self) -> Duration {
        (self.poll_took * POLL_SHARE).saturating_sub(self.polled.elapsed())
    }

    /// Where there is nothing to read: tells whether there is now.
    fn find_more(&mut self, wait: Duration) -> Result<bool> {
        let rest = self.rest().min(wait);
        thread::sleep(rest);
        if !wait.is_zero() && self.rest() > Duration::ZERO {
            return Ok(false);
        }
        self.poll()?;
        let found = !self.changes.is_empty() || self.next_split().is_some();
        if !found {
            thread::sleep((wait - rest).min(POLL));
        }
        Ok(found)
    }
}

impl SourceReader for FileReader {
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read> {
        loop {
            let is_due = self.is_following() && self.polled.elapsed() >= POLL && self.rest().is_zero();
            if is_due && self.changes.is_empty() {
                self.poll()?;
            }
            // Before any rows: those of a file that has just joined mean nothing to who has not heard of it.
            if let Some(change) = self.changes.pop_front() {
                return Ok(Read::Split(change));
            }
            if let Some(split) = self.next_split() {
                if let Some(read) = self.read_split(split, max_events)? {
                    return Ok(read);
                }
            } else if !self.is_following() {
                return Ok(Read::End);
            } else if self.changes.is_empty() && !self.find_more(wait)? {
                return Ok(Read::Pending);
            }
        }
    }

    fn offset(&self) -> Offset {
        // Of a file that grows, the place of the last row: a header or blank lines behind it are met sooner or later, depending on how
        // much was asked for and when.
        let grows = self.reading.grows();
        let place = |split: &Split| if grows { split.behind } else { (split.at, split.line) };
        let begun = self.splits.iter().filter(|split| place(split).0 > 0 || split.state == State::Ended);
        let units = begun.map(|split| UnitPlace {
            file: split.unit.path.clone(),
            group: split.unit.group,
            done: split.state == State::Ended,
            at: place(split).0,
            line: place(split).1,
            head: if grows { split.begins() } else { None },
        });
        let place = Place { of: self.of, units: units.collect() };
        Offset(serde_json::to_string(&place).unwrap_or_default())
    }

    fn splits(&self) -> usize {
        self.splits.len()
    }

    fn passed(&mut self, split: usize, watermark: EventTime) {
        self.splits[split].watermark = watermark;
    }

    fn skipped(&self) -> u64 {
        self.malformed.skipped
    }
}

/// Puts splits where an offset says. A unit that was read to its end may be gone.
fn go_to(splits: &mut [Split], offset: &Offset, of: Option<usize>) -> Result<(), String> {
    let place: Place = serde_json::from_str(&offset.0).map_err(|e| e.to_string())?;
    if place.of != of {
        return Err("there are more or fewer files or row groups than before".into());
    }
    for UnitPlace { file, group, done, at, line, head } in place.units {
        let unit = Unit { path: file, group };
        match splits.iter_mut().find(|split| split.unit == unit) {
            Some(split) => {
                split.go_to((at, line), head, if done { State::Ended } else { State::Readable });
            }
            None if done => {}
            None => return Err("the file is not there".into()),
        }
    }
    Ok(())
}

fn wrong_offset(path: &str, offset: &Offset, cause: &dyn Display) -> StreamError {
    StreamError::invalid(format!(
        "offset {} is not a position in {path} ({cause}); a query goes on only over the same files, in as many partitions as \
         before: put them back, or start it again",
        offset.0
    ))
}

/// That a file is not there any more.
fn removed(path: &Path) -> StreamError {
    StreamError::Data {
        place: path.display().to_string(),
        message:
            "the file was removed before its last row was read; remove files when all their rows have been read, or \
                  start the query again"
                .into(),
    }
}

/// That a whole file has changed after it was read.
fn changed(path: &Path, before: &Seen, now: &Seen) -> StreamError {
    StreamError::Data {
        place: path.display().to_string(),
        message: format!(
            "expected a file that is whole when it appears, got one that was changed after it was read ({} bytes, then {}); \
             put files into the directory when they are whole, by a rename, or set 'follow' = 'true' to read text files as \
             they grow",
            before.length(),
            now.length()
        ),
    }
}
