//! A data node reports anything. Each replica takes some bytes, whatever the report says of their number.

#![no_main]

use libfuzzer_sys::fuzz_target;
use savanna_hadoop::fuzzed;

fuzz_target!(|bytes: &[u8]| {
    let replicas = fuzzed::report(bytes).unwrap_or(0);
    assert!(replicas * 3 <= bytes.len(), "{replicas} replicas in {} bytes", bytes.len());
});
