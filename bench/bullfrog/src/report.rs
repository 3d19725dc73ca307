//! What a run says of itself.

use std::fs;
use std::time::Duration;

use serde::Serialize;

use crate::application::{Application, Done};
use crate::transactions::Kind;

/// Latencies in milliseconds.
#[derive(Serialize)]
pub(crate) struct Latency {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Latency {
    /// Zeros if there are none.
    pub(crate) fn of(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            let latency = latencies.get(index.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default();
            (latency.as_secs_f64() * 1e6).round() / 1000.0
        };
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// Of each second, those before the switch first.
#[derive(Default, Serialize)]
struct Seconds {
    first: i64,
    completed: Vec<usize>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    max: Vec<f64>,
}

/// A run.
#[derive(Serialize)]
pub(crate) struct Report {
    /// When what happened, in seconds since the switch was due.
    events: Vec<(String, f64)>,
    /// Transactions done in the window, and per second of it.
    completed: usize,
    throughput: f64,
    /// Transactions that had arrived in time and were not begun at the end of the window.
    waiting: u64,
    retries: u64,
    /// Of what was done in the window.
    latency: Latency,
    new_order: Latency,
    /// How busy each core was in the window, and what other machines took of it: shares of its time.
    cores: Vec<Core>,
    seconds: Seconds,
}

impl Report {
    /// Sums up a run whose window was of so many seconds. The cores are what they did in it.
    pub(crate) fn of(application: &Application, window: Duration, cores: Vec<Core>) -> Self {
        let done = application.done();
        let within: Vec<&Done> = done.iter().filter(|done| (0.0..window.as_secs_f64()).contains(&done.at)).collect();
        let latencies = |kind: Option<Kind>| {
            let chosen = within.iter().filter(|done| kind.is_none_or(|kind| done.kind == kind));
            Latency::of(chosen.map(|done| done.latency).collect())
        };
        Self {
            events: application.events(),
            completed: within.len(),
            throughput: within.len() as f64 / window.as_secs_f64(),
            waiting: application.waiting(),
            retries: application.retries(),
            latency: latencies(None),
            new_order: latencies(Some(Kind::NewOrder)),
            cores,
            seconds: by_second(&done, window.as_secs() as i64),
        }
    }
}

fn by_second(done: &[Done], window: i64) -> Seconds {
    let first = done.iter().map(|done| done.at.floor() as i64).min().unwrap_or(0);
    let mut of_seconds: Vec<Vec<Duration>> = Vec::new();
    of_seconds.resize_with((window - first).max(0) as usize, Vec::new);
    for done in done {
        if let Some(of_second) = of_seconds.get_mut((done.at.floor() as i64 - first) as usize) {
            of_second.push(done.latency);
        }
    }
    let mut seconds = Seconds { first, ..Seconds::default() };
    for of_second in of_seconds {
        seconds.completed.push(of_second.len());
        let latency = Latency::of(of_second);
        seconds.p50.push(latency.p50);
        seconds.p99.push(latency.p99);
        seconds.max.push(latency.max);
    }
    seconds
}

/// What a core did: shares of its time.
#[derive(Serialize)]
pub(crate) struct Core {
    busy: f64,
    stolen: f64,
}

/// The clock ticks of each core since the machine started: in all, idle, and stolen by other machines.
pub(crate) fn ticks() -> Vec<[u64; 3]> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let of_core = |line: &str| {
        let fields: Vec<u64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        let field = |number: usize| fields.get(number).copied().unwrap_or(0);
        // user nice system idle iowait irq softirq steal; what guests get is in the first already.
        [fields.iter().take(8).sum(), field(3) + field(4), field(7)]
    };
    stat.lines().filter(is_core).map(of_core).collect()
}

/// What the cores did between two looks.
pub(crate) fn cores(before: &[[u64; 3]], after: &[[u64; 3]]) -> Vec<Core> {
    let of_core = |(before, after): (&[u64; 3], &[u64; 3])| {
        let [all, idle, stolen] = std::array::from_fn(|field| (after[field] - before[field]) as f64);
        Core { busy: (all - idle - stolen) / all, stolen: stolen / all }
    };
    before.iter().zip(after).map(of_core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_latency_that_was_seen() {
        let latency = Latency::of((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!((latency.p50, latency.p99, latency.max), (51.0, 100.0, 100.0));
        assert_eq!(Latency::of(Vec::new()).max, 0.0);
    }

    #[test]
    fn seconds_before_the_switch_have_negative_numbers() {
        let done =
            [-1.5, -0.5, 0.5, 0.7, 9.0].map(|at| Done { at, latency: Duration::from_millis(1), kind: Kind::Payment });
        let seconds = by_second(&done, 3);
        assert_eq!((seconds.first, seconds.completed), (-2, vec![1, 1, 2, 0, 0]));
    }
}
