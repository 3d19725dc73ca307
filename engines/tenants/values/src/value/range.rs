//! Ranges: all values of a type between two bounds, of which each may be missing.

use std::{cmp::Ordering, mem};

use serde::{Deserialize, Serialize};

use super::{Context, Value, binary, datetime, style::Style, text};
use crate::{
    error::{Result, SqlError, state},
    types::Ranged,
};

/// What the binary format says about a range.
mod flag {
    pub(super) const EMPTY: u8 = 0x01;
    pub(super) const LOWER_INCLUSIVE: u8 = 0x02;
    pub(super) const UPPER_INCLUSIVE: u8 = 0x04;
    pub(super) const LOWER_MISSING: u8 = 0x08;
    pub(super) const UPPER_MISSING: u8 = 0x10;
}

/// A bound of a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Where it is; nowhere if there is none.
    pub value: Option<Value>,
    /// Whether it belongs to the range.
    pub inclusive: bool,
}

/// A range. Those of integers and dates have their lower bound, and not their upper one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Range {
    /// No value.
    Empty,
    /// Values from a lower to an upper bound.
    Between(Bound, Bound),
}

/// A bound, and on which side.
#[derive(Clone, Copy)]
enum Side<'a> {
    Lower(&'a Bound),
    Upper(&'a Bound),
}

/// How two bounds are ordered.
fn compare(a: Side<'_>, b: Side<'_>) -> Ordering {
    let parts = |side| match side {
        Side::Lower(bound) => (bound, true),
        Side::Upper(bound) => (bound, false),
    };
    let ((a, a_lower), (b, b_lower)) = (parts(a), parts(b));
    // Where a bound is that lies a little beside its value.
    let beside = |lower| if lower { Ordering::Greater } else { Ordering::Less };
    match (&a.value, &b.value) {
        (None, None) => b_lower.cmp(&a_lower),
        (None, Some(_)) => beside(a_lower).reverse(),
        (Some(_), None) => beside(b_lower),
        (Some(x), Some(y)) => x.compare(y).then_with(|| match (a.inclusive, b.inclusive) {
            (true, true) => Ordering::Equal,
            (false, false) => a_lower.cmp(&b_lower),
            (false, true) => beside(a_lower),
            (true, false) => beside(b_lower).reverse(),
        }),
    }
}

impl Range {
    /// The range between two bounds, in the form that its type has.
    ///
    /// # Errors
    /// 22000 if the lower bound is behind the upper one, 22003 or 22008 if there is no value behind a bound.
    pub fn new(lower: Bound, upper: Bound, of: Ranged) -> Result<Self> {
        let (lower, upper) = (lower.known(), upper.known());
        if let (Some(from), Some(to)) = (&lower.value, &upper.value) {
            match from.compare(to) {
                Ordering::Greater => {
                    let message = "range lower bound must be less than or equal to range upper bound";
                    return Err(SqlError::new("22000", message));
                }
                Ordering::Equal if !(lower.inclusive && upper.inclusive) => return Ok(Self::Empty),
                _ => {}
            }
        }
        if !of.is_discrete() {
            return Ok(Self::Between(lower, upper));
        }
        let lower = if lower.inclusive { lower } else { lower.next(of)? };
        let upper = if upper.inclusive { upper.next(of)? } else { upper };
        let is_empty = lower.value.is_some() && lower.value == upper.value && !upper.inclusive;
        Ok(if is_empty { Self::Empty } else { Self::Between(lower, upper) })
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |bound: &Bound| bound.value.as_ref().map_or(0, Value::bytes);
        size_of::<Self>()
            + match self {
                Self::Empty => 0,
                Self::Between(lower, upper) => bytes(lower) + bytes(upper),
            }
    }

    /// PostgreSQL's order: by the lower bound, then by the upper one; an empty one is the smallest.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Empty, Self::Empty) => Ordering::Equal,
            (Self::Empty, _) => Ordering::Less,
            (_, Self::Empty) => Ordering::Greater,
            (Self::Between(l1, u1), Self::Between(l2, u2)) => {
                compare(Side::Lower(l1), Side::Lower(l2)).then_with(|| compare(Side::Upper(u1), Side::Upper(u2)))
            }
        }
    }

    /// Whether a value is in it.
    #[must_use]
    pub fn has(&self, value: &Value) -> bool {
        let Self::Between(lower, upper) = self else { return false };
        let point = Bound { value: Some(value.clone()), inclusive: true };
        compare(Side::Lower(lower), Side::Lower(&point)).is_le()
            && compare(Side::Upper(upper), Side::Upper(&point)).is_ge()
    }

    /// Whether all of another is in it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Empty) => true,
            (Self::Empty, _) => false,
            (Self::Between(l1, u1), Self::Between(l2, u2)) => {
                compare(Side::Lower(l1), Side::Lower(l2)).is_le() && compare(Side::Upper(u1), Side::Upper(u2)).is_ge()
            }
        }
    }

    /// Both, if none is empty.
    fn with<'a>(&'a self, other: &'a Self) -> Option<[&'a Bound; 4]> {
        match (self, other) {
            (Self::Between(l1, u1), Self::Between(l2, u2)) => Some([l1, u1, l2, u2]),
            _ => None,
        }
    }

    /// Whether they have a value in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.with(other).is_some_and(|[l1, u1, l2, u2]| {
            compare(Side::Lower(l1), Side::Upper(u2)).is_le() && compare(Side::Lower(l2), Side::Upper(u1)).is_le()
        })
    }

    /// Whether it ends before another begins.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.with(other).is_some_and(|[_, u1, l2, _]| compare(Side::Upper(u1), Side::Lower(l2)).is_lt())
    }

    /// Whether it does not reach behind another.
    #[must_use]
    pub fn ends_within(&self, other: &Self) -> bool {
        self.with(other).is_some_and(|[_, u1, _, u2]| compare(Side::Upper(u1), Side::Upper(u2)).is_le())
    }

    /// Whether it does not begin before another.
    #[must_use]
    pub fn begins_within(&self, other: &Self) -> bool {
        self.with(other).is_some_and(|[l1, _, l2, _]| compare(Side::Lower(l1), Side::Lower(l2)).is_ge())
    }

    /// Whether one ends where the other begins.
    #[must_use]
    pub fn is_adjacent(&self, other: &Self) -> bool {
        let meet = |upper: &Bound, lower: &Bound| {
            let touch = upper.value.as_ref().zip(lower.value.as_ref()).is_some_and(|(a, b)| a.compare(b).is_eq());
            touch && upper.inclusive != lower.inclusive
        };
        self.with(other).is_some_and(|[l1, u1, l2, u2]| meet(u1, l2) || meet(u2, l1))
    }

    /// The smallest range that has both in it.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let Some([l1, u1, l2, u2]) = self.with(other) else {
            return if *self == Self::Empty { other.clone() } else { self.clone() };
        };
        let lower = if compare(Side::Lower(l1), Side::Lower(l2)).is_le() { l1 } else { l2 };
        let upper = if compare(Side::Upper(u1), Side::Upper(u2)).is_ge() { u1 } else { u2 };
        Self::Between(lower.clone(), upper.clone())
    }

    /// What is in one of two.
    ///
    /// # Errors
    /// 22000 if there is something between them.
    pub fn union(&self, other: &Self) -> Result<Self> {
        if self.with(other).is_some() && !self.overlaps(other) && !self.is_adjacent(other) {
            return Err(SqlError::new("22000", "result of range union would not be contiguous"));
        }
        Ok(self.merged(other))
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        match self.with(other) {
            Some([l1, u1, l2, u2]) if self.overlaps(other) => {
                let lower = if compare(Side::Lower(l1), Side::Lower(l2)).is_ge() { l1 } else { l2 };
                let upper = if compare(Side::Upper(u1), Side::Upper(u2)).is_le() { u1 } else { u2 };
                Self::Between(lower.clone(), upper.clone())
            }
            _ => Self::Empty,
        }
    }

    /// What is in it and not in another.
    ///
    /// # Errors
    /// 22000 if there is something between what is left.
    pub fn difference(&self, other: &Self, of: Ranged) -> Result<Self> {
        match self.without(other, of)? {
            (Self::Empty, one) | (one, Self::Empty) => Ok(one),
            _ => Err(SqlError::new("22000", "result of range difference would not be contiguous")),
        }
    }

    /// What is in it before all that is in another, and what is behind it.
    pub(crate) fn without(&self, other: &Self, of: Ranged) -> Result<(Self, Self)> {
        let Some([l1, u1, l2, u2]) = self.with(other) else { return Ok((Self::Empty, self.clone())) };
        if !self.overlaps(other) {
            return Ok(if self.is_before(other) { (self.clone(), Self::Empty) } else { (Self::Empty, self.clone()) });
        }
        let other_side = |bound: &Bound| Bound { inclusive: !bound.inclusive, ..bound.clone() };
        let before = match compare(Side::Lower(l1), Side::Lower(l2)).is_lt() {
            true => Self::new(l1.clone(), other_side(l2), of)?,
            false => Self::Empty,
        };
        let behind = match compare(Side::Upper(u1), Side::Upper(u2)).is_gt() {
            true => Self::new(other_side(u2), u1.clone(), of)?,
            false => Self::Empty,
        };
        Ok((before, behind))
    }

    /// Appends its text.
    pub(crate) fn write(&self, of: Ranged, style: Style, out: &mut String) {
        let Self::Between(lower, upper) = self else {
            out.push_str("empty");
            return;
        };
        out.push(if lower.inclusive { '[' } else { '(' });
        lower.write(of, style, out);
        out.push(',');
        upper.write(of, style, out);
        out.push(if upper.inclusive { ']' } else { ')' });
    }

    /// The range that a text stands for.
    ///
    /// # Errors
    /// 22P02, and those of its bounds.
    pub(crate) fn parse(whole: &str, of: Ranged, context: Context<'_>) -> Result<Self> {
        let wrong = |detail: &str| {
            let message = format!("malformed range literal: \"{whole}\"");
            SqlError::new(state::INVALID_TEXT_REPRESENTATION, message).detail(detail)
        };
        let blank = |c: char| c.is_ascii_whitespace() || c == '\x0b';
        let trimmed = whole.trim_matches(blank);
        if trimmed.eq_ignore_ascii_case("empty") {
            return Ok(Self::Empty);
        }
        let inclusive = trimmed.starts_with('[');
        let rest = trimmed.strip_prefix(['[', '(']).ok_or_else(|| wrong("Missing left parenthesis or bracket."))?;
        let (lower, rest) = bound(rest).ok_or_else(|| wrong("Unexpected end of input."))?;
        let rest = rest.strip_prefix(',').ok_or_else(|| wrong("Missing comma after lower bound."))?;
        let (upper, rest) = bound(rest).ok_or_else(|| wrong("Unexpected end of input."))?;
        let upper_inclusive = match rest {
            "]" => true,
            ")" => false,
            rest if rest.starts_with(',') => return Err(wrong("Too many commas.")),
            _ => return Err(wrong("Junk after right parenthesis or bracket.")),
        };
        let value =
            |written: Option<String>| written.map(|written| text::parse(&written, of.element(), context)).transpose();
        let lower = Bound { value: value(lower)?, inclusive };
        Self::new(lower, Bound { value: value(upper)?, inclusive: upper_inclusive }, of)
    }

    /// Appends its bytes: what kind it is, and each bound that it has behind its length.
    pub fn to_bytes(&self, out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
        let Self::Between(lower, upper) = self else { return out.push(flag::EMPTY) };
        let set = |is: bool, flag: u8| if is { flag } else { 0 };
        out.push(
            set(lower.inclusive, flag::LOWER_INCLUSIVE)
                | set(upper.inclusive, flag::UPPER_INCLUSIVE)
                | set(lower.value.is_none(), flag::LOWER_MISSING)
                | set(upper.value.is_none(), flag::UPPER_MISSING),
        );
        for value in lower.value.iter().chain(&upper.value) {
            let begin = out.len();
            out.extend([0; 4]);
            write(value, out);
            let length = (out.len() - begin - 4) as u32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// From these bytes.
    ///
    /// # Errors
    /// Those of its bounds, and `None` if the bytes are others.
    pub fn from_bytes(bytes: &[u8], of: Ranged, read: impl Fn(&[u8]) -> Result<Value>) -> Result<Option<Self>> {
        let Some((&flags, mut rest)) = bytes.split_first() else { return Ok(None) };
        let mut next = |missing: u8, inclusive: u8| -> Result<Option<Bound>> {
            let inclusive = flags & inclusive != 0;
            if flags & missing != 0 {
                return Ok(Some(Bound { value: None, inclusive }));
            }
            let parts = rest
                .split_first_chunk()
                .and_then(|(length, behind)| behind.split_at_checked(u32::from_be_bytes(*length) as usize));
            let Some((value, behind)) = parts else { return Ok(None) };
            rest = behind;
            Ok(Some(Bound { value: Some(read(value)?), inclusive }))
        };
        if flags & flag::EMPTY != 0 {
            return Ok(rest.is_empty().then_some(Self::Empty));
        }
        let Some(lower) = next(flag::LOWER_MISSING, flag::LOWER_INCLUSIVE)? else { return Ok(None) };
        let Some(upper) = next(flag::UPPER_MISSING, flag::UPPER_INCLUSIVE)? else { return Ok(None) };
        if !mem::take(&mut rest).is_empty() {
            return Ok(None);
        }
        Self::new(lower, upper, of).map(Some)
    }

    /// From the binary format.
    pub(crate) fn from_wire(bytes: &[u8], of: Ranged, context: Context<'_>) -> Result<Option<Self>> {
        Self::from_bytes(bytes, of, |value| binary::parse(value, of.element(), context))
    }

    /// Appends its bytes in the binary format.
    pub(crate) fn to_wire(&self, of: Ranged, out: &mut Vec<u8>) {
        self.to_bytes(out, |value, out| binary::write(value, of.element(), out));
    }
}

impl Bound {
    /// No bound includes nothing.
    fn known(self) -> Self {
        Self { inclusive: self.inclusive && self.value.is_some(), ..self }
    }

    /// The next value, included where this is not, and the other way round.
    fn next(self, of: Ranged) -> Result<Self> {
        let out_of = |what: &str, state| SqlError::new(state, format!("{what} out of range"));
        let value = match self.value {
            Some(Value::Int(value)) => {
                let next = value.checked_add(1).filter(|next| text::in_range(*next, of.element()));
                let missing = || out_of(&of.element().name(), state::NUMERIC_VALUE_OUT_OF_RANGE);
                Some(Value::Int(next.ok_or_else(missing)?))
            }
            Some(Value::Date(day)) if !datetime::is_infinite_date(day) => Some(Value::Date(
                datetime::known_day(i64::from(day) + 1)
                    .ok_or_else(|| out_of("date", state::DATETIME_FIELD_OVERFLOW))?,
            )),
            // There is none behind what is infinite.
            other => return Ok(Self { value: other, inclusive: self.inclusive }),
        };
        Ok(Self { inclusive: !self.inclusive, value })
    }

    fn write(&self, of: Ranged, style: Style, out: &mut String) {
        let Some(value) = &self.value else { return };
        let shown = text::shown(value, of.element(), style);
        let quoted = |c: char| matches!(c, '"' | '\\' | '(' | ')' | '[' | ']' | ',') || c.is_ascii_whitespace();
        if !shown.is_empty() && !shown.contains(quoted) {
            return out.push_str(&shown);
        }
        out.push('"');
        out.push_str(&shown.replace('\\', "\\\\").replace('"', "\"\""));
        out.push('"');
    }
}

/// A bound as it is written, none if nothing is, and what stands behind it.
fn bound(text: &str) -> Option<(Option<String>, &str)> {
    if text.starts_with([',', ')', ']']) {
        return Some((None, text));
    }
    let (mut written, mut quoted) = (String::new(), false);
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => written.push(characters.next()?.1),
            '"' if !quoted => quoted = true,
            '"' if characters.next_if(|(_, next)| *next == '"').is_some() => written.push('"'),
            '"' => quoted = false,
            ',' | ')' | ']' if !quoted => return Some((Some(written), &text[at..])),
            other => written.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, of: Ranged) -> Result<Range> {
        Range::parse(text, of, Context::NONE)
    }

    fn shown(range: &Range, of: Ranged) -> String {
        let mut out = String::new();
        range.write(of, Style::PLAIN, &mut out);
        out
    }

    fn int(text: &str) -> Range {
        read(text, Ranged::Int4).unwrap()
    }

    #[test]
    fn ranges_are_written_as_postgresql_writes_them() {
        for (text, of, expected) in [
            ("[1,5]", Ranged::Int4, "[1,6)"),
            ("(1,2)", Ranged::Int4, "empty"),
            ("( 1 , 3 )", Ranged::Int4, "[2,3)"),
            (" EMPTY ", Ranged::Int8, "empty"),
            ("[,5]", Ranged::Int4, "(,6)"),
            ("(,)", Ranged::Date, "(,)"),
            ("[1.50,1.5]", Ranged::Num, "[1.50,1.5]"),
            ("(1,1]", Ranged::Num, "empty"),
            ("[2024-02-28,2024-02-29]", Ranged::Date, "[2024-02-28,2024-03-01)"),
            ("[2024-02-28,infinity]", Ranged::Date, "[2024-02-28,infinity]"),
            ("[\"2024-01-01 00:00\",2024-02-01)", Ranged::Ts, "[\"2024-01-01 00:00:00\",\"2024-02-01 00:00:00\")"),
        ] {
            assert_eq!(shown(&read(text, of).unwrap(), of), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["", "1,2", "[1,2", "[1 2]", "[1,2,3]", "[1,2]x", "[\"1,2]", "[1,2\\", "[(1,2)", "empty,"] {
            assert_eq!(read(text, Ranged::Int4).unwrap_err().state, state::INVALID_TEXT_REPRESENTATION, "{text}");
        }
        assert_eq!(read("[2,1]", Ranged::Int4).unwrap_err().state, "22000");
        assert!(
            read("[1,2147483647]", Ranged::Int4).is_err() && read("[1,9223372036854775807]", Ranged::Int8).is_err()
        );
        assert!(read("[1,x)", Ranged::Int4).is_err());
    }

    #[test]
    fn ranges_are_ordered_by_their_bounds() {
        let ordered = ["empty", "(,1)", "(,2)", "(,)", "[1,2)", "[1,)", "[2,3)"].map(int);
        assert!(ordered.windows(2).all(|pair| pair[0].compare(&pair[1]).is_lt()));
    }

    #[test]
    fn ranges_are_computed_with_as_sets_are() {
        let (a, b, c) = (int("[1,5)"), int("[3,8)"), int("[5,9)"));
        assert!(a.overlaps(&b) && !a.overlaps(&c) && a.is_adjacent(&c) && a.is_before(&c) && !a.is_before(&b));
        assert!(a.has(&Value::Int(1)) && !a.has(&Value::Int(5)) && a.contains(&Range::Empty) && !a.contains(&b));
        assert!(a.ends_within(&b) && b.begins_within(&a) && !Range::Empty.ends_within(&a));
        assert_eq!((a.intersection(&b), a.intersection(&c)), (int("[3,5)"), Range::Empty));
        assert_eq!((a.union(&b), a.union(&c)), (Ok(int("[1,8)")), Ok(int("[1,9)"))));
        assert_eq!(a.union(&int("[6,7)")).unwrap_err().state, "22000");
        assert_eq!(a.merged(&int("[6,7)")), int("[1,7)"));
        let minus = |a: &Range, b: &str| a.difference(&int(b), Ranged::Int4);
        assert_eq!((minus(&a, "[3,9)"), minus(&a, "[0,3)")), (Ok(int("[1,3)")), Ok(int("[3,5)"))));
        assert_eq!((minus(&a, "[0,9)"), minus(&a, "[7,9)")), (Ok(Range::Empty), Ok(a.clone())));
        assert_eq!(minus(&a, "[2,3)").unwrap_err().state, "22000");
    }

    #[test]
    fn ranges_survive_the_binary_format_and_damaged_ones_are_refused() {
        for text in ["empty", "[1,5)", "(,5)", "[1,)", "(,)"] {
            let mut bytes = Vec::new();
            int(text).to_wire(Ranged::Int4, &mut bytes);
            assert_eq!(Range::from_wire(&bytes, Ranged::Int4, Context::NONE), Ok(Some(int(text))));
            bytes.push(0);
            assert_eq!(Range::from_wire(&bytes, Ranged::Int4, Context::NONE), Ok(None));
        }
        for bytes in [&[][..], &[0], &[0, 0, 0, 0, 9, 1], &[0, 0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(Range::from_wire(bytes, Ranged::Int4, Context::NONE), Ok(None));
        }
    }
}
