//! What tenants' SQL computes with.
//!
//! [`types`] are those of columns and expressions, with their names and numbers in PostgreSQL, and [`value`] what is of these types, with
//! its texts and bytes. [`enumeration`] has the types that users make. [`memory`] counts what values take, for all databases of a process.
//! [`error`] says why a statement failed, in PostgreSQL's form, whichever part of the engine found out.

pub mod enumeration;
pub mod error;
pub mod memory;
pub mod types;
pub mod value;
