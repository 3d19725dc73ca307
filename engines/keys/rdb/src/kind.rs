//! What a value is: the first byte of its payload, and the one before its key in a file.

/// A string.
pub const STRING: u8 = 0;
/// A list, element by element.
pub const LIST: u8 = 1;
/// A set, member by member.
pub const SET: u8 = 2;
/// A sorted set whose scores are text.
pub const SORTED_SET_IN_TEXT: u8 = 3;
/// A hash, field by field.
pub const HASH: u8 = 4;
/// A sorted set whose scores are doubles.
pub const SORTED_SET: u8 = 5;
/// A value of a module.
pub const MODULE: u8 = 7;
/// A hash of Redis 2.4.
pub const HASH_ZIPMAP: u8 = 9;
/// A list in one ziplist.
pub const LIST_ZIPLIST: u8 = 10;
/// A set of whole numbers.
pub const SET_INTSET: u8 = 11;
/// A sorted set in a ziplist.
pub const SORTED_SET_ZIPLIST: u8 = 12;
/// A hash in a ziplist.
pub const HASH_ZIPLIST: u8 = 13;
/// A list in several ziplists.
pub const LIST_OF_ZIPLISTS: u8 = 14;
/// A stream of Redis 5.
pub const STREAM: u8 = 15;
/// A hash in a listpack.
pub const HASH_LISTPACK: u8 = 16;
/// A sorted set in a listpack.
pub const SORTED_SET_LISTPACK: u8 = 17;
/// A list in several listpacks.
pub const LIST_OF_LISTPACKS: u8 = 18;
/// A stream of Redis 7.0: with its first entry, the highest that was deleted, and how many there ever were.
pub const STREAM_2: u8 = 19;
/// A set in a listpack.
pub const SET_LISTPACK: u8 = 20;
/// A stream of Redis 7.2: with when its consumers got something.
pub const STREAM_3: u8 = 21;
/// A hash whose fields expire.
pub const HASH_EXPIRING: u8 = 24;
/// A hash in a listpack whose fields expire.
pub const HASH_LISTPACK_EXPIRING: u8 = 25;
