//! What outlives the process: tables and views, and the queries that go on in the next one.
//!
//! ```text
//!   DATA/streams/catalog/          a journal: tables, views, queries and where they stand
//!   DATA/streams/queries/<job>/    a journal for each query: the records of its epochs
//!   DATA/streams/snapshots/<job>/  the last snapshot of its state
//!   DATA/streams/lookups/<job>/    the tables in which it looks rows up, as they were read
//!   DATA/streams/views/<job>/      a journal for each materialized view: its rows
//! ```
//!
//! A query that is kept in a bucket (`remote.rs`) has nothing of these but its place in the catalog.
//!
//! Nothing is there before the first table or query. What is stored is SQL, options and settings, in a form of our own
//! (`stored.rs`); plans are made again. `docs/design/0017-streams-that-survive.md` has the reasons.

mod folder;
mod image;
mod lookups;
mod query_log;
mod remote;
mod savepoint;
mod snapshots;
mod store;
mod stored;

pub(crate) use savepoint::{Savepoint, prepare as prepare_savepoint};
pub(crate) use store::Store;
pub use store::{HasItsPlace, StoreOptions};
#[cfg(test)]
pub(crate) use stored::Entry;
pub(crate) use stored::{EMISSION, Emptied, KeptIn, Standing, StoredQuery, StoredRelation, decode, encode};
