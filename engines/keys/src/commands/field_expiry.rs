//! When fields of hashes expire, as in Redis 7.4; and commands of Redis 8 that read or write fields with that.

use hashbrown::HashSet;
use savanna_lattice::UnixMillis;

use super::expiry::{MILLIS, SECONDS, UNIX_MILLIS, UNIX_SECONDS, Unit, unit_of};
use crate::error::{CommandError, Outcome};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Hash, Keyspace};
use crate::number::{integer, parse_integer};
use crate::reply::Reply;
use crate::request::Args;

/// The latest time that Redis takes for a field, in the year 4199.
const LATEST: u64 = (1 << 46) - 1;

const NO_FIELD: i64 = -2;
const NO_EXPIRY: i64 = -1;
const REFUSED: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

/// Which fields get another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    HasNone,
    HasOne,
    IsLater,
    IsEarlier,
}

impl Condition {
    fn parse(option: &[u8]) -> Option<Self> {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => Some(Self::HasNone),
            b"xx" => Some(Self::HasOne),
            b"gt" => Some(Self::IsLater),
            b"lt" => Some(Self::IsEarlier),
            _ => None,
        }
    }

    /// Whether a time is to take the place of another one.
    fn allows(self, before: Option<UnixMillis>, at: UnixMillis) -> bool {
        match self {
            Self::Always => true,
            Self::HasNone => before.is_none(),
            Self::HasOne => before.is_some(),
            // None is later than all.
            Self::IsLater => before.is_some_and(|before| at > before),
            Self::IsEarlier => before.is_none_or(|before| at < before),
        }
    }
}

/// How commands refuse a number of fields that is none, as Redis 8 has it.
const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// The fields behind `FIELDS number`, which stands at a place.
fn fields_at<'a>(args: Args<'a>, place: usize, not_positive: &'static str) -> Result<Args<'a>, CommandError> {
    if args.len() < place + 2 || !args[place].eq_ignore_ascii_case(b"fields") {
        return Err(CommandError::text("ERR Mandatory argument FIELDS is missing or not at the right position"));
    }
    if number_of_fields(&args[place + 1], not_positive)? != args.len() - place - 2 {
        return Err(CommandError::text("ERR The `numfields` parameter must match the number of arguments"));
    }
    Ok(args.skip(place + 2))
}

fn number_of_fields(text: &[u8], not_positive: &'static str) -> Result<usize, CommandError> {
    let count = integer(text).and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    count.ok_or_else(|| CommandError::text(not_positive))
}

/// The instant that a request means.
fn instant(keys: &Keyspace, text: &[u8], unit: Unit, command: &'static str) -> Result<UnixMillis, CommandError> {
    let number = parse_integer(text)?;
    let number = u64::try_from(number).map_err(|_| CommandError::text("ERR invalid expire time, must be >= 0"))?;
    let at = unit.after(number, keys.now()).filter(|at| at.0 <= LATEST);
    at.ok_or(CommandError::Expiry(command))
}

/// `HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub fn hexpire(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, SECONDS, "hexpire")
}

/// `HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub fn hpexpire(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, MILLIS, "hpexpire")
}

/// `HEXPIREAT key unix-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub fn hexpireat(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, UNIX_SECONDS, "hexpireat")
}

/// `HPEXPIREAT key unix-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]`
pub fn hpexpireat(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    expire_in(keys, args, reply, UNIX_MILLIS, "hpexpireat")
}

fn expire_in(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply, unit: Unit, command: &'static str) -> Outcome {
    keys.peek_collection::<Hash>(&args[1])?;
    let (at, now) = (instant(keys, &args[2], unit, command)?, keys.now());
    let condition = Condition::parse(&args[3]);
    let place = if condition.is_some() { 4 } else { 3 };
    let fields = fields_at(args, place, "ERR Parameter `numFields` should be greater than 0")?;
    let condition = condition.unwrap_or(Condition::Always);
    let outcomes = change_fields(keys, &args[1], fields, |hash, field| {
        if hash.get(field).is_none() {
            NO_FIELD
        } else if !condition.allows(hash.expiry_of(field), at) {
            REFUSED
        } else if at <= now {
            hash.remove(field);
            DELETED
        } else {
            hash.expire(field, at);
            DONE
        }
    })?;
    note_expired(keys, &args[1], &outcomes);
    answer(&outcomes, reply);
    Ok(())
}

/// `HPERSIST key FIELDS numfields field [field ...]`
pub fn hpersist(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    keys.peek_collection::<Hash>(&args[1])?;
    let fields = fields_at(args, 2, NOT_POSITIVE)?;
    let outcomes = change_fields(keys, &args[1], fields, |hash, field| {
        if hash.get(field).is_none() {
            return NO_FIELD;
        }
        if hash.expiry_of(field).is_none() {
            return NO_EXPIRY;
        }
        hash.expire(field, UnixMillis::NEVER);
        DONE
    })?;
    if outcomes.contains(&DONE) {
        keys.note_event(EventClasses::HASH, "hpersist", &args[1]);
    }
    answer(&outcomes, reply);
    Ok(())
}

type FieldsChange<'a> = crate::keyspace::Change<'a, Hash>;

/// Changes fields of a hash one by one; if it is not there, there are no fields.
fn change_fields(
    keys: &mut Keyspace,
    key: &[u8],
    fields: Args<'_>,
    mut change: impl FnMut(&mut FieldsChange<'_>, &[u8]) -> i64,
) -> Result<Vec<i64>, CommandError> {
    keys.check_fields_may_expire(key)?;
    let outcomes = keys.change_present::<Hash, _>(key, |hash| {
        Ok(fields.from(0).map(|field| change(hash, field)).collect::<Vec<i64>>())
    })?;
    Ok(outcomes.unwrap_or_else(|| vec![NO_FIELD; fields.len()]))
}

fn note_expired(keys: &mut Keyspace, key: &[u8], outcomes: &[i64]) {
    if outcomes.contains(&DONE) {
        keys.note_event(EventClasses::HASH, "hexpire", key);
    }
    if outcomes.contains(&DELETED) {
        keys.note_taken(EventClasses::HASH, "hdel", key);
    }
}

fn answer(outcomes: &[i64], reply: &mut dyn Reply) {
    reply.array(outcomes.len());
    outcomes.iter().for_each(|outcome| reply.integer(*outcome));
}

/// `HTTL key FIELDS numfields field [field ...]`
pub fn httl(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let now = keys.now();
    answer_expiries(keys, args, reply, |at| at.0.saturating_sub(now.0).div_ceil(1000))
}

/// `HPTTL key FIELDS numfields field [field ...]`
pub fn hpttl(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let now = keys.now();
    answer_expiries(keys, args, reply, |at| at.0.saturating_sub(now.0))
}

/// `HEXPIRETIME key FIELDS numfields field [field ...]`
pub fn hexpiretime(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_expiries(keys, args, reply, |at| at.0.div_ceil(1000))
}

/// `HPEXPIRETIME key FIELDS numfields field [field ...]`
pub fn hpexpiretime(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    answer_expiries(keys, args, reply, |at| at.0)
}

fn answer_expiries(
    keys: &mut Keyspace,
    args: Args<'_>,
    reply: &mut dyn Reply,
    shown: impl Fn(UnixMillis) -> u64,
) -> Outcome {
    keys.peek_collection::<Hash>(&args[1])?;
    let fields = fields_at(args, 2, NOT_POSITIVE)?;
    let hash = keys.collection::<Hash>(&args[1])?;
    reply.array(fields.len());
    for field in fields.from(0) {
        reply.integer(match hash.filter(|hash| hash.get(field).is_some()).map(|hash| hash.expiry_of(field)) {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(at)) => shown(at) as i64,
        });
    }
    Ok(())
}

/// `HGETDEL key FIELDS numfields field [field ...]`
pub fn hgetdel(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    keys.peek_collection::<Hash>(&args[1])?;
    let fields = fields_at(args, 2, NOT_POSITIVE)?;
    let hash = keys.collection::<Hash>(&args[1])?;
    let mut named = HashSet::new();
    reply.array(fields.len());
    // One that is named again is not there any more.
    for field in fields.from(0) {
        reply.bulk_or_null(hash.filter(|_| named.insert(field)).and_then(|hash| hash.get(field)));
    }
    let removed =
        keys.change_present::<Hash, _>(&args[1], |hash| Ok(fields.from(0).filter(|field| hash.remove(field)).count()))?;
    if removed.unwrap_or(0) > 0 {
        keys.note_taken(EventClasses::HASH, "hdel", &args[1]);
    }
    Ok(())
}

fn answer_values(keys: &mut Keyspace, key: &[u8], fields: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let hash = keys.collection::<Hash>(key)?;
    reply.array(fields.len());
    fields.from(0).for_each(|field| reply.bulk_or_null(hash.and_then(|hash| hash.get(field))));
    Ok(())
}

/// What becomes of the times of fields that are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// What the command does by itself.
    Nothing,
    /// They stay.
    Keep,
    At(UnixMillis),
}

/// Reads an option about the time of fields at a place. Gives how many words it has.
fn then_at(
    keys: &Keyspace,
    args: Args<'_>,
    place: usize,
    command: &'static str,
) -> Result<Option<(Then, usize)>, CommandError> {
    let Some(option) = args.from(place).next() else { return Ok(None) };
    if let Some(unit) = unit_of(option) {
        let text = args.from(place + 1).next().ok_or(CommandError::Syntax)?;
        return Ok(Some((Then::At(instant(keys, text, unit, command)?), 2)));
    }
    Ok(match option.to_ascii_lowercase().as_slice() {
        b"persist" if command == "hgetex" => Some((Then::At(UnixMillis::NEVER), 1)),
        b"keepttl" if command == "hsetex" => Some((Then::Keep, 1)),
        _ => None,
    })
}

/// `HGETEX key [EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds | PERSIST] FIELDS numfields field [field ...]`
pub fn hgetex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    keys.peek_collection::<Hash>(&args[1])?;
    let (then, words) = then_at(keys, args, 2, "hgetex")?.unwrap_or((Then::Nothing, 0));
    let fields = fields_at(args, 2 + words, NOT_POSITIVE)?;
    keys.check_fields_may_expire(&args[1])?;
    answer_values(keys, &args[1], fields, reply)?;
    let (Then::At(at), now) = (then, keys.now()) else { return Ok(()) };
    let outcomes = change_fields(keys, &args[1], fields, |hash, field| match hash.get(field) {
        None => NO_FIELD,
        Some(_) if at <= now => {
            hash.remove(field);
            DELETED
        }
        Some(_) if at == UnixMillis::NEVER && hash.expiry_of(field).is_none() => NO_EXPIRY,
        Some(_) => {
            hash.expire(field, at);
            DONE
        }
    })?;
    if at == UnixMillis::NEVER {
        if outcomes.contains(&DONE) {
            keys.note_event(EventClasses::HASH, "hpersist", &args[1]);
        }
    } else {
        note_expired(keys, &args[1], &outcomes);
    }
    Ok(())
}

/// `HSETEX key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds | KEEPTTL] FIELDS numfields field
/// value [field value ...]`
pub fn hsetex(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let (mut place, mut wanted, mut then) = (2, None, Then::Nothing);
    let words = loop {
        let Some(option) = args.from(place).next() else { return Err(CommandError::Arity("hsetex".to_owned())) };
        if option.eq_ignore_ascii_case(b"fields") && place + 1 < args.len() {
            let count = number_of_fields(&args[place + 1], "ERR invalid number of fields")?;
            if count.checked_mul(2) != Some(args.len() - place - 2) {
                return Err(CommandError::Arity("hsetex".to_owned()));
            }
            break args.skip(place + 2);
        }
        let conditions = [(&b"fnx"[..], false), (b"fxx", true)];
        if let Some((_, is_there)) = conditions.into_iter().find(|(name, _)| option.eq_ignore_ascii_case(name)) {
            if wanted.replace(is_there).is_some() {
                return Err(CommandError::text("ERR Only one of FXX or FNX arguments can be specified"));
            }
            place += 1;
        } else if let Some((option, words)) = then_at(keys, args, place, "hsetex")? {
            if std::mem::replace(&mut then, option) != Then::Nothing {
                return Err(CommandError::text(
                    "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                ));
            }
            place += words;
        } else {
            return Err(CommandError::from(format!("ERR unknown argument: {}", option.escape_ascii())));
        }
    };
    keys.check_fields_may_expire(&args[1])?;
    let (names, now) = (words.from(0).step_by(2), keys.now());
    let hash = keys.peek_collection::<Hash>(&args[1])?;
    let is_there = |field: &[u8]| hash.is_some_and(|hash| hash.get(field).is_some());
    if wanted.is_some_and(|wanted| names.clone().any(|field| is_there(field) != wanted)) {
        reply.integer(0);
        return Ok(());
    }
    reply.integer(1);
    if matches!(then, Then::At(at) if at <= now) {
        // They would be gone at once.
        let removed =
            keys.change_present::<Hash, _>(&args[1], |hash| Ok(names.filter(|field| hash.remove(field)).count()))?;
        if removed.unwrap_or(0) > 0 {
            keys.note_taken(EventClasses::HASH, "hdel", &args[1]);
        }
        return Ok(());
    }
    keys.change::<Hash, _>(&args[1], |hash| {
        for (field, value) in names.zip(words.from(1).step_by(2)) {
            match then {
                Then::Keep => hash.put_in_its_time(field, value),
                Then::Nothing => {
                    hash.put(field, value);
                }
                Then::At(at) => {
                    hash.put(field, value);
                    hash.expire(field, at);
                }
            }
        }
        Ok(())
    })?;
    keys.note_event(EventClasses::HASH, "hset", &args[1]);
    if let Then::At(_) = then {
        keys.note_event(EventClasses::HASH, "hexpire", &args[1]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::command::{Command, Run};
    use crate::delta::read_all;
    use crate::keyspace::payload;
    use crate::placement::Routes;
    use crate::reply::Tape;
    use crate::request::OwnedArgs;

    const NOW: u64 = 1_800_000_000_000;

    fn keyspace() -> Keyspace {
        let mut keys = Keyspace::new(Routes::over(1), 1);
        keys.set_now(UnixMillis(NOW));
        keys.log.enable(true);
        keys
    }

    fn call(keys: &mut Keyspace, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let request = OwnedArgs::of_words(&words);
        let command = Command::find(words[0]).expect(line);
        assert!(command.takes(words.len()), "{line}");
        let Run::Keys(run) = command.run else { panic!("{line}") };
        let mut reply = Tape::new();
        if let Err(error) = run(keys, request.args(), &mut reply) {
            return error.to_string();
        }
        reply.to_string()
    }

    #[test]
    fn fields_expire_as_the_documentation_of_redis_says() {
        let mut keys = keyspace();
        for (line, expected) in [
            ("HEXPIRE no 10 FIELDS 2 a b", "[2] -2 -2"),
            ("HTTL no FIELDS 1 a", "[1] -2"),
            ("HPERSIST no FIELDS 1 a", "[1] -2"),
            ("HSET h a 1 b 2 c 3 d 4", "4"),
            ("HEXPIRE h 10 FIELDS 3 a b no", "[3] 1 1 -2"),
            ("HTTL h FIELDS 3 a c no", "[3] 10 -1 -2"),
            ("HPTTL h FIELDS 1 a", "[1] 10000"),
            ("HEXPIRETIME h FIELDS 1 a", "[1] 1800000010"),
            ("HPEXPIRETIME h FIELDS 1 a", "[1] 1800000010000"),
            ("HEXPIRE h 20 NX FIELDS 2 a c", "[2] 0 1"),
            ("HEXPIRE h 20 XX FIELDS 2 a d", "[2] 1 0"),
            ("HEXPIRE h 15 GT FIELDS 3 a b d", "[3] 0 1 0"),
            ("HEXPIRE h 12 LT FIELDS 3 a b d", "[3] 1 1 1"),
            ("HPERSIST h FIELDS 2 d d", "[2] 1 -1"),
            ("HEXPIRE h 0 FIELDS 1 d", "[1] 2"),
            ("HEXISTS h d", "0"),
            ("HPEXPIREAT h 1 FIELDS 1 c", "[1] 2"),
            // What replaces the value ends the time, what changes it does not.
            ("HINCRBY h a 5", "6"),
            ("HTTL h FIELDS 1 a", "[1] 12"),
            ("HSET h a 1", "0"),
            ("HTTL h FIELDS 1 a", "[1] -1"),
            ("HEXPIRE h 10 FIELDS 2 a", "ERR The `numfields` parameter must match the number of arguments"),
            ("HEXPIRE h 10 FIELDS 0 a", "ERR Parameter `numFields` should be greater than 0"),
            ("HEXPIRE h 10 NX GT FIELDS 1 a", "ERR Mandatory argument FIELDS is missing or not at the right position"),
            ("HEXPIRE h -1 FIELDS 1 a", "ERR invalid expire time, must be >= 0"),
            ("HEXPIRE h 9223372036854775807 FIELDS 1 a", "ERR invalid expire time in 'hexpire' command"),
            ("HGETEX h EX 5 FIELDS 2 a no", "[2] \"1\" nil"),
            ("HGETEX h PERSIST FIELDS 1 a", "[1] \"1\""),
            ("HGETDEL h FIELDS 2 a no", "[2] \"1\" nil"),
            ("HSETEX h FNX EX 5 FIELDS 2 b 1 e 1", "0"),
            ("HSETEX h FXX KEEPTTL FIELDS 1 b 9", "1"),
            ("HTTL h FIELDS 1 b", "[1] 12"),
            ("HSETEX h FNX PX 5000 FIELDS 2 e 1 f 2", "1"),
            ("HTTL h FIELDS 2 e f", "[2] 5 5"),
            ("HSETEX h EXAT 1 FIELDS 2 e 1 g 2", "1"),
            ("HLEN h", "2"),
            ("HSET h twice 1", "1"),
            ("HGETDEL h FIELDS 3 twice none twice", "[3] \"1\" nil nil"),
        ] {
            assert_eq!(call(&mut keys, line), expected, "{line}");
        }
        keys.set_now(UnixMillis(NOW + 5_000));
        keys.expire_fields_due(100);
        assert_eq!(call(&mut keys, "HKEYS h"), "[1] \"b\"");
        keys.set_now(UnixMillis(NOW + 12_000));
        keys.expire_fields_due(100);
        assert!(!keys.contains(b"h"), "without fields there is no key");
        assert_eq!(keys.counters.expired_fields, 2);
    }

    #[test]
    fn a_hash_whose_time_has_come_is_met_before_all_fields_are_removed() {
        let mut keys = keyspace();
        for number in 0..50 {
            call(&mut keys, &format!("HSETEX h{number} PX 10 FIELDS 2 a 1 b 2"));
            call(&mut keys, &format!("HSET h{number} c 3"));
        }
        keys.set_now(UnixMillis(NOW + 10));
        keys.expire_fields_due(9);
        assert!(keys.has_late_fields());
        let counts = |keys: &mut Keyspace| -> usize {
            (0..50).map(|number| call(keys, &format!("HLEN h{number}")).parse::<usize>().expect("a number")).sum()
        };
        assert_eq!(counts(&mut keys), 150 - 9);
        keys.expire_fields_of(b"h0", usize::MAX);
        keys.expire_fields_of(b"h49", usize::MAX);
        assert_eq!((call(&mut keys, "HLEN h0"), call(&mut keys, "HLEN h49")), ("1".to_owned(), "1".to_owned()));
        keys.expire_fields_due(usize::MAX);
        assert_eq!((counts(&mut keys), keys.has_late_fields()), (50, false));
    }

    #[test]
    fn payloads_of_redis_with_fields_that_expire_are_read() {
        // A listpack of: a 1 0, b 2 1800000000500, as Redis 7.4 writes it behind the first time.
        let mut listpack = Vec::new();
        for element in [&b"\x81a\x02"[..], b"\x01\x01", b"\x00\x01", b"\x81b\x02", b"\x02\x01"] {
            listpack.extend_from_slice(element);
        }
        listpack.push(0xf4);
        listpack.extend_from_slice(&(NOW + 500).to_le_bytes());
        listpack.push(9);
        listpack.push(0xff);
        let length = (listpack.len() + 6) as u32;
        let listpack = [&length.to_le_bytes()[..], &6_u16.to_le_bytes(), &listpack].concat();
        let mut bytes = vec![25];
        bytes.extend_from_slice(&(NOW + 500).to_le_bytes());
        bytes.push(listpack.len() as u8);
        bytes.extend_from_slice(&listpack);
        // The same field by field.
        let mut plain = vec![24];
        plain.extend_from_slice(&(NOW + 500).to_le_bytes());
        plain.extend_from_slice(b"\x02\x00\x01a\x011\x01\x01b\x012");
        for bytes in [bytes, plain] {
            let value = payload::restore(&savanna_keys_rdb::seal(bytes, 12)).expect("a payload");
            let mut keys = keyspace();
            keys.put(b"h", value, UnixMillis::NEVER);
            assert_eq!(call(&mut keys, "HPTTL h FIELDS 2 a b"), "[2] -1 500");
            assert_eq!(call(&mut keys, "HGETALL h").matches('\"').count(), 8);
        }
    }

    type Model = BTreeMap<u8, (i64, Option<u64>)>;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u8, i64),
        SetFor(u8, i64, u64),
        SetKeeping(u8, i64),
        Add(u8, i64),
        Delete(u8),
        Expire(u8, u64, &'static str),
        Persist(u8),
        Wait(u64),
        /// Everything is dumped and restored.
        Move,
        DeleteAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        let (field, value, millis) = (0..6_u8, 0..100_i64, 0..40_u64);
        prop_oneof![
            3 => (field.clone(), value.clone()).prop_map(|(field, value)| Step::Set(field, value)),
            3 => (field.clone(), value.clone(), millis.clone()).prop_map(|(field, value, after)| Step::SetFor(field, value, after)),
            1 => (field.clone(), value.clone()).prop_map(|(field, value)| Step::SetKeeping(field, value)),
            2 => (field.clone(), value).prop_map(|(field, value)| Step::Add(field, value)),
            1 => field.clone().prop_map(Step::Delete),
            5 => (field.clone(), millis.clone(), prop::sample::select(vec!["", "NX ", "XX ", "GT ", "LT "]))
                .prop_map(|(field, after, condition)| Step::Expire(field, after, condition)),
            1 => field.prop_map(Step::Persist),
            4 => millis.prop_map(Step::Wait),
            1 => Just(Step::Move),
            1 => Just(Step::DeleteAll),
        ]
    }

    fn perform(keys: &mut Keyspace, model: &mut Model, step: &Step) {
        let now = keys.now().0;
        match *step {
            Step::Set(field, value) => {
                call(keys, &format!("HSET h {field} {value}"));
                model.insert(field, (value, None));
            }
            Step::SetFor(field, value, after) => {
                call(keys, &format!("HSETEX h PX {after} FIELDS 1 {field} {value}"));
                model.insert(field, (value, Some(now + after)));
            }
            Step::SetKeeping(field, value) => {
                call(keys, &format!("HSETEX h KEEPTTL FIELDS 1 {field} {value}"));
                model.entry(field).or_default().0 = value;
            }
            Step::Add(field, value) => {
                call(keys, &format!("HINCRBY h {field} {value}"));
                model.entry(field).or_default().0 += value;
            }
            Step::Delete(field) => {
                call(keys, &format!("HGETDEL h FIELDS 1 {field}"));
                model.remove(&field);
            }
            Step::Expire(field, after, condition) => {
                call(keys, &format!("HPEXPIRE h {after} {condition}FIELDS 1 {field}"));
                if let Some((_, before)) = model.get_mut(&field) {
                    let allowed = match (condition, *before) {
                        ("", _) | ("NX ", None) | ("XX ", Some(_)) | ("LT ", None) => true,
                        ("GT ", Some(before)) => now + after > before,
                        ("LT ", Some(before)) => now + after < before,
                        _ => false,
                    };
                    if allowed {
                        *before = Some(now + after);
                    }
                }
            }
            Step::Persist(field) => {
                call(keys, &format!("HPERSIST h FIELDS 1 {field}"));
                if let Some((_, at)) = model.get_mut(&field) {
                    *at = None;
                }
            }
            Step::Wait(millis) => {
                keys.set_now(UnixMillis(now + millis));
                while keys.expire_fields_due(1).is_some_and(|due| due <= keys.now()) {}
            }
            Step::Move => {
                if let Some(entry) = keys.peek(b"h") {
                    let value = payload::restore(&payload::dump(&entry.value)).expect("a payload");
                    keys.delete(b"h");
                    keys.put(b"h", value, UnixMillis::NEVER);
                }
            }
            Step::DeleteAll => {
                keys.delete(b"h");
                model.clear();
            }
        }
        let now = keys.now().0;
        model.retain(|_, (_, at)| at.is_none_or(|at| at > now));
    }

    fn present(keys: &mut Keyspace) -> Model {
        let Ok(Some(hash)) = keys.peek_collection::<Hash>(b"h") else { return Model::new() };
        let number = |bytes: &[u8]| integer(bytes).expect("a number");
        hash.iter()
            .map(|(field, value)| (number(field) as u8, (number(value), hash.expiry_of(field).map(|at| at.0))))
            .collect()
    }

    proptest! {
        #[test]
        fn fields_are_those_of_a_model_also_out_of_the_log(steps in proptest::collection::vec(step(), 0..80)) {
            let (mut keys, mut model) = (keyspace(), Model::new());
            for step in &steps {
                perform(&mut keys, &mut model, step);
                prop_assert_eq!(&present(&mut keys), &model, "after {:?}", step);
            }
            let mut again = keyspace();
            read_all(keys.log.bytes(), &mut |header, body| again.replay(header, body)).expect("its own log");
            again.set_now(keys.now());
            prop_assert_eq!(&present(&mut again), &model);
            // What expires next is known.
            let first = model.values().filter_map(|(_, at)| *at).min();
            prop_assert_eq!(again.expire_fields_due(1).map(|at| at.0), first);
            prop_assert_eq!(again.contains(b"h"), !model.is_empty());
        }
    }
}
