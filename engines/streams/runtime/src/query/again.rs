//! How a partition reads an epoch again that is recorded: up to where it was sealed, no further, and with the same result.

use std::collections::VecDeque;

use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::Offset;

use crate::driver::SourceMark;

/// The recorded epochs of a partition that it has not sealed again.
#[derive(Debug, Default)]
pub struct Again {
    marks: VecDeque<SourceMark>,
    /// Whether reads may ask for what is left alone; otherwise they ask for as much as they did before.
    by_events: bool,
}

/// What comes next on the way to a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All of the epoch was read.
    There,
    /// A read of at most so many events.
    Read(u64),
}

impl Again {
    /// Of epochs that are recorded, in order. `by_events`: reads may ask for what is left alone.
    pub fn new(marks: VecDeque<SourceMark>, by_events: bool) -> Self {
        Self { marks, by_events }
    }

    /// Whether the epoch that is being filled is a recorded one.
    pub fn is_under_way(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Where the epoch that is being filled ended, if it is a recorded one.
    pub fn mark(&self) -> Option<&SourceMark> {
        self.marks.front()
    }

    /// Where the last recorded epoch ended.
    pub fn end(&self) -> Option<&Offset> {
        self.marks.back().map(|mark| &mark.offset)
    }

    /// What comes next in an epoch of which so many events were read; `most` is what a read asks for otherwise.
    ///
    /// # Errors
    /// Other rows came than before.
    pub fn way(&self, events: u64, most: u64, ended: bool, at: &Offset) -> Result<Way> {
        let Some(mark) = self.marks.front() else { return Ok(Way::Read(most)) };
        if events > mark.events || ended && !mark.ended {
            return Err(other_rows(&format!("{events} events up to {}{}", at.0, ending(ended)), mark));
        }
        if events == mark.events && ended == mark.ended && *at == mark.offset {
            return Ok(Way::There);
        }
        let left = if self.by_events { most.min(mark.events - events) } else { most };
        Ok(Way::Read(left.max(1)))
    }

    /// The source has nothing, although it had something before.
    ///
    /// # Errors
    /// An epoch that is recorded is not over.
    pub fn nothing(&self, events: u64, at: &Offset) -> Result<()> {
        match self.marks.front() {
            Some(mark) => Err(other_rows(&format!("nothing after {events} events, at {}", at.0), mark)),
            None => Ok(()),
        }
    }

    /// The source has nothing yet, but what it had before may take a while to come.
    ///
    /// # Errors
    /// All of it came, and the place is another one: no more rows can make it right.
    pub fn waits(&self, events: u64, ended: bool, at: &Offset) -> Result<()> {
        match self.marks.front() {
            Some(mark) if events == mark.events && ended == mark.ended => {
                Err(other_rows(&format!("{events} events up to {}{}", at.0, ending(ended)), mark))
            }
            _ => Ok(()),
        }
    }

    /// An epoch was sealed.
    ///
    /// # Errors
    /// It was recorded otherwise.
    pub fn seal(&mut self, epoch: Epoch, mark: &SourceMark) -> Result<()> {
        match self.marks.pop_front() {
            Some(before) if before != *mark => {
                let came = format!(
                    "{} events up to {} in epoch {epoch}, with watermark {:?}",
                    mark.events, mark.offset.0, mark.watermark
                );
                Err(other_rows(&came, &before))
            }
            _ => Ok(()),
        }
    }
}

fn ending(ended: bool) -> &'static str {
    if ended { ", where the source ends" } else { "" }
}

fn other_rows(came: &str, before: &SourceMark) -> StreamError {
    StreamError::Data {
        place: "going on with the query".into(),
        message: format!(
            "expected the rows that its source gave before ({} events up to {}{}), got {came}; put the source back as it was, or drop the \
             query and start it again",
            before.events,
            before.offset.0,
            ending(before.ended)
        ),
    }
}

#[cfg(test)]
mod tests {
    use savanna_streams_model::time::EventTime;

    use super::*;

    fn mark(at: &str, events: u64, ended: bool) -> SourceMark {
        SourceMark { offset: Offset(at.into()), watermark: EventTime(7), events, idle: false, ended }
    }

    fn at(place: &str) -> Offset {
        Offset(place.into())
    }

    #[test]
    fn an_epoch_is_read_again_up_to_its_mark_and_no_further() {
        let again = Again::new([mark("10", 10, false)].into(), true);
        assert_eq!(again.way(0, 8, false, &at("0")), Ok(Way::Read(8)));
        assert_eq!(again.way(8, 8, false, &at("8")), Ok(Way::Read(2)));
        assert_eq!(again.way(10, 8, false, &at("10")), Ok(Way::There));
        assert!(again.way(11, 8, false, &at("11")).is_err());
        assert!(again.way(9, 8, true, &at("9")).is_err(), "it ended earlier than before");
        assert!(again.nothing(9, &at("9")).is_err());
    }

    #[test]
    fn what_a_read_finds_behind_the_last_event_belongs_to_the_epoch() {
        let again = Again::new([mark("end of a file", 10, true)].into(), false);
        assert_eq!(again.way(4, 8, false, &at("4")), Ok(Way::Read(8)), "reads are as large as they were");
        assert_eq!(again.way(10, 8, false, &at("10")), Ok(Way::Read(8)));
        assert_eq!(again.way(10, 8, false, &at("end of a file")), Ok(Way::Read(8)), "the end was not met yet");
        assert_eq!(again.way(10, 8, true, &at("end of a file")), Ok(Way::There));
    }

    #[test]
    fn rows_that_take_a_while_to_come_are_waited_for_and_no_longer_than_that() {
        let again = Again::new([mark("10", 10, false), mark("10", 0, true)].into(), true);
        assert_eq!(again.waits(0, false, &at("0")), Ok(()));
        assert_eq!(again.waits(9, false, &at("9")), Ok(()));
        let error = again.waits(10, false, &at("11")).unwrap_err().to_string();
        assert!(error.contains("got 10 events up to 11"), "{error}");
        let again = Again::new([mark("10", 0, true)].into(), true);
        assert_eq!(again.waits(0, false, &at("10")), Ok(()), "its end may still come");
    }

    #[test]
    fn an_epoch_that_differs_from_its_record_is_an_error() {
        let mut again = Again::new([mark("1", 1, false), mark("2", 1, false)].into(), true);
        assert_eq!(again.seal(Epoch(1), &mark("1", 1, false)), Ok(()));
        let error = again.seal(Epoch(2), &SourceMark { watermark: EventTime(8), ..mark("2", 1, false) }).unwrap_err();
        assert!(error.to_string().contains("expected the rows that its source gave before"), "{error}");
        assert!(!again.is_under_way());
        assert_eq!(again.seal(Epoch(3), &mark("3", 1, false)), Ok(()));
    }
}
