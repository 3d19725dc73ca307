use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int32Type, Int64Type, TimestampMillisecondType};
use savanna_streams_connectors::{BuiltinConnectors, generate_events, nexmark_table};
use savanna_streams_model::catalog::TableDef;
use savanna_streams_model::source::{Connectors, EqualTo, FieldPath, Literal, Offset, Read, ScanSpec};

use crate::{checked, concat, drain, lines, options, table};

fn events(pairs: &[(&str, &str)]) -> TableDef {
    nexmark_table("events", &options(pairs)).unwrap()
}

fn path(text: &str) -> FieldPath {
    FieldPath(text.split('.').map(ToOwned::to_owned).collect())
}

fn of_type(kind: i64) -> EqualTo {
    EqualTo { path: path("event_type"), value: Literal::Integer(kind) }
}

/// Reads a scan in `partitions` with `batch` events at a time; rows of all partitions, one after the other.
fn read(scan: &ScanSpec, partitions: usize, batch: usize) -> RecordBatch {
    let source = BuiltinConnectors::new().source(&scan.table).unwrap();
    let mut all = vec![RecordBatch::new_empty(scan.schema())];
    for partition in 0..partitions {
        let mut reader = source.open(scan, partition, partitions, None).unwrap();
        all.extend(drain(reader.as_mut(), batch).unwrap());
    }
    for batch in &all {
        for column in batch.columns() {
            column.to_data().validate_full().unwrap();
        }
    }
    concat(&all)
}

#[test]
fn the_same_events_come_in_any_number_of_partitions_and_batches() {
    for pairs in [
        vec![("events.num", "5000"), ("seed", "7")],
        vec![
            ("events.num", "5000"),
            ("out-of-order.group-size", "50"),
            ("next-event.rate", "2000"),
            ("rate.period", "1s"),
        ],
    ] {
        let table = events(&pairs);
        let expected = generate_events(&table.options, 0..5_000).unwrap();
        let scan = ScanSpec::everything(table);
        assert_eq!(read(&scan, 1, 1 << 20), expected);
        assert_eq!(read(&scan, 1, 77), expected);
        let expected: HashSet<String> = lines(&[expected]).into_iter().collect();
        for partitions in [2, 3, 5] {
            let got = lines(&[read(&scan, partitions, 333)]);
            assert_eq!(got.len(), expected.len(), "{pairs:?} in {partitions} partitions");
            assert!(got.iter().all(|line| expected.contains(line)), "{pairs:?} in {partitions} partitions");
        }
    }
}

#[test]
fn a_projected_and_filtered_scan_gives_the_values_of_the_full_one() {
    let table = events(&[("events.num", "3000"), ("seed", "3")]);
    let full = read(&ScanSpec::everything(table.clone()), 1, 1_000);
    for (kind, column) in [(0, "person"), (1, "auction"), (2, "bid")] {
        let is_kind = full.column(0).as_primitive::<Int32Type>().iter().map(|k| Some(k == Some(kind))).collect();
        let all_fields = full.column_by_name(column).unwrap().as_struct();
        for (index, field) in all_fields.fields().iter().enumerate() {
            let mut scan = ScanSpec::everything(table.clone());
            scan.columns = vec![path(&format!("{column}.{}", field.name()))];
            let unfiltered = read(&scan, 1, 640);
            let values = unfiltered.column(0).as_struct().column(0);
            assert_eq!(values, all_fields.column(index), "{column}.{}", field.name());
            scan.equal_to = vec![of_type(i64::from(kind))];
            let filtered = read(&scan, 1, 640);
            let expected = arrow::compute::filter(all_fields.column(index), &is_kind).unwrap();
            assert_eq!(filtered.column(0).as_struct().column(0), &expected, "{column}.{} alone", field.name());
        }
    }
}

#[test]
fn rows_are_counted_even_without_columns() {
    let mut scan = ScanSpec::everything(events(&[("events.num", "1000")]));
    scan.columns.clear();
    assert_eq!(read(&scan, 2, 100).num_rows(), 1_000);
    scan.equal_to = vec![of_type(1)];
    assert_eq!(read(&scan, 2, 100).num_rows(), 60);
    scan.equal_to = vec![of_type(1), of_type(2)];
    assert_eq!(read(&scan, 2, 100).num_rows(), 0);
    scan.equal_to = vec![of_type(9)];
    assert_eq!(read(&scan, 2, 100).num_rows(), 0);
}

#[test]
fn left_out_events_are_counted_and_move_time() {
    let mut scan = ScanSpec::everything(events(&[("events.num", "1000"), ("first-event.rate", "1000")]));
    scan.equal_to = vec![of_type(0)];
    let source = BuiltinConnectors::new().source(&scan.table).unwrap();
    assert!(source.pushes_down(&scan.equal_to[0]));
    assert!(!source.pushes_down(&EqualTo { path: path("bid.price"), value: Literal::Integer(1) }));
    let mut reader = source.open(&scan, 0, 1, None).unwrap();
    let Read::Rows(batch) = reader.read(100, Duration::ZERO).unwrap() else { panic!("no rows") };
    assert_eq!((batch.rows.num_rows(), batch.events), (2, 100));
    // Event 99, a bid, happens 99 ms after 2015-07-15.
    assert_eq!(batch.left_out_time.unwrap().0, 1_436_918_400_099_000);
    assert!(reader.generator_cpu() > Duration::ZERO);
}

#[test]
fn a_reader_goes_on_where_another_one_stopped() {
    let scan = ScanSpec::everything(events(&[("events.num", "5000")]));
    let source = BuiltinConnectors::new().source(&scan.table).unwrap();
    for partition in 0..2 {
        let mut whole = source.open(&scan, partition, 2, None).unwrap();
        let expected = concat(&drain(whole.as_mut(), 5_000).unwrap());
        let mut first = source.open(&scan, partition, 2, None).unwrap();
        let Read::Rows(head) = first.read(1_300, Duration::ZERO).unwrap() else { panic!("no rows") };
        let mut second = source.open(&scan, partition, 2, Some(&first.offset())).unwrap();
        let mut all = vec![head.rows];
        all.extend(drain(second.as_mut(), 700).unwrap());
        assert_eq!(concat(&all), expected, "partition {partition}");
    }
    let Err(error) = source.open(&scan, 1, 2, Some(&Offset("5".into()))) else { panic!("opened a foreign place") };
    assert!(error.to_string().contains("is not a position in partition 1 of 2"), "{error}");
    assert!(source.open(&scan, 0, 1, Some(&Offset("x".into()))).is_err());
}

fn longs(batch: &RecordBatch, column: &str, field: &str) -> Vec<i64> {
    let column = batch.column_by_name(column).unwrap().as_struct().column_by_name(field).unwrap();
    column.as_primitive::<Int64Type>().iter().flatten().collect()
}

#[test]
fn proportions_and_hot_ratios_are_those_of_the_public_generator() {
    let batch = generate_events(&options(&[("events.num", "0")]), 0..100_000).unwrap();
    let mut kinds = [0; 3];
    batch.column(0).as_primitive::<Int32Type>().values().iter().for_each(|k| kinds[*k as usize] += 1);
    assert_eq!(kinds, [2_000, 6_000, 92_000]);

    let (mut people, mut auctions) = (Vec::new(), Vec::new());
    people.extend(longs(&batch, "person", "id"));
    auctions.extend(longs(&batch, "auction", "id"));
    assert_eq!(people, (1_000..3_000).collect::<Vec<_>>());
    assert_eq!(auctions, (1_000..7_000).collect::<Vec<_>>());

    let share = |values: &[i64], rest: i64| {
        values.iter().filter(|v| (*v - 1_000) % 100 == rest).count() as f64 / values.len() as f64
    };
    // The hot ones, and one in a hundred of the others.
    let bids = longs(&batch, "bid", "auction");
    assert!((0.49..0.52).contains(&share(&bids, 0)), "{}", share(&bids, 0));
    let bidders = longs(&batch, "bid", "bidder");
    assert!((0.74..0.77).contains(&share(&bidders, 1)), "{}", share(&bidders, 1));
    let sellers = longs(&batch, "auction", "seller");
    assert!((0.73..0.78).contains(&share(&sellers, 0)), "{}", share(&sellers, 0));
    assert!(sellers.iter().chain(&bidders).all(|id| (1_000..3_010).contains(id)));

    let mut prices = longs(&batch, "bid", "price");
    assert!(prices.iter().all(|price| (100..=100_000_000).contains(price)));
    prices.sort_unstable();
    // Half-way in the logarithm is 1000.00.
    assert!((90_000..110_000).contains(&prices[prices.len() / 2]), "{}", prices[prices.len() / 2]);
}

#[test]
fn auctions_get_bids_while_they_are_in_flight() {
    let batch = generate_events(&BTreeMap::new(), 500_000..501_000).unwrap();
    let auctions = longs(&batch, "auction", "id");
    let (first, last) = (auctions[0], auctions[auctions.len() - 1]);
    let bids = longs(&batch, "bid", "auction");
    assert!(bids.iter().all(|bid| (first - 101..=last + 10).contains(bid) || (bid - 1_000) % 100 == 0));

    let rows = batch.column_by_name("auction").unwrap().as_struct();
    let times = |name: &str| rows.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().clone();
    let lengths: Vec<i64> =
        times("expires").iter().flatten().zip(times("dateTime").iter().flatten()).map(|(e, t)| e - t).collect();
    // 100 auctions take 166 ms at 10,000 events per second.
    assert!(lengths.iter().all(|length| (1..=333).contains(length)));
    let average = lengths.iter().sum::<i64>() as f64 / lengths.len() as f64;
    assert!((130.0..205.0).contains(&average), "{average}");
}

#[test]
fn events_have_their_average_sizes() {
    let batch = generate_events(&BTreeMap::new(), 0..50_000).unwrap();
    for (column, average) in [("person", 200.0), ("auction", 500.0), ("bid", 100.0)] {
        let event = batch.column_by_name(column).unwrap().as_struct();
        let events = event.len() - event.null_count();
        let mut bytes = 0;
        for (field, values) in event.fields().iter().zip(event.columns()) {
            bytes += match values.as_string_view_opt() {
                Some(_) if matches!(field.name().as_str(), "channel" | "url") => 0,
                Some(texts) => texts.iter().flatten().map(str::len).sum(),
                // The public generator counts one id and the whole numbers, not the times of people.
                None if column == "person" && field.name() == "dateTime" => 0,
                None if column == "auction" && matches!(field.name().as_str(), "id" | "dateTime") => 0,
                None => 8 * events,
            };
        }
        let got = bytes as f64 / events as f64;
        assert!((got - average).abs() < average * 0.03 + 9.0, "{column}: {got}");
    }
}

#[test]
fn the_first_events_of_a_seed_never_change() {
    let batch = generate_events(&options(&[("seed", "42")]), 0..6).unwrap();
    let golden = include_str!("golden/nexmark_seed_42.ndjson");
    assert_eq!(lines(&[batch]), golden.lines().collect::<Vec<_>>());
}

#[test]
fn another_seed_gives_other_events_of_the_same_identifiers() {
    let one = generate_events(&options(&[("seed", "1")]), 0..200).unwrap();
    let two = generate_events(&options(&[("seed", "2")]), 0..200).unwrap();
    assert_ne!(longs(&one, "bid", "price"), longs(&two, "bid", "price"));
    assert_eq!(longs(&one, "auction", "id"), longs(&two, "auction", "id"));
}

#[test]
fn out_of_order_events_are_the_same_events_in_another_order() {
    let ordered = generate_events(&BTreeMap::new(), 0..2_000).unwrap();
    let mixed = generate_events(&options(&[("out-of-order.group-size", "1000")]), 0..2_000).unwrap();
    assert_ne!(ordered, mixed);
    let (mut ordered, mut mixed) = (lines(&[ordered]), lines(&[mixed]));
    ordered.sort();
    mixed.sort();
    assert_eq!(ordered, mixed);
}

#[test]
fn a_range_that_is_made_apart_is_part_of_the_stream() {
    let whole = generate_events(&BTreeMap::new(), 0..1_000).unwrap();
    let parts: Vec<_> =
        [0..3, 3..500, 500..1_000].into_iter().map(|r| generate_events(&BTreeMap::new(), r).unwrap()).collect();
    assert_eq!(lines(&[concat_batches(&whole.schema(), &parts).unwrap()]), lines(&[whole]));
    let ended = generate_events(&options(&[("events.num", "10")]), 8..1_000).unwrap();
    assert_eq!(ended.num_rows(), 2);
    assert!(generate_events(&BTreeMap::new(), 0..10_000_000).is_err());
}

#[test]
fn without_end_events_come_in_real_time() {
    let table =
        checked(table(&[], &[("connector", "nexmark"), ("base-time", "now"), ("first-event.rate", "1000")])).unwrap();
    assert_ne!(table.options["base-time"], "now", "a declaration means the same whenever it is read");
    let source = BuiltinConnectors::new().source(&table).unwrap();
    assert!(!source.bounded() && source.replayable());
    let mut reader = source.open(&ScanSpec::everything(table), 0, 1, None).unwrap();
    let started = std::time::Instant::now();
    let mut events = 0;
    while events < 100 {
        if let Read::Rows(batch) = reader.read(1_000_000, Duration::from_millis(20)).unwrap() {
            events += batch.events;
        }
        // An event is never early.
        assert!(events <= started.elapsed().as_millis() as u64 + 1);
    }
}

#[test]
fn the_public_declaration_is_taken_with_all_its_options() {
    let pairs = [
        ("connector", "nexmark"),
        ("first-event.rate", "10000"),
        ("next-event.rate", "10000"),
        ("events.num", "100"),
        ("person.proportion", "1"),
        ("auction.proportion", "3"),
        ("bid.proportion", "46"),
        ("keep-alive", "false"),
        ("stop-at", "50"),
        ("max-emit-speed", "true"),
    ];
    let table = checked(table(&[], &pairs)).unwrap();
    let source = BuiltinConnectors::new().source(&table).unwrap();
    assert!(source.bounded());
    assert_eq!(read(&ScanSpec::everything(table), 1, 1_000).num_rows(), 50);
}

#[test]
fn wrong_options_are_refused() {
    for (name, value, expected) in [
        ("first-event.rate", "0", "expected a whole number from 1 to 100000000, got '0'"),
        ("events.num", "many", "expected a whole number from 0"),
        ("event.num", "1", "option event.num does not exist; did you mean events.num?"),
        ("out-of-order.group-size", "953", "expected a number that 953 does not divide"),
        ("bid.avg-size", "1MiB", "expected at most 32KiB"),
        ("base-time", "yesterday", "expected 'now', an ISO time"),
    ] {
        let error = nexmark_table("t", &options(&[(name, value)])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let nothing = [("person.proportion", "0"), ("auction.proportion", "0"), ("bid.proportion", "0")];
    assert!(nexmark_table("t", &options(&nothing)).is_err());
}
