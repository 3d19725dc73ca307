//! What is at a path.

use super::Outcome;
use super::locations::located;
use crate::cache::View;
use crate::change::File;
use crate::error::{Class, FilesError};
use crate::permission::{self, Access};
use crate::request::{Context, Reply, Status};

/// What is at a path; nothing also where the path goes through a file.
pub(super) fn file_info(namespace: &View<'_>, context: &Context<'_>, path: &str) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let status = at.inode().map(|inode| Box::new(Status::of(&namespace.tree, inode).unnamed()));
    Ok(Outcome::Read(Reply::Status(status), at.depends))
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
    Ok(Outcome::Read(Reply::Size(file.block_size), at.depends))
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
