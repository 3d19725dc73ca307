//! Any bytes as rows in each format: they are read, or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| savanna_fuzz::streams::rows(bytes));
