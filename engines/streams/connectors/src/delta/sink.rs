//! Writes epochs as versions of a table.
//!
//! ```text
//!   start:   read the log: the last version v, and the query's epoch s   create v + 1: mine --> who wants v + 1 next is shut out
//!   epoch:   create the part   create v + 1: it, and epoch e   taken by another writer of the table? take it in, and create v + 2
//!                                                             taken by another process of this query? this one writes no more
//! ```

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use bytes::Bytes;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::sink::{Delivery, Remote, Sink};

use super::columns::Columns;
use super::log::{Entry, Part, Table, entry};
use super::place::{Place, in_log};
use crate::bucket::{Created, unique};
use crate::crash::crash_at;
use crate::format::parquet;

/// Nothing is forgotten.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Whoever has not looked at the log for so long looks before it writes: old entries are removed by those who tend a table, and their
/// numbers are free again.
const LOOK_AFTER: Duration = Duration::from_secs(3600);

/// Writes a table.
pub(super) struct DeltaSink {
    place: Place,
    /// The name of the table of streams: two tables of a query are two writers.
    table: String,
    columns: Columns,
    tenure: Option<Tenure>,
}

/// What is known of the query that is being written.
#[derive(Clone, Debug)]
struct Tenure {
    query: QueryId,
    /// Its name in the log.
    name: String,
    /// Who writes, by a name that nobody else has.
    owner: String,
    table: Table,
    looked: SystemTime,
}

impl fmt::Debug for DeltaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaSink").field("place", &self.place).finish_non_exhaustive()
    }
}

impl DeltaSink {
    pub(super) fn new(place: Place, table: &str, columns: Columns) -> Self {
        Self { place, table: table.to_owned(), columns, tenure: None }
    }

    fn tenure(&mut self, query: &QueryId) -> Result<Tenure> {
        match &self.tenure {
            Some(tenure) if tenure.query == *query => Ok(tenure.clone()),
            _ => {
                let tenure = self.open(query)?;
                Ok(self.tenure.insert(tenure).clone())
            }
        }
    }

    /// Shuts out who has written the query before. Makes the table if it is not there.
    fn open(&self, query: &QueryId) -> Result<Tenure> {
        let (name, owner) = (format!("savanna-{query}-{}", self.table), unique()?);
        let table = Table::read(&self.place, &name)?;
        let mut tenure = Tenure { query: query.clone(), name, owner, table, looked: SystemTime::now() };
        if tenure.table.version.is_some() {
            self.check(&tenure.table)?;
        }
        loop {
            let held = tenure.table.held;
            if self.try_advance(&mut tenure, (held > 0).then_some(held), None)? {
                return Ok(tenure);
            }
        }
    }

    /// Whether rows may be added to the table.
    fn check(&self, table: &Table) -> Result<()> {
        table.check(&self.columns).map_err(|cause| {
            StreamError::invalid(format!(
                "the table of Delta at {} cannot be written: {cause}",
                self.place.describe("")
            ))
        })
    }

    /// Creates the next version. False if somebody else has taken its number, whose version was taken in.
    fn try_advance(&self, tenure: &mut Tenure, epoch: Option<u64>, part: Option<&Part>) -> Result<bool> {
        let next = tenure.table.version.map_or(0, |version| version + 1);
        let id = uuid(&unique()?);
        let makes = tenure.table.version.is_none().then_some((id.as_str(), &self.columns));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let lines = Entry { query: &tenure.name, owner: &tenure.owner, now, epoch, part, makes }.lines();
        let name = in_log(&entry(next));
        let found = match self.place.create(&name, &lines)? {
            Created::Now => lines.clone(),
            // Perhaps the answer of an attempt was lost.
            Created::Before => self.place.read(&name)?,
        };
        let applied = tenure.table.apply(next, &found, &tenure.name);
        applied.map_err(|cause| StreamError::Data {
            place: self.place.describe(&name),
            message: format!("{cause}; restore the log, or write to another table"),
        })?;
        let Tenure { table, owner, .. } = &*tenure;
        let is_ours = table.owner.as_ref() == Some(owner) && epoch.is_some_and(|epoch| table.held >= epoch);
        if found == lines || is_ours {
            return Ok(true);
        }
        self.check(table)?;
        Ok(false)
    }

    /// Has an epoch count, with its part.
    fn advance(&self, tenure: &mut Tenure, epoch: Epoch, part: Option<&Part>) -> Result<()> {
        if tenure.looked.elapsed().map_or(true, |since| since >= LOOK_AFTER) {
            tenure.table.read_on(&self.place, &tenure.name)?;
            tenure.looked = SystemTime::now();
        }
        loop {
            if tenure.table.owner.as_ref() != Some(&tenure.owner) {
                return Err(self.shut_out(tenure));
            }
            if self.try_advance(tenure, Some(epoch.0), part)? {
                return Ok(());
            }
        }
    }

    fn shut_out(&self, tenure: &Tenure) -> StreamError {
        StreamError::invalid(format!(
            "another process has begun to write query {} to {}, so that this one writes no more; STOP one of them",
            tenure.query,
            self.place.describe("")
        ))
    }

    /// Writes the rows of an epoch, if there are some.
    fn write(&self, tenure: &Tenure, epoch: Epoch, rows: &[RecordBatch]) -> Result<Option<Part>> {
        let count = rows.iter().map(RecordBatch::num_rows).sum();
        if count == 0 {
            return Ok(None);
        }
        // By an owner of its own: what another one has left under this name counts or not by its own entry.
        let name = format!("part-{}-{:020}-{}.parquet", tenure.query, epoch.0, tenure.owner);
        let rows = rows.iter().map(|rows| self.columns.stored(rows)).collect::<Result<Vec<_>>>()?;
        let written = parquet::write(Vec::new(), &self.columns.stored, &rows);
        let written =
            written.map_err(|cause| StreamError::io(format!("write {}", self.place.describe(&name)), &cause))?;
        let bytes = Bytes::from(written);
        // One that is there already was written by this process for the same epoch.
        self.place.create(&name, &bytes)?;
        Ok(Some(Part { name, bytes: bytes.len(), rows: count }))
    }
}

/// An identifier in the form that tables have.
fn uuid(digits: &str) -> String {
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

impl Sink for DeltaSink {
    fn last_committed(&mut self, query: &QueryId) -> Result<Option<Epoch>> {
        self.tenure = None;
        let held = self.tenure(query)?.table.held;
        Ok((held > 0).then_some(Epoch(held)))
    }

    fn commit(&mut self, query: &QueryId, epoch: Epoch, rows: &[RecordBatch]) -> Result<()> {
        let mut tenure = self.tenure(query)?;
        if epoch.0 <= tenure.table.held {
            return Ok(());
        }
        let part = self.write(&tenure, epoch, rows)?;
        crash_at("delta-part");
        self.advance(&mut tenure, epoch, part.as_ref())?;
        crash_at("delta-commit");
        self.tenure = Some(tenure);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        Delivery::ExactlyOnce
    }

    fn remote(&self) -> Option<Remote> {
        Some(Remote { renew_after: NEVER, give_up: self.place.give_up()? })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use arrow::array::{ArrayRef, AsArray, Int64Array, TimestampMillisecondArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
    use futures::TryStreamExt as _;
    use object_store::path::Path;
    use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;
    use serde_json::{Value, json};

    use super::super::columns;
    use super::*;
    use crate::bucket::Bucket;
    use crate::faulty::Faulty;

    fn schema() -> Schema {
        let at = DataType::Timestamp(TimeUnit::Millisecond, None);
        Schema::new(vec![Field::new("n", DataType::Int64, true), Field::new("at", at, true)])
    }

    /// The numbers of an epoch, each third of which has none.
    fn numbers(epoch: u64) -> Vec<i64> {
        (0..(epoch % 3) as i64).map(|row| epoch as i64 * 10 + row).collect()
    }

    fn rows(epoch: u64) -> Vec<RecordBatch> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers(epoch)));
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1_500; numbers.len()]));
        vec![RecordBatch::try_new(Arc::new(schema()), vec![numbers, times]).unwrap()]
    }

    fn open(store: &Arc<Faulty>) -> DeltaSink {
        let store = Arc::clone(store) as Arc<dyn ObjectStore>;
        let bucket = Bucket::new(store, Path::from("a/b"), "s3://test/a/b", Duration::from_millis(200)).unwrap();
        DeltaSink::new(Place::Bucket(Box::new(bucket)), "t", columns::of(&schema()).unwrap())
    }

    fn query() -> QueryId {
        QueryId { code: "abc".into(), job: 1 }
    }

    fn all(store: &Faulty) -> BTreeMap<String, Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let listed: Vec<ObjectMeta> = store.store.list(None).try_collect().await.unwrap();
            let mut all = BTreeMap::new();
            for object in listed {
                let bytes = store.store.get(&object.location).await.unwrap().bytes().await.unwrap();
                all.insert(object.location.as_ref().strip_prefix("a/b/").unwrap().to_owned(), bytes);
            }
            all
        })
    }

    fn put(store: &Faulty, name: &str, bytes: impl Into<Bytes>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes: Bytes = bytes.into();
        runtime.block_on(store.store.put(&Path::from(format!("a/b/{name}")), bytes.into())).unwrap();
    }

    fn remove(store: &Faulty, name: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(store.store.delete(&Path::from(format!("a/b/{name}")))).unwrap();
    }

    /// The numbers that count by the log, in its order.
    fn counting(store: &Faulty) -> Vec<i64> {
        let all = all(store);
        let entries = all.iter().filter(|(name, _)| name.ends_with(".json"));
        let lines = entries.flat_map(|(_, bytes)| bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()));
        let added = lines.filter_map(|line| {
            let action: Value = serde_json::from_slice(line).unwrap();
            action["add"]["path"].as_str().map(str::to_owned)
        });
        let numbers = added.flat_map(|name| {
            let rows = ParquetRecordBatchReaderBuilder::try_new(all[&name].clone()).unwrap().build().unwrap();
            rows.flat_map(|rows| rows.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec())
                .collect::<Vec<_>>()
        });
        numbers.collect()
    }

    fn expected(epochs: u64) -> Vec<i64> {
        (1..=epochs).flat_map(numbers).collect()
    }

    fn commit(sink: &mut DeltaSink, epoch: u64) -> Result<()> {
        sink.commit(&query(), Epoch(epoch), &rows(epoch))
    }

    #[test]
    fn each_epoch_is_a_version_once_and_the_next_process_shuts_the_former_one_out() {
        let store = Faulty::new(1);
        let mut first = open(&store);
        assert_eq!(first.last_committed(&query()).unwrap(), None);
        [1, 2, 2, 3, 1].iter().for_each(|epoch| commit(&mut first, *epoch).unwrap());
        assert_eq!(first.last_committed(&query()).unwrap(), Some(Epoch(3)), "one without rows, too");
        let mut next = open(&store);
        assert_eq!(next.last_committed(&query()).unwrap(), Some(Epoch(3)));
        let error = commit(&mut first, 4).unwrap_err().to_string();
        assert!(error.contains("another process has begun to write query abc-1 to s3://test/a/b/"), "{error}");
        commit(&mut next, 4).unwrap();
        assert_eq!(counting(&store), expected(4));
        let other = QueryId { code: "abc".into(), job: 11 };
        assert_eq!(open(&store).last_committed(&other).unwrap(), None);
        commit(&mut next, 5).unwrap();
        assert_eq!(counting(&store), expected(5), "other queries hinder nobody");
    }

    #[test]
    fn whatever_the_store_does_and_whenever_the_process_ends_each_epoch_is_there_once() {
        let epochs = 12;
        for seed in 0..60 {
            let store = Faulty::new(seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed + 1_000);
            let mut processes = 0;
            loop {
                processes += 1;
                store.state.lock().left = (processes < 8).then(|| rng.random_range(0..40));
                store.state.lock().one_in = [0, 9][processes % 2];
                let mut sink = open(&store);
                let Ok(held) = sink.last_committed(&query()) else { continue };
                let held = held.unwrap_or(Epoch::ZERO).0;
                if (held + 1..=epochs).all(|epoch| commit(&mut sink, epoch).is_ok()) {
                    break;
                }
            }
            assert_eq!(counting(&store), expected(epochs), "seed {seed}");
        }
    }

    #[test]
    fn others_may_write_the_table_between_epochs_as_long_as_its_columns_stay() {
        let store = Faulty::new(1);
        let mut sink = open(&store);
        commit(&mut sink, 1).unwrap();
        let entry = |version: u64| in_log(&entry(version));
        // Version 0 has made the table, and version 1 has the epoch.
        put(&store, &entry(2), "{\"commitInfo\":{\"operation\":\"OPTIMIZE\"}}\n{\"remove\":{\"path\":\"x\"}}\n");
        put(&store, &entry(3), "{\"txn\":{\"appId\":\"another\",\"version\":9}}\n");
        commit(&mut sink, 2).unwrap();
        assert!(all(&store).contains_key(&entry(4)));
        assert_eq!(counting(&store), expected(2));
        let others = columns::of(&Schema::new(vec![Field::new("n", DataType::Utf8View, true)])).unwrap();
        let meta = json!({ "metaData": { "schemaString": others.described.to_string() } });
        put(&store, &entry(5), meta.to_string());
        let error = commit(&mut sink, 4).unwrap_err().to_string();
        assert!(error.contains("its column n is string, and long is written"), "{error}");
        assert_eq!(counting(&store), expected(2));
    }

    #[test]
    fn tables_that_need_more_of_a_writer_are_refused() {
        let of = |actions: &[Value]| {
            let store = Faulty::new(1);
            put(&store, &in_log(&entry(0)), actions.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
            open(&store).last_committed(&query()).unwrap_err().to_string()
        };
        let described = columns::of(&schema()).unwrap().described.to_string();
        let meta = |by: &[&str]| json!({ "metaData": { "schemaString": described, "partitionColumns": by } });
        let protocol = |writer: i64| json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": writer } });
        assert!(of(&[protocol(7), meta(&[])]).contains("written by version 7 of the protocol"));
        assert!(of(&[protocol(2), meta(&["dt"])]).contains("partitioned by dt"));
        assert!(of(&[meta(&[])]).contains("says nothing of its protocol"));
        assert!(of(&[json!("x")]).contains("expected an action"));
    }

    #[test]
    fn a_log_whose_first_entries_are_in_a_checkpoint_goes_on() {
        let store = Faulty::new(1);
        let mut sink = open(&store);
        (1..=4).for_each(|epoch| commit(&mut sink, epoch).unwrap());
        // As others make one of the entries up to version 3, and remove those.
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let group = |name: &str, fields: Vec<Field>| Field::new(name, DataType::Struct(fields.into()), true);
        let number = |name: &str, of: DataType| Field::new(name, of, true);
        let columns = DataType::List(Arc::new(Field::new("element", DataType::Utf8, true)));
        let checkpoint = Arc::new(Schema::new(vec![
            group("txn", vec![text("appId"), number("version", DataType::Int64)]),
            group("add", vec![text("path")]),
            group("metaData", vec![text("schemaString"), Field::new("partitionColumns", columns, true)]),
            group(
                "protocol",
                vec![number("minReaderVersion", DataType::Int32), number("minWriterVersion", DataType::Int32)],
            ),
        ]));
        let lines: Vec<u8> = (0..=3).flat_map(|version| all(&store)[&in_log(&entry(version))].to_vec()).collect();
        let mut decoder = arrow::json::ReaderBuilder::new(Arc::clone(&checkpoint)).build_decoder().unwrap();
        decoder.decode(&lines).unwrap();
        let rows = decoder.flush().unwrap().unwrap();
        let written = parquet::write(Vec::new(), &checkpoint, &[rows]).unwrap();
        put(&store, &in_log(&format!("{:020}.checkpoint.parquet", 3)), written);
        (0..=3).for_each(|version| remove(&store, &in_log(&entry(version))));
        let mut next = open(&store);
        assert_eq!(next.last_committed(&query()).unwrap(), Some(Epoch(4)));
        commit(&mut next, 5).unwrap();
        assert!(all(&store).contains_key(&in_log(&entry(6))));
        // A part of it that is missing is missed.
        remove(&store, &in_log(&entry(4)));
        let error = open(&store).last_committed(&query()).unwrap_err().to_string();
        assert!(error.contains("00000000000000000004.json") && error.contains("version 5 is"), "{error}");
    }
}
