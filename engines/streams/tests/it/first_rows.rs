//! The first rows of each window: chosen early, so that little of a long window is kept, and the same as chosen late.

use savanna_streams::EngineOptions;

use crate::session::Session;

/// Auctions' bids in one window of many epochs.
const TABLE: &str = "
SET 'epoch-events' = '20000';
SET 'memory-limit' = '24MiB';
CREATE TABLE events (
    event_type INT,
    bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3), extra VARCHAR>,
    `dateTime` AS bid.`dateTime`,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'events.num' = '300000', 'seed' = '7');
CREATE VIEW bids AS SELECT bid.auction AS auction, bid.price AS price, bid.url AS url, bid.extra AS extra, `dateTime` AS at
FROM events WHERE event_type = 2;";

async fn rows(query: &str) -> Vec<String> {
    let session = Session::open(EngineOptions::default()).await;
    session.run(TABLE).await.unwrap();
    let rows = session.run(query).await.unwrap().remove(0);
    session.close().await;
    rows.lines().skip(1).map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_window_keeps_only_the_rows_that_are_needed() {
    let highest = "\
        SELECT place, price, url, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
            FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' DAY))
        ) WHERE place <= 3";
    assert_eq!(rows(highest).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_chosen_early_are_those_of_the_whole_window() {
    let ranked = "\
        SELECT auction, price FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, auction ORDER BY price DESC) AS place
            FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' DAY))
        ) WHERE place = 1";
    let highest = "\
        SELECT auction, max(price) AS price FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' DAY))
        GROUP BY auction, window_start, window_end";
    let ranked = rows(ranked).await;
    assert!(ranked.len() > 5_000, "more keys than a choice is made for: {}", ranked.len());
    assert_eq!(ranked, rows(highest).await);
}
