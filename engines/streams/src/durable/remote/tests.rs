use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::stream::{BoxStream, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use savanna_streams_api::ids::{QueryId, StageId};
use savanna_streams_model::time::EventTime;
use savanna_streams_runtime::LookupStore as _;
use savanna_streams_runtime::snapshot::{Chains, Part, Piece, SnapshotStore as _, State, write_state};

use super::super::stored::{Emptied, Standing};
use super::*;

/// A store whose requests fail: before they do something, behind it, or so that they do it much later.
#[derive(Debug)]
struct Store {
    objects: InMemory,
    state: Mutex<Faults>,
    /// It writes over what was to be created.
    forgets_conditions: AtomicBool,
    /// It does what it is asked for, and tells nobody.
    is_silent: AtomicBool,
    /// Before it creates something, somebody removes all that is there.
    forgets_before_next: AtomicBool,
}

#[derive(Debug)]
struct Faults {
    rng: ChaCha8Rng,
    /// Of so many requests, one fails.
    one_in: u32,
    late: Vec<(Path, PutPayload, PutOptions)>,
}

#[derive(PartialEq, Eq)]
enum Fault {
    None,
    Before,
    Behind,
    Late,
}

fn away() -> Error {
    Error::Generic { store: "the test's", source: "it is away".into() }
}

impl Store {
    fn new(seed: u64, one_in: u32) -> Arc<Self> {
        let state = Faults { rng: ChaCha8Rng::seed_from_u64(seed), one_in, late: Vec::new() };
        Arc::new(Self {
            objects: InMemory::new(),
            state: Mutex::new(state),
            forgets_conditions: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            forgets_before_next: AtomicBool::new(false),
        })
    }

    /// A fault, and a request of before whose time has come.
    fn fault(&self) -> (Fault, Option<(Path, PutPayload, PutOptions)>) {
        let Faults { rng, one_in, late } = &mut *self.state.lock();
        let comes = (!late.is_empty() && rng.random_ratio(1, 3)).then(|| late.remove(rng.random_range(0..late.len())));
        let fault = match *one_in > 0 && rng.random_ratio(1, *one_in) {
            false => Fault::None,
            true => [Fault::Before, Fault::Behind, Fault::Late].into_iter().nth(rng.random_range(0..3)).unwrap(),
        };
        (fault, comes)
    }

    fn names(&self) -> Vec<String> {
        let bucket = bucket(&(Arc::new(self.objects.fork()) as _));
        let mut names = bucket.list_behind("", "").unwrap();
        names.sort_unstable();
        names
    }

    fn names_of(&self, folder: &str) -> Vec<String> {
        let names = self.names();
        names.iter().filter_map(|name| name.strip_prefix(folder)).map(str::to_owned).collect()
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Store {
    async fn put_opts(&self, place: &Path, bytes: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        if self.forgets_before_next.swap(false, Ordering::AcqRel) {
            let all: Vec<Path> = self.objects.list(None).map_ok(|object| object.location).try_collect().await?;
            for place in all {
                self.objects.delete(&place).await?;
            }
        }
        let (fault, late) = self.fault();
        if let Some((place, bytes, options)) = late {
            // Nobody listens any more.
            drop(self.objects.put_opts(&place, bytes, options).await);
        }
        let options = match self.forgets_conditions.load(Ordering::Acquire) {
            true => PutMode::Overwrite.into(),
            false => options,
        };
        if self.is_silent.load(Ordering::Acquire) {
            return self.objects.put_opts(place, bytes, options).await.and(Err(away()));
        }
        match fault {
            Fault::None => self.objects.put_opts(place, bytes, options).await,
            Fault::Before => Err(away()),
            Fault::Behind => self.objects.put_opts(place, bytes, options).await.and(Err(away())),
            Fault::Late => {
                self.state.lock().late.push((place.clone(), bytes, options));
                Err(away())
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        unreachable!("objects are put as a whole")
    }

    async fn get_opts(&self, place: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        if self.is_silent.load(Ordering::Acquire) || self.fault().0 != Fault::None {
            Err(away())
        } else {
            self.objects.get_opts(place, options).await
        }
    }

    fn delete_stream(
        &self,
        places: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.objects.delete_stream(places)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

fn bucket(store: &Arc<dyn ObjectStore>) -> Bucket {
    Bucket::new(Arc::clone(store), Path::from("kept/q"), "s3://test/kept/q", Duration::from_secs(1)).unwrap()
}

fn query() -> StoredQuery {
    StoredQuery {
        id: QueryId { code: "0123456789ab".into(), job: 7 },
        name: "q".into(),
        statement: "INSERT INTO o SELECT a FROM t".into(),
        parameters: Vec::new(),
        settings: BTreeMap::new(),
        relations: Vec::new(),
        standing: Standing::Running,
        emission: 0,
        anew_behind: Epoch::ZERO,
        kept_in: None,
        emptied: Emptied::default(),
    }
}

fn kept(holder: &str) -> KeptIn {
    KeptIn { url: "s3://test/kept/q".into(), holder: holder.into() }
}

fn try_open(store: &Arc<Store>, holder: &str) -> Result<Opened> {
    let store = Arc::clone(store) as Arc<dyn ObjectStore>;
    open_in(&|_| Ok(bucket(&store)), &query(), &kept(holder), None, Box::new(|_| {}))
}

fn open(store: &Arc<Store>, holder: &str) -> Opened {
    try_open(store, holder).unwrap()
}

/// Opens it as processes do that begin one after the other until the store answers one in time.
fn open_at_last(store: &Arc<Store>, holder: &str) -> Opened {
    for _ in 0..100 {
        match try_open(store, holder) {
            Err(error) if error.to_string().contains("it was tried for") => (),
            outcome => return outcome.unwrap(),
        }
    }
    panic!("the store does not answer one in 100 processes");
}

fn record(epoch: u64) -> EpochRecord {
    let epoch = Epoch(epoch);
    EpochRecord {
        epoch,
        processing_time: EventTime(7),
        sources: Vec::new(),
        committed: Epoch::ZERO,
        lookups: Vec::new(),
        layout: savanna_streams_runtime::driver::Layout::default(),
    }
}

/// Appends a record, and does not wait.
fn begin(opened: &Opened, record: &EpochRecord) -> Receiver<Result<()>> {
    let (tell, told) = channel();
    opened.log.append(record, Box::new(move |outcome| drop(tell.send(outcome))));
    told
}

fn append(opened: &Opened, epoch: u64) -> Result<()> {
    begin(opened, &record(epoch)).recv().unwrap()
}

fn epochs(opened: &Opened) -> Vec<u64> {
    opened.records.iter().map(|record| record.epoch.0).collect()
}

/// What changes is little of it.
fn state(number: i64) -> State {
    static ROWS: LazyLock<Piece> = LazyLock::new(|| {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
        Piece::new(RecordBatch::try_from_iter([("n", numbers)]).unwrap())
    });
    let mut state = State { marks: BTreeMap::from([("number".to_owned(), number)]), tables: Vec::new() };
    state.put_piece("numbers", [0; 2], &ROWS);
    state
}

fn part(opened: &Opened, epoch: u64) -> Result<Part> {
    let mut write = |out: &mut dyn std::io::Write| write_state(&state(epoch as i64), out);
    Ok(Part::whole(StageId(1), 0, 1, opened.snapshots.put(Epoch(epoch), StageId(1), 0, &mut write)?))
}

fn manifest(epoch: u64, part: Part) -> Manifest {
    let (query, record) = (query().id, record(epoch));
    Manifest { query, record, rows_at: EventTime(7), signatures: vec!["panes".into()], parts: vec![part] }
}

fn snapshot(opened: &Opened, epoch: u64) -> Result<()> {
    opened.snapshots.switch(&manifest(epoch, part(opened, epoch)?))
}

/// Makes the next snapshot of a process, behind the one that counts. Tells whether it has changes.
fn next_snapshot(opened: &Opened, chains: &mut Chains, epoch: u64) -> Result<bool> {
    let state = state(epoch as i64);
    let part = chains.next((StageId(1), 0), 1, &state);
    let mut write = |out: &mut dyn std::io::Write| part.write(out);
    let file = opened.snapshots.put(Epoch(epoch), StageId(1), 0, &mut write)?;
    let mut next = Chains::default();
    next.add(part, file);
    *chains = Chains::default();
    let manifest = manifest(epoch, next.parts().next().unwrap().clone());
    opened.snapshots.switch(&manifest)?;
    *chains = next;
    Ok(manifest.has_changes())
}

fn counts(opened: &Opened) -> Option<(u64, Vec<State>)> {
    let found = opened.found.as_ref().unwrap().as_ref();
    found.map(|found| (found.manifest.record.epoch.0, found.states.clone()))
}

#[test]
fn what_was_promised_is_there_whatever_the_store_does_and_whenever_a_process_ends() {
    let (mut promised_in_all, mut snapshots_in_all, mut changes_in_all, mut unknown) = (0, 0, 0, 0);
    for seed in 0..40 {
        let (store, mut dice) = (Store::new(seed, 5), ChaCha8Rng::seed_from_u64(seed));
        // What every later process must find: the last record, from where on they are needed, and the snapshot that counts.
        let (mut promised, mut needed, mut switched) = (0, 1, 0);
        for _ in 0..6 {
            let opened = open_at_last(&store, "a");
            let found = epochs(&opened);
            let last = found.last().copied().unwrap_or(needed - 1);
            assert!(last >= promised, "seed {seed}: {found:?}, and {promised} was promised");
            let first = found.first().copied().unwrap_or(last + 1);
            assert!(
                first <= needed && found == (first..=last).collect::<Vec<_>>(),
                "seed {seed}: {found:?}, from {needed}"
            );
            let counting = counts(&opened).map_or(0, |(epoch, states)| {
                assert_eq!(states, [state(epoch as i64)], "seed {seed}");
                epoch
            });
            assert!(counting >= switched, "seed {seed}: {counting} counts, and {switched} was promised");
            (promised, switched) = (last, counting);
            let (mut chains, mut tried) = (Chains::default(), switched);
            for _ in 0..dice.random_range(0..12) {
                match dice.random_range(0..4) {
                    0 if promised > tried => {
                        tried = promised;
                        if let Ok(has_changes) = next_snapshot(&opened, &mut chains, promised) {
                            (switched, snapshots_in_all) = (promised, snapshots_in_all + 1);
                            changes_in_all += i32::from(has_changes);
                        }
                    }
                    1 => {
                        needed = needed.max(promised.saturating_sub(2));
                        opened.log.forget_before(Epoch(needed));
                    }
                    _ if append(&opened, promised + 1).is_ok() => {
                        (promised, promised_in_all) = (promised + 1, promised_in_all + 1);
                    }
                    _ => unknown += 1,
                }
            }
            // The process ends while it writes one more.
            drop(begin(&opened, &record(promised + 1)));
            if dice.random_ratio(2, 3) {
                (opened.log.give_up)();
            }
        }
    }
    assert!(
        promised_in_all > 300 && snapshots_in_all > 50 && changes_in_all > 10,
        "{promised_in_all} records, {snapshots_in_all} snapshots, {changes_in_all} of them changes, {unknown} unknown"
    );
}

#[test]
fn a_snapshot_does_not_count_that_names_an_object_that_is_gone_and_one_that_is_whole_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for gone in ["1-1-1-0", "1-2-1-0"] {
        let store = Store::new(1, 0);
        let opened = open(&store, "a");
        let mut chains = Chains::default();
        for epoch in 1..=2 {
            append(&opened, epoch).unwrap();
            assert_eq!(next_snapshot(&opened, &mut chains, epoch).unwrap(), epoch == 2);
        }
        runtime.block_on(store.objects.delete(&Path::from(format!("kept/q/snapshots/{gone}")))).unwrap();
        append(&opened, 3).unwrap();
        let error = next_snapshot(&opened, &mut chains, 3).unwrap_err().to_string();
        assert!(error.contains(&format!("expected the file {gone}, which it names, and it is gone")), "{error}");
        opened.snapshots.tidy();
        assert!(!store.names_of("snapshots/").contains(&"1-3-1-0".to_owned()), "what was given up goes");
        append(&opened, 4).unwrap();
        assert!(!next_snapshot(&opened, &mut chains, 4).unwrap(), "it is whole");
        assert_eq!(counts(&open(&store, "a")), Some((4, vec![state(4)])), "{gone}");
    }
}

#[test]
fn all_files_of_a_snapshot_with_changes_stay_while_it_counts() {
    let store = Store::new(1, 0);
    let opened = open(&store, "a");
    let mut chains = Chains::default();
    for epoch in 1..=2 {
        append(&opened, epoch).unwrap();
        assert_eq!(next_snapshot(&opened, &mut chains, epoch).unwrap(), epoch == 2);
    }
    part(&opened, 3).unwrap();
    opened.snapshots.tidy();
    assert_eq!(store.names_of("snapshots/"), ["1-1-1-0", "1-2-1-0"]);
    // Builds that know of no changes refuse the claim that names some, and read those without.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let version = |name: &String| {
        let place = Path::from(format!("kept/q/log/{name}"));
        runtime.block_on(async { store.objects.get(&place).await.unwrap().bytes().await.unwrap() })[4]
    };
    assert_eq!(store.names_of("log/").iter().map(version).collect::<Vec<_>>(), [1, 1, 1, 1, 2]);
    let later = open(&store, "a");
    assert_eq!(counts(&later), Some((2, vec![state(2)])));
    assert_eq!(store.names_of("snapshots/").len(), 2);
    append(&later, 3).unwrap();
    assert!(!next_snapshot(&later, &mut Chains::default(), 3).unwrap(), "all that is new is whole");
    assert_eq!(store.names_of("snapshots/").len(), 1);
}

#[test]
fn a_former_process_records_nothing_switches_nothing_and_removes_nothing_of_its_successors() {
    let store = Store::new(1, 0);
    let former = open(&store, "a");
    append(&former, 1).unwrap();
    snapshot(&former, 1).unwrap();
    let late = part(&former, 2).unwrap();
    let later = open(&store, "a");
    assert_eq!((epochs(&later), counts(&later)), (vec![1], Some((1, vec![state(1)]))));
    append(&later, 2).unwrap();
    later.lookups.put(0, &state(3)).unwrap();
    // It has not heard of the other one yet, and takes away what it does not know.
    former.snapshots.tidy();
    former.lookups.keep_only(0, &[].into());
    // What it wrote before is gone; what it writes now counts as little.
    let refused = |part: Part| former.snapshots.switch(&manifest(2, part)).unwrap_err().to_string();
    assert!(refused(late).contains("expected the file 1-2-1-0, which it names, and it is gone"));
    assert!(refused(part(&former, 2).unwrap()).contains("another process has taken"));
    former.snapshots.tidy();
    assert!(
        append(&former, 2).unwrap_err().to_string().contains("another process has taken the query in s3://test/kept/q")
    );
    former.log.forget_before(Epoch(9));
    drop(former);
    let last = open(&store, "a");
    assert_eq!((epochs(&last), counts(&last)), (vec![1, 2], Some((1, vec![state(1)]))));
    assert_eq!(last.lookups.read(0, 1).unwrap(), state(3));
}

#[test]
fn whoever_does_not_know_what_counts_removes_nothing_and_writes_nothing_more() {
    let store = Store::new(1, 0);
    let opened = open(&store, "a");
    append(&opened, 1).unwrap();
    snapshot(&opened, 1).unwrap();
    append(&opened, 2).unwrap();
    let next = part(&opened, 2).unwrap();
    store.is_silent.store(true, Ordering::Release);
    let error = opened.snapshots.switch(&manifest(2, next)).unwrap_err().to_string();
    assert!(error.contains("it was tried for"), "{error}");
    store.is_silent.store(false, Ordering::Release);
    // As the query does when a snapshot could not be made.
    opened.snapshots.tidy();
    assert_eq!(append(&opened, 3).unwrap_err().to_string(), error);
    drop(opened);
    assert_eq!(counts(&open(&store, "a")), Some((2, vec![state(2)])));
}

#[test]
fn another_node_goes_on_only_if_it_is_told_to_and_then_the_former_one_does_not() {
    let store = Store::new(1, 0);
    append(&open(&store, "a"), 1).unwrap();
    let refused = |holder: &str| match try_open(&store, holder) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{holder} has opened it"),
    };
    assert!(refused("b").contains("has a query that another node has taken"), "{}", refused("b"));
    let dynamic = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let (former, there) = (open(&store, "a"), bucket(&dynamic));
    let run = || found(&there, look(&there).unwrap().0).unwrap().claim.unwrap().token;
    let error = claim(&there, &query(), &kept("b"), Whom::Run("another")).err().unwrap().to_string();
    assert!(error.contains("another node has taken"), "{error}");
    claim(&there, &query(), &kept("b"), Whom::Run(&run())).unwrap();
    assert!(append(&former, 2).is_err());
    assert_eq!(epochs(&open(&store, "b")), [1]);
    assert!(refused("a").contains("RESUME QUERY FROM SAVEPOINT"), "{}", refused("a"));
    // It may forget it, which takes nothing away.
    forget_in(&there, &kept("a")).unwrap();
    assert_eq!(epochs(&open(&store, "b")), [1]);
    forget_in(&there, &kept("b")).unwrap();
    assert_eq!(store.names(), [""; 0]);
}

#[test]
fn what_is_somebody_elses_stays_and_queries_are_found_by_their_folder_or_their_name() {
    let store = Store::new(1, 0);
    append(&open(&store, "a"), 1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let put = |name: &str| {
        runtime.block_on(store.objects.put(&Path::from(format!("kept/q/{name}")), PutPayload::default())).unwrap();
    };
    let others = ["log/7", "log/readme", "other/log/00000000000000000001", "part-abc-1.csv", "snapshots/1-2-3"];
    others.iter().for_each(|name| put(name));
    let dynamic = Arc::clone(&store) as Arc<dyn ObjectStore>;
    let folder = |path: &str| {
        Bucket::new(Arc::clone(&dynamic), Path::from(path), &format!("s3://test/{path}"), Duration::from_secs(1))
    };
    let at = |url: &str| folder(url.strip_prefix("s3://test/").unwrap());
    let kept_in = |url: &str| kept_in(&at(url)?, url, &at).map(|kept| kept.map(|kept| (kept.query.name, kept.url)));
    let expected = Some(("q".to_owned(), "s3://test/kept/q".to_owned()));
    assert_eq!(kept_in("s3://test/kept/q").unwrap(), expected);
    assert_eq!(kept_in("s3://test/kept").unwrap(), None, "that is no folder of a name");
    forget_in(&bucket(&dynamic), &kept("a")).unwrap();
    assert_eq!(store.names(), others);
    // By their name, of which there may have been others.
    let open_as = |job: &str| {
        let path = format!("kept/named/17000000000{job}");
        open_in(&|_| folder(&path), &query(), &kept("a"), None, Box::new(|_| {})).unwrap()
    };
    append(&open_as("07"), 1).unwrap();
    let expected = Some(("q".to_owned(), "s3://test/kept/named/1700000000007".to_owned()));
    assert_eq!(kept_in("s3://test/kept/named").unwrap(), expected);
    // A former process of one that is forgotten writes late; and a table may be written to the same folder.
    runtime.block_on(async {
        let late = format!("kept/named/1700000000005/{}", name_of(9));
        for name in [late.as_str(), "kept/named/20260101/part-a-1.csv", "kept/named/part-a-2.csv"] {
            store.objects.put(&Path::from(name), PutPayload::default()).await.unwrap();
        }
    });
    assert_eq!(kept_in("s3://test/kept/named").unwrap(), expected);
    append(&open_as("08"), 1).unwrap();
    let error = kept_in("s3://test/kept/named").unwrap_err().to_string();
    assert!(
        error.contains("has several queries: s3://test/kept/named/1700000000007, s3://test/kept/named/1700000000008"),
        "{error}"
    );
}

/// A bucket of the folder of a name, and one of a query in it.
fn of_name(store: &Arc<Store>) -> (Bucket, impl Fn(&str) -> Result<Bucket>) {
    let dynamic = Arc::clone(store) as Arc<dyn ObjectStore>;
    let at = move |url: &str| {
        let path = url.strip_prefix("s3://test/").unwrap_or(url);
        Bucket::new(Arc::clone(&dynamic), Path::from(path), &format!("s3://test/{path}"), Duration::from_secs(1))
    };
    (at("kept/named").unwrap(), at)
}

#[test]
fn what_came_late_of_a_former_query_makes_its_name_unusable_for_nobody() {
    let store = Store::new(1, 0);
    let (named, at) = of_name(&store);
    let job = at("kept/named/1700000000005").unwrap();
    let url = "s3://test/kept/named";
    assert!(create(&job, 9, &Entry::Record { owner: 1, record: record(4) }).unwrap());
    assert_eq!(living_in(&named, url, &at).unwrap(), None);
    let error = kept_in(&named, url, &at).err().unwrap().to_string();
    assert!(error.contains("expected a claim among the entries up to 9"), "{error}");
    // Its own node may take it away.
    forget_in(&job, &kept("a")).unwrap();
    assert_eq!(bucket_names(&job), [""; 0]);
    assert!(kept_in(&named, url, &at).unwrap().is_none());
}

fn bucket_names(bucket: &Bucket) -> Vec<String> {
    bucket.list_behind("", "").unwrap()
}

#[test]
fn what_else_lies_in_the_folder_of_a_name_is_hardly_listed() {
    let store = Store::new(1, 0);
    let (named, at) = of_name(&store);
    let put = |name: String| named.create(&name, &Bytes::new()).unwrap();
    for number in 0..3_000 {
        put(format!("part-a-{number}.csv"));
        put(format!("log/part-a-{number}.csv"));
    }
    let other = at("kept/named/1700000000007").unwrap();
    claim(&other, &query(), &kept("a"), Whom::Ourselves).unwrap();
    assert!(living_in(&named, "s3://test/kept/named", &at).unwrap().unwrap().ends_with("/1700000000007"));
    assert_eq!(jobs(&named).unwrap(), [1_700_000_000_007]);
    // What else begins with digits is any number of folders and objects.
    for number in 0..2 * NAMES_AT_ONCE {
        put(format!("{}/a", 20_000_000 + number));
        put(format!("{}-a.parquet", 20_000_000 + number));
        put(format!("1700000000007/part-{number}"));
    }
    assert_eq!(jobs(&named).unwrap(), [1_700_000_000_007]);
    (0..QUERIES_MAX).for_each(|number| drop(put(format!("{}/a", 1_700_000_000_008 + number))));
    let error = jobs(&named).unwrap_err().to_string();
    assert!(error.contains("at most 1000 queries") && error.contains("'query.store'"), "{error}");
}

#[test]
fn whether_a_name_is_free_is_not_known_while_a_store_does_not_answer() {
    let (store, url) = (Store::new(1, 0), "s3://test/kept/named");
    let (named, at) = of_name(&store);
    let job = at("kept/named/1700000000007").unwrap();
    claim(&job, &query(), &kept("a"), Whom::Ourselves).unwrap();
    store.is_silent.store(true, Ordering::Release);
    let told = living_in(&named, url, &at);
    assert!(matches!(told, Err(StreamError::Io { .. })), "{told:?}");
    store.is_silent.store(false, Ordering::Release);
    assert!(living_in(&named, url, &at).unwrap().unwrap().ends_with("/1700000000007"));
}

#[test]
fn a_query_that_is_forgotten_while_it_is_taken_over_is_not_taken_over() {
    let store = Store::new(1, 0);
    append(&open(&store, "a"), 1).unwrap();
    let there = bucket(&(Arc::clone(&store) as _));
    let run = found(&there, look(&there).unwrap().0).unwrap().claim.unwrap().token;
    // Between looking and claiming.
    store.forgets_before_next.store(true, Ordering::Release);
    let error = claim(&there, &query(), &kept("b"), Whom::Run(&run)).err().unwrap().to_string();
    assert!(error.contains("another node has taken"), "{error}");
    assert_eq!(store.names(), [""; 0], "and nothing is left of the attempt");
}

#[test]
fn a_bucket_is_told_again_only_where_it_says_something_else() {
    let store = Store::new(1, 0);
    let there = bucket(&(Arc::clone(&store) as _));
    tell_in(&there, &query(), &kept("a")).unwrap();
    assert_eq!(store.names(), [""; 0], "what is forgotten stays so");
    drop(open(&store, "a"));
    let names = store.names();
    tell_in(&there, &query(), &kept("a")).unwrap();
    let other = StoredQuery { statement: "INSERT INTO o SELECT b FROM t".into(), ..query() };
    tell_in(&there, &other, &kept("b")).unwrap();
    assert_eq!(store.names(), names);
    tell_in(&there, &other, &kept("a")).unwrap();
    assert_eq!(found(&there, look(&there).unwrap().0).unwrap().claim.unwrap().query, text_of(&other).unwrap());
}

#[test]
fn what_has_ended_is_nobodys_also_where_it_was_not_removed() {
    let store = Store::new(1, 0);
    let opened = open(&store, "a");
    append(&opened, 1).unwrap();
    snapshot(&opened, 1).unwrap();
    drop(opened);
    let there = bucket(&(Arc::clone(&store) as _));
    let found = found(&there, look(&there).unwrap().0).unwrap();
    let log = StoreLog::new(&found, found.last, found.claim.clone().unwrap());
    assert!(create(&there, log.next(), &log.ended()).unwrap());
    let opened = open(&store, "b");
    assert_eq!((epochs(&opened), counts(&opened)), (vec![], None));
    assert_eq!(store.names_of("snapshots/"), [""; 0], "those of the former query are of no use");
}

#[test]
fn what_counts_no_more_goes() {
    let store = Store::new(1, 0);
    let opened = open(&store, "a");
    for version in 1..=3 {
        assert_eq!(opened.lookups.put(0, &state(version)).unwrap(), version as u64);
    }
    for epoch in 1..=200 {
        let record = EpochRecord { lookups: vec![epoch.min(3)], ..record(epoch) };
        begin(&opened, &record).recv().unwrap().unwrap();
    }
    snapshot(&opened, 100).unwrap();
    snapshot(&opened, 200).unwrap();
    opened.log.forget_before(Epoch(201));
    append(&opened, 201).unwrap();
    assert_eq!(store.names_of("snapshots/").len(), 1);
    assert_eq!(store.names_of("lookups/"), ["0-3"]);
    assert!(store.names_of("log/").len() <= 4, "{:?}", store.names_of("log/"));
    drop(opened);
    let opened = open(&store, "a");
    assert_eq!((epochs(&opened), counts(&opened)), (vec![201], Some((200, vec![state(200)]))));
}

#[test]
fn what_is_damaged_or_missing_is_refused_with_its_place() {
    let store = Store::new(1, 0);
    let opened = open(&store, "a");
    append(&opened, 1).unwrap();
    append(&opened, 2).unwrap();
    snapshot(&opened, 2).unwrap();
    let name = part(&opened, 2).unwrap().name;
    drop(opened);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let place = |name: &str| Path::from(format!("kept/q/{name}"));
    let overwrite = |name: &str, bytes: &[u8]| {
        runtime.block_on(store.objects.put(&place(name), PutPayload::from(bytes.to_vec()))).unwrap();
    };
    let bytes = |name: &str| {
        runtime.block_on(async { store.objects.get(&place(name)).await.unwrap().bytes().await.unwrap() }).to_vec()
    };
    let of_part = format!("snapshots/{name}");
    let good = bytes(&of_part);
    let mut bad = good.clone();
    bad[9] ^= 1;
    overwrite(&of_part, &bad);
    let error = open(&store, "a").found.unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("it is damaged"), "{error}");
    overwrite(&of_part, &good);
    assert_eq!(counts(&open(&store, "a")).unwrap().0, 2);
    let second = name_of(3);
    let good = bytes(&second);
    let mut bad = good.clone();
    bad[9] ^= 1;
    overwrite(&second, &bad);
    let refused = || try_open(&store, "a").err().unwrap().to_string();
    assert!(refused().contains(&second) && refused().contains("it is damaged"), "{}", refused());
    runtime.block_on(store.objects.delete(&place(&second))).unwrap();
    assert!(refused().contains("but 3 is not there"), "{}", refused());
}

#[test]
fn a_store_that_writes_over_what_was_to_be_created_is_refused() {
    let store = Store::new(1, 0);
    store.forgets_conditions.store(true, Ordering::Release);
    let error = try_open(&store, "a").err().unwrap().to_string();
    assert!(error.contains("does not honour `If-None-Match: *`"), "{error}");
}

/// The bytes that the first release with them wrote.
#[test]
fn entries_of_version_1_are_read() {
    let bytes = |record: &[u8]| [&crc32c::crc32c(record).to_le_bytes(), record].concat();
    let there = bucket(&(Store::new(1, 0) as _));
    let read = |record: &[u8]| entry(&there, 1, &bytes(record)).unwrap();
    let claim = b"\x01{\"claim\":{\"owner\":1,\"holder\":\"a\",\"token\":\"t\",\"first\":1,\"claims\":[1],\"snapshot\":null,\"query\":\"{}\"}}";
    assert!(matches!(read(claim), Entry::Claim(claim) if claim.owner == 1 && claim.claims == [1]));
    let record =
        b"\x01{\"record\":{\"owner\":1,\"record\":{\"epoch\":5,\"processing_time\":7,\"sources\":[],\"committed\":5}}}";
    assert!(matches!(read(record), Entry::Record { owner: 1, record } if record.epoch == Epoch(5)));
    assert_eq!(read(b"\x01{\"ended\":{\"owner\":1}}"), Entry::Ended { owner: 1 });
}

/// The bytes that the first release with changes wrote.
#[test]
fn claims_of_version_2_are_read() {
    let record = b"\x02{\"claim\":{\"owner\":1,\"holder\":\"a\",\"token\":\"t\",\"first\":1,\"claims\":[1],\"snapshot\":{\"query\":{\
        \"code\":\"0123456789ab\",\"job\":7},\"record\":{\"epoch\":5,\"processing_time\":7,\"sources\":[],\"committed\":5},\"rows_at\":7,\
        \"signatures\":[\"panes\"],\"parts\":[{\"stage\":1,\"shuffle\":0,\"members\":1,\"name\":\"1-4-1-0\",\"bytes\":3,\"checksum\":4,\
        \"changes\":[{\"name\":\"1-5-1-0\",\"bytes\":5,\"checksum\":6}],\"gives\":9}]},\"query\":\"{}\"}}";
    let bytes = [&crc32c::crc32c(record).to_le_bytes(), record.as_slice()].concat();
    let Entry::Claim(claim) = entry(&bucket(&(Store::new(1, 0) as _)), 1, &bytes).unwrap() else {
        panic!("it is a claim");
    };
    let manifest = claim.snapshot.as_ref().unwrap();
    assert_eq!(manifest.files().map(|file| file.name).collect::<Vec<_>>(), ["1-4-1-0", "1-5-1-0"]);
    assert_eq!(manifest.parts[0].gives, Some(9));
    // What is written now has the same form.
    assert_eq!(encode_with(Some(manifest), &Entry::Claim(claim.clone())).unwrap(), record);
}
