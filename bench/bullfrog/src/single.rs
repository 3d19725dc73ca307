//! What single statements cost on one connection: the first touch of a row, and the way of a statement when all rows were moved.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio_postgres::{Client, Error};

use crate::processor;
use crate::random::{CUSTOMERS, DISTRICTS};
use crate::report::Latency;

/// Rows so far apart lie on different pages: a page of customers has 14 at most.
const APART: usize = 20;

/// Latencies of statements while customers are being split and nothing moves by itself.
#[derive(Serialize)]
pub(crate) struct Touches {
    /// An update of a row whose page was not moved.
    cold: Latency,
    /// The same update again.
    warm: Latency,
    /// A request to a mover for a page that was moved: all of a first touch but finding and moving rows.
    round_trip: Latency,
    /// A statement that does nothing.
    nothing: Latency,
}

/// Touches one customer on each of so many pages, at most all; between two touches it does the other three.
///
/// # Errors
/// Those of the server.
pub(crate) async fn touch(client: &Client, pages: usize) -> Result<Touches, Error> {
    let update = client
        .prepare("UPDATE customer_private SET c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3")
        .await?;
    let source: i32 = client.query_one("SELECT id FROM bullfrog.source", &[]).await?.get(0);
    let round_trip = client.prepare("SELECT bullfrog.move($1, ARRAY[$2::bigint])").await?;
    let nothing = client.prepare("SELECT 1").await?;
    let warehouses: i32 = client.query_one("SELECT max(w_id) FROM warehouse", &[]).await?.get(0);
    let keys = (1..=warehouses).flat_map(|warehouse| {
        (1..=DISTRICTS)
            .flat_map(move |district| (1..=CUSTOMERS).step_by(APART).map(move |number| (warehouse, district, number)))
    });
    let mut times: [Vec<Duration>; 4] = Default::default();
    for (warehouse, district, number) in keys.take(pages) {
        for kind in [0, 1] {
            let begun = Instant::now();
            client.execute(&update, &[&warehouse, &district, &number]).await?;
            times[kind].push(begun.elapsed());
        }
        let moved: i64 = client.query_one("SELECT max(granule) FROM bullfrog.moved", &[]).await?.get(0);
        let begun = Instant::now();
        client.query(&round_trip, &[&source, &moved]).await?;
        times[2].push(begun.elapsed());
        let begun = Instant::now();
        client.query(&nothing, &[]).await?;
        times[3].push(begun.elapsed());
    }
    let [cold, warm, round_trip, nothing] = times.map(Latency::of);
    Ok(Touches { cold, warm, round_trip, nothing })
}

/// Processor time of the server per prepared statement, in microseconds.
#[derive(Serialize)]
pub(crate) struct Costs {
    select: f64,
    update: f64,
}

/// Reads and updates rows of the split customers by key, so many times each.
///
/// # Errors
/// Those of the server.
pub(crate) async fn cost(client: &Client, statements: u32) -> Result<Costs, Error> {
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let of_customer = "WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    let mut costs = [0.0; 2];
    for (cost, text) in costs.iter_mut().zip([
        format!("SELECT c_payment_cnt FROM customer_private {of_customer}"),
        format!("UPDATE customer_private SET c_payment_cnt = c_payment_cnt + 1 {of_customer}"),
    ]) {
        let statement = client.prepare(&text).await?;
        let mut before = 0;
        // The first tenth is not counted: the plan is chosen, caches fill.
        for number in 0..statements + statements / 10 {
            if number == statements / 10 {
                before = processor::nanos(pid);
            }
            let customer = 1 + (number as i32).wrapping_mul(7) % CUSTOMERS;
            client.query(&statement, &[&1, &(1 + number as i32 % DISTRICTS), &customer]).await?;
        }
        *cost = (processor::nanos(pid) - before) as f64 / f64::from(statements) / 1000.0;
    }
    let [select, update] = costs;
    Ok(Costs { select, update })
}
