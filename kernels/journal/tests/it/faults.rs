//! The N-th operation on the disk fails, for every N of a script that appends, rolls, truncates and opens again.

use std::sync::Arc;

use savanna_journal::{
    JournalError, Lsn,
    sim::{Fault, SimDisk},
};

use crate::history::{History, drafts, on, open, wait};

/// What the script came to know.
struct Outcome {
    history: History,
    /// The log was truncated before this.
    truncated: Lsn,
    errors: Vec<JournalError>,
}

/// Two boots, each with groups of several sizes; the second truncates.
fn script(disk: &Arc<SimDisk>) -> Outcome {
    let mut outcome = Outcome { history: History::default(), truncated: Lsn(1), errors: Vec::new() };
    for epoch in 1..=2 {
        let journal = match open(on(disk), epoch) {
            Ok((journal, records)) => {
                outcome.history.check(&records, outcome.truncated).expect("what was told is there");
                journal
            }
            Err(error) => {
                outcome.errors.push(error);
                continue;
            }
        };
        for (records, size) in [(1, 20), (3, 200), (2, 900), (1, 2000), (4, 16), (2, 1200), (1, 40)] {
            let (group, payloads) = outcome.history.next_group(records, size);
            let told = journal.append(&drafts(&payloads)).and_then(|lsn| wait(&journal, lsn).map(|()| lsn));
            match told {
                Ok(lsn) => outcome.history.tell(group, lsn),
                Err(error) => outcome.errors.push(error),
            }
        }
        if epoch == 2 {
            let half = Lsn(journal.durable().0 / 2 + 1);
            match journal.truncate_before(half) {
                Ok(()) => outcome.truncated = half,
                Err(error) => outcome.errors.push(error),
            }
        }
        outcome.errors.extend(journal.close().err());
    }
    outcome
}

#[test]
fn whichever_operation_fails_what_was_told_is_there() {
    let undisturbed = SimDisk::new(0);
    let outcome = script(&undisturbed);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert_eq!(outcome.history.told(), 14);
    let operations = undisturbed.operations();
    assert!(operations > 80, "the script does too little: {operations}");
    for fault in [Fault::Error, Fault::Full, Fault::Short, Fault::PowerCut] {
        for nth in 1..=operations {
            for crash in [false, true] {
                let context = format!("operation {nth} of {operations}: {fault:?}, then crash: {crash}");
                let disk = SimDisk::new(nth);
                disk.fail(nth, fault);
                let outcome = script(&disk);
                if fault == Fault::PowerCut || crash {
                    disk.crash();
                }
                let (journal, records) = open(on(&disk), 9).unwrap_or_else(|error| panic!("{context}: {error}"));
                let check = outcome.history.check(&records, outcome.truncated);
                check.unwrap_or_else(|error| panic!("{context}: {error}"));
                // And it goes on from there.
                let mut history = outcome.history;
                let (group, payloads) = history.next_group(2, 300);
                let lsn = journal.append(&drafts(&payloads)).expect("accepted");
                wait(&journal, lsn).expect("durable");
                history.tell(group, lsn);
                journal.close().expect("closed");
                let (_, records) = open(on(&disk), 10).expect("opened again");
                history.check(&records, outcome.truncated).unwrap_or_else(|error| panic!("{context}: {error}"));
            }
        }
    }
}

#[test]
fn a_failed_flush_is_final_and_tells_everybody() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    // The first batch: fence check, write, sync.
    disk.fail(3, Fault::Error);
    let (told, heard) = std::sync::mpsc::channel();
    let lsn = crate::history::append(&journal, b"lost").expect("accepted");
    for depends_on in [lsn, Lsn(lsn.0 + 7), lsn] {
        let told = told.clone();
        journal.gate().hold(depends_on, move |outcome| told.send(outcome).expect("heard"));
    }
    for _ in 0..3 {
        let error = heard.recv().expect("every reply is answered").expect_err("none is told that it is durable");
        let text = error.to_string();
        assert!(text.starts_with("could not fdatasync sim:/segment-"), "{text}");
        assert!(text.contains("Stop the process"), "{text}");
    }
    let operations = disk.operations();
    let refused = crate::history::append(&journal, b"more").expect_err("appends are refused");
    assert!(matches!(refused, JournalError::Io { doing: "fdatasync", .. }), "{refused}");
    assert!(journal.truncate_before(Lsn(1)).is_err());
    assert!(journal.close().is_err());
    assert_eq!(disk.operations(), operations, "nothing is tried again");
    assert_eq!(journal.durable(), Lsn(0));
    // Even what depends on nothing: the process is to stop.
    journal.gate().hold(Lsn(0), move |outcome| told.send(outcome).expect("heard"));
    heard.recv().expect("answered").expect_err("refused");
}

#[test]
fn an_owner_that_cannot_look_for_its_fence_tells_nobody() {
    // Of the first batch: the look before the write, and the one after the flush.
    for look in [1, 4] {
        let disk = SimDisk::new(1);
        let (journal, _) = open(on(&disk), 1).expect("opened");
        disk.fail(look, Fault::Error);
        let error = crate::history::append(&journal, b"unknown").and_then(|lsn| wait(&journal, lsn));
        let error = error.expect_err("another owner may have come");
        assert!(matches!(error, JournalError::Io { doing: "look for the fence", .. }), "{error}");
        journal.close().expect_err("it ended before");
    }
}

#[test]
fn a_full_disk_is_reported_and_opens_again_with_space() {
    let disk = SimDisk::new(2);
    disk.set_capacity(20_000);
    let mut history = History::default();
    let (journal, _) = open(on(&disk), 1).expect("opened");
    let error = loop {
        let (group, payloads) = history.next_group(2, 500);
        let lsn = journal.append(&drafts(&payloads)).expect("accepted");
        while journal.durable() < lsn && journal.full().is_none() {
            std::thread::yield_now();
        }
        match journal.full() {
            None => history.tell(group, lsn),
            Some(error) => break error,
        }
    };
    assert!(error.to_string().contains("no storage space"), "{error}");
    assert!(history.told() > 5);
    drop(journal);
    let error = open(on(&disk), 2).map(|_| ()).expect_err("there is no space for a segment");
    assert!(error.to_string().contains("space"), "{error}");
    disk.crash();
    disk.set_capacity(u64::MAX);
    let (_, records) = open(on(&disk), 3).expect("opened");
    history.check(&records, Lsn(1)).expect("what was told is there");
}
