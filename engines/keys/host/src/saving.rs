//! The file with all keys that `SAVE` leaves: what the threads write of their keys is put into it, by a thread of its own.
//!
//! The file is written beside its place, flushed, and renamed, when what it has is durable in the log: it never has something that a crash
//! could take back.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use savanna_journal::{Journal, Lsn};
use savanna_keys::actor::saving::{FileCopy, SaveOrder, SaveOutcome, SaveTarget};
use savanna_keys::keyspace::Saved;
use savanna_keys::placement::ActorId;
use savanna_keys_rdb::FileWriter;
use savanna_ownership::guard::LeaseGuard;

use crate::mailbox::{Mail, Slot};

/// No more keys are written while the file is so many bytes behind.
const AHEAD_BYTES: usize = 8 << 20;
/// A save is given up when it is more bytes behind, because what changes meanwhile is more than the disk takes, or the disk hangs.
const BEHIND_BYTES_MAX: usize = 1 << 30;
/// Of writes to the file.
const BUFFER_BYTES: usize = 1 << 20;

/// What a thread has written of its keys, and what that depends on.
#[derive(Debug)]
struct Part {
    from: ActorId,
    saved: Saved,
    depends: Lsn,
}

/// Where all threads bring what they have written for the file.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Where the file is to be, if it may be anywhere.
    place: Option<Place>,
    journal: Option<Arc<Journal>>,
    /// The lease under which it may take the place of another file; none where nobody else could have the keys.
    lease: Option<LeaseGuard>,
    slots: Arc<[Slot]>,
    under_way: Mutex<Option<UnderWay>>,
}

/// A save whose file is being written.
#[derive(Debug)]
struct UnderWay {
    number: u64,
    /// To the thread that writes.
    sender: Sender<Part>,
    backlog: Arc<Backlog>,
}

/// What waits for the thread that writes.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    /// Whether it was too much: the save is given up.
    is_too_much: AtomicBool,
}

impl UnderWay {
    /// Takes a part unless more than `behind_max` bytes wait already. Says whether it did.
    fn put(&self, part: Part, behind_max: usize) -> bool {
        if self.backlog.bytes.fetch_add(part.saved.pieces.byte_count(), Ordering::Relaxed) > behind_max {
            self.backlog.is_too_much.store(true, Ordering::Release);
            return false;
        }
        // A thread that has ended has told why.
        self.sender.send(part).is_ok()
    }
}

impl Desk {
    /// A desk for a file at a place; what a process before this epoch has left beside it goes.
    pub(crate) fn new(
        place: Option<Place>,
        journal: Option<Arc<Journal>>,
        lease: Option<LeaseGuard>,
        slots: Arc<[Slot]>,
    ) -> Self {
        if let Some(place) = &place {
            place.remove_left();
        }
        Self { place, journal, lease, slots, under_way: Mutex::new(None) }
    }

    /// Begins a file. All threads are told what becomes of it.
    pub(crate) fn begin(&self, order: SaveOrder) {
        let (sender, parts) = channel();
        let backlog = Arc::<Backlog>::default();
        *self.under_way.lock() = Some(UnderWay { number: order.number, sender, backlog: Arc::clone(&backlog) });
        let (place, journal, slots) = (self.place.clone(), self.journal.clone(), Arc::clone(&self.slots));
        let lease = self.lease.clone();
        let run = move || {
            let written = write(
                order.target,
                place.as_ref(),
                (journal.as_deref(), lease.as_ref()),
                &parts,
                &backlog,
                slots.len(),
            );
            let (problem, copy) = match written {
                Ok(copy) => (None, copy),
                Err(problem) => (Some(problem), None),
            };
            if let Some(problem) = &problem {
                tracing::error!(%problem, "all keys were to be saved to a file, and were not");
            }
            tell(&slots, SaveOutcome { order, problem, copy });
        };
        if let Err(error) = std::thread::Builder::new().name("keys-save".to_owned()).spawn(run) {
            let problem = Some(format!("a thread that writes the file could not be started: {error}"));
            tell(&self.slots, SaveOutcome { order, problem, copy: None });
        }
    }

    /// Whether more keys are to be written now.
    pub(crate) fn takes_more(&self) -> bool {
        self.under_way.lock().as_ref().is_some_and(|it| it.backlog.bytes.load(Ordering::Relaxed) < AHEAD_BYTES)
    }

    /// Takes what a thread has written, which depends on the log up to a position. Says whether anybody wants more: not if it is of a save
    /// that has ended, which may have begun again with the keys of another moment.
    pub(crate) fn put(&self, from: ActorId, saved: Saved, depends: Lsn) -> bool {
        let mut under_way = self.under_way.lock();
        let Some(it) = under_way.as_ref().filter(|it| it.number == saved.number) else { return false };
        let is_taken = it.put(Part { from, saved, depends }, BEHIND_BYTES_MAX);
        if !is_taken {
            *under_way = None;
        }
        is_taken
    }
}

/// Tells all threads, the first one last: it may begin the next save.
fn tell(slots: &[Slot], outcome: SaveOutcome) {
    let outcome = Arc::new(outcome);
    slots.iter().rev().for_each(|slot| slot.put(Mail::Saved(Arc::clone(&outcome))));
}

/// Writes the parts of all threads to a file, until each has given its last.
fn write(
    target: SaveTarget,
    place: Option<&Place>,
    (journal, lease): (Option<&Journal>, Option<&LeaseGuard>),
    parts: &Receiver<Part>,
    backlog: &Backlog,
    threads: usize,
) -> Result<Option<FileCopy>, String> {
    let place = place.ok_or("there is no directory for a file with all keys")?;
    let beside = place.beside(if target == SaveTarget::File { PART } else { COPY });
    let Place { file: place, .. } = place;
    let failed = |error: io::Error| format!("{} could not be written: {error}", place.display());
    let begun = begin_file(&beside);
    let written = begun.map_err(failed).and_then(|file| {
        let file = Flushed { file, unflushed: 0, flushes: target == SaveTarget::File };
        let mut writer = FileWriter::new(BufWriter::with_capacity(BUFFER_BYTES, file)).map_err(failed)?;
        writer.field("redis-ver", savanna_keys::commands::server::REDIS_VERSION).map_err(failed)?;
        writer.field("redis-bits", "64").map_err(failed)?;
        writer.field("written-by", concat!("savanna ", env!("CARGO_PKG_VERSION"))).map_err(failed)?;
        let (mut done, mut depends) = (vec![false; threads], Lsn::NONE);
        while done.contains(&false) {
            let part = parts.recv();
            if backlog.is_too_much.load(Ordering::Acquire) {
                return Err("the disk was slower than what changes while the file is written".to_owned());
            }
            let part = part.map_err(|_| "the service ended while the file was written".to_owned())?;
            backlog.bytes.fetch_sub(part.saved.pieces.byte_count(), Ordering::Relaxed);
            if part.saved.is_failed {
                return Err("there is no memory for the values that change while the file is written".to_owned());
            }
            writer.pieces(&part.saved.pieces).map_err(failed)?;
            depends = depends.max(part.depends);
            done[part.from.index()] |= part.saved.is_done;
        }
        let mut writer = writer.end().map_err(failed)?;
        writer.flush().map_err(failed)?;
        let Flushed { file, .. } = writer.into_inner().map_err(|error| failed(error.into_error()))?;
        wait_for_log(journal, depends)?;
        let bytes = file.metadata().map_err(failed)?.len();
        if target == SaveTarget::Copy {
            return Ok(Some(FileCopy { file: Arc::new(file), bytes }));
        }
        file.sync_all().map_err(failed)?;
        // Who has the keys by now may have written a later file.
        if !lease.is_none_or(LeaseGuard::serving) {
            return Err("this node has not renewed its lease of the keys, which another one may have by now".to_owned());
        }
        std::fs::rename(&beside, place).map_err(failed)?;
        let flushed = File::open(directory_of(place)).and_then(|directory| directory.sync_all());
        flushed.map_err(|error| {
            format!(
                "{} was written, and may be gone after a power failure: its directory could not be flushed: {error}",
                place.display()
            )
        })?;
        tracing::info!(path = %place.display(), bytes, "all keys were saved to a file");
        Ok(None)
    });
    if target == SaveTarget::Copy || written.is_err() {
        // It is open as long as somebody needs it. One that is left is written over by the next.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// Where a file is to be, and under which epoch it is written beside that: a process that has lost the keys may still write, to its own.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    file: PathBuf,
    epoch: u64,
}

/// How files beside it end, before the epoch.
const PART: &str = "part";
const COPY: &str = "copy";

impl Place {
    pub(crate) const fn new(file: PathBuf, epoch: u64) -> Self {
        Self { file, epoch }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// A file beside it.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(format!(".{ending}-{}", self.epoch));
        name.into()
    }

    /// Removes what processes of this epoch or before were writing when they ended: it may be as long as all keys.
    fn remove_left(&self) {
        let Some(name) = self.file.file_name().and_then(|name| name.to_str()) else { return };
        let Ok(present) = std::fs::read_dir(directory_of(&self.file)) else { return };
        for entry in present.flatten() {
            let epoch_of = |ending| {
                let left = entry.file_name();
                left.to_str()?.strip_prefix(name)?.strip_prefix(ending)?.parse::<u64>().ok()
            };
            if epoch_of(".part-").or_else(|| epoch_of(".copy-")).is_some_and(|epoch| epoch <= self.epoch) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// A new file that nobody else reads, in the place of what there is.
fn begin_file(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)
}

/// A file that is flushed while it is written: at the end it would keep the log's disk for long.
#[derive(Debug)]
struct Flushed {
    file: File,
    unflushed: usize,
    flushes: bool,
}

/// So much is flushed at once.
const FLUSH_BYTES: usize = 32 << 20;

impl io::Write for Flushed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.unflushed += count;
        if self.flushes && self.unflushed >= FLUSH_BYTES {
            self.file.sync_data()?;
            self.unflushed = 0;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl io::Seek for Flushed {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Waits until the log is durable up to a position.
fn wait_for_log(journal: Option<&Journal>, depends: Lsn) -> Result<(), String> {
    let Some(journal) = journal else { return Ok(()) };
    let (sender, outcome) = channel();
    journal.gate().hold(depends, move |durable| drop(sender.send(durable.map_err(|error| error.to_string()))));
    outcome.recv().unwrap_or_else(|_| Err("the log has ended".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::os::unix::fs::PermissionsExt as _;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use savanna_keys_rdb::{FileReader, Item, Pieces};
    use savanna_ownership::time::BootClock;

    use super::*;
    use crate::mailbox::{Mailbox, mailbox};

    fn desk(place: &Path) -> (Desk, Vec<Mailbox>) {
        let (slots, mailboxes): (Vec<_>, Vec<_>) = (0..2).map(|_| mailbox(Waker::noop().clone())).unzip();
        (Desk::new(Some(Place::new(place.to_owned(), 7)), None, None, slots.into()), mailboxes)
    }

    fn file(number: u64) -> SaveOrder {
        SaveOrder { number, target: SaveTarget::File }
    }

    /// The last of a thread's keys, which is one.
    fn last(number: u64, key: &str) -> Saved {
        let mut pieces = Pieces::default();
        pieces.key(0, key.as_bytes(), None, 0, |writer| writer.string(b"value"));
        let mut saved = Saved::default();
        (saved.number, saved.pieces, saved.is_done) = (number, pieces, true);
        saved
    }

    fn outcome(mailbox: &Mailbox) -> Arc<SaveOutcome> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(Mail::Saved(outcome)) = mailbox.take() {
                return outcome;
            }
            assert!(Instant::now() < deadline, "nobody tells what became of the file");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn keys(place: &Path) -> Vec<Vec<u8>> {
        let mut reader = FileReader::new(BufReader::new(File::open(place).expect("a file"))).expect("a file");
        let mut keys = Vec::new();
        while let Some(item) = reader.next_item().expect("a file") {
            if let Item::Key(entry) = item {
                keys.push(entry.key);
            }
        }
        keys
    }

    #[test]
    fn what_a_thread_has_left_of_a_save_that_failed_is_not_taken_for_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("later").join("dump.rdb");
        let (desk, mailboxes) = desk(&place);
        desk.begin(file(1));
        assert!(outcome(&mailboxes[0]).problem.is_some(), "there is no directory");
        std::fs::create_dir(folder.path().join("later")).expect("a folder");
        desk.begin(file(2));
        // The second thread has not heard that the first save has ended.
        assert!(!desk.put(ActorId(1), last(1, "old"), Lsn::NONE));
        assert!(desk.put(ActorId(0), last(2, "one"), Lsn::NONE));
        assert!(desk.put(ActorId(1), last(2, "other"), Lsn::NONE));
        let told = outcome(&mailboxes[0]);
        assert_eq!((told.order, told.problem.as_deref()), (file(2), None));
        assert_eq!(keys(&place), [b"one".to_vec(), b"other".to_vec()]);
    }

    #[test]
    fn a_save_whose_disk_hangs_is_given_up_before_too_much_waits_for_it() {
        let (sender, parts) = channel();
        let backlog = Arc::<Backlog>::default();
        let hanging = UnderWay { number: 1, sender, backlog: Arc::clone(&backlog) };
        let part = |key: &str| Part { from: ActorId(0), saved: last(1, key), depends: Lsn::NONE };
        assert!(hanging.put(part("a"), 10) && !hanging.put(part("b"), 10));
        drop(hanging);
        // The disk goes on.
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("dump.rdb");
        let there = Place::new(place.clone(), 1);
        let written = write(SaveTarget::File, Some(&there), (None, None), &parts, &backlog, 1);
        let problem = written.expect_err("keys are missing");
        assert!(problem.contains("slower") && !place.exists(), "{problem}");
    }

    /// Writes a file with one key under an epoch.
    fn save(place: &Path, epoch: u64, lease: Option<&LeaseGuard>) -> Result<Option<FileCopy>, String> {
        let (sender, parts) = channel();
        sender.send(Part { from: ActorId(0), saved: last(1, "a"), depends: Lsn::NONE }).expect("it is there");
        let there = Place::new(place.to_owned(), epoch);
        write(SaveTarget::File, Some(&there), (None, lease), &parts, &Backlog::default(), 1)
    }

    #[test]
    fn who_has_lost_the_keys_leaves_the_file_of_the_next_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("dump.rdb");
        std::fs::write(&place, "of the next").expect("a disk");
        std::fs::write(folder.path().join("dump.rdb.part-4"), "which is being written").expect("a disk");
        let lost = LeaseGuard::new(Arc::new(BootClock));
        let problem = save(&place, 3, Some(&lost)).expect_err("it has no lease");
        assert!(problem.contains("lease"), "{problem}");
        assert_eq!(std::fs::read(&place).expect("a file"), b"of the next");
        assert!(folder.path().join("dump.rdb.part-4").exists() && !folder.path().join("dump.rdb.part-3").exists());
    }

    #[test]
    fn a_file_is_begun_anew_for_this_user_alone_and_what_was_left_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let [place, other, part] = ["dump.rdb", "other", "dump.rdb.part-7"].map(|name| folder.path().join(name));
        std::fs::write(&other, "of somebody else").expect("a disk");
        std::os::unix::fs::symlink(&other, &part).expect("a disk");
        save(&place, 7, None).expect("a disk");
        assert_eq!(std::fs::read(&other).expect("a file"), b"of somebody else", "no link is followed");
        let metadata = std::fs::symlink_metadata(&place).expect("a file");
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o077 == 0);
        for left in ["dump.rdb.part-6", "dump.rdb.copy-7", "dump.rdb.copy-8", "dump.rdb.part-x"] {
            std::fs::write(folder.path().join(left), "all keys").expect("a disk");
        }
        desk(&place);
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|it| it.file_name()).collect();
        names.sort();
        assert_eq!(names, ["dump.rdb", "dump.rdb.copy-8", "dump.rdb.part-x", "other"], "of this epoch or before");
        assert_eq!(directory_of(Path::new("dump.rdb")), Path::new("."));
    }
}
