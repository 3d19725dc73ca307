//! The host with real processes: what functions can do, and what they cannot.

mod bounds;
mod elsewhere;
mod hostile;
mod invocations;
mod javascript;
mod stopping;
mod support;
mod zips;
