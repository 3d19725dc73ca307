//! Arrays: elements of one type, in any number of dimensions, and their text and binary formats.

mod binary;
mod put;
mod text;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{
    Value,
    size::{self, Elements},
};
use crate::error::{Result, SqlError, state};

/// Dimensions of an array, PostgreSQL's limit.
const DIMENSIONS_MAX: usize = 6;
/// Elements of an array that a function makes.
pub(crate) const ELEMENTS_MAX: usize = 16 << 20;

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dimension {
    /// How many there are along it.
    pub length: usize,
    /// The subscript of the first.
    pub lower: i32,
}

/// An array. Without elements it has no dimensions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// From the outermost to the innermost.
    pub dimensions: Vec<Dimension>,
    /// All elements, the innermost dimension first.
    pub elements: Vec<Value>,
}

fn malformed(text: &str, detail: &'static str) -> SqlError {
    let message = format!("malformed array literal: \"{text}\"");
    SqlError::new(state::INVALID_TEXT_REPRESENTATION, message).detail(detail)
}

fn too_many_dimensions(count: usize) -> SqlError {
    let message = format!("number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})");
    SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message)
}

/// Refuses an array whose last subscript, or the one behind it, is no `integer`.
pub fn check_bounds(dimensions: &[Dimension]) -> Result<()> {
    let ends_in = |of: &&Dimension| i64::from(of.lower) + of.length as i64 <= i64::from(i32::MAX);
    match dimensions.iter().find(|of| !ends_in(of)) {
        None => Ok(()),
        Some(of) => {
            let message = format!("array lower bound is too large: {}", of.lower);
            Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message))
        }
    }
}

impl From<Vec<Value>> for Array {
    /// An array of one dimension that begins at 1.
    fn from(elements: Vec<Value>) -> Self {
        let dimension = Dimension { length: elements.len(), lower: 1 };
        Self { dimensions: if elements.is_empty() { Vec::new() } else { vec![dimension] }, elements }
    }
}

impl Array {
    /// A vector of the catalog: it begins at 0.
    pub fn vector(elements: Vec<Value>) -> Self {
        Self { dimensions: vec![Dimension { length: elements.len(), lower: 0 }], elements }
    }

    /// One array of several, each an element of a new outermost dimension.
    ///
    /// # Errors
    /// 2202E if they are not of one size.
    pub fn of_arrays(arrays: &[&Self]) -> Result<Self> {
        let Some(first) = arrays.first() else { return Ok(Self::default()) };
        if arrays.iter().any(|array| array.dimensions != first.dimensions) {
            let message = "multidimensional arrays must have array expressions with matching dimensions";
            return Err(SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message));
        }
        if first.elements.is_empty() {
            return Ok(Self::default());
        }
        if first.dimensions.len() == DIMENSIONS_MAX {
            return Err(too_many_dimensions(DIMENSIONS_MAX + 1));
        }
        let mut dimensions = vec![Dimension { length: arrays.len(), lower: 1 }];
        dimensions.extend(&first.dimensions);
        let elements = Elements::collect(arrays.iter().flat_map(|array| array.elements.iter().cloned()))?;
        Ok(Self { dimensions, elements })
    }

    /// PostgreSQL's order: by the elements, then by their number, then by the dimensions.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let each = self.elements.iter().zip(&other.elements).map(|(a, b)| a.compare(b)).find(|order| order.is_ne());
        each.unwrap_or_else(|| {
            let size = self.elements.len().cmp(&other.elements.len());
            let dimensions = || self.dimensions.len().cmp(&other.dimensions.len());
            size.then_with(dimensions).then_with(|| self.dimensions.cmp(&other.dimensions))
        })
    }

    /// The element at subscripts, if there is one.
    pub fn element(&self, subscripts: &[i64]) -> Option<&Value> {
        if subscripts.len() != self.dimensions.len() {
            return None;
        }
        let place = self.dimensions.iter().zip(subscripts).try_fold(0, |place, (dimension, subscript)| {
            let at =
                usize::try_from(subscript - i64::from(dimension.lower)).ok().filter(|at| *at < dimension.length)?;
            Some(place * dimension.length + at)
        });
        self.elements.get(place?)
    }

    /// The part between subscripts, for each dimension the first and the last; `None` is its end. It begins at 1.
    pub fn slice(&self, bounds: &[(Option<i64>, Option<i64>)]) -> Self {
        if bounds.len() > self.dimensions.len() {
            return Self::default();
        }
        let mut ranges = Vec::new();
        for (at, dimension) in self.dimensions.iter().enumerate() {
            let lower = i64::from(dimension.lower);
            let last = lower + dimension.length as i64 - 1;
            let (from, to) = bounds.get(at).copied().unwrap_or((None, None));
            let (from, to) = (from.unwrap_or(lower).max(lower), to.unwrap_or(last).min(last));
            if from > to {
                return Self::default();
            }
            ranges.push((from - lower) as usize..(to - lower) as usize + 1);
        }
        let mut places = vec![0];
        for (range, dimension) in ranges.iter().zip(&self.dimensions) {
            places =
                places.iter().flat_map(|place| range.clone().map(move |at| place * dimension.length + at)).collect();
        }
        let dimensions = ranges.iter().map(|range| Dimension { length: range.len(), lower: 1 }).collect();
        Self { dimensions, elements: places.into_iter().map(|place| self.elements[place].clone()).collect() }
    }

    /// Two arrays, one behind the other; also an array and one with a dimension less, which is its first or last element.
    pub fn concat(&self, other: &Self) -> Result<Self> {
        if self.elements.is_empty() || other.elements.is_empty() {
            return Ok(if self.elements.is_empty() { other.clone() } else { self.clone() });
        }
        let (a, b) = (&self.dimensions, &other.dimensions);
        let mut dimensions = if a.len() >= b.len() { a.clone() } else { b.clone() };
        let fits = match a.len() as i64 - b.len() as i64 {
            0 => {
                dimensions[0].length += b[0].length;
                a[1..] == b[1..]
            }
            1 => {
                dimensions[0].length += 1;
                a[1..].iter().map(|d| d.length).eq(b.iter().map(|d| d.length))
            }
            -1 => {
                dimensions[0].length += 1;
                b[1..].iter().map(|d| d.length).eq(a.iter().map(|d| d.length))
            }
            _ => false,
        };
        if !fits {
            return Err(SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, "cannot concatenate incompatible arrays"));
        }
        size::check_structure(self.bytes().saturating_add(other.bytes()))?;
        let elements: Vec<Value> = self.elements.iter().chain(&other.elements).cloned().collect();
        if elements.len() > ELEMENTS_MAX {
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed"));
        }
        check_bounds(&dimensions)?;
        Ok(Self { dimensions, elements })
    }

    /// Its elements changed, at the same places.
    pub fn map(&self, change: impl FnMut(&Value) -> Result<Value>) -> Result<Self> {
        let mut elements = Elements::default();
        self.elements.iter().map(change).try_for_each(|element| elements.push(element?))?;
        Ok(Self { dimensions: self.dimensions.clone(), elements: elements.finish() })
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.elements.iter().map(Value::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        types::Type,
        value::{Context, style::Style},
    };

    fn array(text: &str, of: Type) -> Result<Array> {
        Array::parse(text, of, Context::NONE)
    }

    fn shown(array: &Array, of: Type) -> String {
        let mut out = String::new();
        array.write(of, Style::PLAIN, &mut out);
        out
    }

    #[test]
    fn texts_are_read_and_written_as_in_postgresql() {
        for (text, of, expected) in [
            ("{}", Type::Int4, "{}"),
            (" { 1 , 2,NULL } ", Type::Int4, "{1,2,NULL}"),
            ("{a b, \"null\" ,\"\",\\\"}", Type::Text, "{\"a b\",\"null\",\"\",\"\\\"\"}"),
            ("{{1,2},{3,4},{5,6}}", Type::Int4, "{{1,2},{3,4},{5,6}}"),
            ("{{{1},{2}}}", Type::Int4, "{{{1},{2}}}"),
            ("[0:1]={7,8}", Type::Int8, "[0:1]={7,8}"),
            ("[1:2]={7,8}", Type::Int8, "{7,8}"),
            ("[-1:0][2:2]={{1},{2}}", Type::Int4, "[-1:0][2:2]={{1},{2}}"),
            ("{t,f}", Type::Bool, "{t,f}"),
            ("{2024-02-29}", Type::Date, "{2024-02-29}"),
            ("{2024-02-29 01:00}", Type::Timestamp, "{\"2024-02-29 01:00:00\"}"),
        ] {
            let array = array(text, of).unwrap();
            assert_eq!(shown(&array, of), expected, "{text}");
            let mut bytes = Vec::new();
            array.to_binary(of, &mut bytes);
            assert_eq!(Array::from_binary(&bytes, of, Context::NONE), Ok(array));
        }
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for text in [
            "",
            "1",
            "{",
            "{1",
            "{1,}",
            "{,1}",
            "{1}}",
            "{{1},2}",
            "{1,{2}}",
            "{{1},{2,3}}",
            "{{1},{{2}}}",
            "{{{1}},{2}}",
            "{\"1}",
            "[1:3]={1}",
            "[1]",
            "{1}x",
        ] {
            assert_eq!(array(text, Type::Int4).unwrap_err().state, state::INVALID_TEXT_REPRESENTATION, "{text}");
        }
        assert_eq!(array(&"{".repeat(7), Type::Int4).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
        let mut bytes = Vec::new();
        array("{1,2}", Type::Int4).unwrap().to_binary(Type::Int4, &mut bytes);
        for end in 0..bytes.len() {
            assert!(Array::from_binary(&bytes[..end], Type::Int4, Context::NONE).is_err());
        }
        assert_eq!(Array::from_binary(&bytes, Type::Int8, Context::NONE).unwrap_err().state, state::DATATYPE_MISMATCH);
    }

    #[test]
    fn subscripts_and_slices_lead_to_elements() {
        let of = array("{{1,2,3},{4,5,6}}", Type::Int4).unwrap();
        assert_eq!(of.element(&[2, 1]), Some(&Value::Int(4)));
        assert_eq!((of.element(&[3, 1]), of.element(&[1]), of.element(&[0, 1])), (None, None, None));
        let slice = |bounds: &[(Option<i64>, Option<i64>)]| shown(&of.slice(bounds), Type::Int4);
        assert_eq!(slice(&[(Some(2), None), (None, Some(2))]), "{{4,5}}");
        assert_eq!(slice(&[(Some(1), Some(1))]), "{{1,2,3}}");
        assert_eq!(slice(&[(Some(3), None)]), "{}");
    }

    #[test]
    fn arrays_are_put_together() {
        let of = |text| array(text, Type::Int4).unwrap();
        let both = |a, b| of(a).concat(&of(b)).map(|array| shown(&array, Type::Int4)).map_err(|error| error.state);
        assert_eq!(both("{1}", "{2,3}").unwrap(), "{1,2,3}");
        assert_eq!(both("{}", "{2}").unwrap(), "{2}");
        assert_eq!(both("{{1,2}}", "{3,4}").unwrap(), "{{1,2},{3,4}}");
        assert_eq!(both("{1,2}", "{{3,4}}").unwrap(), "{{1,2},{3,4}}");
        assert_eq!(both("{{1,2}}", "{3}").unwrap_err(), "2202E");
    }

    #[test]
    fn arrays_are_ordered_by_their_elements() {
        let order = ["{}", "{1}", "{1,1}", "{1,2}", "{{1,2}}", "{1,NULL}", "{2}"];
        for pair in order.windows(2) {
            let of = |text| array(text, Type::Int4).unwrap();
            assert_eq!(of(pair[0]).compare(&of(pair[1])), Ordering::Less, "{pair:?}");
        }
    }
}
