//! Requests of a pipeline that are found before their turn: one after the other, each would wait for the memory that it asks for.

use savanna_keys::keyspace::NEAR_MAX;
use savanna_keys::request::Span;

use crate::parse::{Limits, Parser};

/// A request with more words waits for its turn.
const WORDS_MAX: usize = 64;

/// The requests that come next.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    parser: Parser,
    /// The words of all, each counted from the first byte of its request.
    spans: Vec<Span>,
    /// How many bytes each has, and where its words end in `spans`.
    requests: Vec<(usize, usize)>,
    /// How many had their turn, and where their words end.
    turn: (usize, usize),
}

impl Ahead {
    /// Whether all that were found had their turn.
    pub(super) const fn is_empty(&self) -> bool {
        self.turn.0 == self.requests.len()
    }

    /// Forgets those that had no turn.
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.spans.clear();
        self.turn = (0, 0);
    }

    /// Finds the first complete requests in `bytes`, at most [`NEAR_MAX`], and gives the second word of each, of nearly all commands a key;
    /// an empty one if it has none. What is no request is left for its turn.
    pub(super) fn find<'a>(&mut self, bytes: &'a [u8], limits: &Limits) -> ([&'a [u8]; NEAR_MAX], usize) {
        self.clear();
        let (mut keys, mut count, mut end) = ([&[][..]; NEAR_MAX], 0, 0);
        while self.requests.len() < NEAR_MAX
            && let Ok(Some(length)) = self.parser.next(&bytes[end..], limits)
            && self.parser.spans().len() <= WORDS_MAX
        {
            let spans = self.parser.spans();
            if let Some(word) = spans.get(1) {
                keys[count] = &bytes[end + word.start as usize..][..word.length as usize];
            }
            count += 1;
            self.spans.extend_from_slice(spans);
            self.requests.push((length, self.spans.len()));
            end += length;
        }
        self.parser.forget();
        self.parser.shrink();
        (keys, count)
    }

    /// The next request: how many bytes it has, and its words.
    pub(super) fn next(&mut self) -> Option<(usize, &[Span])> {
        let (place, first) = self.turn;
        let (length, end) = *self.requests.get(place)?;
        self.turn = (place + 1, end);
        Some((length, &self.spans[first..end]))
    }
}

#[cfg(test)]
mod tests {
    use savanna_keys::request::Args;

    use super::*;

    #[test]
    fn requests_come_as_the_parser_finds_them_and_what_is_none_or_long_waits_for_its_turn() {
        let short = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*0\r\nPING\r\n*2\r\n$3\r\nGET\r\n$2\r\nbc\r\n";
        let long = format!("*{}\r\n", WORDS_MAX + 1) + &"$1\r\nx\r\n".repeat(WORDS_MAX + 1);
        for tail in [&b"*2\r\n$3\r\nGET\r\n$1\r\n"[..], b"*1\r\n!", long.as_bytes()] {
            let bytes = [&short[..], tail].concat();
            let mut ahead = Ahead::default();
            let (keys, count) = ahead.find(&bytes, &Limits::default());
            assert_eq!(keys[..count], [&b"a"[..], b"", b"", b"bc"]);
            let (mut parser, mut at, mut found) = (Parser::default(), 0, 0);
            while let Some((length, spans)) = ahead.next() {
                assert_eq!(parser.next(&bytes[at..], &Limits::default()), Ok(Some(length)));
                assert_eq!(spans, parser.spans());
                assert_eq!(Args::new(&bytes[at..], spans).len(), spans.len());
                (at, found) = (at + length, found + 1);
            }
            assert_eq!((at, found, ahead.is_empty()), (short.len(), 4, true));
        }
    }

    #[test]
    fn what_was_found_for_one_client_is_forgotten_before_the_next() {
        let mut ahead = Ahead::default();
        ahead.find(b"PING\r\nPING\r\n", &Limits::default());
        assert!(ahead.next().is_some());
        ahead.clear();
        assert!(ahead.is_empty() && ahead.next().is_none());
        ahead.find(b"PING\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\n", &Limits::default());
        ahead.find(b"ECHO a\r\n", &Limits::default());
        assert_eq!(ahead.next().map(|(length, words)| (length, words.len())), Some((8, 2)));
        assert!(ahead.is_empty());
    }
}
