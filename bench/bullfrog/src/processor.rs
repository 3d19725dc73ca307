//! Processor time: of the cores, and of the server's processes.

use std::fs;

use serde::Serialize;

/// Clock ticks per second in `/proc`.
const TICKS: f64 = 100.0;

/// What was used so far.
pub(crate) struct Usage {
    /// Of each core, ticks: in all, idle, and stolen by other machines.
    cores: Vec<[u64; 3]>,
    server_seconds: f64,
}

/// What was used between two moments.
#[derive(Serialize)]
pub(crate) struct Spent {
    cores: Vec<Core>,
    /// By all processes of the server.
    pub(crate) server_seconds: f64,
}

/// Shares of a core's time.
#[derive(Serialize)]
struct Core {
    busy: f64,
    stolen: f64,
}

impl Usage {
    /// So far. The server is named by its first process.
    pub(crate) fn now(server: i32) -> Self {
        Self { cores: cores(), server_seconds: server_seconds(server) }
    }

    /// Since then, by the same server.
    pub(crate) fn until(&self, now: &Self) -> Spent {
        let of_core = |(before, after): (&[u64; 3], &[u64; 3])| {
            let [all, idle, stolen] = std::array::from_fn(|field| (after[field] - before[field]) as f64);
            Core { busy: (all - idle - stolen) / all, stolen: stolen / all }
        };
        Spent {
            cores: self.cores.iter().zip(&now.cores).map(of_core).collect(),
            server_seconds: now.server_seconds - self.server_seconds,
        }
    }
}

fn cores() -> Vec<[u64; 3]> {
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

/// Of a process, those it started, and those of them that have ended.
fn server_seconds(server: i32) -> f64 {
    let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap_or_default();
    let alive = children.split_whitespace().filter_map(|pid| pid.parse().ok()).chain([server]);
    let nanos: u64 = alive.map(nanos).sum();
    // Behind the name in parentheses: state, .. and as the 14th and 15th the ticks of children that have ended.
    let stat = fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ended: f64 = fields.skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    nanos as f64 / 1e9 + ended / TICKS
}

/// What the scheduler gave to a process; 0 if it does not tell.
pub(crate) fn nanos(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    stat.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(0)
}
