//! Processes, what they share, and what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::NodeEpoch;
use savanna_journal::sim::{Fault, SimDisk, SteppedJournal};
use savanna_journal::{Options, Record};
use savanna_streams_api::ids::Epoch;
use savanna_streams_runtime::driver::{EpochRecord, Outcome};
use savanna_streams_runtime::records::Reach;
use savanna_streams_runtime::snapshot::Manifest;
use savanna_streams_runtime::store_log::{self, Claim, Entry, StoreLog};

use super::partition::{RowId, Rows, WINDOW};
use super::process::{Began, FAILED, Found, Out, Process, Records, SimClock, Writer};
use super::store::{Answer, Bucket, Create, Created};

const SOURCES: usize = 2;
const ROWS: usize = 90;
/// By then a run is over, or it comes to no end.
const STEPS_MAX: u32 = 300_000;
const CRASHES_MAX: u32 = 8;
const TAKEN_OVER_MAX: u32 = 5;

/// What may be done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing: the product as it is.
    Sound,
    /// The sink takes an epoch whose record is not durable.
    SinkWaitsForNothing,
    /// A snapshot counts before the sink holds its epoch.
    SnapshotBeforeSinks,
    /// A source drops what the sink holds, although somebody may read it again.
    ConfirmsEarly,
    /// An epoch that is read again has instants and rests of the clock.
    MarksOfTheClock,
    /// A process that another one has shut out goes on.
    FormerCommits,
}

/// Where a query is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On the disk of its node.
    Disk,
    /// In a bucket, for any node.
    Bucket,
}

/// What runs have seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Processes that died.
    pub crashes: u32,
    /// Of these, how often something of the disk had failed, or it was full.
    pub disk_faults: u32,
    /// Processes that took the query over from one that lived.
    pub taken_over: u32,
    /// Entries of such that were refused.
    pub shut_out: u32,
    /// Claims by those who had looked too long ago.
    pub stale_claims: u32,
    /// Requests of dead processes that were answered.
    pub late: u32,
    /// Processes that began behind a snapshot, and those that began further on than the beginning without one.
    pub by_snapshot: u32,
    /// See [`Self::by_snapshot`].
    pub by_reach: u32,
    /// Epochs in which a partition rested.
    pub rests: u32,
    /// Rows that sources have dropped.
    pub dropped: u32,
    /// Rows that were late.
    pub late_rows: u32,
}

/// What outlives processes, and what is true.
pub(super) struct Shared {
    pub(super) variant: Variant,
    pub(super) rows: Vec<Rows>,
    /// Results reach back over a bounded time: there are no windows of processing time.
    pub(super) is_bounded: bool,
    sink: BTreeMap<Epoch, Vec<Out>>,
    /// For so many steps the sink takes nothing.
    pub(super) sink_away: u32,
    /// That on the disk.
    pub(super) snapshot: Option<Found>,
    pub(super) bucket: Bucket,
    /// Up to where sources have dropped their rows.
    pub(super) confirmed: Arc<Mutex<Vec<usize>>>,
    pub(super) happened: Happened,
}

impl Shared {
    pub(super) fn reach(&self) -> Reach {
        match self.is_bounded {
            true => Reach::Span { span: 2 * WINDOW, delays: vec![0; SOURCES] },
            false => Reach::All,
        }
    }

    pub(super) fn held(&self) -> Epoch {
        self.sink.last_key_value().map_or(Epoch::ZERO, |(epoch, _)| *epoch)
    }

    /// Stores an epoch, whoever brings it, once.
    ///
    /// # Errors
    /// It is there, and was another one.
    pub(super) fn commit(&mut self, epoch: Epoch, out: Vec<Out>, is_whole: bool) -> Result<(), String> {
        match self.sink.get(&epoch) {
            Some(held) if is_whole && *held != out => {
                Err(format!("epoch {epoch} is computed otherwise: {out:?}, and was {held:?}"))
            }
            Some(_) => Ok(()),
            None if epoch != self.held().next() => Err(format!("epoch {epoch} comes behind {}", self.held())),
            None => {
                self.sink.insert(epoch, out);
                Ok(())
            }
        }
    }

    /// Whether the sink holds each row once.
    fn check(&mut self) -> Result<(), String> {
        let (mut event, mut clock) = (Vec::new(), Vec::new());
        let (mut ends, mut clock_ends) = (BTreeSet::new(), BTreeSet::new());
        for out in self.sink.values().flatten() {
            match out {
                Out::Late(row) => {
                    event.push(*row);
                    self.happened.late_rows += 1;
                }
                Out::Window(end, rows) => {
                    event.extend(rows);
                    let is_in = |(source, row): &RowId| {
                        let time = self.rows[*source].times[*row];
                        (end - WINDOW..*end).contains(&time)
                    };
                    if !ends.insert(*end) || !rows.iter().all(is_in) {
                        return Err(format!("the window up to {end} is there twice, or has rows of others: {rows:?}"));
                    }
                }
                Out::ClockWindow(end, rows) => {
                    clock.extend(rows);
                    if !clock_ends.insert(*end) {
                        return Err(format!("the window of processing time up to {end} is there twice"));
                    }
                }
            }
        }
        let all: Vec<RowId> = (0..SOURCES).flat_map(|source| (0..ROWS).map(move |row| (source, row))).collect();
        let differs = |mut rows: Vec<RowId>| {
            rows.sort_unstable();
            let place = rows.iter().zip(&all).position(|(row, expected)| row != expected);
            place.or((rows.len() != all.len()).then_some(rows.len().min(all.len())))
        };
        if let Some(at) = differs(event) {
            return Err(format!("rows are missing or there twice in windows of event time, from {:?} on", all.get(at)));
        }
        match (!self.is_bounded).then(|| differs(clock)).flatten() {
            None => Ok(()),
            Some(at) => {
                Err(format!("rows are missing or there twice in windows of processing time, from {:?} on", all.get(at)))
            }
        }
    }
}

/// A process that takes a query in a bucket over.
struct Claiming {
    id: u64,
    clock: Arc<SimClock>,
    entries: BTreeMap<u64, Entry>,
    found: store_log::Found,
    number: u64,
    claim: Claim,
}

impl Claiming {
    fn new(id: u64, clock: Arc<SimClock>, entries: BTreeMap<u64, Entry>) -> Result<Self, String> {
        let found = store_log::Found::of(entries.clone())?;
        let (number, claim) = found.claim("node", &format!("claim of {id}"), "query");
        Ok(Self { id, clock, entries, found, number, claim })
    }

    fn create(&self) -> Create {
        Create::Entry(self.number, Box::new(Entry::Claim(Box::new(self.claim.clone()))))
    }
}

enum Doing {
    Claims(Box<Claiming>),
    Runs(Box<Process>),
}

struct Alive {
    id: u64,
    doing: Doing,
    /// For so many of its turns it does nothing.
    paused: u32,
}

struct World {
    rng: ChaCha8Rng,
    home: Home,
    now: Arc<AtomicI64>,
    disk: Arc<SimDisk>,
    shared: Shared,
    alive: Vec<Alive>,
    processes: u64,
    crashes: u32,
    taken_over: u32,
}

/// One run, from its seed.
///
/// # Errors
/// What is not as it should be.
pub fn run(seed: u64, home: Home, variant: Variant, happened: Happened) -> Result<Happened, String> {
    let mut world = World::new(seed, home, variant, happened);
    for _ in 0..STEPS_MAX {
        if world.step()? {
            world.shared.check()?;
            world.shared.happened.dropped += world.shared.confirmed.lock().iter().sum::<usize>() as u32;
            return Ok(world.shared.happened);
        }
    }
    Err(format!("the query does not come to its end: the sink holds epoch {}", world.shared.held()))
}

impl World {
    fn new(seed: u64, home: Home, variant: Variant, happened: Happened) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut source = |_| {
            let (mut time, mut comes) = (0, 1_000_000);
            // Once it has nothing for a while, and may rest.
            let gap = rng.random_range(0..2 * ROWS);
            let mut rows = Rows { times: Vec::new(), comes: Vec::new() };
            for row in 0..ROWS {
                time += rng.random_range(0..8);
                comes += rng.random_range(0..2_000) + if row == gap { 60_000 } else { 0 };
                // Some lie a little back.
                rows.times.push((time - if rng.random_ratio(1, 6) { 60 } else { 0 }).max(0));
                rows.comes.push(comes);
            }
            rows
        };
        let rows = (0..SOURCES).map(&mut source).collect();
        let shared = Shared {
            variant,
            rows,
            is_bounded: rng.random_ratio(1, 2),
            sink: BTreeMap::new(),
            sink_away: 0,
            snapshot: None,
            bucket: Bucket::default(),
            confirmed: Arc::new(Mutex::new(vec![0; SOURCES])),
            happened,
        };
        Self {
            rng,
            home,
            now: Arc::new(AtomicI64::new(1_000_000)),
            disk: SimDisk::new(seed),
            shared,
            alive: Vec::new(),
            processes: 0,
            crashes: 0,
            taken_over: 0,
        }
    }

    /// Whether the query is over.
    fn step(&mut self) -> Result<bool, String> {
        self.now.fetch_add(self.rng.random_range(0..120), Ordering::AcqRel);
        self.shared.sink_away = self.shared.sink_away.saturating_sub(1);
        if self.rng.random_ratio(1, 1_000) {
            self.shared.sink_away = self.rng.random_range(20..800);
        }
        if self.alive.is_empty() {
            self.start()?;
            return Ok(false);
        }
        let in_bucket = self.home == Home::Bucket;
        if in_bucket && self.alive.len() == 1 && self.taken_over < TAKEN_OVER_MAX && self.rng.random_ratio(1, 400) {
            self.taken_over += 1;
            self.shared.happened.taken_over += 1;
            self.start()?;
            return Ok(false);
        }
        if self.crashes < CRASHES_MAX && self.rng.random_ratio(1, 400) {
            self.crash();
            return Ok(false);
        }
        if !in_bucket && self.crashes < CRASHES_MAX && self.rng.random_ratio(1, 600) {
            let fault = [Fault::Error, Fault::Full, Fault::PowerCut][self.rng.random_range(0..3)];
            self.disk.fail(self.rng.random_range(1..20), fault);
            self.shared.happened.disk_faults += 1;
        }
        if in_bucket && self.rng.random_ratio(1, 3) {
            if let Some(answer) = self.shared.bucket.step(&mut self.rng) {
                self.hear(answer)?;
            }
            return Ok(false);
        }
        let turn = self.rng.random_range(0..self.alive.len());
        self.turn(turn)
    }

    fn turn(&mut self, turn: usize) -> Result<bool, String> {
        let Self { alive, shared, rng, .. } = self;
        let Alive { id, doing, paused } = &mut alive[turn];
        if *paused > 0 {
            *paused -= 1;
            return Ok(false);
        }
        if rng.random_ratio(1, 500) {
            *paused = rng.random_range(20..600);
        }
        let outcome = match doing {
            Doing::Claims(claiming) => {
                if !shared.bucket.hears(*id) || rng.random_ratio(1, 30) {
                    shared.bucket.send(*id, claiming.create());
                }
                Ok(None)
            }
            Doing::Runs(process) => process.step(shared, rng),
        };
        match outcome {
            Ok(None) => Ok(false),
            Ok(Some(Outcome::Finished)) => Ok(true),
            Ok(Some(other)) => Err(format!("the query ended: {other:?}")),
            Err(failed) if failed == FAILED => {
                self.alive.swap_remove(turn);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.shared.happened.crashes += 1;
        let dies = self.rng.random_range(0..self.alive.len());
        self.alive.swap_remove(dies);
        if self.home == Home::Disk {
            self.disk.crash();
        }
    }

    fn start(&mut self) -> Result<(), String> {
        self.processes += 1;
        let id = self.processes;
        // Nodes do not agree on the time.
        let clock = Arc::new(SimClock { now: Arc::clone(&self.now), skew: self.rng.random_range(-3_000..3_000) });
        let doing = match self.home {
            Home::Bucket => Doing::Claims(Box::new(Claiming::new(id, clock, self.shared.bucket.log.clone())?)),
            Home::Disk => {
                let opened = self.open_journal(id).or_else(|_| {
                    // The disk had failed: the machine is started again.
                    self.disk.crash();
                    self.open_journal(id)
                });
                let (records, found) = opened?;
                Doing::Runs(self.begin(id, clock, found, self.shared.snapshot.clone(), records)?)
            }
        };
        // It may be long between a look at a bucket and a claim.
        let paused =
            if self.home == Home::Bucket && self.rng.random_ratio(1, 3) { self.rng.random_range(20..900) } else { 0 };
        self.alive.push(Alive { id, doing, paused });
        Ok(())
    }

    fn open_journal(&self, id: u64) -> Result<(Records, Vec<EpochRecord>), String> {
        let (mut records, mut places) = (Vec::<EpochRecord>::new(), BTreeMap::new());
        let options = Options::disk(Arc::clone(&self.disk) as _).segment_bytes(4 << 10);
        let mut replay = |record: Record| {
            let decoded: EpochRecord = serde_json::from_slice(&record.payload).map_err(|error| error.to_string())?;
            places.insert(decoded.epoch, record.lsn);
            records.push(decoded);
            Ok::<(), String>(())
        };
        let journal = SteppedJournal::open(&options, NodeEpoch(id), &mut replay).map_err(|error| error.to_string())?;
        Ok((Records::Disk { journal: Box::new(journal), places }, records))
    }

    fn begin(
        &mut self,
        id: u64,
        clock: Arc<SimClock>,
        found: Vec<EpochRecord>,
        snapshot: Option<Found>,
        records: Records,
    ) -> Result<Box<Process>, String> {
        let rests = found.iter().flat_map(|record| &record.sources).filter(|mark| mark.idle && !mark.ended).count();
        self.shared.happened.rests += rests as u32;
        let (process, Began { by_snapshot, by_reach }) =
            Process::begin(id, &self.shared, clock, found, snapshot, records)
                .map_err(|error| format!("process {id} does not go on: {error}"))?;
        self.shared.happened.by_snapshot += u32::from(by_snapshot);
        self.shared.happened.by_reach += u32::from(by_reach);
        Ok(Box::new(process))
    }

    fn hear(&mut self, answer: Answer) -> Result<(), String> {
        let Answer { to, create, created } = answer;
        let Some(place) = self.alive.iter().position(|alive| alive.id == to) else {
            self.shared.happened.late += 1;
            return Ok(());
        };
        let Alive { id, doing, paused } = self.alive.swap_remove(place);
        let doing = match doing {
            Doing::Runs(mut process) => {
                process.hear(&mut self.shared, &create, created, &mut self.rng);
                Doing::Runs(process)
            }
            Doing::Claims(claiming) if is_claim(&create, &claiming) => self.claimed(*claiming, created)?,
            // It is the answer of an attempt of before.
            claiming @ Doing::Claims(_) => claiming,
        };
        self.alive.push(Alive { id, doing, paused });
        Ok(())
    }

    fn claimed(&mut self, claiming: Claiming, created: Created) -> Result<Doing, String> {
        let Claiming { id, clock, mut entries, found, number, claim } = claiming;
        if created == Created::Another {
            // Whoever has it has written meanwhile.
            match self.shared.bucket.log.get(&number) {
                Some(entry) => drop(entries.insert(number, entry.clone())),
                None => entries.clone_from(&self.shared.bucket.log),
            }
            return Ok(Doing::Claims(Box::new(Claiming::new(id, clock, entries)?)));
        }
        if self.shared.bucket.log.range(number + 1..).next().is_some() {
            // Its number had become free again: what was looked at is of no use.
            self.shared.happened.stale_claims += 1;
            return Ok(Doing::Claims(Box::new(Claiming::new(id, clock, self.shared.bucket.log.clone())?)));
        }
        let log = StoreLog::new(&found, number, claim);
        let snapshot = log.snapshot().map(|manifest| self.state(manifest)).transpose()?;
        self.shared.bucket.log.retain(|number, _| log.stays(*number));
        let records = found.records.into_iter().map(|(_, record)| record).collect();
        let writer = Writer { log, work: [].into(), current: None, failed: false };
        Ok(Doing::Runs(self.begin(id, clock, records, snapshot, Records::Bucket(Box::new(writer)))?))
    }

    /// The states that a manifest names.
    fn state(&self, manifest: &Manifest) -> Result<Found, String> {
        let state = |name: &String| {
            let state = self.shared.bucket.parts.get(name).cloned();
            state.ok_or_else(|| format!("part {name} of the snapshot of epoch {} is gone", manifest.record.epoch))
        };
        let states = manifest.parts.iter().map(|part| state(&part.name)).collect::<Result<_, _>>()?;
        Ok(Found { record: manifest.record.clone(), rows_at: manifest.rows_at, states })
    }
}

fn is_claim(create: &Create, claiming: &Claiming) -> bool {
    matches!(create, Create::Entry(number, entry) if *number == claiming.number && matches!(entry.as_ref(), Entry::Claim(claim) if claim.token == claiming.claim.token))
}
