use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use arrow::datatypes::DataType;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_connectors::{BuiltinConnectors, generate_events, nexmark_table};
use savanna_streams_model::catalog::{TableDef, varchar};
use savanna_streams_model::source::{Connectors, EqualTo, FieldPath, Literal, Read, ScanSpec};
use tempfile::TempDir;

use crate::{TIMESTAMP, bid_columns, checked, concat, drain, lines, open, options, read_all, source, table};

/// A directory with one file.
pub(crate) fn with_file(name: &str, content: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

pub(crate) fn bids(path: &str, format: &str, more: &[(&str, &str)]) -> TableDef {
    let mut pairs = vec![("connector", "file"), ("path", path), ("format", format)];
    pairs.extend_from_slice(more);
    table(&bid_columns(), &pairs)
}

pub(crate) fn write_parquet(path: &Path, batches: &[arrow::array::RecordBatch], rows_per_group: usize) {
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows_per_group))
        .build();
    let file = fs::File::create(path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

const TWO_BIDS: [&str; 2] = [
    r#"{"auction":1,"price":100,"channel":"a, \"b\"","time":"2024-01-01T00:00:00.500"}"#,
    r#"{"auction":2,"time":"2024-01-01T00:00:01"}"#,
];

#[test]
fn csv_is_read_with_and_without_header() {
    let row = "1,100,\"a, \"\"b\"\"\",2024-01-01T00:00:00.500Z\n2,,,1704067201000\n";
    for (header, option) in [
        ("", "auto"),
        ("", "false"),
        ("auction,price,channel,time\n", "auto"),
        ("auction,price,channel,time\n", "true"),
        ("\u{feff}AUCTION, Price,channel,time\r\n", "auto"),
    ] {
        let (_directory, path) = with_file("bids.csv", &format!("{header}{row}"));
        let rows = read_all(&bids(&path, "csv", &[("csv.header", option)])).unwrap();
        assert_eq!(rows, TWO_BIDS, "header {header:?}, option {option}");
    }
}

#[test]
fn a_header_finds_columns_in_another_order_among_others() {
    let (_directory, path) = with_file("bids.csv", "x;time;channel;price;auction\n?;2024-01-01 00:00:01;;;2\n");
    let rows = read_all(&bids(&path, "csv", &[("csv.delimiter", ";")])).unwrap();
    assert_eq!(rows, TWO_BIDS[1..]);
    let (_directory, path) = with_file("bids.csv", "auction,price,time\n1,2,2024-01-01\n");
    let error = read_all(&bids(&path, "csv", &[("csv.header", "true")])).unwrap_err().to_string();
    assert!(error.contains("line 1: expected a header with column channel, got auction, price, time"), "{error}");
}

#[test]
fn ndjson_is_read_with_times_as_texts_and_numbers() {
    let content = "{\"auction\":1,\"price\":100,\"channel\":\"a, \\\"b\\\"\",\"time\":\"2024-01-01T00:00:00.500Z\"}\n\n\
                   {\"time\":1704067201000,\"more\":[1,{\"x\":2}],\"auction\":2}";
    let (_directory, path) = with_file("bids.ndjson", content);
    for format in ["ndjson", "json"] {
        assert_eq!(read_all(&bids(&path, format, &[])).unwrap(), TWO_BIDS);
    }
}

#[test]
fn malformed_csv_is_told_by_file_line_column_and_value() {
    let header = "auction,price,channel,time\n";
    for (rows, place, message) in [
        ("1,2,x,2024-01-01\n\n2,abc,x,\n", "line 4, column price", "expected BIGINT, got 'abc'"),
        ("1,2,\"a\nb\",\n2,1.5,x,\n", "line 4, column price", "expected BIGINT, got '1.5'"),
        ("1,2,x,soon\n", "line 2, column time", "expected TIMESTAMP(3), got 'soon'"),
        ("1,2,x\n", "line 2", "expected 4 fields, got 3"),
        ("1,2,x,,\n", "line 2", "expected 4 fields, got 5"),
        ("1,99999999999999999999,x,\n", "line 2, column price", "expected BIGINT, got '99999999999999999999'"),
    ] {
        let (_directory, path) = with_file("bids.csv", &format!("{header}{rows}"));
        let error = read_all(&bids(&path, "csv", &[])).unwrap_err();
        assert_eq!(error.to_string(), format!("{path} {place}: {message}; fix the row or set 'on-error' = 'skip'"));
        assert_eq!(error.sqlstate(), "22000");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bids.csv");
    fs::write(&path, b"1,2,\xff\xfe,\n").unwrap();
    let error = read_all(&bids(path.to_str().unwrap(), "csv", &[])).unwrap_err().to_string();
    assert!(error.contains("line 1, column channel: expected UTF-8"), "{error}");
}

#[test]
fn malformed_ndjson_is_told_by_file_line_column_and_value() {
    for (row, place, message) in [
        (r#"{"auction":1,"price":"abc"}"#, "line 3, column price", "expected BIGINT, got 'abc'"),
        (r#"{"auction":1.5}"#, "line 3, column auction", "expected BIGINT, got '1.5'"),
        (r#"{"auction":{}}"#, "line 3, column auction", "expected BIGINT, got '{}'"),
        (r#"{"time":"soon"}"#, "line 3, column time", "expected TIMESTAMP(3), got 'soon'"),
        (r#"{"channel":[1]}"#, "line 3, column channel", "expected VARCHAR, got '[1]'"),
        ("[1]", "line 3", "expected one JSON object, got '[1]'"),
    ] {
        let (_directory, path) = with_file("bids.ndjson", &format!("{{\"auction\":1}}\n\n{row}\n{{\"auction\":1}}\n"));
        let error = read_all(&bids(&path, "ndjson", &[])).unwrap_err().to_string();
        assert_eq!(error, format!("{path} {place}: {message}; fix the row or set 'on-error' = 'skip'"), "{row}");
    }
    for row in [r#"{"auction":1"#, r#"{"auction":1} {"auction":2}"#, "oops"] {
        let (_directory, path) = with_file("bids.ndjson", &format!("{{\"auction\":1}}\n{row}\n"));
        let error = read_all(&bids(&path, "ndjson", &[])).unwrap_err().to_string();
        assert!(error.contains("line 2: expected one JSON object, got "), "{error}");
    }
}

#[test]
fn a_malformed_field_of_a_row_column_is_told_by_its_path() {
    let inner = DataType::Struct([arrow::datatypes::Field::new("price", DataType::Int64, true)].into_iter().collect());
    let (_directory, path) = with_file("bids.ndjson", "{\"bid\":{\"price\":1}}\n{\"bid\":{\"price\":true}}\n");
    let table = table(&[("bid", inner)], &[("connector", "file"), ("path", &path), ("format", "ndjson")]);
    let error = read_all(&table).unwrap_err().to_string();
    assert!(error.contains("line 2, column bid.price: expected BIGINT, got 'true'"), "{error}");
}

#[test]
fn malformed_rows_are_skipped_and_counted() {
    let csv = "1,100,x,\n2,abc,x,\n3,x\n4,400,x,\n";
    let json = "{\"auction\":1,\"price\":100}\n{\"price\":\"abc\"}\nnonsense\n{\"auction\":4,\"price\":400}\n";
    for (format, content) in [("csv", csv), ("ndjson", json)] {
        let (directory, path) = with_file("bids", content);
        let letters = directory.path().join("letters");
        let dead = format!("dead-letter:{}", letters.display());
        for on_error in ["skip", &dead] {
            let table = bids(&path, format, &[("on-error", on_error)]);
            let mut reader = open(&table, None).unwrap();
            let rows = concat(&drain(reader.as_mut(), 100).unwrap());
            assert_eq!(rows.num_rows(), 2, "{format} {on_error}");
            assert_eq!(reader.skipped(), 2, "{format} {on_error}");
        }
        let letters = fs::read_to_string(letters).unwrap();
        let letters: Vec<serde_json::Value> = letters.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let mut lines: Vec<u64> = letters.iter().map(|letter| letter["line"].as_u64().unwrap()).collect();
        lines.sort_unstable();
        assert_eq!(lines, [2, 3], "{format}");
        let price = letters.iter().find(|letter| letter["line"] == 2).unwrap();
        assert_eq!(price["column"], "price");
        assert_eq!(price["message"], "expected BIGINT, got 'abc'");
        assert_eq!(price["row"].as_str().unwrap(), content.lines().nth(1).unwrap());
    }
}

#[test]
fn columns_are_found_by_looking_at_the_file() {
    let columns = |table: TableDef| -> Vec<(String, DataType)> {
        checked(table).unwrap().columns.into_iter().map(|c| (c.name, c.data_type)).collect()
    };
    let bare = |path: &str, format: &str| table(&[], &[("connector", "file"), ("path", path), ("format", format)]);
    let expected = [
        ("n".to_owned(), DataType::Int64),
        ("x".to_owned(), DataType::Float64),
        ("t".to_owned(), TIMESTAMP),
        ("name".to_owned(), varchar()),
        ("ok".to_owned(), DataType::Boolean),
    ];
    let (_directory, path) = with_file("a.csv", "n,x,t,name,ok\n1,2,2024-01-01 00:00:00,a,true\n2,2.5,,b,\n");
    assert_eq!(columns(bare(&path, "csv")), expected);
    let (_directory, path) = with_file("a.csv", "1,a\n2,b\n");
    assert_eq!(
        columns(bare(&path, "csv")),
        [("column1".to_owned(), DataType::Int64), ("column2".to_owned(), varchar())]
    );
    let (_directory, path) =
        with_file("a.json", "{\"n\":1,\"x\":2.5,\"t\":\"2024-01-01T00:00:00Z\",\"name\":\"a\",\"ok\":true}\n");
    assert_eq!(columns(bare(&path, "ndjson")), expected);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.parquet");
    let events = nexmark_table("e", &options(&[])).unwrap();
    write_parquet(&path, &[generate_events(&events.options, 0..100).unwrap()], 10);
    assert_eq!(checked(bare(path.to_str().unwrap(), "parquet")).unwrap().columns, events.columns);

    let error = checked(bare("/nonexistent", "csv")).unwrap_err().to_string();
    assert!(error.contains("declare the table's columns"), "{error}");
    let (_directory, path) = with_file("a.csv", "");
    assert!(checked(bare(&path, "csv")).unwrap_err().to_string().contains("expected rows to find the columns by"));
}

#[test]
fn parquet_is_read_by_row_group_and_column() {
    let directory = tempfile::tempdir().unwrap();
    let events = generate_events(&options(&[]), 0..1_000).unwrap();
    write_parquet(&directory.path().join("a.parquet"), &[events.slice(0, 600)], 100);
    write_parquet(&directory.path().join("b.parquet"), &[events.slice(600, 400)], 100);
    let path = directory.path().to_str().unwrap();
    let table = checked(table(&[], &[("connector", "file"), ("path", path), ("format", "parquet")])).unwrap();
    assert_eq!(concat(&drain(open(&table, None).unwrap().as_mut(), 333).unwrap()), events);

    let mut scan = ScanSpec::everything(table.clone());
    let part = |path: &[&str]| FieldPath(path.iter().map(|p| (*p).to_owned()).collect());
    scan.columns = vec![part(&["bid", "price"]), part(&["event_type"])];
    let source = source(&table).unwrap();
    assert_eq!(source.partitions(100), Ok(10));
    let mut rows = 0;
    for partition in 0..3 {
        for batch in drain(source.open(&scan, partition, 3, None).unwrap().as_mut(), 1_000).unwrap() {
            assert_eq!(batch.schema(), scan.schema());
            rows += batch.num_rows();
        }
    }
    assert_eq!(rows, 1_000);
    scan.columns.clear();
    let counted = drain(source.open(&scan, 0, 1, None).unwrap().as_mut(), 1_000).unwrap();
    assert_eq!(counted.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1_000);
}

#[test]
fn a_parquet_file_that_is_none_or_lacks_a_column_is_told() {
    let (_directory, path) = with_file("bids.parquet", "auction,price\n1,2\n");
    let error = read_all(&bids(&path, "parquet", &[])).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{path}: expected a Parquet file, got: ")), "{error}");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("events.parquet");
    write_parquet(&file, &[generate_events(&options(&[]), 0..10).unwrap()], 10);
    let error = read_all(&bids(file.to_str().unwrap(), "parquet", &[])).unwrap_err().to_string();
    assert!(
        error.contains("expected column price BIGINT, got a file with event_type, person, auction, bid"),
        "{error}"
    );
}

#[test]
fn reading_goes_on_at_any_offset() {
    let mut csv = "auction,price,channel,time\n".to_owned();
    let mut json = String::new();
    for n in 0..20 {
        csv += &format!("{n},{n},\"x\ny\",\n");
        json += &format!("{{\"auction\":{n},\"price\":{n}}}\n");
    }
    let events = generate_events(&options(&[]), 0..50).unwrap();
    let bids_only = events.column_by_name("bid").unwrap();
    let bid = arrow::array::AsArray::as_struct(bids_only).clone();
    let price = bid.column_by_name("price").unwrap();
    let flat = arrow::array::RecordBatch::try_from_iter([
        ("auction", std::sync::Arc::clone(price)),
        ("price", std::sync::Arc::clone(price)),
    ])
    .unwrap();
    for format in ["csv", "ndjson", "parquet"] {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            let path = directory.path().join(name);
            match format {
                "csv" => fs::write(path, &csv).unwrap(),
                "ndjson" => fs::write(path, &json).unwrap(),
                _ => write_parquet(&path, std::slice::from_ref(&flat), 20),
            }
        }
        let mut table = bids(directory.path().to_str().unwrap(), format, &[]);
        if format == "parquet" {
            table.columns.truncate(2);
        }
        let expected = read_all(&table).unwrap();
        let mut reader = open(&table, None).unwrap();
        let mut seen = 0;
        loop {
            let rest = drain(open(&table, Some(&reader.offset())).unwrap().as_mut(), 1_000).unwrap();
            assert_eq!(lines(&rest), expected[seen..], "{format} after {seen} rows");
            match reader.read(3, Duration::ZERO).unwrap() {
                Read::Rows(batch) => seen += batch.rows.num_rows(),
                Read::Pending | Read::Split(_) => {}
                Read::End => break,
            }
        }
        assert_eq!(seen, expected.len());
        let mut reader = open(&table, None).unwrap();
        assert!(matches!(reader.read(3, Duration::ZERO).unwrap(), Read::Rows(_)));
        let offset = reader.offset();
        fs::remove_file(directory.path().join("a")).unwrap();
        let Err(error) = open(&table, Some(&offset)) else { panic!("{format}: opened without its file") };
        assert!(error.to_string().contains("goes on only over the same files"), "{error}");
    }
}

pub(crate) fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn directories_and_patterns_are_dealt_to_partitions() {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..5 {
        append(&directory.path().join(format!("{n}.csv")), &format!("{n},{n},x,\n"));
    }
    append(&directory.path().join("other.txt"), "?");
    let pattern = directory.path().join("*.csv");
    let table = bids(pattern.to_str().unwrap(), "csv", &[]);
    let source = source(&table).unwrap();
    assert_eq!((source.partitions(2), source.partitions(9)), (Ok(2), Ok(5)));
    let scan = ScanSpec::everything(table.clone());
    let read = |partition| lines(&drain(source.open(&scan, partition, 2, None).unwrap().as_mut(), 10).unwrap()).len();
    assert_eq!((read(0), read(1)), (3, 2));
    let error = crate::source(&bids("/nonexistent/*.csv", "csv", &[])).unwrap_err().to_string();
    assert_eq!(error, "read /nonexistent/*.csv: no file matches the pattern");
}

#[test]
fn what_a_sink_writes_a_source_reads() {
    let events = generate_events(&options(&[]), 0..500).unwrap();
    let query = QueryId { code: "q".into(), job: 1 };
    for format in ["csv", "ndjson", "parquet"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let pairs = [("connector", "file"), ("path", path.to_str().unwrap()), ("format", format)];
        let rows = if format == "csv" {
            let bid = events.column_by_name("bid").unwrap();
            arrow::array::RecordBatch::from(arrow::array::AsArray::as_struct(bid).slice(10, 40))
        } else {
            events.clone()
        };
        let columns =
            rows.schema().fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect::<Vec<_>>();
        let columns: Vec<(&str, DataType)> = columns.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let table = table(&columns, &pairs);
        let mut sink = BuiltinConnectors::new().sink(&table, rows.schema()).unwrap();
        for epoch in 1..=2 {
            sink.commit(&query, Epoch(epoch), std::slice::from_ref(&rows)).unwrap();
            sink.commit(&query, Epoch(epoch), std::slice::from_ref(&rows)).unwrap();
        }
        sink.finish().unwrap();
        let expected = lines(&[rows.clone(), rows]);
        assert_eq!(read_all(&checked(table).unwrap()).unwrap(), expected, "{format}");
    }
}

#[test]
fn declarations_that_cannot_work_are_refused() {
    let row = DataType::Struct([arrow::datatypes::Field::new("x", DataType::Int64, true)].into_iter().collect());
    let error = checked(table(&[("r", row)], &[("connector", "file"), ("path", "x"), ("format", "csv")])).unwrap_err();
    assert!(error.to_string().starts_with("column r is ROW<x BIGINT>, which CSV cannot hold"), "{error}");
    let error = checked(bids("x", "xml", &[])).unwrap_err().to_string();
    assert!(error.contains("expected 'csv' or 'ndjson' or 'json' or 'parquet', got 'xml'"), "{error}");
    let error = checked(bids("x", "csv", &[("csv.quote", ",")])).unwrap_err().to_string();
    assert!(error.contains("expected another character than 'csv.delimiter'"), "{error}");
    let (_directory, path) = with_file("a.parquet", "");
    let error = checked(bids(&path, "parquet", &[("follow", "true")])).unwrap_err().to_string();
    assert!(error.contains("which cannot grow"), "{error}");
}

#[test]
fn a_partitioned_table_is_written_and_read_by_folder() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let columns = [("n", DataType::Int64), ("dt", varchar())];
    let mut out = table(&columns, &[("connector", "file"), ("path", path), ("format", "csv")]);
    out.partitioned_by = vec!["dt".into()];
    let out = checked(out).unwrap();
    let n: arrow::array::ArrayRef = std::sync::Arc::new(arrow::array::Int64Array::from(vec![1, 2]));
    let dt: arrow::array::ArrayRef = std::sync::Arc::new(arrow::array::StringViewArray::from(vec!["a", "b"]));
    let rows = arrow::array::RecordBatch::try_new(out.schema(), vec![n, dt]).unwrap();
    let mut sink = BuiltinConnectors::new().sink(&out, out.schema()).unwrap();
    sink.commit(&QueryId { code: "q".into(), job: 1 }, Epoch(1), &[rows]).unwrap();
    let folder = format!("{path}/dt=b");
    assert_eq!(
        read_all(&table(&columns[..1], &[("connector", "file"), ("path", &folder), ("format", "csv")])).unwrap(),
        ["{\"n\":2}"]
    );
    assert_eq!(read_all(&out).unwrap(), [r#"{"n":1,"dt":"a"}"#, r#"{"n":2,"dt":"b"}"#]);
    let where_b = EqualTo { path: FieldPath(vec!["dt".into()]), value: Literal::Text("b".into()) };
    let where_n = EqualTo { path: FieldPath(vec!["n".into()]), value: Literal::Integer(2) };
    // A file in a folder that is left out is not even opened.
    append(&directory.path().join("dt=a/broken.csv"), "no number\n");
    let whole = source(&out).unwrap();
    assert!(whole.pushes_down(&where_b) && !whole.pushes_down(&where_n), "only conditions on folders");
    let scan = ScanSpec { equal_to: vec![where_b], ..ScanSpec::everything(out.clone()) };
    assert_eq!(lines(&drain(whole.open(&scan, 0, 1, None).unwrap().as_mut(), 10).unwrap()), [r#"{"n":2,"dt":"b"}"#]);
    let mut followed = out.clone();
    followed.options.insert("follow".into(), "true".into());
    assert!(source(&followed).unwrap_err().to_string().contains("leave one of them out"));

    let mut printed = table(&columns, &[("connector", "print")]);
    printed.partitioned_by = vec!["dt".into()];
    let error = checked(printed).unwrap_err().to_string();
    assert!(error.starts_with("PARTITIONED BY with connector print is not supported"), "{error}");
}
