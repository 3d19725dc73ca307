//! Visits of a site, from a file to a file: `cargo run -p savanna-streams --example user_sessions -- DIRECTORY`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use savanna_streams::frame::{Context, col, count, lit, max, minutes, session};
use savanna_streams::{EngineOptions, StreamEngine};

const CLICKS: &str = r#"{"user": "ann", "page": "/", "at": "2026-11-30 10:00:00"}
{"user": "bob", "page": "/robots.txt", "at": "2026-11-30 10:01:00"}
{"user": "ann", "page": "/cart", "at": "2026-11-30 10:04:00"}
{"user": "bob", "page": "/", "at": "2026-11-30 10:05:00"}
{"user": "ann", "page": "/", "at": "2026-11-30 11:00:00"}
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map(PathBuf::from).ok_or("expected a directory")?;
    let (input, output) = (folder.join("clicks"), folder.join("visits"));
    fs::create_dir_all(&input)?;
    fs::write(input.join("a.ndjson"), CLICKS)?;
    let engine = StreamEngine::new(EngineOptions::default());
    let context = Context::open(engine.clone(), "example").await?;
    let tables = format!(
        "CREATE TABLE clicks (`user` VARCHAR, page VARCHAR, at TIMESTAMP(3), WATERMARK FOR at AS at)
            WITH ('connector' = 'file', 'path' = '{}', 'format' = 'ndjson');
         CREATE TABLE visits (`user` VARCHAR, began TIMESTAMP(3), pages BIGINT, last VARCHAR)
            WITH ('connector' = 'file', 'path' = '{}', 'format' = 'ndjson')",
        input.display(),
        output.display()
    );
    context.sql(&tables).await?;
    let visits = context
        .table("clicks")
        .filter(col("page").not_eq(lit("/robots.txt")))
        .window(session("at", minutes(30)).partition_by(["user"]))
        .group_by([col("user"), col("window_start").alias("began")])
        .agg([count().alias("pages"), max(col("page")).alias("last")]);
    println!("{}", visits.to_sql());
    let written = visits.write_to("visits").await?.wait().await?;
    println!("{} visits are in {}", written.result_rows, output.display());
    context.close().await?;
    engine.shutdown().await;
    Ok(())
}
