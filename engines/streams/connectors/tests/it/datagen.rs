use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, Int64Type, TimestampMillisecondType};
use savanna_streams_model::catalog::{TableDef, varchar};
use savanna_streams_model::source::{FieldPath, ScanSpec};

use crate::{TIMESTAMP, checked, concat, drain, lines, open, source, table};

fn made(more: &[(&str, &str)]) -> TableDef {
    let row = DataType::Struct(
        [Field::new("x", DataType::Int32, true), Field::new("s", varchar(), true)].into_iter().collect(),
    );
    let columns = [
        ("id", DataType::Int64),
        ("price", DataType::Decimal128(6, 2)),
        ("name", varchar()),
        ("ok", DataType::Boolean),
        ("at", TIMESTAMP),
        ("place", row),
        ("weight", DataType::Float64),
    ];
    let mut options = vec![("connector", "datagen"), ("rows-per-second", "1000000"), ("start-time", "1000")];
    options.extend([("fields.id.kind", "sequence"), ("fields.id.start", "5"), ("fields.id.end", "104")]);
    options.extend([("fields.price.min", "1.50"), ("fields.price.max", "9.99"), ("fields.name.length", "7")]);
    options.extend([("fields.place.x.min", "-3"), ("fields.place.x.max", "3"), ("fields.place.s.null-rate", "0.5")]);
    options.extend([("fields.weight.min", "0"), ("fields.weight.max", "1")]);
    options.extend_from_slice(more);
    table(&columns, &options)
}

#[test]
fn values_obey_the_options_of_their_columns() {
    let rows = concat(&drain(open(&checked(made(&[])).unwrap(), None).unwrap().as_mut(), 17).unwrap());
    assert_eq!(rows.num_rows(), 100);
    let ids: Vec<i64> = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(ids, (5..105).collect::<Vec<i64>>());
    let prices = rows.column(1).as_primitive::<arrow::datatypes::Decimal128Type>();
    assert!(prices.values().iter().all(|price| (150..=999).contains(price)));
    assert!(rows.column(2).as_string_view().iter().all(|name| name.unwrap().len() == 7));
    let place = rows.column(5).as_struct();
    let x = place.column(0).as_primitive::<arrow::datatypes::Int32Type>();
    assert!((-3..=3).all(|n| x.values().contains(&n)) && x.values().iter().all(|n| (-3..=3).contains(n)));
    let nulls = place.column(1).null_count();
    assert!((20..80).contains(&nulls), "{nulls} of 100 are NULL");
    let times = rows.column(4).as_primitive::<TimestampMillisecondType>();
    assert!(times.values().iter().all(|time| *time == 1_000), "a hundred rows take a tenth of a millisecond");
    let bools = rows.column(3).as_boolean();
    assert!(bools.true_count() > 20 && bools.false_count() > 20);
}

#[test]
fn rows_are_the_same_however_they_are_read() {
    let table = checked(made(&[])).unwrap();
    let whole = lines(&drain(open(&table, None).unwrap().as_mut(), 1_000).unwrap());
    let source = source(&table).unwrap();
    let mut dealt = Vec::new();
    for partition in 0..3 {
        let scan = ScanSpec::everything(table.clone());
        let mut reader = source.open(&scan, partition, 3, None).unwrap();
        dealt.extend(lines(&drain(reader.as_mut(), 7).unwrap()));
    }
    dealt.sort();
    let mut sorted = whole.clone();
    sorted.sort();
    assert_eq!(dealt, sorted);

    let mut reader = open(&table, None).unwrap();
    while !matches!(reader.read(10, std::time::Duration::ZERO).unwrap(), savanna_streams_model::source::Read::Rows(_)) {
    }
    let rest = lines(&drain(open(&table, Some(&reader.offset())).unwrap().as_mut(), 1_000).unwrap());
    assert!(!rest.is_empty() && whole.ends_with(&rest));

    let mut scan = ScanSpec::everything(table.clone());
    scan.columns = vec![FieldPath(vec!["place".into(), "s".into()]), FieldPath(vec!["name".into()])];
    let pruned = concat(&drain(source.open(&scan, 0, 1, None).unwrap().as_mut(), 1_000).unwrap());
    let everything = concat(&drain(open(&table, None).unwrap().as_mut(), 1_000).unwrap());
    assert_eq!(pruned.column_by_name("name"), everything.column_by_name("name"));
    assert_eq!(
        pruned.column_by_name("place").unwrap().as_struct().column(0),
        everything.column(5).as_struct().column(1)
    );
}

#[test]
fn another_seed_gives_other_values() {
    let names = |seed: &str| {
        let table = checked(made(&[("seed", seed)])).unwrap();
        lines(&drain(open(&table, None).unwrap().as_mut(), 1_000).unwrap())
    };
    assert_ne!(names("1"), names("2"));
    assert_eq!(names("1"), names("1"));
}

#[test]
fn a_table_without_bound_never_ends() {
    let endless = table(&[("n", DataType::Int64)], &[("connector", "datagen")]);
    assert!(!source(&checked(endless).unwrap()).unwrap().bounded());
    let bounded = table(&[("n", DataType::Int64)], &[("connector", "datagen"), ("number-of-rows", "3")]);
    assert!(source(&checked(bounded).unwrap()).unwrap().bounded());
}

#[test]
fn options_that_do_not_fit_name_the_column() {
    let error = |more: &[(&str, &str)]| checked(made(more)).unwrap_err().to_string();
    assert!(error(&[("fields.nme.length", "3")]).starts_with("option fields.nme.length does not exist"));
    assert!(error(&[("fields.ok.kind", "sequence")]).contains("expected 'random', because the column is BOOLEAN"));
    assert!(error(&[("fields.price.min", "x")]).contains("expected a number of type DECIMAL(6, 2), got 'x'"));
    assert!(error(&[("fields.place.x.max", "-9")]).contains("expected no less than the smallest value"));
    assert!(error(&[("fields.name.null-rate", "2")]).contains("expected a share from 0 to 1, got '2'"));
    let map = table(&[("m", DataType::BinaryView)], &[("connector", "datagen")]);
    assert!(
        checked(map).unwrap_err().to_string().starts_with("column m of type BYTES in a datagen table is not supported")
    );
    let none = table(&[], &[("connector", "datagen")]);
    assert!(checked(none).unwrap_err().to_string().contains("has no columns; declare those"));
}
