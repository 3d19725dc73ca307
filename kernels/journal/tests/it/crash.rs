//! Nothing undurable is told: the process or the machine ends after any step, and whoever was told finds it again.

use std::{convert::Infallible, sync::Arc};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::NodeEpoch;
use savanna_journal::{
    Disk, Lsn, Record,
    sim::{Fault, SimDisk, Step, SteppedJournal},
};

use crate::history::{History, drafts, on};

/// When a reply leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Through the journal's gate.
    Held,
    /// Broken on purpose: as soon as the append returns.
    None,
}

/// What the disk does when it is told to sync.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Syncs {
    Work,
    /// Broken on purpose.
    Lie,
}

/// A run of several boots; each appends, steps and ends somewhere. The error says what was told and is not there.
struct Checker {
    disk: Arc<SimDisk>,
    /// Where it is noted how far the log was durable. A note that says too much keeps the log from opening.
    notes: Arc<SimDisk>,
    rng: ChaCha8Rng,
    gate: Gate,
    history: History,
    epoch: u64,
}

impl Checker {
    fn new(seed: u64, gate: Gate, syncs: Syncs) -> Self {
        let disk = SimDisk::new(seed);
        disk.set_lying_syncs(syncs == Syncs::Lie);
        disk.set_short_writes(seed.is_multiple_of(3));
        let notes = SimDisk::new(seed + 1);
        Self { disk, notes, rng: ChaCha8Rng::seed_from_u64(seed ^ 0x5eed), gate, history: History::default(), epoch: 0 }
    }

    /// Opens under the next epoch and checks what is there; `None` if the disk failed meanwhile.
    fn open(&mut self, may_fail: bool) -> Result<Option<SteppedJournal<u64>>, String> {
        self.epoch += 1;
        let mut records: Vec<Record> = Vec::new();
        let options = on(&self.disk).high_water(Arc::clone(&self.notes) as Arc<dyn Disk>);
        let opened = SteppedJournal::open(&options, NodeEpoch(self.epoch), &mut |record| {
            records.push(record);
            Ok::<(), Infallible>(())
        });
        match opened {
            Ok(journal) => self.history.check(&records, Lsn(1)).map(|()| Some(journal)),
            Err(_) if may_fail => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn append(&mut self, journal: &mut SteppedJournal<u64>) {
        let records = self.rng.random_range(1..=3);
        let size = self.rng.random_range(16..700);
        let (group, payloads) = self.history.next_group(records, size);
        if let Ok(last) = journal.append(&drafts(&payloads)) {
            match self.gate {
                Gate::Held => journal.hold(last, group),
                Gate::None => self.history.tell(group, last),
            }
        }
    }

    /// One step of the journal; whether there may be more.
    fn step(&mut self, journal: &mut SteppedJournal<u64>, lsn_of: &dyn Fn(u64) -> Option<Lsn>) -> bool {
        match journal.step() {
            Step::Released { replies, outcome: Ok(()) } => {
                for group in replies {
                    self.history.tell(group, lsn_of(group).expect("it was appended in this boot"));
                }
                true
            }
            Step::Idle | Step::Stopped(_) => false,
            _ => true,
        }
    }

    /// Appends and steps in turn, `steps` steps long, then ends the process, and perhaps the machine.
    fn boot(&mut self, steps: usize, with_faults: bool) -> Result<(), String> {
        if with_faults && self.rng.random_bool(0.3) {
            let fault = [Fault::Error, Fault::PowerCut, Fault::Full, Fault::Short][self.rng.random_range(0..4)];
            let nth = self.rng.random_range(1..40);
            self.disk.fail(nth, fault);
        }
        let Some(mut journal) = self.open(with_faults)? else {
            self.crash();
            return Ok(());
        };
        let mut lsns = std::collections::BTreeMap::new();
        for _ in 0..steps {
            if self.rng.random_bool(0.3) {
                self.append(&mut journal);
                // The group that was appended last ends at the newest LSN.
                lsns.insert(self.history.appended(), journal.appended());
            }
            self.step(&mut journal, &|group| lsns.get(&group).copied());
        }
        drop(journal);
        // A process may die without the machine; then what it wrote stays readable, synced or not.
        if self.rng.random_bool(0.7) {
            self.crash();
        }
        Ok(())
    }

    fn crash(&self) {
        self.disk.crash();
        self.notes.crash();
    }

    fn finish(mut self) -> Result<usize, String> {
        self.crash();
        self.open(false)?;
        Ok(self.history.told())
    }
}

/// Every length of the first boot's script; two boots more follow.
fn crash_after_each_step(seed: u64, gate: Gate, syncs: Syncs) -> Result<usize, String> {
    let mut told = 0;
    for steps in 0..40 {
        let mut checker = Checker::new(seed, gate, syncs);
        let result =
            checker.boot(steps, false).and_then(|()| checker.boot(steps / 2, false)).and_then(|()| checker.finish());
        told += result.map_err(|error| format!("seed {seed}, {steps} steps: {error}"))?;
    }
    Ok(told)
}

fn crash_with_faults(seed: u64) -> Result<usize, String> {
    let mut checker = Checker::new(seed, Gate::Held, Syncs::Work);
    for _ in 0..5 {
        let steps = checker.rng.random_range(0..80);
        checker.boot(steps, true).map_err(|error| format!("seed {seed}: {error}"))?;
    }
    checker.crash();
    checker.finish().map_err(|error| format!("seed {seed}: {error}"))
}

#[test]
fn nobody_is_told_what_a_crash_takes_back() {
    let mut told = 0;
    for seed in 0..150 {
        told += crash_after_each_step(seed, Gate::Held, Syncs::Work).unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(told > 1000, "the checker saw too little: {told} replies");
}

#[test]
fn nobody_is_told_what_a_failing_disk_takes_back() {
    let mut told = 0;
    for seed in 0..2000 {
        told += crash_with_faults(seed).unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(told > 1000, "the checker saw too little: {told} replies");
}

#[test]
fn the_checker_finds_replies_that_do_not_wait_in_the_gate() {
    let found = (0..10).find_map(|seed| crash_after_each_step(seed, Gate::None, Syncs::Work).err());
    let found = found.expect("a journal without the gate must be found out");
    assert!(found.contains("was told at LSN"), "{found}");
}

#[test]
fn the_checker_finds_a_disk_that_does_not_sync() {
    let found = (0..10).find_map(|seed| crash_after_each_step(seed, Gate::Held, Syncs::Lie).err());
    found.expect("a disk that does not sync must be found out");
}
