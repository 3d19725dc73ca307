//! Aggregates: from the values of many rows to one.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeSet};

use bigdecimal::{BigDecimal, Signed};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    memory::ALLOCATION,
    types::Type,
    value::{NonFinite, Value, numeric, size, style::Style, zone::Zone},
};

use crate::{
    expression::{
        Env, Expr, Facts, Operator,
        arithmetic::arithmetic,
        ordered_set,
        regression::{Pairs, Regression},
        rows::{compare, fingerprint, sort_while},
    },
    function::{ArrayFunction, JsonFunction},
};

/// What is computed.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
    BoolAnd,
    BoolOr,
    StringAgg,
    /// `variance` and `stddev`
    Spread {
        /// Of all values there are, not of a sample.
        whole: bool,
        root: bool,
    },
    /// Of arrays, if it is `nested`.
    ArrayAgg {
        nested: bool,
    },
    /// Of pairs of numbers, whose second is beside.
    Regression(Regression),
    /// `percentile_cont`, or `percentile_disc`; of several fractions, if they are an `array`.
    Percentile {
        continuous: bool,
        array: bool,
    },
    /// `mode`
    Mode,
    /// `jsonb_agg`, `json_agg`
    JsonAgg {
        binary: bool,
        /// Whether each element has a line of its own, as arrays and rows have in a `json`.
        lines: bool,
    },
    /// `jsonb_object_agg`, `json_object_agg`
    JsonObjectAgg {
        binary: bool,
    },
}

impl Kind {
    /// Whether it puts values together, in an order.
    fn collects(self) -> bool {
        self.is_ordered()
            || matches!(
                self,
                Self::StringAgg | Self::ArrayAgg { .. } | Self::JsonAgg { .. } | Self::JsonObjectAgg { .. }
            )
    }

    /// Whether it is of values in the order that `WITHIN GROUP` says.
    fn is_ordered(self) -> bool {
        matches!(self, Self::Percentile { .. } | Self::Mode)
    }

    /// Whether it does not see NULL.
    fn skips_null(self) -> bool {
        !self.collects() || self.is_ordered() || self == Self::StringAgg
    }
}

/// What values are sorted by.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub struct SortExpr {
    pub expr: Expr,
    pub descending: bool,
    pub nulls_first: bool,
}

/// One aggregate of a SELECT.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    pub kind: Kind,
    /// `None` for `count(*)`.
    pub argument: Option<Expr>,
    /// What stands between texts that are put together; the key of a member of an object; the second number of a pair.
    pub beside: Option<Expr>,
    /// The order in which values are put together; it makes no difference to the others.
    pub(crate) order: Vec<SortExpr>,
    pub distinct: bool,
    pub filter: Option<Expr>,
    /// Its own type.
    pub(crate) of: Type,
}

impl Aggregate {
    /// Its expressions over the rows that it is computed of.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order.iter().map(|order| &order.expr);
        self.argument.iter().chain(&self.filter).chain(&self.beside).chain(order)
    }

    /// Whether values that were taken can be taken out again, as if they had never been there: exact sums. Those of floats depend on their order.
    pub fn is_invertible(&self) -> bool {
        let exact = match (self.kind, self.of) {
            (Kind::Count, _) => true,
            (Kind::Sum | Kind::Avg, of) => matches!(of, Type::Int8 | Type::Numeric(_)),
            _ => false,
        };
        exact && !self.distinct && !self.expressions().any(|expr| expr.is_volatile() || expr.asks())
    }

    /// Its expressions, to be changed.
    pub(crate) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let order = self.order.iter_mut().map(|order| &mut order.expr);
        self.argument.iter_mut().chain(&mut self.filter).chain(&mut self.beside).chain(order)
    }
}

/// The aggregate of a name over values of a type: what it is, the type that it wants, and its own.
pub(crate) fn resolve(name: &str, argument: Type) -> Option<(Kind, Type, Type)> {
    use Type::{Bool, Float4, Float8, Int2, Int4, Int8, Interval, Numeric};
    let exact = Numeric(None);
    Some(match (name, argument) {
        ("count", of) => (Kind::Count, of, Int8),
        ("min", of) | ("max", of) if has_extremes(of) => {
            let of = match of {
                Type::Unknown | Type::Varchar(_) | Type::Byte => Type::Text,
                Type::Cidr => Type::Inet,
                of => of.unbounded(),
            };
            (if name == "min" { Kind::Min } else { Kind::Max }, of, of)
        }
        ("sum", Int2 | Int4) => (Kind::Sum, Int8, Int8),
        ("sum", Int8 | Numeric(_)) => (Kind::Sum, exact, exact),
        ("sum", Float4) => (Kind::Sum, Float4, Float4),
        ("sum", Float8) => (Kind::Sum, Float8, Float8),
        ("sum", Interval) => (Kind::Sum, Interval, Interval),
        ("avg", Int2 | Int4 | Int8 | Numeric(_)) => (Kind::Avg, exact, exact),
        ("avg", Float4 | Float8) => (Kind::Avg, Float8, Float8),
        ("avg", Interval) => (Kind::Avg, Interval, Interval),
        ("bool_and" | "every", Bool) => (Kind::BoolAnd, Bool, Bool),
        ("bool_or", Bool) => (Kind::BoolOr, Bool, Bool),
        ("variance" | "var_samp" | "var_pop" | "stddev" | "stddev_samp" | "stddev_pop", of) if of.is_number() => {
            let of = if matches!(of, Float4 | Float8) { Float8 } else { exact };
            (Kind::Spread { whole: name.ends_with("_pop"), root: name.starts_with("stddev") }, of, of)
        }
        ("bit_and", of @ (Int2 | Int4 | Int8)) => (Kind::BitAnd, of, of),
        ("bit_or", of @ (Int2 | Int4 | Int8)) => (Kind::BitOr, of, of),
        ("bit_xor", of @ (Int2 | Int4 | Int8)) => (Kind::BitXor, of, of),
        ("array_agg", of) => {
            let element = if of == Type::Unknown { Type::Text } else { of };
            (Kind::ArrayAgg { nested: of.element().is_some() }, element, element.array()?)
        }
        _ => return None,
    })
}

/// Whether there are `min` and `max` of a type.
fn has_extremes(of: Type) -> bool {
    !matches!(of, Type::Bool | Type::Record | Type::Composite(_) | Type::Macaddr | Type::Macaddr8)
        && !of.is_bits()
        && !of.is_range()
}

/// Whether a name is that of an aggregate.
pub(crate) fn is_name(name: &str) -> bool {
    matches!(
        name,
        "count"
            | "sum"
            | "avg"
            | "min"
            | "max"
            | "bool_and"
            | "bool_or"
            | "every"
            | "string_agg"
            | "bit_and"
            | "bit_or"
            | "bit_xor"
            | "variance"
            | "var_samp"
            | "var_pop"
            | "stddev"
            | "stddev_samp"
            | "stddev_pop"
            | "array_agg"
            | "percentile_cont"
            | "percentile_disc"
            | "mode"
            | "json_agg"
            | "jsonb_agg"
            | "json_object_agg"
            | "jsonb_object_agg"
    ) || Regression::named(name).is_some()
}

/// An aggregate on the way.
#[derive(Clone, Debug, Default)]
pub struct State {
    count: i64,
    value: Option<Value>,
    /// How many of the values have as many digits behind the point as their sum.
    widest: i64,
    /// Texts of the values that were counted, for DISTINCT.
    seen: BTreeSet<Vec<u8>>,
    /// The sum of squares; for floats of the distances from the mean.
    squares: Option<Value>,
    pairs: Option<Box<Pairs>>,
    /// Values to be put together.
    pieces: Vec<Piece>,
    /// Bytes of these.
    collected: usize,
    /// Bytes of all that it keeps, but for a value of fixed size.
    bytes: usize,
}

/// A value, what belongs to it, and what it is sorted by.
#[derive(Clone, Debug)]
struct Piece {
    order: Vec<Value>,
    beside: Value,
    value: Value,
}

/// Bytes of values that are put together.
const COLLECTED_BYTES_MAX: usize = 64 << 20;

impl State {
    /// Takes a row's value.
    pub fn add(&mut self, aggregate: &Aggregate, env: Env<'_>) -> Result<()> {
        if let Some(filter) = &aggregate.filter
            && !filter.holds(env)?
        {
            return Ok(());
        }
        let Some(argument) = &aggregate.argument else {
            self.count += 1;
            return Ok(());
        };
        let value = argument.value(env)?;
        if value.is_null() && aggregate.kind.skips_null() {
            return Ok(());
        }
        if aggregate.distinct {
            let seen = fingerprint([&*value])?;
            // Half of the places in the tree may be free, and half of the bytes.
            let bytes = 2 * (size_of::<Vec<u8>>() + seen.len()) + ALLOCATION;
            if !self.seen.insert(seen) {
                return Ok(());
            }
            self.bytes += bytes;
        }
        self.count += 1;
        let value = value.into_owned();
        if aggregate.kind.collects() {
            return self.add_piece(aggregate, value, env);
        }
        if let Kind::Spread { .. } = aggregate.kind {
            return self.add_spread(value);
        }
        if let Kind::Regression(_) = aggregate.kind {
            let beside = aggregate.beside.as_ref().map_or(Ok(Value::Null), |beside| beside.owned(env))?;
            return match (value, beside) {
                (Value::Float(y), Value::Float(x)) => self.pairs.get_or_insert_default().add(y, x),
                _ => Ok(()),
            };
        }
        if let Value::Numeric(value) = &value {
            self.count_widest(value);
        }
        let before = match (aggregate.kind, self.value.take()) {
            (Kind::Count, _) => return Ok(()),
            (_, None) => {
                self.value = Some(value);
                return Ok(());
            }
            (_, Some(before)) => before,
        };
        self.value = Some(match aggregate.kind {
            Kind::Min => {
                if value.compare(&before).is_lt() {
                    value
                } else {
                    before
                }
            }
            Kind::Max => {
                if value.compare(&before).is_gt() {
                    value
                } else {
                    before
                }
            }
            Kind::BitAnd | Kind::BitOr | Kind::BitXor => match (&before, &value) {
                (Value::Int(a), Value::Int(b)) => Value::Int(match aggregate.kind {
                    Kind::BitAnd => a & b,
                    Kind::BitOr => a | b,
                    _ => a ^ b,
                }),
                _ => before,
            },
            Kind::BoolAnd => Value::Bool(before == Value::Bool(true) && value == Value::Bool(true)),
            Kind::BoolOr => Value::Bool(before == Value::Bool(true) || value == Value::Bool(true)),
            Kind::Sum | Kind::Avg => sum(before, value)?,
            _ => before,
        });
        Ok(())
    }

    /// Notes a value before it is added.
    fn count_widest(&mut self, value: &BigDecimal) {
        let digits = value.fractional_digit_count();
        self.widest = match &self.value {
            Some(Value::Numeric(sum)) => match digits.cmp(&sum.fractional_digit_count()) {
                Ordering::Less => self.widest,
                Ordering::Equal => self.widest + 1,
                Ordering::Greater => 1,
            },
            _ => 1,
        };
    }

    /// Takes out what a row had added, if the aggregate is invertible. `false` if all others have to be added anew.
    pub fn remove(&mut self, aggregate: &Aggregate, env: Env<'_>) -> Result<bool> {
        if let Some(filter) = &aggregate.filter
            && !filter.holds(env)?
        {
            return Ok(true);
        }
        let value = match &aggregate.argument {
            Some(argument) => argument.value(env)?,
            None => Cow::Owned(Value::Bool(true)),
        };
        if value.is_null() {
            return Ok(true);
        }
        if aggregate.kind != Kind::Count {
            let rest = match (&self.value, &*value) {
                (Some(Value::Int(sum)), Value::Int(value)) => sum.checked_sub(*value).map(Value::Int),
                (Some(Value::Numeric(sum)), Value::Numeric(value)) => {
                    let widest = value.fractional_digit_count() == sum.fractional_digit_count();
                    self.widest -= i64::from(widest);
                    // Without it the sum may have fewer digits.
                    (self.widest > 0).then(|| numeric::difference(sum, value)).transpose()?.map(Value::Numeric)
                }
                _ => None,
            };
            let Some(rest) = rest else { return Ok(false) };
            self.value = Some(rest);
        }
        self.count -= 1;
        if self.count == 0 {
            *self = Self::default();
        }
        Ok(true)
    }

    /// Bytes of what it keeps.
    pub fn bytes(&self) -> usize {
        let value = self.value.as_ref().filter(|value| value.is_large());
        self.bytes + value.map_or(0, Value::bytes)
    }

    /// Takes a value into the sums of `variance`.
    fn add_spread(&mut self, value: Value) -> Result<()> {
        let (sum, squares) = match (self.value.take(), self.squares.take(), value) {
            (Some(Value::Float(sum)), Some(Value::Float(squares)), Value::Float(value)) => {
                // As Youngs and Cramer do, and PostgreSQL.
                let count = self.count as f64;
                let sum = sum + value;
                let distance = value * count - sum;
                (Value::Float(sum), Value::Float(squares + distance * distance / (count * (count - 1.0))))
            }
            (_, _, Value::Float(value)) => {
                let squares = if value.is_finite() { 0.0 } else { f64::NAN };
                (Value::Float(value), Value::Float(squares))
            }
            (Some(Value::Numeric(sum)), Some(Value::Numeric(squares)), Value::Numeric(value)) => (
                Value::Numeric(numeric::sum(&sum, &value)?),
                Value::Numeric(numeric::sum(&squares, &numeric::product(&value, &value)?)?),
            ),
            (None, _, Value::Numeric(value)) => {
                let squares = numeric::product(&value, &value)?;
                (Value::Numeric(value), Value::Numeric(squares))
            }
            (_, _, Value::NonFinite(_) | Value::Numeric(_)) => {
                (Value::NonFinite(NonFinite::NaN), Value::NonFinite(NonFinite::NaN))
            }
            (_, _, other) => return Err(SqlError::internal(format_args!("the variance of {other:?}"))),
        };
        (self.value, self.squares) = (Some(sum), Some(squares));
        Ok(())
    }

    fn spread(&self, whole: bool, root: bool) -> Result<Value> {
        if self.count < if whole { 1 } else { 2 } {
            return Ok(Value::Null);
        }
        let divisor = if whole { self.count } else { self.count - 1 };
        Ok(match (&self.value, &self.squares) {
            (Some(Value::Float(_)), Some(Value::Float(squares))) => {
                let variance = squares / divisor as f64;
                Value::Float(if root { variance.sqrt() } else { variance })
            }
            (Some(Value::Numeric(sum)), Some(Value::Numeric(squares))) => {
                let count = BigDecimal::from(self.count);
                let distance = numeric::checked(numeric::product(squares, &count)? - numeric::product(sum, sum)?)?;
                if !distance.is_positive() {
                    return Ok(Value::Numeric(BigDecimal::from(0)));
                }
                let variance =
                    numeric::divide(&distance, &BigDecimal::from(i128::from(self.count) * i128::from(divisor)))?;
                Value::Numeric(if root { numeric::square_root(&variance) } else { variance })
            }
            (Some(nan @ Value::NonFinite(_)), _) => nan.clone(),
            _ => Value::Null,
        })
    }

    fn add_piece(&mut self, aggregate: &Aggregate, value: Value, env: Env<'_>) -> Result<()> {
        let beside = aggregate.beside.as_ref().map_or(Ok(Value::Null), |beside| beside.owned(env))?;
        let order = aggregate.order.iter().map(|order| order.expr.owned(env)).collect::<Result<Vec<_>>>()?;
        let bytes = size_of::<Piece>() + beside.bytes() + value.bytes() + order.iter().map(Value::bytes).sum::<usize>();
        // Their list may double, and sorting needs another one.
        self.bytes += bytes + 2 * size_of::<Piece>();
        self.collected += bytes;
        if self.collected > COLLECTED_BYTES_MAX {
            let message = format!("an aggregate puts at most {} MiB together", COLLECTED_BYTES_MAX >> 20);
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        self.pieces.push(Piece { order, beside, value });
        Ok(())
    }

    fn together(mut self, aggregate: &Aggregate, goes_on: &dyn Fn() -> Result<()>) -> Result<Value> {
        if self.pieces.is_empty() {
            return Ok(Value::Null);
        }
        if aggregate.distinct && aggregate.order.is_empty() {
            sort_while(&mut self.pieces, |a, b| a.value.compare(&b.value), goes_on)?;
        }
        let by_order = |a: &Piece, b: &Piece| {
            let both = a.order.iter().zip(&b.order).zip(&aggregate.order);
            let mut orders = both.map(|((a, b), order)| compare(a, b, order.descending, order.nulls_first));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        if !aggregate.order.is_empty() {
            sort_while(&mut self.pieces, by_order, goes_on)?;
        }
        let values = self.pieces.iter().map(|piece| &piece.value);
        match aggregate.kind {
            Kind::Percentile { continuous, .. } => {
                let values: Vec<&Value> = values.collect();
                ordered_set::percentiles(&values, &self.pieces[0].beside, continuous)
            }
            Kind::Mode => Ok(ordered_set::mode(&values.collect::<Vec<_>>())),
            Kind::ArrayAgg { nested: true } if values.clone().any(Value::is_null) => {
                Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "cannot accumulate null arrays"))
            }
            Kind::ArrayAgg { nested: true }
                if values.clone().any(|value| matches!(value, Value::Array(array) if array.elements.is_empty())) =>
            {
                Err(SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, "cannot accumulate empty arrays"))
            }
            Kind::ArrayAgg { nested } => {
                ArrayFunction::Make { nested }.call(&values.collect::<Vec<_>>(), &Facts::default())
            }
            Kind::JsonAgg { lines: true, .. } => {
                let shown = values.map(|value| if let Value::Text(text) = value { text.as_str() } else { "null" });
                Ok(Value::Text(format!("[{}]", size::joined(shown.map(Ok), ", \n ")?)))
            }
            Kind::JsonAgg { binary, .. } => {
                JsonFunction::Array { binary }.call(&values.collect::<Vec<_>>(), Style::PLAIN)
            }
            Kind::JsonObjectAgg { binary } => {
                let members: Vec<&Value> = self.pieces.iter().flat_map(|piece| [&piece.beside, &piece.value]).collect();
                let object = JsonFunction::Object { binary }.call(&members, Style::PLAIN)?;
                match object {
                    // With blanks, as PostgreSQL writes it.
                    Value::Text(text) => Ok(Value::Text(format!("{{ {} }}", &text[1..text.len() - 1]))),
                    object => Ok(object),
                }
            }
            _ => {
                let mut whole = size::Text::default();
                for (at, piece) in self.pieces.iter().enumerate() {
                    if let (Value::Text(delimiter), true) = (&piece.beside, at > 0) {
                        whole.push_str(delimiter)?;
                    }
                    if let Value::Text(text) = &piece.value {
                        whole.push_str(text)?;
                    }
                }
                Ok(Value::Text(whole.finish()))
            }
        }
    }

    /// What came of it. `goes_on` is asked while it takes long.
    pub fn finish(self, aggregate: &Aggregate, goes_on: &dyn Fn() -> Result<()>) -> Result<Value> {
        if aggregate.kind.collects() {
            return self.together(aggregate, goes_on);
        }
        if let Kind::Spread { whole, root } = aggregate.kind {
            return self.spread(whole, root);
        }
        if let Kind::Regression(what) = aggregate.kind {
            return Ok(self.pairs.unwrap_or_default().finish(what));
        }
        Ok(match (aggregate.kind, self.value) {
            (Kind::Count, _) => Value::Int(self.count),
            (_, None) => Value::Null,
            (Kind::Avg, Some(Value::Numeric(sum))) => {
                Value::Numeric(numeric::divide(&sum, &BigDecimal::from(self.count))?)
            }
            (Kind::Avg, Some(sum @ Value::Interval(_))) => {
                arithmetic(Operator::Divide, Type::Interval, &sum, &Value::Float(self.count as f64), Zone::UTC)?
            }
            (Kind::Avg, Some(Value::Float(sum))) => Value::Float(sum / self.count as f64),
            (Kind::Sum, Some(sum @ Value::Float(_))) if aggregate.of == Type::Float4 => {
                arithmetic(Operator::Add, Type::Float4, &sum, &Value::Float(0.0), Zone::UTC)?
            }
            (_, Some(value)) => value,
        })
    }
}

fn sum(a: Value, b: Value) -> Result<Value> {
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(
            a.checked_add(b).ok_or_else(|| SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))?,
        ),
        (a @ Value::Float(_), b @ Value::Float(_)) => arithmetic(Operator::Add, Type::Float8, &a, &b, Zone::UTC)?,
        (Value::Numeric(a), Value::Numeric(b)) => Value::Numeric(numeric::sum(&a, &b)?),
        (Value::Interval(a), Value::Interval(b)) => {
            let sums = (a.months.checked_add(b.months), a.days.checked_add(b.days), a.micros.checked_add(b.micros));
            let (Some(months), Some(days), Some(micros)) = sums else {
                return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, "interval out of range"));
            };
            Value::Interval(savanna_tenants_values::value::Interval { months, days, micros })
        }
        (a @ (Value::NonFinite(_) | Value::Numeric(_)), b) => {
            arithmetic(Operator::Add, Type::Numeric(None), &a, &b, Zone::UTC)?
        }
        (a, b) => return Err(SqlError::internal(format_args!("a sum of {a:?} and {b:?}"))),
    })
}
