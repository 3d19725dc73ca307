//! Who writes blocks sends anything: the header of an operation, and packets, which say the same when they are written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use savanna_hadoop::fuzzed;

fuzz_target!(|bytes: &[u8]| {
    fuzzed::operation(bytes);
    let once = fuzzed::packets(bytes);
    assert_eq!(fuzzed::packets(&once), once);
});
