//! Makes one file of several.

use super::Outcome;
use super::status::not_a_file;
use crate::cache::View;
use crate::change::RetryAnswer;
use crate::error::{Class, FilesError};
use crate::namespace::{Draft, Resolved};
use crate::permission::{self, Access};
use crate::request::{Context, Reply};
use crate::tree::Inode;

/// Moves the blocks of files behind those of another, and removes the files.
pub(super) fn concat(
    namespace: &View<'_>,
    context: &Context<'_>,
    path: &str,
    sources: &[String],
) -> Result<Outcome, FilesError> {
    if sources.is_empty() {
        return Err(illegal("No sources given".to_owned()));
    }
    let at = namespace.resolve(path, context)?;
    let target = at.existing()?;
    permission::check(&namespace.tree, target, Access::WRITE, context)?;
    let file = target.file().ok_or_else(|| not_a_file(path))?;
    if file.writer.is_some() {
        return Err(illegal(format!("concat: target file {path} is under construction")));
    }
    let mut moved: Vec<&Inode> = Vec::new();
    for source in sources {
        let source = source_of(namespace, context, source, &at, target)?;
        if moved.iter().any(|other| other.id == source.id) {
            return Err(illegal("concat: at least two of the source files are the same".to_owned()));
        }
        moved.push(source);
    }
    let blocks: Vec<_> = moved.iter().filter_map(|source| source.file()).flat_map(|file| &file.blocks).collect();
    let (count, most) = (file.blocks.len() + blocks.len(), namespace.limits.blocks);
    if count > most {
        return Err(illegal(format!("concat: {path} would have {count} blocks; expected at most {most}")));
    }
    let mut draft = Draft::new(namespace, context.now);
    if let Some(parent) = at.parent() {
        draft.touch(parent);
    }
    draft.row(target).mtime = context.now;
    if let Some(file) = draft.file(target) {
        file.blocks.edit(|all| all.extend(blocks));
    }
    moved.iter().for_each(|source| draft.remove(source.id));
    Ok(Outcome::changed(draft, context.call, Reply::Done, RetryAnswer::Done))
}

/// A file whose blocks may move to another of its directory.
fn source_of<'t>(
    namespace: &'t View<'_>,
    context: &Context<'_>,
    path: &str,
    to: &Resolved<'_, '_>,
    target: &Inode,
) -> Result<&'t Inode, FilesError> {
    let at = namespace.resolve(path, context)?;
    let inode = at.existing()?;
    permission::check(&namespace.tree, inode, Access::READ, context)?;
    if let Some(parent) = at.parent() {
        permission::check(&namespace.tree, parent, Access::WRITE, context)?;
    }
    let file = inode.file().ok_or_else(|| not_a_file(path))?;
    if inode.parent != target.parent {
        let words = format!("Source file {path} is not in the same directory with the target {}", to.path);
        return Err(illegal(words));
    }
    if inode.id == target.id {
        let words = format!("concat: the src file {path} is the same with the target file {}", to.path);
        return Err(illegal(words));
    }
    if file.writer.is_some() || file.blocks.is_empty() {
        return Err(illegal(format!("concat: source file {path} is invalid or empty or underConstruction")));
    }
    let most = target.file().map_or(0, |file| file.block_size.bytes());
    if file.block_size.bytes() > most {
        let words = format!(
            "concat: source file {path} has preferred block size {} which is greater than the target file's preferred block size {most}",
            file.block_size.bytes()
        );
        return Err(illegal(words));
    }
    Ok(inode)
}

fn illegal(words: String) -> FilesError {
    FilesError::new(Class::IllegalArgument, words)
}
