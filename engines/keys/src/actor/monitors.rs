//! Clients that want to hear of every request (`MONITOR`), on all actors.
//!
//! An actor tells what its sessions ask for, whoever has the keys. As long as nobody listens, that costs a comparison.

use std::fmt::Write as _;

use super::Actor;
use super::message::{Message, Notice};
use crate::command::{Command, Flags};
use crate::reply::Reply as _;
use crate::request::Args;
use crate::session::Session;

impl Actor {
    /// Lets a session hear of every request.
    pub(crate) fn monitor(&mut self, session: &mut Session) {
        if !std::mem::replace(&mut session.is_monitor, true) {
            let here = &mut self.listeners.monitors.here;
            here.push(session.id);
            let count = here.len();
            self.tell_of_monitors(count);
        }
    }

    /// Lets a session hear of no requests any more.
    pub(crate) fn end_monitor(&mut self, session: &mut Session) {
        if std::mem::take(&mut session.is_monitor) {
            let here = &mut self.listeners.monitors.here;
            here.retain(|other| *other != session.id);
            let count = here.len();
            self.tell_of_monitors(count);
        }
    }

    fn tell_of_monitors(&mut self, count: usize) {
        let id = self.id;
        for actor in self.routes.all().filter(|actor| *actor != id) {
            self.send(actor, Message::Notice(Notice::Monitors { count }));
        }
    }

    /// Tells of a request that `client` made, if anybody wants to hear of it.
    #[inline]
    pub(super) fn tell_monitors(&mut self, database: u8, client: &str, command: &Command, args: Args<'_>) {
        if !self.listeners.monitors.is_empty() {
            self.tell_monitors_now(database, client, command, args);
        }
    }

    #[cold]
    fn tell_monitors_now(&mut self, database: u8, client: &str, command: &Command, args: Args<'_>) {
        // What operators do is their own business, and so are passwords; who leaves hears nothing more.
        if command.flags.has(Flags::ADMIN) || command.flags.has(Flags::SECRET) || command.flags.has(Flags::NO_AUTH) {
            return;
        }
        let line = line(self.keys.now().0, database, client, args);
        self.listeners.note_published_elsewhere();
        for (actor, _) in self.listeners.monitors.elsewhere.clone() {
            self.send(actor, Message::Notice(Notice::Monitored { line: line.as_str().into() }));
        }
        self.show_monitored(&line);
    }

    /// Shows a line to those who listen here.
    pub(super) fn show_monitored(&mut self, line: &str) {
        self.replies.push_to_all(&self.listeners.monitors.here, |reply| reply.simple(line));
    }
}

/// A line shows so many words of a request, and so many bytes of each: it is there once for each actor with listeners.
const WORDS_MAX: usize = 128;
const WORD_BYTES_MAX: usize = 1024;

/// A request with its time in seconds: `1700000000.123000 [0 127.0.0.1:50000] "get" "key"`.
fn line(millis: u64, database: u8, client: &str, args: Args<'_>) -> String {
    let mut line = format!("{}.{:06} [{database} {client}]", millis / 1000, millis % 1000 * 1000);
    for word in args.from(0).take(WORDS_MAX) {
        line.push_str(" \"");
        for byte in &word[..word.len().min(WORD_BYTES_MAX)] {
            match byte {
                b'\\' | b'"' => line.extend(['\\', char::from(*byte)]),
                b'\n' => line.push_str("\\n"),
                b'\r' => line.push_str("\\r"),
                b'\t' => line.push_str("\\t"),
                0x07 => line.push_str("\\a"),
                0x08 => line.push_str("\\b"),
                b' '..=b'~' => line.push(char::from(*byte)),
                // Writing into a string does not fail.
                other => drop(write!(line, "\\x{other:02x}")),
            }
        }
        line.push('"');
        // Writing into a string does not fail.
        if let Some(more) = word.len().checked_sub(WORD_BYTES_MAX + 1) {
            let _ = write!(line, "..({} more bytes)", more + 1);
        }
    }
    if let Some(more) = args.len().checked_sub(WORDS_MAX + 1) {
        let _ = write!(line, " ..({} more words)", more + 1);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::OwnedArgs;

    #[test]
    fn words_are_shown_on_one_line_whatever_is_in_them() {
        let words: &[&[u8]] = &[b"SET", b"a \"b\"\\", b"\r\n\x00\xff'"];
        let shown = line(1_700_000_000_012, 3, "lua", OwnedArgs::of_words(words).args());
        assert_eq!(shown, r#"1700000000.012000 [3 lua] "SET" "a \"b\"\\" "\r\n\x00\xff'""#);
    }

    #[test]
    fn what_is_long_is_cut() {
        let long = vec![0; WORD_BYTES_MAX + 3];
        let words = [&[&b"DEL"[..], &long][..], &vec![&b"k"[..]; WORDS_MAX]].concat();
        let shown = line(0, 0, "c", OwnedArgs::of_words(&words).args());
        assert!(
            shown.contains(r#"\x00"..(3 more bytes) "k" "k""#) && shown.ends_with(r#""k" ..(2 more words)"#),
            "{shown}"
        );
        assert!(!line(0, 0, "c", OwnedArgs::of_words(&words[..1]).args()).contains("more"));
    }
}
