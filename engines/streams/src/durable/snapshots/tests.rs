//! Snapshots on a simulated disk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use savanna_journal::sim::{Fault, SimDisk};
use savanna_streams_api::ids::QueryId;
use savanna_streams_model::time::EventTime;
use savanna_streams_runtime::driver::EpochRecord;
use savanna_streams_runtime::snapshot::{Chains, Part, Piece, write_state};

use super::*;

fn open(disk: &Arc<SimDisk>, owner: u64) -> Result<(Arc<QuerySnapshots>, Option<Snapshot>)> {
    let (snapshots, found) = QuerySnapshots::open(Arc::clone(disk) as _, NodeEpoch(owner), None, Box::new(|| Ok(())));
    Ok((snapshots, found?))
}

fn unopened(disk: &Arc<SimDisk>, owner: u64) -> QuerySnapshots {
    let disk = Arc::clone(disk) as Arc<dyn Disk>;
    QuerySnapshots { disk, owner: NodeEpoch(owner), has_its_place: None, make: Box::new(|| Ok(())) }
}

fn state(number: i64) -> State {
    State { marks: BTreeMap::from([("number".to_owned(), number)]), tables: Vec::new() }
}

fn part(snapshots: &QuerySnapshots, epoch: u64) -> Part {
    let mut write = |out: &mut dyn Write| write_state(&state(epoch as i64), out);
    Part::whole(StageId(1), 0, 1, snapshots.put(Epoch(epoch), StageId(1), 0, &mut write).unwrap())
}

fn manifest(epoch: u64, part: Part) -> Manifest {
    let epoch = Epoch(epoch);
    let record = EpochRecord {
        epoch,
        processing_time: EventTime(7),
        sources: Vec::new(),
        committed: epoch,
        lookups: Vec::new(),
        layout: savanna_streams_runtime::driver::Layout::default(),
    };
    let query = QueryId { code: "0123456789ab".into(), job: 7 };
    Manifest { query, record, rows_at: EventTime(7), signatures: vec!["panes".into()], parts: vec![part] }
}

fn counts(disk: &Arc<SimDisk>, owner: u64) -> Option<(u64, Vec<State>)> {
    let (_, found) = open(disk, owner).unwrap();
    found.map(|found| (found.manifest.record.epoch.0, found.states))
}

#[test]
fn the_snapshot_that_was_switched_last_counts_whenever_the_power_fails() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let (snapshots, found) = open(&disk, 1).unwrap();
        assert!(found.is_none());
        let first = part(&snapshots, 3);
        disk.crash();
        assert_eq!(counts(&disk, 2), None, "no manifest names it");
        assert!(!disk.exists(&first.name).unwrap(), "{first:?} is of no use");
        let (snapshots, _) = open(&disk, 3).unwrap();
        snapshots.switch(&manifest(5, part(&snapshots, 5))).unwrap();
        part(&snapshots, 9);
        disk.crash();
        assert_eq!(counts(&disk, 4), Some((5, vec![state(5)])));
        let (snapshots, _) = open(&disk, 5).unwrap();
        snapshots.switch(&manifest(9, part(&snapshots, 9))).unwrap();
        disk.crash();
        assert_eq!(counts(&disk, 6), Some((9, vec![state(9)])), "seed {seed}");
        assert_eq!(disk.list().unwrap().len(), 2, "what it replaces is gone: {:?}", disk.list());
    }
}

/// A disk on which the snapshot of epoch 5 counts, and its owner.
fn with_a_snapshot(seed: u64) -> (Arc<SimDisk>, Arc<QuerySnapshots>) {
    let disk = SimDisk::new(seed);
    let (snapshots, _) = open(&disk, 1).unwrap();
    snapshots.switch(&manifest(5, part(&snapshots, 5))).unwrap();
    (disk, snapshots)
}

#[test]
fn the_former_snapshot_or_the_new_one_counts_whatever_fails_within_a_switch_and_the_power_behind_it() {
    let (mut switched, mut failed) = (0, 0);
    for (seed, fault) in (0..40).flat_map(|seed| [Fault::Error, Fault::Full, Fault::PowerCut].map(|f| (seed, f))) {
        for step in 1..24 {
            let (disk, snapshots) = with_a_snapshot(seed);
            let next = part(&snapshots, 9);
            disk.fail(step, fault);
            let is_switched = snapshots.switch(&manifest(9, next)).is_ok();
            (switched, failed) = (switched + i32::from(is_switched), failed + i32::from(!is_switched));
            if !is_switched {
                // As the query does when a snapshot is given up.
                snapshots.tidy();
            }
            disk.crash();
            let found = counts(&disk, 2);
            let is_one = |epoch: u64| found == Some((epoch, vec![state(epoch as i64)]));
            assert!(is_one(9) || !is_switched && is_one(5), "seed {seed}, {fault:?} at {step}: {found:?}");
        }
    }
    assert!(switched > 100 && failed > 100, "{switched} switched, {failed} failed");
}

#[test]
fn a_manifest_that_is_seen_is_durable_before_what_it_replaces_goes() {
    for seed in 0..60 {
        let (disk, snapshots) = with_a_snapshot(seed);
        let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
        snapshots.prepare(next, Some(manifest(9, part(&snapshots, 9)))).unwrap();
        // The process is killed behind the rename, before it is durable.
        disk.rename(&(next.name() + NEXT), &next.name()).unwrap();
        assert_eq!(counts(&disk, 2), Some((9, vec![state(9)])));
        disk.crash();
        assert_eq!(counts(&disk, 3), Some((9, vec![state(9)])), "seed {seed}");
    }
}

#[test]
fn nothing_is_removed_while_it_is_not_known_what_is_durable() {
    for seed in 0..60 {
        let (disk, snapshots) = with_a_snapshot(seed);
        let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
        snapshots.prepare(next, Some(manifest(9, part(&snapshots, 9)))).unwrap();
        disk.rename(&(next.name() + NEXT), &next.name()).unwrap();
        // The second operation of tidying flushes the directory.
        disk.fail(2, Fault::Error);
        snapshots.tidy();
        disk.crash();
        let found = counts(&disk, 2).map(|(epoch, _)| epoch);
        assert!(matches!(found, Some(5 | 9)), "seed {seed}: {found:?}");
    }
}

#[test]
fn a_former_owner_switches_nothing_and_removes_nothing_of_the_one_that_came_later() {
    let disk = SimDisk::new(1);
    let (former, _) = open(&disk, 1).unwrap();
    let of_former = part(&former, 4);
    let (later, _) = open(&disk, 2).unwrap();
    let of_later = part(&later, 4);
    former.tidy();
    assert!(disk.exists(&of_later.name).unwrap(), "it is its successor's");
    later.switch(&manifest(4, of_later)).unwrap();
    let error = former.switch(&manifest(4, of_former)).unwrap_err().to_string();
    assert!(error.contains("was written by the owner of epoch 2, and this one has epoch 1"), "{error}");
    let has_its_place = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&has_its_place);
    let place = Some(HasItsPlace(Arc::new(move || asked.load(Ordering::Acquire))));
    let (paused, _) = QuerySnapshots::open(Arc::clone(&disk) as _, NodeEpoch(3), place, Box::new(|| Ok(())));
    let of_paused = part(&paused, 8);
    assert!(paused.switch(&manifest(8, of_paused.clone())).unwrap_err().to_string().contains("another process"));
    has_its_place.store(true, Ordering::Release);
    paused.switch(&manifest(8, of_paused)).unwrap();
    assert_eq!(counts(&disk, 4), Some((8, vec![state(8)])));
}

/// A former owner that is paused where it was last asked whether it has its place, while this happens.
fn paused_in_its_switch(seed: u64, meanwhile: impl Fn(&Arc<SimDisk>) + Send + Sync + 'static) -> Arc<SimDisk> {
    let (disk, _) = with_a_snapshot(seed);
    let there = Arc::clone(&disk);
    let place = HasItsPlace(Arc::new(move || {
        meanwhile(&there);
        true
    }));
    let disk_of_former = Arc::clone(&disk) as Arc<dyn Disk>;
    let (former, _) = QuerySnapshots::open(disk_of_former, NodeEpoch(2), Some(place), Box::new(|| Ok(())));
    former.switch(&manifest(9, part(&former, 9))).unwrap_err();
    former.tidy();
    disk
}

#[test]
fn a_former_owner_that_renames_late_changes_nothing() {
    // The next owner has made the snapshot its own, and no more: records stay for either of the two, and the later one is whole.
    let beside_a_claim = || {
        paused_in_its_switch(1, |disk| {
            unopened(disk, 3).claim().unwrap();
        })
    };
    assert_eq!(counts(&beside_a_claim(), 4), Some((9, vec![state(9)])));
    // The same, and its part is gone.
    let disk = beside_a_claim();
    disk.remove("2-9-1-0").unwrap();
    assert_eq!(counts(&disk, 4), Some((5, vec![state(5)])));
    // It has removed what the former one had written for its next snapshot.
    let disk = paused_in_its_switch(1, |disk| drop(open(disk, 3).unwrap()));
    assert_eq!(counts(&disk, 4), Some((5, vec![state(5)])));
    // It has one that it wrote itself.
    let disk = paused_in_its_switch(1, |disk| {
        let later = unopened(disk, 3);
        later.claim().unwrap();
        let next = Place { owner: NodeEpoch(3), epoch: Epoch(12) };
        later.prepare(next, Some(manifest(12, part(&later, 12)))).unwrap();
        later.rename(next).unwrap();
    });
    assert_eq!(counts(&disk, 4), Some((12, vec![state(12)])));
}

/// A disk on which something else happens before a rename, and behind each read.
struct Between<R, D> {
    disk: Arc<SimDisk>,
    before_a_rename: R,
    behind_a_read: D,
}

impl<R, D> fmt::Debug for Between<R, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl<R: Fn() + Send + Sync, D: Fn(&str) + Send + Sync> Disk for Between<R, D> {
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.disk.exists(name)
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let read = self.disk.read(name, limit);
        (self.behind_a_read)(name);
        read
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.before_a_rename)();
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn describe(&self, name: &str) -> String {
        self.disk.describe(name)
    }
}

#[test]
fn what_a_former_owner_switched_last_stays_while_the_later_one_takes_it_over() {
    let (disk, former) = with_a_snapshot(1);
    let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
    former.prepare(next, Some(manifest(9, part(&former, 9)))).unwrap();
    let (renames, tidies) = (Arc::clone(&former), former);
    // The later one has seen the snapshot of epoch 5, and has not made it its own yet.
    let is_renamed = AtomicBool::new(false);
    let before_a_rename = move || {
        if !is_renamed.swap(true, Ordering::AcqRel) {
            renames.rename(next).unwrap();
        }
    };
    // It has; and sees that of epoch 9, whose owner finds out that it does not count.
    let is_seen = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_seen);
    let behind_a_read = move |name: &str| {
        if name == "manifest-1-9" {
            seen.store(true, Ordering::Release);
            tidies.check_last(next, &tidies.list().unwrap()).unwrap_err();
            tidies.tidy();
        }
    };
    let between = Between { disk: Arc::clone(&disk), before_a_rename, behind_a_read };
    let (_, found) = QuerySnapshots::open(Arc::new(between), NodeEpoch(2), None, Box::new(|| Ok(())));
    assert!(is_seen.load(Ordering::Acquire));
    let found = found.unwrap().unwrap();
    assert_eq!((found.manifest.record.epoch, found.states), (Epoch(9), vec![state(9)]));
    assert_eq!(disk.list().unwrap(), ["1-9-1-0", "manifest-2-9"], "the later one has removed the rest");
}

#[test]
fn a_snapshot_that_a_former_owner_switched_at_the_last_moment_is_taken_over() {
    let (disk, former) = with_a_snapshot(1);
    let (later, found) = open(&disk, 2).unwrap();
    assert_eq!(found.unwrap().manifest.record.epoch, Epoch(5));
    // As if it had looked before the later one was there.
    let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
    former.prepare(next, Some(manifest(9, part(&former, 9)))).unwrap();
    former.rename(next).unwrap();
    later.tidy();
    disk.crash();
    assert_eq!(counts(&disk, 3), Some((9, vec![state(9)])));
}

/// A former owner switches to its snapshot of epoch 9 while the next one makes what it has seen its own, and ends before it looks again:
/// `None` or the snapshot of epoch 5. The former one tidies before that, behind it, or is killed.
fn switched_beside_a_successor(disk: &Arc<SimDisk>, seen: Option<u64>, tidies: &str) {
    let (former, _) = open(disk, 1).unwrap();
    let next = Place { owner: NodeEpoch(1), epoch: Epoch(9) };
    former.prepare(next, Some(manifest(9, part(&former, 9)))).unwrap();
    let second = unopened(disk, 2);
    let seen = seen.map(|epoch| Place { owner: NodeEpoch(1), epoch: Epoch(epoch) });
    let own = Place { owner: NodeEpoch(2), epoch: seen.map_or(Epoch::ZERO, |seen| seen.epoch) };
    second.prepare(own, seen.and_then(|seen| second.read(seen).unwrap())).unwrap();
    former.rename(next).unwrap();
    // It counts: records before it may go now.
    former.check_last(next, &former.list().unwrap()).unwrap();
    if tidies == "before" {
        former.tidy();
    }
    second.rename(own).unwrap();
    if tidies == "behind" {
        former.tidy();
    }
    disk.crash();
}

#[test]
fn a_snapshot_that_was_switched_at_the_last_moment_is_taken_over_also_if_its_successor_ended_too_soon() {
    for (has_one, tidies) in
        [false, true].into_iter().flat_map(|has_one| ["before", "behind", "never"].map(|tidies| (has_one, tidies)))
    {
        let disk = if has_one { with_a_snapshot(1).0 } else { SimDisk::new(1) };
        switched_beside_a_successor(&disk, has_one.then_some(5), tidies);
        assert_eq!(counts(&disk, 3), Some((9, vec![state(9)])), "{has_one}, {tidies}");
        assert_eq!(disk.list().unwrap(), ["1-9-1-0", "manifest-3-9"]);
        // Of what was replaced there is nothing to be taken, and what is lost is told.
        disk.remove("1-9-1-0").unwrap();
        assert!(open(&disk, 4).unwrap_err().to_string().contains("1-9-1-0"));
    }
}

#[test]
fn what_is_not_of_snapshots_stays() {
    let (disk, snapshots) = with_a_snapshot(1);
    for name in ["lost+found", "1-2-3", "1-2-3-x", "+1-2-3-4"] {
        disk.put(name, b"");
    }
    snapshots.tidy();
    assert_eq!(disk.list().unwrap(), ["+1-2-3-4", "1-2-3", "1-2-3-x", "1-5-1-0", "lost+found", "manifest-1-5"]);
}

#[test]
fn a_snapshot_that_is_damaged_is_refused_with_its_place() {
    let disk = SimDisk::new(1);
    let (snapshots, _) = open(&disk, 1).unwrap();
    let part = part(&snapshots, 5);
    snapshots.switch(&manifest(5, part.clone())).unwrap();
    let overwrite = |name: &str, bytes: &[u8]| {
        disk.remove(name).unwrap();
        disk.create(name).unwrap().write_at(bytes, 0).unwrap();
    };
    let refused = || open(&disk, 2).unwrap_err().to_string();
    // The first attempt makes it its own.
    counts(&disk, 2);
    let manifest = Place { owner: NodeEpoch(2), epoch: Epoch(5) }.name();
    let good = disk.read(&manifest, MANIFEST_MAX).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 1;
    overwrite(&manifest, &bad);
    assert!(refused().contains("manifest-2-5") && refused().contains("it is damaged"), "{}", refused());
    overwrite(&manifest, &good);
    let whole = disk.read(&part.name, part.bytes).unwrap();
    let mut bad = whole.clone();
    bad[9] ^= 1;
    overwrite(&part.name, &bad);
    assert!(refused().contains(&part.name) && refused().contains("it is damaged"), "{}", refused());
    overwrite(&part.name, &whole[..whole.len() - 1]);
    assert!(refused().contains("it is damaged: expected"), "{}", refused());
    disk.remove(&part.name).unwrap();
    assert!(refused().contains(&part.name), "{}", refused());
}

fn pieces(numbers: std::ops::Range<i64>) -> Vec<Piece> {
    let piece = |number: i64| {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![number]));
        Piece::new(RecordBatch::try_from_iter([("n", numbers)]).unwrap())
    };
    numbers.map(piece).collect()
}

fn state_of(pieces: &[Piece]) -> State {
    let mut state = State::default();
    pieces.iter().for_each(|piece| state.put_piece("numbers", [0; 2], piece));
    state
}

fn numbers_of(state: &State) -> Vec<i64> {
    state.tables.iter().map(|table| table.rows.column(0).as_primitive::<Int64Type>().value(0)).collect()
}

/// Writes the part of the next snapshot, and tells the chains that it would have.
fn chained(snapshots: &QuerySnapshots, before: &Chains, epoch: u64, state: &State) -> Chains {
    let part = before.next((StageId(1), 0), 1, state);
    let mut write = |out: &mut dyn Write| part.write(out);
    let file = snapshots.put(Epoch(epoch), StageId(1), 0, &mut write).unwrap();
    let mut next = Chains::default();
    next.add(part, file);
    next
}

fn manifest_of(epoch: u64, chains: &Chains) -> Manifest {
    manifest(epoch, chains.parts().next().unwrap().clone())
}

/// A disk on which a snapshot counts that has changes, and what it has.
fn with_changes(seed: u64, all: &[Piece]) -> (Arc<SimDisk>, Arc<QuerySnapshots>, Chains) {
    let disk = SimDisk::new(seed);
    let (snapshots, _) = open(&disk, 1).unwrap();
    let mut chains = Chains::default();
    for (epoch, from) in [(5, 0), (6, 1), (7, 2)] {
        chains = chained(&snapshots, &chains, epoch, &state_of(&all[from..from + 20]));
        snapshots.switch(&manifest_of(epoch, &chains)).unwrap();
    }
    (disk, snapshots, chains)
}

#[test]
fn a_snapshot_with_changes_counts_as_a_whole_or_not_at_all_whatever_fails_within_a_switch() {
    let all = pieces(0..60);
    let (mut switched, mut failed) = (0, 0);
    for (seed, fault) in (0..15).flat_map(|seed| [Fault::Error, Fault::Full, Fault::PowerCut].map(|f| (seed, f))) {
        // The next one has more changes, or is whole again: then what was there goes.
        for (step, next) in (1..30).flat_map(|step| [3..23, 40..60].map(|next| (step, next))) {
            let (disk, snapshots, chains) = with_changes(seed, &all);
            assert_eq!(manifest_of(7, &chains).files().count(), 3);
            let chains = chained(&snapshots, &chains, 9, &state_of(&all[next.clone()]));
            disk.fail(step, fault);
            let is_switched = snapshots.switch(&manifest_of(9, &chains)).is_ok();
            (switched, failed) = (switched + i32::from(is_switched), failed + i32::from(!is_switched));
            if !is_switched {
                snapshots.tidy();
            }
            disk.crash();
            let (epoch, states) = counts(&disk, 2).unwrap();
            let found = (epoch, numbers_of(&states[0]));
            let is_new = found == (9, next.clone().map(|number| number as i64).collect());
            let is_former = found == (7, (2..22).collect());
            assert!(is_new || !is_switched && is_former, "seed {seed}, {fault:?} at {step}: {found:?}");
        }
    }
    assert!(switched > 100 && failed > 100, "{switched} switched, {failed} failed");
}

#[test]
fn files_of_a_part_stay_while_they_are_named_and_a_later_owner_reads_them() {
    let all = pieces(0..60);
    let (disk, snapshots, chains) = with_changes(1, &all);
    // One that was given up.
    let given_up = chained(&snapshots, &chains, 8, &state_of(&all[3..23]));
    snapshots.tidy();
    assert_eq!(disk.list().unwrap(), ["1-5-1-0", "1-6-1-0", "1-7-1-0", "manifest-1-7"]);
    assert_eq!(given_up.parts().next().unwrap().changes.len(), 3);
    for owner in [2, 3] {
        let (epoch, states) = counts(&disk, owner).unwrap();
        assert_eq!((epoch, numbers_of(&states[0])), (7, (2..22).collect::<Vec<_>>()));
    }
    assert_eq!(disk.list().unwrap().len(), 4, "{:?}", disk.list());
    // Of the next owner, all is new.
    let (later, _) = open(&disk, 4).unwrap();
    let chains = chained(&later, &Chains::default(), 9, &state_of(&all[4..24]));
    later.switch(&manifest_of(9, &chains)).unwrap();
    assert_eq!(disk.list().unwrap(), ["4-9-1-0", "manifest-4-9"]);
}

#[test]
fn changes_that_are_damaged_or_follow_another_state_are_refused_with_their_place() {
    let all = pieces(0..60);
    let (disk, _, chains) = with_changes(1, &all);
    let overwrite = |name: &str, bytes: &[u8]| {
        disk.remove(name).unwrap();
        disk.create(name).unwrap().write_at(bytes, 0).unwrap();
    };
    let refused = || open(&disk, 2).unwrap_err().to_string();
    let good = disk.read("1-6-1-0", 1 << 20).unwrap();
    let mut bad = good.clone();
    bad[9] ^= 1;
    overwrite("1-6-1-0", &bad);
    assert!(refused().contains("1-6-1-0") && refused().contains("do not have its checksum"), "{}", refused());
    disk.remove("1-6-1-0").unwrap();
    assert!(refused().contains("1-6-1-0"), "{}", refused());
    disk.create("1-6-1-0").unwrap().write_at(&good, 0).unwrap();
    // One of them twice.
    let mut part = chains.parts().next().unwrap().clone();
    part.changes[1] = part.changes[0].clone();
    let (later, _) = open(&disk, 3).unwrap();
    later.switch(&manifest(8, part)).unwrap();
    let error = open(&disk, 4).unwrap_err().to_string();
    assert!(error.contains("1-6-1-0") && error.contains("expected changes of this state"), "{error}");
}

#[test]
fn a_snapshot_does_not_count_that_names_a_file_that_is_gone_and_one_that_is_whole_does() {
    let all = pieces(0..60);
    for gone in ["1-5-1-0", "1-6-1-0", "1-7-1-0"] {
        let (disk, snapshots, chains) = with_changes(1, &all);
        disk.remove(gone).unwrap();
        let next = chained(&snapshots, &chains, 8, &state_of(&all[3..23]));
        let error = snapshots.switch(&manifest_of(8, &next)).unwrap_err().to_string();
        assert!(error.contains(&format!("expected the file {gone}, which it names, and it is gone")), "{error}");
        snapshots.tidy();
        assert!(disk.exists("manifest-1-7").unwrap() && !disk.exists("1-8-1-0").unwrap(), "{:?}", disk.list());
        // As the query does then.
        let whole = chained(&snapshots, &Chains::default(), 9, &state_of(&all[4..24]));
        snapshots.switch(&manifest_of(9, &whole)).unwrap();
        let (epoch, states) = counts(&disk, 2).unwrap();
        assert_eq!((epoch, numbers_of(&states[0])), (9, (4..24).collect::<Vec<_>>()), "{gone}");
    }
}

#[test]
fn a_chain_that_lacks_a_link_or_has_another_one_in_its_place_is_refused() {
    let all = pieces(0..60);
    let (disk, snapshots, chains) = with_changes(1, &all);
    let without = |number: usize| state_of(&[&all[2..number], &all[number + 1..24]].concat());
    // One that was given up, and what came in its place.
    let given_up = chained(&snapshots, &chains, 8, &without(22));
    let chains = chained(&snapshots, &chains, 9, &without(23));
    let chains = chained(&snapshots, &chains, 10, &state_of(&[&all[2..23], &all[24..25]].concat()));
    let part = chains.parts().next().unwrap();
    let read = |part: &Part| {
        let read = |file: &PartFile| disk.read(&file.name, 1 << 20).map_err(|e| e.to_string());
        read_parts(&manifest(10, part.clone()), read).map_err(|(name, cause)| format!("{name}: {cause}"))
    };
    assert_eq!(numbers_of(&read(part).unwrap()[0]), (2..23).chain([24]).collect::<Vec<_>>());
    let refused = |changed: &dyn Fn(&mut Part)| {
        let mut part = part.clone();
        changed(&mut part);
        read(&part).unwrap_err()
    };
    assert_eq!(part.changes.len(), 4);
    for link in 0..3 {
        let error = refused(&|part| drop(part.changes.remove(link)));
        assert!(error.contains(&part.changes[link + 1].name), "{error}");
        assert!(error.contains("expected changes of this state, got those of another: they follow"), "{error}");
        let error = refused(&|part| part.changes.swap(link, link + 1));
        assert!(error.contains(&part.changes[link + 1].name) && error.contains("they follow"), "{error}");
    }
    let error = refused(&|part| drop(part.changes.pop()));
    assert!(error.contains("1-9-1-0: expected a state of the checksum"), "{error}");
    let other = given_up.parts().next().unwrap().changes[2].clone();
    let error = refused(&|part| part.changes[2] = other.clone());
    assert!(error.contains("1-10-1-0: expected changes of this state, got those of another: they follow"), "{error}");
    let error = refused(&|part| part.gives = None);
    assert!(error.contains("expected a part that says which state its changes give"), "{error}");
}

#[test]
fn builds_that_know_of_no_changes_refuse_a_manifest_that_names_some() {
    let (disk, ..) = with_changes(1, &pieces(0..60));
    assert_eq!(disk.read("manifest-1-7", MANIFEST_MAX).unwrap()[4], 2);
    let (whole, _) = with_a_snapshot(1);
    assert_eq!(whole.read("manifest-1-5", MANIFEST_MAX).unwrap()[4], 1, "they read those without");
}

/// The bytes that the first release with changes wrote.
#[test]
fn manifests_of_version_2_are_read() {
    let record = b"\x02{\"owner\":1,\"manifest\":{\"query\":{\"code\":\"0123456789ab\",\"job\":7},\"record\":{\"epoch\":5,\"processing_time\":7,\
        \"sources\":[],\"committed\":5},\"rows_at\":7,\"signatures\":[\"panes\"],\"parts\":[{\"stage\":1,\"shuffle\":0,\"members\":1,\
        \"name\":\"1-4-1-0\",\"bytes\":3,\"checksum\":4,\"changes\":[{\"name\":\"1-5-1-0\",\"bytes\":5,\"checksum\":6}],\"gives\":9}]}}";
    let owned = decode_with_snapshot::<Owned>(record).unwrap();
    assert_eq!(owned.manifest.as_ref().unwrap().parts[0].gives, Some(9));
    let files = owned.manifest.unwrap().files().map(|file| (file.name, file.bytes, file.checksum)).collect::<Vec<_>>();
    assert_eq!(files, [("1-4-1-0".to_owned(), 3, 4), ("1-5-1-0".to_owned(), 5, 6)]);
    assert!(
        decode_with_snapshot::<Owned>(b"\x03{}")
            .err()
            .unwrap()
            .contains("expected a record of version 1 or 2, got version 3")
    );
}

/// A manifest and a state as builds wrote them that know of no pieces.
#[test]
fn snapshots_without_pieces_are_read_and_taken_over() {
    let whole = include_bytes!("../../../runtime/src/snapshot/state-1.bin");
    let record = b"\x01{\"owner\":1,\"manifest\":{\"query\":{\"code\":\"0123456789ab\",\"job\":7},\"record\":{\"epoch\":5,\"processing_time\":7,\
        \"sources\":[],\"committed\":5},\"rows_at\":7,\"signatures\":[\"panes\"],\"parts\":[{\"stage\":1,\"shuffle\":0,\"members\":1,\
        \"name\":\"1-5-1-0\",\"bytes\":1968,\"checksum\":1305112008}]}}";
    let disk = SimDisk::new(1);
    disk.put("1-5-1-0", whole);
    disk.put("manifest-1-5", &[&crc32c::crc32c(record).to_le_bytes(), record.as_slice()].concat());
    for owner in 2..4 {
        let (epoch, states) = counts(&disk, owner).unwrap();
        let rows: usize = states[0].tables.iter().map(|table| table.rows.num_rows()).sum();
        assert_eq!((epoch, states.len(), states[0].marks["closed"], rows), (5, 1, i64::MIN, 10));
        assert!(states[0].tables.iter().all(|table| table.piece.is_none() && !table.has_marks));
        // What is taken over has the form that it had.
        let manifest = disk.read(&format!("manifest-{owner}-5"), MANIFEST_MAX).unwrap();
        assert!(manifest.ends_with(&record[record.len() - 90..]), "{}", String::from_utf8_lossy(&manifest));
    }
    // Rows that are no pieces are followed by none.
    let (snapshots, found) = open(&disk, 4).unwrap();
    let states = found.unwrap().states;
    let chains = chained(&snapshots, &Chains::default(), 6, &states[0]);
    let chains = chained(&snapshots, &chains, 7, &states[0]);
    assert_eq!(chains.parts().next().unwrap().files().count(), 1);
}

/// The bytes that the first release with them wrote.
#[test]
fn manifests_of_version_1_are_read() {
    let record = b"\x01{\"owner\":1,\"manifest\":{\"query\":{\"code\":\"0123456789ab\",\"job\":7},\"record\":{\"epoch\":5,\"processing_time\":7,\
        \"sources\":[],\"committed\":5},\"rows_at\":7,\"signatures\":[\"panes\"],\"parts\":[]}}";
    let disk = SimDisk::new(1);
    let mut file = disk.create("manifest-1-5").unwrap();
    file.write_at(&[&crc32c::crc32c(record).to_le_bytes(), record.as_slice()].concat(), 0).unwrap();
    let (epoch, states) = counts(&disk, 2).unwrap();
    assert_eq!((epoch, states.len()), (5, 0));
}
