//! Any bytes at all, as any text format: rows or an error, never a panic, and never a row lost without being counted.

use std::fs;

use arrow::datatypes::DataType;
use proptest::prelude::*;
use savanna_streams_model::catalog::varchar;

use crate::{TIMESTAMP, bid_columns, checked, drain, open, read_all, table};

fn columns() -> Vec<(&'static str, DataType)> {
    let mut columns = bid_columns();
    columns.push(("x", DataType::Float64));
    columns.push(("ok", DataType::Boolean));
    columns
}

/// Bytes that look enough like CSV and JSON to get deep into the decoders.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b",".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"{".to_vec()),
        Just(b"}".to_vec()),
        Just(b"[".to_vec()),
        Just(b":".to_vec()),
        Just(b"\\".to_vec()),
        Just(b"\xff".to_vec()),
        Just(b"null".to_vec()),
        Just(b"auction,price,channel,time,x,ok\n".to_vec()),
        Just(b"1,2,c,2024-01-01,1.5,true\n".to_vec()),
        Just(b"{\"auction\":1,\"price\":2}\n".to_vec()),
        Just(b"\"time\":\"2024-01-01T00:00:00\"".to_vec()),
        Just(b"{\"auction\":{\"auction\":".to_vec()),
        "[0-9eE.+-]{1,25}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_rows_or_an_error(bytes in texts()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fuzz");
        fs::write(&path, &bytes).unwrap();
        for format in ["csv", "ndjson", "parquet"] {
            let options =
                |on_error| [("connector", "file"), ("path", path.to_str().unwrap()), ("format", format), ("on-error", on_error)];
            let strict = read_all(&table(&columns(), &options("fail")));
            let lenient = table(&columns(), &options("skip"));
            if format != "parquet" {
                let mut reader = open(&lenient, None).unwrap();
                let batches = match drain(reader.as_mut(), 7) {
                    Ok(batches) => batches,
                    // A header of another table is no row that is skipped.
                    Err(error) => {
                        prop_assert!(strict.is_err() && error.to_string().contains("expected a header"), "{error}");
                        continue;
                    }
                };
                let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
                match strict {
                    Ok(lines) => prop_assert_eq!((lines.len(), reader.skipped()), (rows, 0)),
                    Err(error) => prop_assert!(reader.skipped() > 0, "{} with {}", error, rows),
                }
            }
            let bare = [("connector", "file"), ("path", path.to_str().unwrap()), ("format", format)];
            if let Ok(found) = checked(table(&[], &bare)) {
                let _ = read_all(&found);
            }
        }
    }

    #[test]
    fn rows_survive_being_written_and_read(
        cells in proptest::collection::vec((any::<Option<i64>>(), "[^\u{0}]{1,12}", any::<Option<bool>>()), 1..20)
    ) {
        use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringViewArray};
        use savanna_streams_connectors::BuiltinConnectors;
        use savanna_streams_api::ids::{Epoch, QueryId};
        use savanna_streams_model::source::Connectors;
        use std::sync::Arc;

        let numbers: ArrayRef = Arc::new(cells.iter().map(|c| c.0).collect::<Int64Array>());
        let texts: ArrayRef = Arc::new(cells.iter().map(|c| Some(c.1.as_str())).collect::<StringViewArray>());
        let truths: ArrayRef = Arc::new(cells.iter().map(|c| c.2).collect::<BooleanArray>());
        let rows =
            RecordBatch::try_from_iter_with_nullable([("a", numbers, true), ("b", texts, true), ("c", truths, true)]).unwrap();
        for format in ["csv", "ndjson", "parquet"] {
            let directory = tempfile::tempdir().unwrap();
            let pairs = [("connector", "file"), ("path", directory.path().to_str().unwrap()), ("format", format)];
            let table = table(&[("a", DataType::Int64), ("b", varchar()), ("c", DataType::Boolean)], &pairs);
            let mut sink = BuiltinConnectors::new().sink(&table, rows.schema()).unwrap();
            let query = QueryId { code: "q".into(), job: 1 };
            sink.commit(&query, Epoch(1), std::slice::from_ref(&rows)).unwrap();
            let read = drain(open(&table, None).unwrap().as_mut(), 1_000).unwrap();
            prop_assert_eq!(&crate::concat(&read), &rows, "{}", format);
        }
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep");
    fs::write(&path, "{\"auction\":".repeat(100_000)).unwrap();
    let pairs = [("connector", "file"), ("path", path.to_str().unwrap()), ("format", "ndjson")];
    assert!(read_all(&table(&[("auction", DataType::Int64), ("t", TIMESTAMP)], &pairs)).is_err());
    assert!(checked(table(&[], &pairs)).is_err());
}
