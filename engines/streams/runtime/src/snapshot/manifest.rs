//! What a snapshot consists of, by the names of its files.

use std::collections::BTreeMap;

use savanna_streams_api::ids::{Epoch, QueryId, StageId};
use savanna_streams_api::{Result, StreamError};
use savanna_streams_model::time::EventTime;
use serde::{Deserialize, Serialize};

use super::{State, read_changes, read_state};
use crate::driver::EpochRecord;

/// What a snapshot consists of. It is the snapshot: what it does not name is no part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The query.
    pub query: QueryId,
    /// The record of its epoch: where the sources stood.
    pub record: EpochRecord,
    /// The instant of processing time of the last epoch that had rows.
    pub rows_at: EventTime,
    /// What the members of each stage hold, in words; it must be the same where the snapshot is read.
    pub signatures: Vec<String>,
    /// One for each member.
    pub parts: Vec<Part>,
}

/// The state of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The member's stage.
    pub stage: StageId,
    /// The part of the keys that it owns.
    pub shuffle: u16,
    /// How many members its group has.
    pub members: u16,
    /// Where its whole state is, by a name that belongs to the store.
    pub name: String,
    /// The length of that.
    pub bytes: u64,
    /// Its CRC-32C, by the store.
    pub checksum: u32,
    /// What has changed since, one behind the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PartFile>,
    /// The checksum of the state that all of this gives, if it is in pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives: Option<u32>,
}

/// A file of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFile {
    /// Where it is, by a name that belongs to the store.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its CRC-32C, by the store.
    pub checksum: u32,
}

impl Part {
    /// One of which all is in this file.
    pub fn whole(stage: StageId, shuffle: u16, members: u16, file: PartFile) -> Self {
        let PartFile { name, bytes, checksum } = file;
        Self { stage, shuffle, members, name, bytes, checksum, changes: Vec::new(), gives: None }
    }

    /// It with all that it says in this file.
    #[must_use]
    pub fn rewritten(&self, file: PartFile) -> Self {
        Self::whole(self.stage, self.shuffle, self.members, file)
    }

    /// The file of the whole state that its changes follow.
    pub fn base(&self) -> PartFile {
        PartFile { name: self.name.clone(), bytes: self.bytes, checksum: self.checksum }
    }

    /// All of its files.
    pub fn files(&self) -> impl Iterator<Item = PartFile> {
        std::iter::once(self.base()).chain(self.changes.iter().cloned())
    }

    /// The state that its files give: the whole, and what has changed since.
    ///
    /// # Errors
    /// The name of the file that cannot be read, and why.
    pub fn read(&self, bytes: impl Fn(&PartFile) -> Result<Vec<u8>, String>) -> Result<State, (String, String)> {
        let base = self.base();
        let whole = bytes(&base).and_then(|bytes| read_state(&bytes));
        let mut state = whole.map_err(|cause| (base.name.clone(), cause))?;
        for file in &self.changes {
            let changes = bytes(file).and_then(|bytes| read_changes(&bytes));
            let applied = changes.and_then(|changes| state.apply(changes));
            state = applied.map_err(|cause| (file.name.clone(), cause))?;
        }
        let last = self.changes.last().map_or(base.name, |file| file.name.clone());
        match self.gives {
            Some(gives) => state.check(gives).map_err(|cause| (last, cause))?,
            None if self.changes.is_empty() => {}
            None => return Err((last, "expected a part that says which state its changes give, got none".into())),
        }
        Ok(state)
    }
}

impl Manifest {
    /// All files that it names.
    pub fn files(&self) -> impl Iterator<Item = PartFile> {
        self.parts.iter().flat_map(Part::files)
    }

    /// Whether some of its parts have changes. Who does not know of them would leave them out.
    pub fn has_changes(&self) -> bool {
        self.parts.iter().any(|part| !part.changes.is_empty())
    }
}

/// A snapshot that was found.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What it consists of.
    pub manifest: Manifest,
    /// The state of each part, in their order.
    pub states: Vec<State>,
}

impl Snapshot {
    /// What some stages take of it, in a query whose stages hold this: of the others it says whatever they hold.
    pub(crate) fn of(mut self, taking: &BTreeMap<StageId, u16>, signatures: &[String]) -> Self {
        let states = std::mem::take(&mut self.states);
        let parts = std::mem::take(&mut self.manifest.parts);
        let taken = parts.into_iter().zip(states).filter(|(part, _)| taking.contains_key(&part.stage));
        (self.manifest.parts, self.states) = taken.unzip();
        let former = std::mem::take(&mut self.manifest.signatures);
        let signature = |(stage, held): (u16, &String)| match taking.contains_key(&StageId(stage)) {
            true => former.get(usize::from(stage)).cloned().unwrap_or_default(),
            false => held.clone(),
        };
        self.manifest.signatures = (0..).zip(signatures).map(signature).collect();
        self
    }
}

/// Whether a snapshot fits a query whose stages hold this, with so many members that hold state.
///
/// # Errors
/// It does not.
pub fn check(manifest: &Manifest, signatures: &[String], members: &BTreeMap<StageId, u16>) -> Result<()> {
    let epoch = manifest.record.epoch;
    if let Some((held, came)) = signatures.iter().zip(&manifest.signatures).find(|(held, came)| held != came) {
        return Err(unfit(epoch, &format!("{held:?}"), &format!("{came:?}")));
    }
    if signatures.len() != manifest.signatures.len() {
        return Err(unfit(epoch, &format!("{} stages", signatures.len()), &format!("{}", manifest.signatures.len())));
    }
    let expected = members.iter().flat_map(|(stage, members)| (0..*members).map(|shuffle| (*stage, shuffle, *members)));
    let expected: Vec<_> = expected.collect();
    let mut came: Vec<_> = manifest.parts.iter().map(|part| (part.stage, part.shuffle, part.members)).collect();
    came.sort_unstable();
    if expected != came {
        let words = |parts: &[(StageId, u16, u16)]| {
            let part = |(stage, shuffle, members): &(StageId, u16, u16)| format!("{stage}: {shuffle} of {members}");
            parts.iter().map(part).collect::<Vec<_>>().join(", ")
        };
        return Err(unfit(epoch, &words(&expected), &words(&came)));
    }
    Ok(())
}

pub(super) fn unfit(epoch: Epoch, expected: &str, came: &str) -> StreamError {
    StreamError::invalid(format!(
        "the snapshot of epoch {epoch} does not fit what this release would keep (expected {expected}, got {came}); go on with the release \
         that wrote it, or remove its directory in streams/snapshots if its records reach far enough, or drop the query and start it again with another \
         place for its rows"
    ))
}
