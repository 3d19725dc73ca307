//! Materialized views: the rows of a query, kept in the server at the end of each epoch.
//!
//! ```text
//!   query --rows of e--> ViewSink --next version (version)--> log: durable --> told: readers see e
//! ```
//!
//! `docs/design/0020-materialized-views.md` has the reasons.

mod log;
mod options;
mod version;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{FieldRef, SchemaRef};
use parking_lot::{Mutex, RwLock};
use savanna_epoch::NodeEpoch;
use savanna_journal::Options;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::catalog::{ColumnDef, TableDef, ViewDef};
use savanna_streams_model::sink::{Delivery, Sink};
use savanna_streams_runtime::driver::EpochRecord;
use savanna_streams_runtime::records::check_held;
use savanna_streams_sql::{Chunk, MaterializedView};

use self::log::ViewLog;
use self::options::shape;
use self::version::{Contents, Shape};

/// What a materialized view is called where tables have a connector.
const CONNECTOR: &str = "materialized view";

/// Where a view outlives the process.
pub(crate) struct Place {
    /// Where it is, for errors.
    pub(crate) named: String,
    pub(crate) journal: Options,
    pub(crate) owner: NodeEpoch,
    /// Makes the directory.
    pub(crate) make: Box<dyn Fn() -> Result<()> + Send + Sync>,
    /// Whether the directory is there.
    pub(crate) is_there: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A view and its rows.
pub(crate) struct View {
    /// Its name, columns, options and statement.
    table: TableDef,
    /// The text of its query.
    query: String,
    shape: Arc<Shape>,
    /// The query that fills it.
    id: QueryId,
    /// None if it ends with the process.
    place: Option<Place>,
    /// What readers see, or why they cannot.
    contents: RwLock<Result<Contents>>,
    /// Locked while an epoch is committed. None before it is opened, and after it has failed.
    log: Mutex<Option<ViewLog>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("name", &self.table.name).field("id", &self.id).finish_non_exhaustive()
    }
}

/// What `SHOW MATERIALIZED VIEWS` tells of the rows of a view.
pub(crate) struct Figures {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) epoch: Epoch,
    /// Since its newest epoch was committed; none before the first.
    pub(crate) age: Option<Duration>,
}

/// A declaration of a view that is about to be made.
pub(crate) struct Declared {
    pub(crate) table: TableDef,
    pub(crate) query: String,
    pub(crate) shape: Shape,
}

impl Declared {
    /// A view of these columns.
    ///
    /// # Errors
    /// An option is none of a view's.
    pub(crate) fn new(view: ViewDef, schema: SchemaRef, mut options: BTreeMap<String, String>) -> Result<Self> {
        let column = |field: &FieldRef| ColumnDef {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            nullable: field.is_nullable(),
            computed: None,
        };
        let columns = schema.fields().iter().map(column).collect();
        let shape = shape(&view.name, schema, &options)?;
        options.insert("connector".into(), CONNECTOR.into());
        let table = TableDef {
            name: view.name,
            columns,
            watermark: None,
            primary_key: Vec::new(),
            partitioned_by: Vec::new(),
            options,
            statement: view.statement,
        };
        Ok(Self { table, query: view.query, shape })
    }
}

impl View {
    /// A view of which nothing is known yet.
    ///
    /// # Errors
    /// A column cannot be a key.
    pub(crate) fn new(declared: Declared, id: QueryId, place: Option<Place>) -> Result<Arc<Self>> {
        let Declared { table, query, shape } = declared;
        let shape = Arc::new(shape);
        let contents = RwLock::new(Ok(Contents::new(Arc::clone(&shape))?));
        Ok(Arc::new(Self { table, query, shape, id, place, contents, log: Mutex::new(None) }))
    }

    /// The table as which rows are given to it.
    pub(crate) fn table(&self) -> &TableDef {
        &self.table
    }

    /// The query that fills it.
    pub(crate) fn id(&self) -> &QueryId {
        &self.id
    }

    /// Whether it outlives the process.
    pub(crate) fn is_kept(&self) -> bool {
        self.place.is_some()
    }

    /// Makes its place, before anybody is told that it is there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn make(&self) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        (place.make)()?;
        self.open()
    }

    /// Reads what is on disk, if it was not read yet or the log has failed. If it cannot be read, readers are told so.
    ///
    /// # Errors
    /// It cannot be read, or is not there.
    pub(crate) fn open(&self) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let mut log = self.log.lock();
        if log.is_some() {
            return Ok(());
        }
        let read = || {
            if !(place.is_there)() {
                let cause = "it is not there; restore it, or DROP the view and create it again";
                return Err(StreamError::io(format!("read the materialized view in {}", place.named), &cause));
            }
            ViewLog::open(place.named.clone(), place.journal.clone(), place.owner, &self.shape)
        };
        match read() {
            Ok((opened, contents)) => {
                *self.contents.write() = Ok(contents);
                *log = Some(opened);
                Ok(())
            }
            Err(error) => {
                *self.contents.write() = Err(error.clone());
                Err(error)
            }
        }
    }

    /// Whether it holds as much as the records of its query know that it has held. If not, readers are told so.
    ///
    /// # Errors
    /// It does not, or cannot be read.
    pub(crate) fn check_held(&self, records: &[EpochRecord]) -> Result<()> {
        let held = self.figures()?.epoch;
        let checked = check_held(records, &format!("materialized view {}", self.table.name), held);
        if let Err(error) = &checked {
            // What is put back is read by RESUME.
            drop(self.log.lock().take());
            *self.contents.write() = Err(error.clone());
        }
        checked
    }

    /// Ends its log in order. Its rows can be read still.
    pub(crate) fn close(&self) {
        if let Some(log) = self.log.lock().take() {
            log.close();
        }
    }

    /// # Errors
    /// It cannot be read.
    pub(crate) fn figures(&self) -> Result<Figures> {
        let contents = self.contents.read();
        let contents = contents.as_ref().map_err(StreamError::clone)?;
        let version = contents.version();
        let age = (version.at > 0).then(|| Duration::from_millis(now().saturating_sub(version.at)));
        Ok(Figures { rows: version.rows, bytes: contents.bytes(), epoch: version.epoch, age })
    }

    /// What puts the query's rows into it.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn sink(self: &Arc<Self>) -> Result<Box<dyn Sink>> {
        self.open()?;
        Ok(Box::new(ViewSink(Arc::clone(self))))
    }

    /// As [`Self::sink`], of a view that may not be there yet: it takes no rows.
    pub(crate) fn unopened_sink(self: &Arc<Self>) -> Box<dyn Sink> {
        Box::new(ViewSink(Arc::clone(self)))
    }

    fn commit(&self, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let mut log = self.log.lock();
        let next = {
            let contents = self.contents.read();
            let contents = contents.as_ref().map_err(StreamError::clone)?;
            let held = contents.version().epoch;
            if epoch <= held {
                return Ok(());
            }
            if epoch != held.next() {
                return Err(StreamError::Internal(format!("a view that holds epoch {held} was given epoch {epoch}")));
            }
            contents.next(&self.table.name, epoch, now(), rows)?
        };
        if self.is_kept() {
            let log = log.as_mut().ok_or_else(|| closed(&self.table.name))?;
            // Nobody is told before it is durable.
            log.append(epoch, next.at(), &next.written)?;
        }
        let told = |contents: &mut Contents| {
            contents.publish(next);
            Arc::clone(contents.version())
        };
        let version = self.contents.write().as_mut().map(told).map_err(|error| error.clone())?;
        log.as_mut().map_or(Ok(()), |log| log.shorten(&version))
    }
}

impl MaterializedView for View {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.shape.schema)
    }

    fn key(&self) -> &[usize] {
        &self.shape.key
    }

    fn query(&self) -> &str {
        &self.query
    }

    fn rows(&self) -> Result<Vec<Chunk>> {
        let contents = self.contents.read();
        contents.as_ref().map(|contents| contents.version().chunks()).map_err(StreamError::clone)
    }

    fn row(&self, key: &[ArrayRef]) -> Result<Option<RecordBatch>> {
        self.contents.read().as_ref().map_err(StreamError::clone)?.row(key)
    }
}

/// Puts the rows of a query into its view.
struct ViewSink(Arc<View>);

impl Sink for ViewSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        if *query != self.0.id {
            return Ok(None);
        }
        let contents = self.0.contents.read();
        contents.as_ref().map(|contents| Some(contents.version().epoch)).map_err(StreamError::clone)
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        if *query != self.0.id {
            let name = &self.0.table.name;
            return Err(StreamError::Internal(format!(
                "query {query} writes to the view {name} of query {}",
                self.0.id
            )));
        }
        let committed = self.0.commit(epoch, rows);
        if committed.is_err() {
            // Whether it counts is known when the log is opened again.
            drop(self.0.log.lock().take());
        }
        committed
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }
}

fn closed(name: &str) -> StreamError {
    StreamError::invalid(format!(
        "materialized view {name} is closed: it was dropped, or could not be written; RESUME QUERY '{name}' reads it again"
    ))
}

/// In milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use savanna_journal::Disk;
    use savanna_journal::sim::{Fault, SimDisk};

    use super::version::tests::{rows, seen, shape};
    use super::*;

    const JOB: u64 = 7;

    fn id() -> QueryId {
        QueryId { code: "0123456789ab".into(), job: JOB }
    }

    /// A view on a disk, as a process finds it.
    fn view(disk: &Arc<SimDisk>, owner: u64, key: bool) -> Arc<View> {
        let text = String::new;
        let def = ViewDef { name: "v".into(), columns: Vec::new(), query: text(), statement: text() };
        let options = if key { [("key".to_owned(), "k".to_owned())].into() } else { BTreeMap::new() };
        let declared = Declared::new(def, shape(key).schema, options).unwrap();
        let place = Place {
            named: "views/7".into(),
            journal: Options::disk(Arc::clone(disk) as Arc<dyn Disk>),
            owner: NodeEpoch(owner),
            make: Box::new(|| Ok(())),
            is_there: Box::new(|| true),
        };
        View::new(declared, id(), Some(place)).unwrap()
    }

    fn row(key: i64, text: &str) -> Vec<RecordBatch> {
        vec![rows(&[(key, text.to_owned())])]
    }

    fn read(view: &View) -> Vec<(i64, String)> {
        seen(view.contents.read().as_ref().unwrap().version())
    }

    fn pair(key: i64, text: &str) -> (i64, String) {
        (key, text.to_owned())
    }

    #[test]
    fn an_epoch_that_comes_again_changes_nothing() {
        let disk = SimDisk::new(1);
        let one = view(&disk, 1, false);
        let mut sink = one.sink().unwrap();
        assert_eq!(sink.last_committed(&id()), Ok(Some(Epoch::ZERO)));
        sink.commit(&id(), Epoch(1), &row(1, "a")).unwrap();
        sink.commit(&id(), Epoch(2), &row(2, "b")).unwrap();
        // It is sent again while the query runs, and after its process has ended.
        sink.commit(&id(), Epoch(2), &row(2, "b")).unwrap();
        drop((sink, one));
        let two = view(&disk, 2, false);
        let mut sink = two.sink().unwrap();
        assert_eq!(sink.last_committed(&id()), Ok(Some(Epoch(2))));
        sink.commit(&id(), Epoch(1), &row(1, "a")).unwrap();
        sink.commit(&id(), Epoch(2), &row(2, "b")).unwrap();
        sink.commit(&id(), Epoch(3), &[]).unwrap();
        sink.commit(&id(), Epoch(5), &[]).unwrap_err();
        assert_eq!(read(&two), [pair(1, "a"), pair(2, "b")]);
    }

    #[test]
    fn nobody_sees_an_epoch_that_could_not_be_written() {
        for step in 1..4 {
            let disk = SimDisk::new(step);
            let view = view(&disk, 1, true);
            let mut sink = view.sink().unwrap();
            sink.commit(&id(), Epoch(1), &row(1, "a")).unwrap();
            disk.fail(step, Fault::PowerCut);
            if sink.commit(&id(), Epoch(2), &row(1, "b")).is_ok() {
                continue;
            }
            assert_eq!(read(&view), [pair(1, "a")], "at {step}");
            assert!(sink.commit(&id(), Epoch(2), &row(1, "b")).unwrap_err().to_string().contains("RESUME QUERY"));
            disk.crash();
            // RESUME: what counts is what the log says.
            let mut sink = view.sink().unwrap();
            let held = sink.last_committed(&id()).unwrap().unwrap();
            assert_eq!(read(&view), [pair(1, if held == Epoch(2) { "b" } else { "a" })]);
            sink.commit(&id(), Epoch(2), &row(1, "b")).unwrap();
            sink.commit(&id(), Epoch(3), &row(2, "c")).unwrap();
            assert_eq!(read(&view), [pair(1, "b"), pair(2, "c")]);
        }
    }

    #[test]
    fn a_reader_keeps_the_version_that_it_has() {
        let view = view(&SimDisk::new(1), 1, true);
        let mut sink = view.sink().unwrap();
        sink.commit(&id(), Epoch(1), &row(1, "a")).unwrap();
        let before = view.rows().unwrap();
        sink.commit(&id(), Epoch(2), &row(1, "b")).unwrap();
        assert_eq!((before.len(), before[0].rows.num_rows(), before[0].living.is_none()), (1, 1, true));
        assert_eq!(read(&view), [pair(1, "b")]);
        let key: Vec<ArrayRef> = vec![Arc::new(arrow::array::Int64Array::from(vec![1]))];
        assert_eq!(view.row(&key).unwrap().unwrap(), row(1, "b").remove(0));
    }
}
