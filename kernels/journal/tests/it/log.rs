//! Appending, reading back, filtering, rolling, truncating, closing: the log without anything going wrong.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use savanna_epoch::NodeEpoch;
use savanna_journal::{Draft, Filter, Journal, JournalError, Lsn, Options, Record, sim::SimDisk};

use crate::history::{History, append, drafts, on, open, wait};

#[test]
fn what_was_appended_is_replayed_with_all_that_was_said_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = || Options::dir(dir.path().join("a/b")).stream(5);
    let (journal, records) = open(options(), 3).expect("opened");
    assert!(records.is_empty());
    assert_eq!((journal.durable(), journal.appended(), journal.epoch()), (Lsn(0), Lsn(0), NodeEpoch(3)));
    let group =
        [Draft { shard: 8, kind: 2, payload: b"first" }, Draft { shard: u64::MAX, kind: u16::MAX, payload: b"" }];
    assert_eq!(journal.append(&group).expect("accepted"), Lsn(2));
    assert_eq!(journal.append(&[]).expect("nothing to do"), Lsn(2));
    assert_eq!(journal.append_to(6, &group[..1]).expect("accepted"), Lsn(3));
    journal.close().expect("flushed");
    assert_eq!(journal.durable(), Lsn(3));

    let (journal, records) = open(options(), 4).expect("opened");
    let record = |stream, lsn, shard, kind, payload: &'static [u8]| Record {
        stream,
        epoch: NodeEpoch(3),
        lsn: Lsn(lsn),
        shard,
        kind,
        payload: payload.into(),
    };
    let expected = [record(5, 1, 8, 2, b"first"), record(5, 2, u64::MAX, u16::MAX, b""), record(6, 3, 8, 2, b"first")];
    assert_eq!(records, expected);
    assert_eq!((journal.durable(), journal.appended()), (Lsn(3), Lsn(3)));
    assert_eq!(append(&journal, b"next").expect("accepted"), Lsn(4));
    drop(journal);
    let (_, records) = open(options(), 5).expect("opened");
    assert_eq!(records.len(), 4, "dropping a journal flushes it");
    assert_eq!(records[3].epoch, NodeEpoch(4));
}

#[test]
fn a_log_is_replayed_by_stream_and_shard() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    for at in 0..30_u64 {
        let draft = Draft { shard: at % 3, kind: 0, payload: &at.to_le_bytes() };
        journal.append_to((at % 2) as u32, &[draft]).expect("accepted");
    }
    journal.close().expect("closed");
    let filter = Filter { stream: Some(1), shards: Some(vec![0, 2]) };
    let (_, records) = open(on(&disk).filter(filter), 2).expect("opened");
    let wanted: Vec<u64> = (0..30).filter(|at| at % 2 == 1 && at % 3 != 1).map(|at| at + 1).collect();
    assert_eq!(records.iter().map(|record| record.lsn.0).collect::<Vec<_>>(), wanted);
}

#[test]
fn appends_while_a_flush_is_under_way_share_the_next() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    let (inside, entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    // The journal's thread stands still while it tells this reply; held before the append, it cannot run on this one.
    journal.gate().hold(Lsn(1), move |_| {
        inside.send(()).expect("heard");
        may_go_on.recv().expect("told to go on");
    });
    append(&journal, b"first").expect("accepted");
    entered.recv().expect("the first append is durable");
    let flushes = journal.stats().flushes;
    let told = Arc::new(AtomicUsize::new(0));
    for _ in 0..64 {
        let told = Arc::clone(&told);
        journal.gate().hold(append(&journal, b"more").expect("accepted"), move |outcome| {
            outcome.expect("durable");
            told.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert_eq!(told.load(Ordering::Relaxed), 0);
    go_on.send(()).expect("heard");
    journal.close().expect("closed");
    assert_eq!(told.load(Ordering::Relaxed), 64);
    let stats = journal.stats();
    assert_eq!(stats.groups, 65);
    assert!(stats.flushes - flushes <= 2, "{stats:?}");
}

#[test]
fn a_reply_that_depends_on_what_is_durable_leaves_at_once() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    let lsn = append(&journal, b"x").expect("accepted");
    wait(&journal, lsn).expect("durable");
    let here = std::thread::current().id();
    let (told, heard) = mpsc::channel();
    let gate = journal.gate();
    gate.hold(lsn, move |outcome| told.send((outcome.is_ok(), std::thread::current().id())).expect("heard"));
    assert_eq!(heard.try_recv(), Ok((true, here)));
    journal.close().expect("closed");
    let (told, heard) = mpsc::channel();
    let again = told.clone();
    gate.hold(lsn, move |outcome| told.send(outcome.is_ok()).expect("heard"));
    assert_eq!(heard.try_recv(), Ok(true), "it stays true after closing");
    gate.hold(lsn.next(), move |outcome| again.send(outcome.is_ok()).expect("heard"));
    assert_eq!(heard.try_recv(), Ok(false), "and nothing more becomes durable");
}

#[test]
fn a_reply_that_panics_harms_no_other_and_one_may_close_the_journal() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    let journal = Arc::new(journal);
    let lsn = append(&journal, b"x").expect("accepted");
    journal.gate().hold(lsn.next(), |_| panic!("on purpose"));
    let (told, heard) = mpsc::channel();
    let itself = Arc::clone(&journal);
    journal.gate().hold(lsn.next(), move |_| told.send(itself.close()).expect("heard"));
    append(&journal, b"y").expect("accepted");
    heard.recv().expect("told").expect("closed");
    assert!(matches!(append(&journal, b"z"), Err(JournalError::Closed)));
}

#[test]
fn a_group_is_refused_whole_when_it_is_too_large_or_too_much_waits() {
    let disk = SimDisk::new(0);
    let (journal, _) =
        open(on(&disk).backlog_bytes(2000).linger(std::time::Duration::from_secs(3600)), 1).expect("opened");
    let error = append(&journal, &[0; 5000]).expect_err("larger than a segment");
    assert!(matches!(error, JournalError::TooLarge { bytes: 5048, limit: 4024 }), "{error}");
    // Larger than what may wait, but nothing waits.
    assert_eq!(append(&journal, &[1; 2500]).expect("accepted"), Lsn(1));
    let error = append(&journal, &[0; 10]).expect_err("too much waits");
    assert!(matches!(error, JournalError::Backlog { limit: 2000, .. }), "{error}");
    assert_eq!(journal.appended(), Lsn(1));
    journal.close().expect("closing does not linger");
    let (journal, records) = open(on(&disk), 2).expect("opened");
    assert_eq!(records.len(), 1);
    let largest = 4024 - 48;
    assert_eq!(append(&journal, &vec![2; largest]).expect("just fits"), Lsn(2));
    drop(journal);
    let (_, records) = open(on(&disk), 3).expect("opened");
    assert_eq!(records[1].payload.len(), largest);
}

#[test]
fn a_long_segment_ends_when_a_truncation_comes_into_it_and_goes_with_the_next_one() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk).segment_bytes(64 << 20), 1).expect("opened");
    let long = vec![b'x'; 300_000];
    for _ in 0..6 {
        append(&journal, &long).expect("accepted");
    }
    wait(&journal, Lsn(6)).expect("durable");
    journal.truncate_before(Lsn(4)).expect("accepted");
    append(&journal, b"y").expect("accepted");
    wait(&journal, Lsn(7)).expect("durable");
    journal.truncate_before(Lsn(7)).expect("accepted");
    journal.close().expect("closed");
    let bytes: usize = disk.files().iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes < 1_000_000, "{bytes} bytes");
    let (_, records) = open(on(&disk).segment_bytes(64 << 20), 2).expect("opened");
    assert_eq!(records.iter().map(|record| record.lsn).collect::<Vec<_>>(), [Lsn(7)]);
}

#[test]
fn segments_roll_and_old_ones_go_when_they_are_truncated() {
    let disk = SimDisk::new(0);
    let mut history = History::default();
    let (journal, _) = open(on(&disk), 1).expect("opened");
    for _ in 0..40 {
        let (group, payloads) = history.next_group(2, 300);
        let lsn = journal.append(&drafts(&payloads)).expect("accepted");
        wait(&journal, lsn).expect("durable");
        history.tell(group, lsn);
    }
    let segments = |disk: &SimDisk| disk.files().iter().filter(|(name, _)| name.starts_with("segment-")).count();
    let before = segments(&disk);
    assert!(before >= 7, "{before} segments");
    assert!(matches!(
        journal.truncate_before(Lsn(82)),
        Err(JournalError::BeyondDurable { asked: Lsn(82), durable: Lsn(80) })
    ));
    journal.truncate_before(Lsn(50)).expect("accepted");
    journal.close().expect("closed");
    assert!(segments(&disk) < before - 2, "{} of {before} segments", segments(&disk));
    disk.crash();
    let (journal, records) = open(on(&disk), 2).expect("opened");
    assert!(records[0].lsn > Lsn(1), "older records are gone");
    history.check(&records, Lsn(50)).expect("newer ones are there");

    journal.truncate_before(Lsn(81)).expect("accepted");
    journal.close().expect("closed");
    let (journal, records) = open(on(&disk), 3).expect("opened");
    assert!(records.is_empty());
    assert_eq!(append(&journal, b"x").expect("accepted"), Lsn(81), "positions go on");
    drop(journal);
    // What was closed before, the one that was written to, and the one that says where it ends.
    assert!(segments(&disk) <= 3, "{:?}", disk.files());
}

#[test]
fn opening_often_leaves_no_files_behind() {
    let disk = SimDisk::new(0);
    for epoch in 1..50 {
        let (journal, _) = open(on(&disk), epoch).expect("opened");
        drop(journal);
    }
    assert!(disk.files().len() <= 3, "{:?}", disk.files());
}

#[test]
fn an_error_of_the_replay_function_ends_the_opening() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    append(&journal, b"x").expect("accepted");
    drop(journal);
    let refused = Journal::open(on(&disk), NodeEpoch(2), &mut |_| Err("no such shard"));
    assert_eq!(refused.expect_err("refused").to_string(), "could not replay the record with LSN 1: no such shard");
}

#[tokio::test]
async fn many_tasks_append_and_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let (journal, _) = open(Options::dir(dir.path()), 1).expect("opened");
    let journal = Arc::new(journal);
    let tasks = (0..64_u64).map(|task| {
        let journal = Arc::clone(&journal);
        tokio::spawn(async move {
            for at in 0..20 {
                let lsn = append(&journal, &(task * 100 + at).to_le_bytes()).expect("accepted");
                journal.wait_durable(lsn).await.expect("durable");
                assert!(journal.durable() >= lsn);
            }
        })
    });
    futures::future::try_join_all(tasks).await.expect("no task panicked");
    let stats = journal.stats();
    assert_eq!(stats.groups, 1280);
    assert!(stats.flushes < 1280, "{stats:?}");
    drop(journal);
    let (_, records) = open(Options::dir(dir.path()), 2).expect("opened");
    assert_eq!(records.len(), 1280);
}
