//! What a transaction costs by level and by what it does: nanoseconds of processor time and allocations. `cargo bench -p
//! savanna-transaction`. With a number it only commits so many transactions at each level, for
//! `valgrind --tool=callgrind` to count their instructions: those of two numbers differ by those of the difference.
//!
//! One thread, keys of 17 bytes in random order, every commit installed and durable at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use savanna_transaction::{Change, Commit, Csn, Isolation, KeyRange, RowLock, Transactions, TxnId, Wait};

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Database = Transactions<u64>;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

fn main() {
    match std::env::args().find_map(|argument| argument.parse().ok()) {
        Some(commits) => commit_for_counting(commits),
        None => measure(),
    }
}

/// So many transactions of a read and a write at each level, and nothing else but the 1,000 keys.
fn commit_for_counting(commits: u64) {
    for level in LEVELS {
        let mut database = filled(1_000);
        for at in 0..commits {
            let txn = begin(&mut database, level);
            add(&mut database, level, txn, at % 1_000);
            finish(&mut database, txn);
        }
    }
}

fn measure() {
    for keys in [1_000, 1_000_000] {
        println!("{keys} keys, ns and allocations per operation");
        println!("{:>36} {:>15} {:>15} {:>15}", "", "read committed", "snapshot", "serializable");
        line("a read in an open transaction", |level| {
            let mut database = filled(keys);
            let txn = begin(&mut database, level);
            let mut at = 0;
            per_operation(move || {
                at += 1;
                black_box(read(&mut database, txn, at % keys));
            })
        });
        line("begin, read, commit", |level| {
            let mut database = filled(keys);
            let mut at = 0;
            per_operation(move || {
                at += 1;
                let txn = begin(&mut database, level);
                black_box(read(&mut database, txn, at % keys));
                finish(&mut database, txn);
            })
        });
        line("begin, read, write, commit", |level| {
            let mut database = filled(keys);
            let mut at = 0;
            per_operation(move || {
                at += 1;
                let txn = begin(&mut database, level);
                add(&mut database, level, txn, at % keys);
                finish(&mut database, txn);
            })
        });
        line("begin, 10 reads, 10 writes, commit", |level| {
            let mut database = filled(keys);
            let mut at = 0;
            per_operation(move || {
                let txn = begin(&mut database, level);
                for _ in 0..10 {
                    at += 1;
                    add(&mut database, level, txn, at % keys);
                }
                finish(&mut database, txn);
            })
        });
    }
    println!("\na commit at SERIALIZABLE that read r rows and 10 ranges, while w rows were written: ns");
    println!("{:>12} {:>12} {:>12} {:>12}", "r \\ w", 0, 100, 10_000);
    for reads in [10, 1_000, 100_000] {
        let costs = [0, 100, 10_000].map(|writes| format!("{:.0}", validation(reads, writes).as_secs_f64() * 1e9));
        println!("{reads:>12} {:>12} {:>12} {:>12}", costs[0], costs[1], costs[2]);
    }
}

fn line(name: &str, measure: impl Fn(Isolation) -> String) {
    let [rc, si, ser] = LEVELS.map(measure);
    println!("{name:>36} {rc:>15} {si:>15} {ser:>15}");
}

/// "nanoseconds, allocations" of an operation that is repeated for a while.
fn per_operation(mut operation: impl FnMut()) -> String {
    for _ in 0..10_000 {
        operation();
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    let begin = now();
    let mut count = 0_u32;
    while now() - begin < Duration::from_millis(200) {
        for _ in 0..1_000 {
            operation();
        }
        count += 1_000;
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    let count = f64::from(count);
    format!("{:.0} {:>5.1}", (now() - begin).as_secs_f64() * 1e9 / count, allocations as f64 / count)
}

/// Processor time of this thread, so that company on the machine counts less.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Keys of one table, in an order without pattern.
fn key(number: u64) -> [u8; 17] {
    let mut key = *b"tb000001.........";
    key[9..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn filled(keys: u64) -> Database {
    let mut database = Database::recovered(Csn::NONE);
    for number in 0..keys {
        database.replay(Csn(1), &key(number), Some(0));
    }
    database
}

fn begin(database: &mut Database, level: Isolation) -> TxnId {
    let txn = database.begin(level);
    database.statement(txn).expect("it was begun");
    txn
}

fn read(database: &mut Database, txn: TxnId, number: u64) -> u64 {
    database.get(txn, &key(number)).expect("it runs").value().copied().unwrap_or(0)
}

/// One more in a row, which READ COMMITTED locks first.
fn add(database: &mut Database, level: Isolation, txn: TxnId, number: u64) {
    let key = key(number);
    if level == Isolation::ReadCommitted {
        database.lock(txn, &key, RowLock::NoKeyUpdate, Wait::Queue).expect("it is free");
    }
    let value = database.get(txn, &key).expect("it runs").value().copied().unwrap_or(0);
    database.write(txn, &key, Some(value + 1), Change::Content).expect("it is locked");
}

fn finish(database: &mut Database, txn: TxnId) {
    match database.commit(txn).expect("nothing is in its way") {
        Commit::Committed(committed) => {
            let csn = committed.csn();
            database.install(committed);
            database.durable(csn).expect("it was numbered");
        }
        Commit::ReadOnly(_) => {}
        Commit::Waiting => panic!("nobody holds a lock"),
    }
}

/// The time of one commit's check.
fn validation(reads: u64, writes: u64) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let mut database = Database::default();
        let txn = begin(&mut database, Isolation::Serializable);
        for number in 0..reads {
            read(&mut database, txn, number);
        }
        for number in 0..10_u8 {
            database.read_range(txn, KeyRange::prefix(&[number])).expect("it runs");
        }
        database.write(txn, b"written", Some(1), Change::Existence).expect("it runs");
        for number in 0..writes {
            let other = begin(&mut database, Isolation::Snapshot);
            database.write(other, &key(reads + number), Some(1), Change::Existence).expect("it runs");
            finish(&mut database, other);
        }
        let begin = now();
        let outcome = black_box(database.commit(txn));
        least = least.min(now() - begin);
        let Ok(Commit::Committed(committed)) = outcome else { panic!("nothing it read was written") };
        database.install(committed);
    }
    least
}
