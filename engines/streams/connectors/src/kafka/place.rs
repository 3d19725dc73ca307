//! A place in a partition of a topic.

use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::Offset;
use serde::{Deserialize, Serialize};

/// How far a partition was read, as JSON. Offsets have gaps, where transactions ended or were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) partition: i32,
    /// Where the query began, whatever `scan.startup.mode` would mean now.
    pub(super) begin: i64,
    /// The offset behind the last message that was read.
    pub(super) next: i64,
    /// Where the partition ends, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<i64>,
    /// A checksum of all messages up to here: offsets and values.
    pub(super) sum: u32,
}

impl Place {
    /// At the beginning.
    pub(super) fn at(partition: i32, begin: i64, end: Option<i64>) -> Self {
        Self { partition, begin, next: begin, end, sum: 0 }
    }

    /// The beginning again of what was read up to here.
    pub(super) fn beginning(self) -> Self {
        Self::at(self.partition, self.begin, self.end)
    }

    /// One more message.
    pub(super) fn pass(&mut self, offset: i64, value: Option<&[u8]>) {
        self.next = offset + 1;
        let sum = crc32c::crc32c_append(self.sum, &offset.to_le_bytes());
        // A message without a value is not one of no bytes.
        let sum = crc32c::crc32c_append(sum, &[u8::from(value.is_some())]);
        self.sum = crc32c::crc32c_append(sum, value.unwrap_or_default());
    }

    /// Whether all of it was read.
    pub(super) fn is_at_end(self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    /// Whether all of it was read, where a broker has no message at offset `told`. Only the ends of transactions may lie between the last
    /// message and the end; but a replica that is behind, or a leader that took over, may not know yet what others had: then more comes.
    pub(super) fn ends_at(self, told: Option<i64>) -> bool {
        self.end.is_some_and(|end| self.next >= end || told.is_some_and(|told| told >= end))
    }

    /// The place as the engine keeps it.
    pub(super) fn offset(&self) -> Offset {
        Offset(serde_json::to_string(self).unwrap_or_default())
    }

    /// The place that the engine kept for a partition.
    ///
    /// # Errors
    /// It is none, or that of another partition.
    pub(super) fn of(offset: &Offset, partition: i32) -> Result<Self> {
        let wrong = |cause: &str| {
            StreamError::invalid(format!(
                "expected a place in partition {partition} of a topic, got {} ({cause}); the query's table was another one before",
                offset.0
            ))
        };
        let place: Self = serde_json::from_str(&offset.0).map_err(|e| wrong(&e.to_string()))?;
        match place {
            _ if place.partition != partition => Err(wrong(&format!("partition {}", place.partition))),
            _ if place.begin < 0 || place.next < place.begin => Err(wrong("offsets that lie before the beginning")),
            _ => Ok(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_as_text_and_is_that_of_its_partition() {
        let mut place = Place::at(3, 10, None);
        place.pass(10, Some(b"x"));
        place.pass(12, None);
        assert_eq!(place.next, 13);
        assert_eq!(Place::of(&place.offset(), 3), Ok(place));
        assert!(!place.offset().0.contains("end"), "{}", place.offset().0);
        assert_eq!(place.beginning(), Place::at(3, 10, None));
        let error = Place::of(&place.offset(), 2).unwrap_err().to_string();
        assert!(error.contains("expected a place in partition 2"), "{error}");
        assert!(Place::of(&Offset("17".into()), 0).is_err());
    }

    #[test]
    fn other_messages_give_another_place() {
        let read = |messages: &[(i64, Option<&[u8]>)]| {
            let mut place = Place::at(0, 0, None);
            messages.iter().for_each(|(offset, value)| place.pass(*offset, *value));
            place
        };
        let one = read(&[(0, Some(b"ab")), (1, Some(b"c"))]);
        assert_ne!(one, read(&[(0, Some(b"a")), (1, Some(b"bc"))]));
        assert_ne!(one, read(&[(0, Some(b"ab")), (1, Some(b"d"))]));
        assert_ne!(read(&[(0, None)]), read(&[(0, Some(b""))]));
        let mut before = read(&[(0, Some(b"ab"))]);
        before.pass(1, Some(b"c"));
        assert_eq!(one, before, "it does not matter in how many parts they came");
    }

    #[test]
    fn a_partition_without_messages_is_at_its_end() {
        assert!(Place::at(0, 5, Some(5)).is_at_end());
        assert!(!Place::at(0, 5, Some(6)).is_at_end());
        assert!(!Place::at(0, 5, None).is_at_end());
    }

    #[test]
    fn a_broker_that_is_behind_ends_no_table() {
        let place = Place { next: 999, ..Place::at(0, 0, Some(1_000)) };
        assert!(place.ends_at(Some(1_000)), "the end of a transaction is behind the last message");
        let behind = Place { next: 950, ..place };
        assert!(!behind.ends_at(Some(950)) && !behind.ends_at(None));
        assert!(Place { next: 1_000, ..place }.ends_at(None));
        assert!(!Place { end: None, ..place }.ends_at(Some(1_000)));
    }
}
