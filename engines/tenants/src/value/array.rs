//! Arrays: elements of one type, in any number of dimensions, and their text and binary formats.

use std::cmp::Ordering;

use super::{Context, Value, binary, text, zone::Zone};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
};

/// Dimensions of an array, PostgreSQL's limit.
const DIMENSIONS_MAX: usize = 6;
/// Elements of an array that a function makes.
pub(crate) const ELEMENTS_MAX: usize = 16 << 20;

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dimension {
    /// How many there are along it.
    pub length: usize,
    /// The subscript of the first.
    pub lower: i32,
}

/// An array. Without elements it has no dimensions.
#[derive(Clone, Debug, Default, PartialEq)]
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

impl From<Vec<Value>> for Array {
    /// An array of one dimension that begins at 1.
    fn from(elements: Vec<Value>) -> Self {
        let dimension = Dimension { length: elements.len(), lower: 1 };
        Self { dimensions: if elements.is_empty() { Vec::new() } else { vec![dimension] }, elements }
    }
}

impl Array {
    /// One array of several, each an element of a new outermost dimension.
    ///
    /// # Errors
    /// 2202E if they are not of one size.
    pub(crate) fn of_arrays(arrays: &[&Self]) -> Result<Self> {
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
        Ok(Self { dimensions, elements: arrays.iter().flat_map(|array| array.elements.iter().cloned()).collect() })
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
    pub(crate) fn element(&self, subscripts: &[i64]) -> Option<&Value> {
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
    pub(crate) fn slice(&self, bounds: &[(Option<i64>, Option<i64>)]) -> Self {
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
    pub(crate) fn concat(&self, other: &Self) -> Result<Self> {
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
        let elements: Vec<Value> = self.elements.iter().chain(&other.elements).cloned().collect();
        if elements.len() > ELEMENTS_MAX {
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed"));
        }
        Ok(Self { dimensions, elements })
    }

    /// Its elements changed, at the same places.
    pub(crate) fn map(&self, change: impl FnMut(&Value) -> Result<Value>) -> Result<Self> {
        let elements = self.elements.iter().map(change).collect::<Result<_>>()?;
        Ok(Self { dimensions: self.dimensions.clone(), elements })
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.elements.iter().map(Value::bytes).sum::<usize>()
    }

    /// The array of a text: `{1,2}`, `{{a,"b c"},{NULL,d}}`, `[0:1]={1,2}`.
    ///
    /// # Errors
    /// 22P02, and those of the elements.
    pub(crate) fn parse(text: &str, of: Type, context: Context<'_>) -> Result<Self> {
        let mut reader = Reader { whole: text, rest: text.trim(), of, context };
        let bounds = reader.bounds()?;
        let mut elements = Vec::new();
        let lengths = reader.braces(0, &mut elements)?;
        if !reader.rest.trim().is_empty() {
            return Err(malformed(text, "Junk after closing right brace."));
        }
        let dimensions = match bounds {
            _ if elements.is_empty() => Vec::new(),
            Some(bounds) if bounds.iter().map(|bound| bound.length).eq(lengths.iter().copied()) => bounds,
            Some(_) => return Err(malformed(text, "Specified array dimensions do not match array contents.")),
            None => lengths.into_iter().map(|length| Dimension { length, lower: 1 }).collect(),
        };
        Ok(Self { dimensions, elements })
    }

    /// Appends the text.
    pub(crate) fn write(&self, of: Type, zone: Zone, out: &mut String) {
        if self.dimensions.iter().any(|dimension| dimension.lower != 1) {
            for Dimension { length, lower } in &self.dimensions {
                out.push_str(&format!("[{lower}:{}]", i64::from(*lower) + *length as i64 - 1));
            }
            out.push('=');
        }
        if self.dimensions.is_empty() {
            out.push_str("{}");
            return;
        }
        let mut elements = self.elements.iter();
        self.write_dimension(0, &mut elements, (of, zone), out);
    }

    fn write_dimension<'a>(
        &self,
        depth: usize,
        elements: &mut impl Iterator<Item = &'a Value>,
        of: (Type, Zone),
        out: &mut String,
    ) {
        out.push('{');
        for at in 0..self.dimensions[depth].length {
            if at > 0 {
                out.push(',');
            }
            if depth + 1 < self.dimensions.len() {
                self.write_dimension(depth + 1, elements, of, out);
            } else {
                write_element(elements.next().unwrap_or(&Value::Null), of, out);
            }
        }
        out.push('}');
    }

    /// Appends the bytes of the binary format.
    pub(crate) fn to_binary(&self, of: Type, out: &mut Vec<u8>) {
        let nulls = i32::from(self.elements.iter().any(Value::is_null));
        out.extend((self.dimensions.len() as i32).to_be_bytes());
        out.extend(nulls.to_be_bytes());
        out.extend(of.oid().to_be_bytes());
        for Dimension { length, lower } in &self.dimensions {
            out.extend((*length as i32).to_be_bytes());
            out.extend(lower.to_be_bytes());
        }
        for element in &self.elements {
            if element.is_null() {
                out.extend((-1_i32).to_be_bytes());
                continue;
            }
            let begin = out.len();
            out.extend([0; 4]);
            binary::write(element, of, out);
            let length = (out.len() - begin - 4) as i32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// The array of the binary format.
    ///
    /// # Errors
    /// 22P03, 42804 for elements of another type, and those of the elements.
    pub(crate) fn from_binary(bytes: &[u8], of: Type, context: Context<'_>) -> Result<Self> {
        let wrong = || SqlError::new(state::INVALID_BINARY_REPRESENTATION, "incorrect binary data format for an array");
        let mut rest = bytes;
        let number = |rest: &mut &[u8]| -> Result<i32> {
            let (number, after) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
            *rest = after;
            Ok(i32::from_be_bytes(*number))
        };
        let count = usize::try_from(number(&mut rest)?).map_err(|_| wrong())?;
        if count > DIMENSIONS_MAX {
            return Err(too_many_dimensions(count));
        }
        let _nulls = number(&mut rest)?;
        let came = number(&mut rest)? as u32;
        let same = |a: Type, b: Type| a == b || (a.is_text() && b.is_text());
        if came != of.oid() && !Type::of_oid(came).is_some_and(|came| same(came.unbounded(), of.unbounded())) {
            let message = format!("binary data has array element type {came} instead of expected {}", of.oid());
            return Err(SqlError::new(state::DATATYPE_MISMATCH, message));
        }
        let mut array = Self::default();
        let mut total = 1_usize;
        for _ in 0..count {
            let length = usize::try_from(number(&mut rest)?).map_err(|_| wrong())?;
            array.dimensions.push(Dimension { length, lower: number(&mut rest)? });
            total = total.checked_mul(length).filter(|total| *total <= bytes.len()).ok_or_else(wrong)?;
        }
        let total = if count == 0 { 0 } else { total };
        for _ in 0..total {
            let length = number(&mut rest)?;
            if length == -1 {
                array.elements.push(Value::Null);
                continue;
            }
            let length = usize::try_from(length).ok().filter(|length| *length <= rest.len()).ok_or_else(wrong)?;
            let (element, after) = rest.split_at(length);
            array.elements.push(binary::parse(element, of, context)?);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(wrong());
        }
        if array.elements.is_empty() {
            array.dimensions.clear();
        }
        Ok(array)
    }
}

/// Appends an element's text, with quotes where it would be read as something else without.
fn write_element(element: &Value, (of, zone): (Type, Zone), out: &mut String) {
    if element.is_null() {
        out.push_str("NULL");
        return;
    }
    let shown = text::shown(element, of, zone);
    let special = |c: char| matches!(c, '"' | '\\' | '{' | '}' | ',') || c.is_ascii_whitespace() || c == '\u{b}';
    if !shown.is_empty() && !shown.eq_ignore_ascii_case("null") && !shown.contains(special) {
        out.push_str(&shown);
        return;
    }
    out.push('"');
    for character in shown.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

/// A text that is being read from its start.
struct Reader<'a, 'c> {
    whole: &'a str,
    rest: &'a str,
    of: Type,
    context: Context<'c>,
}

impl Reader<'_, '_> {
    fn take(&mut self, character: char) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.strip_prefix(character).map(|rest| self.rest = rest).is_some()
    }

    /// `[1:2][0:3]=`, if it is there.
    fn bounds(&mut self) -> Result<Option<Vec<Dimension>>> {
        let wrong =
            |reader: &Self| malformed(reader.whole, "\"[\" must introduce explicitly-specified array dimensions.");
        let mut dimensions = Vec::new();
        while self.take('[') {
            let (bounds, rest) = self.rest.split_once(']').ok_or_else(|| wrong(self))?;
            self.rest = rest;
            let (lower, upper) = bounds.split_once(':').unwrap_or(("1", bounds));
            let (Ok(lower), Ok(upper)) = (lower.trim().parse::<i32>(), upper.trim().parse::<i32>()) else {
                return Err(wrong(self));
            };
            if upper < lower {
                let message = "upper bound cannot be less than lower bound";
                return Err(SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, message));
            }
            dimensions.push(Dimension { length: (i64::from(upper) - i64::from(lower)) as usize + 1, lower });
        }
        if dimensions.is_empty() {
            return Ok(None);
        }
        if dimensions.len() > DIMENSIONS_MAX {
            return Err(too_many_dimensions(dimensions.len()));
        }
        if self.take('=') { Ok(Some(dimensions)) } else { Err(malformed(self.whole, "Missing assignment operator.")) }
    }

    /// What stands between braces: elements, or arrays of one size. Says how long each dimension is, the outermost first.
    fn braces(&mut self, depth: usize, elements: &mut Vec<Value>) -> Result<Vec<usize>> {
        if !self.take('{') {
            let detail = "Array value must start with \"{\" or dimension information.";
            return Err(malformed(self.whole, if depth == 0 { detail } else { "Unexpected array element." }));
        }
        if depth == DIMENSIONS_MAX {
            return Err(too_many_dimensions(depth + 1));
        }
        if self.take('}') {
            return Ok(vec![0]);
        }
        let mut lengths = vec![0];
        let nested = self.rest.trim_start().starts_with('{');
        loop {
            if nested {
                let inner = self.braces(depth + 1, elements)?;
                if lengths[0] == 0 {
                    lengths.extend(inner);
                } else if lengths[1..] != inner {
                    let detail = "Multidimensional arrays must have sub-arrays with matching dimensions.";
                    return Err(malformed(self.whole, detail));
                }
            } else {
                elements.push(self.element()?);
            }
            lengths[0] += 1;
            if self.take('}') {
                return Ok(lengths);
            }
            if !self.take(',') {
                let detail =
                    if self.rest.is_empty() { "Unexpected end of input." } else { "Unexpected array element." };
                return Err(malformed(self.whole, detail));
            }
        }
    }

    fn element(&mut self) -> Result<Value> {
        self.rest = self.rest.trim_start();
        let unexpected = |reader: &Self| malformed(reader.whole, "Unexpected array element.");
        let quoted = self.take('"');
        let mut element = String::new();
        // As many bytes of it are no blanks that could be at the end.
        let mut kept = 0;
        let mut characters = self.rest.chars();
        loop {
            let before = characters.as_str();
            match characters.next() {
                None => return Err(malformed(self.whole, "Unexpected end of input.")),
                Some('"') if quoted => {
                    self.rest = characters.as_str();
                    return text::parse(&element, self.of, self.context);
                }
                Some(',' | '}') if !quoted => {
                    self.rest = before;
                    break;
                }
                Some('"' | '{') if !quoted => return Err(unexpected(self)),
                Some('\\') => {
                    element.push(characters.next().ok_or_else(|| malformed(self.whole, "Unexpected end of input."))?);
                    kept = element.len();
                }
                Some(other) => {
                    element.push(other);
                    if !other.is_ascii_whitespace() {
                        kept = element.len();
                    }
                }
            }
        }
        element.truncate(kept);
        if element.is_empty() {
            return Err(unexpected(self));
        }
        if element.eq_ignore_ascii_case("null") {
            Ok(Value::Null)
        } else {
            text::parse(&element, self.of, self.context)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(text: &str, of: Type) -> Result<Array> {
        Array::parse(text, of, Context::NONE)
    }

    fn shown(array: &Array, of: Type) -> String {
        let mut out = String::new();
        array.write(of, Zone::UTC, &mut out);
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
