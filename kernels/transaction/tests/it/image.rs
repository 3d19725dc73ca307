//! A manager that was exported and imported decides as the one that stayed, and bytes that nobody exported do no harm.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_transaction::{
    Change, Commit, Committed, Csn, Direction, HolderId, ImageError, Isolation, KeyRange, Prepared, QueuePlace,
    RowLock, Savepoint, Transactions, TxnId, View, Wait,
};

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
const MODES: [RowLock; 4] = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update];
const CHANGES: [Change; 2] = [Change::Content, Change::Existence];

/// What is done to a manager. Places count into what the history has made so far.
#[derive(Clone, Debug)]
enum Step {
    Begin(Isolation, Option<HolderId>),
    Statement(TxnId),
    EndStatement(TxnId),
    Get(TxnId, u8),
    Probe(TxnId, u8),
    Scan(TxnId, KeyRange, Direction),
    ProbeRange(TxnId, KeyRange),
    Write(TxnId, u8, Option<u64>, Change),
    Lock(TxnId, u8, RowLock, Wait),
    LockForHolder(TxnId, u8, RowLock, Wait),
    Settle(HolderId, u8, Option<RowLock>),
    RemoveHolder(HolderId),
    CancelWait(TxnId),
    /// Its wait is ended, and it has its place again when it asks again.
    TakeBack(TxnId),
    Savepoint(TxnId),
    RollBackTo(TxnId, Savepoint),
    KeepView(TxnId),
    StatementIn(TxnId, View),
    DropView(TxnId, View),
    Overtaken(TxnId),
    Commit(TxnId),
    Prepare(TxnId),
    Install(usize),
    Abort(TxnId),
    Evict,
    Horizon,
}

/// A manager, and its commits that are decided and not installed.
struct Side {
    manager: Transactions<u64>,
    decided: Vec<Committed<u64>>,
    /// Whether what it keeps of garbage counts, too.
    counts: bool,
}

/// What a step may name.
#[derive(Default)]
struct Names {
    txns: Vec<TxnId>,
    holders: Vec<HolderId>,
    /// The transaction that runs for a holder.
    runs: Vec<(TxnId, HolderId)>,
    savepoints: Vec<(TxnId, Savepoint)>,
    views: Vec<(TxnId, View)>,
}

impl Side {
    fn install(&mut self, place: usize) {
        let committed = self.decided.remove(place);
        let csn = committed.csn();
        self.manager.install(committed);
        self.manager.durable(csn).expect("numbered");
    }

    fn drain(&mut self) {
        while !self.decided.is_empty() {
            self.install(0);
        }
    }

    fn decided(&mut self, committed: Committed<u64>) -> String {
        let told = format!("{} {:?}", committed.csn(), committed.writes().collect::<Vec<_>>());
        self.decided.push(committed);
        told
    }

    /// Does a step; what it answered and what became of others, in words.
    fn apply(&mut self, step: &Step, names: &mut Names) -> String {
        let answer = self.answer(step, names);
        let events: Vec<_> = self.manager.events().collect();
        let counts = self.counts.then(|| self.manager.counts());
        format!("{answer}; {events:?} {counts:?} {} {}", self.manager.told(), self.manager.horizon())
    }

    fn answer(&mut self, step: &Step, names: &mut Names) -> String {
        let manager = &mut self.manager;
        match step.clone() {
            Step::Begin(level, holder) => {
                let id = manager.begin(level);
                names.txns.push(id);
                if let Some(holder) = holder {
                    manager.run_for(id, holder).expect("just begun");
                    names.runs.push((id, holder));
                }
                format!("{id}")
            }
            Step::Statement(id) => format!("{:?}", manager.statement(id)),
            Step::EndStatement(id) => format!("{:?}", manager.end_statement(id)),
            Step::Get(id, key) => format!("{:?}", manager.get(id, &[key])),
            Step::Probe(id, key) => format!("{:?}", manager.probe(id, &[key])),
            Step::Scan(id, range, direction) => match manager.scan(id, &range, direction) {
                Ok(rows) => format!("{:?}", rows.collect::<Vec<_>>()),
                Err(error) => format!("{error:?}"),
            },
            Step::ProbeRange(id, range) => format!("{:?}", manager.probe_range(id, range)),
            Step::Write(id, key, value, change) => format!("{:?}", manager.write(id, &[key], value, change)),
            Step::Lock(id, key, mode, wait) => format!("{:?}", manager.lock(id, &[key], mode, wait)),
            Step::LockForHolder(id, key, mode, wait) => {
                format!("{:?}", manager.lock_for_holder(id, &[key], mode, wait))
            }
            Step::Settle(holder, key, mode) => {
                manager.settle(holder, [([key].as_slice(), mode)].into_iter());
                String::new()
            }
            Step::RemoveHolder(holder) => {
                manager.remove_holder(holder);
                names.holders.retain(|other| *other != holder);
                String::new()
            }
            Step::CancelWait(id) => format!("{:?}", manager.cancel_wait(id)),
            Step::TakeBack(id) => {
                let place = manager.queue_place(id);
                let stopped = manager.cancel_wait(id);
                place.into_iter().for_each(|place| manager.keep_place(id, place));
                format!("{stopped:?} {}", place.is_some())
            }
            Step::Savepoint(id) => {
                let savepoint = manager.savepoint(id);
                names.savepoints.extend(savepoint.ok().map(|savepoint| (id, savepoint)));
                format!("{savepoint:?}")
            }
            Step::RollBackTo(id, savepoint) => format!("{:?}", manager.roll_back_to(id, savepoint)),
            Step::KeepView(id) => {
                let view = manager.keep_view(id);
                names.views.extend(view.ok().map(|view| (id, view)));
                format!("{view:?}")
            }
            Step::StatementIn(id, view) => format!("{:?}", manager.statement_in(id, view)),
            Step::DropView(id, view) => {
                manager.drop_view(id, view);
                String::new()
            }
            Step::Overtaken(id) => format!("{:?}", manager.overtaken(id, None)),
            Step::Commit(id) => match manager.commit(id) {
                Ok(Commit::Committed(committed)) => self.decided(committed),
                other => format!("{other:?}"),
            },
            Step::Prepare(id) => match manager.prepare(id) {
                Ok(Prepared::Numbered(validation)) => match manager.decide(validation.check()) {
                    Ok(committed) => self.decided(committed),
                    Err(conflict) => format!("{conflict:?}"),
                },
                other => format!("{other:?}"),
            },
            Step::Install(place) => {
                self.install(place);
                String::new()
            }
            Step::Abort(id) => {
                manager.abort(id);
                String::new()
            }
            Step::Evict => format!("{:?}", manager.evict(manager.told(), &KeyRange::ALL, 3)),
            Step::Horizon => {
                let frozen = manager.freeze();
                let seen = format!("{:?}", manager.at(frozen, &KeyRange::ALL).collect::<Vec<_>>());
                manager.thaw(frozen);
                seen
            }
        }
    }
}

fn pick<T: Clone>(rng: &mut ChaCha8Rng, of: &[T]) -> Option<T> {
    if of.is_empty() { None } else { Some(of[rng.random_range(0..of.len())].clone()) }
}

fn range(rng: &mut ChaCha8Rng) -> KeyRange {
    let start = rng.random_range(0..6_u8);
    KeyRange::new([start], [start + rng.random_range(1..3)])
}

/// Draws the next step; `None` if what was drawn does not go now.
fn draw(rng: &mut ChaCha8Rng, names: &Names, decided: usize) -> Option<Step> {
    let latest = names.txns.len().saturating_sub(6);
    let id = pick(rng, &names.txns[latest..]);
    let key = rng.random_range(0..6_u8);
    let mode = MODES[rng.random_range(0..4)];
    let wait = if rng.random_bool(0.8) { Wait::Queue } else { Wait::Never };
    let change = CHANGES[rng.random_range(0..2)];
    Some(match rng.random_range(0..60) {
        0..=6 => {
            let idle: Vec<_> =
                names.holders.iter().copied().filter(|holder| names.runs.iter().all(|(_, of)| of != holder)).collect();
            Step::Begin(LEVELS[rng.random_range(0..3)], pick(rng, &idle).filter(|_| rng.random_bool(0.5)))
        }
        7..=14 => Step::Statement(id?),
        15 => Step::EndStatement(id?),
        16..=20 => Step::Get(id?, key),
        21..=22 => Step::Probe(id?, key),
        23..=24 => Step::Scan(id?, range(rng), [Direction::Ascending, Direction::Descending][rng.random_range(0..2)]),
        25 => Step::ProbeRange(id?, range(rng)),
        26..=32 => Step::Write(id?, key, rng.random_bool(0.8).then(|| rng.random()), change),
        33..=38 => Step::Lock(id?, key, mode, wait),
        39..=40 => Step::LockForHolder(pick(rng, &names.runs)?.0, key, mode, wait),
        41 => Step::Settle(pick(rng, &names.holders)?, key, rng.random_bool(0.6).then_some(mode)),
        42 => {
            let holder = pick(rng, &names.holders)?;
            if names.runs.iter().any(|(_, of)| *of == holder) {
                return None;
            }
            Step::RemoveHolder(holder)
        }
        43 => Step::CancelWait(id?),
        44..=45 => Step::Savepoint(id?),
        46 => pick(rng, &names.savepoints).map(|(id, savepoint)| Step::RollBackTo(id, savepoint))?,
        47 => Step::KeepView(id?),
        48 => pick(rng, &names.views).map(|(id, view)| Step::StatementIn(id, view))?,
        49 => pick(rng, &names.views).map(|(id, view)| Step::DropView(id, view))?,
        50 => Step::Overtaken(id?),
        51..=53 => Step::Commit(id?),
        54 => Step::Prepare(id?),
        55..=56 if decided > 0 => Step::Install(rng.random_range(0..decided)),
        57 => Step::Abort(id?),
        58 => Step::Evict,
        _ => Step::Horizon,
    })
}

/// Forgets who runs for whom when the transaction is over.
fn forget_ended(names: &mut Names, manager: &Transactions<u64>) {
    names.runs.retain(|(id, _)| manager.reply_after(*id).is_ok());
}

/// What a manager takes over with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// The image has them.
    InTheImage,
    /// They are in a log, as far as anybody can see them.
    InTheLog,
}

fn taken_over(manager: &Transactions<u64>, rows: Rows) -> Result<Transactions<u64>, String> {
    let told = |error: ImageError| error.to_string();
    if rows == Rows::InTheImage {
        let image = manager.export().map_err(told)?;
        let imported = Transactions::<u64>::import(&image).map_err(told)?;
        let again = imported.export().map_err(told)?;
        return if again == image { Ok(imported) } else { Err("exported again, it is another image".to_owned()) };
    }
    let mut imported = Transactions::<u64>::import(&manager.export_without_rows().map_err(told)?).map_err(told)?;
    for (csn, writes) in manager.committed_since(Csn::NONE) {
        writes.into_iter().for_each(|(key, value)| imported.replay(csn, key, value.copied()));
    }
    Ok(imported)
}

/// Has all of those who wait stop, one after the other; their places.
fn take_back(manager: &mut Transactions<u64>, txns: &[TxnId]) -> Vec<(TxnId, QueuePlace)> {
    let mut places = Vec::new();
    for id in txns {
        let place = manager.queue_place(*id);
        // Who waits for a session's lock has no place that it could keep.
        if manager.cancel_wait(*id).is_ok() {
            places.extend(place.map(|place| (*id, place)));
        }
    }
    // Some have got their locks.
    manager.events().for_each(drop);
    places
}

/// A history up to `moved`, after which a second manager takes over; both go on. The first step that they answer differently.
fn differs(seed: u64, rows: Rows) -> Option<String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let moved = rng.random_range(20..250);
    let counts = rows == Rows::InTheImage;
    // There is no storage to which rows could go.
    let does = |step: &Step| rows == Rows::InTheImage || !matches!(step, Step::Evict);
    let mut stayed = Side { manager: Transactions::default(), decided: Vec::new(), counts };
    let mut names = Names::default();
    names.holders.extend((0..2).map(|_| stayed.manager.add_holder()));
    for _ in 0..moved {
        if let Some(step) = draw(&mut rng, &names, stayed.decided.len()).filter(does) {
            stayed.apply(&step, &mut names);
            forget_ended(&mut names, &stayed.manager);
        }
    }
    if !stayed.decided.is_empty() {
        assert!(matches!(stayed.manager.export(), Err(ImageError::NotDrained(_))), "seed {seed}");
    }
    stayed.drain();
    // As a database moves: whoever waits is taken back, and asks again.
    let are_taken_back = seed.is_multiple_of(2);
    let places = if are_taken_back { take_back(&mut stayed.manager, &names.txns) } else { Vec::new() };
    let mut manager = match taken_over(&stayed.manager, rows) {
        Ok(manager) => manager,
        Err(error) => return Some(format!("seed {seed}: {error}")),
    };
    manager.count_on(stayed.manager.arrivals());
    for (id, place) in places {
        stayed.manager.keep_place(id, place);
        manager.keep_place(id, place);
    }
    let mut went = Side { manager, decided: Vec::new(), counts };
    for _ in 0..200 {
        let step = match are_taken_back && rng.random_bool(0.05) {
            true => pick(&mut rng, &names.txns).map(Step::TakeBack),
            false => draw(&mut rng, &names, stayed.decided.len()).filter(does),
        };
        let Some(step) = step else { continue };
        let one = stayed.apply(&step, &mut names);
        let other = went.apply(&step, &mut Names::default());
        forget_ended(&mut names, &stayed.manager);
        if one != other {
            return Some(format!("seed {seed}, {step:?}:\n stayed {one}\n moved  {other}"));
        }
    }
    None
}

#[test]
fn a_manager_that_moved_decides_as_the_one_that_stayed() {
    let seeds = std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1_500);
    for seed in 0..seeds {
        assert_eq!(differs(seed, Rows::InTheImage), None);
    }
}

#[test]
fn a_manager_whose_rows_come_out_of_a_log_decides_as_the_one_that_stayed() {
    let seeds = std::env::var("SAVANNA_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1_500);
    for seed in 0..seeds {
        assert_eq!(differs(seed, Rows::InTheLog), None);
    }
}

/// Two sessions with savepoints, a wait, old versions, a view, a session's lock and commits to validate against.
fn example() -> Transactions<u64> {
    let mut manager = Transactions::default();
    let holder = manager.add_holder();
    let commit = |manager: &mut Transactions<u64>, value| {
        let id = manager.begin(Isolation::Serializable);
        manager.statement(id).expect("begins");
        manager.write(id, b"a", Some(value), Change::Existence).expect("writes");
        let Ok(Commit::Committed(committed)) = manager.commit(id) else { panic!("nobody is in its way") };
        let csn = committed.csn();
        manager.install(committed);
        manager.durable(csn).expect("numbered");
    };
    commit(&mut manager, 1);
    let reader = manager.begin(Isolation::Serializable);
    manager.run_for(reader, holder).expect("runs");
    manager.statement(reader).expect("begins");
    manager.get(reader, b"a").expect("reads");
    manager.read_range(reader, KeyRange::new(*b"c", *b"d")).expect("reads");
    manager.probe(reader, b"p").expect("probes");
    manager.keep_view(reader).expect("keeps");
    manager.write(reader, b"b", Some(7), Change::Content).expect("writes");
    manager.savepoint(reader).expect("saves");
    manager.write(reader, b"b", None, Change::Existence).expect("writes");
    commit(&mut manager, 2);
    manager.lock_for_holder(reader, b"advisory", RowLock::Update, Wait::Queue).expect("locks");
    manager.settle(holder, [(b"advisory".as_slice(), Some(RowLock::Update))].into_iter());
    let (first, second) = (manager.begin(Isolation::ReadCommitted), manager.begin(Isolation::Snapshot));
    for id in [first, second] {
        manager.statement(id).expect("begins");
        manager.lock(id, b"row", RowLock::NoKeyUpdate, Wait::Queue).expect("locks or waits");
    }
    manager
}

#[test]
fn images_of_this_version_stay_readable() {
    let image = example().export().expect("drained");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/image-1");
    let kept = std::fs::read(path).expect("the fixture");
    assert_eq!(image, kept, "the form changed: that is a new version, and this one stays readable");
    Transactions::<u64>::import(&kept).expect("is read");
}

#[test]
fn bytes_that_nobody_exported_are_an_error_and_no_panic() {
    let image = example().export().expect("drained");
    assert!(matches!(Transactions::<u64>::import(&[]), Err(ImageError::Malformed { came: 0, .. })));
    let other = [&[9], &image[1..]].concat();
    assert_eq!(Transactions::<u64>::import(&other).map(|_| ()), Err(ImageError::Version { found: 9 }));
    let longer = [image.as_slice(), &[0]].concat();
    assert!(matches!(Transactions::<u64>::import(&longer), Err(ImageError::Malformed { .. })));
    for end in 0..image.len() {
        assert!(Transactions::<u64>::import(&image[..end]).is_err(), "{end} bytes of {}", image.len());
    }
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut refused = 0;
    for round in 0..20_000 {
        let mut bytes = image.clone();
        for _ in 0..rng.random_range(1..4) {
            let place = rng.random_range(1..bytes.len());
            bytes[place] = rng.random();
        }
        let used = catch_unwind(AssertUnwindSafe(|| use_up(&bytes)));
        refused += u32::from(!used.unwrap_or_else(|_| panic!("round {round}: {bytes:?}")));
    }
    assert!(refused > 5_000, "only {refused}");
}

/// Imports and does everything that an owner would; whether it was an image.
fn use_up(bytes: &[u8]) -> bool {
    let Ok(manager) = Transactions::<u64>::import(bytes) else { return false };
    let mut side = Side { manager, decided: Vec::new(), counts: true };
    let mut names = Names { txns: (0..8).map(TxnId).collect(), ..Names::default() };
    let mut rng = ChaCha8Rng::seed_from_u64(bytes.len() as u64);
    for _ in 0..30 {
        if let Some(step) = draw(&mut rng, &names, side.decided.len()) {
            side.apply(&step, &mut names);
        }
    }
    for id in 0..8 {
        side.manager.abort(TxnId(id));
    }
    true
}
