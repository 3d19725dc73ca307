//! A connection's replies on their way out.
//!
//! ```text
//!  bytes ┌──────┬────────────────────────────┬──────────────┐  awaited ┌─────────┬─────────┬──────┐
//!        │ sent │ may be sent                │ not durable  │          │ waiting │ waiting │ came │
//!        └──────┴────────────────────────────┴──────────────┘          └────┬────┴────┬────┴──┬───┘
//!                                                        behind ┌───────┬───┴─────────┴───────┴───┐
//!                                                               │ moved │ what came behind them   │
//!                                                               └───────┴─────────────────────────┘
//! ```
//!
//! Replies that came behind one that is still awaited lie behind each other; when it comes, they follow up to the next one that
//! is awaited.

use std::collections::VecDeque;

use savanna_keys::session::Ticket;
use savanna_keys_host::Lsn;

/// Bytes to be sent, and places of replies that are awaited.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// How many bytes may be sent.
    released: usize,
    /// Bytes that may be sent once a position of the log is durable.
    held: VecDeque<(Lsn, usize)>,
    awaited: VecDeque<Awaited>,
    /// What comes behind the first that is awaited, except for those that were awaited themselves.
    behind: Vec<u8>,
    /// How much of that is among the bytes to be sent.
    moved: usize,
    /// Bytes of replies that came before others that are still awaited.
    early: usize,
}

/// A reply that did not come at once.
#[derive(Debug)]
struct Awaited {
    /// Up to where what is behind comes before it.
    place: usize,
    reply: Late,
}

#[derive(Debug)]
enum Late {
    /// With the protocol's version when it was asked for; `None` if the client does not want it.
    Waiting(Ticket, Option<u8>),
    Came(Vec<u8>),
}

/// What a buffer may keep of its memory when it is empty.
const KEPT_BYTES: usize = 64 << 10;

impl Output {
    /// Where the next reply is to be written.
    pub(crate) fn next(&mut self) -> &mut Vec<u8> {
        if self.awaited.is_empty() { &mut self.bytes } else { &mut self.behind }
    }

    /// Keeps a place for a reply that comes later; without a protocol it is not written.
    pub(crate) fn wait(&mut self, ticket: Ticket, protocol: Option<u8>) {
        self.awaited.push_back(Awaited { place: self.behind.len(), reply: Late::Waiting(ticket, protocol) });
    }

    /// Writes a reply that came to its place, in the protocol's version that it is given. Says how many bytes it has.
    pub(crate) fn fill(&mut self, ticket: Ticket, write: impl FnOnce(&mut Vec<u8>, u8)) -> usize {
        let mut awaited = self.awaited.iter().enumerate();
        let place = awaited.find_map(|(place, awaited)| match awaited.reply {
            Late::Waiting(other, protocol) if other == ticket => Some((place, protocol)),
            _ => None,
        });
        match place {
            None => 0,
            Some((0, protocol)) => {
                self.awaited.pop_front();
                let before = self.bytes.len();
                if let Some(protocol) = protocol {
                    write(&mut self.bytes, protocol);
                }
                let count = self.bytes.len() - before;
                self.follow();
                count
            }
            Some((place, protocol)) => {
                let mut bytes = Vec::new();
                if let Some(protocol) = protocol {
                    write(&mut bytes, protocol);
                }
                let count = bytes.len();
                self.early += count;
                self.awaited[place].reply = Late::Came(bytes);
                count
            }
        }
    }

    /// Moves what nothing is awaited before.
    fn follow(&mut self) {
        loop {
            let end = self.awaited.front().map_or(self.behind.len(), |first| first.place);
            self.bytes.extend_from_slice(&self.behind[self.moved..end]);
            self.moved = end;
            let came = self.awaited.pop_front_if(|first| matches!(first.reply, Late::Came(_)));
            let Some(Awaited { reply: Late::Came(bytes), .. }) = came else { break };
            self.early -= bytes.len();
            self.bytes.extend_from_slice(&bytes);
        }
        if self.awaited.is_empty() {
            self.behind.clear();
            self.behind.shrink_to(KEPT_BYTES);
            self.moved = 0;
        } else if self.moved > KEPT_BYTES && self.moved > self.behind.len() / 2 {
            self.behind.drain(..self.moved);
            self.awaited.iter_mut().for_each(|awaited| awaited.place -= self.moved);
            self.moved = 0;
        }
    }

    /// Lets what is there be sent, once `lsn` is durable if there is one to wait for.
    pub(crate) fn release(&mut self, lsn: Option<Lsn>) {
        if self.is_marked() {
            return;
        }
        let end = self.bytes.len();
        match (lsn, self.held.back_mut()) {
            (None, None) => self.released = end,
            // Behind what is held; or held for the same.
            (None, Some((_, last))) => *last = end,
            (Some(lsn), Some((held_for, last))) if *held_for >= lsn => *last = end,
            (Some(lsn), _) => self.held.push_back((lsn, end)),
        }
    }

    /// Whether it is known of all that is there on what it depends.
    #[must_use]
    pub(crate) fn is_marked(&self) -> bool {
        self.bytes.len() == self.held.back().map_or(self.released, |(_, end)| *end)
    }

    /// Hears up to where the log is durable.
    pub(crate) fn hear_durable(&mut self, durable: Lsn) {
        while let Some((_, end)) = self.held.pop_front_if(|(lsn, _)| *lsn <= durable) {
            self.released = end;
        }
    }

    /// What may be sent now.
    #[must_use]
    pub(crate) fn sendable(&self) -> &[u8] {
        &self.bytes[self.sent..self.released]
    }

    /// Hears how much was sent.
    pub(crate) fn note_sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            (self.sent, self.released) = (0, 0);
        } else if self.sent > KEPT_BYTES && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.released -= self.sent;
            self.held.iter_mut().for_each(|(_, end)| *end -= self.sent);
            self.sent = 0;
        }
    }

    /// Whether bytes wait for the log.
    #[must_use]
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Bytes that wait.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.behind.len() - self.moved + self.early
    }

    /// Bytes that are reserved.
    #[must_use]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.behind.capacity() + self.early
    }

    /// Replies that did not come at once and are not among the bytes to be sent.
    #[must_use]
    pub(crate) fn awaited_count(&self) -> usize {
        self.awaited.len()
    }

    /// Whether everything was said.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.awaited.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(output: &mut Output, text: &str) {
        output.next().extend_from_slice(text.as_bytes());
    }

    fn send(output: &mut Output) -> String {
        let sendable = String::from_utf8(output.sendable().to_vec()).expect("text");
        output.note_sent(sendable.len());
        sendable
    }

    #[test]
    fn replies_keep_the_order_of_their_requests() {
        let mut output = Output::default();
        say(&mut output, "1");
        output.wait(Ticket(1), Some(2));
        say(&mut output, "3");
        say(&mut output, "4");
        output.wait(Ticket(2), Some(3));
        say(&mut output, "6");
        output.release(None);
        assert_eq!(send(&mut output), "1");
        output.fill(Ticket(2), |bytes, protocol| bytes.push(b'2' + protocol));
        output.release(None);
        assert_eq!(send(&mut output), "");
        output.fill(Ticket(1), |bytes, protocol| bytes.push(b'0' + protocol));
        output.release(None);
        assert_eq!(send(&mut output), "23456");
        assert!(output.is_empty());
    }

    #[test]
    fn it_is_known_what_is_not_marked_with_what_it_depends_on() {
        let mut output = Output::default();
        output.wait(Ticket(1), Some(2));
        assert!(output.is_marked(), "nothing is there");
        output.fill(Ticket(1), |bytes, _| bytes.push(b'1'));
        assert!(!output.is_marked());
        output.release(Some(Lsn(7)));
        assert!(output.is_marked());
        say(&mut output, "2");
        assert!(!output.is_marked());
        output.release(None);
        assert!(output.is_marked() && output.sendable().is_empty(), "it is behind what is held");
    }

    #[test]
    fn a_reply_that_came_early_waits_for_those_before_it() {
        let mut output = Output::default();
        output.wait(Ticket(1), Some(2));
        output.wait(Ticket(2), Some(2));
        say(&mut output, "3");
        output.wait(Ticket(4), Some(2));
        say(&mut output, "5");
        output.fill(Ticket(4), |bytes, _| bytes.push(b'4'));
        assert_eq!((output.len(), output.awaited_count()), (3, 3));
        output.fill(Ticket(1), |bytes, _| bytes.push(b'1'));
        assert_eq!((output.len(), output.awaited_count()), (4, 2));
        output.fill(Ticket(2), |bytes, _| bytes.push(b'2'));
        output.release(None);
        assert_eq!((output.len(), send(&mut output)), (5, "12345".to_owned()));
        assert!(output.is_empty());
    }

    #[test]
    fn a_reply_that_is_not_wanted_keeps_its_place_and_is_not_written() {
        let mut output = Output::default();
        output.wait(Ticket(1), None);
        say(&mut output, "2");
        output.wait(Ticket(3), None);
        say(&mut output, "4");
        assert_eq!(output.fill(Ticket(3), |bytes, _| bytes.push(b'3')), 0);
        assert_eq!(output.awaited_count(), 2);
        assert_eq!(output.fill(Ticket(1), |bytes, _| bytes.push(b'1')), 0);
        output.release(None);
        assert_eq!(send(&mut output), "24");
        assert!(output.is_empty());
    }

    #[test]
    fn what_was_moved_takes_no_memory_where_something_is_always_awaited() {
        let mut output = Output::default();
        output.wait(Ticket(0), Some(2));
        for number in 1..10_000 {
            say(&mut output, &format!("{number:0100}"));
            output.wait(Ticket(number), Some(2));
            output.fill(Ticket(number - 1), |bytes, _| bytes.push(b'!'));
            output.release(None);
            assert_eq!(send(&mut output), format!("!{number:0100}"));
        }
        assert!(output.behind.capacity() < 4 * KEPT_BYTES);
    }

    #[test]
    fn nothing_leaves_before_what_it_depends_on_is_durable() {
        let mut output = Output::default();
        say(&mut output, "a");
        output.release(None);
        say(&mut output, "b");
        output.release(Some(Lsn(5)));
        say(&mut output, "c");
        output.release(Some(Lsn(7)));
        assert_eq!(send(&mut output), "a");
        output.hear_durable(Lsn(6));
        assert_eq!(send(&mut output), "b");
        say(&mut output, "d");
        output.release(None);
        assert_eq!(send(&mut output), "", "behind what is held");
        output.hear_durable(Lsn(7));
        assert_eq!(send(&mut output), "cd");
        assert!(output.is_empty());
    }
}
