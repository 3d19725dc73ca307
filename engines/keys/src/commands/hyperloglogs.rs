//! About how many different elements were added: HyperLogLogs, which are strings.

use crate::actor::{Actor, Progress};
use crate::error::{CommandError, Outcome};
use crate::hyperloglog::{
    COUNT_MARK, DENSE_BYTES, HyperLogLog, Malformed, REGISTERS, bytes_of_register, count_registers, forget_count,
    place, raise_dense,
};
use crate::keyspace::events::EventClasses;
use crate::keyspace::{Expiry, Keyspace};
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

impl From<Malformed> for CommandError {
    fn from(error: Malformed) -> Self {
        Self::from(error.to_string())
    }
}

/// `PFADD key [element ...]`
pub fn pfadd(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let key = &args[1];
    let present = keys.peek_string(key)?.map(HyperLogLog::open).transpose()?;
    let is_changed = match present {
        _ if keys.tells_registers(key) => add_with_replicas(keys, key, args.from(2).map(place))?,
        Some(sketch) if sketch.is_dense() => {
            let places = args.from(2).map(place);
            let mut raised: Vec<_> =
                places.filter(|(index, value)| sketch.register(*index).is_some_and(|is| is < *value)).collect();
            let is_counted = sketch.counted().is_some();
            raised.sort_unstable();
            raise_in_place(keys, key, &raised, is_counted)?;
            !raised.is_empty()
        }
        // Mostly all registers are as high already.
        Some(sketch)
            if args.from(2).map(place).all(|(index, value)| sketch.register(index).is_some_and(|is| is >= value)) =>
        {
            false
        }
        present => {
            let before = present.as_ref().map_or(0, |sketch| sketch.bytes().len());
            let mut sketch = present
                .map_or_else(|| Ok(HyperLogLog::default()), |sketch| HyperLogLog::open(sketch.bytes().to_vec()))?;
            let mut is_changed = before == 0;
            for (index, value) in args.from(2).map(place) {
                is_changed |= sketch.raise(index, value)?;
            }
            if is_changed {
                sketch.forget_count();
                replace(keys, key, before, &sketch.into_bytes())?;
            }
            is_changed
        }
    };
    if is_changed {
        keys.note_event(EventClasses::STRING, "pfadd", key);
    }
    reply.flag(is_changed);
    Ok(())
}

/// Raises registers of a key with replicas. Says whether there was none, or any of them was lower.
fn add_with_replicas(
    keys: &mut Keyspace,
    key: &[u8],
    places: impl Iterator<Item = (usize, u8)>,
) -> Result<bool, CommandError> {
    let present = keys.peek_string(key)?;
    let mut sketch = present.map_or_else(|| Ok(HyperLogLog::default()), |bytes| HyperLogLog::open(bytes.to_vec()))?;
    let mut is_changed = present.is_none();
    let raised: Vec<_> = places.collect();
    for (index, value) in &raised {
        is_changed |= sketch.raise(*index, *value)?;
    }
    if is_changed || !raised.is_empty() {
        keys.ask_for_log(DENSE_BYTES + raised.len().saturating_mul(CHANGE_BYTES))?;
        keys.put_registers(key, sketch.into_bytes(), &raised)?;
    }
    Ok(is_changed)
}

/// What a change in the log takes beside the key and what was written, about.
const CHANGE_BYTES: usize = 40;

/// Raises registers of a dense one, in their order: the log has the bytes of these, and of those between neighbours that take less
/// than another change.
fn raise_in_place(keys: &mut Keyspace, key: &[u8], raised: &[(usize, u8)], is_counted: bool) -> Outcome {
    let between = key.len() + CHANGE_BYTES;
    keys.ask_for_log(DENSE_BYTES + 2 * between)?;
    if is_counted && !raised.is_empty() {
        keys.change_string(key, |bytes| {
            forget_count(bytes);
            (Some(COUNT_MARK), ())
        })?;
    }
    let are_near =
        |a: &(usize, u8), b: &(usize, u8)| bytes_of_register(b.0).start <= bytes_of_register(a.0).end + between;
    for near in raised.chunk_by(are_near) {
        let (Some((first, _)), Some((last, _))) = (near.first(), near.last()) else { continue };
        keys.change_string(key, |bytes| {
            for (index, value) in near {
                raise_dense(bytes, *index, *value);
            }
            (Some(bytes_of_register(*first).start..bytes_of_register(*last).end), ())
        })?;
    }
    Ok(())
}

/// Writes bytes in the place of so many others; what stays at the beginning is not logged if they do not become fewer.
fn replace(keys: &mut Keyspace, key: &[u8], before: usize, after: &[u8]) -> Outcome {
    if before == 0 || after.len() < before {
        keys.set_string(key, after, Expiry::Keep);
        return Ok(());
    }
    keys.change_string(key, |bytes| {
        let start = bytes.iter().zip(after).take_while(|(before, after)| before == after).count();
        bytes.truncate(start);
        bytes.extend_from_slice(&after[start..]);
        (Some(start..after.len()), ())
    })
}

/// `PFCOUNT key [key ...]`
pub fn pfcount(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    if args.len() == 2 {
        let count = match keys.string(&args[1])?.map(HyperLogLog::open).transpose()? {
            None => 0,
            Some(sketch) => sketch.counted().map_or_else(|| sketch.count(), Ok)?,
        };
        reply.integer(count as i64);
        return Ok(());
    }
    let mut registers = [0; REGISTERS];
    for key in args.from(1) {
        if let Some(bytes) = keys.string(key)? {
            HyperLogLog::open(bytes)?.raise_all(&mut registers)?;
        }
    }
    reply.integer(count_registers(&registers) as i64);
    Ok(())
}

/// `PFMERGE destination [source ...]`
pub fn pfmerge(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let mut merged = match keys.string(&args[1])? {
        Some(bytes) => HyperLogLog::open(bytes.to_vec())?,
        None => HyperLogLog::default(),
    };
    // Whether its runs are right.
    merged.registers()?;
    let mut registers = [0; REGISTERS];
    let mut is_dense = false;
    for key in args.from(2) {
        if let Some(bytes) = keys.string(key)? {
            let sketch = HyperLogLog::open(bytes)?;
            is_dense |= sketch.is_dense();
            sketch.raise_all(&mut registers)?;
        }
    }
    if is_dense {
        merged.make_dense()?;
    }
    for (index, value) in raised(&registers) {
        merged.raise(index, value)?;
    }
    merged.forget_count();
    write(keys, &args[1], merged, &registers)?;
    keys.note_event(EventClasses::STRING, "pfadd", &args[1]);
    reply.ok();
    Ok(())
}

/// The registers to which anything led, with their values.
fn raised(registers: &[u8; REGISTERS]) -> impl Iterator<Item = (usize, u8)> {
    registers.iter().copied().enumerate().filter(|(_, value)| *value > 0)
}

/// Writes one in the place of what is there, of which registers may have been raised to these.
fn write(keys: &mut Keyspace, key: &[u8], sketch: HyperLogLog<Vec<u8>>, registers: &[u8; REGISTERS]) -> Outcome {
    if keys.tells_registers(key) {
        let raised: Vec<_> = raised(registers).collect();
        keys.ask_for_log(DENSE_BYTES + raised.len() * CHANGE_BYTES)?;
        return keys.put_registers(key, sketch.into_bytes(), &raised);
    }
    keys.set_string(key, &sketch.into_bytes(), Expiry::Keep);
    Ok(())
}

/// `PFDEBUG GETREG | DECODE | ENCODING | TODENSE key`
pub fn pfdebug(keys: &mut Keyspace, args: Args<'_>, reply: &mut dyn Reply) -> Outcome {
    let bytes = keys.peek_string(&args[2])?.ok_or(CommandError::text("ERR The specified key does not exist"))?;
    let mut sketch = HyperLogLog::open(bytes.to_vec())?;
    match args[1].to_ascii_lowercase().as_slice() {
        b"encoding" => reply.simple(if sketch.is_dense() { "dense" } else { "sparse" }),
        b"decode" => {
            let text = sketch.describe().ok_or(CommandError::text("ERR HLL encoding is not sparse"))?;
            reply.bulk(text.as_bytes());
        }
        name @ (b"todense" | b"getreg") => {
            let is_other = sketch.make_dense()?;
            if name == b"todense" {
                reply.flag(is_other);
            } else {
                reply.array(REGISTERS);
                (0..REGISTERS).for_each(|index| reply.integer(i64::from(sketch.register(index).unwrap_or(0))));
            }
            if is_other {
                write(keys, &args[2], sketch, &[0; REGISTERS])?;
            }
        }
        _ => {
            return Err(CommandError::from(format!("ERR Unknown PFDEBUG subcommand '{}'", args[1].escape_ascii())));
        }
    }
    Ok(())
}

/// `PFSELFTEST`
pub fn pfselftest(
    _: &mut Actor,
    _: &mut Session,
    _: Args<'_>,
    reply: &mut dyn Reply,
) -> Result<Progress, CommandError> {
    const ELEMENTS: u32 = 20_000;
    let (mut sparse, mut dense) = (HyperLogLog::default(), HyperLogLog::default());
    dense.make_dense()?;
    for number in 0..ELEMENTS {
        let (index, value) = place(&number.to_le_bytes());
        if sparse.raise(index, value)? != dense.raise(index, value)? {
            return Err(CommandError::text("ERR TESTFAILED dense/sparse disagree"));
        }
    }
    let (count, other) = (dense.count()?, sparse.count()?);
    // The standard error is 0.8 %.
    if count != other || count.abs_diff(u64::from(ELEMENTS)) > u64::from(ELEMENTS / 20) {
        return Err(CommandError::from(format!(
            "ERR TESTFAILED expected about {ELEMENTS}, counted {count} and {other}"
        )));
    }
    reply.ok();
    Ok(Progress::Answered)
}
