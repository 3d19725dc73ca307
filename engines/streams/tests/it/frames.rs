//! Queries as values of Rust: the stages and the rows of the same text.

use std::sync::Arc;

use savanna_streams::frame::{
    Context, Expression, Frame, avg, col, count, cumulate, hop, lit, max, minutes, raw, seconds, session, sum, tumble,
};
use savanna_streams::{EngineOptions, StreamEngine};

use crate::unasked::Unasked;

async fn opened(options: EngineOptions) -> (Arc<StreamEngine>, Context) {
    let engine = StreamEngine::new(options);
    let context = Context::open(engine.clone(), "test").await.unwrap();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql/data");
    context.sql(&include_str!("../sql/data/tables.ddl").replace("${DATA}", data)).await.unwrap();
    (engine, context)
}

/// All rows, sorted, each as text.
async fn rows(frame: &Frame) -> Vec<String> {
    use arrow::util::display::array_value_to_string;
    let (mut stream, mut rows) = (frame.rows().await.unwrap(), Vec::new());
    while let Some(batches) = stream.next().await.unwrap() {
        for batch in &batches {
            for row in 0..batch.num_rows() {
                let value = |column: &arrow::array::ArrayRef| array_value_to_string(column, row).unwrap();
                rows.push(batch.columns().iter().map(value).collect::<Vec<_>>().join(" | "));
            }
        }
    }
    rows.sort();
    rows
}

fn keys() -> [Expression; 2] {
    [col("window_start"), col("item")]
}

/// Frames, and what somebody would write for them.
fn pairs(context: &Context) -> Vec<(Frame, &'static str)> {
    let bids = || context.table("bids");
    let by_window =
        |window| bids().window(window).group_by(keys()).agg([count().alias("n"), max(col("price")).alias("most")]);
    vec![
        (
            by_window(tumble("at", minutes(1))),
            "SELECT window_start, item, count(*) AS n, max(price) AS most FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE)) \
             GROUP BY window_start, item, window_end",
        ),
        (
            by_window(hop("at", seconds(30), minutes(1))),
            "SELECT window_start, item, count(*) AS n, max(price) AS most \
             FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '30' SECOND, INTERVAL '60' SECOND)) GROUP BY window_start, item, window_end",
        ),
        (
            by_window(cumulate("at", seconds(30), minutes(1))),
            "SELECT window_start, item, count(*) AS n, max(price) AS most \
             FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(at), INTERVAL '30' SECOND, INTERVAL '60' SECOND)) GROUP BY window_start, item, window_end",
        ),
        (
            bids()
                .filter(col("price").gt(lit(10)))
                .window(session("at", minutes(1)).partition_by(["item"]))
                .group_by(keys())
                .agg([sum(col("price")).alias("total"), count().filter(col("price").gt_eq(lit(300))).alias("dear")]),
            "SELECT window_start, item, sum(price) AS total, count(*) FILTER (WHERE price >= 300) AS dear \
             FROM TABLE(SESSION((SELECT * FROM bids WHERE price > 10) PARTITION BY item, DESCRIPTOR(at), INTERVAL '1' MINUTE)) \
             GROUP BY window_start, item, window_end",
        ),
        (
            bids().select([col("item"), (col("price") * lit(2)).alias("twice"), raw("upper(item)").alias("name")]),
            "SELECT item, price * 2 AS twice, upper(item) AS name FROM bids",
        ),
        (
            bids()
                .window(tumble("at", seconds(30)))
                .group_by([col("item"), col("window_time").alias("at")])
                .agg([count().alias("n")])
                .window(tumble("at", minutes(1)))
                .group_by([col("window_start")])
                .agg([max(col("n")).alias("busiest"), avg(col("n")).alias("mean")]),
            "SELECT window_start, max(n) AS busiest, avg(n) AS mean FROM TABLE(TUMBLE((SELECT item, window_time AS at, count(*) AS n \
             FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '30' SECOND)) GROUP BY item, window_time, window_start, window_end), \
             DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_has_the_stages_and_the_rows_of_its_text() {
    let (engine, context) = opened(EngineOptions::default()).await;
    for (frame, text) in pairs(&context) {
        let written = context.query(text);
        assert_eq!(frame.explain().await.unwrap(), written.explain().await.unwrap(), "{}", frame.to_sql());
        let expected = rows(&written).await;
        assert!(!expected.is_empty(), "{text}");
        assert_eq!(rows(&frame).await, expected, "{}", frame.to_sql());
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_are_joined_and_put_together() {
    let (engine, context) = opened(EngineOptions::default()).await;
    let counted = |name| {
        context
            .table("bids")
            .window(tumble("at", minutes(1)))
            .group_by([col("window_start"), col("window_end"), col("item")])
            .agg([count().alias(name)])
    };
    let most = counted("n").group_by([col("window_start"), col("window_end")]).agg([max(col("n")).alias("most")]);
    let on = col("a.window_start")
        .eq(col("b.window_start"))
        .and(col("a.window_end").eq(col("b.window_end")))
        .and(col("a.n").eq(col("b.most")));
    let hottest =
        counted("n").alias("a").join(most.alias("b"), on).select([col("a.window_start"), col("a.item"), col("a.n")]);
    assert!(!rows(&hottest).await.is_empty(), "{}", hottest.to_sql());
    let items = || context.table("bids").select([col("item")]);
    assert_eq!(rows(&items().union_all(&items())).await.len(), 2 * rows(&items()).await.len());
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_is_written_to_a_table_and_tells_how_it_ended() {
    let (engine, context) = opened(EngineOptions::default()).await;
    let out = tempfile::tempdir().unwrap();
    let table = format!(
        "CREATE TABLE out (item VARCHAR, n BIGINT) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'ndjson')",
        out.path().join("rows").display()
    );
    context.sql(&table).await.unwrap();
    let by_item = context.table("bids").window(tumble("at", minutes(1))).group_by([col("item")]).agg([count()]);
    let running = by_item.write_to("out").await.unwrap();
    let ended = running.wait().await.unwrap();
    assert_eq!((ended.result_rows as usize, &ended.query), (rows(&by_item).await.len(), running.id()));
    let refused = by_item.write_to("nowhere").await.unwrap_err().to_string();
    assert!(refused.contains("nowhere"), "{refused}");
    let fails = context.table("bids").select([(lit(1) / (col("price") - col("price"))).alias("x")]);
    let mut failing = fails.rows().await.unwrap();
    let error = loop {
        match failing.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it has ended well"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("divisor is 0"), "{error}");
    assert!(context.sql("SELECT 1").await.unwrap_err().to_string().contains("Context::query"));
    context.close().await.unwrap();
    engine.shutdown().await;
}

/// As they are refused in SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_this_program_in_a_frame_run_on_no_host() {
    use savanna_streams::functions::{ScalarFunction, register_scalar};

    #[derive(Debug)]
    struct Same;

    impl ScalarFunction for Same {
        fn name(&self) -> &'static str {
            "same_in_a_frame"
        }

        fn takes(&self) -> Vec<arrow::datatypes::DataType> {
            vec![arrow::datatypes::DataType::Int64]
        }

        fn returns(&self) -> arrow::datatypes::DataType {
            arrow::datatypes::DataType::Int64
        }

        fn call(&self, arguments: &[arrow::array::ArrayRef]) -> Result<arrow::array::ArrayRef, String> {
            Ok(Arc::clone(&arguments[0]))
        }
    }

    register_scalar(Same).unwrap();
    let (here, context) = opened(EngineOptions::default()).await;
    let frame = |context: &Context| {
        context.table("bids").select([savanna_streams::frame::call("same_in_a_frame", [col("price")]).alias("p")])
    };
    assert!(!rows(&frame(&context)).await.is_empty());
    here.shutdown().await;
    let mut options = EngineOptions::default();
    options.runtime.cloud = Some(Arc::new(Unasked));
    let (there, context) = opened(options).await;
    let refused = match frame(&context).rows().await {
        Err(error) => error.to_string(),
        Ok(mut rows) => rows.next().await.unwrap_err().to_string(),
    };
    assert!(refused.contains("same_in_a_frame"), "{refused}");
    there.shutdown().await;
}
