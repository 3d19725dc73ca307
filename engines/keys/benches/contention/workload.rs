//! What all variants do, and how the time of their threads is taken.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// How much of what is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) threads: usize,
    /// The distribution's exponent.
    pub(crate) zipf: f64,
    pub(crate) keys: usize,
    /// Updates of all threads together.
    pub(crate) operations: usize,
    pub(crate) value_bytes: usize,
}

/// A key: its rank among the keys, the most popular one first.
pub(crate) type Rank = u32;

/// What a key is called.
pub(crate) const fn name(rank: Rank) -> [u8; 8] {
    (rank as u64).to_le_bytes()
}

impl Workload {
    /// The keys that each thread updates, in order; `thread_of` says which thread gets a request.
    pub(crate) fn plan(&self, mut thread_of: impl FnMut(Rank, usize) -> usize) -> Vec<Vec<Rank>> {
        let mut plans = vec![Vec::with_capacity(self.operations / self.threads + 1); self.threads];
        let shares = self.cumulative_shares();
        let mut chance = Chance(1);
        for number in 0..self.operations {
            let at = chance.next();
            let rank = shares.partition_point(|share| *share <= at).min(self.keys - 1) as Rank;
            plans[thread_of(rank, number)].push(rank);
        }
        plans
    }

    /// As many requests for each thread.
    pub(crate) fn even_plan(&self) -> Vec<Vec<Rank>> {
        self.plan(|_, number| number % self.threads)
    }

    /// A value of the right length, whose first bytes are to be overwritten.
    pub(crate) fn value(&self) -> Vec<u8> {
        vec![b'v'; self.value_bytes]
    }

    /// Which part of all requests is for the keys up to each rank.
    fn cumulative_shares(&self) -> Vec<f64> {
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=self.keys)
            .map(|rank| {
                sum += (rank as f64).powf(-self.zipf);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        shares
    }
}

/// Chance from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    /// A number from 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What the threads took together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Processor time, added up.
    pub(crate) cpu: Duration,
    /// Until the last one was done.
    pub(crate) wall: Duration,
}

/// Runs each worker on a thread of its own, all from the same moment on.
pub(crate) fn run_all<W: FnMut() + Send>(workers: &mut [W]) -> Spent {
    let start = Barrier::new(workers.len());
    let spent = |worker: &mut W| {
        start.wait();
        let (cpu, began) = (thread_cpu(), Instant::now());
        worker();
        (thread_cpu() - cpu, began.elapsed())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| spent(worker))).collect();
        let all = threads.into_iter().map(|thread| thread.join().expect("the worker ends"));
        let (cpu, wall): (Vec<_>, Vec<_>) = all.unzip();
        Spent { cpu: cpu.iter().sum(), wall: wall.into_iter().max().unwrap_or_default() }
    })
}

/// The same under valgrind, where the kernel's page of clocks is not there.
fn thread_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the thread's usage");
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    Duration::from_micros((micros(usage.user_time()) + micros(usage.system_time())).unsigned_abs())
}
