//! The auctions with the most bids in each second of a generated stream, to the terminal: `cargo run -p savanna-streams --example hot_auctions`.

use std::error::Error;

use arrow::util::pretty::pretty_format_batches;
use savanna_streams::frame::{Context, col, count, lit, max, seconds, tumble};
use savanna_streams::{EngineOptions, StreamEngine};

const BIDS: &str = "
    CREATE TABLE auctions (
        event_type INT, bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, dateTime TIMESTAMP(3), extra VARCHAR>,
        at AS bid.dateTime, WATERMARK FOR at AS at - INTERVAL '1' SECOND
    ) WITH ('connector' = 'nexmark', 'events.num' = '50000');
    CREATE VIEW bids AS SELECT bid.auction, bid.bidder, bid.price, at FROM auctions WHERE event_type = 2";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = StreamEngine::new(EngineOptions::default());
    let context = Context::open(engine.clone(), "example").await?;
    context.sql(BIDS).await?;
    let per_second = context
        .table("bids")
        .window(tumble("at", seconds(1)))
        .group_by([col("window_start"), col("auction")])
        .agg([count().alias("bids"), max(col("price")).alias("highest")]);
    println!("{}", per_second.explain().await?);
    let mut rows = per_second.filter(col("bids").gt(lit(150))).rows().await?;
    while let Some(batches) = rows.next().await? {
        if batches.iter().any(|batch| batch.num_rows() > 0) {
            println!("{}", pretty_format_batches(&batches)?);
        }
    }
    context.close().await?;
    engine.shutdown().await;
    Ok(())
}
