//! The names of a file system: a tree in memory, and the change sets that operations on it make.
//!
//! ```text
//! Request ─► Namespace::decide ─► answer, and a Change ─► the log ─► Namespace::apply
//!                                                           │ when it is durable
//!                                                           └─► the answer leaves
//! ```
//!
//! An operation changes nothing by itself. It reads the namespace and says what the rows would be afterwards. Who hosts it
//! appends that to a log, applies it, and holds the answer back until the log has it; an answer that only reads waits for the newest
//! change among what it read. Recovery applies the same changes in the same order.
//!
//! # A tour of the source
//!
//! `ids` and `change` are the words of the log, `request` those of clients, `blocks_of_file` the blocks of one, `tree` is the inodes in memory, `blocks`, `lease` and
//! `retry` follow from rows, `namespace` has all of them and applies changes, `operation` has a file for each operation. With a database behind the log, `cache` says what an operation
//! lacks and takes it in, and `flush` what goes to the database. `recovery` makes all that again out of a log, `pending` knows where the newest changes are in it, and `state` is what a host keeps beside it.
//! `quota` counts what a change does in directories with quotas, and `counting` what large subtrees count for. `permission` and `acl` say who may do what, `reserved` knows paths that begin with a number.

mod acl;
pub mod blocks;
pub mod blocks_of_file;
pub mod cache;
pub mod change;
pub mod counting;
pub mod error;
pub mod flush;
pub mod ids;
pub mod lease;
pub mod namespace;
pub mod operation;
pub mod path;
pub mod pending;
pub mod permission;
mod quota;
pub mod recovery;
pub mod request;
mod reserved;
pub mod retry;
pub mod state;
pub mod tree;

pub use crate::{
    cache::{Asking, Fetched, Key, Known, Missing, Stored},
    change::Change,
    error::{Class, FilesError},
    namespace::{Limits, Namespace},
    operation::Decision,
    request::{Context, Reply, Request},
    state::State,
};
