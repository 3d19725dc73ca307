//! Opens a file that is there, to be written on.

use super::Outcome;
use crate::blocks::Place;
use crate::cache::View;
use crate::change::{File, RetryAnswer, Unfinished, Writer};
use crate::error::{Class, FilesError};
use crate::namespace::Draft;
use crate::permission::{self, Access};
use crate::request::{Context, LocatedBlock, Reply, Status};
use crate::tree::Inode;

pub(super) fn append(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    client: &str,
    (is_in_new_block, is_all_or_nothing): (bool, bool),
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let Some(inode) = at.inode() else {
        let words = format!("Failed to append to non-existent file {path} for client {}", context.machine);
        return Err(FilesError::new(Class::FileNotFound, words));
    };
    if inode.is_directory() {
        let words = format!("Cannot append to directory {path}; already exists as a directory.");
        return Err(FilesError::new(Class::FileAlreadyExists, words));
    }
    permission::check(&namespace.tree, inode, Access::WRITE, context)?;
    if let Some(outcome) = namespace.take_turn(context, ("APPEND_FILE", path), inode, client)? {
        return Ok(outcome);
    }
    if let Some(last) = inode.file().and_then(|file| file.blocks.last())
        && !namespace.blocks.has(last)
    {
        let words = format!("append: lastBlock={} of src={path} is not sufficiently replicated yet.", last.id);
        return Err(FilesError::new(Class::Io, words));
    }
    let mut draft = Draft::new(namespace, context.now);
    let Some(file) = draft.file(inode) else { return Err(super::status::not_a_file(path)) };
    let unfinished = if is_all_or_nothing { Unfinished::CutTo(file.length()) } else { Unfinished::Stays };
    file.writer = Some(Box::new(Writer::new(client, context.machine, unfinished)));
    let block_size = file.block_size.bytes();
    if let Some(last) = file.blocks.last_mut().filter(|last| !is_in_new_block && last.length < block_size) {
        last.is_committed = false;
    }
    let reply = appended(namespace, inode, file);
    Ok(Outcome::changed(draft, context.call, reply, RetryAnswer::Appended(inode.id)))
}

/// What who writes on a file hears: its last block, unless that is full. It is nowhere if it is not to be written on.
pub(super) fn appended(namespace: &View<'_>, inode: &Inode, file: &File) -> Reply {
    let last = file.blocks.last().filter(|last| last.length < file.block_size.bytes()).map(|last| {
        let located = namespace.locate(file, file.blocks.len() - 1, file.length() - last.length);
        let places = if last.is_committed { Vec::new() } else { pipeline(located.places) };
        LocatedBlock { places, ..located }
    });
    Reply::Appended(last, Box::new(Status::of(&namespace.tree, inode).unnamed()))
}

/// Data nodes in the order of a pipeline: the one in the process sends nothing on.
fn pipeline(mut places: Vec<Place>) -> Vec<Place> {
    places.sort_by_key(|place| *place == Place::HERE);
    places
}
