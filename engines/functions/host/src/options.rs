//! What a host is to be, and why it does not start.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;
use savanna_epoch::NodeEpoch;
use savanna_functions::meter::Prices;
use savanna_journal::{JournalError, Options};
use savanna_ownership::guard::LeaseGuard;

/// What functions are to be kept from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Everything that is not their own, or the host does not start.
    Required,
    /// As much as the kernel can; what it cannot is told in a warning.
    Preferred,
    /// Nothing.
    None,
}

/// What of the machine is used: all of it, but in tests of what happens where it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Namespaces.
    pub namespaces: bool,
    /// Landlock.
    pub landlock: bool,
    /// Where control groups are seen.
    pub groups: PathBuf,
}

impl Default for Abilities {
    fn default() -> Self {
        Self { namespaces: true, landlock: true, groups: PathBuf::from("/sys/fs/cgroup") }
    }
}

/// What a host has at most, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of events that have not ended; beyond that none is accepted.
    pub events: u64,
    /// Of zips of all versions; beyond that none is kept.
    pub code: u64,
    /// Of unpacked code that nobody runs; beyond that the oldest is removed, and unpacked again when it is asked for.
    pub unpacked: u64,
}

impl Default for Bounds {
    /// 256 MiB of events, Lambda's 75 GiB of code, 2 GiB unpacked.
    fn default() -> Self {
        Self { events: 256 << 20, code: 75 << 30, unpacked: 2 << 30 }
    }
}

/// What a host is to be.
#[derive(Debug)]
pub struct HostOptions {
    /// Where the log is.
    pub log: Options,
    /// The epoch under which it is opened.
    pub epoch: NodeEpoch,
    /// The lease under which anybody may be told anything; none where nobody else could have the functions.
    pub lease: Option<LeaseGuard>,
    /// The directory of code.
    pub directory: PathBuf,
    /// Where code is instead: an object store, and a path in it that is nobody else's.
    pub store: Option<(Arc<dyn ObjectStore>, Path)>,
    /// The region in ARNs.
    pub region: String,
    /// A program that calls [`launcher::run_if_asked`](crate::launcher::run_if_asked) first.
    pub launcher: PathBuf,
    /// What functions are kept from.
    pub isolation: Isolation,
    /// What of the machine is used.
    pub abilities: Abilities,
    /// Ports that functions may connect to, beside that of their own runtime.
    pub ports: Vec<u16>,
    /// What it has at most.
    pub bounds: Bounds,
    /// Invocations that all functions may have at once.
    pub concurrency: u32,
    /// An instance with nothing to do ends after this.
    pub idle: Duration,
    /// What a minute of waiting is between attempts of an event.
    pub retry_minute: Duration,
    /// The keys server whose streams can be told of events: `redis://HOST:PORT`.
    pub keys_url: Option<String>,
    /// What is paid.
    pub prices: Prices,
}

/// Why a host does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The log cannot be read, or has ended.
    #[error("the log of functions: {0}")]
    Log(#[from] JournalError),
    /// The directory cannot be used.
    #[error("{path}: {source}; check the permissions and the disk of the data directory")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// Functions cannot be kept apart.
    #[error("functions.isolation is required, but this machine cannot keep functions apart: {0}")]
    Isolation(String),
    /// The keys server has no such address.
    #[error("functions.keys_url: expected redis://HOST:PORT, {0}")]
    Keys(String),
    /// A thread cannot be started.
    #[error("a thread for functions cannot be started: {0}")]
    Thread(std::io::Error),
}

impl HostError {
    /// Whether it passes when there is space on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Log(error) => error.is_full(),
            Self::Directory { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
            Self::Isolation(_) | Self::Keys(_) | Self::Thread(_) => false,
        }
    }
}
