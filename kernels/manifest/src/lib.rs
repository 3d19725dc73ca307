//! Durable state that outlives the log: immutable objects under a manifest that its owner switches from version to
//! version, and that no former owner can switch any more.
//!
//! # The protocol
//!
//! A manifest needs one thing of its store: *create this object if it is absent*. Memory, a local directory
//! ([`LocalStore`]) and S3 (`If-None-Match: *`) have it.
//!
//! - Each **version** is an object of its own, numbered without gaps; the highest number is current. Two writers who
//!   want the same number meet in the store, and one wins.
//! - An **owner opens** by writing a version that carries its [`OwnerEpoch`](savanna_epoch::OwnerEpoch). Whoever
//!   opened before does not know that version, wants its number, and is refused: [`ManifestError::Fenced`]. A lower
//!   epoch than the current cannot open. Of two handles with the same epoch the later is the owner.
//! - A **commit** writes objects first and then the version that names them. It is done when the version exists and
//!   nothing newer does; [`switch`] says why the second part is needed. Cost: one put and one list.
//! - A **lost answer** is no conflict: each version carries the [`CommitId`] of the attempt that wrote it, so a writer
//!   recognises its own. If storage stays silent, the commit is [`ManifestError::InDoubt`], and the handle's next
//!   commit finds out.
//! - A **reader** takes the current version and, if it reads for longer, [pins](Reader::pin) it.
//! - The owner **collects** what neither the current version nor a pin, a held [`Snapshot`] or the grace period needs;
//!   [`collect`] says why that is safe beside commits, readers and takeovers.
//!
//! ```
//! # use std::sync::Arc;
//! # use savanna_manifest::{Manifest, Options, Reader, RetryPolicy, UnixMillis, WriterId, OwnerEpoch};
//! # use object_store::{memory::InMemory, path::Path, ObjectStore};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), savanna_manifest::ManifestError> {
//! let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
//! let (prefix, now) = (Path::from("tenants/acme"), UnixMillis(1_700_000_000_000));
//! let owner = Manifest::open(Arc::clone(&store), &prefix, OwnerEpoch(1), Options::default(), now).await?;
//! let pages = owner.put_object("the pages".into()).await?;
//! owner.commit(now, |draft| { draft.insert("pages", pages.clone()); }).await?;
//!
//! let reader = Reader::new(store, &prefix, RetryPolicy::default(), WriterId::random());
//! let snapshot = reader.current().await?;
//! assert_eq!(reader.read(&snapshot.entries["pages"]).await?, "the pages");
//! # Ok(())
//! # }
//! ```
//!
//! # What is stored
//!
//! ```text
//! PREFIX/manifest/VVVVVVVVVVVVVVVVVVVV               version V, decimal, 20 digits
//! PREFIX/objects/EEEEEEEEEEEEEEEEEEEE-WRITER-SSSSSSSSSSSSSSSSSSSS
//!                                                     the S-th object of handle WRITER (32 hex digits) under epoch E
//! PREFIX/pins/VVVVVVVVVVVVVVVVVVVV-XXXXXXXXXXXXXXXXXXXX-READER-SSSSSSSSSSSSSSSSSSSS
//!                                                     READER keeps version V until X (ms since 1970); empty
//!
//! an object   the user's bytes, nothing else; length and CRC-32C are in the reference
//!
//! a version   savanna-manifest 1 crc32c=5f1bd3a0 bytes=371\n     header: format, checksum and length of what follows
//!             { "version": 42,
//!               "epoch": 3,
//!               "commit":  { "writer": "..32 hex digits..", "attempt": 9 },     who wrote it
//!               "parent":  { "writer": "..32 hex digits..", "attempt": 8 },     who wrote version 41; null for 1
//!               "created": 1700000000000,                                       owner's clock, never backwards
//!               "entries": { "state/0": { "path": "objects/..", "bytes": 3, "crc32c": 7 } } }
//! ```
//!
//! A version of a newer format, and bytes that do not match their checksum, are errors that name the path.
//!
//! # What it survives
//!
//! | store | an acknowledged commit survives | a commit takes about |
//! |---|---|---|
//! | [`LocalStore`] | crashes of process and operating system | two flushes of a file and its directory |
//! | S3 | loss of the node | one put, one list: 30-100 ms |
//! | `InMemory` | nothing | microseconds |
//!
//! # What is assumed
//!
//! A listing shows every object whose creation was acknowledged before it began, unless it was deleted meanwhile (S3
//! since 2020, local file systems). A single listing of versions takes less than the grace period. Clocks of readers
//! and the owner differ by less than [`Retention::clock_margin`]; only pins and the grace period depend on clocks,
//! fencing does not.

mod access;
pub mod collect;
mod error;
mod format;
pub mod layout;
mod local;
mod owner;
mod reader;
#[cfg(feature = "s3")]
pub mod s3;
pub mod state;
pub mod switch;

pub use access::RetryPolicy;
pub use collect::Retention;
pub use error::{ManifestError, Result};
pub use format::{
    CommitId, ENTRY_NAME_BYTES_MAX, FORMAT_VERSION, MANIFEST_BYTES_MAX, ObjectRef, Snapshot, UnixMillis, Version,
    WriterId,
};
pub use local::LocalStore;
pub use owner::{Collected, Manifest, Options};
pub use reader::{Pin, Reader};
pub use savanna_epoch::OwnerEpoch;
pub use state::Draft;
