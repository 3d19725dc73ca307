//! Moves files and directories.

use super::Outcome;
use super::mkdirs::check_directory;
use crate::cache::View;
use crate::change::RetryAnswer;
use crate::error::{Class, FilesError};
use crate::namespace::{Draft, Resolved};
use crate::path;
use crate::permission;
use crate::request::{Context, Reply};
use crate::tree::Inode;

/// Moves what is at a path, into the target if that is a directory. Where it cannot, it answers false.
pub(super) fn rename(namespace: &View<'_>, context: &Context<'_>, from: &str, to: &str) -> Result<Outcome, FilesError> {
    let (source, target) = (namespace.resolve(from, context)?, namespace.resolve(to, context)?);
    let depends = source.depends.max(target.depends);
    source.check_removal(&namespace.tree, context)?;
    let into;
    let target = match (target.inode(), source.names.last()) {
        (Some(directory), Some(name)) if directory.is_directory() => {
            into = format!("{}/{}", to.trim_end_matches('/'), String::from_utf8_lossy(name));
            namespace.resolve(&into, context)?
        }
        _ => target,
    };
    target.check_making(&namespace.tree, context)?;
    let refused = || Ok(Outcome::Read(Reply::Bool(false), depends));
    let (Some(inode), Some(_)) = (source.inode(), source.parent()) else { return refused() };
    if target.inode().is_some_and(|other| other.id == inode.id) {
        // It is there already.
        return Ok(Outcome::Read(Reply::Bool(true), depends));
    }
    let is_inside = inode.is_directory() && target.found.iter().any(|other| other.id == inode.id);
    if is_inside || target.inode().is_some() {
        return refused();
    }
    let Some(parent) = target.parent() else {
        check_directory(&target, target.nearest())?;
        return refused();
    };
    check_directory(&target, parent)?;
    moved(
        namespace,
        context,
        Move { source: &source, inode, target: &target, parent, replaced: None },
        Reply::Bool(true),
    )
}

/// Moves what is at a path to exactly another.
pub(super) fn rename2(
    namespace: &View<'_>,
    context: &Context<'_>,
    from: &str,
    to: &str,
    overwrites: bool,
) -> Result<Outcome, FilesError> {
    let (source, target) = (namespace.resolve(from, context)?, namespace.resolve(to, context)?);
    source.check_removal(&namespace.tree, context)?;
    target.check_making(&namespace.tree, context)?;
    let refused = |class, words: String| Err(FilesError::new(class, words));
    let Some(inode) = source.inode() else {
        return refused(Class::FileNotFound, format!("rename source {from} is not found."));
    };
    if source.parent().is_none() {
        return refused(Class::Io, "rename source cannot be the root".to_owned());
    }
    if target.names.is_empty() {
        return refused(Class::Io, "rename destination cannot be the root".to_owned());
    }
    if target.names == source.names {
        return refused(Class::FileAlreadyExists, format!("The source {from} and destination {to} are the same"));
    }
    if target.found.iter().any(|other| other.id == inode.id) {
        let words = format!("Rename destination {to} is a directory or file under source {from}");
        return refused(Class::Io, words);
    }
    if let Some(replaced) = target.inode() {
        if replaced.is_directory() != inode.is_directory() {
            let words = format!("Source {from} and destination {to} must both be directories");
            return refused(Class::Io, words);
        }
        if !overwrites {
            return refused(Class::FileAlreadyExists, format!("rename destination {to} already exists"));
        }
        if replaced.child_count() > 0 {
            return refused(Class::Io, format!("rename destination directory is not empty: {to}"));
        }
    }
    let Some(parent) = target.parent() else {
        check_directory(&target, target.nearest())?;
        let above = to.trim_end_matches('/').rsplit_once('/').map_or("/", |(above, _)| above);
        return refused(Class::FileNotFound, format!("rename destination parent {above} not found."));
    };
    if !parent.is_directory() {
        return refused(Class::ParentNotDirectory, format!("rename destination parent of {to} is a file."));
    }
    let replaced = target.inode();
    moved(namespace, context, Move { source: &source, inode, target: &target, parent, replaced }, Reply::Done)
}

/// What is moved where.
#[derive(Clone, Copy)]
struct Move<'a> {
    source: &'a Resolved<'a, 'a>,
    inode: &'a Inode,
    target: &'a Resolved<'a, 'a>,
    parent: &'a Inode,
    replaced: Option<&'a Inode>,
}

/// Moves it. Its user may take it away, and make something there.
fn moved(namespace: &View<'_>, context: &Context<'_>, to_do: Move<'_>, reply: Reply) -> Result<Outcome, FilesError> {
    let Move { source, inode, target, parent, replaced } = to_do;
    path::check_new(target.path, &target.names)?;
    if let Some(replaced) = replaced {
        permission::check_sticky(&namespace.tree, parent, replaced, context)?;
    }
    let mut draft = Draft::new(namespace, context.now);
    if let Some(before) = source.parent() {
        draft.touch(before);
    }
    draft.touch(parent);
    if let Some(replaced) = replaced {
        draft.remove(replaced.id);
    }
    let name = target.names[target.names.len() - 1];
    let row = draft.row(inode);
    (row.parent, row.name) = (parent.id, name.into());
    let answer = if reply == Reply::Done { RetryAnswer::Done } else { RetryAnswer::Bool(true) };
    Ok(Outcome::changed(draft, context.call, reply, answer))
}
