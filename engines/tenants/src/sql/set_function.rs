//! Functions that return rows.

use std::ops::ControlFlow;

use bigdecimal::Zero;

use crate::{
    error::{Result, SqlError, state},
    sql::run_query::Take,
    types::Type,
    value::{Value, datetime, zone::Zone},
};

/// A function that returns rows, once the types of its arguments are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetFunction {
    /// `generate_series`: from, to, by; of times by the clocks of a zone, if it is `zoned`
    Series { zoned: bool },
    /// `generate_subscripts`
    Subscripts,
    /// `unnest` of one array or several
    Unnest,
}

/// What a function is that returns rows.
pub(crate) struct ResolvedSet {
    pub(crate) function: SetFunction,
    /// The types that it wants its arguments in.
    pub(crate) wanted: Vec<Type>,
    /// Its columns; one without a name has that of the function.
    pub(crate) columns: Vec<(&'static str, Type)>,
}

/// The function of a name for arguments of these types.
pub(crate) fn resolve(name: &str, arguments: &[Type]) -> Option<ResolvedSet> {
    use SetFunction as F;
    use Type::Int4;
    Some(match (name, arguments) {
        ("generate_series", arguments) => {
            let (of, by) = series_types(arguments)?;
            let wanted = [of, of, by][..arguments.len()].to_vec();
            ResolvedSet { function: F::Series { zoned: of == Type::Timestamptz }, wanted, columns: vec![("", of)] }
        }
        ("generate_subscripts", [array, n] | [array, n, Type::Bool]) if array.element().is_some() && n.is_integer() => {
            let wanted = [*array, Int4, Type::Bool][..arguments.len()].to_vec();
            ResolvedSet { function: F::Subscripts, wanted, columns: vec![("", Int4)] }
        }
        ("unnest", arrays) if !arrays.is_empty() => {
            let columns = arrays.iter().map(|of| Some(("", of.element()?))).collect::<Option<Vec<_>>>()?;
            ResolvedSet { function: F::Unnest, wanted: arrays.to_vec(), columns }
        }
        _ => return None,
    })
}

/// Whether a function of this name returns rows.
pub(crate) fn is_name(name: &str) -> bool {
    matches!(name, "generate_series" | "generate_subscripts" | "unnest")
}

/// The type of the values of `generate_series`, and that of the step between.
fn series_types(arguments: &[Type]) -> Option<(Type, Type)> {
    use Type::{Date, Int4, Int8, Interval, Numeric, Timestamp, Timestamptz, Unknown};
    let known = arguments.iter().copied().filter(|of| *of != Unknown);
    match arguments {
        [_, _] | [_, _, Int4 | Int8 | Type::Int2 | Numeric(_)] if known.clone().all(Type::is_number) => {
            let widest = known.max_by_key(|of| of.number_rank()).unwrap_or(Int4);
            match widest {
                Type::Int2 | Int4 => Some((Int4, Int4)),
                Int8 => Some((Int8, Int8)),
                Numeric(_) => Some((Numeric(None), Numeric(None))),
                _ => None,
            }
        }
        [Timestamp | Unknown, Timestamp | Unknown, Interval | Unknown] if arguments.contains(&Timestamp) => {
            Some((Timestamp, Interval))
        }
        [Date | Timestamp | Timestamptz | Unknown, Date | Timestamp | Timestamptz | Unknown, Interval | Unknown] => {
            Some((Timestamptz, Interval))
        }
        _ => None,
    }
}

impl SetFunction {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Series { .. } => "generate_series",
            Self::Subscripts => "generate_subscripts",
            Self::Unnest => "unnest",
        }
    }

    /// Gives its rows to `take`.
    pub(crate) fn rows(self, arguments: &[Value], zone: Zone, take: &mut Take<'_>) -> Result<()> {
        match (self, arguments) {
            (Self::Series { zoned }, arguments) => series(arguments, if zoned { zone } else { Zone::UTC }, take),
            (Self::Subscripts, [Value::Array(array), Value::Int(n), reverse @ ..]) => {
                let dimension = n.checked_sub(1).and_then(|at| array.dimensions.get(usize::try_from(at).ok()?));
                let Some(dimension) = dimension else { return Ok(()) };
                let lower = i64::from(dimension.lower);
                let last = lower + dimension.length as i64 - 1;
                let reverse = matches!(reverse, [Value::Bool(true)]);
                for at in 0..dimension.length as i64 {
                    let subscript = if reverse { last - at } else { lower + at };
                    if take(vec![Value::Int(subscript)])? == ControlFlow::Break(()) {
                        break;
                    }
                }
                Ok(())
            }
            (Self::Unnest, arrays) => {
                let elements = |array: &Value| match array {
                    Value::Array(array) => array.elements.len(),
                    _ => 0,
                };
                let length = arrays.iter().map(elements).max().unwrap_or(0);
                let element = |array: &Value, at: usize| match array {
                    Value::Array(array) => array.elements.get(at).cloned().unwrap_or(Value::Null),
                    _ => Value::Null,
                };
                for at in 0..length {
                    if take(arrays.iter().map(|array| element(array, at)).collect())? == ControlFlow::Break(()) {
                        break;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The rows of `generate_series`: from, to, by.
fn series(values: &[Value], zone: Zone, take: &mut Take<'_>) -> Result<()> {
    let zero = || SqlError::new(state::INVALID_PARAMETER_VALUE, "step size cannot equal zero");
    let one = Value::Int(1);
    let (mut at, end, step) = match values {
        [at @ Value::Numeric(_), end] if !end.is_null() => (at.clone(), end, &Value::Numeric(1.into())),
        [at, end] if !at.is_null() && !end.is_null() => (at.clone(), end, &one),
        [at, end, step] if !at.is_null() && !end.is_null() && !step.is_null() => (at.clone(), end, step),
        _ => return Ok(()),
    };
    let up = match step {
        Value::Int(0) => return Err(zero()),
        Value::Int(step) => *step > 0,
        Value::Numeric(step) if step.is_zero() => return Err(zero()),
        Value::Numeric(step) => *step > bigdecimal::BigDecimal::zero(),
        Value::Interval(step) if step.length() == 0 => return Err(zero()),
        Value::Interval(step) => step.length() > 0,
        other => return Err(SqlError::internal(format_args!("a series by {other:?}"))),
    };
    loop {
        let order = at.compare(end);
        if if up { order.is_gt() } else { order.is_lt() } || take(vec![at.clone()])?.is_break() {
            return Ok(());
        }
        at = match (&at, step) {
            (Value::Int(at), Value::Int(step)) => match at.checked_add(*step) {
                Some(next) => Value::Int(next),
                None => return Ok(()),
            },
            (Value::Numeric(at), Value::Numeric(step)) => Value::Numeric(at + step),
            (Value::Timestamp(at), Value::Interval(step)) => Value::Timestamp(datetime::add_in(zone, *at, *step)?),
            (at, step) => return Err(SqlError::internal(format_args!("a series of {at:?} by {step:?}"))),
        };
    }
}
