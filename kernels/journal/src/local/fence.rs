//! Fence files: whoever owns the log has the newest one. A fence is its name; there is nothing in it to be torn.

use std::{io, sync::Arc};

use savanna_epoch::NodeEpoch;

use super::{disk::Disk, parse_segment_name};
use crate::{error::JournalError, segment::Term};

/// Openings under one epoch that may collide in a row before it is reported; each collision is another process that
/// opens the same log at this moment.
const RAISE_ATTEMPTS: usize = 64;

/// The fence of one term.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    term: Term,
    name: String,
}

impl Fence {
    /// Takes the log over under `epoch`: from here on, no older owner acknowledges anything.
    pub(super) fn raise(disk: &Arc<dyn Disk>, epoch: NodeEpoch) -> Result<Self, JournalError> {
        if epoch == NodeEpoch::NONE {
            return Err(JournalError::NoEpoch);
        }
        for _ in 0..RAISE_ATTEMPTS {
            let newest = newest(disk.as_ref())?;
            let Some(term) = newest.succeed(epoch) else {
                return Err(JournalError::Fenced { ours: epoch, theirs: newest.epoch });
            };
            let name = fence_name(term);
            match disk.create(&name) {
                Ok(_) => {
                    disk.sync_dir().map_err(JournalError::io("fsync the directory of", disk.describe(&name)))?;
                    return Self { term, name }.replace_older(disk.as_ref());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(JournalError::io("create", disk.describe(&name))(error)),
            }
        }
        Err(JournalError::Stopped { reason: format!("{RAISE_ATTEMPTS} other openings under epoch {epoch} came first") })
    }

    /// Gives way to a newer fence, or removes all older ones.
    fn replace_older(self, disk: &dyn Disk) -> Result<Self, JournalError> {
        let names = list(disk)?;
        let newest = newest_of(&names);
        if newest > self.term {
            // Only tidiness: the newer owner removes it as well.
            disk.remove(&self.name).unwrap_or_else(|error| {
                tracing::debug!(file = disk.describe(&self.name), %error, "the newer owner has removed this fence already");
            });
            return Err(JournalError::Fenced { ours: self.term.epoch, theirs: newest.epoch });
        }
        for name in &names {
            if parse_fence_name(name).is_some_and(|term| term < self.term) {
                match disk.remove(name) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(JournalError::io("remove the older fence", disk.describe(name))(error));
                    }
                    _ => {}
                }
            }
        }
        Ok(self)
    }

    /// Takes the fence away again, so that what was before it stays the newest.
    pub(super) fn lower(self, disk: &dyn Disk) {
        disk.remove(&self.name).unwrap_or_else(|error| {
            tracing::debug!(file = disk.describe(&self.name), %error, "could not remove a fence that nobody needs");
        });
    }

    pub(super) fn term(&self) -> Term {
        self.term
    }

    /// Fails if a newer owner has removed this fence.
    pub(super) fn check(&self, disk: &dyn Disk) -> Result<(), JournalError> {
        let path = || disk.describe(&self.name);
        if disk.exists(&self.name).map_err(JournalError::io("look for the fence", path()))? {
            return Ok(());
        }
        Err(JournalError::Fenced { ours: self.term.epoch, theirs: newest(disk)?.epoch })
    }

    /// The reason behind an error: a newer owner removes unfinished segments of older ones.
    pub(super) fn explain(&self, disk: &dyn Disk, error: JournalError) -> JournalError {
        match self.check(disk) {
            Err(fenced @ JournalError::Fenced { .. }) => fenced,
            _ => error,
        }
    }
}

pub(super) fn list(disk: &dyn Disk) -> Result<Vec<String>, JournalError> {
    disk.list().map_err(JournalError::io("list", disk.describe("")))
}

/// The newest epoch under which a journal in a local directory was opened; none if there is no journal. Changes nothing.
///
/// # Errors
/// [`JournalError::Io`] if the directory cannot be read.
pub fn newest_epoch(dir: &std::path::Path) -> Result<NodeEpoch, JournalError> {
    if !dir.try_exists().map_err(JournalError::io("look for", dir.display().to_string()))? {
        return Ok(NodeEpoch::NONE);
    }
    Ok(newest(&super::OsDisk::new(dir))?.epoch)
}

/// The newest term that left a trace.
fn newest(disk: &dyn Disk) -> Result<Term, JournalError> {
    Ok(newest_of(&list(disk)?))
}

pub(super) fn newest_of(names: &[String]) -> Term {
    let terms = names
        .iter()
        .filter_map(|name| parse_fence_name(name).or_else(|| parse_segment_name(name).map(|(term, _)| term)));
    terms.max().unwrap_or_default()
}

fn fence_name(term: Term) -> String {
    format!("fence-{:020}-{:010}", term.epoch.0, term.opening)
}

fn parse_fence_name(name: &str) -> Option<Term> {
    let (epoch, opening) = name.strip_prefix("fence-")?.split_once('-')?;
    Some(Term { epoch: NodeEpoch(epoch.parse().ok()?), opening: opening.parse().ok()? })
}
