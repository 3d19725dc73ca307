//! Rows: what is written is read, each column by itself, and bytes that are no row are refused.

use proptest::prelude::*;
use savanna_tenants_encoding::{Layout, RowError, RowReader, RowWriter, Width, version_of};

/// A column and a value of it.
fn any_column() -> impl Strategy<Value = (Width, Option<Vec<u8>>)> {
    let fixed = (0..=16_u8).prop_flat_map(|bytes| {
        let value = prop::collection::vec(any::<u8>(), usize::from(bytes));
        (Just(Width::Fixed(bytes)), prop::option::of(value))
    });
    let variable = (Just(Width::Variable), prop::option::of(prop::collection::vec(any::<u8>(), 0..40)));
    prop_oneof![fixed, variable]
}

fn write(layout: &Layout, values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut row = RowWriter::new(layout);
    for value in values {
        match value {
            Some(value) => row.value(value),
            None => row.null(),
        }
        .expect("values fit their columns");
    }
    row.finish().expect("as many columns as the layout has")
}

fn any_widths() -> impl Strategy<Value = Vec<Width>> {
    prop::collection::vec(any_column().prop_map(|(width, _)| width), 0..20)
}

proptest! {
    #[test]
    fn what_is_written_is_read(columns in prop::collection::vec(any_column(), 0..40), version in any::<u16>()) {
        let (widths, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let layout = Layout::new(version, &widths);
        let row = write(&layout, &values);
        prop_assert_eq!(version_of(&row), Ok(version));
        let reader = RowReader::new(&layout, &row).expect("its own layout");
        for (column, value) in values.iter().enumerate().rev() {
            prop_assert_eq!(reader.column(column), Ok(value.as_deref()));
        }
    }

    #[test]
    fn bytes_of_anybody_never_panic(widths in any_widths(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let layout = Layout::new(version_of(&bytes).unwrap_or(0), &widths);
        if let Ok(reader) = RowReader::new(&layout, &bytes) {
            for column in 0..widths.len() + 2 {
                let _ = reader.column(column);
            }
        }
    }

    #[test]
    fn a_damaged_row_never_panics(
        columns in prop::collection::vec(any_column(), 1..20),
        at in any::<prop::sample::Index>(),
        damage in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (widths, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let layout = Layout::new(0, &widths);
        let mut row = write(&layout, &values);
        let at = at.index(row.len());
        row[at] ^= damage;
        row.truncate(cut.index(row.len()) + 1);
        if let Ok(reader) = RowReader::new(&layout, &row) {
            for column in 0..widths.len() {
                let _ = reader.column(column);
            }
        }
    }
}

#[test]
fn the_format_is_this() {
    let layout = Layout::new(258, &[Width::Fixed(2), Width::Variable, Width::Fixed(1), Width::Variable]);
    let row = write(&layout, &[Some(vec![1, 2]), Some(b"abc".to_vec()), None, Some(b"d".to_vec())]);
    assert_eq!(row, [2, 1, 0b100, 1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, b'a', b'b', b'c', b'd']);
}

#[test]
fn what_does_not_fit_the_layout_is_refused() {
    let layout = Layout::new(1, &[Width::Fixed(2)]);
    let mut row = RowWriter::new(&layout);
    assert_eq!(row.value(&[1]), Err(RowError::Width { column: 0, expected: 2, came: 1 }));
    row.value(&[1, 2]).expect("the right width");
    assert_eq!(row.null(), Err(RowError::Columns { expected: 1, came: 2 }));
    assert_eq!(RowWriter::new(&layout).finish(), Err(RowError::Columns { expected: 1, came: 0 }));
    let row = row.finish().expect("whole");
    let reader = RowReader::new(&layout, &row).expect("its own layout");
    assert_eq!(reader.column(1), Err(RowError::Columns { expected: 1, came: 2 }));
    let other = Layout::new(2, &[Width::Fixed(2)]);
    assert!(matches!(RowReader::new(&other, &row), Err(RowError::Version { expected: 2, came: 1 })));
    assert!(matches!(RowReader::new(&layout, &row[..3]), Err(RowError::Short { expected: 5, came: 3 })));
}
