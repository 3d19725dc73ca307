//! A connection's replies on their way out.
//!
//! ```text
//!  bytes ┌──────┬────────────────────────────┬──────────────┐   slots ┌─────────┬───────┬─────────┬───────┐
//!        │ sent │ may be sent                │ not durable  │         │ waiting │ ready │ waiting │ ready │
//!        └──────┴────────────────────────────┴──────────────┘         └─────────┴───────┴─────────┴───────┘
//! ```
//!
//! Replies that came behind one that is still awaited stay in slots; when it comes, they follow.

use std::collections::VecDeque;

use savanna_journal::Lsn;
use savanna_keys::session::Ticket;

/// Bytes to be sent, and places of replies that are awaited.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// How many bytes may be sent.
    released: usize,
    /// Bytes that may be sent once a position of the log is durable.
    held: VecDeque<(Lsn, usize)>,
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
enum Slot {
    /// With the protocol's version when it was asked for.
    Waiting(Ticket, u8),
    Ready(Vec<u8>),
}

/// What a buffer may keep of its memory when it is empty.
const KEPT_BYTES: usize = 64 << 10;

impl Output {
    /// Where the next reply is to be written.
    pub(crate) fn next(&mut self) -> &mut Vec<u8> {
        if self.slots.is_empty() {
            return &mut self.bytes;
        }
        if !matches!(self.slots.back(), Some(Slot::Ready(_))) {
            self.slots.push_back(Slot::Ready(Vec::new()));
        }
        match self.slots.back_mut() {
            Some(Slot::Ready(bytes)) => bytes,
            _ => &mut self.bytes,
        }
    }

    /// Keeps a place for a reply that comes later.
    pub(crate) fn wait(&mut self, ticket: Ticket, protocol: u8) {
        self.slots.push_back(Slot::Waiting(ticket, protocol));
    }

    /// Writes a reply that came to its place, in the protocol's version that it is given. Says how many bytes it has.
    pub(crate) fn fill(&mut self, ticket: Ticket, write: impl FnOnce(&mut Vec<u8>, u8)) -> usize {
        let mut slots = self.slots.iter().enumerate();
        let place = slots.find_map(|(place, slot)| match slot {
            Slot::Waiting(other, protocol) if *other == ticket => Some((place, *protocol)),
            _ => None,
        });
        match place {
            None => 0,
            Some((0, protocol)) => {
                self.slots.pop_front();
                let before = self.bytes.len();
                write(&mut self.bytes, protocol);
                let count = self.bytes.len() - before;
                self.follow();
                count
            }
            Some((place, protocol)) => {
                let mut bytes = Vec::new();
                write(&mut bytes, protocol);
                let count = bytes.len();
                self.slots[place] = Slot::Ready(bytes);
                count
            }
        }
    }

    fn follow(&mut self) {
        while let Some(Slot::Ready(bytes)) = self.slots.pop_front_if(|slot| matches!(slot, Slot::Ready(_))) {
            self.bytes.extend_from_slice(&bytes);
        }
    }

    /// Lets what is there be sent, once `lsn` is durable if there is one to wait for.
    pub(crate) fn release(&mut self, lsn: Option<Lsn>) {
        let end = self.bytes.len();
        let marked = self.held.back().map_or(self.released, |(_, end)| *end);
        if end == marked {
            return;
        }
        match (lsn, self.held.back_mut()) {
            (None, None) => self.released = end,
            // Behind what is held; or held for the same.
            (None, Some((_, last))) => *last = end,
            (Some(lsn), Some((held_for, last))) if *held_for >= lsn => *last = end,
            (Some(lsn), _) => self.held.push_back((lsn, end)),
        }
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
        let ready = |slot: &Slot| if let Slot::Ready(bytes) = slot { bytes.len() } else { 0 };
        self.bytes.len() - self.sent + self.slots.iter().map(ready).sum::<usize>()
    }

    /// Replies that are awaited, with those behind them.
    #[must_use]
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Whether everything was said.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.slots.is_empty()
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
        output.wait(Ticket(1), 2);
        say(&mut output, "3");
        say(&mut output, "4");
        output.wait(Ticket(2), 3);
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
