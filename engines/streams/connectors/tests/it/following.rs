//! Files that are read while they grow and while others join them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use savanna_streams_api::Result;
use savanna_streams_model::source::{Read, SourceReader, SplitChange};
use savanna_streams_model::time::EventTime;

use crate::files::{append, bids, with_file, write_parquet};
use crate::{drain, lines, open, source};

/// Reads until there is nothing more for now.
fn try_read_now(reader: &mut dyn SourceReader) -> Result<Vec<String>> {
    let mut batches = Vec::new();
    loop {
        match reader.read(100, Duration::ZERO)? {
            Read::Rows(batch) => batches.push(batch.rows),
            Read::Split(_) => {}
            Read::Pending => return Ok(lines(&batches)),
            Read::End => panic!("a followed source ended"),
        }
    }
}

fn read_now(reader: &mut dyn SourceReader) -> Vec<String> {
    try_read_now(reader).unwrap()
}

/// The error that following ends with.
fn error_of(reader: &mut dyn SourceReader) -> String {
    try_read_now(reader).unwrap_err().to_string()
}

/// The `auction` of rows.
fn auctions(batch: &RecordBatch) -> Vec<i64> {
    let column: &Int64Array = arrow::array::AsArray::as_primitive(batch.column_by_name("auction").unwrap());
    column.values().to_vec()
}

#[test]
fn a_file_is_followed_as_it_grows() {
    let (directory, path) = with_file("a.csv", "auction,price,channel,time\n1,1,,\n2,");
    let table = bids(&path, "csv", &[("follow", "true")]);
    assert!(!source(&table).unwrap().bounded());
    let mut reader = open(&table, None).unwrap();
    assert_eq!(read_now(reader.as_mut()), [r#"{"auction":1,"price":1}"#]);
    append(&directory.path().join("a.csv"), "2,,\n3,3,");
    assert_eq!(read_now(reader.as_mut()), [r#"{"auction":2,"price":2}"#]);
    let mut later = open(&table, Some(&reader.offset())).unwrap();
    append(&directory.path().join("a.csv"), ",\n");
    for reader in [&mut reader, &mut later] {
        assert_eq!(read_now(reader.as_mut()), [r#"{"auction":3,"price":3}"#]);
    }
}

#[test]
fn what_is_no_row_changes_no_place() {
    let (directory, path) = with_file("a.csv", "auction,price,channel,time\n");
    let table = bids(&path, "csv", &[("follow", "true")]);
    let mut reader = open(&table, None).unwrap();
    let fresh = reader.offset();
    assert!(read_now(reader.as_mut()).is_empty());
    assert_eq!(reader.offset(), fresh, "a header is no row");
    append(&directory.path().join("a.csv"), "1,1,,\n");
    read_now(reader.as_mut());
    let first = reader.offset();
    append(&directory.path().join("a.csv"), "\n\r\n");
    assert!(read_now(reader.as_mut()).is_empty());
    assert_eq!(reader.offset(), first, "blank lines are none");
    append(&directory.path().join("a.csv"), "2,2,,\n");
    let mut later = open(&table, Some(&first)).unwrap();
    for reader in [&mut reader, &mut later] {
        assert_eq!(read_now(reader.as_mut()), [r#"{"auction":2,"price":2}"#]);
    }
    assert_eq!(later.offset(), reader.offset());
}

#[test]
fn another_file_in_the_place_of_one_that_was_read_is_noticed_by_who_goes_on() {
    let (directory, path) = with_file("a.csv", "auction,price,channel,time\n1,1,,\n");
    let table = bids(&path, "csv", &[("follow", "true")]);
    let mut reader = open(&table, None).unwrap();
    read_now(reader.as_mut());
    let offset = reader.offset();
    assert_eq!(open(&table, Some(&offset)).unwrap().offset(), offset, "also before anything is read");
    fs::write(directory.path().join("b.csv"), "auction,price,channel,time\n7,7,,\n8,8,,\n9,9,,\n").unwrap();
    fs::rename(directory.path().join("b.csv"), directory.path().join("a.csv")).unwrap();
    let error = error_of(open(&table, Some(&offset)).unwrap().as_mut());
    assert!(error.contains("the file was replaced"), "{error}");
}

#[test]
fn every_file_of_a_directory_is_followed_and_new_ones_join() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let table = bids(directory.path().to_str().unwrap(), "ndjson", &[("follow", "true")]);
    let mut reader = open(&table, None).unwrap();
    assert!(read_now(reader.as_mut()).is_empty());
    append(&file("2"), "{\"auction\":1}\n{\"auction\":2}");
    append(&file(".hidden"), "{\"auction\":9}\n");
    assert_eq!(read_now(reader.as_mut()), [r#"{"auction":1}"#], "the last row may not be whole");
    append(&file("3"), "{\"auction\":3}\n");
    assert_eq!(read_now(reader.as_mut()), [r#"{"auction":3}"#]);
    append(&file("2"), "\n");
    append(&file("1"), "{\"auction\":0}\n");
    let mut rows = read_now(reader.as_mut());
    rows.sort();
    assert_eq!(rows, [r#"{"auction":0}"#, r#"{"auction":2}"#], "whatever its name");
    for round in 10..13 {
        for name in ["1", "2", "3"] {
            append(&file(name), &format!("{{\"auction\":{round}}}\n"));
        }
        assert_eq!(read_now(reader.as_mut()).len(), 3, "all of them grow");
    }
}

#[test]
fn a_file_that_grows_without_end_does_not_keep_the_others_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    append(&file("busy"), &"{\"auction\":1}\n".repeat(1_000));
    append(&file("calm"), "{\"auction\":2}\n");
    let table = bids(directory.path().to_str().unwrap(), "ndjson", &[("follow", "true")]);
    let mut reader = open(&table, None).unwrap();
    let mut reads = 0;
    loop {
        append(&file("busy"), &"{\"auction\":1}\n".repeat(10));
        reads += 1;
        assert!(reads < 50, "the second file was not read");
        if let Read::Rows(batch) = reader.read(10, Duration::ZERO).unwrap()
            && auctions(&batch.rows).contains(&2)
        {
            break;
        }
    }
}

#[test]
fn a_followed_file_may_be_removed_when_it_was_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let table = bids(directory.path().to_str().unwrap(), "ndjson", &[("follow", "true")]);
    append(&file("1"), "{\"auction\":1}\n{\"auction\":7}");
    append(&file("2"), "{\"auction\":2}\n");
    let mut reader = open(&table, None).unwrap();
    assert_eq!(read_now(reader.as_mut()).len(), 2);
    fs::remove_file(file("1")).unwrap();
    append(&file("2"), "{\"auction\":3}\n");
    append(&file("3"), "{\"auction\":4}\n");
    let mut rows = read_now(reader.as_mut());
    rows.sort();
    assert_eq!(
        rows,
        [r#"{"auction":3}"#, r#"{"auction":4}"#, r#"{"auction":7}"#],
        "the last row of the removed file, too"
    );
    append(&file("2"), "{\"auction\":5}\n");
    assert_eq!(read_now(open(&table, Some(&reader.offset())).unwrap().as_mut()), [r#"{"auction":5}"#]);
    append(&file("1"), "{\"auction\":6}\n");
    let mut rows = read_now(reader.as_mut());
    rows.sort();
    assert_eq!(rows, [r#"{"auction":5}"#, r#"{"auction":6}"#], "a new file of an old name is new");
}

#[test]
fn a_truncated_or_replaced_file_ends_following_with_an_error() {
    let (directory, path) = with_file("a.json", "{\"auction\":1}\n");
    let table = bids(&path, "ndjson", &[("follow", "true")]);
    let mut reader = open(&table, None).unwrap();
    read_now(reader.as_mut());
    fs::write(&path, "").unwrap();
    let error = error_of(reader.as_mut());
    assert!(error.contains("the file was truncated"), "{error}");

    append(Path::new(&path), "{\"auction\":1}\n");
    let mut reader = open(&table, None).unwrap();
    read_now(reader.as_mut());
    fs::rename(&path, directory.path().join("old.json")).unwrap();
    append(Path::new(&path), "{\"auction\":1}\n");
    let error = error_of(reader.as_mut());
    assert!(error.contains("the file was replaced"), "{error}");
    fs::remove_file(&path).unwrap();
    let mut reader = open(&bids(&path, "ndjson", &[("follow", "true")]), None).unwrap();
    assert!(read_now(reader.as_mut()).is_empty(), "a file may come later");
}

#[test]
fn a_file_that_was_written_anew_and_longer_ends_following_with_an_error() {
    let row = |n: usize| format!("{{\"auction\":{n},\"channel\":\"{}\"}}\n", "x".repeat(200));
    let old: String = (0..100).map(row).collect();
    let other_head = row(1000) + &old[row(0).len() + 3..];
    assert_eq!(old.len(), other_head.len());
    for (what, new) in [
        ("other rows", (200..400).map(row).collect::<String>()),
        ("another first row, and more", other_head.clone() + &row(1)),
        ("another last row, and more", old[..old.len() - row(99).len()].to_owned() + &row(98) + &row(100)),
        ("as many bytes", other_head),
    ] {
        let (_directory, path) = with_file("a.json", &old);
        let mut reader = open(&bids(&path, "ndjson", &[("follow", "true")]), None).unwrap();
        assert_eq!(read_now(reader.as_mut()).len(), 100);
        // Its time of change must differ, too.
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, new).unwrap();
        let error = error_of(reader.as_mut());
        assert!(error.contains("the file was rewritten"), "{what}: {error}");
    }
}

#[test]
fn a_followed_file_under_a_new_name_is_not_read_twice() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    append(&file("a.log"), "{\"auction\":1}\n");
    let table = bids(directory.path().to_str().unwrap(), "ndjson", &[("follow", "true")]);
    let mut reader = open(&table, None).unwrap();
    read_now(reader.as_mut());
    fs::rename(file("a.log"), file("a.log.1")).unwrap();
    let error = error_of(reader.as_mut());
    assert!(error.contains("a.log under a new name: its rows would come twice"), "{error}");
}

/// Also when it is found on the way to rows, and not because there are none.
#[test]
fn a_file_that_joins_is_told_before_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    append(&file("b.log"), "{\"auction\":0}\n");
    let table = bids(directory.path().to_str().unwrap(), "ndjson", &[("follow", "true")]);
    let mut reader = open(&table, None).unwrap();
    read_now(reader.as_mut());
    let mut known = 1;
    for round in 0..5 {
        append(&file("b.log"), "{\"auction\":1}\n");
        append(&file(&format!("a{round}.log")), "{\"auction\":2}\n");
        std::thread::sleep(Duration::from_millis(60));
        loop {
            match reader.read(100, Duration::ZERO).unwrap() {
                Read::Split(SplitChange::Began) => known += 1,
                Read::Rows(batch) => assert!(batch.split < known, "rows of split {} of {known}", batch.split),
                Read::Pending => break,
                _ => {}
            }
        }
        assert_eq!(known, round + 2);
    }
}

#[test]
fn new_files_that_are_whole_end_and_may_not_change() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let table = bids(directory.path().to_str().unwrap(), "ndjson", &[("follow", "new-files")]);
    append(&file("1"), "{\"auction\":1}");
    let mut reader = open(&table, None).unwrap();
    assert_eq!(reader.splits(), 1);
    assert!(matches!(reader.read(10, Duration::ZERO).unwrap(), Read::Rows(_)));
    assert!(matches!(reader.read(10, Duration::ZERO).unwrap(), Read::Split(SplitChange::Ended(0))));
    append(&file("0"), "{\"auction\":0}\n");
    assert!(matches!(reader.read(10, Duration::ZERO).unwrap(), Read::Split(SplitChange::Began)));
    assert_eq!(read_now(reader.as_mut()), [r#"{"auction":0}"#]);
    fs::remove_file(file("0")).unwrap();
    assert!(read_now(reader.as_mut()).is_empty());
    append(&file("1"), "\n{\"auction\":2}\n");
    let error = error_of(reader.as_mut());
    assert!(error.contains("changed after it was read (13 bytes, then 28)"), "{error}");
}

#[test]
fn new_parquet_files_join_when_they_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let rows = |from: i64| {
        let column: ArrayRef = std::sync::Arc::new(Int64Array::from_iter_values(from..from + 10));
        RecordBatch::try_from_iter_with_nullable([("auction", column, true)]).unwrap()
    };
    write_parquet(&directory.path().join("b"), &[rows(0)], 5);
    let mut table = bids(directory.path().to_str().unwrap(), "parquet", &[("follow", "true")]);
    table.columns.truncate(1);
    let mut reader = open(&table, None).unwrap();
    assert_eq!(read_now(reader.as_mut()).len(), 10);
    write_parquet(&directory.path().join("a"), &[rows(10)], 3);
    assert_eq!(read_now(reader.as_mut()).len(), 10);
    assert!(read_now(reader.as_mut()).is_empty());
}

#[test]
fn the_file_that_is_furthest_behind_is_read_next() {
    let directory = tempfile::tempdir().unwrap();
    // More files than are open at once, which are read in turn.
    for host in 0..200 {
        let rows: String = (0..40).map(|n| format!("{n},{host},,\n")).collect();
        append(&directory.path().join(format!("host-{host:03}.csv")), &format!("auction,price,channel,time\n{rows}"));
    }
    let table = bids(directory.path().to_str().unwrap(), "csv", &[]);
    let in_order = drain(open(&table, None).unwrap().as_mut(), 7).unwrap();
    let in_order: Vec<i64> = in_order.iter().flat_map(auctions).collect();
    assert_eq!(in_order, (0..200).flat_map(|_| 0..40).collect::<Vec<_>>(), "without watermarks one after the other");

    let mut reader = open(&table, None).unwrap();
    let (mut newest, mut ahead, mut rows, mut offset) = (vec![-1_i64; 200], 0, 0, None);
    loop {
        match reader.read(7, Duration::ZERO).unwrap() {
            Read::Rows(batch) => {
                let last = *auctions(&batch.rows).last().unwrap();
                rows += batch.rows.num_rows();
                newest[batch.split] = last;
                reader.passed(batch.split, EventTime(last));
                ahead = ahead.max(last - newest.iter().min().unwrap());
                if rows > 4_000 {
                    offset.get_or_insert_with(|| (reader.offset(), rows));
                }
            }
            Read::Split(_) | Read::Pending => {}
            Read::End => break,
        }
    }
    assert_eq!(rows, 200 * 40);
    assert!(ahead <= 14, "a file was read {ahead} rows ahead of another");
    let (offset, before) = offset.unwrap();
    let rest = drain(open(&table, Some(&offset)).unwrap().as_mut(), 100).unwrap();
    assert_eq!(rest.iter().map(RecordBatch::num_rows).sum::<usize>(), rows - before);
}
