//! Tables of Delta in a directory.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use savanna_streams_api::ids::{Epoch, QueryId};
use savanna_streams_connectors::{BuiltinConnectors, Roots};
use savanna_streams_model::source::Connectors;
use serde_json::{Value, json};

use crate::{checked, table};

#[test]
fn a_table_that_is_made_has_the_columns_that_are_declared_whatever_a_query_gives() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b");
    let path = path.to_str().unwrap();
    let columns = [("n", DataType::Int64), ("text", DataType::Utf8View)];
    let declared = checked(table(&columns, &[("connector", "delta"), ("path", path)])).unwrap();
    // As of a count, which is never NULL, and of a query that names some columns.
    let given = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let rows = RecordBatch::try_new(Arc::clone(&given), vec![numbers]).unwrap();
    let mut sink = BuiltinConnectors::new().sink(&declared, given).unwrap();
    let query = QueryId { code: "abc".into(), job: 1 };
    assert_eq!(sink.last_committed(&query).unwrap(), None);
    assert!(!directory.path().join("a").exists(), "a table is made with the first epoch");
    sink.commit(&query, Epoch(1), &[rows]).unwrap();
    let entry = fs::read_to_string(format!("{path}/_delta_log/{:020}.json", 0)).unwrap();
    let actions = entry.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let meta = actions.map(|action| action["metaData"].clone()).find(|meta| !meta.is_null()).unwrap();
    let described: Value = serde_json::from_str(meta["schemaString"].as_str().unwrap()).unwrap();
    let fields: Vec<_> = described["fields"].as_array().unwrap().iter().map(|f| (&f["name"], &f["nullable"])).collect();
    assert_eq!(fields, [(&json!("n"), &json!(true)), (&json!("text"), &json!(true))]);
    assert_eq!(sink.last_committed(&query).unwrap(), Some(Epoch(1)));
}

#[test]
fn tables_lie_below_the_folders_that_tables_may_use_and_so_do_their_logs() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let roots = Roots::below(vec![directory.path().into()], Vec::new(), "start it with --files DIR");
    let connectors = BuiltinConnectors::with_roots(roots);
    let check = |path: &std::path::Path| {
        let mut declared =
            table(&[("n", DataType::Int64)], &[("connector", "delta"), ("path", path.to_str().unwrap())]);
        connectors.check(&mut declared).map_err(|error| error.to_string())
    };
    let inside = directory.path().join("t");
    assert_eq!(check(&inside), Ok(()));
    assert!(check(outside.path()).unwrap_err().contains("lies outside of the folders"));
    fs::create_dir(&inside).unwrap();
    std::os::unix::fs::symlink(outside.path(), inside.join("_delta_log")).unwrap();
    assert!(check(&inside).unwrap_err().contains("lies outside of the folders"));
}
