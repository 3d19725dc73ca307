//! Batches that are on their way to an object store beside each other: they arrive in any order, late, or never, while owners die, come after
//! each other and truncate.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    ops::Range,
    sync::{Arc, Mutex},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_epoch::NodeEpoch;
use savanna_journal::{
    Filter, Journal, JournalError, Lsn, Record, seal,
    sim::{Step, SteppedJournal},
};

use crate::{
    history::{History, append, drafts, open, wait},
    store::{Fault, Flaky, Held, at},
};

/// So many seeds, unless the environment says otherwise.
const SEEDS: u64 = 100;
/// What happens with one seed.
const ACTIONS: usize = 120;

fn seeds() -> Range<u64> {
    let count = std::env::var("SAVANNA_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    0..count.unwrap_or(SEEDS)
}

/// A process that has, or had, the log; and what it has on its way.
struct Owner {
    journal: SteppedJournal<u64>,
    /// The last record of each group that was appended, by group.
    groups: BTreeMap<u64, Lsn>,
    held: Vec<Held>,
    has_ended: bool,
}

impl Owner {
    /// Does all there is to do now.
    fn run(&mut self, store: &Flaky, history: &mut History) {
        loop {
            match self.journal.step() {
                Step::Put => self.held.extend(store.take_held(1)),
                Step::Released { replies, outcome: Ok(()) } => {
                    replies.iter().for_each(|group| history.tell(*group, self.groups[group]));
                }
                Step::Stopped(reason) => {
                    let by_older = matches!(reason, Some(JournalError::Fenced { ours, theirs }) if theirs < ours);
                    assert!(!by_older, "a number was taken by an owner before: {reason:?}");
                    self.has_ended = true;
                }
                Step::Disk | Step::Released { .. } | Step::Wait(_) => {}
                Step::Idle => return,
            }
        }
    }

    fn append(&mut self, store: &Flaky, history: &mut History, records: usize) {
        let (group, payloads) = history.next_group(records, 40);
        if let Ok(last) = self.journal.append(&drafts(&payloads)) {
            self.groups.insert(group, last);
            self.journal.hold(last, group);
            self.run(store, history);
        }
    }

    /// Hears what became of a put: that it is there, if it has landed, or that it is not known.
    fn hear(&mut self, store: &Flaky, history: &mut History, at: usize) {
        self.held.remove(at).answer();
        if !self.has_ended {
            self.journal.hear();
            self.run(store, history);
        }
    }
}

/// Owners that come after each other, the last of which has the log.
struct World {
    store: Arc<Flaky>,
    dice: ChaCha8Rng,
    history: History,
    owners: Vec<Owner>,
    /// What the last opening has seen, and so may have told.
    seen: Vec<Record>,
    truncated: Lsn,
}

impl World {
    fn new(seed: u64) -> Self {
        let (store, dice) = (Flaky::new(), ChaCha8Rng::seed_from_u64(seed));
        store.hold();
        let (history, owners, seen) = (History::default(), Vec::new(), Vec::new());
        Self { store, dice, history, owners, seen, truncated: Lsn(1) }
    }

    /// Another process opens the log.
    fn open(&mut self) {
        let mut records = Vec::new();
        let options = at(&self.store).puts(self.dice.random_range(1..=8));
        let epoch = NodeEpoch(self.owners.len() as u64 + 1);
        let journal = SteppedJournal::open(&options, epoch, &mut |record| {
            records.push(record);
            Ok::<(), Infallible>(())
        });
        let journal = journal.expect("nobody else opens it");
        self.check(&records);
        self.seen = records;
        self.owners.push(Owner { journal, groups: BTreeMap::new(), held: Vec::new(), has_ended: false });
    }

    /// What was told is there, and what was seen before: nothing else has come in between, and nothing is gone.
    fn check(&self, records: &[Record]) {
        self.history.check(records, self.truncated).unwrap_or_else(|error| panic!("{error}"));
        let first = records.first().map_or(Lsn(u64::MAX), |record| record.lsn);
        let before: Vec<_> = self.seen.iter().filter(|record| record.lsn >= first.max(self.truncated)).collect();
        let now: Vec<_> = records.iter().filter(|record| record.lsn >= self.truncated).take(before.len()).collect();
        let is_kept = before.iter().zip(&now).all(|(before, now)| before == now) && now.len() == before.len();
        assert!(records.is_empty() || is_kept, "what an opening has seen is something else by now");
    }

    /// Some put that is on its way, of some owner.
    fn some_put(&mut self, has_landed: bool) -> Option<(usize, usize)> {
        let puts = self.owners.iter().enumerate().flat_map(|(owner, found)| {
            let held = found.held.iter().enumerate().filter(|(_, held)| held.has_landed() == has_landed);
            held.map(move |(at, _)| (owner, at))
        });
        let puts: Vec<_> = puts.collect();
        (!puts.is_empty()).then(|| puts[self.dice.random_range(0..puts.len())])
    }

    fn act(&mut self) {
        let (store, newest) = (Arc::clone(&self.store), self.owners.len() - 1);
        match self.dice.random_range(0..100) {
            0..35 => {
                let records = self.dice.random_range(1..4);
                // One that was replaced need not know.
                let owner = if self.dice.random_ratio(1, 8) { self.dice.random_range(0..=newest) } else { newest };
                if !self.owners[owner].has_ended {
                    self.owners[owner].append(&store, &mut self.history, records);
                }
            }
            35..65 => {
                if let Some((owner, at)) = self.some_put(false) {
                    self.owners[owner].held[at].land(&store);
                }
            }
            65..90 => {
                if let Some((owner, at)) = self.some_put(true) {
                    self.owners[owner].hear(&store, &mut self.history, at);
                }
            }
            90..93 => {
                if let Some((owner, at)) = self.some_put(false) {
                    // The request failed, as far as is known: it may still arrive.
                    let lost = self.owners[owner].held[at].copy();
                    self.owners[owner].hear(&store, &mut self.history, at);
                    self.owners[owner].held.push(lost);
                }
            }
            93..97 => {
                let owner = &mut self.owners[newest];
                if !owner.has_ended {
                    let durable = owner.journal.durable();
                    let oldest = Lsn(self.dice.random_range(self.truncated.0..=durable.0.max(self.truncated.0)));
                    owner.journal.truncate_before(oldest);
                    self.truncated = oldest;
                    owner.run(&store, &mut self.history);
                }
            }
            _ => self.open(),
        }
    }

    /// Ends the log; then all that is on its way arrives, and who is still there hears of it.
    fn end(mut self) {
        let epoch = NodeEpoch(self.owners.len() as u64 + 1);
        let sealed = seal(&at(&self.store), epoch).expect("nobody else has it");
        let read = |filter: &Filter| {
            let mut records = Vec::new();
            sealed.read(filter, &mut |record| {
                records.push(record);
                Ok::<(), Infallible>(())
            })?;
            Ok::<_, JournalError>(records)
        };
        let records = read(&Filter::default()).expect("read");
        self.check(&records);
        while let Some((owner, at)) = self.some_put(false) {
            self.owners[owner].held[at].land(&self.store);
        }
        let store = Arc::clone(&self.store);
        while let Some((owner, at)) = self.some_put(true) {
            self.owners[owner].hear(&store, &mut self.history, at);
        }
        assert_eq!(read(&Filter::default()).expect("read"), records, "nothing is added to a sealed log");
        self.check(&records);
        assert_eq!(seal(&at(&self.store), NodeEpoch(1)).expect("it has ended").last(), sealed.last());
        assert!(matches!(open(at(&self.store), epoch.0 + 1), Err(JournalError::Sealed { .. })));
        sealed.empty().expect("emptied");
        assert_eq!(seal(&at(&self.store), NodeEpoch(1)).expect("it has ended").last(), sealed.last());
    }
}

#[test]
fn nothing_that_was_told_is_lost_and_nothing_comes_back_whenever_it_arrives() {
    for seed in seeds() {
        let run = || {
            let mut world = World::new(seed);
            world.open();
            for _ in 0..ACTIONS {
                world.act();
            }
            world.end();
        };
        let ran = std::panic::catch_unwind(run);
        assert!(ran.is_ok(), "seed {seed} (run with SAVANNA_SEEDS={} to come to it)", seed + 1);
    }
}

/// Opens the log and appends groups of one record, so that their puts are on their way beside each other.
fn underway(store: &Arc<Flaky>, history: &mut History, groups: usize) -> Owner {
    let journal = SteppedJournal::open(&at(store), NodeEpoch(1), &mut |_| Ok::<(), Infallible>(()));
    let journal = journal.expect("opened");
    store.hold();
    let mut owner = Owner { journal, groups: BTreeMap::new(), held: Vec::new(), has_ended: false };
    (0..groups).for_each(|_| owner.append(store, history, 1));
    assert_eq!(owner.held.len(), groups.min(8), "so many are on their way at once");
    owner
}

#[test]
fn whichever_puts_arrive_a_log_ends_before_the_first_hole() {
    for landed in 0..1_u32 << 8 {
        for seals in [false, true] {
            let (store, mut history) = (Flaky::new(), History::default());
            let mut owner = underway(&store, &mut history, 8);
            for at in (0..8).filter(|at| landed & 1 << at != 0) {
                owner.held[at].land(&store);
            }
            let expected = Lsn(u64::from(landed.trailing_ones()));
            if seals {
                assert_eq!(seal(&at(&store), NodeEpoch(2)).expect("sealed").last(), expected, "{landed:b}");
            } else {
                let (journal, records) = open(at(&store), 2).expect("opened");
                assert_eq!((records.len() as u64, journal.appended()), (expected.0, expected), "{landed:b}");
            }
            // The others arrive late, and the owner hears of all.
            owner.held.iter_mut().filter(|held| !held.has_landed()).for_each(|held| held.land(&store));
            while !owner.held.is_empty() {
                owner.hear(&store, &mut history, 0);
            }
            assert_eq!((history.told() as u64, owner.has_ended), (expected.0, expected.0 < 8), "{landed:b}");
            let end = seal(&at(&store), NodeEpoch(3)).expect("sealed").last();
            assert_eq!(end, expected, "{landed:b}: what arrives late counts for nothing");
        }
    }
}

#[test]
fn an_owner_goes_on_behind_what_may_arrive_late() {
    let (store, mut history) = (Flaky::new(), History::default());
    let mut former = underway(&store, &mut history, 8);
    former.held[0].land(&store);
    former.held[2].land(&store);
    let mut owner = {
        let mut records = 0;
        let journal = SteppedJournal::open(&at(&store), NodeEpoch(2), &mut |_| {
            records += 1;
            Ok::<(), Infallible>(())
        });
        assert_eq!(records, 1);
        Owner { journal: journal.expect("opened"), groups: BTreeMap::new(), held: Vec::new(), has_ended: false }
    };
    for _ in 0..8 {
        owner.append(&store, &mut history, 2);
    }
    former.held.iter_mut().filter(|held| !held.has_landed()).for_each(|held| held.land(&store));
    owner.held.iter_mut().for_each(|held| held.land(&store));
    while !owner.held.is_empty() {
        owner.hear(&store, &mut history, 0);
    }
    assert_eq!(history.told(), 8);
    let (_, records) = open(at(&store), 3).expect("opened");
    history.check(&records, Lsn(1)).expect("the log");
    assert_eq!(records.len(), 17);
}

/// Appends groups of one record, each of which is told before the next.
fn add(owner: &Journal, history: &mut History, count: usize) {
    for _ in 0..count {
        let (group, payloads) = history.next_group(1, 40);
        let lsn = owner.append(&drafts(&payloads)).expect("accepted");
        wait(owner, lsn).expect("durable");
        history.tell(group, lsn);
    }
}

#[test]
fn a_fence_that_came_too_late_and_was_left_there_is_void() {
    for passed in [1, 2, 3, 7, 8, 9, 20] {
        for (cut, behind, later) in [(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 8), (1, 0, 0), (1, 0, 1)] {
            let (store, history) = (Flaky::new(), Arc::new(Mutex::new(History::default())));
            let owner = Arc::new(open(at(&store), 1).expect("opened").0);
            add(&owner, &mut history.lock().expect("not poisoned"), 2);
            {
                // The next opening has looked; it is overtaken, and dies when it has put its fence.
                let (owner, history, log) = (Arc::clone(&owner), Arc::clone(&history), Arc::clone(&store));
                store.before_next_put(move || {
                    let mut history = history.lock().expect("not poisoned");
                    let before = log.objects();
                    add(&owner, &mut history, passed);
                    // All of it, or all but the last record.
                    owner.truncate_before(Lsn(owner.durable().0 + cut)).expect("accepted");
                    add(&owner, &mut history, behind);
                    while log.objects().iter().filter(|object| before.contains(object)).count() > 1 {
                        // Only the fence of the owner is left of them.
                        std::thread::yield_now();
                    }
                    log.fail(2, Fault::Refused);
                });
            }
            open(at(&store), 2).map(drop).expect_err("it dies");
            let mut history = history.lock().expect("not poisoned");
            add(&owner, &mut history, later);
            let oldest = Lsn(2 + passed as u64 + cut);
            // The next one truncates again, so that those after it know of it by its fence alone.
            for epoch in 3..6 {
                let (journal, records) = open(at(&store), epoch).expect("opened");
                history
                    .check(&records, oldest)
                    .unwrap_or_else(|error| panic!("{passed} {behind} {later} {epoch}: {error}"));
                assert!(
                    wait(&owner, append(&owner, b"late").unwrap_or(Lsn(u64::MAX))).is_err(),
                    "{passed} {behind} {later}"
                );
                add(&journal, &mut history, 1);
                journal.truncate_before(oldest).expect("accepted");
                journal.close().expect("closed");
            }
        }
    }
}
