//! Keys as somebody asks for them who does not have them: requests and replies as plain values, so that the owner may be in this
//! process or behind a network.
//!
//! A session is where its client's socket is. What belongs to it (who the client is, its protocol, what MULTI has queued) is decided there;
//! what goes to the owner of keys is what their commands need: the database and the words.
//!
//! Where the keys are in this process, nothing of this is made: a command reads its words in the buffer that was received, and writes its
//! reply into the one that is sent ([`crate::actor::Actor::request`]).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use savanna_epoch::{NodeId, OwnerEpoch};
use serde::{Deserialize, Serialize};

use crate::cluster::ClusterNode;
use crate::command::{Command, CommandNumber, Flags};
use crate::group::{GroupReply, GroupRequest};
use crate::keyspace::DATABASES;
use crate::reply::{Reply, Tape};
use crate::request::{Args, OwnedArgs};

/// The keys engine of some node, as others reach it.
///
/// The threads of keys wait for sockets and mail, not for futures: they are told when a request is done.
pub trait KeysHandle: fmt::Debug + Send + Sync {
    /// Does one request. The answer may be given on any thread, also before this returns.
    fn call(&self, request: Arc<KeysRequest>, answer: Answer);

    /// Does what is asked about a group of keys at several nodes, for which the same holds. Where keys are not spread there are none.
    fn group(&self, request: GroupRequest, answer: Answer<GroupReply>) {
        let reason = format!("expected a request of a node whose keys are spread, came {request:?}");
        answer.give(Err(HandleError::Unavailable { reason, may_have_run: false }));
    }
}

/// A shared handle.
pub type SharedKeysHandle = Arc<dyn KeysHandle>;

/// Who has keys, by node.
pub trait KeysNodes: fmt::Debug + Send + Sync {
    /// The engine of a node.
    fn at(&self, node: &NodeId) -> SharedKeysHandle;

    /// Where clients of clusters reach who has the keys, if that is known.
    fn owner(&self) -> Option<Arc<ClusterNode>> {
        None
    }
}

/// Who owns keys, and under which epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The node.
    pub node: NodeId,
    /// Its epoch. An owner is only ever replaced by one of a higher epoch.
    pub epoch: OwnerEpoch,
}

/// Why a request, or a part of it, was not done.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandleError {
    /// The keys are served elsewhere now. Nothing was done.
    #[error("moved to node {to} (epoch {epoch}); ask there")]
    Moved {
        /// The new owner.
        to: NodeId,
        /// Its epoch.
        epoch: OwnerEpoch,
    },
    /// The keys are held: they are being moved, or their owner pauses. Nothing was done.
    #[error("frozen; ask again in {retry_after_ms} ms")]
    Frozen {
        /// When to ask again.
        retry_after_ms: u64,
    },
    /// No answer.
    #[error("the keys service does not answer: {reason}")]
    Unavailable {
        /// What happened.
        reason: String,
        /// Whether the request may have been done.
        may_have_run: bool,
    },
}

/// Where the outcome of a request goes. One that is dropped says that there is none.
pub struct Answer<T = KeysReply>(Option<Hear<T>>);

type Hear<T> = Box<dyn FnOnce(Result<T, HandleError>) + Send>;

impl<T> Answer<T> {
    /// Gives the outcome to `hear`.
    pub fn new(hear: impl FnOnce(Result<T, HandleError>) + Send + 'static) -> Self {
        Self(Some(Box::new(hear)))
    }

    /// Says what became of the request.
    pub fn give(mut self, outcome: Result<T, HandleError>) {
        if let Some(hear) = self.0.take() {
            hear(outcome);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(hear) = self.0.take() {
            let reason = "it ended before it answered".to_owned();
            hear(Err(HandleError::Unavailable { reason, may_have_run: true }));
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// Commands for the owner of their keys, from sessions of one thread. Each part is a command, or a transaction.
///
/// Which key group a part is about follows from its keys. The owner does the parts of a group in their order; once it does not
/// do one of them, it does none that come after it in the same request. Parts about different groups may be done in another order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct KeysRequest {
    args: OwnedArgs,
    /// Commands, each with the end of its words.
    steps: Vec<(CommandNumber, u32)>,
    parts: Vec<Head>,
}

/// What there is to say about a part beside its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    database: u8,
    is_transaction: bool,
    /// The end of its steps.
    end: u32,
}

/// A part of a request.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The database that is selected.
    pub database: u8,
    /// Whether its commands run as one, and are answered with a list.
    pub is_transaction: bool,
    steps: &'a [(CommandNumber, u32)],
    args: &'a OwnedArgs,
    /// Where the words of its first command begin.
    start: u32,
}

impl<'a> Part<'a> {
    /// Its commands; one if it is no transaction.
    pub fn steps(self) -> impl ExactSizeIterator<Item = (&'static Command, Args<'a>)> + Clone {
        let mut start = self.start;
        self.steps.iter().map(move |(number, end)| {
            let words = start as usize..*end as usize;
            start = *end;
            (number.command(), self.args.words(words))
        })
    }

    /// Whether it changes nothing, so that doing it twice is the same as doing it once.
    #[must_use]
    pub fn only_reads(self) -> bool {
        self.steps().all(|(command, _)| command.flags.has(Flags::READONLY))
    }
}

impl KeysRequest {
    /// Adds a command.
    pub fn push(&mut self, database: u8, command: CommandNumber, args: Args<'_>) {
        self.push_step(command, args);
        self.end_part(database, false);
    }

    /// Adds commands that run as one.
    pub fn push_transaction<'a>(&mut self, database: u8, steps: impl IntoIterator<Item = (CommandNumber, Args<'a>)>) {
        steps.into_iter().for_each(|(command, args)| self.push_step(command, args));
        self.end_part(database, true);
    }

    fn push_step(&mut self, command: CommandNumber, args: Args<'_>) {
        self.args.push(args);
        self.steps.push((command, self.args.len() as u32));
    }

    fn end_part(&mut self, database: u8, is_transaction: bool) {
        self.parts.push(Head { database, is_transaction, end: self.steps.len() as u32 });
    }

    /// How many parts there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of all words.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.args.byte_count()
    }

    /// The parts in their order.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Part<'_>> {
        let mut start = 0;
        self.parts.iter().map(move |head| {
            let steps = start as usize..head.end as usize;
            start = head.end;
            let first_word = steps.start.checked_sub(1).map_or(0, |before| self.steps[before].1);
            Part {
                database: head.database,
                is_transaction: head.is_transaction,
                steps: &self.steps[steps],
                args: &self.args,
                start: first_word,
            }
        })
    }

    /// A request of the parts at these places.
    #[must_use]
    pub fn only(&self, places: &[usize]) -> Self {
        let mut request = Self::default();
        for (place, part) in self.parts().enumerate() {
            if places.contains(&place) {
                for (&(number, _), (_, args)) in part.steps.iter().zip(part.steps()) {
                    request.push_step(number, args);
                }
                request.end_part(part.database, part.is_transaction);
            }
        }
        request
    }
}

/// A request as another node sent it.
#[derive(Deserialize)]
struct Unchecked {
    args: OwnedArgs,
    steps: Vec<(CommandNumber, u32)>,
    parts: Vec<Head>,
}

impl TryFrom<Unchecked> for KeysRequest {
    type Error = String;

    fn try_from(Unchecked { args, steps, parts }: Unchecked) -> Result<Self, String> {
        let mut begin = 0;
        for (number, end) in &steps {
            let (command, words) = (number.command(), end.checked_sub(begin).unwrap_or_default() as usize);
            if words == 0 || !command.takes(words) {
                return Err(format!("{words} words are no request of {}", command.name));
            }
            begin = *end;
        }
        if begin as usize != args.len() {
            return Err(format!("expected {begin} words, got {}", args.len()));
        }
        begin = 0;
        for Head { database, is_transaction, end } in &parts {
            let count = end.checked_sub(begin).ok_or("parts overlap")?;
            if *database >= DATABASES {
                return Err(format!("expected a database below {DATABASES}, got {database}"));
            }
            if !is_transaction && count != 1 {
                return Err(format!("expected one command, got {count}"));
            }
            begin = *end;
        }
        if begin as usize != steps.len() {
            return Err(format!("expected {begin} commands, got {}", steps.len()));
        }
        Ok(Self { args, steps, parts })
    }
}

/// What became of the parts of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedReply")]
pub struct KeysReply {
    tape: Tape,
    outcomes: Vec<Outcome>,
}

/// Where the reply to a part lies, or why there is none.
type Outcome = Result<Range<u32>, HandleError>;

/// A reply as another node sent it.
#[derive(Deserialize)]
struct UncheckedReply {
    tape: Tape,
    outcomes: Vec<Outcome>,
}

impl TryFrom<UncheckedReply> for KeysReply {
    type Error = String;

    fn try_from(UncheckedReply { tape, outcomes }: UncheckedReply) -> Result<Self, String> {
        for part in outcomes.iter().flatten() {
            if !tape.is_reply(part.start as usize..part.end as usize) {
                return Err(format!("expected one reply at bytes {part:?}"));
            }
        }
        Ok(Self { tape, outcomes })
    }
}

/// No request is answered with more, so that the reply finds room in a message between nodes.
const REPLY_BYTES_MAX: usize = 12 << 20;

/// What a part is answered with whose reply finds no room.
const TOO_LONG: &str = "ERR the reply is too long to come from another node; ask for it in parts";

impl KeysReply {
    /// The reply to a request of so many parts; none is answered.
    #[must_use]
    pub fn awaiting(parts: usize) -> Self {
        let unavailable = HandleError::Unavailable { reason: "it is not done".to_owned(), may_have_run: true };
        Self { tape: Tape::new(), outcomes: vec![Err(unavailable); parts] }
    }

    /// Answers a part with what `write` gives.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn answer(&mut self, part: usize, write: impl FnOnce(&mut Tape)) {
        let start = self.tape.position();
        let room = REPLY_BYTES_MAX.saturating_sub(start);
        self.tape.write_at_most(room, TOO_LONG, write);
        self.outcomes[part] = Ok(start as u32..self.tape.position() as u32);
    }

    /// Says why a part was not done.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn refuse(&mut self, part: usize, error: HandleError) {
        self.outcomes[part] = Err(error);
    }

    /// What became of each part.
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = Result<Answered<'_>, &HandleError>> {
        self.outcomes.iter().map(|outcome| outcome.as_ref().map(|range| Answered { tape: &self.tape, range }))
    }
}

/// The reply to a part.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    tape: &'a Tape,
    range: &'a Range<u32>,
}

impl Answered<'_> {
    /// Plays it.
    pub fn play(self, to: &mut dyn Reply) {
        self.tape.play_part(self.range.start as usize..self.range.end as usize, to);
    }
}
