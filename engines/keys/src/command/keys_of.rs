//! Which words of a request are keys.

use crate::error::CommandError;
use crate::number::integer;
use crate::request::{Args, OwnedArgs};

/// Which words of a request are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None.
    None,
    /// From `first` to `last` (negative: from the end) by steps.
    Range {
        /// The first.
        first: usize,
        /// The last.
        last: isize,
        /// How many words from one to the next.
        step: usize,
    },
    /// As many as the word `at` says, behind it; and the word `also`, if it is not 0.
    Counted {
        /// Where the number is.
        at: usize,
        /// A key before it.
        also: usize,
    },
    /// The first argument, and the one behind the last `STORE`.
    Sort,
    /// The first half of what is behind `STREAMS`.
    Streams,
    /// The first argument, and the one behind the last `STORE` or `STOREDIST`.
    Radius,
}

impl Keys {
    /// One key, the first argument.
    pub const ONE: Self = Self::Range { first: 1, last: 1, step: 1 };
    /// Two keys, the first arguments.
    pub const TWO: Self = Self::Range { first: 1, last: 2, step: 1 };
    /// All arguments.
    pub const ALL: Self = Self::Range { first: 1, last: -1, step: 1 };

    /// The keys of a request.
    ///
    /// # Errors
    /// If a number of keys is none, or there are fewer.
    pub fn of<'a>(self, args: Args<'a>) -> Result<impl Iterator<Item = &'a [u8]> + Clone, CommandError> {
        let (also, range, step) = match self {
            Self::None => (0, 0..0, 1),
            Self::Range { first, last, step } => {
                let end = if last < 0 { args.len().saturating_sub(last.unsigned_abs() - 1) } else { last as usize + 1 };
                (0, first..end.min(args.len()).max(first), step)
            }
            Self::Counted { at, also } => {
                let count = args.len().checked_sub(at + 1).map(|_| &args[at]).and_then(integer);
                let Some(count) = count else { return Err(CommandError::NotInteger) };
                let count =
                    usize::try_from(count).map_err(|_| CommandError::text("ERR Number of keys can't be negative"))?;
                if count > args.len() - at - 1 {
                    return Err(CommandError::text("ERR Number of keys can't be greater than number of args"));
                }
                (also, at + 1..at + 1 + count, 1)
            }
            Self::Streams => {
                let (first, count) = streams_of(args).ok_or(CommandError::Syntax)?;
                (0, first..first + count, 1)
            }
            Self::Sort | Self::Radius => {
                // One step leads from the first argument to the one behind `STORE`.
                match store_of(args, self) {
                    None => (0, 1..args.len().min(2), 1),
                    Some(index) => (0, 1..index + 2, index),
                }
            }
        };
        let also = (also != 0 && also < args.len()).then_some(also);
        Ok(also.into_iter().chain(range.step_by(step)).map(move |index| args.at(index)))
    }

    /// The request with one key instead of all.
    #[must_use]
    pub fn only(self, args: Args<'_>, key: &[u8]) -> OwnedArgs {
        let mut words: Vec<&[u8]> = args.from(0).collect();
        match self {
            Self::None | Self::Sort | Self::Radius => {}
            Self::Streams => {
                if let Some((first, count)) = streams_of(args) {
                    let place = words[first..first + count].iter().position(|word| *word == key).unwrap_or(0);
                    let from = words[first + count + place];
                    words.splice(first.., [key, from]);
                }
            }
            Self::Range { first, last, .. } => {
                let end = if last < 0 { args.len().saturating_sub(last.unsigned_abs() - 1) } else { last as usize + 1 };
                words.splice(first..end.clamp(first, args.len()), [key]);
            }
            Self::Counted { at, .. } => {
                let count = self.of(args).map_or(0, |keys| keys.count());
                words.splice(at..at + 1 + count, [b"1", key]);
            }
        }
        OwnedArgs::of_words(&words)
    }

    /// First, last and step, as `COMMAND` gives them.
    #[must_use]
    pub const fn triple(self) -> (i64, i64, i64) {
        match self {
            Self::None | Self::Streams => (0, 0, 0),
            Self::Range { first, last, step } => (first as i64, last as i64, step as i64),
            Self::Counted { also: 0, .. } => (0, 0, 0),
            Self::Sort | Self::Radius => (1, 1, 1),
            Self::Counted { also, .. } => (also as i64, also as i64, 1),
        }
    }
}

/// Where the option is that names the destination of `SORT` and `GEORADIUS`. What is behind an option is none, whatever it says.
fn store_of(args: Args<'_>, keys: Keys) -> Option<usize> {
    let (mut at, mut store) = (if keys == Keys::Sort { 2 } else { 5 }, None);
    while at + 1 < args.len() {
        let behind = match (args[at].to_ascii_lowercase().as_slice(), keys) {
            (b"store", _) | (b"storedist", Keys::Radius) => {
                store = Some(at);
                1
            }
            (b"limit", Keys::Sort) => 2,
            (b"by" | b"get", Keys::Sort) | (b"count", Keys::Radius) => 1,
            _ => 0,
        };
        at += 1 + behind;
    }
    store
}

/// Where the keys of `XREAD` and `XREADGROUP` are: the first, and how many; behind them are as many numbers.
fn streams_of(args: Args<'_>) -> Option<(usize, usize)> {
    let mut at = 1;
    while at < args.len() {
        at += match args[at].to_ascii_lowercase().as_slice() {
            b"streams" => {
                let behind = args.len() - at - 1;
                return (behind > 0 && behind.is_multiple_of(2)).then_some((at + 1, behind / 2));
            }
            b"block" | b"count" => 2,
            b"group" => 3,
            b"noack" => 1,
            _ => return None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: Keys, words: &str) -> String {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        let args = OwnedArgs::of_words(&words);
        match keys.of(args.args()) {
            Ok(keys) => keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_request_is_narrowed_to_one_key() {
        let narrowed = |keys: Keys, words: &str| {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let args = keys.only(OwnedArgs::of_words(&words).args(), b"x");
            let words = args.args().from(0).map(|word| String::from_utf8_lossy(word).into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(narrowed(Keys::Range { first: 1, last: -2, step: 1 }, "BLPOP a b 0"), "BLPOP x 0");
        assert_eq!(narrowed(Keys::Counted { at: 2, also: 0 }, "BLMPOP 0 2 a b LEFT"), "BLMPOP 0 1 x LEFT");
        assert_eq!(narrowed(Keys::Streams, "XREAD BLOCK 0 STREAMS a x 1-1 2-2"), "XREAD BLOCK 0 STREAMS x 2-2");
    }

    #[test]
    fn keys_are_found_where_the_table_says() {
        assert_eq!(keys(Keys::ONE, "GET a"), "a");
        assert_eq!(keys(Keys::ALL, "DEL a b c"), "a b c");
        assert_eq!(keys(Keys::Range { first: 1, last: -1, step: 2 }, "MSET a 1 b 2"), "a b");
        assert_eq!(keys(Keys::Range { first: 1, last: -2, step: 1 }, "BLPOP a b 0"), "a b");
        assert_eq!(keys(Keys::Counted { at: 2, also: 1 }, "ZUNIONSTORE d 2 a b WEIGHTS 1 2"), "d a b");
        assert_eq!(keys(Keys::Counted { at: 1, also: 0 }, "SINTERCARD 0 a"), "");
        assert_eq!(keys(Keys::Sort, "SORT a ALPHA store b"), "a b");
        assert_eq!(keys(Keys::Sort, "SORT a STORE"), "a");
        assert_eq!(keys(Keys::Streams, "XREAD COUNT 1 BLOCK 0 streams a b 0 $"), "a b");
        assert_eq!(keys(Keys::Streams, "XREADGROUP GROUP streams c NOACK STREAMS a >"), "a");
        assert!(keys(Keys::Streams, "XREAD STREAMS a").starts_with("ERR syntax"));
        assert_eq!(keys(Keys::Radius, "GEORADIUS a 1 2 3 km STORE b STOREDIST c"), "a c");
        assert_eq!(keys(Keys::Radius, "GEORADIUSBYMEMBER a store 3 km"), "a");
        // What is named as an option is.
        assert_eq!(keys(Keys::Radius, "GEORADIUS a 1 2 3 km STORE STORE COUNT 5"), "a STORE");
        assert_eq!(keys(Keys::Radius, "GEORADIUSBYMEMBER a m 3 km STORE storedist ASC STOREDIST count"), "a count");
        assert_eq!(keys(Keys::Sort, "SORT a STORE STORE ALPHA"), "a STORE");
        assert_eq!(keys(Keys::Sort, "SORT a BY store LIMIT 0 store GET store STORE b"), "a b");
        assert!(keys(Keys::Counted { at: 1, also: 0 }, "SINTERCARD 3 a").starts_with("ERR Number of keys"));
        assert!(keys(Keys::Counted { at: 1, also: 0 }, "SINTERCARD x a").starts_with("ERR value is not"));
        assert!(keys(Keys::Counted { at: 1, also: 0 }, "SINTERCARD -1 a").starts_with("ERR Number of keys"));
    }
}
