//! Every function with the largest arguments: what is too large is refused by name, and never takes the process with it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;

use arrow::array::ListArray;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, IntervalMonthDayNano};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};
use savanna_streams::EngineOptions;
use savanna_streams::api::StreamError;
use savanna_streams::functions;

use crate::session::Session;

/// Kilobytes of address space for all of a process. Stacks of threads are part of it.
const ADDRESS_SPACE: u64 = 4 << 20;
/// Tells a process that its address space is bounded.
const BOUNDED: &str = "STREAMS_BOUNDED";
/// Rows of a call with columns.
const ROWS: usize = 4;

/// Runs a test of this name again, in a process with little address space.
fn in_little_space(test: &str) -> bool {
    if std::env::var_os(BOUNDED).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("a test");
    let bounded = format!("ulimit -v {ADDRESS_SPACE}; exec \"$0\" --exact largest::{test} --nocapture");
    let done = Command::new("sh").args(["-c", &bounded]).arg(program).env(BOUNDED, "1").output().expect("a shell");
    let said = String::from_utf8_lossy(&done.stdout);
    let last = said.lines().rfind(|line| line.starts_with("> ")).unwrap_or_default();
    assert!(done.status.success(), "{last}\n{}", String::from_utf8_lossy(&done.stderr));
    false
}

/// Arguments of every kind, as large as they get or nearly; and short texts, of which there is room for many.
fn arguments() -> Vec<ScalarValue> {
    let numbers = ListArray::from_iter_primitive::<Int64Type, _, _>([Some((0..20_000).map(Some))]);
    let texts: Vec<ScalarValue> = (0..200).map(|_| ScalarValue::Utf8View(Some("b".repeat(1_000)))).collect();
    vec![
        ScalarValue::Utf8View(Some("a".repeat(100_000))),
        ScalarValue::Utf8View(Some("a".into())),
        ScalarValue::Int64(Some(2_147_483_647)),
        ScalarValue::List(Arc::new(numbers)),
        ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8View)),
        ScalarValue::TimestampMicrosecond(Some(1_700_000_000_000_000), None),
        ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(0, 0, 1))),
    ]
}

/// Calls a function if it takes such arguments: with constants, or with columns.
fn call(function: &Arc<ScalarUDF>, arguments: &[&ScalarValue], columns: bool) {
    let field = |value: &&ScalarValue| -> FieldRef { Arc::new(Field::new("a", value.data_type(), true)) };
    let fields: Vec<FieldRef> = arguments.iter().map(field).collect();
    let Ok(fields) = fields_with_udf(&fields, function.as_ref()) else { return };
    let values = arguments.iter().zip(&fields).map(|(value, field)| value.cast_to(field.data_type()));
    let Ok(values) = values.collect::<Result<Vec<_>, _>>() else { return };
    let constants: Vec<Option<&ScalarValue>> = values.iter().map(|value| (!columns).then_some(value)).collect();
    let returns = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &constants };
    let Ok(return_field) = function.return_field_from_args(returns) else { return };
    let rows = if columns { ROWS } else { 1 };
    let args = values.iter().map(|value| match columns {
        true => ColumnarValue::Array(value.to_array_of_size(rows).expect("a column of few rows")),
        false => ColumnarValue::Scalar(value.clone()),
    });
    let config_options = Arc::new(ConfigOptions::default());
    let args = ScalarFunctionArgs {
        args: args.collect(),
        arg_fields: fields,
        number_rows: rows,
        return_field,
        config_options,
    };
    println!(
        "> {} of {:?} {columns}",
        function.name(),
        args.arg_fields.iter().map(|f| f.data_type()).collect::<Vec<_>>()
    );
    functions::budget::begin();
    // Threads of queries catch what panics.
    let _ = catch_unwind(AssertUnwindSafe(|| function.invoke_with_args(args).map(drop)));
}

#[test]
fn every_function_takes_the_largest_arguments_or_refuses_them() {
    if !in_little_space("every_function_takes_the_largest_arguments_or_refuses_them") {
        return;
    }
    let known = functions::functions();
    let mut names: Vec<&String> = known.scalar_functions().keys().collect();
    names.sort_unstable();
    let arguments = arguments();
    for function in names.into_iter().map(|name| &known.scalar_functions()[name]) {
        for arity in 1..=3 {
            for number in 0..arguments.len().pow(arity) {
                let chosen: Vec<&ScalarValue> =
                    (0..arity).map(|at| &arguments[number / arguments.len().pow(at) % arguments.len()]).collect();
                call(function, &chosen, false);
                call(function, &chosen, true);
            }
        }
    }
}

/// What is computed for a row, with the largest arguments. `s` has 1,000 bytes.
const EXPRESSIONS: &[&str] = &[
    "repeat(s, 900000)",
    "repeat('a', 900000000)",
    "repeat(repeat(s, 1000), 1000)",
    "replace(repeat('a', 10000000), 'a', repeat('b', 300))",
    "replace(repeat('a', 1000000), '', repeat(s, 100))",
    "lpad(s, 2147483647, s)",
    "rpad('', 900000000, 'é')",
    "concat(repeat(s, 60000), repeat(s, 60000), repeat(s, 60000), repeat(s, 60000), repeat(s, 60000), repeat(s, 60000), \
     repeat(s, 60000), repeat(s, 60000), repeat(s, 60000), repeat(s, 60000), repeat(s, 60000))",
    "repeat(s, 300000) || repeat(s, 300000)",
    "concat_ws(repeat(s, 30000), s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)",
    "regexp_replace(repeat(s, 1000), '.', repeat('x', 1000))",
    "regexp_replace(repeat(s, 1000), '(.*)', repeat('$1', 1000))",
    "translate(repeat(s, 100000), 'abcdef', 'ghijkl')",
    "upper(repeat(s, 300000))",
    "encode(repeat(s, 300000), 'hex')",
    "array_to_string(array_repeat(s, 1000), repeat(s, 1000))",
    "array_repeat(s, 100000000)",
    "array_repeat(array_repeat(s, 10000), 10000)",
    "array_resize(ARRAY[s], 100000000, s)",
    "generate_series(1, 1000000000000)",
    "range(0, 9000000000)",
    "array_concat(array_repeat(s, 300000), array_repeat(s, 300000))",
    "ARRAY[array_repeat(s, 200000), array_repeat(s, 200000), array_repeat(s, 200000)]",
    "flatten(array_repeat(array_repeat(s, 1000), 1000))",
    "string_to_array(repeat(s, 100000), NULL)",
    "array_replace_all(array_repeat(1, 1000000), 1, 2)",
    "to_char(TIMESTAMP '2026-01-01 00:00:00', repeat('%A', 30000000))",
    "levenshtein(repeat(s, 1000), repeat(s, 1000))",
    "overlay(repeat(s, 300000) placing repeat(s, 300000) from 1 for 0)",
    "JSON_VALUE(repeat(s, 300000), '$.a')",
    "SPLIT_INDEX(repeat(s, 1000), s, 0)",
    "CAST(array_repeat(s, 300000) AS STRING)",
    "concat(CAST(array_repeat(s, 60000) AS STRING), CAST(array_repeat(s, 60001) AS STRING), CAST(array_repeat(s, 60002) AS STRING), \
     CAST(array_repeat(s, 60003) AS STRING), CAST(array_repeat(s, 60004) AS STRING), CAST(array_repeat(s, 60005) AS STRING), \
     CAST(array_repeat(s, 60006) AS STRING), CAST(array_repeat(s, 60007) AS STRING), CAST(array_repeat(s, 60008) AS STRING))",
    "CAST(array_repeat(named_struct(repeat('n', 10000), 1), 400000) AS STRING)",
    "CAST(CAST(CAST(repeat(s, 200000) AS BYTES) AS STRING) AS BYTES)",
    "TRY_CAST(array_repeat(array_repeat(true, 10000), 3000) AS STRING)",
];

#[tokio::test]
async fn every_expression_is_computed_or_refused_in_little_space() {
    if !in_little_space("every_expression_is_computed_or_refused_in_little_space") {
        return;
    }
    let session = Session::open(EngineOptions::default()).await;
    let table = "CREATE TABLE t (s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1000', 'fields.s.length' = '1000')";
    session.run(table).await.unwrap();
    for limit in ["none", "10MiB"] {
        session.run(&format!("SET 'memory-limit' = '{limit}'")).await.unwrap();
        for expression in EXPRESSIONS {
            let long = format!(
                "SELECT count(*) FROM TABLE(TUMBLE((SELECT PROCTIME() AS p, s FROM t), DESCRIPTOR(p), INTERVAL '1' HOUR)) WHERE CAST({expression} AS STRING) <> ''"
            );
            for sql in
                [format!("SELECT {}", expression.replace('s', "'s'")), format!("SELECT {expression} FROM t"), long]
            {
                println!("> {limit}: {sql}");
                if let Err(StreamError::Internal(error)) = session.run(&sql).await {
                    panic!("{sql}: {error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_refusal_names_the_function_and_the_limit() {
    let session = Session::open(EngineOptions::default()).await;
    session.run("CREATE TABLE t (s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1')").await.unwrap();
    session.run("SET 'memory-limit' = '10MiB'").await.unwrap();
    for (sql, function) in [
        ("SELECT length(repeat('a', 900000000))", "REPEAT"),
        ("SELECT length(repeat(s, 9000000)) FROM t", "REPEAT"),
        ("SELECT length(repeat('a', 900000000)) FROM t", "REPEAT"),
        ("SELECT length(repeat(s, 50000) || repeat(s, 50000)) FROM t", "CONCAT"),
        ("SELECT cardinality(generate_series(1, 100000000)) FROM t", "GENERATE_SERIES"),
        ("SELECT length(CAST(array_repeat(s, 30000) AS STRING)) FROM t", "CAST"),
    ] {
        let error = session.run(sql).await.unwrap_err();
        assert!(matches!(error, StreamError::Limit { .. }), "{sql}: {error:?}");
        assert!(
            error.to_string().starts_with(function) && error.to_string().contains("memory-limit of 10.0 MiB"),
            "{error}"
        );
    }
    assert_eq!(session.run("SELECT length(repeat('a', 4000000)) AS l").await.unwrap(), ["l\n4000000\n"]);
}

#[tokio::test]
async fn long_constants_are_computed_for_few_rows_at_a_time() {
    let session = Session::open(EngineOptions::default()).await;
    session.run("CREATE TABLE t (a BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3000')").await.unwrap();
    let long = "x".repeat(100_000);
    let sql = format!("SELECT length(CASE WHEN a % 2 = 0 THEN '{long}' ELSE '{long}y' END) - 100000 AS l FROM t");
    let rows = session.run(&sql).await.unwrap();
    assert_eq!(rows[0].lines().count(), 3_001);
    let error =
        session.run(&format!("SELECT CASE WHEN a % 2 = 0 THEN '{long}{long}' ELSE '{long}y' END AS l FROM t")).await;
    assert!(matches!(error, Ok(_) | Err(StreamError::Limit { .. })), "{error:?}");
}
