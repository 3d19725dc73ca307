//! Numbers as a template shows them.

use super::{Beside, Piece, Template};

/// Writes a number by a template.
pub(super) struct Writer<'t> {
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
    pub(super) fn new(template: &'t Template, negative: bool, (whole, fraction): (&str, &str)) -> Self {
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

    pub(super) fn written(mut self) -> String {
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
