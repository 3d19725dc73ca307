//! The seam through which rows come in.
//!
//! A [`Source`] is a table's connector. It is cut into partitions; each partition is read by one [`SourceReader`], in
//! order. A reader that is opened again at an [`Offset`] returns exactly the rows that came after it the first time,
//! unless the source says that it is not replayable.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::catalog::TableDef;
use crate::join::ByKey;
use crate::sink::GiveUp;
use crate::time::EventTime;
use savanna_streams_api::{Result, StreamError};

/// A column, or a field inside `ROW` columns: `["bid", "auction"]` is `bid.auction`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldPath(pub Vec<String>);

/// A constant in a pushed-down comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Literal {
    /// Any integer type.
    Integer(i64),
    /// Any string type.
    Text(String),
    /// BOOLEAN.
    Boolean(bool),
}

/// `path = value`, which the source promised (by [`Source::pushes_down`]) to apply exactly.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EqualTo {
    /// The column compared.
    pub path: FieldPath,
    /// What it must equal.
    pub value: Literal,
}

/// What a query needs of a table. Serialisable: part of the stage graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanSpec {
    /// The table.
    pub table: TableDef,
    /// The columns and fields that the query reads; a path stands for everything below it. Others are left out.
    pub columns: Vec<FieldPath>,
    /// Conditions that the source applies.
    pub equal_to: Vec<EqualTo>,
}

impl ScanSpec {
    /// Everything of a table, unfiltered.
    pub fn everything(table: TableDef) -> Self {
        let columns = table.physical_schema().fields().iter().map(|f| FieldPath(vec![f.name().clone()])).collect();
        Self { table, columns, equal_to: Vec::new() }
    }

    /// The schema of the batches that a reader of this scan returns: the table's physical schema without the columns
    /// and fields that nobody asked for, order kept.
    pub fn schema(&self) -> SchemaRef {
        let wanted: Vec<&[String]> = self.columns.iter().map(|p| p.0.as_slice()).collect();
        Arc::new(Schema::new(prune(self.table.physical_schema().fields(), &wanted)))
    }
}

fn prune(fields: &Fields, wanted: &[&[String]]) -> Fields {
    let keep = |field: &Arc<Field>| -> Option<Arc<Field>> {
        let below: Vec<&[String]> =
            wanted.iter().filter(|p| p.first() == Some(field.name())).map(|p| &p[1..]).collect();
        match field.data_type() {
            _ if below.is_empty() => None,
            DataType::Struct(inner) if below.iter().all(|p| !p.is_empty()) => {
                let inner = DataType::Struct(prune(inner, &below));
                Some(Arc::new(field.as_ref().clone().with_data_type(inner)))
            }
            _ => Some(Arc::clone(field)),
        }
    };
    fields.iter().filter_map(keep).collect()
}

/// A place in a source partition: everything before it has been read. Its text belongs to the connector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub String);

/// A table's connector, reading side.
pub trait Source: Debug + Send + Sync {
    /// Whether the source ends by itself.
    fn bounded(&self) -> bool;

    /// Whether a reader opened at an earlier offset returns the same rows again.
    fn replayable(&self) -> bool;

    /// How far a reader that is opened anew gives the same rows again, cut in the same way, so that a query can be computed again
    /// after its process has ended.
    fn repeats(&self) -> Repeats {
        Repeats::Not("rows of this source do not come again in the same order")
    }

    /// Into how many partitions the source is cut when `wanted` are asked for; at least 1.
    ///
    /// # Errors
    /// Who knows cannot be asked.
    fn partitions(&self, wanted: usize) -> Result<usize>;

    /// The same, of a source that [grows](Self::grows), for a query that goes on and has read `known`: by what those who are asked say now, and
    /// if that are fewer, in a while, because they may not have heard of all yet.
    ///
    /// # Errors
    /// As [`Self::partitions`], or there are fewer.
    fn partitions_again(&self, wanted: usize, known: usize) -> Result<usize> {
        let _ = known;
        self.partitions(wanted)
    }

    /// Whether it may come to have more partitions, which then join a query that reads it: [`SourceReader::partitions`] tells.
    fn grows(&self) -> bool {
        false
    }

    /// Whether the source applies `path = value` exactly, so that the engine need not.
    fn pushes_down(&self, condition: &EqualTo) -> bool {
        let _ = condition;
        false
    }

    /// Opens partition `partition` of `partitions`, at the start or after `from`.
    ///
    /// # Errors
    /// The partition cannot be opened, or the offset is not one of this source.
    fn open(
        &self,
        scan: &ScanSpec,
        partition: usize,
        partitions: usize,
        from: Option<&Offset>,
    ) -> Result<Box<dyn SourceReader>>;

    /// What asks the table for the rows of keys: values of these columns, of which `scan` reads all. Nothing is connected yet.
    ///
    /// # Errors
    /// It cannot be asked, by these columns or at all.
    fn by_key(&self, scan: &ScanSpec, key: &ByKey) -> Result<Box<dyn KeyedReader>> {
        let _ = key;
        let table = &scan.table;
        Err(StreamError::invalid(format!(
            "table {} is read as a whole, because connector {} cannot be asked by key; leave 'lookup.cache' out, or use a table of postgres or redis",
            table.name,
            table.connector()
        )))
    }
}

/// Asks a table for rows by their keys. It lives on one thread at a time.
pub trait KeyedReader: Send {
    /// All rows of some keys, in the schema of the scan and in any order; rows of other keys may be among them. `keys` has the columns of the
    /// key in order, each key once and none with NULL in it. Waits for a table that is away as long as [`ByKey::patience`] says.
    ///
    /// # Errors
    /// The table is away for too long, refuses, or has what is no row; or [`StreamError::Cancelled`].
    fn rows(&mut self, keys: &RecordBatch) -> Result<Vec<RecordBatch>>;

    /// Ends the waiting.
    fn give_up(&self) -> GiveUp;

    /// How often the table did not answer and was asked again.
    fn retries(&self) -> u64 {
        0
    }
}

/// How far the rows of a source come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// By events: whoever asks for as many events as came before gets the same ones, in any portions.
    ByEvents,
    /// By reads: the same sequence of reads, each with the same `max_events`, gives the same answers.
    ByReads,
    /// They do not, and why.
    Not(&'static str),
}

/// What a read gave.
#[derive(Debug)]
pub enum Read {
    /// Some rows.
    Rows(SourceBatch),
    /// One of the splits has changed.
    Split(SplitChange),
    /// Nothing now; more may come.
    Pending,
    /// Nothing more will ever come.
    End,
}

/// What happened to a split: a part of a partition whose rows have an order of their own, such as a file. Splits are numbered
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitChange {
    /// There is one more. Its number is the next.
    Began,
    /// It has nothing now, though others may.
    Waits(usize),
    /// It will never give anything again.
    Ended(usize),
}

/// Rows in the order of their split.
#[derive(Clone, Debug)]
pub struct SourceBatch {
    /// The split that they come from: 0 where the partition has no parts.
    pub split: usize,
    /// The rows, in the schema of [`ScanSpec::schema`].
    pub rows: RecordBatch,
    /// The largest event time among rows that the source left out (by a pushed-down condition) before the end of this
    /// batch: they move the watermark all the same.
    pub left_out_time: Option<EventTime>,
    /// How many events this batch stands for, left-out ones included.
    pub events: u64,
}

/// Tells a source that no process reads what lies before a place any more, so that nobody has to keep it. Called by any thread.
pub type Forget = Arc<dyn Fn(&Offset) + Send + Sync>;

/// One partition being read. Sync: a reader lives on its own thread.
pub trait SourceReader: Send {
    /// The next rows, at most about `max_events` events, waiting at most about `wait` if there are none.
    ///
    /// # Errors
    /// The source failed, or a row is malformed and the table says to fail on that.
    fn read(&mut self, max_events: usize, wait: Duration) -> Result<Read>;

    /// The place after the last row that `read` returned.
    fn offset(&self) -> Offset;

    /// Rows before this place were given to a query before: they come without waiting for their time, and a reader that was opened
    /// at the start begins where the start was then. Called before the first read.
    fn hurry(&mut self, until: &Offset) {
        let _ = until;
    }

    /// Whether rows that were given before may take a while to come again, as over a network: that there are none now does not say
    /// that there will be none.
    fn comes_later(&self) -> bool {
        false
    }

    /// How many partitions the source has by now, if they are more than it was opened with. Each that was not there begins at its first
    /// row. Asked often.
    fn partitions(&self) -> Option<usize> {
        None
    }

    /// Whether it has rows that it cannot give yet, as because somebody else does not answer: it does not rest.
    fn has_rows(&self) -> bool {
        false
    }

    /// What is to be told which rows nobody needs any more, where somebody keeps them for the reader.
    fn forgets(&self) -> Option<Forget> {
        None
    }

    /// How many splits there are before the first read.
    fn splits(&self) -> usize {
        1
    }

    /// Hears the watermark of a split after rows of it were taken, so that what is behind can be read first.
    fn passed(&mut self, split: usize, watermark: EventTime) {
        let _ = (split, watermark);
    }

    /// Rows skipped so far because they were malformed (`'on-error' = 'skip'` or `'dead-letter:..'`).
    fn skipped(&self) -> u64 {
        0
    }

    /// CPU time that a generator spent on making rows so far, where it keeps count.
    fn generator_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

/// Makes sources and sinks from table declarations, by the connector's name. Bound where the engine is put together.
pub trait Connectors: Debug + Send + Sync {
    /// The reading side of a table.
    ///
    /// # Errors
    /// No such connector, it cannot be read, or an option is wrong.
    fn source(&self, table: &TableDef) -> Result<Arc<dyn Source>>;

    /// The writing side of a table.
    ///
    /// # Errors
    /// No such connector, it cannot be written, or an option is wrong.
    fn sink(&self, table: &TableDef, schema: SchemaRef) -> Result<Box<dyn crate::sink::Sink>>;

    /// What the writing side of a table promises, without opening it.
    ///
    /// # Errors
    /// As [`Self::sink`].
    fn delivery(&self, table: &TableDef) -> Result<crate::sink::Delivery> {
        Ok(self.sink(table, table.schema())?.delivery())
    }

    /// Checks a declaration when it is made: the connector exists, options are known and valid. A connector whose schema
    /// is fixed or can be inferred may fill in the columns of a table that declared none.
    ///
    /// # Errors
    /// What is wrong, by option or column name.
    fn check(&self, table: &mut TableDef) -> Result<()>;

    /// One line per connector, for `SHOW CONNECTORS`.
    fn list(&self) -> Vec<ConnectorInfo>;
}

/// What `SHOW CONNECTORS` tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectorInfo {
    /// The name for `'connector' = '..'`.
    pub name: String,
    /// Whether it can be read.
    pub source: bool,
    /// Whether it can be written.
    pub sink: bool,
    /// What a source promises: replayable or not.
    pub replayable: bool,
    /// What a sink promises.
    pub delivery: Option<crate::sink::Delivery>,
    /// The options in one line.
    pub options: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ColumnDef;

    fn path(parts: &[&str]) -> FieldPath {
        FieldPath(parts.iter().map(|p| (*p).to_owned()).collect())
    }

    #[test]
    fn a_scan_keeps_only_the_fields_that_are_read() {
        let inner =
            |names: &[&str]| DataType::Struct(names.iter().map(|n| Field::new(*n, DataType::Int64, true)).collect());
        let column = |name: &str, data_type| ColumnDef { name: name.into(), data_type, nullable: true, computed: None };
        let table = TableDef {
            name: "t".into(),
            columns: vec![
                column("kind", DataType::Int32),
                column("bid", inner(&["auction", "price", "extra"])),
                column("person", inner(&["id"])),
            ],
            watermark: None,
            partitioned_by: Vec::new(),
            primary_key: Vec::new(),
            options: [].into(),
            statement: String::new(),
        };
        let mut scan = ScanSpec::everything(table);
        scan.columns = vec![path(&["bid", "price"]), path(&["bid", "auction"])];
        let expected = Schema::new(vec![Field::new("bid", inner(&["auction", "price"]), true)]);
        assert_eq!(*scan.schema(), expected);
    }
}
