//! Who writes which files, and until when.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::ids::{InodeId, Millis};

/// After so long without a renewal another client may take the file.
pub const SOFT_LIMIT: u64 = 60_000;
/// After so long without a renewal the file is closed.
pub const HARD_LIMIT: u64 = 20 * 60_000;

#[derive(Debug)]
struct Lease {
    renewed: Millis,
    files: BTreeSet<InodeId>,
}

/// The leases of all clients. What they are for is in the files' rows; when they were renewed is kept in memory alone, so that
/// all of them begin anew with the process.
#[derive(Debug, Default)]
pub struct Leases(HashMap<Arc<str>, Lease>);

impl Leases {
    /// A client writes a file from now on.
    pub(crate) fn add(&mut self, client: &Arc<str>, file: InodeId, now: Millis) {
        let lease = self.0.entry(Arc::clone(client));
        let lease = lease.or_insert_with(|| Lease { renewed: now, files: BTreeSet::new() });
        lease.renewed = lease.renewed.max(now);
        lease.files.insert(file);
    }

    /// A client does not write a file any more.
    pub(crate) fn remove(&mut self, client: &str, file: InodeId) {
        if let Some(lease) = self.0.get_mut(client) {
            lease.files.remove(&file);
            if lease.files.is_empty() {
                self.0.remove(client);
            }
        }
    }

    /// A client says that it is there.
    pub fn renew(&mut self, client: &str, now: Millis) {
        if let Some(lease) = self.0.get_mut(client) {
            lease.renewed = now;
        }
    }

    /// All clients were there, which is so when the process begins: until then they could not say so.
    pub fn renew_all(&mut self, now: Millis) {
        self.0.values_mut().for_each(|lease| lease.renewed = now);
    }

    /// Whether a client has not renewed its lease for longer than a limit.
    #[must_use]
    pub fn is_over(&self, client: &str, limit: u64, now: Millis) -> bool {
        self.0.get(client).is_none_or(|lease| now.since(lease.renewed) > limit)
    }

    /// The files of clients that have not renewed their leases for longer than a limit.
    pub fn over(&self, limit: u64, now: Millis) -> impl Iterator<Item = InodeId> {
        let over = self.0.values().filter(move |lease| now.since(lease.renewed) > limit);
        over.flat_map(|lease| lease.files.iter().copied())
    }

    /// The files that a client writes.
    pub fn files(&self, client: &str) -> impl Iterator<Item = InodeId> {
        self.0.get(client).into_iter().flat_map(|lease| lease.files.iter().copied())
    }

    /// The files of all clients.
    pub fn all_files(&self) -> impl Iterator<Item = InodeId> {
        self.0.values().flat_map(|lease| lease.files.iter().copied())
    }

    /// How many clients have one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
