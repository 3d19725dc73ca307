//! Functions and operators of multiranges. What ranges and values are compared with these is made one first.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::{Ranged, Type},
    value::{
        Value,
        multirange::Multirange,
        range::{Bound, Range},
    },
};

use super::{RangeFunction, Resolved, wrong_arguments};

/// A function of multiranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultirangeFunction {
    Contains,
    Within,
    Overlaps,
    Union,
    Intersection,
    Difference(Ranged),
    /// What is asked of the smallest range that has it all in it, or of both.
    OfSpan(RangeFunction),
    /// That range itself
    Merge,
    /// `int4multirange(..)`, `multirange(..)`, of a range or an array of them
    Make,
    /// `int4multirange(..)` of several ranges, none of which may be missing
    Gather,
}

/// The function of multiranges of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<MultirangeFunction>> {
    use MultirangeFunction as F;
    use Type::{Bool, Unknown};
    if let Some(of) = Ranged::of_multirange_name(name) {
        let (range, multirange) = (Type::Range(of), Type::Multirange(of));
        // A text alone is that of a multirange.
        if let [Unknown] = arguments {
            return Some((F::Make, vec![multirange], multirange));
        }
        let fits = arguments.iter().all(|given| *given == range || *given == Unknown);
        let function = if arguments.len() > 1 { F::Gather } else { F::Make };
        return fits.then(|| (function, vec![range; arguments.len()], multirange));
    }
    if let ("multirange", [Type::Range(of)]) = (name, arguments) {
        return Some((F::Make, vec![Type::Range(*of)], Type::Multirange(*of)));
    }
    let of = arguments.iter().find_map(|of| if let Type::Multirange(of) = of { Some(*of) } else { None })?;
    let (multirange, range, element) = (Type::Multirange(of), Type::Range(of), of.element());
    let asked = |function, of| Some((F::OfSpan(function), vec![multirange], of));
    let whole = |given: Type| if given == Unknown { multirange } else { given };
    match (name, arguments) {
        ("lower", [_]) => asked(RangeFunction::Lower, element),
        ("upper", [_]) => asked(RangeFunction::Upper, element),
        ("isempty", [_]) => asked(RangeFunction::IsEmpty, Bool),
        ("lower_inc", [_]) => asked(RangeFunction::LowerInclusive, Bool),
        ("upper_inc", [_]) => asked(RangeFunction::UpperInclusive, Bool),
        ("lower_inf", [_]) => asked(RangeFunction::LowerInfinite, Bool),
        ("upper_inf", [_]) => asked(RangeFunction::UpperInfinite, Bool),
        ("range_merge", [_]) => Some((F::Merge, vec![multirange], range)),
        ("+" | "*" | "-", [a, b]) if whole(*a) == multirange && whole(*b) == multirange => {
            let function = match name {
                "+" => F::Union,
                "*" => F::Intersection,
                _ => F::Difference(of),
            };
            Some((function, vec![multirange; 2], multirange))
        }
        (sign, [a, b]) => {
            let (a, b) = (whole(*a), whole(*b));
            let is_set = |given: Type| given == multirange || given == range;
            let is_value = |given: Type| given.unbounded() == element;
            let function = match sign {
                "@>" if is_set(a) && (is_set(b) || is_value(b)) => F::Contains,
                "<@" if is_set(b) && (is_set(a) || is_value(a)) => F::Within,
                _ if !is_set(a) || !is_set(b) => return None,
                "&&" => F::Overlaps,
                "<<" => F::OfSpan(RangeFunction::Before),
                ">>" => F::OfSpan(RangeFunction::After),
                "&<" => F::OfSpan(RangeFunction::EndsWithin),
                "&>" => F::OfSpan(RangeFunction::BeginsWithin),
                "-|-" => F::OfSpan(RangeFunction::Adjacent),
                _ => return None,
            };
            Some((function, vec![a.unbounded(), b.unbounded()], Bool))
        }
        _ => None,
    }
}

impl MultirangeFunction {
    /// Whether it is NULL as soon as one of its arguments is.
    pub(super) fn is_strict(self) -> bool {
        self != Self::Gather
    }

    /// Its value.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        let made = |multirange: Multirange| Value::Multirange(Box::new(multirange));
        let sets = arguments.iter().map(|value| set(value)).collect::<Result<Vec<_>>>()?;
        Ok(match (self, sets.as_slice()) {
            (Self::Make | Self::Gather, sets) => {
                made(Multirange::new(sets.iter().flat_map(|set| set.ranges().iter().cloned()).collect()))
            }
            (Self::Merge, [of]) => Value::Range(Box::new(of.span())),
            (Self::OfSpan(function), sets) => {
                let spans: Vec<Value> = sets.iter().map(|set| Value::Range(Box::new(set.span()))).collect();
                function.call(&spans.iter().collect::<Vec<_>>())?
            }
            (Self::Contains, [a, b]) => Value::Bool(a.contains(b)),
            (Self::Within, [a, b]) => Value::Bool(b.contains(a)),
            (Self::Overlaps, [a, b]) => Value::Bool(a.overlaps(b)),
            (Self::Union, [a, b]) => made(a.union(b)),
            (Self::Intersection, [a, b]) => made(a.intersection(b)),
            (Self::Difference(of), [a, b]) => made(a.difference(b, of)?),
            _ => return Err(wrong_arguments(self)),
        })
    }
}

/// The set that an argument is: a multirange, a range, an array of these, or one value.
fn set(value: &Value) -> Result<Multirange> {
    Ok(match value {
        Value::Multirange(multirange) => (**multirange).clone(),
        Value::Range(range) => Multirange::from((**range).clone()),
        Value::Array(array) if array.dimensions.len() > 1 => {
            let message = "multiranges cannot be constructed from multidimensional arrays";
            return Err(SqlError::new(state::CARDINALITY_VIOLATION, message));
        }
        Value::Array(array) => {
            let range = |element: &Value| match element {
                Value::Range(range) => Ok((**range).clone()),
                _ => Err(null_member()),
            };
            Multirange::new(array.elements.iter().map(range).collect::<Result<_>>()?)
        }
        Value::Null => return Err(null_member()),
        value => {
            let bound = || Bound { value: Some(value.clone()), inclusive: true };
            Multirange::from(Range::Between(bound(), bound()))
        }
    })
}

fn null_member() -> SqlError {
    SqlError::new(state::NULL_VALUE_NOT_ALLOWED, "multirange values cannot contain null members")
}
