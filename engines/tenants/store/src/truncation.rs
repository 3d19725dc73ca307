//! When the log may be cut, and who holds it up: a decision without I/O.
//!
//! Each thread says now and then from where on its tenants need the log, for those that commit meanwhile, too. Nothing before
//! the least of these places is needed any more. If the log is longer than its distance, whoever needs a record further back than
//! that is to be flushed.

use std::collections::VecDeque;

use savanna_journal::Lsn;

/// The log is cut by pieces of at least this part of its distance: each cut begins a new file.
const PIECES: u64 = 8;
/// Places of the log that are remembered.
const MARKS_MAX: usize = 1_024;

/// How long the log is, and what of it is needed.
#[derive(Debug)]
pub struct Truncation {
    distance: u64,
    /// Ends that the log had, with the bytes of records up to there.
    marks: VecDeque<(Lsn, u64)>,
    /// Where it was cut, and how many bytes went.
    cut: (Lsn, u64),
    /// From where on each thread needs it.
    floors: Vec<Lsn>,
}

impl Truncation {
    /// A log that is to be about so many bytes long, as each of so many threads needs all of it.
    #[must_use]
    pub fn new(distance: u64, threads: usize) -> Self {
        Self { distance, marks: VecDeque::new(), cut: (Lsn::NONE, 0), floors: vec![Lsn::NONE; threads] }
    }

    /// The log ends here, after so many bytes.
    pub fn note_end(&mut self, end: Lsn, bytes: u64) {
        let piece = self.distance / PIECES / 4;
        if self.marks.back().is_some_and(|(last, before)| *last >= end || bytes - before < piece) {
            return;
        }
        self.marks.push_back((end, bytes));
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// Before this place the log begins further back than its distance, or perhaps does: where a record is that came between two
    /// looks at the end is not known, and no look may follow that knows better.
    #[must_use]
    pub fn horizon(&self) -> Lsn {
        let Some((_, end)) = self.marks.back() else { return Lsn::NONE };
        let near = |bytes: u64| end - bytes < self.distance;
        match self.marks.iter().find(|(_, bytes)| near(*bytes)) {
            Some((lsn, _)) if !near(0) => lsn.next(),
            _ => Lsn::NONE,
        }
    }

    /// A thread's tenants need the log from here on, those that have not been written to yet included.
    pub fn set_floor(&mut self, thread: usize, floor: Lsn) {
        self.floors[thread] = floor;
    }

    /// A tenant that needs the log from here on comes to a thread.
    pub fn lower_floor(&mut self, thread: usize, floor: Lsn) {
        self.floors[thread] = self.floors[thread].min(floor);
    }

    /// Where to cut the log, if it is worth it. `others` is from where on it is needed beside the threads.
    pub fn cut(&mut self, others: Option<Lsn>) -> Option<Lsn> {
        let needed = self.floors.iter().copied().chain(others).min()?;
        let (_, bytes) = self.marks.iter().rev().find(|(end, _)| *end < needed)?;
        if needed <= self.cut.0 || bytes - self.cut.1 < self.distance / PIECES {
            return None;
        }
        self.cut = (needed, *bytes);
        Some(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of 8,000 bytes with records of 10 each, which is to be 1,000 long.
    fn log() -> Truncation {
        let mut log = Truncation::new(1_000, 2);
        for record in 1..=800 {
            log.note_end(Lsn(record), record * 10);
        }
        log
    }

    #[test]
    fn it_is_cut_where_nobody_needs_it() {
        let mut log = log();
        log.set_floor(0, Lsn(300));
        assert_eq!(log.cut(None), None, "the other thread has said nothing");
        log.set_floor(1, Lsn(500));
        assert_eq!(log.cut(Some(Lsn(200))), Some(Lsn(200)));
        assert_eq!(log.cut(None), Some(Lsn(300)));
        log.set_floor(0, Lsn(305));
        assert_eq!(log.cut(None), None, "50 bytes are not worth it");
        log.lower_floor(1, Lsn(100));
        log.set_floor(0, Lsn(700));
        assert_eq!(log.cut(None), None, "a tenant has come that needs more");
    }

    #[test]
    fn whoever_needs_more_than_the_distance_holds_it_up() {
        let horizon = log().horizon();
        assert!((700..=740).contains(&horizon.0), "{horizon:?}");
        assert_eq!(Truncation::new(1_000, 1).horizon(), Lsn::NONE);
    }

    #[test]
    fn a_log_that_is_shorter_than_its_distance_is_in_nobodys_way() {
        let mut log = Truncation::new(1_000, 1);
        (1..100).for_each(|record| log.note_end(Lsn(record), record * 10));
        assert_eq!(log.horizon(), Lsn::NONE);
    }

    #[test]
    fn whoever_writes_more_than_the_distance_between_two_looks_holds_it_up_though_nothing_follows() {
        let mut log = Truncation::new(1_000, 1);
        log.note_end(Lsn(3), 30);
        log.note_end(Lsn(300), 30_000);
        assert_eq!(log.horizon(), Lsn(301), "all of them are in the way");
        log.set_floor(0, Lsn(301));
        assert_eq!(log.cut(None), Some(Lsn(301)));
    }
}
