//! Functions and operators of ranges.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::{Ranged, Type},
    value::{
        Value,
        cast::{Ease, ease},
        range::{Bound, Range},
    },
};

use super::{Resolved, is_texty, wrong_arguments};

/// A function of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeFunction {
    After,
    Adjacent,
    Before,
    BeginsWithin,
    Contains,
    Difference(Ranged),
    EndsWithin,
    /// Whether a value is in it
    Has,
    Intersection,
    IsEmpty,
    Lower,
    LowerInclusive,
    LowerInfinite,
    /// `int4range(..)` and the like
    Make(Ranged),
    Merge,
    Overlaps,
    Union,
    Upper,
    UpperInclusive,
    UpperInfinite,
    /// Whether all of it is in another
    Within,
    /// Whether a value is in a range
    ValueWithin,
}

/// The function of ranges of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<RangeFunction>> {
    use RangeFunction as F;
    use Type::{Bool, Text, Unknown};
    if let Some(of) = Ranged::of_name(name) {
        let element = of.element();
        let (bounds, flags) = arguments.split_at_checked(2)?;
        let fits = bounds.iter().all(|of| ease(*of, element) == Some(Ease::Implicit));
        let known = flags.len() < 2 && flags.iter().all(is_texty);
        let wanted = [element, element, Text][..arguments.len().min(3)].to_vec();
        return (fits && known).then_some((F::Make(of), wanted, Type::Range(of)));
    }
    let of = arguments.iter().find_map(|of| if let Type::Range(of) = of { Some(*of) } else { None })?;
    let (range, element) = (Type::Range(of), of.element());
    let is_range = |of: &Type| *of == range || *of == Unknown;
    let is_value = |of: &Type| of.unbounded() == element;
    Some(match (name, arguments) {
        ("lower", [_]) => (F::Lower, vec![range], element),
        ("upper", [_]) => (F::Upper, vec![range], element),
        ("isempty", [_]) => (F::IsEmpty, vec![range], Bool),
        ("lower_inc", [_]) => (F::LowerInclusive, vec![range], Bool),
        ("upper_inc", [_]) => (F::UpperInclusive, vec![range], Bool),
        ("lower_inf", [_]) => (F::LowerInfinite, vec![range], Bool),
        ("upper_inf", [_]) => (F::UpperInfinite, vec![range], Bool),
        ("range_merge", [a, b]) if is_range(a) && is_range(b) => (F::Merge, vec![range; 2], range),
        ("@>" | "<@" | "&&" | "<<" | ">>" | "&<" | "&>" | "-|-", [a, b]) if is_range(a) && is_range(b) => {
            let function = match name {
                "@>" => F::Contains,
                "<@" => F::Within,
                "&&" => F::Overlaps,
                "<<" => F::Before,
                ">>" => F::After,
                "&<" => F::EndsWithin,
                "&>" => F::BeginsWithin,
                _ => F::Adjacent,
            };
            (function, vec![range; 2], Bool)
        }
        ("@>", [a, b]) if *a == range && is_value(b) => (F::Has, vec![range, element], Bool),
        ("<@", [a, b]) if *b == range && is_value(a) => (F::ValueWithin, vec![element, range], Bool),
        ("+" | "*" | "-", [a, b]) if is_range(a) && is_range(b) => {
            let function = match name {
                "+" => F::Union,
                "*" => F::Intersection,
                _ => F::Difference(of),
            };
            (function, vec![range; 2], range)
        }
        _ => return None,
    })
}

impl RangeFunction {
    /// Whether it is NULL as soon as one of its arguments is. A bound that is NULL is none.
    pub(super) fn is_strict(self) -> bool {
        !matches!(self, Self::Make(_))
    }

    /// Its value.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        let range = |range: Range| Value::Range(Box::new(range));
        Ok(match (self, arguments) {
            (Self::Make(of), [lower, upper, flags @ ..]) => {
                let (lower_inclusive, upper_inclusive) = inclusions(flags.first().copied())?;
                let bound =
                    |value: &Value, inclusive| Bound { value: (!value.is_null()).then(|| value.clone()), inclusive };
                range(Range::new(bound(lower, lower_inclusive), bound(upper, upper_inclusive), of)?)
            }
            (_, [Value::Range(of)]) => self.of_one(of),
            (Self::Has, [Value::Range(of), value]) | (Self::ValueWithin, [value, Value::Range(of)]) => {
                Value::Bool(of.has(value))
            }
            (Self::Union, [Value::Range(a), Value::Range(b)]) => range(a.union(b)?),
            (Self::Intersection, [Value::Range(a), Value::Range(b)]) => range(a.intersection(b)),
            (Self::Difference(of), [Value::Range(a), Value::Range(b)]) => range(a.difference(b, of)?),
            (Self::Merge, [Value::Range(a), Value::Range(b)]) => range(a.merged(b)),
            (_, [Value::Range(a), Value::Range(b)]) => Value::Bool(match self {
                Self::Contains => a.contains(b),
                Self::Within => b.contains(a),
                Self::Overlaps => a.overlaps(b),
                Self::Before => a.is_before(b),
                Self::After => b.is_before(a),
                Self::EndsWithin => a.ends_within(b),
                Self::BeginsWithin => a.begins_within(b),
                Self::Adjacent => a.is_adjacent(b),
                _ => return Err(wrong_arguments(self)),
            }),
            _ => return Err(wrong_arguments(self)),
        })
    }

    fn of_one(self, of: &Range) -> Value {
        let Range::Between(lower, upper) = of else {
            return match self {
                Self::Lower | Self::Upper => Value::Null,
                _ => Value::Bool(self == Self::IsEmpty),
            };
        };
        let value = |bound: &Bound| bound.value.clone().unwrap_or(Value::Null);
        match self {
            Self::Lower => value(lower),
            Self::Upper => value(upper),
            Self::LowerInclusive => Value::Bool(lower.inclusive),
            Self::UpperInclusive => Value::Bool(upper.inclusive),
            Self::LowerInfinite => Value::Bool(lower.value.is_none()),
            Self::UpperInfinite => Value::Bool(upper.value.is_none()),
            _ => Value::Bool(false),
        }
    }
}

/// Which bounds belong to a range, as `[)` says it.
fn inclusions(flags: Option<&Value>) -> Result<(bool, bool)> {
    let wrong = |message: &str| Err(SqlError::new(state::SYNTAX_ERROR, message));
    match flags {
        None => Ok((true, false)),
        Some(Value::Null) => {
            let message = "range constructor flags argument must not be null";
            Err(SqlError::new("22000", message))
        }
        Some(Value::Text(flags)) => match flags.as_str() {
            "[]" => Ok((true, true)),
            "[)" => Ok((true, false)),
            "(]" => Ok((false, true)),
            "()" => Ok((false, false)),
            _ => wrong("invalid range bound flags"),
        },
        _ => wrong("invalid range bound flags"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_are_null_are_none_and_their_flags_are_read() {
        let make = |flags: &str| {
            let flags = Value::Text(flags.to_owned());
            RangeFunction::Make(Ranged::Num).call(&[&Value::Null, &Value::Null, &flags])
        };
        let unbounded = Bound { value: None, inclusive: false };
        let all = Value::Range(Box::new(Range::Between(unbounded.clone(), unbounded)));
        assert_eq!((make("[]"), make("()")), (Ok(all.clone()), Ok(all)));
        assert_eq!(make("[").unwrap_err().state, state::SYNTAX_ERROR);
        let null = RangeFunction::Make(Ranged::Num).call(&[&Value::Null, &Value::Null, &Value::Null]);
        assert_eq!(null.unwrap_err().state, "22000");
    }
}
