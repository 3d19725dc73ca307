//! Requests, found in the bytes that were received.
//!
//! A request is a list of byte strings (`*2\r\n$3\r\nGET\r\n$1\r\na\r\n`), or a line of words for people who type. Words are not
//! copied; a request that is not complete is gone on with where the bytes ended.

use savanna_keys::request::Span;

/// What a request may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Words.
    pub words: usize,
    /// Bytes of a word.
    pub word_bytes: usize,
    /// Bytes of a line.
    pub line_bytes: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { words: 1 << 20, word_bytes: 512 << 20, line_bytes: 64 << 10, request_bytes: 1 << 30 }
    }
}

impl Limits {
    /// For clients that have not said who they are, as in Redis.
    pub const OF_UNAUTHENTICATED: Self =
        Self { words: 10, word_bytes: 16 << 10, line_bytes: 64 << 10, request_bytes: 256 << 10 };
}

/// Bytes that are no request. The connection cannot go on after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A list with too many words.
    #[error("Protocol error: invalid multibulk length")]
    ListLength,
    /// A word that is too long, or of no length.
    #[error("Protocol error: invalid bulk length")]
    WordLength,
    /// A list of something else than strings.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    NotAString(u8),
    /// A length without an end.
    #[error("Protocol error: too big mbulk count string")]
    EndlessLength,
    /// A line without an end.
    #[error("Protocol error: too big inline request")]
    EndlessLine,
    /// A quote that does not end before a blank, or holds a backslash.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// A request of HTTP: a web page may let a browser send it, with commands in its body.
    #[error("Protocol error: this is no HTTP server")]
    Http,
    /// All words together are too long.
    #[error("Protocol error: too big request")]
    TooLong,
    /// The operating system has no memory for it.
    #[error("the server has no memory for this request")]
    NoMemory,
}

/// Digits of a length and its end of line.
const LENGTH_BYTES_MAX: usize = 32;

/// Finds one request after the other.
#[derive(Debug, Default)]
pub struct Parser {
    /// The words found so far, counted from the request's first byte.
    spans: Vec<Span>,
    /// How many words of the list are still to come; `None` before its length is known.
    missing: Option<usize>,
    /// Where to go on, from the request's first byte.
    at: usize,
    /// How many bytes of the request are needed before it is worth looking again.
    needed: usize,
}

impl Parser {
    /// Looks for a request at the beginning of `bytes`, which begin as in the calls before if those found none. Gives how
    /// many bytes it has; its words are then in [`Parser::spans`].
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn next(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        if self.missing.is_none() {
            self.spans.clear();
            self.at = 0;
        }
        if bytes.is_empty() || bytes.len() < self.needed {
            return Ok(None);
        }
        let end = match bytes[0] {
            b'*' => self.list(bytes, limits)?,
            _ => self.line(bytes, limits)?,
        };
        if end.is_some() {
            self.missing = None;
            self.needed = 0;
        } else if bytes.len() > limits.request_bytes {
            return Err(ProtocolError::TooLong);
        }
        Ok(end)
    }

    /// The words of the request that was found, counted from its first byte.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Gives memory back after an unusually long request.
    pub fn shrink(&mut self) {
        if self.missing.is_none() && self.spans.capacity() > 1024 {
            self.spans = Vec::new();
        }
    }

    /// Forgets a request that is not complete: what follows begins anew.
    pub(crate) const fn forget(&mut self) {
        self.missing = None;
        self.needed = 0;
    }

    fn list(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => {
                let Some((length, at)) = length(bytes, 1, ProtocolError::ListLength)? else { return Ok(None) };
                self.at = at;
                // A list of no length is no request.
                let missing = usize::try_from(length).unwrap_or(0);
                if missing > limits.words {
                    return Err(ProtocolError::ListLength);
                }
                missing
            }
        };
        while missing > 0 {
            self.missing = Some(missing);
            match bytes.get(self.at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(ProtocolError::NotAString(*other)),
            }
            let Some((length, start)) = length(bytes, self.at + 1, ProtocolError::WordLength)? else { return Ok(None) };
            let length = usize::try_from(length).map_err(|_| ProtocolError::WordLength)?;
            if length > limits.word_bytes {
                return Err(ProtocolError::WordLength);
            }
            let end = start + length + 2;
            if end > limits.request_bytes {
                return Err(ProtocolError::TooLong);
            }
            if bytes.len() < end {
                self.needed = end;
                return Ok(None);
            }
            self.spans.push(Span { start: start as u32, length: length as u32 });
            self.at = end;
            missing -= 1;
        }
        Ok(Some(self.at))
    }

    fn line(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = bytes.iter().take(limits.line_bytes).position(|byte| *byte == b'\n') else {
            return if bytes.len() >= limits.line_bytes { Err(ProtocolError::EndlessLine) } else { Ok(None) };
        };
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        let mut at = 0;
        while at < line.len() {
            let (start, stop, next) = match line[at] {
                blank if blank.is_ascii_whitespace() => {
                    at += 1;
                    continue;
                }
                quote @ (b'"' | b'\'') => {
                    let start = at + 1;
                    let length = line[start..].iter().position(|byte| *byte == quote).ok_or(ProtocolError::Quotes)?;
                    let stop = start + length;
                    let is_closed = line.get(stop + 1).is_none_or(u8::is_ascii_whitespace);
                    if !is_closed || line[start..stop].contains(&b'\\') {
                        return Err(ProtocolError::Quotes);
                    }
                    (start, stop, stop + 1)
                }
                _ => {
                    let length = line[at..].iter().position(u8::is_ascii_whitespace).unwrap_or(line.len() - at);
                    (at, at + length, at + length)
                }
            };
            self.spans.push(Span { start: start as u32, length: (stop - start) as u32 });
            at = next;
        }
        let first = self.spans.first().map_or(&[][..], |span| &line[span.start as usize..][..span.length as usize]);
        if first.eq_ignore_ascii_case(b"post") || first.eq_ignore_ascii_case(b"host:") {
            return Err(ProtocolError::Http);
        }
        Ok(Some(end + 1))
    }
}

/// A decimal length at `at`, and where its line ends.
fn length(bytes: &[u8], at: usize, refusal: ProtocolError) -> Result<Option<(i64, usize)>, ProtocolError> {
    // The usual case: one or two digits.
    match bytes.get(at..) {
        Some([one @ b'0'..=b'9', b'\r', b'\n', ..]) => return Ok(Some((i64::from(one - b'0'), at + 3))),
        Some([ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..]) => {
            return Ok(Some((i64::from(ten - b'0') * 10 + i64::from(one - b'0'), at + 4)));
        }
        _ => {}
    }
    let mut number: i64 = 0;
    let negative = bytes.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    for (index, byte) in bytes.iter().enumerate().skip(first).take(LENGTH_BYTES_MAX) {
        match byte {
            b'0'..=b'9' => {
                number = number
                    .checked_mul(10)
                    .and_then(|number| number.checked_add(i64::from(byte - b'0')))
                    .ok_or(refusal)?;
            }
            b'\r' if index > first => {
                return match bytes.get(index + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((if negative { -number } else { number }, index + 2))),
                    Some(_) => Err(refusal),
                };
            }
            _ => return Err(refusal),
        }
    }
    if bytes.len() - at.min(bytes.len()) > LENGTH_BYTES_MAX { Err(ProtocolError::EndlessLength) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(parser: &Parser, bytes: &[u8]) -> Vec<Vec<u8>> {
        let word = |span: &Span| bytes[span.start as usize..(span.start + span.length) as usize].to_vec();
        parser.spans().iter().map(word).collect()
    }

    fn list(words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[test]
    fn lines_are_split_into_words() {
        let mut parser = Parser::default();
        let line = b"SET  a \"b c\" ''\r\nGET";
        assert_eq!(parser.next(line, &Limits::default()), Ok(Some(17)));
        assert_eq!(words(&parser, line), [&b"SET"[..], b"a", b"b c", b""]);
        assert_eq!(parser.next(b"\r\n", &Limits::default()), Ok(Some(2)));
        assert!(parser.spans().is_empty());
        assert_eq!(parser.next(b"GET \"a\r\n", &Limits::default()), Err(ProtocolError::Quotes));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let limits = Limits { words: 10, word_bytes: 100, line_bytes: 50, request_bytes: 1000 };
        for (bytes, expected) in [
            (&b"*11\r\n"[..], ProtocolError::ListLength),
            (b"*x\r\n", ProtocolError::ListLength),
            (b"*1\r\n+OK\r\n", ProtocolError::NotAString(b'+')),
            (b"*1\r\n$101\r\n", ProtocolError::WordLength),
            (b"*1\r\n$-1\r\n", ProtocolError::WordLength),
            (b"*99999999999999999999\r\n", ProtocolError::ListLength),
            (b"*000000000000000000000000000000000001\r\n", ProtocolError::EndlessLength),
            (&[b'a'; 60], ProtocolError::EndlessLine),
            (b"POST / HTTP/1.1\r\n", ProtocolError::Http),
            (b"hOsT: localhost\r\n", ProtocolError::Http),
        ] {
            assert_eq!(Parser::default().next(bytes, &limits), Err(expected), "{}", bytes.escape_ascii());
        }
        assert_eq!(Parser::default().next(b"*-1\r\n", &limits), Ok(Some(5)), "nothing is asked");
    }

    proptest! {
        #[test]
        fn requests_are_found_however_the_bytes_come(
            requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5), 1..5),
            cuts in prop::collection::vec(1..9_usize, 1..50)
        ) {
            let bytes: Vec<u8> = requests.iter().flat_map(|words| list(words)).collect();
            let mut parser = Parser::default();
            let mut cuts = cuts.into_iter().cycle();
            let (mut start, mut known) = (0, 0);
            let mut found = Vec::new();
            while start < bytes.len() {
                match parser.next(&bytes[start..known], &Limits::default()).expect("requests") {
                    Some(length) => {
                        found.push(words(&parser, &bytes[start..]));
                        start += length;
                    }
                    None => known = bytes.len().min(known + cuts.next().expect("a cycle")),
                }
            }
            prop_assert_eq!(found, requests);
        }

        #[test]
        fn any_bytes_are_a_request_an_error_or_a_beginning(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut parser = Parser::default();
            let mut rest = &bytes[..];
            while let Ok(Some(length)) = parser.next(rest, &Limits::default()) {
                prop_assert!(length > 0 && length <= rest.len());
                for span in parser.spans() {
                    prop_assert!((span.start + span.length) as usize <= length);
                }
                rest = &rest[length..];
            }
        }
    }
}
