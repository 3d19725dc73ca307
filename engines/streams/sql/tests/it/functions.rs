//! The functions that streaming SQL has besides DataFusion's, by their values.

use arrow::util::display::{ArrayFormatter, FormatOptions};
use savanna_streams_sql::{Statement, function_names, parse};

use crate::support::World;

#[track_caller]
fn value(expression: &str) -> String {
    let Statement::Query(query) = parse(&format!("SELECT {expression} AS v")).unwrap() else { panic!("a query") };
    let batch = World::new().planner().constant(&query).unwrap_or_else(|e| panic!("{e}")).unwrap();
    let options = FormatOptions::default().with_null("NULL");
    ArrayFormatter::try_new(batch.column(0), &options).unwrap().value(0).to_string()
}

#[test]
fn own_functions_compute_what_streaming_sql_says() {
    assert_eq!(value("MOD(17, 5)"), "2");
    assert_eq!(value("MOD(-17, 5)"), "-2");
    assert_eq!(value("HOUR(TIMESTAMP '2015-07-15 13:04:05')"), "13");
    assert_eq!(value("DAYOFWEEK(DATE '2015-07-15')"), "4");
    assert_eq!(value("YEAR(TIMESTAMP '2015-07-15 13:04:05')"), "2015");
    assert_eq!(value("DATE_FORMAT(TIMESTAMP '2015-07-15 13:04:05', 'yyyy-MM-dd HH:mm')"), "2015-07-15 13:04");
    assert_eq!(value("SPLIT_INDEX('https://a.com/x/y', '/', 3)"), "x");
    assert_eq!(value("SPLIT_INDEX('a', '/', 3)"), "NULL");
    assert_eq!(value("REGEXP_EXTRACT('u?channel_id=abc&x=1', '(&|^|\\?)channel_id=([^&]*)', 2)"), "abc");
    assert_eq!(value("REGEXP_EXTRACT('abc', 'x')"), "NULL");
    assert_eq!(value("COUNT_CHAR('banana', 'a')"), "3");
}

#[test]
fn listed_functions_are_those_that_may_be_called() {
    let names = function_names();
    assert!(names.iter().any(|n| n == "date_format") && names.iter().any(|n| n == "count"));
    assert!(!names.iter().any(|n| n == "random" || n == "array_agg"));
}
