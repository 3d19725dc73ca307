//! Who may do what: owner, group and others, and whom a list names, as in POSIX.

use crate::change::{AclEntry, AclKind};
use crate::error::{Class, FilesError};
use crate::request::Context;
use crate::tree::{Inode, Tree};

/// What somebody wants to do with an inode; bits of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u16);

impl Access {
    /// To read a file.
    pub const READ: Self = Self(4);
    /// To change a file, or what is in a directory.
    pub const WRITE: Self = Self(2);
    /// To go through a directory.
    pub const EXECUTE: Self = Self(1);
    /// To see what is in a directory.
    pub const LIST: Self = Self(5);
    /// To do whatever there is: to take away what is in a directory.
    pub const ALL: Self = Self(7);

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

/// What says who may do what with an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights<'a> {
    pub(crate) owner: &'a str,
    pub(crate) group: &'a str,
    pub(crate) mode: u16,
    /// What it keeps of an access control list.
    pub(crate) acl: &'a [AclEntry],
}

impl Rights<'_> {
    /// Whether a user may do something.
    pub(crate) fn allow(&self, wanted: Access, context: &Context<'_>) -> bool {
        let grants = |bits: u16| bits & wanted.0 == wanted.0;
        let [owner, class, other] = [6, 3, 0].map(|shift| self.mode >> shift & 7);
        if context.is_superuser || *self.owner == *context.user {
            return context.is_superuser || grants(owner);
        }
        let is_member = |group: &str| context.groups.iter().any(|name| **name == *group);
        if self.acl.first().is_none_or(|entry| entry.is_default) {
            return grants(if is_member(self.group) { class } else { other });
        }
        let mut is_named = false;
        for entry in self.acl.iter().take_while(|entry| !entry.is_default) {
            // Where there is a list, the mask is in the place of the group's bits.
            let is_granted = grants(u16::from(entry.bits) & class);
            match (entry.kind, entry.name.as_deref()) {
                (AclKind::User, Some(name)) if name == context.user => return is_granted,
                (AclKind::Group, name) if is_member(name.unwrap_or(self.group)) => {
                    if is_granted {
                        return true;
                    }
                    is_named = true;
                }
                _ => {}
            }
        }
        // Who is in a group that the list names is not one of the others.
        !is_named && grants(other)
    }
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
    if (Rights { owner, group, mode: inode.mode(), acl: inode.acl() }).allow(wanted, context) {
        return Ok(());
    }
    let bits = [6, 3, 0].map(|shift| Access(inode.mode() >> shift & 7).symbols()).concat();
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
    pub(crate) const fn name(self) -> &'static str {
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
    check_sticky(tree, directory, inode, context)
}

/// Whether the sticky bit of a directory keeps a user from taking an inode out of it.
///
/// # Errors
/// [`Class::AccessControl`].
pub fn check_sticky(tree: &Tree, directory: &Inode, inode: &Inode, context: &Context<'_>) -> Result<(), FilesError> {
    let is_sticky = directory.mode() & 0o1000 != 0;
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
