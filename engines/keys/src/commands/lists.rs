//! Lists.

use super::{clamp_range, index_in, parse_count, parse_number_of_keys, parse_pop_count};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Collection as _, End, Keyspace, List};
use crate::number::{parse_integer, parse_timeout};
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

const fn pushed(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}

const fn popped(end: End) -> &'static str {
    match end {
        End::Left => "lpop",
        End::Right => "rpop",
    }
}

fn push(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, end: End) -> Outcome {
    let length = keys.change::<List, _>(&args[1], |list| {
        args.from(2).for_each(|element| list.push(end, element));
        Ok(list.len())
    })?;
    keys.note_event(EventClasses::LIST, pushed(end), &args[1]);
    reply.count(length);
    Ok(())
}

fn push_present(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, end: End) -> Outcome {
    if keys.peek_collection::<List>(&args[1])?.is_none() {
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
    match (take(keys, &args[1], end, count.unwrap_or(1))?, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.null_array(),
        (Some(popped), None) => reply.bulk_or_null(popped.first().map(|element| &**element)),
        (Some(popped), Some(_)) => answer_elements(&popped, reply),
    }
    Ok(())
}

type Popped = Vec<Box<[u8]>>;

/// Takes up to `count` elements from an end; `None` if there is no list.
fn take(keys: &mut Keyspace, key: &[u8], end: End, count: usize) -> Result<Option<Popped>, CommandError> {
    let taken = keys.change_present::<List, Popped>(key, |list| {
        let count = count.min(list.len());
        Ok((0..count).filter_map(|_| list.pop(end)).map(|element| (*element).into()).collect())
    })?;
    if taken.as_ref().is_some_and(|taken| !taken.is_empty()) {
        keys.note_taken(EventClasses::LIST, popped(end), key);
    }
    Ok(taken)
}

fn answer_elements(elements: &Popped, reply: &mut dyn Reply) {
    reply.array(elements.len());
    elements.iter().for_each(|element| reply.bulk(element));
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
    keys.note_event(EventClasses::LIST, "lset", &args[1]);
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
    if length.is_some_and(|length| length > 0) {
        keys.note_event(EventClasses::LIST, "linsert", &args[1]);
    }
    reply.integer(length.unwrap_or(0));
    Ok(())
}

/// `LREM key count element`
pub fn lrem(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let count = parse_integer(&args[2])?;
    let removed = keys.change_present::<List, _>(&args[1], |list| {
        let is_it = |(_, element): &(usize, &[u8])| **element == args[3];
        let limit = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
        let mut places = in_direction(list, count < 0, |elements| {
            elements.filter(is_it).take(limit).map(|(index, _)| index).collect::<Vec<_>>()
        });
        places.sort_unstable();
        list.remove_all(&places);
        Ok(places.len())
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        keys.note_taken(EventClasses::LIST, "lrem", &args[1]);
    }
    reply.count(removed);
    Ok(())
}

/// Elements with their places, from the left or from the right, given to `look`.
fn in_direction<R>(
    list: &List,
    from_right: bool,
    look: impl FnOnce(&mut dyn Iterator<Item = (usize, &[u8])>) -> R,
) -> R {
    let mut elements = list.iter().enumerate();
    if from_right { look(&mut elements.rev()) } else { look(&mut elements) }
}

/// `LTRIM key start stop`
pub fn ltrim(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (start, stop) = (parse_integer(&args[2])?, parse_integer(&args[3])?);
    let trimmed = keys.change_present::<List, _>(&args[1], |list| {
        let range = clamp_range(start, stop, list.len());
        list.keep(range);
        Ok(())
    })?;
    if trimmed.is_some() {
        keys.note_taken(EventClasses::LIST, "ltrim", &args[1]);
    }
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
    if keys.peek_collection::<List>(source)?.is_none() {
        reply.null();
        return Ok(());
    }
    keys.peek_collection::<List>(destination)?;
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
        }
        element
    };
    if element.is_some() {
        keys.note_event(EventClasses::LIST, pushed(to), destination);
        keys.note_taken(EventClasses::LIST, popped(from), source);
    }
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
            }
            b"count" => count = Some(parse_count(value, "ERR COUNT can't be negative")?),
            b"maxlen" => length_max = parse_count(value, "ERR MAXLEN can't be negative")?,
            _ => return Err(CommandError::Syntax),
        }
    }
    let list = keys.collection::<List>(&args[1])?;
    let looked_at = if length_max == 0 { usize::MAX } else { length_max };
    // The smallest rank has no positive counterpart; Redis then skips nothing.
    let skipped = rank.checked_abs().map_or(0, |rank| rank as usize - 1);
    let limit = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let is_it = |(_, element): &(usize, &[u8])| **element == args[2];
    let places = list.map_or_else(Vec::new, |list| {
        in_direction(list, rank < 0, |elements| {
            let found = elements.take(looked_at).filter(is_it).skip(skipped);
            found.take(limit).map(|(index, _)| index).collect()
        })
    });
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
    pop_several(keys, args, None, reply)
}

/// `LMPOP`, with a time-out that is read after all else is right.
fn pop_several(keys: &mut Keyspace, args: Args<'_>, timeout: Option<&[u8]>, reply: &mut dyn Reply) -> Outcome {
    let (number, rest) = parse_number_of_keys(args, 1)?;
    let end = parse_end(args.from(rest).next().ok_or(CommandError::Syntax)?)?;
    let count = parse_pop_count(args.skip(rest + 1))?;
    timeout.map(parse_timeout).transpose()?;
    for key in args.from(2).take(number) {
        let Some(popped) = take(keys, key, end, count)? else { continue };
        reply.array(2);
        reply.bulk(key);
        answer_elements(&popped, reply);
        return Ok(());
    }
    reply.null_array();
    Ok(())
}

/// `BLPOP key [key ...] timeout`, without the waiting
pub fn blpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop_first(keys, args, reply, End::Left)
}

/// `BRPOP key [key ...] timeout`, without the waiting
pub fn brpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop_first(keys, args, reply, End::Right)
}

fn pop_first(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, end: End) -> Outcome {
    let timeout = args.len() - 1;
    parse_timeout(&args[timeout])?;
    for key in args.from(1).take(timeout - 1) {
        let popped = take(keys, key, end, 1)?.unwrap_or_default();
        let Some(element) = popped.first() else { continue };
        reply.array(2);
        reply.bulk(key);
        reply.bulk(element);
        return Ok(());
    }
    reply.null_array();
    Ok(())
}

/// `BRPOPLPUSH source destination timeout`, without the waiting
pub fn brpoplpush(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    parse_timeout(&args[3])?;
    rpoplpush(keys, args, reply)
}

/// `BLMOVE source destination LEFT | RIGHT LEFT | RIGHT timeout`, without the waiting
pub fn blmove(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (from, to) = (parse_end(&args[3])?, parse_end(&args[4])?);
    parse_timeout(&args[5])?;
    move_element(keys, &args[1], &args[2], from, to, reply)
}

/// `BLMPOP timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]`, without the waiting
pub fn blmpop(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    pop_several(keys, args.skip(1), Some(args.at(1)), reply)
}
