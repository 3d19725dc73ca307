//! Lua 5.1's patterns. Lua's own matcher cannot be interrupted, and some patterns take longer than the universe has been
//! there; this one counts its steps and looks at the script's watch.

use super::watch::{Stopped, Watch};

/// Captures of a pattern, at the most.
const CAPTURES_MAX: usize = 32;
/// Repetitions and captures that are tried inside of each other, at the most.
const DEPTH_MAX: usize = 1_000;
/// Items of a pattern, at the most.
const ITEMS_MAX: usize = 1 << 15;
/// Steps between two looks at the watch: about a millisecond.
const STEPS: u32 = 1 << 16;

/// Characters that mean something in a pattern.
pub(super) const SPECIAL: &[u8] = b"^$*+?.([%-";

/// A pattern, read.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    items: Vec<Item>,
    /// Whether it matches at the beginning only.
    pub(super) is_anchored: bool,
}

#[derive(Clone, Debug)]
enum Item {
    /// One character.
    One(Class),
    /// `?`
    Optional(Class),
    /// `*`, or `+` if one at least has to match.
    Longest {
        class: Class,
        least: usize,
    },
    /// `-`
    Shortest(Class),
    Open(Length),
    Close,
    /// `%bxy`
    Balanced(u8, u8),
    /// `%f[set]`
    Frontier(Class),
    /// `%1`
    Same(usize),
    /// `$` at the end.
    End,
    /// A mistake, which is one only where the matching comes to it.
    Mistake(&'static str),
}

#[derive(Clone, Debug)]
enum Class {
    Any,
    Byte(u8),
    /// A bit per character.
    Set(Box<[u64; 4]>),
}

impl Class {
    fn of(accepts: impl Fn(u8) -> bool) -> Self {
        let mut bits = [0_u64; 4];
        for byte in (0..=u8::MAX).filter(|byte| accepts(*byte)) {
            bits[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        Self::Set(Box::new(bits))
    }

    #[inline]
    fn has(&self, byte: u8) -> bool {
        match self {
            Self::Any => true,
            Self::Byte(own) => *own == byte,
            Self::Set(bits) => bits[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
        }
    }
}

/// Whether a character is of the class that a letter behind `%` names.
fn is_of_class(byte: u8, letter: u8) -> bool {
    let is_of = match letter.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return letter == byte,
    };
    is_of == letter.is_ascii_lowercase()
}

/// How long a capture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// It is not closed.
    Open,
    /// It stands for its place.
    Position,
    Bytes(usize),
}

/// What a capture gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Captured<'a> {
    Text(&'a [u8]),
    /// A place, from 1.
    Position(usize),
}

/// Why a pattern could not be matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The pattern has a mistake.
    Mistake(&'static str),
    Stopped(Stopped),
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}

impl Pattern {
    /// Reads a pattern. `anchors`: whether `^` at the beginning is an anchor, and not a character.
    ///
    /// # Errors
    /// If it is too long.
    pub(super) fn read(text: &[u8], anchors: bool) -> Result<Self, Failure> {
        // As in C, where a text ends.
        let text = &text[..memchr::memchr(0, text).unwrap_or(text.len())];
        let is_anchored = anchors && text.first() == Some(&b'^');
        let mut reader = Reader { text, at: usize::from(is_anchored) };
        let mut items = Vec::new();
        while reader.at < text.len() {
            if items.len() == ITEMS_MAX {
                return Err(Failure::Mistake("pattern too complex"));
            }
            let item = reader.item().unwrap_or_else(Item::Mistake);
            let is_mistake = matches!(item, Item::Mistake(_));
            items.push(item);
            if is_mistake {
                break;
            }
        }
        Ok(Self { items, is_anchored })
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn item(&mut self) -> Result<Item, &'static str> {
        let rest = &self.text[self.at..];
        match rest {
            [b'(', b')', ..] => return Ok(self.skip(2, Item::Open(Length::Position))),
            [b'(', ..] => return Ok(self.skip(1, Item::Open(Length::Open))),
            [b')', ..] => return Ok(self.skip(1, Item::Close)),
            [b'$'] => return Ok(self.skip(1, Item::End)),
            [b'%', b'b', open, close, ..] => return Ok(self.skip(4, Item::Balanced(*open, *close))),
            [b'%', b'b', ..] => return Err("unbalanced pattern"),
            [b'%', b'f', b'[', ..] => {
                self.at += 3;
                return Ok(Item::Frontier(self.set()?));
            }
            [b'%', b'f', ..] => return Err("missing '[' after '%f' in pattern"),
            [b'%', b'0', ..] => return Err("invalid capture index"),
            [b'%', digit @ b'1'..=b'9', ..] => return Ok(self.skip(2, Item::Same(usize::from(digit - b'1')))),
            _ => {}
        }
        let class = self.class()?;
        let item = match self.peek() {
            Some(b'?') => Item::Optional(class),
            Some(b'*') => Item::Longest { class, least: 0 },
            Some(b'+') => Item::Longest { class, least: 1 },
            Some(b'-') => Item::Shortest(class),
            _ => return Ok(Item::One(class)),
        };
        Ok(self.skip(1, item))
    }

    fn skip(&mut self, count: usize, item: Item) -> Item {
        self.at += count;
        item
    }

    /// One character, or a class of them.
    fn class(&mut self) -> Result<Class, &'static str> {
        match self.next() {
            Some(b'.') => Ok(Class::Any),
            Some(b'%') => match self.next() {
                Some(letter) if letter.is_ascii_alphabetic() => Ok(Class::of(|byte| is_of_class(byte, letter))),
                Some(byte) => Ok(Class::Byte(byte)),
                None => Err("malformed pattern (ends with '%')"),
            },
            Some(b'[') => self.set(),
            Some(byte) => Ok(Class::Byte(byte)),
            None => Err("malformed pattern"),
        }
    }

    /// What stands behind a `[`, with its end.
    fn set(&mut self) -> Result<Class, &'static str> {
        const OPEN: &str = "malformed pattern (missing ']')";
        let is_negated = self.peek() == Some(b'^');
        self.at += usize::from(is_negated);
        let begin = self.at;
        // The first character is one of the set, even if it is a bracket.
        loop {
            match self.next().ok_or(OPEN)? {
                b'%' if self.peek().is_some() => self.at += 1,
                _ => {}
            }
            match self.peek() {
                None => return Err(OPEN),
                Some(b']') => break,
                Some(_) => {}
            }
        }
        let inner = &self.text[begin..self.at];
        self.at += 1;
        let mut has = [false; 256];
        let mut rest = inner;
        loop {
            match rest {
                [] => break,
                [b'%', letter, behind @ ..] => {
                    (0..=u8::MAX).for_each(|byte| has[usize::from(byte)] |= is_of_class(byte, *letter));
                    rest = behind;
                }
                [first, b'-', last, behind @ ..] => {
                    (*first..=*last).for_each(|byte| has[usize::from(byte)] = true);
                    rest = behind;
                }
                [byte, behind @ ..] => {
                    has[usize::from(*byte)] = true;
                    rest = behind;
                }
            }
        }
        Ok(Class::of(|byte| has[usize::from(byte)] != is_negated))
    }
}

/// One search of a pattern in a text.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    text: &'a [u8],
    pattern: &'a Pattern,
    watch: &'a Watch,
    steps: u32,
    captures: [(usize, Length); CAPTURES_MAX],
    level: usize,
}

impl<'a> Matching<'a> {
    pub(super) const fn new(text: &'a [u8], pattern: &'a Pattern, watch: &'a Watch) -> Self {
        Self { text, pattern, watch, steps: 0, captures: [(0, Length::Open); CAPTURES_MAX], level: 0 }
    }

    /// The end of what matches from this place on.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) fn at(&mut self, place: usize) -> Result<Option<usize>, Failure> {
        self.level = 0;
        self.step(1)?;
        self.run(place, 0, 0)
    }

    /// The beginning and the end of the first match from this place on.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) fn find(&mut self, place: usize) -> Result<Option<(usize, usize)>, Failure> {
        let last = if self.pattern.is_anchored { place } else { self.text.len() };
        for begin in place..=last {
            if let Some(end) = self.at(begin)? {
                return Ok(Some((begin, end)));
            }
        }
        Ok(None)
    }

    /// What was captured in the last match, which was `whole`: itself, if the pattern has no captures.
    ///
    /// # Errors
    /// If one is not closed.
    pub(super) fn captured(&self, whole: &'a [u8]) -> Result<Vec<Captured<'a>>, Failure> {
        (0..self.level.max(1)).map(|index| self.capture(index, whole)).collect()
    }

    /// How many captures there were in the last match.
    pub(super) const fn level(&self) -> usize {
        self.level
    }

    /// One of [`Matching::captured`].
    ///
    /// # Errors
    /// If it is not there, or not closed.
    pub(super) fn capture(&self, index: usize, whole: &'a [u8]) -> Result<Captured<'a>, Failure> {
        if index >= self.level {
            return if index == 0 { Ok(Captured::Text(whole)) } else { Err(Failure::Mistake("invalid capture index")) };
        }
        match self.captures[index] {
            (_, Length::Open) => Err(Failure::Mistake("unfinished capture")),
            (begin, Length::Position) => Ok(Captured::Position(begin + 1)),
            (begin, Length::Bytes(count)) => Ok(Captured::Text(&self.text[begin..begin + count])),
        }
    }

    fn step(&mut self, count: usize) -> Result<(), Failure> {
        self.steps = self.steps.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.steps >= STEPS {
            self.steps = 0;
            self.watch.look()?;
        }
        Ok(())
    }

    /// Matches the items from `item` on with the text from `place` on. Gives the end of the match.
    fn run(&mut self, mut place: usize, mut item: usize, depth: usize) -> Result<Option<usize>, Failure> {
        if depth == DEPTH_MAX {
            return Err(Failure::Mistake("pattern too complex"));
        }
        let (text, pattern) = (self.text, self.pattern);
        let byte_at = |place: usize| text.get(place).copied();
        while let Some(next) = pattern.items.get(item) {
            self.step(1)?;
            item += 1;
            let end = match next {
                Item::One(class) => byte_at(place).filter(|byte| class.has(*byte)).map(|_| place + 1),
                Item::Optional(class) => {
                    if byte_at(place).is_some_and(|byte| class.has(byte))
                        && let Some(end) = self.run(place + 1, item, depth + 1)?
                    {
                        return Ok(Some(end));
                    }
                    Some(place)
                }
                Item::Longest { class, least } => return self.longest(class, *least, place, item, depth),
                Item::Shortest(class) => return self.shortest(class, place, item, depth),
                Item::Open(length) => return self.open(*length, place, item, depth),
                Item::Close => return self.close(place, item, depth),
                Item::Balanced(open, close) => self.balanced(*open, *close, place)?,
                Item::Frontier(class) => {
                    let before = place.checked_sub(1).and_then(byte_at).unwrap_or(0);
                    (!class.has(before) && class.has(byte_at(place).unwrap_or(0))).then_some(place)
                }
                Item::Same(index) => self.same(*index, place)?,
                Item::End => (place == text.len()).then_some(place),
                Item::Mistake(text) => return Err(Failure::Mistake(text)),
            };
            let Some(end) = end else { return Ok(None) };
            place = end;
        }
        Ok(Some(place))
    }

    fn longest(
        &mut self,
        class: &Class,
        least: usize,
        place: usize,
        item: usize,
        depth: usize,
    ) -> Result<Option<usize>, Failure> {
        let most = self.count_from(place, class)?;
        for count in (least..=most).rev() {
            if let Some(end) = self.run(place + count, item, depth + 1)? {
                return Ok(Some(end));
            }
            self.step(1)?;
        }
        Ok(None)
    }

    /// How many bytes from this place on are of a class.
    fn count_from(&mut self, place: usize, class: &Class) -> Result<usize, Failure> {
        let text = self.text;
        let mut most = 0;
        for part in text[place..].chunks(STEPS as usize) {
            let count = part.iter().take_while(|byte| class.has(**byte)).count();
            self.step(count)?;
            most += count;
            if count < part.len() {
                break;
            }
        }
        Ok(most)
    }

    fn shortest(&mut self, class: &Class, place: usize, item: usize, depth: usize) -> Result<Option<usize>, Failure> {
        for place in place..=self.text.len() {
            if let Some(end) = self.run(place, item, depth + 1)? {
                return Ok(Some(end));
            }
            self.step(1)?;
            if !self.text.get(place).is_some_and(|byte| class.has(*byte)) {
                break;
            }
        }
        Ok(None)
    }

    fn open(&mut self, length: Length, place: usize, item: usize, depth: usize) -> Result<Option<usize>, Failure> {
        if self.level == CAPTURES_MAX {
            return Err(Failure::Mistake("too many captures"));
        }
        self.captures[self.level] = (place, length);
        self.level += 1;
        let end = self.run(place, item, depth + 1)?;
        if end.is_none() {
            self.level -= 1;
        }
        Ok(end)
    }

    fn close(&mut self, place: usize, item: usize, depth: usize) -> Result<Option<usize>, Failure> {
        let open = self.captures[..self.level].iter().rposition(|(_, length)| *length == Length::Open);
        let open = open.ok_or(Failure::Mistake("invalid pattern capture"))?;
        self.captures[open].1 = Length::Bytes(place - self.captures[open].0);
        let end = self.run(place, item, depth + 1)?;
        if end.is_none() {
            self.captures[open].1 = Length::Open;
        }
        Ok(end)
    }

    fn balanced(&mut self, open: u8, close: u8, place: usize) -> Result<Option<usize>, Failure> {
        if self.text.get(place) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (index, byte) in self.text.iter().enumerate().skip(place + 1) {
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    self.step(index - place)?;
                    return Ok(Some(index + 1));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        self.step(self.text.len() - place)?;
        Ok(None)
    }

    fn same(&mut self, index: usize, place: usize) -> Result<Option<usize>, Failure> {
        if index >= self.level {
            return Err(Failure::Mistake("invalid capture index"));
        }
        match self.captures[index] {
            (_, Length::Open) => Err(Failure::Mistake("invalid capture index")),
            (_, Length::Position) => Ok(None),
            (begin, Length::Bytes(count)) => {
                self.step(count)?;
                let captured = &self.text[begin..begin + count];
                Ok(self.text[place..].starts_with(captured).then_some(place + count))
            }
        }
    }
}
