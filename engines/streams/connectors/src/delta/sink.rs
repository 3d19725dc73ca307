//! Writes epochs as versions of a table.
//!
//! ```text
//!   start:   read the log: the last version v, and the query's epoch s   create v + 1: mine --> who wants v + 1 next is shut out
//!   epoch:   create the part   create v + 1: it, and epoch e   taken by another writer of the table? take it in, and create v + 2
//!                                                             taken by another process of this query? this one writes no more
//!                                                             v is not there any more? read the log anew: is it the same table?
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
    /// By what the table was known when it was first seen.
    id: Option<String>,
    /// Whether there is an entry of this owner.
    has_written: bool,
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

    /// Shuts out who has written the query before. A table that is not there is made with the first epoch.
    fn open(&self, query: &QueryId) -> Result<Tenure> {
        let (name, owner) = (format!("savanna-{query}-{}", self.table), unique()?);
        self.place.check_conditions()?;
        let table = Table::read(&self.place, &name)?;
        let id = table.id().map(str::to_owned);
        let mut tenure = Tenure { query: query.clone(), name, owner, table, id, has_written: false };
        if tenure.table.version.is_none() {
            return Ok(tenure);
        }
        self.check(&tenure)?;
        loop {
            let held = tenure.table.held;
            if self.try_advance(&mut tenure, (held > 0).then_some(held), None)? {
                return Ok(tenure);
            }
        }
    }

    /// Whether rows may be added to the table.
    fn check(&self, tenure: &Tenure) -> Result<()> {
        let checked = match (&tenure.id, tenure.table.id()) {
            (Some(before), Some(now)) if before != now => {
                Err(format!("it was made anew (it is {now} now, and was {before})"))
            }
            (Some(before), None) => Err(format!("it is gone (it was {before})")),
            _ => tenure.table.check(&self.columns),
        };
        checked.map_err(|cause| {
            let place = self.place.describe("");
            StreamError::invalid(format!(
                "the table of Delta at {place} cannot be written: {cause}; put it back and RESUME the query, or write to another one"
            ))
        })
    }

    /// Refuses a table that is not the one that was written, or that has gone.
    fn refuse_another(&self, tenure: &mut Tenure) -> Result<()> {
        if tenure.table.goes_on(&self.place)? {
            return Ok(());
        }
        let found = Table::read(&self.place, &tenure.name)?;
        if found.id() != tenure.table.id() {
            tenure.table = found;
            return self.check(tenure);
        }
        // Its last entry was removed behind a checkpoint.
        tenure.table.forget_last();
        Ok(())
    }

    /// Takes in what others have written.
    fn take_in(&self, tenure: &mut Tenure) -> Result<()> {
        self.refuse_another(tenure)?;
        let mut table = tenure.table.clone();
        tenure.table = match table.read_on(&self.place, &tenure.name) {
            Ok(()) => table,
            // What came next is in a checkpoint by now.
            Err(StreamError::Data { .. }) => Table::read(&self.place, &tenure.name)?,
            Err(error) => return Err(error),
        };
        tenure.id = tenure.id.take().or_else(|| tenure.table.id().map(str::to_owned));
        self.check(tenure)
    }

    /// Creates the next version. False if somebody else has taken its number, or it does not count: what there is was taken in.
    fn try_advance(&self, tenure: &mut Tenure, epoch: Option<u64>, part: Option<&Part>) -> Result<bool> {
        self.refuse_another(tenure)?;
        let next = tenure.table.version.map_or(0, |version| version + 1);
        let id = uuid(&unique()?);
        let makes = tenure.table.version.is_none().then_some((id.as_str(), &self.columns));
        if makes.is_some() {
            self.place.make()?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let lines = Entry { query: &tenure.name, owner: &tenure.owner, now, epoch, part, makes }.lines();
        let name = in_log(&entry(next));
        if self.place.create(&name, &lines)? == Created::Before && self.place.read(&name)? != lines {
            self.take_in(tenure)?;
            // It may be of an attempt of this process whose answer was lost.
            let Tenure { table, owner, .. } = &*tenure;
            return Ok(table.owner.as_ref() == Some(owner) && epoch.is_some_and(|epoch| table.held >= epoch));
        }
        tenure.has_written = true;
        let follows = match next.checked_sub(1) {
            Some(last) => self.place.has(&in_log(&entry(last)))?,
            // The table may have been made, and its first entries removed, since it was looked.
            None => Table::read(&self.place, &tenure.name)?.checkpoint.is_none(),
        };
        if !follows {
            return self.beyond_a_gap(tenure, next);
        }
        let applied = tenure.table.apply(next, &lines, &tenure.name);
        applied.map_err(StreamError::Internal)?;
        tenure.id = tenure.id.take().or_else(|| tenure.table.id().map(str::to_owned));
        Ok(true)
    }

    /// The entry before one that was just created is not there: entries have gone since the log was read, with the whole table or behind a
    /// checkpoint, and their numbers are free again. Tells whether the new one counts all the same; otherwise it goes.
    fn beyond_a_gap(&self, tenure: &mut Tenure, next: u64) -> Result<bool> {
        let name = in_log(&entry(next));
        let found = Table::read(&self.place, &tenure.name);
        let counts =
            |table: &Table| table.version >= Some(next) && table.checkpoint.is_some_and(|checkpoint| checkpoint < next);
        match found {
            Ok(table) if counts(&table) => {
                tenure.table = table;
                self.check(tenure)?;
                return Ok(true);
            }
            Ok(_) | Err(StreamError::Data { .. }) => {}
            // Whoever reads it later knows whether it counts.
            Err(error) => return Err(error),
        }
        self.place.remove(&name)?;
        tenure.table = Table::read(&self.place, &tenure.name)?;
        tenure.id = tenure.id.take().or_else(|| tenure.table.id().map(str::to_owned));
        self.check(tenure)?;
        Ok(false)
    }

    /// Has an epoch count, with its part.
    fn advance(&self, tenure: &mut Tenure, epoch: Epoch, part: Option<&Part>) -> Result<()> {
        loop {
            let is_another = tenure.table.owner.as_ref().is_some_and(|owner| *owner != tenure.owner);
            // Of what is in a checkpoint nobody knows who has written it.
            if is_another || tenure.has_written && tenure.table.owner.is_none() {
                return Err(self.shut_out(tenure));
            }
            if self.try_advance(tenure, Some(epoch.0), part)? {
                return Ok(());
            }
        }
    }

    fn shut_out(&self, tenure: &Tenure) -> StreamError {
        StreamError::invalid(format!(
            "another process has begun to write query {} to {}, so that this one writes no more (or its last entry is gone behind a checkpoint: then \
             RESUME it); STOP one of them",
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
            let (mut processes, mut formers) = (0, Vec::new());
            loop {
                processes += 1;
                store.state.lock().left = (processes < 8).then(|| rng.random_range(0..40));
                store.state.lock().one_in = [0, 9][processes % 2];
                let mut sink = open(&store);
                let Ok(held) = sink.last_committed(&query()) else { continue };
                let held = held.unwrap_or(Epoch::ZERO).0;
                // Former processes that still live write nothing that counts, whenever they try.
                for former in &mut formers {
                    let _ = commit(former, held + 1);
                }
                if (held + 1..=epochs).all(|epoch| commit(&mut sink, epoch).is_ok()) {
                    break;
                }
                formers.push(sink);
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
        put(&store, &entry(1), "{\"commitInfo\":{\"operation\":\"OPTIMIZE\"}}\n{\"remove\":{\"path\":\"x\"}}\n");
        put(&store, &entry(2), "{\"txn\":{\"appId\":\"another\",\"version\":9}}\n");
        commit(&mut sink, 2).unwrap();
        assert!(all(&store).contains_key(&entry(3)));
        assert_eq!(counting(&store), expected(2));
        let others = columns::of(&Schema::new(vec![Field::new("n", DataType::Utf8View, true)])).unwrap();
        let id = sink.tenure.as_ref().unwrap().id.clone();
        let meta = json!({ "metaData": { "id": id, "schemaString": others.described.to_string() } });
        put(&store, &entry(4), meta.to_string());
        let error = commit(&mut sink, 4).unwrap_err().to_string();
        assert!(error.contains("its column n is string, and long is written"), "{error}");
        assert_eq!(counting(&store), expected(2));
    }

    #[test]
    fn a_table_that_is_made_anew_or_gone_takes_no_rows_that_nobody_would_find() {
        // The log of the other table is as long as this one was, or longer, or shorter; or there is none.
        for others in [1, 4, 5, 6, 9, 0] {
            let is_made_anew = others > 0;
            let store = Faulty::new(1);
            let mut sink = open(&store);
            (1..=5).for_each(|epoch| commit(&mut sink, epoch).unwrap());
            let before = all(&store);
            before.keys().for_each(|name| remove(&store, name));
            if is_made_anew {
                let other = QueryId { code: "abc".into(), job: 9 };
                let mut another = open(&store);
                (1..=others).for_each(|epoch| another.commit(&other, Epoch(epoch), &rows(epoch)).unwrap());
            }
            let error = commit(&mut sink, 7).unwrap_err().to_string();
            assert!(error.contains(if is_made_anew { "it was made anew" } else { "it is gone" }), "{error}");
            let entries: Vec<_> = all(&store).into_keys().filter(|name| name.ends_with(".json")).collect();
            assert_eq!(entries.len() as u64, others, "{entries:?}");
            // Nor does the next process make it anew where the query has written it before.
            before.iter().for_each(|(name, bytes)| put(&store, name, bytes.clone()));
            assert_eq!(open(&store).last_committed(&query()).unwrap(), Some(Epoch(5)));
        }
    }

    #[test]
    fn a_number_that_is_free_again_behind_a_checkpoint_is_not_taken() {
        let store = Faulty::new(1);
        let mut former = open(&store);
        (1..=2).for_each(|epoch| commit(&mut former, epoch).unwrap());
        let mut next = open(&store);
        (3..=5).for_each(|epoch| commit(&mut next, epoch).unwrap());
        // Versions 0 and 1 are the former one's, 2 is the claim, and 3 to 5 are the next one's.
        checkpoint(&store, 4);
        let error = commit(&mut former, 3).unwrap_err().to_string();
        assert!(error.contains("another process has begun to write"), "{error}");
        let entries: Vec<_> = all(&store).into_keys().filter(|name| name.ends_with(".json")).collect();
        assert_eq!(entries, [in_log(&entry(5))]);
        commit(&mut next, 7).unwrap();
        assert_eq!(open(&store).last_committed(&query()).unwrap(), Some(Epoch(7)));
    }

    #[test]
    fn an_entry_right_behind_a_checkpoint_counts() {
        let store = Faulty::new(1);
        let mut sink = open(&store);
        (1..=4).for_each(|epoch| commit(&mut sink, epoch).unwrap());
        checkpoint(&store, 3);
        commit(&mut sink, 5).unwrap();
        commit(&mut sink, 7).unwrap();
        assert_eq!(open(&store).last_committed(&query()).unwrap(), Some(Epoch(7)));
    }

    #[test]
    fn a_store_that_writes_over_what_was_to_be_created_is_refused() {
        let store = Faulty::new(1);
        store.state.lock().forgets_conditions = true;
        let error = open(&store).last_committed(&query()).unwrap_err().to_string();
        assert!(error.contains("_delta_log/_probe-") && error.contains("was written over"), "{error}");
    }

    #[test]
    fn tables_that_need_more_of_a_writer_are_refused() {
        let of = |actions: &[Value]| {
            let store = Faulty::new(1);
            put(&store, &in_log(&entry(0)), actions.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
            open(&store).last_committed(&query()).unwrap_err().to_string()
        };
        let described = columns::of(&schema()).unwrap().described.to_string();
        let meta =
            |by: &[&str]| json!({ "metaData": { "id": "x", "schemaString": described, "partitionColumns": by } });
        let protocol = |writer: i64| json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": writer } });
        assert!(of(&[protocol(7), meta(&[])]).contains("written by version 7 of the protocol"));
        assert!(of(&[protocol(2), meta(&["dt"])]).contains("partitioned by dt"));
        assert!(of(&[meta(&[])]).contains("says nothing of its protocol"));
        assert!(of(&[json!("x")]).contains("expected an action"));
    }

    /// Makes a checkpoint of the entries up to a version, as others do, and removes those.
    fn checkpoint(store: &Faulty, version: u64) {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let group = |name: &str, fields: Vec<Field>| Field::new(name, DataType::Struct(fields.into()), true);
        let number = |name: &str, of: DataType| Field::new(name, of, true);
        let columns = DataType::List(Arc::new(Field::new("element", DataType::Utf8, true)));
        let columns = Field::new("partitionColumns", columns, true);
        let versions = ["minReaderVersion", "minWriterVersion"].map(|name| number(name, DataType::Int32));
        let schema = Arc::new(Schema::new(vec![
            group("txn", vec![text("appId"), number("version", DataType::Int64)]),
            group("add", vec![text("path")]),
            group("metaData", vec![text("id"), text("schemaString"), columns]),
            group("protocol", versions.to_vec()),
        ]));
        let lines: Vec<u8> = (0..=version).flat_map(|version| all(store)[&in_log(&entry(version))].to_vec()).collect();
        let mut decoder = arrow::json::ReaderBuilder::new(Arc::clone(&schema)).build_decoder().unwrap();
        decoder.decode(&lines).unwrap();
        let rows = decoder.flush().unwrap().unwrap();
        let written = parquet::write(Vec::new(), &schema, &[rows]).unwrap();
        put(store, &in_log(&format!("{version:020}.checkpoint.parquet")), written);
        (0..=version).for_each(|version| remove(store, &in_log(&entry(version))));
    }

    #[test]
    fn a_log_whose_first_entries_are_in_a_checkpoint_goes_on() {
        let store = Faulty::new(1);
        let mut sink = open(&store);
        (1..=4).for_each(|epoch| commit(&mut sink, epoch).unwrap());
        checkpoint(&store, 2);
        let mut next = open(&store);
        assert_eq!(next.last_committed(&query()).unwrap(), Some(Epoch(4)));
        commit(&mut next, 5).unwrap();
        assert!(all(&store).contains_key(&in_log(&entry(5))));
        // A part of it that is missing is missed.
        remove(&store, &in_log(&entry(3)));
        let error = open(&store).last_committed(&query()).unwrap_err().to_string();
        assert!(error.contains("00000000000000000003.json") && error.contains("version 4 is"), "{error}");
    }
}
