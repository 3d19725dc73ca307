//! Storage policies: they are kept and shown, and blocks are on the one disk whatever they say.

use crate::wire::client::{StoragePolicy, StorageTypes};

const DISK: i32 = 1;
const SSD: i32 = 2;
const ARCHIVE: i32 = 3;

/// What is so if nobody said anything.
const HOT: u8 = 7;

/// A policy: its number and name, on what its blocks should be, and on what if there is none when a block is made, and when one is copied.
type Policy = (u8, &'static str, [&'static [i32]; 3]);

const POLICIES: [Policy; 5] = [
    (2, "COLD", [&[ARCHIVE], &[], &[]]),
    (5, "WARM", [&[DISK, ARCHIVE], &[DISK, ARCHIVE], &[DISK, ARCHIVE]]),
    (HOT, "HOT", [&[DISK], &[], &[ARCHIVE]]),
    (10, "ONE_SSD", [&[SSD, DISK], &[SSD, DISK], &[SSD, DISK]]),
    (12, "ALL_SSD", [&[SSD], &[DISK], &[DISK]]),
];

/// All of them.
pub(super) fn all() -> Vec<StoragePolicy> {
    POLICIES.iter().map(message).collect()
}

/// The number of a name, in any case.
pub(super) fn number(name: &str) -> Option<u8> {
    POLICIES.iter().find(|(_, other, _)| other.eq_ignore_ascii_case(name)).map(|(number, ..)| *number)
}

/// What is so for an inode whose directories say this.
pub(super) fn of(number: Option<u8>) -> StoragePolicy {
    let wanted = number.unwrap_or(HOT);
    let found = POLICIES.iter().find(|(number, ..)| *number == wanted);
    message(found.unwrap_or(&POLICIES[2]))
}

fn message((number, name, types): &Policy) -> StoragePolicy {
    let [creation, creation_else, replication_else] = types.map(|kinds| StorageTypes { kinds: kinds.to_vec() });
    let (creation_else, replication_else) = (Some(creation_else), Some(replication_else));
    StoragePolicy { id: (*number).into(), name: (*name).to_owned(), creation, creation_else, replication_else }
}
