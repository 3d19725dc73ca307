//! What is asked of a namespace, and what it answers: values that can go to another process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blocks::{Holder, Place};
use crate::change::{AclEntry, Attribute, AttributeSpace, CallId, File, Kind, Quota, Row, Usage, Writer};
use crate::ids::{BlockId, InodeId, Millis, Stamp};
use crate::tree::{Inode, Tree};

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The instant of the operation.
    pub now: Millis,
    /// The user.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// Whether everything is allowed.
    pub is_superuser: bool,
    /// The call, if it may come again.
    pub call: Option<CallId>,
    /// Where the client is.
    pub machine: &'a str,
    /// A directory all in which the user may take away: that was asked before, because it is much, or elsewhere.
    pub may_empty: Option<InodeId>,
    /// What a directory counts for in quotas: that was counted before, because it is much, or elsewhere.
    pub counted: Option<(InodeId, Usage)>,
}

/// A block as clients name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockName {
    /// Its number.
    pub id: BlockId,
    /// Its generation.
    pub stamp: Stamp,
    /// Its bytes.
    pub length: u64,
}

/// A file that is written, as its writer names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its path when it was opened.
    pub path: String,
    /// Its number, if the client says it: it counts more than the path.
    pub id: Option<InodeId>,
    /// The client.
    pub client: String,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "what stands before an operation says what its fields are")]
pub enum Request {
    /// What is at a path.
    FileInfo { path: String },
    /// What is at a path, with the blocks of a file.
    LocatedInfo { path: String },
    /// Files that are being written, below a path and behind a number.
    OpenFiles { path: String, after: InodeId },
    /// What is in a directory, behind a name.
    Listing { path: String, after: Vec<u8>, with_locations: bool },
    /// The blocks of a range of a file.
    BlockLocations { path: String, offset: u64, length: u64 },
    /// Makes a directory.
    Mkdirs { path: String, mode: Modes, with_parents: bool },
    /// Makes a file, to be written.
    Create(Create),
    /// Opens a file to be written on, in its last block if that has room, or in a new one; perhaps so that all of it counts, or nothing.
    Append { path: String, client: String, is_in_new_block: bool, is_all_or_nothing: bool },
    /// Cuts a file to a length.
    Truncate { path: String, length: u64, client: String },
    /// Moves the blocks of files behind those of another, and removes the files.
    Concat { path: String, sources: Vec<String> },
    /// Ends the block that was written, and begins the next one, on other data nodes than some.
    AddBlock { file: Written, previous: Option<BlockName>, excluded: Vec<Holder> },
    /// Gives up the block that was begun last.
    AbandonBlock { file: Written, block: BlockName },
    /// Ends a file.
    Complete { file: Written, last: Option<BlockName> },
    /// Keeps how long the block that is being written is.
    Fsync { file: Written, length: Option<u64> },
    /// Gives the block that is being written a generation, for a new pipeline.
    NewStamp { block: BlockName, client: String },
    /// The new pipeline writes the block, on these data nodes, and on more if not all that the client named are known.
    UpdatePipeline { client: String, old: BlockName, new: BlockName, places: Vec<Place>, are_all: bool },
    /// Moves; into the target if that is a directory.
    Rename { from: String, to: String },
    /// Moves, to exactly that path.
    Rename2 { from: String, to: String, overwrites: bool },
    /// Takes a file away that was not written to its end, for its writer.
    GiveUp { file: Written },
    /// Deletes.
    Delete { path: String, is_recursive: bool },
    /// Sets permission bits.
    SetPermission { path: String, mode: u16 },
    /// Sets owner or group.
    SetOwner { path: String, owner: Option<String>, group: Option<String> },
    /// Sets when it was changed or read.
    SetTimes { path: String, mtime: Option<Millis>, atime: Option<Millis> },
    /// Sets how many replicas a file should have.
    SetReplication { path: String, replication: u16 },
    /// Sets how much may be in a directory.
    SetQuota { path: String, names: Limit, space: Limit },
    /// How much may be in a directory and is, if that is limited.
    Quota { path: String },
    /// Sets an extended attribute.
    SetAttribute { path: String, attribute: Attribute, creates: bool, replaces: bool },
    /// Removes an extended attribute.
    RemoveAttribute { path: String, space: AttributeSpace, name: String },
    /// Extended attributes of these names, or all.
    Attributes { path: String, names: Vec<(AttributeSpace, String)> },
    /// The names of all extended attributes.
    AttributeNames { path: String },
    /// Changes the access control list.
    EditAcl { path: String, edit: AclEdit },
    /// The access control list.
    Acl { path: String },
    /// Sets on what blocks should be, or that this is as in the directory above.
    SetPolicy { path: String, policy: Option<u8> },
    /// Whether nobody writes a file.
    IsFileClosed { path: String },
    /// The most bytes of a block of a file.
    PreferredBlockSize { path: String },
    /// Whether something is allowed.
    CheckAccess { path: String, mode: u16 },
}

/// The permission bits of something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    /// Without what the mask of the client's process takes away.
    pub masked: u16,
    /// With that, if the client says so: it counts where the directory has default entries.
    pub unmasked: Option<u16>,
}

impl Modes {
    /// Both, each changed.
    pub(crate) fn map(self, change: impl Fn(u16) -> u16) -> Self {
        Self { masked: change(self.masked), unmasked: self.unmasked.map(change) }
    }
}

impl From<u16> for Modes {
    fn from(masked: u16) -> Self {
        Self { masked, unmasked: None }
    }
}

/// What becomes of an access control list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AclEdit {
    /// It has these entries; what it has for the directory, or by default, stays if none of them is about that.
    Replace(Vec<AclEntry>),
    /// It has these entries, too, or these bits in entries that it has.
    Modify(Vec<AclEntry>),
    /// It does not have these entries.
    Remove(Vec<AclEntry>),
    /// It has no default entries.
    RemoveDefault,
    /// There is none.
    Clear,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessList {
    /// Who owns the inode.
    pub owner: Arc<str>,
    /// Its group.
    pub group: Arc<str>,
    /// Permission bits; those of the group are the mask, if there are entries that are not default ones.
    pub mode: u16,
    /// What the bits do not say.
    pub entries: Vec<AclEntry>,
}

/// What becomes of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// It stays.
    Same,
    /// There is none any more.
    None,
    /// So much.
    Most(u64),
}

/// A file that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// Its path.
    pub path: String,
    /// Its permission bits.
    pub mode: Modes,
    /// Who writes it.
    pub client: String,
    /// Whether a file that is there goes.
    pub overwrites: bool,
    /// Whether it may be made at all, or only takes the place of another.
    pub creates: bool,
    /// Whether directories above it that are missing are made.
    pub with_parents: bool,
    /// How many replicas its blocks should have.
    pub replication: u16,
    /// The most bytes that a block of it holds.
    pub block_size: u64,
    /// Whether it goes if it is not written to its end.
    pub is_all_or_nothing: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// A truth value.
    Bool(bool),
    /// What is there, or nothing.
    Status(Option<Box<Status>>),
    /// What is in a directory, or nothing if there is none.
    Listing(Option<Listing>),
    /// Blocks of a file.
    Blocks(Located),
    /// A block.
    Block(LocatedBlock),
    /// Bytes.
    Size(u64),
    /// Files that are being written, and whether there are more.
    OpenFiles(Vec<OpenFile>, bool),
    /// How much may be in a directory, if that is limited.
    Quota(Option<Quota>),
    /// Extended attributes.
    Attributes(Vec<Attribute>),
    /// An access control list.
    Acl(Box<AccessList>),
    /// A file that was opened to be written on, and its last block, if that is not full.
    Appended(Option<LocatedBlock>, Box<Status>),
}

/// What clients hear of an inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its number.
    pub id: InodeId,
    /// Its name in a listing; empty where the client named it.
    pub name: Box<[u8]>,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes of a file.
    pub length: u64,
    /// Permission bits.
    pub mode: u16,
    /// Who owns it.
    pub owner: Arc<str>,
    /// Its group.
    pub group: Arc<str>,
    /// When its content changed last.
    pub mtime: Millis,
    /// When it was read last.
    pub atime: Millis,
    /// How many replicas blocks of a file should have.
    pub replication: u16,
    /// The most bytes of a block of a file.
    pub block_size: u64,
    /// How many children a directory has.
    pub children: usize,
    /// On what its blocks should be, if it or a directory above it says so.
    pub policy: Option<u8>,
    /// Whether it has an access control list.
    pub has_acl: bool,
    /// The blocks of a file, if they were asked for.
    pub blocks: Option<Located>,
}

/// A file that is being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// Its number.
    pub id: InodeId,
    /// Where it is.
    pub path: String,
    /// Who writes it.
    pub writer: Writer,
}

/// A part of what is in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// In the order of names.
    pub entries: Vec<Status>,
    /// How many come behind them.
    pub remaining: usize,
}

/// Blocks of a range of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Bytes of the file, without a block that is being written.
    pub length: u64,
    /// Those of the range.
    pub blocks: Vec<LocatedBlock>,
    /// Whether it is being written.
    pub is_written: bool,
    /// The last one of the file.
    pub last: Option<LocatedBlock>,
    /// Whether the last one is complete.
    pub is_last_complete: bool,
}

/// A block and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocatedBlock {
    /// The block.
    pub block: BlockName,
    /// Where in its file it begins.
    pub offset: u64,
    /// Whether it was found damaged.
    pub is_corrupt: bool,
    /// The data nodes that have it, or are to write it, in the order in which clients try them, or in that of the pipeline.
    pub places: Vec<Place>,
}

impl LocatedBlock {
    /// Whether any data node has it, or is to write it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        !self.places.is_empty()
    }
}

impl Status {
    /// Of an inode, under its name.
    pub(crate) fn of(tree: &Tree, inode: &Inode) -> Self {
        let file = inode.file();
        Self {
            id: inode.id,
            name: inode.name.clone(),
            is_directory: inode.is_directory(),
            length: file.map_or(0, File::length),
            mode: inode.mode(),
            owner: Arc::clone(tree.owner(inode)),
            group: Arc::clone(tree.group(inode)),
            mtime: inode.mtime(),
            atime: inode.atime(),
            replication: file.map_or(0, |file| file.replication),
            block_size: file.map_or(0, |file| file.block_size.bytes()),
            children: inode.child_count(),
            policy: tree.policy(inode),
            has_acl: !inode.acl().is_empty(),
            blocks: None,
        }
    }

    /// Of a file that is being made.
    pub(crate) fn of_new(row: &Row) -> Self {
        let (replication, block_size) = match &row.kind {
            Kind::File(file) => (file.replication, file.block_size.bytes()),
            Kind::Directory => (0, 0),
        };
        Self {
            id: row.id,
            name: Box::default(),
            is_directory: row.kind == Kind::Directory,
            length: 0,
            mode: row.mode,
            owner: Arc::clone(&row.owner),
            group: Arc::clone(&row.group),
            mtime: row.mtime,
            atime: row.atime,
            replication,
            block_size,
            children: 0,
            policy: None,
            has_acl: row.more.as_ref().is_some_and(|more| !more.acl.is_empty()),
            blocks: None,
        }
    }

    /// The same without a name, for whoever named it.
    pub(crate) fn unnamed(mut self) -> Self {
        self.name = Box::default();
        self
    }
}
