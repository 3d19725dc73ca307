//! Cuts a file.

use super::status::not_a_file;
use super::{Outcome, Recovery};
use crate::cache::View;
use crate::change::{TRUNCATION, Unfinished, Writer};
use crate::error::{Class, FilesError};
use crate::namespace::Draft;
use crate::permission::{self, Access};
use crate::request::{Context, Reply};

/// Cuts a file. False if its last block has to be cut, too: the file is written by nobody until the data node has done that.
pub(super) fn truncate(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    length: u64,
    client: &str,
) -> Result<Outcome, FilesError> {
    let refused = |class, words: String| Err(FilesError::new(class, words));
    if length.cast_signed() < 0 {
        let words = format!("Cannot truncate to a negative file size: {}.", length.cast_signed());
        return refused(Class::IllegalArgument, words);
    }
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    permission::check(&namespace.tree, inode, Access::WRITE, context)?;
    let file = inode.file().ok_or_else(|| not_a_file(path))?;
    let old = file.length();
    if file.is_being_cut() {
        if length == old {
            return Ok(Outcome::Read(Reply::Bool(false), inode.txid));
        }
        let machine = context.machine;
        let words =
            format!("Failed to TRUNCATE_FILE {path} for {client} on {machine} because {path} is being truncated.");
        return refused(Class::AlreadyBeingCreated, words);
    }
    if let Some(outcome) = namespace.take_turn(context, ("TRUNCATE_FILE", path), inode, client)? {
        return Ok(outcome);
    }
    if length == old {
        return Ok(Outcome::Read(Reply::Bool(true), inode.txid));
    }
    if length > old {
        let words = format!("Cannot truncate to a larger file size. Current size: {old}, truncate size: {length}.");
        return refused(Class::IllegalArgument, words);
    }
    let mut draft = Draft::new(namespace, context.now);
    draft.row(inode).mtime = context.now;
    let stamp = draft.counters().stamp.next();
    let Some(file) = draft.file(inode) else { return Err(not_a_file(path)) };
    let (mut whole, mut end) = (0, 0);
    while let Some(block) = file.blocks.get(whole)
        && end + block.length <= length
    {
        (whole, end) = (whole + 1, end + block.length);
    }
    if end == length {
        file.blocks.truncate(whole);
        return Ok(Outcome::repeatable(draft, Reply::Bool(true)));
    }
    file.blocks.truncate(whole + 1);
    let block = &mut file.blocks[whole];
    if !namespace.blocks.has(block) {
        let words = format!("truncate: block {} of src={path} is not sufficiently replicated yet.", block.id);
        return refused(Class::Io, words);
    }
    let old = Some(block.stamp);
    (block.stamp, block.length, block.is_committed) = (stamp, length - end, false);
    let (of, least) = (Some((block.id, stamp)), block.length);
    let recovery = Recovery { inode: inode.id, block: of, old, length: Some(least), least };
    let writer = Writer { written: old, ..Writer::new(TRUNCATION, context.machine, Unfinished::Stays) };
    file.writer = Some(Box::new(writer));
    draft.counters().stamp = stamp;
    Ok(Outcome::Closing(Ok(Reply::Bool(false)), draft.done(None), recovery))
}
