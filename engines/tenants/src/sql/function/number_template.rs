//! Numbers by a template: `to_char`, `to_number`.

use bigdecimal::{BigDecimal, Signed, Zero};

use super::{Resolved, is_texty, wrong_arguments};
use crate::{
    error::{Result, SqlError, state},
    types::Type,
    value::{Value, cast, numeric},
};

/// A function of a number's template, called as what it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberTemplateFunction {
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

impl Template {
    fn read(text: &str) -> Result<Self> {
        let mut template = Self::default();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let starts = |word: &str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
            let mut length = character.len_utf8();
            let piece = match character.to_ascii_uppercase() {
                '"' => {
                    let end = rest[1..].find('"').map_or(rest.len(), |end| end + 2);
                    let content = rest[1..end].trim_end_matches('"').to_owned();
                    length = end;
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
                '\\' => {
                    let next = rest[1..].chars().next();
                    length += next.map_or(0, char::len_utf8);
                    Piece::Text(next.unwrap_or('\\').to_string())
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

/// Writes a number by a template.
struct Writer<'t> {
    template: &'t Template,
    negative: bool,
    /// The digits with the point, as they are used up.
    digits: Vec<char>,
    next: usize,
    /// Blanks before the number's first digit.
    blanks: usize,
    /// What stands behind this place is left out.
    relevant: Option<usize>,
    /// A zero before the point that is not shown.
    hides_zero: bool,
    own: Option<Beside>,
    brackets: bool,
    sign_written: bool,
    in_number: bool,
    /// Digits and points that were met.
    met: usize,
    out: String,
}

impl<'t> Writer<'t> {
    fn new(template: &'t Template, negative: bool, (whole, fraction): (&str, &str)) -> Self {
        let empty = template.before == 0;
        let digits: Vec<char> = match (empty && whole == "0", template.behind) {
            (true, 0) => Vec::new(),
            (true, _) => ['.'].into_iter().chain(fraction.chars()).collect(),
            (false, 0) => whole.chars().collect(),
            (false, _) => whole.chars().chain(['.']).chain(fraction.chars()).collect(),
        };
        let blanks = template.before.saturating_sub(if empty { 0 } else { whole.len() });
        let hides_zero = template.first_zero.is_none() && whole == "0" && template.behind > 0 && !empty;
        let relevant = (template.bare && template.behind > 0).then(|| {
            let point = digits.iter().position(|digit| *digit == '.').unwrap_or(digits.len());
            let last = digits.iter().rposition(|digit| *digit != '0').unwrap_or(point).max(point);
            // Zeros that the template has are there.
            let zero = template.last_zero.saturating_sub(blanks);
            if template.last_zero > blanks && zero > last { zero.min(digits.len().saturating_sub(1)) } else { last }
        });
        let own = template.own.map(|own| match own {
            Beside::Before if template.before == 0 => Beside::Behind,
            own => own,
        });
        let bare = template.bare && !negative;
        let sign_written = match (template.plus, template.minus) {
            (true, false) => false,
            (_, true) => true,
            _ => bare && own.is_none(),
        };
        Self {
            template,
            negative,
            digits,
            next: 0,
            blanks,
            relevant,
            hides_zero,
            own,
            brackets: template.brackets && !bare,
            sign_written,
            in_number: false,
            met: 0,
            out: String::new(),
        }
    }

    fn written(mut self) -> String {
        let bare = self.template.bare;
        for piece in &self.template.pieces {
            let blank = |out: &mut String| {
                if !bare {
                    out.push(' ')
                }
            };
            match piece {
                Piece::Nine | Piece::Zero | Piece::Point => self.digit(piece),
                Piece::Comma if self.in_number => self.out.push(','),
                Piece::Comma => blank(&mut self.out),
                Piece::Minus if self.negative => self.out.push('-'),
                Piece::Minus => blank(&mut self.out),
                Piece::Plus if !self.negative => self.out.push('+'),
                Piece::Plus => blank(&mut self.out),
                Piece::Sign => self.out.push(if self.negative { '-' } else { '+' }),
                Piece::Ordinal(ending) if !self.negative && self.template.behind == 0 => {
                    let ordinal = ordinal(&self.digits);
                    self.out.push_str(&if *ending == "TH" { ordinal.to_ascii_uppercase() } else { ordinal.to_owned() });
                }
                Piece::Ordinal(_) | Piece::Own | Piece::Brackets => {}
                Piece::Text(text) => self.out.push_str(text),
            }
        }
        self.out
    }

    /// A digit or the point.
    fn digit(&mut self, piece: &Piece) {
        let template = self.template;
        let is_zero = template.first_zero.is_some_and(|first| first <= self.met);
        let ends_with_point = self.relevant.is_some_and(|at| self.digits.get(at) == Some(&'.'));
        if !self.sign_written
            && (self.met >= self.blanks || template.first_zero == Some(self.met))
            && (!self.hides_zero || ends_with_point || self.next > 0)
        {
            self.sign();
        }
        let dropped = self.relevant.is_some_and(|at| self.next > at);
        if *piece == Piece::Point {
            if template.behind > 0 {
                self.out.push('.');
            }
            if self.digits.get(self.next) == Some(&'.') {
                self.next += 1;
            }
        } else if dropped && *piece != Piece::Zero {
        } else if self.met < self.blanks && !is_zero {
            if !template.bare {
                self.out.push(' ');
            }
        } else if self.met < self.blanks {
            self.out.push('0');
            self.in_number = true;
        } else {
            let hidden = self.hides_zero && self.next == 0;
            match self.digits.get(self.next) {
                Some(_) if hidden && ends_with_point => self.out.push('0'),
                Some(_) if hidden && !template.bare => self.out.push(' '),
                Some(_) if hidden => {}
                Some(digit) => {
                    self.out.push(*digit);
                    self.in_number = true;
                }
                None => {}
            }
            self.next += usize::from(self.next < self.digits.len());
        }
        self.met += 1;
        let count = template.before + template.behind + usize::from(template.point);
        let ends = self.met == count || self.relevant.is_some_and(|at| self.next > at) && self.relevant.is_some();
        if ends && self.sign_written {
            if self.brackets {
                self.out.push(if self.negative { '>' } else { ' ' });
                self.brackets = false;
            } else if self.own == Some(Beside::Behind) {
                self.out.push(if self.negative { '-' } else { '+' });
                self.own = None;
            }
        }
    }

    fn sign(&mut self) {
        self.sign_written = true;
        match self.own {
            Some(Beside::Before) => self.out.push(if self.negative { '-' } else { '+' }),
            Some(Beside::Behind) => {}
            None if self.brackets => self.out.push(if self.negative { '<' } else { ' ' }),
            None if self.negative => self.out.push('-'),
            None if !self.template.bare => self.out.push(' '),
            None => {}
        }
    }
}

/// `st`, `nd`, `rd`, `th`
fn ordinal(digits: &[char]) -> &'static str {
    match digits {
        [.., '1', _] => "th",
        [.., '1'] => "st",
        [.., '2'] => "nd",
        [.., '3'] => "rd",
        _ => "th",
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

/// The number that a text has by a template.
fn read(text: &str, template: &Template) -> Result<Value> {
    let wrong = || {
        let message =
            format!("invalid input syntax for type numeric: \"{}\"", if text.is_empty() { " " } else { text });
        SqlError::new(state::INVALID_TEXT_REPRESENTATION, message)
    };
    let (mut digits, mut negative, mut behind) = (String::new(), false, None);
    let mut rest = text.trim_start().chars().peekable();
    for piece in &template.pieces {
        let sign = rest.next_if(|character| matches!(character, '-' | '+' | '<'));
        negative |= matches!(sign, Some('-' | '<'));
        match piece {
            Piece::Nine | Piece::Zero => {
                if rest.peek() == Some(&'.') && behind.is_none() && !template.point {
                    break;
                }
                if let Some(digit) = rest.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                    if let Some(behind) = &mut behind {
                        *behind += 1;
                    }
                } else if rest.peek() == Some(&' ') {
                    rest.next();
                }
            }
            Piece::Point if rest.next_if_eq(&'.').is_some() => behind = Some(0_usize),
            Piece::Comma => {
                rest.next_if_eq(&',');
            }
            Piece::Text(text) => {
                for _ in text.chars() {
                    rest.next_if(|next| !next.is_ascii_digit());
                }
            }
            _ => {}
        }
    }
    negative |= rest.next_if(|character| matches!(character, '-')).is_some();
    if digits.is_empty() {
        return Err(wrong());
    }
    let behind = behind.unwrap_or(0);
    let number = format!(
        "{}{}.{}",
        if negative { "-" } else { "" },
        &digits[..digits.len() - behind],
        &digits[digits.len() - behind..]
    );
    let number = numeric::parse(number.trim_end_matches('.'))?;
    let number = if number.is_zero() { number.abs() } else { number };
    cast::fit(Value::Numeric(number), Type::Numeric(None), false)
}
