//! What tenants' SQL computes with.
//!
//! [`types`] are those of columns and expressions, with their names and numbers in PostgreSQL, and [`value`] what is of these types, with
//! its texts and bytes. [`enumeration`] and [`composite`] have the types that users make, [`own`] all of them. [`memory`] counts what values take, for all databases of a process.
//! [`error`] says why a statement failed, in PostgreSQL's form, whichever part of the engine found out.

pub mod composite;
pub mod enumeration;
pub mod error;
pub mod memory;
pub mod own;
pub mod types;
pub mod value;
