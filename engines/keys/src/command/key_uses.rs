//! What commands do with their keys.

/// What a command does with a key, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse(u8);

impl KeyUse {
    /// It only looks at it.
    const RO: Self = Self(1);
    /// It changes it, depending on what is there.
    const RW: Self = Self(1 << 1);
    /// It writes it, whatever is there.
    const OW: Self = Self(1 << 2);
    /// It removes it.
    const RM: Self = Self(1 << 3);
    /// It tells of the value, or keeps it elsewhere: more than that it is there, of what type, or how long.
    const ACCESS: Self = Self(1 << 4);
    /// It changes the value.
    const UPDATE: Self = Self(1 << 5);
    /// It adds to the value and changes nothing of it.
    const INSERT: Self = Self(1 << 6);
    /// It takes something out of the value.
    const DELETE: Self = Self(1 << 7);

    /// In the words of `COMMAND GETKEYSANDFLAGS`.
    const NAMES: [(Self, &'static str); 8] = [
        (Self::RO, "RO"),
        (Self::RW, "RW"),
        (Self::OW, "OW"),
        (Self::RM, "RM"),
        (Self::ACCESS, "access"),
        (Self::UPDATE, "update"),
        (Self::INSERT, "insert"),
        (Self::DELETE, "delete"),
    ];

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether it tells of the value.
    #[must_use]
    pub const fn reads(self) -> bool {
        self.has(Self::ACCESS)
    }

    /// Whether it changes the value.
    #[must_use]
    pub const fn writes(self) -> bool {
        self.has(Self::UPDATE.and(Self::INSERT).and(Self::DELETE))
    }

    /// Its names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

/// What a command does with its first key, and with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUses {
    first: KeyUse,
    others: KeyUse,
}

/// It has no keys.
pub(super) const NO_KEYS: KeyUses = KeyUses::NONE;
/// It tells that keys are there, of what type, or how long.
pub(super) const LOOK: KeyUses = KeyUses::all(KeyUse::RO);
/// It tells of values.
pub(super) const READ: KeyUses = KeyUses::all(KeyUse::RO.and(KeyUse::ACCESS));
/// It writes values, whatever was there.
pub(super) const WRITE: KeyUses = KeyUses::all(KeyUse::OW.and(KeyUse::UPDATE));
/// It writes values where none were.
pub(super) const CREATE: KeyUses = KeyUses::all(KeyUse::OW.and(KeyUse::INSERT));
/// It removes keys.
pub(super) const REMOVE: KeyUses = KeyUses::all(KeyUse::RM.and(KeyUse::DELETE));
/// It changes values and tells nothing of them.
pub(super) const CHANGE: KeyUses = KeyUses::all(KeyUse::RW.and(KeyUse::UPDATE));
/// It changes values and tells of them.
pub(super) const EXCHANGE: KeyUses = KeyUses::all(KeyUse::RW.and(KeyUse::ACCESS).and(KeyUse::UPDATE));
/// It adds to values.
pub(super) const ADD: KeyUses = KeyUses::all(KeyUse::RW.and(KeyUse::INSERT));
/// It adds to values and tells of them.
pub(super) const GATHER: KeyUses = KeyUses::all(KeyUse::RW.and(KeyUse::ACCESS).and(KeyUse::INSERT));
/// It takes out of values what the request names.
pub(super) const DROP: KeyUses = KeyUses::all(KeyUse::RW.and(KeyUse::DELETE));
/// It takes something out of values and tells what.
pub(super) const TAKE: KeyUses = KeyUses::all(KeyUse::RW.and(KeyUse::ACCESS).and(KeyUse::DELETE));

impl KeyUses {
    /// There are no keys.
    pub const NONE: Self = Self::all(KeyUse(0));

    const fn all(each: KeyUse) -> Self {
        Self { first: each, others: each }
    }

    /// This of the first key, and `others` of those behind it.
    pub(super) const fn then(self, others: Self) -> Self {
        Self { first: self.first, others: others.first }
    }

    /// For each key in order.
    pub fn each(self) -> impl Iterator<Item = KeyUse> {
        std::iter::once(self.first).chain(std::iter::repeat(self.others))
    }
}
