//! Appends of 200 B with 1, 8 and 64 waiters: how many become durable per second, how many share a flush, what each
//! costs. `cargo bench -p savanna-journal`; the directory is `JOURNAL_BENCH_DIR`, or one in the temporary directory.

use std::{
    convert::Infallible,
    env, fs,
    sync::Arc,
    time::{Duration, Instant},
};

use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, Options, Record};

const PAYLOAD: [u8; 200] = [0xa5; 200];
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);
/// What /proc counts processor time in.
const TICK: Duration = Duration::from_millis(10);

fn main() {
    println!(
        "{:>7} {:>11} {:>9} {:>14} {:>10} {:>10} {:>14}",
        "waiters", "commits/s", "syncs/s", "commits/flush", "p50 us", "p99 us", "CPU us/commit"
    );
    for waiters in [1, 8, 64] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let root = env::var_os("JOURNAL_BENCH_DIR").map_or_else(env::temp_dir, Into::into);
        let dir = tempfile::tempdir_in(root).expect("a directory");
        let mut ignore = |_: Record| Ok::<(), Infallible>(());
        let journal = Journal::open(Options::dir(dir.path()), NodeEpoch(1), &mut ignore).expect("opened");
        println!("{}", runtime.block_on(measure(Arc::new(journal), waiters)));
    }
}

async fn measure(journal: Arc<Journal>, waiters: u64) -> String {
    let end = Instant::now() + WARM_UP + MEASURED;
    let tasks: Vec<_> =
        (0..waiters).map(|shard| tokio::spawn(wait_in_turn(Arc::clone(&journal), shard, end))).collect();
    tokio::time::sleep(WARM_UP).await;
    let (before, cpu_before, started) = (journal.stats(), cpu(), Instant::now());
    tokio::time::sleep(MEASURED).await;
    let (after, cpu_after, took) = (journal.stats(), cpu(), started.elapsed().as_secs_f64());
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.append(&mut task.await.expect("the task ends"));
    }
    latencies.sort_unstable();
    let commits = (after.groups - before.groups) as f64;
    let flushes = (after.flushes - before.flushes) as f64;
    let percentile = |percent: usize| latencies[latencies.len() * percent / 100].as_micros();
    format!(
        "{waiters:>7} {:>11.0} {:>9.0} {:>14.1} {:>10} {:>10} {:>14.1}",
        commits / took,
        flushes / took,
        commits / flushes,
        percentile(50),
        percentile(99),
        (cpu_after - cpu_before).as_micros() as f64 / commits
    )
}

/// Appends one record after the other, each when the one before is durable.
async fn wait_in_turn(journal: Arc<Journal>, shard: u64, end: Instant) -> Vec<Duration> {
    let draft = Draft { shard, kind: 1, payload: &PAYLOAD };
    let mut latencies = Vec::new();
    loop {
        let started = Instant::now();
        if started >= end {
            return latencies;
        }
        let lsn = journal.append(&[draft]).expect("accepted");
        journal.wait_durable(lsn).await.expect("durable");
        latencies.push(started.elapsed());
    }
}

/// Processor time of this process, all threads.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().expect("the name is in parentheses");
    let ticks: u32 =
        after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>().expect("a number")).sum();
    TICK * ticks
}
