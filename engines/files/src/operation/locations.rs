//! Where the blocks of a file are.

use super::Outcome;
use super::status::not_a_file;
use crate::cache::View;
use crate::change::File;
use crate::error::FilesError;
use crate::permission::{self, Access};
use crate::request::{Context, Located, Reply};

pub(super) fn block_locations(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    offset: u64,
    length: u64,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    let file = inode.file().ok_or_else(|| not_a_file(path))?;
    permission::check(&namespace.tree, inode, Access::READ, context)?;
    Ok(Outcome::Read(Reply::Blocks(located(namespace, file, offset, length)), at.depends))
}

/// The blocks of a range of a file.
pub(super) fn located(namespace: &View<'_>, file: &File, offset: u64, length: u64) -> Located {
    let end = offset.saturating_add(length);
    // What is being cut is as long as it will be.
    let (is_written, is_cut) = (file.writer.is_some(), file.is_being_cut());
    let (mut blocks, mut last, mut begin, mut ended) = (Vec::new(), None, 0, 0);
    for (at, block) in file.blocks.iter().enumerate() {
        let shown = namespace.locate(file, at, begin);
        let is_begun = is_written && !block.is_committed && !is_cut;
        // How long a block is that is being written knows the data node alone.
        if begin < end && (begin + block.length > offset || is_begun) {
            blocks.push(shown.clone());
        }
        begin += block.length;
        if !is_begun {
            ended = begin;
        }
        last = Some(shown);
    }
    let is_last_complete = file.blocks.last().is_none_or(|block| !is_written || block.is_committed || is_cut);
    Located { length: ended, blocks, is_written, last, is_last_complete }
}
