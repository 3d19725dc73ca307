//! What there is to say about a command; [`table`] says it of all.

pub(crate) mod arguments;
mod key_uses;
mod keys_of;
mod number;
mod table;

use std::sync::LazyLock;

use hashbrown::HashTable;

use savanna_lattice::UnixMillis;

pub use self::key_uses::{KeyUse, KeyUses};
pub use self::{
    keys_of::Keys,
    number::{CommandNumber, UnknownCommand},
    table::TABLE,
};
use crate::actor::{Actor, Progress};
use crate::commands::bitfields::only_reads;
use crate::commands::streams::block_millis;
use crate::commands::streams::xgroup_adds;
use crate::error::{CommandError, Outcome};
use crate::keyspace::Keyspace;
use crate::number::{float, integer, parse_timeout};
use crate::reply::Reply;
use crate::request::Args;
use crate::session::Session;

/// A command.
#[derive(Debug)]
pub struct Command {
    /// Its name, in small letters.
    pub name: &'static str,
    /// How many words a request has, the name included; `-n` for at least `n`.
    pub arity: i16,
    /// What it does.
    pub flags: Flags,
    /// Which words are keys.
    pub keys: Keys,
    /// What it does with them, if the request has no options that say otherwise; see [`Command::uses_of`].
    pub uses: KeyUses,
    /// Where it may run.
    pub class: Class,
    /// What it is about.
    pub group: Group,
    /// The version of Redis that had it first; of Savanna's own commands, that of Savanna.
    pub since: &'static str,
    /// What it is for, in one sentence.
    pub summary: &'static str,
    /// Its function.
    pub run: Run,
}

/// Where a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// On any replica of its key.
    Read,
    /// On any replica of its key; the change spreads.
    Merge,
    /// On the first replica of its key, because it tests and returns.
    Primary,
    /// On the connection's thread.
    Session,
    /// On all threads; the replies are put together.
    Everywhere,
}

impl Class {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Merge => "merge",
            Self::Primary => "primary",
            Self::Session => "session",
            Self::Everywhere => "everywhere",
        }
    }
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// Streams.
    Stream,
    /// Places on the earth.
    Geo,
    /// How many different elements there are, about.
    HyperLogLog,
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Several commands as one.
    Transactions,
    /// Scripts.
    Scripting,
    /// Messages to all who listen.
    PubSub,
    /// The connection.
    Connection,
    /// The server.
    Server,
    /// Nodes and slots.
    Cluster,
}

impl Group {
    /// Its name in `COMMAND DOCS`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::Stream => "stream",
            Self::Geo => "geo",
            Self::HyperLogLog => "hyperloglog",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Transactions => "transactions",
            Self::Scripting => "scripting",
            Self::PubSub => "pubsub",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Cluster => "cluster",
        }
    }

    /// Its name as a category of access control.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::Generic => "keyspace",
            Self::SortedSet => "sortedset",
            Self::Transactions => "transaction",
            Self::Server => "dangerous",
            Self::Cluster => "connection",
            other => other.name(),
        }
    }
}

/// What a command does, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// Nothing in particular.
    pub const NONE: Self = Self(0);
    /// It changes keys.
    pub const WRITE: Self = Self(1);
    /// It only reads.
    pub const READONLY: Self = Self(2);
    /// It may need more memory.
    pub const DENYOOM: Self = Self(4);
    /// It is for operators.
    pub const ADMIN: Self = Self(8);
    /// It is about messages.
    pub const PUBSUB: Self = Self(16);
    /// It takes the same short time whatever the size of the value.
    pub const FAST: Self = Self(32);
    /// It may wait.
    pub const BLOCKING: Self = Self(64);
    /// It runs before the client is known.
    pub const NO_AUTH: Self = Self(128);
    /// It is not queued by MULTI: it runs at once, or is refused by [`Flags::NO_MULTI`].
    pub const UNQUEUED: Self = Self(256);
    /// It is refused within MULTI.
    pub const NO_MULTI: Self = Self(512);

    /// Its words are not shown to others: there may be passwords among them.
    pub const SECRET: Self = Self(1024);
    /// It is not about keys, though all threads run it: it waits for none.
    pub const KEYLESS: Self = Self(2048);

    const NAMES: [(Self, &'static str); 10] = [
        (Self::WRITE, "write"),
        (Self::READONLY, "readonly"),
        (Self::DENYOOM, "denyoom"),
        (Self::ADMIN, "admin"),
        (Self::PUBSUB, "pubsub"),
        (Self::FAST, "fast"),
        (Self::BLOCKING, "blocking"),
        (Self::NO_AUTH, "no_auth"),
        (Self::UNQUEUED, "allow_busy"),
        (Self::NO_MULTI, "no_multi"),
    ];

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Their names in `COMMAND`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

/// A command's function.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// About keys, which are all at hand.
    Keys(fn(&mut Keyspace, Args<'_>, &mut dyn Reply) -> Outcome),
    /// About keys, which are all at hand. If it answers with nothing, and says how long it waits, the request waits for some of
    /// its keys to have something; inside of a transaction it does not.
    Waits(fn(&mut Keyspace, Args<'_>, &mut dyn Reply) -> Outcome, WaitsFor),
    /// About keys, which are all at hand, also those that it names only by what is in them: `named` tells these.
    Finds {
        /// Its function.
        run: fn(&mut Keyspace, Args<'_>, &mut dyn Reply) -> Outcome,
        /// The keys that it names besides, with the others at hand.
        named: fn(&Keyspace, Args<'_>) -> Vec<Box<[u8]>>,
    },
    /// About keys, which are all at hand, by commands that it finds out itself.
    Script(fn(&mut Actor, Args<'_>, &mut dyn Reply) -> Outcome),
    /// About the session.
    Session(fn(&mut Actor, &mut Session, Args<'_>, &mut dyn Reply) -> Result<Progress, CommandError>),
    /// A part of the whole.
    Everywhere(fn(&mut Actor, Args<'_>, &mut dyn Reply) -> Outcome, Combine),
    /// About the keys at a place that a cursor names.
    Scan(fn(&mut Keyspace, Args<'_>, &mut dyn Reply) -> Outcome),
}

/// Which keys a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Any of its keys.
    AnyKey,
    /// The first of its keys.
    FirstKey,
}

/// How the parts' replies become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The first one; all are equal.
    First,
    /// The first one of what each node empties; if some have and others have not, that.
    Flushed,
    /// Numbers, added up.
    Sum,
    /// Lists, one behind the other.
    Concatenate,
    /// One by chance, each as likely as the number in it says.
    Chance,
    /// Lines of numbers.
    Info,
    /// Keys with numbers, added up; also if there is one actor only.
    HotKeys,
    /// Parts of a walk, each of which begins where the one before ended.
    Scan,
    /// Lines about clients, in the order of their numbers.
    Clients,
    /// Numbers of clients: whether there are any.
    Killed,
    /// How many calls took how long, added up.
    Histograms,
    /// What takes how much memory, added up.
    MemoryStats,
    /// The same, and what there is to say about it.
    MemoryAdvice,
}

impl Command {
    /// The command of a name in any letters.
    #[must_use]
    pub fn find(name: &[u8]) -> Option<&'static Self> {
        let name = folded(name)?;
        BY_NAME.find(spread(name), |(other, _)| *other == name).map(|(_, command)| *command)
    }

    /// Where a request of this command may run: one that merges tests and returns with some options.
    #[must_use]
    pub fn class_of(&self, args: Args<'_>) -> Class {
        let plain = match (self.class, self.name) {
            (Class::Merge, "set") => args.from(3).all(|option| integer(option).is_some() || is_time(option)),
            (Class::Merge, "zadd" | "geoadd") => args.len() > 2 && float(&args[2]).is_some(),
            (Class::Merge, "expire" | "pexpire" | "expireat" | "pexpireat") => args.len() == 3,
            _ => true,
        };
        if plain { self.class } else { Class::Primary }
    }

    /// What a request of this command does with its keys.
    #[must_use]
    pub fn uses_of(&self, args: Args<'_>) -> KeyUses {
        match self.name {
            "set" if args.from(3).any(|option| option.eq_ignore_ascii_case(b"get")) => key_uses::EXCHANGE,
            "bitfield" if only_reads(args) => key_uses::READ,
            _ => self.uses,
        }
    }

    /// Whether it may change something: keys, or what others have heard.
    #[must_use]
    pub fn may_change(&self) -> bool {
        self.flags.has(Flags::WRITE) || matches!(self.name, "publish" | "spublish")
    }

    /// Whether it may need more memory, so that room is made before it runs.
    #[must_use]
    pub const fn needs_room(&self) -> bool {
        self.flags.has(Flags::DENYOOM) || matches!(self.run, Run::Script(_)) && !self.flags.has(Flags::READONLY)
    }

    /// Whether a request does not run if there is, or is not, room. A script does; then its commands may not. What removes groups
    /// and consumers makes room.
    #[must_use]
    #[inline]
    pub fn is_refused(&self, has_room: bool, args: Args<'_>) -> bool {
        !has_room && self.flags.has(Flags::DENYOOM) && (self.name != "xgroup" || xgroup_adds(args))
    }

    /// Whether a request may have so many words.
    #[must_use]
    pub const fn takes(&self, words: usize) -> bool {
        if self.arity >= 0 { words == self.arity as usize } else { words >= self.arity.unsigned_abs() as usize }
    }

    /// Until when a request waits, if it is of a command that waits and says so rightly.
    #[inline]
    pub(crate) fn deadline(&self, args: Args<'_>, now: UnixMillis) -> Option<UnixMillis> {
        if matches!(self.run, Run::Waits(..)) { self.deadline_of(args, now) } else { None }
    }

    fn deadline_of(&self, args: Args<'_>, now: UnixMillis) -> Option<UnixMillis> {
        let millis = match self.keys {
            Keys::Streams => block_millis(args)?,
            Keys::Counted { .. } => parse_timeout(&args[1]).ok()?,
            _ => parse_timeout(&args[args.len() - 1]).ok()?,
        };
        match millis {
            0 => Some(UnixMillis::NEVER),
            millis => Some(UnixMillis(now.0.saturating_add(millis))),
        }
    }
}

/// Whether an option says when a key expires.
fn is_time(option: &[u8]) -> bool {
    [&b"ex"[..], b"px", b"exat", b"pxat"].iter().any(|name| option.eq_ignore_ascii_case(name))
}

static BY_NAME: LazyLock<HashTable<(Name, &'static Command)>> = LazyLock::new(|| {
    let mut table = HashTable::with_capacity(TABLE.len());
    for command in TABLE {
        if let Some(name) = folded(command.name.as_bytes()) {
            table.insert_unique(spread(name), (name, command), |(name, _)| spread(*name));
        }
    }
    table
});

/// A name of up to 24 bytes in small letters.
type Name = [u64; 3];

/// A hash of a name. Nobody adds names to the table, so that it need not be a good one.
const fn spread([first, second, third]: Name) -> u64 {
    let product = (first ^ second.rotate_left(21) ^ third.rotate_left(42)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

fn folded(name: &[u8]) -> Option<Name> {
    let mut bytes = [0_u8; 24];
    bytes.get_mut(..name.len())?.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    let mut words = [0; 3];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_letters() {
        for command in TABLE {
            let found = Command::find(command.name.to_uppercase().as_bytes()).expect(command.name);
            assert_eq!(found.name, command.name, "two commands of one name");
            assert_eq!(command.name, command.name.to_lowercase());
        }
        assert!(Command::find(b"nothing").is_none());
        assert!(Command::find(&[b'x'; 100]).is_none());
    }

    #[test]
    fn classes_flags_and_functions_agree() {
        for command in TABLE {
            let Command { name, flags, class, run, keys, .. } = command;
            assert!(!(flags.has(Flags::WRITE) && flags.has(Flags::READONLY)), "{name}");
            let uses = command.uses.each().next().expect("endless");
            assert_eq!(uses == key_uses::NO_KEYS.each().next().expect("endless"), *keys == Keys::None, "{name}");
            assert!(!(flags.has(Flags::READONLY) && uses.writes()), "{name}");
            assert!(!flags.has(Flags::DENYOOM) || flags.has(Flags::WRITE) || *class == Class::Session, "{name}");
            match run {
                Run::Keys(_) | Run::Waits(..) | Run::Finds { .. } => {
                    assert_eq!(matches!(run, Run::Waits(..)), flags.has(Flags::BLOCKING), "{name}");
                    assert!(matches!(class, Class::Read | Class::Merge | Class::Primary), "{name}");
                    assert_ne!(*keys, Keys::None, "{name}");
                    assert_eq!(*class == Class::Read, flags.has(Flags::READONLY), "{name}");
                }
                Run::Script(_) => assert!(matches!(class, Class::Read | Class::Primary), "{name}"),
                Run::Session(_) => assert_eq!(*class, Class::Session, "{name}"),
                Run::Everywhere(..) => assert_eq!(*class, Class::Everywhere, "{name}"),
                Run::Scan(_) => assert_eq!(*class, Class::Read, "{name}"),
            }
        }
    }
}
