//! A process that goes on with a query.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use savanna_journal::sim::{Step as JournalStep, SteppedJournal};
use savanna_journal::{Draft, Lsn};
use savanna_streams_api::StreamError;
use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_model::time::{EventTime, WindowSpec};
use savanna_streams_runtime::driver::{Action, Driver, DriverOptions, EpochRecord, Input, Outcome};
use savanna_streams_runtime::reading::{Forgetting, Instants, Standing, Standings};
use savanna_streams_runtime::records::{Kept, Reach, Recorded, beginning, check, join_snapshot};
use savanna_streams_runtime::snapshot::{Manifest, Part, PartFile, Schedule, Step};
use savanna_streams_runtime::store_log::{Entry, StoreLog};
use savanna_streams_runtime::{Clock, EpochPolicy};

use super::Variant;
use super::partition::{Around, Partition, ReadRow, RowId, WINDOW, place};
use super::store::{Create, Created};
use super::world::Shared;

pub(super) const MEMBERS: usize = 2;
/// Size of the windows of processing time, in microseconds.
const CLOCK_WINDOW: i64 = 20_000;
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(4);
/// Records go when so many can go.
const FORGOTTEN_AT_ONCE: usize = 4;

/// Windows that are open: rows by end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    event: BTreeMap<i64, Vec<RowId>>,
    clock: BTreeMap<i64, Vec<RowId>>,
}

/// What a query writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Out {
    Window(i64, Vec<RowId>),
    Late(RowId),
    ClockWindow(i64, Vec<RowId>),
}

/// A state that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) record: EpochRecord,
    pub(super) rows_at: EventTime,
    pub(super) states: Vec<Open>,
}

/// The clock of one process.
#[derive(Debug)]
pub(super) struct SimClock {
    pub(super) now: Arc<AtomicI64>,
    pub(super) skew: i64,
}

impl Clock for SimClock {
    fn now(&self) -> EventTime {
        EventTime(self.now.load(Ordering::Acquire) + self.skew)
    }

    fn until(&self, instant: EventTime) -> Duration {
        Duration::from_micros(instant.0.saturating_sub(self.now().0).try_into().unwrap_or(0))
    }
}

/// A member counts the rows of every other window; the last one those of windows of processing time, too.
#[derive(Debug)]
struct Member {
    open: Open,
    applied: Epoch,
    closed: BTreeMap<Epoch, Vec<Out>>,
}

/// A snapshot that is being made.
#[derive(Debug)]
struct Making {
    epoch: Epoch,
    handed: BTreeMap<usize, Open>,
    written: Vec<Part>,
    /// The states that nobody has begun to write.
    unwritten: Vec<usize>,
    complete: bool,
    record: Option<(EpochRecord, EventTime)>,
}

/// Where records are.
pub(super) enum Records {
    Disk { journal: Box<SteppedJournal<Epoch>>, places: BTreeMap<Epoch, Lsn> },
    Bucket(Box<Writer>),
}

/// The product's thread that writes entries, without the thread.
pub(super) struct Writer {
    pub(super) log: StoreLog,
    pub(super) work: VecDeque<Work>,
    pub(super) current: Option<(u64, Entry)>,
    /// Another process has the query.
    pub(super) failed: bool,
}

#[derive(Debug)]
pub(super) enum Work {
    Record(EpochRecord),
    Forget(Epoch),
    Switch(Box<Manifest>),
}

pub(super) struct Process {
    pub(super) id: u64,
    pub(super) clock: Arc<SimClock>,
    began: i64,
    driver: Driver,
    partitions: Vec<Partition>,
    standings: Standings,
    instants: Instants,
    members: Vec<Member>,
    pub(super) records: Records,
    recorded: Recorded,
    kept: Kept,
    reach: Reach,
    forgetting: Forgetting,
    former: Epoch,
    sealed: BTreeMap<Epoch, EpochRecord>,
    rows: BTreeMap<Epoch, Vec<ReadRow>>,
    schedule: Schedule,
    making: Option<Making>,
    rows_at: EventTime,
    /// A snapshot that is to count, and its states.
    switching: Option<(EpochRecord, EventTime, Vec<Open>)>,
    next: Epoch,
    inputs: VecDeque<Input>,
    /// All that it computes is whole: nothing lies before its beginning.
    is_whole: bool,
    variant: Variant,
}

/// What a process found out at its start.
pub(super) struct Began {
    pub(super) by_snapshot: bool,
    pub(super) by_reach: bool,
}

fn part(member: usize) -> (StageId, u16) {
    (StageId(1), member as u16)
}

fn query() -> QueryId {
    QueryId { code: "0123456789ab".into(), job: 1 }
}

impl Process {
    /// # Errors
    /// The query does not go on.
    pub(super) fn begin(
        id: u64,
        shared: &Shared,
        clock: Arc<SimClock>,
        mut found_records: Vec<EpochRecord>,
        snapshot: Option<Found>,
        records: Records,
    ) -> Result<(Self, Began), String> {
        let (reach, held) = (shared.reach(), shared.held());
        let found = snapshot.filter(|found| join_snapshot(&mut found_records, &found.record));
        let sources = shared.rows.len();
        check(&found_records, sources, "the sink", held).map_err(|error| error.to_string())?;
        let of_snapshot = found.as_ref().map(|found| found.record.epoch);
        let begins = beginning(&found_records, held, &reach, of_snapshot);
        let (skipped, by_snapshot) = begins.map_err(|error| error.to_string())?;
        let behind = skipped.checked_sub(1).map(|last| found_records[last].clone());
        let again = &found_records[skipped..];
        let from = behind.as_ref().map_or(Epoch::ZERO, |record| record.epoch);
        let former = found_records.last().map_or(Epoch::ZERO, |record| record.epoch);
        let mark = |source: usize| behind.as_ref().map(|record| &record.sources[source]);
        let partition = |source: usize| {
            let marks = again.iter().map(|record| record.sources[source].clone()).collect();
            Partition::new(source, from, mark(source), marks)
        };
        let partitions: Vec<_> = (0..sources).map(partition).collect();
        let dropped = shared.confirmed.lock().clone();
        if let Some(lost) = (0..sources).find(|source| partitions[*source].at() < dropped[*source]) {
            return Err(format!(
                "source {lost} has dropped what is to be read: {} of {dropped:?}",
                partitions[lost].at()
            ));
        }
        let standings = Standings::new((0..sources).map(|_| Standing::new(true, None)).collect());
        for (source, partition) in partitions.iter().enumerate() {
            let (watermark, idle) = partition.standing();
            if partition.ended {
                standings.tell(source, watermark, idle, true);
            }
        }
        let known = match shared.variant {
            Variant::MarksOfTheClock => BTreeMap::new(),
            _ => behind.iter().chain(again).map(|record| (record.epoch, record.processing_time)).collect(),
        };
        let ended: Vec<bool> = partitions.iter().map(|partition| partition.ended).collect();
        let sealed_at = behind.as_ref().map_or(EventTime::MIN, |record| record.processing_time);
        let found = found.filter(|_| by_snapshot);
        let rows_at = found.as_ref().map_or(EventTime::MIN, |found| found.rows_at);
        let policy =
            EpochPolicy { target: Duration::from_millis(2), min_events: 1, max_events: 1_000, fixed_events: None };
        let clock_windows = if shared.is_bounded { Vec::new() } else { vec![WindowSpec::tumble(CLOCK_WINDOW).into()] };
        let replay_timeout = Duration::from_secs(3_600);
        let options = DriverOptions { policy, max_in_flight: 3, replay_timeout, replay_limit: 1, clock_windows };
        let driver = Driver::going_on(sources, options, from, former).with_rows_at(&ended, sealed_at, rows_at);
        let is_whole = by_snapshot || behind.is_none();
        let states = found.map_or_else(|| vec![Open::default(); MEMBERS], |found| found.states);
        let member = |open| Member { open, applied: from, closed: BTreeMap::new() };
        let (kept, forgetting) = (Kept::new(reach.clone(), FORGOTTEN_AT_ONCE), forgetting(&shared.confirmed));
        let mut process = Self {
            id,
            began: clock.now().0,
            driver,
            partitions,
            standings,
            instants: Instants::new(Arc::clone(&clock) as _, known),
            clock,
            members: states.into_iter().map(member).collect(),
            records,
            recorded: Recorded::up_to(former),
            kept,
            reach,
            forgetting,
            former,
            sealed: behind.iter().map(|record| (record.epoch, record.clone())).collect(),
            rows: BTreeMap::new(),
            schedule: Schedule::new(SNAPSHOT_INTERVAL, (0..MEMBERS).map(part)),
            making: None,
            rows_at,
            switching: None,
            next: from.next(),
            inputs: [Input::Start].into(),
            is_whole,
            variant: shared.variant,
        };
        if let Some(record) = &behind {
            process.kept.note(record);
            process.note_place(record);
        }
        Ok((process, Began { by_snapshot, by_reach: !by_snapshot && skipped > 0 }))
    }

    /// Where records go one by one, sources are told of that.
    fn note_place(&self, record: &EpochRecord) {
        if self.reach != Reach::All {
            self.forgetting.note(record);
        }
    }

    fn now(&self) -> Duration {
        Duration::from_micros((self.clock.now().0 - self.began).max(0) as u64)
    }

    /// Something of what could happen next.
    ///
    /// # Errors
    /// The query fails, or something is not what it was.
    pub(super) fn step(&mut self, shared: &mut Shared, rng: &mut ChaCha8Rng) -> Result<Option<Outcome>, String> {
        match rng.random_range(0..8) {
            0 | 1 => self.read(shared, rng)?,
            2 => self.records_step(shared, rng)?,
            3 => self.commit(shared)?,
            4 => {
                let fires = self.driver.fires_at().is_some_and(|at| at <= self.clock.now());
                self.inputs.push_back(if fires { Input::Fire } else { Input::Tick });
            }
            5 => {
                let member = rng.random_range(0..MEMBERS);
                self.apply(member);
            }
            6 => self.write(shared, rng),
            _ => self.switch(shared),
        }
        let Some(input) = self.inputs.pop_front() else { return Ok(None) };
        Ok(self.drive(input))
    }

    fn read(&mut self, shared: &Shared, rng: &mut ChaCha8Rng) -> Result<(), String> {
        let source = rng.random_range(0..self.partitions.len());
        let around = Around {
            rows: &shared.rows[source],
            now: self.clock.now(),
            standings: &self.standings,
            instants: &self.instants,
            committed: self.driver.committed(),
            by_the_clock: self.variant == Variant::MarksOfTheClock,
        };
        let partition = &mut self.partitions[source];
        let (input, rows) = partition.step(&around, rng)?;
        if let Some(Input::Sealed { epoch, .. }) = &input {
            self.rows.entry(*epoch).or_default().extend(rows);
        }
        let (watermark, idle) = partition.standing();
        self.standings.tell(source, watermark, idle, partition.ended);
        self.inputs.extend(input);
        Ok(())
    }

    /// The journal does something, or an entry is sent to the store.
    fn records_step(&mut self, shared: &mut Shared, rng: &mut ChaCha8Rng) -> Result<(), String> {
        match &mut self.records {
            Records::Disk { journal, .. } => match journal.step() {
                JournalStep::Released { replies, outcome } => {
                    for epoch in replies {
                        self.recorded.note(epoch, outcome.clone().map_err(|_| StreamError::Cancelled));
                    }
                }
                JournalStep::Stopped(Some(_)) => return Err(FAILED.into()),
                JournalStep::Wait(_) => journal.advance(Duration::from_millis(5)),
                _ => {
                    if rng.random_ratio(1, 20) {
                        journal.advance(Duration::from_millis(5));
                    }
                }
            },
            Records::Bucket(writer) => {
                if let Some((number, entry)) = &writer.current {
                    // It was not answered for too long.
                    if !shared.bucket.hears(self.id) || rng.random_ratio(1, 30) {
                        shared.bucket.send(self.id, Create::Entry(*number, Box::new(entry.clone())));
                    }
                    return Ok(());
                }
                let Some(work) = writer.work.front() else { return Ok(()) };
                let entry = match work {
                    Work::Record(record) => Some(writer.log.record(record)),
                    Work::Forget(epoch) => writer.log.forget_before(*epoch),
                    Work::Switch(manifest) => Some(writer.log.switch(manifest)),
                };
                match entry {
                    Some(_) if writer.failed => self.entry_failed(),
                    Some(entry) => writer.current = Some((writer.log.next(), entry)),
                    None => drop(writer.work.pop_front()),
                }
            }
        }
        Ok(())
    }

    /// What is to be written will never be there.
    fn entry_failed(&mut self) {
        let Records::Bucket(writer) = &mut self.records else { return };
        (writer.failed, writer.current) = (true, None);
        match writer.work.pop_front() {
            Some(Work::Record(record)) => self.recorded.note(record.epoch, Err(StreamError::Cancelled)),
            Some(Work::Switch(_)) => self.over(),
            Some(Work::Forget(_)) | None => {}
        }
    }

    /// The store has answered.
    pub(super) fn hear(&mut self, shared: &mut Shared, create: &Create, created: Created, rng: &mut ChaCha8Rng) {
        match create {
            Create::Part(name, _) => self.part_is_there(name),
            Create::Entry(number, entry) => {
                let Records::Bucket(writer) = &mut self.records else { return };
                if writer
                    .current
                    .as_ref()
                    .is_none_or(|(expected, current)| expected != number || current != entry.as_ref())
                {
                    return;
                }
                if created == Created::Another {
                    shared.happened.shut_out += 1;
                    if self.variant != Variant::FormerCommits {
                        return self.entry_failed();
                    }
                }
                writer.current = None;
                for number in writer.log.put(Entry::clone(entry)) {
                    // It may end while it removes what counts no more.
                    if rng.random_ratio(4, 5) {
                        shared.bucket.log.remove(&number);
                    }
                }
                match writer.work.pop_front() {
                    Some(Work::Record(record)) => self.recorded.note(record.epoch, Ok(())),
                    Some(Work::Switch(manifest)) => {
                        let owner = writer.log.owner();
                        let named = |name: &String| manifest.parts.iter().any(|part| part.name == *name);
                        let is_over = |name: &String| owner_of(name) <= owner && !named(name);
                        shared.bucket.parts.retain(|name, _| !is_over(name));
                        self.switched();
                    }
                    Some(Work::Forget(_)) | None => {}
                }
            }
        }
    }

    /// A member computes its next epoch.
    fn apply(&mut self, number: usize) {
        let member = &mut self.members[number];
        let epoch = member.applied.next();
        let Some(record) = self.sealed.get(&epoch) else { return };
        let Member { open, closed, .. } = member;
        let mut out = Vec::new();
        for row in self.rows.get(&epoch).into_iter().flatten() {
            let is_mine = (row.end / WINDOW).rem_euclid(MEMBERS as i64) == number as i64;
            match row.late {
                true if is_mine => out.push(Out::Late(row.id)),
                false if is_mine => open.event.entry(row.end).or_default().push(row.id),
                _ => {}
            }
            if number == MEMBERS - 1 && self.reach == Reach::All {
                let end = (record.processing_time.0.div_euclid(CLOCK_WINDOW) + 1) * CLOCK_WINDOW;
                open.clock.entry(end).or_default().push(row.id);
            }
        }
        let watermark = record.sources.iter().map(|mark| mark.watermark.0).min().unwrap_or(i64::MIN);
        let is_end = record.sources.iter().all(|mark| mark.ended);
        let instant = if is_end { i64::MAX } else { record.processing_time.0 };
        let still_open = open.event.split_off(&watermark.saturating_add(1));
        let over = std::mem::replace(&mut open.event, still_open);
        out.extend(over.into_iter().map(|(end, rows)| Out::Window(end, sorted(rows))));
        let still_open = open.clock.split_off(&instant.saturating_add(1));
        let over = std::mem::replace(&mut open.clock, still_open);
        out.extend(over.into_iter().map(|(end, rows)| Out::ClockWindow(end, sorted(rows))));
        closed.insert(epoch, out);
        member.applied = epoch;
        if let Some(making) = self.making.as_mut().filter(|making| making.epoch == epoch) {
            making.handed.insert(number, member.open.clone());
            making.unwritten.push(number);
        }
    }

    /// The sink takes the next epoch, if all members have computed it and its record is durable.
    fn commit(&mut self, shared: &mut Shared) -> Result<(), String> {
        let epoch = self.next;
        if shared.sink_away > 0 || self.members.iter().any(|member| member.applied < epoch) {
            return Ok(());
        }
        if self.variant != Variant::SinkWaitsForNothing
            && !self.recorded.allows(epoch).map_err(|_| FAILED.to_owned())?
        {
            return Ok(());
        }
        let closed = self.members.iter_mut().flat_map(|member| member.closed.remove(&epoch).unwrap_or_default());
        let out = sorted(closed.collect());
        shared.commit(epoch, out, self.is_whole)?;
        self.next = epoch.next();
        if self.variant == Variant::ConfirmsEarly
            && let Some(record) = self.sealed.get(&epoch)
        {
            self.forgetting.snapshot(record);
        }
        let complete = self.schedule.held(epoch) != Step::Wait;
        if let Some(making) = &mut self.making {
            making.complete |= complete;
        }
        self.inputs.push_back(Input::Committed { epoch });
        Ok(())
    }

    fn part_name(&self, epoch: Epoch, member: usize) -> String {
        let owner = match &self.records {
            Records::Disk { .. } => self.id,
            Records::Bucket(writer) => writer.log.owner(),
        };
        format!("{owner:020}-{epoch}-{member}")
    }

    /// A part of the snapshot is written.
    fn write(&mut self, shared: &mut Shared, rng: &mut ChaCha8Rng) {
        // What was not answered for is sent again.
        if shared.bucket.hears(self.id) && rng.random_ratio(5, 6) {
            return;
        }
        let Some(making) = &mut self.making else { return };
        let Some(number) = making.unwritten.pop() else { return };
        let (epoch, state) = (making.epoch, making.handed[&number].clone());
        let name = self.part_name(epoch, number);
        match &self.records {
            Records::Disk { .. } => self.part_is_there(&name),
            Records::Bucket(_) => {
                shared.bucket.send(self.id, Create::Part(name, state));
                // Until it is answered for.
                if let Some(making) = &mut self.making {
                    making.unwritten.insert(0, number);
                }
            }
        }
    }

    fn part_is_there(&mut self, name: &str) {
        let Some(epoch) = self.making.as_ref().map(|making| making.epoch) else { return };
        let Some(number) = (0..MEMBERS).find(|number| self.part_name(epoch, *number) == name) else { return };
        let Some(making) = &mut self.making else { return };
        making.unwritten.retain(|unwritten| *unwritten != number);
        if making.written.iter().any(|part| part.name == name) {
            return;
        }
        let (stage, shuffle) = part(number);
        let members = MEMBERS as u16;
        let file = PartFile { name: name.to_owned(), bytes: 0, checksum: 0 };
        making.written.push(Part::whole(stage, shuffle, members, file));
        making.complete |= self.schedule.written(epoch, (stage, shuffle)) != Step::Wait;
    }

    /// The manifest is switched.
    fn switch(&mut self, shared: &mut Shared) {
        if self.switching.is_some() {
            return;
        }
        let Some(making) = self.making.take_if(|making| making.complete && making.record.is_some()) else { return };
        let Some((record, rows_at)) = making.record else { return };
        let states = making.handed.into_values().collect();
        let (signatures, mut parts) = (vec!["windows".to_owned()], making.written);
        parts.sort_by_key(|part| part.shuffle);
        match &mut self.records {
            Records::Disk { .. } => {
                shared.snapshot = Some(Found { record: record.clone(), rows_at, states });
                self.switching = Some((record, rows_at, Vec::new()));
                self.switched();
            }
            Records::Bucket(writer) => {
                let manifest = Manifest { query: query(), record: record.clone(), rows_at, signatures, parts };
                writer.work.push_back(Work::Switch(Box::new(manifest)));
                self.switching = Some((record, rows_at, states));
            }
        }
    }

    /// The snapshot counts.
    fn switched(&mut self) {
        if let Some((record, ..)) = self.switching.take() {
            // How far results reach back is not known once a partition has ended.
            let spares_records = matches!(self.records, Records::Bucket(_));
            if self.reach == Reach::All || spares_records || record.sources.iter().any(|mark| mark.ended) {
                self.forget_before(record.epoch.next());
                self.forgetting.snapshot(&record);
            }
        }
        self.over();
    }

    fn over(&mut self) {
        self.switching = None;
        self.schedule.over(self.now());
    }

    fn forget_before(&mut self, epoch: Epoch) {
        match &mut self.records {
            Records::Disk { journal, places } => {
                if let Some((_, first)) = places.range(epoch..).next() {
                    journal.truncate_before(*first);
                }
            }
            Records::Bucket(writer) => writer.work.push_back(Work::Forget(epoch)),
        }
    }

    fn drive(&mut self, input: Input) -> Option<Outcome> {
        let now = self.now();
        for action in self.driver.step(input, now) {
            match action {
                Action::Open(epoch) => self.partitions.iter_mut().for_each(|partition| partition.opened = epoch),
                Action::Cut(epoch) => self.cut(epoch),
                Action::Record(record) => self.sealed(record),
                // No source here comes to have more partitions.
                Action::Join { .. } | Action::Replay(_) => {}
                Action::Stop(outcome) => return Some(outcome),
            }
        }
        None
    }

    fn cut(&mut self, epoch: Epoch) {
        if epoch > self.former
            && self.making.is_none()
            && self.switching.is_none()
            && self.schedule.cut(epoch, self.now())
        {
            let (handed, written, unwritten) = (BTreeMap::new(), Vec::new(), Vec::new());
            self.making = Some(Making { epoch, handed, written, unwritten, complete: false, record: None });
            if self.variant == Variant::SnapshotBeforeSinks {
                self.schedule.held(epoch);
            }
        }
        self.partitions.iter_mut().for_each(|partition| partition.cut = epoch);
    }

    fn sealed(&mut self, record: EpochRecord) {
        let epoch = record.epoch;
        if epoch > self.former {
            match &mut self.records {
                Records::Disk { journal, places } => {
                    let mut payload = serde_json::to_vec(&record).unwrap_or_default();
                    // Few records in a segment: what may go does.
                    payload.resize(payload.len().max(1_500), b' ');
                    match journal.append(&[Draft { shard: 0, kind: 1, payload: &payload }]) {
                        Ok(lsn) => {
                            journal.hold(lsn, epoch);
                            places.insert(epoch, lsn);
                        }
                        Err(_) => self.recorded.note(epoch, Err(StreamError::Cancelled)),
                    }
                }
                Records::Bucket(writer) => writer.work.push_back(Work::Record(record.clone())),
            }
        }
        self.note_place(&record);
        if let Some(first) = self.kept.note(&record) {
            self.forget_before(first);
            self.forgetting.records_before(first);
        }
        if record.sources.iter().any(|mark| mark.events > 0) {
            self.rows_at = self.rows_at.max(record.processing_time);
        }
        if let Some(making) = self.making.as_mut().filter(|making| making.epoch == epoch) {
            making.record = Some((EpochRecord { committed: epoch, ..record.clone() }, self.rows_at));
        }
        self.sealed.insert(epoch, record);
    }
}

/// A process fails because it may write nothing any more: another one goes on.
pub(super) const FAILED: &str = "what it writes is not kept";

fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort_unstable();
    rows
}

/// The owner of a part.
fn owner_of(name: &str) -> u64 {
    name.split('-').next().and_then(|owner| owner.parse().ok()).unwrap_or(0)
}

/// Sources that drop what nobody reads any more.
fn forgetting(confirmed: &Arc<Mutex<Vec<usize>>>) -> Forgetting {
    let source = |source: usize| {
        let confirmed = Arc::clone(confirmed);
        let forget = move |at: &_| {
            let mut confirmed = confirmed.lock();
            confirmed[source] = confirmed[source].max(place(at));
        };
        Some(Arc::new(forget) as _)
    };
    let sources = confirmed.lock().len();
    Forgetting::new((0..sources).map(source).collect())
}
