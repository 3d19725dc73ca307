//! A full disk ends nothing: what was appended waits, and goes on when there is space.

use std::{sync::Arc, thread, time::Duration};

use savanna_journal::{Draft, Journal, JournalError, Lsn, sim::SimDisk};

use crate::history::{append, on, open, wait};

const KIB: usize = 1 << 10;

/// A log on a disk that has no space left but what the log has taken already.
fn full() -> (Arc<SimDisk>, Journal, u64) {
    let disk = SimDisk::new(1);
    let (journal, _) = open(on(&disk).segment_bytes(1 << 20), 1).expect("opened");
    disk.set_capacity(disk.files().iter().map(|(_, bytes)| *bytes as u64).sum());
    let mut records = 0;
    while journal.full().is_none() {
        wait(&journal, append(&journal, &[1; KIB]).expect("accepted")).expect("durable");
        records += 1;
    }
    assert!(records > 8, "{records}");
    (disk, journal, records)
}

fn wait_for_space(journal: &Journal) {
    while journal.full().is_some() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_comes_before_it_is_known_is_durable_and_what_comes_after_waits_for_space() {
    let (disk, journal, before) = full();
    let text = journal.full().expect("full").to_string();
    assert!(text.starts_with("could not write sim:/segment-") && text.contains("Free some space"), "{text}");
    let last = append(&journal, &[2; 24 * KIB]).expect("accepted");
    wait(&journal, last).expect("there was a reserve");
    let waits: Vec<Lsn> = (0..3).map(|_| append(&journal, &[3; 40 * KIB]).expect("accepted")).collect();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(journal.durable(), last, "tried again, and no space");
    disk.set_capacity(u64::MAX);
    for lsn in &waits {
        wait(&journal, *lsn).expect("durable");
    }
    wait_for_space(&journal);
    journal.close().expect("closed");
    assert_eq!(open(on(&disk), 2).expect("opened").1.len() as u64, before + 4);
}

#[test]
fn it_is_noticed_that_there_is_space_without_anybody_appending() {
    let (disk, journal, _) = full();
    disk.set_capacity(u64::MAX);
    wait_for_space(&journal);
    wait(&journal, append(&journal, &[4; 64 * KIB]).expect("accepted")).expect("durable");
}

#[test]
fn who_closes_it_meanwhile_hears_of_it_and_loses_nothing_that_was_told() {
    let (disk, journal, before) = full();
    append(&journal, &[3; 64 * KIB]).expect("accepted");
    let error = journal.close().expect_err("not all is durable");
    assert!(matches!(error, JournalError::Full { .. }), "{error}");
    disk.set_capacity(u64::MAX);
    assert_eq!(open(on(&disk), 2).expect("opened").1.len() as u64, before);
}

#[test]
fn a_truncation_waits_for_space_too() {
    let (disk, journal, before) = full();
    journal.truncate_before(Lsn(before)).expect("durable");
    disk.set_capacity(u64::MAX);
    wait_for_space(&journal);
    wait(&journal, append(&journal, &[4; 64 * KIB]).expect("accepted")).expect("durable");
    journal.close().expect("closed");
    let records = open(on(&disk), 2).expect("opened").1;
    assert!(records.len() <= 2 + before as usize && records.last().is_some_and(|record| record.lsn == Lsn(before + 1)));
}

#[test]
fn a_log_is_not_opened_on_a_full_disk_and_is_there_when_there_is_space() {
    let (disk, journal, before) = full();
    drop(journal);
    let error = open(on(&disk), 2).map(|_| ()).expect_err("no space for a segment");
    assert!(matches!(error, JournalError::Full { .. }), "{error}");
    disk.set_capacity(u64::MAX);
    assert_eq!(open(on(&disk), 3).expect("opened").1.len() as u64, before);
}

/// No more space than the files have now.
fn fill(disk: &SimDisk) {
    disk.set_capacity(disk.files().iter().map(|(_, bytes)| *bytes as u64).sum());
}

#[test]
fn what_space_was_taken_for_becomes_durable_on_a_full_disk_and_more_is_refused_before() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(on(&disk).segment_bytes(4 << 20), 1).expect("opened");
    let payload = [1; 300 * KIB];
    let written = Journal::written_bytes(&[Draft { shard: 1, kind: 1, payload: &payload }]);
    journal.take_space(4 * written).expect("there is space");
    fill(&disk);
    let error = journal.take_space(1 << 20).expect_err("there is none");
    assert!(error.is_full() && error.to_string().starts_with("could not write sim:/segment-"), "{error}");
    for _ in 0..4 {
        wait(&journal, append(&journal, &payload).expect("accepted")).expect("durable");
        journal.give_back(written);
    }
    disk.set_capacity(u64::MAX);
    journal.take_space(1 << 20).expect("there is space again");
    journal.close().expect("closed");
    assert_eq!(open(on(&disk), 2).expect("opened").1.len(), 4);
}

#[test]
fn a_segment_that_none_can_follow_takes_what_space_was_taken_for() {
    let disk = SimDisk::new(1);
    let segment_bytes = 256 * KIB;
    let (journal, _) = open(on(&disk).segment_bytes(segment_bytes), 1).expect("opened");
    let payload = [1; 100 * KIB];
    let written = Journal::written_bytes(&[Draft { shard: 1, kind: 1, payload: &payload }]);
    journal.take_space(6 * written).expect("there is space");
    let append = || {
        let lsn = append(&journal, &payload).expect("accepted");
        wait(&journal, lsn).expect("durable");
        journal.give_back(written);
    };
    append();
    fill(&disk);
    (1..6).for_each(|_| append());
    assert!(journal.full().is_some(), "there is no space for a segment");
    disk.set_capacity(u64::MAX);
    // Before it is noticed by itself that there is space.
    append();
    let lengths: Vec<usize> =
        disk.files().into_iter().filter(|(name, _)| name.starts_with("segment-")).map(|(_, bytes)| bytes).collect();
    assert_eq!(lengths.len(), 2, "the next one has begun: {lengths:?}");
    journal.close().expect("closed");
    assert_eq!(open(on(&disk), 2).expect("opened").1.len(), 7);
}

#[test]
fn space_that_was_taken_goes_along_to_the_next_segment() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(on(&disk).segment_bytes(256 * KIB), 1).expect("opened");
    let payload = [1; 100 * KIB];
    let written = Journal::written_bytes(&[Draft { shard: 1, kind: 1, payload: &payload }]);
    journal.take_space(8 * written).expect("there is space");
    for taken in 0..8 {
        wait(&journal, append(&journal, &payload).expect("accepted")).expect("durable");
        journal.give_back(written);
        if taken == 3 {
            // Somewhere in the second segment.
            fill(&disk);
        }
    }
    journal.close().map_or_else(|error| assert!(error.is_full(), "{error}"), |()| ());
    disk.set_capacity(u64::MAX);
    assert_eq!(open(on(&disk), 2).expect("opened").1.len(), 8);
}
