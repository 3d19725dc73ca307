//! Changes what every inode has: permission, owner, times; and the replication of files.

use super::Outcome;
use crate::cache::View;
use crate::error::{Class, FilesError};
use crate::ids::Millis;
use crate::namespace::Draft;
use crate::permission::{self, Access};
use crate::request::{Context, Reply};

pub(super) fn set_permission(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    mode: u16,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    permission::check_owner(&namespace.tree, inode, context)?;
    let mut draft = Draft::new(namespace, context.now);
    draft.row(inode).mode = mode & 0o1777;
    Ok(Outcome::repeatable(draft, Reply::Done))
}

pub(super) fn set_owner(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    owner: Option<&str>,
    group: Option<&str>,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    permission::check_owner(&namespace.tree, inode, context)?;
    if !context.is_superuser {
        let user = context.user;
        if owner.is_some_and(|owner| owner != user) {
            let words = format!("User {user} is not a super user (non-super user cannot change owner).");
            return Err(FilesError::new(Class::AccessControl, words));
        }
        if let Some(group) = group
            && !context.groups.iter().any(|other| other == group)
        {
            let words = format!("User {user} does not belong to {group}");
            return Err(FilesError::new(Class::AccessControl, words));
        }
    }
    let mut draft = Draft::new(namespace, context.now);
    let row = draft.row(inode);
    if let Some(owner) = owner {
        row.owner = owner.into();
    }
    if let Some(group) = group {
        row.group = group.into();
    }
    Ok(Outcome::repeatable(draft, Reply::Done))
}

pub(super) fn set_times(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    mtime: Option<Millis>,
    atime: Option<Millis>,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    permission::check(&namespace.tree, inode, Access::WRITE, context)?;
    let mut draft = Draft::new(namespace, context.now);
    let row = draft.row(inode);
    let time = |wanted: Option<Millis>, now: Millis| wanted.unwrap_or(now).min(Millis::LATEST);
    (row.mtime, row.atime) = (time(mtime, row.mtime), time(atime, row.atime));
    Ok(Outcome::repeatable(draft, Reply::Done))
}

/// Sets how many replicas a file should have. False if it is no file.
pub(super) fn set_replication(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    replication: u16,
) -> Result<Outcome, FilesError> {
    if replication == 0 || replication > 512 {
        let words = format!("Requested replication factor of {replication} for {path} is not from 1 to 512");
        return Err(FilesError::new(Class::Io, words));
    }
    let at = namespace.resolve(path, context)?;
    if let Some(inode) = at.inode() {
        permission::check(&namespace.tree, inode, Access::WRITE, context)?;
    }
    let Some(inode) = at.inode().filter(|inode| !inode.is_directory()) else {
        return Ok(Outcome::Read(Reply::Bool(false), at.depends));
    };
    let mut draft = Draft::new(namespace, context.now);
    if let Some(file) = draft.file(inode) {
        file.replication = replication;
    }
    Ok(Outcome::repeatable(draft, Reply::Bool(true)))
}
