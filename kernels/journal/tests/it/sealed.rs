//! Logs that are ended by somebody else than their owner, and read by several.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use savanna_epoch::NodeEpoch;
use savanna_journal::{
    Disk, Draft, Filter, JournalError, Lsn, Options, OsDisk, Record, SealedLog, seal,
    sim::{Fault, SimDisk, Step, SteppedJournal},
};

use crate::{
    history::{History, SEGMENT_BYTES, append, drafts, on, open, wait},
    interposed::{Interposed, Operation, Then},
};

/// The epoch of the controller.
const CONTROL: NodeEpoch = NodeEpoch(2);

fn read(options: &Options, filter: &Filter) -> Result<Vec<Record>, JournalError> {
    records_of(&seal(options, CONTROL)?, filter)
}

/// Reads without sealing again, which would mend an end that was lost.
fn records_of(sealed: &SealedLog, filter: &Filter) -> Result<Vec<Record>, JournalError> {
    let mut records = Vec::new();
    sealed.read(filter, &mut |record| {
        records.push(record);
        Ok::<(), Infallible>(())
    })?;
    Ok(records)
}

fn read_all(options: &Options) -> Result<Vec<Record>, JournalError> {
    read(options, &Filter::default())
}

/// A log of several segments whose owner has died, with its last batch durable or not.
fn dead_owners_log(disk: &Arc<SimDisk>) -> (History, Lsn) {
    let mut history = History::default();
    let (journal, _) = open(on(disk), 1).expect("opened");
    for (records, size) in [(1, 20), (3, 200), (2, 900), (1, 2000), (4, 16), (2, 1200), (1, 40)] {
        let (group, payloads) = history.next_group(records, size);
        let lsn = journal.append(&drafts(&payloads)).expect("accepted");
        wait(&journal, lsn).expect("durable");
        history.tell(group, lsn);
    }
    let truncated = Lsn(6);
    journal.truncate_before(truncated).expect("it is durable");
    journal.close().expect("closed");
    // The end that a closed log has is not there when its owner is killed.
    let mut owner = SteppedJournal::open(&on(disk), NodeEpoch(1), &mut |_| Ok::<(), Infallible>(())).expect("opened");
    for _ in 0..3 {
        let (group, payloads) = history.next_group(2, 300);
        let lsn = owner.append(&drafts(&payloads)).expect("accepted");
        owner.hold(lsn, group);
        // Of the last group, what is written is not flushed.
        let mut steps = if group == history.appended() && group.is_multiple_of(10) { 2 } else { usize::MAX };
        while steps > 0 {
            steps -= 1;
            match owner.step() {
                Step::Idle => break,
                Step::Released { replies, outcome } => {
                    outcome.expect("durable");
                    replies.iter().for_each(|group| history.tell(*group, lsn));
                }
                _ => {}
            }
        }
    }
    (history, truncated)
}

#[test]
fn whichever_step_of_sealing_fails_it_is_sealed_by_the_next_and_has_what_was_durable() {
    let undisturbed = SimDisk::new(0);
    dead_owners_log(&undisturbed);
    let before = undisturbed.operations();
    let all = {
        let copy = undisturbed.copy(1);
        open(on(&copy), 9).expect("opened").1
    };
    seal(&on(&undisturbed), CONTROL).expect("sealed");
    let steps = undisturbed.operations() - before;
    assert!(steps > 12, "sealing does too little: {steps}");
    assert_eq!(read_all(&on(&undisturbed)).expect("read"), all, "it is what the next owner would have found");
    for fault in [Fault::Error, Fault::Full, Fault::Short, Fault::PowerCut] {
        for nth in 1..=steps {
            for crash in [false, true] {
                let context = format!("step {nth} of {steps}: {fault:?}, then crash: {crash}");
                let disk = SimDisk::new(nth);
                let (history, truncated) = dead_owners_log(&disk);
                disk.fail(nth, fault);
                let first = seal(&on(&disk), CONTROL);
                if fault == Fault::PowerCut || crash {
                    disk.crash();
                }
                // What was sealed is read as it is, and not sealed again before.
                let sealed = first
                    .unwrap_or_else(|_| seal(&on(&disk), CONTROL).unwrap_or_else(|error| panic!("{context}: {error}")));
                let records =
                    records_of(&sealed, &Filter::default()).unwrap_or_else(|error| panic!("{context}: {error}"));
                history.check(&records, truncated).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(records.last().expect("there").lsn, sealed.last(), "{context}");
                let again = seal(&on(&disk), CONTROL).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(again.last(), sealed.last(), "{context}: what was sealed has grown or shrunk");
                if !(fault == Fault::PowerCut || crash) {
                    assert_eq!(records, all, "{context}");
                }
            }
        }
    }
}

/// The owner goes `steps` steps; then the log is sealed, and before the `interrupted`-th operation of that the owner goes on until it can do
/// nothing more. The records that were read at once, and those after the owner came to its end.
fn seal_under_an_owner(steps: usize, interrupted: usize, crash: bool) -> Result<bool, String> {
    let disk = SimDisk::new(steps as u64 * 1000 + interrupted as u64);
    let history = Arc::new(Mutex::new(History::default()));
    let owner = Owner::open(&disk, &history);
    let owner = Arc::new(Mutex::new(owner));
    for _ in 0..steps {
        owner.lock().expect("not poisoned").step();
    }
    let count = Arc::new(AtomicUsize::new(0));
    let interposed = {
        let (owner, count) = (Arc::clone(&owner), Arc::clone(&count));
        Interposed::new(Arc::clone(&disk) as Arc<dyn Disk>, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) + 1 == interrupted {
                let mut owner = owner.lock().expect("not poisoned");
                while owner.step() {}
            }
            Then::Go
        })
    };
    let options = Options::disk(interposed).segment_bytes(SEGMENT_BYTES);
    let sealed = seal(&options, CONTROL).map_err(|error| error.to_string())?;
    let was_interrupted = count.load(Ordering::Relaxed) >= interrupted;
    let read = || records_of(&sealed, &Filter::default()).map_err(|error| error.to_string());
    let at_once = read()?;
    let truncated = owner.lock().expect("not poisoned").truncated;
    history.lock().expect("not poisoned").check(&at_once, truncated)?;
    while owner.lock().expect("not poisoned").step() {}
    let told = owner.lock().expect("not poisoned").told_after_the_end(sealed.last());
    if let Some(lsn) = told {
        return Err(format!("LSN {lsn} was told behind the end at {}", sealed.last()));
    }
    if crash {
        disk.crash();
    }
    let later = read()?;
    if later != at_once {
        return Err(format!("{} records became {}", at_once.len(), later.len()));
    }
    // All of it may have been truncated.
    let last = later.last().map_or_else(|| sealed.last(), |record| record.lsn);
    if last != sealed.last() {
        return Err(format!("it ends at LSN {last} instead of {}", sealed.last()));
    }
    Ok(was_interrupted)
}

/// A living owner of a log that is sealed.
struct Owner {
    journal: SteppedJournal<u64>,
    history: Arc<Mutex<History>>,
    lsns: BTreeMap<u64, Lsn>,
    told: Vec<Lsn>,
    to_append: usize,
    /// What is before this need not be there.
    truncated: Lsn,
}

impl Owner {
    fn open(disk: &Arc<SimDisk>, history: &Arc<Mutex<History>>) -> Self {
        let journal = SteppedJournal::open(&on(disk), NodeEpoch(1), &mut |_| Ok::<(), Infallible>(()));
        let journal = journal.expect("opened");
        Self {
            journal,
            history: Arc::clone(history),
            lsns: BTreeMap::new(),
            told: Vec::new(),
            to_append: 8,
            truncated: Lsn(1),
        }
    }

    /// One step; appends when there is nothing else to do. Whether there may be more.
    fn step(&mut self) -> bool {
        match self.journal.step() {
            Step::Idle if self.to_append > 0 => {
                self.to_append -= 1;
                if self.to_append.is_multiple_of(3) {
                    self.truncated = self.journal.durable().next();
                    self.journal.truncate_before(self.truncated);
                }
                let (group, payloads) = self.history.lock().expect("not poisoned").next_group(2, 500);
                if let Ok(lsn) = self.journal.append(&drafts(&payloads)) {
                    self.lsns.insert(group, lsn);
                    self.journal.hold(lsn, group);
                }
                true
            }
            Step::Idle => false,
            Step::Stopped(reason) => {
                let is_fenced = matches!(reason, Some(JournalError::Fenced { theirs: CONTROL, .. }));
                assert!(is_fenced, "{reason:?}");
                self.to_append = 0;
                false
            }
            Step::Released { replies, outcome: Ok(()) } => {
                let mut history = self.history.lock().expect("not poisoned");
                for group in replies {
                    history.tell(group, self.lsns[&group]);
                    self.told.push(self.lsns[&group]);
                }
                true
            }
            _ => true,
        }
    }

    fn told_after_the_end(&self, end: Lsn) -> Option<Lsn> {
        self.told.iter().copied().find(|lsn| *lsn > end)
    }
}

#[test]
fn an_owner_that_lives_tells_nobody_what_the_sealed_log_does_not_have_and_adds_nothing_to_it() {
    let mut runs = 0;
    for steps in 0..60 {
        for interrupted in 1.. {
            for crash in [false, true] {
                let went_on = seal_under_an_owner(steps, interrupted, crash).unwrap_or_else(|error| {
                    panic!("after {steps} steps, at operation {interrupted}, crash {crash}: {error}")
                });
                runs += 1;
                if !went_on && crash {
                    break;
                }
            }
            if interrupted > 30 {
                break;
            }
        }
    }
    assert!(runs > 1500, "{runs}");
}

#[test]
fn sealing_again_finds_the_same_end_and_changes_nothing() {
    let disk = SimDisk::new(1);
    dead_owners_log(&disk);
    let first = seal(&on(&disk), CONTROL).expect("sealed");
    let files = disk.files();
    for epoch in [1, 2, 7] {
        assert_eq!(seal(&on(&disk), NodeEpoch(epoch)).expect("sealed").last(), first.last());
    }
    assert_eq!(disk.files(), files);
}

#[test]
fn of_two_that_seal_at_once_both_have_the_same_end() {
    let mut interrupted_runs = 0;
    for steps in [12, 13, 14, 15, 16] {
        for interrupted in 1..40 {
            let disk = SimDisk::new(interrupted as u64);
            let history = Arc::new(Mutex::new(History::default()));
            let owner = Arc::new(Mutex::new(Owner::open(&disk, &history)));
            for _ in 0..steps {
                owner.lock().expect("not poisoned").step();
            }
            let other = Arc::new(Mutex::new(None));
            let count = AtomicUsize::new(0);
            let interposed = {
                let (disk, other, owner) = (Arc::clone(&disk), Arc::clone(&other), Arc::clone(&owner));
                Interposed::new(Arc::clone(&disk) as Arc<dyn Disk>, move |_| {
                    if count.fetch_add(1, Ordering::Relaxed) + 1 == interrupted {
                        // The owner's batch becomes whole between the two, and again before they end.
                        owner.lock().expect("not poisoned").step();
                        *other.lock().expect("not poisoned") = Some(seal(&on(&disk), CONTROL).expect("sealed").last());
                        while owner.lock().expect("not poisoned").step() {}
                    }
                    Then::Go
                })
            };
            let options = Options::disk(interposed).segment_bytes(SEGMENT_BYTES);
            let last = seal(&options, CONTROL).unwrap_or_else(|error| panic!("{steps}, {interrupted}: {error}")).last();
            let records = read_all(&on(&disk)).unwrap_or_else(|error| panic!("{steps}, {interrupted}: {error}"));
            let truncated = owner.lock().expect("not poisoned").truncated;
            history.lock().expect("not poisoned").check(&records, truncated).expect("what was told is there");
            assert!(records.last().is_none_or(|record| record.lsn == last), "{steps}, {interrupted}");
            let other = other.lock().expect("not poisoned").take();
            if let Some(other) = other {
                interrupted_runs += 1;
                assert_eq!(other, last, "after {steps} steps, at operation {interrupted}");
            }
        }
    }
    assert!(interrupted_runs > 60, "{interrupted_runs}");
}

#[test]
fn one_that_began_to_seal_and_wakes_up_when_another_has_ended_the_log_changes_nothing() {
    // The first seals to the end but for its last steps, the second is abandoned after its fence, the third ends the log.
    let disk = SimDisk::new(3);
    dead_owners_log(&disk);
    let first = seal(&on(&disk), CONTROL).expect("sealed");
    let before = read_all(&on(&disk)).expect("read");
    disk.put("fence-00000000000000000002-0000000007", b"");
    let again = seal(&on(&disk), CONTROL).expect("sealed");
    assert_eq!(again.last(), first.last());
    assert_eq!(read_all(&on(&disk)).expect("read"), before);
}

#[test]
fn a_sealed_log_is_opened_by_nobody_and_stays_sealed() {
    let disk = SimDisk::new(1);
    dead_owners_log(&disk);
    let last = seal(&on(&disk), CONTROL).expect("sealed").last();
    for epoch in [1, 2, 9] {
        let error = open(on(&disk), epoch).map(|_| ()).expect_err("refused");
        assert!(matches!(&error, JournalError::Sealed { last: end, .. } if *end == last), "{error}");
    }
    // Also by one that has looked before it was sealed.
    let disk = SimDisk::new(2);
    dead_owners_log(&disk);
    for interrupted in 1..20 {
        let copy = disk.copy(interrupted);
        let count = AtomicUsize::new(0);
        let (sealing, sealed) = (Arc::clone(&copy), Arc::new(Mutex::new(None)));
        let first = Arc::clone(&sealed);
        let interposed = Interposed::new(Arc::clone(&copy) as Arc<dyn Disk>, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) as u64 + 1 == interrupted {
                *first.lock().expect("not poisoned") = Some(seal(&on(&sealing), CONTROL).map(|sealed| sealed.last()));
            }
            Then::Go
        });
        let opened = open(Options::disk(interposed).segment_bytes(SEGMENT_BYTES), 2);
        let usable = opened.and_then(|(journal, _)| wait(&journal, append(&journal, b"x")?));
        let sealed = sealed.lock().expect("not poisoned").take().expect("sealing was tried");
        assert!(usable.is_ok() != sealed.is_ok(), "at operation {interrupted}: {usable:?}, {sealed:?}");
        let records = read_all(&on(&copy)).expect("read");
        let end = records.last().expect("there");
        match sealed {
            Ok(last) => assert_eq!(end.lsn, last),
            Err(_) => assert_eq!(&end.payload[..], b"x", "it has what the new owner wrote"),
        }
    }
}

#[test]
fn an_empty_log_can_be_sealed_and_one_that_a_newer_owner_has_cannot() {
    let disk = SimDisk::new(1);
    open(on(&disk), 1).expect("opened").0.close().expect("closed");
    let empty = seal(&on(&disk), NodeEpoch(1)).expect("sealed");
    assert_eq!(empty.last(), Lsn::NONE);
    assert!(read_all(&on(&disk)).expect("read").is_empty());
    let disk = SimDisk::new(1);
    dead_owners_log(&disk);
    assert!(matches!(seal(&on(&disk), NodeEpoch(0)), Err(JournalError::NoEpoch)));
    let (_newer, _) = open(on(&disk), 5).expect("taken over");
    let error = seal(&on(&disk), CONTROL).expect_err("a newer owner has it");
    assert!(matches!(error, JournalError::Fenced { ours: CONTROL, theirs: NodeEpoch(5) }), "{error}");
}

#[test]
fn several_read_at_once_each_its_own_shards_and_nobody_has_all_of_it_in_memory() {
    let disk = SimDisk::new(1);
    dead_owners_log(&disk);
    seal(&on(&disk), CONTROL).expect("sealed");
    let all = read_all(&on(&disk)).expect("read");
    let files = disk.files();
    let parts: Vec<Vec<Record>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|shard| {
                let disk = Arc::clone(&disk);
                scope.spawn(move || {
                    let filter = Filter { stream: None, shards: Some(vec![shard]) };
                    read(&on(&disk), &filter).expect("read")
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().expect("read")).collect()
    });
    assert_eq!(disk.files(), files, "reading changes nothing");
    for (shard, part) in (0..).zip(&parts) {
        let expected: Vec<&Record> = all.iter().filter(|record| record.shard == shard).collect();
        assert_eq!(part.iter().collect::<Vec<_>>(), expected);
        assert!(!part.is_empty());
    }
    // The first records come before the last segment is read.
    let reads = Arc::new(AtomicUsize::new(0));
    let counting = {
        let reads = Arc::clone(&reads);
        Interposed::new(Arc::clone(&disk) as Arc<dyn Disk>, move |operation| {
            reads.fetch_add(usize::from(operation == Operation::Read), Ordering::Relaxed);
            Then::Go
        })
    };
    let sealed = seal(&Options::disk(counting), CONTROL).expect("found");
    reads.store(0, Ordering::Relaxed);
    let mut at = Vec::new();
    let read = sealed.read(&Filter::default(), &mut |_| {
        at.push(reads.load(Ordering::Relaxed));
        Ok::<(), Infallible>(())
    });
    read.expect("read");
    at.dedup();
    assert!(at.len() > 2, "the segments were read before their records came: {at:?}");
}

#[test]
fn what_a_killed_owner_had_staged_is_in_the_sealed_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let patient = std::time::Duration::from_secs(3600);
    let options = || Options::dir(dir.path()).patience(patient);
    let (journal, _) = open(options(), 1).expect("opened");
    wait(&journal, append(&journal, b"durable").expect("accepted")).expect("durable");
    let draft = Draft { shard: 1, kind: 1, payload: b"staged" };
    let staged = journal.append_staged(&[draft]).expect("accepted");
    assert!(journal.survives(staged) && journal.durable() < staged);
    // As if it were killed: it neither flushes nor closes.
    std::mem::forget(journal);
    assert_eq!(seal(&options(), CONTROL).expect("sealed").last(), staged);
    let records = read_all(&options()).expect("read");
    assert_eq!(records.iter().map(|record| &record.payload[..]).collect::<Vec<_>>(), [&b"durable"[..], b"staged"]);
}

/// An owner stages records and looks whether they may be told, `before` the operations of sealing and at the `interrupted`-th of them.
fn stage_under_a_seal(before: bool, interrupted: usize) -> bool {
    let disk = SimDisk::new(interrupted as u64);
    let owner = on(&disk).patience(std::time::Duration::from_secs(3600));
    let owner = Arc::new(open(owner, 1).expect("opened").0);
    let told = Arc::new(Mutex::new(Vec::new()));
    let stage = {
        let (owner, told) = (Arc::clone(&owner), Arc::clone(&told));
        move || {
            let lsn = owner.append_staged(&[Draft { shard: 1, kind: 1, payload: b"staged" }]).expect("accepted");
            if owner.survives(lsn) {
                told.lock().expect("not poisoned").push(lsn);
            }
        }
    };
    if before {
        stage();
    }
    let count = Arc::new(AtomicUsize::new(0));
    let interposed = {
        let (count, stage) = (Arc::clone(&count), stage.clone());
        Interposed::new(Arc::clone(&disk) as Arc<dyn Disk>, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) + 1 == interrupted {
                stage();
            }
            Then::Go
        })
    };
    let last = seal(&Options::disk(interposed).segment_bytes(SEGMENT_BYTES), CONTROL).expect("sealed").last();
    stage();
    let told = told.lock().expect("not poisoned");
    assert!(!before || told.contains(&Lsn(1)), "what was staged in time is told");
    let lost: Vec<&Lsn> = told.iter().filter(|lsn| **lsn > last).collect();
    assert!(lost.is_empty(), "at operation {interrupted}: {lost:?} were told behind the end at {last}");
    count.load(Ordering::Relaxed) >= interrupted
}

#[test]
fn what_an_owner_stages_while_its_log_is_sealed_is_told_only_if_the_sealed_log_has_it() {
    for before in [false, true] {
        let runs = (1..).take_while(|interrupted| stage_under_a_seal(before, *interrupted)).count();
        assert!(runs > 12, "{runs}");
    }
}

#[test]
fn a_place_without_a_log_is_not_taken_for_an_empty_one() {
    let disk = SimDisk::new(1);
    let error = seal(&on(&disk), CONTROL).expect_err("there is nothing");
    assert!(error.to_string().starts_with("expected a log in sim:/, found none"), "{error}");
    assert!(disk.files().is_empty(), "it is left as it is");
    // What was sealed and is gone, in part or as a whole, or is another log by now.
    dead_owners_log(&disk);
    let sealed = seal(&on(&disk), CONTROL).expect("sealed");
    let names: Vec<String> = disk.files().into_iter().map(|(name, _)| name).collect();
    let read = || sealed.read(&Filter::default(), &mut |_| Ok::<(), Infallible>(()));
    read().expect("read");
    for name in names.iter().rev().filter(|name| name.starts_with("segment-")) {
        disk.remove(name).expect("removed");
        let error = read().expect_err("it is not whole");
        assert!(matches!(error, JournalError::Replaced { last, .. } if last == sealed.last()), "{name}: {error}");
    }
    names.iter().filter(|name| !name.starts_with("segment-")).for_each(|name| disk.remove(name).expect("removed"));
    open(on(&disk), 1).expect("opened").0.close().expect("closed");
    seal(&on(&disk), CONTROL).expect("sealed");
    let error = read().expect_err("another log").to_string();
    assert!(error.contains("found an end at LSN 0"), "{error}");
}

#[test]
fn where_no_directory_is_none_is_made_by_who_looks_for_a_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, notes) = (dir.path().join("a").join("log"), dir.path().join("notes"));
    let options = Options::dir(&log).high_water(Arc::new(OsDisk::new(&notes)) as Arc<dyn Disk>);
    let error = seal(&options, CONTROL).expect_err("there is nothing");
    assert!(matches!(error, JournalError::NoLog { .. }), "{error}");
    assert!(!dir.path().join("a").exists() && !notes.exists(), "something was made");
    open(options.clone(), 1).expect("opened").0.close().expect("closed");
    let sealed = seal(&options, CONTROL).expect("sealed");
    std::fs::remove_dir_all(&log).expect("removed");
    let error = records_of(&sealed, &Filter::default()).expect_err("it is gone");
    assert!(matches!(error, JournalError::Replaced { .. }), "{error}");
    assert!(!log.exists(), "something was made");
}

#[test]
fn a_log_that_is_gone_and_of_which_notes_say_how_long_it_was_is_not_sealed_as_an_empty_one() {
    let (disk, notes) = (SimDisk::new(1), SimDisk::new(2));
    let noted = || on(&disk).high_water(Arc::clone(&notes) as Arc<dyn Disk>);
    let (journal, _) = open(noted(), 1).expect("opened");
    wait(&journal, append(&journal, b"told").expect("accepted")).expect("durable");
    journal.close().expect("closed");
    disk.files().iter().for_each(|(name, _)| disk.remove(name).expect("removed"));
    for _ in 0..2 {
        let error = seal(&noted(), CONTROL).expect_err("it is gone");
        assert!(matches!(error, JournalError::Lost { durable: Lsn(1), .. }), "{error}");
        assert!(disk.files().is_empty(), "it is left as it is");
        let error = seal(&on(&disk), CONTROL).expect_err("there is nothing");
        assert!(matches!(error, JournalError::NoLog { .. }), "{error}");
    }
}

#[test]
fn a_flipped_bit_in_a_sealed_log_is_an_error() {
    let disk = SimDisk::new(1);
    dead_owners_log(&disk);
    seal(&on(&disk), CONTROL).expect("sealed");
    let names: Vec<String> =
        disk.files().into_iter().map(|(name, _)| name).filter(|name| name.starts_with("segment-")).collect();
    let last = names.last().expect("there").clone();
    for offset in 0..disk.files().iter().find(|(name, _)| *name == last).expect("there").1 {
        let copy = disk.copy(1);
        copy.flip(&last, offset, 3);
        let error = read_all(&on(&copy)).expect_err("damaged");
        assert!(matches!(error, JournalError::Corrupt { .. } | JournalError::Version { .. }), "byte {offset}: {error}");
    }
    // And of the segment before it, every byte of a record.
    let before = &names[names.len() - 2];
    let copy = disk.copy(1);
    copy.flip(before, 100, 3);
    assert!(matches!(read_all(&on(&copy)), Err(JournalError::Corrupt { .. })));
}
