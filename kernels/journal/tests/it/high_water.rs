//! The end of a log that was deleted, cut or damaged is missed: by the segment that a closed log ends with, and by the
//! note in another place.

use std::sync::Arc;

use savanna_journal::{Disk, JournalError, Lsn, Options, sim::SimDisk};

use crate::history::{append, on, open, wait};

const RECORDS: u64 = 5;

/// How the process that wrote the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Closed,
    Killed,
}

fn noted(log: &Arc<SimDisk>, notes: &Arc<SimDisk>) -> Options {
    on(log).high_water(Arc::clone(notes) as Arc<dyn Disk>)
}

/// A log of some records that somebody was told about, and its notes.
fn written(ended: Ended) -> (Arc<SimDisk>, Arc<SimDisk>) {
    let (log, notes) = (SimDisk::new(1), SimDisk::new(2));
    let (journal, _) = open(noted(&log, &notes), 1).expect("opened");
    for _ in 0..RECORDS {
        wait(&journal, append(&journal, &[7; 900]).expect("accepted")).expect("durable");
    }
    let killed = (log.copy(1), notes.copy(2));
    journal.close().expect("closed");
    if ended == Ended::Killed { killed } else { (log, notes) }
}

/// The newest segment with records in it.
fn newest(log: &SimDisk) -> (String, usize) {
    let files = log.files().into_iter().filter(|(name, _)| name.starts_with("segment-"));
    let used = |name: &str| {
        let bytes = log.read(name, u64::MAX).expect("there");
        bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    };
    files
        .map(|(name, _)| (used(&name), name))
        .rfind(|(used, _)| *used > 72)
        .map(|(used, name)| (name, used))
        .expect("records")
}

fn refused(options: Options, what: &str) -> JournalError {
    match open(options, 2) {
        Ok((_, records)) => panic!("{what}: it opened with {} of {RECORDS} records", records.len()),
        Err(error) => error,
    }
}

#[test]
fn a_log_that_nothing_happened_to_opens_in_whole() {
    for ended in [Ended::Closed, Ended::Killed] {
        let (log, notes) = written(ended);
        for epoch in 2..4 {
            let (journal, records) = open(noted(&log, &notes), epoch).expect("opened");
            assert_eq!(records.len() as u64, RECORDS);
            drop(journal);
        }
    }
}

#[test]
fn a_deleted_segment_at_the_end_is_missed() {
    for ended in [Ended::Closed, Ended::Killed] {
        let (log, notes) = written(ended);
        log.remove(&newest(&log).0).expect("removed");
        let error = refused(noted(&log, &notes), &format!("{ended:?}"));
        assert!(
            matches!(error, JournalError::Lost { .. } | JournalError::Missing { .. } | JournalError::Corrupt { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_log_that_is_gone_is_missed_by_its_place() {
    for ended in [Ended::Closed, Ended::Killed] {
        let (_, notes) = written(ended);
        let error = refused(noted(&SimDisk::new(3), &notes), &format!("{ended:?}")).to_string();
        assert!(error.starts_with("expected the log sim:/ to end at LSN "), "{error}");
        assert!(error.contains("to end at LSN 5 or later") && error.contains("backup"), "{error}");
    }
}

#[test]
fn a_cut_or_flipped_bit_in_the_last_record_is_noticed() {
    for ended in [Ended::Closed, Ended::Killed] {
        let (log, notes) = written(ended);
        let (name, used) = newest(&log);
        let last = used - 900..used;
        for at in last.step_by(7) {
            let cut = log.copy(4);
            let bytes = cut.read(&name, at as u64).expect("there");
            cut.put(&name, &bytes);
            refused(noted(&cut, &notes), &format!("{ended:?}, cut at {at}"));
            let flipped = log.copy(4);
            flipped.flip(&name, at, (at % 8) as u8);
            refused(noted(&flipped, &notes), &format!("{ended:?}, flipped at {at}"));
            if ended == Ended::Closed {
                refused(on(&cut), &format!("cut at {at}, without notes"));
                refused(on(&flipped), &format!("flipped at {at}, without notes"));
            }
        }
    }
}

#[test]
fn who_deletes_the_note_goes_on_with_what_is_there() {
    let (log, notes) = written(Ended::Killed);
    let (name, used) = newest(&log);
    log.flip(&name, used - 100, 0);
    refused(noted(&log, &notes), "damaged");
    for (note, _) in notes.files() {
        notes.remove(&note).expect("removed");
    }
    let (journal, records) = open(noted(&log, &notes), 3).expect("opened");
    assert_eq!(records.len() as u64, RECORDS - 1);
    assert_eq!(append(&journal, b"new").expect("accepted"), Lsn(RECORDS));
}

#[test]
fn a_log_without_a_note_opens_and_has_one_from_then_on() {
    let log = SimDisk::new(1);
    let (journal, _) = open(on(&log), 1).expect("opened");
    wait(&journal, append(&journal, b"old").expect("accepted")).expect("durable");
    drop(journal);
    let notes = SimDisk::new(2);
    drop(open(noted(&log, &notes), 2).expect("opened"));
    refused(noted(&SimDisk::new(3), &notes), "an empty log");
}

#[test]
fn notes_that_cannot_be_written_take_nothing_away() {
    let (log, notes) = (SimDisk::new(1), SimDisk::new(2));
    let (journal, _) = open(noted(&log, &notes), 1).expect("opened");
    notes.set_capacity(0);
    for _ in 0..RECORDS {
        wait(&journal, append(&journal, b"kept").expect("accepted")).expect("durable");
    }
    journal.close().expect("closed");
    notes.set_capacity(u64::MAX);
    assert_eq!(open(noted(&log, &notes), 2).expect("opened").1.len() as u64, RECORDS);
}
