//! What `EXPLAIN` says that a query would cost.

use std::sync::Arc;

use savanna_price::{FunctionPrice, Prices};
use savanna_streams::EngineOptions;

use crate::session::Session;
use crate::unasked::Unasked;

/// The line of functions in the advice.
async fn advice(options: EngineOptions) -> String {
    let session = Session::open(options).await;
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql/data");
    let tables = include_str!("../sql/data/tables.ddl").replace("${DATA}", data);
    let script = format!(
        "SET 'group-size' = '2'; SET 'parallelism' = '2'; {tables}
         EXPLAIN SELECT item, sum(price) AS total FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE))
         GROUP BY item, window_start, window_end;"
    );
    let explained = session.run(&script).await.unwrap().join("\n");
    session.close().await;
    let line = explained.lines().find_map(|line| line.trim_start().strip_prefix("serverless: "));
    line.unwrap_or_else(|| panic!("{explained}")).to_owned()
}

fn requests(advice: &str) -> u64 {
    advice.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_are_called_once_for_each_source_partition_and_member() {
    let here = requests(&advice(EngineOptions::default()).await);
    let mut options = EngineOptions::default();
    options.runtime.cloud = Some(Arc::new(Unasked));
    let there = requests(&advice(options).await);
    // In each epoch, here: 2 partitions read, each sends to 2 members, and both send to the sink. There: 2 partitions and 2 members.
    assert_eq!(here * 4, there * 8, "{here} here, {there} there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_is_by_the_prices_and_the_memory_that_are_configured() {
    let prices = Prices { per_million_requests: 7.0, per_gigabyte_second: 0.25 };
    let price = FunctionPrice { prices, memory_mb: 2048 };
    let advice = advice(EngineOptions { price, ..EngineOptions::default() }).await;
    for part in [" requests * $7.00/1e6 + ", " s * 2048 MB/1024 * $0.2500000000/GB-s = $"] {
        assert!(advice.contains(part), "{advice}");
    }
}
