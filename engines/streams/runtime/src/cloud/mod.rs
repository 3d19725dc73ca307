//! Stages as functions of a cloud: a host of functions that answers as AWS Lambda does.
//!
//! ```text
//!   driver's process                                          functions
//!   scan: read, watermark, lateness --rows as read--> call --> rows (any instance): the output of the scan
//!                                   <--outlet's payloads-----
//!   Remote: collects the sets of an epoch ----------- call --> member: arena, epochs in order, state
//!                                   <--what it sends---------
//!   sink member, as ever
//! ```
//!
//! What runs in a function is what runs in the process: [`Member`](crate::member::Member) and its operators. A function may be
//! ended, and another instance of it may stand in its place, at any moment: an instance says what it has applied, and [`lane`]
//! decides what it is brought then.

pub(crate) mod context;
pub(crate) mod lane;
pub(crate) mod remote;
mod stage;
pub(crate) mod wire;

use std::fmt;

use savanna_streams_api::{Result, StreamError};

pub use self::stage::{StageFunction, StageRules};

/// The variable in a function's environment that says what it is.
pub const ENVIRONMENT: &str = "SAVANNA_STAGE";
/// A context that is longer is not put into the environment, which may have 4 KiB in all: it comes with the first call.
pub const ENVIRONMENT_MAX: usize = 3 << 10;

/// A function that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudFunction {
    /// Its name.
    pub name: String,
    /// What it is: the value of [`ENVIRONMENT`], or its hash behind `#` if it is too long for that.
    pub context: String,
    /// How many calls of it are under way at once: one for a member, one for each partition of a scan.
    pub at_once: usize,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The host refuses it for now, or does not answer.
    Busy(String),
    /// The function has ended without an answer.
    Lost(String),
    /// It would always be so.
    Refused(StreamError),
}

/// Where functions run.
pub trait Cloud: fmt::Debug + Send + Sync {
    /// Tells the program that functions run from all others. It is a part of their names: a function never changes.
    fn program(&self) -> &str;

    /// Sees to it that functions are there, with this release's program.
    ///
    /// # Errors
    /// They cannot be made.
    fn deploy(&self, functions: &[CloudFunction]) -> Result<()>;

    /// Calls a function and waits for its answer, until it is told to stop.
    ///
    /// # Errors
    /// There is none, and whether it makes sense to call again.
    fn call(&self, function: &str, call: Vec<u8>, stops: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError>;

    /// Bytes of a call at most, and of an answer.
    fn limit(&self) -> usize {
        6 << 20
    }

    /// Bytes of what was sent to a member that are kept, before its state is asked for instead.
    fn kept(&self) -> usize {
        4 << 20
    }
}
