//! Who may do what: owner, group and others, as in POSIX, without access control lists.

use crate::error::{Class, FilesError};
use crate::request::Context;
use crate::tree::{Inode, Tree};

/// What somebody wants to do with an inode; bits of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u16);

impl Access {
    /// To read a file, or list a directory.
    pub const READ: Self = Self(4);
    /// To change a file, or what is in a directory.
    pub const WRITE: Self = Self(2);
    /// To go through a directory.
    pub const EXECUTE: Self = Self(1);

    /// The three bits of a request.
    #[must_use]
    pub const fn of_bits(bits: u16) -> Self {
        Self(bits & 7)
    }

    fn symbols(self) -> String {
        [(4, 'r'), (2, 'w'), (1, 'x')]
            .map(|(bit, symbol)| if self.0 & bit == 0 { '-' } else { symbol })
            .iter()
            .collect()
    }
}

/// Whether the bits of an owner, a group and others allow something.
pub(crate) fn allows(owner: &str, group: &str, mode: u16, wanted: Access, context: &Context<'_>) -> bool {
    let shift = if *owner == *context.user {
        6
    } else if context.groups.iter().any(|name| **name == *group) {
        3
    } else {
        0
    };
    context.is_superuser || (mode >> shift) & wanted.0 == wanted.0
}

/// Whether a user may do something with an inode.
///
/// # Errors
/// [`Class::AccessControl`].
pub fn check(tree: &Tree, inode: &Inode, wanted: Access, context: &Context<'_>) -> Result<(), FilesError> {
    if context.is_superuser {
        return Ok(());
    }
    let (owner, group) = (tree.owner(inode), tree.group(inode));
    if allows(owner, group, inode.mode, wanted, context) {
        return Ok(());
    }
    let bits = [6, 3, 0].map(|shift| Access(inode.mode >> shift & 7).symbols()).concat();
    let kind = if inode.is_directory() { 'd' } else { '-' };
    Err(FilesError::new(
        Class::AccessControl,
        format!(
            "Permission denied: user={}, access={}, inode=\"{}\":{owner}:{group}:{kind}{bits}",
            context.user,
            wanted.name(),
            crate::namespace::path_in(tree, inode.id).unwrap_or_default(),
        ),
    ))
}

impl Access {
    /// As HDFS writes it.
    const fn name(self) -> &'static str {
        match self.0 & 7 {
            0 => "NONE",
            1 => "EXECUTE",
            2 => "WRITE",
            3 => "WRITE_EXECUTE",
            4 => "READ",
            5 => "READ_EXECUTE",
            6 => "READ_WRITE",
            _ => "ALL",
        }
    }
}

/// Whether a user may remove an inode from its directory, or move it away: with the sticky bit only owners may.
///
/// # Errors
/// [`Class::AccessControl`].
pub fn check_removal(tree: &Tree, directory: &Inode, inode: &Inode, context: &Context<'_>) -> Result<(), FilesError> {
    check(tree, directory, Access::WRITE, context)?;
    let is_sticky = directory.mode & 0o1000 != 0;
    let owns = |inode: &Inode| **tree.owner(inode) == *context.user;
    if !is_sticky || context.is_superuser || owns(directory) || owns(inode) {
        return Ok(());
    }
    let name = String::from_utf8_lossy(&inode.name);
    let words =
        format!("Permission denied by sticky bit: user={}, name={name}, owner={}", context.user, tree.owner(inode));
    Err(FilesError::new(Class::AccessControl, words))
}

/// Whether a user may change what belongs to the owner of an inode.
///
/// # Errors
/// [`Class::AccessControl`].
pub fn check_owner(tree: &Tree, inode: &Inode, context: &Context<'_>) -> Result<(), FilesError> {
    if context.is_superuser || **tree.owner(inode) == *context.user {
        return Ok(());
    }
    let path = crate::namespace::path_in(tree, inode.id).unwrap_or_default();
    let words = format!("Permission denied. user={} is not the owner of inode={path}", context.user);
    Err(FilesError::new(Class::AccessControl, words))
}
