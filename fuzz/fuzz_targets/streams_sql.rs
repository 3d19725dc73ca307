//! Any text as streaming SQL: it is planned, or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| savanna_fuzz::streams::sql(bytes));
