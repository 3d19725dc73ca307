//! What actors say to each other.
//!
//! The actors of a node share its memory, so most of it is said by reference, and stays there. What goes to actors of other nodes as well is
//! made of values:
//!
//! | here | between nodes |
//! |---|---|
//! | `Requests`, `Replies`, `Program`, `Group`: commands by reference, places of sessions | [`KeysRequest`](crate::handle::KeysRequest), [`KeysReply`](crate::handle::KeysReply): commands by number, places among the parts |
//! | `Notice` | as it is |
//! | `Gossip`: what was heard by the actor's place in this node | its [`Item`](crate::keyspace::replica::Item)s as they are; what was heard, by node |
//! | `Await`, `Ready`, `Forget`: who waits, at its session's actor | not: a command that waits does so at the owner of its keys |
//! | `Borrow`, `Lent`, `Return`: the only copy of a key travels | never: a node that dies with it takes the key along; [`GroupRequest`](crate::group::GroupRequest)s instead |
//! | `Heat`, `Quiet`, `PauseAll`, `Pause`, `ChangeDatabases`, `Freeze`, `Frozen`, `Thaw`, `ForAll`, `Noted`, `Script`, `ChangeLibraries`, `Libraries`, `Save`, `Copy`, `Trackers`, `Changed`, `Redirect`, `Redirected`, `NoRedirect`: all actors of a node as one | not: each node does it for itself |

use std::ops::Range;
use std::sync::Arc;

use savanna_lattice::Hlc;
use serde::{Deserialize, Serialize};

use crate::changed::Changes;
use crate::cluster::departure::Departure;
use crate::command::Command;
use crate::error::CommandError;
use crate::keyspace::replica::{LentReplica, Vector};
use crate::keyspace::{Entry, StreamId};
use crate::reply::{Reply, Tape};
use crate::request::{Args, OwnedArgs};
use crate::scripting::{LibraryChange, LibraryRequest};
use crate::session::{SessionId, Ticket};

use super::databases::{DatabaseChange, Thawed};
use super::gossip::Gossip;
use super::hot_keys::Heat;
use super::logbook::Note;
use super::pause::Pause;
use super::program::Program;
use super::saving::{CopyFor, SaveWish};
use super::whole::Inquiry;

/// What a request that waits wants of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An element, which nobody else gets.
    Element,
    /// Entries of a stream behind this one.
    After(StreamId),
    /// Entries of a stream that this group has not got.
    New(Box<[u8]>),
}

/// One thing that an actor says to another.
#[derive(Debug)]
pub enum Message {
    /// Requests about keys of the receiver, or about all keys.
    Requests(Requests),
    /// Replies to requests of the receiver's sessions.
    Replies(Replies),
    /// Requests to be run as one; all their keys are the receiver's.
    Program {
        /// Where the reply goes.
        to: Destination,
        /// What is to run.
        program: Box<Program>,
    },
    /// Requests to be run as one, some of whose keys are at other nodes; the receiver has the first virtual node of them.
    Group {
        /// Where the reply goes.
        to: Destination,
        /// What is to run.
        program: Box<Program>,
    },
    /// A request of the sender's session that all actors answer, to be given to them in the receiver's order.
    ForAll {
        /// Where the reply goes.
        to: Destination,
        /// The database.
        database: u8,
        /// The command.
        command: &'static Command,
        /// Its words.
        args: OwnedArgs,
    },
    /// A session of the sender wants all actors to pause; to be told to them by the receiver, in its order.
    PauseAll {
        /// Where the reply goes.
        to: Destination,
        /// The pause.
        pause: Pause,
    },
    /// The receiver is to pause, and to say so to the sender when what was under way has ended.
    Pause {
        /// The sender's number for the replies.
        gather: u64,
        /// The pause.
        pause: Pause,
    },
    /// A session of the sender wants whole databases to be changed; to be done by the receiver, one after the other.
    ChangeDatabases {
        /// Where the reply goes.
        to: Destination,
        /// What is to become of them.
        change: DatabaseChange,
    },
    /// The receiver is to hold all its keys, and to say so.
    Freeze {
        /// The sender's number for the change.
        number: u64,
        /// What is to become of databases.
        change: DatabaseChange,
    },
    /// All keys of the sender are held.
    Frozen {
        /// The receiver's number for the change.
        number: u64,
        /// The latest version that the sender gave or heard of.
        latest: Hlc,
        /// Why the change cannot be made, as far as keys there go.
        obstacle: Option<CommandError>,
    },
    /// All actors held all their keys; the receiver goes on.
    Thaw {
        /// What has become of databases.
        thawed: Thawed,
    },
    /// Something for the first actor's logbook.
    Noted(Note),
    /// A transaction of the sender needs keys.
    Borrow {
        /// The sender's number for the transaction.
        transaction: u64,
        /// The keys.
        keys: Vec<Box<[u8]>>,
        /// Whether it may need more memory.
        needs_room: bool,
        /// What it asks of all keys, which it wants held then.
        whole: Option<Inquiry>,
    },
    /// The keys that a transaction of the receiver asked for, in the same order.
    Lent {
        /// The receiver's number for the transaction.
        transaction: u64,
        /// The keys with their entries.
        loans: Vec<Loan>,
        /// Whether there is room for what the transaction may add to them.
        has_room: bool,
        /// Of a transaction that wants all keys held, what it gets with them.
        rest: Option<LentRest>,
    },
    /// A transaction has ended.
    Return {
        /// The keys, as they are now.
        loans: Vec<Loan>,
        /// Of a transaction that held all keys, what has become of databases before.
        changes: Option<Vec<Thawed>>,
    },
    /// What the sender's replicas tell the receiver's.
    Gossip(Gossip),
    /// Nothing of the sender is under way to keys of a virtual node that is to leave; what was came before.
    Quiet {
        /// That departure: what is said of one that was given up concerns the next one of the virtual node in nothing.
        departure: Arc<Departure>,
    },
    /// How often the sender was asked of late for keys of the receiver of which it has copies.
    Heat(Vec<Heat>),
    /// Something about replicas or channels.
    Notice(Notice),
    /// A request of one of the sender's sessions waits for a key.
    Await {
        /// What it wants of the key.
        wanted: Wanted,
        /// The sender's number for it.
        waiter: u64,
        /// The database.
        database: u8,
        /// What waits.
        command: &'static Command,
        /// The key.
        key: Box<[u8]>,
    },
    /// A key has something for a waiter of the receiver.
    Ready {
        /// The receiver's number for it.
        waiter: u64,
        /// The key.
        key: Box<[u8]>,
        /// Its place among what one transaction brought to several keys, if it did not come alone.
        place: Option<Hlc>,
    },
    /// A script that the sender heard of.
    Script {
        /// Its text.
        source: Box<[u8]>,
    },
    /// A session of the sender wants libraries of functions changed, by the receiver.
    ChangeLibraries {
        /// Where the reply goes.
        to: Destination,
        /// How.
        request: LibraryRequest,
    },
    /// What has become of libraries.
    Libraries {
        /// The sender's number for the acknowledgements.
        gather: u64,
        /// What has changed.
        change: LibraryChange,
    },
    /// A session of the sender wants all keys saved, by the receiver.
    Save {
        /// Where the reply goes.
        to: Destination,
        /// What it wants.
        wish: SaveWish,
    },
    /// A file with all keys for a session of the receiver.
    Copy(Box<CopyFor>),
    /// How many of the sender's sessions keep copies of values.
    Trackers {
        /// How many.
        count: usize,
    },
    /// What the sender has changed; the receiver has sessions that keep copies.
    Changed(Changes),
    /// A session of the sender wants a client of the receiver to hear in its place.
    Redirect {
        /// The session.
        session: SessionId,
        /// The client's number.
        to: i64,
    },
    /// A client of the receiver is to hear in the place of a session of the sender.
    Redirected {
        /// The session.
        session: SessionId,
        /// The client's number.
        to: i64,
        /// The keys that were changed; `None` for all.
        keys: Option<Vec<Box<[u8]>>>,
    },
    /// There is no such client.
    NoRedirect {
        /// The session of the receiver.
        session: SessionId,
        /// Whether there never was one.
        is_new: bool,
    },
    /// A waiter of the sender waits no longer.
    Forget {
        /// The sender's number for it.
        waiter: u64,
        /// The database.
        database: u8,
        /// The key.
        key: Box<[u8]>,
    },
}

impl Message {
    /// Bytes of what is published with it.
    #[must_use]
    pub fn published_bytes(&self) -> usize {
        match self {
            Self::Notice(Notice::Published { channel, payload } | Notice::PublishedToShard { channel, payload }) => {
                channel.len() + payload.len()
            }
            Self::Notice(Notice::Monitored { line }) => line.len(),
            Self::Changed(changes) => changes.byte_count(),
            _ => 0,
        }
    }
}

/// What actors tell each other about replicas and channels, of this node or another one: it names keys, channels and clocks only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A copy at the sender has heard all from the first replica, at the receiver, and waits for what was on its way there; or one that
    /// answers already asks when those may come back who went there.
    Join {
        /// The database.
        database: u8,
        /// The key.
        key: Box<[u8]>,
        /// How many replicas it had then.
        vector: Vector,
        /// Counts what the sender asked the first replicas of keys.
        asked: u64,
    },
    /// What was on its way to the first replica, at the sender, was told: with it the receiver's copy answers everybody who went there.
    Joined {
        /// The database.
        database: u8,
        /// The key.
        key: Box<[u8]>,
        /// As in `Join`.
        vector: Vector,
        /// As in `Join`.
        asked: u64,
        /// The last message that the first replica had seen of each actor; its own last one, too.
        seen: Vec<u64>,
    },
    /// Something was published; the receiver has listeners.
    Published {
        /// The channel.
        channel: Box<[u8]>,
        /// The message.
        payload: Box<[u8]>,
    },
    /// How many of the sender's sessions listen to a channel now.
    Listeners {
        /// The channel.
        channel: Box<[u8]>,
        /// How many.
        count: usize,
    },
    /// How many of the sender's sessions listen to a pattern now.
    PatternListeners {
        /// The pattern.
        pattern: Box<[u8]>,
        /// How many.
        count: usize,
    },
    /// How many of the sender's sessions hear of every request.
    Monitors {
        /// How many.
        count: usize,
    },
    /// A request that was made at the sender; the receiver has sessions that hear of it.
    Monitored {
        /// As it is shown.
        line: Box<str>,
    },
    /// Something was published to a channel of shards; the receiver has listeners.
    PublishedToShard {
        /// The channel.
        channel: Box<[u8]>,
        /// The message.
        payload: Box<[u8]>,
    },
    /// How many of the sender's sessions listen to a channel of shards now.
    ShardListeners {
        /// The channel.
        channel: Box<[u8]>,
        /// How many.
        count: usize,
    },
}

/// A key that goes from one actor to another and back, with its entries in all databases.
#[derive(Debug)]
pub struct Loan {
    /// The key.
    pub key: Box<[u8]>,
    /// Databases and entries.
    pub entries: Vec<(u8, Box<Entry>)>,
    /// Databases in which it has replicas, with the first one's state.
    pub replicas: Vec<(u8, LentReplica)>,
    /// Databases in which the transaction made it, and when.
    pub made: Vec<(u8, Hlc)>,
    /// When a key of its class was last deleted: its version where it is not there.
    pub deleted: Hlc,
}

/// What a transaction gets that holds all keys of an actor, beside those that it borrows.
#[derive(Debug)]
pub struct LentRest {
    /// What the other keys say to what it asks of all.
    pub parts: Vec<Tape>,
    /// The latest version that the sender gave or heard of.
    pub latest: Hlc,
    /// Why it cannot change databases, as far as keys there go.
    pub obstacle: Option<CommandError>,
}

/// Where a reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a session's place among its replies.
    Session(SessionId, Ticket),
    /// To a session that did not ask.
    Push(SessionId),
    /// To the parts of a request that all actors answer.
    Gather(u64),
    /// To a request that waits for something.
    Waiter(u64),
    /// To a part of a request of another node.
    Call {
        /// The actor's number for it.
        number: u64,
        /// Which part.
        part: u32,
    },
    /// To a request about keys of several nodes, which waits until what came before it is answered.
    Group(u64),
}

impl Destination {
    /// Whether it is a part of something that the actor puts together.
    const fn is_part(self) -> bool {
        matches!(self, Self::Gather(_) | Self::Call { .. } | Self::Group(_))
    }
}

/// With more bytes than this, requests go in another message.
const REQUESTS_BYTES: usize = 64 << 20;

/// Requests on their way.
#[derive(Debug, Default)]
pub struct Requests {
    args: OwnedArgs,
    items: Vec<(Destination, u8, &'static Command, Range<usize>)>,
}

impl Requests {
    /// Adds one.
    pub fn push(&mut self, to: Destination, database: u8, command: &'static Command, args: Args<'_>) {
        let words = self.args.push(args);
        self.items.push((to, database, command, words));
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether one more request goes in another message.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.args.byte_count() > REQUESTS_BYTES
    }

    /// In the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (Destination, u8, &'static Command, Args<'_>)> {
        self.items
            .iter()
            .map(|(to, database, command, words)| (*to, *database, *command, self.args.words(words.clone())))
    }
}

/// Replies on their way.
#[derive(Debug, Default)]
pub struct Replies {
    tape: Tape,
    /// Long replies that were there already, each as it is.
    whole: Vec<Tape>,
    items: Vec<(Destination, Place)>,
    has_parts: bool,
    /// Whether some go to requests that wait.
    has_outcomes: bool,
    byte_count: usize,
}

/// Where a reply is.
#[derive(Clone, Debug)]
enum Place {
    /// On the tape of all.
    Part(Range<usize>),
    /// Among those that are kept as they are.
    Whole(usize),
}

impl Replies {
    /// Adds the reply that `write` gives.
    pub fn push(&mut self, to: Destination, write: impl FnOnce(&mut Tape)) {
        let start = self.tape.position();
        self.tape.write_reply(write);
        self.has_parts |= to.is_part();
        self.has_outcomes |= matches!(to, Destination::Waiter(_));
        self.byte_count += self.tape.position() - start;
        self.items.push((to, Place::Part(start..self.tape.position())));
    }

    /// Adds a reply that is there; a long one is not copied.
    pub fn add(&mut self, to: Destination, tape: Tape) {
        if to.is_part() || matches!(to, Destination::Waiter(_)) || !tape.is_long_reply() {
            return self.push(to, |reply| tape.play(reply));
        }
        self.byte_count += tape.position();
        self.items.push((to, Place::Whole(self.whole.len())));
        self.whole.push(tape);
    }

    /// Adds something for several sessions that did not ask. It is kept once.
    pub fn push_to_all(&mut self, to: &[SessionId], write: impl FnOnce(&mut Tape)) {
        let start = self.tape.position();
        self.tape.write_reply(write);
        let range = start..self.tape.position();
        self.byte_count += range.len() * to.len();
        self.items.extend(to.iter().map(|session| (Destination::Push(*session), Place::Part(range.clone()))));
    }

    /// Takes out what are parts of replies; the rest stays.
    pub fn forget_parts(&mut self) {
        self.items.retain(|(to, _)| !to.is_part());
        self.has_parts = false;
    }

    /// The bytes of all replies, for each session that gets them.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.byte_count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether some are parts of a reply.
    #[must_use]
    pub const fn has_parts(&self) -> bool {
        self.has_parts
    }

    /// Whether all go to sessions.
    #[must_use]
    pub const fn are_for_sessions(&self) -> bool {
        !self.has_parts && !self.has_outcomes
    }

    /// Takes all out; memory is used again.
    pub fn clear(&mut self) {
        (self.has_parts, self.has_outcomes) = (false, false);
        self.byte_count = 0;
        self.tape.clear();
        self.whole.clear();
        self.items.clear();
    }

    /// Destinations, with a reply that can be played.
    pub fn iter(&self) -> impl Iterator<Item = (Destination, Part<'_>)> {
        self.items.iter().map(|(to, place)| {
            let part = match place {
                Place::Part(range) => Part { tape: &self.tape, range: range.clone() },
                Place::Whole(index) => Part { tape: &self.whole[*index], range: 0..self.whole[*index].position() },
            };
            (*to, part)
        })
    }
}

/// One reply among many.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    tape: &'a Tape,
    range: Range<usize>,
}

impl Part<'_> {
    /// How many bytes it has on its tape: about as many as for a client.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.range.len()
    }

    /// Plays it.
    pub fn play(&self, to: &mut dyn Reply) {
        self.tape.play_part(self.range.clone(), to);
    }

    /// A tape of its own.
    #[must_use]
    pub fn to_tape(&self) -> Tape {
        let mut tape = Tape::new();
        self.play(&mut tape);
        tape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_are_there_come_among_the_others_in_their_order_long_or_short() {
        let to = |ticket| Destination::Session(SessionId { place: 0, serial: 1 }, Ticket(ticket));
        let texts = ["short".to_owned(), "x".repeat(100_000), "y".repeat(200_000), String::new()];
        let mut replies = Replies::default();
        replies.push(to(9), |reply| reply.ok());
        for (ticket, text) in (0..).zip(&texts) {
            let mut tape = Tape::new();
            tape.bulk(text.as_bytes());
            replies.add(to(ticket), tape);
        }
        let came: Vec<(Destination, Tape)> = replies.iter().map(|(to, part)| (to, part.to_tape())).collect();
        assert_eq!(came[0].0, to(9));
        for ((ticket, text), (destination, tape)) in (0..).zip(&texts).zip(&came[1..]) {
            assert_eq!(*destination, to(ticket));
            assert_eq!(tape.first(), Some(crate::reply::Value::Bulk(text.as_bytes())));
        }
        assert!(replies.byte_count() > 300_000);
        replies.clear();
        assert!(replies.is_empty() && replies.byte_count() == 0 && replies.iter().next().is_none());
    }
}
