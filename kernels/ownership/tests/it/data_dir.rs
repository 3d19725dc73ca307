//! Real processes on one data directory: this test binary starts itself as the processes that want it.
//!
//! Each takes the lease, opens a journal under its epoch, and tells its epoch on standard output again and again, each
//! time after it appended a record, waited until it was durable, and asked the guard.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Journal, Options};
use savanna_ownership::data_dir::{DataDirError, DataDirLease, DataDirOptions, LossCause};
use savanna_ownership::guard::LeaseStatus;
use savanna_ownership::{BootClock, Clock, Incarnation, LeaseTerms, MonoTime};
use savanna_power_cut::Power;

/// Turns a hang into a failure; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(30);

const DIRECTORY: &str = "SAVANNA_TEST_DATA_DIR";

fn options() -> DataDirOptions {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    DataDirOptions {
        terms: LeaseTerms::new(Duration::from_millis(900), Duration::from_millis(200)).unwrap(),
        incarnation: Incarnation(u64::from(std::process::id()) << 32 | u64::from(clock.subsec_nanos())),
        epoch_floor: Arc::new(|| Ok(NodeEpoch::NONE)),
        clock: Arc::new(BootClock),
    }
}

/// Not a test of its own: what the processes run.
#[test]
#[ignore = "run by the tests of this file as a process of its own"]
fn process_on_a_data_directory() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "SAY {line}").and_then(|()| out.flush()).unwrap();
    };
    let directory = Path::new(&directory);
    let lease =
        DataDirLease::acquire(directory, &options(), |waiting| say(format!("waiting {}", waiting.holder.unwrap_or(0))));
    let lease = lease.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let journal =
        Journal::open::<std::io::Error>(Options::dir(directory.join("journal")), lease.epoch(), &mut |_| Ok(()));
    let journal = match journal {
        Ok(journal) => journal,
        Err(error) => return say(format!("refused {error}")),
    };
    let (guard, status) = (lease.guard(), lease.status());
    loop {
        let appended = journal.append(&[Draft { shard: 0, kind: 1, payload: b"x" }]);
        let durable = appended.and_then(|lsn| runtime.block_on(journal.wait_durable(lsn)));
        if let Err(error) = durable {
            return say(format!("refused {error}"));
        }
        if guard.serving() {
            say(format!("serving {}", lease.epoch()));
        } else if matches!(*status.borrow(), LeaseStatus::Lost(_)) {
            return say("lost".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that wants the directory.
struct Contender {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Contender {
    fn start(directory: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "data_dir::process_on_a_data_directory", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The next thing it says; none when it has ended.
    fn hear(&mut self) -> Option<String> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| line.split_once("SAY ").map(|said| said.1.to_owned()))
    }

    /// Everything until it says something that begins so; panics if it ends before.
    fn wait_for(&mut self, beginning: &str) -> String {
        loop {
            let said = self.hear().unwrap_or_else(|| panic!("it ended without saying {beginning:?}"));
            if said.starts_with(beginning) {
                return said;
            }
        }
    }

    /// The rest of what it says, until it ends.
    fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.hear()).collect()
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_second_process_takes_over_and_the_first_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = Contender::start(directory.path());
    assert_eq!(first.wait_for("serving"), "serving 1");
    let mut second = Contender::start(directory.path());
    assert_eq!(second.wait_for("waiting"), format!("waiting {}", first.process.id()));
    assert_eq!(second.wait_for("serving"), "serving 2");
    // The first has fallen silent by itself, before the second spoke; it then ends, by its lease or by the journal.
    let rest = first.rest();
    let (last, serving) = rest.split_last().unwrap();
    assert!(last == "lost" || last.contains("the journal is fenced"), "{last}");
    assert!(serving.iter().all(|said| said == "serving 1"), "{serving:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_holder_is_followed_without_a_wait() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = Contender::start(directory.path());
    first.wait_for("serving");
    first.signal("-KILL");
    // Its parent, this process, has not asked for it yet, and so it is dead as soon as the signal is taken.
    first.rest();
    let mut second = Contender::start(directory.path());
    assert_eq!(second.hear().as_deref(), Some("serving 2"), "it says so before that it waits");
}

#[test]
fn a_stalled_holder_that_nobody_claimed_from_serves_again_under_its_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = Contender::start(directory.path());
    first.wait_for("serving");
    first.signal("-STOP");
    std::thread::sleep(3 * options().terms.ttl());
    first.signal("-CONT");
    // Whatever the pipe has kept from before: it goes on for longer than that.
    for _ in 0..1_000 {
        assert_eq!(first.wait_for("serving"), "serving 1");
    }
}

#[test]
fn a_damaged_lease_file_is_waited_out_and_written_anew_above_what_the_journal_knows() {
    let directory = tempfile::tempdir().unwrap();
    let lease = DataDirLease::acquire(directory.path(), &options(), |_| {}).unwrap();
    lease.release().unwrap();
    for damage in [Some(&b"\0\0\0"[..]), None] {
        match damage {
            Some(bytes) => std::fs::write(directory.path().join("lease"), bytes).unwrap(),
            None => std::fs::remove_file(directory.path().join("lease")).unwrap(),
        }
        let mut waits = 0;
        let above = DataDirOptions { epoch_floor: Arc::new(|| Ok(NodeEpoch(7))), ..options() };
        let lease = DataDirLease::acquire(directory.path(), &above, |waiting| {
            assert_eq!((waiting.holder, waiting.at_most), (None, above.terms.ttl()));
            waits += 1;
        });
        assert_eq!((lease.unwrap().epoch(), waits), (NodeEpoch(9), 1));
    }
}

#[test]
fn why_a_lease_is_over_is_told_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let lease = DataDirLease::acquire(directory.path(), &options(), |_| {}).unwrap();
    let mut status = lease.status();
    std::fs::remove_file(directory.path().join("lease")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(status.wait_for(|status| matches!(status, LeaseStatus::Lost(_)))).unwrap();
    assert_eq!(lease.cause().get(), Some(&LossCause::FileGone));
    assert!(!lease.guard().serving());
}

#[test]
fn a_paused_holder_that_resumes_tells_nobody_anything_more() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = Contender::start(directory.path());
    first.wait_for("serving");
    first.signal("-STOP");
    let mut second = Contender::start(directory.path());
    assert_eq!(second.wait_for("serving"), "serving 2");
    first.signal("-CONT");
    let rest = first.rest();
    let last = rest.last().unwrap();
    assert!(last == "lost" || last.contains("the journal is fenced"), "{rest:?}");
    assert_eq!(second.wait_for("serving"), "serving 2");
}

#[test]
fn an_orderly_release_spares_the_next_process_the_wait() {
    let directory = tempfile::tempdir().unwrap();
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let lease = DataDirLease::acquire(directory.path(), &options(), |waiting| panic!("{waiting:?}")).unwrap();
        assert!(lease.guard().serving());
        epochs.push(lease.epoch().0);
        let guard = lease.guard();
        lease.release().unwrap();
        assert!(!guard.serving());
    }
    assert_eq!(epochs, [1, 2, 3]);
}

/// Whatever process wants the directory: this one, in another of its lives.
fn in_life(incarnation: u64) -> DataDirOptions {
    DataDirOptions { incarnation: Incarnation(incarnation), ..options() }
}

fn lease_file(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("lease")).unwrap()
}

#[test]
fn who_was_replaced_gives_nothing_of_its_successor_away() {
    let directory = tempfile::tempdir().unwrap();
    let first = DataDirLease::acquire(directory.path(), &in_life(1), |_| {}).unwrap();
    let second = DataDirLease::acquire(directory.path(), &in_life(2), |_| {}).unwrap();
    let before = lease_file(directory.path());
    first.release().unwrap();
    assert_eq!(lease_file(directory.path()), before);
    drop(second);
}

#[test]
fn of_two_that_claim_a_directory_the_later_gets_it_and_the_earlier_gives_up() {
    let directory = tempfile::tempdir().unwrap();
    let _held = DataDirLease::acquire(directory.path(), &in_life(1), |_| {}).unwrap();
    let place = directory.path().to_owned();
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut later = None;
        let earlier = DataDirLease::acquire(&place, &in_life(2), |_| {
            // It waits for the lock, which is held while this is told.
            let place = place.clone();
            later = Some(std::thread::spawn(move || DataDirLease::acquire(&place, &in_life(3), |_| {})));
        });
        told.send((earlier, later.expect("the earlier had to wait").join().unwrap())).unwrap();
    });
    let (earlier, later) = heard.recv_timeout(PATIENCE).expect("one of the two gives up");
    assert!(matches!(earlier, Err(DataDirError::Superseded { .. })), "{earlier:?}");
    assert_eq!(later.unwrap().epoch(), NodeEpoch(2));
}

/// A clock by which it takes ten leases until a claim is on disk.
struct SlowDisk {
    lease: PathBuf,
    is_claimed: AtomicBool,
}

impl Clock for SlowDisk {
    fn now(&self) -> MonoTime {
        let claimed = || std::fs::read_to_string(&self.lease).is_ok_and(|file| file.contains("\"claim\":{"));
        if self.is_claimed.load(Ordering::Relaxed) || claimed() {
            self.is_claimed.store(true, Ordering::Relaxed);
            return BootClock.now().after(10 * options().terms.ttl());
        }
        BootClock.now()
    }
}

#[test]
fn a_claimant_waits_a_whole_lease_from_when_its_claim_was_durable_however_long_that_took() {
    let directory = tempfile::tempdir().unwrap();
    let _held = DataDirLease::acquire(directory.path(), &in_life(1), |_| {}).unwrap();
    let clock = SlowDisk { lease: directory.path().join("lease"), is_claimed: AtomicBool::new(false) };
    let mut claimed_at = None;
    let slow = DataDirOptions { clock: Arc::new(clock), ..in_life(2) };
    let _taken =
        DataDirLease::acquire(directory.path(), &slow, |_| claimed_at = Some(std::time::Instant::now())).unwrap();
    // A little was over when it was told to wait.
    let waited = claimed_at.expect("it had to wait").elapsed();
    assert!(waited > slow.terms.ttl() / 2, "{waited:?}");
}

#[test]
fn a_lease_a_claim_and_a_release_outlive_a_power_cut() {
    let machine = tempfile::tempdir().unwrap();
    let directory = machine.path();
    let power = Power::of(directory).unwrap();
    let check = |what: &str| {
        let left = tempfile::tempdir().unwrap();
        power.cut(left.path()).unwrap();
        assert!(lease_file(left.path()) == lease_file(directory), "{what} is not on disk");
    };
    let first = DataDirLease::acquire(directory, &in_life(1), |_| {}).unwrap();
    check("the lease");
    let second = DataDirLease::acquire(directory, &in_life(2), |_| check("the claim")).unwrap();
    check("the lease of the next");
    drop(first);
    second.release().unwrap();
    check("the release");
}

#[test]
fn the_holder_outlives_many_leases_while_nobody_claims() {
    let directory = tempfile::tempdir().unwrap();
    let terms = LeaseTerms::new(Duration::from_millis(400), Duration::from_millis(100)).unwrap();
    let lease = DataDirLease::acquire(directory.path(), &DataDirOptions { terms, ..options() }, |_| {}).unwrap();
    let mut status = lease.status();
    std::thread::sleep(3 * terms.ttl());
    // It may have been late on a busy machine, but it has not lost the directory.
    assert!(!matches!(*status.borrow_and_update(), LeaseStatus::Lost(_) | LeaseStatus::Draining));
    assert_eq!(lease.epoch(), NodeEpoch(1));
}

#[test]
fn who_takes_only_what_is_free_leaves_a_living_holder_alone() {
    let directory = tempfile::tempdir().unwrap();
    let holder = DataDirLease::take_if_free(directory.path(), &options()).unwrap().expect("nobody has it");
    for _ in 0..3 {
        let held = DataDirLease::take_if_free(directory.path(), &options()).unwrap().expect_err("somebody has it");
        assert_eq!((held.epoch, held.holder.unwrap().pid), (holder.epoch(), std::process::id()));
        assert_eq!(held.claim, None);
    }
    std::thread::sleep(options().terms.ttl());
    assert!(holder.guard().serving(), "nothing was claimed of it");
    holder.release().unwrap();
    let mut killed = Contender::start(directory.path());
    assert_eq!(killed.wait_for("serving"), "serving 2");
    assert!(DataDirLease::take_if_free(directory.path(), &options()).unwrap().is_err());
    killed.signal("-KILL");
    killed.rest();
    // A process that ends closes what it has open before it is gone.
    killed.process.wait().unwrap();
    let next = DataDirLease::take_if_free(directory.path(), &options()).unwrap().expect("its holder is dead");
    assert_eq!(next.epoch(), NodeEpoch(3));
}
