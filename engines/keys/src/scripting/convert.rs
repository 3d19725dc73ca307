//! Values of replies as values of Lua, and back, by Redis' rules.

use mlua::{Lua, Table, Value};

use super::watch::{Steps, Watch};
use crate::number::{exact, fixed, general};
use crate::reply::{self, Reply, Tape};

/// A list of strings.
pub(super) fn strings(lua: &Lua, items: &[&[u8]]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(items.len(), 0)?;
    for (index, item) in items.iter().enumerate() {
        table.raw_seti(index + 1, lua.create_string(item)?)?;
    }
    Ok(table)
}

/// The words of a request out of Lua's arguments.
pub(super) fn words(args: &[Value]) -> Result<Vec<Vec<u8>>, &'static str> {
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let word = |arg: &Value| match arg {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Number(number) => Ok(general(*number, 17).into_bytes()),
        _ => Err("ERR Lua redis lib command arguments must be strings or integers"),
    };
    args.iter().map(word).collect()
}

/// A reply as a value of Lua.
pub(super) fn to_lua(lua: &Lua, tape: &Tape, protocol: u8, watch: &Watch) -> mlua::Result<Value> {
    /// Values between two looks at the watch: much less than a millisecond.
    const VALUES: usize = 1 << 10;
    let mut count = 0_usize;
    let mut values = tape.values().map(|value| {
        count += 1;
        if count.is_multiple_of(VALUES) {
            watch.look()?;
        }
        Ok(value)
    });
    next_value(lua, &mut values, protocol)
}

fn next_value<'a>(
    lua: &Lua,
    values: &mut impl Iterator<Item = mlua::Result<reply::Value<'a>>>,
    protocol: u8,
) -> mlua::Result<Value> {
    let is_third = protocol == 3;
    let Some(value) = values.next().transpose()? else { return Ok(Value::Nil) };
    let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    let field = |name: &str, value: Value| {
        let table = lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    match value {
        reply::Value::Simple(status) => field("ok", text(status.as_bytes())?),
        reply::Value::Error(error) => field("err", text(error.as_bytes())?),
        reply::Value::Integer(number) => Ok(Value::Number(number as f64)),
        reply::Value::Bulk(bytes) => text(bytes),
        reply::Value::Null | reply::Value::NullArray if is_third => Ok(Value::Nil),
        reply::Value::Null | reply::Value::NullArray => Ok(Value::Boolean(false)),
        reply::Value::Boolean(flag) if is_third => Ok(Value::Boolean(flag)),
        reply::Value::Boolean(flag) => Ok(if flag { Value::Number(1.0) } else { Value::Boolean(false) }),
        reply::Value::Double(number) | reply::Value::Fraction(number) if is_third => {
            field("double", Value::Number(number))
        }
        reply::Value::Double(number) => text(exact(number).as_bytes()),
        reply::Value::Fraction(number) => text(fixed(number).as_bytes()),
        reply::Value::Verbatim(bytes) if is_third => {
            let inner = lua.create_table()?;
            inner.raw_set("format", "txt")?;
            inner.raw_set("string", text(bytes.as_bytes())?)?;
            field("verbatim_string", Value::Table(inner))
        }
        reply::Value::Verbatim(bytes) => text(bytes.as_bytes()),
        reply::Value::Map(length) if is_third => {
            let inner = lua.create_table()?;
            for _ in 0..length {
                let name = next_value(lua, values, protocol)?;
                inner.raw_set(name, next_value(lua, values, protocol)?)?;
            }
            field("map", Value::Table(inner))
        }
        reply::Value::Set(length) if is_third => {
            let inner = lua.create_table()?;
            for _ in 0..length {
                inner.raw_set(next_value(lua, values, protocol)?, true)?;
            }
            field("set", Value::Table(inner))
        }
        reply::Value::Map(length) => list(lua, values, protocol, 2 * length),
        reply::Value::Array(length) | reply::Value::Set(length) | reply::Value::Push(length) => {
            list(lua, values, protocol, length)
        }
        reply::Value::Pairs(length) => {
            let table = lua.create_table()?;
            for _ in 0..length {
                let _pair = values.next().transpose()?;
                let (first, second) = (next_value(lua, values, protocol)?, next_value(lua, values, protocol)?);
                if is_third {
                    let pair = lua.create_table()?;
                    pair.raw_push(first)?;
                    pair.raw_push(second)?;
                    table.raw_push(pair)?;
                } else {
                    table.raw_push(first)?;
                    table.raw_push(second)?;
                }
            }
            Ok(Value::Table(table))
        }
        reply::Value::Named(length) => {
            let table = lua.create_table()?;
            for _ in 0..length {
                let _name = values.next().transpose()?;
                let (name, value) = (next_value(lua, values, protocol)?, next_value(lua, values, protocol)?);
                if is_third {
                    table.raw_set(name, value)?;
                } else {
                    let pair = lua.create_table()?;
                    pair.raw_push(name)?;
                    pair.raw_push(value)?;
                    table.raw_push(pair)?;
                }
            }
            if is_third { field("map", Value::Table(table)) } else { Ok(Value::Table(table)) }
        }
        reply::Value::Pair | reply::Value::Name => next_value(lua, values, protocol),
    }
}

fn list<'a>(
    lua: &Lua,
    values: &mut impl Iterator<Item = mlua::Result<reply::Value<'a>>>,
    protocol: u8,
    length: usize,
) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for index in 1..=length {
        // By number, because a value may be nil.
        table.raw_set(index, next_value(lua, values, protocol)?)?;
    }
    Ok(Value::Table(table))
}

/// How deep a reply may be.
const DEPTH_MAX: usize = 1000;

/// Answers with a value of Lua. Half of a reply is none: so it is gone through before, to nobody, which may take no longer than
/// a script may run. (A table that has another one twice, which has another one twice, and so on, has no end that anybody
/// could wait for.)
///
/// # Errors
/// If the script has to end meanwhile; nothing is told then.
pub(super) fn answer(value: &Value, protocol: u8, watch: &Watch, reply: &mut dyn Reply) -> mlua::Result<()> {
    answer_inner(value, protocol, DEPTH_MAX, &mut Steps::under(watch.clone()), &mut Nobody)?;
    answer_inner(value, protocol, DEPTH_MAX, &mut Steps::to_the_end(watch.clone()), reply)
}

/// Hears nothing.
struct Nobody;

impl Reply for Nobody {
    fn simple(&mut self, _: &str) {}
    fn error(&mut self, _: &str) {}
    fn integer(&mut self, _: i64) {}
    fn boolean(&mut self, _: bool) {}
    fn bulk(&mut self, _: &[u8]) {}
    fn null(&mut self) {}
    fn null_array(&mut self) {}
    fn double(&mut self, _: f64) {}
    fn verbatim(&mut self, _: &str) {}
    fn array(&mut self, _: usize) {}
    fn map(&mut self, _: usize) {}
    fn set(&mut self, _: usize) {}
    fn push(&mut self, _: usize) {}
    fn pairs(&mut self, _: usize) {}
    fn pair(&mut self) {}
    fn named(&mut self, _: usize) {}
    fn name(&mut self) {}
}

fn answer_inner(
    value: &Value,
    protocol: u8,
    depth: usize,
    steps: &mut Steps,
    reply: &mut dyn Reply,
) -> mlua::Result<()> {
    steps.step(0)?;
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(*number as i64),
        Value::Boolean(flag) if protocol == 3 => reply.boolean(*flag),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(_) if depth == 0 => reply.error("ERR reached lua stack limit"),
        Value::Table(table) => return answer_table(table, protocol, depth - 1, steps, reply),
        _ => reply.null(),
    }
    Ok(())
}

fn answer_table(
    table: &Table,
    protocol: u8,
    depth: usize,
    steps: &mut Steps,
    reply: &mut dyn Reply,
) -> mlua::Result<()> {
    if let Value::String(error) = table.raw_get("err")? {
        reply.error(&error.to_string_lossy().replace(['\r', '\n'], " "));
        return Ok(());
    }
    if let Value::String(status) = table.raw_get("ok")? {
        reply.simple(&status.to_string_lossy().replace(['\r', '\n'], " "));
        return Ok(());
    }
    match table.raw_get("double")? {
        Value::Number(number) => {
            reply.double(number);
            return Ok(());
        }
        Value::Integer(number) => {
            reply.double(number as f64);
            return Ok(());
        }
        _ => {}
    }
    if let Value::Table(map) = table.raw_get("map")? {
        // One at a time: Lua has room for some thousand values only that are held outside of it.
        reply.map(map.pairs::<Value, Value>().count());
        for pair in map.pairs::<Value, Value>() {
            let (name, value) = pair?;
            answer_inner(&name, protocol, depth, steps, reply)?;
            answer_inner(&value, protocol, depth, steps, reply)?;
        }
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get("set")? {
        reply.set(set.pairs::<Value, Value>().count());
        for member in set.pairs::<Value, Value>() {
            answer_inner(&member?.0, protocol, depth, steps, reply)?;
        }
        return Ok(());
    }
    if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
        && let Value::String(text) = verbatim.raw_get("string")?
    {
        reply.verbatim(&text.to_string_lossy());
        return Ok(());
    }
    let mut count = 0;
    while table.raw_get::<Value>(count + 1)? != Value::Nil {
        count += 1;
    }
    reply.array(count);
    (1..=count).try_for_each(|index| answer_inner(&table.raw_get(index)?, protocol, depth, steps, reply))
}
