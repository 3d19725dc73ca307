//! Storage policies: they are kept and shown, and blocks are on the one disk whatever they say.

use savanna_files_host::{Class, FilesError};

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
pub(crate) fn all() -> Vec<StoragePolicy> {
    POLICIES.iter().map(message).collect()
}

/// The number of a name, in any case.
pub(crate) fn named(name: &str) -> Result<u8, FilesError> {
    let found = POLICIES.iter().find(|(_, other, _)| other.eq_ignore_ascii_case(name));
    found.map(|(number, ..)| *number).ok_or_else(|| {
        FilesError::new(Class::IllegalArgument, format!("Cannot find a block policy with the name {name}"))
    })
}

/// What who asks for the policy of nothing is told.
pub(crate) fn nothing_at(path: &str) -> FilesError {
    FilesError::new(Class::FileNotFound, format!("File/Directory does not exist: {path}"))
}

/// A kind of storage as Hadoop calls it.
pub(crate) const fn storage_name(kind: i32) -> &'static str {
    match kind {
        SSD => "SSD",
        ARCHIVE => "ARCHIVE",
        _ => "DISK",
    }
}

/// What is so for an inode whose directories say this.
pub(crate) fn of(number: Option<u8>) -> StoragePolicy {
    let wanted = number.unwrap_or(HOT);
    let found = POLICIES.iter().find(|(number, ..)| *number == wanted);
    message(found.unwrap_or(&POLICIES[2]))
}

fn message((number, name, types): &Policy) -> StoragePolicy {
    let [creation, creation_else, replication_else] = types.map(|kinds| StorageTypes { kinds: kinds.to_vec() });
    let (creation_else, replication_else) = (Some(creation_else), Some(replication_else));
    StoragePolicy { id: (*number).into(), name: (*name).to_owned(), creation, creation_else, replication_else }
}
