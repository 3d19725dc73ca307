//! A payload for `RESTORE`, whose checksum is right: what is taken for a value is written, and read again, as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use savanna_keys::keyspace::payload::{dump, kind_of, restore};
use savanna_keys_rdb::{VERSION_MAX, seal};

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = restore(&seal(bytes.to_vec(), VERSION_MAX)) else { return };
    let written = dump(&value);
    let again = restore(&written).expect("what was written is read");
    assert_eq!(kind_of(&again), kind_of(&value));
    // Members may be in another order.
    assert_eq!(dump(&again).len(), written.len());
});
