//! Why an operation is refused.

use serde::{Deserialize, Serialize};

/// What kind of refusal it is; clients decide by it what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// A path names nothing.
    FileNotFound,
    /// A path goes through a file.
    ParentNotDirectory,
    /// A path names a file where a directory is needed.
    PathIsNotDirectory,
    /// Something has the name.
    FileAlreadyExists,
    /// A directory has something in it.
    PathIsNotEmptyDirectory,
    /// A path is none.
    InvalidPath,
    /// A name is too long.
    NameTooLong,
    /// A directory has too many names.
    DirectoryFull,
    /// A directory may not have more names in its subtree.
    NamesQuota,
    /// A directory may not have more bytes in its subtree.
    SpaceQuota,
    /// The user may not.
    AccessControl,
    /// Entries are no access control list.
    Acl,
    /// Another client writes the file.
    AlreadyBeingCreated,
    /// The lease of an earlier writer is being ended.
    RecoveryInProgress,
    /// The client does not write the file, or not any more.
    LeaseExpired,
    /// A block was not reported yet; it will be.
    NotReplicatedYet,
    /// Changes are refused for now, because somebody wants it so.
    SafeMode,
    /// An argument is none.
    IllegalArgument,
    /// There is no such operation here.
    Unsupported,
    /// It may be tried again.
    Retriable,
    /// A data node may not report all that it has now.
    ReportLease,
    /// Somebody else has it: it may be asked for there.
    Standby,
    /// Anything else.
    Io,
}

/// Why an operation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct FilesError {
    /// What kind it is.
    pub class: Class,
    /// In words, as HDFS says it where programs read it.
    pub message: String,
}

impl FilesError {
    /// A refusal.
    #[must_use]
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// The user is not the superuser.
    #[must_use]
    pub fn not_superuser(user: &str) -> Self {
        Self::new(Class::AccessControl, format!("Access denied for user {user}. Superuser privilege is required"))
    }

    /// A file that is not there.
    #[must_use]
    pub fn no_file(path: &str) -> Self {
        Self::new(Class::FileNotFound, format!("File does not exist: {path}"))
    }
}
