//! What can be permitted: commands, their subcommands, and categories of both.

use std::ops::Range;
use std::sync::LazyLock;

use crate::command::{Class, Command, CommandNumber, Flags, Group, KeyUse, TABLE};
use crate::request::Args;

/// A set of categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Categories(u32);

/// All categories, in the order in which `ACL CAT` gives them.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

impl Categories {
    /// Those of these names; what is no name is left out.
    fn of(names: &[&str]) -> Self {
        let bit = |name: &&str| CATEGORIES.iter().position(|other| other == name).map_or(0, |index| 1 << index);
        Self(names.iter().map(bit).fold(0, |all, bit| all | bit))
    }

    /// One, by its name in any letters.
    #[must_use]
    pub(crate) fn find(name: &[u8]) -> Option<Self> {
        CATEGORIES.iter().position(|other| other.as_bytes().eq_ignore_ascii_case(name)).map(|index| Self(1 << index))
    }

    /// Whether the two have one in common.
    #[must_use]
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Their names.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        CATEGORIES.into_iter().enumerate().filter(move |(index, _)| self.0 & 1 << index != 0).map(|(_, name)| name)
    }
}

/// Commands of which each subcommand is permitted by itself: the command, the categories, the subcommands.
const SUBCOMMANDS: &[(&str, &[&str], &[&str])] = &[
    (
        "acl",
        &["admin", "dangerous", "slow"],
        &["deluser", "dryrun", "getuser", "list", "load", "log", "save", "setuser", "users"],
    ),
    ("acl", &["slow"], &["cat", "genpass", "help", "whoami"]),
    (
        "client",
        &["connection", "slow"],
        &[
            "caching",
            "getname",
            "getredir",
            "help",
            "id",
            "info",
            "no-touch",
            "reply",
            "setinfo",
            "setname",
            "tracking",
            "trackinginfo",
        ],
    ),
    (
        "client",
        &["admin", "connection", "dangerous", "slow"],
        &["kill", "list", "no-evict", "pause", "unblock", "unpause"],
    ),
    (
        "cluster",
        &["slow"],
        &["countkeysinslot", "getkeysinslot", "help", "info", "keyslot", "links", "myid", "nodes", "shards", "slots"],
    ),
    (
        "cluster",
        &["admin", "dangerous", "slow"],
        &[
            "addslots",
            "addslotsrange",
            "bumpepoch",
            "count-failure-reports",
            "delslots",
            "delslotsrange",
            "failover",
            "flushslots",
            "forget",
            "meet",
            "replicas",
            "replicate",
            "reset",
            "saveconfig",
            "set-config-epoch",
            "setslot",
            "slaves",
        ],
    ),
    ("command", &["connection", "slow"], &["count", "docs", "getkeys", "getkeysandflags", "help", "info", "list"]),
    ("config", &["admin", "dangerous", "slow"], &["get", "resetstat", "rewrite", "set"]),
    ("config", &["slow"], &["help"]),
    ("module", &["admin", "dangerous", "slow"], &["list"]),
    ("module", &["slow"], &["help"]),
    ("memory", &["slow"], &["doctor", "help", "malloc-stats", "purge", "stats"]),
    ("memory", &["read", "slow"], &["usage"]),
    ("object", &["keyspace", "read", "slow"], &["encoding", "freq", "idletime", "refcount"]),
    ("object", &["keyspace", "slow"], &["help"]),
    ("pubsub", &["pubsub", "slow"], &["channels", "numpat", "numsub", "shardchannels", "shardnumsub"]),
    ("pubsub", &["slow"], &["help"]),
    ("script", &["scripting", "slow"], &["debug", "exists", "flush", "help", "kill", "load"]),
    ("slowlog", &["admin", "dangerous", "slow"], &["get", "len", "reset"]),
    ("slowlog", &["slow"], &["help"]),
    ("latency", &["admin", "dangerous", "slow"], &["doctor", "graph", "histogram", "history", "latest", "reset"]),
    ("latency", &["slow"], &["help"]),
    ("function", &["scripting", "slow"], &["dump", "help", "kill", "list", "stats"]),
    ("function", &["scripting", "slow", "write"], &["delete", "flush", "load", "restore"]),
    ("xinfo", &["read", "slow", "stream"], &["consumers", "groups", "stream"]),
    ("xinfo", &["slow", "stream"], &["help"]),
    ("xgroup", &["slow", "stream", "write"], &["create", "createconsumer", "delconsumer", "destroy", "setid"]),
    ("xgroup", &["slow", "stream"], &["help"]),
];

/// Commands that may harm others, though they are no operator's.
const DANGEROUS: [&str; 8] = ["flushall", "flushdb", "info", "keys", "restore", "sort", "sort_ro", "swapdb"];
/// Commands of the server that are about keys.
const ABOUT_KEYS: [&str; 4] = ["dbsize", "flushall", "flushdb", "swapdb"];
/// Commands about the connection that stand in another group.
const ABOUT_CONNECTIONS: [&str; 3] = ["command", "wait", "waitaof"];
/// Commands about all collections.
const SORTING: [&str; 2] = ["sort", "sort_ro"];

/// Something that can be permitted by itself.
#[derive(Debug)]
pub(crate) struct Permission {
    /// The command.
    pub(crate) command: &'static Command,
    /// Which of its subcommands; none for the command where it has no such, or is called with none of them.
    pub(crate) subcommand: Option<&'static str>,
    /// Its categories.
    pub(crate) categories: Categories,
}

impl Permission {
    /// Its name in rules and errors.
    #[must_use]
    pub(crate) fn name(&self) -> String {
        match self.subcommand {
            None => self.command.name.to_owned(),
            Some(subcommand) => format!("{}|{subcommand}", self.command.name),
        }
    }
}

/// Where the permissions of each command begin: its own is the first, its subcommands' follow. Every request asks for it.
static FIRST: [u16; TABLE.len() + 1] = {
    let (mut first, mut command) = ([0; TABLE.len() + 1], 0);
    while command < TABLE.len() {
        first[command + 1] = first[command] + 1 + subcommand_count(TABLE[command].name);
        command += 1;
    }
    first
};

const fn subcommand_count(command: &str) -> u16 {
    let (mut count, mut place) = (0, 0);
    while place < SUBCOMMANDS.len() {
        if is_same(SUBCOMMANDS[place].0, command) {
            count += SUBCOMMANDS[place].2.len() as u16;
        }
        place += 1;
    }
    count
}

/// `==` of names, where the compiler asks.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut place = 0;
    while place < one.len() && place < other.len() && one[place] == other[place] {
        place += 1;
    }
    place == one.len() && place == other.len()
}

static PERMISSIONS: LazyLock<Vec<Permission>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for command in TABLE {
        all.push(Permission { command, subcommand: None, categories: categories_of(command) });
        for (_, categories, subcommands) in SUBCOMMANDS.iter().filter(|(name, ..)| *name == command.name) {
            let categories = Categories::of(categories);
            all.extend(subcommands.iter().map(|name| Permission { command, subcommand: Some(name), categories }));
        }
    }
    all
});

/// All permissions.
#[must_use]
pub(crate) fn permissions() -> &'static [Permission] {
    &PERMISSIONS
}

/// The permissions of a command, as indices: its own, then its subcommands'.
#[must_use]
#[inline]
pub(crate) fn permissions_of(command: &'static Command) -> Range<usize> {
    match CommandNumber::of(command).map(|number| usize::from(u16::from(number))) {
        Some(index) => usize::from(FIRST[index])..usize::from(FIRST[index + 1]),
        None => 0..0,
    }
}

/// Whether the command's subcommands are permitted one by one.
#[must_use]
pub(crate) fn has_subcommands(command: &'static Command) -> bool {
    permissions_of(command).len() > 1
}

/// The subcommands of a command.
pub(crate) fn subcommands_of(command: &str) -> impl Iterator<Item = &'static str> {
    SUBCOMMANDS.iter().filter(move |(name, ..)| *name == command).flat_map(|(.., names)| names.iter().copied())
}

/// The permission that a request needs, as an index; none for commands that are not in the table.
#[must_use]
#[inline]
pub(crate) fn permission_for(command: &'static Command, args: Args<'_>) -> Option<usize> {
    let own = permissions_of(command);
    match own.len() {
        0 => None,
        1 => Some(own.start),
        _ => Some(permission_among(own, args)),
    }
}

/// The permission of a request whose command has subcommands.
fn permission_among(mut own: Range<usize>, args: Args<'_>) -> usize {
    let first = own.start;
    own.start += 1;
    let word = args.from(1).next().unwrap_or_default();
    let is_asked = |index: &usize| {
        let subcommand = PERMISSIONS[*index].subcommand.unwrap_or_default();
        subcommand.as_bytes().eq_ignore_ascii_case(word)
    };
    own.find(is_asked).unwrap_or(first)
}

/// The categories of a command.
#[must_use]
pub(crate) fn categories_of(command: &Command) -> Categories {
    let Command { name, flags, group, class, .. } = command;
    if SUBCOMMANDS.iter().any(|(container, ..)| container == name) && *name != "command" {
        return Categories::of(&["slow"]);
    }
    let mut names = vec![if flags.has(Flags::FAST) { "fast" } else { "slow" }];
    match group {
        Group::Server => {}
        Group::Connection | Group::Generic if ABOUT_CONNECTIONS.contains(name) => {}
        Group::Generic if SORTING.contains(name) => names.extend(["list", "set", "sortedset"]),
        group => names.push(group.category()),
    }
    if ABOUT_KEYS.contains(name) {
        names.push("keyspace");
    }
    if ABOUT_CONNECTIONS.contains(name) {
        names.push("connection");
    }
    if flags.has(Flags::WRITE) {
        names.push("write");
    }
    // What a script reads is permitted by the commands in it.
    if flags.has(Flags::READONLY) && *group != Group::Scripting || *class == Class::Everywhere && *name == "dbsize" {
        names.push("read");
    }
    if flags.has(Flags::ADMIN) {
        names.extend(["admin", "dangerous"]);
    }
    if flags.has(Flags::BLOCKING) {
        names.push("blocking");
    }
    if DANGEROUS.contains(name) {
        names.push("dangerous");
    }
    Categories::of(&names)
}

/// What a user may do with a key's value, or a command does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need(u8);

impl Need {
    /// Nothing: it tells no more than that the key is there, of what type, or how long.
    pub(crate) const LOOK: Self = Self(0);
    /// It tells of the value.
    pub(crate) const READ: Self = Self(1);
    /// It changes the value.
    pub(crate) const WRITE: Self = Self(2);
    /// Both.
    pub(crate) const BOTH: Self = Self(3);

    /// What this use of a key needs.
    #[must_use]
    pub(crate) const fn of(key: KeyUse) -> Self {
        match (key.reads(), key.writes()) {
            (false, false) => Self::LOOK,
            (true, false) => Self::READ,
            (false, true) => Self::WRITE,
            (true, true) => Self::BOTH,
        }
    }

    /// Whether who may do `self` may do `other`.
    #[must_use]
    pub(crate) const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permissions_of_a_command_are_those_that_say_so() {
        for command in TABLE {
            let own: Vec<usize> = permissions_of(command).collect();
            let named = |index: &usize| std::ptr::eq(permissions()[*index].command, command);
            assert_eq!(own, (0..permissions().len()).filter(named).collect::<Vec<_>>(), "{}", command.name);
            assert_eq!(permissions()[own[0]].subcommand, None);
        }
    }
}
