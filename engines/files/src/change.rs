//! What an operation changes: rows as they are afterwards. It is the record of the log, and what the tree takes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blocks_of_file::BlocksOfFile;
use crate::ids::{BlockId, InodeId, Millis, Stamp, Txid};

/// All changes of one operation. To apply one twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number.
    pub txid: Txid,
    /// When the operation was done.
    pub at: Millis,
    /// The numbers that were given last.
    pub counters: Counters,
    /// Inodes that were made or changed, as they are now. A directory comes before what is in it.
    pub rows: Vec<Row>,
    /// Inodes that went, a directory after what was in it.
    pub gone: Vec<InodeId>,
    /// How a call is answered when it comes again.
    pub retry: Option<Retry>,
}

/// The numbers that were given last; none is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The newest inode.
    pub inode: InodeId,
    /// The newest block.
    pub block: BlockId,
    /// The newest generation stamp.
    pub stamp: Stamp,
}

impl Default for Counters {
    /// What HDFS begins after.
    fn default() -> Self {
        Self { inode: InodeId::ROOT, block: BlockId(1 << 30), stamp: Stamp(1_000) }
    }
}

/// An inode as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub id: InodeId,
    /// The directory that it is in.
    pub parent: InodeId,
    /// Its name there.
    pub name: Box<[u8]>,
    /// Who owns it.
    pub owner: Arc<str>,
    /// The group that it belongs to.
    pub group: Arc<str>,
    /// Permission bits, with the sticky bit.
    pub mode: u16,
    /// When its content changed last.
    pub mtime: Millis,
    /// When it was read last, as far as that is kept.
    pub atime: Millis,
    /// What it is.
    pub kind: Kind,
    /// What few inodes have; none if that is nothing.
    pub more: Option<Box<More>>,
}

impl Row {
    /// Changes what few inodes have.
    pub(crate) fn edit(&mut self, edit: impl FnOnce(&mut More)) {
        let mut more = self.more.take().unwrap_or_default();
        edit(&mut more);
        self.more = Some(more).filter(|more| **more != More::default());
    }

    /// What it has if it is a file.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.kind {
            Kind::Directory => None,
            Kind::File(file) => Some(file),
        }
    }
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File(Box<File>),
}

/// What few inodes have beside what every inode has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct More {
    /// What the mode does not say of an access control list: named users, the group, named groups, then all default entries, in the order of entries.
    pub acl: Vec<AclEntry>,
    /// Attributes, in the order of their names.
    pub attributes: Vec<Attribute>,
    /// On what its blocks should be; without a number as its directory says.
    pub policy: Option<u8>,
    /// How much may be in a directory.
    pub quota: Option<Quota>,
}

impl More {
    /// Releases that know an earlier one do not look at access control lists.
    const FORMAT: u8 = 2;
    const OLDEST: u8 = 1;

    /// Bytes of its attributes.
    pub(crate) fn attribute_bytes(&self) -> usize {
        self.attributes.iter().map(|attribute| attribute.name.len() + attribute.value.len()).sum()
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // As that of a change.
        postcard::to_extend(self, vec![Self::FORMAT]).unwrap_or_default()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        match bytes.split_first() {
            Some((Self::OLDEST..=Self::FORMAT, rest)) => Ok(postcard::from_bytes(rest)?),
            other => Err(FormatError::Format { came: other.map(|(format, _)| *format) }),
        }
    }
}

/// An entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AclEntry {
    /// Whether it is for what is made in a directory, rather than for the directory.
    pub is_default: bool,
    /// For whom it is.
    pub kind: AclKind,
    /// The user or group; none for the owner, or the group of the inode.
    pub name: Option<Arc<str>>,
    /// Three permission bits.
    pub bits: u8,
}

/// For whom an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AclKind {
    /// A user.
    User,
    /// A group.
    Group,
    /// The most that others than the owner may who are named.
    Mask,
    /// Everybody else.
    Other,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Who may see it.
    pub space: AttributeSpace,
    /// Its name there.
    pub name: Box<str>,
    /// What it says.
    pub value: Box<[u8]>,
}

/// Who may see an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AttributeSpace {
    /// Who may read or write the inode.
    User,
    /// The superuser.
    Trusted,
    /// The name node.
    Security,
    /// The name node.
    System,
    /// Who reads what is not decrypted.
    Raw,
}

/// How much may be in a directory, and how much is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The most files and directories, with itself.
    pub names: Option<u64>,
    /// The most bytes of replicas.
    pub space: Option<u64>,
    /// What there is.
    pub used: Usage,
}

/// What a subtree counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Files and directories, with the one that it begins at.
    pub names: u64,
    /// Bytes of replicas; of a block that is being written as many as it may have.
    pub space: u64,
}

/// What a file has beside what every inode has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// How many replicas its blocks should have.
    pub replication: u16,
    /// The most bytes that a block of it holds.
    pub block_size: BlockSize,
    /// Its blocks, in their order.
    pub blocks: BlocksOfFile,
    /// Who writes it, if it is being written: few files are.
    pub writer: Option<Box<Writer>>,
}

/// The most bytes that a block holds, in six bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct BlockSize([u8; 6]);

impl BlockSize {
    /// The largest: 256 TiB.
    pub const LARGEST: u64 = (1 << 48) - 1;

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        let Self([a, b, c, d, e, f]) = self;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl From<u64> for BlockSize {
    /// Of what is larger, the largest.
    fn from(bytes: u64) -> Self {
        let [_, _, bytes @ ..] = bytes.min(Self::LARGEST).to_be_bytes();
        Self(bytes)
    }
}

impl From<BlockSize> for u64 {
    fn from(size: BlockSize) -> Self {
        size.bytes()
    }
}

impl File {
    /// Whether the data node is to cut its last block to the length that the block has here.
    #[must_use]
    pub fn is_being_cut(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| *writer.client == *TRUNCATION)
    }

    /// Bytes of its replicas; of a block that a client writes as many as it may have.
    #[must_use]
    pub fn space(&self) -> u64 {
        let is_written = self.writer.as_ref().is_some_and(|writer| !CLOSERS.contains(&&*writer.client));
        let bytes = self.blocks.iter().map(|block| match is_written && !block.is_committed {
            true => block.length.max(self.block_size.bytes()),
            false => block.length,
        });
        bytes.fold(0, u64::saturating_add).saturating_mul(self.replication.into())
    }

    /// Bytes of its blocks; of the last one as far as it is known while it is written.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.blocks.iter().map(|block| block.length).sum()
    }
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its number.
    pub id: BlockId,
    /// Its generation.
    pub stamp: Stamp,
    /// Its bytes; of one that is being written as far as the writer has said.
    pub length: u64,
    /// Whether its writer has said that this is all.
    pub is_committed: bool,
}

/// Who has the lease of a file that is being closed because its writer has gone.
pub const RECOVERY: &str = "savanna_recovery";
/// Who has the lease of a file whose last block is being cut.
pub const TRUNCATION: &str = "savanna_truncation";
/// Clients that the name node is itself.
pub const CLOSERS: [&str; 2] = [RECOVERY, TRUNCATION];

/// Who writes a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The name that the client gave itself; its lease has it.
    pub client: Arc<str>,
    /// Where it is.
    pub machine: Arc<str>,
    /// What becomes of the file if it does not come to its end.
    pub unfinished: Unfinished,
    /// The generation under which its last block was written, once the name node ends that under another one: what is older does not have all of it.
    pub written: Option<Stamp>,
}

impl Writer {
    /// A client that writes.
    pub(crate) fn new(client: &str, machine: &str, unfinished: Unfinished) -> Self {
        Self { client: client.into(), machine: machine.into(), unfinished, written: None }
    }
}

/// What becomes of a file whose writer does not come to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unfinished {
    /// It is closed with what there is: its writer was told how much of it is kept.
    #[default]
    Stays,
    /// It goes, because its writer was told nothing of it, and it was new.
    Goes,
    /// It has as many bytes as it had before.
    CutTo(u64),
}

/// A call that is done once, however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The client, as it chose.
    pub client: [u8; 16],
    /// The number of its call.
    pub call: i32,
}

/// How a call is answered when it comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The call.
    pub call: CallId,
    /// Its answer.
    pub answer: RetryAnswer,
}

/// The answer to a call that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryAnswer {
    /// Done.
    Done,
    /// A truth value.
    Bool(bool),
    /// The file that was made.
    Created(InodeId),
    /// The file that was opened to be written on.
    Appended(InodeId),
}

/// The first byte of a change in the log. A change of the form below needs another number.
const FORMAT: u8 = 6;
/// The oldest that is read: [`RetryAnswer::Appended`] came after it.
const OLDEST: u8 = 1;
/// The last one whose rows have nothing more.
const WITHOUT_MORE: u8 = 2;
/// The last one whose writers do not say what becomes of their files. (3 is the same: releases that know no later one do not look at access control
/// lists.)
const WITHOUT_UNFINISHED: u8 = 4;
/// The last one whose writers do not say under which generation they wrote.
const WITHOUT_WRITTEN: u8 = 5;

/// Why bytes are no change.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Of another release.
    #[error("expected a change of format {OLDEST} to {FORMAT}, came {came:?}; open it with the release that wrote it")]
    Format {
        /// Its format, if there is any byte.
        came: Option<u8>,
    },
    /// Cut or damaged.
    #[error("a change of the namespace cannot be read: {0}")]
    Damaged(#[from] postcard::Error),
}

impl Change {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Writing into memory fails only for types that do not say how long they are, and there are none.
        postcard::to_extend(self, vec![FORMAT]).unwrap_or_default()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        match bytes.split_first() {
            Some((format, rest)) if (OLDEST..=FORMAT).contains(format) => Ok(match *format {
                format if format <= WITHOUT_MORE => postcard::from_bytes::<OldChange<(), ()>>(rest)?.into(),
                format if format <= WITHOUT_UNFINISHED => {
                    postcard::from_bytes::<OldChange<Option<Box<More>>, ()>>(rest)?.into()
                }
                format if format <= WITHOUT_WRITTEN => {
                    postcard::from_bytes::<OldChange<Option<Box<More>>, Unfinished>>(rest)?.into()
                }
                _ => postcard::from_bytes(rest)?,
            }),
            other => Err(FormatError::Format { came: other.map(|(format, _)| *format) }),
        }
    }
}

/// A change whose writers do not say under which generation they wrote. `M` is what its rows have more, and `U` what its writers say of what becomes of
/// their files.
#[derive(Deserialize)]
struct OldChange<M, U> {
    txid: Txid,
    at: Millis,
    counters: Counters,
    rows: Vec<OldRow<M, U>>,
    gone: Vec<InodeId>,
    retry: Option<Retry>,
}

#[derive(Deserialize)]
struct OldRow<M, U> {
    id: InodeId,
    parent: InodeId,
    name: Box<[u8]>,
    owner: Arc<str>,
    group: Arc<str>,
    mode: u16,
    mtime: Millis,
    atime: Millis,
    kind: OldKind<U>,
    more: M,
}

#[derive(Deserialize)]
enum OldKind<U> {
    Directory,
    File(OldFile<U>),
}

#[derive(Deserialize)]
struct OldFile<U> {
    replication: u16,
    block_size: u64,
    blocks: Vec<Block>,
    writer: Option<OldWriter<U>>,
}

#[derive(Deserialize)]
struct OldWriter<U> {
    client: Arc<str>,
    machine: Arc<str>,
    unfinished: U,
}

/// What a row has more.
trait OldMore {
    fn more(self) -> Option<Box<More>>;
}

impl OldMore for () {
    fn more(self) -> Option<Box<More>> {
        None
    }
}

impl OldMore for Option<Box<More>> {
    fn more(self) -> Self {
        self
    }
}

/// What a writer says of what becomes of its file.
trait OldUnfinished {
    fn unfinished(self) -> Unfinished;
}

impl OldUnfinished for () {
    fn unfinished(self) -> Unfinished {
        Unfinished::Stays
    }
}

impl OldUnfinished for Unfinished {
    fn unfinished(self) -> Unfinished {
        self
    }
}

impl<M: OldMore, U: OldUnfinished> From<OldChange<M, U>> for Change {
    fn from(old: OldChange<M, U>) -> Self {
        let OldChange { txid, at, counters, rows, gone, retry } = old;
        Self { txid, at, counters, rows: rows.into_iter().map(Row::from).collect(), gone, retry }
    }
}

impl<M: OldMore, U: OldUnfinished> From<OldRow<M, U>> for Row {
    fn from(old: OldRow<M, U>) -> Self {
        let OldRow { id, parent, name, owner, group, mode, mtime, atime, kind, more } = old;
        let kind = match kind {
            OldKind::Directory => Kind::Directory,
            OldKind::File(OldFile { replication, block_size, blocks, writer }) => {
                let writer = writer.map(|OldWriter { client, machine, unfinished }| {
                    Box::new(Writer { client, machine, unfinished: unfinished.unfinished(), written: None })
                });
                Kind::File(Box::new(File { replication, block_size: block_size.into(), blocks: blocks.into(), writer }))
            }
        };
        Self { id, parent, name, owner, group, mode, mtime, atime, kind, more: more.more() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a release wrote it whose rows have nothing more: what is behind the format up to the end of a row, another row, and the rest.
    const OF_FORMAT_2: [&str; 3] = [
        "03078180018080808004e80702828001818001016403616e6e057374616666a003070800",
        "838001818001016603616e6e057374616666a0030708010380808040018080808004e90705010106777269746572093132372e302e302e31",
        "010501070707070707070707070707070707071202838001",
    ];

    fn bytes(pairs: &str) -> Vec<u8> {
        (0..pairs.len()).step_by(2).map(|at| u8::from_str_radix(&pairs[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_log_of_an_earlier_release_is_read() {
        let block = Block { id: BlockId(1 << 30), stamp: Stamp(1_001), length: 5, is_committed: true };
        let file = |unfinished| {
            let writer = Some(Box::new(Writer::new("writer", "127.0.0.1", unfinished)));
            File { replication: 3, block_size: (128 << 20).into(), blocks: vec![block].into(), writer }
        };
        let row = |id: u64, name: &str, kind| Row {
            id: InodeId(id),
            parent: InodeId::ROOT,
            name: name.as_bytes().into(),
            owner: "ann".into(),
            group: "staff".into(),
            mode: 0o640,
            mtime: Millis(7),
            atime: Millis(8),
            kind,
            more: None,
        };
        let call = CallId { client: [7; 16], call: 9 };
        let retry = Some(Retry { call, answer: RetryAnswer::Created(InodeId(16_387)) });
        let change_of = |unfinished| {
            let kind = Kind::File(Box::new(file(unfinished)));
            let rows = vec![row(16_386, "d", Kind::Directory), row(16_387, "f", kind)];
            let (at, counters, gone) = (Millis(7), Counters::default(), vec![InodeId(5)]);
            Change { txid: Txid(3), at, counters, rows, gone, retry }
        };
        let change = change_of(Unfinished::Stays);
        let [row, other, rest] = OF_FORMAT_2;
        assert_eq!(Change::decode(&bytes(&format!("02{row}{other}{rest}"))).unwrap(), change);
        // Rows say that they have nothing more.
        for format in ["03", "04"] {
            let of_format = bytes(&format!("{format}{row}00{other}00{rest}"));
            assert_eq!(Change::decode(&of_format).unwrap(), change, "{format}");
        }
        // And writers say what becomes of their files.
        for (said, unfinished) in
            [("00", Unfinished::Stays), ("01", Unfinished::Goes), ("02ac02", Unfinished::CutTo(300))]
        {
            let of_format = bytes(&format!("05{row}00{other}{said}00{rest}"));
            assert_eq!(Change::decode(&of_format).unwrap(), change_of(unfinished), "{said}");
        }
        assert_eq!(Change::decode(&change.encode()).unwrap(), change);
    }

    #[test]
    fn a_change_says_what_becomes_of_a_file_and_how_it_was_written() {
        for (unfinished, written) in
            [(Unfinished::Stays, Some(Stamp(1_001))), (Unfinished::Goes, None), (Unfinished::CutTo(1 << 40), None)]
        {
            let writer = Some(Box::new(Writer { written, ..Writer::new("c", "m", unfinished) }));
            let file = File { replication: 3, block_size: (128 << 20).into(), blocks: Vec::new().into(), writer };
            let row = Row {
                id: InodeId(16_386),
                parent: InodeId::ROOT,
                name: Box::default(),
                owner: "ann".into(),
                group: "staff".into(),
                mode: 0o640,
                mtime: Millis(7),
                atime: Millis(8),
                kind: Kind::File(Box::new(file)),
                more: None,
            };
            let (at, counters) = (Millis(7), Counters::default());
            let change = Change { txid: Txid(3), at, counters, rows: vec![row], gone: Vec::new(), retry: None };
            assert_eq!(Change::decode(&change.encode()).unwrap(), change);
            assert_eq!(
                change.encode()[0],
                FORMAT,
                "releases that close such a file as if it were whole, or with an older generation, do not read it"
            );
        }
    }

    #[test]
    fn what_few_inodes_have_is_read_of_the_release_before() {
        let more = More { policy: Some(7), ..More::default() };
        let mut bytes = more.encode();
        assert_eq!(std::mem::replace(&mut bytes[0], More::OLDEST), More::FORMAT);
        assert_eq!(More::decode(&bytes).unwrap(), more);
        bytes[0] = More::FORMAT + 1;
        assert!(More::decode(&bytes).is_err());
    }
}
