//! What the first actor keeps for all: requests that took long, and those that were refused to their users.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use savanna_lattice::UnixMillis;

use super::call_counts::Timing;
use super::message::Message;
use super::{Actor, FIRST};
use crate::command::{Command, Flags, Group, Keys};
use crate::request::Args;
use crate::session::Session;

/// Something to be kept.
#[derive(Debug)]
pub enum Note {
    /// A request took long.
    Slow(SlowRequest),
    /// A request, or who made it, was refused.
    Denied(DeniedRequest),
    /// Something took longer than it should.
    Late {
        /// What: `command`, or `fast-command` for those that should always be fast.
        event: &'static str,
        /// When.
        at: UnixMillis,
        /// How long.
        millis: u64,
    },
}

/// A request that took long.
#[derive(Debug)]
pub struct SlowRequest {
    /// When it ended.
    pub at: UnixMillis,
    /// How long it ran.
    pub took: Duration,
    /// The beginning of its words.
    pub words: Vec<Vec<u8>>,
    /// The client's address, if it ran on the client's thread.
    pub address: String,
    /// The client's name.
    pub client: Vec<u8>,
}

/// A request that was refused.
#[derive(Debug)]
pub struct DeniedRequest {
    /// When.
    pub at: UnixMillis,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// `toplevel`, `multi` or `lua`.
    pub context: &'static str,
    /// The command, key or channel.
    pub object: Box<[u8]>,
    /// The user.
    pub user: Box<[u8]>,
    /// The client, as `CLIENT INFO` tells it.
    pub client: String,
}

/// Refusals that are alike.
#[derive(Debug)]
pub(crate) struct Denials {
    pub(crate) count: u64,
    pub(crate) last: DeniedRequest,
}

/// What is kept, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Logbook {
    slow: VecDeque<(i64, SlowRequest)>,
    slow_count: i64,
    denied: VecDeque<Denials>,
    late: BTreeMap<&'static str, Late>,
}

/// What took longer than it should.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// The seconds since 1970 in which that was, with the milliseconds that it took at most in it; the oldest first.
    pub(crate) samples: VecDeque<(u64, u64)>,
    /// The most that it ever took.
    pub(crate) most: u64,
}

/// So many seconds are kept of each event, as in Redis.
const LATE_KEPT: usize = 160;

/// Refusals that come later than this after those that are alike are counted anew.
const ALIKE_MILLIS: u64 = 60_000;
/// What is kept of a slow request: so many words, of so many bytes.
const WORDS_KEPT: usize = 32;
const BYTES_KEPT: usize = 128;

impl Logbook {
    fn hear(&mut self, note: Note, slow_kept: usize, denied_kept: usize) {
        match note {
            Note::Slow(slow) => {
                self.slow.push_front((self.slow_count, slow));
                self.slow_count += 1;
            }
            Note::Denied(denied) => {
                let is_alike = |other: &Denials| {
                    let last = &other.last;
                    denied.at.0.saturating_sub(last.at.0) < ALIKE_MILLIS
                        && (last.reason, last.context, &last.object, &last.user)
                            == (denied.reason, denied.context, &denied.object, &denied.user)
                };
                let count = match self.denied.iter().position(is_alike) {
                    Some(index) => self.denied.remove(index).map_or(0, |alike| alike.count),
                    None => 0,
                };
                self.denied.push_front(Denials { count: count + 1, last: denied });
            }
            Note::Late { event, at, millis } => {
                let late = self.late.entry(event).or_default();
                late.most = late.most.max(millis);
                let second = at.0 / 1000;
                match late.samples.back_mut() {
                    Some((last, most)) if *last == second => *most = millis.max(*most),
                    _ => late.samples.push_back((second, millis)),
                }
                if late.samples.len() > LATE_KEPT {
                    late.samples.pop_front();
                }
            }
        }
        self.slow.truncate(slow_kept);
        self.denied.truncate(denied_kept);
    }

    /// Slow requests with their numbers, the newest first.
    pub(crate) fn slow(&self) -> impl ExactSizeIterator<Item = &(i64, SlowRequest)> {
        self.slow.iter()
    }

    /// Refusals, the newest first.
    pub(crate) fn denied(&self) -> impl ExactSizeIterator<Item = &Denials> {
        self.denied.iter()
    }

    /// What took longer than it should, by event.
    pub(crate) const fn late(&self) -> &BTreeMap<&'static str, Late> {
        &self.late
    }

    /// Forgets what took longer than it should, of all events or of those named. Says how many events these were.
    pub(crate) fn forget_late(&mut self, names: &[&[u8]]) -> usize {
        let before = self.late.len();
        self.late.retain(|event, _| !names.is_empty() && !names.contains(&event.as_bytes()));
        before - self.late.len()
    }

    /// Forgets the slow requests.
    pub(crate) fn forget_slow(&mut self) {
        self.slow.clear();
    }

    /// Forgets the refusals.
    pub(crate) fn forget_denied(&mut self) {
        self.denied.clear();
    }
}

impl Actor {
    /// Brings something to the first actor.
    pub(crate) fn note(&mut self, note: Note) {
        if self.id == FIRST {
            self.logbook.hear(note, self.config.slow_kept, self.config.denied_kept);
        } else {
            self.send(FIRST, Message::Noted(note));
        }
    }

    /// When a command begins, if its time is taken: two looks at the clock cost as much as a short command. Of those that always
    /// take the same short time, and those on one string, all are looked at only if what they take may be called slow, or they have
    /// many words or bytes.
    #[inline]
    pub(super) fn begin_timing(&mut self, command: &Command, args: Args<'_>) -> Option<Timing> {
        /// No short command takes this long.
        const FAST_MICROS: i64 = 1000;
        /// With more words, or more bytes, a command may take long that is otherwise short.
        const FEW_WORDS: usize = 64;
        const FEW_BYTES: usize = 64 << 10;
        let slow = self.config.slow_micros;
        let is_short = (command.flags.has(Flags::FAST) || command.group == Group::String && command.keys == Keys::ONE)
            && args.len() <= FEW_WORDS
            && args.byte_count() <= FEW_BYTES;
        self.take_time(self.config.latency_millis > 0 || slow >= 0 && (slow < FAST_MICROS || !is_short))
    }

    /// Notes a request that took long since `began`.
    pub(super) fn end_timing(
        &mut self,
        began: Timing,
        command: &'static Command,
        args: Args<'_>,
        session: Option<&Session>,
    ) {
        let took = self.took_since(began, command, args);
        let millis = took.as_millis() as u64;
        if self.config.latency_millis > 0 && millis >= self.config.latency_millis {
            let event = if command.flags.has(Flags::FAST) { "fast-command" } else { "command" };
            self.note(Note::Late { event, at: self.keys.now(), millis });
        }
        if self.config.slow_micros < 0 {
            return;
        }
        if i64::try_from(took.as_micros()).unwrap_or(i64::MAX) < self.config.slow_micros {
            return;
        }
        let mut words: Vec<Vec<u8>> = args.from(0).take(WORDS_KEPT).map(shortened).collect();
        if command.flags.has(Flags::SECRET) {
            // What is done, and not to whom, or with which password.
            words.truncate(2);
            words.push(b"(redacted)".to_vec());
        } else if args.len() > WORDS_KEPT {
            words[WORDS_KEPT - 1] = format!("... ({} more arguments)", args.len() - WORDS_KEPT + 1).into_bytes();
        }
        let address = session.map_or_else(String::new, |session| session.address.clone());
        let client = session.map_or_else(Vec::new, |session| shortened(&session.name));
        self.note(Note::Slow(SlowRequest { at: self.keys.now(), took, words, address, client }));
    }
}

/// The beginning of a word.
pub(super) fn shortened(word: &[u8]) -> Vec<u8> {
    if word.len() <= BYTES_KEPT {
        return word.to_vec();
    }
    [&word[..BYTES_KEPT], format!("... ({} more bytes)", word.len() - BYTES_KEPT).as_bytes()].concat()
}
