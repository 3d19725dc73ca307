//! A zip of a function that is anything: nothing of it is outside of its folder, and it is no larger than it says.

#![no_main]

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use savanna_functions_host::zip::{check, unpack, unpacked_bytes};

/// Zips that say more are only looked at: each would be written to the disk.
const WRITTEN_MAX: u64 = 1 << 20;

/// Bytes of all files in a folder, in which there is nothing but files and folders.
fn bytes(folder: &Path) -> u64 {
    let size = |entry: fs::DirEntry| {
        let metadata = entry.metadata().expect("it is there");
        assert!(metadata.is_dir() || metadata.is_file(), "{}", entry.path().display());
        if metadata.is_dir() { bytes(&entry.path()) } else { metadata.len() }
    };
    fs::read_dir(folder).expect("a folder").map(|entry| size(entry.expect("an entry"))).sum()
}

fuzz_target!(|zip: &[u8]| {
    let Ok(most) = unpacked_bytes(zip) else { return };
    if check(zip).is_err() || most > WRITTEN_MAX {
        return;
    }
    let outside = tempfile::tempdir().expect("a directory");
    let folder = outside.path().join("task");
    fs::create_dir(&folder).expect("a folder");
    let unpacked = unpack(zip, &folder);
    assert_eq!(fs::read_dir(outside.path()).expect("a folder").count(), 1, "something is beside the folder");
    let written = bytes(&folder);
    assert!(written <= most, "{written} > {most}");
    assert!(unpacked.is_err() || written == most);
});
