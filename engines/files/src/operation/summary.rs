//! How much a subtree holds, counted a part at a time, so that writers get their turns.

use crate::error::FilesError;
use crate::ids::{InodeId, Txid};
use crate::namespace::Namespace;
use crate::permission::{self, Access};
use crate::request::Context;

/// What a subtree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of its files.
    pub length: u64,
    /// Bytes of their replicas.
    pub space: u64,
    /// Files.
    pub files: u64,
    /// Directories, with the one that it begins at.
    pub directories: u64,
}

/// A walk over a subtree. What changes while it is under way may be counted or not.
#[derive(Debug)]
pub struct Walk {
    /// The directories that are left, each with the name that was counted last.
    open: Vec<(InodeId, Box<[u8]>)>,
    summary: Summary,
    depends: Txid,
}

impl Walk {
    /// A walk that begins at a path.
    ///
    /// # Errors
    /// Nothing is there, or it may not be read.
    pub fn begin(namespace: &Namespace, context: &Context<'_>, path: &str) -> Result<Self, FilesError> {
        let at = namespace.resolve(path, context)?;
        let inode = at.existing()?;
        let mut walk = Self { open: Vec::new(), summary: Summary::default(), depends: at.depends };
        if inode.is_directory() {
            permission::check(&namespace.tree, inode, Access::READ, context)?;
        }
        walk.count(inode);
        Ok(walk)
    }

    /// Counts some more inodes. The result and the newest change in it, when all are counted.
    ///
    /// # Errors
    /// A directory may not be read.
    pub fn go_on(
        &mut self,
        namespace: &Namespace,
        context: &Context<'_>,
        inodes: usize,
    ) -> Result<Option<(Summary, Txid)>, FilesError> {
        let mut left = inodes;
        while let Some((directory, after)) = self.open.pop() {
            let mut last = None;
            for inode in namespace.tree.children(directory, &after).take(left) {
                left -= 1;
                if inode.is_directory() {
                    permission::check(&namespace.tree, inode, Access::READ, context)?;
                }
                self.count(inode);
                last = Some(inode.name.clone());
            }
            if left == 0 {
                // Behind what was counted there may be more.
                self.open.insert(0, (directory, last.unwrap_or(after)));
                return Ok(None);
            }
        }
        Ok(Some((self.summary, self.depends)))
    }

    fn count(&mut self, inode: &crate::tree::Inode) {
        self.depends = self.depends.max(inode.txid);
        match inode.file() {
            Some(file) => {
                self.summary.files += 1;
                self.summary.length += file.length();
                self.summary.space += file.length() * u64::from(file.replication);
            }
            None => {
                self.summary.directories += 1;
                self.open.push((inode.id, Box::default()));
            }
        }
    }
}
