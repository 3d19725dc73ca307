//! Ends a file that was written.

use super::Outcome;
use super::add_block::commit;
use crate::cache::View;
use crate::error::{Class, FilesError};
use crate::namespace::Draft;
use crate::request::{BlockName, Context, Reply, Written};

/// Ends a file. False as long as the data node has not reported all of it: the client asks again.
pub(super) fn complete(
    namespace: &View<'_>,
    context: &Context<'_>,
    written: &Written,
    last: Option<BlockName>,
) -> Result<Outcome, FilesError> {
    let inode = namespace.named(context, written)?;
    if let Err(error) = namespace.check_writer(inode, &written.client) {
        let is_ended = inode.file().is_some_and(|file| {
            let block = file.blocks.last().map(|block| (block.id, block.stamp));
            file.writer.is_none() && block == last.map(|last| (last.id, last.stamp))
        });
        // The answer to the first call was lost.
        return if is_ended { Ok(Outcome::Read(Reply::Bool(true), inode.txid)) } else { Err(error) };
    }
    let mut draft = Draft::new(namespace, context.now);
    let now = context.now;
    let Some(file) = draft.file(inode) else { return Err(super::status::not_a_file(&written.path)) };
    commit(file, last)?;
    if !file.blocks.iter().all(|block| block.is_committed && namespace.blocks.has(block)) {
        return Ok(Outcome::Read(Reply::Bool(false), inode.txid));
    }
    file.writer = None;
    draft.row(inode).mtime = now;
    Ok(Outcome::repeatable(draft, Reply::Bool(true)))
}

/// Keeps how long the block that is being written is.
pub(super) fn fsync(
    namespace: &View<'_>,
    context: &Context<'_>,
    written: &Written,
    length: Option<u64>,
) -> Result<Outcome, FilesError> {
    let inode = namespace.written(context, written)?;
    let mut draft = Draft::new(namespace, context.now);
    let last = draft.file(inode).and_then(|file| {
        let block_size = file.block_size.bytes();
        file.blocks.last_mut().map(|block| (block, block_size))
    });
    match (last, length) {
        (Some((block, block_size)), Some(length)) if !block.is_committed => {
            if length > block_size {
                let words = format!("A block of {length} bytes is longer than the {block_size} that the file allows");
                return Err(FilesError::new(Class::Io, words));
            }
            block.length = block.length.max(length);
        }
        _ => return Ok(Outcome::Read(Reply::Done, inode.txid)),
    }
    Ok(Outcome::repeatable(draft, Reply::Done))
}
