//! A client of the name node: for commands that look at files, one call after the other.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use chrono::{DateTime, Utc};
use prost::Message;
pub use savanna_files_host::who_runs_this;

use crate::wire::client::{
    AclEntry, AclStatus, ContentSummaryResponse, FsStats, GetListing, ListOpenFiles, Nothing, One, OpenFiles, Text,
};
use crate::wire::hdfs::{FileStatus, Listing};
use crate::wire::rpc::{ConnectionContext, MethodHeader, RequestHeader, ResponseHeader, UserInformation};

const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
/// How a connection begins of a client that is not asked for a password.
const HELLO: [u8; 7] = *b"hrpc\x09\0\0";
/// The number of what is no call, but says who the client is.
const CONTEXT: i32 = -3;
/// The longest answer that is taken.
const ANSWER_MAX: usize = 64 << 20;
/// A name node that says nothing for longer is not waited for: summaries of large directories take their time.
const PATIENCE: Duration = Duration::from_secs(330);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there, or the connection broke.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// It is refused.
    #[error("{message}")]
    Refused {
        /// The exception's name in Java.
        class: String,
        /// In words.
        message: String,
    },
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; empty where it was asked for by its path.
    pub name: Vec<u8>,
    /// Its number.
    pub id: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes of a file.
    pub length: u64,
    /// Permission bits.
    pub mode: u32,
    /// Who owns it.
    pub owner: String,
    /// Its group.
    pub group: String,
    /// When its content changed last, in milliseconds since 1970.
    pub mtime: u64,
    /// How many replicas blocks of a file should have.
    pub replication: u32,
    /// The most bytes of a block of a file.
    pub block_size: u64,
    /// How many children a directory has.
    pub children: u32,
    /// Whether it has an access control list.
    pub has_acl: bool,
}

impl Entry {
    /// What it is and who may do what, as `ls` shows it.
    #[must_use]
    pub fn permissions(&self) -> String {
        let kind = if self.is_directory { 'd' } else { '-' };
        let bits = (0..9).rev().zip("rwxrwxrwx".chars());
        let mut shown: String =
            bits.map(|(bit, symbol)| if self.mode >> bit & 1 == 1 { symbol } else { '-' }).collect();
        if self.mode & 0o1000 != 0 {
            shown.pop();
            shown.push(if self.mode & 1 == 1 { 't' } else { 'T' });
        }
        format!("{kind}{shown}{}", if self.has_acl { "+" } else { "" })
    }

    /// When its content changed last, in UTC.
    #[must_use]
    pub fn modified(&self) -> String {
        let instant = i64::try_from(self.mtime).ok().and_then(DateTime::<Utc>::from_timestamp_millis);
        instant.map_or_else(String::new, |instant| instant.format("%Y-%m-%d %H:%M:%S").to_string())
    }
}

impl From<FileStatus> for Entry {
    fn from(status: FileStatus) -> Self {
        Self {
            name: status.path,
            id: status.id.unwrap_or(0),
            is_directory: status.kind == 1,
            length: status.length,
            mode: status.permission.bits,
            owner: status.owner,
            group: status.group,
            mtime: status.mtime,
            replication: status.replication.unwrap_or(0),
            block_size: status.block_size.unwrap_or(0),
            children: status.children.unwrap_or(0).max(0).cast_unsigned(),
            has_acl: status.flags.unwrap_or(0) & 1 != 0,
        }
    }
}

/// What a subtree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Files.
    pub files: u64,
    /// Directories, with the one that it begins at.
    pub directories: u64,
    /// Bytes of its files.
    pub length: u64,
    /// Bytes that their replicas should have.
    pub space: u64,
}

/// The disk of the data node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// All bytes.
    pub capacity: u64,
    /// Bytes of replicas.
    pub used: u64,
    /// Bytes that are free.
    pub remaining: u64,
    /// Blocks of files that are missing.
    pub missing: u64,
}

/// A file that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writing {
    /// Its number.
    pub id: i64,
    /// Where it is.
    pub path: String,
    /// Who writes it.
    pub client: String,
    /// Where the client is.
    pub machine: String,
}

/// A connection to a name node.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    next: i32,
}

impl Client {
    /// Connects as a user, who need not show anything.
    ///
    /// # Errors
    /// [`ClientError::Connection`].
    pub fn connect(host: &str, port: u16, user: &str) -> Result<Self, ClientError> {
        let mut stream = TcpStream::connect((host, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&HELLO)?;
        let user = Some(UserInformation { effective: Some(user.to_owned()), real: None });
        let context = ConnectionContext { user, protocol: Some(PROTOCOL.to_owned()) };
        let mut client = Self { stream, next: 0 };
        client.send(CONTEXT, &context.encode_length_delimited_to_vec())?;
        Ok(client)
    }

    /// What is at a path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn entry(&mut self, path: &str) -> Result<Option<Entry>, ClientError> {
        let One::<FileStatus> { it } = self.call("getFileInfo", &Text { it: path.to_owned() })?;
        Ok(it.map(Entry::from))
    }

    /// What is in a directory behind a name, and whether there is more; nothing if there is none. Of a file the file itself.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn page(&mut self, path: &str, after: &[u8]) -> Result<Option<(Vec<Entry>, bool)>, ClientError> {
        let request = GetListing { path: path.to_owned(), after: after.to_vec(), with_locations: false };
        let One::<Listing> { it } = self.call("getListing", &request)?;
        Ok(it.map(|Listing { entries, remaining }| (entries.into_iter().map(Entry::from).collect(), remaining > 0)))
    }

    /// What a subtree holds.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn total(&mut self, path: &str) -> Result<Total, ClientError> {
        let ContentSummaryResponse { it } = self.call("getContentSummary", &Text { it: path.to_owned() })?;
        let summary = it.unwrap_or_default();
        let (files, directories) = (summary.files, summary.directories);
        Ok(Total { files, directories, length: summary.length, space: summary.space })
    }

    /// The entries of an access control list, as `setfacl` writes them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn access_list(&mut self, path: &str) -> Result<Vec<String>, ClientError> {
        let One::<AclStatus> { it } = self.call("getAclStatus", &Text { it: path.to_owned() })?;
        Ok(it.unwrap_or_default().entries.iter().map(entry_text).collect())
    }

    /// The disk of the data node.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn disk(&mut self) -> Result<Disk, ClientError> {
        let FsStats { capacity, used, remaining, missing, .. } = self.call("getFsStats", &Nothing {})?;
        Ok(Disk { capacity, used, remaining, missing })
    }

    /// Files that are being written, behind a number, and whether there are more. For the superuser.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn written(&mut self, after: i64) -> Result<(Vec<Writing>, bool), ClientError> {
        let OpenFiles { entries, has_more, .. } = self.call("listOpenFiles", &ListOpenFiles { after, path: None })?;
        let writing = entries.into_iter().map(|file| {
            let (id, path) = (file.id, file.path);
            Writing { id, path, client: file.client, machine: file.machine }
        });
        Ok((writing.collect(), has_more))
    }

    fn send(&mut self, call: i32, rest: &[u8]) -> Result<(), ClientError> {
        let (kind, operation, retry) = (Some(2), Some(0), Some(0));
        let header = RequestHeader { kind, operation, call, client: vec![0; 16].into(), retry };
        let bytes = [header.encode_length_delimited_to_vec(), rest.to_vec()].concat();
        let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // One write, so that nothing waits for what follows.
        Ok(self.stream.write_all(&[&length.to_be_bytes()[..], &bytes].concat())?)
    }

    fn call<M: Message + Default>(&mut self, method: &str, message: &impl Message) -> Result<M, ClientError> {
        let header = MethodHeader { method: method.to_owned(), protocol: PROTOCOL.to_owned(), version: 1 };
        let rest = [header.encode_length_delimited_to_vec(), message.encode_length_delimited_to_vec()].concat();
        self.send(self.next, &rest)?;
        self.next += 1;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > ANSWER_MAX {
            return Err(invalid(&format!("expected an answer of at most {ANSWER_MAX} bytes, came {length}")));
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        answer(&bytes)
    }
}

/// What an answer says.
fn answer<M: Message + Default>(mut bytes: &[u8]) -> Result<M, ClientError> {
    let undecoded = |error: prost::DecodeError| invalid(&format!("the answer cannot be read: {error}"));
    let header = ResponseHeader::decode_length_delimited(&mut bytes).map_err(undecoded)?;
    if header.status != 0 {
        let (class, message) = (header.class.unwrap_or_default(), header.message.unwrap_or_default());
        return Err(ClientError::Refused { class, message });
    }
    M::decode_length_delimited(bytes).map_err(undecoded)
}

fn invalid(words: &str) -> ClientError {
    io::Error::new(io::ErrorKind::InvalidData, words.to_owned()).into()
}

/// An entry of an access control list, as `setfacl` writes it.
pub(crate) fn entry_text(entry: &AclEntry) -> String {
    let scope = if entry.scope == 1 { "default:" } else { "" };
    let kind = ["user", "group", "mask", "other"].get(entry.kind.max(0).cast_unsigned() as usize).unwrap_or(&"other");
    let bits: String = [(4, 'r'), (2, 'w'), (1, 'x')]
        .map(|(bit, symbol)| if entry.bits & bit == 0 { '-' } else { symbol })
        .iter()
        .collect();
    format!("{scope}{kind}:{}:{bits}", entry.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_be_read_is_an_error() {
        for bytes in [&[][..], &[0xff; 9], &[3, 8, 0, 0x10, 0, 0xff]] {
            assert!(answer::<OpenFiles>(bytes).is_err(), "{bytes:?}");
        }
        let header = ResponseHeader { status: 1, message: Some("no".to_owned()), ..ResponseHeader::default() };
        let refused = answer::<Nothing>(&header.encode_length_delimited_to_vec()).unwrap_err();
        assert_eq!(refused.to_string(), "no");
    }

    #[test]
    fn permissions_are_shown_as_ls_shows_them() {
        let entry = |mode, is_directory, has_acl| {
            Entry { mode, is_directory, has_acl, ..Entry::from(FileStatus::default()) }.permissions()
        };
        assert_eq!(entry(0o640, false, false), "-rw-r-----");
        assert_eq!(entry(0o1777, true, true), "drwxrwxrwt+");
        assert_eq!(entry(0o1776, true, false), "drwxrwxrwT");
    }
}
