//! What is at a path.

use super::Outcome;
use super::locations::located;
use crate::cache::View;
use crate::change::File;
use crate::error::{Class, FilesError};
use crate::ids::InodeId;
use crate::namespace::path_in;
use crate::permission::{self, Access};
use crate::request::{Context, OpenFile, Reply, Status};

/// What is at a path; nothing also where the path goes through a file.
pub(super) fn file_info(namespace: &View<'_>, context: &Context<'_>, path: &str) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let status = at.inode().map(|inode| Box::new(Status::of(&namespace.tree, inode).unnamed()));
    Ok(Outcome::Read(Reply::Status(status), at.depends))
}

/// The same, with the blocks of a file.
pub(super) fn located_info(namespace: &View<'_>, context: &Context<'_>, path: &str) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let status = at.inode().map(|inode| Box::new(entry(namespace, inode, true).unnamed()));
    Ok(Outcome::Read(Reply::Status(status), at.depends))
}

/// Files that are being written, below a path and behind a number, in the order of their numbers.
pub(super) fn open_files(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    after: InodeId,
) -> Result<Outcome, FilesError> {
    if !context.is_superuser {
        return Err(FilesError::not_superuser(context.user));
    }
    let below = path.trim_end_matches('/');
    let is_below = |path: &str| path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut ids: Vec<InodeId> = namespace.leases.all_files().filter(|id| *id > after).collect();
    ids.sort_unstable();
    let mut open = ids.into_iter().filter_map(|id| {
        let writer = *namespace.tree.get(id)?.file()?.writer.clone()?;
        Some(OpenFile { id, path: path_in(&namespace.tree, id).filter(|path| is_below(path))?, writer })
    });
    let page: Vec<OpenFile> = open.by_ref().take(namespace.limits.listing).collect();
    let has_more = open.next().is_some();
    Ok(Outcome::Read(Reply::OpenFiles(page, has_more), namespace.txid()))
}

pub(super) fn is_file_closed(namespace: &View<'_>, context: &Context<'_>, path: &str) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let file = at.existing()?.file().ok_or_else(|| not_a_file(path))?;
    Ok(Outcome::Read(Reply::Bool(file.writer.is_none()), at.depends))
}

pub(super) fn preferred_block_size(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let file = at.existing()?.file().ok_or_else(|| not_a_file(path))?;
    Ok(Outcome::Read(Reply::Size(file.block_size.bytes()), at.depends))
}

pub(super) fn check_access(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    mode: u16,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    permission::check(&namespace.tree, at.existing()?, Access::of_bits(mode), context)?;
    Ok(Outcome::Read(Reply::Done, at.depends))
}

/// That a path names a directory where a file is needed.
pub(super) fn not_a_file(path: &str) -> FilesError {
    FilesError::new(Class::FileNotFound, format!("Path is not a file: {path}"))
}

/// An inode of a listing, with the blocks of a file if they were asked for.
pub(super) fn entry(namespace: &View<'_>, inode: &crate::tree::Inode, with_locations: bool) -> Status {
    let mut status = Status::of(&namespace.tree, inode);
    if with_locations {
        status.blocks = inode.file().map(|file: &File| located(namespace, file, 0, u64::MAX));
    }
    status
}
