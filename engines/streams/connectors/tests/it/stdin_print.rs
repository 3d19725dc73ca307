use std::io::{self, Read as _, Write};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::DataType;
use parking_lot::Mutex;
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_connectors::BuiltinConnectors;
use savanna_streams_model::catalog::varchar;
use savanna_streams_model::sink::Delivery;
use savanna_streams_model::source::{Connectors, Read, ScanSpec};

use crate::{bid_columns, checked, drain, lines, table};

fn connectors(input: impl io::Read + Send + 'static) -> (BuiltinConnectors, Arc<Mutex<Vec<u8>>>) {
    let output = Arc::new(Mutex::new(Vec::new()));
    let shared: Arc<Mutex<dyn Write + Send>> = Arc::<Mutex<Vec<u8>>>::clone(&output);
    (BuiltinConnectors::with_streams(Box::new(input), shared), output)
}

#[test]
fn standard_input_is_read_once() {
    let (connectors, _) = connectors(io::Cursor::new("1,100,x,\n2,200,y,"));
    let table = table(&bid_columns(), &[("connector", "stdin"), ("format", "csv")]);
    let source = connectors.source(&table).unwrap();
    assert!(!source.replayable());
    let scan = ScanSpec::everything(table);
    let mut reader = source.open(&scan, 0, 1, None).unwrap();
    let rows = lines(&drain(reader.as_mut(), 10).unwrap());
    assert_eq!(rows, [r#"{"auction":1,"price":100,"channel":"x"}"#, r#"{"auction":2,"price":200,"channel":"y"}"#]);
    let Err(error) = source.open(&scan, 0, 1, None) else { panic!("standard input was opened twice") };
    assert!(error.to_string().contains("cannot be read again"), "{error}");
}

/// An input that never gives anything.
struct Silence(std::sync::mpsc::Receiver<()>);

impl io::Read for Silence {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(0)
    }
}

#[test]
fn a_silent_input_does_not_hold_up_the_query() {
    let (end, silence) = std::sync::mpsc::channel();
    let (connectors, _) = connectors(Silence(silence));
    let table = table(&bid_columns(), &[("connector", "stdin"), ("format", "ndjson")]);
    let mut reader = connectors.source(&table).unwrap().open(&ScanSpec::everything(table), 0, 1, None).unwrap();
    assert!(matches!(reader.read(10, Duration::from_millis(1)).unwrap(), Read::Pending));
    drop(reader);
    drop(end);
}

/// An input that breaks.
struct Broken;

impl io::Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the cable is cut"))
    }
}

#[test]
fn a_broken_input_is_an_error() {
    let (connectors, _) = connectors(io::Cursor::new("{\"auction\":1}\n").chain(Broken));
    let table = table(&bid_columns(), &[("connector", "stdin"), ("format", "ndjson")]);
    let mut reader = connectors.source(&table).unwrap().open(&ScanSpec::everything(table), 0, 1, None).unwrap();
    let error = drain(reader.as_mut(), 10).unwrap_err().to_string();
    assert_eq!(error, "read standard input: the cable is cut");
}

#[test]
fn standard_input_needs_declared_columns() {
    let error = checked(table(&[], &[("connector", "stdin"), ("format", "csv")])).unwrap_err().to_string();
    assert!(error.starts_with("table t needs columns"), "{error}");
}

fn rows(numbers: &[Option<i64>], names: &[&str]) -> RecordBatch {
    let numbers = Arc::new(Int64Array::from(numbers.to_vec()));
    let names = Arc::new(StringViewArray::from(names.to_vec()));
    RecordBatch::try_from_iter_with_nullable([("n", numbers as _, true), ("name", names as _, true)]).unwrap()
}

fn printed(format: &str) -> String {
    let (connectors, output) = connectors(io::empty());
    let table = table(&[("n", DataType::Int64), ("name", varchar())], &[("connector", "print"), ("format", format)]);
    let first = rows(&[Some(1), None], &["a, \"b\"", "c"]);
    let second = rows(&[Some(1_000)], &["d"]);
    let mut sink = connectors.sink(&table, first.schema()).unwrap();
    assert_eq!(sink.delivery(), Delivery::AtLeastOnce);
    let query = QueryId { code: "q".into(), job: 1 };
    assert_eq!(sink.last_committed(&query).unwrap(), None);
    sink.commit(&query, Epoch(1), &[first]).unwrap();
    sink.commit(&query, Epoch(2), &[]).unwrap();
    sink.commit(&query, Epoch(3), &[second]).unwrap();
    sink.finish().unwrap();
    String::from_utf8(output.lock().clone()).unwrap()
}

#[test]
fn rows_are_printed_as_a_table() {
    assert_eq!(
        printed("table"),
        "op     n  name\n\
         +I     1  a, \"b\"\n\
         +I  NULL  c\n\
         +I  1000  d\n"
    );
}

#[test]
fn rows_are_printed_as_json() {
    assert_eq!(
        printed("json"),
        "{\"op\":\"+I\",\"n\":1,\"name\":\"a, \\\"b\\\"\"}\n\
         {\"op\":\"+I\",\"n\":null,\"name\":\"c\"}\n\
         {\"op\":\"+I\",\"n\":1000,\"name\":\"d\"}\n"
    );
}

#[test]
fn rows_are_printed_as_csv() {
    assert_eq!(printed("csv"), "op,n,name\n+I,1,\"a, \"\"b\"\"\"\n+I,,c\n+I,1000,d\n");
}

#[test]
fn the_black_hole_takes_everything() {
    let (connectors, output) = connectors(io::empty());
    let table = table(&[("n", DataType::Int64)], &[("connector", "blackhole")]);
    let batch = rows(&[Some(1)], &["x"]);
    let mut sink = connectors.sink(&table, batch.schema()).unwrap();
    sink.commit(&QueryId { code: "q".into(), job: 1 }, Epoch(1), &[batch]).unwrap();
    assert!(output.lock().is_empty());
}
