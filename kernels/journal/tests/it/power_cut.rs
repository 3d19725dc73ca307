//! A real directory after a power cut: what was told is there, because the operating system was asked to flush it.

use savanna_journal::{Lsn, Options};
use savanna_power_cut::Power;

use crate::history::{History, SEGMENT_BYTES, drafts, open, wait};

#[test]
fn what_was_told_outlives_a_power_cut_at_any_moment() {
    let machine = tempfile::tempdir().expect("a directory");
    let power = Power::of(machine.path()).expect("watched");
    let mut history = History::default();
    for epoch in 1..=3 {
        let options =
            |machine: &tempfile::TempDir| Options::dir(machine.path().join("log")).segment_bytes(SEGMENT_BYTES);
        let (journal, _) = open(options(&machine), epoch).expect("opened");
        for (records, size) in [(1, 20), (3, 300), (2, 900), (1, 2000), (1, 40)] {
            let (group, payloads) = history.next_group(records, size);
            let lsn = journal.append(&drafts(&payloads)).expect("accepted");
            wait(&journal, lsn).expect("durable");
            history.tell(group, lsn);

            let left = tempfile::tempdir().expect("a directory");
            power.cut(left.path()).expect("restored");
            let (_, records) = open(options(&left), 9).unwrap_or_else(|error| panic!("group {group}: {error}"));
            history.check(&records, Lsn(1)).unwrap_or_else(|error| panic!("group {group}: {error}"));
        }
        journal.close().expect("closed");
    }
}
