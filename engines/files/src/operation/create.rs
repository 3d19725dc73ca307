//! Makes a file, to be written.

use super::Outcome;
use super::mkdirs::place;
use crate::blocks_of_file::BlocksOfFile;
use crate::cache::View;
use crate::change::{BlockSize, File, Kind, RetryAnswer, Unfinished, Writer};
use crate::error::{Class, FilesError};
use crate::namespace::Draft;
use crate::permission::{self, Access};
use crate::request::{self, Context, Reply, Status};
use crate::tree::Inode;

pub(super) fn create(
    namespace: &View<'_>,
    context: &Context<'_>,
    create: &request::Create,
) -> Result<Outcome, FilesError> {
    let request::Create { path, mode, client, replication, block_size, .. } = create;
    if *block_size < namespace.limits.block_size_min {
        let least = namespace.limits.block_size_min;
        let words = format!("Specified block size is less than configured minimum value: {block_size} < {least}");
        return Err(FilesError::new(Class::Io, words));
    }
    if *block_size > BlockSize::LARGEST {
        let words =
            format!("Specified block size of {block_size} bytes is more than the largest, {}", BlockSize::LARGEST);
        return Err(FilesError::new(Class::Io, words));
    }
    if *replication == 0 || *replication > 512 {
        let words = format!("Requested replication factor of {replication} for {path} is not from 1 to 512");
        return Err(FilesError::new(Class::Io, words));
    }
    let at = namespace.resolve(path, context)?;
    at.check_making(&namespace.tree, context)?;
    let mut draft = Draft::new(namespace, context.now);
    let mode = mode.map(|mode| mode & 0o1777);
    let (parent, group) = match (at.inode(), at.parent()) {
        (Some(inode), Some(parent)) => {
            if let Some(outcome) = check_replaced(namespace, context, create, inode)? {
                return Ok(outcome);
            }
            draft.remove(inode.id);
            draft.touch(parent);
            (parent.id, std::sync::Arc::clone(namespace.tree.group(parent)))
        }
        (Some(_), None) => return Err(already_a_directory(path)),
        (None, _) if !create.creates => {
            let words = format!("Can't overwrite non-existent {path} for client {}", context.machine);
            return Err(FilesError::new(Class::FileNotFound, words));
        }
        (None, _) => place(namespace, context, &at, &mut draft, create.with_parents, None)?,
    };
    let unfinished = if create.is_all_or_nothing { Unfinished::Goes } else { Unfinished::Stays };
    let writer = Writer::new(client, context.machine, unfinished);
    let (replication, block_size) = (*replication, *block_size);
    let file = File {
        replication,
        block_size: block_size.into(),
        blocks: BlocksOfFile::default(),
        writer: Some(Box::new(writer)),
    };
    let name = at.names[at.names.len() - 1];
    let row = draft.add(parent, name, mode, context.user, &group, Kind::File(Box::new(file)));
    let (status, id) = (Status::of_new(row), row.id);
    let reply = Reply::Status(Some(Box::new(status)));
    Ok(Outcome::changed(draft, context.call, reply, RetryAnswer::Created(id)))
}

/// Whether a new file may take the place of what is there. If that may stay, and its writer has gone, it begins to be closed, and the client is refused.
fn check_replaced(
    namespace: &View<'_>,
    context: &Context<'_>,
    create: &request::Create,
    inode: &Inode,
) -> Result<Option<Outcome>, FilesError> {
    let request::Create { path, client, .. } = create;
    if inode.is_directory() {
        return Err(already_a_directory(path));
    }
    if create.overwrites {
        // As with a file that is cut to nothing, the sticky bit of its directory does not count.
        return permission::check(&namespace.tree, inode, Access::WRITE, context).map(|()| None);
    }
    if let Some(outcome) = namespace.take_turn(context, ("CREATE_FILE", path), inode, client)? {
        return Ok(Some(outcome));
    }
    let words = format!("{path} for client {} already exists", context.machine);
    Err(FilesError::new(Class::FileAlreadyExists, words))
}

fn already_a_directory(path: &str) -> FilesError {
    FilesError::new(Class::FileAlreadyExists, format!("{path} already exists as a directory"))
}
