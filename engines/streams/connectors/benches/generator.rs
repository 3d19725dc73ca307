//! How fast the generator makes events, on one thread: `cargo bench -p savanna-streams-connectors`.

use std::time::{Duration, Instant};

use savanna_streams_connectors::{BuiltinConnectors, nexmark_table};
use savanna_streams_model::source::{Connectors, EqualTo, FieldPath, Literal, Read, ScanSpec};

const EVENTS: u64 = 20_000_000;
const BATCH: usize = 16_384;

fn main() {
    let bid = ["auction", "bidder", "price", "channel", "url", "dateTime", "extra"];
    let auction = ["id", "itemName", "description", "initialBid", "reserve", "expires", "seller", "category", "extra"];
    let person = ["id", "name", "emailAddress", "creditCard", "city", "state", "extra"];
    let all = [("person", person.as_slice()), ("auction", auction.as_slice()), ("bid", bid.as_slice())];
    measure("bids: auction, dateTime", &[("bid", &["auction", "dateTime"])], Some(2));
    measure("bids: auction, bidder, price, dateTime", &[("bid", &["auction", "bidder", "price", "dateTime"])], Some(2));
    measure("bids: all columns", &[("bid", &bid)], Some(2));
    measure("auctions: all columns", &[("auction", &auction)], Some(1));
    measure("people: all columns", &[("person", &person)], Some(0));
    measure("all events, all columns", &all, None);
}

fn measure(name: &str, columns: &[(&str, &[&str])], event_type: Option<i64>) {
    let options = [("events.num".to_owned(), EVENTS.to_string())].into_iter().collect();
    let table = nexmark_table("events", &options).expect("the options are valid");
    let mut scan = ScanSpec::everything(table.clone());
    let path = |parent: &str, field: &str| FieldPath(vec![parent.to_owned(), field.to_owned()]);
    scan.columns = columns.iter().flat_map(|(parent, fields)| fields.iter().map(|field| path(parent, field))).collect();
    let condition = |kind| EqualTo { path: FieldPath(vec!["event_type".into()]), value: Literal::Integer(kind) };
    scan.equal_to = event_type.map(condition).into_iter().collect();
    let source = BuiltinConnectors::new().source(&table).expect("the table is valid");
    let mut best = Duration::MAX;
    let mut rows = 0;
    for _ in 0..3 {
        let mut reader = source.open(&scan, 0, 1, None).expect("partition 0 of 1 exists");
        let started = Instant::now();
        rows = 0;
        while let Read::Rows(batch) = reader.read(BATCH, Duration::ZERO).expect("the generator does not fail") {
            rows += batch.rows.num_rows();
        }
        println!("  {name}: {:?} wall", started.elapsed());
        best = best.min(reader.generator_cpu());
    }
    let seconds = best.as_secs_f64();
    let (rows_rate, events_rate) = (rows as f64 / seconds / 1e6, EVENTS as f64 / seconds / 1e6);
    println!("{name}: {rows_rate:.1} M rows per CPU-second, {events_rate:.1} M events per CPU-second");
}
