//! A host of functions, for what is decided before anybody asks it.

use savanna_streams_api::StreamError;
use savanna_streams_runtime::cloud::{CallError, Cloud, CloudFunction};

/// A host of functions that nobody may ask.
#[derive(Debug)]
pub(crate) struct Unasked;

impl Cloud for Unasked {
    fn program(&self) -> &'static str {
        "none"
    }

    fn deploy(&self, functions: &[CloudFunction]) -> Result<(), StreamError> {
        panic!("{functions:?} were to be made");
    }

    fn call(&self, function: &str, _: Vec<u8>, _: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError> {
        panic!("{function} was called");
    }
}
