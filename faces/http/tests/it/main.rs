//! The face before a stub of an engine, asked by a real HTTP client.

mod access;
mod control;
mod limits;
mod sql;
mod stub;
