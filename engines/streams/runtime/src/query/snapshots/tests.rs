//! The snapshots of a query of two members, on a disk in memory.

use std::io::Write;
use std::sync::atomic::AtomicUsize;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use savanna_streams_api::StreamError;

use super::*;
use crate::driver::Outcome;
use crate::records::WhenDurable;
use crate::snapshot::{Part, PartFile, Piece};

const STAGE: StageId = StageId(1);
/// Far beyond what any of these tests needs; only a hang reaches it.
const FOREVER: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
struct Disk {
    /// So many parts cannot be written, behind so many that can.
    failures: AtomicUsize,
    spared: AtomicUsize,
    /// So many switches fail, and have happened.
    unknown: AtomicUsize,
    /// How many parts were asked for.
    asked: AtomicUsize,
    /// Parts wait while somebody has it.
    gate: Mutex<()>,
    parts: Mutex<BTreeMap<String, Vec<u8>>>,
    manifest: Mutex<Option<Manifest>>,
    /// Records before this one are gone.
    first: AtomicU64,
}

impl SnapshotStore for Disk {
    fn put(
        &self,
        epoch: Epoch,
        stage: StageId,
        shuffle: u16,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PartFile> {
        self.asked.fetch_add(1, Ordering::AcqRel);
        drop(self.gate.lock());
        let takes = |count: &AtomicUsize| {
            count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
        };
        if !takes(&self.spared) && takes(&self.failures) {
            return Err(StreamError::io("write a part", &"the disk is full"));
        }
        let mut bytes = Vec::new();
        write(&mut bytes).map_err(|e| StreamError::io("write a part", &e))?;
        let name = format!("{epoch}-{stage}-{shuffle}");
        let length = bytes.len() as u64;
        self.parts.lock().insert(name.clone(), bytes);
        Ok(PartFile { name, bytes: length, checksum: 0 })
    }

    fn switch(&self, manifest: &Manifest) -> Result<()> {
        if manifest.files().any(|file| !self.parts.lock().contains_key(&file.name)) {
            return Err(StreamError::io("switch", &"a file is gone"));
        }
        *self.manifest.lock() = Some(manifest.clone());
        if self.unknown.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok() {
            return Err(StreamError::io("switch", &"no answer came"));
        }
        self.tidy();
        Ok(())
    }

    fn tidy(&self) {
        let named: Vec<_> = self.manifest.lock().iter().flat_map(Manifest::files).map(|file| file.name).collect();
        self.parts.lock().retain(|name, _| named.contains(name));
    }
}

impl EpochLog for Disk {
    fn append(&self, _: &EpochRecord, when_durable: WhenDurable) {
        when_durable(Ok(()));
    }

    fn forget_before(&self, epoch: Epoch) {
        self.first.store(epoch.0, Ordering::Release);
    }

    fn ended(&self, _: &Outcome) {}
}

impl Disk {
    /// The epochs of which the states in the snapshot that counts are.
    fn counts(&self) -> Option<(u64, Vec<i64>)> {
        let (epoch, states) = self.states()?;
        Some((epoch, states.iter().map(|state| state.marks["epoch"]).collect()))
    }

    /// The snapshot that counts.
    fn states(&self) -> Option<(u64, Vec<State>)> {
        let manifest = self.manifest.lock().clone()?;
        let parts = self.parts.lock();
        let state = |part: &Part| part.read(|file| Ok(parts[&file.name].clone())).unwrap();
        Some((manifest.record.epoch.0, manifest.parts.iter().map(state).collect()))
    }
}

fn snapshots(disk: &Arc<Disk>) -> Arc<Snapshotting> {
    snapshots_within(disk, None)
}

/// As [`snapshots`], of a query that may hold so many bytes.
fn snapshots_within(disk: &Arc<Disk>, limit: Option<u64>) -> Arc<Snapshotting> {
    Snapshotting::new(Of {
        query: QueryId { code: "0123456789ab".into(), job: 1 },
        due: Due::default(),
        store: Arc::clone(disk) as _,
        log: Arc::clone(disk) as _,
        forgetting: Arc::new(Forgetting::new(Vec::new())),
        memory: Arc::new(Memory::without_stages(limit)),
        is_bounded: false,
        signatures: vec![String::new(), "numbers".into()],
        members: BTreeMap::from([(STAGE, 2)]),
        recorded: Epoch::ZERO,
        rows_at: EventTime::MIN,
        interval: Duration::ZERO,
        counts: Epoch::ZERO,
    })
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < FOREVER, "{what}");
        thread::sleep(Duration::from_micros(50));
    }
}

fn hand_over(snapshots: &Snapshotting, epoch: u64, member: u16) {
    let state = State { marks: BTreeMap::from([("epoch".to_owned(), epoch as i64)]), tables: Vec::new() };
    snapshots.hand_over(Epoch(epoch), STAGE, member, &mut || Ok(state.clone()));
}

/// Cuts epochs until a snapshot is begun: one that took a while is followed by a pause.
fn cut(snapshots: &Arc<Snapshotting>, epoch: u64) {
    until("a snapshot is begun", || {
        snapshots.cut(Epoch(epoch));
        snapshots.is_due(Epoch(epoch))
    });
}

fn sealed(snapshots: &Snapshotting, epoch: u64) {
    let epoch = Epoch(epoch);
    let record = EpochRecord {
        epoch,
        processing_time: EventTime(7),
        sources: Vec::new(),
        committed: Epoch::ZERO,
        lookups: Vec::new(),
        layout: crate::driver::Layout::default(),
    };
    snapshots.sealed(&record);
}

fn failed(snapshots: &Snapshotting) -> u64 {
    snapshots.failed.load(Ordering::Relaxed)
}

#[test]
fn a_state_of_an_epoch_whose_snapshot_was_given_up_gets_into_no_other_one() {
    let disk = Arc::new(Disk { failures: AtomicUsize::new(1), ..Disk::default() });
    let snapshots = snapshots(&disk);
    cut(&snapshots, 3);
    sealed(&snapshots, 3);
    hand_over(&snapshots, 3, 0);
    until("it is given up", || failed(&snapshots) == 1 && snapshots.making.lock().work.is_none());
    cut(&snapshots, 5);
    sealed(&snapshots, 5);
    // A member that was asked for epoch 3, and took its time.
    hand_over(&snapshots, 3, 1);
    hand_over(&snapshots, 5, 0);
    snapshots.held(Epoch(5));
    until("its part is written", || disk.parts.lock().contains_key("5-1-0"));
    assert!(disk.manifest.lock().is_none());
    hand_over(&snapshots, 5, 1);
    until("it counts", || disk.counts().is_some());
    assert_eq!(disk.counts(), Some((5, vec![5, 5])));
    until("the records go", || disk.first.load(Ordering::Acquire) == 6);
    assert_eq!(failed(&snapshots), 1);
    snapshots.end();
}

#[test]
fn a_snapshot_that_would_be_refused_does_not_count() {
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots(&disk);
    cut(&snapshots, 3);
    sealed(&snapshots, 3);
    let error = snapshots.switch(Epoch(3), Chains::default(), 0).unwrap_err().to_string();
    assert!(error.contains("does not fit"), "{error}");
    assert!(disk.manifest.lock().is_none());
    snapshots.end();
}

#[test]
fn the_end_of_a_query_does_not_wait_for_states_that_are_not_written() {
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots(&disk);
    let gate = disk.gate.lock();
    cut(&snapshots, 3);
    sealed(&snapshots, 3);
    hand_over(&snapshots, 3, 0);
    hand_over(&snapshots, 3, 1);
    snapshots.held(Epoch(3));
    until("the first is being written", || disk.asked.load(Ordering::Acquire) == 1);
    let ended = thread::scope(|scope| {
        let ended = scope.spawn(|| snapshots.end());
        until("it ends", || snapshots.ends.load(Ordering::Acquire));
        drop(gate);
        ended.join()
    });
    ended.unwrap();
    assert_eq!(disk.asked.load(Ordering::Acquire), 1, "the second one is given up");
    assert!(disk.parts.lock().is_empty() && disk.manifest.lock().is_none());
    assert_eq!(failed(&snapshots), 0, "that is no failure");
}

#[test]
fn a_state_that_cannot_be_computed_is_a_snapshot_that_failed() {
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots(&disk);
    cut(&snapshots, 3);
    snapshots.hand_over(Epoch(3), STAGE, 0, &mut || Err(StreamError::invalid("too long")));
    until("it is given up", || failed(&snapshots) == 1 && snapshots.making.lock().work.is_none());
    cut(&snapshots, 4);
    sealed(&snapshots, 4);
    hand_over(&snapshots, 4, 0);
    hand_over(&snapshots, 4, 1);
    snapshots.held(Epoch(4));
    until("the next one counts", || disk.counts() == Some((4, vec![4, 4])));
    snapshots.end();
}

#[test]
fn how_long_a_member_was_held_up_is_told_of_the_last_snapshot_and_of_all() {
    const TOOK: Duration = Duration::from_millis(5);
    const NAMES: [&str; 4] =
        ["snapshot_pauses", "snapshot_pause_seconds", "snapshot_pause_max_seconds", "snapshot_paused_seconds"];
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots(&disk);
    let figures = |names: [&str; 4]| {
        let more = snapshots.figures();
        names.map(|name| more[name])
    };
    assert_eq!(figures(NAMES), [0.0; 4]);
    cut(&snapshots, 3);
    sealed(&snapshots, 3);
    for member in 0..2 {
        snapshots.begins(Epoch(3), STAGE, member);
        snapshots.hand_over(Epoch(3), STAGE, member, &mut || {
            thread::sleep(TOOK);
            Ok(State { marks: BTreeMap::from([("epoch".to_owned(), 3)]), tables: Vec::new() })
        });
    }
    snapshots.flushed(Epoch(3), TOOK);
    snapshots.flushed(Epoch(2), TOOK * 1000);
    let [count, last, longest, sum] = figures(NAMES);
    assert!(count == 2.0 && last == longest && last >= TOOK.as_secs_f64() && sum >= 2.0 * TOOK.as_secs_f64());
    let [computed, flushed] = {
        let more = snapshots.figures();
        ["snapshot_epoch_seconds", "snapshot_flush_seconds"].map(|name| more[name])
    };
    assert!(computed >= last && flushed == TOOK.as_secs_f64(), "{computed} {flushed}");
    snapshots.held(Epoch(3));
    until("it counts", || disk.counts().is_some());
    cut(&snapshots, 5);
    hand_over(&snapshots, 5, 0);
    assert_eq!(figures(NAMES)[0], 3.0);
    snapshots.end();
}

#[test]
fn a_state_is_not_computed_for_a_snapshot_that_was_given_up() {
    let disk = Arc::new(Disk { failures: AtomicUsize::new(1), ..Disk::default() });
    let snapshots = snapshots(&disk);
    cut(&snapshots, 3);
    hand_over(&snapshots, 3, 0);
    until("it is given up", || failed(&snapshots) == 1 && snapshots.making.lock().work.is_none());
    snapshots.hand_over(Epoch(3), STAGE, 1, &mut || panic!("nobody wants it"));
    snapshots.end();
}

#[test]
fn a_snapshot_that_would_take_the_query_above_its_memory_limit_is_given_up_and_one_that_fits_counts() {
    const ROWS: usize = 100_000;
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots_within(&disk, Some(12 * ROWS as u64));
    let piece = || {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; ROWS]));
        Piece::new(RecordBatch::try_from_iter([("n", numbers)]).unwrap())
    };
    let first_hands_over = |epoch: u64, of: &Piece| {
        let mut state = State { marks: BTreeMap::from([("epoch".to_owned(), epoch as i64)]), tables: Vec::new() };
        state.put_piece("numbers", [0; 2], of);
        snapshots.hand_over(Epoch(epoch), STAGE, 0, &mut || Ok(state.clone()));
    };
    let held = || snapshots.of.memory.handed_out().bytes();
    let gate = disk.gate.lock();
    cut(&snapshots, 3);
    sealed(&snapshots, 3);
    let given_up = piece();
    first_hands_over(3, &given_up);
    assert!(held() < ROWS as u64, "the member has its rows, too");
    drop(given_up);
    assert!(held() >= 8 * ROWS as u64, "the snapshot alone has them");
    drop(gate);
    until("it is given up, or written", || failed(&snapshots) == 1 || !disk.parts.lock().is_empty());
    until("it is over", || snapshots.making.lock().work.is_none() || !disk.parts.lock().is_empty());
    assert!(disk.parts.lock().is_empty(), "what is above the limit is not written");
    until("nothing is held any more", || held() < ROWS as u64);
    let kept = piece();
    cut(&snapshots, 5);
    sealed(&snapshots, 5);
    first_hands_over(5, &kept);
    hand_over(&snapshots, 5, 1);
    snapshots.held(Epoch(5));
    until("it counts", || disk.counts() == Some((5, vec![5, 5])));
    snapshots.end();
}

/// A piece that has this number as its only row.
fn piece(number: i64) -> Piece {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![number]));
    Piece::new(RecordBatch::try_from_iter([("n", numbers)]).unwrap())
}

fn numbers(state: &State) -> Vec<i64> {
    state.of("numbers").map(|(_, rows)| rows.column(0).as_primitive::<Int64Type>().value(0)).collect()
}

/// Both members hand these pieces out, and the snapshot counts or fails.
fn snapshot(snapshots: &Arc<Snapshotting>, epoch: u64, pieces: &[&Piece]) {
    let failed_before = failed(snapshots);
    cut(snapshots, epoch);
    sealed(snapshots, epoch);
    for member in 0..2 {
        let mut state = State::default();
        pieces.iter().for_each(|piece| state.put_piece("numbers", [0; 2], piece));
        snapshots.hand_over(Epoch(epoch), STAGE, member, &mut || Ok(state.clone()));
    }
    snapshots.held(Epoch(epoch));
    until("it is over", || {
        let is_over = snapshots.making.lock().work.is_none();
        is_over && (snapshots.counts.load(Ordering::Acquire) == epoch || failed(snapshots) > failed_before)
    });
}

/// How many files each part of the snapshot that counts has.
fn files(disk: &Disk) -> Vec<usize> {
    let manifest = disk.manifest.lock().clone().unwrap();
    manifest.parts.iter().map(|part| part.files().count()).collect()
}

#[test]
fn what_was_to_be_in_a_snapshot_that_was_given_up_is_in_the_next_one() {
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots(&disk);
    let pieces: Vec<Piece> = (0..20).map(piece).collect();
    let all: Vec<&Piece> = pieces.iter().collect();
    snapshot(&snapshots, 3, &all[..10]);
    assert_eq!(files(&disk), [1, 1]);
    snapshot(&snapshots, 4, &all[1..11]);
    assert_eq!(files(&disk), [2, 2]);
    disk.failures.store(1, Ordering::Release);
    snapshot(&snapshots, 5, &all[2..12]);
    assert_eq!((failed(&snapshots), disk.states().unwrap().0), (1, 4));
    // One that was written, but for one part of it.
    disk.spared.store(1, Ordering::Release);
    disk.failures.store(1, Ordering::Release);
    snapshot(&snapshots, 6, &all[3..13]);
    assert_eq!((failed(&snapshots), disk.states().unwrap().0), (2, 4));
    snapshot(&snapshots, 7, &all[4..14]);
    let (epoch, states) = disk.states().unwrap();
    assert_eq!((epoch, states.iter().map(numbers).collect::<Vec<_>>()), (7, vec![(4..14).collect::<Vec<_>>(); 2]));
    assert_eq!(files(&disk), [3, 3]);
    assert_eq!(disk.parts.lock().len(), 6, "what nothing names goes");
    snapshots.end();
}

#[test]
fn a_snapshot_behind_one_of_which_nobody_knows_whether_it_counts_is_whole() {
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots(&disk);
    let pieces: Vec<Piece> = (0..20).map(piece).collect();
    let all: Vec<&Piece> = pieces.iter().collect();
    snapshot(&snapshots, 3, &all[..10]);
    // All of it is other rows, so that it is whole, and what was there before goes.
    disk.unknown.store(1, Ordering::Release);
    snapshot(&snapshots, 4, &all[10..]);
    assert_eq!((failed(&snapshots), files(&disk)), (1, vec![1, 1]));
    snapshot(&snapshots, 5, &all[..11]);
    assert_eq!(files(&disk), [1, 1]);
    let (_, states) = disk.states().unwrap();
    assert_eq!(states.iter().map(numbers).collect::<Vec<_>>(), vec![(0..11).collect::<Vec<_>>(); 2]);
    snapshots.end();
}

#[test]
fn records_stay_while_no_snapshot_counts_whose_files_are_there_and_the_next_one_is_whole() {
    let disk = Arc::new(Disk::default());
    let snapshots = snapshots(&disk);
    let pieces: Vec<Piece> = (0..20).map(piece).collect();
    let all: Vec<&Piece> = pieces.iter().collect();
    snapshot(&snapshots, 3, &all[..10]);
    snapshot(&snapshots, 4, &all[1..11]);
    assert_eq!((files(&disk), disk.first.load(Ordering::Acquire)), (vec![2, 2], 5));
    disk.parts.lock().remove("3-1-0").unwrap();
    snapshot(&snapshots, 5, &all[2..12]);
    assert_eq!((failed(&snapshots), disk.first.load(Ordering::Acquire)), (1, 5));
    snapshot(&snapshots, 6, &all[3..13]);
    assert_eq!((files(&disk), failed(&snapshots)), (vec![1, 1], 1));
    let (epoch, states) = disk.states().unwrap();
    assert_eq!((epoch, states.iter().map(numbers).collect::<Vec<_>>()), (6, vec![(3..13).collect::<Vec<_>>(); 2]));
    until("the records go", || disk.first.load(Ordering::Acquire) == 7);
    snapshots.end();
}
