//! The host with real processes: what functions can do, and what they cannot.

mod hostile;
mod invocations;
mod support;
