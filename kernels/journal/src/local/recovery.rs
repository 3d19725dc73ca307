//! Reading a directory back: which segments count, from where to where, and what is in them.

use std::io;

use super::{Finished, UNFINISHED, disk::Disk, parse_segment_name};
use crate::{
    error::JournalError,
    record::{Lsn, Record},
    segment::{self, Header, Reach, SEGMENT_HEADER, Scan, Term},
};

/// What was found.
#[derive(Debug)]
pub(super) struct Recovered {
    /// The segments that count.
    pub(super) finished: Vec<Finished>,
    /// Segments that hold nothing that counts: empty, truncated, or written by an owner after it was fenced.
    pub(super) needless: Vec<Finished>,
    /// The end of the log.
    pub(super) tail: Scan,
    /// The newest term of which there is a segment.
    pub(super) newest: Term,
    /// The oldest record that the log promises.
    pub(super) oldest: Lsn,
}

/// A segment and its header.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) header: Header,
}

/// Replays the segments of a log into `deliver`, one at a time.
pub(super) fn replay(
    disk: &dyn Disk,
    found: &[Found],
    deliver: &mut dyn FnMut(Record) -> Result<(), JournalError>,
) -> Result<Recovered, JournalError> {
    let newest = found.last().map_or_else(Term::default, |newest| newest.header.term);
    let oldest = found.last().map_or(Lsn(1), |newest| newest.header.oldest);
    let mut finished = Vec::with_capacity(found.len());
    let mut needless = Vec::new();
    let mut tail = Scan { last: Lsn::NONE, unsure: Vec::new() };
    let mut expected: Option<Lsn> = None;
    for (at, Found { name, header }) in found.iter().enumerate() {
        // Every segment counts up to where any later one begins.
        let until = found[at + 1..].iter().map(|later| later.header.first).min();
        if let Some(until) = until {
            let segment = Finished { name: name.clone(), last: until.previous() };
            if header.first >= until || until <= oldest {
                needless.push(segment);
                continue;
            }
            finished.push(segment);
        }
        let needed = expected.unwrap_or(oldest);
        if header.first > needed {
            return Err(JournalError::Missing { file: disk.describe(name), needed, first: header.first });
        }
        let path = disk.describe(name);
        let bytes = disk.read(name, u64::MAX).map_err(JournalError::io("read", path.as_str()))?;
        let reach = match until {
            Some(until) => Reach::Until(until),
            None if header.body.is_some() => Reach::Whole,
            None => Reach::Open,
        };
        tail = segment::scan(&path, &bytes, reach, deliver)?;
        if until.is_none() {
            finished.push(Finished { name: name.clone(), last: tail.last });
        }
        expected = Some(tail.last.next());
    }
    Ok(Recovered { finished, needless, tail, newest, oldest })
}

/// Times that an older owner may remove segments under our eyes; it does so at most once after it was fenced.
const FIND_ATTEMPTS: usize = 4;

/// The segments in the order of their terms, with their headers: those before a new owner's term, whose unfinished files are removed, or
/// all of them, and nothing is removed.
pub(super) fn find(disk: &dyn Disk, term: Option<Term>) -> Result<Vec<Found>, JournalError> {
    let mut attempt = 1;
    loop {
        match find_once(disk, term) {
            Err(JournalError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && attempt < FIND_ATTEMPTS =>
            {
                attempt += 1;
            }
            result => return result,
        }
    }
}

fn find_once(disk: &dyn Disk, term: Option<Term>) -> Result<Vec<Found>, JournalError> {
    let is_before = |other: Term| term.is_none_or(|term| other < term);
    let mut names = disk.list().map_err(JournalError::io("list", disk.describe("")))?;
    names.sort_unstable();
    let mut found = Vec::new();
    for name in names {
        if let Some(whole) = name.strip_suffix(UNFINISHED) {
            if term.is_some() && parse_segment_name(whole).is_some_and(|(older, _)| is_before(older)) {
                // Its owner may be at work still and just rename it; either way the file is none of the log's.
                if let Err(error) = disk.remove(&name) {
                    tracing::debug!(file = disk.describe(&name), %error, "could not remove an unfinished segment");
                }
            }
            continue;
        }
        let Some((older, sequence)) = parse_segment_name(&name).filter(|(older, _)| is_before(*older)) else {
            continue;
        };
        let path = disk.describe(&name);
        let head =
            disk.read(&name, SEGMENT_HEADER as u64).map_err(JournalError::io("read the header of", path.as_str()))?;
        let (header, _) = Header::decode(&head, &path)?;
        if header.term != older || header.sequence != sequence {
            return Err(segment::misplaced(&path, &header));
        }
        found.push(Found { name, header });
    }
    Ok(found)
}
