//! What `/metrics` shows of the engines and of the process. `docs/operating.md` lists the names.

use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use savanna_files_host::Files;
use savanna_http::Figure;
use savanna_keys::figures::Figures as KeysFigures;
use savanna_keys_host::Gauge;
use savanna_tenants_host::{Counts, Tenants};

const fn gauge(name: &'static str, help: &'static str, value: f64) -> Figure {
    Figure { name, help, is_counter: false, label: None, value }
}

const fn counter(name: &'static str, help: &'static str, value: f64) -> Figure {
    Figure { name, help, is_counter: true, label: None, value }
}

/// What one log wrote since its service began.
fn of_log(names: [&'static str; 2], bytes: u64, flushes: u64) -> [Figure; 2] {
    let [bytes_name, flushes_name] = names;
    [
        counter(bytes_name, "Bytes of records written to the log", bytes as f64),
        counter(flushes_name, "Flushes of the log to the disk", flushes as f64),
    ]
}

/// A figure of a thread of keys: its name, its help, whether it only grows, and where it is.
type KeysFigure = (&'static str, &'static str, bool, fn(&KeysFigures) -> u64);

const KEYS: [KeysFigure; 13] = [
    ("savanna_keys_clients", "Clients that are connected", false, |f| f.clients),
    ("savanna_keys_blocked_clients", "Clients that wait for a key or a pause", false, |f| f.blocked_clients),
    ("savanna_keys_connections", "Connections taken", true, |f| f.connections),
    ("savanna_keys_commands", "Commands of clients", true, |f| f.commands),
    ("savanna_keys_commands_sent", "Commands sent to the thread that has their key", true, |f| f.commands_sent),
    ("savanna_keys_transactions_over_threads", "Commands that borrowed keys of other threads", true, |f| {
        f.transactions
    }),
    ("savanna_keys_hits", "Keys looked up and found", true, |f| f.hits),
    ("savanna_keys_misses", "Keys looked up and not found", true, |f| f.misses),
    ("savanna_keys_expired", "Keys whose time came", true, |f| f.expired),
    ("savanna_keys_evicted", "Keys deleted because memory was full", true, |f| f.evicted),
    ("savanna_keys_replicas_evicted", "Replicas given up because memory was full", true, |f| f.copies_given_up),
    ("savanna_keys_keys", "Keys that are there", false, |f| f.keys),
    ("savanna_keys_memory_bytes", "Memory that keys take", false, |f| f.bytes),
];

/// The keys service: each thread, and the log of all.
pub(crate) fn of_keys(keys: &Gauge) -> Vec<Figure> {
    let threads = keys.threads();
    let figures = KEYS.iter().flat_map(|(name, help, is_counter, value)| {
        threads.iter().enumerate().map(|(thread, figures)| Figure {
            name,
            help,
            is_counter: *is_counter,
            label: Some(("thread", thread.to_string())),
            value: value(figures) as f64,
        })
    });
    let log =
        keys.log().map(|log| of_log(["savanna_keys_log_bytes", "savanna_keys_log_flushes"], log.bytes, log.flushes));
    figures.chain(log.into_iter().flatten()).collect()
}

/// A figure of a tenant: its name, its help, whether it only grows, and where it is.
type TenantFigure = (&'static str, &'static str, bool, fn(&Counts) -> u64);

const TENANT: [TenantFigure; 3] = [
    ("savanna_tenants_sessions", "Sessions that are open", false, |c| c.sessions),
    ("savanna_tenants_commits", "Transactions committed", true, |c| c.commits),
    ("savanna_tenants_rollbacks", "Transactions rolled back", true, |c| c.rollbacks),
];

/// The tenants service: all of it, and each database that was used since it began.
pub(crate) fn of_tenants(tenants: &Tenants) -> Vec<Figure> {
    let databases = tenants.list();
    let used: Vec<_> = databases.iter().filter(|(_, counts)| *counts != Counts::default()).collect();
    let each = TENANT.iter().flat_map(|(name, help, is_counter, value)| {
        used.iter().map(|(database, counts)| Figure {
            name,
            help,
            is_counter: *is_counter,
            label: Some(("database", database.clone())),
            value: value(counts) as f64,
        })
    });
    let log = tenants.log();
    [
        gauge("savanna_tenants_databases", "Databases", databases.len() as f64),
        gauge("savanna_tenants_awake", "Databases that are in memory", tenants.awake() as f64),
    ]
    .into_iter()
    .chain(of_log(["savanna_tenants_log_bytes", "savanna_tenants_log_flushes"], log.bytes, log.flushes))
    .chain(each)
    .collect()
}

/// The files service.
pub(crate) fn of_files(files: &Files) -> Vec<Figure> {
    let figures = files.figures();
    [
        gauge("savanna_files_inodes", "Files and directories", figures.inodes as f64),
        gauge("savanna_files_blocks", "Blocks of files", figures.blocks as f64),
        gauge("savanna_files_bytes", "Bytes of replicas on the disk", figures.bytes as f64),
        gauge("savanna_files_writers", "Clients that write files", figures.leases as f64),
        gauge("savanna_files_changes", "Changes of names since the data directory began", figures.changes as f64),
    ]
    .into_iter()
    .chain(of_log(["savanna_files_log_bytes", "savanna_files_log_flushes"], figures.log_bytes, figures.log_flushes))
    .collect()
}

/// The process, under the names that Prometheus' own libraries use. What the operating system does not tell is left out.
pub(crate) fn of_process() -> Vec<Figure> {
    let cpu = getrusage(UsageWho::RUSAGE_SELF).ok().map(|usage| {
        let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
        counter("process_cpu_seconds", "CPU time of the process", microseconds as f64 / 1e6)
    });
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse::<f64>().ok()
    };
    let memory = field("VmRSS").map(|kibibytes| {
        gauge("process_resident_memory_bytes", "Memory of the process that is resident", kibibytes * 1024.0)
    });
    let threads = field("Threads").map(|threads| gauge("process_threads", "Threads of the process", threads));
    let files = fs::read_dir("/proc/self/fd").ok();
    let files = files.map(|files| gauge("process_open_fds", "Files and sockets that are open", files.count() as f64));
    [cpu, memory, threads, files].into_iter().flatten().collect()
}
