//! The log's form of what there is: changes of the catalog, and what becomes of events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, Change};
use crate::core::EventId;
use crate::meter::Micros;

/// Kinds of records.
pub mod kind {
    /// A change of the catalog, as JSON.
    pub const CHANGE: u16 = 1;
    /// An event that was accepted: four bytes, so long JSON, the payload.
    pub const ACCEPTED: u16 = 2;
    /// An event that has run without success, as JSON.
    pub const ATTEMPTED: u16 = 3;
    /// An event that has ended: its number in eight bytes, little-endian.
    pub const ENDED: u16 = 4;
    /// What follows makes all that there is out of nothing.
    pub const SNAPSHOT_BEGINS: u16 = 5;
    /// And is complete.
    pub const SNAPSHOT_ENDS: u16 = 6;
    /// Numbers that were given out, as JSON.
    pub const NUMBERS: u16 = 7;
}

/// An event as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its number.
    pub event: u64,
    /// The function.
    pub function: String,
    /// A version or an alias.
    pub qualifier: String,
    /// The request, as its client knows it.
    pub request: String,
    /// When.
    pub at: Micros,
    /// What the client says of itself, as it says it.
    #[serde(default)]
    pub client_context: Option<String>,
    /// How often functions on the way have run already.
    #[serde(default)]
    pub lineage: String,
    /// What the function gets.
    #[serde(skip)]
    pub payload: Vec<u8>,
}

/// An event that has run without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempted {
    /// Its number.
    pub event: u64,
    /// How often it has run.
    pub attempts: u32,
    /// When it runs again.
    pub due: Micros,
}

/// Why a record cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is shorter than it says.
    #[error("a record of {0} bytes ends before its parts do; put the log back from a backup")]
    Short(usize),
    /// It is no JSON of its kind.
    #[error("a record is not of this release: {0}; open the log with the release that wrote it")]
    Json(#[from] serde_json::Error),
    /// A kind of another release.
    #[error("expected a record of kinds 1 to 7, came one of the kind {0}; open the log with the release that wrote it")]
    Kind(u16),
}

impl Accepted {
    /// As bytes of the log.
    ///
    /// # Panics
    /// Never: such a value is JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = serde_json::to_vec(self).expect("strings and numbers are JSON");
        let mut bytes = Vec::with_capacity(4 + head.len() + self.payload.len());
        bytes.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Out of bytes of the log.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let short = || RecordError::Short(bytes.len());
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| short())?;
        let (head, payload) = rest.split_at_checked(length).ok_or_else(short)?;
        let mut accepted: Self = serde_json::from_slice(head)?;
        payload.clone_into(&mut accepted.payload);
        Ok(accepted)
    }
}

/// Numbers that are given out once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// The last event.
    pub event: u64,
    /// The last build.
    pub build: u64,
}

/// An event that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// As it was accepted.
    pub accepted: Accepted,
    /// How often it has run.
    pub attempts: u32,
    /// When it runs again.
    pub due: Micros,
}

/// What a log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// What there is.
    pub catalog: Catalog,
    /// Events that have not ended.
    pub events: BTreeMap<EventId, Pending>,
    /// Numbers that were given out.
    pub numbers: Numbers,
}

/// Makes an image out of records.
#[derive(Debug, Default)]
pub struct Replay {
    image: Image,
    /// What a snapshot has made so far.
    coming: Option<Image>,
    /// Records since the last snapshot.
    pub records: usize,
}

impl Replay {
    /// Takes the next record.
    ///
    /// # Errors
    /// It is not of this release, or damaged.
    pub fn take(&mut self, kind: u16, payload: &[u8]) -> Result<(), RecordError> {
        self.records += 1;
        match kind {
            kind::SNAPSHOT_BEGINS => self.coming = Some(Image::default()),
            kind::SNAPSHOT_ENDS => {
                if let Some(coming) = self.coming.take() {
                    self.image = coming;
                    self.records = 0;
                }
            }
            _ => self.coming.as_mut().unwrap_or(&mut self.image).take(kind, payload)?,
        }
        Ok(())
    }

    /// What all records say. A snapshot without its end counts for nothing.
    #[must_use]
    pub fn done(self) -> Image {
        self.image
    }
}

impl Image {
    fn take(&mut self, kind: u16, payload: &[u8]) -> Result<(), RecordError> {
        match kind {
            kind::CHANGE => {
                let change: Change = serde_json::from_slice(payload)?;
                self.numbers.build = self.numbers.build.max(change.newest_build());
                self.catalog.apply(change);
            }
            kind::ACCEPTED => {
                let accepted = Accepted::decode(payload)?;
                self.numbers.event = self.numbers.event.max(accepted.event);
                let due = accepted.at;
                self.events.insert(EventId(accepted.event), Pending { accepted, attempts: 0, due });
            }
            kind::ATTEMPTED => {
                let attempted: Attempted = serde_json::from_slice(payload)?;
                if let Some(pending) = self.events.get_mut(&EventId(attempted.event)) {
                    (pending.attempts, pending.due) = (attempted.attempts, attempted.due);
                }
            }
            kind::ENDED => {
                let event = payload.try_into().map_err(|_| RecordError::Short(payload.len()))?;
                self.events.remove(&EventId(u64::from_le_bytes(event)));
            }
            kind::NUMBERS => self.numbers = serde_json::from_slice(payload)?,
            other => return Err(RecordError::Kind(other)),
        }
        Ok(())
    }

    /// Records that make this image out of nothing, without the marks around them.
    ///
    /// # Panics
    /// Never: such values are JSON.
    pub fn records(&self) -> impl Iterator<Item = (u16, Vec<u8>)> {
        let numbers = (kind::NUMBERS, json(&self.numbers));
        let changes = self.catalog.changes().map(move |change| (kind::CHANGE, json(&change)));
        let events = self.events.iter().flat_map(move |(event, pending)| {
            let accepted = (kind::ACCEPTED, pending.accepted.encode());
            let attempted = Attempted { event: event.0, attempts: pending.attempts, due: pending.due };
            [accepted, (kind::ATTEMPTED, json(&attempted))]
        });
        // Numbers come last: what was given out and has gone again counts, too.
        changes.chain(events).chain([numbers])
    }
}

/// A value as JSON of the log.
///
/// # Panics
/// Never, of values of this crate.
#[must_use]
pub fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("maps with names, strings and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(event: u64) -> Accepted {
        Accepted {
            event,
            function: "f".to_owned(),
            qualifier: "$LATEST".to_owned(),
            request: "r".to_owned(),
            at: 5,
            client_context: None,
            lineage: String::new(),
            payload: vec![0, 1, 255],
        }
    }

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let event = accepted(7);
        assert_eq!(Accepted::decode(&event.encode()).unwrap(), event);
        for cut in 0..event.encode().len() - 3 {
            assert!(Accepted::decode(&event.encode()[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn what_has_ended_is_not_there_and_what_has_run_remembers_how_often() {
        let mut replay = Replay::default();
        for event in [1, 2, 3] {
            replay.take(kind::ACCEPTED, &accepted(event).encode()).unwrap();
        }
        replay.take(kind::ATTEMPTED, &json(&Attempted { event: 2, attempts: 1, due: 60 })).unwrap();
        replay.take(kind::ENDED, &1_u64.to_le_bytes()).unwrap();
        let image = replay.done();
        assert_eq!(image.events.keys().copied().collect::<Vec<_>>(), [EventId(2), EventId(3)]);
        assert_eq!((image.events[&EventId(2)].attempts, image.events[&EventId(2)].due), (1, 60));
        assert_eq!(image.numbers.event, 3, "numbers are given out once");
    }

    #[test]
    fn a_snapshot_says_what_its_image_says_and_half_of_one_says_nothing() {
        let mut replay = Replay::default();
        replay.take(kind::ACCEPTED, &accepted(1).encode()).unwrap();
        replay.take(kind::ACCEPTED, &accepted(2).encode()).unwrap();
        replay.take(kind::ENDED, &2_u64.to_le_bytes()).unwrap();
        replay.take(kind::ATTEMPTED, &json(&Attempted { event: 1, attempts: 2, due: 9 })).unwrap();
        let image = replay.done();
        let again = |ends: bool| {
            let mut replay = Replay::default();
            replay.take(kind::SNAPSHOT_BEGINS, &[]).unwrap();
            image.records().for_each(|(kind, payload)| replay.take(kind, &payload).unwrap());
            if ends {
                replay.take(kind::SNAPSHOT_ENDS, &[]).unwrap();
            }
            replay.done()
        };
        assert_eq!(again(true), image);
        assert_eq!(again(false), Image::default());
    }

    #[test]
    fn what_another_release_wrote_is_refused() {
        assert!(matches!(Replay::default().take(99, &[]), Err(RecordError::Kind(99))));
        assert!(matches!(Replay::default().take(kind::ENDED, &[1]), Err(RecordError::Short(1))));
    }
}
