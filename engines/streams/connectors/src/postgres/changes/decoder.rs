//! From messages to changes of one table: which transaction they are part of, which were read before, and what their values are.

use arrow::datatypes::Field;
use bytes::Bytes;
use savanna_streams_api::{Result, StreamError};

use super::pgoutput::{self, Message, Old, Relation, Value};
use super::place::Place;
use super::publication::Published;
use super::settings::{OnTruncate, Settings};
use crate::postgres::columns::{Found, Way, matching};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The row was there before.
    Read,
    Insert,
    Update,
    Delete,
    Truncate,
    /// Nothing: the log goes on.
    Beat,
}

/// A change of the table, or a row that was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: Kind,
    /// The place behind it.
    pub(super) place: Place,
    /// When it was committed, in microseconds since 1970.
    pub(super) time: Option<i64>,
    /// The columns that are read, as they were.
    pub(super) old: Option<Vec<Value>>,
    /// The same as they are now.
    pub(super) new: Option<Vec<Value>>,
    /// Bytes that it came in.
    pub(super) size: usize,
}

/// What of a table is read.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The table, as it is published when its source is opened.
    pub(super) published: Published,
    /// Its columns.
    pub(super) columns: Vec<Field>,
    /// Whether it is told which values are not known because they were not changed.
    pub(super) takes_unchanged: bool,
}

struct Transaction {
    commit: u64,
    time: i64,
    /// Its changes so far.
    changes: u64,
}

/// Reads the messages of one connection, from a place on.
pub(super) struct Decoder<'s> {
    settings: &'s Settings,
    wanted: &'s Wanted,
    place: Place,
    /// The transaction within which the place is has come, if it is within one.
    has_met: bool,
    transaction: Option<Transaction>,
    /// Where the columns stand that are read, once it was told.
    columns: Option<Vec<usize>>,
}

impl<'s> Decoder<'s> {
    pub(super) fn new(settings: &'s Settings, wanted: &'s Wanted, place: Place) -> Self {
        Self { settings, wanted, place, has_met: place.changes == 0, transaction: None, columns: None }
    }

    /// A transaction begins that was committed there, at that time.
    ///
    /// # Errors
    /// The one within which the place is did not come.
    pub(super) fn begin(&mut self, commit: u64, time: i64) -> Result<()> {
        self.has_met |= commit == self.place.commit;
        if !self.has_met && commit > self.place.commit {
            return Err(self.other(commit, "the transaction was not sent again"));
        }
        self.transaction = Some(Transaction { commit, time, changes: 0 });
        Ok(())
    }

    /// It ends.
    ///
    /// # Errors
    /// It had fewer changes than before.
    pub(super) fn commit(&mut self) -> Result<()> {
        let Some(Transaction { commit, changes, .. }) = self.transaction.take() else { return Ok(()) };
        if commit == self.place.commit && changes < self.place.changes {
            return Err(self.other(commit, &format!("it has {changes} now")));
        }
        Ok(())
    }

    /// A message about rows. None if it is about others, or was read before.
    ///
    /// # Errors
    /// It cannot be read, or must not be passed over.
    pub(super) fn message(&mut self, bytes: &Bytes) -> Result<Option<Change>> {
        let message = pgoutput::message(bytes).map_err(|cause| self.wrong(&cause))?;
        let (kind, old, new) = match message {
            Message::Other => return Ok(None),
            Message::Relation(relation) => return self.relation(&relation).map(|()| None),
            Message::Truncate { relations } if relations.contains(&self.wanted.published.table) => {
                (Kind::Truncate, None, None)
            }
            Message::Insert { relation, new } if self.is_own(relation) => (Kind::Insert, None, Some(new)),
            Message::Update { relation, old, new } if self.is_own(relation) => (Kind::Update, old, Some(new)),
            Message::Delete { relation, old } if self.is_own(relation) => (Kind::Delete, Some(old), None),
            _ => return Ok(None),
        };
        let Some((place, time)) = self.next(bytes)? else { return Ok(None) };
        if kind == Kind::Truncate && self.settings.on_truncate == OnTruncate::Fail {
            return Err(self.wrong(
                "expected changes of rows, got TRUNCATE: what was read of the table is not in it any more; drop the query and start it again with an empty \
                 sink, or set 'on-truncate' = 'row' to be told of it",
            ));
        }
        let new = new.map(|new| self.new_row(&new, old.as_ref())).transpose()?;
        let old = old.map(|old| match old {
            Old::Key(row) | Old::Full(row) => self.row(&row),
        });
        let old = old.transpose()?;
        self.place = place;
        Ok(Some(Change { kind, place, time: Some(time), old, new, size: bytes.len() }))
    }

    /// A message of a session: that of this slot moves the place.
    ///
    /// # Errors
    /// It stands outside of a transaction.
    pub(super) fn beat(&mut self, prefix: &str) -> Result<Option<Change>> {
        if self.settings.slot.is_none() || prefix != self.settings.beat() {
            return Ok(None);
        }
        let Some((place, time)) = self.next(&Bytes::new())? else { return Ok(None) };
        self.place = place;
        Ok(Some(Change { kind: Kind::Beat, place, time: Some(time), old: None, new: None, size: 0 }))
    }

    fn is_own(&self, relation: u32) -> bool {
        relation == self.wanted.published.table
    }

    /// Counts a change. The place behind it and its time, unless it was read before.
    fn next(&mut self, bytes: &Bytes) -> Result<Option<(Place, i64)>> {
        let Some(transaction) = &mut self.transaction else {
            return Err(self.wrong("expected a change within a transaction, got one outside"));
        };
        transaction.changes += 1;
        let Transaction { commit, time, changes } = *transaction;
        let before = (self.place.commit, self.place.changes);
        if (commit, changes) <= before {
            return Ok(None);
        }
        let mut place = self.place;
        place.pass(commit, changes, bytes);
        Ok(Some((place, time)))
    }

    fn relation(&mut self, relation: &Relation) -> Result<()> {
        let table = &self.settings.server.table;
        let has_its_name = relation.schema == table.schema && relation.name == table.name;
        match (self.is_own(relation.number), has_its_name) {
            (false, false) => return Ok(()),
            (true, true) => {}
            (true, false) => {
                return Err(self.wrong(&format!(
                    "expected changes of {table}, which is called \"{}\".\"{}\" now; give it its name back, or drop the query and start another one",
                    relation.schema, relation.name
                )));
            }
            (false, true) => {
                return Err(self.wrong(&format!(
                    "expected changes of the table {table} that was there when the query began, but there was or is another one of its name; drop the \
                     query and start it again"
                )));
            }
        }
        let columns = &relation.columns;
        let found: Vec<Found> =
            columns.iter().map(|column| Found::of_change(&column.name, column.type_number, column.modifier)).collect();
        let wanted: Vec<&Field> = self.wanted.columns.iter().collect();
        matching(table, &wanted, &found, Way::Out).map_err(|error| {
            self.wrong(&format!(
                "{error}. The table was altered, or its publication leaves the column out, as it does with generated ones; drop the query and start it \
                 again with columns that are there"
            ))
        })?;
        let place = |field: &&Field| columns.iter().position(|column| column.name == *field.name());
        self.columns = Some(wanted.iter().filter_map(place).collect());
        Ok(())
    }

    /// The values of the columns that are read.
    fn row(&self, row: &[Value]) -> Result<Vec<Value>> {
        let Some(columns) = &self.columns else {
            return Err(self.wrong("expected to be told what the table is like, got a row of it"));
        };
        let values = columns.iter().map(|at| row.get(*at).cloned());
        let values: Option<Vec<Value>> = values.collect();
        values.ok_or_else(|| self.wrong(&format!("expected a row of the table, got one of {} columns", row.len())))
    }

    /// A row as it is now. What was not sent because it was not changed is taken from the row as it was.
    fn new_row(&self, new: &[Value], old: Option<&Old>) -> Result<Vec<Value>> {
        let mut row = self.row(new)?;
        if let Some(Old::Full(old)) = old {
            let old = self.row(old)?;
            let unchanged = row.iter_mut().zip(old).filter(|(new, _)| **new == Value::Unchanged);
            unchanged.for_each(|(new, old)| *new = old);
        }
        let is_unknown = |(value, _): &(&Value, &Field)| **value == Value::Unchanged;
        match row.iter().zip(&self.wanted.columns).find(is_unknown) {
            Some((_, field)) if !self.wanted.takes_unchanged => Err(self.wrong(&format!(
                "expected the value of column {}, which was not sent, because it is long (TOAST) and was not changed; before such changes are made: ALTER TABLE \
                 {} REPLICA IDENTITY FULL. For those that were made: declare a VARCHAR column, name it in 'unchanged.column' and read it, or leave {} \
                 out, and start the query again",
                field.name(),
                self.settings.server.table,
                field.name()
            ))),
            _ => Ok(row),
        }
    }

    fn other(&self, commit: u64, what: &str) -> StreamError {
        let Place { commit: before, changes, .. } = self.place;
        self.wrong_at(
            commit,
            &format!(
                "expected the {changes} changes that were read of the transaction at {}, but {what}: the slot was moved on, or the publication is another one; \
                 drop the query and start it again",
                lsn(before)
            ),
        )
    }

    fn wrong(&self, message: &str) -> StreamError {
        self.wrong_at(self.transaction.as_ref().map_or(self.place.commit, |transaction| transaction.commit), message)
    }

    fn wrong_at(&self, commit: u64, message: &str) -> StreamError {
        let server = &self.settings.server;
        StreamError::Data {
            place: format!("changes of {} at {}, log {}", server.table, server.place(), lsn(commit)),
            message: message.to_owned(),
        }
    }
}

/// A place in the log as PostgreSQL writes it.
pub(super) fn lsn(at: u64) -> String {
    format!("{:X}/{:X}", at >> 32, at & 0xffff_ffff)
}

/// The place in the log of which this is the text.
pub(super) fn parse_lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some(u64::from(u32::from_str_radix(high, 16).ok()?) << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use savanna_streams_model::catalog::{ColumnDef, TableDef, varchar};

    use super::super::pgoutput::Attribute;
    use super::super::pgoutput::tests::written;
    use super::*;

    fn settings(more: &[(&str, &str)]) -> Settings {
        let column =
            |(name, data_type)| ColumnDef { name: String::from(name), data_type, nullable: true, computed: None };
        let given = [("url", "postgresql://ann@h/shop"), ("table", "t"), ("slot.name", "s")];
        let table = TableDef {
            name: "t".into(),
            columns: [("id", DataType::Int64), ("body", varchar())].into_iter().map(column).collect(),
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: given.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            statement: String::new(),
        };
        Settings::new(&table).unwrap()
    }

    fn wanted(settings: &Settings) -> Wanted {
        Wanted {
            published: Published { table: 7, versions: 0 },
            columns: settings.columns.clone(),
            takes_unchanged: false,
        }
    }

    fn text(text: &'static str) -> Value {
        Value::Text(Bytes::from_static(text.as_bytes()))
    }

    fn relation(number: u32, name: &str, columns: &[(&str, u32)]) -> Bytes {
        let columns = columns.iter().map(|(name, type_number)| Attribute {
            name: (*name).into(),
            type_number: *type_number,
            modifier: -1,
        });
        written(&Message::Relation(Relation {
            number,
            schema: "public".into(),
            name: name.into(),
            columns: columns.collect(),
        }))
    }

    /// `id` is an `int8`, `body` a `text`.
    fn own() -> Bytes {
        relation(7, "t", &[("body", 25), ("id", 20)])
    }

    fn insert(id: &'static str) -> Bytes {
        written(&Message::Insert { relation: 7, new: vec![text("x"), text(id)] })
    }

    fn start() -> Place {
        Place::at(1, 100, false)
    }

    #[test]
    fn changes_are_counted_within_their_transaction_and_columns_found_by_name() {
        let settings = settings(&[]);
        let wanted = wanted(&settings);
        let mut decoder = Decoder::new(&settings, &wanted, start());
        decoder.begin(110, 5).unwrap();
        assert_eq!(decoder.message(&own()), Ok(None));
        let change = decoder.message(&insert("1")).unwrap().unwrap();
        assert_eq!((change.kind, change.time, change.new), (Kind::Insert, Some(5), Some(vec![text("1"), text("x")])));
        let delete = written(&Message::Delete { relation: 7, old: Old::Key(vec![Value::Null, text("1")]) });
        let change = decoder.message(&delete).unwrap().unwrap();
        assert_eq!((change.place.commit, change.place.changes), (110, 2));
        assert_eq!(change.old, Some(vec![text("1"), Value::Null]));
        decoder.commit().unwrap();
        decoder.begin(120, 6).unwrap();
        let other = written(&Message::Insert { relation: 8, new: vec![] });
        assert_eq!(decoder.message(&other), Ok(None), "it is another table's");
        assert_eq!(decoder.beat("savanna:other"), Ok(None));
        let beat = decoder.beat("savanna:s").unwrap().unwrap();
        assert_eq!((beat.kind, beat.place.commit, beat.place.changes), (Kind::Beat, 120, 1));
    }

    #[test]
    fn what_was_read_of_a_transaction_is_not_read_again_and_the_rest_of_it_is() {
        let settings = settings(&[]);
        let wanted = wanted(&settings);
        let read = |place: Place| {
            let mut decoder = Decoder::new(&settings, &wanted, place);
            let mut places = Vec::new();
            for (commit, rows) in [(110, 2), (120, 3), (130, 1)] {
                if commit < place.commit {
                    continue;
                }
                decoder.begin(commit, 0).unwrap();
                decoder.message(&own()).unwrap();
                places.extend(
                    (0..rows).filter_map(|_| decoder.message(&insert("1")).unwrap()).map(|change| change.place),
                );
                decoder.commit().unwrap();
            }
            places
        };
        let all = read(start());
        assert_eq!(all.len(), 6);
        for (at, place) in all.iter().enumerate() {
            assert_eq!(read(*place), all[at + 1..], "from the middle of a transaction on");
        }
    }

    #[test]
    fn a_transaction_that_is_another_one_than_before_is_an_error() {
        let settings = settings(&[]);
        let wanted = wanted(&settings);
        let place = Place { commit: 110, changes: 2, ..start() };
        let mut decoder = Decoder::new(&settings, &wanted, place);
        let error = decoder.begin(120, 0).unwrap_err().to_string();
        assert!(
            error.contains("the 2 changes that were read of the transaction at 0/6E, but the transaction was not sent"),
            "{error}"
        );
        let mut decoder = Decoder::new(&settings, &wanted, place);
        decoder.begin(110, 0).unwrap();
        decoder.message(&own()).unwrap();
        assert_eq!(decoder.message(&insert("1")), Ok(None));
        let error = decoder.commit().unwrap_err().to_string();
        assert!(error.contains("it has 1 now"), "{error}");
    }

    #[test]
    fn a_long_value_that_was_not_sent_is_the_former_one_or_an_error_and_never_null() {
        let settings = settings(&[]);
        let mut wanted = wanted(&settings);
        let update = |old| written(&Message::Update { relation: 7, old, new: vec![Value::Unchanged, text("1")] });
        let read = |wanted: &Wanted, old| {
            let mut decoder = Decoder::new(&settings, wanted, start());
            decoder.begin(110, 0).unwrap();
            decoder.message(&own()).unwrap();
            decoder.message(&update(old)).map(|change| change.unwrap().new.unwrap())
        };
        let full = Some(Old::Full(vec![text("long"), text("1")]));
        assert_eq!(read(&wanted, full), Ok(vec![text("1"), text("long")]));
        let error = read(&wanted, None).unwrap_err().to_string();
        assert!(error.contains("column body") && error.contains("REPLICA IDENTITY FULL"), "{error}");
        let key = Some(Old::Key(vec![Value::Null, text("2")]));
        assert!(read(&wanted, key).is_err(), "the NULL of a key stands for nothing");
        wanted.takes_unchanged = true;
        assert_eq!(read(&wanted, None), Ok(vec![text("1"), Value::Unchanged]));
        let alone = Wanted { columns: vec![settings.columns[0].clone()], takes_unchanged: false, ..wanted };
        assert_eq!(read(&alone, None), Ok(vec![text("1")]), "nobody reads the column");
    }

    #[test]
    fn a_table_that_was_altered_is_read_on_or_said_what_is_wrong() {
        let settings = settings(&[]);
        let wanted = wanted(&settings);
        let told = |relation: Bytes| {
            let mut decoder = Decoder::new(&settings, &wanted, start());
            decoder.begin(110, 0).unwrap();
            decoder.message(&relation).map_err(|error| error.to_string())
        };
        assert_eq!(told(relation(7, "t", &[("id", 23), ("more", 20), ("body", 1043)])), Ok(None));
        assert_eq!(told(relation(8, "other", &[])), Ok(None));
        for (relation, expected) in [
            (relation(7, "t", &[("id", 20)]), "column body of \"public\".\"t\" in PostgreSQL does not exist"),
            (
                relation(7, "t", &[("id", 25), ("body", 25)]),
                "column id of \"public\".\"t\" in PostgreSQL: expected int2",
            ),
            (relation(7, "u", &[("id", 20), ("body", 25)]), "which is called \"public\".\"u\" now"),
            (relation(9, "t", &[("id", 20), ("body", 25)]), "another one of its name"),
        ] {
            let error = told(relation).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_emptied_table_fails_the_query_unless_it_asked_for_a_row() {
        let truncate = written(&Message::Truncate { relations: vec![3, 7] });
        let read = |settings: &Settings| {
            let wanted = wanted(settings);
            let mut decoder = Decoder::new(settings, &wanted, start());
            decoder.begin(110, 0).unwrap();
            decoder.message(&truncate)
        };
        let error = read(&settings(&[])).unwrap_err().to_string();
        assert!(error.contains("got TRUNCATE") && error.contains("log 0/6E"), "{error}");
        let change = read(&settings(&[("on-truncate", "row")])).unwrap().unwrap();
        assert_eq!((change.kind, change.old, change.new), (Kind::Truncate, None, None));
    }

    #[test]
    fn places_in_the_log_are_written_as_postgresql_does() {
        assert_eq!(lsn(0x16_0000_B374), "16/B374");
        assert_eq!(parse_lsn("16/B374"), Some(0x16_0000_B374));
        assert_eq!((parse_lsn("16"), parse_lsn("x/1"), parse_lsn("1/123456789")), (None, None, None));
    }
}
