//! Begins blocks of a file, and gives them up.

use super::Outcome;
use crate::blocks::Holder;
use crate::cache::View;
use crate::change::{Block, File};
use crate::error::{Class, FilesError};
use crate::namespace::Draft;
use crate::request::{BlockName, Context, LocatedBlock, Reply, Written};

/// Ends the block that was written, and begins the next one. A client that asks again gets the block that it was given.
pub(super) fn add_block(
    namespace: &View<'_>,
    context: &Context<'_>,
    written: &Written,
    previous: Option<BlockName>,
    excluded: &[Holder],
) -> Result<Outcome, FilesError> {
    let inode = namespace.written(context, written)?;
    let Some(file) = inode.file() else { return Err(super::status::not_a_file(&written.path)) };
    let is_same = |block: &Block, name: BlockName| block.id == name.id && block.stamp == name.stamp;
    let same = |at: Option<&Block>| match (at, previous) {
        (None, None) => true,
        // Who appends behind a block that is full says none.
        (Some(block), None) => block.is_committed && block.length >= file.block_size.bytes(),
        (Some(block), Some(previous)) => is_same(block, previous),
        _ => false,
    };
    if !same(file.blocks.last()) {
        let before_last = file.blocks.len().checked_sub(2).and_then(|at| file.blocks.get(at));
        if let Some(last) = file.blocks.last()
            && !last.is_committed
            && last.length == 0
            && (previous.is_none() && file.blocks.len() == 1 || previous.is_some() && same(before_last))
        {
            let offset = file.length() - last.length;
            let located = namespace.locate(file, file.blocks.len() - 1, offset);
            return Ok(Outcome::Read(Reply::Block(located), inode.txid));
        }
        let words = format!(
            "Cannot allocate block in {}: passed 'previous' block {previous:?} does not match actual last block in file {:?}",
            written.path,
            file.blocks.last()
        );
        return Err(FilesError::new(Class::Io, words));
    }
    check_earlier(namespace, &written.path, file)?;
    if file.blocks.len() >= namespace.limits.blocks {
        let words = format!(
            "File has reached the limit on maximum number of blocks: {} >= {}",
            file.blocks.len(),
            namespace.limits.blocks
        );
        return Err(FilesError::new(Class::Io, words));
    }
    let places =
        namespace.blocks.choose(namespace.counters().block.next(), file.block_size.bytes(), file.replication, excluded);
    if places.is_empty() {
        let words = format!(
            "File {} could only be written to 0 of the 1 minReplication nodes. There are {} datanode(s) running and {} node(s) are excluded in this operation.",
            written.path,
            namespace.blocks.nodes.live() + 1,
            excluded.len()
        );
        return Err(FilesError::new(Class::Io, words));
    }
    let mut draft = Draft::new(namespace, context.now);
    let counters = draft.counters();
    (counters.block, counters.stamp) = (counters.block.next(), counters.stamp.next());
    let block = Block { id: counters.block, stamp: counters.stamp, length: 0, is_committed: false };
    let mut offset = 0;
    if let Some(file) = draft.file(inode) {
        commit(file, previous)?;
        offset = file.length();
        file.blocks.push(block);
    }
    let block = BlockName { id: block.id, stamp: block.stamp, length: 0 };
    let located = LocatedBlock { block, offset, is_corrupt: false, places };
    Ok(Outcome::repeatable(draft, Reply::Block(located)))
}

/// Gives up the block that was begun last.
pub(super) fn abandon_block(
    namespace: &View<'_>,
    context: &Context<'_>,
    written: &Written,
    block: BlockName,
) -> Result<Outcome, FilesError> {
    let inode = namespace.written(context, written)?;
    let last = inode.file().and_then(|file| file.blocks.last());
    let Some(last) = last.filter(|last| last.id == block.id) else {
        // It was given up before.
        return Ok(Outcome::Read(Reply::Done, inode.txid));
    };
    if last.is_committed || last.length > 0 {
        let words = format!("Block {} has {} bytes that were acknowledged; it is not given up", last.id, last.length);
        return Err(FilesError::new(Class::Io, words));
    }
    let mut draft = Draft::new(namespace, context.now);
    if let Some(file) = draft.file(inode) {
        file.blocks.pop();
    }
    Ok(Outcome::repeatable(draft, Reply::Done))
}

/// The writer of a file says that it has written all of its last block.
pub(super) fn commit(file: &mut File, last: Option<BlockName>) -> Result<(), FilesError> {
    let (Some(block), Some(last)) = (file.blocks.last_mut(), last) else { return Ok(()) };
    if block.id != last.id || block.stamp != last.stamp {
        let words = format!("Trying to commit inconsistent block: id = {}, expected id = {}", last.id, block.id);
        return Err(FilesError::new(Class::Io, words));
    }
    if block.is_committed && last.length != block.length {
        let words = format!("Block {} was ended with {} bytes; came {}", last.id, block.length, last.length);
        return Err(FilesError::new(Class::Io, words));
    }
    let block_size = file.block_size.bytes();
    if last.length > block_size {
        let words = format!("Block {} has {} bytes; expected at most {}", last.id, last.length, block_size);
        return Err(FilesError::new(Class::Io, words));
    }
    (block.length, block.is_committed) = (last.length, true);
    Ok(())
}

/// Whether the data node has all blocks of a file that its writer has ended.
pub(super) fn check_earlier(namespace: &View<'_>, path: &str, file: &File) -> Result<(), FilesError> {
    let mut ended = file.blocks.iter().filter(|block| block.is_committed);
    if ended.all(|block| namespace.blocks.has(block)) {
        return Ok(());
    }
    Err(FilesError::new(Class::NotReplicatedYet, format!("Not replicated yet: {path}")))
}
