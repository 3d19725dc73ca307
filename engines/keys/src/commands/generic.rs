//! Keys of any type.

use savanna_ownership::{KEY_GROUPS, KeyGroup};

use super::parse_cursor;
use crate::actor::{Actor, DatabaseChange, Progress};
use crate::cluster::owners::Owners;
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{DATABASES, Entry, Keyspace};
use crate::memory;
use crate::number::parse_integer;
use crate::pattern;
use crate::placement::{ActorId, KeyHash, Routes};
use crate::random::Random;
use crate::reply::{Reply, Tape, Value};
use crate::request::{Args, OwnedArgs};
use crate::session::Session;

/// `DEL key [key ...]`, `UNLINK key [key ...]`
pub fn del(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let mut count = 0;
    for key in args.from(1) {
        if keys.delete(key) {
            keys.note_event(EventClasses::GENERIC, "del", key);
            count += 1;
        }
    }
    reply.count(count);
    Ok(())
}

/// `EXISTS key [key ...]`
pub fn exists(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let count = args.from(1).filter(|key| keys.look(key).is_some()).count();
    reply.count(count);
    Ok(())
}

/// `TOUCH key [key ...]`
pub fn touch(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let count = args.from(1).filter(|key| keys.get(key).is_some()).count();
    reply.count(count);
    Ok(())
}

/// `TYPE key`
pub fn type_of(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    reply.simple(keys.look(&args[1]).map_or("none", |entry| entry.value.type_name()));
    Ok(())
}

/// `RENAME key newkey`
pub fn rename(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    rename_key(keys, &args[1], &args[2])?;
    reply.ok();
    Ok(())
}

/// `RENAMENX key newkey`
pub fn renamenx(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if !keys.contains(&args[1]) {
        return Err(CommandError::NoSuchKey);
    }
    let is_free = !keys.contains(&args[2]);
    if is_free {
        rename_key(keys, &args[1], &args[2])?;
    }
    reply.flag(is_free);
    Ok(())
}

fn rename_key(keys: &mut Keyspace, from: &[u8], to: &[u8]) -> Outcome {
    if from == to {
        return if keys.contains(from) { Ok(()) } else { Err(CommandError::NoSuchKey) };
    }
    keys.ask_for_log_of(std::iter::once(from))?;
    if let Some(entry) = keys.peek(from) {
        keys.check_may_be_at(keys.selected(), to, &entry.value)?;
    }
    let entry = keys.take(from).ok_or(CommandError::NoSuchKey)?;
    let expires_at = entry.expires_at();
    keys.put_as_new(to, entry.value, expires_at);
    keys.note_event(EventClasses::GENERIC, "rename_from", from);
    keys.note_event(EventClasses::GENERIC, "rename_to", to);
    Ok(())
}

/// `COPY source destination [DB database] [REPLACE]`
pub fn copy(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let here = keys.selected();
    let (mut database, mut replaces) = (here, false);
    let mut options = args.from(3);
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"replace") {
            replaces = true;
        } else if option.eq_ignore_ascii_case(b"db") {
            database = parse_database(options.next().ok_or(CommandError::Syntax)?)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if database == here && args[1] == args[2] {
        return Err(CommandError::text("ERR source and destination objects are the same"));
    }
    let Some(entry) = keys.look(&args[1]) else {
        reply.integer(0);
        return Ok(());
    };
    memory::ask_for_value(entry.whole_bytes())?;
    keys.ask_for_log_of(std::iter::once(&args[1]))?;
    let Some(entry) = keys.peek(&args[1]) else { return Err(CommandError::NoSuchKey) };
    keys.check_may_be_at(database, &args[2], &entry.value)?;
    let (value, expires_at) = (entry.value.clone(), entry.expires_at());
    keys.select(database);
    let is_put = replaces || !keys.contains(&args[2]);
    if is_put {
        keys.put_as_new(&args[2], value, expires_at);
        keys.note_event(EventClasses::GENERIC, "copy_to", &args[2]);
    }
    keys.select(here);
    reply.flag(is_put);
    Ok(())
}

/// `MOVE key database`
pub fn move_key(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let here = keys.selected();
    let there = parse_database(&args[2])?;
    if here == there {
        return Err(CommandError::text("ERR source and destination objects are the same"));
    }
    keys.select(there);
    let is_free = !keys.contains(&args[1]);
    keys.select(here);
    keys.ask_for_log_of(std::iter::once(&args[1]))?;
    if let Some(entry) = keys.peek(&args[1]) {
        keys.check_may_be_at(there, &args[1], &entry.value)?;
    }
    let entry = if is_free { keys.take(&args[1]) } else { None };
    reply.flag(entry.is_some());
    if let Some(entry) = entry {
        let expires_at = entry.expires_at();
        keys.select(there);
        keys.put_as_new(&args[1], entry.value, expires_at);
        keys.select(here);
        keys.note_event(EventClasses::GENERIC, "move_from", &args[1]);
        keys.select(there);
        keys.note_event(EventClasses::GENERIC, "move_to", &args[1]);
        keys.select(here);
    }
    Ok(())
}

/// The number of a database.
pub(crate) fn parse_database(text: &[u8]) -> Result<u8, CommandError> {
    let number = parse_integer(text)?;
    if i32::try_from(number).is_err() {
        return Err(CommandError::from(format!(
            "ERR value is out of range, value must between {} and {}",
            i32::MIN,
            i32::MAX
        )));
    }
    let number = u8::try_from(number).ok().filter(|number| *number < DATABASES);
    number.ok_or(CommandError::text("ERR DB index is out of range"))
}

/// `RANDOMKEY`, for the keys of one actor; if there are several, with the number of keys that it stands for
pub fn randomkey(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let key = actor.keys.random_key();
    if actor.actors().count() > 1 {
        reply.array(2);
        reply.count(if key.is_some() { actor.keys.key_count() } else { 0 });
    }
    reply.bulk_or_null(key.as_deref());
    Ok(())
}

/// One of the actors' keys, each as likely as that actor has keys.
pub(crate) fn combine_random(parts: &[Tape], random: &mut Random, reply: &mut dyn Reply) {
    // Another node gives a key, and does not say of how many.
    let is_of_node = |part: &Tape| matches!(part.first(), Some(Value::Bulk(_)));
    let has_nodes = parts.iter().any(is_of_node);
    let counted = |part: &Tape| match part.values().nth(1) {
        _ if is_of_node(part) => 1,
        Some(Value::Integer(count)) if has_nodes => usize::from(count > 0),
        Some(Value::Integer(count)) => count as usize,
        _ => 0,
    };
    let mut place = random.below(parts.iter().map(counted).sum());
    let chosen = parts.iter().find(|part| {
        let is_in = place < counted(part);
        place = place.saturating_sub(counted(part));
        is_in
    });
    match chosen.and_then(|part| part.values().nth(if is_of_node(part) { 0 } else { 2 })) {
        Some(key) => key.play(reply),
        None => reply.null(),
    }
}

/// `DBSIZE`, for the keys of one actor
pub fn dbsize(actor: &mut Actor, _: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    // Keys whose time has come are no keys, counted or not; but in a pause, and while all are held, nothing is deleted.
    if !actor.is_still() {
        actor.keys.expire_due(usize::MAX);
    }
    reply.count(actor.keys.key_count());
    Ok(())
}

/// `KEYS pattern`, for the keys of one actor
pub fn keys(actor: &mut Actor, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let now = actor.keys.now();
    let entries = actor.keys.database().into_iter().flat_map(|database| database.iter());
    let found: Vec<&[u8]> = entries
        .filter(|entry| !entry.has_expired(now) && pattern::matches(&args[1], &entry.key))
        .filter(|entry| actor.keys.is_no_copy(&entry.key))
        .map(|entry| &*entry.key)
        .collect();
    reply.array(found.len());
    for key in found {
        reply.bulk(key);
    }
    Ok(())
}

/// `FLUSHDB [ASYNC | SYNC]`
pub fn flushdb(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    actor.change_databases(session, flush_of(args, Some(session.database))?, reply)
}

/// `FLUSHALL [ASYNC | SYNC]`
pub fn flushall(
    actor: &mut Actor,
    session: &mut Session,
    args: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    actor.change_databases(session, flush_of(args, None)?, reply)
}

/// What the words of `FLUSHDB` or `FLUSHALL` ask for.
///
/// # Errors
/// [`CommandError::Syntax`].
pub(crate) fn flush_of(args: Args<'_>, database: Option<u8>) -> Result<DatabaseChange, CommandError> {
    let is_mode = |mode: &[u8]| mode.eq_ignore_ascii_case(b"async") || mode.eq_ignore_ascii_case(b"sync");
    if args.len() > 2 || !args.from(1).all(is_mode) {
        return Err(CommandError::Syntax);
    }
    Ok(DatabaseChange::Flush(database))
}

/// What `SCAN` and its kin were asked for besides the cursor.
pub(super) struct ScanOptions<'a> {
    /// What names must match.
    pub pattern: Option<&'a [u8]>,
    /// About how many to look at.
    pub count: usize,
    /// Of which type keys must be.
    pub type_name: Option<&'a [u8]>,
    /// Whether values are left out.
    pub no_values: bool,
}

impl<'a> ScanOptions<'a> {
    /// The options from the word `first` on.
    ///
    /// # Errors
    /// [`CommandError::Syntax`], [`CommandError::NotInteger`].
    pub(super) fn parse(args: Args<'a>, first: usize) -> Result<Self, CommandError> {
        let mut parsed = Self { pattern: None, count: 10, type_name: None, no_values: false };
        let mut options = args.from(first);
        while let Some(option) = options.next() {
            let mut value = || options.next().ok_or(CommandError::Syntax);
            match option.to_ascii_lowercase().as_slice() {
                b"match" => parsed.pattern = Some(value()?),
                b"count" => {
                    let count = parse_integer(value()?)?;
                    parsed.count =
                        usize::try_from(count).ok().filter(|count| *count > 0).ok_or(CommandError::Syntax)?;
                }
                b"type" => parsed.type_name = Some(value()?),
                b"novalues" => parsed.no_values = true,
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(parsed)
    }

    /// The places of a collection of this length that a step from `cursor` looks at: it walks down, and the range's start
    /// is the next cursor.
    pub(super) fn walk(&self, cursor: usize, length: usize) -> std::ops::Range<usize> {
        let end = if cursor == 0 { length } else { cursor.min(length) };
        end.saturating_sub(self.count)..end
    }

    /// Whether a name is wanted.
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| pattern::matches(pattern, name))
    }

    /// Whether a key is wanted.
    fn wants_key(&self, entry: &Entry) -> bool {
        let is_of_type =
            self.type_name.is_none_or(|name| entry.value.type_name().as_bytes().eq_ignore_ascii_case(name));
        is_of_type && self.wants(&entry.key)
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`, on the actor of the cursor's place
pub fn scan(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let options = ScanOptions::parse(args, 2)?;
    let from = KeyHash::from_cursor(parse_cursor(&args[1])?);
    let routes = keys.routes();
    let end = routes.end_of(routes.actor_of(from.group()));
    let end = keys.owners.as_ref().map_or(end, |owners| end.min(owners.end_of_run(from.group())));
    let mut found: Vec<Box<[u8]>> = Vec::new();
    let next = keys.scan(from, end, options.count, &mut |entry| {
        if options.wants_key(entry) {
            found.push(Box::from(&*entry.key));
        }
    });
    let after = (end < KEY_GROUPS).then(|| KeyHash::first_of(end));
    let cursor = next.or(after).map_or(0, KeyHash::cursor);
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(found.len());
    for key in found {
        reply.bulk(&key);
    }
    Ok(())
}

/// Where a part of `SCAN` ended because its actor, or its node, has no more keys, if others follow.
pub(crate) fn part_ends_at(part: &Tape, routes: &Routes, owners: Option<&Owners>) -> Option<KeyHash> {
    let Some(Value::Bulk(cursor)) = part.values().nth(1) else { return None };
    let place = KeyHash::from_cursor(str::from_utf8(cursor).ok()?.parse().ok().filter(|cursor| *cursor > 0)?);
    let is_boundary = place == KeyHash::first_of(place.group().get());
    let before = place.group().get().checked_sub(1).and_then(|group| KeyGroup::new(group).ok())?;
    let is_of_another = routes.actor_of(before) != routes.actor_of(place.group())
        || owners.is_some_and(|owners| owners.of_group(before) != owners.of_group(place.group()));
    (is_boundary && is_of_another).then_some(place)
}

/// How many keys a part of `SCAN` has.
pub(crate) fn keys_in(part: &Tape) -> usize {
    part.values().skip(3).count()
}

/// The request for the part from a place on, of at most so many keys less; none if there were enough.
pub(crate) fn rest_of_scan(args: Args<'_>, place: KeyHash, found: usize) -> Option<OwnedArgs> {
    let options = ScanOptions::parse(args, 2).ok()?;
    let left = options.count.checked_sub(found).filter(|left| *left > 0)?;
    let (cursor, left) = (place.cursor().to_string(), left.to_string());
    let mut words: Vec<&[u8]> = vec![args.at(0), cursor.as_bytes()];
    words.extend(args.from(2));
    // The last one counts.
    words.extend([&b"COUNT"[..], left.as_bytes()]);
    Some(OwnedArgs::of_words(&words))
}

/// Puts parts of `SCAN` together, each of which begins where the one before ended.
pub(crate) fn combine_scan(parts: &[Tape], reply: &mut dyn Reply) {
    let Some(last) = parts.last() else { return };
    reply.array(2);
    if let Some(cursor) = last.values().nth(1) {
        cursor.play(reply);
    }
    reply.array(parts.iter().map(keys_in).sum());
    parts.iter().flat_map(|part| part.values().skip(3)).for_each(|key| key.play(reply));
}

/// The request for an actor's part of a walk that all actors are asked for at once: from the cursor on, or from the actor's first key;
/// `None` if all of its keys are before the cursor.
///
/// # Errors
/// If the cursor is none.
pub(crate) fn scan_from(args: Args<'_>, routes: &Routes, actor: ActorId) -> Result<Option<OwnedArgs>, CommandError> {
    let from = KeyHash::from_cursor(parse_cursor(&args[1])?);
    if routes.actor_of(from.group()) > actor {
        return Ok(None);
    }
    let cursor = from.max(KeyHash::first_of(routes.groups_of(actor).start)).cursor().to_string();
    let mut words: Vec<&[u8]> = vec![args.at(0), cursor.as_bytes()];
    words.extend(args.from(2));
    Ok(Some(OwnedArgs::of_words(&words)))
}

/// An actor's part of a walk that all actors were asked for at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannedPart<'a> {
    pub(crate) actor: ActorId,
    /// Empty if all of its keys are before the cursor.
    pub(crate) part: &'a Tape,
}

/// Puts the parts of a walk together, in the order of actors, at the actor `own`, with the keys that it has borrowed from others.
pub(crate) fn combine_scanned(
    keys: &Keyspace,
    own: ActorId,
    args: Args<'_>,
    parts: &[ScannedPart<'_>],
    reply: &mut dyn Reply,
) {
    let options = match ScanOptions::parse(args, 2).and_then(|options| Ok((options, parse_cursor(&args[1])?))) {
        Err(error) => return error.answer(reply),
        Ok(options) => options,
    };
    let (options, cursor) = options;
    if let Some(ScannedPart { part, .. }) = parts.iter().find(|each| matches!(each.part.first(), Some(Value::Error(_))))
    {
        return part.play(reply);
    }
    let (routes, from) = (keys.routes(), KeyHash::from_cursor(cursor));
    let mut next = 0;
    let mut found: Vec<Box<[u8]>> = Vec::new();
    for ScannedPart { actor, part } in parts {
        let Some(Value::Bulk(cursor)) = part.values().nth(1) else { continue };
        next = parse_cursor(cursor).unwrap_or_default();
        let scanned = part.values().skip(3).map(|value| if let Value::Bulk(key) = value { key } else { b"" });
        found.extend(scanned.map(Box::from));
        let groups = routes.groups_of(*actor);
        let until = (next > 0).then(|| KeyHash::from_cursor(next));
        // Those of this actor were all there.
        let is_elsewhere = *actor != own;
        keys.scan(from.max(KeyHash::first_of(groups.start)), groups.end, usize::MAX, &mut |entry| {
            let is_before = until.is_none_or(|until| KeyHash::of(&entry.key).floor() < until);
            if is_elsewhere && is_before && keys.is_no_copy(&entry.key) && options.wants_key(entry) {
                found.push(Box::from(&*entry.key));
            }
        });
        let is_at_end = next == 0 || groups.end < KEY_GROUPS && until == Some(KeyHash::first_of(groups.end));
        if !is_at_end || found.len() >= options.count {
            break;
        }
    }
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
}

/// `OBJECT ENCODING | FREQ | IDLETIME | REFCOUNT key`, `OBJECT HELP`
pub fn object(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let subcommand = args[1].to_ascii_lowercase();
    if subcommand == b"help" && args.len() == 2 {
        const HELP: [&str; 5] = [
            "OBJECT ENCODING key: the name of the encoding that Redis would have chosen.",
            "OBJECT FREQ key: how often a key is used, if that is counted.",
            "OBJECT IDLETIME key: seconds since a key was used.",
            "OBJECT REFCOUNT key: 1.",
            "OBJECT HELP: this.",
        ];
        reply.array(HELP.len());
        HELP.into_iter().for_each(|line| reply.simple(line));
        return Ok(());
    }
    if args.len() != 3 {
        return Err(CommandError::from(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try OBJECT HELP.",
            args[1].escape_ascii()
        )));
    }
    let now = keys.now();
    let Some(entry) = keys.peek(&args[2]) else {
        reply.null();
        return Ok(());
    };
    match subcommand.as_slice() {
        b"encoding" => reply.bulk(keys.encodings.name_of(&entry.value).as_bytes()),
        b"idletime" if keys.use_count(entry).is_some() => {
            return Err(CommandError::text(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
                 policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
        b"idletime" => reply.integer(i64::from(entry.idle_seconds(now))),
        b"refcount" => reply.integer(1),
        b"freq" => {
            if let Some(count) = keys.use_count(entry) {
                reply.integer(i64::from(count));
                return Ok(());
            }
            return Err(CommandError::text(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                 switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
        _ => {
            return Err(CommandError::from(format!(
                "ERR unknown subcommand '{}'. Try OBJECT HELP.",
                args[1].escape_ascii()
            )));
        }
    }
    Ok(())
}
