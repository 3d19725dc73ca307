//! How often clients were told which errors.

/// So many codes are counted one by one: who makes up codes, as scripts may, takes no more memory.
const CODES_MAX: usize = 128;
/// A longer first word is no code.
const CODE_BYTES_MAX: usize = 32;

/// Errors by their codes, which are their first words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    by_code: Vec<(Box<str>, u64)>,
    total: u64,
}

impl ErrorCounts {
    /// None so far.
    #[must_use]
    pub const fn new() -> Self {
        Self { by_code: Vec::new(), total: 0 }
    }

    /// Notes an error of this text.
    pub fn note(&mut self, text: &str) {
        let code = text.split(' ').next().filter(|code| !code.is_empty() && code.len() <= CODE_BYTES_MAX);
        self.note_code(code.unwrap_or("ERR"), 1);
    }

    fn note_code(&mut self, code: &str, count: u64) {
        self.total += count;
        let has_room = self.by_code.len() < CODES_MAX;
        match self.by_code.iter_mut().find(|(other, _)| **other == *code) {
            Some((_, so_far)) => *so_far += count,
            None if has_room => self.by_code.push((code.into(), count)),
            None => {}
        }
    }

    /// Adds what was counted elsewhere.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        if !other.is_empty() {
            self.add_some(other);
        }
    }

    fn add_some(&mut self, other: &Self) {
        let before = self.total;
        other.by_code.iter().for_each(|(code, count)| self.note_code(code, *count));
        self.total = before + other.total;
    }

    /// Whether there were none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many there were.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Codes, each with how many there were.
    pub fn each(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_code.iter().map(|(code, count)| (&**code, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_words_and_take_bounded_memory() {
        let mut counts = ErrorCounts::new();
        counts.note("WRONGTYPE Operation against a key");
        counts.note("ERR syntax error");
        counts.note("ERR no such key");
        assert_eq!(counts.each().collect::<Vec<_>>(), [("WRONGTYPE", 1), ("ERR", 2)]);
        for number in 0..1000 {
            counts.note(&format!("CODE{number} made up"));
        }
        assert_eq!((counts.total(), counts.each().count()), (1003, CODES_MAX));
        let mut sum = ErrorCounts::new();
        sum.note("ERR x");
        sum.add(&counts);
        assert_eq!((sum.total(), sum.each().next()), (1004, Some(("ERR", 3))));
    }
}
