//! What an owner knows between requests: the current version, what it wrote and did not publish yet, and whether a
//! newer owner was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use savanna_epoch::OwnerEpoch;

use crate::collect::Holds;
use crate::error::{ManifestError, Result};
use crate::format::{CommitId, ENTRY_NAME_BYTES_MAX, ObjectRef, Snapshot, UnixMillis, Version, WriterId};
use crate::layout::ObjectName;

/// A change to the entries, made by the closure of a commit.
#[derive(Clone, Debug)]
pub struct Draft {
    base: Arc<Snapshot>,
    entries: BTreeMap<String, ObjectRef>,
}

impl Draft {
    fn new(base: Arc<Snapshot>) -> Self {
        let entries = base.entries.clone();
        Self { base, entries }
    }

    /// The snapshot that the draft starts from.
    #[must_use]
    pub fn base(&self) -> &Snapshot {
        &self.base
    }

    /// The entries as changed so far.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<String, ObjectRef> {
        &self.entries
    }

    /// Lets a name refer to an object; returns what it referred to before.
    pub fn insert(&mut self, name: impl Into<String>, object: ObjectRef) -> Option<ObjectRef> {
        self.entries.insert(name.into(), object)
    }

    /// Removes a name; returns what it referred to.
    pub fn remove(&mut self, name: &str) -> Option<ObjectRef> {
        self.entries.remove(name)
    }
}

/// The state of one handle that opened a manifest.
#[derive(Debug)]
pub struct OwnerState {
    prefix: String,
    ours: OwnerEpoch,
    writer: WriterId,
    current: Arc<Snapshot>,
    fenced_by: Option<OwnerEpoch>,
    attempts: u64,
    sequence: u64,
    /// Objects in the store, or on their way, that no committed version of this handle referred to yet.
    uncommitted: BTreeSet<String>,
    /// Objects of proposals whose fate is unknown; their version is the one after the current.
    in_doubt: BTreeSet<String>,
    /// Earlier snapshots that somebody in this process may still hold.
    handed_out: Vec<Weak<Snapshot>>,
}

impl OwnerState {
    /// The state after a takeover made `current` the newest version.
    #[must_use]
    pub fn new(prefix: String, current: Arc<Snapshot>) -> Self {
        Self {
            prefix,
            ours: current.epoch,
            writer: current.commit.writer,
            attempts: current.commit.attempt,
            current,
            fenced_by: None,
            sequence: 0,
            uncommitted: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            handed_out: Vec::new(),
        }
    }

    /// The newest version that this handle committed.
    #[must_use]
    pub fn current(&self) -> &Arc<Snapshot> {
        &self.current
    }

    /// The epoch of this handle.
    #[must_use]
    pub fn epoch(&self) -> OwnerEpoch {
        self.ours
    }

    /// The id of this handle.
    #[must_use]
    pub fn writer(&self) -> WriterId {
        self.writer
    }

    /// Refuses everything once a newer owner was seen.
    ///
    /// # Errors
    /// [`ManifestError::Fenced`].
    pub fn check_ownership(&self) -> Result<()> {
        self.fenced_by.map_or(Ok(()), |theirs| Err(self.fenced_error(theirs)))
    }

    /// Notes that another handle took over, and the error that says so.
    #[must_use]
    pub fn fence(&mut self, theirs: OwnerEpoch) -> ManifestError {
        self.fenced_by = Some(theirs);
        self.fenced_error(theirs)
    }

    fn fenced_error(&self, theirs: OwnerEpoch) -> ManifestError {
        ManifestError::Fenced { prefix: self.prefix.clone(), ours: self.ours, theirs }
    }

    /// The name for a new object, which is protected from collection until it is committed or abandoned.
    pub fn name_object(&mut self) -> String {
        self.sequence += 1;
        let path = ObjectName { epoch: self.ours, writer: self.writer, sequence: self.sequence }.relative();
        self.uncommitted.insert(path.clone());
        path
    }

    /// Gives an uncommitted object up.
    pub fn abandon(&mut self, path: &str) {
        self.uncommitted.remove(path);
    }

    /// A draft on the current version.
    #[must_use]
    pub fn draft(&self) -> Draft {
        Draft::new(Arc::clone(&self.current))
    }

    /// Makes a draft the proposal for the next version. From here on its fate is in doubt until
    /// [`OwnerState::adopt`] says otherwise.
    ///
    /// # Errors
    /// `Fenced`, `Conflict` if the draft started from another version, `InvalidName`, `ForeignObject`.
    pub fn propose(&mut self, draft: Draft, now: UnixMillis) -> Result<Snapshot> {
        self.check_ownership()?;
        if draft.base.version != self.current.version {
            return Err(ManifestError::Conflict { expected: draft.base.version, current: self.current.version });
        }
        self.check_entries(&draft.entries)?;
        self.attempts += 1;
        self.in_doubt.extend(draft.entries.values().map(|object| object.path.clone()));
        Ok(Snapshot {
            version: self.current.version.next(),
            epoch: self.ours,
            commit: CommitId { writer: self.writer, attempt: self.attempts },
            parent: Some(self.current.commit),
            created: now.max(self.current.created),
            entries: draft.entries,
        })
    }

    fn check_entries(&self, entries: &BTreeMap<String, ObjectRef>) -> Result<()> {
        let inherited: BTreeSet<&ObjectRef> = self.current.entries.values().collect();
        for (name, object) in entries {
            if name.is_empty() || name.len() > ENTRY_NAME_BYTES_MAX {
                return Err(ManifestError::InvalidName { bytes: name.len(), max: ENTRY_NAME_BYTES_MAX });
            }
            if !inherited.contains(object) && !self.uncommitted.contains(&object.path) {
                return Err(ManifestError::ForeignObject { name: name.clone(), path: object.path.clone() });
            }
        }
        Ok(())
    }

    /// Makes a version that is known to be stored the current one. No proposal is in doubt any more: their place is taken.
    pub fn adopt(&mut self, committed: Arc<Snapshot>) {
        debug_assert!(committed.version > self.current.version, "versions only grow");
        for object in committed.entries.values() {
            self.uncommitted.remove(&object.path);
        }
        self.in_doubt.clear();
        self.handed_out.retain(|held| held.strong_count() > 0);
        self.handed_out.push(Arc::downgrade(&self.current));
        self.current = committed;
    }

    /// What the collector must spare although storage does not show why. To be taken before anything is listed.
    #[must_use]
    pub fn holds(&self) -> Holds {
        Holds {
            writer: self.writer,
            next_sequence: self.sequence + 1,
            objects: self.uncommitted.union(&self.in_doubt).cloned().collect(),
        }
    }

    /// The superseded versions that somebody in this process still holds.
    #[must_use]
    pub fn held_versions(&self) -> BTreeSet<Version> {
        self.handed_out.iter().filter_map(Weak::upgrade).map(|snapshot| snapshot.version).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> OwnerState {
        let first = Snapshot {
            version: Version(1),
            epoch: OwnerEpoch(1),
            commit: CommitId { writer: WriterId(1), attempt: 1 },
            parent: None,
            created: UnixMillis(100),
            entries: BTreeMap::new(),
        };
        OwnerState::new("p".to_owned(), Arc::new(first))
    }

    fn object(path: String) -> ObjectRef {
        ObjectRef { path, bytes: 1, crc32c: 0 }
    }

    #[test]
    fn an_object_that_the_handle_did_not_write_is_refused() {
        let mut state = opened();
        let mut draft = state.draft();
        draft.insert("a", object("objects/elsewhere".to_owned()));
        assert!(matches!(state.propose(draft, UnixMillis(0)), Err(ManifestError::ForeignObject { .. })));
    }

    #[test]
    fn an_abandoned_object_cannot_be_committed() {
        let mut state = opened();
        let path = state.name_object();
        state.abandon(&path);
        let mut draft = state.draft();
        draft.insert("a", object(path));
        assert!(matches!(state.propose(draft, UnixMillis(0)), Err(ManifestError::ForeignObject { .. })));
    }

    #[test]
    fn a_draft_on_an_older_version_conflicts() {
        let mut state = opened();
        let late = state.draft();
        let proposal = state.propose(state.draft(), UnixMillis(0)).unwrap();
        state.adopt(Arc::new(proposal));
        assert!(matches!(
            state.propose(late, UnixMillis(0)),
            Err(ManifestError::Conflict { expected: Version(1), current: Version(2) })
        ));
    }

    #[test]
    fn objects_of_a_proposal_in_doubt_are_held_even_when_abandoned() {
        let mut state = opened();
        let path = state.name_object();
        let mut draft = state.draft();
        draft.insert("a", object(path.clone()));
        state.propose(draft, UnixMillis(0)).unwrap();
        state.abandon(&path);
        assert!(state.holds().objects.contains(&path));
        let other = state.propose(state.draft(), UnixMillis(0)).unwrap();
        state.adopt(Arc::new(other));
        assert!(!state.holds().objects.contains(&path));
    }

    #[test]
    fn time_in_the_manifest_never_runs_backwards() {
        let mut state = opened();
        assert_eq!(state.propose(state.draft(), UnixMillis(5)).unwrap().created, UnixMillis(100));
    }

    #[test]
    fn a_fenced_handle_proposes_nothing() {
        let mut state = opened();
        let draft = state.draft();
        assert!(matches!(state.fence(OwnerEpoch(2)), ManifestError::Fenced { .. }));
        assert!(matches!(state.propose(draft, UnixMillis(0)), Err(ManifestError::Fenced { .. })));
    }
}
