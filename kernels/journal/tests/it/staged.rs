//! What is staged survives the end of the process, without a flush, in the order of the log.

use std::{sync::Arc, time::Duration};

use savanna_journal::{Draft, Journal, Lsn, Options, sim::SimDisk};

use crate::history::{append, on, open, wait};

/// A log that flushes nothing by itself before the test is over.
fn patient(disk: &Arc<SimDisk>) -> Options {
    on(disk).segment_bytes(1 << 20).patience(Duration::from_secs(3_600))
}

fn stage(journal: &Journal, payload: &[u8]) -> Lsn {
    journal.append_staged(&[Draft { shard: 1, kind: 1, payload }]).expect("accepted")
}

fn payloads(options: Options, epoch: u64) -> Vec<Vec<u8>> {
    open(options, epoch).expect("opened").1.iter().map(|record| record.payload.to_vec()).collect()
}

#[test]
fn what_is_staged_is_there_after_the_process_was_killed_at_any_moment() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(patient(&disk), 1).expect("opened");
    let mut expected = Vec::new();
    for number in 0..50_u8 {
        expected.push(vec![number; usize::from(number) * 17]);
        let lsn = stage(&journal, &expected[usize::from(number)]);
        assert!(journal.survives(lsn) && journal.durable() < lsn);
        if number % 10 == 9 {
            wait(&journal, lsn).expect("durable");
        }
        let killed = disk.copy(2);
        assert_eq!(payloads(patient(&killed), 2), expected);
        // It is in the log now, and goes on from there.
        let (next, _) = open(on(&killed).segment_bytes(1 << 20), 3).expect("opened");
        wait(&next, append(&next, b"next").expect("accepted")).expect("durable");
        drop(next);
        let mut longer = expected.clone();
        longer.push(b"next".to_vec());
        assert_eq!(payloads(on(&killed).segment_bytes(1 << 20), 4), longer);
    }
}

#[test]
fn files_are_written_over_when_what_they_have_is_durable_and_go_when_the_log_is_closed() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(on(&disk).segment_bytes(8 << 20), 1).expect("opened");
    let mut expected = Vec::new();
    for number in 0..200_u8 {
        expected.push(vec![number; 40 << 10]);
        let lsn = stage(&journal, &expected[usize::from(number)]);
        if number % 7 == 0 {
            wait(&journal, lsn).expect("durable");
        }
        assert!(journal.survives(lsn));
    }
    let staged =
        |disk: &SimDisk| disk.files().into_iter().filter(|(name, _)| name.starts_with("stage-")).collect::<Vec<_>>();
    assert!(staged(&disk).len() == 2 && staged(&disk).iter().all(|(_, bytes)| *bytes < 4 << 20), "{:?}", staged(&disk));
    assert!(payloads(on(&disk.copy(1)).segment_bytes(8 << 20), 2) == expected);
    journal.close().expect("closed");
    assert_eq!(staged(&disk), []);
    assert!(payloads(on(&disk).segment_bytes(8 << 20), 2) == expected);
}

#[test]
fn behind_a_record_that_is_not_staged_nothing_survives_before_that_is_durable() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(patient(&disk), 1).expect("opened");
    let first = stage(&journal, b"staged");
    let second = append(&journal, b"not staged").expect("accepted");
    let third = stage(&journal, b"staged behind it");
    assert!(!journal.survives(third));
    assert_eq!(payloads(patient(&disk.copy(1)), 2), [b"staged"]);
    wait(&journal, second).expect("durable");
    assert!([first, second, third].iter().all(|lsn| journal.survives(*lsn)));
    assert_eq!(payloads(patient(&disk.copy(1)), 2).len(), 3);
}

#[test]
fn after_a_loss_of_power_the_log_is_what_was_appended_up_to_some_record() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (journal, _) = open(patient(&disk), 1).expect("opened");
        let expected: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![number; 700]).collect();
        let mut told = 0;
        for (at, payload) in expected.iter().enumerate() {
            let lsn = stage(&journal, payload);
            if at == 7 {
                wait(&journal, lsn).expect("durable");
                told = at + 1;
            }
        }
        let lost = disk.copy(seed);
        lost.crash();
        let found = payloads(patient(&lost), 2);
        assert!(found.len() >= told && expected.starts_with(&found), "seed {seed}: {}", found.len());
        assert_eq!(payloads(patient(&lost), 3), found, "seed {seed}");
    }
}

#[test]
fn a_full_disk_is_no_place_for_it() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(patient(&disk), 1).expect("opened");
    disk.set_capacity(disk.files().iter().map(|(_, bytes)| *bytes as u64).sum());
    let lsn = stage(&journal, b"nowhere");
    assert!(!journal.survives(lsn));
    wait(&journal, lsn).expect("there was a reserve");
    assert!(journal.survives(lsn));
    disk.set_capacity(u64::MAX);
    let lsn = stage(&journal, b"somewhere");
    assert!(journal.survives(lsn));
    assert_eq!(payloads(patient(&disk.copy(1)), 2).len(), 2);
}
