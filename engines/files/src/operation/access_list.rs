//! Access control lists: who has one, and how it changes.

use std::sync::Arc;

use super::Outcome;
use crate::acl;
use crate::cache::View;
use crate::error::FilesError;
use crate::namespace::Draft;
use crate::permission;
use crate::request::{AccessList, AclEdit, Context, Reply};

/// Changes the list of an inode.
pub(super) fn edit(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    edit: &AclEdit,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    permission::check_owner(&namespace.tree, inode, context)?;
    let (kept, mode) = acl::edited(inode.acl(), inode.mode(), edit, inode.is_directory())?;
    let mut draft = Draft::new(namespace, context.now);
    let row = draft.row(inode);
    row.mode = mode;
    row.edit(|more| more.acl = kept);
    Ok(Outcome::repeatable(draft, Reply::Done))
}

/// What an inode keeps of its list.
pub(super) fn list(namespace: &View<'_>, context: &Context<'_>, path: &str) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    let tree = &namespace.tree;
    let list = AccessList {
        owner: Arc::clone(tree.owner(inode)),
        group: Arc::clone(tree.group(inode)),
        mode: inode.mode(),
        entries: inode.acl().to_vec(),
    };
    Ok(Outcome::Read(Reply::Acl(Box::new(list)), at.depends))
}
