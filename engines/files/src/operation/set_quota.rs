//! How much may be in a directory.

use super::Outcome;
use crate::cache::View;
use crate::change::Quota;
use crate::error::{Class, FilesError};
use crate::namespace::Draft;
use crate::permission::{self, Access};
use crate::quota::usage;
use crate::request::{Context, Limit, Reply};

/// Sets how much may be in a directory. What is there already is counted, and may be more.
pub(super) fn set_quota(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    names: Limit,
    space: Limit,
) -> Result<Outcome, FilesError> {
    if !context.is_superuser {
        return Err(FilesError::not_superuser(context.user));
    }
    let at = namespace.resolve(path, context)?;
    let Some(inode) = at.inode() else {
        return Err(FilesError::new(Class::FileNotFound, format!("Directory does not exist: {path}")));
    };
    if !inode.is_directory() {
        return Err(FilesError::new(Class::PathIsNotDirectory, format!("`{path}': Is not a directory")));
    }
    let had = inode.quota().copied();
    let set = |limit, had: Option<u64>| match limit {
        Limit::Same => had,
        Limit::None => None,
        Limit::Most(most) => Some(most),
    };
    let names = set(names, had.and_then(|had| had.names));
    let space = set(space, had.and_then(|had| had.space));
    let quota = (names.is_some() || space.is_some()).then(|| {
        let used = had.map_or_else(|| usage(namespace, inode, context.counted), |had| had.used);
        Quota { names, space, used }
    });
    let mut draft = Draft::new(namespace, context.now);
    draft.row(inode).edit(|more| more.quota = quota);
    Ok(Outcome::repeatable(draft, Reply::Done))
}

/// How much may be in a directory and is, if that is limited.
pub(super) fn quota(namespace: &View<'_>, context: &Context<'_>, path: &str) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    if inode.is_directory() {
        permission::check(&namespace.tree, inode, Access::LIST, context)?;
    }
    Ok(Outcome::Read(Reply::Quota(inode.quota().copied()), at.depends))
}
