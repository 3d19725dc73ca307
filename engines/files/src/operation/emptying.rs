//! Whether a user may take away all that is in a directory, as HDFS asks it: everything in each directory there that is not empty, and where one has
//! the sticky bit, that what is in it is its own.

use super::summary::Rights;
use crate::error::{Class, FilesError};
use crate::ids::InodeId;
use crate::namespace::Namespace;
use crate::permission::{self, Access};
use crate::request::Context;
use crate::tree::{Covered, Tree};

/// A walk that asks, a part at a time. What changes while it is under way may be asked for or not.
#[derive(Debug)]
pub struct Emptying {
    root: InodeId,
    /// The directories that are left, each with the name that was looked at last.
    open: Vec<(InodeId, Box<[u8]>)>,
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// There may be more.
    More,
    /// The user may.
    All,
    /// Not all of this directory is here.
    NotHere(InodeId),
}

impl Emptying {
    /// A walk that begins at a directory.
    #[must_use]
    pub fn of(root: InodeId) -> Self {
        Self { root, open: vec![(root, Box::default())] }
    }

    /// Looks at some more inodes.
    ///
    /// # Errors
    /// [`Class::AccessControl`].
    pub fn go_on(&mut self, namespace: &Namespace, context: &Context<'_>, inodes: usize) -> Result<Asked, FilesError> {
        self.go_over(&namespace.tree, context, inodes)
    }

    pub(super) fn go_over(&mut self, tree: &Tree, context: &Context<'_>, inodes: usize) -> Result<Asked, FilesError> {
        let mut left = inodes;
        while let Some((id, after)) = self.open.pop() {
            let directory = match tree.get(id) {
                Some(directory) if !tree.is_part() || *directory.covered() == Covered::All => directory,
                None if !tree.is_part() => continue,
                _ => return Ok(Asked::NotHere(self.root)),
            };
            if directory.child_count() == 0 {
                continue;
            }
            permission::check(tree, directory, Access::ALL, context)?;
            let mut last = None;
            for inode in tree.children(id, &after).take(left) {
                left -= 1;
                permission::check_sticky(tree, directory, inode, context)?;
                if inode.is_directory() {
                    self.open.push((inode.id, Box::default()));
                }
                last = Some(&inode.name);
            }
            if left == 0 {
                // Behind what was looked at there may be more.
                self.open.push((id, last.cloned().unwrap_or(after)));
                return Ok(Asked::More);
            }
        }
        Ok(Asked::All)
    }
}

/// Something in a subtree that may be taken away or not, as a database says it; paths are not known there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// Of directories that are not empty, who may do what.
    pub rights: Option<Rights>,
    /// Of what is in a directory with the sticky bit, who owns the directory, and who owns it.
    pub sticky: Option<[String; 2]>,
}

impl Below {
    /// Whether a user may take it away.
    ///
    /// # Errors
    /// [`Class::AccessControl`].
    pub fn check(&self, context: &Context<'_>) -> Result<(), FilesError> {
        let user = context.user;
        if let Some(rights) = &self.rights {
            rights.check_of_some(Access::ALL, context)?;
        }
        match &self.sticky {
            Some([of_directory, owner]) if !context.is_superuser && of_directory != user && owner != user => {
                let words = format!("Permission denied by sticky bit: user={user}, something below, owner={owner}");
                Err(FilesError::new(Class::AccessControl, words))
            }
            _ => Ok(()),
        }
    }
}
