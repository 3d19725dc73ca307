//! Tells sources which of their rows no process will read any more.
//!
//! That is not what the sink holds: results of later epochs may need the same rows again. It is what lies before the first record from
//! which a query could go on, and before the snapshot that counts, if that stands in the place of records.

use std::collections::VecDeque;
use std::fmt;

use parking_lot::Mutex;
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::source::{Forget, Offset};

use crate::driver::EpochRecord;

/// The sources of a query that want to know.
pub struct Forgetting {
    /// In the order of the marks in records.
    sources: Vec<Option<Forget>>,
    /// Where the sources were at the end of epochs whose records are kept.
    places: Mutex<VecDeque<(Epoch, Vec<Offset>)>>,
}

impl fmt::Debug for Forgetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forgetting").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl Forgetting {
    /// In the order of the marks in records.
    pub fn new(sources: Vec<Option<Forget>>) -> Self {
        Self { sources, places: Mutex::default() }
    }

    /// One more record is kept.
    pub fn note(&self, record: &EpochRecord) {
        if self.sources.iter().any(Option::is_some) {
            self.places.lock().push_back((record.epoch, offsets(record)));
        }
    }

    /// Records before that of this epoch have gone: whoever goes on begins behind it, or later.
    pub fn records_before(&self, first: Epoch) {
        let mut places = self.places.lock();
        let gone = places.partition_point(|(epoch, _)| *epoch < first);
        places.drain(..gone);
        let offsets = places.front().filter(|(epoch, _)| *epoch == first).map(|(_, offsets)| offsets.clone());
        drop(places);
        self.tell(&offsets.unwrap_or_default());
    }

    /// A snapshot counts, and the records up to its own have gone.
    pub fn snapshot(&self, record: &EpochRecord) {
        let mut places = self.places.lock();
        let gone = places.partition_point(|(epoch, _)| *epoch <= record.epoch);
        places.drain(..gone);
        drop(places);
        self.tell(&offsets(record));
    }

    fn tell(&self, offsets: &[Offset]) {
        for (source, offset) in self.sources.iter().zip(offsets) {
            if let Some(forget) = source {
                forget(offset);
            }
        }
    }
}

fn offsets(record: &EpochRecord) -> Vec<Offset> {
    record.sources.iter().map(|mark| mark.offset.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use savanna_streams_model::time::EventTime;

    use super::*;
    use crate::driver::SourceMark;

    fn record(epoch: u64) -> EpochRecord {
        let mark = |source: &str| SourceMark {
            offset: Offset(format!("{source}{epoch}")),
            watermark: EventTime::MIN,
            events: 1,
            idle: false,
            ended: false,
        };
        EpochRecord {
            epoch: Epoch(epoch),
            processing_time: EventTime(0),
            sources: vec![mark("a"), mark("b")],
            committed: Epoch(epoch.saturating_sub(1)),
            lookups: Vec::new(),
            layout: crate::driver::Layout::default(),
        }
    }

    #[test]
    fn a_source_hears_where_the_first_record_ended_that_is_left() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let forget: Forget = Arc::new(move |offset: &Offset| hears.lock().push(offset.0.clone()));
        let forgetting = Forgetting::new(vec![None, Some(forget)]);
        (1..=9).for_each(|epoch| forgetting.note(&record(epoch)));
        forgetting.records_before(Epoch(4));
        forgetting.snapshot(&record(7));
        forgetting.records_before(Epoch(9));
        assert_eq!(*heard.lock(), ["b4", "b7", "b9"]);
        assert_eq!(forgetting.places.lock().len(), 1);
    }

    #[test]
    fn places_are_kept_for_nobody_but_who_asks() {
        let forgetting = Forgetting::new(vec![None, None]);
        forgetting.note(&record(1));
        assert!(forgetting.places.lock().is_empty());
    }
}
