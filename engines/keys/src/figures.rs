//! What an actor tells of itself to whoever watches the service.

use crate::actor::Actor;
use crate::keyspace::DATABASES;

/// So many of the keys that an actor is asked for most are told.
const HOT_KEYS_TOLD: usize = 16;

/// A key that is asked for much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Its database.
    pub database: u8,
    /// Its name.
    pub key: Box<[u8]>,
    /// About how many requests of the last minutes were about it, at least.
    pub requests: u64,
}

/// The calls of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFigures {
    /// The command, in small letters.
    pub name: &'static str,
    /// How often it was called, counted.
    pub calls: u64,
    /// How many calls failed, or were refused before they ran, counted.
    pub failures: u64,
    /// How long they took, about, in microseconds.
    pub micros: u64,
}

/// The memory of the process, as the operating system counts it; 0 where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// Bytes that are in memory.
    pub(crate) resident: u64,
    /// The most that ever were.
    pub(crate) peak: u64,
}

/// The value in bytes of a line such as `VmRSS:   1234 kB`.
fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes << 10)
}

impl ProcessMemory {
    /// As it is now.
    pub(crate) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self { resident: kilobytes(&text, "VmRSS"), peak: kilobytes(&text, "VmHWM") }
    }
}

/// The memory of the machine in bytes, 0 where it is not known.
pub(crate) fn machine_memory() -> u64 {
    kilobytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal")
}

/// Seconds of processor time of this process: in the kernel, and outside of it.
pub(crate) fn processor_seconds() -> (f64, f64) {
    /// Ticks per second in what Linux tells.
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have spaces, in brackets.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let mut next = |skipped| fields.nth(skipped).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / TICKS;
    let outside = next(11);
    (next(0), outside)
}

/// The figures of one actor. Those that count begin again with its process and with `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Clients that are connected.
    pub clients: u64,
    /// Clients that wait for a key or for the end of a pause.
    pub blocked_clients: u64,
    /// Connections that were taken, counted.
    pub connections: u64,
    /// Requests of its clients, counted.
    pub commands: u64,
    /// Requests that went to another actor, counted.
    pub commands_sent: u64,
    /// Transactions that borrowed keys of other actors, counted.
    pub transactions: u64,
    /// Keys that were looked up and found, counted.
    pub hits: u64,
    /// Keys that were looked up and not found, counted.
    pub misses: u64,
    /// Keys whose time came, counted.
    pub expired: u64,
    /// Keys that were deleted because memory was full, counted.
    pub evicted: u64,
    /// Copies of other actors' keys that were given up because memory was full, counted.
    pub copies_given_up: u64,
    /// Keys that have replicas by themselves.
    pub hot_keys_spread: u64,
    /// Keys that got replicas by themselves, counted.
    pub spreads: u64,
    /// Keys that lost them again, counted.
    pub gathers: u64,
    /// Keys that are there.
    pub keys: u64,
    /// About how many bytes they take.
    pub bytes: u64,
    /// Clients that were disconnected because all together took too much memory, counted.
    pub evicted_clients: u64,
    /// Errors that clients were told, counted.
    pub errors: u64,
    /// Bytes that came from clients, counted.
    pub bytes_in: u64,
    /// Bytes that went to clients, counted.
    pub bytes_out: u64,
    /// Memory that connections take.
    pub client_bytes: u64,
    /// The commands that were called.
    pub by_command: Vec<CommandFigures>,
    /// The keys that it is asked for most, these first.
    pub hot_keys: Vec<HotKey>,
}

impl Actor {
    /// Its figures now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let hot_keys = self.hottest(HOT_KEYS_TOLD).into_iter();
        let hot_keys = hot_keys.map(|(database, key, requests)| HotKey { database, key, requests }).collect();
        let (clients, opened) = self.sessions.counts();
        let counters = self.keys.counters;
        Figures {
            clients: clients as u64,
            blocked_clients: (self.waiting_count() + self.held_count()) as u64,
            connections: u64::from(opened.wrapping_sub(self.counters.opened_before)),
            commands: self.counters.requests,
            commands_sent: self.counters.sent,
            transactions: self.counters.transactions,
            hits: counters.hits,
            misses: counters.misses,
            expired: counters.expired,
            evicted: counters.evicted,
            copies_given_up: counters.given_up,
            hot_keys_spread: self.spreading.now() as u64,
            spreads: self.spreading.counts().0,
            gathers: self.spreading.counts().1,
            keys: (0..DATABASES).map(|database| self.keys.count_keys(database).0 as u64).sum(),
            bytes: self.keys.byte_count() as u64,
            evicted_clients: self.counters.evicted_clients,
            errors: self.errors.total(),
            bytes_in: self.traffic.bytes_in,
            bytes_out: self.traffic.bytes_out,
            client_bytes: self.client_memory().total as u64,
            by_command: self.by_command(),
            hot_keys,
        }
    }

    /// The figures of all commands that were called; those of subcommands count for their command.
    fn by_command(&self) -> Vec<CommandFigures> {
        let mut all: Vec<CommandFigures> = Vec::new();
        for (called, calls) in self.calls.each() {
            let name = called.command.name;
            if all.last().is_none_or(|last| last.name != name) {
                all.push(CommandFigures { name, calls: 0, failures: 0, micros: 0 });
            }
            if let Some(command) = all.last_mut() {
                command.calls += calls.count;
                command.failures += calls.failed + calls.rejected;
                command.micros += calls.took.as_micros() as u64;
            }
        }
        all
    }
}
