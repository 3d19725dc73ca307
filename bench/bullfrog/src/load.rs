//! Fills the tables of TPC-C (clause 4.3.3).

use std::fmt::Write;
use std::pin::pin;

use futures::SinkExt;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio_postgres::{Client, Error};

use crate::random::{self, CUSTOMERS, DISTRICTS, ITEMS};

const NOW: &str = "2026-01-01 00:00:00";
/// The first order that was not delivered.
const FIRST_NEW: i32 = 2101;

/// Creates the tables with so many warehouses.
pub(crate) async fn load(client: &Client, warehouses: i32, seed: u64) -> Result<(), Error> {
    let mut rng = SmallRng::seed_from_u64(seed);
    client.batch_execute(include_str!("../sql/tpcc.sql")).await?;
    copy(client, "item", (1..=ITEMS).map(|item| item_row(&mut rng, item))).await?;
    for warehouse in 1..=warehouses {
        copy(client, "warehouse", [warehouse_row(&mut rng, warehouse)].into_iter()).await?;
        copy(client, "stock", (1..=ITEMS).map(|item| stock_row(&mut rng, warehouse, item))).await?;
        copy(client, "district", (1..=DISTRICTS).map(|district| district_row(&mut rng, warehouse, district))).await?;
        for district in 1..=DISTRICTS {
            copy(client, "customer", (1..=CUSTOMERS).map(|number| customer_row(&mut rng, warehouse, district, number)))
                .await?;
            copy(client, "history", (1..=CUSTOMERS).map(|number| history_row(&mut rng, warehouse, district, number)))
                .await?;
            load_orders(client, &mut rng, warehouse, district).await?;
        }
    }
    client.batch_execute(include_str!("../sql/indexes.sql")).await?;
    client.batch_execute("VACUUM ANALYZE").await
}

/// Rows in the text format of COPY.
async fn copy(client: &Client, table: &str, rows: impl Iterator<Item = String>) -> Result<(), Error> {
    let mut sink = pin!(client.copy_in::<_, std::io::Cursor<Vec<u8>>>(&format!("COPY {table} FROM STDIN")).await?);
    let mut buffer = String::new();
    for row in rows {
        buffer.push_str(&row);
        buffer.push('\n');
        if buffer.len() > 1 << 16 {
            sink.send(std::io::Cursor::new(std::mem::take(&mut buffer).into_bytes())).await?;
        }
    }
    sink.send(std::io::Cursor::new(buffer.into_bytes())).await?;
    sink.finish().await.map(|_| ())
}

fn address(rng: &mut SmallRng) -> String {
    let street = [random::text(rng, 10, 20), random::text(rng, 10, 20), random::text(rng, 10, 20)].join("\t");
    format!("{street}\t{}\t{}11111", random::text(rng, 2, 2), random::digits(rng, 4))
}

/// A rate of four digits behind the point.
fn rate(rng: &mut SmallRng, at_most: i32) -> String {
    format!("0.{:04}", rng.random_range(0..=at_most))
}

fn item_row(rng: &mut SmallRng, item: i32) -> String {
    let price = rng.random_range(100..=10_000);
    let (image, name) = (rng.random_range(1..=10_000), random::text(rng, 14, 24));
    format!("{item}\t{image}\t{name}\t{}.{:02}\t{}", price / 100, price % 100, random::data(rng))
}

fn warehouse_row(rng: &mut SmallRng, warehouse: i32) -> String {
    let (name, address) = (random::text(rng, 6, 10), address(rng));
    format!("{warehouse}\t{name}\t{address}\t{}\t300000.00", rate(rng, 2000))
}

fn district_row(rng: &mut SmallRng, warehouse: i32, district: i32) -> String {
    let (name, address) = (random::text(rng, 6, 10), address(rng));
    format!("{warehouse}\t{district}\t{name}\t{address}\t{}\t30000.00\t{}", rate(rng, 2000), CUSTOMERS + 1)
}

fn stock_row(rng: &mut SmallRng, warehouse: i32, item: i32) -> String {
    let mut row = format!("{item}\t{warehouse}\t{}", rng.random_range(10..=100));
    for _ in 0..DISTRICTS {
        write!(row, "\t{}", random::text(rng, 24, 24)).expect("a string takes text");
    }
    format!("{row}\t0\t0\t0\t{}", random::data(rng))
}

fn customer_row(rng: &mut SmallRng, warehouse: i32, district: i32, number: i32) -> String {
    let (first, last) = (random::text(rng, 8, 16), random::last_name_of(rng, number));
    let (address, phone) = (address(rng), random::digits(rng, 16));
    let credit = if rng.random_range(0..10) == 0 { "BC" } else { "GC" };
    let (discount, data) = (rate(rng, 5000), random::text(rng, 300, 500));
    format!(
        "{warehouse}\t{district}\t{number}\t{first}\tOE\t{last}\t{address}\t{phone}\t{NOW}\t{credit}\t50000.00\t{discount}\t-10.00\t10.00\t\
         1\t0\t{data}"
    )
}

fn history_row(rng: &mut SmallRng, warehouse: i32, district: i32, number: i32) -> String {
    let data = random::text(rng, 12, 24);
    format!("{number}\t{district}\t{warehouse}\t{district}\t{warehouse}\t{NOW}\t10.00\t{data}")
}

/// One order of each customer, in random order, with its lines; the last 900 are not delivered yet.
async fn load_orders(client: &Client, rng: &mut SmallRng, warehouse: i32, district: i32) -> Result<(), Error> {
    let mut customers: Vec<i32> = (1..=CUSTOMERS).collect();
    customers.shuffle(rng);
    let (mut orders, mut lines) = (Vec::new(), Vec::new());
    for (order, customer) in (1..).zip(customers) {
        let is_new = order >= FIRST_NEW;
        let count = rng.random_range(5..=15);
        let carrier = if is_new { "\\N".to_owned() } else { rng.random_range(1..=10).to_string() };
        orders.push(format!("{warehouse}\t{district}\t{order}\t{customer}\t{NOW}\t{carrier}\t{count}\t1"));
        for number in 1..=count {
            let item = rng.random_range(1..=ITEMS);
            let cents = if is_new { rng.random_range(1..=999_999) } else { 0 };
            lines.push(format!(
                "{warehouse}\t{district}\t{order}\t{number}\t{item}\t{warehouse}\t{}\t5\t{}.{:02}\t{}",
                if is_new { "\\N" } else { NOW },
                cents / 100,
                cents % 100,
                random::text(rng, 24, 24)
            ));
        }
    }
    copy(client, "orders", orders.into_iter()).await?;
    copy(client, "order_line", lines.into_iter()).await?;
    copy(client, "new_order", (FIRST_NEW..=CUSTOMERS).map(|order| format!("{warehouse}\t{district}\t{order}"))).await
}
