//! A writer that lost its data node goes on under a new generation of the block.

use super::Outcome;
use crate::cache::View;
use crate::change::RetryAnswer;
use crate::error::{Class, FilesError};
use crate::ids::BlockId;
use crate::namespace::{Draft, path_in};
use crate::request::{BlockName, Context, LocatedBlock, Reply};
use crate::tree::Inode;

/// A generation for the block that is being written.
pub(super) fn new_stamp(
    namespace: &View<'_>,
    context: &Context<'_>,
    block: BlockName,
    client: &str,
) -> Result<Outcome, FilesError> {
    begun(namespace, block.id, client)?;
    let mut draft = Draft::new(namespace, context.now);
    let counters = draft.counters();
    counters.stamp = counters.stamp.next();
    let block = BlockName { stamp: counters.stamp, ..block };
    let places = namespace.blocks.pipeline(block.id);
    let located = LocatedBlock { block, offset: 0, is_corrupt: false, places };
    Ok(Outcome::repeatable(draft, Reply::Block(located)))
}

/// The block has a new generation from now on.
pub(super) fn update_pipeline(
    namespace: &View<'_>,
    context: &Context<'_>,
    client: &str,
    old: BlockName,
    new: BlockName,
) -> Result<Outcome, FilesError> {
    let inode = begun(namespace, old.id, client)?;
    let mut draft = Draft::new(namespace, context.now);
    let newest = namespace.counters().stamp;
    let block_size = inode.file().map_or(0, |file| file.block_size.bytes());
    let last = draft.file(inode).and_then(|file| file.blocks.last_mut());
    match last {
        Some(block)
            if block.id == new.id
                && (block.stamp < new.stamp && new.stamp <= newest)
                && (block.length..=block_size).contains(&new.length) =>
        {
            (block.stamp, block.length) = (new.stamp, new.length);
        }
        last => {
            let words = format!(
                "Update {last:?} but the new block {new:?} does not have a larger generation stamp that was handed out (up to {newest}), and a length up to {block_size}"
            );
            return Err(FilesError::new(Class::Io, words));
        }
    }
    Ok(Outcome::changed(draft, context.call, Reply::Done, RetryAnswer::Done))
}

/// The file whose last block a client is writing.
fn begun<'a>(namespace: &'a View<'_>, block: BlockId, client: &str) -> Result<&'a Inode, FilesError> {
    let inode = namespace.blocks.inode(block).and_then(|id| namespace.tree.get(id));
    let inode = inode.filter(|inode| path_in(&namespace.tree, inode.id).is_some());
    let begun = |inode: &Inode| {
        let last = inode.file().and_then(|file| file.blocks.last());
        last.is_some_and(|last| last.id == block && !last.is_committed)
    };
    match inode {
        Some(inode) if begun(inode) => {
            namespace.check_writer(inode, client)?;
            Ok(inode)
        }
        _ => Err(FilesError::new(Class::Io, format!("Block {block} is not being written, or its file was deleted"))),
    }
}
