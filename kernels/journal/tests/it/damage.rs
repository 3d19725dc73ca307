//! Bytes that changed, vanished or were never whole: an error or a correct prefix, never wrong data, never a panic.

use std::sync::Arc;

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use savanna_journal::{Disk, JournalError, Lsn, Record, sim::SimDisk};

use crate::history::{History, SEGMENT_BYTES, append, drafts, on, open, wait};

/// A log of one segment with a batch for each group, as a killed process leaves it.
fn small_log() -> (Arc<SimDisk>, History, Vec<Record>) {
    let disk = SimDisk::new(0);
    let mut history = History::default();
    let (journal, _) = open(on(&disk), 1).expect("opened");
    for (records, size) in [(1, 20), (3, 33), (2, 100), (1, 16)] {
        let (_, payloads) = history.next_group(records, size);
        let lsn = journal.append(&drafts(&payloads)).expect("accepted");
        wait(&journal, lsn).expect("durable");
    }
    let killed = disk.copy(0);
    let (_, records) = open(on(&killed.copy(1)), 2).expect("opened");
    assert_eq!(records.len(), 7);
    (killed, history, records)
}

fn only_segment(disk: &SimDisk) -> (String, usize) {
    let mut segments = disk.files();
    segments.retain(|(name, _)| name.starts_with("segment-"));
    assert_eq!(segments.len(), 1, "{segments:?}");
    segments.remove(0)
}

/// Where the written part of a segment ends.
fn written(disk: &SimDisk, name: &str) -> usize {
    let bytes = disk.read(name, u64::MAX).expect("there");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

#[test]
fn a_flipped_bit_anywhere_is_an_error_or_leaves_a_correct_prefix() {
    let (disk, history, whole) = small_log();
    let (name, len) = only_segment(&disk);
    let used = written(&disk, &name);
    let (mut errors, mut prefixes) = (0, 0);
    for offset in 0..len.min(used + 64) {
        for bit in 0..8 {
            let copy = disk.copy(7);
            copy.flip(&name, offset, bit);
            match open(on(&copy), 2) {
                Err(JournalError::Corrupt { file, .. } | JournalError::Version { file, .. }) => {
                    assert!(file.ends_with(&name), "{file}");
                    errors += 1;
                }
                Err(error) => panic!("byte {offset} bit {bit}: {error}"),
                Ok((_, records)) => {
                    let context = || format!("byte {offset} bit {bit}: {records:?}");
                    history.check(&records, Lsn(1)).unwrap_or_else(|error| panic!("{error}: {}", context()));
                    assert_eq!(records, whole[..records.len()], "{}", context());
                    // Only the last batch has no witness.
                    assert!(records.len() >= 6, "{}", context());
                    prefixes += 1;
                }
            }
        }
    }
    assert!(errors > 3000 && prefixes > 500, "{errors} errors, {prefixes} prefixes");
}

#[test]
fn damage_before_later_batches_names_file_and_offset() {
    let (disk, ..) = small_log();
    let (name, _) = only_segment(&disk);
    // The second record's payload: after the header and the first record of 48 + 20 bytes, aligned.
    disk.flip(&name, 72 + 72 + 50, 3);
    let error = open(on(&disk), 2).map(|_| ()).expect_err("damaged");
    assert_eq!(
        error.to_string(),
        format!(
            "sim:/{name} is damaged at byte 144: expected the record with LSN 2, found bytes that do not match their \
             checksum. These bytes were durable before, so this is not a torn tail, and nothing was cut. Restore the \
             file from a backup. Do not move the log away alone: the data beside it belongs to this log"
        )
    );
}

#[test]
fn a_batch_of_one_record_before_the_last_has_a_witness() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    for payload in [b"first", b"other", b"third"] {
        wait(&journal, append(&journal, payload).expect("accepted")).expect("durable");
    }
    // The process is killed.
    let disk = disk.copy(1);
    drop(journal);
    let (name, _) = only_segment(&disk);
    // The header, then records of 48 + 5 bytes, aligned: the second one's payload.
    disk.flip(&name, 72 + 56 + 48, 0);
    let error = open(on(&disk), 2).map(|_| ()).expect_err("damaged");
    assert!(matches!(error, JournalError::Corrupt { offset: 128, .. }), "{error}");
}

#[test]
fn copies_of_the_records_of_the_owner_before_are_no_torn_tail() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    wait(&journal, append(&journal, b"told").expect("accepted")).expect("durable");
    // The process is killed.
    let disk = disk.copy(1);
    drop(journal);
    // This owner appends nothing: there is its copy of the record, and no later record that it could be told by.
    drop(open(on(&disk), 2).expect("opened"));
    let (name, _) = disk.files().pop().expect("the newest segment");
    disk.flip(&name, 72 + 48, 0);
    let error = open(on(&disk), 3).map(|_| ()).expect_err("damaged");
    assert!(matches!(error, JournalError::Corrupt { offset: 72, .. }), "{error}");
}

#[test]
fn a_record_that_is_cut_off_at_any_byte_is_cut_with_its_group() {
    let (disk, history, whole) = small_log();
    let (name, _) = only_segment(&disk);
    let bytes = disk.read(&name, u64::MAX).expect("there");
    // The header, then the groups: 68 bytes, three of 81, two of 148, each at a multiple of 8; the last is 64 bytes.
    let last_batch = 72 + 72 + 3 * 88 + 2 * 152;
    for end in last_batch..=last_batch + 64 {
        for zeros in [0, 100] {
            let copy = SimDisk::new(0);
            let mut torn = bytes[..end].to_vec();
            torn.resize(end + zeros, 0);
            copy.put(&name, &torn);
            let (journal, records) = open(on(&copy), 2).unwrap_or_else(|error| panic!("cut at {end}: {error}"));
            history.check(&records, Lsn(1)).unwrap_or_else(|error| panic!("cut at {end}: {error}"));
            assert!(records.len() >= 6);
            assert_eq!(records, whole[..records.len()]);
            // What was cut does not come back when its place is taken.
            let lsn = append(&journal, b"new").expect("accepted");
            assert_eq!(lsn.0, records.len() as u64 + 1);
            drop(journal);
            let (_, again) = open(on(&copy), 3).expect("opened");
            assert_eq!(again.len(), records.len() + 1);
            assert_eq!(&again[records.len()].payload[..], b"new");
        }
    }
}

#[test]
fn a_log_that_ends_early_in_an_older_segment_is_an_error() {
    let (disk, ..) = small_log();
    drop(open(on(&disk), 2).expect("opened"));
    // The next owner has recorded how far the older segment counts, so even its last batch has a witness now.
    let (name, _) = disk.files().into_iter().find(|(name, _)| name.starts_with("segment-")).expect("there");
    let used = written(&disk, &name);
    let (journal, _) = open(on(&disk), 3).expect("opened");
    drop(journal);
    disk.flip(&name, used - 200, 0);
    let error = open(on(&disk), 4).map(|_| ()).expect_err("damaged");
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error}");
}

#[test]
fn a_missing_segment_is_an_error() {
    for gone in [0, 1, 2] {
        let disk = SimDisk::new(0);
        let mut history = History::default();
        let (journal, _) = open(on(&disk), 1).expect("opened");
        for _ in 0..20 {
            let (_, payloads) = history.next_group(2, 400);
            journal.append(&drafts(&payloads)).expect("accepted");
        }
        drop(journal);
        let mut segments = disk.files();
        segments.retain(|(name, _)| name.starts_with("segment-"));
        assert!(segments.len() > 4);
        disk.remove(&segments[gone].0).expect("removed");
        let error = open(on(&disk), 2).map(|_| ()).expect_err("a hole");
        match gone {
            // The segment before it must reach up to the next that there is.
            1 | 2 => assert!(matches!(error, JournalError::Corrupt { .. }), "{error}"),
            _ => assert!(error.to_string().starts_with("the log has a hole before sim:/segment-"), "{error}"),
        }
    }
}

#[test]
fn a_missing_segment_of_one_record_is_an_error() {
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    for _ in 0..4 {
        wait(&journal, append(&journal, &[7; SEGMENT_BYTES / 2]).expect("accepted")).expect("durable");
    }
    // The process is killed.
    let disk = disk.copy(1);
    drop(journal);
    let mut segments = disk.files();
    segments.retain(|(name, _)| name.starts_with("segment-"));
    assert_eq!(segments.len(), 4, "one record in each");
    disk.remove(&segments[0].0).expect("removed");
    let error = open(on(&disk), 2).map(|_| ()).expect_err("a hole");
    assert!(matches!(error, JournalError::Missing { needed: Lsn(1), first: Lsn(2), .. }), "{error}");
}

#[test]
fn another_format_version_is_refused_by_number() {
    let (disk, ..) = small_log();
    let (name, _) = only_segment(&disk);
    disk.flip(&name, 7, 2);
    let error = open(on(&disk), 2).map(|_| ()).expect_err("version 5");
    assert_eq!(
        error.to_string(),
        format!(
            "sim:/{name} has journal format version 5, this program reads versions up to 3. Open it with the release that \
             wrote it, or a later one"
        )
    );
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let (disk, ..) = small_log();
    let (name, _) = only_segment(&disk);
    let other = name.replace("-0000000001-0000000001", "-0000000001-0000000002");
    assert_ne!(name, other);
    disk.rename(&name, &other).expect("renamed");
    let error = open(on(&disk), 2).map(|_| ()).expect_err("misplaced");
    assert!(error.to_string().contains("the epoch, opening and sequence that the file's name says"), "{error}");
}

#[test]
fn files_of_others_are_left_alone() {
    let (disk, ..) = small_log();
    for name in ["notes.txt", "segment-old", "fence-x", "segment-1-1"] {
        disk.put(name, b"mine");
    }
    let (_, records) = open(on(&disk), 2).expect("opened");
    assert_eq!(records.len(), 7);
    assert_eq!(disk.read("notes.txt", 9).expect("there"), b"mine");
}

#[test]
fn random_bytes_as_a_segment_are_an_error_or_no_records() {
    let (disk, ..) = small_log();
    let (name, _) = only_segment(&disk);
    let good = disk.read(&name, u64::MAX).expect("there");
    for seed in 0..3000_u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Random from some byte on, so that half of them get past the header.
        let keep = rng.random_range(0..300);
        let mut bytes = good[..keep].to_vec();
        let mut rest = vec![0; rng.random_range(0..2000)];
        rng.fill_bytes(&mut rest);
        bytes.extend_from_slice(&rest);
        let disk = SimDisk::new(seed);
        disk.put(&name, &bytes);
        if let Ok((_, records)) = open(on(&disk), 2) {
            assert!(keep >= 72, "seed {seed}: {records:?} from a random header");
            assert!(records.len() <= 4, "seed {seed}: {records:?}");
        }
    }
}

#[test]
fn a_payload_that_holds_a_journal_is_not_taken_for_one() {
    let (inner, ..) = small_log();
    let (name, _) = only_segment(&inner);
    let mut inside = inner.read(&name, 600).expect("there");
    inside.resize(600, 0);
    let disk = SimDisk::new(0);
    let (journal, _) = open(on(&disk), 1).expect("opened");
    wait(&journal, append(&journal, b"before").expect("accepted")).expect("durable");
    wait(&journal, append(&journal, &inside).expect("accepted")).expect("durable");
    // The process is killed.
    let disk = disk.copy(1);
    // The record is damaged in its header; what looks like records in its payload proves nothing.
    disk.flip(&name, 72 + 56 + 10, 0);
    let (_, records) = open(on(&disk), 2).expect("a torn tail");
    assert_eq!(records.len(), 1);
}
