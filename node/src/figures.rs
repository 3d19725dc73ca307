//! What `/metrics` shows of the engines and of the process. `docs/operating.md` lists the names.

mod busiest;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use savanna_files_host::{DatabaseFigures, Files};
use savanna_hadoop::AuditLog;
use savanna_http::{Figure, FigureValue};
use savanna_keys::figures::{CommandFigures as KeysCommand, Figures as KeysFigures};
use savanna_keys_host::Gauge;
use savanna_lambda::{Functions, Totals as FunctionTotals};
use savanna_ownership::guard::LeaseGuard;
use savanna_rpc::TrafficFigures;
use savanna_tenants_host::{Asked, Counts, LogStats, StoreFigures, TIMES_UPTO, Tenants};

use crate::cluster::moves::{OfWay, Totals, WINDOWS_UPTO};

pub(crate) use self::busiest::Busiest;

/// So many keys that are asked for most are shown.
const HOT_KEYS: usize = 16;
/// So many bytes of a key's name are shown.
const KEY_BYTES: usize = 64;

const fn gauge(name: &'static str, help: &'static str, value: f64) -> Figure {
    Figure { name, help, labels: Vec::new(), value: FigureValue::Gauge(value) }
}

const fn counter(name: &'static str, help: &'static str, value: f64) -> Figure {
    Figure { name, help, labels: Vec::new(), value: FigureValue::Counter(value) }
}

fn labelled(figure: Figure, label: &'static str, value: impl Into<String>) -> Figure {
    Figure { labels: vec![(label, value.into())], ..figure }
}

/// Whether a figure only grows while its service runs.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
}

impl Kind {
    const fn of(self, value: f64) -> FigureValue {
        match self {
            Self::Counter => FigureValue::Counter(value),
            Self::Gauge => FigureValue::Gauge(value),
        }
    }
}

/// The names of the figures of a log: appends, bytes, flushes, errors, and the time of a flush.
type LogNames = [&'static str; 5];

/// What one log did since its service began.
fn of_log(names: LogNames, log: &LogStats) -> [Figure; 5] {
    let [appends, bytes, flushes, errors, flush_seconds] = names;
    let times = FigureValue::Histogram {
        upto: TIMES_UPTO.iter().map(Duration::as_secs_f64).collect(),
        counts: log.flush_times.counts().to_vec(),
        sum: log.flush_times.total().as_secs_f64(),
    };
    let times = Figure {
        name: flush_seconds,
        help: "Time of a flush of the log to the disk",
        labels: Vec::new(),
        value: times,
    };
    [
        counter(appends, "Groups of records appended to the log and durable", log.groups as f64),
        counter(bytes, "Bytes of records written to the log", log.bytes as f64),
        counter(flushes, "Flushes of the log to the disk", log.flushes as f64),
        counter(errors, "Writes and flushes of the log that failed or found no space", log.errors as f64),
        times,
    ]
}

const KEYS_LOG: LogNames = [
    "savanna_keys_log_appends",
    "savanna_keys_log_bytes",
    "savanna_keys_log_flushes",
    "savanna_keys_log_errors",
    "savanna_keys_log_flush_seconds",
];

const FILES_LOG: LogNames = [
    "savanna_files_log_appends",
    "savanna_files_log_bytes",
    "savanna_files_log_flushes",
    "savanna_files_log_errors",
    "savanna_files_log_flush_seconds",
];

const FUNCTIONS_LOG: LogNames = [
    "savanna_functions_log_appends",
    "savanna_functions_log_bytes",
    "savanna_functions_log_flushes",
    "savanna_functions_log_errors",
    "savanna_functions_log_flush_seconds",
];

const TENANTS_LOG: LogNames = [
    "savanna_tenants_log_appends",
    "savanna_tenants_log_bytes",
    "savanna_tenants_log_flushes",
    "savanna_tenants_log_errors",
    "savanna_tenants_log_flush_seconds",
];

/// A figure of a thread of keys: its name, its help, whether it only grows, and where it is.
type KeysFigure = (&'static str, &'static str, Kind, fn(&KeysFigures) -> u64);

const KEYS: [KeysFigure; 21] = [
    ("savanna_keys_clients", "Clients that are connected", Kind::Gauge, |f| f.clients),
    ("savanna_keys_blocked_clients", "Clients that wait for a key or a pause", Kind::Gauge, |f| f.blocked_clients),
    ("savanna_keys_connections", "Connections taken", Kind::Counter, |f| f.connections),
    ("savanna_keys_commands", "Commands of clients", Kind::Counter, |f| f.commands),
    ("savanna_keys_commands_sent", "Commands sent to the thread that has their key", Kind::Counter, |f| {
        f.commands_sent
    }),
    ("savanna_keys_transactions_over_threads", "Commands that borrowed keys of other threads", Kind::Counter, |f| {
        f.transactions
    }),
    ("savanna_keys_hits", "Keys looked up and found", Kind::Counter, |f| f.hits),
    ("savanna_keys_misses", "Keys looked up and not found", Kind::Counter, |f| f.misses),
    ("savanna_keys_expired", "Keys whose time came", Kind::Counter, |f| f.expired),
    ("savanna_keys_evicted", "Keys deleted because memory was full", Kind::Counter, |f| f.evicted),
    ("savanna_keys_replicas_evicted", "Replicas given up because memory was full", Kind::Counter, |f| {
        f.copies_given_up
    }),
    ("savanna_keys_hot_keys_replicated", "Keys that have replicas by themselves", Kind::Gauge, |f| f.hot_keys_spread),
    ("savanna_keys_hot_keys_replications", "Keys that got replicas by themselves", Kind::Counter, |f| f.spreads),
    ("savanna_keys_hot_keys_undone", "Keys that lost replicas that they got by themselves", Kind::Counter, |f| {
        f.gathers
    }),
    ("savanna_keys_keys", "Keys that are there", Kind::Gauge, |f| f.keys),
    ("savanna_keys_memory_bytes", "Memory that keys take", Kind::Gauge, |f| f.bytes),
    ("savanna_keys_client_memory_bytes", "Memory that connections take", Kind::Gauge, |f| f.client_bytes),
    ("savanna_keys_clients_evicted", "Clients disconnected because all took too much memory", Kind::Counter, |f| {
        f.evicted_clients
    }),
    ("savanna_keys_errors", "Errors that clients were told", Kind::Counter, |f| f.errors),
    ("savanna_keys_received_bytes", "Bytes that came from clients", Kind::Counter, |f| f.bytes_in),
    ("savanna_keys_sent_bytes", "Bytes that went to clients", Kind::Counter, |f| f.bytes_out),
];

/// A figure of a command of keys: its name, its help, and where it is.
type CommandFigure = (&'static str, &'static str, fn(&KeysCommand) -> f64);

const KEYS_COMMANDS: [CommandFigure; 3] = [
    ("savanna_keys_command_calls", "Calls of a command", |c| c.calls as f64),
    ("savanna_keys_command_failures", "Calls of a command that failed or were refused", |c| c.failures as f64),
    ("savanna_keys_command_seconds", "Time that calls of a command took, about", |c| c.micros as f64 / 1e6),
];

/// What each command did on each thread.
fn commands_of_keys(threads: &[KeysFigures]) -> impl Iterator<Item = Figure> + use<'_> {
    KEYS_COMMANDS.into_iter().flat_map(move |(name, help, value)| {
        threads.iter().enumerate().flat_map(move |(thread, figures)| {
            figures.by_command.iter().map(move |command| Figure {
                name,
                help,
                labels: vec![("thread", thread.to_string()), ("command", command.name.to_owned())],
                value: Kind::Counter.of(value(command)),
            })
        })
    })
}

/// The keys service: each thread, the keys that are asked for most, and the log of all.
pub(crate) fn of_keys(keys: &Gauge) -> Vec<Figure> {
    let threads = keys.threads();
    let figures = KEYS.iter().flat_map(|(name, help, kind, value)| {
        threads.iter().enumerate().map(|(thread, figures)| Figure {
            name,
            help,
            labels: vec![("thread", thread.to_string())],
            value: kind.of(value(figures) as f64),
        })
    });
    let log = keys.log().map(|log| of_log(KEYS_LOG, &log));
    figures.chain(commands_of_keys(&threads)).chain(hot_keys(&threads)).chain(log.into_iter().flatten()).collect()
}

/// The keys that are asked for most. Replicas of a key are asked at several threads; names that begin alike, or are of several databases, are
/// one.
fn hot_keys(threads: &[KeysFigures]) -> impl Iterator<Item = Figure> + use<> {
    let mut hottest = BTreeMap::<String, u64>::new();
    for hot in threads.iter().flat_map(|figures| &figures.hot_keys) {
        let name = &hot.key[..hot.key.len().min(KEY_BYTES)];
        *hottest.entry(name.escape_ascii().to_string()).or_default() += hot.requests;
    }
    let mut hottest: Vec<_> = hottest.into_iter().collect();
    hottest.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    hottest.truncate(HOT_KEYS);
    let help = "About how many requests of the last minutes were about a key, of those with most";
    let figure = move |requests| gauge("savanna_keys_hot_key_requests", help, requests);
    hottest.into_iter().map(move |(key, requests)| labelled(figure(requests as f64), "key", key))
}

/// A figure of a tenant: its name, its help, whether it only grows, and where it is.
type TenantFigure = (&'static str, &'static str, Kind, fn(&Counts) -> f64);

const TENANT: [TenantFigure; 8] = [
    ("savanna_tenants_sessions", "Sessions that are open", Kind::Gauge, |c| c.sessions as f64),
    ("savanna_tenants_commits", "Transactions committed", Kind::Counter, |c| c.commits as f64),
    ("savanna_tenants_rollbacks", "Transactions rolled back", Kind::Counter, |c| c.rollbacks as f64),
    ("savanna_tenants_cpu_seconds", "CPU time of its statements", Kind::Counter, |c| c.cpu_micros as f64 / 1e6),
    ("savanna_tenants_written_bytes", "Bytes that it has written to the log", Kind::Counter, |c| c.log_bytes as f64),
    ("savanna_tenants_waits", "Waits of its statements for a lock or the storage", Kind::Counter, |c| c.waits as f64),
    ("savanna_tenants_wakes", "How often it was brought into memory", Kind::Counter, |c| c.wakes as f64),
    ("savanna_tenants_memory_bytes", "Memory that its rows take", Kind::Gauge, |c| c.memory_bytes as f64),
];

/// A figure of requests to the storage: its name, its help, and where it is.
type StoreFigure = (&'static str, &'static str, fn(&StoreFigures) -> u64);

const STORE: [StoreFigure; 3] = [
    ("savanna_store_requests", "Requests to the storage of tenants", |f| f.requests),
    ("savanna_store_bytes", "Bytes of objects read from and written to the storage of tenants", |f| f.bytes),
    ("savanna_store_errors", "Requests to the storage of tenants that failed", |f| f.errors),
];

const STORE_REQUESTS: [(&str, Asked); 4] =
    [("get", Asked::Get), ("put", Asked::Put), ("delete", Asked::Delete), ("list", Asked::List)];

/// The tenants service: all of it, its storage, and the databases that were used since it began, one by one if they are among the busiest.
pub(crate) fn of_tenants(tenants: &Tenants, busiest: &mut Busiest) -> Vec<Figure> {
    let databases = tenants.list();
    let count = databases.len();
    let shown = busiest.shown(databases);
    let each = TENANT.iter().flat_map(|(name, help, kind, value)| {
        shown.iter().map(|(database, counts)| Figure {
            name,
            help,
            labels: vec![("database", database.clone())],
            value: kind.of(value(counts)),
        })
    });
    let store = STORE.iter().flat_map(|(name, help, value)| {
        STORE_REQUESTS.iter().map(|(request, asked)| {
            labelled(counter(name, help, value(&tenants.store(*asked)) as f64), "request", *request)
        })
    });
    [
        gauge("savanna_tenants_databases", "Databases", count as f64),
        gauge("savanna_tenants_awake", "Databases that are in memory", tenants.awake() as f64),
    ]
    .into_iter()
    .chain(of_log(TENANTS_LOG, &tenants.log()))
    .chain(store)
    .chain(each)
    .collect()
}

/// A figure of moves: what tells it from others of its family, and where it is.
type MoveFigure = (&'static str, fn(&OfWay) -> u64);

const MOVES: [MoveFigure; 2] = [("moved", |of| of.moved), ("stayed", |of| of.stayed)];

const MOVE_BYTES: [MoveFigure; 3] =
    [("log", |of| of.tail_bytes), ("open", |of| of.image_bytes), ("blocks", |of| of.block_bytes)];

const MOVE_STATEMENTS: [MoveFigure; 2] = [("waited", |of| of.waited), ("sent_again", |of| of.resent)];

/// The moves of databases that left the node since its service began.
pub(crate) fn of_moves(totals: &Totals) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (way, of) in totals.each() {
        let technique = way.name();
        let mut count = |name, help, label, counts: &[MoveFigure]| {
            figures.extend(counts.iter().map(|(value, count)| {
                let labels = vec![("technique", technique.to_owned()), (label, (*value).to_owned())];
                Figure { labels, ..counter(name, help, count(&of) as f64) }
            }));
        };
        count("savanna_moves", "Moves of databases that left the node", "outcome", &MOVES);
        count("savanna_move_bytes", "Bytes that went along with databases", "kind", &MOVE_BYTES);
        count("savanna_move_statements", "Statements that noticed a move", "noticed", &MOVE_STATEMENTS);
        let window = FigureValue::Histogram {
            upto: WINDOWS_UPTO.iter().map(Duration::as_secs_f64).collect(),
            counts: of.windows.to_vec(),
            sum: of.windows_sum.as_secs_f64(),
        };
        let hung_up =
            counter("savanna_move_failures", "Clients hung up on while their database moved", of.failed as f64);
        figures.push(labelled(hung_up, "technique", technique));
        let (name, help) = ("savanna_move_window_seconds", "How long nobody was served during a move");
        figures.push(Figure { name, help, labels: vec![("technique", technique.to_owned())], value: window });
    }
    figures
}

/// The lease under which the node serves.
pub(crate) fn of_lease(guard: &LeaseGuard) -> [Figure; 3] {
    let figures = guard.figures();
    [
        counter("savanna_lease_renewals", "How often the node's lease was extended", figures.renewals as f64),
        counter("savanna_lease_lapses", "How often the lease ran out or was lost", figures.lapses as f64),
        gauge("savanna_lease_left_seconds", "How long the node may serve yet", figures.left.as_secs_f64()),
    ]
}

/// A figure of connections between nodes: its name, its help, whether it only grows, and where it is.
type RpcFigure = (&'static str, &'static str, Kind, fn(&TrafficFigures) -> u64);

const RPC: [RpcFigure; 6] = [
    ("savanna_rpc_calls", "Requests to other nodes, or taken from them", Kind::Counter, |f| f.calls),
    ("savanna_rpc_failures", "Requests to other nodes that ended with an error", Kind::Counter, |f| f.failures),
    ("savanna_rpc_sent_bytes", "Bytes written to other nodes", Kind::Counter, |f| f.bytes_sent),
    ("savanna_rpc_received_bytes", "Bytes read from other nodes", Kind::Counter, |f| f.bytes_received),
    ("savanna_rpc_connections", "Connections to other nodes, or taken from them", Kind::Gauge, |f| f.connections),
    ("savanna_rpc_refused", "Connections that were refused, or not made", Kind::Counter, |f| f.refused),
];

/// What goes on between this node and others, by what the connections are for. `repeats` are requests that were sent again.
pub(crate) fn of_rpc(traffic: &[(&'static str, TrafficFigures)], repeats: u64) -> Vec<Figure> {
    let figures = RPC.iter().flat_map(|(name, help, kind, value)| {
        traffic.iter().map(|(class, figures)| Figure {
            name,
            help,
            labels: vec![("class", (*class).to_owned())],
            value: kind.of(value(figures) as f64),
        })
    });
    let repeats = counter("savanna_rpc_repeats", "Requests to other nodes that were sent again", repeats as f64);
    figures.chain([repeats]).collect()
}

/// The files service.
pub(crate) fn of_files(files: &Files, audit: Option<&AuditLog>) -> Vec<Figure> {
    let figures = files.figures();
    let dropped = audit.map(|log| {
        counter("savanna_files_audit_dropped", "Lines that the audit log did not take in time", log.dropped() as f64)
    });
    [
        gauge("savanna_files_inodes", "Files and directories", figures.inodes as f64),
        gauge("savanna_files_blocks", "Blocks of files", figures.blocks as f64),
        gauge("savanna_files_bytes", "Bytes of replicas on the disk", figures.bytes as f64),
        gauge("savanna_files_writers", "Clients that write files", figures.leases as f64),
        gauge("savanna_files_changes", "Changes of names since the data directory began", figures.changes as f64),
    ]
    .into_iter()
    .chain(dropped)
    .chain(figures.database.iter().flat_map(of_files_database))
    .chain(of_log(FILES_LOG, &figures.log))
    .collect()
}

/// The database behind the names of files.
fn of_files_database(figures: &DatabaseFigures) -> [Figure; 7] {
    [
        gauge("savanna_files_cached", "Files and directories in memory", figures.cached as f64),
        gauge("savanna_files_unflushed", "Rows of changes that the database lacks", figures.unflushed as f64),
        counter("savanna_files_cache_hits", "Operations that needed nothing from the database", figures.hits as f64),
        counter("savanna_files_cache_misses", "Operations that waited for the database", figures.misses as f64),
        counter("savanna_files_database_batches", "Batches of changes that the database took", figures.batches as f64),
        counter("savanna_files_database_reads", "Questions to the database for operations", figures.reads as f64),
        counter("savanna_files_database_errors", "Attempts to use the database that failed", figures.errors as f64),
    ]
}

/// The functions service: totals, and what each function has used.
pub(crate) fn of_functions(functions: &Functions) -> Vec<Figure> {
    let FunctionTotals { functions: count, counts, meters, log } = functions.totals();
    let prices = functions.prices();
    let each = meters.iter().flat_map(|(name, meter)| {
        let counted = [
            counter(
                "savanna_functions_requests",
                "Invocations that have ended, each attempt counted",
                meter.requests as f64,
            ),
            counter("savanna_functions_errors", "Invocations without success", meter.errors as f64),
            counter(
                "savanna_functions_throttles",
                "Requests refused because as many ran as may",
                meter.throttles as f64,
            ),
            counter("savanna_functions_cold_starts", "Instances that were started", meter.cold_starts as f64),
            counter("savanna_functions_billed_seconds", "Time that is paid for", meter.billed_ms as f64 / 1e3),
            counter("savanna_functions_gigabyte_seconds", "Memory that is paid for", meter.gigabyte_seconds()),
            counter("savanna_functions_dollars", "What that costs", meter.dollars(&prices)),
            counter("savanna_functions_payload_bytes", "Bytes of payloads, in and out", meter.payload_bytes as f64),
            counter("savanna_functions_failed_events", "Events that ended without success", meter.failed_events as f64),
            counter(
                "savanna_functions_dropped_events",
                "Those of them that nobody was told of",
                meter.dropped_events as f64,
            ),
        ];
        counted.map(|figure| labelled(figure, "function", name))
    });
    let each: Vec<Figure> = each.collect();
    [
        gauge("savanna_functions_functions", "Functions that there are", count as f64),
        gauge("savanna_functions_instances", "Processes of functions", counts.instances as f64),
        gauge("savanna_functions_busy", "Those of them that have work", counts.busy as f64),
        gauge("savanna_functions_queued", "Events that wait", counts.queued as f64),
    ]
    .into_iter()
    .chain(each)
    .chain(of_log(FUNCTIONS_LOG, &log))
    .collect()
}

/// The CPU time of the process, in microseconds, if the operating system tells.
pub(crate) fn cpu_micros() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    u64::try_from((usage.user_time() + usage.system_time()).num_microseconds()).ok()
}

/// The process, under the names that Prometheus' own libraries use. What the operating system does not tell is left out.
pub(crate) fn of_process() -> Vec<Figure> {
    let cpu = cpu_micros().map(|micros| counter("process_cpu_seconds", "CPU time of the process", micros as f64 / 1e6));
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
