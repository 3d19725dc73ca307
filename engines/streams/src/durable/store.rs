//! The catalog on disk: changes are durable before anybody hears of them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use savanna_epoch::NodeEpoch;
use savanna_journal::{Disk, Draft, Journal, Lsn, Options, OsDisk, Record};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_connectors::unique;
use savanna_streams_runtime::Survival;
use savanna_streams_runtime::driver::{EpochRecord, Outcome};
use savanna_streams_runtime::snapshot::{Snapshot, write_state};

use super::image::Image;
use super::lookups::QueryLookups;
use super::query_log::{QueryLog, failed};
use super::remote::{self, Kept};
use super::savepoint::{SavedTable, Savepoint};
use super::snapshots::QuerySnapshots;
use super::stored::{Entry, KeptIn, Standing, StoredQuery, StoredRelation, decode, encode};
use crate::views::{self, View};

/// The only kind of record in the catalog; what it is stands inside.
const ENTRY: u16 = 1;
/// Bytes of a segment of the journal. A query's record must fit in one.
const SEGMENT_BYTES: usize = 16 << 20;
/// A journal with more bytes than this, most of them of what is gone, is written anew when it is opened.
const REWRITE_BYTES: usize = 1 << 20;

/// So many records of a query that is taken in are written before it is waited for them.
const RECORDS_AT_ONCE: usize = 256;

/// Whether this process has its place still, at this instant.
#[derive(Clone)]
pub struct HasItsPlace(pub Arc<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for HasItsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HasItsPlace").field(&(self.0)()).finish()
    }
}

/// Where the catalog is, and who may write it.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The directory of streams. It is made with the first table or query.
    pub directory: PathBuf,
    /// The epoch under which this process has the directory.
    pub epoch: NodeEpoch,
    /// A second place that says how far the catalog has been durable.
    pub high_water: Option<Arc<dyn Disk>>,
    /// Asked before a sink commits: no for as long as another process may have the directory.
    pub may_commit: Option<HasItsPlace>,
}

/// The catalog.
pub(crate) struct Store {
    options: StoreOptions,
    /// Locked while a change becomes durable.
    journal: Mutex<Option<Journal>>,
    image: Mutex<Image>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Store {
    /// Reads the catalog, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or has a record that is none: with file and place.
    pub(crate) fn open(options: StoreOptions) -> Result<Arc<Self>> {
        let is_there = options.directory.join("catalog").exists();
        let store = Self { options, journal: Mutex::new(None), image: Mutex::default() };
        store.check_whole(is_there)?;
        if is_there {
            let (journal, bytes) = store.open_journal()?;
            store.rewrite(&journal, bytes)?;
            *store.journal.lock() = Some(journal);
            store.forget_half_taken_in()?;
            store.remove_forgotten();
        }
        Ok(Arc::new(store))
    }

    fn catalog(&self) -> PathBuf {
        self.options.directory.join("catalog")
    }

    /// Makes a directory for nobody but its owner, so that it is there after a loss of power, too.
    fn make(&self, directory: &Path) -> Result<()> {
        let root = self.options.directory.parent();
        let make = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            for above in directory.ancestors().skip(1) {
                let named = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                File::open(named)?.sync_all()?;
                if Some(above) == root {
                    break;
                }
            }
            Ok(())
        };
        make().map_err(|e: io::Error| StreamError::io(format!("make directory {}", directory.display()), &e))
    }

    fn records_of(&self, job: u64) -> PathBuf {
        self.options.directory.join("queries").join(job.to_string())
    }

    fn snapshots_of(&self, job: u64) -> PathBuf {
        self.options.directory.join("snapshots").join(job.to_string())
    }

    fn lookups_of(&self, job: u64) -> PathBuf {
        self.options.directory.join("lookups").join(job.to_string())
    }

    /// All that is kept of a query beside the catalog, but for the rows of its view.
    fn kept_of(&self, job: u64) -> [PathBuf; 3] {
        [self.records_of(job), self.snapshots_of(job), self.lookups_of(job)]
    }

    fn views_of(&self, job: u64) -> PathBuf {
        self.options.directory.join("views").join(job.to_string())
    }

    /// Where the rows of a materialized view are.
    pub(crate) fn view_place(self: &Arc<Self>, job: u64) -> views::Place {
        let (store, directory) = (Arc::clone(self), self.views_of(job));
        let found = directory.clone();
        views::Place {
            named: directory.display().to_string(),
            journal: Options::dir(&directory),
            owner: self.options.epoch,
            make: Box::new(move || store.make(&directory)),
            is_there: Box::new(move || found.is_dir()),
        }
    }

    /// A materialized view that is stored.
    ///
    /// # Errors
    /// What is stored of it makes none.
    pub(crate) fn view(self: &Arc<Self>, stored: &StoredRelation, filled_by: &QueryId) -> Result<Arc<View>> {
        View::new(stored.declared()?, filled_by.clone(), Some(self.view_place(filled_by.job)))
    }

    /// Opens the journal and reads it. Tells how many bytes were read, too.
    fn open_journal(&self) -> Result<(Journal, usize)> {
        let (mut image, mut bytes) = (Image::default(), 0);
        let mut replay = |record: Record| {
            bytes += record.payload.len();
            image.apply(decode(&record.payload)?);
            Ok::<(), String>(())
        };
        let mut options = Options::dir(self.catalog()).segment_bytes(SEGMENT_BYTES);
        if let Some(disk) = &self.options.high_water {
            options = options.high_water(Arc::clone(disk));
        }
        let journal = Journal::open(options, self.options.epoch, &mut replay);
        let journal = journal.map_err(|e| failed("read the catalog of streams from", &self.catalog(), &e))?;
        *self.image.lock() = image;
        Ok((journal, bytes))
    }

    /// Writes what is there anew, if most of the journal is about what is gone.
    fn rewrite(&self, journal: &Journal, bytes: usize) -> Result<()> {
        let entries = self.image.lock().entries().map(|entry| encode(&entry)).collect::<Result<Vec<_>>>()?;
        let live: usize = entries.iter().map(Vec::len).sum();
        if bytes < REWRITE_BYTES || live > bytes / 4 {
            return Ok(());
        }
        let before = journal.appended();
        for payload in &entries {
            self.append(journal, payload)?;
        }
        journal
            .truncate_before(Lsn(before.0 + 1))
            .map_err(|e| failed("shorten the catalog of streams in", &self.catalog(), &e))
    }

    /// Forgets the queries that a process was taking in when it ended.
    fn forget_half_taken_in(&self) -> Result<()> {
        let queries = self.queries();
        let mut half = queries.iter().filter(|query| query.standing == Standing::TakingIn);
        half.try_for_each(|query| self.forget(query.id.job))
    }

    /// Removes the records and snapshots of queries that are gone: the process ended before they were removed.
    fn remove_forgotten(&self) {
        let of = |what| fs::read_dir(self.options.directory.join(what)).into_iter().flatten();
        let job = |entry: &fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
        for entry in of("queries").chain(of("snapshots")).chain(of("lookups")).flatten() {
            if job(&entry).is_some_and(|job| !self.image.lock().queries.contains_key(&job)) {
                remove(&entry.path());
            }
        }
        for entry in of("views").flatten() {
            if job(&entry).is_some_and(|job| !self.image.lock().has_view(job)) {
                remove(&entry.path());
            }
        }
    }

    fn append(&self, journal: &Journal, payload: &[u8]) -> Result<()> {
        let at = || self.catalog();
        if let Some(full) = journal.full() {
            return Err(failed("write the catalog of streams to", &at(), &full));
        }
        let lsn = journal.append(&[Draft { shard: 0, kind: ENTRY, payload }]);
        let lsn = lsn.map_err(|e| failed("write the catalog of streams to", &at(), &e))?;
        let (tell, told) = mpsc::sync_channel(1);
        // Nobody waits any more if the process ends.
        journal.gate().hold(lsn, move |outcome| drop(tell.send(outcome)));
        let outcome = told.recv().map_err(|_| StreamError::Internal("a journal ended without an answer".into()))?;
        outcome.map_err(|e| failed("write the catalog of streams to", &at(), &e))
    }

    /// A catalog that is gone while what belongs to it is there was not removed by this program.
    fn check_whole(&self, is_there: bool) -> Result<()> {
        let of = |what| self.options.directory.join(what);
        let (queries, views) = (of("queries"), of("views"));
        let has = |directory: &Path| fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
        let has_mark =
            || self.options.high_water.as_ref().is_some_and(|mark| mark.list().is_ok_and(|files| !files.is_empty()));
        let left = match is_there {
            true => return Ok(()),
            false if has(&queries) => queries.display().to_string(),
            false if has(&views) => views.display().to_string(),
            false if has_mark() => "high-water/streams in the data directory".to_owned(),
            false => return Ok(()),
        };
        let cause = format!("it is not there, but {left} is: restore it, or remove that too to begin anew");
        Err(StreamError::io(format!("read the catalog of streams from {}", self.catalog().display()), &cause))
    }

    /// Makes a change durable, and then true.
    ///
    /// # Errors
    /// It cannot be written; whether it is true will be known in the next process.
    fn write(&self, entry: Entry) -> Result<()> {
        self.write_with(|_| Ok(entry))
    }

    /// As [`Self::write`], of a change that follows from what is there: nothing else changes meanwhile.
    fn write_with(&self, entry: impl FnOnce(&Image) -> Result<Entry>) -> Result<()> {
        let mut journal = self.journal.lock();
        let entry = entry(&self.image.lock())?;
        let payload = encode(&entry)?;
        if journal.is_none() {
            self.make(&self.catalog())?;
            *journal = Some(self.open_journal()?.0);
        }
        if let Some(journal) = &*journal {
            self.append(journal, &payload)?;
        }
        self.image.lock().apply(entry);
        Ok(())
    }

    /// All tables and views.
    pub(crate) fn relations(&self) -> Vec<StoredRelation> {
        self.image.lock().relations.values().cloned().collect()
    }

    /// All queries.
    pub(crate) fn queries(&self) -> Vec<StoredQuery> {
        self.image.lock().queries.values().cloned().collect()
    }

    /// A query by its name, its id, or its job.
    pub(crate) fn query(&self, text: &str) -> Option<StoredQuery> {
        let is_it = |query: &&StoredQuery| {
            query.name == text || query.id.to_string() == text || query.id.job.to_string() == text
        };
        self.image.lock().queries.values().find(is_it).cloned()
    }

    pub(crate) fn put_relation(&self, relation: StoredRelation) -> Result<()> {
        self.write(Entry::Relation(relation))
    }

    /// Whether there is a table or view of this name.
    pub(crate) fn has_relation(&self, name: &str) -> bool {
        self.image.lock().relations.contains_key(name)
    }

    pub(crate) fn drop_relation(&self, name: &str) -> Result<()> {
        self.write(Entry::RelationDropped(name.to_owned()))
    }

    /// Stores a query before it runs.
    ///
    /// # Errors
    /// There is a query of that name, or it cannot be stored.
    pub(crate) fn add(&self, query: StoredQuery) -> Result<()> {
        self.write_with(|image| {
            check_new(image, &query)?;
            Ok(Entry::Query(Box::new(query)))
        })
    }

    /// Stores a materialized view and the query that fills it, before it runs. `make` makes its place before.
    ///
    /// # Errors
    /// There is a query of that name, or they cannot be stored.
    pub(crate) fn add_view(
        &self,
        view: StoredRelation,
        query: StoredQuery,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.write_with(|image| {
            check_new(image, &query)?;
            make()?;
            Ok(Entry::MaterializedView(view, Box::new(query)))
        })
    }

    /// Forgets a materialized view, its rows and its query, which does not run. `close` is called when that is durable.
    pub(crate) fn drop_view(&self, name: &str, close: impl FnOnce()) -> Result<()> {
        let filled_by = self.image.lock().relations.get(name).and_then(|view| view.query.clone());
        self.write(Entry::MaterializedViewDropped(name.to_owned()))?;
        close();
        if let Some(QueryId { job, .. }) = filled_by {
            self.kept_of(job).iter().for_each(|gone| remove(gone));
            remove(&self.views_of(job));
        }
        Ok(())
    }

    /// Notes where a query stands.
    pub(crate) fn stand(&self, job: u64, standing: Standing) -> Result<()> {
        self.write(Entry::Standing(job, standing))
    }

    /// Changes a query, which does not run, but for where it stands.
    ///
    /// # Errors
    /// It is gone, or the change cannot be stored.
    pub(crate) fn change(&self, changed: &StoredQuery) -> Result<()> {
        self.write_with(|image| {
            let query = image.queries.get(&changed.id.job);
            let query = query.ok_or_else(|| StreamError::invalid("the query has ended meanwhile"))?;
            Ok(Entry::Query(Box::new(StoredQuery { standing: query.standing.clone(), ..changed.clone() })))
        })
    }

    /// Forgets a query, the records of its epochs, its snapshots and its tables for look-ups. It does not run.
    pub(crate) fn forget(&self, job: u64) -> Result<()> {
        if let Some(kept) = self.kept_in(job)
            && let Err(error) = remote::forget(&kept)
        {
            tracing::warn!(job, %error, "what a bucket has of a query that is forgotten stays; remove its folder");
        }
        self.write(Entry::QueryDropped(job))?;
        self.kept_of(job).iter().for_each(|gone| remove(gone));
        Ok(())
    }

    /// The folder of a bucket in which a query is kept, if it is.
    fn kept_in(&self, job: u64) -> Option<KeptIn> {
        self.image.lock().queries.get(&job).and_then(|query| query.kept_in.clone())
    }

    /// The query that is kept in a folder of a bucket, if there is one.
    ///
    /// # Errors
    /// The store does not answer, or what is there cannot be read.
    pub(crate) fn kept_at(url: &str) -> Result<Option<Kept>> {
        remote::kept_at(url)
    }

    /// The folder of a query that is kept in the folder of its name, if there is one.
    ///
    /// # Errors
    /// The store does not answer, or there is too much.
    pub(crate) fn living_at(url: &str) -> Result<Option<String>> {
        remote::living_at(url)
    }

    /// Takes over a query that is kept in a bucket from whoever had it when it was found, as `query` in this node. It does not run yet.
    ///
    /// # Errors
    /// The store does not answer, somebody else has it by now, or there is a query of that name here.
    pub(crate) fn take_over(&self, found: &Kept, query: StoredQuery) -> Result<StoredQuery> {
        let kept = KeptIn { url: found.url.clone(), holder: unique()? };
        let query = StoredQuery { standing: Standing::Stopped, kept_in: Some(kept.clone()), ..query };
        // Before it is taken away from another node for nothing.
        check_new(&self.image.lock(), &query)?;
        remote::take(found, &query, &kept)?;
        self.add(query.clone())?;
        Ok(query)
    }

    /// Says in a bucket what a query is that is kept there and does not run: what it was said to be has changed back.
    ///
    /// # Errors
    /// The store does not answer, or another node has the query.
    pub(crate) fn tell_again(&self, job: u64) -> Result<()> {
        let query = self.image.lock().queries.get(&job).cloned();
        let kept = query.as_ref().and_then(|query| Some((query, query.kept_in.as_ref()?)));
        kept.map_or(Ok(()), |(query, kept)| remote::tell(query, kept))
    }

    /// What a query needs to go on. It does not run.
    ///
    /// # Errors
    /// The records of its epochs or its snapshot cannot be read.
    pub(crate) fn survival(self: &Arc<Self>, job: u64) -> Result<Survival> {
        let store = Arc::clone(self);
        let when_ended = Box::new(move |outcome: &Outcome| store.note_end(job, outcome));
        let query = self.image.lock().queries.get(&job).cloned();
        let former = query.as_ref().map_or(Epoch::ZERO, |query| query.anew_behind);
        let changed = query.as_ref().map(|query| query.emptied.clone()).unwrap_or_default();
        let of_this_text = |found: Result<Option<Snapshot>>| {
            let found = found.map(|found| found.filter(|found| found.manifest.record.epoch > former));
            let is_former = |found: &Snapshot| found.manifest.record.epoch <= changed.behind;
            let taking = matches!(&found, Ok(Some(found)) if is_former(found)).then(|| changed.taking());
            (found, taking)
        };
        if let Some(query) = &query
            && let Some(kept) = &query.kept_in
        {
            let may_commit = self.options.may_commit.clone();
            let remote::Opened { log, records, snapshots, lookups, found } =
                remote::open(query, kept, may_commit, when_ended)?;
            let (found, taking) = of_this_text(found);
            return Ok(Survival { log, records, snapshots: Some(snapshots), lookups, found, taking });
        }
        let directory = self.records_of(job);
        self.make(&directory)?;
        let lookups = self.lookups(job);
        let may_commit = self.options.may_commit.clone();
        let (log, mut records) =
            QueryLog::open(&directory, self.options.epoch, Arc::clone(&lookups), may_commit, when_ended)?;
        lookups.drop_forgotten(&mut records)?;
        let directory = self.snapshots_of(job);
        let disk = Arc::new(OsDisk::new(&directory));
        let make = self.maker(directory);
        let (snapshots, found) = QuerySnapshots::open(disk, self.options.epoch, self.options.may_commit.clone(), make);
        let (found, taking) = of_this_text(found);
        Ok(Survival { log, records, snapshots: Some(snapshots), lookups, found, taking })
    }

    /// The tables of a query's look-ups.
    fn lookups(self: &Arc<Self>, job: u64) -> Arc<QueryLookups> {
        let directory = self.lookups_of(job);
        Arc::new(QueryLookups::new(Arc::new(OsDisk::new(&directory)), self.maker(directory)))
    }

    /// Makes a directory once in each process: one before may have ended between the directory and its name.
    fn maker(self: &Arc<Self>, directory: PathBuf) -> Box<dyn Fn() -> Result<()> + Send + Sync> {
        let (store, made) = (Arc::clone(self), AtomicBool::new(false));
        Box::new(move || {
            if !made.load(Ordering::Acquire) {
                store.make(&directory)?;
                made.store(true, Ordering::Release);
            }
            Ok(())
        })
    }

    /// The records of a stored query that does not run, and the epoch of its snapshot.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn records(self: &Arc<Self>, job: u64) -> Result<(Vec<EpochRecord>, Option<Epoch>)> {
        let query = self.image.lock().queries.get(&job).cloned();
        if let Some(query) = &query
            && let Some(kept) = &query.kept_in
        {
            let (records, snapshot) = remote::records(kept)?;
            return Ok((records, snapshot.filter(|epoch| *epoch > query.anew_behind)));
        }
        let Survival { log, records, found, .. } = self.survival(job)?;
        log.ended(&Outcome::Cancelled);
        let snapshot = found.ok().flatten().map(|found| found.manifest.record.epoch);
        Ok((records, snapshot))
    }

    /// A stored query that does not run, with all that another node needs to go on with it.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn savepoint(self: &Arc<Self>, query: &StoredQuery) -> Result<Savepoint> {
        let Survival { log, mut records, lookups, found, .. } = self.survival(query.id.job)?;
        log.ended(&Outcome::Cancelled);
        let found = found?;
        if let Some(found) = &found {
            // Those behind the snapshot; where records begin later, it is of no use.
            let from = found.manifest.record.epoch;
            records.retain(|record| record.epoch > from);
        }
        let of_snapshot = found.iter().map(|found| &found.manifest.record);
        let named: BTreeSet<(u16, u64)> = (records.iter().chain(of_snapshot))
            .flat_map(|record| (0_u16..).zip(record.lookups.iter().copied()))
            .collect();
        let table = |(lookup, version)| Ok(SavedTable { lookup, version, rows: lookups.read(lookup, version)? });
        let tables = named.into_iter().map(table).collect::<Result<_>>()?;
        Ok(Savepoint { query: query.clone(), records, tables, snapshot: found })
    }

    /// Stores a query that was saved. It does not run.
    ///
    /// # Errors
    /// It is there already, or cannot be stored: then nothing of it is.
    pub(crate) fn take_in(self: &Arc<Self>, saved: Savepoint) -> Result<StoredQuery> {
        let Savepoint { query, records, tables, snapshot } = saved;
        // What a bucket has of it is that of the node that saved it.
        let query = StoredQuery { standing: Standing::TakingIn, kept_in: None, ..query };
        self.add(query.clone())?;
        let taken = self.survival(query.id.job).and_then(|survival| {
            let lookups = self.lookups(query.id.job);
            let put = |table: &SavedTable| lookups.put_in(table.lookup, table.version, &table.rows);
            let taken = tables.iter().try_for_each(put).and_then(|()| put_in(&survival, &records, snapshot));
            survival.log.ended(&Outcome::Cancelled);
            taken
        });
        // From here on it is whole.
        let taken = taken.and_then(|()| self.stand(query.id.job, Standing::Stopped));
        if let Err(error) = taken {
            self.forget(query.id.job)?;
            return Err(error);
        }
        Ok(StoredQuery { standing: Standing::Stopped, ..query })
    }

    /// A query that was cancelled was stopped, which is noted, or its process ends.
    fn note_end(&self, job: u64, outcome: &Outcome) {
        let noted = match outcome {
            Outcome::Finished => self.forget(job),
            Outcome::Failed(error) => self.stand(job, Standing::Failed(error.clone())),
            Outcome::Cancelled => Ok(()),
        };
        if let Err(error) = noted {
            tracing::error!(job, %error, "how a query ended could not be noted; the next process goes on with it");
        }
    }
}

/// # Errors
/// There is a query of that name.
fn check_new(image: &Image, query: &StoredQuery) -> Result<()> {
    if image.queries.values().any(|other| other.name == query.name || other.id.job == query.id.job) {
        return Err(StreamError::invalid(format!(
            "query {} exists already; RESUME QUERY or DROP QUERY it, or SET another 'query.name'",
            query.name
        )));
    }
    Ok(())
}

/// Writes the records and the snapshot of a query anew.
fn put_in(survival: &Survival, records: &[EpochRecord], snapshot: Option<Snapshot>) -> Result<()> {
    // Many are waited for at once: each alone would take a flush of its own.
    for records in records.chunks(RECORDS_AT_ONCE) {
        let (tell, told) = mpsc::channel();
        for record in records {
            let tell = tell.clone();
            survival.log.append(record, Box::new(move |outcome| drop(tell.send(outcome))));
        }
        drop(tell);
        for _ in records {
            told.recv().map_err(|_| StreamError::Internal("a journal ended without an answer".into()))??;
        }
    }
    if let (Some(Snapshot { mut manifest, states }), Some(store)) = (snapshot, &survival.snapshots) {
        for (part, state) in manifest.parts.iter_mut().zip(&states) {
            let mut write = |out: &mut dyn io::Write| write_state(state, out);
            *part = part.rewritten(store.put(manifest.record.epoch, part.stage, part.shuffle, &mut write)?);
        }
        store.switch(&manifest)?;
    }
    Ok(())
}

fn remove(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(directory = %directory.display(), %error, "the records of a query that is gone could not be removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use savanna_streams_model::time::EventTime;
    use savanna_streams_runtime::snapshot::State;

    use super::super::stored::Emptied;
    use super::*;
    use crate::catalog::Relation;

    fn open(directory: &Path, epoch: u64) -> Result<Arc<Store>> {
        Store::open(StoreOptions {
            directory: directory.join("streams"),
            epoch: NodeEpoch(epoch),
            high_water: None,
            may_commit: None,
        })
    }

    fn view(name: &str) -> StoredRelation {
        let statement = format!("CREATE VIEW {name} AS SELECT 1");
        match savanna_streams_sql::parse(&statement).unwrap() {
            savanna_streams_sql::Statement::CreateView { view, .. } => {
                StoredRelation::of(&Relation::View(view)).unwrap()
            }
            _ => unreachable!(),
        }
    }

    fn query(job: u64, name: &str) -> StoredQuery {
        StoredQuery {
            id: QueryId { code: "0123456789ab".into(), job },
            name: name.into(),
            statement: "INSERT INTO o SELECT a FROM t".into(),
            parameters: Vec::new(),
            settings: BTreeMap::new(),
            relations: vec![view("v")],
            standing: Standing::Running,
            emission: 0,
            anew_behind: Epoch::ZERO,
            kept_in: None,
            emptied: Emptied::default(),
        }
    }

    fn record(epoch: u64) -> EpochRecord {
        EpochRecord {
            epoch: Epoch(epoch),
            processing_time: EventTime(7),
            sources: Vec::new(),
            committed: Epoch::ZERO,
            lookups: Vec::new(),
            layout: savanna_streams_runtime::driver::Layout::default(),
        }
    }

    fn append(survival: &Survival, record: &EpochRecord) {
        let (tell, told) = mpsc::channel();
        survival.log.append(record, Box::new(move |outcome| tell.send(outcome).unwrap()));
        told.recv().unwrap().unwrap();
    }

    #[test]
    fn nothing_is_made_before_there_is_something_to_keep() {
        let directory = tempfile::tempdir().unwrap();
        drop(open(directory.path(), 1).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_written_is_there_in_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        store.put_relation(view("v")).unwrap();
        store.put_relation(view("w")).unwrap();
        store.drop_relation("v").unwrap();
        store.add(query(7, "out")).unwrap();
        store.add(query(8, "out-2")).unwrap();
        let error = store.add(query(9, "out")).unwrap_err().to_string();
        assert!(error.starts_with("query out exists already"), "{error}");
        store.stand(8, Standing::Stopped).unwrap();
        append(&store.survival(7).unwrap(), &record(1));
        drop(store);
        let store = open(directory.path(), 2).unwrap();
        assert_eq!(store.relations(), [view("w")]);
        let names: Vec<_> = store.queries().into_iter().map(|query| (query.name, query.standing)).collect();
        assert_eq!(names, [("out".to_owned(), Standing::Running), ("out-2".to_owned(), Standing::Stopped)]);
        assert_eq!(store.survival(7).unwrap().records, [record(1)]);
        assert_eq!(store.query("8").unwrap(), store.query("out-2").unwrap());
    }

    #[test]
    fn records_that_a_crash_brings_back_go_where_their_tables_have_gone() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        store.add(query(7, "out")).unwrap();
        let survival = store.survival(7).unwrap();
        for version in 1..=4 {
            assert_eq!(survival.lookups.put(0, &State::default()).unwrap(), version);
            append(&survival, &EpochRecord { lookups: vec![version], ..record(version) });
        }
        survival.log.forget_before(Epoch(4));
        // The process is killed: the journal has not noted yet where it begins.
        drop((survival, store));
        let store = open(directory.path(), 2).unwrap();
        let epochs: Vec<u64> = store.survival(7).unwrap().records.iter().map(|record| record.epoch.0).collect();
        assert_eq!(epochs, [3, 4]);
        let saved = store.savepoint(&store.query("out").unwrap()).unwrap();
        assert_eq!((saved.records.len(), saved.tables.len()), (2, 2));
    }

    #[test]
    fn a_query_that_ends_by_itself_is_forgotten_and_one_that_fails_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        for job in [1, 2, 3] {
            store.add(query(job, &format!("q{job}"))).unwrap();
        }
        store.survival(1).unwrap().log.ended(&Outcome::Finished);
        store.survival(2).unwrap().log.ended(&Outcome::Failed(StreamError::Cancelled));
        store.survival(3).unwrap().log.ended(&Outcome::Cancelled);
        let standings: Vec<_> = store.queries().into_iter().map(|query| (query.id.job, query.standing)).collect();
        assert_eq!(standings, [(2, Standing::Failed(StreamError::Cancelled)), (3, Standing::Running)]);
        assert!(!store.records_of(1).exists() && store.records_of(2).exists());
    }

    fn saved(job: u64) -> Savepoint {
        Savepoint {
            query: query(job, "saved"),
            records: (1..=200).map(record).collect(),
            tables: Vec::new(),
            snapshot: None,
        }
    }

    #[test]
    fn a_query_that_was_taken_in_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        let taken = store.take_in(saved(7)).unwrap();
        assert_eq!(taken.standing, Standing::Stopped);
        let error = store.take_in(saved(7)).unwrap_err().to_string();
        assert!(error.starts_with("query saved exists already"), "{error}");
        drop(store);
        let store = open(directory.path(), 2).unwrap();
        assert_eq!(store.query("saved"), Some(taken));
        assert_eq!(store.survival(7).unwrap().records, saved(7).records);
    }

    #[test]
    fn a_query_that_was_half_taken_in_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        store.add(query(6, "other")).unwrap();
        // The process ends within taking it in.
        let Savepoint { query, records, .. } = saved(7);
        store.add(StoredQuery { standing: Standing::TakingIn, ..query }).unwrap();
        append(&store.survival(7).unwrap(), &records[0]);
        drop(store);
        let store = open(directory.path(), 2).unwrap();
        let names: Vec<_> = store.queries().into_iter().map(|query| query.name).collect();
        assert_eq!(names, ["other"]);
        assert!(!store.records_of(7).exists());
        store.take_in(saved(7)).unwrap();
    }

    #[test]
    fn nothing_stays_of_a_query_that_could_not_be_taken_in() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        store.add(query(6, "other")).unwrap();
        // Its records cannot be there.
        fs::create_dir_all(directory.path().join("streams/queries")).unwrap();
        fs::write(store.records_of(7), "").unwrap();
        store.take_in(saved(7)).unwrap_err();
        assert_eq!(store.query("saved"), None);
        fs::remove_file(store.records_of(7)).unwrap();
        store.take_in(saved(7)).unwrap();
    }

    #[test]
    fn a_name_that_two_ask_for_at_once_is_given_to_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        for round in 0..20_u64 {
            let barrier = std::sync::Barrier::new(2);
            let add = |job| {
                barrier.wait();
                store.add(query(job, &format!("q{round}"))).is_ok()
            };
            let added = std::thread::scope(|scope| {
                let (add, first) = (&add, round * 2 + 1);
                [scope.spawn(move || add(first)), scope.spawn(move || add(first + 1))]
                    .map(|thread| thread.join().unwrap())
            });
            assert_eq!(added.iter().filter(|added| **added).count(), 1, "round {round}");
        }
    }

    #[test]
    fn a_catalog_that_is_gone_beside_its_queries_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        store.add(query(1, "q")).unwrap();
        append(&store.survival(1).unwrap(), &record(1));
        drop(store);
        fs::remove_dir_all(directory.path().join("streams/catalog")).unwrap();
        let error = open(directory.path(), 2).unwrap_err().to_string();
        assert!(error.contains("catalog") && error.contains("it is not there"), "{error}");
        fs::remove_dir_all(directory.path().join("streams")).unwrap();
        open(directory.path(), 2).unwrap();
        let with_mark = |epoch| {
            let mark: Arc<dyn Disk> = Arc::new(OsDisk::new(directory.path().join("mark")));
            let (directory, epoch) = (directory.path().join("streams"), NodeEpoch(epoch));
            Store::open(StoreOptions { directory, epoch, high_water: Some(mark), may_commit: None })
        };
        let store = with_mark(3).unwrap();
        store.put_relation(view("v")).unwrap();
        drop(store);
        fs::remove_dir_all(directory.path().join("streams")).unwrap();
        let error = with_mark(4).unwrap_err().to_string();
        assert!(error.contains("high-water/streams"), "{error}");
    }

    #[test]
    fn a_damaged_catalog_is_refused_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        store.put_relation(view("v")).unwrap();
        store.put_relation(view("w")).unwrap();
        drop(store);
        let catalog = directory.path().join("streams/catalog");
        let files = fs::read_dir(&catalog).unwrap().map(|entry| entry.unwrap().path());
        let segment = files.filter(|path| path.to_string_lossy().contains("segment")).min().unwrap();
        let mut bytes = fs::read(&segment).unwrap();
        let place = bytes.windows(6).position(|window| window == b"VIEW v").unwrap();
        bytes[place] ^= 1;
        fs::write(&segment, bytes).unwrap();
        let error = open(directory.path(), 2).unwrap_err().to_string();
        assert!(error.contains("read the catalog of streams from") && error.contains("segment"), "{error}");
    }

    #[test]
    fn a_record_of_a_later_release_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = directory.path().join("streams/catalog");
        fs::create_dir_all(&catalog).unwrap();
        let nothing = &mut |_: Record| Ok::<(), String>(());
        let journal = Journal::open(Options::dir(&catalog), NodeEpoch(1), nothing).unwrap();
        journal.append(&[Draft { shard: 0, kind: ENTRY, payload: b"\x02{}" }]).unwrap();
        journal.close().unwrap();
        let error = open(directory.path(), 2).unwrap_err().to_string();
        assert!(error.contains("got version 2"), "{error}");
    }

    #[test]
    fn a_catalog_that_is_mostly_about_what_is_gone_is_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), 1).unwrap();
        let mut large = view("v");
        large.statement += &format!(" -- {}", "x".repeat(300 << 10));
        for _ in 0..8 {
            store.put_relation(large.clone()).unwrap();
        }
        store.put_relation(view("v")).unwrap();
        drop(store);
        drop(open(directory.path(), 2).unwrap());
        let store = open(directory.path(), 3).unwrap();
        assert_eq!(store.relations(), [view("v")]);
    }
}
