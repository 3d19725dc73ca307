//! The server: what it is, has and does.

use std::fmt::Write as _;

use crate::access::{Permission, permissions, permissions_of};
use crate::actor::{Actor, DatabaseChange, Progress, Topic};
use crate::command::arguments::{self, arguments_of};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run, TABLE};
use crate::error::{CommandError, Outcome};
use crate::figures::{ProcessMemory, machine_memory, processor_seconds};
use crate::keyspace::DATABASES;
use crate::number::{integer, parse_integer};
use crate::pattern;
use crate::reply::{Reply, Tape, Value};
use crate::request::Args;
use crate::session::Session;

type Done = Result<Progress, CommandError>;

/// The version of Redis whose commands these are; clients ask for it.
pub const REDIS_VERSION: &str = "7.0.15";

/// `TIME`
pub fn time(actor: &mut Actor, _: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    let now = actor.keys.now().0;
    reply.array(2);
    reply.bulk((now / 1000).to_string().as_bytes());
    reply.bulk((now % 1000 * 1000).to_string().as_bytes());
    Ok(Progress::Answered)
}

/// `MONITOR`
pub fn monitor(actor: &mut Actor, session: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    actor.monitor(session);
    reply.ok();
    Ok(Progress::Answered)
}

/// `WAITAOF numlocal numreplicas timeout`
pub fn waitaof(actor: &mut Actor, _: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    let local = parse_integer(&args[1])?;
    if !(0..=1).contains(&local) {
        return Err(CommandError::text("ERR value is out of range, value must between 0 and 1"));
    }
    if parse_integer(&args[2])? < 0 {
        return Err(CommandError::text("ERR value is out of range, must be positive"));
    }
    let timeout = integer(&args[3]).ok_or(CommandError::text("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    if local == 1 {
        if !actor.config.is_logged {
            return Err(CommandError::text(
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            ));
        }
        actor.is_flush_awaited = true;
    }
    reply.array(2);
    reply.flag(actor.config.is_logged);
    reply.integer(0);
    Ok(Progress::Answered)
}

/// `COMMAND [COUNT | LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern] | INFO [name ...] | DOCS [name ...] | GETKEYS command [arg ...] | GETKEYSANDFLAGS command [arg ...]]`
pub fn command(_: &mut Actor, _: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    if args.len() == 1 {
        describe_all(reply);
        return Ok(Progress::Answered);
    }
    match args[1].to_ascii_lowercase().as_slice() {
        b"help" if args.len() == 2 => super::help("command", reply),
        b"count" if args.len() == 2 => reply.count(TABLE.len()),
        b"list" if args.len() == 2 => {
            reply.array(permissions().len());
            permissions().iter().for_each(|named| reply.bulk(named.name().as_bytes()));
        }
        b"list" if args.len() == 5 && args[2].eq_ignore_ascii_case(b"filterby") => {
            let wanted = filtered(&args[3].to_ascii_lowercase(), &args[4])?;
            reply.array(wanted.len());
            wanted.into_iter().for_each(|named| reply.bulk(named.name().as_bytes()));
        }
        b"list" => return Err(CommandError::Syntax),
        b"info" if args.len() == 2 => describe_all(reply),
        b"info" => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                match named(name) {
                    Some(named) => describe(named, reply),
                    None => reply.null_array(),
                }
            }
        }
        b"docs" => {
            let wanted: Vec<&Permission> =
                if args.len() == 2 { commands().collect() } else { args.from(2).filter_map(named).collect() };
            reply.map(wanted.len());
            wanted.into_iter().for_each(|named| document(named, reply));
        }
        subcommand @ (b"getkeys" | b"getkeysandflags") if args.len() > 2 => {
            let request = args.skip(2);
            let command = Command::find(&request[0]).ok_or(CommandError::text("ERR Invalid command specified"))?;
            if !command.takes(request.len()) {
                return Err(CommandError::text("ERR Invalid number of arguments specified for command"));
            }
            let named = command.keys.of(request).map(Iterator::collect::<Vec<&[u8]>>);
            // A script need not have any.
            let needs_none = matches!(command.run, Run::Script(_));
            let keys = if needs_none { named.unwrap_or_default() } else { named? };
            if keys.is_empty() && !needs_none {
                return Err(CommandError::text("ERR The command has no key arguments"));
            }
            reply.array(keys.len());
            for (key, key_use) in keys.into_iter().zip(command.uses_of(request).each()) {
                if subcommand == b"getkeys" {
                    reply.bulk(key);
                    continue;
                }
                reply.array(2);
                reply.bulk(key);
                reply.set(key_use.names().count());
                key_use.names().for_each(|name| reply.simple(name));
            }
        }
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try COMMAND HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}

/// All commands, without their subcommands.
fn commands() -> impl Iterator<Item = &'static Permission> {
    permissions().iter().filter(|named| named.subcommand.is_none())
}

/// A command, or a subcommand by its name as in `config|get`.
fn named(name: &[u8]) -> Option<&'static Permission> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let own = permissions_of(Command::find(parts.next()?)?);
    let subcommand = parts.next();
    permissions()[own].iter().find(|named| match (named.subcommand, subcommand) {
        (None, None) => true,
        (Some(own), Some(wanted)) => own.as_bytes().eq_ignore_ascii_case(wanted),
        _ => false,
    })
}

/// The subcommands of a command.
fn subcommands(named: &Permission) -> &'static [Permission] {
    let own = permissions_of(named.command);
    if named.subcommand.is_some() { &[] } else { &permissions()[own.start + 1..own.end] }
}

/// The commands and subcommands that a filter of `COMMAND LIST` lets through.
fn filtered(filter: &[u8], value: &[u8]) -> Result<Vec<&'static Permission>, CommandError> {
    let is_wanted: &dyn Fn(&Permission) -> bool = match filter {
        b"module" => &|_| false,
        b"aclcat" => &|named| named.categories.names().any(|name| name.as_bytes().eq_ignore_ascii_case(value)),
        b"pattern" => &|named| pattern::matches(&value.to_ascii_lowercase(), named.name().as_bytes()),
        _ => return Err(CommandError::Syntax),
    };
    Ok(permissions().iter().filter(|named| is_wanted(named)).collect())
}

fn describe_all(reply: &mut dyn Reply) {
    reply.array(commands().count());
    commands().for_each(|named| describe(named, reply));
}

fn describe(named: &Permission, reply: &mut dyn Reply) {
    let command = named.command;
    let (first, last, step) = command.keys.triple();
    reply.array(10);
    reply.bulk(named.name().as_bytes());
    // A subcommand has at least its own two words.
    reply.integer(if named.subcommand.is_some() { -2 } else { i64::from(command.arity) });
    let finds_keys = matches!(command.keys, Keys::Counted { .. } | Keys::Streams | Keys::Sort | Keys::Radius)
        || matches!(command.run, Run::Finds { .. });
    let flags: Vec<&str> = command.flags.names().chain(finds_keys.then_some("movablekeys")).collect();
    reply.set(flags.len());
    flags.into_iter().for_each(|flag| reply.simple(flag));
    [first, last, step].into_iter().for_each(|number| reply.integer(number));
    let categories: Vec<String> = named.categories.names().map(|name| format!("@{name}")).collect();
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(category));
    // Hints and key specifications are not told.
    (0..2).for_each(|_| reply.array(0));
    let subcommands = subcommands(named);
    reply.array(subcommands.len());
    subcommands.iter().for_each(|named| describe(named, reply));
}

fn document(named: &Permission, reply: &mut dyn Reply) {
    let (command, subcommands, arguments) = (named.command, subcommands(named), arguments_of(named));
    reply.bulk(named.name().as_bytes());
    reply.map(4 + usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty()));
    for (name, text) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
        ("savanna-class", command.class.name()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        arguments::describe(&arguments, reply);
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|named| document(named, reply));
    }
}

/// `INFO [section ...]`, the part of one actor: `key:value` lines of numbers that are added up by [`combine_info`]
pub fn info(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    info_of(actor, args, reply, false)
}

/// `INFO` as clients of the cluster port are told it.
pub(crate) static INFO_OF_CLUSTER: Command = Command {
    name: "info",
    arity: -1,
    flags: Flags::KEYLESS,
    keys: Keys::None,
    uses: KeyUses::NONE,
    class: Class::Everywhere,
    group: Group::Server,
    since: "1.0.0",
    summary: "Reports on the server.",
    run: Run::Everywhere(info_of_cluster, Combine::Info),
};

fn info_of_cluster(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    info_of(actor, args, reply, true)
}

fn info_of(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply, is_of_cluster: bool) -> Outcome {
    if actor.actors().count() > 1 {
        return info_here(actor, args, reply, is_of_cluster);
    }
    let mut part = Tape::new();
    info_here(actor, args, &mut part, is_of_cluster)?;
    combine_info(&[part], reply);
    Ok(())
}

fn info_here(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply, is_of_cluster: bool) -> Outcome {
    let sections: Vec<Vec<u8>> = args.from(1).map(<[u8]>::to_ascii_lowercase).collect();
    let wants = |name: &str| {
        let is_usual = !matches!(name, "commandstats" | "latencystats");
        sections.is_empty() && is_usual
            || sections.iter().any(|section| match section.as_slice() {
                b"all" | b"everything" => true,
                b"default" => is_usual,
                section => section == name.as_bytes(),
            })
    };
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, String)]| {
        if wants(&name.to_ascii_lowercase()) {
            // Writing into a string does not fail.
            let _ = write!(text, "{}# {name}\r\n", if text.is_empty() { "" } else { "\r\n" });
            for (key, value) in lines {
                let _ = write!(text, "{key}:{value}\r\n");
            }
        }
    };
    let now = actor.keys.now().0;
    let uptime = now.saturating_sub(actor.counters.started.0) / 1000;
    section(
        "Server",
        &[
            ("redis_version", REDIS_VERSION.to_owned()),
            ("savanna_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("redis_git_sha1", "00000000".to_owned()),
            ("redis_git_dirty", "0".to_owned()),
            ("redis_build_id", env!("CARGO_PKG_VERSION").to_owned()),
            ("redis_mode", if is_of_cluster { "cluster" } else { "standalone" }.to_owned()),
            ("os", std::env::consts::OS.to_owned()),
            ("arch_bits", usize::BITS.to_string()),
            ("multiplexing_api", "epoll".to_owned()),
            ("run_id", actor.history()),
            ("server_time_usec", (now * 1000).to_string()),
            ("process_id", std::process::id().to_string()),
            ("process_supervised", "no".to_owned()),
            ("tcp_port", actor.config.port.to_string()),
            ("io_threads_active", "0".to_owned()),
            ("hz", "10".to_owned()),
            ("configured_hz", "10".to_owned()),
            ("lru_clock", ((now / 1000) & 0xff_ffff).to_string()),
            ("executable", std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string())),
            ("config_file", String::new()),
            ("threads", actor.actors().count().to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ],
    );
    let figures = actor.figures();
    let clients = actor.client_memory();
    let (process, machine) = (ProcessMemory::now(), machine_memory());
    let tracking = actor.tracking_figures();
    section(
        "Clients",
        &[
            ("connected_clients", figures.clients.to_string()),
            ("blocked_clients", figures.blocked_clients.to_string()),
            ("tracking_clients", tracking.clients.to_string()),
            ("cluster_connections", "0".to_owned()),
            ("maxclients", actor.config.clients_max.to_string()),
            ("client_recent_max_input_buffer", clients.input_max.to_string()),
            ("client_recent_max_output_buffer", clients.output_max.to_string()),
            ("clients_in_timeout_table", "0".to_owned()),
        ],
    );
    section(
        "Memory",
        &[
            ("used_memory", figures.bytes.to_string()),
            ("used_memory_human", human(figures.bytes)),
            ("used_memory_dataset", figures.bytes.to_string()),
            ("used_memory_dataset_perc", if figures.bytes == 0 { "0.00%" } else { "100.00%" }.to_owned()),
            ("used_memory_overhead", "0".to_owned()),
            ("used_memory_startup", "0".to_owned()),
            ("used_memory_peak_perc", percent(process.resident, process.peak)),
            ("used_memory_lua", actor.scripts.memory().to_string()),
            ("used_memory_vm_eval", actor.scripts.memory().to_string()),
            ("used_memory_scripts", actor.scripts.source_bytes().to_string()),
            ("used_memory_scripts_eval", actor.scripts.source_bytes().to_string()),
            ("number_of_cached_scripts", actor.scripts.count().to_string()),
            ("number_of_functions", actor.scripts.libraries().function_count().to_string()),
            ("number_of_libraries", actor.scripts.libraries().iter().count().to_string()),
            ("mem_clients_normal", clients.total.to_string()),
            ("mem_clients_slaves", "0".to_owned()),
            ("mem_cluster_links", "0".to_owned()),
            ("mem_aof_buffer", "0".to_owned()),
            ("mem_replication_backlog", "0".to_owned()),
            ("mem_total_replication_buffers", "0".to_owned()),
            ("mem_not_counted_for_evict", "0".to_owned()),
            ("mem_fragmentation_bytes", process.resident.saturating_sub(figures.bytes).to_string()),
            ("lazyfree_pending_objects", "0".to_owned()),
            ("lazyfreed_objects", "0".to_owned()),
            ("active_defrag_running", "0".to_owned()),
            ("used_memory_rss", process.resident.to_string()),
            ("used_memory_rss_human", human(process.resident)),
            ("used_memory_peak", process.peak.to_string()),
            ("used_memory_peak_human", human(process.peak)),
            ("total_system_memory", machine.to_string()),
            ("total_system_memory_human", human(machine)),
            ("mem_fragmentation_ratio", ratio(process.resident, figures.bytes)),
            ("mem_allocator", "mimalloc".to_owned()),
            ("maxmemory", actor.config.memory_max.to_string()),
            ("maxmemory_human", human(actor.config.memory_max as u64)),
            ("maxmemory_policy", actor.config.eviction.name().to_owned()),
        ],
    );
    let saved_since = actor.saves.file_since();
    section(
        "Persistence",
        &[
            ("loading", "0".to_owned()),
            ("async_loading", "0".to_owned()),
            ("rdb_changes_since_last_save", actor.unsaved_changes().to_string()),
            ("rdb_bgsave_in_progress", u8::from(actor.saves.has_file_to_come()).to_string()),
            ("rdb_last_save_time", (actor.last_saved_at().0 / 1000).to_string()),
            ("rdb_last_bgsave_status", if actor.saves.has_failed { "err" } else { "ok" }.to_owned()),
            (
                "rdb_last_bgsave_time_sec",
                actor.saves.last_millis.map_or_else(|| "-1".to_owned(), |millis| (millis / 1000).to_string()),
            ),
            (
                "rdb_current_bgsave_time_sec",
                saved_since.map_or_else(|| "-1".to_owned(), |since| (now.saturating_sub(since.0) / 1000).to_string()),
            ),
            ("rdb_saves", actor.saves.count.to_string()),
            ("rdb_last_load_keys_expired", actor.loaded.expired.to_string()),
            ("rdb_last_load_keys_loaded", actor.loaded.keys.to_string()),
            ("aof_enabled", u8::from(actor.config.is_logged).to_string()),
            ("rdb_last_cow_size", "0".to_owned()),
            ("aof_rewrite_scheduled", "0".to_owned()),
            ("aof_last_rewrite_time_sec", "-1".to_owned()),
            ("aof_current_rewrite_time_sec", "-1".to_owned()),
            ("aof_last_bgrewrite_status", "ok".to_owned()),
            ("aof_last_write_status", if actor.has_log_space() { "ok" } else { "err" }.to_owned()),
            ("aof_last_cow_size", "0".to_owned()),
            ("module_fork_in_progress", "0".to_owned()),
            ("module_fork_last_cow_size", "0".to_owned()),
            ("current_cow_size", "0".to_owned()),
            ("current_fork_perc", "0.00".to_owned()),
            (
                "aof_rewrite_in_progress",
                u8::from(actor.is_rewrite_wanted || actor.keys.is_being_rewritten()).to_string(),
            ),
        ],
    );
    let requests_per_second = actor.requests_per_second();
    let (bytes_in, bytes_out) = actor.bytes_per_second();
    section(
        "Stats",
        &[
            ("total_connections_received", figures.connections.to_string()),
            ("total_commands_processed", figures.commands.to_string()),
            ("instantaneous_ops_per_sec", requests_per_second.to_string()),
            ("total_net_input_bytes", actor.traffic.bytes_in.to_string()),
            ("total_net_output_bytes", actor.traffic.bytes_out.to_string()),
            ("total_net_repl_input_bytes", "0".to_owned()),
            ("total_net_repl_output_bytes", "0".to_owned()),
            ("instantaneous_input_kbps", kilobytes(bytes_in)),
            ("instantaneous_output_kbps", kilobytes(bytes_out)),
            ("instantaneous_input_repl_kbps", "0.00".to_owned()),
            ("instantaneous_output_repl_kbps", "0.00".to_owned()),
            ("rejected_connections", actor.counters.rejected.to_string()),
            ("sync_full", "0".to_owned()),
            ("sync_partial_ok", "0".to_owned()),
            ("sync_partial_err", "0".to_owned()),
            ("latest_fork_usec", "0".to_owned()),
            ("expired_keys", figures.expired.to_string()),
            ("expired_subkeys", actor.keys.counters.expired_fields.to_string()),
            ("evicted_keys", figures.evicted.to_string()),
            ("evicted_clients", actor.counters.evicted_clients.to_string()),
            ("expired_stale_perc", "0.00".to_owned()),
            ("expired_time_cap_reached_count", "0".to_owned()),
            ("pubsub_channels", actor.listened_channels(Topic::Channel).count().to_string()),
            ("pubsub_patterns", actor.pattern_count().to_string()),
            ("pubsubshard_channels", actor.listened_channels(Topic::Shard).count().to_string()),
            ("migrate_cached_sockets", "0".to_owned()),
            ("slave_expires_tracked_keys", "0".to_owned()),
            ("total_forks", "0".to_owned()),
            ("total_error_replies", actor.errors.total().to_string()),
            ("unexpected_error_replies", "0".to_owned()),
            ("total_reads_processed", actor.traffic.reads.to_string()),
            ("total_writes_processed", actor.traffic.writes.to_string()),
            ("evicted_replicas", figures.copies_given_up.to_string()),
            ("hot_keys_replicated", figures.hot_keys_spread.to_string()),
            ("hot_keys_replications", figures.spreads.to_string()),
            ("hot_keys_undone", figures.gathers.to_string()),
            ("keyspace_hits", figures.hits.to_string()),
            ("keyspace_misses", figures.misses.to_string()),
            ("tracking_total_keys", tracking.keys.to_string()),
            ("tracking_total_items", tracking.items.to_string()),
            ("tracking_total_prefixes", tracking.prefixes.to_string()),
            ("requests_to_other_threads", figures.commands_sent.to_string()),
            ("transactions_over_threads", figures.transactions.to_string()),
        ],
    );
    section(
        "Replication",
        &[
            ("role", "master".to_owned()),
            ("connected_slaves", "0".to_owned()),
            ("master_replid", actor.history()),
            ("master_failover_state", "no-failover".to_owned()),
            ("master_replid2", "0".repeat(40)),
            ("second_repl_offset", "-1".to_owned()),
            ("repl_backlog_active", "0".to_owned()),
            ("repl_backlog_size", "0".to_owned()),
            ("repl_backlog_first_byte_offset", "0".to_owned()),
            ("repl_backlog_histlen", "0".to_owned()),
            ("master_repl_offset", "0".to_owned()),
        ],
    );
    let (in_kernel, outside) = processor_seconds();
    section(
        "CPU",
        &[
            ("used_cpu_sys", format!("{in_kernel:.6}")),
            ("used_cpu_user", format!("{outside:.6}")),
            ("used_cpu_sys_children", "0.000000".to_owned()),
            ("used_cpu_user_children", "0.000000".to_owned()),
        ],
    );
    let calls: Vec<(String, String)> = (actor.calls.each())
        .map(|(command, calls)| {
            let line = call_line([calls.count, calls.took.as_micros() as u64, calls.rejected, calls.failed]);
            (format!("cmdstat_{}", command.name()), line)
        })
        .collect();
    let lines: Vec<(&str, String)> = calls.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    section("Commandstats", &lines);
    let errors: Vec<(String, String)> =
        actor.errors.each().map(|(code, count)| (format!("errorstat_{code}"), format!("count={count}"))).collect();
    let lines: Vec<(&str, String)> = errors.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    section("Errorstats", &lines);
    // How many calls took how long, until all parts are put together.
    let timed: Vec<(String, String)> = (actor.calls.each())
        .filter_map(|(command, calls)| {
            let classes = calls.classes.as_ref()?.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            Some((format!("{LATENCY}{}", command.name()), classes))
        })
        .collect();
    let mut lines: Vec<(&str, String)> = timed.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    if !lines.is_empty() {
        let percentiles = actor.config.latency_percentiles.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        lines.push((PERCENTILES, percentiles));
    }
    section("Latencystats", &lines);
    section("Cluster", &[("cluster_enabled", u8::from(is_of_cluster).to_string())]);
    let databases: Vec<(String, String)> = actor
        .keys
        .databases()
        .map(|(number, _)| (number, actor.keys.count_keys(number)))
        .filter(|(_, (keys, _))| *keys > 0)
        .map(|(number, (keys, expiring))| (format!("db{number}"), format!("keys={keys},expires={expiring},avg_ttl=0")))
        .collect();
    let lines: Vec<(&str, String)> = databases.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    section("Keyspace", &lines);
    reply.verbatim(&text);
    Ok(())
}

/// The line of a command: calls, microseconds, requests that were refused before they ran, calls that failed.
fn call_line([calls, micros, rejected, failed]: [u64; 4]) -> String {
    let each = micros as f64 / calls.max(1) as f64;
    format!("calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}")
}

const LATENCY: &str = "latency_percentiles_usec_";
/// The percentiles that are wanted; no line of the reply.
const PERCENTILES: &str = "latency percentiles";

/// Kilobytes, of bytes.
fn kilobytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1024.0)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

/// How many times what is used is in memory.
fn ratio(resident: u64, used: u64) -> String {
    format!("{:.2}", if used == 0 { 0.0 } else { resident as f64 / used as f64 })
}

/// A number of bytes as people read it: `1.50M`.
fn human(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match UNITS.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.2}{unit}", bytes as f64 / size as f64),
        None => format!("{bytes}B"),
    }
}

/// Puts the actors' parts of `INFO` together: what counts is added up, what is the same for all is told once.
pub(crate) fn combine_info(parts: &[Tape], reply: &mut dyn Reply) {
    const ADDED: [&str; 38] = [
        "used_memory_lua",
        "used_memory_vm_eval",
        "used_memory_scripts",
        "used_memory_scripts_eval",
        "mem_clients_normal",
        "total_net_input_bytes",
        "total_net_output_bytes",
        "instantaneous_input_kbps",
        "instantaneous_output_kbps",
        "total_error_replies",
        "total_reads_processed",
        "total_writes_processed",
        "evicted_clients",
        "mem_fragmentation_bytes",
        "instantaneous_ops_per_sec",
        "rejected_connections",
        "used_memory_dataset",
        "expired_subkeys",
        "rdb_changes_since_last_save",
        "tracking_clients",
        "tracking_total_keys",
        "tracking_total_items",
        "tracking_total_prefixes",
        "connected_clients",
        "blocked_clients",
        "used_memory",
        "total_connections_received",
        "total_commands_processed",
        "expired_keys",
        "evicted_keys",
        "evicted_replicas",
        "hot_keys_replicated",
        "hot_keys_replications",
        "hot_keys_undone",
        "keyspace_hits",
        "keyspace_misses",
        "requests_to_other_threads",
        "transactions_over_threads",
    ];
    const GREATEST: [&str; 6] = [
        "aof_rewrite_in_progress",
        "rdb_bgsave_in_progress",
        "rdb_current_bgsave_time_sec",
        "client_recent_max_input_buffer",
        "client_recent_max_output_buffer",
        "number_of_cached_scripts",
    ];
    let mut lines: Vec<(String, String)> = Vec::new();
    for part in parts {
        let Some(Value::Verbatim(text)) = part.first() else { continue };
        // Where the line before has its place, so that one which others do not have stays in its section.
        let mut behind = 0;
        for line in text.split("\r\n").filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once(':').unwrap_or((line, ""));
            let place = lines.iter().position(|(other, _)| other == key);
            let mine = place.map(|place| &mut lines[place]);
            match mine {
                None => lines.insert(behind, (key.to_owned(), value.to_owned())),
                Some((_, mine)) if ADDED.contains(&key) => *mine = added(mine, value),
                // At any of the actors.
                Some((_, mine)) if GREATEST.contains(&key) => {
                    let number = |text: &str| text.parse().unwrap_or(i64::MIN);
                    *mine = number(value).max(number(mine)).to_string();
                }
                Some((_, mine)) if key.starts_with("cmdstat_") => {
                    let number = |line: &str, name: &str| -> u64 {
                        let found = line.split(',').find_map(|field| field.strip_prefix(name));
                        found.and_then(|number| number.parse().ok()).unwrap_or(0)
                    };
                    let fields = ["calls=", "usec=", "rejected_calls=", "failed_calls="];
                    *mine = call_line(fields.map(|name| number(mine, name) + number(value, name)));
                }
                Some((_, mine)) if key.starts_with("errorstat_") => {
                    let number = |text: &str| text.trim_start_matches("count=").parse::<u64>().unwrap_or(0);
                    *mine = format!("count={}", number(mine) + number(value));
                }
                Some((_, mine)) if key.starts_with(LATENCY) => {
                    let sums = mine.split(',').zip(value.split(',')).map(|(a, b)| added(a, b));
                    *mine = sums.collect::<Vec<_>>().join(",");
                }
                Some((_, mine)) if key.starts_with("db") => {
                    let fields = mine.split(',').zip(value.split(','));
                    let sums = fields.map(|(a, b)| match (a.split_once('='), b.split_once('=')) {
                        (Some((name, a)), Some((_, b))) => format!("{name}={}", added(a, b)),
                        _ => a.to_owned(),
                    });
                    *mine = sums.collect::<Vec<_>>().join(",");
                }
                Some(_) => {}
            }
            behind = place.unwrap_or(behind) + 1;
        }
    }
    // What is computed from sums.
    let number_of = |name: &str| {
        let found = lines.iter().find(|(key, _)| key == name);
        found.and_then(|(_, value)| value.parse::<u64>().ok()).unwrap_or(0)
    };
    let (used, resident) = (number_of("used_memory"), number_of("used_memory_rss"));
    let percentiles = lines.iter().find(|(key, _)| key == PERCENTILES).map(|(_, percentiles)| percentiles.clone());
    lines.retain(|(key, _)| key != PERCENTILES);
    for (key, value) in &mut lines {
        match key.as_str() {
            key if key.starts_with(LATENCY) => {
                let classes: Vec<u64> = value.split(',').filter_map(|count| count.parse().ok()).collect();
                let percentiles = percentiles.iter().flat_map(|all| all.split(' '));
                let told = percentiles.filter_map(|percent| {
                    Some(format!("p{percent}={:.3}", crate::actor::percentile(&classes, percent.parse().ok()?)?))
                });
                *value = told.collect::<Vec<_>>().join(",");
            }
            "mem_fragmentation_bytes" => *value = resident.saturating_sub(used).to_string(),
            "used_memory_human" => *value = human(used),
            "mem_fragmentation_ratio" => *value = ratio(resident, used),
            _ => {}
        }
    }
    let mut text = String::new();
    for (key, value) in &lines {
        let _ = match key.strip_prefix("# ") {
            Some(_) => write!(text, "{}{key}\r\n", if text.is_empty() { "" } else { "\r\n" }),
            None => write!(text, "{key}:{value}\r\n"),
        };
    }
    reply.verbatim(&text);
}

fn added(a: &str, b: &str) -> String {
    if a.contains('.') {
        let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        return format!("{:.2}", number(a) + number(b));
    }
    (a.parse::<u64>().unwrap_or(0) + b.parse::<u64>().unwrap_or(0)).to_string()
}

/// `SWAPDB index1 index2`
pub fn swapdb(actor: &mut Actor, session: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    actor.change_databases(session, swap_of(args)?, reply)
}

/// What the words of `SWAPDB` ask for.
///
/// # Errors
/// If these are no databases.
pub(crate) fn swap_of(args: Args<'_>) -> Result<DatabaseChange, CommandError> {
    let [one, other] = [(1, "ERR invalid first DB index"), (2, "ERR invalid second DB index")].map(|(at, refusal)| {
        let number = integer(&args[at]).filter(|number| i32::try_from(*number).is_ok());
        number.ok_or_else(|| CommandError::text(refusal))
    });
    let (one, other) = (one?, other?);
    let index = |number: i64| u8::try_from(number).ok().filter(|number| *number < DATABASES);
    let databases = index(one).zip(index(other)).ok_or(CommandError::text("ERR DB index is out of range"))?;
    Ok(DatabaseChange::Swap(databases.0, databases.1))
}

/// `BGREWRITEAOF`
pub fn bgrewriteaof(actor: &mut Actor, _: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    if !actor.config.is_logged {
        return Err(CommandError::text("ERR there is no log; start with a data directory"));
    }
    actor.is_rewrite_wanted = true;
    reply.simple("Background append only file rewriting started");
    Ok(Progress::Answered)
}

/// `ROLE`
pub fn role(_: &mut Actor, _: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(Progress::Answered)
}

/// `MODULE LIST`
pub fn module(_: &mut Actor, _: &mut Session, args: Args<'_>, reply: &mut dyn Reply) -> Done {
    match super::check_subcommand("module", &[("list", 2), ("help", 2)], args)? {
        "list" => reply.array(0),
        _ => super::help("module", reply),
    }
    Ok(Progress::Answered)
}

/// `LOLWUT [VERSION number] [...]`
pub fn lolwut(_: &mut Actor, _: &mut Session, _: Args<'_>, reply: &mut dyn Reply) -> Done {
    const TREE: &str = "
        .-~~~~~~~~~~~~~~-.
    .-~~~~~~~~~~~~~~~~~~~~~~-.
       `-~~~\\~~~~|~~~~/~~~-'
             `\\  |  /'
               `\\|/'
                 |
    _____________|____________________
";
    reply
        .verbatim(&format!("{TREE}\nRedis ver. {REDIS_VERSION}, as Savanna {} speaks it\n", env!("CARGO_PKG_VERSION")));
    Ok(Progress::Answered)
}
