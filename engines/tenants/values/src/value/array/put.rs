//! Arrays with other elements at some places, as assignments to subscripts make them.

use super::{Array, Dimension, ELEMENTS_MAX, check_bounds, too_many_dimensions};
use crate::{
    error::{Result, SqlError, state},
    value::{Value, array::DIMENSIONS_MAX, size::Elements},
};

/// The first and the last subscript of a slice along one dimension.
type Bounds = (i64, i64);

/// What a bound is that is left out; no subscript is one of these.
const OPEN: Bounds = (i64::MIN, i64::MAX);

fn wrong(message: &'static str) -> SqlError {
    SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message)
}

fn too_large() -> SqlError {
    SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed")
}

/// A new array of these dimensions, with the first elements of what is given.
fn filled(bounds: &[Bounds], elements: &[Value]) -> Result<Array> {
    if bounds.len() > DIMENSIONS_MAX {
        return Err(too_many_dimensions(bounds.len()));
    }
    let mut dimensions = Vec::new();
    for (first, last) in bounds {
        if *first == OPEN.0 || *last == OPEN.1 {
            return Err(wrong("array slice subscript must provide both boundaries").detail(
                "When assigning to a slice of an empty array value, slice boundaries must be fully specified.",
            ));
        }
        let length = usize::try_from(last - first + 1).ok().filter(|length| *length <= ELEMENTS_MAX);
        let length = length.ok_or_else(too_large)?;
        dimensions.push(Dimension { length, lower: i32::try_from(*first).map_err(|_| too_large())? });
    }
    let count = dimensions.iter().try_fold(1_usize, |count, of| count.checked_mul(of.length)).ok_or_else(too_large)?;
    let elements = elements.get(..count).ok_or_else(|| wrong("source array too small"))?.to_vec();
    if elements.is_empty() {
        return Ok(Array::default());
    }
    check_bounds(&dimensions)?;
    Ok(Array { dimensions, elements })
}

impl Array {
    /// With an element at subscripts. Only an array of one dimension grows, and NULLs fill what is between.
    ///
    /// # Errors
    /// 2202E if there is no such place, 54000 if it would become too large.
    pub fn with_element(&self, subscripts: &[i64], element: Value) -> Result<Self> {
        let bounds: Vec<Bounds> = subscripts.iter().map(|at| (*at, *at)).collect();
        if self.dimensions.is_empty() {
            return filled(&bounds, &[element]);
        }
        if subscripts.len() != self.dimensions.len() {
            return Err(wrong("wrong number of array subscripts"));
        }
        self.replaced(&bounds, &[element])
    }

    /// With a slice taken from another array's elements, whatever its shape is.
    ///
    /// # Errors
    /// As [`Array::with_element`].
    pub fn with_slice(&self, bounds: &[Bounds], source: &Self) -> Result<Self> {
        if self.dimensions.is_empty() {
            return filled(bounds, &source.elements);
        }
        if bounds.len() > self.dimensions.len() {
            return Err(wrong("wrong number of array subscripts"));
        }
        let mut known = Vec::new();
        for (at, dimension) in self.dimensions.iter().enumerate() {
            let (first, last) = bounds.get(at).copied().unwrap_or(OPEN);
            let lower = i64::from(dimension.lower);
            let first = if first == OPEN.0 { lower } else { first };
            let last = if last == OPEN.1 { lower + dimension.length as i64 - 1 } else { last };
            if first > last {
                return Err(wrong("upper bound cannot be less than lower bound"));
            }
            known.push((first, last));
        }
        self.replaced(&known, &source.elements)
    }

    /// With the elements between bounds replaced, one after the other.
    fn replaced(&self, bounds: &[Bounds], by: &[Value]) -> Result<Self> {
        let mut whole = match bounds {
            [(first, last)] => self.stretched(*first, *last)?,
            _ => self.clone(),
        };
        let mut places = vec![0];
        for ((first, last), dimension) in bounds.iter().zip(&whole.dimensions) {
            let lower = i64::from(dimension.lower);
            if *first < lower || *last >= lower + dimension.length as i64 {
                return Err(wrong("array subscript out of range"));
            }
            let range = (first - lower) as usize..=(last - lower) as usize;
            places =
                places.iter().flat_map(|place| range.clone().map(move |at| place * dimension.length + at)).collect();
        }
        if by.len() < places.len() {
            return Err(wrong("source array too small"));
        }
        for (place, element) in places.into_iter().zip(by) {
            whole.elements[place] = element.clone();
        }
        Ok(whole)
    }

    /// An array of one dimension that also has these subscripts.
    fn stretched(&self, first: i64, last: i64) -> Result<Self> {
        let Some(dimension) = self.dimensions.first() else { return Ok(Self::default()) };
        let (lower, end) = (i64::from(dimension.lower), i64::from(dimension.lower) + dimension.length as i64);
        let (from, to) = (lower.min(first), end.max(last + 1));
        if to - from > ELEMENTS_MAX as i64 {
            return Err(too_large());
        }
        let dimensions = vec![Dimension { length: (to - from) as usize, lower: from as i32 }];
        check_bounds(&dimensions)?;
        let nulls = |count: i64| std::iter::repeat_n(Value::Null, count as usize);
        let elements = nulls(lower - from).chain(self.elements.iter().cloned()).chain(nulls(to - end));
        Ok(Self { dimensions, elements: Elements::collect(elements)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        types::Type,
        value::{Context, style::Style},
    };

    fn array(text: &str) -> Array {
        Array::parse(text, Type::Int4, Context::NONE).unwrap()
    }

    fn shown(array: Result<Array>) -> Result<String> {
        let mut out = String::new();
        array?.write(Type::Int4, Style::PLAIN, &mut out);
        Ok(out)
    }

    #[test]
    fn an_element_is_put_where_it_belongs() {
        let with = |text: &str, at: &[i64]| shown(array(text).with_element(at, Value::Int(9)));
        assert_eq!(with("{1,2}", &[2]).unwrap(), "{1,9}");
        assert_eq!(with("{1,2}", &[5]).unwrap(), "{1,2,NULL,NULL,9}");
        assert_eq!(with("{1,2}", &[-1]).unwrap(), "[-1:2]={9,NULL,1,2}");
        assert_eq!(with("{}", &[3]).unwrap(), "[3:3]={9}");
        assert_eq!(with("{}", &[1, 2]).unwrap(), "[1:1][2:2]={{9}}");
        assert_eq!(with("{{1,2},{3,4}}", &[2, 1]).unwrap(), "{{1,2},{9,4}}");
        let wrong: [(&str, &[i64]); 3] = [("{{1,2},{3,4}}", &[3, 1]), ("{{1,2}}", &[1]), ("{1}", &[1, 1])];
        for (text, at) in wrong {
            assert_eq!(with(text, at).unwrap_err().state, state::ARRAY_SUBSCRIPT_ERROR, "{text}");
        }
        for at in [i64::from(i32::MAX), i64::from(i32::MIN), ELEMENTS_MAX as i64 + 1] {
            assert_eq!(with("{1}", &[at]).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED, "{at}");
        }
        let last = with("[2147483646:2147483646]={1}", &[i64::from(i32::MAX)]);
        assert_eq!(last.unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
        assert_eq!(with("{}", &[i64::from(i32::MAX)]).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
        assert_eq!(with("{}", &[1; 7]).unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
    }

    #[test]
    fn a_slice_takes_elements_in_their_order() {
        let with = |text: &str, bounds: &[Bounds], by: &str| shown(array(text).with_slice(bounds, &array(by)));
        assert_eq!(with("{1,2,3}", &[(2, 3)], "{8,9,10}").unwrap(), "{1,8,9}");
        assert_eq!(with("{1,2,3}", &[(4, 5)], "{8,9}").unwrap(), "{1,2,3,8,9}");
        assert_eq!(with("{1,2,3}", &[(OPEN.0, 2)], "{8,9}").unwrap(), "{8,9,3}");
        assert_eq!(with("{}", &[(2, 3)], "{8,9}").unwrap(), "[2:3]={8,9}");
        assert_eq!(with("{}", &[(2, 1)], "{8,9}").unwrap(), "{}");
        assert_eq!(with("{{1,2},{3,4}}", &[(1, 2), (2, 2)], "{8,9}").unwrap(), "{{1,8},{3,9}}");
        assert_eq!(with("{{1,2},{3,4}}", &[(2, 2)], "{8,9}").unwrap(), "{{1,2},{8,9}}");
        let wrong: [(&str, &[Bounds], &str); 6] = [
            ("{1,2}", &[(1, 2)], "{8}"),
            ("{1,2}", &[(2, 1)], "{8}"),
            ("{}", &[(OPEN.0, 1)], "{8}"),
            ("{}", &[(1, 2)], "{8}"),
            ("{{1,2}}", &[(1, 2), (1, 1)], "{8,9}"),
            ("{1}", &[(1, 1), (1, 1)], "{8}"),
        ];
        for (text, bounds, by) in wrong {
            assert_eq!(with(text, bounds, by).unwrap_err().state, state::ARRAY_SUBSCRIPT_ERROR, "{text} {bounds:?}");
        }
        let far = i64::from(i32::MAX);
        assert_eq!(with("{}", &[(-far, far)], "{8}").unwrap_err().state, state::PROGRAM_LIMIT_EXCEEDED);
    }
}
