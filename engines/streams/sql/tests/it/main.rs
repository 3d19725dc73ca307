//! Streaming SQL from text to stages.

mod changes;
mod errors;
mod functions;
mod nexmark;
mod plans;
mod soup;
mod statements;
mod support;
mod system;
mod wrong;
