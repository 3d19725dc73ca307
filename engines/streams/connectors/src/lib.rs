//! Where rows come from and where they go.
//!
//! ```text
//!   connector   reads  writes
//!   nexmark       x             generated events of an auction site
//!   datagen       x             rows of made-up values for any columns
//!   file          x      x      CSV, NDJSON and Parquet files, whole or as they grow; objects of a bucket are written
//!   kafka         x      x      topics, of which each message is a row
//!   postgres      x      x      tables of a database
//!   postgres-cdc  x             changes of a table of a database, as they are committed
//!   redis         x      x      keys of Redis: hashes, strings, entries of streams and lists
//!   delta                x      tables of Delta Lake, in a directory or a bucket
//!   webhook              x      requests of HTTP, of some rows each
//!   function             x      invocations of functions of AWS Lambda, of some rows each
//!   stdin         x             CSV and NDJSON lines
//!   print                x      lines on standard output
//!   blackhole            x      nothing: rows are counted
//! ```
//!
//! Each has a folder with its options, its reader and its sink (`webhook` and `function` share one, `http`); what they share is [`options`] and the formats.
//! [`BuiltinConnectors`] finds them by name.

mod blackhole;
mod bucket;
mod connector;
#[doc(hidden)]
pub mod crash;
mod datagen;
mod delta;
#[cfg(test)]
mod faulty;
mod file;
mod format;
mod http;
mod kafka;
mod nexmark;
pub mod options;
mod postgres;
mod print;
mod random;
mod redis;
mod registry;
mod roots;
mod stdin;

pub use bucket::{Bucket, Created, unique};
pub use nexmark::{generate_events, nexmark_table};
pub use registry::BuiltinConnectors;
pub use roots::{Roots, is_url, local};
