//! The write-ahead log: nothing undurable is ever told to anybody.
//!
//! An owner orders and buffers what it does with [`Journal::append`], which returns an [`Lsn`] at once. A thread writes
//! and flushes; all that was appended meanwhile shares the next flush. Replies wait in the [`ReplyGate`] until the
//! record that they depend on, by writing *or reading* it, is durable. Who opens the log with a newer
//! [`NodeEpoch`](savanna_epoch::NodeEpoch) takes it over; the older owner is refused from then on and tells nobody.
//!
//! ```
//! use savanna_epoch::NodeEpoch;
//! use savanna_journal::{Draft, Journal, JournalError, Options};
//!
//! # fn main() -> Result<(), JournalError> {
//! # let dir = tempfile::tempdir().expect("a directory");
//! let mut balance = 0_i64;
//! let mut replay = |record: savanna_journal::Record| {
//!     let bytes = record.payload[..].try_into().map_err(|_| "expected a payload of 8 bytes")?;
//!     balance += i64::from_le_bytes(bytes);
//!     Ok::<(), &str>(())
//! };
//! let journal = Journal::open(Options::dir(dir.path()), NodeEpoch(1), &mut replay)?;
//!
//! let deposit = Draft { shard: 7, kind: 1, payload: &100_i64.to_le_bytes() };
//! let lsn = journal.append(&[deposit])?;
//! balance += 100; // the next operation may see it already ...
//! journal.gate().hold(lsn, move |outcome| match outcome {
//!     Ok(()) => println!("balance {balance}"), // ... but nobody outside before it is durable
//!     Err(error) => println!("unknown: {error}"),
//! });
//! journal.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Back ends
//!
//! | | local disk ([`Options::dir`]) | object store ([`Options::store`]) |
//! |---|---|---|
//! | survives | end of the process, crash of the operating system, loss of power | also loss of the node and its disks |
//! | latency of a commit | one fdatasync: 0.1-0.5 ms on a busy machine with flash, some ms on an idle one | 20 ms of waiting for company (can be 0) and one request: 30-100 ms; up to eight are under way |
//! | cost | twice the bytes (blocks are zeroed ahead); 4-10 microseconds of processor time a commit when 64 share a flush | one PUT a batch: at most 50 a second, about $0.9 an hour at $5 a million; storage; one 72 B object a change of owner for ever |
//! | fence | a file; looked for before each write and after each flush | the first number that is missing; the write itself meets it |
//! | at most one owner, if | all owners are on one machine (no NFS) | the store honours *create only if absent* |
//! | damage that is noticed | any but in the last batch before a crash, which looks like a torn one and is cut; any, with [`Options::high_water`] and as long as the machine does not lose power | any |
//!
//! [`sim::SimDisk`] is the local disk's twin for tests; the same code runs on both, and [`sim::SteppedJournal`] runs it
//! one step at a time.
//!
//! # What it promises
//!
//! * **A group is atomic.** The records of one `append` are replayed all or not at all.
//! * **A prefix survives.** After any crash the log is what was appended up to some LSN, and at least up to every LSN
//!   that a reply was released for.
//! * **A failed flush is final.** Every held reply gets the error, every later append is refused, nothing is tried
//!   again. What a failed flush left in doubt is copied by the next opening, so that a cached page that never reached
//!   the disk cannot pass for a durable one.
//! * **A torn tail is cut, a corrupt middle is an error.** Records say up to where the log was durable when they were
//!   written. An unreadable record is cut only if no later intact record shows that it had been durable; otherwise the
//!   opening fails with the file and the offset.
//! * **Space that was taken is there.** On a full disk, what [`Journal::take_space`] took space for becomes durable (on file
//!   systems that write over a block where it is). Without that, what is appended waits until there is space.
//! * **A newer epoch wins.** The argument is in the source of the local back end (`local.rs`) and in `object.rs`.
//! * **A removed segment is missed.** A truncation is first recorded in a new segment's header. A log that is closed ends
//!   with a segment that says where it ends, and [`Options::high_water`] names a second place that says how far the log
//!   was durable: a log whose end was deleted, cut or damaged is refused, and so is one that is not there.
//!
//! * **A sealed log stays as it is.** [`seal`] ends a log that its owner cannot end any more, in the middle of whatever that does. What was
//!   told is in it; nothing is added, and nobody opens it again. [`SealedLog`] is read by any number of readers at once.
//!
//! What it does not do: it is no queue and no store (it is read on opening, and when it is sealed), it has no checkpoints (the owner keeps
//! its state elsewhere and calls [`Journal::truncate_before`]), and it does not compress or encrypt.
//!
//! # The format, version 1 (2 for the segment that ends a log, 3 for objects)
//!
//! All numbers are little-endian. A log is a sequence of segments: files
//! `segment-<epoch>-<opening>-<sequence>` of one directory, or objects `<prefix>/<number>.segment`. An *opening* counts
//! the times that the log was opened under one epoch; epoch and opening are a *term*.
//!
//! ```text
//! segment                                           file: then zeros, up to 1 MiB ahead     object: ends here
//! ┌────────────────────┬──────────┬──────────┬─────┬──────────────────────────────────────┐
//! │ header, 72 B       │ record   │ record   │ ... │ 00 00 00 ...                         │
//! └────────────────────┴──────────┴──────────┴─────┴──────────────────────────────────────┘
//!
//! segment header
//!  0        7 8               16       20       24              32
//! ┌──────────┬─┬───────────────┬────────┬────────┬───────────────┐
//! │ SAVJRNL  │V│ owner epoch   │opening │ flags  │ sequence      │   V: format version; flags: 1 first of its term,
//! ├──────────┴─┴─┬─────────────┴─┬──────┴────────┼───────────────┤      2 written as a whole (objects), 4 the log ends;
//! │ first LSN    │ base LSN      │ oldest LSN    │ body bytes    │   base: durable before the segment was begun;
//! ├──────┬───────┴───────────────┴───────────────┴───────────────┘      older terms count up to there
//! │ nonce│ CRC-32C of 0..68 │                                          oldest: what was truncated is before it
//! └──────┴──────────────────┘                                          flags of objects, byte 1: so many numbers before it may
//! 32     40              48              56              64   68   72     be missing; byte 2: so many after it stay free;
//!                                                                      nonce: random where an object begins a term, else 0
//!
//! record, at a multiple of 8
//!  0        4        8               16              24              32
//! ┌────────┬────────┬───────────────┬───────────────┬───────────────┐
//! │ CRC-32C│ length │ LSN           │ owner epoch   │ shard         │
//! ├────────┴────────┼────────┬────┬─┴──┬────────────┴───────┬───────┤
//! │ durable LSN     │ stream │kind│flag│ payload            │ 00... │   flag: 1 last of its append group
//! └─────────────────┴────────┴────┴────┴────────────────────┴───────┘
//! 32                40       44   46   48             48 + length
//! ```
//!
//! A record's CRC-32C begins with its segment header's checksum and its offset and covers everything from byte 4 to the
//! padding, so that a record is valid only where it was written. `durable LSN` is the watermark when it was written.
//!
//! A segment of a term counts up to just before the first LSN of any later one. The first segment of a term repeats the
//! records of the last batch before it, whose flush may have failed, and says by `base` where they end.
//!
//! The fence of a term is an empty file `fence-<epoch>-<opening>`, created exclusively.
//!
//! # A tour of the source
//!
//! `core.rs` decides, `journal.rs` is the thread around it, `backend.rs` what it needs of a place; `local.rs` (with
//! `disk`, `fence`, `high_water`, `recovery`, `space` and `stage`) and `object.rs` are the places; `record.rs`, `segment.rs` and `batch.rs` are the format;
//! `sealed.rs` (with `local/seal.rs` and `object.rs`) ends logs and reads them; `sim.rs` is the simulated disk and the stepped journal.

mod backend;
mod batch;
mod core;
mod error;
mod journal;
mod local;
mod object;
mod options;
mod record;
mod release;
mod sealed;
mod segment;
pub mod sim;
mod times;

pub use crate::{
    error::JournalError,
    journal::{Journal, ReplyGate, Stats},
    local::{Disk, DiskFile, OsDisk, newest_epoch},
    options::{Filter, Options},
    record::{Draft, Lsn, Record},
    release::{after_replies, replies_are_leaving},
    sealed::{SealedLog, seal},
    times::{TIMES_UPTO, Times},
};
