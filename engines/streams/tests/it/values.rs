//! Values that look alike and are not, and the other way round.

use savanna_streams::EngineOptions;
use savanna_streams::api::StreamError;

use crate::session::Session;

const TABLE: &str = "CREATE TABLE t (a BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'datagen', 'number-of-rows' = '4', \
                     'fields.a.kind' = 'sequence', 'fields.a.start' = '0', 'fields.a.end' = '3', 'start-time' = '2026-01-01T00:00:00')";

#[tokio::test]
async fn a_computed_nan_is_like_any_other() {
    let session = Session::open(EngineOptions::default()).await;
    session.run(TABLE).await.unwrap();
    let computed = "0e0 / (a - a)";
    let compared = format!(
        "SELECT {computed} > 1e300 AS above, {computed} = CAST('NaN' AS DOUBLE) AS same, 1e308 * (a + 10) - 1e308 * (a + 10) = CAST('-NaN' AS DOUBLE) AS root, \
         -({computed}) = {computed} AS negative FROM t WHERE a = 0"
    );
    assert_eq!(session.run(&compared).await.unwrap(), ["above | same | root | negative\ntrue | true | true | true\n"]);
    let grouped = format!(
        "SELECT count(*) AS n, count(DISTINCT x) AS d FROM TABLE(TUMBLE((SELECT at, CASE WHEN a < 2 THEN {computed} ELSE \
         CAST('NaN' AS DOUBLE) END AS x FROM t), DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, x"
    );
    assert_eq!(session.run(&grouped).await.unwrap(), ["n | d\n4 | 1\n"]);
}

#[tokio::test]
async fn files_keep_empty_texts_nulls_and_nans() {
    let session = Session::open(EngineOptions::default()).await;
    session.run(TABLE).await.unwrap();
    for format in ["csv", "ndjson", "parquet"] {
        let folder = tempfile::tempdir().unwrap();
        let columns = "(s STRING, x DOUBLE)";
        let file =
            format!("WITH ('connector' = 'file', 'path' = '{}', 'format' = '{format}')", folder.path().display());
        let script = format!(
            "CREATE TABLE {format} {columns} {file};
             INSERT INTO {format} SELECT CASE a WHEN 0 THEN '' WHEN 1 THEN NULL ELSE 'x' END, CASE a WHEN 0 THEN 0e0 / a WHEN 1 THEN 1e0 / 0e0 \
             WHEN 2 THEN -1e0 / 0e0 END FROM t;
             SELECT s = '' AS empty, s IS NULL AS missing, CAST(x AS STRING) AS x FROM {format}"
        );
        let rows = session.run(&script).await.unwrap();
        let rows: Vec<&str> = rows[0].lines().skip(1).collect();
        assert_eq!(
            rows,
            ["NULL | true | inf", "false | false | -inf", "false | false | NULL", "true | false | NaN"],
            "{format}"
        );
    }
}

#[tokio::test]
async fn a_header_of_another_table_and_precisions_that_there_are_not_are_refused() {
    let session = Session::open(EngineOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, "a,c\nx,y\n").unwrap();
    let file =
        format!("WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv', 'on-error' = 'skip')", path.display());
    let error = session.run(&format!("CREATE TABLE f (a STRING, b STRING) {file}; SELECT * FROM f")).await.unwrap_err();
    assert!(error.to_string().contains("expected a header with column b, got a, c"), "{error}");
    let swapped = session.run(&format!("CREATE TABLE g (c STRING, a STRING) {file}; SELECT * FROM g")).await.unwrap();
    assert_eq!(swapped, ["c | a\ny | x\n"]);
    for precision in [1, 5, 8, 12] {
        let error = session.run(&format!("CREATE TABLE p (t TIMESTAMP({precision})) {file}")).await.unwrap_err();
        assert!(matches!(error, StreamError::Invalid { .. }) && error.to_string().contains("0, 3, 6 or 9"), "{error}");
    }
}
