//! What takes how much memory: `MEMORY`.

use crate::actor::{Actor, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::figures::ProcessMemory;
use crate::keyspace::entry::Entry;
use crate::keyspace::{DATABASES, Keyspace};
use crate::reply::{Reply, Tape, Value};
use crate::request::Args;
use crate::session::Session;

/// `MEMORY USAGE key [SAMPLES count]`; the others are [`of_all`]'s
pub fn memory(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if !args[1].eq_ignore_ascii_case(b"usage") || args.len() < 3 {
        return Err(CommandError::from(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try MEMORY HELP.",
            args[1].escape_ascii()
        )));
    }
    match keys.bytes_of(&args[2]) {
        Some(bytes) => reply.count(bytes),
        None => reply.null(),
    }
    Ok(())
}

/// `MEMORY STATS | DOCTOR | MALLOC-STATS | PURGE | HELP`, which are about no key
///
/// # Errors
/// If it is none of these.
pub fn of_all(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    match args[1].to_ascii_lowercase().as_slice() {
        b"stats" => return actor.ask_everybody(session, &STATS, args, reply),
        b"doctor" => return actor.ask_everybody(session, &DOCTOR, args, reply),
        b"malloc-stats" => reply.bulk(b"Stats not supported for the current allocator"),
        // The allocator gives back what is free by itself.
        b"purge" => reply.ok(),
        b"help" => {
            const HELP: [&str; 6] = [
                "MEMORY USAGE key: about how many bytes a key takes.",
                "MEMORY STATS: how many bytes there are for what.",
                "MEMORY DOCTOR: what there is to say about it.",
                "MEMORY MALLOC-STATS: nothing.",
                "MEMORY PURGE: does nothing, free memory goes back by itself.",
                "MEMORY HELP: this.",
            ];
            reply.array(HELP.len());
            HELP.into_iter().for_each(|line| reply.simple(line));
        }
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try MEMORY HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(Progress::Answered)
}

const fn part(name: &'static str, combine: Combine) -> Command {
    Command {
        name,
        arity: 2,
        flags: Flags::KEYLESS,
        keys: Keys::None,
        uses: KeyUses::NONE,
        class: Class::Everywhere,
        group: Group::Server,
        since: "4.0.0",
        summary: "Tells what takes how much memory.",
        run: Run::Everywhere(measure, combine),
    }
}

static STATS: Command = part("memory|stats", Combine::MemoryStats);
static DOCTOR: Command = part("memory|doctor", Combine::MemoryAdvice);

/// One actor's part: the bytes of its keys, the limit, and for each database how many keys there are and how many expire.
fn measure(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.array(2 + 2 * usize::from(DATABASES));
    reply.count(actor.keys.byte_count());
    reply.count(actor.config.memory_max);
    for number in 0..DATABASES {
        let (keys, expiring) = actor.keys.count_keys(number);
        reply.count(keys);
        reply.count(expiring);
    }
    Ok(())
}

/// The parts of all actors together.
#[derive(Default)]
struct Sums {
    bytes: i64,
    limit: i64,
    databases: [(i64, i64); DATABASES as usize],
}

impl Sums {
    fn of(parts: &[Tape]) -> Self {
        let mut sums = Self::default();
        for part in parts {
            let mut numbers = part.values().filter_map(|value| match value {
                Value::Integer(number) => Some(number),
                _ => None,
            });
            sums.bytes += numbers.next().unwrap_or(0);
            sums.limit = numbers.next().unwrap_or(0);
            for (keys, expiring) in &mut sums.databases {
                *keys += numbers.next().unwrap_or(0);
                *expiring += numbers.next().unwrap_or(0);
            }
        }
        sums
    }

    fn keys(&self) -> i64 {
        self.databases.iter().map(|(keys, _)| keys).sum()
    }
}

/// What is counted of a key beside its name and value, which may be in there if they are short.
const ENTRY_BYTES: i64 = size_of::<Entry>() as i64;
/// Of a key that expires, its note.
const NOTE_BYTES: i64 = 16;

/// `MEMORY STATS` out of the parts of all actors.
pub(crate) fn combine_stats(parts: &[Tape], reply: &mut dyn Reply) {
    let sums = Sums::of(parts);
    let process = ProcessMemory::now();
    let overhead: i64 = sums.databases.iter().map(|(keys, expiring)| keys * ENTRY_BYTES + expiring * NOTE_BYTES).sum();
    let dataset = (sums.bytes - overhead).max(0);
    let used: Vec<(usize, (i64, i64))> =
        sums.databases.into_iter().enumerate().filter(|(_, (keys, _))| *keys > 0).collect();
    let numbers = [
        ("peak.allocated", process.peak as i64),
        ("total.allocated", sums.bytes),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", 0),
        ("cluster.links", 0),
        ("aof.buffer", 0),
    ];
    let totals = [
        ("overhead.total", overhead),
        ("keys.count", sums.keys()),
        ("keys.bytes-per-key", sums.bytes.checked_div(sums.keys()).unwrap_or(0)),
        ("dataset.bytes", dataset),
    ];
    let share = |part: i64, whole: i64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    let fractions = [
        ("dataset.percentage", share(dataset, sums.bytes)),
        ("peak.percentage", share(sums.bytes, process.peak as i64)),
        ("fragmentation", share(process.resident as i64, sums.bytes) / 100.0),
    ];
    reply.map(numbers.len() + used.len() + totals.len() + fractions.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
    for (number, (keys, expiring)) in used {
        reply.bulk(format!("db.{number}").as_bytes());
        reply.map(2);
        reply.bulk(b"overhead.hashtable.main");
        reply.integer(keys * ENTRY_BYTES);
        reply.bulk(b"overhead.hashtable.expires");
        reply.integer(expiring * NOTE_BYTES);
    }
    for (name, number) in totals {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
    for (name, number) in fractions {
        reply.bulk(name.as_bytes());
        reply.double(number);
    }
}

/// `MEMORY DOCTOR` out of the parts of all actors.
pub(crate) fn combine_advice(parts: &[Tape], reply: &mut dyn Reply) {
    /// Below this nothing is worth a word, as in Redis.
    const FEW_BYTES: i64 = 5 << 20;
    let sums = Sums::of(parts);
    let process = ProcessMemory::now();
    let mut advice = Vec::new();
    if sums.bytes < FEW_BYTES {
        advice.push("The keys take less than 5 MiB, which is too little to say anything.".to_owned());
    } else {
        if sums.limit == 0 {
            advice.push(
                "maxmemory is 0: keys may take all memory, and the operating system then ends the process. Set it below what they may take."
                    .to_owned(),
            );
        } else if sums.bytes > sums.limit / 10 * 9 {
            advice.push(format!("Keys take {} of {} bytes (maxmemory).", sums.bytes, sums.limit));
        }
        if process.resident as i64 > 2 * sums.bytes {
            advice.push(format!(
                "The process has {} bytes in memory, more than twice what its keys take ({}). Free memory goes back when threads are idle; the \
                 other services of this node take some, too.",
                process.resident, sums.bytes
            ));
        }
        if advice.is_empty() {
            advice.push("There is nothing to say about the memory of keys.".to_owned());
        }
    }
    reply.verbatim(&advice.join("\n"));
}
