//! Sets.

use super::generic::ScanOptions;
use super::{parse_chosen, parse_count, parse_count_limit, parse_cursor, parse_positive};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection, Keyspace, Set};
use crate::number::integer;
use crate::reply::Reply;
use crate::request::Args;

/// `SADD key member [member ...]`
pub fn sadd(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let added = keys.change::<Set, _>(&args[1], |set| Ok(args.from(2).filter(|member| set.add(member)).count()))?;
    if added > 0 {
        keys.note_event(EventClasses::SET, "sadd", &args[1]);
    }
    reply.count(added);
    Ok(())
}

/// `SREM key member [member ...]`
pub fn srem(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let removed =
        keys.change_present::<Set, _>(&args[1], |set| Ok(args.from(2).filter(|member| set.remove(member)).count()))?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        keys.note_taken(EventClasses::SET, "srem", &args[1]);
    }
    reply.count(removed);
    Ok(())
}

/// `SCARD key`
pub fn scard(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.count(keys.collection::<Set>(&args[1])?.map_or(0, Set::len));
    Ok(())
}

/// `SISMEMBER key member`
pub fn sismember(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.flag(keys.collection::<Set>(&args[1])?.is_some_and(|set| set.contains(&args[2])));
    Ok(())
}

/// `SMISMEMBER key member [member ...]`
pub fn smismember(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let set = keys.collection::<Set>(&args[1])?;
    reply.array(args.len() - 2);
    args.from(2).for_each(|member| reply.flag(set.is_some_and(|set| set.contains(member))));
    Ok(())
}

/// `SMEMBERS key`
pub fn smembers(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let set = keys.collection::<Set>(&args[1])?;
    reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| reply.bulk(member));
    Ok(())
}

/// `SMOVE source destination member`
pub fn smove(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (source, destination, member) = (&args[1], &args[2], &args[3]);
    let Some(set) = keys.peek_collection::<Set>(source)? else {
        reply.integer(0);
        return Ok(());
    };
    let is_there = set.contains(member);
    keys.peek_collection::<Set>(destination)?;
    if is_there && source != destination {
        keys.change::<Set, _>(source, |set| Ok(set.remove(member)))?;
        keys.note_taken(EventClasses::SET, "srem", source);
        if keys.change::<Set, _>(destination, |set| Ok(set.add(member)))? {
            keys.note_event(EventClasses::SET, "sadd", destination);
        }
    }
    reply.flag(is_there);
    Ok(())
}

/// `SPOP key [count]`
pub fn spop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let refusal = "ERR value is out of range, must be positive";
    let count = args.from(2).next().map(|count| parse_count(count, refusal)).transpose()?;
    keys.ask_for_log_of_elements(&args[1], count.unwrap_or(1))?;
    let mut random = keys.random.clone();
    let popped = keys.change_present::<Set, _>(&args[1], |set| {
        let mut popped: Vec<Box<[u8]>> = Vec::new();
        while popped.len() < count.unwrap_or(1) {
            let Some(member) = set.at(random.below(set.len())).map(Box::from) else { break };
            set.remove(&member);
            popped.push(member);
        }
        Ok(popped)
    })?;
    keys.random = random;
    let popped = popped.unwrap_or_default();
    if !popped.is_empty() {
        keys.note_taken(EventClasses::SET, "spop", &args[1]);
    }
    if count.is_some() {
        reply.set(popped.len());
        popped.iter().for_each(|member| reply.bulk(member));
    } else {
        reply.bulk_or_null(popped.first().map(|member| &**member));
    }
    Ok(())
}

/// `SRANDMEMBER key [count]`
pub fn srandmember(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let (count, _) = parse_chosen(args.skip(2), "")?;
    let mut random = keys.random.clone();
    let set = keys.collection::<Set>(&args[1])?;
    match (set, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(set), None) => reply.bulk_or_null(set.at(random.below(set.len()))),
        (Some(set), Some(count)) => {
            let chosen = random.choose(set.len(), count);
            reply.array(chosen.len());
            chosen.into_iter().for_each(|index| reply.bulk_or_null(set.at(index)));
        }
    }
    keys.random = random;
    Ok(())
}

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`
pub fn sscan(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let options = ScanOptions::parse(args, 3)?;
    let cursor = usize::try_from(parse_cursor(&args[2])?).unwrap_or(usize::MAX);
    let limits = keys.encodings;
    let set = keys.collection::<Set>(&args[1])?;
    if let Some(set) = set.filter(|set| limits.is_number_set(set)) {
        let mut members: Vec<&[u8]> = set.iter().filter(|member| options.wants(member)).collect();
        members.sort_by_key(|member| integer(member));
        reply.array(2);
        reply.bulk(b"0");
        reply.array(members.len());
        members.into_iter().for_each(|member| reply.bulk(member));
        return Ok(());
    }
    let range = options.walk(cursor, set.map_or(0, Set::len));
    let next = range.start;
    let members = range.rev().filter_map(|index| set?.at(index));
    let found: Vec<_> = members.filter(|member| options.wants(member)).collect();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.len());
    found.into_iter().for_each(|member| reply.bulk(member));
    Ok(())
}

/// What is made of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// Combines the sets of `names`. Sets that are not there are empty.
fn combine<'a>(
    keys: &mut Keyspace,
    names: impl Iterator<Item = &'a [u8]> + Clone,
    operation: Operation,
) -> Result<Set, CommandError> {
    for name in names.clone() {
        keys.collection::<Set>(name)?;
    }
    keys.ask_for_memory_of(names.clone())?;
    let nothing = Set::default();
    let mut sets = Vec::new();
    for name in names {
        sets.push(keys.peek_collection::<Set>(name)?.unwrap_or(&nothing));
    }
    Ok(match operation {
        Operation::Union => sets.into_iter().flat_map(Set::iter).collect(),
        Operation::Intersection => {
            sets.sort_by_key(|set| set.len());
            let Some((smallest, others)) = sets.split_first() else { return Ok(Set::default()) };
            smallest.iter().filter(|member| others.iter().all(|other| other.contains(member))).collect()
        }
        Operation::Difference => {
            let Some((first, others)) = sets.split_first() else { return Ok(Set::default()) };
            first.iter().filter(|member| !others.iter().any(|other| other.contains(member))).collect()
        }
    })
}

fn answer_combined(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, operation: Operation) -> Outcome {
    let set = combine(keys, args.from(1), operation)?;
    reply.set(set.len());
    set.iter().for_each(|member| reply.bulk(member));
    Ok(())
}

fn store_combined(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, operation: Operation) -> Outcome {
    let set = combine(keys, args.from(2), operation)?;
    let count = set.len();
    let stored = match operation {
        Operation::Union => "sunionstore",
        Operation::Intersection => "sinterstore",
        Operation::Difference => "sdiffstore",
    };
    keys.store(&args[1], (count > 0).then(|| set.into_value()), EventClasses::SET, stored)?;
    reply.count(count);
    Ok(())
}

/// `SUNION key [key ...]`
pub fn sunion(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_combined(keys, args, reply, Operation::Union)
}

/// `SINTER key [key ...]`
pub fn sinter(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_combined(keys, args, reply, Operation::Intersection)
}

/// `SDIFF key [key ...]`
pub fn sdiff(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_combined(keys, args, reply, Operation::Difference)
}

/// `SUNIONSTORE destination key [key ...]`
pub fn sunionstore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    store_combined(keys, args, reply, Operation::Union)
}

/// `SINTERSTORE destination key [key ...]`
pub fn sinterstore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    store_combined(keys, args, reply, Operation::Intersection)
}

/// `SDIFFSTORE destination key [key ...]`
pub fn sdiffstore(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    store_combined(keys, args, reply, Operation::Difference)
}

/// `SINTERCARD numkeys key [key ...] [LIMIT limit]`
pub fn sintercard(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let number = parse_positive(&args[1], "ERR numkeys should be greater than 0")?;
    let rest = number.saturating_add(2);
    if rest > args.len() {
        return Err(CommandError::text("ERR Number of keys can't be greater than number of args"));
    }
    let limit = parse_count_limit(args.skip(rest))?;
    let count = combine(keys, args.from(2).take(number), Operation::Intersection)?.len();
    reply.count(count.min(limit));
    Ok(())
}
