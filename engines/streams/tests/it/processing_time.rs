//! Nexmark's query 12 in small: counts by windows of the clock, which the test gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use savanna_streams::EngineOptions;
use savanna_streams::model::time::EventTime;
use savanna_streams::runtime::Clock;

use crate::session::Session;

/// Begins with 1970 and goes on by six seconds with each epoch.
#[derive(Debug, Default)]
struct SixSecondsPerEpoch(AtomicI64);

impl Clock for SixSecondsPerEpoch {
    fn now(&self) -> EventTime {
        EventTime(self.0.fetch_add(6_000_000, Ordering::Relaxed))
    }

    fn until(&self, _: EventTime) -> Duration {
        Duration::MAX
    }
}

const TABLE: &str = "
SET 'epoch-events' = '4';
CREATE TABLE bids (
    at TIMESTAMP(3), auction BIGINT, bidder BIGINT, price BIGINT, item VARCHAR,
    p AS PROCTIME(),
    WATERMARK FOR at AS at - INTERVAL '2' SECOND
) WITH ('connector' = 'file', 'path' = '${DATA}/bids.csv', 'format' = 'csv');
CREATE VIEW B AS SELECT *, PROCTIME() AS p_time FROM bids;";

async fn rows(query: &str) -> Vec<String> {
    let mut options = EngineOptions::default();
    options.runtime.clock = Arc::new(SixSecondsPerEpoch::default());
    let session = Session::open(options).await;
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql/data");
    session.run(&TABLE.replace("${DATA}", data)).await.unwrap();
    let rows = session.run(query).await.unwrap();
    session.close().await;
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_counted_by_when_they_are_read() {
    let expected = "\
bidder | bid_count | starttime | endtime
10 | 1 | 1970-01-01T00:00:10 | 1970-01-01T00:00:20
10 | 3 | 1970-01-01T00:00:00 | 1970-01-01T00:00:10
11 | 2 | 1970-01-01T00:00:00 | 1970-01-01T00:00:10
11 | 2 | 1970-01-01T00:00:10 | 1970-01-01T00:00:20
12 | 1 | 1970-01-01T00:00:10 | 1970-01-01T00:00:20
12 | 2 | 1970-01-01T00:00:00 | 1970-01-01T00:00:10
13 | 1 | 1970-01-01T00:00:10 | 1970-01-01T00:00:20
NULL | 1 | 1970-01-01T00:00:00 | 1970-01-01T00:00:10
";
    for (table, time) in [("B", "p_time"), ("bids", "p")] {
        let query = format!(
            "SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
             FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '10' SECOND))
             GROUP BY bidder, window_start, window_end"
        );
        assert_eq!(rows(&query).await, [expected]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_the_clock_ends_a_gap_after_its_last_rows() {
    let query = "
        SELECT auction, window_start, window_end, count(*) AS bids
        FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(p), INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end";
    // Auction 3 is bid for at 0, 6 and 12 s.
    let expected = "\
auction | window_start | window_end | bids
1 | 1970-01-01T00:00:00 | 1970-01-01T00:00:28 | 6
2 | 1970-01-01T00:00:00 | 1970-01-01T00:00:22 | 4
3 | 1970-01-01T00:00:00 | 1970-01-01T00:00:22 | 3
";
    assert_eq!(rows(query).await, [expected]);
}
