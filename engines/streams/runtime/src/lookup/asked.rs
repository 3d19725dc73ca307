//! A table that is asked for the rows of the keys that come, and is never read as a whole.
//!
//! All instances of a stage share what was answered; each asks for itself, once for all the keys of a batch that nobody knows. Where epochs
//! are recorded, a key has one answer in all of an epoch, and these answers are kept before the epoch's record: whoever computes the
//! epoch again takes them and asks nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use datafusion::common::HashSet;
use datafusion::execution::TaskContext;
use parking_lot::{Condvar, Mutex};
use savanna_streams_api::handle::QueryStatus;
use savanna_streams_api::ids::Epoch;
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::join::{ByKey, Lookup};
use savanna_streams_model::sink::GiveUp;
use savanna_streams_model::source::{Connectors, KeyedReader, ScanSpec, Source};
use savanna_streams_model::time::EventTime;

use super::answers::{Answers, Form};
use super::cache::{Cache, Key, Rows};
use super::{LookupStore, LookupTable, recorded_versions};
use crate::chain::Chain;
use crate::clock::Clock;
use crate::driver::EpochRecord;
use crate::error::computing;
use crate::query::blocking;

/// The table of one look-up. Shared by all instances of a stage.
pub(crate) struct Asked {
    /// The look-up's number in its query.
    lookup: u16,
    source: Arc<dyn Source>,
    scan: ScanSpec,
    by_key: ByKey,
    form: Form,
    clock: Arc<dyn Clock>,
    /// Where answers are kept, if epochs are recorded.
    store: Option<Arc<dyn LookupStore>>,
    /// Whether rows are looked up behind a member, which computes an epoch when all scans have sealed it.
    of_members: bool,
    instances: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
    counters: Counters,
}

#[derive(Default)]
struct State {
    cache: Option<Cache>,
    /// Of epochs that are under way, where answers are kept.
    answers: BTreeMap<Epoch, Answers>,
    /// Under which numbers those of recorded epochs are.
    kept: BTreeMap<Epoch, u64>,
    /// The number under which answers were kept last.
    newest: u64,
    /// How many instances have sealed an epoch.
    sealed: BTreeMap<Epoch, usize>,
    give_ups: Vec<GiveUp>,
    given_up: bool,
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    keys: AtomicU64,
    hits: AtomicU64,
    retries: AtomicU64,
}

/// What belongs to a look-up in its query.
pub(crate) struct Place<'p> {
    /// Its number.
    pub(crate) number: u16,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether it is behind a member.
    pub(crate) of_members: bool,
    /// Where answers are kept, if epochs are recorded.
    pub(crate) store: Option<Arc<dyn LookupStore>>,
    /// The epochs that were.
    pub(crate) records: &'p [EpochRecord],
}

impl Asked {
    /// A table, and what was kept of recorded epochs.
    ///
    /// # Errors
    /// It cannot be asked, or a record does not say what was answered.
    pub(crate) fn new(lookup: &Lookup, by_key: &ByKey, connectors: &dyn Connectors, place: Place<'_>) -> Result<Self> {
        let Place { number, clock, of_members, store, records } = place;
        let kept: BTreeMap<Epoch, u64> = recorded_versions(number, &lookup.table, records)?.into_iter().collect();
        let state = State {
            cache: by_key.cache.map(Cache::new),
            newest: kept.values().copied().max().unwrap_or(0),
            kept,
            ..State::default()
        };
        Ok(Self {
            lookup: number,
            source: connectors.source(&lookup.table.table)?,
            scan: lookup.table.clone(),
            by_key: by_key.clone(),
            form: Form::new(&lookup.table, by_key)?,
            clock,
            store,
            of_members,
            instances: AtomicUsize::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
            counters: Counters::default(),
        })
    }

    /// What was kept and no record names goes.
    pub(crate) fn tidy(&self) {
        if let Some(store) = &self.store {
            let versions = self.state.lock().kept.values().copied().collect();
            store.keep_only(self.lookup, &versions);
        }
    }

    /// No epoch up to this one is computed any more.
    pub(crate) fn passed(&self, committed: Epoch) {
        let mut state = self.state.lock();
        state.answers = state.answers.split_off(&committed.next());
        state.kept = state.kept.split_off(&committed.next());
    }

    /// An instance's share of the memory, in bytes.
    fn bytes(&self) -> usize {
        let state = self.state.lock();
        let answers: usize = state.answers.values().map(|answers| answers.bytes).sum();
        let all = answers + state.cache.as_ref().map_or(0, Cache::bytes);
        all / self.instances.load(Ordering::Relaxed).max(1)
    }

    /// Nobody waits for the table any more.
    pub(crate) fn give_up(&self) {
        let give_ups = {
            let mut state = self.state.lock();
            state.given_up = true;
            std::mem::take(&mut state.give_ups)
        };
        self.changed.notify_all();
        give_ups.iter().for_each(|give_up| give_up());
    }

    /// An instance has looked up all that an epoch has.
    fn sealed(&self, epoch: Epoch) {
        if self.of_members && self.store.is_some() {
            *self.state.lock().sealed.entry(epoch).or_insert(0) += 1;
            self.changed.notify_all();
        }
    }

    /// Keeps what was answered in an epoch, which all scans have sealed, and tells under which number. It is durable then, unless nothing is kept.
    ///
    /// # Errors
    /// It cannot be kept, or the query ends.
    pub(crate) fn keep(&self, epoch: Epoch) -> Result<u64> {
        let Some(store) = &self.store else { return Ok(0) };
        let (answers, newest) = {
            let mut state = self.state.lock();
            if let Some(version) = state.kept.get(&epoch) {
                return Ok(*version);
            }
            let instances = if self.of_members { self.instances.load(Ordering::Relaxed) } else { 0 };
            while state.sealed.get(&epoch).copied().unwrap_or(0) < instances {
                if state.given_up {
                    return Err(StreamError::Cancelled);
                }
                self.changed.wait(&mut state);
            }
            state.sealed = state.sealed.split_off(&epoch.next());
            (state.answers.remove(&epoch).unwrap_or_default(), state.newest)
        };
        if answers.is_empty() && newest > 0 {
            return Ok(newest);
        }
        let version = store.put(self.lookup, &self.form.state(epoch, &answers)?)?;
        self.state.lock().newest = version;
        Ok(version)
    }

    /// What is known of keys in an epoch.
    fn known<'k>(&self, epoch: Epoch, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<Option<Rows>>> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        self.take_up(&mut state, epoch)?;
        let State { cache, answers, .. } = &mut *state;
        let mut answers = self.store.is_some().then(|| answers.entry(epoch).or_default());
        let known = keys.map(|key| {
            let settled = answers.as_ref().and_then(|answers| answers.get(key));
            settled.or_else(|| {
                let cached = cache.as_mut()?.get(key, now)?;
                self.counters.hits.fetch_add(1, Ordering::Relaxed);
                Some(match &mut answers {
                    Some(answers) => answers.settle(&Key::from(key), cached),
                    None => cached,
                })
            })
        });
        Ok(known.collect())
    }

    /// Reads what was kept of an epoch, if it is one that is computed again.
    fn take_up(&self, state: &mut State, epoch: Epoch) -> Result<()> {
        if let (Some(store), Some(version), false) =
            (&self.store, state.kept.get(&epoch), state.answers.contains_key(&epoch))
        {
            let kept = self.form.answers(epoch, store.read(self.lookup, *version)?)?;
            state.answers.insert(epoch, kept);
        }
        Ok(())
    }

    /// Takes answers that the table has given. Tells those that count in the epoch: another instance may have asked meanwhile.
    fn settle(&self, epoch: Epoch, given: Vec<(Key, Rows)>, asked_at: EventTime) -> Vec<Rows> {
        let mut state = self.state.lock();
        let State { cache, answers, .. } = &mut *state;
        let mut answers = self.store.is_some().then(|| answers.entry(epoch).or_default());
        let settle = |(key, rows): (Key, Rows)| {
            let rows = match &mut answers {
                Some(answers) => answers.settle(&key, rows),
                None => rows,
            };
            if let Some(cache) = cache.as_mut() {
                cache.put(key, Arc::clone(&rows), asked_at);
            }
            rows
        };
        given.into_iter().map(settle).collect()
    }

    fn open(&self) -> Result<Box<dyn KeyedReader>> {
        let reader = self.source.by_key(&self.scan, &self.by_key)?;
        let mut state = self.state.lock();
        if state.given_up {
            return Err(StreamError::Cancelled);
        }
        state.give_ups.push(reader.give_up());
        Ok(reader)
    }

    /// Shows how often the table was asked.
    pub(crate) fn fill(&self, status: &mut QueryStatus) {
        let Counters { requests, keys, hits, retries } = &self.counters;
        for (name, figure) in [
            ("lookup_requests", requests),
            ("lookup_keys_asked", keys),
            ("lookup_cache_hits", hits),
            ("lookup_retries", retries),
        ] {
            *status.more.entry(name.into()).or_insert(0.0) += figure.load(Ordering::Relaxed) as f64;
        }
    }
}

/// One instance of a stage that asks.
pub(crate) struct Asking {
    asked: Arc<Asked>,
    /// Opened for the first keys that nobody knows.
    reader: Option<Box<dyn KeyedReader>>,
    /// From rows as they are read to those that are looked up in.
    chain: Chain,
    keys: Vec<usize>,
    retries: u64,
}

impl Asking {
    pub(crate) fn decode(lookup: &Lookup, asked: Arc<Asked>, functions: &Arc<TaskContext>) -> Result<Self> {
        asked.instances.fetch_add(1, Ordering::Relaxed);
        let chain = Chain::decode(&lookup.chain, functions)?;
        Ok(Self { asked, reader: None, chain, keys: lookup.table_keys.clone(), retries: 0 })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.asked.bytes()
    }

    /// This instance has looked up all that an epoch has.
    pub(crate) fn sealed(&self, epoch: Epoch) {
        self.asked.sealed(epoch);
    }

    /// The part of the table that some keys of an epoch meet.
    pub(crate) fn table(&mut self, epoch: Epoch, keys: &[ArrayRef]) -> Result<LookupTable> {
        let bytes = self.asked.form.keys(keys)?;
        let nulls = keys.iter().map(|key| key.logical_nulls());
        let nulls = nulls.fold(None, |all, nulls| NullBuffer::union(all.as_ref(), nulls.as_ref()));
        let mut seen = HashSet::new();
        // The first row of each key.
        let distinct: Vec<u32> = (bytes.iter().enumerate())
            .filter(|(row, key)| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row)) && seen.insert(key.data()))
            .map(|(row, _)| row as u32)
            .collect();
        let key_of = |row: u32| bytes.row(row as usize).data();
        let mut found = self.asked.known(epoch, distinct.iter().map(|row| key_of(*row)))?;
        let missing: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_none()).collect();
        if !missing.is_empty() {
            let rows: Vec<u32> = missing.iter().map(|at| distinct[*at]).collect();
            // It is as old as the request, whenever the answer comes.
            let asked_at = self.asked.clock.now();
            let answer = self.ask(keys, &rows)?;
            let asked = rows.iter().map(|row| Key::from(key_of(*row))).collect();
            let given = self.asked.form.sorted(asked, &answer)?;
            for (at, rows) in missing.into_iter().zip(self.asked.settle(epoch, given, asked_at)) {
                found[at] = Some(rows);
            }
        }
        let rows = self.asked.form.batch(found.iter().flatten())?;
        let batches = self.chain.apply(rows)?;
        LookupTable::new(self.chain.output(), &batches, &self.keys)
    }

    /// What the table has for the keys of some rows. Other queries go on meanwhile.
    fn ask(&mut self, keys: &[ArrayRef], rows: &[u32]) -> Result<Vec<RecordBatch>> {
        let Self { asked, reader, retries, .. } = self;
        let reader = match reader {
            Some(reader) => reader,
            none => none.insert(asked.open()?),
        };
        let counters = &asked.counters;
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.keys.fetch_add(rows.len() as u64, Ordering::Relaxed);
        let rows = UInt32Array::from(rows.to_vec());
        let columns = keys.iter().map(|key| take(key, &rows, None)).collect::<std::result::Result<Vec<_>, _>>();
        let keys = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&asked.form.key), columns));
        let keys = keys.map_err(|e| computing("the keys of a look-up", &e))?;
        let answer = blocking(|| reader.rows(&keys));
        let before = std::mem::replace(retries, reader.retries());
        counters.retries.fetch_add(retries.saturating_sub(before), Ordering::Relaxed);
        answer
    }
}
