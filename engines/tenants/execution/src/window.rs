//! Runs window functions: rows are parted and sorted for each, and get its value behind their own.

use std::{cmp::Ordering, collections::HashMap, ops::Range};

use bigdecimal::Signed;
use savanna_tenants_sql::{
    expression::{
        Operator,
        aggregate::{Aggregate, State},
        arithmetic::arithmetic,
        rows::{compare, fingerprint},
    },
    plan::window::{Bound, Exclusion, Units, WindowCall, WindowFunction},
};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::Memory,
    value::Value,
};

use crate::{Run, query::project};

/// The rows of one partition, in order.
struct Partition {
    /// Their places among all rows.
    rows: Vec<usize>,
    /// For each row its group of peers: those that are equal by the order.
    groups: Vec<usize>,
    /// Where each group of peers begins, and the end of the last one.
    begins: Vec<usize>,
    /// What each row is sorted by first, if frames are distances between these.
    keys: Vec<Value>,
}

impl Partition {
    /// The rows of a group and of those up to another; groups that there are not are empty.
    fn peers(&self, first: i64, last: i64) -> Range<usize> {
        let groups = self.begins.len() as i64 - 1;
        let place = |group: i64| self.begins[group.clamp(0, groups) as usize];
        place(first)..place(last.saturating_add(1))
    }

    fn len(&self) -> usize {
        self.rows.len()
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

impl Run<'_> {
    /// Appends the values of window functions to rows.
    pub(crate) fn windows(&self, calls: &[WindowCall], rows: &mut [Vec<Value>]) -> Result<()> {
        let mut memory = self.memory();
        for call in calls {
            let mut values = vec![Value::Null; rows.len()];
            for partition in self.partitions(call, rows)? {
                self.partition(call, &partition, rows, (&mut values, &mut memory))?;
            }
            for (row, value) in rows.iter_mut().zip(values) {
                row.push(value);
            }
        }
        Ok(())
    }

    fn partitions(&self, call: &WindowCall, rows: &[Vec<Value>]) -> Result<Vec<Partition>> {
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut parted: Vec<Vec<usize>> = Vec::new();
        let mut keys = Vec::with_capacity(rows.len());
        let mut memory = self.memory();
        for (at, row) in rows.iter().enumerate() {
            let env = self.env().with_row(row);
            let next = parted.len();
            let place = match call.partition.as_slice() {
                [] => 0,
                partition => *places.entry(fingerprint(&project(partition, env)?)?).or_insert(next),
            };
            if place == next {
                parted.push(Vec::new());
            }
            parted[place].push(at);
            let key = call.order.iter().map(|order| order.expr.owned(env)).collect::<Result<Vec<_>>>()?;
            memory.take(&key)?;
            keys.push(key);
        }
        let order = |a: &usize, b: &usize| {
            let both = keys[*a].iter().zip(&keys[*b]).zip(&call.order);
            let mut orders = both.map(|((a, b), order)| compare(a, b, order.descending, order.nulls_first));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        let partitions = parted.into_iter().map(|mut rows| {
            rows.sort_by(order);
            let (mut groups, mut begins) = (Vec::with_capacity(rows.len()), Vec::new());
            for at in 0..rows.len() {
                if at == 0 || order(&rows[at - 1], &rows[at]).is_ne() {
                    begins.push(at);
                }
                groups.push(begins.len() - 1);
            }
            begins.push(rows.len());
            let distance = call.frame.is_distance();
            let key = |row: &usize| keys[*row].first().cloned().unwrap_or(Value::Null);
            let keys = if distance { rows.iter().map(key).collect() } else { Vec::new() };
            Partition { rows, groups, begins, keys }
        });
        Ok(partitions.collect())
    }

    fn partition(
        &self,
        call: &WindowCall,
        partition: &Partition,
        rows: &[Vec<Value>],
        (values, memory): (&mut [Value], &mut Memory<'_>),
    ) -> Result<()> {
        if let WindowFunction::Aggregate(aggregate) = &call.function {
            return self.running(call, aggregate, partition, rows, (values, memory));
        }
        for (at, row) in partition.rows.iter().enumerate() {
            self.goes_on()?;
            let value = self.at(call, partition, rows, at)?;
            memory.take_bytes(value.bytes())?;
            values[*row] = value;
        }
        Ok(())
    }

    /// The value of a function that is no aggregate for one row of a partition.
    fn at(&self, call: &WindowCall, partition: &Partition, rows: &[Vec<Value>], at: usize) -> Result<Value> {
        let env = |at: usize| self.env().with_row(&rows[partition.rows[at]]);
        let argument = |place: usize, at: usize| match call.arguments.get(place) {
            Some(argument) => argument.owned(env(at)),
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
                let mut frame = self.frame(call, partition, rows, at)?;
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
        partition: &Partition,
        rows: &[Vec<Value>],
        (values, memory): (&mut [Value], &mut Memory<'_>),
    ) -> Result<()> {
        let env = |at: usize| self.env().with_row(&rows[partition.rows[at]]);
        let exclusion = call.frame.exclusion;
        let (slides, invertible) = (exclusion == Exclusion::Nothing, aggregate.is_invertible());
        let (mut state, mut held) = (State::default(), 0..0);
        for at in 0..partition.len() {
            self.goes_on()?;
            let frame = self.frame(call, partition, rows, at)?;
            let leaves = held.start..frame.start.min(held.end);
            let mut goes_on = slides && frame.start >= held.start && frame.end >= held.end && leaves.end >= frame.start;
            goes_on &= leaves.is_empty() || invertible;
            for place in leaves {
                goes_on = goes_on && state.remove(aggregate, env(place))?;
            }
            if !goes_on {
                (state, held) = (State::default(), frame.start..frame.start);
            }
            for place in held.end..frame.end {
                if !partition.excludes(exclusion, at, place) {
                    state.add(aggregate, env(place))?;
                }
            }
            held = frame;
            let value = state.clone().finish(aggregate)?;
            memory.take_bytes(value.bytes())?;
            values[partition.rows[at]] = value;
        }
        Ok(())
    }

    /// The rows that a window function sees from one of them.
    fn frame(&self, call: &WindowCall, partition: &Partition, rows: &[Vec<Value>], at: usize) -> Result<Range<usize>> {
        let frame = &call.frame;
        if frame.is_distance() {
            return self.distance(call, partition, rows, at);
        }
        let env = self.env().with_row(&rows[partition.rows[at]]);
        let offset = |bound: &Bound, what: &str| -> Result<i64> {
            let (expr, sign) = match bound {
                Bound::Preceding(expr) => (expr, -1),
                Bound::Following(expr) => (expr, 1),
                _ => return Ok(0),
            };
            match expr.owned(env)? {
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
    fn distance(
        &self,
        call: &WindowCall,
        partition: &Partition,
        rows: &[Vec<Value>],
        at: usize,
    ) -> Result<Range<usize>> {
        let env = self.env().with_row(&rows[partition.rows[at]]);
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
            let by = expr.owned(env)?;
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
