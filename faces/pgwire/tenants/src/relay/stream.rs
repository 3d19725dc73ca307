//! The bytes of a session between two nodes: a stream in each direction, whose bytes are numbered.
//!
//! ```text
//!   said ── unheard ── [ Part: at, bytes, ends, heard ] ──►  new bytes, each once and in order
//!            ▲ forgotten once heard                          │
//!            └────────────── heard, in any part back ◄───────┘
//! ```
//!
//! A part may be lost, repeated, or overtaken by a later one; the other side takes from it what it has not heard yet. So a request
//! that carries a part may be sent again whatever became of it.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// A piece of a stream, and how much of the other stream has been heard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The number of the first byte.
    pub(crate) at: u64,
    #[serde(with = "super::bytes")]
    pub(crate) bytes: Bytes,
    /// Whether the stream ends behind these bytes. The end counts as a byte.
    pub(crate) ends: bool,
    /// Bytes of the other stream that were heard.
    pub(crate) heard: u64,
}

/// The other side has heard what was never said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{said} bytes of a session were sent, but {heard} received: do both nodes run the same release?")]
pub(crate) struct Impossible {
    said: u64,
    heard: u64,
}

impl Part {
    /// The number behind it.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64 + u64::from(self.ends)
    }
}

/// One side of both streams.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// What was said and not heard yet.
    unheard: BytesMut,
    /// Bytes that were said.
    said: u64,
    /// Whether nothing more will be said. The end counts as a byte behind the last.
    ended: bool,
    /// Bytes that the other side has heard.
    first: u64,
    /// Bytes that were in a part, since parts were last thought to be lost.
    sent: u64,
    /// Bytes of the other side that were taken.
    heard: u64,
    /// Whether the other side will say nothing more.
    other_ended: bool,
}

/// One side of both streams, for another node that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SideImage {
    #[serde(with = "super::bytes")]
    unheard: Bytes,
    said: u64,
    first: u64,
    heard: u64,
}

impl SideImage {
    /// Whether the numbers fit to what was not heard.
    pub(crate) fn is_sound(&self) -> bool {
        self.said.checked_sub(self.first) == Some(self.unheard.len() as u64)
    }
}

impl From<SideImage> for Side {
    /// Whether anything of it was in a part is not known: it is news.
    fn from(SideImage { unheard, said, first, heard }: SideImage) -> Self {
        Self { unheard: BytesMut::from(unheard), said, first, sent: first, heard, ended: false, other_ended: false }
    }
}

impl Side {
    /// For another node; none if either stream has ended.
    pub(crate) fn image(&self) -> Option<SideImage> {
        let Self { unheard, said, first, heard, .. } = self;
        let unheard = Bytes::copy_from_slice(unheard);
        (!self.ended && !self.other_ended).then_some(SideImage { unheard, said: *said, first: *first, heard: *heard })
    }

    /// Says more.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.unheard.extend_from_slice(bytes);
        self.said += bytes.len() as u64;
    }

    /// Says that this was all.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Bytes that wait to be heard.
    pub(crate) fn waiting(&self) -> usize {
        self.unheard.len()
    }

    /// Whether all was heard, the end included.
    pub(crate) fn is_heard_out(&self) -> bool {
        self.ended && self.first == self.last()
    }

    /// Whether the other side has heard all up to this number.
    pub(crate) const fn was_heard(&self, end: u64) -> bool {
        self.first >= end
    }

    /// Whether nothing more will be said.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the other side has ended, and all of it was taken.
    pub(crate) const fn other_has_ended(&self) -> bool {
        self.other_ended
    }

    /// Whether there is something that was in no part yet.
    pub(crate) fn has_news(&self) -> bool {
        self.sent < self.last()
    }

    /// Whether something was in a part and was not heard.
    pub(crate) const fn is_doubtful(&self) -> bool {
        self.first < self.sent
    }

    /// What was in parts may be lost: it is news again.
    pub(crate) fn doubt(&mut self) {
        self.sent = self.first;
    }

    /// What is to be sent now, at most so many bytes of it.
    pub(crate) fn part(&mut self, of: Which, bytes_max: usize) -> Part {
        let from = match of {
            Which::News => self.sent.max(self.first),
            Which::Unheard => self.first,
        };
        let at = from.min(self.said);
        let skipped = (at - self.first.min(self.said)) as usize;
        let count = (self.unheard.len() - skipped).min(bytes_max);
        let bytes = Bytes::copy_from_slice(&self.unheard[skipped..skipped + count]);
        let ends = self.ended && skipped + count == self.unheard.len();
        self.sent = self.sent.max(at + count as u64 + u64::from(ends));
        Part { at, bytes, ends, heard: self.heard }
    }

    /// Takes what is new in a part of the other side.
    ///
    /// # Errors
    /// It has heard what was never said.
    pub(crate) fn hear(&mut self, part: &Part) -> Result<Bytes, Impossible> {
        if part.heard > self.last() {
            return Err(Impossible { said: self.last(), heard: part.heard });
        }
        if part.heard > self.first {
            let forgotten = part.heard.min(self.said) - self.first.min(self.said);
            self.unheard.advance(forgotten as usize);
            self.first = part.heard;
            self.sent = self.sent.max(self.first);
        }
        // What comes before this part is on its way, or will be sent again; behind the end there is nothing.
        if part.at > self.heard || self.other_ended {
            return Ok(Bytes::new());
        }
        let known = usize::try_from(self.heard - part.at).unwrap_or(usize::MAX).min(part.bytes.len());
        let new = part.bytes.slice(known..);
        self.heard += new.len() as u64;
        if part.ends && self.heard == part.at + part.bytes.len() as u64 {
            self.heard += 1;
            self.other_ended = true;
        }
        Ok(new)
    }

    /// The number behind the last byte, the end included.
    fn last(&self) -> u64 {
        self.said + u64::from(self.ended)
    }
}

/// What of a stream is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// What was in no part yet.
    News,
    /// All that was not heard.
    Unheard,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens next between two sides.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// The side says so many bytes.
        Say(bool, u8),
        End(bool),
        /// The side sends a part of at most so many bytes.
        Send(bool, Which, u8),
        Doubt(bool),
        /// One of the parts under way to the side arrives, and stays under way if it is repeated later.
        Arrive {
            to: bool,
            at: u8,
            again: bool,
        },
        Lose {
            to: bool,
            at: u8,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        let which = prop_oneof![Just(Which::News), Just(Which::Unheard)];
        prop_oneof![
            4 => (any::<bool>(), 0_u8..9).prop_map(|(side, count)| Step::Say(side, count)),
            1 => any::<bool>().prop_map(Step::End),
            8 => (any::<bool>(), which, 0_u8..7).prop_map(|(side, which, max)| Step::Send(side, which, max)),
            1 => any::<bool>().prop_map(Step::Doubt),
            8 => (any::<bool>(), any::<u8>(), any::<bool>()).prop_map(|(to, at, again)| Step::Arrive { to, at, again }),
            2 => (any::<bool>(), any::<u8>()).prop_map(|(to, at)| Step::Lose { to, at }),
        ]
    }

    /// Two sides, what they have said and heard, and the parts that are under way to each.
    #[derive(Default)]
    struct World {
        sides: [Side; 2],
        said: [Vec<u8>; 2],
        ended: [bool; 2],
        heard: [Vec<u8>; 2],
        under_way: [Vec<Part>; 2],
    }

    impl World {
        fn run(&mut self, step: Step) {
            match step {
                Step::Say(side, count) if !self.ended[usize::from(side)] => {
                    let side = usize::from(side);
                    let more: Vec<u8> = (0..count).map(|_| self.said[side].len() as u8 ^ count).collect();
                    self.said[side].extend(&more);
                    self.sides[side].say(&more);
                }
                Step::Say(..) => {}
                Step::End(side) => {
                    self.ended[usize::from(side)] = true;
                    self.sides[usize::from(side)].end();
                }
                Step::Send(side, which, max) => {
                    let part = self.sides[usize::from(side)].part(which, max.into());
                    self.under_way[usize::from(!side)].push(part);
                }
                Step::Doubt(side) => self.sides[usize::from(side)].doubt(),
                Step::Arrive { to, at, again } => {
                    let to = usize::from(to);
                    let count = self.under_way[to].len();
                    if count > 0 {
                        let at = usize::from(at) % count;
                        let part = self.under_way[to][at].clone();
                        if !again {
                            self.under_way[to].swap_remove(at);
                        }
                        self.arrive(to, &part);
                    }
                }
                Step::Lose { to, at } => {
                    let lost = &mut self.under_way[usize::from(to)];
                    if !lost.is_empty() {
                        lost.swap_remove(usize::from(at) % lost.len());
                    }
                }
            }
        }

        fn arrive(&mut self, to: usize, part: &Part) {
            let new = self.sides[to].hear(part).expect("nothing is heard that was not said");
            self.heard[to].extend(&new);
            assert!(self.said[1 - to].starts_with(&self.heard[to]), "each byte once and in order");
            if self.sides[to].other_has_ended() {
                assert_eq!((&self.heard[to], self.ended[1 - to]), (&self.said[1 - to], true));
            }
        }

        /// All arrives from now on.
        fn settle(&mut self) {
            for side in [0, 1].repeat(4) {
                self.sides[side].end();
                self.ended[side] = true;
                let part = self.sides[side].part(Which::Unheard, usize::MAX);
                self.arrive(1 - side, &part);
            }
        }
    }

    proptest! {
        #[test]
        fn each_byte_is_heard_once_and_in_order_whatever_is_lost_repeated_or_overtaken(
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut world = World::default();
            steps.into_iter().for_each(|step| world.run(step));
            world.settle();
            prop_assert_eq!(&world.heard[0], &world.said[1]);
            prop_assert_eq!(&world.heard[1], &world.said[0]);
            for side in &world.sides {
                prop_assert!(side.is_heard_out() && side.other_has_ended() && !side.has_news() && side.waiting() == 0);
            }
        }
    }

    #[test]
    fn what_was_never_said_cannot_have_been_heard() {
        let mut side = Side::default();
        side.say(b"ab");
        assert!(side.hear(&Part { heard: 3, ..Part::default() }).is_err());
        assert!(side.hear(&Part { heard: 2, ..Part::default() }).is_ok());
    }
}
