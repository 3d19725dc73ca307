//! A place among the changes of a table.

use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::source::Offset;
use serde::{Deserialize, Serialize};

use super::publication::Published;

/// How far the changes were read, as JSON: behind so many of a transaction's. It moves with changes alone, so that whoever reads as many
/// again is at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The cluster of databases, whose log this is.
    pub(super) system: u64,
    /// Where the query began in the log.
    pub(super) begin: u64,
    /// How many rows were read of the copy of the table as it was there, if the query began with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) copied: Option<u64>,
    /// Where the log says that the last transaction was committed of which changes were read; where the query began if there was none.
    pub(super) commit: u64,
    /// How many of its changes were read.
    pub(super) changes: u64,
    /// A checksum of all rows and changes up to here.
    pub(super) sum: u32,
    /// What was published when the query began, and must be all the time; none where that was not kept yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) published: Option<Published>,
}

impl Place {
    /// Where a query begins.
    pub(super) fn at(system: u64, begin: u64, has_copy: bool) -> Self {
        Self { system, begin, copied: has_copy.then_some(0), commit: begin, changes: 0, sum: 0, published: None }
    }

    /// The same place, where this is published.
    pub(super) fn publishing(self, published: Published) -> Self {
        Self { published: Some(published), ..self }
    }

    /// The beginning again of what was read up to here.
    pub(super) fn beginning(self) -> Self {
        Self { published: self.published, ..Self::at(self.system, self.begin, self.copied.is_some()) }
    }

    /// One more row of the copy.
    pub(super) fn pass_row(&mut self, line: &[u8]) {
        self.copied = self.copied.map(|rows| rows + 1);
        self.sum = crc32c::crc32c_append(self.sum, line);
    }

    /// Change number `number` of the transaction that was committed there.
    pub(super) fn pass(&mut self, commit: u64, number: u64, message: &[u8]) {
        (self.commit, self.changes) = (commit, number);
        self.sum = crc32c::crc32c_append(self.sum, &commit.to_le_bytes());
        self.sum = crc32c::crc32c_append(self.sum, message);
    }

    /// Whether rows of the copy may be missing.
    pub(super) fn is_in_copy(self) -> bool {
        self.copied.is_some() && self.changes == 0
    }

    /// The place as the engine keeps it.
    pub(super) fn offset(&self) -> Offset {
        Offset(serde_json::to_string(self).unwrap_or_default())
    }

    /// The place that the engine kept; none if nothing had been read.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn of(offset: &Offset) -> Result<Option<Self>> {
        if offset.0.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&offset.0).map(Some).map_err(|error| {
            StreamError::invalid(format!(
                "expected a place among the changes of a table of PostgreSQL, got {} ({error}); the query's table was another one before",
                offset.0
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_as_text_and_nothing_is_no_place() {
        let mut place = Place::at(7_000_000_000_000_000_001, 100, true);
        assert!(place.is_in_copy());
        place.pass_row(b"1\tone\n");
        place.pass(120, 1, b"change");
        assert!(!place.is_in_copy());
        assert_eq!((place.copied, place.commit, place.changes), (Some(1), 120, 1));
        assert_eq!(Place::of(&place.offset()), Ok(Some(place)));
        assert_eq!(place.beginning(), Place::at(7_000_000_000_000_000_001, 100, true));
        let publishing = place.publishing(Published { table: 16400, versions: 5 });
        assert_eq!(Place::of(&publishing.offset()), Ok(Some(publishing)));
        assert_eq!(publishing.beginning(), place.beginning().publishing(Published { table: 16400, versions: 5 }));
        assert_eq!(
            Place::of(&Offset(r#"{"system":1,"begin":2,"commit":3,"changes":4,"sum":5}"#.into()))
                .unwrap()
                .unwrap()
                .published,
            None
        );
        assert_eq!(Place::of(&Offset::default()), Ok(None));
        let error = Place::of(&Offset("17".into())).unwrap_err().to_string();
        assert!(error.contains("expected a place among the changes"), "{error}");
    }

    #[test]
    fn other_changes_give_another_place() {
        let read = |changes: &[(u64, u64, &[u8])]| {
            let mut place = Place::at(1, 100, false);
            changes.iter().for_each(|(commit, number, bytes)| place.pass(*commit, *number, bytes));
            place
        };
        let one = read(&[(110, 1, b"a"), (120, 1, b"b")]);
        assert_ne!(one, read(&[(115, 1, b"a"), (120, 1, b"b")]));
        assert_ne!(one, read(&[(110, 1, b"x"), (120, 1, b"b")]));
    }
}
