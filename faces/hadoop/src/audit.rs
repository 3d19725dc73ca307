//! The audit log: who asked for what, a line for each call, in the form of Hadoop's.
//!
//! Lines go to a thread through a channel that holds so many; those beyond are dropped and counted, so that no call waits for the disk of the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

use savanna_files_host::request::{AclEdit, Create, Status, Written};
use savanna_files_host::{Answer, Class, Reply, Request, Unanswered};

use crate::protocol::Peer;

/// Lines that wait to be written.
const WAITING_MAX: usize = 1 << 16;
/// The log is begun anew when it has so many bytes; the one before is kept.
const BYTES_MAX: u64 = 128 << 20;

/// The audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditLog {
    lines: SyncSender<String>,
    dropped: Arc<AtomicU64>,
}

impl AuditLog {
    /// Opens the log, and begins to write it. It ends with its last clone.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        Self::bounded(path, WAITING_MAX, BYTES_MAX)
    }

    fn bounded(path: PathBuf, waiting_max: usize, bytes_max: u64) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(waiting_max);
        let dropped = Arc::new(AtomicU64::new(0));
        let mut log = LogFile::open(path, bytes_max)?;
        let unwritten = Arc::clone(&dropped);
        let thread = std::thread::Builder::new().name("files-audit".to_owned());
        thread.spawn(move || write(&mut log, &waiting, &unwritten))?;
        Ok(Self { lines, dropped })
    }

    /// Lines that were not written, because the disk was too slow or failed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Notes what became of a call, if that is for this log: it was done, or the user may not do it.
    pub(crate) fn note(&self, peer: &Peer, entry: &Entry, answer: &Answer) {
        let (is_allowed, status) = match answer {
            Ok(Reply::Status(Some(status)) | Reply::Appended(_, status)) => (true, Some(&**status)),
            Ok(_) => (true, None),
            Err(Unanswered::Refused(error)) if error.class == Class::AccessControl => (false, None),
            Err(_) => return,
        };
        let permissions = status.filter(|_| entry.shows_permissions).map_or_else(|| "null".to_owned(), permissions);
        let now = chrono::DateTime::<chrono::Utc>::from(SystemTime::now()).format("%Y-%m-%d %H:%M:%S,%3f");
        let (user, Entry { command, source, target, .. }) = (plain(&peer.user), entry);
        let line = format!(
            "{now} INFO FSNamesystem.audit: allowed={is_allowed}\tugi={user} (auth:SIMPLE)\tip=/{}\tcmd={command}\tsrc={source}\tdst={target}\tperm={permissions}\tproto={}\n",
            peer.machine, peer.by
        );
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a call asks for, as the log says it.
#[derive(Debug)]
pub(crate) struct Entry {
    command: &'static str,
    source: String,
    target: String,
    shows_permissions: bool,
}

impl Entry {
    /// A call on a path.
    pub(crate) fn on(command: &'static str, path: &str) -> Self {
        Self { command, source: plain(path), target: "null".to_owned(), shows_permissions: false }
    }

    /// A request, if it is one that Hadoop notes.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let moved = |command, from: &str, to: &str| Self { target: plain(to), ..Self::on(command, from) };
        Some(match request {
            Request::FileInfo { path } | Request::LocatedInfo { path } => Self::on("getfileinfo", path),
            Request::OpenFiles { .. } => Self::on("listOpenFiles", "null"),
            Request::Listing { path, .. } => Self::on("listStatus", path),
            Request::BlockLocations { path, .. } => Self::on("open", path),
            Request::Mkdirs { path, .. } => Self::on("mkdirs", path),
            Request::Create(Create { path, .. }) => Self { shows_permissions: true, ..Self::on("create", path) },
            Request::Append { path, .. } => Self { shows_permissions: true, ..Self::on("append", path) },
            Request::Truncate { path, .. } => Self::on("truncate", path),
            Request::Concat { path, sources } => moved("concat", &format!("[{}]", sources.join(", ")), path),
            Request::Rename { from, to } => moved("rename", from, to),
            Request::Rename2 { from, to, overwrites: false } => moved("rename (options=[NONE])", from, to),
            Request::Rename2 { from, to, overwrites: true } => moved("rename (options=[OVERWRITE])", from, to),
            Request::Delete { path, .. } | Request::GiveUp { file: Written { path, .. } } => Self::on("delete", path),
            Request::SetPermission { path, .. } => Self::on("setPermission", path),
            Request::SetOwner { path, .. } => Self::on("setOwner", path),
            Request::SetTimes { path, .. } => Self::on("setTimes", path),
            Request::SetReplication { path, .. } => Self::on("setReplication", path),
            Request::SetQuota { path, .. } => Self::on("setQuota", path),
            Request::Quota { path } => Self::on("quotaUsage", path),
            Request::SetAttribute { path, .. } => Self::on("setXAttr", path),
            Request::RemoveAttribute { path, .. } => Self::on("removeXAttr", path),
            Request::Attributes { path, .. } => Self::on("getXAttrs", path),
            Request::AttributeNames { path } => Self::on("listXAttrs", path),
            Request::EditAcl { path, edit } => {
                let command = match edit {
                    AclEdit::Replace(_) => "setAcl",
                    AclEdit::Modify(_) => "modifyAclEntries",
                    AclEdit::Remove(_) => "removeAclEntries",
                    AclEdit::RemoveDefault => "removeDefaultAcl",
                    AclEdit::Clear => "removeAcl",
                };
                Self::on(command, path)
            }
            Request::Acl { path } => Self::on("getAclStatus", path),
            Request::SetPolicy { path, policy: Some(_) } => Self::on("setStoragePolicy", path),
            Request::SetPolicy { path, policy: None } => Self::on("unsetStoragePolicy", path),
            Request::IsFileClosed { path } => Self::on("isFileClosed", path),
            Request::CheckAccess { path, .. } => Self::on("checkAccess", path),
            Request::AddBlock { .. }
            | Request::AbandonBlock { .. }
            | Request::Complete { .. }
            | Request::Fsync { .. }
            | Request::NewStamp { .. }
            | Request::UpdatePipeline { .. }
            | Request::PreferredBlockSize { .. } => return None,
        })
    }
}

/// Owner, group and mode as Hadoop shows them.
fn permissions(status: &Status) -> String {
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    let mode: String = bits.map(|(bit, symbol)| if status.mode >> bit & 1 == 1 { symbol } else { '-' }).collect();
    format!("{}:{}:{mode}", plain(&status.owner), plain(&status.group))
}

/// A text of a client that cannot look like another field, or another line.
fn plain(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars()
        .map(|symbol| if symbol.is_control() { symbol.escape_default().to_string() } else { symbol.to_string() })
        .collect()
}

/// The file, and the one before it.
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl LogFile {
    fn open(path: PathBuf, bytes_max: u64) -> io::Result<Self> {
        let file = opened(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes, bytes_max })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.bytes >= self.bytes_max {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            (self.file, self.bytes) = (opened(&self.path)?, 0);
        }
        self.file.write_all(lines)?;
        self.bytes += lines.len() as u64;
        Ok(())
    }
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Writes lines as they come, those that wait at once.
fn write(log: &mut LogFile, waiting: &Receiver<String>, unwritten: &AtomicU64) {
    const AT_ONCE: usize = 1_024;
    let mut is_failing = false;
    while let Ok(first) = waiting.recv() {
        let lines: Vec<String> = std::iter::once(first).chain(waiting.try_iter()).take(AT_ONCE).collect();
        match log.append(lines.concat().as_bytes()) {
            Ok(()) => is_failing = false,
            Err(error) => {
                unwritten.fetch_add(lines.len() as u64, Ordering::Relaxed);
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, path = %log.path.display(), "the audit log of files is not written; calls go on without it");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    use savanna_files_host::FilesError;

    use super::*;

    fn peer(user: &str) -> Peer {
        Peer {
            user: user.to_owned(),
            machine: "10.0.0.7".to_owned(),
            reached: Ipv4Addr::LOCALHOST.into(),
            by: "rpc",
            connection: 0,
        }
    }

    /// The lines that are written after a while, without their instants.
    fn lines(path: &Path, count: usize) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = std::fs::read_to_string(path).unwrap();
            let lines: Vec<_> = text.lines().map(|line| line.split_once(" INFO ").unwrap().1.to_owned()).collect();
            if lines.len() >= count {
                return lines;
            }
            assert!(Instant::now() < deadline, "{text}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_line_says_what_hadoop_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = AuditLog::open(path.clone()).unwrap();
        let refused = |class| Err(Unanswered::Refused(FilesError::new(class, "no")));
        let rename = Entry::of(&Request::Rename2 { from: "/a".into(), to: "/b".into(), overwrites: true }).unwrap();
        log.note(&peer("ann"), &rename, &Ok(Reply::Done));
        log.note(&peer("ann"), &rename, &refused(Class::FileNotFound));
        log.note(&peer("ann\nallowed=true\t"), &Entry::on("delete", "/x\ty"), &refused(Class::AccessControl));
        assert_eq!(
            lines(&path, 2),
            [
                "FSNamesystem.audit: allowed=true\tugi=ann (auth:SIMPLE)\tip=/10.0.0.7\tcmd=rename (options=[OVERWRITE])\tsrc=/a\tdst=/b\tperm=null\tproto=rpc",
                "FSNamesystem.audit: allowed=false\tugi=ann\\nallowed=true\\t (auth:SIMPLE)\tip=/10.0.0.7\tcmd=delete\tsrc=/x\\ty\tdst=null\tperm=null\tproto=rpc",
            ]
        );
    }

    #[test]
    fn the_log_is_bounded_and_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut log = LogFile::open(path.clone(), 10).unwrap();
        for line in ["12345678\n", "9\n", "new\n"] {
            log.append(line.as_bytes()).unwrap();
        }
        let text = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((text("audit.log.1"), text("audit.log")), ("12345678\n9\n".to_owned(), "new\n".to_owned()));
    }

    #[test]
    fn a_call_does_not_wait_for_the_log() {
        let (lines, waiting) = sync_channel(1);
        let log = AuditLog { lines, dropped: Arc::default() };
        for _ in 0..3 {
            log.note(&peer("ann"), &Entry::on("mkdirs", "/a"), &Ok(Reply::Bool(true)));
        }
        assert_eq!((log.dropped(), waiting.try_iter().count()), (2, 1));
    }
}
