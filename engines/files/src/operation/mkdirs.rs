//! Makes directories.

use std::sync::Arc;

use super::Outcome;
use crate::cache::View;
use crate::change::Kind;
use crate::error::{Class, FilesError};
use crate::ids::InodeId;
use crate::namespace::{Draft, Resolved};
use crate::path;
use crate::request::{Context, Modes, Reply};
use crate::tree::Inode;

pub(super) fn mkdirs(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    mode: Modes,
    with_parents: bool,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    match at.inode() {
        Some(inode) if inode.is_directory() => return Ok(Outcome::Read(Reply::Bool(true), at.depends)),
        Some(_) => {
            return Err(FilesError::new(Class::FileAlreadyExists, format!("Path is not a directory: {path}")));
        }
        None => {}
    }
    let mut draft = Draft::new(namespace, context.now);
    let mode = mode.map(|mode| mode & 0o1777);
    let (parent, group) = place(namespace, context, &at, &mut draft, with_parents, Some(mode))?;
    let name = at.names[at.names.len() - 1];
    draft.add(parent, name, mode, context.user, &group, Kind::Directory);
    Ok(Outcome::repeatable(draft, Reply::Bool(true)))
}

/// The directory for something new at a path, with its group, which is made with those above it if it is missing: those that
/// lead to something may be gone through by who made it. Without a mode they have that of the directory they are in.
pub(super) fn place(
    namespace: &View<'_>,
    context: &Context<'_>,
    at: &Resolved<'_, '_>,
    draft: &mut Draft<'_>,
    with_parents: bool,
    mode: Option<Modes>,
) -> Result<(InodeId, Arc<str>), FilesError> {
    path::check_new(at.path, &at.names)?;
    let nearest = at.nearest();
    check_directory(at, nearest)?;
    at.check_making(&namespace.tree, context)?;
    let missing = at.missing();
    let above = &missing[..missing.len() - 1];
    if !above.is_empty() && !with_parents {
        let parent = at.path.trim_end_matches('/').rsplit_once('/').map_or("/", |(parent, _)| parent);
        return Err(FilesError::new(Class::FileNotFound, format!("Parent directory doesn't exist: {parent}")));
    }
    if nearest.child_count() >= namespace.limits.names {
        let (limit, items) = (namespace.limits.names, nearest.child_count());
        let words = format!("The directory item limit of {} is exceeded: limit={limit} items={items}", at.path);
        return Err(FilesError::new(Class::DirectoryFull, words));
    }
    draft.touch(nearest);
    let group = Arc::clone(namespace.tree.group(nearest));
    let above_mode = mode.unwrap_or_else(|| nearest.mode().into()).map(|mode| mode | 0o300);
    let mut parent = nearest.id;
    for name in above {
        parent = draft.add(parent, name, above_mode, context.user, &group, Kind::Directory).id;
    }
    Ok((parent, group))
}

/// Whether a path can go on behind what is there of it.
pub(super) fn check_directory(at: &Resolved<'_, '_>, nearest: &Inode) -> Result<(), FilesError> {
    if nearest.is_directory() {
        return Ok(());
    }
    let there: String =
        at.names[..at.found.len() - 1].iter().flat_map(|name| ["/".into(), String::from_utf8_lossy(name)]).collect();
    Err(FilesError::new(Class::ParentNotDirectory, format!("{there} (is not a directory)")))
}
