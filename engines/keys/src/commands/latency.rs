//! What takes how long: `LATENCY`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::access::Permission;
use crate::actor::logbook::Late;
use crate::actor::{Actor, Progress};
use crate::command::{Class, Combine, Command, Flags, Group, KeyUses, Keys, Run};
use crate::error::{CommandError, Outcome};
use crate::reply::{Reply, Tape, Value};
use crate::request::Args;
use crate::session::Session;

/// `LATENCY LATEST | HISTORY event | GRAPH event | RESET [event ...] | DOCTOR | HISTOGRAM [command ...] | HELP`
pub fn latency(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    match args[1].to_ascii_lowercase().as_slice() {
        b"help" if args.len() > 2 => Err(CommandError::Arity("latency|help".to_owned())),
        b"histogram" => actor.ask_everybody(session, &HISTOGRAM, args, reply),
        b"help" => {
            const HELP: [&str; 7] = [
                "LATENCY LATEST: what took longer than latency-monitor-threshold, and when it did last.",
                "LATENCY HISTORY event: when that was, and how long it took.",
                "LATENCY GRAPH event: the same as a picture.",
                "LATENCY RESET [event ...]: forgets that.",
                "LATENCY DOCTOR: what there is to say about it.",
                "LATENCY HISTOGRAM [command ...]: how many calls took how many microseconds at most.",
                "LATENCY HELP: this.",
            ];
            reply.array(HELP.len());
            HELP.into_iter().for_each(|line| reply.simple(line));
            Ok(Progress::Answered)
        }
        _ => actor.ask_first(session, &AT_THE_FIRST, args, reply),
    }
}

const fn part(name: &'static str, run: Run) -> Command {
    Command {
        name,
        arity: -2,
        flags: Flags::KEYLESS,
        keys: Keys::None,
        uses: KeyUses::NONE,
        class: Class::Everywhere,
        group: Group::Server,
        since: "2.8.13",
        summary: "Tells what takes how long.",
        run,
    }
}

/// The part of the first actor, which keeps what took too long.
static AT_THE_FIRST: Command = part("latency", Run::Everywhere(answer, Combine::First));
static HISTOGRAM: Command = part("latency|histogram", Run::Everywhere(histogram, Combine::Histograms));

fn answer(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let late = actor.logbook.late();
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"latest", 2) => {
            reply.array(late.len());
            for (event, late) in late {
                let (at, millis) = late.samples.back().copied().unwrap_or_default();
                reply.array(4);
                reply.bulk(event.as_bytes());
                [at, millis, late.most].into_iter().for_each(|number| reply.integer(number as i64));
            }
        }
        (b"history", 3) => {
            let found = late.iter().find(|(event, _)| event.as_bytes() == &args[2]);
            let samples = found.map(|(_, late)| &late.samples);
            reply.array(samples.map_or(0, |samples| samples.len()));
            for (at, millis) in samples.into_iter().flatten() {
                reply.array(2);
                [at, millis].into_iter().for_each(|number| reply.integer(*number as i64));
            }
        }
        (b"graph", 3) => {
            let found = late.iter().find(|(event, _)| event.as_bytes() == &args[2]);
            let (event, late) = found.ok_or_else(|| {
                CommandError::from(format!("ERR No samples available for event '{}'", args[2].escape_ascii()))
            })?;
            reply.verbatim(&graph(event, late, actor.keys.now().0 / 1000));
        }
        (b"reset", _) => {
            let names: Vec<&[u8]> = args.from(2).collect();
            reply.count(actor.logbook.forget_late(&names));
        }
        (b"doctor", 2) => {
            let threshold = actor.config.latency_millis;
            let mut text = if threshold == 0 {
                "Nothing is kept, because latency-monitor-threshold is 0. CONFIG SET it to the milliseconds from which on you want to \
                 hear of what takes so long.\n"
                    .to_owned()
            } else if late.is_empty() {
                format!("Nothing took {threshold} ms or more.\n")
            } else {
                String::new()
            };
            for (event, late) in late {
                let count = late.samples.len().max(1) as u64;
                let mean = late.samples.iter().map(|(_, millis)| millis).sum::<u64>() / count;
                text.push_str(&format!(
                    "{event}: {count} seconds in which that took {threshold} ms or more, {mean} ms on average, {} ms at most. SLOWLOG GET tells \
                     which requests.\n",
                    late.most
                ));
            }
            reply.verbatim(&text);
        }
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try LATENCY HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(())
}

/// A picture of when something took how long: a column for each second in which it did, and below each how long ago that was.
fn graph(event: &str, late: &Late, now: u64) -> String {
    const HEIGHT: u64 = 4;
    let samples = || late.samples.iter().rev().take(GRAPH_COLUMNS).rev();
    let most = samples().map(|(_, millis)| *millis).max().unwrap_or(0);
    let least = samples().map(|(_, millis)| *millis).min().unwrap_or(0);
    let mut text = format!("{event} - high {most} ms, low {least} ms (all time high {} ms)\n", late.most);
    text.push_str(&"-".repeat(80));
    text.push('\n');
    for row in (0..HEIGHT).rev() {
        let line: String = samples()
            .map(|(_, millis)| {
                let height = if most == least { 0 } else { (millis - least) * (HEIGHT - 1) / (most - least) };
                match height.cmp(&row) {
                    Ordering::Equal if *millis == most => '#',
                    Ordering::Equal => '_',
                    Ordering::Greater => '|',
                    Ordering::Less => ' ',
                }
            })
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    let ages: Vec<Vec<char>> =
        samples().map(|(second, _)| age(now.saturating_sub(*second)).chars().collect()).collect();
    let rows = ages.iter().map(Vec::len).max().unwrap_or(0);
    for row in 0..rows {
        let line: String = ages.iter().map(|age| age.get(row).copied().unwrap_or(' ')).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// So many columns a picture has at most.
const GRAPH_COLUMNS: usize = 80;

/// A time in seconds, in the largest unit of which there is one.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// One actor's part: names, calls, and how many calls in each class.
fn histogram(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let wanted: Vec<Vec<u8>> = args.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    // A command stands for its subcommands.
    let is_named =
        |of: &Permission, wanted: &[u8]| wanted == of.command.name.as_bytes() || wanted == of.name().as_bytes();
    let is_wanted = |of: &Permission| wanted.is_empty() || wanted.iter().any(|wanted| is_named(of, wanted));
    let found: Vec<_> = actor.calls.each().filter(|(command, _)| is_wanted(command)).collect();
    reply.array(found.len());
    for (command, calls) in found {
        let classes = calls.classes.iter().flat_map(|classes| classes.iter());
        reply.array(2 + calls.classes.as_ref().map_or(0, |classes| classes.len()));
        reply.bulk(command.name().as_bytes());
        reply.integer(calls.count as i64);
        classes.for_each(|count| reply.integer(*count as i64));
    }
    Ok(())
}

/// Puts the parts of all actors together.
pub(crate) fn combine(parts: &[Tape], reply: &mut dyn Reply) {
    let mut commands: BTreeMap<Vec<u8>, Vec<i64>> = BTreeMap::new();
    for part in parts {
        let (mut name, mut place) = (Vec::new(), 0);
        for value in part.values().skip(1) {
            match value {
                Value::Array(_) => {}
                Value::Bulk(bytes) => (name, place) = (bytes.to_vec(), 0),
                Value::Integer(number) => {
                    let numbers = commands.entry(name.clone()).or_default();
                    if numbers.len() <= place {
                        numbers.resize(place + 1, 0);
                    }
                    numbers[place] += number;
                    place += 1;
                }
                _ => {}
            }
        }
    }
    // Of what was never timed nothing is known.
    commands.retain(|_, numbers| numbers[1..].iter().any(|count| *count > 0));
    reply.map(commands.len());
    for (name, numbers) in commands {
        reply.bulk(&name);
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(numbers[0]);
        reply.bulk(b"histogram_usec");
        let mut all = 0;
        let classes: Vec<(usize, i64)> = (numbers[1..].iter().enumerate())
            .filter(|(_, count)| **count > 0)
            .map(|(class, count)| {
                all += count;
                (class, all)
            })
            .collect();
        reply.map(classes.len());
        for (class, count) in classes {
            reply.integer(1 << class);
            reply.integer(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_column_for_each_second_and_its_age_below() {
        let late = Late { samples: [(100, 10), (160, 40), (4000, 20)].into(), most: 90 };
        let text = graph("command", &late, 4005);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("command - high 40 ms, low 10 ms (all time high 90 ms)"));
        let rest: Vec<&str> = lines.skip(1).collect();
        assert_eq!(rest, [" #", " |", " |_", "_||", "", "115", "hhs"]);
    }
}
