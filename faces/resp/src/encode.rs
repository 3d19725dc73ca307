//! Replies in RESP2 and RESP3.

use savanna_keys::error_counts::ErrorCounts;
use savanna_keys::memory::reserve;
use savanna_keys::number::{exact, fixed, write_digits};
use savanna_keys::reply::{Answering, Reply, TOO_LONG};

/// What a buffer keeps beside its content after a reply that was too long for it.
const KEPT_BYTES: usize = 64 << 10;

/// Writes replies for a client behind what is in a buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    /// Where the reply begins.
    start: usize,
    /// Where it has to end.
    stop: usize,
    is_too_long: bool,
    /// 2 or 3. A request may change it, for its own reply and those that follow.
    pub protocol: u8,
    /// Whether the client wants replies; `None` if it does and did not just say so.
    pub answering: Option<Answering>,
    /// Errors that were written.
    pub errors: ErrorCounts,
    /// Whether the reply is made of what the client is told also if it wants no replies.
    is_pushed: bool,
}

/// A mark, a number and the end of the line, as in `$64\r\n`.
struct Head {
    bytes: [u8; 23],
    start: usize,
}

impl Head {
    fn of(mark: u8, number: i64) -> Self {
        let mut bytes = [mark; 23];
        let [_, digits @ .., cr, lf] = &mut bytes;
        (*cr, *lf) = (b'\r', b'\n');
        // The byte before them keeps the mark.
        let start = write_digits(digits, number);
        Self { bytes, start }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl<'a> Encoder<'a> {
    /// Writes to `out` in this version of the protocol.
    pub const fn new(out: &'a mut Vec<u8>, protocol: u8) -> Self {
        let start = out.len();
        Self {
            out,
            start,
            stop: usize::MAX,
            is_too_long: false,
            protocol,
            answering: None,
            errors: ErrorCounts::new(),
            is_pushed: false,
        }
    }

    /// Lets the reply have at most so many bytes. What is above is not kept.
    #[must_use]
    pub const fn at_most(mut self, bytes: usize) -> Self {
        self.stop = self.start.saturating_add(bytes);
        self
    }

    /// Takes the reply back, unless it is pushed.
    pub fn keep_quiet(&mut self) {
        if !self.is_pushed {
            self.out.truncate(self.start);
        }
    }

    /// Ends the reply: in place of one that is too long there is an error. Says whether it had room.
    pub fn finish(&mut self) -> bool {
        let had_room = !self.is_too_long;
        if !had_room {
            self.out.truncate(self.start);
            self.out.shrink_to(KEPT_BYTES);
            (self.stop, self.is_too_long) = (usize::MAX, false);
            self.error(TOO_LONG);
        }
        had_room
    }

    /// Writes parts that belong together, or nothing.
    fn put(&mut self, parts: &[&[u8]]) {
        let count: usize = parts.iter().map(|part| part.len()).sum();
        self.is_too_long |= count > self.stop.saturating_sub(self.out.len());
        self.is_too_long |= !reserve(self.out, count);
        if !self.is_too_long {
            parts.iter().for_each(|part| self.out.extend_from_slice(part));
        }
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.put(&[&[mark], text, b"\r\n"]);
    }

    fn number(&mut self, mark: u8, number: i64) {
        self.put(&[Head::of(mark, number).as_bytes()]);
    }

    /// Text of one line, whatever is in it.
    fn text(&mut self, mark: u8, text: &str) {
        if text.contains(['\r', '\n']) {
            self.line(mark, text.replace(['\r', '\n'], " ").as_bytes());
        } else {
            self.line(mark, text.as_bytes());
        }
    }

    const fn is_third(&self) -> bool {
        self.protocol == 3
    }
}

impl Reply for Encoder<'_> {
    fn expect(&mut self, bytes: usize) {
        // Where there is not as much, what is written finds that out.
        reserve(self.out, bytes.min(self.stop.saturating_sub(self.out.len())));
    }

    fn use_protocol(&mut self, version: u8) {
        self.protocol = version;
    }

    fn answer(&mut self, answering: Answering) {
        self.answering = Some(answering);
    }

    fn simple(&mut self, text: &str) {
        self.text(b'+', text);
    }

    fn error(&mut self, text: &str) {
        self.errors.note(text);
        self.text(b'-', text);
    }

    fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.put(&[Head::of(b'$', bytes.len() as i64).as_bytes(), bytes, b"\r\n"]);
    }

    fn null(&mut self) {
        self.put(&[if self.is_third() { b"_\r\n" } else { b"$-1\r\n" }]);
    }

    fn null_array(&mut self) {
        self.put(&[if self.is_third() { b"_\r\n" } else { b"*-1\r\n" }]);
    }

    fn boolean(&mut self, flag: bool) {
        if self.is_third() { self.line(b'#', if flag { b"t" } else { b"f" }) } else { self.flag(flag) }
    }

    fn double(&mut self, number: f64) {
        let text = exact(number);
        if self.is_third() { self.line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    fn fraction(&mut self, number: f64) {
        let text = fixed(number);
        if self.is_third() { self.line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    fn verbatim(&mut self, text: &str) {
        if self.is_third() {
            self.put(&[Head::of(b'=', text.len() as i64 + 4).as_bytes(), b"txt:", text.as_bytes(), b"\r\n"]);
        } else {
            self.bulk(text.as_bytes());
        }
    }

    fn array(&mut self, length: usize) {
        self.number(b'*', length as i64);
    }

    fn map(&mut self, length: usize) {
        if self.is_third() { self.number(b'%', length as i64) } else { self.array(2 * length) }
    }

    fn set(&mut self, length: usize) {
        self.number(if self.is_third() { b'~' } else { b'*' }, length as i64);
    }

    fn push(&mut self, length: usize) {
        self.is_pushed = true;
        self.number(if self.is_third() { b'>' } else { b'*' }, length as i64);
    }

    fn pairs(&mut self, length: usize) {
        self.array(if self.is_third() { length } else { 2 * length });
    }

    fn pair(&mut self) {
        if self.is_third() {
            self.array(2);
        }
    }

    fn named(&mut self, length: usize) {
        if self.is_third() { self.map(length) } else { self.array(length) }
    }

    fn name(&mut self) {
        if !self.is_third() {
            self.array(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(protocol: u8, write: impl FnOnce(&mut dyn Reply)) -> String {
        let mut out = Vec::new();
        write(&mut Encoder::new(&mut out, protocol));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn each_value_has_its_form_in_both_versions() {
        type Write = fn(&mut dyn Reply);
        let cases: [(Write, &str, &str); 14] = [
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|r| r.integer(-5), ":-5\r\n", ":-5\r\n"),
            (|r| r.bulk(b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|r| r.fraction(13.361_389_338_970_184), "$20\r\n13.36138933897018433\r\n", ",13.36138933897018433\r\n"),
            (|r| r.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
            (|r| r.set(2), "*2\r\n", "~2\r\n"),
            (|r| r.push(3), "*3\r\n", ">3\r\n"),
            (
                |r| {
                    r.pairs(1);
                    r.pair()
                },
                "*2\r\n",
                "*1\r\n*2\r\n",
            ),
            (
                |r| {
                    r.named(1);
                    r.name()
                },
                "*1\r\n*2\r\n",
                "%1\r\n",
            ),
        ];
        for (write, second, third) in cases {
            assert_eq!(encoded(2, write), second);
            assert_eq!(encoded(3, write), third);
        }
    }

    #[test]
    fn a_reply_that_is_too_long_is_an_error_and_takes_no_memory() {
        let mut out = b"+OK\r\n".to_vec();
        let mut encoder = Encoder::new(&mut out, 2).at_most(20);
        encoder.array(1000);
        (0..1000).for_each(|_| encoder.bulk(b"0123456789"));
        assert!(!encoder.finish());
        assert_eq!(out, format!("+OK\r\n-{TOO_LONG}\r\n").as_bytes());
        assert!(out.capacity() < 200);
        assert!(Encoder::new(&mut out, 2).at_most(0).finish(), "nothing fits");
    }

    #[test]
    fn a_reply_may_change_the_version() {
        assert_eq!(
            encoded(2, |reply| {
                reply.use_protocol(3);
                reply.null();
            }),
            "_\r\n"
        );
    }
}
