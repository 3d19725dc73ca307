//! Hashes.

use super::generic::ScanOptions;
use super::{parse_chosen, parse_cursor};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection as _, Hash, Keyspace};
use crate::number::{Digits, integer, parse_float, parse_integer, plain};
use crate::reply::Reply;
use crate::request::Args;

/// `HSET key field value [field value ...]`
pub fn hset(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let count = put_fields(keys, args, "hset")?;
    reply.count(count);
    Ok(())
}

/// `HMSET key field value [field value ...]`
pub fn hmset(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    put_fields(keys, args, "hmset")?;
    reply.ok();
    Ok(())
}

fn put_fields(keys: &mut Keyspace, args: Args<'_>, command: &str) -> Result<usize, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::Arity(command.to_owned()));
    }
    let added = keys.change::<Hash, _>(&args[1], |hash| {
        let fields = args.from(2).step_by(2).zip(args.from(3).step_by(2));
        Ok(fields.filter(|(field, value)| hash.put(field, value)).count())
    })?;
    keys.note_event(EventClasses::HASH, "hset", &args[1]);
    Ok(added)
}

/// `HSETNX key field value`
pub fn hsetnx(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let is_new = keys.change::<Hash, _>(&args[1], |hash| {
        let is_new = hash.get(&args[2]).is_none();
        if is_new {
            hash.put(&args[2], &args[3]);
        }
        Ok(is_new)
    })?;
    if is_new {
        keys.note_event(EventClasses::HASH, "hset", &args[1]);
    }
    reply.flag(is_new);
    Ok(())
}

/// `HGET key field`
pub fn hget(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.bulk_or_null(hash.and_then(|hash| hash.get(&args[2])));
    Ok(())
}

/// `HMGET key field [field ...]`
pub fn hmget(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.array(args.len() - 2);
    for field in args.from(2) {
        reply.bulk_or_null(hash.and_then(|hash| hash.get(field)));
    }
    Ok(())
}

/// `HGETALL key`
pub fn hgetall(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flat_map(Hash::iter) {
        reply.bulk(field);
        reply.bulk(value);
    }
    Ok(())
}

/// `HKEYS key`
pub fn hkeys(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.array(hash.map_or(0, Hash::len));
    hash.into_iter().flat_map(Hash::iter).for_each(|(field, _)| reply.bulk(field));
    Ok(())
}

/// `HVALS key`
pub fn hvals(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.array(hash.map_or(0, Hash::len));
    hash.into_iter().flat_map(Hash::iter).for_each(|(_, value)| reply.bulk(value));
    Ok(())
}

/// `HLEN key`
pub fn hlen(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.count(keys.collection::<Hash>(&args[1])?.map_or(0, Hash::len));
    Ok(())
}

/// `HSTRLEN key field`
pub fn hstrlen(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.count(hash.and_then(|hash| hash.get(&args[2])).map_or(0, <[u8]>::len));
    Ok(())
}

/// `HEXISTS key field`
pub fn hexists(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.flag(hash.is_some_and(|hash| hash.get(&args[2]).is_some()));
    Ok(())
}

/// `HDEL key field [field ...]`
pub fn hdel(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let removed =
        keys.change_present::<Hash, _>(&args[1], |hash| Ok(args.from(2).filter(|field| hash.remove(field)).count()))?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        keys.note_taken(EventClasses::HASH, "hdel", &args[1]);
    }
    reply.count(removed);
    Ok(())
}

/// `HINCRBY key field increment`
pub fn hincrby(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let amount = parse_integer(&args[3])?;
    let sum = keys.change::<Hash, _>(&args[1], |hash| {
        let not_a_number = CommandError::text("ERR hash value is not an integer");
        let number = hash.get(&args[2]).map_or(Ok(0), |value| integer(value).ok_or(not_a_number))?;
        let sum = number.checked_add(amount).ok_or(CommandError::text("ERR increment or decrement would overflow"))?;
        hash.put_in_its_time(&args[2], Digits::of(sum).as_bytes());
        Ok(sum)
    })?;
    keys.note_event(EventClasses::HASH, "hincrby", &args[1]);
    reply.integer(sum);
    Ok(())
}

/// `HINCRBYFLOAT key field increment`
pub fn hincrbyfloat(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let amount = parse_float(&args[3])?;
    if !amount.is_finite() {
        return Err(CommandError::text("ERR value is NaN or Infinity"));
    }
    let text = keys.change::<Hash, _>(&args[1], |hash| {
        let not_a_number = CommandError::text("ERR hash value is not a float");
        let number = hash.get(&args[2]).map_or(Ok(0.0), |value| parse_float(value).map_err(|_| not_a_number))?;
        let sum = number + amount;
        if !sum.is_finite() {
            return Err(CommandError::text("ERR increment would produce NaN or Infinity"));
        }
        let text = plain(sum);
        hash.put_in_its_time(&args[2], text.as_bytes());
        Ok(text)
    })?;
    keys.note_event(EventClasses::HASH, "hincrbyfloat", &args[1]);
    reply.bulk(text.as_bytes());
    Ok(())
}

/// `HRANDFIELD key [count [WITHVALUES]]`
pub fn hrandfield(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (count, with_values) = parse_chosen(args.skip(2), "withvalues")?;
    let mut random = keys.random.clone();
    let hash = keys.collection::<Hash>(&args[1])?;
    match (hash, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(hash), None) => reply.bulk_or_null(hash.at(random.below(hash.len())).map(|(field, _)| field)),
        (Some(hash), Some(count)) => {
            let chosen = random.choose(hash.len(), count);
            let answer = |reply: &mut dyn Reply, index: usize| {
                if let Some((field, value)) = hash.at(index) {
                    reply.bulk(field);
                    if with_values {
                        reply.bulk(value);
                    }
                }
            };
            if with_values {
                reply.pairs(chosen.len())
            } else {
                reply.array(chosen.len())
            }
            for index in chosen {
                if with_values {
                    reply.pair();
                }
                answer(reply, index);
            }
        }
    }
    keys.random = random;
    Ok(())
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`
pub fn hscan(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let options = ScanOptions::parse(args, 3)?;
    let cursor = usize::try_from(parse_cursor(&args[2])?).unwrap_or(usize::MAX);
    let limits = keys.encodings;
    let hash = keys.collection::<Hash>(&args[1])?;
    let (next, found): (usize, Vec<_>) = match hash.filter(|hash| limits.is_packed_hash(hash)) {
        Some(hash) => (0, hash.iter().filter(|(field, _)| options.wants(field)).collect()),
        None => {
            let range = options.walk(cursor, hash.map_or(0, Hash::len));
            let next = range.start;
            let fields = range.rev().filter_map(|index| hash?.at(index));
            (next, fields.filter(|(field, _)| options.wants(field)).collect())
        }
    };
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.len() * if options.no_values { 1 } else { 2 });
    for (field, value) in found {
        reply.bulk(field);
        if !options.no_values {
            reply.bulk(value);
        }
    }
    Ok(())
}
