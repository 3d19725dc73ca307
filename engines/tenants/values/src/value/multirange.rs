//! Multiranges: sets of values of a type, as the ranges that they consist of.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{Context, range::Range, style::Style};
use crate::{
    error::{Result, SqlError, state},
    types::Ranged,
};

/// Ranges in their order, none of them empty, and something between any two of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Multirange(Vec<Range>);

impl Multirange {
    /// What is in any of some ranges.
    #[must_use]
    pub fn new(mut ranges: Vec<Range>) -> Self {
        ranges.retain(|range| *range != Range::Empty);
        ranges.sort_by(Range::compare);
        let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.overlaps(&range) || last.is_adjacent(&range) => *last = last.merged(&range),
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    /// Its ranges, in their order.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// The smallest range that has all of it.
    #[must_use]
    pub fn span(&self) -> Range {
        match self.0.as_slice() {
            [] => Range::Empty,
            [one] => one.clone(),
            [first, .., last] => first.merged(last),
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.iter().map(Range::bytes).sum::<usize>()
    }

    /// PostgreSQL's order: by the first ranges that differ; who has no more is the smaller.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let pairs = self.0.iter().zip(&other.0).map(|(a, b)| a.compare(b));
        pairs.fold(Ordering::Equal, Ordering::then).then(self.0.len().cmp(&other.0.len()))
    }

    /// Whether all of another is in it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.0.iter().all(|range| self.0.iter().any(|own| own.contains(range)))
    }

    /// Whether they have a value in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.overlaps(y) {
                return true;
            }
            // Whichever ends first meets nothing that the other has behind it.
            _ = if x.is_before(y) { a.next() } else { b.next() };
        }
        false
    }

    /// What is in one of two.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut common = Vec::new();
        let mut first = 0;
        for own in &self.0 {
            // What ends before this one ends before all that follow.
            first += other.0[first..].iter().take_while(|range| range.is_before(own)).count();
            let met = other.0[first..].iter().take_while(|range| !own.is_before(range));
            common.extend(met.map(|range| own.intersection(range)));
        }
        Self::new(common)
    }

    /// What is in it and not in another.
    ///
    /// # Errors
    /// Those of bounds that have none behind them.
    pub fn difference(&self, other: &Self, of: Ranged) -> Result<Self> {
        let mut left = Vec::new();
        let mut first = 0;
        for own in &self.0 {
            first += other.0[first..].iter().take_while(|range| range.is_before(own)).count();
            let mut rest = own.clone();
            for range in other.0[first..].iter().take_while(|range| !own.is_before(range)) {
                let (before, behind) = rest.without(range, of)?;
                left.push(before);
                rest = behind;
            }
            left.push(rest);
        }
        Ok(Self::new(left))
    }

    /// Appends its text.
    pub(crate) fn write(&self, of: Ranged, style: Style, out: &mut String) {
        out.push('{');
        for (at, range) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            range.write(of, style, out);
        }
        out.push('}');
    }

    /// The multirange that a text stands for.
    ///
    /// # Errors
    /// 22P02, and those of its ranges.
    pub(crate) fn parse(whole: &str, of: Ranged, context: Context<'_>) -> Result<Self> {
        let wrong = |detail: &str| {
            let message = format!("malformed multirange literal: \"{whole}\"");
            SqlError::new(state::INVALID_TEXT_REPRESENTATION, message).detail(detail)
        };
        let blank = |c: char| c.is_ascii_whitespace() || c == '\x0b';
        let rest = whole.trim_matches(blank).strip_prefix('{').ok_or_else(|| wrong("Missing left brace."))?;
        let mut rest = rest.trim_start_matches(blank);
        let mut ranges = Vec::new();
        while !rest.starts_with('}') {
            if !ranges.is_empty() {
                rest = rest.strip_prefix(',').ok_or_else(|| wrong("Expected comma or end of multirange."))?;
                rest = rest.trim_start_matches(blank);
            }
            let length = length_of_range(rest).ok_or_else(|| wrong("Expected range start."))?;
            let (range, behind) = rest.split_at(length);
            ranges.push(Range::parse(range, of, context)?);
            rest = behind.trim_start_matches(blank);
        }
        match rest {
            "}" => Ok(Self::new(ranges)),
            _ => Err(wrong("Junk after closing right brace.")),
        }
    }

    /// Appends its bytes: how many ranges it has, and each behind its length, as `write` writes it.
    pub fn to_bytes(&self, out: &mut Vec<u8>, write: impl Fn(&Range, &mut Vec<u8>)) {
        out.extend((self.0.len() as u32).to_be_bytes());
        for range in &self.0 {
            let begin = out.len();
            out.extend([0; 4]);
            write(range, out);
            let length = (out.len() - begin - 4) as u32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// From these bytes.
    ///
    /// # Errors
    /// Those of its ranges, and `None` if the bytes are others.
    pub fn from_bytes(bytes: &[u8], read: impl Fn(&[u8]) -> Result<Option<Range>>) -> Result<Option<Self>> {
        let Some((count, mut rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let mut ranges = Vec::new();
        for _ in 0..u32::from_be_bytes(*count) {
            let parts = rest
                .split_first_chunk()
                .and_then(|(length, behind)| behind.split_at_checked(u32::from_be_bytes(*length) as usize));
            let Some((range, behind)) = parts else { return Ok(None) };
            rest = behind;
            let Some(range) = read(range)? else { return Ok(None) };
            ranges.push(range);
        }
        Ok(rest.is_empty().then(|| Self::new(ranges)))
    }

    /// From the binary format.
    pub(crate) fn from_wire(bytes: &[u8], of: Ranged, context: Context<'_>) -> Result<Option<Self>> {
        Self::from_bytes(bytes, |range| Range::from_wire(range, of, context))
    }

    /// Appends its bytes in the binary format.
    pub(crate) fn to_wire(&self, of: Ranged, out: &mut Vec<u8>) {
        self.to_bytes(out, |range, out| range.to_wire(of, out));
    }
}

impl From<Range> for Multirange {
    fn from(range: Range) -> Self {
        Self::new(vec![range])
    }
}

/// How long the range is with which a text begins.
fn length_of_range(text: &str) -> Option<usize> {
    if let Some(word) = text.get(..5)
        && word.eq_ignore_ascii_case("empty")
    {
        return Some(5);
    }
    let rest = text.strip_prefix(['[', '('])?;
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b']' | b')' if !quoted => return Some(at + 2),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, of: Ranged) -> Result<Multirange> {
        Multirange::parse(text, of, Context::NONE)
    }

    fn shown(multirange: &Multirange, of: Ranged) -> String {
        let mut out = String::new();
        multirange.write(of, Style::PLAIN, &mut out);
        out
    }

    fn int(text: &str) -> Multirange {
        read(text, Ranged::Int4).unwrap()
    }

    #[test]
    fn multiranges_are_written_as_postgresql_writes_them() {
        for (text, of, expected) in [
            ("{}", Ranged::Int4, "{}"),
            (" { } ", Ranged::Int4, "{}"),
            ("{empty}", Ranged::Int4, "{}"),
            ("{[1,2]}", Ranged::Int4, "{[1,3)}"),
            ("{ [5,7) , [1,2] ,EMPTY}", Ranged::Int4, "{[1,3),[5,7)}"),
            ("{[1,3),[3,5)}", Ranged::Int4, "{[1,5)}"),
            ("{[1,3),(3,5)}", Ranged::Num, "{[1,3),(3,5)}"),
            ("{(,1),[2,)}", Ranged::Int4, "{(,1),[2,)}"),
            ("{(,5),[2,)}", Ranged::Int4, "{(,)}"),
            ("{[\"2024-01-01 00:00\",2024-02-01)}", Ranged::Ts, "{[\"2024-01-01 00:00:00\",\"2024-02-01 00:00:00\")}"),
        ] {
            assert_eq!(shown(&read(text, of).unwrap(), of), expected, "{text}");
        }
        for text in ["", "{", "}", "{,}", "{[1,2)", "{[1,2),}", "{[1,2)}x", "{[1,2)[3,4)}", "[1,2)", "{1}", "{[1,x)}"] {
            assert_eq!(read(text, Ranged::Int4).unwrap_err().state, state::INVALID_TEXT_REPRESENTATION, "{text}");
        }
    }

    #[test]
    fn multiranges_are_computed_with_as_sets_are() {
        // Every set of these five numbers, against every other.
        let all: Vec<Vec<i32>> = (0..32).map(|set| (0..5).filter(|at| set >> at & 1 == 1).collect()).collect();
        let of = |set: &[i32]| {
            int(&format!("{{{}}}", set.iter().map(|n| format!("[{n},{n}]")).collect::<Vec<_>>().join(",")))
        };
        for a in &all {
            for b in &all {
                let (x, y) = (of(a), of(b));
                let both: Vec<i32> = a.iter().filter(|n| b.contains(n)).copied().collect();
                let either: Vec<i32> = (0..5).filter(|n| a.contains(n) || b.contains(n)).collect();
                let first: Vec<i32> = a.iter().filter(|n| !b.contains(n)).copied().collect();
                assert_eq!(x.intersection(&y), of(&both));
                assert_eq!(x.union(&y), of(&either));
                assert_eq!(x.difference(&y, Ranged::Int4).unwrap(), of(&first), "{a:?} - {b:?}");
                assert_eq!(x.overlaps(&y), !both.is_empty());
                assert_eq!(x.contains(&y), b.iter().all(|n| a.contains(n)));
            }
        }
    }

    #[test]
    fn multiranges_are_ordered_by_their_ranges() {
        let ordered = ["{}", "{(,1)}", "{(,1),[3,4)}", "{[1,2)}", "{[1,2),[3,4)}", "{[1,2),[3,5)}", "{[1,3)}"].map(int);
        assert!(ordered.windows(2).all(|pair| pair[0].compare(&pair[1]).is_lt()));
        assert_eq!(int("{[1,2),[5,7)}").span(), int("{[1,7)}").span());
    }

    #[test]
    fn multiranges_survive_the_binary_format_and_damaged_ones_are_refused() {
        for text in ["{}", "{[1,5)}", "{(,5),[7,)}"] {
            let mut bytes = Vec::new();
            int(text).to_wire(Ranged::Int4, &mut bytes);
            assert_eq!(Multirange::from_wire(&bytes, Ranged::Int4, Context::NONE), Ok(Some(int(text))));
            bytes.push(0);
            assert_eq!(Multirange::from_wire(&bytes, Ranged::Int4, Context::NONE), Ok(None));
        }
        for bytes in [&[][..], &[0; 3], &[0, 0, 0, 1], &[0xff; 4], &[0, 0, 0, 1, 0, 0, 0, 2, 1, 1]] {
            assert_eq!(Multirange::from_wire(bytes, Ranged::Int4, Context::NONE), Ok(None));
        }
    }
}
