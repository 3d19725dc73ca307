//! How much may be in a subtree: what a change adds is counted in each directory above it that has a quota.
//!
//! Operations know nothing of it. The change of one says what is new, gone, moved, or longer than before; that is added to the rows of the directories that it
//! concerns, in the same change. What a large subtree counts for that is moved or deleted is counted before ([`Counting`](crate::counting::Counting)).

use std::ops::{AddAssign, SubAssign};

use crate::cache::View;
use crate::change::{Change, File, Usage};
use crate::error::{Class, FilesError};
use crate::ids::InodeId;
use crate::namespace::{AT_ONCE, path_in};
use crate::tree::{Covered, Inode, Tree};

/// What is added to a directory with a quota, or taken from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) names: i128,
    pub(crate) space: i128,
}

impl From<Usage> for Delta {
    fn from(usage: Usage) -> Self {
        Self { names: usage.names.into(), space: usage.space.into() }
    }
}

impl Delta {
    const fn taken(self) -> Self {
        Self { names: -self.names, space: -self.space }
    }
}

impl AddAssign for Delta {
    fn add_assign(&mut self, other: Self) {
        (self.names, self.space) = (self.names + other.names, self.space + other.space);
    }
}

impl SubAssign for Delta {
    fn sub_assign(&mut self, other: Self) {
        *self += other.taken();
    }
}

/// What a subtree counts for that was counted before.
pub(crate) type Known = Option<(InodeId, Usage)>;

/// Counts what a change does in the directories with quotas, and puts their rows into it.
///
/// # Errors
/// [`Class::NamesQuota`], [`Class::SpaceQuota`]: one would have more than it may.
pub(crate) fn charge(view: &View<'_>, change: &mut Change, known: Known) -> Result<(), FilesError> {
    for (id, delta) in deltas(view, change, known) {
        if let Some(used) = count(view, change, id, delta) {
            check(view, id, used, delta)?;
        }
    }
    Ok(())
}

/// The same of one file, where it cannot be refused any more.
pub(crate) fn charge_anyway(view: &View<'_>, change: &mut Change) {
    for (id, delta) in deltas(view, change, None) {
        count(view, change, id, delta);
    }
}

/// What a change adds to which directories, the nearest first.
fn deltas(view: &View<'_>, change: &Change, known: Known) -> Vec<(InodeId, Delta)> {
    let tree: &Tree = &view.tree;
    let mut deltas: Vec<(InodeId, Delta)> = Vec::new();
    if !tree.has_special() {
        return deltas;
    }
    let mut add = |directories: &[InodeId], delta: Delta| {
        for id in directories {
            match deltas.iter_mut().find(|(other, _)| other == id) {
                Some((_, sum)) => *sum += delta,
                None => deltas.push((*id, delta)),
            }
        }
    };
    let space = |file: Option<&File>| i128::from(file.map_or(0, File::space));
    for row in &change.rows {
        let Some(inode) = tree.get(row.id) else {
            add(&above(tree, change, row.parent), Delta { names: 1, space: space(row.file()) });
            continue;
        };
        let more = space(row.file()) - space(inode.file());
        if inode.parent != row.parent {
            let (from, to) = (above(tree, change, inode.parent), above(tree, change, row.parent));
            if from != to {
                // What was too large to go at once is too large to be counted at once.
                let inodes = if row.parent == InodeId::DOOMED { 0 } else { AT_ONCE };
                let usage = Delta::from(usage_within(view, inode, known, inodes));
                add(&from, usage.taken());
                add(&to, usage);
            }
        }
        if more != 0 {
            add(&above(tree, change, row.parent), Delta { names: 0, space: more });
        }
    }
    for inode in change.gone.iter().filter_map(|id| tree.get(*id)) {
        add(&above(tree, change, inode.parent), Delta { names: 1, space: space(inode.file()) }.taken());
    }
    deltas.retain(|(id, delta)| *delta != Delta::default() && !change.gone.contains(id));
    deltas
}

/// The directories with quotas from one up; none if it is being taken apart.
fn above(tree: &Tree, change: &Change, directory: InodeId) -> Vec<InodeId> {
    let (mut found, mut at) = (Vec::new(), directory);
    while at != InodeId::NOWHERE {
        if at == InodeId::DOOMED {
            return Vec::new();
        }
        at = match tree.get(at) {
            Some(inode) => {
                found.extend(inode.quota().map(|_| at));
                inode.parent
            }
            None => change.rows.iter().find(|row| row.id == at).map_or(InodeId::NOWHERE, |row| row.parent),
        };
    }
    found
}

/// Adds to what a directory has. What it has then.
fn count(view: &View<'_>, change: &mut Change, id: InodeId, delta: Delta) -> Option<Usage> {
    let row = match change.rows.iter().position(|row| row.id == id) {
        Some(at) => &mut change.rows[at],
        None => {
            let tree: &Tree = &view.tree;
            change.rows.push(tree.row(tree.get(id)?));
            change.rows.last_mut()?
        }
    };
    let used = &mut row.more.as_mut()?.quota.as_mut()?.used;
    let sum = |had: u64, more: i128| u64::try_from((i128::from(had) + more).max(0)).unwrap_or(u64::MAX);
    *used = Usage { names: sum(used.names, delta.names), space: sum(used.space, delta.space) };
    Some(*used)
}

/// Whether a directory may have what it would have.
fn check(view: &View<'_>, id: InodeId, used: Usage, delta: Delta) -> Result<(), FilesError> {
    let tree: &Tree = &view.tree;
    let Some(quota) = tree.get(id).and_then(Inode::quota) else { return Ok(()) };
    let path = || path_in(tree, id).unwrap_or_default();
    if let Some(most) = quota.names.filter(|most| delta.names > 0 && used.names > *most) {
        let words = format!(
            "The NameSpace quota (directories and files) of directory {} is exceeded: quota={most} file count={}",
            path(),
            used.names
        );
        return Err(FilesError::new(Class::NamesQuota, words));
    }
    if let Some(most) = quota.space.filter(|most| delta.space > 0 && used.space > *most) {
        let words = format!(
            "The DiskSpace quota of {} is exceeded: quota = {most} B but diskspace consumed = {} B",
            path(),
            used.space
        );
        return Err(FilesError::new(Class::SpaceQuota, words));
    }
    Ok(())
}

/// What a subtree counts for. If it is large, or not all here, and was not counted before, that is noted as missing.
pub(crate) fn usage(view: &View<'_>, inode: &Inode, known: Known) -> Usage {
    usage_within(view, inode, known, AT_ONCE)
}

/// The same, of which so many inodes are looked at.
fn usage_within(view: &View<'_>, root: &Inode, known: Known, inodes: usize) -> Usage {
    if let Some((_, usage)) = known.filter(|(id, _)| *id == root.id) {
        return usage;
    }
    let tree: &Tree = &view.tree;
    let mut sum = Usage::default();
    let (mut open, mut left) = (vec![root], inodes);
    while let Some(inode) = open.pop() {
        let more = match inode.quota() {
            Some(quota) => quota.used,
            None => Usage { names: 1, space: inode.file().map_or(0, File::space) },
        };
        let Usage { names, space } = sum;
        sum = Usage { names: names.saturating_add(more.names), space: space.saturating_add(more.space) };
        if inode.quota().is_some() || inode.child_count() == 0 {
            continue;
        }
        let before = open.len();
        open.extend(tree.children(inode.id, b"").take(left));
        left -= open.len() - before;
        if *inode.covered() != Covered::All || open.len() - before < inode.child_count() {
            view.tree.lacks_usage(root.id);
            break;
        }
    }
    sum
}
