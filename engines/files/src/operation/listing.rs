//! What is in a directory.

use super::Outcome;
use super::status::entry;
use crate::cache::View;
use crate::error::FilesError;
use crate::permission::{self, Access};
use crate::request::{Context, Listing, Reply};

/// A page of a directory behind a name, which need not be there any more; of a file the file itself.
pub(super) fn listing(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    after: &[u8],
    with_locations: bool,
) -> Result<Outcome, FilesError> {
    let at = namespace.resolve(path, context)?;
    let Some(inode) = at.inode() else { return Ok(Outcome::Read(Reply::Listing(None), at.depends)) };
    if !inode.is_directory() {
        let entries = vec![entry(namespace, inode, with_locations).unnamed()];
        return Ok(Outcome::Read(Reply::Listing(Some(Listing { entries, remaining: 0 })), at.depends));
    }
    permission::check(&namespace.tree, inode, Access::LIST, context)?;
    let (mut entries, mut depends) = (Vec::new(), at.depends);
    // A page has as many blocks at most, too, or one file.
    let mut room = namespace.limits.listing;
    for child in namespace.tree.children(inode, after).take(namespace.limits.listing) {
        depends = depends.max(child.txid);
        let entry = entry(namespace, child, with_locations);
        let blocks = entry.blocks.as_ref().map_or(0, |located| located.blocks.len());
        entries.push(entry);
        room = room.saturating_sub(blocks);
        if room == 0 {
            break;
        }
    }
    let last = entries.last().map_or(after, |entry| &*entry.name);
    let remaining = namespace.tree.count_after(inode, last);
    Ok(Outcome::Read(Reply::Listing(Some(Listing { entries, remaining })), depends))
}
