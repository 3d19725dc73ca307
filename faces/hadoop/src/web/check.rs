//! `hdfs fsck`: which files lack blocks. It reads what its user may read, a page after the other, and changes nothing.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use savanna_files_host::request::{Listing, LocatedBlock, Status};
use savanna_files_host::{Class, FilesError, Reply, Request};

use super::answer::{self, Answered, Parts, Refusal};
use super::parameters::Parameters;
use super::{Client, statistics, unexpected};
use crate::protocol::replies::Encoder;

/// The last line says how it is; clients look for these words.
const HEALTHY: &str = "is HEALTHY";
const CORRUPT: &str = "is CORRUPT";
const NONEXISTENT: &str = "does not exist";
const FAILED: &str = "FAILED";

/// What would change something, or ask for what there is not.
const UNSUPPORTED: [&str; 7] =
    ["move", "delete", "replicate", "blockid", "includesnapshots", "upgradedomains", "storagepolicies"];

/// So much of the text leaves at once.
const PART: usize = 16 << 10;

/// Each time that there were so many files, something is said.
const PROGRESS: u64 = 100;

/// Directories that are kept of a page; what is behind them is asked again.
const KEPT: usize = 100;

/// A directory that is being walked.
struct Level {
    path: String,
    /// Directories in it that come next.
    names: VecDeque<String>,
    /// Behind which name there may be more.
    more_after: Option<Vec<u8>>,
}

impl Level {
    const fn of(path: String) -> Self {
        Self { path, names: VecDeque::new(), more_after: Some(Vec::new()) }
    }
}

/// What is to be shown.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    files: bool,
    blocks: bool,
    locations: bool,
    /// Files that are being written, too.
    open: bool,
    /// Nothing but blocks that are damaged or missing.
    corrupt_only: bool,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    files: u64,
    directories: u64,
    bytes: u64,
    blocks: u64,
    open_files: u64,
    open_bytes: u64,
    open_blocks: u64,
    corrupt_files: u64,
    corrupt: u64,
    corrupt_bytes: u64,
    missing: u64,
    missing_bytes: u64,
    under_replicated: u64,
    over_replicated: u64,
    /// Blocks of which there is a replica.
    there: u64,
    replicas: u64,
    replicas_wanted: u64,
}

/// Why a check does not go on.
enum Stopped {
    /// The client takes no more.
    Left,
    Refused(FilesError),
    Gone,
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Refused(error) => Self::Refused(error),
            Refusal::Gone => Self::Gone,
        }
    }
}

impl Client {
    /// Answers a request at `/fsck`.
    pub(super) async fn check(&self, parameters: &Parameters) -> Answered {
        if let Some(option) = UNSUPPORTED.into_iter().find(|option| parameters.text(option).is_some()) {
            let words = format!("fsck of this name node only shows: it does not know the option {option}");
            return Err(FilesError::new(Class::Unsupported, words).into());
        }
        let has = |option| parameters.text(option).is_some();
        let wanted = Wanted {
            files: has("files"),
            blocks: has("blocks"),
            locations: has("locations") || has("racks") || has("replicadetails"),
            open: has("openforwrite"),
            corrupt_only: has("listcorruptfileblocks"),
        };
        let path = parameters.text("path").unwrap_or("/").to_owned();
        let is_next = parameters.number("startblockafter")?.is_some_and(|after| after > 0);
        let Ok(place) = Arc::clone(&self.service.checks).try_acquire_owned() else {
            let words = "other checks of files are under way; try again when they have ended";
            return Err(FilesError::new(Class::Retriable, words).into());
        };
        let (answer, parts) = answer::parts("text/plain; charset=utf-8", None);
        let client = self.clone();
        tokio::spawn(async move {
            let mut checking =
                Checking { client: &client, wanted, counts: Counts::default(), text: String::new(), parts };
            match checking.run(&path, is_next).await {
                Ok(()) => checking.parts.end().await,
                Err(Stopped::Left | Stopped::Gone) => tracing::debug!(path, "a check of files was not told to its end"),
                // It is told already.
                Err(Stopped::Refused(error)) => tracing::debug!(path, %error, "files could not be checked"),
            }
            drop(place);
        });
        Ok(answer)
    }
}

/// A check that is under way.
struct Checking<'a> {
    client: &'a Client,
    wanted: Wanted,
    counts: Counts,
    text: String,
    parts: Parts,
}

impl Checking<'_> {
    async fn run(&mut self, path: &str, is_next: bool) -> Result<(), Stopped> {
        let begun = Instant::now();
        let checked =
            if self.wanted.corrupt_only { self.list(path, is_next).await } else { self.report(path, begun).await };
        if let Err(Stopped::Refused(error)) = checked {
            self.say(&format!("FSCK ended at {} in {} milliseconds\n", now(), begun.elapsed().as_millis()));
            self.say(&format!("{}\n\n\nFsck on path '{path}' {FAILED}", error.message));
        } else {
            checked?;
        }
        self.flush().await
    }

    /// All that is below a path, and what it comes to.
    async fn report(&mut self, path: &str, begun: Instant) -> Result<(), Stopped> {
        let peer = &self.client.peer;
        let (user, machine) = (&peer.user, &peer.machine);
        self.text = format!("FSCK started by {user} (auth:SIMPLE) from /{machine} for path {path} at {}\n", now());
        let Some(status) = self.located(path).await? else {
            self.say(&format!("\n\nPath '{path}' {NONEXISTENT}"));
            return Ok(());
        };
        self.walk(path, &status).await?;
        let is_healthy = self.counts.corrupt_files == 0;
        let [nodes, ..] = statistics(&self.client.service, peer).await?.stats.nodes;
        let text = self.counts.shown(is_healthy, nodes, self.client.service.replication);
        self.say(&text);
        self.say(&format!("FSCK ended at {} in {} milliseconds\n", now(), begun.elapsed().as_millis()));
        self.say(&format!("\n\nThe filesystem under path '{path}' {}", if is_healthy { HEALTHY } else { CORRUPT }));
        Ok(())
    }

    /// The blocks that are damaged or missing. All of them come at first; who asks again hears that there are no more.
    async fn list(&mut self, path: &str, is_next: bool) -> Result<(), Stopped> {
        self.say("Cookie:\t1\n");
        if !is_next {
            let Some(status) = self.located(path).await? else {
                self.say(&format!("\n\nPath '{path}' {NONEXISTENT}"));
                return Ok(());
            };
            self.walk(path, &status).await?;
        }
        let many = match self.counts.corrupt_files {
            _ if is_next => "no more".to_owned(),
            0 => "no".to_owned(),
            count => count.to_string(),
        };
        self.say(&format!("\n\nThe filesystem under path '{path}' has {many} CORRUPT files\n\n"));
        Ok(())
    }

    /// What is at a path, with its blocks.
    async fn located(&self, path: &str) -> Result<Option<Box<Status>>, Stopped> {
        match self.client.ask(Request::LocatedInfo { path: path.to_owned() }).await? {
            Reply::Status(status) => Ok(status),
            _ => Err(unexpected().into()),
        }
    }

    /// Goes over a subtree; no more is kept than the names of some directories for each directory on the way down.
    async fn walk(&mut self, path: &str, status: &Status) -> Result<(), Stopped> {
        if !status.is_directory {
            return self.file(path, status).await;
        }
        let path = path.trim_end_matches('/').to_owned();
        self.directory(&path);
        let mut levels = vec![Level::of(path)];
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.names.pop_front() {
                let path = format!("{}/{name}", level.path);
                self.directory(&path);
                levels.push(Level::of(path));
                continue;
            }
            let Some(after) = level.more_after.take() else {
                levels.pop();
                continue;
            };
            // It may have gone since.
            let Some(mut listing) = self.page(&level.path, after).await? else { continue };
            let directories = listing.entries.iter().enumerate().filter(|(_, entry)| entry.is_directory);
            let end = directories.map(|(at, _)| at + 1).nth(KEPT - 1);
            if let Some(end) = end.filter(|end| *end < listing.entries.len()) {
                listing.entries.truncate(end);
                listing.remaining = 1;
            }
            level.more_after = listing.entries.last().filter(|_| listing.remaining > 0).map(|last| last.name.to_vec());
            for entry in &listing.entries {
                let name = String::from_utf8_lossy(&entry.name);
                if entry.is_directory {
                    level.names.push_back(name.into_owned());
                } else {
                    self.file(&format!("{}/{name}", level.path), entry).await?;
                }
            }
            // Who has gone is noticed here.
            self.flush().await?;
        }
        Ok(())
    }

    async fn page(&self, directory: &str, after: Vec<u8>) -> Result<Option<Listing>, Stopped> {
        let path = if directory.is_empty() { "/" } else { directory }.to_owned();
        match self.client.ask(Request::Listing { path, after, with_locations: true }).await? {
            Reply::Listing(listing) => Ok(listing),
            _ => Err(unexpected().into()),
        }
    }

    fn directory(&mut self, path: &str) {
        self.counts.directories += 1;
        if self.wanted.files {
            let line = format!("{} <dir>\n", if path.is_empty() { "/" } else { path });
            self.say(&line);
        }
    }

    async fn file(&mut self, path: &str, status: &Status) -> Result<(), Stopped> {
        let Some(located) = &status.blocks else { return Ok(()) };
        let Wanted { files, blocks, open, corrupt_only, .. } = self.wanted;
        let is_begun = |block: &LocatedBlock| {
            !located.is_last_complete && located.last.as_ref().is_some_and(|last| last.block.id == block.block.id)
        };
        if located.is_written && !open {
            self.counts.open_files += 1;
            self.counts.open_bytes += status.length;
            self.counts.open_blocks += located.blocks.len() as u64;
            return Ok(());
        }
        self.counts.files += 1;
        if self.counts.files.is_multiple_of(PROGRESS) && !files {
            // Clients of lists know only empty lines.
            self.say(if corrupt_only { "\n" } else { "." });
        }
        self.counts.bytes += status.length;
        self.counts.blocks += located.blocks.len() as u64;
        let shows = (files || open && located.is_written) && !corrupt_only;
        if shows {
            let state = if located.is_written { ", OPENFORWRITE" } else { "" };
            let (length, replication, count) = (status.length, status.replication, located.blocks.len());
            self.say(&format!(
                "{path} {length} bytes, replicated: replication={replication}, {count} block(s){state}: "
            ));
        }
        let (mut report, mut missing, mut corrupt) = (String::new(), (0, 0), (0, 0));
        for (number, block) in located.blocks.iter().filter(|block| !is_begun(block)).enumerate() {
            let (name, length) = (self.name(block), block.block.length);
            let wanted = u64::from(status.replication);
            let replicas = block.places.len() as u64;
            self.counts.replicas += replicas;
            self.counts.replicas_wanted += wanted;
            // Its stored length is said, so this cannot fail.
            let _ = write!(report, "{number}. {name} len={length}");
            if block.is_corrupt {
                corrupt = (corrupt.0 + 1, corrupt.1 + length);
                if corrupt_only {
                    self.say(&format!("blk_{}\t{path}\n", block.block.id));
                } else {
                    self.say(&format!("\n{path}: CORRUPT block {name}\n"));
                }
            } else if !block.is_there() {
                missing = (missing.0 + 1, missing.1 + length);
                report.push_str(" MISSING!");
                if corrupt_only {
                    self.say(&format!("blk_{}\t{path}\n", block.block.id));
                }
            } else if replicas < wanted {
                self.counts.under_replicated += 1;
            } else if replicas > wanted {
                self.counts.over_replicated += 1;
            }
            if block.is_there() {
                self.counts.there += 1;
                let _ = write!(report, " Live_repl={replicas}");
                if self.wanted.locations {
                    let encoder = Encoder::new(&self.client.service, &self.client.peer);
                    let shown =
                        block.places.iter().filter_map(|place| encoder.place(*place)).map(|(node, storage, _)| {
                            let (address, port) = (node.id.address, node.id.transfer_port);
                            format!("DatanodeInfoWithStorage[{address}:{port},{storage},DISK]")
                        });
                    let _ = write!(report, "  [{}]", shown.collect::<Vec<_>>().join(", "));
                }
            }
            report.push('\n');
        }
        if missing.0 + corrupt.0 > 0 {
            self.counts.corrupt_files += 1;
            (self.counts.missing, self.counts.missing_bytes) =
                (self.counts.missing + missing.0, self.counts.missing_bytes + missing.1);
            (self.counts.corrupt, self.counts.corrupt_bytes) =
                (self.counts.corrupt + corrupt.0, self.counts.corrupt_bytes + corrupt.1);
        }
        for (what, (count, bytes)) in [("MISSING", missing), ("CORRUPT", corrupt)] {
            if count > 0 && !corrupt_only {
                let begin = if shows { String::new() } else { format!("\n{path}:") };
                self.say(&format!("{begin} {what} {count} blocks of total size {bytes} B\n"));
            }
        }
        if shows {
            if missing.0 + corrupt.0 == 0 {
                self.say(" OK\n");
            }
            if blocks {
                report.push('\n');
                self.say(&report);
            }
        }
        if self.text.len() >= PART { self.flush().await } else { Ok(()) }
    }

    /// A block as Hadoop writes it.
    fn name(&self, block: &LocatedBlock) -> String {
        format!("{}:blk_{}_{}", self.client.service.files.identity().pool, block.block.id, block.block.stamp)
    }

    fn say(&mut self, words: &str) {
        self.text.push_str(words);
    }

    async fn flush(&mut self) -> Result<(), Stopped> {
        let text = Bytes::from(std::mem::take(&mut self.text));
        if text.is_empty() || self.parts.give(text).await { Ok(()) } else { Err(Stopped::Left) }
    }
}

impl Counts {
    /// The report, in the words of Hadoop.
    fn shown(&self, is_healthy: bool, nodes: u64, replication: u16) -> String {
        let Self { files, directories, bytes, blocks, open_files, open_bytes, open_blocks, .. } = *self;
        let Self { corrupt_files, corrupt, corrupt_bytes, missing, missing_bytes, .. } = *self;
        let Self { under_replicated, over_replicated, there, replicas, replicas_wanted, .. } = *self;
        let of_blocks = |count: u64| match blocks {
            0 => String::new(),
            _ => format!(" ({} %)", count as f64 * 100.0 / blocks as f64),
        };
        let optional = |is_shown: bool, text: String| if is_shown { text } else { String::new() };
        let mut lines = vec![
            format!("\nStatus: {}", if is_healthy { "HEALTHY" } else { "CORRUPT" }),
            format!(" Number of data-nodes:\t{nodes}"),
            " Number of racks:\t\t1".to_owned(),
            format!(" Total dirs:\t\t\t{directories}"),
            " Total symlinks:\t\t0".to_owned(),
            "\nReplicated Blocks:".to_owned(),
            format!(
                " Total size:\t{bytes} B{}",
                optional(open_bytes > 0, format!(" (Total open files size: {open_bytes} B)"))
            ),
            format!(
                " Total files:\t{files}{}",
                optional(open_files > 0, format!(" (Files currently being written: {open_files})"))
            ),
            format!(
                " Total blocks (validated):\t{blocks}{}{}",
                optional(blocks > 0, format!(" (avg. block size {} B)", bytes / blocks.max(1))),
                optional(open_blocks > 0, format!(" (Total open file blocks (not validated): {open_blocks})")),
            ),
        ];
        if corrupt_files > 0 {
            lines.push("  ********************************".to_owned());
            lines.push(format!("  CORRUPT FILES:\t{corrupt_files}"));
            if missing > 0 {
                lines.push(format!("  MISSING BLOCKS:\t{missing}\n  MISSING SIZE:\t\t{missing_bytes} B"));
            }
            if corrupt > 0 {
                lines.push(format!("  CORRUPT BLOCKS: \t{corrupt}\n  CORRUPT SIZE:\t\t{corrupt_bytes} B"));
            }
            lines.push("  ********************************".to_owned());
        }
        let missing_replicas = replicas_wanted.saturating_sub(replicas);
        lines.extend([
            format!(" Minimally replicated blocks:\t{there}{}", of_blocks(there)),
            format!(" Over-replicated blocks:\t{over_replicated}{}", of_blocks(over_replicated)),
            format!(" Under-replicated blocks:\t{under_replicated}{}", of_blocks(under_replicated)),
            format!(" Mis-replicated blocks:\t\t0{}", of_blocks(0)),
            format!(" Default replication factor:\t{replication}"),
            format!(" Average block replication:\t{}", if blocks == 0 { 0.0 } else { replicas as f64 / blocks as f64 }),
            format!(" Missing blocks:\t\t{missing}"),
            format!(" Corrupt blocks:\t\t{corrupt}"),
            format!(" Missing replicas:\t\t{missing_replicas}"),
            String::new(),
        ]);
        lines.join("\n")
    }
}

/// The instant, as people read it.
fn now() -> String {
    chrono::DateTime::<chrono::Utc>::from(SystemTime::now()).format("%a %b %d %H:%M:%S UTC %Y").to_string()
}

#[cfg(test)]
mod tests {
    use savanna_journal::sim::SimDisk;

    use super::super::unconnected;
    use super::*;
    use crate::tests::started;

    #[tokio::test]
    async fn there_are_few_checks_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let server = started(&SimDisk::new(1), folder.path(), 1);
        let client = unconnected(server.files());
        let parameters = Parameters::parse("ugi=root&path=/").unwrap();
        // Nobody takes their answers, so they do not end.
        let mut answers = Vec::new();
        while let Ok(answer) = client.check(&parameters).await {
            answers.push(answer);
            assert!(answers.len() < 100, "there is no end of them");
        }
        assert!(!answers.is_empty());
        let Err(Refusal::Refused(error)) = client.check(&parameters).await else { panic!("one more") };
        assert_eq!(error.class, Class::Retriable);
        // Who goes makes room.
        drop(answers);
        while client.check(&parameters).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}
