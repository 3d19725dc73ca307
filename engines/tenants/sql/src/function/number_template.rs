//! Numbers by a template: `to_char`, `to_number`.

mod read;
mod write;

use bigdecimal::{BigDecimal, Signed};
use savanna_tenants_values::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, numeric},
};

use self::{read::read, write::Writer};
use super::{Resolved, is_texty, wrong_arguments};

/// A function of a number's template, called as what it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberTemplateFunction {
    Char,
    Number,
}

/// The function of a number's template of a name, as [`super::resolve`].
pub(super) fn resolve(name: &str, arguments: &[Type]) -> Option<Resolved<NumberTemplateFunction>> {
    use NumberTemplateFunction as F;
    use Type::{Float8, Numeric, Text};
    Some(match (name, arguments) {
        ("to_char", [of, template]) if of.is_number() && is_texty(template) => {
            let of = if matches!(of, Type::Float4 | Float8) { Float8 } else { Numeric(None) };
            (F::Char, vec![of, Text], Text)
        }
        ("to_number", [text, template]) if is_texty(text) && is_texty(template) => {
            (F::Number, vec![Text; 2], Numeric(None))
        }
        _ => return None,
    })
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Nine,
    Zero,
    Point,
    Comma,
    Minus,
    Plus,
    Sign,
    /// `S`: the sign beside the number.
    Own,
    /// `PR`
    Brackets,
    /// `TH`, `th`
    Ordinal(&'static str),
    Text(String),
}

/// Where a sign stands that is beside the number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    Before,
    Behind,
}

/// A template that was read.
#[derive(Debug, Default)]
struct Template {
    pieces: Vec<Piece>,
    /// Without padding.
    bare: bool,
    /// Digits before and behind the point.
    before: usize,
    behind: usize,
    point: bool,
    /// Digits before the first zero that stands before the point.
    first_zero: Option<usize>,
    /// Digits up to the last zero.
    last_zero: usize,
    own: Option<Beside>,
    brackets: bool,
    minus: bool,
    plus: bool,
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(state::SYNTAX_ERROR, message)
}

/// What stands before the next quotation mark, behind which it goes on after so many bytes. A backslash takes the next character as it is.
fn quoted(text: &str) -> (String, usize) {
    let mut content = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (content, at + 1),
            '\\' => content.extend(characters.next().map(|(_, character)| character)),
            other => content.push(other),
        }
    }
    (content, text.len())
}

impl Template {
    fn read(text: &str) -> Result<Self> {
        let mut template = Self::default();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let starts = |word: &str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
            let mut length = character.len_utf8();
            let piece = match character.to_ascii_uppercase() {
                '"' => {
                    let (content, end) = quoted(&rest[1..]);
                    length = 1 + end;
                    Piece::Text(content)
                }
                '9' => {
                    template.digit()?;
                    Piece::Nine
                }
                '0' => {
                    if template.first_zero.is_none() && !template.point {
                        template.first_zero = Some(template.before);
                    }
                    template.digit()?;
                    template.last_zero = template.before + template.behind;
                    Piece::Zero
                }
                '.' | 'D' => {
                    if template.point {
                        return Err(wrong("multiple decimal points"));
                    }
                    template.point = true;
                    Piece::Point
                }
                ',' | 'G' => Piece::Comma,
                'F' if starts("FM") => {
                    (template.bare, rest) = (true, &rest[2..]);
                    continue;
                }
                'M' if starts("MI") => {
                    (template.minus, length) = (true, 2);
                    Piece::Minus
                }
                'P' if starts("PL") => {
                    (template.plus, length) = (true, 2);
                    Piece::Plus
                }
                'P' if starts("PR") => {
                    (template.brackets, length) = (true, 2);
                    Piece::Brackets
                }
                'S' if starts("SG") => {
                    (template.plus, template.minus, length) = (true, true, 2);
                    Piece::Sign
                }
                'S' => {
                    if template.own.is_some() {
                        return Err(wrong("cannot use \"S\" twice"));
                    }
                    let begins = template.before + template.behind == 0 && !template.point;
                    template.own = Some(if begins { Beside::Before } else { Beside::Behind });
                    Piece::Own
                }
                'T' if starts("TH") => {
                    length = 2;
                    Piece::Ordinal(if rest.starts_with("th") { "th" } else { "TH" })
                }
                'E' if starts("EEEE") => return Err(SqlError::unsupported("EEEE in a template of numbers")),
                'R' if starts("RN") => return Err(SqlError::unsupported("RN in a template of numbers")),
                'L' | 'V' => {
                    return Err(SqlError::unsupported(format_args!("{character} in a template of numbers")));
                }
                '\\' if rest[1..].starts_with('"') => {
                    length = 2;
                    Piece::Text("\"".to_owned())
                }
                _ => Piece::Text(character.to_string()),
            };
            template.pieces.push(piece);
            rest = &rest[length..];
        }
        if template.brackets && (template.own.is_some() || template.plus || template.minus) {
            return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
        }
        if template.own.is_some() && (template.plus || template.minus) {
            return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
        }
        Ok(template)
    }

    fn digit(&mut self) -> Result<()> {
        if self.brackets {
            return Err(wrong("\"9\" must be ahead of \"PR\""));
        }
        if self.point {
            self.behind += 1;
        } else {
            self.before += 1;
        }
        Ok(())
    }

    /// The number as it is shown.
    fn shown(&self, number: &BigDecimal) -> String {
        let rounded = numeric::round(number, self.behind as i64);
        let negative = rounded.is_negative();
        let text = rounded.abs().to_plain_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let fits = whole.len() <= self.before || rounded.abs() < 1 && self.before == 0;
        let whole = if fits { whole.to_owned() } else { "#".repeat(self.before) };
        let fraction = if fits { fraction.to_owned() } else { "#".repeat(self.behind) };
        Writer::new(self, negative, (&whole, &fraction)).written()
    }
}

impl NumberTemplateFunction {
    /// Its value; no argument is NULL.
    pub(super) fn call(self, arguments: &[&Value]) -> Result<Value> {
        match (self, arguments) {
            (Self::Char, [Value::Numeric(number), Value::Text(template)]) => {
                Ok(Value::Text(Template::read(template)?.shown(number)))
            }
            (Self::Char, [Value::Float(number), Value::Text(template)]) if number.is_finite() => {
                let number = numeric::parse(&format!("{number:e}"))?;
                Ok(Value::Text(Template::read(template)?.shown(&number)))
            }
            (Self::Char, [..]) => Err(SqlError::unsupported("to_char of a number that is not finite")),
            (Self::Number, [Value::Text(text), Value::Text(template)]) => read(text, &Template::read(template)?),
            _ => Err(wrong_arguments(self)),
        }
    }
}
