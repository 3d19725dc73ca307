//! Runs window functions: rows are parted and sorted for each, and get its value behind their own.

mod filed;

use std::{cmp::Ordering, collections::HashMap, ops::Range};

use bigdecimal::Signed;
use savanna_tenants_sql::{
    expression::{
        Env, Expr, Operator,
        aggregate::{Aggregate, State},
        arithmetic::arithmetic,
        rows::{compare, fingerprint, sort_while},
    },
    plan::window::{Bound, Exclusion, Units, WindowCall, WindowFunction},
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::{ALLOCATION, Memory, row_bytes},
    value::Value,
};

use crate::{
    Run,
    distinct::seen_bytes,
    query::project,
    spill::{Room, Spool},
};

/// The rows of one partition, in order.
struct Partition<'s> {
    /// All rows.
    spool: &'s Spool,
    /// Their places among all rows; `None` if they are all of them.
    places: Option<Vec<usize>>,
    /// For each row its group of peers: those that are equal by the order.
    groups: Vec<usize>,
    /// Where each group of peers begins, and the end of the last one.
    begins: Vec<usize>,
    /// What each row is sorted by first, if frames are distances between these, and the rows that have such a value.
    keys: Vec<Value>,
    valued: Range<usize>,
}

impl Partition<'_> {
    /// The rows of a group and of those up to another; groups that there are not are empty.
    fn peers(&self, first: i64, last: i64) -> Range<usize> {
        let groups = self.begins.len() as i64 - 1;
        let place = |group: i64| self.begins[group.clamp(0, groups) as usize];
        place(first)..place(last.saturating_add(1))
    }

    fn len(&self) -> usize {
        self.groups.len()
    }

    /// The place of a row among all.
    fn place(&self, at: usize) -> usize {
        self.places.as_ref().map_or(at, |places| places[at])
    }

    /// Computes something over one of its rows.
    fn over<T>(&self, run: &Run<'_>, at: usize, work: impl FnOnce(Env<'_>) -> Result<T>) -> Result<T> {
        self.spool.with(self.place(at), |row| work(run.env().with_row(row)))?
    }

    /// The value of an expression over one of its rows.
    fn value(&self, run: &Run<'_>, expr: &Expr, at: usize) -> Result<Value> {
        self.over(run, at, |env| expr.owned(env))
    }

    /// Whether a frame of the row `at` leaves out a row.
    fn excludes(&self, exclusion: Exclusion, at: usize, other: usize) -> bool {
        match exclusion {
            Exclusion::Nothing => false,
            Exclusion::Row => at == other,
            Exclusion::Group => self.groups[at] == self.groups[other],
            Exclusion::Ties => at != other && self.groups[at] == self.groups[other],
        }
    }
}

/// Groups of peers of rows in order, and where these begin, by whether a row is equal to the one before.
fn peers(count: usize, mut is_peer: impl FnMut(usize) -> Result<bool>) -> Result<(Vec<usize>, Vec<usize>)> {
    let (mut groups, mut begins) = (Vec::with_capacity(count), Vec::new());
    for at in 0..count {
        if at == 0 || !is_peer(at)? {
            begins.push(at);
        }
        groups.push(begins.len() - 1);
    }
    begins.push(count);
    Ok((groups, begins))
}

/// Keys of rows in order that are not NULL: these are neighbours.
fn valued(keys: &[Value]) -> Range<usize> {
    let first = keys.iter().position(|key| !key.is_null()).unwrap_or(keys.len());
    first..keys.iter().rposition(|key| !key.is_null()).map_or(first, |last| last + 1)
}

/// Whom the values of a partition's rows are given to, with the rows' numbers in it.
type Valued<'v> = dyn FnMut(usize, Value) -> Result<()> + 'v;

/// Rows with the values of window functions, and the memory that they hold.
pub(crate) struct Windowed<'r> {
    pub(crate) rows: Spool,
    /// Columns of each row; there may be another one behind them.
    pub(crate) width: usize,
    _held: Vec<Memory<'r>>,
}

impl Run<'_> {
    /// Appends the values of window functions to rows. Rows that are equal by a window's order are ordered as they came, so that all calls see the same.
    pub(crate) fn windows(&self, calls: &[WindowCall], mut rows: Spool) -> Result<Windowed<'_>> {
        if rows.is_empty() {
            return Ok(Windowed { rows, width: 0, _held: Vec::new() });
        }
        let width = rows.with(0, <[Value]>::len)? + calls.len();
        let (mut held, mut is_numbered) = (Vec::new(), false);
        for call in calls {
            let may_stay = !rows.is_filed() && !is_numbered;
            match if may_stay { self.window_in_memory(call, &rows)? } else { None } {
                Some((values, memory)) => {
                    rows.append(values);
                    held.push(memory);
                }
                None => {
                    let (filed, memory) = self.window_in_file(call, rows, is_numbered)?;
                    (rows, held, is_numbered) = (filed, vec![memory], true);
                }
            }
        }
        Ok(Windowed { rows, width, _held: held })
    }

    /// The values of a window function for rows in memory, unless there is no room for what that takes.
    fn window_in_memory(&self, call: &WindowCall, rows: &Spool) -> Result<Option<(Vec<Value>, Memory<'_>)>> {
        let Some((partitions, _room)) = self.partitions(call, rows)? else { return Ok(None) };
        let mut memory = self.memory();
        // For each a place in a list, and then one in its row.
        memory.take_bytes(2 * size_of::<Value>() * rows.len())?;
        let mut values = vec![Value::Null; rows.len()];
        for partition in partitions {
            self.partition(call, &partition, &mut |at, value| {
                memory.take_bytes(value.bytes() - size_of::<Value>())?;
                values[partition.place(at)] = value;
                Ok(())
            })?;
        }
        Ok(Some((values, memory)))
    }

    /// Rows in memory by partitions, each in order, and the room that they take; `None` if there is none.
    fn partitions<'s>(&self, call: &WindowCall, rows: &'s Spool) -> Result<Option<(Vec<Partition<'s>>, Room<'_>)>> {
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut parted: Vec<Vec<usize>> = Vec::new();
        let mut keys = Vec::with_capacity(rows.len());
        let mut room = self.room();
        for at in 0..rows.len() {
            self.goes_on_after(0)?;
            let next = parted.len();
            let (part, key) = rows.with(at, |row| {
                let env = self.env().with_row(row);
                let part = match call.partition.as_slice() {
                    [] => None,
                    partition => Some(fingerprint(&project(partition, env)?)?),
                };
                let key = call.order.iter().map(|order| order.expr.owned(env)).collect::<Result<Vec<_>>>()?;
                Result::Ok((part, key))
            })??;
            let place = part.as_ref().map_or(Some(0), |part| places.get(part).copied());
            let is_new = place.is_none_or(|place| place == next);
            // The place of each row, which is sorted, and of its peers; of a partition its lists and its key.
            let partition = match (is_new, &part) {
                (true, Some(part)) => seen_bytes(part) + size_of::<Partition<'_>>() + 4 * ALLOCATION + 128,
                _ => 0,
            };
            if !room.takes(row_bytes(&key) + 6 * size_of::<usize>() + partition)? {
                return Ok(None);
            }
            let place = place.unwrap_or(next);
            if is_new {
                parted.push(Vec::new());
                part.map(|part| places.insert(part, next));
            }
            parted[place].push(at);
            keys.push(key);
        }
        drop(places);
        let order = |a: &usize, b: &usize| {
            let both = keys[*a].iter().zip(&keys[*b]).zip(&call.order);
            let mut orders = both.map(|((a, b), order)| compare(a, b, order.descending, order.nulls_first));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        let partitions = parted.into_iter().map(|mut places| {
            sort_while(&mut places, order, || self.goes_on_after(0))?;
            let (groups, begins) = peers(places.len(), |at| {
                self.goes_on_after(0)?;
                Ok(order(&places[at - 1], &places[at]).is_eq())
            })?;
            let distance = call.frame.is_distance();
            let key = |place: &usize| keys[*place].first().cloned().unwrap_or(Value::Null);
            let keys: Vec<Value> = if distance { places.iter().map(key).collect() } else { Vec::new() };
            let valued = valued(&keys);
            Ok(Partition { spool: rows, places: Some(places), groups, begins, keys, valued })
        });
        let partitions = partitions.collect::<Result<Vec<_>>>()?;
        Ok(Some((partitions, room)))
    }

    fn partition(&self, call: &WindowCall, partition: &Partition<'_>, take: &mut Valued<'_>) -> Result<()> {
        if let WindowFunction::Aggregate(aggregate) = &call.function {
            return self.running(call, aggregate, partition, take);
        }
        for at in 0..partition.len() {
            self.goes_on()?;
            take(at, self.at(call, partition, at)?)?;
        }
        Ok(())
    }

    /// The value of a function that is no aggregate for one row of a partition.
    fn at(&self, call: &WindowCall, partition: &Partition<'_>, at: usize) -> Result<Value> {
        let argument = |place: usize, at: usize| match call.arguments.get(place) {
            Some(argument) => partition.value(self, argument, at),
            None => Ok(Value::Null),
        };
        let (group, count) = (partition.groups[at], partition.len());
        let peers = partition.begins[group]..partition.begins[group + 1];
        Ok(match call.function {
            WindowFunction::RowNumber => Value::Int(at as i64 + 1),
            WindowFunction::Rank => Value::Int(peers.start as i64 + 1),
            WindowFunction::DenseRank => Value::Int(group as i64 + 1),
            WindowFunction::PercentRank if count == 1 => Value::Float(0.0),
            WindowFunction::PercentRank => Value::Float(peers.start as f64 / (count - 1) as f64),
            WindowFunction::CumeDist => Value::Float(peers.end as f64 / count as f64),
            WindowFunction::Ntile => match argument(0, 0)? {
                Value::Int(parts) if parts > 0 => {
                    // The first parts have one row more.
                    let (size, more) = (count as i64 / parts, count as i64 % parts);
                    let (at, long) = (at as i64, (size + 1) * more);
                    Value::Int(if at < long { at / (size + 1) } else { more + (at - long) / size } + 1)
                }
                Value::Null => Value::Null,
                _ => {
                    let message = "argument of ntile must be greater than zero";
                    return Err(SqlError::new("22014", message));
                }
            },
            WindowFunction::Lag | WindowFunction::Lead => {
                let by = match call.arguments.len() {
                    1 => 1,
                    _ => match argument(1, at)? {
                        Value::Int(by) => by,
                        _ => return Ok(Value::Null),
                    },
                };
                let by = if matches!(call.function, WindowFunction::Lag) { by.saturating_neg() } else { by };
                let other = usize::try_from((at as i64).saturating_add(by)).ok().filter(|other| *other < count);
                match other {
                    Some(other) => argument(0, other)?,
                    None => argument(2, at)?,
                }
            }
            WindowFunction::FirstValue | WindowFunction::LastValue | WindowFunction::NthValue => {
                let frame = self.frame(call, partition, at)?;
                let seek = |frame: &mut dyn Iterator<Item = usize>, place: usize| {
                    self.seek((partition, call.frame.exclusion), at, frame, place)
                };
                let place = match call.function {
                    WindowFunction::FirstValue => seek(&mut { frame }, 0)?,
                    WindowFunction::LastValue => seek(&mut frame.rev(), 0)?,
                    _ => match argument(1, at)? {
                        Value::Int(place) if place > 0 => match usize::try_from(place - 1) {
                            Ok(place) => seek(&mut { frame }, place)?,
                            Err(_) => None,
                        },
                        Value::Null => None,
                        _ => {
                            let message = "argument of nth_value must be greater than zero";
                            return Err(SqlError::new("22016", message));
                        }
                    },
                };
                place.map_or(Ok(Value::Null), |place| argument(0, place))?
            }
            WindowFunction::Aggregate(_) => return Err(SqlError::internal("an aggregate is computed by frames")),
        })
    }

    /// The row at a place in a frame, counted without those that are left out.
    fn seek(
        &self,
        (partition, exclusion): (&Partition<'_>, Exclusion),
        at: usize,
        frame: &mut dyn Iterator<Item = usize>,
        place: usize,
    ) -> Result<Option<usize>> {
        if exclusion == Exclusion::Nothing {
            return Ok(frame.nth(place));
        }
        let mut left = place;
        for other in frame {
            self.goes_on()?;
            if !partition.excludes(exclusion, at, other) {
                match left.checked_sub(1) {
                    Some(less) => left = less,
                    None => return Ok(Some(other)),
                }
            }
        }
        Ok(None)
    }

    /// An aggregate over the frame of each row. If frames grow, what comes is added; what goes is taken out again if that can be done.
    fn running(
        &self,
        call: &WindowCall,
        aggregate: &Aggregate,
        partition: &Partition<'_>,
        take: &mut Valued<'_>,
    ) -> Result<()> {
        let exclusion = call.frame.exclusion;
        let (slides, invertible) = (exclusion == Exclusion::Nothing, aggregate.is_invertible());
        let (mut state, mut held) = (State::default(), 0..0);
        for at in 0..partition.len() {
            self.goes_on()?;
            let frame = self.frame(call, partition, at)?;
            let leaves = held.start..frame.start.min(held.end);
            let mut goes_on = slides && frame.start >= held.start && frame.end >= held.end && leaves.end >= frame.start;
            goes_on &= leaves.is_empty() || invertible;
            for place in leaves {
                self.goes_on()?;
                goes_on = goes_on && partition.over(self, place, |env| state.remove(aggregate, env))?;
            }
            if !goes_on {
                (state, held) = (State::default(), frame.start..frame.start);
            }
            for place in held.end..frame.end {
                self.goes_on()?;
                if !partition.excludes(exclusion, at, place) {
                    partition.over(self, place, |env| state.add(aggregate, env))?;
                }
            }
            held = frame;
            take(at, state.clone().finish(aggregate, &|| self.goes_on_after(0))?)?;
        }
        Ok(())
    }

    /// The rows that a window function sees from one of them.
    fn frame(&self, call: &WindowCall, partition: &Partition<'_>, at: usize) -> Result<Range<usize>> {
        let frame = &call.frame;
        if frame.is_distance() {
            return self.distance(call, partition, at);
        }
        let offset = |bound: &Bound, what: &str| -> Result<i64> {
            let (expr, sign) = match bound {
                Bound::Preceding(expr) => (expr, -1),
                Bound::Following(expr) => (expr, 1),
                _ => return Ok(0),
            };
            match partition.value(self, expr, at)? {
                Value::Int(offset) if offset >= 0 => Ok(sign * offset),
                Value::Int(_) => {
                    let message = format!("frame {what} offset must not be negative");
                    Err(SqlError::new("22013", message))
                }
                _ => Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, format!("frame {what} offset must not be null"))),
            }
        };
        let (count, here) = (partition.len() as i64, at as i64);
        let (start, end) = (offset(&frame.start, "starting")?, offset(&frame.end, "ending")?);
        let (first, last) = match frame.units {
            Units::Rows => (here.saturating_add(start), here.saturating_add(end).saturating_add(1)),
            Units::Range | Units::Groups => {
                let group = partition.groups[at] as i64;
                let first = partition.peers(group.saturating_add(start), group.saturating_add(start)).start;
                let last = partition.peers(group.saturating_add(end), group.saturating_add(end)).end;
                (first as i64, last as i64)
            }
        };
        let first = if matches!(frame.start, Bound::First) { 0 } else { first.clamp(0, count) };
        let last = if matches!(frame.end, Bound::Last) { count } else { last.clamp(0, count) };
        Ok(first as usize..last.max(first) as usize)
    }

    /// The rows whose values are within distances of a row's own. Those without a value are together.
    fn distance(&self, call: &WindowCall, partition: &Partition<'_>, at: usize) -> Result<Range<usize>> {
        let (keys, descending) = (&partition.keys, call.order.first().is_some_and(|order| order.descending));
        let Range { start: first, end: last } = partition.valued;
        let group = partition.groups[at];
        let peers = partition.begins[group]..partition.begins[group + 1];
        let own = &keys[at];
        let bound = |bound: &Bound, end: bool| -> Result<usize> {
            let (expr, before) = match bound {
                Bound::First => return Ok(0),
                Bound::Last => return Ok(keys.len()),
                Bound::Current => return Ok(if end { peers.end } else { peers.start }),
                Bound::Preceding(expr) => (expr, true),
                Bound::Following(expr) => (expr, false),
            };
            let by = partition.value(self, expr, at)?;
            check_distance(&by, if end { "ending" } else { "starting" })?;
            if own.is_null() {
                return Ok(if end { peers.end } else { peers.start });
            }
            let down = before != descending;
            let operator = if down { Operator::Subtract } else { Operator::Add };
            // What is out of range is beyond all values.
            let limit = arithmetic(operator, call.range, own, &by, self.facts.zone()).ok();
            let is_before = |key: &Value| {
                let order = limit
                    .as_ref()
                    .map_or(if down { Ordering::Greater } else { Ordering::Less }, |limit| key.compare(limit));
                let order = if descending { order.reverse() } else { order };
                if end { order.is_le() } else { order.is_lt() }
            };
            Ok(first + keys[first..last].partition_point(is_before))
        };
        let (start, end) = (bound(&call.frame.start, false)?, bound(&call.frame.end, true)?);
        Ok(start..end.max(start))
    }
}

/// Refuses a distance that is none.
fn check_distance(by: &Value, what: &str) -> Result<()> {
    let negative = match by {
        Value::Null => {
            let message = format!("frame {what} offset must not be null");
            return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
        }
        Value::Int(by) => *by < 0,
        Value::Float(by) => *by < 0.0 || by.is_nan(),
        Value::Numeric(by) => by.is_negative(),
        Value::Interval(by) => by.length() < 0,
        _ => false,
    };
    match negative {
        true => Err(SqlError::new("22013", "invalid preceding or following size in window function")),
        false => Ok(()),
    }
}
