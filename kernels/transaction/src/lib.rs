//! Transactions over versioned keys: the decisions of a transaction manager, without I/O, clock or threads.
//!
//! [`Transactions`] is the transaction manager of one database: every transaction, the versions of every row that was
//! written lately, the locks, the order of commits. Keys are byte strings in an order-preserving encoding; values are of
//! any type. A database's owner drives it: it executes statements, logs commits, and sends replies.
//!
//! ```
//! use savanna_transaction::{Change, Commit, Isolation, Transactions};
//!
//! # fn main() -> Result<(), savanna_transaction::TransactionError> {
//! let mut bank: Transactions<u64> = Transactions::default();
//! let deposit = bank.begin(Isolation::Serializable);
//! bank.statement(deposit)?;
//! let balance = bank.get(deposit, b"alice")?.value().copied().unwrap_or(0);
//! bank.write(deposit, b"alice", Some(balance + 100), Change::Existence)?;
//!
//! let Commit::Committed(committed) = bank.commit(deposit)? else { unreachable!("nobody holds a lock") };
//! let csn = committed.csn();
//! for (key, value) in committed.writes() {
//!     println!("log: {csn} {key:?} = {value:?}");
//! }
//! bank.install(committed); // later transactions see it ...
//! bank.durable(csn)?; // ... and when the log's flush is done,
//! assert!(bank.told() >= csn); // the client hears of it
//! # Ok(())
//! # }
//! ```
//!
//! # How transactions are kept apart
//!
//! | | reads | writes | at commit |
//! |---|---|---|---|
//! | [`ReadCommitted`](Isolation::ReadCommitted) | a snapshot per statement | lock the row first, then see what was committed last | nothing |
//! | [`Snapshot`](Isolation::Snapshot) | one snapshot | private | locks rows; what it writes must be unchanged |
//! | [`Serializable`](Isolation::Serializable) | one snapshot; rows and ranges are remembered | private | locks rows; what it read must be unchanged |
//!
//! All levels take the same locks, READ COMMITTED on the way and the others at the end, so that they can be mixed.
//! [`RowLock`] says which exclude each other, and by the same table a commit conflicts with an earlier read. Constraints
//! are reads, too: a unique index is checked by a [probe](Transactions::probe) of its key, a foreign key by a probe of the
//! row that it refers to, the other way round by a [probe of a range](Transactions::probe_range); they are validated at
//! SNAPSHOT and SERIALIZABLE, and locked at READ COMMITTED.
//!
//! # What becomes visible, durable and told
//!
//! A commit gets its number before it is validated, and keeps it. Then, for each number:
//!
//! ```text
//!  numbered ──► decided ──► logged ──► installed ─┬─► published ─┬─► told
//!                                        durable ─┴──────────────┘
//! ```
//!
//! - **Published**: it and every one before it is installed. Snapshots are taken there, so that each is a prefix of the
//!   order of commits. Its locks end.
//! - **Told**: it and every one before it is published and durable. Only then does its client hear of it; so whoever
//!   begins afterwards sees it. (A client that sends more without waiting goes on when its commit is published.)
//! - A reader sees what is published, durable or not, and its *reply* waits for what it read ([`reply_after`]). A failed
//!   log is the end of the process, so nothing that was seen is ever undone. Rows are thus locked, and commits
//!   validated against, for the time of a decision and not of a flush.
//!
//! [`reply_after`]: Transactions::reply_after
//!
//! # Cost
//!
//! A read is one hash probe of the transaction, one of the key, and 8 bytes remembered at SERIALIZABLE. A write allocates
//! its key once. Validation takes time proportional to what was read and what was written meanwhile; with nothing
//! written meanwhile, none. `cargo bench -p savanna-transaction` measures.
//!
//! # A tour of the source
//!
//! `mode` is the table of conflicts, `transaction` and `error` the words. `versions` and `snapshots`: who sees what.
//! `reads`, `writes`: what a transaction keeps to itself; `scan` puts its writes over the versions. `history`: validation.
//! `locks`: queues and circles. `watermark`: order. `txn` is one transaction, `validation` its commit on the way, and
//! `manager` puts all together; `manager/image` writes it down for another process.
//! `fault` names the rules, each of which a test switches off.

mod error;
mod fault;
mod history;
mod locks;
mod manager;
mod mode;
mod number;
mod reads;
mod row;
mod scan;
mod snapshots;
mod transaction;
mod txn;
mod validation;
mod versions;
mod watermark;
mod writes;

#[cfg(feature = "faults")]
pub use crate::fault::Fault;
pub use crate::{
    error::{Conflict, ConflictKind, ImageError, NotDrained, TransactionError},
    locks::{QueuePlace, Wait},
    manager::{CommittedWrites, Counts, IMAGE_VERSION, Transactions},
    mode::{Change, RowLock},
    number::{Csn, HolderId, TxnId},
    row::KeyRange,
    scan::{Direction, Scan},
    transaction::{Event, Isolation, Lock, Savepoint, View},
    validation::{Checked, Commit, Committed, Prepared, Validation},
    versions::Seen,
};
