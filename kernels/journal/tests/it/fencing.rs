//! Two owners of one log: the older acknowledges nothing that the newer does not know.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use savanna_epoch::NodeEpoch;
use savanna_journal::{
    Disk, JournalError, Lsn, Options, OsDisk, Record,
    sim::{SimDisk, Step, SteppedJournal},
};

use crate::{
    history::{History, SEGMENT_BYTES, append, drafts, on, open, wait},
    interposed::{Interposed, Operation, Then},
};

/// How the older owner looks at the fence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Good,
    /// Broken on purpose: it always finds its fence.
    Blind,
}

/// The older owner, with groups that it wants to append and replies that wait.
struct Older {
    journal: SteppedJournal<u64>,
    history: Arc<Mutex<History>>,
    lsns: BTreeMap<u64, Lsn>,
    to_append: usize,
}

impl Older {
    fn open(disk: &Arc<SimDisk>, sight: Sight, history: &Arc<Mutex<History>>) -> Self {
        let disk = Interposed::new(Arc::clone(disk) as Arc<dyn Disk>, move |operation| {
            if sight == Sight::Blind && operation == Operation::Exists { Then::SayYes } else { Then::Go }
        });
        let options = Options::disk(disk).segment_bytes(SEGMENT_BYTES);
        let journal = SteppedJournal::open(&options, NodeEpoch(1), &mut |_| Ok::<(), Infallible>(()));
        Self { journal: journal.expect("opened"), history: Arc::clone(history), lsns: BTreeMap::new(), to_append: 8 }
    }

    /// One step; appends when there is nothing else to do. Whether there may be more.
    fn step(&mut self) -> bool {
        match self.journal.step() {
            Step::Idle if self.to_append > 0 => {
                self.to_append -= 1;
                let mut history = self.history.lock().expect("not poisoned");
                let (group, payloads) = history.next_group(2, 500);
                if let Ok(lsn) = self.journal.append(&drafts(&payloads)) {
                    self.lsns.insert(group, lsn);
                    self.journal.hold(lsn, group);
                }
                true
            }
            Step::Idle => false,
            Step::Stopped(reason) => {
                assert!(
                    matches!(reason, Some(JournalError::Fenced { ours: NodeEpoch(1), theirs: NodeEpoch(2) })),
                    "{reason:?}"
                );
                self.to_append = 0;
                false
            }
            Step::Released { replies, outcome: Ok(()) } => {
                let mut history = self.history.lock().expect("not poisoned");
                replies.iter().for_each(|group| history.tell(*group, self.lsns[group]));
                true
            }
            _ => true,
        }
    }
}

/// The older owner goes `steps` steps; then the newer opens, and before its `interrupted`-th operation the older goes
/// on until it can do nothing more.
fn take_over(sight: Sight, steps: usize, interrupted: usize, crash: bool) -> Result<bool, String> {
    let disk = SimDisk::new(steps as u64 * 1000 + interrupted as u64);
    let history = Arc::new(Mutex::new(History::default()));
    let mut older = Older::open(&disk, sight, &history);
    for _ in 0..steps {
        older.step();
    }
    let older = Arc::new(Mutex::new(older));
    let operations = Arc::new(AtomicUsize::new(0));
    let interposed = {
        let (older, operations) = (Arc::clone(&older), Arc::clone(&operations));
        Interposed::new(Arc::clone(&disk) as Arc<dyn Disk>, move |_| {
            if operations.fetch_add(1, Ordering::Relaxed) + 1 == interrupted {
                let mut older = older.lock().expect("not poisoned");
                while older.step() {}
            }
            Then::Go
        })
    };
    let options = Options::disk(interposed).segment_bytes(SEGMENT_BYTES);
    let mut taken: Vec<Record> = Vec::new();
    let mut newer = SteppedJournal::open(&options, NodeEpoch(2), &mut |record| {
        taken.push(record);
        Ok::<(), Infallible>(())
    })
    .map_err(|error| error.to_string())?;
    let was_interrupted = operations.load(Ordering::Relaxed) >= interrupted;

    // The newer owner's own groups, with the older one at its rest in between.
    for _ in 0..3 {
        let (group, payloads) = history.lock().expect("not poisoned").next_group(1, 100);
        let lsn = newer.append(&drafts(&payloads)).map_err(|error| error.to_string())?;
        newer.hold(lsn, group);
        loop {
            let mut older = older.lock().expect("not poisoned");
            older.step();
            drop(older);
            match newer.step() {
                Step::Idle => break,
                Step::Released { outcome, .. } => {
                    outcome.map_err(|error| error.to_string())?;
                    history.lock().expect("not poisoned").tell(group, lsn);
                }
                Step::Stopped(reason) => return Err(format!("the newer owner ended: {reason:?}")),
                _ => {}
            }
        }
    }
    while older.lock().expect("not poisoned").step() {}
    if crash {
        disk.crash();
    }
    let (_, records) = open(on(&disk), 3).map_err(|error| error.to_string())?;
    if records.len() < taken.len() || records[..taken.len()] != taken[..] {
        return Err(format!("the newer owner replayed {} records that are not the log", taken.len()));
    }
    history.lock().expect("not poisoned").check(&records, Lsn(1))?;
    Ok(was_interrupted)
}

fn take_over_everywhere(sight: Sight) -> Result<usize, String> {
    let mut runs = 0;
    for steps in 0..45 {
        for interrupted in 1.. {
            for crash in [false, true] {
                let went_on = take_over(sight, steps, interrupted, crash).map_err(|error| {
                    format!("after {steps} steps, at operation {interrupted}, crash {crash}: {error}")
                })?;
                runs += 1;
                if !went_on && crash {
                    break;
                }
            }
            // Beyond the operations of the opening there is nothing to interrupt.
            if interrupted > 24 {
                break;
            }
        }
    }
    Ok(runs)
}

#[test]
fn an_older_owner_stopped_anywhere_tells_nobody_what_the_newer_does_not_know() {
    let runs = take_over_everywhere(Sight::Good).unwrap_or_else(|error| panic!("{error}"));
    assert!(runs > 1500, "{runs}");
}

#[test]
fn the_checker_finds_an_owner_that_does_not_look_at_the_fence() {
    let found = take_over_everywhere(Sight::Blind).expect_err("an owner that ignores the fence must be found out");
    assert!(found.contains("was told at LSN"), "{found}");
}

/// A real directory whose first owner stops at the given operation, once armed, until it is let go.
struct Stopping {
    disk: Arc<dyn Disk>,
    arm: Arc<AtomicUsize>,
    stopped: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
}

impl Stopping {
    /// Stops at the `nth` operation of this kind after it was armed.
    fn new(dir: &std::path::Path, at: Operation) -> Self {
        let (stop, stopped) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let may_go = Mutex::new(may_go);
        let arm = Arc::new(AtomicUsize::new(0));
        let countdown = Arc::clone(&arm);
        let disk = Interposed::new(Arc::new(OsDisk::new(dir)), move |operation| {
            let due = operation == at
                && countdown
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                    .is_ok_and(|left| left == 1);
            if due {
                stop.send(()).expect("the test waits");
                may_go.lock().expect("not poisoned").recv().expect("the test lets go");
            }
            Then::Go
        });
        Self { disk, arm, stopped, go }
    }
}

fn stopped_owner(at: Operation, nth: usize, newer_knows: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let stopping = Stopping::new(dir.path(), at);
    let (older, _) = open(Options::disk(Arc::clone(&stopping.disk)), 1).expect("opened");
    let first = append(&older, b"told").expect("accepted");
    wait(&older, first).expect("durable");

    stopping.arm.store(nth, Ordering::SeqCst);
    let second = append(&older, b"not told").expect("accepted");
    let (told, heard) = mpsc::channel();
    older.gate().hold(second, move |outcome| told.send(outcome).expect("heard"));
    stopping.stopped.recv().expect("the older owner stands still");

    let (newer, records) = open(Options::dir(dir.path()), 2).expect("taken over");
    let payloads: Vec<&[u8]> = records.iter().map(|record| &record.payload[..]).collect();
    let both: [&[u8]; 2] = [b"told", b"not told"];
    assert_eq!(payloads, both[..if newer_knows { 2 } else { 1 }]);
    let taken = newer.append(&drafts(&[b"newer".to_vec()])).expect("accepted");
    wait(&newer, taken).expect("durable");

    stopping.go.send(()).expect("it waits");
    let error = heard.recv().expect("answered").expect_err("nobody is told");
    let fenced =
        |error: &JournalError| matches!(error, JournalError::Fenced { ours: NodeEpoch(1), theirs: NodeEpoch(2) });
    assert!(fenced(&error), "{error}");
    assert!(error.to_string().contains("epoch 1, but another owner took it over under epoch 2. Stop serving and exit"));
    assert!(fenced(&append(&older, b"late").expect_err("refused")));
    assert!(fenced(&older.close().expect_err("it ended before")));

    newer.close().expect("closed");
    let (_, records) = open(Options::dir(dir.path()), 3).expect("opened");
    assert_eq!(&records.last().expect("there").payload[..], b"newer");
    assert_eq!(records.len(), if newer_knows { 3 } else { 2 });
}

#[test]
fn an_owner_stopped_before_it_writes_is_fenced() {
    stopped_owner(Operation::Write, 1, false);
}

#[test]
fn an_owner_stopped_between_write_and_flush_is_fenced() {
    stopped_owner(Operation::Sync, 1, true);
}

#[test]
fn an_owner_stopped_between_flush_and_fence_check_is_fenced() {
    stopped_owner(Operation::Exists, 2, true);
}

#[test]
fn an_idle_owner_learns_of_the_fence_with_its_next_append() {
    let dir = tempfile::tempdir().expect("a directory");
    let (older, _) = open(Options::dir(dir.path()), 7).expect("opened");
    let (_newer, _) = open(Options::dir(dir.path()), 9).expect("taken over");
    let lsn = append(&older, b"late").expect("buffered");
    let error = wait(&older, lsn).expect_err("not written");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(7), theirs: NodeEpoch(9) }), "{error}");
}

#[test]
fn an_older_epoch_and_epoch_zero_are_refused() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 5).expect("opened");
    let error = open(on(&disk), 4).map(|_| ()).expect_err("older");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(4), theirs: NodeEpoch(5) }), "{error}");
    assert!(matches!(open(on(&disk), 0), Err(JournalError::NoEpoch)));
    let lsn = append(&journal, b"still ours").expect("accepted");
    wait(&journal, lsn).expect("durable");
    drop(journal);
    // The fence outlives its owner, and the segments know the epoch even if the fence is lost.
    for (name, _) in disk.files() {
        if name.starts_with("fence-") {
            disk.remove(&name).expect("removed");
        }
    }
    assert!(matches!(open(on(&disk), 4), Err(JournalError::Fenced { .. })));
}

#[test]
fn a_second_opening_under_one_epoch_fences_the_first() {
    let disk = SimDisk::new(0);
    let (first, _) = open(on(&disk), 5).expect("opened");
    wait(&first, append(&first, b"a").expect("accepted")).expect("durable");
    let (second, records) = open(on(&disk), 5).expect("opened again");
    assert_eq!(records.len(), 1);
    let error = wait(&first, append(&first, b"b").expect("buffered")).expect_err("fenced");
    assert!(matches!(error, JournalError::Fenced { ours: NodeEpoch(5), theirs: NodeEpoch(5) }), "{error}");
    wait(&second, append(&second, b"c").expect("accepted")).expect("durable");
    drop(second);
    let (_, records) = open(on(&disk), 6).expect("opened");
    assert_eq!(records.iter().map(|record| &record.payload[..]).collect::<Vec<_>>(), [b"a", b"c"]);
}

#[test]
fn of_owners_that_open_at_once_the_highest_epoch_stays() {
    for interrupted in 1..20 {
        let disk = SimDisk::new(0);
        drop(open(on(&disk), 1).expect("opened"));
        let other = Arc::new(Mutex::new(None));
        let count = AtomicUsize::new(0);
        let interposed = {
            let (disk, other) = (Arc::clone(&disk), Arc::clone(&other));
            Interposed::new(Arc::clone(&disk) as Arc<dyn Disk>, move |_| {
                if count.fetch_add(1, Ordering::Relaxed) + 1 == interrupted {
                    *other.lock().expect("not poisoned") = Some(open(on(&disk), 3).expect("the highest"));
                }
                Then::Go
            })
        };
        let lower = open(Options::disk(interposed).segment_bytes(SEGMENT_BYTES), 2);
        let Some((higher, _)) = other.lock().expect("not poisoned").take() else {
            lower.expect("nobody else came");
            continue;
        };
        let refused = lower.and_then(|(lower, _)| wait(&lower, append(&lower, b"lower")?));
        assert!(
            matches!(refused, Err(JournalError::Fenced { ours: NodeEpoch(2), theirs: NodeEpoch(3) })),
            "at operation {interrupted}: {refused:?}"
        );
        wait(&higher, append(&higher, b"higher").expect("accepted")).expect("durable");
        drop(higher);
        let (_, records) = open(on(&disk), 4).expect("opened");
        assert_eq!(records.len(), 1, "at operation {interrupted}");
    }
}

#[test]
fn an_owner_that_is_replaced_while_it_truncates_removes_nothing_that_the_next_one_keeps() {
    let mut replaced = 0;
    for interrupted in 1..40 {
        let disk = SimDisk::new(0);
        let (newer, count) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(usize::MAX / 2)));
        let interposed = {
            let (disk, newer, count) = (Arc::clone(&disk), Arc::clone(&newer), Arc::clone(&count));
            Interposed::new(Arc::clone(&disk) as Arc<dyn Disk>, move |_| {
                if count.fetch_add(1, Ordering::Relaxed) + 1 == interrupted {
                    *newer.lock().expect("not poisoned") = Some(open(on(&disk), 2).expect("taken over"));
                }
                Then::Go
            })
        };
        let (older, _) = open(Options::disk(interposed).segment_bytes(SEGMENT_BYTES), 1).expect("opened");
        let payload = [7; SEGMENT_BYTES / 3];
        let mut last = Lsn::NONE;
        for _ in 0..12 {
            last = append(&older, &payload).expect("accepted");
            wait(&older, last).expect("durable");
        }
        count.store(0, Ordering::Relaxed);
        older.truncate_before(last).expect("it is durable");
        // Whether it still has its fence when it ends is not what is asked here.
        let _closed = older.close();
        let Some((newer, _)) = newer.lock().expect("not poisoned").take() else { continue };
        replaced += 1;
        wait(&newer, append(&newer, b"newer").expect("accepted")).expect("durable");
        drop(newer);
        let (_, records) = open(on(&disk), 3).unwrap_or_else(|error| panic!("at operation {interrupted}: {error}"));
        assert_eq!(&records.last().expect("there").payload[..], b"newer", "at operation {interrupted}");
    }
    assert!(replaced > 5, "at {replaced} operations");
}
