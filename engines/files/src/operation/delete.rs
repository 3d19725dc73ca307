//! Deletes files and directories.

use super::Outcome;
use super::emptying::{Asked, Emptying};
use crate::cache::View;
use crate::change::RetryAnswer;
use crate::error::{Class, FilesError};
use crate::ids::InodeId;
use crate::namespace::{AT_ONCE, Draft};
use crate::request::{Context, Reply, Written};
use crate::tree::{Covered, Inode, Tree};

/// Deletes what is at a path. Of a subtree of more inodes than [`AT_ONCE`] one row moves to where nobody looks; [`Namespace::dismantle`] does the rest.
pub(super) fn delete(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    is_recursive: bool,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    // Also where nothing is.
    at.check_removal(&namespace.tree, context)?;
    if at.inode().is_some_and(|inode| inode.child_count() > 0) && !is_recursive {
        return Err(FilesError::new(Class::PathIsNotEmptyDirectory, format!("{path} is non empty")));
    }
    let (Some(inode), Some(parent)) = (at.inode(), at.parent()) else {
        // Nothing is there, or it is the root.
        return Ok(Outcome::Read(Reply::Bool(false), at.depends));
    };
    if !may_empty(namespace, context, inode)? {
        // What it comes to counts for nothing.
        return Ok(Outcome::Read(Reply::Bool(false), at.depends));
    }
    let mut draft = Draft::new(namespace, context.now);
    draft.touch(parent);
    remove(&namespace.tree, &mut draft, inode);
    Ok(Outcome::changed(draft, context.call, Reply::Bool(true), RetryAnswer::Bool(true)))
}

/// Whether all that is in a directory may be taken away with it. Of what is much, or not all here, that has to be asked before; it is noted as missing then.
fn may_empty(namespace: &View<'_>, context: &Context<'_>, inode: &Inode) -> Result<bool, FilesError> {
    if context.is_superuser || inode.child_count() == 0 || context.may_empty == Some(inode.id) {
        return Ok(true);
    }
    // What may go at once is looked at again then.
    let may = Emptying::of(inode.id).go_over(&namespace.tree, context, AT_ONCE / 2)? == Asked::All;
    if !may {
        namespace.tree.lacks_rights(inode.id);
    }
    Ok(may)
}

/// Takes a file away that its writer did not write to its end. Whoever writes it now keeps it. Who has its lease may do that wherever it is by now:
/// what the user may do was asked when it was made, and half of a file is not to stay.
pub(super) fn give_up(namespace: &View<'_>, context: &Context<'_>, file: &Written) -> Result<Outcome, FilesError> {
    let inode = namespace.written(context, file)?;
    let mut draft = Draft::new(namespace, context.now);
    if let Some(parent) = namespace.tree.get(inode.parent) {
        draft.touch(parent);
    }
    remove(&namespace.tree, &mut draft, inode);
    Ok(Outcome::changed(draft, context.call, Reply::Bool(true), RetryAnswer::Bool(true)))
}

/// Removes an inode with all that is in it.
fn remove(tree: &Tree, draft: &mut Draft<'_>, inode: &Inode) {
    match subtree(tree, inode) {
        Some(subtree) => subtree.into_iter().rev().for_each(|id| draft.remove(id)),
        None => {
            let row = draft.row(inode);
            (row.parent, row.name) = (InodeId::DOOMED, inode.id.0.to_be_bytes().into());
        }
    }
}

/// An inode and all that is in it, a directory before what is in it; none if that is too much for one change, or not all here.
fn subtree(tree: &Tree, inode: &Inode) -> Option<Vec<InodeId>> {
    let mut all = vec![inode.id];
    let mut next = 0;
    while let Some(id) = all.get(next) {
        if tree.get(*id)?.covered() != &Covered::All {
            return None;
        }
        let room = AT_ONCE + 1 - all.len();
        let children: Vec<InodeId> = tree.children(*id, b"").take(room).map(|child| child.id).collect();
        all.extend(children);
        if all.len() > AT_ONCE {
            return None;
        }
        next += 1;
    }
    Some(all)
}
