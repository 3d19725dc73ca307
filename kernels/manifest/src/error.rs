//! What can go wrong, in words that say what was expected, what came, and what to do.

use savanna_epoch::OwnerEpoch;

use crate::format::{UnixMillis, Version};

/// Everything that an operation on a manifest can answer instead of success.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Another owner took the manifest over. This handle never succeeds again. A commit that was refused with this
    /// error was not acknowledged; if its answer had been lost, the newer owner may have inherited it.
    #[error(
        "expected to own the manifest under `{prefix}` with epoch {ours}, but epoch {theirs} owns it now: stop \
         serving its objects, and open it again with the epoch of a new grant"
    )]
    Fenced {
        /// The prefix of the manifest.
        prefix: String,
        /// The epoch of this handle.
        ours: OwnerEpoch,
        /// The epoch of the newest version; equal to `ours` if the same epoch was opened twice.
        theirs: OwnerEpoch,
    },
    /// The version that the change was made for is not the current one.
    #[error(
        "expected the manifest at version {expected}, but it is at {current}: read the current snapshot and decide again"
    )]
    Conflict {
        /// What the caller expected.
        expected: Version,
        /// What is current.
        current: Version,
    },
    /// Whether the commit took effect is unknown: storage did not answer within the retries. The next commit of the
    /// handle finds out; nothing that depends on the outcome may be told to anybody before.
    #[error(
        "storage did not say whether version {version} of the manifest was written ({reason}): commit again, the handle then finds out which happened"
    )]
    InDoubt {
        /// The version whose fate is open.
        version: Version,
        /// The last error of storage.
        reason: String,
    },
    /// Others kept changing the manifest; nothing was done.
    #[error(
        "gave up {operation} after {attempts} attempts, because others changed the manifest each time: try again later"
    )]
    Contended {
        /// What was attempted.
        operation: &'static str,
        /// How often.
        attempts: u32,
    },
    /// No owner ever opened a manifest here.
    #[error("expected a manifest under `{prefix}`, found none: let an owner open it first, or check bucket and prefix")]
    NoManifest {
        /// The prefix that was looked at.
        prefix: String,
    },
    /// A draft names an object that this handle may not publish.
    #[error(
        "entry `{name}` refers to `{path}`, which is not in the current snapshot, and this handle did not write it \
         since its last commit: write the \
         object with `put_object` of the committing handle"
    )]
    ForeignObject {
        /// The entry.
        name: String,
        /// The object it refers to.
        path: String,
    },
    /// An entry name is empty or too long.
    #[error("expected an entry name of 1 to {max} bytes, got {bytes}: shorten the name")]
    InvalidName {
        /// Length of the name in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The manifest would outgrow its limit.
    #[error(
        "a manifest of {bytes} bytes is larger than the {max} bytes allowed: put long lists into an object and refer to it"
    )]
    TooLarge {
        /// Encoded size in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// Stored bytes are not what was written.
    #[error("`{path}` is corrupt: expected {expected}, found {found}. {advice}")]
    Corrupt {
        /// The path in the store.
        path: String,
        /// What it should hold.
        expected: String,
        /// What it holds.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// Written by a newer program.
    #[error(
        "`{path}` has manifest format {found}, and this program reads format {supported}: run the version that wrote it, or a newer one"
    )]
    UnsupportedFormat {
        /// The path in the store.
        path: String,
        /// The format found.
        found: u32,
        /// The newest format that is understood.
        supported: u32,
    },
    /// A referenced object is not there.
    #[error(
        "`{path}` does not exist although a snapshot refers to it: a snapshot that is not pinned may be collected once \
         it is superseded (pin it before reading); if it is pinned or current, restore the object from a backup"
    )]
    ObjectMissing {
        /// The path in the store.
        path: String,
    },
    /// A pin was used after its time.
    #[error(
        "the pin on version {version} expired at {expired}, and it is {now}: pin the current version again, and renew pins earlier"
    )]
    PinExpired {
        /// The version that was pinned.
        version: Version,
        /// When the pin ended.
        expired: UnixMillis,
        /// The reader's time.
        now: UnixMillis,
    },
    /// The store overwrites where it was asked to create.
    #[error(
        "the store overwrote `{path}` although it was asked to create it only if absent: fencing is impossible here; use a store \
         that honours `If-None-Match: *` (S3 does since 2024)"
    )]
    StoreIgnoresCreate {
        /// The path that was written twice.
        path: String,
    },
    /// Storage refused or did not answer within the retries.
    #[error("storage failed to {operation} `{path}`: {source}")]
    Storage {
        /// What was attempted.
        operation: &'static str,
        /// The path in the store.
        path: String,
        /// The store's own error.
        source: Box<object_store::Error>,
    },
}

/// The result of an operation on a manifest.
pub type Result<T, E = ManifestError> = std::result::Result<T, E>;
