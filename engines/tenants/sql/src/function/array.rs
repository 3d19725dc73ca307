//! Functions and operators of arrays.

use std::{borrow::Cow, sync::Arc};

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Value,
        array::{Array, check_bounds},
        size::{self, Elements},
        style::Style,
        text,
    },
};

use super::{Resolved, is_texty, wrong_arguments};
use crate::{
    bind::common_type,
    expression::{Comparison, Facts, is_styled},
};

/// A function of arrays.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayFunction {
    /// `ARRAY[..]`; of arrays, if it is `nested`.
    Make {
        nested: bool,
    },
    /// `= ANY (array)` and the like
    Any(Comparison),
    /// `= ALL (array)` and the like
    All(Comparison),
    /// `array[..]`
    Element,
    /// `array[..:..]`: for each dimension the first and the last
    Slice,
    /// `array[..] = value`: the array, the value and the subscripts
    Put,
    /// `array[..:..] = values`
    PutSlice,
    Concat,
    Append,
    Prepend,
    /// `a @> b`
    Contains,
    /// `a && b`
    Overlaps,
    Cardinality,
    Length,
    Lower,
    Upper,
    Dimensions,
    DimensionsText,
    Position,
    Positions,
    Remove,
    Replace,
    /// As a text; elements have this type.
    Join(Type),
    Split,
    Trim,
    EnumFirst(u32),
    EnumLast(u32),
    EnumRange(u32),
}

/// The type of the elements of an array that something else is compared with or put into.
fn element_with(array: Type, other: Type) -> Option<Type> {
    match (array, array.element()) {
        (_, Some(element)) => common_type(element, other),
        (Type::Unknown, None) if other != Type::Unknown => Some(other),
        _ => None,
    }
}

/// The function of arrays of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<ArrayFunction>> {
    use ArrayFunction as F;
    use Type::{Int4, Text, Unknown};
    let integral = |of: &Type| of.is_integer() || *of == Unknown;
    let texty = is_texty;
    let whole = |function, of: &Type, result| of.element().map(|_| (function, vec![*of], result));
    let by_dimension = |function, of: &Type, n: &Type| {
        (of.element().is_some() && integral(n)).then(|| (function, vec![*of, Int4], Int4))
    };
    match (name, arguments) {
        ("cardinality", [of]) => whole(F::Cardinality, of, Int4),
        ("array_ndims", [of]) => whole(F::Dimensions, of, Int4),
        ("array_dims", [of]) => whole(F::DimensionsText, of, Text),
        ("array_length", [of, n]) => by_dimension(F::Length, of, n),
        ("array_lower", [of, n]) => by_dimension(F::Lower, of, n),
        ("array_upper", [of, n]) => by_dimension(F::Upper, of, n),
        ("trim_array", [of, n]) if integral(n) && of.element().is_some() => Some((F::Trim, vec![*of, Int4], *of)),
        ("array_append", [array, element]) => {
            let of = element_with(*array, *element)?;
            Some((F::Append, vec![of.array()?, of], of.array()?))
        }
        ("array_prepend", [element, array]) => {
            let of = element_with(*array, *element)?;
            Some((F::Prepend, vec![of, of.array()?], of.array()?))
        }
        ("array_cat", [a, b]) => {
            let of = match (a.element(), b.element()) {
                (Some(a), Some(b)) => common_type(a, b)?,
                (Some(of), None) if *b == Unknown => of,
                (None, Some(of)) if *a == Unknown => of,
                _ => return None,
            };
            Some((F::Concat, vec![of.array()?; 2], of.array()?))
        }
        ("array_position", [array, element]) => {
            let of = element_with(*array, *element)?;
            Some((F::Position, vec![of.array()?, of], Int4))
        }
        ("array_position", [array, element, from]) if integral(from) => {
            let of = element_with(*array, *element)?;
            Some((F::Position, vec![of.array()?, of, Int4], Int4))
        }
        ("array_positions", [array, element]) => {
            let of = element_with(*array, *element)?;
            Some((F::Positions, vec![of.array()?, of], Int4.array()?))
        }
        ("array_remove", [array, element]) => {
            let of = element_with(*array, *element)?;
            Some((F::Remove, vec![of.array()?, of], of.array()?))
        }
        ("array_replace", [array, from, to]) => {
            let of = common_type(element_with(*array, *from)?, *to)?;
            Some((F::Replace, vec![of.array()?, of, of], of.array()?))
        }
        ("array_to_string", [array, by]) if texty(by) => Some((F::Join(array.element()?), vec![*array, Text], Text)),
        ("array_to_string", [array, by, null]) if texty(by) && texty(null) => {
            Some((F::Join(array.element()?), vec![*array, Text, Text], Text))
        }
        ("string_to_array", [of, by]) if texty(of) && texty(by) => Some((F::Split, vec![Text, Text], Text.array()?)),
        ("string_to_array", [of, by, null]) if texty(of) && texty(by) && texty(null) => {
            Some((F::Split, vec![Text, Text, Text], Text.array()?))
        }
        ("enum_first", [of @ Type::Enum(id)]) => Some((F::EnumFirst(*id), vec![*of], *of)),
        ("enum_last", [of @ Type::Enum(id)]) => Some((F::EnumLast(*id), vec![*of], *of)),
        ("enum_range", [of @ Type::Enum(id)]) => Some((F::EnumRange(*id), vec![*of], of.array()?)),
        ("enum_range", [of @ Type::Enum(id), Type::Enum(_) | Unknown] | [Unknown, of @ Type::Enum(id)]) => {
            Some((F::EnumRange(*id), vec![*of, *of], of.array()?))
        }
        _ => None,
    }
}

/// An array as a value.
pub(super) fn made(array: Array) -> Value {
    Value::Array(Arc::new(array))
}

fn some_int(value: Option<i64>) -> Value {
    value.map_or(Value::Null, Value::Int)
}

impl ArrayFunction {
    /// Whether its value depends on its arguments alone.
    pub(super) fn is_immutable(self) -> bool {
        match self {
            Self::Join(of) => !is_styled(of),
            other => !matches!(other, Self::EnumFirst(_) | Self::EnumLast(_) | Self::EnumRange(_)),
        }
    }

    /// Whether it is NULL as soon as one of its arguments is.
    pub(super) fn is_strict(self) -> bool {
        !matches!(
            self,
            Self::Make { .. }
                | Self::Put
                | Self::PutSlice
                | Self::Any(_)
                | Self::All(_)
                | Self::Concat
                | Self::Append
                | Self::Prepend
                | Self::Position
                | Self::Positions
                | Self::Remove
                | Self::Replace
                | Self::Join(_)
                | Self::Split
                | Self::EnumFirst(_)
                | Self::EnumLast(_)
                | Self::EnumRange(_)
        )
    }

    /// Its value. If it is strict, no argument is NULL.
    pub(crate) fn call(self, arguments: &[&Value], facts: &Facts) -> Result<Value> {
        match (self, arguments) {
            (Self::Make { nested: false }, elements) => {
                Ok(made(Array::from(Elements::collect(elements.iter().map(|element| (*element).clone()))?)))
            }
            (Self::Make { nested: true }, arrays) => {
                let arrays = arrays.iter().map(|array| array_of(array)).collect::<Vec<_>>();
                Array::of_arrays(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map(made)
            }
            (Self::Any(comparison), [value, array]) => quantified(comparison, value, array, false, facts),
            (Self::All(comparison), [value, array]) => quantified(comparison, value, array, true, facts),
            (Self::Concat, [Value::Null, Value::Null]) => Ok(Value::Null),
            (Self::Concat, [a, b]) => array_of(a).concat(&array_of(b)).map(made),
            (Self::Put, [array, element, subscripts @ ..]) => {
                array_of(array).with_element(&places(subscripts)?, (*element).clone()).map(made)
            }
            (Self::PutSlice, [array, source, bounds @ ..]) => {
                let bounds = places(bounds)?;
                // No elements change nothing; what had none is an array.
                let Value::Array(source) = source else { return Ok(made(array_of(array).into_owned())) };
                let bounds = bounds.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
                array_of(array).with_slice(&bounds, source).map(made)
            }
            (Self::Append, [array, element]) => appended(&array_of(array), element, false),
            (Self::Prepend, [element, array]) => appended(&array_of(array), element, true),
            (Self::EnumFirst(id), _) => self.labels(id, &[], facts, |labels| labels.into_iter().next()),
            (Self::EnumLast(id), _) => self.labels(id, &[], facts, |labels| labels.into_iter().last()),
            (Self::EnumRange(id), bounds) => self.labels(id, bounds, facts, |labels| Some(made(Array::from(labels)))),
            (Self::Split, [Value::Text(text), by, rest @ ..]) => split(text, by, rest),
            (Self::Split, _) => Ok(Value::Null),
            (_, [Value::Array(array), rest @ ..]) => self.of_array(array, rest, facts.settings.style),
            (_, [Value::Null, ..]) => Ok(Value::Null),
            _ => Err(wrong_arguments(self)),
        }
    }

    fn labels(
        self,
        id: u32,
        bounds: &[&Value],
        facts: &Facts,
        chosen: impl FnOnce(Vec<Value>) -> Option<Value>,
    ) -> Result<Value> {
        let enumeration = facts.context().own.known_enumeration(id)?;
        let place = |at: usize| match bounds.get(at) {
            Some(Value::Enum(place, _)) if bounds.len() == 2 => Some(*place),
            _ => None,
        };
        let (first, last) = (place(0).unwrap_or(i64::MIN), place(1).unwrap_or(i64::MAX));
        let labels = enumeration.labels.iter().filter(|(place, _)| (first..=last).contains(place));
        let labels = labels.map(|(place, label)| Value::Enum(*place, label.as_str().into())).collect();
        Ok(chosen(labels).unwrap_or(Value::Null))
    }

    fn of_array(self, array: &Array, rest: &[&Value], style: Style) -> Result<Value> {
        let dimension = |n: &i64| n.checked_sub(1).and_then(|at| array.dimensions.get(usize::try_from(at).ok()?));
        Ok(match (self, rest) {
            (Self::Element, subscripts) => {
                let subscripts = numbers(subscripts)?;
                array.element(&subscripts).cloned().unwrap_or(Value::Null)
            }
            (Self::Slice, bounds) => {
                let bounds = numbers(bounds)?;
                let bounds = bounds.chunks_exact(2).map(|pair| (Some(pair[0]), Some(pair[1]))).collect::<Vec<_>>();
                made(array.slice(&bounds))
            }
            (Self::Contains, [Value::Array(part)]) => {
                Value::Bool(part.elements.iter().all(|element| has(array, element)))
            }
            (Self::Overlaps, [Value::Array(other)]) => {
                Value::Bool(other.elements.iter().any(|element| has(array, element)))
            }
            (Self::Cardinality, []) => Value::Int(array.elements.len() as i64),
            (Self::Dimensions, []) => some_int(Some(array.dimensions.len() as i64).filter(|count| *count > 0)),
            (Self::DimensionsText, []) if array.dimensions.is_empty() => Value::Null,
            (Self::DimensionsText, []) => {
                let bounds = array.dimensions.iter().map(|d| format!("[{}:{}]", d.lower, upper(d)));
                Value::Text(bounds.collect())
            }
            (Self::Length, [Value::Int(n)]) => some_int(dimension(n).map(|dimension| dimension.length as i64)),
            (Self::Lower, [Value::Int(n)]) => some_int(dimension(n).map(|dimension| i64::from(dimension.lower))),
            (Self::Upper, [Value::Int(n)]) => some_int(dimension(n).map(upper)),
            (Self::Position, [element, from @ ..]) => {
                let from = if let [Value::Int(from)] = from { *from } else { i64::MIN };
                some_int(positions(array, element)?.find(|place| *place >= from))
            }
            (Self::Positions, [element]) => {
                made(Array::from(positions(array, element)?.map(Value::Int).collect::<Vec<_>>()))
            }
            (Self::Remove, [element]) => {
                one_dimension(array, "removing elements from multidimensional arrays is not supported")?;
                let kept = array.elements.iter().filter(|other| other.compare(element).is_ne()).cloned();
                made(Array::from(kept.collect::<Vec<_>>()))
            }
            (Self::Replace, [from, to]) => made(
                array.map(|element| Ok(if element.compare(from).is_eq() { (*to).clone() } else { element.clone() }))?,
            ),
            (Self::Join(_), [Value::Null, ..]) => Value::Null,
            (Self::Join(of), [Value::Text(by), null @ ..]) => {
                let null = if let [Value::Text(null)] = null { Some(null) } else { None };
                let shown = array.elements.iter().filter_map(|element| match element {
                    Value::Null => null.cloned(),
                    element => Some(text::shown(element, of, style)),
                });
                Value::Text(size::joined(shown.map(Ok), by)?)
            }
            (Self::Trim, [Value::Int(count)]) => {
                let length = array.dimensions.first().map_or(0, |dimension| dimension.length as i64);
                if !(0..=length).contains(count) {
                    let message = format!("number of elements to trim must be between 0 and {length}");
                    return Err(SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message));
                }
                let lower = array.dimensions.first().map_or(1, |dimension| i64::from(dimension.lower));
                made(array.slice(&[(None, Some(lower + length - count - 1))]))
            }
            _ => return Err(wrong_arguments(self)),
        })
    }
}

fn upper(dimension: &savanna_tenants_values::value::array::Dimension) -> i64 {
    i64::from(dimension.lower) + dimension.length as i64 - 1
}

/// An array, an empty one for NULL.
fn array_of(value: &Value) -> Cow<'_, Array> {
    match value {
        Value::Array(array) => Cow::Borrowed(array),
        _ => Cow::Owned(Array::default()),
    }
}

/// The subscripts of an assignment.
fn places(subscripts: &[&Value]) -> Result<Vec<i64>> {
    if subscripts.iter().any(|subscript| subscript.is_null()) {
        let message = "array subscript in assignment must not be null";
        return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
    }
    numbers(subscripts)
}

fn numbers(values: &[&Value]) -> Result<Vec<i64>> {
    let number = |value: &&Value| match value {
        Value::Int(number) => Ok(*number),
        other => Err(SqlError::internal(format_args!("the subscript {other:?}"))),
    };
    values.iter().map(number).collect()
}

fn one_dimension(array: &Array, message: &'static str) -> Result<()> {
    if array.dimensions.len() > 1 { Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message)) } else { Ok(()) }
}

/// Whether an element is there that is equal; none is equal to NULL.
fn has(array: &Array, element: &Value) -> bool {
    !element.is_null() && array.elements.iter().any(|other| !other.is_null() && other.compare(element).is_eq())
}

/// The subscripts at which an element stands.
fn positions<'a>(array: &'a Array, element: &'a Value) -> Result<impl Iterator<Item = i64> + 'a> {
    one_dimension(array, "searching for elements in multidimensional arrays is not supported")?;
    let lower = array.dimensions.first().map_or(1, |dimension| i64::from(dimension.lower));
    let found = (lower..).zip(&array.elements).filter(|(_, other)| other.compare(element).is_eq());
    Ok(found.map(|(place, _)| place))
}

fn appended(array: &Array, element: &Value, before: bool) -> Result<Value> {
    if array.dimensions.len() > 1 {
        return Err(SqlError::new("22000", "argument must be empty or one-dimensional array"));
    }
    let one = Array::from(vec![element.clone()]);
    let mut whole = if before { one.concat(array)? } else { array.concat(&one)? };
    if let (Some(dimension), Some(old)) = (whole.dimensions.first_mut(), array.dimensions.first()) {
        dimension.lower = old.lower;
    }
    check_bounds(&whole.dimensions)?;
    Ok(made(whole))
}

/// What a comparison with some or all elements of an array comes to.
fn quantified(comparison: Comparison, value: &Value, array: &Value, all: bool, facts: &Facts) -> Result<Value> {
    let Value::Array(array) = array else { return Ok(Value::Null) };
    if let (Comparison::Equal, false) | (Comparison::NotEqual, true) = (comparison, all)
        && let Some(has) = facts.searched.has(array, value, &facts.lent)?
    {
        return Ok(has.map_or(Value::Null, |has| Value::Bool(has != all)));
    }
    let mut unknown = false;
    for element in &array.elements {
        if value.is_null() || element.is_null() {
            unknown = true;
        } else if comparison.holds(value.compare(element)) != all {
            return Ok(Value::Bool(!all));
        }
    }
    Ok(if unknown { Value::Null } else { Value::Bool(all) })
}

/// The parts of a text between delimiters; all of its characters if there is no delimiter.
fn split(text: &str, by: &Value, null: &[&Value]) -> Result<Value> {
    let null = if let [Value::Text(null)] = null { Some(null.as_str()) } else { None };
    let part = |part: &str| if null == Some(part) { Value::Null } else { Value::Text(part.to_owned()) };
    let parts = match by {
        _ if text.is_empty() => Ok(Vec::new()),
        Value::Text(by) if by.is_empty() => Ok(vec![part(text)]),
        Value::Text(by) => Elements::collect(text.split(by.as_str()).map(part)),
        _ => Elements::collect(text.chars().map(|character| part(character.encode_utf8(&mut [0; 4])))),
    };
    Ok(made(Array::from(parts?)))
}
