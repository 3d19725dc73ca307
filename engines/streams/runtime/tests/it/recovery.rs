//! Seeded: the driver, the records of epochs in the journal, and the sink as the judge, with crashes between any two steps. What the
//! sink holds in the end is what the definition says, each row once; and not if the sink does not wait for the record.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::NodeEpoch;
use savanna_journal::sim::{SimDisk, Step, SteppedJournal};
use savanna_journal::{Draft, JournalError, Lsn, Options};
use savanna_streams_api::ids::Epoch;
use savanna_streams_model::source::Offset;
use savanna_streams_model::time::EventTime;
use savanna_streams_runtime::EpochPolicy;
use savanna_streams_runtime::driver::{Action, Driver, DriverOptions, EpochRecord, Input, Outcome, SourceMark};
use savanna_streams_runtime::records::{Kept, Reach, Recorded, check, skippable};

/// Size of the windows in microseconds.
const WINDOW: i64 = 10;

/// What is broken, to see that it is found out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The sink does not wait for records.
    Hasty,
    /// Results are thought to reach less far back than they do.
    Forgetful,
}

/// What survives a crash, and what is true.
struct World {
    rng: ChaCha8Rng,
    disk: Arc<SimDisk>,
    /// Event times by partition, in order.
    rows: Vec<Vec<i64>>,
    /// The windows of each epoch that the sink holds: end and count.
    sink: BTreeMap<Epoch, Vec<(i64, usize)>>,
    flaw: Flaw,
    crashes: u32,
    /// Epochs that were not read again.
    skipped: u64,
}

/// One partition, as the product's partitions act.
#[derive(Default)]
struct Partition {
    at: usize,
    epoch: Epoch,
    events: u64,
    opened: Epoch,
    cut: Epoch,
    ended: bool,
    arrived: bool,
    again: VecDeque<SourceMark>,
}

impl Partition {
    fn new(at: usize, behind: Epoch, again: VecDeque<SourceMark>) -> Self {
        Self { at, epoch: behind.next(), again, ..Self::default() }
    }

    fn step(&mut self, source: usize, rows: &[i64], rng: &mut ChaCha8Rng) -> Option<Input> {
        let epoch = self.epoch;
        if self.cut >= epoch {
            return Some(self.seal(source, rows));
        }
        if self.opened < epoch {
            return None;
        }
        let target = self.again.front().cloned();
        let left = target.as_ref().map_or(u64::MAX, |mark| mark.events - self.events);
        if let Some(mark) = &target
            && left == 0
            && self.ended == mark.ended
        {
            return (!std::mem::replace(&mut self.arrived, true)).then_some(Input::Full { source, epoch });
        }
        let there = (rows.len() - self.at) as u64;
        if self.ended {
            return None;
        }
        if there == 0 {
            self.ended = true;
            return Some(Input::Ended { source, epoch });
        }
        let read = rng.random_range(1..=3).min(there).min(left);
        self.at += read as usize;
        self.events += read;
        target.is_none().then_some(Input::Data { source, epoch, enough: true })
    }

    fn seal(&mut self, source: usize, rows: &[i64]) -> Input {
        let newest = rows[..self.at].last().map_or(EventTime::MIN, |time| EventTime(*time));
        let watermark = if self.ended { EventTime::MAX } else { newest };
        let (offset, events) = (Offset(self.at.to_string()), self.events);
        let mark = SourceMark { offset, watermark, events, idle: false, ended: self.ended };
        if let Some(before) = self.again.pop_front() {
            assert_eq!(mark, before, "an epoch that is read again is the same");
        }
        let epoch = self.epoch;
        (self.epoch, self.events, self.arrived) = (epoch.next(), 0, false);
        Input::Sealed { source, epoch, mark, instant: EventTime(0) }
    }
}

/// A process.
struct Process {
    driver: Driver,
    partitions: Vec<Partition>,
    journal: SteppedJournal<Epoch>,
    recorded: Recorded,
    /// Up to which epoch records were there when it began.
    former: Epoch,
    /// Where it began to read, by partition.
    begun: Vec<usize>,
    kept: Kept,
    places: BTreeMap<Epoch, Lsn>,
    /// Sealed epochs, whose rows are on their way to the sink.
    sealed: BTreeMap<Epoch, EpochRecord>,
    /// How far the epoch before was.
    before: BTreeMap<Epoch, EpochRecord>,
    next: Epoch,
    now: u64,
    inputs: VecDeque<Input>,
}

/// How a process ends.
enum Ended {
    Finished,
    Crashed,
    Refused,
}

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut partition = |_| {
            let mut time = 0;
            let mut next = |_| {
                time += rng.random_range(0..6);
                time
            };
            (0..60).map(&mut next).collect::<Vec<i64>>()
        };
        let rows = (0..2).map(&mut partition).collect();
        let disk = SimDisk::new(seed);
        Self { rng, disk, rows, sink: BTreeMap::new(), flaw, crashes: 0, skipped: 0 }
    }

    fn reach(&self) -> Reach {
        let span = if self.flaw == Flaw::Forgetful { WINDOW / 2 } else { WINDOW };
        Reach::Span { span, delays: vec![0; self.rows.len()] }
    }

    /// The windows that an epoch closes, of what the process has read: those that end up to its watermark and after the one before.
    fn closed(&self, begun: &[usize], record: &EpochRecord, before: Option<&EpochRecord>) -> Vec<(i64, usize)> {
        let watermark =
            |record: &EpochRecord| record.sources.iter().map(|mark| mark.watermark.0).min().unwrap_or(i64::MIN);
        let (from, to) = (before.map_or(i64::MIN, watermark), watermark(record));
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for ((mark, rows), begun) in record.sources.iter().zip(&self.rows).zip(begun) {
            for time in &rows[*begun..mark.offset.0.parse().unwrap()] {
                *counts.entry((time / WINDOW + 1) * WINDOW).or_default() += 1;
            }
        }
        counts.into_iter().filter(|(end, _)| *end > from && *end <= to).collect()
    }

    fn start(&mut self) -> Result<Process, String> {
        let (mut records, mut places) = (Vec::<EpochRecord>::new(), BTreeMap::new());
        let options = Options::disk(Arc::clone(&self.disk) as _).segment_bytes(4 << 10);
        let mut replay = |record: savanna_journal::Record| {
            let decoded: EpochRecord = serde_json::from_slice(&record.payload).map_err(|e| e.to_string())?;
            places.insert(decoded.epoch, record.lsn);
            records.push(decoded);
            Ok::<(), String>(())
        };
        let opened = SteppedJournal::open(&options, NodeEpoch(u64::from(self.crashes) + 1), &mut replay);
        let journal = opened.map_err(|e: JournalError| format!("the journal: {e}"))?;
        let held = self.sink.last_key_value().map_or(Epoch::ZERO, |(epoch, _)| *epoch);
        check(&records, self.rows.len(), "the sink", held).map_err(|e| e.to_string())?;
        let skipped = skippable(&records, held, &self.reach()).map_err(|e| e.to_string())?;
        let behind = skipped.checked_sub(1).map(|place| records[place].clone());
        let from = behind.as_ref().map_or(Epoch::ZERO, |record| record.epoch);
        self.skipped += from.0;
        let offset =
            |source: usize| behind.as_ref().map_or(0, |b: &EpochRecord| b.sources[source].offset.0.parse().unwrap());
        let begun: Vec<usize> = (0..self.rows.len()).map(offset).collect();
        let mut kept = Kept::new(self.reach(), 1);
        if let Some(record) = &behind {
            kept.note(record);
        }
        let former = records.last().map_or(Epoch::ZERO, |record| record.epoch);
        let policy =
            EpochPolicy { target: Duration::from_millis(5), min_events: 1, max_events: 1_000, fixed_events: None };
        let replay_timeout = Duration::from_secs(3_600);
        let options =
            DriverOptions { policy, max_in_flight: 3, replay_timeout, replay_limit: 1, clock_windows: Vec::new() };
        let again = |source: usize| records[skipped..].iter().map(|record| record.sources[source].clone()).collect();
        let partition = |source: usize| Partition::new(begun[source], from, again(source));
        Ok(Process {
            driver: Driver::going_on(self.rows.len(), options, from, former),
            partitions: (0..self.rows.len()).map(partition).collect(),
            journal,
            recorded: Recorded::up_to(former),
            former,
            begun,
            kept,
            places,
            sealed: BTreeMap::new(),
            before: behind.into_iter().map(|record| (record.epoch, record)).collect(),
            next: from.next(),
            now: 0,
            inputs: [Input::Start].into(),
        })
    }

    /// One process, from its start to its end.
    fn live(&mut self, may_crash: bool) -> Ended {
        let Ok(mut process) = self.start() else { return Ended::Refused };
        loop {
            if may_crash && self.rng.random_ratio(1, 60) {
                self.crashes += 1;
                drop(process);
                self.disk.crash();
                return Ended::Crashed;
            }
            if let Some(outcome) = self.step(&mut process) {
                assert_eq!(outcome, Outcome::Finished);
                return Ended::Finished;
            }
        }
    }

    /// Something of what could happen next.
    fn step(&mut self, process: &mut Process) -> Option<Outcome> {
        match self.rng.random_range(0..5) {
            0 => {
                let source = self.rng.random_range(0..process.partitions.len());
                let input = process.partitions[source].step(source, &self.rows[source], &mut self.rng);
                process.inputs.extend(input);
            }
            1 => {
                if let Step::Released { replies, outcome } = process.journal.step() {
                    for epoch in replies {
                        process
                            .recorded
                            .note(epoch, outcome.clone().map_err(|_| savanna_streams_api::StreamError::Cancelled));
                    }
                }
            }
            2 => self.commit(process),
            3 => {
                process.now += 1;
                process.inputs.push_back(Input::Tick);
            }
            _ => {}
        }
        let input = process.inputs.pop_front()?;
        self.drive(process, input)
    }

    /// The sink takes the next epoch, if it is sealed and its record is durable.
    fn commit(&mut self, process: &mut Process) {
        let epoch = process.next;
        let Some(record) = process.sealed.get(&epoch) else { return };
        if self.flaw != Flaw::Hasty && !process.recorded.allows(epoch).unwrap() {
            return;
        }
        let rows = self.closed(&process.begun, record, process.before.get(&Epoch(epoch.0 - 1)));
        let held = self.sink.last_key_value().map_or(Epoch::ZERO, |(epoch, _)| *epoch);
        if epoch > held {
            self.sink.insert(epoch, rows);
        }
        let record = process.sealed.remove(&epoch).unwrap();
        process.before.insert(epoch, record);
        process.next = epoch.next();
        process.inputs.push_back(Input::Committed { epoch });
    }

    fn drive(&mut self, process: &mut Process, input: Input) -> Option<Outcome> {
        for action in process.driver.step(input, Duration::from_millis(process.now)) {
            match action {
                Action::Open(epoch) => process.partitions.iter_mut().for_each(|partition| partition.opened = epoch),
                Action::Cut(epoch) => process.partitions.iter_mut().for_each(|partition| partition.cut = epoch),
                Action::Record(record) => {
                    if record.epoch > process.former {
                        let payload = serde_json::to_vec(&record).unwrap();
                        let lsn = process.journal.append(&[Draft { shard: 0, kind: 1, payload: &payload }]).unwrap();
                        process.journal.hold(lsn, record.epoch);
                        process.places.insert(record.epoch, lsn);
                    }
                    if let Some(first) = process.kept.note(&record) {
                        process.journal.truncate_before(process.places[&first]);
                    }
                    process.sealed.insert(record.epoch, record);
                }
                // No source here comes to have more partitions.
                Action::Join { .. } | Action::Replay(_) => {}
                Action::Stop(outcome) => return Some(outcome),
            }
        }
        None
    }

    fn truth(&self) -> Vec<(i64, usize)> {
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for time in self.rows.iter().flatten() {
            *counts.entry((time / WINDOW + 1) * WINDOW).or_default() += 1;
        }
        counts.into_iter().collect()
    }
}

/// Whether the sink holds the truth in the end, after how many crashes, and how many epochs were not read again.
fn holds(seed: u64, flaw: Flaw) -> (bool, u32, u64) {
    let mut world = World::new(seed, flaw);
    loop {
        let may_crash = world.crashes < 12;
        match world.live(may_crash) {
            Ended::Crashed => {}
            Ended::Refused => return (false, world.crashes, world.skipped),
            Ended::Finished => break,
        }
    }
    let rows: Vec<(i64, usize)> = world.sink.values().flatten().copied().collect();
    (rows == world.truth(), world.crashes, world.skipped)
}

/// Seeds that the sound variant must survive; `SAVANNA_SIM_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(400)
}

#[test]
fn each_row_is_written_once_whatever_steps_a_process_dies_between() {
    let (mut crashes, mut skipped) = (0, 0);
    for seed in 0..seeds() {
        let (right, crashed, not_read) = holds(seed, Flaw::None);
        assert!(right, "seed {seed}");
        (crashes, skipped) = (crashes + crashed, skipped + not_read);
    }
    let many = seeds() * 5 / 2;
    assert!(
        u64::from(crashes) > many && skipped > many,
        "{crashes} crashes, {skipped} epochs that were not read again"
    );
}

#[test]
fn a_sink_that_does_not_wait_for_records_is_found_out() {
    let wrong = (0..400).filter(|seed| !holds(*seed, Flaw::Hasty).0).count();
    assert!(wrong > 10, "{wrong} of 400 seeds");
}

#[test]
fn a_query_that_forgets_too_much_is_found_out() {
    let wrong = (0..400).filter(|seed| !holds(*seed, Flaw::Forgetful).0).count();
    assert!(wrong > 10, "{wrong} of 400 seeds");
}
