//! Runs window functions: rows are parted and sorted for each, and get its value behind their own.

mod filed;

use std::{cmp::Ordering, collections::HashMap, ops::Range};

use bigdecimal::Signed;
use savanna_tenants_sql::{
    expression::{
        Env, Expr, Operator,
        aggregate::{Aggregate, State},
        arithmetic::arithmetic,
        rows::{compare, fingerprint},
    },
    plan::window::{Bound, Exclusion, Units, WindowCall, WindowFunction},
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::{Memory, row_bytes},
    value::Value,
};

use crate::{Run, query::project, spill::Spool};

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
    /// What each row is sorted by first, if frames are distances between these.
    keys: Vec<Value>,
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
fn peers(count: usize, is_peer: impl Fn(usize) -> Result<bool>) -> Result<(Vec<usize>, Vec<usize>)> {
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

/// Whom the values of a partition's rows are given to, with the rows' numbers in it.
type Valued<'v> = dyn FnMut(usize, Value) -> Result<()> + 'v;

impl Run<'_> {
    /// Appends the values of window functions to rows.
    pub(crate) fn windows(&self, calls: &[WindowCall], mut rows: Spool) -> Result<(Spool, Vec<Memory<'_>>)> {
        let mut held = Vec::new();
        for call in calls {
            let in_memory = if rows.is_filed() { None } else { self.window_in_memory(call, &rows)? };
            match in_memory {
                Some((values, memory)) => {
                    rows.append(values);
                    held.push(memory);
                }
                None => {
                    let (filed, memory) = self.window_in_file(call, rows)?;
                    rows = filed;
                    held = vec![memory];
                }
            }
        }
        Ok((rows, held))
    }

    /// The values of a window function for rows in memory, unless there is no room for what that takes.
    fn window_in_memory(&self, call: &WindowCall, rows: &Spool) -> Result<Option<(Vec<Value>, Memory<'_>)>> {
        let mut values = vec![Value::Null; rows.len()];
        let mut memory = self.memory();
        let Some(partitions) = self.partitions(call, rows)? else { return Ok(None) };
        for partition in partitions {
            self.partition(call, &partition, &mut |at, value| {
                memory.take_bytes(value.bytes())?;
                values[partition.place(at)] = value;
                Ok(())
            })?;
        }
        Ok(Some((values, memory)))
    }

    fn partitions<'s>(&self, call: &WindowCall, rows: &'s Spool) -> Result<Option<Vec<Partition<'s>>>> {
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut parted: Vec<Vec<usize>> = Vec::new();
        let mut keys = Vec::with_capacity(rows.len());
        let mut room = self.room();
        for at in 0..rows.len() {
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
            // The place of each row and of its peers, too.
            if !room.takes(row_bytes(&key) + 4 * size_of::<usize>() + part.as_ref().map_or(0, Vec::len))? {
                return Ok(None);
            }
            let place = part.map_or(0, |part| *places.entry(part).or_insert(next));
            if place == next {
                parted.push(Vec::new());
            }
            parted[place].push(at);
            keys.push(key);
        }
        let order = |a: &usize, b: &usize| {
            let both = keys[*a].iter().zip(&keys[*b]).zip(&call.order);
            let mut orders = both.map(|((a, b), order)| compare(a, b, order.descending, order.nulls_first));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        let partitions = parted.into_iter().map(|mut places| {
            places.sort_by(order);
            let (groups, begins) = peers(places.len(), |at| Ok(order(&places[at - 1], &places[at]).is_eq()))?;
            let distance = call.frame.is_distance();
            let key = |place: &usize| keys[*place].first().cloned().unwrap_or(Value::Null);
            let keys = if distance { places.iter().map(key).collect() } else { Vec::new() };
            Ok(Partition { spool: rows, places: Some(places), groups, begins, keys })
        });
        partitions.collect::<Result<Vec<_>>>().map(Some)
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
                let mut frame = self.frame(call, partition, at)?;
                let is_in = |other: &usize| !partition.excludes(call.frame.exclusion, at, *other);
                let place = match call.function {
                    WindowFunction::FirstValue => frame.find(is_in),
                    WindowFunction::LastValue => frame.rfind(is_in),
                    _ => match argument(1, at)? {
                        Value::Int(place) if place > 0 => {
                            usize::try_from(place - 1).ok().and_then(|place| frame.filter(is_in).nth(place))
                        }
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
                goes_on = goes_on && partition.over(self, place, |env| state.remove(aggregate, env))?;
            }
            if !goes_on {
                (state, held) = (State::default(), frame.start..frame.start);
            }
            for place in held.end..frame.end {
                if !partition.excludes(exclusion, at, place) {
                    partition.over(self, place, |env| state.add(aggregate, env))?;
                }
            }
            held = frame;
            take(at, state.clone().finish(aggregate)?)?;
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
        // The rows that have a value.
        let first = keys.iter().position(|key| !key.is_null()).unwrap_or(keys.len());
        let last = keys.iter().rposition(|key| !key.is_null()).map_or(first, |last| last + 1);
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
