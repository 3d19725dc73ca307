//! How much a subtree holds, counted a part at a time, so that writers get their turns.

use serde::{Deserialize, Serialize};

use crate::cache::{Known, Missing};
use crate::change::{AclEntry, Quota};
use crate::error::{Class, FilesError};
use crate::ids::{InodeId, Txid};
use crate::namespace::Namespace;
use crate::permission::{self, Access};
use crate::request::Context;
use crate::tree::{Covered, Inode};

/// What a subtree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Bytes of its files.
    pub length: u64,
    /// Bytes of their replicas.
    pub space: u64,
    /// Files.
    pub files: u64,
    /// Directories, with the one that it begins at.
    pub directories: u64,
    /// How much may be in it, if that is limited.
    pub quota: Option<Quota>,
}

/// A walk over a subtree. What changes while it is under way may be counted or not.
#[derive(Debug)]
pub struct Walk {
    /// Where it began.
    root: InodeId,
    /// The directories that are left, each with the name that was counted last.
    open: Vec<(InodeId, Box<[u8]>)>,
    summary: Summary,
    depends: Txid,
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// There may be more.
    More,
    /// That is all, and the newest change in it.
    All(Summary, Txid),
    /// Not all of this subtree is here.
    NotHere(InodeId),
}

/// Who may do what with a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Who owns it.
    pub owner: String,
    /// Its group.
    pub group: String,
    /// Permission bits.
    pub mode: u16,
    /// What it keeps of an access control list.
    pub acl: Vec<AclEntry>,
}

impl Rights {
    /// Whether a directory may be listed whose path is not known.
    ///
    /// # Errors
    /// [`Class::AccessControl`].
    pub fn check_list(&self, context: &Context<'_>) -> Result<(), FilesError> {
        self.check_of_some(Access::LIST, context)
    }

    /// Whether something may be done with a directory whose path is not known.
    pub(super) fn check_of_some(&self, wanted: Access, context: &Context<'_>) -> Result<(), FilesError> {
        let Self { owner, group, mode, acl } = self;
        if (permission::Rights { owner, group, mode: *mode, acl }).allow(wanted, context) {
            return Ok(());
        }
        let (user, access) = (context.user, wanted.name());
        let words =
            format!("Permission denied: user={user}, access={access}, a directory below:{owner}:{group}:{mode:o}");
        Err(FilesError::new(Class::AccessControl, words))
    }
}

impl Walk {
    /// A walk that begins at a path; refused if nothing is there, or it may not be read.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn begin(
        namespace: &Namespace,
        context: &Context<'_>,
        path: &str,
        known: Option<&Known>,
    ) -> Result<Result<Self, FilesError>, Missing> {
        namespace.look(known, |view| {
            let path = view.named_path(path)?;
            let at = view.resolve(&path, context)?;
            let inode = at.existing()?;
            let summary = Summary { quota: inode.quota().copied(), ..Summary::default() };
            let mut walk = Self { root: inode.id, open: Vec::new(), summary, depends: at.depends };
            if inode.is_directory() {
                permission::check(&view.tree, inode, Access::LIST, context)?;
            }
            walk.count(inode);
            Ok(walk)
        })
    }

    /// How much may be where it began, if that is limited.
    #[must_use]
    pub const fn quota(&self) -> Option<Quota> {
        self.summary.quota
    }

    /// Counts some more inodes.
    ///
    /// # Errors
    /// A directory may not be read.
    pub fn go_on(
        &mut self,
        namespace: &Namespace,
        context: &Context<'_>,
        inodes: usize,
    ) -> Result<Counted, FilesError> {
        let tree = &namespace.tree;
        let mut left = inodes;
        while let Some((directory, after)) = self.open.pop() {
            let is_here = tree.get(directory).is_some_and(|inode| *inode.covered() == Covered::All);
            if tree.is_part() && !is_here {
                return Ok(Counted::NotHere(self.root));
            }
            let mut last = None;
            for inode in tree.children(directory, &after).take(left) {
                left -= 1;
                if inode.is_directory() {
                    permission::check(tree, inode, Access::LIST, context)?;
                }
                self.count(inode);
                last = Some(inode.name.clone());
            }
            if left == 0 {
                // Behind what was counted there may be more.
                self.open.insert(0, (directory, last.unwrap_or(after)));
                return Ok(Counted::More);
            }
        }
        Ok(Counted::All(self.summary, self.depends))
    }

    fn count(&mut self, inode: &Inode) {
        self.depends = self.depends.max(inode.txid);
        match inode.file() {
            Some(file) => {
                self.summary.files += 1;
                self.summary.length = self.summary.length.saturating_add(file.length());
                let space = file.length().saturating_mul(file.replication.into());
                self.summary.space = self.summary.space.saturating_add(space);
            }
            None => {
                self.summary.directories += 1;
                self.open.push((inode.id, Box::default()));
            }
        }
    }
}
