//! Lists.

use super::{clamp_range, index_in, parse_count};
use crate::error::{CommandError, Outcome};
use crate::keyspace::{Collection as _, End, Keyspace, List};
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::request::Args;

/// `LPUSH key element [element ...]`
pub fn lpush(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    push(keys, args, reply, End::Left)
}

/// `RPUSH key element [element ...]`
pub fn rpush(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    push(keys, args, reply, End::Right)
}

/// `LPUSHX key element [element ...]`
pub fn lpushx(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    push_present(keys, args, reply, End::Left)
}

/// `RPUSHX key element [element ...]`
pub fn rpushx(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    push_present(keys, args, reply, End::Right)
}

fn push(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, end: End) -> Outcome {
    let length = keys.change::<List, _>(&args[1], |list| {
        args.from(2).for_each(|element| list.push(end, element));
        Ok(list.len())
    })?;
    keys.note_ready(&args[1]);
    reply.count(length);
    Ok(())
}

fn push_present(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, end: End) -> Outcome {
    if keys.collection::<List>(&args[1])?.is_none() {
        reply.integer(0);
        return Ok(());
    }
    push(keys, args, reply, end)
}

/// `LPOP key [count]`
pub fn lpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop(keys, args, reply, End::Left)
}

/// `RPOP key [count]`
pub fn rpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop(keys, args, reply, End::Right)
}

fn pop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, end: End) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::Arity(if end == End::Left { "lpop" } else { "rpop" }.to_owned()));
    }
    let refusal = "ERR value is out of range, must be positive";
    let count = args.from(2).next().map(|count| parse_count(count, refusal)).transpose()?;
    let popped = keys.change_present::<List, _>(&args[1], |list| {
        let count = count.unwrap_or(1).min(list.len());
        Ok((0..count).filter_map(|_| list.pop(end)).collect::<Vec<_>>())
    })?;
    match (popped, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.null_array(),
        (Some(popped), None) => reply.bulk_or_null(popped.first().map(|element| &**element)),
        (Some(popped), Some(_)) => {
            reply.array(popped.len());
            popped.iter().for_each(|element| reply.bulk(element));
        }
    }
    Ok(())
}

/// `LLEN key`
pub fn llen(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.count(keys.collection::<List>(&args[1])?.map_or(0, List::len));
    Ok(())
}

/// `LINDEX key index`
pub fn lindex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let Some(list) = keys.collection::<List>(&args[1])? else {
        reply.null();
        return Ok(());
    };
    let index = index_in(parse_integer(&args[2])?, list.len());
    reply.bulk_or_null(index.and_then(|index| list.get(index)));
    Ok(())
}

/// `LRANGE key start stop`
pub fn lrange(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (start, stop) = (parse_integer(&args[2])?, parse_integer(&args[3])?);
    let Some(list) = keys.collection::<List>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let elements = list.range(clamp_range(start, stop, list.len()));
    reply.array(elements.len());
    elements.for_each(|element| reply.bulk(element));
    Ok(())
}

/// `LSET key index element`
pub fn lset(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let index = parse_integer(&args[2]);
    let set = keys.change_present::<List, _>(&args[1], |list| {
        let index = index_in(index?, list.len()).ok_or(CommandError::text("ERR index out of range"))?;
        Ok(list.put(index, &args[3]))
    })?;
    set.ok_or(CommandError::NoSuchKey)?;
    reply.ok();
    Ok(())
}

/// `LINSERT key BEFORE | AFTER pivot element`
pub fn linsert(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let offset = match args[2].to_ascii_lowercase().as_slice() {
        b"before" => 0,
        b"after" => 1,
        _ => return Err(CommandError::Syntax),
    };
    let length = keys.change_present::<List, _>(&args[1], |list| {
        let Some(pivot) = list.iter().position(|element| *element == args[3]) else { return Ok(-1) };
        list.insert(pivot + offset, &args[4]);
        Ok(list.len() as i64)
    })?;
    reply.integer(length.unwrap_or(0));
    Ok(())
}

/// `LREM key count element`
pub fn lrem(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let count = parse_integer(&args[2])?;
    let removed = keys.change_present::<List, _>(&args[1], |list| {
        let is_it = |(_, element): &(usize, &[u8])| **element == args[3];
        let limit = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
        let mut places: Vec<usize> = if count < 0 {
            list.iter().enumerate().rev().filter(is_it).take(limit).map(|(index, _)| index).collect()
        } else {
            list.iter().enumerate().filter(is_it).take(limit).map(|(index, _)| index).collect()
        };
        // From the right, so that the other places stay where they are.
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.iter().for_each(|index| list.remove(*index));
        Ok(places.len())
    })?;
    reply.count(removed.unwrap_or(0));
    Ok(())
}

/// `LTRIM key start stop`
pub fn ltrim(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (start, stop) = (parse_integer(&args[2])?, parse_integer(&args[3])?);
    keys.change_present::<List, _>(&args[1], |list| {
        let range = clamp_range(start, stop, list.len());
        list.keep(range);
        Ok(())
    })?;
    reply.ok();
    Ok(())
}

/// `RPOPLPUSH source destination`
pub fn rpoplpush(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    move_element(keys, &args[1], &args[2], End::Right, End::Left, reply)
}

/// `LMOVE source destination LEFT | RIGHT LEFT | RIGHT`
pub fn lmove(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (from, to) = (parse_end(&args[3])?, parse_end(&args[4])?);
    move_element(keys, &args[1], &args[2], from, to, reply)
}

fn parse_end(text: &[u8]) -> Result<End, CommandError> {
    match text.to_ascii_lowercase().as_slice() {
        b"left" => Ok(End::Left),
        b"right" => Ok(End::Right),
        _ => Err(CommandError::Syntax),
    }
}

fn move_element(
    keys: &mut Keyspace,
    source: &[u8],
    destination: &[u8],
    from: End,
    to: End,
    reply: &mut dyn Reply,
) -> Outcome {
    if keys.collection::<List>(source)?.is_none() {
        reply.null();
        return Ok(());
    }
    keys.collection::<List>(destination)?;
    let element = if source == destination {
        keys.change::<List, _>(source, |list| {
            let element = list.pop(from);
            if let Some(element) = &element {
                list.push(to, element);
            }
            Ok(element)
        })?
    } else {
        let element = keys.change::<List, _>(source, |list| Ok(list.pop(from)))?;
        if let Some(element) = &element {
            keys.change::<List, _>(destination, |list| {
                list.push(to, element);
                Ok(())
            })?;
            keys.note_ready(destination);
        }
        element
    };
    reply.bulk_or_null(element.as_deref());
    Ok(())
}

/// `LPOS key element [RANK rank] [COUNT count] [MAXLEN length]`
pub fn lpos(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (mut rank, mut count, mut length_max) = (1_i64, None, 0);
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        let value = options.next().ok_or(CommandError::Syntax)?;
        match option.to_ascii_lowercase().as_slice() {
            b"rank" => {
                rank = parse_integer(value)?;
                if rank == 0 {
                    return Err(CommandError::text(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                         negative to start from the end of the list",
                    ));
                }
                if rank == i64::MIN {
                    return Err(CommandError::text("ERR value is out of range"));
                }
            }
            b"count" => count = Some(parse_count(value, "ERR COUNT can't be negative")?),
            b"maxlen" => length_max = parse_count(value, "ERR MAXLEN can't be negative")?,
            _ => return Err(CommandError::Syntax),
        }
    }
    let list = keys.collection::<List>(&args[1])?;
    let looked_at = if length_max == 0 { usize::MAX } else { length_max };
    let skipped = rank.unsigned_abs() as usize - 1;
    let limit = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let is_it = |(_, element): &(usize, &[u8])| **element == args[2];
    let places: Vec<usize> = match list {
        None => Vec::new(),
        Some(list) if rank < 0 => list
            .iter()
            .enumerate()
            .rev()
            .take(looked_at)
            .filter(is_it)
            .skip(skipped)
            .take(limit)
            .map(|(index, _)| index)
            .collect(),
        Some(list) => list
            .iter()
            .enumerate()
            .take(looked_at)
            .filter(is_it)
            .skip(skipped)
            .take(limit)
            .map(|(index, _)| index)
            .collect(),
    };
    match (count, places.first()) {
        (Some(_), _) => {
            reply.array(places.len());
            places.iter().for_each(|place| reply.count(*place));
        }
        (None, Some(place)) => reply.count(*place),
        (None, None) => reply.null(),
    }
    Ok(())
}

/// `LMPOP numkeys key [key ...] LEFT | RIGHT [COUNT count]`
pub fn lmpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let number = parse_integer(&args[1]).ok().and_then(|number| usize::try_from(number).ok());
    let number =
        number.filter(|number| *number > 0).ok_or(CommandError::text("ERR numkeys should be greater than 0"))?;
    let options = 2 + number;
    let end = parse_end(args.from(options).next().ok_or(CommandError::Syntax)?)?;
    let count = match args.len() - options {
        1 => 1,
        3 if args[options + 1].eq_ignore_ascii_case(b"count") => {
            let count = parse_integer(&args[options + 2]).ok().and_then(|count| usize::try_from(count).ok());
            count.filter(|count| *count > 0).ok_or(CommandError::text("ERR count should be greater than 0"))?
        }
        _ => return Err(CommandError::Syntax),
    };
    for key in args.from(2).take(number) {
        if keys.collection::<List>(key)?.is_none_or(|list| list.is_empty()) {
            continue;
        }
        let popped = keys.change::<List, _>(key, |list| {
            let count = count.min(list.len());
            Ok((0..count).filter_map(|_| list.pop(end)).collect::<Vec<_>>())
        })?;
        reply.array(2);
        reply.bulk(key);
        reply.array(popped.len());
        popped.iter().for_each(|element| reply.bulk(element));
        return Ok(());
    }
    reply.null_array();
    Ok(())
}
