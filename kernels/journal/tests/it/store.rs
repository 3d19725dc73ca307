//! The object store as the back end, with requests that fail, get lost or are sent twice.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{Arc, Mutex, mpsc},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use savanna_epoch::NodeEpoch;
use savanna_journal::{Filter, Journal, JournalError, Lsn, Options, Record, SealedLog, seal};
use tokio::sync::oneshot;

use crate::history::{History, append, drafts, open, wait};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused.
    Refused,
    /// It is done, but the answer is an error.
    AnswerLost,
    /// It is done, and then sent again.
    SentTwice,
    /// A put is refused as if something were there, as stores do while they carry out another.
    Conflict,
}

/// Bytes of an object without records.
const HEADER: usize = 72;

type Hook = Box<dyn FnOnce() + Send>;

/// A store in memory whose requests can be made to fail.
#[derive(Default)]
pub(crate) struct Flaky {
    pub(crate) inner: InMemory,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requests: u64,
    faults: BTreeMap<u64, Fault>,
    before_next_put: Option<Hook>,
    /// Whether objects with records wait on their way.
    holds: bool,
    refuses_removals: bool,
    held: Vec<Held>,
}

/// A put on its way. Its sender may be gone.
pub(crate) struct Held {
    path: Path,
    payload: PutPayload,
    options: PutOptions,
    answer: Option<oneshot::Sender<Result<PutResult>>>,
    outcome: Option<Result<PutResult>>,
}

impl Held {
    pub(crate) fn has_landed(&self) -> bool {
        self.outcome.is_some()
    }

    /// It arrives.
    pub(crate) fn land(&mut self, store: &Flaky) {
        let put = store.inner.put_opts(&self.path, self.payload.clone(), self.options.clone());
        self.outcome = Some(futures::executor::block_on(put));
    }

    /// The same request, of which nobody hears.
    pub(crate) fn copy(&self) -> Self {
        let (path, payload, options) = (self.path.clone(), self.payload.clone(), self.options.clone());
        Self { path, payload, options, answer: None, outcome: None }
    }

    /// Its sender hears what became of it, or that this is not known.
    pub(crate) fn answer(mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| Err(refused()));
        if let Some(answer) = self.answer.take() {
            drop(answer.send(outcome));
        }
    }
}

impl Flaky {
    /// From now on, objects with records wait on their way.
    pub(crate) fn hold(&self) {
        self.state.lock().expect("not poisoned").holds = true;
    }

    /// Waits until so many puts are on their way, and takes them, in the order of their numbers.
    pub(crate) fn take_held(&self, count: usize) -> Vec<Held> {
        loop {
            let mut state = self.state.lock().expect("not poisoned");
            if state.held.len() >= count {
                let mut held = std::mem::take(&mut state.held);
                held.sort_by(|one, other| one.path.cmp(&other.path));
                return held;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn fail(&self, nth: u64, fault: Fault) {
        let mut state = self.state.lock().expect("not poisoned");
        let at = state.requests + nth;
        state.faults.insert(at, fault);
    }

    fn refuse_removals(&self, refuses: bool) {
        self.state.lock().expect("not poisoned").refuses_removals = refuses;
    }

    pub(crate) fn forget_faults(&self) {
        self.state.lock().expect("not poisoned").faults.clear();
    }

    fn requests(&self) -> u64 {
        self.state.lock().expect("not poisoned").requests
    }

    /// Keeps a put on its way, if it has records.
    fn held(
        &self,
        path: &Path,
        payload: &PutPayload,
        options: &PutOptions,
    ) -> Option<oneshot::Receiver<Result<PutResult>>> {
        let mut state = self.state.lock().expect("not poisoned");
        if !state.holds || payload.content_length() <= HEADER {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let (path, payload, options) = (path.clone(), payload.clone(), options.clone());
        state.held.push(Held { path, payload, options, answer: Some(answer), outcome: None });
        Some(answered)
    }

    fn begin(&self) -> Option<Fault> {
        let mut state = self.state.lock().expect("not poisoned");
        state.requests += 1;
        let request = state.requests;
        state.faults.remove(&request)
    }

    pub(crate) fn before_next_put(&self, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().expect("not poisoned").before_next_put = Some(Box::new(hook));
    }

    /// The paths of all objects.
    pub(crate) fn objects(&self) -> Vec<Path> {
        let listed = futures::executor::block_on(self.inner.list(None).try_collect::<Vec<_>>()).expect("listed");
        let mut paths: Vec<Path> = listed.into_iter().map(|object| object.location).collect();
        paths.sort();
        paths
    }

    fn read(&self, path: &Path) -> Bytes {
        futures::executor::block_on(async { self.inner.get(path).await.expect("there").bytes().await }).expect("read")
    }

    fn write(&self, path: &Path, bytes: Vec<u8>) {
        futures::executor::block_on(self.inner.put(path, bytes.into())).expect("written");
    }

    fn duplicate(&self) -> Arc<Self> {
        let copy = Self::new();
        for path in self.objects() {
            copy.write(&path, self.read(&path).to_vec());
        }
        copy
    }
}

fn refused() -> Error {
    Error::Generic { store: "Flaky", source: "simulated failure".into() }
}

impl fmt::Debug for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flaky")
    }
}

impl fmt::Display for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a flaky store")
    }
}

#[async_trait]
impl ObjectStore for Flaky {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let hook = self.state.lock().expect("not poisoned").before_next_put.take();
        if let Some(hook) = hook {
            hook();
        }
        if let Some(answer) = self.held(path, &payload, &options) {
            return answer.await.unwrap_or_else(|_| Err(refused()));
        }
        let fault = self.begin();
        if fault == Some(Fault::Refused) {
            return Err(refused());
        }
        if fault == Some(Fault::Conflict) {
            return Err(Error::AlreadyExists { path: path.to_string(), source: "simulated conflict".into() });
        }
        let done = self.inner.put_opts(path, payload.clone(), options.clone()).await?;
        match fault {
            Some(Fault::SentTwice) => self.inner.put_opts(path, payload, options).await,
            Some(_) => Err(refused()),
            None => Ok(done),
        }
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        match self.begin() {
            Some(_) => Err(refused()),
            None => self.inner.get_opts(path, options).await,
        }
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        if self.state.lock().expect("not poisoned").refuses_removals {
            return futures::stream::iter([Err(refused())]).boxed();
        }
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.begin() {
            Some(_) => futures::stream::iter([Err(refused())]).boxed(),
            None => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

pub(crate) fn at(store: &Arc<Flaky>) -> Options {
    let store: Arc<dyn ObjectStore> = Arc::clone(store) as Arc<dyn ObjectStore>;
    Options::store(store, "tenants/a").linger(std::time::Duration::ZERO).put_time(std::time::Duration::ZERO)
}

fn append_durably(journal: &Journal, history: &mut History, records: usize) -> std::result::Result<Lsn, JournalError> {
    let (group, payloads) = history.next_group(records, 100);
    let lsn = journal.append(&drafts(&payloads))?;
    wait(journal, lsn)?;
    history.tell(group, lsn);
    Ok(lsn)
}

#[test]
fn what_was_appended_is_replayed() {
    let store = Flaky::new();
    let mut history = History::default();
    for epoch in 1..6 {
        let (journal, records) = open(at(&store), epoch).expect("opened");
        history.check(&records, Lsn(1)).expect("the log");
        for records in 1..8 {
            append_durably(&journal, &mut history, records).expect("durable");
        }
        journal.close().expect("closed");
    }
    assert_eq!(history.told(), 35);
    let (journal, records) = open(at(&store), 6).expect("opened");
    history.check(&records, Lsn(1)).expect("the log");
    assert_eq!(journal.appended(), Lsn(5 * 28));
}

#[tokio::test]
async fn it_opens_and_closes_inside_of_a_task() {
    let store = Flaky::new();
    let (journal, _) = open(at(&store), 1).expect("opened");
    let lsn = append(&journal, b"x").expect("accepted");
    journal.wait_durable(lsn).await.expect("durable");
    drop(journal);
    assert_eq!(open(at(&store), 2).expect("opened").1.len(), 1);
}

#[test]
fn appends_wait_for_company_and_become_one_object() {
    let store = Flaky::new();
    let (journal, _) = open(at(&store).linger(std::time::Duration::from_secs(3600)), 1).expect("opened");
    for _ in 0..100 {
        append(&journal, b"x").expect("accepted");
    }
    journal.close().expect("closed");
    assert_eq!(journal.stats().flushes, 1);
    assert_eq!(store.objects().len(), 2, "the one that began the term, and the batch");
}

#[test]
fn each_object_is_a_request_for_whoever_reads_the_log() {
    let store = Flaky::new();
    let (journal, _) = open(at(&store), 1).expect("opened");
    for _ in 0..3 {
        wait(&journal, append(&journal, b"x").expect("accepted")).expect("durable");
    }
    assert_eq!(journal.read_cost(), journal.stats().bytes + 3 * (32 << 10));
    let folder = tempfile::tempdir().expect("a directory");
    let (journal, _) = open(Options::dir(folder.path()), 1).expect("opened");
    wait(&journal, append(&journal, b"x").expect("accepted")).expect("durable");
    assert_eq!(journal.read_cost(), journal.stats().bytes);
}

#[test]
fn of_two_writers_the_older_is_fenced() {
    let store = Flaky::new();
    let (older, _) = open(at(&store), 1).expect("opened");
    wait(&older, append(&older, b"told").expect("accepted")).expect("durable");
    let (newer, records) = open(at(&store), 2).expect("taken over");
    assert_eq!(records.len(), 1);
    let late = append(&older, b"late").expect("buffered");
    let (told, heard) = mpsc::channel();
    older.gate().hold(late, move |outcome| told.send(outcome).expect("heard"));
    let error = heard.recv().expect("answered").expect_err("fenced");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(1), theirs: NodeEpoch(2) }), "{error}");
    wait(&newer, append(&newer, b"newer").expect("accepted")).expect("durable");
    assert!(matches!(open(at(&store), 1), Err(JournalError::Fenced { .. })));
    let (_, records) = open(at(&store), 2).expect("a second opening under one epoch");
    assert_eq!(records.len(), 2);
    let error = wait(&newer, append(&newer, b"late").expect("buffered")).expect_err("fenced");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(2), theirs: NodeEpoch(2) }), "{error}");
}

#[test]
fn an_owner_that_wakes_up_after_truncations_is_still_fenced() {
    let store = Flaky::new();
    let mut history = History::default();
    let (older, _) = open(at(&store), 1).expect("opened");
    append_durably(&older, &mut history, 3).expect("durable");
    for epoch in 2..4 {
        let (newer, _) = open(at(&store), epoch).expect("taken over");
        for _ in 0..10 {
            append_durably(&newer, &mut history, 1).expect("durable");
        }
        newer.truncate_before(newer.durable().next()).expect("accepted");
        newer.close().expect("closed");
    }
    assert!(store.objects().len() <= 6, "{:?}", store.objects());
    let error = wait(&older, append(&older, b"late").expect("buffered")).expect_err("fenced");
    assert!(matches!(error, JournalError::Fenced { theirs: NodeEpoch(2), .. }), "{error}");
    let (journal, records) = open(at(&store), 4).expect("opened");
    assert!(records.is_empty(), "all was truncated");
    assert_eq!(append(&journal, b"x").expect("accepted"), Lsn(24));
}

#[test]
fn an_opening_that_the_owner_overtakes_and_truncates_under_still_fences_it() {
    let store = Flaky::new();
    let history = Arc::new(Mutex::new(History::default()));
    let (owner, _) = open(at(&store), 1).expect("opened");
    let owner = Arc::new(owner);
    append_durably(&owner, &mut history.lock().expect("not poisoned"), 1).expect("durable");
    {
        // The next opening has listed the log and is about to put its fence.
        let (owner, history, objects) = (Arc::clone(&owner), Arc::clone(&history), Arc::clone(&store));
        store.before_next_put(move || {
            for _ in 0..10 {
                append_durably(&owner, &mut history.lock().expect("not poisoned"), 1).expect("durable");
            }
            owner.truncate_before(Lsn(9)).expect("accepted");
            append_durably(&owner, &mut history.lock().expect("not poisoned"), 1).expect("durable");
            while objects.objects().len() > 6 {
                std::thread::yield_now();
            }
        });
    }
    let (newer, records) = open(at(&store), 2).expect("taken over");
    let mut history = history.lock().expect("not poisoned");
    history.check(&records, Lsn(9)).expect("the log");
    let error = wait(&owner, append(&owner, b"late").expect("buffered")).expect_err("fenced");
    assert!(matches!(error, JournalError::Fenced { .. }), "{error}");
    append_durably(&newer, &mut history, 2).expect("durable");
    drop(newer);
    let (_, records) = open(at(&store), 3).expect("opened");
    history.check(&records, Lsn(9)).expect("the log");
}

/// Lets another owner open the log under `epoch` before the next object is put.
fn overtake(store: &Arc<Flaky>, epoch: u64) -> Arc<Mutex<Option<Journal>>> {
    let other = Arc::new(Mutex::new(None));
    let (log, opened) = (Arc::clone(store), Arc::clone(&other));
    store.before_next_put(move || {
        *opened.lock().expect("not poisoned") = Some(open(at(&log), epoch).expect("opened").0);
    });
    other
}

#[test]
fn of_two_that_put_their_fence_under_one_number_one_has_opened() {
    let store = Flaky::new();
    let other = overtake(&store, 3);
    let error = open(at(&store), 2).map(|_| ()).expect_err("refused");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(2), theirs: NodeEpoch(3) }), "{error}");
    let winner = other.lock().expect("not poisoned").take().expect("opened");
    wait(&winner, append(&winner, b"told").expect("accepted")).expect("durable");
}

#[test]
fn of_two_that_open_under_one_epoch_at_once_one_is_fenced() {
    let store = Flaky::new();
    let other = overtake(&store, 5);
    let (winner, _) = open(at(&store), 5).expect("opened after the other");
    let other = other.lock().expect("not poisoned").take().expect("opened");
    let error = wait(&other, append(&other, b"late").expect("buffered")).expect_err("fenced");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(5), theirs: NodeEpoch(5) }), "{error}");
    wait(&winner, append(&winner, b"told").expect("accepted")).expect("durable");
}

#[test]
fn a_truncation_that_meets_the_fence_of_another_owner_removes_nothing() {
    let store = Flaky::new();
    let mut history = History::default();
    let (older, _) = open(at(&store), 1).expect("opened");
    for _ in 0..3 {
        append_durably(&older, &mut history, 1).expect("durable");
    }
    let newer = overtake(&store, 2);
    older.truncate_before(Lsn(4)).expect("accepted");
    let error = older.close().expect_err("it was taken over");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(1), theirs: NodeEpoch(2) }), "{error}");
    let mut newer = newer.lock().expect("not poisoned");
    append_durably(newer.as_ref().expect("opened"), &mut history, 1).expect("durable");
    drop(newer.take());
    let (_, records) = open(at(&store), 3).expect("opened");
    assert_eq!(records.len(), 4);
    history.check(&records, Lsn(1)).expect("the log");
}

#[test]
fn a_newest_object_that_vanishes_while_the_log_is_opened_is_missed() {
    let store = Flaky::new();
    let (journal, _) = open(at(&store), 1).expect("opened");
    wait(&journal, append(&journal, b"told").expect("accepted")).expect("durable");
    drop(journal);
    let newest = store.objects().pop().expect("there");
    let log = Arc::clone(&store);
    store.before_next_put(move || futures::executor::block_on(log.inner.delete(&newest)).expect("deleted"));
    let error = open(at(&store), 2).map(|_| ()).expect_err("a hole");
    assert!(matches!(error, JournalError::Missing { needed: Lsn(1), first: Lsn(2), .. }), "{error}");
}

/// Opens, appends, truncates, opens again; what was told, and how far it was truncated.
fn script(store: &Arc<Flaky>) -> (History, Lsn) {
    let mut history = History::default();
    let mut truncated = Lsn(1);
    for epoch in 1..=3 {
        let Ok((journal, records)) = open(at(store), epoch) else {
            continue;
        };
        history.check(&records, truncated).expect("the log");
        for records in [1, 3, 2] {
            // A journal that ended refuses the rest.
            drop(append_durably(&journal, &mut history, records));
        }
        let half = Lsn(journal.durable().0 / 2 + 1);
        if epoch == 2 && journal.truncate_before(half).is_ok() {
            truncated = half;
        }
        drop(journal);
    }
    (history, truncated)
}

#[test]
fn whichever_request_fails_what_was_told_is_there() {
    let undisturbed = Flaky::new();
    let (history, _) = script(&undisturbed);
    assert_eq!(history.told(), 9);
    for fault in [Fault::Refused, Fault::AnswerLost, Fault::SentTwice] {
        for nth in 1..=undisturbed.requests() {
            let store = Flaky::new();
            store.fail(nth, fault);
            let (mut history, truncated) = script(&store);
            store.forget_faults();
            let context = format!("request {nth}, {fault:?}");
            let (journal, records) = open(at(&store), 4).unwrap_or_else(|error| panic!("{context}: {error}"));
            history.check(&records, truncated).unwrap_or_else(|error| panic!("{context}: {error}"));
            append_durably(&journal, &mut history, 2).unwrap_or_else(|error| panic!("{context}: {error}"));
            drop(journal);
            let (_, records) = open(at(&store), 5).expect("opened");
            history.check(&records, truncated).unwrap_or_else(|error| panic!("{context}: {error}"));
        }
    }
}

#[test]
fn a_request_that_was_sent_twice_meets_its_own_object() {
    let store = Flaky::new();
    store.fail(2, Fault::SentTwice);
    let (journal, _) = open(at(&store), 1).expect("the fence was sent twice");
    store.fail(1, Fault::SentTwice);
    wait(&journal, append(&journal, b"x").expect("accepted")).expect("the batch was sent twice");
}

#[test]
fn a_put_of_which_nothing_is_known_is_tried_again() {
    for fault in [Fault::Refused, Fault::AnswerLost, Fault::Conflict] {
        let store = Flaky::new();
        let options = at(&store).put_time(std::time::Duration::from_secs(60));
        store.fail(2, fault);
        let (journal, _) = open(options, 1).unwrap_or_else(|error| panic!("{fault:?} of the fence: {error}"));
        store.fail(1, fault);
        let lsn = append(&journal, b"x").expect("accepted");
        wait(&journal, lsn).unwrap_or_else(|error| panic!("{fault:?} of the batch: {error}"));
        drop(journal);
        assert_eq!(open(at(&store), 2).expect("opened").1.len(), 1, "{fault:?}");
    }
}

#[test]
fn a_log_is_emptied_only_when_its_objects_are_gone() {
    let store = Flaky::new();
    drop(log_of_three(&store));
    let sealed = seal(&at(&store), NodeEpoch(4)).expect("sealed");
    store.refuse_removals(true);
    let error = sealed.empty().expect_err("refused");
    assert!(matches!(error, JournalError::Store { .. }), "{error}");
    store.refuse_removals(false);
    sealed.empty().expect("emptied");
    assert_eq!(store.objects().len(), 1, "what ends it");
}

#[test]
fn a_request_that_failed_for_as_long_as_it_may_is_final() {
    let store = Flaky::new();
    let (journal, _) = open(at(&store), 1).expect("opened");
    store.fail(1, Fault::AnswerLost);
    let error = wait(&journal, append(&journal, b"x").expect("buffered")).expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "could not create tenants/a/00000000000000000009.segment in a flaky store: Generic Flaky error: simulated \
         failure. Writes without a reply may be lost. Check that the object store is reachable and that the credentials \
         allow access, then start the process again: it reads the log"
    );
    let requests = store.requests();
    append(&journal, b"y").expect_err("refused");
    journal.close().expect_err("it ended before");
    assert_eq!(store.requests(), requests);
}

#[test]
fn a_flipped_bit_in_any_object_is_an_error() {
    let store = Flaky::new();
    let mut history = History::default();
    let (journal, _) = open(at(&store), 1).expect("opened");
    for records in 1..3 {
        append_durably(&journal, &mut history, records).expect("durable");
    }
    drop(journal);
    for path in store.objects() {
        let good = store.read(&path);
        for offset in (0..good.len()).step_by(3) {
            let copy = store.duplicate();
            let mut bad = good.to_vec();
            bad[offset] ^= 1 << (offset % 8);
            copy.write(&path, bad);
            let error = open(at(&copy), 2).map(|_| ()).expect_err("damaged");
            assert!(
                matches!(&error, JournalError::Corrupt { file, .. } | JournalError::Version { file, .. }
                    if file.starts_with(path.as_ref())),
                "{path} byte {offset}: {error}"
            );
        }
        let copy = store.duplicate();
        copy.write(&path, good[..good.len() - 8].to_vec());
        assert!(matches!(open(at(&copy), 2), Err(JournalError::Corrupt { .. })), "{path} cut");
    }
}

#[test]
fn a_missing_object_is_an_error() {
    let store = Flaky::new();
    let mut history = History::default();
    let (journal, _) = open(at(&store), 1).expect("opened");
    for records in 1..5 {
        append_durably(&journal, &mut history, records).expect("durable");
    }
    drop(journal);
    let objects = store.objects();
    assert_eq!(objects.len(), 5);
    for gone in &objects[1..4] {
        let copy = store.duplicate();
        futures::executor::block_on(copy.inner.delete(gone)).expect("deleted");
        let error = open(at(&copy), 2).map(|_| ()).expect_err("a hole");
        assert!(matches!(error, JournalError::Missing { .. }), "{gone}: {error}");
    }
}

fn read_sealed(store: &Arc<Flaky>, filter: &Filter) -> std::result::Result<Vec<Record>, JournalError> {
    records_of(&seal(&at(store), NodeEpoch(4))?, filter)
}

/// Reads without sealing again, which would mend an end that was lost.
fn records_of(sealed: &SealedLog, filter: &Filter) -> std::result::Result<Vec<Record>, JournalError> {
    let mut records = Vec::new();
    sealed.read(filter, &mut |record| {
        records.push(record);
        Ok::<(), std::convert::Infallible>(())
    })?;
    Ok(records)
}

/// A log of three owners, truncated, whose last owner lives.
fn log_of_three(store: &Arc<Flaky>) -> (Journal, History, Lsn) {
    let mut history = History::default();
    for epoch in 1..4 {
        let (journal, _) = open(at(store), epoch).expect("opened");
        for records in [1, 3, 2] {
            append_durably(&journal, &mut history, records).expect("durable");
        }
        if epoch == 2 {
            journal.truncate_before(Lsn(5)).expect("accepted");
        }
        if epoch == 3 {
            return (journal, history, Lsn(5));
        }
        journal.close().expect("closed");
    }
    unreachable!("the third owner lives")
}

#[test]
fn whichever_request_of_sealing_fails_it_is_sealed_by_the_next_and_the_owner_is_fenced() {
    let undisturbed = Flaky::new();
    let (owner, ..) = log_of_three(&undisturbed);
    let before = undisturbed.requests();
    seal(&at(&undisturbed), NodeEpoch(4)).expect("sealed");
    let requests = undisturbed.requests() - before;
    assert!(requests >= 4, "{requests}");
    drop(owner);
    for fault in [Fault::Refused, Fault::AnswerLost, Fault::SentTwice] {
        for nth in 1..=requests {
            let context = format!("request {nth} of {requests}, {fault:?}");
            let store = Flaky::new();
            let (owner, history, truncated) = log_of_three(&store);
            store.fail(nth, fault);
            let first = seal(&at(&store), NodeEpoch(4));
            store.forget_faults();
            let again = || seal(&at(&store), NodeEpoch(4)).unwrap_or_else(|error| panic!("{context}: {error}"));
            let sealed = first.unwrap_or_else(|_| again());
            assert_eq!(sealed.last(), Lsn(18), "{context}");
            let error = wait(&owner, append(&owner, b"late").expect("buffered")).expect_err("fenced");
            assert!(matches!(error, JournalError::Fenced { theirs: NodeEpoch(4), .. }), "{context}: {error}");
            let records = records_of(&sealed, &Filter::default()).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(again().last(), sealed.last(), "{context}");
            history.check(&records, truncated).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(records.last().expect("there").lsn, sealed.last(), "{context}");
        }
    }
}

#[test]
fn a_sealed_log_in_a_store_is_read_by_several_and_opened_by_nobody() {
    let store = Flaky::new();
    let (owner, history, truncated) = log_of_three(&store);
    drop(owner);
    let sealed = seal(&at(&store), NodeEpoch(4)).expect("sealed");
    let end = sealed.last();
    let objects = store.objects();
    assert_eq!(seal(&at(&store), NodeEpoch(1)).expect("sealed").last(), end);
    for epoch in [3, 4, 9] {
        assert!(matches!(open(at(&store), epoch), Err(JournalError::Sealed { last, .. }) if last == end));
    }
    let readers: Vec<_> = (0..3)
        .map(|shard| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                read_sealed(&store, &Filter { stream: None, shards: Some(vec![shard]) }).expect("read")
            })
        })
        .collect();
    let mut records: Vec<Record> = readers.into_iter().flat_map(|reader| reader.join().expect("read")).collect();
    records.sort_by_key(|record| record.lsn);
    history.check(&records, truncated).expect("the log");
    assert_eq!(store.objects(), objects, "reading and sealing again change nothing");
    for gone in &objects[2..objects.len() - 1] {
        let copy = store.duplicate();
        futures::executor::block_on(copy.inner.delete(gone)).expect("deleted");
        if let Ok(records) = read_sealed(&copy, &Filter::default()) {
            history.check(&records, truncated).expect("only what was needed no more is gone");
        }
    }
    futures::executor::block_on(store.inner.delete(objects.last().expect("the end"))).expect("deleted");
    let error = sealed.read(&Filter::default(), &mut |_| Ok::<(), std::convert::Infallible>(())).expect_err("no end");
    assert!(matches!(error, JournalError::Replaced { last, .. } if last == end), "{error}");
}

#[test]
fn a_prefix_without_a_log_is_not_taken_for_an_empty_one() {
    let store = Flaky::new();
    let error = seal(&at(&store), NodeEpoch(4)).expect_err("there is nothing");
    assert!(matches!(error, JournalError::NoLog { .. }), "{error}");
    assert!(store.objects().is_empty(), "it is left as it is");
    open(at(&store), 1).expect("opened").0.close().expect("closed");
    assert_eq!(seal(&at(&store), NodeEpoch(4)).expect("sealed").last(), Lsn::NONE);
}

#[test]
fn an_owner_that_writes_while_its_log_is_sealed_is_before_the_end_or_fenced() {
    let store = Flaky::new();
    let (owner, history, truncated) = log_of_three(&store);
    let (owner, history) = (Arc::new(owner), Arc::new(Mutex::new(history)));
    {
        let (owner, history) = (Arc::clone(&owner), Arc::clone(&history));
        store.before_next_put(move || {
            append_durably(&owner, &mut history.lock().expect("not poisoned"), 2).expect("durable");
        });
    }
    assert_eq!(seal(&at(&store), NodeEpoch(4)).expect("sealed").last(), Lsn(20));
    let records = read_sealed(&store, &Filter::default()).expect("read");
    history.lock().expect("not poisoned").check(&records, truncated).expect("the log");
    wait(&owner, append(&owner, b"late").expect("buffered")).expect_err("fenced");
    assert_eq!(read_sealed(&store, &Filter::default()).expect("read"), records);
}
