//! The texts of arrays.

use super::{Array, DIMENSIONS_MAX, Dimension, check_bounds, malformed, too_many_dimensions};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{
        Context, Value,
        size::{self, Elements},
        style::Style,
        text,
    },
};

impl Array {
    /// The array of a text: `{1,2}`, `{{a,"b c"},{NULL,d}}`, `[0:1]={1,2}`.
    ///
    /// # Errors
    /// 22P02, and those of the elements.
    pub(crate) fn parse(text: &str, of: Type, context: Context<'_>) -> Result<Self> {
        let mut reader = Reader { whole: text, rest: text.trim_matches(is_blank), of, context };
        let bounds = reader.bounds()?;
        let mut elements = Elements::default();
        let lengths = reader.braces(0, &mut elements)?;
        if !reader.rest.trim_matches(is_blank).is_empty() {
            return Err(malformed(text, "Junk after closing right brace."));
        }
        let elements = elements.finish();
        let dimensions = match bounds {
            _ if elements.is_empty() => Vec::new(),
            Some(bounds) if bounds.iter().map(|bound| bound.length).eq(lengths.iter().copied()) => bounds,
            Some(_) => return Err(malformed(text, "Specified array dimensions do not match array contents.")),
            None => lengths.into_iter().map(|length| Dimension { length, lower: 1 }).collect(),
        };
        Ok(Self { dimensions, elements })
    }

    /// Appends the text.
    pub(crate) fn write(&self, of: Type, style: Style, out: &mut String) {
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
        self.write_dimension(0, &mut elements, (of, style), out);
    }

    fn write_dimension<'a>(
        &self,
        depth: usize,
        elements: &mut impl Iterator<Item = &'a Value>,
        of: (Type, Style),
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
                // Whoever writes it refuses it.
                if size::check_written(out.len()).is_err() {
                    return;
                }
            }
        }
        out.push('}');
    }
}

/// Whether it may stand around elements. Other blanks of Unicode are part of them, as in PostgreSQL.
const fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\u{b}'
}

/// Appends an element's text, with quotes where it would be read as something else without.
fn write_element(element: &Value, (of, style): (Type, Style), out: &mut String) {
    if element.is_null() {
        out.push_str("NULL");
        return;
    }
    let shown = text::shown(element, of, style);
    let special = |c: char| matches!(c, '"' | '\\' | '{' | '}' | ',') || is_blank(c);
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
        self.rest = self.rest.trim_start_matches(is_blank);
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
        check_bounds(&dimensions)?;
        if self.take('=') { Ok(Some(dimensions)) } else { Err(malformed(self.whole, "Missing assignment operator.")) }
    }

    /// What stands between braces: elements, or arrays of one size. Says how long each dimension is, the outermost first.
    fn braces(&mut self, depth: usize, elements: &mut Elements) -> Result<Vec<usize>> {
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
        let nested = self.rest.trim_start_matches(is_blank).starts_with('{');
        loop {
            if nested {
                let inner = self.braces(depth + 1, elements)?;
                if inner == [0] {
                    return Err(malformed(self.whole, "Unexpected \"}\" character."));
                }
                if lengths[0] == 0 {
                    lengths.extend(inner);
                } else if lengths[1..] != inner {
                    let detail = "Multidimensional arrays must have sub-arrays with matching dimensions.";
                    return Err(malformed(self.whole, detail));
                }
            } else {
                elements.push(self.element()?)?;
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
        self.rest = self.rest.trim_start_matches(is_blank);
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
                    if !is_blank(other) {
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
