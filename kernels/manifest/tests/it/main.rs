//! The tests of the manifest against its stores.
